//! The messages that are published, and how each reader checks them.
//!
//! Every message carries a [`Stamp`]: which run it is of, its number in the run, and when it was
//! published. The reader looks for stamps in whatever bytes it gets, with a [`Finder`], so it need
//! not know how a server wraps what was published: as data of an event, in an envelope of JSON, as
//! a value. A stamp is therefore made of bytes that JSON, forms and URLs leave as they are.
//!
//! What a reader has had is kept in a [`Ledger`]. There may be a million of them, so each is 24
//! bytes: a count, and a bitmap of the newest 64 numbers. That is exact while a message is less
//! than 64 behind the newest. What comes later is judged against the reader: it is not believed to
//! have been delivered unless that is certain, so a run may look worse than it was, never better.

use std::io::Write;

use memchr::memmem;

/// Length of a stamp in bytes: the shortest message.
pub const STAMP_BYTES: usize = 38;

/// What a message says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// A number made for the run, so that what is left of another is not taken for this one's.
    pub run: u32,
    /// Its number in the run, from 1.
    pub number: u32,
    /// When it was published, in nanoseconds since whatever moment the run counts from.
    pub published_ns: u64,
}

impl Stamp {
    /// Appends the message: the stamp, as `sb-RRRRRRRR-NNNNNNNN-TTTTTTTTTTTTTTTT.` with digits of
    /// lower-case hexadecimal, and dots up to `size` bytes. It is never shorter than
    /// [`STAMP_BYTES`].
    pub fn render(&self, out: &mut Vec<u8>, size: usize) {
        let start = out.len();
        let Stamp { run, number, published_ns } = self;
        write!(out, "sb-{run:08x}-{number:08x}-{published_ns:016x}.")
            .expect("a vector takes whatever is written");
        out.resize(start + size.max(STAMP_BYTES), b'.');
    }
}

/// Finds the stamps of one run.
#[derive(Clone, Debug)]
pub struct Finder {
    run: u32,
    /// What a stamp of the run begins with, up to its number.
    start: memmem::Finder<'static>,
}

impl Finder {
    /// A finder for the stamps of `run`.
    pub fn new(run: u32) -> Finder {
        let start = memmem::Finder::new(&format!("sb-{run:08x}-")).into_owned();
        Finder { run, start }
    }

    /// The stamps that are whole in `bytes`, in the order they stand there. Those of other runs are
    /// passed over, and so is one that is cut: whoever reads in pieces must keep together what
    /// belongs together.
    pub fn find(&self, bytes: &[u8]) -> impl Iterator<Item = Stamp> {
        self.start.find_iter(bytes).filter_map(|at| {
            let rest = bytes[at..].first_chunk::<STAMP_BYTES>()?.get(NUMBER_AT..)?;
            let (number, rest) = rest.split_at(8);
            let published = rest.strip_prefix(b"-")?.strip_suffix(b".")?;
            let number = u32::try_from(hex(number)?).ok()?;
            Some(Stamp { run: self.run, number, published_ns: hex(published)? })
        })
    }
}

/// What a message is to a reader that gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// Newer than all before. Those that were skipped count as missing until they come.
    New,
    /// Skipped before, and here after all, for the first time.
    Late,
    /// Here before.
    Duplicate,
    /// 64 or more behind the newest, while something as old is missing: whether this is it cannot
    /// be told. It counts for nothing, so what is missing stays missing. Nor does number 0, which
    /// no reader is due.
    Untold,
}

/// What one reader has had.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Bit `n` is set if the reader has had the message `n` before the newest.
    window: u64,
    /// The newest number it has had; 0 before the first.
    newest: u32,
    /// How many different ones it has had.
    seen: u32,
    /// Whether something came that was not newer than all before it.
    irregular: bool,
}

impl Ledger {
    /// Notes that the reader got message `number`. Numbers begin with 1; no reader is due a 0.
    pub fn note(&mut self, number: u32) -> Note {
        if number == 0 {
            return Note::Untold;
        }
        if let Some(ahead @ 1..) = number.checked_sub(self.newest) {
            self.window = self.window.checked_shl(ahead).unwrap_or(0) | 1;
            self.newest = number;
            self.seen += 1;
            return Note::New;
        }
        self.irregular = true;
        match 1u64.checked_shl(self.newest - number) {
            Some(bit) if self.window & bit != 0 => Note::Duplicate,
            Some(bit) => {
                self.window |= bit;
                self.seen += 1;
                Note::Late
            }
            None if self.missing_behind_window() == 0 => Note::Duplicate,
            None => Note::Untold,
        }
    }

    /// The newest number it has had; 0 before the first.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// How many messages the reader is due and has not had, if those up to number `published` were
    /// published.
    pub fn missing(&self, published: u32) -> u32 {
        published.max(self.newest) - self.seen
    }

    /// Whether the reader has had every message up to number `published` exactly once, in order.
    pub fn is_perfect(&self, published: u32) -> bool {
        !self.irregular && self.missing(published) == 0
    }

    /// How many of those it is due are missing that the window does not reach.
    fn missing_behind_window(&self) -> u32 {
        let due = self.newest.saturating_sub(u64::BITS);
        due - (self.seen - self.window.count_ones())
    }
}

/// The number that digits of lower-case hexadecimal make, at most 16 of them.
fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number: u64, &digit| match digit {
        b'0'..=b'9' => Some(number << 4 | u64::from(digit - b'0')),
        b'a'..=b'f' => Some(number << 4 | u64::from(digit - b'a' + 10)),
        _ => None,
    })
}

/// Where in a stamp its number begins.
const NUMBER_AT: usize = 12;

const _: () = assert!(size_of::<Ledger>() == 24, "there is one for each of a million readers");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn rendered(stamp: Stamp, size: usize) -> String {
        let mut out = Vec::new();
        stamp.render(&mut out, size);
        String::from_utf8(out).unwrap()
    }

    fn found(run: u32, text: &str) -> Vec<u32> {
        Finder::new(run).find(text.as_bytes()).map(|stamp| stamp.number).collect()
    }

    #[test]
    fn a_stamp_has_its_form_and_any_size_above_it() {
        let stamp = Stamp { run: 0xbeef, number: 42, published_ns: 0x0123_4567_89ab_cdef };
        assert_eq!(rendered(stamp, 0), "sb-0000beef-0000002a-0123456789abcdef.");
        assert_eq!(rendered(stamp, 0).len(), STAMP_BYTES);
        assert_eq!(rendered(stamp, STAMP_BYTES), rendered(stamp, 0));
        assert_eq!(rendered(stamp, 100), format!("{:.<100}", rendered(stamp, 0)));
    }

    #[test]
    fn stamps_are_found_in_whatever_they_are_wrapped_in() {
        let stamp = |run, number| rendered(Stamp { run, number, published_ns: 7 }, 60);
        let (one, two, other) = (stamp(5, 1), stamp(5, 2), stamp(6, 3));
        let wrapped = format!("id: sb-00000005-\ndata: {{\"a\":\"{one}\"}}\n\n{other}{two}sb-");
        assert_eq!(found(5, &wrapped), [1, 2]);
        assert_eq!(found(6, &wrapped), [3]);
        assert!(found(7, &wrapped).is_empty());
        for cut in 0..STAMP_BYTES {
            assert!(found(5, &one[..cut]).is_empty(), "cut at {cut}");
            assert_eq!(found(5, &format!("{}{two}", &one[..cut])), [2], "cut at {cut}");
        }
        for broken in [
            "sb-00000005-0000000g-0000000000000007.",
            "sb-00000005-0000000A-0000000000000007.",
            "sb-00000005-+0000001-0000000000000007.",
            "sb-00000005-00000001_0000000000000007.",
            "sb-00000005-00000001-0000000000000007,",
            "sb-00000005-00000001-00000000000000 7.",
        ] {
            assert!(found(5, broken).is_empty(), "{broken}");
        }
    }

    #[test]
    fn what_comes_late_or_again_is_told_apart() {
        let mut ledger = Ledger::default();
        let notes = [1, 2, 4, 3, 3, 4, 68, 5, 4].map(|number| ledger.note(number));
        use Note::{Duplicate, Late, New};
        assert_eq!(notes, [New, New, New, Late, Duplicate, Duplicate, New, Late, Duplicate]);
        assert_eq!(ledger.missing(68), 62);
        assert_eq!(ledger.missing(70), 64);
        assert_eq!(ledger.missing(0), 62, "what was seen was published");
    }

    #[test]
    fn a_complete_reader_knows_a_duplicate_of_any_age() {
        let mut ledger = Ledger::default();
        assert!((1..=1000).all(|number| ledger.note(number) == Note::New));
        assert!(ledger.is_perfect(1000) && !ledger.is_perfect(1001));
        assert_eq!(ledger.note(0), Note::Untold, "it is not due that one");
        assert!(ledger.is_perfect(1000));
        assert_eq!(ledger.note(1), Note::Duplicate);
        assert_eq!(ledger.missing(1000), 0);
        assert!(!ledger.is_perfect(1000), "it was repeated");
    }

    #[test]
    fn what_is_too_old_to_tell_stays_missing() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(1), Note::New);
        assert_eq!(ledger.note(100), Note::New);
        assert_eq!(ledger.note(37), Note::Late, "the oldest in the window");
        assert_eq!(ledger.note(36), Note::Untold);
        assert_eq!(ledger.note(1), Note::Untold);
        assert_eq!(ledger.missing(100), 97);
        assert_eq!(ledger.note(u32::MAX), Note::New);
        assert_eq!(ledger.missing(u32::MAX), u32::MAX - 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_stamp_is_found_as_it_was_rendered(
            run: u32, number: u32, published_ns: u64, size in 0..200usize, before: String,
        ) {
            let stamp = Stamp { run, number, published_ns };
            let text = format!("{before}{}{before}", rendered(stamp, size));
            let stamps: Vec<_> = Finder::new(run).find(text.as_bytes()).collect();
            prop_assert_eq!(stamps, [stamp]);
        }

        #[test]
        fn a_finder_takes_any_bytes(mut bytes in vec(any::<u8>(), 0..100), at in 0..100usize) {
            let at = at.min(bytes.len());
            bytes.splice(at..at, *b"sb-00000000-");
            Finder::new(0).find(&bytes).for_each(drop);
        }

        /// A set of all numbers knows everything. The ledger must know the same, unless it says
        /// that it cannot tell, and that only of what is old while something old is missing.
        #[test]
        fn a_ledger_agrees_with_a_set(
            steps in vec(prop_oneof![8 => -3..4i64, 2 => -70..70i64, 1 => -300..300i64], 0..300),
        ) {
            let mut ledger = Ledger::default();
            let mut set = HashSet::new();
            let mut believed = 0;
            let (mut newest, mut in_order, mut at) = (0, true, 0);
            for step in steps {
                at = (at + step).max(0);
                let number = u32::try_from(at).unwrap();
                let note = ledger.note(number);
                if number == 0 {
                    prop_assert_eq!(note, Note::Untold);
                    continue;
                }
                let is_new = number > newest;
                let known = !set.insert(number);
                newest = newest.max(number);
                in_order &= is_new;
                let is_old = newest - number >= 64;
                match note {
                    Note::New => prop_assert!(is_new),
                    Note::Late => prop_assert!(!is_new && !known && !is_old),
                    Note::Duplicate => prop_assert!(known),
                    Note::Untold => prop_assert!(is_old),
                }
                believed += u32::from(matches!(note, Note::New | Note::Late));
                let missing = newest - u32::try_from(set.len()).unwrap();
                prop_assert!(ledger.missing(newest) >= missing, "a loss is never hidden");
                prop_assert_eq!(ledger.missing(newest + 7), newest + 7 - believed);
                if believed as usize == set.len() {
                    prop_assert_eq!(ledger.missing(newest), missing);
                }
                prop_assert_eq!(ledger.is_perfect(newest), in_order && missing == 0);
            }
        }
    }
}
