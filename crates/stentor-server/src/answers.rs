//! The answers that a visit to a connection makes, until they have left: what kind of request each
//! is to, what it says, and since when it was due.
//!
//! Whoever writes an answer begins it here (`Reply::begin`), so there is one place that sees every
//! answer, whatever it answers: a GET, a pipelined one, a refused head, a body that came too
//! slowly, a long-poll whose time is up. When the visit is over the kernel has the answers, or the
//! connection's backlog does, and they are counted ([`Answers::settle`]).
//!
//! What a request took begins with the turn in which it was whole, its body too, or in which it
//! began to wait: for its turn in a line, for a commit, for something new. So it does not count how
//! slowly a client sends, and it counts what others cost who came before it in the same turn. The
//! clock is read once for a visit, when all has left.

use crate::access_log::{Answered, Text};
use crate::labels::RequestKind;
use crate::stats::Stats;
use stentor_wire::packed;
use stentor_wire::status::Status;

packed!(struct Asked { kind, text } without { line, since_us });

/// What is to be known of a request when it is answered, beside what the answer says.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) kind: RequestKind,
    /// What the access log says of it, if it is to.
    pub(crate) text: Option<Box<Text>>,
    /// The request line without secrets, if refusals are logged.
    pub(crate) line: Option<Box<str>>,
    /// Since when its answer is due. `None`: since this visit's input was there.
    since_us: Option<u64>,
}

impl Asked {
    /// What it takes on the heap, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        let of_line = self.line.as_deref().map_or(0, str::len);
        self.text.as_deref().map_or(0, Text::own_bytes) + of_line
    }
}

/// A refusal that is to be logged: its status and reason, and the request line if that is known.
#[derive(Debug)]
pub(crate) struct RefusedAnswer {
    pub(crate) status: u16,
    pub(crate) reason: Box<str>,
    pub(crate) line: Option<Box<str>>,
}

/// An answer that was made.
#[derive(Debug)]
struct Made {
    asked: Asked,
    since_us: u64,
    status: Status,
    body_bytes: u64,
}

/// The answers of one visit.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// What is being answered.
    pub(crate) asked: Asked,
    made: Vec<Made>,
    refused: Vec<RefusedAnswer>,
    turn_us: u64,
    /// When the input of this visit was there, if it has waited.
    waited_since_us: Option<u64>,
}

impl Answers {
    /// A turn begins.
    pub(crate) fn begin_turn(&mut self, turn_us: u64) {
        self.turn_us = turn_us;
    }

    /// The input that is looked at now has been there since then, if it waited for its turn.
    pub(crate) fn go_on(&mut self, waited_since_us: Option<u64>) {
        self.waited_since_us = waited_since_us;
    }

    /// Since when what is looked at now has been there.
    pub(crate) fn since_us(&self) -> u64 {
        self.waited_since_us.unwrap_or(self.turn_us)
    }

    /// The request is answered once its body is there.
    pub(crate) fn put_by(&mut self) -> Asked {
        std::mem::take(&mut self.asked)
    }

    /// The request is whole, and is answered later.
    pub(crate) fn hold(&mut self) -> Asked {
        let asked = std::mem::take(&mut self.asked);
        Asked { since_us: asked.since_us.or(Some(self.since_us())), ..asked }
    }

    /// An answer begins.
    pub(crate) fn begin(&mut self, status: Status) {
        let asked = std::mem::take(&mut self.asked);
        let since_us = asked.since_us.unwrap_or(self.since_us());
        self.made.push(Made { asked, since_us, status, body_bytes: 0 });
    }

    /// So many bytes of body belong to it.
    pub(crate) fn add_body(&mut self, bytes: u64) {
        if let Some(made) = self.made.last_mut() {
            made.body_bytes += bytes;
        }
    }

    /// The answer that has begun is a refusal, which is to be logged once the visit is over.
    pub(crate) fn refuse(&mut self, reason: &str) {
        if let Some(made) = self.made.last_mut() {
            let (status, line) = (made.status.0, made.asked.line.take());
            self.refused.push(RefusedAnswer { status, reason: reason.into(), line });
        }
    }

    /// The refusals that are to be logged.
    pub(crate) fn take_refused(&mut self) -> Vec<RefusedAnswer> {
        std::mem::take(&mut self.refused)
    }

    /// Whether all answers have been settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.made.is_empty()
    }

    /// The first answer that says that the client may not do what it asked for.
    pub(crate) fn denied(&self) -> Option<Status> {
        let is_denied = |status: &Status| {
            matches!(
                *status,
                Status::UNAUTHORIZED | Status::FORBIDDEN | Status::MISDIRECTED_REQUEST
            )
        };
        self.made.iter().map(|made| made.status).find(is_denied)
    }

    /// What was answered has left: counts it, and has what is to be logged logged.
    pub(crate) fn settle(
        &mut self,
        stats: &Stats,
        now_us: u64,
        mut log: impl FnMut(&Answered<'_>),
    ) {
        for Made { asked, since_us, status, body_bytes } in self.made.drain(..) {
            let us = now_us.saturating_sub(since_us);
            stats.requests_by_kind[asked.kind as usize].observe(us);
            if let Some(text) = &asked.text {
                let kind = asked.kind.name();
                log(&Answered { text, kind, status: status.0, body_bytes, us });
            }
        }
    }

    /// Whether nothing is left of a visit.
    #[cfg(debug_assertions)]
    pub(crate) fn is_clear(&self) -> bool {
        let Asked { kind, text, line, since_us } = &self.asked;
        let is_asked = *kind != RequestKind::default()
            || text.is_some()
            || line.is_some()
            || since_us.is_some();
        self.is_settled() && self.refused.is_empty() && !is_asked && self.waited_since_us.is_none()
    }

    /// Forgets what a panic has left.
    pub(crate) fn clear(&mut self) {
        self.asked = Asked::default();
        self.made.clear();
        self.refused.clear();
        self.waited_since_us = None;
    }
}
