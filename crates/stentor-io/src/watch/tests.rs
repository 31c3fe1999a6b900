//! What is told of directories that change, on a real disk.

use super::*;
use crate::scratch::Scratch;
use crate::spawn_with_file_table;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// A directory that is watched, and another beside it that is not.
struct Watched {
    scratch: Scratch,
    root: Directory,
    watcher: Watcher,
    waker: Waker,
    id: WatchId,
}

impl Watched {
    fn new() -> Watched {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.join("root/sub")).unwrap();
        fs::create_dir(scratch.join("aside")).unwrap();
        let root = Directory::open(&scratch.join("root")).unwrap();
        let (watcher, waker) = (Watcher::new().unwrap(), Waker::new().unwrap());
        let id = watcher.watch(&root, "").unwrap();
        Watched { scratch, root, watcher, waker, id }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.join("root").join(name)
    }

    fn aside(&self, name: &str) -> PathBuf {
        self.scratch.join("aside").join(name)
    }

    /// Everything that was told since the last time.
    fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.watcher.wait(&self.waker, Some(0), &mut changes).unwrap();
        changes
    }

    /// The same, as words, repetitions left out.
    fn told(&mut self) -> Vec<String> {
        let id = self.id;
        let mut told: Vec<String> = self.changes().iter().map(|change| words(id, change)).collect();
        told.dedup();
        told
    }
}

fn words(id: WatchId, change: &Change) -> String {
    let (watch, what, name) = match change {
        Change::Written { watch, name } => (watch, "written", name.as_str()),
        Change::Removed { watch, name } => (watch, "removed", name.as_str()),
        Change::DirectoryChanged { watch, name } => (watch, "directory", name.as_str()),
        Change::DirectoryTouched { watch, name } => (watch, "touched", name.as_str()),
        Change::Ended { watch } => (watch, "ended", ""),
        Change::Overflow => return "overflow".to_owned(),
    };
    let place = if *watch == id { "" } else { "elsewhere: " };
    format!("{place}{what} {name}").trim_end().to_owned()
}

#[test]
fn files_that_come_and_go_are_told_of_by_name() {
    let mut w = Watched::new();
    assert!(w.told().is_empty());
    fs::write(w.at("a"), "1").unwrap();
    assert_eq!(w.told(), ["written a"]);
    fs::rename(w.at("a"), w.at("b")).unwrap();
    assert_eq!(w.told(), ["removed a", "written b"]);
    fs::write(w.aside("new"), "2").unwrap();
    assert!(w.told().is_empty());
    fs::rename(w.aside("new"), w.at("b")).unwrap();
    assert_eq!(w.told(), ["written b"]);
    fs::hard_link(w.at("b"), w.at("c")).unwrap();
    assert_eq!(w.told(), ["written c"]);
    symlink("c", w.at("link")).unwrap();
    assert_eq!(w.told(), ["written link"]);
    fs::set_permissions(w.at("c"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(w.told(), ["written c"]);
    fs::rename(w.at("c"), w.aside("c")).unwrap();
    assert_eq!(w.told(), ["removed c"]);
    fs::remove_file(w.at("b")).unwrap();
    assert_eq!(w.told(), ["removed b"]);
    fs::read_link(w.at("link")).unwrap();
    fs::remove_file(w.at("link")).unwrap();
    assert_eq!(w.told(), ["removed link"]);
    let longest = "n".repeat(255);
    fs::write(w.at(&longest), "").unwrap();
    assert_eq!(w.told(), [format!("written {longest}")]);
    // Nobody can ask for it.
    fs::write(w.scratch.join("root").join(OsStr::from_bytes(b"\xff")), "").unwrap();
    assert!(w.told().is_empty());
}

#[test]
fn a_file_that_is_being_written_is_left_alone_until_it_is_closed() {
    let mut w = Watched::new();
    let mut file = fs::File::create(w.at("a")).unwrap();
    assert_eq!(w.told(), ["written a"], "it came");
    for _ in 0..10 {
        file.write_all(b"more").unwrap();
    }
    assert!(w.told().is_empty());
    drop(file);
    assert_eq!(w.told(), ["written a"]);
    fs::read(w.at("a")).unwrap();
    assert!(w.told().is_empty(), "to read is to change nothing");
    let mut file = fs::File::create(w.at("a")).unwrap();
    fs::remove_file(w.at("a")).unwrap();
    assert_eq!(w.told(), ["removed a"]);
    file.write_all(b"more").unwrap();
    drop(file);
    assert!(w.told().is_empty(), "it has no name any more");
}

#[test]
fn directories_that_come_and_go_are_told_of_too() {
    let mut w = Watched::new();
    fs::create_dir(w.at("new")).unwrap();
    assert_eq!(w.told(), ["directory new"]);
    fs::set_permissions(w.at("new"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(w.told(), ["touched new"]);
    fs::write(w.at("new/deep"), "").unwrap();
    assert!(w.told().is_empty(), "further below nothing is told");
    fs::remove_file(w.at("new/deep")).unwrap();
    fs::rename(w.at("new"), w.at("other")).unwrap();
    assert_eq!(w.told(), ["directory new", "directory other"]);
    fs::remove_dir(w.at("other")).unwrap();
    assert_eq!(w.told(), ["directory other"]);
    fs::set_permissions(w.at(""), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(w.told(), ["touched"], "the watched one itself");
}

#[test]
fn a_watch_ends_with_its_directory() {
    let mut w = Watched::new();
    let below = w.watcher.watch(&w.root, "sub").unwrap();
    assert_ne!(below, w.id);
    assert_eq!(w.watcher.watch(&w.root, "sub/../sub/").unwrap(), below);
    fs::write(w.at("sub/a"), "").unwrap();
    assert_eq!(w.told(), ["elsewhere: written a"]);
    fs::remove_dir_all(w.at("sub")).unwrap();
    assert!(w.changes().contains(&Change::Ended { watch: below }));

    fs::create_dir(w.at("sub")).unwrap();
    let again = w.watcher.watch(&w.root, "sub").unwrap();
    assert_ne!(again, below);
    w.changes();
    fs::rename(w.at("sub"), w.aside("sub")).unwrap();
    fs::write(w.aside("sub/a"), "").unwrap();
    let changes = w.changes();
    let ended = changes.iter().position(|change| *change == Change::Ended { watch: again });
    let of_it = |change: &Change| words(again, change).starts_with("written");
    assert!(!changes[ended.unwrap()..].iter().any(of_it));
    fs::write(w.aside("sub/b"), "").unwrap();
    assert!(w.changes().is_empty());
    fs::rename(w.aside("sub"), w.at("sub")).unwrap();
    assert_ne!(w.watcher.watch(&w.root, "sub").unwrap(), again, "the kernel forgot it, too");
}

/// It is the root that a server holds open.
#[test]
fn a_directory_that_is_held_open_ends_when_it_is_closed() {
    let mut w = Watched::new();
    let held = Directory::open(&w.at("sub")).unwrap();
    let below = w.watcher.watch(&w.root, "sub").unwrap();
    fs::remove_dir(w.at("sub")).unwrap();
    assert_eq!(w.told(), ["directory sub"]);
    drop(held);
    assert_eq!(w.changes(), [Change::Ended { watch: below }]);
}

#[test]
fn after_unwatch_nothing_more_is_told() {
    let mut w = Watched::new();
    fs::write(w.at("a"), "").unwrap();
    w.watcher.unwatch(w.id);
    w.watcher.unwatch(w.id);
    fs::write(w.at("b"), "").unwrap();
    assert!(w.changes().is_empty(), "not even what had happened before");
    let again = w.watcher.watch(&w.root, "").unwrap();
    fs::write(w.at("c"), "").unwrap();
    assert!(w.changes().contains(&Change::Written { watch: again, name: "c".to_owned() }));
}

#[test]
fn only_directories_beneath_are_watched() {
    let w = Watched::new();
    fs::write(w.at("file"), "").unwrap();
    symlink("sub", w.at("link")).unwrap();
    for (path, kind) in [
        ("nothing", ErrorKind::NotFound),
        ("file", ErrorKind::NotADirectory),
        ("..", ErrorKind::NotFound),
        ("link", ErrorKind::NotFound),
        ("/etc", ErrorKind::NotFound),
    ] {
        assert_eq!(w.watcher.watch(&w.root, path).unwrap_err().kind(), kind, "{path}");
    }
}

#[test]
fn many_changes_are_all_told() {
    let mut w = Watched::new();
    // So long that no round number of events fills a buffer.
    let name = "a file with a name that is not short ".repeat(2);
    for _ in 0..2 {
        for i in 0..3_000 {
            fs::write(w.at(&format!("{name}{i}")), "").unwrap();
            fs::remove_file(w.at(&format!("{name}{i}"))).unwrap();
        }
        let mut removed = 0;
        loop {
            let changes = w.changes();
            if changes.is_empty() {
                break;
            }
            assert!(!changes.contains(&Change::Overflow));
            let is_removed = |change: &&Change| matches!(change, Change::Removed { .. });
            removed += changes.iter().filter(is_removed).count();
        }
        assert_eq!(removed, 3_000);
    }
}

#[test]
fn a_wait_ends_in_time_by_a_change_and_by_the_waker() {
    let mut w = Watched::new();
    let mut changes = Vec::new();
    let began = Instant::now();
    w.watcher.wait(&w.waker, Some(30), &mut changes).unwrap();
    assert!(changes.is_empty() && began.elapsed() >= Duration::from_millis(29));
    for _ in 0..3 {
        w.waker.wake();
        w.watcher.wait(&w.waker, None, &mut changes).unwrap();
        assert!(w.waker.take() && changes.is_empty());
    }
    // One that was taken notice of ends no further wait.
    let began = Instant::now();
    w.watcher.wait(&w.waker, Some(30), &mut changes).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(29));
    let (waker, watcher, path) = (&w.waker, &mut w.watcher, w.scratch.join("root/a"));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        watcher.wait(waker, None, &mut changes).unwrap();
        assert!(waker.take() && changes.is_empty());
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            fs::write(path, "").unwrap();
        });
        watcher.wait(waker, None, &mut changes).unwrap();
        assert!(!changes.is_empty());
    });
}

#[test]
fn a_thread_with_its_own_file_table_watches_too() {
    let scratch = Scratch::new();
    let watch = move |own_table: io::Result<()>| {
        own_table.unwrap();
        let root = Directory::open(&scratch).unwrap();
        let (mut watcher, waker) = (Watcher::new().unwrap(), Waker::new().unwrap());
        let id = watcher.watch(&root, "").unwrap();
        fs::write(scratch.join("a"), "").unwrap();
        let mut changes = Vec::new();
        watcher.wait(&waker, Some(5_000), &mut changes).unwrap();
        changes.iter().map(|change| words(id, change)).collect::<Vec<_>>()
    };
    let watching = spawn_with_file_table(thread::Builder::new(), watch).unwrap();
    let told = watching.join().unwrap();
    assert_eq!(told.first().map(String::as_str), Some("written a"));
}
