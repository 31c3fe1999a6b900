//! What is asked for, apart from how it came: a request as data.
//!
//! A [`Request`] borrows from the bytes it was read from and lives as long as they do. What is
//! answered later is kept as a [`RequestBuf`], which owns the same, so that nothing is parsed
//! twice.

use super::head::{cookies, first, host, list, once};
use crate::error::{ErrorCode, Rejection};
use crate::packed;

/// A request method (RFC 9110 section 9, RFC 5789).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the methods")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Trace,
    Connect,
}

/// What joins the lines of a field, if what is done with several of them makes them one.
macro_rules! separator {
    (list) => {
        Some(", ")
    };
    (cookies) => {
        Some("; ")
    };
    ($other:ident) => {
        None
    };
}

/// Makes the request, its owned twin and the table of fields from one list, so that none lacks a
/// field. A row has the name of the field, what is done with several lines of it, and the sentence
/// that refuses a second one.
macro_rules! requests {
    ($($(#[$meaning:meta])*
        $field:ident: $policy:ident($name:literal $(, $refusal:literal)?),)*) => {
        /// What a request line and its fields mean to Stentor, whatever brought them.
        ///
        /// Field values are as sent, without the whitespace around them. A field decides what its
        /// further lines mean (RFC 9110 sections 5.2 and 5.3). The lines of a list are joined by
        /// commas in their order, those of `Cookie` by semicolons (RFC 6265 section 4.2.1): proxies
        /// split them. A second line is refused where two would leave in doubt what is
        /// asked for. Of any other field the first line counts. Connection, Content-Length, Expect
        /// and Transfer-Encoding are understood where the head is.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Request<'a> {
            /// The method.
            pub method: Method,
            /// Path and query as sent ("/a?b"), of an absolute-form target too; "*" for the server
            /// as a whole (OPTIONS only); host and port for CONNECT. Visible ASCII without '#'.
            pub target: &'a [u8],
            $(#[doc = $name] $(#[$meaning])* pub $field: Option<&'a [u8]>,)*
        }

        /// How long the names of the fields are.
        #[allow(non_upper_case_globals, reason = "each has the name of its field")]
        mod lengths {
            $(pub(super) const $field: usize = $name.len();)*
        }

        impl<'a> Request<'a> {
            /// A request without fields.
            #[must_use]
            pub fn new(method: Method, target: &'a [u8]) -> Request<'a> {
                Request { method, target, $($field: None,)* }
            }

            /// Takes a line of a field. The name's length picks the few it can be; most fields a
            /// browser sends mean nothing to us and are dismissed by it. `has_more` is set if a
            /// list has another line.
            #[inline]
            pub(super) fn take(
                &mut self,
                name: &[u8],
                value: &'a [u8],
                has_more: &mut bool,
            ) -> Result<(), Rejection> {
                match name.len() {
                    $(lengths::$field if name.eq_ignore_ascii_case($name.as_bytes()) => {
                        $policy(&mut self.$field, value, has_more $(, repeated($refusal))?)
                    })*
                    _ => Ok(()),
                }
            }

            /// The same, kept for later.
            #[must_use]
            pub fn to_buf(&self) -> RequestBuf {
                let values = [Some(self.target), $(self.$field,)*];
                let bytes = values.iter().flatten().copied().collect::<Vec<_>>().concat();
                let end = |value: Option<&[u8]>| value.map_or(ABSENT, |value| value.len() as u16);
                RequestBuf { method: self.method, lengths: values.map(end), bytes: bytes.into() }
            }
        }

        impl RequestBuf {
            /// The request, as it was.
            #[must_use]
            pub fn borrowed(&self) -> Request<'_> {
                let mut rest = &self.bytes[..];
                // Of what is absent nothing is left to split off.
                let mut values =
                    self.lengths.iter().map(|&length| rest.split_off(..usize::from(length)));
                let target = values.next().flatten().unwrap_or_default();
                Request { method: self.method, target, $($field: values.next().flatten(),)* }
            }
        }

        /// All fields.
        pub(crate) const FIELDS: &[Field] = &[$(Field {
            name: $name,
            separator: separator!($policy),
            slot: |request| &mut request.$field,
        },)*];
    };
}

/// A field of a request.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The separator that joins its lines, if they are one list.
    pub(crate) separator: Option<&'static str>,
    /// Where a request keeps it.
    pub(crate) slot: for<'r, 'a> fn(&'r mut Request<'a>) -> &'r mut Option<&'a [u8]>,
}

/// A field that may occur once was repeated.
const fn repeated(detail: &'static str) -> Rejection {
    Rejection::new(ErrorCode::HeaderRepeated, detail)
}

requests! {
    accept: list("Accept"),
    accept_encoding: list("Accept-Encoding"),
    if_none_match: list("If-None-Match"),
    if_modified_since: first("If-Modified-Since"),
    if_match: list("If-Match"),
    if_unmodified_since: first("If-Unmodified-Since"),
    /// Means something in a GET only (RFC 9110 section 14.2).
    range: once("Range", "Range was sent twice; send one, with commas between the parts."),
    if_range: once("If-Range", "If-Range was sent twice; send it once."),
    authorization: once("Authorization", "Authorization was sent twice; send it once."),
    cookie: cookies("Cookie"),
    origin: once("Origin", "Origin was sent twice; send it once."),
    /// How a page that makes a browser ask stands to this server (W3C Fetch Metadata).
    fetch_site: first("Sec-Fetch-Site"),
    content_type: once("Content-Type", "Content-Type was sent twice; send it once."),
    content_encoding: list("Content-Encoding"),
    /// The content is a part, which means nothing in a request here (RFC 9110 section 14.5).
    content_range: once("Content-Range", "Content-Range was sent twice; send it once."),
    cache_control: list("Cache-Control"),
    event: once("Stentor-Event", "Stentor-Event was sent twice; send it once."),
    request_method: first("Access-Control-Request-Method"),
    request_headers: list("Access-Control-Request-Headers"),
    /// A name or address with at most a port behind it, or nothing. The authority of an absolute
    /// target replaces the field's value.
    host: host("Host", "Host was sent twice; send it once."),
    prefer: list("Prefer"),
    last_event_id: first("Last-Event-ID"),
    /// Kept only if it offers a WebSocket (RFC 9110 section 7.8): Connection names the field too,
    /// and the version is HTTP/1.1. The server ignores an offer of another protocol.
    upgrade: list("Upgrade"),
    websocket_key: once("Sec-WebSocket-Key", "Sec-WebSocket-Key was sent twice; send it once."),
    websocket_version: first("Sec-WebSocket-Version"),
    websocket_protocol: list("Sec-WebSocket-Protocol"),
    websocket_extensions: list("Sec-WebSocket-Extensions"),
}

/// A request that owns its target and fields, in one piece of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestBuf {
    method: Method,
    /// How long each value is, the target first; [`ABSENT`] if it was not sent.
    lengths: [u16; 1 + FIELDS.len()],
    bytes: Box<[u8]>,
}

packed!(enum Method {
    0 => Get, 1 => Head, 2 => Post, 3 => Put, 4 => Delete, 5 => Options, 6 => Patch, 7 => Trace,
    8 => Connect,
});
packed!(struct RequestBuf { method, lengths, bytes } if is_whole);

impl RequestBuf {
    /// Whether the lengths are those of the bytes.
    fn is_whole(&self) -> bool {
        let lengths = self.lengths.iter().filter(|&&length| length != ABSENT);
        lengths.map(|&length| usize::from(length)).sum::<usize>() == self.bytes.len()
    }

    /// What it takes on the heap, in bytes.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Longer than any value: a head has 16 KiB at most.
const ABSENT: u16 = u16::MAX;
