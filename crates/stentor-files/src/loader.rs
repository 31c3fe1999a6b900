//! The threads that fill the cache and keep it true to the disk.
//!
//! Each mount has a loader of two threads, so a mount that hangs delays no file of another. They
//! work when a worker asks for something. The first one looks at files: it reads those that a
//! worker did not find in the cache, and checks those that are there, every half second while
//! clients request them. A check compares the [`FileStamp`](stentor_io::FileStamp) of the file, and
//! of its packed siblings, with those that the entry was made from. It needs no notification of the
//! kernel, so it sees a change that another host made on a network file system, and one behind a
//! bind mount or FUSE.
//!
//! The stamp is taken before the file is read. A change in between gives the file another stamp,
//! which the next check sees. Two changes may have the same time, within the resolution of the file
//! system. So a file that was changed shortly before its stamp was taken is read again at a check.
//!
//! The second thread compresses, which takes long, so no client waits for it.
//!
//! A mount with lists of its directories has a third thread, which makes them. It looks at every
//! name of a directory, so it must delay neither files nor workers.

use super::disk::{Root, read_whole, symlinks};
use super::{CachedFile, FileCache, Outline, PACKED, Tag, cache_control, is_worth_keeping};
use crate::entry::FileSources;
use crate::file_cache::{COMPRESS_FILE_BYTES_MAX, FileLook, LookBegan, PackJob, Served};
use crate::list::{DirectoryList, ListRest};
use crate::look_queue::{LookJob, LookJobs};
use std::io;
use std::panic::{self, AssertUnwindSafe};
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread;
use stentor_config::{Files, Mount};
use stentor_hub::Encoder;
use stentor_io::{Directory, File, FileKind, FileStamp, Found, lower_priority, unix_ns, unix_s};
use stentor_wire::negotiate::{Encoding, Encodings, compressible};
use stentor_wire::target::check_file;

/// The loader of one mount. See the head of the file.
pub struct FileLoader {
    looker: FileLooker,
    /// Lists directories.
    lister: FileLooker,
    packer: FilePacker,
}

/// A thread that looks at files, or at directories.
struct FileLooker {
    /// The workers have it: when they have ended, so does the thread.
    file_cache: Weak<FileCache>,
    work: LookWork,
    root: MountRoot,
}

/// The looks that wait for a thread.
pub(crate) struct LookWork {
    pub(crate) queue: LookJobs,
    pub(crate) began_ms: Arc<LookBegan>,
}

/// The thread that compresses files.
struct FilePacker {
    file_cache: Weak<FileCache>,
    queue: Receiver<PackJob>,
    root: MountRoot,
    encoder: Encoder,
}

/// The root of a mount, as one thread has it open.
struct MountRoot {
    served: Arc<Served>,
    index: usize,
    /// `None`: the thread did not need it yet, or cannot open it.
    open: Option<Root>,
    /// The time at which the thread last looked at the path of the root.
    looked_ms: u64,
}

/// A name beneath the root of a mount.
#[derive(Clone, Copy)]
struct FilePlace<'a> {
    root: &'a Directory,
    mount: &'a Mount,
    files: &'a Files,
    rest: &'a str,
}

/// The outcome of reading a file.
enum ReadOutcome {
    Whole(Box<CachedFile>),
    /// It is being written, or cannot be read at the moment.
    NotNow,
    /// There is nothing to be kept.
    Nothing,
}

impl FileLoader {
    pub(super) fn new(
        file_cache: &Arc<FileCache>,
        (served, index): (&Arc<Served>, usize),
        [looks, lists]: [LookWork; 2],
        packs: Receiver<PackJob>,
    ) -> FileLoader {
        let root = || {
            let served = Arc::clone(served);
            MountRoot { served, index, open: None, looked_ms: 0 }
        };
        let of = || Arc::downgrade(file_cache);
        let looker = |work| FileLooker { file_cache: of(), work, root: root() };
        let encoder = Encoder::default();
        let packer = FilePacker { file_cache: of(), queue: packs, root: root(), encoder };
        FileLoader { looker: looker(looks), lister: looker(lists), packer }
    }

    /// Starts its threads.
    ///
    /// # Errors
    /// The host refuses another thread.
    pub fn start(self) -> io::Result<()> {
        let FileLoader { mut looker, mut lister, mut packer } = self;
        let pack = move || {
            while let Ok(pack) = packer.queue.recv() {
                packer.add(pack);
            }
        };
        start_thread("file-compressor", true, pack)?;
        if looker.root.mount().listing {
            start_thread("file-lister", true, move || lister.work())?;
        }
        start_thread("file-loader", false, move || looker.work())
    }

    /// Looks at one file, lists one directory and compresses another file, if any wait: a test says
    /// when. Returns whether any did.
    pub fn step(&mut self) -> bool {
        let FileLoader { looker, lister, packer } = self;
        let pack = packer.queue.try_recv();
        let has_packed = pack.map(|pack| packer.add(pack)).is_ok();
        [looker, lister].into_iter().fold(has_packed, |has_worked, looker| {
            let job = looker.work.queue.try_next();
            job.map(|job| looker.take(job)).is_some() | has_worked
        })
    }
}

/// Starts a thread. Workers may go before it.
fn start_thread(
    name: &'static str,
    is_last: bool,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        if is_last && let Err(error) = lower_priority() {
            tracing::warn!("the thread {name} has the priority of the workers: {error}");
        }
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

impl FileLooker {
    /// Does jobs for as long as there are workers.
    fn work(&mut self) {
        while let Some(job) = self.work.queue.wait() {
            self.take(job);
        }
    }

    /// Does one job. A panic costs all that is kept, since a change may have been lost by it.
    fn take(&mut self, job: LookJob) {
        let Some(file_cache) = self.file_cache.upgrade() else { return };
        if job.is_late() {
            let reason = "Too many files are asked for at once; come again.";
            return job.tell(&FileLook::NotMade(reason));
        }
        self.work.began_ms.begin();
        let looked = panic::catch_unwind(AssertUnwindSafe(|| self.look(&file_cache, job)));
        self.work.began_ms.end();
        if looked.is_err() {
            tracing::error!(
                "keeping files in memory panicked; all are loaded again when asked for"
            );
            file_cache.clear();
        }
    }

    /// Sees to it that the cache is true to a file that a worker asked for, and tells the worker.
    fn look(&mut self, file_cache: &FileCache, job: LookJob) {
        let LookJob { ref path, encoding, now_ms, .. } = job;
        if path.ends_with('/') {
            let looked = self.list(path, now_ms, job.replies.len());
            return job.tell(&looked);
        }
        let looked = match file_cache.cache.entry(path) {
            Some(entry) if !entry.needs_check(now_ms) => FileLook::File,
            Some(entry) if self.is_unchanged(path, &entry, now_ms) => {
                entry.note_check(now_ms);
                FileLook::File
            }
            Some(entry) => self.load(file_cache, path, now_ms, Some(&entry)),
            None => self.load(file_cache, path, now_ms, None),
        };
        if let Some(entry) = file_cache.cache.entry(path) {
            file_cache.pack(path, &entry, encoding);
        }
        job.tell(&looked);
    }

    /// Lists a directory, for so many requests.
    fn list(&mut self, path: &str, now_ms: u64, requests: usize) -> FileLook {
        let Some(place) = self.root.place(path, now_ms) else { return FileLook::Nothing };
        match place.list(path) {
            Ok(mut list) => {
                list.requests = requests;
                FileLook::List(Arc::new(list))
            }
            Err(error) => FileLook::of(error),
        }
    }

    /// Whether the files of an entry have the stamps that they had when it was made.
    fn is_unchanged(&mut self, path: &str, entry: &CachedFile, now_ms: u64) -> bool {
        let sources = entry.sources();
        let place = self.root.place(path, now_ms);
        !sources.are_recent() && place.is_some_and(|place| place.stamps() == sources.stamps)
    }

    /// Reads a file, and makes an entry of it if it is worth keeping. `before` is the entry that
    /// there is.
    fn load(
        &mut self,
        file_cache: &FileCache,
        path: &str,
        now_ms: u64,
        before: Option<&CachedFile>,
    ) -> FileLook {
        #[cfg(test)]
        {
            assert!(!path.ends_with(PANICS_IF_READ));
            while path.ends_with(HANGS_IF_READ) && HANGS.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        }
        let Some(place) = self.root.place(path, now_ms) else {
            file_cache.remove(path);
            return FileLook::Nothing;
        };
        let sources = FileSources { stamps: place.stamps(), taken_ns: unix_ns() };
        let (outcome, looked) = match place.find(place.rest) {
            Ok(Found::File(file)) => (place.read(&file, sources), FileLook::File),
            Ok(Found::Directory) => (ReadOutcome::Nothing, FileLook::Directory),
            Ok(Found::Special) => (ReadOutcome::Nothing, FileLook::Nothing),
            Err(error) => (ReadOutcome::Nothing, FileLook::of(error)),
        };
        match (outcome, before) {
            // Its times or its rights were changed, and no more.
            (ReadOutcome::Whole(entry), Some(before)) if entry.is_same(before) => {
                before.set_sources(entry.sources());
                before.note_check(now_ms);
            }
            (ReadOutcome::Whole(mut entry), before) => {
                entry.note_check(now_ms);
                entry.note_use(now_ms);
                let asked = before.map(CachedFile::asked);
                if let Some(before) = before {
                    entry.shares_second = entry.modified_at == before.modified_at
                        && (entry.tag != before.tag || before.shares_second);
                }
                let entry = Arc::new(*entry);
                if file_cache.enter(path, &entry, &self.root.served) {
                    let again =
                        PACKED.into_iter().filter(|&it| asked.is_some_and(|a| a.contains(it)));
                    again.for_each(|encoding| file_cache.pack(path, &entry, encoding));
                }
            }
            // Its writer is not done: the entry is served until it is.
            (ReadOutcome::NotNow, Some(before)) => before.note_check(now_ms),
            (ReadOutcome::NotNow, None) => {}
            (ReadOutcome::Nothing, _) => file_cache.remove(path),
        }
        looked
    }
}

impl FilePacker {
    /// Compresses one file, and adds the result to its entry.
    fn add(&mut self, PackJob { path, entry, encoding }: PackJob) {
        if let (Some(file_cache), Some(entry)) = (self.file_cache.upgrade(), entry.upgrade())
            && let Some(packed) = self.pack(&path, &entry, encoding)
        {
            file_cache.add(&path, &entry, encoding, packed);
        }
    }

    /// A text in this encoding, unless there is one already. One that does not become smaller is
    /// not kept, and not tried again, since the entry remembers that it was asked for.
    fn pack(&mut self, path: &str, entry: &CachedFile, encoding: Encoding) -> Option<Vec<u8>> {
        if entry.available().contains(encoding) {
            return None;
        }
        let read;
        let content = match entry.form(Encoding::Identity) {
            Some(form) if form.body.len() as u64 > COMPRESS_FILE_BYTES_MAX => return None,
            Some(form) => &form.body[..],
            None => {
                let Some(content) = self.read_large(path, entry) else {
                    entry.forget(encoding);
                    return None;
                };
                read = content;
                &read[..]
            }
        };
        let done = self.encoder.outlive(|encoder| {
            #[cfg(test)]
            assert!(!path.ends_with(PANICS_IF_PACKED));
            let packed = encoder.encode(encoding, content);
            packed.filter(|packed| packed.len() < content.len()).map(|packed| packed.to_vec())
        });
        if done.is_none() {
            tracing::error!(
                "compressing {path} in {} panicked; it is left as it is, and the thread goes on",
                encoding.token()
            );
        }
        done.flatten()
    }

    /// The content of a text that is too large to be kept, if it is still what its entry says.
    fn read_large(&mut self, path: &str, entry: &CachedFile) -> Option<Vec<u8>> {
        let place = self.root.place(path, entry.used_ms())?;
        let Ok(Found::File(file)) = place.find(place.rest) else { return None };
        // Another may be there by now, and of any size.
        if Tag::of_status(&file.status(), Encoding::Identity) != entry.tag {
            return None;
        }
        let (status, content) = read_whole(&file).ok()??;
        (Tag::of_status(&status, Encoding::Identity) == entry.tag).then_some(content)
    }
}

impl MountRoot {
    fn mount(&self) -> &Mount {
        &self.served.mounts[self.index]
    }

    /// The place of a path of the mount. Once a second the thread looks whether another directory
    /// is at the path of the root.
    fn place<'a>(&'a mut self, path: &'a str, now_ms: u64) -> Option<FilePlace<'a>> {
        let Served { mounts, files } = &*self.served;
        let mount = &mounts[self.index];
        let rest = path.strip_prefix(mount.path.as_str())?;
        if self.open.is_none() || self.looked_ms.abs_diff(now_ms) >= LOOK_MS {
            self.looked_ms = now_ms;
            if self.open.as_mut().is_some_and(|root| root.look(mount)) {
                tracing::info!("{} is another directory now", mount.root.display());
            }
            self.open = self.open.take().or_else(|| Root::open(mount).ok());
        }
        Some(FilePlace { root: self.open.as_ref()?.directory(), mount, files, rest })
    }
}

impl FilePlace<'_> {
    fn find(&self, rest: &str) -> io::Result<Found> {
        self.root.find(rest, symlinks(self.mount))
    }

    /// Lists a directory, which clients call `path`.
    fn list(&self, path: &str) -> io::Result<DirectoryList> {
        let directory = self.rest.trim_end_matches('/');
        let (mut names, mut rest) = (Vec::new(), ListRest::begin());
        self.root.list(directory, symlinks(self.mount), LISTED_MAX, |listed| {
            let is_served = matches!(listed.kind, FileKind::File | FileKind::Directory)
                && check_file(&format!("{path}{}", listed.name)).is_ok();
            names.extend(is_served.then_some(listed));
            rest.step();
        })?;
        Ok(DirectoryList::new(names, || rest.step()))
    }

    /// The stamps of the file and of its packed siblings.
    fn stamps(&self) -> [Option<FileStamp>; 4] {
        Encoding::ALL.map(|encoding| {
            let name = format!("{}{}", self.rest, encoding.suffix());
            self.root.stamp(&name, symlinks(self.mount)).ok()
        })
    }

    /// Makes an entry of a file, with its packed siblings.
    fn read(&self, file: &File, mut sources: FileSources) -> ReadOutcome {
        let FilePlace { mount, files, rest, .. } = *self;
        let kind = files.content_type(rest);
        if !is_worth_keeping(files, file.status().bytes, kind) {
            return ReadOutcome::Nothing;
        }
        let small_bytes_max = files.small_bytes_max as u64;
        let Siblings { packed, mut stored, left_out } = self.siblings(file, small_bytes_max);
        for encoding in PACKED.into_iter().filter(|&encoding| left_out.contains(encoding)) {
            // The stamp of no file: each check reads the file again, until the sibling is whole.
            sources.stamps[encoding as usize] = None;
        }
        let mut identity = None;
        let mut status = file.status();
        if status.bytes > small_bytes_max {
            stored.insert(Encoding::Identity);
        } else if let Ok(Some((read, content))) = read_whole(file) {
            status = read;
            identity = Some(content);
        } else {
            return ReadOutcome::NotNow;
        }
        let tag = match &identity {
            Some(content) => Tag::of_content(content, Encoding::Identity),
            None => Tag::of_status(&status, Encoding::Identity),
        };
        let varies = compressible(kind)
            || !packed.is_empty()
            || PACKED.iter().any(|&encoding| stored.contains(encoding));
        let outline = Outline {
            tag,
            modified_at: status.modified_unix_s().min(unix_s()),
            cache_control: cache_control(mount, rest),
            varies,
            content_type: kind,
            encoding: Encoding::Identity,
            length: identity.as_ref().map_or(0, |content| content.len() as u64),
        };
        ReadOutcome::Whole(Box::new(CachedFile::new(&outline, identity, packed, stored, sources)))
    }

    /// Reads the packed siblings of a file. A link is none, unless the file is behind one, too.
    fn siblings(&self, file: &File, bytes_max: u64) -> Siblings {
        let mut siblings = Siblings::default();
        for encoding in PACKED {
            let found = self.find(&format!("{}{}", self.rest, encoding.suffix()));
            let Ok(Found::File(sibling)) = found else { continue };
            if sibling.through_symlink() && !file.through_symlink() {
                continue;
            }
            if sibling.status().bytes > bytes_max {
                siblings.stored.insert(encoding);
            } else if let Ok(Some((_, packed))) = read_whole(&sibling) {
                siblings.packed.push((encoding, packed));
            } else {
                siblings.left_out.insert(encoding);
            }
        }
        siblings
    }
}

/// The packed siblings of a file.
#[derive(Default)]
struct Siblings {
    packed: Vec<(Encoding, Vec<u8>)>,
    /// Those that are too large to be kept.
    stored: Encodings,
    /// Those that are being written, or cannot be read: the file does without them.
    left_out: Encodings,
}

/// The names of files that make the loader panic.
#[cfg(test)]
pub(super) const PANICS_IF_READ: &str = "panics-if-read.txt";
#[cfg(test)]
pub(super) const HANGS_IF_READ: &str = "hangs-if-read.txt";
#[cfg(test)]
pub(super) static HANGS: AtomicBool = AtomicBool::new(true);
#[cfg(test)]
pub(super) const PANICS_IF_PACKED: &str = "panics-if-packed.txt";

/// The path of a root is looked at so often.
const LOOK_MS: u64 = 1_000;

/// The most names of a directory that are looked at for a list of it.
const LISTED_MAX: usize = 10_000;
