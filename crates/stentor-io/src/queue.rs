//! How many wait to be accepted, and for how long.
//!
//! A connection in a listener's queue costs nothing but the kernel's memory, so whoever cannot be
//! taken in at once has no better place to be. It is an operator's business how long that is, and
//! that of those who tell clients when to come again.
//!
//! A turn that empties the queues knows that nobody waits. Only otherwise the kernel is asked, now
//! and then. The oldest has waited no longer than since the queues were last empty, and about as
//! long as it takes at the present rate to get to the newest.

use crate::Listener;
use crate::socket::queue_length;

/// Those who wait to be accepted by one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AcceptQueue {
    /// How many they are.
    pub waiting: u32,
    /// How long whoever is accepted now has waited, about.
    pub age_ms: u64,
}

/// What is known of a worker's queues.
#[derive(Debug, Default)]
pub(crate) struct QueueWatch {
    /// Since when they have not been empty.
    since_us: Option<u64>,
    /// When they were looked at, and how many have come out of them since.
    looked_us: u64,
    accepted: u64,
    found: AcceptQueue,
}

impl QueueWatch {
    /// The last count, without the connections that were accepted since.
    pub(crate) fn found(&self) -> AcceptQueue {
        self.found
    }

    /// One has come out.
    pub(crate) fn accepted(&mut self) {
        self.accepted += 1;
        self.found.waiting = self.found.waiting.saturating_sub(1);
    }

    /// Nobody waits.
    pub(crate) fn empty(&mut self) {
        if self.since_us.take().is_some() {
            self.found = AcceptQueue::default();
        }
    }

    /// Some may wait. Returns whether it is time to look how many.
    pub(crate) fn is_to_be_looked_at(&mut self, now_us: u64) -> bool {
        if self.since_us.is_none() {
            (self.since_us, self.looked_us, self.accepted) = (Some(now_us), now_us, 0);
        }
        now_us.saturating_sub(self.looked_us) >= LOOK_US
    }

    /// So many wait.
    pub(crate) fn look(&mut self, now_us: u64, waiting: u32) {
        let since_us = self.since_us.unwrap_or(now_us);
        let longest_us = now_us.saturating_sub(since_us);
        let took_us = now_us.saturating_sub(self.looked_us);
        let by_rate = (u64::from(waiting) * took_us).checked_div(self.accepted);
        let age_us = if waiting == 0 { 0 } else { by_rate.unwrap_or(longest_us).min(longest_us) };
        self.found = AcceptQueue { waiting, age_ms: age_us / 1_000 };
        if waiting == 0 {
            self.since_us = Some(now_us);
        }
        (self.looked_us, self.accepted) = (now_us, 0);
    }
}

/// How many wait in these listeners' queues.
pub(crate) fn waiting<'a>(listeners: impl Iterator<Item = &'a Listener>) -> u32 {
    listeners.map(queue_length).fold(0, u32::saturating_add)
}

/// How often queues that are not emptied are looked at.
pub(crate) const LOOK_US: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_goes_by_the_rate_and_is_bounded_by_what_is_known() {
        let mut watch = QueueWatch::default();
        assert!(!watch.is_to_be_looked_at(1_000_000));
        assert!(!watch.is_to_be_looked_at(1_099_999));
        (0..1_000).for_each(|_| watch.accepted());
        assert!(watch.is_to_be_looked_at(1_100_000));
        // At 10,000 a second 500 are 50 ms, and 9,000 cannot have waited for 900 ms.
        watch.look(1_100_000, 500);
        assert_eq!(watch.found(), AcceptQueue { waiting: 500, age_ms: 50 });
        (0..400).for_each(|_| watch.accepted());
        assert_eq!(watch.found(), AcceptQueue { waiting: 100, age_ms: 50 });
        (0..600).for_each(|_| watch.accepted());
        assert_eq!(watch.found().waiting, 0);
        assert!(!watch.is_to_be_looked_at(1_150_000) && watch.is_to_be_looked_at(1_200_000));
        watch.look(1_200_000, 9_000);
        assert_eq!(watch.found(), AcceptQueue { waiting: 9_000, age_ms: 200 });
        // While nobody is accepted, they wait.
        watch.look(3_000_000, 9_000);
        assert_eq!(watch.found(), AcceptQueue { waiting: 9_000, age_ms: 2_000 });
        // Found empty by a look, the time begins anew; found empty by a turn, nobody waits.
        watch.look(4_000_000, 0);
        assert_eq!(watch.found(), AcceptQueue::default());
        watch.look(4_500_000, 1);
        assert_eq!(watch.found(), AcceptQueue { waiting: 1, age_ms: 500 });
        watch.empty();
        assert_eq!(watch.found(), AcceptQueue::default());
        assert!(!watch.is_to_be_looked_at(9_000_000));
    }
}
