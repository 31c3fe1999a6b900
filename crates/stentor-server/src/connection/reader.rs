//! The common part of a stream and a long-poll: a cursor, the feeds that they read, and a replay of
//! missed messages.

mod check;
mod stream;
mod websocket;

use super::poll::{Poll, PollParts};
use super::state::State;
use super::{Connection, StreamWait};
use crate::access::sight::SightOf;
use crate::budget::Permit;
use crate::context::Context;
use crate::exchange::HeldPoll;
use crate::phase::ReplyWait;
use crate::problem::command_ok;
use crate::stream::feeds::{FeedId, Feeds, Member};
use crate::stream::format::Transport;
use crate::stream::replay::{Replay, Sources, Wants};
use crate::stream::{
    COMMANDS, ENVELOPED, Gap, HAS_PASS, MANY, Opening, PARTIAL, ReaderTraits, Start,
};
use std::collections::HashSet;
use std::sync::Arc;
use stentor_hub::{Event, Filter, Mode, Span};
use stentor_io::Peer;
use stentor_wire::events::CommandId;
use stentor_wire::notice;
use stentor_wire::pack::{self, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;
use stentor_wire::websocket::{Decoder, Opcode, frame};

/// The reader of a connection, in 24 bytes. It has the event that the deadline of a stream is for;
/// a long-poll has an event of its own.
#[derive(Debug)]
pub(super) struct Reading {
    /// Everything up to this number was sent, or passed over by conflation.
    cursor: u64,
    extra: Option<Box<Extra>>,
    /// The one feed it reads; [`MANY`] if there may be several.
    feed: FeedId,
    traits: ReaderTraits,
    wait: StreamWait,
}

/// What few readers have, or none for long.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// What it reads if that is not one feed, in the order of the feeds' numbers.
    subscriptions: Vec<Subscription>,
    /// Feeds it has entered and will read once it has caught up with those it reads already.
    joining: Option<Joining>,
    replay: Option<Box<Replay>>,
    /// What the client is told once the replay of its command is over.
    reply: Option<Reply>,
    /// A frame that is not complete.
    decoder: Option<Box<Decoder>>,
    /// Of several feeds those of which it was told that it may not see all, in order.
    partial: Vec<FeedId>,
}

/// The reply to a command that subscribed to something.
#[derive(Debug)]
struct Reply {
    id: Option<CommandId>,
}

packed!(struct Reply { id });

/// One of several feeds that are read.
#[derive(Clone, Copy, Debug)]
struct Subscription {
    feed: FeedId,
    stamp: u32,
}

/// Subscriptions that are about to count.
#[derive(Debug)]
struct Joining {
    subscriptions: Vec<Subscription>,
    start: Start,
    /// Once it has been sent everything up to this number, they do.
    seq: u64,
    /// The id of the command.
    id: Option<CommandId>,
}

packed!(struct Subscription { feed, stamp });
packed!(struct Joining { subscriptions, start, seq, id });

impl Extra {
    fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
            && self.joining.is_none()
            && self.reply.is_none()
            && self.replay.is_none()
            && self.decoder.is_none()
            && self.partial.is_empty()
    }

    /// Whether it reads feeds besides those whose history it is sent: new subscriptions catch up
    /// with the others.
    fn reads_more(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.feeds().len() < self.subscriptions.len())
    }

    /// Whether history or a subscription is still due.
    fn catches_up(&self) -> bool {
        self.joining.is_some() || self.replay.is_some()
    }

    /// All that it reads, or is about to.
    fn all(&self) -> impl Iterator<Item = &Subscription> {
        let joining = self.joining.iter().flat_map(|joining| &joining.subscriptions);
        self.subscriptions.iter().chain(joining)
    }

    /// What it takes on the heap, in bytes, the members in the lists of feeds included.
    fn own_bytes(&self) -> usize {
        let joining = self.joining.as_ref().map_or(0, |joining| joining.subscriptions.capacity());
        let subscriptions = self.subscriptions.capacity() + joining;
        size_of::<Extra>()
            + subscriptions * (size_of::<Subscription>() + size_of::<Member>())
            + self.replay.as_ref().map_or(0, |replay| replay.own_bytes())
            + self.decoder.as_ref().map_or(0, |decoder| decoder.own_bytes())
            + self.partial.capacity() * size_of::<FeedId>()
    }
}

impl Reading {
    fn new(cursor: u64, traits: ReaderTraits) -> Reading {
        Reading { cursor, extra: None, feed: MANY, traits, wait: StreamWait::Heartbeat }
    }

    /// The reader that a connection without a reader packs.
    pub(super) fn none() -> Reading {
        Reading::new(0, ReaderTraits::new(Transport::Sse, Mode::ByRule, false))
    }

    /// Whether it is as [`Reading::none`].
    pub(super) fn is_none(&self) -> bool {
        self.feed == MANY && self.extra.is_none() && !self.traits.has(HAS_PASS)
    }

    pub(super) fn cursor(&self) -> u64 {
        self.cursor
    }

    pub(super) fn traits(&self) -> ReaderTraits {
        self.traits
    }

    pub(super) fn set_trait(&mut self, bit: u8, is_so: bool) {
        self.traits.set(bit, is_so);
    }

    pub(super) fn wait(&self) -> StreamWait {
        self.wait
    }

    pub(super) fn resume_with(&mut self, wait: StreamWait) {
        self.wait = wait;
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Gives back what is no longer needed.
    pub(super) fn shrink(&mut self) {
        self.extra.take_if(|extra| extra.is_empty());
    }

    pub(super) fn replays(&self) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.replay.is_some())
    }

    fn catches_up(&self) -> bool {
        self.extra.as_deref().is_some_and(Extra::catches_up)
    }

    /// Whether the first messages of a subscription are due before more commands.
    pub(super) fn is_joining(&self) -> bool {
        self.traits.has(COMMANDS) && self.catches_up()
    }

    pub(super) fn own_bytes(&self) -> usize {
        self.extra.as_deref().map_or(0, Extra::own_bytes)
    }

    /// What its feeds take, were it their only reader; of one feed that is not much.
    pub(super) fn feeds_bytes(&self) -> usize {
        self.extra.as_deref().map_or(0, |extra| extra.subscriptions.len() * FEED_BYTES)
    }

    fn subscriptions(&self) -> &[Subscription] {
        self.extra.as_deref().map_or(&[], |extra| &extra.subscriptions)
    }

    fn reads(&self, feed: FeedId) -> bool {
        self.subscriptions().binary_search_by_key(&feed, |read| read.feed).is_ok()
    }

    /// What it reads.
    pub(super) fn feeds(&self) -> Box<[FeedId]> {
        if self.feed != MANY {
            return [self.feed].into();
        }
        self.subscriptions().iter().map(|read| read.feed).collect()
    }

    /// What it reads, or is about to: the feeds, and its places in their lists. `stamp` is that of
    /// its connection.
    pub(super) fn memberships(&self, peer: Peer, stamp: u32) -> Vec<(FeedId, Member)> {
        let one = (self.feed != MANY).then_some((self.feed, Member { peer, stamp }));
        let many = self.extra.iter().flat_map(|extra| extra.all());
        let many = many.map(|read| (read.feed, Member { peer, stamp: read.stamp }));
        one.into_iter().chain(many).collect()
    }

    /// Enters the feeds of `filters`. Returns them in the order of their numbers. The permit is
    /// that of the request or the command which names them.
    fn join(
        cx: &mut Context,
        last_stamp: &mut u32,
        filters: &[Filter],
        _: &Permit,
    ) -> Vec<Subscription> {
        cx.load.budget.cost += filters.len() * JOIN_COST;
        let join = |filter| {
            *last_stamp = last_stamp.wrapping_add(1);
            let stamp = *last_stamp;
            let feed =
                cx.streams.feeds.join(&cx.shared.hub, filter, Member { peer: cx.peer, stamp });
            Subscription { feed, stamp }
        };
        let mut subscriptions: Vec<Subscription> = filters.iter().map(join).collect();
        subscriptions.sort_unstable_by_key(|subscription| subscription.feed);
        subscriptions
    }

    /// It is over for whatever reason: leaves the feeds.
    pub(super) fn leave(self, cx: &mut Context) {
        if self.traits.has(HAS_PASS) {
            cx.access.passes.take(cx.peer);
        }
        self.traits.transport.readers(&cx.stats).sub(1);
        let hub = Arc::clone(&cx.shared.hub);
        if self.feed != MANY {
            cx.streams.feeds.leave(&hub, self.feed);
        }
        for read in self.extra.iter().flat_map(|extra| extra.all()) {
            cx.streams.feeds.leave(&hub, read.feed);
        }
    }

    /// Of these feeds it is told that it may not see all, if it reads them.
    fn note_partial(&mut self, cx: &Context, filters: &[Filter]) {
        let partial = &mut self.extra().partial;
        partial.extend(filters.iter().filter_map(|filter| cx.streams.feeds.id(filter)));
        partial.sort_unstable();
        partial.dedup();
    }

    /// Whether it was told of a feed that it may not see all of it.
    pub(super) fn is_partial(&self, feed: FeedId) -> bool {
        match self.extra.as_deref() {
            // mutation: partial-pattern
            Some(extra) if self.feed == MANY => extra.partial.binary_search(&feed).is_ok(),
            _ => self.traits.has(PARTIAL),
        }
    }

    /// Whether a member of a feed's list stands for this reader as it is now. `stamp` is that of
    /// its connection.
    pub(super) fn is_member(&self, feed: FeedId, member_stamp: u32, stamp: u32) -> bool {
        let is_among = |all: &[Subscription]| {
            let found = all.binary_search_by_key(&feed, |subscription| subscription.feed);
            found.is_ok_and(|at| all[at].stamp == member_stamp)
        };
        let reads = |extra: &Extra| {
            let joining = extra.joining.as_ref().map(|joining| &joining.subscriptions[..]);
            is_among(&extra.subscriptions) || joining.is_some_and(is_among)
        };
        (self.feed, stamp) == (feed, member_stamp) || self.extra.as_deref().is_some_and(reads)
    }

    /// Whether the log has everything behind the cursor.
    pub(super) fn log_is_complete(&self, cx: &Context) -> bool {
        let (feeds, cursor) = (&cx.streams.feeds, self.cursor);
        if self.feed != MANY {
            return feeds.is_complete(self.feed, cursor);
        }
        let Some(extra) = self.extra.as_deref() else { return true };
        feeds.has_forgotten_nothing(cursor)
            || extra.subscriptions.iter().all(|read| feeds.is_complete(read.feed, cursor))
    }

    /// Whether one of several feeds has something behind the cursor.
    pub(super) fn has_events(&self, cx: &Context) -> bool {
        match self.feed {
            MANY => self.due_to_many(&cx.streams.feeds).next().is_some(),
            feed => cx.streams.feeds.latest_seq(feed) > self.cursor,
        }
    }

    /// Returns the events behind the cursor of a reader of several feeds.
    fn due_to_many<'c>(
        &'c self,
        feeds: &'c Feeds,
    ) -> impl DoubleEndedIterator<Item = &'c Event> + Clone {
        feeds.due_to_many(self.cursor, |feed| self.reads(feed))
    }

    /// Whether the one topic has another value than the one that was looked at. A client that
    /// `expects_value` knows one.
    pub(super) fn has_new_value(&mut self, cx: &Context, expects_value: bool) -> bool {
        let Reading { feed, cursor, .. } = *self;
        if cx.streams.feeds.is_complete(feed, cursor) {
            return cx.streams.feeds.latest_seq(feed) > cursor;
        }
        // The feed began after the value was looked at, and something may have come in between; or
        // what came is not in the log.
        self.cursor = cursor.max(cx.shared.hub.seq());
        let Filter::Topic(topic) = cx.streams.feeds.filter(feed) else { return false };
        let expects_value = expects_value && cursor <= cx.shared.hub.seq();
        cx.shared
            .hub
            .with_value(topic, |value| value.map_or(expects_value, |value| value.seq() > cursor))
    }

    /// The worker has heard of everything up to this number: if nothing is due to the reader, it
    /// has seen all of it.
    pub(super) fn note_heard(&mut self, cx: &Context, seq: u64) {
        if !self.has_events(cx) && self.log_is_complete(cx) && !self.catches_up() {
            self.cursor = self.cursor.max(seq);
        }
    }

    /// A gap for which the transport has no word goes to `kept`.
    pub(super) fn begin_replay(
        &mut self,
        cx: &mut Context,
        feeds: Box<[FeedId]>,
        start: Start,
        upto: u64,
        kept: &mut Option<Gap>,
    ) {
        let start = start.in_life_of(&cx.shared.hub);
        if let Start::Gap(gap) = start {
            self.tell_gap(cx, gap, kept);
        }
        let (since, mode, wants) = match start {
            Start::After(since) => (since, self.traits.mode(), Wants::Missed),
            Start::Earliest => (0, self.traits.mode(), Wants::History),
            Start::Values | Start::Gap(_) => (0, Mode::Latest, Wants::Values),
        };
        let span = Span { since, upto, mode };
        self.extra().replay = Some(Box::new(Replay::new(feeds, span, wants)));
    }

    /// Says that messages are missing.
    fn tell_gap(&self, cx: &mut Context, gap: Gap, kept: &mut Option<Gap>) {
        cx.stats.gaps.add(1);
        match self.traits.transport.manner().notice {
            Some(write) => write(cx.out.bytes(), None, &gap.notice()),
            None => *kept = Some(gap),
        }
    }

    /// Tells a reader that was sent nothing where it is: were it to lose the connection before the
    /// first message, it could not say from where to resume, or would hear of the same gap again.
    fn tell_cursor(&self, cx: &mut Context) {
        // A raw WebSocket carries data alone.
        let is_raw = self.traits.transport == Transport::WebSocket && !self.traits.has(ENVELOPED);
        let Some(write) = self.traits.transport.manner().notice.filter(|_| !is_raw) else { return };
        let id = cx.shared.hub.id(self.cursor).text();
        write(cx.out.bytes(), Some(id.as_str()), &notice::cursor(id.as_str()));
    }

    /// Has the replay find its next part, and tells of a gap before it. Returns up to which number
    /// the reader has then seen everything; `None` if it takes another turn.
    pub(super) fn find_missed(
        &mut self,
        cx: &mut Context,
        bytes_max: usize,
        permit: &Permit,
        kept: &mut Option<Gap>,
    ) -> Option<u64> {
        cx.streams.found.clear();
        let extra = self.extra.as_deref_mut()?;
        let reads_more = extra.reads_more();
        let Extra { subscriptions, replay: Some(replay), .. } = extra else { return None };
        let mut cost = 0;
        let sources = Sources {
            hub: &cx.shared.hub,
            feeds: &cx.streams.feeds,
            walks: &mut cx.streams.walks,
            cost: &mut cost,
        };
        let part = replay.find(sources, bytes_max, &mut cx.streams.found, permit);
        if reads_more {
            // What is of a feed that was read before, the reader was sent by that.
            cost += cx.streams.found.len() * LOGGED_COST;
            let was_read = |feed| {
                let is_read = subscriptions.binary_search_by_key(&feed, |read| read.feed).is_ok();
                is_read && replay.feeds().binary_search(&feed).is_err()
            };
            // mutation: read-by-two-names
            cx.streams.found.retain(|event| !cx.streams.feeds.is_of_any(event.topic(), was_read));
        }
        if self.traits.has(PARTIAL) {
            let sight = SightOf::new(&cx.settings.access.topics, cx.access.passes.get(cx.peer));
            cost += cx.streams.found.len() * LOGGED_COST;
            cx.streams.found.retain(|event| sight.covers(event.topic()));
        }
        let since = cx.shared.hub.id(replay.since_seq());
        cx.load.budget.cost += cost;
        let part = part?;
        if let Some(reason) = replay.take_gap(&part) {
            self.tell_gap(cx, Gap { reason, since: Some(since) }, kept);
        }
        Some(part.upto_seq)
    }

    /// Everything up to a number was sent of what was missed, in so many messages.
    pub(super) fn advance_replay(&mut self, cx: &mut Context, upto_seq: u64, messages: usize) {
        let Some(extra) = self.extra.as_deref_mut() else { return };
        let reads_more = extra.reads_more();
        let Some(replay) = &mut extra.replay else { return };
        replay.advance(upto_seq, messages);
        // A message may have been cut short: where the reader is then, it is told behind the rest.
        let tells_later = (reads_more || extra.reply.is_some()) && messages > 0;
        if replay.is_over() && !tells_later {
            let (since_seq, knows_cursor) = (replay.since_seq(), replay.has_told_cursor());
            self.cursor = self.cursor.max(since_seq);
            extra.replay = None;
            if let Some(Reply { id }) = extra.reply.take() {
                let cursor = cx.shared.hub.id(self.cursor).text();
                let ok = command_ok(id.as_ref(), Some(cursor.as_str()));
                frame(cx.out.bytes(), Opcode::Text, false, ok.as_bytes());
                return;
            }
            // Behind newer messages older ones came: the last id is to be the newest again.
            if !knows_cursor || reads_more {
                self.tell_cursor(cx);
            }
        }
    }

    /// The parts of a reader that are packed first. `stamp` is that of its connection.
    /// The form of [`Reading::pack`] and [`Reading::pack_extra`].
    pub(super) const FORMAT: u64 = pack::format(
        "Reading cursor feed stamp traits subscriptions joining reply replay decoder poll partial",
        &[
            ReaderTraits::FORMAT,
            Subscription::FORMAT,
            Joining::FORMAT,
            Reply::FORMAT,
            Replay::FORMAT,
            Decoder::FORMAT,
            <Vec<FeedId>>::FORMAT,
        ],
    );

    pub(super) fn pack(&self, stamp: u32, out: &mut Packer) {
        self.cursor.pack(out);
        self.feed.pack(out);
        stamp.pack(out);
        self.traits.pack(out);
    }

    pub(super) fn unpack(input: &mut Unpacker<'_>) -> Unpacked<(Reading, u32)> {
        let (cursor, feed) = (u64::unpack(input)?, FeedId::unpack(input)?);
        let stamp = u32::unpack(input)?;
        Ok((Reading { feed, ..Reading::new(cursor, ReaderTraits::unpack(input)?) }, stamp))
    }

    /// The rest, with what a long-poll has to itself in between.
    pub(super) fn pack_extra(&self, poll: Option<&Poll>, out: &mut Packer) {
        let none = Extra::default();
        let has_extra = self.extra.is_some() || poll.is_some();
        has_extra.pack(out);
        if has_extra {
            let extra = self.extra.as_deref().unwrap_or(&none);
            let Extra { subscriptions, joining, replay, reply, decoder, partial } = extra;
            subscriptions.pack(out);
            joining.pack(out);
            reply.pack(out);
            replay.pack(out);
            decoder.pack(out);
            Poll::pack_parts(poll, out);
            partial.pack(out);
        }
    }

    /// Takes the rest. Returns the parts of a long-poll.
    pub(super) fn unpack_extra(&mut self, input: &mut Unpacker<'_>) -> Unpacked<Option<PollParts>> {
        if !bool::unpack(input)? {
            return Ok(None);
        }
        let mut extra = Extra {
            subscriptions: Packed::unpack(input)?,
            joining: Packed::unpack(input)?,
            reply: Packed::unpack(input)?,
            replay: Packed::unpack(input)?,
            decoder: Packed::unpack(input)?,
            partial: Vec::new(),
        };
        let parts = Poll::unpack_parts(input)?;
        extra.partial = Packed::unpack(input)?;
        self.extra = Some(Box::new(extra));
        self.shrink();
        Ok(parts)
    }

    /// Enters the feeds that it reads, in a process that has taken it over. Returns whether they
    /// are there, with those that its replay is of.
    pub(super) fn enter_feeds(&self, feeds: &mut Feeds, peer: Peer, stamp: u32) -> bool {
        if self.extra.is_none() && self.feed != MANY {
            // Most readers are like this.
            return feeds.enter(self.feed, Member { peer, stamp });
        }
        let all = self.memberships(peer, stamp);
        let replay = self.extra.as_deref().and_then(|extra| extra.replay.as_deref());
        let replayed = replay.map_or(&[][..], |replay| replay.feeds());
        let is_read = |feed| all.iter().any(|(read, _)| read == feed);
        replayed.iter().all(is_read) && all.iter().all(|&(feed, member)| feeds.enter(feed, member))
    }
}

impl Connection {
    /// The head of the answer is written, or the answer waits: enters the feeds. What is due is
    /// sent later. Never inlined: its large stack frame would cost every request.
    #[inline(never)]
    pub(super) fn begin_reading(
        &mut self,
        cx: &mut Context,
        opening: Opening,
        held: Option<HeldPoll>,
        permit: &Permit,
    ) {
        let Opening { mut traits, cursor, mut filters, start, grant, part, access } = opening;
        traits.set(HAS_PASS, grant.is_some());
        traits.set(PARTIAL, !part.is_empty());
        let reading = Reading::new(cursor, traits);
        let state = match held {
            Some(held) => {
                let parts = (held, None, access.clone().map(String::from));
                State::Poll(Box::new(Poll::new(reading, ReplyWait::Event, parts)))
            }
            None => State::Stream(reading),
        };
        self.enter(cx, state);
        if let Some(grant) = grant {
            cx.access.passes.give(cx.peer, &grant);
        }
        traits.transport.readers(&cx.stats).add(1);
        if let (Some(json), Some(write)) = (access, traits.transport.manner().notice) {
            write(cx.out.bytes(), None, &json);
        }
        // Named twice, it is read once.
        let mut named = HashSet::new();
        filters.retain(|filter| named.insert(filter.clone()));
        let subscriptions = Reading::join(cx, &mut self.stamp, &filters, permit);
        let Some(reading) = self.reading_mut() else { return };
        match &subscriptions[..] {
            [only] if !traits.has(COMMANDS) => reading.feed = only.feed,
            [] => return,
            _ => {
                reading.extra().subscriptions = subscriptions;
                reading.note_partial(cx, &part);
            }
        }
        match &mut self.state {
            State::Poll(poll) => poll.begin_replay(cx, start),
            State::Stream(reading) => {
                let (feeds, upto) = (reading.feeds(), cx.shared.hub.seq());
                reading.begin_replay(cx, feeds, start, upto, &mut None);
            }
            _ => {}
        }
    }

    /// Whether a member of a feed's list stands for this connection as it is now.
    pub(crate) fn is_reader(&self, feed: FeedId, stamp: u32) -> bool {
        self.reading().is_some_and(|reading| reading.is_member(feed, stamp, self.stamp))
    }

    /// Whether a message of this number may be worth a visit. Who waits comes back by itself.
    pub(crate) fn is_due(&self, seq: u64) -> bool {
        self.reading().is_some_and(|reading| reading.cursor < seq) && !self.waits()
    }
}

/// What it costs to enter a feed, which may be a new one.
const JOIN_COST: usize = 1_024;

/// What a message costs that is looked at in the log.
const LOGGED_COST: usize = 16;

/// What a feed takes, roughly, in bytes.
const FEED_BYTES: usize = 600;

/// Further than any clock goes.
pub(super) const NEVER_MS: u64 = 1 << 40;
