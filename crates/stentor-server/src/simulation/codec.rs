//! Simulated clients send frames of WebSocket.

use stentor_io::Rng;
#[cfg(test)]
pub(super) use stentor_test::websocket::{BINARY, CLOSE, PING};
use stentor_test::websocket::{CONTINUATION, FIN, masked};
pub(super) use stentor_test::websocket::{PONG, TEXT};

/// Asks for a WebSocket that speaks `stentor.v1`, and does not deflate.
pub(super) const COMMANDER: &str = "GET /-/events HTTP/1.1\r\nHost: h\r\n\
    Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: stentor.v1\r\n\r\n";

/// Appends a frame as a client sends it.
pub(super) fn put_frame(out: &mut Vec<u8>, rng: &mut Rng, kind: u8, fin: bool, payload: &[u8]) {
    let key = (rng.next_u64() as u32).to_be_bytes();
    out.extend(masked(if fin { kind } else { kind & !FIN }, key, payload));
}

/// Appends a text message in fragments, with a ping between them now and then.
pub(super) fn put_text(out: &mut Vec<u8>, rng: &mut Rng, text: &[u8]) {
    let mut rest = text;
    let mut kind = TEXT;
    while rng.percent(30) && rest.len() > 1 {
        let (fragment, behind) = rest.split_at(rng.below(rest.len()));
        put_frame(out, rng, kind, false, fragment);
        if rng.percent(30) {
            put_frame(out, rng, PONG, true, b"unasked");
        }
        kind = CONTINUATION;
        rest = behind;
    }
    put_frame(out, rng, kind, true, rest);
}
