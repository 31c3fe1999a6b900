//! A worker's clocks, which stand still during one of its turns.

use crate::{monotonic_us, unix_s};

/// The times at which the turn began.
pub(super) struct TurnClock {
    /// Where `now_ms` counts from; a pause of the process moves it.
    zero_us: u64,
    pub(super) turn_us: u64,
    pub(super) now_ms: u64,
    pub(super) unix_s: u64,
}

impl TurnClock {
    pub(super) fn new() -> TurnClock {
        let mut clock = TurnClock { zero_us: monotonic_us(), turn_us: 0, now_ms: 0, unix_s: 0 };
        clock.read();
        clock
    }

    pub(super) fn read(&mut self) {
        self.set(monotonic_us());
    }

    /// Reads the time after a wait that began at `wait_us` and was to take at most `timeout_ms`.
    pub(super) fn read_after_wait(&mut self, wait_us: u64, timeout_ms: Option<u64>) {
        let worked_us = wait_us.saturating_sub(self.turn_us);
        let now_us = monotonic_us();
        let waited_us = now_us.saturating_sub(wait_us);
        self.zero_us += uncounted_us(worked_us, waited_us, timeout_ms.map(|ms| ms * 1_000));
        self.set(now_us);
    }

    fn set(&mut self, now_us: u64) {
        self.turn_us = now_us;
        self.now_ms = (self.turn_us - self.zero_us) / 1000;
        self.unix_s = unix_s();
    }
}

/// How much of a turn does not count on the worker's clock, because the process may have been
/// stopped, or its virtual machine moved. No client could use that time, so no deadline may pass in
/// it, and the worker reads what clients sent meanwhile before it applies any.
///
/// A wait that ended more than [`PAUSE_US`] too late counts for nothing. Work that took longer than
/// that counts as [`PAUSE_US`]: it may have been work, and while every turn is that long deadlines
/// must still come.
fn uncounted_us(worked_us: u64, waited_us: u64, timeout_us: Option<u64>) -> u64 {
    let overslept_us = timeout_us.map_or(0, |timeout_us| waited_us.saturating_sub(timeout_us));
    let waited_us = if overslept_us > PAUSE_US { waited_us } else { 0 };
    worked_us.saturating_sub(PAUSE_US) + waited_us
}

/// A worker that wakes up more than this too late was not running.
pub(super) const PAUSE_US: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_pause_does_not_count() {
        let second = 1_000_000;
        // The process was stopped while it waited, however much of the wait was over.
        assert_eq!(uncounted_us(5, 120 * second, Some(20_000)), 120 * second);
        // It woke up in time, or nothing was due.
        assert_eq!(uncounted_us(5, 30 * second, Some(30 * second)), 0);
        assert_eq!(uncounted_us(5, second / 2, Some(0)), 0);
        assert_eq!(uncounted_us(5, 120 * second, None), 0);
        // It was stopped at work, or had much to do.
        assert_eq!(uncounted_us(second, 0, None), 0);
        assert_eq!(uncounted_us(120 * second, 0, Some(0)), 119 * second);
    }
}
