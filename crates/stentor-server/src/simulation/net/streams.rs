//! The clients' ends of streams that share sockets.
//!
//! A client that connects opens a stream on a socket of the same kind, if there is one with room
//! for it, or on a new one. The last to leave a socket closes it. A client that stalls lets its
//! window run out; its socket is read all the same.

use super::Wire;
use super::multiplexed::{FRAME_BYTES_MAX, Kind, put_frame, put_window, take_frame, window_of};
use std::net::IpAddr;
use stentor_io::{Rng, Role};

/// All of them.
pub(super) struct Streams {
    carriers: Vec<Carrier>,
    streams: Vec<Stream>,
    window_bytes: usize,
    rng: Rng,
}

struct Carrier {
    socket: usize,
    role: Role,
    address: Option<IpAddr>,
    input: Vec<u8>,
    /// The streams on it, by number.
    streams: Vec<usize>,
    /// No further stream is opened on it.
    is_closed: bool,
    is_finished: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "the simulator")]
struct Stream {
    carrier: usize,
    id: u32,
    /// So much may be sent, and so much may come.
    window: usize,
    own_window: usize,
    unsent: Vec<u8>,
    received: Vec<u8>,
    /// Received, and the window not grown by it.
    owed: usize,
    is_stalled: bool,
    finishes: bool,
    is_finished: bool,
    has_ended: bool,
    was_reset: bool,
    was_cut: bool,
}

impl Stream {
    fn is_over(&self) -> bool {
        self.was_reset || self.has_ended && self.finishes
    }
}

impl Streams {
    pub(super) fn new(seed: u64, window_bytes: usize) -> Streams {
        Streams { carriers: Vec::new(), streams: Vec::new(), window_bytes, rng: Rng::new(!seed) }
    }

    pub(super) fn connect(
        &mut self,
        wire: &mut Wire,
        role: Role,
        address: Option<IpAddr>,
    ) -> usize {
        let fits = |carrier: &Carrier| {
            let is_open = !carrier.is_closed && carrier.streams.len() < STREAMS_MAX;
            is_open && (carrier.role, carrier.address) == (role, address)
        };
        let found = self.carriers.iter().position(fits).filter(|_| self.rng.percent(80));
        let carrier = found.unwrap_or_else(|| self.connect_carrier(wire, role, address));
        self.open(wire, carrier)
    }

    pub(super) fn connect_apart(&mut self, wire: &mut Wire, role: Role) -> usize {
        let carrier = self.connect_carrier(wire, role, None);
        self.carriers[carrier].is_closed = true;
        self.open(wire, carrier)
    }

    pub(super) fn connect_beside(&mut self, wire: &mut Wire, stream: usize) -> usize {
        self.open(wire, self.streams[stream].carrier)
    }

    fn connect_carrier(&mut self, wire: &mut Wire, role: Role, address: Option<IpAddr>) -> usize {
        let socket = wire.connect(role, address, b"");
        let (input, streams) = (Vec::new(), Vec::new());
        let (is_closed, is_finished) = (false, false);
        let carrier = Carrier { socket, role, address, input, streams, is_closed, is_finished };
        self.carriers.push(carrier);
        self.carriers.len() - 1
    }

    fn open(&mut self, wire: &mut Wire, carrier: usize) -> usize {
        let Carrier { socket, streams, .. } = &mut self.carriers[carrier];
        let id = streams.len() as u32;
        streams.push(self.streams.len());
        self.streams.push(Stream {
            carrier,
            id,
            window: self.window_bytes,
            own_window: self.window_bytes,
            unsent: Vec::new(),
            received: Vec::new(),
            owed: 0,
            is_stalled: false,
            finishes: false,
            is_finished: false,
            has_ended: false,
            was_reset: wire.was_reset(*socket),
            was_cut: false,
        });
        let mut frame = Vec::new();
        put_frame(&mut frame, id, Kind::Open, &[]);
        wire.write(*socket, &frame);
        self.streams.len() - 1
    }

    /// The socket that a stream is on.
    #[cfg(test)]
    pub(super) fn socket(&self, stream: usize) -> usize {
        self.carriers[self.streams[stream].carrier].socket
    }

    pub(super) fn write(&mut self, wire: &mut Wire, stream: usize, bytes: &[u8]) {
        if !self.streams[stream].finishes {
            self.streams[stream].unsent.extend_from_slice(bytes);
            self.flush(wire, stream);
        }
    }

    pub(super) fn finish(&mut self, wire: &mut Wire, stream: usize) {
        self.streams[stream].finishes = true;
        self.flush(wire, stream);
        self.leave(wire, self.streams[stream].carrier);
    }

    pub(super) fn reset(&mut self, wire: &mut Wire, stream: usize) {
        let Stream { carrier, id, was_reset, .. } = &mut self.streams[stream];
        if !std::mem::replace(was_reset, true) {
            let mut frame = Vec::new();
            put_frame(&mut frame, *id, Kind::Reset, &[]);
            wire.write(self.carriers[*carrier].socket, &frame);
        }
        self.leave(wire, self.streams[stream].carrier);
    }

    pub(super) fn reset_carrier(&mut self, wire: &mut Wire, stream: usize) {
        wire.reset(self.carriers[self.streams[stream].carrier].socket);
    }

    pub(super) fn stall(&mut self, wire: &mut Wire, stream: usize, stalled: bool) {
        self.streams[stream].is_stalled = stalled;
        self.pay(wire, stream);
    }

    pub(super) fn read(&mut self, stream: usize) -> Vec<u8> {
        std::mem::take(&mut self.streams[stream].received)
    }

    pub(super) fn ended(&self, stream: usize) -> bool {
        self.streams[stream].has_ended || self.streams[stream].was_reset
    }

    pub(super) fn was_reset(&self, stream: usize) -> bool {
        self.streams[stream].was_reset
    }

    pub(super) fn was_cut(&self, stream: usize) -> bool {
        self.streams[stream].was_cut
    }

    /// Takes in what has come on all sockets.
    pub(super) fn pump(&mut self, wire: &mut Wire) {
        for at in 0..self.carriers.len() {
            let carrier = &mut self.carriers[at];
            let bytes = wire.read(carrier.socket);
            carrier.input.extend(bytes);
            while let Some(frame) = take_frame(&mut self.carriers[at].input) {
                self.frame(wire, at, frame);
            }
            self.look_for_the_end(wire, at);
        }
    }

    fn frame(&mut self, wire: &mut Wire, carrier: usize, frame: (u32, Kind, Vec<u8>)) {
        let (id, kind, content) = frame;
        if kind == Kind::GoAway {
            self.carriers[carrier].is_closed = true;
            return;
        }
        let at = self.carriers[carrier].streams[id as usize];
        let stream = &mut self.streams[at];
        if stream.was_reset {
            return;
        }
        assert!(!stream.has_ended || kind == Kind::Window, "{kind:?} behind the end");
        match kind {
            Kind::Data => {
                stream.received.extend_from_slice(&content);
                stream.owed += content.len();
                let left = stream.own_window.checked_sub(content.len());
                stream.own_window = left.expect("more than the window");
                self.pay(wire, at);
            }
            Kind::Window => {
                stream.window += window_of(&content);
                self.flush(wire, at);
            }
            Kind::End => {
                stream.has_ended = true;
                self.leave(wire, carrier);
            }
            Kind::Reset | Kind::Refused => {
                stream.was_reset = true;
                stream.was_cut = kind == Kind::Reset;
                stream.received.clear();
                self.leave(wire, carrier);
            }
            Kind::Open | Kind::GoAway => panic!("no server says {kind:?} of a stream"),
        }
    }

    /// A socket that ends, ends its streams; the server does so only when there are none.
    fn look_for_the_end(&mut self, wire: &mut Wire, at: usize) {
        let Carrier { socket, streams, is_closed, .. } = &mut self.carriers[at];
        if !wire.ended(*socket) {
            return;
        }
        *is_closed = true;
        for &stream in streams.iter() {
            let stream = &mut self.streams[stream];
            if !stream.is_over() {
                assert!(wire.was_reset(*socket), "the server leaves a socket with a stream on it");
                stream.was_cut = wire.was_cut(*socket);
                stream.was_reset = true;
            }
        }
    }

    /// Sends as much as the window allows.
    fn flush(&mut self, wire: &mut Wire, at: usize) {
        let stream = &mut self.streams[at];
        let mut out = Vec::new();
        let length = stream.window.min(stream.unsent.len());
        stream.window -= length;
        for part in stream.unsent.drain(..length).as_slice().chunks(FRAME_BYTES_MAX) {
            put_frame(&mut out, stream.id, Kind::Data, part);
        }
        let ends = stream.finishes && stream.unsent.is_empty();
        if ends && !std::mem::replace(&mut stream.is_finished, true) {
            put_frame(&mut out, stream.id, Kind::End, &[]);
        }
        let Carrier { socket, is_finished, .. } = &self.carriers[stream.carrier];
        if !out.is_empty() && !is_finished && !stream.was_reset {
            wire.write(*socket, &out);
        }
    }

    /// Grows the window by what was received, unless the client is stalled.
    fn pay(&mut self, wire: &mut Wire, at: usize) {
        let stream = &mut self.streams[at];
        let carrier = &self.carriers[stream.carrier];
        if stream.owed == 0 || stream.is_stalled || stream.is_over() || carrier.is_finished {
            return;
        }
        let bytes = std::mem::take(&mut stream.owed);
        stream.own_window += bytes;
        let mut frame = Vec::new();
        put_window(&mut frame, stream.id, bytes);
        wire.write(carrier.socket, &frame);
    }

    /// Closes the socket if nobody is left on it.
    fn leave(&mut self, wire: &mut Wire, carrier: usize) {
        let Carrier { socket, streams, is_closed, is_finished, .. } = &mut self.carriers[carrier];
        let is_empty = streams.iter().all(|&stream| self.streams[stream].is_over());
        if is_empty && !std::mem::replace(is_finished, true) {
            *is_closed = true;
            wire.finish(*socket);
        }
    }
}

/// So many streams a socket has, one after the other or at once.
const STREAMS_MAX: usize = 7;
