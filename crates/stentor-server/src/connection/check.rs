//! What must hold of a connection's record whenever nothing is being done with it.
//!
//! The record's parts are independent by their types, and most of their combinations mean nothing.
//! Those that do are listed here. Debug builds compare the record with the list after every event,
//! and every build does so with a record that comes from another process.

use super::reader::{Extra, Subscription};
use super::work::Work;
use super::{AnswerWait, Connection, CopyWait, Phase, RequestWait, StreamWait};
use crate::listeners::LISTENERS;
use crate::stream::MANY;
use crate::stream::feeds::{FeedId, Member};
use crate::stream::format::Transport;
use stentor_io::{PROXIED, Peer};

impl Connection {
    /// Panics if the record is in a state that none of its methods may leave it in.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self) {
        if let Err(flaw) = self.is_sound() {
            panic!("{flaw} {self:?}");
        }
    }

    /// Whether the record is in a state in which its methods may leave it.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn is_sound(&self) -> Result<(), &'static str> {
        let Connection { work, extra, reader, phase, .. } = self;
        let (work, extra) = (work.as_deref(), extra.as_deref());
        let waits = self.waits();
        ensure(usize::from(self.role()) < LISTENERS.len(), "No listener has this number.")?;
        ensure(work.is_none_or(|work| work.is_needed(*phase)), "Unused work is kept.")?;
        ensure(extra.is_none_or(|extra| !extra.is_empty()), "An empty box is kept.")?;
        let is_streaming = matches!(phase, Phase::Streaming(_));
        let reads = self.reads_feeds();
        ensure(reads || reader.feed == MANY, "It reads.")?;
        ensure(reads || self.is_copying() || !reader.has_pass, "It has a pass and does not read.")?;
        let may_have_extra = is_streaming || self.is_pending();
        ensure(may_have_extra || extra.is_none(), "It has what only readers have.")?;
        let is_pending = extra.is_some_and(|extra| extra.pending.is_some());
        ensure(is_pending == self.is_pending(), "It waits for no answer, or none comes.")?;
        let is_legal = match phase {
            Phase::Free | Phase::Lingering | Phase::Delivering => work.is_none(),
            Phase::Open(RequestWait::Idle) => work.is_none(),
            Phase::Open(RequestWait::Handshake) => work.is_none() && self.is_secured(),
            Phase::Open(RequestWait::ProxyHeader) => work.is_none() && self.role & PROXIED != 0,
            Phase::Open(RequestWait::Head) => {
                work.is_none_or(|work| !waits && work.incoming.is_none())
            }
            Phase::Open(RequestWait::Body) => {
                !waits && work.is_some_and(|work| work.incoming.is_some())
            }
            Phase::Closing | Phase::Refusing => self.is_blocked(),
            Phase::Open(RequestWait::Room)
            | Phase::Pending(AnswerWait::Room)
            | Phase::Copying(CopyWait::Room)
            | Phase::Streaming(StreamWait::Room | StreamWait::Leave) => waits,
            Phase::Pending(AnswerWait::Expiry)
            | Phase::Copying(CopyWait::Expiry)
            | Phase::Streaming(StreamWait::Expiry) => !waits && reader.has_pass,
            Phase::Pending(AnswerWait::Event) | Phase::Copying(CopyWait::Heartbeat) => !waits,
            Phase::Streaming(StreamWait::Frame) => !waits && extra.is_some_and(Extra::decodes),
            Phase::Streaming(StreamWait::Heartbeat | StreamWait::Ping | StreamWait::Farewell)
            | Phase::Pending(AnswerWait::Farewell) => true,
        };
        ensure(is_legal, "An illegal state.")?;
        if reads {
            self.reads_soundly()?;
        }
        // Whoever only waits for what others do is its record alone.
        let is_alone = match phase {
            Phase::Free | Phase::Open(RequestWait::Idle) => true,
            Phase::Streaming(StreamWait::Heartbeat | StreamWait::Ping) => reader.feed != MANY,
            // Its token may end while a frame arrives.
            Phase::Streaming(StreamWait::Expiry) => {
                reader.feed != MANY && !extra.is_some_and(Extra::decodes)
            }
            _ => false,
        };
        ensure(!is_alone || self.owned_bytes() == 0, "It keeps something while it waits.")
    }

    fn reads_soundly(&self) -> Result<(), &'static str> {
        let reader = &self.reader;
        let none = Extra::default();
        let extra = self.extra.as_deref().unwrap_or(&none);
        ensure(!reader.commands() || reader.feed == MANY, "It commands, and reads one feed.")?;
        ensure(extra.joining.is_none() || reader.commands(), "It joins without a command.")?;
        let keeps_none = extra.gap.is_none() && extra.uncovered.is_none();
        ensure(keeps_none || self.is_polling(), "Something is kept that is told at once.")?;
        let is_of_many = extra.subscriptions.is_empty() || reader.feed == MANY;
        ensure(is_of_many, "It reads one feed and several.")?;
        let joining = extra.joining.as_ref().map(|joining| &joining.subscriptions[..]);
        let is_sorted = |all: &[Subscription]| all.is_sorted_by(|a, b| a.feed < b.feed);
        let are_sorted = is_sorted(&extra.subscriptions) && joining.is_none_or(is_sorted);
        let are_sorted = are_sorted && extra.partial.is_sorted();
        ensure(are_sorted, "Subscriptions are out of order.")?;
        // Nobody else reminds it of these.
        let is_catching_up = extra.joining.is_some() || extra.replay.is_some();
        ensure(!is_catching_up || self.waits(), "It is forgotten.")?;
        let takes_input = reader.transport == Transport::LongPoll || self.waits();
        let input = self.work.as_deref().map_or(0, |work| work.input.len());
        ensure(input == 0 || takes_input, "Input is left.")
    }

    /// What it reads, or is about to: the feeds, and its places in their lists.
    pub(crate) fn memberships(&self, peer: Peer) -> Vec<(FeedId, Member)> {
        let mut all = Vec::new();
        if self.reader.feed != MANY {
            all.push((self.reader.feed, Member { peer, stamp: self.reader.stamp }));
        }
        if let Some(extra) = self.extra.as_deref() {
            let joining = extra.joining.iter().flat_map(|joining| &joining.subscriptions);
            let subscriptions = extra.subscriptions.iter().chain(joining);
            all.extend(subscriptions.map(|read| (read.feed, Member { peer, stamp: read.stamp })));
        }
        all
    }

    /// Whether it was let in by a token.
    pub(crate) fn has_pass(&self) -> bool {
        self.reader.has_pass
    }

    /// The kind of the reader, and the event that it waits for.
    #[cfg(test)]
    pub(crate) fn reading_state(&self) -> (&'static str, &'static str) {
        let what = match self.phase {
            Phase::Streaming(_) => "stream",
            Phase::Pending(_) => "poll",
            Phase::Copying(_) => "transfer",
            _ => "nothing",
        };
        (
            what,
            if self.is_blocked() {
                "room"
            } else if self.waits() {
                "queue"
            } else {
                "event"
            },
        )
    }

    /// How it reads, if it does.
    pub(crate) fn transport(&self) -> Option<Transport> {
        self.reads_feeds().then_some(self.reader.transport)
    }

    /// Whether nothing will bring it back but its peer, or the end of the server's stop.
    #[cfg(debug_assertions)]
    pub(crate) fn has_no_deadline(&self) -> bool {
        self.phase == Phase::Streaming(StreamWait::Leave)
    }
}

impl Work {
    /// Whether there is something unfinished, each in the phase in which it may be.
    fn is_needed(&self, phase: Phase) -> bool {
        let is_needed = self.waits() || self.incoming.is_some() || !self.input.is_empty();
        let has_place = self.place.is_some() == (self.queue.is_some() && self.backlog.is_none());
        is_needed && has_place && (self.incoming.is_none() || matches!(phase, Phase::Open(_)))
    }
}

impl Extra {
    fn decodes(&self) -> bool {
        self.decoder.is_some()
    }
}

fn ensure(is_so: bool, flaw: &'static str) -> Result<(), &'static str> {
    if is_so { Ok(()) } else { Err(flaw) }
}
