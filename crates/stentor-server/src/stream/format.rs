//! The format of each transport: its messages, gaps, cursors and last words.

mod long_poll;
mod sse;
mod websocket;

use crate::stats::Stats;
use stentor_hub::StreamForm;
use stentor_io::Counter;
use stentor_wire::error::ErrorCode;
use stentor_wire::packed;

/// How messages get to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// Server-Sent Events to an HTTP/1.1 client: in chunks.
    Sse,
    WebSocket,
    /// A WebSocket that sends back what it is sent.
    Echo,
    /// One answer, as soon as there is something to say.
    LongPoll,
    /// Server-Sent Events to an HTTP/1.0 client.
    SseUnchunked,
}

/// Writes a notice to the output: its cursor, if it brings one, and its JSON.
pub(crate) type WriteNotice = fn(&mut Vec<u8>, Option<&str>, &str);

/// The format of a transport. Each transport has one.
pub(crate) struct Manner {
    /// The form of a message, and the smaller form for readers that accept it: alone, and with the
    /// name of its topic.
    pub(crate) forms: [(StreamForm, Option<StreamForm>); 2],
    /// Writes a notice, with the cursor that it brings; `None` if notices wait for the answer.
    pub(crate) notice: Option<WriteNotice>,
    pub(crate) sign_of_life: SignOfLife,
    /// The last words when the server stops.
    pub(crate) farewell: fn(&mut Vec<u8>),
    /// The last words to a reader that is evicted: come again in a while, which depends on chance.
    /// `None` if they are its answer.
    pub(crate) put_off: Option<fn(&mut Vec<u8>, u64)>,
    /// The last words to a reader that may not read any more, with the reason.
    pub(crate) end: fn(&mut Vec<u8>, Ended),
    /// Where its readers are counted.
    pub(crate) readers: fn(&Stats) -> &Counter,
}

/// The sign of life after a while of silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SignOfLife {
    /// These bytes, which mean nothing.
    Comment(&'static [u8]),
    /// A ping, which is to be answered.
    Ping,
}

/// The reason why the server ends a stream that both sides could continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The time of its token is over.
    Expired,
    /// Its key is gone.
    Revoked,
    /// The rules have changed: less may be seen than was promised.
    Rules,
}

impl Ended {
    /// The reason, as clients read it.
    pub(crate) fn code(self) -> ErrorCode {
        match self {
            Ended::Expired => ErrorCode::TokenExpired,
            Ended::Revoked => ErrorCode::TokenRevoked,
            Ended::Rules => ErrorCode::AccessChanged,
        }
    }
}

packed!(enum Transport {
    0 => Sse,
    1 => WebSocket,
    2 => Echo,
    3 => LongPoll,
    4 => SseUnchunked,
});

impl Transport {
    pub(crate) fn manner(self) -> &'static Manner {
        match self {
            Transport::Sse => &sse::CHUNKED,
            Transport::SseUnchunked => &sse::UNCHUNKED,
            Transport::WebSocket | Transport::Echo => &websocket::MANNER,
            Transport::LongPoll => &long_poll::MANNER,
        }
    }

    /// The counter of its readers.
    pub(crate) fn readers(self, stats: &Stats) -> &Counter {
        (self.manner().readers)(stats)
    }
}
