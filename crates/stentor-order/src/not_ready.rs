//! Why a node of a cluster takes no changes.

use std::fmt;
use stentor_hub::Epoch;
use stentor_wire::error::ErrorCode;

/// Why a node of a cluster takes no changes. It has two texts: [`fmt::Display`] for the operator,
/// in the log, `/-/status` and `/-/readyz`, and [`NotReady::answer`] for a publisher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotReady {
    /// The node has no connection to a broker that serves it.
    Disconnected,
    /// The node inspects the log, and has not found yet where to continue.
    Inspecting,
    /// The log lacks messages that the node has not read.
    NeedsSnapshot {
        /// The epoch of the log.
        epoch: Epoch,
    },
    /// The log lacks messages that the node has read.
    Suspecting {
        /// What the log does: a part of a sentence.
        why: &'static str,
        /// The message that the node has read last.
        read: u64,
    },
    /// The node begins an epoch.
    StartingEpoch,
    /// The node reads the values with which an epoch begins.
    Bootstrapping,
    /// A node of another version wrote this message.
    OtherVersion {
        /// Its sequence in the log.
        seq: u64,
    },
    /// The directory of this node is of another cluster than the stream.
    OtherCluster {
        /// Names the cluster of the stream.
        theirs: u64,
        /// Names the cluster of the directory.
        ours: u64,
    },
    /// The next message is larger than the broker takes.
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The size that the broker takes.
        max: usize,
    },
}

impl NotReady {
    /// The error code of publishing and of readiness.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            NotReady::Disconnected => ErrorCode::BrokerUnavailable,
            NotReady::Inspecting
            | NotReady::Suspecting { .. }
            | NotReady::StartingEpoch
            | NotReady::Bootstrapping => ErrorCode::ClusterRecovering,
            NotReady::NeedsSnapshot { .. } => ErrorCode::ClusterSnapshotNeeded,
            NotReady::OtherVersion { .. } => ErrorCode::ClusterVersion,
            NotReady::OtherCluster { .. } => ErrorCode::ClusterMismatch,
            NotReady::TooLarge { .. } => ErrorCode::BrokerLimit,
        }
    }

    /// What a publisher is answered.
    #[must_use]
    pub fn answer(self) -> &'static str {
        match self {
            NotReady::Disconnected => {
                "No broker serves this node: nothing is published here until one does; \
                 /-/readyz/publish names the reason."
            }
            NotReady::Inspecting => {
                "This node inspects the log of its cluster: try again in a moment."
            }
            NotReady::NeedsSnapshot { .. } => {
                "The log of the cluster lacks messages that this node has not read: publish at \
                 another node; /-/readyz/publish says more."
            }
            NotReady::Suspecting { .. } => {
                "The log of the cluster lacks messages that this node has read: try again in a \
                 while; /-/readyz/publish says more."
            }
            NotReady::StartingEpoch | NotReady::Bootstrapping => {
                "An epoch of the cluster begins: try again in a moment."
            }
            NotReady::OtherVersion { .. } => {
                "A node of another version wrote to the log of this cluster: publish at a node of \
                 that version."
            }
            NotReady::OtherCluster { .. } => {
                "This node has the directory of another cluster: publish at another node; \
                 /-/readyz/publish says more."
            }
            NotReady::TooLarge { .. } => {
                "The broker takes no message that is as large as the next one of this node: \
                 /-/readyz/publish says more."
            }
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Disconnected => {
                f.write_str("There is no connection to a broker that serves this node.")
            }
            NotReady::Inspecting => f.write_str("The node inspects the log of its cluster."),
            NotReady::NeedsSnapshot { epoch } => write!(
                f,
                "The stream lacks messages of EPOCH {epoch} that this node has not read: it needs \
                 a snapshot of another node, and none of cluster.peers has given one."
            ),
            NotReady::Suspecting { why, read } => write!(
                f,
                "The broker has lost messages: the stream {why} here, up to message {read}. Unless \
                 a node has read no more than is left, a new EPOCH begins, and readers receive a \
                 gap."
            ),
            NotReady::StartingEpoch => f.write_str("The node begins an EPOCH."),
            NotReady::Bootstrapping => {
                f.write_str("The node reads the values with which an EPOCH begins.")
            }
            NotReady::OtherVersion { seq } => write!(
                f,
                "A node of another version wrote message {seq} of the stream, and this node does \
                 not continue behind it: run one version at all nodes, or name a new stream by \
                 cluster.stream."
            ),
            NotReady::OtherCluster { theirs, ours } => write!(
                f,
                "The stream is of the cluster {theirs:016x}, and the directory of this node is of \
                 the cluster {ours:016x}: nothing of it is served or published here. Name the \
                 right stream by cluster.stream, or give the node another directory. If the stream \
                 was made anew for the same cluster, remove the file cluster-name from the \
                 directory."
            ),
            NotReady::TooLarge { bytes, max } => write!(
                f,
                "{bytes} bytes are to be written in one message, and the broker takes {max}: raise \
                 max_payload in its configuration."
            ),
        }
    }
}
