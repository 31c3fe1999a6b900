//! A layer that changes every byte both ways, as encryption would, and is none.
//!
//! Bytes travel in records: a length, a kind and a content, all of them under a mask that depends
//! on their position in the flow, so that a byte which is lost, repeated or swapped spoils all that
//! follow. As with TLS a record that was made must leave whole: what the socket does not take of it
//! the layer holds, and says that it is full though it took all that it was given. The last record
//! says that the flow ends, so that an end can be told from a cut; for that one `close` and
//! `finish` need room, and the layer sees to it that they wait for it.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::IpAddr;
use stentor_io::{
    Backend, File, FileSendError, Flow, Gone, Handler, Pause, Peer, Refused, Retransmission, Rng,
    Role, Sent, TurnAway,
};

/// The mask of one direction of a flow.
#[derive(Debug, Default)]
struct Mask(u64);

impl Mask {
    fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            *byte ^= (self.0 >> 56) as u8;
        }
    }
}

/// What makes records.
#[derive(Debug, Default)]
pub(super) struct Sealer {
    mask: Mask,
    has_ended: bool,
}

impl Sealer {
    fn seal(&mut self, out: &mut Vec<u8>, kind: u8, content: &[u8]) {
        assert!(!self.has_ended, "a record behind the last one");
        let begin = out.len();
        out.extend_from_slice(&(content.len() as u16).to_be_bytes());
        out.push(kind);
        out.extend_from_slice(content);
        self.mask.apply(&mut out[begin..]);
    }

    /// Makes as many records as it takes.
    pub(super) fn data(&mut self, out: &mut Vec<u8>, content: &[u8]) {
        content.chunks(RECORD_BYTES_MAX).for_each(|part| self.seal(out, DATA, part));
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Makes the last record, once.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if !self.has_ended {
            self.seal(out, END, &[]);
            self.has_ended = true;
        }
    }
}

/// What takes records apart.
#[derive(Debug, Default)]
pub(super) struct Opener {
    mask: Mask,
    /// Unmasked, and not yet taken.
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Record {
    Data(Vec<u8>),
    End,
}

impl Opener {
    pub(super) fn push(&mut self, bytes: &mut [u8]) {
        self.mask.apply(bytes);
        self.bytes.extend_from_slice(bytes);
    }

    fn length(&self) -> Option<usize> {
        let head = self.bytes.first_chunk::<RECORD_HEAD_BYTES>()?;
        let length = RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([head[0], head[1]]));
        (self.bytes.len() >= length).then_some(length)
    }

    pub(super) fn next(&mut self) -> Option<Record> {
        let record: Vec<u8> = self.bytes.drain(..self.length()?).collect();
        match record[2] {
            DATA => Some(Record::Data(record[RECORD_HEAD_BYTES..].to_vec())),
            END => Some(Record::End),
            kind => panic!("there is no record of kind {kind}: bytes were lost or repeated"),
        }
    }
}

/// What the layer knows of a flow.
#[derive(Debug, Default)]
struct Session {
    opener: Opener,
    sealer: Sealer,
    /// What the socket has not taken of a record.
    unsent: Vec<u8>,
    /// The backend below has said so.
    is_full: bool,
    /// Its input goes on in a turn of the layer's own.
    is_resumed: bool,
    is_paused: bool,
    /// The handler has ended its side: so does the layer, once everything has left.
    finishes: bool,
    /// The handler has closed, and until then it may take for the rest to leave. What comes
    /// meanwhile is thrown away: to leave it unread would be a reset.
    closes_until_ms: Option<u64>,
    /// The handler did not want it: it is closed when its peer has read why.
    is_refused: bool,
}

impl Session {
    /// Sends what was held. Returns whether there is room for more.
    fn flush<B: Backend>(&mut self, io: &mut B, peer: Peer) -> Result<bool, Gone> {
        if !self.is_full && !self.unsent.is_empty() {
            let sent = io.send(peer, &[IoSlice::new(&self.unsent)])?;
            self.unsent.drain(..sent.bytes);
            self.is_full = sent.full;
        }
        Ok(!self.is_full)
    }

    /// Whether input waits that the handler may not know of.
    fn holds_input(&self) -> bool {
        self.opener.length().is_some()
    }
}

/// What the layer knows of all flows.
#[derive(Debug)]
pub(super) struct Sessions {
    all: BTreeMap<Peer, Session>,
    /// No record has more content.
    record_bytes_max: usize,
    resumed: Vec<Peer>,
    rng: Rng,
}

impl Sessions {
    pub(super) fn new(seed: u64) -> Sessions {
        let mut rng = Rng::new(seed);
        // Small ones are never cut by a large window, large ones by most.
        let record_bytes_max = [40, 1_000, RECORD_BYTES_MAX][rng.below(3)];
        Sessions { all: BTreeMap::new(), record_bytes_max, resumed: Vec::new(), rng }
    }

    fn remove(&mut self, peer: Peer) {
        self.all.remove(&peer);
        self.resumed.retain(|&resumed| resumed != peer);
    }

    pub(super) fn unacknowledged(&self, io: &impl Backend, peer: Peer) -> u32 {
        io.unacknowledged(peer) + self.all[&peer].unsent.len() as u32
    }

    pub(super) fn has_work(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// The layer's own part of a turn: one flow whose handler reads again goes on with what was
    /// held of its input.
    pub(super) fn serve<B: Backend, H>(&mut self, io: &mut B, handler: &mut H)
    where
        H: for<'a> Handler<Masked<'a, B>>,
    {
        let now_ms = io.now_ms();
        let is_late = |session: &Session| session.closes_until_ms.is_some_and(|ms| ms < now_ms);
        let late = self.all.iter().filter(|(_, session)| is_late(session));
        for peer in late.map(|(&peer, _)| peer).collect::<Vec<_>>() {
            io.abort(peer);
            self.remove(peer);
        }
        if self.resumed.is_empty() {
            return;
        }
        let at = self.rng.below(self.resumed.len());
        let peer = self.resumed.swap_remove(at);
        let session = self.all.get_mut(&peer).expect("who is gone is not resumed");
        session.is_resumed = false;
        let writable = !session.is_full;
        let mut masking = Masking { sessions: self, handler };
        if masking.tell_ready(io, peer, writable) && masking.deliver(io, peer) == Flow::More {
            io.resume(peer);
        }
    }
}

/// The backend that the layer is for the handler above it.
pub(super) struct Masked<'a, B> {
    pub(super) io: &'a mut B,
    pub(super) sessions: &'a mut Sessions,
}

impl<B: Backend> Masked<'_, B> {
    fn session(&mut self, peer: Peer) -> &mut Session {
        let session = self.sessions.all.get_mut(&peer);
        let session = session.filter(|session| session.closes_until_ms.is_none());
        session.expect("the server names a peer it closed")
    }

    /// Ends our side, or closes, if all has left that goes before.
    fn go_on_ending(&mut self, peer: Peer) {
        let Some(session) = self.sessions.all.get_mut(&peer) else { return };
        let result = session.flush(self.io, peer);
        let has_left = session.unsent.is_empty() || result.is_err();
        if has_left && session.closes_until_ms.is_some() && !session.is_refused {
            self.io.close(peer);
            self.sessions.remove(peer);
        } else if has_left && std::mem::take(&mut session.finishes) {
            self.io.finish(peer);
        }
    }
}

impl<B: Backend> Backend for Masked<'_, B> {
    stentor_io::left_to_the_backend_below!();

    fn send(&mut self, peer: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        let bytes = parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
        let session = self.sessions.all.get_mut(&peer).expect("the server sends after it closed");
        assert!(!session.sealer.has_ended, "the server sends after its FIN");
        let record_bytes_max = self.sessions.record_bytes_max;
        let mut taken = 0;
        while session.flush(self.io, peer)? && taken < bytes.len() {
            let part = &bytes[taken..bytes.len().min(taken + record_bytes_max)];
            session.sealer.seal(&mut session.unsent, DATA, part);
            taken += part.len();
        }
        Ok(Sent { bytes: taken, full: session.is_full })
    }

    fn send_file(
        &mut self,
        peer: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError> {
        super::send_file_as_bytes(self, peer, before, file, offset, length)
    }

    fn unacknowledged(&self, peer: Peer) -> u32 {
        self.sessions.unacknowledged(self.io, peer)
    }

    fn resume(&mut self, peer: Peer) {
        let session = self.session(peer);
        session.is_paused = false;
        if !session.holds_input() {
            self.io.resume(peer);
        } else if !std::mem::replace(&mut session.is_resumed, true) {
            self.sessions.resumed.push(peer);
        }
    }

    fn begin_stream(&mut self, peer: Peer, retransmission: Retransmission) {
        self.io.begin_stream(peer, retransmission);
    }

    fn finish(&mut self, peer: Peer) {
        let session = self.session(peer);
        session.sealer.end(&mut session.unsent);
        session.finishes = true;
        self.go_on_ending(peer);
    }

    fn close(&mut self, peer: Peer) {
        let until_ms = self.io.now_ms() + CLOSE_MS;
        let session = self.session(peer);
        session.sealer.end(&mut session.unsent);
        session.closes_until_ms = Some(until_ms);
        self.go_on_ending(peer);
        if self.sessions.all.contains_key(&peer) {
            self.sessions.resumed.retain(|&resumed| resumed != peer);
            self.io.resume(peer);
        }
    }

    fn abort(&mut self, peer: Peer) {
        self.session(peer);
        self.io.abort(peer);
        self.sessions.remove(peer);
    }

    fn refuse_new(&mut self, how: TurnAway) {
        self.io.refuse_new(how);
    }

    fn close_listeners(&mut self) {
        self.io.close_listeners();
    }
}

/// The handler that the layer is for the backend below it.
pub(super) struct Masking<'h, H> {
    pub(super) sessions: &'h mut Sessions,
    pub(super) handler: &'h mut H,
}

impl<H> Masking<'_, H> {
    /// Whether the handler still has it.
    fn is_open(&self, peer: Peer) -> bool {
        let session = self.sessions.all.get(&peer);
        session.is_some_and(|session| session.closes_until_ms.is_none())
    }

    /// Tells the handler. Returns whether it reads, or the layer does in its place.
    fn tell_ready<B: Backend>(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool
    where
        H: for<'a> Handler<Masked<'a, B>>,
    {
        let mut masked = Masked { io, sessions: self.sessions };
        let reads = self.handler.ready(&mut masked, peer, writable);
        if !self.is_open(peer) {
            return self.sessions.all.contains_key(&peer);
        }
        self.sessions.all.get_mut(&peer).expect("it is open").is_paused = !reads;
        reads
    }

    /// Brings the handler what has come in whole records.
    fn deliver<B: Backend>(&mut self, io: &mut B, peer: Peer) -> Flow
    where
        H: for<'a> Handler<Masked<'a, B>>,
    {
        loop {
            let Some(session) = self.sessions.all.get_mut(&peer) else { return Flow::Closed };
            if session.closes_until_ms.is_some() {
                session.opener.bytes.clear();
                return Flow::More;
            }
            let Some(record) = session.opener.next() else { return Flow::More };
            let mut masked = Masked { io, sessions: self.sessions };
            match record {
                Record::End => self.handler.ended(&mut masked, peer),
                Record::Data(mut bytes) => {
                    if self.handler.received(&mut masked, peer, &mut bytes) == Flow::Pause {
                        masked.session(peer).is_paused = true;
                        return Flow::Pause;
                    }
                }
            }
        }
    }
}

impl<B: Backend, H> Handler<B> for Masking<'_, H>
where
    H: for<'a> Handler<Masked<'a, B>>,
{
    fn accepted(
        &mut self,
        io: &mut B,
        peer: Peer,
        role: Role,
        address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        self.sessions.all.insert(peer, Session::default());
        let mut masked = Masked { io, sessions: self.sessions };
        if let Err(refused) = self.handler.accepted(&mut masked, peer, role, address) {
            // Whoever is refused is told so in records as well, so the backend is not to do it.
            let session = masked.session(peer);
            session.is_refused = true;
            session.sealer.data(&mut session.unsent, &refused.farewell(b""));
            masked.finish(peer);
            let until_ms = masked.now_ms() + CLOSE_MS;
            masked.session(peer).closes_until_ms = Some(until_ms);
        }
        Ok(())
    }

    fn ready(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool {
        let Some(session) = self.sessions.all.get_mut(&peer) else { return false };
        if writable {
            session.is_full = false;
            Masked { io, sessions: self.sessions }.go_on_ending(peer);
        }
        let Some(session) = self.sessions.all.get(&peer) else { return false };
        if session.closes_until_ms.is_some() {
            return true;
        }
        let has_room = writable && !session.is_full;
        let reads = self.tell_ready(io, peer, has_room);
        let holds_input = self.sessions.all.get(&peer).is_some_and(Session::holds_input);
        reads && !(holds_input && self.is_open(peer))
    }

    fn received(&mut self, io: &mut B, peer: Peer, bytes: &mut [u8]) -> Flow {
        let Some(session) = self.sessions.all.get_mut(&peer) else { return Flow::Closed };
        session.opener.push(bytes);
        self.deliver(io, peer)
    }

    fn ended(&mut self, io: &mut B, peer: Peer) {
        let Some(session) = self.sessions.all.get_mut(&peer) else { return };
        session.is_refused = false;
        let mut masked = Masked { io, sessions: self.sessions };
        if masked.sessions.all[&peer].closes_until_ms.is_some() {
            masked.go_on_ending(peer);
        } else {
            self.handler.ended(&mut masked, peer);
        }
    }

    fn finished(&mut self, io: &mut B, peer: Peer) {
        if self.is_open(peer) {
            self.handler.finished(&mut Masked { io, sessions: self.sessions }, peer);
        }
    }

    fn accept_paused(&mut self, why: Pause) {
        self.handler.accept_paused(why);
    }
}

const DATA: u8 = 1;
const END: u8 = 2;
const RECORD_HEAD_BYTES: usize = 3;
const RECORD_BYTES_MAX: usize = 16_000;

/// So long the layer waits for its last record to leave.
const CLOSE_MS: u64 = 10_000;
