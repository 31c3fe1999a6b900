//! A request and its answer, as an endpoint sees them.
//!
//! An [`Exchange`] is one request's view of the worker: what it may use, and the [`Reply`] that
//! writes its answer. An endpoint says with [`Answer`] what has become of the request.

use crate::access::{Act, Author, Bearer, Denied, Visitor, names};
use crate::answers::Asked;
use crate::endpoint::Sink;
use crate::endpoint::bulk::Bulk;
use crate::endpoint::file::Looks;
use crate::head::Field;
use crate::large_body::LargeBody;
use crate::limits::PROMISES_TOGETHER;
use crate::listeners::Listener;
use crate::mailbox::Order;
use crate::pressure::Pressure;
use crate::put_off;
use crate::response::{Persistence, Reply};
use crate::shared::Shared;
use crate::state::{AccessState, Clocks, Inbox, Resources, StreamState};
use crate::stream::Opening;
use crate::transport::TOO_MANY_TOPICS;
use std::borrow::Cow;
use std::sync::Arc;
use stentor_access::Grant;
use stentor_config::Settings;
use stentor_files::NotAsked;
use stentor_hub::{Op, Precondition};
use stentor_io::Rng;
use stentor_order::{Commit, Due, Outcome, Promised, ReturnAddress, Ticket};
use stentor_replication::Transfer;
use stentor_wire::error::Rejection;
use stentor_wire::http1::{Request, RequestBuf};
use stentor_wire::negotiate::{Encoding, accepts_events};
use stentor_wire::pack::Moment;
use stentor_wire::packed;
use stentor_wire::status::Status;

/// What becomes of a request once its head is known.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It has been answered. An answer that did not wait for the request's body is the
    /// connection's last.
    Now,
    /// It is answered when its body is complete.
    AfterBody(Sink),
    /// Its answer has begun, and goes on for as long as the connection does.
    Stream(Box<Opening>),
    /// A long-poll. It is answered once there is something new of what it reads.
    Poll(HeldPoll, Box<Opening>),
    /// It is answered later.
    Later(Box<Pending>),
    /// Its head is written, and its body is made in steps.
    Body(Box<dyn LargeBody>),
    /// Its answer has begun, and goes on as long as there is something that a follower is to be
    /// sent.
    Copy(Box<Copying>),
}

/// The feed or snapshot of a follower, and the token that it takes.
#[derive(Debug)]
pub(crate) struct Copying {
    pub(crate) copy: Transfer,
    pub(crate) grant: Option<Grant>,
}

/// The parts of an exchange that the connection keeps if the answer comes later. The connection
/// reads no further request before it has answered.
#[derive(Debug)]
pub(crate) struct HeldExchange {
    pub(crate) asked: Asked,
    pub(crate) persistence: Persistence,
}

/// A long-poll. At its deadline the server answers as if the request came just now. A client that
/// `expects_value` knows a value of the topic, so a deletion is a change as well.
#[derive(Debug)]
pub(crate) struct HeldPoll {
    pub(crate) exchange: HeldExchange,
    pub(crate) request: RequestBuf,
    pub(crate) deadline: Moment,
    pub(crate) expects_value: bool,
}

/// An answer that comes later.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) exchange: HeldExchange,
    pub(crate) awaits: Awaits,
}

/// What an answer waits for.
#[derive(Debug)]
pub(crate) enum Awaits {
    /// The commit of a change, and then what came of it.
    Commit { is_deletion: bool, outcome: Option<Outcome>, origin: Option<Box<[u8]>> },
    /// The commits of the last lines of a stream of messages.
    Commits(Box<Bulk>),
    /// The loader's look at a file, and then an answer by what it found.
    File(Box<FileWait>),
}

/// A request for a file that the loader looks at.
#[derive(Debug)]
pub(crate) struct FileWait {
    pub(crate) request: RequestBuf,
    /// Until then the loader must have answered.
    pub(crate) deadline_ms: u64,
    pub(crate) looks: Looks,
    /// The right to read was checked for a long-poll, whose token is not kept.
    pub(crate) is_judged: bool,
}

packed!(struct HeldExchange { asked, persistence });

packed!(struct HeldPoll { exchange, request, deadline, expects_value });

impl HeldPoll {
    /// What it takes on the heap, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        self.request.own_bytes() + self.exchange.asked.own_bytes()
    }
}

impl Pending {
    /// What it takes on the heap, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        let of_request = match &self.awaits {
            Awaits::File(wait) => {
                size_of::<FileWait>() + wait.request.own_bytes() + wait.looks.own_bytes()
            }
            Awaits::Commit { .. } | Awaits::Commits(_) => 0,
        };
        size_of::<Pending>() + of_request + self.exchange.asked.own_bytes()
    }
}

/// One request's view of its worker: the answer it writes and what it writes it from.
pub(crate) struct Exchange<'a> {
    pub(crate) reply: Reply<'a>,
    pub(crate) shared: &'a Shared,
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clocks,
    pub(crate) requester: Requester<'a>,
    pub(crate) access: &'a mut AccessState,
    pub(crate) inbox: &'a Inbox,
    pub(crate) resources: &'a mut Resources,
    pub(crate) streams: &'a mut StreamState,
    pub(crate) rng: &'a mut Rng,
    /// How long whoever is accepted now has waited for it.
    pub(crate) queue_age_ms: u64,
    /// How short memory is.
    pub(crate) pressure: Pressure,
}

/// The rights that come with a request, and the address of an outcome that comes later.
pub(crate) struct Requester<'a> {
    pub(crate) bearer: Bearer,
    /// The token itself, as long as its request is there.
    pub(crate) token: Cow<'a, [u8]>,
    pub(crate) ticket: Ticket,
}

impl Exchange<'_> {
    /// The listener that the request came in by.
    pub(crate) fn listener(&self) -> &'static Listener {
        self.reply.shape.listener
    }

    /// Who asks.
    pub(crate) fn visitor(&self) -> Visitor<'_> {
        let bearer = &self.requester.bearer;
        Visitor::new(self.reply.shape.role, self.settings, bearer)
    }

    /// Whether whoever asks may do something.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may(&self, act: Act<'_>) -> Result<(), Denied> {
        self.visitor().may(act)
    }

    /// Whether messages are published by this request, if it asks for that: where that is so for
    /// all, or since a token came with it.
    pub(crate) fn publishes(&self) -> bool {
        let listener = self.listener();
        let has_token = || !matches!(self.requester.bearer, Bearer::Nobody);
        // A client that has lost its token is asked for one.
        let asks_for_token = || self.settings.access.topics.takes_tokens();
        listener.publishes || listener.reads && (has_token() || asks_for_token())
    }

    /// Whether the value of a topic may be sent. From now on the answer is known to be private if
    /// it is.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_see(&mut self, topic: &str) -> Result<(), Denied> {
        let rules = &self.settings.access.topics;
        if rules.has_private() {
            let visitor = self.visitor();
            let allowed = visitor.grant().map(|grant| grant.scope.read());
            let cost = rules.cost_of_topic(allowed);
            *self.reply.cost += cost;
            self.may(Act::See(topic))?;
            self.reply.shape.is_private |= self.visitor().is_private(topic);
        }
        Ok(())
    }

    /// The page that asked, when the answer is written later than its request was read: what is
    /// listed still is said to it.
    pub(crate) fn answer_to(&mut self, origin: Option<&[u8]>) {
        let settings = self.settings;
        let is_it = |listed: &&String| Some(listed.as_bytes()) == origin;
        let listed = settings.cors.origins.iter().find(is_it);
        self.reply.shape.origin = listed.map(String::as_bytes);
    }

    /// Refuses a request that is not allowed. It says the same whatever there is.
    pub(crate) fn deny(&mut self, denied: &Denied) -> Answer {
        self.note_denied(denied);
        self.answer_denied(denied)
    }

    fn note_denied(&mut self, denied: &Denied) {
        let Exchange { requester: Requester { token, .. }, clock, .. } = self;
        let AccessState { keys, denials, .. } = &mut *self.access;
        let holder = || keys.holder(&String::from_utf8_lossy(token), clock.unix_s);
        denials.note(self.reply.stats, denied.why, holder, clock.now_ms);
    }

    /// The same once the body is there, and the token is not any more.
    pub(crate) fn deny_author(&mut self, denied: &Denied, author: &Author) -> Answer {
        // mutation: refused-at-end
        let holder = || author.holder(&self.access.keys);
        self.access.denials.note(self.reply.stats, denied.why, holder, self.clock.now_ms);
        self.answer_denied(denied)
    }

    fn answer_denied(&mut self, denied: &Denied) -> Answer {
        if denied.may_pass_later() {
            return self.put_off_until_later(false, None, &denied.rejection);
        }
        let challenge = denied.challenge();
        let challenge = challenge.map(|value| (Field::WWW_AUTHENTICATE, value.into_owned()));
        let head = self.reply.begin(denied.rejection.status()).fields(challenge);
        head.reject(&denied.rejection);
        Answer::Now
    }

    /// Refuses a request.
    pub(crate) fn reject(&mut self, rejection: &Rejection) -> Answer {
        self.reply.reject(rejection);
        Answer::Now
    }

    /// Has a change made for this request. `None` if the connection is told later what came of it.
    pub(crate) fn commit(&self, op: Op<'_>, when: Precondition) -> Option<Outcome> {
        match self.shared.committer.begin(op, when, self.clock.unix_s, &|| self.back(0)) {
            Commit::Known(outcome) => Some(outcome),
            Commit::Later => None,
            Commit::Due(outcome, due) => {
                self.when_kept(outcome, due, 0);
                None
            }
        }
    }

    /// Has one of many changes made; `line` tells it from the others.
    pub(crate) fn commit_line(&self, op: Op<'_>, line: u64) -> Commit {
        let back = || self.back(line);
        self.shared.committer.begin(op, Precondition::None, self.clock.unix_s, &back)
    }

    /// Has the connection told of this line once it is kept as promised.
    pub(crate) fn when_kept(&self, outcome: Outcome, due: Due, line: u64) {
        let mut promised = self.inbox.promised.borrow_mut();
        promised.push(Promised { due, outcome, back: self.back(line) });
        if promised.len() >= PROMISES_TOGETHER {
            self.shared.committer.when_kept(&mut promised);
        }
    }

    /// Has the loader look at a file, and tell the connection.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn ask_loader(&self, name: &str, encoding: Encoding) -> Result<(), NotAsked> {
        let (mailbox, ticket) = (Arc::clone(&self.inbox.mailbox), self.requester.ticket);
        let reply = move |looked| mailbox.put(Order::FileLook(Box::new((ticket, looked))));
        self.shared.file_cache.ask(name, encoding, self.clock.now_ms, reply)
    }

    fn back(&self, line: u64) -> ReturnAddress {
        let ticket = Ticket { line, ..self.requester.ticket };
        ReturnAddress::Worker(Arc::clone(&self.inbox.mailbox) as _, ticket)
    }

    /// The request is answered when what it awaits is there.
    pub(crate) fn answer_later(&mut self, awaits: Awaits) -> Answer {
        Answer::Later(Box::new(Pending { exchange: self.hold(), awaits }))
    }

    /// The head is written: a body of so many more bytes follows, unless it is that of a HEAD.
    pub(crate) fn answer_in_steps(
        &mut self,
        body: impl LargeBody + 'static,
        bytes: usize,
    ) -> Answer {
        if self.reply.shape.head_only {
            return Answer::Now;
        }
        self.reply.count_body(bytes as u64);
        Answer::Body(Box::new(body))
    }

    /// Takes the parts that the connection keeps until the answer comes.
    pub(crate) fn hold(&mut self) -> HeldExchange {
        let persistence = self.reply.shape.persistence;
        HeldExchange { asked: self.reply.answers.hold(), persistence }
    }

    /// Refuses a request for a stream.
    pub(crate) fn refuse_stream(&mut self, request: &Request<'_>, refused: NoStream) -> Answer {
        match refused {
            NoStream::Rejected(rejection) => self.reply.reject(&rejection),
            NoStream::NoRoom => return self.put_off(request, &TOO_MANY_TOPICS),
            NoStream::Denied(denied) if denied.may_pass_later() => {
                self.note_denied(&denied);
                return self.put_off(request, &denied.rejection);
            }
            NoStream::Denied(denied) => return self.deny(&denied),
        }
        Answer::Now
    }
}

impl Exchange<'_> {
    /// Checks that the client may fetch this name. The answer becomes private if the name is.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(crate) fn may_send(&mut self, name: &str) -> Result<(), Denied> {
        if names::is_private(self.settings, name) {
            self.may(Act::Fetch(name))?;
            self.reply.shape.is_private = true;
        }
        Ok(())
    }

    /// Returns whether the client may learn that this name exists. The answer becomes private if
    /// another client may get another one.
    pub(crate) fn may_tell(&mut self, name: &str) -> bool {
        let may = self.may_send(name).is_ok();
        self.reply.shape.is_private |= !may;
        may
    }

    /// Puts off a request, in the form that its client understands.
    pub(crate) fn put_off(&mut self, request: &Request<'_>, rejection: &Rejection) -> Answer {
        let is_stream = accepts_events(request.accept) && request.upgrade.is_none();
        self.put_off_until_later(is_stream, None, rejection)
    }

    /// The same for a request that may not be whole. Pages of this `origin` may read the stream.
    pub(crate) fn put_off_until_later(
        &mut self,
        is_stream: bool,
        origin: Option<&str>,
        rejection: &Rejection,
    ) -> Answer {
        self.reply.stats.requests_put_off.add(1);
        let chance = self.rng.next_u64();
        if is_stream {
            let mut body = Vec::new();
            put_off::write_last_events(&mut body, chance, &rejection.detail);
            let head = self.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-store");
            let head = head.fields(origin.map(|origin| (Field::ALLOW_ORIGIN, origin)));
            head.content(put_off::EVENT_STREAM, &body);
        } else {
            let wait_s = (put_off::wait_ms(chance) / 1_000).to_string();
            let head = self.reply.begin(rejection.status());
            head.reject_for(rejection, &wait_s);
        }
        Answer::Now
    }
}

/// Why there is no stream.
#[derive(Debug)]
pub(crate) enum NoStream {
    Rejected(Rejection),
    /// There is no room for it now.
    NoRoom,
    Denied(Denied),
}
