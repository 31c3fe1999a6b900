//! Answers that come later: what a request waits for, and what it is answered then.
//!
//! Nothing behind the request is looked at before it is answered, so answers keep their order. To
//! add a kind of waiting, give [`Awaits`] a case and [`Connection::answer_pending`] its answer. The
//! code that brings the event calls [`Connection::deliver`]. A long-poll is a reader (`poll.rs`).

use super::Connection;
use super::reader::NEVER_MS;
use super::state::State;
use crate::access::Bearer;
use crate::budget::{Permit, WorkClass, admitted};
use crate::context::Context;
use crate::endpoint;
use crate::exchange::{self, Awaits, FileWait, HeldExchange, Pending};
use crate::paths::is_large;
use crate::response::Persistence;
use stentor_config::Settings;
use stentor_files::FileLook;
use stentor_io::Backend;
use stentor_order::{Outcome, Ticket};

impl Pending {
    /// The end of the loader's time. A commit has no deadline: the committer reports each one.
    pub(super) fn deadline_ms(&self, now_ms: u64) -> u64 {
        match &self.awaits {
            // It waits for its class now, which brings the connection back.
            Awaits::File(wait) if wait.looks.are_known() => now_ms + NEVER_MS,
            Awaits::File(wait) => wait.deadline_ms,
            Awaits::Commit { .. } | Awaits::Commits(_) => now_ms + NEVER_MS,
        }
    }

    fn is_due(&self, now_ms: u64) -> bool {
        match &self.awaits {
            Awaits::Commit { outcome, .. } => outcome.is_some(),
            Awaits::Commits(bulk) => bulk.is_committed(),
            Awaits::File(wait) => wait.looks.are_known() || wait.deadline_ms <= now_ms,
        }
    }

    /// The class of the work that the answer takes. The list of a directory is much to send when
    /// the loader has made it, too.
    fn class(&self, settings: &Settings) -> Option<WorkClass> {
        match &self.awaits {
            Awaits::File(wait) if is_large(&wait.request.borrowed(), settings) => {
                Some(WorkClass::Requests)
            }
            _ => None,
        }
    }
}

impl Connection {
    /// Answers, if what the request waits for is there or has had its time.
    pub(super) fn answer_pending(&mut self, cx: &mut Context) {
        let now_ms = cx.clock.now_ms;
        let State::Pending(pending) = &mut self.state else { return };
        if !pending.is_due(now_ms) {
            return;
        }
        if let Awaits::File(wait) = &mut pending.awaits
            && !wait.looks.are_known()
        {
            wait.looks.note(endpoint::file::NO_ANSWER);
        }
        let class = pending.class(&cx.settings);
        if admitted(cx, class, |cx, permit| self.answer_due(cx, permit)).is_none() {
            self.work.wait_in(WorkClass::Requests);
        }
        // It takes another step.
        if let State::Pending(pending) = &self.state
            && pending.is_due(now_ms)
        {
            self.work.wait_in(WorkClass::Requests);
        }
    }

    fn answer_due(&mut self, cx: &mut Context, permit: &Permit) {
        let State::Pending(pending) = self.take_state() else { return };
        let Pending { exchange: HeldExchange { asked, mut persistence }, awaits } = *pending;
        cx.responses.answers.asked = asked;
        persistence.keep_alive &= !cx.draining;
        // The socket may hold unread bytes. To close it now would be a reset, which overtakes the
        // response.
        let ending = if self.is_reset_at_end(cx) { State::Closing } else { State::Refusing };
        if let Awaits::File(wait) = awaits {
            return self.answer_file(cx, *wait, (persistence, ending), permit);
        }
        let mut x = cx.exchange(self.role, None, persistence, self.ticket(cx), permit);
        match awaits {
            Awaits::Commit { is_deletion, outcome: Some(outcome), origin } => {
                x.answer_to(origin.as_deref());
                endpoint::publish::answer(&mut x, is_deletion, outcome);
            }
            Awaits::Commits(bulk) => bulk.report(&mut x),
            Awaits::File(_) | Awaits::Commit { outcome: None, .. } => {}
        }
        let keep_alive = x.reply.shape.persistence.keep_alive;
        self.answered(cx, exchange::Answer::Now, (keep_alive, ending), permit);
    }

    /// Answers a request for a file, as the loader has found it.
    fn answer_file(
        &mut self,
        cx: &mut Context,
        wait: FileWait,
        (persistence, ending): (Persistence, State),
        permit: &Permit,
    ) {
        let FileWait { request, looks, is_judged, .. } = wait;
        let request = request.borrowed();
        // The token was verified when the request came, so its outcome is remembered.
        let (bearer, token) = cx.presented(self.role, &request).bearer(cx, permit);
        let mut x = cx.exchange(self.role, &request, persistence, self.ticket(cx), permit);
        (x.requester.bearer, x.requester.token) = (bearer, token);
        if is_judged {
            x.requester.bearer = Bearer::Judged;
        }
        let answer = endpoint::file::get_with(&mut x, &request, looks);
        let keep_alive = x.reply.shape.persistence.keep_alive;
        self.answered(cx, answer, (keep_alive, ending), permit);
    }

    /// The loader has looked at the file of a request. Another request may have the record by now.
    pub(crate) fn looked<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        ticket: Ticket,
        looked: FileLook,
    ) {
        let is_current = self.stamp == ticket.stamp;
        if let State::Pending(pending) = &mut self.state
            && let Awaits::File(wait) = &mut pending.awaits
            && is_current
        {
            wait.looks.note(looked);
            self.deliver(cx, io);
        }
    }

    /// It is known what came of a change that a request of this connection asked for. Another one
    /// may have the record by now.
    pub(crate) fn committed<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
        ticket: Ticket,
        outcome: Outcome,
    ) {
        if self.stamp != ticket.stamp {
            return;
        }
        let was_read = self.reads();
        match &mut self.state {
            State::Http(http) => {
                if let Some(bulk) = http.bulk_mut() {
                    bulk.committed(&cx.stats, ticket.line, outcome);
                }
            }
            State::Pending(pending) => match &mut pending.awaits {
                Awaits::Commit { outcome: due, .. } => *due = Some(outcome),
                Awaits::Commits(bulk) => bulk.committed(&cx.stats, ticket.line, outcome),
                Awaits::File(_) => {}
            },
            _ => {}
        }
        if !self.waits() {
            self.deliver_and_read(cx, io, was_read);
        }
    }
}
