//! The simulated network as the tests' clients see it, plain or with layers between it and the
//! server.
//!
//! A layer is a backend around a backend and a handler around a handler, so the worker learns
//! nothing of it: `stentor-tls-layer` is TLS, whose clients are rustls here (`net/tls.rs`), and
//! `net/multiplexed.rs` stands for HTTP/2. A test, its seed, or `STENTOR_CARRIER=plain`,
//! `=multiplexed` or `=tls` chooses one. The clients' ends of the layers check what the server owes
//! them: a last record before the end (`net/tls.rs`), no more bytes than the window
//! (`net/streams.rs`).

mod multiplexed;
mod streams;
#[cfg(test)]
pub(crate) mod tls;

use crate::listeners::{CONTROL, PUBLIC};
use crate::panics::may_panic;
use crate::worker::Worker;
use multiplexed::{Carriers, Multiplexed, Multiplexing};
use std::fmt;
use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::Arc;
#[cfg(test)]
use stentor_io::KernelFaults;
use stentor_io::{
    AcceptQueue, Backend, Faults, File, FileSendError, Gone, LAYERED, PROXIED, Peer,
    Retransmission, Role, Sent, Sim, TurnAway,
};
use stentor_test::trace::{self, Excerpt};
use stentor_tls_layer::{Acceptors, Secured, Securing, Sessions};
use streams::Streams;

/// A client's end of a connection, or of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Client(usize);

/// What is between the network and the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layers {
    Plain,
    Multiplexed,
    /// TLS.
    #[cfg(test)]
    Tls,
}

const LAYERS: &[(Layers, &str)] = &[
    (Layers::Plain, "plain"),
    (Layers::Multiplexed, "multiplexed"),
    #[cfg(test)]
    (Layers::Tls, "tls"),
];

impl Layers {
    /// Those a seed is run over, unless the environment names others.
    pub(crate) fn of_seed(seed: u64) -> Layers {
        Layers::asked().unwrap_or(LAYERS[seed as usize % LAYERS.len()].0)
    }

    /// Those the environment names.
    pub(crate) fn asked() -> Option<Layers> {
        let asked = std::env::var("STENTOR_CARRIER").ok()?;
        let found = LAYERS.iter().find(|(_, name)| *name == asked);
        Some(found.unwrap_or_else(|| panic!("there is no carrier {asked}")).0)
    }
}

/// The network.
pub(crate) struct Net {
    wire: Wire,
    secured: Option<Sessions>,
    carriers: Option<Carriers>,
    streams: Option<Streams>,
}

impl Net {
    pub(crate) fn new(seed: u64, faults: Faults, layers: Layers) -> Net {
        let is_multiplexed = layers == Layers::Multiplexed;
        let window_bytes = faults.window_bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        // A few bytes a turn would take for ever behind heads of records and frames.
        let is_secured = is_tls(layers);
        let below_bytes_min = match layers {
            Layers::Plain => 0,
            _ if is_secured => SECURED_WINDOW_BYTES_MIN,
            _ => WINDOW_BYTES_MIN,
        };
        let below_bytes = faults.window_bytes.max(below_bytes_min);
        let mut sim = Sim::new(seed, Faults { window_bytes: below_bytes, ..faults });
        sim.on_send(may_panic);
        Net {
            wire: Wire { sim, ends: ends(layers, seed), sockets: Vec::new() },
            secured: is_secured.then(secured_sessions),
            carriers: is_multiplexed.then(|| Carriers::new(seed, window_bytes)),
            streams: is_multiplexed.then(|| Streams::new(seed, window_bytes)),
        }
    }

    /// One turn of the network and of the layers. Returns false when nothing can happen but the
    /// passing of time.
    pub(crate) fn turn(&mut self, worker: &mut Worker) -> bool {
        let Net { wire: Wire { sim, .. }, secured, carriers, .. } = self;
        let (busy, waits) = match (secured, carriers) {
            (Some(secured), _) => {
                let due_ms = secured.next_deadline_ms();
                let waits = due_ms.is_some_and(|due_ms| due_ms <= sim.now_ms());
                let busy = sim.turn(&mut Securing { sessions: secured, handler: worker });
                secured.serve(sim, worker);
                (busy, waits)
            }
            (None, Some(carriers)) => {
                let waits = carriers.has_work();
                let busy = sim.turn(&mut Multiplexing { carriers, handler: worker });
                carriers.serve(sim, worker);
                (busy, waits)
            }
            (None, None) => (sim.turn(worker), false),
        };
        self.pump();
        busy || waits
    }

    /// Whether the worker may panic: the stand-in for a layer does not recover.
    pub(crate) fn may_recover(&self) -> bool {
        self.carriers.is_none()
    }

    /// Does what `life.rs` of `stentor-process` does after a panic of the worker. The connection
    /// that caused it breaks.
    pub(crate) fn recover(&mut self, worker: &mut Worker) {
        let Wire { sim, .. } = &mut self.wire;
        let below = self.secured.as_ref().and_then(Sessions::current);
        for peer in worker.current().into_iter().chain(below) {
            sim.reset_server(peer);
        }
        match &mut self.secured {
            None => worker.recover(sim),
            Some(sessions) => {
                worker.recover(&mut Secured { io: sim, sessions });
                sessions.recover(sim, worker);
            }
        }
        self.pump();
    }

    /// The clients' ends of streams take in what has come.
    fn pump(&mut self) {
        self.wire.pump();
        if let Some(streams) = &mut self.streams {
            streams.pump(&mut self.wire);
        }
    }

    /// A client without an address connects to the listener of `role`.
    pub(crate) fn connect(&mut self, role: Role) -> Client {
        self.connect_from(role, None)
    }

    /// A client connects to the listener of `role`, or opens a stream on a socket there is.
    pub(crate) fn connect_from(&mut self, role: Role, address: Option<IpAddr>) -> Client {
        self.pump();
        let client = Client(match &mut self.streams {
            None => self.wire.connect(role, address, b""),
            Some(streams) => streams.connect(&mut self.wire, role, address),
        });
        self.trace(client, format_args!("connects"));
        client
    }

    /// A proxy connects to a listener for proxies and says this before the client's first byte.
    pub(crate) fn connect_through(&mut self, address: Option<IpAddr>, header: &[u8]) -> Client {
        self.pump();
        Client(self.wire.connect(PUBLIC | PROXIED, address, header))
    }

    /// From now on the server holds at most so many connections.
    pub(crate) fn limit_connections(&mut self, connections_max: usize) {
        self.wire.sim.limit_connections(connections_max);
    }

    /// A client connects to a listener that speaks TLS, and speaks whatever the test does.
    #[cfg(test)]
    pub(crate) fn connect_bare(&mut self, role: Role) -> Client {
        let ends = self.wire.ends.take();
        let client = Client(self.wire.connect(role | LAYERED, None, b""));
        self.wire.ends = ends;
        client
    }

    /// What is known of sessions.
    #[cfg(test)]
    pub(crate) fn secured(&mut self) -> &mut Sessions {
        self.secured.as_mut().expect("there are sessions in a world with TLS")
    }

    /// The same with a socket of its own, for one who is to have nothing in common with others.
    #[cfg(test)]
    pub(crate) fn connect_apart(&mut self, role: Role) -> Client {
        Client(match &mut self.streams {
            None => self.wire.connect(role, None, b""),
            Some(streams) => streams.connect_apart(&mut self.wire, role),
        })
    }

    /// Opens a stream on the socket that another client's stream is on.
    #[cfg(test)]
    pub(crate) fn connect_beside(&mut self, client: Client) -> Client {
        let streams = self.streams.as_mut().expect("only a layer of streams has room for two");
        Client(streams.connect_beside(&mut self.wire, client.0))
    }

    pub(crate) fn write(&mut self, client: Client, bytes: &[u8]) {
        self.trace(client, format_args!("writes {}", Excerpt(bytes)));
        match &mut self.streams {
            None => self.wire.write(client.0, bytes),
            Some(streams) => streams.write(&mut self.wire, client.0, bytes),
        }
    }

    pub(crate) fn finish_client(&mut self, client: Client) {
        self.trace(client, format_args!("ends what it writes"));
        match &mut self.streams {
            None => self.wire.finish(client.0),
            Some(streams) => streams.finish(&mut self.wire, client.0),
        }
    }

    pub(crate) fn reset_client(&mut self, client: Client) {
        self.trace(client, format_args!("resets its connection"));
        match &mut self.streams {
            None => self.wire.reset(client.0),
            Some(streams) => streams.reset(&mut self.wire, client.0),
        }
    }

    /// Breaks the socket that a client's stream is on, and all others on it.
    #[cfg(test)]
    pub(crate) fn reset_carrier(&mut self, client: Client) {
        match &mut self.streams {
            None => self.wire.reset(client.0),
            Some(streams) => streams.reset_carrier(&mut self.wire, client.0),
        }
        self.pump();
    }

    pub(crate) fn stall(&mut self, client: Client, stalled: bool) {
        match &mut self.streams {
            None => self.wire.sim.stall(self.wire.sockets[client.0].client, stalled),
            Some(streams) => streams.stall(&mut self.wire, client.0, stalled),
        }
    }

    pub(crate) fn read(&mut self, client: Client) -> Vec<u8> {
        self.pump();
        let bytes = match &mut self.streams {
            None => self.wire.read(client.0),
            Some(streams) => streams.read(client.0),
        };
        if !bytes.is_empty() {
            self.trace(client, format_args!("reads {}", Excerpt(&bytes)));
        }
        bytes
    }

    pub(crate) fn ended(&mut self, client: Client) -> bool {
        self.pump();
        match &self.streams {
            None => self.wire.ended(client.0),
            Some(streams) => streams.ended(client.0),
        }
    }

    pub(crate) fn was_reset(&mut self, client: Client) -> bool {
        self.pump();
        match &self.streams {
            None => self.wire.was_reset(client.0),
            Some(streams) => streams.was_reset(client.0),
        }
    }

    pub(crate) fn was_cut(&mut self, client: Client) -> bool {
        self.pump();
        match &self.streams {
            None => self.wire.was_cut(client.0),
            Some(streams) => streams.was_cut(client.0),
        }
    }

    /// The sessions of TLS, if there are any, go over to another process, where they are as they
    /// were. Returns false if some handshake is under way, which would be lost.
    pub(crate) fn hand_over(&mut self) -> bool {
        let Some(secured) = &mut self.secured else { return true };
        let now_ms = self.wire.sim.now_ms();
        let mut next = secured_sessions();
        if !secured.hand_over_to(&mut next, now_ms) {
            return false;
        }
        *secured = next;
        true
    }

    /// See [`Sim::stop_resets`].
    #[cfg(test)]
    pub(crate) fn stop_resets(&mut self) {
        self.wire.sim.stop_resets();
    }

    /// So many wait in front of the listeners.
    #[cfg(test)]
    pub(crate) fn set_accept_queue(&mut self, queue: AcceptQueue) {
        self.wire.sim.set_accept_queue(queue);
    }

    /// The worker is busy for so many calls of the kernel.
    #[cfg(test)]
    pub(crate) fn work(&mut self, calls: usize) {
        (0..calls).for_each(|_| self.wire.sim.work());
    }

    fn trace(&self, client: Client, what: fmt::Arguments<'_>) {
        trace::act(self.now_ms(), format_args!("client {} {what}", client.0));
    }

    pub(crate) fn sleep(&mut self, ms: u64) {
        trace::act(self.now_ms(), format_args!("{ms} ms go by"));
        self.wire.sim.sleep(ms);
    }

    /// See [`Sim::set_kernel_faults`].
    #[cfg(test)]
    pub(crate) fn set_kernel_faults(&mut self, faults: KernelFaults) {
        self.wire.sim.set_kernel_faults(faults);
    }

    /// See [`Sim::jump_wall_clock`].
    #[cfg(test)]
    pub(crate) fn jump_wall_clock(&mut self, by_s: i64) {
        self.wire.sim.jump_wall_clock(by_s);
    }

    /// Whether something is between the network and the server.
    pub(crate) fn has_layers(&self) -> bool {
        self.carriers.is_some() || self.secured.is_some()
    }

    /// Whether the network has something to bring to the server from the socket that a client is
    /// on.
    #[cfg(test)]
    pub(crate) fn is_due(&self, client: Client) -> bool {
        let socket = match &self.streams {
            None => client.0,
            Some(streams) => streams.socket(client.0),
        };
        self.wire.sim.is_due(self.wire.sockets[socket].client)
    }

    /// Sockets the server holds, and streams on them.
    pub(crate) fn open_sockets(&self) -> usize {
        let streams = self.carriers.as_ref().map_or(0, Carriers::open_streams);
        self.wire.sim.open_sockets() + streams
    }

    /// The backend that the worker has.
    fn with<R>(&mut self, act: impl FnOnce(&mut dyn Backend) -> R) -> R {
        let Net { wire: Wire { sim: io, .. }, secured, carriers, .. } = self;
        match (secured, carriers) {
            (Some(sessions), _) => act(&mut Secured { io, sessions }),
            (None, Some(carriers)) => act(&mut Multiplexed { io, carriers }),
            (None, None) => act(io),
        }
    }
}

/// What is done to the worker beside the turns of the network is done on the same backend.
impl Backend for Net {
    fn now_ms(&self) -> u64 {
        self.wire.sim.now_ms()
    }

    fn turn_us(&self) -> u64 {
        self.wire.sim.turn_us()
    }

    fn unix_s(&self) -> u64 {
        self.wire.sim.unix_s()
    }

    fn now_us(&self) -> u64 {
        self.wire.sim.now_us()
    }

    fn send(&mut self, peer: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        self.with(|io| io.send(peer, parts))
    }

    fn send_file(
        &mut self,
        peer: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError> {
        self.with(|io| io.send_file(peer, before, file, offset, length))
    }

    fn peek(&mut self, peer: Peer, buffer: &mut [u8]) -> usize {
        self.wire.sim.peek(peer, buffer)
    }

    fn discard(&mut self, peer: Peer, bytes: usize) {
        self.wire.sim.discard(peer, bytes);
    }

    fn remote_address(&self, peer: Peer) -> Option<IpAddr> {
        self.wire.sim.remote_address(peer)
    }

    fn unacknowledged(&self, peer: Peer) -> u32 {
        match (&self.secured, &self.carriers) {
            (Some(secured), _) => secured.unacknowledged(&self.wire.sim, peer),
            (None, Some(carriers)) => carriers.unacknowledged(peer),
            (None, None) => self.wire.sim.unacknowledged(peer),
        }
    }

    fn kernel_sends_files(&self, _: Peer) -> bool {
        !self.has_layers()
    }

    fn kernel_bytes(&self, peer: Peer) -> usize {
        match &self.carriers {
            Some(carriers) => carriers.unacknowledged(peer) as usize,
            None => self.wire.sim.kernel_bytes(peer),
        }
    }

    fn resume(&mut self, peer: Peer) {
        self.with(|io| io.resume(peer));
    }

    fn begin_stream(&mut self, peer: Peer, retransmission: Retransmission) {
        self.with(|io| io.begin_stream(peer, retransmission));
    }

    fn finish(&mut self, peer: Peer) {
        self.with(|io| io.finish(peer));
    }

    fn close(&mut self, peer: Peer) {
        self.with(|io| io.close(peer));
    }

    fn abort(&mut self, peer: Peer) {
        self.with(|io| io.abort(peer));
    }

    fn refuse_new(&mut self, how: TurnAway) {
        self.with(|io| io.refuse_new(how));
    }

    fn rest(&mut self, roles: &'static [Role]) {
        self.wire.sim.rest(roles);
    }

    fn accept_queue(&self) -> AcceptQueue {
        self.wire.sim.accept_queue()
    }

    fn close_listeners(&mut self) {
        self.with(|io| io.close_listeners());
    }

    fn carrier(&self, peer: Peer) -> Peer {
        self.carriers.as_ref().map_or(peer, |carriers| carriers.carrier(peer))
    }

    fn held_bytes(&self, peer: Option<Peer>) -> usize {
        self.secured.as_ref().map_or(0, |secured| secured.held_bytes(peer))
    }
}

/// A client's end of a layer that is no stand-in.
pub(crate) trait End {
    /// It has connected.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Says something.
    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>);

    /// Ends its side. Returns false if it cannot yet.
    fn finish(&mut self, out: &mut Vec<u8>) -> bool;

    /// Hears something.
    fn receive(&mut self, bytes: &[u8], content: &mut Vec<u8>, out: &mut Vec<u8>);

    /// Whether the end of what it hears was said, or nothing could be.
    fn has_ended(&mut self) -> bool;
}

#[cfg(test)]
type Ends = tls::Clients;
/// Without a library for it there are none.
#[cfg(not(test))]
type Ends = std::convert::Infallible;

#[cfg(test)]
fn ends(layers: Layers, seed: u64) -> Option<Ends> {
    is_tls(layers).then(|| tls::Clients::new(seed))
}

#[cfg(not(test))]
fn ends(_: Layers, _: u64) -> Option<Ends> {
    None
}

#[cfg(test)]
fn end_of(ends: &mut Ends) -> Box<dyn End> {
    ends.connect()
}

#[cfg(not(test))]
fn end_of(ends: &mut Ends) -> Box<dyn End> {
    match *ends {}
}

fn is_tls(layers: Layers) -> bool {
    match layers {
        #[cfg(test)]
        Layers::Tls => true,
        _ => false,
    }
}

/// What the layer of TLS knows at the beginning.
fn secured_sessions() -> Sessions {
    #[cfg(test)]
    let acceptors = Acceptors::of(&tls::acceptor());
    #[cfg(not(test))]
    let acceptors = Acceptors::default();
    Sessions::new(Arc::new(acceptors), CONTROL)
}

/// Sockets as clients see them.
struct Wire {
    sim: Sim,
    ends: Option<Ends>,
    sockets: Vec<Socket>,
}

/// A client's end of a socket.
struct Socket {
    client: stentor_io::Client,
    end: Option<Box<dyn End>>,
    /// What its end has heard and the client has not read.
    content: Vec<u8>,
    /// It has ended its side, as soon as its end can.
    finishes: bool,
}

impl Wire {
    /// The header stands before the client's first byte, and belongs to no layer.
    fn connect(&mut self, role: Role, address: Option<IpAddr>, header: &[u8]) -> usize {
        let end = self.ends.as_mut().map(end_of);
        let role = if end.is_some() { role | LAYERED } else { role };
        let client = self.sim.connect_from(role, address);
        self.sim.write(client, header);
        self.sockets.push(Socket { client, end, content: Vec::new(), finishes: false });
        let socket = self.sockets.len() - 1;
        self.with_end(socket, |end, _, out| end.begin(out));
        socket
    }

    /// Has the end of a socket do something, and sends what it says.
    fn with_end<R>(
        &mut self,
        socket: usize,
        act: impl FnOnce(&mut dyn End, &mut Vec<u8>, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        let Socket { client, end, content, .. } = &mut self.sockets[socket];
        let mut out = Vec::new();
        let result = act(end.as_deref_mut()?, content, &mut out);
        if !out.is_empty() && !self.sim.was_reset(*client) {
            self.sim.write(*client, &out);
        }
        Some(result)
    }

    /// The ends take in what has come.
    fn pump(&mut self) {
        if self.ends.is_none() {
            return;
        }
        for socket in 0..self.sockets.len() {
            let Socket { client, end: Some(_), .. } = self.sockets[socket] else { continue };
            let bytes = self.sim.read(client);
            if bytes.is_empty() {
                continue;
            }
            self.with_end(socket, |end, content, out| end.receive(&bytes, content, out));
            if self.sockets[socket].finishes {
                self.finish(socket);
            }
        }
    }

    fn write(&mut self, socket: usize, bytes: &[u8]) {
        if self.with_end(socket, |end, _, out| end.write(bytes, out)).is_some() {
            return;
        }
        self.sim.write(self.sockets[socket].client, bytes);
    }

    fn finish(&mut self, socket: usize) {
        if let Some(is_done) = self.with_end(socket, |end, _, out| end.finish(out)) {
            self.sockets[socket].finishes = !is_done;
            if is_done {
                self.sim.finish_client(self.sockets[socket].client);
            }
            return;
        }
        self.sim.finish_client(self.sockets[socket].client);
    }

    fn reset(&mut self, socket: usize) {
        self.sim.reset_client(self.sockets[socket].client);
    }

    fn read(&mut self, socket: usize) -> Vec<u8> {
        let Socket { client, end, content, .. } = &mut self.sockets[socket];
        let Some(end) = end else { return self.sim.read(*client) };
        let is_over = self.sim.ended(*client) && !self.sim.was_reset(*client);
        assert!(!is_over || end.has_ended(), "the end came without a last record");
        std::mem::take(content)
    }

    fn ended(&self, socket: usize) -> bool {
        self.sim.ended(self.sockets[socket].client)
    }

    fn was_reset(&self, socket: usize) -> bool {
        self.sim.was_reset(self.sockets[socket].client)
    }

    fn was_cut(&self, socket: usize) -> bool {
        self.sim.was_cut(self.sockets[socket].client)
    }
}

/// The window of a stream is the socket's, but within these: it takes a turn of the network for
/// each.
const WINDOW_BYTES_MIN: usize = 100;
/// A flight of a handshake has a thousand bytes and more.
const SECURED_WINDOW_BYTES_MIN: usize = 300;
const WINDOW_BYTES_MAX: usize = 64 * 1024;
