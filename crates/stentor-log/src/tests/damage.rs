//! Every bit that may flip, and every byte at which a file may be cut off: told, or harmless.

use super::life::{EPOCH, sample};
use super::oracle::{Change, Oracle, Shown, read};
use crate::{OpenError, Piece, Recovery, Settings, SimDisk, Store, check, repair};

type Image = Vec<(String, Vec<u8>)>;

/// What a reader of a store that was tampered with is told, if it is told anything.
fn told(image: &Image, changes: &[Change], how: &str) -> Option<OpenError> {
    let whole = Oracle { changes: changes.to_vec(), ..Oracle::default() };
    match read(&SimDisk::of(1, image)) {
        Ok((recovered, shown)) => {
            let count = whole.prefix(&shown).unwrap_or_else(|told| panic!("{how}: {told}"));
            assert_eq!(count, changes.len(), "{how}: silence");
            assert!(recovered.last >= changes[count - 1].seq, "{how}: numbers are used again");
            assert_eq!(recovered.epoch, Some(EPOCH), "{how}");
            None
        }
        Err(OpenError::Disk(error)) => panic!("{how}: {error}"),
        Err(error) => Some(error),
    }
}

/// Repairs a damaged store, and says what is there then.
fn repaired(image: &Image, how: &str) -> Result<Shown, OpenError> {
    let disk = SimDisk::of(1, image);
    let damages = repair(&disk, 7)?;
    assert!(!damages.is_empty(), "{how}: nothing is told");
    let (recovered, shown) = read(&disk).unwrap_or_else(|error| panic!("{how}: {error}"));
    assert_eq!(recovered.epoch, Some(7), "{how}: the epoch of before");
    assert!(recovered.was_closed && recovered.lost.is_empty());
    assert_eq!(check(disk.clone()).unwrap(), []);
    assert_eq!(repair(&disk, 8), Ok(Vec::new()), "{how}: repaired twice");
    Ok(shown)
}

#[test]
fn every_bit_that_flips_is_told_or_harmless() {
    let (disk, changes) = sample();
    let image = disk.image();
    let (_, whole) = read(&disk).unwrap();
    let (mut flips, mut damages) = (0, 0);
    for (file, (name, bytes)) in image.iter().enumerate() {
        for bit in 0..bytes.len() * 8 {
            let mut image = image.clone();
            image[file].1[bit / 8] ^= 1 << (bit % 8);
            let how = format!("{name}, bit {bit}");
            flips += 1;
            let Some(error) = told(&image, &changes, &how) else { continue };
            damages += 1;
            match (repaired(&image, &how), error) {
                (Ok(shown), OpenError::Damaged(damage)) => {
                    assert_eq!(damage.file, *name, "{how}");
                    let lost = whole.entries.iter().filter(|id| !shown.entries.contains(id));
                    let lost = lost.count();
                    assert!(lost + shown.holes <= 1, "{how}: {lost} are lost, {}", shown.holes);
                    assert!(shown.entries.is_sorted_by(|a, b| a < b), "{how}: something is twice");
                    let is_known = |id: &u64| changes.iter().any(|change| change.id == *id);
                    assert!(shown.entries.iter().all(is_known), "{how}: wrong data");
                }
                (found, error) => panic!("{how}: {error}, and then {found:?}"),
            }
        }
    }
    println!("{flips} bits, {damages} of which were told");
    assert!(damages > flips / 2);
}

#[test]
fn every_cut_is_told_or_harmless() {
    let (disk, changes) = sample();
    let image = disk.image();
    let mut cuts = 0;
    for (file, (name, bytes)) in image.iter().enumerate() {
        for length in 0..bytes.len() {
            let mut image = image.clone();
            image[file].1.truncate(length);
            let how = format!("{name}, cut at {length}");
            if told(&image, &changes, &how).is_some() {
                cuts += 1;
                repaired(&image, &how).unwrap();
            }
        }
        let mut image = image.clone();
        let (name, _) = image.remove(file);
        let is_needed = name.starts_with("log") || name.starts_with("snapshot");
        let told = told(&image, &changes, &format!("{name} is gone")).is_some();
        assert_eq!(told, is_needed, "{name}");
    }
    assert!(cuts > 1_000);
}

/// One sector becomes zero, or a few hundred bytes wherever they are, in a store that was closed or
/// killed right after its last sync.
#[test]
fn a_zeroed_sector_loses_nothing_without_a_word() {
    for is_closed in [true, false] {
        let disk = SimDisk::new(3);
        let (recovered, _) = read(&disk).unwrap();
        let settings = Settings { segment_bytes: 4_096, ..Settings::default() };
        let mut store = Store::begin(recovered, settings, EPOCH);
        for seq in 1..=20 {
            store.push(seq, |out| out.extend_from_slice(&[seq as u8; 70])).unwrap();
            store.sync().unwrap();
        }
        if is_closed {
            store.close().unwrap();
        }
        drop(store);
        disk.kill();
        let image = disk.image();
        let log = image.iter().position(|(name, _)| name.starts_with("log-")).unwrap();
        let (mut whole, mut damaged) = (0, 0);
        for (length, step) in [(512, 512), (300, 50)] {
            for at in (0..4_096 - length).step_by(step) {
                let mut image = image.clone();
                image[log].1[at..at + length].fill(0);
                let mut last = 0;
                let found = Recovery::open(SimDisk::of(1, &image)).and_then(|found| {
                    found.read(&mut |piece, _| {
                        last = if let Piece::Entry(seq, _) = piece { seq } else { last };
                        Ok(())
                    })
                });
                match found {
                    Ok(found) => {
                        assert_eq!((last, found.was_closed), (20, is_closed), "{at}");
                        whole += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, OpenError::Damaged(_)), "{at}: {error}");
                        assert!(!check(SimDisk::of(1, &image)).unwrap().is_empty(), "{at}");
                        damaged += 1;
                    }
                }
            }
        }
        assert!(whole > 5 && damaged > 30, "{whole} {damaged}");
    }
}

#[test]
fn damage_says_where_it_is_and_what_is_lost() {
    let (disk, changes) = sample();
    let mut image = disk.image();
    // Any entry but those that nothing vouches for.
    let entry = &changes[changes.len() - 9];
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    let (name, at) = image
        .iter_mut()
        .rev()
        .find_map(|(name, file)| {
            let at = file.windows(bytes.len()).position(|window| window == bytes)?;
            file[at] ^= 1;
            Some((name.clone(), at))
        })
        .unwrap();
    let disk = SimDisk::of(1, &image);
    let damages = check(disk.clone()).unwrap();
    let [damage] = damages.as_slice() else { panic!("{damages:?}") };
    assert_eq!((damage.file.as_str(), damage.offset), (name.as_str(), at as u64 - 16));
    let said = damage.to_string();
    let wanted = format!("; of numbers {} to {} all is lost", entry.seq - 1, entry.seq + 1);
    assert!(said.starts_with(&name) && said.ends_with(&wanted), "{said}");
    assert_eq!(repair(&disk, 9).unwrap(), damages);
    let names: Vec<String> = disk.image().into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&format!("damaged-{name}")), "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("log-")).count(), 0, "{names:?}");
}

#[test]
fn a_damaged_entry_costs_no_other_one() {
    let disk = SimDisk::new(1);
    let (recovered, _) = read(&disk).unwrap();
    let settings = Settings { segment_bytes: 1 << 20, ..Settings::default() };
    let mut store = Store::begin(recovered, settings, EPOCH);
    let change = |id| Change { seq: id, takes_number: true, id, topic: 1, padding: 5_000 };
    for id in 1..=5 {
        store.push(id, |out| change(id).encode(out)).unwrap();
    }
    store.sync().unwrap();
    store.witness().unwrap();
    drop(store);
    let (mut image, mut second) = (disk.image(), Vec::new());
    change(2).encode(&mut second);
    let at = |file: &[u8]| file.windows(second.len()).position(|window| window == second);
    let (file, at) = image.iter().enumerate().find_map(|(n, it)| Some((n, at(&it.1)?))).unwrap();
    image[file].1[at + 2_000] ^= 1;
    assert_eq!(repaired(&image, "the second entry").unwrap().entries, [1, 3, 4, 5]);
}

#[test]
fn another_version_is_refused_by_name() {
    let (disk, _) = sample();
    let mut image = disk.image();
    let (name, bytes) = image.iter_mut().find(|(name, _)| name.starts_with("log-")).unwrap();
    bytes[8] = 2;
    // What another version writes does not verify as this one.
    bytes[16] ^= 1;
    let name = name.clone();
    let error = read(&SimDisk::of(1, &image)).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "{name} is of format 2, and this program knows format 1 only: use the one that wrote it"
        )
    );
    assert_eq!(repair(&SimDisk::of(1, &image), 1).unwrap_err(), error);
}
