//! The parts of a node's state.

use super::holes::Want;
use crate::line::SequenceMapping;
use std::ops::RangeInclusive;
use stentor_hub::Epoch;

/// The state of the connection to the log, and of reading it.
#[derive(PartialEq, Eq, Default)]
pub(super) enum LogState {
    #[default]
    Disconnected,
    /// It looks at the log, and reads no message.
    Idle,
    /// A consumer delivers the messages behind the one read last.
    Reading,
    /// The record that begins an epoch is being appended.
    StartingEpoch { token: u64 },
    /// A node of another version wrote the message `seq`. The node reads no message from there on,
    /// and goes on inspecting the log.
    Faulted { seq: u64, is_connected: bool },
    /// The log is of another cluster than the directory of this node.
    OtherCluster { theirs: u64 },
}

impl LogState {
    pub(super) fn is_connected(&self) -> bool {
        match self {
            LogState::Disconnected => false,
            LogState::Idle | LogState::Reading | LogState::StartingEpoch { .. } => true,
            LogState::OtherCluster { .. } => true,
            LogState::Faulted { is_connected, .. } => *is_connected,
        }
    }

    pub(super) fn is_faulted(&self) -> bool {
        matches!(self, LogState::Faulted { .. })
    }

    /// A connection begins or ends. A fault outlives it.
    pub(super) fn set_connected(&mut self, connected: bool) {
        match self {
            LogState::Faulted { is_connected, .. } => *is_connected = connected,
            other if connected => *other = LogState::Idle,
            other => *other = LogState::Disconnected,
        }
    }
}

/// The findings that keep a node from reading on. A finding outlives the connection, and may stand
/// beside others: each is taken back where it is found to be over.
#[derive(Default)]
pub(super) struct Obstacles {
    /// Since when the log has contained messages and no epoch record.
    pub(super) no_epoch_ms: Option<u64>,
    pub(super) suspicion: Option<Suspicion>,
    /// The snapshot of a peer that the node needs.
    pub(super) want: Option<Want>,
}

/// The log seems to have lost messages that this node has read.
#[derive(Clone, Copy)]
pub(super) struct Suspicion {
    pub(super) since_ms: u64,
    pub(super) why: &'static str,
}

/// The values in a node's hub, compared with the order in the log.
#[derive(Default)]
pub(super) struct Local {
    pub(super) values: Values,
    /// The hub's values are not those of the order, so the same epoch is to replace them.
    pub(super) has_diverged: bool,
    /// That the log has lost values of this node, until the log is found to continue those that
    /// replaced them. `None` if only a peer's snapshot contradicts them.
    pub(super) divergence: Option<Divergence>,
}

/// The log has lost messages that this node has read, and another node has continued without them.
pub(super) struct Divergence {
    /// When the node first found it.
    pub(super) since_ms: u64,
    /// The SEQs that were lost, once the node has kept its changes with these SEQs.
    pub(super) lost: Option<RangeInclusive<u64>>,
}

/// Where the values in a node's hub are from.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Values {
    /// The hub has no epoch of the log.
    #[default]
    None,
    /// Loaded from disk. Other nodes may be ahead until this one has been open.
    FromDisk,
    /// Read from the log, or from the snapshot of a peer.
    FromLog,
}

impl Local {
    /// Whether the hub's values are those of an epoch of the log.
    pub(super) fn is_in_order(&self) -> bool {
        self.values != Values::None && !self.has_diverged
    }

    /// The hub has adopted an epoch of the log.
    pub(super) fn adopt(&mut self) {
        self.has_diverged = false;
        if self.values == Values::None {
            self.values = Values::FromLog;
        }
    }
}

/// The epoch that a node reads, and those before it.
#[derive(Default)]
pub(super) struct EpochState {
    /// The message where the epoch began; 0 if that is unknown.
    pub(super) began: u64,
    /// When it began, in milliseconds of Unix time; 0 if that is unknown.
    pub(super) since_ms: u64,
    /// The run of the broker to which the last epoch record that was read was written.
    pub(super) broker: u64,
    /// Its SEQs in the log, as far as it was read.
    pub(super) mapping: SequenceMapping,
    /// Epochs that are over.
    pub(super) past: Vec<Epoch>,
}

/// The looks at the log: what this connection knows of it, and when the node looks again.
#[derive(Default)]
pub(super) struct LookState {
    pub(super) pending: Option<PendingLook>,
    pub(super) remote: Option<Remote>,
    /// When the next look begins.
    pub(super) at_ms: u64,
    /// No consumer is opened earlier, because the last one has delivered nothing.
    pub(super) consumer_at_ms: u64,
    /// How many consumers the node has given up since one has last delivered a message.
    pub(super) given_up: u32,
    /// Since when the consumer has not delivered a message that the log has.
    pub(super) overdue_ms: Option<u64>,
}

/// A look that the log has not answered yet.
#[derive(Clone, Copy)]
pub(super) struct PendingLook {
    pub(super) token: u64,
    /// The message that was read last when the look began, and its hash.
    pub(super) read: u64,
    pub(super) hash: Option<u64>,
    /// The last sequence that this connection's look before has found.
    pub(super) last: u64,
    /// Something has changed since the look began, so the node ignores its answer and looks again.
    pub(super) is_outdated: bool,
}

/// The findings of this connection's last look.
#[derive(Clone, Copy)]
pub(super) struct Remote {
    /// Names the run of the broker.
    pub(super) broker: u64,
    /// The broker's clock, in milliseconds of Unix time.
    pub(super) unix_ms: u64,
    /// The last sequence of the log.
    pub(super) last: u64,
    /// The sequence of the last message of [`crate::log::LogSubject::Life`].
    pub(super) life_last: u64,
}
