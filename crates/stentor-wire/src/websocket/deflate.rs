//! permessage-deflate (RFC 7692): what is agreed on, and messages deflated and inflated.
//!
//! A message is one DEFLATE stream that ends in a flush whose last four bytes are not sent, since
//! they are always the same. Without context takeover that is all: no state outlives a message.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

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
/// `window_bits` is what was agreed on, 9 to 15; a larger window than the reader has would be
/// unreadable, a smaller one only compresses less.
pub fn deflate(data: &[u8], window_bits: u8) -> Option<Vec<u8>> {
    // A window larger than the data would only cost memory. The margin is what zlib keeps free.
    let useful_bits = (data.len() + WINDOW_MARGIN).next_power_of_two().ilog2();
    let useful_bits = u8::try_from(useful_bits).unwrap_or(WINDOW_BITS_MAX);
    let window_bits = useful_bits.min(window_bits).clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX);
    let mut compress = Compress::new_with_window_bits(Compression::default(), false, window_bits);
    // Where this room does not suffice the result is not smaller.
    let mut deflated = Vec::with_capacity(data.len() + FLUSH_END.len());
    compress.compress_vec(data, &mut deflated, FlushCompress::Sync).ok()?;
    let body = deflated.strip_suffix(FLUSH_END)?.len();
    let is_whole = compress.total_in() == data.len() as u64 && deflated.len() < deflated.capacity();
    if !is_whole || body >= data.len() {
        return None;
    }
    deflated.truncate(body);
    Some(deflated)
}

/// Understands one member of the list: `None` if it is another extension, or not acceptable.
fn offer(member: &[u8]) -> Option<Deflate> {
    let mut parts = split_unquoted(member, b';').map(trim_ows);
    if !parts.next()?.eq_ignore_ascii_case(b"permessage-deflate") {
        return None;
    }
    let mut seen = Seen::default();
    let mut agreed = Deflate { server_window_bits: WINDOW_BITS_MAX, server_window_named: false };
    for part in parts {
        let (name, value) = match part.iter().position(|&byte| byte == b'=') {
            Some(equals) => (trim_ows(&part[..equals]), Some(trim_ows(&part[equals + 1..]))),
            None => (part, None),
        };
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let (seen, value) = match value.map(unquoted) {
            None if is(b"server_no_context_takeover") => (&mut seen.server_takeover, None),
            None if is(b"client_no_context_takeover") => (&mut seen.client_takeover, None),
            None if is(b"client_max_window_bits") => (&mut seen.client_window, None),
            Some(value) if is(b"client_max_window_bits") => {
                window_bits(value)?;
                (&mut seen.client_window, None)
            }
            Some(value) if is(b"server_max_window_bits") => {
                (&mut seen.server_window, Some(window_bits(value)?))
            }
            _ => return None,
        };
        if std::mem::replace(seen, true) {
            return None;
        }
        if let Some(bits) = value {
            agreed = Deflate { server_window_bits: bits, server_window_named: true };
        }
    }
    (agreed.server_window_bits >= WINDOW_BITS_MIN).then_some(agreed)
}

/// Inflates one message, whose end has not been put back. Never keeps more than `bytes_max` bytes
/// and one.
///
/// Behind the end comes a last, empty block. Only if the inflater stops exactly there was the
/// message whole; otherwise the end would pass for a part of a block that was cut off.
pub(super) fn inflate(mut deflated: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, InflateError> {
    deflated.extend_from_slice(FLUSH_END);
    deflated.extend_from_slice(LAST_BLOCK);
    let mut inflater = Decompress::new(false);
    let mut rest = &deflated[..];
    let mut data = Vec::new();
    loop {
        if data.len() == data.capacity() {
            // One byte more than is allowed, to tell what is too long.
            let room_max = bytes_max.saturating_add(1) - data.len();
            data.reserve_exact(data.len().max(deflated.len()).min(room_max));
        }
        let taken = inflater.total_in();
        let status = inflater.decompress_vec(rest, &mut data, FlushDecompress::Sync);
        let status = status.map_err(|_| InflateError::Broken)?;
        rest = &rest[usize::try_from(inflater.total_in() - taken).unwrap_or(rest.len())..];
        if data.len() > bytes_max {
            return Err(InflateError::TooLong);
        }
        match status {
            Status::StreamEnd if rest.is_empty() => return Ok(data),
            // RFC 7692 section 7.2.3.4: a sender may mark a block as the last, and go on.
            Status::StreamEnd => inflater.reset(false),
            Status::Ok if !rest.is_empty() || data.len() == data.capacity() => {}
            Status::Ok | Status::BufError => return Err(InflateError::Broken),
        }
    }
}

/// Why a message could not be inflated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InflateError {
    /// It is longer than it may be.
    TooLong,
    /// It is not DEFLATE, or was cut off.
    Broken,
}

/// The parameters an offer has had so far.
#[derive(Default)]
struct Seen {
    server_takeover: bool,
    client_takeover: bool,
    server_window: bool,
    client_window: bool,
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

/// What zlib can keep to, and what DEFLATE allows.
const WINDOW_BITS_MIN: u8 = 9;
const WINDOW_BITS_MAX: u8 = 15;

/// How much of its window zlib does not refer back to (`MIN_LOOKAHEAD`).
const WINDOW_MARGIN: usize = 262;

/// What a flush ends with: the length of an empty stored block and its complement.
const FLUSH_END: &[u8] = b"\x00\x00\xff\xff";

/// An empty stored block that is marked as the last.
const LAST_BLOCK: &[u8] = b"\x01\x00\x00\xff\xff";

#[cfg(test)]
mod tests;
