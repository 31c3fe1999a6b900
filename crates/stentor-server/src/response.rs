//! Response heads: what every answer begins with, made once a second, and the rest behind it.

use crate::answers::Answers;
use crate::limits::TURN_COST_MAX;
use crate::listeners::{LISTENERS, Listener, PUBLIC, listener};
use crate::output::Output;
use crate::panics::may_panic;
use crate::stats::Stats;
use std::io::Write;
use std::sync::Arc;
use stentor_config::{Cors, Settings};
use stentor_files::{CachedFile, Head as FileHead};
use stentor_hub::Message;
use stentor_io::{File, LAYERED, Role, listener_of};
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
    /// What is said beside them by TLS.
    secured: Vec<u8>,
    /// If tokens may come in cookies, pages of a listed origin may send them along.
    credentials: &'static [u8],
}

impl Preamble {
    /// One for each kind of listener, at the place of its number.
    pub(crate) fn all() -> [Preamble; LISTENERS.len()] {
        LISTENERS.each_ref().map(|listener| Preamble {
            listener,
            ok: Vec::new(),
            fields: Vec::new(),
            secured: Vec::new(),
            credentials: b"",
        })
    }

    /// Makes the fields anew: the second or the settings have changed. For `stale_s` seconds
    /// nothing was heard of whoever is followed.
    pub(crate) fn renew(&mut self, unix_s: u64, settings: &Settings, stale_s: Option<u64>) {
        self.fields.clear();
        if settings.server_header {
            self.fields.extend_from_slice(b"Server: Stentor\r\n");
        }
        let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
        // Writing to a vector does not fail.
        let _ = write!(self.fields, "Date: {}\r\n", httpdate::HttpDate::from(date));
        if let Some(stale_s) = stale_s {
            let _ = write!(self.fields, "Stentor-Stale: {stale_s}\r\n");
        }
        if self.listener.has_cors {
            self.fields.extend_from_slice(constant_fields(&settings.cors));
            if stale_s.is_some() && !settings.cors.origins.is_empty() {
                self.fields.extend_from_slice(b"Access-Control-Expose-Headers: Stentor-Stale\r\n");
            }
        }
        self.secured.clear();
        // Of the other listeners it would be said of the same host, where they are for few.
        if self.listener.role == PUBLIC && settings.tls.hsts_s > 0 {
            let _ = write!(
                self.secured,
                "Strict-Transport-Security: max-age={}\r\n",
                settings.tls.hsts_s
            );
        }
        self.credentials = match settings.access.cookie {
            Some(_) => b"Access-Control-Allow-Credentials: true\r\n",
            None => b"",
        };
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
fn constant_fields(cors: &Cors) -> &'static [u8] {
    match cors.origins.as_slice() {
        [] => b"",
        _ if cors.allows_any() => {
            b"Access-Control-Allow-Origin: *\r\n\
              Access-Control-Expose-Headers: Content-Range, ETag\r\n"
        }
        _ => b"Vary: Origin\r\n",
    }
}

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

/// Writes one answer: a method that writes the whole of it, or one that writes the head (`file`,
/// `partial`, `content_head`) and then those that write parts of the body.
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

impl Reply<'_> {
    /// The value of a topic in one of its forms: its own fields were rendered when it was made.
    pub(crate) fn message(&mut self, message: &Arc<Message>, encoding: Encoding) {
        message.with_form(encoding, |form| {
            self.begin(Status::OK);
            self.out.bytes().extend_from_slice(form.head);
            self.stats.bytes_heads.add(form.head.len() as u64);
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
            self.begin(Status::NOT_MODIFIED);
            self.out.bytes().extend_from_slice(form.unchanged);
            self.stats.bytes_heads.add(form.unchanged.len() as u64);
        });
    }

    /// The head of a whole file.
    pub(crate) fn file(&mut self, head: &FileHead) {
        self.begin(Status::OK);
        self.out.bytes().extend_from_slice(head.whole());
        self.stats.bytes_heads.add(head.whole().len() as u64);
    }

    /// The head of some of a file: fields that are ready, the last with the empty line.
    pub(crate) fn partial(&mut self, fields: &[&[u8]]) {
        self.begin(Status::PARTIAL_CONTENT);
        for fields in fields {
            self.out.bytes().extend_from_slice(fields);
            self.stats.bytes_heads.add(fields.len() as u64);
        }
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

    /// A body made for this request. `fields` are further header lines, each with its CRLF.
    pub(crate) fn content(
        &mut self,
        status: Status,
        content_type: &str,
        fields: &[u8],
        body: &[u8],
    ) {
        *self.cost += body.len();
        self.content_head(status, content_type, fields, body.len());
        self.body(body);
    }

    /// The body behind that head, unless it is a HEAD that is answered.
    pub(crate) fn body(&mut self, body: &[u8]) {
        if !self.shape.head_only {
            self.out.bytes().extend_from_slice(body);
            self.count_body(body.len() as u64);
        }
    }

    /// The head of an answer with a body of so many bytes.
    pub(crate) fn content_head(
        &mut self,
        status: Status,
        content_type: &str,
        fields: &[u8],
        content_length: usize,
    ) {
        self.begin(status);
        let out = self.out.bytes();
        let from = out.len();
        out.extend_from_slice(fields);
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(content_type.as_bytes());
        out.extend_from_slice(b"\r\nContent-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(content_length).as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        self.stats.bytes_heads.add((out.len() - from) as u64);
    }

    /// A document that is different every time it is asked for.
    pub(crate) fn fresh(&mut self, content_type: &str, body: &[u8]) {
        self.content(Status::OK, content_type, b"Cache-Control: no-store\r\n", body);
    }

    /// An answer without a body (204, 304). `fields` are header lines, each with its CRLF.
    pub(crate) fn empty(&mut self, status: Status, fields: &[u8]) {
        self.begin(status);
        let out = self.out.bytes();
        let from = out.len();
        out.extend_from_slice(fields);
        out.extend_from_slice(b"\r\n");
        self.stats.bytes_heads.add((out.len() - from) as u64);
    }

    /// The head of an answer that goes on until the connection ends.
    pub(crate) fn endless(&mut self, status: Status, fields: &[u8]) {
        self.shape.persistence.keep_alive = false;
        self.empty(status, fields);
    }

    /// The head after which the connection speaks another protocol (RFC 9110 section 15.2.2).
    pub(crate) fn switch(&mut self, fields: &[u8]) {
        self.answers.begin(Status::SWITCHING_PROTOCOLS);
        self.count(Status::SWITCHING_PROTOCOLS);
        let out = self.out.bytes();
        let from = out.len();
        out.extend_from_slice(Status::SWITCHING_PROTOCOLS.line());
        out.extend_from_slice(&self.preamble.fields);
        out.extend_from_slice(fields);
        out.extend_from_slice(b"\r\n");
        self.stats.bytes_heads.add((out.len() - from) as u64);
    }

    /// A refusal: the status and one line that says what was wrong.
    pub(crate) fn refuse(&mut self, status: Status, reason: &str) {
        self.refuse_with(status, b"", reason);
    }

    /// A refusal that needs a further field, such as `Allow`.
    pub(crate) fn refuse_with(&mut self, status: Status, fields: &[u8], reason: &str) {
        let mut line = String::with_capacity(reason.len() + 1);
        line.push_str(reason);
        line.push('\n');
        self.content(status, "text/plain; charset=utf-8", fields, line.as_bytes());
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.answers.refuse(reason);
        }
    }

    fn count_body(&mut self, bytes: u64) {
        self.stats.bytes_bodies.add(bytes);
        self.answers.add_body(bytes);
    }

    fn begin(&mut self, status: Status) {
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
        let Persistence { keep_alive, http10 } = self.shape.persistence;
        if !keep_alive {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if http10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        if let Some(origin) = self.shape.origin {
            out.extend_from_slice(b"Access-Control-Allow-Origin: ");
            out.extend_from_slice(origin);
            out.extend_from_slice(b"\r\nAccess-Control-Expose-Headers: Content-Range, ETag\r\n");
            out.extend_from_slice(self.preamble.credentials);
        }
        if self.shape.is_private {
            out.extend_from_slice(b"Cache-Control: private\r\nVary: Authorization, Cookie\r\n");
        }
        if self.shape.is_sandboxed {
            out.extend_from_slice(b"Content-Security-Policy: sandbox\r\n");
        }
        if self.shape.role & LAYERED != 0 {
            out.extend_from_slice(&self.preamble.secured);
        }
        self.stats.bytes_heads.add((out.len() - from) as u64);
        self.count(status);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Permit;
    use crate::listeners::CONTROL;
    use crate::route;
    use crate::simulation::{World, kind, patient};
    use crate::stats::Totals;
    use stentor_order::Ticket;
    use stentor_wire::http1::{FieldSlots, parse};

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

    #[test]
    fn every_byte_of_every_head_counts() {
        let world = World::new(1, kind(), patient());
        let cors = Cors { origins: vec!["http://a".to_owned()] };
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
