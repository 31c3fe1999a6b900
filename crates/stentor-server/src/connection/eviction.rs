//! Evicting a connection that waits for its client when there is no room for a newcomer
//! (`worker/places.rs`).

use super::http::Http;
use super::state::State;
use super::{Connection, RequestWait, StreamWait};
use crate::addresses::Holder;
use crate::context::Context;
use crate::put_off::{self, TOO_MANY};
use stentor_io::Backend;

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
        let loss = match &self.state {
            State::Http(http) => match http.wait() {
                RequestWait::Head | RequestWait::Handshake => Loss::Nothing,
                RequestWait::Idle => Loss::Idle,
                // Lines may be on their way to other readers, and the publisher is to learn which.
                RequestWait::Body if http.reads_bulk() => return None,
                RequestWait::Body | RequestWait::Room => Loss::Exchange,
                RequestWait::ProxyHeader => return None,
            },
            State::Poll(_) => Loss::Poll,
            State::Stream(reading) => match reading.wait() {
                StreamWait::Farewell | StreamWait::Leave => return None,
                _ => Loss::Stream,
            },
            State::Lingering => Loss::Idle,
            State::Closing | State::Refusing => Loss::Exchange,
            _ => return None,
        };
        Some((cx.shared.addresses.holder(self.counted)?, loss))
    }

    /// Tells the client when to come again, and closes. A client that takes nothing is reset.
    pub(crate) fn evict<B: Backend>(&mut self, cx: &mut Context, io: &mut B) {
        if self.waits() {
            return self.abort(cx, io);
        }
        match self.transport().and_then(|transport| transport.manner().put_off) {
            Some(write) => write(cx.out.bytes(), cx.rng.next_u64()),
            None => self.put_off_evicted(cx),
        }
        let has_left = self.work.flush(cx, io);
        cx.out.clear();
        cx.settle_answers(io, self.role());
        match has_left {
            Ok(true) => self.close(cx, io),
            _ => self.abort(cx, io),
        }
    }

    /// Answers the request that is under way, if one is.
    fn put_off_evicted(&mut self, cx: &mut Context) {
        let mut is_stream = false;
        let asked = match &mut self.state {
            State::Poll(poll) => Some(poll.take_asked()),
            State::Http(http) => Http::take_asked(http),
            _ => None,
        };
        match asked {
            Some(asked) => cx.responses.answers.asked = asked,
            None if self.has_begun_a_head() => {
                is_stream = put_off::asks_for_events(self.work.input());
                self.note_asked(cx, self.work.input());
            }
            None => return,
        }
        // A page of another origin may not know why, but is to come again.
        let mut x = self.last_exchange(cx, false);
        x.put_off_until_later(is_stream, Some("*"), &TOO_MANY);
    }
}
