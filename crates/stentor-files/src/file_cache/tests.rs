//! The file_cache on a real directory, turn by turn.

use super::*;
use crate::Tag;
use crate::disk::HANGS_IF_ASKED;
use crate::entry::FileSources;
use crate::loader::{HANGS_IF_READ, PANICS_IF_PACKED, PANICS_IF_READ};
use crate::look_queue::LOOKS_MAX;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A directory that goes with the test.
struct Site(PathBuf);

impl Site {
    fn new() -> Site {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stentor-files-{}-{number}", std::process::id());
        let site = Site(std::env::temp_dir().join(name));
        fs::create_dir_all(&site.0).unwrap();
        site
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file cache and its loader, which does something only when it is told to.
struct Desk {
    file_cache: Arc<FileCache>,
    loader: FileLoader,
    now_ms: u64,
}

impl Desk {
    fn of(root: &Path, files: &Files) -> Desk {
        Desk::with(Mount::new("/", root), files)
    }

    fn with(mount: Mount, files: &Files) -> Desk {
        let file_cache = Arc::new(FileCache::default());
        let loader = file_cache.reload(&[mount], files).pop().unwrap();
        Desk { file_cache, loader, now_ms: 1 }
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.loader.step();
        }
    }

    /// Moves the clock to where entries are due for a check.
    fn second(&mut self) {
        self.now_ms += 1_000;
    }

    fn ask(&self, path: &str, encoding: Encoding) -> mpsc::Receiver<FileLook> {
        let (tell, told) = mpsc::channel();
        let reply = move |looked| drop(tell.send(looked));
        self.file_cache.ask(path, encoding, self.now_ms, reply).unwrap();
        told
    }

    /// Asks for a file in this encoding, as a request does, and returns what the loader found.
    fn load(&mut self, path: &str, encoding: Encoding) -> FileLook {
        let told = self.ask(path, encoding);
        self.settle();
        told.recv_timeout(PATIENCE).unwrap()
    }

    /// The content that a request gets from memory: after a look, if the entry is to be checked.
    fn content(&mut self, path: &str) -> Option<Vec<u8>> {
        if !self.has(path, Encoding::Identity) {
            self.load(path, Encoding::Identity);
        }
        self.form(path, Encoding::Identity)
    }

    fn form(&self, path: &str, encoding: Encoding) -> Option<Vec<u8>> {
        self.file_cache.with_entry(path, self.now_ms, false, |entry| {
            entry?.form(encoding).map(|form| form.body.to_vec())
        })
    }

    fn has(&self, path: &str, encoding: Encoding) -> bool {
        self.form(path, encoding).is_some()
    }
}

/// A loader that is as slow as this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn small(cache_bytes_max: usize) -> Files {
    Files { cache_bytes_max, small_bytes_max: 1_000, ..Files::default() }
}

fn text(bytes: usize) -> Vec<u8> {
    b"all work and no play ".iter().copied().cycle().take(bytes).collect()
}

#[test]
fn what_is_asked_for_is_kept_until_it_changes() {
    let site = Site::new();
    let file = site.write("a/b.txt", "one");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    assert!(!desk.has("/a/b.txt", Encoding::Identity));
    assert_eq!(desk.content("/a/b.txt").unwrap(), b"one");
    assert_eq!(desk.file_cache.kept().entries, 1);

    fs::write(&file, "two").unwrap();
    desk.second();
    assert_eq!(desk.content("/a/b.txt").unwrap(), b"two");
    let other = site.write("c", "three");
    fs::rename(&other, &file).unwrap();
    desk.second();
    assert_eq!(desk.content("/a/b.txt").unwrap(), b"three");
    fs::remove_file(&file).unwrap();
    desk.second();
    assert_eq!(desk.content("/a/b.txt"), None);
    let kept = desk.file_cache.kept();
    assert_eq!((kept.entries, kept.bytes, kept.evictions), (0, 0, 0));
}

#[test]
fn the_old_copy_stays_while_the_new_one_is_written() {
    use std::io::Write;
    let site = Site::new();
    let path = site.write("page.html", "old");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.content("/page.html").unwrap();
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"ne").unwrap();
    desk.second();
    assert_eq!(desk.content("/page.html").unwrap(), b"old");
    // Another who closes it does not make it whole.
    drop(fs::OpenOptions::new().append(true).open(&path).unwrap());
    desk.second();
    assert_eq!(desk.content("/page.html").unwrap(), b"old");
    file.write_all(b"w").unwrap();
    drop(file);
    desk.second();
    assert_eq!(desk.content("/page.html").unwrap(), b"new");
}

#[test]
fn a_directory_that_is_replaced_takes_its_files_with_it() {
    let site = Site::new();
    site.write("live/deep/a", "old");
    site.write("next/deep/a", "new");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    assert_eq!(desk.content("/live/deep/a").unwrap(), b"old");
    fs::rename(site.0.join("live"), site.0.join("before")).unwrap();
    fs::rename(site.0.join("next"), site.0.join("live")).unwrap();
    assert_eq!(desk.content("/live/deep/a").unwrap(), b"old", "it was checked just now");
    desk.second();
    assert_eq!(desk.content("/live/deep/a").unwrap(), b"new");
    // What happens to the old one is of no interest, what happens to the new one is.
    fs::write(site.0.join("before/deep/a"), "gone").unwrap();
    desk.second();
    assert_eq!(desk.content("/live/deep/a").unwrap(), b"new");
    fs::write(site.0.join("live/deep/a"), "newer").unwrap();
    desk.second();
    assert_eq!(desk.content("/live/deep/a").unwrap(), b"newer");
}

#[test]
fn a_touch_takes_nothing_out_of_memory() {
    let site = Site::new();
    site.write("sub/a.txt", text(900));
    site.write("sub/b.txt", text(900));
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.load("/sub/a.txt", Encoding::Br);
    desk.load("/sub/b.txt", Encoding::Br);
    let entry = |desk: &Desk, path| desk.file_cache.cache.entry(path).unwrap();
    let before = entry(&desk, "/sub/a.txt");
    let writer = fs::OpenOptions::new().append(true).open(site.0.join("sub/b.txt")).unwrap();
    let times = fs::FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH);
    for path in [site.0.clone(), site.0.join("sub")] {
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
    desk.second();
    desk.load("/sub/a.txt", Encoding::Identity);
    desk.load("/sub/b.txt", Encoding::Identity);
    assert!(Arc::ptr_eq(&before, &entry(&desk, "/sub/a.txt")), "nothing was made anew");
    assert!(desk.has("/sub/b.txt", Encoding::Br), "nor lost, though it is being written");
    drop(writer);
    fs::remove_dir_all(site.0.join("sub")).unwrap();
    desk.second();
    assert!(desk.content("/sub/a.txt").is_none() && desk.content("/sub/b.txt").is_none());
}

#[test]
fn a_root_that_leads_elsewhere_is_noticed() {
    let site = Site::new();
    site.write("before/a", "old");
    site.write("after/a", "new");
    let (root, next) = (site.0.join("root"), site.0.join("next"));
    symlink("before", &root).unwrap();
    let mut desk = Desk::of(&root, &small(1 << 20));
    assert_eq!(desk.content("/a").unwrap(), b"old");
    symlink("after", &next).unwrap();
    fs::rename(next, root).unwrap();
    // Other requests do not put the look off.
    desk.now_ms += 600;
    desk.load("/other", Encoding::Identity);
    desk.now_ms += 400;
    assert_eq!(desk.content("/a").unwrap(), b"new");
}

/// No directory of the root tells of it: as on a network file system that another host writes to.
#[test]
fn a_change_by_another_name_is_seen() {
    let site = Site::new();
    let path = site.write("root/a", "old");
    fs::hard_link(&path, site.0.join("b")).unwrap();
    let mut desk = Desk::of(&site.0.join("root"), &small(1 << 20));
    assert_eq!(desk.content("/a").unwrap(), b"old");
    fs::write(site.0.join("b"), "old and new").unwrap();
    desk.second();
    assert_eq!(desk.content("/a").unwrap(), b"old and new");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
    desk.second();
    // Root may read it whatever its rights are.
    let is_there = fs::File::open(&path).is_ok();
    assert_eq!(desk.content("/a").is_some(), is_there);
}

#[test]
fn changes_are_seen_within_a_second() {
    let site = Site::new();
    let path = site.write("v1/a", "0123456789");
    site.write("v2/a", "of version two");
    symlink("v1", site.0.join("live")).unwrap();
    let mount = Mount { symlinks: true, ..Mount::new("/", &site.0) };
    let mut desk = Desk::with(mount, &small(1 << 20));
    let seen = |desk: &mut Desk, path: &str| {
        desk.second();
        desk.content(path).map(|content| String::from_utf8(content).unwrap())
    };
    assert_eq!(seen(&mut desk, "/live/a").unwrap(), "0123456789");
    // Of the same size, and within the resolution of the clock of files.
    for n in 0..20 {
        let content = format!("{n:010}");
        fs::write(&path, &content).unwrap();
        assert_eq!(seen(&mut desk, "/live/a").unwrap(), content);
    }
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4).unwrap();
    assert_eq!(seen(&mut desk, "/live/a").unwrap(), "0000");
    fs::rename(site.write("other", "renamed over"), &path).unwrap();
    assert_eq!(seen(&mut desk, "/live/a").unwrap(), "renamed over");
    symlink("v2", site.0.join("next")).unwrap();
    fs::rename(site.0.join("next"), site.0.join("live")).unwrap();
    assert_eq!(seen(&mut desk, "/live/a").unwrap(), "of version two");
    fs::remove_dir_all(site.0.join("v2")).unwrap();
    assert_eq!(seen(&mut desk, "/live/a"), None);
    assert!(matches!(desk.load("/live/a", Encoding::Identity), FileLook::Nothing));
    assert!(matches!(desk.load("/v1", Encoding::Identity), FileLook::Directory));
    assert_eq!(desk.file_cache.kept().entries, 0);
}

/// A file that has not changed is not read again, so its entry stays the same one.
#[test]
fn an_unchanged_entry_is_read_once() {
    let site = Site::new();
    let path = site.write("a", "old");
    let times = fs::FileTimes::new().set_modified(UNIX_EPOCH);
    fs::File::open(&path).unwrap().set_times(times).unwrap();
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.content("/a");
    let entry = |desk: &Desk| desk.file_cache.cache.entry("/a").unwrap();
    let before = entry(&desk);
    desk.now_ms += 999;
    assert!(desk.has("/a", Encoding::Identity));
    desk.now_ms += 1;
    assert!(!desk.has("/a", Encoding::Identity), "it is to be checked");
    assert!(desk.content("/a").is_some());
    assert!(Arc::ptr_eq(&before, &entry(&desk)));
}

/// The loader checks a file in use before its entry is stale, so no request waits for that.
#[test]
fn a_file_in_use_is_checked_early() {
    let site = Site::new();
    let path = site.write("a", "old");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    assert_eq!(desk.content("/a").unwrap(), b"old");
    fs::write(&path, "new").unwrap();
    desk.now_ms += 499;
    assert!(desk.has("/a", Encoding::Identity) && !desk.loader.step(), "it is not due");
    desk.now_ms += 1;
    (0..3).for_each(|_| assert!(desk.has("/a", Encoding::Identity)));
    assert!(desk.loader.step() && !desk.loader.step(), "one check for all requests");
    desk.now_ms += 999;
    assert_eq!(desk.form("/a", Encoding::Identity).unwrap(), b"new");
}

/// A file system that does not answer stops the loader of its mount. The server still serves the
/// files in memory, and those of other mounts.
#[test]
fn files_in_memory_outlast_a_hung_file_system() {
    let site = Site::new();
    site.write("a", "kept");
    site.write(HANGS_IF_READ, "never");
    let file_cache = Arc::new(FileCache::default());
    let mounts = ["/", "/other/"].map(|path| Mount::new(path, &site.0));
    let loaders = file_cache.reload(&mounts, &small(1 << 20));
    loaders.into_iter().for_each(|loader| loader.start().unwrap());
    assert!(file_cache.reload(&mounts, &small(1 << 20)).is_empty(), "nothing has changed");
    let ask = |path: &str, now_ms| {
        let (tell, told) = mpsc::channel();
        let reply = move |looked| drop(tell.send(looked));
        file_cache.ask(path, Encoding::Identity, now_ms, reply).unwrap();
        told
    };
    let is_file = |told: mpsc::Receiver<FileLook>| {
        matches!(told.recv_timeout(PATIENCE).unwrap(), FileLook::File)
    };
    let has = |path, now_ms| file_cache.with_entry(path, now_ms, false, |entry| entry.is_some());
    assert!(is_file(ask("/a", 1)) && has("/a", 1) && !has("/a", 1_001));
    let never = ask(&format!("/{HANGS_IF_READ}"), 1);
    while !file_cache.is_hung("/a") {
        std::thread::yield_now();
    }
    assert!(has("/a", 1_001), "it is served without a check");
    assert!(is_file(ask("/other/a", 1)) && !has("/other/a", 1_001));
    crate::loader::HANGS.store(false, Ordering::Relaxed);
    assert!(is_file(never));
    while file_cache.is_hung("/a") {
        std::thread::yield_now();
    }
    assert!(!has("/a", 1_001), "it is checked again");
}

/// To open a directory asks its file system nothing, so the check has to ask for more.
#[test]
fn a_root_that_does_not_answer_is_refused() {
    let site = Site::new();
    let roots = ["good", HANGS_IF_ASKED, "absent"].map(|name| site.0.join(name));
    roots[..2].iter().for_each(|root| fs::create_dir(root).unwrap());
    let [good, hung, absent] = roots.map(|root| Mount::new("/", &root));
    check_roots(std::slice::from_ref(&good)).unwrap();
    let error = check_roots(&[good.clone(), absent]).unwrap_err();
    assert!(error.to_string().contains("absent cannot be served: No such file"), "{error}");
    let error = check_roots_within(&[hung, good], Duration::from_millis(100)).unwrap_err();
    let reason = format!("{HANGS_IF_ASKED} cannot be served: the file system does not answer");
    assert!(error.to_string().ends_with(&reason), "{error}");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// What the requests for a list were told.
fn lists(told: Vec<mpsc::Receiver<FileLook>>) -> Vec<Arc<DirectoryList>> {
    let list = |told: mpsc::Receiver<FileLook>| match told.recv_timeout(PATIENCE).unwrap() {
        FileLook::List(list) => list,
        looked => panic!("no list: {looked:?}"),
    };
    told.into_iter().map(list).collect()
}

#[test]
fn a_list_has_what_may_be_served() {
    let site = Site::new();
    for name in ["b", "a", "z/x", ".hidden", "back\\slash", "z/.x"] {
        site.write(name, "");
    }
    symlink("a", site.0.join("link")).unwrap();
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    for (path, expected) in [("/", "z a b"), ("/z/", "x")] {
        let told = vec![desk.ask(path, Encoding::Identity)];
        desk.settle();
        let list = lists(told).remove(0);
        let names: Vec<&str> = (0..).map_while(|n| Some(list.row(n)?.name)).collect();
        assert_eq!(names.join(" "), expected);
    }
    for path in ["/none/", "/a/", "/link/"] {
        assert!(matches!(desk.load(path, Encoding::Identity), FileLook::Nothing), "{path}");
    }
    assert_eq!(desk.file_cache.kept().entries, 0);
}

/// Each request owns its share of the list.
#[test]
fn equal_lists_that_wait_are_made_once() {
    let site = Site::new();
    (0..100).for_each(|n| drop(site.write(&n.to_string(), "")));
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    let told: Vec<_> = (0..4).map(|_| desk.ask("/", Encoding::Identity)).collect();
    assert!(desk.loader.step() && !desk.loader.step(), "one look for all requests");
    let lists = lists(told);
    assert!(lists.iter().all(|list| Arc::ptr_eq(list, &lists[0])));
    let html_bytes: usize = (0..).map_while(|n| Some(lists[0].row(n)?.html.len())).sum();
    assert!(lists[0].share_bytes() > html_bytes / 4);
    assert!(lists[0].share_bytes() < html_bytes / 2);
}

#[test]
fn a_long_directory_is_listed_in_part() {
    let site = Site::new();
    (0..10_001).for_each(|n| drop(site.write(&n.to_string(), "")));
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    let told = vec![desk.ask("/", Encoding::Identity)];
    desk.settle();
    let list = lists(told).remove(0);
    assert!(list.row(9_999).is_some() && list.row(10_000).is_none());
}

#[test]
fn the_least_recently_used_goes_first_and_the_bound_holds() {
    let site = Site::new();
    for n in 0..40 {
        site.write(&format!("{n}.bin"), [n; 900]);
    }
    let bytes_max = 20_000;
    let mut desk = Desk::of(&site.0, &small(bytes_max));
    let mut evicted_at = None;
    for n in 0..40 {
        desk.now_ms += 1;
        desk.load(&format!("/{n}.bin"), Encoding::Identity);
        desk.now_ms += 1;
        assert!(desk.has("/0.bin", Encoding::Identity));
        let kept = desk.file_cache.kept();
        assert!(kept.bytes <= bytes_max as u64);
        // The first eviction frees more than the one entry needs.
        if kept.evictions > 0 && evicted_at.is_none() {
            evicted_at = Some(kept.bytes);
        }
    }
    assert!(evicted_at.is_some_and(|bytes| bytes <= bytes_max as u64 * 15 / 16), "{evicted_at:?}");
    let kept = desk.file_cache.kept();
    assert!(kept.entries > 8 && kept.evictions == 40 - kept.entries, "{kept:?}");
    let has = |path| desk.has(path, Encoding::Identity);
    assert!(has("/0.bin"), "it was used all the time");
    assert!(has("/39.bin") && !has("/1.bin"));
}

#[test]
fn text_is_packed_when_asked_for_and_again_when_it_changes() {
    let site = Site::new();
    let path = site.write("a.txt", text(900));
    site.write("a.png", text(900));
    site.write("large.txt", text(50_000));
    site.write("noise.txt", [7; 3]);
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.load("/a.txt", Encoding::Br);
    assert!(desk.has("/a.txt", Encoding::Br) && !desk.has("/a.txt", Encoding::Gzip));
    fs::write(&path, text(800)).unwrap();
    desk.second();
    assert_eq!(desk.content("/a.txt").unwrap().len(), 800);
    assert!(desk.has("/a.txt", Encoding::Br), "who asked before need not ask again");
    desk.load("/a.png", Encoding::Gzip);
    assert!(!desk.has("/a.png", Encoding::Gzip), "a picture is packed already");
    desk.load("/large.txt", Encoding::Zstd);
    assert!(desk.has("/large.txt", Encoding::Zstd));
    assert!(!desk.has("/large.txt", Encoding::Identity));
    desk.load("/noise.txt", Encoding::Gzip);
    assert!(!desk.has("/noise.txt", Encoding::Gzip), "it would be longer");
    let counted = desk.file_cache.kept().bytes;
    for path in ["/a.txt", "/a.png", "/large.txt", "/noise.txt"] {
        desk.file_cache.remove(path);
    }
    assert!(counted > 0 && desk.file_cache.kept().bytes == 0, "what is added is taken off again");
}

/// Each request for a large text comes to the loader, and none has it compressed in vain again.
#[test]
fn text_that_cannot_shrink_is_compressed_once() {
    let site = Site::new();
    // A linear congruential generator: bytes that no encoding makes fewer.
    let next = |n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let noise: Vec<u8> =
        std::iter::successors(Some(1), next).map(|n| (n >> 56) as u8).take(50_000).collect();
    site.write("noise.txt", noise);
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.load("/noise.txt", Encoding::Gzip);
    let entry = desk.file_cache.cache.entry("/noise.txt").unwrap();
    assert!(!entry.available().contains(Encoding::Gzip));
    for _ in 0..3 {
        desk.second();
        desk.ask("/noise.txt", Encoding::Gzip);
        assert!(desk.loader.step());
        assert!(!desk.loader.step(), "only the look is to be made");
    }
    assert!(Arc::ptr_eq(&entry, &desk.file_cache.cache.entry("/noise.txt").unwrap()));
}

#[test]
fn what_has_changed_shows_before_it_is_packed_again() {
    let site = Site::new();
    let names = ["a.js", "b.js", "c.js"];
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    for name in names {
        site.write(name, text(900));
        desk.load(&format!("/{name}"), Encoding::Br);
    }
    for name in names {
        site.write(name, text(800));
    }
    desk.second();
    for name in names {
        let path = format!("/{name}");
        desk.ask(&path, Encoding::Identity);
        desk.loader.step();
        assert_eq!(desk.form(&path, Encoding::Identity).unwrap().len(), 800, "{path}");
        assert!(!desk.has(&path, Encoding::Br));
    }
    desk.settle();
    assert!(names.iter().all(|name| desk.has(&format!("/{name}"), Encoding::Br)));
}

#[test]
fn siblings_are_used_as_they_are_and_come_and_go() {
    let site = Site::new();
    site.write("a.js", "let a = 1");
    let packed = site.write("a.js.gz", "not even gzip");
    site.write("a.js.br", vec![1; 5_000]);
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.load("/a.js", Encoding::Gzip);
    assert_eq!(desk.form("/a.js", Encoding::Gzip).unwrap(), b"not even gzip");
    let entry = desk.file_cache.cache.entry("/a.js").unwrap();
    assert!(entry.available().contains(Encoding::Br), "it is there, but too large for memory");
    assert!(!desk.has("/a.js", Encoding::Br));
    for content in ["other", "third"] {
        fs::write(&packed, content).unwrap();
        desk.second();
        desk.load("/a.js", Encoding::Identity);
        assert_eq!(desk.form("/a.js", Encoding::Gzip).unwrap(), content.as_bytes());
    }
    fs::remove_file(&packed).unwrap();
    desk.second();
    desk.load("/a.js", Encoding::Identity);
    assert!(desk.form("/a.js", Encoding::Gzip).is_none_or(|body| body != b"third"));
}

/// A writer of a sibling that rests does not keep clients from the new content of the file.
#[test]
fn siblings_being_written_are_left_out() {
    let site = Site::new();
    site.write("s.txt", "old");
    let packed = site.write("s.txt.gz", "packed old");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.load("/s.txt", Encoding::Identity);
    assert_eq!(desk.form("/s.txt", Encoding::Gzip).unwrap(), b"packed old");
    let writer = fs::OpenOptions::new().append(true).open(&packed).unwrap();
    fs::rename(site.write("next", "new"), site.0.join("s.txt")).unwrap();
    for _ in 0..2 {
        desk.second();
        assert_eq!(desk.content("/s.txt").unwrap(), b"new");
        assert!(!desk.has("/s.txt", Encoding::Gzip));
    }
    // No file changed shortly before, and the writer has changed nothing: no stamp tells of it.
    let entry = desk.file_cache.cache.entry("/s.txt").unwrap();
    let sources = entry.sources();
    entry.set_sources(FileSources { taken_ns: sources.taken_ns + 3_600_000_000_000, ..sources });
    drop(writer);
    desk.second();
    desk.load("/s.txt", Encoding::Identity);
    assert_eq!(desk.form("/s.txt", Encoding::Gzip).unwrap(), b"packed old");
}

#[test]
fn a_full_loading_queue_takes_no_more() {
    let site = Site::new();
    let Desk { file_cache, mut loader, .. } = Desk::of(&site.0, &small(20_000));
    let ask = |n: &usize| file_cache.ask(&format!("/{n}"), Encoding::Identity, 1, |_| ()).is_ok();
    assert_eq!((0..10_000).take_while(ask).count(), LOOKS_MAX);
    assert!(ask(&1), "it is joined to the one that waits");
    loader.step();
    assert!(ask(&10_000) && !ask(&10_001), "there is room for one more");
}

#[test]
fn equal_looks_that_wait_are_joined() {
    let site = Site::new();
    site.write("a", "one");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    let told: Vec<_> = (0..10).map(|_| desk.ask("/a", Encoding::Identity)).collect();
    assert!(desk.loader.step() && !desk.loader.step(), "one look for all requests");
    assert!(told.iter().all(|told| matches!(told.recv_timeout(PATIENCE).unwrap(), FileLook::File)));
}

/// Requests for names that are not there do not make a file in memory wait.
#[test]
fn checks_of_files_in_memory_go_first() {
    let site = Site::new();
    site.write("a", "one");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.content("/a").unwrap();
    desk.second();
    let mut names = (0..10_000).map(|n| format!("/{n}"));
    let ask = |path: &str| desk.file_cache.ask(path, Encoding::Identity, 1_001, |_| ()).is_ok();
    while names.next().is_some_and(|name| ask(&name)) {}
    assert!(ask("/a") && !ask("/other"), "there is room for a check");
    assert!(!desk.has("/a", Encoding::Identity));
    let is_shown = |entry: Option<&_>| entry.is_some();
    assert!(desk.file_cache.with_entry("/a", desk.now_ms, true, is_shown), "as it is");
    desk.loader.step();
    assert!(desk.has("/a", Encoding::Identity));
}

/// The clients of such a look have been refused, and other clients wait for the loader.
#[test]
fn looks_without_waiting_clients_are_dropped() {
    let site = Site::new();
    site.write("a", "one");
    let desk = Desk::of(&site.0, &small(1 << 20));
    let job = LookJob { asked_ms: 0, ..LookJob::new("/a", Encoding::Identity, 1) };
    let (tell, told) = mpsc::channel();
    let reply = LookReply(Some(Box::new(move |looked| drop(tell.send(looked)))));
    let put = stentor_io::lock(&desk.file_cache.queues).by_mount[0].looks.queue.put(
        job,
        false,
        Some(reply),
    );
    assert!(put.is_ok());
    let Desk { mut loader, file_cache, .. } = desk;
    assert!(loader.step());
    assert!(matches!(told.recv_timeout(PATIENCE).unwrap(), FileLook::NotMade(_)));
    assert!(!file_cache.keeps("/a"));
}

#[test]
fn an_early_check_that_fails_is_repeated() {
    let site = Site::new();
    site.write("a", "one");
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.content("/a").unwrap();
    let entry = desk.file_cache.cache.entry("/a").unwrap();
    desk.now_ms += 500;
    let Desk { file_cache, loader, now_ms } = desk;
    drop(loader);
    assert!(file_cache.with_entry("/a", now_ms, false, |entry| entry.is_some()));
    assert!(entry.begins_early_check(now_ms) && !entry.begins_early_check(now_ms));
}

#[test]
fn small_files_and_text_are_kept() {
    let files = Files { cache_bytes_max: 100 << 20, small_bytes_max: 1_000, ..Files::default() };
    let is_worth = |bytes, kind| is_worth_keeping(&files, bytes, kind);
    assert!(is_worth(1_000, "image/png") && !is_worth(1_001, "image/png"));
    assert!(is_worth(4 << 20, "text/plain") && !is_worth((4 << 20) + 1, "text/plain"));
    // Half of the cache holds a file with its head.
    let files = Files { cache_bytes_max: 10_000, small_bytes_max: 10_000, ..Files::default() };
    let is_worth = |bytes| is_worth_keeping(&files, bytes, "image/png");
    assert!(is_worth(3_900) && !is_worth(4_000));
}

#[test]
fn the_account_of_a_file_covers_its_place() {
    let site = Site::new();
    site.write("a.bin", [0; 900]);
    let mut desk = Desk::of(&site.0, &small(20_000));
    desk.load("/a.bin", Encoding::Identity);
    let of_entry =
        desk.file_cache.with_entry("/a.bin", desk.now_ms, false, |entry| entry.unwrap().bytes());
    let pair = size_of::<(Box<str>, Arc<CachedFile>)>() + 4 * size_of::<usize>();
    let place = desk.file_cache.kept().bytes - (of_entry + "/a.bin".len()) as u64;
    assert!(place >= pair as u64, "{place}");
}

#[test]
fn the_longest_mount_is_asked() {
    let mounts = [Mount::new("/", "a"), Mount::new("/docs", "b"), Mount::new("/docs/new", "c")];
    let find = |path| mount_of(&mounts, path).map(|(index, _, rest)| (index, rest));
    assert_eq!(find("/x/y"), Some((0, "x/y")));
    assert_eq!(find("/docs"), Some((0, "docs")));
    assert_eq!(find("/docs/a"), Some((1, "a")));
    assert_eq!(find("/docs/new/a"), Some((2, "a")));
    assert_eq!(find("/docs/newer"), Some((1, "newer")));
    assert_eq!(mount_of(&mounts[1..], "/x").map(|(index, ..)| index), None);
}

#[test]
fn a_tag_tells_contents_and_encodings_apart() {
    let tag = Tag::of_content(b"a", Encoding::Identity);
    assert_eq!(tag.as_ref().len(), 16);
    assert_ne!(tag, Tag::of_content(b"b", Encoding::Identity));
    let packed = tag.encoded(Encoding::Zstd);
    assert_eq!(packed.as_ref(), [tag.as_ref(), b".zst"].concat());
    assert_eq!(packed, Tag::of_content(b"a", Encoding::Zstd));
}

/// What made it panic is left out; what was kept is let go, in case that a change was missed.
#[test]
fn a_panic_costs_what_caused_it() {
    let site = Site::new();
    let page = site.write("page.txt", "page ".repeat(200));
    for name in [PANICS_IF_READ, PANICS_IF_PACKED] {
        site.write(name, "text ".repeat(200));
    }
    let mut desk = Desk::of(&site.0, &small(1 << 20));
    desk.load("/page.txt", Encoding::Gzip);
    desk.load(&format!("/{PANICS_IF_PACKED}"), Encoding::Gzip);
    assert!(desk.has("/page.txt", Encoding::Gzip));
    assert!(desk.has(&format!("/{PANICS_IF_PACKED}"), Encoding::Identity));
    assert!(!desk.has(&format!("/{PANICS_IF_PACKED}"), Encoding::Gzip));

    let looked = desk.load(&format!("/{PANICS_IF_READ}"), Encoding::Identity);
    assert!(matches!(looked, FileLook::Failed(_)), "the worker is told: {looked:?}");
    assert_eq!(desk.file_cache.kept().entries, 0);
    assert_eq!(desk.file_cache.kept().bytes, 0);
    desk.load("/page.txt", Encoding::Br);
    assert!(desk.has("/page.txt", Encoding::Br));
    fs::write(&page, "another").unwrap();
    desk.second();
    assert_eq!(desk.content("/page.txt").unwrap(), b"another");
}

/// It is counted with what it took when the cache dropped it, whatever is added to it afterwards.
#[test]
fn a_dropped_entry_counts_while_held() {
    let site = Site::new();
    site.write("a.txt", "hello, world\n".repeat(200));
    let mut desk = Desk::of(&site.0, &Files::default());
    desk.load("/a.txt", Encoding::Identity);
    desk.settle();
    let held =
        desk.file_cache.with_entry("/a.txt", desk.now_ms, false, |entry| entry.cloned()).unwrap();
    assert_eq!((desk.file_cache.detached_bytes(), held.detached_bytes()), (0, 0));
    desk.file_cache.remove("/a.txt");
    let bytes = held.bytes();
    assert_eq!((desk.file_cache.detached_bytes(), held.detached_bytes()), (bytes, bytes));
    held.add(Encoding::Gzip, held.tag.encoded(Encoding::Gzip), vec![0; 500]);
    assert!(held.bytes() > bytes);
    assert_eq!(held.detached_bytes(), bytes);
    drop(held);
    // The table frees its own reference some time later.
    assert!([0, bytes].contains(&desk.file_cache.detached_bytes()));
}
