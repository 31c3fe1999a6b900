//! Answers that come later: what a connection waits for, and what it does then.
//!
//! Nothing behind the request is looked at before it is answered, so answers keep their order. To
//! add a kind of waiting, give [`Awaits`] a case, say in [`Connection::pending_deadline`] how long
//! it may take and in [`Connection::answer_pending`] what the answer is; whoever knows that it is
//! there calls [`Connection::deliver`].
//!
//! A long-poll reads a feed as a stream does, and is told of events in the same way. The difference
//! is what it does then: it answers, and the connection is open for its next request.

use super::reader::NEVER_MS;
use super::work::Incoming;
use super::{AnswerWait, Connection, Phase, RequestWait};
use crate::access::Bearer;
use crate::budget::{Permit, WorkClass, admitted};
use crate::context::Context;
use crate::endpoint::file::Looks;
use crate::endpoint::values::NO_SNIFFING;
use crate::endpoint::{self, Sink};
use crate::exchange::{self, Awaits, Exchange, FileWait, Pending};
use crate::head::Field;
use crate::limits::MANY_BYTES_MAX;
use crate::panics::may_panic;
use crate::response::Persistence;
use crate::stream::format::Ended;
use crate::stream::{Gap, MANY, Reader, Start};
use std::io;
use stentor_files::FileLook;
use stentor_hub::{Event, Filter, Id, StreamForm};
use stentor_io::{Backend, Peer};
use stentor_order::{Outcome, Ticket};
use stentor_wire::http1::Request;
use stentor_wire::status::Status;
use stentor_wire::target;

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

impl Connection {
    /// Answers, if there is something to answer with or the time is up.
    pub(super) fn answer_pending(&mut self, cx: &mut Context, peer: Peer) {
        if !self.is_polling() {
            self.answer_file(cx, peer);
            return self.answer_committed(cx, peer);
        }
        let mut answer = match self.reader.is_enveloped {
            true => self.answer_with_changes(cx, peer),
            false => self.has_new_value(cx).then_some(Answer::Value),
        };
        if self.waits() || !self.is_polling() {
            return;
        }
        let now_ms = cx.clock.now_ms;
        let is_over = cx.draining || self.pending_until_ms().is_some_and(|ms| ms <= now_ms);
        let is_told = self.extra.as_deref().is_some_and(|extra| extra.uncovered.is_some());
        if is_over && is_told && answer.is_none() {
            // Nothing but that not all of it may be read.
            cx.streams.found.clear();
            answer = Some(Answer::Many(self.reader.cursor));
        }
        if let Some(answer) = answer.or(is_over.then_some(Answer::Nothing)) {
            self.answer_poll(cx, peer, &answer, &Permit::SMALL);
        }
    }

    /// Answers a publisher, if it is known by now what came of what it asked for.
    fn answer_committed(&mut self, cx: &mut Context, peer: Peer) {
        let is_known = |pending: &mut Box<Pending>| match &pending.awaits {
            Awaits::Change { .. } | Awaits::File(_) => false,
            Awaits::Commit { outcome, .. } => outcome.is_some(),
            Awaits::Commits(bulk) => bulk.is_committed(),
        };
        let extra = self.extra.as_deref_mut();
        let Some(pending) = extra.and_then(|extra| extra.pending.take_if(is_known)) else { return };
        let Pending { asked, mut persistence, awaits } = *pending;
        cx.responses.answers.asked = asked;
        persistence.keep_alive &= !cx.draining;
        let mut x = self.exchange(cx, peer, persistence);
        match awaits {
            Awaits::Commit { is_deletion, outcome: Some(outcome), origin } => {
                x.answer_to(origin.as_deref());
                endpoint::publish::answer(&mut x, is_deletion, outcome);
            }
            Awaits::Commits(bulk) => bulk.report(&mut x),
            Awaits::Change { .. } | Awaits::File(_) | Awaits::Commit { outcome: None, .. } => {}
        }
        let persistence = x.reply.shape.persistence;
        // The socket may hold unread bytes. To close it now would be a reset, which overtakes the
        // response.
        let closing = if self.is_reset_at_end(cx) { Phase::Closing } else { Phase::Refusing };
        self.end_pending(persistence, closing);
    }

    /// Answers a request for a file, if the loader has looked at it or has had its time.
    fn answer_file(&mut self, cx: &mut Context, peer: Peer) {
        let now_ms = cx.clock.now_ms;
        let is_due = |pending: &mut Box<Pending>| match &pending.awaits {
            Awaits::File(wait) => wait.looks.are_known() || wait.deadline_ms <= now_ms,
            _ => false,
        };
        let extra = self.extra.as_deref_mut();
        let Some(pending) = extra.and_then(|extra| extra.pending.take_if(is_due)) else { return };
        let Pending { asked, mut persistence, awaits } = *pending;
        let Awaits::File(wait) = awaits else { return };
        let FileWait { request, mut looks, is_judged, .. } = *wait;
        if !looks.are_known() {
            let reason = "the file system does not answer";
            looks.note(FileLook::Failed(io::Error::new(io::ErrorKind::TimedOut, reason)));
        }
        cx.responses.answers.asked = asked;
        persistence.keep_alive &= !cx.draining;
        let request = request.borrowed();
        let ticket = self.ticket(peer);
        // The token was verified when the request came, so its outcome is remembered.
        let permit = &Permit::SMALL;
        let (bearer, token) = cx.presented(self.role(), &request).bearer(cx, permit);
        let mut x = cx.exchange(self.role, &request, persistence, ticket, permit);
        (x.requester.bearer, x.requester.token) = (bearer, token);
        let path = target::split(request.target).0;
        let answer = match target::decode(path) {
            // No value is sent: the token may not count any more.
            Ok(path) if is_judged => {
                x.requester.bearer = Bearer::Judged;
                endpoint::file::get(&mut x, &request, &path, looks)
            }
            _ => endpoint::value::get(&mut x, &request, path, looks),
        };
        let persistence = x.reply.shape.persistence;
        let closing = if self.is_reset_at_end(cx) { Phase::Closing } else { Phase::Refusing };
        self.end_or_hold(answer, persistence, closing);
    }

    /// The loader has looked at the file of a request. Another request may have the record by now.
    pub(crate) fn looked<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        ticket: Ticket,
        looked: FileLook,
    ) {
        let is_current = self.reader.stamp == ticket.stamp;
        if let Some(Awaits::File(wait)) = self.pending().map(|pending| &mut pending.awaits)
            && is_current
        {
            wait.looks.note(looked);
            if !self.waits() {
                let was_read = self.reads();
                self.deliver_and_read(cx, io, peer, was_read);
            }
        }
    }

    /// Ends the wait, unless the answer comes later after all.
    fn end_or_hold(&mut self, answer: exchange::Answer, persistence: Persistence, closing: Phase) {
        if let exchange::Answer::Later(pending, _) = answer {
            self.phase = Phase::Pending(AnswerWait::Event);
            self.extra().pending = Some(pending);
        } else {
            self.end_pending(persistence, closing);
        }
    }

    /// The response is written: keeps or closes the connection, as the response says.
    fn end_pending(&mut self, persistence: Persistence, closing: Phase) {
        self.phase = match persistence.keep_alive {
            true => Phase::Open(RequestWait::Idle),
            false => closing,
        };
    }

    /// It is known what came of a change that a request of this connection asked for. Another one
    /// may have the record by now.
    pub(crate) fn committed<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        peer: Peer,
        ticket: Ticket,
        outcome: Outcome,
    ) {
        if self.reader.stamp != ticket.stamp {
            return;
        }
        let was_read = self.reads();
        let incoming = self.work.as_deref_mut().and_then(|work| work.incoming.as_deref_mut());
        if let Some(Incoming { sink: Sink::Bulk(bulk), .. }) = incoming {
            bulk.committed(&cx.stats, ticket.line, outcome);
        } else if let Some(pending) = self.pending() {
            match &mut pending.awaits {
                Awaits::Commit { outcome: due, .. } => *due = Some(outcome),
                Awaits::Commits(bulk) => bulk.committed(&cx.stats, ticket.line, outcome),
                Awaits::Change { .. } | Awaits::File(_) => {}
            }
        }
        if !self.waits() {
            self.deliver_and_read(cx, io, peer, was_read);
        }
    }

    /// What the deadline of a pending answer is for, and when it is.
    pub(super) fn pending_deadline(&self, cx: &Context, peer: Peer) -> (Phase, u64) {
        let expires_ms = if self.is_polling() { self.expires_ms(cx, peer) } else { None };
        let (wait, deadline_ms) = match self.pending_until_ms() {
            // A connection that has a place in a work queue is served there.
            _ if self.waits() && (!cx.draining || self.place().is_some()) => {
                (AnswerWait::Room, self.room_deadline_ms(cx))
            }
            // The loader is given its time, whatever ends meanwhile.
            Some(until_ms) if !self.is_polling() => (AnswerWait::Event, until_ms),
            // Whoever commits says so, sooner or later.
            None => (AnswerWait::Event, cx.clock.now_ms + NEVER_MS),
            // It is told so at once.
            Some(_) if cx.draining => (AnswerWait::Farewell, cx.clock.now_ms),
            Some(until_ms) => match expires_ms.filter(|&expires_ms| expires_ms < until_ms) {
                Some(expires_ms) => (AnswerWait::Expiry, expires_ms),
                None => (AnswerWait::Event, until_ms),
            },
        };
        (Phase::Pending(wait), deadline_ms)
    }

    /// Whether the answer to its last request comes later.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Pending(_))
    }

    pub(super) fn pending(&mut self) -> Option<&mut Pending> {
        self.extra.as_deref_mut()?.pending.as_deref_mut()
    }

    /// How long a long-poll waits.
    fn pending_until_ms(&self) -> Option<u64> {
        match &self.extra.as_deref()?.pending.as_deref()?.awaits {
            Awaits::Change { deadline_ms, .. } => Some(*deadline_ms),
            Awaits::File(wait) => Some(wait.deadline_ms),
            Awaits::Commit { .. } | Awaits::Commits(_) => None,
        }
    }

    /// Whether its client knows a value of the topic.
    fn expects_value(&self) -> bool {
        let pending = self.extra.as_deref().and_then(|extra| extra.pending.as_deref());
        pending.is_some_and(|pending| {
            matches!(pending.awaits, Awaits::Change { expects_value: true, .. })
        })
    }

    /// Whether one of several feeds has something behind the cursor.
    pub(super) fn has_events(&self, cx: &Context) -> bool {
        match self.reader.feed {
            MANY => self.due_to_many(&cx.streams.feeds).next().is_some(),
            feed => cx.streams.feeds.latest_seq(feed) > self.reader.cursor,
        }
    }

    /// Whether the one topic has another value than the one that was looked at.
    fn has_new_value(&mut self, cx: &Context) -> bool {
        let Reader { feed, cursor, .. } = self.reader;
        if cx.streams.feeds.is_complete(feed, cursor) {
            return cx.streams.feeds.latest_seq(feed) > cursor;
        }
        // The feed began after the value was looked at, and something may have come in between; or
        // what came is not in the log.
        self.reader.cursor = cursor.max(cx.shared.hub.seq());
        let Filter::Topic(topic) = cx.streams.feeds.filter(feed) else { return false };
        let expects_value = self.expects_value() && cursor <= cx.shared.hub.seq();
        cx.shared
            .hub
            .with_value(topic, |value| value.map_or(expects_value, |value| value.seq() > cursor))
    }

    /// Answers with what is new, if a replay finds something. It may take several iterations, each
    /// of which needs a permit.
    fn answer_with_changes(&mut self, cx: &mut Context, peer: Peer) -> Option<Answer> {
        if !self.replays() && !self.has_events(cx) && self.log_is_complete(cx) {
            return None;
        }
        let looked = admitted(cx, WorkClass::CatchUp, |cx, permit| {
            if let Some(answer) = self.changes_of_many(cx, peer, permit) {
                self.answer_poll(cx, peer, &answer, permit);
            }
        });
        if looked.is_none() {
            self.wait_in(WorkClass::CatchUp);
        }
        None
    }

    fn replays(&self) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.replay.is_some())
    }

    fn changes_of_many(&mut self, cx: &mut Context, peer: Peer, permit: &Permit) -> Option<Answer> {
        loop {
            if !self.replays() {
                if !self.has_events(cx) && self.log_is_complete(cx) {
                    return None;
                }
                let upto = cx.shared.hub.seq();
                self.begin_replay(cx, self.feeds(), Start::After(self.reader.cursor), upto);
            }
            let found = match cx.load.budget.is_over_share() {
                true => None,
                false => self.find_missed(cx, peer, MANY_BYTES_MAX, permit),
            };
            let Some(upto_seq) = found else {
                self.wait_in(WorkClass::CatchUp);
                return None;
            };
            if self.extra().gap.is_some() || !cx.streams.found.is_empty() {
                return Some(Answer::Many(upto_seq));
            }
            self.advance_replay(cx, upto_seq, 0);
        }
    }

    /// Answers a long-poll; the connection is open again.
    pub(super) fn answer_poll(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        answer: &Answer,
        permit: &Permit,
    ) {
        // mutation: poll-panic
        let Some(extra) = &mut self.extra else { return };
        let Some(pending) = extra.pending.take() else { return };
        let Pending { asked, persistence, awaits } = *pending;
        let Awaits::Change { request, expects_value, .. } = awaits else { return };
        cx.responses.answers.asked = asked;
        let keep_alive = persistence.keep_alive && !cx.draining;
        let persistence = Persistence { keep_alive, ..persistence };
        let mut seq = self.reader.cursor;
        if let Answer::Many(upto_seq) = answer {
            let first = [
                extra.uncovered.as_ref().map(|json| format!("{{\"uncovered\":{json}}}")),
                extra.gap.as_ref().map(Gap::object),
            ];
            seq = write_array(&mut cx.resources.scratch.body, first, &cx.streams.found, *upto_seq);
            cx.streams.found.clear();
            cx.load.budget.cost += cx.resources.scratch.body.len();
        }
        let many = self.reader.is_enveloped;
        let cursor = many.then_some(cx.shared.hub.id(seq));
        let had_pass = self.reader.has_pass;
        let is_private = had_pass || self.reader.is_partial;
        self.leave_stream(cx, peer);
        let request = request.borrowed();
        let mut x = cx.exchange(self.role, &request, persistence, self.ticket(peer), permit);
        // Whether it may be answered was looked at just now.
        x.requester.bearer = Bearer::Judged;
        x.reply.shape.is_private = is_private;
        let answer = match answer {
            Answer::Expelled(why) => x.deny(&Connection::denied_as(*why, had_pass)),
            Answer::Value => answer_value(&mut x, &request),
            Answer::Many(_) => answer_array(&mut x, cursor),
            Answer::Nothing if expects_value && !has_value(&x, &request) => {
                answer_value(&mut x, &request)
            }
            Answer::Nothing => answer_nothing(&mut x, &request, cursor),
        };
        let persistence = x.reply.shape.persistence;
        self.end_or_hold(answer, persistence, Phase::Closing);
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
