//! The promises of a disk. Each case runs on a directory of the host and on the simulated disk, so
//! what a store survives there is true of the host.

use crate::SimDisk;
use stentor_io::{Disk, DiskError, DiskErrorKind, HostDisk};

macro_rules! contract {
    ($($case:ident)*) => {
        mod host {
            $(#[test] fn $case() { super::on_host(stringify!($case), super::$case); })*
        }

        mod simulator {
            $(#[test] fn $case() { super::$case(super::SimDisk::new(1)); })*
        }
    };
}

contract! {
    written_bytes_are_read_back
    writes_behind_the_end_leave_zeros
    created_file_replaces_the_old_one
    renamed_file_replaces_the_target
    recycled_file_keeps_its_bytes
    removed_file_is_readable_while_open
    shortened_file_ends_there
    file_has_the_time_of_its_last_write
    copies_are_the_same_disk
    missing_file_is_an_error
    file_without_room_is_not_created
}

/// Runs a case in a directory of its own.
pub(super) fn on_host(name: &str, case: impl FnOnce(HostDisk)) {
    let directory = format!("stentor-log-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(directory);
    case(HostDisk::open(&path, None).unwrap());
    std::fs::remove_dir_all(path).unwrap();
}

fn files<D: Disk>(disk: &D) -> Vec<(String, u64)> {
    let mut files = disk.list().unwrap();
    files.sort();
    files
}

fn named(files: &[(&str, u64)]) -> Vec<(String, u64)> {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
}

/// Up to 100 bytes of a file from `offset` on.
fn read<D: Disk>(disk: &D, file: &D::File, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; 100];
    let length = disk.read_at(file, offset, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// A file with these bytes.
fn file_of<D: Disk>(disk: &D, name: &str, bytes: &[u8]) -> D::File {
    let file = disk.create(name, 0).unwrap();
    disk.write_at(&file, 0, bytes).unwrap();
    file
}

fn written_bytes_are_read_back<D: Disk>(disk: D) {
    assert_eq!(files(&disk), []);
    let file = disk.create("a", 8_192).unwrap();
    disk.write_at(&file, 4_000, b"hello").unwrap();
    let shown = |file: &D::File| {
        assert_eq!(read(&disk, file, 3_999)[..8], *b"\0hello\0\0");
        assert_eq!(read(&disk, file, 8_190), [0; 2]);
        assert_eq!(read(&disk, file, 8_192), b"");
        assert_eq!(read(&disk, file, 9_000), b"");
    };
    shown(&file);
    disk.sync(&file).unwrap();
    disk.sync_dir().unwrap();
    shown(&file);
    shown(&disk.open("a").unwrap());
    assert_eq!(files(&disk), named(&[("a", 8_192)]));
    assert!(disk.free_bytes().unwrap() > 0);
}

fn writes_behind_the_end_leave_zeros<D: Disk>(disk: D) {
    let file = file_of(&disk, "a", b"x");
    disk.write_at(&file, 3, b"yz").unwrap();
    assert_eq!(read(&disk, &file, 0), *b"x\0\0yz");
    disk.write_at(&file, 4, b"!!!").unwrap();
    disk.write_at(&file, 90, b"").unwrap();
    assert_eq!(read(&disk, &file, 0), *b"x\0\0y!!!");
    assert_eq!(files(&disk), named(&[("a", 7)]));
}

fn created_file_replaces_the_old_one<D: Disk>(disk: D) {
    let old = file_of(&disk, "a", b"old");
    let new = disk.create("a", 2).unwrap();
    assert_eq!(files(&disk), named(&[("a", 2)]));
    disk.write_at(&old, 0, b"OLD").unwrap();
    assert_eq!((read(&disk, &new, 0), read(&disk, &old, 0)), (vec![0; 2], b"OLD".to_vec()));
    assert_eq!(read(&disk, &disk.open("a").unwrap(), 0), [0; 2]);
}

fn renamed_file_replaces_the_target<D: Disk>(disk: D) {
    let file = file_of(&disk, "a", b"one");
    let target = file_of(&disk, "b", b"other");
    disk.rename("a", "b").unwrap();
    assert_eq!(files(&disk), named(&[("b", 3)]));
    disk.write_at(&file, 0, b"O").unwrap();
    assert_eq!(read(&disk, &disk.open("b").unwrap(), 0), b"One");
    assert_eq!(read(&disk, &target, 0), b"other");
    disk.rename("b", "b").unwrap();
    assert_eq!(files(&disk), named(&[("b", 3)]));
}

/// A segment of a log may have been used before. Its reader must tell the old bytes apart.
fn recycled_file_keeps_its_bytes<D: Disk>(disk: D) {
    let segment = disk.create("segment", 6).unwrap();
    disk.write_at(&segment, 0, b"before").unwrap();
    disk.rename("segment", "spare").unwrap();
    disk.rename("spare", "next").unwrap();
    let next = disk.open("next").unwrap();
    disk.write_at(&next, 0, b"new").unwrap();
    disk.sync(&next).unwrap();
    disk.sync_dir().unwrap();
    assert_eq!((read(&disk, &next, 0), files(&disk)), (b"newore".into(), named(&[("next", 6)])));
}

fn removed_file_is_readable_while_open<D: Disk>(disk: D) {
    let file = file_of(&disk, "a", b"hello");
    disk.remove("a").unwrap();
    assert_eq!(files(&disk), []);
    disk.write_at(&file, 5, b"!").unwrap();
    disk.sync(&file).unwrap();
    assert_eq!(read(&disk, &file, 0), b"hello!");
    assert!(disk.open("a").is_err());
}

fn shortened_file_ends_there<D: Disk>(disk: D) {
    let file = file_of(&disk, "a", b"hello");
    disk.shorten(&file, 2).unwrap();
    assert_eq!((read(&disk, &file, 0), files(&disk)), (b"he".into(), named(&[("a", 2)])));
    // The bytes that were cut off do not come back.
    disk.write_at(&file, 4, b"!").unwrap();
    assert_eq!(read(&disk, &file, 0), b"he\0\0!");
    disk.shorten(&file, 7).unwrap();
    assert_eq!(read(&disk, &file, 0), b"he\0\0!\0\0");
}

fn file_has_the_time_of_its_last_write<D: Disk>(disk: D) {
    let file = file_of(&disk, "a", b"hello");
    let written = disk.time(&file).unwrap();
    assert!(written > 1_000_000_000);
    disk.set_time(&file, 1_000_000_000).unwrap();
    disk.sync(&file).unwrap();
    disk.rename("a", "b").unwrap();
    assert_eq!(disk.time(&disk.open("b").unwrap()).unwrap(), 1_000_000_000);
    disk.write_at(&file, 0, b"H").unwrap();
    assert!(disk.time(&file).unwrap() >= written);
}

fn copies_are_the_same_disk<D: Disk>(disk: D) {
    let copy = disk.clone();
    let file = file_of(&disk, "a", b"hello");
    assert_eq!(read(&copy, &copy.open("a").unwrap(), 0), b"hello");
    copy.remove("a").unwrap();
    assert_eq!((files(&disk), read(&copy, &file, 0)), (vec![], b"hello".into()));
}

fn missing_file_is_an_error<D: Disk>(disk: D) {
    drop(file_of(&disk, "a", b"hello"));
    let tried = |tried: &str, error: DiskError| {
        assert_eq!((error.kind, error.tried), (DiskErrorKind::Failed, tried));
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot {tried} ")) && text.contains("none: "), "{text}");
    };
    tried("open", disk.open("none").err().unwrap());
    tried("rename", disk.rename("none", "a").unwrap_err());
    tried("remove", disk.remove("none").unwrap_err());
    assert_eq!(files(&disk), named(&[("a", 5)]));
}

fn file_without_room_is_not_created<D: Disk>(disk: D) {
    // More than any file system has.
    let error = disk.create("a", 1 << 60).err().unwrap();
    assert!(error.to_string().starts_with("cannot make room for "), "{error}");
    assert_eq!(files(&disk), []);
}
