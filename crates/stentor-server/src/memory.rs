//! The account of the memory that the connections of a worker hold.
//!
//! The worker counts what a connection owns before and after it does anything with it, so no place
//! can forget to. Bodies that several connections are sent are another account: as long as a topic
//! or the cache of files keeps a body, holding it costs nothing. Once it is dropped it is
//! *detached*, and counted once, by its owner, until the last connection frees it
//! ([`Hub::detached_bytes`](stentor_hub::Hub::detached_bytes)).
//!
//! Over the limit, the connections that hold the most are closed, not the newest.

use crate::limits::{RELEASE_AFTER_MS, RELEASE_BYTES_MIN, RELIEF_PART};
use std::cmp::Reverse;

/// The account of a worker.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The bytes that the connections own.
    pub(crate) owned: usize,
    /// The most that was held since memory was last given back to the kernel, in bytes.
    peak_bytes: usize,
    /// When to give some back.
    release_at_ms: Option<u64>,
}

impl Memory {
    /// A connection that owned `before` bytes now owns `after`.
    pub(crate) fn note(&mut self, before: usize, after: usize) {
        debug_assert!(before <= self.owned, "more is freed than was counted");
        self.owned = self.owned.saturating_sub(before) + after;
    }

    /// Takes note of all that is held now. Returns whether so much of it was freed since that it is
    /// to be given back to the kernel: the allocator does not by itself, as long as anything behind
    /// it is in use.
    pub(crate) fn is_to_be_released(&mut self, bytes: usize, now_ms: u64) -> bool {
        self.peak_bytes = self.peak_bytes.max(bytes);
        if self.peak_bytes - bytes < RELEASE_BYTES_MIN {
            self.release_at_ms = None;
            return false;
        }
        let is_due = *self.release_at_ms.get_or_insert(now_ms + RELEASE_AFTER_MS) <= now_ms;
        if is_due {
            self.release_at_ms = None;
            self.peak_bytes = bytes;
        }
        is_due
    }

    /// When to look again.
    pub(crate) fn release_at_ms(&self) -> Option<u64> {
        self.release_at_ms
    }
}

/// A connection that holds much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) bytes: usize,
    /// When its time is up. Of those who hold as much, it is the first for whom nothing has changed
    /// for the longest.
    pub(crate) deadline_tick: u32,
    pub(crate) index: usize,
}

/// Bytes to be freed if `total` bytes are held and `bytes_max` may be: none, or so much that a part
/// of the limit is free afterwards.
pub(crate) fn excess(total: usize, bytes_max: usize) -> usize {
    if total <= bytes_max { 0 } else { total - (bytes_max - bytes_max / RELIEF_PART) }
}

/// The connections to close to free `excess` bytes: those that hold the most, and none that holds
/// less than `bytes_min`. The logarithm counts, not every byte.
pub(crate) fn whom_to_cut(
    mut excess: usize,
    bytes_min: usize,
    mut holders: Vec<Holder>,
) -> Vec<Holder> {
    holders.retain(|holder| holder.bytes >= bytes_min.max(1));
    holders.sort_unstable_by_key(|holder| {
        (Reverse(holder.bytes.ilog2()), holder.deadline_tick, holder.index)
    });
    let is_wanted = |holder: &Holder| {
        let is_wanted = excess > 0;
        excess = excess.saturating_sub(holder.bytes);
        is_wanted
    };
    holders.into_iter().take_while(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RELIEF_BYTES_MIN;

    /// Holders of so many bytes, by index, of whom the first has waited for the longest.
    fn holders(bytes: &[usize]) -> Vec<Holder> {
        let holder = |(index, &bytes)| Holder { bytes, deadline_tick: 7 + index as u32, index };
        bytes.iter().enumerate().map(holder).collect()
    }

    fn cut(total: usize, bytes_max: usize, holders: Vec<Holder>) -> Vec<usize> {
        let cut = whom_to_cut(excess(total, bytes_max), RELIEF_BYTES_MIN, holders);
        cut.iter().map(|holder| holder.index).collect()
    }

    #[test]
    fn those_who_hold_the_most_are_cut_until_there_is_room() {
        let all = holders(&[5_000, 200_000, 3_000, 400_000, 300_000, 100_000]);
        assert_eq!(cut(1_000_000, 1_000_000, all.clone()), [0; 0]);
        assert_eq!(cut(1_008_000, 1_000_000, all.clone()), [3], "an eighth is to be free");
        assert_eq!(cut(1_800_000, 1_000_000, all), [3, 4, 1, 5]);
        let small = holders(&[RELIEF_BYTES_MIN - 1; 1_000]);
        assert_eq!(cut(2_000_000, 1_000_000, small), [0; 0], "nobody holds much");
    }

    #[test]
    fn of_those_who_hold_as_much_the_newest_is_spared() {
        let mut all = holders(&[600_000, 1_000_000, 700_000, 900_000]);
        all[0].deadline_tick = 100;
        assert_eq!(cut(3_200_000, 1_900_000, all), [1, 2]);
    }

    #[test]
    fn what_was_freed_is_given_back_once_and_not_while_it_comes_and_goes() {
        let (mut memory, after) = (Memory::default(), RELEASE_AFTER_MS);
        assert!(!memory.is_to_be_released(2 * RELEASE_BYTES_MIN, 0));
        assert!(!memory.is_to_be_released(RELEASE_BYTES_MIN, 10));
        assert_eq!(memory.release_at_ms(), Some(10 + after));
        assert!(!memory.is_to_be_released(2 * RELEASE_BYTES_MIN, 9 + after), "it is in use again");
        assert!(!memory.is_to_be_released(0, 10 + after));
        assert!(memory.is_to_be_released(0, 10 + 2 * after));
        assert!(!memory.is_to_be_released(0, 10 + 9 * after));
        assert_eq!(memory.release_at_ms(), None);
    }
}
