//! Stops another process for a while, and has it continue even if this process is killed.
//!
//! A stopped process waits for `SIGCONT`. If this process is killed meanwhile, none of its code
//! runs any more. Therefore it first starts a shell, which reads a pipe that only this process
//! writes to. The shell sees the end of the file however this process ends, and sends `SIGCONT`.
//! Only a `SIGKILL` of both leaves the other process stopped.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A process that is stopped until this is dropped.
#[derive(Debug)]
pub(super) struct StoppedProcess {
    shell: Child,
}

impl StoppedProcess {
    /// Stops a process, as `kill -STOP` does. The kernel still receives for it.
    ///
    /// # Errors
    /// There is no such process or it may not be stopped, or there is no shell.
    pub(super) fn stop(pid: u32) -> io::Result<StoppedProcess> {
        // To `kill`, 0 is a group of processes.
        if pid == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut stopped = StoppedProcess { shell: spawn_shell(pid, Stdio::piped())? };
        let is_stopped = stopped.shell.stdout.take().map(|mut out| out.read_exact(&mut [0]));
        match is_stopped {
            Some(Ok(())) => Ok(stopped),
            _ => Err(io::Error::other("it is not there, or may not be stopped")),
        }
    }
}

impl Drop for StoppedProcess {
    /// A closed pipe would not do: threads with a file table of their own may have copies of it.
    fn drop(&mut self) {
        let _ = self.shell.stdin.take().map(|mut shell| shell.write_all(b"\n"));
        let _ = self.shell.wait();
    }
}

/// Starts a shell that stops the process, writes a line, and continues the process when its input
/// ends.
fn spawn_shell(pid: u32, stdout: Stdio) -> io::Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, &pid.to_string()]).stderr(Stdio::null());
    shell.stdin(Stdio::piped()).stdout(stdout);
    // In a group of its own, so no signal of a terminal ends it.
    shell.process_group(0).spawn()
}

/// Nothing between the two signals may end the shell: if this process is killed before it reads the
/// line, writing the line raises `SIGPIPE`.
const SCRIPT: &str = "trap '' PIPE; kill -STOP \"$0\" && { echo; read _; kill -CONT \"$0\"; }";

#[cfg(test)]
mod tests {
    use super::*;
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
        for _ in 0..2 {
            let stopped = StoppedProcess::stop(sleeper.0.id()).unwrap();
            sleeper.await_stopped(true);
            drop(stopped);
            sleeper.await_stopped(false);
        }
    }

    #[test]
    fn a_stopped_process_continues_when_the_pipe_closes() {
        let sleeper = Sleeper::new();
        let mut stopped = StoppedProcess::stop(sleeper.0.id()).unwrap();
        sleeper.await_stopped(true);
        // As the kernel does if this process is killed.
        drop(stopped.shell.stdin.take());
        sleeper.await_stopped(false);
    }

    #[test]
    fn a_process_continues_if_nobody_reads_the_line() {
        let sleeper = Sleeper::new();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut shell = spawn_shell(sleeper.0.id(), writer.into()).unwrap();
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
        sleeper.await_stopped(false);
    }

    #[test]
    fn a_process_that_has_ended_is_not_stopped() {
        let sleeper = Sleeper::new();
        let pid = sleeper.0.id();
        drop(sleeper);
        assert!(StoppedProcess::stop(pid).is_err());
        assert!(StoppedProcess::stop(0).is_err());
    }
}
