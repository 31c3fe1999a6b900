//! Server-Sent Events: messages are events, and so is all else that is said.

use crate::put_off;
use crate::stream::Gap;
use crate::stream::format::{Ended, Manner, SignOfLife};
use stentor_hub::{Id, StreamForm};
use stentor_wire::sse::{self, Notice};

pub(super) static MANNER: Manner = Manner {
    forms: [(StreamForm::Sse, None), (StreamForm::EnvelopeSse, None)],
    gap: Some(gap),
    uncovered: Some(|out, json| {
        sse::notice(out, None, Notice::Uncovered, &format!("{{\"uncovered\":{json}}}"));
    }),
    cursor,
    sign_of_life: SignOfLife::Comment(sse::HEARTBEAT),
    farewell: |_| {},
    put_off: Some(put_off::last_events),
    expired,
    readers: |stats| &stats.readers_sse,
};

/// The event that says that something is missing.
fn gap(out: &mut Vec<u8>, gap: &Gap) {
    sse::notice(out, None, Notice::Gap, &gap.json());
}

/// The event that says that the stream is over, and that coming back without another token is of
/// no use.
fn expired(out: &mut Vec<u8>, why: Ended) {
    let json = format!("{{\"expired\":\"{}\"}}", why.name());
    sse::notice(out, None, Notice::Expired, &json);
}

/// An id without an event: from here the reader may resume (WHATWG HTML, section 9.2.6).
fn cursor(out: &mut Vec<u8>, id: Id, _: bool) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id.text().as_bytes());
    out.extend_from_slice(b"\n\n");
}
