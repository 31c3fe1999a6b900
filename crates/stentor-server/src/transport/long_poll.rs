//! Long-poll: a GET that is answered when there is something new, or when its time is up.
//!
//! The request is held as it is. When the time has come it is answered as any other GET is, so
//! there is no second way to write an answer.

use crate::exchange::{Answer, Exchange, HeldPoll};
use crate::labels::RequestKind;
use crate::limits::HELD_MS_MAX;
use crate::stream::Start;
use crate::stream::format::Transport;
use crate::transport::Wanted;
use stentor_hub::{Filter, Message};
use stentor_wire::credentials::without_token;
use stentor_wire::events::{names_cursor, names_wait};
use stentor_wire::http1::{Method, Request};
use stentor_wire::negotiate::{prefer_wait_s, tag_matches};
use stentor_wire::pack::Moment;
use stentor_wire::target;

/// Whether a request for a value may be one to be held. A HEAD never is: what it asks is there. A
/// cursor without `wait` counts for a topic with a value alone, since files and pages have
/// parameters of their own.
pub(crate) fn may_be_asked_for(
    x: &Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
) -> bool {
    let prefers = || request.prefer.is_some_and(|prefer| prefer_wait_s(prefer).is_some());
    let has_value = || {
        let topic = target::decode(path);
        topic.is_ok_and(|topic| x.shared.hub.with_value(&topic, |value| value.is_some()))
    };
    let is_asked = |query| names_wait(query) || names_cursor(query) && has_value();
    request.method == Method::Get && (query.is_some_and(is_asked) || prefers())
}

/// Holds a GET of a topic if there is nothing new for the client yet; `None` if it is to be
/// answered now, as it stands. A client that names what it has is told at once if there is nothing
/// any more: the deletion may lie behind it already.
pub(crate) fn hold(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
) -> Option<Answer> {
    let wanted = match Wanted::of(x, request, path, query) {
        Ok(wanted) => wanted,
        Err(refused) => return Some(x.refuse_stream(request, refused)),
    };
    let wait_s = wanted.wait_s?;
    let [Filter::Topic(topic)] = wanted.filters.as_slice() else { return None };
    let expects_value = request.if_none_match.is_some() || wanted.start.is_named();
    // Before the value is read: whatever comes later is new.
    let seq = x.shared.hub.seq();
    // Who comes from a server that is further on may have seen what is not here yet.
    let after = if let Start::After(number) = wanted.start { number } else { 0 };
    let is_due = x.shared.hub.with_value(topic, |value| {
        // mutation: long-poll-of-deleted
        value.map_or(expects_value && after <= seq, |value| is_new(request, wanted.start, value))
    });
    if is_due {
        return None;
    }
    let mut opening = wanted.opening(Transport::LongPoll);
    opening.cursor = seq.max(after);
    Some(Answer::Poll(held(x, request, wait_s, expects_value), opening))
}

/// `GET /-/events` without a stream: an array of what is new, as soon as there is something.
pub(crate) fn many(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
) -> Answer {
    let wanted = match Wanted::of_some(x, request, path, query) {
        Ok(wanted) => wanted,
        Err(refused) => return x.refuse_stream(request, refused),
    };
    let wait_s = wanted.wait_s.filter(|_| request.method == Method::Get);
    let held = held(x, request, wait_s.unwrap_or(0), false);
    Answer::Poll(held, wanted.opening(Transport::LongPoll))
}

fn held(x: &mut Exchange<'_>, request: &Request<'_>, wait_s: u64, expects_value: bool) -> HeldPoll {
    let wait_ms = wait_s.saturating_mul(1000).min(HELD_MS_MAX);
    // What let the client in is kept as a pass: no token is kept, wherever it stood.
    let target = without_token(request.target);
    let request = Request {
        target: &target,
        authorization: None,
        cookie: None,
        websocket_protocol: None,
        ..request.clone()
    };
    let (request, deadline) = (request.to_buf(), Moment(x.clock.now_ms + wait_ms));
    x.reply.answers.asked.kind = RequestKind::LongPoll;
    HeldPoll { exchange: x.hold(), request, deadline, expects_value }
}

/// Whether a value is other than what the client has: by its cursor, or else by its tag. A cursor
/// that is none of ours has seen nothing.
fn is_new(request: &Request<'_>, start: Start, value: &Message) -> bool {
    match (start, request.if_none_match) {
        (Start::After(seq), _) => value.seq() > seq,
        (Start::Values, Some(tags)) => !tag_matches(tags, value.id().text().as_bytes()),
        (Start::Values, None) | (Start::Earliest | Start::Gap(_), _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Permit;
    use crate::listeners::PUBLIC;
    use crate::response::Persistence;
    use crate::simulation::{World, kind, patient};
    use std::sync::Arc;
    use stentor_hub::{Draft, Entry, Op, Place};
    use stentor_order::Ticket;
    use stentor_wire::http1::{FieldSlots, parse};
    use stentor_wire::pack::{Packed, Packer};
    use stentor_wire::target::TopicName;

    #[test]
    fn a_deletion_answers_who_had_a_value() {
        let mut world = World::new(1, kind(), patient());
        let poll = b"GET /gone?wait=50 HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"1\"\r\n\r\n";
        let (_, answer) = world.ask(PUBLIC, poll);
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }

    /// It comes from a server that is further on.
    #[test]
    fn who_is_ahead_waits_for_news() {
        let mut world = World::new(1, kind(), patient());
        let hub = Arc::clone(&world.shared.hub);
        hub.begin_following();
        let (seq, ahead) = (hub.seq(), hub.id(hub.seq() + 2));
        let poll =
            format!("GET /gone?wait=50 HTTP/1.1\r\nHost: h\r\nLast-Event-ID: {ahead}\r\n\r\n");
        let (client, answer) = world.ask(PUBLIC, poll.as_bytes());
        assert_eq!(answer, "");
        for (value, number, is_new) in [("two", seq + 2, false), ("three", seq + 3, true)] {
            let topic = TopicName::parse("/gone").unwrap();
            let entry = Entry::past(Op::Put(topic, Draft::new(value.as_bytes())), 1);
            world.shared.committer.applier().apply(entry, Place::At(number)).unwrap();
            world.settle();
            let answer = String::from_utf8(world.sim.read(client)).unwrap();
            assert_eq!(answer.ends_with("three"), is_new, "{value}: {answer}");
        }
    }

    #[test]
    fn no_token_is_held() {
        let mut cx = World::new(1, kind(), patient()).context(patient());
        let mut slots = FieldSlots::new();
        let head = b"GET /a?token=secret&wait=9&token=secret HTTP/1.1\r\nHost: h\r\n\
            Authorization: Bearer secret\r\nCookie: a=secret\r\n\
            Sec-WebSocket-Protocol: stentor.token.secret\r\nIf-None-Match: \"tag\"\r\n\r\n";
        let request = parse(head, &mut slots).unwrap().request;
        let persistence = Persistence { keep_alive: true, http10: false };
        let mut x = cx.exchange(PUBLIC, &request, persistence, Ticket::of_nobody(), &Permit::SMALL);
        let HeldPoll { request, .. } = held(&mut x, &request, 9, false);
        let mut out = Packer::new(0);
        request.pack(&mut out);
        let bytes = out.into_bytes();
        assert!(memchr::memmem::find(&bytes, b"secret").is_none());
        assert_eq!(request.borrowed().target, b"/a?wait=9");
        assert_eq!(request.borrowed().if_none_match, Some(&b"\"tag\""[..]));
    }
}
