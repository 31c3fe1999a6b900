//! The tombstones: deletions remembered, so that who was away hears of them.
//!
//! A deleted topic leaves the table, and its memory comes back. But a reader that returns with a
//! cursor from before must learn that the topic is gone. The latest deletions are therefore kept
//! under the topics' names; of those forgotten, the newest number is, and a cursor older than that
//! is answered with a gap where nothing better is known: sometimes needless, never silent.
//!
//! A hub that is made again has forgotten all of the topics whose rule said that nothing of them is
//! stored. Which rules those were is remembered as well, so that only their readers hear of it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::event::{Event, Span};
use crate::pattern::Pattern;
use crate::topic::{ByName, Topic};

pub(crate) struct Tombstones {
    /// How many are remembered.
    max: usize,
    /// The deletions.
    by_name: BTreeMap<ByName, Event>,
    /// The same topics by the number of their deletion.
    by_seq: BTreeMap<u64, ByName>,
    /// The number of the newest deletion that was forgotten; 0 if none was.
    floor: u64,
    /// The number of the newest message that brought a topic back whose tombstone was here.
    undone: u64,
    /// The oldest first.
    unstored: VecDeque<Unstored>,
}

/// Topics of which nothing up to a number is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unstored {
    pub(crate) upto: u64,
    /// The patterns of rules in their order, and whether their topics were stored. The first that
    /// matches a topic speaks of it.
    pub(crate) rules: Box<[(Pattern, bool)]>,
}

impl Unstored {
    fn means(&self, topic: &str) -> bool {
        let rule = self.rules.iter().find(|(pattern, _)| pattern.matches(topic));
        rule.is_some_and(|(_, is_stored)| !is_stored)
    }

    /// Whether it may mean one of the pattern's topics.
    fn meets(&self, pattern: &Pattern) -> bool {
        let mut met = self.rules.iter().filter(|(of_rule, _)| of_rule.meets(pattern));
        let deciding = met.find(|(of_rule, is_stored)| !is_stored || of_rule.covers(pattern));
        deciding.is_some_and(|(_, is_stored)| !is_stored)
    }
}

impl Tombstones {
    pub(crate) fn new(max: usize) -> Tombstones {
        Tombstones {
            max,
            by_name: BTreeMap::new(),
            by_seq: BTreeMap::new(),
            floor: 0,
            undone: 0,
            unstored: VecDeque::new(),
        }
    }

    /// Remembers the deletion of a topic.
    pub(crate) fn insert(&mut self, topic: Arc<Topic>, deletion: Event) {
        // Redo may delete a topic twice in a row; the tombstone then keeps the newer deletion.
        if let Some(known) = self.by_name.remove(topic.name()) {
            // mutation: second-deletion
            self.by_seq.remove(&known.seq());
        }
        let named = ByName(topic);
        self.by_seq.insert(deletion.seq(), named.clone());
        self.by_name.insert(named, deletion);
        if self.by_seq.len() > self.max
            && let Some((seq, oldest)) = self.by_seq.pop_first()
        {
            // mutation: lower-floor
            self.floor = self.floor.max(seq);
            self.by_name.remove(&oldest);
        }
    }

    /// Takes the tombstone of a topic away that message `seq` brings back. Returns what becomes the
    /// topic's `lost_seq`: the number of its deletion, or of any that may have been forgotten.
    pub(crate) fn remove(&mut self, topic: &str, seq: u64) -> u64 {
        let Some(tombstone) = self.by_name.remove(topic) else { return self.forgotten_seq(topic) };
        let lost_seq = tombstone.seq();
        self.by_seq.remove(&lost_seq);
        self.undone = seq;
        lost_seq
    }

    /// Panics if the two indices disagree.
    #[cfg(any(test, debug_assertions, feature = "check"))]
    pub(crate) fn check(&self) {
        assert_eq!(self.by_name.len(), self.by_seq.len());
        for (seq, named) in &self.by_seq {
            let deletion_seq = self.by_name.get(named).map(Event::seq);
            assert_eq!(deletion_seq, Some(*seq), "the tombstone of {}", named.0.name());
        }
    }

    /// The number of a topic's deletion, if that is remembered.
    pub(crate) fn deletion_seq(&self, topic: &str) -> Option<u64> {
        self.by_name.get(topic).map(Event::seq)
    }

    /// The date of a topic's deletion, if that is remembered. It may be ahead of the clock.
    pub(crate) fn deleted_at(&self, topic: &str) -> Option<u64> {
        self.by_name.get(topic).map(|deletion| deletion.message.published_at())
    }

    /// Sets what [`Tombstones::marks`] returned.
    pub(crate) fn set_marks(&mut self, floor: u64, undone: u64) {
        (self.floor, self.undone) = (floor, undone);
    }

    /// Everything was replaced at one go, up to this number: topics came back and went by it.
    pub(crate) fn set_undone(&mut self, seq: u64) {
        self.undone = self.undone.max(seq);
    }

    /// Whether the next deletion has another one forgotten.
    pub(crate) fn is_full(&self) -> bool {
        self.by_seq.len() >= self.max
    }

    /// The number of the newest deletion forgotten, and of the newest message that undid one.
    pub(crate) fn marks(&self) -> (u64, u64) {
        (self.floor, self.undone)
    }

    /// Forgets the deletions of topics that were not stored, and takes note that up to this number
    /// nothing is known of these.
    pub(crate) fn forget(&mut self, unstored: Unstored) {
        let Tombstones { by_name, by_seq, .. } = self;
        by_seq.retain(|_, ByName(topic)| !unstored.means(topic.name()));
        by_name.retain(|ByName(topic), _| !unstored.means(topic.name()));
        match self.unstored.back_mut() {
            Some(last) if last.rules == unstored.rules => last.upto = unstored.upto,
            _ => self.unstored.push_back(unstored),
        }
        if self.unstored.len() > UNSTORED_MAX
            && let Some(oldest) = self.unstored.pop_front()
        {
            self.floor = self.floor.max(oldest.upto);
        }
    }

    /// What [`Tombstones::forget`] was told.
    pub(crate) fn unstored(&self) -> impl Iterator<Item = &Unstored> {
        self.unstored.iter()
    }

    /// All deletions that are remembered, in their order.
    pub(crate) fn deletions(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.by_seq.values().filter_map(|named| self.by_name.get(named))
    }

    pub(crate) fn tombstone(&self, topic: &str) -> Option<&Event> {
        self.by_name.get(topic)
    }

    /// The greatest number up to which something of a topic without a tombstone may have been
    /// forgotten; 0 if nothing was.
    pub(crate) fn forgotten_seq(&self, topic: &str) -> u64 {
        let unstored = self.unstored.iter().rev().find(|unstored| unstored.means(topic));
        self.floor.max(unstored.map_or(0, |unstored| unstored.upto))
    }

    /// The same as [`Event::deletion_missed`] for all tombstones of a pattern. Reports a loss also
    /// if a topic came back after the span: a scan of the names and then of the tombstones may have
    /// missed it in both places.
    pub(crate) fn missed(&self, pattern: &Pattern, span: Span, out: &mut Vec<Event>) -> u64 {
        let prefix = pattern.prefix();
        let from = self.by_name.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let mut lost_seq = 0;
        if !span.is_from_nothing() {
            let unstored = self.unstored.iter().rev().find(|unstored| unstored.meets(pattern));
            lost_seq = self.floor.max(unstored.map_or(0, |unstored| unstored.upto));
        }
        if self.undone > span.upto {
            lost_seq = self.undone;
        }
        for (ByName(topic), tombstone) in from {
            if !topic.name().starts_with(prefix) {
                break;
            }
            if pattern.matches(topic.name()) {
                lost_seq = lost_seq.max(tombstone.deletion_missed(span, out));
            }
        }
        lost_seq
    }
}

impl Event {
    /// Appends this deletion if it is in the span. Returns the number of the last message before it
    /// that is lost; 0 if none is.
    pub(crate) fn deletion_missed(&self, span: Span, out: &mut Vec<Event>) -> u64 {
        if span.is_from_nothing() {
            return 0;
        }
        if span.contains(&self.message) {
            out.push(self.clone());
        }
        if span.mode.conflates(self.message.terms()) { 0 } else { self.message.last_seq() }
    }
}

/// Of so many sets of rules it is remembered which topics were not stored.
pub(crate) const UNSTORED_MAX: usize = if cfg!(test) { 2 } else { 16 };
