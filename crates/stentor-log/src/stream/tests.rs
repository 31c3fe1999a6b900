//! What is sent is read as it was, cut at any byte or changed in any bit.

use super::*;
use crate::Recovery;
use crate::sim::SimDisk;
use stentor_io::Disk;

/// A snapshot with two pieces, the second a long one, and three entries.
fn snapshot() -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = SnapshotEncoder::begin(7, 40, vec![12..=20], &mut out);
    encoder.payload(b"one", &mut out);
    encoder.payload(&long(), &mut out);
    let entries: [(u64, &[u8]); 3] = [(41, b"a"), (41, b"rules"), (43, b"b")];
    encoder.entries(entries.into_iter(), &mut out);
    encoder.entries(std::iter::empty(), &mut out);
    encoder.end(44, &mut out);
    out
}

fn long() -> Vec<u8> {
    (0..2_000).map(|n| n as u8).collect()
}

#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Payload(Vec<u8>),
    Entry(u64, Vec<u8>),
}

fn see(seen: &mut Vec<Seen>, piece: Piece<'_>) {
    match piece {
        Piece::Payload(bytes) => seen.push(Seen::Payload(bytes.to_vec())),
        Piece::Rest(bytes) => match seen.last_mut() {
            Some(Seen::Payload(begun)) => begun.extend_from_slice(bytes),
            other => panic!("{other:?}"),
        },
        Piece::Entry(seq, bytes) => seen.push(Seen::Entry(seq, bytes.to_vec())),
        Piece::Hole => panic!("there is no hole"),
    }
}

fn all() -> Vec<Seen> {
    vec![
        Seen::Payload(b"one".to_vec()),
        Seen::Payload(long()),
        Seen::Entry(41, b"a".to_vec()),
        Seen::Entry(41, b"rules".to_vec()),
        Seen::Entry(43, b"b".to_vec()),
    ]
}

/// Reads pieces of so many bytes.
fn read(
    bytes: &[u8],
    step: usize,
    bytes_max: usize,
) -> Result<(SnapshotDecoder, Vec<Seen>), String> {
    let (mut decoder, mut seen) = (SnapshotDecoder::new(bytes_max), Vec::new());
    let mut rest = Vec::new();
    for piece in bytes.chunks(step) {
        rest.extend_from_slice(piece);
        let used = decoder.read(&rest, &mut |piece| {
            see(&mut seen, piece);
            Ok(())
        })?;
        rest.drain(..used);
    }
    Ok((decoder, seen))
}

#[test]
fn what_is_sent_as_a_snapshot_is_received_however_it_is_cut() {
    let bytes = snapshot();
    for step in [1, 7, 100, bytes.len()] {
        let (decoder, seen) = read(&bytes, step, 10_000).unwrap();
        let head = SnapshotHead { epoch: 7, seq: 40, lost: vec![12..=20] };
        assert_eq!((decoder.begun(), decoder.ended()), (Some(&head), Some(44)), "{step}");
        assert_eq!(seen, all(), "{step}");
    }
    let (decoder, _) = read(&bytes[..bytes.len() - 1], 100, 10_000).unwrap();
    assert_eq!(decoder.ended(), None, "it is not whole");
    assert!(read(&[&bytes[..], b"x"].concat(), 100, 10_000).is_err());
    assert!(read(&bytes, 100, 900).is_err(), "a frame is too long");
}

/// Curl saves it, and `stentor serve --data` begins with it.
#[test]
fn what_is_sent_as_a_snapshot_is_a_whole_store_in_a_file() {
    let (disk, bytes) = (SimDisk::new(1), snapshot());
    let file = disk.create("snapshot-000000000001", 0).unwrap();
    disk.write_at(&file, 0, &bytes).unwrap();
    let recovery = Recovery::open(disk).unwrap();
    assert!(recovery.is_whole());
    assert_eq!((recovery.epoch(), recovery.continued_epoch()), (Some(7), None));
    let mut seen = Vec::new();
    let recovered = recovery.read(&mut |piece, _| {
        see(&mut seen, piece);
        Ok(())
    });
    let recovered = recovered.unwrap();
    assert_eq!((recovered.last, recovered.was_closed, recovered.begins_life), (44, true, true));
    assert_eq!(seen, all());
}

#[test]
fn no_bit_of_a_snapshot_or_a_feed_can_be_changed() {
    let whole = snapshot();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let is_told = match read(&bytes, 10_000, 10_000) {
            Err(_) => true,
            // A length that verifies nowhere is waited for in vain.
            Ok((decoder, _)) => decoder.ended().is_none(),
        };
        assert!(is_told, "{at}");
    }
    let frame = feed_frame(&[(3, b"three"), (4, b"four")], 9);
    for at in 0..frame.len() {
        let mut bytes = frame.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(read_feed_frame(&bytes, 10_000).is_err(), "{at}");
    }
}

fn feed_frame(entries: &[(u64, &[u8])], upto: u64) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let frame = FeedEncoder::begin(&mut out);
    assert!(frame.is_empty(&out));
    for (seq, entry) in entries {
        assert!(frame.entry(*seq, &mut out, |out| out.extend_from_slice(entry)));
    }
    assert_eq!(frame.is_empty(&out), entries.is_empty());
    frame.seal(upto, 0, &mut out);
    out.split_off(6)
}

#[test]
fn frames_of_a_feed_are_read_one_behind_the_other() {
    let frames = [feed_frame(&[], 7), feed_frame(&[(8, b"a"), (8, b""), (11, b"c")], 12)].concat();
    let first = read_feed_frame(&frames, 1_000).unwrap().unwrap();
    assert_eq!((first.upto, first.bytes, first.records().count()), (7, FRAME_BYTES, 0));
    let rest = &frames[first.bytes..];
    for end in 0..rest.len() {
        assert!(read_feed_frame(&rest[..end], 1_000).unwrap().is_none(), "{end}");
    }
    let second = read_feed_frame(rest, 1_000).unwrap().unwrap();
    let records: Vec<(u64, &[u8])> = second.records().collect();
    assert_eq!(
        (second.upto, second.bytes, records),
        (12, rest.len(), vec![(8, &b"a"[..]), (8, b""), (11, b"c")])
    );
    assert!(read_feed_frame(rest, rest.len() - 1).is_err(), "it is too long");
    assert!(read_feed_frame(&snapshot()[96..], 1_000).is_err(), "it is of a file");
}

/// The decoder would otherwise buffer the input while it waits for such a head.
#[test]
fn a_head_too_long_is_refused_at_once() {
    let mut bytes = snapshot();
    for (length, is_refused) in [(HEAD_BYTES_MAX, false), (HEAD_BYTES_MAX + 1, true)] {
        bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        let read = SnapshotDecoder::new(10_000).read(&bytes[..16], &mut |_| Ok(()));
        assert_eq!(read.is_err(), is_refused, "{length}");
    }
}
