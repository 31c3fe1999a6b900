//! Entries: changes on their way into the one order, and what comes of them.
//!
//! A change goes three steps. It is *admitted*: whatever can be judged before it has a place is
//! judged. It is *committed*: somebody gives it its place. This process does so when it applies the
//! entry; a store or a broker does so before, and the entry waits meanwhile, or comes from another
//! process altogether. It is *applied*: judged again, since the order may have put other changes
//! before it, made visible, and told to the subscribers. Two hubs that apply the same entries in
//! the same places are the same hub.

use std::fmt;
use std::sync::Arc;

use stentor_wire::negotiate::tag_matches;
use stentor_wire::target::TopicName;

use crate::event::Event;
use crate::id::Id;
use crate::message::{Draft, Message};
use crate::rules::Rule;

/// A change.
#[derive(Debug)]
pub enum Op<'a> {
    /// The topic has this value from now on; a topic that does not exist is created.
    Put(TopicName<'a>, Draft),
    /// The topic is deleted with its history.
    Delete(TopicName<'a>),
    /// These rules replace those before.
    Rules(Vec<Rule>),
}

/// A change that was admitted, and what it hangs on. Made by [`Hub::admit`](crate::Hub::admit), by
/// [`decode_entry`](crate::decode_entry), and of what was admitted elsewhere, [`Entry::past`].
#[derive(Debug)]
pub struct Entry<'a> {
    pub(crate) op: Op<'a>,
    pub(crate) when: Precondition,
    /// The time of the change, in seconds.
    pub(crate) unix_s: u64,
}

impl<'a> Entry<'a> {
    /// A change that took place in another hub, at this time. Its place is a [`Place::Was`].
    #[must_use]
    pub fn past(op: Op<'a>, unix_s: u64) -> Entry<'a> {
        Entry { op, when: Precondition::None, unix_s }
    }

    /// The same entry, if this holds where it has its place.
    #[must_use]
    pub fn if_holds(self, when: Precondition) -> Entry<'a> {
        Entry { when, ..self }
    }

    /// Whether it takes place only if something holds.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        self.when != Precondition::None
    }

    /// Whether this may be what came of it.
    #[must_use]
    pub fn makes(&self, event: &Event) -> bool {
        match &self.op {
            Op::Put(topic, draft) => {
                topic.as_str() == event.topic() && draft.data() == event.message.data()
            }
            Op::Delete(topic) => topic.as_str() == event.topic() && event.message.is_deletion(),
            Op::Rules(_) => false,
        }
    }

    /// The topic that it changes; a change of rules changes none.
    #[must_use]
    pub fn topic(&self) -> Option<&TopicName<'_>> {
        match &self.op {
            Op::Put(topic, _) | Op::Delete(topic) => Some(topic),
            Op::Rules(_) => None,
        }
    }

    /// The rules, if it changes them.
    #[must_use]
    pub fn rules(&self) -> Option<&[Rule]> {
        match &self.op {
            Op::Rules(rules) => Some(rules),
            Op::Put(..) | Op::Delete(_) => None,
        }
    }

    /// The same entry with a name of its own, for one that has to wait.
    #[must_use]
    pub fn into_owned(self) -> Entry<'static> {
        let op = match self.op {
            Op::Put(topic, draft) => Op::Put(topic.into_owned(), draft),
            Op::Delete(topic) => Op::Delete(topic.into_owned()),
            Op::Rules(rules) => Op::Rules(rules),
        };
        Entry { op, when: self.when, unix_s: self.unix_s }
    }
}

/// The place of an entry in the order.
///
/// Messages and deletions are numbered by their SEQ. Readers see nothing of a change of rules, so
/// it takes no SEQ: its number is the generation of the rules, which counts by itself from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Behind everything else: this process makes the order.
    Next,
    /// At this number. Whoever makes the order gives it; numbers grow and may leave holes.
    At(u64),
    /// The entry was applied at this place before, and what came of it is known: nothing is judged.
    /// Its topic may have it already, or something newer.
    Was(Past),
}

/// What is known of an entry that was applied before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    /// Its number.
    pub number: u64,
    /// The value before may be of the same second: see [`Hub::dates_tell`](crate::Hub::dates_tell).
    pub shares_second: bool,
    /// Of a deletion, the number of the topic's last value; else 0.
    pub last_seq: u64,
}

impl Place {
    /// The number here, if the latest one is `latest`; `None` if this place was passed already.
    pub(crate) fn number(self, latest: u64) -> Option<u64> {
        let number = match self {
            Place::Next => latest + 1,
            Place::At(number) | Place::Was(Past { number, .. }) => number,
        };
        (number > latest).then_some(number)
    }

    pub(crate) fn past(self) -> Option<Past> {
        match self {
            Place::Was(past) => Some(past),
            Place::Next | Place::At(_) => None,
        }
    }
}

/// What must hold of a topic's value for a change to take place: the value of a request's
/// `If-Match` or `If-None-Match` field (RFC 9110, 13.1). Judged where the change has its place, so
/// no other change comes between the judgement and the act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// Nothing.
    None,
    /// The value is one of those named; with `*`, there is a value.
    IfMatch(Box<[u8]>),
    /// The value is none of those named; with `*`, there is no value.
    IfNoneMatch(Box<[u8]>),
}

impl Precondition {
    pub(crate) fn holds(&self, value: Option<Id>) -> bool {
        let named = |tags: &[u8]| value.is_some_and(|id| tag_matches(tags, id.text().as_bytes()));
        match self {
            Precondition::None => true,
            Precondition::IfMatch(tags) => named(tags),
            Precondition::IfNoneMatch(tags) => !named(tags),
        }
    }
}

/// What came of an entry.
#[derive(Debug)]
pub enum Applied {
    /// A message was published.
    Put(Published),
    /// A topic was deleted: the message that says so, and how many readers it went to.
    Deleted(Event, u64),
    /// The rules were replaced: their generation.
    Rules(u64),
    /// No reader sees anything new: its place was passed already, or its topic had it. If its topic
    /// had it, its number is in use from now on.
    Known,
}

/// What came of a publish.
#[derive(Debug)]
pub struct Published {
    /// The place of the new message.
    pub id: Id,
    /// Whether the topic is new.
    pub created: bool,
    /// The new message.
    pub message: Arc<Message>,
    /// The value before: what clients asked of it, they will ask of the new one.
    pub replaced: Option<Arc<Message>>,
    /// How many readers wanted to be told, as counted by
    /// [`Hub::subscribe`](crate::Hub::subscribe)'s cells.
    pub readers: u64,
}

/// Why a change was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The data is larger than allowed.
    TooLarge {
        /// [`Limits::message_bytes_max`](crate::Limits::message_bytes_max)
        max: usize,
    },
    /// There are as many topics as allowed, and this would be another.
    TooManyTopics {
        /// [`Limits::topics_max`](crate::Limits::topics_max)
        max: usize,
    },
    /// Values take all the memory that they may, and this one would take more.
    StorageFull {
        /// [`Limits::stored_bytes_max`](crate::Limits::stored_bytes_max)
        max: usize,
    },
    /// Memory is short for a while, and the topic would take more than it does.
    MemoryShort,
    /// There is no such topic to be deleted.
    NotFound,
    /// The precondition does not hold.
    PreconditionFailed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooLarge { max } => write!(f, "The message is larger than {max} bytes."),
            Refusal::TooManyTopics { max } => {
                write!(f, "There are {max} topics already, which is as many as allowed.")
            }
            Refusal::StorageFull { max } => write!(
                f,
                "Values fill the {max} bytes of memory that limits.stored_bytes_max allows: delete \
                 topics, or raise it."
            ),
            Refusal::MemoryShort => {
                f.write_str("Memory is short, so this topic may not grow: try again in a moment.")
            }
            Refusal::NotFound => f.write_str("There is no such topic."),
            Refusal::PreconditionFailed => {
                f.write_str("The topic's value is not as the condition demands.")
            }
        }
    }
}

impl std::error::Error for Refusal {}
