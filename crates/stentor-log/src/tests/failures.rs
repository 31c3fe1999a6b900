//! A store survives single calls of the disk that fail, and callers that ask for too much.

use super::contract::{SETTINGS, begin, numbers, push, read_replaced, recovered, sync_each};
use super::life::EPOCH;
use crate::frame::{self, ENTRY_BYTES_MAX, FRAME_BYTES, Kind, Spot};
use crate::head;
use crate::{DiskFaults, PushError, Recovery, SimDisk, Store, Tip, replace};
use std::collections::BTreeSet;
use stentor_io::{Disk, DiskError};

/// Not the power goes, but single calls fail, among them the removal of the unfinished file.
#[test]
fn a_failed_replacement_leaves_the_old_file() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let put = |n: u64, faults: DiskFaults, ends: bool| {
            replace::<_, DiskError>(&disk, (EPOCH, n, Vec::new()), |writer| {
                disk.set_faults(faults);
                writer.payload(&[7; 200])?;
                if ends { Ok(n) } else { disk.open("no such file").map(|_| n) }
            })
        };
        put(5, DiskFaults::default(), true).unwrap();
        let before = read_replaced(&disk);
        let names = DiskFaults { names_percent: 50, ..DiskFaults::default() };
        put(9, names, false).unwrap_err();
        disk.set_faults(DiskFaults::default());
        assert!(read_replaced(&disk) == before, "{seed}");
        let syncs = DiskFaults { names_percent: 50, sync_percent: 100, ..names };
        put(9, syncs, true).unwrap_err();
        disk.set_faults(DiskFaults::default());
        assert!(read_replaced(&disk) == before, "{seed}");
    }
}

/// The store removes the files that it renamed before a failed sync of the directory.
#[test]
fn failed_syncs_leave_no_spares_behind() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let mut store = begin(&disk);
        let mut seq = 0;
        for round in 0..8 {
            for _ in 0..40 {
                seq += 1;
                push(&mut store, seq).unwrap();
                store.sync().unwrap();
                store.retry().unwrap();
            }
            let snapshot = store.begin_snapshot().unwrap().end().unwrap();
            let names_percent = if round < 7 { 40 } else { 0 };
            disk.set_faults(DiskFaults { names_percent, ..DiskFaults::default() });
            let _ = store.adopt(snapshot);
            disk.set_faults(DiskFaults::default());
            store.retry().unwrap();
            store.witness().unwrap();
        }
        let files = disk.list().unwrap();
        let spares = files.iter().filter(|(name, _)| name.starts_with("spare-")).count();
        assert!(spares <= 3, "{seed}: {files:?}");
        drop(store);
        let (recovered, _) = recovered(&disk);
        assert_eq!(recovered.stored, seq, "{seed}");
    }
}

/// The other process has the entries; it reads heads alone.
#[test]
fn another_process_continues_behind_the_tip() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=3);
    let snapshot = store.begin_snapshot().unwrap().end().unwrap();
    store.adopt(snapshot).unwrap();
    sync_each(&mut store, 4..=6);
    push(&mut store, 7).unwrap();
    assert_eq!(store.tip(), None, "not everything is on the disk");
    store.sync().unwrap();
    let tip = store.tip().unwrap();
    assert_eq!((tip.last, tip.reserved), (7, store.reserved()));
    let continued = |image: &[(String, Vec<u8>)], tip| {
        Recovery::open(SimDisk::of(1, image)).and_then(|found| found.continue_at(tip)).map(drop)
    };
    let image = disk.image();
    continued(&image, tip).unwrap();
    let log = image.iter().position(|(name, _)| *name == head::name("log", tip.segment)).unwrap();
    let mut shorter = image.clone();
    shorter[log].1.truncate(tip.end as usize - 1);
    continued(&shorter, tip).unwrap_err();
    continued(&image, Tip { segment: tip.segment + 1, ..tip }).unwrap_err();
    continued(&image, Tip { end: 1, ..tip }).unwrap_err();
    // Numbers were given out before the other process has a segment.
    let recovered_here = Recovery::open(disk.clone()).unwrap().continue_at(tip).unwrap();
    disk.set_faults(DiskFaults { write_percent: 100, ..DiskFaults::default() });
    let mut next = Store::begin(recovered_here, SETTINGS, 0);
    assert_eq!((next.reserved(), next.is_broken(), next.last()), (tip.reserved, true, 7));
    push(&mut next, 8).unwrap();
    disk.set_faults(DiskFaults::default());
    next.retry().unwrap();
    disk.cut_power();
    let (found, entries) = recovered(&disk);
    assert_eq!(numbers(&entries), [4, 5, 6, 7, 8]);
    assert!(found.last >= tip.reserved);
}

/// The frame that the entry began is taken back as well.
#[test]
fn an_entry_that_is_too_long_adds_nothing() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    store.witness().unwrap();
    let before = disk.image();
    let too_long = |out: &mut Vec<u8>| out.resize(out.len() + ENTRY_BYTES_MAX + 1, 0);
    assert_eq!(store.push(1, too_long), Err(PushError::TooLong));
    store.sync().unwrap();
    assert!(disk.image() == before, "an empty frame was written");
    // The frame has an entry already.
    push(&mut store, 1).unwrap();
    assert_eq!(store.push(2, too_long), Err(PushError::TooLong));
    push(&mut store, 2).unwrap();
    store.sync().unwrap();
    drop(store);
    assert_eq!(numbers(&recovered(&disk).1), [1, 2]);
}

#[test]
fn superseded_segments_leave_the_account() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=60);
    assert!(store.snapshot_is_due());
    let snapshot = store.begin_snapshot().unwrap().end().unwrap();
    store.adopt(snapshot).unwrap();
    assert!(store.log_bytes() < SETTINGS.segment_bytes && !store.snapshot_is_due());
}

/// A power cut must not bring back the old name of a file that is written over.
#[test]
fn recycled_segments_have_their_names_on_the_disk() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let mut store = begin(&disk);
        sync_each(&mut store, 1..=40);
        let snapshot = store.begin_snapshot().unwrap().end().unwrap();
        store.adopt(snapshot).unwrap();
        let names = || BTreeSet::from_iter(disk.list().unwrap().into_iter().map(|(name, _)| name));
        let before = names();
        disk.cut_power();
        assert_eq!(names(), before, "{seed}");
    }
}

#[test]
fn a_frame_cannot_vouch_for_half_a_frame() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=2);
    let offset = store.log_bytes();
    drop(store);
    let mut frame = Vec::new();
    frame::begin(Kind::Entries, &mut frame);
    frame::put_record(3, &mut frame, |out| out.push(0));
    frame::seal(&mut frame, Spot { number: 1, offset }, offset - 1, 100);
    let file = disk.open("log-000000000001").unwrap();
    disk.write_at(&file, offset, &frame).unwrap();
    let read = Recovery::open(disk).unwrap().read(&mut |_, _| Ok(()));
    let error = read.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("a frame vouches for what is no frame"), "{error}");
}

/// Each byte of a damaged frame may claim to begin a long record. The search for records reads a
/// bounded number of bytes, so it passes over a record behind too many such claims.
#[test]
fn a_damaged_frame_is_searched_within_a_budget() {
    let spot = Spot { number: 1, offset: 0 };
    let records_behind = |claims: usize| {
        let mut frame = Vec::new();
        frame::begin(Kind::Entries, &mut frame);
        frame::put_record(7, &mut frame, |out| out.extend_from_slice(&[1; 100]));
        frame::seal(&mut frame, spot, 0, 0);
        let body = [&[0, 16, 0, 0].repeat(claims), &frame[FRAME_BYTES..]].concat();
        let mut records = 0;
        frame::salvage(&body, spot, |_, record| records += usize::from(record.is_some()));
        records
    };
    assert_eq!((records_behind(16), records_behind(16 << 10)), (1, 0));
}
