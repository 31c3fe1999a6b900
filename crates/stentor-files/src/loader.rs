//! The thread that fills the cache and keeps it true to the disk.
//!
//! It does one thing at a time, and looks for changes between any two. A directory is watched, and
//! with it all above it up to the root, before a file of it is read; so a change that comes after
//! the reading is told after the entry was made, and mends it. What cannot be watched is not kept.
//!
//! The root itself is looked at once a second by its path: it may be replaced as a whole, or be a
//! link that is set to another directory.

use super::disk::{Root, read_whole, symlinks};
use super::{
    CachedFile, FileCache, Outline, PACKED, Tag, cache_control, is_worth_keeping, mount_of,
};
use crate::file_cache::{COMPRESS_FILE_BYTES_MAX, Job};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread;
use stentor_config::{Files, Mount};
use stentor_hub::Encoder;
use stentor_io::{
    Change, File, Found, Waker, WatchId, Watcher, lower_priority, monotonic_us, unix_s,
};
use stentor_wire::file_name::content_type;
use stentor_wire::negotiate::{Encoding, Encodings, compressible};

/// See the head of the file.
pub struct FileLoader {
    /// The workers have it: when they have ended, so does the loader.
    file_cache: Weak<FileCache>,
    waker: Arc<Waker>,
    queue: Receiver<Job>,
    /// There may be more to do at once.
    busy: bool,
    /// Files that have changed, in the encodings that were asked for of what they were before.
    unpacked: VecDeque<(Box<str>, Encoding)>,
    mounts: Vec<Mount>,
    files: Files,
    /// By mount; none if it could not be opened.
    roots: Vec<Option<Root>>,
    /// When they are looked at again.
    look_at_ms: u64,
    watcher: Watcher,
    /// When watches that are not needed any more are given back.
    give_back_at_ms: u64,
    /// The directories that are watched, by the path that their files begin with.
    watches: HashMap<Box<str>, WatchId>,
    /// And the other way round: two mounts may have the same directory.
    watched: HashMap<WatchId, Vec<Box<str>>>,
    changes: Vec<Change>,
    /// Files that have changed, but could not be read since their writers were not done.
    unsettled: HashSet<Box<str>>,
    /// That directories cannot be watched is said once.
    complained: bool,
    encoder: Encoder,
    /// How often it has panicked.
    panics: u32,
}

/// What came of reading a file.
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
        queue: Receiver<Job>,
        watcher: Watcher,
        mounts: Vec<Mount>,
        files: Files,
    ) -> FileLoader {
        let mut loader = FileLoader {
            file_cache: Arc::downgrade(file_cache),
            waker: Arc::clone(&file_cache.waker),
            queue,
            busy: false,
            unpacked: VecDeque::new(),
            mounts,
            files,
            roots: Vec::new(),
            look_at_ms: 0,
            watcher,
            give_back_at_ms: now_ms() + GIVE_BACK_MS,
            watches: HashMap::new(),
            watched: HashMap::new(),
            changes: Vec::new(),
            unsettled: HashSet::new(),
            complained: false,
            encoder: Encoder::default(),
            panics: 0,
        };
        loader.open_roots();
        loader
    }

    /// Lets it work on a thread of its own.
    ///
    /// # Errors
    /// The host refuses another thread.
    pub fn start(mut self) -> io::Result<()> {
        let life = move || {
            if let Err(error) = lower_priority() {
                tracing::warn!("files are read at the priority of the workers: {error}");
            }
            loop {
                match self.turn() {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        tracing::error!("files are not kept in memory any more: {error}");
                        return;
                    }
                }
            }
        };
        thread::Builder::new().name("file-loader".to_owned()).spawn(life).map(drop)
    }

    /// Waits for something to do, and does it. Returns false when nobody needs it any more. A panic
    /// costs what is kept, since a change may have been lost by it: that is loaded again.
    ///
    /// # Errors
    /// Changes cannot be watched for any more, or it panics time and again.
    pub fn turn(&mut self) -> io::Result<bool> {
        if let Ok(result) = panic::catch_unwind(AssertUnwindSafe(|| self.try_turn())) {
            return result;
        }
        self.panics += 1;
        if self.panics == PANICS_MAX {
            return Err(io::Error::other("too many panics"));
        }
        tracing::error!("keeping files in memory panicked; all are loaded again when asked for");
        self.unsettled.clear();
        self.unpacked.clear();
        if let Some(file_cache) = self.file_cache.upgrade() {
            self.forget_under(&file_cache, "");
        }
        Ok(true)
    }

    fn try_turn(&mut self) -> io::Result<bool> {
        let timeout_ms = match () {
            () if self.busy => Some(0),
            () if self.mounts.is_empty() => None,
            () => Some(self.look_at_ms.saturating_sub(now_ms())),
        };
        let mut changes = std::mem::take(&mut self.changes);
        self.watcher.wait(&self.waker, timeout_ms, &mut changes)?;
        self.waker.take();
        let Some(file_cache) = self.file_cache.upgrade() else { return Ok(false) };
        for change in changes.drain(..) {
            self.see_to(&file_cache, change);
        }
        self.changes = changes;
        self.reload(&file_cache);
        if now_ms() >= self.look_at_ms {
            self.look_at_roots(&file_cache);
            for path in std::mem::take(&mut self.unsettled) {
                self.refresh(&file_cache, &path);
            }
        }
        if now_ms() >= self.give_back_at_ms {
            self.give_back_watches(&file_cache);
        }
        if !self.unsettled.is_empty() {
            self.look_at_ms = self.look_at_ms.min(now_ms() + LOOK_AGAIN_MS);
        }
        self.busy = self.do_one(&file_cache);
        Ok(true)
    }

    /// Loads a file and packs another, if there are any; says whether there were.
    fn do_one(&mut self, file_cache: &FileCache) -> bool {
        let job = self.queue.try_recv().ok();
        let due = self.unpacked.pop_front();
        let any = job.is_some() || due.is_some();
        if let Some(job) = job {
            self.load(file_cache, &job);
        }
        if let Some((path, encoding)) = due
            && let Some(entry) = file_cache.cache.entry(&path)
        {
            self.repack(file_cache, &path, &entry, encoding);
        }
        any
    }

    /// One turn without waiting: a test says when.
    pub fn step(&mut self) {
        self.busy = true;
        self.turn().expect("the kernel says what changed");
    }

    /// One turn after so much time. Returns how many directories are watched then.
    #[cfg(test)]
    pub(super) fn step_after(&mut self, ms: u64) -> usize {
        for at_ms in [&mut self.look_at_ms, &mut self.give_back_at_ms] {
            *at_ms = at_ms.saturating_sub(ms);
        }
        self.step();
        self.watches.len()
    }

    fn reload(&mut self, file_cache: &FileCache) {
        let reload = stentor_io::lock(&file_cache.reload).take();
        if let Some((mounts, files)) = reload {
            self.mounts = mounts;
            self.files = files;
            self.open_roots();
            self.forget_under(file_cache, "");
        }
    }

    fn open_roots(&mut self) {
        self.roots = self.mounts.iter().map(|mount| Root::open(mount).ok()).collect();
        self.look_at_ms = now_ms() + LOOK_MS;
    }

    /// Whether the roots are still what is at their paths.
    fn look_at_roots(&mut self, file_cache: &FileCache) {
        self.look_at_ms = now_ms() + LOOK_MS;
        for index in 0..self.mounts.len() {
            let mount = &self.mounts[index];
            let root = &mut self.roots[index];
            let is_new = match root {
                Some(root) => root.look(mount),
                None => Root::open(mount).map(|opened| *root = Some(opened)).is_ok(),
            };
            if is_new {
                tracing::info!("{} is another directory now", mount.root.display());
                let path = mount.path.clone();
                self.forget_under(file_cache, &path);
            }
        }
    }

    fn see_to(&mut self, file_cache: &FileCache, change: Change) {
        match change {
            Change::Written { watch, name } | Change::Removed { watch, name } => {
                for directory in self.directories(watch) {
                    let path = format!("{directory}{name}");
                    for suffix in PACKED.map(Encoding::suffix) {
                        if let Some(of) = path.strip_suffix(suffix) {
                            self.refresh(file_cache, of);
                        }
                    }
                    self.refresh(file_cache, &path);
                }
            }
            Change::DirectoryChanged { watch, name } => {
                for directory in self.directories(watch) {
                    self.forget_under(file_cache, &format!("{directory}{name}/"));
                }
            }
            Change::DirectoryTouched { watch, name } => {
                for directory in self.directories(watch) {
                    let slash = if name.is_empty() { "" } else { "/" };
                    for path in file_cache.cache.paths_under(&format!("{directory}{name}{slash}")) {
                        self.refresh(file_cache, &path);
                    }
                }
            }
            Change::Ended { watch } => {
                for directory in self.directories(watch) {
                    self.forget_under(file_cache, &directory);
                }
            }
            Change::Overflow => self.forget_under(file_cache, ""),
        }
    }

    /// What a watched directory is called; two mounts may have the same.
    fn directories(&self, watch: WatchId) -> Vec<Box<str>> {
        self.watched.get(&watch).cloned().unwrap_or_default()
    }

    /// Neither keeps nor watches what is under a path.
    fn forget_under(&mut self, file_cache: &FileCache, prefix: &str) {
        file_cache.cache.remove_under(prefix);
        self.unwatch(|path| path.starts_with(prefix));
    }

    /// Watches are few, and a user's together: those above no file in memory are given back.
    fn give_back_watches(&mut self, file_cache: &FileCache) {
        let kept = file_cache.cache.paths_under("");
        let above = |path| str::match_indices(path, '/').map(move |(at, _)| &path[..=at]);
        let needed: HashSet<&str> = kept.iter().flat_map(|path| above(&**path)).collect();
        self.unwatch(|path| !needed.contains(path));
        self.give_back_at_ms = now_ms() + GIVE_BACK_MS;
    }

    fn unwatch(&mut self, which: impl Fn(&str) -> bool) {
        let gone: Vec<Box<str>> = self.watches.keys().filter(|path| which(path)).cloned().collect();
        for path in gone {
            let Some(watch) = self.watches.remove(&path) else { continue };
            let Some(directories) = self.watched.get_mut(&watch) else { continue };
            directories.retain(|directory| *directory != path);
            if directories.is_empty() {
                self.watched.remove(&watch);
                self.watcher.unwatch(watch);
            }
        }
    }

    /// The file at `path` has changed: so does its entry, if it has one.
    fn refresh(&mut self, file_cache: &FileCache, path: &str) {
        let Some(before) = file_cache.cache.entry(path) else { return };
        match self.read(path, before.used_ms()) {
            // Its name or its rights were touched, and no more.
            ReadOutcome::Whole(entry) if entry.is_same(&before) => {}
            ReadOutcome::Whole(mut entry) => {
                entry.shares_second = entry.modified_at == before.modified_at
                    && (entry.tag != before.tag || before.shares_second);
                // Packing takes its time: first comes what else has changed.
                for encoding in PACKED {
                    let due = (Box::from(path), encoding);
                    if before.asked().contains(encoding) && !self.unpacked.contains(&due) {
                        entry.ask(encoding);
                        self.unpacked.push_back(due);
                    }
                }
                self.enter(file_cache, path, *entry);
            }
            // Its writer is not done: what there was goes on being served.
            ReadOutcome::NotNow => drop(self.unsettled.insert(path.into())),
            ReadOutcome::Nothing => file_cache.cache.remove(path),
        }
    }

    /// What a worker asked for.
    fn load(&mut self, file_cache: &FileCache, job: &Job) {
        if let Some(entry) = file_cache.cache.entry(&job.path) {
            self.repack(file_cache, &job.path, &entry, job.encoding);
        } else if let ReadOutcome::Whole(entry) = self.read(&job.path, job.now_ms) {
            self.pack(&job.path, &entry, job.encoding);
            self.enter(file_cache, &job.path, *entry);
        }
    }

    /// Packs an entry that is in the cache.
    fn repack(
        &mut self,
        file_cache: &FileCache,
        path: &str,
        entry: &CachedFile,
        encoding: Encoding,
    ) {
        file_cache.cache.change(path, entry, |entry| self.pack(path, entry, encoding));
        file_cache.cache.evict(self.files.cache_bytes_max as u64);
    }

    fn enter(&self, file_cache: &FileCache, path: &str, entry: CachedFile) {
        file_cache.cache.insert(path, Arc::new(entry));
        file_cache.cache.evict(self.files.cache_bytes_max as u64);
    }

    /// Makes an entry of a file, with what stands beside it, and watches its directories first.
    fn read(&mut self, path: &str, used_ms: u64) -> ReadOutcome {
        #[cfg(test)]
        assert!(!path.ends_with(PANICS_IF_READ));
        let Some((index, mount, rest)) = mount_of(&self.mounts, path) else {
            return ReadOutcome::Nothing;
        };
        let mount = mount.clone();
        if !self.watch_above(index, &mount.path, rest) {
            return ReadOutcome::Nothing;
        }
        let Some(root) = &self.roots[index] else { return ReadOutcome::Nothing };
        let find = |path: &str| match root.directory().find(path, symlinks(&mount)) {
            // What is behind a link changes elsewhere, in a directory that is not watched.
            Ok(Found::File(file)) if !file.through_symlink() => Some(file),
            _ => None,
        };
        let Some(file) = find(rest) else { return ReadOutcome::Nothing };
        let kind = content_type(rest);
        if !is_worth_keeping(&self.files, file.status().bytes, kind) {
            return ReadOutcome::Nothing;
        }
        let small_bytes_max = self.files.small_bytes_max as u64;
        let Some(Siblings { packed, mut stored }) = siblings(rest, small_bytes_max, find) else {
            return ReadOutcome::NotNow;
        };
        let mut identity = None;
        let mut status = file.status();
        if status.bytes > small_bytes_max {
            stored.insert(Encoding::Identity);
        } else if let Ok(Some((read, content))) = read_whole(&file) {
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
        let cache_control = cache_control(&mount, rest);
        let outline = Outline {
            tag,
            modified_at: status.modified_unix_s().min(unix_s()),
            cache_control,
            varies,
            content_type: kind,
            encoding: Encoding::Identity,
            length: identity.as_ref().map_or(0, |content| content.len() as u64),
        };
        let entry = CachedFile::new(&outline, identity, packed, stored);
        entry.note_use(used_ms);
        ReadOutcome::Whole(Box::new(entry))
    }

    /// Watches the directory of a file and all above it, up to the root. Returns whether all of
    /// them are watched.
    fn watch_above(&mut self, index: usize, mount: &str, rest: &str) -> bool {
        let ends = rest.match_indices('/').map(|(at, _)| at);
        for end in std::iter::once(None).chain(ends.map(Some)) {
            let (beneath, path) = match end {
                None => ("", mount.to_owned()),
                Some(end) => (&rest[..end], format!("{mount}{}", &rest[..=end])),
            };
            if self.watches.contains_key(path.as_str()) {
                continue;
            }
            let Some(root) = &self.roots[index] else { return false };
            match self.watcher.watch(root.directory(), beneath) {
                Ok(watch) => {
                    self.watches.insert(path.as_str().into(), watch);
                    self.watched.entry(watch).or_default().push(path.into());
                }
                Err(error) => {
                    self.complain(&error);
                    return false;
                }
            }
        }
        true
    }

    /// That a file is not there is nothing to speak of; that nothing can be kept is.
    fn complain(&mut self, error: &io::Error) {
        let of_file = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        if !of_file && !self.complained {
            self.complained = true;
            tracing::warn!(
                "some files are not kept in memory, since their directories cannot be watched: \
                 {error} (are they readable? else see fs.inotify.max_user_watches)"
            );
        }
    }

    /// Packs an entry that is text, unless it was done or is there already. What does not become
    /// smaller is not kept, and not tried again, since the entry remembers that it was asked for.
    fn pack(&mut self, path: &str, entry: &CachedFile, encoding: Encoding) {
        entry.ask(encoding);
        let wanted = encoding != Encoding::Identity && compressible(entry.content_type);
        if !wanted || entry.available().contains(encoding) {
            return;
        }
        let read;
        let content = match entry.form(Encoding::Identity) {
            Some(form) if form.body.len() as u64 > COMPRESS_FILE_BYTES_MAX => return,
            Some(form) => &form.body[..],
            None => match self.read_large(path, entry) {
                Some(content) => {
                    read = content;
                    &read[..]
                }
                None => return entry.forget(encoding),
            },
        };
        let done = self.encoder.outlive(|encoder| {
            #[cfg(test)]
            assert!(!path.ends_with(PANICS_IF_PACKED));
            let packed = encoder.encode(encoding, content);
            if let Some(packed) = packed.filter(|packed| packed.len() < content.len()) {
                entry.add(encoding, entry.tag.encoded(encoding), packed.to_vec());
            }
        });
        if done.is_none() {
            tracing::error!(
                "compressing {path} in {} panicked; it is left as it is, and the thread goes on",
                encoding.token()
            );
        }
    }

    /// The content of a text that is too large to be kept, if it is still what its entry says.
    fn read_large(&self, path: &str, entry: &CachedFile) -> Option<Vec<u8>> {
        let (index, mount, rest) = mount_of(&self.mounts, path)?;
        let root = self.roots[index].as_ref()?.directory();
        let Ok(Found::File(file)) = root.find(rest, symlinks(mount)) else { return None };
        // Another may be there by now, and of any size.
        if Tag::of_status(&file.status(), Encoding::Identity) != entry.tag {
            return None;
        }
        let (status, content) = read_whole(&file).ok()??;
        (Tag::of_status(&status, Encoding::Identity) == entry.tag).then_some(content)
    }
}

impl Drop for FileLoader {
    /// However it ends: without word of changes nothing may be kept.
    fn drop(&mut self) {
        if let Some(file_cache) = self.file_cache.upgrade() {
            file_cache.cache.remove_under("");
        }
    }
}

/// What stands beside a file, packed already.
struct Siblings {
    packed: Vec<(Encoding, Vec<u8>)>,
    /// And is too large to be kept.
    stored: Encodings,
}

/// Reads what stands beside the file of that name; `None` if some of it is being written.
fn siblings(name: &str, bytes_max: u64, find: impl Fn(&str) -> Option<File>) -> Option<Siblings> {
    let mut siblings = Siblings { packed: Vec::new(), stored: Encodings::EMPTY };
    for encoding in PACKED {
        let Some(file) = find(&format!("{name}{}", encoding.suffix())) else { continue };
        if file.status().bytes > bytes_max {
            siblings.stored.insert(encoding);
        } else {
            let (_, packed) = read_whole(&file).ok()??;
            siblings.packed.push((encoding, packed));
        }
    }
    Some(siblings)
}

fn now_ms() -> u64 {
    monotonic_us() / 1000
}

/// After so many panics the loader is thought to be beyond repair.
const PANICS_MAX: u32 = if cfg!(test) { 10 } else { 1_000 };

/// The names of files that make the loader panic.
#[cfg(test)]
pub(super) const PANICS_IF_READ: &str = "panics-if-read.txt";
#[cfg(test)]
pub(super) const PANICS_IF_PACKED: &str = "panics-if-packed.txt";

/// How often the roots are looked at, and files again that were being written.
const LOOK_MS: u64 = 1_000;
const LOOK_AGAIN_MS: u64 = 250;

/// How often watches are given back.
const GIVE_BACK_MS: u64 = 60_000;
