//! The log of events: a bounded queue in memory, and one thread that writes it to standard error.
//!
//! Standard error may be a full pipe, which blocks its writer. Therefore a thread that logs only
//! appends its line to the queue. The lock is never held during a write. The queue is bounded in
//! bytes. A line that finds it full is dropped and counted. Once the thread can write again, one
//! line says how many are missing.
//!
//! A process has one log, as it has one standard error and one subscriber of `tracing`. The log
//! is therefore a static. Before [`start`] nothing is queued, and [`say`] writes directly.

use crate::limits::EVENT_LOG_BYTES_MAX;
use crate::line_writer::{LineWriter, lines_of};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, mem, thread};
use stentor_io::{User, file_state_of, monotonic_us};

/// Starts the thread that writes to standard error. It blocks the signals that the calling thread
/// blocks. Call this once.
///
/// The thread has no descriptor of its own: an upgrade puts connections at the numbers that they
/// had in the process before, and a line of the log must never reach one.
///
/// # Errors
/// There is no thread left.
pub fn start() -> io::Result<()> {
    // It lives as long as the process.
    let log: &'static EventLog = Box::leak(Box::default());
    let run = || log.run(LineWriter::new(io::stderr()));
    thread::Builder::new().name("log".to_owned()).spawn(run)?;
    LOG.get_or_init(|| log);
    Ok(())
}

/// Appends each write to the queue. A write is one event, with its newline.
#[derive(Clone, Copy, Debug)]
pub struct EventWriter;

impl Write for EventWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match LOG.get() {
            Some(log) => log.push(event),
            None => io::stderr().write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends lines of another log that goes to standard error. It waits until half of the queue is
/// free, so that they leave room for events.
#[derive(Debug)]
pub(crate) struct PatientWriter;

impl Write for PatientWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match LOG.get() {
            Some(log) => Ok(log.push_patiently(lines)),
            None => io::stderr().write(lines),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a text that is no event, such as the reason why the process ends. If there is a log, the
/// text goes behind it, and this waits as [`flush`] does.
pub fn say(text: &str) {
    write(text, ERROR_PREFIX);
}

/// Writes a warning that is no event, in the same way.
pub fn warn(text: &str) {
    write(text, WARNING_PREFIX);
}

fn write(text: &str, prefix: &str) {
    let prefix = if is_journal() { prefix } else { "" };
    let lines: String = text.lines().map(|line| format!("{prefix}{line}\n")).collect();
    // Standard error is the last resort: nothing is left to tell its failure to.
    let _ = EventWriter.write_all(lines.as_bytes());
    flush();
}

/// Waits until all of the log is written. Gives up a second after the write has begun that does not
/// end.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(FLUSH_MAX);
    }
}

/// Whether standard error is systemd's journal: the file that `JOURNAL_STREAM` names
/// (systemd.exec(5)). A child process inherits the variable and may have another standard error.
#[must_use]
pub fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
        let file = file_state_of(io::stderr()).map(|state| state.status);
        file.is_ok_and(|file| stream == format!("{}:{}", file.device, file.inode))
    })
}

/// How many lines were dropped or could not be written.
pub fn dropped() -> u64 {
    LOG.get().map_or(0, |log| log.dropped.load(Ordering::Relaxed))
}

/// The process before this one had dropped so many.
pub fn were_dropped(lines: u64) {
    if let Some(log) = LOG.get() {
        log.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

/// Makes the thread run as this user, without privileges.
///
/// # Errors
/// The kernel refused, or the thread waits for standard error and so cannot do it.
pub fn become_user(user: &User) -> io::Result<()> {
    LOG.get().map_or(Ok(()), |log| log.become_user(user))
}

static LOG: OnceLock<&EventLog> = OnceLock::new();

#[derive(Default)]
struct EventLog {
    state: Mutex<State>,
    /// The state has changed: there is work for the thread, or it has done some.
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Whole lines that are to be written.
    queued: Vec<u8>,
    /// Since when the thread has been writing, in microseconds.
    writing_since_us: Option<u64>,
    /// Dropped lines that no line of the log has reported yet.
    unreported: u64,
    /// The thread reports them now, and its line finds room in any case.
    is_reporting: bool,
    order: Option<User>,
    /// How the thread carried the order out.
    outcome: Option<io::Result<()>>,
}

impl EventLog {
    fn push(&self, lines: &[u8]) {
        let mut state = self.lock();
        if state.is_reporting || state.queued.len() + lines.len() <= EVENT_LOG_BYTES_MAX {
            state.queued.extend_from_slice(lines);
            self.changed.notify_all();
        } else {
            self.lose(&mut state, lines_of(lines));
        }
    }

    /// Returns how many bytes of the lines found room: whole lines, if one fits.
    fn push_patiently(&self, lines: &[u8]) -> usize {
        let part = &lines[..lines.len().min(EVENT_LOG_BYTES_MAX / 4)];
        let end = memchr::memrchr(b'\n', part).map_or(part.len(), |last| last + 1);
        let is_full = |state: &mut State| state.queued.len() > EVENT_LOG_BYTES_MAX / 2;
        let waited = self.changed.wait_while(self.lock(), is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.queued.extend_from_slice(&part[..end]);
        self.changed.notify_all();
        end
    }

    fn lose(&self, state: &mut State, lines: u64) {
        state.unreported += lines;
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// The thread: writes what is queued, for as long as the process lives.
    fn run(&self, mut out: LineWriter<impl Write>) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.lock();
            while state.queued.is_empty() && state.order.is_none() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(user) = state.order.take() {
                state.outcome = Some(user.become_for_good());
                self.changed.notify_all();
                continue;
            }
            mem::swap(&mut state.queued, &mut batch);
            state.writing_since_us = Some(monotonic_us());
            drop(state);
            let written = out.write_all(&batch);
            batch.clear();
            let mut state = self.lock();
            state.writing_since_us = None;
            if let Err((_, lost)) = written {
                self.lose(&mut state, lost);
            } else if state.unreported > 0 {
                let lines = mem::take(&mut state.unreported);
                state.is_reporting = true;
                drop(state);
                tracing::error!(lines, "the log lacks lines: standard error took none for a while");
                self.lock().is_reporting = false;
            }
            self.changed.notify_all();
        }
    }

    fn flush(&self, patience: Duration) {
        let state = self.lock();
        let waited_us = state.writing_since_us.map_or(0, |since| monotonic_us() - since);
        let left = patience.saturating_sub(Duration::from_micros(waited_us));
        let is_behind =
            |state: &mut State| !state.queued.is_empty() || state.writing_since_us.is_some();
        let _ = self.changed.wait_timeout_while(state, left, is_behind);
    }

    fn become_user(&self, user: &User) -> io::Result<()> {
        let mut state = self.lock();
        state.order = Some(user.clone());
        self.changed.notify_all();
        let waited =
            self.changed.wait_timeout_while(state, FLUSH_MAX, |state| state.outcome.is_none());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.outcome.take().unwrap_or_else(|| {
            let reason = "the thread of the log is blocked by standard error, a full pipe";
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        stentor_io::lock(&self.state)
    }
}

/// The priorities of errors and warnings in the journal (sd-daemon(3)).
const ERROR_PREFIX: &str = "<3>";
const WARNING_PREFIX: &str = "<4>";

/// How long the end of the process waits for its last lines.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
