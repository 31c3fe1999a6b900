//! `GET /topic`: the current value, whole or not at all if the client has it.

use super::file::Looks;
use super::welcome;
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::labels::RequestKind;
use std::sync::Arc;
use stentor_hub::Message;
use stentor_wire::condition::{self, Validators, Verdict};
use stentor_wire::http1::Request;
use stentor_wire::negotiate::{Acceptable, Encoding, Encodings, essence, tag_matches};
use stentor_wire::rejections;
use stentor_wire::target::{self, TopicName};

/// Answers with the value of the topic that `path` names, or with a file. `looks` are what the
/// loader has found for this request.
pub(crate) fn get(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
    looks: Looks,
) -> Answer {
    let Ok(topic) = target::decode(path) else {
        return x.reject(&target::BAD_PATH);
    };
    if let Err(denied) = x.may_see(&topic) {
        return x.deny(&denied);
    }
    let shared = x.shared;
    let published = shared.hub.with_value(&topic, |message| {
        let Some(message) = message else { return false };
        // Whoever may publish here, and nowhere else, must not act for those who read elsewhere.
        let may_be_foreign = || x.settings.access.topics.takes_tokens_for(&topic);
        // mutation: script-of-token
        x.reply.shape.is_sandboxed = !is_inert(message.content_type()) && may_be_foreign();
        found(x, request, message);
        true
    });
    if published {
        return Answer::Now;
    }
    let is_welcome = welcome::is_asked_for(x, request, &topic);
    if !is_welcome && x.settings.mounts.is_empty() {
        nothing(x, &topic);
        return Answer::Now;
    }
    // A long-poll stays one, whatever it ends with.
    let kind = &mut x.reply.answers.asked.kind;
    if *kind == RequestKind::Value {
        *kind = RequestKind::File;
    }
    if is_welcome {
        welcome::get(x, request);
        return Answer::Now;
    }
    super::file::get(x, request, &topic, looks)
}

/// There is no value, and no files are served. Only a name that is not in the table is worth
/// checking.
fn nothing(x: &mut Exchange<'_>, topic: &str) {
    match TopicName::parse(topic) {
        Ok(_) => {
            let head = x.reply.begin(NOT_FOUND.status());
            head.field(Field::VARY, "Accept").reject(&NOT_FOUND);
        }
        Err(rejection) => x.reply.reject(&rejection),
    }
}

/// Answers with a value that there is.
pub(crate) fn found(x: &mut Exchange<'_>, request: &Request<'_>, message: &Arc<Message>) {
    let encoding = match request.accept_encoding {
        Some(_) => select(x, request, message),
        None => Encoding::Identity,
    };
    let validators = Validators {
        // Laxer than the RFC, and as safe: an id never names two different messages. It has many
        // tags, and all are as good.
        named: |list: &[u8], _| tag_matches(list, message.id().text().as_bytes()).then_some(0),
        modified_at: message.published_at(),
        dates_tell: x.shared.hub.dates_tell(message),
    };
    match condition::judge(request, &validators, x.clock.unix_s) {
        Verdict::Send => {
            if encoding != Encoding::Identity {
                x.reply.stats.answers_compressed.add(1);
            }
            x.reply.message(message, encoding);
        }
        Verdict::NotModified(_) => x.reply.unchanged(message, encoding),
        Verdict::Mismatch => {
            x.reply.reject(&OTHER_VALUE);
        }
        Verdict::Newer => {
            x.reply.reject(&NEWER_VALUE);
        }
    }
}

/// Whether a browser that is sent such content shows it at most. All types that are not known for
/// that count as those that it may run: there are many that hold HTML or XML. A list of types is
/// one of those, for browsers go by its last.
fn is_inert(content_type: &str) -> bool {
    let essence = essence(content_type);
    INERT.iter().any(|inert| essence.eq_ignore_ascii_case(inert)) && !content_type.contains(',')
}

/// The types of nearly all values that are published.
const INERT: [&str; 9] = [
    "application/json",
    "application/octet-stream",
    "text/plain",
    "text/csv",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "application/pdf",
];

/// The best form there is; a better one that could be made is asked for. One that is there is
/// asked for too: what clients want of this value is made of the next before they come.
fn select(x: &Exchange<'_>, request: &Request<'_>, message: &Arc<Message>) -> Encoding {
    let acceptable = Acceptable::parse(request.accept_encoding);
    if message.compressible()
        && let Some(wanted) = acceptable.best(Encodings::ALL)
    {
        x.shared.committer.applier().compressor().ask(message, wanted);
    }
    acceptable.best(message.available()).unwrap_or(Encoding::Identity)
}

rejections! {
    NOT_FOUND: TopicNotFound = "Nothing has been published here.";
    OTHER_VALUE: PreconditionFailed = "The value is another one by now (If-Match).";
    NEWER_VALUE: PreconditionFailed = "The value is newer than that (If-Unmodified-Since).";
}
