//! What comes of a handshake, whichever end this is: records, which rustls is given one at a time,
//! and only when they are there as a whole.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};

use super::{HandshakeError, HandshakeFault};
use crate::suite::{FRAGMENT_BYTES_MAX, HEADER_BYTES};

/// What has come of one.
#[derive(Default)]
pub(super) struct IncomingHandshake {
    /// What rustls has seen and still needs, and behind it a record that is not whole.
    bytes: Vec<u8>,
    /// So many of these rustls has seen.
    presented: usize,
    received: usize,
    records: usize,
}

/// What there is next.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    /// A part of a record, or nothing.
    Part,
    /// A record, which rustls may see.
    Record,
    /// What is none, likewise: it shall say so now, and not when so many bytes have come.
    Wrong,
}

impl IncomingHandshake {
    /// Takes what is missing of a record out of `arrived`, of which `used` bytes are used up.
    pub(super) fn next(
        &mut self,
        arrived: &[u8],
        used: &mut usize,
    ) -> Result<Next, HandshakeError> {
        loop {
            let record = &self.bytes[self.presented..];
            if self.records == 0 && record.first().is_some_and(u8::is_ascii_uppercase) {
                return Err(HandshakeError::new(HandshakeFault::NotTls, "it is not TLS"));
            }
            let framing = framing(record);
            let missing = framing.bytes().saturating_sub(record.len());
            if missing == 0 {
                return self.present(&framing);
            }
            let taken = missing.min(arrived.len() - *used);
            if taken == 0 {
                return Ok(Next::Part);
            }
            self.received += taken;
            if self.received > HANDSHAKE_BYTES_MAX {
                return Err(HandshakeError::new(HandshakeFault::TooLong, TOO_LONG));
            }
            if self.bytes.capacity() - self.bytes.len() < taken {
                // Otherwise it would be twice as much as there is.
                self.bytes.reserve_exact(taken.max(self.bytes.len().min(GROWTH_BYTES)));
            }
            self.bytes.extend_from_slice(&arrived[*used..*used + taken]);
            *used += taken;
        }
    }

    fn present(&mut self, framing: &RecordFraming) -> Result<Next, HandshakeError> {
        self.records += 1;
        if self.records > HANDSHAKE_RECORDS_MAX {
            return Err(HandshakeError::new(HandshakeFault::TooLong, TOO_MANY));
        }
        self.presented = self.bytes.len();
        Ok(if let RecordFraming::Wrong = framing { Next::Wrong } else { Next::Record })
    }

    /// Has rustls look at what was presented to it. Whether it is done.
    pub(super) fn run<C: Unbuffered>(
        &mut self,
        connection: &mut C,
        out: &mut Vec<u8>,
    ) -> Result<bool, rustls::Error> {
        loop {
            let seen = &mut self.bytes[..self.presented];
            let UnbufferedStatus { discard, state } = connection.process(seen);
            let done = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, out);
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::BlockedHandshake) => Some(false),
                Ok(ConnectionState::WriteTraffic(_)) => Some(true),
                // It has seen nothing that lies behind the handshake.
                Ok(_) => return Err(rustls::Error::General("data in a handshake".to_owned())),
                Err(error) => {
                    drain(connection, seen, out);
                    return Err(error);
                }
            };
            self.bytes.drain(..discard);
            self.presented -= discard;
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// All that has come and is not done with.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How much memory that takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many records were presented.
    pub(super) fn records(&self) -> usize {
        self.records
    }
}

/// An end of a connection, as rustls has it.
pub(super) trait Unbuffered {
    type Data;

    fn process<'c, 'i>(&'c mut self, seen: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn has_to_send(&self) -> bool;
}

impl Unbuffered for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, seen: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(seen)
    }

    fn has_to_send(&self) -> bool {
        self.wants_write()
    }
}

impl Unbuffered for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, seen: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(seen)
    }

    fn has_to_send(&self) -> bool {
        self.wants_write()
    }
}

/// How long the record is that these bytes begin.
enum RecordFraming {
    Header,
    Record(usize),
    Wrong,
}

impl RecordFraming {
    fn bytes(&self) -> usize {
        match self {
            RecordFraming::Header | RecordFraming::Wrong => HEADER_BYTES,
            RecordFraming::Record(bytes) => *bytes,
        }
    }
}

fn framing(bytes: &[u8]) -> RecordFraming {
    let Some([kind, _, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return RecordFraming::Header;
    };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    if !(20..=23).contains(kind) || len > FRAGMENT_BYTES_MAX + 2048 {
        return RecordFraming::Wrong;
    }
    RecordFraming::Record(HEADER_BYTES + len)
}

/// Appends what rustls has to send.
fn encode<Data>(mut data: EncodeTlsData<'_, Data>, out: &mut Vec<u8>) {
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else { return };
    let start = out.len();
    out.resize(start + size.required_size, 0);
    let written = data.encode(&mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// After an error: what rustls has to send about it, and no step further. It is given the same
/// bytes again, however many of them it was done with, for it remembers places in them.
fn drain<C: Unbuffered>(connection: &mut C, seen: &mut [u8], out: &mut Vec<u8>) {
    while connection.has_to_send() {
        match connection.process(seen).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            _ => return,
        }
    }
}

/// How much a peer may send before it is done: the longest message that rustls takes, in records
/// that are not too short, and what else there is.
pub const HANDSHAKE_BYTES_MAX: usize = 72 * 1024;

/// In how many records that may be. rustls looks at all of a message's pieces again with each that
/// comes, so a message in thousands of them would cost more than the handshake.
pub const HANDSHAKE_RECORDS_MAX: usize = 256;

const TOO_LONG: &str = "the handshake is too long";
const TOO_MANY: &str = "the handshake has too many records";

/// By so much at most the memory for it grows beyond what has come.
pub(super) const GROWTH_BYTES: usize = 8 * 1024;
