//! TLS beneath a worker: what it sends is sealed, and what comes is opened before it sees it.
//!
//! The worker goes on as without: it is told of a connection when its handshake is over, and of
//! data in the clear. A handshake under way takes some kilobytes; what stays of a connection are
//! the 112 to 160 bytes of its session, and for few of them what a socket did not take, or a record
//! that has come in part.
//!
//! How long connecting took is with the handshake, for only then is anybody connected.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::IpAddr;

use stentor_io::{Backend, Dial, Epoll, Flow, Gone, Handler, Peer, Refused, Role, Sent};
use stentor_tls::{
    Alert, ClientHandshake, Connector, FRAGMENT_BYTES_MAX, HandshakeError, HandshakeFault, Inbound,
    Owned, Record, SEAL_ROOM_MIN,
};

use super::{ConnectionStage, RESET, Worker, connect_error};

/// The network as a worker sees it: with TLS or without.
pub(super) struct Wire<'a> {
    io: &'a mut Epoll,
    secured: Option<&'a mut TlsConnections>,
}

/// A thread's connections that are secured.
pub(super) struct TlsConnections {
    connector: Connector,
    /// By socket number.
    links: Vec<TlsLink>,
    /// What few connections have at a time.
    rests: HashMap<Peer, TlsBuffers>,
    /// What is sent next; kept for its room.
    out: Vec<u8>,
    /// What was opened last; kept for its room.
    plain: Vec<u8>,
}

/// How far one has come.
#[derive(Default)]
enum TlsLink {
    #[default]
    None,
    Dialled,
    Shaking(Box<ClientHandshake>),
    Open(Owned),
}

#[derive(Default)]
struct TlsBuffers {
    inbound: Inbound,
    /// Sealed, and not taken by the socket.
    unsent: Vec<u8>,
    /// The socket has said that it is full.
    is_full: bool,
}

impl TlsBuffers {
    fn is_empty(&self) -> bool {
        self.inbound.is_empty() && self.unsent.is_empty()
    }
}

impl<'a> Wire<'a> {
    pub(super) fn new(io: &'a mut Epoll, secured: Option<&'a mut TlsConnections>) -> Wire<'a> {
        Wire { io, secured }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.io.now_ms()
    }

    pub(super) fn connect(&mut self, dialled: &Dial) -> io::Result<Peer> {
        let peer = self.io.connect(dialled)?;
        if let Some(secured) = &mut self.secured {
            if peer.index() >= secured.links.len() {
                secured.links.resize_with(peer.index() + 1, TlsLink::default);
            }
            secured.links[peer.index()] = TlsLink::Dialled;
        }
        Ok(peer)
    }

    pub(super) fn connect_error(&mut self, peer: Peer) -> Option<io::Error> {
        self.io.connect_error(peer)
    }

    pub(super) fn ended_by(&self) -> Option<io::Error> {
        self.io.ended_by()
    }

    /// Whether the connection ended without a word that this was all (RFC 8446 section 6.1).
    pub(super) fn was_cut(&mut self, peer: Peer) -> bool {
        match self.secured.as_mut().and_then(|secured| secured.links.get_mut(peer.index())) {
            Some(TlsLink::Open(session)) => !session.session().peer_has_closed(),
            _ => false,
        }
    }

    /// Says how much of it was taken, and how many bytes went over the socket for it.
    pub(super) fn send(&mut self, peer: Peer, bytes: &[u8]) -> Result<(Sent, usize), Gone> {
        match &mut self.secured {
            Some(secured) => secured.send(self.io, peer, bytes),
            None => {
                let sent = self.io.send(peer, &[IoSlice::new(bytes)])?;
                Ok((sent, sent.bytes))
            }
        }
    }

    pub(super) fn resume(&mut self, peer: Peer) {
        self.io.resume(peer);
    }

    pub(super) fn close(&mut self, peer: Peer) {
        if let Some(secured) = &mut self.secured {
            secured.end(self.io, peer, Alert::CloseNotify);
            secured.forget(peer);
        }
        self.io.close(peer);
    }

    pub(super) fn abort(&mut self, peer: Peer) {
        if let Some(secured) = &mut self.secured {
            secured.forget(peer);
        }
        self.io.abort(peer);
    }
}

impl TlsConnections {
    pub(super) fn new(connector: Connector) -> TlsConnections {
        TlsConnections {
            connector,
            links: Vec::new(),
            rests: HashMap::new(),
            out: Vec::new(),
            plain: Vec::new(),
        }
    }

    fn link(&mut self, peer: Peer) -> Option<&mut TlsLink> {
        self.links.get_mut(peer.index())
    }

    fn forget(&mut self, peer: Peer) {
        if let Some(link) = self.link(peer) {
            *link = TlsLink::None;
        }
        self.rests.remove(&peer);
    }

    fn send(&mut self, io: &mut Epoll, peer: Peer, bytes: &[u8]) -> Result<(Sent, usize), Gone> {
        if self.rests.get(&peer).is_some_and(|rest| rest.is_full) {
            return Ok((Sent { bytes: 0, full: true }, 0));
        }
        let Some(TlsLink::Open(session)) = self.links.get_mut(peer.index()) else {
            return Err(Gone);
        };
        let (mut session, mut taken) = (session.session(), 0);
        while taken < bytes.len() && self.out.len() < OUT_BYTES_MAX {
            let at = self.out.len();
            let fragment = (bytes.len() - taken).min(FRAGMENT_BYTES_MAX);
            self.out.resize(at + fragment + SEAL_ROOM_MIN, 0);
            let parts = [IoSlice::new(&bytes[taken..])];
            let sealed = session.seal(&parts, FRAGMENT_BYTES_MAX, &mut self.out[at..]);
            let Ok(sealed) = sealed else {
                // What is in it is of this connection, and of no other.
                self.out.clear();
                return Err(Gone);
            };
            self.out.truncate(at + sealed.written);
            taken += sealed.taken;
        }
        let (went, full) = self.push(io, peer)?;
        Ok((Sent { bytes: taken, full: full || taken < bytes.len() }, went))
    }

    /// Sends what is left and then `out`, and keeps what the socket does not take. Says how many
    /// bytes went, and whether there is room for no more.
    fn push(&mut self, io: &mut Epoll, peer: Peer) -> Result<(usize, bool), Gone> {
        let mut out = std::mem::take(&mut self.out);
        let rest = self.rests.get_mut(&peer);
        if let Some(rest) = rest.filter(|rest| !rest.unsent.is_empty()) {
            rest.unsent.extend_from_slice(&out);
            std::mem::swap(&mut rest.unsent, &mut out);
        }
        let sent =
            if out.is_empty() { Sent::of(0, 0) } else { io.send(peer, &[IoSlice::new(&out)])? };
        if sent.bytes < out.len() {
            self.rests.entry(peer).or_default().unsent = out[sent.bytes..].to_vec();
        } else if let Some(rest) = self.rests.get_mut(&peer) {
            rest.unsent = Vec::new();
        }
        if let Some(rest) = self.rests.get_mut(&peer) {
            rest.is_full = sent.full;
        }
        out.clear();
        self.out = out;
        Ok((sent.bytes, sent.full))
    }

    /// Says the last, as far as the socket takes it.
    fn end(&mut self, io: &mut Epoll, peer: Peer, alert: Alert) {
        let Some(TlsLink::Open(session)) = self.links.get_mut(peer.index()) else { return };
        let mut record = [0; SEAL_ROOM_MIN];
        if let Ok(written) = session.session().end(alert, &mut record) {
            self.out.extend_from_slice(&record[..written]);
            let _ = self.push(io, peer);
        }
    }

    /// Opens what has arrived, into `plain`. Says what comes behind it.
    fn open(&mut self, peer: Peer, bytes: &mut [u8]) -> Behind {
        let Some(TlsLink::Open(session)) = self.links.get_mut(peer.index()) else {
            return Behind::More;
        };
        let mut session = session.session();
        let mut rest = self.rests.remove(&peer).unwrap_or_default();
        let mut records = rest.inbound.records(bytes);
        let behind = loop {
            match records.next(&mut session) {
                Ok(Some(Record::Data(data))) => self.plain.extend_from_slice(data),
                Ok(Some(Record::Closed)) => break Behind::End,
                Ok(None) => break Behind::More,
                Err(failure) => break Behind::Failure(failure),
            }
        };
        records.keep();
        if session.owes() {
            let mut record = [0; SEAL_ROOM_MIN];
            let written = session.settle(&mut record).unwrap_or(0);
            rest.unsent.extend_from_slice(&record[..written]);
        }
        if !rest.is_empty() {
            self.rests.insert(peer, rest);
        }
        behind
    }
}

/// What comes behind what was opened.
enum Behind {
    More,
    End,
    Failure(stentor_tls::Failure),
}

/// A worker, and the TLS beneath it, if there is any: what the backend knows of them.
pub(super) struct Layer<'a> {
    pub(super) worker: &'a mut Worker,
    pub(super) secured: Option<&'a mut TlsConnections>,
}

impl Layer<'_> {
    /// The worker, and what it sends by.
    fn parts<'b>(&'b mut self, io: &'b mut Epoll) -> (&'b mut Worker, Wire<'b>) {
        (self.worker, Wire::new(io, self.secured.as_deref_mut()))
    }

    fn broken(&mut self, io: &mut Epoll, peer: Peer, kind: String) {
        let (worker, mut wire) = self.parts(io);
        worker.broken(&mut wire, peer, kind.into());
    }

    /// Sends what waits. Says whether the connection is still there.
    fn push(&mut self, io: &mut Epoll, peer: Peer) -> bool {
        let Some(secured) = &mut self.secured else { return true };
        match secured.push(io, peer) {
            Ok((went, _)) => {
                self.worker.tally.sent.add(went as u64);
                true
            }
            Err(Gone) => {
                self.broken(io, peer, RESET.to_owned());
                false
            }
        }
    }

    /// TCP has a connection: the handshake begins.
    fn begin(&mut self, io: &mut Epoll, peer: Peer) -> bool {
        self.worker.events += 1;
        self.worker.see();
        if let Some(error) = io.connect_error(peer) {
            self.broken(io, peer, connect_error(&error).into_owned());
            return false;
        }
        let Some(secured) = &mut self.secured else { return false };
        match secured.connector.begin(io.unix_s(), &mut secured.out) {
            Ok(handshake) => secured.links[peer.index()] = TlsLink::Shaking(Box::new(handshake)),
            Err(error) => {
                secured.out.clear();
                self.broken(io, peer, handshake_error(&error));
                return false;
            }
        }
        self.push(io, peer)
    }

    /// Takes what belongs to the handshake. Says where the session's records begin, if they do.
    fn shake(&mut self, io: &mut Epoll, peer: Peer, bytes: &[u8]) -> Option<usize> {
        let secured = self.secured.as_mut()?;
        let link = secured.links.get_mut(peer.index())?;
        let TlsLink::Shaking(handshake) = link else { return Some(0) };
        match handshake.receive(io.unix_s(), bytes, &mut secured.out) {
            Ok(progress) => {
                let Some(established) = progress.established else {
                    self.push(io, peer);
                    return None;
                };
                *link = TlsLink::Open(established.session);
                // The first request goes in the same segment as the end of the handshake.
                secured.rests.entry(peer).or_default().unsent = std::mem::take(&mut secured.out);
                let (worker, mut wire) = self.parts(io);
                let is_open = worker.connected(&mut wire, peer) && self.push(io, peer);
                is_open.then_some(progress.used)
            }
            Err(error) => {
                if self.push(io, peer) {
                    self.broken(io, peer, handshake_error(&error));
                }
                None
            }
        }
    }

    fn received_records(&mut self, io: &mut Epoll, peer: Peer, bytes: &mut [u8]) -> Flow {
        let Some(secured) = &mut self.secured else { return Flow::Closed };
        let behind = secured.open(peer, bytes);
        let mut plain = std::mem::take(&mut secured.plain);
        let mut flow = Flow::More;
        if !plain.is_empty() {
            let (worker, mut wire) = self.parts(io);
            flow = worker.received(&mut wire, peer, &plain);
        }
        plain.clear();
        if let Some(secured) = &mut self.secured {
            secured.plain = plain;
            if flow == Flow::Closed {
                return flow;
            }
            if let Behind::Failure(failure) = behind {
                if let Some(alert) = failure.alert() {
                    secured.end(io, peer, alert);
                }
                self.broken(io, peer, format!("TLS: {failure}"));
                return Flow::Closed;
            }
        }
        if let Behind::End = behind {
            let (worker, mut wire) = self.parts(io);
            worker.ended_in_order(&mut wire, peer);
            return Flow::Closed;
        }
        if self.has_unsent(peer) && !self.push(io, peer) { Flow::Closed } else { flow }
    }

    fn has_unsent(&self, peer: Peer) -> bool {
        let rest = self.secured.as_ref().and_then(|secured| secured.rests.get(&peer));
        rest.is_some_and(|rest| !rest.unsent.is_empty() && !rest.is_full)
    }
}

impl Handler<Epoll> for Layer<'_> {
    /// There are no listeners.
    fn accepted(
        &mut self,
        _io: &mut Epoll,
        _peer: Peer,
        _role: Role,
        _address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        Err(Refused(|_, _| Vec::new(), 0))
    }

    fn ready(&mut self, io: &mut Epoll, peer: Peer, writable: bool) -> bool {
        let Some(secured) = &mut self.secured else {
            let (worker, mut wire) = self.parts(io);
            return worker.ready(&mut wire, peer, writable);
        };
        match secured.link(peer) {
            Some(TlsLink::Dialled) => return self.begin(io, peer),
            // Closed earlier in this turn.
            Some(TlsLink::None) | None => return false,
            Some(TlsLink::Shaking(_) | TlsLink::Open(_)) => {}
        }
        if writable && secured.rests.contains_key(&peer) && !self.push(io, peer) {
            return false;
        }
        if self.worker.stage(peer) == ConnectionStage::Connecting {
            self.worker.events += 1;
            return true;
        }
        let (worker, mut wire) = self.parts(io);
        worker.ready(&mut wire, peer, writable)
    }

    fn received(&mut self, io: &mut Epoll, peer: Peer, bytes: &mut [u8]) -> Flow {
        self.worker.tally.received.add(bytes.len() as u64);
        self.worker.see();
        if self.secured.is_none() {
            let (worker, mut wire) = self.parts(io);
            return worker.received(&mut wire, peer, bytes);
        }
        match self.shake(io, peer, bytes) {
            Some(used) => self.received_records(io, peer, &mut bytes[used..]),
            None if self.worker.stage(peer) == ConnectionStage::Connecting => Flow::More,
            None => Flow::Closed,
        }
    }

    fn ended(&mut self, io: &mut Epoll, peer: Peer) {
        self.worker.see();
        let is_shaking = self.worker.stage(peer) == ConnectionStage::Connecting;
        if self.secured.is_some() && is_shaking && io.ended_by().is_none() {
            return self.broken(io, peer, "TLS: the server closes during the handshake".to_owned());
        }
        let (worker, mut wire) = self.parts(io);
        worker.ended(&mut wire, peer);
    }
}

/// What a handshake that failed is called.
fn handshake_error(error: &HandshakeError) -> String {
    match error.fault {
        HandshakeFault::ClientCertificate => {
            format!("TLS: {error} (--ca FILE: whom to trust; --insecure: anybody)")
        }
        _ => format!("TLS: {error}"),
    }
}

/// So much is sealed at a time.
const OUT_BYTES_MAX: usize = 256 * 1024;
