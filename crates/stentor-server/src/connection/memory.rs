//! The memory that a connection holds, and that closing it would free.

use super::Connection;
use super::reader::Reading;
use super::state::State;
use crate::output::Backlog;

impl Connection {
    /// The bytes that it owns.
    pub(crate) fn owned_bytes(&self) -> usize {
        let of_state = match &self.state {
            State::Http(http) => http.own_bytes(),
            State::Stream(reading) => reading.own_bytes(),
            State::Poll(poll) => poll.own_bytes(),
            State::Pending(pending) => pending.own_bytes(),
            State::Body(making) => making.own_bytes(),
            _ => 0,
        };
        of_state + self.work.own_bytes()
    }

    /// Its share of the detached bodies that it has still to be sent, in bytes.
    pub(crate) fn detached_share(&self) -> usize {
        let of_body =
            if let State::Body(making) = &self.state { making.detached_share() } else { 0 };
        of_body + self.work.unsent().map_or(0, Backlog::detached_share)
    }

    /// The bytes of its feeds, as closing it would free them.
    pub(crate) fn feeds_bytes(&self) -> usize {
        self.reading().map_or(0, Reading::feeds_bytes)
    }
}
