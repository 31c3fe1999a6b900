//! Reading a store: which of its files count, what is in them, and what may be believed of it.
//!
//! The newest segment says where the one before it ended, that one says so of the one before, and
//! so on to the number of the newest snapshot, behind which all of them belong. Segments that are
//! not on this chain were given up, and what is behind a segment's end was cut off: neither counts.
//!
//! A frame that does not verify is one of two things. Something that was on the disk vouches that
//! it was there: the segment behind says that this one ended later, or a frame further on says that
//! everything up to some later offset had been synced. Then it is *damage*, and reading ends with
//! the file and the offset. Or nothing vouches for it: then it is a *torn tail*, of which nobody
//! was told that it is on the disk, and the store ends there.
//!
//! The last frame has no frame behind it, so the mark vouches for it, which is a file of its own
//! (`mark.rs`).
//!
//! What can be read need not be on the disk. After a sync that failed, and a new start, the
//! kernel's copy reads well and may never be written. So what no later frame vouches for is kept in
//! mind (the *tail*), and becomes part of the next segment before that gets its name. If no frame
//! was added to the newest segment after its birth, not even its name is vouched for: then it all
//! is tail. One without entries is passed over by the next, whose head says all that it said.

use crate::damage::{Damage, Damages, OpenError};
use crate::frame::{self, FRAME_BYTES, FrameHead, Kind, RECORD_BYTES, Spot};
use crate::head::{self, Cut, HEAD_BYTES_MAX, Head, LOG, Layout, NoHead, SNAPSHOT, What};
use crate::mark::Mark;
use crate::source::Source;
use std::ops::RangeInclusive;
use stentor_io::{Disk, DiskError};

/// A store whose files were looked at, but not read.
pub struct Recovery<D: Disk> {
    pub(crate) disk: D,
    pub(crate) snapshot: Option<StoreFile>,
    /// From the oldest to the newest.
    pub(crate) segments: Vec<StoreFile>,
    /// The greatest number that a file has.
    pub(crate) highest: u64,
    /// Bytes of files that no longer count.
    pub(crate) stale_bytes: u64,
    pub(crate) mark: Option<Mark>,
    /// Another store has it.
    is_view: bool,
    damages: Damages,
}

/// A file that counts.
pub(crate) struct StoreFile {
    name: String,
    pub(crate) number: u64,
    is_log: bool,
    /// `None` if the head is damaged and damage is only collected (repair).
    pub(crate) head: Option<Head>,
    /// Where its frames begin.
    pub(crate) begin: u64,
    /// Where they end, if something says so.
    pub(crate) end: Option<u64>,
    /// The length of the file.
    pub(crate) bytes: u64,
}

impl StoreFile {
    /// No frame is behind this offset.
    fn limit(&self) -> u64 {
        self.end.map_or(self.bytes, |end| end.min(self.bytes))
    }
}

/// What is in a store, in its order: all of a snapshot first, then entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The next piece of the snapshot, as it was given to [`SnapshotWriter::payload`].
    ///
    /// [`SnapshotWriter::payload`]: crate::SnapshotWriter::payload
    Payload(&'a [u8]),
    /// What was too long for one piece goes on; the piece before was shown.
    Rest(&'a [u8]),
    /// A repair found a piece of the snapshot missing here.
    Hole,
    /// An entry and its number.
    Entry(u64, &'a [u8]),
}

/// How far a reading is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Bytes that were read,
    pub read: u64,
    /// of so many; a part of the last file may be empty.
    pub total: u64,
}

/// Whoever is shown what is in a store. An error, one sentence, ends the reading.
pub type Visit<'v> = dyn FnMut(Piece<'_>, Progress) -> Result<(), String> + 'v;

/// What was read, and what follows from it.
pub struct Recovered<D: Disk> {
    pub(crate) disk: D,
    /// The life of the numbers; `None` if there is nothing here.
    pub epoch: Option<u32>,
    /// It is a whole store that was never started. The start names a life of its own: there may be
    /// other copies, and each of them would give the same numbers to other messages.
    pub begins_life: bool,
    /// The greatest number that is in the store.
    pub stored: u64,
    /// The number to go on behind: whatever number was given out is not above it.
    pub last: u64,
    /// The numbers up to this one are reserved on the disk.
    pub(crate) reserved: u64,
    /// Numbers that were given out, perhaps, and rolled back. A reader who comes back with one of
    /// them saw something that is not there.
    pub lost: Vec<RangeInclusive<u64>>,
    /// Numbers up to this one are from a whole store in one file, behind which another server may
    /// have gone on under other ids; 0 if there is none.
    pub copied: u64,
    /// What was begun and not written to its end: the file and the offset.
    pub torn: Option<(String, u64)>,
    /// It was closed before, and not cut short.
    pub was_closed: bool,
    /// What does not verify, if that was borne.
    pub(crate) damages: Vec<Damage>,
    pub(crate) is_view: bool,
    pub(crate) layout: Layout,
    /// The length of the newest segment, if the store was closed in it: it is appended to.
    pub(crate) appends_to: Option<u64>,
    pub(crate) mark: Option<Mark>,
    pub(crate) tail: Tail,
}

impl<D: Disk> Recovered<D> {
    /// The disk that it is on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }
}

/// Frames that nothing vouches for.
#[derive(Default)]
pub(crate) struct Tail {
    pub(crate) frames: Vec<u8>,
    /// The offset of the first, in the newest segment.
    begin: u64,
    /// No number in them is below this one.
    pub(crate) after: u64,
}

impl<D: Disk> Recovery<D> {
    /// Looks at the files of a store. Nothing is changed.
    ///
    /// # Errors
    /// The disk failed, a file is of another version, or something is damaged.
    pub fn open(disk: D) -> Result<Recovery<D>, OpenError> {
        Recovery::find(disk, Damages::Refused)
    }

    /// The same, but whatever verifies will be read.
    pub(crate) fn open_damaged(disk: D) -> Result<Recovery<D>, OpenError> {
        Recovery::find(disk, Damages::Borne(Vec::new()))
    }

    /// What is in a store that another process may be writing to: to be read, and not to be gone
    /// on with. Files may go away or be written over meanwhile. Then this or the reading fails, and
    /// is to be begun anew; what is read is right.
    ///
    /// # Errors
    /// As [`Recovery::open`].
    pub fn open_in_use(disk: D) -> Result<Recovery<D>, OpenError> {
        let mut recovery = Recovery::find(disk, Damages::Refused)?;
        recovery.is_view = true;
        if let Some(part) = recovery.segments.last_mut()
            && part.end.is_none()
        {
            let end = end_of_frames(&recovery.disk, part)?;
            // The mark was read before.
            let mark = recovery.mark.filter(|mark| mark.number == part.number && mark.synced > end);
            if let Some(mark) = mark {
                return Err(bad_bytes(part, end, mark.synced).into());
            }
            part.end = Some(end);
        }
        Ok(recovery)
    }

    fn find(disk: D, damages: Damages) -> Result<Recovery<D>, OpenError> {
        let (files, mark) = (disk.list()?, Mark::read(&disk)?);
        let mut recovery = Recovery {
            mark,
            disk,
            snapshot: None,
            segments: Vec::new(),
            highest: 0,
            stale_bytes: 0,
            is_view: false,
            damages,
        };
        let of = |word: &str| -> Vec<(u64, u64)> {
            let numbered =
                |(name, bytes): &(String, u64)| Some((head::number(word, name)?, *bytes));
            let mut found: Vec<_> = files.iter().filter_map(numbered).collect();
            found.sort_unstable();
            found
        };
        let (logs, snapshots) = (of(LOG), of(SNAPSHOT));
        let numbers = logs.iter().chain(&snapshots).map(|(number, _)| *number);
        recovery.highest = numbers.max().unwrap_or(0);
        if let Some(&(number, bytes)) = snapshots.last() {
            recovery.snapshot = Some(recovery.part(SNAPSHOT, number, bytes, Some(bytes))?);
        }
        recovery.follow_chain(&logs)?;
        let is_part = |number| recovery.segments.iter().any(|part| part.number == number);
        let stale = logs.iter().filter(|(number, _)| !is_part(*number));
        recovery.stale_bytes = stale.chain(snapshots.iter().rev().skip(1)).map(|file| file.1).sum();
        Ok(recovery)
    }

    /// Finds the segments behind the snapshot, from the newest on.
    fn follow_chain(&mut self, logs: &[(u64, u64)]) -> Result<(), OpenError> {
        let base = self.snapshot.as_ref().map_or(0, |part| part.number);
        let oldest = logs.partition_point(|(number, _)| *number < base);
        if oldest == logs.len() && base > 0 && !self.is_whole() {
            self.damages.tell(missing(base))?;
        }
        let (mut candidates, mut end) = (&logs[oldest..], None);
        while let Some((&(number, bytes), older)) = candidates.split_last() {
            let part = self.part(LOG, number, bytes, end)?;
            let before = part.head.as_ref().map(|head| head.before);
            self.segments.push(part);
            (candidates, end) = (older, None);
            // If it does not say what was before it, whatever is older may count.
            let Some(before) = before else { continue };
            if before.number < base.max(1) {
                break;
            }
            match older.binary_search_by_key(&before.number, |log| log.0) {
                Ok(found) => (candidates, end) = (&older[..=found], Some(before.end)),
                Err(_) => self.damages.tell(missing(before.number))?,
            }
        }
        self.segments.reverse();
        Ok(())
    }

    /// Reads the head of a file.
    fn part(
        &mut self,
        word: &str,
        number: u64,
        bytes: u64,
        end: Option<u64>,
    ) -> Result<StoreFile, OpenError> {
        let name = head::name(word, number);
        let mut source = Source::open(&self.disk, &name, bytes)?;
        let start = source.at(0, HEAD_BYTES_MAX)?;
        let damage = |what| Damage { file: name.clone(), offset: 0, bytes, what, between: None };
        let (head, is_log) = (Head::parse(start, number), word == LOG);
        let mut part =
            StoreFile { name: name.clone(), number, is_log, head: None, begin: 0, end, bytes };
        match head {
            Ok((head, _)) if (head.what == What::Segment) != is_log => {
                self.damages.tell(damage("it has the name of another file"))?;
            }
            Ok((head, begin)) => {
                // A segment has its whole length before it has its name.
                if bytes < end.unwrap_or(head.bytes) {
                    self.damages.tell(Damage { offset: bytes, ..damage("it was cut off") })?;
                }
                part.begin = begin;
                part.head = Some(head);
            }
            Err(NoHead::Version(version)) => {
                return Err(OpenError::Version { file: name, version });
            }
            Err(NoHead::Damaged(what)) => self.damages.tell(damage(what))?,
        }
        Ok(part)
    }

    /// The life of the numbers; `None` if there is nothing here.
    #[must_use]
    pub fn epoch(&self) -> Option<u32> {
        let newest = self.segments.iter().rev().chain(&self.snapshot);
        newest.filter_map(|part| part.head.as_ref()).map(|head| head.epoch).next()
    }

    /// The life that a start goes on with; `None` if it begins one: see [`Recovered::begins_life`].
    #[must_use]
    pub fn continued_epoch(&self) -> Option<u32> {
        if self.begins_life() { None } else { self.epoch() }
    }

    fn begins_life(&self) -> bool {
        self.is_whole() && self.segments.is_empty()
    }

    /// The bytes of all files in its directory.
    ///
    /// # Errors
    /// The disk failed.
    pub fn bytes(&self) -> Result<u64, DiskError> {
        Ok(self.disk.list()?.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Whether it was one file, a whole store, before anything was added: a backup, an import, or
    /// what a repair left.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let head = self.snapshot.as_ref().and_then(|part| part.head.as_ref());
        head.is_some_and(|head| head.what == What::Whole)
    }

    /// A number that no file has.
    pub(crate) fn unused_number(&self) -> u64 {
        self.highest + 1
    }

    /// Reads everything in its order, and shows it.
    ///
    /// # Errors
    /// As [`Recovery::open`], or what is shown is refused.
    pub fn read(mut self, visit: &mut Visit<'_>) -> Result<Recovered<D>, OpenError> {
        let total = self.snapshot.iter().chain(&self.segments);
        let total = total.map(StoreFile::limit).sum();
        let newest_number = self.segments.last().map(|part| part.number);
        let may_repeat = self.segments.iter().rev().skip(1).any(|part| part.end.is_none());
        let (is_whole, mut copied) = (self.is_whole(), 0);
        let mark = self.mark.filter(|_| !self.is_view);
        let base = self.snapshot.as_ref().map_or(1, |part| part.number);
        // A whole store that is put into a directory may find the mark of another one.
        let is_put_there = self.begins_life();
        if let Some(mark) = mark.filter(|mark| mark.number >= base && !is_put_there)
            && newest_number.is_none_or(|newest| newest < mark.number)
        {
            self.damages.tell(missing(mark.number))?;
        }
        let mut reading = LogReplay::begin(&mut self.damages, visit, total, may_repeat, mark);
        for part in self.snapshot.iter().chain(&self.segments) {
            let is_newest = part.is_log && Some(part.number) == newest_number;
            reading.keeps_tail = is_newest && part.end.is_none();
            reading.part(&self.disk, part)?;
            if is_whole && !part.is_log {
                copied = reading.closed.unwrap_or(reading.seq);
            }
        }
        let LogReplay { seq, reserved, closed, torn, mut tail, part: last_part, .. } = reading;
        let appends = reading.is_closed_by_mark;
        let newest = self.segments.last();
        let appends_to = newest.filter(|_| appends).map(|part| part.bytes);
        let newest_head = newest.and_then(|part| part.head.as_ref());
        let mut lost = newest_head.map_or_else(Vec::new, |head| head.lost.clone());
        let last_lost = lost.last().map_or(0, |range| *range.end());
        let mut last = seq.max(last_lost).max(closed.unwrap_or(0));
        if closed.is_none() && reserved > last {
            head::add_lost(&mut lost, last + 1..=reserved);
            last = reserved;
        }
        let counts = newest.is_none_or(|part| {
            part.end.is_some() || appends || last_part.has_entries && tail.begin > part.begin
        });
        if !last_part.has_entries {
            tail.frames.clear();
        }
        Ok(Recovered {
            epoch: self.epoch(),
            begins_life: self.begins_life(),
            layout: self.layout(tail.begin, counts),
            disk: self.disk,
            stored: seq,
            last,
            reserved: last,
            lost,
            copied,
            torn,
            was_closed: closed.is_some(),
            damages: match self.damages {
                Damages::Refused => Vec::new(),
                Damages::Borne(damages) => damages,
            },
            is_view: self.is_view,
            appends_to,
            mark: self.mark.filter(|mark| Some(mark.number) == newest_number),
            tail,
        })
    }

    /// Where the files end that count. The newest segment, which may have no end of its own, ends
    /// at `tail_begin`; `newest_counts` says whether it is one of them.
    fn layout(&self, tail_begin: u64, newest_counts: bool) -> Layout {
        let end = |part: &StoreFile| part.end.unwrap_or(tail_begin);
        let ends = self.segments.iter().map(|part| Cut { number: part.number, end: end(part) });
        let mut closed: Vec<Cut> = ends.collect();
        let mut cut = closed.pop().unwrap_or_default();
        if !newest_counts {
            let newest_head = self.segments.last().and_then(|part| part.head.as_ref());
            cut = newest_head.map_or(Cut::default(), |head| head.before);
            closed.retain(|ended| ended.number < cut.number);
        }
        let base = self.snapshot.as_ref();
        Layout {
            highest: self.highest,
            stale_bytes: self.stale_bytes,
            base: base
                .map_or_else(Cut::default, |part| Cut { number: part.number, end: part.bytes }),
            closed,
            cut,
        }
    }
}

fn missing(number: u64) -> Damage {
    let what = "it is missing, and something else says that it was there";
    Damage { file: head::name(LOG, number), offset: 0, bytes: 0, what, between: None }
}

/// A store that is being read.
struct LogReplay<'r, 'v> {
    damages: &'r mut Damages,
    visit: &'r mut Visit<'v>,
    progress: Progress,
    /// The greatest number so far.
    seq: u64,
    /// The last entry, if a head is missing: then an end is unknown, and what was written again may
    /// be there twice.
    repeated: Option<Vec<u8>>,
    reserved: u64,
    mark: Option<Mark>,
    /// The last number that was given out, if the file was closed here.
    closed: Option<u64>,
    /// The mark says so.
    is_closed_by_mark: bool,
    torn: Option<(String, u64)>,
    tail: Tail,
    keeps_tail: bool,
    part: PartState,
}

/// What is known of the part that was read last.
#[derive(Clone, Copy, Default)]
struct PartState {
    /// A piece of the payload is missing, and perhaps those that went on with it are not.
    lacks_begin: bool,
    has_entries: bool,
}

impl<'r, 'v> LogReplay<'r, 'v> {
    fn begin(
        damages: &'r mut Damages,
        visit: &'r mut Visit<'v>,
        total: u64,
        may_repeat: bool,
        mark: Option<Mark>,
    ) -> LogReplay<'r, 'v> {
        LogReplay {
            damages,
            visit,
            progress: Progress { read: 0, total },
            seq: 0,
            repeated: may_repeat.then(Vec::new),
            reserved: 0,
            mark,
            closed: None,
            is_closed_by_mark: false,
            torn: None,
            tail: Tail::default(),
            keeps_tail: false,
            part: PartState::default(),
        }
    }

    fn part<D: Disk>(&mut self, disk: &D, part: &StoreFile) -> Result<(), OpenError> {
        let limit = part.limit();
        let mut source = Source::open(disk, &part.name, limit)?;
        if let Some(head) = &part.head {
            self.seq = self.seq.max(head.last);
            self.reserved = head.reserved;
        }
        (self.closed, self.part.has_entries) = (None, false);
        self.tail = Tail { begin: part.begin, after: self.seq, frames: Vec::new() };
        let before = self.progress.read;
        let mut offset = part.begin;
        let mark = self.mark.filter(|it| part.is_log && it.number == part.number);
        let mark = mark.filter(|_| part.end.is_none());
        let known_to =
            part.end.map_or_else(|| mark.map_or(0, |mark| mark.synced.min(limit)), |_| limit);
        while offset < limit && self.closed.is_none() {
            self.progress.read = before + offset;
            let spot = Spot { number: part.number, offset };
            if let Some(frame) = whole_frame(&mut source, spot)? {
                let bytes = source.at(offset, frame.bytes)?;
                self.frame(part, spot, frame, bytes)?;
                offset += frame.bytes as u64;
                continue;
            }
            let next = next_frame(&mut source, spot, limit, known_to)?;
            let Some(next) = next else {
                let start = source.at(offset, FRAME_BYTES)?;
                if frame::looks_begun(start, part.number) {
                    self.torn = Some((part.name.clone(), offset));
                }
                break;
            };
            self.bad_frame(part, &mut source, spot, next)?;
            offset = next;
        }
        let is_unfinished = match part.end {
            Some(end) if !part.is_log => offset < end || self.closed.is_none(),
            Some(end) => offset < end,
            None => offset < known_to,
        };
        if is_unfinished {
            let what = "it does not end where it should";
            self.tell(part, offset, known_to - offset, what)?;
        }
        if let Some(mark) = mark
            && mark.synced <= offset
        {
            self.vouch(mark.synced, part)?;
            if mark.synced == offset && mark.closed.is_some() {
                (self.closed, self.is_closed_by_mark) = (mark.closed, self.keeps_tail);
            }
        }
        self.progress.read = before + limit;
        Ok(())
    }

    /// A frame that verified.
    fn frame(
        &mut self,
        part: &StoreFile,
        spot: Spot,
        head: FrameHead,
        bytes: &[u8],
    ) -> Result<(), OpenError> {
        self.vouch(head.synced, part)?;
        let body = &bytes[FRAME_BYTES..];
        match head.kind {
            Kind::Entries => {
                for (seq, entry) in frame::records(body) {
                    self.entry(part, spot, seq, entry)?;
                }
                self.reserved = self.reserved.max(head.reserved);
                if self.keeps_tail {
                    self.tail.frames.extend_from_slice(bytes);
                }
            }
            Kind::Payload => {
                self.part.lacks_begin = false;
                for (_, piece) in frame::records(body) {
                    self.show(part, spot, Piece::Payload(piece))?;
                }
            }
            // It makes no sense without what it goes on with.
            // mutation: rest-without-begin
            Kind::Rest if self.part.lacks_begin => {}
            Kind::Rest => {
                for (_, piece) in frame::records(body) {
                    self.show(part, spot, Piece::Rest(piece))?;
                }
            }
            Kind::Hole => self.hole(part, spot)?,
            Kind::End => self.closed = Some(head.reserved),
        }
        Ok(())
    }

    /// Everything below this offset was on the disk.
    fn vouch(&mut self, synced: u64, part: &StoreFile) -> Result<(), OpenError> {
        if !self.keeps_tail || self.tail.begin >= synced {
            return Ok(());
        }
        const WHAT: &str = "a frame vouches for what is no frame";
        while self.tail.begin < synced {
            let frames = &self.tail.frames;
            let Some(bytes) = frames.get(12..16).map(|_| frame::u32_at(frames, 12) as usize) else {
                return self.tell(part, synced, 0, WHAT);
            };
            self.tail.frames.drain(..FRAME_BYTES + bytes);
            self.tail.begin += (FRAME_BYTES + bytes) as u64;
        }
        if self.tail.begin > synced { self.tell(part, synced, 0, WHAT) } else { Ok(()) }
    }

    fn entry(
        &mut self,
        part: &StoreFile,
        spot: Spot,
        seq: u64,
        entry: &[u8],
    ) -> Result<(), OpenError> {
        if let Some(last) = &mut self.repeated {
            if seq < self.seq || seq == self.seq && *entry == **last {
                return Ok(());
            }
            *last = entry.to_vec();
        } else if seq < self.seq {
            return self.tell(part, spot.offset, 0, "an entry's number is below the one before");
        }
        (self.seq, self.part.has_entries) = (seq, true);
        self.damages.go_on_with(seq);
        self.show(part, spot, Piece::Entry(seq, entry))
    }

    fn hole(&mut self, part: &StoreFile, spot: Spot) -> Result<(), OpenError> {
        self.part.lacks_begin = true;
        self.show(part, spot, Piece::Hole)
    }

    fn show(&mut self, part: &StoreFile, spot: Spot, piece: Piece<'_>) -> Result<(), OpenError> {
        (self.visit)(piece, self.progress).map_err(|reason| OpenError::Refused {
            file: part.name.clone(),
            offset: spot.offset,
            reason,
        })
    }

    /// A frame that something vouches for, and that does not verify: what can be had of it is.
    fn bad_frame<D: Disk>(
        &mut self,
        part: &StoreFile,
        source: &mut Source<D>,
        spot: Spot,
        next: u64,
    ) -> Result<(), OpenError> {
        // What is damaged is not gone on with.
        self.keeps_tail = false;
        let length = next - spot.offset;
        let frame = frame::head(source.at(spot.offset, FRAME_BYTES)?, spot);
        let holds_entries = frame.map_or(part.is_log, |frame| frame.kind == Kind::Entries);
        if !holds_entries || matches!(self.damages, Damages::Refused) {
            self.tell(part, spot.offset, length, BAD_FRAME)?;
            return if holds_entries { Ok(()) } else { self.hole(part, spot) };
        }
        let head = length.min(FRAME_BYTES as u64);
        if frame.is_none() {
            self.tell(part, spot.offset, head, BAD_FRAME)?;
        }
        let mut offset = spot.offset + head;
        let left =
            usize::try_from(next - offset).map_or(SALVAGE_BYTES, |left| left.min(SALVAGE_BYTES));
        let records = source.at(offset, left)?;
        let mut result = Ok(());
        frame::salvage(records, spot, |bytes, found| {
            if result.is_ok() {
                result = match found {
                    Some((seq, entry)) => self.entry(part, spot, seq, entry),
                    None => self.tell(part, offset, bytes as u64, BAD_FRAME),
                };
            }
            offset += bytes as u64;
        });
        result?;
        if offset < next {
            self.tell(part, offset, next - offset, BAD_FRAME)?;
        }
        match frame.map(|frame| frame.bytes as u64) {
            Some(bytes) if bytes > length => self.tell(part, next, bytes - length, BAD_FRAME),
            _ => Ok(()),
        }
    }

    fn tell(
        &mut self,
        part: &StoreFile,
        offset: u64,
        bytes: u64,
        what: &'static str,
    ) -> Result<(), OpenError> {
        let between = part.is_log.then_some((self.seq, None));
        self.damages.tell(Damage { file: part.name.clone(), offset, bytes, what, between })
    }
}

/// The head of the frame at this place, if all of it verifies.
fn whole_frame<D: Disk>(
    source: &mut Source<D>,
    spot: Spot,
) -> Result<Option<FrameHead>, DiskError> {
    let Some(head) = frame::head(source.at(spot.offset, FRAME_BYTES)?, spot) else {
        return Ok(None);
    };
    let bytes = source.at(spot.offset, head.bytes)?;
    let is_whole = bytes.len() == head.bytes && frame::is_whole(&bytes[FRAME_BYTES..], spot);
    Ok(is_whole.then_some(head))
}

/// Where the frames of a segment end now that may be written to.
fn end_of_frames<D: Disk>(disk: &D, part: &StoreFile) -> Result<u64, OpenError> {
    let mut end = part.begin;
    loop {
        // Opened anew: what is in memory of the other one is older than the frame that it lacks.
        let mut source = Source::open(disk, &part.name, part.bytes)?;
        let begin = end;
        while let Some(frame) = whole_frame(&mut source, Spot { number: part.number, offset: end })?
        {
            end += frame.bytes as u64;
        }
        if end > begin {
            continue;
        }
        let spot = Spot { number: part.number, offset: end };
        return match next_frame(&mut source, spot, part.bytes, end)? {
            None => Ok(end),
            Some(next) => Err(bad_bytes(part, end, next).into()),
        };
    }
}

fn bad_bytes(part: &StoreFile, offset: u64, end: u64) -> Damage {
    let file = part.name.clone();
    Damage { file, offset, bytes: end - offset, what: BAD_FRAME, between: None }
}

/// Where to go on behind a frame that does not verify, if anything vouches for that frame: an end
/// that is known, or a later frame.
fn next_frame<D: Disk>(
    source: &mut Source<D>,
    bad: Spot,
    limit: u64,
    vouched_to: u64,
) -> Result<Option<u64>, DiskError> {
    let mut is_vouched_for = vouched_to > bad.offset;
    let mut next = None;
    let mut offset = bad.offset;
    while offset < limit {
        let piece = source.at(offset, SEARCH_BYTES)?;
        let Some(found) = frame::find(piece) else {
            // The last bytes may be the beginning of a head.
            if (piece.len() as u64) < SEARCH_BYTES as u64 {
                break;
            }
            offset += (SEARCH_BYTES - RECORD_BYTES) as u64;
            continue;
        };
        offset += found as u64;
        let spot = Spot { number: bad.number, offset };
        if let Some(head) = frame::head(source.at(offset, FRAME_BYTES)?, spot) {
            next = next.or(Some(offset));
            is_vouched_for |= head.synced > bad.offset;
            if is_vouched_for {
                break;
            }
        }
    }
    let end = if vouched_to > bad.offset { vouched_to } else { limit };
    Ok(is_vouched_for.then_some(next.unwrap_or(end)))
}

const BAD_FRAME: &str = "it does not verify";

/// Of a stretch that is bad, as much is looked at closely: a segment, or what is left of one.
const SALVAGE_BYTES: usize = 64 << 20;

const SEARCH_BYTES: usize = if cfg!(test) { 256 } else { 64 << 10 };
