//! The table of topics, the index of their names, and the sequencing point.
//!
//! Reading is lock-free: a look-up in a concurrent hash table (`hub/table.rs`), then a load of the
//! value cell.
//! Changes pass one lock, the sequencing point (`hub/order.rs`): it is the only place where a
//! number is taken, topics come and go, and history is trimmed.
//!
//! The names are also kept in order, for listing. That index is touched only when a topic is
//! created, deleted or listed. Locks are always taken in this order: sweep, sequence, tombstones,
//! names, a topic's, changes.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

use crate::entry::Place;
use crate::event::Event;
use crate::filter::Filter;
use crate::id::{Epoch, Id, Life};
use crate::interleave;
use crate::lock::{lock, read, write};
use crate::message::Message;
use crate::rendered::RenderCache;
use crate::rules::{Keep, Rule, Rules, Terms};
use crate::subscribers::{Subscriber, SubscriberId, Subscribers};
use crate::tombstones::{Tombstones, Unstored};
use crate::topic::{ByName, Sums, Topic};
use arc_swap::ArcSwap;

mod changes;
#[cfg(any(test, debug_assertions, feature = "check"))]
mod check;
mod following;
mod missed;
mod order;
pub(crate) mod snapshot;
mod storage;
mod table;

use changes::Changes;
pub use following::{Adopted, NotAdopted};
pub use missed::{Page, Share};
use storage::Storage;
pub use storage::{Shortage, Stored};
use table::{TopicTable, names_from};

/// All topics of a server.
pub struct Hub {
    /// Those of the sequence, the one that is now last: see `hub/following.rs`.
    lives: ArcSwap<Vec<Life>>,
    /// The order is made elsewhere.
    follows: AtomicBool,
    limits: Limits,
    storage: Storage,
    table: ArcSwap<TopicTable>,
    /// Locked while a topic comes or goes: whoever holds it sees the table, the names and the
    /// tombstones agree.
    tombstones: RwLock<Tombstones>,
    changes: Mutex<Changes>,
    /// Numbers that were given to messages which are no more, in their order.
    rolled_back: ArcSwap<Vec<RangeInclusive<u64>>>,
    /// Up to this number dates of values say nothing: see [`Hub::doubt_dates`].
    doubted_seq: AtomicU64,
    /// [`Sequence::seq`], for those who do not wait for the lock.
    seq: AtomicU64,
    sequence: Mutex<Sequence>,
    /// Counts changes of the rules, for those who do not wait for the lock.
    rules_changes: AtomicU64,
    /// Held while the topics are held to other rules.
    sweep: Mutex<()>,
}

/// What the sequencing point guards.
struct Sequence {
    /// The number of the latest message or deletion; that of SEQ 0 before the first.
    seq: u64,
    /// Messages ever published.
    published: u64,
    /// What is published in a second up to this one shares it, perhaps, with what is no more.
    doubted_unix_s: u64,
    rules: Rules,
    subscribers: Subscribers,
    kept: Sums,
    /// How often everything was replaced at one go.
    adopted: u64,
}

impl Hub {
    /// A hub without topics. The first of `rules` that matches a topic holds for it;
    /// [`Rule::default`] does if none matches.
    #[must_use]
    pub fn new(epoch: Epoch, rules: Vec<Rule>, limits: Limits) -> Hub {
        Hub::of_life(Life { epoch, base: 0 }, rules, limits)
    }

    /// The same, of a life whose numbers begin elsewhere.
    #[must_use]
    pub fn of_life(life: Life, rules: Vec<Rule>, limits: Limits) -> Hub {
        let cache = RenderCache::default();
        cache.set_max(limits.stored_bytes_max / storage::FORMS_PART);
        Hub::caching(life, rules, limits, cache)
    }

    /// The same, with this cache of rendered messages.
    fn caching(life: Life, rules: Vec<Rule>, limits: Limits, cache: RenderCache) -> Hub {
        Hub {
            lives: ArcSwap::from_pointee(vec![life]),
            follows: AtomicBool::new(false),
            limits,
            storage: Storage::new(limits.stored_bytes_max, cache.clone()),
            table: ArcSwap::default(),
            tombstones: RwLock::new(Tombstones::new(TOMBSTONES_MAX)),
            changes: Mutex::new(Changes::after(life.base)),
            rolled_back: ArcSwap::default(),
            doubted_seq: AtomicU64::new(0),
            seq: AtomicU64::new(life.base),
            sequence: Mutex::new(Sequence {
                seq: life.base,
                published: 0,
                doubted_unix_s: 0,
                rules: Rules::new(life, 0, rules, &cache),
                subscribers: Subscribers::default(),
                kept: Sums::default(),
                adopted: 0,
            }),
            rules_changes: AtomicU64::new(0),
            sweep: Mutex::default(),
        }
    }

    /// Goes by these rules from now on, in a hub that was made again. They take the place of those
    /// it goes by, if they are others, or if topics follow those of the generation `upto`, which
    /// came later.
    pub fn continue_by(&self, rules: &[Rule], upto_generation: u64) {
        let sequence = self.sequence();
        let (all, generation) = (sequence.rules.all(), sequence.rules.generation());
        let are_same = all.len() == rules.len() + 1
            && all.iter().zip(rules).all(|(own, rule)| own.rule == *rule);
        drop(sequence);
        if !are_same || generation < upto_generation {
            let next = generation.max(upto_generation) + 1;
            self.replace_rules(rules.to_vec(), Place::At(next));
        }
    }

    /// Forgets the topics of which nothing is stored, by the rules in force, in a hub that is made
    /// again: what it has of them is older than what readers saw. Up to the number `seq` all of
    /// theirs is lost, and readers whose cursor is older are told so.
    pub fn forget_unstored(&self, seq: u64) {
        let mut sequence = self.sequence();
        let is_stored = |terms: &Terms| terms.keep() != Keep::None;
        if sequence.rules.all().iter().all(|terms| is_stored(terms)) {
            return;
        }
        sequence.seq = sequence.seq.max(seq);
        let table = self.table.load();
        let mut unstored = table.all();
        unstored.retain(|topic| !is_stored(&sequence.hold_to_rules(topic).0));
        let mut tombstones = self.tombstones_mut();
        let of_rule = |terms: &Arc<Terms>| (terms.rule.pattern.clone(), is_stored(terms));
        let rules = sequence.rules.all().iter().map(of_rule).collect();
        tombstones.forget(Unstored { upto: sequence.seq, rules });
        for topic in unstored {
            table.remove(topic.name());
            sequence.subtract_topic(topic.sums());
            drop(topic.clear());
        }
        *self.changes() = Changes::after(sequence.seq);
        self.seq.store(sequence.seq, Ordering::Release);
    }

    /// The rules in force, the one for all other topics left out, and their generation. Takes the
    /// lock.
    #[must_use]
    pub fn rules(&self) -> (u64, Vec<Rule>) {
        let sequence = self.sequence();
        let rules = sequence.rules.all().split_last().map_or(&[][..], |(_, rules)| rules);
        (sequence.rules.generation(), rules.iter().map(|terms| terms.rule.clone()).collect())
    }

    /// How often the rules have changed. Whoever reads a value after this has the number of the
    /// rules that the value came with, or of later ones.
    #[must_use]
    pub fn rules_changes(&self) -> u64 {
        self.rules_changes.load(Ordering::Acquire)
    }

    /// What the rule of a topic says of storing it. Takes the lock.
    #[must_use]
    pub fn keep(&self, topic: &str) -> Keep {
        self.sequence().rules.terms(topic).keep()
    }

    /// Goes on after the number `seq`, in a life of the sequence that began in another process:
    /// the next message or deletion has the number behind it. What had the numbers of `rolled_back`
    /// is no more, though readers may have seen it: see [`Hub::doubt_dates`].
    pub fn continue_after(&self, seq: u64, rolled_back: Vec<RangeInclusive<u64>>) {
        // mutation: doubted-dates
        self.doubt_dates(rolled_back.last().map_or(0, |range| *range.end()), 0);
        let mut sequence = self.sequence();
        self.rolled_back.store(Arc::new(rolled_back));
        if sequence.seq == 0 {
            *self.changes() = Changes::after(seq);
        }
        sequence.seq = sequence.seq.max(seq);
        self.seq.store(sequence.seq, Ordering::Release);
    }

    /// SEQs that were given to something that is no more, in their order: see
    /// [`Hub::was_rolled_back`].
    #[must_use]
    pub fn rolled_back(&self) -> Vec<RangeInclusive<u64>> {
        let ranges = self.rolled_back.load();
        let seq = |number: &u64| self.id(*number).seq;
        ranges.iter().map(|range| seq(range.start())..=seq(range.end())).collect()
    }

    /// Whether this number was given to something that was taken back before anybody had promised
    /// that it would be kept: a reader whose cursor it is has seen what is no more.
    #[must_use]
    pub fn was_rolled_back(&self, seq: u64) -> bool {
        let ranges = self.rolled_back.load();
        let next = ranges.partition_point(|range| *range.end() < seq);
        ranges.get(next).is_some_and(|range| range.contains(&seq))
    }

    /// Until the second `upto_unix_s`, topics may have had other values than those that are here
    /// under numbers up to `upto_seq`, and clients have them with their dates. So no date says that
    /// a client has one of these, or one that is published until that second is over.
    pub fn doubt_dates(&self, upto_seq: u64, upto_unix_s: u64) {
        self.doubted_seq.fetch_max(upto_seq, Ordering::Relaxed);
        let mut sequence = self.sequence();
        sequence.doubted_unix_s = sequence.doubted_unix_s.max(upto_unix_s);
    }

    /// Whether a client that has what was there at the date of this value, or later, has this
    /// value.
    #[must_use]
    pub fn dates_tell(&self, value: &Message) -> bool {
        // 0 is the number of what was never published.
        let doubted = 1..=self.doubted_seq.load(Ordering::Relaxed);
        !value.shares_second() && !doubted.contains(&value.seq())
    }

    /// The EPOCH of the life of this hub's sequence: see [`Hub::life`].
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.life().epoch
    }

    /// Shows `f` the value of a topic; `None` if it was never published or was deleted.
    ///
    /// The hot path of every read: no lock, no allocation, no count that other threads touch.
    /// After a publish has returned, every thread sees its message here or a later one. `f` should
    /// be short, since the memory of topics deleted meanwhile is given back only after it.
    pub fn with_value<R>(&self, topic: &str, f: impl FnOnce(Option<&Arc<Message>>) -> R) -> R {
        interleave::point();
        let table = self.table.load();
        match table.pin().get(topic) {
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
        let table = self.table.load();
        let table = table.pin();
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

    fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.table.load().pin().get(name).map(|ByName(topic)| Arc::clone(topic))
    }

    /// The value of a topic; `None` if it was never published or was deleted.
    #[must_use]
    pub fn value(&self, topic: &str) -> Option<Arc<Message>> {
        self.with_value(topic, |value| value.cloned())
    }

    /// Whether an event that was found before is its topic's value. A snapshot that was installed
    /// meanwhile has another copy of the message.
    #[must_use]
    pub fn is_value(&self, event: &Event) -> bool {
        let has_value =
            || self.value(event.topic()).is_some_and(|value| value.seq() == event.seq());
        event.message.is_value() || event.message.is_dropped() && has_value()
    }

    /// Up to `limit` topics whose names begin with `prefix`, in the order of their names (by
    /// bytes), from the first after `after` on: give it the last name of a page for the next one.
    #[must_use]
    pub fn topics(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<TopicInfo> {
        interleave::point();
        // A publish that creates a topic waits for the lock, so the page is made without it.
        let found = self.names_after(prefix, after, limit);
        interleave::point();
        found.iter().filter_map(|topic| TopicInfo::of(topic)).collect()
    }

    /// All messages that are kept and all deletions that are remembered, in their order.
    #[must_use]
    pub fn kept(&self) -> Vec<Event> {
        let tombstones = read(&self.tombstones);
        let mut kept: Vec<Event> = tombstones.deletions().cloned().collect();
        drop(tombstones);
        for topic in self.table.load().all() {
            let (_, _, messages) = topic.export();
            let events = messages.into_iter();
            kept.extend(events.map(|message| Event::new(Arc::clone(&topic), message)));
        }
        kept.sort_unstable_by_key(Event::seq);
        kept
    }

    /// What the hub holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        interleave::point();
        let sequence = self.sequence();
        Counts {
            topics: self.table.load().count(),
            messages_kept: sequence.kept.messages,
            bytes_kept: sequence.kept.bytes,
            published_total: sequence.published,
        }
    }

    /// The number of the latest message or deletion; that of SEQ 0 before the first. Takes no lock.
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

    /// Calls `f` with all topics, a slice at a time, in the order of their names.
    fn for_each_slice(&self, mut f: impl FnMut(&[Arc<Topic>])) {
        let mut slice = self.names_after("", None, SWEEP_TOPICS);
        while let Some(last) = slice.last() {
            f(&slice);
            slice = self.names_after("", Some(last.name()), SWEEP_TOPICS);
        }
    }

    /// The topics of the next slice whose names begin with `prefix`, in the order of their names.
    fn names_after(&self, prefix: &str, after: Option<&str>, count: usize) -> Vec<Arc<Topic>> {
        names_from(&self.table.load().names(), prefix, after).take(count).cloned().collect()
    }

    fn sequence(&self) -> MutexGuard<'_, Sequence> {
        lock(&self.sequence)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        lock(&self.changes)
    }

    fn tombstones_mut(&self) -> RwLockWriteGuard<'_, Tombstones> {
        write(&self.tombstones)
    }
}

/// What a hub refuses to exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Topics in the table.
    pub topics_max: usize,
    /// Data of one message, uncompressed.
    pub message_bytes_max: usize,
    /// Memory of topics and messages: see [`Stored`]. [`Hub::set_stored_bytes_max`] changes it.
    pub stored_bytes_max: usize,
}

impl Default for Limits {
    /// Two million topics; messages of 1 MiB; any sum.
    fn default() -> Limits {
        Limits { topics_max: 2_000_000, message_bytes_max: 1 << 20, stored_bytes_max: usize::MAX }
    }
}

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
    /// Messages ever published.
    pub published_total: u64,
}

/// How many look-ups of a request overlap.
const TOGETHER: usize = 16;

/// Deletions that are remembered: some 300 bytes each.
const TOMBSTONES_MAX: usize = if cfg!(test) { 5 } else { 4_096 };

/// Topics gone through at one go when the rules change, some 100 microseconds under the lock.
const SWEEP_TOPICS: usize = 1_000;

#[cfg(test)]
pub(crate) mod tests;
