//! The table of topics, the index of their names, and the sequencing point.
//!
//! Reading is lock-free: a look-up in a concurrent hash table, then a load of the value cell.
//! Publishing passes one lock, which makes the order: it is the only place where SEQ is assigned,
//! topics come and go, and history is trimmed. What can be done before it (checking the name,
//! measuring the data, unpacking) is done before, and what has become superfluous is dropped
//! after. A publish that is refused has changed nothing.
//!
//! The names are also kept in order, for listing. That index is touched only when a topic is
//! created, deleted or listed. Locks are always taken in this order: sequence, tombstones, names, a
//! topic's, changes.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use stentor_wire::negotiate::tag_matches;
use stentor_wire::target::TopicName;

use crate::event::Event;
use crate::filter::Filter;
use crate::id::{Epoch, Id};
use crate::interleave;
use crate::message::{Draft, Message};
use crate::rules::{Rule, Rules, Terms};
use crate::subscribers::{Notified, Subscriber, SubscriberId, Subscribers};
use crate::tombstones::Tombstones;
use crate::topic::{ByName, Evicted, Topic};

mod changes;
#[cfg(any(test, debug_assertions))]
mod check;
mod missed;

use changes::Changes;
pub use missed::{Missed, Page, Share};

/// All topics of a server.
pub struct Hub {
    epoch: Epoch,
    limits: Limits,
    table: papaya::HashSet<ByName, foldhash::fast::RandomState>,
    names: RwLock<BTreeSet<ByName>>,
    /// Locked while a topic comes or goes: whoever holds it sees the table, the names and the
    /// tombstones agree.
    tombstones: RwLock<Tombstones>,
    changes: Mutex<Changes>,
    /// [`Sequence::seq`], for those who do not wait for the lock.
    seq: AtomicU64,
    sequence: Mutex<Sequence>,
}

/// What the sequencing point guards.
struct Sequence {
    /// The number of the latest message or deletion; 0 before the first.
    seq: u64,
    /// Messages ever published.
    published: u64,
    rules: Rules,
    subscribers: Subscribers,
    topics: usize,
    messages_kept: usize,
    bytes_kept: usize,
}

impl Hub {
    /// A hub without topics. The first of `rules` that matches a topic holds for it;
    /// [`Rule::default`] does if none matches.
    #[must_use]
    pub fn new(epoch: Epoch, rules: Vec<Rule>, limits: Limits) -> Hub {
        Hub {
            epoch,
            limits,
            table: papaya::HashSet::default(),
            names: RwLock::default(),
            tombstones: RwLock::new(Tombstones::new(TOMBSTONES_MAX)),
            changes: Mutex::default(),
            seq: AtomicU64::new(0),
            sequence: Mutex::new(Sequence {
                seq: 0,
                published: 0,
                rules: Rules::new(epoch, rules),
                subscribers: Subscribers::default(),
                topics: 0,
                messages_kept: 0,
                bytes_kept: 0,
            }),
        }
    }

    /// The life of this hub's sequence.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Shows `f` the value of a topic; `None` if it was never published or was deleted.
    ///
    /// The hot path of every read: no lock, no allocation, no count that other threads touch.
    /// After a publish has returned, every thread sees its message here or a later one. `f` should
    /// be short, since the memory of topics deleted meanwhile is given back only after it.
    pub fn with_value<R>(&self, topic: &str, f: impl FnOnce(Option<&Arc<Message>>) -> R) -> R {
        interleave::point();
        let table = self.table.pin();
        match table.get(topic) {
            Some(ByName(topic)) => f(topic.value().load().as_ref()),
            None => f(None),
        }
    }

    /// Shows `f` the value of each topic in turn, as [`Hub::with_value`] does. All are looked up
    /// before the first is shown: the waits for their memory then overlap.
    pub fn with_values<'n>(
        &self,
        topics: impl Iterator<Item = &'n str>,
        mut f: impl FnMut(Option<&Arc<Message>>),
    ) {
        interleave::point();
        let table = self.table.pin();
        let mut topics = topics.fuse();
        loop {
            let mut found = [None; TOGETHER];
            let mut count = 0;
            for (slot, topic) in found.iter_mut().zip(&mut topics) {
                *slot = table.get(topic);
                count += 1;
            }
            for topic in &found[..count] {
                match topic {
                    Some(ByName(topic)) => f(topic.value().load().as_ref()),
                    None => f(None),
                }
            }
            if count < TOGETHER {
                return;
            }
        }
    }

    /// The value of a topic; `None` if it was never published or was deleted.
    #[must_use]
    pub fn value(&self, topic: &str) -> Option<Arc<Message>> {
        self.with_value(topic, |value| value.cloned())
    }

    /// Publishes a message: the one sequencing point.
    ///
    /// `now_unix` is the time in seconds. When this returns, every later read on any thread sees
    /// the message or a newer one.
    ///
    /// # Errors
    ///
    /// If the data or the table would be larger than allowed, or the
    /// precondition does not hold. Then nothing has changed, and no number was used up.
    pub fn publish(
        &self,
        topic: TopicName<'_>,
        draft: Draft,
        when: Precondition<'_>,
        now_unix: u64,
    ) -> Result<Published, PublishError> {
        interleave::point();
        if draft.data().len() > self.limits.message_bytes_max {
            return Err(PublishError::TooLarge { max: self.limits.message_bytes_max });
        }
        // Pinned before the lock and unpinned after it: unpinning may free what others retired.
        let table = self.table.pin();
        let mut sequence = self.sequence();

        let known = table.get(topic.as_str()).map(|ByName(topic)| topic);
        let before = known.and_then(|topic| topic.value().load_full());
        if !when.holds(before.as_ref().map(|value| value.id())) {
            return Err(PublishError::PreconditionFailed);
        }
        if known.is_none() && sequence.topics >= self.limits.topics_max {
            return Err(PublishError::TooManyTopics { max: self.limits.topics_max });
        }

        let terms = match known {
            Some(topic) => topic.terms(),
            None => Arc::clone(sequence.rules.terms(&topic)),
        };
        let seq = sequence.seq + 1;
        let message =
            Arc::new(Message::new(draft, seq, Arc::clone(&terms), now_unix, before.as_deref()));
        sequence.add(&message);
        let new;
        let (topic, (replaced, evicted)) = match known {
            Some(topic) => (topic, topic.replace(Arc::clone(&message))),
            None => {
                new = self.create(&topic, terms, &message);
                sequence.topics += 1;
                (&new, (None, Evicted::new()))
            }
        };
        sequence.subtract(&evicted);
        let notified = self.announce(&mut sequence, topic, &message);
        drop(sequence);
        notified.wake();
        let readers = notified.readers;
        Ok(Published { id: message.id(), created: known.is_none(), message, replaced, readers })
    }

    /// Deletes a topic with its history; its memory comes back. Returns the message that says so:
    /// a deletion takes a number as a message does, and readers are told of it.
    ///
    /// # Errors
    ///
    /// If there is no such topic, or the precondition does not hold. Then nothing has changed.
    pub fn delete(
        &self,
        topic: TopicName<'_>,
        when: Precondition<'_>,
        now_unix: u64,
    ) -> Result<Event, DeleteError> {
        interleave::point();
        let table = self.table.pin();
        let mut sequence = self.sequence();
        let known =
            table.get(topic.as_str()).map(|ByName(topic)| topic).ok_or(DeleteError::NotFound)?;
        let value = known.value().load_full().ok_or(DeleteError::NotFound)?;
        if !when.holds(Some(value.id())) {
            return Err(DeleteError::PreconditionFailed);
        }
        let message = Message::deletion(sequence.seq + 1, known.terms(), now_unix, &value);
        let deletion = Event::new(Arc::clone(known), Arc::new(message));
        let mut tombstones = self.tombstones_mut();
        tombstones.insert(Arc::clone(known), deletion.clone(), value.seq());
        // Out of the index before the table, so that whatever is listed has a value.
        self.names_mut().remove(topic.as_str());
        table.remove(topic.as_str());
        drop(tombstones);
        let evicted = known.clear();
        sequence.topics -= 1;
        sequence.subtract(&evicted);
        let notified = self.announce(&mut sequence, known, &deletion.message);
        drop(sequence);
        notified.wake();
        Ok(deletion)
    }

    /// Up to `limit` topics whose names begin with `prefix`, in the order of their names (by
    /// bytes), from the first after `after` on: give it the last name of a page for the next one.
    #[must_use]
    pub fn topics(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<TopicInfo> {
        interleave::point();
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<Arc<Topic>> = names
            .range::<str, _>((start, Bound::Unbounded))
            .map(|ByName(topic)| Arc::clone(topic))
            .take_while(|topic| topic.name().starts_with(prefix))
            .take(limit)
            .collect();
        // Whoever creates a topic waits for this lock: it is not held while the page is made.
        drop(names);
        interleave::point();
        found.iter().filter_map(|topic| TopicInfo::of(topic)).collect()
    }

    /// Replaces the rules: topics created from now on follow the new ones, and those that exist
    /// are gone through in slices, so that publishing goes on meanwhile. When this returns, every
    /// topic follows the new rules; Cache-Control applies to what is published from then on.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.sequence().rules = Rules::new(self.epoch, rules);
        let mut slice = self.names_after(None);
        while let Some(last) = slice.last().cloned() {
            let mut evicted = Vec::new();
            let mut sequence = self.sequence();
            for topic in &slice {
                let terms = sequence.rules.terms(topic.name());
                let dropped = topic.set_terms(terms);
                sequence.subtract(&dropped);
                evicted.extend(dropped);
            }
            drop(sequence);
            slice = self.names_after(Some(last.name()));
        }
    }

    /// What the hub holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        interleave::point();
        let sequence = self.sequence();
        Counts {
            topics: sequence.topics,
            messages_kept: sequence.messages_kept,
            bytes_kept: sequence.bytes_kept,
            published_total: sequence.published,
        }
    }

    /// The number of the latest message or deletion; 0 before the first. Takes no lock.
    ///
    /// Everything up to it is in the table and the histories, and whatever is newer has yet to be
    /// told to the subscribers. (A newer message may be in the table a moment before.)
    #[must_use]
    pub fn seq(&self) -> u64 {
        interleave::point();
        self.seq.load(Ordering::Acquire)
    }

    /// The same, but of everything up to it the subscribers have been told, too. Takes the lock.
    #[must_use]
    pub fn notified_seq(&self) -> u64 {
        interleave::point();
        self.sequence().seq
    }

    /// Adds a subscriber, which is told of nothing yet. There is no way to take it back.
    pub fn add_subscriber(&self, subscriber: Arc<dyn Subscriber>) -> SubscriberId {
        self.sequence().subscribers.add(subscriber)
    }

    /// From now on a subscriber is told of the messages that `filter` wants: of every one with a
    /// number above the returned one, and of none up to it. `readers` is how many readers stand
    /// behind this filter: it is read when somebody publishes. To subscribe again replaces it.
    pub fn subscribe(&self, id: SubscriberId, filter: &Filter, readers: Arc<AtomicU32>) -> u64 {
        interleave::point();
        let mut sequence = self.sequence();
        sequence.subscribers.subscribe(id, filter, readers);
        sequence.seq
    }

    /// A subscriber is no longer told of what `filter` wants, unless another of its filters does.
    pub fn unsubscribe(&self, id: SubscriberId, filter: &Filter) {
        interleave::point();
        self.sequence().subscribers.unsubscribe(id, filter);
    }

    /// Puts a topic into the table and the index, and its tombstone away.
    fn create(&self, name: &str, terms: Arc<Terms>, value: &Arc<Message>) -> Arc<Topic> {
        let mut tombstones = self.tombstones_mut();
        let lost_seq = tombstones.remove(name, value.seq());
        let topic = Arc::new(Topic::new(name, terms, Arc::clone(value), lost_seq));
        self.table.pin().insert(ByName(Arc::clone(&topic)));
        self.names_mut().insert(ByName(Arc::clone(&topic)));
        topic
    }

    /// The last step in the sequencing point: the number is in use, and the subscribers are told.
    ///
    /// In this order: who reads the number and finds the message in history has not been told of
    /// a newer one before, so a reader that begins there loses none.
    fn announce(
        &self,
        sequence: &mut Sequence,
        topic: &Arc<Topic>,
        message: &Arc<Message>,
    ) -> Notified {
        interleave::inside();
        sequence.seq = message.seq();
        self.changes().push(sequence.seq, Arc::clone(topic));
        self.seq.store(sequence.seq, Ordering::Release);
        interleave::inside();
        sequence.subscribers.notify(topic, message)
    }

    /// The topics of the next slice, in the order of their names.
    fn names_after(&self, after: Option<&str>) -> Vec<Arc<Topic>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let rest = names.range::<str, _>((start, Bound::Unbounded));
        rest.take(RULES_SLICE_TOPICS).map(|ByName(topic)| Arc::clone(topic)).collect()
    }

    // A poisoned lock is taken as it is: nothing under these locks panics short of the allocator,
    // and a server that answers every publish with a panic from then on would help nobody.
    fn sequence(&self) -> MutexGuard<'_, Sequence> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names_mut(&self) -> RwLockWriteGuard<'_, BTreeSet<ByName>> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn tombstones_mut(&self) -> RwLockWriteGuard<'_, Tombstones> {
        self.tombstones.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sequence {
    fn add(&mut self, message: &Message) {
        self.published += 1;
        self.messages_kept += 1;
        self.bytes_kept += message.data().len();
    }

    fn subtract(&mut self, evicted: &Evicted) {
        self.messages_kept -= evicted.len();
        self.bytes_kept -= evicted.iter().map(|message| message.data().len()).sum::<usize>();
    }
}

/// What a hub refuses to exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Topics in the table.
    pub topics_max: usize,
    /// Data of one message, uncompressed.
    pub message_bytes_max: usize,
}

impl Default for Limits {
    /// Two million topics; messages of 1 MiB.
    fn default() -> Limits {
        Limits { topics_max: 2_000_000, message_bytes_max: 1 << 20 }
    }
}

/// What must hold of a topic's value for a change to take place: the value of a request's
/// `If-Match` or `If-None-Match` field (RFC 9110, 13.1). Judged inside the sequencing point, so no
/// other change comes between the judgement and the act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precondition<'a> {
    /// Nothing.
    None,
    /// The value is one of those named; with `*`, there is a value.
    IfMatch(&'a [u8]),
    /// The value is none of those named; with `*`, there is no value.
    IfNoneMatch(&'a [u8]),
}

impl Precondition<'_> {
    fn holds(self, value: Option<Id>) -> bool {
        let named = |tags: &[u8]| value.is_some_and(|id| tag_matches(tags, id.text().as_bytes()));
        match self {
            Precondition::None => true,
            Precondition::IfMatch(tags) => named(tags),
            Precondition::IfNoneMatch(tags) => !named(tags),
        }
    }
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
    /// How many readers wanted to be told, as counted by [`Hub::subscribe`]'s cells.
    pub readers: u64,
}

/// Why a publish was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// The data is larger than allowed.
    TooLarge {
        /// [`Limits::message_bytes_max`]
        max: usize,
    },
    /// There are as many topics as allowed, and this would be another.
    TooManyTopics {
        /// [`Limits::topics_max`]
        max: usize,
    },
    /// The precondition does not hold.
    PreconditionFailed,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::TooLarge { max } => write!(f, "The message is larger than {max} bytes."),
            PublishError::TooManyTopics { max } => {
                write!(f, "There are {max} topics already, which is as many as allowed.")
            }
            PublishError::PreconditionFailed => f.write_str(PRECONDITION_FAILED),
        }
    }
}

impl std::error::Error for PublishError {}

/// Why a deletion was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteError {
    /// There is no such topic.
    NotFound,
    /// The precondition does not hold.
    PreconditionFailed,
}

impl fmt::Display for DeleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeleteError::NotFound => "There is no such topic.",
            DeleteError::PreconditionFailed => PRECONDITION_FAILED,
        })
    }
}

impl std::error::Error for DeleteError {}

/// One topic as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// The id of its value.
    pub id: Id,
    /// The content type of its value.
    pub content_type: String,
    /// The length of its value's data.
    pub bytes: usize,
    /// Messages kept, the value included.
    pub history: usize,
    /// When its value was published, in unix seconds.
    pub published_at: u64,
}

impl TopicInfo {
    fn of(topic: &Topic) -> Option<TopicInfo> {
        let value = topic.value().load();
        let value = value.as_ref()?;
        Some(TopicInfo {
            name: topic.name().into(),
            id: value.id(),
            content_type: value.content_type().into(),
            bytes: value.data().len(),
            history: topic.history(),
            published_at: value.published_at(),
        })
    }
}

/// What a hub holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Topics that have a value.
    pub topics: usize,
    /// Messages in all histories, the values included.
    pub messages_kept: usize,
    /// Their data in bytes, uncompressed.
    pub bytes_kept: usize,
    /// Messages ever published. The latest SEQ is that and the deletions.
    pub published_total: u64,
}

/// How many look-ups of a request overlap.
const TOGETHER: usize = 16;

/// Deletions that are remembered: some 300 bytes each.
const TOMBSTONES_MAX: usize = 4_096;

/// Topics re-evaluated at one go when the rules change: some 100 microseconds under the lock.
const RULES_SLICE_TOPICS: usize = 1_000;

const PRECONDITION_FAILED: &str = "The topic's value is not as the condition demands.";

#[cfg(test)]
pub(crate) mod tests;
