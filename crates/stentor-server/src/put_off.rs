//! Those for whom there is no room now: when they are to come again, each at a time of its own.
//!
//! A request is told by `503` and `Retry-After`. A browser's `EventSource` gives up for good on any
//! status but 200 (WHATWG HTML, section 9.2.2): a stream of events that cannot be had now is one
//! that says when to come again, and ends. Those who are put off together do not come together.

use crate::head::{self, Field};
use crate::problem::{PROBLEM, problem};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::sse;
use stentor_wire::status::Status;

/// What a connection is told that is refused before anything is known of it but where it comes
/// from. What it `asked`, as far as it is there, is only searched for the type of a stream.
pub(crate) fn farewell(asked: &[u8], chance: u64) -> Vec<u8> {
    let caching = (Field::CACHE_CONTROL, "no-store");
    if asks_for_events(asked) {
        // A page of another origin may not know why, but is to come again. Who it is matters to
        // nobody: all are told the same.
        let fields = [(Field::ALLOW_ORIGIN, "*"), caching];
        let mut body = Vec::new();
        last_events(&mut body, chance);
        return head::last_response(Status::OK, &fields, EVENT_STREAM, &body);
    }
    let wait_s = (wait_ms(chance) / 1_000).to_string();
    let code = (Field::ERROR, TOO_MANY.code.name());
    let fields = [(Field::RETRY_AFTER, &*wait_s), caching, code];
    let body = problem(&TOO_MANY, Some(&wait_s));
    head::last_response(TOO_MANY.status(), &fields, PROBLEM, &body)
}

/// Whether the part of a head that has arrived names the type of an event stream.
pub(crate) fn asks_for_events(head: &[u8]) -> bool {
    memchr::memmem::find(head, EVENT_STREAM.as_bytes()).is_some()
}

/// The end of a stream of a client that has too many connections.
pub(crate) fn last_events(out: &mut Vec<u8>, chance: u64) {
    write_last_events(out, chance, &TOO_MANY.detail);
}

/// The end of a stream: when to come again, and for people why.
pub(crate) fn write_last_events(out: &mut Vec<u8>, chance: u64, reason: &str) {
    sse::retry(out, wait_ms(chance));
    out.extend_from_slice(b": ");
    out.extend_from_slice(reason.as_bytes());
    // An empty line behind it would be an event to some.
    out.push(b'\n');
}

pub(crate) fn wait_ms(chance: u64) -> u64 {
    WAIT_MS_MIN + chance % (WAIT_MS_MAX - WAIT_MS_MIN)
}

pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// The client has as many connections as one address may have.
pub(crate) const TOO_MANY: Rejection = Rejection::new(
    ErrorCode::AddressLimit,
    "Too many connections come from your address: close some, or try again in a while.",
);

/// Whoever is put off comes again after a time between these.
const WAIT_MS_MIN: u64 = 5_000;
const WAIT_MS_MAX: u64 = 15_000;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::sse::{Decoder, Item};

    /// The body of an answer, whose length its head must name.
    fn body(answer: &str) -> &str {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{answer}");
        body
    }

    #[test]
    fn those_who_are_put_off_together_come_again_one_by_one() {
        let mut rng = stentor_io::Rng::new(1);
        let (mut seconds, mut retries) = (Vec::new(), Vec::new());
        for _ in 0..1_000 {
            let told = |asked: &[u8], chance| String::from_utf8(farewell(asked, chance)).unwrap();
            let plain = told(b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n", rng.next_u64());
            assert!(plain.starts_with("HTTP/1.1 429 "), "{plain}");
            assert!(body(&plain).contains("\"detail\":\"Too many connections"));
            let after = plain.split_once("Retry-After: ").unwrap().1;
            seconds.push(after.split_once("\r\n").unwrap().0.parse::<u64>().unwrap());
            let stream = told(b"GET / HTTP/1.1\r\nAccept: text/event-stream\r\n", rng.next_u64());
            assert!(stream.starts_with("HTTP/1.1 200 OK\r\n"), "{stream}");
            let mut decoder = Decoder::new(1_000);
            decoder.push(body(&stream).as_bytes());
            match decoder.next() {
                Some(Ok(Item::Retry(ms))) => retries.push(ms),
                other => panic!("{other:?}"),
            }
            assert!(!matches!(decoder.next(), Some(Ok(Item::Event { .. }))), "{stream}");
        }
        for (all, unit) in [(&mut seconds, 1), (&mut retries, 1_000)] {
            all.sort_unstable();
            assert!(all[0] >= 5 * unit && all[999] < 15 * unit, "{all:?}");
            assert!(all[100] < 7 * unit && all[900] >= 13 * unit, "{all:?}");
        }
        retries.dedup();
        assert!(retries.len() > 900, "hardly two come at the same time");
    }
}
