//! What stays of a store when single calls of the disk fail, or a caller asks for too much.

use super::contract::{begin, push, read_replaced, recovered};
use super::life::EPOCH;
use crate::{DiskFaults, SimDisk, replace};
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
