//! The process between a server and the one that started it to take over.
//!
//! A supervisor such as systemd waits for a process only if that is its child. The kernel makes an
//! orphan a child of the nearest subreaper, or else of process 1. Therefore a program that is
//! started to take over forks at once: the child becomes the server, and the parent, the
//! intermediate process, only waits for it. As soon as the server serves, it ends the intermediate
//! process, and is a child of the supervisor.
//!
//! Until then the server before has a child that it can wait for: the intermediate process ends
//! with the exit code of the new server. If the intermediate process is killed, so is the server.

use crate::channel::close_files;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    set_parent_process_death_signal, waitpid,
};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The parent of this process, which is there until [`Intermediate::end`].
#[derive(Debug)]
pub struct Intermediate {
    process: Pid,
}

impl Intermediate {
    /// Forks, and returns in the child. The parent has no files but the first three, ignores every
    /// signal but `SIGKILL`, and ends with the exit code of its child, or 128 and the number of the
    /// signal that ended it.
    ///
    /// # Errors
    /// The process has more than one thread: a fork has a copy of the calling thread alone. Or the
    /// kernel refused to make another process, or the parent was killed.
    pub fn fork() -> io::Result<Intermediate> {
        let process = getpid();
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("the process has other threads"));
        }
        let signals = block_signals()?;
        // SAFETY: the process has one thread, which makes no other in between, so no thread that
        // the child lacks holds a lock.
        let child = unsafe { libc::fork() };
        if child > 0 {
            // SAFETY: this process uses no file until it ends, and it ends without destructors.
            unsafe { close_files(3) };
            end_as(Pid::from_raw(child));
        }
        signals.thread_set_mask()?;
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before this process asked for the signal.
        match getppid() == Some(process) {
            true => Ok(Intermediate { process }),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends the intermediate process. When this returns, this process is a child of the nearest
    /// subreaper or of process 1, and outlives the server before.
    ///
    /// # Errors
    /// The kernel refused, or the process does not end.
    pub fn end(self) -> io::Result<()> {
        set_parent_process_death_signal(None)?;
        let until = Instant::now() + PATIENCE;
        while getppid() == Some(self.process) {
            kill_process(self.process, Signal::KILL)?;
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Waits for a child, and ends with its exit code.
fn end_as(child: Option<Pid>) -> ! {
    let code = loop {
        match waitpid(child, WaitOptions::empty()) {
            Ok(Some((_, status))) => break i32::from(exit_code(status)),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => break 1,
        }
    };
    // SAFETY: it ends the process at once, without what the child has to run at its own end.
    unsafe { libc::_exit(code) }
}

/// How a process has ended, as shells have it: its exit code, or 128 and the signal that killed it.
pub(crate) fn exit_code(status: WaitStatus) -> u8 {
    let killed = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(killed).unwrap_or(1) as u8
}

/// Blocks every signal that can be. Returns which were blocked before.
pub(crate) fn block_signals() -> io::Result<SigSet> {
    Ok(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}

/// How long the kernel may take to end a process that was killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often this process asks for its parent.
const LOOK: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Forks, without a copy of the file table: a copy would keep files of other tests open.
    fn fork() -> Option<Pid> {
        let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
        // SAFETY: the children below make nothing but system calls, so they need no lock that
        // another thread of this process holds.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        assert!(child >= 0);
        Pid::from_raw(child as i32)
    }

    #[test]
    fn a_server_outlives_its_intermediate_process() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let Some(parent) = fork() else {
            let process = getpid();
            if let Some(server) = fork() {
                end_as(Some(server));
            }
            let is_alone = Intermediate { process }.end().is_ok() && getppid() != Some(process);
            let _ = (&there).write(&[u8::from(is_alone)]);
            // SAFETY: it ends the process at once, without what the test has to run at its own end.
            unsafe { libc::_exit(0) }
        };
        let mut is_alone = [0];
        here.read_exact(&mut is_alone).unwrap();
        assert_eq!(is_alone, [1]);
        waitpid(Some(parent), WaitOptions::empty()).unwrap();
    }
}
