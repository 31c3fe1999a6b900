//! The log as it is written: frames, segments, what is promised, and what becomes of a failure.
//!
//! Entries are pushed into a buffer, written as one frame, and synced when whoever waits wants
//! that. What is not known to be on the disk stays in the buffer, behind whose end the next frame
//! is put together: so there is one buffer, and nothing that was promised is ever on a broken disk
//! alone.
//!
//! **A failure ends a segment, never the store.** After a write or a sync that failed nobody knows
//! what of it is on the disk, and the kernel no longer says. So nothing is tried twice in the same
//! place. [`Store::retry`] begins a new segment, whose head cuts the old one off where the last
//! successful sync found it, and which holds the whole buffer before it gets its name. The same
//! step begins a segment when one is full, and after a start. It either comes to its end, or has
//! not happened:
//!
//! ```text
//!             write, sync: error               retry: error
//!   healthy ----------------------> failed -------------------+
//!      ^                              |  ^                     |
//!      |   head and buffer to a file, |  +---------------------+
//!      |   sync, rename, sync names   |
//!      +------------------------------+
//! ```
//!
//! Whatever a number is given to, readers may see it before it is on the disk. So frames reserve
//! numbers: one above [`Store::reserved`] must not be given out yet.

use crate::frame::{self, Kind, Spot};
use crate::handover::Tip;
use crate::head::{self, Cut, Head, LOG, Layout, RESERVE, SNAPSHOT, SPARE, UNNAMED, What};
use crate::mark::{Mark, MarkFile};
use crate::recovery::Recovered;
use crate::settings::Settings;
use crate::snapshot::{Snapshot, SnapshotWriter, file_of_store};
use std::fmt;
use std::ops::RangeInclusive;
use stentor_io::{Disk, DiskError, DiskErrorKind};

/// A store that is in use.
pub struct Store<D: Disk> {
    disk: D,
    settings: Settings,
    epoch: u32,
    /// The segment that is written to; none before the first could be begun.
    log: Option<Segment<D>>,
    health: Health,
    buffer: FrameBuffer,
    seqs: Sequences,
    lost: Vec<RangeInclusive<u64>>,
    layout: Layout,
    spares: Spares,
    mark: MarkFile<D>,
    /// A file takes room for a snapshot that is made on a full disk.
    has_reserve: bool,
    /// The disk may have no room for the next snapshot if the log grows on.
    is_scarce: bool,
    /// No snapshot shows what is in memory: the directory was made again.
    lacks_snapshot: bool,
    /// Bytes of frames, from the beginning of this life on.
    bytes_written: u64,
}

/// Whether the disk takes more.
enum Health {
    Healthy,
    /// The next segment could not be created; the current one still takes the buffer.
    Full(DiskError),
    /// A write or a sync failed: the log continues only in a new segment.
    Broken(DiskError),
}

/// Frames that may not be on the disk yet.
struct FrameBuffer {
    /// Whole frames, then the frame that is being put together.
    bytes: Vec<u8>,
    /// Where that frame begins.
    frame_at: usize,
}

/// How far the store is with its numbers.
struct Sequences {
    /// The last number that was pushed or noted.
    last: u64,
    written: u64,
    synced: u64,
    /// What frames that were written reserve, and what is reserved for sure.
    claimed: u64,
    granted: u64,
}

/// Files that wait to become segments, each as long as a segment.
#[derive(Default)]
struct Spares {
    names: Vec<String>,
    /// How many there were.
    made: u64,
}

/// The segment that is written to.
struct Segment<D: Disk> {
    file: D::File,
    number: u64,
    bytes: u64,
    end: u64,
    synced: u64,
}

/// Why an entry was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushError {
    /// The buffer is full: it has to be synced first.
    Full,
    /// The number is below the one before.
    OutOfOrder,
    /// The number is not reserved: it must not be given out yet.
    NotReserved,
    /// An entry has less than a gibibyte.
    TooLong,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full => "too much waits for the disk",
            PushError::OutOfOrder => "the number is below the one before",
            PushError::NotReserved => "the number is not reserved",
            PushError::TooLong => "the entry has more than a gibibyte",
        })
    }
}

impl std::error::Error for PushError {}

impl<D: Disk> Store<D> {
    /// Goes on with what was read. `new_epoch`, a random number, names the life of a store that
    /// was empty, or is a copy: see [`Recovered::begins_life`].
    ///
    /// A disk that cannot be written to is a failure like any other: the store is there, and takes
    /// nothing until it is gone. But see [`Store::has_begun`].
    ///
    /// # Panics
    /// If what was read is another store's, by [`Recovery::open_in_use`].
    ///
    /// [`Recovery::open_in_use`]: crate::Recovery::open_in_use
    pub fn begin(recovered: Recovered<D>, settings: Settings, new_epoch: u32) -> Store<D> {
        let epoch = recovered.epoch.filter(|_| !recovered.begins_life);
        let Recovered { disk, last, reserved, lost, layout, tail, appends_to, mark, .. } =
            recovered;
        assert!(!recovered.is_view, "a store has one who writes to it");
        let mut store = Store {
            mark: MarkFile::begin(&disk, mark),
            has_reserve: false,
            is_scarce: false,
            lacks_snapshot: false,
            disk,
            settings,
            epoch: epoch.unwrap_or(new_epoch),
            log: None,
            health: Health::Healthy,
            seqs: Sequences {
                last,
                written: last,
                synced: if tail.frames.is_empty() { last } else { tail.after },
                claimed: reserved,
                granted: reserved,
            },
            buffer: FrameBuffer { frame_at: tail.frames.len(), bytes: tail.frames },
            lost,
            layout,
            spares: Spares::default(),
            bytes_written: 0,
        };
        for (name, _) in store.disk.list().unwrap_or_default() {
            if head::number(SPARE, &name).is_some() || head::is_unnamed(&name) {
                // If it stays, it is in nobody's way.
                let _ = store.disk.remove(&name);
            }
            store.has_reserve |= name == RESERVE;
        }
        let begun = match appends_to {
            Some(bytes) => store.append_to(bytes),
            None => store.begin_segment().map(|()| store.tidy()),
        };
        if let Err(error) = begun {
            store.health = Health::Broken(error);
        }
        store
    }

    /// Continues the segment in which the store was closed. That takes no room on the disk.
    fn append_to(&mut self, bytes: u64) -> Result<(), DiskError> {
        let Cut { number, end } = self.layout.cut;
        let file = self.disk.open(&head::name(LOG, number))?;
        self.log = Some(Segment { file, number, bytes, end, synced: end });
        // Alone on the disk before the next: no frame of a start that failed is behind it.
        self.put_empty()?;
        self.sync_log()?;
        self.make_spare();
        Ok(())
    }

    /// The life of the numbers.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether the first segment is there. Before it is, the next start may know nothing of the
    /// numbers that this one leaves out: no reader may be shown a number above
    /// [`Recovered::stored`].
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.log.is_some()
    }

    /// Everything up to this number that was pushed outlives the process.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.seqs.written
    }

    /// Everything up to this number that was pushed is on the disk.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.seqs.synced
    }

    /// A number up to this one may be given out, and none above it.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.seqs.granted
    }

    /// Why nothing is to be published now, if so: the disk failed, or it is full and what is
    /// under way is the last that has room for sure. [`Store::retry`] may help.
    #[must_use]
    pub fn refusal(&self) -> Option<&DiskError> {
        match &self.health {
            Health::Healthy => None,
            Health::Full(error) | Health::Broken(error) => Some(error),
        }
    }

    /// Whether the log cannot be gone on with before [`Store::retry`] was successful: then nothing
    /// that is pushed comes to the disk.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.health, Health::Broken(_))
    }

    /// Numbers up to this one were given out, to something or to nothing that is to be stored.
    pub fn note(&mut self, seq: u64) {
        self.seqs.last = self.seqs.last.max(seq);
        if self.buffer.bytes.is_empty() {
            self.seqs.written = self.seqs.last;
            self.seqs.synced = self.seqs.last;
        }
    }

    /// Adds an entry, which `encode` appends, to the next frame. Its number is that of the one
    /// before if it takes none.
    ///
    /// # Errors
    /// Then nothing was added.
    pub fn push(&mut self, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), PushError> {
        if seq < self.seqs.last {
            return Err(PushError::OutOfOrder);
        }
        if seq > self.seqs.granted {
            return Err(PushError::NotReserved);
        }
        if self.buffer.bytes.len() >= self.settings.buffer_bytes {
            return Err(PushError::Full);
        }
        let is_first = self.buffer.bytes.len() == self.buffer.frame_at;
        if is_first {
            frame::begin(Kind::Entries, &mut self.buffer.bytes);
        }
        if !frame::put_record(seq, &mut self.buffer.bytes, encode) {
            if is_first {
                // mutation: long-entry
                self.buffer.bytes.truncate(self.buffer.frame_at);
            }
            return Err(PushError::TooLong);
        }
        self.seqs.last = seq;
        Ok(())
    }

    /// Whether the buffer is full, so that it has to be synced.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.buffer.bytes.len() >= self.settings.buffer_bytes
    }

    /// Writes what was pushed: it outlives the process.
    ///
    /// # Errors
    /// The disk failed, now or before. What was pushed stays in the buffer.
    pub fn write(&mut self) -> Result<(), DiskError> {
        self.healthy()?;
        if self.buffer.bytes.len() == self.buffer.frame_at {
            return Ok(());
        }
        self.put_frame()
    }

    /// Writes what was pushed, and brings it to the disk.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn sync(&mut self) -> Result<(), DiskError> {
        self.write()?;
        self.sync_log()
    }

    /// Brings the mark to the disk, which vouches for the last frame, and reserves more numbers. To
    /// be called after a moment of quiet, and when few reserved numbers are left. Does nothing if
    /// neither is the case.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn witness(&mut self) -> Result<(), DiskError> {
        self.sync()?;
        if self.seqs.granted.saturating_sub(self.seqs.last) <= self.settings.reserve / 2 {
            self.put_empty()?;
            self.sync_log()?;
        }
        // Without it the store has less evidence, and lacks nothing.
        let _ = self.mark.sync(&self.disk);
        Ok(())
    }

    /// Ends it: everything is on the disk, and the next start continues with the next number.
    ///
    /// # Errors
    /// As [`Store::write`]. The next start leaves out numbers, unless the store continues.
    pub fn close(&mut self) -> Result<(), DiskError> {
        self.sync()?;
        self.mark.retry(&self.disk);
        let closed = self.put_mark(true).and_then(|()| self.mark.sync(&self.disk));
        // mutation: seqs-after-failure
        if closed.is_err() {
            // The mark may be there all the same. So no number is given out before a frame behind
            // it is on the disk.
            (self.seqs.granted, self.seqs.claimed) = (self.seqs.last, self.seqs.last);
        }
        closed
    }

    /// Writes up to where the segment is on the disk.
    fn put_mark(&mut self, is_closed: bool) -> Result<(), DiskError> {
        let Some(log) = &self.log else { return Ok(()) };
        let closed = is_closed.then_some(self.seqs.last);
        self.mark.write(&self.disk, Mark { number: log.number, synced: log.synced, closed })
    }

    /// Where the store ends, for a process that continues it. `None` if something that was pushed
    /// is not known to be on the disk.
    #[must_use]
    pub fn tip(&self) -> Option<Tip> {
        let Sequences { last, granted, .. } = self.seqs;
        let log = self.log.as_ref().filter(|log| {
            !self.is_broken() && self.buffer.bytes.is_empty() && log.synced == log.end
        });
        log.map(|log| Tip { segment: log.number, end: log.end, last, reserved: granted })
    }

    /// The last number that was pushed or noted.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.seqs.last
    }

    /// The disk that it is on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Tries again what failed: begins a new segment with all that is not known to be on the disk,
    /// and makes room for the next one.
    ///
    /// # Errors
    /// What failed now. Nothing has changed.
    pub fn retry(&mut self) -> Result<(), DiskError> {
        if self.is_broken() {
            self.begin_segment()?;
        }
        self.make_spare();
        self.refusal().cloned().map_or(Ok(()), Err)
    }

    /// Bytes of the log behind the last snapshot, with what has yet to be removed.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        let closed: u64 = self.layout.closed.iter().map(|cut| cut.end).sum();
        closed + self.log.as_ref().map_or(0, |log| log.end) + self.layout.stale_bytes
    }

    /// Bytes that were written to the log since the store began.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Bytes of that snapshot.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        self.layout.base.end
    }

    /// The disk cannot be used, for this reason. [`Store::retry`] may help.
    pub fn fail(&mut self, error: DiskError) {
        self.health = Health::Broken(error);
    }

    /// Begins a store in a directory that was made again: the one before is gone. A snapshot of all
    /// that is in memory is due then.
    ///
    /// # Errors
    /// The disk is that of another store, or failed. The log is broken.
    pub fn move_to(&mut self, disk: D) -> Result<(), DiskError> {
        let (settings, mark) = (self.settings, MarkFile::begin(&disk, None));
        (self.disk, self.settings, self.mark) = (disk, settings, mark);
        (self.layout, self.spares) = (Layout::default(), Spares::default());
        (self.log, self.has_reserve, self.lacks_snapshot) = (None, false, true);
        let refused = match file_of_store(&self.disk) {
            Ok(Some(name)) => Err(DiskError {
                kind: DiskErrorKind::Failed,
                tried: "begin a store beside",
                path: name,
                reason: "the directory is another one, and has a store".to_owned(),
            }),
            found => found.map(|_| ()),
        };
        let begun = refused.and_then(|()| self.begin_segment());
        begun.or_else(|error| self.failed(error))
    }

    /// Whether the log has become so long that a snapshot is due. Segments that have ended count as
    /// whole ones, though a start cuts them off: so there are not many.
    #[must_use]
    pub fn snapshot_is_due(&self) -> bool {
        let taken = |cut: &Cut| cut.end.max(self.settings.segment_bytes);
        let closed: u64 = self.layout.closed.iter().map(taken).sum();
        let open = self.log.as_ref().map_or(0, |log| log.end);
        let log_bytes = closed + open + self.layout.stale_bytes;
        let is_long = log_bytes > self.settings.log_bytes_min.max(2 * self.layout.base.end);
        let is_full = matches!(self.health, Health::Full(_));
        let gives_room = closed > 0 && log_bytes > self.layout.base.end;
        is_long || self.lacks_snapshot || (is_full || self.is_scarce) && gives_room
    }

    /// Begins a snapshot: what is pushed from now on belongs behind it, and it must show all that
    /// was pushed before. It may be written on another thread.
    ///
    /// # Errors
    /// There is no snapshot then, and nothing has changed unless [`Store::refusal`] says so.
    pub fn begin_snapshot(&mut self) -> Result<SnapshotWriter<D>, DiskError> {
        // It costs a segment, too: none is begun that would fill the disk.
        let base_bytes = self.layout.base.end;
        if self.disk.free_bytes()? < base_bytes
            && !(self.give_reserve() && self.disk.free_bytes()? >= base_bytes)
        {
            return Err(DiskError {
                kind: DiskErrorKind::Full,
                tried: "write",
                path: "a snapshot".to_owned(),
                reason: format!("there is no room for {} bytes", self.layout.base.end),
            });
        }
        self.sync()?;
        self.begin_segment()?;
        let head = self.head(What::Snapshot, self.layout.cut.number);
        SnapshotWriter::begin(&self.disk, head)
    }

    /// At a start: gives back the room behind the end of older segments, and removes those that do
    /// not count, so that many starts with little in between take little. What cannot be done now
    /// is done by the next, or when a snapshot takes the place of all.
    ///
    /// The newest segment has its name on the disk. It says which one was before, and where that
    /// one ended: what is cut off or removed here is never looked at again.
    fn tidy(&mut self) {
        let Ok(files) = self.disk.list() else { return };
        self.layout.stale_bytes = 0;
        for (name, bytes) in files {
            let number = head::number(LOG, &name);
            let is_stale = match number.filter(|number| *number >= self.layout.base.number) {
                Some(number) if number == self.layout.highest => false,
                Some(number) => match self.layout.closed.iter().find(|cut| cut.number == number) {
                    Some(cut) => {
                        if bytes > cut.end
                            && let Ok(file) = self.disk.open(&name)
                        {
                            // mutation: rest-of-segment
                            let _ = self.disk.shorten(&file, cut.end);
                        }
                        false
                    }
                    None => self.disk.remove(&name).is_err(),
                },
                None => {
                    let snapshot = head::number(SNAPSHOT, &name);
                    number.or(snapshot).is_some_and(|number| number < self.layout.base.number)
                }
            };
            self.layout.stale_bytes += if is_stale { bytes } else { 0 };
        }
    }

    /// Puts a snapshot in the place of the one before and of the log that it makes superfluous.
    /// Whatever it shows was pushed.
    ///
    /// # Errors
    /// The snapshot is given up; all is as it was.
    pub fn adopt(&mut self, snapshot: Snapshot) -> Result<(), DiskError> {
        if let Err(error) = self.sync().and_then(|()| snapshot.name(&self.disk)) {
            snapshot.give_up(&self.disk);
            return Err(error);
        }
        self.layout.base = Cut { number: snapshot.number, end: snapshot.bytes };
        self.layout.closed.retain(|cut| cut.number >= snapshot.number);
        self.lacks_snapshot = false;
        self.remove_stale();
        self.make_spare();
        Ok(())
    }

    fn healthy(&self) -> Result<(), DiskError> {
        match &self.health {
            Health::Broken(error) => Err(error.clone()),
            Health::Healthy | Health::Full(_) => Ok(()),
        }
    }

    fn failed(&mut self, error: DiskError) -> Result<(), DiskError> {
        self.health = Health::Broken(error.clone());
        Err(error)
    }

    fn put_empty(&mut self) -> Result<(), DiskError> {
        frame::begin(Kind::Entries, &mut self.buffer.bytes);
        self.put_frame()
    }

    /// Writes the frame that was put together.
    fn put_frame(&mut self) -> Result<(), DiskError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let frame = &mut self.buffer.bytes[self.buffer.frame_at..];
        if log.bytes - log.end < frame.len() as u64 {
            // mutation: synced-segment
            self.sync_log()?;
            return self.begin_segment().or_else(|error| self.failed(error));
        }
        let spot = Spot { number: log.number, offset: log.end };
        let reserved = self.seqs.claimed.max(self.seqs.last.saturating_add(self.settings.reserve));
        frame::seal(frame, spot, log.synced, reserved);
        if let Err(error) = self.disk.write_at(&log.file, log.end, frame) {
            return self.failed(error);
        }
        log.end += frame.len() as u64;
        self.bytes_written += frame.len() as u64;
        self.seqs.claimed = reserved;
        self.buffer.frame_at = self.buffer.bytes.len();
        self.seqs.written = self.seqs.last;
        Ok(())
    }

    /// Brings what was written to the disk.
    fn sync_log(&mut self) -> Result<(), DiskError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.synced == log.end {
            return Ok(());
        }
        if let Err(error) = self.disk.sync(&log.file) {
            return self.failed(error);
        }
        self.is_on_disk();
        // The mark is written before publishers are answered. It costs one write.
        let _ = self.put_mark(false);
        Ok(())
    }

    /// All frames that were written are on the disk.
    fn is_on_disk(&mut self) {
        if let Some(log) = &mut self.log {
            log.synced = log.end;
            self.layout.cut = Cut { number: log.number, end: log.end };
        }
        let buffer = &mut self.buffer;
        buffer.bytes.drain(..buffer.frame_at);
        // One long entry is not to hold its memory for ever.
        buffer.bytes.shrink_to(2 * self.settings.buffer_bytes);
        buffer.frame_at = 0;
        self.seqs.synced = self.seqs.written;
        self.seqs.granted = self.seqs.claimed;
    }

    /// Begins a segment behind what is known to be on the disk, with all that is not.
    ///
    /// # Errors
    /// Nothing has changed, if there was no failure before and is none now.
    fn begin_segment(&mut self) -> Result<(), DiskError> {
        // The same as before, if that failed: should its name have come to the disk, this one takes
        // its place there.
        let number = self.layout.highest + 1;
        self.mark.retry(&self.disk);
        let mut head = self.head(What::Segment, number);
        let begin = head.encode().len() as u64;
        let bytes = begin + self.buffer.bytes.len() as u64;
        head.bytes = bytes.max(self.settings.segment_bytes);
        let has_length = head.bytes == self.settings.segment_bytes;
        let (unnamed, file) = match self.spares.names.pop_if(|_| has_length) {
            Some(name) => {
                let file = self.disk.open(&name);
                (name, file)
            }
            None => {
                let name = head::name(LOG, number) + UNNAMED;
                let file = match self.disk.create(&name, head.bytes) {
                    Err(error) if error.kind == DiskErrorKind::Full && self.give_reserve() => {
                        self.disk.create(&name, head.bytes)
                    }
                    created => created,
                };
                (name, file)
            }
        };
        let file = file.and_then(|file| self.fill_segment(&unnamed, file, &head, begin));
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                // If it has its name already, it stays: to remove one is no safer than to give it.
                let _ = self.disk.remove(&unnamed);
                self.make_spare();
                return Err(error);
            }
        };
        let end = begin + self.buffer.bytes.len() as u64;
        if self.layout.cut.number >= self.layout.base.number.max(1) {
            self.layout.closed.push(self.layout.cut);
        }
        self.layout.highest = number;
        self.log = Some(Segment { file, number, bytes: head.bytes, end, synced: end });
        self.health = Health::Healthy;
        self.bytes_written += end;
        self.seqs.claimed = head.reserved;
        self.buffer.frame_at = self.buffer.bytes.len();
        self.seqs.written = self.seqs.last;
        self.is_on_disk();
        let _ = self.put_mark(false);
        self.make_spare();
        Ok(())
    }

    /// Writes a segment, and gives it its name once all of it is on the disk.
    fn fill_segment(
        &mut self,
        unnamed: &str,
        file: D::File,
        head: &Head,
        begin: u64,
    ) -> Result<D::File, DiskError> {
        let spot = Spot { number: head.number, offset: begin };
        let (frames, last) = self.buffer.bytes.split_at_mut(self.buffer.frame_at);
        frame::seal_again(frames, spot, head.reserved);
        if !last.is_empty() {
            let spot = Spot { offset: begin + self.buffer.frame_at as u64, ..spot };
            frame::seal(last, spot, 0, head.reserved);
        }
        self.disk.write_at(&file, 0, &head.encode())?;
        if !self.buffer.bytes.is_empty() {
            self.disk.write_at(&file, begin, &self.buffer.bytes)?;
        }
        self.disk.sync(&file)?;
        // From here on it may have its name, and the one before has ended.
        let named = self.disk.rename(unnamed, &head::name(LOG, head.number));
        // mutation: segment-names
        named.and_then(|()| self.disk.sync_dir()).or_else(|error| self.failed(error))?;
        Ok(file)
    }

    fn head(&self, what: What, number: u64) -> Head {
        let before = if what == What::Segment { self.layout.cut } else { Cut::default() };
        Head {
            what,
            epoch: self.epoch,
            number,
            bytes: 0,
            before,
            last: self.seqs.synced,
            reserved: self.seqs.claimed.max(self.seqs.last.saturating_add(self.settings.reserve)),
            lost: self.lost.clone(),
        }
    }

    /// Makes room for the next segment before it is needed: a full disk is noticed while there is
    /// room for what is under way.
    fn make_spare(&mut self) {
        let mut health = Health::Healthy;
        if self.spares.names.is_empty() {
            let name = self.spares.new_name();
            match self.disk.create(&name, self.settings.segment_bytes) {
                Ok(_) => self.spares.names.push(name),
                Err(error) => health = Health::Full(error),
            }
        }
        let free_bytes = self.disk.free_bytes().unwrap_or(u64::MAX);
        let snapshot_bytes = self.layout.base.end + self.log_bytes();
        self.is_scarce = free_bytes < snapshot_bytes + 2 * self.settings.segment_bytes;
        // Room for a segment, and for a snapshot that is a little larger than the last.
        let reserve_bytes = self.settings.segment_bytes + self.layout.base.end / 4 * 5;
        let reserve_bytes = reserve_bytes.min(self.settings.log_bytes_min);
        if !self.has_reserve && free_bytes > 2 * reserve_bytes {
            self.has_reserve = self.disk.create(RESERVE, reserve_bytes).is_ok();
        }
        if !self.is_broken() {
            self.health = health;
        }
    }

    /// Gives back the room that was kept for a full disk. Returns whether there was any.
    fn give_reserve(&mut self) -> bool {
        std::mem::take(&mut self.has_reserve) && self.disk.remove(RESERVE).is_ok()
    }

    /// So many files wait to be written over at most: as many as the log has before the next
    /// snapshot, at least. To sync blocks that were written before is cheaper, since the file
    /// system has nothing to say of them in its own journal, and waits for nobody else's.
    fn spares_max(&self) -> usize {
        let segments = match self.is_scarce {
            true => 0,
            false => self.settings.log_bytes_min / self.settings.segment_bytes,
        };
        usize::try_from(segments).map_or(2, |segments| segments.max(2))
    }

    /// Removes the files that a snapshot of this life has made superfluous, except for some that
    /// become spares. A start does not call this for a snapshot that it finds: the name of that
    /// snapshot may not be on the disk. A file that cannot be removed stays until the next call. A
    /// spare also stays until then if its renaming or the sync behind it failed: its old name may
    /// come back.
    fn remove_stale(&mut self) {
        let Ok(files) = self.disk.list() else { return };
        let mut recycled = Vec::new();
        for (name, bytes) in files {
            let is_old =
                |number: Option<u64>| number.is_some_and(|number| number < self.layout.base.number);
            let is_segment = is_old(head::number(LOG, &name));
            // A new spare may have the name of a file that was listed.
            // mutation: useless-spares
            let is_known = self.spares.names.iter().chain(&recycled).any(|spare| *spare == name);
            let is_lost_spare = head::number(SPARE, &name).is_some() && !is_known;
            let may_be_spare = is_segment && bytes == self.settings.segment_bytes;
            if may_be_spare && self.spares.names.len() + recycled.len() < self.spares_max() {
                let spare = self.spares.new_name();
                if self.disk.rename(&name, &spare).is_ok() {
                    recycled.push(spare);
                }
            } else if is_segment
                || is_lost_spare
                || is_old(head::number(SNAPSHOT, name.trim_end_matches(UNNAMED)))
            {
                let _ = self.disk.remove(&name);
            }
        }
        self.layout.stale_bytes = 0;
        // A file may be written over only once its old name is gone for sure. After a failed sync
        // no later one can vouch for that, so the next call removes the file.
        if self.disk.sync_dir().is_ok() {
            self.spares.names.append(&mut recycled);
        }
    }
}

impl Spares {
    /// A name for a file that waits: none has it, nor had it in this life.
    fn new_name(&mut self) -> String {
        self.made += 1;
        head::name(SPARE, self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recovery, SimDisk};

    #[test]
    fn a_long_entry_leaves_no_memory_behind() {
        let settings = Settings { buffer_bytes: 300, ..Settings::default() };
        let recovery = Recovery::open(SimDisk::new(1)).unwrap();
        let recovered = recovery.read(&mut |_, _| Ok(())).unwrap();
        let mut store = Store::begin(recovered, settings, 1);
        store.push(1, |out| out.resize(out.len() + 100_000, 0)).unwrap();
        assert!(store.buffer.bytes.capacity() >= 100_000);
        store.sync().unwrap();
        assert_eq!(store.buffer.bytes.capacity(), 2 * 300);
    }
}
