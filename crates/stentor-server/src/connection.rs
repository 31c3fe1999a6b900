//! One connection: a record of a few words, and what is unfinished about it, if anything is.
//!
//! A connection that waits for its next request is its record alone. Bytes of an incomplete
//! request, a body on its way in, and an answer the socket refused are [`Work`], which is
//! allocated when the first of them appears and freed with the last.
//!
//! Two rules keep one connection from hurting the others. While an answer waits for the peer to
//! read, no further request is looked at and no further byte is read. And when a turn has cost
//! its share, the rest of the input waits for the next turn, behind everybody else's.

mod check;
mod client;
mod copying;
mod ending;
mod eviction;
mod exchange;
mod expelled;
mod handover;
mod memory;
mod pace;
pub(crate) mod pending;
mod pump;
mod reader;
mod websocket;
mod work;

use crate::access::Act;
use crate::addresses::Counted;
use crate::budget::{Permit, Place, WorkClass, admitted};
use crate::context::{Context, Presented};
use crate::endpoint::Sink;
use crate::exchange::Answer;
use crate::head;
use crate::limits::{ACKNOWLEDGE_MS, DRAIN_IDLE_MS, GATHER_BYTES};
use crate::response::{Persistence, Shape};
use crate::stats::Activity;
use crate::stream::Reader;
use crate::timers::{Timed, Timer};
use crate::{paths, route};
use pace::Pace;
use std::net::IpAddr;
use stentor_config::Settings;
use stentor_io::{Backend, Flow, Gone, LAYERED, PROXIED, Peer, Role, listener_of};
use stentor_tls_layer::LINGER_MS;
use stentor_wire::http1::{self, FieldSlots, Head, Method, Request, Scan, Version};
use work::{Incoming, Work};

use crate::phase::{AnswerWait, CopyWait, Phase, RequestWait, StreamWait};
pub(crate) use eviction::Loss;

/// The record of a connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    work: Option<Box<Work>>,
    extra: Option<Box<reader::Extra>>,
    reader: Reader,
    timer: Timer,
    counted: Counted,
    /// With [`LAYERED`] if it speaks TLS.
    role: Role,
    origin: Origin,
    phase: Phase,
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Origin {
    /// From this host, by a socket file.
    #[default]
    Unix,
    /// From a client.
    Client,
    /// From a trusted proxy: its requests name their clients.
    Proxy,
    /// From a trusted proxy that only looks whether the server is there.
    Probe,
}

/// What came of looking at some input.
enum Progress {
    /// So many bytes were used, and there may be more to do.
    Used(usize),
    /// So many bytes were used; the rest is not enough to go on.
    Starved(usize),
    /// Nothing was used: the connection waits in a work queue.
    NotNow(WorkClass),
}

/// How far a turn came with the input.
enum Turn {
    /// So many bytes were used; with the rest there is nothing to do yet.
    Done(usize),
    /// So many bytes were used, and the rest is for another turn.
    Yielded(usize),
}

impl Timed for Connection {
    fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

impl Connection {
    /// Which listener it came in by.
    pub(crate) fn role(&self) -> Role {
        listener_of(self.role)
    }

    fn is_secured(&self) -> bool {
        self.role & LAYERED != 0
    }

    pub(crate) fn open(&mut self, role: Role, origin: Origin, counted: Counted) {
        self.role = role;
        self.origin = origin;
        self.counted = counted;
        let is_proxied = role & PROXIED != 0;
        let wait = if is_proxied { RequestWait::ProxyHeader } else { RequestWait::Head };
        self.phase = Phase::Open(wait);
    }

    /// A layer agrees on something with the peer, or is done with that. Returns whether this is
    /// new.
    pub(crate) fn negotiates(&mut self, is_under_way: bool) -> bool {
        let wait = if is_under_way { RequestWait::Handshake } else { RequestWait::Head };
        let is_new = matches!(self.phase, Phase::Open(before) if before != wait);
        if is_new {
            self.phase = Phase::Open(wait);
        }
        is_new
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Free
    }

    /// What the connection is doing, for the counters.
    pub(crate) fn activity(&self) -> Activity {
        match self.work.as_deref() {
            Some(_) if self.is_blocked() && self.reads_feeds() => Activity::Behind,
            Some(_) if self.is_blocked() => Activity::Writing,
            Some(_) if matches!(self.phase, Phase::Open(_)) => Activity::Reading,
            _ => Activity::Waiting,
        }
    }

    /// Whether it waits for its next request, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Open(RequestWait::Idle) && self.work.is_none()
    }

    /// Whether the connection takes input now. While a response waits for a commit, the connection
    /// reads neither bytes nor the end of its input. So a client that half-closes gets its
    /// responses, and then the connection reads the end.
    pub(crate) fn reads(&self) -> bool {
        let awaits_commit = self.is_pending() && !self.is_polling() || self.is_sink_full();
        self.phase != Phase::Free && !self.waits() && !awaits_commit && !self.holds_too_much()
    }

    /// Whether the connection is to go on with something by itself, once it can write or its turn
    /// has come.
    pub(crate) fn waits(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.waits())
    }

    /// Whether there is something to be sent as soon as it can write.
    pub(crate) fn is_blocked(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.backlog.is_some())
    }

    /// Its place in a work queue, if it has one.
    pub(crate) fn place(&self) -> Option<(WorkClass, Place)> {
        let work = self.work.as_deref()?;
        work.queue.zip(work.place)
    }

    /// The connection has been taken out of its work queue, or is given another place there.
    pub(crate) fn set_place(&mut self, place: Option<Place>) {
        if let Some(work) = &mut self.work {
            work.place = place;
        }
    }

    /// Bytes arrived: answers whatever they complete.
    pub(crate) fn receive<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        bytes: &[u8],
    ) -> Flow {
        if !self.takes_input() {
            return Flow::More;
        }
        let result = match &mut self.work {
            Some(work) if !work.input.is_empty() => {
                let mut input = std::mem::take(&mut work.input);
                input.extend_from_slice(bytes);
                self.proceed_owned(cx, io, peer, input)
            }
            _ => self.proceed(cx, io, peer, bytes).map(|turn| {
                let (Turn::Done(used) | Turn::Yielded(used)) = turn;
                if used < bytes.len() && self.takes_input() {
                    self.work().input = bytes[used..].to_vec();
                    if matches!(turn, Turn::Yielded(_)) {
                        self.wait_in(WorkClass::Requests);
                    }
                }
            }),
        };
        self.settle(cx, io, peer, result)
    }

    /// There is room to write, or another turn: sends what waits, then goes on with the input.
    pub(crate) fn go_on<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        let is_reset_at_end = self.is_reset_at_end(cx);
        let Some(work) = &mut self.work else { return };
        if let Some(backlog) = &mut work.backlog {
            match backlog.send(io, peer, &cx.stats, &mut cx.load.sent_bytes) {
                Ok(false) => {
                    return self.note_pace(cx, io, peer);
                }
                Ok(true) => {
                    work.backlog = None;
                    // The peer was not listened to meanwhile: should it have sent something,
                    // closing now would be a reset, and cost it what it has not read yet.
                    if self.phase == Phase::Closing && !is_reset_at_end {
                        self.phase = Phase::Refusing;
                    }
                }
                Err(Gone) => return self.close(cx, io, peer),
            }
        }
        work.queue = None;
        cx.responses.answers.go_on(work.since_us.take());
        let input = std::mem::take(&mut work.input);
        if cx.draining {
            self.end_bulk(cx, io, peer);
        }
        if self.phase == Phase::Streaming(StreamWait::Leave) {
            self.say_farewell(cx, peer);
        }
        let result = match self.takes_input() || self.is_copying() {
            true => self.proceed_owned(cx, io, peer, input),
            false => self.flush(cx, io, peer).map(drop),
        };
        if self.settle(cx, io, peer, result) == Flow::More {
            io.resume(peer);
        }
    }

    /// Sets what the connection waits for. Returns its deadline if that has changed.
    pub(crate) fn deadline_ms(&mut self, cx: &mut Context, peer: Peer) -> Option<u64> {
        let now_ms = cx.clock.now_ms;
        let (phase, deadline_ms) = match self.phase {
            // The end of the server's stop limits how long the stream takes to leave.
            Phase::Free | Phase::Streaming(StreamWait::Leave) => return None,
            Phase::Open(wait) => self.request_deadline(cx, wait)?,
            Phase::Streaming(_) => self.stream_deadline(cx, peer),
            Phase::Pending(_) => self.pending_deadline(cx, peer),
            Phase::Copying(_) => self.copying_deadline(cx, peer),
            Phase::Closing | Phase::Refusing => (self.phase, self.room_deadline_ms(cx)),
            Phase::Lingering => (self.phase, now_ms + LINGER_MS),
            Phase::Delivering => (self.phase, now_ms + ACKNOWLEDGE_MS),
        };
        self.phase = phase;
        (phase.renews() || cx.armed != Some(phase)).then_some(deadline_ms)
    }

    /// Returns the event and the deadline of an open connection. `None` if both stay as they are.
    fn request_deadline(&self, cx: &Context, wait: RequestWait) -> Option<(Phase, u64)> {
        let (now_ms, limits) = (cx.clock.now_ms, &cx.settings.limits);
        let (wait, deadline_ms) = match self.work.as_deref() {
            Some(work) if work.waits() => (RequestWait::Room, self.room_deadline_ms(cx)),
            Some(Work { incoming: Some(incoming), .. }) => {
                (RequestWait::Body, incoming.deadline_ms(now_ms, limits.body_rate_min))
            }
            Some(_) => (RequestWait::Head, now_ms + limits.head_timeout_ms),
            // It has its time from when it began.
            None if matches!(wait, RequestWait::Handshake | RequestWait::ProxyHeader) => {
                return None;
            }
            None if cx.draining => (RequestWait::Idle, now_ms + DRAIN_IDLE_MS),
            None => (RequestWait::Idle, now_ms + cx.keep_alive_ms()),
        };
        Some((Phase::Open(wait), deadline_ms))
    }

    /// The peer has sent its last byte, and the connection has not read it yet. A connection that
    /// waits for room, for a queue or for a commit reads it later. A long-poll that reads nothing
    /// more would not, so it ends here, as it does when it reads the end.
    pub(crate) fn peer_finished<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        if self.is_polling() && !self.waits() || self.awaits_proxy_header() {
            self.close(cx, io, peer);
        }
    }

    /// Whether more than stray empty lines, which some clients send after a body, has arrived.
    fn has_begun_a_head(&self) -> bool {
        let blank = |byte: &u8| matches!(byte, b'\r' | b'\n');
        self.work.as_ref().is_some_and(|work| !work.input.iter().all(blank))
    }

    fn work(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    /// [`Connection::proceed`] over input the connection owns, and keeps what is left of.
    fn proceed_owned<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        mut input: Vec<u8>,
    ) -> Result<(), Gone> {
        let turn = self.proceed(cx, io, peer, &input)?;
        let (Turn::Done(used) | Turn::Yielded(used)) = turn;
        if used < input.len() && self.takes_input() {
            input.drain(..used);
            self.work().input = input;
            if matches!(turn, Turn::Yielded(_)) {
                self.wait_in(WorkClass::Requests);
            }
        }
        Ok(())
    }

    /// Whether what comes in may still mean something.
    fn takes_input(&self) -> bool {
        matches!(self.phase, Phase::Open(_) | Phase::Streaming(_) | Phase::Pending(_))
    }

    /// Whether so much input waits behind a long-poll that the connection reads no more before
    /// the response.
    fn holds_too_much(&self) -> bool {
        let input = self.work.as_deref().map_or(0, |work| work.input.len());
        input >= http1::HEAD_BYTES_MAX && self.is_polling()
    }

    /// Whether a body is not read on before some of it is committed.
    fn is_sink_full(&self) -> bool {
        let incoming = self.work.as_deref().and_then(|work| work.incoming.as_deref());
        incoming.is_some_and(|incoming| incoming.sink.is_full())
    }

    /// What was received and not used.
    fn take_input(&mut self) -> Vec<u8> {
        self.work.as_mut().map(|work| std::mem::take(&mut work.input)).unwrap_or_default()
    }

    /// Leaves the rest for when the work queue serves it: this one, unless it waits already.
    fn wait_in(&mut self, class: WorkClass) {
        self.work().queue.get_or_insert(class);
    }

    /// Answers what `input` asks, in order, until it is used up, the socket is full or the turn
    /// has cost its share. Ends with everything sent or kept as backlog.
    fn proceed<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        input: &[u8],
    ) -> Result<Turn, Gone> {
        let mut at = 0;
        let mut yielded = false;
        while !yielded {
            let rest = &input[at..];
            let incoming = self.work.as_mut().and_then(|work| work.incoming.take());
            let progress = match (self.phase, incoming) {
                (Phase::Open(_), Some(incoming)) if incoming.sink.is_full() => {
                    self.work().incoming = Some(incoming);
                    break;
                }
                // Nothing more is begun here.
                (Phase::Open(_), body) if cx.stands_still => match self.put_by(body, rest) {
                    Some(progress) => progress,
                    None => break,
                },
                (Phase::Open(_), Some(incoming)) => self.take_body(cx, io, peer, incoming, rest),
                (Phase::Open(_), None) if !rest.is_empty() => self.take_head(cx, io, peer, rest),
                // What is due goes first: the response, or what was just subscribed to.
                _ if self.is_busy() => {
                    self.pump(cx, io, peer)?;
                    if self.is_busy() || self.waits() { break } else { continue }
                }
                (Phase::Streaming(_), _) if !rest.is_empty() => self.read_frames(cx, peer, rest),
                _ => break,
            };
            match progress {
                Progress::Used(used) => at += used,
                Progress::Starved(used) => {
                    at += used;
                    break;
                }
                Progress::NotNow(class) => {
                    self.wait_in(class);
                    break;
                }
            }
            if cx.out.len() >= GATHER_BYTES && !self.flush(cx, io, peer)? {
                break;
            }
            // At the end of the input there may still be an answer due, and nothing to come back
            // for.
            yielded = cx.load.budget.is_over_share() && at < input.len();
        }
        if !self.is_pending() {
            self.pump(cx, io, peer)?;
        }
        if self.phase == Phase::Closing && (at < input.len() || cx.draining) {
            self.phase = Phase::Refusing;
        }
        self.flush(cx, io, peer)?;
        // An answer that waits brings the connection back by itself.
        Ok(if yielded && !self.waits() { Turn::Yielded(at) } else { Turn::Done(at) })
    }

    /// Leaves what was received, if anything was, to whoever goes on with the connection.
    fn put_by(&mut self, incoming: Option<Box<Incoming>>, rest: &[u8]) -> Option<Progress> {
        if incoming.is_some() {
            self.work().incoming = incoming;
        }
        (!rest.is_empty()).then_some(Progress::NotNow(WorkClass::Requests))
    }

    fn take_head<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        input: &[u8],
    ) -> Progress {
        let scanned = self.work.as_ref().map_or(0, |work| work.scanned);
        if self.ends_for_tls(cx, input) {
            return Progress::Used(0);
        }
        match http1::scan(input, scanned) {
            Ok(Scan::Complete { len }) => {
                if scanned != 0 {
                    self.work().scanned = 0;
                }
                // The deadline of a head is that head's alone.
                cx.rearm();
                self.request(cx, io, peer, &input[..len], len == input.len())
            }
            Ok(Scan::Partial { scanned }) => {
                self.work().scanned = scanned;
                Progress::Starved(0)
            }
            Err(refusal) => {
                self.note_asked(cx, input);
                self.refuse(cx, peer, &refusal);
                Progress::Used(0)
            }
        }
    }

    /// Parses one whole HTTP/1 head and handles its request. `last`: no byte has been received
    /// after the head. A graceful stop still answers the requests that came before it.
    fn request<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        bytes: &[u8],
        last: bool,
    ) -> Progress {
        cx.load.budget.cost += REQUEST_COST;
        self.note_asked(cx, bytes);
        let mut slots = FieldSlots::new();
        match http1::parse(bytes, &mut slots) {
            Ok(head) => {
                let client = self.named_client(cx, bytes);
                if let Err(class) = self.handle(cx, io, peer, &head, client, last) {
                    return Progress::NotNow(class);
                }
            }
            Err(refusal) => {
                cx.stats.requests.add(1);
                let is_head = bytes.trim_ascii_start().starts_with(b"HEAD ");
                self.refuse_request(cx, peer, &refusal, is_head);
            }
        }
        Progress::Used(bytes.len())
    }

    /// Handles one request, whatever protocol brought it: answers it, or prepares for its body, or
    /// for the stream it asks for. A proxy may have named its `client`.
    ///
    /// # Errors
    /// The class that admits no work now.
    fn handle<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        Head { request, framing }: &Head<'_>,
        client: Option<IpAddr>,
        last: bool,
    ) -> Result<(), WorkClass> {
        let is_meant = match self.origin {
            Origin::Unix => Ok(()),
            _ => cx.may(self.role(), Act::Ask(request)).map_err(|denied| denied.refusal),
        };
        if let Err(refusal) = is_meant {
            cx.stats.requests.add(1);
            self.refuse_request(cx, peer, &refusal, request.method == Method::Head);
            return Ok(());
        }
        if self.is_put_off(cx, peer, request, client) {
            return Ok(());
        }
        let presented = cx.presented(self.role(), request);
        let class = class_of(request, &presented, &cx.settings);
        let answered = admitted(cx, class, |cx, permit| {
            let (bearer, token) = presented.bearer(cx, permit);
            cx.stats.requests.add(1);
            // An answer that does not wait for the body is the last: the body may not have arrived.
            let is_bodyless = framing.body.is_empty();
            let keep_alive = framing.keep_alive && is_bodyless && !(cx.draining && last);
            let http10 = framing.version == Version::Http10;
            let persistence = Persistence { keep_alive, http10 };
            let ticket = self.next_ticket(peer);
            let mut x = cx.exchange(self.role, request, persistence, ticket, permit);
            (x.requester.bearer, x.requester.token) = (bearer, token);
            let answer = route::begin(&mut x, request, framing.body);
            let keep_alive = x.reply.shape.persistence.keep_alive;
            match answer {
                Answer::Now if keep_alive => {}
                Answer::Now if is_bodyless => self.phase = Phase::Closing,
                Answer::Now => self.phase = Phase::Refusing,
                Answer::AfterBody(sink) => {
                    let asked = cx.responses.answers.put_by();
                    let now_ms = cx.clock.now_ms;
                    self.work().incoming = Some(Incoming::new(framing, asked, sink, now_ms));
                }
                answer => self.begin_answer(cx, io, peer, answer, permit),
            }
        });
        if answered.is_none() {
            cx.responses.answers.put_by();
            return Err(WorkClass::Requests);
        }
        Ok(())
    }

    /// Part of a body: to its sink, which answers when the body is whole.
    fn take_body<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        mut incoming: Box<Incoming>,
        input: &[u8],
    ) -> Progress {
        let body = incoming.body.clone();
        match incoming.body.next(input) {
            Ok(http1::Step::Data { data, used }) => {
                incoming.bytes += data.len() as u64;
                incoming.continue_due = false;
                cx.load.budget.cost += incoming.sink.cost(data.len());
                let mut x = self.exchange(cx, peer, incoming.persistence);
                match incoming.sink.data(&mut x, data) {
                    Ok(()) => self.work().incoming = Some(incoming),
                    Err(refusal) => {
                        cx.responses.answers.asked = incoming.asked;
                        self.refuse(cx, peer, &refusal);
                    }
                }
                Progress::Used(used)
            }
            Ok(http1::Step::More { used }) => {
                if std::mem::take(&mut incoming.continue_due) {
                    head::continue_with_body(cx.out.bytes());
                }
                self.work().incoming = Some(incoming);
                Progress::Starved(used)
            }
            Ok(http1::Step::End { used }) => {
                let last = used == input.len();
                match self.finish_body(cx, io, peer, incoming, last) {
                    Ok(()) => Progress::Used(used),
                    Err((class, mut incoming)) => {
                        incoming.body = body;
                        self.work().incoming = Some(incoming);
                        Progress::NotNow(class)
                    }
                }
            }
            Err(refusal) => {
                cx.responses.answers.asked = incoming.asked;
                self.refuse(cx, peer, &refusal);
                Progress::Used(0)
            }
        }
    }

    /// The body is complete: has the sink answer.
    ///
    /// # Errors
    /// The class that admits no work now, and the body.
    fn finish_body<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        incoming: Box<Incoming>,
        last: bool,
    ) -> Result<(), (WorkClass, Box<Incoming>)> {
        let class = match &incoming.sink {
            Sink::Discard { request, .. } => {
                let request = request.borrowed();
                class_of(&request, &cx.presented(self.role(), &request), &cx.settings)
            }
            sink => sink.inflates().then_some(WorkClass::Requests),
        };
        let mut incoming = Some(incoming);
        admitted(cx, class, |cx, permit| {
            if let Some(incoming) = incoming.take() {
                self.answer_body(cx, io, peer, *incoming, last, permit);
            }
        });
        class.zip(incoming).map_or(Ok(()), Err)
    }

    fn answer_body<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        incoming: Incoming,
        last: bool,
        permit: &Permit,
    ) {
        let keep_alive = incoming.persistence.keep_alive && !(cx.draining && last);
        let persistence = Persistence { keep_alive, ..incoming.persistence };
        cx.responses.answers.asked = incoming.asked;
        let shape = Shape::new(self.role, persistence);
        let ticket = self.ticket(peer);
        let (answer, keep_alive) = match incoming.sink {
            // It is answered as if it had come without a body.
            Sink::Discard { request, .. } => {
                let request = request.borrowed();
                let (bearer, token) = cx.presented(self.role(), &request).bearer(cx, permit);
                let mut x = cx.exchange(self.role, &request, persistence, ticket, permit);
                (x.requester.bearer, x.requester.token) = (bearer, token);
                (route::answer(&mut x, &request), x.reply.shape.persistence.keep_alive)
            }
            Sink::Publish(upload) => {
                let mut x = cx.exchange_of(shape, ticket, permit);
                (upload.finish(&mut x), x.reply.shape.persistence.keep_alive)
            }
            Sink::Bulk(bulk) => {
                let mut x = cx.exchange_of(shape, ticket, permit);
                (bulk.finish(&mut x), x.reply.shape.persistence.keep_alive)
            }
        };
        if !keep_alive {
            self.phase = Phase::Closing;
        }
        self.begin_answer(cx, io, peer, answer, permit);
    }

    /// An answer has begun that goes on, or comes later.
    fn begin_answer<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        answer: Answer,
        permit: &Permit,
    ) {
        let opening = match answer {
            Answer::Stream(opening) => {
                self.phase = Phase::Streaming(StreamWait::Heartbeat);
                io.begin_stream(peer, cx.settings.streams.retransmission());
                Some(opening)
            }
            Answer::Later(pending, opening) => {
                self.phase = Phase::Pending(AnswerWait::Event);
                self.extra().pending = Some(pending);
                opening
            }
            Answer::Copy(copying) => {
                self.begin_copying(cx, peer, *copying);
                None
            }
            Answer::Now | Answer::AfterBody(_) => None,
        };
        if let Some(opening) = opening {
            self.begin_reading(cx, peer, *opening, permit);
        }
    }

    /// Sends what was gathered. Returns whether all of it left; if not, the rest is kept.
    fn flush<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
    ) -> Result<bool, Gone> {
        if cx.out.len() == 0 {
            return Ok(true);
        }
        match cx.out.send(io, peer, &cx.stats, &mut cx.load.sent_bytes)? {
            None => Ok(true),
            Some(backlog) => {
                self.work().backlog = Some(backlog);
                Ok(false)
            }
        }
    }

    /// Brings the record into order after anything was done, and says what is wanted next.
    fn settle<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        result: Result<(), Gone>,
    ) -> Flow {
        let since_us = cx.responses.answers.since_us();
        cx.settle_answers(io, self.role(), peer);
        self.forget_client(cx, peer);
        if result == Err(Gone) {
            cx.out.clear();
            self.close(cx, io, peer);
            return Flow::Closed;
        }
        self.shrink_extra();
        if self.is_blocked() {
            self.note_pace(cx, io, peer);
            return Flow::Pause;
        }
        if let Some(work) = &mut self.work {
            work.pace = Pace::default();
        }
        match self.phase {
            Phase::Closing if !self.lingers(cx) => return self.end(cx, io, peer),
            Phase::Closing | Phase::Refusing => {
                self.phase = Phase::Lingering;
                self.work = None;
                io.finish(peer);
                io.resume(peer);
            }
            Phase::Free => return Flow::Closed,
            Phase::Open(_) | Phase::Streaming(_) | Phase::Pending(_) | Phase::Copying(_) => {}
            Phase::Lingering | Phase::Delivering => {}
        }
        if let Some(work) = &mut self.work
            && let Some(class) = work.queue
        {
            if work.place.is_none() {
                work.since_us = Some(since_us);
                work.place = Some(cx.load.budget.enter(class, io.carrier(peer), peer));
            }
            return Flow::Pause;
        }
        match self.work.as_deref() {
            Some(work) if work.incoming.is_none() && work.input.is_empty() => {
                self.work = None;
                self.forget_client(cx, peer);
            }
            _ => {}
        }
        if self.reads() { Flow::More } else { Flow::Pause }
    }
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

/// What a request costs besides the bytes of its answer.
const REQUEST_COST: usize = 256;

// The record is what an idle connection costs, and a reader: one cache line.
const _: () = assert!(size_of::<Connection>() <= 64 && size_of::<Phase>() == 2);
