//! Request heads (RFC 9112 sections 2, 3, 5 and 6).
//!
//! Finding the end of a head and understanding it are apart. [`scan`] is what runs as bytes come
//! in: it looks at every byte once, wherever the input was split, and settles line ends and size.
//! [`parse`] then runs once, on a complete head. Its syntax is httparse's; the rules on top are
//! ours, and where the RFC lets a recipient choose between repairing and refusing, they refuse.
//! The fields that mean something to Stentor are picked out in one pass, by the length of their
//! name first, since this runs for every request.

use std::cell::OnceCell;
use std::mem::MaybeUninit;

use memchr::{memchr, memchr_iter};

use super::request::{FIELDS, Method, Request};
use crate::error::Rejection;
use crate::{byte_table, is_tchar, is_token, rejections, target, trim_ows};

/// The longest head, in bytes, from the first byte to the final CRLF. It is also the longest
/// request line, so it must be well above the 8000 bytes of RFC 9112 section 3.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The most fields of one head.
pub const FIELDS_MAX: usize = 100;

/// What [`scan`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// The head is complete.
    Complete {
        /// Its length in bytes, empty lines before it and its final CRLF included.
        len: usize,
    },
    /// The head goes on beyond the input.
    Partial {
        /// What to pass to the next call: how many bytes need not be looked at again.
        scanned: usize,
    },
}

/// Looks for the end of the head that `bytes` begins with.
///
/// `scanned` is 0 at first, and afterwards what the last call returned for the same bytes with
/// more behind them. Every byte is looked at once, so the cost is linear however they arrive.
///
/// Up to four empty lines before the request line are tolerated (RFC 9112 section 2.2). A bare LF
/// is refused, as is a first byte that no method begins with, and a head that has not ended after
/// [`HEAD_BYTES_MAX`]: with 414 if that is within the request line, else with 431.
pub fn scan(bytes: &[u8], scanned: usize) -> Result<Scan, Rejection> {
    let start = leading_bytes(bytes);
    match bytes[start..] {
        [] | [b'\r'] => return Ok(Scan::Partial { scanned: bytes.len() }),
        [first, ..] if is_tchar(first) => {}
        ref rest => return Err(first_byte_rejection(rest)),
    }
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let from = scanned.clamp(start, window.len());
    for found in memchr_iter(b'\n', &window[from..]) {
        let lf = from + found;
        // The first byte is neither CR nor LF, so there is at least one byte before `lf`.
        if window[lf - 1] != b'\r' {
            return Err(BARE_LF);
        }
        // A line of nothing but CRLF ends the head.
        if window[lf - 2] == b'\n' {
            return Ok(Scan::Complete { len: lf + 1 });
        }
    }
    if bytes.len() < HEAD_BYTES_MAX {
        Ok(Scan::Partial { scanned: bytes.len() })
    } else if memchr(b'\n', &window[start..]).is_none() {
        Err(TARGET_BYTES)
    } else {
        Err(HEAD_BYTES)
    }
}

/// Room for the fields of one head, left uninitialised until [`parse`] fills it. It lives on the
/// caller's stack and costs nothing to make.
pub struct FieldSlots<'a> {
    pub(super) fields: [MaybeUninit<httparse::Header<'a>>; FIELDS_MAX],
    /// All lists of a head of which one came in several lines, each as one. Only then it allocates.
    joined: OnceCell<Vec<u8>>,
    /// A head of a later minor version as one of HTTP/1.1. Only for such a one it allocates.
    as_http11: OnceCell<Vec<u8>>,
}

impl FieldSlots<'_> {
    /// Empty room.
    pub const fn new() -> Self {
        let fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        FieldSlots { fields, joined: OnceCell::new(), as_http11: OnceCell::new() }
    }
}

impl Default for FieldSlots<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// The protocol version of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, or a later minor version, which is understood as this one (RFC 9110 section 2.5).
    Http11,
}

/// How the body is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// There is none: neither Content-Length nor Transfer-Encoding was sent.
    None,
    /// Content-Length, in bytes.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

impl BodyLength {
    /// Whether no byte of a body follows the head.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, BodyLength::None | BodyLength::Length(0))
    }
}

/// What a head says of the connection: where the request ends, and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// The version.
    pub version: Version,
    /// How the body is framed.
    pub body: BodyLength,
    /// Whether the connection may carry another request (RFC 9112 section 9.3). False as well for
    /// CONNECT and for an offer of a WebSocket: what follows may not be HTTP, and must never be
    /// taken for a request. A client that offers another protocol, such as h2c, may not switch
    /// before a 101 that the server never sends, so its connection is kept.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section
    /// 10.1.1). Never when there is no body to wait for, nor in HTTP/1.0.
    pub expect_continue: bool,
}

/// A request head: what is asked for, and how HTTP/1 brings it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// What is asked for.
    pub request: Request<'a>,
    /// How it is framed.
    pub framing: Framing,
}

/// Understands one head: exactly the bytes that [`scan`] called complete.
///
/// Everything that leaves the framing in doubt is refused (400, or 501 for a transfer coding we do
/// not know), and so are another major version than 1 (505), an unknown method (501), more than
/// [`FIELDS_MAX`] fields (431) and an expectation other than 100-continue (417).
pub fn parse<'a>(bytes: &'a [u8], slots: &'a mut FieldSlots<'a>) -> Result<Head<'a>, Rejection> {
    let FieldSlots { fields, joined, as_http11 } = slots;
    read(bytes, fields, joined, as_http11)
}

/// What [`parse`] does, with its slots apart.
fn read<'a>(
    bytes: &'a [u8],
    fields: &mut [MaybeUninit<httparse::Header<'a>>],
    joined: &'a OnceCell<Vec<u8>>,
    as_http11: &'a OnceCell<Vec<u8>>,
) -> Result<Head<'a>, Rejection> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, fields) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Ok(_) => return Err(NOT_ONE_HEAD),
        Err(httparse::Error::Version) => {
            let known = with_known_version(bytes).ok_or_else(|| version_rejection(bytes))?;
            return read(as_http11.get_or_init(|| known), fields, joined, as_http11);
        }
        Err(error) => return Err(syntax_rejection(error, bytes)),
    }
    let method = method(request.method.unwrap_or_default())?;
    let version = if request.version == Some(0) { Version::Http10 } else { Version::Http11 };
    let (target, authority) = request_target(method, request.path.unwrap_or_default().as_bytes())?;
    let mut reading = HeadReader::new(Request::new(method, target), version);
    reading.authority = authority;
    for field in request.headers.iter() {
        reading.field(field.name.as_bytes(), field.value)?;
    }
    if reading.has_more_lines {
        join_lists(&mut reading.request, request.headers, joined);
    }
    reading.finish()
}

/// A head whose fields are being read, and what must be known of all of them to finish it.
struct HeadReader<'a> {
    request: Request<'a>,
    version: Version,
    /// The authority that an absolute target names.
    authority: Option<&'a [u8]>,
    body: BodyLength,
    expect_seen: bool,
    connection: Connection,
    /// A list goes on in another line than its first.
    has_more_lines: bool,
}

/// The connection options that were sent (RFC 9110 section 7.6.1).
#[derive(Clone, Copy, Default)]
pub(super) struct Connection {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    upgrade: bool,
}

impl<'a> HeadReader<'a> {
    fn new(request: Request<'a>, version: Version) -> HeadReader<'a> {
        HeadReader {
            request,
            version,
            authority: None,
            body: BodyLength::None,
            expect_seen: false,
            connection: Connection::default(),
            has_more_lines: false,
        }
    }

    /// Takes one field.
    #[inline]
    fn field(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Rejection> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            6 if is(b"expect") => self.expect(value),
            10 if is(b"connection") => {
                self.connection.add(value);
                Ok(())
            }
            14 if is(b"content-length") => self.content_length(value),
            17 if is(b"transfer-encoding") => self.transfer_encoding(value),
            _ => self.request.take(name, value, &mut self.has_more_lines),
        }
    }

    /// RFC 9112 section 6.3, rule 5, without the leave to accept a repeated length.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Rejection> {
        match self.body {
            BodyLength::None => {}
            BodyLength::Length(_) => return Err(TWO_LENGTHS),
            BodyLength::Chunked => return Err(LENGTH_AND_CODING),
        }
        self.body = BodyLength::Length(decimal(value).ok_or(BAD_LENGTH)?);
        Ok(())
    }

    /// RFC 9112 section 6.1: only `chunked`, only in HTTP/1.1, only once, never with a length.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Rejection> {
        match self.body {
            BodyLength::None => {}
            BodyLength::Length(_) => return Err(LENGTH_AND_CODING),
            BodyLength::Chunked => return Err(TWO_CODINGS),
        }
        if self.version == Version::Http10 {
            return Err(CODING_IN_HTTP10);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(coding_rejection(value));
        }
        self.body = BodyLength::Chunked;
        Ok(())
    }

    /// RFC 9110 section 10.1.1: the one expectation there is; HTTP/1.0 has none.
    fn expect(&mut self, value: &[u8]) -> Result<(), Rejection> {
        if self.version == Version::Http10 {
            return Ok(());
        }
        if self.expect_seen {
            return Err(TWO_EXPECTATIONS);
        }
        self.expect_seen = true;
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(BAD_EXPECTATION);
        }
        Ok(())
    }

    /// Settles what depends on several fields.
    fn finish(self) -> Result<Head<'a>, Rejection> {
        let HeadReader { mut request, version, authority, body, expect_seen, connection, .. } =
            self;
        let persistent = match version {
            Version::Http11 if request.host.is_none() => return Err(NO_HOST),
            Version::Http11 => true,
            Version::Http10 => connection.keep_alive,
        };
        // RFC 9112 section 3.2.2: an absolute target overrides the field, which must be there.
        request.host = authority.or(request.host);
        let offers_websocket = connection.upgrade && request.upgrade.is_some_and(names_websocket);
        let leaves_http = request.method == Method::Connect || offers_websocket;
        let keep_alive = persistent && !connection.close && !leaves_http;
        if !offers_websocket || version == Version::Http10 {
            request.upgrade = None;
        }
        let expect_continue = expect_seen && !body.is_empty();
        Ok(Head { request, framing: Framing { version, body, keep_alive, expect_continue } })
    }
}

/// Whether an `Upgrade` field offers the one protocol that the server switches to.
fn names_websocket(upgrade: &[u8]) -> bool {
    let mut names = upgrade.split(|&byte| byte == b',').map(trim_ows);
    names.any(|name| name.eq_ignore_ascii_case(b"websocket"))
}

impl Connection {
    pub(super) fn add(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(trim_ows) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                _ => {}
            }
        }
    }
}

/// A field as a request keeps it.
type Slot<'a> = Option<&'a [u8]>;

/// Keeps the first line of a list, and notes that there are more.
#[inline]
pub(super) fn list<'a>(
    slot: &mut Slot<'a>,
    value: &'a [u8],
    has_more: &mut bool,
) -> Result<(), Rejection> {
    *has_more |= slot.is_some();
    slot.get_or_insert(value);
    Ok(())
}

pub(super) use list as cookies;

/// Makes one line of the lines of each list, in their order (RFC 9110 section 5.3). Empty ones say
/// nothing and are left out.
#[cold]
fn join_lists<'a>(
    request: &mut Request<'a>,
    fields: &[httparse::Header<'a>],
    joined: &'a OnceCell<Vec<u8>>,
) {
    let mut lengths = [0; FIELDS.len()];
    let mut bytes = Vec::new();
    let lists = || FIELDS.iter().filter_map(|field| field.separator.map(|by| (field, by)));
    for ((list, separator), length) in lists().zip(&mut lengths) {
        let start = bytes.len();
        for field in fields.iter().filter(|field| field.name.eq_ignore_ascii_case(list.name)) {
            if bytes.len() > start && !field.value.is_empty() {
                bytes.extend_from_slice(separator.as_bytes());
            }
            bytes.extend_from_slice(field.value);
        }
        *length = bytes.len() - start;
    }
    let mut rest = &joined.get_or_init(|| bytes)[..];
    for ((list, _), length) in lists().zip(lengths) {
        let (value, after) = rest.split_at(length);
        if let Some(line) = (list.slot)(request) {
            *line = value;
        }
        rest = after;
    }
}

/// Keeps the first of several lines.
#[inline]
pub(super) fn first<'a>(
    slot: &mut Slot<'a>,
    value: &'a [u8],
    _has_more: &mut bool,
) -> Result<(), Rejection> {
    slot.get_or_insert(value);
    Ok(())
}

/// Keeps the only line; a second is refused.
#[inline]
pub(super) fn once<'a>(
    slot: &mut Slot<'a>,
    value: &'a [u8],
    _has_more: &mut bool,
    repeated: Rejection,
) -> Result<(), Rejection> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(repeated),
    }
}

/// RFC 9112 section 3.2: one Host, and a valid one. An empty value is valid.
#[inline]
pub(super) fn host<'a>(
    slot: &mut Slot<'a>,
    value: &'a [u8],
    has_more: &mut bool,
    repeated: Rejection,
) -> Result<(), Rejection> {
    once(slot, value, has_more, repeated)?;
    split_authority(value).map(drop).ok_or(BAD_HOST)
}

/// Length of the empty lines before the request line, of which a few are tolerated because some
/// old clients send CRLF after a body.
fn leading_bytes(bytes: &[u8]) -> usize {
    let mut len = 0;
    while len < LEADING_BYTES_MAX && bytes[len..].starts_with(b"\r\n") {
        len += 2;
    }
    len
}

/// Why a request cannot begin like this.
#[cold]
fn first_byte_rejection(rest: &[u8]) -> Rejection {
    match rest {
        [TLS_HANDSHAKE, ..] => TLS,
        [b'\r', b'\n', ..] => EMPTY_LINES,
        [b'\r', ..] => BARE_CR,
        [b'\n', ..] => BARE_LF,
        _ => NOT_HTTP,
    }
}

fn method(token: &str) -> Result<Method, Rejection> {
    Ok(match token {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        "TRACE" => Method::Trace,
        "CONNECT" => Method::Connect,
        _ => return Err(UNKNOWN_METHOD),
    })
}

/// Reduces the four forms of RFC 9112 section 3.2 to what [`Request::target`] promises, and the
/// authority of an absolute target.
fn request_target(method: Method, target: &[u8]) -> Result<Target<'_>, Rejection> {
    // Without an early exit the loop is vectorised, and nearly every target is all good.
    let is_good = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if !target.iter().fold(true, |good, &byte| good & is_good(byte)) {
        return Err(TARGET_BYTE);
    }
    match (method, target) {
        (Method::Connect, _) => match split_authority(target) {
            Some(([_, ..], [_, ..])) => Ok((target, None)),
            _ => Err(CONNECT_TARGET),
        },
        (_, [b'/', ..]) => Ok((target, None)),
        (Method::Options, b"*") => Ok((target, None)),
        (_, b"*") => Err(ASTERISK),
        _ => absolute_target(method, target),
    }
}

/// Path and query, and the authority that an absolute target names.
type Target<'a> = (&'a [u8], Option<&'a [u8]>);

/// The path and query of an absolute-form target, and its authority, which must be valid and not
/// empty.
fn absolute_target(method: Method, target: &[u8]) -> Result<Target<'_>, Rejection> {
    let colon = memchr(b':', target).ok_or(TARGET_FORM)?;
    let (scheme, rest) = target.split_at(colon);
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(TARGET_FORM);
    }
    let rest = rest.strip_prefix(b"://").ok_or(TARGET_FORM)?;
    let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !matches!(split_authority(authority), Some(([_, ..], _))) {
        return Err(TARGET_AUTHORITY);
    }
    let path: &[u8] = match path {
        // RFC 9112 section 3.2.4: OPTIONS without a path asks about the server as a whole.
        [] if method == Method::Options => b"*",
        [] => b"/",
        [b'/', ..] => path,
        _ => return Err(TARGET_NO_PATH),
    };
    Ok((path, Some(authority)))
}

/// Splits `uri-host [ ":" port ]` (RFC 9112 section 3.2, RFC 3986 section 3.2) into host and
/// port digits; either may be empty. `None` if it is not that. A comma is valid in a registered
/// name, but means that two Hosts were joined, so it is refused. Of IP literals only IPv6 exists.
/// It may have a zone (RFC 6874), which clients send though it means nothing here.
fn split_authority(authority: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = if authority.first() == Some(&b'[') {
        let close = memchr(b']', authority)?;
        let literal = str::from_utf8(&authority[1..close]).ok()?;
        target::ipv6_of(literal)?;
        close + 1
    } else {
        let is_name = |byte: &u8| NAME_BYTES[usize::from(*byte)];
        authority.iter().position(|byte| !is_name(byte)).unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(end);
    let is_name = !host.starts_with(b"[");
    if is_name && host.contains(&b'%') && target::decode(host).is_err() {
        return None;
    }
    match port {
        [] => Some((host, port)),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => Some((host, digits)),
        _ => None,
    }
}

/// `1*DIGIT` without overflow: no sign, no list, nothing else that a lenient parser would take.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Why a Transfer-Encoding other than `chunked` is refused: 501 if it is valid and merely names a
/// coding we do not have, else 400, since then the end of the body is anyone's guess.
#[cold]
fn coding_rejection(value: &[u8]) -> Rejection {
    let mut chunked_count = 0;
    let mut chunked_last = false;
    for coding in value.split(|&byte| byte == b',').map(trim_ows) {
        let name_end = memchr(b';', coding).unwrap_or(coding.len());
        let name = trim_ows(&coding[..name_end]);
        if !is_token(name) {
            return BAD_CODING;
        }
        let is_chunked = name.eq_ignore_ascii_case(b"chunked");
        chunked_count += usize::from(is_chunked);
        chunked_last = is_chunked && name.len() == coding.len();
    }
    if chunked_last && chunked_count == 1 { UNKNOWN_CODING } else { BAD_CODING }
}

/// Turns what httparse found into an answer. It stops at the first byte it does not expect, so the
/// request line is looked at again.
#[cold]
fn syntax_rejection(error: httparse::Error, bytes: &[u8]) -> Rejection {
    let mut words = request_line(bytes).splitn(3, |&byte| byte == b' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    match error {
        httparse::Error::Version => version_rejection(bytes),
        httparse::Error::TooManyHeaders => TOO_MANY_FIELDS,
        httparse::Error::HeaderName => BAD_FIELD_NAME,
        httparse::Error::HeaderValue => BAD_FIELD_VALUE,
        httparse::Error::NewLine => match words.next() {
            Some(b"HTTP/1.0" | b"HTTP/1.1") => BARE_CR,
            _ => BAD_REQUEST_LINE,
        },
        _ if is_token(method) && !target.is_ascii() => TARGET_BYTE,
        httparse::Error::Token | httparse::Error::Status => BAD_REQUEST_LINE,
    }
}

/// The request line of a head, without its end.
fn request_line(bytes: &[u8]) -> &[u8] {
    let line = &bytes[leading_bytes(bytes)..];
    &line[..memchr(b'\r', line).unwrap_or(line.len())]
}

/// A head of a later minor version of ours, as one of HTTP/1.1: whatever that version added may be
/// ignored.
#[cold]
fn with_known_version(bytes: &[u8]) -> Option<Vec<u8>> {
    let line = request_line(bytes);
    let is_later = match line.splitn(3, |&byte| byte == b' ').nth(2) {
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor]) => matches!(minor, b'2'..=b'9'),
        _ => false,
    };
    let mut known = is_later.then(|| bytes.to_vec())?;
    known[leading_bytes(bytes) + line.len() - 1] = b'1';
    Some(known)
}

/// 505 for a well-formed version that is not ours, 400 for anything else in its place.
fn version_rejection(bytes: &[u8]) -> Rejection {
    match request_line(bytes).splitn(3, |&byte| byte == b' ').nth(2) {
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            UNKNOWN_VERSION
        }
        _ => BAD_REQUEST_LINE,
    }
}

/// Bytes of empty lines before a request line that are tolerated: four lines.
const LEADING_BYTES_MAX: usize = 8;
/// The first byte of a TLS ClientHello.
const TLS_HANDSHAKE: u8 = 0x16;

/// The bytes of a registered name or IPv4 address (RFC 3986 section 3.2.2), the comma excepted.
static NAME_BYTES: [bool; 256] = byte_table(b"-._~!$&'()*+;=%");

rejections! {
    TLS: TlsOnPlainPort = "This port speaks plain HTTP, not TLS; use http:// instead of https://.";
    NOT_HTTP: RequestInvalid = "This is not an HTTP request; it must begin with a method.";
    EMPTY_LINES: RequestInvalid = "There are too many empty lines before the request.";
    BARE_LF: RequestInvalid = "A line of the head ended in LF alone; end every line with CRLF.";
    BARE_CR: RequestInvalid =
        "The head has a CR that is not followed by LF; end every line with CRLF.";
    TARGET_BYTES: RequestLineTooLong = "The request line must not be longer than 16384 bytes.";
    HEAD_BYTES: HeadTooLarge =
        "The request head must not be longer than 16384 bytes; send fewer or shorter fields.";
    TOO_MANY_FIELDS: HeadTooLarge =
        "The request has more than 100 header fields; send fewer.";
    NOT_ONE_HEAD: RequestInvalid = "The head ends before its last line.";
    BAD_REQUEST_LINE: RequestInvalid =
        "The request line must be a method, a target and HTTP/1.1, with one space between them.";
    UNKNOWN_VERSION: HttpVersionUnsupported =
        "This protocol version is not spoken here; use HTTP/1.1.";
    UNKNOWN_METHOD: MethodUnknown =
        "This method is not known here; methods are case-sensitive, as in GET or PUT.";
    BAD_FIELD_NAME: HeaderInvalid =
        "A header line must begin with a field name that a colon directly follows, without spaces.";
    BAD_FIELD_VALUE: HeaderInvalid = "A header field's value has a control character; remove it.";
    TARGET_BYTE: TargetInvalid =
        "The target has a byte that must be percent-encoded: '#', a space, or one outside ASCII.";
    TARGET_FORM: TargetInvalid =
        "The target must begin with '/', or be a whole http:// or https:// address.";
    TARGET_AUTHORITY: TargetInvalid =
        "The target's host must be a name or address, with at most a port behind it.";
    TARGET_NO_PATH: TargetInvalid = "The target has a query but no path; put a '/' before the '?'.";
    ASTERISK: TargetInvalid = "Only OPTIONS may have the target '*'.";
    CONNECT_TARGET: TargetInvalid = "The target of CONNECT must be a host and a port.";
    NO_HOST: HostInvalid = "An HTTP/1.1 request must have a Host field.";
    BAD_HOST: HostInvalid = "Host must be one name or address, with at most a port behind it.";
    LENGTH_AND_CODING: FramingInvalid =
        "Content-Length and Transfer-Encoding were both sent; send only one of them.";
    TWO_LENGTHS: HeaderRepeated = "Content-Length was sent twice; send it once.";
    BAD_LENGTH: FramingInvalid = "Content-Length must be one decimal number that fits 64 bits.";
    TWO_CODINGS: HeaderRepeated = "Transfer-Encoding was sent twice; send it once.";
    CODING_IN_HTTP10: FramingInvalid =
        "HTTP/1.0 has no Transfer-Encoding; send Content-Length or use HTTP/1.1.";
    BAD_CODING: FramingInvalid =
        "Transfer-Encoding must end in chunked, and name it once; send just chunked.";
    UNKNOWN_CODING: TransferCoding =
        "Only the transfer coding chunked is known here; compress with Content-Encoding instead.";
    BAD_EXPECTATION: ExpectationUnsupported = "The only expectation known here is 100-continue.";
    TWO_EXPECTATIONS: HeaderRepeated = "Expect was sent twice; send it once.";
}

#[cfg(test)]
mod tests;
