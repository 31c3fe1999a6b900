//! A long-poll: a request that is answered once there is something new of what it reads.
//!
//! It reads a feed as a stream does, and is told of events in the same way. The difference is what
//! it does then: it answers, and the connection is open for its next request.

use super::Connection;
use super::reader::Reading;
use super::state::{Ending, State};
use super::work::Unfinished;
use crate::access::Bearer;
use crate::answers::Asked;
use crate::budget::{Permit, WorkClass, admitted};
use crate::context::Context;
use crate::endpoint;
use crate::endpoint::file::Looks;
use crate::endpoint::values::NO_SNIFFING;
use crate::exchange::{self, Exchange, HeldPoll};
use crate::head::Field;
use crate::limits::MANY_BYTES_MAX;
use crate::panics::may_panic;
use crate::phase::AnswerWait;
use crate::response::Persistence;
use crate::stream::format::Ended;
use crate::stream::{ENVELOPED, Gap, HAS_PASS, PARTIAL, Start};
use stentor_hub::{Event, Id, StreamForm};

use stentor_wire::http1::Request;
use stentor_wire::pack::{Packed, Packer};
use stentor_wire::packed;
use stentor_wire::status::Status;
use stentor_wire::target;

/// A long-poll that waits.
#[derive(Debug)]
pub(super) struct Poll {
    reading: Reading,
    held: HeldPoll,
    /// What the answer says first.
    gap: Option<Gap>,
    /// The same, of what may not be seen: a JSON object.
    uncovered: Option<String>,
    wait: AnswerWait,
}

/// What is packed of it besides what it reads. A stream has none of these.
#[derive(Default)]
pub(super) struct PollParts {
    held: Option<HeldPoll>,
    gap: Option<Gap>,
    uncovered: Option<String>,
}

packed!(struct PollParts { held, gap, uncovered });

impl PollParts {
    pub(super) fn is_none(&self) -> bool {
        self.held.is_none() && self.gap.is_none() && self.uncovered.is_none()
    }
}

/// What there is to answer with.
pub(super) enum Answer {
    /// The value of the one topic, as it is now.
    Value,
    /// What a replay has found, after which everything up to this number has been seen.
    Many(u64),
    /// Nothing: the time is up.
    Nothing,
    /// The client may not read this any more.
    Expelled(Ended),
}

impl Poll {
    pub(super) fn new(reading: Reading, held: HeldPoll, uncovered: Option<&str>) -> Poll {
        let uncovered = uncovered.map(str::to_owned);
        Poll { reading, held, gap: None, uncovered, wait: AnswerWait::Event }
    }

    /// That of another process. `None` if it has no request.
    pub(super) fn resumed(reading: Reading, wait: AnswerWait, parts: PollParts) -> Option<Poll> {
        let PollParts { held, gap, uncovered } = parts;
        Some(Poll { reading, held: held?, gap, uncovered, wait })
    }

    /// The same bytes as those of [`PollParts`].
    pub(super) fn pack_parts(poll: Option<&Poll>, out: &mut Packer) {
        poll.is_some().pack(out);
        let (mut gap, mut uncovered) = (&None, &None);
        if let Some(poll) = poll {
            poll.held.pack(out);
            (gap, uncovered) = (&poll.gap, &poll.uncovered);
        }
        gap.pack(out);
        uncovered.pack(out);
    }

    pub(super) fn reading(&self) -> &Reading {
        &self.reading
    }

    pub(super) fn reading_mut(&mut self) -> &mut Reading {
        &mut self.reading
    }

    /// It is over for whatever reason. Returns its request.
    pub(super) fn leave(self, cx: &mut Context) -> HeldPoll {
        self.reading.leave(cx);
        self.held
    }

    pub(super) fn take_asked(&mut self) -> Asked {
        std::mem::take(&mut self.held.exchange.asked)
    }

    pub(super) fn own_bytes(&self) -> usize {
        let uncovered = self.uncovered.as_ref().map_or(0, |json| json.len());
        size_of::<Poll>() + self.reading.own_bytes() + self.held.own_bytes() + uncovered
    }

    /// When the deadline is, and what that is for.
    pub(super) fn arm(
        &mut self,
        cx: &Context,
        room_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> u64 {
        // It is told at once that the server stops.
        let until_ms = if cx.draining { cx.clock.now_ms } else { self.held.deadline_ms };
        let (wait, deadline_ms) = match (room_ms, expires_ms) {
            (Some(room_ms), _) => (AnswerWait::Room, room_ms),
            (None, Some(expires_ms)) if expires_ms < until_ms => (AnswerWait::Expiry, expires_ms),
            (None, _) => (AnswerWait::Event, until_ms),
        };
        self.wait = wait;
        deadline_ms
    }

    pub(super) fn wait(&self) -> AnswerWait {
        self.wait
    }

    /// Looks for what there is between the cursor and now.
    fn begin_replay(&mut self, cx: &mut Context, start: Start) {
        let (feeds, upto) = (self.reading.feeds(), cx.shared.hub.seq());
        self.reading.begin_replay(cx, feeds, start, upto, &mut self.gap);
    }

    /// What is said at the start: with the current values, or after what was seen.
    pub(super) fn begin(&mut self, cx: &mut Context, start: Start) {
        // Of one topic the value is looked at, not its history.
        if self.is_of_many() {
            self.begin_replay(cx, start);
        }
    }

    fn is_of_many(&self) -> bool {
        self.reading.traits().has(ENVELOPED)
    }

    /// Whether something of many topics may be new.
    fn may_have_news(&self, cx: &Context) -> bool {
        self.reading.replays() || self.reading.has_events(cx) || !self.reading.log_is_complete(cx)
    }

    /// What a replay finds that is new. It may take several iterations, each of which needs a
    /// permit.
    fn news(&mut self, cx: &mut Context, work: &mut Unfinished, permit: &Permit) -> Option<Answer> {
        while self.may_have_news(cx) {
            if !self.reading.replays() {
                self.begin_replay(cx, Start::After(self.reading.cursor()));
            }
            let found = match cx.load.budget.is_over_share() {
                true => None,
                false => self.reading.find_missed(cx, MANY_BYTES_MAX, permit, &mut self.gap),
            };
            let Some(upto_seq) = found else {
                work.wait_in(WorkClass::CatchUp);
                return None;
            };
            if self.gap.is_some() || !cx.streams.found.is_empty() {
                return Some(Answer::Many(upto_seq));
            }
            self.reading.advance_replay(cx, upto_seq, 0);
        }
        None
    }
}

impl Connection {
    /// Answers, if there is something to answer with or the time is up.
    pub(super) fn pump_poll(&mut self, cx: &mut Context) {
        let State::Poll(poll) = &mut self.state else { return };
        let mut answer = None;
        if !poll.is_of_many() {
            let has_value = poll.reading.has_new_value(cx, poll.held.expects_value);
            answer = has_value.then_some(Answer::Value);
        } else if poll.may_have_news(cx) {
            let looked = admitted(cx, WorkClass::CatchUp, |cx, permit| {
                let State::Poll(poll) = &mut self.state else { return };
                if let Some(answer) = poll.news(cx, &mut self.work, permit) {
                    self.answer_poll(cx, &answer, permit);
                }
            });
            if looked.is_none() {
                self.work.wait_in(WorkClass::CatchUp);
            }
        }
        let State::Poll(poll) = &self.state else { return };
        if self.work.waits() {
            return;
        }
        let is_over = cx.draining || poll.held.deadline_ms <= cx.clock.now_ms;
        if is_over && poll.uncovered.is_some() && answer.is_none() {
            // Nothing but that not all of it may be read.
            cx.streams.found.clear();
            answer = Some(Answer::Many(poll.reading.cursor()));
        }
        if let Some(answer) = answer.or(is_over.then_some(Answer::Nothing)) {
            self.answer_poll(cx, &answer, &Permit::SMALL);
        }
    }

    /// Answers a long-poll; the connection is open again.
    pub(super) fn answer_poll(&mut self, cx: &mut Context, answer: &Answer, permit: &Permit) {
        // mutation: poll-panic
        let State::Poll(poll) = &mut self.state else { return };
        let (mut seq, traits) = (poll.reading.cursor(), poll.reading.traits());
        if let Answer::Many(upto_seq) = answer {
            let first = [
                poll.uncovered.as_ref().map(|json| format!("{{\"uncovered\":{json}}}")),
                poll.gap.as_ref().map(Gap::object),
            ];
            seq = write_array(&mut cx.resources.scratch.body, first, &cx.streams.found, *upto_seq);
            cx.streams.found.clear();
            cx.load.budget.cost += cx.resources.scratch.body.len();
        }
        let Some(HeldPoll { exchange, request, expects_value, .. }) = self.take_poll(cx) else {
            return;
        };
        cx.responses.answers.asked = exchange.asked;
        let keep_alive = exchange.persistence.keep_alive && !cx.draining;
        let persistence = Persistence { keep_alive, ..exchange.persistence };
        let cursor = traits.has(ENVELOPED).then_some(cx.shared.hub.id(seq));
        let request = request.borrowed();
        let mut x = cx.exchange(self.role, &request, persistence, self.ticket(cx), permit);
        // Whether it may be answered was looked at just now.
        x.requester.bearer = Bearer::Judged;
        x.reply.shape.is_private = traits.has(HAS_PASS | PARTIAL);
        let answer = match answer {
            Answer::Expelled(why) => x.deny(&Connection::denied_as(*why, traits.has(HAS_PASS))),
            Answer::Value => answer_value(&mut x, &request),
            Answer::Many(_) => answer_array(&mut x, cursor),
            Answer::Nothing if expects_value && !has_value(&x, &request) => {
                answer_value(&mut x, &request)
            }
            Answer::Nothing => answer_nothing(&mut x, &request, cursor),
        };
        let keep_alive = x.reply.shape.persistence.keep_alive;
        self.answered(cx, answer, (keep_alive, Ending::Closing), permit);
    }
}

/// Answers as if the request had come just now.
fn answer_value(x: &mut Exchange<'_>, request: &Request<'_>) -> exchange::Answer {
    endpoint::value::get(x, request, target::split(request.target).0, Looks::default())
}

/// Writes what a replay has found as an array, as much as one answer may hold. Returns the number
/// up to which the client has then seen everything: `upto_seq`, if it is sent all.
pub(crate) fn write_array(
    body: &mut Vec<u8>,
    first: [Option<String>; 2],
    found: &[Event],
    upto_seq: u64,
) -> u64 {
    body.push(b'[');
    for object in first.iter().flatten() {
        if body.len() > 1 {
            body.push(b',');
        }
        body.extend_from_slice(object.as_bytes());
    }
    let mut seq = upto_seq;
    let mut last_seq = None;
    for event in found {
        may_panic();
        if let Some(last_seq) = last_seq.filter(|_| body.len() > MANY_BYTES_MAX) {
            seq = last_seq;
            break;
        }
        if body.len() > 1 {
            body.push(b',');
        }
        event.append(StreamForm::Envelope, body);
        last_seq = Some(event.seq());
    }
    body.push(b']');
    seq
}

/// Answers with what is in the scratch body. The cursor goes with it: it may be beyond the last
/// message, and after a gap there need be none.
pub(crate) fn answer_array(x: &mut Exchange<'_>, cursor: Option<Id>) -> exchange::Answer {
    let head = x.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-store");
    let head = head.fields(tag(cursor)).field(Field::NO_SNIFFING, NO_SNIFFING);
    head.content("application/json", &x.resources.scratch.body);
    x.resources.scratch.body.clear();
    exchange::Answer::Now
}

/// Where the client is now.
fn tag(cursor: Option<Id>) -> Option<(Field, String)> {
    cursor.map(|cursor| (Field::ETAG, format!("\"{cursor}\"")))
}

/// Those who asked by tag get what the GET itself says, 304; those who asked by cursor get 204.
/// Whoever asked for many is told where it is, since it may have had no cursor yet.
fn answer_nothing(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    cursor: Option<Id>,
) -> exchange::Answer {
    if cursor.is_none() && request.prefer.is_some() && request.if_none_match.is_some() {
        return answer_value(x, request);
    }
    let head = x.reply.begin(Status::NO_CONTENT).field(Field::CACHE_CONTROL, "no-store");
    head.fields(tag(cursor)).end();
    exchange::Answer::Now
}

/// Whether the topic that a request names has a value.
fn has_value(x: &Exchange<'_>, request: &Request<'_>) -> bool {
    let topic = target::decode(target::split(request.target).0);
    topic.is_ok_and(|topic| x.shared.hub.with_value(&topic, |value| value.is_some()))
}
