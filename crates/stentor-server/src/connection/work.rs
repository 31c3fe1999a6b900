//! What is unfinished about a connection: its input, a body on its way in, and an answer that the
//! socket refused.

use super::pace::Pace;
use crate::answers::Asked;
use crate::budget::{Place, WorkClass};
use crate::endpoint::Sink;
use crate::limits::{BODY_GRACE_MS, BULK_SILENCE_MS};
use crate::output::Backlog;
use crate::response::Persistence;
use stentor_wire::http1::{self, Framing, Version};

/// What is unfinished.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Received, not yet used: an incomplete request, or whole ones behind an answer that waits.
    pub(super) input: Vec<u8>,
    /// How much of `input` was searched for the end of a head.
    pub(super) scanned: usize,
    pub(super) incoming: Option<Box<Incoming>>,
    pub(super) backlog: Option<Backlog>,
    /// How long the client may leave it there.
    pub(super) pace: Pace,
    /// The connection waits until this work queue serves it.
    pub(super) queue: Option<WorkClass>,
    /// Its place there. None while it waits for room to write.
    pub(super) place: Option<Place>,
    /// When its input arrived, if a work queue serves that.
    pub(super) since_us: Option<u64>,
}

/// A request body on its way in.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) body: http1::Body,
    pub(super) asked: Asked,
    pub(super) sink: Sink,
    pub(super) persistence: Persistence,
    /// The client waits for `100 Continue` (RFC 9110 section 10.1.1).
    pub(super) continue_due: bool,
    pub(super) began_ms: u64,
    pub(super) bytes: u64,
}

impl Work {
    /// Whether the connection comes back by itself: for room to write, or for another turn.
    pub(super) fn waits(&self) -> bool {
        self.backlog.is_some() || self.queue.is_some()
    }

    pub(super) fn own_bytes(&self) -> usize {
        let incoming = self.incoming.as_deref().map_or(0, |incoming| incoming.own_bytes());
        let backlog = self.backlog.as_ref().map_or(0, Backlog::own_bytes);
        size_of::<Work>() + self.input.capacity() + incoming + backlog
    }
}

impl Incoming {
    pub(super) fn new(framing: &Framing, asked: Asked, sink: Sink, now_ms: u64) -> Box<Incoming> {
        let http10 = framing.version == Version::Http10;
        Box::new(Incoming {
            body: http1::Body::new(framing.body),
            asked,
            sink,
            persistence: Persistence { keep_alive: framing.keep_alive, http10 },
            continue_due: framing.expect_continue,
            began_ms: now_ms,
            bytes: 0,
        })
    }

    fn own_bytes(&self) -> usize {
        self.sink.own_bytes() + self.asked.own_bytes()
    }

    /// A body must keep to a minimum rate once it had a start; a publisher's stream of lines may
    /// be slow, but not silent.
    pub(super) fn deadline_ms(&self, now_ms: u64, bytes_per_s_min: u64) -> u64 {
        if self.sink.is_bulk() || bytes_per_s_min == 0 {
            return now_ms + BULK_SILENCE_MS;
        }
        self.began_ms + BODY_GRACE_MS + self.bytes * 1000 / bytes_per_s_min
    }
}
