//! Frames: what is written at one go, and can be told from anything else.
//!
//! | bytes | field of a frame's head |
//! |---|---|
//! | 0..8 | hash of the rest of the head |
//! | 8..12 | `F5 53 46` and the kind: `E`, `P`, `R`, `H` or `Z`, as in [`Kind`] |
//! | 12..16 | length of the records behind the head |
//! | 16..24 | number of the file |
//! | 24..32 | everything below this offset of the file was on the disk before this was written |
//! | 32..40 | no number above this one was given out when this was written; at the end, the last |
//!
//! | bytes | field of a record |
//! |---|---|
//! | 0..4 | hash of the rest of the record, its lower half |
//! | 4..8 | length of the entry |
//! | 8..16 | its number, or that of the one before if it takes none |
//! | 16.. | the entry |
//!
//! All numbers are little-endian, all hashes XXH3-64 with a seed that follows from the number of
//! the file and the offset of the frame. So nothing verifies but what was written in this place of
//! this file: a segment may be written over what an older one left there. A record has a hash of
//! its own so that a bad bit costs one message, and what is read is hashed only once.

use twox_hash::XxHash3_64;

/// The contents of a frame. The frame has the byte that is beside it here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Entries; or nothing, when it only bears witness.
    Entries = b'E',
    /// One piece of a snapshot's payload. Its number is its place among them.
    Payload = b'P',
    /// The same, of which the piece before is the beginning.
    Rest = b'R',
    /// Nothing, where a piece of the payload was lost.
    Hole = b'H',
    /// Nothing: a snapshot is complete. Older programs closed a log so.
    End = b'Z',
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Entries, Kind::Payload, Kind::Rest, Kind::Hole, Kind::End];
}

/// The head of a frame that verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHead {
    pub(crate) kind: Kind,
    /// Of the whole frame.
    pub(crate) bytes: usize,
    pub(crate) synced: u64,
    pub(crate) reserved: u64,
}

/// Where a frame begins: in which file, and at which offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub(crate) number: u64,
    pub(crate) offset: u64,
}

impl Spot {
    fn hash(self, bytes: &[u8]) -> u64 {
        let seed = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.offset;
        XxHash3_64::oneshot_with_seed(seed, bytes)
    }
}

/// Begins a frame.
pub(crate) fn begin(kind: Kind, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; FRAME_BYTES]);
    let head = out.len() - FRAME_BYTES;
    out[head + 8..head + 11].copy_from_slice(MAGIC);
    out[head + 11] = kind as u8;
}

/// Appends a record. False, and nothing was appended, if it is too long for one.
pub(crate) fn put_record(seq: u64, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
    let begin = out.len();
    out.extend_from_slice(&[0; RECORD_BYTES]);
    encode(out);
    let length = out.len() - begin - RECORD_BYTES;
    if length > ENTRY_BYTES_MAX {
        out.truncate(begin);
        return false;
    }
    out[begin + 4..begin + 8].copy_from_slice(&(length as u32).to_le_bytes());
    out[begin + 8..begin + 16].copy_from_slice(&seq.to_le_bytes());
    true
}

/// Fills in what a frame says of itself, once it is known where it will stand.
pub(crate) fn seal(frame: &mut [u8], spot: Spot, synced: u64, reserved: u64) {
    let (head, body) = frame.split_at_mut(FRAME_BYTES);
    head[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[16..24].copy_from_slice(&spot.number.to_le_bytes());
    head[24..32].copy_from_slice(&synced.to_le_bytes());
    head[32..40].copy_from_slice(&reserved.to_le_bytes());
    let hash = spot.hash(&head[8..]);
    head[..8].copy_from_slice(&hash.to_le_bytes());
    let mut rest = body;
    while !rest.is_empty() {
        let (record, behind) = rest.split_at_mut(RECORD_BYTES + u32_at(rest, 4) as usize);
        let hash = spot.hash(&record[4..]) as u32;
        record[..4].copy_from_slice(&hash.to_le_bytes());
        rest = behind;
    }
}

/// Seals frames again that move to another place, one behind the other.
pub(crate) fn seal_again(mut frames: &mut [u8], mut spot: Spot, reserved: u64) {
    while !frames.is_empty() {
        let bytes = FRAME_BYTES + u32_at(frames, 12) as usize;
        let (frame, behind) = frames.split_at_mut(bytes);
        seal(frame, spot, 0, reserved);
        spot.offset += bytes as u64;
        frames = behind;
    }
}

/// Reads the head of a frame, if these bytes begin with one of this place.
pub(crate) fn head(bytes: &[u8], spot: Spot) -> Option<FrameHead> {
    let head = bytes.get(..FRAME_BYTES)?;
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == head[11])?;
    let synced = u64_at(head, 24);
    let is_ours = head[8..11] == *MAGIC && u64_at(head, 16) == spot.number && synced <= spot.offset;
    if !is_ours || spot.hash(&head[8..]) != u64_at(head, 0) {
        return None;
    }
    let bytes = FRAME_BYTES + u32_at(head, 12) as usize;
    Some(FrameHead { kind, bytes, synced, reserved: u64_at(head, 32) })
}

/// Whether these bytes look like the beginning of a frame of this file, whole or not.
pub(crate) fn looks_begun(bytes: &[u8], number: u64) -> bool {
    bytes.get(..24).is_some_and(|head| head[8..11] == *MAGIC && u64_at(head, 16) == number)
}

/// The offset of the next thing that may be the head of a frame, from the second byte on.
pub(crate) fn find(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes.get(9..)?, MAGIC).map(|found| found + 1)
}

/// Whether the records of a frame are whole, from the first to the last byte.
pub(crate) fn is_whole(mut body: &[u8], spot: Spot) -> bool {
    while !body.is_empty() {
        let Some(record) = record(body, spot) else { return false };
        body = &body[RECORD_BYTES + record.len()..];
    }
    true
}

/// The numbers and entries of records that verified.
pub(crate) fn records(mut body: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(body.get(..RECORD_BYTES)?, 4) as usize;
        let (record, behind) = body.split_at_checked(RECORD_BYTES + length)?;
        body = behind;
        Some((u64_at(record, 8), &record[RECORD_BYTES..]))
    })
}

/// Finds what verifies in the records of a frame that does not. `found` is told of each stretch of
/// bytes, in their order: the number and the entry of a record, or that there is none.
pub(crate) fn salvage(body: &[u8], spot: Spot, mut found: impl FnMut(usize, Option<(u64, &[u8])>)) {
    let (mut at, mut bad) = (0, 0);
    // Whoever made the file up may have made it expensive: in a real one nearly every place that
    // could be a record is one.
    let mut budget = body.len().saturating_mul(64);
    while at < body.len() {
        let rest = &body[at..];
        let claimed = rest.get(..RECORD_BYTES).map_or(0, |record| u32_at(record, 4) as usize);
        let entry = if claimed <= budget { record(rest, spot) } else { None };
        if claimed <= rest.len() {
            budget = budget.saturating_sub(claimed);
        }
        let Some(entry) = entry else {
            at += 1;
            continue;
        };
        if bad < at {
            found(at - bad, None);
        }
        found(RECORD_BYTES + entry.len(), Some((u64_at(rest, 8), entry)));
        at += RECORD_BYTES + entry.len();
        bad = at;
    }
    if bad < at {
        found(at - bad, None);
    }
}

/// The entry of the record that these bytes begin with, if it verifies.
fn record(bytes: &[u8], spot: Spot) -> Option<&[u8]> {
    let length = u32_at(bytes.get(..RECORD_BYTES)?, 4) as usize;
    let record = bytes.get(..RECORD_BYTES + length)?;
    (spot.hash(&record[4..]) as u32 == u32_at(record, 0)).then(|| &record[RECORD_BYTES..])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Bytes of a frame's head, which is all of an empty frame.
pub(crate) const FRAME_BYTES: usize = 40;

/// What a record has before its entry.
pub(crate) const RECORD_BYTES: usize = 16;

/// The longest entry: with a buffer of any sensible size before it, a frame is shorter than 4 GiB.
pub(crate) const ENTRY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

const MAGIC: &[u8; 3] = b"\xf5SF";
