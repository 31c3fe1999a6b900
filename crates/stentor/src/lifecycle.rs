//! A server's life in this process: its log, its start, the signals, and the graceful stop.

use std::io::stderr;
use std::process;
use std::thread;

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator;
use stentor_server::config::{LogFormat, Settings};
use stentor_server::{Inherited, LogFiles, Server};
use tracing::level_filters::LevelFilter;
use tracing::{Level, info, warn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::{Failure, has_colours};

/// Where events of note go: standard error, one line each.
pub(crate) struct Log(reload::Handle<LevelFilter, Registry>);

impl Log {
    /// Has events of that level and above it logged from now on, in that form.
    pub(crate) fn to_stderr(level: Level, format: LogFormat) -> Log {
        let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
        let colours = has_colours(&stderr());
        let lines = fmt::layer().with_target(false).with_ansi(colours).with_writer(stderr);
        let lines = match format {
            LogFormat::Text => lines.compact().boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        registry().with(filter).with(lines).init();
        Log(handle)
    }

    /// Goes by another level from now on.
    pub(crate) fn set_level(&self, level: Level) {
        // It fails only if the log is gone, and it never goes.
        let _ = self.0.reload(LevelFilter::from_level(level));
    }
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
    /// SIGUSR1
    Reopen,
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
                SIGUSR1 => return Told::Reopen,
                SIGUSR2 => info!("SIGUSR2 is ignored: it is kept for upgrades"),
                _ => return Told::Stop,
            }
        }
        Told::Stop
    }
}

/// Opens log files anew: a tool that rotates them has renamed them.
pub(crate) fn reopen(files: Option<&LogFiles>) {
    match files {
        Some(files) => files.reopen(),
        None => info!("SIGUSR1 is ignored: there is no log file to reopen"),
    }
}

/// Stops gracefully: announces it, then answers what was asked. A second signal to stop ends the
/// process at once.
pub(crate) fn stop(server: Server, mut signals: Signals) -> Result<(), Failure> {
    notify(&[NotifyState::Stopping]);
    let files = server.log_files();
    thread::spawn(move || {
        loop {
            match signals.wait() {
                Told::Stop => break,
                Told::Reload => {}
                Told::Reopen => reopen(files.as_ref()),
            }
        }
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
