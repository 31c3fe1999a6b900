//! What is seen of a run while it is under way: a line on the terminal, and Ctrl-C.
//!
//! The engine says how it goes whenever it likes, from any thread. That is only noted; a thread of
//! our own draws the newest four times a second, so that a slow terminal holds up nobody who
//! measures. The line goes to standard error, and only to a terminal: in a pipe or a log it would
//! be noise.
//!
//! indicatif would bring four packages for one line, and the thread that draws is needed either
//! way.

use std::io::{IsTerminal, Write as _, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use stentor_bench::progress::{Progress, Watch};
use stentor_io::units::{thousands, time_us, without_zeros};

use crate::Failure;

/// Returns the result of `work`, and whether Ctrl-C ended it early. A line shows its progress
/// unless `quiet`. The first Ctrl-C tells `work` to stop; the second one ends the process.
pub(super) fn watched<T>(
    quiet: bool,
    work: impl FnOnce(&dyn Watch) -> T,
) -> Result<(T, bool), Failure> {
    let live = Live::default();
    live.listen()
        .map_err(|error| Failure::Failed(format!("Ctrl-C cannot be listened to: {error}")))?;
    if quiet || !stderr().is_terminal() {
        return Ok((work(&live), live.stopped()));
    }
    let value = thread::scope(|scope| {
        let (end, ended) = channel();
        scope.spawn(|| live.draw_until(ended));
        let value = work(&live);
        drop::<std::sync::mpsc::Sender<()>>(end);
        value
    });
    Ok((value, live.stopped()))
}

/// The state between the engine, the terminal and the signal.
#[derive(Default)]
struct Live {
    stop: Arc<AtomicBool>,
    latest: Mutex<Option<Progress>>,
}

impl Watch for Live {
    fn progress(&self, progress: &Progress) {
        *stentor_io::lock(&self.latest) = Some(progress.clone());
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Live {
    fn listen(&self) -> std::io::Result<()> {
        // In this order: the second signal finds the flag that the first one left.
        flag::register_conditional_default(SIGINT, Arc::clone(&self.stop))?;
        flag::register(SIGINT, Arc::clone(&self.stop))?;
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
        live.stop.store(true, Ordering::SeqCst);
        assert!(live.stopped());
    }
}
