//! WebSocket: messages are text frames, and the last words are the reason of a close frame.

use crate::put_off::TOO_MANY;
use crate::stream::Gap;
use crate::stream::format::{Manner, SignOfLife};
use stentor_hub::{Id, StreamForm};
use stentor_wire::websocket::{self, Opcode};

pub(super) static MANNER: Manner = Manner {
    forms: [
        (StreamForm::Frame, Some(StreamForm::FrameDeflated)),
        (StreamForm::EnvelopeFrame, Some(StreamForm::EnvelopeFrameDeflated)),
    ],
    gap: Some(gap),
    uncovered: Some(|out, json| {
        let json = format!("{{\"uncovered\":{json}}}");
        websocket::frame(out, Opcode::Text, false, json.as_bytes());
    }),
    cursor,
    sign_of_life: SignOfLife::Ping,
    farewell: |out| websocket::close_frame(out, 1012, "The server is about to stop."),
    put_off: Some(|out, _| websocket::close_frame(out, TRY_AGAIN_LATER, TOO_MANY)),
    expired: |out, why| websocket::close_frame(out, EXPIRED, why.reason()),
    readers: |stats| &stats.readers_websocket,
};

/// The frame that says that something is missing.
fn gap(out: &mut Vec<u8>, gap: &Gap) {
    websocket::frame(out, Opcode::Text, false, gap.object().as_bytes());
}

/// The frame that says from where the reader may resume, where frames are JSON.
fn cursor(out: &mut Vec<u8>, id: Id, is_enveloped: bool) {
    if !is_enveloped {
        return;
    }
    let json = format!("{{\"cursor\":\"{id}\"}}");
    websocket::frame(out, Opcode::Text, false, json.as_bytes());
}

/// The code of a close frame for a client that is to come again in a while (registered with IANA).
const TRY_AGAIN_LATER: u16 = 1013;

/// The code of a close frame that ends a stream whose token has ended: 401, in the range of codes
/// that are free for use (RFC 6455 section 7.4.2).
const EXPIRED: u16 = 4401;
