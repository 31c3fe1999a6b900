//! Response heads: what every answer begins with, made once a second, and the rest behind it.

use crate::answers::Answers;
use crate::head::{self, Field};
use crate::limits::TURN_COST_MAX;
use crate::listeners::{LISTENERS, Listener, PUBLIC, listener};
use crate::output::Output;
use crate::panics::may_panic;
use crate::problem::{PROBLEM, prefers_text, problem};
use crate::stats::Stats;
use std::sync::Arc;
use stentor_config::{Cors, Settings};
use stentor_files::{CachedFile, Head as FileHead};
use stentor_hub::Message;
use stentor_io::{File, LAYERED, Role, listener_of};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::negotiate::Encoding;
use stentor_wire::packed;
use stentor_wire::status::Status;

/// The fields that every response of this second shares.
#[derive(Debug)]
pub(crate) struct Preamble {
    listener: &'static Listener,
    /// `HTTP/1.1 200 OK`, and the same fields as in `fields`: the start of most answers.
    ok: Vec<u8>,
    /// `Server`, `Date` and, on the public listener, what the CORS protocol has to say always.
    fields: Vec<u8>,
    /// The time in `Date`.
    unix_s: u64,
    /// What is said beside them by TLS.
    secured: Vec<u8>,
    /// `fields` have a `Vary`.
    varies: bool,
    /// If tokens may come in cookies, pages of a listed origin may send them along.
    has_credentials: bool,
}

impl Preamble {
    /// One for each kind of listener, at the place of its number.
    pub(crate) fn all() -> [Preamble; LISTENERS.len()] {
        LISTENERS.each_ref().map(|listener| Preamble {
            listener,
            ok: Vec::new(),
            fields: Vec::new(),
            unix_s: 0,
            secured: Vec::new(),
            varies: false,
            has_credentials: false,
        })
    }

    /// Makes the fields anew: the second or the settings have changed. For `stale_s` seconds
    /// nothing was heard of whoever is followed.
    pub(crate) fn renew(&mut self, unix_s: u64, settings: &Settings, stale_s: Option<u64>) {
        self.unix_s = unix_s;
        self.fields.clear();
        if settings.server_header {
            head::field(&mut self.fields, Field::SERVER, "Stentor");
        }
        let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
        let date = httpdate::HttpDate::from(date).to_string();
        head::field(&mut self.fields, Field::DATE, date);
        if let Some(stale_s) = stale_s {
            head::field(&mut self.fields, Field::STALE, stale_s.to_string());
        }
        if self.listener.has_cors {
            add_constant_fields(&mut self.fields, &settings.cors);
        }
        self.secured.clear();
        // Of the other listeners it would be said of the same host, where they are for few.
        if self.listener.role == PUBLIC && settings.tls.hsts_s > 0 {
            let max_age = format!("max-age={}", settings.tls.hsts_s);
            head::field(&mut self.secured, Field::STRICT_TRANSPORT_SECURITY, max_age);
        }
        self.varies = self.listener.has_cors && settings.cors.names_origins();
        self.has_credentials = settings.access.cookie.is_some() || settings.cors.credentials;
        self.ok.clear();
        self.ok.extend_from_slice(Status::OK.line());
        self.ok.extend_from_slice(&self.fields);
    }
}

/// Buffers for answers that are put together.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// A body under construction.
    pub(crate) body: Vec<u8>,
    /// The name of a topic under construction.
    pub(crate) name: Vec<u8>,
}

/// The fate of the connection behind an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Persistence {
    /// It carries another request (RFC 9112 section 9.3).
    pub(crate) keep_alive: bool,
    /// HTTP/1.0 closes unless told otherwise.
    pub(crate) http10: bool,
}

packed!(struct Persistence { keep_alive, http10 });

/// What every public answer says, whoever asks: a cache may give it to anybody. If any page may
/// read, that; if only some may, that answers differ.
fn add_constant_fields(fields: &mut Vec<u8>, cors: &Cors) {
    if cors.allows_any() {
        head::field(fields, Field::ALLOW_ORIGIN, "*");
        head::field(fields, Field::EXPOSE_HEADERS, EXPOSED);
    } else if cors.names_origins() {
        head::field(fields, Field::VARY, "Origin");
    }
}

/// Fields that a page of another origin may read.
const EXPOSED: &str = "Content-Range, ETag, Location, Retry-After, Stentor-Error, Stentor-Event, \
                       Stentor-Heartbeat, Stentor-Stale, WWW-Authenticate";

/// What of a request decides the shape of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// The listener it came in by.
    pub(crate) listener: &'static Listener,
    /// The role of its connection: with [`LAYERED`] if that speaks TLS.
    pub(crate) role: Role,
    /// The answer to a HEAD has no body.
    pub(crate) head_only: bool,
    pub(crate) persistence: Persistence,
    /// The origin of the page that asks, if it is listed.
    pub(crate) origin: Option<&'a [u8]>,
    /// The field `Accept`: it chooses the form of an error.
    pub(crate) accept: Option<&'a [u8]>,
    /// It is meant for whoever asks and for nobody else: caches must not mix it up.
    pub(crate) is_private: bool,
    /// A browser must not run what is in it in the name of this origin.
    pub(crate) is_sandboxed: bool,
}

impl Shape<'_> {
    /// That of an answer to a request of which nothing matters but how it came.
    pub(crate) fn new(role: Role, persistence: Persistence) -> Self {
        Shape {
            listener: listener(listener_of(role)),
            role,
            head_only: false,
            persistence,
            origin: None,
            accept: None,
            is_private: false,
            is_sandboxed: false,
        }
    }
}

/// Some bytes of a file's answer.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    /// At hand, for this answer alone.
    Bytes(&'a [u8]),
    /// In the cache: `bytes` are what that form of the entry holds from there on.
    Cached { entry: &'a Arc<CachedFile>, encoding: Encoding, from: u32, bytes: &'a [u8] },
    /// On the disk.
    Stored { file: &'a Arc<File>, from: u64, length: u64 },
}

/// Writes one response: a method that writes the whole of it, or [`Reply::begin`] and what follows
/// a head.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) out: &'a mut Output,
    pub(crate) answers: &'a mut Answers,
    pub(crate) preamble: &'a Preamble,
    pub(crate) stats: &'a Stats,
    /// What the connection has cost in this turn: bytes of bodies, made or sent.
    pub(crate) cost: &'a mut usize,
    pub(crate) shape: Shape<'a>,
}

/// A head that has begun. Its fields come next, then a method that ends it.
#[must_use = "a head without an end is no response"]
pub(crate) struct Head<'r, 'a> {
    reply: &'r mut Reply<'a>,
    /// Where it begins in the output.
    from: usize,
}

impl<'r, 'a> Head<'r, 'a> {
    /// Adds a field.
    pub(crate) fn field(self, name: Field, value: impl AsRef<[u8]>) -> Self {
        head::field(self.reply.out.bytes(), name, value);
        self
    }

    /// Adds several fields, or one that need not be there.
    pub(crate) fn fields<V: AsRef<[u8]>>(
        self,
        fields: impl IntoIterator<Item = (Field, V)>,
    ) -> Self {
        fields.into_iter().fold(self, |head, (name, value)| head.field(name, value))
    }

    /// Adds fields of a value or of a file, which were rendered when it was made.
    pub(crate) fn rendered(self, fields: &[u8]) -> Self {
        self.reply.out.bytes().extend_from_slice(fields);
        self
    }

    /// Ends the head of a response that has no body, or one without a length.
    pub(crate) fn end(self) -> &'r mut Reply<'a> {
        head::end(self.reply.out.bytes());
        self.ended()
    }

    /// Ends the head of a response that is sent in chunks.
    pub(crate) fn end_with_chunks(self) -> &'r mut Reply<'a> {
        head::end_with_chunks(self.reply.out.bytes());
        self.ended()
    }

    /// Ends the head of a response with a body of so many bytes.
    pub(crate) fn end_with_length(self, bytes: u64) -> &'r mut Reply<'a> {
        head::end_with_length(self.reply.out.bytes(), bytes);
        self.ended()
    }

    /// Ends the head with a body that was made for this request.
    pub(crate) fn content(self, content_type: &str, body: &[u8]) {
        *self.reply.cost += body.len();
        let head = self.field(Field::CONTENT_TYPE, content_type);
        head.end_with_length(body.len() as u64).body(body);
    }

    /// Ends the head of a rejection with its code, and with a body that says what was wrong: JSON
    /// (RFC 9457), or the sentence for a client that prefers text.
    pub(crate) fn reject(self, rejection: &Rejection) {
        self.reject_until(rejection, None);
    }

    /// The same for what the client may try again in so many seconds.
    pub(crate) fn reject_for(self, rejection: &Rejection, wait_s: &str) {
        self.field(Field::RETRY_AFTER, wait_s).reject_until(rejection, Some(wait_s));
    }

    fn reject_until(self, rejection: &Rejection, wait_s: Option<&str>) {
        let Rejection { code, detail } = rejection;
        // A value may be published here at any time, and a page may ask for a stream then.
        let caching = match code {
            ErrorCode::TopicNotFound | ErrorCode::FileNotFound => "no-cache",
            _ => "no-store",
        };
        let head = self.field(Field::CACHE_CONTROL, caching).field(Field::ERROR, code.name());
        if tracing::enabled!(tracing::Level::DEBUG) {
            head.reply.answers.refuse(detail);
        }
        match prefers_text(head.reply.shape.accept) {
            true => head.sentence(detail),
            false => head.content(PROBLEM, &problem(rejection, wait_s)),
        }
    }

    /// Ends the head with one line for people.
    pub(crate) fn sentence(self, text: &str) {
        self.content(TEXT, &[text.as_bytes(), b"\n"].concat());
    }

    fn ended(self) -> &'r mut Reply<'a> {
        // These fields come from the preamble, the request's rights and the endpoint.
        if self.reply.shape.is_private || self.reply.preamble.varies {
            for field in [Field::VARY, Field::CACHE_CONTROL] {
                head::join_lines(self.reply.out.bytes(), self.from, field);
            }
        }
        #[cfg(debug_assertions)]
        assert_eq!(head::repeated_name(&self.reply.out.bytes()[self.from..]), None);
        let bytes = self.reply.out.bytes().len() - self.from;
        self.reply.stats.bytes_heads.add(bytes as u64);
        self.reply
    }
}

impl<'a> Reply<'a> {
    /// The value of a topic in one of its forms: its own fields were rendered when it was made.
    pub(crate) fn message(&mut self, message: &Arc<Message>, encoding: Encoding) {
        message.with_form(encoding, |form| {
            let is_ahead = message.published_at() > self.preamble.unix_s;
            let [before, behind] = head::value_parts(form.head, is_ahead);
            self.begin(Status::OK).rendered(before).rendered(behind).ended();
            if !self.shape.head_only {
                *self.cost += form.body.len();
                self.out.body(message, encoding, form);
                self.count_body(form.body.len() as u64);
            }
        });
    }

    /// 304 with the fields of a value that a 200 would have had, RFC 9110 section 15.4.5.
    pub(crate) fn unchanged(&mut self, message: &Arc<Message>, encoding: Encoding) {
        message.with_form(encoding, |form| {
            self.begin(Status::NOT_MODIFIED).rendered(form.unchanged).ended();
        });
    }

    /// The head of a whole file.
    pub(crate) fn file(&mut self, head: &FileHead) {
        self.begin(Status::OK).rendered(head.whole()).ended();
    }

    /// The next part of the body behind it.
    pub(crate) fn part(&mut self, part: Part<'_>) {
        if self.shape.head_only {
            return;
        }
        let bytes = match part {
            Part::Bytes(bytes) => {
                self.out.bytes().extend_from_slice(bytes);
                bytes.len()
            }
            Part::Cached { entry, encoding, from, bytes } => {
                self.out.cached(entry, encoding, from, bytes);
                bytes.len()
            }
            // What leaves of it is counted when it does.
            Part::Stored { file, from, length } => {
                *self.cost += length.min(TURN_COST_MAX as u64) as usize;
                self.answers.add_body(length);
                return self.out.stored(file, from, length);
            }
        };
        *self.cost += bytes;
        self.count_body(bytes as u64);
    }

    /// The body behind a head, unless it is a HEAD that is answered.
    pub(crate) fn body(&mut self, body: &[u8]) {
        if !self.shape.head_only {
            self.out.bytes().extend_from_slice(body);
            self.count_body(body.len() as u64);
        }
    }

    /// A document that is different every time it is asked for.
    pub(crate) fn fresh(&mut self, content_type: &str, body: &[u8]) {
        self.begin(Status::OK).field(Field::CACHE_CONTROL, "no-store").content(content_type, body);
    }

    /// Begins the head of a response that lasts until the connection ends.
    pub(crate) fn endless(&mut self, status: Status) -> Head<'_, 'a> {
        self.shape.persistence.keep_alive = false;
        self.begin(status)
    }

    /// Begins the head after which the connection speaks another protocol (RFC 9110 section
    /// 15.2.2).
    pub(crate) fn switch(&mut self, protocol: &str) -> Head<'_, 'a> {
        self.answers.begin(Status::SWITCHING_PROTOCOLS);
        self.count(Status::SWITCHING_PROTOCOLS);
        let out = self.out.bytes();
        let from = out.len();
        out.extend_from_slice(Status::SWITCHING_PROTOCOLS.line());
        out.extend_from_slice(&self.preamble.fields);
        head::switch(out, protocol);
        Head { reply: self, from }
    }

    /// Answers with a rejection.
    pub(crate) fn reject(&mut self, rejection: &Rejection) {
        self.begin(rejection.status()).reject(rejection);
    }

    /// So many bytes of body belong to the answer.
    pub(crate) fn count_body(&mut self, bytes: u64) {
        self.stats.bytes_bodies.add(bytes);
        self.answers.add_body(bytes);
    }

    /// Begins a head with what the shape of the response decides.
    #[inline]
    pub(crate) fn begin(&mut self, status: Status) -> Head<'_, 'a> {
        self.answers.begin(status);
        let out = self.out.bytes();
        let from = out.len();
        if status == Status::OK {
            out.extend_from_slice(&self.preamble.ok);
        } else {
            out.extend_from_slice(status.line());
            out.extend_from_slice(&self.preamble.fields);
        }
        may_panic();
        head::connection(out, self.shape.persistence);
        if let Some(origin) = self.shape.origin {
            head::field(out, Field::ALLOW_ORIGIN, origin);
            head::field(out, Field::EXPOSE_HEADERS, EXPOSED);
            if self.preamble.has_credentials {
                head::field(out, Field::ALLOW_CREDENTIALS, "true");
            }
        }
        if self.shape.is_private {
            head::field(out, Field::CACHE_CONTROL, "private");
            head::field(out, Field::VARY, "Authorization, Cookie");
        }
        if self.shape.is_sandboxed {
            head::field(out, Field::CONTENT_SECURITY_POLICY, "sandbox");
        }
        if self.shape.role & LAYERED != 0 {
            out.extend_from_slice(&self.preamble.secured);
        }
        self.count(status);
        Head { reply: self, from }
    }

    fn count(&self, status: Status) {
        let answers = match status.0 {
            101 => &self.stats.answers_101,
            301 | 307 => &self.stats.answers_301,
            304 => &self.stats.answers_304,
            200..=299 => &self.stats.answers_2xx,
            400..500 => &self.stats.answers_4xx,
            _ => &self.stats.answers_5xx,
        };
        answers.add(1);
    }
}

/// The type of sentences.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Permit;
    use crate::listeners::CONTROL;
    use crate::route;
    use crate::simulation::{World, kind, patient};
    use crate::stats::Totals;
    use stentor_hub::{Draft, Precondition};
    use stentor_order::Ticket;
    use stentor_wire::http1::{FieldSlots, parse};
    use stentor_wire::target::TopicName;

    #[test]
    fn browsers_are_told_to_come_by_tls_where_they_did_and_the_public_may() {
        let world = World::new(1, kind(), patient());
        let says = |hsts_s, role, is_secured| {
            let mut settings = patient();
            settings.tls.hsts_s = hsts_s;
            let mut cx = world.context(settings);
            cx.configure(Arc::clone(&cx.settings));
            let mut slots = FieldSlots::new();
            let request = parse(b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n", &mut slots).unwrap();
            let persistence = Persistence { keep_alive: true, http10: false };
            let ticket = Ticket::of_nobody();
            let role = if is_secured { role | LAYERED } else { role };
            let mut x = cx.exchange(role, &request.request, persistence, ticket, &Permit::SMALL);
            drop(route::answer(&mut x, &request.request));
            let answer = String::from_utf8_lossy(cx.out.bytes()).into_owned();
            cx.out.clear();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            answer.contains("\r\nStrict-Transport-Security: max-age=31536000\r\n")
        };
        assert!(says(31_536_000, PUBLIC, true));
        for (hsts_s, role, is_secured) in
            [(0, PUBLIC, true), (31_536_000, PUBLIC, false), (31_536_000, CONTROL, true)]
        {
            assert!(!says(hsts_s, role, is_secured), "{hsts_s} {role} {is_secured}");
        }
    }

    /// The clock was ahead when a value was published, and was set back.
    #[test]
    fn no_last_modified_is_later_than_date() {
        let world = World::new(1, kind(), patient());
        let mut cx = world.context(patient());
        cx.configure(Arc::clone(&cx.settings));
        let now = cx.clock.unix_s;
        for (ahead_s, has_date) in [(0, true), (1, false), (3_600, false)] {
            let draft = Draft::new(*b"x");
            let topic = TopicName::parse("/clock").unwrap();
            let hub = &world.shared.hub;
            hub.publish(topic, draft, Precondition::None, now + ahead_s).unwrap();
            let mut slots = FieldSlots::new();
            let request = parse(b"GET /clock HTTP/1.1\r\nHost: h\r\n\r\n", &mut slots).unwrap();
            let persistence = Persistence { keep_alive: true, http10: false };
            let ticket = Ticket::of_nobody();
            let mut x = cx.exchange(CONTROL, &request.request, persistence, ticket, &Permit::SMALL);
            drop(route::answer(&mut x, &request.request));
            let answer = String::from_utf8_lossy(cx.out.bytes()).into_owned();
            cx.out.clear();
            assert_eq!(answer.contains("\r\nLast-Modified: "), has_date, "{answer}");
            assert_ne!(answer.contains("\r\nContent-Length: 1\r\nETag: \""), has_date);
            assert!(answer.ends_with("\r\n\r\nx"), "{answer}");
        }
    }

    #[test]
    fn every_byte_of_every_head_counts() {
        let world = World::new(1, kind(), patient());
        let cors = Cors { origins: vec!["http://a".to_owned()], credentials: false };
        let mut cx = world.context(Settings { cors, ..patient() });
        cx.configure(Arc::new(Settings { server_header: false, ..(*cx.settings).clone() }));
        let mut expected = 0;
        let tag = "If-None-Match: \"0badcafe-1\"\r\n";
        let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        // While it hears nothing of its leader, a follower says so in every head.
        let mut stale = Preamble::all();
        stale.iter_mut().for_each(|preamble| preamble.renew(1, &cx.settings, Some(9)));
        let mut answered = 0;
        for (role, start, fields) in [
            (PUBLIC, "GET /small", ""),
            (PUBLIC, "GET /small", "Origin: http://a\r\n"),
            (CONTROL, "GET /small", ""),
            (PUBLIC, "HEAD /small", ""),
            (PUBLIC, "GET /small", tag),
            (PUBLIC, "GET /large", ""),
            (PUBLIC, "GET /none", ""),
            (PUBLIC, "GET /list=small", ""),
            (PUBLIC, "GET /-/values?topic=/small", ""),
            (PUBLIC, "OPTIONS /small", ""),
            (PUBLIC, "GET /small", "Accept: text/event-stream\r\n"),
            (PUBLIC, "GET /small", upgrade),
            (CONTROL, "GET /-/status", ""),
        ] {
            for (i, persistence) in
                [(true, false), (true, true), (false, false), (true, false)].into_iter().enumerate()
            {
                let request = format!("{start} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
                let mut slots = FieldSlots::new();
                let request = parse(request.as_bytes(), &mut slots).unwrap().request;
                let (keep_alive, http10) = persistence;
                let persistence = Persistence { keep_alive, http10 };
                let mut x =
                    cx.exchange(role, &request, persistence, Ticket::of_nobody(), &Permit::SMALL);
                if i == 3 {
                    x.reply.preamble = &stale[usize::from(role)];
                }
                drop(route::answer(&mut x, &request));
                let answer = cx.out.bytes().clone();
                cx.out.clear();
                let end = memchr::memmem::find(&answer, b"\r\n\r\n").unwrap() + 4;
                expected += end as u64;
                let totals = Totals::sum([&*cx.stats]);
                assert_eq!(totals.bytes_heads, expected, "{start}");
                // Every head counts in one class.
                let classes = [totals.answers_101, totals.answers_2xx, totals.answers_304];
                answered += 1;
                assert_eq!(classes.iter().sum::<u64>() + totals.answers_4xx, answered, "{start}");
            }
        }
    }
}
