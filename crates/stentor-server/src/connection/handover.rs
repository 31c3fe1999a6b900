//! A connection as bytes, so that another process can go on with it.
//!
//! Each list names all fields: what is added to a record is packed, or is named as what begins
//! anew, or nothing compiles. Feeds go by their numbers, which stay the same.

use super::reader::{Extra, Joining, Subscription};
use super::work::{Incoming, Work};
use super::{Connection, Origin, Phase, Wait};
use crate::budget::Kind;
use crate::context::Context;
use crate::endpoint::Sink;
use crate::exchange::Awaits;
use crate::stream::MANY;
use crate::stream::feeds::{Feeds, Member};
use stentor_io::Peer;
use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;

// The worker sets the timer, and counts the connection by its address a little later.
packed!(struct Connection { role, origin, phase, wait, reader, extra, work }
    without { timer, counted });
packed!(enum Phase {
    0 => Free, 1 => Open, 2 => Streaming, 3 => Pending, 4 => Closing, 5 => Refusing,
    6 => Lingering, 7 => Delivering, 8 => Copying,
});
packed!(enum Origin { 0 => Unix, 1 => Client, 2 => Proxy, 3 => Probe });
packed!(enum Wait {
    0 => Request, 1 => Head, 2 => Body, 3 => Room, 4 => Linger, 5 => Pending, 6 => Frame,
    7 => Heartbeat, 8 => Ping, 9 => Farewell, 10 => Leave, 11 => Acknowledgement,
    12 => Expiry, 13 => Handshake, 14 => ProxyHeader,
});
packed!(struct Work { input, scanned, incoming, backlog, line, is_in_line } without { since_us });
packed!(struct Extra {
    subscriptions, joining, replay, decoder, pending, gap, uncovered, partial,
});
packed!(struct Subscription { feed, stamp });
packed!(struct Joining { subscriptions, start, seq });

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
        let is_stopping = matches!(connection.wait, Wait::Farewell | Wait::Leave);
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
        self.wait_in(Kind::Replays);
        self.work().is_in_line = true;
        cx.budget.wait(Kind::Replays, peer);
    }
}
