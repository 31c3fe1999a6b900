//! `PUT`, `POST` and `DELETE /topic`: publishing, on the control listener or with a token.

use crate::access::{Act, Author, Denied};
use crate::endpoint::bulk::Bulk;
use crate::endpoint::not_allowed;
use crate::endpoint::{Sink, TOO_LARGE};
use crate::exchange::{Answer, Awaits, Exchange};
use crate::head::Field;
use crate::labels::RequestKind;
use crate::limits::{GATHER_BYTES, INFLATE_COST};
use crate::response::Scratch;
use stentor_config::Settings;
use stentor_hub::{
    Applied, CacheControl, ContentType, Draft, EventName, GzipError, Id, Op, Precondition, Refusal,
};
use stentor_order::{CommitError, OrderKind, Outcome};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::http1::{BodyLength, Method, Request};
use stentor_wire::negotiate::{Encoding, essence};
use stentor_wire::packed;
use stentor_wire::rejections;
use stentor_wire::status::Status;
use stentor_wire::target::{self, TopicName};

/// Why nothing is published.
enum No {
    /// The method is not allowed at this path.
    Method,
    Rejected(Rejection),
    Denied(Denied),
    /// Another server takes it.
    Elsewhere,
}

impl From<Rejection> for No {
    fn from(rejection: Rejection) -> No {
        No::Rejected(rejection)
    }
}

impl From<Denied> for No {
    fn from(denied: Denied) -> No {
        No::Denied(denied)
    }
}

/// A message on its way in: what the head said, and the data so far.
#[derive(Debug)]
pub(crate) struct Upload {
    topic: TopicName<'static>,
    content_type: ContentType,
    event: Option<EventName>,
    cache_control: Option<CacheControl>,
    /// The publisher compressed it.
    pub(crate) gzip: bool,
    condition: Precondition,
    /// By what right it is published.
    author: Author,
    /// The page that publishes, if it is listed.
    origin: Option<Box<[u8]>>,
    pub(crate) data: Vec<u8>,
}

packed!(struct Upload {
    topic, content_type, event, cache_control, gzip, condition, author, origin, data,
});

fn precondition(request: &Request<'_>) -> Result<Precondition, Rejection> {
    if request.if_unmodified_since.is_some() {
        return Err(COARSE_CONDITION);
    }
    match (request.if_match, request.if_none_match) {
        (Some(tags), None) => Ok(Precondition::IfMatch(tags.into())),
        (None, Some(tags)) => Ok(Precondition::IfNoneMatch(tags.into())),
        (None, None) => Ok(Precondition::None),
        (Some(_), Some(_)) => Err(TWO_CONDITIONS),
    }
}

/// A PUT or POST where messages are published: everything the head can tell is checked before a
/// byte of the body is read.
pub(crate) fn begin(x: &mut Exchange<'_>, request: &Request<'_>, body: BodyLength) -> Answer {
    let (path, _) = target::split(request.target);
    x.reply.answers.asked.kind = match path {
        b"/-/publish" => RequestKind::Bulk,
        _ => RequestKind::Publish,
    };
    match check(x, request, body, path) {
        Ok(sink) => Answer::AfterBody(sink),
        Err(refusal) => {
            x.reply.stats.publishes_refused.add(1);
            refuse(x, request, refusal);
            Answer::Now
        }
    }
}

fn refuse(x: &mut Exchange<'_>, request: &Request<'_>, no: No) {
    let target = request.target;
    match no {
        No::Method => not_allowed(x, request, target::split(target).0),
        No::Rejected(rejection) => x.reply.reject(&rejection),
        No::Denied(denied) => {
            x.deny(&denied);
        }
        No::Elsewhere => lead_elsewhere(x, target),
    }
}

/// This server follows another one: publishers are led to where the order is made, or refused.
fn lead_elsewhere(x: &mut Exchange<'_>, target: &[u8]) {
    let OrderKind::Leader { publish_url: Some(url) } = x.shared.committer.order() else {
        return x.reply.reject(&CommitError::Elsewhere.rejection());
    };
    // What was read of a request has no byte that could end a line.
    let location = [url.as_bytes(), target].concat();
    let head = x.reply.begin(Status::TEMPORARY_REDIRECT).field(Field::LOCATION, location);
    head.sentence("This server follows another one: publish at Location.");
}

fn check(
    x: &Exchange<'_>,
    request: &Request<'_>,
    body: BodyLength,
    path: &[u8],
) -> Result<Sink, No> {
    x.may(Act::Publish(request))?;
    let bulk = path == b"/-/publish";
    if path.starts_with(b"/-/") && !(bulk && request.method == Method::Post) {
        return Err(No::Method);
    }
    let topic = match bulk {
        true => None,
        false => {
            let topic = TopicName::from_path(path).and_then(TopicName::published)?;
            x.may(Act::PublishTo(&topic))?;
            Some(topic.into_owned())
        }
    };
    if matches!(x.shared.committer.order(), OrderKind::Leader { .. }) {
        return Err(No::Elsewhere);
    }
    if request.content_range.is_some() {
        return Err(PARTIAL.into());
    }
    if body == BodyLength::None {
        return Err(NO_LENGTH.into());
    }
    let Some(topic) = topic else {
        if !are_lines(request.content_type) {
            return Err(OTHER_TYPE.into());
        }
        return match request.content_encoding {
            None => Ok(Sink::Bulk(Box::new(Bulk::of(
                Author::of(x.visitor(), request, &x.requester.token),
                x.reply.shape.origin,
            )))),
            Some(_) => Err(ENCODED_LINES.into()),
        };
    };
    let mut upload = Upload::of(request, body, topic, x.settings)?;
    upload.author = Author::of(x.visitor(), request, &x.requester.token);
    upload.origin = x.reply.shape.origin.map(Box::from);
    Ok(Sink::Publish(Box::new(upload)))
}

/// Whether a content type can be that of lines of JSON. Many clients name none, or one of their own
/// accord.
fn are_lines(content_type: Option<&[u8]>) -> bool {
    let Some(content_type) = content_type else { return true };
    let content_type = std::str::from_utf8(content_type).ok().map(essence);
    let is = |name: &&str| content_type.is_some_and(|it| it.eq_ignore_ascii_case(name));
    ["application/x-ndjson", "application/ndjson", "application/jsonl"]
        .iter()
        .chain(&UNASKED)
        .any(is)
}

impl Upload {
    /// What a head says of the message it announces.
    fn of(
        request: &Request<'_>,
        body: BodyLength,
        topic: TopicName<'static>,
        settings: &Settings,
    ) -> Result<Upload, No> {
        let bytes_max = settings.limits.message_bytes_max;
        let length = match body {
            BodyLength::Length(length) if length > bytes_max as u64 => {
                return Err(TOO_LARGE.into());
            }
            // Not all that is announced also comes.
            BodyLength::Length(length) => (length as usize).min(GATHER_BYTES),
            _ => 0,
        };
        let gzip = match request.content_encoding {
            None => false,
            Some(coding) => match Encoding::from_token(coding) {
                Some(Encoding::Identity) => false,
                Some(Encoding::Gzip) => true,
                _ => return Err(OTHER_ENCODING.into()),
            },
        };
        let content_type = field(request.content_type, ContentType::parse)?;
        Ok(Upload {
            content_type: content_type_of(&topic, content_type, settings),
            topic,
            event: field(request.event, EventName::parse_published)?,
            cache_control: field(request.cache_control, CacheControl::parse)?,
            gzip,
            condition: precondition(request)?,
            author: Author::Anyone,
            origin: None,
            data: Vec::with_capacity(length),
        })
    }

    /// A text of so many bytes for the guestbook, whatever the head says of it.
    pub(crate) fn text(topic: TopicName<'static>, condition: Precondition, bytes: u64) -> Upload {
        Upload {
            topic,
            content_type: ContentType::TEXT,
            event: None,
            cache_control: None,
            gzip: false,
            condition,
            author: Author::Guest,
            origin: None,
            data: Vec::with_capacity((bytes as usize).min(GATHER_BYTES)),
        }
    }

    /// The body is complete: publishes it.
    pub(crate) fn finish(self, x: &mut Exchange<'_>) -> Answer {
        x.answer_to(self.origin.as_deref());
        // A body takes as long as it likes.
        let now = (&*x.access.keys, x.clock.unix_s);
        if let Err(denied) = self.author.may_publish_to(&self.topic, x.visitor(), now) {
            x.reply.stats.publishes_refused.add(1);
            return x.deny_author(&denied, &self.author);
        }
        let bytes_max = x.settings.limits.message_bytes_max;
        let draft = match self.gzip {
            true => {
                let cost_in = self.data.len() * INFLATE_COST;
                let draft = Draft::from_gzip(&mut x.resources.inflater, self.data, bytes_max);
                let bytes = draft.as_ref().map_or(bytes_max, |draft| draft.data().len());
                *x.reply.cost += cost_in.max(bytes);
                draft
            }
            false => Ok(Draft::new(self.data)),
        };
        let mut draft = match draft {
            Ok(draft) => draft.published_as(self.content_type),
            Err(error) => {
                let code = match error {
                    GzipError::TooLarge { .. } => ErrorCode::MessageTooLarge,
                    _ => ErrorCode::GzipInvalid,
                };
                x.reply.stats.publishes_refused.add(1);
                return x.reject(&Rejection::because(code, error.to_string()));
            }
        };
        if let Some(event) = self.event {
            draft = draft.with_event(event);
        }
        if let Some(cache_control) = self.cache_control {
            draft = draft.with_cache_control(cache_control);
        }
        commit(x, Op::Put(self.topic, draft), self.condition)
    }
}

/// Has a change committed, and answers once it is known what came of it.
fn commit(x: &mut Exchange<'_>, op: Op<'_>, when: Precondition) -> Answer {
    let is_deletion = matches!(op, Op::Delete(_));
    match x.commit(op, when) {
        Some(outcome) => {
            answer(x, is_deletion, outcome);
            Answer::Now
        }
        None => {
            let origin = x.reply.shape.origin.map(Box::from);
            x.answer_later(Awaits::Commit { is_deletion, outcome: None, origin })
        }
    }
}

/// Answers with what came of a PUT, a POST or a DELETE.
pub(crate) fn answer(x: &mut Exchange<'_>, is_deletion: bool, outcome: Outcome) {
    match outcome {
        Ok(Applied::Put(published)) => {
            let status = if published.created { Status::CREATED } else { Status::OK };
            tell_id(x, status, (published.id, published.readers), true);
        }
        Ok(Applied::Deleted(deletion, readers)) => {
            tell_id(x, Status::OK, (deletion.message.id(), readers), false);
        }
        Ok(other) => unreachable!("a change is made or refused: {other:?}"),
        Err(error) => {
            x.reply.stats.publishes_refused.add(u64::from(!is_deletion));
            x.reply.stats.count_refusal_for_memory(error);
            let wait_s = match error {
                CommitError::NotReady(_)
                | CommitError::BrokerBehind
                | CommitError::Refused(Refusal::MemoryShort) => Some(RETRY_SOON),
                CommitError::Refused(Refusal::StorageFull { .. }) => Some(RETRY_LATER),
                _ => None,
            };
            let rejection = error.rejection();
            let head = x.reply.begin(rejection.status());
            match wait_s {
                Some(wait_s) => head.reject_for(&rejection, wait_s),
                None => head.reject(&rejection),
            }
        }
    }
}

/// Answers with the id of a change and the number of readers it went to. A value has a tag.
fn tell_id(x: &mut Exchange<'_>, status: Status, (id, readers): (Id, u64), is_value: bool) {
    let id = id.text();
    let Scratch { name: etag, body } = &mut x.resources.scratch;
    etag.clear();
    body.clear();
    for part in ["\"", id.as_str(), "\""] {
        etag.extend_from_slice(part.as_bytes());
    }
    for part in ["{\"id\":\"", id.as_str(), "\",\"readers\":"] {
        body.extend_from_slice(part.as_bytes());
    }
    body.extend_from_slice(itoa::Buffer::new().format(readers).as_bytes());
    body.extend_from_slice(b"}\n");
    let tag = is_value.then_some((Field::ETAG, &*etag));
    x.reply.begin(status).fields(tag).content("application/json", body);
    body.clear();
}

/// The content type of a message that is said to be `said`.
fn content_type_of(
    topic: &TopicName<'_>,
    said: Option<ContentType>,
    settings: &Settings,
) -> ContentType {
    let default = match &said {
        Some(said) if !is_unasked(said) => None,
        _ => settings.content_type(topic),
    };
    default.cloned().or(said).unwrap_or(ContentType::OCTETS)
}

/// Whether clients say this of their own accord.
fn is_unasked(said: &ContentType) -> bool {
    UNASKED.iter().any(|unasked| said.essence().eq_ignore_ascii_case(unasked))
}

/// `curl -d` and `urllib` say that any body is a form, `fetch` that any string is plain text.
const UNASKED: [&str; 2] = ["application/x-www-form-urlencoded", "text/plain"];

fn field<T>(
    value: Option<&[u8]>,
    parse: impl Fn(&str) -> Result<T, Rejection>,
) -> Result<Option<T>, Rejection> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| NOT_UTF8);
    value.map(|bytes| parse(text(bytes)?)).transpose()
}

/// `DELETE /topic`
pub(crate) fn delete(x: &mut Exchange<'_>, request: &Request<'_>, path: &[u8]) -> Answer {
    x.reply.answers.asked.kind = RequestKind::Publish;
    match change(x, request, path) {
        Ok((topic, condition)) => commit(x, Op::Delete(topic), condition),
        Err(no) => {
            refuse(x, request, no);
            Answer::Now
        }
    }
}

/// The topic that a request would delete, and on which condition.
fn change(
    x: &Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
) -> Result<(TopicName<'static>, Precondition), No> {
    x.may(Act::Publish(request))?;
    let condition = precondition(request)?;
    if path.starts_with(b"/-/") {
        return Err(No::Method);
    }
    let topic = TopicName::from_path(path)?;
    x.may(Act::PublishTo(&topic))?;
    if matches!(x.shared.committer.order(), OrderKind::Leader { .. }) {
        return Err(No::Elsewhere);
    }
    Ok((topic.into_owned(), condition))
}

/// A broker that is away is back soon, as a rule, and an eviction takes a moment.
pub(super) const RETRY_SOON: &str = "1";

/// Room comes when topics are deleted.
const RETRY_LATER: &str = "10";

rejections! {
    COARSE_CONDITION: ConditionUnsupported =
        "If-Unmodified-Since is too coarse for live values: send If-Match.";
    TWO_CONDITIONS: ConditionUnsupported = "Send If-Match or If-None-Match, not both.";
    PARTIAL: PartialUnsupported =
        "A part cannot be published (Content-Range): send the whole message.";
    NO_LENGTH: LengthRequired =
        "Send Content-Length (0 for an empty message) or Transfer-Encoding: chunked.";
    ENCODED_LINES: EncodingUnsupported = "Lines are taken without Content-Encoding.";
    OTHER_TYPE: MediaTypeUnsupported =
        "Lines of JSON are taken here: send them as application/x-ndjson.";
    OTHER_ENCODING: EncodingUnsupported =
        "Of the content encodings only gzip is taken; others are made here.";
    NOT_UTF8: HeaderInvalid = "A header field is not UTF-8.";
}
