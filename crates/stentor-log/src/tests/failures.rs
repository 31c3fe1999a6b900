//! A store survives single calls of the disk that fail, and callers that ask for too much.

use super::contract::{SETTINGS, begin, numbers, push, read_replaced, recovered};
use super::life::EPOCH;
use crate::frame::ENTRY_BYTES_MAX;
use crate::head::LOST_MAX;
use crate::{DiskFaults, PushError, Recovered, SimDisk, Store, replace};
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

/// A head has no room for more ranges, so no start could read the next segment.
#[test]
fn a_closed_store_has_a_bounded_number_of_lost_ranges() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    store.note(10);
    let closed = store.close().unwrap().to_bytes();
    for (ranges, is_taken) in [(LOST_MAX, true), (LOST_MAX + 1, false)] {
        let mut bytes = closed.clone();
        bytes[72..80].copy_from_slice(&(ranges as u64).to_le_bytes());
        let lost = (1..=ranges as u64).flat_map(|n| [10 * n, 10 * n + 5]);
        let lost: Vec<u8> = lost.flat_map(u64::to_le_bytes).collect();
        bytes.splice(80..80, lost);
        let taken = Recovered::from_bytes(disk.clone(), &bytes);
        assert_eq!(taken.is_ok(), is_taken, "{ranges}");
        if let Ok(taken) = taken {
            let store = Store::begin(taken, SETTINGS, EPOCH);
            assert_eq!(store.refusal(), None);
            drop(store);
            assert_eq!(recovered(&disk).0.lost.len(), ranges);
        }
    }
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
