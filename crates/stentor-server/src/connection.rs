//! One connection: a record of a few words, and what is unfinished about it, if anything is.
//!
//! A connection that waits for its next request is its record alone. Bytes of an incomplete
//! request, a body on its way in, and an answer the socket refused are [`Work`], which is
//! allocated when the first of them appears and freed with the last.
//!
//! Two rules keep one connection from hurting the others. While an answer waits for the peer to
//! read, no further request is looked at and no further byte is read. And when a turn has cost
//! its share, the rest of the input waits for the next turn, behind everybody else's.

mod body;
mod check;
mod client;
mod ending;
mod eviction;
mod expelled;
mod handover;
mod http;
mod memory;
mod pace;
pub(crate) mod pending;
pub(crate) mod poll;
mod pump;
mod reader;
mod state;
mod transfer;
mod work;

use crate::addresses::Counted;
use crate::budget::{Place, WorkClass};
use crate::context::Context;
use crate::limits::{ACKNOWLEDGE_MS, GATHER_BYTES};
use crate::phase::{Phase, RequestWait, StreamWait};
use crate::stats::Activity;
use crate::timers::{Timed, Timer};
pub(crate) use eviction::Loss;
use http::Http;
use pace::Pace;
use state::State;
use stentor_io::{Backend, Flow, Gone, LAYERED, PROXIED, Role, listener_of};
use stentor_order::Ticket;
use stentor_tls_layer::LINGER_MS;
use stentor_wire::http1;
use work::Unfinished;

/// The record of a connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    work: Unfinished,
    state: State,
    timer: Timer,
    counted: Counted,
    /// The number of the last request or joining, in all lives of the record: entries and outcomes
    /// of others mean nothing.
    stamp: u32,
    /// With [`LAYERED`] if it speaks TLS.
    role: Role,
    origin: Origin,
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

/// The result of one step over the input.
enum Progress {
    /// The step used so many bytes, and the next one may follow.
    Used(usize),
    /// The step used so many bytes. The rest waits for more input, or in a work queue.
    Starved(usize),
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
        self.state = State::Http(Http::new(wait, 0, None));
    }

    /// A layer agrees on something with the peer, or is done with that. Returns whether this is
    /// new.
    pub(crate) fn negotiates(&mut self, is_under_way: bool) -> bool {
        let wait = if is_under_way { RequestWait::Handshake } else { RequestWait::Head };
        self.http_mut().is_some_and(|http| http.negotiates(wait))
    }

    /// What the connection is doing, for the counters.
    pub(crate) fn activity(&self) -> Activity {
        match &self.state {
            State::Stream(_) | State::Poll(_) if self.is_blocked() => Activity::Behind,
            _ if self.is_blocked() => Activity::Writing,
            State::Http(_) if !self.is_between_requests() => Activity::Reading,
            State::Body(making) if matches!(making.phase(), Phase::Open(_)) => Activity::Reading,
            _ => Activity::Waiting,
        }
    }

    /// Whether the connection takes input now. While a response waits for a commit, the connection
    /// reads neither bytes nor the end of its input. So a client that half-closes gets its
    /// responses, and then the connection reads the end.
    pub(crate) fn reads(&self) -> bool {
        let takes_input = match &self.state {
            State::Free | State::Pending(_) | State::Body(_) => false,
            State::Http(http) => !http.is_sink_full(),
            // Behind a long-poll, a connection keeps no more input than one head may have.
            State::Poll(_) => self.work.input().len() < http1::HEAD_BYTES_MAX,
            _ => true,
        };
        takes_input && !self.waits()
    }

    /// Whether the connection is to go on with something by itself, once it can write or its turn
    /// has come.
    pub(crate) fn waits(&self) -> bool {
        self.work.waits()
    }

    /// Whether there is something to be sent as soon as it can write.
    pub(crate) fn is_blocked(&self) -> bool {
        self.work.backlog().is_some()
    }

    /// Its place in a work queue, if it has one.
    pub(crate) fn place(&self) -> Option<(WorkClass, Place)> {
        self.work.place()
    }

    /// The connection has been taken out of its work queue, or is given another place there.
    pub(crate) fn set_place(&mut self, place: Option<Place>) {
        self.work.set_place(place);
    }

    /// By what the changes of the request under way are told apart from those of others.
    fn ticket(&self, cx: &Context) -> Ticket {
        Ticket { peer: cx.peer, stamp: self.stamp, line: 0 }
    }

    /// Bytes arrived: answers whatever they complete.
    pub(crate) fn receive<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        bytes: &[u8],
    ) -> Flow {
        if !self.takes_input() {
            return Flow::More;
        }
        let result = if self.work.input().is_empty() {
            self.proceed(cx, io, bytes).map(|used| self.keep(&bytes[used..]))
        } else {
            let mut input = self.work.take_input();
            input.extend_from_slice(bytes);
            self.proceed_owned(cx, io, input)
        };
        self.settle(cx, io, result)
    }

    /// There is room to write, or another turn: sends what waits, then goes on with the input.
    pub(crate) fn go_on<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        if !self.waits() {
            return;
        }
        match self.work.resume(cx, io) {
            Ok(true) => {}
            Ok(false) => return self.note_pace(cx, io),
            Err(Gone) => return self.close(cx, io),
        }
        // The peer was not listened to meanwhile: should it have sent something, closing now would
        // be a reset, and cost it what it has not read yet.
        if matches!(self.state, State::Closing) && !self.is_reset_at_end(cx) {
            self.enter(cx, State::Refusing);
        }
        let input = self.work.take_input();
        if cx.draining {
            self.end_bulk(cx);
        }
        if self.is_leaving() {
            self.say_farewell(cx);
        }
        let result = match self.takes_input() || self.is_copying() {
            true => self.proceed_owned(cx, io, input),
            false => self.work.flush(cx, io).map(drop),
        };
        if self.settle(cx, io, result) == Flow::More {
            io.resume(cx.peer);
        }
    }

    /// Sets what the connection waits for. Returns its deadline if that has changed.
    pub(crate) fn deadline_ms(&mut self, cx: &mut Context) -> Option<u64> {
        let now_ms = cx.clock.now_ms;
        let room_ms = self.waits().then(|| self.room_deadline_ms(cx));
        let expires_ms = self.expires_ms(cx);
        let deadline_ms = match &mut self.state {
            State::Free => return None,
            State::Http(http) => http.arm(cx, !self.work.is_none(), room_ms)?,
            State::Stream(reading) => reading.arm(cx, room_ms, expires_ms)?,
            State::Poll(poll) => poll.arm(cx, room_ms, expires_ms),
            State::Pending(pending) => room_ms.unwrap_or_else(|| pending.deadline_ms(now_ms)),
            State::Transfer(transfer) => transfer.arm(now_ms, room_ms, expires_ms),
            State::Body(_) | State::Closing | State::Refusing => room_ms.unwrap_or(now_ms),
            State::Lingering => now_ms + LINGER_MS,
            State::Delivering => now_ms + ACKNOWLEDGE_MS,
        };
        let phase = self.phase();
        (phase.renews() || cx.armed != Some(phase)).then_some(deadline_ms)
    }

    /// The peer has sent its last byte, and the connection has not read it yet. A connection that
    /// waits for room, for a queue or for a commit reads it later. A long-poll that reads nothing
    /// more would not, so it ends here, as it does when it reads the end.
    pub(crate) fn peer_finished<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        if self.is_polling() && !self.waits() || self.awaits_proxy_header() {
            self.close(cx, io);
        }
    }

    /// Whether more than stray empty lines, which some clients send after a body, has arrived.
    fn has_begun_a_head(&self) -> bool {
        !self.work.input().iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// [`Connection::proceed`] over input the connection owns, and keeps what is left of.
    fn proceed_owned<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        mut input: Vec<u8>,
    ) -> Result<(), Gone> {
        let used = self.proceed(cx, io, &input)?;
        input.drain(..used);
        self.keep(input);
        Ok(())
    }

    /// Keeps the rest of the input, if the state has a use for it.
    fn keep(&mut self, rest: impl Into<Vec<u8>> + AsRef<[u8]>) {
        if !rest.as_ref().is_empty() && self.takes_input() {
            self.work.keep_input(rest.into());
        }
    }

    /// Whether what comes in may still mean something.
    fn takes_input(&self) -> bool {
        self.http().is_some() || self.is_streaming() || self.is_pending()
    }

    /// Whether more input must wait: for a response, or for the first messages of a subscription.
    fn is_busy(&self) -> bool {
        match &self.state {
            State::Stream(reading) => reading.is_joining(),
            _ => self.is_pending(),
        }
    }

    /// Answers what `input` asks, in order, until it is used up, the socket is full or the turn
    /// has cost its share. Ends with everything sent or kept as backlog.
    fn proceed<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        input: &[u8],
    ) -> Result<usize, Gone> {
        let mut at = 0;
        let mut yielded = false;
        while !yielded {
            let rest = &input[at..];
            let progress = match &self.state {
                State::Http(http) if http.is_sink_full() => break,
                State::Http(http)
                    if rest.is_empty() && (cx.stands_still || http.body().is_none()) =>
                {
                    break;
                }
                State::Http(_) => {
                    let progress = self.read_request(cx, rest);
                    if self.is_streaming() {
                        io.begin_stream(cx.peer, cx.settings.streams.retransmission());
                    }
                    progress
                }
                // What is due goes first: the response, or what was just subscribed to.
                _ if self.is_busy() => {
                    self.pump(cx, io)?;
                    if self.is_busy() || self.waits() { break } else { continue }
                }
                State::Stream(_) if !rest.is_empty() => self.read_frames(cx, rest),
                _ => break,
            };
            match progress {
                Progress::Used(used) => at += used,
                Progress::Starved(used) => {
                    at += used;
                    break;
                }
            }
            if cx.out.len() >= GATHER_BYTES && !self.work.flush(cx, io)? {
                break;
            }
            // At the end of the input there may still be an answer due, and nothing to come back
            // for.
            yielded = cx.load.budget.is_over_share() && at < input.len();
        }
        if !self.is_pending() {
            self.pump(cx, io)?;
        }
        if matches!(self.state, State::Closing) && (at < input.len() || cx.draining) {
            self.enter(cx, State::Refusing);
        }
        self.work.flush(cx, io)?;
        // An answer that waits brings the connection back by itself.
        if yielded && self.takes_input() {
            self.work.wait_in(WorkClass::Requests);
        }
        Ok(at)
    }

    /// Brings the record into order after anything was done, and says what is wanted next.
    fn settle<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        result: Result<(), Gone>,
    ) -> Flow {
        let since_us = cx.responses.answers.since_us();
        cx.settle_answers(io, self.role());
        if result == Err(Gone) {
            cx.out.clear();
            self.close(cx, io);
            return Flow::Closed;
        }
        if let Some(reading) = self.reading_mut() {
            reading.shrink();
        }
        if self.is_blocked() {
            self.note_pace(cx, io);
            return Flow::Pause;
        }
        self.work.set_pace(Pace::default());
        match self.state {
            State::Closing if !self.lingers(cx) => return self.end(cx, io),
            State::Closing | State::Refusing => {
                self.enter(cx, State::Lingering);
                self.work.clear();
                io.finish(cx.peer);
                io.resume(cx.peer);
            }
            State::Free => return Flow::Closed,
            _ => {}
        }
        if self.work.take_place(cx, io, since_us) {
            return Flow::Pause;
        }
        self.work.shrink();
        self.forget_client(cx);
        if self.reads() { Flow::More } else { Flow::Pause }
    }
}

/// What a request costs besides the bytes of its answer.
const REQUEST_COST: usize = 256;

// The record is what an idle connection costs, and a reader: one cache line.
const _: () = assert!(size_of::<Connection>() <= 64 && size_of::<State>() == 24);
