//! Recovery from a *hole*: messages of the log are deleted or damaged that this node has not read.
//!
//! The node closes its consumer and asks its peers for a snapshot that reaches beyond the hole. If
//! no peer has one, and the log has not grown for ten seconds, the node assumes that no live node
//! has read the messages. It begins an epoch with the values that it has, and readers receive a
//! gap. The epoch record names the position before the hole, so a node that has read further
//! publishes its newer values.

use super::checksum::RunningChecksum;
use super::{ALONE_MS, Action, ClusterNode, Finding, Looked, PendingLook, Phase};
use crate::line::SequenceMapping;
use stentor_hub::Epoch;

/// A snapshot that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    pub(super) epoch: Epoch,
    /// Since when, and the last sequence of the log since then.
    since_ms: u64,
    last: u64,
}

impl ClusterNode {
    /// The first sequence behind the message read last that may have a message. A damaged message
    /// counts as deleted.
    pub(super) fn next(&self, asked: &PendingLook, looked: &Looked) -> u64 {
        // Messages may be appended between two answers. Only a last sequence that was known before
        // the look has no message if the look found none.
        let next = looked.next.unwrap_or(asked.last.min(looked.last) + 1).max(looked.first);
        if self.position.damaged == Some(next) { next + 1 } else { next }
    }

    /// Asks peers for a snapshot of this life.
    pub(super) fn want(&mut self, epoch: Epoch, last: u64, now_ms: u64) {
        // Only a node that has read everything appends, so there is one, and it has a snapshot.
        let want = match self.phase.finding() {
            Finding::Hole(want) if (want.epoch, want.last) == (epoch, last) => want,
            _ => Want { epoch, since_ms: now_ms, last },
        };
        self.phase = Phase::NeedsSnapshot(want);
        self.show();
        self.actions.push_back(Action::Snapshot { epoch });
    }

    /// The log lacks messages that this node has not read.
    pub(super) fn miss(&mut self, epoch: Epoch, last: u64, now_ms: u64) {
        self.want(epoch, last, now_ms);
        if let Phase::NeedsSnapshot(want) = self.phase
            && now_ms >= want.since_ms + ALONE_MS
        {
            self.actions.clear();
            self.turn(now_ms);
        }
    }

    /// The log has no message between the one read last and `next`, and this node needs none.
    pub(super) fn skip_to(&mut self, next: u64, line: &SequenceMapping) {
        if next > self.read() + 1 {
            (self.position.read, self.position.hash) = (next - 1, None);
            // Other nodes may have read the messages of the hole.
            self.position.running = RunningChecksum::default();
            self.epoch.mapping = line.upto(self.position.read);
            self.hub_read().follow_rolled_back(&self.epoch.mapping.lost());
            self.note_position();
        }
    }
}
