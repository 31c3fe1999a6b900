//! Frames of WebSocket as a client sends them (RFC 6455, section 5), and how it asks for them.

use stentor_io::Rng;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// Asks for a WebSocket that speaks `stentor.v1`, and does not deflate.
pub(super) const COMMANDER: &str = "GET /-/events HTTP/1.1\r\nHost: h\r\n\
    Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: stentor.v1\r\n\r\n";

/// Appends a frame as a client sends it.
pub(super) fn put_frame(out: &mut Vec<u8>, rng: &mut Rng, opcode: u8, fin: bool, payload: &[u8]) {
    out.push(opcode | if fin { 0x80 } else { 0 });
    match payload.len() {
        length @ ..=125 => out.push(0x80 | length as u8),
        length => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    let key = (rng.next_u64() as u32).to_be_bytes();
    out.extend_from_slice(&key);
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}
