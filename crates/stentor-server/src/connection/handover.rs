//! A connection as bytes, so that another process can go on with it.
//!
//! Each list names all fields: what is added to a record is packed, or is named as what begins
//! anew, or nothing compiles. Feeds go by their numbers, which stay the same.

use super::pace::Pace;
use super::reader::{Extra, Joining, Subscription};
use super::work::{Incoming, Work};
use super::{AnswerWait, Connection, CopyWait, Origin, Phase, RequestWait, StreamWait};
use crate::budget::{Place, WorkClass};
use crate::context::Context;
use crate::endpoint::Sink;
use crate::exchange::Awaits;
use crate::stream::MANY;
use crate::stream::feeds::{Feeds, Member};
use stentor_io::Peer;
use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;

// The worker sets the timer, and counts the connection by its address a little later.
packed!(struct Connection { role, origin, phase, reader, extra, work }
    without { timer, counted });
packed!(enum Origin { 0 => Unix, 1 => Client, 2 => Proxy, 3 => Probe });
// The second byte is the event that the connection waits for: one number for it in all phases.
packed!(enum Phase {
    0 0 => Free, 1 => Open(wait), 2 => Streaming(wait), 3 => Pending(wait), 4 3 => Closing,
    5 3 => Refusing, 6 4 => Lingering, 7 11 => Delivering, 8 => Copying(wait),
});
packed!(enum RequestWait {
    0 => Idle, 1 => Head, 2 => Body, 3 => Room, 13 => Handshake, 14 => ProxyHeader,
});
packed!(enum StreamWait {
    3 => Room, 6 => Frame, 7 => Heartbeat, 8 => Ping, 9 => Farewell, 10 => Leave, 12 => Expiry,
});
packed!(enum AnswerWait { 3 => Room, 5 => Event, 9 => Farewell, 12 => Expiry });
packed!(enum CopyWait { 3 => Room, 7 => Heartbeat, 12 => Expiry });
packed!(struct Extra {
    subscriptions, joining, replay, decoder, pending, gap, uncovered, partial,
});
packed!(struct Subscription { feed, stamp });
packed!(struct Joining { subscriptions, start, seq });

/// The number of unacknowledged bytes follows the backlog.
impl Packed for Work {
    fn pack(&self, out: &mut Packer) {
        let Work { input, scanned, incoming, backlog, pace, queue, place, since_us: _ } = self;
        input.pack(out);
        scanned.pack(out);
        incoming.pack(out);
        backlog.pack(out);
        backlog.iter().for_each(|_| pace.unacknowledged().pack(out));
        queue.pack(out);
        place.pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Work> {
        let mut work = Work {
            input: Packed::unpack(input)?,
            scanned: Packed::unpack(input)?,
            incoming: Packed::unpack(input)?,
            backlog: Packed::unpack(input)?,
            ..Work::default()
        };
        if work.backlog.is_some() {
            work.pace = Pace::resumed(Packed::unpack(input)?);
        }
        (work.queue, work.place) = (Packed::unpack(input)?, Packed::unpack(input)?);
        Ok(work)
    }
}

/// That a connection has a place is packed. Which one it is, the queues know (`Budget`).
impl Packed for Place {
    fn pack(&self, _: &mut Packer) {}

    fn unpack(_: &mut Unpacker<'_>) -> Unpacked<Place> {
        Ok(Place::default())
    }
}

impl Packed for Incoming {
    fn pack(&self, out: &mut Packer) {
        let Incoming { body, asked, sink, persistence, continue_due, began_ms, bytes } = self;
        body.pack(out);
        asked.pack(out);
        sink.pack(out);
        persistence.pack(out);
        continue_due.pack(out);
        out.moment(*began_ms);
        bytes.pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Incoming> {
        Ok(Incoming {
            body: Packed::unpack(input)?,
            asked: Packed::unpack(input)?,
            sink: Packed::unpack(input)?,
            persistence: Packed::unpack(input)?,
            continue_due: Packed::unpack(input)?,
            began_ms: input.moment()?,
            bytes: Packed::unpack(input)?,
        })
    }
}

impl Connection {
    /// The worker has heard of everything up to this number: if nothing is due to the reader, it
    /// has seen all of it.
    pub(crate) fn note_heard(&mut self, cx: &Context, seq: u64) {
        let extra = self.extra.as_deref();
        let is_catching_up =
            extra.is_some_and(|extra| extra.joining.is_some() || extra.replay.is_some());
        let has_seen = self.reads_feeds() && !self.has_events(cx) && self.log_is_complete(cx);
        if has_seen && !is_catching_up {
            self.reader.cursor = self.reader.cursor.max(seq);
        }
    }

    /// Whether it is not known yet what came of a change that it asked for.
    pub(crate) fn awaits_commit(&self) -> bool {
        let pending = self.extra.as_deref().and_then(|extra| extra.pending.as_deref());
        let incoming = self.work.as_deref().and_then(|work| work.incoming.as_deref());
        pending.is_some_and(|pending| !matches!(pending.awaits, Awaits::Change { .. }))
            || incoming.is_some_and(|incoming| match &incoming.sink {
                Sink::Bulk(bulk) => !bulk.is_committed(),
                Sink::Discard { .. } | Sink::Publish(_) => false,
            })
    }

    /// A connection of another process, without its place among the readers of its feeds.
    pub(crate) fn unpack_sound(input: &mut Unpacker<'_>) -> Unpacked<Connection> {
        let connection = Connection::unpack(input)?;
        connection.is_sound()?;
        let is_stopping = matches!(
            connection.phase,
            Phase::Streaming(StreamWait::Farewell | StreamWait::Leave)
                | Phase::Pending(AnswerWait::Farewell)
        );
        // Of what a follower read nothing but the end goes over.
        if connection.is_free() || connection.is_copying() || is_stopping {
            Err(MISFIT)
        } else {
            Ok(connection)
        }
    }

    /// Enters the feeds that it reads.
    pub(crate) fn enter_feeds(&self, feeds: &mut Feeds, peer: Peer) -> Unpacked<()> {
        if self.extra.is_none() && self.reader.feed != MANY {
            // Most readers are like this.
            let member = Member { peer, stamp: self.reader.stamp };
            return if feeds.enter(self.reader.feed, member) { Ok(()) } else { Err(MISFIT) };
        }
        let all = self.memberships(peer);
        let replay = self.extra.as_deref().and_then(|extra| extra.replay.as_deref());
        let replayed = replay.map_or(&[][..], |replay| replay.feeds());
        let is_read = |feed| all.iter().any(|(read, _)| read == feed);
        let are_read = replayed.iter().all(is_read);
        let exist = all.iter().all(|&(feed, member)| feeds.enter(feed, member));
        if are_read && exist { Ok(()) } else { Err(MISFIT) }
    }

    /// Whether something may be due to it that the log does not have, and nothing brings it there.
    pub(crate) fn is_behind(&self, cx: &Context) -> bool {
        self.reads_feeds() && !self.waits() && !self.log_is_complete(cx)
    }

    /// Has it look into history when its turn comes.
    pub(crate) fn catch_up(&mut self, cx: &mut Context, peer: Peer) {
        self.wait_in(WorkClass::CatchUp);
        self.work().place = Some(cx.load.budget.enter(WorkClass::CatchUp, peer, peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every phase with its event, behind the two bytes that version 5 of the format has for them.
    const PHASES: &str = "0 0 Free, 1 0 Open(Idle), 1 1 Open(Head), 1 2 Open(Body), \
        1 3 Open(Room), 1 13 Open(Handshake), 1 14 Open(ProxyHeader), 2 3 Streaming(Room), \
        2 6 Streaming(Frame), 2 7 Streaming(Heartbeat), 2 8 Streaming(Ping), \
        2 9 Streaming(Farewell), 2 10 Streaming(Leave), 2 12 Streaming(Expiry), \
        3 3 Pending(Room), 3 5 Pending(Event), 3 9 Pending(Farewell), 3 12 Pending(Expiry), \
        4 3 Closing, 5 3 Refusing, 6 4 Lingering, 7 11 Delivering, \
        8 3 Copying(Room), 8 7 Copying(Heartbeat), 8 12 Copying(Expiry)";

    /// Older releases have the two bytes as two fields.
    #[test]
    fn a_phase_keeps_its_two_bytes() {
        let name_of = |[first, second]: [u8; 2]| {
            let numbers = format!("{first} {second} ");
            PHASES.split(", ").find_map(|phase| phase.strip_prefix(&numbers)).map(str::to_owned)
        };
        for bytes in (0..=u16::MAX).map(u16::to_be_bytes) {
            let mut input = Unpacker::new(&bytes, 0);
            let phase = Phase::unpack(&mut input).ok();
            assert_eq!(phase.map(|phase| format!("{phase:?}")), name_of(bytes), "{bytes:?}");
            if let Some(phase) = phase {
                let mut out = Packer::new(0);
                phase.pack(&mut out);
                assert!(input.is_at_end() && out.send(|packed, _| packed == bytes), "{phase:?}");
            }
        }
    }
}
