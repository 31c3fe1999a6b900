//! A hub whose order is made elsewhere: what it takes from there, under its readers.
//!
//! It takes entries with their numbers ([`Hub::follow`]), and where it has missed some, all there
//! is ([`Hub::adopt`]): another hub, filled from a snapshot beside the one that is read, whose
//! topics then take the place of its own by one swap. Nothing of a snapshot that breaks off, or
//! makes no sense, comes near a reader. A reader is sent what it has not seen, and told of a gap
//! only where the histories do not reach back to its cursor.
//!
//! Numbers only grow in a process, whatever becomes of the sequence: that is what cursors, walks
//! and logs are made of. So a sequence that began anew is counted from above all that was before
//! ([`Life`]); only ids, which are all that is seen outside, have its EPOCH and SEQ. A reader whose
//! number is of a life before is as one that comes with an id of another EPOCH.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;

use super::{Hub, Limits};
use crate::entry::{Applied, Entry, Op, Past, Place};
use crate::hub::changes::Changes;
use crate::hub::table::TopicTable;
use crate::id::{Epoch, Id, Life};
use crate::interleave;
use crate::lock::{lock, read};
use crate::topic::ByName;

/// What was adopted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Adopted {
    /// Topics that there are now.
    pub topics: usize,
    /// It is of another life: no cursor of before means anything.
    pub is_new_life: bool,
}

/// Why a hub was not adopted. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAdopted {
    /// It is behind this one: whoever it comes from has yet to catch up.
    Behind,
    /// Something that is here never was there, or was taken back: it is to be adopted as another
    /// life.
    Contradicts,
}

impl fmt::Display for NotAdopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAdopted::Behind => "it is behind what is here",
            NotAdopted::Contradicts => "something that is here was taken back there",
        })
    }
}

impl std::error::Error for NotAdopted {}

impl Hub {
    /// The life of the sequence that goes on here.
    #[must_use]
    pub fn life(&self) -> Life {
        *self.lives.load().last().expect("there always is one")
    }

    /// The id of a number that was given out here: of its own life, while that is remembered.
    #[must_use]
    pub fn id(&self, number: u64) -> Id {
        let lives = self.lives.load();
        let of = lives.iter().rfind(|life| life.base <= number).or(lives.first());
        of.expect("there always is one").id(number)
    }

    /// The number of an id here; `None` if it is of another life.
    #[must_use]
    pub fn number(&self, id: Id) -> Option<u64> {
        let life = self.life();
        life.number(id.seq).filter(|_| id.epoch == life.epoch)
    }

    /// Whether this number is of a life that is over.
    #[must_use]
    pub fn is_of_past_life(&self, number: u64) -> bool {
        number < self.life().base
    }

    /// From now on the order is made elsewhere. What is given a number there may be known to
    /// readers before it is here.
    pub fn begin_following(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Whether the order is made elsewhere.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Whether a reader may have a number that is not here yet: from where the order is made. If it
    /// is made up, nobody has to wait but whoever did that.
    #[must_use]
    pub fn may_come(&self, number: u64) -> bool {
        self.is_following() && number <= self.seq() + AHEAD_MAX
    }

    /// An empty hub to be filled from a snapshot of this EPOCH, and then adopted. `anew` if what is
    /// here is to be forgotten even if the EPOCH is the same.
    #[must_use]
    pub fn stage(&self, epoch: Epoch, anew: bool) -> Hub {
        let (life, seq) = (self.life(), self.seq());
        let life = match life.epoch == epoch && !anew {
            _ if self.is_fresh() => Life { epoch, base: 0 },
            true => life,
            // Readers may have numbers that never came.
            false => Life { epoch, base: seq + AHEAD_MAX + 1 },
        };
        let limits = Limits { stored_bytes_max: self.stored_bytes_max(), ..self.limits };
        Hub::caching(life, Vec::new(), limits, self.storage.cache.clone())
    }

    /// Applies an entry that was applied elsewhere, under the SEQ that it has there. What is known
    /// already changes nothing.
    ///
    /// # Errors
    ///
    /// One sentence, if it is none that was applied before, or its number makes no sense.
    pub fn follow(&self, entry: Entry<'_>, place: Place) -> Result<Applied, &'static str> {
        let Some(mut past) = place.past() else {
            return Err("the entry was not applied where it comes from");
        };
        if !matches!(entry.op, Op::Rules(_)) {
            let life = self.life();
            let number = |seq| life.number(seq).ok_or("the number of the entry is too large");
            let (number, last_seq) = (number(past.number)?, number(past.last_seq)?);
            past = Past { number, last_seq, ..past };
        }
        Ok(self.apply(entry, Place::Was(past)).expect("a redo is never refused"))
    }

    /// Whether a topic has a value, or was deleted, by a number greater than this one.
    #[must_use]
    pub fn has_changed_after(&self, topic: &str, number: u64) -> bool {
        let value = self.value(topic).map(|value| value.seq());
        let tombstones = read(&self.tombstones);
        value.or_else(|| tombstones.deletion_seq(topic)).is_some_and(|seq| seq > number)
    }

    /// Whoever makes the order has given numbers up to this SEQ, and everything of them that is to
    /// be here is.
    pub fn follow_upto(&self, seq: u64) {
        let Some(number) = self.life().number(seq) else { return };
        let mut sequence = self.sequence();
        if number > sequence.seq {
            sequence.seq = number;
            self.seq.store(number, Ordering::Release);
        }
    }

    /// Takes note of SEQs of what was taken back where the order is made: see
    /// [`Hub::was_rolled_back`]. They are in their order.
    pub fn follow_rolled_back(&self, ranges: &[RangeInclusive<u64>]) {
        let number = |seq: &u64| self.life().number(*seq);
        let ranges = ranges.iter();
        let numbers =
            ranges.filter_map(|range| Some(number(range.start())?..=number(range.end())?));
        let numbers = numbers.collect();
        self.rolled_back.store(Arc::new(numbers));
    }

    /// Becomes like a hub that [`Hub::stage`] has made of this one, and that was filled since: its
    /// topics take the place of those that are here, in one step, while they are read. Nobody else
    /// changes this hub meanwhile.
    ///
    /// # Errors
    ///
    /// If it is no continuation of this hub, though of the same life.
    pub fn adopt(&self, staged: Hub) -> Result<Adopted, NotAdopted> {
        interleave::point();
        let life = staged.life();
        let is_new_life = life != self.life();
        if !is_new_life {
            self.judge_continuation(&staged)?;
        }
        let is_first = self.is_fresh();
        let table = staged.table.into_inner();
        let adopted = Adopted { topics: table.count(), is_new_life: is_new_life && !is_first };
        let of_staged = staged.sequence.into_inner().unwrap_or_else(PoisonError::into_inner);
        interleave::point();

        let _sweep = lock(&self.sweep);
        let mut sequence = self.sequence();
        let mut tombstones = self.tombstones_mut();
        // Before the values: whoever reads one waits for the lock to read the rules.
        self.rules_changes.fetch_add(1, Ordering::Release);
        let replaced = self.table.swap(table);
        interleave::inside();
        *tombstones = staged.tombstones.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Who walks the names meanwhile may have looked for a topic in the wrong place.
        tombstones.set_undone(of_staged.seq);
        self.rolled_back.store(staged.rolled_back.into_inner());
        if is_new_life {
            self.begin_life(life, is_first);
        }
        sequence.rules = of_staged.rules;
        sequence.kept = of_staged.kept;
        sequence.published = of_staged.published;
        sequence.seq = of_staged.seq;
        sequence.adopted += 1;
        *self.changes() = Changes::after(of_staged.seq);
        self.seq.store(of_staged.seq, Ordering::Release);
        interleave::inside();
        let notified = sequence.subscribers.replaced(of_staged.seq);
        drop((tombstones, sequence));
        notified.wake();
        replaced.all().iter().for_each(|topic| topic.detach());
        drop_alone(replaced);
        self.add_evicted(&staged.storage);
        self.trim_if_due(self.stored());
        Ok(adopted)
    }

    /// Whether nobody can have a cursor of it.
    fn is_fresh(&self) -> bool {
        let sequence = self.sequence();
        sequence.seq == 0 && sequence.adopted == 0
    }

    /// Whether all that is here was there, too, and was not taken back.
    fn judge_continuation(&self, staged: &Hub) -> Result<(), NotAdopted> {
        if staged.seq() < self.seq() {
            return Err(NotAdopted::Behind);
        }
        let (here, there) = (self.table.load(), staged.table.load());
        let there = there.pin();
        let is_taken_back = here.all().iter().any(|topic| {
            let other = there.get(topic.name());
            other.is_some_and(|ByName(other)| !topic.is_continued_by(other))
        });
        let tombstones = read(&self.tombstones);
        // What was deleted and came back has lost all that was before.
        let is_undone = tombstones.deletions().any(|deletion| {
            let topic = there.get(deletion.topic());
            topic.is_some_and(|ByName(topic)| topic.lost_seq() < deletion.seq())
        });
        if is_taken_back || is_undone { Err(NotAdopted::Contradicts) } else { Ok(()) }
    }

    fn begin_life(&self, life: Life, is_first: bool) {
        let mut lives = if is_first { Vec::new() } else { self.lives.load().to_vec() };
        if lives.len() == LIVES_MAX {
            lives.remove(0);
        }
        lives.push(life);
        self.lives.store(Arc::new(lives));
    }
}

/// Frees the topics on this thread. A reader that looks up a topic at this moment holds the table;
/// if it were the last holder, a worker would have to free millions of topics.
fn drop_alone(table: Arc<TopicTable>) {
    for _ in 0..LOOK_UPS_WAIT {
        if Arc::strong_count(&table) == 1 {
            break;
        }
        thread::yield_now();
    }
}

/// How often to give way to the look-ups under way, each of which takes some microseconds.
const LOOK_UPS_WAIT: usize = 1_000;

/// So many lives are remembered, for those who have not heard yet that theirs is over.
const LIVES_MAX: usize = 8;

/// How far ahead of this hub a reader may be: a cluster's numbers jump by what a broker may have
/// lost, which follows the age of its stream.
const AHEAD_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests;
