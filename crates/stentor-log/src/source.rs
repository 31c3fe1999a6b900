//! A file that is read from its beginning to its end, in large pieces.

use stentor_io::{Disk, DiskError};

/// A file, and the piece of it that is in memory.
pub(crate) struct Source<D: Disk> {
    disk: D,
    file: D::File,
    end: u64,
    begin: u64,
    window: Vec<u8>,
}

impl<D: Disk> Source<D> {
    /// The first `end` bytes of a file, or as many as it has.
    pub(crate) fn open(disk: &D, name: &str, end: u64) -> Result<Source<D>, DiskError> {
        let file = disk.open(name)?;
        Ok(Source { disk: disk.clone(), file, end, begin: 0, window: Vec::new() })
    }

    /// So many bytes from an offset on, or what there is of them.
    pub(crate) fn at(&mut self, offset: u64, bytes: usize) -> Result<&[u8], DiskError> {
        let wanted = left(self.end, offset, bytes);
        let in_window = |source: &Source<D>| {
            let from = usize::try_from(offset.checked_sub(source.begin)?).ok()?;
            (from <= source.window.len()).then_some(from)
        };
        let from = in_window(self).unwrap_or(usize::MAX);
        if from.checked_add(wanted).is_none_or(|to| to > self.window.len()) {
            self.window.drain(..from.min(self.window.len()));
            self.begin = offset;
            let kept = self.window.len();
            self.window.resize(left(self.end, offset, wanted.max(PIECE_BYTES)), 0);
            let into = &mut self.window[kept..];
            let read = self.disk.read_at(&self.file, offset + kept as u64, into)?;
            self.window.truncate(kept + read);
        }
        let from = (offset - self.begin) as usize;
        Ok(&self.window[from..][..wanted.min(self.window.len() - from)])
    }
}

/// How many of these bytes there are before the end.
fn left(end: u64, offset: u64, bytes: usize) -> usize {
    usize::try_from(end.saturating_sub(offset)).map_or(bytes, |left| left.min(bytes))
}

const PIECE_BYTES: usize = if cfg!(test) { 512 } else { 1 << 20 };
