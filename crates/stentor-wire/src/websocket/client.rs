//! Frames as a client sees them: those of a server, and its own (RFC 6455 section 5).
//!
//! A server's frames are not masked and come one after the other, so a whole one can be lent from
//! the input, and there is no state: a client with a million connections keeps no decoder for each.
//! What concerns messages is for the caller, if it cares: whether a continuation has something to
//! continue, and whether text is UTF-8.

use super::frame::{
    CONTROL_BYTES_MAX, CONTROL_LENGTH_MAX, FIN, FRAGMENTED_CONTROL, LENGTH, LONG_CONTROL, MASK,
    OPCODE, Opcode, RESERVED_BITS, RSV1, RSV2, RSV3, UNKNOWN_OPCODE, Violation, extended_bytes,
    mask_onto, payload_length, put_length,
};

/// A frame of a server, lent from the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerFrame<'a> {
    /// Bytes of the whole frame.
    pub len: usize,
    /// What it is.
    pub opcode: Opcode,
    /// Whether it is the last fragment of its message, or the only one.
    pub fin: bool,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Reads the frame that `bytes` begin with; `None` if it goes on beyond them.
///
/// More bytes behind these change neither a frame nor an error, and an error is found with the
/// first byte that shows it.
///
/// # Errors
/// If the frame is masked, has a reserved bit, since a client that offers no extension has agreed
/// to none, or an opcode that means nothing; if it is a control frame that is long or in fragments
/// (section 5.5), has a length in more bytes than it needs, or more than `payload_bytes_max` bytes
/// of payload.
pub fn server_frame(
    bytes: &[u8],
    payload_bytes_max: usize,
) -> Result<Option<ServerFrame<'_>>, Violation> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let opcode = Opcode::from_bits(first & OPCODE).ok_or(UNKNOWN_OPCODE)?;
    let fin = first & FIN != 0;
    if first & (RSV1 | RSV2 | RSV3) != 0 {
        return Err(RESERVED_BITS);
    }
    if opcode.is_control() && !fin {
        return Err(FRAGMENTED_CONTROL);
    }
    let Some(&second) = bytes.get(1) else { return Ok(None) };
    if second & MASK != 0 {
        return Err(MASKED);
    }
    if opcode.is_control() && second & LENGTH > CONTROL_LENGTH_MAX {
        return Err(LONG_CONTROL);
    }
    let payload_start = 2 + extended_bytes(second);
    let Some(extended) = bytes.get(2..payload_start) else { return Ok(None) };
    let length = usize::try_from(payload_length(second, extended)?).map_err(|_| LONG_PAYLOAD)?;
    if length > payload_bytes_max {
        return Err(LONG_PAYLOAD);
    }
    let payload = bytes[payload_start..].get(..length);
    Ok(payload.map(|payload| ServerFrame { len: payload_start + length, opcode, fin, payload }))
}

/// Appends a frame as a client sends it: a whole message, or a control frame of at most 125 bytes,
/// masked with `mask`. RFC 6455 section 5.3 wants a mask that nobody can foresee, for the sake of
/// proxies; who has none between may take any.
pub fn masked_frame(out: &mut Vec<u8>, opcode: Opcode, mut mask: [u8; 4], payload: &[u8]) {
    debug_assert!(!opcode.is_control() || payload.len() <= CONTROL_BYTES_MAX);
    out.push(FIN | opcode as u8);
    put_length(out, MASK, payload.len());
    out.extend_from_slice(&mask);
    mask_onto(out, payload, &mut mask);
}

const MASKED: Violation = Violation::protocol("A server must not mask its frames.");
const LONG_PAYLOAD: Violation =
    Violation { code: 1009, reason: "The frame is longer than this client takes." };

#[cfg(test)]
mod tests;
