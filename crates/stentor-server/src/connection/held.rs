//! A request that is held: a long-poll on its way to its answer.
//!
//! It reads a feed as a stream does, and is told of news in the same way. The difference is what it
//! does then: it answers, and the connection is open for its next request.

use super::{Connection, Phase};
use crate::context::Context;
use crate::limits::MANY_BYTES_MAX;
use crate::route;
use crate::stream::{Held, MANY, Start};
use crate::transport::long_poll;
use stentor_hub::StreamForm;
use stentor_io::{Backend, Flow, Gone, Socket};
use stentor_wire::http1::{self, FieldSlots, Head};

/// What there is to answer with.
enum Answer {
    /// The value of the one topic, as it is now.
    Value,
    /// What a replay has found.
    Many,
    /// Nothing: the time is up.
    Nothing,
}

impl Connection {
    /// There may be something to answer, or the time may be up: answers, and goes on with what came
    /// in behind the request.
    pub(super) fn go_on_held<B: Backend>(&mut self, cx: &mut Context, io: &mut B, socket: Socket) {
        let input = self.take_input();
        let result = self.proceed_owned(cx, io, socket, input);
        let flow = self.settle(cx, io, socket, result);
        if flow == Flow::More && !self.is_held() {
            // Behind too much input nothing more was read.
            io.resume(socket);
        }
    }

    /// Answers, if there is news or the time is up.
    pub(super) fn pump_held<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        socket: Socket,
    ) -> Result<(), Gone> {
        let answer = match self.reader.is_enveloped {
            true => self.news_of_many(cx),
            false => self.has_news(cx).then_some(Answer::Value),
        };
        if self.waits() {
            return Ok(());
        }
        let held = self.extra.as_deref().and_then(|extra| extra.held.as_ref());
        let is_over = held.is_some_and(|held| held.deadline_ms <= cx.now_ms) || cx.draining;
        if let Some(answer) = answer.or(is_over.then_some(Answer::Nothing)) {
            self.answer_held(cx, &answer);
        }
        self.flush(cx, io, socket).map(drop)
    }

    /// Whether something was published behind the cursor.
    fn has_news(&self, cx: &Context) -> bool {
        if self.reader.feed == MANY {
            return self.due_to_many(&cx.feeds).next().is_some();
        }
        // What was published between the look at the value and the entry into the feed is in the
        // feed, too.
        cx.feeds.latest_seq(self.reader.feed) > self.reader.cursor
    }

    /// Looks for news by a replay; takes as many turns as it needs.
    fn news_of_many(&mut self, cx: &mut Context) -> Option<Answer> {
        loop {
            let replays = self.extra.as_deref().is_some_and(|extra| extra.replay.is_some());
            if !replays {
                if !self.has_news(cx) && self.log_is_complete(cx) {
                    return None;
                }
                let (filters, upto) = (self.filters(cx), cx.shared.hub.seq());
                self.begin_replay(cx, filters, Start::After(self.reader.cursor), upto);
            }
            if !self.collect(cx) {
                self.yield_turn();
                return None;
            }
            let extra = self.extra();
            let Some(replay) = &mut extra.replay else { return None };
            if extra.gap.is_some() || !replay.rest().is_empty() {
                return Some(Answer::Many);
            }
            if replay.is_over() {
                let upto_seq = replay.upto_seq();
                extra.replay = None;
                self.reader.cursor = self.reader.cursor.max(upto_seq);
            }
        }
    }

    /// Answers the request that was held; the connection is open again.
    fn answer_held(&mut self, cx: &mut Context, answer: &Answer) {
        let extra = self.extra.take();
        let Some(mut extra) = extra else { return };
        let Some(Held { head: bytes, keep_alive, .. }) = extra.held.take() else { return };
        let keep_alive = keep_alive && !cx.draining;
        if let Answer::Many = answer {
            let body = &mut cx.scratch.body;
            body.push(b'[');
            if let Some(gap) = &extra.gap {
                long_poll::gap(body, gap);
            }
            let news = extra.replay.as_deref().map_or(&[][..], |replay| replay.rest());
            for news in news {
                if body.len() > MANY_BYTES_MAX {
                    break;
                }
                if body.len() > 1 {
                    body.push(b',');
                }
                body.extend_from_slice(news.streamed(StreamForm::Envelope).unwrap_or_default());
            }
            body.extend_from_slice(b"]");
        }
        self.extra = Some(extra);
        let role = self.role;
        self.leave_stream(cx);
        self.phase = if keep_alive { Phase::Open } else { Phase::Closing };
        let mut slots = FieldSlots::new();
        // It was parsed before: it parses again.
        let Ok(head) = http1::parse(&bytes, &mut slots) else { return };
        match answer {
            Answer::Value => route::answer_held(cx, role, &head, keep_alive),
            Answer::Many => answer_array(cx, role, &head, keep_alive),
            Answer::Nothing => answer_nothing(cx, role, &head, keep_alive),
        }
    }
}

fn answer_array(cx: &mut Context, role: stentor_io::Role, head: &Head<'_>, keep_alive: bool) {
    let body = std::mem::take(&mut cx.scratch.body);
    route::exchange(cx, role, head, keep_alive).reply.fresh("application/json", &body);
    cx.scratch.body = body;
    cx.scratch.body.clear();
}

/// Those who asked by tag get what the GET itself says, 304; those who asked by cursor, 204.
fn answer_nothing(cx: &mut Context, role: stentor_io::Role, head: &Head<'_>, keep_alive: bool) {
    if head.prefer.is_some() && head.if_none_match.is_some() {
        return route::answer_held(cx, role, head, keep_alive);
    }
    let mut x = route::exchange(cx, role, head, keep_alive);
    x.reply.empty(stentor_wire::status::Status::NO_CONTENT, b"");
}
