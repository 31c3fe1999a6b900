//! The sequencing point: where entries are judged, numbered, applied and told of.
//!
//! What can be done before the lock (checking the name, measuring the data, unpacking) is done
//! before, and what has become superfluous is dropped after. An entry that is refused has changed
//! nothing.
//!
//! Whatever happens here follows from the hub as it is and from the entry, and from nothing else:
//! not from the clock, and not from how far a sweep has come. A topic is therefore held to the
//! rules in force before anything else is done to it, and a change of rules waits for the sweep of
//! the one before.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use stentor_wire::target::TopicName;

use super::{Hub, Sequence};
use crate::entry::{Applied, Entry, Op, Place, Precondition, Published, Refusal};
use crate::event::Event;
use crate::id::Id;
use crate::interleave;
use crate::lock::{lock, read};
use crate::message::{Draft, Message, PublishedAt};
use crate::rules::{Rule, Rules, Terms};
use crate::topic::{ByName, Evicted, Topic, stored_bytes_of};

impl Hub {
    /// Judges a change before it has its place in the order, and makes an entry of it. Nothing
    /// changes. `now_unix` is the time in seconds.
    ///
    /// # Errors
    ///
    /// If the change would be refused as things are now. This refusal takes place now; an entry
    /// that is admitted is judged again where it is applied.
    pub fn admit<'a>(
        &self,
        op: Op<'a>,
        when: Precondition,
        now_unix: u64,
    ) -> Result<Entry<'a>, Refusal> {
        interleave::point();
        match &op {
            Op::Put(topic, draft) => self.admit_put(topic, draft, &when)?,
            Op::Delete(topic) => judge_deletion(self.value_id(topic), &when)?,
            Op::Rules(_) => {}
        }
        Ok(Entry { op, when, unix_s: now_unix })
    }

    /// Applies an entry at its place in the order. When this returns, every later read on any
    /// thread sees the change or a newer one, and the subscribers have been told.
    ///
    /// # Errors
    ///
    /// If the entry is refused at this place. Then nothing has changed, and with [`Place::Next`] no
    /// number was used up. What [`Place::Was`] is never refused.
    pub fn apply(&self, entry: Entry<'_>, place: Place) -> Result<Applied, Refusal> {
        interleave::point();
        let Entry { op, when, unix_s } = entry;
        match op {
            Op::Put(topic, draft) => self.put(&topic, draft, &when, unix_s, place),
            Op::Delete(topic) => self.remove(&topic, &when, unix_s, place),
            Op::Rules(rules) => Ok(self.replace_rules(rules, place)),
        }
    }

    /// Publishes a message in the next place: admits and applies it.
    ///
    /// # Errors
    ///
    /// As [`Hub::admit`] and [`Hub::apply`].
    pub fn publish(
        &self,
        topic: TopicName<'_>,
        draft: Draft,
        when: Precondition,
        now_unix: u64,
    ) -> Result<Published, Refusal> {
        let entry = self.admit(Op::Put(topic, draft), when, now_unix)?;
        match self.apply(entry, Place::Next)? {
            Applied::Put(published) => Ok(published),
            _ => unreachable!("a message in the next place is published or refused"),
        }
    }

    /// Deletes a topic with its history, in the next place; its memory comes back. Returns the
    /// message that says so: a deletion takes a number as a message does, and readers are told of
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Hub::admit`] and [`Hub::apply`].
    pub fn delete(
        &self,
        topic: TopicName<'_>,
        when: Precondition,
        now_unix: u64,
    ) -> Result<Event, Refusal> {
        let entry = self.admit(Op::Delete(topic), when, now_unix)?;
        match self.apply(entry, Place::Next)? {
            Applied::Deleted(deletion, _) => Ok(deletion),
            _ => unreachable!("a topic is deleted in the next place, or that is refused"),
        }
    }

    /// Replaces the rules: topics created from now on follow the new ones, and those that exist
    /// are gone through in slices, so that publishing goes on meanwhile. When this returns, every
    /// topic follows the new rules; Cache-Control applies to what is published from then on.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.replace_rules(rules, Place::Next);
    }

    fn admit_put(
        &self,
        topic: &TopicName<'_>,
        draft: &Draft,
        when: &Precondition,
    ) -> Result<(), Refusal> {
        let max = self.limits.message_bytes_max;
        if draft.data().len() > max {
            return Err(Refusal::TooLarge { max });
        }
        if self.is_following() {
            // A publish whose place another process gives is judged here, and not at its place.
            self.judge_memory(topic, draft)?;
        }
        // Without a condition, and with room for one more, any value will do.
        if *when == Precondition::None && self.has_room() {
            return Ok(());
        }
        self.judge_put(self.value_id(topic), when)
    }

    fn judge_memory(&self, name: &TopicName<'_>, draft: &Draft) -> Result<(), Refusal> {
        let table = self.table.load();
        let table = table.pin();
        let sequence = self.sequence();
        let topic = table.get(name.as_str()).map(|ByName(topic)| &**topic);
        let value = topic.and_then(|topic| topic.value().load_full());
        let replaced = value.map_or(0, |value| value.stored_bytes());
        self.judge_growth(&sequence, name, topic, draft, replaced)
    }

    fn value_id(&self, topic: &TopicName<'_>) -> Option<Id> {
        self.with_value(topic, |value| value.map(|value| value.id()))
    }

    fn put(
        &self,
        name: &TopicName<'_>,
        draft: Draft,
        when: &Precondition,
        unix_s: u64,
        place: Place,
    ) -> Result<Applied, Refusal> {
        // Pinned before the lock and unpinned after it: unpinning may free what others retired.
        let table = self.table.load();
        let pinned = table.pin();
        let mut sequence = self.sequence();
        let Some(seq) = place.number(sequence.seq) else { return Ok(Applied::Known) };
        let known = pinned.get(name.as_str()).map(|ByName(topic)| topic);
        let before = known.and_then(|topic| topic.value().load_full());
        if let (Some(topic), Some(before)) = (known, &before)
            && before.seq() >= seq
        {
            // The topic is from a snapshot, and already as it was later.
            sequence.published += 1;
            self.tombstones_mut().remove(name, seq);
            self.advance(&mut sequence, topic, seq, false);
            return Ok(Applied::Known);
        }
        let value = before.as_ref().map(|before| before.id());
        let replaced_bytes = before.as_ref().map_or(0, |before| before.stored_bytes());
        match place {
            Place::Next => {
                self.judge_put(value, when)?;
                let topic = known.map(|topic| &**topic);
                self.judge_growth(&sequence, name, topic, &draft, replaced_bytes)?;
            }
            // Limits are a server's own, and those who apply the same entries judge alike.
            Place::At(_) if !when.holds(value) => return Err(Refusal::PreconditionFailed),
            Place::At(_) | Place::Was(_) => {}
        }

        let (terms, outdated) = sequence.terms_of(name, known);
        let at = match &before {
            Some(before) => Some(before.published_at()),
            // A client may have the value that was deleted, and ask by its date. A past entry has
            // the date that was decided then, by other tombstones.
            // mutation: deleted-date
            None if place.past().is_none() => read(&self.tombstones).deleted_at(name.as_str()),
            None => None,
        };
        let at = sequence.published_at(at, unix_s, place);
        let message = Arc::new(Message::new(draft, seq, terms, at));
        let stored = self.stored_of(&sequence);
        sequence.published += 1;
        sequence.add(message.data().len(), message.stored_bytes());
        let new;
        let (topic, (replaced, evicted)) = match known {
            Some(topic) => (topic, topic.replace(Arc::clone(&message))),
            None => {
                new = self.create(name, &message);
                (&new, (None, Evicted::new()))
            }
        };
        match &replaced {
            Some(_) => sequence.supersede(replaced_bytes),
            None => sequence.kept.values_stored += stored_bytes_of(name),
        }
        sequence.subtract(&evicted);
        let over_limit = self.enforce_limit(&mut sequence, topic, stored);
        let readers = self.announce(sequence, topic, &message);
        drop((outdated, before, over_limit));
        let (id, created) = (message.id(), known.is_none());
        Ok(Applied::Put(Published { id, created, message, replaced, readers }))
    }

    fn remove(
        &self,
        name: &TopicName<'_>,
        when: &Precondition,
        unix_s: u64,
        place: Place,
    ) -> Result<Applied, Refusal> {
        let table = self.table.load();
        let pinned = table.pin();
        let mut sequence = self.sequence();
        let Some(seq) = place.number(sequence.seq) else { return Ok(Applied::Known) };
        let known = pinned.get(name.as_str()).map(|ByName(topic)| topic);
        let value = known.and_then(|topic| topic.value().load_full());
        if place.past().is_none() {
            judge_deletion(value.as_ref().map(|value| value.id()), when)?;
        }
        // A topic from a snapshot may be gone already, or be the one that came back.
        let known = known.filter(|_| value.as_ref().is_some_and(|value| value.seq() < seq));
        let (terms, outdated) = sequence.terms_of(name, known);
        let topic = match known {
            Some(topic) => Arc::clone(topic),
            None => Arc::new(Topic::deleted(name, Arc::clone(&terms), seq)),
        };
        let before = value.as_ref().filter(|_| known.is_some());
        let at = sequence.published_at(before.map(|value| value.published_at()), unix_s, place);
        let last_seq = match place.past() {
            Some(past) => past.last_seq,
            None => value.as_ref().map_or(0, |value| value.seq()),
        };
        let message = Arc::new(Message::deletion(seq, terms, at, last_seq));
        let deletion = Event::new(Arc::clone(&topic), message);
        let mut tombstones = self.tombstones_mut();
        tombstones.insert(Arc::clone(&topic), deletion.clone());
        let mut evicted = Evicted::new();
        if known.is_some() {
            table.remove(name.as_str());
            sequence.subtract_topic(topic.sums());
            evicted = topic.clear();
        }
        drop(tombstones);
        let readers = self.announce(sequence, &topic, &deletion.message);
        drop((outdated, evicted));
        Ok(Applied::Deleted(deletion, readers))
    }

    pub(super) fn replace_rules(&self, rules: Vec<Rule>, place: Place) -> Applied {
        // Every topic goes through every change of rules: what is trimmed by one, and not by the
        // next, must be trimmed however slowly the sweep goes.
        let _sweep = lock(&self.sweep);
        let mut sequence = self.sequence();
        let Some(generation) = place.number(sequence.rules.generation()) else {
            return Applied::Known;
        };
        sequence.subscribers.rules_replaced(generation, &rules);
        self.rules_changes.fetch_add(1, Ordering::Release);
        sequence.rules = Rules::new(self.life(), generation, rules, &self.storage.cache);
        drop(sequence);
        interleave::point();
        self.for_each_slice(|slice| {
            let mut sequence = self.sequence();
            let outdated: Vec<_> =
                slice.iter().map(|topic| sequence.hold_to_rules(topic)).collect();
            drop(sequence);
            drop(outdated);
        });
        Applied::Rules(generation)
    }

    fn has_room(&self) -> bool {
        self.table.load().count() < self.limits.topics_max
    }

    /// Judges a message for a topic with this value.
    fn judge_put(&self, value: Option<Id>, when: &Precondition) -> Result<(), Refusal> {
        if !when.holds(value) {
            return Err(Refusal::PreconditionFailed);
        }
        if value.is_none() && !self.has_room() {
            return Err(Refusal::TooManyTopics { max: self.limits.topics_max });
        }
        Ok(())
    }

    /// Puts a topic into the table and the index, and its tombstone away.
    fn create(&self, name: &str, value: &Arc<Message>) -> Arc<Topic> {
        let mut tombstones = self.tombstones_mut();
        let lost_seq = tombstones.remove(name, value.seq());
        let topic = Arc::new(Topic::new(name, Arc::clone(value), lost_seq));
        self.table.load().insert(&topic);
        topic
    }

    /// The last step in the sequencing point: the number comes into use, and subscribers are told.
    /// They wake once the lock is free. Returns how many readers wanted the message.
    ///
    /// In this order: who reads the number and finds the message in history has not been told of
    /// a newer one before, so a reader that begins there loses none.
    fn announce(
        &self,
        mut sequence: MutexGuard<'_, Sequence>,
        topic: &Arc<Topic>,
        message: &Arc<Message>,
    ) -> u64 {
        interleave::inside();
        self.advance(&mut sequence, topic, message.seq(), message.is_deletion());
        interleave::inside();
        let notified = sequence.subscribers.notify(topic, message);
        drop(sequence);
        notified.wake();
        notified.readers
    }

    /// The number is in use.
    fn advance(&self, sequence: &mut Sequence, topic: &Arc<Topic>, seq: u64, is_deletion: bool) {
        sequence.seq = seq;
        let mut changes = self.changes();
        if is_deletion {
            changes.push_deletion(seq, topic, self.stored_bytes_max() / DELETED_PART);
        } else {
            changes.push(seq, topic);
        }
        drop(changes);
        self.seq.store(seq, Ordering::Release);
    }
}

/// Deleted topics that the latest changes name may take this part of the limit of stored memory,
/// beside it.
const DELETED_PART: usize = 32;

/// Judges the deletion of a topic with this value.
fn judge_deletion(value: Option<Id>, when: &Precondition) -> Result<(), Refusal> {
    if value.is_none() {
        return Err(Refusal::NotFound);
    }
    if !when.holds(value) {
        return Err(Refusal::PreconditionFailed);
    }
    Ok(())
}

impl Sequence {
    /// Holds a topic to the rules in force, if it is not yet. Returns its terms, and what is no
    /// longer kept.
    pub(super) fn hold_to_rules(&mut self, topic: &Topic) -> (Arc<Terms>, Evicted) {
        let terms = topic.terms();
        if terms.generation >= self.rules.generation() {
            return (terms, Evicted::new());
        }
        let terms = Arc::clone(self.rules.terms(topic.name()));
        let evicted = topic.set_terms(&terms);
        self.subtract(&evicted);
        (terms, evicted)
    }

    /// Returns the terms of a topic, and the messages that it no longer keeps. A topic in the table
    /// is held to the rules in force.
    fn terms_of(&mut self, name: &str, known: Option<&Arc<Topic>>) -> (Arc<Terms>, Evicted) {
        match known {
            Some(topic) => self.hold_to_rules(topic),
            None => (Arc::clone(self.rules.terms(name)), Evicted::new()),
        }
    }

    /// The time of a message as its readers see it, behind a value of the time `before`.
    fn published_at(&self, before: Option<u64>, unix_s: u64, place: Place) -> PublishedAt {
        let at = PublishedAt::after(before, unix_s);
        let shares_second = match place.past() {
            Some(past) => past.shares_second,
            None => at.shares_second || u64::from(at.unix_s) <= self.doubted_unix_s,
        };
        PublishedAt { shares_second, ..at }
    }
}
