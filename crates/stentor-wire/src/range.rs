//! Range requests (RFC 9110 section 14): which bytes of a representation a client asks for.
//!
//! A server may ignore a Range whenever it likes (section 14.2), and then sends the whole: the
//! client has asked for less than that, never for something else. That is what becomes of
//! everything that is not understood here, and of what is asked for only to make us work (section
//! 17.15): some kilobytes of Range can name thousands of parts, each with a head of its own, or the
//! same bytes again and again, and so make an answer that is many times the file. Within the bounds
//! below, an answer in parts is always shorter than the whole would be, or it is one part.

use std::ops::Deref;

use memchr::memchr;

use crate::{saturating_decimal, trim_ows};

/// The most members of a Range. Clients that ask for several parts at all ask for a few.
pub const RANGES_MAX: usize = 16;

/// What a Range asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is looked at once, and a box would allocate")]
pub enum Ranges {
    /// Nothing in particular: the field is ignored, and the whole is sent (200).
    Whole,
    /// Only bytes that are not there (416).
    Unsatisfiable,
    /// These bytes (206).
    Parts(Parts),
}

/// Some bytes in a row, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub first: u64,
    /// The offset of the last byte, which is not below `first`.
    pub last: u64,
}

impl ByteRange {
    /// How many bytes it is.
    pub const fn length(self) -> u64 {
        self.last - self.first + 1
    }

    /// The head of this part of `length` bytes in a body of several parts (RFC 9110 section 14.6).
    #[must_use]
    pub fn head(self, boundary: &str, content_type: &str, length: u64) -> String {
        let ByteRange { first, last } = self;
        format!(
            "\r\n--{boundary}\r\nContent-Type: {content_type}\r\n\
             Content-Range: bytes {first}-{last}/{length}\r\n\r\n"
        )
    }

    /// Whether a byte is in both.
    const fn overlaps(self, other: ByteRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The end of a body of several parts.
#[must_use]
pub fn parts_end(boundary: &str) -> String {
    format!("\r\n--{boundary}--\r\n")
}

/// The parts of a representation to be sent, in the order in which they were asked for: from one to
/// [`RANGES_MAX`], all within the representation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Only the first `count` are meant.
    ranges: [ByteRange; RANGES_MAX],
    count: usize,
}

impl Deref for Parts {
    type Target = [ByteRange];

    fn deref(&self) -> &[ByteRange] {
        &self.ranges[..self.count]
    }
}

/// What a Range asks for of a representation of `length` bytes.
///
/// Parts that are not there are left out if others are. The field is ignored if its unit is not
/// bytes or its syntax is not that of section 14.1.1, if it has more than [`RANGES_MAX`] members,
/// empty ones included, if more than two of its parts overlap another, and if several parts with
/// their heads would be as long as the whole. So it is for an empty representation, which has
/// nothing to take a part of.
pub fn ranges(field: &[u8], length: u64) -> Ranges {
    match parts(field, length) {
        Some(parts) if parts.is_empty() => Ranges::Unsatisfiable,
        Some(parts) if !parts.are_excessive(length) => Ranges::Parts(parts),
        _ => Ranges::Whole,
    }
}

/// The parts that are there, however many they are; `None` if the field makes no sense.
fn parts(field: &[u8], length: u64) -> Option<Parts> {
    let equals = memchr(b'=', field)?;
    if !field[..equals].eq_ignore_ascii_case(b"bytes") || length == 0 {
        return None;
    }
    let mut parts = Parts { ranges: [ByteRange { first: 0, last: 0 }; RANGES_MAX], count: 0 };
    let mut some_named = false;
    for (i, member) in field[equals + 1..].split(|&byte| byte == b',').enumerate() {
        if i == RANGES_MAX {
            return None;
        }
        let member = trim_ows(member);
        if member.is_empty() {
            continue;
        }
        some_named = true;
        let (first, last) = first_and_last(member, length)?;
        if first < length {
            parts.ranges[parts.count] = ByteRange { first, last };
            parts.count += 1;
        }
    }
    some_named.then_some(parts)
}

/// `range-spec` of section 14.1.1. The last byte is one that is there, unless the first is not
/// either. `None` for what is neither `int-range` nor `suffix-range`.
fn first_and_last(member: &[u8], length: u64) -> Option<(u64, u64)> {
    let dash = memchr(b'-', member)?;
    let end = length - 1;
    match (&member[..dash], &member[dash + 1..]) {
        // Of no bytes at the end the first would be the one behind the last.
        ([], count) => Some((length.saturating_sub(saturating_decimal(count)?), end)),
        (first, []) => Some((saturating_decimal(first)?, end)),
        (first, last) => {
            let (first, last) = (saturating_decimal(first)?, saturating_decimal(last)?);
            (first <= last).then_some((first, last.min(end)))
        }
    }
}

impl Parts {
    /// Whether the whole is the better answer.
    fn are_excessive(&self, length: u64) -> bool {
        let with_head = |part: &ByteRange| part.length().saturating_add(PART_HEAD_BYTES);
        let sum = self.iter().map(with_head).fold(0, u64::saturating_add);
        let is_twice_there = |(i, part): &(usize, &ByteRange)| {
            self.iter().enumerate().any(|(j, other)| *i != j && part.overlaps(*other))
        };
        let overlapping = self.iter().enumerate().filter(is_twice_there).count();
        self.len() > 1 && (sum >= length || overlapping > 2)
    }
}

/// What the head of each of several parts is taken to cost, in bytes: a boundary, a Content-Type
/// and a Content-Range.
const PART_HEAD_BYTES: u64 = 100;

#[cfg(test)]
mod tests;
