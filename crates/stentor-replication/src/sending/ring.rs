//! The latest entries as bytes, in frames that all who read them share.
//!
//! A frame is sent as a chunk of an answer (RFC 9112, section 7.1), so it is kept as one. Frames go
//! as the ring gets too long; what is in them is known no more. What is known is everything behind
//! a number, the floor, and the changes of rules since: these have the number of the entry before
//! them, so of the floor itself it may not be known whether one came after it.

use std::collections::VecDeque;
use std::sync::Arc;
use stentor_hub::{Epoch, Id, Rule, entry_topic};
use stentor_io::limits_are_small;
use stentor_log::{FeedEncoder, FeedFrame, read_feed_frame};
use stentor_order::HubChange;

/// The latest entries.
pub(super) struct Ring {
    epoch: Epoch,
    frames: VecDeque<RingFrame>,
    /// The place of the first of them.
    first: Place,
    bytes: usize,
    bytes_max: usize,
    /// Every message and deletion behind this number is here,
    floor: u64,
    /// and every change of rules behind the last that is not here, which has this number.
    rules_lost: Option<u64>,
    /// The number of the last entry.
    last: u64,
    /// Everything up to this number is here, or was.
    upto: u64,
}

/// A place among all frames that a ring ever had.
pub(super) type Place = u64;

struct RingFrame {
    upto: u64,
    chunk: Arc<[u8]>,
    /// The number of the last change of rules in it.
    rules: Option<u64>,
}

/// A frame, and where the next one is.
pub(super) struct RingPart<'r> {
    pub(super) chunk: &'r Arc<[u8]>,
    pub(super) upto: u64,
    pub(super) next: Place,
}

/// What was at a place is not known any more.
#[derive(Debug)]
pub(super) struct Lost;

/// What came does not go on where the ring ended: the order is another.
#[derive(Debug)]
pub(super) struct Another;

impl Ring {
    /// One that begins at a number, with the rules that are in force.
    pub(super) fn begin(begin: Id, rules: (u64, Vec<Rule>)) -> Ring {
        let Id { epoch, seq: begin } = begin;
        let mut ring = Ring {
            epoch,
            frames: VecDeque::new(),
            first: 0,
            bytes: 0,
            bytes_max: usize::MAX,
            floor: begin,
            rules_lost: None,
            last: begin,
            upto: begin,
        };
        // Whoever goes on from this very number may not know them.
        let (generation, rules) = rules;
        let _ = ring.extend([HubChange::Rules(generation, rules.into())]);
        ring
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Everything up to here is in it, or was.
    pub(super) fn id(&self) -> Id {
        Id { epoch: self.epoch, seq: self.upto }
    }

    pub(super) fn upto(&self) -> u64 {
        self.upto
    }

    /// Nothing has a number between the last entry and this one.
    pub(super) fn note(&mut self, upto: u64) {
        self.upto = self.upto.max(upto);
    }

    /// It takes no more than that from now on, but for the last frame.
    pub(super) fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.trim();
    }

    /// Adds entries.
    ///
    /// # Errors
    /// [`Another`]
    pub(super) fn extend(
        &mut self,
        changes: impl IntoIterator<Item = HubChange>,
    ) -> Result<(), Another> {
        let mut chunk = Chunk::begin();
        let mut rules_at = None;
        for change in changes {
            match &change {
                HubChange::Event(event) => {
                    let id = event.message.id();
                    if id.epoch != self.epoch || id.seq <= self.last.max(self.upto) {
                        return Err(Another);
                    }
                    self.last = id.seq;
                }
                HubChange::Rules(..) => {
                    // They follow unused numbers: a follower that was told of those resumes there.
                    self.last = self.last.max(self.upto);
                    rules_at = Some(self.last);
                }
            }
            if !chunk.entry(self.last, |out| change.encode(out)) {
                return Err(Another);
            }
            if chunk.len() >= frame_bytes() {
                let full = std::mem::replace(&mut chunk, Chunk::begin());
                self.push(full, rules_at.take());
            }
        }
        if !chunk.is_empty() {
            self.push(chunk, rules_at);
        }
        Ok(())
    }

    fn push(&mut self, chunk: Chunk, rules: Option<u64>) {
        let chunk = chunk.seal(self.last);
        self.bytes += chunk.len() + OVERHEAD_BYTES;
        self.upto = self.upto.max(self.last);
        self.frames.push_back(RingFrame { upto: self.last, chunk, rules });
        self.trim();
    }

    fn trim(&mut self) {
        while self.bytes > self.bytes_max && self.frames.len() > 1 {
            let Some(frame) = self.frames.pop_front() else { return };
            self.bytes -= frame.chunk.len() + OVERHEAD_BYTES;
            self.first += 1;
            self.floor = frame.upto;
            self.rules_lost = frame.rules.or(self.rules_lost);
        }
    }

    /// The place of the next frame to come.
    pub(super) fn end(&self) -> Place {
        self.first + self.frames.len() as u64
    }

    /// What is at a place; `None` if nothing is yet.
    ///
    /// # Errors
    /// [`Lost`]
    pub(super) fn at(&self, place: Place) -> Result<Option<RingPart<'_>>, Lost> {
        let index = place.checked_sub(self.first).ok_or(Lost)?;
        let frame = usize::try_from(index).ok().and_then(|index| self.frames.get(index));
        Ok(frame.map(|frame| RingPart { chunk: &frame.chunk, upto: frame.upto, next: place + 1 }))
    }

    /// The place from which on everything is behind a number, and what of the frame before it is;
    /// `None` if that is not known any more.
    pub(super) fn behind(&self, seq: u64) -> Option<(Place, Option<Arc<[u8]>>)> {
        if seq < self.floor || self.rules_lost == Some(seq) {
            return None;
        }
        let index = self.frames.partition_point(|frame| frame.upto < seq);
        let place = self.first + index as u64;
        let Some(frame) = self.frames.get(index) else { return Some((place, None)) };
        let is_behind = |number: u64, entry: &[u8]| {
            number > seq || number == seq && entry_topic(entry) == Ok(None)
        };
        let all = frame_in(&frame.chunk);
        if all.records().all(|(number, entry)| is_behind(number, entry)) {
            return Some((place, None));
        }
        let mut chunk = Chunk::begin();
        for (number, entry) in all.records().filter(|(number, entry)| is_behind(*number, entry)) {
            chunk.entry(number, |out| out.extend_from_slice(entry));
        }
        let rest = (!chunk.is_empty()).then(|| chunk.seal(frame.upto));
        Some((place + 1, rest))
    }
}

/// A chunk that is put together, with a frame in it.
pub(super) struct Chunk {
    bytes: Vec<u8>,
    frame: FeedEncoder,
}

impl Chunk {
    pub(super) fn begin() -> Chunk {
        let mut bytes = vec![0; CHUNK_HEAD_BYTES];
        let frame = FeedEncoder::begin(&mut bytes);
        Chunk { bytes, frame }
    }

    /// False if it is too long for any.
    pub(super) fn entry(&mut self, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.frame.entry(seq, &mut self.bytes, encode)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frame.is_empty(&self.bytes)
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    /// With it, everything up to a number was sent.
    pub(super) fn seal(self, upto: u64) -> Arc<[u8]> {
        self.seal_as_of(upto, 0)
    }

    /// The same of what there was so many milliseconds ago.
    pub(super) fn seal_as_of(mut self, upto: u64, age_ms: u64) -> Arc<[u8]> {
        self.frame.seal(upto, age_ms, &mut self.bytes);
        end_chunk(&mut self.bytes, 0);
        self.bytes.into()
    }
}

/// Has what is behind so many bytes be a chunk of its own: room for its head was left.
pub(super) fn end_chunk(bytes: &mut Vec<u8>, at: usize) {
    let length = bytes.len() - at - CHUNK_HEAD_BYTES;
    // Zeros in front mean nothing.
    let head = format!("{length:08x}\r\n");
    bytes[at..at + CHUNK_HEAD_BYTES].copy_from_slice(head.as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

/// The frame in a chunk that was made here.
pub(super) fn frame_in(chunk: &[u8]) -> FeedFrame<'_> {
    let frame = &chunk[CHUNK_HEAD_BYTES..chunk.len() - b"\r\n".len()];
    let read = read_feed_frame(frame, usize::MAX);
    read.ok().flatten().expect("it was made here")
}

/// The length of a chunk in eight digits, and the end of the line.
pub(super) const CHUNK_HEAD_BYTES: usize = 10;

/// A frame ends behind the entry that makes it as long.
fn frame_bytes() -> usize {
    if cfg!(test) || limits_are_small() { 300 } else { 64 << 10 }
}

/// What a frame takes beside its bytes.
const OVERHEAD_BYTES: usize = size_of::<RingFrame>() + 32;

#[cfg(test)]
mod tests;
