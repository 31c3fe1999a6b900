//! The mark: up to where the newest segment is on the disk, and whether the store was closed there.
//!
//! It is a file of its own, so no sector has both an entry and the evidence for that entry. After
//! each sync of the log the mark is written, and after a moment of quiet it is synced itself. A
//! segment that ends before its mark is damaged: see `recovery.rs`. A missing mark proves nothing.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `stentorM` |
//! | 8..16 | hash of the rest: XXH3-64 |
//! | 16..24 | number of the segment |
//! | 24..32 | everything below this offset of it is on the disk |
//! | 32..40 | the last number that was given out, if the store was closed; else 2⁶⁴ - 1 |

use crate::frame::u64_at;
use stentor_io::{Disk, DiskError, DiskErrorKind};
use twox_hash::XxHash3_64;

/// The content of the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) synced: u64,
    /// The last number, if the store was closed.
    pub(crate) closed: Option<u64>,
}

impl Mark {
    /// Reads the mark of a store. Returns `None` without one that verifies.
    pub(crate) fn read(disk: &impl Disk) -> Result<Option<Mark>, DiskError> {
        if !disk.list()?.iter().any(|(name, _)| name == MARK) {
            return Ok(None);
        }
        let mut bytes = [0; MARK_BYTES];
        let length = disk.read_at(&disk.open(MARK)?, 0, &mut bytes)?;
        let is_mark = length == MARK_BYTES && bytes[..8] == *MAGIC;
        if !is_mark || XxHash3_64::oneshot(&bytes[16..]) != u64_at(&bytes, 8) {
            return Ok(None);
        }
        let [number, synced, closed] = [16, 24, 32].map(|at| u64_at(&bytes, at));
        Ok(Some(Mark { number, synced, closed: Some(closed).filter(|last| *last != OPEN) }))
    }

    fn encode(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let numbers = [self.number, self.synced, self.closed.unwrap_or(OPEN)];
        bytes[..8].copy_from_slice(MAGIC);
        for (at, number) in [16, 24, 32].into_iter().zip(numbers) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let hash = XxHash3_64::oneshot(&bytes[16..]);
        bytes[8..16].copy_from_slice(&hash.to_le_bytes());
        bytes
    }
}

/// The file of the mark, which is written again and again.
pub(crate) struct MarkFile<D: Disk> {
    file: Option<D::File>,
    is_synced: bool,
}

impl<D: Disk> MarkFile<D> {
    /// Makes the file, in the place of the one before, whose name may not be on the disk. `mark` is
    /// the content of that one. Without a file the store has no mark.
    pub(crate) fn begin(disk: &D, mark: Option<Mark>) -> MarkFile<D> {
        let made = disk.create(MADE, MARK_BYTES as u64).and_then(|file| {
            mark.map_or(Ok(()), |mark| disk.write_at(&file, 0, &mark.encode()))?;
            // After a failure no later sync can vouch for the name.
            disk.rename(MADE, MARK).and_then(|()| disk.sync_dir()).map(|()| file)
        });
        MarkFile { file: made.ok(), is_synced: true }
    }

    /// Makes the file if it could not be made before.
    pub(crate) fn retry(&mut self, disk: &D) {
        if self.file.is_none() {
            *self = MarkFile::begin(disk, None);
        }
    }

    /// Writes the mark. An error leaves a mark that proves less, or none.
    pub(crate) fn write(&mut self, disk: &D, mark: Mark) -> Result<(), DiskError> {
        let file = self.file.as_ref().ok_or_else(no_file)?;
        self.is_synced = false;
        disk.write_at(file, 0, &mark.encode())
    }

    /// Brings the mark to the disk.
    pub(crate) fn sync(&mut self, disk: &D) -> Result<(), DiskError> {
        match &self.file {
            None => return Err(no_file()),
            Some(file) if !self.is_synced => disk.sync(file)?,
            Some(_) => {}
        }
        self.is_synced = true;
        Ok(())
    }
}

fn no_file() -> DiskError {
    let (path, reason) = (MARK.to_owned(), "it could not be made".to_owned());
    DiskError { kind: DiskErrorKind::Failed, tried: "write to", path, reason }
}

/// The name of the file.
const MARK: &str = "mark";

/// The name of one that is being made.
const MADE: &str = "mark.tmp";

const MAGIC: &[u8; 8] = b"stentorM";

const MARK_BYTES: usize = 40;

/// The field of a store that was not closed.
const OPEN: u64 = u64::MAX;
