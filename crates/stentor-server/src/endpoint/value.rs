//! `GET /topic`: the current value, whole or not at all if the client has it.

use crate::context::Exchange;
use crate::endpoint::BAD_PATH;
use std::sync::Arc;
use stentor_hub::Message;
use stentor_wire::http1::Head;
use stentor_wire::negotiate::{Acceptable, Encoding, Encodings, http_date, tag_matches};
use stentor_wire::status::Status;
use stentor_wire::target;

/// Answers with the value of the topic that `path` names.
pub(crate) fn get(x: &mut Exchange<'_>, head: &Head<'_>, path: &[u8]) {
    let Ok(topic) = target::decode(path) else {
        return x.reply.refuse(Status::BAD_REQUEST, BAD_PATH);
    };
    x.shared.hub.with_value(&topic, |message| match message {
        Some(message) => found(x, head, message),
        // Only a name that is not in the table is worth checking.
        None => match target::check_topic(&topic) {
            Ok(()) => {
                // A cache may keep a 404 otherwise, and answer one who would read a stream with it.
                let fields = b"Cache-Control: no-cache\r\nVary: Accept\r\n";
                let reason = "Nothing has been published here.";
                x.reply.refuse_with(Status::NOT_FOUND, fields, reason);
            }
            Err(reason) => x.reply.refuse(Status::BAD_REQUEST, reason),
        },
    });
}

fn found(x: &mut Exchange<'_>, head: &Head<'_>, message: &Arc<Message>) {
    let encoding = match head.accept_encoding {
        Some(_) => select(x, head, message),
        None => Encoding::Identity,
    };
    match judge(head, message) {
        Judgement::Send => {
            if encoding != Encoding::Identity {
                x.reply.stats.answers_compressed.add(1);
            }
            x.reply.message(message, encoding);
        }
        Judgement::NotModified => not_modified(x, message, encoding),
        Judgement::Failed(reason) => x.reply.refuse(Status::PRECONDITION_FAILED, reason),
    }
}

/// The best form there is; a better one that could be made is asked for. One that is there is
/// asked for too: what clients want of this value is made of the next before they come.
fn select(x: &Exchange<'_>, head: &Head<'_>, message: &Arc<Message>) -> Encoding {
    let acceptable = Acceptable::parse(head.accept_encoding);
    if message.compressible()
        && let Some(wanted) = acceptable.best(Encodings::ALL)
    {
        x.shared.compressor.ask(message, wanted);
    }
    acceptable.best(message.available()).unwrap_or(Encoding::Identity)
}

enum Judgement {
    Send,
    NotModified,
    /// And which field it was.
    Failed(&'static str),
}

/// The preconditions of RFC 9110 section 13.2.2, in its order.
fn judge(head: &Head<'_>, message: &Message) -> Judgement {
    let named = |tags| tag_matches(tags, message.id().text().as_bytes());
    if let Some(tags) = head.if_match {
        if !named(tags) {
            return Judgement::Failed("The value is another one by now (If-Match).");
        }
    } else if let Some(date) = head.if_unmodified_since.and_then(http_date)
        && message.published_at() > date
    {
        return Judgement::Failed("The value is newer than that (If-Unmodified-Since).");
    }
    if let Some(tags) = head.if_none_match {
        return if named(tags) { Judgement::NotModified } else { Judgement::Send };
    }
    match head.if_modified_since.and_then(http_date) {
        Some(since) if message.published_at() <= since && !message.shares_second() => {
            Judgement::NotModified
        }
        _ => Judgement::Send,
    }
}

/// 304 with the fields that a 200 would have had, RFC 9110 section 15.4.5.
fn not_modified(x: &mut Exchange<'_>, message: &Message, encoding: Encoding) {
    let fields = &mut x.scratch.name;
    fields.clear();
    fields.extend_from_slice(b"ETag: \"");
    fields.extend_from_slice(message.id().text().as_bytes());
    fields.extend_from_slice(encoding.suffix().as_bytes());
    fields.extend_from_slice(b"\"\r\nCache-Control: ");
    fields.extend_from_slice(message.cache_control().as_bytes());
    fields.extend_from_slice(b"\r\n");
    fields.extend_from_slice(match message.varies() {
        true => &b"Vary: Accept, Accept-Encoding\r\n"[..],
        false => b"Vary: Accept\r\n",
    });
    x.reply.empty(Status::NOT_MODIFIED, fields);
}
