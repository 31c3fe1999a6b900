//! Who may not read any more: the token has ended, its key is gone, or the rules are others.
//!
//! A token's end is a deadline as others are. Whatever else brings a reader back looks first
//! whether it may read still, so nothing that was published later reaches it, however late the
//! deadline is seen to. Once rules or keys have changed every reader is looked at again, some in
//! each turn (`Worker::judge`); who has anything due before its turn is looked at then.

use super::pending::Answer;
use super::{Connection, Phase};
use crate::access::{Act, Bearer, Denied, Sight, Visitor, covers_copy};
use crate::budget::Permit;
use crate::context::Context;
use crate::listeners::listener;
use crate::stream::MANY;
use crate::stream::feeds::FeedId;
use crate::stream::format::Ended;
use stentor_access::{Coverage, PatternsRef, Refused};
use stentor_hub::Filter;
use stentor_io::{Backend, Peer, mark};
use stentor_wire::websocket::{Opcode, frame};

impl Connection {
    /// Says of what is subscribed to that it is not sent, or keeps that for the answer.
    pub(super) fn tell_uncovered(&mut self, cx: &mut Context, json: &str) {
        match self.reader.transport.manner().uncovered {
            Some(write) => write(cx.out.bytes(), json),
            None => self.extra().uncovered = Some(json.to_owned()),
        }
    }

    /// Of these feeds it is told that it may not see all, if it reads them.
    pub(super) fn note_partial(&mut self, cx: &Context, filters: &[Filter]) {
        let partial = &mut self.extra().partial;
        partial.extend(filters.iter().filter_map(|filter| cx.streams.feeds.id(filter)));
        partial.sort_unstable();
        partial.dedup();
    }

    /// Whether it was told of a feed that it may not see all of it.
    fn is_partial(&self, feed: FeedId) -> bool {
        match self.extra.as_deref() {
            // mutation: partial-pattern
            Some(extra) if self.reader.feed == MANY => extra.partial.binary_search(&feed).is_ok(),
            _ => self.reader.is_partial,
        }
    }

    /// What may be subscribed to stays; the rest it is to be told of.
    pub(super) fn may_subscribe(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        filters: &mut Vec<Filter>,
        _: &Permit,
    ) -> Result<Sight, String> {
        let bearer = match cx.access.passes.get(peer).filter(|_| self.reader.has_pass) {
            Some(pass) => Bearer::Good { grant: pass.grant(), by_cookie: false },
            None => Bearer::Nobody,
        };
        let settings = &cx.settings;
        let visitor = Visitor { listener: listener(self.role()), settings, bearer: &bearer };
        let mut cost = 0;
        let sight = visitor.may(Act::Read(filters));
        let sight = sight.and_then(|()| visitor.sight(filters, &mut cost));
        cx.load.budget.cost += cost;
        let sight = sight.map_err(|denied| {
            cx.access.denials.note(&cx.stats, denied.why, || None, cx.clock.now_ms);
            denied.refusal.reason.to_owned()
        })?;
        self.reader.is_partial |= !sight.part.is_empty();
        Ok(sight)
    }

    /// Takes a token in place of the one before, unless less would be covered by it than is read.
    pub(super) fn renew(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        token: &str,
        permit: &Permit,
    ) -> Result<(), String> {
        let grant = match cx.verify(token, false, permit) {
            Bearer::Good { grant, .. } => grant,
            Bearer::Bad(refused) => {
                let denied = Denied::bad_token(refused);
                cx.access.denials.note(&cx.stats, denied.why, || None, cx.clock.now_ms);
                return Err(denied.refusal.reason.to_owned());
            }
            _ => return Ok(()),
        };
        let (covers, cost) = self.covers(cx, peer, Some(grant.scope.read()));
        cx.load.budget.cost += cost;
        if !covers {
            return Err(COVERS_LESS.to_owned());
        }
        cx.access.passes.give(peer, &grant);
        self.reader.has_pass = true;
        // Its end is another.
        cx.rearm();
        frame(cx.out.bytes(), Opcode::Text, false, RENEWED);
        Ok(())
    }

    /// Whether what is read may be by who is allowed these, as far as was promised; and what it
    /// took to say so.
    fn covers(&self, cx: &Context, peer: Peer, allowed: Option<PatternsRef<'_>>) -> (bool, usize) {
        let access = &cx.settings.access;
        if self.is_copying() {
            let filters = cx.streams.replication.copy(peer).map_or(&[][..], |copy| copy.filters());
            let covers = !access.control_token || covers_copy(allowed, filters);
            return (covers, (1 + filters.len()) * COVERAGE_COST);
        }
        if self.is_echo()
            || !access.topics.has_private()
            || listener(self.role()).reads_private && !access.control_token
        {
            return (true, 0);
        }
        let mut comparison = access.topics.compare(allowed);
        let covers = self.memberships(peer).iter().all(|&(feed, _)| {
            match comparison.coverage(cx.streams.feeds.filter(feed)) {
                Coverage::Whole => true,
                Coverage::Part => self.is_partial(feed),
                Coverage::Nothing => false,
            }
        });
        (covers, comparison.cost())
    }

    /// Ends a reader that has lost its rights, and says why. A feed ends whole, so its follower
    /// asks again and gets the reason.
    pub(super) fn end_revoked(&mut self, cx: &mut Context, peer: Peer, why: Ended) {
        cx.stats.readers_expired.add(1);
        match self.phase {
            Phase::Pending(_) => {
                self.answer_poll(cx, peer, &Answer::Expelled(why), &Permit::SMALL);
            }
            Phase::Copying(_) => self.end_copying(cx, peer, self.is_feed(cx, peer)),
            _ => {
                (self.reader.transport.manner().expired)(cx.out.bytes(), why);
                self.finish_stream(cx, peer);
            }
        }
    }

    /// Why it may not go on reading, if it may not.
    pub(super) fn why_expelled(&self, cx: &mut Context, peer: Peer) -> Option<Ended> {
        if !self.reader.has_pass && cx.access.judged.is_none() {
            return None;
        }
        let pass = cx.access.passes.get(peer);
        if let Some(pass) = &pass
            && pass.has_expired(cx.clock.unix_s)
        {
            return Some(Ended::Expired);
        }
        if !cx.access.is_unjudged(peer) {
            return None;
        }
        if pass.as_ref().is_some_and(|pass| !cx.access.keys.has(pass.scope.key())) {
            return Some(Ended::Revoked);
        }
        if !cx.access.has_other_rules {
            return None;
        }
        let allowed = pass.as_ref().map(|pass| pass.scope.read());
        let (may_go_on, cost) = self.covers(cx, peer, allowed);
        cx.load.budget.cost += cost;
        if may_go_on { None } else { Some(Ended::Rules) }
    }

    /// The reason to end the connection, if it is a reader that has lost its rights.
    pub(crate) fn revocation(&self, cx: &mut Context, peer: Peer) -> Option<Ended> {
        if !self.reads_feeds() && !self.is_copying() {
            return None;
        }
        self.why_expelled(cx, peer)
    }

    /// Ends a reader in whatever state it is. The recheck passes each connection once, so no other
    /// check would end it later.
    ///
    /// A connection whose socket is full is reset: the client would get the reason only after the
    /// bytes that wait. A connection that waits in a queue leaves the queue.
    pub(crate) fn revoke<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        why: Ended,
    ) {
        if self.is_blocked() {
            mark("revoked-blocked");
            cx.stats.readers_expired.add(1);
            return self.abort(cx, io, peer);
        }
        if let Some(work) = &mut self.work {
            if work.place.is_some() {
                mark("revoked-in-queue");
            }
            (work.queue, work.place) = (None, None);
        }
        self.end_revoked(cx, peer, why);
        debug_assert!(
            !self.reads_feeds() && !self.is_copying(),
            "a revoked reader is still a reader"
        );
        self.deliver_and_read(cx, io, peer, false);
    }

    /// When its token ends, if it has one that does.
    pub(super) fn expires_ms(&self, cx: &Context, peer: Peer) -> Option<u64> {
        if !self.reader.has_pass {
            return None;
        }
        let left_s = cx.access.passes.get(peer)?.expires_unix_s?.saturating_sub(cx.clock.unix_s);
        Some(cx.clock.now_ms.saturating_add(left_s.saturating_mul(1000)))
    }

    /// What a request is answered that was held until it could not be.
    pub(super) fn denied_as(why: Ended, had_pass: bool) -> Denied {
        match why {
            Ended::Expired => Denied::bad_token(Refused::Expired),
            Ended::Revoked => Denied::bad_token(Refused::UnknownKey),
            Ended::Rules => Denied::unread(had_pass),
        }
    }
}

/// What it costs to compare one pattern with those of a token.
const COVERAGE_COST: usize = 256;

/// A token took the place of the one before.
const RENEWED: &[u8] = b"{\"renewed\":true}";

/// A token would end a part of what is read, and nobody would say so.
const COVERS_LESS: &str =
    "The token does not cover what is subscribed to: unsubscribe from that first.";
