//! A network that exists only in memory: deterministic, seeded, and as unkind as the faults allow.
//!
//! The test plays the clients through [`Client`] handles; the server runs on the [`Sim`] as it
//! would on the kernel. Each turn picks, by the seed, a socket with something to do and does a
//! part of it: some of the bytes a client sent arrive (split anywhere), some room to write
//! appears, or nothing happens and the clock moves on. Like the edge-triggered kernel, the
//! simulator says nothing more of a socket after a pause until it is resumed, and calls a blocked
//! writer only when there is room: a server that forgets either hangs here, in a test.

use crate::epoll::ACCEPT_RETRY_MS;
use crate::{
    AcceptQueue, Backend, File, FileSendError, Flow, Gone, Handler, LAYERED, PROXIED, Pause, Peer,
    Retransmission, Rng, Role, Sent, TurnAway, listener_of, mark,
};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::IpAddr;

/// How unkind the network is.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Of a hundred deliveries, how many bring only a part of what waits (often one byte).
    pub split_percent: u8,
    /// Of a hundred sends, how many are taken only in part, or not at all.
    pub refuse_percent: u8,
    /// Of ten thousand turns, how many end a random connection with a reset.
    pub reset_per_10_000: u16,
    /// The most a turn moves the clock.
    pub delay_ms_max: u64,
    /// Bytes a client's side takes before it has read: the send buffer's size.
    pub window_bytes: usize,
}

/// How unkind the kernel is to the server.
#[derive(Clone, Copy, Default, Debug)]
pub struct KernelFaults {
    /// The percentage of connections that are not accepted at first: there are too many files.
    pub accept_percent: u8,
    /// The percentage of waits that end without an event though there is one.
    pub late_percent: u8,
    /// The percentage of waits that report any open socket as ready, whether it is or not.
    pub spurious_percent: u8,
}

/// A simulated client's end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client(usize);

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the simulator")]
struct Pipe {
    /// Client to server, not yet delivered.
    upstream: VecDeque<u8>,
    /// Server to client, not yet read by the client.
    downstream: Vec<u8>,
    accepted: bool,
    role: Role,
    address: Option<IpAddr>,
    /// The client will send no more.
    client_finished: bool,
    /// The server has been told so, or that the connection is broken.
    end_delivered: bool,
    /// The server has been told so while it did not read.
    finish_told: bool,
    reset: bool,
    /// The server dropped the request for the connection.
    dropped: bool,
    /// It was the server that reset it.
    cut: bool,
    /// The client does not read: its window stays full.
    stalled: bool,
    /// The server sent FIN.
    server_finished: bool,
    /// The server closed; the socket number may be another's by now.
    closed: bool,
    /// The server asked not to hear of input.
    paused: bool,
    /// The server's last send was cut short.
    blocked: bool,
    /// The server asked to hear of whatever is possible now, writing included.
    rearmed: bool,
    /// The number of bytes the server has peeked at; the simulator reports when more arrive.
    peeked: Option<usize>,
}

impl Pipe {
    /// Takes as many bytes of what the server sends as there is room for.
    fn receive(&mut self, parts: &[IoSlice<'_>], mut room: usize) {
        for part in parts {
            let taken = part.len().min(room);
            self.downstream.extend_from_slice(&part[..taken]);
            room -= taken;
        }
    }

    /// Whether the connection has begun and is not accepted yet.
    fn waits(&self) -> bool {
        !self.accepted && !self.reset && !self.dropped
    }

    /// Whether the server has seen all that the client has sent, if it looks before it reads.
    fn shows_all(&self) -> bool {
        self.peeked.is_none_or(|peeked| peeked == self.upstream.len())
    }
}

/// The simulated network and its clock.
#[derive(Debug)]
pub struct Sim {
    rng: Rng,
    faults: Faults,
    kernel: KernelFaults,
    /// No connection is accepted before, since one could not be.
    accepts_at_ms: u64,
    now_ms: u64,
    /// How far the wall clock is ahead of the monotonic one.
    unix_ms_ahead: u64,
    /// What the server's work has taken so far, in microseconds: the finer clock goes ahead of the
    /// other one by it.
    worked_us: u64,
    /// When the turn began, on the finer clock.
    turn_us: u64,
    pipes: Vec<Pipe>,
    /// Which pipe a socket number means, densely numbered as the kernel does.
    sockets: Vec<Option<usize>>,
    refusing: Option<TurnAway>,
    queue: AcceptQueue,
    resting: &'static [Role],
    connections_max: usize,
    /// The server knows that it holds that many.
    ceiling_told: bool,
    on_send: fn(),
}

impl Sim {
    /// A network without connections.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Sim {
        let rng = Rng::new(seed);
        Sim {
            rng,
            faults,
            kernel: KernelFaults::default(),
            accepts_at_ms: 0,
            now_ms: 0,
            unix_ms_ahead: EPOCH_S * 1000,
            worked_us: 0,
            turn_us: 0,
            pipes: Vec::new(),
            sockets: Vec::new(),
            refusing: None,
            queue: AcceptQueue::default(),
            resting: &[],
            connections_max: usize::MAX,
            ceiling_told: false,
            on_send: || (),
        }
    }

    /// From now on `act` is called whenever the server sends. It may panic.
    pub fn on_send(&mut self, act: fn()) {
        self.on_send = act;
    }

    /// The server's connection breaks, as [`Sim::reset_client`] has it.
    pub fn reset_server(&mut self, socket: Peer) {
        if let Some(index) = self.sockets[socket.index()] {
            self.reset_client(Client(index));
        }
    }

    /// From now on the server holds at most so many connections: others wait until one is closed.
    pub fn limit_connections(&mut self, connections_max: usize) {
        self.connections_max = connections_max;
    }

    /// A client without an address connects to the listener of `role`.
    pub fn connect(&mut self, role: Role) -> Client {
        self.connect_from(role, None)
    }

    /// A client connects to the listener of `role`.
    pub fn connect_from(&mut self, role: Role, address: Option<IpAddr>) -> Client {
        let reset = self.refusing == Some(TurnAway::Refuse);
        let dropped = self.refusing == Some(TurnAway::Drop);
        self.pipes.push(Pipe { role, address, reset, dropped, ..Pipe::default() });
        Client(self.pipes.len() - 1)
    }

    /// The client sends; the bytes arrive when the seed says so.
    pub fn write(&mut self, client: Client, bytes: &[u8]) {
        self.pipes[client.0].upstream.extend(bytes);
    }

    /// The client ends its side (FIN) after what it has sent.
    pub fn finish_client(&mut self, client: Client) {
        self.pipes[client.0].client_finished = true;
    }

    /// The connection breaks: what is under way is lost in both directions.
    pub fn reset_client(&mut self, client: Client) {
        let pipe = &mut self.pipes[client.0];
        pipe.reset = true;
        pipe.upstream.clear();
    }

    /// The client stops reading, or reads again.
    pub fn stall(&mut self, client: Client, stalled: bool) {
        self.pipes[client.0].stalled = stalled;
    }

    /// Takes what the client has received so far.
    pub fn read(&mut self, client: Client) -> Vec<u8> {
        std::mem::take(&mut self.pipes[client.0].downstream)
    }

    /// Whether the client has seen the end of the server's bytes.
    #[must_use]
    pub fn ended(&self, client: Client) -> bool {
        let pipe = &self.pipes[client.0];
        pipe.server_finished || pipe.closed || pipe.reset
    }

    /// Whether this connection broke, whoever broke it.
    #[must_use]
    pub fn was_reset(&self, client: Client) -> bool {
        self.pipes[client.0].reset
    }

    /// Whether it was the server that broke this connection.
    #[must_use]
    pub fn was_cut(&self, client: Client) -> bool {
        self.pipes[client.0].cut
    }

    /// From now on connections break only if a client breaks them.
    pub fn stop_resets(&mut self) {
        self.faults.reset_per_10_000 = 0;
    }

    /// From now on the kernel is as unkind as this.
    pub fn set_kernel_faults(&mut self, faults: KernelFaults) {
        self.kernel = faults;
    }

    /// Moves the clock.
    pub fn sleep(&mut self, ms: u64) {
        self.now_ms += ms;
        self.turn_us = self.now_us();
    }

    /// The wall clock jumps, as it does when the host's time is corrected.
    pub fn jump_wall_clock(&mut self, by_s: i64) {
        self.unix_ms_ahead = self.unix_ms_ahead.saturating_add_signed(1000 * by_s);
    }

    /// From now on so many wait in front of the listeners, as the server is told.
    pub fn set_accept_queue(&mut self, queue: AcceptQueue) {
        self.queue = queue;
    }

    /// Connections the server holds.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.sockets.iter().flatten().count()
    }

    /// Lets one thing happen. Returns false when nothing can happen but the passing of time.
    pub fn turn<H: Handler<Sim>>(&mut self, handler: &mut H) -> bool {
        let delay_ms = self.rng.next_u64() % (self.faults.delay_ms_max + 1);
        self.sleep(delay_ms);
        if self.fails(self.kernel.spurious_percent) {
            mark("spurious-event");
            self.report_any(handler);
        }
        let busy: Vec<usize> = (0..self.pipes.len()).filter(|&p| self.has_work(p)).collect();
        if busy.is_empty() {
            return false;
        }
        if self.fails(self.kernel.late_percent) {
            mark("late-event");
            return true;
        }
        let pipe = busy[self.rng.below(busy.len())];
        if self.rng.below(10_000) < usize::from(self.faults.reset_per_10_000) {
            mark("network-reset");
            self.reset_client(Client(pipe));
        }
        self.step(handler, pipe, false);
        true
    }

    /// Whether the kernel fails now. Without faults no number is drawn, so that all else stays the
    /// same.
    fn fails(&mut self, percent: u8) -> bool {
        percent > 0 && self.rng.percent(percent)
    }

    /// Reports a socket as ready, whether it is or not.
    fn report_any<H: Handler<Sim>>(&mut self, handler: &mut H) {
        let open: Vec<usize> = self.sockets.iter().flatten().copied().collect();
        if !open.is_empty() {
            let index = open[self.rng.below(open.len())];
            self.step(handler, index, true);
        }
    }

    /// Whether the network has something of a client's to bring to the server: bytes, room, its
    /// end.
    #[must_use]
    pub fn is_due(&self, client: Client) -> bool {
        self.has_work(client.0)
    }

    fn has_work(&self, index: usize) -> bool {
        let pipe = &self.pipes[index];
        let arrives = !pipe.upstream.is_empty() || pipe.client_finished && !pipe.end_delivered;
        let readable = arrives && !pipe.paused && !pipe.end_delivered;
        let shows_more = pipe.peeked.is_some_and(|peeked| peeked < pipe.upstream.len());
        let writable = (pipe.blocked || pipe.rearmed) && self.room(pipe) > 0;
        let broken = pipe.reset && !pipe.end_delivered;
        let finished = pipe.client_finished && pipe.paused && !pipe.finish_told && pipe.shows_all();
        if !pipe.accepted {
            let may_come = !self.ceiling_told || self.has_room();
            let may_come = may_come && self.now_ms >= self.accepts_at_ms;
            return pipe.waits() && may_come && !self.resting.contains(&listener_of(pipe.role));
        }
        !pipe.closed
            && (readable || shows_more || writable || broken || finished && !pipe.end_delivered)
    }

    fn step<H: Handler<Sim>>(&mut self, handler: &mut H, index: usize, is_spurious: bool) {
        if !self.pipes[index].accepted {
            return self.accept(handler, index);
        }
        let Some(socket) = self.socket_of(index) else { return };
        let pipe = &self.pipes[index];
        let room = (pipe.blocked || pipe.rearmed) && self.room(pipe) > 0;
        if room {
            self.pipes[index].blocked = false;
            self.pipes[index].rearmed = false;
        }
        // As with the kernel: whoever sends may find out before the event tells of it.
        let broken = self.pipes[index].reset && self.rng.percent(50);
        let reads = handler.ready(self, socket, (room || is_spurious) && !broken);
        let pipe = &mut self.pipes[index];
        pipe.paused |= !reads;
        if pipe.closed {
            return;
        }
        if broken {
            pipe.end_delivered = true;
            handler.ended(self, socket);
        } else if pipe.reset {
            // What was under way is lost, and what was sent since then goes nowhere.
        } else if reads {
            self.deliver(handler, index, socket);
        } else if pipe.client_finished && !pipe.finish_told && pipe.shows_all() {
            pipe.finish_told = true;
            handler.finished(self, socket);
        }
    }

    fn has_room(&self) -> bool {
        self.open_sockets() < self.connections_max
    }

    fn accept<H: Handler<Sim>>(&mut self, handler: &mut H, index: usize) {
        self.ceiling_told = !self.has_room();
        if self.ceiling_told {
            return handler.accept_paused(Pause::Ceiling);
        }
        if self.fails(self.kernel.accept_percent) {
            mark("accept-fails");
            self.accepts_at_ms = self.now_ms + ACCEPT_RETRY_MS;
            return handler.accept_paused(Pause::Exhausted);
        }
        let free = self.sockets.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() - 1
        });
        self.sockets[number] = Some(index);
        self.pipes[index].accepted = true;
        let (role, address) = (self.pipes[index].role, self.pipes[index].address);
        let socket = Peer(number as u32);
        if let Err(refused) = handler.accepted(self, socket, role, address) {
            let pipe = self.pipe_of(socket);
            let asked: Vec<u8> = pipe.upstream.drain(..).collect();
            pipe.downstream.extend(refused.farewell(&asked));
            return self.close(socket);
        }
        // As with the kernel: a new connection is read at once, and without `ready` unless a layer
        // or a proxy's header comes first. Its first bytes may be there by then.
        let reads = role & (LAYERED | PROXIED) == 0 || handler.ready(self, socket, false);
        let pipe = &mut self.pipes[index];
        if !reads || pipe.closed {
            return;
        }
        if pipe.reset {
            pipe.end_delivered = true;
            handler.ended(self, socket);
        } else if self.rng.percent(50) {
            self.deliver(handler, index, socket);
        }
    }

    fn deliver<H: Handler<Sim>>(&mut self, handler: &mut H, index: usize, socket: Peer) {
        let pipe = &mut self.pipes[index];
        if pipe.upstream.is_empty() {
            if pipe.client_finished && !pipe.end_delivered {
                pipe.end_delivered = true;
                handler.ended(self, socket);
            }
            return;
        }
        let waiting = pipe.upstream.len().min(RECEIVE_BYTES);
        let length = match self.rng.percent(self.faults.split_percent) {
            true if self.rng.percent(50) => 1,
            true => 1 + self.rng.below(waiting),
            false => waiting,
        };
        if length < waiting {
            mark("delivery-split");
        }
        let mut bytes: Vec<u8> = self.pipes[index].upstream.drain(..length).collect();
        match handler.received(self, socket, &mut bytes) {
            Flow::More => {}
            Flow::Pause => self.pipes[index].paused = true,
            Flow::Closed => {
                assert!(self.pipes[index].closed, "the handler says it closed an open socket");
            }
        }
    }

    fn room(&self, pipe: &Pipe) -> usize {
        // As the kernel: a broken socket is always writable.
        if pipe.stalled && !pipe.reset {
            return 0;
        }
        self.faults.window_bytes
    }

    fn socket_of(&self, index: usize) -> Option<Peer> {
        let number = self.sockets.iter().position(|&pipe| pipe == Some(index))?;
        Some(Peer(number as u32))
    }

    /// How many of `total` bytes the socket takes now.
    fn take(&mut self, socket: Peer, total: usize) -> Result<usize, Gone> {
        (self.on_send)();
        self.work();
        let index = self.sockets[socket.index()].expect("the server sends on a socket it closed");
        if self.pipes[index].reset {
            return Err(Gone);
        }
        assert!(!self.pipes[index].server_finished, "the server sends after its FIN");
        // A socket that was full stays full until the handler has been told of room.
        let full = self.pipes[index].blocked;
        let mut taken = if full { 0 } else { total.min(self.room(&self.pipes[index])) };
        if taken > 0 && self.rng.percent(self.faults.refuse_percent) {
            mark("send-cut");
            taken = self.rng.below(taken + 1);
        }
        self.pipes[index].blocked = taken < total;
        Ok(taken)
    }

    /// Something was done for which a server calls the kernel: it takes some time of the turn.
    pub fn work(&mut self) {
        self.worked_us += WORK_US;
    }

    fn pipe_of(&mut self, socket: Peer) -> &mut Pipe {
        let index = self.sockets[socket.index()].expect("the server names a socket it closed");
        &mut self.pipes[index]
    }
}

impl Backend for Sim {
    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn turn_us(&self) -> u64 {
        self.turn_us
    }

    fn unix_s(&self) -> u64 {
        (self.unix_ms_ahead + self.now_ms) / 1000
    }

    fn send(&mut self, socket: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        let total = parts.iter().map(|part| part.len()).sum();
        let taken = self.take(socket, total)?;
        self.pipe_of(socket).receive(parts, taken);
        Ok(Sent::of(taken, total))
    }

    fn send_file(
        &mut self,
        socket: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError> {
        let before_bytes: usize = before.iter().map(|part| part.len()).sum();
        let total = before_bytes + length;
        let taken = self.take(socket, total)?;
        let pipe = self.pipe_of(socket);
        pipe.receive(before, taken);
        let mut part = vec![0; taken.saturating_sub(before_bytes)];
        if part.is_empty() {
            return Ok(Sent::of(taken, total));
        }
        // A file that ends early is sent as far as it goes, and found out the next time.
        let read = file.read_at(&mut part, offset).unwrap_or(0);
        if read == 0 {
            return Err(FileSendError::Truncated);
        }
        pipe.downstream.extend(&part[..read]);
        let sent = Sent::of(before_bytes + read, total);
        pipe.blocked = sent.full;
        Ok(sent)
    }

    fn peek(&mut self, socket: Peer, buffer: &mut [u8]) -> usize {
        let index = self.sockets[socket.index()].expect("the server looks at a socket it closed");
        let all = self.pipes[index].upstream.len();
        let seen = self.pipes[index].peeked.unwrap_or(0).min(all);
        let shown = match self.rng.percent(self.faults.split_percent) && seen < all {
            true => (seen + 1 + self.rng.below(all - seen)).min(all),
            false => all,
        };
        let pipe = &mut self.pipes[index];
        pipe.peeked = Some(shown);
        let shown = shown.min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(pipe.upstream.range(..shown)) {
            *place = *byte;
        }
        shown
    }

    fn discard(&mut self, socket: Peer, bytes: usize) {
        let pipe = self.pipe_of(socket);
        pipe.upstream.drain(..bytes);
        // As with the kernel: a server that has only looked has not paused.
        (pipe.peeked, pipe.paused) = (None, false);
    }

    fn remote_address(&self, socket: Peer) -> Option<IpAddr> {
        self.sockets
            .get(socket.index())
            .copied()
            .flatten()
            .and_then(|pipe| self.pipes[pipe].address)
    }

    fn now_us(&self) -> u64 {
        self.now_ms * 1000 + self.worked_us
    }

    fn begin_stream(&mut self, socket: Peer, _: Retransmission) {
        let _ = self.pipe_of(socket);
    }

    fn unacknowledged(&self, socket: Peer) -> u32 {
        let index = self.sockets[socket.index()].expect("the server asks of a socket it closed");
        self.pipes[index].downstream.len() as u32
    }

    fn kernel_bytes(&self, socket: Peer) -> usize {
        let socket = self.sockets.get(socket.index()).copied().flatten();
        let pipe = socket.map(|index| &self.pipes[index]);
        pipe.map_or(0, |pipe| pipe.downstream.len() + pipe.upstream.len())
    }

    fn resume(&mut self, socket: Peer) {
        let pipe = self.pipe_of(socket);
        pipe.paused = false;
        pipe.finish_told = false;
        pipe.rearmed = true;
    }

    fn finish(&mut self, socket: Peer) {
        self.pipe_of(socket).server_finished = true;
    }

    fn close(&mut self, socket: Peer) {
        self.work();
        let pipe = self.pipe_of(socket);
        pipe.closed = true;
        if !pipe.upstream.is_empty() {
            mark("close-resets");
            // As the kernel: closing on unread bytes is a reset, which overtakes what was sent.
            pipe.cut |= !pipe.reset;
            pipe.reset = true;
            pipe.downstream.clear();
        }
        self.sockets[socket.index()] = None;
        // As with the kernel: there is a file again.
        self.accepts_at_ms = 0;
    }

    fn abort(&mut self, socket: Peer) {
        let pipe = self.pipe_of(socket);
        pipe.cut |= !pipe.reset;
        pipe.reset = true;
        // What has not arrived yet is thrown away.
        pipe.downstream.clear();
        self.close(socket);
    }

    fn refuse_new(&mut self, how: TurnAway) {
        self.refusing = Some(how);
    }

    fn close_listeners(&mut self) {
        self.refusing = Some(TurnAway::Refuse);
    }

    fn rest(&mut self, roles: &'static [Role]) {
        self.resting = roles;
    }

    fn accept_queue(&self) -> AcceptQueue {
        if self.has_room() && self.resting.is_empty() {
            return self.queue;
        }
        let waiting = self.pipes.iter().filter(|pipe| pipe.waits()).count();
        AcceptQueue { waiting: waiting as u32, ..self.queue }
    }
}

/// Simulated time begins in the middle of 2026.
const EPOCH_S: u64 = 1_782_000_000;
/// What one call of the kernel takes, about.
const WORK_US: u64 = 10;
/// As the kernel backend's buffer: no delivery is larger.
const RECEIVE_BYTES: usize = 64 * 1024;
