//! What ends `stentor sub` while it waits for messages: its time, and the end of whoever reads its
//! output. Reading a stream blocks, so a thread of its own watches for both.

use std::io::stdout;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use stentor_server::event_log;

use crate::say;

/// How far the command has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The server has sent a stream.
    pub(super) has_stream: AtomicBool,
    /// Messages that were printed.
    pub(super) messages: AtomicU64,
    /// Held while lines are written, so that none is cut.
    pub(super) writing: Mutex<()>,
}

/// Ends the process when standard output is closed, or after `timeout`. `wanted` is the number of
/// messages that should have come by then.
pub(super) fn begin(timeout: Option<Duration>, wanted: Option<u64>, progress: &Arc<Progress>) {
    let progress = Arc::clone(progress);
    thread::spawn(move || {
        let is_closed = stentor_io::wait_until_closed(&stdout(), timeout);
        let failure = if is_closed { None } else { unfinished(wanted, &progress) };
        // A reader of the output that takes nothing does not hold up the end for long.
        let until_us = stentor_io::monotonic_us() + WRITE_US_MAX;
        let _whole = loop {
            match progress.writing.try_lock() {
                Err(TryLockError::WouldBlock) if stentor_io::monotonic_us() < until_us => {
                    thread::sleep(LOOK_INTERVAL);
                }
                locked => break locked,
            }
        };
        if let Some(reason) = &failure {
            say::error(reason);
        }
        event_log::flush();
        process::exit(i32::from(failure.is_some()));
    });
}

/// How long lines that are being written are waited for.
const WRITE_US_MAX: u64 = 500_000;

const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The reason for a failure when the time is up.
fn unfinished(wanted: Option<u64>, progress: &Progress) -> Option<String> {
    let messages = progress.messages.load(Ordering::Relaxed);
    if !progress.has_stream.load(Ordering::Relaxed) {
        return Some("the time is up, and there was no stream".to_owned());
    }
    let wanted = wanted.filter(|wanted| messages < *wanted)?;
    Some(format!("the time is up: {messages} of {wanted} messages have come"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let progress = Progress::default();
        let reason = unfinished(None, &progress).unwrap();
        assert_eq!(reason, "the time is up, and there was no stream");
        progress.has_stream.store(true, Ordering::Relaxed);
        assert_eq!(unfinished(None, &progress), None);
        progress.messages.store(2, Ordering::Relaxed);
        assert_eq!(unfinished(Some(2), &progress), None);
        let reason = unfinished(Some(3), &progress).unwrap();
        assert_eq!(reason, "the time is up: 2 of 3 messages have come");
    }
}
