//! Process 1 of a container that has handed its server over: it has to stay, for its end is that of
//! all others there.
//!
//! All it does is to pass signals on, to take note of who has ended, and to end as the server does.
//! A process that takes over from the one that runs says so by a socket whose name it finds in its
//! environment: so process 1 knows which of them is the server, and there is never a chain of them.
//! When the one before ends, the one that took over is a child of process 1 by the kernel's rule.

use crate::channel::{Channel, ChannelListener};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, geteuid, kill_process, wait};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::process::Command;
use std::ptr;

/// Where process 1 is told who runs the server now.
#[derive(Debug)]
pub struct Line(ChannelListener);

impl Line {
    /// # Errors
    /// Out of files or memory.
    pub fn new() -> io::Result<Line> {
        ChannelListener::new().map(Line)
    }

    /// Has a program find it, and all that this one starts.
    pub fn lead_to(&self, program: &mut Command) {
        let name: String = self.0.name().iter().map(|byte| format!("{byte:02x}")).collect();
        program.env(VARIABLE, name);
    }

    /// Gives it to the program that takes the place of this one, which finds it by this number.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn pass_on(self) -> io::Result<i32> {
        let fd = self.0.into_fd();
        fcntl_setfd(&fd, FdFlags::empty())?;
        Ok(fd.into_raw_fd())
    }

    /// Takes what [`Line::pass_on`] gave. To be asked for once, before anything else is opened.
    ///
    /// # Errors
    /// There is no such file.
    pub fn passed_on(number: i32) -> io::Result<Line> {
        if number <= 2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: whoever was this process before gave it this file, nothing in it has opened
        // another at that number, and it is taken once.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        Ok(Line(ChannelListener::of(fd)))
    }

    /// Who has said last that it runs the server, if anybody has since this was asked.
    #[must_use]
    pub fn heard(&self) -> Option<u32> {
        let mut last = None;
        while let Ok(Some((process, user))) = self.0.next_peer() {
            // Whoever is in another container has no number here.
            if process > 1 && user == geteuid().as_raw() {
                last = Some(process);
            }
        }
        last
    }
}

/// Whether process 1 waits for this one.
#[must_use]
pub fn has_waiting_parent() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Tells process 1 that this one runs the server now, if that waits for it.
///
/// # Errors
/// It is not there, or another's.
pub fn tell_waiting_parent() -> io::Result<()> {
    let Some(name) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let digits = name.as_encoded_bytes().chunks(2);
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let name = digits.map(byte).collect::<Option<Vec<u8>>>();
    let name = name.ok_or(io::ErrorKind::InvalidInput)?;
    // Who connects has said it.
    Channel::connect(&name, 1).map(drop)
}

/// Has signals wait that come to this thread, or to one that it starts, until [`release_signals`],
/// also if another program takes the place of this one.
pub fn hold_signals() {
    mask_signals(libc::SIG_BLOCK);
}

/// Lets those come that wait.
pub fn release_signals() {
    mask_signals(libc::SIG_UNBLOCK);
}

fn mask_signals(how: libc::c_int) {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is read, and the old mask is not asked for.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // A fault of the thread itself is not to wait: it is told of.
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(how, all.as_ptr(), ptr::null_mut());
    }
}

/// Sends a signal to a process.
///
/// # Errors
/// There is none of that number, or it may not be sent signals.
pub fn send_signal(process: u32, signal: i32) -> io::Result<()> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let signal = Signal::from_named_raw(signal);
    let (Some(process), Some(signal)) = (process, signal) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok(kill_process(process, signal)?)
}

/// What is known of the children of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Children {
    /// One has ended, and is none any more.
    Ended {
        /// Its number.
        process: u32,
        /// How, as shells have it: its exit code, or 128 and the signal that killed it.
        code: u8,
    },
    /// There are some, and none has ended.
    Running,
    /// There are none.
    None,
}

/// Takes note of a child that has ended, if one has.
#[must_use]
pub fn reap() -> Children {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((process, status))) => {
                let killed = status.terminating_signal().map(|signal| 128 + signal);
                let code = status.exit_status().or(killed).unwrap_or(1) as u8;
                let process = process.as_raw_nonzero().get() as u32;
                return Children::Ended { process, code };
            }
            Ok(None) => return Children::Running,
            Err(Errno::INTR) => {}
            Err(_) => return Children::None,
        }
    }
}

/// Where whoever takes over finds the line to process 1: the name of its socket, in hexadecimal.
const VARIABLE: &str = "STENTOR_PARENT";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_outlives_the_program_and_says_who_called() {
        let line = Line::new().unwrap();
        let name = line.0.name().to_vec();
        let line = Line::passed_on(line.pass_on().unwrap()).unwrap();
        assert_eq!(line.heard(), None);
        let own = std::process::id();
        for _ in 0..2 {
            drop(Channel::connect(&name, own).unwrap());
        }
        assert_eq!((line.heard(), line.heard()), (Some(own), None));
        let mut program = Command::new("true");
        line.lead_to(&mut program);
        assert!(program.get_envs().any(|(name, _)| name == VARIABLE));
    }
}
