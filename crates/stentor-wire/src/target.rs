//! Request targets: path, query, and the topic or file a path names (RFC 3986).
//!
//! Percent-encoding is undone exactly once, here. What comes out is UTF-8 text and is never decoded
//! again, so "%252e" is the text "%2e" and no more than that. percent-encoding does not do it: it
//! lets broken escapes pass, and takes twice the time.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Deref;

use memchr::{memchr, memchr2};

use crate::error::{ErrorCode, Rejection};
use crate::rejections;

/// Text could not be percent-decoded: a `%` without two hexadecimal digits, or not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadEscape;

impl fmt::Display for BadEscape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .write_str("A % must be followed by two hexadecimal digits, and the text be UTF-8.")
    }
}

impl std::error::Error for BadEscape {}

/// The server in a URL, and what follows it: `SCHEME://HOST[:PORT]REST` (RFC 3986 section 3).
///
/// The parser of the crate `http` would not do: it takes `a:b` for a host with a port, `[a]` for an
/// address, and a name before the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server<'t> {
    /// As it was written. It is empty if there is none.
    pub scheme: &'t str,
    /// A name, an IPv4 address, or an IPv6 address in brackets.
    pub host: &'t str,
    /// From 1 to 65535, unless it is left out.
    pub port: Option<u16>,
    /// The path, the query and the fragment. It is empty or begins with one of `/?#`.
    pub rest: &'t str,
}

impl<'t> Server<'t> {
    /// Reads a URL. `None`: it has no host, a port that is none, a user, or a byte that belongs
    /// into none.
    #[must_use]
    pub fn parse(url: &'t str) -> Option<Server<'t>> {
        let (scheme, rest) = match url.split_once("://") {
            // Behind one of these it is a part of the path.
            Some((scheme, rest)) if !scheme.contains(['/', '?', '#']) => (scheme, rest),
            _ => ("", url),
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = host_and_port(authority)?;
        let is_outside = |byte: u8| !byte.is_ascii_graphic() || b"@\\\"<>".contains(&byte);
        let is_good = !host.bytes().any(is_outside) && rest.bytes().all(|b| b.is_ascii_graphic());
        is_good.then_some(Server { scheme, host, port, rest })
    }

    /// Reads the URL of a server alone: nothing follows it but a slash.
    #[must_use]
    pub fn alone(url: &'t str) -> Option<Server<'t>> {
        Server::parse(url).filter(|server| matches!(server.rest, "" | "/"))
    }
}

impl fmt::Display for Server<'_> {
    /// The server's URL, without what follows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Splits `HOST[:PORT]` of a URL (RFC 3986 section 3.2). The host is a name, an IPv4 address, or an
/// IPv6 address in brackets, which stay. The result is `None` for anything else, and for a port
/// that is not a number from 1 to 65535.
fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = match authority.strip_prefix('[') {
        Some(literal) => literal.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    match host.strip_prefix('[').and_then(|literal| literal.strip_suffix(']')) {
        Some(literal) => drop(ipv6_of(literal)?),
        None if host.is_empty() || host.contains(['[', ']']) => return None,
        None => {}
    }
    let Some(digits) = port.strip_prefix(':') else {
        return port.is_empty().then_some((host, None));
    };
    // `u16` takes a sign, ports do not.
    let port = digits.parse().ok().filter(|port| *port > 0 && !digits.starts_with('+'))?;
    Some((host, Some(port)))
}

/// The address in an IP literal without its brackets. Its zone (RFC 6874), with `%25` or `%`
/// before it, is checked and dropped.
#[must_use]
pub fn ipv6_of(literal: &str) -> Option<Ipv6Addr> {
    let (address, zone) = match literal.split_once('%') {
        Some((address, zone)) => (address, zone.strip_prefix("25").unwrap_or(zone)),
        None => (literal, "0"),
    };
    let is_of_zone = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_zone = (1..=ZONE_BYTES_MAX).contains(&zone.len()) && zone.bytes().all(is_of_zone);
    address.parse().ok().filter(|_| is_zone)
}

/// The longest name of a network interface on Linux (`IFNAMSIZ` without the NUL).
const ZONE_BYTES_MAX: usize = 15;

/// Splits a target at its first `?` into path and query.
pub fn split(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'?', target) {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    }
}

/// Percent-decodes a path, once; borrows when there is nothing to decode. A `+` stays a `+`.
pub fn decode(path: &[u8]) -> Result<Cow<'_, str>, BadEscape> {
    unescape(path, false)
}

/// The `name=value` pairs of a query, decoded, in order. Here `+` is a space, a name without `=`
/// has the value "", and empty pieces between ampersands are passed over.
pub fn pairs(
    query: &[u8],
) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), BadEscape>> {
    query.split(|&byte| byte == b'&').filter(|piece| !piece.is_empty()).map(|piece| {
        let (name, value) = match memchr(b'=', piece) {
            Some(equals) => (&piece[..equals], &piece[equals + 1..]),
            None => (piece, &b""[..]),
        };
        Ok((unescape(name, true)?, unescape(value, true)?))
    })
}

/// Whether a parameter has no meaning for the page that is asked for. `access_token` belongs to
/// access control. A name that begins with `_` is of a client that adds a number to each address,
/// so that no cache answers.
#[must_use]
pub fn is_ignored(name: &str) -> bool {
    name == "access_token" || name.starts_with('_')
}

/// The parameters of a query, as [`pairs`] returns them, if their names are among `names`. Those of
/// [`is_ignored`] are left out.
///
/// # Errors
///
/// [`ErrorCode::QueryInvalid`] or [`ErrorCode::ParameterUnknown`].
pub fn parameters<'q>(
    query: &'q [u8],
    names: &[&str],
) -> impl Iterator<Item = Result<(Cow<'q, str>, Cow<'q, str>), Rejection>> {
    let known = |pair: Result<(Cow<'q, str>, Cow<'q, str>), BadEscape>| match pair {
        Ok((name, _)) if is_ignored(&name) => None,
        Ok((name, _)) if !names.contains(&&*name) => Some(Err(unknown_parameter(&name, names))),
        pair => Some(pair.map_err(|_| broken_query())),
    };
    pairs(query).filter_map(known)
}

/// Rejects a query that cannot be decoded.
pub(crate) fn broken_query() -> Rejection {
    Rejection::because(ErrorCode::QueryInvalid, format!("The query is broken. {BadEscape}"))
}

/// Rejects a parameter that is not among `names`.
pub(crate) fn unknown_parameter(name: &str, names: &[&str]) -> Rejection {
    let (name, names) = (shortened(name), names.join(", "));
    let detail = format!("There is no parameter '{name}'; there are {names} and access_token.");
    Rejection::because(ErrorCode::ParameterUnknown, detail)
}

/// Escapes and shortens a client's text for a sentence that repeats it.
#[must_use]
pub fn shortened(text: &str) -> String {
    let cut = cut(text);
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

/// As much of a client's text as an error may repeat.
#[must_use]
pub fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

/// The name of a topic: text that was checked. Whoever is given one need not check it again.
///
/// A name is 1 to 512 bytes, the leading slash included, of segments that are not empty, "." or
/// "..", without control characters, and outside of what is reserved for the server itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicName<'a>(Cow<'a, str>);

impl<'a> TopicName<'a> {
    /// Takes a text for a name.
    ///
    /// # Errors
    ///
    /// If it may not name a topic.
    pub fn parse(text: impl Into<Cow<'a, str>>) -> Result<TopicName<'a>, Rejection> {
        let text = text.into();
        check_topic(&text)?;
        Ok(TopicName(text))
    }

    /// The same name, if a message may be published under it.
    ///
    /// # Errors
    ///
    /// If it has a `*`. Readers could not name the topic: a segment that is `*` is a pattern, and
    /// other uses of `*` are kept for later. Topics that are stored under such names can still be
    /// read and deleted.
    pub fn published(self) -> Result<TopicName<'a>, Rejection> {
        match memchr(b'*', self.0.as_bytes()) {
            None => Ok(self),
            Some(_) => Err(STAR_IN_TOPIC),
        }
    }

    /// Takes the path of a request target for a name; borrows when there is nothing to decode.
    ///
    /// # Errors
    ///
    /// As [`TopicName::parse`]; or [`BAD_PATH`], if it cannot be decoded.
    pub fn from_path(path: &'a [u8]) -> Result<TopicName<'a>, Rejection> {
        TopicName::parse(decode(path).map_err(|_| BAD_PATH)?)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same name in memory of its own, no more of it than needed.
    #[must_use]
    pub fn into_owned(self) -> TopicName<'static> {
        let text = self.0.into_owned().into_boxed_str();
        TopicName(Cow::Owned(text.into_string()))
    }
}

impl Deref for TopicName<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether a text may name a topic. If not, says why.
fn check_topic(name: &str) -> Result<(), Rejection> {
    let Some(path) = name.strip_prefix('/') else {
        return Err(TOPIC_START);
    };
    if name.len() > TOPIC_BYTES_MAX {
        return Err(TOPIC_BYTES);
    }
    if name.chars().any(char::is_control) {
        return Err(TOPIC_CONTROL);
    }
    // As bytes, which are split faster than characters: every line of a bulk publish comes by here.
    let mut segments = path.as_bytes().split(|byte| *byte == b'/');
    if segments.clone().any(|segment| matches!(segment, b"" | b"." | b"..")) {
        return Err(TOPIC_SEGMENT);
    }
    if matches!(segments.next(), Some(b"-" | b".well-known")) {
        return Err(TOPIC_RESERVED);
    }
    Ok(())
}

/// Why a path names no file that may be served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotAFile {
    /// It can name none, and looks like an attack (400).
    Refused(Rejection),
    /// There may be one, but it is as if there were not (404).
    Hidden,
}

/// Whether a decoded path that begins with '/' may name a file, or a directory, to be served.
///
/// What is refused is what a file system could read as another path than it looks: control
/// characters, backslashes, and segments that are empty, "." or "..". One slash may stand at the
/// end. What is hidden is what is not for the public, or too long for any file system: segments
/// that begin with a dot, except for a first one of ".well-known" (RFC 8615), a first one of "-",
/// which is the server's own, segments longer than 255 bytes, and paths longer than 4096 bytes.
pub fn check_file(path: &str) -> Result<(), NotAFile> {
    let Some(relative) = path.strip_prefix('/') else {
        return Err(NotAFile::Refused(PATH_START));
    };
    if path.chars().any(|char| char.is_control() || char == '\\') {
        return Err(NotAFile::Refused(PATH_CHARACTER));
    }
    // At the end it means a directory, and by itself the root.
    let segments = relative.strip_suffix('/').unwrap_or(relative).split('/');
    if path != "/" && segments.clone().any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(NotAFile::Refused(PATH_SEGMENT));
    }
    let is_hidden = |(i, segment): (usize, &str)| {
        let is_for_all = i == 0 && segment == ".well-known";
        let is_reserved = i == 0 && segment == "-";
        let is_private = segment.starts_with('.') && !is_for_all;
        is_reserved || is_private || segment.len() > SEGMENT_BYTES_MAX
    };
    if path.len() > PATH_BYTES_MAX || segments.enumerate().any(is_hidden) {
        return Err(NotAFile::Hidden);
    }
    Ok(())
}

/// Percent-decodes text in which `+` may be a space.
fn unescape(text: &[u8], plus_is_space: bool) -> Result<Cow<'_, str>, BadEscape> {
    let first = if plus_is_space { memchr2(b'%', b'+', text) } else { memchr(b'%', text) };
    let Some(first) = first else {
        return str::from_utf8(text).map(Cow::Borrowed).map_err(|_| BadEscape);
    };
    let hex = |digit: u8| char::from(digit).to_digit(16).ok_or(BadEscape);
    let mut decoded = Vec::with_capacity(text.len());
    decoded.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => ((hex(*high)? << 4 | hex(*low)?) as u8, after),
            (b'%', _) => return Err(BadEscape),
            (b'+', _) if plus_is_space => (b' ', after),
            _ => (*byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| BadEscape)
}

/// A path that names nothing at all.
pub const BAD_PATH: Rejection =
    Rejection::new(ErrorCode::PathInvalid, "The path has a broken %-escape or is not UTF-8.");

rejections! {
    TOPIC_START: TopicInvalid = "A topic must begin with '/'.";
    TOPIC_BYTES: TopicInvalid = "A topic must not be longer than 512 bytes.";
    TOPIC_CONTROL: TopicInvalid = "A topic must not have control characters.";
    TOPIC_SEGMENT: TopicInvalid = "A topic must not have a segment that is empty, '.' or '..'.";
    TOPIC_RESERVED: TopicReserved =
        "Topics under /-/ and /.well-known/ are reserved for the server.";
    STAR_IN_TOPIC: TopicInvalid = "A topic must not have a '*': it is kept for patterns.";
    PATH_START: PathInvalid = "A path must begin with '/'.";
    PATH_CHARACTER: PathInvalid =
        "The path of a file must not have control characters or backslashes.";
    PATH_SEGMENT: PathInvalid =
        "The path of a file must not have a segment that is empty, '.' or '..'.";
}

/// The longest topic, in bytes of UTF-8, the leading slash included.
pub const TOPIC_BYTES_MAX: usize = 512;
/// The longest path of a file and the longest segment of one, in bytes of UTF-8: `PATH_MAX` and
/// `NAME_MAX` of Linux.
const PATH_BYTES_MAX: usize = 4096;
const SEGMENT_BYTES_MAX: usize = 255;

/// The most bytes of what a client wrote that an error repeats.
const SHOWN_BYTES_MAX: usize = 160;

#[cfg(test)]
mod tests;
