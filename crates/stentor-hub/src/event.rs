//! Event: a message together with its topic, which is what streams carry.
//!
//! A message does not know its topic's name, since a value is read by name and millions of copies
//! of names would be kept for nothing. A stream of many topics must name them, so what it is sent
//! is the message and a pointer to the topic: two words, shared like the message itself.
//!
//! What a reader asks of history is a [`Span`]: from its cursor to the moment from which on it is
//! told of events anyway.

use std::fmt;
use std::sync::Arc;

use crate::message::Message;
use crate::rules::Terms;
use crate::topic::Topic;

/// A message and the topic it was published to.
#[derive(Clone)]
pub struct Event {
    topic: Arc<Topic>,
    /// The message; without data if it says that the topic was deleted.
    pub message: Arc<Message>,
}

// A worker's mailbox holds many.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Event>() == 16);

impl Event {
    pub(crate) fn new(topic: Arc<Topic>, message: Arc<Message>) -> Event {
        Event { topic, message }
    }

    /// The name of the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.topic.name()
    }

    /// The message's number.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.message.seq()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({}, {:?})", self.topic(), self.message)
    }
}

/// What a reader wants of history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The reader has seen everything up to this number. 0 means that it has seen nothing: then
    /// deleted topics do not concern it.
    pub since: u64,
    /// The last number wanted: it will be told of whatever is newer. `u64::MAX` means no bound.
    pub upto: u64,
    /// Which of the messages between.
    pub mode: Mode,
}

impl Span {
    pub(crate) fn contains(&self, message: &Message) -> bool {
        self.since < message.seq() && message.seq() <= self.upto
    }

    pub(crate) fn is_from_nothing(&self) -> bool {
        self.since == 0
    }
}

/// What came of looking for what was missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// Everything of the span up to this number was appended, or is lost.
    pub upto: u64,
    /// Every lost message has this number or a lower one; it is 0 if none is lost. It may lie below
    /// the span. A reader whose cursor is below it has a gap.
    pub lost_seq: u64,
}

/// Which messages of a topic a reader wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Only the newest of each topic. Nothing that was replaced counts as lost.
    Latest,
    /// Every message that is kept. Those no longer kept are a gap.
    All,
    /// As the topic's rule says: `Latest` if it keeps one message, else `All`.
    ByRule,
}

impl Mode {
    /// Whether only the newest message of a topic under these terms is wanted.
    pub(crate) fn conflates(self, terms: &Terms) -> bool {
        match self {
            Mode::Latest => true,
            Mode::All => false,
            Mode::ByRule => terms.conflates(),
        }
    }
}
