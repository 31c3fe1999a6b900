//! Server-Sent Events: messages are events, and so is all else that is said.
//!
//! To HTTP/1.1 clients the stream is chunked, and each event is a chunk of its own. Clients that
//! read in blocks then get each event at once, and a stream that is cut short looks so: it lacks
//! the last chunk.

use crate::put_off;
use crate::stream::Gap;
use crate::stream::format::{Ended, Manner, SignOfLife};
use stentor_hub::{Id, StreamForm};
use stentor_wire::http1::{LAST_CHUNK, write_chunk};
use stentor_wire::sse::{self, Notice};

/// The stream of an HTTP/1.1 client.
pub(super) static CHUNKED: Manner = Manner {
    forms: [(StreamForm::SseChunk, None), (StreamForm::EnvelopeSseChunk, None)],
    gap: Some(|out, missing| write_chunk(out, |out| gap(out, missing))),
    uncovered: Some(|out, json| write_chunk(out, |out| uncovered(out, json))),
    cursor: |out, id, _| write_chunk(out, |out| cursor(out, id)),
    sign_of_life: SignOfLife::Comment(sse::HEARTBEAT_CHUNK),
    farewell: |out| out.extend_from_slice(LAST_CHUNK),
    put_off: Some(|out, chance| write_last(out, |out| put_off::last_events(out, chance))),
    expired: |out, why| write_last(out, |out| expired(out, why)),
    readers: |stats| &stats.readers_sse,
};

/// The stream of an HTTP/1.0 client, which ends with the connection (RFC 9112 section 6.3).
pub(super) static UNCHUNKED: Manner = Manner {
    forms: [(StreamForm::Sse, None), (StreamForm::EnvelopeSse, None)],
    gap: Some(gap),
    uncovered: Some(uncovered),
    cursor: |out, id, _| cursor(out, id),
    sign_of_life: SignOfLife::Comment(sse::HEARTBEAT),
    farewell: |_| {},
    put_off: Some(put_off::last_events),
    expired,
    readers: |stats| &stats.readers_sse,
};

/// The last event of a chunked stream, and its last chunk.
fn write_last(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_chunk(out, write);
    out.extend_from_slice(LAST_CHUNK);
}

/// The event that says that something is missing.
fn gap(out: &mut Vec<u8>, gap: &Gap) {
    sse::notice(out, None, Notice::Gap, &gap.json());
}

/// The event that names the part of a subscription that the reader may not see.
fn uncovered(out: &mut Vec<u8>, json: &str) {
    sse::notice(out, None, Notice::Uncovered, &format!("{{\"uncovered\":{json}}}"));
}

/// The event that says that the stream is over, and that coming back without another token is of
/// no use.
fn expired(out: &mut Vec<u8>, why: Ended) {
    let json = format!("{{\"expired\":\"{}\"}}", why.name());
    sse::notice(out, None, Notice::Expired, &json);
}

/// An id without an event: from here the reader may resume (WHATWG HTML, section 9.2.6).
fn cursor(out: &mut Vec<u8>, id: Id) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id.text().as_bytes());
    out.extend_from_slice(b"\n\n");
}
