//! The parts of a node's state.

use super::holes::Want;
use crate::line::SequenceMapping;
use std::ops::RangeInclusive;
use stentor_hub::Epoch;

/// What a node does about the log. Each case has the data that only it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// There is no connection.
    Disconnected(Finding),
    /// The node looks at the log, and reads no message.
    Inspecting,
    /// The same, and the log seems to have lost messages that this node has read.
    Suspecting(Suspicion),
    /// The same, and the log lacks messages that this node has not read.
    NeedsSnapshot(Want),
    /// A consumer delivers the messages behind the one read last. `overdue_ms`: since when it has
    /// not delivered a message that the log has.
    Reading { overdue_ms: Option<u64> },
    /// The record that begins an epoch is being appended, because of this finding.
    StartingEpoch { token: u64, finding: Finding },
    /// A node of another version wrote the message `seq`. The node reads no message from there on,
    /// and continues to inspect the log.
    Faulted { seq: u64, is_connected: bool },
    /// The log is of another cluster than the directory of this node.
    OtherCluster { theirs: u64 },
}

/// What a node had found before the phase that it is in now. It outlives a connection and an
/// append, so that the node does not wait again as long.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Finding {
    #[default]
    Nothing,
    Loss(Suspicion),
    Hole(Want),
}

impl From<Finding> for Phase {
    fn from(finding: Finding) -> Phase {
        match finding {
            Finding::Nothing => Phase::Inspecting,
            Finding::Loss(suspicion) => Phase::Suspecting(suspicion),
            Finding::Hole(want) => Phase::NeedsSnapshot(want),
        }
    }
}

impl Phase {
    pub(super) fn is_connected(self) -> bool {
        match self {
            Phase::Disconnected(_) => false,
            Phase::Faulted { is_connected, .. } => is_connected,
            _ => true,
        }
    }

    pub(super) fn finding(self) -> Finding {
        match self {
            Phase::Disconnected(finding) | Phase::StartingEpoch { finding, .. } => finding,
            Phase::Suspecting(suspicion) => Finding::Loss(suspicion),
            Phase::NeedsSnapshot(want) => Finding::Hole(want),
            Phase::Inspecting
            | Phase::Reading { .. }
            | Phase::Faulted { .. }
            | Phase::OtherCluster { .. } => Finding::Nothing,
        }
    }

    /// A connection begins.
    pub(super) fn connect(self) -> Phase {
        match self {
            Phase::Faulted { seq, .. } => Phase::Faulted { seq, is_connected: true },
            other => other.finding().into(),
        }
    }

    /// A connection ends, if there is one.
    pub(super) fn disconnect(self) -> Phase {
        match self {
            Phase::Faulted { seq, .. } => Phase::Faulted { seq, is_connected: false },
            other => Phase::Disconnected(other.finding()),
        }
    }

    /// An append has an answer.
    pub(super) fn end_append(self, answered: u64) -> Option<Phase> {
        match self {
            Phase::StartingEpoch { token, finding } if token == answered => Some(finding.into()),
            _ => None,
        }
    }

    /// A look has found that the message `next` is the next one.
    pub(super) fn look(self, next: u64) -> Phase {
        match self {
            Phase::Faulted { seq, .. } if next > seq => Phase::Inspecting,
            Phase::OtherCluster { .. } => Phase::Inspecting,
            other => other,
        }
    }

    /// The log is found to lack nothing that the node has read; nor, if `has_hole` is false,
    /// anything that it has not.
    pub(super) fn take_back(self, has_hole: bool) -> Phase {
        match self {
            Phase::Suspecting(_) => Phase::Inspecting,
            Phase::NeedsSnapshot(_) if !has_hole => Phase::Inspecting,
            other => other,
        }
    }

    /// The consumer has delivered a message, or nothing is due.
    pub(super) fn deliver(&mut self) {
        if let Phase::Reading { overdue_ms } = self {
            *overdue_ms = None;
        }
    }
}

/// The name of a node's cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum ClusterName {
    /// The values here are of no cluster.
    #[default]
    None,
    /// The directory of the node has it, and this run has not been open yet: the node joins no
    /// other cluster.
    FromDisk(u64),
    FromLog(u64),
}

impl ClusterName {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            ClusterName::None => None,
            ClusterName::FromDisk(name) | ClusterName::FromLog(name) => Some(name),
        }
    }

    /// Whether a node with this name may join the cluster `theirs`.
    pub(super) fn may_join(self, theirs: u64) -> bool {
        !matches!(self, ClusterName::FromDisk(ours) if ours != theirs)
    }

    /// The node is open: it is of the cluster in the log.
    pub(super) fn join(&mut self) {
        if let ClusterName::FromDisk(name) = *self {
            *self = ClusterName::FromLog(name);
        }
    }
}

/// The log seems to have lost messages that this node has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// Since when the log has contained messages and no epoch record.
    pub(super) no_epoch_ms: Option<u64>,
}

/// A look that the log has not answered yet.
#[derive(Clone, Copy)]
pub(super) struct PendingLook {
    pub(super) token: u64,
    /// The message that was read last when the look began.
    pub(super) read: u64,
    /// The message that is compared, and its hash.
    pub(super) at: u64,
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
