//! Snapshots: files with which the log may begin anew.
//!
//! A snapshot has the format of the log: a head, frames, an end. Its frames hold pieces of a
//! payload, of which the store knows nothing. It is written without a name, a little at a time, on
//! any thread; is brought to the disk every few megabytes, so that no sync of the log waits long
//! behind it; and gets its name when all of it is there, and the log up to what it shows.
//!
//! A *whole* store in one file is the same with entries behind the payload, and needs no log. So
//! backups, repairs and imports are made. Each has a new EPOCH, since numbers that were given out
//! after what it holds will be given out again.

use crate::damage::OpenError;
use crate::frame::{self, FRAME_BYTES, Kind};
use crate::head::{self, Cut, Head, LOG, SNAPSHOT, UNNAMED, What};
use crate::recovery::{Piece, Recovered, Recovery};
use crate::stream::{SnapshotEncoder, pieces};
use std::ops::RangeInclusive;
use stentor_io::{Disk, DiskError, DiskErrorKind};

/// A snapshot that is being written.
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    file: D::File,
    number: u64,
    encoder: SnapshotEncoder,
    synced: u64,
    /// What is to be written next, or a frame of entries that is being put together.
    frame: Vec<u8>,
    /// The number of the last entry.
    seq: u64,
}

/// A snapshot that was written to its end, and has no name yet.
#[must_use]
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl Snapshot {
    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn name(&self, disk: &impl Disk) -> Result<(), DiskError> {
        disk.rename(&unnamed(self.number), &head::name(SNAPSHOT, self.number))?;
        disk.sync_dir()
    }

    /// Removes the file under either name: it may have either after [`Snapshot::name`] failed. No
    /// other file may have the number. If a removal fails, the file is removed later.
    pub(crate) fn give_up(&self, disk: &impl Disk) {
        let named = head::name(SNAPSHOT, self.number);
        let _ = disk.remove(&unnamed(self.number)).or_else(|_| disk.remove(&named));
    }
}

impl<D: Disk> SnapshotWriter<D> {
    pub(crate) fn begin(disk: &D, head: Head) -> Result<SnapshotWriter<D>, DiskError> {
        let file = disk.create(&unnamed(head.number), 0)?;
        let mut frame = Vec::new();
        let encoder = SnapshotEncoder::of(&head, &mut frame);
        let (disk, number) = (disk.clone(), head.number);
        let mut writer = SnapshotWriter { disk, file, number, encoder, synced: 0, frame, seq: 0 };
        match writer.write() {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.give_up();
                Err(error)
            }
        }
    }

    /// Adds a piece of the payload, in several frames if it is long. If a bad bit is to cost no
    /// more than one piece, what is in it must make sense without the one before.
    ///
    /// # Errors
    /// The disk failed: the snapshot is to be dropped.
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.pieces(Kind::Payload, bytes)
    }

    /// Goes on with the piece before.
    pub(crate) fn rest(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.pieces(Kind::Rest, bytes)
    }

    fn pieces(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), DiskError> {
        self.put_entries()?;
        pieces(kind, bytes).try_for_each(|(kind, piece)| {
            self.encoder.piece(kind, piece, &mut self.frame);
            self.write()
        })
    }

    /// Adds an entry, behind all of the payload: for a whole store, which has no log.
    ///
    /// # Errors
    /// The disk failed, or the number is below that of the entry before: the snapshot is to be
    /// dropped.
    pub fn entry(&mut self, seq: u64, entry: &[u8]) -> Result<(), DiskError> {
        if self.frame.is_empty() {
            frame::begin(Kind::Entries, &mut self.frame);
        }
        let is_next = seq >= self.seq;
        if !is_next || !frame::put_record(seq, &mut self.frame, |out| out.extend_from_slice(entry))
        {
            let reason = if is_next { "it is too long" } else { "it is below the one before" };
            return Err(refused("add an entry with number", &seq.to_string(), reason));
        }
        self.seq = seq;
        if self.frame.len() >= ENTRIES_BYTES { self.put_entries() } else { Ok(()) }
    }

    /// Says that a piece of the payload was lost.
    pub(crate) fn hole(&mut self) -> Result<(), DiskError> {
        self.put_entries()?;
        self.encoder.empty(Kind::Hole, 0, &mut self.frame);
        self.write()
    }

    /// Ends it; all of it is on the disk.
    ///
    /// # Errors
    /// The disk failed, and the snapshot is dropped.
    pub fn end(self) -> Result<Snapshot, DiskError> {
        let last = self.seq;
        self.end_at(last)
    }

    /// The same, of a whole store: numbers up to `last` were given out.
    pub(crate) fn end_at(mut self, last: u64) -> Result<Snapshot, DiskError> {
        match self.write_end(last) {
            Ok(()) => Ok(Snapshot { number: self.number, bytes: self.encoder.offset }),
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    fn write_end(&mut self, last: u64) -> Result<(), DiskError> {
        self.put_entries()?;
        self.encoder.empty(Kind::End, last, &mut self.frame);
        self.write()?;
        self.sync()
    }

    /// Removes the unfinished file. A file that has the final name is another one: [`replace`]
    /// promises that it stays. If the removal fails, the file is written over or removed later.
    pub fn give_up(self) {
        // mutation: replaced-file
        let _ = self.disk.remove(&unnamed(self.number));
    }

    fn put_entries(&mut self) -> Result<(), DiskError> {
        if self.frame.is_empty() {
            return Ok(());
        }
        self.encoder.seal(&mut self.frame, 0);
        self.write()
    }

    fn write(&mut self) -> Result<(), DiskError> {
        let offset = self.encoder.offset - self.frame.len() as u64;
        self.disk.write_at(&self.file, offset, &self.frame)?;
        self.frame.clear();
        if self.encoder.offset - self.synced >= SYNC_BYTES { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.synced = self.encoder.offset;
        self.disk.sync(&self.file)
    }
}

/// Copies a store, which may be in use, into an empty directory, where it is one file and a store.
/// `epoch` is a new random number.
///
/// # Errors
/// The store cannot be read, or the copy cannot be written; it has no name then.
pub fn backup<D: Disk, E: Disk>(
    recovery: Recovery<D>,
    target: &E,
    epoch: u32,
) -> Result<(), OpenError> {
    refuse_store(target)?;
    copy(recovery, target, WHOLE_NUMBER, epoch).map(|_| ())
}

/// Makes a store of what `fill` adds, in an empty directory. `fill` returns the last number that
/// was given out.
///
/// # Errors
/// The disk failed, or there is a store already.
pub fn import<D: Disk>(
    disk: &D,
    epoch: u32,
    fill: impl FnOnce(&mut SnapshotWriter<D>) -> Result<u64, DiskError>,
) -> Result<(), DiskError> {
    refuse_store(disk)?;
    write_whole(disk, whole(WHOLE_NUMBER, epoch), fill)
}

/// Puts a whole store of what `fill` adds in the place of the one that was put there before, if one
/// was: either of them is there, whatever fails meanwhile. It is byte for byte a snapshot that is
/// sent ([`crate::SnapshotEncoder`]), begun at the number `seq` of this life, in which the numbers
/// of `lost` were given to what is no more. `fill` returns the last number that was given out.
///
/// # Errors
/// The disk failed, or there is a store that was not put there so; or what `fill` says.
pub fn replace<D: Disk, E: From<DiskError>>(
    disk: &D,
    (epoch, seq, lost): (u32, u64, Vec<RangeInclusive<u64>>),
    fill: impl FnOnce(&mut SnapshotWriter<D>) -> Result<u64, E>,
) -> Result<(), E> {
    find_replaced(disk)?;
    write_whole(disk, Head { last: seq, lost, ..whole(WHOLE_NUMBER, epoch) }, fill)
}

/// Opens what [`replace`] has put into a directory last. Returns its length as well; `None` if
/// there is nothing.
///
/// # Errors
/// The disk failed, or there is a store that was not put there so.
pub fn open_replaced<D: Disk>(disk: &D) -> Result<Option<(D::File, u64)>, DiskError> {
    match find_replaced(disk)? {
        Some((name, bytes)) => disk.open(&name).map(|file| Some((file, bytes))),
        None => Ok(None),
    }
}

fn find_replaced(disk: &impl Disk) -> Result<Option<(String, u64)>, DiskError> {
    let replaced = head::name(SNAPSHOT, WHOLE_NUMBER);
    let files = files_of_store(disk)?;
    match files.iter().find(|(name, _)| *name != replaced) {
        Some((name, _)) => Err(refused("keep a snapshot beside", name, "it is of another store")),
        None => Ok(files.into_iter().next()),
    }
}

fn write_whole<D: Disk, E: From<DiskError>>(
    disk: &D,
    head: Head,
    fill: impl FnOnce(&mut SnapshotWriter<D>) -> Result<u64, E>,
) -> Result<(), E> {
    let mut writer = SnapshotWriter::begin(disk, head)?;
    match fill(&mut writer) {
        Ok(last) => {
            let last = last.max(writer.seq);
            Ok(writer.end_at(last)?.name(disk)?)
        }
        Err(error) => {
            writer.give_up();
            Err(error)
        }
    }
}

/// Writes what is read to one file with this number.
pub(crate) fn copy<D: Disk, E: Disk>(
    recovery: Recovery<D>,
    target: &E,
    number: u64,
    epoch: u32,
) -> Result<Recovered<D>, OpenError> {
    let mut writer = SnapshotWriter::begin(target, whole(number, epoch))?;
    let mut failure = None;
    let read = recovery.read(&mut |piece, _| {
        let written = match piece {
            Piece::Payload(bytes) => writer.payload(bytes),
            Piece::Rest(bytes) => writer.rest(bytes),
            Piece::Hole => writer.hole(),
            Piece::Entry(seq, entry) => writer.entry(seq, entry),
        };
        written.map_err(|error| {
            failure = Some(error);
            String::new()
        })
    });
    let copied = match (read, failure) {
        (_, Some(error)) => Err(error.into()),
        (Ok(recovered), None) => Ok(recovered),
        (Err(error), None) => Err(error),
    };
    let recovered = match copied {
        Ok(recovered) => recovered,
        Err(error) => {
            writer.give_up();
            return Err(error);
        }
    };
    let snapshot = writer.end_at(recovered.last)?;
    if let Err(error) = snapshot.name(target) {
        snapshot.give_up(target);
        return Err(error.into());
    }
    Ok(recovered)
}

fn unnamed(number: u64) -> String {
    head::name(SNAPSHOT, number) + UNNAMED
}

/// The head of a whole store.
pub(crate) fn whole(number: u64, epoch: u32) -> Head {
    Head {
        what: What::Whole,
        epoch,
        number,
        bytes: 0,
        before: Cut::default(),
        last: 0,
        reserved: 0,
        lost: Vec::new(),
    }
}

fn refuse_store(disk: &impl Disk) -> Result<(), DiskError> {
    match files_of_store(disk)?.first() {
        Some((name, _)) => Err(refused("make a store beside", name, "there is one already")),
        None => Ok(()),
    }
}

/// The name of a file by which a directory is a store, damaged or not.
///
/// # Errors
/// The disk failed.
pub fn file_of_store(disk: &impl Disk) -> Result<Option<String>, DiskError> {
    Ok(files_of_store(disk)?.into_iter().next().map(|(name, _)| name))
}

fn files_of_store(disk: &impl Disk) -> Result<Vec<(String, u64)>, DiskError> {
    let is_ours =
        |name: &str| [LOG, SNAPSHOT].iter().any(|word| head::number(word, name).is_some());
    Ok(disk.list()?.into_iter().filter(|(name, _)| is_ours(name)).collect())
}

fn refused(tried: &'static str, path: &str, reason: &str) -> DiskError {
    DiskError { kind: DiskErrorKind::Failed, tried, path: path.into(), reason: reason.into() }
}

/// Brought to the disk at a time.
const SYNC_BYTES: u64 = if cfg!(test) { 300 } else { 4 << 20 };

/// The number of a file that is a whole store, wherever one is made.
pub(crate) const WHOLE_NUMBER: u64 = 1;

/// A frame of entries is written when it is so long.
const ENTRIES_BYTES: usize = if cfg!(test) { 200 } else { 1 << 20 };

/// A longer piece is two.
pub(crate) const PIECE_BYTES_MAX: usize = if cfg!(test) { 900 } else { 64 << 20 };

const _: () = assert!(PIECE_BYTES_MAX < frame::ENTRY_BYTES_MAX && FRAME_BYTES < ENTRIES_BYTES);
