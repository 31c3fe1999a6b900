//! Evicting a connection that waits for its client when there is no room for a newcomer
//! (`worker/places.rs`).

use super::{Connection, Phase, RequestWait, StreamWait};
use crate::addresses::Holder;
use crate::context::Context;
use crate::put_off::{self, TOO_MANY};
use crate::response::Persistence;
use stentor_io::{Backend, Peer};

/// A client's loss if its connection is evicted. The connection with the least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Loss {
    /// It has not asked for anything yet.
    Nothing,
    /// It would have to connect again for its next request.
    Idle,
    /// It waits for something new, and would have to ask again.
    Poll,
    /// It reads a stream.
    Stream,
    /// Its request is still coming, or it does not take an answer as fast as that is sent.
    Exchange,
}

impl Connection {
    /// The holder of the connection, and the loss. Returns `None` if the connection is not evicted:
    /// the server owes it work, or its address is not counted.
    pub(crate) fn evictable(&self, cx: &Context) -> Option<(Holder, Loss)> {
        // The worker has work for a connection that is in one of its queues.
        if self.waits() && !self.is_blocked() {
            return None;
        }
        let loss = match self.phase {
            Phase::Open(RequestWait::Head | RequestWait::Handshake) => Loss::Nothing,
            Phase::Open(RequestWait::Idle) | Phase::Lingering => Loss::Idle,
            Phase::Pending(_) if self.is_polling() => Loss::Poll,
            Phase::Streaming(StreamWait::Farewell | StreamWait::Leave) => return None,
            Phase::Streaming(_) => Loss::Stream,
            // Lines may be on their way to other readers, and the publisher is to learn which.
            Phase::Open(RequestWait::Body) if self.reads_bulk() => return None,
            Phase::Open(RequestWait::Body) => Loss::Exchange,
            Phase::Open(RequestWait::Room) | Phase::Closing | Phase::Refusing => Loss::Exchange,
            _ => return None,
        };
        Some((cx.shared.addresses.holder(self.counted)?, loss))
    }

    /// Whether a stream of messages is coming.
    fn reads_bulk(&self) -> bool {
        let incoming = self.work.as_ref().and_then(|work| work.incoming.as_ref());
        incoming.is_some_and(|incoming| incoming.sink.is_bulk())
    }

    /// Tells the client when to come again, and closes. A client that takes nothing is reset.
    pub(crate) fn evict<B: Backend>(&mut self, cx: &mut Context, io: &mut B, peer: Peer) {
        if self.waits() {
            return self.abort(cx, io, peer);
        }
        match self.transport().and_then(|transport| transport.manner().put_off) {
            Some(write) => write(cx.out.bytes(), cx.rng.next_u64()),
            None => self.put_off_evicted(cx, peer),
        }
        let has_left = self.flush(cx, io, peer);
        cx.out.clear();
        cx.settle_answers(io, self.role(), peer);
        match has_left {
            Ok(true) => self.close(cx, io, peer),
            _ => self.abort(cx, io, peer),
        }
    }

    /// Answers the request that is under way, if one is.
    fn put_off_evicted(&mut self, cx: &mut Context, peer: Peer) {
        let mut is_stream = false;
        let incoming = self.work.as_mut().and_then(|work| work.incoming.take());
        let asked = match (self.pending(), incoming) {
            (Some(pending), _) => Some(std::mem::take(&mut pending.asked)),
            (None, Some(incoming)) => Some(incoming.asked),
            (None, None) => None,
        };
        match (asked, self.work.as_deref()) {
            (Some(asked), _) => cx.responses.answers.asked = asked,
            (None, Some(work)) if self.has_begun_a_head() => {
                is_stream = put_off::asks_for_events(&work.input);
                self.note_asked(cx, &work.input);
            }
            _ => return,
        }
        // A page of another origin may not know why, but is to come again.
        let mut x = self.exchange(cx, peer, Persistence { keep_alive: false, http10: false });
        x.put_off_until_later(is_stream, Some("*"), TOO_MANY);
    }
}
