//! Requests, as bytes: rendered once, sent as often as need be.

use std::io::Write as _;

use crate::plan::{Closing, RequestLoop, RequestMethod, Role, TOPIC};
use crate::target::Target;

/// The requests of a run, which differ by the number of a topic at most.
#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate {
    before: Vec<u8>,
    /// How many numbers there are, each of which stands before `after`. None: requests are equal.
    pub(crate) topics: Option<u32>,
    after: Vec<u8>,
}

impl RequestTemplate {
    /// A plain GET.
    pub(crate) fn get(target: &Target, fields: &[(String, String)]) -> RequestTemplate {
        let before = complete(&open_head(target, None, fields), &[]);
        RequestTemplate { before, topics: None, after: Vec::new() }
    }

    /// The requests that a loop sends.
    pub(crate) fn new(
        requests: &RequestLoop,
        target: &Target,
        fields: &[(String, String)],
    ) -> RequestTemplate {
        let path = match requests.topics {
            None => target.path.clone(),
            Some(_) => numbered(&target.path),
        };
        let number_at = requests.topics.and_then(|_| path.find(TOPIC));
        let (start, rest) = match number_at {
            Some(at) => (&path[..at], &path[at + TOPIC.len()..]),
            None => (&*path, ""),
        };
        let (method, body) = match requests.method {
            RequestMethod::Get => ("GET", None),
            RequestMethod::Put(bytes) => ("PUT", Some("x".repeat(bytes))),
        };
        let mut after = format!("{rest} HTTP/1.1\r\n");
        add_fields(&mut after, target, None, fields);
        if let Some(body) = &body {
            if !named(fields, "Content-Type") {
                after += "Content-Type: text/plain\r\n";
            }
            after += &format!("Content-Length: {}\r\n", body.len());
        }
        if requests.closing == Closing::Fin {
            after += "Connection: close\r\n";
        }
        after += "\r\n";
        after.extend(body);
        RequestTemplate {
            before: format!("{method} {start}").into_bytes(),
            topics: requests.topics,
            after: after.into_bytes(),
        }
    }

    /// Appends a request of a topic.
    pub(crate) fn render(&self, number: u64, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.before);
        if let Some(topics) = self.topics {
            // Writing to a vector cannot fail.
            let _ = write!(bytes, "{}", number % u64::from(topics.max(1)));
        }
        bytes.extend_from_slice(&self.after);
    }
}

/// The path with a place for the number of a topic: its own, or behind its last segment.
fn numbered(path: &str) -> String {
    if path.contains(TOPIC) {
        return path.to_owned();
    }
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let slash = if path.ends_with('/') { "" } else { "/" };
    format!("{path}{slash}{TOPIC}{query}")
}

/// A request head up to its last field line, for what `role` asks for; `None` is a plain GET. The
/// empty line that ends it is still to be added, after fields that only some requests have.
pub(crate) fn open_head(
    target: &Target,
    role: Option<Role>,
    fields: &[(String, String)],
) -> Vec<u8> {
    let mut head = format!("GET {} HTTP/1.1\r\n", target.path);
    add_fields(&mut head, target, role, fields);
    head.into_bytes()
}

fn named(fields: &[(String, String)], name: &str) -> bool {
    fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
}

/// Adds the field lines that `role` needs, and those of the caller.
fn add_fields(head: &mut String, target: &Target, role: Option<Role>, fields: &[(String, String)]) {
    let named = |name| named(fields, name);
    let mut add = |name: &str, value: &str| {
        head.extend([name, ": ", value, "\r\n"]);
    };
    if !named("Host") {
        add("Host", &target.host);
    }
    match role {
        None | Some(Role::Idle) => {}
        Some(Role::Sse) if named("Accept") => {}
        Some(Role::Sse) => add("Accept", "text/event-stream"),
        Some(Role::Ws) => {
            add("Upgrade", "websocket");
            add("Connection", "Upgrade");
            add("Sec-WebSocket-Version", "13");
            add("Sec-WebSocket-Key", WEBSOCKET_KEY);
        }
        Some(Role::Poll) if named("Prefer") => {}
        Some(Role::Poll) => add("Prefer", POLL_PREFERENCE),
    }
    for (name, value) in fields {
        add(name, value);
    }
}

/// A whole request from an open head.
pub(crate) fn complete(open: &[u8], fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut request = open.to_vec();
    for (name, value) in fields {
        request.extend([*name, b": ", *value, b"\r\n"].concat());
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// The key of RFC 6455 section 1.3. It proves that the server understood, and needs to be secret
/// or new only where scripts and caches are.
const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// What a server answers to [`WEBSOCKET_KEY`].
pub(crate) const WEBSOCKET_ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// How long a long-poll may be held, where the server goes by it (RFC 7240 section 4.3).
const POLL_PREFERENCE: &str = "wait=55";

#[cfg(test)]
mod tests {
    use super::*;

    fn head(role: Option<Role>, fields: &[(&str, &str)]) -> String {
        let target = Target::parse("http://127.0.0.1:8080/a?b=c").unwrap();
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let fields: Vec<_> = fields.iter().map(own).collect();
        String::from_utf8(complete(&open_head(&target, role, &fields), &[])).unwrap()
    }

    #[test]
    fn a_request_says_what_it_wants_and_nothing_twice() {
        let plain = "GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n";
        assert_eq!(head(None, &[]), format!("{plain}\r\n"));
        assert_eq!(head(Some(Role::Idle), &[("X", "1")]), format!("{plain}X: 1\r\n\r\n"));
        let sse = head(Some(Role::Sse), &[]);
        assert_eq!(sse, format!("{plain}Accept: text/event-stream\r\n\r\n"));
        // What a caller writes stands.
        let own = head(Some(Role::Sse), &[("accept", "text/event-stream;q=0.5")]);
        assert_eq!(own, format!("{plain}accept: text/event-stream;q=0.5\r\n\r\n"));
        let own = head(Some(Role::Poll), &[("Prefer", "wait=5")]);
        assert_eq!(own, format!("{plain}Prefer: wait=5\r\n\r\n"));
        let ws = head(Some(Role::Ws), &[]);
        for line in ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"] {
            assert_eq!(ws.matches(&format!("\r\n{line}\r\n")).count(), 1, "{ws}");
        }
    }

    #[test]
    fn some_requests_have_more_fields() {
        let whole = complete(b"GET / HTTP/1.1\r\n", &[(b"A", b"1"), (b"B", b"2")]);
        assert_eq!(whole, b"GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n");
    }
}
