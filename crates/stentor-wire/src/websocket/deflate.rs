//! permessage-deflate (RFC 7692): what is agreed on, and messages deflated and inflated.
//!
//! A message is one DEFLATE stream that ends in a flush whose last four bytes are not sent, since
//! they are always the same. Without context takeover that is all: no state outlives a message.

use crate::deflate::{Deflater, InflateError, Inflater};
use crate::{split_unquoted, trim_ows, unquoted};

/// What was agreed on for one connection. Neither side takes a context over; that is said in the
/// answer and nowhere else, since it is always so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deflate {
    /// The base-2 logarithm of the window that what we send may refer back to: 9 to 15.
    pub server_window_bits: u8,
    /// Whether the client has named that window, so that the answer must name it too.
    pub server_window_named: bool,
}

/// The first acceptable offer of permessage-deflate in a Sec-WebSocket-Extensions (RFC 7692
/// section 7.1). `None` if there is none.
///
/// An offer with a parameter that is unknown, repeated or out of range is declined, as section 7
/// demands, and the next one is looked at. So is an offer of a window of 8 bits for what we send:
/// zlib cannot keep to it.
pub fn negotiate_deflate(header: Option<&[u8]>) -> Option<Deflate> {
    split_unquoted(header.unwrap_or_default(), b',').find_map(offer)
}

impl Deflate {
    /// Appends the value of the Sec-WebSocket-Extensions that accepts the offer.
    pub fn write_response(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        );
        if self.server_window_named {
            let bits = self.server_window_bits;
            out.extend_from_slice(format!("; server_max_window_bits={bits}").as_bytes());
        }
    }
}

/// Deflates one message as RFC 7692 section 7.2.1 says, without the `00 00 ff ff` at its end.
/// `None` if the result would not be smaller than `data`, which is then sent as it is.
///
/// `window_bits` is what was agreed on, 9 to 15. What is longer than that window may refer back
/// further than its reader remembers, and is not deflated.
pub fn deflate<'d>(deflater: &'d mut Deflater, data: &[u8], window_bits: u8) -> Option<&'d [u8]> {
    if window_bits < WINDOW_BITS_MAX && data.len() > 1 << window_bits {
        return None;
    }
    let bytes_max = data.len().checked_sub(1)? + FLUSH_END.len();
    deflater.flushed(data, bytes_max)?.strip_suffix(FLUSH_END)
}

/// Understands one member of the list: `None` if it is another extension, or not acceptable.
fn offer(member: &[u8]) -> Option<Deflate> {
    let mut parts = split_unquoted(member, b';').map(trim_ows);
    if !parts.next()?.eq_ignore_ascii_case(b"permessage-deflate") {
        return None;
    }
    let mut seen = [false; PARAMETERS.len()];
    let mut agreed = Deflate { server_window_bits: WINDOW_BITS_MAX, server_window_named: false };
    for part in parts {
        let (name, value) = match part.iter().position(|&byte| byte == b'=') {
            Some(equals) => (trim_ows(&part[..equals]), Some(trim_ows(&part[equals + 1..]))),
            None => (part, None),
        };
        let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
        let which = PARAMETERS.iter().position(is)?;
        if std::mem::replace(&mut seen[which], true) {
            return None;
        }
        let bits = match value.map(unquoted) {
            Some(value) => Some(window_bits(value)?),
            None => None,
        };
        match (PARAMETERS[which], bits) {
            ("server_max_window_bits", Some(bits)) => {
                agreed = Deflate { server_window_bits: bits, server_window_named: true };
            }
            ("client_max_window_bits", _) => {}
            ("server_no_context_takeover" | "client_no_context_takeover", None) => {}
            _ => return None,
        }
    }
    (agreed.server_window_bits >= WINDOW_BITS_MIN).then_some(agreed)
}

/// Inflates one message, whose end has not been put back. Never keeps more than `bytes_max` bytes
/// and one.
///
/// Behind the end comes a last, empty block. Only if the inflater stops exactly there was the
/// message whole; otherwise the end would pass for a part of a block that was cut off.
pub(super) fn inflate(
    inflater: &mut Inflater,
    mut deflated: Vec<u8>,
    bytes_max: usize,
) -> Result<Vec<u8>, MessageError> {
    deflated.extend_from_slice(FLUSH_END);
    deflated.extend_from_slice(LAST_BLOCK);
    let mut streams_left = STREAMS_MIN + deflated.len() / STREAM_BYTES;
    let mut rest = &deflated[..];
    let mut data = Vec::new();
    // RFC 7692 section 7.2.3.4: a sender may mark a block as the last, and go on.
    while !rest.is_empty() {
        if streams_left == 0 {
            return Err(MessageError::ManyLastBlocks);
        }
        streams_left -= 1;
        let used = inflater.stream(rest, &mut data, bytes_max).map_err(MessageError::Inflate)?;
        rest = &rest[used..];
    }
    Ok(data)
}

/// Why a message could not be inflated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageError {
    Inflate(InflateError),
    /// More of its blocks are marked as the last than anybody needs.
    ManyLastBlocks,
}

/// 8 to 15, without a leading zero (RFC 7692 section 7.1.2).
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] | [b'1', digit @ b'0'..=b'5'] => {
            Some(digit - b'0' + if value.len() == 2 { 10 } else { 0 })
        }
        _ => None,
    }
}

/// The parameters of an offer (RFC 7692 section 7.1).
const PARAMETERS: [&str; 4] = [
    "server_no_context_takeover",
    "client_no_context_takeover",
    "server_max_window_bits",
    "client_max_window_bits",
];

/// What zlib can keep to, and what DEFLATE allows.
const WINDOW_BITS_MIN: u8 = 9;
const WINDOW_BITS_MAX: u8 = 15;

/// A message may have this many blocks that are marked as the last, and one more for so many bytes:
/// enough for a sender that flushes by ending its stream, and an end to those that send empty ones,
/// which take two bytes and make the inflater begin anew.
const STREAMS_MIN: usize = 64;
const STREAM_BYTES: usize = 64;

/// What a flush ends with: the length of an empty stored block and its complement.
const FLUSH_END: &[u8] = b"\x00\x00\xff\xff";

/// An empty stored block that is marked as the last.
const LAST_BLOCK: &[u8] = b"\x01\x00\x00\xff\xff";

#[cfg(test)]
mod tests;
