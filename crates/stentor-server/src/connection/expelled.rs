//! Who may not read any more: the token has ended, its key is gone, or the rules are others.
//!
//! A token's end is a deadline as others are. Whatever else brings a reader back looks first
//! whether it may read still, so nothing that was published later reaches it, however late the
//! deadline is seen to. Once rules or keys have changed every reader is looked at again, some in
//! each turn (`Worker::judge`); who has anything due before its turn is looked at then.

use super::Connection;
use super::poll::Answer;
use super::state::State;
use super::transfer::is_feed;
use crate::access::{Act, Bearer, Denied, Sight, Visitor, covers_copy};
use crate::budget::Permit;
use crate::context::Context;
use crate::listeners::listener;
use crate::stream::HAS_PASS;
use crate::stream::feeds::FeedId;
use crate::stream::format::Ended;
use std::collections::HashSet;
use stentor_access::{Coverage, Grant, PatternsRef, Refused};
use stentor_hub::Filter;
use stentor_io::{Backend, mark};
use stentor_wire::error::{ErrorCode, Rejection};

impl Connection {
    /// What may be subscribed to stays; the rest it is to be told of. `grant` is of a token that
    /// takes the place of the one before.
    pub(super) fn may_subscribe(
        &self,
        cx: &mut Context,
        filters: &mut Vec<Filter>,
        grant: Option<&Grant>,
        _: &Permit,
    ) -> Result<Sight, Rejection> {
        let pass = || cx.access.passes.get(cx.peer).filter(|_| self.has_pass());
        let bearer = match grant.cloned().or_else(|| pass().map(|pass| pass.grant())) {
            Some(grant) => Bearer::Good { grant, by_cookie: false },
            None => Bearer::Nobody,
        };
        let settings = &cx.settings;
        let visitor = Visitor::new(self.role, settings, &bearer);
        let mut cost = 0;
        let sight = visitor.may(Act::Read(filters));
        let sight = sight.and_then(|()| visitor.sight(filters, &mut cost));
        cx.load.budget.cost += cost;
        sight.map_err(|denied| {
            cx.access.denials.note(&cx.stats, denied.why, || None, cx.clock.now_ms);
            denied.rejection
        })
    }

    /// Checks a token that is to take the place of the one before: it must cover what is read
    /// and not unsubscribed from.
    pub(super) fn check_token(
        &self,
        cx: &mut Context,
        token: &str,
        leaving: &HashSet<FeedId>,
        permit: &Permit,
    ) -> Result<Grant, Rejection> {
        let grant = match cx.verify(token, false, permit) {
            Bearer::Good { grant, .. } => grant,
            Bearer::Bad(refused) => {
                let denied = Denied::bad_token(refused);
                cx.access.denials.note(&cx.stats, denied.why, || None, cx.clock.now_ms);
                return Err(denied.rejection);
            }
            Bearer::Nobody | Bearer::Judged => return Err(Refused::Malformed.rejection()),
        };
        let (covers, cost) = self.covers(cx, Some(grant.scope.read()), leaving);
        cx.load.budget.cost += cost;
        if covers { Ok(grant) } else { Err(COVERS_LESS) }
    }

    /// Gives the reader another token.
    pub(super) fn renew(&mut self, cx: &mut Context, grant: &Grant) {
        cx.access.passes.give(cx.peer, grant);
        if let Some(reading) = self.reading_mut() {
            reading.set_trait(HAS_PASS, true);
        }
        // Its end is another.
        cx.rearm();
    }

    /// Whether what is read may be by who is allowed these, as far as was promised; and what it
    /// took to say so.
    fn covers(
        &self,
        cx: &Context,
        allowed: Option<PatternsRef<'_>>,
        leaving: &HashSet<FeedId>,
    ) -> (bool, usize) {
        let access = &cx.settings.access;
        if self.is_copying() {
            let filters =
                cx.streams.replication.copy(cx.peer).map_or(&[][..], |copy| copy.filters());
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
        let memberships = self.memberships(cx.peer);
        let mut stay = memberships.iter().filter(|(feed, _)| !leaving.contains(feed));
        let covers =
            stay.all(|&(feed, _)| match comparison.coverage(cx.streams.feeds.filter(feed)) {
                Coverage::Whole => true,
                Coverage::Part => self.reading().is_some_and(|it| it.is_partial(feed)),
                Coverage::Nothing => false,
            });
        (covers, comparison.cost())
    }

    /// Ends a reader that has lost its rights, and says why. A feed ends whole, so its follower
    /// asks again and gets the reason.
    pub(super) fn end_revoked(&mut self, cx: &mut Context, why: Ended) {
        cx.stats.readers_expired.add(1);
        match &self.state {
            State::Poll(_) => {
                self.answer_poll(cx, &Answer::Expelled(why), &Permit::SMALL);
            }
            State::Transfer(_) => self.end_copying(cx, is_feed(cx)),
            State::Stream(reading) => {
                (reading.traits().transport.manner().end)(cx.out.bytes(), why);
                self.enter(cx, State::Refusing);
            }
            _ => {}
        }
    }

    /// The reason to end the connection, if it is a reader that has lost its rights.
    pub(crate) fn revocation(&self, cx: &mut Context) -> Option<Ended> {
        let is_reader = self.reading().is_some() || self.is_copying();
        if !is_reader || !self.has_pass() && cx.access.judged.is_none() {
            return None;
        }
        let pass = cx.access.passes.get(cx.peer);
        let is_unjudged = cx.access.is_unjudged(cx.peer);
        if let Some(pass) = &pass {
            let (keys, unix_s) = (&cx.access.keys, cx.clock.unix_s);
            if keys.has_expired(pass.scope, pass.expires_unix_s, unix_s) {
                return Some(Ended::Expired);
            }
            if is_unjudged && pass.check(keys, unix_s).is_err() {
                return Some(Ended::Revoked);
            }
        }
        if !is_unjudged {
            return None;
        }
        if !cx.access.has_other_rules {
            return None;
        }
        let allowed = pass.as_ref().map(|pass| pass.scope.read());
        let (may_go_on, cost) = self.covers(cx, allowed, &HashSet::new());
        cx.load.budget.cost += cost;
        if may_go_on { None } else { Some(Ended::Rules) }
    }

    /// Ends a reader in whatever state it is. The recheck passes each connection once, so no other
    /// check would end it later.
    ///
    /// A connection whose socket is full is reset: the client would get the reason only after the
    /// bytes that wait. A connection that waits in a queue leaves the queue.
    pub(crate) fn revoke<B: Backend>(&mut self, cx: &mut Context, io: &mut B, why: Ended) {
        if self.is_blocked() {
            mark("revoked-blocked");
            cx.stats.readers_expired.add(1);
            return self.abort(cx, io);
        }
        if self.place().is_some() {
            mark("revoked-in-queue");
        }
        self.work.leave_queue();
        self.end_revoked(cx, why);
        debug_assert!(
            self.reading().is_none() && !self.is_copying(),
            "a revoked reader is still a reader"
        );
        self.deliver_and_read(cx, io, false);
    }

    /// When its token ends, if it has one that does.
    pub(super) fn expires_ms(&self, cx: &Context) -> Option<u64> {
        if !self.has_pass() {
            return None;
        }
        let pass = cx.access.passes.get(cx.peer)?;
        let end_unix_s = cx.access.keys.end_unix_s(pass.scope, pass.expires_unix_s)?;
        let left_s = end_unix_s.saturating_sub(cx.clock.unix_s);
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

/// A token would end a part of what is read, and nobody would say so.
const COVERS_LESS: Rejection = Rejection::new(
    ErrorCode::TokenInsufficient,
    "The token does not cover what is subscribed to: unsubscribe from that first.",
);
