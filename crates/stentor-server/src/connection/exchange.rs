//! What a connection needs to answer: its exchange with the worker, and refusals.

use super::{Connection, Phase};
use crate::budget::Permit;
use crate::context::Context;
use crate::exchange::Exchange;
use crate::response::Persistence;
use crate::response::Shape;
use stentor_io::Peer;
use stentor_order::Ticket;
use stentor_wire::status::Refusal;

impl Connection {
    /// The exchange for a response that needs nothing of its request and little work.
    pub(super) fn exchange<'a>(
        &self,
        cx: &'a mut Context,
        peer: Peer,
        persistence: Persistence,
    ) -> Exchange<'a> {
        let shape = Shape::new(self.role, persistence);
        cx.exchange_of(shape, self.ticket(peer), &Permit::SMALL)
    }

    /// By what the changes of the request under way are told apart from those of others.
    pub(super) fn ticket(&self, peer: Peer) -> Ticket {
        Ticket { peer, stamp: self.reader.stamp, line: 0 }
    }

    /// The same of a request that begins.
    pub(super) fn next_ticket(&mut self, peer: Peer) -> Ticket {
        self.reader.stamp = self.reader.stamp.wrapping_add(1);
        self.ticket(peer)
    }

    /// Answers with a refusal, after which nothing of the connection's input means anything.
    pub(super) fn refuse(&mut self, cx: &mut Context, peer: Peer, refusal: &Refusal) {
        self.refuse_request(cx, peer, refusal, false);
    }

    /// The same, when it is known whether the answer may have a body.
    pub(super) fn refuse_request(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        refusal: &Refusal,
        head_only: bool,
    ) {
        self.last_exchange(cx, peer, head_only).refuse(refusal);
    }

    /// What is needed for an answer behind which the connection ends.
    pub(super) fn last_exchange<'a>(
        &mut self,
        cx: &'a mut Context,
        peer: Peer,
        head_only: bool,
    ) -> Exchange<'a> {
        self.phase = Phase::Refusing;
        let mut x = self.exchange(cx, peer, Persistence { keep_alive: false, http10: false });
        x.reply.shape.head_only = head_only;
        x
    }
}
