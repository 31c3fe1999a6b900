//! The log of a server: its form, and panics in it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::stderr;
use std::panic::{self, PanicHookInfo};
use std::thread;

use stentor_config::LogFormat;
use stentor_server::event_log::{self, EventWriter};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, error, warn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::has_colours;

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
