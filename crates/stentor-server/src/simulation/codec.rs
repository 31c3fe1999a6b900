//! What a simulated client understands: answers of HTTP, and frames of WebSocket.
//!
//! The server's frames are decoded by code of the tests' own, since the server has no decoder for
//! what it sends, and since one that shared its code would share its mistakes.

pub(super) use super::frames::{
    BINARY, CLOSE, COMMANDER, CONTINUATION, PING, PONG, TEXT, put_frame,
};
use flate2::{Decompress, FlushDecompress};
use stentor_io::Rng;

/// One whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }
}

/// Takes the head of an answer off the front, if it is whole.
pub(super) fn take_head(input: &mut Vec<u8>) -> Option<Answer> {
    let end = memchr::memmem::find(input, b"\r\n\r\n")?;
    let head = String::from_utf8(input[..end].to_vec()).expect("a head is ASCII");
    input.drain(..end + 4);
    let status = head[9..12].parse().expect("a status");
    Some(Answer { status, head, body: Vec::new() })
}

/// Takes a whole answer to a request other than HEAD off the front.
pub(super) fn take_answer(input: &mut Vec<u8>) -> Option<Answer> {
    let end = memchr::memmem::find(input, b"\r\n\r\n")? + 4;
    let answer = take_head(&mut input[..end].to_vec())?;
    let length = answer.field("Content-Length:").map_or(0, |text| text.parse().unwrap());
    let length: usize = if matches!(answer.status, 204 | 304) { 0 } else { length };
    if input.len() < end + length {
        return None;
    }
    let body = input[end..end + length].to_vec();
    input.drain(..end + length);
    Some(Answer { body, ..answer })
}

/// A frame of the server's, inflated.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) opcode: u8,
    pub(super) payload: Vec<u8>,
}

/// Takes a whole frame off the front. `deflates` says that permessage-deflate was agreed on.
pub(super) fn take_frame(input: &mut Vec<u8>, deflates: bool) -> Option<Frame> {
    let (&first, &second) = (input.first()?, input.get(1)?);
    assert_eq!(first & 0xb0, 0x80, "a server's frame is whole, and has no bits that mean nothing");
    assert_eq!(second & 0x80, 0, "a server masks nothing");
    let (start, length) = match second {
        126 => (4, usize::from(u16::from_be_bytes(input.get(2..4)?.try_into().unwrap()))),
        127 => (10, u64::from_be_bytes(input.get(2..10)?.try_into().unwrap()) as usize),
        length => (2, usize::from(length)),
    };
    let payload = input.get(start..start + length)?.to_vec();
    input.drain(..start + length);
    let opcode = first & 0x0f;
    let is_deflated = first & 0x40 != 0;
    assert!(!is_deflated || deflates && opcode < CLOSE, "deflated without agreement");
    Some(Frame { opcode, payload: if is_deflated { inflate(payload) } else { payload } })
}

/// RFC 7692 section 7.2.2: the end that was not sent is put back.
fn inflate(mut payload: Vec<u8>) -> Vec<u8> {
    payload.extend_from_slice(b"\x00\x00\xff\xff");
    let mut plain = Vec::with_capacity(1 << 20);
    let mut inflater = Decompress::new(false);
    inflater.decompress_vec(&payload, &mut plain, FlushDecompress::Sync).expect("DEFLATE");
    assert_eq!(inflater.total_in(), payload.len() as u64, "a message is one whole");
    plain
}

/// Appends a text message in fragments, with a ping between them now and then.
pub(super) fn put_text(out: &mut Vec<u8>, rng: &mut Rng, text: &[u8]) {
    let mut rest = text;
    let mut opcode = TEXT;
    while rng.percent(30) && rest.len() > 1 {
        let (fragment, behind) = rest.split_at(rng.below(rest.len()));
        put_frame(out, rng, opcode, false, fragment);
        if rng.percent(30) {
            put_frame(out, rng, PONG, true, b"unasked");
        }
        opcode = CONTINUATION;
        rest = behind;
    }
    put_frame(out, rng, opcode, true, rest);
}
