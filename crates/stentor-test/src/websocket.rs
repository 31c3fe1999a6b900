//! Reads a server's frames of WebSocket (RFC 6455, section 5), and writes a client's.

use flate2::{Decompress, FlushDecompress};

/// The bit of a first byte that says that the message ends with this frame.
pub const FIN: u8 = 0x80;
/// The bit that says that the message is deflated (RFC 7692, section 6).
pub const DEFLATED: u8 = 0x40;

/// The first byte of a frame that ends a message of several.
pub const CONTINUATION: u8 = FIN;
/// The first byte of a whole message that is text.
pub const TEXT: u8 = FIN | 1;
/// The first byte of a whole message that is bytes.
pub const BINARY: u8 = FIN | 2;
/// The first byte of a frame that ends the connection.
pub const CLOSE: u8 = FIN | 8;
/// The first byte of a ping.
pub const PING: u8 = FIN | 9;
/// The first byte of a pong.
pub const PONG: u8 = FIN | 10;

/// A server's frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The opcode and its bits.
    pub first: u8,
    /// As it was sent, deflated or not.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Takes a frame off the front, if it is whole.
    ///
    /// # Panics
    ///
    /// As `of`.
    pub fn take(input: &mut Vec<u8>) -> Option<Frame> {
        let (frame, length) = Frame::of(input)?;
        input.drain(..length);
        Some(frame)
    }

    /// The frame that the input begins with, and how long it is there.
    ///
    /// # Panics
    ///
    /// At anything that a server here should not send: a fragment, a mask, a bit that means
    /// nothing, a control frame that is deflated.
    #[must_use]
    pub fn of(input: &[u8]) -> Option<(Frame, usize)> {
        let (&first, &second) = (input.first()?, input.get(1)?);
        assert_eq!(first & 0xb0, FIN, "a server's frame is whole, and has no bits without meaning");
        assert!(first & DEFLATED == 0 || first & 0x0f < 8, "a control frame that is deflated");
        assert_eq!(second & 0x80, 0, "a server masks nothing");
        let (length, start) = match second {
            126 => (u64::from(u16::from_be_bytes(*input.get(2..)?.first_chunk()?)), 4),
            127 => (u64::from_be_bytes(*input.get(2..)?.first_chunk()?), 10),
            length => (u64::from(length), 2),
        };
        let end = start + usize::try_from(length).expect("a length");
        Some((Frame { first, payload: input.get(start..end)?.to_vec() }, end))
    }

    /// The first byte without the bit of deflated messages.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.first & !DEFLATED
    }

    /// The payload, inflated if it was deflated.
    #[must_use]
    pub fn data(self) -> Vec<u8> {
        if self.first & DEFLATED == 0 { self.payload } else { inflate(&self.payload) }
    }
}

/// A message that was deflated on its own: the end that was not sent is put back (RFC 7692,
/// section 7.2.2).
fn inflate(payload: &[u8]) -> Vec<u8> {
    let deflated = [payload, b"\x00\x00\xff\xff"].concat();
    let (mut inflater, mut plain, mut rest) = (Decompress::new(false), Vec::new(), &deflated[..]);
    while !rest.is_empty() {
        plain.reserve(64 * 1024);
        let before = inflater.total_in();
        inflater.decompress_vec(rest, &mut plain, FlushDecompress::Sync).expect("it is deflated");
        rest = &rest[usize::try_from(inflater.total_in() - before).expect("a length")..];
    }
    plain
}

/// A frame as clients send it.
#[must_use]
pub fn masked(first: u8, key: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = header(first, payload.len(), 0x80);
    frame.extend(key);
    frame.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// The first byte and the length; `mask` is its bit or 0.
#[must_use]
pub fn header(first: u8, length: usize, mask: u8) -> Vec<u8> {
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ ..=125), _) => vec![first, mask | length],
        (_, Ok(length)) => [&[first, mask | 126], &length.to_be_bytes()[..]].concat(),
        _ => [&[first, mask | 127], &(length as u64).to_be_bytes()[..]].concat(),
    }
}
