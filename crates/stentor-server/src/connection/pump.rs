//! The pump: how a connection sends what is due to it.
//!
//! A connection may have a source. A stream has the worker's log, and a replay of history before
//! that. A follower has a feed or a snapshot. A response that comes later has the event that it
//! waits for. [`Connection::pump`] takes one step of the source after another, until there is
//! nothing more, or no room, or the connection has used up its share. It is the one place that
//! checks whether a reader still has its rights before it sends anything.

use super::{Connection, Phase};
use crate::budget::WorkClass;
use crate::context::Context;
use crate::limits::GATHER_BYTES;
use stentor_io::{Backend, Flow, Gone, Peer};

impl Connection {
    /// Something has happened that the source may have waited for: a message, a commit, or a
    /// deadline. Sends what is due, and goes on with the input that waits behind a response.
    pub(crate) fn deliver<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        // A connection that waits for room or in a queue is visited for that.
        if !self.waits() {
            let was_read = self.reads();
            self.deliver_and_read(cx, io, peer, was_read);
        }
    }

    /// The same. The backend is asked for more input if the connection `was_read` no more.
    pub(super) fn deliver_and_read<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        was_read: bool,
    ) {
        let input = self.take_input();
        let result = self.proceed_owned(cx, io, peer, input);
        if self.settle(cx, io, peer, result) == Flow::More && !was_read {
            io.resume(peer);
        }
    }

    /// The connection sends the events and responses that its source has.
    pub(super) fn pump<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
    ) -> Result<(), Gone> {
        while !self.waits() {
            if let Some(why) = self.revocation(cx, peer) {
                self.end_revoked(cx, peer, why);
                break;
            }
            let goes_on = match self.phase {
                Phase::Pending(_) => {
                    self.answer_pending(cx, peer);
                    false
                }
                Phase::Streaming(_) | Phase::Copying(_) if cx.load.budget.is_over_share() => {
                    self.wait_in(WorkClass::CatchUp);
                    break;
                }
                Phase::Streaming(_) => self.pump_stream(cx, io, peer)?,
                Phase::Copying(_) => self.pump_transfer(cx, peer),
                _ => break,
            };
            let is_full = cx.out.len() >= GATHER_BYTES && !self.flush(cx, io, peer)?;
            if is_full || !goes_on {
                break;
            }
        }
        self.flush(cx, io, peer).map(drop)
    }
}
