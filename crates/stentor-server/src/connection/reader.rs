//! A connection that reads a stream: how it begins, what it is sent, how it ends.
//!
//! The pump (`pump.rs`) sends a stream the messages between its cursor and now. They come from a
//! replay of history first, and then from the worker's log.

use super::{Connection, Phase, StreamWait};
use crate::access::sight::SightOf;
use crate::budget::{Permit, WorkClass, admitted};
use crate::context::Context;
use crate::exchange::Pending;
use crate::output::Backlog;
use crate::state::StreamState;
use crate::stream::batch::{Key, Sent};
use crate::stream::feeds::{FeedId, Feeds, Member};
use crate::stream::format::{SignOfLife, Transport};
use crate::stream::replay::{Replay, Sources, Wants};
use crate::stream::{Gap, MANY, Opening, Reader, Start};
use std::collections::HashSet;
use std::io::IoSlice;
use std::sync::Arc;
use stentor_hub::{Event, Filter, Mode, Span};
use stentor_io::{Backend, Gone, Peer};
use stentor_wire::websocket::{Decoder, Opcode, frame};

/// What few readers have, or none for long.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// What it reads if that is not one feed, in the order of the feeds' numbers.
    pub(super) subscriptions: Vec<Subscription>,
    /// Feeds it has entered and will read once it has caught up with those it reads already.
    pub(super) joining: Option<Joining>,
    pub(super) replay: Option<Box<Replay>>,
    /// A frame that is not complete.
    pub(super) decoder: Option<Box<Decoder>>,
    /// An answer that comes later.
    pub(super) pending: Option<Box<Pending>>,
    /// What a long-poll's answer is to say first.
    pub(super) gap: Option<Gap>,
    /// The same, of what may not be seen: a JSON object.
    pub(super) uncovered: Option<String>,
    /// Of several feeds those of which it was told that it may not see all, in order.
    pub(super) partial: Vec<FeedId>,
}

/// One of several feeds that are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub(super) feed: FeedId,
    pub(super) stamp: u32,
}

/// Subscriptions that are about to count.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) start: Start,
    /// Once it has been sent everything up to this number, they do.
    pub(super) seq: u64,
}

impl Extra {
    pub(super) fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
            && self.joining.is_none()
            && self.replay.is_none()
            && self.decoder.is_none()
            && self.pending.is_none()
            && self.gap.is_none()
            && self.uncovered.is_none()
            && self.partial.is_empty()
    }

    /// Whether it reads feeds besides those whose history it is sent: new subscriptions catch up
    /// with the others.
    fn reads_more(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.feeds().len() < self.subscriptions.len())
    }

    /// What it takes on the heap, in bytes, the members in the lists of feeds included.
    pub(super) fn own_bytes(&self) -> usize {
        let joining = self.joining.as_ref().map_or(0, |joining| joining.subscriptions.capacity());
        let subscriptions = self.subscriptions.capacity() + joining;
        size_of::<Extra>()
            + subscriptions * (size_of::<Subscription>() + size_of::<Member>())
            + self.replay.as_ref().map_or(0, |replay| replay.own_bytes())
            + self.decoder.as_ref().map_or(0, |decoder| decoder.own_bytes())
            + self.pending.as_ref().map_or(0, |pending| pending.own_bytes())
            + self.uncovered.as_ref().map_or(0, |json| json.len())
            + self.partial.capacity() * size_of::<FeedId>()
    }

    /// What its feeds take, were it their only reader; of one feed that is not much.
    pub(super) fn feeds_bytes(&self) -> usize {
        self.subscriptions.len() * FEED_BYTES
    }
}

impl Connection {
    /// The head of the answer is written, or the answer waits: enters the feeds. What is due is
    /// sent later.
    pub(super) fn begin_reading(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        opening: Opening,
        permit: &Permit,
    ) {
        let Opening { reader, mut filters, start, grant, part, uncovered } = opening;
        let (has_pass, is_partial) = (grant.is_some(), !part.is_empty());
        self.reader = Reader { stamp: self.reader.stamp, has_pass, is_partial, ..reader };
        if let Some(grant) = grant {
            cx.access.passes.give(peer, &grant);
        }
        if let Some(json) = uncovered {
            self.tell_uncovered(cx, &json);
        }
        self.reader.transport.readers(&cx.stats).add(1);
        // Named twice, it is read once.
        let mut named = HashSet::new();
        filters.retain(|filter| named.insert(filter.clone()));
        let subscriptions = self.join(cx, peer, &filters, permit);
        let feeds = subscriptions.iter().map(|subscription| subscription.feed).collect();
        match &subscriptions[..] {
            [only] if !self.reader.commands() => self.reader.feed = only.feed,
            [] => {}
            _ => {
                self.extra().subscriptions = subscriptions;
                self.note_partial(cx, &part);
            }
        }
        if !filters.is_empty() && (self.reader.is_enveloped || !self.is_polling()) {
            let upto = cx.shared.hub.seq();
            self.begin_replay(cx, feeds, start, upto);
        }
    }

    /// Enters the feeds of `filters`. Returns them in the order of their numbers. The permit is
    /// that of the request or the command which names them.
    pub(super) fn join(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        filters: &[Filter],
        _: &Permit,
    ) -> Vec<Subscription> {
        cx.load.budget.cost += filters.len() * JOIN_COST;
        let join = |filter| {
            self.reader.stamp = self.reader.stamp.wrapping_add(1);
            let stamp = self.reader.stamp;
            let feed = cx.streams.feeds.join(&cx.shared.hub, filter, Member { peer, stamp });
            Subscription { feed, stamp }
        };
        let mut subscriptions: Vec<Subscription> = filters.iter().map(join).collect();
        subscriptions.sort_unstable_by_key(|subscription| subscription.feed);
        subscriptions
    }

    /// The stream is over for whatever reason: leaves the feeds.
    pub(super) fn leave_stream(&mut self, cx: &mut Context, peer: Peer) {
        if !self.reads_feeds() {
            return;
        }
        if self.reader.has_pass {
            cx.access.passes.take(peer);
        }
        self.reader.transport.readers(&cx.stats).sub(1);
        let hub = Arc::clone(&cx.shared.hub);
        if self.reader.feed != MANY {
            cx.streams.feeds.leave(&hub, self.reader.feed);
        }
        let Extra { subscriptions, joining, .. } = *self.extra.take().unwrap_or_default();
        let joining = joining.map(|joining| joining.subscriptions).unwrap_or_default();
        for Subscription { feed, .. } in subscriptions.into_iter().chain(joining) {
            cx.streams.feeds.leave(&hub, feed);
        }
        self.reader = Reader { stamp: self.reader.stamp, ..Reader::default() };
    }

    /// The time has come for something to be said, or to end.
    pub(super) fn expire_stream<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        wait: StreamWait,
    ) {
        match (wait, self.reader.transport.manner().sign_of_life) {
            (StreamWait::Heartbeat, SignOfLife::Comment(bytes)) => {
                cx.out.bytes().extend_from_slice(bytes);
            }
            (StreamWait::Ping, _) if !self.reader.transport.socket().owes_pong => {
                // The next one is due as long after this one.
                cx.rearm();
                self.reader.transport.set_owes_pong(true);
                frame(cx.out.bytes(), Opcode::Ping, false, b"");
            }
            (StreamWait::Frame, _) => {
                self.end_websocket(cx, peer, 1008, "The message took too long to arrive.")
            }
            (StreamWait::Farewell, _) if self.waits() => {
                // Whoever is merely behind is not cut: it goes when what is under way has left.
                self.phase = Phase::Streaming(StreamWait::Leave);
                return;
            }
            (StreamWait::Farewell, _) => self.say_farewell(cx, peer),
            (StreamWait::Expiry, _) => {
                // The clock may have been set back.
                cx.rearm();
                return self.deliver(cx, io, peer);
            }
            _ => {
                cx.stats.timeouts.add(1);
                return self.abort(cx, io, peer);
            }
        }
        let result = self.flush(cx, io, peer).map(drop);
        let _ = self.settle(cx, io, peer, result);
    }

    /// The last words of a stream whose server is stopping.
    pub(super) fn say_farewell(&mut self, cx: &mut Context, peer: Peer) {
        (self.reader.transport.manner().farewell)(cx.out.bytes());
        self.finish_stream(cx, peer);
    }

    /// Whether more input must wait: for a response, or for the first messages of a subscription.
    pub(super) fn is_busy(&self) -> bool {
        let joins = |extra: &Extra| extra.joining.is_some() || extra.replay.is_some();
        let is_joining = self.reader.commands() && self.extra.as_deref().is_some_and(joins);
        self.is_pending() || matches!(self.phase, Phase::Streaming(_)) && is_joining
    }

    /// Whether a member of a feed's list stands for this connection as it is now.
    pub(crate) fn is_reader(&self, feed: FeedId, stamp: u32) -> bool {
        let is_among = |all: &[Subscription]| {
            let found = all.binary_search_by_key(&feed, |subscription| subscription.feed);
            found.is_ok_and(|at| all[at].stamp == stamp)
        };
        let reads = |extra: &Extra| {
            let joining = extra.joining.as_ref().map(|joining| &joining.subscriptions[..]);
            is_among(&extra.subscriptions) || joining.is_some_and(is_among)
        };
        self.reads_feeds()
            && ((self.reader.feed, self.reader.stamp) == (feed, stamp)
                || self.extra.as_deref().is_some_and(reads))
    }

    /// Whether a message of this number may be worth a visit. Who waits comes back by itself.
    pub(crate) fn is_due(&self, seq: u64) -> bool {
        self.reads_feeds() && self.reader.cursor < seq && !self.waits()
    }

    /// Whether it is told of changes: it reads a stream, or its answer waits for one.
    pub(super) fn reads_feeds(&self) -> bool {
        matches!(self.phase, Phase::Streaming(_)) || self.is_polling()
    }

    /// Whether this is a long-poll that waits for its answer.
    pub(super) fn is_polling(&self) -> bool {
        self.is_pending() && self.reader.transport == Transport::LongPoll
    }

    pub(super) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Gives back what is no longer needed.
    pub(super) fn shrink_extra(&mut self) {
        if self.extra.as_deref().is_some_and(Extra::is_empty) {
            self.extra = None;
        }
    }

    /// Sends the next part of what is due. Returns whether to go on at once.
    pub(super) fn pump_stream<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
    ) -> Result<bool, Gone> {
        if self.extra.as_ref().is_some_and(|extra| extra.replay.is_some()) {
            return self.pump_replay(cx, io, peer);
        }
        if !self.log_is_complete(cx) {
            let (since, upto) = (self.reader.cursor, cx.shared.hub.seq());
            self.begin_replay(cx, self.feeds(), Start::After(since), upto);
            return Ok(true);
        }
        // With a message cut short there is more to be sent first.
        Ok(self.pump_log(cx, io, peer)? || !self.waits() && self.finish_joining(cx))
    }

    /// Whether the log has everything behind the cursor.
    pub(super) fn log_is_complete(&self, cx: &Context) -> bool {
        let (feeds, cursor) = (&cx.streams.feeds, self.reader.cursor);
        if self.reader.feed != MANY {
            return feeds.is_complete(self.reader.feed, cursor);
        }
        let Some(extra) = self.extra.as_deref() else { return true };
        feeds.has_forgotten_nothing(cursor)
            || extra.subscriptions.iter().all(|read| feeds.is_complete(read.feed, cursor))
    }

    /// What it reads.
    pub(super) fn feeds(&self) -> Box<[FeedId]> {
        if self.reader.feed != MANY {
            return [self.reader.feed].into();
        }
        let subscriptions = self.extra.as_deref().map(|extra| extra.subscriptions.iter());
        subscriptions.into_iter().flatten().map(|read| read.feed).collect()
    }

    pub(super) fn begin_replay(
        &mut self,
        cx: &mut Context,
        feeds: Box<[FeedId]>,
        start: Start,
        upto: u64,
    ) {
        let start = start.in_life_of(&cx.shared.hub);
        let span = match start {
            Start::After(since) => Span { since, upto, mode: self.reader.mode },
            Start::Earliest => Span { since: 0, upto, mode: self.reader.mode },
            Start::Values | Start::Gap(_) => Span { since: 0, upto, mode: Mode::Latest },
        };
        if let Start::Gap(gap) = start {
            self.tell_gap(cx, &gap);
        }
        let wants = match start {
            Start::After(_) => Wants::Missed,
            Start::Earliest => Wants::History,
            Start::Values | Start::Gap(_) => Wants::Values,
        };
        self.extra().replay = Some(Box::new(Replay::new(feeds, span, wants)));
    }

    /// Says that messages are missing.
    fn tell_gap(&mut self, cx: &mut Context, gap: &Gap) {
        cx.stats.gaps.add(1);
        match self.reader.transport.manner().gap {
            Some(write) => write(cx.out.bytes(), gap),
            None => self.extra().gap = Some(*gap),
        }
    }

    /// Tells a reader that was sent nothing where it is: were it to lose the connection before the
    /// first message, it could not say from where to resume, or would hear of the same gap again.
    fn tell_cursor(&mut self, cx: &mut Context) {
        let id = cx.shared.hub.id(self.reader.cursor);
        let Reader { transport, is_enveloped, .. } = self.reader;
        (transport.manner().cursor)(cx.out.bytes(), id, is_enveloped);
    }

    /// Sends the next part of what history has. Returns whether to go on at once.
    fn pump_replay<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
    ) -> Result<bool, Gone> {
        if cx.out.has_bodies() && !self.flush(cx, io, peer)? {
            return Ok(false);
        }
        let class = self.class_of_replay(cx);
        let step = admitted(cx, class, |cx, permit| self.replay_step(cx, io, peer, permit));
        step.unwrap_or_else(|| {
            self.wait_in(WorkClass::CatchUp);
            Ok(false)
        })
    }

    /// The class of a step of the replay under way. One topic is little: it is looked up by name,
    /// and what a step may find of it is limited.
    fn class_of_replay(&self, cx: &Context) -> Option<WorkClass> {
        let replay = self.extra.as_deref().and_then(|extra| extra.replay.as_deref());
        let is_small = replay.is_some_and(|replay| replay.topic(&cx.streams.feeds).is_some());
        (!is_small).then_some(WorkClass::CatchUp)
    }

    fn replay_step<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        permit: &Permit,
    ) -> Result<bool, Gone> {
        let bytes_max = cx.load.budget.step_bytes();
        let Some(upto_seq) = self.find_missed(cx, peer, bytes_max, permit) else {
            self.wait_in(WorkClass::CatchUp);
            return Ok(false);
        };
        let forms = self.reader.forms();
        if cx.streams.found.is_empty() {
            self.advance_replay(cx, upto_seq, 0);
            return Ok(true);
        }
        let StreamState { batches, found, deflater, .. } = &mut cx.streams;
        let batch = batches.own();
        batch.begin(cx.out.bytes());
        let cost = batch.extend(deflater, found, forms);
        let stentor_io::Sent { bytes, full } = io.send(peer, &[IoSlice::new(batch.bytes())])?;
        let sent = batch.sent(bytes);
        let is_whole = bytes == batch.bytes().len();
        let upto_seq = match sent.cursor {
            Some(cursor) if !is_whole || batch.messages() < found.len() => cursor,
            None if !is_whole => 0,
            _ => upto_seq,
        };
        let prefix = batch.prefix();
        cx.load.budget.cost += cost;
        cx.load.sent_bytes += bytes;
        cx.count_stream(bytes.saturating_sub(prefix), &sent);
        self.advance_replay(cx, upto_seq, sent.messages);
        if full {
            self.keep_rest(sent);
        }
        Ok(!full)
    }

    /// Has the replay find its next part, and tells of a gap before it. Returns up to which number
    /// the reader has then seen everything; `None` if it takes another turn.
    pub(super) fn find_missed(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        bytes_max: usize,
        permit: &Permit,
    ) -> Option<u64> {
        let is_partial = self.reader.is_partial;
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
        if is_partial {
            let sight = SightOf::new(&cx.settings.access.topics, cx.access.passes.get(peer));
            cost += cx.streams.found.len() * LOGGED_COST;
            cx.streams.found.retain(|event| sight.covers(event.topic()));
        }
        let since = cx.shared.hub.id(replay.since_seq());
        cx.load.budget.cost += cost;
        let part = part?;
        if let Some(reason) = replay.take_gap(&part) {
            self.tell_gap(cx, &Gap { reason, since: Some(since) });
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
        let tells_later = reads_more && messages > 0;
        if replay.is_over() && !tells_later {
            let (since_seq, knows_cursor) = (replay.since_seq(), replay.has_told_cursor());
            self.reader.cursor = self.reader.cursor.max(since_seq);
            extra.replay = None;
            // Behind newer messages older ones came: the last id is to be the newest again.
            if !knows_cursor || reads_more {
                self.tell_cursor(cx);
            }
        }
    }

    /// Sends what the log has behind the cursor. Returns whether to go on at once.
    fn pump_log<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
    ) -> Result<bool, Gone> {
        if !self.flush(cx, io, peer)? {
            return Ok(false);
        }
        let Reader { cursor, feed, mode, is_partial, .. } = self.reader;
        let StreamState { batches, feeds, deflater, .. } = &mut cx.streams;
        let sight = match is_partial {
            true => SightOf::new(&cx.settings.access.topics, cx.access.passes.get(peer)),
            false => SightOf::ALL,
        };
        let is_seen = |event: &&Event| sight.covers(event.topic());
        let (first, last_seq) = match feed {
            MANY => (self.due_to_many(feeds).find(is_seen), feeds.logged_seq()),
            feed => (feeds.due(feed, cursor).find(is_seen), feeds.latest_seq(feed)),
        };
        if feed == MANY {
            cx.load.budget.cost += feeds.logged_after(cursor) * LOGGED_COST;
        }
        let Some(first_seq) = first.map(Event::seq) else {
            if is_partial {
                // The reader may see none of it, and need not look at it again.
                cx.load.budget.cost += LOGGED_COST;
                self.reader.cursor = cursor.max(last_seq);
            }
            return Ok(false);
        };
        let forms = self.reader.forms();
        let key = Key { feed, first_seq, last_seq, forms, mode, sight: sight.kind() };
        let batch = if feed == MANY { batches.own() } else { batches.shared(forms) };
        match feed {
            MANY => batch.gather(deflater, key, self.due_to_many(feeds).filter(is_seen)),
            feed if !batch.is_for(&key) => {
                batch.gather(deflater, key, feeds.due(feed, cursor).filter(is_seen));
            }
            _ => {}
        }
        let stentor_io::Sent { bytes, full } = io.send(peer, &[IoSlice::new(batch.bytes())])?;
        let sent = batch.sent(bytes);
        let is_whole = bytes == batch.bytes().len();
        if is_whole {
            self.reader.cursor = batch.upto_seq();
        }
        // What was left out counts once what was sent instead has begun to leave.
        let conflated = if sent.messages == batch.messages() { batch.conflated() } else { 0 };
        cx.stats.conflated.add(conflated);
        cx.load.sent_bytes += bytes;
        cx.count_stream(bytes, &sent);
        if !is_whole && let Some(cursor) = sent.cursor {
            self.reader.cursor = cursor;
        }
        if full {
            self.keep_rest(sent);
        }
        Ok(!full)
    }

    /// What the log has behind the cursor for a reader of several feeds.
    pub(super) fn due_to_many<'c>(
        &'c self,
        feeds: &'c Feeds,
    ) -> impl DoubleEndedIterator<Item = &'c Event> + Clone {
        let subscriptions =
            self.extra.as_deref().map_or(&[][..], |extra| extra.subscriptions.as_slice());
        let is_mine =
            move |feed| subscriptions.binary_search_by_key(&feed, |read| read.feed).is_ok();
        feeds.due_to_many(self.reader.cursor, is_mine)
    }

    /// The socket is full: keeps the rest of the message that was cut, if one was, and waits for
    /// room.
    /// Whatever is behind it is asked for again then.
    fn keep_rest(&mut self, sent: Sent) {
        self.work().backlog = Some(Backlog::of_stream(sent.rest));
    }

    /// With everything sent that was heard of: lets new subscriptions count. Returns whether there
    /// were any.
    fn finish_joining(&mut self, cx: &mut Context) -> bool {
        let Some(Joining { subscriptions, start, seq }) =
            self.extra.as_mut().and_then(|extra| extra.joining.take())
        else {
            return false;
        };
        let upto = self.reader.cursor.max(seq).max(cx.streams.feeds.logged_seq());
        self.reader.cursor = upto;
        let feeds = subscriptions.iter().map(|read| read.feed).collect();
        let all = &mut self.extra().subscriptions;
        all.extend(subscriptions);
        all.sort_unstable_by_key(|read| read.feed);
        self.begin_replay(cx, feeds, start, upto);
        true
    }

    /// What the stream's deadline is for, and when it is.
    pub(super) fn stream_deadline(&self, cx: &mut Context, peer: Peer) -> (Phase, u64) {
        use StreamWait::{Expiry, Frame, Heartbeat, Ping};
        let (wait, deadline_ms) = self.usual_deadline(cx);
        let (wait, deadline_ms) = match (wait, self.expires_ms(cx, peer)) {
            // A suspended stream checks its token when it resumes.
            (Heartbeat | Ping | Frame, Some(expires_ms)) if expires_ms < deadline_ms => {
                (Expiry, expires_ms)
            }
            _ => (wait, deadline_ms),
        };
        (Phase::Streaming(wait), deadline_ms)
    }

    fn usual_deadline(&self, cx: &mut Context) -> (StreamWait, u64) {
        let streams = &cx.settings.streams;
        let (now_ms, limits) = (cx.clock.now_ms, &cx.settings.limits);
        let decodes = self.extra.as_deref().is_some_and(|extra| extra.decoder.is_some());
        let (sign, every_ms) = match self.reader.transport.manner().sign_of_life {
            SignOfLife::Comment(_) => (StreamWait::Heartbeat, streams.heartbeat_ms),
            SignOfLife::Ping => (StreamWait::Ping, streams.ping_ms),
        };
        match () {
            () if cx.draining => {
                let spread_ms = streams.drain_spread_ms.min(cx.settings.drain_ms / 2);
                (StreamWait::Farewell, now_ms + cx.rng.next_u64() % (spread_ms + 1))
            }
            () if self.waits() => (StreamWait::Room, self.room_deadline_ms(cx)),
            () if decodes => (StreamWait::Frame, now_ms + limits.head_timeout_ms),
            () if every_ms == 0 => (sign, now_ms + NEVER_MS),
            () => (sign, now_ms + every_ms),
        }
    }
}

/// What it costs to enter a feed, which may be a new one.
pub(super) const JOIN_COST: usize = 1_024;

/// What a message costs that is looked at in the log.
const LOGGED_COST: usize = 16;

/// What a feed takes, roughly, in bytes.
const FEED_BYTES: usize = 600;

/// Further than any clock goes.
pub(super) const NEVER_MS: u64 = 1 << 40;
