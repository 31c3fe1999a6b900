//! How long a blocked client has: its timeout, and more time for what it takes meanwhile.
//!
//! A client earns time for each byte that it acknowledges after it was blocked: at
//! [`SEND_RATE_MIN`] up to another timeout from now. So a slow network keeps its clients, and a
//! client that takes less is reset.
//!
//! The kernel reports the progress of a reader in steps: about half of its receive buffer is free
//! before the peer announces that. So a large step earns a longer time, at [`SEND_STEP_RATE`]. The
//! bytes that filled the receive buffer before the client was blocked earn nothing: the client
//! may have read none of them.

use super::Connection;
use super::state::State;
use crate::context::Context;
use crate::limits::{SEND_RATE_MIN, SEND_STEP_RATE, SEND_TIME_MS_MAX};
use stentor_io::{Backend, Retransmission};

/// The time that a blocked client has left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Bytes that were sent and not acknowledged when the kernel was last asked.
    unacknowledged: u32,
    /// When the server resets the client. `None` until the first note.
    until_ms: Option<u64>,
}

impl Pace {
    /// The pace of a connection of another process. [`Connection::resume_pace`] sets its time.
    pub(super) fn resumed(unacknowledged: u32) -> Pace {
        Pace { unacknowledged, until_ms: None }
    }

    pub(super) fn unacknowledged(&self) -> u32 {
        self.unacknowledged
    }

    /// When the client is reset.
    pub(super) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    /// The client is blocked, and so many bytes were sent since the last call. The first call gives
    /// it its timeout.
    pub(super) fn take_note(
        &mut self,
        sent: usize,
        unacknowledged: u32,
        now_ms: u64,
        timeout_ms: u64,
    ) {
        let on_its_way = u64::from(self.unacknowledged) + sent as u64;
        let taken = on_its_way.saturating_sub(unacknowledged.into());
        self.unacknowledged = unacknowledged;
        let timeout_at_ms = now_ms.saturating_add(timeout_ms);
        let Some(before_ms) = self.until_ms else {
            self.until_ms = Some(timeout_at_ms);
            return;
        };
        let earned = |rate| before_ms.saturating_add(taken.saturating_mul(1000) / rate);
        let by_step_ms = earned(SEND_STEP_RATE).min(now_ms.saturating_add(SEND_TIME_MS_MAX));
        let latest_ms = timeout_at_ms.max(by_step_ms);
        self.until_ms = Some(earned(SEND_RATE_MIN).min(latest_ms).max(before_ms));
    }
}

impl Connection {
    /// The deadline of a connection that waits for room, or in a queue.
    pub(super) fn room_deadline_ms(&self, cx: &Context) -> u64 {
        let until_ms = self.work.pace().until_ms().filter(|_| self.is_blocked());
        until_ms.unwrap_or(cx.clock.now_ms + self.room_timeout_ms(cx))
    }

    fn room_timeout_ms(&self, cx: &Context) -> u64 {
        match self.state {
            State::Stream(_) | State::Poll(_) | State::Pending(_) => {
                cx.settings.streams.stall_timeout_ms
            }
            _ => cx.settings.limits.write_timeout_ms,
        }
    }

    /// A blocked client has as much time as it had left in the process before.
    pub(crate) fn resume_pace(&mut self, until_ms: u64) {
        if self.is_blocked() {
            self.work.set_pace(Pace { until_ms: Some(until_ms), ..self.work.pace() });
        }
    }

    /// Updates the time that a blocked client has.
    pub(super) fn note_pace<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        let (now_ms, sent) = (cx.clock.now_ms, std::mem::take(&mut cx.load.sent_bytes));
        let timeout_ms = self.room_timeout_ms(cx);
        let mut pace = self.work.pace();
        pace.take_note(sent, io.unacknowledged(cx.peer), now_ms, timeout_ms);
        self.work.set_pace(pace);
        let left_ms = pace.until_ms().map_or(0, |until_ms| until_ms.saturating_sub(now_ms));
        if left_ms > timeout_ms && matches!(self.state, State::Stream(_)) {
            // The kernel resets a peer whose receive buffer is full for as long as the timeout.
            let give_up_ms = u32::try_from(left_ms.saturating_add(timeout_ms)).unwrap_or(u32::MAX);
            let usual = cx.settings.streams.retransmission();
            io.begin_stream(cx.peer, Retransmission { give_up_ms, ..usual });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT_MS: u64 = 30_000;

    /// Has a client take `step` bytes every `every_ms` of what is always there. Returns when it is
    /// reset.
    fn reset_at_ms(step: u32, every_ms: u64) -> Option<u64> {
        let socket = 4 * 1024 * 1024;
        let mut pace = Pace::default();
        pace.take_note(socket as usize + 100_000, socket, 0, TIMEOUT_MS);
        let mut now_ms = 0;
        while now_ms < 24 * 3_600_000 {
            let until_ms = pace.until_ms().unwrap();
            if until_ms < now_ms + every_ms {
                // It is asked once more then.
                pace.take_note(0, socket, until_ms, TIMEOUT_MS);
                return Some(pace.until_ms().unwrap());
            }
            now_ms += every_ms;
            pace.take_note(0, socket - step, now_ms, TIMEOUT_MS);
            pace.take_note(step as usize, socket, now_ms, TIMEOUT_MS);
        }
        None
    }

    #[test]
    fn steady_clients_stay_and_dawdlers_are_reset() {
        for (step, every_ms, stays) in [
            // 2 KB a second over a slow line, and 300 bytes.
            (2_048, 1_000, true),
            (6_000, 20_000, true),
            // Half of a buffer at a time: 20 KB a second, and 1.1 KB.
            (30_000, 1_500, true),
            (32_768, 29_000, true),
            // A kilobyte every half a minute, and every fifth of a minute.
            (1_024, 30_000, false),
            (1_024, 12_000, false),
            // 200 bytes a second.
            (32_768, 163_840, false),
            (200, 1_000, false),
        ] {
            let reset_ms = reset_at_ms(step, every_ms);
            assert_eq!(reset_ms.is_none(), stays, "{step} every {every_ms} ms: {reset_ms:?}");
        }
    }

    /// Half of the largest receive buffer is announced at once: 10 KB a second.
    #[test]
    fn a_large_buffer_earns_minutes() {
        let mut pace = Pace::default();
        pace.take_note(6_000_000, 6_000_000, 0, TIMEOUT_MS);
        pace.take_note(0, 3_000_000, 20_000, TIMEOUT_MS);
        assert_eq!(pace.until_ms(), Some(TIMEOUT_MS + 3_000_000 * 1000 / SEND_STEP_RATE));
    }

    #[test]
    fn a_client_that_takes_nothing_has_its_timeout() {
        let mut pace = Pace::default();
        pace.take_note(6_000_000, 100_000, 5, TIMEOUT_MS);
        assert_eq!(pace.until_ms(), Some(5 + TIMEOUT_MS), "what fills its buffer earns nothing");
        pace.take_note(0, 100_000, 5 + TIMEOUT_MS, TIMEOUT_MS);
        assert_eq!(pace.until_ms(), Some(5 + TIMEOUT_MS));
    }

    #[test]
    fn no_download_earns_time_without_end() {
        let mut pace = Pace::default();
        pace.take_note(0, 0, 7, TIMEOUT_MS);
        pace.take_note(1 << 40, 0, 9, TIMEOUT_MS);
        assert_eq!(pace.until_ms(), Some(9 + SEND_TIME_MS_MAX));
    }
}
