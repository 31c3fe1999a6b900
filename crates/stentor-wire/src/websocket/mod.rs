//! WebSocket: the handshake and what goes over the wire afterwards (RFC 6455, RFC 7692).
//!
//! What a request asks for is answered here: the proof that we understood it ([`accept`]), the
//! subprotocol and the extension. Frames are in `frame.rs`, compression is in `deflate.rs`. All of
//! this is the server's side; the frames of the other one are in [`client`].
//!
//! One choice runs through all three: no context is taken over from one message to the next, in
//! either direction. A message is then deflated once and its bytes go to every reader, and a
//! connection that waits keeps no window of 32 KiB, which would be many times what it costs
//! otherwise.

pub mod client;
mod deflate;
mod frame;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;

use crate::trim_ows;

pub use deflate::{Deflate, deflate, negotiate_deflate};
pub use frame::{Decoder, Opcode, Received, Rules, Violation, close_frame, frame};

/// The value of Sec-WebSocket-Accept that answers a Sec-WebSocket-Key (RFC 6455 section 4.2.2).
/// `None` unless the key is 16 bytes in base64.
pub fn accept(key: &[u8]) -> Option<[u8; 28]> {
    // Two bytes more than a key has, since the decoder asks for room in threes.
    let mut nonce = [0; 18];
    if STANDARD.decode_slice(key, &mut nonce) != Ok(16) {
        return None;
    }
    let mut proof = Sha1::from(key);
    proof.update(KEY_SUFFIX);
    let mut value = [0; 28];
    STANDARD.encode_slice(proof.digest().bytes(), &mut value).ok()?;
    Some(value)
}

/// Whether a Sec-WebSocket-Protocol lists `protocol`. Names are case-sensitive.
pub fn offers_protocol(header: Option<&[u8]>, protocol: &str) -> bool {
    let mut offers = header.unwrap_or_default().split(|&byte| byte == b',').map(trim_ows);
    offers.any(|offer| offer == protocol.as_bytes())
}

/// What proves that a server speaks WebSocket, and does not merely send back what it got.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests;
