//! The pump: how a connection sends what is due to it.
//!
//! A connection may have a source. A stream has the worker's log, and a replay of history before
//! that. A follower has a feed or a snapshot. A response that comes later has the event that it
//! waits for, and a large one the rest of its body. [`Connection::pump`] takes one step of the
//! source after another, until there is nothing more, or no room, or the connection has used up its
//! share. It is the one place that checks whether a reader still has its rights before it sends
//! anything.

use super::Connection;
use super::state::State;
use crate::budget::WorkClass;
use crate::context::Context;
use crate::limits::GATHER_BYTES;
use stentor_io::{Backend, Flow, Gone};

impl Connection {
    /// Something has happened that the source may have waited for: a message, a commit, or a
    /// deadline. Sends what is due, and goes on with the input that waits behind a response.
    pub(crate) fn deliver<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        // A connection that waits for room or in a queue is visited for that.
        if !self.waits() {
            let was_read = self.reads();
            self.deliver_and_read(cx, io, was_read);
        }
    }

    /// The same. The backend is asked for more input if the connection `was_read` no more.
    pub(super) fn deliver_and_read<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        was_read: bool,
    ) {
        let input = self.work.take_input();
        let result = self.proceed_owned(cx, io, input);
        if self.settle(cx, io, result) == Flow::More && !was_read {
            io.resume(cx.peer);
        }
    }

    /// The connection sends the events and responses that its source has.
    pub(super) fn pump<B: Backend>(&mut self, cx: &mut Context, io: &mut B) -> Result<(), Gone> {
        while !self.waits() {
            if let Some(why) = self.revocation(cx) {
                self.end_revoked(cx, why);
                break;
            }
            let goes_on = match &mut self.state {
                State::Pending(_) => {
                    self.answer_pending(cx);
                    matches!(self.state, State::Body(_))
                }
                State::Poll(_) => {
                    self.pump_poll(cx);
                    matches!(self.state, State::Body(_))
                }
                State::Stream(_) | State::Transfer(_) if cx.load.budget.is_over_share() => {
                    self.work.wait_in(WorkClass::CatchUp);
                    break;
                }
                State::Body(_) if cx.load.budget.is_over_share() => {
                    self.work.wait_in(WorkClass::Requests);
                    break;
                }
                State::Body(_) => {
                    self.pump_body(cx);
                    true
                }
                State::Stream(reading) => reading.pump(cx, &mut self.work, io)?,
                State::Transfer(_) => self.pump_transfer(cx),
                _ => break,
            };
            let is_full = cx.out.len() >= GATHER_BYTES && !self.work.flush(cx, io)?;
            if is_full || !goes_on {
                break;
            }
        }
        self.work.flush(cx, io).map(drop)
    }
}
