//! One of three brokers crashes and loses what it had not synced, while another one pauses. The
//! crashed one and the third elect a leader that lacks the end of the log. Appends on their way
//! arrive at that leader. Nodes at the broker that paused read the old log for a while, and then
//! the new one. They may notice nothing but another leader.

use super::*;
use std::collections::BTreeSet;

/// The log as the broker has it that paused.
pub(super) struct Fork {
    log: Log,
    /// Nodes whose connection is to this broker.
    members: BTreeSet<usize>,
    /// It has heard of the new leader then.
    until_ms: u64,
}

/// An election takes several seconds. Nodes compare what they have read before the next one.
const FORKS_APART_MS: u64 = 5_000;

impl Fork {
    /// The log that a node of this fork is told of.
    pub(super) fn log_of(fork: Option<&Fork>, index: usize) -> Option<&Log> {
        fork.filter(|fork| fork.members.contains(&index)).map(|fork| &fork.log)
    }
}

impl World {
    pub(super) fn log_of(&self, index: usize) -> &Log {
        Fork::log_of(self.fork.as_ref(), index).unwrap_or(&self.log)
    }

    pub(super) fn begin_fork(&mut self) {
        if self.now_ms < self.next_fork_ms || self.rng.below(200) > 0 {
            return;
        }
        self.next_fork_ms = self.now_ms + FORKS_APART_MS;
        let (mut members, mut until_ms) = (BTreeSet::new(), self.now_ms);
        let resumes_ms = self.now_ms + self.rng.below(2_000) as u64;
        for index in 0..self.members.len() {
            match self.rng.below(3) {
                // It was at the broker that crashed.
                0 => self.cut(index, 500),
                1 => {
                    members.insert(index);
                    self.members[index].stalled_until_ms = resumes_ms;
                    until_ms = resumes_ms + self.rng.below(500) as u64;
                }
                _ => {}
            }
        }
        let kept = self.log.messages.len().saturating_sub(self.rng.below(20));
        // Nobody else may know that those are lost.
        let kept = kept.max(self.ended.saturating_sub(self.log.before) as usize);
        let next = Log { run: self.log.run + 1, ..self.log.clone() };
        let log = std::mem::replace(&mut self.log, next);
        if self.rng.percent(90) {
            mark("broker-crashed-beside-pause");
            self.log.messages.truncate(kept);
        }
        self.fork = Some(Fork { log, members, until_ms });
    }

    pub(super) fn end_fork(&mut self) {
        let now_ms = self.now_ms;
        let Some(fork) = self.fork.take_if(|fork| fork.until_ms <= now_ms) else { return };
        for index in fork.members {
            if self.rng.percent(50) {
                self.cut(index, 500);
            }
        }
    }
}
