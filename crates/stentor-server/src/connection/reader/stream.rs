//! A connection that reads a stream: what it is sent, how it ends.
//!
//! The pump (`pump.rs`) sends a stream the messages between its cursor and now. They come from a
//! replay of history first, and then from the worker's log.

use super::{Joining, LOGGED_COST, NEVER_MS, Reading, Reply};
use crate::access::sight::SightOf;
use crate::budget::{Permit, WorkClass, admitted};
use crate::connection::state::State;
use crate::connection::work::Unfinished;
use crate::connection::{Connection, StreamWait};
use crate::context::Context;
use crate::output::Backlog;
use crate::state::StreamState;
use crate::stream::batch::Key;
use crate::stream::format::SignOfLife;
use crate::stream::{MANY, OWES_PONG, PARTIAL, Start};
use std::io::IoSlice;
use stentor_hub::Event;
use stentor_io::{Backend, Gone};
use stentor_wire::websocket::Violation;
use stentor_wire::websocket::{Opcode, frame};

impl Reading {
    /// Sends the next part of what is due. Returns whether to go on at once.
    pub(in crate::connection) fn pump<B: Backend>(
        &mut self,
        cx: &mut Context,
        work: &mut Unfinished,
        io: &mut B,
    ) -> Result<bool, Gone> {
        if self.replays() {
            return self.pump_replay(cx, work, io);
        }
        if !self.log_is_complete(cx) {
            let (feeds, upto) = (self.feeds(), cx.shared.hub.seq());
            self.begin_replay(cx, feeds, Start::After(self.cursor), upto, &mut None);
            return Ok(true);
        }
        // With a message cut short there is more to be sent first.
        Ok(self.pump_log(cx, work, io)? || !work.waits() && self.finish_joining(cx))
    }

    /// Sends the next part of what history has. Returns whether to go on at once.
    fn pump_replay<B: Backend>(
        &mut self,
        cx: &mut Context,
        work: &mut Unfinished,
        io: &mut B,
    ) -> Result<bool, Gone> {
        if cx.out.has_bodies() && !work.flush(cx, io)? {
            return Ok(false);
        }
        let class = self.class_of_replay(cx);
        let step = admitted(cx, class, |cx, permit| self.replay_step(cx, work, io, permit));
        step.unwrap_or_else(|| {
            work.wait_in(WorkClass::CatchUp);
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
        work: &mut Unfinished,
        io: &mut B,
        permit: &Permit,
    ) -> Result<bool, Gone> {
        let bytes_max = cx.load.budget.step_bytes();
        let Some(upto_seq) = self.find_missed(cx, bytes_max, permit, &mut None) else {
            work.wait_in(WorkClass::CatchUp);
            return Ok(false);
        };
        let forms = self.traits.forms();
        if cx.streams.found.is_empty() {
            self.advance_replay(cx, upto_seq, 0);
            return Ok(true);
        }
        let StreamState { batches, found, deflater, .. } = &mut cx.streams;
        let batch = batches.own();
        batch.begin(cx.out.bytes());
        let cost = batch.extend(deflater, found, forms);
        let stentor_io::Sent { bytes, full } = io.send(cx.peer, &[IoSlice::new(batch.bytes())])?;
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
            work.block(Backlog::of_stream(sent.rest));
        }
        Ok(!full)
    }

    /// Sends what the log has behind the cursor. Returns whether to go on at once.
    fn pump_log<B: Backend>(
        &mut self,
        cx: &mut Context,
        work: &mut Unfinished,
        io: &mut B,
    ) -> Result<bool, Gone> {
        if !work.flush(cx, io)? {
            return Ok(false);
        }
        let Reading { cursor, feed, traits, .. } = *self;
        let is_partial = traits.has(PARTIAL);
        let StreamState { batches, feeds, deflater, .. } = &mut cx.streams;
        let sight = match is_partial {
            true => SightOf::new(&cx.settings.access.topics, cx.access.passes.get(cx.peer)),
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
                self.cursor = cursor.max(last_seq);
            }
            return Ok(false);
        };
        let forms = self.traits.forms();
        let key =
            Key { feed, first_seq, last_seq, forms, mode: traits.mode(), sight: sight.kind() };
        let batch = if feed == MANY { batches.own() } else { batches.shared(forms) };
        match feed {
            MANY => batch.gather(deflater, key, self.due_to_many(feeds).filter(is_seen)),
            feed if !batch.is_for(&key) => {
                batch.gather(deflater, key, feeds.due(feed, cursor).filter(is_seen));
            }
            _ => {}
        }
        let stentor_io::Sent { bytes, full } = io.send(cx.peer, &[IoSlice::new(batch.bytes())])?;
        let sent = batch.sent(bytes);
        let is_whole = bytes == batch.bytes().len();
        if is_whole {
            self.cursor = batch.upto_seq();
        }
        // What was left out counts once what was sent instead has begun to leave.
        let conflated = if sent.messages == batch.messages() { batch.conflated() } else { 0 };
        cx.stats.conflated.add(conflated);
        cx.load.sent_bytes += bytes;
        cx.count_stream(bytes, &sent);
        if !is_whole && let Some(cursor) = sent.cursor {
            self.cursor = cursor;
        }
        if full {
            work.block(Backlog::of_stream(sent.rest));
        }
        Ok(!full)
    }

    /// With everything sent that was heard of: lets new subscriptions count. Returns whether there
    /// were any.
    fn finish_joining(&mut self, cx: &mut Context) -> bool {
        let Some(Joining { subscriptions, start, seq, id }) =
            self.extra.as_mut().and_then(|extra| extra.joining.take())
        else {
            return false;
        };
        let upto = self.cursor.max(seq).max(cx.streams.feeds.logged_seq());
        self.cursor = upto;
        let feeds = subscriptions.iter().map(|read| read.feed).collect();
        let all = &mut self.extra().subscriptions;
        all.extend(subscriptions);
        all.sort_unstable_by_key(|read| read.feed);
        // Another replay may have been under way until now.
        self.extra().reply = Some(Reply { id });
        self.begin_replay(cx, feeds, start, upto, &mut None);
        true
    }

    /// Sets the event that the stream waits for. Returns its deadline; `None` for a stream that
    /// leaves, which has until the end of the server's stop.
    pub(in crate::connection) fn arm(
        &mut self,
        cx: &mut Context,
        room_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> Option<u64> {
        use StreamWait::{Expiry, Frame, Heartbeat, Leave, Ping};
        if self.wait == Leave {
            return None;
        }
        let (wait, deadline_ms) = self.usual_deadline(cx, room_ms);
        let (wait, deadline_ms) = match (wait, expires_ms) {
            // A suspended stream checks its token when it resumes.
            (Heartbeat | Ping | Frame, Some(expires_ms)) if expires_ms < deadline_ms => {
                (Expiry, expires_ms)
            }
            _ => (wait, deadline_ms),
        };
        self.wait = wait;
        Some(deadline_ms)
    }

    fn usual_deadline(&self, cx: &mut Context, room_ms: Option<u64>) -> (StreamWait, u64) {
        let streams = &cx.settings.streams;
        let (now_ms, limits) = (cx.clock.now_ms, &cx.settings.limits);
        let decodes = self.extra.as_deref().is_some_and(|extra| extra.decoder.is_some());
        let (sign, every_ms) = match self.traits.transport.manner().sign_of_life {
            SignOfLife::Comment(_) => (StreamWait::Heartbeat, streams.heartbeat_ms),
            SignOfLife::Ping => (StreamWait::Ping, streams.ping_ms),
        };
        match room_ms {
            _ if cx.draining => {
                let spread_ms = streams.drain_spread_ms.min(cx.settings.drain_ms / 2);
                (StreamWait::Farewell, now_ms + cx.rng.next_u64() % (spread_ms + 1))
            }
            Some(room_ms) => (StreamWait::Room, room_ms),
            None if decodes => (StreamWait::Frame, now_ms + limits.head_timeout_ms),
            None if every_ms == 0 => (sign, now_ms + NEVER_MS),
            None => (sign, now_ms + every_ms),
        }
    }
}

impl Connection {
    /// The time has come for something to be said, or to end.
    pub(in crate::connection) fn expire_stream<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
    ) {
        let State::Stream(reading) = &mut self.state else { return };
        let traits = &mut reading.traits;
        match (reading.wait, traits.transport.manner().sign_of_life) {
            (StreamWait::Heartbeat, SignOfLife::Comment(bytes)) => {
                cx.out.bytes().extend_from_slice(bytes);
            }
            (StreamWait::Ping, _) if !traits.has(OWES_PONG) => {
                // The next one is due as long after this one.
                cx.rearm();
                traits.set(OWES_PONG, true);
                frame(cx.out.bytes(), Opcode::Ping, false, b"");
            }
            (StreamWait::Frame, _) => self.end_websocket(cx, TOO_SLOW),
            (StreamWait::Farewell, _) if self.work.waits() => {
                // Whoever is merely behind is not cut: it goes when what is under way has left.
                reading.wait = StreamWait::Leave;
                return;
            }
            (StreamWait::Farewell, _) => self.say_farewell(cx),
            (StreamWait::Expiry, _) => {
                // The clock may have been set back.
                cx.rearm();
                return self.deliver(cx, io);
            }
            _ => {
                cx.stats.timeouts.add(1);
                return self.abort(cx, io);
            }
        }
        let result = self.work.flush(cx, io).map(drop);
        let _ = self.settle(cx, io, result);
    }

    /// The last words of a stream whose server is stopping.
    pub(in crate::connection) fn say_farewell(&mut self, cx: &mut Context) {
        if let Some(reading) = self.reading() {
            (reading.traits.transport.manner().farewell)(cx.out.bytes());
        }
        self.enter(cx, State::Refusing);
    }

    /// Whether the stream ends as soon as its backlog has left.
    pub(in crate::connection) fn is_leaving(&self) -> bool {
        matches!(&self.state, State::Stream(reading) if reading.wait == StreamWait::Leave)
    }
}

/// A client did not complete a message in `limits.head_timeout`.
const TOO_SLOW: Violation =
    Violation { code: 1008, reason: "The message took too long to arrive." };
