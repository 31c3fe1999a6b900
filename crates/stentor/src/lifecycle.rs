//! A server's life in this process: its log, its start, the signals, and the graceful stop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::env;
use std::io::stderr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator;
use stentor_server::config::{LogFormat, Settings};
use stentor_server::{Inherited, Line, LogFiles, Predecessor, Server};
use tracing::level_filters::LevelFilter;
use tracing::{Level, error, info, warn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::{Failure, has_colours, parent};

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
    stentor_server::start(settings, inherited).map_err(|error| Failure::Failed(error.to_string()))
}

/// Takes the server over from the process before, which ends; or says why that goes on.
pub(crate) fn take_over(
    settings: Settings,
    mut predecessor: Predecessor,
) -> Result<Server, Failure> {
    let _held = HeldSignals::hold();
    let taken = stentor_server::take_over(settings, &mut predecessor);
    let server = taken.map_err(|error| Failure::Failed(error.to_string()))?;
    // Before the other one ends: else the supervisor would take that for the end of the service.
    if stentor_server::has_waiting_parent() {
        // To whoever supervises the container the process is still that one.
        notify(&[NotifyState::Ready]);
        if let Err(error) = stentor_server::tell_waiting_parent() {
            error!("process 1 could not be told who has taken over: {error}");
        }
    } else {
        notify(&[NotifyState::MainPid(process::id()), NotifyState::Ready]);
    }
    predecessor.release();
    Ok(server)
}

/// Signals wait while it is there, and none ever comes to a thread that is started meanwhile: what
/// comes while process 1 becomes another program is for that one, and no thread may take it.
struct HeldSignals;

impl HeldSignals {
    fn hold() -> HeldSignals {
        stentor_server::hold_signals();
        HeldSignals
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        stentor_server::release_signals();
    }
}

/// The program that this process was started by, as it is there now: found once, at the start.
pub(crate) struct Program(PathBuf);

impl Program {
    /// Not `/proc/self/exe`: behind an upgrade of the package that is the old program, which has no
    /// name any more.
    pub(crate) fn find() -> Program {
        let name = env::args_os().next().unwrap_or_default();
        let path = if Path::new(&name).components().count() > 1 {
            std::path::absolute(&name).ok()
        } else {
            let dirs = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&dirs).map(|dir| dir.join(&name)).find(|path| path.is_file())
        };
        Program(path.or_else(|| env::current_exe().ok()).unwrap_or_default())
    }

    /// Hands the server over to another process of it, with the arguments of this one. Returns that
    /// one if it serves now, and this one is to end; if `None`, this one goes on as if nothing had
    /// been.
    pub(crate) fn upgrade(&self, server: &Server, signals: &mut Signals) -> Option<Successor> {
        // Of process 1 the end is the container's.
        let line = (process::id() == 1).then(Line::new).transpose();
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                let reason = format!("process 1 could not be told who takes over: {error}");
                error!("not upgraded, this process goes on: {reason}");
                server.fail_upgrade(&reason);
                return None;
            }
        };
        info!("upgrading: {} is started and takes over", self.0.display());
        let mut program = Command::new(&self.0);
        program.args(env::args_os().skip(1)).env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
        if let Some(line) = &line {
            line.lead_to(&mut program);
            // What a terminal sends it sends to all of a group, and this process passes it on.
            program.process_group(0);
        }
        let signals = RefCell::new(signals);
        match server.hand_over(&mut program, &|| signals.borrow_mut().is_to_stop()) {
            Ok(successor) => {
                let (next, own) = (successor.id(), process::id());
                let then = if line.is_some() { "waits for its end" } else { "ends" };
                info!("process {next} has taken over, and this one {then}, process {own}");
                Some(Successor { process: next, line })
            }
            Err(reason) => {
                error!("not upgraded, this process goes on: {reason}");
                None
            }
        }
    }
}

/// The process that has taken over from this one.
pub(crate) struct Successor {
    process: u32,
    /// If this is process 1, where that tells who takes over from it.
    line: Option<Line>,
}

impl Successor {
    /// Passes on what this process was still asked for, and ends, or waits for the end of that one
    /// if this is process 1.
    pub(crate) fn leave_to(
        self,
        ended: Result<(), String>,
        mut signals: Signals,
    ) -> Result<(), Failure> {
        stentor_server::hold_signals();
        for signal in signals.missed() {
            let _ = stentor_server::send_signal(self.process, signal);
        }
        let Some(line) = self.line else { return ended.map_err(Failure::Failed) };
        if let Err(reason) = ended {
            error!("{reason}");
        }
        parent::become_parent(line, self.process)
    }
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
    /// SIGUSR2
    Upgrade,
}

/// The signals this process listens to. Register them before the server starts: from then on none
/// is lost, and none kills.
pub(crate) struct Signals {
    all: iterator::Signals,
    /// Those that came while something else was done.
    waiting: VecDeque<Told>,
}

impl Signals {
    pub(crate) fn register() -> Result<Signals, Failure> {
        let all = iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .map_err(|error| Failure::Failed(format!("cannot listen to signals: {error}")))?;
        Ok(Signals { all, waiting: VecDeque::new() })
    }

    /// Waits for the next signal.
    pub(crate) fn wait(&mut self) -> Told {
        let waiting = self.waiting.pop_front();
        waiting.or_else(|| self.all.forever().next().map(told)).unwrap_or(Told::Stop)
    }

    /// Those that have come and were not followed.
    fn missed(&mut self) -> Vec<i32> {
        self.waiting.extend(self.all.pending().map(told));
        self.waiting.drain(..).map(|told| told.signal()).collect()
    }

    /// Whether one of those that have come is to stop. They are told by [`Signals::wait`].
    fn is_to_stop(&mut self) -> bool {
        self.waiting.extend(self.all.pending().map(told));
        self.waiting.contains(&Told::Stop)
    }
}

impl Told {
    fn signal(&self) -> i32 {
        match self {
            Told::Stop => SIGTERM,
            Told::Reload => SIGHUP,
            Told::Reopen => SIGUSR1,
            Told::Upgrade => SIGUSR2,
        }
    }
}

fn told(signal: i32) -> Told {
    match signal {
        SIGHUP => Told::Reload,
        SIGUSR1 => Told::Reopen,
        SIGUSR2 => Told::Upgrade,
        _ => Told::Stop,
    }
}

/// Has the signal come that begins an upgrade.
pub(crate) fn ask_for_upgrade() {
    // To the process: to the thread that asks no signal comes.
    if let Err(error) = stentor_server::send_signal(process::id(), SIGUSR2) {
        error!("not upgraded: the signal cannot be sent: {error}");
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
