//! A server's life in this process: its log, its start, the signals, and the graceful stop.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::env;
use std::io::stderr;
use std::os::unix::process::CommandExt;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::thread;

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator;
use stentor_config::{LogFormat, Settings};
use stentor_io::{Inherited, Line, Outcome, WaitingParent};
use stentor_process::{LogFiles, Predecessor, Server};
use stentor_server::event_log::{self, EventWriter};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, error, info, warn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::local::{self, LocalCommands};
use crate::{Failure, has_colours, parent, say};

/// Has a thread of its own write to standard error from now on: before anything else of a server
/// starts, so that none of its threads ever waits for standard error.
pub(crate) fn start_log() -> Result<(), Failure> {
    let _held = HeldSignals::hold();
    // A write beyond the limit of a file's size fails then, and does not end the process.
    let ignored = flag::register(SIGXFSZ, Arc::default());
    let started = ignored.and_then(|_| event_log::start());
    started.map_err(|error| Failure::Failed(format!("the log cannot be started: {error}")))
}

/// Where events of note go: standard error, one line each.
pub(crate) struct Log(reload::Handle<LevelFilter, Registry>);

impl Log {
    /// Has events of that level and above it logged from now on, in that form, and panics too. The
    /// journal knows the time of a line, and takes its priority from a prefix (sd-daemon(3)).
    pub(crate) fn to_stderr(level: Level, format: LogFormat) -> Log {
        let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
        let colours = has_colours(&stderr());
        let lines = fmt::layer().with_target(false).with_ansi(colours).with_writer(|| EventWriter);
        let lines = match (format, event_log::is_journal()) {
            (LogFormat::Text, false) => lines.compact().boxed(),
            (LogFormat::Json, false) => lines.json().flatten_event(true).boxed(),
            (LogFormat::Text, true) => {
                lines.compact().without_time().map_event_format(Prioritized).boxed()
            }
            (LogFormat::Json, true) => {
                lines.json().flatten_event(true).map_event_format(Prioritized).boxed()
            }
        };
        registry().with(filter).with(lines).init();
        panic::set_hook(Box::new(log_panic));
        // The profile `quick` has them in this crate alone.
        if cfg!(debug_assertions) {
            warn!(
                "not a release build: TLS, tokens and zstd are compiled without optimisation; \
                 build with --release for full speed"
            );
        }
        Log(handle)
    }

    /// Goes by another level from now on.
    pub(crate) fn set_level(&self, level: Level) {
        // It fails only if the log is gone, and it never goes.
        let _ = self.0.reload(LevelFilter::from_level(level));
    }
}

/// Logs a panic. The standard hook would wait for standard error.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let reason = panic.payload_as_str().unwrap_or("no message").escape_debug();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}"),
        _ => String::new(),
    };
    error!(thread = name, place, "a thread panicked: {reason}{backtrace}");
    if name == "main" {
        event_log::flush();
    }
}

/// Events of a format, each behind its priority.
struct Prioritized<F>(F);

impl<S, N, F: FormatEvent<S, N>> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
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

/// Signals wait while it is there, and none ever comes to a thread that is started meanwhile.
/// One that comes while the first process becomes another program is for that program, and no
/// thread may take it.
struct HeldSignals;

impl HeldSignals {
    fn hold() -> HeldSignals {
        stentor_io::hold_signals();
        HeldSignals
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        stentor_io::release_signals();
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
    /// one once it serves. If `None`, this one continues as if nothing had happened. Commands that
    /// wait hear the outcome. `parent` is the first process, if that is another one.
    pub(crate) fn upgrade(
        &self,
        server: &Server,
        parent: Option<&mut WaitingParent>,
        signals: &mut Signals,
        commands: &LocalCommands,
    ) -> Option<Successor> {
        let (waiting, own) = (commands.upgrades(), process::id());
        match self.try_to_upgrade(server, parent.as_deref(), signals) {
            Ok(successor) => {
                let sentence = format!("upgraded: process {own} -> {}", successor.process);
                local::tell(&waiting, &Outcome::Done(sentence));
                Some(successor)
            }
            Err(reason) => {
                error!("not upgraded, this process goes on: {reason}");
                let sentence = format!("not upgraded, process {own} goes on: {reason}");
                local::tell(&waiting, &Outcome::Failed(sentence));
                // The other process may have told it that it serves.
                if let Some(Err(error)) = parent.map(WaitingParent::tell) {
                    error!("the first process may send signals to no server: {error}");
                }
                None
            }
        }
    }

    fn try_to_upgrade(
        &self,
        server: &Server,
        parent: Option<&WaitingParent>,
        signals: &mut Signals,
    ) -> Result<Successor, String> {
        let stays = parent.is_none() && has_to_stay();
        let line = stays.then(|| stentor_io::adopt_orphans().and_then(|()| Line::new()));
        let line = line.transpose().map_err(|error| {
            let reason = format!("the next process could not be waited for: {error}");
            server.fail_upgrade(&reason);
            reason
        })?;
        let (line, own_end) = line.unzip();
        info!("upgrading: {} is started and takes over", self.0.display());
        let mut program = Command::new(&self.0);
        program.args(env::args_os().skip(1)).env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
        if stays {
            // What a terminal sends it sends to all of a group, and this process passes it on.
            program.process_group(0);
        }
        let signals = RefCell::new(signals);
        let parent = parent.or(own_end.as_ref());
        let next = server.hand_over(&mut program, parent, &|| signals.borrow_mut().is_to_stop())?;
        let then = if stays { "waits for its end" } else { "ends" };
        info!("process {next} has taken over, and this one {then}, process {}", process::id());
        Ok(Successor { process: next, line })
    }
}

/// The process that has taken over from this one.
pub(crate) struct Successor {
    process: u32,
    /// The socket by which this process learns of later successors, if it stays.
    line: Option<Line>,
}

impl Successor {
    /// Passes on what this process was still asked for, and ends, or waits for the end of that one
    /// if it has to stay.
    pub(crate) fn leave_to(
        self,
        ended: Result<(), String>,
        mut signals: Signals,
        commands: LocalCommands,
    ) -> Result<(), Failure> {
        stentor_io::hold_signals();
        for signal in [SIGHUP, SIGUSR2] {
            commands.lead_to(self.process, signal);
        }
        for signal in signals.missed() {
            let _ = stentor_io::send_signal(self.process, signal);
        }
        drop(commands);
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
    stops: Stops,
}

impl Signals {
    pub(crate) fn register() -> Result<Signals, Failure> {
        let all = iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .map_err(|error| Failure::Failed(format!("cannot listen to signals: {error}")))?;
        Ok(Signals { all, waiting: VecDeque::new(), stops: Stops::default() })
    }

    /// Waits for the next signal.
    pub(crate) fn wait(&mut self) -> Told {
        loop {
            if let Some(told) = self.waiting.pop_front() {
                return told;
            }
            let Some(signal) = self.all.forever().next() else { return Told::Stop };
            self.waiting.extend(self.stops.told(signal, stentor_io::monotonic_us()));
        }
    }

    /// Those that have come and were not followed.
    fn missed(&mut self) -> Vec<i32> {
        self.take_pending();
        self.waiting.drain(..).map(|told| told.signal()).collect()
    }

    /// Whether one of those that have come is to stop. They are told by [`Signals::wait`].
    pub(crate) fn is_to_stop(&mut self) -> bool {
        self.take_pending();
        self.waiting.contains(&Told::Stop)
    }

    fn take_pending(&mut self) {
        let Signals { all, waiting, stops } = self;
        let now_us = stentor_io::monotonic_us();
        waiting.extend(all.pending().filter_map(|signal| stops.told(signal, now_us)));
    }
}

/// Signals to stop. A supervisor that signals all processes of a service reaches this one twice:
/// directly, and by way of the process before or the first one. `timeout` signals its child and the
/// group of it. A repeat within [`REPEAT_US`] is therefore the same stop.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// When the last one came, in microseconds of the monotonic clock.
    last_us: Option<u64>,
}

impl Stops {
    /// Returns the meaning of a signal, or `None` for a repeat.
    fn told(&mut self, signal: i32, now_us: u64) -> Option<Told> {
        let told = told(signal);
        let is_repeat = told == Told::Stop && self.is_repeat(now_us);
        (!is_repeat).then_some(told)
    }

    /// Whether a signal to stop is the last one again.
    pub(crate) fn is_repeat(&mut self, now_us: u64) -> bool {
        let is_repeat = self.last_us.is_some_and(|last_us| now_us < last_us + REPEAT_US);
        // mutation: one-stop-twice
        self.last_us = if is_repeat { self.last_us } else { Some(now_us) };
        is_repeat
    }
}

/// A second signal counts after this time: half a second.
const REPEAT_US: u64 = 500_000;

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
    ask_by(SIGUSR2);
}

/// Has the signal come that begins a reload.
pub(crate) fn ask_for_reload() {
    ask_by(SIGHUP);
}

fn ask_by(signal: i32) {
    // To the process: to the thread that asks no signal comes.
    if let Err(error) = stentor_io::send_signal(process::id(), signal) {
        error!("the signal {signal} cannot be sent to this process: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_comes_by_two_ways_is_one() {
        let mut stops = Stops::default();
        let mut heard = |ms: u64| stops.told(SIGTERM, ms * 1_000).is_some();
        assert_eq!(
            [0, 1, 499, 500, 501, 999, 1_001].map(&mut heard),
            [true, false, false, true, false, false, true]
        );
        assert_eq!(stops.told(SIGHUP, 0), Some(Told::Reload));
    }
}
