//! The phase of a connection, and the event that it waits for in this phase.
//!
//! A connection has one deadline. Each phase lists the events that the deadline can limit, so an
//! event that is impossible in a phase cannot be written. [`Connection::deadline_ms`] sets the
//! event at the end of each visit. Within a visit it may be that of the visit before.
//!
//! [`Connection::deadline_ms`]: crate::connection::Connection::deadline_ms

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    /// The record is not in use.
    #[default]
    Free,
    /// It reads requests and answers them.
    Open(RequestWait),
    /// It reads a stream.
    Streaming(StreamWait),
    /// The answer to its last request comes later.
    Pending(ReplyWait),
    /// A follower reads it.
    Copying(ReplyWait),
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

/// The event that an open connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestWait {
    /// The next request.
    Idle,
    /// The end of a head. The time counts from its beginning, so slow bytes do not extend it.
    Head,
    /// The end of a TLS handshake.
    Handshake,
    /// The header of the PROXY protocol.
    ProxyHeader,
    /// The end of a body.
    Body,
    /// Room to write, or a turn in a line.
    Room,
}

/// The event that a stream waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamWait {
    /// The next heartbeat. Without one, a proxy or the peer may take a silent stream for dead.
    Heartbeat,
    /// The next ping, or its pong.
    Ping,
    /// The end of a WebSocket frame or message.
    Frame,
    /// Room to write, or a turn in a line.
    Room,
    /// The expiry of its token.
    Expiry,
    /// The time at which the stream ends because the server stops.
    Farewell,
    /// Room to write, after that time. It has no deadline.
    Leave,
}

/// The event that a long-poll, a pending answer or a follower waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyWait {
    /// The event itself, or the end of the time for it. A follower waits for the next heartbeat:
    /// without one, it takes its leader for dead.
    Event,
    /// Room to write, or a turn in a line.
    Room,
    /// The expiry of its token.
    Expiry,
}

impl ReplyWait {
    /// The event that comes first, and when.
    pub(crate) fn first(
        event_ms: u64,
        room_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> (ReplyWait, u64) {
        match (room_ms, expires_ms) {
            (Some(room_ms), _) => (ReplyWait::Room, room_ms),
            (None, Some(expires_ms)) if expires_ms < event_ms => (ReplyWait::Expiry, expires_ms),
            (None, _) => (ReplyWait::Event, event_ms),
        }
    }

    /// Whether a connection that `waits` for room or in a queue, or does not, may be in this wait.
    pub(crate) fn fits(self, waits: bool, has_pass: bool) -> bool {
        waits == (self == ReplyWait::Room) && (has_pass || self != ReplyWait::Expiry)
    }
}

impl Phase {
    /// Whether the connection waits for room to write, or for its turn in a line.
    pub(crate) fn awaits_room(self) -> bool {
        matches!(
            self,
            Phase::Open(RequestWait::Room)
                | Phase::Streaming(StreamWait::Room)
                | Phase::Pending(ReplyWait::Room)
                | Phase::Copying(ReplyWait::Room)
                | Phase::Closing
                | Phase::Refusing
        )
    }

    /// Whether every visit moves the deadline. A token ends by the wall clock, which may have been
    /// set since. The heartbeat of a follower stays where it is: a visit need not send the follower
    /// anything.
    pub(crate) fn renews(self) -> bool {
        let renews = matches!(
            self,
            Phase::Open(RequestWait::Idle | RequestWait::Body)
                | Phase::Streaming(StreamWait::Heartbeat | StreamWait::Expiry)
                | Phase::Pending(_)
        );
        renews || self.awaits_room()
    }
}
