//! What a cluster's nodes write into the log, as bytes.
//!
//! | part | form |
//! |---|---|
//! | version | a byte, 1 |
//! | kind | a byte: batch, turn, seed |
//! | EPOCH | four bytes: the life that it is of, or begins |
//! | run | eight bytes: which run of which node wrote it |
//! | counter | eight bytes: the messages of that run are counted from 1 |
//! | batch | eight bytes: a hash of the node's rules; then entries |
//! | turn | a byte of flags; EPOCH before; SEQ there; where the life began, if this says it again |
//! | seed | a byte: 1 if it is the last; then entries |
//!
//! Numbers are little-endian. An entry has its length before it, four bytes, and is as
//! [`stentor_hub::encode_entry`] writes it: one that waits for its place in a batch, and one that
//! had another place in a seed. A node that reads what it does not know stops there: to leave it
//! out would make it another server than the others.

use stentor_hub::Epoch;

/// A message of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message<'a> {
    pub(super) epoch: Epoch,
    pub(super) run: u64,
    pub(super) counter: u64,
    pub(super) body: Body<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body<'a> {
    /// Changes that were admitted at one node.
    Batch { rules: u64, entries: &'a [u8] },
    /// A life begins here.
    Turn(Turn),
    /// What there is at the beginning of a life.
    Seed { is_last: bool, entries: &'a [u8] },
}

/// A life begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    /// The life before, as far as whoever begins this one had it: its EPOCH and SEQ.
    pub(super) before: Option<(Epoch, u64)>,
    /// What there was follows as seeds.
    pub(super) has_seed: bool,
    /// It began there already, and this says so again.
    pub(super) began: Option<u64>,
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
    pub(super) fn into_batch(self, epoch: Epoch, run: u64, counter: u64, rules: u64) -> Vec<u8> {
        self.finish(BATCH, (epoch, run, counter), &rules.to_le_bytes())
    }

    /// The same of a seed.
    pub(super) fn into_seed(self, epoch: Epoch, run: u64, counter: u64, is_last: bool) -> Vec<u8> {
        self.finish(SEED, (epoch, run, counter), &[u8::from(is_last)])
    }

    fn finish(mut self, kind: u8, of: (Epoch, u64, u64), rest: &[u8]) -> Vec<u8> {
        let mut head = head(kind, of);
        head.extend_from_slice(rest);
        self.bytes.splice(..HEAD_BYTES_MAX, head);
        self.bytes
    }
}

impl Turn {
    pub(super) fn encode(&self, epoch: Epoch, run: u64, counter: u64) -> Vec<u8> {
        let mut bytes = head(TURN, (epoch, run, counter));
        let (before, seq) = self.before.unwrap_or((Epoch::from_number(0), 0));
        let flags = [self.before.is_some(), self.has_seed, self.began.is_some()];
        bytes.push(flags.iter().rev().fold(0, |flags, flag| flags << 1 | u8::from(*flag)));
        bytes.extend_from_slice(&before.number().to_le_bytes());
        bytes.extend_from_slice(&seq.to_le_bytes());
        bytes.extend_from_slice(&self.began.unwrap_or(0).to_le_bytes());
        bytes
    }
}

fn head(kind: u8, (epoch, run, counter): (Epoch, u64, u64)) -> Vec<u8> {
    let mut head = vec![VERSION, kind];
    head.extend_from_slice(&epoch.number().to_le_bytes());
    head.extend_from_slice(&run.to_le_bytes());
    head.extend_from_slice(&counter.to_le_bytes());
    head
}

/// Reads a message of the log.
///
/// # Errors
/// One sentence, if it is none that this version writes.
pub(super) fn decode(bytes: &[u8]) -> Result<Message<'_>, &'static str> {
    let mut rest = bytes;
    let [version, kind] = take(&mut rest)?;
    if version != VERSION {
        return Err("it is of a version that is not known here");
    }
    let epoch = Epoch::from_number(u32::from_le_bytes(take(&mut rest)?));
    let run = u64::from_le_bytes(take(&mut rest)?);
    let counter = u64::from_le_bytes(take(&mut rest)?);
    let body = match kind {
        BATCH => {
            let rules = u64::from_le_bytes(take(&mut rest)?);
            Body::Batch { rules, entries: rest }
        }
        SEED => match take(&mut rest)? {
            [last @ (0 | 1)] => Body::Seed { is_last: last == 1, entries: rest },
            _ => return Err(MALFORMED),
        },
        TURN => {
            let [flags] = take(&mut rest)?;
            let before = Epoch::from_number(u32::from_le_bytes(take(&mut rest)?));
            let seq = u64::from_le_bytes(take(&mut rest)?);
            let began = u64::from_le_bytes(take(&mut rest)?);
            if flags > 7 || !rest.is_empty() {
                return Err(MALFORMED);
            }
            Body::Turn(Turn {
                before: (flags & 1 != 0).then_some((before, seq)),
                has_seed: flags & 2 != 0,
                began: (flags & 4 != 0).then_some(began),
            })
        }
        _ => return Err(MALFORMED),
    };
    Ok(Message { epoch, run, counter, body })
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

/// So many entries are in a message at most: each has a number, and the last number is left for
/// "everything of it was applied".
pub(super) const ENTRIES_MAX: usize = (1 << PLACE_BITS) - 1;

/// The SEQ of an entry is the sequence of its message, and so many bits for its place in it.
pub(super) const PLACE_BITS: u32 = 10;

/// What a batch has beside its entries; seeds have less.
const HEAD_BYTES_MAX: usize = 2 + 4 + 8 + 8 + 8;

const LENGTH_BYTES: usize = 4;

const VERSION: u8 = 1;
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
        let batch = growing.into_batch(epoch, 1, 2, 3);
        let message = decode(&batch).unwrap();
        assert_eq!((message.epoch, message.run, message.counter), (epoch, 1, 2));
        let Body::Batch { rules: 3, entries: of } = message.body else { panic!("{message:?}") };
        assert_eq!(entries(of).unwrap(), [&b"one"[..], b""]);
        for is_last in [false, true] {
            let mut growing = Growing::new();
            growing.push(|out| out.push(1));
            let seed = growing.into_seed(epoch, 1, 2, is_last);
            let Body::Seed { is_last: last, entries: of } = decode(&seed).unwrap().body else {
                panic!("it is a seed")
            };
            assert_eq!((last, entries(of).unwrap()), (is_last, vec![&[1][..]]));
        }
        for before in [None, Some((Epoch::from_number(8), 9))] {
            for (has_seed, began) in [(false, None), (true, Some(1))] {
                let turn = Turn { before, has_seed, began };
                let bytes = turn.encode(epoch, 1, 2);
                assert_eq!(decode(&bytes).unwrap().body, Body::Turn(turn));
                assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let mut batch = Growing::new().into_batch(Epoch::from_number(1), 1, 1, 1);
        assert!(decode(&batch).is_ok());
        batch[0] = 2;
        assert_eq!(decode(&batch), Err("it is of a version that is not known here"));
        batch[..2].copy_from_slice(&[1, 3]);
        assert_eq!(decode(&batch), Err(MALFORMED));
        assert!(entries(&[1, 0, 0, 0]).is_err() && entries(&[0, 0, 0]).is_err());
        assert!(entries(&[0; 4 * ENTRIES_MAX]).is_ok());
        assert!(entries(&[0; 4 * (ENTRIES_MAX + 1)]).is_err());
    }
}
