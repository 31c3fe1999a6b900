//! A server's life in this process: its log, its start, the signals, and the graceful stop.

use std::io::{IsTerminal, stderr};
use std::process;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator;
use stentor_server::Server;
use stentor_server::config::Settings;
use tracing::{Level, info};

use crate::Failure;

/// Sends events of note to standard error, one line each.
pub(crate) fn log_to_stderr(level: Level) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .compact()
        .init();
}

/// Starts the server, or says why it cannot be.
pub(crate) fn start(settings: Settings) -> Result<Server, Failure> {
    stentor_server::start(settings).map_err(|error| Failure::Failed(error.to_string()))
}

/// What a signal told the process to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// SIGTERM or SIGINT
    Stop,
    /// SIGHUP
    Reload,
}

/// The signals this process listens to. Register them before the server starts: from then on none
/// is lost, and none kills.
pub(crate) struct Signals(iterator::Signals);

impl Signals {
    pub(crate) fn register() -> Result<Signals, Failure> {
        iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .map(Signals)
            .map_err(|error| Failure::Failed(format!("cannot listen to signals: {error}")))
    }

    /// Waits for the next signal that tells it something. Others are noted: by default they would
    /// kill, and tools that rotate logs or upgrade programs send them to whatever runs.
    pub(crate) fn wait(&mut self) -> Told {
        for signal in self.0.forever() {
            match signal {
                SIGHUP => return Told::Reload,
                SIGUSR1 => info!("SIGUSR1 is ignored: there is no log file to reopen"),
                SIGUSR2 => info!("SIGUSR2 is ignored: it is kept for upgrades"),
                _ => return Told::Stop,
            }
        }
        Told::Stop
    }
}

/// Stops gracefully: what was asked is answered. A second signal to stop ends the process at once.
pub(crate) fn stop(server: Server, mut signals: Signals) -> Result<(), Failure> {
    info!("stopping: answering what was asked; a second signal ends at once");
    server.drain();
    thread::spawn(move || {
        while signals.wait() != Told::Stop {}
        eprintln!("stentor: ended at once");
        process::exit(1);
    });
    server.wait().map_err(Failure::Failed)?;
    info!("stopped");
    Ok(())
}
