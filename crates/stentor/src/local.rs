//! Commands that a running server is given on its own host: by a signal to its process, with an
//! outcome.
//!
//! This way needs neither the address of a control listener nor a certificate or a token, so a
//! service manager or a package can take it however the server is configured. The server obeys the
//! user it runs as, and root. `stentor-io/src/outcomes.rs` says how the outcome comes back.

use std::io::ErrorKind;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGUSR2};
use stentor_io::{Outcome, Outcomes, Waiting};
use tracing::warn;

use crate::Failure;

/// Where this process finds the commands that wait for an outcome.
pub(crate) struct LocalCommands {
    reloads: Option<Outcomes>,
    upgrades: Option<Outcomes>,
}

impl LocalCommands {
    /// Listens for commands to this process. If that fails, signals still have their effect.
    pub(crate) fn listen() -> LocalCommands {
        let of = |signal| {
            let outcomes = Outcomes::of(signal).inspect_err(|error| {
                warn!("commands with --process get no answer from this process: {error}");
            });
            outcomes.ok()
        };
        LocalCommands { reloads: of(SIGHUP), upgrades: of(SIGUSR2) }
    }

    /// The commands that wait for a reload. Call this before the configuration is read: a later
    /// command may be about a newer file.
    pub(crate) fn reloads(&self) -> Vec<Waiting> {
        self.reloads.as_ref().map(Outcomes::waiting).unwrap_or_default()
    }

    /// Those that wait for an upgrade.
    pub(crate) fn upgrades(&self) -> Vec<Waiting> {
        self.upgrades.as_ref().map(Outcomes::waiting).unwrap_or_default()
    }

    /// Has the commands that wait for the outcome of this signal ask another process, which is the
    /// server. Returns whether there were any: they send the signal to it themselves.
    pub(crate) fn lead_to(&self, process: u32, signal: i32) -> bool {
        let waiting = match signal {
            SIGHUP => self.reloads(),
            SIGUSR2 => self.upgrades(),
            _ => Vec::new(),
        };
        tell(&waiting, &Outcome::AskProcess(process));
        !waiting.is_empty()
    }
}

/// Tells commands the outcome.
pub(crate) fn tell(waiting: &[Waiting], outcome: &Outcome) {
    waiting.iter().for_each(|command| command.tell(outcome));
}

/// Has a process reload, and waits for the outcome: a sentence.
pub(crate) fn reload(process: u32) -> Result<String, Failure> {
    ask(process, SIGHUP)
}

/// Has a process upgrade, and waits for the outcome: a sentence.
pub(crate) fn upgrade(process: u32) -> Result<String, Failure> {
    ask(process, SIGUSR2)
}

fn ask(mut process: u32, signal: i32) -> Result<String, Failure> {
    for _ in 0..HOPS {
        match outcome(process, signal)? {
            Outcome::Done(sentence) => return Ok(sentence),
            Outcome::Failed(reason) => return Err(Failure::Failed(reason)),
            Outcome::AskProcess(server) => process = server,
        }
    }
    Err(Failure::Failed("the server is handed over again and again: try later".to_owned()))
}

fn outcome(process: u32, signal: i32) -> Result<Outcome, Failure> {
    stentor_io::ask_process(process, signal, PATIENCE).map_err(|error| {
        Failure::Failed(match error.kind() {
            ErrorKind::ConnectionRefused => {
                format!("process {process} is no server that can be asked: it was sent nothing")
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                format!("process {process} has ended, and has not said what came of it")
            }
            ErrorKind::WouldBlock => {
                format!("process {process} has said nothing for {PATIENCE:?}; its log says more")
            }
            _ => format!("process {process} cannot be asked: {error}"),
        })
    })
}

/// Longer than an upgrade takes that is given up.
const PATIENCE: Duration = Duration::from_secs(180);

/// The first process, the server, and one that takes over meanwhile.
const HOPS: u32 = 3;
