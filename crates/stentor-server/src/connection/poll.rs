//! A long-poll: a request that is answered once there is something new of what it reads.
//!
//! It reads a feed as a stream does, and is told of events in the same way. The difference is what
//! it does then: it answers, and the connection is open for its next request.

use super::Connection;
use super::reader::Reading;
use super::state::State;
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
use crate::large_body::{LargeBody, Mark};
use crate::limits::{MANY_BYTES_MAX, PART_BYTES};
use crate::output::detached_share;
use crate::panics::may_panic;
use crate::phase::ReplyWait;
use crate::response::Persistence;
use crate::stream::format::Ended;
use crate::stream::{ENVELOPED, Gap, HAS_PASS, PARTIAL, Start};
use stentor_hub::{Event, Id, StreamForm};

use stentor_wire::http1::Request;
use stentor_wire::pack::{self, MISFIT, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::status::Status;
use stentor_wire::target;

/// The parts of a long-poll besides what it reads, as they are packed.
pub(super) type PollParts = (HeldPoll, Option<Gap>, Option<String>);

/// A long-poll that waits.
#[derive(Debug)]
pub(super) struct Poll {
    reading: Reading,
    held: HeldPoll,
    /// The gap that the answer reports first.
    gap: Option<Gap>,
    /// The notice of subscriptions that the client may not see: the answer reports them first, too.
    access: Option<String>,
    wait: ReplyWait,
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
    pub(super) fn new(reading: Reading, wait: ReplyWait, parts: PollParts) -> Poll {
        let (held, gap, access) = parts;
        Poll { reading, held, gap, access, wait }
    }

    /// Packs the parts besides what it reads, or none.
    /// The form of [`Poll::pack_parts`].
    pub(super) const FORMAT: u64 =
        pack::format("Poll held gap access", &[HeldPoll::FORMAT, Gap::FORMAT]);

    pub(super) fn pack_parts(poll: Option<&Poll>, out: &mut Packer) {
        poll.is_some().pack(out);
        poll.inspect(|poll| poll.held.pack(out));
        poll.map_or(&None, |poll| &poll.gap).pack(out);
        poll.map_or(&None, |poll| &poll.access).pack(out);
    }

    pub(super) fn unpack_parts(input: &mut Unpacker<'_>) -> Unpacked<Option<PollParts>> {
        let held = Option::unpack(input)?;
        let (gap, access) = (Option::unpack(input)?, Option::unpack(input)?);
        let is_whole = held.is_some() || gap.is_none() && access.is_none();
        if is_whole { Ok(held.map(|held| (held, gap, access))) } else { Err(MISFIT) }
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
        let access = self.access.as_ref().map_or(0, |json| json.len());
        size_of::<Poll>() + self.reading.own_bytes() + self.held.own_bytes() + access
    }

    /// When the deadline is, and what that is for.
    pub(super) fn arm(
        &mut self,
        cx: &Context,
        room_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> u64 {
        // A server that stops answers at once.
        let until_ms = if cx.draining { cx.clock.now_ms } else { self.held.deadline.0 };
        let deadline_ms;
        (self.wait, deadline_ms) = ReplyWait::first(until_ms, room_ms, expires_ms);
        deadline_ms
    }

    pub(super) fn wait(&self) -> ReplyWait {
        self.wait
    }

    /// Begins a replay with the current values, or after the client's cursor. A poll of one topic
    /// compares the value, and reads no history.
    pub(super) fn begin_replay(&mut self, cx: &mut Context, start: Start) {
        if self.is_of_many() {
            let (feeds, upto) = (self.reading.feeds(), cx.shared.hub.seq());
            self.reading.begin_replay(cx, feeds, start, upto, &mut self.gap);
        }
    }

    fn is_of_many(&self) -> bool {
        self.reading.traits().has(ENVELOPED)
    }

    /// Whether something of many topics may be new.
    fn may_have_news(&self, cx: &Context) -> bool {
        self.reading.replays() || self.reading.has_events(cx) || !self.reading.log_is_complete(cx)
    }

    /// Looks for new messages with a replay. The replay may take several iterations, each of which
    /// needs a permit.
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
        let is_over = cx.draining || poll.held.deadline.0 <= cx.clock.now_ms;
        if is_over && poll.access.is_some() && answer.is_none() {
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
        let traits = poll.reading.traits();
        let mut rest = None;
        let upto_seq = match answer {
            Answer::Many(upto_seq) => Some(*upto_seq),
            Answer::Nothing if poll.is_of_many() => {
                // What is there was found for another reader.
                cx.streams.found.clear();
                Some(poll.reading.cursor())
            }
            _ => None,
        };
        if let Some(upto_seq) = upto_seq {
            let first = [poll.access.clone(), poll.gap.as_ref().map(Gap::notice)];
            let (body, found) = (&mut cx.resources.scratch.body, &cx.streams.found);
            let hub = &cx.shared.hub;
            rest = write_array(body, first, found, upto_seq, |seq| hub.id(seq));
            cx.streams.found.clear();
            cx.load.budget.cost += cx.resources.scratch.body.len();
        }
        let State::Poll(poll) = self.take_state() else { return };
        let HeldPoll { exchange, request, expects_value, .. } = poll.leave(cx);
        cx.responses.answers.asked = exchange.asked;
        let keep_alive = exchange.persistence.keep_alive && !cx.draining;
        let persistence = Persistence { keep_alive, ..exchange.persistence };
        let request = request.borrowed();
        let mut x = cx.exchange(self.role, &request, persistence, self.ticket(cx), permit);
        // Whether it may be answered was looked at just now.
        x.requester.bearer = Bearer::Judged;
        x.reply.shape.is_private = traits.has(HAS_PASS | PARTIAL);
        let answer = match answer {
            Answer::Expelled(why) => x.deny(&Connection::denied_as(*why, traits.has(HAS_PASS))),
            Answer::Value => answer_value(&mut x, &request),
            _ if upto_seq.is_some() => answer_array(&mut x, rest),
            Answer::Many(_) => unreachable!("an answer of many has a cursor"),
            Answer::Nothing if expects_value && !has_value(&x, &request) => {
                answer_value(&mut x, &request)
            }
            Answer::Nothing => answer_nothing(&mut x, &request),
        };
        let keep_alive = x.reply.shape.persistence.keep_alive;
        self.answered(cx, answer, (keep_alive, State::Closing), permit);
    }
}

/// Answers as if the request had come just now.
fn answer_value(x: &mut Exchange<'_>, request: &Request<'_>) -> exchange::Answer {
    endpoint::value::get(x, request, target::split(request.target).0, Looks::default())
}

/// Writes the beginning of what a replay has found, as much as one answer may hold: an object with
/// the events and with the cursor behind them, which is `upto_seq` if the client is sent all.
/// Returns what is still to be written.
pub(crate) fn write_array(
    body: &mut Vec<u8>,
    first: [Option<String>; 2],
    found: &[Event],
    upto_seq: u64,
    id_of: impl Fn(u64) -> Id,
) -> Option<ArrayBody> {
    body.extend_from_slice(EVENTS_BEFORE);
    for object in first.iter().flatten() {
        if body.len() > EVENTS_BEFORE.len() {
            body.push(b',');
        }
        body.extend_from_slice(object.as_bytes());
    }
    let mut seq = upto_seq;
    let mut last_seq = None;
    let is_continued = body.len() > EVENTS_BEFORE.len();
    let mut rest = ArrayBody { events: Vec::new(), is_continued, bytes: 0, after: String::new() };
    for event in found {
        may_panic();
        let bytes = body.len() + rest.bytes;
        if let Some(last_seq) = last_seq.filter(|_| bytes > MANY_BYTES_MAX) {
            seq = last_seq;
            break;
        }
        let between = usize::from(bytes > EVENTS_BEFORE.len());
        if rest.events.is_empty() && body.len() + event.message.data().len() <= PART_BYTES {
            body.extend_from_slice(&b","[..between]);
            event.append(StreamForm::Envelope, body);
            rest.is_continued = true;
        } else {
            rest.bytes += between + event.envelope_len();
            rest.events.push(event.clone());
        }
        last_seq = Some(event.seq());
    }
    rest.after = format!("],\"cursor\":\"{}\"}}\n", id_of(seq));
    if rest.events.is_empty() {
        body.extend_from_slice(rest.after.as_bytes());
        return None;
    }
    rest.bytes += rest.after.len();
    Some(rest)
}

/// What stands before the events of an answer.
const EVENTS_BEFORE: &[u8] = b"{\"events\":[";

/// The rest of an array.
#[derive(Debug)]
pub(crate) struct ArrayBody {
    events: Vec<Event>,
    /// Whether other messages come before these.
    is_continued: bool,
    /// The number of bytes that it makes.
    bytes: usize,
    /// What stands behind the events.
    after: String,
}

impl LargeBody for ArrayBody {
    fn append(&self, mut mark: Mark, out: &mut Vec<u8>) -> Option<Mark> {
        let end = out.len() + PART_BYTES;
        while out.len() < end {
            may_panic();
            let Some(event) = self.events.get(mark.item) else {
                out.extend_from_slice(self.after.as_bytes());
                return None;
            };
            if mark.offset == 0 && (mark.item > 0 || self.is_continued) {
                out.push(b',');
            }
            mark = match event.append_envelope_part(mark.offset, PART_BYTES, out) {
                Some(offset) => Mark { offset, ..mark },
                None => Mark { item: mark.item + 1, offset: 0 },
            };
        }
        Some(mark)
    }

    fn own_bytes(&self) -> usize {
        self.events.capacity() * size_of::<Event>() + self.after.capacity()
    }

    fn detached_share(&self) -> usize {
        self.events.iter().map(|event| detached_share(&event.message)).sum()
    }
}

/// Answers with what is in the scratch body, and the rest behind it.
pub(crate) fn answer_array(x: &mut Exchange<'_>, rest: Option<ArrayBody>) -> exchange::Answer {
    let rest_bytes = rest.as_ref().map_or(0, |rest| rest.bytes);
    *x.reply.cost += x.resources.scratch.body.len();
    let head = x.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-store");
    let head = head.field(Field::NO_SNIFFING, NO_SNIFFING);
    let body = &mut x.resources.scratch.body;
    head.field(Field::CONTENT_TYPE, "application/json")
        .end_with_length((body.len() + rest_bytes) as u64)
        .body(body);
    body.clear();
    match rest {
        Some(rest) => x.answer_in_steps(rest, rest_bytes),
        None => exchange::Answer::Now,
    }
}

/// The time of a poll of one topic is up. A client that asked by tag gets the answer of a plain
/// GET, 304; a client that asked by cursor gets 204.
fn answer_nothing(x: &mut Exchange<'_>, request: &Request<'_>) -> exchange::Answer {
    if request.prefer.is_some() && request.if_none_match.is_some() {
        return answer_value(x, request);
    }
    x.reply.begin(Status::NO_CONTENT).field(Field::CACHE_CONTROL, "no-store").end();
    exchange::Answer::Now
}

/// Whether the topic that a request names has a value.
fn has_value(x: &Exchange<'_>, request: &Request<'_>) -> bool {
    let topic = target::decode(target::split(request.target).0);
    topic.is_ok_and(|topic| x.shared.hub.with_value(&topic, |value| value.is_some()))
}
