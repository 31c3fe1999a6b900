//! The worker is packed in the middle of everything, and another one goes on.
//!
//! Nobody may notice: what the other scripts check holds as it does without. Beside it the new
//! worker must count what the old one did, and be packed to the same bytes, unless readers have to
//! look for what they miss.

use super::World;
use crate::mailbox::Mailbox;
use crate::stats::Totals;
use crate::worker::Worker;
use std::sync::Arc;
use stentor_io::Rng;

/// When workers are handed over in a run.
#[derive(Debug)]
pub(super) struct HandOvers {
    rng: Rng,
    percent: u8,
    /// Each leaves a subscriber behind that hears nothing.
    left: usize,
}

impl HandOvers {
    pub(super) fn new(seed: u64) -> HandOvers {
        let mut rng = Rng::new(seed ^ 0x0badface);
        HandOvers { percent: [0, 3, 20, 100][rng.below(4)], left: HAND_OVERS_MAX, rng }
    }

    /// Hands over, or not. `meanwhile` is what else happens when it is done.
    pub(super) fn play(&mut self, world: &mut World) {
        if self.left > 0 && self.rng.percent(self.percent) {
            let index = self.rng.below(world.workers());
            self.left -= usize::from(world.at(index, |world| world.hand_over(index)));
        }
    }
}

impl World {
    /// The worker, which has this number among all, is packed and ends; another goes on where it
    /// was. Returns false if it cannot be packed now.
    pub(crate) fn hand_over(&mut self, index: usize) -> bool {
        let published = self.shared.hub.seq();
        let Ok(bytes) = self.worker.pack(&self.sim) else { return false };
        let (before, routes) = (self.totals(), self.routes());
        let stats = Arc::clone(&self.shared.workers[index]);
        stats.forget();
        let mailbox = Arc::new(Mailbox::new().unwrap());
        std::mem::replace(&mut self.mailbox, Arc::clone(&mailbox)).close();
        let (shared, settings) = (Arc::clone(&self.shared), Arc::clone(&self.settings));
        self.worker = Worker::new(shared, settings, stats, mailbox, bytes.len() as u64);
        self.worker.unpack(&self.sim, &bytes).unwrap();

        let after = self.totals();
        assert_eq!(before.readers_sse, after.readers_sse);
        assert_eq!(before.readers_websocket, after.readers_websocket);
        assert_eq!(before.readers_long_poll, after.readers_long_poll);
        assert_eq!(before.connections_public, after.connections_public);
        assert_eq!(before.connections_control, after.connections_control);
        assert_eq!(before.connections_reading, after.connections_reading);
        assert_eq!(before.connections_writing, after.connections_writing);
        assert_eq!(before.requests, after.requests);
        assert_eq!(before.heads, after.heads);
        assert_eq!(routes, self.routes());
        assert_eq!(before.fan_outs.buckets, after.fan_outs.buckets);
        let by_kind = |totals: &Totals| totals.requests_by_kind.map(|times| times.buckets);
        assert_eq!(by_kind(&before), by_kind(&after));
        let nobody_missed_anything = before.readers_behind == after.readers_behind;
        let again = self.worker.pack(&self.sim).unwrap();
        if nobody_missed_anything && published == self.shared.hub.seq() {
            assert!(behind_counters(&bytes) == behind_counters(&again), "it is not the same");
        }
        true
    }
}

/// What was packed behind the counters, of which some have still to be measured.
fn behind_counters(bytes: &[u8]) -> &[u8] {
    let (_, rest) = bytes.split_at(HEADER_BYTES + 1);
    let (length, rest) = rest.split_first_chunk().unwrap();
    &rest[u32::from_le_bytes(*length) as usize..]
}

/// What a packed worker begins with.
const HEADER_BYTES: usize = 8 + 2;

const HAND_OVERS_MAX: usize = 100;

#[cfg(test)]
mod tests;
