//! From a request head to the endpoint that answers it.

use crate::config::{Lookup, Settings};
use crate::context::{CONTROL, Context, Exchange};
use crate::endpoint::{self, Sink};
use crate::response::Shape;
use crate::stream::Opening;
use crate::transport::{EVENTS, long_poll, sse, websocket};
use std::net::IpAddr;
use stentor_io::Role;
use stentor_wire::http1::{BodyLength, Head, Method, Version};
use stentor_wire::negotiate::accepts_events;
use stentor_wire::status::{Refusal, Status};
use stentor_wire::target;

/// What becomes of a request once its head is known.
#[derive(Debug)]
pub(crate) enum Next {
    /// It has been answered, and the next request begins where it ended.
    Answered,
    /// It has been answered without waiting for its body: the connection ends.
    Refused,
    /// It is answered when its body is complete.
    Body(Sink),
    /// Its answer has begun, or is held back, and goes on for as long as the connection does.
    Stream(Box<Opening>),
}

/// Begins one request; `bytes` is the head as it was received.
pub(crate) fn begin(
    cx: &mut Context,
    role: Role,
    head: &Head<'_>,
    bytes: &[u8],
    keep_alive: bool,
) -> Next {
    let bodyless = matches!(head.body, BodyLength::None | BodyLength::Length(0));
    if matches!(head.method, Method::Put | Method::Post) && role == CONTROL {
        return endpoint::publish::begin(cx, head, keep_alive);
    }
    if bodyless {
        return answer(cx, role, head, bytes, keep_alive);
    }
    let bytes_max = cx.settings.limits.message_bytes_max as u64;
    match head.body {
        BodyLength::Length(bytes) if bytes > bytes_max => {
            let refusal = endpoint::TOO_LARGE;
            let mut x = cx.exchange(shape(role, head, false));
            x.reply.refuse(refusal.status, refusal.reason);
            Next::Refused
        }
        _ if !is_read(head.method) && head.method != Method::Delete => {
            answer(cx, role, head, bytes, false);
            Next::Refused
        }
        _ => Next::Body(Sink::discard(bytes)),
    }
}

/// Whether a request is meant for the listener it came in by. A page may be under a name that now
/// leads to this host (DNS rebinding): a browser takes the control listener for the page's own
/// server then, and names it so. An address, and a name that always is this host, cannot be
/// rebound.
pub(crate) fn is_meant(settings: &Settings, role: Role, head: &Head<'_>) -> bool {
    // Only in HTTP/1.0 may it be missing, and no browser speaks that; nor does one leave it empty.
    let (CONTROL, Some(host)) = (role, head.host) else { return true };
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_name = |known: &str| name.eq_ignore_ascii_case(known);
    host.is_empty()
        || address.parse::<IpAddr>().is_ok()
        || is_name("localhost")
        || settings.control_hosts.iter().any(|known| is_name(known))
}

/// The answer to a request that is not (RFC 9110 section 15.5.20).
pub(crate) const MISDIRECTED: Refusal = Refusal::new(
    Status::MISDIRECTED_REQUEST,
    "The control listener does not go by this name: ask it by its address or as localhost, or list \
     the name in control_hosts.",
);

/// Answers a request that has no body, or whose body has gone by; `bytes` is its head.
pub(crate) fn answer(
    cx: &mut Context,
    role: Role,
    head: &Head<'_>,
    bytes: &[u8],
    keep_alive: bool,
) -> Next {
    let mut x = exchange(cx, role, head, keep_alive);
    let (path, query) = target::split(head.target);
    match head.method {
        Method::Options => options(&mut x, role, head),
        Method::Delete if role == CONTROL => endpoint::publish::delete(&mut x, head, path),
        Method::Get | Method::Head => return read(&mut x, head, bytes, path, query),
        _ => not_allowed(&mut x, role, path),
    }
    Next::Answered
}

/// Answers a GET of a topic that was held, now that there is something new.
pub(crate) fn answer_held(cx: &mut Context, role: Role, head: &Head<'_>, keep_alive: bool) {
    let mut x = exchange(cx, role, head, keep_alive);
    endpoint::value::get(&mut x, head, target::split(head.target).0);
}

/// What is needed to answer, with the origin if it is one of those that are listed.
pub(crate) fn exchange<'a>(
    cx: &'a mut Context,
    role: Role,
    head: &Head<'a>,
    keep_alive: bool,
) -> Exchange<'a> {
    let cors = &cx.settings.cors;
    let origin = head.origin.filter(|origin| role != CONTROL && cors.lists(origin));
    cx.exchange(Shape { origin, ..shape(role, head, keep_alive) })
}

/// The shape of the answer to `head`, for those who are not pages of other origins.
pub(crate) fn shape(role: Role, head: &Head<'_>, keep_alive: bool) -> Shape<'static> {
    Shape {
        role,
        head_only: head.method == Method::Head,
        keep_alive,
        http10: head.version == Version::Http10,
        origin: None,
    }
}

/// Whether a request asks for what may be much: many values, or streams of many topics.
pub(crate) fn is_large(head: &Head<'_>, lookups: &[Lookup]) -> bool {
    let target = head.target;
    target.starts_with(VALUES)
        || target.starts_with(EVENTS) && target.len() > LARGE_TARGET_BYTES
        || lookups.iter().any(|lookup| target.starts_with(lookup.path.as_bytes()))
}

fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

fn read(
    x: &mut Exchange<'_>,
    head: &Head<'_>,
    bytes: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
) -> Next {
    if path == EVENTS && head.method == Method::Get {
        return match () {
            () if websocket::is_asked_for(head) => websocket::open(x, head, path, query),
            () if accepts_events(head.accept) => sse::open(x, head, path, query),
            () => long_poll::many(x, head, bytes, path, query),
        };
    }
    if path == websocket::ECHO && x.reply.shape.role == CONTROL && websocket::is_asked_for(head) {
        return websocket::open(x, head, path, query);
    }
    if path.starts_with(b"/-/") {
        reserved(x, head, path, query);
        return Next::Answered;
    }
    for lookup in &x.settings.lookups {
        if let Some(names) = head.target.strip_prefix(lookup.path.as_bytes()) {
            endpoint::values::lookup(x, head, lookup, names);
            return Next::Answered;
        }
    }
    if head.method == Method::Get {
        topic(x, head, bytes, path, query)
    } else {
        endpoint::value::get(x, head, path);
        Next::Answered
    }
}

/// GET of a topic, which says what it is to be: a stream, a long-poll, or the value.
fn topic(
    x: &mut Exchange<'_>,
    head: &Head<'_>,
    bytes: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
) -> Next {
    if websocket::is_asked_for(head) {
        return websocket::open(x, head, path, query);
    }
    if accepts_events(head.accept) {
        return sse::open(x, head, path, query);
    }
    if long_poll::may_be_asked_for(head, query)
        && let Some(held) = long_poll::hold(x, head, bytes, path, query)
    {
        return held;
    }
    endpoint::value::get(x, head, path);
    Next::Answered
}

/// The server's own pages. Those for reading are public, all others on the control listener only.
fn reserved(x: &mut Exchange<'_>, head: &Head<'_>, path: &[u8], query: Option<&[u8]>) {
    match (path, x.reply.shape.role) {
        (VALUES, _) => endpoint::values::many(x, head, query),
        (b"/-/status", CONTROL) => endpoint::status::status(x, head),
        (b"/-/metrics", CONTROL) => endpoint::metrics::metrics(x),
        (b"/-/healthz", CONTROL) => x.reply.fresh("text/plain; charset=utf-8", b"ok\n"),
        (b"/-/readyz", CONTROL) => endpoint::status::ready(x),
        (b"/-/topics", CONTROL) => endpoint::topics::topics(x, query),
        (b"/-/publish", CONTROL) => not_allowed(x, CONTROL, path),
        (EVENTS, role) => not_allowed(x, role, path),
        (websocket::ECHO, CONTROL) => {
            let fields = b"Upgrade: websocket\r\n";
            x.reply.refuse_with(Status::UPGRADE_REQUIRED, fields, "This page is a WebSocket.");
        }
        #[cfg(test)]
        (b"/-/panic", _) => panic!("a panic for the tests"),
        (_, CONTROL) => x.reply.refuse(
            Status::NOT_FOUND,
            "No such page; there are /-/values, /-/events, /-/publish, /-/status, /-/metrics, \
             /-/healthz, /-/readyz, /-/topics and /-/echo.",
        ),
        _ => x.reply.refuse(
            Status::NOT_FOUND,
            "No such page here; /-/values and /-/events are public, all others are on the control \
             listener.",
        ),
    }
}

fn options(x: &mut Exchange<'_>, role: Role, head: &Head<'_>) {
    let (path, _) = target::split(head.target);
    let mut fields = allow(role, path).to_vec();
    // A preflight of the CORS protocol (Fetch standard, section 3.3.2).
    let any = role != CONTROL && x.settings.cors.allows_any();
    if (any || x.reply.shape.origin.is_some()) && head.request_method.is_some() {
        fields.extend_from_slice(
            b"Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
              Access-Control-Allow-Headers: Accept, Cache-Control, If-Modified-Since, \
              If-None-Match, If-Range, Last-Event-ID, Prefer, Range\r\n\
              Access-Control-Max-Age: 86400\r\n",
        );
    }
    x.reply.empty(Status::NO_CONTENT, &fields);
}

/// 405, with what would be allowed (RFC 9110 section 15.5.6).
pub(crate) fn not_allowed(x: &mut Exchange<'_>, role: Role, path: &[u8]) {
    let reason = match (role, path) {
        (CONTROL, b"/-/publish") => "Lines of messages are POSTed here.",
        (_, EVENTS) => "Streams are read here, with GET.",
        (CONTROL, _) => "This method means nothing here.",
        _ => "The public listener only answers reads; publish on the control listener.",
    };
    x.reply.refuse_with(Status::METHOD_NOT_ALLOWED, allow(role, path), reason);
}

fn allow(role: Role, path: &[u8]) -> &'static [u8] {
    match (role, path) {
        (CONTROL, b"/-/publish") => b"Allow: OPTIONS, POST\r\n",
        (_, EVENTS) => b"Allow: GET, OPTIONS\r\n",
        (CONTROL, path) if !path.starts_with(b"/-/") => {
            b"Allow: DELETE, GET, HEAD, OPTIONS, POST, PUT\r\n"
        }
        _ => b"Allow: GET, HEAD, OPTIONS\r\n",
    }
}

const VALUES: &[u8] = b"/-/values";

/// A request for streams that is longer than this may name many topics.
const LARGE_TARGET_BYTES: usize = 512;
