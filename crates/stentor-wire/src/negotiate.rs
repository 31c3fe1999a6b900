//! What a client accepts, and what it already has (RFC 9110 sections 12.5 and 13.1), and how long
//! it is willing to wait for something else (RFC 7240).
//!
//! Lists that clients send are read leniently: a member that makes no sense is passed over, since
//! the worst that can come of it is an answer that is less compressed, or sent once more than
//! necessary. Nothing here can refuse a request.

use std::iter;
use std::time::UNIX_EPOCH;

use memchr::memchr;

use crate::{saturating_decimal, split_unquoted, trim_ows, unquoted};

/// A content coding (RFC 9110 section 8.4.1, RFC 7932, RFC 8878).
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encoding {
    /// Not encoded.
    Identity,
    /// gzip
    Gzip,
    /// Brotli
    Br,
    /// Zstandard
    Zstd,
}

impl Encoding {
    /// All encodings, in the order of their discriminants.
    pub const ALL: [Encoding; 4] =
        [Encoding::Identity, Encoding::Gzip, Encoding::Br, Encoding::Zstd];

    /// What an entity tag of this encoding ends in, before the closing quote.
    pub const fn suffix(self) -> &'static str {
        match self {
            Encoding::Identity => "",
            Encoding::Gzip => ".gz",
            Encoding::Br => ".br",
            Encoding::Zstd => ".zst",
        }
    }

    /// Its name in Content-Encoding and Accept-Encoding.
    pub const fn token(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
            Encoding::Br => "br",
            Encoding::Zstd => "zstd",
        }
    }

    /// The encoding of this name, in any case; `x-gzip` is gzip (RFC 9110 section 8.4.1.3).
    pub fn from_token(token: &[u8]) -> Option<Encoding> {
        let is = |known: &[u8]| token.eq_ignore_ascii_case(known);
        match token.len() {
            2 if is(b"br") => Some(Encoding::Br),
            4 if is(b"gzip") => Some(Encoding::Gzip),
            4 if is(b"zstd") => Some(Encoding::Zstd),
            6 if is(b"x-gzip") => Some(Encoding::Gzip),
            8 if is(b"identity") => Some(Encoding::Identity),
            _ => None,
        }
    }
}

/// A set of encodings.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Encodings(u8);

impl Encodings {
    /// The set that holds none.
    pub const EMPTY: Encodings = Encodings(0);

    /// The set of all encodings.
    pub const ALL: Encodings = Encodings((1 << Encoding::ALL.len()) - 1);

    /// Whether `encoding` is in the set.
    pub const fn contains(self, encoding: Encoding) -> bool {
        self.0 & (1 << encoding as u8) != 0
    }

    /// Adds `encoding`.
    pub const fn insert(&mut self, encoding: Encoding) {
        self.0 |= 1 << encoding as u8;
    }
}

impl FromIterator<Encoding> for Encodings {
    fn from_iter<I: IntoIterator<Item = Encoding>>(encodings: I) -> Encodings {
        let mut set = Encodings::EMPTY;
        encodings.into_iter().for_each(|encoding| set.insert(encoding));
        set
    }
}

/// What an Accept-Encoding allows (RFC 9110 section 12.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acceptable {
    /// The weight of each encoding, by discriminant; 0 is not acceptable.
    weights: [u16; Encoding::ALL.len()],
}

impl Acceptable {
    /// Reads an Accept-Encoding. Without one, or with an empty one, only identity will do: the RFC
    /// would let us send anything when it is absent, but who does not ask often cannot decode.
    pub fn parse(header: Option<&[u8]>) -> Acceptable {
        let mut named = [None; 4];
        let mut others = None;
        for member in header.unwrap_or_default().split(|&byte| byte == b',') {
            let (name, parameters) = split_parameters(member);
            let Some(weight) = weight(parameters) else { continue };
            if name == b"*" {
                others.get_or_insert(weight);
            } else if let Some(encoding) = Encoding::from_token(name) {
                named[encoding as usize].get_or_insert(weight);
            }
        }
        let mut weights = named.map(|weight| weight.or(others).unwrap_or(0));
        // What is not mentioned is identity's case special: it remains acceptable, as a last
        // resort, and so has a weight below all that can be sent.
        let identity = named[Encoding::Identity as usize].or(others);
        weights[Encoding::Identity as usize] = identity.unwrap_or(WEIGHT_LEAST);
        Acceptable { weights }
    }

    /// The encoding among `available` with the highest weight; between equals br, then zstd, gzip
    /// and identity. `None` if no available one is acceptable.
    pub fn best(&self, available: Encodings) -> Option<Encoding> {
        let mut best = None;
        let mut best_weight = 0;
        for encoding in [Encoding::Br, Encoding::Zstd, Encoding::Gzip, Encoding::Identity] {
            let weight = self.weights[encoding as usize];
            if weight > best_weight && available.contains(encoding) {
                best = Some(encoding);
                best_weight = weight;
            }
        }
        best
    }
}

/// Whether an If-None-Match or If-Match names the message with this id.
///
/// Our tags are `"EPOCH-SEQ"` with the suffix of an encoding. Any encoding of a message is the same
/// message, so suffixes are ignored, also those that proxies append when they compress (`-gzip`,
/// `--gzip`, `;gzip`, `:br`). So is `W/`, because caches on the way weaken tags, and quotes may be
/// missing. `*` names every message. For If-Match this is laxer than the strong comparison
/// of RFC 9110 section 13.1.1, and as safe: an id never names two different messages.
pub fn tag_matches(header: &[u8], id: &[u8]) -> bool {
    is_any(header) || tags(header).any(|tag| tag_names(tag.text, id))
}

/// Whether a condition is `*`, which holds for any message but not for none. It may have been sent
/// in more than one line; beside tags it is malformed, and names nothing.
pub fn is_any(header: &[u8]) -> bool {
    header.split(|&byte| byte == b',').all(|member| trim_ows(member) == b"*")
}

/// Reads a date in any of the three forms of RFC 9110 section 5.6.7, as seconds since 1970.
/// `None` if it is not one; such a condition is to be ignored.
pub fn http_date(header: &[u8]) -> Option<u64> {
    let text = str::from_utf8(header).ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The media type among `offered` that an Accept (RFC 9110 section 12.5.1) prefers.
///
/// Each is weighed by the most specific range that covers it, and the first of equals wins, as does
/// the first of all when there is no Accept. `None` if none is acceptable. Parameters other than
/// `q` are ignored on both sides.
pub fn media_type<'t>(accept: Option<&[u8]>, offered: &[&'t str]) -> Option<&'t str> {
    let Some(accept) = accept.filter(|accept| !trim_ows(accept).is_empty()) else {
        return offered.first().copied();
    };
    let mut best = None;
    let mut best_weight = 0;
    for &media_type in offered {
        let weight = media_weight(accept, essence(media_type).as_bytes());
        if weight > best_weight {
            best = Some(media_type);
            best_weight = weight;
        }
    }
    best
}

/// Whether an Accept asks for an event stream: it must name `text/event-stream` itself, with a
/// weight. Wildcards do not, since every browser that follows a link sends one, and a stream is
/// never what it means.
pub fn accepts_events(accept: Option<&[u8]>) -> bool {
    split_unquoted(accept.unwrap_or_default(), b',').any(|member| {
        let (range, parameters) = split_parameters(member);
        range.eq_ignore_ascii_case(b"text/event-stream")
            && weight(parameters).is_some_and(|weight| weight > 0)
    })
}

/// The seconds of a Prefer's `wait` (RFC 7240 section 4.3), of the first one that is a number. One
/// too large to count is as large as can be.
pub fn prefer_wait_s(value: &[u8]) -> Option<u64> {
    split_unquoted(value, b',').find_map(|preference| {
        let preference = split_unquoted(preference, b';').next()?;
        let equals = memchr(b'=', preference)?;
        if !trim_ows(&preference[..equals]).eq_ignore_ascii_case(b"wait") {
            return None;
        }
        saturating_decimal(unquoted(trim_ows(&preference[equals + 1..])))
    })
}

/// Whether content of this type is likely to become smaller by compression.
pub fn compressible(content_type: &str) -> bool {
    let essence = essence(content_type).as_bytes();
    let starts = |prefix: &[u8]| {
        essence.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let ends = |suffix: &[u8]| {
        let start = essence.len().checked_sub(suffix.len());
        start.is_some_and(|start| essence[start..].eq_ignore_ascii_case(suffix))
    };
    starts(b"text/")
        || ends(b"+json")
        || ends(b"+xml")
        || COMPRESSIBLE.iter().any(|known| essence.eq_ignore_ascii_case(known.as_bytes()))
}

/// Splits a list member at its first semicolon, and drops the whitespace around its name.
fn split_parameters(member: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b';', member) {
        Some(semicolon) => (trim_ows(&member[..semicolon]), &member[semicolon + 1..]),
        None => (trim_ows(member), b""),
    }
}

/// The `q` among parameters; the full weight without one, `None` if it is not a number from 0 to 1.
fn weight(parameters: &[u8]) -> Option<u16> {
    for parameter in split_unquoted(parameters, b';').map(trim_ows) {
        if let [b'q' | b'Q', b'=', number @ ..] = parameter {
            return thousandths(number).map(|thousandths| thousandths * WEIGHT_STEP);
        }
    }
    Some(WEIGHT_FULL)
}

/// `qvalue` of RFC 9110 section 12.4.2 in thousandths. ".5", which old clients send, is taken too.
fn thousandths(number: &[u8]) -> Option<u16> {
    let (whole, digits) = match number {
        [whole @ b'0'..=b'1', b'.', digits @ ..] => (u16::from(whole - b'0'), digits),
        [whole @ b'0'..=b'1'] => (u16::from(whole - b'0'), &b""[..]),
        [b'.', digits @ ..] if !digits.is_empty() => (0, digits),
        _ => return None,
    };
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut thousandths = whole;
    for place in 0..3 {
        let digit = digits.get(place).map_or(0, |digit| u16::from(digit - b'0'));
        thousandths = thousandths * 10 + digit;
    }
    (thousandths <= 1000).then_some(thousandths)
}

/// The weight an Accept gives to one media type: that of the most specific range, 0 if none.
fn media_weight(accept: &[u8], essence: &[u8]) -> u16 {
    let group_len = memchr(b'/', essence).map_or(0, |slash| slash + 1);
    let mut best_specificity = 0;
    let mut best_weight = 0;
    for member in split_unquoted(accept, b',') {
        let (range, parameters) = split_parameters(member);
        let specificity = match range {
            b"*/*" | b"*" => 1,
            [group @ .., b'*'] if group.eq_ignore_ascii_case(&essence[..group_len]) => 2,
            _ if range.eq_ignore_ascii_case(essence) => 3,
            _ => continue,
        };
        let Some(weight) = weight(parameters) else { continue };
        if specificity > best_specificity {
            best_specificity = specificity;
            best_weight = weight;
        }
    }
    best_weight
}

/// A media type without its parameters. It has no space before it.
pub fn essence(media_type: &str) -> &str {
    let end = memchr(b';', media_type.as_bytes()).unwrap_or(media_type.len());
    media_type[..end].trim_end_matches([' ', '\t'])
}

/// A member of a list of entity tags, as a client sent it.
pub(crate) struct Tag<'a> {
    /// What stands between the quotes, or all of it where there are none.
    pub(crate) text: &'a [u8],
    /// Whether `W/` stood before it.
    pub(crate) weak: bool,
    /// Whether it has the form of RFC 9110 section 8.8.3: both quotes, no space within them, and
    /// nothing behind them.
    pub(crate) well_formed: bool,
}

/// The members of a list of entity tags. A comma between quotes is part of a tag, and what is
/// malformed is a member too; whoever compares decides what it is worth.
pub(crate) fn tags(list: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    let mut rest = list;
    iter::from_fn(move || {
        let (tag, after) = next_tag(rest)?;
        rest = after;
        Some(tag)
    })
}

/// The first member of a list of entity tags, and what comes after it.
fn next_tag(list: &[u8]) -> Option<(Tag<'_>, &[u8])> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = list.iter().position(|byte| *byte != b',' && !is_space(byte))?;
    let list = &list[start..];
    let strong = list.strip_prefix(b"W/").unwrap_or(list);
    let weak = strong.len() < list.len();
    let (end_byte, list) = match strong {
        [b'"', quoted @ ..] => (b'"', quoted),
        _ => (b',', strong),
    };
    let end = memchr(end_byte, list).unwrap_or(list.len());
    let text = trim_ows(&list[..end]);
    let rest = list.get(end + 1..).unwrap_or_default();
    let alone = matches!(rest.iter().find(|byte| !is_space(byte)), None | Some(b','));
    let closed = end_byte == b'"' && end < list.len();
    let well_formed = closed && alone && text.len() == end;
    Some((Tag { text, weak, well_formed }, rest))
}

/// Whether a tag is `id`, or `id` with the suffix of an encoding.
fn tag_names(tag: &[u8], id: &[u8]) -> bool {
    tag.strip_prefix(id).is_some_and(|rest| rest.is_empty() || is_suffix(rest))
}

/// Whether this is the suffix of an encoding, as servers and proxies write it.
fn is_suffix(rest: &[u8]) -> bool {
    let separators = rest.iter().take_while(|byte| b"-;:._".contains(byte)).count();
    let coding = &rest[separators..];
    (1..=2).contains(&separators) && CODINGS.iter().any(|known| known.as_bytes() == coding)
}

/// Names of content codings in the suffixes of tags.
const CODINGS: [&str; 9] =
    ["br", "deflate", "df", "gz", "gzip", "identity", "x-gzip", "zst", "zstd"];

/// The id in a cursor that a client has taken from an entity tag: without `W/`, quotes and the
/// suffix of an encoding. The function returns any other text unchanged.
pub fn cursor_in_tag(text: &str) -> &str {
    let strong = text.strip_prefix("W/").unwrap_or(text);
    let bare = strong.strip_prefix('"').map_or(strong, |quoted| quoted.trim_end_matches('"'));
    let Some(hyphen) = bare.find('-') else { return bare };
    let digits = bare[hyphen + 1..].bytes().take_while(u8::is_ascii_digit).count();
    let (id, rest) = bare.split_at(hyphen + 1 + digits);
    if is_suffix(rest.replace('"', "").as_bytes()) { id } else { bare }
}

/// A thousandth is two steps of weight, so that there is room for one below all that can be sent.
const WEIGHT_STEP: u16 = 2;
const WEIGHT_FULL: u16 = 1000 * WEIGHT_STEP;
const WEIGHT_LEAST: u16 = 1;

/// Types worth compressing that neither are text nor say so by a suffix.
const COMPRESSIBLE: &[&str] = &[
    "application/json",
    "application/x-ndjson",
    "application/ndjson",
    "application/xml",
    "application/javascript",
    "application/x-javascript",
    "application/wasm",
    "application/yaml",
    "application/toml",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

#[cfg(test)]
mod tests;
