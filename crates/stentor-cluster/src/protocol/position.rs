//! The position of a node in the log: how far it has read, and how its hub relates to that.

use super::checksum::RunningChecksum;
use crate::codec::LogMessage;
use std::collections::HashMap;
use stentor_hub::Epoch;

/// The position of a node in the log.
#[derive(Default)]
pub(super) struct LogPosition {
    /// The message that was read last; 0 before the first.
    pub(super) read: u64,
    /// The hash of that message, if this node has read its bytes.
    pub(super) hash: Option<u64>,
    /// The log once contained this message. If the log ends before it, messages are lost.
    pub(super) known_last: u64,
    /// The last message that was read before SEQs jump in a log without what was read last, and its
    /// hash: before the node leaves what is lost, it compares this one.
    pub(super) before_jump: Option<(u64, u64)>,
    /// A message behind `read` that has changed since a node wrote it.
    pub(super) damaged: Option<u64>,
    /// The hub has every change of the messages up to this one, even if they are read again.
    pub(super) applied: u64,
    pub(super) placement: Placement,
    pub(super) running: RunningChecksum,
    /// By run: the count of its last message that was read, and the sequence of that message.
    counts: HashMap<u64, (u64, u64)>,
    /// A consumer has delivered every message just before this place, or the node has read them.
    pub(super) has_counts: bool,
}

/// Whether the node knows which message of the log its hub ends with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Placement {
    #[default]
    Unknown,
    /// It reads this epoch from its beginning, which is the next message.
    Begins(Epoch),
    /// The log has another message where this epoch is said to begin.
    NotThere(Epoch),
    Known,
    /// It knew, and the log has another message there.
    Contradicted,
}

impl Placement {
    pub(super) fn is_known(self) -> bool {
        matches!(self, Placement::Known | Placement::Contradicted)
    }
}

impl LogPosition {
    /// The position of a node that reads an epoch from the message where it began.
    pub(super) fn before(began: u64, epoch: Epoch) -> LogPosition {
        let placement = Placement::Begins(epoch);
        LogPosition { read: began - 1, placement, ..LogPosition::default() }
    }

    /// The position of a hub that ends with the message `at`, in an epoch that began at `began`.
    /// `is_whole`: the hub has every change of this message.
    pub(super) fn behind(at: u64, is_whole: bool, began: u64) -> LogPosition {
        LogPosition {
            // The message at the end is read again, to compare it. Also, the hub may lack some of
            // its changes.
            read: at.saturating_sub(1).max(began),
            known_last: at.max(began),
            applied: if is_whole { at } else { 0 },
            placement: Placement::Known,
            ..LogPosition::default()
        }
    }

    /// Whether a message before this one was not read, and the hub does not have its changes.
    pub(super) fn lacks_before(&self, seq: u64) -> bool {
        seq > self.read.max(self.applied) + 1
    }

    /// Whether a message was read before. Each run counts its messages from 1 on.
    pub(super) fn is_copy(&mut self, seq: u64, message: &LogMessage<'_>) -> bool {
        if message.counter == 0 {
            return false;
        }
        let (count, read) = self.counts.get(&message.run).copied().unwrap_or_default();
        self.counts.insert(message.run, (message.counter.max(count), seq.max(read)));
        // The run that has been silent for longest has ended, or nearly so.
        if self.counts.len() > RUNS_MAX
            && let Some((&run, _)) = self.counts.iter().min_by_key(|(_, (_, read))| *read)
        {
            self.counts.remove(&run);
        }
        message.counter <= count
    }

    /// Where a consumer begins. A snapshot does not contain the counts, so a node that lacks some
    /// reads them from the messages just before its place. If the log has lost the first of two
    /// copies, such a node applies the second.
    pub(super) fn first_to_read(&self) -> u64 {
        // mutation: no-counts
        let counted = if self.has_counts { 0 } else { COUNTED_AGAIN };
        (self.read + 1).saturating_sub(counted).max(1)
    }
}

/// A node reads the counts of this many messages before its place. Both copies are under way at the
/// same time, and each run has one message under way, so at most one message of each node is
/// between them.
const COUNTED_AGAIN: u64 = 64;

/// This many runs are remembered. Most of them have ended.
const RUNS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Checksum, MessageBody, Of};

    /// Each start of a node is a run, and a log outlives many.
    #[test]
    fn the_counts_of_the_latest_runs_are_remembered() {
        let mut position = LogPosition::default();
        let of = Of { read: Checksum::default(), jump: 0, since: None };
        let body = MessageBody::Batch { of, entries: &[] };
        let (epoch, last) = (Epoch::from_number(1), 2_000);
        let mut is_copy = |seq, run, counter| {
            position.is_copy(seq, &LogMessage { epoch, run, counter, body: body.clone() })
        };
        for run in 1..=last {
            // Run 0 continues.
            assert!(!is_copy(2 * run, run, 1) && !is_copy(2 * run + 1, 0, run));
        }
        assert!(is_copy(5_000, 0, last) && (last - 900..=last).all(|run| is_copy(5_000, run, 1)));
        assert_eq!(position.counts.len(), 1_000);
    }
}
