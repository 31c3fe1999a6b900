//! Files beneath a directory: hostile paths, hostile places, files that are being written.
//!
//! No test of this crate starts a process: for a moment that would have a copy of each descriptor
//! of the others, so that a file which was closed would still be open.

use super::*;
use crate::scratch::Scratch;
use rustix::fs::{RenameFlags, makedev, mknodat, renameat_with};
use std::ffi::OsStr;
use std::fs::{self as disk, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

const BOTH: [Symlinks; 2] = [Symlinks::Refused, Symlinks::Followed];

/// What a path leads to, in a word, or the content of the file.
fn found(directory: &Directory, path: &str, symlinks: Symlinks) -> Result<String, ErrorKind> {
    match directory.find(path, symlinks) {
        Ok(Found::File(file)) => Ok(content(&file)),
        Ok(Found::Directory) => Ok("a directory".to_owned()),
        Ok(Found::Special) => Ok("something special".to_owned()),
        Err(error) => Err(error.kind()),
    }
}

fn content(file: &File) -> String {
    let mut buffer = [0; 64];
    let length = file.read_at(&mut buffer, 0).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

fn file(directory: &Directory, path: &str) -> File {
    match directory.find(path, Symlinks::Refused) {
        Ok(Found::File(file)) => file,
        other => panic!("{path}: {other:?}"),
    }
}

/// A directory whose paths the kernel resolves, and the same one where they are walked.
fn each_way(path: &Path) -> [Directory; 2] {
    [Resolver::Kernel, Resolver::Walk].map(|resolver| {
        let directory = Directory::open(path).unwrap();
        assert!(directory.is_resolved_by_kernel(), "these tests need openat2");
        Directory { resolver, ..directory }
    })
}

/// A root with a file beside it that is nobody's business.
fn root(scratch: &Scratch) -> Directory {
    disk::create_dir_all(scratch.join("root/sub/deep")).unwrap();
    disk::write(scratch.join("secret"), "outside").unwrap();
    disk::write(scratch.join("root/a.txt"), "inside").unwrap();
    disk::write(scratch.join("root/sub/b.txt"), "below").unwrap();
    Directory::open(&scratch.join("root")).unwrap()
}

#[test]
fn a_directory_is_opened_and_known_again() {
    let scratch = Scratch::new();
    let directory = root(&scratch);
    let path = scratch.join("root");
    assert_eq!(directory.identity().unwrap(), Directory::identity_of(&path).unwrap());
    symlink(&path, scratch.join("link")).unwrap();
    let linked = Directory::open(&scratch.join("link")).unwrap();
    assert_eq!(linked.identity().unwrap(), directory.identity().unwrap());
    disk::rename(&path, scratch.join("old")).unwrap();
    assert_eq!(Directory::identity_of(&path).unwrap_err().kind(), ErrorKind::NotFound);
    disk::create_dir(&path).unwrap();
    assert_ne!(directory.identity().unwrap(), Directory::identity_of(&path).unwrap());
    // It is the directory that was opened, not its name.
    assert_eq!(found(&directory, "a.txt", Symlinks::Refused).unwrap(), "inside");
    let error = Directory::open(&scratch.join("secret")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    assert_eq!(Directory::open(&scratch.join("x")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let scratch = Scratch::new();
    root(&scratch);
    let absolute = scratch.join("root/a.txt").to_str().unwrap().to_owned();
    let long = "x".repeat(256);
    let cases = [
        ("", Ok("a directory")),
        (".", Ok("a directory")),
        ("sub", Ok("a directory")),
        ("sub/", Ok("a directory")),
        ("a.txt", Ok("inside")),
        ("sub/b.txt", Ok("below")),
        ("sub//./b.txt", Ok("below")),
        ("sub/../a.txt", Ok("inside")),
        ("A.TXT", Err(ErrorKind::NotFound)),
        ("sub/a.txt", Err(ErrorKind::NotFound)),
        ("a.txt/", Err(ErrorKind::NotADirectory)),
        ("a.txt/b", Err(ErrorKind::NotADirectory)),
        ("a.txt\0.png", Err(ErrorKind::InvalidInput)),
        (&long, Err(ErrorKind::InvalidFilename)),
        ("..", Err(ErrorKind::NotFound)),
        ("../secret", Err(ErrorKind::NotFound)),
        ("sub/../../secret", Err(ErrorKind::NotFound)),
        ("sub/../../root/a.txt", Err(ErrorKind::NotFound)),
        ("/", Err(ErrorKind::NotFound)),
        ("/etc/passwd", Err(ErrorKind::NotFound)),
        (&absolute, Err(ErrorKind::NotFound)),
        ("%2e%2e/secret", Err(ErrorKind::NotFound)),
        ("..\\secret", Err(ErrorKind::NotFound)),
    ];
    for directory in each_way(&scratch.join("root")) {
        for (symlinks, (path, expected)) in
            BOTH.iter().flat_map(|s| cases.iter().map(move |c| (s, c)))
        {
            let result = found(&directory, path, *symlinks);
            let expected = expected.as_ref().map(|s| *s);
            assert_eq!(result.as_deref(), expected, "{path:?} {:?}", directory.resolver);
        }
    }
}

#[test]
fn symbolic_links_are_refused_or_stay_beneath() {
    let scratch = Scratch::new();
    root(&scratch);
    let link = |to: &str, at: &str| symlink(to, scratch.join("root").join(at)).unwrap();
    link("a.txt", "near");
    link("../a.txt", "sub/up");
    link("sub", "directory");
    link("../secret", "out");
    link("..", "parent");
    link("/etc/passwd", "absolute");
    link(scratch.join("root/a.txt").to_str().unwrap(), "home");
    link("loop", "loop");
    link("nothing", "dangling");
    link("directory/../near", "through");
    link("./sub//deep/../b.txt", "winding");
    link("sub/../..", "sly");
    link("../../secret", "sub/sly");
    for directory in each_way(&scratch.join("root")) {
        links_lead_where_they_may(&directory);
    }
}

fn links_lead_where_they_may(directory: &Directory) {
    let inside = [
        ("near", "inside"),
        ("sub/up", "inside"),
        ("directory/b.txt", "below"),
        ("directory/../a.txt", "inside"),
        ("through", "inside"),
        ("winding", "below"),
    ];
    for (path, expected) in inside {
        assert_eq!(found(directory, path, Symlinks::Followed).unwrap(), expected);
        let Found::File(file) = directory.find(path, Symlinks::Followed).unwrap() else { panic!() };
        assert!(file.through_symlink(), "{path}");
    }
    assert_eq!(found(directory, "directory", Symlinks::Followed).unwrap(), "a directory");
    let away =
        ["out", "parent/secret", "parent/root/a.txt", "absolute", "home", "loop", "sly/secret"];
    for path in away.into_iter().chain(["sub/sly", "directory/sly", "directory/../../secret"]) {
        let denied = found(directory, path, Symlinks::Followed);
        assert_eq!(denied, Err(ErrorKind::NotFound), "{path}");
    }
    let dangling = found(directory, "dangling", Symlinks::Followed);
    assert_eq!(dangling, Err(ErrorKind::NotFound));
    for path in
        ["near", "sub/up", "directory", "directory/b.txt", "out", "absolute", "loop", "dangling"]
    {
        let refused = found(directory, path, Symlinks::Refused);
        assert_eq!(refused, Err(ErrorKind::NotFound), "{path}");
    }
    let Found::File(file) = directory.find("a.txt", Symlinks::Followed).unwrap() else { panic!() };
    assert!(!file.through_symlink());
}

#[test]
fn links_of_proc_are_never_followed() {
    for directory in each_way(Path::new("/proc/self")) {
        for path in ["exe", "root/etc/passwd", "cwd", "fd/0"] {
            for symlinks in BOTH {
                let denied = found(&directory, path, symlinks);
                assert_eq!(denied, Err(ErrorKind::NotFound), "{path} {:?}", directory.resolver);
            }
        }
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let scratch = Scratch::new();
    root(&scratch);
    let make = |name: &str, kind, device| {
        mknodat(CWD, scratch.join("root").join(name), kind, Mode::from(0o644), device)
    };
    make("fifo", FileType::Fifo, 0).unwrap();
    let _socket = UnixListener::bind(scratch.join("root/socket")).unwrap();
    let mut names = vec!["fifo", "socket"];
    // Only root may make devices, and not everywhere.
    for (name, device) in [("zero", makedev(1, 5)), ("tty", makedev(5, 0))] {
        if make(name, FileType::CharacterDevice, device).is_ok() {
            names.push(name);
        }
    }
    symlink("fifo", scratch.join("root/link")).unwrap();
    let began = Instant::now();
    for directory in each_way(&scratch.join("root")) {
        for (name, symlinks) in names.iter().flat_map(|name| BOTH.map(|s| (name, s))) {
            assert_eq!(found(&directory, name, symlinks).unwrap(), "something special", "{name}");
        }
        assert_eq!(found(&directory, "link", Symlinks::Followed).unwrap(), "something special");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "it waited for a writer");
    // Nobody has opened it for reading either, so a writer that does not wait finds nobody.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let writer = fs::openat(CWD, scratch.join("root/fifo"), flags, NO_MODE);
    assert_eq!(writer.unwrap_err(), Errno::NXIO);
}

/// Says that it is done when it goes, by a panic too.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges two names again and again while `look` is called, for a while.
fn while_exchanging(a: &Path, b: &Path, mut look: impl FnMut()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let until = Instant::now() + Duration::from_millis(400);
        while Instant::now() < until {
            look();
        }
    });
}

#[test]
fn a_place_that_is_swapped_while_it_is_looked_at_never_leads_out() {
    let swaps = [
        ("a.txt", "out", "a.txt"),
        ("sub", "away", "sub/b.txt"),
        ("sub", "away", "sub/../sub/b.txt"),
        ("sub", "away", "over/b.txt"),
        ("sub", "file", "sub/b.txt"),
        ("a.txt", "link", "a.txt"),
        ("a.txt", "c.txt", "a.txt"),
        ("a.txt", "fifo", "a.txt"),
    ];
    for (name, other, path) in swaps {
        let scratch = Scratch::new();
        root(&scratch);
        let at = |name: &str| scratch.join("root").join(name);
        disk::create_dir(scratch.join("elsewhere")).unwrap();
        disk::write(scratch.join("elsewhere/b.txt"), "outside").unwrap();
        disk::write(at("c.txt"), "another").unwrap();
        disk::write(at("file"), "inside").unwrap();
        symlink("../secret", at("out")).unwrap();
        symlink("../elsewhere", at("away")).unwrap();
        symlink("sub/deep/..", at("over")).unwrap();
        symlink("c.txt", at("link")).unwrap();
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from(0o644), 0).unwrap();
        let directories = each_way(&scratch.join("root"));
        let mut inside = [0, 0];
        while_exchanging(&at(name), &at(other), || {
            for (directory, inside) in directories.iter().zip(&mut inside) {
                for symlinks in BOTH {
                    match found(directory, path, symlinks).as_deref() {
                        Ok("inside" | "below" | "another") => *inside += 1,
                        Ok("something special") | Err(ErrorKind::NotFound) => {}
                        Err(ErrorKind::NotADirectory) if other == "file" => {}
                        Err(ErrorKind::WouldBlock) => {}
                        result => panic!("{path} {:?}: {result:?}", directory.resolver),
                    }
                }
            }
        });
        assert!(inside.iter().all(|&inside| inside > 0), "{path}: {inside:?}");
    }
}

/// The walk stays where it was though a directory is moved out of the root under it.
#[test]
fn a_directory_that_is_moved_out_leads_nowhere_else() {
    let scratch = Scratch::new();
    root(&scratch);
    disk::create_dir(scratch.join("elsewhere")).unwrap();
    let directories = each_way(&scratch.join("root"));
    let (inner, outer) = (scratch.join("root/sub"), scratch.join("elsewhere/sub"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                disk::rename(&inner, &outer).unwrap();
                disk::rename(&outer, &inner).unwrap();
            }
        });
        let until = Instant::now() + Duration::from_millis(400);
        while Instant::now() < until {
            for directory in &directories {
                // One step up from where `sub` is outside is the directory with the secret.
                for path in ["sub/deep/../../../secret", "sub/../../secret", "sub/../secret"] {
                    let result = found(directory, path, Symlinks::Refused);
                    let is_refused =
                        matches!(result, Err(ErrorKind::NotFound | ErrorKind::WouldBlock));
                    assert!(is_refused, "{path} {:?}: {result:?}", directory.resolver);
                }
            }
        }
    });
}

/// Both ways of resolving a path say the same, down to the kind of error.
#[test]
fn the_walk_resolves_paths_as_the_kernel_does() {
    let scratch = Scratch::new();
    root(&scratch);
    let link = |to: &str, at: &str| symlink(to, scratch.join("root").join(at)).unwrap();
    for (to, at) in [("sub", "l"), ("..", "sub/u"), ("deep/../..", "sub/v"), ("l/u/a.txt", "w")] {
        link(to, at);
    }
    link("../l", "sub/l");
    link("/", "r");
    link("x", "y");
    link("y", "x");
    // A chain of 40 links is followed, one of 41 is not.
    link("a.txt", "c1");
    for n in 2..=41 {
        link(&format!("c{}", n - 1), &format!("c{n}"));
    }
    let [kernel, walk] = each_way(&scratch.join("root"));
    assert_eq!(found(&walk, "c40", Symlinks::Followed).unwrap(), "inside");
    assert_eq!(found(&walk, "c41", Symlinks::Followed), Err(ErrorKind::NotFound));
    let names = ["..", ".", "", "sub", "deep", "a.txt", "b.txt", "l", "u", "v", "w", "r", "y"];
    let mut rng = crate::Rng::new(7);
    let mut opened = 0;
    for _ in 0..20_000 {
        let depth = 1 + rng.below(6);
        let path: Vec<&str> = (0..depth).map(|_| names[rng.below(names.len())]).collect();
        let path = path.join("/");
        for symlinks in BOTH {
            let expected = found(&kernel, &path, symlinks);
            opened += usize::from(expected.is_ok());
            assert_eq!(found(&walk, &path, symlinks), expected, "{path:?} {symlinks:?}");
        }
    }
    assert!(opened > 2_000, "{opened}");
    let long = ["x".repeat(4_095), "./".repeat(2_047), "./".repeat(2_048), "sub/../".repeat(600)];
    for path in &long {
        let expected = found(&kernel, path, Symlinks::Followed);
        assert_eq!(found(&walk, path, Symlinks::Followed), expected, "{}", path.len());
    }
}

/// Links make paths that are longer than any that could be asked for.
#[test]
fn a_walk_holds_a_bounded_number_of_directories() {
    let scratch = Scratch::new();
    let mut deep = scratch.join("root");
    for _ in 0..300 {
        deep.push("d");
    }
    disk::create_dir_all(&deep).unwrap();
    let [kernel, walk] = each_way(&scratch.join("root"));
    let path = |depth: usize| vec!["d"; depth].join("/");
    assert_eq!(found(&kernel, &path(300), Symlinks::Refused).unwrap(), "a directory");
    assert_eq!(found(&walk, &path(257), Symlinks::Refused).unwrap(), "a directory");
    assert_eq!(found(&walk, &path(258), Symlinks::Refused), Err(ErrorKind::InvalidFilename));
}

#[test]
fn a_file_says_how_large_and_how_old_it_is() {
    let scratch = Scratch::new();
    let directory = root(&scratch);
    let path = scratch.join("root/a.txt");
    let times = [
        (UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789), 1_700_000_000_123_456_789),
        (UNIX_EPOCH, 0),
        (UNIX_EPOCH - Duration::from_millis(1_500), -1_500_000_000),
    ];
    for (time, modified_ns) in times {
        OpenOptions::new().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let status = file(&directory, "a.txt").status();
        assert_eq!(status.modified_ns, modified_ns);
        assert_eq!(status.modified_unix_s(), (modified_ns / 1_000_000_000).max(0) as u64);
        assert_eq!(status.bytes, 6);
    }
    let opened = file(&directory, "a.txt");
    assert_eq!(opened.status_now().unwrap(), opened.status());
    disk::write(&path, "longer than before").unwrap();
    assert_eq!(opened.status().bytes, 6);
    assert_eq!(opened.status_now().unwrap().bytes, 18);
    let mut buffer = [0; 6];
    assert_eq!(opened.read_at(&mut buffer, 12).unwrap(), 6);
    assert_eq!(&buffer, b"before");
    assert_eq!(opened.read_at(&mut buffer, 16).unwrap(), 2);
    assert_eq!(opened.read_at(&mut buffer, 18).unwrap(), 0);
    assert_eq!(opened.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    // Replaced by renaming: who has it open keeps the old one.
    disk::write(scratch.join("new"), "new").unwrap();
    disk::rename(scratch.join("new"), &path).unwrap();
    assert_eq!(opened.status_now().unwrap().bytes, 18);
    assert_eq!(content(&file(&directory, "a.txt")), "new");
}

/// On the file system of temporary files, and in memory.
fn on_each_file_system(check: impl Fn(&Scratch)) {
    check(&Scratch::new());
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        check(&Scratch::beneath(memory));
    }
}

#[test]
fn a_file_that_is_being_written_is_told_from_one_that_is_not() {
    on_each_file_system(|scratch| {
        let directory = root(scratch);
        let opened = file(&directory, "a.txt");
        for _ in 0..2 {
            assert!(matches!(opened.hold(), Held::Still(_)));
            let writer = OpenOptions::new().append(true).open(scratch.join("root/a.txt")).unwrap();
            assert!(matches!(opened.hold(), Held::BeingWritten));
            let late = file(&directory, "a.txt");
            assert!(matches!(late.hold(), Held::BeingWritten));
            drop(writer);
            assert!(matches!(late.hold(), Held::Still(_)));
        }
        // Readers are no writers, and replacing a file is not writing it.
        let held = opened.hold();
        assert_eq!(disk::read_to_string(scratch.join("root/a.txt")).unwrap(), "inside");
        disk::write(scratch.join("new"), "new").unwrap();
        disk::rename(scratch.join("new"), scratch.join("root/a.txt")).unwrap();
        assert!(matches!(held, Held::Still(_)));
    });
}

#[test]
fn a_writer_waits_for_the_lease_and_its_signal_ends_nobody() {
    on_each_file_system(|scratch| {
        let directory = root(scratch);
        let path = scratch.join("root/a.txt");
        let opened = file(&directory, "a.txt");
        let (held, open) = (opened.hold(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
                open.store(true, Ordering::SeqCst);
                writer.write_all(b", and more").unwrap();
            });
            thread::sleep(Duration::from_millis(100));
            assert!(!open.load(Ordering::SeqCst), "the writer did not wait");
            assert_eq!(opened.status_now().unwrap(), opened.status());
            assert_eq!(content(&opened), "inside");
            drop(held);
        });
        assert!(matches!(opened.hold(), Held::Still(_)));
        assert_eq!(opened.status_now().unwrap().bytes, 16);
    });
}

/// The kernel refuses to open a file while a writer has a lease on it.
#[test]
fn a_file_that_is_leased_is_given_up() {
    let scratch = Scratch::new();
    root(&scratch);
    let writer = OpenOptions::new().append(true).open(scratch.join("root/a.txt")).unwrap();
    let control = |command, argument: libc::c_int| {
        // SAFETY: an integer command on a descriptor that is open; no memory is touched.
        assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), command, argument) }, 0);
    };
    control(F_SETSIG, libc::SIGURG);
    control(libc::F_SETLEASE, libc::F_WRLCK);
    for directory in each_way(&scratch.join("root")) {
        let result = found(&directory, "a.txt", Symlinks::Refused);
        assert_eq!(result, Err(ErrorKind::WouldBlock), "{:?}", directory.resolver);
    }
}

#[test]
fn a_directory_is_listed() {
    let scratch = Scratch::new();
    root(&scratch);
    let at = |name: &str| scratch.join("root").join(name);
    disk::write(at(".hidden"), "").unwrap();
    disk::write(scratch.join("root").join(OsStr::from_bytes(b"\xff.txt")), "").unwrap();
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from(0o644), 0).unwrap();
    symlink("../a.txt", at("sub/up")).unwrap();
    symlink("deep", at("sub/down")).unwrap();
    symlink("../../secret", at("sub/out")).unwrap();
    symlink("nothing", at("sub/dangling")).unwrap();
    for directory in each_way(&scratch.join("root")) {
        listings_are_right(&directory);
    }
}

fn listings_are_right(directory: &Directory) {
    let listed = |path: &str, symlinks| {
        let mut names = Vec::new();
        directory.list(path, symlinks, 100, |listed| names.push(listed)).unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let named = |n: Listed| (n.name, n.kind, n.status.bytes);
        names.into_iter().map(named).collect::<Vec<_>>()
    };
    let kinds = |listed: Vec<(String, FileKind, u64)>| {
        listed.into_iter().map(|(name, kind, _)| (name, kind)).collect::<Vec<_>>()
    };
    let named = |names: &[(&str, FileKind)]| {
        names.iter().map(|(name, kind)| (name.to_string(), *kind)).collect::<Vec<_>>()
    };
    use FileKind::{Directory as Folder, File as Plain, Link, Special};
    let top = [(".hidden", Plain), ("a.txt", Plain), ("fifo", Special), ("sub", Folder)];
    assert_eq!(kinds(listed("", Symlinks::Refused)), named(&top));
    assert_eq!(listed("", Symlinks::Refused)[1].2, 6);
    let (b, out, dangling) = (("b.txt", Plain), ("out", Link), ("dangling", Link));
    let refused = [b, dangling, ("deep", Folder), ("down", Link), out, ("up", Link)];
    assert_eq!(kinds(listed("sub", Symlinks::Refused)), named(&refused));
    let followed = [b, dangling, ("deep", Folder), ("down", Folder), out, ("up", Plain)];
    assert_eq!(kinds(listed("sub", Symlinks::Followed)), named(&followed));
    assert_eq!(listed("sub", Symlinks::Followed)[5].2, 6, "the size of what it leads to");
    assert!(listed("sub/deep", Symlinks::Refused).is_empty());
    for (path, kind) in [
        ("a.txt", ErrorKind::NotADirectory),
        ("fifo", ErrorKind::NotADirectory),
        ("x", ErrorKind::NotFound),
        ("..", ErrorKind::NotFound),
    ] {
        let error = directory.list(path, Symlinks::Followed, 100, drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{path}");
    }
}

#[test]
fn a_long_listing_is_cut() {
    let scratch = Scratch::new();
    let directory = Directory::open(&scratch).unwrap();
    for i in 0..300 {
        disk::write(scratch.join(format!("{i}-{}", "x".repeat(200))), "").unwrap();
    }
    for names_max in [0, 299, 300, 1_000] {
        let mut names = Vec::new();
        let take = |listed: Listed| names.push(listed.name);
        directory.list("", Symlinks::Refused, names_max, take).unwrap();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), names_max.min(300));
    }
}
