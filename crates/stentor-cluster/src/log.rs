//! What a node asks of the log, and what it is told: the seam between `protocol.rs` and a broker.

use std::sync::Arc;
use stentor_hub::Epoch;

/// What the node wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// To know how the log is, the message at this sequence, and which one is next behind it:
    /// `ClusterNode::handle_looked`.
    Look { at: u64, token: u64 },
    /// To receive every message from this sequence on: `ClusterNode::handle_message`. This ends the
    /// delivery that an earlier `Read` began.
    Read { from: u64 },
    /// To append a message, if the last one of its subject has this sequence:
    /// `ClusterNode::handle_appended`.
    Append { to: LogSubject, after: u64, payload: Arc<[u8]>, token: u64 },
    /// A snapshot of a peer: `ClusterNode::handle_snapshot`.
    Snapshot { epoch: Epoch },
}

/// Where a message is appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogSubject {
    /// Where lives begin, for all nodes.
    Life,
    /// Of this run alone.
    Own(u64),
}

/// How the log is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Looked {
    /// Names the run of the broker: what it had before it began may have lost its end.
    pub(super) broker: u64,
    /// Milliseconds of Unix time.
    pub(super) unix_ms: u64,
    /// The first message that is kept, or the next one.
    pub(super) first: u64,
    /// The last message there was.
    pub(super) last: u64,
    /// The last epoch record, and whether it would soon not be kept any more.
    pub(super) life: Option<(u64, Vec<u8>, bool)>,
    /// The last message of [`LogSubject::Life`], which may be another client's; 0 if there is none.
    pub(super) life_last: u64,
    /// The message that was asked for, if it is kept.
    pub(super) at: Option<u64>,
    /// The sequence of the first message behind that one, if there was one.
    pub(super) next: Option<u64>,
}

/// What came of an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Appended {
    /// It is in the log.
    At(u64),
    /// Another message is the last one of its subject; this one is not in the log by this append.
    Conflict(u64),
    /// It was refused, and is not in the log.
    Refused(String),
    /// It may be in the log, or come there.
    Unknown,
}
