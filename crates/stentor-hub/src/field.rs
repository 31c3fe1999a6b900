//! Values that end up in the heads of responses: content types, event names, cache directives.
//!
//! A publisher chooses them and every reader receives them, so a line break in one would let a
//! publisher write response fields, or whole responses, of its own. They are therefore types that
//! exist only in checked form. Who holds one need not check again.

use std::fmt;

use stentor_wire::error::Rejection;
use stentor_wire::{negotiate, rejections};

/// A media type with its parameters (RFC 9110, 8.3.1), such as `text/plain; charset=utf-8`.
/// The common ones cost no allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentType(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    /// An index into `COMMON`.
    Common(u8),
    Other(Box<str>),
}

impl ContentType {
    /// Bytes of which nothing is known. The default.
    pub const OCTETS: ContentType = ContentType(Kind::Common(0));
    /// `application/json`
    pub const JSON: ContentType = ContentType(Kind::Common(1));
    /// `text/plain; charset=utf-8`
    pub const TEXT: ContentType = ContentType(Kind::Common(2));

    /// Checks a media type. The error is one plain sentence for the publisher.
    ///
    /// # Errors
    ///
    /// If it is not `type/subtype` with optional parameters, holds anything but printable ASCII,
    /// or is longer than 255 bytes.
    pub fn parse(text: &str) -> Result<ContentType, Rejection> {
        if let Some(index) = COMMON.iter().position(|common| *common == text) {
            return Ok(ContentType(Kind::Common(index as u8)));
        }
        if text.len() > FIELD_BYTES_MAX {
            return Err(TYPE_BYTES);
        }
        if !printable(text) {
            return Err(TYPE_CHARACTER);
        }
        let is_token = |text: &str| stentor_wire::is_token(text.as_bytes());
        match negotiate::essence(text).split_once('/') {
            Some((kind, subtype)) if is_token(kind) && is_token(subtype) => {
                Ok(ContentType(Kind::Other(text.into())))
            }
            _ => Err(TYPE_FORM),
        }
    }

    /// As published.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kind::Common(index) => COMMON[usize::from(*index)],
            Kind::Other(text) => text,
        }
    }

    /// Without its parameters.
    #[must_use]
    pub fn essence(&self) -> &str {
        negotiate::essence(self.as_str())
    }

    /// Whether it promises JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        is_json(self.as_str())
    }

    /// Whether compressing such content is worth trying.
    pub(crate) fn compressible(&self) -> bool {
        negotiate::compressible(self.as_str())
    }

    /// Splits into one byte and, for an uncommon type, its text: the form a message keeps it in.
    pub(crate) fn into_parts(self) -> (u8, Option<Box<str>>) {
        match self.0 {
            Kind::Common(index) => (index, None),
            Kind::Other(text) => (OTHER, Some(text)),
        }
    }

    /// The text of the common type that `into_parts` gave as `index`; `None` for an uncommon one.
    pub(crate) fn common(index: u8) -> Option<&'static str> {
        COMMON.get(usize::from(index)).copied()
    }
}

impl Default for ContentType {
    fn default() -> ContentType {
        ContentType::OCTETS
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentType({:?})", self.as_str())
    }
}

/// Whether a content type promises JSON: `application/json`, `text/json` or a `+json` suffix
/// (RFC 6839), with or without parameters.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = negotiate::essence(content_type);
    let bytes = essence.as_bytes();
    essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("text/json")
        || bytes.len() > 5 && bytes[bytes.len() - 5..].eq_ignore_ascii_case(b"+json")
}

/// Whether a content type promises text: its type is `text`.
pub(crate) fn is_text(content_type: &str) -> bool {
    content_type.as_bytes().get(..5).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/"))
}

/// The name of a kind of message: `event` of an SSE stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventName(Box<str>);

impl EventName {
    /// Checks the event name of a message that a publisher sends. The error is one plain sentence
    /// for the publisher.
    ///
    /// # Errors
    ///
    /// As [`EventName::parse`], and if the name is one by which the server speaks for itself.
    pub fn parse_published(text: &str) -> Result<EventName, Rejection> {
        if stentor_wire::sse::is_reserved(text) {
            return Err(EVENT_RESERVED);
        }
        EventName::parse(text)
    }

    /// Checks the event name of a stored message, which may come from a version that reserved fewer
    /// names.
    ///
    /// # Errors
    ///
    /// If it is empty, longer than 255 bytes, or holds a control character (a line break would let
    /// a publisher write SSE fields of its own).
    pub fn parse(text: &str) -> Result<EventName, Rejection> {
        if text.is_empty() {
            return Err(EVENT_EMPTY);
        }
        if text.len() > FIELD_BYTES_MAX {
            return Err(EVENT_BYTES);
        }
        if text.chars().any(char::is_control) {
            return Err(EVENT_CONTROL);
        }
        Ok(EventName(text.into()))
    }

    /// As published.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The value of a `Cache-Control` field (RFC 9111, 5.2). Its directives are not interpreted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheControl(Box<str>);

impl CacheControl {
    /// Checks a `Cache-Control` value. The error is one plain sentence for the publisher.
    ///
    /// # Errors
    ///
    /// If it is empty, longer than 255 bytes, or holds anything but printable ASCII.
    pub fn parse(text: &str) -> Result<CacheControl, Rejection> {
        if text.is_empty() {
            return Err(CACHE_EMPTY);
        }
        if text.len() > FIELD_BYTES_MAX {
            return Err(CACHE_BYTES);
        }
        if !printable(text) {
            return Err(CACHE_CHARACTER);
        }
        Ok(CacheControl(text.into()))
    }

    /// Whether every cache has to ask before it uses what it keeps, or may keep nothing.
    #[must_use]
    pub fn asks_first(&self) -> bool {
        asks_first(&self.0)
    }

    /// As published.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a `Cache-Control` has every cache ask before it uses what it keeps, or keep nothing: by
/// one of the two directives without a list of fields. Where anything is quoted, this does not look
/// closer.
pub(crate) fn asks_first(cache_control: &str) -> bool {
    let is_one = |directive: &str| {
        let directive = directive.trim_matches([' ', '\t']);
        ["no-cache", "no-store"].iter().any(|one| directive.eq_ignore_ascii_case(one))
    };
    !cache_control.contains('"') && cache_control.split(',').any(is_one)
}

fn printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Longest content type, event name or Cache-Control value, in bytes.
const FIELD_BYTES_MAX: usize = 255;

/// Content types that messages carry as one byte. The first three have names above.
const COMMON: [&str; 18] = [
    "application/octet-stream",
    "application/json",
    "text/plain; charset=utf-8",
    "text/plain",
    "text/html; charset=utf-8",
    "text/html",
    "text/css",
    "text/csv",
    "text/javascript",
    "text/xml",
    "application/json; charset=utf-8",
    "application/javascript",
    "application/xml",
    "application/x-www-form-urlencoded",
    "application/x-protobuf",
    "image/png",
    "image/jpeg",
    "image/svg+xml",
];

/// Stands for a content type that is not among the common ones.
const OTHER: u8 = u8::MAX;
const _: () = assert!(COMMON.len() < OTHER as usize);

rejections! {
    TYPE_BYTES: ContentTypeInvalid = "The content type is longer than 255 bytes.";
    TYPE_CHARACTER: ContentTypeInvalid = "The content type may hold printable ASCII only.";
    TYPE_FORM: ContentTypeInvalid =
        "The content type must look like type/subtype, for example text/plain.";
    EVENT_RESERVED: EventNameReserved = "This event name is reserved for the server.";
    EVENT_EMPTY: EventNameInvalid = "The event name is empty; leave it out instead.";
    EVENT_BYTES: EventNameInvalid = "The event name is longer than 255 bytes.";
    EVENT_CONTROL: EventNameInvalid = "The event name may not hold control characters.";
    CACHE_EMPTY: CacheControlInvalid = "Cache-Control is empty; leave it out instead.";
    CACHE_BYTES: CacheControlInvalid = "Cache-Control is longer than 255 bytes.";
    CACHE_CHARACTER: CacheControlInvalid = "Cache-Control may hold printable ASCII only.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_types_cost_nothing() {
        for (index, text) in COMMON.iter().enumerate() {
            let parsed = ContentType::parse(text).unwrap();
            assert_eq!(parsed.as_str(), *text);
            assert_eq!(parsed.into_parts(), (index as u8, None));
            assert_eq!(ContentType::common(index as u8), Some(*text));
        }
        assert_eq!(ContentType::common(OTHER), None);
        assert_eq!(ContentType::JSON.as_str(), "application/json");
        assert_eq!(ContentType::TEXT.as_str(), "text/plain; charset=utf-8");
        assert_eq!(ContentType::default().as_str(), "application/octet-stream");
    }

    #[test]
    fn other_types_are_kept_as_published() {
        for text in [
            "application/vnd.acme.quote+json",
            "Text/Plain ; charset=\"utf-8\"",
            "multipart/form-data; boundary=a/b",
            "x/y",
        ] {
            assert_eq!(ContentType::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn nothing_that_could_end_a_line_gets_through() {
        for bad in (0..=0x1f_u8).chain([0x7f]) {
            let bad = char::from(bad);
            assert!(ContentType::parse(&format!("text/plain{bad}")).is_err(), "{bad:?}");
            assert!(ContentType::parse(&format!("text/plain; a={bad}X-Evil: 1")).is_err());
            assert!(CacheControl::parse(&format!("no-cache{bad}X-Evil: 1")).is_err(), "{bad:?}");
            assert!(EventName::parse(&format!("tick{bad}data: evil")).is_err(), "{bad:?}");
        }
        assert!(EventName::parse("a\u{85}b").is_err());
        assert!(ContentType::parse("text/plain; a=\u{e9}").is_err());
        assert!(CacheControl::parse("max-age=\u{e9}").is_err());
    }

    #[test]
    fn shapes_and_lengths() {
        for bad in ["", "text", "/", "text/", "/plain", "te xt/plain", "a/b/c", " text/plain", ";"]
        {
            assert!(ContentType::parse(bad).is_err(), "{bad:?}");
        }
        assert!(EventName::parse("").is_err());
        assert!(CacheControl::parse("").is_err());
        assert!(EventName::parse(&"e".repeat(255)).is_ok());
        assert!(EventName::parse(&"e".repeat(256)).is_err());
        assert!(CacheControl::parse(&"c".repeat(256)).is_err());
        assert!(ContentType::parse(&format!("a/{}", "b".repeat(254))).is_err());
        assert_eq!(EventName::parse("größe").unwrap().as_str(), "größe");
    }

    #[test]
    fn a_publisher_cannot_speak_for_the_server() {
        for reserved in ["stentor", "error", "open", "stentor.a"] {
            let error = EventName::parse_published(reserved).unwrap_err();
            assert!(error.detail.contains("reserved"), "{reserved}");
            // Stored before it was reserved.
            assert_eq!(EventName::parse(reserved).unwrap().as_str(), reserved);
        }
        for free in ["gap", "deleted", "base64", "message"] {
            assert_eq!(EventName::parse_published(free).unwrap().as_str(), free);
        }
        assert!(EventName::parse_published("").is_err());
    }

    #[test]
    fn caches_that_ask_first() {
        for yes in ["no-cache", "max-age=1, NO-Store", "private,\tno-cache ,x"] {
            assert!(asks_first(yes), "{yes}");
        }
        for no in ["max-age=0", "no-cache=x", "no-cache=\"a, b\"", "x=\"a, no-store ,b\"", "no"] {
            assert!(!asks_first(no), "{no}");
        }
    }

    #[test]
    fn text_by_name() {
        for (content_type, text) in [
            ("text/plain", true),
            ("TEXT/html; charset=utf-8", true),
            ("text/x", true),
            ("application/json", false),
            ("textual/x", false),
            ("text", false),
        ] {
            assert_eq!(is_text(content_type), text, "{content_type}");
        }
    }

    #[test]
    fn json_by_name() {
        for yes in
            ["application/json", "Application/JSON; charset=utf-8", "text/json", "a/b+json ;x"]
        {
            assert!(is_json(yes), "{yes}");
        }
        for no in
            ["text/plain", "application/jsonp", "+json", "a/json5", "application/x-ndjson", ""]
        {
            assert!(!is_json(no), "{no}");
        }
    }
}
