//! A server's life in this process: its log, its start, the signals, and the graceful stop.

use std::io::{IsTerminal, stderr};
use std::process;
use std::thread;

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator;
use stentor_server::config::Settings;
use stentor_server::{Inherited, Server};
use tracing::{Level, info, warn};

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

/// Starts the server, or says why it cannot be. It takes the sockets that the process was started
/// with.
pub(crate) fn start(settings: Settings) -> Result<Server, Failure> {
    let inherited = Inherited::all().map_err(|error| {
        Failure::Failed(format!("the sockets given by LISTEN_FDS cannot be taken: {error}"))
    })?;
    stentor_server::start(settings, inherited).map_err(|error| Failure::Failed(error.to_string()))
}

/// Tells whoever supervises the process, if that wants to know (`NOTIFY_SOCKET`, sd_notify(3)).
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("the supervisor could not be told: {error}");
    }
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
        iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map(Signals)
            .map_err(|error| Failure::Failed(format!("cannot listen to signals: {error}")))
    }

    /// Waits for the next signal.
    pub(crate) fn wait(&mut self) -> Told {
        match self.0.forever().next() {
            Some(SIGHUP) => Told::Reload,
            _ => Told::Stop,
        }
    }
}

/// Stops gracefully: announces it, then answers what was asked. A second signal to stop ends the
/// process at once.
pub(crate) fn stop(server: Server, mut signals: Signals) -> Result<(), Failure> {
    notify(&[NotifyState::Stopping]);
    thread::spawn(move || {
        while signals.wait() != Told::Stop {}
        eprintln!("stentor: ended at once");
        process::exit(1);
    });
    server.announce_stop();
    let announce = server.drain_announce();
    if !announce.is_zero() {
        info!("stopping in {announce:?}: /-/readyz says so, and everything goes on until then");
        thread::sleep(announce);
    }
    info!("stopping: answering what was asked; a second signal ends at once");
    server.drain();
    server.wait().map_err(Failure::Failed)?;
    info!("stopped");
    Ok(())
}
