//! How long a blocked client has: its timeout, and more time for what it takes meanwhile.
//!
//! A blocked client reads at the pace that it likes. The kernel reports its progress in steps:
//! about half of a receive buffer is free before the peer announces that. So the client earns time
//! for each byte that it acknowledges, and a large step earns a long time. A client that keeps up
//! [`SEND_RATE_MIN`] on average is never reset, and a client that takes less is.

use super::{Connection, Phase};
use crate::context::Context;
use crate::limits::{SEND_RATE_MIN, SEND_TIME_MS_MAX};
use stentor_io::{Backend, Peer};

/// The time that a blocked client has left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Bytes that were sent and not acknowledged when the kernel was last asked.
    unacknowledged: u32,
    /// When the client is reset. `None`: nobody has said so yet.
    until_ms: Option<u64>,
}

impl Pace {
    /// That of another process, which does not say how much time is left.
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

    /// The client is blocked, and so many bytes were sent since the last call. The client has at
    /// least the time until `first_ms` from the first call on.
    pub(super) fn take_note(
        &mut self,
        sent: usize,
        unacknowledged: u32,
        now_ms: u64,
        first_ms: u64,
    ) {
        let on_its_way = u64::from(self.unacknowledged) + sent as u64;
        let taken = on_its_way.saturating_sub(unacknowledged.into());
        self.unacknowledged = unacknowledged;
        let before_ms = self.until_ms.unwrap_or(first_ms);
        let earned_ms = taken.saturating_mul(1000) / SEND_RATE_MIN;
        let latest_ms = before_ms.max(now_ms.saturating_add(SEND_TIME_MS_MAX));
        self.until_ms = Some(before_ms.saturating_add(earned_ms).min(latest_ms));
    }
}

impl Connection {
    /// The deadline of a connection that waits for room, or in a queue.
    pub(super) fn room_deadline_ms(&self, cx: &Context) -> u64 {
        let timeout_ms = match self.phase {
            Phase::Streaming(_) | Phase::Pending(_) => cx.settings.streams.stall_timeout_ms,
            _ => cx.settings.limits.write_timeout_ms,
        };
        let first_ms = cx.clock.now_ms + timeout_ms;
        let blocked = self.work.as_deref().filter(|_| self.is_blocked());
        blocked.and_then(|work| work.pace.until_ms()).unwrap_or(first_ms)
    }

    /// Updates the time that a blocked client has. The first call gives it the time until
    /// `first_ms`.
    pub(super) fn note_pace<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &B,
        peer: Peer,
        first_ms: u64,
    ) {
        let (now_ms, sent) = (cx.clock.now_ms, std::mem::take(&mut cx.load.sent_bytes));
        if let Some(work) = &mut self.work {
            work.pace.take_note(sent, io.unacknowledged(peer), now_ms, first_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT_MS: u64 = 30_000;

    /// Has a client take `step` bytes every `every_ms` of what is always there, and nothing before
    /// the first step but what fits into its buffer. Returns when it is reset.
    fn reset_at_ms(buffer: u32, step: u32, every_ms: u64) -> Option<u64> {
        let socket = 4 * 1024 * 1024;
        let mut pace = Pace::default();
        pace.take_note((socket + buffer) as usize, socket, 0, TIMEOUT_MS);
        let mut now_ms = 0;
        while now_ms < 24 * 3_600_000 {
            let until_ms = pace.until_ms().unwrap();
            if until_ms < now_ms + every_ms {
                // It is asked once more then.
                pace.take_note(0, socket, until_ms, until_ms);
                return Some(pace.until_ms().unwrap());
            }
            now_ms += every_ms;
            pace.take_note(0, socket - step, now_ms, 0);
            pace.take_note(step as usize, socket, now_ms, 0);
        }
        None
    }

    #[test]
    fn steady_clients_stay_and_dawdlers_are_reset() {
        for (buffer, step, every_ms, stays) in [
            // 2 KB a second over a slow line.
            (4_096, 2_048, 1_000, true),
            // Half of a buffer at a time: 20 KB a second, and of a grown one 5 KB a second.
            (60_000, 30_000, 1_500, true),
            (6_000_000, 3_000_000, 600_000, true),
            // 300 bytes a second, in steps that take longer than the timeout.
            (65_536, 32_768, 109_000, true),
            // A kilobyte every half a minute, and every fifth of a minute.
            (0, 1_024, 30_000, false),
            (4_096, 1_024, 12_000, false),
            // 200 bytes a second.
            (65_536, 32_768, 163_840, false),
        ] {
            let reset_ms = reset_at_ms(buffer, step, every_ms);
            assert_eq!(reset_ms.is_none(), stays, "{step} every {every_ms} ms: {reset_ms:?}");
        }
    }

    #[test]
    fn a_client_that_takes_nothing_has_its_timeout() {
        let mut pace = Pace::default();
        pace.take_note(100_000, 100_000, 5, 5 + TIMEOUT_MS);
        assert_eq!(pace.until_ms(), Some(5 + TIMEOUT_MS));
        pace.take_note(0, 100_000, 5 + TIMEOUT_MS, 0);
        assert_eq!(pace.until_ms(), Some(5 + TIMEOUT_MS));
    }

    #[test]
    fn no_download_earns_time_without_end() {
        let mut pace = Pace::default();
        pace.take_note(1 << 40, 0, 7, 7 + TIMEOUT_MS);
        assert_eq!(pace.until_ms(), Some(7 + SEND_TIME_MS_MAX));
    }
}
