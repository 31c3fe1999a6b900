//! Names for moments in the one order: `EPOCH-SEQ`.
//!
//! SEQ grows with every message of this server and every deletion, whatever the topic. Where a
//! broker or another server gives the numbers, it may leave some out. EPOCH names the life of that
//! count. Together they are the ETag, the `since` of a query and the id of a streamed event: one
//! cursor for every way of reading, so a client may change its way without losing its place. The
//! text of an id is made on the stack, since a conditional request needs it on the hot path.

use std::fmt;
use std::str::FromStr;

/// The name of a sequence's life: it changes only if history was lost, so that a cursor of before
/// is never mistaken for one of after. Written as eight lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Epoch(u32);

impl Epoch {
    /// A new epoch from the kernel's random numbers.
    ///
    /// # Panics
    ///
    /// If the kernel has no random numbers to give, which Linux never says after it has booted.
    #[must_use]
    pub fn random() -> Epoch {
        Epoch(getrandom::u32().expect("the kernel gives random numbers once it has booted"))
    }

    /// The epoch of this number.
    #[must_use]
    pub fn from_number(number: u32) -> Epoch {
        Epoch(number)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// An epoch as it was written: exactly eight lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Epoch> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != EPOCH_DIGITS || !digits {
            return None;
        }
        u32::from_str_radix(text, 16).ok().map(Epoch)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The place of one message in the order of all messages. Displayed as `EPOCH-SEQ`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Id {
    /// Names the life of the sequence that `seq` belongs to.
    pub epoch: Epoch,
    /// Grows with every message and deletion of the server; 0 is before the first.
    pub seq: u64,
}

impl Id {
    /// The id as text, without allocating.
    #[must_use]
    pub fn text(self) -> IdText {
        let mut bytes = [0; ID_BYTES_MAX];
        for (index, byte) in bytes[..EPOCH_DIGITS].iter_mut().enumerate() {
            let nibble = self.epoch.0 >> (4 * (EPOCH_DIGITS - 1 - index)) & 0xf;
            *byte = b"0123456789abcdef"[nibble as usize];
        }
        bytes[EPOCH_DIGITS] = b'-';
        let mut buffer = itoa::Buffer::new();
        let seq = buffer.format(self.seq).as_bytes();
        let len = EPOCH_DIGITS + 1 + seq.len();
        bytes[EPOCH_DIGITS + 1..len].copy_from_slice(seq);
        IdText { bytes, len }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl FromStr for Id {
    type Err = InvalidId;

    /// Only the canonical spelling is taken: no sign, no leading zero. The number 0, which no
    /// message has, is a place too: before the first.
    fn from_str(text: &str) -> Result<Id, InvalidId> {
        let (epoch, seq) = text.split_once('-').ok_or(InvalidId)?;
        let epoch = Epoch::parse(epoch).ok_or(InvalidId)?;
        if seq != "0" && !seq.starts_with(|first: char| matches!(first, '1'..='9')) {
            return Err(InvalidId);
        }
        let seq = seq.parse().map_err(|_| InvalidId)?;
        Ok(Id { epoch, seq })
    }
}

/// A life of the sequence as this process counts it: numbers in a process only grow, whatever
/// becomes of the sequence. If it begins anew elsewhere, what came under its EPOCH has numbers
/// above all of before, and is known by its SEQ outside. Of a sequence that is made here both are
/// the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// What names it.
    pub epoch: Epoch,
    /// The number here of its SEQ 0.
    pub base: u64,
}

impl Life {
    /// The id of a number of this life.
    #[must_use]
    pub fn id(self, number: u64) -> Id {
        Id { epoch: self.epoch, seq: number.saturating_sub(self.base) }
    }

    /// The number of a SEQ of this life; `None` if no process counts as far.
    #[must_use]
    pub fn number(self, seq: u64) -> Option<u64> {
        self.base.checked_add(seq).filter(|number| *number <= NUMBER_MAX)
    }
}

/// The text of an [`Id`], kept on the stack.
#[derive(Clone, Copy, Debug)]
pub struct IdText {
    bytes: [u8; ID_BYTES_MAX],
    len: usize,
}

impl IdText {
    /// `EPOCH-SEQ`, without quotes: what entity tags are compared with.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("an id is made of ASCII only")
    }
}

/// The text is not an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidId;

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("An id is eight hexadecimal digits, a hyphen and a number, like 5f3a09c1-42.")
    }
}

impl std::error::Error for InvalidId {}

const EPOCH_DIGITS: usize = 8;

/// No sequence gets there in a thousand years, and sums of two such numbers are still numbers.
const NUMBER_MAX: u64 = 1 << 62;

/// Eight digits, a hyphen, and the twenty digits of the largest number.
const ID_BYTES_MAX: usize = EPOCH_DIGITS + 1 + 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for seq in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            for epoch in [0, 1, 0x00ab_cdef, u32::MAX] {
                let id = Id { epoch: Epoch(epoch), seq };
                assert_eq!(id.to_string(), format!("{epoch:08x}-{seq}"));
                assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
        assert_eq!(Id { epoch: Epoch(7), seq: 0 }.to_string(), "00000007-0");
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "-",
            "5f3a09c1",
            "5f3a09c1-",
            "5f3a09c1-00",
            "5f3a09c1-01",
            "5f3a09c1-+1",
            "5f3a09c1--1",
            "5f3a09c1- 1",
            "5f3a09c1-1 ",
            "5F3A09C1-1",
            "+f3a09c1-1",
            "5f3a09c-1",
            "5f3a09c11-1",
            "5f3a09c1-18446744073709551616",
            "5f3a09c1-1.gz",
        ] {
            assert_eq!(text.parse::<Id>(), Err(InvalidId), "{text:?}");
        }
    }

    #[test]
    fn random_epochs_differ() {
        let seen: std::collections::HashSet<_> = (0..8).map(|_| Epoch::random()).collect();
        assert!(seen.len() > 1);
        for epoch in seen {
            assert_eq!(Epoch::parse(&epoch.to_string()), Some(epoch));
        }
    }
}
