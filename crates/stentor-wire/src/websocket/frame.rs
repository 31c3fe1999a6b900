//! Frames and the messages they make (RFC 6455 section 5).
//!
//! A server's frames are easy: never masked, never in fragments. What a client sends is read by
//! [`Decoder`], one state machine that keeps nothing between two messages, so that a connection
//! that waits owns no decoder at all.
//!
//! The decoder is strict wherever RFC 6455 says "MUST": two parties that disagree about where a
//! frame ends will disagree about all that follows. Whatever a client can make long is bounded
//! before it costs anything: a message by its announced length, and inflated by a limit that holds
//! while inflating; the number of its fragments, which may be empty. Text is checked as it
//! arrives, so what is not UTF-8 is refused at the first byte that cannot be.

use crate::deflate::{InflateError, Inflater};
use crate::packed;
use crate::websocket::deflate::{MessageError, inflate};

/// What a frame is (RFC 6455 section 5.2).
#[repr(u8)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// A further fragment of a message.
    #[default]
    Continuation = 0,
    /// Text, or its first fragment.
    Text = 1,
    /// Bytes, or their first fragment.
    Binary = 2,
    /// The end of one direction.
    Close = 8,
    /// Asks for a pong.
    Ping = 9,
    /// Answers a ping.
    Pong = 10,
}

impl Opcode {
    pub(super) fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    /// Whether it may stand between the fragments of a message (RFC 6455 section 5.5).
    pub(super) fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

/// Appends a frame as a server sends it: a whole message, not masked. `deflated` says that
/// `payload` comes from [`deflate`](super::deflate).
pub fn frame(out: &mut Vec<u8>, opcode: Opcode, deflated: bool, payload: &[u8]) {
    debug_assert!(!opcode.is_control() || payload.len() <= CONTROL_BYTES_MAX);
    out.reserve(KEY_START_MAX + payload.len());
    out.push(FIN | opcode as u8 | if deflated { RSV1 } else { 0 });
    put_length(out, 0, payload.len());
    out.extend_from_slice(payload);
}

/// Appends a length in as few bytes as it fits into. `mask` is [`MASK`] or 0.
pub(super) fn put_length(out: &mut Vec<u8>, mask: u8, payload_bytes: usize) {
    match (u8::try_from(payload_bytes), u16::try_from(payload_bytes)) {
        (Ok(length @ ..=125), _) => out.push(mask | length),
        (_, Ok(length)) => {
            out.push(mask | LENGTH_16);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(mask | LENGTH_64);
            out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
        }
    }
}

/// How many bytes of length follow the second byte of a frame.
pub(super) fn extended_bytes(second: u8) -> usize {
    match second & LENGTH {
        LENGTH_16 => 2,
        LENGTH_64 => 8,
        _ => 0,
    }
}

/// The length of a payload, by the second byte of its frame and those [`extended_bytes`].
pub(super) fn payload_length(second: u8, extended: &[u8]) -> Result<u64, Violation> {
    let length = extended.iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
    match extended.len() {
        0 => Ok(u64::from(second & LENGTH)),
        2 if length < u64::from(LENGTH_16) => Err(LONG_LENGTH),
        8 if length <= u64::from(u16::MAX) => Err(LONG_LENGTH),
        8 if length >> 63 != 0 => Err(HUGE_LENGTH),
        _ => Ok(length),
    }
}

/// Appends a close frame (RFC 6455 section 5.5.1). A reason that does not fit is cut short.
pub fn close_frame(out: &mut Vec<u8>, code: u16, reason: &str) {
    debug_assert!(may_be_sent(code));
    let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
    frame(out, Opcode::Close, false, &[&code.to_be_bytes(), reason.as_bytes()].concat());
}

/// What a decoder allows.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The longest message, in bytes: as sent, and inflated.
    pub message_bytes_max: usize,
    /// Whether permessage-deflate was agreed on.
    pub deflate: bool,
}

/// What a client has sent, complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// A message of text.
    Text(String),
    /// A message of bytes.
    Binary(Vec<u8>),
    /// To be answered by a pong with the same bytes, at most 125.
    Ping(Vec<u8>),
    /// A sign of life.
    Pong,
    /// Nothing comes after it. The code, if there is one, may be sent back.
    Close(Option<u16>),
}

impl Received {
    /// How many bytes of data it brings, unmasked and inflated.
    pub fn data_bytes(&self) -> usize {
        match self {
            Received::Text(text) => text.len(),
            Received::Binary(data) | Received::Ping(data) => data.len(),
            Received::Pong | Received::Close(_) => 0,
        }
    }
}

/// Why a connection is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The code of the close frame to answer with (RFC 6455 section 7.4.1).
    pub code: u16,
    /// One plain sentence.
    pub reason: &'static str,
}

/// Reads what a client sends, however it is split.
///
/// The caller calls [`next`](Decoder::next) with the rest of the input until that returns nothing.
/// The decoder has then used all of the input.
#[derive(Clone, Default, Debug)]
pub struct Decoder {
    /// The frame's header without its masking key, as far as it is there.
    header: [u8; KEY_START_MAX],
    /// How many bytes of the header are there, those of the key included.
    header_bytes: usize,
    /// What the frame is, once there is a byte of it.
    opcode: Opcode,
    /// The masking key, turned so that it fits what comes next.
    key: [u8; KEY_BYTES],
    /// Bytes of the frame's payload still to come, once its header is complete.
    left: usize,
    /// The message whose fragments are arriving.
    message: Option<PartialMessage>,
    /// The payload of the control frame that is arriving.
    control: Vec<u8>,
}

/// A message as far as it has arrived.
#[derive(Clone, Debug)]
struct PartialMessage {
    is_text: bool,
    is_deflated: bool,
    /// Frames so far.
    fragments: usize,
    /// Unmasked.
    data: Vec<u8>,
    /// How much of `data` is known to be UTF-8, if it is to be: all but the beginning of a
    /// character.
    checked: usize,
}

packed!(enum Opcode {
    0 => Continuation, 1 => Text, 2 => Binary, 8 => Close, 9 => Ping, 10 => Pong,
});
packed!(struct Decoder { header, header_bytes, opcode, key, left, message, control } if is_sound);
packed!(struct PartialMessage { is_text, is_deflated, fragments, data, checked });

impl Decoder {
    /// A decoder at the beginning of a frame.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Whether a decoder can reach this state. Code below indexes and appends without further
    /// checks.
    fn is_sound(&self) -> bool {
        let is_sound = |message: &PartialMessage| {
            message.checked <= message.data.len() && message.fragments <= u32::MAX as usize
        };
        self.message.as_ref().is_none_or(is_sound) && self.is_header_sound()
    }

    /// The part of [`Decoder::is_sound`] about the frame that is arriving.
    fn is_header_sound(&self) -> bool {
        let is_control = self.opcode.is_control();
        if self.header_bytes < 2 {
            return self.control.is_empty();
        }
        let is_length_sound = !is_control || self.header[1] & LENGTH <= CONTROL_LENGTH_MAX;
        // The length is complete, so `start_payload` has run.
        let has_begun = self.header_bytes >= self.key_start();
        // mutation: packed-frame
        let has_message = is_control || !has_begun || self.message.is_some();
        let is_control_sound = match is_control && has_begun {
            true => self.control.len().saturating_add(self.left) <= CONTROL_BYTES_MAX,
            false => self.control.is_empty(),
        };
        // mutation: packed-header
        self.header_bytes <= self.key_start() + KEY_BYTES
            && is_length_sound
            && has_message
            && is_control_sound
    }

    /// What it keeps of what has arrived, in bytes.
    pub fn own_bytes(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |message| message.data.capacity());
        size_of::<Decoder>() + message + self.control.capacity()
    }

    /// Takes a part of `input`: returns how many bytes it used, and what they completed. If that
    /// is nothing, all of the input was used, and what is incomplete is kept inside.
    ///
    /// After a violation the place in the stream is lost: close, and do not call again.
    pub fn next(
        &mut self,
        inflater: &mut Inflater,
        input: &[u8],
        rules: &Rules,
    ) -> Result<(usize, Option<Received>), Violation> {
        let mut used = 0;
        loop {
            while !self.header_is_complete() {
                let Some(&byte) = input.get(used) else { return Ok((used, None)) };
                self.header_byte(byte, rules)?;
                used += 1;
            }
            let payload = &input[used..];
            let payload = &payload[..payload.len().min(self.left)];
            self.payload(payload)?;
            used += payload.len();
            if self.left > 0 {
                return Ok((used, None));
            }
            if let Some(received) = self.end_frame(inflater, rules)? {
                return Ok((used, Some(received)));
            }
        }
    }

    /// Whether nothing is half received: then it may be dropped, and be made anew for what comes.
    pub fn is_idle(&self) -> bool {
        self.header_bytes == 0 && self.message.is_none()
    }

    /// Where the masking key begins: behind the length, whose first byte says how long it is.
    fn key_start(&self) -> usize {
        2 + extended_bytes(self.header[1])
    }

    fn header_is_complete(&self) -> bool {
        self.header_bytes >= 2 && self.header_bytes == self.key_start() + KEY_BYTES
    }

    /// Takes a byte of the header, and judges what there is as early as can be.
    fn header_byte(&mut self, byte: u8, rules: &Rules) -> Result<(), Violation> {
        let at = self.header_bytes;
        self.header_bytes += 1;
        if at >= 2 && at >= self.key_start() {
            self.key[at - self.key_start()] = byte;
            return Ok(());
        }
        self.header[at] = byte;
        match at {
            0 => return self.check_first(byte, rules),
            1 if byte & MASK == 0 => return Err(NOT_MASKED),
            1 if self.opcode.is_control() && byte & LENGTH > CONTROL_LENGTH_MAX => {
                return Err(LONG_CONTROL);
            }
            _ => {}
        }
        if self.header_bytes == self.key_start() { self.start_payload(rules) } else { Ok(()) }
    }

    /// What the first byte allows, given what came before it.
    fn check_first(&mut self, first: u8, rules: &Rules) -> Result<(), Violation> {
        self.opcode = Opcode::from_bits(first & OPCODE).ok_or(UNKNOWN_OPCODE)?;
        // RFC 7692 section 6: the bit is set on the first fragment of a deflated message only.
        let begins_message = matches!(self.opcode, Opcode::Text | Opcode::Binary);
        let is_deflated = first & RSV1 != 0;
        if first & (RSV2 | RSV3) != 0 || is_deflated && !(rules.deflate && begins_message) {
            return Err(RESERVED_BITS);
        }
        match self.opcode {
            Opcode::Continuation if self.message.is_none() => Err(NOTHING_TO_CONTINUE),
            Opcode::Text | Opcode::Binary if self.message.is_some() => Err(MESSAGE_IN_MESSAGE),
            Opcode::Close | Opcode::Ping | Opcode::Pong if first & FIN == 0 => {
                Err(FRAGMENTED_CONTROL)
            }
            _ => Ok(()),
        }
    }

    /// Judges the length, which is complete, before a byte of the payload is kept.
    fn start_payload(&mut self, rules: &Rules) -> Result<(), Violation> {
        let length = payload_length(self.header[1], &self.header[2..self.key_start()])?;
        self.left = usize::try_from(length).map_err(|_| LONG_MESSAGE)?;
        if self.opcode.is_control() { Ok(()) } else { self.start_data(rules) }
    }

    /// Begins a message, or continues it, with the frame whose header is read.
    fn start_data(&mut self, rules: &Rules) -> Result<(), Violation> {
        let message = self.message.get_or_insert_with(|| PartialMessage {
            is_text: self.opcode == Opcode::Text,
            is_deflated: self.header[0] & RSV1 != 0,
            fragments: 0,
            data: Vec::new(),
            checked: 0,
        });
        if self.left > rules.message_bytes_max.saturating_sub(message.data.len()) {
            return Err(LONG_MESSAGE);
        }
        message.fragments += 1;
        if message.fragments > FRAGMENTS_MIN + rules.message_bytes_max / FRAGMENT_BYTES {
            return Err(MANY_FRAGMENTS);
        }
        Ok(())
    }

    /// Takes a part of the payload, never more than is left of it.
    fn payload(&mut self, masked: &[u8]) -> Result<(), Violation> {
        self.left -= masked.len();
        match &mut self.message {
            Some(message) if !self.opcode.is_control() => {
                mask_onto(&mut message.data, masked, &mut self.key);
                message.check_text()
            }
            _ => {
                mask_onto(&mut self.control, masked, &mut self.key);
                Ok(())
            }
        }
    }

    /// What the frame, which is complete, has completed.
    fn end_frame(
        &mut self,
        inflater: &mut Inflater,
        rules: &Rules,
    ) -> Result<Option<Received>, Violation> {
        self.header_bytes = 0;
        match self.opcode {
            Opcode::Ping => return Ok(Some(Received::Ping(std::mem::take(&mut self.control)))),
            Opcode::Pong => {
                self.control = Vec::new();
                return Ok(Some(Received::Pong));
            }
            Opcode::Close => return close(&std::mem::take(&mut self.control)).map(Some),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {}
        }
        let is_last = self.header[0] & FIN != 0;
        match self.message.take_if(|_| is_last) {
            Some(message) => message.finish(inflater, rules).map(Some),
            None => Ok(None),
        }
    }
}

impl PartialMessage {
    /// Checks what has arrived since the last time, up to a character that is incomplete.
    fn check_text(&mut self) -> Result<(), Violation> {
        if !self.is_text || self.is_deflated {
            return Ok(());
        }
        match str::from_utf8(&self.data[self.checked..]) {
            Ok(_) => self.checked = self.data.len(),
            Err(error) if error.error_len().is_none() => self.checked += error.valid_up_to(),
            Err(_) => return Err(NOT_UTF8),
        }
        Ok(())
    }

    fn finish(self, inflater: &mut Inflater, rules: &Rules) -> Result<Received, Violation> {
        let data = match self.is_deflated {
            true => inflate(inflater, self.data, rules.message_bytes_max)?,
            false => self.data,
        };
        match self.is_text {
            true => String::from_utf8(data).map(Received::Text).map_err(|_| NOT_UTF8),
            false => Ok(Received::Binary(data)),
        }
    }
}

impl From<MessageError> for Violation {
    fn from(error: MessageError) -> Violation {
        match error {
            MessageError::Inflate(InflateError::TooLong) => LONG_MESSAGE,
            MessageError::Inflate(InflateError::Broken) => NOT_DEFLATE,
            MessageError::ManyLastBlocks => MANY_LAST_BLOCKS,
        }
    }
}

/// Appends what was masked without its mask, or what was not with it, which is the same (RFC 6455
/// section 5.3): four bytes at a time. Turns the key so that it fits what comes next.
pub(super) fn mask_onto(out: &mut Vec<u8>, payload: &[u8], key: &mut [u8; KEY_BYTES]) {
    let start = out.len();
    out.extend_from_slice(payload);
    let (quads, rest) = out[start..].as_chunks_mut();
    for quad in quads {
        *quad = (u32::from_ne_bytes(*quad) ^ u32::from_ne_bytes(*key)).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(&*key) {
        *byte ^= mask;
    }
    key.rotate_left(rest.len());
}

/// Understands a close frame (RFC 6455 sections 5.5.1 and 7.4).
fn close(payload: &[u8]) -> Result<Received, Violation> {
    match payload {
        [] => Ok(Received::Close(None)),
        [_] => Err(SHORT_CLOSE),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !may_be_sent(code) {
                return Err(BAD_CLOSE_CODE);
            }
            str::from_utf8(reason).map_err(|_| NOT_UTF8)?;
            Ok(Received::Close(Some(code)))
        }
    }
}

/// Whether a code may stand in a close frame (RFC 6455 section 7.4).
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// The bits of a frame's first two bytes (RFC 6455 section 5.2).
pub(super) const FIN: u8 = 0x80;
pub(super) const RSV1: u8 = 0x40;
pub(super) const RSV2: u8 = 0x20;
pub(super) const RSV3: u8 = 0x10;
pub(super) const OPCODE: u8 = 0x0f;
pub(super) const MASK: u8 = 0x80;
pub(super) const LENGTH: u8 = 0x7f;
/// The lengths that stand for two and for eight bytes of length behind them.
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// Where the masking key begins at the latest: behind two bytes, and eight of length.
const KEY_START_MAX: usize = 10;
const KEY_BYTES: usize = 4;
/// The longest payload of a control frame.
pub(super) const CONTROL_BYTES_MAX: usize = 125;
pub(super) const CONTROL_LENGTH_MAX: u8 = 125;

/// A message may be in this many fragments, and one more for so many bytes of the limit: enough for
/// any sender that means well, and an end to those that send empty ones.
const FRAGMENTS_MIN: usize = 64;
const FRAGMENT_BYTES: usize = 16;

const NOT_MASKED: Violation = Violation::protocol("A client must mask its frames.");
pub(super) const LONG_CONTROL: Violation =
    Violation::protocol("A control frame must not be longer than 125 bytes.");
pub(super) const UNKNOWN_OPCODE: Violation = Violation::protocol("This opcode is not known here.");
pub(super) const RESERVED_BITS: Violation =
    Violation::protocol("A reserved bit is set that no extension gives a meaning to.");
const NOTHING_TO_CONTINUE: Violation =
    Violation::protocol("A continuation came without a message to continue.");
const MESSAGE_IN_MESSAGE: Violation =
    Violation::protocol("A new message began before the last fragment of the one before.");
pub(super) const FRAGMENTED_CONTROL: Violation =
    Violation::protocol("A control frame must not be fragmented.");
const LONG_LENGTH: Violation =
    Violation::protocol("A length must be written in as few bytes as it fits into.");
const HUGE_LENGTH: Violation = Violation::protocol("The highest bit of a length must not be set.");
const LONG_MESSAGE: Violation =
    Violation { code: 1009, reason: "The message is longer than this server takes." };

const MANY_FRAGMENTS: Violation =
    Violation { code: 1008, reason: "The message is in too many fragments." };
const MANY_LAST_BLOCKS: Violation =
    Violation { code: 1008, reason: "Too many blocks of the message are marked as the last." };
const NOT_UTF8: Violation = Violation { code: 1007, reason: "The text is not UTF-8." };
const NOT_DEFLATE: Violation =
    Violation { code: 1007, reason: "The message is not DEFLATE, or was cut off." };
const SHORT_CLOSE: Violation =
    Violation::protocol("A close frame must be empty, or have a code of two bytes.");
const BAD_CLOSE_CODE: Violation = Violation::protocol("This code must not be in a close frame.");

impl Violation {
    /// The reason in the close frame, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.code {
            1007 => "websocket_data_invalid",
            1008 => "websocket_limit",
            1009 => "websocket_message_too_large",
            _ => "websocket_protocol_error",
        }
    }

    pub(super) const fn protocol(reason: &'static str) -> Violation {
        Violation { code: 1002, reason }
    }
}

#[cfg(test)]
mod tests;
