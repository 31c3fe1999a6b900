//! A WebSocket whose frames are put together by hand, and may be as wrong as one likes.

use super::{Client, Ending, Response, Url};
use serde_json::Value;
use stentor_test::websocket;
pub(crate) use stentor_test::websocket::{
    BINARY, CLOSE, DEFLATED, FIN, Frame, PING, PONG, TEXT, header,
};

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
            if let Some(frame) = Frame::take(&mut self.received) {
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
            match Frame::of(&self.received[passed..]) {
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
            let Ok(frame) = self.try_frame() else { return Err(None) };
            let kind = frame.kind();
            let data = frame.data();
            match kind {
                TEXT => return Ok(Message::Text(String::from_utf8(data).expect("UTF-8"))),
                BINARY => return Ok(Message::Binary(data)),
                // The server may have gone already.
                PING => drop(self.client.try_send(&masked(PONG, &data))),
                PONG => {}
                CLOSE => return Err(code(&data)),
                _ => panic!("a frame that no server sends: {kind:#x}"),
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
    websocket::masked(first, [0x37, 0xfa, 0x21, 0x3d], payload)
}

/// The code of a close frame; `None` if it has none.
fn code(payload: &[u8]) -> Option<u16> {
    let (code, reason) = payload.split_at_checked(2)?;
    assert!(std::str::from_utf8(reason).is_ok(), "a reason is text: {reason:?}");
    Some(u16::from_be_bytes(code.try_into().unwrap()))
}
