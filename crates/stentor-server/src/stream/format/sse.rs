//! Server-Sent Events: messages are events, and so is all else that is said.
//!
//! To HTTP/1.1 clients the stream is chunked, and each event is a chunk of its own. Clients that
//! read in blocks then get each event at once, and a stream that is cut short looks so: it lacks
//! the last chunk.

use crate::put_off;
use crate::stream::format::{Ended, Manner, SignOfLife};
use stentor_hub::StreamForm;
use stentor_wire::http1::{LAST_CHUNK, write_chunk};
use stentor_wire::notice;
use stentor_wire::sse;

/// The stream of an HTTP/1.1 client.
pub(super) static CHUNKED: Manner = Manner {
    forms: [(StreamForm::SseChunk, None), (StreamForm::EnvelopeSseChunk, None)],
    notice: Some(|out, cursor, json| write_chunk(out, |out| sse::notice(out, cursor, json))),
    sign_of_life: SignOfLife::Comment(sse::HEARTBEAT_CHUNK),
    farewell: |out| out.extend_from_slice(LAST_CHUNK),
    put_off: Some(|out, chance| write_last(out, |out| put_off::last_events(out, chance))),
    end: |out, why| write_last(out, |out| end(out, why)),
    readers: |stats| &stats.readers_sse,
};

/// The stream of an HTTP/1.0 client, which ends with the connection (RFC 9112 section 6.3).
pub(super) static UNCHUNKED: Manner = Manner {
    forms: [(StreamForm::Sse, None), (StreamForm::EnvelopeSse, None)],
    notice: Some(sse::notice),
    sign_of_life: SignOfLife::Comment(sse::HEARTBEAT),
    farewell: |_| {},
    put_off: Some(put_off::last_events),
    end,
    readers: |stats| &stats.readers_sse,
};

/// The last event of a chunked stream, and its last chunk.
fn write_last(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_chunk(out, write);
    out.extend_from_slice(LAST_CHUNK);
}

/// The event that says that the stream is over, and that coming back without another token is of
/// no use.
fn end(out: &mut Vec<u8>, why: Ended) {
    sse::notice(out, None, &notice::end(why.code()));
}
