//! A log in NATS JetStream, and the thread that talks to it.
//!
//! The client is written here: of the protocol a node needs five verbs, and of JetStream five
//! requests. The library `async-nats` (0.51) has 96 packages in its tree. 49 of them are new here:
//! tokio, a runtime that no other part needs, is among them. It reconnects and sends again by
//! itself. A node must know of every connection, and of every message whether it was sent: that is
//! part of the protocol of nodes, which is tested without any broker. A simulator runs this client
//! on a simulated network, in virtual time; the library opens its own sockets.

mod channel;
mod credentials;
mod jetstream;
mod link;
mod wire;

use self::jetstream::{ConsumerMessage, Info, No, Stream, read_append, read_delivery, read_done};
pub(super) use self::link::check;
use self::link::{About, Link};
use self::wire::{Message, Said};
use crate::codec::may_be_epoch_record;
use crate::protocol::{Action, Appended, ClusterNode, Looked, hash_of};
use crate::state::ClusterState;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;
use stentor_config::BrokerUrl;
use stentor_hub::Hub;
use stentor_io::{Dialer, HostDialer, Rng, monotonic_us, sleep, unix_ns};

/// How a peer's snapshot comes into a hub that was made for it.
pub(super) type Fetch = Box<dyn FnMut(Hub) -> Result<Hub, String> + Send>;

/// The thread's own state.
pub(super) struct Broker {
    state: Arc<ClusterState>,
    node: ClusterNode,
    stream: Stream,
    fetch: Fetch,
    dialer: Arc<dyn Dialer>,
    rng: Rng,
    /// Brokers that a broker has named beside those of the settings.
    named: Vec<BrokerUrl>,
    /// Counts connections: each has an inbox of its own.
    number: u32,
    /// When the life was first seen at this sequence.
    life_seen: Option<(u64, u64)>,
    fetch_at_ms: u64,
}

/// A connection, and what was asked by it.
struct Session {
    link: Link,
    inbox: String,
    next: u64,
    asked: HashMap<u64, Asked>,
    look: Option<Look>,
    /// Which subscription brings the stream, when it was last heard, and how many messages it has
    /// brought.
    delivers: Option<(u64, u64, u64)>,
    heard_ms: u64,
    ping_at_ms: u64,
}

/// What an answer is to.
enum Asked {
    Info(u64),
    Create,
    Life(u64),
    /// The next message of the subject of epoch records, from the first on.
    EarlierLife(u64),
    At(u64),
    Next(u64),
    Consumer,
    Append {
        token: u64,
        sent_us: u64,
    },
}

/// What is known of the log so far.
#[derive(Default)]
struct Look {
    token: u64,
    asked_ms: u64,
    info: Option<Info>,
    /// The last message of the subject of epoch records; 0 if there is none.
    life_last: u64,
    /// The last epoch record that was found, and how many answers that took, if another client's
    /// message is behind it.
    earlier: (u32, Option<(u64, Vec<u8>)>),
    life: Option<Option<(u64, Vec<u8>)>>,
    message: Option<Option<u64>>,
    next: Option<Option<u64>>,
}

impl Broker {
    pub(super) fn new(state: Arc<ClusterState>, node: ClusterNode, fetch: Fetch) -> Broker {
        let settings = &state.settings;
        let stream = Stream {
            name: settings.stream.as_str().to_owned(),
            replicas: settings.replicas,
            keep_ms: settings.keep_ms,
            keep_bytes: settings.keep_bytes,
        };
        let rng = Rng::new(monotonic_us() ^ u64::from(std::process::id()) << 40);
        Broker {
            state,
            node,
            stream,
            fetch,
            dialer: Arc::new(HostDialer),
            rng,
            named: Vec::new(),
            number: 0,
            life_seen: None,
            fetch_at_ms: 0,
        }
    }

    /// Goes on until it is to end.
    pub(super) fn run(mut self) {
        let (mut at, mut failures) = (0, Failures::default());
        while !self.state.ends() {
            let url = self.broker(at);
            let reason = match self.dial(&url) {
                Ok(link) => {
                    let mut session = self.begin(link);
                    let reason = self.serve(&mut session);
                    self.learn(&url, &session.link.connect_urls);
                    reason
                }
                Err(reason) => reason,
            };
            at += 1;
            self.lose(&url, &reason, &mut failures);
        }
    }

    /// The broker to try at the attempt `at`: those of the settings in turn, then the named ones.
    fn broker(&self, at: usize) -> BrokerUrl {
        let all = self.state.settings.nats.iter().chain(&self.named);
        let brokers = self.state.settings.nats.len() + self.named.len();
        all.cycle().nth(at % brokers).expect("there is a broker").clone()
    }

    /// Remembers the brokers that a broker names. They are reached as that one is.
    fn learn(&mut self, url: &BrokerUrl, connect_urls: &[String]) {
        let scheme = if url.is_tls() { "tls" } else { "nats" };
        let parsed = connect_urls.iter().map(|address| format!("{scheme}://{address}").parse());
        let is_new = |url: &BrokerUrl| !self.state.settings.nats.contains(url);
        let named: Vec<_> = parsed.flatten().filter(is_new).take(NAMED_MAX).collect();
        if !named.is_empty() {
            self.named = named;
        }
    }

    /// The connection is of no use any more. Waits before the next one.
    fn lose(&mut self, url: &BrokerUrl, reason: &str, failures: &mut Failures) {
        let was_of_use = self.node.is_open();
        self.node.handle_lost();
        self.state.connected(false);
        if self.state.ends() {
            return;
        }
        self.state.note_failure(&url.to_string(), &shortened(reason));
        let brokers = self.state.settings.nats.len() + self.named.len();
        let pause_ms = failures.pause_ms(was_of_use, brokers, &mut self.rng);
        self.wait(pause_ms);
    }

    /// Waits, while time goes on for those who wait.
    fn wait(&mut self, ms: u64) {
        let until_ms = now_ms() + ms;
        while let Some(left) = until_ms.checked_sub(now_ms()).filter(|left| *left > 0) {
            sleep(Duration::from_millis(left.min(TICK_MS)));
            self.pass_time();
        }
    }

    fn pass_time(&mut self) {
        self.node.handle_time(now_ms());
        self.state.note(&self.node);
    }

    /// A broker has let this node in.
    fn begin(&mut self, link: Link) -> Session {
        self.heed_payload_max(link.payload_max);
        self.number += 1;
        let inbox = format!("_INBOX.{:016x}{:04x}", self.node.run(), self.number);
        let now_ms = now_ms();
        let mut session = Session {
            link,
            inbox,
            next: 0,
            asked: HashMap::new(),
            look: None,
            delivers: None,
            heard_ms: now_ms,
            ping_at_ms: now_ms,
        };
        let replies = format!("{}.r.*", session.inbox);
        wire::subscribe(&replies, REPLIES, session.link.out());
        self.state.connected(true);
        self.node.handle_connected(now_ms);
        session
    }

    /// Connects on a thread of its own: to look up a name takes as long as it takes, and time goes
    /// on for those who wait.
    fn dial(&mut self, url: &BrokerUrl) -> Result<Link, String> {
        let name = self.name();
        let (dialer, url, state) = (Arc::clone(&self.dialer), url.clone(), Arc::clone(&self.state));
        let (tells, told) = sync_channel(1);
        let connect = move || {
            let _ = tells.send(Link::connect(&*dialer, &url, &state.settings, &name));
        };
        let thread = thread::Builder::new().name("cluster-connect".to_owned());
        thread.spawn(connect).map_err(|error| error.to_string())?;
        loop {
            match told.recv_timeout(Duration::from_millis(TICK_MS)) {
                Ok(link) => return link,
                Err(RecvTimeoutError::Timeout) if self.state.ends() => {
                    return Err("this server ends".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => self.pass_time(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the thread that connects panicked, which is a bug".to_owned());
                }
            }
        }
    }

    /// The name of this client, which the broker shows.
    fn name(&self) -> String {
        format!("stentor {:016x}", self.node.run())
    }

    /// What is written from now on is no larger than the broker takes.
    fn heed_payload_max(&self, bytes: usize) {
        let bytes = bytes.min(wire::PAYLOAD_BYTES_MAX);
        self.state.intake.set_payload_max(bytes.saturating_sub(HEAD_BYTES));
    }

    /// Serves a connection until it is of no use any more. Returns why.
    fn serve(&mut self, session: &mut Session) -> String {
        loop {
            if let Err(reason) = self.step(session) {
                return reason;
            }
            if self.state.ends() {
                return "this server ends".to_owned();
            }
        }
    }

    fn step(&mut self, session: &mut Session) -> Result<(), String> {
        let until_us = self.say(session)?;
        let mut all = Vec::new();
        let read = session.link.read(&mut all, until_us, &self.state.waker);
        self.take(session, all)?;
        read
    }

    /// Says what there is to say. Returns until when to wait for what the broker says.
    fn say(&mut self, session: &mut Session) -> Result<u64, String> {
        let now = now_ms();
        self.node.handle_time(now);
        session.expire(|token| self.node.handle_appended(token, Appended::Unknown, now));
        self.act(session)?;
        session.keep_alive(now)?;
        session.link.flush().map_err(|error| error.to_string())?;
        self.state.note(&self.node);
        // Changes that wait are sent after those under way, or in a moment.
        let patience_ms = if self.state.intake.may_sleep() { TICK_MS } else { 1 };
        Ok(monotonic_us() + patience_ms * 1_000)
    }

    fn take(&mut self, session: &mut Session, all: Vec<Said>) -> Result<(), String> {
        if !all.is_empty() {
            session.heard_ms = now_ms();
        }
        for said in all {
            match said {
                Said::Message(message) => self.take_message(session, message)?,
                Said::Ping => session.link.out().extend_from_slice(wire::PONG),
                Said::Error(reason) => {
                    if reason.eq_ignore_ascii_case(PAYLOAD_TOO_LARGE) {
                        self.take_violation(session, &reason);
                    }
                    return Err(reason);
                }
                Said::Info(info) => {
                    let Some(about) = About::read(&info) else { continue };
                    about.payload_max().iter().for_each(|it| self.heed_payload_max(*it));
                    if !about.connect_urls.is_empty() {
                        session.link.connect_urls = about.connect_urls;
                    }
                    if about.is_ending {
                        return Err(link::IS_ENDING.to_owned());
                    }
                }
                Said::Pong | Said::Ok => {}
            }
        }
        Ok(())
    }

    /// What is on its way is larger than the broker takes. It closes the connection by that, and
    /// would close each one that it is sent on.
    fn take_violation(&mut self, session: &mut Session, reason: &str) {
        let now = now_ms();
        for (_, asked) in session.asked.drain() {
            if let Asked::Append { token, .. } = asked {
                self.node.handle_appended(token, Appended::Refused(reason.to_owned()), now);
            }
        }
    }

    fn take_message(&mut self, session: &mut Session, message: Message) -> Result<(), String> {
        let now = now_ms();
        if message.sid != REPLIES {
            return self.take_delivery(session, message);
        }
        let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
        let Some(asked) = number.and_then(|number: u64| session.asked.remove(&number)) else {
            return Ok(());
        };
        let is_deaf = message.status() == Some(503);
        match asked {
            Asked::Append { token, sent_us } => {
                let appended = read_append(&message);
                match &appended {
                    Appended::At(_) => self.state.note_round_trip(monotonic_us() - sent_us),
                    Appended::Refused(reason) => self.state.note_refusal(&shortened(reason)),
                    // It is tried again as if nothing had been said: not at once.
                    Appended::Unknown => {
                        let said = jetstream::reason_of(&message.payload);
                        self.state.note_refusal(&shortened(&said));
                        session.asked.extend(number.map(|it| (it, asked)));
                        return Ok(());
                    }
                    Appended::Conflict(_) => {}
                }
                self.node.handle_appended(token, appended, now);
            }
            _ if is_deaf => return Err("JetStream does not answer".to_owned()),
            Asked::Info(token) => self.take_info(session, token, &message.payload)?,
            Asked::Create => self.take_created(session, &message.payload, now)?,
            Asked::Life(token) => {
                let life = found(jetstream::read_message(&message))?;
                let life = life.map(|(seq, bytes)| (seq, bytes.unwrap_or_default()));
                let mut looks = session.looking(token);
                let Some(look) = looks.next() else { return Ok(()) };
                look.life_last = life.as_ref().map_or(0, |(seq, _)| *seq);
                match life {
                    // Another client published there: the last epoch record is before that.
                    Some((_, bytes)) if !may_be_epoch_record(&bytes) => {
                        drop(looks);
                        let (subject, request) = self.stream.next_life(1);
                        session.ask(&subject, &request, Asked::EarlierLife(token));
                    }
                    life => look.life = Some(life),
                }
            }
            Asked::EarlierLife(token) => {
                let life = found(jetstream::read_message(&message))?;
                self.take_earlier_life(session, token, life);
            }
            Asked::At(token) => {
                let at = found(jetstream::read_message(&message))?;
                let hash = at.and_then(|(_, bytes)| bytes).map(|bytes| hash_of(&bytes));
                session.looking(token).for_each(|look| look.message = Some(hash));
            }
            Asked::Next(token) => {
                let next = found(jetstream::read_message(&message))?.map(|(seq, _)| seq);
                session.looking(token).for_each(|look| look.next = Some(next));
            }
            Asked::Consumer => read_done(&message.payload)
                .map_err(|reason| format!("the stream is not read: {reason:?}"))?,
        }
        self.end_look(session, now)
    }

    /// Takes what the broker says of the stream, and creates it if there is none.
    fn take_info(&self, session: &mut Session, token: u64, payload: &[u8]) -> Result<(), String> {
        match self.stream.read_info(payload) {
            Ok(info) => {
                self.state.note_stream(info.replicas, info.warning());
                session.looking(token).for_each(|look| look.info = Some(info.clone()));
            }
            Err(No::NotFound) => {
                let (subject, request) = self.stream.create();
                session.ask(&subject, &request, Asked::Create);
            }
            Err(No::Other(reason)) => return Err(reason),
        }
        Ok(())
    }

    /// Takes the answer to the creation of the stream.
    fn take_created(
        &mut self,
        session: &mut Session,
        payload: &[u8],
        now: u64,
    ) -> Result<(), String> {
        if let Err(No::Other(reason)) = read_done(payload)
            && !reason.contains("already in use")
        {
            return Err(format!("the stream cannot be made: {reason}"));
        }
        // This node or another one created it. The node now inspects the log.
        session.look = None;
        self.node.handle_connected(now);
        Ok(())
    }

    /// Takes a message of the subject of epoch records, and asks for the next one, up to the last.
    fn take_earlier_life(
        &self,
        session: &mut Session,
        token: u64,
        life: Option<(u64, Option<Vec<u8>>)>,
    ) {
        let Some(look) = session.looking(token).next() else { return };
        look.earlier.0 += 1;
        match life.filter(|(seq, _)| *seq < look.life_last && look.earlier.0 < EARLIER_MAX) {
            Some((seq, bytes)) => {
                let record = bytes.filter(|bytes| may_be_epoch_record(bytes));
                look.earlier.1 = record.map(|bytes| (seq, bytes)).or(look.earlier.1.take());
                let (subject, request) = self.stream.next_life(seq + 1);
                session.ask(&subject, &request, Asked::EarlierLife(token));
            }
            None => look.life = Some(look.earlier.1.take()),
        }
    }

    /// Something of the stream.
    fn take_delivery(&mut self, session: &mut Session, message: Message) -> Result<(), String> {
        let now = now_ms();
        let Some((sid, heard_ms, brought)) = &mut session.delivers else { return Ok(()) };
        if *sid != message.sid {
            return Ok(());
        }
        *heard_ms = now;
        if message.status().is_some() {
            // A sign of life, which may ask whether this is heard.
            let reply = message.reply.or_else(|| stalled(&message.headers));
            if let Some(reply) = reply {
                wire::publish(&reply, "", None, b"", session.link.out());
            }
            return Ok(());
        }
        let reply = message.reply.as_deref().unwrap_or_default();
        let ConsumerMessage { seq, number, behind } =
            read_delivery(reply).ok_or("a message has no sequence")?;
        if number > *brought + 1 {
            wire::unsubscribe(*sid, session.link.out());
            session.delivers = None;
            self.node.handle_skipped(now);
            return Ok(());
        }
        *brought = number;
        self.state.note_behind(behind);
        let is_whole = message.left_out == 0;
        let skips = if is_whole && self.stream.is_of_nodes(&message.subject) {
            self.node.handle_message(seq, &message.payload, now)
        } else {
            let hash = is_whole.then(|| hash_of(&message.payload));
            self.node.handle_foreign(seq, hash, now);
            Some(if is_whole { "no node writes there" } else { "no node writes one as large" })
        };
        if let Some(why) = skips {
            self.state.note_skipped(seq, &shortened(&message.subject), why);
        }
        Ok(())
    }

    /// Once all is known that was asked for.
    ///
    /// # Errors
    /// The connection is of no use.
    fn end_look(&mut self, session: &mut Session, now: u64) -> Result<(), String> {
        let is_whole = |look: &mut Look| {
            let has_messages = look.life.is_some() && look.message.is_some();
            look.info.is_some() && has_messages && look.next.is_some()
        };
        let Some(Look {
            token,
            asked_ms,
            info: Some(info),
            life: Some(life),
            life_last,
            message: Some(at),
            next: Some(next),
            ..
        }) = session.look.take_if(is_whole)
        else {
            return Ok(());
        };
        let life = life.map(|(seq, bytes)| {
            let is_old = self.is_old(seq, &info, now);
            (seq, bytes, is_old)
        });
        // If several keep it, one that leads may have less than the one before.
        let broker = match &info.leader {
            Some(leader) if leader.is_empty() => {
                return Err("the stream has no leader".to_owned());
            }
            Some(leader) => hash_of(leader.as_bytes()),
            None => hash_of(session.link.server_id.as_bytes()),
        };
        let (first, last, unix_ms) = (info.first, info.last, unix_ns() as u64 / 1_000_000);
        let looked = Looked { broker, unix_ms, first, last, life, life_last, at, next };
        self.state.note_last(info.last, asked_ms * 1_000);
        self.node.handle_looked(token, &looked, now);
        Ok(())
    }

    /// Whether a message would soon not be kept any more.
    fn is_old(&mut self, seq: u64, info: &Info, now: u64) -> bool {
        let is_in_first_half =
            info.last.saturating_sub(info.first) > 64 && seq < (info.first + info.last) / 2;
        match self.life_seen {
            Some((at, since_ms)) if at == seq => {
                let is_aged = info.keep_ms > 0 && now - since_ms > info.keep_ms / 4;
                is_aged || is_in_first_half
            }
            // How old it was then nobody knows.
            before => {
                self.life_seen = Some((seq, now));
                before.is_none() && info.keep_ms > 0 || is_in_first_half
            }
        }
    }

    /// Does what the node wants done.
    fn act(&mut self, session: &mut Session) -> Result<(), String> {
        let now = now_ms();
        while let Some(action) = self.node.poll() {
            match action {
                Action::Look { at, token } => {
                    let mut look = Look { token, asked_ms: now, ..Look::default() };
                    if at == 0 {
                        look.message = Some(None);
                    } else {
                        let (subject, request) = self.stream.message(at);
                        session.ask(&subject, &request, Asked::At(token));
                    }
                    session.look = Some(look);
                    let (subject, request) = self.stream.next_message(at);
                    session.ask(&subject, &request, Asked::Next(token));
                    let (subject, request) = self.stream.info();
                    session.ask(&subject, &request, Asked::Info(token));
                    let (subject, request) = self.stream.last_life();
                    session.ask(&subject, &request, Asked::Life(token));
                }
                Action::Read { from } => {
                    session.next += 1;
                    let sid = REPLIES + session.next;
                    if let Some((before, ..)) = session.delivers.replace((sid, now, 0)) {
                        wire::unsubscribe(before, session.link.out());
                    }
                    let deliver = format!("{}.d.{sid}", session.inbox);
                    wire::subscribe(&deliver, sid, session.link.out());
                    let (subject, request) = self.stream.consumer(&deliver, from);
                    session.ask(&subject, &request, Asked::Consumer);
                }
                Action::Append { to, after, payload, token } => {
                    session.append(&self.stream.subject(to), after, &payload, token);
                }
                Action::Snapshot { epoch } => {
                    if now < self.fetch_at_ms {
                        continue;
                    }
                    self.fetch_at_ms = now + FETCH_PAUSE_MS;
                    let staged = (self.fetch)(self.node.stage(epoch));
                    match &staged {
                        Ok(_) => self.state.note_snapshot(),
                        Err(reason) => self.state.note_refusal(&shortened(reason)),
                    }
                    self.node.handle_snapshot(staged, now_ms());
                    session.heard_ms = now_ms();
                }
            }
        }
        Ok(())
    }
}

impl Session {
    /// The look that this is an answer to, if it is the one that is under way.
    fn looking(&mut self, token: u64) -> impl Iterator<Item = &mut Look> {
        self.look.iter_mut().filter(move |look| look.token == token)
    }

    /// Gives up appends that were not answered for long.
    fn expire(&mut self, mut unknown: impl FnMut(u64)) {
        let now_us = monotonic_us();
        self.asked.retain(|_, asked| match asked {
            Asked::Append { token, sent_us } if now_us > *sent_us + APPEND_MAX_US => {
                unknown(*token);
                false
            }
            _ => true,
        });
    }

    fn ask(&mut self, subject: &str, request: &str, asked: Asked) {
        self.next += 1;
        let reply = format!("{}.r.{}", self.inbox, self.next);
        self.asked.insert(self.next, asked);
        wire::publish(subject, &reply, None, request.as_bytes(), self.link.out());
    }

    fn append(&mut self, subject: &str, after: u64, payload: &[u8], token: u64) {
        self.next += 1;
        let reply = format!("{}.r.{}", self.inbox, self.next);
        self.asked.insert(self.next, Asked::Append { token, sent_us: monotonic_us() });
        let field = Some(("Nats-Expected-Last-Subject-Sequence", after));
        wire::publish(subject, &reply, field, payload, self.link.out());
    }

    /// Whether it is of use yet.
    fn keep_alive(&mut self, now: u64) -> Result<(), String> {
        if now >= self.ping_at_ms {
            self.ping_at_ms = now + PING_MS;
            self.link.out().extend_from_slice(wire::PING);
        }
        if now > self.heard_ms + SILENCE_MAX_MS {
            return Err("it says nothing any more".to_owned());
        }
        if self.delivers.is_some_and(|(_, heard_ms, _)| now > heard_ms + SILENCE_MAX_MS) {
            return Err("the stream is not brought any more".to_owned());
        }
        let is_old = |look: &Look| now > look.asked_ms + LOOK_MAX_MS;
        if self.look.as_ref().is_some_and(is_old) {
            return Err("JetStream does not say how the stream is".to_owned());
        }
        Ok(())
    }
}

/// Whoever waits is told, and nothing is taken any more, also if this thread has panicked.
impl Drop for Broker {
    fn drop(&mut self) {
        self.node.end();
        self.state.connected(false);
        self.state.note(&self.node);
        if thread::panicking() {
            let reason = "the thread that talks to it has panicked: restart this server";
            self.state.note_failure("of this cluster", reason);
        }
    }
}

/// All that is said, in pieces of this length, and why the rest is not.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn read_all(bytes: &[u8], piece: usize) -> (Vec<Said>, Option<&'static str>) {
    let (mut all, mut rest) = (Vec::new(), wire::Received::default());
    for piece in bytes.chunks(piece) {
        rest.bytes.extend_from_slice(piece);
        if let Err(reason) = rest.take(&mut all) {
            return (all, Some(reason));
        }
    }
    (all, None)
}

/// How many connections in a row were of no use. That a broker lets a node in is of none yet.
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// One more connection is lost: how long to wait. Each broker is tried by and by half as often,
    /// and a part of it is by chance, so that nodes that lost one together do not come back
    /// together.
    fn pause_ms(&mut self, was_of_use: bool, brokers: usize, rng: &mut Rng) -> u64 {
        // mutation: backoff-kept
        let before = if was_of_use { 0 } else { self.0 };
        self.0 = before.saturating_add(1);
        let rounds = before as usize / brokers;
        let doubled_ms = (PAUSE_MS << rounds.min(16)).min(PAUSE_MAX_MS);
        let half = doubled_ms / 2;
        (half + rng.below(half as usize) as u64) / brokers as u64
    }
}

/// What somebody else has said, as far as it is shown.
fn shortened(reason: &str) -> String {
    let mut chars = reason.chars();
    let is_plain = |char: char| !char.is_control();
    let mut shown: String =
        chars.by_ref().take(REASON_CHARS_MAX).filter(|it| is_plain(*it)).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A message that need not be there.
fn found<T>(read: Result<T, No>) -> Result<Option<T>, String> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(No::NotFound) => Ok(None),
        Err(No::Other(reason)) => Err(reason),
    }
}

/// Where a consumer that is held up is to be answered.
fn stalled(headers: &[u8]) -> Option<String> {
    let headers = std::str::from_utf8(headers).ok()?;
    let line = headers.lines().find_map(|line| line.strip_prefix("Nats-Consumer-Stalled:"))?;
    Some(line.trim().to_owned())
}

fn now_ms() -> u64 {
    monotonic_us() / 1_000
}

/// The subscription of answers; that of the stream has a greater number.
const REPLIES: u64 = 1;

/// How often it is looked what time it is.
const TICK_MS: u64 = 50;

/// A broker that was away is tried again after this time at most, then after twice as much each
/// time,
const PAUSE_MS: u64 = 200;

/// but as often as this, for it may be back.
const PAUSE_MAX_MS: u64 = 2_000;

/// So much is shown of what somebody else has said.
const REASON_CHARS_MAX: usize = 300;

/// What a broker says that was sent more than its `max_payload`.
const PAYLOAD_TOO_LARGE: &str = "Maximum Payload Violation";

const PING_MS: u64 = 1_000;

/// Something is heard of a broker, and of its stream, every second.
const SILENCE_MAX_MS: u64 = 4_000;
const LOOK_MAX_MS: u64 = 4_000;

/// So many messages of the subject of epoch records are read to find the last epoch record.
const EARLIER_MAX: u32 = 1_000;

/// An append that was not answered for so long is tried again.
const APPEND_MAX_US: u64 = 2_000_000;

/// How often peers are asked for a snapshot.
const FETCH_PAUSE_MS: u64 = 2_000;

/// This many brokers are remembered beside those of the settings.
const NAMED_MAX: usize = 32;

/// What a message has beside its payload.
const HEAD_BYTES: usize = 256;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
