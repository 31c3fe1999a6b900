//! The latest changes: for each of the latest numbers, the topic it was given to.
//!
//! A reader that was away for a moment has missed a few messages of a few topics. To look for them
//! among all names of a pattern would cost as much as there are names. Here they are found by their
//! numbers, in the order in which they are to be told, at a cost that follows what has happened
//! since, not what there is. Numbers only grow, but whoever gives them may leave some out.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::topic::{Topic, stored_bytes_of};

/// The latest numbers with their topics, as far back as is remembered.
pub(crate) struct Changes {
    latest: VecDeque<(u64, Arc<Topic>)>,
    /// The deletions among them, with the memory of their topics: nothing else holds these for
    /// long.
    deletions: VecDeque<(u64, usize)>,
    deleted_bytes: usize,
    /// Every change after this number is remembered.
    floor: u64,
}

impl Changes {
    /// Nothing yet, after the number `seq`.
    pub(crate) fn after(seq: u64) -> Changes {
        Changes {
            latest: VecDeque::new(),
            deletions: VecDeque::new(),
            deleted_bytes: 0,
            floor: seq,
        }
    }

    /// Takes note of the next number: a topic has a new message.
    pub(crate) fn push(&mut self, seq: u64, topic: &Arc<Topic>) {
        let last_seq = self.latest.back().map_or(self.floor, |(seq, _)| *seq);
        debug_assert!(seq > last_seq, "numbers only grow");
        self.latest.push_back((seq, Arc::clone(topic)));
        if self.latest.len() > CHANGES_MAX {
            self.forget_oldest();
        }
    }

    /// Takes note of the next number: a topic was deleted. Deleted topics may take
    /// `deleted_bytes_max`.
    pub(crate) fn push_deletion(&mut self, seq: u64, topic: &Arc<Topic>, deleted_bytes_max: usize) {
        let bytes = stored_bytes_of(topic.name());
        self.deletions.push_back((seq, bytes));
        self.deleted_bytes += bytes;
        self.push(seq, topic);
        while self.deleted_bytes > deleted_bytes_max && !self.latest.is_empty() {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((forgotten, _)) = self.latest.pop_front() else { return };
        self.floor = forgotten;
        let deletion = self.deletions.pop_front_if(|(seq, _)| *seq == forgotten);
        self.deleted_bytes -= deletion.map_or(0, |(_, bytes)| bytes);
    }

    /// The memory of deleted topics.
    #[cfg(test)]
    pub(crate) fn deleted_bytes(&self) -> usize {
        self.deleted_bytes
    }

    /// Whether every change after `since` is remembered.
    pub(crate) fn reach(&self, since: u64) -> bool {
        since >= self.floor
    }

    /// The changes after `since`, up to and including `upto`; those that are remembered.
    pub(crate) fn between(
        &self,
        since: u64,
        upto: u64,
    ) -> impl Iterator<Item = (u64, &Arc<Topic>)> {
        let place = |seq: u64| self.latest.partition_point(|(known, _)| *known <= seq);
        let range = place(since)..place(upto).max(place(since));
        self.latest.range(range).map(|(seq, topic)| (*seq, topic))
    }
}

/// How many changes are remembered: two words each.
const CHANGES_MAX: usize = if cfg!(test) { 64 } else { 65_536 };
