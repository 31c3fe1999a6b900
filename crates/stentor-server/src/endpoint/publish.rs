//! `PUT`, `POST` and `DELETE /topic`: publishing on the control listener.

use crate::context::{CONTROL, Context, Exchange, Shared};
use crate::endpoint::{Sink, TOO_LARGE};
use crate::limits::GATHER_BYTES;
use crate::response::Shape;
use crate::route::{self, Next};
use stentor_hub::{
    CacheControl, ContentType, Draft, EventName, GzipError, Precondition, Published, Refusal,
};
use stentor_wire::deflate::Inflater;
use stentor_wire::http1::{BodyLength, Head, Method};
use stentor_wire::negotiate::Encoding;
use stentor_wire::status::Status;
use stentor_wire::target::{self, TopicName};

/// Why something is refused: the status and a sentence.
type Refused = (Status, String);

/// A message on its way in: what the head said, and the data so far.
#[derive(Debug)]
pub(crate) struct Upload {
    topic: TopicName<'static>,
    content_type: ContentType,
    event: Option<EventName>,
    cache_control: Option<CacheControl>,
    /// The publisher compressed it.
    gzip: bool,
    condition: Precondition,
    pub(crate) data: Vec<u8>,
}

fn precondition(head: &Head<'_>) -> Result<Precondition, Refused> {
    let bad = |reason: &str| (Status::BAD_REQUEST, reason.to_owned());
    if head.if_unmodified_since.is_some() {
        return Err(bad("If-Unmodified-Since is too coarse for live values: send If-Match."));
    }
    match (head.if_match, head.if_none_match) {
        (Some(tags), None) => Ok(Precondition::IfMatch(tags.into())),
        (None, Some(tags)) => Ok(Precondition::IfNoneMatch(tags.into())),
        (None, None) => Ok(Precondition::None),
        (Some(_), Some(_)) => Err(bad("Send If-Match or If-None-Match, not both.")),
    }
}

/// A PUT or POST on the control listener: everything the head can tell is checked before a byte
/// of the body is read.
pub(crate) fn begin(cx: &mut Context, head: &Head<'_>, keep_alive: bool) -> Next {
    let (path, _) = target::split(head.target);
    match check(cx, head, path) {
        Ok(sink) => Next::Body(sink),
        Err(refusal) => {
            let empty = matches!(head.body, BodyLength::None | BodyLength::Length(0));
            let mut x = cx.exchange(route::shape(CONTROL, head, keep_alive && empty));
            x.reply.stats.publishes_refused.add(1);
            match refusal {
                Some((status, reason)) => x.reply.refuse(status, &reason),
                None => route::not_allowed(&mut x, CONTROL, path),
            }
            if empty { Next::Answered } else { Next::Refused }
        }
    }
}

/// `Err(None)` stands for a method that is not allowed at this path.
fn check(cx: &Context, head: &Head<'_>, path: &[u8]) -> Result<Sink, Option<Refused>> {
    refuse_pages(head).map_err(Some)?;
    let bulk = path == b"/-/publish";
    if path.starts_with(b"/-/") && !(bulk && head.method == Method::Post) {
        return Err(None);
    }
    if head.body == BodyLength::None {
        let reason = "Send Content-Length (0 for an empty message) or Transfer-Encoding: chunked.";
        return Err(no(Status::LENGTH_REQUIRED, reason));
    }
    if bulk {
        return match head.content_encoding {
            None => Ok(Sink::Bulk(Box::default())),
            Some(_) => {
                Err(no(Status::UNSUPPORTED_MEDIA_TYPE, "Lines are taken without Content-Encoding."))
            }
        };
    }
    let upload = Upload::of(head, path, cx.settings.limits.message_bytes_max)?;
    Ok(Sink::Publish(Box::new(upload)))
}

fn no(status: Status, reason: &str) -> Option<Refused> {
    Some((status, reason.to_owned()))
}

/// A browser says which page sends a write. Pages must not be able to publish just because the
/// browser that shows them runs where the control listener can be reached.
fn refuse_pages(head: &Head<'_>) -> Result<(), Refused> {
    let reason = match (head.origin, head.fetch_site) {
        (Some(_), _) => "Web pages cannot publish: a request with an Origin is refused here.",
        (None, Some(b"cross-site" | b"same-site")) => {
            "Web pages cannot publish: what a page of another site makes a browser send is \
             refused here (Sec-Fetch-Site)."
        }
        (None, _) => return Ok(()),
    };
    Err((Status::FORBIDDEN, reason.to_owned()))
}

impl Upload {
    /// What a head says of the message it announces.
    fn of(head: &Head<'_>, path: &[u8], bytes_max: usize) -> Result<Upload, Option<Refused>> {
        let bad = |reason: &str| no(Status::BAD_REQUEST, reason);
        let topic = TopicName::from_path(path).map_err(bad)?;
        let length = match head.body {
            BodyLength::Length(length) if length > bytes_max as u64 => {
                return Err(no(TOO_LARGE.status, TOO_LARGE.reason));
            }
            // Not all that is announced also comes.
            BodyLength::Length(length) => (length as usize).min(GATHER_BYTES),
            _ => 0,
        };
        let gzip = match head.content_encoding {
            None => false,
            Some(coding) => match Encoding::from_token(coding) {
                Some(Encoding::Identity) => false,
                Some(Encoding::Gzip) => true,
                _ => {
                    let reason =
                        "Of the content encodings only gzip is taken; others are made here.";
                    return Err(no(Status::UNSUPPORTED_MEDIA_TYPE, reason));
                }
            },
        };
        let content_type = field(head.content_type, ContentType::parse).map_err(bad)?;
        Ok(Upload {
            topic: topic.into_owned(),
            content_type: content_type.unwrap_or(ContentType::OCTETS),
            event: field(head.event, EventName::parse).map_err(bad)?,
            cache_control: field(head.cache_control, CacheControl::parse).map_err(bad)?,
            gzip,
            condition: precondition(head).map_err(Some)?,
            data: Vec::with_capacity(length),
        })
    }

    /// The body is complete: publishes it.
    pub(crate) fn finish(self, cx: &mut Context, shape: Shape<'_>) {
        let bytes_max = cx.settings.limits.message_bytes_max;
        let mut x = cx.exchange(shape);
        match self.publish(x.shared, x.inflater, bytes_max, x.unix_s) {
            Ok(published) => {
                let (id, readers) = (published.id.text(), published.readers);
                let status = if published.created { Status::CREATED } else { Status::OK };
                let etag = format!("ETag: \"{}\"\r\n", id.as_str());
                let body = format!("{{\"id\":\"{id}\",\"readers\":{readers}}}\n", id = id.as_str());
                x.reply.content(status, "application/json", etag.as_bytes(), body.as_bytes());
            }
            Err((status, reason)) => {
                x.reply.stats.publishes_refused.add(1);
                x.reply.refuse(status, &reason);
            }
        }
    }

    fn publish(
        self,
        shared: &Shared,
        inflater: &mut Inflater,
        bytes_max: usize,
        unix_s: u64,
    ) -> Result<Published, Refused> {
        let draft = match self.gzip {
            true => Draft::from_gzip(inflater, self.data, bytes_max).map_err(|error| {
                let status = match error {
                    GzipError::TooLarge { .. } => Status::CONTENT_TOO_LARGE,
                    _ => Status::BAD_REQUEST,
                };
                (status, error.to_string())
            })?,
            false => Draft::new(self.data),
        };
        let mut draft = draft.with_content_type(self.content_type);
        if let Some(event) = self.event {
            draft = draft.with_event(event);
        }
        if let Some(cache_control) = self.cache_control {
            draft = draft.with_cache_control(cache_control);
        }
        shared
            .publish(self.topic, draft, self.condition, unix_s)
            .map_err(|refusal| (status_of(refusal), refusal.to_string()))
    }
}

fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::TooLarge { .. } => Status::CONTENT_TOO_LARGE,
        Refusal::TooManyTopics { .. } => Status::INSUFFICIENT_STORAGE,
        Refusal::NotFound => Status::NOT_FOUND,
        Refusal::PreconditionFailed => Status::PRECONDITION_FAILED,
    }
}

fn field<T>(
    value: Option<&[u8]>,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, &'static str> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "A header field is not UTF-8.");
    value.map(|bytes| parse(text(bytes)?)).transpose()
}

/// `DELETE /topic`
pub(crate) fn delete(x: &mut Exchange<'_>, head: &Head<'_>, path: &[u8]) {
    let condition = match refuse_pages(head).and_then(|()| precondition(head)) {
        Ok(condition) => condition,
        Err((status, reason)) => return x.reply.refuse(status, &reason),
    };
    if path.starts_with(b"/-/") {
        return route::not_allowed(x, CONTROL, path);
    }
    let topic = match TopicName::from_path(path) {
        Ok(topic) => topic,
        Err(reason) => return x.reply.refuse(Status::BAD_REQUEST, reason),
    };
    match x.shared.hub.delete(topic, condition, x.unix_s) {
        Ok(_) => x.reply.empty(Status::NO_CONTENT, b""),
        Err(refusal) => x.reply.refuse(status_of(refusal), &refusal.to_string()),
    }
}
