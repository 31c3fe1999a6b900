//! Snapshots and feeds as bytes that go from one server to another: nothing here knows a disk.
//!
//! A *snapshot* is byte for byte the file of a whole store (`snapshot.rs`), so whoever keeps what
//! was sent has a backup: a directory with this file alone is a store. A *feed* is frames of
//! entries, one behind the other, without a head and without an end. Where a frame of a file
//! verifies in its place alone, one of a feed does anywhere: it is the same bytes for all who read
//! it. A frame of a feed says up to which number everything was sent once it is there; if it has
//! no entries, it says that alone.
//!
//! What is read here comes over a network. No length is believed before it has verified, and
//! whoever reads says how much of it there may be.

use crate::frame::{self, FRAME_BYTES, Kind, Spot, u64_at};
use crate::head::{HEAD_BYTES_MAX, Head, What};
use crate::recovery::Piece;
use crate::snapshot::{PIECE_BYTES_MAX, WHOLE_NUMBER, whole};
use std::ops::RangeInclusive;

/// A snapshot that is being sent.
#[derive(Debug)]
pub struct SnapshotEncoder {
    /// The number of the file.
    number: u64,
    /// How long it is so far.
    pub(crate) offset: u64,
    pieces: u64,
    /// The number of the last entry.
    seq: u64,
}

impl SnapshotEncoder {
    /// Begins a snapshot that was begun at the number `seq` of this life, in which the numbers of
    /// `lost` were given to what is no more.
    #[must_use]
    pub fn begin(
        epoch: u32,
        seq: u64,
        lost: Vec<RangeInclusive<u64>>,
        out: &mut Vec<u8>,
    ) -> SnapshotEncoder {
        let head = Head { last: seq, lost, ..whole(WHOLE_NUMBER, epoch) };
        SnapshotEncoder::of(&head, out)
    }

    /// Begins a snapshot with this head.
    pub(crate) fn of(head: &Head, out: &mut Vec<u8>) -> SnapshotEncoder {
        let bytes = head.encode();
        out.extend_from_slice(&bytes);
        let (number, seq) = (head.number, head.last);
        SnapshotEncoder { number, offset: bytes.len() as u64, pieces: 0, seq }
    }

    /// Adds a piece of the payload.
    pub fn payload(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for (kind, piece) in pieces(Kind::Payload, bytes) {
            self.piece(kind, piece, out);
        }
    }

    /// Adds a frame of the payload.
    pub(crate) fn piece(&mut self, kind: Kind, piece: &[u8], out: &mut Vec<u8>) {
        let at = begin(kind, out);
        frame::put_record(self.pieces, out, |out| out.extend_from_slice(piece));
        self.pieces += 1;
        self.seal(&mut out[at..], 0);
    }

    /// Adds a frame without records.
    pub(crate) fn empty(&mut self, kind: Kind, reserved: u64, out: &mut Vec<u8>) {
        let at = begin(kind, out);
        self.seal(&mut out[at..], reserved);
    }

    /// Adds entries behind all of the payload, in one frame. Those come in the order of their
    /// numbers.
    pub fn entries<'e>(
        &mut self,
        entries: impl Iterator<Item = (u64, &'e [u8])>,
        out: &mut Vec<u8>,
    ) {
        let at = begin(Kind::Entries, out);
        for (seq, entry) in entries {
            self.seq = self.seq.max(seq);
            frame::put_record(seq, out, |out| out.extend_from_slice(entry));
        }
        match out.len() - at {
            FRAME_BYTES => out.truncate(at),
            _ => self.seal(&mut out[at..], 0),
        }
    }

    /// Ends it: numbers up to `last` were given out.
    pub fn end(mut self, last: u64, out: &mut Vec<u8>) {
        self.empty(Kind::End, last.max(self.seq), out);
    }

    /// Ends a frame.
    pub(crate) fn seal(&mut self, frame: &mut [u8], reserved: u64) {
        frame::seal(frame, Spot { number: self.number, offset: self.offset }, 0, reserved);
        self.offset += frame.len() as u64;
    }
}

/// What a snapshot says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotHead {
    /// The life of the numbers.
    pub epoch: u32,
    /// The number at which it was begun.
    pub seq: u64,
    /// Numbers that were given to what is no more: readers may have seen it.
    pub lost: Vec<RangeInclusive<u64>>,
}

/// A snapshot that is being received.
#[derive(Debug)]
pub struct SnapshotDecoder {
    /// No frame may be longer.
    frame_bytes_max: usize,
    offset: u64,
    begun: Option<SnapshotHead>,
    /// The number of the last entry.
    seq: u64,
    ended: Option<u64>,
}

impl SnapshotDecoder {
    /// One that takes no frame which is longer.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> SnapshotDecoder {
        SnapshotDecoder { frame_bytes_max, offset: 0, begun: None, seq: 0, ended: None }
    }

    /// What it says of itself, once that was read.
    #[must_use]
    pub fn begun(&self) -> Option<&SnapshotHead> {
        self.begun.as_ref()
    }

    /// The last number that was given out, once all of it was read.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        self.ended
    }

    /// Takes what is whole from the beginning of `bytes`, shows it, and returns how many bytes that
    /// were: the rest is to be given again, with more behind it.
    ///
    /// # Errors
    ///
    /// One sentence, if this is no snapshot; or what `visit` says.
    pub fn read(
        &mut self,
        bytes: &[u8],
        visit: &mut dyn FnMut(Piece<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut rest = bytes;
        if self.begun.is_none() {
            let Some(behind) = self.read_head(rest)? else { return Ok(0) };
            rest = behind;
        }
        while !rest.is_empty() {
            if self.ended.is_some() {
                return Err("there is something behind the end of the snapshot".to_owned());
            }
            let spot = Spot { number: WHOLE_NUMBER, offset: self.offset };
            let Some((kind, reserved, body)) = whole_frame(rest, spot, self.frame_bytes_max)?
            else {
                break;
            };
            for (seq, record) in frame::records(body) {
                visit(match kind {
                    Kind::Payload => Piece::Payload(record),
                    Kind::Rest => Piece::Rest(record),
                    Kind::Entries if seq < self.seq => {
                        return Err("an entry's number is below the one before".to_owned());
                    }
                    Kind::Entries => {
                        self.seq = seq;
                        Piece::Entry(seq, record)
                    }
                    Kind::Hole | Kind::End => return Err(OTHER.to_owned()),
                })?;
            }
            match kind {
                Kind::End => self.ended = Some(reserved),
                // What has holes was repaired, and is of nobody who can be followed.
                Kind::Hole => return Err(OTHER.to_owned()),
                Kind::Payload | Kind::Rest | Kind::Entries => {}
            }
            let used = FRAME_BYTES + body.len();
            self.offset += used as u64;
            rest = &rest[used..];
        }
        Ok(bytes.len() - rest.len())
    }

    fn read_head<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, String> {
        let Some(start) = bytes.first_chunk::<16>() else { return Ok(None) };
        let length = frame::u32_at(start, 12) as usize;
        if length > HEAD_BYTES_MAX {
            return Err(NO_SNAPSHOT.to_owned());
        }
        if bytes.len() < length {
            return Ok(None);
        }
        let (head, length) =
            Head::parse(bytes, WHOLE_NUMBER).map_err(|_| NO_SNAPSHOT.to_owned())?;
        let Head { epoch, last, lost, what: What::Whole, .. } = head else {
            return Err(NO_SNAPSHOT.to_owned());
        };
        self.seq = last;
        self.begun = Some(SnapshotHead { epoch, seq: last, lost });
        self.offset = length;
        Ok(Some(&bytes[length as usize..]))
    }
}

/// A frame of a feed that is being put together at the end of some bytes.
#[must_use]
#[derive(Debug)]
pub struct FeedEncoder {
    at: usize,
}

impl FeedEncoder {
    /// Begins a frame.
    pub fn begin(out: &mut Vec<u8>) -> FeedEncoder {
        FeedEncoder { at: begin(Kind::Entries, out) }
    }

    /// Adds an entry and its number, or that of the one before if it takes none. False, and nothing
    /// was added, if it is too long for any.
    pub fn entry(&self, seq: u64, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        frame::put_record(seq, out, encode)
    }

    /// Whether there are entries in it.
    #[must_use]
    pub fn is_empty(&self, out: &[u8]) -> bool {
        out.len() == self.at + FRAME_BYTES
    }

    /// Ends it: with it, everything up to a number was sent that there was so long ago.
    pub fn seal(self, upto: u64, age_ms: u64, out: &mut [u8]) {
        frame::seal(&mut out[self.at..], Spot { number: age_ms, ..ANYWHERE }, 0, upto);
    }
}

/// A frame of a feed.
#[derive(Clone, Copy, Debug)]
pub struct FeedFrame<'b> {
    /// With this frame everything up to here was sent.
    pub upto: u64,
    /// How many milliseconds old that is, at its sender.
    pub age_ms: u64,
    /// How many bytes it has.
    pub bytes: usize,
    body: &'b [u8],
}

impl<'b> FeedFrame<'b> {
    /// Its entries and their numbers.
    pub fn records(&self) -> impl Iterator<Item = (u64, &'b [u8])> + use<'b> {
        frame::records(self.body)
    }
}

/// Reads the frame that `bytes` begin with; `None` if it is not whole yet.
///
/// # Errors
///
/// One sentence, if this is none, or one that is longer than `bytes_max`.
pub fn read_feed_frame(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<Option<FeedFrame<'_>>, &'static str> {
    let age_ms = if bytes.len() < FRAME_BYTES { 0 } else { u64_at(bytes, 16) };
    match whole_frame(bytes, Spot { number: age_ms, ..ANYWHERE }, bytes_max)? {
        None => Ok(None),
        Some((Kind::Entries, upto, body)) => {
            Ok(Some(FeedFrame { upto, age_ms, bytes: FRAME_BYTES + body.len(), body }))
        }
        Some(_) => Err(OTHER),
    }
}

/// Its kind, its number, its records.
type WholeFrame<'a> = (Kind, u64, &'a [u8]);

/// The frame that `bytes` begin with, if it is whole.
fn whole_frame(
    bytes: &[u8],
    spot: Spot,
    bytes_max: usize,
) -> Result<Option<WholeFrame<'_>>, &'static str> {
    if bytes.len() < FRAME_BYTES {
        return Ok(None);
    }
    let head = frame::head(bytes, spot).ok_or(DAMAGED)?;
    if head.bytes > bytes_max {
        return Err("a frame is longer than any may be");
    }
    let Some(body) = bytes.get(FRAME_BYTES..head.bytes) else { return Ok(None) };
    if !frame::is_whole(body, spot) {
        return Err(DAMAGED);
    }
    Ok(Some((head.kind, head.reserved, body)))
}

/// What is too long for one frame in several.
pub(crate) fn pieces(kind: Kind, bytes: &[u8]) -> impl Iterator<Item = (Kind, &[u8])> {
    let kinds = std::iter::once(kind).chain(std::iter::repeat(Kind::Rest));
    kinds.zip(bytes.chunks(PIECE_BYTES_MAX))
}

fn begin(kind: Kind, out: &mut Vec<u8>) -> usize {
    let at = out.len();
    frame::begin(kind, out);
    at
}

const NO_SNAPSHOT: &str = "this is no snapshot, or one of a version that is not known";
const DAMAGED: &str = "something does not verify";
const OTHER: &str = "a frame is of a kind that does not belong here";

/// Where frames of feeds stand.
const ANYWHERE: Spot = Spot { number: 0, offset: 0 };

#[cfg(test)]
mod tests;
