//! From a request to the endpoint that answers it.

use crate::endpoint::file::Looks;
use crate::endpoint::operate::Operation;
use crate::endpoint::{self, Sink, allow, not_allowed, replication};
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::labels::RequestKind;
use crate::limits::panics_are_tested;
use crate::listeners::Listener;
use crate::paths::{ECHO, EVENTS, FEED, INFO, RELOAD, SNAPSHOT, UPGRADE, VALUES, is_read};
use crate::transport::{long_poll, sse, websocket};
use stentor_wire::http1::{BodyLength, Method, Request};
use stentor_wire::negotiate::accepts_events;
use stentor_wire::rejections;
use stentor_wire::status::Status;
use stentor_wire::target;

/// Begins one request, behind which comes a body of that length.
pub(crate) fn begin(x: &mut Exchange<'_>, request: &Request<'_>, body: BodyLength) -> Answer {
    if x.listener().redirects {
        return endpoint::redirect::answer(x, request);
    }
    let operates = operation(x, request).is_some();
    if matches!(request.method, Method::Put | Method::Post) && x.publishes() && !operates {
        return endpoint::publish::begin(x, request, body);
    }
    if let Some(topic) = endpoint::guestbook::meant(x, request) {
        return endpoint::guestbook::begin(x, request, body, topic);
    }
    if body.is_empty() {
        return answer(x, request);
    }
    let bytes_max = x.settings.limits.message_bytes_max as u64;
    let deletes = request.method == Method::Delete && x.publishes();
    match body {
        _ if !is_read(request.method) && !deletes && !operates => answer(x, request),
        BodyLength::Length(bytes) if bytes > bytes_max => x.reject(&endpoint::TOO_LARGE),
        _ => Answer::AfterBody(Sink::discard(request)),
    }
}

/// Answers a request that has no body, or whose body has gone by.
pub(crate) fn answer(x: &mut Exchange<'_>, request: &Request<'_>) -> Answer {
    let (path, query) = target::split(request.target);
    match request.method {
        Method::Options => options(x, request),
        Method::Delete if x.publishes() => {
            return endpoint::publish::delete(x, request, path);
        }
        Method::Get | Method::Head => return read(x, request, path, query),
        _ => match operation(x, request) {
            Some(operation) => return endpoint::operate::begin(x, request, operation),
            None => not_allowed(x, request, path),
        },
    }
    Answer::Now
}

/// The operation that a request begins, on a listener that takes such requests.
fn operation(x: &Exchange<'_>, request: &Request<'_>) -> Option<Operation> {
    let (path, _) = target::split(request.target);
    let may_ask = request.method == Method::Post && x.listener().operates;
    Operation::at(path).filter(|_| may_ask)
}

fn read(x: &mut Exchange<'_>, request: &Request<'_>, path: &[u8], query: Option<&[u8]>) -> Answer {
    let listener = x.listener();
    if path == EVENTS && listener.reads {
        x.reply.answers.asked.kind = RequestKind::Stream;
        return match () {
            () if websocket::is_asked_for(request) => websocket::open(x, request, path, query),
            () if accepts_events(request.accept) => sse::open(x, request, path, query),
            () => long_poll::many(x, request, path, query),
        };
    }
    if path == ECHO && listener.operates && websocket::is_asked_for(request) {
        x.reply.answers.asked.kind = RequestKind::Stream;
        return websocket::open(x, request, path, query);
    }
    if matches!(path, FEED | SNAPSHOT) && listener.operates {
        return replication::begin(x, path, query);
    }
    if path == VALUES.as_bytes() && listener.reads {
        return endpoint::values::many(x, request, query);
    }
    if path.starts_with(b"/-/") || !listener.reads {
        reserved(x, request, path, query);
        return Answer::Now;
    }
    for (index, lookup) in x.settings.lookups.iter().enumerate() {
        if let Some(names) = request.target.strip_prefix(lookup.path.as_bytes()) {
            return endpoint::values::lookup(x, request, index, names);
        }
    }
    if let (b"/", Some(home)) = (path, x.settings.home) {
        endpoint::file::lead_to(x, home);
        return Answer::Now;
    }
    topic(x, request, path, query)
}

/// GET or HEAD of a topic, which says what it is to be: a stream, a long-poll, or the value.
fn topic(x: &mut Exchange<'_>, request: &Request<'_>, path: &[u8], query: Option<&[u8]>) -> Answer {
    x.reply.answers.asked.kind = RequestKind::Stream;
    if websocket::is_asked_for(request) {
        return websocket::open(x, request, path, query);
    }
    if accepts_events(request.accept) {
        return sse::open(x, request, path, query);
    }
    x.reply.answers.asked.kind = RequestKind::Value;
    if long_poll::may_be_asked_for(x, request, path, query)
        && let Some(held) = long_poll::hold(x, request, path, query)
    {
        return held;
    }
    endpoint::value::get(x, request, path, Looks::default())
}

/// The server's own pages: those that the listener grants.
fn reserved(x: &mut Exchange<'_>, request: &Request<'_>, path: &[u8], query: Option<&[u8]>) {
    let Listener { reads, operates, monitors, .. } = *x.listener();
    let probes = monitors || x.settings.public_probes;
    match path {
        b"/-/stentor.js" if reads => endpoint::client::get(x, request),
        INFO => endpoint::info::get(x, request),
        b"/-/status" if monitors => endpoint::status::status(x, request),
        b"/-/metrics" if monitors => endpoint::metrics::metrics(x),
        b"/-/healthz" if probes => x.reply.fresh("text/plain; charset=utf-8", b"ok\n"),
        b"/-/readyz" if probes => endpoint::status::ready(x),
        b"/-/readyz/publish" if probes => endpoint::status::ready_to_publish(x),
        b"/-/topics" if operates => endpoint::topics::topics(x, query),
        b"/-/publish" | UPGRADE | RELOAD if operates => not_allowed(x, request, path),
        ECHO if operates => {
            let head = x.reply.begin(NO_WEBSOCKET.status()).field(Field::UPGRADE, "websocket");
            head.reject(&NO_WEBSOCKET);
        }
        b"/-/panic" if panics_are_tested() => panic!("a panic for the tests"),
        _ if operates => x.reply.reject(&NOT_ON_CONTROL),
        _ if monitors => x.reply.reject(&NOT_ON_MONITOR),
        _ => x.reply.reject(&NOT_ON_PUBLIC),
    }
}

fn options(x: &mut Exchange<'_>, request: &Request<'_>) {
    let (path, _) = target::split(request.target);
    let allowed = allow(x, path);
    // A preflight of the CORS protocol (Fetch standard, section 3.3.2).
    let any = x.listener().has_cors && x.settings.cors.allows_any();
    let is_listed = x.reply.shape.origin.is_some();
    let asks_for_tokens = x.settings.asks_for_tokens();
    let granted = match request.request_method {
        Some(_) if is_listed && asks_for_tokens => Some((
            "GET, HEAD, OPTIONS, PUT, POST, DELETE",
            "Accept, Authorization, Cache-Control, Content-Encoding, Content-Type, If-Match, \
             If-Modified-Since, If-None-Match, If-Range, Last-Event-ID, Prefer, Range, \
             Stentor-Event",
        )),
        Some(_) if any || is_listed => Some((
            "GET, HEAD, OPTIONS",
            "Accept, Cache-Control, If-Modified-Since, If-None-Match, If-Range, Last-Event-ID, \
             Prefer, Range",
        )),
        _ => None,
    };
    // Tracers and libraries add fields of their own. The server ignores them, so the page may send
    // what it asks for. With tokens, that holds for listed origins alone.
    let requested = request.request_headers.and_then(field_names);
    let requested = requested.filter(|_| is_listed || !asks_for_tokens);
    let mut head = x.reply.begin(Status::NO_CONTENT).field(Field::ALLOW, allowed);
    if let Some((methods, fields)) = granted {
        head = head
            .field(Field::ALLOW_METHODS, methods)
            .field(Field::ALLOW_HEADERS, requested.unwrap_or(fields))
            .field(Field::MAX_AGE, "86400");
    }
    head.end();
}

/// Returns the text if it is a list of field names.
fn field_names(list: &[u8]) -> Option<&str> {
    let is_of_a_list =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b',' | b' ');
    let text = str::from_utf8(list).ok().filter(|text| text.contains(char::is_alphanumeric))?;
    (text.len() <= FIELD_NAMES_BYTES_MAX && text.bytes().all(is_of_a_list)).then_some(text)
}

rejections! {
    NO_WEBSOCKET: WebsocketRequired = "This page is a WebSocket.";
    NOT_ON_CONTROL: EndpointNotFound =
        "No such page; there are /-/values, /-/events, /-/info, /-/stentor.js, /-/publish, \
         /-/upgrade, /-/reload, /-/snapshot, /-/feed, /-/status, /-/metrics, /-/healthz, \
         /-/readyz, /-/readyz/publish, /-/topics and /-/echo.";
    NOT_ON_MONITOR: EndpointNotFound =
        "No such page here; there are /-/info, /-/status, /-/metrics, /-/healthz, /-/readyz and \
         /-/readyz/publish.";
    NOT_ON_PUBLIC: EndpointNotFound =
        "No such page here; /-/values, /-/events, /-/info and /-/stentor.js are public, all others \
         are on the control listener.";
}

/// The longest list of names of fields that the answer to a preflight repeats, in bytes.
const FIELD_NAMES_BYTES_MAX: usize = 1_024;
