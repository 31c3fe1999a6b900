//! What a cluster's nodes write into the log, as bytes.
//!
//! | part | form |
//! |---|---|
//! | magic | `F5 53 43`: a node wrote it |
//! | version | a byte, 2 |
//! | checksum | eight bytes: XXH3-64 of all that follows the attempt, the version as its seed |
//! | attempt | a byte: how often it was sent before, modulo 256, so that retries differ |
//! | kind | a byte: batch, epoch record, seed |
//! | EPOCH | four bytes: the life that it is of, or begins |
//! | run | eight bytes: which run of which node wrote it |
//! | counter | eight bytes: the messages of that run are counted from 1 |
//! | batch | the last jump of SEQs; [`Of::since`]; the numbers of [`Of::read`]; then entries |
//! | epoch record | a byte of flags; EPOCH before; SEQ there; numbers of it and [`Again`]; jumps |
//! | seed | a byte: 1 if it is the last; then entries |
//!
//! Numbers are little-endian, and have eight bytes where nothing is said. An entry has its length
//! before it, four bytes, and is as [`stentor_hub::encode_entry`] writes it: one that waits for its
//! place in a batch, and one that had another place in a seed. All nodes must write the same bytes
//! for the same message; the library `postcard` takes several spellings of a number.
//!
//! [`Unreadable`] says what a node does with a message that it cannot read.

use crate::line::{ENTRIES_MAX, Jump, SequenceMapping};
use stentor_hub::Epoch;
use twox_hash::XxHash3_64;

/// Why a node cannot read a message of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unreadable {
    /// No node wrote it: every node skips it.
    Foreign,
    /// A node wrote it, and it has changed since: it counts as deleted.
    Damaged,
    /// A node of another version wrote it. The node stops before it, since a node that skipped it
    /// would have other values than the rest.
    OtherVersion,
}

/// A message of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogMessage<'a> {
    pub(super) epoch: Epoch,
    pub(super) run: u64,
    pub(super) counter: u64,
    pub(super) body: MessageBody<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MessageBody<'a> {
    /// Changes that were admitted at one node.
    Batch { of: Of, entries: &'a [u8] },
    /// A life begins here.
    Epoch(EpochRecord),
    /// What there is at the beginning of a life.
    Seed { is_last: bool, entries: &'a [u8] },
}

/// What is said of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Of {
    /// The jump that its node had read last.
    pub(super) jump: u64,
    /// It is late: what has changed behind this SEQ stays as it is.
    pub(super) since: Option<u64>,
    /// A checksum of what its node had read.
    pub(super) read: Checksum,
}

/// A checksum of what a node has read; zeros if it has read nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Checksum {
    /// It begins behind this message,
    pub(super) from: u64,
    /// and ends with the one that was read last.
    pub(super) upto: u64,
    pub(super) sum: u64,
}

/// A life begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EpochRecord {
    /// The life before, as far as whoever begins this one had it: its EPOCH and SEQ.
    pub(super) before: Option<(Epoch, u64)>,
    /// What there was follows as seeds.
    pub(super) has_seed: bool,
    /// The run of the broker that is to take it.
    pub(super) broker: u64,
    /// When it began, in milliseconds of Unix time.
    pub(super) since_ms: u64,
    /// Names the cluster that the epoch is of.
    pub(super) cluster: u64,
    /// It began already, and this says so again.
    pub(super) again: Option<Again>,
}

/// What is said again of a life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Again {
    /// Where it began.
    pub(super) began: u64,
    pub(super) line: SequenceMapping,
    /// SEQs jump here, to this number.
    pub(super) jump: Option<u64>,
}

/// A batch, or a seed, that grows.
#[derive(Debug)]
pub(super) struct Growing {
    bytes: Vec<u8>,
    count: usize,
}

impl Growing {
    pub(super) fn new() -> Growing {
        Growing { bytes: vec![0; HEAD_BYTES_MAX], count: 0 }
    }

    /// Appends an entry that `encode` writes. Returns its length.
    pub(super) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        encode(&mut self.bytes);
        let length = self.bytes.len() - at - LENGTH_BYTES;
        let bytes = u32::try_from(length).expect("no entry has four gibibytes").to_le_bytes();
        self.bytes[at..at + LENGTH_BYTES].copy_from_slice(&bytes);
        self.count += 1;
        length
    }

    /// Takes the last entry away, which has so many bytes.
    pub(super) fn pop(&mut self, length: usize) {
        self.bytes.truncate(self.bytes.len() - length - LENGTH_BYTES);
        self.count -= 1;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The message, once it is known whose it is.
    pub(super) fn into_batch(self, head: (Epoch, u64, u64), of: Of) -> Vec<u8> {
        let Checksum { from, upto, sum } = of.read;
        let numbers = [of.jump, of.since.unwrap_or(u64::MAX), from, upto, sum];
        self.finish(BATCH, head, numbers.map(u64::to_le_bytes).as_flattened())
    }

    /// The same of a seed.
    pub(super) fn into_seed(self, of: (Epoch, u64, u64), is_last: bool) -> Vec<u8> {
        self.finish(SEED, of, &[u8::from(is_last)])
    }

    fn finish(mut self, kind: u8, of: (Epoch, u64, u64), rest: &[u8]) -> Vec<u8> {
        let mut head = head(kind, of);
        head.extend_from_slice(rest);
        self.bytes.splice(..HEAD_BYTES_MAX, head);
        seal(self.bytes)
    }
}

impl EpochRecord {
    pub(super) fn encode(&self, of: (Epoch, u64, u64)) -> Vec<u8> {
        let mut bytes = head(TURN, of);
        let (before, seq) = self.before.unwrap_or((Epoch::from_number(0), 0));
        let not_again = Again { began: 0, line: SequenceMapping::default(), jump: None };
        let Again { began, line, jump } = self.again.as_ref().unwrap_or(&not_again);
        let flags = [
            self.before.is_some(),
            self.has_seed,
            self.again.is_some(),
            jump.is_some(),
            line.is_cut,
        ];
        bytes.push(flags.iter().rev().fold(0, |flags, flag| flags << 1 | u8::from(*flag)));
        bytes.extend_from_slice(&before.number().to_le_bytes());
        let numbers = [seq, self.broker, self.since_ms, self.cluster, *began, jump.unwrap_or(0)];
        let jumps = line.jumps.iter().flat_map(|jump| [jump.at, jump.number]);
        for number in numbers.into_iter().chain(jumps) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        seal(bytes)
    }

    /// Where the life began, and its line as far as the message here, at `at`.
    pub(super) fn life(&self, at: u64) -> (u64, SequenceMapping) {
        let Some(Again { began, line, jump }) = &self.again else {
            return (at, SequenceMapping::default());
        };
        let mut line = line.clone();
        jump.iter().for_each(|number| line.jump(at, *number));
        (*began, line)
    }
}

/// Whether a message of [`crate::log::LogSubject::Life`] is an epoch record, as far as this version
/// can tell.
pub(super) fn may_be_epoch_record(bytes: &[u8]) -> bool {
    match decode(bytes) {
        Ok(message) => matches!(message.body, MessageBody::Epoch(_)),
        Err(reason) => reason == Unreadable::OtherVersion,
    }
}

/// The head of a message, without its checksum.
fn head(kind: u8, (epoch, run, counter): (Epoch, u64, u64)) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.push(VERSION);
    head.extend_from_slice(&[0; CHECKSUM_BYTES + 1]);
    head.push(kind);
    head.extend_from_slice(&epoch.number().to_le_bytes());
    head.extend_from_slice(&run.to_le_bytes());
    head.extend_from_slice(&counter.to_le_bytes());
    head
}

/// The same message once more.
pub(super) fn again(bytes: &[u8], attempt: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[ATTEMPT_AT] = attempt as u8;
    bytes
}

/// Completes a message with its checksum.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(VERSION, &bytes[ATTEMPT_AT + 1..]).to_le_bytes();
    bytes[CHECKSUM_AT..ATTEMPT_AT].copy_from_slice(&checksum);
    bytes
}

/// Reads a message of the log.
///
/// # Errors
/// [`Unreadable`]
pub(super) fn decode(bytes: &[u8]) -> Result<LogMessage<'_>, Unreadable> {
    // Version 1 had no magic.
    if matches!(bytes, [1, BATCH..=SEED, ..]) && bytes.len() >= 23 {
        return Err(Unreadable::OtherVersion);
    }
    let split = bytes.split_first_chunk::<{ ATTEMPT_AT + 1 }>();
    let (head, rest) = split.ok_or(Unreadable::Foreign)?;
    let (magic, version) = (&head[..MAGIC.len()], head[MAGIC.len()]);
    let is_sealed = head[CHECKSUM_AT..ATTEMPT_AT] == checksum(version, rest).to_le_bytes();
    match (magic == MAGIC, is_sealed) {
        (true, true) if version == VERSION => decode_sealed(rest).map_err(|_| Unreadable::Foreign),
        (true, true) => Err(Unreadable::OtherVersion),
        // One of the two is left: a node wrote it.
        (true, false) | (false, true) => Err(Unreadable::Damaged),
        (false, false) => Err(Unreadable::Foreign),
    }
}

/// What all versions check a message by.
fn checksum(version: u8, rest: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(version), rest)
}

fn decode_sealed(mut rest: &[u8]) -> Result<LogMessage<'_>, &'static str> {
    let [kind] = take(&mut rest)?;
    let epoch = Epoch::from_number(u32::from_le_bytes(take(&mut rest)?));
    let run = u64::from_le_bytes(take(&mut rest)?);
    let counter = u64::from_le_bytes(take(&mut rest)?);
    let body = match kind {
        BATCH => {
            let mut number = || Ok(u64::from_le_bytes(take(&mut rest)?));
            let (jump, since) = (number()?, number()?);
            let read = Checksum { from: number()?, upto: number()?, sum: number()? };
            let since = (since != u64::MAX).then_some(since);
            MessageBody::Batch { of: Of { jump, since, read }, entries: rest }
        }
        SEED => match take(&mut rest)? {
            [last @ (0 | 1)] => MessageBody::Seed { is_last: last == 1, entries: rest },
            _ => return Err(MALFORMED),
        },
        TURN => MessageBody::Epoch(decode_turn(rest)?),
        _ => return Err(MALFORMED),
    };
    Ok(LogMessage { epoch, run, counter, body })
}

fn decode_turn(mut rest: &[u8]) -> Result<EpochRecord, &'static str> {
    let rest = &mut rest;
    let [flags] = take(rest)?;
    let before = Epoch::from_number(u32::from_le_bytes(take(rest)?));
    let mut number = || Ok(u64::from_le_bytes(take(rest)?));
    let [seq, broker, since_ms] = [number()?, number()?, number()?];
    let [cluster, began, jump] = [number()?, number()?, number()?];
    let mut line = SequenceMapping { is_cut: flags & 16 != 0, jumps: Vec::new() };
    while !rest.is_empty() {
        let [at, number] = [take(rest)?, take(rest)?].map(u64::from_le_bytes);
        let jump = Jump { at, number };
        if at.max(number) > NUMBER_MAX || !line.is_continued_by(jump) {
            return Err(MALFORMED);
        }
        line.jumps.push(jump);
    }
    let is_again = flags & 4 != 0;
    let has_numbers = began.max(jump) <= NUMBER_MAX;
    let says_more = flags & 24 != 0 || began != 0 || !line.jumps.is_empty();
    if flags > 31 || !has_numbers || !is_again && says_more {
        return Err(MALFORMED);
    }
    let again = Again { began, line, jump: (flags & 8 != 0).then_some(jump) };
    Ok(EpochRecord {
        before: (flags & 1 != 0).then_some((before, seq)),
        has_seed: flags & 2 != 0,
        broker,
        since_ms,
        cluster,
        again: is_again.then_some(again),
    })
}

/// The entries of a batch or a seed, in their order.
///
/// # Errors
/// As [`decode`].
pub(super) fn entries(mut bytes: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(take(&mut bytes)?) as usize;
        let (entry, rest) = bytes.split_at_checked(length).ok_or(MALFORMED)?;
        entries.push(entry);
        bytes = rest;
    }
    if entries.len() > ENTRIES_MAX { Err(MALFORMED) } else { Ok(entries) }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (taken, rest) = bytes.split_first_chunk::<N>().ok_or(MALFORMED)?;
    *bytes = rest;
    Ok(*taken)
}

/// What a batch has beside its entries; seeds have less.
const HEAD_BYTES_MAX: usize = ATTEMPT_AT + 2 + 4 + 8 + 8 + 5 * 8;
const MAGIC: &[u8] = b"\xF5SC";
const CHECKSUM_AT: usize = MAGIC.len() + 1;
const CHECKSUM_BYTES: usize = 8;
const ATTEMPT_AT: usize = CHECKSUM_AT + CHECKSUM_BYTES;

/// No sequence and no number is as large, and sums of them are no concern.
const NUMBER_MAX: u64 = 1 << 50;

const LENGTH_BYTES: usize = 4;

const VERSION: u8 = 2;
const BATCH: u8 = 0;
const TURN: u8 = 1;
const SEED: u8 = 2;
const MALFORMED: &str = "it is nothing that a node writes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let epoch = Epoch::from_number(7);
        let mut growing = Growing::new();
        assert_eq!(growing.push(|out| out.extend_from_slice(b"one")), 3);
        growing.push(|out| out.extend_from_slice(b"three"));
        growing.pop(5);
        growing.push(|_| {});
        assert_eq!(growing.count(), 2);
        let of = Of { read: Checksum::default(), jump: 4, since: Some(5) };
        let bytes = growing.bytes();
        let batch = growing.into_batch((epoch, 1, 2), of);
        assert_eq!(batch.len(), bytes);
        let message = decode(&batch).unwrap();
        assert_eq!((message.epoch, message.run, message.counter), (epoch, 1, 2));
        let MessageBody::Batch { of: read, entries: all } = message.body else {
            panic!("{message:?}")
        };
        assert_eq!((read, entries(all).unwrap()), (of, vec![&b"one"[..], b""]));
        let once_more = again(&batch, 1);
        assert!(once_more != batch && decode(&once_more) == decode(&batch));
        for is_last in [false, true] {
            let mut growing = Growing::new();
            growing.push(|out| out.push(1));
            let seed = growing.into_seed((epoch, 1, 2), is_last);
            let MessageBody::Seed { is_last: last, entries: of } = decode(&seed).unwrap().body
            else {
                panic!("it is a seed")
            };
            assert_eq!((last, entries(of).unwrap()), (is_last, vec![&[1][..]]));
        }
        let jumps = [(5, 500), (7, 700)].map(|(at, number)| Jump { at, number });
        let line = SequenceMapping { is_cut: true, jumps: jumps.to_vec() };
        let again = Again { began: 1, line, jump: Some(900) };
        let no_jump = Again { began: 1, line: SequenceMapping::default(), jump: None };
        for before in [None, Some((Epoch::from_number(8), 9))] {
            for (has_seed, again) in [(false, None), (true, Some(&again)), (true, Some(&no_jump))] {
                let again = again.cloned();
                let turn =
                    EpochRecord { before, has_seed, broker: 6, since_ms: 5, cluster: 1, again };
                let bytes = turn.encode((epoch, 1, 2));
                assert_eq!(decode(&bytes).unwrap().body, MessageBody::Epoch(turn.clone()));
                let whole = (0..=bytes.len()).filter(|end| decode(&bytes[..*end]).is_ok()).count();
                assert_eq!(whole, 1);
            }
        }
        let turn = EpochRecord {
            before: None,
            has_seed: false,
            broker: 6,
            since_ms: 5,
            cluster: 1,
            again: Some(again),
        };
        let (began, line) = turn.life(9);
        assert_eq!((began, line.is_cut, line.jumps.len()), (1, true, 3));
        assert_eq!(line.jumps[2], Jump { at: 9, number: 900 });
    }

    #[test]
    fn numbers_without_sums_are_refused() {
        let is_read = |began, jump| {
            let again = Some(Again { began, line: SequenceMapping::default(), jump: Some(jump) });
            let turn = EpochRecord {
                before: None,
                has_seed: false,
                broker: 1,
                since_ms: 1,
                cluster: 1,
                again,
            };
            decode(&turn.encode((Epoch::from_number(1), 1, 0))).is_ok()
        };
        let max = 1 << 50;
        assert!(is_read(max, max) && !is_read(max + 1, 0) && !is_read(0, max + 1));
    }

    /// A message that a disk has changed is not taken for another client's, which nodes skip.
    #[test]
    fn every_flipped_bit_is_found() {
        let mut batch = Growing::new();
        batch.push(|out| out.extend_from_slice(b"some"));
        let of = Of { read: Checksum::default(), jump: 1, since: None };
        let batch = batch.into_batch((Epoch::from_number(1), 1, 1), of);
        for bit in 0..8 * batch.len() {
            let mut flipped = batch.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let is_attempt = bit / 8 == ATTEMPT_AT;
            let expected = if is_attempt { decode(&batch) } else { Err(Unreadable::Damaged) };
            assert_eq!(decode(&flipped), expected, "bit {bit}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let of = Of { read: Checksum::default(), jump: 1, since: None };
        let mut batch = Growing::new().into_batch((Epoch::from_number(1), 1, 1), of);
        assert!(decode(&batch).is_ok());
        let rest = batch[ATTEMPT_AT + 1..].to_vec();
        batch[3] = 3;
        batch[CHECKSUM_AT..ATTEMPT_AT].copy_from_slice(&checksum(3, &rest).to_le_bytes());
        assert_eq!(decode(&batch), Err(Unreadable::OtherVersion));
        assert_eq!(decode(&[&[1, 0][..], &[0; 21]].concat()), Err(Unreadable::OtherVersion));
        batch[3] = VERSION;
        batch[ATTEMPT_AT + 1] = 3;
        assert_eq!(decode(&seal(batch)), Err(Unreadable::Foreign));
        assert_eq!(decode(b"hello"), Err(Unreadable::Foreign));
        assert!(entries(&[1, 0, 0, 0]).is_err() && entries(&[0, 0, 0]).is_err());
        assert!(entries(&[0; 4 * ENTRIES_MAX]).is_ok());
        assert!(entries(&[0; 4 * (ENTRIES_MAX + 1)]).is_err());
    }
}
