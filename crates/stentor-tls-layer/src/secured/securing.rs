//! The way of bytes and events from the backend to the handler above the layer.

use super::entry::{Entry, Stage};
use super::{Secured, Sessions};
use crate::failed::TlsFailure;
use crate::limits::UNTIMED_BYTES;
use std::net::IpAddr;
use stentor_io::{
    Backend, Flow, Handler, LAYERED, PROXIED, Pause, Peer, Refused, Role, listener_of,
};
use stentor_tls::{
    Alert, Established, Failure, HandshakeError, HandshakeFault, Inbound, Record, Version,
};

/// The handler that the layer is for the backend below it.
pub struct Securing<'h, H> {
    /// The sessions of its connections.
    pub sessions: &'h mut Sessions,
    /// The handler above.
    pub handler: &'h mut H,
}

impl<H> Securing<'_, H> {
    /// The layer with the backend below it, and the handler above it.
    pub(super) fn with<'l, B>(&'l mut self, io: &'l mut B) -> Layered<'l, B, H> {
        Layered { layer: Secured { io, sessions: self.sessions }, handler: self.handler }
    }
}

/// The layer with its backend and its handler: a call of the handler needs all three.
pub(super) struct Layered<'l, B, H> {
    layer: Secured<'l, B>,
    handler: &'l mut H,
}

impl<B: Backend, H> Layered<'_, B, H>
where
    H: for<'a> Handler<Secured<'a, B>>,
{
    /// Those whose handshake another process had begun: nobody can go on with it.
    pub(super) fn end_lost(&mut self) {
        while let Some(peer) = self.layer.sessions.lost.pop() {
            if self.layer.sessions.stage(peer) == Stage::Lost {
                self.layer.sessions.counts.fail(TlsFailure::Unfinished);
                self.handler.ended(&mut self.layer, peer);
            }
        }
    }

    /// The socket of a connection with a session can be read, or written to. Returns whether it is
    /// to be read.
    fn tell_ready(&mut self, peer: Peer, stage: Stage, writable: bool) -> bool {
        let Some(entry) = self.layer.sessions.entry(peer) else { return false };
        if writable && entry.take(Entry::FULL) {
            self.layer.go_on_ending(peer);
        }
        let Some(entry) = self.layer.sessions.entry(peer) else { return false };
        let has_room = writable && !entry.has(Entry::FULL);
        match stage {
            Stage::Fresh if entry.role & PROXIED != 0 => {
                // The header of a proxy comes first, in the clear.
                return self.handler.ready(&mut self.layer, peer, false) && self.may_shake(peer);
            }
            Stage::Fresh | Stage::Shaking => return self.may_shake(peer),
            _ if entry.has(Entry::LEFT) => return true,
            Stage::Lost => return false,
            _ => {}
        }
        let reads = self.handler.ready(&mut self.layer, peer, has_room);
        let Some(entry) = self.layer.sessions.entry(peer) else { return false };
        if entry.has(Entry::LEFT) {
            return true;
        }
        // Records of an earlier read come first.
        let keeps = entry.has(Entry::HOLDS)
            && self.layer.sessions.extras.get(&peer).is_some_and(|extra| !extra.inbound.is_empty());
        reads && (!keeps || self.open(peer, &mut []) == Flow::More)
    }

    /// A handshake that holds up others for too long ends.
    pub(super) fn evict(&mut self, now_ms: u64) {
        if let Some(peer) = self.layer.sessions.handshakes.to_evict(now_ms) {
            self.give_up(peer, TlsFailure::GivenUp);
        }
    }

    /// The connection has a session, and a handler.
    fn is_open(&self, peer: Peer) -> bool {
        let entry = self.layer.sessions.entries.get(peer.index());
        entry.is_some_and(|entry| entry.stage == Stage::Open && !entry.has(Entry::LEFT))
    }

    /// What is wanted of a connection that the handler may have closed.
    fn flow(&self, peer: Peer) -> Flow {
        match self.layer.sessions.stage(peer) {
            Stage::None => Flow::Closed,
            _ => Flow::More,
        }
    }

    /// Something was wrong, and the peer has been told what, if it can be.
    fn fail(&mut self, peer: Peer, why: TlsFailure) -> Flow {
        self.layer.sessions.handshakes.end(peer);
        self.layer.sessions.counts.fail(why);
        if let Some(entry) = self.layer.sessions.entry(peer) {
            entry.set(Entry::FAILED);
        }
        self.handler.ended(&mut self.layer, peer);
        self.flow(peer)
    }

    /// The same, without a word.
    fn give_up(&mut self, peer: Peer, why: TlsFailure) {
        self.layer.sessions.handshakes.end(peer);
        self.layer.sessions.counts.fail(why);
        self.handler.ended(&mut self.layer, peer);
    }

    /// Whether a connection may take a step of its handshake now. If not, it waits in line.
    fn may_shake(&mut self, peer: Peer) -> bool {
        let Sessions { entries, handshakes, .. } = &mut *self.layer.sessions;
        let Some(entry) = entries.at(peer.index()) else { return false };
        let is_held = handshakes.holds && entry.stage == Stage::Fresh;
        if entry.take(Entry::CALLED) && !is_held {
            return true;
        }
        let is_first = !handshakes.is_answered(peer);
        if !is_held && !entry.has(Entry::IN_LINE) && handshakes.has_room(is_first) {
            return true;
        }
        if !entry.put(Entry::IN_LINE, true) {
            handshakes.wait(peer, is_first);
            if is_first {
                self.handler.negotiates(&mut self.layer, peer, true);
            }
        }
        false
    }

    /// A step of a handshake.
    fn shake(&mut self, peer: Peer, bytes: &mut [u8]) -> Flow {
        if !self.layer.sessions.begin_handshake(peer) {
            // The certificates were taken away from a listener that has asked for them.
            return self.fail(peer, TlsFailure::Internal);
        }
        // mutation: handshake-in-stop
        self.handler.negotiates(&mut self.layer, peer, true);
        let Secured { io, sessions } = &mut self.layer;
        let (began_us, now) = (io.now_us(), (io.now_ms(), io.unix_s()));
        let mut flight = std::mem::take(&mut sessions.flight);
        flight.clear();
        let outcome = sessions.handshakes.receive(peer, now, bytes, &mut flight);
        sessions.handshakes.charge(io.now_us().saturating_sub(began_us));
        if let Some(Err(HandshakeError { fault: HandshakeFault::NotTls, .. })) = &outcome {
            flight.extend_from_slice(NOT_TLS);
        }
        let pushed = self.layer.push(peer, &flight);
        flight.shrink_to(FLIGHT_BYTES);
        self.layer.sessions.flight = flight;
        match outcome {
            Some(Ok(_)) if pushed.is_err() => {
                self.give_up(peer, TlsFailure::Unfinished);
                self.flow(peer)
            }
            Some(Ok(progress)) => match progress.established {
                None => Flow::More,
                Some(established) => {
                    self.layer.sessions.establish(peer, established);
                    // mutation: handshake-done
                    self.handler.negotiates(&mut self.layer, peer, false);
                    self.open(peer, &mut bytes[progress.used..])
                }
            },
            Some(Err(error)) => {
                match error.fault {
                    HandshakeFault::ClientCertificate => {
                        // mutation: refused-certificate
                        self.layer.sessions.clients.refuse(peer, &error, self.layer.io.now_ms());
                    }
                    _ => tracing::debug!("a handshake failed: {error}"),
                }
                self.fail(peer, error.fault.into())
            }
            None => self.fail(peer, TlsFailure::Internal),
        }
    }

    /// Opens what was held back and what has arrived, and brings it to the handler.
    fn open(&mut self, peer: Peer, bytes: &mut [u8]) -> Flow {
        let mut inbound = self.layer.sessions.take_inbound(peer);
        let is_timed = !inbound.is_empty() || bytes.len() > UNTIMED_BYTES;
        let mut records = inbound.records(bytes);
        let mut failure = None;
        // Of what is short it takes longer to look at the clock.
        let began_us = is_timed.then(|| self.layer.io.now_us());
        let mut yields = false;
        let mut flow = loop {
            let Some((mut session, contexts)) = self.layer.sessions.opening(peer) else {
                break self.flow(peer);
            };
            let record = match records.next_with(&mut session, contexts) {
                Ok(Some(record)) => record,
                Ok(None) => break Flow::More,
                Err(why) => {
                    failure = Some(why);
                    break Flow::More;
                }
            };
            match record {
                Record::Data(data) => {
                    let flow = self.handler.received(&mut self.layer, peer, data);
                    if !self.is_open(peer) {
                        break self.flow(peer);
                    }
                    if flow == Flow::Pause {
                        break Flow::Pause;
                    }
                    // mutation: records-at-once
                    if began_us.is_some_and(|us| self.layer.has_opened_enough(us)) {
                        yields = true;
                        break Flow::Pause;
                    }
                }
                Record::Closed => {
                    self.handler.ended(&mut self.layer, peer);
                    break self.flow(peer);
                }
            }
        };
        records.keep();
        began_us.inspect(|us| self.layer.charge_opening(*us));
        if yields && inbound.is_empty() {
            (yields, flow) = (false, Flow::More);
        }
        if let Some(failure) = failure {
            return self.end_for(peer, &failure);
        }
        if !self.is_open(peer) {
            return self.flow(peer);
        }
        if !inbound.is_empty() {
            self.layer.sessions.with_extra(peer, |extra| extra.inbound = inbound);
        }
        if yields {
            self.layer.sessions.unopened.push(peer);
        }
        self.settle(peer);
        flow
    }

    /// What has come cannot be opened.
    fn end_for(&mut self, peer: Peer, failure: &Failure) -> Flow {
        tracing::debug!("a session failed: {failure}");
        if let Some(alert) = failure.alert() {
            self.layer.say(peer, |session, out| session.end(alert, out));
        }
        self.fail(peer, TlsFailure::Record)
    }

    /// Says what is owed to the peer, if the socket has room: else it goes with what is sealed
    /// next.
    fn settle(&mut self, peer: Peer) {
        let owes = self.layer.sessions.session(peer).is_some_and(|session| session.owes());
        if owes && self.layer.sessions.unsent(peer) == 0 {
            self.layer.sessions.counts.key_updates += 1;
            self.layer.say(peer, |session, out| session.settle(out));
        }
    }
}

impl Sessions {
    /// Begins a handshake, unless it has begun. Returns false if it cannot.
    fn begin_handshake(&mut self, peer: Peer) -> bool {
        let Some(entry) = self.entry(peer) else { return false };
        if entry.stage != Stage::Fresh {
            return true;
        }
        let role = entry.role;
        let acceptor = match role == self.control {
            true => self.acceptors.control(),
            false => self.acceptors.public(),
        };
        let Some(acceptor) = acceptor else { return false };
        self.handshakes.begin(peer, &acceptor);
        if let Some(entry) = self.entry(peer) {
            entry.stage = Stage::Shaking;
        }
        true
    }

    /// A handshake has succeeded.
    fn establish(&mut self, peer: Peer, established: Established) {
        let Established { session, negotiated } = established;
        self.handshakes.end(peer);
        self.clients.let_in(peer, negotiated.client_subject);
        let place = self.pools.insert(session);
        if let Some(entry) = self.entry(peer) {
            entry.place = place;
            entry.stage = Stage::Open;
        }
        match negotiated.suite.version() {
            Version::Tls12 => self.counts.handshakes_12 += 1,
            Version::Tls13 => self.counts.handshakes_13 += 1,
        }
        self.counts.resumed += u64::from(negotiated.resumed);
    }

    fn take_inbound(&mut self, peer: Peer) -> Inbound {
        match self.entry(peer) {
            Some(entry) if entry.has(Entry::HOLDS) => {
                self.with_extra(peer, |extra| std::mem::take(&mut extra.inbound))
            }
            _ => Inbound::default(),
        }
    }
}

impl<B: Backend> Secured<'_, B> {
    /// Whether what began then has taken all that a turn has for it: what is left is for the next.
    fn has_opened_enough(&self, began_us: u64) -> bool {
        self.sessions.opening.is_spent(self.io.now_us().saturating_sub(began_us))
    }

    fn charge_opening(&mut self, began_us: u64) {
        self.sessions.opening.charge(self.io.now_us().saturating_sub(began_us));
    }
}

impl<B: Backend, H> Handler<B> for Securing<'_, H>
where
    H: for<'a> Handler<Secured<'a, B>>,
{
    fn accepted(
        &mut self,
        io: &mut B,
        peer: Peer,
        role: Role,
        address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        let plain_role = role & !LAYERED;
        // A panic may have left one of a connection that had the same number.
        if self.sessions.stage(peer) != Stage::None {
            self.sessions.forget(peer);
        }
        if role == plain_role {
            let Layered { mut layer, handler } = self.with(io);
            return handler.accepted(&mut layer, peer, role, address);
        }
        *self.sessions.entries.grow(peer.index()) = Entry::begin(plain_role);
        if listener_of(plain_role) == self.sessions.control {
            self.sessions.clients.begin(peer, address);
        }
        let Layered { mut layer, handler } = self.with(io);
        let accepted = handler.accepted(&mut layer, peer, role, address);
        accepted.map_err(|_| {
            // A handshake for a refusal would be more than whoever is not let in may cost.
            self.sessions.forget(peer);
            Refused(|_, _| REFUSAL.to_vec(), 0)
        })
    }

    fn ready(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool {
        let stage = self.sessions.stage(peer);
        if stage == Stage::None {
            let Layered { mut layer, handler } = self.with(io);
            return handler.ready(&mut layer, peer, writable);
        }
        // mutation: write-panic
        self.sessions.current = Some(peer);
        let reads = self.with(io).tell_ready(peer, stage, writable);
        self.sessions.current = None;
        reads
    }

    fn received(&mut self, io: &mut B, peer: Peer, bytes: &mut [u8]) -> Flow {
        let stage = self.sessions.stage(peer);
        if stage == Stage::None {
            let Layered { mut layer, handler } = self.with(io);
            return handler.received(&mut layer, peer, bytes);
        }
        self.sessions.current = Some(peer);
        let flow = match stage {
            Stage::Fresh | Stage::Shaking => self.with(io).shake(peer, bytes),
            Stage::Open => self.with(io).open(peer, bytes),
            _ => Flow::More,
        };
        self.sessions.current = None;
        flow
    }

    fn ended(&mut self, io: &mut B, peer: Peer) {
        let is_ours = self.sessions.entry(peer).is_some_and(|entry| entry.has(Entry::LEFT));
        if is_ours {
            io.close(peer);
            return self.sessions.forget(peer);
        }
        self.handler.ended(&mut Secured { io, sessions: self.sessions }, peer);
    }

    fn finished(&mut self, io: &mut B, peer: Peer) {
        // mutation: handshake-given-up
        if matches!(self.sessions.stage(peer), Stage::Fresh | Stage::Shaking) {
            // It has given up: a handshake would be for nobody.
            return self.ended(io, peer);
        }
        let is_ours = self.sessions.entry(peer).is_some_and(|entry| entry.has(Entry::LEFT));
        if !is_ours {
            self.handler.finished(&mut Secured { io, sessions: self.sessions }, peer);
        }
    }

    fn accept_paused(&mut self, why: Pause) {
        self.handler.accept_paused(why);
    }
}

/// What somebody hears who asks in the clear where TLS is spoken.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 55\r\nConnection: close\r\n\r\n\
    This port speaks TLS: ask with https:// and not http://";

/// What somebody hears who is not let in: an alert in the clear.
const REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, Alert::InternalError as u8];

/// A worker keeps a buffer of this size: most handshakes say less.
const FLIGHT_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Acceptors;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use stentor_io::{Epoll, Waker};

    /// Panics when a TLS connection is accepted.
    struct Panics;

    impl<'a> Handler<Secured<'a, Epoll>> for Panics {
        fn accepted(
            &mut self,
            _: &mut Secured<'a, Epoll>,
            _: Peer,
            role: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            assert_eq!(role, 1);
            Ok(())
        }

        fn ready(&mut self, _: &mut Secured<'a, Epoll>, _: Peer, _: bool) -> bool {
            true
        }

        fn received(&mut self, _: &mut Secured<'a, Epoll>, _: Peer, _: &mut [u8]) -> Flow {
            Flow::More
        }

        fn ended(&mut self, _: &mut Secured<'a, Epoll>, _: Peer) {}
    }

    /// The backend closes a connection that panics while it is accepted, and the next one has its
    /// number.
    #[test]
    fn a_plain_connection_follows_one_that_panicked() {
        let mut io = Epoll::new(Vec::new(), Arc::new(Waker::new().unwrap())).unwrap();
        let mut sessions = Sessions::new(Arc::new(Acceptors::default()), 1);
        let mut securing = Securing { sessions: &mut sessions, handler: &mut Panics };
        let peer = Peer::from_index(5);
        let mut accept = |role| securing.accepted(&mut io, peer, role, None);
        assert!(catch_unwind(AssertUnwindSafe(|| accept(1 | LAYERED))).is_err());
        assert!(accept(1).is_ok());
        assert_eq!(sessions.stage(peer), Stage::None);
        assert_eq!(sessions.held_bytes(None), 0);
    }
}
