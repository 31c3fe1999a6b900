//! A connection that a follower reads: a feed, or a snapshot (`stentor-replication`).
//!
//! Either is an answer in chunks. A ring or the hub holds the data, so a connection whose peer does
//! not read holds only what it has begun to send. The last chunk says that there
//! is no more to come: of a snapshot, that all of it was sent; of a feed, that whoever reads it may
//! come back for the rest. What cannot be gone on with ends without one.

use super::Connection;
use super::state::State;
use super::work::Unfinished;
use crate::budget::{WorkClass, admitted};
use crate::context::Context;
use crate::exchange::Copying;
use crate::limits::FEED_SIGN_MS;
use crate::output::Backlog;
use crate::phase::ReplyWait;
use stentor_io::{Backend, Peer};
use stentor_replication::{Next, Transfer, named};
use stentor_wire::http1::LAST_CHUNK;

/// A connection that a follower reads. `Replication` has the feed or the snapshot.
#[derive(Debug)]
pub(super) struct Transferring {
    has_pass: bool,
    wait: ReplyWait,
}

impl Transferring {
    /// That of another process, which has ended it.
    pub(super) fn has_pass(&self) -> bool {
        self.has_pass
    }

    pub(super) fn wait(&self) -> ReplyWait {
        self.wait
    }

    /// It is over for whatever reason.
    pub(super) fn leave(self, cx: &mut Context) {
        let copy = cx.streams.replication.leave(cx.peer, cx.clock.now_ms);
        if let Some(copy) = copy.filter(Transfer::is_feed) {
            tracing::info!("a follower has left, which read {}", named(copy.filters()));
        }
        if self.has_pass {
            cx.access.passes.take(cx.peer);
        }
    }

    /// When its deadline is.
    pub(super) fn arm(
        &mut self,
        now_ms: u64,
        room_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> u64 {
        let deadline_ms;
        (self.wait, deadline_ms) = ReplyWait::first(now_ms + FEED_SIGN_MS, room_ms, expires_ms);
        deadline_ms
    }
}

impl Connection {
    /// The head of the answer is written. Never inlined: its large stack frame would cost every
    /// request.
    #[inline(never)]
    pub(super) fn begin_copying(&mut self, cx: &mut Context, copying: Copying) {
        let Copying { copy, grant } = copying;
        if copy.is_feed() {
            tracing::info!("a follower has come, and reads {}", named(copy.filters()));
        }
        let transfer = Transferring { has_pass: grant.is_some(), wait: ReplyWait::Event };
        self.enter(cx, State::Transfer(transfer));
        if let Some(grant) = grant {
            cx.access.passes.give(cx.peer, &grant);
        }
        cx.streams.replication.enter(cx.peer, copy);
    }

    /// Whether the rest of its last answer waits to be sent.
    pub(crate) fn is_last_answer_blocked(&self) -> bool {
        matches!(self.state, State::Closing) && self.is_blocked()
    }

    /// Nothing was sent for a while, or its token ends.
    pub(super) fn expire_copying<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        wait: ReplyWait,
    ) {
        // Who hears of no leader, or of no broker, is no sign of life of one.
        if wait == ReplyWait::Event && cx.shared.stale_s().is_none() {
            let age_ms = cx.shared.age_ms();
            cx.streams.replication.sign_of_life(cx.peer, age_ms, cx.out.bytes());
        }
        cx.rearm();
        self.deliver(cx, io);
    }

    /// Sends the next part of what there is. Returns whether the pump takes another step at once.
    pub(super) fn pump_transfer(&mut self, cx: &mut Context) -> bool {
        let is_feed = is_feed(cx);
        if is_feed && cx.draining {
            self.end_copying(cx, true);
            return false;
        }
        let before = cx.out.len();
        let class = (!is_feed).then_some(WorkClass::CatchUp);
        let next = admitted(cx, class, |cx, _| {
            let next = cx.streams.replication.next(cx.peer, &cx.shared.hub, &mut cx.out);
            if let Next::Sent(cost) = next {
                cx.load.budget.cost += cost;
            }
            next
        });
        match next {
            Some(Next::Sent(_)) => {
                if cx.out.len() > before {
                    // The next sign of life is due as long after this.
                    cx.rearm();
                }
                cx.stats.bytes_replication.add((cx.out.len() - before) as u64);
                return true;
            }
            Some(Next::Nothing) => {}
            Some(Next::Later) | None => self.work.wait_in(WorkClass::CatchUp),
            Some(Next::Over) => self.end_copying(cx, true),
            Some(Next::TooSlow) => {
                cx.stats.followers_too_slow.add(1);
                tracing::warn!(
                    "a follower was too slow: what it was to be sent next is not kept any more; \
                     it begins anew (limits.feed_bytes_max)"
                );
                self.end_copying(cx, is_feed);
            }
            Some(Next::Changed) => self.end_copying(cx, is_feed),
        }
        false
    }

    /// That was the last of it. `is_whole` says so to the peer as well.
    pub(super) fn end_copying(&mut self, cx: &mut Context, is_whole: bool) {
        if is_whole {
            cx.out.bytes().extend_from_slice(LAST_CHUNK);
        }
        self.enter(cx, State::Refusing);
    }

    /// What another process is to go on with in its place: to send what was begun, and to end. A
    /// feed ends with the last chunk, so its follower comes back; a snapshot is cut.
    pub(crate) fn ended_copy(&self, cx: &Context, peer: Peer) -> Option<Connection> {
        let copy = cx.streams.replication.copy(peer).filter(|_| self.is_copying())?;
        let last = if copy.is_feed() { LAST_CHUNK } else { b"" };
        let mut work = Unfinished::default();
        work.block(Backlog::ending(self.work.backlog(), last));
        work.set_pace(self.work.pace());
        Some(Connection {
            role: self.role,
            origin: self.origin,
            state: State::Closing,
            work,
            ..Connection::default()
        })
    }
}

/// Whether the follower reads a feed.
pub(super) fn is_feed(cx: &Context) -> bool {
    cx.streams.replication.copy(cx.peer).is_some_and(Transfer::is_feed)
}
