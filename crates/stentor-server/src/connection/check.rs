//! What must hold of a connection's record whenever nothing is being done with it.
//!
//! The record's parts are independent by their types, and most of their combinations mean nothing.
//! Those that do are listed here, and debug builds compare the record with the list after every
//! event.

use super::reader::{Extra, Subscription};
use super::{Connection, Phase, Wait, Work};
use crate::access::CONTROL;
use crate::memory::Usage;
use crate::stream::MANY;
use crate::stream::feeds::{FeedId, Member};
use crate::transport::Transport;
use stentor_io::Peer;

impl Connection {
    /// Panics if the record is in a state that none of its methods may leave it in.
    pub(crate) fn check(&self) {
        let Connection { work, extra, reader, phase, wait, .. } = self;
        let (work, extra) = (work.as_deref(), extra.as_deref());
        let waits = self.waits();
        assert!(self.role <= CONTROL, "{self:?}");
        assert!(work.is_none_or(|work| work.is_needed(*phase)), "unused work is kept: {self:?}");
        assert!(extra.is_none_or(|extra| !extra.is_empty()), "an empty box is kept: {self:?}");
        let is_streaming = *phase == Phase::Streaming;
        let reads = self.reads_feeds();
        assert!(reads || reader.feed == MANY, "it reads: {self:?}");
        let may_have_extra = is_streaming || *phase == Phase::Pending;
        assert!(may_have_extra || extra.is_none(), "it has what only readers have: {self:?}");
        let is_pending = extra.is_some_and(|extra| extra.pending.is_some());
        assert_eq!(is_pending, *phase == Phase::Pending, "{self:?}");
        let is_legal = match (phase, wait) {
            (Phase::Free, _) => work.is_none(),
            (Phase::Open, Wait::Request) => work.is_none(),
            (Phase::Open, Wait::Head) => work.is_none_or(|work| !waits && work.incoming.is_none()),
            (Phase::Open, Wait::Body) => !waits && work.is_some_and(|work| work.incoming.is_some()),
            (Phase::Open, Wait::Room) => waits,
            (Phase::Closing | Phase::Refusing, Wait::Room) => self.is_blocked(),
            (Phase::Lingering, Wait::Linger) => work.is_none(),
            (Phase::Pending, Wait::Pending) => !waits,
            (Phase::Pending, Wait::Room) => waits,
            (Phase::Pending, Wait::Farewell) => true,
            (Phase::Streaming, Wait::Frame) => !waits && extra.is_some_and(Extra::decodes),
            (Phase::Streaming, Wait::Heartbeat | Wait::Ping) => true,
            (Phase::Streaming, Wait::Room | Wait::Leave) => waits,
            (Phase::Streaming, Wait::Farewell) => true,
            _ => false,
        };
        assert!(is_legal, "an illegal state: {self:?}");
        if reads {
            self.check_reader();
        }
        // Whoever only waits for what others do is its record alone.
        let is_idle_reader = matches!(wait, Wait::Heartbeat | Wait::Ping) && reader.feed != MANY;
        if *phase == Phase::Free || *wait == Wait::Request || is_streaming && is_idle_reader {
            assert_eq!(self.usage(), Usage::default(), "{self:?}");
        }
    }

    fn check_reader(&self) {
        let reader = &self.reader;
        let none = Extra::default();
        let extra = self.extra.as_deref().unwrap_or(&none);
        assert!(!reader.commands || reader.feed == MANY, "{self:?}");
        assert!(extra.joining.is_none() || reader.commands, "{self:?}");
        assert!(extra.gap.is_none() || self.is_polling(), "{self:?}");
        assert!(extra.subscriptions.is_empty() || reader.feed == MANY, "{self:?}");
        let joining = extra.joining.as_ref().map(|joining| &joining.subscriptions[..]);
        let is_sorted = |all: &[Subscription]| all.is_sorted_by(|a, b| a.feed < b.feed);
        assert!(is_sorted(&extra.subscriptions) && joining.is_none_or(is_sorted), "{self:?}");
        // Nobody else reminds it of these.
        let is_catching_up = extra.joining.is_some() || extra.replay.is_some();
        assert!(!is_catching_up || self.waits(), "it is forgotten: {self:?}");
        let takes_input = reader.transport == Transport::LongPoll || self.waits();
        let input = self.work.as_deref().map_or(0, |work| work.input.len());
        assert!(input == 0 || takes_input, "input is left: {self:?}");
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

    /// How it reads, if it does.
    pub(crate) fn transport(&self) -> Option<Transport> {
        self.reads_feeds().then_some(self.reader.transport)
    }

    /// The line it stands in.
    pub(crate) fn line(&self) -> Option<crate::budget::Kind> {
        self.work.as_deref().and_then(|work| work.line.filter(|_| work.is_in_line))
    }

    /// Whether nothing will bring it back but its peer, or the end of the server's stop.
    pub(crate) fn has_no_deadline(&self) -> bool {
        self.wait == Wait::Leave
    }
}

impl Work {
    /// Whether there is something unfinished, each in the phase in which it may be.
    fn is_needed(&self, phase: Phase) -> bool {
        let is_needed = self.waits() || self.incoming.is_some() || !self.input.is_empty();
        let has_place = self.is_in_line == (self.line.is_some() && self.backlog.is_none());
        is_needed && has_place && (self.incoming.is_none() || phase == Phase::Open)
    }
}

impl Extra {
    fn decodes(&self) -> bool {
        self.decoder.is_some()
    }
}
