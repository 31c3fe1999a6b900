//! What was read, written out again in our own way: reading that must come to the same.

use crate::events::EventsQuery;
use crate::http1::request::{FIELDS, Field};
use crate::http1::response::{ResponseBody, ResponseHead};
use crate::http1::{BodyLength, Head, Request, Version};

/// Writes a head that means the same.
pub(super) fn write_head(head: &Head<'_>) -> Vec<u8> {
    let Head { request, framing } = head;
    let mut out = format!("{:?} ", request.method).to_uppercase().into_bytes();
    out.extend_from_slice(request.target);
    let version = if framing.version == Version::Http10 { "HTTP/1.0" } else { "HTTP/1.1" };
    let connection = match request.upgrade {
        Some(_) => "upgrade",
        None if framing.keep_alive => "keep-alive",
        None => "close",
    };
    out.extend_from_slice(format!(" {version}\r\nConnection: {connection}\r\n").as_bytes());
    match framing.body {
        BodyLength::None => {}
        BodyLength::Length(length) => {
            out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        BodyLength::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    if framing.expect_continue {
        out.extend_from_slice(b"Expect: 100-continue\r\n");
    }
    for (field, value) in fields(request) {
        if let Some(value) = value {
            out.extend_from_slice(&[field.name.as_bytes(), b":", value, b"\r\n"].concat());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Writes a head of a response that means the same.
pub(super) fn write_response(head: &ResponseHead<'_>) -> Vec<u8> {
    let connection = if head.keep_alive { "keep-alive" } else { "close" };
    let mut out = format!("HTTP/1.1 {:03}\r\nConnection: {connection}\r\n", head.status);
    match head.body {
        ResponseBody::None | ResponseBody::UntilClose => {}
        ResponseBody::Length(length) => out.push_str(&format!("Content-Length: {length}\r\n")),
        ResponseBody::Chunked => out.push_str("Transfer-Encoding: chunked\r\n"),
    }
    let mut out = out.into_bytes();
    for (name, value) in [
        ("ETag", head.etag),
        ("Last-Modified", head.last_modified),
        ("Content-Type", head.content_type),
        ("Sec-WebSocket-Accept", head.websocket_accept),
    ] {
        if let Some(value) = value {
            assert_eq!(crate::trim_ows(value), value);
            out.extend_from_slice(&[name.as_bytes(), b":", value, b"\r\n"].concat());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// The fields of a request and their values.
pub(super) fn fields<'a>(
    request: &Request<'a>,
) -> impl Iterator<Item = (&'static Field, Option<&'a [u8]>)> {
    let mut request = request.clone();
    FIELDS.iter().map(move |field| (field, *(field.slot)(&mut request)))
}

/// Writes a query that means the same.
pub(super) fn write_query(query: &EventsQuery) -> String {
    let mut pieces: Vec<_> =
        query.topics.iter().map(|topic| format!("topic={}", encode(topic))).collect();
    pieces.extend(query.since.as_ref().map(|since| format!("since={}", encode(since))));
    pieces.extend(
        query.latest.map(|latest| format!("mode={}", if latest { "latest" } else { "all" })),
    );
    pieces.extend(query.wait_s.map(|seconds| format!("wait={seconds}")));
    pieces.join("&")
}

/// Percent-encodes everything but letters, digits, '/', '-' and '.'.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'/' | b'-' | b'.' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
