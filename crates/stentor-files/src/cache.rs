//! The table of entries: all workers read it; it is changed under the lock of its owner.

use super::CachedFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Entries by the path they answer for.
#[derive(Default)]
pub(crate) struct CachedFiles {
    table: papaya::HashMap<Box<str>, Arc<CachedFile>, foldhash::fast::RandomState>,
    entries: AtomicU64,
    bytes: AtomicU64,
    evictions: AtomicU64,
    /// Entries that were dropped and that connections still hold, in bytes.
    detached: Arc<AtomicUsize>,
}

/// What a cache holds at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// Files in memory.
    pub entries: u64,
    /// Of files, their heads and their compressed forms.
    pub bytes: u64,
    /// Entries that had to go for others since the start.
    pub evictions: u64,
}

impl CachedFiles {
    /// Shows the entry of a path.
    pub(super) fn with<R>(
        &self,
        path: &str,
        show: impl FnOnce(Option<&Arc<CachedFile>>) -> R,
    ) -> R {
        show(self.table.pin().get(path))
    }

    /// The entry of a path.
    pub(super) fn entry(&self, path: &str) -> Option<Arc<CachedFile>> {
        self.with(path, |entry| entry.cloned())
    }

    pub(super) fn detached_bytes(&self) -> usize {
        self.detached.load(Ordering::Relaxed)
    }

    pub(super) fn kept(&self) -> Kept {
        Kept {
            entries: self.entries.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    pub(super) fn were_evicted(&self, files: u64) {
        self.evictions.fetch_add(files, Ordering::Relaxed);
    }

    // From here on: under the lock of `FileCache`.

    /// Enters or replaces.
    pub(super) fn insert(&self, path: &str, entry: Arc<CachedFile>) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(cost(path, &entry), Ordering::Relaxed);
        let table = self.table.pin();
        let replaced = table.insert(path.into(), entry);
        if let Some(replaced) = replaced {
            self.forget(path, replaced);
        }
    }

    /// Lets a change be made to an entry that is in the table, and keeps the count of bytes.
    pub(super) fn change(&self, path: &str, entry: &CachedFile, change: impl FnOnce(&CachedFile)) {
        let before = cost(path, entry);
        change(entry);
        self.bytes.fetch_add(cost(path, entry) - before, Ordering::Relaxed);
    }

    /// Removes, if it is there.
    pub(super) fn remove(&self, path: &str) {
        if let Some(entry) = self.table.pin().remove(path) {
            self.forget(path, entry);
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        let table = self.table.pin();
        let paths: Vec<Box<str>> = table.keys().cloned().collect();
        paths.iter().for_each(|path| self.remove(path));
    }

    /// Makes room, if there is more than `bytes_max`: what was not used for longest goes, and some
    /// more with it, so that the next entries find room without another search.
    pub(super) fn evict(&self, bytes_max: u64) {
        if self.kept().bytes <= bytes_max {
            return;
        }
        let table = self.table.pin();
        let mut by_age: Vec<(u64, &str)> =
            table.iter().map(|(path, entry)| (entry.used_ms(), &**path)).collect();
        by_age.sort_unstable();
        for (_, path) in by_age {
            if self.kept().bytes <= bytes_max - bytes_max / EVICTED_SHARE {
                break;
            }
            self.remove(path);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn forget(&self, path: &str, entry: &CachedFile) {
        self.entries.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(cost(path, entry), Ordering::Relaxed);
        entry.detach(&self.detached);
    }
}

/// What an entry takes of memory, its place in the table included.
fn cost(path: &str, entry: &CachedFile) -> u64 {
    (entry.bytes() + path.len() + PLACE_BYTES) as u64
}

/// The pair in the table with its header, its two pointers and the counts of the `Arc`.
const PLACE_BYTES: usize = 96;

/// One in so many bytes goes beyond what is needed.
const EVICTED_SHARE: u64 = 16;
