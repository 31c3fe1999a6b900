//! Bytes to meaning and back.
//!
//! Everything Stentor reads from a client, or compares with what a client said, is understood
//! here: request heads and bodies ([`http1`]), what a client accepts and already has
//! ([`negotiate`]), on which conditions it wants an answer ([`condition`]) and which parts of it
//! ([`range`](mod@range)), paths, queries and the names of topics and files ([`target`],
//! [`file_name`]), look-up lists and their line templates ([`lookup`]), and the few status codes we
//! answer with ([`status`]). Two modules find the address of a client behind proxies
//! ([`proxy_protocol`], [`forwarded`]). Others serve connections that last: the formats of event
//! streams ([`sse`]) and of WebSocket ([`websocket`]), and what a reader of many topics asks for
//! ([`events`]). The coders of [`deflate`] serve all that either end may compress.
//!
//! The crate is sans-io: functions take bytes and return meaning, or a [`error::Rejection`] that
//! says what was wrong. There is no clock, no socket, no unsafe code, and nothing on the path of an
//! ordinary request allocates.
//!
//! Framing is strict on purpose. Two parties that read the same bytes differently are how requests
//! are smuggled past a proxy, so whatever RFC 9112 lets a recipient repair is refused instead.
#![forbid(unsafe_code)]

pub mod condition;
pub mod credentials;
pub mod deflate;
pub mod error;
pub mod events;
pub mod file_name;
pub mod forwarded;
pub mod http1;
pub mod json;
pub mod label;
pub mod lookup;
pub mod negotiate;
pub mod notice;
pub mod pack;
pub mod proxy_protocol;
pub mod range;
pub mod sse;
pub mod status;
pub mod target;
pub mod websocket;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;

/// Strips the optional whitespace of RFC 9110 section 5.6.3 (space and tab) from both ends.
fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The pieces between separators that are not within a quoted string (RFC 9110 section 5.6.4). A
/// string that does not end takes all the rest with it.
fn split_unquoted(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quotes = Quotes::default();
    list.split(move |&byte| !quotes.are_open_behind(byte) && byte == separator)
}

/// Whether every quoted string of a list ends.
fn ends_unquoted(list: &[u8]) -> bool {
    let mut quotes = Quotes::default();
    !list.iter().fold(false, |_, &byte| quotes.are_open_behind(byte))
}

/// Whether a byte of a list is inside a quoted string.
#[derive(Default)]
struct Quotes {
    are_open: bool,
    is_escaped: bool,
}

impl Quotes {
    fn are_open_behind(&mut self, byte: u8) -> bool {
        let begins_escape = self.are_open && !self.is_escaped && byte == b'\\';
        self.are_open ^= byte == b'"' && !self.is_escaped;
        self.is_escaped = begins_escape;
        self.are_open
    }
}

/// What stands between the quotes, if `word` is a quoted string. Escapes stay as they are: they are
/// of no use where only numbers and names are looked for.
fn unquoted(word: &[u8]) -> &[u8] {
    match word {
        [b'"', inside @ .., b'"'] => inside,
        _ => word,
    }
}

/// The number that ASCII digits, and nothing else, make; one too large is as large as can be.
fn saturating_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: u64, digit: &u8| n.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

/// Whether a byte may stand in a token (`tchar`, RFC 9110 section 5.6.2).
fn is_tchar(byte: u8) -> bool {
    TCHARS[usize::from(byte)]
}

/// Whether all of `bytes` is one token: at least one byte, and only `tchar`s.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_tchar(byte))
}

/// A table over all bytes that holds for ASCII letters and digits and those of `punctuation`.
const fn byte_table(punctuation: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < punctuation.len() {
        table[punctuation[index] as usize] = true;
        index += 1;
    }
    table
}

static TCHARS: [bool; 256] = byte_table(b"!#$%&'*+-.^_`|~");
