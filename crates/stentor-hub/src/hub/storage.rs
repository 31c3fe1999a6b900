//! The memory that the hub's topics take, its limit, and the eviction of history.
//!
//! The sequencing point counts topics, values and history. What is rendered for readers has a limit
//! of its own (`rendered.rs`), a part of this one, and never takes room from them. The hub never
//! evicts a value. It evicts history, the oldest messages first, whatever topic
//! they belong to; a reader that has missed one receives a gap. One thread does that
//! ([`Hub::trim_history`]). It is woken well before the limit is reached. A publish that exceeds
//! the limit meanwhile evicts history of its own topic, so the limit holds after every publish.
//!
//! The hub refuses a publish only if the topic would grow, and only if this process makes the
//! order. A value can always be replaced by one that takes no more memory.

use std::iter;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};

use super::{Hub, Sequence};
use crate::entry::Refusal;
use crate::lock::lock;
use crate::message::Draft;
use crate::rendered::RenderCache;
use crate::topic::{Evicted, Sums, Topic, stored_bytes_of};

/// The limit and the counters that are read without the lock.
pub(super) struct Storage {
    /// See [`Limits::stored_bytes_max`](super::Limits).
    max: AtomicUsize,
    /// How short the process or its host is of memory: a [`Shortage`].
    shortage: AtomicU8,
    pub(super) cache: RenderCache,
    /// Bytes that an eviction must free at least; 0 if none is due.
    trim_wanted: AtomicUsize,
    /// The thread that evicts.
    trimmer: Mutex<Option<Thread>>,
    /// Messages evicted since the start.
    evicted_total: AtomicU64,
}

/// How short the process or its host is of memory, for whatever reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Shortage {
    /// It is not.
    None,
    /// Topics may take half of the limit.
    High,
    /// No topic may grow, and neither may their sum.
    Critical,
}

/// The memory that a hub's topics take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Stored {
    /// Topics with their values.
    pub values: usize,
    /// Earlier messages.
    pub history: usize,
    /// What was rendered of messages and is cached: heads, compressed bodies, events, frames.
    pub forms: usize,
    /// The limit of values and history: half of that of the settings while memory is short.
    pub max: usize,
    /// The limit of `forms`: a quarter of that of the settings, or an eighth while memory is short.
    pub forms_max: usize,
    /// Messages and rendered bytes that only connections hold.
    pub detached: usize,
    /// Messages evicted from history since the start.
    pub evicted_total: u64,
}

impl Stored {
    /// Values and history.
    #[must_use]
    pub fn total(&self) -> usize {
        self.values + self.history
    }

    /// The limit of the sum at this moment.
    fn limit(&self, shortage: Shortage) -> usize {
        match shortage {
            Shortage::None | Shortage::High => self.max,
            Shortage::Critical => self.max.min(self.total()),
        }
    }

    /// Memory that values leave.
    fn rest(&self) -> usize {
        self.max.saturating_sub(self.values)
    }

    /// Memory that history may take. It may take a little even if values fill nearly all: each
    /// publish then evicts history of its own topic.
    fn history_max(&self, headroom: usize) -> usize {
        self.rest().saturating_sub(headroom).max(self.max / HISTORY_PART_MIN)
    }
}

impl Storage {
    pub(super) fn new(max: usize, cache: RenderCache) -> Storage {
        Storage {
            max: AtomicUsize::new(max),
            shortage: AtomicU8::new(Shortage::None as u8),
            cache,
            trim_wanted: AtomicUsize::new(0),
            trimmer: Mutex::default(),
            evicted_total: AtomicU64::new(0),
        }
    }

    fn request_trim(&self, wanted: usize) {
        if self.trim_wanted.fetch_max(wanted.max(1), Ordering::AcqRel) == 0 {
            let trimmer = lock(&self.trimmer);
            trimmer.as_ref().inspect(|trimmer| trimmer.unpark());
        }
    }
}

impl Hub {
    /// The memory that topics take. Locks the sequencing point.
    #[must_use]
    pub fn stored(&self) -> Stored {
        self.stored_of(&self.sequence())
    }

    /// The memory of messages that topics have dropped, and of rendered bytes that the cache has
    /// evicted, while connections still hold them, in bytes. Takes no lock.
    #[must_use]
    pub fn detached_bytes(&self) -> usize {
        self.storage.cache.detached()
    }

    /// Sets the limit, in bytes. History above it is evicted, values are not.
    pub fn set_stored_bytes_max(&self, max: usize) {
        self.storage.max.store(max, Ordering::Relaxed);
        self.apply_limits();
    }

    /// Restricts what is stored while memory is short for other reasons.
    pub fn set_shortage(&self, shortage: Shortage) {
        self.storage.shortage.store(shortage as u8, Ordering::Relaxed);
        self.apply_limits();
    }

    /// What is rendered goes first: it can be rendered again.
    fn apply_limits(&self) {
        let part = match self.shortage() {
            Shortage::None => FORMS_PART,
            Shortage::High => 2 * FORMS_PART,
            Shortage::Critical => FORMS_PART_CRITICAL,
        };
        self.storage.cache.set_max(self.stored_bytes_max() / part);
        self.trim_if_due(self.stored());
    }

    /// The limit of values and history: half of that of the settings while memory is short.
    fn max_now(&self) -> usize {
        match self.shortage() {
            Shortage::None => self.stored_bytes_max(),
            // mutation: stored-in-shortage
            Shortage::High | Shortage::Critical => self.stored_bytes_max() / 2,
        }
    }

    /// Has a part of the history evicted soon, the oldest messages.
    pub fn shrink_history(&self, part: usize) {
        let stored = self.stored();
        let kept = stored.history - stored.history / part;
        self.storage.request_trim(stored.rest().saturating_sub(kept));
    }

    /// Makes this thread the one that is unparked when [`Hub::is_trim_due`].
    pub fn trim_on_this_thread(&self) {
        let mut trimmer = lock(&self.storage.trimmer);
        *trimmer = Some(thread::current());
    }

    /// Whether [`Hub::trim_history`] must be called.
    #[must_use]
    pub fn is_trim_due(&self) -> bool {
        self.storage.trim_wanted.load(Ordering::Acquire) > 0
    }

    /// Evicts the oldest history until there is room for the next moments. Returns the number of
    /// messages evicted. Publishers wait for one slice of topics at most.
    pub fn trim_history(&self) -> usize {
        let wanted = self.storage.trim_wanted.swap(0, Ordering::AcqRel);
        let stored = self.stored();
        let history_max = stored.history_max(self.headroom(stored.max));
        let rest = stored.rest().saturating_sub(wanted);
        self.trim_history_to(rest.min(history_max - history_max / TRIM_PART))
    }

    /// Evicts the oldest history until the rest takes at most `bytes`.
    pub fn trim_history_to(&self, bytes: usize) -> usize {
        let mut count = 0;
        for _ in 0..TRIM_PASSES {
            let history = self.stored().history;
            let excess = history.saturating_sub(bytes);
            let Some(upto) = self.oldest_upto(history, excess) else { break };
            count += self.evict_history_upto(upto);
        }
        count
    }

    /// Whether values alone exceed the limit by more than a quarter. A smaller excess must not keep
    /// a store from opening: a host's memory differs a little from one start to the next.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.stored().values / 5 > self.stored_bytes_max() / 4
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn stored_bytes_max(&self) -> usize {
        self.storage.max.load(Ordering::Relaxed)
    }

    fn shortage(&self) -> Shortage {
        match self.storage.shortage.load(Ordering::Relaxed) {
            0 => Shortage::None,
            1 => Shortage::High,
            _ => Shortage::Critical,
        }
    }

    pub(super) fn stored_of(&self, sequence: &Sequence) -> Stored {
        Stored {
            values: sequence.kept.values_stored,
            history: sequence.kept.history_stored,
            forms: self.storage.cache.cached(),
            max: self.max_now(),
            forms_max: self.storage.cache.max(),
            detached: self.detached_bytes(),
            evicted_total: self.storage.evicted_total.load(Ordering::Relaxed),
        }
    }

    /// Judges the memory that a message needs for a topic of this name. If the topic exists, its
    /// value has `replaced` bytes.
    pub(super) fn judge_growth(
        &self,
        sequence: &Sequence,
        name: &str,
        topic: Option<&Topic>,
        draft: &Draft,
        replaced: usize,
    ) -> Result<(), Refusal> {
        let new = if topic.is_none() { stored_bytes_of(name) } else { 0 };
        let bytes = draft.stored_bytes() + new;
        if bytes <= replaced {
            return Ok(());
        }
        let stored = self.stored_of(sequence);
        let (growth, shortage) = (bytes - replaced, self.shortage());
        let limit = stored.limit(shortage);
        let excess = (stored.total() + growth).saturating_sub(limit);
        if excess <= topic.map_or(0, Topic::history_stored) {
            return Ok(());
        }
        if shortage == Shortage::Critical {
            return Err(Refusal::MemoryShort);
        }
        if stored.history == 0 || stored.values + growth > stored.max {
            return Err(match shortage {
                Shortage::None => Refusal::StorageFull { max: stored.max },
                Shortage::High | Shortage::Critical => Refusal::MemoryShort,
            });
        }
        self.storage.request_trim(growth);
        Err(Refusal::MemoryShort)
    }

    /// Enforces the limit after a publish to this topic: evicts its own history at once, and has
    /// the oldest of all topics evicted soon. `before` is what was stored before the publish.
    pub(super) fn enforce_limit(
        &self,
        sequence: &mut Sequence,
        topic: &Topic,
        before: Stored,
    ) -> Evicted {
        let stored = self.stored_of(sequence);
        let limit = before.limit(self.shortage());
        let mut evicted = Evicted::new();
        if stored.total() > limit {
            let excess = stored.total() - limit;
            evicted = topic.drop_oldest(|_, freed| freed < excess);
            self.subtract_evicted(sequence, &evicted);
        }
        self.trim_if_due(stored);
        evicted
    }

    pub(super) fn trim_if_due(&self, stored: Stored) {
        let history_max = stored.history_max(self.headroom(stored.max));
        if stored.history > history_max - history_max / TRIM_AT_PART {
            self.storage.request_trim(0);
        }
    }

    /// Room that history leaves for two of the largest messages, so that no publish waits for it.
    fn headroom(&self, max: usize) -> usize {
        self.limits.message_bytes_max.saturating_mul(2).min(max / HEADROOM_PART_MAX)
    }

    /// Estimates the sequence number up to which history must be evicted to free `bytes` of its
    /// `history` bytes. It covers at least the oldest message. `None` if nothing must be evicted.
    fn oldest_upto(&self, history: usize, bytes: usize) -> Option<u64> {
        if bytes == 0 {
            return None;
        }
        // The sample has the message at each multiple of `step` bytes, so each sequence number in
        // it stands for as many bytes.
        let step = (history / SAMPLE_MAX).max(1);
        let (mut sample, mut seen) = (Vec::new(), 0_usize);
        self.for_each_slice(|slice| {
            let topics = slice.iter();
            topics.for_each(|topic| {
                topic.for_each_earlier(|seq, size| {
                    let multiples = (seen + size) / step - seen / step;
                    // The hub may have adopted one with much more history meanwhile.
                    let free = (2 * SAMPLE_MAX).saturating_sub(sample.len());
                    sample.extend(iter::repeat_n(seq, multiples.min(free)));
                    seen += size;
                });
            });
        });
        sample.sort_unstable();
        sample.get(bytes.div_ceil(step) - 1).or(sample.last()).copied()
    }

    /// Counts what a hub evicted before this one adopted it.
    pub(super) fn add_evicted(&self, staged: &Storage) {
        let evicted = staged.evicted_total.load(Ordering::Relaxed);
        self.storage.evicted_total.fetch_add(evicted, Ordering::Relaxed);
    }

    /// Whether the limit is exceeded.
    pub(super) fn is_full(&self, sequence: &Sequence) -> bool {
        let stored = self.stored_of(sequence);
        stored.total() > self.stored_bytes_max()
    }

    /// Evicts all history of a topic.
    pub(super) fn evict_history(&self, sequence: &mut Sequence, topic: &Topic) {
        let evicted = topic.drop_oldest(|_, _| true);
        self.subtract_evicted(sequence, &evicted);
    }

    fn subtract_evicted(&self, sequence: &mut Sequence, evicted: &Evicted) {
        self.storage.evicted_total.fetch_add(evicted.len() as u64, Ordering::Relaxed);
        sequence.subtract(evicted);
    }

    fn evict_history_upto(&self, upto: u64) -> usize {
        let mut count = 0;
        let adopted = self.sequence().adopted;
        self.for_each_slice(|slice| {
            let mut sequence = self.sequence();
            if sequence.adopted != adopted {
                // Topics of the slice may be no longer here.
                return;
            }
            let drop_of = |topic: &Arc<Topic>| topic.drop_oldest(|seq, _| seq <= upto);
            let evicted: Vec<Evicted> = slice.iter().map(drop_of).collect();
            evicted.iter().for_each(|evicted| self.subtract_evicted(&mut sequence, evicted));
            drop(sequence);
            count += evicted.iter().map(Vec::len).sum::<usize>();
        });
        count
    }
}

impl Sequence {
    /// A message has become its topic's value.
    pub(super) fn add(&mut self, bytes: usize, stored_bytes: usize) {
        self.kept.messages += 1;
        self.kept.bytes += bytes;
        self.kept.values_stored += stored_bytes;
    }

    /// The value before has become history.
    pub(super) fn supersede(&mut self, stored_bytes: usize) {
        self.kept.values_stored -= stored_bytes;
        self.kept.history_stored += stored_bytes;
    }

    /// These messages are no longer history.
    pub(super) fn subtract(&mut self, evicted: &Evicted) {
        for message in evicted {
            self.kept.messages -= 1;
            self.kept.bytes -= message.data().len();
            self.kept.history_stored -= message.stored_bytes();
        }
    }

    pub(super) fn add_topic(&mut self, sums: Sums) {
        self.kept.change(sums, usize::add);
    }

    pub(super) fn subtract_topic(&mut self, sums: Sums) {
        self.kept.change(sums, usize::sub);
    }
}

/// History may take at least this part of the limit.
const HISTORY_PART_MIN: usize = 64;

/// The room for large messages is at most this part of the limit.
const HEADROOM_PART_MAX: usize = 8;

/// What is rendered may take this part of the limit, beside it.
pub(super) const FORMS_PART: usize = 4;

/// While memory is critically short, what is rendered may take this part of the limit. Without any,
/// each reader of an event would hold bytes of its own.
const FORMS_PART_CRITICAL: usize = 64;

/// An eviction is due once less than this part of history's room is free.
const TRIM_AT_PART: usize = 8;

/// An eviction frees this part of history's room.
const TRIM_PART: usize = 4;

/// Samples per eviction: a poor estimate is followed by another one.
const TRIM_PASSES: usize = 4;

/// Sequence numbers in a sample.
const SAMPLE_MAX: usize = if cfg!(test) { 512 } else { 16_384 };

#[cfg(test)]
mod tests;
