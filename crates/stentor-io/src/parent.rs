//! The first process of a server that has handed it over, where a supervisor waits for its end.
//!
//! Process 1 of a container has to stay, for its end is that of all others there. The same holds
//! for the child of a supervisor that knows no other process: tini, runit, supervisord, a shell.
//!
//! The first process passes signals on, waits for its children, and ends with the server's exit
//! code. It is a subreaper, so a process that takes over becomes its child when the intermediate
//! process ends ([`Intermediate`](crate::Intermediate)). A pair of sockets ([`Line`]) tells it
//! which child is the server: it keeps one end, and each server gives the other end to the next
//! one. No other process can connect to it. Each upgrade leaves two processes. If the first process
//! is killed, the server ends too: then the ports and the store are free for the server that its
//! supervisor starts next.

use crate::channel::{Channel, parent_process, started_with};
use crate::intermediate::exit_code;
use data_encoding::HEXLOWER;
use nix::sys::signal::SigSet;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::SocketType;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use std::io;
use std::os::fd::IntoRawFd;
use std::thread;
use std::time::{Duration, Instant};

/// The end of the first process, by which it learns which process is the server.
#[derive(Debug)]
pub struct Line(Channel);

impl Line {
    /// A pair: the end of this process, and the one for the next server.
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn new() -> io::Result<(Line, WaitingParent)> {
        let (own, next) = Channel::pair()?;
        Ok((Line(own), WaitingParent::Line(next)))
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

    /// Takes what [`Line::pass_on`] gave.
    ///
    /// # Errors
    /// This process was not started with such a socket, or it was taken before.
    pub fn passed_on(number: i32) -> io::Result<Line> {
        started_with(number, SocketType::SEQPACKET).map(|fd| Line(Channel::of(fd)))
    }

    /// The process that has said last that it runs the server, if one has since the last call. It
    /// learns that this process is only a parent now.
    #[must_use]
    pub fn heard(&mut self) -> Option<u32> {
        let mut last = None;
        while let Ok(true) = self.0.has_mail() {
            let Some(process) = self.0.receive().ok().and_then(|parcel| number_of(parcel.bytes))
            else {
                break;
            };
            // A server that does not wait for it has ended.
            let _ = self.0.try_send(NOTED, &process.to_le_bytes());
            last = Some(process);
        }
        last
    }
}

/// The first process, as the servers after it know it.
#[derive(Debug)]
pub enum WaitingParent {
    /// The other end of its [`Line`].
    Line(Channel),
    /// It is of a build before 0.1.0, and listens at an abstract address. It takes a process that
    /// connects for the server.
    Named {
        /// The number of the first process.
        process: u32,
        /// Its address.
        name: Vec<u8>,
        /// The connection to it.
        channel: Option<Channel>,
    },
}

impl WaitingParent {
    /// The one that listens at an address, if the environment names it.
    ///
    /// # Errors
    /// The environment names no address.
    pub fn named() -> io::Result<Option<WaitingParent>> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let named = value.to_str().and_then(|value| {
            let (process, name) = value.split_once(' ')?;
            let name = HEXLOWER.decode(name.as_bytes()).ok()?;
            Some(WaitingParent::Named { process: process.parse().ok()?, name, channel: None })
        });
        named.map(Some).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// What the next server gets of it. `None`: it finds the address in its environment.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match self {
            WaitingParent::Line(channel) => Some(channel.as_fd()),
            WaitingParent::Named { .. } => None,
        }
    }

    pub(crate) fn of(fd: OwnedFd) -> WaitingParent {
        WaitingParent::Line(Channel::of(fd))
    }

    /// Tells the first process that this one runs the server.
    ///
    /// # Errors
    /// It is not there, or takes nothing.
    pub fn tell(&mut self) -> io::Result<()> {
        match self {
            WaitingParent::Line(channel) => {
                match channel.try_send(SERVES, &std::process::id().to_le_bytes())? {
                    true => Ok(()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
            WaitingParent::Named { process, name, channel } => {
                *channel = Some(Channel::connect(name, *process)?);
                Ok(())
            }
        }
    }

    /// Has this process killed when the first one is. Waits until the first process has taken note
    /// of this one: then it is only a parent, and has one thread. A process is killed at the end of
    /// the thread that is its parent, and a server that becomes a parent ends many.
    ///
    /// # Errors
    /// It takes no note, or is not the parent of this process.
    pub fn share_its_end(&mut self) -> io::Result<()> {
        let first = match self {
            WaitingParent::Line(channel) => {
                channel.set_patience(PATIENCE)?;
                while number_of(channel.receive()?.bytes) != Some(std::process::id()) {}
                // The kernel says who has made the pair.
                channel.peer()?.process
            }
            WaitingParent::Named { process, channel, .. } => {
                let mut channel = channel.take().ok_or(io::ErrorKind::NotConnected)?;
                channel.set_patience(PATIENCE)?;
                // It says nothing, and closes the channel.
                match channel.receive().map(drop) {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => *process,
                    Err(error) => return Err(error),
                    Ok(()) => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        };
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

/// The number of a process, as a message has it.
fn number_of(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
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

/// Kinds of messages: a process runs the server; the first process has taken note of that.
const SERVES: u8 = 1;
const NOTED: u8 = 2;

/// Where builds before 0.1.0 say which process is the first one, and its address in hexadecimal.
const VARIABLE: &str = "STENTOR_PARENT";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChannelListener;
    use std::sync::mpsc::channel;

    #[test]
    fn the_line_outlives_the_program_and_each_server_is_noted() {
        let (line, mut next) = Line::new().unwrap();
        let number = line.pass_on().unwrap();
        let mut line = Line::passed_on(number).unwrap();
        assert!(Line::passed_on(number).is_err(), "it is taken once");
        assert!(Line::passed_on(1).is_err());
        assert_eq!(line.heard(), None);
        let own = std::process::id();
        for _ in 0..2 {
            next.tell().unwrap();
        }
        assert_eq!((line.heard(), line.heard()), (Some(own), None));
        let mut after = WaitingParent::of(next.file().unwrap().try_clone_to_owned().unwrap());
        drop(next);
        after.tell().unwrap();
        assert_eq!(line.heard(), Some(own));
        drop(after);
        assert_eq!(line.heard(), None, "all servers have ended");
        let (line, mut next) = Line::new().unwrap();
        drop(line);
        assert!(next.tell().is_err());
    }

    #[test]
    fn a_first_process_may_take_note_late() {
        let (mut line, mut next) = Line::new().unwrap();
        next.tell().unwrap();
        let (shares, shared) = channel();
        thread::spawn(move || shares.send(next.share_its_end()));
        assert!(shared.recv_timeout(Duration::from_millis(20)).is_err(), "it waits");
        // The answer to a server before is not for this one.
        line.0.try_send(NOTED, &0_u32.to_le_bytes()).unwrap();
        assert_eq!(line.heard(), Some(std::process::id()));
        let refused = shared.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err();
        assert!(refused.to_string().contains("not the parent"), "{refused}");
    }

    #[test]
    fn a_first_process_with_an_address_takes_note_of_a_connection() {
        let (listener, process) = (ChannelListener::new().unwrap(), std::process::id());
        let name = listener.name().to_vec();
        let mut first = WaitingParent::Named { process, name, channel: None };
        first.tell().unwrap();
        drop(listener.accept(process, Duration::from_secs(30)).unwrap());
        let refused = first.share_its_end().unwrap_err();
        assert!(refused.to_string().contains("not the parent"), "{refused}");
        assert!(first.tell().is_err(), "it has ended");
    }
}
