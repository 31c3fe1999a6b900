//! Where a command waits for the outcome of what it asked a server for by a signal.
//!
//! A signal needs no address, certificate or token: its sender is the user the server runs as, or
//! root, on the same host. But a signal has no answer. The server therefore listens at an abstract
//! Unix address, which contains its process number and the signal. A command connects there before
//! it sends the signal. When the server handles the signal, it accepts these connections, and later
//! sends the outcome to each.
//!
//! Another user can take such an address first. The command detects that the listener is not the
//! process it asked, reports that, and sends no signal. Other users can also fill the queue of
//! connections. The command then sends the signal, which has the server empty the queue, and asks
//! again.

use crate::channel::{Channel, ChannelListener};
use crate::parent::send_signal;
use rustix::process::geteuid;
use std::io;
use std::time::Duration;

/// Where this process finds the commands that wait for the outcome of a signal.
#[derive(Debug)]
pub struct Outcomes(ChannelListener);

/// A command that waits.
#[derive(Debug)]
pub struct Waiting(Channel);

/// The outcome of a signal, in a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done.
    Done(String),
    /// It was not, for this reason.
    Failed(String),
    /// Another process is to be asked: this one only waits for its end.
    AskProcess(u32),
}

impl Outcomes {
    /// Listens for commands that send this process that signal.
    ///
    /// # Errors
    /// The address is taken, or the process is out of files or memory.
    pub fn of(signal: i32) -> io::Result<Outcomes> {
        ChannelListener::named(&name(std::process::id(), signal)).map(Outcomes)
    }

    /// The commands that have connected since this was asked, of this user and of root.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        // Other users may connect again and again.
        for _ in 0..ACCEPTS_MAX {
            let Ok(Some((channel, peer))) = self.0.next_peer() else { break };
            if peer.user == 0 || peer.user == geteuid().as_raw() {
                waiting.push(Waiting(channel));
            }
        }
        waiting
    }
}

impl Waiting {
    /// Tells a command the outcome. It may have gone.
    pub fn tell(&self, outcome: &Outcome) {
        let (kind, text) = match outcome {
            Outcome::Done(sentence) => (DONE, sentence.clone()),
            Outcome::Failed(reason) => (FAILED, reason.clone()),
            Outcome::AskProcess(process) => (ASK_PROCESS, process.to_string()),
        };
        let _ = self.0.set_patience(PATIENCE_TO_TELL);
        let _ = self.0.send(kind, text.as_bytes());
    }
}

/// Sends a signal to a process, and waits for the outcome.
///
/// # Errors
/// [`io::ErrorKind::ConnectionRefused`]: that process has no such address, and was sent nothing.
/// [`io::ErrorKind::UnexpectedEof`]: it has ended. [`io::ErrorKind::WouldBlock`]: it says nothing
/// for that long. Else it may not be sent signals, or the address is not its own.
pub fn ask_process(process: u32, signal: i32, patience: Duration) -> io::Result<Outcome> {
    let mut channel = match Channel::connect(&name(process, signal), process) {
        // The queue is full. The process empties it once it has the signal.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            send_signal(process, signal)?;
            Channel::connect(&name(process, signal), process)?
        }
        connected => connected?,
    };
    channel.set_patience(patience)?;
    send_signal(process, signal)?;
    let parcel = channel.receive()?;
    let text = String::from_utf8_lossy(parcel.bytes).into_owned();
    match parcel.kind {
        DONE => Ok(Outcome::Done(text)),
        FAILED => Ok(Outcome::Failed(text)),
        ASK_PROCESS => match text.parse() {
            Ok(process) => Ok(Outcome::AskProcess(process)),
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
        },
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn name(process: u32, signal: i32) -> Vec<u8> {
    format!("stentor-{process}-{signal}").into_bytes()
}

/// Connections that are looked at for one signal: more than the queue holds.
const ACCEPTS_MAX: usize = 64;

/// Kinds of messages.
const DONE: u8 = 1;
const FAILED: u8 = 2;
const ASK_PROCESS: u8 = 3;

/// A command that reads nothing holds up the server no longer than that.
const PATIENCE_TO_TELL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    /// One that has no effect.
    const SIGNAL: i32 = libc::SIGURG;
    const OTHER_SIGNAL: i32 = libc::SIGWINCH;

    /// A command waits a few seconds at most for connections that the server has not accepted.
    #[test]
    fn a_full_queue_of_connections_is_emptied_by_the_signal() {
        let own = std::process::id();
        let outcomes = Outcomes::of(OTHER_SIGNAL).unwrap();
        let others: Vec<Channel> =
            (0..17).map_while(|_| Channel::connect(&name(own, OTHER_SIGNAL), own).ok()).collect();
        assert!(others.len() >= 16);
        let asked = thread::spawn(move || ask_process(own, OTHER_SIGNAL, Duration::from_secs(30)));
        // The server accepts once a signal has come, which a test cannot see.
        thread::sleep(Duration::from_millis(2_300));
        while !asked.is_finished() {
            let done = Outcome::Done("done".to_owned());
            outcomes.waiting().iter().for_each(|waiting| waiting.tell(&done));
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(asked.join().unwrap().unwrap(), Outcome::Done("done".to_owned()));
    }

    #[test]
    fn one_call_returns_all_commands_that_wait() {
        let own = std::process::id();
        let outcomes = Outcomes::of(libc::SIGCHLD).unwrap();
        let connect = |_| Channel::connect(&name(own, libc::SIGCHLD), own).unwrap();
        let _channels: Vec<Channel> = (0..12).map(connect).collect();
        assert_eq!(outcomes.waiting().len(), 12);
    }

    #[test]
    fn a_command_that_reads_nothing_is_given_up() {
        let (own, signal) = (std::process::id(), libc::SIGCONT);
        let outcomes = Outcomes::of(signal).unwrap();
        let _channel = Channel::connect(&name(own, signal), own).unwrap();
        let waiting = outcomes.waiting().remove(0);
        while waiting.0.try_send(DONE, &[]).unwrap() {}
        let (tells, told) = channel();
        thread::spawn(move || {
            waiting.tell(&Outcome::Done("done".to_owned()));
            tells.send(())
        });
        told.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn an_outcome_comes_back_to_whoever_sent_the_signal() {
        let (own, patience) = (std::process::id(), Duration::from_secs(30));
        let nobody = ask_process(own, SIGNAL, patience).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::ConnectionRefused);
        let outcomes = Outcomes::of(SIGNAL).unwrap();
        assert!(outcomes.waiting().is_empty());
        for outcome in [
            Outcome::Done("reloaded".to_owned()),
            Outcome::Failed("no".to_owned()),
            Outcome::AskProcess(7),
        ] {
            let asks = thread::spawn(move || ask_process(own, SIGNAL, patience));
            let waiting = loop {
                if let Some(waiting) = outcomes.waiting().pop() {
                    break waiting;
                }
                thread::sleep(Duration::from_millis(1));
            };
            waiting.tell(&outcome);
            assert_eq!(asks.join().unwrap().unwrap(), outcome);
        }
        let asks = thread::spawn(move || ask_process(own, SIGNAL, Duration::from_millis(1)));
        assert_eq!(asks.join().unwrap().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let taken = Outcomes::of(SIGNAL).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
