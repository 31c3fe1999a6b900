//! A layer that carries several streams in one socket, as HTTP/2 does, and is no HTTP/2.
//!
//! A frame has the number of its stream, a kind and a content. A stream has a window for what the
//! server sends and one for what it receives, so that a stream that is not read blocks itself and
//! no other: the carrier goes on reading, since it must hear of windows. To the handler a stream
//! is a peer like any other, with a number that no socket has.
//!
//! When a carrier is full its streams wait, and are told of room in turn. What a handler that does
//! not read has still to be brought is kept, as far as the window goes.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::IpAddr;
use stentor_io::{
    Backend, File, FileSendError, Flow, Gone, Handler, Pause, Peer, Refused, Retransmission, Rng,
    Role, Sent, TurnAway,
};

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Open,
    Data,
    /// The window grows by so many bytes.
    Window,
    End,
    Reset,
    /// The stream was never begun.
    Refused,
    /// Open no more streams on this carrier.
    GoAway,
}

const KINDS: [Kind; 7] =
    [Kind::Open, Kind::Data, Kind::Window, Kind::End, Kind::Reset, Kind::Refused, Kind::GoAway];

pub(super) fn put_frame(out: &mut Vec<u8>, id: u32, kind: Kind, content: &[u8]) {
    out.extend_from_slice(&id.to_be_bytes());
    out.push(kind as u8);
    out.extend_from_slice(&(content.len() as u16).to_be_bytes());
    out.extend_from_slice(content);
}

pub(super) fn put_window(out: &mut Vec<u8>, id: u32, bytes: usize) {
    put_frame(out, id, Kind::Window, &(bytes as u32).to_be_bytes());
}

/// Takes the first frame off the front, if it is whole.
pub(super) fn take_frame(input: &mut Vec<u8>) -> Option<(u32, Kind, Vec<u8>)> {
    let head = *input.first_chunk::<FRAME_HEAD_BYTES>()?;
    let length = FRAME_HEAD_BYTES + usize::from(u16::from_be_bytes([head[5], head[6]]));
    if input.len() < length {
        return None;
    }
    let content = input[FRAME_HEAD_BYTES..length].to_vec();
    input.drain(..length);
    let kind = KINDS[usize::from(head[4])];
    Some((u32::from_be_bytes([head[0], head[1], head[2], head[3]]), kind, content))
}

pub(super) fn window_of(content: &[u8]) -> usize {
    u32::from_be_bytes(content.try_into().expect("a window has four bytes")) as usize
}

/// A socket.
#[derive(Debug)]
struct Carrier {
    role: Role,
    address: Option<IpAddr>,
    input: Vec<u8>,
    /// What the socket has not taken of a frame, and what control frames wait behind it.
    unsent: Vec<u8>,
    /// The backend below has said so.
    is_full: bool,
    is_broken: bool,
    is_paused: bool,
    streams: BTreeMap<u32, u32>,
    /// Streams that wait for room, in turn.
    waiting: VecDeque<u32>,
}

impl Carrier {
    /// Sends what was held. Returns whether there is room for more.
    fn flush<B: Backend>(&mut self, io: &mut B, peer: Peer) -> Result<bool, Gone> {
        if self.is_broken {
            return Err(Gone);
        }
        if !self.is_full && !self.unsent.is_empty() {
            let sent = io.send(peer, &[IoSlice::new(&self.unsent)]);
            let sent = sent.inspect_err(|Gone| self.is_broken = true)?;
            self.unsent.drain(..sent.bytes);
            self.is_full = sent.full;
        }
        Ok(!self.is_full)
    }
}

/// What is a peer to the handler.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the simulator")]
struct Stream {
    carrier: Peer,
    id: u32,
    /// So much it may be sent.
    window: usize,
    /// Received, and not yet brought to the handler.
    kept: Vec<u8>,
    has_ended: bool,
    /// The peer or the carrier has ended it: nothing more is sent.
    is_gone: bool,
    is_paused: bool,
    /// The handler waits to be told of room.
    is_blocked: bool,
    is_waiting: bool,
    is_resumed: bool,
    finish_told: bool,
    is_finished: bool,
}

/// What the layer knows of all carriers and streams.
#[derive(Debug)]
pub(super) struct Carriers {
    carriers: BTreeMap<Peer, Carrier>,
    /// By number, the lowest free one for the next.
    streams: Vec<Option<Stream>>,
    resumed: Vec<u32>,
    /// What a stream may be sent, and may send, before it has been read.
    window_bytes: usize,
    /// No frame has more content.
    frame_bytes_max: usize,
    refuses: bool,
    rng: Rng,
}

impl Carriers {
    pub(super) fn new(seed: u64, window_bytes: usize) -> Carriers {
        let mut rng = Rng::new(seed);
        let frame_bytes_max = [50, 1_000, FRAME_BYTES_MAX][rng.below(3)];
        Carriers {
            carriers: BTreeMap::new(),
            streams: Vec::new(),
            resumed: Vec::new(),
            window_bytes,
            frame_bytes_max,
            refuses: false,
            rng,
        }
    }

    fn stream(&mut self, slot: u32) -> Option<&mut Stream> {
        self.streams.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn open_streams(&self) -> usize {
        self.streams.iter().flatten().count()
    }

    pub(super) fn unacknowledged(&self, peer: Peer) -> u32 {
        let stream = self.streams[slot_of(peer) as usize].as_ref();
        (self.window_bytes - stream.expect("the server asks of a stream it closed").window) as u32
    }

    pub(super) fn carrier(&self, peer: Peer) -> Peer {
        let stream = self.streams.get(slot_of(peer) as usize).and_then(Option::as_ref);
        stream.map_or(peer, |stream| stream.carrier)
    }

    pub(super) fn has_work(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// The layer's own part of a turn: one stream whose handler reads again goes on.
    pub(super) fn serve<B: Backend, H>(&mut self, io: &mut B, handler: &mut H)
    where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        if self.resumed.is_empty() {
            return;
        }
        let at = self.rng.below(self.resumed.len());
        let slot = self.resumed.swap_remove(at);
        let stream = self.stream(slot).expect("who is gone is not resumed");
        stream.is_resumed = false;
        stream.finish_told = false;
        // It hears of room in any case, as of a socket.
        stream.is_blocked = true;
        let mut multiplexing = Multiplexing { carriers: self, handler };
        multiplexing.tell_room(io, slot);
        multiplexing.deliver(io, slot);
    }
}

/// The backend that the layer is for the handler above it.
pub(super) struct Multiplexed<'a, B> {
    pub(super) io: &'a mut B,
    pub(super) carriers: &'a mut Carriers,
}

impl<B: Backend> Multiplexed<'_, B> {
    fn stream(&mut self, peer: Peer) -> &mut Stream {
        self.carriers.stream(slot_of(peer)).expect("the server names a stream it closed")
    }

    /// Sends a frame that needs no window, as soon as there is room.
    fn control(&mut self, carrier: Peer, put: impl FnOnce(&mut Vec<u8>)) {
        let Some(below) = self.carriers.carriers.get_mut(&carrier) else { return };
        put(&mut below.unsent);
        // If it is broken, the backend below will tell.
        let _ = below.flush(self.io, carrier);
    }

    fn free(&mut self, peer: Peer) {
        let slot = slot_of(peer);
        let stream = self.carriers.streams[slot as usize].take().expect("it is freed once");
        self.carriers.resumed.retain(|&resumed| resumed != slot);
        if let Some(carrier) = self.carriers.carriers.get_mut(&stream.carrier) {
            carrier.streams.remove(&stream.id);
            carrier.waiting.retain(|&waiting| waiting != slot);
        }
    }
}

impl<B: Backend> Backend for Multiplexed<'_, B> {
    stentor_io::left_to_the_backend_below!();

    fn send(&mut self, peer: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        let bytes = parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
        let Carriers { carriers, streams, frame_bytes_max, .. } = &mut *self.carriers;
        let stream = streams[slot_of(peer) as usize].as_mut();
        let stream = stream.expect("the server sends on a stream it closed");
        let carrier = carriers.get_mut(&stream.carrier).ok_or(Gone)?;
        if stream.is_gone {
            return Err(Gone);
        }
        assert!(!stream.is_finished, "the server sends after its end");
        let mut taken = 0;
        let mut has_room = carrier.flush(self.io, stream.carrier)?;
        while has_room && taken < bytes.len() && stream.window > 0 {
            let length = (bytes.len() - taken).min(stream.window).min(*frame_bytes_max);
            put_frame(&mut carrier.unsent, stream.id, Kind::Data, &bytes[taken..taken + length]);
            taken += length;
            stream.window -= length;
            has_room = carrier.flush(self.io, stream.carrier)?;
        }
        let full = taken < bytes.len() || !has_room;
        stream.is_blocked |= full;
        if !has_room && !std::mem::replace(&mut stream.is_waiting, true) {
            carrier.waiting.push_back(slot_of(peer));
        }
        Ok(Sent { bytes: taken, full })
    }

    fn send_file(
        &mut self,
        peer: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError> {
        send_file_as_bytes(self, peer, before, file, offset, length)
    }

    fn unacknowledged(&self, peer: Peer) -> u32 {
        self.carriers.unacknowledged(peer)
    }

    fn kernel_bytes(&self, peer: Peer) -> usize {
        self.carriers.unacknowledged(peer) as usize
    }

    fn carrier(&self, peer: Peer) -> Peer {
        self.carriers.carrier(peer)
    }

    fn resume(&mut self, peer: Peer) {
        let stream = self.stream(peer);
        stream.is_paused = false;
        if !std::mem::replace(&mut stream.is_resumed, true) {
            self.carriers.resumed.push(slot_of(peer));
        }
    }

    fn begin_stream(&mut self, peer: Peer, retransmission: Retransmission) {
        let carrier = self.stream(peer).carrier;
        self.io.begin_stream(carrier, retransmission);
    }

    fn finish(&mut self, peer: Peer) {
        let stream = self.stream(peer);
        let (carrier, id) = (stream.carrier, stream.id);
        if !std::mem::replace(&mut stream.is_finished, true) && !stream.is_gone {
            self.control(carrier, |out| put_frame(out, id, Kind::End, &[]));
        }
    }

    fn close(&mut self, peer: Peer) {
        self.finish(peer);
        self.free(peer);
    }

    fn abort(&mut self, peer: Peer) {
        let stream = self.stream(peer);
        let (carrier, id) = (stream.carrier, stream.id);
        if !stream.is_gone {
            self.control(carrier, |out| put_frame(out, id, Kind::Reset, &[]));
        }
        self.free(peer);
    }

    fn refuse_new(&mut self, how: TurnAway) {
        for carrier in self.carriers.carriers.keys().copied().collect::<Vec<_>>() {
            self.control(carrier, |out| put_frame(out, 0, Kind::GoAway, &[]));
        }
        self.io.refuse_new(how);
    }

    fn close_listeners(&mut self) {
        self.carriers.refuses = true;
        self.io.close_listeners();
    }
}

/// The handler that the layer is for the backend below it.
pub(super) struct Multiplexing<'h, H> {
    pub(super) carriers: &'h mut Carriers,
    pub(super) handler: &'h mut H,
}

impl<H> Multiplexing<'_, H> {
    /// Tells the handler of a stream that it may send, once it may.
    fn tell_room<B: Backend>(&mut self, io: &mut B, slot: u32)
    where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        let Carriers { carriers, streams, .. } = &mut *self.carriers;
        let Some(stream) = &mut streams[slot as usize] else { return };
        if !stream.is_blocked || stream.window == 0 {
            return;
        }
        let Some(carrier) = carriers.get_mut(&stream.carrier) else { return };
        if carrier.is_full && !carrier.is_broken {
            if !std::mem::replace(&mut stream.is_waiting, true) {
                carrier.waiting.push_back(slot);
            }
            return;
        }
        stream.is_blocked = false;
        let mut multiplexed = Multiplexed { io, carriers: self.carriers };
        let reads = self.handler.ready(&mut multiplexed, peer_of(slot), true);
        if let Some(stream) = self.carriers.stream(slot) {
            stream.is_paused = !reads;
        }
    }

    /// Brings the handler what was kept for it, and the end behind that, if it reads.
    fn deliver<B: Backend>(&mut self, io: &mut B, slot: u32)
    where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        let peer = peer_of(slot);
        let mut multiplexed = Multiplexed { io, carriers: self.carriers };
        if multiplexed.carriers.stream(slot).is_none() {
            return;
        }
        let mut reads = self.handler.ready(&mut multiplexed, peer, false);
        while let Some(stream) = multiplexed.carriers.stream(slot) {
            stream.is_paused = !reads;
            let (carrier, id) = (stream.carrier, stream.id);
            if !reads {
                let tells = stream.has_ended && !std::mem::replace(&mut stream.finish_told, true);
                if tells {
                    self.handler.finished(&mut multiplexed, peer);
                }
                return;
            }
            if stream.kept.is_empty() {
                if stream.has_ended {
                    self.handler.ended(&mut multiplexed, peer);
                }
                return;
            }
            let length = match multiplexed.carriers.rng.percent(30) {
                true => 1,
                false => usize::MAX,
            };
            let kept = &mut multiplexed.stream(peer).kept;
            let mut bytes: Vec<u8> = kept.drain(..length.min(kept.len())).collect();
            reads = self.handler.received(&mut multiplexed, peer, &mut bytes) != Flow::Pause;
            if multiplexed.carriers.stream(slot).is_some() {
                multiplexed.control(carrier, |out| put_window(out, id, bytes.len()));
            }
        }
    }

    fn open<B: Backend>(&mut self, io: &mut B, carrier: Peer, id: u32)
    where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        if self.carriers.refuses {
            let mut multiplexed = Multiplexed { io, carriers: self.carriers };
            multiplexed.control(carrier, |out| put_frame(out, id, Kind::Refused, &[]));
            return;
        }
        let below = self.carriers.carriers.get_mut(&carrier).expect("it has brought a frame");
        let (role, address) = (below.role, below.address);
        let free = self.carriers.streams.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.carriers.streams.len());
        self.carriers.streams.resize_with(self.carriers.streams.len().max(slot + 1), || None);
        below.streams.insert(id, slot as u32);
        self.carriers.streams[slot] = Some(Stream {
            carrier,
            id,
            window: self.carriers.window_bytes,
            kept: Vec::new(),
            has_ended: false,
            is_gone: false,
            is_paused: false,
            is_blocked: false,
            is_waiting: false,
            is_resumed: false,
            finish_told: false,
            is_finished: false,
        });
        let peer = peer_of(slot as u32);
        let mut multiplexed = Multiplexed { io, carriers: self.carriers };
        let accepted = self.handler.accepted(&mut multiplexed, peer, role, address);
        if let Err(refused) = accepted {
            // It is told as far as the window goes.
            let _ = multiplexed.send(peer, &[IoSlice::new(&refused.farewell(b""))]);
            multiplexed.close(peer);
        }
    }

    /// The stream is over at once, whatever is under way.
    fn break_off<B: Backend>(&mut self, io: &mut B, slot: u32)
    where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        let Some(stream) = self.carriers.stream(slot) else { return };
        stream.is_gone = true;
        stream.kept.clear();
        self.handler.ended(&mut Multiplexed { io, carriers: self.carriers }, peer_of(slot));
        assert!(self.carriers.stream(slot).is_none(), "the handler keeps a stream that is over");
    }

    fn frame<B: Backend>(
        &mut self,
        io: &mut B,
        carrier: Peer,
        (id, kind, content): (u32, Kind, Vec<u8>),
    ) where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        if kind == Kind::Open {
            return self.open(io, carrier, id);
        }
        let window_bytes = self.carriers.window_bytes;
        let below = self.carriers.carriers.get_mut(&carrier).expect("it has brought a frame");
        // What is under way for a stream that is closed means nothing.
        let Some(&slot) = below.streams.get(&id) else { return };
        let stream = self.carriers.stream(slot).expect("the carrier knows its streams");
        match kind {
            Kind::Data => {
                assert!(!stream.has_ended, "data behind the end");
                stream.kept.extend(content);
                assert!(stream.kept.len() <= window_bytes, "more than the window");
            }
            Kind::Window => stream.window += window_of(&content),
            Kind::End => stream.has_ended = true,
            Kind::Reset => return self.break_off(io, slot),
            Kind::Open | Kind::Refused | Kind::GoAway => panic!("no client says {kind:?}"),
        }
        if kind == Kind::Window {
            self.tell_room(io, slot);
        } else if !stream.is_resumed {
            self.bring(io, slot);
        }
    }

    /// Something came in for a stream that is not resumed already.
    fn bring<B: Backend>(&mut self, io: &mut B, slot: u32)
    where
        H: for<'a> Handler<Multiplexed<'a, B>>,
    {
        let stream = self.carriers.stream(slot).expect("the carrier knows its streams");
        if !stream.is_paused {
            self.deliver(io, slot);
        } else if stream.has_ended && !std::mem::replace(&mut stream.finish_told, true) {
            let mut multiplexed = Multiplexed { io, carriers: self.carriers };
            self.handler.finished(&mut multiplexed, peer_of(slot));
        }
    }
}

impl<B: Backend, H> Handler<B> for Multiplexing<'_, H>
where
    H: for<'a> Handler<Multiplexed<'a, B>>,
{
    fn accepted(
        &mut self,
        _io: &mut B,
        peer: Peer,
        role: Role,
        address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        let carrier = Carrier {
            role,
            address,
            input: Vec::new(),
            unsent: Vec::new(),
            is_full: false,
            is_broken: false,
            is_paused: false,
            streams: BTreeMap::new(),
            waiting: VecDeque::new(),
        };
        self.carriers.carriers.insert(peer, carrier);
        Ok(())
    }

    fn ready(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool {
        let Some(carrier) = self.carriers.carriers.get_mut(&peer) else { return false };
        if !writable {
            return !carrier.is_paused;
        }
        carrier.is_full = false;
        let mut turns = carrier.waiting.len();
        while turns > 0
            && let Some(carrier) = self.carriers.carriers.get_mut(&peer)
            && carrier.flush(io, peer) == Ok(true)
            && let Some(slot) = carrier.waiting.pop_front()
        {
            turns -= 1;
            self.carriers.stream(slot).expect("who is gone does not wait").is_waiting = false;
            self.tell_room(io, slot);
        }
        let carrier = self.carriers.carriers.get_mut(&peer).expect("no handler closes it");
        let _ = carrier.flush(io, peer);
        if carrier.is_paused && carrier.unsent.len() < UNSENT_BYTES_MAX {
            carrier.is_paused = false;
            io.resume(peer);
        }
        !carrier.is_paused
    }

    fn received(&mut self, io: &mut B, peer: Peer, bytes: &mut [u8]) -> Flow {
        let Some(carrier) = self.carriers.carriers.get_mut(&peer) else { return Flow::Closed };
        carrier.input.extend_from_slice(bytes);
        while let Some(frame) =
            take_frame(&mut self.carriers.carriers.get_mut(&peer).unwrap().input)
        {
            self.frame(io, peer, frame);
        }
        let carrier = self.carriers.carriers.get_mut(&peer).expect("no handler closes it");
        // Answers to control frames may pile up: whoever does not take them is not listened to.
        carrier.is_paused = carrier.unsent.len() >= UNSENT_BYTES_MAX;
        if carrier.is_paused { Flow::Pause } else { Flow::More }
    }

    fn ended(&mut self, io: &mut B, peer: Peer) {
        let Some(carrier) = self.carriers.carriers.get_mut(&peer) else { return };
        carrier.is_broken = true;
        for slot in carrier.streams.values().copied().collect::<Vec<_>>() {
            self.break_off(io, slot);
        }
        self.carriers.carriers.remove(&peer);
        io.close(peer);
    }

    fn accept_paused(&mut self, why: Pause) {
        self.handler.accept_paused(why);
    }
}

/// A layer sends a file as bytes that it reads, as it sends all others.
fn send_file_as_bytes<B: Backend>(
    io: &mut B,
    peer: Peer,
    before: &[IoSlice<'_>],
    file: &File,
    offset: u64,
    length: usize,
) -> Result<Sent, FileSendError> {
    let before_bytes: usize = before.iter().map(|part| part.len()).sum();
    let mut sent = io.send(peer, before)?;
    let mut piece = [0; PIECE_BYTES];
    while !sent.full && sent.bytes < before_bytes + length {
        let at = sent.bytes - before_bytes;
        let wanted = PIECE_BYTES.min(length - at);
        match file.read_at(&mut piece[..wanted], offset + at as u64) {
            Ok(0) | Err(_) => return Err(FileSendError::Truncated),
            Ok(read) => {
                let more = io.send(peer, &[IoSlice::new(&piece[..read])])?;
                sent = Sent { bytes: sent.bytes + more.bytes, full: more.full };
            }
        }
    }
    Ok(sent)
}

fn peer_of(slot: u32) -> Peer {
    Peer::from_index(STREAMS_FROM + slot)
}

fn slot_of(peer: Peer) -> u32 {
    (peer.index() as u32).checked_sub(STREAMS_FROM).expect("the server knows no carrier")
}

/// No socket has such a number.
const STREAMS_FROM: u32 = 1 << 31;

pub(super) const FRAME_BYTES_MAX: usize = 16_000;
const FRAME_HEAD_BYTES: usize = 7;

/// So much of control frames may wait before nothing more is read.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The bytes of a file that one read takes.
const PIECE_BYTES: usize = 3_000;
