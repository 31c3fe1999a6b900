//! Connections that stay: silent after one answer, or as readers of a stream.
//!
//! Messages that `bench push` publishes carry a stamp; each reader's ledger says whether it had
//! that number already. Streams are taken apart only as far as that needs: an event or a frame is
//! looked through where it lies, and kept only if it was cut.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use memchr::memmem;
use stentor_io::{Flow, Peer};
use stentor_wire::http1::response::ResponseHead;
use stentor_wire::sse;
use stentor_wire::status::Status;
use stentor_wire::websocket::Opcode;
use stentor_wire::websocket::client::{ServerFrame, masked_frame};

use super::{
    Connection, ConnectionStage, NO_ANSWER, OPENED_PER_TURN, PATIENCE_US, Purpose, StreamStage,
    Wire, Worker, connect_error,
};
use crate::delivery::{Finder, Note};
use crate::exchange::Seen;
use crate::orders::{HoldWork, ThreadWork, share, shares_before};
use crate::plan::Role;
use crate::request::{WEBSOCKET_ACCEPT, complete};
use crate::tally::{ReaderTally, record};

/// What a thread's holders have in common.
pub(super) struct Holders {
    /// The first request of each.
    request: Vec<u8>,
    /// Connections begun.
    begun: u64,
    /// Of these, on their way.
    pub(super) opening: usize,
    /// Where stamps are found; taken out while something is looked through.
    finder: Option<Finder>,
    /// The long-poll made last: readers of one topic mostly ask alike, and then share it.
    ask: Option<Arc<Ask>>,
    /// Whether those that stall did when last looked at.
    stalling: bool,
    /// Readers that have ended. What they missed is known in the end.
    dropped: Vec<Connection>,
}

/// A long-poll for what is newer than one answer.
pub(super) struct Ask {
    etag: Vec<u8>,
    last_modified: Vec<u8>,
    request: Vec<u8>,
}

impl Holders {
    pub(super) fn new(work: &ThreadWork) -> Holders {
        let own = work.holders.as_ref();
        Holders {
            request: own.map(|own| complete(&own.request, &[])).unwrap_or_default(),
            begun: 0,
            opening: 0,
            finder: own.map(|own| Finder::new(own.run)),
            ask: None,
            stalling: false,
            dropped: Vec::new(),
        }
    }
}

impl Worker {
    fn hold_work(&self) -> Option<&HoldWork> {
        self.work.holders.as_ref()
    }

    fn role(&self) -> Role {
        self.hold_work().map_or(Role::Idle, |work| work.role)
    }

    /// Opens what should have been opened by now.
    pub(super) fn tend_holders(&mut self, io: &mut Wire<'_>) -> Option<u64> {
        let own = self.hold_work()?;
        let (opening_max, stall_percent) = (own.opening_max, own.stall_percent);
        let first = shares_before(own.readers.into(), self.index, self.work.threads);
        let total = self.orders.holders.load(Ordering::Relaxed);
        let wanted = share(total.into(), self.index, self.work.threads);
        for _ in 0..OPENED_PER_TURN {
            if self.holders.begun >= wanted || self.holders.opening >= opening_max {
                return None;
            }
            let stalls = stalls(first + self.holders.begun, stall_percent);
            self.holders.begun += 1;
            let receive_bytes = stalls.then_some(STALLING_RECEIVE_BYTES);
            let connection = Connection {
                purpose: if stalls { Purpose::Stalls } else { Purpose::Holds },
                began_us: self.now_us,
                ..Connection::default()
            };
            match self.dial(io, receive_bytes, connection) {
                Ok(_) => self.holders.opening += 1,
                Err(error) => {
                    self.tally.failed.add(1);
                    self.error(connect_error(&error));
                }
            }
        }
        Some(io.now_ms())
    }

    pub(super) fn holder_connected(&mut self, io: &mut Wire<'_>, socket: Peer) -> Flow {
        self.at(socket).answers_due = 1;
        let request = std::mem::take(&mut self.holders.request);
        let flow = self.request(io, socket, &request);
        self.holders.request = request;
        if flow == Flow::Closed {
            return flow;
        }
        if self.role() == Role::Poll {
            // A server may hold the very first one.
            self.settle(socket);
        }
        Flow::More
    }

    /// The connection has become what it was opened for.
    fn settle(&mut self, socket: Peer) {
        let connection = self.at(socket);
        let stalls = connection.stalls();
        if !std::mem::replace(&mut connection.settled, true) {
            self.holders.opening -= 1;
            self.tally.opened.add(1);
            self.tally.opened_us.set(self.now_us);
            self.tally.opened_stalling.add(stalls.into());
            self.tally.held.add(1);
        }
    }

    pub(super) fn holder_saw(&mut self, io: &mut Wire<'_>, socket: Peer, seen: Seen<'_>) -> Flow {
        let role = self.role();
        let trouble = match seen {
            Seen::More => None,
            Seen::Head(head) => self.holder_head(socket, role, &head),
            Seen::Data(data) if role == Role::Sse => self.read_events(socket, data),
            Seen::Data(data) if role == Role::Poll => self.gather(socket, data),
            Seen::Data(_) => None,
            Seen::End => match role {
                Role::Idle if self.at(socket).closes => Some("the server closes after an answer"),
                Role::Idle => {
                    self.settle(socket);
                    None
                }
                Role::Poll => return self.poll_again(io, socket),
                Role::Sse | Role::Ws => Some("the stream ended"),
            }
            .map(str::to_owned),
            Seen::Frame(frame) => self.read_frame(io, socket, &frame),
        };
        match trouble {
            None => Flow::More,
            Some(trouble) => {
                self.broken(io, socket, trouble.into());
                Flow::Closed
            }
        }
    }

    /// An answer begins. Returns what is wrong with it.
    fn holder_head(&mut self, socket: Peer, role: Role, head: &ResponseHead<'_>) -> Option<String> {
        let now_us = self.now_us;
        let connection = self.at(socket);
        connection.closes = !head.keep_alive;
        let first = std::mem::take(&mut connection.answers_due) == 1;
        let took_us = now_us.saturating_sub(connection.dialled_us);
        if first {
            record(&mut self.outcome.first_answer, took_us);
            self.outcome.status(head.status);
        }
        let fits = match role {
            Role::Idle => (200..400).contains(&head.status),
            Role::Sse => head.status == 200,
            Role::Ws => head.status == Status::SWITCHING_PROTOCOLS.0,
            // RFC 7240 and others: 204, 304 and 408 say that nothing came in time.
            Role::Poll => matches!(head.status, 200 | 204 | 304 | 408),
        };
        if !fits {
            return Some(format!("status {}", head.status));
        }
        match role {
            Role::Sse if !is_event_stream(head) => Some("not an event stream".to_owned()),
            Role::Ws if head.websocket_accept != Some(WEBSOCKET_ACCEPT) => {
                Some("a wrong Sec-WebSocket-Accept".to_owned())
            }
            Role::Sse | Role::Ws => {
                self.settle(socket);
                None
            }
            Role::Poll => {
                self.prepare_ask(socket, head);
                None
            }
            Role::Idle => None,
        }
    }

    /// Makes the request for what is newer than an answer, unless it is one that was made already.
    fn prepare_ask(&mut self, socket: Peer, head: &ResponseHead<'_>) {
        if head.etag.is_none() && head.last_modified.is_none() && self.at(socket).ask.is_some() {
            // A response without a validator names nothing newer.
            return;
        }
        let etag = head.etag.unwrap_or_default();
        let last_modified = head.last_modified.unwrap_or_default();
        let known = self.holders.ask.as_ref();
        if known.is_none_or(|ask| ask.etag != etag || ask.last_modified != last_modified) {
            let Some(work) = &self.work.holders else { return };
            let fields: [(&[u8], &[u8]); 2] =
                [(b"If-None-Match", etag), (b"If-Modified-Since", last_modified)];
            let fields: Vec<_> =
                fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
            let request = complete(&work.request, &fields);
            let (etag, last_modified) = (etag.to_vec(), last_modified.to_vec());
            self.holders.ask = Some(Arc::new(Ask { etag, last_modified, request }));
        }
        self.connections[socket.index()].ask.clone_from(&self.holders.ask);
    }

    /// Keeps an answer, or a message in fragments, until it is whole.
    fn gather(&mut self, socket: Peer, data: &[u8]) -> Option<String> {
        let content = &mut self.at(socket).rest.get_or_insert_default().content;
        content.extend_from_slice(data);
        (content.len() > CONTENT_BYTES_MAX).then(|| "an answer that does not end".to_owned())
    }

    /// Takes what was kept.
    fn gathered(&mut self, socket: Peer) -> Vec<u8> {
        let rest = self.at(socket).rest.as_mut();
        rest.map(|rest| std::mem::take(&mut rest.content)).unwrap_or_default()
    }

    /// Looks through events; what is cut is kept.
    fn read_events(&mut self, socket: Peer, data: &[u8]) -> Option<String> {
        let mut kept = self.gathered(socket);
        let mut events = if kept.is_empty() {
            data
        } else {
            kept.extend_from_slice(data);
            &kept
        };
        if self.at(socket).stream == StreamStage::Awaited
            && let Some(rest) = sse::after_mark(events)
        {
            events = rest;
            self.at(socket).stream = StreamStage::Begun;
        }
        while let Some((event, length)) = sse::first_event(events) {
            if event.name == Some(sse::NOTICE.as_bytes()) {
                if memmem::find(event.lines, b"data: {\"gap\":").is_some() {
                    self.gap_told(socket);
                }
            } else if event.has_data {
                self.find_stamps(socket, event.lines);
            }
            events = &events[length..];
        }
        if events.len() > CONTENT_BYTES_MAX {
            return Some("an event that does not end".to_owned());
        }
        if !events.is_empty() {
            let rest = events.to_vec();
            self.at(socket).rest.get_or_insert_default().content = rest;
        }
        None
    }

    fn read_frame(
        &mut self,
        io: &mut Wire<'_>,
        socket: Peer,
        frame: &ServerFrame<'_>,
    ) -> Option<String> {
        match frame.opcode {
            Opcode::Text if frame.payload.starts_with(b"{\"gap\":") => self.gap_told(socket),
            Opcode::Text | Opcode::Binary if frame.fin => {
                self.find_stamps(socket, frame.payload);
            }
            Opcode::Text | Opcode::Binary | Opcode::Continuation => {
                let trouble = self.gather(socket, frame.payload);
                if trouble.is_some() {
                    return trouble;
                }
                if frame.fin {
                    let content = self.gathered(socket);
                    self.find_stamps(socket, &content);
                }
            }
            Opcode::Ping => {
                let mut pong = Vec::new();
                masked_frame(&mut pong, Opcode::Pong, MASK, frame.payload);
                if let Err(reason) = self.send(io, socket, &pong) {
                    return Some(reason.to_owned());
                }
            }
            Opcode::Pong => {}
            Opcode::Close => return Some("closed by the server".to_owned()),
        }
        None
    }

    /// A long-poll is answered: looks through the answer, and asks for what is newer.
    fn poll_again(&mut self, io: &mut Wire<'_>, socket: Peer) -> Flow {
        let content = self.gathered(socket);
        let found = self.find_stamps(socket, &content);
        let now_us = self.now_us;
        let connection = self.at(socket);
        // The first response may come at once, and so may one with a message.
        let hasty = !found && now_us.saturating_sub(connection.began_us) < HELD_US_MIN;
        connection.hasty = if hasty { connection.hasty + 1 } else { 0 };
        connection.began_us = now_us;
        let trouble = match connection {
            Connection { hasty: HASTY_MAX.., .. } => "answers at once: not a long-poll",
            Connection { closes: true, .. } => "the server closes after an answer",
            _ => {
                let Some(ask) = connection.ask.clone() else { return Flow::More };
                match self.send(io, socket, &ask.request) {
                    Ok(()) => return Flow::More,
                    Err(reason) => reason,
                }
            }
        };
        self.broken(io, socket, trouble.into());
        Flow::Closed
    }

    /// Notes the messages in what came. Says whether there were any.
    fn find_stamps(&mut self, socket: Peer, bytes: &[u8]) -> bool {
        let Some(finder) = self.holders.finder.take() else { return false };
        let mut found = false;
        for stamp in finder.find(bytes) {
            found = true;
            // Number 0 only makes sure that there is a value.
            if stamp.number > 0 {
                self.note(socket, stamp.number, stamp.published_ns / 1000);
            }
        }
        self.holders.finder = Some(finder);
        found
    }

    fn note(&mut self, socket: Peer, number: u32, published_us: u64) {
        let after_us = self.now_us.saturating_sub(published_us);
        let connection = self.at(socket);
        let (note, stalls) = (connection.ledger.note(number), connection.stalls());
        let readers = self.readers(stalls);
        match note {
            Note::New => {}
            Note::Late => readers.out_of_order += 1,
            Note::Duplicate => {
                readers.duplicates += 1;
                return;
            }
            Note::Untold => return,
        }
        readers.delivered += 1;
        if stalls {
            self.tally.delivered_stalled.add(1);
            return;
        }
        self.tally.delivered.add(1);
        self.tally.delivered_us.set(self.now_us);
        record(&mut self.outcome.delivery[self.orders.period(published_us)], after_us);
        let stride = self.work.holders.as_ref().map_or(1, |work| work.stride);
        if number.is_multiple_of(stride)
            && let Some(spread) = self.outcome.messages.get_mut((number / stride) as usize - 1)
        {
            spread.reached(after_us);
        }
    }

    fn gap_told(&mut self, socket: Peer) {
        let connection = self.at(socket);
        connection.told = true;
        let stalls = connection.stalls();
        self.readers(stalls).gaps_told += 1;
    }

    fn readers(&mut self, stalls: bool) -> &mut ReaderTally {
        if stalls { &mut self.outcome.stalled } else { &mut self.outcome.steady }
    }

    pub(super) fn stalling(&self) -> bool {
        self.holders.stalling
    }

    /// Lets the readers that stall do so, or read again.
    pub(super) fn holders_obey(&mut self, io: &mut Wire<'_>) {
        let stalling = self.orders.stalling.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.holders.stalling, stalling) && !stalling {
            for (index, connection) in self.connections.iter().enumerate() {
                if connection.stalls() && connection.stage == ConnectionStage::Open {
                    io.resume(Peer::from_index(index as u32));
                }
            }
        }
    }

    pub(super) fn holder_broken(&mut self, connection: Connection) {
        if !connection.settled {
            self.holders.opening -= 1;
            self.tally.failed.add(1);
            return;
        }
        self.tally.held.sub(1);
        self.tally.held_dropped.add(1);
        self.holders.dropped.push(Connection { rest: None, ask: None, ..connection });
    }

    /// Sums up what became of each reader.
    pub(super) fn sum_up_holders(&mut self) {
        let long_ago_us = self.now_us.saturating_sub(PATIENCE_US);
        let mut unanswered = 0;
        for connection in std::mem::take(&mut self.holders.dropped) {
            self.count_reader(&connection, true);
        }
        for connection in std::mem::take(&mut self.connections) {
            if !connection.is_holder() {
                continue;
            }
            if connection.settled {
                self.count_reader(&connection, false);
            } else if connection.began_us < long_ago_us {
                unanswered += 1;
            }
        }
        self.outcome.errors_of(NO_ANSWER.into(), unanswered);
    }

    fn count_reader(&mut self, connection: &Connection, dropped: bool) {
        let published = self.orders.published.load(Ordering::Relaxed);
        let missing = connection.ledger.missing(published);
        let readers = self.readers(connection.stalls());
        readers.readers += 1;
        readers.missing += u64::from(missing);
        // The end of a connection tells its reader that there may be more.
        readers.untold += if connection.told || dropped { 0 } else { u64::from(missing) };
        readers.complete += u64::from(connection.ledger.is_perfect(published));
        readers.current += u64::from(connection.ledger.newest() == published);
        readers.dropped += u64::from(dropped);
    }
}

/// Whether the `nth` reader of all threads is one that stalls: so many of a hundred, evenly spread.
fn stalls(nth: u64, percent: u8) -> bool {
    let percent = u64::from(percent);
    (nth + 1) * percent / 100 > nth * percent / 100
}

fn is_event_stream(head: &ResponseHead<'_>) -> bool {
    const TYPE: &[u8] = b"text/event-stream";
    head.content_type
        .and_then(|value| value.get(..TYPE.len()))
        .is_some_and(|value| value.eq_ignore_ascii_case(TYPE))
}

/// A reader that stalls has a window this small, so that it is felt soon.
const STALLING_RECEIVE_BYTES: u32 = 4 * 1024;

/// The longest event, answer to a long-poll, or message in fragments that is kept until it is
/// complete.
const CONTENT_BYTES_MAX: usize = 16 << 20;

/// An answer sooner than this was not held.
const HELD_US_MIN: u64 = 100_000;

/// After so many of these in a row it is no long-poll, and asking on would be a flood.
const HASTY_MAX: u8 = 10;

/// Frames of clients are masked (RFC 6455 section 5.3). The key need not be hard to guess here:
/// what a load generator sends is nobody's choice but its own.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_a_hundred_stall() {
        for percent in [0, 1, 20, 33, 99] {
            let those = (0..1_000).filter(|&nth| stalls(nth, percent)).count();
            assert_eq!(those, usize::from(percent) * 10);
        }
        // Few readers on each of many threads: each has its place among all.
        let (readers, threads) = (8, 3);
        let stalling = |thread| {
            let first = shares_before(readers, thread, threads);
            let own = share(readers, thread, threads);
            (first..first + own).filter(|&nth| stalls(nth, 25)).count()
        };
        assert_eq!((0..threads).map(stalling).sum::<usize>(), 2);
        // Evenly spread: no ten in a row have more than two of a fifth.
        let row: Vec<bool> = (0..1_000).map(|nth| stalls(nth, 20)).collect();
        assert!(row.windows(10).all(|ten| ten.iter().filter(|stalls| **stalls).count() == 2));
    }
}
