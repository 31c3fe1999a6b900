//! A running checksum of the log. Batches carry that of their node, so a node finds that it has not
//! read the same as another one: that a broker has changed a message, left one out, or kept
//! different ones at several replicas.

use crate::codec::Checksum;
use std::collections::VecDeque;
use twox_hash::XxHash3_64;

/// The sums of the hashes of what a node has read. Nodes begin to read at different messages: of
/// two nodes, the one that began first can compare all that the other one has read.
#[derive(Default)]
pub(super) struct RunningChecksum {
    /// The latest messages that were read.
    sums: VecDeque<Sum>,
    /// A batch whose node has read the same up to this message.
    heard: u64,
}

/// The sum at a message.
#[derive(Clone, Copy)]
struct Sum {
    seq: u64,
    /// `None` if this message was read before the sums begin.
    hash: Option<u64>,
    sum: u64,
}

impl RunningChecksum {
    /// The message that was read last begins an epoch: what is before it does not count.
    pub(super) fn begin(&mut self) {
        self.sums.drain(..self.sums.len().saturating_sub(1));
    }

    /// A message with this hash was read.
    pub(super) fn add(&mut self, seq: u64, hash: u64) {
        if self.sums.is_empty() {
            self.sums.push_back(Sum { seq: seq - 1, hash: None, sum: 0 });
        }
        let sum = self.sums.back().map_or(0, |last| last.sum);
        let of_place = XxHash3_64::oneshot_with_seed(seq, &hash.to_le_bytes());
        self.sums.push_back(Sum { seq, hash: Some(hash), sum: sum.wrapping_add(of_place) });
        if self.sums.len() > SUMS_MAX {
            self.sums.pop_front();
        }
    }

    /// The checksum up to the last message that was read. Another node that has read as much
    /// remembers where it begins.
    pub(super) fn shown(&self) -> Checksum {
        let Some(last) = self.sums.back() else { return Checksum::default() };
        let first = self.sums[self.sums.len().saturating_sub(SUMS_MAX / 2)];
        Checksum { from: first.seq, upto: last.seq, sum: last.sum.wrapping_sub(first.sum) }
    }

    /// Whether another node has read the same, as far as this one can tell.
    pub(super) fn agrees(&mut self, theirs: Checksum) -> bool {
        let sum_at = |seq| {
            let at = self.sums.binary_search_by_key(&seq, |sum| sum.seq).ok();
            at.map(|at| self.sums[at].sum)
        };
        let [Some(from), Some(upto)] = [theirs.from, theirs.upto].map(sum_at) else { return true };
        self.heard = theirs.upto.max(self.heard);
        theirs.sum == upto.wrapping_sub(from)
    }

    /// Whether this node has read the message `seq`, and knows of no other one that has read the
    /// same up to there.
    pub(super) fn is_due(&self, seq: u64) -> bool {
        // mutation: unsaid-checksum
        seq > self.heard && self.shown().upto >= seq
    }

    /// The last message before this one that was read, and its hash, if that is known.
    pub(super) fn before(&self, seq: u64) -> Option<(u64, u64)> {
        let index = self.sums.partition_point(|sum| sum.seq < seq).checked_sub(1)?;
        Some((self.sums[index].seq, self.sums[index].hash?))
    }
}

/// The checksum is known at this many messages. A batch is read soon after it was written.
const SUMS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    /// All nodes of a cluster may have begun with what they had on a disk.
    #[test]
    fn the_first_of_two_nodes_compares_both() {
        let [mut first, mut second] = [(); 2].map(|()| RunningChecksum::default());
        assert_eq!(first.shown(), Checksum::default());
        (5..12).for_each(|seq| first.add(seq, seq));
        (8..12).for_each(|seq| second.add(seq, seq));
        assert!(first.agrees(second.shown()) && second.agrees(first.shown()));
        assert_eq!([first.is_due(11), second.is_due(11), second.is_due(12)], [false, true, false]);
        first.add(12, 1);
        second.add(12, 2);
        assert!(!first.agrees(second.shown()));
        assert_eq!((first.before(12), second.before(8)), (Some((11, 11)), None));
    }

    #[test]
    fn nodes_remember_where_a_checksum_begins() {
        let [mut one, mut other] = [(); 2].map(|()| RunningChecksum::default());
        one.add(1, 1);
        other.add(1, 1);
        for seq in 2..10_000 {
            let shown = one.shown();
            one.add(seq, seq);
            other.add(seq, seq);
            assert!(other.agrees(shown) && other.heard == shown.upto);
            assert!(!other.agrees(Checksum { sum: shown.sum ^ 1, ..shown }));
        }
    }
}
