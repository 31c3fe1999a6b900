//! A connection as bytes, so that another process can go on with it.
//!
//! Each list names all fields: what is added to a record is packed, or is named as what begins
//! anew, or nothing compiles. Feeds go by their numbers, which stay the same.

use super::http::{Http, Incoming};
use super::poll::Poll;
use super::reader::Reading;
use super::state::State;
use super::work::Unfinished;
use super::{Connection, Origin, Phase, RequestWait, StreamWait};
use crate::budget::WorkClass;
use crate::context::Context;
use crate::phase::ReplyWait;
use crate::stream::feeds::Feeds;
use stentor_io::Peer;
use stentor_wire::pack::{self, MISFIT, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;

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
packed!(enum ReplyWait { 3 => Room, 5 => Event, 12 => Expiry });

/// A packed record has the parts of every state. The parts of other states are packed as none, and
/// must be unpacked as none. The worker sets the timer, and counts the connection by its address a
/// little later.
impl Packed for Connection {
    const FORMAT: u64 = pack::format(
        "Connection role origin phase reading work",
        &[
            Origin::FORMAT,
            Phase::FORMAT,
            Reading::FORMAT,
            Poll::FORMAT,
            <Option<Box<Incoming>>>::FORMAT,
            Unfinished::FORMAT,
        ],
    );

    fn pack(&self, out: &mut Packer) {
        let Connection { work, state, stamp, role, origin, timer: _, counted: _ } = self;
        let (http, none) = (self.http(), Reading::none());
        let poll = if let State::Poll(poll) = state { Some(&**poll) } else { None };
        let reading = self.reading().unwrap_or(&none);
        role.pack(out);
        origin.pack(out);
        self.phase().pack(out);
        reading.pack(*stamp, out);
        reading.pack_extra(poll, out);
        let has_work = !work.is_none() || http.is_some_and(|http| http.body().is_some());
        has_work.pack(out);
        if has_work {
            (work.input().len() as u32).pack(out);
            out.put(work.input());
            http.map_or(0, |http| u64::from(http.scanned())).pack(out);
            let body = http.and_then(Http::body);
            body.is_some().pack(out);
            body.iter().for_each(|body| body.pack(out));
            let rest = if let State::Body(making) = state { making.rest() } else { Vec::new() };
            work.pack_wait(&rest, out);
        }
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Connection> {
        let (role, origin) = (Packed::unpack(input)?, Packed::unpack(input)?);
        let phase = Phase::unpack(input)?;
        let (mut reading, stamp) = Reading::unpack(input)?;
        let poll = reading.unpack_extra(input)?;
        let (mut work, mut scanned, mut body) = (Unfinished::default(), 0, None);
        if bool::unpack(input)? {
            let received = Vec::<u8>::unpack(input)?;
            scanned = u64::unpack(input)?;
            body = Option::<Box<Incoming>>::unpack(input)?;
            if scanned > received.len() as u64 {
                return Err(MISFIT);
            }
            work = Unfinished::unpack_wait(received, input)?;
        }
        let is_http = matches!(phase, Phase::Open(_));
        let reads = matches!(phase, Phase::Streaming(_) | Phase::Pending(_));
        if !is_http && (body.is_some() || scanned != 0) || !reads && !reading.is_none() {
            return Err(MISFIT);
        }
        let state = match (phase, poll) {
            (Phase::Open(wait), None) => State::Http(Http::new(wait, scanned as u32, body)),
            (Phase::Streaming(wait), None) => {
                // A server that stops packs no worker.
                if matches!(wait, StreamWait::Farewell | StreamWait::Leave) {
                    return Err(MISFIT);
                }
                reading.resume_with(wait);
                State::Stream(reading)
            }
            (Phase::Pending(wait), Some(parts)) => {
                State::Poll(Box::new(Poll::new(reading, wait, parts)))
            }
            (Phase::Closing, None) => State::Closing,
            (Phase::Refusing, None) => State::Refusing,
            (Phase::Lingering, None) => State::Lingering,
            (Phase::Delivering, None) => State::Delivering,
            // A follower's connection is packed as one that closes.
            _ => return Err(MISFIT),
        };
        Ok(Connection { work, state, stamp, role, origin, ..Connection::default() })
    }
}

impl Connection {
    /// The worker has heard of everything up to this number: if nothing is due to the reader, it
    /// has seen all of it.
    pub(crate) fn note_heard(&mut self, cx: &Context, seq: u64) {
        if let Some(reading) = self.reading_mut() {
            reading.note_heard(cx, seq);
        }
    }

    /// Whether the connection waits for the outcome of a change, or for a look at a file.
    pub(crate) fn awaits_commit(&self) -> bool {
        matches!(self.state, State::Pending(_)) || self.http().is_some_and(Http::awaits_commit)
    }

    /// A connection of another process, without its place among the readers of its feeds.
    pub(crate) fn unpack_sound(input: &mut Unpacker<'_>) -> Unpacked<Connection> {
        let connection = Connection::unpack(input)?;
        connection.is_sound()?;
        Ok(connection)
    }

    /// Enters the feeds that it reads.
    pub(crate) fn enter_feeds(&self, feeds: &mut Feeds, peer: Peer) -> Unpacked<()> {
        let enters = |reading: &Reading| reading.enter_feeds(feeds, peer, self.stamp);
        if self.reading().is_none_or(enters) { Ok(()) } else { Err(MISFIT) }
    }

    /// Whether something may be due to it that the log does not have, and nothing brings it there.
    pub(crate) fn is_behind(&self, cx: &Context) -> bool {
        self.reading().is_some_and(|reading| !reading.log_is_complete(cx)) && !self.waits()
    }

    /// Has it look into history when its turn comes.
    pub(crate) fn catch_up(&mut self, cx: &mut Context) {
        self.work.wait_in(WorkClass::CatchUp);
        self.set_place(Some(cx.load.budget.enter(WorkClass::CatchUp, cx.peer, cx.peer)));
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
        3 3 Pending(Room), 3 5 Pending(Event), 3 12 Pending(Expiry), \
        4 3 Closing, 5 3 Refusing, 6 4 Lingering, 7 11 Delivering, \
        8 3 Copying(Room), 8 5 Copying(Event), 8 12 Copying(Expiry)";

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
