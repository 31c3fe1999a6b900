//! Stops another process for a while, and has it continue even if this process is killed.
//!
//! A stopped process waits for `SIGCONT`. If this process is killed meanwhile, none of its code
//! runs any more. Therefore it forks a helper process first. The helper reads a pipe that only this
//! process writes to, so it sees the end of the file however this process ends. If the other
//! process is stopped then, the helper sends it `SIGCONT`. Only a `SIGKILL` of both leaves it
//! stopped.
//!
//! The fork comes before this process has much memory: the kernel copies its page tables, and each
//! page that is written to while there is a helper.

use crate::channel::close_files;
use crate::intermediate::block_signals;
use rustix::io::{Errno, read, write};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, setsid, waitpid,
};
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::os::fd::{AsRawFd, OwnedFd};

/// Another process that this one can stop.
#[derive(Debug)]
pub struct StoppableProcess {
    process: OwnedFd,
    helper: Pid,
    commands: PipeWriter,
}

impl StoppableProcess {
    /// Finds a process and starts the helper. Call it before this process has much memory.
    ///
    /// # Errors
    /// There is no such process, or the kernel refused to make another one.
    pub fn new(pid: u32) -> io::Result<StoppableProcess> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        // The number could be that of another process later; the descriptor never is.
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (received, commands) = pipe()?;
        let signals = block_signals()?;
        // SAFETY: the child makes nothing but system calls, so it needs no lock that another thread
        // of this process holds.
        let child = unsafe { libc::fork() };
        if child == 0 {
            help(&process, &received);
        }
        signals.thread_set_mask()?;
        match child {
            1.. => Ok(StoppableProcess {
                process,
                helper: Pid::from_raw(child).expect("it is not 0"),
                commands,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Stops the process, as `kill -STOP` does. The kernel still receives for it.
    ///
    /// # Errors
    /// The process has ended or may not be stopped, or the helper has ended.
    pub fn stop(&self) -> io::Result<Stopped<'_>> {
        self.tell(STOPPED)?;
        let stopped = Stopped(self);
        pidfd_send_signal(&self.process, Signal::STOP)?;
        Ok(stopped)
    }

    fn tell(&self, command: u8) -> io::Result<()> {
        loop {
            match write(&self.commands, &[command]) {
                Err(Errno::INTR) => {}
                written => return Ok(written.map(drop)?),
            }
        }
    }
}

impl Drop for StoppableProcess {
    /// Ends the helper. A closed pipe would not do: threads with a file table of their own have
    /// copies of it.
    fn drop(&mut self) {
        let _ = self.tell(END);
        while matches!(waitpid(Some(self.helper), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

/// A process that is stopped until this is dropped.
#[derive(Debug)]
pub struct Stopped<'p>(&'p StoppableProcess);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.0.process, Signal::CONT);
        let _ = self.0.tell(CONTINUED);
    }
}

/// The helper learns whether the process is stopped, until a command or the end of the file ends
/// it. It has a session of its own, so no signal to a terminal or a group of processes ends it.
fn help(process: &OwnedFd, commands: &PipeReader) -> ! {
    let _ = setsid();
    close_all_but(process.as_raw_fd(), commands.as_raw_fd());
    let mut is_stopped = false;
    loop {
        let mut command = [END];
        match read(commands, &mut command) {
            Ok(1) if command[0] == STOPPED => is_stopped = true,
            Ok(1) if command[0] == CONTINUED => is_stopped = false,
            Err(Errno::INTR) => {}
            _ => break,
        }
    }
    if is_stopped {
        let _ = pidfd_send_signal(process, Signal::CONT);
    }
    // SAFETY: it ends the process at once, without what the parent runs at its own end.
    unsafe { libc::_exit(0) }
}

/// Closes every file of the helper except two. An open copy of the pipe's other end would hide the
/// end of the file from it.
fn close_all_but(one: i32, other: i32) {
    let (low, high) = (one.min(other), one.max(other));
    // SAFETY: the helper uses no other file until it ends, and it ends without destructors.
    unsafe {
        close_files(0, low - 1);
        close_files(low + 1, high - 1);
        close_files(high + 1, i32::MAX);
    }
}

/// The process is about to be stopped.
const STOPPED: u8 = b's';

/// The process continues.
const CONTINUED: u8 = b'c';

/// The helper is to end.
const END: u8 = b'e';

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{ManuallyDrop, forget};
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    /// A process that does nothing, and is killed in the end.
    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Sleeper {
            Sleeper(Command::new("sleep").arg("60").spawn().unwrap())
        }

        /// Waits until the process is stopped, or is not.
        fn await_stopped(&self, expected: bool) {
            let until = Instant::now() + Duration::from_secs(30);
            loop {
                let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
                if status.contains("T (stopped)") == expected {
                    return;
                }
                assert!(Instant::now() < until, "{status}");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_stopped_process_continues_on_drop() {
        let sleeper = Sleeper::new();
        let process = StoppableProcess::new(sleeper.0.id()).unwrap();
        for _ in 0..2 {
            let stopped = process.stop().unwrap();
            sleeper.await_stopped(true);
            drop(stopped);
            sleeper.await_stopped(false);
        }
    }

    #[test]
    fn a_stopped_process_continues_when_the_pipe_closes() {
        let sleeper = Sleeper::new();
        // As if this process were killed: nothing is dropped, and the kernel closes the pipe.
        let process = ManuallyDrop::new(StoppableProcess::new(sleeper.0.id()).unwrap());
        forget(process.stop().unwrap());
        sleeper.await_stopped(true);
        let pipe = process.commands.as_raw_fd();
        // SAFETY: its owner is never dropped.
        unsafe { close_files(pipe, pipe) };
        sleeper.await_stopped(false);
        waitpid(Some(process.helper), WaitOptions::empty()).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_is_not_stopped() {
        let sleeper = Sleeper::new();
        let process = StoppableProcess::new(sleeper.0.id()).unwrap();
        drop(sleeper);
        assert!(process.stop().is_err());
        assert!(StoppableProcess::new(0).is_err());
    }
}
