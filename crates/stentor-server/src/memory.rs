//! What the connections of a worker hold: one account that all pay to, whatever they hold it for.
//!
//! What a connection holds is counted before and after anything is done with it, so there is no
//! place where somebody must remember to. It *owns* bytes that are there for it alone, and *pins*
//! bodies that others are sent as well. As long as a topic or the cache of files keeps such a body,
//! to pin it costs nothing; afterwards the pin is all that keeps it. Which bodies those are is only
//! found out when all pins together are more than there is room for.
//!
//! When there is too much, those who hold the most are cut, and not those who come last.

use crate::limits::{RELIEF_BYTES_MIN, RELIEF_PART};
use crate::output::Body;
use std::collections::HashMap;
use std::sync::Arc;

/// What is held, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub(crate) owned: usize,
    /// Each body counts as often as it is pinned.
    pub(crate) pinned: usize,
}

/// The account of a worker.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) held: Held,
}

impl Memory {
    /// A connection that held so much now holds so much.
    pub(crate) fn note(&mut self, before: Held, after: Held) {
        self.held.owned = self.held.owned + after.owned - before.owned;
        self.held.pinned = self.held.pinned + after.pinned - before.pinned;
    }
}

/// The bodies that nothing but pins keeps.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// By address.
    bodies: HashMap<usize, Pin>,
}

#[derive(Debug)]
struct Pin {
    bytes: usize,
    /// By how many connections.
    count: usize,
    /// How many hold it in all, if only that tells whether anybody else does.
    holders: Option<usize>,
}

impl Pins {
    /// Takes note of a body that a connection has still to be sent.
    pub(crate) fn add(&mut self, body: &Body) {
        let (address, holders) = match body {
            Body::Value { message, .. } if message.is_dropped() => (address(message), None),
            Body::Streamed { news, .. } if news.message.is_dropped() => {
                (address(&news.message), None)
            }
            Body::Cached { entry, .. } => (address(entry), Some(Arc::strong_count(entry))),
            _ => return,
        };
        let bytes = body.kept_bytes();
        let pin = self.bodies.entry(address).or_insert(Pin { bytes, count: 0, holders });
        pin.count += 1;
    }

    /// What these bodies take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bodies.values().filter(|pin| pin.is_alone()).map(|pin| pin.bytes).sum()
    }

    /// The part of one connection in a body.
    pub(crate) fn part(&self, body: &Body) -> usize {
        let address = match body {
            Body::Value { message, .. } => address(message),
            Body::Streamed { news, .. } => address(&news.message),
            Body::Cached { entry, .. } => address(entry),
            Body::Stored { .. } => return 0,
        };
        let pin = self.bodies.get(&address).filter(|pin| pin.is_alone());
        pin.map_or(0, |pin| pin.bytes / pin.count)
    }
}

impl Pin {
    fn is_alone(&self) -> bool {
        self.holders.is_none_or(|holders| holders <= self.count)
    }
}

/// Whom to cut, so that enough is freed.
#[derive(Debug)]
pub(crate) struct Relief {
    /// What those hold who hold as much, by the logarithm of that.
    classes: [usize; usize::BITS as usize],
    excess: usize,
    /// Whoever holds less is spared.
    least: usize,
}

impl Relief {
    /// `None` if `total` bytes are not too much.
    pub(crate) fn from(total: usize, bytes_max: usize) -> Option<Relief> {
        let excess = (total > bytes_max).then(|| total - (bytes_max - bytes_max / RELIEF_PART))?;
        Some(Relief { classes: [0; usize::BITS as usize], excess, least: usize::MAX })
    }

    /// Takes note of a connection that holds so many bytes.
    pub(crate) fn weigh(&mut self, bytes: usize) {
        if bytes >= RELIEF_BYTES_MIN {
            self.classes[bytes.ilog2() as usize] += bytes;
        }
    }

    /// All were weighed: finds how much one must hold to be cut.
    pub(crate) fn decide(&mut self) {
        let mut freed = 0;
        for (class, bytes) in self.classes.iter().enumerate().rev() {
            if freed >= self.excess {
                return;
            }
            if *bytes > 0 {
                self.least = 1 << class;
            }
            freed += bytes;
        }
    }

    /// Whether a connection that holds so many bytes is to be cut; it then is.
    pub(crate) fn cuts(&mut self, bytes: usize) -> bool {
        let cuts = self.excess > 0 && bytes >= self.least;
        if cuts {
            self.excess = self.excess.saturating_sub(bytes);
        }
        cuts
    }
}

fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_hold_the_most_are_cut_until_there_is_room() {
        assert!(Relief::from(1_000_000, 1_000_000).is_none());
        let holders = [5_000, 200_000, 3_000, 400_000, 300_000, 100_000];
        let mut relief = Relief::from(1_008_000, 1_000_000).unwrap();
        holders.iter().for_each(|&bytes| relief.weigh(bytes));
        relief.decide();
        let cut: Vec<usize> = holders.into_iter().filter(|&bytes| relief.cuts(bytes)).collect();
        assert_eq!(cut, [400_000], "an eighth is to be free");

        let mut small = Relief::from(2_000_000, 1_000_000).unwrap();
        (0..1_000).for_each(|_| small.weigh(RELIEF_BYTES_MIN - 1));
        small.decide();
        assert!(!small.cuts(RELIEF_BYTES_MIN - 1), "nobody holds much");
    }
}
