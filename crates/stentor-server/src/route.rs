//! From a request head to the endpoint that answers it.

use crate::context::{CONTROL, Context, Exchange};
use crate::endpoint::{self, Sink};
use crate::response::Shape;
use stentor_io::Role;
use stentor_wire::http1::{BodyLength, Head, Method, Version};
use stentor_wire::status::Status;
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
        answer(cx, role, head, keep_alive);
        return Next::Answered;
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
            answer(cx, role, head, false);
            Next::Refused
        }
        _ => Next::Body(Sink::discard(bytes)),
    }
}

/// Answers a request that has no body, or whose body has gone by.
pub(crate) fn answer(cx: &mut Context, role: Role, head: &Head<'_>, keep_alive: bool) {
    let cors = &cx.settings.cors;
    let origin = head.origin.filter(|origin| role != CONTROL && cors.lists(origin));
    let mut x = cx.exchange(Shape { origin, ..shape(role, head, keep_alive) });
    let (path, query) = target::split(head.target);
    match head.method {
        Method::Options => options(&mut x, role, head),
        Method::Delete if role == CONTROL => endpoint::publish::delete(&mut x, head, path),
        Method::Get | Method::Head => read(&mut x, role, head, path, query),
        _ => not_allowed(&mut x, role, path),
    }
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

fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

fn read(x: &mut Exchange<'_>, role: Role, head: &Head<'_>, path: &[u8], query: Option<&[u8]>) {
    if path.starts_with(b"/-/") {
        return reserved(x, role, head, path, query);
    }
    for lookup in &x.settings.lookups {
        if let Some(names) = head.target.strip_prefix(lookup.path.as_bytes()) {
            return endpoint::values::lookup(x, head, lookup, names);
        }
    }
    endpoint::value::get(x, head, path);
}

/// The server's own pages. All but the many-values one are on the control listener only.
fn reserved(x: &mut Exchange<'_>, role: Role, head: &Head<'_>, path: &[u8], query: Option<&[u8]>) {
    match (path, role) {
        (b"/-/values", _) => endpoint::values::many(x, head, query),
        (b"/-/status", CONTROL) => endpoint::status::status(x, head),
        (b"/-/metrics", CONTROL) => endpoint::metrics::metrics(x),
        (b"/-/healthz", CONTROL) => x.reply.fresh("text/plain; charset=utf-8", b"ok\n"),
        (b"/-/readyz", CONTROL) => endpoint::status::ready(x),
        (b"/-/topics", CONTROL) => endpoint::topics::topics(x, query),
        (b"/-/publish", CONTROL) => not_allowed(x, role, path),
        #[cfg(test)]
        (b"/-/panic", _) => panic!("a panic for the tests"),
        (_, CONTROL) => x.reply.refuse(
            Status::NOT_FOUND,
            "No such page; there are /-/values, /-/publish, /-/status, /-/metrics, /-/healthz, \
             /-/readyz and /-/topics.",
        ),
        _ => x.reply.refuse(
            Status::NOT_FOUND,
            "No such page here; /-/values is public, all others are on the control listener.",
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
              If-None-Match, Last-Event-ID, Prefer\r\n\
              Access-Control-Max-Age: 86400\r\n",
        );
    }
    x.reply.empty(Status::NO_CONTENT, &fields);
}

/// 405, with what would be allowed (RFC 9110 section 15.5.6).
pub(crate) fn not_allowed(x: &mut Exchange<'_>, role: Role, path: &[u8]) {
    let reason = match (role, path) {
        (CONTROL, b"/-/publish") => "Lines of messages are POSTed here.",
        (CONTROL, _) => "This method means nothing here.",
        _ => "The public listener only answers reads; publish on the control listener.",
    };
    x.reply.refuse_with(Status::METHOD_NOT_ALLOWED, allow(role, path), reason);
}

fn allow(role: Role, path: &[u8]) -> &'static [u8] {
    match (role, path) {
        (CONTROL, b"/-/publish") => b"Allow: OPTIONS, POST\r\n",
        (CONTROL, path) if !path.starts_with(b"/-/") => {
            b"Allow: DELETE, GET, HEAD, OPTIONS, POST, PUT\r\n"
        }
        _ => b"Allow: GET, HEAD, OPTIONS\r\n",
    }
}
