//! Where the SEQs of a life are in the log.
//!
//! A broker that begins anew may have lost the end of what it had, and goes on with other messages
//! under the same sequences. Whoever had not read as far cannot know it. So SEQs are not the log's
//! sequences alone: wherever a broker has begun anew they *jump*, beyond all that can have been
//! written before. A jump is a message of the log itself, so everybody finds it in the same place.
//! What was read and is lost has SEQs that nothing else ever has: whoever holds one is told so.
//!
//! ```text
//!   log         98   99  100       101   102       (101 to 103 were lost, then there was a jump)
//!   SEQ >> 10   98   99  100  ...  7101  7102
//! ```
//!
//! How far it is goes by the clock of the node that writes it: a life's numbers stay behind its age
//! times [`PER_MS`], as fast as messages are written. A jump that is itself lost is therefore
//! passed by the next one, too.

use std::ops::RangeInclusive;

/// The jumps of a life.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct SequenceMapping {
    /// There were more before those that are remembered.
    pub(super) is_cut: bool,
    /// They grow.
    pub(super) jumps: Vec<Jump>,
}

/// A message where SEQs jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Jump {
    /// Its sequence in the log,
    pub(super) at: u64,
    /// and its number among the messages of the life.
    pub(super) number: u64,
}

impl Jump {
    /// The number of a message that is not before it, nor behind the next one.
    fn number_of(self, at: u64) -> u64 {
        self.number + (at - self.at)
    }
}

impl SequenceMapping {
    /// The SEQ of the first entry of a message.
    pub(super) fn seq(&self, at: u64) -> u64 {
        let before = self.jumps.iter().rfind(|jump| jump.at <= at);
        before.map_or(at, |jump| jump.number_of(at)) << PLACE_BITS
    }

    /// The SEQ that says that every entry of a message was applied.
    pub(super) fn last_seq(&self, at: u64) -> u64 {
        self.seq(at) | ENTRIES_MAX as u64
    }

    /// The message that a SEQ is of; `None` if that was lost, or was too long ago to know.
    pub(super) fn message_of(&self, seq: u64) -> Option<u64> {
        let number = seq >> PLACE_BITS;
        let passed = self.jumps.partition_point(|jump| jump.number <= number);
        let at = match passed.checked_sub(1) {
            None if self.is_cut => return None,
            None => number,
            Some(index) => self.jumps[index].at + (number - self.jumps[index].number),
        };
        self.jumps.get(passed).is_none_or(|next| at < next.at).then_some(at)
    }

    /// Whether SEQs may jump there next: only forward, and not too often.
    pub(super) fn is_continued_by(&self, jump: Jump) -> bool {
        let last = self.jumps.last();
        let is_behind = last.is_none_or(|last| last.at < jump.at);
        let number = last.filter(|_| is_behind).map_or(jump.at, |last| last.number_of(jump.at));
        is_behind && number < jump.number && self.jumps.len() < JUMPS_MAX
    }

    /// SEQs jump at this message, to this number at least.
    pub(super) fn jump(&mut self, at: u64, number: u64) {
        let number = number.max((self.seq(at) >> PLACE_BITS) + 1);
        if self.jumps.len() == JUMPS_MAX {
            self.jumps.remove(0);
            self.is_cut = true;
        }
        self.jumps.push(Jump { at, number });
    }

    /// As it was when this message was the last.
    pub(super) fn upto(&self, at: u64) -> SequenceMapping {
        let jumps = self.jumps.iter().filter(|jump| jump.at <= at);
        SequenceMapping { is_cut: self.is_cut, jumps: jumps.copied().collect() }
    }

    /// The first jump up to this message that `other` lacks.
    pub(super) fn lacked_by(&self, other: &SequenceMapping, upto: u64) -> Option<Jump> {
        let mut upto = self.jumps.iter().filter(|jump| jump.at <= upto);
        upto.find(|jump| !other.jumps.contains(jump)).copied()
    }

    /// Where SEQs jumped last; 0 if they never did.
    pub(super) fn last(&self) -> u64 {
        self.jumps.last().map_or(0, |jump| jump.at)
    }

    /// SEQs that are of nothing in the log, before each of the jumps that are remembered.
    pub(super) fn lost(&self) -> Vec<RangeInclusive<u64>> {
        let known = usize::from(self.is_cut);
        let range = |(index, jump): (usize, &Jump)| {
            let before = index.checked_sub(1).map(|before| self.jumps[before]);
            let begin = before.map_or(jump.at, |before| before.number_of(jump.at));
            begin << PLACE_BITS..=(jump.number << PLACE_BITS) - 1
        };
        self.jumps.iter().enumerate().skip(known).map(range).collect()
    }

    /// Whether one of these SEQs that were lost, among those of this line, is of another line.
    pub(super) fn contradicts(&self, lost: &[RangeInclusive<u64>]) -> bool {
        let own = self.lost();
        let [Some(first), Some(last)] = [own.first(), own.last()] else { return false };
        let mut among = lost.iter().filter(|it| (first.start()..=last.end()).contains(&it.start()));
        among.any(|range| !own.contains(range))
    }

    /// The line that has lost these, if that is all.
    pub(super) fn of_lost(lost: &[RangeInclusive<u64>]) -> SequenceMapping {
        let mut line = SequenceMapping::default();
        for range in lost {
            let begin = range.start() >> PLACE_BITS;
            let at = line.jumps.last().map_or(begin, |last| last.at + (begin - last.number));
            line.jump(at, (range.end() >> PLACE_BITS) + 1);
        }
        line
    }
}

/// Whether everything up to this SEQ includes every entry of its message.
pub(super) fn is_whole(seq: u64) -> bool {
    seq & ENTRIES_MAX as u64 == ENTRIES_MAX as u64
}

/// To which number SEQs are to jump in a life that has begun at this message so many milliseconds
/// ago.
pub(super) fn number_after(began: u64, age_ms: u64) -> u64 {
    began + age_ms.min(AGE_MAX_MS) * PER_MS
}

/// How many milliseconds old a life is, at least, that has begun at this message and has this SEQ:
/// behind which there is room for what was lost.
pub(super) fn age_of(began: u64, seq: u64) -> u64 {
    ((seq >> PLACE_BITS).saturating_sub(began) + LOST_MAX) / PER_MS
}

/// So many messages are not written in a millisecond: a node has one under way at a time. In a SEQ
/// of 53 bits there is room for seventeen years of them.
const PER_MS: u64 = 16;
const AGE_MAX_MS: u64 = 1 << 39;

/// No broker loses as many: at 6,000 in a second, which three nodes write, they are six minutes.
const LOST_MAX: u64 = 1 << 21;

/// So many are remembered: who was away for longer begins anew.
pub(super) const JUMPS_MAX: usize = 64;

/// So many entries are in a message at most: each has a number, and the last number is left for
/// "everything of it was applied".
pub(crate) const ENTRIES_MAX: usize = (1 << PLACE_BITS) - 1;

/// The SEQ of an entry is the sequence of its message, and so many bits for its place in it.
pub(crate) const PLACE_BITS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_has_seqs_that_nothing_else_has() {
        let mut line = SequenceMapping::default();
        assert_eq!(line.seq(7), 7 << 10);
        let before = line.clone();
        line.jump(10, 1_000);
        let between = line.clone();
        line.jump(12, 5_000);
        for (at, number) in [(0, 0), (9, 9), (10, 1_000), (11, 1_001), (12, 5_000), (99, 5_087)] {
            assert_eq!(line.seq(at), number << 10);
            assert_eq!(line.message_of(line.seq(at) | 1_023), Some(at));
        }
        for (lost, range) in [(&before, [10, 999]), (&between, [12, 3_000])] {
            for at in range {
                assert_eq!(line.message_of(lost.seq(at) | 1_023), None);
                let is_within =
                    |lost_range: &RangeInclusive<u64>| lost_range.contains(&lost.seq(at));
                assert_eq!(line.lost().iter().filter(|it| is_within(it)).count(), 1);
            }
        }
        assert_eq!(line.lost(), [10 << 10..=(1_000 << 10) - 1, 1_002 << 10..=(5_000 << 10) - 1]);
        assert_eq!(SequenceMapping::of_lost(&line.lost()), line);
        let lacked =
            |other: &SequenceMapping, upto| line.lacked_by(other, upto).map(|jump| jump.at);
        assert_eq!([lacked(&before, 9), lacked(&before, 10)], [None, Some(10)]);
        assert_eq!([11, 12].map(|upto| lacked(&line.upto(11), upto)), [None, Some(12)]);
        assert_eq!((line.last(), before.last()), (12, 0));
    }

    #[test]
    fn jumps_go_forward() {
        let mut line = SequenceMapping::default();
        let may_jump =
            |line: &SequenceMapping, at, number| line.is_continued_by(Jump { at, number });
        assert!(may_jump(&line, 10, 11));
        assert!(!may_jump(&line, 10, 10) && !may_jump(&line, 0, 0));
        line.jump(10, 100);
        assert!(may_jump(&line, 12, 103));
        assert!(!may_jump(&line, 12, 102) && !may_jump(&line, 10, 500));
        (2..=JUMPS_MAX as u64).for_each(|n| line.jump(n * 10, n * 1_000));
        assert!(!may_jump(&line, 10_000, 1 << 30));
    }

    #[test]
    fn numbers_only_grow_whatever_the_clock_says() {
        let mut line = SequenceMapping::default();
        line.jump(10, number_after(1, 1_000));
        let last = line.seq(99);
        line.jump(100, number_after(1, 0));
        assert!(line.seq(100) > last);
        let age_ms = age_of(1, last);
        assert!(number_after(1, age_ms) > (last >> PLACE_BITS) + LOST_MAX - 2 * PER_MS);
    }

    /// A SEQ has 53 bits.
    #[test]
    fn a_fast_clock_leaves_room_for_numbers() {
        assert_eq!(number_after(7, u64::MAX), 7 + (1 << 43));
    }

    #[test]
    fn jumps_that_are_forgotten_count() {
        let mut line = SequenceMapping::default();
        let many = JUMPS_MAX as u64 + 3;
        (1..=many).for_each(|n| line.jump(n * 10, n * 1_000));
        assert_eq!((line.is_cut, line.jumps.len()), (true, JUMPS_MAX));
        assert_eq!(line.message_of(line.seq(45)), Some(45));
        // Of before nothing is known.
        assert_eq!(line.message_of(11 << 10), None);
        assert_eq!(line.upto(45).seq(45), line.seq(45));
        assert_eq!(line.lost().len(), JUMPS_MAX - 1);
    }
}
