//! The HTTP/1 writer of response heads: the only code of this crate that renders a status line, a
//! field or a line end.
//!
//! An endpoint names a [`Field`] and gives its value. The fields that frame a response
//! (`Content-Length`, `Transfer-Encoding`) and `Connection` have no name there: only this writer
//! adds them, since another protocol has none of them.

use crate::response::Persistence;
use stentor_wire::status::Status;

/// The name of a response field that an endpoint may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field(&'static str);

macro_rules! fields {
    ($($name:ident = $text:literal,)*) => {
        impl Field {
            $(pub(crate) const $name: Field = Field($text);)*
        }
    };
}

fields! {
    ACCEPT_RANGES = "Accept-Ranges",
    ALLOW = "Allow",
    ALLOW_CREDENTIALS = "Access-Control-Allow-Credentials",
    ALLOW_HEADERS = "Access-Control-Allow-Headers",
    ALLOW_METHODS = "Access-Control-Allow-Methods",
    ALLOW_ORIGIN = "Access-Control-Allow-Origin",
    CACHE_CONTROL = "Cache-Control",
    CONTENT_RANGE = "Content-Range",
    CONTENT_SECURITY_POLICY = "Content-Security-Policy",
    CONTENT_TYPE = "Content-Type",
    DATE = "Date",
    ERROR = "Stentor-Error",
    ETAG = "ETag",
    EXPOSE_HEADERS = "Access-Control-Expose-Headers",
    HEARTBEAT = "Stentor-Heartbeat",
    INCREMENTAL = "Incremental",
    LOCATION = "Location",
    MAX_AGE = "Access-Control-Max-Age",
    NO_SNIFFING = "X-Content-Type-Options",
    RETRY_AFTER = "Retry-After",
    SERVER = "Server",
    STALE = "Stentor-Stale",
    CURSOR = "Stentor-Cursor",
    STRICT_TRANSPORT_SECURITY = "Strict-Transport-Security",
    UPGRADE = "Upgrade",
    VARY = "Vary",
    VIA = "Stentor-Via",
    WEBSOCKET_ACCEPT = "Sec-WebSocket-Accept",
    WEBSOCKET_EXTENSIONS = "Sec-WebSocket-Extensions",
    WEBSOCKET_PROTOCOL = "Sec-WebSocket-Protocol",
    WEBSOCKET_VERSION = "Sec-WebSocket-Version",
    WWW_AUTHENTICATE = "WWW-Authenticate",
    X_ACCEL_BUFFERING = "X-Accel-Buffering",
}

/// Writes one field.
pub(crate) fn field(out: &mut Vec<u8>, Field(name): Field, value: impl AsRef<[u8]>) {
    line(out, name, value.as_ref());
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{name}");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes whether the connection is kept (RFC 9112 section 9.3).
pub(crate) fn connection(out: &mut Vec<u8>, persistence: Persistence) {
    match persistence {
        Persistence { keep_alive: false, .. } => line(out, "Connection", b"close"),
        Persistence { http10: true, .. } => line(out, "Connection", b"keep-alive"),
        Persistence { http10: false, .. } => {}
    }
}

/// Writes that the connection speaks another protocol from now on (RFC 9110 section 7.8).
pub(crate) fn switch(out: &mut Vec<u8>, protocol: &str) {
    field(out, Field::UPGRADE, protocol);
    line(out, "Connection", b"Upgrade");
}

/// Ends the head of a response with a body of `bytes`.
pub(crate) fn end_with_length(out: &mut Vec<u8>, bytes: u64) {
    line(out, "Content-Length", itoa::Buffer::new().format(bytes).as_bytes());
    end(out);
}

/// Ends the head of a response that is sent in chunks.
pub(crate) fn end_with_chunks(out: &mut Vec<u8>) {
    line(out, "Transfer-Encoding", b"chunked");
    end(out);
}

/// The head of a value in two parts, of which one may be empty. If the value was published while
/// the clock was ahead, they omit `Last-Modified` until that time has come: it must not be later
/// than `Date` (RFC 9110 section 8.8.2.1).
pub(crate) fn value_parts(head: &[u8], is_ahead: bool) -> [&[u8]; 2] {
    let field = is_ahead.then(|| memchr::memmem::find(head, b"\r\nLast-Modified: ")).flatten();
    let Some(begin) = field.map(|at| at + 2) else { return [head, b""] };
    let end = memchr::memmem::find(&head[begin..], b"\r\n").map_or(head.len(), |at| begin + at + 2);
    [&head[..begin], &head[end..]]
}

/// Joins the lines of a list field in the head that begins at `from` into the first of them (RFC
/// 9110 section 5.3): some caches and scripts read only one. Nothing is allocated.
pub(crate) fn join_lines(out: &mut Vec<u8>, from: usize, Field(name): Field) {
    let find = |out: &[u8], from: usize| {
        let line = |at: &usize| {
            let rest = &out[at + 2..];
            rest.starts_with(name.as_bytes()) && rest[name.len()..].starts_with(b": ")
        };
        let at = memchr::memmem::find_iter(&out[from..], b"\r\n").map(|at| from + at).find(line)?;
        let value = at + 2 + name.len() + 2;
        let end = value + memchr::memmem::find(&out[value..], b"\r\n")?;
        Some((at, value, end))
    };
    let Some((_, _, mut first_end)) = find(out, from) else { return };
    while let Some((at, value, end)) = find(out, first_end) {
        // The first line gets `", " value` of the line `CRLF name ": " value`.
        out[value - 2..value].copy_from_slice(b", ");
        let moved = end - (value - 2);
        out[first_end..end].rotate_right(moved);
        out.drain(at + moved..end);
        first_end += moved;
    }
}

/// The name of a field that a head has twice. The server sends none twice, so that a client that
/// reads one line reads all.
#[cfg(debug_assertions)]
pub(crate) fn repeated_name(head: &[u8]) -> Option<String> {
    let name = |line: &[u8]| Some(line[..memchr::memchr(b':', line)?].to_ascii_lowercase());
    let mut names: Vec<Vec<u8>> = lines(head).skip(1).filter_map(name).collect();
    names.sort_unstable();
    let repeated = names.windows(2).find(|pair| pair[0] == pair[1])?;
    Some(String::from_utf8_lossy(&repeated[0]).into_owned())
}

/// Ends a head.
pub(crate) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Writes the interim response that asks for the body (RFC 9110 section 15.2.1).
pub(crate) fn continue_with_body(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Writes a whole response, the last of its connection, for a request that was not parsed.
pub(crate) fn last_response(
    status: Status,
    fields: &[(Field, &str)],
    content_type: &str,
    body: &[u8],
) -> Vec<u8> {
    let mut out = status.line().to_vec();
    fields.iter().for_each(|(name, value)| field(&mut out, *name, value));
    field(&mut out, Field::CONTENT_TYPE, content_type);
    line(&mut out, "Content-Length", itoa::Buffer::new().format(body.len()).as_bytes());
    connection(&mut out, Persistence { keep_alive: false, http10: false });
    end(&mut out);
    out.extend_from_slice(body);
    out
}

/// The lines of the head that a response begins with, each with its line end. The last is empty
/// but for that.
pub(crate) fn lines(response: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = memchr::memmem::find(response, b"\r\n\r\n").map_or(response.len(), |at| at + 4);
    response[..end].split_inclusive(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_list_field_are_joined() {
        let mut out = b"Vary: Kept\r\n".to_vec();
        let from = out.len();
        out.extend_from_slice(
            b"HTTP/1.1 200 OK\r\nVary: Origin\r\nDate: x\r\nVary: Authorization, Cookie\r\n\
              ETag: \"Vary: y\"\r\nVary: Accept\r\nVary-Not: z\r\n\r\n",
        );
        join_lines(&mut out, from, Field::VARY);
        let joined = "Vary: Kept\r\nHTTP/1.1 200 OK\r\n\
                      Vary: Origin, Authorization, Cookie, Accept\r\nDate: x\r\n\
                      ETag: \"Vary: y\"\r\nVary-Not: z\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), joined);
        for field in [Field::VARY, Field::DATE, Field::CACHE_CONTROL] {
            join_lines(&mut out, from, field);
            assert_eq!(String::from_utf8_lossy(&out), joined);
        }
    }

    #[test]
    fn a_last_response_closes_and_has_a_length() {
        let fields = [(Field::RETRY_AFTER, "7")];
        let response = last_response(Status::SERVICE_UNAVAILABLE, &fields, "text/plain", b"Later.");
        let expected: [&[u8]; 6] = [
            b"HTTP/1.1 503 Service Unavailable\r\n",
            b"Retry-After: 7\r\n",
            b"Content-Type: text/plain\r\n",
            b"Content-Length: 6\r\n",
            b"Connection: close\r\n",
            b"\r\n",
        ];
        assert_eq!(lines(&response).collect::<Vec<_>>(), expected);
        assert!(response.ends_with(b"\r\n\r\nLater."));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Location")]
    fn no_value_ends_its_line() {
        field(&mut Vec::new(), Field::LOCATION, "/a\r\nSet-Cookie: b");
    }
}
