//! The cache of files, as workers and the loaders share it.

use crate::cache::{CachedFiles, Kept};
use crate::disk::Root;
use crate::entry::CachedFile;
use crate::list::DirectoryList;
use crate::loader::{FileLoader, LookWork};
use crate::look_queue::{LookJob, LookQueue, look_queue};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;
use stentor_config::{Files, Mount};
use stentor_io::monotonic_us;
use stentor_wire::negotiate::{Encoding, compressible};

/// The cache that workers and loaders share, and the queues of the loaders.
#[derive(Default)]
pub struct FileCache {
    pub(crate) cache: CachedFiles,
    /// The current settings. Entries are made and changed under this lock.
    served: Mutex<Arc<Served>>,
    /// Workers hold this lock only while they put a job into a queue.
    queues: Mutex<LoaderQueues>,
}

/// The settings of files.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) mounts: Vec<Mount>,
    pub(crate) files: Files,
}

/// The queues of the loader of each mount: a mount that hangs delays no file of another.
#[derive(Default)]
struct LoaderQueues {
    served: Arc<Served>,
    by_mount: Vec<LoaderQueue>,
}

/// The sending half of the queues of one mount.
struct LoaderQueue {
    looks: LookLine,
    /// Lists of directories.
    lists: LookLine,
    packs: SyncSender<PackJob>,
}

/// The looks that one thread makes.
struct LookLine {
    queue: LookQueue,
    began_ms: Arc<LookBegan>,
}

impl LookLine {
    fn new() -> (LookLine, LookWork) {
        let (queue, jobs) = look_queue();
        let looks = LookLine { queue, began_ms: Arc::default() };
        let began_ms = Arc::clone(&looks.began_ms);
        (looks, LookWork { queue: jobs, began_ms })
    }
}

/// The time in milliseconds at which the current look of a thread began; 0: the thread is idle.
#[derive(Default)]
pub(crate) struct LookBegan(AtomicU64);

impl LookBegan {
    pub(crate) fn begin(&self) {
        self.0.store((monotonic_us() / 1_000).max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn is_hung(&self) -> bool {
        let began_ms = self.0.load(Ordering::Relaxed);
        began_ms != 0 && (monotonic_us() / 1_000).saturating_sub(began_ms) >= HUNG_MS
    }
}

impl LoaderQueues {
    /// The queue of the mount that serves a path.
    fn of(&self, path: &str) -> Option<&LoaderQueue> {
        self.by_mount.get(mount_of(&self.served.mounts, path)?.0)
    }

    /// The looks among which one at a path is: a slash at its end is that of a directory.
    fn looks(&self, path: &str) -> Option<&LookLine> {
        let queue = self.of(path)?;
        Some(if path.ends_with('/') { &queue.lists } else { &queue.looks })
    }
}

/// An entry that is to be compressed.
pub(crate) struct PackJob {
    pub(crate) path: Box<str>,
    pub(crate) entry: Weak<CachedFile>,
    pub(crate) encoding: Encoding,
}

/// The outcome of a look at a path.
#[derive(Clone, Debug)]
pub enum FileLook {
    /// There is a file. It is in memory if it is worth keeping.
    File,
    /// There is a directory.
    Directory,
    /// What is in the directory.
    List(Arc<DirectoryList>),
    /// There is nothing that may be served.
    Nothing,
    /// The file system said no.
    Failed(Arc<io::Error>),
    /// The loader could not look in time, and why: a sentence. The worker serves a file in memory
    /// as it is.
    NotMade(&'static str),
}

impl FileLook {
    pub(crate) fn of(error: io::Error) -> FileLook {
        if FileLook::is_nothing(&error) { FileLook::Nothing } else { FileLook::failed(error) }
    }

    fn failed(error: io::Error) -> FileLook {
        FileLook::Failed(Arc::new(error))
    }

    /// Whether an error means that there is nothing of that name.
    #[must_use]
    pub fn is_nothing(error: &io::Error) -> bool {
        matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::InvalidFilename
                | ErrorKind::InvalidInput
        )
    }
}

/// The reason why the loader does not look at a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAsked {
    /// Too many wait.
    Busy,
    /// It has ended.
    NoLoader,
}

/// Tells the worker that asked. It tells of a failure if the loader drops it.
pub(crate) struct LookReply(Option<Box<dyn FnOnce(FileLook) + Send>>);

impl LookReply {
    pub(crate) fn send(mut self, looked: FileLook) {
        if let Some(reply) = self.0.take() {
            reply(looked);
        }
    }

    /// Tells the worker nothing.
    fn cancel(mut self) {
        self.0 = None;
    }
}

impl Drop for LookReply {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(FileLook::failed(io::Error::other("the loader of files panicked")));
        }
    }
}

impl FileCache {
    /// Applies these settings. Returns the loaders of the mounts, if the settings are new; the
    /// loaders of the settings before end with their current job.
    pub fn reload(self: &Arc<FileCache>, mounts: &[Mount], files: &Files) -> Vec<FileLoader> {
        let mut served = stentor_io::lock(&self.served);
        if served.mounts == mounts && served.files == *files {
            return Vec::new();
        }
        *served = Arc::new(Served { mounts: mounts.to_vec(), files: files.clone() });
        self.cache.clear();
        let pairs = (0..mounts.len()).map(|index| {
            let ((looks, look_work), (lists, list_work)) = (LookLine::new(), LookLine::new());
            let (packs, pack_jobs) = mpsc::sync_channel(PACKS_MAX);
            let queue = LoaderQueue { looks, lists, packs };
            let work = [look_work, list_work];
            (queue, FileLoader::new(self, (&served, index), work, pack_jobs))
        });
        let (by_mount, loaders) = pairs.unzip();
        *stentor_io::lock(&self.queues) = LoaderQueues { served: Arc::clone(&served), by_mount };
        loaders
    }

    /// Keeps an entry that was made by these settings. Returns false if others count by now.
    pub(crate) fn enter(&self, path: &str, entry: &Arc<CachedFile>, made_by: &Arc<Served>) -> bool {
        let served = stentor_io::lock(&self.served);
        let is_true = Arc::ptr_eq(&served, made_by);
        if is_true {
            self.cache.insert(path, Arc::clone(entry));
            self.cache.evict(served.files.cache_bytes_max as u64);
        }
        is_true
    }

    /// Adds a form to an entry, if that is still the one that is kept.
    pub(crate) fn add(
        &self,
        path: &str,
        entry: &Arc<CachedFile>,
        encoding: Encoding,
        body: Vec<u8>,
    ) {
        let served = stentor_io::lock(&self.served);
        if self.cache.entry(path).is_some_and(|kept| Arc::ptr_eq(&kept, entry)) {
            let tag = entry.tag.encoded(encoding);
            self.cache.change(path, entry, |entry| entry.add(encoding, tag, body));
            self.cache.evict(served.files.cache_bytes_max as u64);
        }
    }

    /// Forgets all entries.
    pub(crate) fn clear(&self) {
        let _served = stentor_io::lock(&self.served);
        self.cache.clear();
    }

    /// The file is gone.
    pub(crate) fn remove(&self, path: &str) {
        let _served = stentor_io::lock(&self.served);
        self.cache.remove(path);
    }

    /// Has an entry compressed soon, unless that was tried already. If too many wait for that, a
    /// later request asks again.
    pub fn pack(&self, path: &str, entry: &Arc<CachedFile>, encoding: Encoding) {
        let wanted = encoding != Encoding::Identity && compressible(entry.content_type);
        if wanted && !entry.available().contains(encoding) && entry.ask(encoding) {
            let pack = PackJob { path: path.into(), entry: Arc::downgrade(entry), encoding };
            let queues = stentor_io::lock(&self.queues);
            if queues.of(path).is_none_or(|queue| queue.packs.try_send(pack).is_err()) {
                entry.forget(encoding);
            }
        }
    }

    /// Whether the file system of a path has not answered its loader for so long that it may never
    /// do so.
    pub fn is_hung(&self, path: &str) -> bool {
        let queues = stentor_io::lock(&self.queues);
        queues.looks(path).is_some_and(|looks| looks.began_ms.is_hung())
    }

    /// Whether there is an entry of that path, be it old or not.
    pub fn keeps(&self, path: &str) -> bool {
        self.cache.with(path, |entry| entry.is_some())
    }

    /// Calls `show` with the entry of the path, and records the use. An entry that was not checked
    /// within a second counts as none, unless it `may_be_old` or the file system hangs.
    pub fn with_entry<R>(
        &self,
        path: &str,
        now_ms: u64,
        may_be_old: bool,
        show: impl FnOnce(Option<&Arc<CachedFile>>) -> R,
    ) -> R {
        let counts =
            |entry: &&Arc<CachedFile>| may_be_old || entry.is_fresh(now_ms) || self.is_hung(path);
        self.cache.with(path, |entry| {
            let entry = entry.filter(counts);
            if let Some(entry) = entry {
                entry.note_use(now_ms);
                if entry.begins_early_check(now_ms)
                    && self.put(path, Encoding::Identity, now_ms, None).is_err()
                {
                    entry.repeat_early_check();
                }
            }
            show(entry)
        })
    }

    /// Has the loader look at a file, and call `reply` with what it finds. A text is compressed in
    /// that encoding, if it is to be kept. A path that ends with a slash is that of a directory,
    /// which the loader lists, if its mount allows that.
    ///
    /// # Errors
    /// `reply` is not called.
    pub fn ask(
        &self,
        path: &str,
        encoding: Encoding,
        now_ms: u64,
        reply: impl FnOnce(FileLook) + Send + 'static,
    ) -> Result<(), NotAsked> {
        self.put(path, encoding, now_ms, Some(LookReply(Some(Box::new(reply)))))
    }

    fn put(
        &self,
        path: &str,
        encoding: Encoding,
        now_ms: u64,
        reply: Option<LookReply>,
    ) -> Result<(), NotAsked> {
        let (job, is_check) = (LookJob::new(path, encoding, now_ms), self.keeps(path));
        let queues = stentor_io::lock(&self.queues);
        let put = match queues.looks(path) {
            Some(looks) => looks.queue.put(job, is_check, reply),
            None => Err((NotAsked::NoLoader, reply)),
        };
        put.map_err(|(reason, reply)| {
            reply.into_iter().for_each(LookReply::cancel);
            reason
        })
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

/// Whether every root is a directory that can be opened and whose file system answers. Waits a few
/// seconds at most for all of them.
///
/// # Errors
/// One is not; the error names it.
pub fn check_roots(mounts: &[Mount]) -> io::Result<()> {
    check_roots_within(mounts, ROOT_PATIENCE)
}

/// Each root is opened by a thread of its own, since no other thread may wait for its file system.
fn check_roots_within(mounts: &[Mount], patience: Duration) -> io::Result<()> {
    let end_us = monotonic_us() + patience.as_micros() as u64;
    let openers: Vec<_> = mounts.iter().map(open_root).collect();
    let mut are_walked = false;
    for (Mount { root, .. }, opener) in mounts.iter().zip(openers) {
        let no_answer = |_| io::Error::new(ErrorKind::TimedOut, "the file system does not answer");
        let opened = opener.and_then(|opened| {
            let left = Duration::from_micros(end_us.saturating_sub(monotonic_us()));
            opened.recv_timeout(left).map_err(no_answer)?
        });
        let is_resolved = opened.map_err(|error| {
            let reason = format!("the files of {} cannot be served: {error}", root.display());
            io::Error::new(error.kind(), reason)
        })?;
        are_walked |= !is_resolved;
    }
    if are_walked {
        tracing::info!(
            "the system call openat2 is not available here: paths of files are resolved one \
             directory at a time, which is as safe and slower for files that are not in memory"
        );
    }
    Ok(())
}

/// Opens a root on a thread of its own, and asks its file system which directory it is. Tells
/// whether the kernel resolves paths beneath it.
fn open_root(mount: &Mount) -> io::Result<Receiver<io::Result<bool>>> {
    let (tell, told) = mpsc::channel();
    let mount = mount.clone();
    let open = move || {
        let opened = Root::open(&mount).map(|root| root.directory().is_resolved_by_kernel());
        let _ = tell.send(opened);
    };
    thread::Builder::new().name("root-opener".to_owned()).spawn(open)?;
    Ok(told)
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

/// The most files of a mount that wait to be compressed. For others a later request asks again.
const PACKS_MAX: usize = 4 * 1024;

/// How long a start or a reload waits for the file system of a root.
const ROOT_PATIENCE: Duration = Duration::from_secs(5);

/// After so long without an answer of the file system, no request waits for it.
const HUNG_MS: u64 = 1_000;

/// Text up to this size is compressed and kept so, even if it is too large to be kept as it is:
/// the scripts of a page are.
pub(crate) const COMPRESS_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
