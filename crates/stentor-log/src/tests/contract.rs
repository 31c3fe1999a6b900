//! What a store says and does, one thing at a time.

use super::disks::on_host;
use super::life::{EPOCH, sample};
use super::oracle::read;
use crate::head::{LOST_MAX, add_lost};
use crate::{
    DiskFaults, OpenError, Piece, PushError, Recovered, Recovery, Settings, SimDisk,
    SnapshotDecoder, SnapshotEncoder, Store, backup, during_syncs, import, open_replaced, repair,
    replace,
};
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use stentor_io::{Disk, DiskError, DiskErrorKind};

pub(super) const SETTINGS: Settings =
    Settings { segment_bytes: 1_000, buffer_bytes: 300, log_bytes_min: 3_000, reserve: 50 };

pub(super) fn recovered<D: Disk>(disk: &D) -> (Recovered<D>, Vec<(u64, Vec<u8>)>) {
    let mut entries = Vec::new();
    let recovered = Recovery::open(disk.clone()).unwrap().read(&mut |piece, _| {
        if let Piece::Entry(seq, entry) = piece {
            entries.push((seq, entry.to_vec()));
        }
        Ok(())
    });
    (recovered.unwrap(), entries)
}

pub(super) fn begin<D: Disk>(disk: &D) -> Store<D> {
    Store::begin(recovered(disk).0, SETTINGS, EPOCH)
}

pub(super) fn push<D: Disk>(store: &mut Store<D>, seq: u64) -> Result<(), PushError> {
    store.push(seq, |out| out.extend_from_slice(&[seq as u8; 50]))
}

/// Pushes these numbers, and brings each to the disk before the next.
pub(super) fn sync_each<D: Disk>(store: &mut Store<D>, numbers: RangeInclusive<u64>) {
    for seq in numbers {
        push(store, seq).unwrap();
        store.sync().unwrap();
    }
}

pub(super) fn numbers(entries: &[(u64, Vec<u8>)]) -> Vec<u64> {
    entries.iter().map(|(seq, _)| *seq).collect()
}

fn lost(ranges: &[RangeInclusive<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (*range.start(), *range.end())).collect()
}

/// A store that has synced number 1.
fn begin_with_one(disk: &SimDisk) -> Store<SimDisk> {
    let mut store = begin(disk);
    push(&mut store, 1).unwrap();
    store.sync().unwrap();
    store
}

#[test]
fn what_cannot_be_kept_is_refused_and_changes_nothing() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    assert_eq!(store.reserved(), 50);
    assert_eq!(push(&mut store, 51), Err(PushError::NotReserved));
    push(&mut store, 10).unwrap();
    assert_eq!(push(&mut store, 9), Err(PushError::OutOfOrder));
    // What takes no number has that of the one before.
    push(&mut store, 10).unwrap();
    (11..20).find_map(|seq| push(&mut store, seq).err()).unwrap();
    assert!(store.is_full());
    let full = store.written();
    assert_eq!((push(&mut store, 20), full), (Err(PushError::Full), 0));
    store.write().unwrap();
    assert_eq!((store.written(), store.synced()), (12, 0));
    assert!(store.is_full(), "what is not on the disk stays in the buffer");
    store.sync().unwrap();
    assert_eq!((store.written(), store.synced(), store.is_full()), (12, 12, false));
    assert_eq!(numbers(&recovered(&disk).1), [10, 10, 11, 12]);
}

#[test]
fn a_full_disk_is_noticed_while_there_is_room_for_what_is_under_way() {
    let disk = SimDisk::new(1);
    disk.set_capacity(1_500);
    let mut store = begin(&disk);
    let refusal = store.refusal().unwrap();
    assert_eq!(refusal.kind, DiskErrorKind::Full);
    assert!(refusal.to_string().contains("spare-"), "{refusal}");
    push(&mut store, 1).unwrap();
    store.sync().unwrap();
    assert_eq!(store.synced(), 1);
    assert_eq!(store.retry().unwrap_err().kind, DiskErrorKind::Full);
    disk.set_capacity(2_040);
    store.retry().unwrap();
    assert_eq!(store.refusal(), None);
}

#[test]
fn a_store_begins_on_a_full_disk_and_takes_nothing_until_there_is_room() {
    let disk = SimDisk::new(1);
    let store = begin_with_one(&disk);
    drop(store);
    disk.set_capacity(0);
    let mut store = begin(&disk);
    assert!(!store.has_begun());
    assert_eq!(store.refusal().unwrap().kind, DiskErrorKind::Full);
    assert_eq!(push(&mut store, 52), Err(PushError::NotReserved));
    assert!(store.retry().is_err());
    disk.set_capacity(u64::MAX);
    store.retry().unwrap();
    assert!(store.has_begun() && store.refusal().is_none());
    push(&mut store, 52).unwrap();
    store.sync().unwrap();
    assert_eq!(numbers(&recovered(&disk).1), [1, 52]);
}

#[test]
fn a_disk_that_failed_and_came_back_is_gone_on_with() {
    let faults = [
        DiskFaults { write_percent: 100, ..DiskFaults::default() },
        DiskFaults { sync_percent: 100, ..DiskFaults::default() },
    ];
    for faults in faults {
        let disk = SimDisk::new(1);
        let mut store = begin_with_one(&disk);
        push(&mut store, 2).unwrap();
        store.write().unwrap();
        disk.set_faults(faults);
        push(&mut store, 3).unwrap();
        let error = store.sync().unwrap_err();
        assert_eq!(store.refusal(), Some(&error));
        // What is under way is kept, and nothing more is tried in that place.
        push(&mut store, 4).unwrap();
        assert_eq!((store.sync(), store.synced()), (Err(error), 1));
        assert!(store.retry().is_err() && store.refusal().is_some());
        disk.set_faults(DiskFaults::default());
        assert!(store.sync().is_err(), "nobody asked for another try");
        store.retry().unwrap();
        assert_eq!((store.refusal(), store.synced()), (None, 4));
        disk.cut_power();
        assert_eq!(numbers(&recovered(&disk).1), [1, 2, 3, 4]);
    }
}

#[test]
fn tries_that_fail_leave_no_files_behind() {
    let none = DiskFaults::default();
    for faults in [
        DiskFaults { write_percent: 100, ..none },
        DiskFaults { sync_percent: 100, ..none },
        DiskFaults { names_percent: 100, ..none },
    ] {
        let disk = SimDisk::new(1);
        let mut store = begin(&disk);
        push(&mut store, 1).unwrap();
        disk.set_faults(DiskFaults { sync_percent: 100, ..none });
        store.sync().unwrap_err();
        disk.set_faults(faults);
        assert!((0..100).all(|_| store.retry().is_err()));
        let left = disk.list().unwrap();
        assert!(left.len() <= 5, "{faults:?}: {left:?}");
        disk.set_faults(none);
        store.retry().unwrap();
        assert_eq!(store.synced(), 1);
    }
}

#[test]
fn an_entry_may_be_longer_than_a_segment() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    push(&mut store, 1).unwrap();
    store.push(2, |out| out.extend_from_slice(&[2; 5_000])).unwrap();
    assert!(store.is_full());
    store.sync().unwrap();
    push(&mut store, 3).unwrap();
    store.close().unwrap();
    let (_, entries) = recovered(&disk);
    assert_eq!(numbers(&entries), [1, 2, 3]);
    assert_eq!(entries[1].1, [2; 5_000]);
}

#[test]
fn a_store_that_cannot_be_closed_is_gone_on_with() {
    let none = DiskFaults::default();
    for (faults, is_written) in [
        (DiskFaults { write_percent: 100, ..none }, false),
        (DiskFaults { sync_percent: 100, ..none }, true),
    ] {
        // The mark is written, or not.
        let disk = SimDisk::new(1);
        let mut store = begin(&disk);
        sync_each(&mut store, 1..=3);
        disk.set_faults(faults);
        store.close().unwrap_err();
        // The end may stand there: what is given out now could be given out again.
        assert_eq!((store.is_broken(), store.reserved()), (false, 3));
        assert_eq!(push(&mut store, 4), Err(PushError::NotReserved));
        let copy = disk.clone();
        disk.set_faults(none);
        assert!(is_written || !recovered(&copy).0.was_closed);
        store.witness().unwrap();
        sync_each(&mut store, 4..=6);
        disk.kill();
        let (found, entries) = recovered(&disk);
        assert_eq!((found.was_closed, numbers(&entries)), (false, vec![1, 2, 3, 4, 5, 6]));
    }
}

#[test]
fn numbers_go_on_behind_a_stop_and_jump_behind_a_crash() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    push(&mut store, 1).unwrap();
    store.note(3);
    store.close().unwrap();
    let (first, _) = recovered(&disk);
    assert!(first.was_closed && first.epoch == Some(EPOCH));
    assert_eq!((first.stored, first.last, lost(&first.lost)), (1, 3, vec![]));
    let mut store = Store::begin(first, SETTINGS, 0);
    push(&mut store, 4).unwrap();
    store.sync().unwrap();
    assert_eq!((store.epoch(), store.reserved()), (EPOCH, 54));
    push(&mut store, 5).unwrap();
    drop(store);
    disk.kill();
    let (second, _) = recovered(&disk);
    assert_eq!((second.stored, second.last, lost(&second.lost)), (4, 54, vec![(5, 54)]));
    // Two crashes in a row are one range.
    drop(Store::begin(second, SETTINGS, 0));
    let (third, _) = recovered(&disk);
    assert_eq!((third.stored, third.last, lost(&third.lost)), (54, 104, vec![(5, 104)]));
    let mut store = Store::begin(third, SETTINGS, 0);
    push(&mut store, 105).unwrap();
    store.close().unwrap();
    let (fourth, entries) = recovered(&disk);
    assert_eq!((fourth.last, lost(&fourth.lost)), (105, vec![(5, 104)]));
    assert_eq!(numbers(&entries), [1, 4, 105]);
}

#[test]
fn numbers_are_reserved_before_they_run_out() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    store.witness().unwrap();
    let quiet = disk.image();
    store.witness().unwrap();
    assert_eq!(disk.image(), quiet, "a witness of nothing");
    // Numbers of what is not to be stored run out, too.
    store.note(40);
    assert_eq!((store.synced(), store.reserved()), (40, 50));
    store.witness().unwrap();
    assert_eq!(store.reserved(), 90);
    push(&mut store, 90).unwrap();
    // A number that comes behind the last frame reserves none.
    store.write().unwrap();
    store.note(100);
    store.sync().unwrap();
    assert_eq!((store.reserved(), recovered(&disk).0.last), (140, 140));
}

#[test]
fn lost_ranges_are_bounded_and_none_is_forgotten() {
    let mut ranges = Vec::new();
    for i in 0..2 * LOST_MAX as u64 {
        add_lost(&mut ranges, 10 * i + 1..=10 * i + 5);
    }
    assert_eq!(ranges.len(), LOST_MAX);
    for i in 0..2 * LOST_MAX as u64 {
        assert!(ranges.iter().any(|range| range.contains(&(10 * i + 3))), "{i}");
    }
    assert!(ranges.contains(&(5_111..=5_115)), "the newest is as it was");
}

#[test]
fn snapshots_bound_the_disk_and_files_are_written_over() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    let (mut seq, mut snapshots, mut most) = (0, 0, 0);
    let mut live = 0;
    for _ in 0..500 {
        seq += 1;
        push(&mut store, seq).unwrap();
        store.sync().unwrap();
        if store.snapshot_is_due() {
            let mut writer = store.begin_snapshot().unwrap();
            for piece in [0; 2_000].chunks(200) {
                writer.payload(piece).unwrap();
                seq += 1;
                push(&mut store, seq).unwrap();
                store.sync().unwrap();
            }
            let snapshot = writer.end().unwrap();
            live = snapshot.bytes();
            assert!((2_000..3_000).contains(&live));
            let files = disk.image();
            most = most.max(files.iter().map(|(_, bytes)| bytes.len()).sum());
            store.adopt(snapshot).unwrap();
            snapshots += 1;
            let count = |word: &str| {
                disk.list().unwrap().iter().filter(|(name, _)| name.starts_with(word)).count()
            };
            assert_eq!((count("snapshot"), count("spare") <= 3), (1, true));
        }
    }
    assert!(snapshots > 5, "{snapshots}");
    let bound = 4 * live + SETTINGS.log_bytes_min + 2 * SETTINGS.segment_bytes;
    assert!(most as u64 <= bound, "{most}, not {bound}");
    drop(store);
    let (recovered, entries) = recovered(&disk);
    let last = entries.last().unwrap().0;
    assert_eq!((recovered.stored, last), (seq, seq));
}

#[test]
fn many_starts_with_little_in_between_do_not_fill_the_disk() {
    let disk = SimDisk::new(1);
    let mut snapshots = 0;
    for round in 0..40 {
        let recovered = recovered(&disk).0;
        let seq = recovered.last + 1;
        let mut store = Store::begin(recovered, SETTINGS, EPOCH);
        push(&mut store, seq).unwrap();
        store.sync().unwrap();
        if store.snapshot_is_due() {
            let writer = store.begin_snapshot().unwrap();
            let snapshot = writer.end().unwrap();
            store.adopt(snapshot).unwrap();
            snapshots += 1;
        }
        let taken: u64 = disk.list().unwrap().iter().map(|(_, bytes)| bytes).sum();
        let bound = SETTINGS.log_bytes_min + 4 * SETTINGS.segment_bytes;
        assert!(taken <= bound, "{taken}, not {bound}");
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
    assert!(snapshots > 5, "{snapshots}");
}

#[test]
fn starts_that_come_to_nothing_take_no_room() {
    let disk = SimDisk::new(1);
    let taken = || disk.list().unwrap().iter().map(|(_, bytes)| bytes).sum::<u64>();
    let files = || disk.list().unwrap().len();
    let store = begin_with_one(&disk);
    drop(store);
    // None gets as far as a snapshot. Some end before their first frame, some are closed, and some
    // have a frame without entries that the next one vouches for.
    let mut most = 0;
    for round in 0..60 {
        let mut store = begin(&disk);
        if round % 4 < 2 {
            store.witness().unwrap();
        }
        if round % 2 == 0 {
            store.close().unwrap();
        }
        most = most.max(taken());
        assert!(files() <= 6, "{:?}", disk.list());
    }
    assert!(most < 4 * SETTINGS.segment_bytes, "{most}");
    let (found, entries) = recovered(&disk);
    assert_eq!(numbers(&entries), [1]);
    assert!(lost(&found.lost).first().is_some_and(|(first, _)| *first == 2));
    // With an entry in each, it is the entries that take room.
    let before = taken();
    for _ in 0..20 {
        let found = recovered(&disk).0;
        let seq = found.last + 1;
        let mut store = Store::begin(found, SETTINGS, EPOCH);
        push(&mut store, seq).unwrap();
        store.sync().unwrap();
    }
    assert_eq!(recovered(&disk).1.len(), 21);
    assert!(taken() < before + 20 * SETTINGS.segment_bytes / 2, "{} {before}", taken());
}

#[test]
fn a_snapshot_that_fails_leaves_everything_as_it_was() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=9);
    let mut writer = store.begin_snapshot().unwrap();
    disk.set_faults(DiskFaults { write_percent: 100, ..DiskFaults::default() });
    assert!(writer.payload(b"value").is_err());
    disk.set_faults(DiskFaults::default());
    writer.give_up();
    let writer = store.begin_snapshot().unwrap();
    let snapshot = writer.end().unwrap();
    disk.set_faults(DiskFaults { names_percent: 100, ..DiskFaults::default() });
    assert!(store.adopt(snapshot).is_err());
    disk.set_faults(DiskFaults::default());
    assert_eq!(store.refusal(), None);
    push(&mut store, 10).unwrap();
    store.sync().unwrap();
    let writer = store.begin_snapshot().unwrap();
    let snapshot = writer.end().unwrap();
    store.adopt(snapshot).unwrap();
    assert!(numbers(&recovered(&disk).1).is_empty(), "the snapshot shows all");
}

#[test]
fn what_a_snapshot_of_another_life_makes_superfluous_stays() {
    let mut seen = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let mut store = begin_with_one(&disk);
        let snapshot = store.begin_snapshot().unwrap().end().unwrap();
        disk.set_faults(DiskFaults { names_percent: 100, ..DiskFaults::default() });
        assert!(store.adopt(snapshot).is_err());
        disk.set_faults(DiskFaults::default());
        drop(store);
        let has = |word: &str| disk.list().unwrap().iter().any(|(name, _)| name.starts_with(word));
        if has("snapshot-000000000002") && !has("snapshot-000000000002.tmp") {
            // It has its name in the kernel, and perhaps nowhere else.
            seen += 1;
            let mut store = begin(&disk);
            assert!(has("log-000000000001"), "what the disk may need is gone");
            assert!(store.log_bytes() > SETTINGS.segment_bytes, "it counts until it is removed");
            let snapshot = store.begin_snapshot().unwrap().end().unwrap();
            store.adopt(snapshot).unwrap();
            assert!(!has("log-000000000001"));
            assert!(store.log_bytes() < SETTINGS.segment_bytes);
        }
    }
    assert!(seen > 3);
}

#[test]
fn a_copy_of_a_store_in_use_is_a_store() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=40);
    let copy = SimDisk::new(2);
    backup(Recovery::open_in_use(disk.clone()).unwrap(), &copy, 77).unwrap();
    let (of_copy, entries) = recovered(&copy);
    assert_eq!(numbers(&entries), (1..=40).collect::<Vec<_>>());
    assert_eq!((of_copy.epoch, of_copy.was_closed), (Some(77), true));
    // It is a store like any other, and nothing is copied over one.
    assert_eq!(Recovery::open(copy.clone()).unwrap().continued_epoch(), None);
    let mut store = begin(&copy);
    assert_eq!(store.epoch(), EPOCH, "a life of its own: other copies may be started too");
    let next = of_copy.last + 1;
    push(&mut store, next).unwrap();
    store.close().unwrap();
    assert_eq!(recovered(&copy).0.last, next);
    assert_eq!(Recovery::open(copy.clone()).unwrap().continued_epoch(), Some(EPOCH));
    assert_eq!(Store::begin(recovered(&copy).0, SETTINGS, 5).epoch(), EPOCH, "and it goes on");
    let error = backup(Recovery::open_in_use(disk).unwrap(), &copy, 1).unwrap_err();
    assert!(error.to_string().contains("there is one already"), "{error}");
}

#[test]
fn a_snapshot_that_cannot_be_ended_leaves_nothing() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=3);
    for faults in [
        DiskFaults { write_percent: 100, ..DiskFaults::default() },
        DiskFaults { sync_percent: 100, ..DiskFaults::default() },
    ] {
        let snapshot = store.begin_snapshot().unwrap();
        disk.set_faults(faults);
        snapshot.end().unwrap_err();
        disk.set_faults(DiskFaults::default());
        let names = disk.list().unwrap();
        assert!(names.iter().all(|(name, _)| !name.starts_with("snapshot-")), "{names:?}");
    }
}

#[test]
fn no_snapshot_is_begun_that_has_no_room() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    sync_each(&mut store, 1..=3);
    let mut snapshot = store.begin_snapshot().unwrap();
    snapshot.payload(&[1; 2_000]).unwrap();
    let snapshot = snapshot.end().unwrap();
    store.adopt(snapshot).unwrap();
    let taken = |disk: &SimDisk| disk.list().unwrap().iter().map(|file| file.1).sum::<u64>();
    disk.set_capacity(taken(&disk) + 1_500);
    store.begin_snapshot().expect("there is a reserve").give_up();
    let before = taken(&disk);
    disk.set_capacity(before + 1_500);
    let error = store.begin_snapshot().err().unwrap();
    assert_eq!(error.kind, DiskErrorKind::Full);
    assert_eq!(taken(&disk), before, "nothing was begun");
    assert_eq!(store.refusal(), None, "the log goes on");
}

#[test]
fn of_a_long_piece_nothing_is_shown_without_its_beginning() {
    let disk = SimDisk::new(1);
    import(&disk, 3, |writer| {
        for piece in [1, 2, 3] {
            writer.payload(&[piece; 2_000])?;
        }
        Ok(0)
    })
    .unwrap();
    let shown = |disk: &SimDisk| {
        let mut shown = Vec::new();
        let recovered = Recovery::open(disk.clone()).unwrap().read(&mut |piece, _| {
            shown.push(match piece {
                Piece::Payload(bytes) => ('p', bytes[0], bytes.len()),
                Piece::Rest(bytes) => ('r', bytes[0], bytes.len()),
                Piece::Hole => ('h', 0, 0),
                Piece::Entry(..) => unreachable!(),
            });
            Ok(())
        });
        recovered.unwrap();
        shown
    };
    let long = |n: u8| [('p', n, 900), ('r', n, 900), ('r', n, 200)];
    assert_eq!(shown(&disk), [long(1), long(2), long(3)].concat());
    // The first frame of the second, then the one behind it.
    for (bad, left) in [(0, &[][..]), (1, &[('p', 2, 900)][..])] {
        let mut image = disk.image();
        let bytes = &mut image[0].1;
        let second = bytes.windows(8).position(|bytes| bytes == [2; 8]).unwrap();
        bytes[second + bad * 950] ^= 1;
        let disk = SimDisk::of(1, &image);
        assert!(!repair(&disk, 7).unwrap().is_empty());
        let expected = [&long(1)[..], left, &[('h', 0, 0)], &long(3)].concat();
        assert_eq!(shown(&disk), expected, "frame {bad}");
    }
}

#[test]
fn what_is_exported_can_be_imported() {
    let (disk, _) = sample();
    let mut pieces: Vec<(Option<u64>, Vec<u8>)> = Vec::new();
    let export = Recovery::open(disk).unwrap().read(&mut |piece, _| {
        match piece {
            Piece::Payload(bytes) | Piece::Rest(bytes) => pieces.push((None, bytes.to_vec())),
            Piece::Entry(seq, entry) => pieces.push((Some(seq), entry.to_vec())),
            Piece::Hole => unreachable!(),
        }
        Ok(())
    });
    let last = export.unwrap().last;
    let copy = SimDisk::new(2);
    let fill = |writer: &mut crate::SnapshotWriter<SimDisk>| {
        for (seq, bytes) in &pieces {
            match seq {
                Some(seq) => writer.entry(*seq, bytes)?,
                None => writer.payload(bytes)?,
            }
        }
        Ok(last)
    };
    import(&copy, 3, fill).unwrap();
    let (imported, shown) = read(&copy).unwrap();
    assert_eq!((imported.epoch, imported.last), (Some(3), last));
    assert_eq!(shown.entries.len(), pieces.iter().filter(|(seq, _)| seq.is_some()).count());
    let unsorted = import(&SimDisk::new(1), 3, |writer| {
        writer.entry(2, b"b")?;
        writer.entry(1, b"a")?;
        Ok(2)
    });
    assert!(unsorted.unwrap_err().to_string().contains("below the one before"));
}

/// The bytes of what was put into a directory last.
pub(super) fn read_replaced(disk: &SimDisk) -> Vec<u8> {
    let Some((file, bytes)) = open_replaced(disk).unwrap() else { return Vec::new() };
    let mut all = vec![0; bytes as usize];
    assert_eq!(disk.read_at(&file, 0, &mut all).unwrap(), all.len());
    all
}

#[test]
fn what_is_replaced_is_the_old_or_the_new_whatever_fails() {
    let put = |disk: &SimDisk, n: u64| {
        replace::<_, DiskError>(disk, (EPOCH, n, vec![2..=3]), |writer| {
            (0..n).try_for_each(|_| writer.payload(&[7; 200]))?;
            writer.entry(n + 1, b"behind").map(|()| n + 4)
        })
    };
    let expected = |n: u64| {
        let mut bytes = Vec::new();
        let mut encoder = SnapshotEncoder::begin(EPOCH, n, vec![2..=3], &mut bytes);
        (0..n).for_each(|_| encoder.payload(&[7; 200], &mut bytes));
        encoder.entries([(n + 1, &b"behind"[..])].into_iter(), &mut bytes);
        encoder.end(n + 4, &mut bytes);
        bytes
    };
    let (mut old, mut new) = (0, 0);
    for calls in 0..60 {
        let disk = SimDisk::new(calls);
        assert!(read_replaced(&disk).is_empty());
        put(&disk, 5).unwrap();
        assert_eq!(read_replaced(&disk), expected(5), "as it would be sent");
        disk.cut_power_after(calls);
        let is_put = put(&disk, 9).is_ok();
        disk.cut_power();
        match read_replaced(&disk) {
            bytes if bytes == expected(9) => new += 1,
            bytes if bytes == expected(5) && !is_put => old += 1,
            bytes => panic!("{calls}: {} bytes", bytes.len()),
        }
    }
    assert!(old > 3 && new > 3, "{old} {new}");
    let mut decoder = SnapshotDecoder::new(1_000);
    decoder.read(&expected(5), &mut |_| Ok(())).unwrap();
    assert_eq!(decoder.ended(), Some(9));
}

#[test]
fn what_belongs_to_another_store_is_not_replaced() {
    let disk = SimDisk::new(1);
    sync_each(&mut begin(&disk), 1..=3);
    let names = disk.list().unwrap();
    let refusal = replace::<_, DiskError>(&disk, (EPOCH, 1, Vec::new()), |_| Ok(1));
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("it is of another store"), "{refusal}");
    assert!(open_replaced(&disk).is_err());
    assert_eq!(disk.list().unwrap(), names);
}

#[test]
fn a_torn_tail_is_told_and_left_out() {
    let disk = SimDisk::new(1);
    let mut store = begin_with_one(&disk);
    push(&mut store, 2).unwrap();
    store.write().unwrap();
    let mut image = disk.image();
    let (_, bytes) = image.iter_mut().find(|(name, _)| name.starts_with("log-")).unwrap();
    let at = bytes.iter().rposition(|byte| *byte == 2).unwrap();
    bytes[at] = 0;
    let (recovered, entries) = recovered(&SimDisk::of(1, &image));
    assert_eq!(numbers(&entries), [1]);
    assert_eq!(recovered.torn, Some(("log-000000000001".to_owned(), 80 + 40 + 66)));
    assert_eq!(lost(&recovered.lost), [(2, 51)]);
}

#[test]
fn a_store_in_use_is_read_as_far_as_it_is_written() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    let read = |disk: &SimDisk| {
        let mut found = Vec::new();
        let recovery = Recovery::open_in_use(disk.clone())?;
        recovery.read(&mut |piece, _| {
            if let Piece::Entry(seq, _) = piece {
                found.push(seq);
            }
            Ok(())
        })?;
        Ok::<_, OpenError>(found)
    };
    for seq in 1..=60 {
        push(&mut store, seq).unwrap();
        if seq % 3 == 0 { store.sync() } else { store.write() }.unwrap();
        assert_eq!(read(&disk).unwrap(), (1..=seq).collect::<Vec<_>>());
    }
    // A frame that was there, and is none now, is no end.
    store.witness().unwrap();
    let mut image = disk.image();
    let newest = image.iter_mut().filter(|(name, _)| name.starts_with("log-")).max().unwrap();
    let at = newest.1.iter().rposition(|byte| *byte == 60).unwrap();
    newest.1[at] ^= 1;
    let error = read(&SimDisk::of(1, &image)).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
}

#[test]
fn what_is_not_taken_is_told_with_its_place() {
    let (disk, _) = sample();
    let mut bytes = 0;
    let refused = Recovery::open(disk).unwrap().read(&mut |piece, progress| {
        bytes = progress.read;
        match piece {
            Piece::Entry(..) if bytes > progress.total / 2 => Err("It is no entry.".into()),
            _ => Ok(()),
        }
    });
    let Err(OpenError::Refused { file, offset, reason }) = refused else { panic!("it was taken") };
    assert!(file.starts_with("log-") && offset >= 80 && reason == "It is no entry.");
}

#[test]
fn the_format_is_as_documented() {
    let disk = SimDisk::new(1);
    let mut store = begin(&disk);
    store.push(7, |out| out.extend_from_slice(b"entry")).unwrap();
    store.sync().unwrap();
    let (name, bytes) = disk.image().swap_remove(0);
    assert_eq!((name.as_str(), bytes.len()), ("log-000000000001", 1_000));
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(bytes[..16], *b"stentorS\x01\0\0\0\x50\0\0\0");
    assert_eq!(bytes[24..32], [1, 0, 0, 0, 0xc1, 0x09, 0x3a, 0x5f]);
    assert_eq!([32, 40, 48, 56, 64, 72].map(number), [1, 1_000, 0, 0, 0, 50]);
    assert_eq!(bytes[88..96], *b"\xf5SFE\x15\0\0\0");
    assert_eq!([96, 104, 112].map(number), [1, 80, 57]);
    assert_eq!(bytes[124..128], [5, 0, 0, 0]);
    assert_eq!((number(128), &bytes[136..141]), (7, b"entry".as_slice()));
    // XXH3-64 with seeds: the version, and where the frame is.
    assert_eq!([16, 80].map(number), [14_862_313_458_419_107_816, 2_945_710_416_569_759_656]);
}

#[test]
fn a_store_is_kept_in_a_real_directory() {
    on_host("whole", |disk| {
        let mut store = begin(&disk);
        sync_each(&mut store, 1..=20);
        let snapshot = store.begin_snapshot().unwrap().end().unwrap();
        store.adopt(snapshot).unwrap();
        sync_each(&mut store, 21..=45);
        store.close().unwrap();
        let (recovered, entries) = recovered(&disk);
        assert_eq!(numbers(&entries), (21..=45).collect::<Vec<_>>());
        assert_eq!((recovered.last, recovered.was_closed), (45, true));
    });
}

#[test]
fn a_short_log_needs_no_snapshot() {
    let mut store = begin(&SimDisk::new(1));
    push(&mut store, 1).unwrap();
    store.sync().unwrap();
    assert!(!store.snapshot_is_due());
}

/// Else the kernel gathers a whole snapshot, and the log waits for the sync of that.
#[test]
fn a_snapshot_is_synced_while_it_is_written() {
    let disk = SimDisk::new(1);
    let mut store = begin_with_one(&disk);
    let mut writer = store.begin_snapshot().unwrap();
    let syncs = Rc::new(Cell::new(0));
    let count = Rc::clone(&syncs);
    during_syncs(
        move || count.set(count.get() + 1),
        || (0..10).for_each(|_| writer.payload(&[7; 290]).unwrap()),
    );
    assert_eq!(syncs.get(), 10);
}
