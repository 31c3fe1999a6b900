//! One thread of the load: its connections, and what happens on them.
//!
//! A thread has two kinds of connections. *Requesters* (`worker/requesters.rs`) ask, are answered,
//! and ask again, as fast as it goes or at a rate. *Holders* (`worker/holders.rs`) are opened and
//! stay: silent, or as readers of a stream. This file has what both need: connecting, taking
//! answers apart, keeping what is incomplete, and counting what goes wrong.
//!
//! A held connection costs its record here and nothing else; only an incomplete piece of input,
//! or what a socket would not take, is kept on the heap.

mod holders;
mod requesters;
mod secured;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use stentor_io::{Dial, Epoll, Flow, Gone, Peer, monotonic_us};

use crate::delivery::Ledger;
use crate::exchange::{AnswerParser, Seen};
use crate::orders::{Orders, Rank, ThreadWork};
use crate::tally::{Outcome, Tally, record};
use holders::{Ask, Holders};
use requesters::Requesters;
use secured::{Layer, TlsConnections, Wire};

/// One thread's part of a run.
pub(crate) struct Worker {
    work: Arc<ThreadWork>,
    orders: Arc<Orders>,
    tally: Arc<Tally>,
    index: usize,
    /// By socket number.
    connections: Vec<Connection>,
    /// Connections begun so far.
    dialled: u64,
    requesters: Requesters,
    holders: Holders,
    outcome: Outcome,
    /// When the event at hand was seen, in microseconds.
    now_us: u64,
    /// Events of the turn at hand.
    events: usize,
}

/// One connection, or an empty place for one.
#[derive(Default)]
struct Connection {
    stage: ConnectionStage,
    purpose: Purpose,
    /// The server has said that it will close.
    closes: bool,
    /// It was told of a gap.
    told: bool,
    /// The first answer was as it should be.
    settled: bool,
    stream: StreamStage,
    /// Answers in a row that came too soon to have been held.
    hasty: u8,
    /// Answers still to come.
    answers_due: u16,
    exchange: AnswerParser,
    rest: Option<Box<Buffers>>,
    /// When `connect` was called.
    dialled_us: u64,
    /// When the request began, or was due.
    began_us: u64,
    ledger: Ledger,
    /// The next long-poll.
    ask: Option<Arc<Ask>>,
}

/// How far the stream of events of a connection has come.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum StreamStage {
    /// Nothing of it has come.
    #[default]
    Awaited,
    /// Some of it has come.
    Begun,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum ConnectionStage {
    #[default]
    Empty,
    Connecting,
    Open,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Requests,
    /// It is held.
    Holds,
    /// It is held by a reader that stalls when told to.
    Stalls,
}

impl Connection {
    fn is_holder(&self) -> bool {
        self.purpose != Purpose::Requests
    }

    fn stalls(&self) -> bool {
        self.purpose == Purpose::Stalls
    }
}

/// What few connections have at a time.
#[derive(Default)]
struct Buffers {
    /// Input that is not complete.
    input: Vec<u8>,
    /// Content that is not complete: an event, or the answer to a long-poll.
    content: Vec<u8>,
    /// Output that the socket did not take.
    output: Vec<u8>,
}

impl Worker {
    pub(crate) fn new(
        work: Arc<ThreadWork>,
        orders: Arc<Orders>,
        tally: Arc<Tally>,
        index: usize,
    ) -> Worker {
        Worker {
            requesters: Requesters::new(&work, index),
            holders: Holders::new(&work),
            outcome: Outcome::new(work.holders.as_ref().map_or(0, |work| work.followed)),
            work,
            orders,
            tally,
            index,
            connections: Vec::new(),
            dialled: 0,
            now_us: monotonic_us(),
            events: 0,
        }
    }

    /// Runs until the order to stop.
    ///
    /// # Errors
    /// Only if the epoll instance is broken.
    pub(crate) fn run(mut self, mut io: Epoll) -> io::Result<Outcome> {
        let mut secured = self.work.secure.clone().map(TlsConnections::new);
        loop {
            self.now_us = monotonic_us();
            let deadline_ms = self.tend(&mut Wire::new(&mut io, secured.as_mut()));
            let wake_us = self.next_due_us().map(|due_us| due_us.max(self.now_us + WAKE_US_MIN));
            if let Some(wake_us) = wake_us {
                io.wake_by(wake_us);
            }
            self.events = 0;
            let mut layer = Layer { worker: &mut self, secured: secured.as_mut() };
            if io.turn(&mut layer, deadline_ms)? {
                self.holders_obey(&mut Wire::new(&mut io, secured.as_mut()));
            }
            if let Some(wake_us) = wake_us.filter(|_| self.events == 0) {
                let late_us = monotonic_us().checked_sub(wake_us);
                late_us.into_iter().for_each(|us| record(&mut self.outcome.late, us));
            }
            if self.orders.stopping() {
                break;
            }
            self.nap(deadline_ms.is_some());
        }
        // The last turn may have been one long sleep.
        self.now_us = monotonic_us();
        self.sum_up_requesters();
        self.sum_up_holders();
        Ok(self.outcome)
    }

    /// Opens connections and sends requests that are due. Says when, on the backend's clock, that
    /// should be done again even if nothing happens.
    fn tend(&mut self, io: &mut Wire<'_>) -> Option<u64> {
        let requesters = self.tend_requesters(io);
        let holders = self.tend_holders(io);
        requesters.into_iter().chain(holders).min()
    }

    /// Readers of streams let a little come together. Real ones are on other machines, and the
    /// server does not pay for waking them; here each wake-up would be charged to the `send` that
    /// caused it. While some are on their way, how long that takes is measured.
    fn nap(&self, busy: bool) {
        let few = 0 < self.events && self.events < EVENTS_FEW;
        let naps = match self.work.rank {
            Rank::Usual => !busy && self.work.requesters.is_none() && self.holders.opening == 0,
            Rank::First | Rank::Last => false,
            Rank::LastInBatches => true,
        };
        if few && naps {
            std::thread::sleep(NAP);
        }
    }

    fn at(&mut self, socket: Peer) -> &mut Connection {
        &mut self.connections[socket.index()]
    }

    /// Begins a connection.
    fn dial(
        &mut self,
        io: &mut Wire<'_>,
        receive_bytes: Option<u32>,
        connection: Connection,
    ) -> io::Result<Peer> {
        let from = self.work.sources.pick(self.index, self.work.threads, self.dialled);
        self.dialled += 1;
        let dialled_us = monotonic_us();
        let socket = io.connect(&Dial { to: self.work.address, from, receive_bytes })?;
        if socket.index() >= self.connections.len() {
            self.connections.resize_with(socket.index() + 1, Connection::default);
        }
        *self.at(socket) =
            Connection { stage: ConnectionStage::Connecting, dialled_us, ..connection };
        Ok(socket)
    }

    /// Sends, and keeps what the socket does not take.
    ///
    /// # Errors
    /// What is wrong with the connection.
    fn send(&mut self, io: &mut Wire<'_>, socket: Peer, bytes: &[u8]) -> Result<(), &'static str> {
        let rest = &mut self.connections[socket.index()].rest;
        if let Some(rest) = rest
            && !rest.output.is_empty()
        {
            // It answers, or pings, and reads nothing of what it gets back.
            if rest.output.len() > OUTPUT_BYTES_MAX {
                return Err("the server does not read");
            }
            rest.output.extend_from_slice(bytes);
            return Ok(());
        }
        let (sent, went) = io.send(socket, bytes).map_err(|Gone| RESET)?;
        self.tally.sent.add(went as u64);
        if sent.bytes < bytes.len() {
            rest.get_or_insert_default().output = bytes[sent.bytes..].to_vec();
        }
        Ok(())
    }

    /// Sends a request, or ends a connection that takes none.
    fn request(&mut self, io: &mut Wire<'_>, socket: Peer, bytes: &[u8]) -> Flow {
        match self.send(io, socket, bytes) {
            Ok(()) => Flow::More,
            Err(reason) => {
                self.broken(io, socket, reason.into());
                Flow::Closed
            }
        }
    }

    /// Sends what was kept, now that there is room.
    fn flush(&mut self, io: &mut Wire<'_>, socket: Peer) -> Result<(), &'static str> {
        let Some(rest) = &mut self.at(socket).rest else { return Ok(()) };
        let output = std::mem::take(&mut rest.output);
        if output.is_empty() { Ok(()) } else { self.send(io, socket, &output) }
    }

    /// Takes apart what came in. Returns how much of it is done with; None if the connection is.
    fn consume(&mut self, io: &mut Wire<'_>, socket: Peer, input: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let connection = self.at(socket);
            let is_holder = connection.is_holder();
            let (used, seen) = match connection.exchange.next(&input[at..]) {
                Ok(next) => next,
                Err(reason) => {
                    self.broken(io, socket, format!("malformed answer: {reason}").into());
                    return None;
                }
            };
            at += used;
            if let Seen::More = seen {
                return Some(at);
            }
            let flow = if is_holder {
                self.holder_saw(io, socket, seen)
            } else {
                self.requester_saw(io, socket, seen)
            };
            if flow == Flow::Closed {
                return None;
            }
        }
    }

    /// A connection has come to a bad end, on either side; it is closed.
    fn broken(&mut self, io: &mut Wire<'_>, socket: Peer, kind: Cow<'static, str>) {
        let connection = std::mem::take(self.at(socket));
        if connection.stage == ConnectionStage::Open {
            self.tally.connections.sub(1);
        }
        io.close(socket);
        if connection.is_holder() {
            self.holder_broken(connection);
        } else {
            self.requester_broken(io, &connection);
        }
        self.error(kind);
    }

    fn error(&mut self, kind: Cow<'static, str>) {
        self.tally.errors.add(1);
        self.outcome.errors_of(kind, 1);
    }

    /// The connection is established. Says whether it still is.
    fn connected(&mut self, io: &mut Wire<'_>, socket: Peer) -> bool {
        self.tally.connections.add(1);
        let now_us = self.now_us;
        let connection = self.at(socket);
        connection.stage = ConnectionStage::Open;
        let (took_us, is_holder) =
            (now_us.saturating_sub(connection.dialled_us), connection.is_holder());
        record(&mut self.outcome.connect, took_us);
        let flow = if is_holder {
            self.holder_connected(io, socket)
        } else {
            self.requester_connected(io, socket)
        };
        flow != Flow::Closed
    }
}

/// What the backend tells, as it comes through the layer that is beneath: `secured`.
impl Worker {
    /// Something has happened on a connection.
    fn see(&mut self) {
        self.now_us = monotonic_us();
    }

    fn stage(&self, socket: Peer) -> ConnectionStage {
        self.connections
            .get(socket.index())
            .map_or(ConnectionStage::Empty, |connection| connection.stage)
    }

    fn ready(&mut self, io: &mut Wire<'_>, socket: Peer, writable: bool) -> bool {
        self.events += 1;
        match self.stage(socket) {
            ConnectionStage::Connecting => {
                self.see();
                if let Some(error) = io.connect_error(socket) {
                    self.broken(io, socket, connect_error(&error));
                    return false;
                }
                if !self.connected(io, socket) {
                    return false;
                }
            }
            ConnectionStage::Open if writable => {
                if let Err(reason) = self.flush(io, socket) {
                    self.broken(io, socket, reason.into());
                    return false;
                }
            }
            ConnectionStage::Open => {}
            // Closed earlier in this turn.
            ConnectionStage::Empty => return false,
        }
        !(self.at(socket).stalls() && self.stalling())
    }

    fn received(&mut self, io: &mut Wire<'_>, socket: Peer, bytes: &[u8]) -> Flow {
        let mut kept = match &mut self.at(socket).rest {
            Some(rest) => std::mem::take(&mut rest.input),
            None => Vec::new(),
        };
        let used = if kept.is_empty() {
            self.consume(io, socket, bytes)
        } else {
            kept.extend_from_slice(bytes);
            self.consume(io, socket, &kept)
        };
        let Some(used) = used else { return Flow::Closed };
        if kept.is_empty() {
            kept = bytes[used..].to_vec();
        } else {
            kept.drain(..used);
        }
        let rest = &mut self.at(socket).rest;
        if !kept.is_empty() {
            rest.get_or_insert_default().input = kept;
        } else if rest.as_ref().is_some_and(|r| r.content.is_empty() && r.output.is_empty()) {
            *rest = None;
        }
        Flow::More
    }

    fn ended(&mut self, io: &mut Wire<'_>, socket: Peer) {
        match io.ended_by() {
            Some(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.broken(io, socket, RESET.into());
            }
            Some(error) => self.broken(io, socket, error.to_string().into()),
            None => self.ended_in_order(io, socket),
        }
    }

    /// The server has said its last.
    fn ended_in_order(&mut self, io: &mut Wire<'_>, socket: Peer) {
        match self.at(socket).is_holder() {
            true => self.broken(io, socket, "closed by the server".into()),
            false => self.requester_ended(io, socket),
        }
    }
}

/// How many connections of a kind a turn opens before what has come in is looked at.
const OPENED_PER_TURN: usize = 64;

/// What did not come for so long will not come any more.
const PATIENCE_US: u64 = 1_000_000;

/// What it is called then.
const NO_ANSWER: &str = "no answer by the end";

/// What a failed `connect` is called.
fn connect_error(error: &io::Error) -> Cow<'static, str> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::TimedOut => "connecting timed out".into(),
        io::ErrorKind::ConnectionReset => "reset while connecting".into(),
        io::ErrorKind::AddrNotAvailable => {
            "no free port at the source addresses (more addresses: --from)".into()
        }
        _ => format!("connecting: {error}").into(),
    }
}

const RESET: &str = "connection reset";

/// What a socket would not take and is kept may be longer than this only by what was sent at once.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How long a thread lets things come together after a turn with few of them, see `nap`.
const NAP: Duration = Duration::from_micros(200);
const EVENTS_FEW: usize = 256;

/// Requests at a rate wait for one another so long: there is no wake-up for each of many.
const WAKE_US_MIN: u64 = 100;
