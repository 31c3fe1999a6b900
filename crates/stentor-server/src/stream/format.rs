//! The format of each transport: its messages, gaps, cursors and last words.

mod long_poll;
mod sse;
mod websocket;

use crate::stats::Stats;
use crate::stream::Gap;
use stentor_hub::{Id, StreamForm};
use stentor_io::Counter;
use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker};

/// How messages get to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// Server-Sent Events.
    Sse,
    WebSocket(SocketState),
    /// A WebSocket that sends back what it is sent.
    Echo(SocketState),
    /// One answer, as soon as there is something to say.
    LongPoll,
}

/// The state of a WebSocket beside its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SocketState(u8);

/// The format of a transport. Each transport has one.
pub(crate) struct Manner {
    /// The form of a message, and the smaller form for readers that accept it: alone, and with the
    /// name of its topic.
    pub(crate) forms: [(StreamForm, Option<StreamForm>); 2],
    /// The word that messages are missing; `None` if it waits for the answer.
    pub(crate) gap: Option<fn(&mut Vec<u8>, &Gap)>,
    /// From where the reader may resume.
    pub(crate) cursor: fn(&mut Vec<u8>, Id, is_enveloped: bool),
    pub(crate) sign_of_life: SignOfLife,
    /// The part of a subscription that the reader may not see; `None` if it waits for the answer.
    pub(crate) uncovered: Option<fn(&mut Vec<u8>, &str)>,
    /// The last words when the server stops.
    pub(crate) farewell: fn(&mut Vec<u8>),
    /// The last words to a reader that is evicted: come again in a while, which depends on chance.
    /// `None` if they are its answer.
    pub(crate) put_off: Option<fn(&mut Vec<u8>, u64)>,
    /// The last words to a reader that may not read any more, with the reason.
    pub(crate) expired: fn(&mut Vec<u8>, Ended),
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
    /// For programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ended::Expired => "expired",
            Ended::Revoked => "revoked",
            Ended::Rules => "rules",
        }
    }

    /// For people.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Ended::Expired => "The token has expired.",
            Ended::Revoked => "The token is not good any more.",
            Ended::Rules => "Not all of this may be read any more.",
        }
    }
}

impl SocketState {
    pub(crate) fn new(window_bits: u8, commands: bool) -> SocketState {
        SocketState(window_bits & WINDOW_BITS | if commands { COMMANDS } else { 0 })
    }

    /// The window it inflates frames with, in bits (RFC 7692 section 7.1.2); 0 if it does not.
    pub(crate) fn window_bits(self) -> u8 {
        self.0 & WINDOW_BITS
    }

    /// Whether it may subscribe and unsubscribe while connected.
    pub(crate) fn commands(self) -> bool {
        self.0 & COMMANDS != 0
    }

    /// Whether it was sent a ping and has not given a sign of life since.
    pub(crate) fn owes_pong(self) -> bool {
        self.0 & OWES_PONG != 0
    }
}

impl Packed for SocketState {
    fn pack(&self, out: &mut Packer) {
        out.put(&[self.window_bits(), self.commands().into(), self.owes_pong().into()]);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<SocketState> {
        let window_bits = u8::unpack(input)?;
        let socket = SocketState::new(window_bits, bool::unpack(input)?);
        let owes_pong = if bool::unpack(input)? { OWES_PONG } else { 0 };
        let fits = window_bits <= WINDOW_BITS;
        if fits { Ok(SocketState(socket.0 | owes_pong)) } else { Err(MISFIT) }
    }
}

// The bits of a `SocketState`.
const WINDOW_BITS: u8 = 15;
const COMMANDS: u8 = 16;
const OWES_PONG: u8 = 32;

impl Transport {
    pub(crate) fn manner(self) -> &'static Manner {
        match self {
            Transport::Sse => &sse::MANNER,
            Transport::WebSocket(_) | Transport::Echo(_) => &websocket::MANNER,
            Transport::LongPoll => &long_poll::MANNER,
        }
    }

    /// The state of its WebSocket. Other transports have none, which is as one without features.
    pub(crate) fn socket(self) -> SocketState {
        match self {
            Transport::WebSocket(socket) | Transport::Echo(socket) => socket,
            Transport::Sse | Transport::LongPoll => SocketState::default(),
        }
    }

    /// A WebSocket was sent a ping, or gave a sign of life.
    pub(crate) fn set_owes_pong(&mut self, owes_pong: bool) {
        if let Transport::WebSocket(socket) | Transport::Echo(socket) = self {
            socket.0 = if owes_pong { socket.0 | OWES_PONG } else { socket.0 & !OWES_PONG };
        }
    }

    /// The counter of its readers.
    pub(crate) fn readers(self, stats: &Stats) -> &Counter {
        (self.manner().readers)(stats)
    }
}
