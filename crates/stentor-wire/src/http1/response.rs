//! Response heads, as a client reads them (RFC 9112 sections 4 to 6).
//!
//! The load generator holds a million connections and must not keep a parser for each. So there is
//! no state: [`parse`] looks for a whole head at the start of what has arrived, and lends what
//! matters of it. A head that is cut is read from its start again when there is more. That is rare,
//! and bounded by [`HEAD_BYTES_MAX`].
//!
//! The syntax is httparse's, with what it tolerates: a line may end in LF alone, and the reason
//! phrase may be missing. Nothing is tolerated that leaves the end of a body in doubt: a client
//! that goes on in the wrong place measures nonsense.

use super::head::{Connection, FieldSlots, HEAD_BYTES_MAX, decimal};
use crate::status::Status;
use crate::{is_token, trim_ows};

/// Head of a response, lent from the input.
///
/// Field values are as sent, without the whitespace around them. The first line counts if there
/// are several of a field.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ResponseHead<'a> {
    /// Bytes up to the body, the final empty line included.
    pub len: usize,
    /// The three digits of the status.
    pub status: u16,
    /// How the body is framed, if the request was not a HEAD.
    pub body: ResponseBody,
    /// Whether the connection may carry another request after the body (RFC 9112 section 9.3).
    /// Never if only its end ends the body, nor if it changed to another protocol.
    pub keep_alive: bool,
    /// ETag
    pub etag: Option<&'a [u8]>,
    /// Last-Modified
    pub last_modified: Option<&'a [u8]>,
    /// Content-Type
    pub content_type: Option<&'a [u8]>,
    /// Sec-WebSocket-Accept
    pub websocket_accept: Option<&'a [u8]>,
}

/// How the body of a response is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ResponseBody {
    /// There is none, whatever the fields say: the status is 1xx, 204 or 304.
    #[default]
    None,
    /// Content-Length, in bytes.
    Length(u64),
    /// Transfer-Encoding, with chunked as the last coding.
    Chunked,
    /// It goes on until the server ends the connection.
    UntilClose,
}

/// What the bytes begin with is not the head of a response, or not one that can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// One plain sentence.
    pub reason: &'static str,
}

/// Reads the head that `bytes` begin with; `None` if it goes on beyond them.
///
/// More bytes behind these change neither a head nor an error. Empty lines before the head are
/// passed over, and count as a part of it.
///
/// # Errors
/// If the syntax is wrong, if the head is longer than [`HEAD_BYTES_MAX`] or has more than
/// [`FIELDS_MAX`](super::FIELDS_MAX) fields, and if the framing of the body is in doubt: lengths
/// that are no numbers or differ, a length as well as a transfer coding, codings behind chunked, or
/// any coding in HTTP/1.0.
pub fn parse(bytes: &[u8]) -> Result<Option<ResponseHead<'_>>, Malformed> {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let mut slots = FieldSlots::new();
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed =
        config.parse_response_with_uninit_headers(&mut response, window, &mut slots.fields);
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if window.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(HEAD_BYTES),
        Err(error) => return Err(syntax(error)),
    };
    let status = response.code.unwrap_or_default();
    let head = ResponseHead { len, status, ..ResponseHead::default() };
    let mut reading = ResponseReader { head, ..ResponseReader::default() };
    for field in response.headers.iter() {
        reading.field(field.name.as_bytes(), field.value)?;
    }
    reading.finish(response.version == Some(0)).map(Some)
}

/// A head whose fields are being read, and what must be known of all of them to finish it.
#[derive(Default)]
struct ResponseReader<'a> {
    head: ResponseHead<'a>,
    connection: Connection,
    length: Option<u64>,
    coding: TransferCoding,
}

/// The last transfer coding so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum TransferCoding {
    #[default]
    None,
    Chunked,
    Other,
}

impl<'a> ResponseReader<'a> {
    /// Takes one field. The name's length picks the few it can be.
    fn field(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Malformed> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let head = &mut self.head;
        match name.len() {
            4 if is(b"etag") => _ = head.etag.get_or_insert(value),
            10 if is(b"connection") => self.connection.add(value),
            12 if is(b"content-type") => _ = head.content_type.get_or_insert(value),
            13 if is(b"last-modified") => _ = head.last_modified.get_or_insert(value),
            14 if is(b"content-length") => self.content_length(value)?,
            17 if is(b"transfer-encoding") => self.transfer_encoding(value)?,
            20 if is(b"sec-websocket-accept") => _ = head.websocket_accept.get_or_insert(value),
            _ => {}
        }
        Ok(())
    }

    /// RFC 9112 section 6.3, rule 5: the same length may be there several times.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for digits in value.split(|&byte| byte == b',').map(trim_ows) {
            let length = decimal(digits).ok_or(BAD_LENGTH)?;
            if self.length.replace(length).is_some_and(|before| before != length) {
                return Err(TWO_LENGTHS);
            }
        }
        Ok(())
    }

    /// RFC 9112 section 6.1: chunked comes last, and once.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for coding in value.split(|&byte| byte == b',').map(trim_ows) {
            if !is_token(coding) {
                return Err(BAD_CODING);
            }
            if self.coding == TransferCoding::Chunked {
                return Err(BEHIND_CHUNKED);
            }
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.coding = if is_chunked { TransferCoding::Chunked } else { TransferCoding::Other };
        }
        Ok(())
    }

    /// Settles what depends on several fields.
    fn finish(mut self, is_http10: bool) -> Result<ResponseHead<'a>, Malformed> {
        if is_http10 && self.coding != TransferCoding::None {
            return Err(CODING_IN_HTTP10);
        }
        let framing = match (self.coding, self.length) {
            (TransferCoding::None, Some(length)) => ResponseBody::Length(length),
            (TransferCoding::None | TransferCoding::Other, None) => ResponseBody::UntilClose,
            (TransferCoding::Chunked, None) => ResponseBody::Chunked,
            (TransferCoding::Chunked | TransferCoding::Other, Some(_)) => {
                return Err(LENGTH_AND_CODING);
            }
        };
        let head = &mut self.head;
        head.body = match head.status {
            100..=199 | 204 | 304 => ResponseBody::None,
            _ => framing,
        };
        let persistent = !is_http10 || self.connection.keep_alive;
        let goes_on =
            head.body != ResponseBody::UntilClose && head.status != Status::SWITCHING_PROTOCOLS.0;
        head.keep_alive = persistent && !self.connection.close && goes_on;
        Ok(self.head)
    }
}

/// Says in a sentence what httparse found.
#[cold]
fn syntax(error: httparse::Error) -> Malformed {
    match error {
        httparse::Error::Version => NOT_HTTP,
        httparse::Error::Status | httparse::Error::Token => BAD_STATUS,
        httparse::Error::NewLine => BARE_CR,
        httparse::Error::HeaderName => BAD_FIELD_NAME,
        httparse::Error::HeaderValue => BAD_FIELD_VALUE,
        httparse::Error::TooManyHeaders => TOO_MANY_FIELDS,
    }
}

const NOT_HTTP: Malformed =
    Malformed { reason: "The answer does not begin with HTTP/1.1 or HTTP/1.0 and a status." };
const BAD_STATUS: Malformed =
    Malformed { reason: "The status must be three digits, and a reason without control bytes." };
const BARE_CR: Malformed = Malformed { reason: "The head has a CR that is not followed by LF." };
const BAD_FIELD_NAME: Malformed =
    Malformed { reason: "A header line does not begin with a field name and a colon." };
const BAD_FIELD_VALUE: Malformed =
    Malformed { reason: "A header field's value has a control byte." };
const TOO_MANY_FIELDS: Malformed =
    Malformed { reason: "The head has more than 100 header fields." };
const HEAD_BYTES: Malformed = Malformed { reason: "The head is longer than 16384 bytes." };
const BAD_LENGTH: Malformed =
    Malformed { reason: "Content-Length is not a decimal number that fits 64 bits." };
const TWO_LENGTHS: Malformed = Malformed { reason: "Content-Length was sent twice and differs." };
const BAD_CODING: Malformed =
    Malformed { reason: "Transfer-Encoding is not a list of names of codings." };
const BEHIND_CHUNKED: Malformed =
    Malformed { reason: "Transfer-Encoding names a coding behind chunked, which must be last." };
const LENGTH_AND_CODING: Malformed =
    Malformed { reason: "Content-Length and Transfer-Encoding were both sent." };
const CODING_IN_HTTP10: Malformed =
    Malformed { reason: "The answer is HTTP/1.0, which has no Transfer-Encoding, and sent one." };

#[cfg(test)]
mod tests;
