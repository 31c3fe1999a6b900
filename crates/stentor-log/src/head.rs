//! Heads: what a file of a store says of itself, and what files are called.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `stentorS` |
//! | 8..12 | version of the format, 1 |
//! | 12..16 | length of the head |
//! | 16..24 | hash of what follows: XXH3-64 |
//! | 24..28 | what it is: 1 a segment, 2 a snapshot, 3 a snapshot with no log behind it |
//! | 28..32 | EPOCH |
//! | 32..40 | its number: of a snapshot, that of the first segment that belongs behind it |
//! | 40..48 | length of the file; of a snapshot 0 |
//! | 48..56 | the segment before, or 0: those in between, if there are any, do not count |
//! | 56..64 | and the offset where that one ended: what is behind does not count |
//! | 64..72 | no number in this file is below this one |
//! | 72..80 | no number above this one was given out when the file was begun |
//! | 80.. | lost ranges: the first and the last number of each |
//!
//! Numbers are little-endian. Everything in a head was on the disk before the file got its name,
//! so a head that does not verify is damage.

use crate::frame::{u32_at, u64_at};
use std::fmt::Write;
use std::ops::RangeInclusive;
use twox_hash::XxHash3_64;

/// The kind of a file. Its head has the number that is beside it here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Segment = 1,
    Snapshot = 2,
    /// A snapshot that is a whole store: its entries are in it.
    Whole = 3,
}

impl What {
    const ALL: [What; 3] = [What::Segment, What::Snapshot, What::Whole];
}

/// The head of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) what: What,
    pub(crate) epoch: u32,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) before: Cut,
    pub(crate) last: u64,
    pub(crate) reserved: u64,
    pub(crate) lost: Vec<RangeInclusive<u64>>,
}

/// Where a segment ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Cut {
    pub(crate) number: u64,
    pub(crate) end: u64,
}

/// The files of a store, as a start finds them, a store keeps them, and the next process is told.
#[derive(Clone, Default, Debug)]
pub(crate) struct Layout {
    /// The greatest number of a file.
    pub(crate) highest: u64,
    /// Bytes of files that no longer count.
    pub(crate) stale_bytes: u64,
    /// The snapshot, which ends with its file; its number is 0 if there is none.
    pub(crate) base: Cut,
    /// Segments behind the snapshot that have ended.
    pub(crate) closed: Vec<Cut>,
    /// Where the newest segment would end if it ended now: what is known to be on the disk.
    pub(crate) cut: Cut,
}

/// Why bytes are not the head of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoHead {
    /// It is of another version.
    Version(u32),
    /// It does not verify, for this reason.
    Damaged(&'static str),
}

impl Head {
    /// The bytes of the head.
    ///
    /// # Panics
    /// If there are more than [`LOST_MAX`] lost ranges: [`Head::parse`] would refuse the head, and
    /// no start could read the store.
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.lost.len() <= LOST_MAX, "a head has no room for so many lost ranges");
        let mut out = Vec::with_capacity(FIXED_BYTES + 16 * self.lost.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&(self.what as u32).to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        let Cut { number, end } = self.before;
        let fixed = [self.number, self.bytes, number, end, self.last, self.reserved];
        let lost = self.lost.iter().flat_map(|range| [*range.start(), *range.end()]);
        fixed.into_iter().chain(lost).for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        let length = out.len() as u32;
        out[12..16].copy_from_slice(&length.to_le_bytes());
        let hash = hash(&out);
        out[16..24].copy_from_slice(&hash.to_le_bytes());
        out
    }

    /// Reads the head of the file of this number, and says how long it is.
    pub(crate) fn parse(bytes: &[u8], number: u64) -> Result<(Head, u64), NoHead> {
        let damaged = Err(NoHead::Damaged("its head does not verify"));
        if bytes.len() < FIXED_BYTES || bytes[..8] != *MAGIC {
            return Err(NoHead::Damaged("it does not begin as a file of a store does"));
        }
        let version = u32_at(bytes, 8);
        let length = u32_at(bytes, 12) as usize;
        let is_length =
            (FIXED_BYTES..=HEAD_BYTES_MAX).contains(&length) && length.is_multiple_of(16);
        let head = bytes.get(..length).filter(|head| is_length && hash(head) == u64_at(head, 16));
        let head = match head {
            Some(head) if version == VERSION => head,
            // mutation: damaged-version
            None if version != VERSION => return Err(NoHead::Version(version)),
            // If it verifies, the bytes that say which version it is are damaged.
            _ => return damaged,
        };
        let is_it = |what: &What| *what as u32 == u32_at(head, 24);
        let Some(what) = What::ALL.into_iter().find(is_it) else { return damaged };
        let lost = head[FIXED_BYTES..].chunks_exact(16);
        let lost = lost.map(|range| u64_at(range, 0)..=u64_at(range, 8)).collect();
        let head = Head {
            what,
            epoch: u32_at(head, 28),
            number: u64_at(head, 32),
            bytes: u64_at(head, 40),
            before: Cut { number: u64_at(head, 48), end: u64_at(head, 56) },
            last: u64_at(head, 64),
            reserved: u64_at(head, 72),
            lost,
        };
        if head.number != number || head.before.number >= number {
            return Err(NoHead::Damaged("it has the name of another file"));
        }
        Ok((head, length as u64))
    }
}

/// The hash of what is behind it in a head. It is seeded with the version, so that a head of
/// another one verifies with none of this.
fn hash(head: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(VERSION), head.get(24..).unwrap_or_default())
}

/// Makes the hash of a head fit what is in it, and says how long it is.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fit(bytes: &mut [u8]) -> Option<usize> {
    let length = u32_at(bytes.get(..FIXED_BYTES)?, 12) as usize;
    let hash = hash(bytes.get(..length)?);
    bytes[16..24].copy_from_slice(&hash.to_le_bytes());
    Some(length)
}

/// Adds a range to those that are lost. There may be so many; then the two oldest become one,
/// with what is between them: a reader who was there is told of a gap where there was none, and no
/// reader is told of none where there is one. The oldest cannot be left out: its readers may come
/// back after years, to a topic that has not changed since.
pub(crate) fn add_lost(lost: &mut Vec<RangeInclusive<u64>>, range: RangeInclusive<u64>) {
    match lost.last_mut() {
        Some(last) if *range.start() <= last.end().saturating_add(1) => {
            *last = *last.start()..=*range.end();
        }
        _ => lost.push(range),
    }
    if lost.len() > LOST_MAX {
        lost[1] = *lost[0].start()..=*lost[1].end();
        lost.remove(0);
    }
}

/// Names of files: a word and a number.
pub(crate) fn name(word: &str, number: u64) -> String {
    let mut name = String::with_capacity(word.len() + 13);
    write!(name, "{word}-{number:012}").expect("a string takes everything");
    name
}

/// The number in a name, if it is one of this word.
pub(crate) fn number(word: &str, file: &str) -> Option<u64> {
    let digits = file.strip_prefix(word)?.strip_prefix('-')?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (name(word, number) == file).then_some(number)
}

/// Whether it is the name of a file that was given up before it had one.
pub(crate) fn is_unnamed(file: &str) -> bool {
    let is_of = |word| file.strip_suffix(UNNAMED).and_then(|file| number(word, file)).is_some();
    is_of(LOG) || is_of(SNAPSHOT)
}

pub(crate) const LOG: &str = "log";
pub(crate) const SNAPSHOT: &str = "snapshot";
/// Files that have their blocks and wait to become segments. Only what this process put there is
/// used: nobody knows whether the name of another has come to the disk, or which other it has.
pub(crate) const SPARE: &str = "spare";
/// A file that takes room for a snapshot on a full disk.
pub(crate) const RESERVE: &str = "reserve";
/// What is put before the name of a file that a repair keeps aside.
pub(crate) const DAMAGED: &str = "damaged-";
/// What is put behind the name of a file that has not earned it yet.
pub(crate) const UNNAMED: &str = ".tmp";

/// As many ranges are kept: a start after a crash makes one.
pub(crate) const LOST_MAX: usize = 256;

pub(crate) const HEAD_BYTES_MAX: usize = FIXED_BYTES + 16 * LOST_MAX;

const FIXED_BYTES: usize = 80;
const MAGIC: &[u8; 8] = b"stentorS";
const VERSION: u32 = 1;
