//! The states of a connection. Each owns its data, and every transition is here.

use super::body::Making;
use super::http::Http;
use super::poll::Poll;
use super::reader::Reading;
use super::transfer::Transferring;
use super::{Connection, Phase};
use crate::context::Context;
use crate::exchange::Pending;
use crate::phase::{ReplyWait, RequestWait};
use crate::stream::HAS_PASS;
use crate::stream::feeds::{FeedId, Member};
use crate::stream::format::Transport;
use stentor_io::Peer;

/// The state of a connection.
#[derive(Debug, Default)]
pub(super) enum State {
    /// The record is not in use.
    #[default]
    Free,
    /// It reads HTTP requests and answers them.
    Http(Http),
    /// It reads a stream.
    Stream(Reading),
    /// A long-poll waits for its answer.
    Poll(Box<Poll>),
    /// The answer to its last request comes later.
    Pending(Box<Pending>),
    /// The body of the answer to its last request is made in steps. Between two of them it waits
    /// for room or in a queue.
    Body(Box<Making>),
    /// A follower reads it.
    Transfer(Transferring),
    /// The last answer waits for room to write. Then the socket is closed.
    Closing,
    /// The same, but the peer may still be sending: it must not be reset before it has read why
    /// it was refused (RFC 9112 section 9.6).
    Refusing,
    /// This side has ended. Input is thrown away until the peer ends too.
    Lingering,
    /// The last answer has left. Once the peer has acknowledged it, the socket is reset.
    Delivering,
}

impl Connection {
    /// The one way from a state to the next: readers leave their feeds, and give back their pass.
    pub(super) fn enter(&mut self, cx: &mut Context, next: State) {
        match std::mem::replace(&mut self.state, next) {
            State::Stream(reading) => reading.leave(cx),
            State::Poll(poll) => drop(poll.leave(cx)),
            State::Transfer(transfer) => transfer.leave(cx),
            _ => {}
        }
    }

    /// Takes the state of an answer that comes now. The connection is open again.
    pub(super) fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Http(Http::new(RequestWait::Idle, 0, None)))
    }

    /// The phase, with the event that the deadline is for.
    pub(crate) fn phase(&self) -> Phase {
        match &self.state {
            State::Free => Phase::Free,
            State::Http(http) => Phase::Open(http.wait()),
            State::Stream(reading) => Phase::Streaming(reading.wait()),
            State::Poll(poll) => Phase::Pending(poll.wait()),
            State::Pending(_) if self.waits() => Phase::Pending(ReplyWait::Room),
            State::Pending(_) => Phase::Pending(ReplyWait::Event),
            State::Body(making) => making.phase(),
            State::Transfer(transfer) => Phase::Copying(transfer.wait()),
            State::Closing => Phase::Closing,
            State::Refusing => Phase::Refusing,
            State::Lingering => Phase::Lingering,
            State::Delivering => Phase::Delivering,
        }
    }

    /// The reader of a stream or a long-poll.
    pub(super) fn reading(&self) -> Option<&Reading> {
        match &self.state {
            State::Stream(reading) => Some(reading),
            State::Poll(poll) => Some(poll.reading()),
            _ => None,
        }
    }

    pub(super) fn reading_mut(&mut self) -> Option<&mut Reading> {
        match &mut self.state {
            State::Stream(reading) => Some(reading),
            State::Poll(poll) => Some(poll.reading_mut()),
            _ => None,
        }
    }

    pub(super) fn http(&self) -> Option<&Http> {
        if let State::Http(http) = &self.state { Some(http) } else { None }
    }

    pub(super) fn http_mut(&mut self) -> Option<&mut Http> {
        if let State::Http(http) = &mut self.state { Some(http) } else { None }
    }

    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.state, State::Stream(_))
    }

    /// Whether this is a long-poll that waits for its answer.
    pub(super) fn is_polling(&self) -> bool {
        matches!(self.state, State::Poll(_))
    }

    /// Whether the answer to its last request, or the rest of it, comes later.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state, State::Pending(_) | State::Poll(_) | State::Body(_))
    }

    /// Whether a follower reads it.
    pub(crate) fn is_copying(&self) -> bool {
        matches!(self.state, State::Transfer(_))
    }

    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    /// Whether no request is under way.
    pub(super) fn is_between_requests(&self) -> bool {
        self.work.is_none() && self.http().is_some_and(|http| http.body().is_none())
    }

    /// Whether it waits for its next request, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase() == Phase::Open(RequestWait::Idle) && self.is_between_requests()
    }

    /// What it reads, or is about to: the feeds, and its places in their lists.
    pub(crate) fn memberships(&self, peer: Peer) -> Vec<(FeedId, Member)> {
        self.reading().map(|reading| reading.memberships(peer, self.stamp)).unwrap_or_default()
    }

    /// Whether it was let in by a token.
    pub(crate) fn has_pass(&self) -> bool {
        match &self.state {
            State::Transfer(transfer) => transfer.has_pass(),
            _ => self.reading().is_some_and(|reading| reading.traits().has(HAS_PASS)),
        }
    }

    /// How it reads, if it does.
    pub(crate) fn transport(&self) -> Option<Transport> {
        self.reading().map(|reading| reading.traits().transport)
    }

    /// Whether nothing will bring it back but its peer, or the end of the server's stop.
    #[cfg(debug_assertions)]
    pub(crate) fn has_no_deadline(&self) -> bool {
        self.is_leaving()
    }

    /// The kind of the reader, and the event that it waits for.
    #[cfg(test)]
    pub(crate) fn reading_state(&self) -> (&'static str, &'static str) {
        let what = match &self.state {
            State::Stream(_) => "stream",
            State::Poll(_) | State::Pending(_) => "poll",
            State::Transfer(_) => "transfer",
            _ => "nothing",
        };
        let event = match self.waits() {
            _ if self.is_blocked() => "room",
            true => "queue",
            false => "event",
        };
        (what, event)
    }
}
