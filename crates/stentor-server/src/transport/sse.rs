//! Server-Sent Events (WHATWG HTML, section 9.2): a response that does not end.
//!
//! It has no length. HTTP/1.1 clients are sent chunks: see `stream/format/sse.rs`.

use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::limits::{OLD_QUEUE_MS, QUEUE_AGE_MS_MAX};
use crate::put_off::EVENT_STREAM;
use crate::stream::format::Transport;
use crate::transport::Wanted;
use stentor_wire::http1::{Request, write_chunk};
use stentor_wire::sse;
use stentor_wire::status::Status;

/// Begins a stream of events, if the request is a good one.
pub(crate) fn open(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
) -> Answer {
    let wanted = match Wanted::of_some(x, request, path, query) {
        // mutation: sse-in-shortage
        Ok(wanted) => wanted.under_pressure(x),
        Err(refused) => return x.refuse_stream(request, refused),
    };
    let heartbeat_s = x.settings.streams.heartbeat_ms as f64 / 1000.0;
    let head_only = x.reply.shape.head_only;
    let is_chunked = !x.reply.shape.persistence.http10;
    let head = if head_only { x.reply.begin(Status::OK) } else { x.reply.endless(Status::OK) };
    let head = head
        .field(Field::CONTENT_TYPE, EVENT_STREAM)
        .field(Field::CACHE_CONTROL, "no-cache, no-transform")
        .field(Field::X_ACCEL_BUFFERING, "no")
        .field(Field::INCREMENTAL, "?1")
        // A client knows from it when silence means that the line is dead.
        .field(Field::HEARTBEAT, heartbeat_s.to_string())
        .field(Field::VARY, "Accept");
    if head_only {
        head.end();
        return Answer::Now;
    }
    if is_chunked {
        head.end_with_chunks();
    } else {
        head.end();
    }
    // Those who lose their connection together do not come back together.
    let mut retry_ms = x.settings.streams.retry_ms;
    retry_ms += x.rng.next_u64() % (retry_ms + 1);
    // If so many have come at once that it takes long to take them in, the more time they have the
    // next time.
    // mutation: return-at-once
    if x.queue_age_ms >= OLD_QUEUE_MS {
        let age_ms = x.queue_age_ms.min(QUEUE_AGE_MS_MAX);
        retry_ms += age_ms / 2 + x.rng.next_u64() % age_ms;
    }
    let out = x.reply.out.bytes();
    if is_chunked {
        write_chunk(out, |out| sse::retry(out, retry_ms));
        Answer::Stream(wanted.opening(Transport::Sse))
    } else {
        sse::retry(out, retry_ms);
        Answer::Stream(wanted.opening(Transport::SseUnchunked))
    }
}
