//! A server's life in this process: its start, and the graceful stop. Below are its log, the
//! signals, and the process that takes over.

mod log;
mod signals;
mod successor;

use std::env;
use std::process;
use std::sync::Arc;
use std::thread;

use sd_notify::NotifyState;
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;
use stentor_config::Settings;
use stentor_io::{Inherited, WaitingParent};
use stentor_process::{LogFiles, Predecessor, Server};
use stentor_server::event_log;
use tracing::{error, info, warn};

use crate::{Failure, say};
use signals::HeldSignals;

pub(crate) use log::Log;
#[cfg(feature = "bench")]
pub(crate) use signals::Stops;
pub(crate) use signals::{Signals, Told, ask_for_reload, ask_for_upgrade};
pub(crate) use successor::Program;

/// Has a thread of its own write to standard error from now on: before anything else of a server
/// starts, so that none of its threads ever waits for standard error.
pub(crate) fn start_log() -> Result<(), Failure> {
    let _held = HeldSignals::hold();
    // A write beyond the limit of a file's size fails then, and does not end the process.
    let ignored = flag::register(SIGXFSZ, Arc::default());
    let started = ignored.and_then(|_| event_log::start());
    started.map_err(|error| Failure::Failed(format!("the log cannot be started: {error}")))
}

/// The process that started this one to take over from it, if one did.
pub(crate) fn predecessor() -> Result<Option<Predecessor>, Failure> {
    Predecessor::find().map_err(|reason| Failure::Failed(format!("not taken over: {reason}")))
}

/// Starts the server, or says why it cannot be. It takes the sockets that the process was started
/// with.
pub(crate) fn start(settings: Settings) -> Result<Server, Failure> {
    let _held = HeldSignals::hold();
    let inherited = Inherited::all().map_err(|error| {
        Failure::Failed(format!("the sockets given by LISTEN_FDS cannot be taken: {error}"))
    })?;
    stentor_process::start(settings, inherited).map_err(|error| Failure::Failed(error.to_string()))
}

/// Takes the server over from the process before. That one then ends, or waits for the end of this
/// one. If this fails, it continues, and this process reports the reason.
pub(crate) fn take_over(
    settings: Settings,
    mut predecessor: Predecessor,
) -> Result<(Server, Option<WaitingParent>), Failure> {
    let _held = HeldSignals::hold();
    let taken = stentor_process::take_over(settings, &mut predecessor);
    let server = taken.map_err(|error| Failure::Failed(error.to_string()))?;
    if let Err(error) = predecessor.part() {
        error!("the supervisor may not wait for this process, for it is not its child: {error}");
    }
    // Before the other one ends: else the supervisor would take that for the end of the service.
    if predecessor.has_waiting_parent() {
        // The supervisor of the first process knows no other.
        notify(&[NotifyState::Ready]);
    } else {
        notify(&[NotifyState::MainPid(process::id()), NotifyState::Ready]);
    }
    Ok((server, predecessor.release()))
}

/// Has this process end with the first one, which waits for the end of the server.
pub(crate) fn share_end(parent: Option<&mut WaitingParent>) {
    if let Some(Err(error)) = parent.map(WaitingParent::share_its_end) {
        warn!("this process may outlive the first one, which waits for its end: {error}");
    }
}

/// Whether the first process has to stay when another one takes over. The end of process 1 is the
/// end of its container, and a supervisor without a notification socket waits for its child alone.
fn has_to_stay() -> bool {
    process::id() == 1 || env::var_os("NOTIFY_SOCKET").is_none()
}

/// Tells whoever supervises the process, if that wants to know (`NOTIFY_SOCKET`, sd_notify(3)).
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("the supervisor could not be told: {error}");
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
                Told::Reload | Told::Upgrade => {}
                Told::Reopen => reopen(files.as_ref()),
            }
        }
        say::error("ended at once");
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
