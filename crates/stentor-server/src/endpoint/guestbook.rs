//! `POST` to the guestbook: the one topic that a page of the public listener writes to, if a
//! program such as the demo has named one.
//!
//! What is written is text, short, and one message a second whoever writes it. That needs no count
//! of its own: the value says when it was published, and a message is admitted only in place of
//! the value that was there when its head came, so that of many at once one is taken.

use crate::access::Act;
use crate::endpoint::Sink;
use crate::endpoint::publish::Upload;
use crate::exchange::{Answer, Exchange};
use crate::labels::RequestKind;
use crate::limits::GUESTBOOK_BYTES_MAX;
use stentor_hub::Precondition;
use stentor_wire::error::Rejection;
use stentor_wire::http1::{BodyLength, Method, Request};
use stentor_wire::rejections;
use stentor_wire::target::{self, TopicName};

/// Its topic, if a request would write to it. Who comes in where it can publish needs none.
pub(crate) fn meant<'a>(x: &Exchange<'a>, request: &Request<'_>) -> Option<&'a TopicName<'static>> {
    let (path, _) = target::split(request.target);
    let is_meant = request.method == Method::Post && !x.publishes();
    x.settings.guestbook.as_ref().filter(|topic| is_meant && topic.as_bytes() == path)
}

/// Checks the head, before a byte of the body is read.
pub(crate) fn begin(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    body: BodyLength,
    topic: &TopicName<'static>,
) -> Answer {
    x.reply.answers.asked.kind = RequestKind::Publish;
    match check(x, request, body, topic) {
        Ok(sink) => Answer::AfterBody(sink),
        Err(refusal) => {
            x.reply.stats.publishes_refused.add(1);
            x.reject(&refusal)
        }
    }
}

fn check(
    x: &Exchange<'_>,
    request: &Request<'_>,
    body: BodyLength,
    topic: &TopicName<'static>,
) -> Result<Sink, Rejection> {
    x.may(Act::Sign(request)).map_err(|denied| denied.rejection)?;
    let BodyLength::Length(bytes @ 1..=GUESTBOOK_BYTES_MAX) = body else { return Err(BAD_LENGTH) };
    let before = x
        .shared
        .hub
        .with_value(topic, |message| message.map(|message| (message.id(), message.published_at())));
    let condition = match before {
        Some((_, published_at)) if published_at >= x.clock.unix_s => return Err(BUSY),
        Some((id, _)) => Precondition::IfMatch(id.text().as_bytes().into()),
        None => Precondition::IfNoneMatch(b"*".as_slice().into()),
    };
    Ok(Sink::Publish(Box::new(Upload::text(topic.clone(), condition, bytes))))
}

rejections! {
    BAD_LENGTH: BodyInvalid =
        "What a page writes has 1 to 300 bytes, and says how many in Content-Length.";
    BUSY: RateLimited = "One message a second is taken here, whoever writes it: try again.";
}
