//! A WebSocket whose frames are put together by hand, and may be as wrong as one likes.

use super::{Client, Ending, Response, Url};
use flate2::{Decompress, FlushDecompress};
use serde_json::Value;

/// First bytes of whole frames.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;
/// Bits of a first byte.
pub(crate) const FIN: u8 = 0x80;
pub(crate) const DEFLATED: u8 = 0x40;

/// What a request for a WebSocket has beside its target.
pub(crate) const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The only answer to that key (RFC 6455 section 1.3).
const PROOF: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(crate) struct WebSocket {
    pub(crate) client: Client,
    pub(crate) head: Response,
    received: Vec<u8>,
}

/// A frame of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) first: u8,
    pub(crate) payload: Vec<u8>,
}

/// A message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Text(String),
    Binary(Vec<u8>),
}

impl WebSocket {
    /// Connects; `fields` are further header lines.
    #[track_caller]
    pub(crate) fn open(url: Url, target: &str, fields: &str) -> WebSocket {
        let mut client = Client::connect(url.0);
        let head = client.open(target, &format!("{UPGRADE}{fields}"));
        WebSocket::over(client, head)
    }

    /// With the answer to a handshake that was made elsewhere.
    #[track_caller]
    pub(crate) fn over(client: Client, head: Response) -> WebSocket {
        let head = head.expect(101);
        assert_eq!(head.field("sec-websocket-accept"), Some(PROOF), "{head:?}");
        assert_eq!(head.field("upgrade"), Some("websocket"), "{head:?}");
        assert_eq!(head.field("connection"), Some("Upgrade"), "{head:?}");
        WebSocket { client, head, received: Vec::new() }
    }

    /// Sends a frame, masked.
    #[track_caller]
    pub(crate) fn send(&mut self, first: u8, payload: impl AsRef<[u8]>) {
        self.client.send(masked(first, payload.as_ref()));
    }

    /// The next frame, or how the connection ended.
    #[track_caller]
    pub(crate) fn try_frame(&mut self) -> Result<Frame, Ending> {
        loop {
            if let Some((frame, length)) = parse(&self.received) {
                self.received.drain(..length);
                return Ok(frame);
            }
            let more = self.client.take()?;
            self.received.extend(more);
        }
    }

    /// Returns when the server has read all that was sent. The frames that it sends until then stay
    /// to be read.
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        self.send(PING, "all read");
        let mut passed = 0;
        loop {
            match parse(&self.received[passed..]) {
                Some((frame, length)) if frame.first == PONG => {
                    assert_eq!(frame.payload, b"all read");
                    self.received.drain(passed..passed + length);
                    return;
                }
                Some((_, length)) => passed += length,
                None => self.received.extend(self.client.take().expect("an answer to a ping")),
            }
        }
    }

    #[track_caller]
    pub(crate) fn frame(&mut self) -> Frame {
        self.try_frame().unwrap_or_else(|ending| panic!("the connection ended: {ending:?}"))
    }

    /// The next message, or the code of the close frame. Pings are answered.
    #[track_caller]
    pub(crate) fn try_message(&mut self) -> Result<Message, Option<u16>> {
        loop {
            let Ok(Frame { first, payload }) = self.try_frame() else { return Err(None) };
            match first {
                TEXT => return Ok(Message::Text(String::from_utf8(payload).expect("UTF-8"))),
                BINARY => return Ok(Message::Binary(payload)),
                _ if first == TEXT | DEFLATED => {
                    let text = String::from_utf8(inflate(&payload)).expect("UTF-8");
                    return Ok(Message::Text(text));
                }
                _ if first == BINARY | DEFLATED => return Ok(Message::Binary(inflate(&payload))),
                // The server may have gone already.
                PING => drop(self.client.try_send(&masked(PONG, &payload))),
                PONG => {}
                CLOSE => return Err(code(&payload)),
                _ => panic!("a frame that no server sends: {first:#x}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn message(&mut self) -> Message {
        self.try_message().unwrap_or_else(|code| panic!("the connection was closed: {code:?}"))
    }

    #[track_caller]
    pub(crate) fn text(&mut self) -> String {
        match self.message() {
            Message::Text(text) => text,
            Message::Binary(bytes) => panic!("no text: {bytes:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn json(&mut self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Expects a close frame and nothing behind it, and returns its code.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> Option<u16> {
        let code = match self.try_message() {
            Ok(message) => panic!("a message instead of the end: {message:?}"),
            Err(code) => code,
        };
        assert!(self.try_frame().is_err(), "a frame behind the last");
        code
    }
}

/// A frame as clients send it.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = header(first, payload.len(), 0x80);
    frame.extend(key);
    frame.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// The first byte and the length; `mask` is its bit or 0.
pub(crate) fn header(first: u8, length: usize, mask: u8) -> Vec<u8> {
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ ..=125), _) => vec![first, mask | length],
        (_, Ok(length)) => [&[first, mask | 126], &length.to_be_bytes()[..]].concat(),
        _ => [&[first, mask | 127], &(length as u64).to_be_bytes()[..]].concat(),
    }
}

/// The frame that `bytes` begins with, and its length on the wire.
fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (first, length) = (*bytes.first()?, *bytes.get(1)?);
    assert_eq!(length & 0x80, 0, "a server does not mask");
    let (length, start) = match length {
        126 => (u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap())), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()), 10),
        length => (u64::from(length), 2),
    };
    let end = start + usize::try_from(length).unwrap();
    let payload = bytes.get(start..end)?.to_vec();
    Some((Frame { first, payload }, end))
}

/// The code of a close frame; `None` if it has none.
fn code(payload: &[u8]) -> Option<u16> {
    let (code, reason) = payload.split_at_checked(2)?;
    assert!(std::str::from_utf8(reason).is_ok(), "a reason is text: {reason:?}");
    Some(u16::from_be_bytes(code.try_into().unwrap()))
}

/// A message that was deflated on its own (RFC 7692 section 7.2.2).
fn inflate(payload: &[u8]) -> Vec<u8> {
    let mut inflater = Decompress::new(false);
    let mut data = Vec::new();
    let deflated = [payload, b"\x00\x00\xff\xff"].concat();
    while inflater.total_in() < deflated.len() as u64 {
        data.reserve(64 * 1024);
        let rest = &deflated[usize::try_from(inflater.total_in()).unwrap()..];
        inflater.decompress_vec(rest, &mut data, FlushDecompress::Sync).expect("it is deflated");
    }
    data
}
