//! WebSocket: messages are text frames, and the last words are the reason of a close frame.

use crate::put_off::TOO_MANY;
use crate::stream::format::{Manner, SignOfLife};
use stentor_hub::StreamForm;
use stentor_wire::error::ErrorCode;
use stentor_wire::websocket::{self, Opcode};

pub(super) static MANNER: Manner = Manner {
    forms: [
        (StreamForm::Frame, Some(StreamForm::FrameDeflated)),
        (StreamForm::EnvelopeFrame, Some(StreamForm::EnvelopeFrameDeflated)),
    ],
    notice: Some(|out, _, json| websocket::frame(out, Opcode::Text, false, json.as_bytes())),
    sign_of_life: SignOfLife::Ping,
    farewell: |out| websocket::close_frame(out, 1012, ErrorCode::ServerDraining.name()),
    put_off: Some(|out, _| websocket::close_frame(out, TRY_AGAIN_LATER, TOO_MANY.code.name())),
    end: |out, why| websocket::close_frame(out, EXPIRED, why.code().name()),
    readers: |stats| &stats.readers_websocket,
};

/// The code of a close frame for a client that is to come again in a while (registered with IANA).
const TRY_AGAIN_LATER: u16 = 1013;

/// The code of a close frame that ends a stream whose token has ended: 401, in the range of codes
/// that are free for use (RFC 6455 section 7.4.2).
const EXPIRED: u16 = 4401;
