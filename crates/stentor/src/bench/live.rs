//! What is seen of a run while it is under way: a line on the terminal, and signals to stop.
//!
//! The engine says how it goes whenever it likes, from any thread. That is only noted; a thread of
//! our own draws the newest four times a second, so that a slow terminal holds up nobody who
//! measures. The line goes to standard error, and only to a terminal: in a pipe or a log it would
//! be noise.
//!
//! indicatif would bring four packages for one line, and the thread that draws is needed either
//! way.

use std::io::{IsTerminal, Write as _, stderr};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use stentor_bench::progress::{Progress, Watch};
use stentor_io::units::{thousands, time_us, without_zeros};

use crate::Failure;
use crate::lifecycle::Stops;

/// Returns the result of `work`, and the signal that ended it early. A line shows its progress
/// unless `quiet`. The first SIGINT or SIGTERM tells `work` to stop; the second one ends the
/// process.
pub(super) fn watched<T>(
    quiet: bool,
    work: impl FnOnce(&dyn Watch) -> T,
) -> Result<(T, Option<i32>), Failure> {
    let live = Live::default();
    live.listen()
        .map_err(|error| Failure::Failed(format!("signals cannot be listened to: {error}")))?;
    if quiet || !stderr().is_terminal() {
        return Ok((work(&live), live.stopped_by()));
    }
    let value = thread::scope(|scope| {
        let (end, ended) = channel();
        scope.spawn(|| live.draw_until(ended));
        let value = work(&live);
        drop::<std::sync::mpsc::Sender<()>>(end);
        value
    });
    Ok((value, live.stopped_by()))
}

/// The state between the engine, the terminal and the signal.
#[derive(Default)]
struct Live {
    /// The signal that stops the run; 0: none.
    stop: Arc<AtomicI32>,
    latest: Mutex<Option<Progress>>,
}

impl Watch for Live {
    fn progress(&self, progress: &Progress) {
        *stentor_io::lock(&self.latest) = Some(progress.clone());
    }

    fn stopped(&self) -> bool {
        self.stopped_by().is_some()
    }
}

impl Live {
    fn stopped_by(&self) -> Option<i32> {
        Some(self.stop.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    fn listen(&self) -> std::io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let stop = Arc::clone(&self.stop);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut stops = Stops::default();
            for signal in signals.forever() {
                if stops.is_repeat(stentor_io::monotonic_us()) {
                    continue;
                }
                if stop.swap(signal, Ordering::Relaxed) != 0 {
                    // It ends the process, so there is no result.
                    let _ = emulate_default_handler(signal);
                }
            }
        })?;
        Ok(())
    }

    /// Draws the line until the other end of `ended` is dropped, and then takes it away.
    fn draw_until(&self, ended: Receiver<()>) {
        while ended.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
            let latest = stentor_io::lock(&self.latest).clone();
            if let Some(progress) = latest {
                // The last column is left free: some terminals wrap when it is written.
                let columns = terminal_size::terminal_size_of(stderr())
                    .map_or(COLUMNS, |(width, _)| usize::from(width.0));
                show(&line(&progress, self.stopped(), columns.saturating_sub(1)));
            }
        }
        show("");
    }
}

/// Replaces the line. That it cannot be seen is no failure.
fn show(line: &str) {
    let _ = write!(stderr().lock(), "\r{line}\x1b[K");
}

/// A moment of a run in at most `columns` characters.
fn line(progress: &Progress, stopping: bool, columns: usize) -> String {
    let phase = if stopping { "stopping" } else { &*progress.phase };
    let (open, wanted) = (thousands(progress.connections), thousands(progress.connections_wanted));
    let per_second = thousands(progress.per_second.round() as u64);
    let errors = match progress.errors {
        1 => "1 error".to_owned(),
        errors => format!("{} errors", thousands(errors)),
    };
    let left = progress.left.map(|left| left.as_secs_f64().ceil() * 1e6);
    let left = left.map(|left_us| format!("{} left", without_zeros(&time_us(left_us))));
    let parts = [
        Some(phase.to_owned()),
        Some(format!("{open}/{wanted} connections")),
        Some(format!("{per_second} {}/s", progress.unit)),
        Some(errors),
        left,
    ];
    // A narrow terminal loses the least important part first.
    for shown in [&[0, 1, 2, 3, 4][..], &[0, 2, 3, 4], &[0, 3, 4], &[0, 4]] {
        let shown = shown.iter().filter_map(|nth| parts[*nth].clone());
        let line = shown.collect::<Vec<_>>().join("  ");
        if line.chars().count() <= columns {
            return line;
        }
    }
    phase.chars().take(columns).collect()
}

const REDRAW: Duration = Duration::from_millis(250);

/// Of a terminal that does not say.
const COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress {
            phase: "opening".to_owned(),
            connections: 12_340,
            connections_wanted: 1_000_000,
            per_second: 8_119.7,
            unit: "connections",
            errors: 3,
            left: Some(Duration::from_millis(75_900)),
        }
    }

    #[test]
    fn a_line() {
        assert_eq!(
            line(&progress(), false, 200),
            "opening  12,340/1,000,000 connections  8,120 connections/s  3 errors  76 s left"
        );
        let one = Progress { errors: 1, left: None, ..progress() };
        assert_eq!(
            line(&one, true, 200),
            "stopping  12,340/1,000,000 connections  8,120 connections/s  1 error"
        );
        assert_eq!(line(&progress(), false, 30), "opening  3 errors  76 s left");
        assert_eq!(line(&progress(), false, 20), "opening  76 s left");
        assert_eq!(line(&progress(), false, 5), "openi");
        assert_eq!(line(&progress(), false, 0), "");
        let odd = Progress { per_second: f64::NAN, ..progress() };
        assert!(line(&odd, false, 200).contains("  0 connections/s"));
    }

    #[test]
    fn the_newest_is_noted() {
        let live = Live::default();
        live.progress(&progress());
        live.progress(&Progress { errors: 4, ..progress() });
        assert_eq!(live.latest.lock().unwrap().as_ref().unwrap().errors, 4);
        assert!(!live.stopped());
        live.stop.store(SIGTERM, Ordering::SeqCst);
        assert!(live.stopped());
    }
}
