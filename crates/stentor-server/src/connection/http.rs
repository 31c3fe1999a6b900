//! A connection that reads HTTP requests: heads and bodies as HTTP/1 frames them, and what answers
//! them. No other state knows how a request is framed.

use super::body::Making;
use super::state::State;
use super::{Connection, Origin, Progress, REQUEST_COST, RequestWait};
use crate::access::Act;
use crate::answers::Asked;
use crate::budget::{Permit, WorkClass, admitted};
use crate::context::{Context, Presented};
use crate::endpoint::Sink;
use crate::exchange::{Answer, Exchange};
use crate::head;
use crate::limits::{BODY_GRACE_MS, BULK_SILENCE_MS, DRAIN_IDLE_MS};
use crate::response::Persistence;
use crate::{paths, route};
use std::net::IpAddr;
use stentor_config::Settings;
use stentor_tls_layer::TlsFailure;
use stentor_wire::error::Rejection;
use stentor_wire::http1::{self, FieldSlots, Framing, Head, Method, Request, Scan, Version};
use stentor_wire::pack::Moment;
use stentor_wire::packed;

/// The current request, as far as it has arrived.
#[derive(Debug)]
pub(super) struct Http {
    /// Its body, on its way in.
    body: Option<Box<Incoming>>,
    /// How much of the input was searched for the end of a head.
    scanned: u32,
    wait: RequestWait,
}

/// A request body on its way in.
#[derive(Debug)]
pub(super) struct Incoming {
    body: http1::Body,
    asked: Asked,
    sink: Sink,
    persistence: Persistence,
    /// The client waits for `100 Continue` (RFC 9110 section 10.1.1).
    continue_due: bool,
    began: Moment,
    bytes: u64,
}

packed!(struct Incoming { body, asked, sink, persistence, continue_due, began, bytes });

impl Incoming {
    fn new(framing: &Framing, asked: Asked, sink: Sink, now_ms: u64) -> Box<Incoming> {
        let http10 = framing.version == Version::Http10;
        Box::new(Incoming {
            body: http1::Body::new(framing.body),
            asked,
            sink,
            persistence: Persistence { keep_alive: framing.keep_alive, http10 },
            continue_due: framing.expect_continue,
            began: Moment(now_ms),
            bytes: 0,
        })
    }

    /// A body must keep to a minimum rate once it had a start; a publisher's stream of lines may
    /// be slow, but not silent.
    fn deadline_ms(&self, now_ms: u64, bytes_per_s_min: u64) -> u64 {
        if self.sink.is_bulk() || bytes_per_s_min == 0 {
            return now_ms + BULK_SILENCE_MS;
        }
        self.began.0 + BODY_GRACE_MS + self.bytes * 1000 / bytes_per_s_min
    }
}

impl Http {
    pub(super) fn new(wait: RequestWait, scanned: u32, body: Option<Box<Incoming>>) -> Http {
        Http { body, scanned, wait }
    }

    pub(super) fn wait(&self) -> RequestWait {
        self.wait
    }

    /// Waits for a handshake, or for the first head after it. Returns whether that is new.
    pub(super) fn negotiates(&mut self, wait: RequestWait) -> bool {
        std::mem::replace(&mut self.wait, wait) != wait
    }

    pub(super) fn body(&self) -> Option<&Incoming> {
        self.body.as_deref()
    }

    pub(super) fn scanned(&self) -> u32 {
        self.scanned
    }

    /// A stream of messages, if one is coming.
    fn bulk(&self) -> Option<&crate::endpoint::bulk::Bulk> {
        match self.body.as_deref() {
            Some(Incoming { sink: Sink::Bulk(bulk), .. }) => Some(bulk),
            _ => None,
        }
    }

    pub(super) fn bulk_mut(&mut self) -> Option<&mut crate::endpoint::bulk::Bulk> {
        match self.body.as_deref_mut() {
            Some(Incoming { sink: Sink::Bulk(bulk), .. }) => Some(bulk),
            _ => None,
        }
    }

    pub(super) fn reads_bulk(&self) -> bool {
        self.bulk().is_some()
    }

    /// Whether the commit of a message is due.
    pub(super) fn awaits_commit(&self) -> bool {
        self.bulk().is_some_and(|bulk| !bulk.is_committed())
    }

    /// Whether a body is not read on before some of it is committed.
    pub(super) fn is_sink_full(&self) -> bool {
        self.bulk().is_some_and(|bulk| bulk.is_full())
    }

    /// Takes what is to be counted and logged of the request whose body is on its way.
    pub(super) fn take_asked(&mut self) -> Option<Asked> {
        self.body.as_deref_mut().map(|incoming| std::mem::take(&mut incoming.asked))
    }

    pub(super) fn own_bytes(&self) -> usize {
        let of = |incoming: &Incoming| incoming.sink.own_bytes() + incoming.asked.own_bytes();
        self.body.as_deref().map_or(0, of)
    }

    /// Sets the event that the connection waits for. Returns its deadline; `None` if the deadline
    /// does not change.
    pub(super) fn arm(
        &mut self,
        cx: &Context,
        has_input: bool,
        room_ms: Option<u64>,
    ) -> Option<u64> {
        let (now_ms, limits) = (cx.clock.now_ms, &cx.settings.limits);
        let (wait, deadline_ms) = match (room_ms, self.body.as_deref()) {
            (Some(room_ms), _) => (RequestWait::Room, room_ms),
            (None, Some(incoming)) => {
                (RequestWait::Body, incoming.deadline_ms(now_ms, limits.body_rate_min))
            }
            (None, None) if has_input => (RequestWait::Head, now_ms + limits.head_timeout_ms),
            // It has its time from when it began.
            _ if matches!(self.wait, RequestWait::Handshake | RequestWait::ProxyHeader) => {
                return None;
            }
            _ if cx.draining => (RequestWait::Idle, now_ms + DRAIN_IDLE_MS),
            _ => (RequestWait::Idle, now_ms + cx.keep_alive_ms()),
        };
        self.wait = wait;
        Some(deadline_ms)
    }
}

impl Connection {
    /// Takes the next part of a request off the front of `input`.
    pub(super) fn read_request(&mut self, cx: &mut Context, input: &[u8]) -> Progress {
        // Nothing more is begun here.
        if cx.stands_still {
            self.work.wait_in(WorkClass::Requests);
            return Progress::Starved(0);
        }
        let body = self.http().and_then(Http::body);
        if cx.load.budget.holds() && may_publish(body, input) {
            self.work.wait_in(WorkClass::Held);
            return Progress::Starved(0);
        }
        match body {
            Some(_) => self.take_body(cx, input),
            None => self.take_head(cx, input),
        }
    }

    fn take_head(&mut self, cx: &mut Context, input: &[u8]) -> Progress {
        // TLS is not spoken here. It ends without a word, for the peer would not understand one.
        if input.starts_with(&[HANDSHAKE, 3]) {
            cx.stats.tls_failed.of(TlsFailure::NotSpokenHere).add(1);
            self.enter(cx, State::Refusing);
            return Progress::Used(0);
        }
        let Some(http) = self.http_mut() else { return Progress::Starved(0) };
        match http1::scan(input, std::mem::take(&mut http.scanned) as usize) {
            Ok(Scan::Complete { len }) => {
                // The deadline of a head is that head's alone.
                cx.rearm();
                self.request(cx, &input[..len], len == input.len())
            }
            Ok(Scan::Partial { scanned }) => {
                http.scanned = scanned as u32;
                Progress::Starved(0)
            }
            Err(refusal) => {
                self.note_asked(cx, input);
                self.reject(cx, &refusal, false);
                Progress::Used(0)
            }
        }
    }

    /// Parses one whole HTTP/1 head and handles its request. `last`: no byte has been received
    /// after the head. A graceful stop still answers the requests that came before it.
    fn request(&mut self, cx: &mut Context, bytes: &[u8], last: bool) -> Progress {
        cx.load.budget.cost += REQUEST_COST;
        self.note_asked(cx, bytes);
        let mut slots = FieldSlots::new();
        match http1::parse(bytes, &mut slots) {
            Ok(head) => {
                let client = self.named_client(cx, bytes);
                if !self.handle(cx, &head, client, last) {
                    self.work.wait_in(WorkClass::Requests);
                    return Progress::Starved(0);
                }
            }
            Err(refusal) => {
                cx.stats.requests.add(1);
                let is_head = bytes.trim_ascii_start().starts_with(b"HEAD ");
                self.reject(cx, &refusal, is_head);
            }
        }
        Progress::Used(bytes.len())
    }

    /// Handles one request, whatever protocol brought it: answers it, or prepares for its body, or
    /// for the stream it asks for. A proxy may have named its `client`. Returns whether there was
    /// budget for it.
    fn handle(
        &mut self,
        cx: &mut Context,
        Head { request, framing }: &Head<'_>,
        client: Option<IpAddr>,
        last: bool,
    ) -> bool {
        let is_meant = match self.origin {
            Origin::Unix => Ok(()),
            _ => cx.may(self.role, Act::Ask(request)).map_err(|denied| denied.rejection),
        };
        if let Err(refusal) = is_meant {
            cx.stats.requests.add(1);
            self.reject(cx, &refusal, request.method == Method::Head);
            return true;
        }
        if self.is_put_off(cx, request, client) {
            return true;
        }
        let presented = cx.presented(self.role, request);
        let class = class_of(request, &presented, &cx.settings);
        let answered = admitted(cx, class, |cx, permit| {
            let (bearer, token) = presented.bearer(cx, permit);
            cx.stats.requests.add(1);
            // An answer that does not wait for the body is the last: the body may not have arrived.
            let is_bodyless = framing.body.is_empty();
            let keep_alive = framing.keep_alive && is_bodyless && !(cx.draining && last);
            let http10 = framing.version == Version::Http10;
            let persistence = Persistence { keep_alive, http10 };
            self.stamp = self.stamp.wrapping_add(1);
            let mut x = cx.exchange(self.role, request, persistence, self.ticket(cx), permit);
            (x.requester.bearer, x.requester.token) = (bearer, token);
            let answer = route::begin(&mut x, request, framing.body);
            let keep_alive = x.reply.shape.persistence.keep_alive;
            if let Answer::AfterBody(sink) = answer {
                let asked = cx.responses.answers.put_by();
                let now_ms = cx.clock.now_ms;
                if let Some(http) = self.http_mut() {
                    http.body = Some(Incoming::new(framing, asked, sink, now_ms));
                }
            } else {
                let ending = if is_bodyless { State::Closing } else { State::Refusing };
                self.answered(cx, answer, (keep_alive, ending), permit);
            }
        });
        if answered.is_none() {
            cx.responses.answers.put_by();
        }
        answered.is_some()
    }

    /// Part of a body: to its sink, which answers when the body is whole.
    fn take_body(&mut self, cx: &mut Context, input: &[u8]) -> Progress {
        let (role, ticket) = (self.role, self.ticket(cx));
        let Some(incoming) = self.http_mut().and_then(|http| http.body.as_deref_mut()) else {
            return Progress::Starved(0);
        };
        let before = incoming.body.clone();
        let (refusal, used) = match incoming.body.next(input) {
            Ok(http1::Step::Data { data, used }) => {
                incoming.bytes += data.len() as u64;
                incoming.continue_due = false;
                cx.load.budget.cost += incoming.sink.cost(data.len());
                let persistence = incoming.persistence;
                let mut x = cx.exchange(role, None, persistence, ticket, &Permit::SMALL);
                match incoming.sink.data(&mut x, data) {
                    Ok(()) => return Progress::Used(used),
                    Err(refusal) => (refusal, used),
                }
            }
            Ok(http1::Step::More { used }) => {
                if std::mem::take(&mut incoming.continue_due) {
                    head::continue_with_body(cx.out.bytes());
                }
                return Progress::Starved(used);
            }
            Ok(http1::Step::End { used }) => {
                return self.finish_body(cx, before, (used, used == input.len()));
            }
            Err(refusal) => (refusal, 0),
        };
        cx.responses.answers.asked = std::mem::take(&mut incoming.asked);
        self.reject(cx, &refusal, false);
        Progress::Used(used)
    }

    /// The body is complete: has the sink answer. `before` is the body before its last bytes.
    fn finish_body(
        &mut self,
        cx: &mut Context,
        before: http1::Body,
        (used, last): (usize, bool),
    ) -> Progress {
        let role = self.role;
        let class = match self.http().and_then(Http::body).map(|incoming| &incoming.sink) {
            Some(Sink::Discard { request, .. }) => {
                let request = request.borrowed();
                class_of(&request, &cx.presented(role, &request), &cx.settings)
            }
            Some(sink) => sink.inflates().then_some(WorkClass::Requests),
            None => None,
        };
        if admitted(cx, class, |cx, permit| self.answer_body(cx, last, permit)).is_some() {
            return Progress::Used(used);
        }
        if let Some(incoming) = self.http_mut().and_then(|http| http.body.as_deref_mut()) {
            incoming.body = before;
        }
        self.work.wait_in(WorkClass::Requests);
        Progress::Starved(0)
    }

    fn answer_body(&mut self, cx: &mut Context, last: bool, permit: &Permit) {
        let Some(incoming) = self.http_mut().and_then(|http| http.body.take()) else { return };
        let Incoming { asked, sink, mut persistence, .. } = *incoming;
        persistence.keep_alive &= !(cx.draining && last);
        cx.responses.answers.asked = asked;
        let ticket = self.ticket(cx);
        let (answer, keep_alive) = match sink {
            // It is answered as if it had come without a body.
            Sink::Discard { request, .. } => {
                let request = request.borrowed();
                let (bearer, token) = cx.presented(self.role, &request).bearer(cx, permit);
                let mut x = cx.exchange(self.role, &request, persistence, ticket, permit);
                (x.requester.bearer, x.requester.token) = (bearer, token);
                (route::answer(&mut x, &request), x.reply.shape.persistence.keep_alive)
            }
            Sink::Publish(upload) => {
                let mut x = cx.exchange(self.role, None, persistence, ticket, permit);
                (upload.finish(&mut x), x.reply.shape.persistence.keep_alive)
            }
            Sink::Bulk(bulk) => {
                let mut x = cx.exchange(self.role, None, persistence, ticket, permit);
                (bulk.finish(&mut x), x.reply.shape.persistence.keep_alive)
            }
        };
        self.answered(cx, answer, (keep_alive, State::Closing), permit);
    }

    /// A request has got its answer, or will get it later: keeps the connection or ends it, as the
    /// answer says.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context,
        answer: Answer,
        (keep_alive, ending): (bool, State),
        permit: &Permit,
    ) {
        match answer {
            Answer::Now | Answer::AfterBody(_) if !keep_alive => self.enter(cx, ending),
            Answer::Now | Answer::AfterBody(_) => {}
            Answer::Stream(opening) => self.begin_reading(cx, *opening, None, permit),
            Answer::Poll(held, opening) => {
                self.begin_reading(cx, *opening, Some(held), permit);
            }
            Answer::Later(pending) => self.enter(cx, State::Pending(pending)),
            Answer::Body(body) => {
                let ending = (!keep_alive).then_some(ending);
                self.enter(cx, Making::begin(body, ending));
            }
            Answer::Copy(copying) => self.begin_copying(cx, *copying),
        }
    }

    /// Tells a stream of messages what came of it so far and refuses the rest. Returns whether
    /// there was one.
    pub(super) fn end_bulk(&mut self, cx: &mut Context) -> bool {
        if !self.http().is_some_and(Http::reads_bulk) {
            return false;
        }
        self.answer_body(cx, true, &Permit::SMALL);
        // The publisher may be sending still.
        if matches!(self.state, State::Closing) {
            self.enter(cx, State::Refusing);
        }
        true
    }

    /// Answers with a refusal, after which nothing of the connection's input means anything.
    pub(super) fn reject(&mut self, cx: &mut Context, rejection: &Rejection, head_only: bool) {
        self.last_exchange(cx, head_only).reject(rejection);
    }

    /// The exchange for an answer behind which the connection ends.
    pub(super) fn last_exchange<'a>(
        &mut self,
        cx: &'a mut Context,
        head_only: bool,
    ) -> Exchange<'a> {
        self.enter(cx, State::Refusing);
        let persistence = Persistence { keep_alive: false, http10: false };
        let mut x = cx.exchange(self.role, None, persistence, self.ticket(cx), &Permit::SMALL);
        x.reply.shape.head_only = head_only;
        x
    }
}

/// Whether the next bytes of a request may change a topic.
fn may_publish(body: Option<&Incoming>, input: &[u8]) -> bool {
    let input = input.trim_ascii_start();
    let methods: [&[u8]; 3] = [b"PUT ", b"POST ", b"DELETE "];
    body.is_some() || methods.iter().any(|method| input.starts_with(method))
}

/// The class of what answering a request takes; `None` if that is little.
fn class_of(
    request: &Request<'_>,
    presented: &Presented<'_>,
    settings: &Settings,
) -> Option<WorkClass> {
    let is_large = presented.is_unverified() || paths::is_large(request, settings);
    is_large.then_some(WorkClass::Requests)
}

/// The type of the records that a handshake of TLS begins with.
const HANDSHAKE: u8 = 22;
