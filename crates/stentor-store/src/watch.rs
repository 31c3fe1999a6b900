//! The watch over the disk.
//!
//! The thread that writes may wait for the disk without bound, and can say nothing meanwhile. The
//! watch polls what that thread has done. It reports a disk that has not answered for a second, and
//! it answers publishers that have waited for `store.wait_max`.

use crate::intake::Intake;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use stentor_io::monotonic_us;

/// Watches how long the thread that writes waits for the disk.
pub struct Watch {
    intake: Arc<Intake>,
    /// What the thread had done at `since_ms`.
    work: u64,
    since_ms: u64,
    /// The last look that found a stall, if the log has a line of it.
    logged_ms: Option<u64>,
}

impl Watch {
    /// A watch over the thread that writes for this intake.
    pub fn new(intake: &Arc<Intake>) -> Watch {
        Watch { intake: Arc::clone(intake), work: 0, since_ms: 0, logged_ms: None }
    }

    /// Looks once. The clock is any that goes on.
    pub fn look(&mut self, now_ms: u64) {
        let work = self.intake.work.load(Ordering::Acquire);
        let waits = work & 1 == 1;
        if work != self.work || !waits {
            (self.work, self.since_ms) = (work, now_ms);
        }
        let waited_ms = now_ms.saturating_sub(self.since_ms);
        let is_stalled = waited_ms >= STALLED_MS;
        self.intake.stalled_ms.store(if is_stalled { waited_ms } else { 0 }, Ordering::Release);
        self.log(is_stalled, now_ms);
        let wait_max_ms = self.intake.wait_max_ms;
        let is_late = self.intake.waiting().answer_by_ms.is_some_and(|at_ms| now_ms >= at_ms);
        self.intake.answer(|publisher| {
            let since_ms = *publisher.since_ms.get_or_insert(now_ms);
            is_late || now_ms.saturating_sub(since_ms) >= wait_max_ms
        });
    }

    /// Logs the begin of a stall, and its end once the disk has answered for a while.
    fn log(&mut self, is_stalled: bool, now_ms: u64) {
        match self.logged_ms {
            None if is_stalled => tracing::warn!(
                "the disk of the store has not answered for a second: publishers wait, readers \
                 are served"
            ),
            Some(last_ms) if !is_stalled && now_ms - last_ms >= QUIET_MS => {
                tracing::warn!("the disk of the store answers again");
                self.logged_ms = None;
            }
            _ => {}
        }
        if is_stalled {
            self.logged_ms = Some(now_ms);
        }
    }

    /// Looks on a thread of its own until the sender of `ends` is dropped.
    ///
    /// # Errors
    /// The host refuses a thread.
    pub(crate) fn start(mut self, ends: Receiver<()>) -> io::Result<()> {
        let look = move || {
            while ends.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                self.look(monotonic_us() / 1_000);
            }
            self.intake.stalled_ms.store(0, Ordering::Release);
        };
        thread::Builder::new().name("store-watch".to_owned()).spawn(look).map(drop)
    }
}

/// A disk that has not answered for so long is reported.
const STALLED_MS: u64 = 1_000;

/// A stall has ended once the disk has answered for so long.
const QUIET_MS: u64 = 10_000;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);
