//! The first process of a server that has handed it over, where a supervisor waits for its end.
//!
//! Process 1 of a container has to stay, for its end is that of all others there. The same holds
//! for the child of a supervisor that knows no other process: tini, runit, supervisord, a shell.
//!
//! The first process passes signals on, waits for its children, and ends with the server's exit
//! code. It is a subreaper, so a process that takes over becomes its child when the intermediate
//! process ends ([`Intermediate`](crate::Intermediate)). A process that takes over connects to a
//! socket of the first process. By that the first process knows which child is the server. Each
//! upgrade leaves two processes. If the first process is killed, the server ends too: then the
//! ports and the store are free for the server that its supervisor starts next.

use crate::channel::{Channel, ChannelListener, first_time, parent_process, started_with};
use crate::intermediate::exit_code;
use data_encoding::HEXLOWER;
use nix::sys::signal::SigSet;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::SocketType;
use rustix::process::{
    Pid, Signal, WaitOptions, geteuid, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use std::io;
use std::os::fd::IntoRawFd;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

/// The socket by which the first process learns which process is the server.
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
        let name = HEXLOWER.encode(self.0.name());
        program.env(VARIABLE, format!("{} {name}", std::process::id()));
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

    /// Takes what [`Line::pass_on`] gave. To be asked for before a file is opened.
    ///
    /// # Errors
    /// There is no such socket; or one was taken before.
    pub fn passed_on(number: i32) -> io::Result<Line> {
        if number <= 2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        static IS_TAKEN: AtomicBool = AtomicBool::new(false);
        first_time(&IS_TAKEN)?;
        // SAFETY: `pass_on` gave up this file, and nothing has opened another at its number. It is
        // taken over once.
        let fd = unsafe { started_with(number, SocketType::SEQPACKET)? };
        Ok(Line(ChannelListener::of(fd)))
    }

    /// Who has said last that it runs the server, if anybody has since this was asked.
    #[must_use]
    pub fn heard(&self) -> Option<u32> {
        let mut last = None;
        while let Ok(Some((_, process, user))) = self.0.next_peer() {
            // Whoever is in another container has no number here.
            if process > 1 && user == geteuid().as_raw() {
                last = Some(process);
            }
        }
        last
    }
}

/// Whether the first process waits for this one.
#[must_use]
pub fn has_waiting_parent() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The first process, which waits for the end of this one.
#[derive(Debug)]
pub struct WaitingParent(Channel);

/// Tells the first process that this one runs the server now, if that waits for it.
///
/// # Errors
/// It is not there, or another's.
pub fn tell_waiting_parent() -> io::Result<Option<WaitingParent>> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let (first, name) = value.to_str().and_then(line_of).ok_or(io::ErrorKind::InvalidInput)?;
    // Who connects has said it.
    Channel::connect(&name, first).map(|channel| Some(WaitingParent(channel)))
}

/// The first process, and the name of its socket. A release that hands over in form 1 gives the
/// name alone, and only process 1 does.
fn line_of(value: &str) -> Option<(u32, Vec<u8>)> {
    let (first, name) = value.split_once(' ').unwrap_or(("1", value));
    Some((first.parse().ok()?, HEXLOWER.decode(name.as_bytes()).ok()?))
}

impl WaitingParent {
    /// Has this process killed when the first one is. Waits until that has taken note of this
    /// process: then it is only a parent, and has one thread. A process is killed at the end of the
    /// thread that is its parent, and a server that becomes a parent ends many.
    ///
    /// # Errors
    /// It takes no note, or is not the parent of this process.
    pub fn share_its_end(mut self) -> io::Result<()> {
        let (first, _) = self.0.peer()?;
        self.0.set_patience(PATIENCE)?;
        // It says nothing, and closes the channel.
        match self.0.receive().map(drop) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
            Ok(()) => return Err(io::ErrorKind::InvalidData.into()),
        }
        if parent_process() != first {
            return Err(io::Error::other("it is not the parent of this process"));
        }
        // mutation: orphan
        set_parent_process_death_signal(Some(Signal::KILL))?;
        match parent_process() == first {
            true => Ok(()),
            false => Err(io::Error::other("it has ended")),
        }
    }
}

/// Has this process adopt what its children leave behind, as process 1 does of all others.
///
/// # Errors
/// The kernel refused.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Has signals wait that come to this thread, or to one that it starts, until [`release_signals`],
/// also if another program takes the place of this one.
pub fn hold_signals() {
    // It cannot fail: the kernel knows both what to do and the set.
    let _ = those_that_may_wait().thread_block();
}

/// Lets those come that wait.
pub fn release_signals() {
    let _ = those_that_may_wait().thread_unblock();
}

/// Every signal except the two by which the kernel reports a fault of the thread itself.
fn those_that_may_wait() -> SigSet {
    let mut signals = SigSet::all();
    signals.remove(nix::sys::signal::SIGSEGV);
    signals.remove(nix::sys::signal::SIGBUS);
    signals
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
                let process = process.as_raw_nonzero().get() as u32;
                return Children::Ended { process, code: exit_code(status) };
            }
            Ok(None) => return Children::Running,
            Err(Errno::INTR) => {}
            Err(_) => return Children::None,
        }
    }
}

/// Takes note of all children that end within that time. Returns early once there are none.
pub fn reap_within(patience: Duration) {
    let until = Instant::now() + patience;
    loop {
        match reap() {
            Children::None => return,
            Children::Ended { .. } => {}
            Children::Running if Instant::now() > until => return,
            Children::Running => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// How long the first process may take to become a parent, and take note of a successor.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a process that takes over finds the line to the first process: its number, and the name of
/// its socket in hexadecimal.
const VARIABLE: &str = "STENTOR_PARENT";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_line_outlives_the_program_and_says_who_called() {
        let line = Line::new().unwrap();
        let name = line.0.name().to_vec();
        let line = Line::passed_on(line.pass_on().unwrap()).unwrap();
        assert!(Line::passed_on(3).is_err(), "it is taken over once");
        assert_eq!(line.heard(), None);
        let own = std::process::id();
        for _ in 0..2 {
            drop(Channel::connect(&name, own).unwrap());
        }
        assert_eq!((line.heard(), line.heard()), (Some(own), None));
        let line = Line::new().unwrap();
        let mut program = Command::new("true");
        line.lead_to(&mut program);
        let value = program.get_envs().find(|(name, _)| *name == VARIABLE).unwrap().1.unwrap();
        let (first, name) = line_of(value.to_str().unwrap()).unwrap();
        assert_eq!(first, own);
        Channel::connect(&name, own).unwrap();
        assert_eq!(line.heard(), Some(own));
        assert!(
            line_of("00") == line_of("1 00")
                && line_of("1 00").is_some()
                && line_of("1 0").is_none()
                && line_of("1 x").is_none()
        );
    }

    #[test]
    fn a_first_process_may_take_note_late() {
        let (line, own) = (Line::new().unwrap(), std::process::id());
        let first = WaitingParent(Channel::connect(line.0.name(), own).unwrap());
        let (shares, shared) = channel();
        thread::spawn(move || shares.send(first.share_its_end()));
        assert!(shared.recv_timeout(Duration::from_millis(20)).is_err(), "it waits");
        assert_eq!(line.heard(), Some(own));
        let refused = shared.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err();
        assert!(refused.to_string().contains("not the parent"), "{refused}");
    }
}
