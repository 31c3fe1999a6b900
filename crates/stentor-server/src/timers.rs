//! Deadlines of all connections of a worker: a wheel of intrusive lists.
//!
//! A connection has one deadline at a time. Moving it later, which every request does, is one
//! store into its record: the connection stays in the list where it is and is looked at when that
//! list's time comes, then put where its deadline really is. Only an earlier deadline moves it at
//! once. So a request never touches the records of its neighbours, and no heap of timers exists.

use stentor_io::Slab;

/// The part of a record that belongs to the wheel.
#[derive(Debug)]
pub(crate) struct Timer {
    deadline_tick: u32,
    /// When the wheel will look: at most the deadline. [`UNQUEUED`] if it will not.
    look_tick: u32,
    next: u32,
    previous: u32,
}

/// A record with a deadline.
pub(crate) trait Timed: Default {
    fn timer(&mut self) -> &mut Timer;
}

/// The deadlines of the records of one slab.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// First record of each slot's list.
    slots: [u32; SLOTS],
    /// One bit for each slot that is not empty.
    occupied: [u64; SLOTS / 64],
    /// Records queued, over all slots.
    queued: usize,
    /// Every slot before this tick has been looked at.
    looked_tick: u32,
}

/// What comes of looking for a deadline that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// This record's has, and it is out of the wheel.
    Record(usize),
    /// There may be one: others were looked at, and enough of them.
    Unknown,
    None,
}

impl Default for Timer {
    fn default() -> Timer {
        Timer { deadline_tick: 0, look_tick: UNQUEUED, next: NONE, previous: NONE }
    }
}

impl Timer {
    /// When the record's time is up, in ticks.
    pub(crate) fn deadline_tick(&self) -> u32 {
        self.deadline_tick
    }

    /// Whether the wheel will look at the record.
    #[cfg(debug_assertions)]
    pub(crate) fn is_queued(&self) -> bool {
        self.look_tick != UNQUEUED
    }
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel { slots: [NONE; SLOTS], occupied: [0; SLOTS / 64], queued: 0, looked_tick: 0 }
    }

    /// Sets the deadline of record `index`, replacing the one it had.
    pub(crate) fn set<T: Timed>(
        &mut self,
        slab: &mut Slab<T>,
        index: usize,
        deadline_ms: u64,
        now_ms: u64,
    ) {
        if self.queued == 0 {
            // Nothing was looked for while nothing was queued.
            self.looked_tick = (now_ms / TICK_MS) as u32;
        }
        let Some(record) = slab.at(index) else { return };
        let timer = record.timer();
        timer.deadline_tick = tick_after(deadline_ms);
        if timer.look_tick > timer.deadline_tick {
            self.unqueue(slab, index);
            self.queue(slab, index);
        }
    }

    /// Takes out a record whose deadline has come, if there is one. Of those whose deadlines have
    /// moved it looks at no more than `looks`: thousands may stand in one list.
    pub(crate) fn next_due<T: Timed>(
        &mut self,
        slab: &mut Slab<T>,
        now_ms: u64,
        looks: &mut usize,
    ) -> Due {
        let now_tick = (now_ms / TICK_MS) as u32;
        while self.looked_tick <= now_tick {
            if self.queued == 0 {
                self.looked_tick = now_tick;
                return Due::None;
            }
            let first = self.slots[self.looked_tick as usize % SLOTS];
            if first == NONE {
                self.looked_tick += 1;
                continue;
            }
            if *looks == 0 {
                return Due::Unknown;
            }
            let index = first as usize;
            self.unqueue(slab, index);
            let Some(record) = slab.at(index) else { return Due::None };
            if record.timer().deadline_tick <= now_tick {
                return Due::Record(index);
            }
            *looks -= 1;
            // Looked at, and not due: to the slot of its deadline, which lies ahead.
            self.queue(slab, index);
        }
        Due::None
    }

    /// When [`Wheel::next_due`] is worth calling again.
    pub(crate) fn next_look_ms(&self) -> Option<u64> {
        if self.queued == 0 {
            return None;
        }
        let first = self.looked_tick as usize % SLOTS;
        // From the slot to be looked at next, word by word, once round to the bits before it.
        let (word, bit) = (first / 64, first % 64);
        let words = self.occupied.len();
        let from_first = |n: usize| match n {
            0 => self.occupied[word] >> bit << bit,
            n => self.occupied[(word + n) % words],
        };
        let n = (0..=words).find(|&n| from_first(n) != 0)?;
        let slot = (word + n) % words * 64 + from_first(n).trailing_zeros() as usize;
        let ahead = (slot + SLOTS - first) % SLOTS;
        Some(u64::from(self.looked_tick + ahead as u32) * TICK_MS)
    }

    fn queue<T: Timed>(&mut self, slab: &mut Slab<T>, index: usize) {
        let furthest = self.looked_tick + SLOTS as u32 - 1;
        let Some(record) = slab.at(index) else { return };
        let timer = record.timer();
        timer.look_tick = timer.deadline_tick.clamp(self.looked_tick, furthest);
        let slot = timer.look_tick as usize % SLOTS;
        timer.previous = NONE;
        timer.next = self.slots[slot];
        if let Some(next) = slab.at(self.slots[slot] as usize) {
            next.timer().previous = index as u32;
        }
        self.slots[slot] = index as u32;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.queued += 1;
    }

    fn unqueue<T: Timed>(&mut self, slab: &mut Slab<T>, index: usize) {
        let Some(record) = slab.at(index) else { return };
        let timer = record.timer();
        if timer.look_tick == UNQUEUED {
            return;
        }
        let (slot, next, previous) = (timer.look_tick as usize % SLOTS, timer.next, timer.previous);
        timer.look_tick = UNQUEUED;
        match slab.at(previous as usize) {
            Some(record) => record.timer().next = next,
            None => {
                self.slots[slot] = next;
                if next == NONE {
                    self.occupied[slot / 64] &= !(1 << (slot % 64));
                }
            }
        }
        if let Some(record) = slab.at(next as usize) {
            record.timer().previous = previous;
        }
        self.queued -= 1;
    }
}

/// The first tick at which `ms` has passed; in 17 years at the latest.
pub(crate) fn tick_after(ms: u64) -> u32 {
    u32::try_from(ms.div_ceil(TICK_MS)).unwrap_or(u32::MAX).min(UNQUEUED - 1)
}

/// How exact a deadline is: it is kept at its time or up to this much later.
pub(crate) const TICK_MS: u64 = 128;
/// 33 seconds ahead; what lies further is looked at on the way.
const SLOTS: usize = 256;
const NONE: u32 = u32::MAX;
const UNQUEUED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Record(Timer);

    impl Timed for Record {
        fn timer(&mut self) -> &mut Timer {
            &mut self.0
        }
    }

    /// Sets random deadlines, moves them, and compares what comes due, and when, with
    /// a plain list.
    #[test]
    fn keeps_every_deadline_within_a_tick() {
        let mut rng = stentor_io::Rng::new(7);
        for _ in 0..200 {
            let (mut slab, mut wheel) = (Slab::<Record>::default(), Wheel::new());
            let mut plain: Vec<Option<u64>> = vec![None; 40];
            (0..40).for_each(|index| *slab.grow(index) = Record::default());
            let mut now = rng.next_u64() % 1000;
            for _ in 0..400 {
                now += rng.next_u64() % 900;
                let index = rng.below(40);
                let deadline = now + rng.next_u64() % 60_000;
                wheel.set(&mut slab, index, deadline, now);
                plain[index] = Some(deadline);
                loop {
                    let mut looks = rng.below(4);
                    let due = match wheel.next_due(&mut slab, now, &mut looks) {
                        Due::Record(due) => due,
                        Due::Unknown => continue,
                        Due::None => break,
                    };
                    let deadline = plain[due].take().expect("due without a deadline");
                    assert!(deadline <= now, "{deadline} came at {now}");
                }
                let late = plain.iter().flatten().any(|&deadline| deadline + TICK_MS <= now);
                assert!(!late, "a deadline passed unnoticed at {now}");
                let look = wheel.next_look_ms();
                let first = plain.iter().flatten().min();
                assert!(
                    first.is_none() || look.expect("nothing to look at") < first.unwrap() + TICK_MS
                );
            }
        }
    }

    /// Thousands whose deadlines have moved may stand in one list: nobody waits for all of them.
    #[test]
    fn deadlines_are_kept_after_days() {
        let (mut slab, mut wheel) = (Slab::<Record>::default(), Wheel::new());
        let now_ms = 3 * 24 * 3_600_000;
        *slab.grow(0) = Record::default();
        wheel.set(&mut slab, 0, now_ms + 1_000, now_ms);
        let mut is_due = |now_ms| match wheel.next_due(&mut slab, now_ms, &mut 1) {
            Due::Record(index) => index == 0,
            Due::None | Due::Unknown => false,
        };
        assert!(!is_due(now_ms) && is_due(now_ms + 2_000));
    }

    #[test]
    fn a_list_is_looked_at_a_part_at_a_time() {
        let (mut slab, mut wheel) = (Slab::<Record>::default(), Wheel::new());
        for index in 0..1_000 {
            *slab.grow(index) = Record::default();
            wheel.set(&mut slab, index, TICK_MS, 0);
        }
        for index in 1..1_000 {
            wheel.set(&mut slab, index, 50 * TICK_MS, 0);
        }
        let (mut found, mut calls) = (Vec::new(), 0);
        loop {
            let mut looks = 100;
            calls += 1;
            match wheel.next_due(&mut slab, TICK_MS, &mut looks) {
                Due::Record(index) => found.push(index),
                Due::Unknown => {
                    assert_eq!(looks, 0);
                    assert!(wheel.next_look_ms() <= Some(TICK_MS), "the rest is looked at at once");
                }
                Due::None => break,
            }
        }
        assert_eq!((found, calls), (vec![0], 999 / 100 + 2));
        assert_eq!(wheel.next_look_ms(), Some(50 * TICK_MS));
    }

    /// A mark that stays wakes a worker that has nothing to do.
    #[test]
    fn nothing_is_looked_at_where_nothing_is_left() {
        let (mut slab, mut wheel) = (Slab::<Record>::default(), Wheel::new());
        (0..2).for_each(|index| *slab.grow(index) = Record::default());
        wheel.set(&mut slab, 0, 20 * TICK_MS, 0);
        wheel.set(&mut slab, 1, 9 * TICK_MS, 0);
        wheel.set(&mut slab, 1, 3 * TICK_MS, 0);
        assert_eq!(wheel.next_look_ms(), Some(3 * TICK_MS));
        let mut next_due = |now_ms| wheel.next_due(&mut slab, now_ms, &mut 9);
        assert_eq!(next_due(3 * TICK_MS), Due::Record(1));
        assert_eq!(next_due(3 * TICK_MS), Due::None);
        assert_eq!(wheel.next_look_ms(), Some(20 * TICK_MS));
    }
}
