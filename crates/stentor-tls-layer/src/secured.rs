//! TLS: a layer between the network and the worker, which learns nothing of it.
//!
//! [`Secured`] is a backend around the backend, and [`Securing`] a handler around the worker.
//! Connections whose listener has the bit `LAYERED` in its role have an [`Entry`] here; those
//! without one go past. A connection begins with a handshake (`handshakes.rs`), made by rustls,
//! which is dropped afterwards. What stays is the entry's 8 bytes and a session of 112 (`pool.rs`).
//! What is received is opened in the lent buffer and lent on. What is sent is sealed out of the
//! bytes that all readers share into the one scratch buffer of the worker.
//!
//! A nonce must never be used twice under a key. So a record that was sealed is never sealed again:
//! what the socket does not take of it is kept (an [`Extra`], which only such connections have) and
//! goes first whenever there is room. Bytes count as sent once they are sealed. After a panic,
//! whatever was under way, its connection is closed; and once a worker is packed for another
//! process nothing is sealed until it is known which of the two goes on.
//!
//! The end of a connection has three steps, of which each waits for the one before: what is kept
//! leaves, then the last record (close_notify, or the alert that says what was wrong), then the
//! FIN. Behind an alert the connection lingers, for a reset would overtake it. The handler has
//! forgotten the connection by then; its number is free when the backend has closed it.
//!
//! If the handler pauses in the middle of what one read has brought, the layer keeps the records
//! that it has not opened yet. It opens them when the handler is ready to read again, before the
//! backend reads more.

#[cfg(feature = "check")]
mod check;
mod clients;
mod entry;
mod handover;
mod handshakes;
mod opening;
mod pool;
mod securing;

use crate::certificates::Acceptors;
use crate::failed::TlsFailure;
use crate::limits::{
    CONTEXTS_KEPT, ENDING_MAX, LAST_RECORD_MS, LINGER_MS, RECORD_BYTES_MAX, STREAM_RECORD_BYTES_MAX,
};
#[cfg(feature = "check")]
pub use check::Held;
use clients::Clients;
use entry::{Entry, Extra, Stage};
pub use handover::{SESSIONS_FORMAT, Unpacking};
use handshakes::Handshakes;
use opening::OpeningBudget;
use pool::Pools;
pub use securing::Securing;
use std::collections::{BTreeSet, HashMap};
use std::io::IoSlice;
use std::sync::Arc;
use stentor_io::{
    Backend, File, FileSendError, Gone, Handler, Peer, Retransmission, Role, Sent, Slab, TurnAway,
    leave_out_of_dumps,
};
use stentor_tls::{Alert, Contexts, SEAL_ROOM_MIN, SealError, Session};

/// The figures of TLS of one worker: gauges, and counts since the last call of
/// [`Sessions::take_counts`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsCounts {
    /// Now: connections that have a session.
    pub sessions: u64,
    /// Now: handshakes that were answered and are not done.
    pub handshakes_under_way: u64,
    /// Now: connections that wait for room to begin or to continue a handshake.
    pub handshakes_waiting: u64,
    /// Now: bytes of sessions, handshakes, and records on their way.
    pub bytes: u64,
    /// Handshakes of TLS 1.2 that made a session.
    pub handshakes_12: u64,
    /// Handshakes of TLS 1.3 that made a session.
    pub handshakes_13: u64,
    /// Handshakes among these that resumed an earlier session.
    pub resumed: u64,
    /// How long handshakes took, in microseconds.
    pub handshakes_us: u64,
    /// Keys that were changed since the peer asked for it.
    pub key_updates: u64,
    /// Handshakes and sessions that came to nothing, by why, in the order of [`TlsFailure`].
    pub failed: [u64; TlsFailure::ALL.len()],
}

impl TlsCounts {
    fn fail(&mut self, why: TlsFailure) {
        self.failed[why as usize] += 1;
    }
}

/// What the layer knows of all connections of a worker.
pub struct Sessions {
    acceptors: Arc<Acceptors>,
    /// The listener whose clients may have to show certificates.
    control: Role,
    counts: TlsCounts,
    entries: Slab<Entry>,
    pools: Pools,
    /// What opens the records of those who have sent some of late.
    contexts: Contexts,
    handshakes: Handshakes,
    /// Who those are that had to say so.
    clients: Clients,
    extras: HashMap<Peer, Extra, foldhash::fast::RandomState>,
    /// What the extras hold, in bytes.
    extra_bytes: usize,
    /// Connections that have more records to open than the last turn had time for.
    unopened: Vec<Peer>,
    /// The time that is left in the turn for opening records.
    opening: OpeningBudget,
    /// Those that are closed once all has left, or that linger; until when.
    ending: BTreeSet<(u64, Peer)>,
    /// Those whose handshake another process had begun.
    lost: Vec<Peer>,
    /// Who is being seen to, for the case of a panic.
    current: Option<Peer>,
    /// Another process may go on with these: nothing is sealed.
    is_packed: bool,
    /// Records on their way to the socket.
    scratch: Vec<u8>,
    /// A piece of a file.
    piece: Vec<u8>,
    /// What a handshake says.
    flight: Vec<u8>,
}

/// The backend that the layer is for the handler above it.
pub struct Secured<'a, B> {
    /// The backend below.
    pub io: &'a mut B,
    /// The sessions of its connections.
    pub sessions: &'a mut Sessions,
}

impl Sessions {
    /// None yet. Clients of the listener `control` show the certificates that it asks for.
    pub fn new(acceptors: Arc<Acceptors>, control: Role) -> Sessions {
        Sessions {
            acceptors,
            control,
            counts: TlsCounts::default(),
            entries: Slab::default(),
            pools: Pools::default(),
            contexts: Contexts::default(),
            handshakes: Handshakes::default(),
            clients: Clients::default(),
            extras: HashMap::default(),
            extra_bytes: 0,
            unopened: Vec::new(),
            opening: OpeningBudget::behind(0),
            ending: BTreeSet::new(),
            lost: Vec::new(),
            current: None,
            is_packed: false,
            scratch: Vec::new(),
            piece: Vec::new(),
            flight: Vec::new(),
        }
    }

    /// When [`Sessions::serve`] must be called, whatever else happens.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        if !self.unopened.is_empty() || !self.lost.is_empty() {
            return Some(0);
        }
        let ending = self.ending.first().map(|&(until_ms, _)| until_ms);
        ending.into_iter().chain(self.handshakes.deadline_ms()).min()
    }

    /// Whether some are not at their end that their handler has closed.
    pub fn are_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// The layer's own part of a turn: connections whose time is up, those that have more records
    /// to open, and those that begin or continue a handshake.
    pub fn serve<B: Backend, H>(&mut self, io: &mut B, handler: &mut H)
    where
        H: for<'a> Handler<Secured<'a, B>>,
    {
        if self.is_unused() {
            return;
        }
        let now_ms = io.now_ms();
        while let Some(&(until_ms, peer)) = self.ending.first()
            && (until_ms <= now_ms || self.ending.len() > ENDING_MAX)
        {
            match self.stage(peer) {
                // It has been told everything, and does not end.
                Stage::Lingering => io.close(peer),
                // It does not read what it is told.
                _ => io.abort(peer),
            }
            self.forget(peer);
        }
        let mut securing = Securing { sessions: self, handler };
        let mut layered = securing.with(io);
        layered.end_lost();
        layered.evict(now_ms);
        let turn_us = io.now_us().saturating_sub(io.turn_us());
        self.handshakes.begin_turn(turn_us);
        self.opening = OpeningBudget::behind(turn_us);
        for peer in std::mem::take(&mut self.unopened) {
            // It may be closed by now.
            if self.entry(peer).is_some() {
                io.resume(peer);
            }
        }
        self.call(io);
    }

    /// Whether there has never been a connection for this layer.
    fn is_unused(&self) -> bool {
        self.entries.is_empty()
    }

    /// Calls some to their handshakes: the backend tells of them anew.
    fn call<B: Backend>(&mut self, io: &mut B) {
        if self.handshakes.waiting() == 0 {
            return;
        }
        let mut called = Vec::new();
        self.handshakes.call(&mut called);
        for peer in called {
            let Some(entry) = self.entry(peer) else { continue };
            if entry.take(Entry::IN_LINE) {
                entry.set(Entry::CALLED);
                io.resume(peer);
            }
        }
    }

    /// Takes the counts since the last call; `None` while no listener has had a TLS client.
    pub fn take_counts(&mut self) -> Option<TlsCounts> {
        if self.is_unused() {
            return None;
        }
        Some(TlsCounts {
            handshakes_under_way: self.handshakes.answered() as u64,
            handshakes_waiting: self.handshakes.waiting() as u64,
            handshakes_us: std::mem::take(&mut self.handshakes.spent_us),
            sessions: self.pools.count() as u64,
            bytes: (self.pools.bytes() + self.held_bytes(None)) as u64,
            ..std::mem::take(&mut self.counts)
        })
    }

    /// What a connection holds here, or all do, beside their sessions.
    pub fn held_bytes(&self, peer: Option<Peer>) -> usize {
        let Some(peer) = peer else {
            return self.extra_bytes + self.handshakes.bytes(None) + self.clients.bytes();
        };
        match self.stage(peer) {
            Stage::None => 0,
            Stage::Shaking => self.handshakes.bytes(Some(peer)),
            _ => self.extras.get(&peer).map_or(0, Extra::bytes),
        }
    }

    /// What was sent and is not acknowledged, or has not even left.
    pub fn unacknowledged<B: Backend>(&self, io: &B, peer: Peer) -> u32 {
        let unsent = u32::try_from(self.unsent(peer)).unwrap_or(u32::MAX);
        io.unacknowledged(peer).saturating_add(unsent)
    }

    /// After a panic: the connection that was being seen to is closed, unless its handler has done
    /// so. What was sealed for it may be lost, and its session is used no more.
    pub fn recover<B: Backend, H>(&mut self, io: &mut B, handler: &mut H)
    where
        H: for<'a> Handler<Secured<'a, B>>,
    {
        let Some(peer) = self.current.take() else { return };
        if self.entry(peer).is_some_and(|entry| !entry.has(Entry::LEFT)) {
            handler.ended(&mut Secured { io, sessions: self }, peer);
        }
    }

    fn stage(&self, peer: Peer) -> Stage {
        self.entries.get(peer.index()).map_or(Stage::None, |entry| entry.stage)
    }

    fn entry(&mut self, peer: Peer) -> Option<&mut Entry> {
        self.entries.at(peer.index()).filter(|entry| entry.stage != Stage::None)
    }

    fn session(&mut self, peer: Peer) -> Option<Session<'_>> {
        let place = self.entry(peer)?.place;
        self.pools.session(place)
    }

    /// Its session, and what may open its records without new keys.
    fn opening(&mut self, peer: Peer) -> Option<(Session<'_>, &mut Contexts)> {
        let place = self.entry(peer)?.place;
        // A server without TLS has none.
        if self.contexts.places() == 0 {
            self.contexts = Contexts::new(CONTEXTS_KEPT, leave_out_of_dumps);
        }
        Some((self.pools.session(place)?, &mut self.contexts))
    }

    /// The backend has closed it, or is about to.
    fn forget(&mut self, peer: Peer) {
        let Some(entry) = self.entries.at(peer.index()) else { return };
        let entry = std::mem::take(entry);
        if let Some(mut session) = self.pools.session(entry.place) {
            self.contexts.forget(&mut session);
        }
        self.pools.remove(entry.place);
        self.handshakes.end(peer);
        // mutation: gone-client
        self.clients.forget(peer);
        if entry.has(Entry::HOLDS)
            && let Some(extra) = self.extras.remove(&peer)
        {
            self.extra_bytes -= extra.bytes();
            self.ending.remove(&(extra.until_ms, peer));
        }
    }

    /// Its handshake, if one is under way, comes to nothing: the client has gone, or its time is
    /// up.
    fn end_unfinished(&mut self, peer: Peer) {
        if self.handshakes.end(peer) {
            self.counts.fail(TlsFailure::Unfinished);
        }
    }

    /// Changes what a connection holds, and keeps account of it.
    fn with_extra<R>(&mut self, peer: Peer, act: impl FnOnce(&mut Extra) -> R) -> R {
        let extra = self.extras.entry(peer).or_default();
        let before = extra.bytes();
        // mutation: bytes-after-panic
        let result = act(extra);
        // Both at once: a panic in between would leave a wrong account.
        self.extra_bytes = self.extra_bytes - before + extra.bytes();
        let holds = !extra.is_empty();
        if !holds {
            self.extras.remove(&peer);
        }
        if let Some(entry) = self.entry(peer) {
            entry.put(Entry::HOLDS, holds);
        }
        result
    }

    /// What the socket has not taken of records.
    fn unsent(&self, peer: Peer) -> usize {
        let holds = self.entries.get(peer.index()).is_some_and(|entry| entry.has(Entry::HOLDS));
        let extra = if holds { self.extras.get(&peer) } else { None };
        extra.map_or(0, |extra| extra.unsent().len())
    }

    /// From now on it is the layer's alone, until then.
    fn end_by(&mut self, peer: Peer, until_ms: u64) {
        let before =
            self.with_extra(peer, |extra| std::mem::replace(&mut extra.until_ms, until_ms));
        self.ending.remove(&(before, peer));
        self.ending.insert((until_ms, peer));
    }

    /// The scratch buffer. A panic may have lost it.
    fn take_scratch(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(SCRATCH_BYTES, 0);
        scratch
    }
}

impl<B: Backend> Secured<'_, B> {
    /// Sends what is kept. Returns whether there is room for more.
    fn flush(&mut self, peer: Peer) -> Result<bool, Gone> {
        let Some(entry) = self.sessions.entry(peer) else { return Err(Gone) };
        if entry.has(Entry::FULL) {
            return Ok(false);
        }
        if !entry.has(Entry::HOLDS) || self.sessions.unsent(peer) == 0 {
            return Ok(true);
        }
        let io = &mut *self.io;
        let sent = self.sessions.with_extra(peer, |extra| {
            let sent = io.send(peer, &[IoSlice::new(extra.unsent())])?;
            extra.advance(sent.bytes);
            Ok(sent)
        })?;
        if let Some(entry) = self.sessions.entry(peer) {
            entry.put(Entry::FULL, sent.full);
        }
        Ok(!sent.full)
    }

    /// Sends records behind what is kept, and keeps what the socket does not take. Returns whether
    /// there is room for more.
    fn push(&mut self, peer: Peer, records: &[u8]) -> Result<bool, Gone> {
        let mut at = 0;
        if self.flush(peer)? && !records.is_empty() {
            let sent = self.io.send(peer, &[IoSlice::new(records)])?;
            at = sent.bytes;
            if let Some(entry) = self.sessions.entry(peer) {
                entry.put(Entry::FULL, sent.full);
            }
        }
        if at < records.len() {
            self.sessions.with_extra(peer, |extra| extra.keep(&records[at..]));
        }
        Ok(at == records.len() && self.sessions.entry(peer).is_some_and(|e| !e.has(Entry::FULL)))
    }

    /// Seals as much as the socket may take at once, sends it, and so on until it is full.
    fn seal(&mut self, peer: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        if self.sessions.is_packed {
            return Err(Gone);
        }
        let all: usize = parts.iter().map(|part| part.len()).sum();
        if !self.flush(peer)? {
            return Ok(Sent { bytes: 0, full: true });
        }
        let mut scratch = self.sessions.take_scratch();
        let (mut few, mut many);
        let mut rest: &mut [IoSlice<'_>] = if parts.len() <= FEW {
            few = [IoSlice::new(&[]); FEW];
            few[..parts.len()].copy_from_slice(parts);
            &mut few[..parts.len()]
        } else {
            many = parts.to_vec();
            &mut many
        };
        let mut taken = 0;
        let mut outcome = Ok(true);
        while taken < all && outcome == Ok(true) {
            outcome = match self.sessions.fill(peer, &mut rest, all - taken, &mut scratch) {
                Err(_) => Err(Gone),
                Ok((bytes, written)) => {
                    taken += bytes;
                    self.push(peer, &scratch[..written])
                }
            };
        }
        self.sessions.scratch = scratch;
        outcome.map(|has_room| Sent { bytes: taken, full: !has_room })
    }

    /// Seals and sends what is not data: what is owed to the peer, or the last record.
    fn say(
        &mut self,
        peer: Peer,
        seal: impl FnOnce(&mut Session<'_>, &mut [u8]) -> Result<usize, SealError>,
    ) {
        if self.sessions.is_packed {
            return;
        }
        let mut record = [0; 2 * SEAL_ROOM_MIN];
        let written =
            self.sessions.session(peer).map(|mut session| seal(&mut session, &mut record));
        if let Some(Ok(written)) = written {
            // If it is gone, that is told by the backend.
            let _ = self.push(peer, &record[..written]);
        }
    }

    /// Goes on with the end of a connection, if all has left that goes before.
    fn go_on_ending(&mut self, peer: Peer) {
        let result = self.flush(peer);
        let has_left = self.sessions.unsent(peer) == 0;
        let now_ms = self.io.now_ms();
        let Some(entry) = self.sessions.entry(peer) else { return };
        let is_ours = entry.has(Entry::LEFT);
        if result.is_err() || has_left && is_ours && !entry.has(Entry::FAILED) {
            if is_ours {
                self.io.close(peer);
                self.sessions.forget(peer);
            }
        } else if has_left && is_ours {
            let is_finished = entry.put(Entry::FINISHED, true);
            entry.stage = Stage::Lingering;
            if !is_finished {
                self.io.finish(peer);
            }
            self.sessions.end_by(peer, now_ms + LINGER_MS);
        } else if has_left && entry.take(Entry::FINISHES) {
            entry.set(Entry::FINISHED);
            self.io.finish(peer);
        }
    }
}

impl Sessions {
    /// Fills the scratch buffer with records, and leaves in `rest` what did not fit. Returns how
    /// many bytes were taken of `all` that there are, and how many there are to send.
    fn fill(
        &mut self,
        peer: Peer,
        rest: &mut &mut [IoSlice<'_>],
        all: usize,
        scratch: &mut [u8],
    ) -> Result<(usize, usize), SealError> {
        let entry = self.entry(peer).ok_or(SealError::Ended)?;
        let bytes_max = match entry.has(Entry::STREAM) {
            true => STREAM_RECORD_BYTES_MAX,
            false => RECORD_BYTES_MAX,
        };
        let place = entry.place;
        let mut session = self.pools.session(place).ok_or(SealError::Ended)?;
        let owes = session.owes();
        let (mut taken, mut written) = (0, 0);
        while taken < all && (written == 0 || scratch.len() - written >= bytes_max + SEAL_ROOM_MIN)
        {
            let sealed = session.seal(rest, bytes_max, &mut scratch[written..])?;
            IoSlice::advance_slices(rest, sealed.taken);
            taken += sealed.taken;
            written += sealed.written;
        }
        self.counts.key_updates += u64::from(owes);
        Ok((taken, written))
    }
}

impl<B: Backend> Backend for Secured<'_, B> {
    stentor_io::left_to_the_backend_below!();

    fn send(&mut self, peer: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        match self.sessions.stage(peer) {
            Stage::None => self.io.send(peer, parts),
            Stage::Open => self.seal(peer, parts),
            // There is nobody who could be told.
            _ => Ok(Sent { bytes: parts.iter().map(|part| part.len()).sum(), full: false }),
        }
    }

    fn send_file(
        &mut self,
        peer: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError> {
        if self.sessions.stage(peer) == Stage::None {
            return self.io.send_file(peer, before, file, offset, length);
        }
        let mut piece = std::mem::take(&mut self.sessions.piece);
        piece.resize(RECORD_BYTES_MAX, 0);
        let sent = self.send_pieces(peer, before, (file, offset, length), &mut piece);
        self.sessions.piece = piece;
        sent
    }

    fn kernel_sends_files(&self, peer: Peer) -> bool {
        self.sessions.stage(peer) == Stage::None && self.io.kernel_sends_files(peer)
    }

    fn unacknowledged(&self, peer: Peer) -> u32 {
        self.sessions.unacknowledged(self.io, peer)
    }

    fn kernel_bytes(&self, peer: Peer) -> usize {
        self.io.kernel_bytes(peer)
    }

    fn resume(&mut self, peer: Peer) {
        self.io.resume(peer);
    }

    fn begin_stream(&mut self, peer: Peer, retransmission: Retransmission) {
        if let Some(entry) = self.sessions.entry(peer) {
            entry.set(Entry::STREAM);
        }
        self.io.begin_stream(peer, retransmission);
    }

    fn finish(&mut self, peer: Peer) {
        match self.sessions.stage(peer) {
            Stage::None => return self.io.finish(peer),
            Stage::Open => self.say(peer, |session, out| session.end(Alert::CloseNotify, out)),
            _ => {}
        }
        let Some(entry) = self.sessions.entry(peer) else { return };
        if !entry.has(Entry::FINISHED) {
            entry.set(Entry::FINISHES);
            if entry.stage != Stage::Open {
                entry.stage = Stage::Lingering;
                self.sessions.end_unfinished(peer);
            }
            self.go_on_ending(peer);
        }
    }

    fn close(&mut self, peer: Peer) {
        let stage = self.sessions.stage(peer);
        let until_ms = self.io.now_ms() + LAST_RECORD_MS;
        let is_packed = self.sessions.is_packed;
        let Some(entry) = self.sessions.entry(peer) else { return self.io.close(peer) };
        let is_failed = entry.has(Entry::FAILED);
        let says_so = stage == Stage::Open && !is_failed;
        if !says_so && (!is_failed || is_packed) {
            self.sessions.end_unfinished(peer);
            self.io.close(peer);
            return self.sessions.forget(peer);
        }
        // Before anything is sent: a connection that its handler has closed always has an end.
        entry.set(Entry::LEFT);
        entry.stage = Stage::Closing;
        self.sessions.end_unfinished(peer);
        // mutation: close-panic
        self.sessions.end_by(peer, until_ms);
        if says_so {
            self.say(peer, |session, out| session.end(Alert::CloseNotify, out));
        }
        self.go_on_ending(peer);
        if self.sessions.stage(peer) == Stage::None {
            return;
        }
        // What comes meanwhile is thrown away: to leave it unread would be a reset.
        self.io.resume(peer);
    }

    fn abort(&mut self, peer: Peer) {
        self.io.abort(peer);
        self.sessions.forget(peer);
    }

    fn refuse_new(&mut self, how: TurnAway) {
        self.io.refuse_new(how);
    }

    fn close_listeners(&mut self) {
        self.io.close_listeners();
    }

    fn held_bytes(&self, peer: Option<Peer>) -> usize {
        self.sessions.held_bytes(peer) + self.io.held_bytes(peer)
    }

    fn carrier(&self, peer: Peer) -> Peer {
        self.io.carrier(peer)
    }

    fn client(&self, peer: Peer) -> Option<&str> {
        self.sessions.clients.name(peer)
    }
}

impl<B: Backend> Secured<'_, B> {
    /// Sends a part of a file piece by piece, the first together with what stands before it.
    fn send_pieces(
        &mut self,
        peer: Peer,
        before: &[IoSlice<'_>],
        (file, offset, length): (&File, u64, usize),
        piece: &mut [u8],
    ) -> Result<Sent, FileSendError> {
        let before_bytes: usize = before.iter().map(|part| part.len()).sum();
        let mut sent = Sent { bytes: 0, full: false };
        let mut parts = before.to_vec();
        while !sent.full && sent.bytes < before_bytes + length {
            let at = sent.bytes.saturating_sub(before_bytes);
            // What stands before it shares its record.
            let room = if sent.bytes == 0 { piece.len().saturating_sub(before_bytes) } else { 0 };
            let wanted = if room == 0 { piece.len() } else { room }.min(length - at);
            let read = if wanted == 0 {
                0
            } else {
                match file.read_at(&mut piece[..wanted], offset + at as u64) {
                    Ok(0) | Err(_) => return Err(FileSendError::Truncated),
                    Ok(read) => read,
                }
            };
            let mut all = std::mem::take(&mut parts);
            all.push(IoSlice::new(&piece[..read]));
            let more = self.send(peer, &all)?;
            sent = Sent { bytes: sent.bytes + more.bytes, full: more.full };
        }
        Ok(sent)
    }
}

/// Room for as many records as are sealed before the socket is asked.
const SCRATCH_BYTES: usize = RECORD_BYTES_MAX + 8 * SEAL_ROOM_MIN;

/// As many parts as are named in one send as a rule.
const FEW: usize = 16;
