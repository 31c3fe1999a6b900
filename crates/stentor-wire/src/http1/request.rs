//! What is asked for, apart from how it came: a request as data.
//!
//! A [`Request`] borrows from the bytes it was read from and lives as long as they do. What is
//! answered later is kept as a [`RequestBuf`], which owns the same, so that nothing is parsed
//! twice.

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

/// Makes the request and its owned twin of one list of fields, so that neither lacks one.
macro_rules! requests {
    ($($(#[$meaning:meta])* $field:ident)*) => {
        /// What a request line and its fields mean to Stentor, whatever brought them.
        ///
        /// Field values are as sent, without the whitespace around them. What several lines of one
        /// name say goes by what the field is (RFC 9110 sections 5.2 and 5.3):
        ///
        /// - **Lists** are one list, the lines joined by commas in their order: Accept,
        ///   Accept-Encoding, Cache-Control, Content-Encoding, If-Match, If-None-Match, Prefer,
        ///   Sec-WebSocket-Extensions, Sec-WebSocket-Protocol, Upgrade, and Connection, whose
        ///   options are understood where the head is.
        /// - **Single values** that would leave in doubt what is asked for are refused: Host,
        ///   Authorization, Content-Length, Content-Range, Content-Type, Expect, If-Range, Origin,
        ///   Range, Sec-WebSocket-Key, Stentor-Event; and Transfer-Encoding, which is a list, but
        ///   one whose repetition serves nothing but smuggling.
        /// - Of **other single values** the first line counts: of Cookie, If-Modified-Since,
        ///   If-Unmodified-Since, Last-Event-ID, Sec-Fetch-Site, Sec-WebSocket-Version and
        ///   Access-Control-Request-Method.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Request<'a> {
            /// The method.
            pub method: Method,
            /// Path and query as sent ("/a?b"), of an absolute-form target too; "*" for the server
            /// as a whole (OPTIONS only); host and port for CONNECT. Visible ASCII without '#'.
            pub target: &'a [u8],
            $($(#[$meaning])* pub $field: Option<&'a [u8]>,)*
        }

        impl<'a> Request<'a> {
            /// A request without fields.
            #[must_use]
            pub fn new(method: Method, target: &'a [u8]) -> Request<'a> {
                Request { method, target, $($field: None,)* }
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

        /// The target, and all fields that are known.
        const VALUES: usize = 1 $(+ { stringify!($field); 1 })*;
    };
}

requests! {
    /// Accept
    accept
    /// Accept-Encoding
    accept_encoding
    /// If-None-Match
    if_none_match
    /// If-Modified-Since
    if_modified_since
    /// If-Match
    if_match
    /// If-Unmodified-Since
    if_unmodified_since
    /// Range, which means something in a GET only (RFC 9110 section 14.2).
    range
    /// If-Range
    if_range
    /// Authorization
    authorization
    /// Cookie
    cookie
    /// Origin
    origin
    /// Sec-Fetch-Site: how a page that makes a browser ask stands to this server (W3C Fetch
    /// Metadata)
    fetch_site
    /// Content-Type
    content_type
    /// Content-Encoding
    content_encoding
    /// Content-Range: the content is a part, which means nothing in a request here (RFC 9110
    /// section 14.5).
    content_range
    /// Cache-Control
    cache_control
    /// Stentor-Event
    event
    /// Access-Control-Request-Method
    request_method
    /// Host: a name or address with at most a port behind it, or nothing. It is what was sent even
    /// if the target names a host of its own.
    host
    /// Prefer
    prefer
    /// Last-Event-ID
    last_event_id
    /// Upgrade, if another protocol is really asked for (RFC 9110 section 7.8): Connection names
    /// it too, and the version is HTTP/1.1.
    upgrade
    /// Sec-WebSocket-Key
    websocket_key
    /// Sec-WebSocket-Version
    websocket_version
    /// Sec-WebSocket-Protocol
    websocket_protocol
    /// Sec-WebSocket-Extensions
    websocket_extensions
}

/// A request that owns its target and fields, in one piece of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestBuf {
    method: Method,
    /// How long each value is, the target first; [`ABSENT`] if it was not sent.
    lengths: [u16; VALUES],
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
