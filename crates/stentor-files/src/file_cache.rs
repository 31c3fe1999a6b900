//! The cache of files, as workers and the loader share it.

use crate::cache::{CachedFiles, Kept};
use crate::entry::CachedFile;
use crate::loader::FileLoader;
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use stentor_config::{Files, Mount};
use stentor_io::{Directory, Waker, Watcher};
use stentor_wire::negotiate::{Encoding, compressible};

/// What workers and loader share: the cache, and the way to ask for more.
pub struct FileCache {
    pub(crate) cache: CachedFiles,
    pub(crate) jobs: SyncSender<Job>,
    /// The other end, as long as there is no loader.
    pub(crate) queue: Mutex<Option<Receiver<Job>>>,
    /// Other mounts than those the loader goes by, since the settings were read again.
    pub(crate) reload: Mutex<Option<(Vec<Mount>, Files)>>,
    pub(crate) waker: Arc<Waker>,
}

/// What a worker asks of the loader: this file, and if it can be, in that encoding.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) path: Box<str>,
    pub(crate) encoding: Encoding,
    pub(crate) now_ms: u64,
}

impl FileCache {
    /// An empty cache. To be made before workers take file tables of their own, for they wake the
    /// loader.
    ///
    /// # Errors
    /// The host is out of files or memory.
    pub fn new() -> io::Result<FileCache> {
        let (jobs, queue) = mpsc::sync_channel(LOAD_QUEUE);
        Ok(FileCache {
            cache: CachedFiles::default(),
            jobs,
            queue: Mutex::new(Some(queue)),
            reload: Mutex::new(None),
            waker: Arc::new(Waker::new()?),
        })
    }

    /// The loader, if there is anything to keep; there is one at most.
    ///
    /// # Errors
    /// The host is out of files or memory, or of inotify instances.
    pub fn loader(
        self: &Arc<FileCache>,
        mounts: &[Mount],
        files: &Files,
    ) -> io::Result<Option<FileLoader>> {
        let mut queue = stentor_io::lock(&self.queue);
        if mounts.is_empty() || queue.is_none() {
            return Ok(None);
        }
        // Before the queue is taken: should there be none now, a later reload may try again.
        let watcher = Watcher::new()?;
        let loader = |queue| FileLoader::new(self, queue, watcher, mounts.to_vec(), files.clone());
        Ok(queue.take().map(loader))
    }

    /// Goes by other mounts from now on.
    pub fn reload(&self, mounts: &[Mount], files: &Files) {
        let mut reload = stentor_io::lock(&self.reload);
        *reload = Some((mounts.to_vec(), files.clone()));
        self.waker.wake();
    }

    /// Shows the entry of that path, if there is one, and notes that it was used.
    pub fn with_entry<R>(
        &self,
        path: &str,
        now_ms: u64,
        show: impl FnOnce(Option<&Arc<CachedFile>>) -> R,
    ) -> R {
        self.cache.with(path, |entry| {
            if let Some(entry) = entry {
                entry.note_use(now_ms);
            }
            show(entry)
        })
    }

    /// Asks for the file to be kept, in that encoding too if it is text. If the loader has too much
    /// to do, a later request will ask again.
    pub fn ask(&self, path: &str, encoding: Encoding, now_ms: u64) -> bool {
        let asked = self.jobs.try_send(Job { path: path.into(), encoding, now_ms }).is_ok();
        if asked {
            self.waker.wake();
        }
        asked
    }

    /// Files that the cache has dropped and that connections still hold, in bytes.
    pub fn detached_bytes(&self) -> usize {
        self.cache.detached_bytes()
    }

    /// What is kept at the moment, and what had to go so far.
    pub fn kept(&self) -> Kept {
        self.cache.kept()
    }

    /// So many had to go before, in another process.
    pub fn were_evicted(&self, files: u64) {
        self.cache.were_evicted(files);
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        // The loader looks, and ends.
        self.waker.wake();
    }
}

/// Whether every root is a directory that can be opened.
///
/// # Errors
/// One is not; the error names it.
pub fn check_roots(mounts: &[Mount]) -> io::Result<()> {
    let mut are_walked = false;
    for Mount { root, .. } in mounts {
        let directory = Directory::open(root).map_err(|error| {
            let reason = format!("the files of {} cannot be served: {error}", root.display());
            io::Error::new(error.kind(), reason)
        })?;
        are_walked |= !directory.is_resolved_by_kernel();
    }
    if are_walked {
        tracing::info!(
            "the system call openat2 is not available here: paths of files are resolved one \
             directory at a time, which is as safe and slower for files that are not in memory"
        );
    }
    Ok(())
}

/// The mount that a path is under, the longest if there are several, and the path beneath it.
pub fn mount_of<'m, 'p>(mounts: &'m [Mount], path: &'p str) -> Option<(usize, &'m Mount, &'p str)> {
    let under = mounts.iter().enumerate().filter_map(|(index, mount)| {
        path.strip_prefix(mount.path.as_str()).map(|rest| (index, mount, rest))
    });
    under.max_by_key(|(_, mount, _)| mount.path.len())
}

/// Whether a file is worth asking the loader for: it is small, or text that is worth compressing.
pub fn is_worth_keeping(files: &Files, bytes: u64, content_type: &str) -> bool {
    let text = compressible(content_type) && bytes <= COMPRESS_FILE_BYTES_MAX;
    let small = bytes <= files.small_bytes_max as u64;
    // What is evicted for it must not be all the others, and itself.
    let fits = bytes + ENTRY_BYTES_USUAL <= files.cache_bytes_max as u64 / 2;
    fits && (small || text)
}

/// The `Cache-Control` of the file `name` beneath a mount.
pub fn cache_control<'m>(mount: &'m Mount, name: &str) -> &'m str {
    if !mount.immutable.is_empty() {
        let path = format!("{}{name}", mount.path);
        if mount.immutable.iter().any(|pattern| pattern.matches(&path)) {
            // RFC 8246: not even a reload asks again.
            return "public, max-age=31536000, immutable";
        }
    }
    mount.cache_control.as_str()
}

/// What an entry takes beside the content.
const ENTRY_BYTES_USUAL: u64 = 1024;

/// What may stand beside a file, packed already.
pub const PACKED: [Encoding; 3] = [Encoding::Gzip, Encoding::Br, Encoding::Zstd];

/// Files that may wait to be loaded into memory; beyond it a later request asks again.
const LOAD_QUEUE: usize = 4 * 1024;

/// Text up to this size is compressed and kept so, even if it is too large to be kept as it is:
/// the scripts of a page are.
pub(crate) const COMPRESS_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
