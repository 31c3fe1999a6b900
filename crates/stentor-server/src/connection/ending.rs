//! How a connection ends: by its deadline, by a stop, after its last answer, or cut.

use super::{Connection, Origin, Phase, RequestWait};
use crate::budget::Permit;
use crate::context::Context;
use stentor_config::Close;
use stentor_io::{Backend, Flow, Peer};
use stentor_tls_layer::TlsFailure;
use stentor_wire::status::{Refusal, Status};

impl Connection {
    /// The deadline has come: tells a client that was in the middle of a request, and ends.
    pub(crate) fn expire<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        let reason = match self.phase {
            phase if phase.awaits_room() => {
                let now_ms = cx.clock.now_ms;
                self.note_pace(cx, io, peer);
                if self.is_blocked() && self.room_deadline_ms(cx) <= now_ms {
                    cx.stats.timeouts.add(1);
                    self.abort(cx, io, peer);
                }
                return;
            }
            Phase::Open(RequestWait::Head) if self.has_begun_a_head() => {
                "The request head took too long to arrive."
            }
            // The client would send, and what it sent is not committed yet.
            Phase::Open(RequestWait::Body) if self.is_sink_full() => return,
            Phase::Open(RequestWait::Body) => "The request body arrives too slowly.",
            Phase::Streaming(wait) => return self.expire_stream(cx, io, peer, wait),
            Phase::Pending(_) => {
                cx.rearm();
                return self.deliver(cx, io, peer);
            }
            Phase::Copying(_) => return self.expire_copying(cx, io, peer),
            Phase::Delivering if io.unacknowledged(peer) == 0 => {
                return self.abort(cx, io, peer);
            }
            Phase::Delivering => {
                self.phase = Phase::Refusing;
                let _ = self.settle(cx, io, peer, Ok(()));
                return;
            }
            _ => return self.close(cx, io, peer),
        };
        cx.stats.timeouts.add(1);
        let is_noted = self.origin != Origin::Probe;
        match self.work.as_mut().map(|work| (work.incoming.take(), &work.input)) {
            Some((Some(incoming), _)) => cx.responses.answers.asked = incoming.asked,
            Some((None, input)) if is_noted => cx.note_asked(input),
            Some((None, _)) | None => {}
        }
        self.refuse(cx, peer, &Refusal { status: Status::REQUEST_TIMEOUT, reason });
        let result = self.flush(cx, io, peer).map(drop);
        // Nothing more is read, so there is nothing to pause or resume.
        let _ = self.settle(cx, io, peer, result);
    }

    /// A graceful stop begins.
    pub(crate) fn drain<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        if self.is_copying() {
            self.deliver(cx, io, peer);
        }
        // With an answer on its way the stream is ended behind it.
        if self.waits() || !self.end_bulk(cx, io, peer) {
            return;
        }
        let result = self.flush(cx, io, peer).map(drop);
        // The connection reads on as it did: what comes is thrown away.
        let _ = self.settle(cx, io, peer, result);
    }

    /// Tells a stream of messages what came of it so far and refuses the rest. Returns whether
    /// there was one.
    pub(super) fn end_bulk<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
    ) -> bool {
        let Some(work) = &mut self.work else { return false };
        match work.incoming.take() {
            Some(incoming) if incoming.sink.is_bulk() => {
                self.answer_body(cx, io, peer, *incoming, true, &Permit::SMALL);
                // The publisher may be sending still.
                if self.phase == Phase::Closing {
                    self.phase = Phase::Refusing;
                }
                true
            }
            other => {
                work.incoming = other;
                false
            }
        }
    }

    /// Whether what came is the beginning of a handshake of TLS, which is not spoken here: then it
    /// ends without a word, for who says that would not understand one.
    pub(super) fn ends_for_tls(&mut self, cx: &Context, input: &[u8]) -> bool {
        let is_tls = input.starts_with(&[HANDSHAKE, 3]);
        if is_tls {
            cx.stats.tls_failed.of(TlsFailure::NotSpokenHere).add(1);
            self.phase = Phase::Refusing;
        }
        is_tls
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
    pub(super) fn end<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) -> Flow {
        if !self.is_reset_at_end(cx) {
            self.close(cx, io, peer);
        } else if io.unacknowledged(peer) == 0 {
            self.abort(cx, io, peer);
        } else {
            self.phase = Phase::Delivering;
            self.work = None;
            io.resume(peer);
            return Flow::More;
        }
        Flow::Closed
    }

    /// Closes the socket and frees the record.
    pub(crate) fn close<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        self.free(cx, peer);
        io.close(peer);
    }

    /// Closes with a reset: what was not delivered is thrown away.
    pub(crate) fn abort<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        self.free(cx, peer);
        io.abort(peer);
    }

    /// The timer stays as it is: the wheel finds the record free, or in use again.
    fn free(&mut self, cx: &mut Context, peer: Peer) {
        cx.stats.connections(self.role()).sub(1);
        cx.shared.addresses.leave(self.counted);
        cx.access.clients.set(peer, None);
        self.leave_stream(cx, peer);
        self.leave_copying(cx, peer);
        self.extra = None;
        self.work = None;
        self.phase = Phase::Free;
    }
}

/// The type of the records that a handshake of TLS begins with.
const HANDSHAKE: u8 = 22;
