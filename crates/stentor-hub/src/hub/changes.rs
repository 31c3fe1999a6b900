//! The latest changes: for each of the latest numbers, the topic it was given to.
//!
//! A reader that was away for a moment has missed a few messages of a few topics. To look for them
//! among all names of a pattern would cost as much as there are names. Here they are found by their
//! numbers, in the order in which they are to be told, at a cost that follows what has happened
//! since, not what there is.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::topic::Topic;

/// A topic for each number up to the latest one, as far back as is remembered.
#[derive(Default)]
pub(crate) struct Changes {
    topics: VecDeque<Arc<Topic>>,
    last_seq: u64,
}

impl Changes {
    /// Takes note of the next number.
    pub(crate) fn push(&mut self, seq: u64, topic: Arc<Topic>) {
        debug_assert!(seq > self.last_seq, "numbers only grow");
        self.last_seq = seq;
        self.topics.push_back(topic);
        if self.topics.len() > CHANGES_MAX {
            self.topics.pop_front();
        }
    }

    /// Whether every change after `since` is remembered.
    pub(crate) fn reach(&self, since: u64) -> bool {
        since >= self.last_seq - self.topics.len() as u64
    }

    /// The changes after `since`, up to and including `upto`; those that are remembered.
    pub(crate) fn between(
        &self,
        since: u64,
        upto: u64,
    ) -> impl Iterator<Item = (u64, &Arc<Topic>)> {
        let floor = self.last_seq - self.topics.len() as u64;
        let place = |seq: u64| (seq.clamp(floor, self.last_seq) - floor) as usize;
        let range = place(since)..place(upto).max(place(since));
        let first = floor + range.start as u64 + 1;
        (first..).zip(self.topics.range(range))
    }
}

/// How many changes are remembered: a pointer each.
const CHANGES_MAX: usize = if cfg!(test) { 64 } else { 65_536 };
