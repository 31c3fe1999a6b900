//! How a change gets its place in the order: at once, or after a while.
//!
//! The hub admits a change and applies it; in between somebody must commit it, which is to say that
//! it has its place and keeps it. That is a [`Sequencer`]'s business. The one in memory does it on
//! the spot. Others, a store or a broker, take their time, and tell whoever asked by its
//! [`ReturnAddress`] what came of it. A worker waits for nobody: the connection's answer does.

use crate::committer::Applier;
use crate::not_ready::NotReady;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use stentor_hub::{Applied, Entry, Hub, Keep, Place, Refusal};
use stentor_io::Peer;
use stentor_wire::error::{ErrorCode, Rejection};

/// What came of a change.
pub type Outcome = Result<Applied, CommitError>;

/// Why a change did not come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitError {
    /// It was refused, where it was admitted or at its place in the order. Nothing has changed.
    Refused(Refusal),
    /// It was not taken, since there is no room on the disk to keep it.
    DiskFull,
    /// It was not taken, since the disk that is to keep it does not work.
    DiskFailed,
    /// It was not taken, since too much waits for the disk.
    DiskBehind,
    /// It was not taken, since this server follows another one, which makes the order.
    Elsewhere,
    /// It was not taken, since this node of a cluster takes no changes.
    NotReady(NotReady),
    /// It was not taken, since too much waits for the broker.
    BrokerBehind,
    /// It was not taken, since the broker takes no message that is so large.
    BrokerRefuses {
        /// So many bytes are taken, with what is said of them.
        max: usize,
    },
    /// It is not known whether it is kept: where it was on its way failed.
    Failed,
}

impl CommitError {
    /// The error code of the answer to the publisher.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            CommitError::Refused(refusal) => match refusal {
                Refusal::TooLarge { .. } => ErrorCode::MessageTooLarge,
                Refusal::TooManyTopics { .. } => ErrorCode::TopicLimit,
                Refusal::StorageFull { .. } => ErrorCode::StoredBytesLimit,
                Refusal::MemoryShort => ErrorCode::PublishPaused,
                Refusal::NotFound => ErrorCode::TopicNotFound,
                Refusal::PreconditionFailed => ErrorCode::PreconditionFailed,
            },
            CommitError::DiskFull => ErrorCode::StoreFull,
            CommitError::DiskFailed => ErrorCode::StoreFailed,
            CommitError::DiskBehind => ErrorCode::StoreOverloaded,
            CommitError::Elsewhere => ErrorCode::NotLeader,
            CommitError::NotReady(NotReady::TooLarge { .. }) => ErrorCode::BrokerOverloaded,
            CommitError::NotReady(not_ready) => not_ready.code(),
            CommitError::BrokerBehind => ErrorCode::BrokerOverloaded,
            CommitError::BrokerRefuses { .. } => ErrorCode::BrokerLimit,
            CommitError::Failed => ErrorCode::OutcomeUnknown,
        }
    }

    /// The answer to the publisher.
    #[must_use]
    pub fn rejection(self) -> Rejection {
        Rejection::because(self.code(), self.to_string())
    }
}

impl From<Refusal> for CommitError {
    fn from(refusal: Refusal) -> CommitError {
        CommitError::Refused(refusal)
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Refused(refusal) => refusal.fmt(f),
            CommitError::DiskFull => f.write_str(
                "The disk is full: nothing is published until there is room on it again.",
            ),
            CommitError::DiskFailed => f.write_str(
                "The disk failed: nothing is published until it works again; /-/readyz/publish \
                 says what it said.",
            ),
            CommitError::DiskBehind => {
                f.write_str("The disk is slower than what is published: try again in a while.")
            }
            CommitError::Elsewhere => f.write_str(
                "This server follows another one: publish there; /-/status says which it is.",
            ),
            CommitError::NotReady(reason) => f.write_str(reason.answer()),
            CommitError::BrokerBehind => {
                f.write_str("The broker is slower than what is published: try again in a while.")
            }
            CommitError::BrokerRefuses { max } => write!(
                f,
                "The message is larger than the broker takes, which is {max} bytes: raise its \
                 max_payload, which counts up to 1 MiB."
            ),
            CommitError::Failed => f.write_str(
                "It is not known whether the change was kept: look at the value, and try again.",
            ),
        }
    }
}

impl std::error::Error for CommitError {}

/// What has become of an admitted entry.
pub enum Commit {
    /// It is known what came of it.
    Known(Outcome),
    /// Whoever asked is told what comes of it, once. Whoever asks for several may be told in any
    /// order: not all are promised the same.
    Later,
    /// The outcome, which is not kept yet as was promised: see [`Sequencer::when_kept`]. A refusal
    /// may rest on a change that is not kept.
    Due(Outcome, Due),
}

impl Commit {
    /// Why the change was refused, if the reason is a topic's value.
    pub(crate) fn refusal_by_state(&self) -> Option<Refusal> {
        match self {
            Commit::Known(Err(CommitError::Refused(
                refusal @ (Refusal::NotFound | Refusal::PreconditionFailed),
            ))) => Some(*refusal),
            _ => None,
        }
    }
}

/// Up to which number everything has to be kept, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// The last number.
    pub seq: u64,
    /// The promise to their publishers.
    pub keep: Keep,
}

/// How the order is kept, and where it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderKind {
    /// It is made here, and kept in memory alone.
    Memory,
    /// It is made here, and a store keeps it.
    Store,
    /// Another server makes it, and this one follows.
    Leader {
        /// The URL that publishers are redirected to. `None`: they are refused.
        publish_url: Option<String>,
    },
    /// A broker makes it, for all nodes of a cluster.
    Cluster,
}

/// Whoever gives changes their places.
pub trait Sequencer: Send + Sync {
    /// Has an admitted entry committed and applied. If that takes a while, `back` is told.
    fn commit(&self, to: &Applier, entry: Entry<'_>, back: &dyn Fn() -> ReturnAddress) -> Commit;

    /// Whether preconditions are judged where a change has its place, and not when it is admitted:
    /// others give places, too.
    fn judges_at_place(&self) -> bool {
        false
    }

    /// A refusal rests on the state of this hub. Returns the changes that have to be kept before
    /// its publisher is told of it, or `None` if they are kept.
    fn refusal_due(&self, _: &Hub, _: Keep) -> Option<Due> {
        None
    }

    /// Takes out outcomes, and has each publisher told once what it was promised holds. That is at
    /// once where [`Sequencer::commit`] returns no [`Commit::Due`].
    fn when_kept(&self, promised: &mut Vec<Promised>) {
        let mut telling = Telling::default();
        promised.drain(..).for_each(|it| telling.add(it.back, it.outcome));
    }
}

/// An outcome. The publisher is told of it once everything up to a number is kept.
#[derive(Debug)]
pub struct Promised {
    /// When it is kept.
    pub due: Due,
    /// The outcome.
    pub outcome: Outcome,
    /// Whom to tell.
    pub back: ReturnAddress,
}

/// The order is made here and nowhere kept: an entry has its place as soon as it is applied.
pub struct InMemory;

impl Sequencer for InMemory {
    fn commit(&self, to: &Applier, entry: Entry<'_>, _: &dyn Fn() -> ReturnAddress) -> Commit {
        Commit::Known(to.apply(entry, Place::Next))
    }
}

/// Which request asked for a change, and which of the changes it asked for this was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The connection of the worker.
    pub peer: Peer,
    /// The number of the request, in all lives of the connection's record.
    pub stamp: u32,
    /// The line of a stream of messages; 0 for what is asked for alone.
    pub line: u64,
}

impl Ticket {
    /// Of a request that came from nowhere.
    pub fn of_nobody() -> Ticket {
        Ticket { peer: Peer::from_index(0), stamp: 0, line: 0 }
    }
}

/// A worker, which is told the outcomes of changes that its connections asked for.
pub trait Notifier: fmt::Debug + Send + Sync {
    /// Tells it, without waiting.
    fn committed(&self, outcomes: Outcomes);
}

/// Where what came of a change is to be told.
#[derive(Debug)]
pub enum ReturnAddress {
    /// A connection of a worker.
    Worker(Arc<dyn Notifier>, Ticket),
    /// A thread that waits.
    Thread(Sender<Outcome>),
}

impl ReturnAddress {
    /// Tells what came of it. If nobody waits any more, nobody is told.
    pub fn tell(self, outcome: Outcome) {
        Telling::default().add(self, outcome);
    }
}

/// What came of many changes: each worker is told of all of its own at once, when this is dropped.
#[derive(Default)]
pub struct Telling(Vec<(Arc<dyn Notifier>, Outcomes)>);

/// Outcomes of changes, each with the request that asked for it.
pub type Outcomes = Vec<(Ticket, Outcome)>;

impl Telling {
    /// Tells a thread at once, and a worker when this is dropped. If nobody waits any more, nobody
    /// is told.
    pub fn add(&mut self, back: ReturnAddress, outcome: Outcome) {
        let (worker, ticket) = match back {
            ReturnAddress::Worker(worker, ticket) => (worker, ticket),
            ReturnAddress::Thread(sender) => return drop(sender.send(outcome)),
        };
        match self.0.iter_mut().find(|(known, _)| ptr::addr_eq(&**known, &*worker)) {
            Some((_, outcomes)) => outcomes.push((ticket, outcome)),
            None => self.0.push((worker, vec![(ticket, outcome)])),
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        for (worker, outcomes) in self.0.drain(..) {
            worker.committed(outcomes);
        }
    }
}
