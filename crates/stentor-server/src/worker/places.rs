//! Places: how newcomers find one when there are as many connections as there may be.
//!
//! A connection that waits costs its client nothing, so a few clients could take all places and
//! keep every other client out. When newcomers wait, the worker evicts connections that wait for
//! their clients, of the holder that has the most. That is first the prefix with the most (a /24 of
//! IPv4, a /48 of IPv6), then the address with the most in it. The connection goes that is the
//! least loss and has waited longest. Each holder thus gets an equal share of the places, or as
//! many as it asks for. A prefix keeps its last connection; otherwise clients that have one each
//! would evict each other for ever.
//!
//! The worker counts nothing for this while there is room. It scans all connections once for as
//! many newcomers as wait, and then pauses for a while, which is longer with many connections. A
//! connection whose address is not counted is exempt: at the control listener, from loopback unless
//! that is counted, and from a trusted proxy that keeps it for later requests.

use super::Worker;
use crate::addresses::Holder;
use crate::connection::Loss;
use crate::limits::{
    EVICTED_PER_SCAN, EVICTION_CONNECTIONS_PER_MS, EVICTION_LOOK_MS, EVICTION_PAUSE_MS,
    EVICTION_RETRY_MS, RECOUNTED_PER_TURN,
};
use crate::timers::Timed;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use stentor_io::{Backend, Peer};

/// A connection that may be evicted.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    holder: Holder,
    loss: Loss,
    /// The earlier it is due, the longer it has waited.
    deadline_tick: u32,
    index: usize,
}

impl Worker {
    /// Evicts connections if newcomers wait and there is no room for them.
    pub(super) fn evict_for_newcomers<B: Backend>(&mut self, io: &mut B) {
        let now_ms = self.cx.clock.now_ms;
        if self.evicts_at_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        let waiting = io.accept_queue().waiting as usize;
        if waiting == 0 && self.open < self.places {
            self.evicts_at_ms = None;
            return;
        }
        // A layer may keep the socket of a closed connection for a moment, for its last bytes.
        let wanted = waiting.saturating_sub(self.places.saturating_sub(self.open));
        if wanted == 0 {
            self.evicts_at_ms = Some(now_ms + EVICTION_LOOK_MS);
            return;
        }
        let mut candidates = Vec::new();
        for index in self.connections.indices() {
            let Some(connection) = self.connections.at(index) else { continue };
            if let Some((holder, loss)) = connection.evictable(&self.cx) {
                let deadline_tick = connection.timer().deadline_tick();
                candidates.push(Candidate { holder, loss, deadline_tick, index });
            }
        }
        let evicted = select(&candidates, wanted.min(EVICTED_PER_SCAN));
        // Connections that are at work now may be idle in a while.
        let pause_ms = if evicted.is_empty() { EVICTION_RETRY_MS } else { EVICTION_PAUSE_MS };
        self.evicts_at_ms =
            Some(now_ms + pause_ms + self.open as u64 / EVICTION_CONNECTIONS_PER_MS);
        for index in evicted {
            let peer = Peer::from_index(index as u32);
            self.cx.stats.connections_evicted.add(1);
            self.with(peer, |connection, cx| connection.evict(cx, io));
        }
    }

    /// Counts connections of another process by their addresses: a slice of them in a turn.
    pub(super) fn count_adopted<B: Backend>(&mut self, io: &B) {
        let Some(from) = self.uncounted.take() else { return };
        for (looked, index) in self.connections.indices_from(from).enumerate() {
            if looked == RECOUNTED_PER_TURN {
                self.uncounted = Some(index);
                return;
            }
            let peer = Peer::from_index(index as u32);
            let Some(connection) = self.connections.at(index) else { continue };
            let named = self.cx.access.clients.get(peer);
            let address = match named {
                None if connection.is_of_client() => io.remote_address(peer),
                named => named,
            };
            connection.count_again(&self.cx, address);
        }
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Worker {
    /// Counts none of the connections any more.
    pub(crate) fn leave_addresses(&mut self) {
        for index in self.connections.indices() {
            if let Some(connection) = self.connections.at(index) {
                connection.uncount(&self.cx);
            }
        }
    }
}

/// The records to evict for so many newcomers.
fn select(candidates: &[Candidate], wanted: usize) -> Vec<usize> {
    let mut evicted = Vec::new();
    for (share, in_prefix) in shares(candidates, |one| one.holder.prefix, wanted, 1) {
        for (share, mut own) in shares(&in_prefix, |one| one.holder.address, share, 0) {
            own.sort_unstable_by_key(|one| (one.loss, one.deadline_tick, one.index));
            evicted.extend(own.iter().take(share).map(|one| one.index));
        }
    }
    evicted
}

/// How many of `wanted` each holder loses, with all that it has: each time the holder that has the
/// most left loses one. Each keeps `kept`.
fn shares(
    candidates: &[Candidate],
    holder: impl Fn(&Candidate) -> u32,
    wanted: usize,
    kept: usize,
) -> Vec<(usize, Vec<Candidate>)> {
    // Sorting is several times faster than a hash map where almost every holder has one.
    let mut held: Vec<(u32, usize)> = candidates.iter().map(|c| (holder(c), c.index)).collect();
    held.sort_unstable();
    let of_holders = held.chunk_by(|a, b| a.0 == b.0);
    // If two holders have as many, the one with the first record comes first.
    let sizes = of_holders.map(|own| (own.len(), Reverse(own[0].1), own[0].0));
    let mut heap: BinaryHeap<_> = sizes.filter(|(count, ..)| *count > kept).collect();
    let mut lost: BTreeMap<u32, (usize, Vec<Candidate>)> = BTreeMap::new();
    for _ in 0..wanted {
        let Some((count, first, key)) = heap.pop().filter(|(count, ..)| *count > kept) else {
            break;
        };
        lost.entry(key).or_default().0 += 1;
        heap.push((count - 1, first, key));
    }
    for candidate in candidates {
        if let Some((_, own)) = lost.get_mut(&holder(candidate)) {
            own.push(*candidate);
        }
    }
    lost.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections in the order of their records: prefix, address, loss, deadline.
    fn candidates(all: &[(u32, u32, Loss, u32)]) -> Vec<Candidate> {
        let candidate = |(index, &(prefix, address, loss, deadline_tick))| Candidate {
            holder: Holder { prefix, address },
            loss,
            deadline_tick,
            index,
        };
        all.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn the_prefix_that_holds_the_most_is_evicted_first() {
        use Loss::{Idle, Stream};
        let all = candidates(&[
            (1, 10, Stream, 5),
            (2, 20, Stream, 4),
            (2, 20, Stream, 3),
            (2, 21, Stream, 1),
            (3, 30, Idle, 0),
            (3, 30, Stream, 0),
        ]);
        // The longest-waiting connection of the largest address in prefix 2.
        assert_eq!(select(&all, 1), [2]);
        // Then two prefixes have two each, and the first of them is next.
        let mut two = select(&all, 2);
        two.sort_unstable();
        assert_eq!(two, [1, 2]);
        let mut three = select(&all, 3);
        three.sort_unstable();
        assert_eq!(three, [1, 2, 4], "the idle one is the smaller loss");
        // Each prefix keeps one, however many newcomers there are.
        assert_eq!(select(&all, 100).len(), 3);
        assert_eq!(select(&candidates(&[(1, 1, Idle, 0), (2, 2, Idle, 0)]), 9), [0; 0]);
    }

    #[test]
    fn many_addresses_of_a_prefix_count_together() {
        let scattered = (0..50).map(|n| (1, 100 + n, Loss::Stream, n));
        let one = (0..10).map(|n| (2, 5, Loss::Idle, n));
        let all = candidates(&scattered.chain(one).collect::<Vec<_>>());
        let evicted = select(&all, 40);
        assert_eq!(evicted.len(), 40);
        assert!(evicted.iter().all(|&index| index < 50), "the other prefix has less: {evicted:?}");
    }

    #[test]
    fn places_become_even() {
        let all = (0..200).map(|n| (n % 2, n % 2, Loss::Stream, n)).collect::<Vec<_>>();
        let evicted = select(&candidates(&all), 21);
        let of_first = evicted.iter().filter(|&&index| index % 2 == 0).count();
        assert_eq!((evicted.len(), of_first), (21, 11));
        assert!(evicted.iter().all(|&index| index < 22), "those that wait longest: {evicted:?}");
    }
}
