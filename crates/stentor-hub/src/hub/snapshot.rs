//! A hub as bytes, written while it is published to, and an empty hub filled with them.
//!
//! A snapshot is written in slices, in the order of names, and nobody waits meanwhile. So it is of
//! no one moment: its beginning (the numbers, the rules, the deletions that are remembered) is of
//! the moment when it began, and each topic of the one when its slice was written. What was ordered
//! since the beginning, applied as [`Place::Was`](crate::Place::Was), makes it whole: an entry that
//! a topic already has, or is older than, changes nothing but what concerns all topics. Once
//! everything up to [`Restored::upto_seq`] was applied, the hub is as it was then.
//!
//! Behind the magic bytes come sections, each with its length (four bytes, little-endian) and a
//! byte that says what it is: `B` the beginning, `R` terms, `U` topics that were not stored, `D` a
//! deletion, `T` a topic, `E` the end. Terms are written with an index when something first refers
//! to them by it. The first are the rules that were in force. Numbers and texts are as in
//! `codec.rs`, which also says why no library for codecs writes them.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stentor_wire::target::TopicName;

use super::Hub;
use super::changes::Changes;
use crate::codec::{MALFORMED, Reader, TRUNCATED, put_bytes, put_parts, put_rule, put_varint};
use crate::event::Event;
use crate::filter::Filter;
use crate::id::{Epoch, Life};
use crate::lock::read;
use crate::message::{Message, PublishedAt};
use crate::pattern::Pattern;
use crate::rules::{Keep, Rules, Terms};
use crate::tombstones::{UNSTORED_MAX, Unstored};
use crate::topic::Topic;
use stentor_wire::error::Rejection;

/// A snapshot that is being written.
pub struct Snapshot {
    /// What is written are the SEQs of this life.
    life: Life,
    /// How often the hub was replaced when it began.
    adopted: u64,
    /// The last topic that was written.
    after: Option<Arc<Topic>>,
    topics: u64,
    /// Terms that were written, with their places. A follower may have the same ones twice, from a
    /// snapshot and from the change of rules behind it.
    places: HashMap<Arc<Terms>, u64>,
    /// The terms that were looked up last: most messages have those of the message before.
    latest: Option<(Arc<Terms>, u64)>,
    /// How many terms were written.
    written: u64,
    /// A section under construction.
    section: Vec<u8>,
    /// Topics that are not stored are left out, by rules of this generation, which were in force
    /// when it began, or later ones.
    stored_by: Option<u64>,
    /// Topics that none of these matches are left out; with none there is no such topic.
    filters: Box<[Filter]>,
    seq: u64,
}

impl Snapshot {
    /// Begins a snapshot: writes what is of this moment. Entries with greater numbers belong
    /// behind it.
    #[must_use]
    pub fn begin(hub: &Hub, out: &mut Vec<u8>) -> Snapshot {
        Snapshot::begin_of(hub, Box::default(), out)
    }

    /// The same of the topics that one of `filters` matches; without any, of all.
    #[must_use]
    pub fn begin_of(hub: &Hub, filters: Box<[Filter]>, out: &mut Vec<u8>) -> Snapshot {
        let sequence = hub.sequence();
        let life = hub.life();
        let mut snapshot = Snapshot {
            life,
            adopted: sequence.adopted,
            after: None,
            topics: 0,
            places: HashMap::new(),
            latest: None,
            written: 0,
            section: Vec::new(),
            stored_by: None,
            filters,
            seq: 0,
        };
        let (seq, published) = (sequence.seq, sequence.published);
        let rules = sequence.rules.all().to_vec();
        let tombstones = read(&hub.tombstones);
        let deletions: Vec<Event> = tombstones.deletions().cloned().collect();
        let (floor, undone) = tombstones.marks();
        let unstored: Vec<Unstored> = tombstones.unstored().cloned().collect();
        drop(tombstones);
        drop(sequence);
        snapshot.seq = life.id(seq).seq;

        out.extend_from_slice(MAGIC);
        put_bytes(&mut snapshot.section, life.epoch.to_string().as_bytes());
        let [seq, floor, undone] = [seq, floor, undone].map(|number| life.id(number).seq);
        for number in [seq, published, floor, undone, rules.len() as u64] {
            put_varint(&mut snapshot.section, number);
        }
        snapshot.put_section(BEGIN, out);
        for terms in rules {
            snapshot.put_terms(&terms, out);
        }
        for Unstored { upto, rules } in unstored {
            put_varint(&mut snapshot.section, life.id(upto).seq);
            put_varint(&mut snapshot.section, rules.len() as u64);
            for (pattern, is_stored) in rules {
                put_bytes(&mut snapshot.section, pattern.as_str().as_bytes());
                snapshot.section.push(u8::from(is_stored));
            }
            snapshot.put_section(UNSTORED, out);
        }
        for deletion in &deletions {
            if !snapshot.is_meant(deletion.topic()) {
                continue;
            }
            let terms = snapshot.index_of(deletion.message.terms(), out);
            put_bytes(&mut snapshot.section, deletion.topic().as_bytes());
            snapshot.put_message(hub, terms, &deletion.message);
            put_varint(&mut snapshot.section, life.id(deletion.message.last_seq()).seq);
            snapshot.put_section(DELETION, out);
        }
        snapshot
    }

    /// Leaves out the topics whose rule says that they are not stored.
    #[must_use]
    pub fn of_what_is_stored(mut self, hub: &Hub) -> Snapshot {
        self.stored_by = Some(hub.sequence().rules.generation());
        self
    }

    /// The number at which it began.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    fn is_meant(&self, topic: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.matches(topic))
    }

    /// Writes the next slice: whole sections, some 16 KiB unless one topic has more. False
    /// once the end was written.
    ///
    /// # Errors
    ///
    /// There is no snapshot of this hub, or not this one.
    pub fn write_slice(&mut self, hub: &Hub, out: &mut Vec<u8>) -> Result<bool, Unwritable> {
        let begin = out.len();
        let slice = hub.names_after("", self.after.as_deref().map(Topic::name), SLICE_TOPICS);
        let is_last = slice.is_empty();
        for topic in slice {
            if self.is_meant(topic.name()) {
                self.put_topic(hub, &topic, out)?;
            }
            self.after = Some(topic);
            if out.len() - begin >= SLICE_BYTES {
                break;
            }
        }
        if is_last {
            // Behind the lock: whatever was found in a topic has its number by now.
            let sequence = hub.sequence();
            let (seq, generation) = (sequence.seq, sequence.rules.generation());
            if sequence.adopted != self.adopted {
                return Err(Unwritable::Replaced);
            }
            drop(sequence);
            for number in [self.life.id(seq).seq, generation, self.topics] {
                put_varint(&mut self.section, number);
            }
            self.put_section(END, out);
        }
        Ok(!is_last)
    }

    fn put_topic(&mut self, hub: &Hub, topic: &Topic, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        let (terms, lost_seq, messages) = topic.export();
        // A topic to which the sweep has not come may be stored by now.
        let is_unstored = self
            .stored_by
            .is_some_and(|generation| terms.generation >= generation && terms.keep() == Keep::None);
        if messages.is_empty() || is_unstored {
            return Ok(());
        }
        let terms = self.index_of(&terms, out);
        let of_messages: Vec<u64> =
            messages.iter().map(|message| self.index_of(message.terms(), out)).collect();
        put_bytes(&mut self.section, topic.name().as_bytes());
        for number in [terms, self.life.id(lost_seq).seq, messages.len() as u64] {
            put_varint(&mut self.section, number);
        }
        for (terms, message) in of_messages.into_iter().zip(&messages) {
            self.put_message(hub, terms, message);
            put_parts(&mut self.section, &message.parts());
            if self.section.len() > SECTION_BYTES_MAX {
                return Err(Unwritable::TooLong(topic.name().to_owned()));
            }
        }
        self.put_section(TOPIC, out);
        self.topics += 1;
        Ok(())
    }

    /// What messages and deletions have in common.
    fn put_message(&mut self, hub: &Hub, terms: u64, message: &Message) {
        for number in [terms, self.life.id(message.seq()).seq, message.published_at()] {
            put_varint(&mut self.section, number);
        }
        // What the doubt came from may not be in the files behind this snapshot.
        // mutation: date-after-rollback
        self.section.push(u8::from(!hub.dates_tell(message)));
    }

    /// The index of terms, which are written if they were not yet.
    fn index_of(&mut self, terms: &Arc<Terms>, out: &mut Vec<u8>) -> u64 {
        if let Some((latest, index)) = &self.latest
            && Arc::ptr_eq(latest, terms)
        {
            return *index;
        }
        let known = self.places.get(terms).copied();
        let index = known.unwrap_or_else(|| self.put_terms(terms, out));
        self.latest = Some((Arc::clone(terms), index));
        index
    }

    fn put_terms(&mut self, terms: &Arc<Terms>, out: &mut Vec<u8>) -> u64 {
        let index = self.written;
        self.written += 1;
        // mutation: rules-twice
        self.places.insert(Arc::clone(terms), index);
        put_varint(&mut self.section, index);
        put_varint(&mut self.section, terms.generation);
        put_rule(&mut self.section, &terms.rule);
        self.put_section(TERMS, out);
        index
    }

    fn put_section(&mut self, kind: u8, out: &mut Vec<u8>) {
        // Nothing but a topic's history is long, and that was looked at.
        let len = u32::try_from(self.section.len()).expect("a section has less than 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
        out.push(kind);
        out.append(&mut self.section);
    }
}

/// Why a snapshot cannot be written to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unwritable {
    /// This topic keeps more than a snapshot can say of it. No server's rules allow as much.
    TooLong(String),
    /// The hub has adopted another one meanwhile: see [`Hub::adopt`]. Another snapshot can be.
    Replaced,
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unwritable::TooLong(topic) => {
                write!(f, "what the topic '{topic}' keeps takes more than 4 GiB")
            }
            Unwritable::Replaced => f.write_str("all topics were replaced meanwhile"),
        }
    }
}

impl std::error::Error for Unwritable {}

/// A snapshot that is being read into a hub.
pub struct Restore<H> {
    hub: H,
    input: SnapshotInput,
    begin: Option<SnapshotBegin>,
    terms: HashMap<u64, Arc<Terms>>,
    /// The rules in force are known, and the hub goes by them.
    has_rules: bool,
    /// In the order of their names.
    topics: Vec<Arc<Topic>>,
    /// The snapshot exceeds the limit, so its history is left out.
    has_values_alone: bool,
    end: Option<(u64, u64)>,
    /// The greatest number of a message or deletion so far.
    greatest_seq: u64,
}

/// How much of a snapshot was read so far.
#[derive(PartialEq)]
enum SnapshotInput {
    Nothing,
    /// All since the magic bytes.
    Whole,
    /// Pieces are missing.
    WithHoles,
}

/// What a snapshot begins with.
struct SnapshotBegin {
    seq: u64,
    published: u64,
    /// Those of the tombstones.
    floor: u64,
    undone: u64,
    /// How many of the terms are the rules in force.
    rules: u64,
}

/// What is missing of a hub that was filled from a snapshot. It is as it was when the snapshot
/// began, or later: entries with numbers above [`Hub::seq`] belong behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Nobody may read before the entries up to this number were applied,
    pub upto_seq: u64,
    /// and the changes of rules up to this generation.
    pub upto_generation: u64,
}

impl Hub {
    /// Begins to fill this hub, which has no topics and no readers, from a snapshot. Its epoch
    /// stays what it is: a history of which something was lost goes on under another one.
    #[must_use]
    pub fn restore(&self) -> Restore<&Hub> {
        Restore::into(self)
    }
}

impl<H: Deref<Target = Hub>> Restore<H> {
    /// The same as [`Hub::restore`], for who keeps the hub with it.
    #[must_use]
    pub fn into(hub: H) -> Restore<H> {
        Restore {
            hub,
            input: SnapshotInput::Nothing,
            begin: None,
            terms: HashMap::new(),
            has_rules: false,
            topics: Vec::new(),
            has_values_alone: false,
            end: None,
            greatest_seq: 0,
        }
    }

    /// Takes whole sections from the beginning of `bytes`, and returns how many bytes they have:
    /// the rest is to be given again, with more behind it.
    ///
    /// # Errors
    ///
    /// One sentence, if this is no snapshot.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut rest = bytes;
        if self.input == SnapshotInput::Nothing {
            let Some((magic, behind)) = rest.split_at_checked(MAGIC.len()) else { return Ok(0) };
            if magic != MAGIC {
                return Err("This is no snapshot, or one of a version that is not known.");
            }
            self.input = SnapshotInput::Whole;
            rest = behind;
        }
        while let Some((len, behind)) = rest.split_first_chunk() {
            let len = (u32::from_le_bytes(*len) as usize).saturating_add(1);
            let Some((section, behind)) = behind.split_at_checked(len) else { break };
            let mut reader = Reader(section);
            self.read_section(&mut reader)?;
            reader.end()?;
            rest = behind;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Ends it, once the snapshot was read to its end.
    ///
    /// # Errors
    ///
    /// If the end is missing. The hub is of no use then.
    pub fn finish(self) -> Result<Restored, &'static str> {
        let end = self.end.filter(|_| self.has_rules);
        let (upto_seq, upto_generation) = match end {
            Some(end) => end,
            None if self.has_holes() => (0, 0),
            None => return Err(TRUNCATED),
        };
        self.hub.table.load().set_names(self.topics);
        // With the end, the number that was in it may be missing.
        Ok(Restored { upto_seq: upto_seq.max(self.greatest_seq), upto_generation })
    }

    /// A piece of the snapshot is missing here; what comes next begins with a section. What was in
    /// it is left out, so the hub must be of another epoch: cursors of before would know no gap.
    pub fn skip(&mut self) {
        self.input = SnapshotInput::WithHoles;
        // If the beginning is missing, the topics that are left follow the rules of this hub.
        self.has_rules = true;
    }

    fn has_holes(&self) -> bool {
        self.input == SnapshotInput::WithHoles
    }

    fn read_section(&mut self, reader: &mut Reader<'_>) -> Result<(), &'static str> {
        if self.end.is_some() {
            return Err(MALFORMED);
        }
        match reader.byte()? {
            BEGIN if self.begin.is_none() && !self.has_holes() => self.read_begin(reader),
            TERMS => self.read_terms(reader),
            UNSTORED => self.read_unstored(reader),
            DELETION => self.read_deletion(reader),
            TOPIC => self.read_topic(reader),
            END => {
                let [seq, generation, topics] = reader.varints()?;
                let [seq] = self.numbers([seq])?;
                self.end = Some((seq, generation));
                let is_whole = self.has_holes() || topics == self.topics.len() as u64;
                if is_whole { Ok(()) } else { Err("Something of the snapshot is missing.") }
            }
            _ => Err(MALFORMED),
        }
    }

    fn read_begin(&mut self, reader: &mut Reader<'_>) -> Result<(), &'static str> {
        Epoch::parse(reader.text()?).ok_or(MALFORMED)?;
        let [seq, published, floor, undone, rules] = reader.varints()?;
        let [seq, floor, undone] = self.numbers([seq, floor, undone])?;
        self.begin = Some(SnapshotBegin { seq, published, floor, undone, rules });
        Ok(())
    }

    fn read_terms(&mut self, reader: &mut Reader<'_>) -> Result<(), &'static str> {
        if self.begin.is_none() && !self.has_holes() {
            return Err(MALFORMED);
        }
        let [index, generation] = reader.varints()?;
        let cache = self.hub.storage.cache.clone();
        let terms = Terms { life: self.hub.life(), generation, rule: reader.rule()?, cache };
        if self.terms.insert(index, Arc::new(terms)).is_some() {
            return Err(MALFORMED);
        }
        // With a hole the topics that are left follow the rules of this hub.
        let begin = self.begin.as_ref().filter(|_| !self.has_holes());
        if let Some(SnapshotBegin { seq, published, floor, undone, rules }) = begin
            && self.terms.len() as u64 == *rules
        {
            let in_force = (0..*rules).map(|index| self.terms.get(&index).cloned());
            let in_force = in_force.collect::<Option<_>>().ok_or(MALFORMED)?;
            let mut sequence = self.hub.sequence();
            self.hub.rules_changes.fetch_add(1, Ordering::Release);
            sequence.rules = Rules::restored(in_force).ok_or(MALFORMED)?;
            sequence.published = *published;
            sequence.seq = *seq;
            self.hub.seq.store(*seq, Ordering::Release);
            *self.hub.changes() = Changes::after(*seq);
            self.hub.tombstones_mut().set_marks(*floor, *undone);
            self.has_rules = true;
        }
        Ok(())
    }

    fn read_unstored(&mut self, reader: &mut Reader<'_>) -> Result<(), &'static str> {
        let [upto, count] = reader.varints()?;
        let [upto] = self.numbers([upto])?;
        let rule = |_| {
            let pattern = Pattern::parse_stored(reader.text()?).map_err(|_| MALFORMED)?;
            Ok((pattern, reader.flag()?))
        };
        let rules = (0..count).map(rule).collect::<Result<_, &'static str>>()?;
        let mut tombstones = self.filling()?.tombstones_mut();
        // Each is of other rules than the one before, and none was forgotten.
        let next = Unstored { upto, rules };
        let is_next = tombstones
            .unstored()
            .last()
            .is_none_or(|last| last.upto <= upto && last.rules != next.rules);
        if !is_next || tombstones.unstored().count() == UNSTORED_MAX {
            return Err(MALFORMED);
        }
        tombstones.forget(next);
        Ok(())
    }

    fn read_deletion(&mut self, reader: &mut Reader<'_>) -> Result<(), &'static str> {
        let name = TopicName::parse(reader.text()?).map_err(Rejection::fixed_text)?;
        let (terms, seq, at) = self.read_message(&name, reader)?;
        let [last_seq] = self.numbers([reader.varint()?])?;
        let topic = Arc::new(Topic::deleted(&name, Arc::clone(&terms), seq));
        let message = Message::deletion(seq, terms, at, last_seq);
        let mut tombstones = self.filling()?.tombstones_mut();
        let is_in_order = tombstones.deletions().next_back().is_none_or(|last| last.seq() < seq);
        if !is_in_order || tombstones.tombstone(&name).is_some() || tombstones.is_full() {
            return Err(MALFORMED);
        }
        tombstones.insert(Arc::clone(&topic), Event::new(topic, Arc::new(message)));
        Ok(())
    }

    fn read_topic(&mut self, reader: &mut Reader<'_>) -> Result<(), &'static str> {
        let name = TopicName::parse(reader.text()?).map_err(Rejection::fixed_text)?;
        let [terms, lost_seq, count] = reader.varints()?;
        let [lost_seq] = self.numbers([lost_seq])?;
        let terms = self.terms_at(terms, &name)?;
        let (mut messages, mut latest_seq) = (Vec::new(), lost_seq);
        for _ in 0..count {
            let (terms, seq, at) = self.read_message(&name, reader)?;
            if seq <= latest_seq {
                return Err(MALFORMED);
            }
            latest_seq = seq;
            messages.push(Arc::new(Message::new(reader.draft()?, seq, terms, at)));
        }
        let is_next = self.topics.last().is_none_or(|last| last.name() < name.as_str());
        let hub = self.filling()?;
        if messages.is_empty() || !is_next {
            return Err(MALFORMED);
        }
        let topic = Arc::new(Topic::restored(&name, terms, lost_seq, messages));
        let mut sequence = hub.sequence();
        sequence.add_topic(topic.sums());
        // The sweep may not have come to it when it was written.
        sequence.hold_to_rules(&topic);
        let has_values_alone = self.has_values_alone || hub.is_full(&sequence);
        if has_values_alone {
            let before = self.topics.iter().filter(|_| !self.has_values_alone);
            before.chain([&topic]).for_each(|topic| hub.evict_history(&mut sequence, topic));
        }
        drop(sequence);
        hub.table.load().insert_unlisted(&topic);
        self.has_values_alone = has_values_alone;
        self.topics.push(topic);
        Ok(())
    }

    /// What the hub counts by, of SEQs.
    fn numbers<const N: usize>(&self, mut seqs: [u64; N]) -> Result<[u64; N], &'static str> {
        let life = self.hub.life();
        for seq in &mut seqs {
            *seq = life.number(*seq).ok_or(MALFORMED)?;
        }
        Ok(seqs)
    }

    /// The hub, once it has its rules.
    fn filling(&self) -> Result<&Hub, &'static str> {
        if self.has_rules { Ok(&self.hub) } else { Err(MALFORMED) }
    }

    /// What [`Snapshot::put_message`] wrote.
    fn read_message(
        &mut self,
        topic: &str,
        reader: &mut Reader<'_>,
    ) -> Result<(Arc<Terms>, u64, PublishedAt), &'static str> {
        let [terms, seq, unix_s] = reader.varints()?;
        let [seq] = self.numbers([seq])?;
        self.greatest_seq = self.greatest_seq.max(seq);
        let unix_s = u32::try_from(unix_s).map_err(|_| MALFORMED)?;
        let shares_second = reader.flag()?;
        Ok((self.terms_at(terms, topic)?, seq, PublishedAt { unix_s, shares_second }))
    }

    /// Terms by their index; if they are missing, those that are in force for the topic.
    fn terms_at(&self, index: u64, topic: &str) -> Result<Arc<Terms>, &'static str> {
        match self.terms.get(&index) {
            Some(terms) => Ok(Arc::clone(terms)),
            None if self.has_holes() => Ok(Arc::clone(self.hub.sequence().rules.terms(topic))),
            None => Err(MALFORMED),
        }
    }
}

/// What a snapshot begins with; the last byte is the version.
const MAGIC: &[u8] = b"stentor snapshot\x01";

const BEGIN: u8 = b'B';
const TERMS: u8 = b'R';
const UNSTORED: u8 = b'U';
const DELETION: u8 = b'D';
const TOPIC: u8 = b'T';
const END: u8 = b'E';

/// A slice ends behind the topic that makes it as long.
///
/// Short ones, for whoever writes them is not interrupted by a worker that is woken on that core:
/// the kernel copies what is written at one go, and its scheduler lets a thread finish what it has
/// begun, whatever its priority.
const SLICE_BYTES: usize = if cfg!(test) { 200 } else { 16 << 10 };

/// And has so many topics at most.
const SLICE_TOPICS: usize = 128;

/// The longest section: its length has four bytes.
const SECTION_BYTES_MAX: usize = if cfg!(test) { 20_000 } else { u32::MAX as usize };

#[cfg(test)]
pub(crate) mod tests;
