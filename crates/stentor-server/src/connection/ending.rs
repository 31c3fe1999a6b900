//! How a connection ends: by its deadline, by a stop, after its last answer, or cut.

use super::http::Http;
use super::state::State;
use super::{Connection, Origin, RequestWait};
use crate::context::Context;
use stentor_config::Close;
use stentor_io::{Backend, Flow};
use stentor_wire::rejections;

impl Connection {
    /// The deadline has come: tells a client that was in the middle of a request, and ends.
    pub(crate) fn expire<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        if self.phase().awaits_room() {
            let now_ms = cx.clock.now_ms;
            self.note_pace(cx, io);
            if self.is_blocked() && self.room_deadline_ms(cx) <= now_ms {
                cx.stats.timeouts.add(1);
                self.abort(cx, io);
            }
            return;
        }
        let rejection = match &self.state {
            State::Http(http) => match http.wait() {
                RequestWait::Head if self.has_begun_a_head() => SLOW_HEAD,
                // The client would send, and what it sent is not committed yet.
                RequestWait::Body if http.is_sink_full() => return,
                RequestWait::Body => SLOW_BODY,
                _ => return self.close(cx, io),
            },
            State::Stream(_) => return self.expire_stream(cx, io),
            State::Poll(_) | State::Pending(_) => {
                cx.rearm();
                return self.deliver(cx, io);
            }
            State::Transfer(transfer) => {
                return self.expire_copying(cx, io, transfer.wait());
            }
            State::Delivering if io.unacknowledged(cx.peer) == 0 => {
                return self.abort(cx, io);
            }
            State::Delivering => {
                self.enter(cx, State::Refusing);
                let _ = self.settle(cx, io, Ok(()));
                return;
            }
            _ => return self.close(cx, io),
        };
        cx.stats.timeouts.add(1);
        match self.http_mut().and_then(Http::take_asked) {
            Some(asked) => cx.responses.answers.asked = asked,
            None => self.note_asked(cx, self.work.input()),
        }
        self.reject(cx, &rejection, false);
        let result = self.work.flush(cx, io).map(drop);
        // Nothing more is read, so there is nothing to pause or resume.
        let _ = self.settle(cx, io, result);
    }

    /// A graceful stop begins.
    pub(crate) fn drain<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        if self.is_copying() {
            self.deliver(cx, io);
        }
        // With an answer on its way the stream is ended behind it.
        if self.waits() || !self.end_bulk(cx) {
            return;
        }
        let result = self.work.flush(cx, io).map(drop);
        // The connection reads on as it did: what comes is thrown away.
        let _ = self.settle(cx, io, result);
    }

    /// Whether the settings have this connection reset once its last answer has arrived.
    pub(super) fn is_reset_at_end(&self, cx: &Context) -> bool {
        self.origin != Origin::Unix && cx.settings.limits.close == Close::Reset
    }

    /// Whether the peer may say something behind its last request that the server has to read: by
    /// TLS it may ask for other keys, or say that it ends. To close on what is unread would be a
    /// reset, which overtakes the answer.
    pub(super) fn lingers(&self, cx: &Context) -> bool {
        self.is_secured() && !self.is_reset_at_end(cx)
    }

    /// Ends a connection whose last answer has left, as the settings say. A reset throws away what
    /// the peer has not acknowledged, so that comes first; a peer that is too far away for it, or
    /// too slow, is not reset.
    pub(super) fn end<B: Backend>(&mut self, cx: &mut Context, io: &mut B) -> Flow {
        if !self.is_reset_at_end(cx) {
            self.close(cx, io);
        } else if io.unacknowledged(cx.peer) == 0 {
            self.abort(cx, io);
        } else {
            self.enter(cx, State::Delivering);
            self.work.clear();
            io.resume(cx.peer);
            return Flow::More;
        }
        Flow::Closed
    }

    /// Closes the socket and frees the record.
    pub(crate) fn close<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        self.free(cx);
        io.close(cx.peer);
    }

    /// Closes with a reset: what was not delivered is thrown away.
    pub(crate) fn abort<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        self.free(cx);
        io.abort(cx.peer);
    }

    /// The timer stays as it is: the wheel finds the record free, or in use again.
    fn free(&mut self, cx: &mut Context) {
        cx.stats.connections(self.role()).sub(1);
        cx.shared.addresses.leave(self.counted);
        cx.access.clients.set(cx.peer, None);
        self.enter(cx, State::Free);
        self.work.clear();
    }
}

rejections! {
    SLOW_HEAD: HeadTimeout = "The request head took too long to arrive.";
    SLOW_BODY: BodyTimeout = "The request body arrives too slowly.";
}
