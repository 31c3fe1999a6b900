//! The bodies of the store's fuzz targets: properties that must hold for any files.
//!
//! Random bytes do not get past a hash. So what the fuzzer makes up is a list of changes to the
//! files of a small store, after which their hashes may be made to fit again: then everything
//! behind the hashes is reached as well.

use crate::frame::{self, FRAME_BYTES, Spot, u32_at, u64_at};
use crate::{
    OpenError, Piece, Recovery, Settings, SimDisk, SnapshotDecoder, SnapshotEncoder, Store, check,
    head, read_feed_frame, repair,
};

/// Whatever the files are, a store is refused, or is read, gone on with, and the same at the next
/// start; and what is refused can be repaired, and is read then.
pub fn fuzz_store(data: &[u8]) {
    let mut image = small();
    let (mode, changes) = data.split_first().unwrap_or((&0, &[]));
    for change in changes.chunks_exact(4) {
        let file = usize::from(change[0] >> 3) % image.len();
        let bytes = &mut image[file].1;
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % (bytes.len() + 1);
        match change[0] & 7 {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(&vec![change[3]; at]),
            2 => bytes[at..].fill(change[3]),
            3 => drop(bytes.splice(at.., std::iter::repeat_n(0, usize::from(change[3])))),
            4 => image[file].0 = head::name(WORDS[at % WORDS.len()], u64::from(change[3])),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = change[3]),
        }
    }
    if mode & 1 == 1 {
        image.iter_mut().for_each(|(name, bytes)| fit(name, bytes));
    }
    let disk = SimDisk::of(1, &image);
    let damages = check(disk.clone());
    let first = entries(&disk);
    if let (Err(OpenError::Damaged(damage)), Ok(damages)) = (&first, &damages) {
        assert!(!damages.is_empty(), "{damage}, and a check finds nothing");
    }
    if let Ok(first) = first {
        assert_eq!(damages, Ok(Vec::new()));
        let recovered =
            Recovery::open(disk.clone()).and_then(|found| found.read(&mut |_, _| Ok(())));
        let Ok(recovered) = recovered else { panic!("it can be read, and then it cannot") };
        let mut store = Store::begin(recovered, SETTINGS, 2);
        assert!(store.has_begun(), "{:?}", store.refusal());
        let pushed = store.push(store.reserved(), |out| out.extend_from_slice(b"new"));
        let synced = pushed.is_ok() && store.sync().is_ok();
        drop(store);
        let again = entries(&disk).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.len(), first.len() + usize::from(synced));
        assert_eq!(again[..first.len()], first);
    } else if repair(&disk, 3).is_ok() {
        entries(&disk).unwrap_or_else(|error| panic!("repaired, and {error}"));
    }
}

/// Whatever comes as a snapshot is refused with a sentence, or is read, however it is cut; and what
/// is read to its end is what a store finds in it as a file. Whatever comes as a feed likewise.
pub fn fuzz_received(data: &[u8]) {
    let (mode, changes) = data.split_first().unwrap_or((&0, &[]));
    let mut bytes = Vec::new();
    let mut encoder = SnapshotEncoder::begin(9, 3, vec![1..=2], &mut bytes);
    encoder.payload(b"one", &mut bytes);
    encoder.entries([(4, &b"four"[..]), (5, b"five")].into_iter(), &mut bytes);
    encoder.end(6, &mut bytes);
    for change in changes.chunks_exact(3) {
        let at = usize::from(change[0]) * 2 % (bytes.len() + 1);
        match change[1] & 3 {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at.., std::iter::repeat_n(0, usize::from(change[2])))),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = change[2]),
        }
    }
    let name = head::name(head::SNAPSHOT, 1);
    if mode & 1 == 1 {
        fit(&name, &mut bytes);
    }
    let whole = received(&bytes, bytes.len().max(1));
    assert_eq!(whole, received(&bytes, 1 + usize::from(mode >> 1)));
    if let Ok((found, Some(last))) = whole {
        let disk = SimDisk::of(1, &[(name, bytes.clone())]);
        let recovered = Recovery::open(disk.clone()).and_then(|all| all.read(&mut |_, _| Ok(())));
        assert!(recovered.is_ok_and(|recovered| recovered.last == last.max(recovered.stored)));
        assert_eq!(entries(&disk), Ok(found));
    }
    // A frame of a file is none of a feed, and nothing else looks like one.
    let _ = read_feed_frame(data, 1_000);
    assert!(!matches!(read_feed_frame(&bytes, 1_000), Ok(Some(_))));
}

/// The entries of a snapshot that comes in pieces, and its last number if it was whole.
fn received(bytes: &[u8], step: usize) -> Result<(Vec<Vec<u8>>, Option<u64>), ()> {
    let (mut decoder, mut found) = (SnapshotDecoder::new(usize::MAX), Vec::new());
    let mut rest = Vec::new();
    for piece in bytes.chunks(step) {
        rest.extend_from_slice(piece);
        let used = decoder.read(&rest, &mut |piece| {
            if let Piece::Entry(_, entry) = piece {
                found.push(entry.to_vec());
            }
            Ok(())
        });
        rest.drain(..used.map_err(|sentence| assert!(!sentence.is_empty()))?);
    }
    Ok((found, decoder.ended().filter(|_| rest.is_empty())))
}

type Image = Vec<(String, Vec<u8>)>;

fn entries(disk: &SimDisk) -> Result<Vec<Vec<u8>>, OpenError> {
    let mut found = Vec::new();
    Recovery::open(disk.clone())?.read(&mut |piece, _| {
        if let Piece::Entry(_, bytes) = piece {
            found.push(bytes.to_vec());
        }
        Ok(())
    })?;
    Ok(found)
}

/// A store with a snapshot and a few segments.
fn small() -> Image {
    let disk = SimDisk::new(1);
    let recovered = Recovery::open(disk.clone()).and_then(|empty| empty.read(&mut |_, _| Ok(())));
    let Ok(recovered) = recovered else { unreachable!("the disk is empty") };
    let mut store = Store::begin(recovered, SETTINGS, 1);
    for seq in 1..=12 {
        let pushed = store.push(seq, |out| out.extend_from_slice(&[seq as u8; 30]));
        assert!(pushed.is_ok() && store.sync().is_ok());
        if seq == 4 {
            let adopted = store.begin_snapshot().and_then(|mut writer| {
                writer.payload(b"one")?;
                writer.payload(b"two")?;
                let snapshot = writer.end()?;
                store.adopt(snapshot)
            });
            assert!(adopted.is_ok());
        }
    }
    disk.image()
}

/// Makes the hashes of a file fit what is in it, as far as it looks like one.
fn fit(name: &str, bytes: &mut [u8]) {
    let number = WORDS.iter().find_map(|word| head::number(word, name));
    let Some((number, mut offset)) = number.zip(head::fit(bytes)) else { return };
    while let Some(rest) = bytes.get_mut(offset..).filter(|rest| rest.len() >= FRAME_BYTES) {
        let length = FRAME_BYTES + u32_at(rest, 12) as usize;
        let (synced, reserved) = (u64_at(rest, 24), u64_at(rest, 32));
        let is_begun = frame::looks_begun(rest, number);
        let Some(frame) = rest.get_mut(..length).filter(|_| is_begun) else { return };
        if frame::records(&frame[FRAME_BYTES..]).map(|(_, entry)| 16 + entry.len()).sum::<usize>()
            != length - FRAME_BYTES
        {
            return;
        }
        frame::seal(frame, Spot { number, offset: offset as u64 }, synced, reserved);
        offset += length;
    }
}

const WORDS: [&str; 3] = [head::LOG, head::SNAPSHOT, head::SPARE];

const SETTINGS: Settings =
    Settings { segment_bytes: 500, buffer_bytes: 300, log_bytes_min: 1_000, reserve: 10 };

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_io::Rng;

    #[test]
    fn an_end_in_the_middle_of_a_frame_is_told() {
        fuzz_store(&[1, 0xce, 0xff, 0x92, 0x7a]);
    }

    #[test]
    fn whatever_is_received_is_judged() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let mut data = vec![rng.next_u64() as u8];
            for _ in 0..rng.below(4) {
                data.extend_from_slice(&rng.next_u64().to_le_bytes()[..3]);
            }
            fuzz_received(&data);
        }
    }

    #[test]
    fn the_body_holds_for_random_changes() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let mut data = vec![rng.next_u64() as u8];
            for _ in 0..rng.below(4) {
                data.extend_from_slice(&rng.next_u64().to_le_bytes()[..4]);
            }
            fuzz_store(&data);
        }
    }
}
