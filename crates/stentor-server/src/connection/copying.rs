//! A connection that a follower reads: a feed, or a snapshot (`stentor-replication`).
//!
//! Either is an answer in chunks. What is to be sent lies in a ring or in the hub, so a connection
//! that its peer does not read holds what it has begun and no more. The last chunk says that there
//! is no more to come: of a snapshot, that all of it was sent; of a feed, that whoever reads it may
//! come back for the rest. What cannot be gone on with ends without one.

use super::work::Work;
use super::{Connection, CopyWait, Phase};
use crate::budget::{WorkClass, admitted};
use crate::context::Context;
use crate::exchange::Copying;
use crate::limits::FEED_SIGN_MS;
use crate::output::Backlog;
use stentor_io::{Backend, Peer};
use stentor_replication::{LAST_CHUNK, Next, Transfer, named};

impl Connection {
    /// The head of the answer is written.
    pub(super) fn begin_copying(&mut self, cx: &mut Context, peer: Peer, copying: Copying) {
        let Copying { copy, grant } = copying;
        if copy.is_feed() {
            tracing::info!("a follower has come, and reads {}", named(copy.filters()));
        }
        self.phase = Phase::Copying(CopyWait::Heartbeat);
        self.reader.has_pass = grant.is_some();
        if let Some(grant) = grant {
            cx.access.passes.give(peer, &grant);
        }
        cx.streams.replication.enter(peer, copy);
    }

    /// It is over for whatever reason.
    pub(super) fn leave_copying(&mut self, cx: &mut Context, peer: Peer) {
        if self.is_copying() {
            let copy = cx.streams.replication.leave(peer, cx.clock.now_ms);
            if let Some(copy) = copy.filter(Transfer::is_feed) {
                tracing::info!("a follower has left, which read {}", named(copy.filters()));
            }
            if std::mem::take(&mut self.reader.has_pass) {
                cx.access.passes.take(peer);
            }
        }
    }

    /// Whether the rest of its last answer waits to be sent.
    pub(crate) fn is_last_answer_blocked(&self) -> bool {
        self.phase == Phase::Closing && self.is_blocked()
    }

    /// Whether a follower reads it.
    pub(crate) fn is_copying(&self) -> bool {
        matches!(self.phase, Phase::Copying(_))
    }

    /// Nothing was sent for a while.
    pub(super) fn expire_copying<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        let is_silent = self.phase == Phase::Copying(CopyWait::Heartbeat);
        // Who hears of no leader, or of no broker, is no sign of life of one.
        if is_silent && cx.shared.stale_s().is_none() {
            cx.streams.replication.sign_of_life(peer, cx.out.bytes());
        }
        cx.rearm();
        self.deliver(cx, io, peer);
    }

    /// Sends the next part of what there is. Returns whether the pump takes another step at once.
    pub(super) fn pump_transfer(&mut self, cx: &mut Context, peer: Peer) -> bool {
        let is_feed = self.is_feed(cx, peer);
        if is_feed && cx.draining {
            self.end_copying(cx, peer, true);
            return false;
        }
        let before = cx.out.len();
        let class = (!is_feed).then_some(WorkClass::CatchUp);
        let next = admitted(cx, class, |cx, _| {
            let next = cx.streams.replication.next(peer, &cx.shared.hub, &mut cx.out);
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
            Some(Next::Later) | None => self.wait_in(WorkClass::CatchUp),
            Some(Next::Over) => self.end_copying(cx, peer, true),
            Some(Next::TooSlow) => {
                cx.stats.followers_too_slow.add(1);
                tracing::warn!(
                    "a follower was too slow: what it was to be sent next is not kept any more; \
                     it begins anew (limits.feed_bytes_max)"
                );
                self.end_copying(cx, peer, is_feed);
            }
            Some(Next::Changed) => self.end_copying(cx, peer, is_feed),
        }
        false
    }

    /// Whether the follower reads a feed.
    pub(super) fn is_feed(&self, cx: &Context, peer: Peer) -> bool {
        cx.streams.replication.copy(peer).is_some_and(Transfer::is_feed)
    }

    /// That was the last of it. `is_whole` says so to the peer as well.
    pub(super) fn end_copying(&mut self, cx: &mut Context, peer: Peer, is_whole: bool) {
        if is_whole {
            cx.out.bytes().extend_from_slice(LAST_CHUNK);
        }
        self.leave_copying(cx, peer);
        self.phase = Phase::Refusing;
    }

    /// What its deadline is for, and when it is.
    pub(super) fn copying_deadline(&self, cx: &Context, peer: Peer) -> (Phase, u64) {
        let sign_ms = cx.clock.now_ms + FEED_SIGN_MS;
        let (wait, deadline_ms) = match self.expires_ms(cx, peer) {
            _ if self.waits() => (CopyWait::Room, self.room_deadline_ms(cx)),
            Some(expires_ms) if expires_ms < sign_ms => (CopyWait::Expiry, expires_ms),
            _ => (CopyWait::Heartbeat, sign_ms),
        };
        (Phase::Copying(wait), deadline_ms)
    }

    /// What another process is to go on with in its place: to send what was begun, and to end. A
    /// feed ends with the last chunk, so its follower comes back; a snapshot is cut.
    pub(crate) fn ended_copy(&self, cx: &Context, peer: Peer) -> Option<Connection> {
        let copy = cx.streams.replication.copy(peer).filter(|_| self.is_copying())?;
        let last = if copy.is_feed() { LAST_CHUNK } else { b"" };
        let backlog = self.work.as_ref().and_then(|work| work.backlog.as_ref());
        let backlog = Backlog::ending(backlog, last);
        let pace = self.work.as_deref().map(|work| work.pace).unwrap_or_default();
        Some(Connection {
            role: self.role,
            origin: self.origin,
            phase: Phase::Closing,
            work: Some(Box::new(Work { backlog: Some(backlog), pace, ..Work::default() })),
            ..Connection::default()
        })
    }
}
