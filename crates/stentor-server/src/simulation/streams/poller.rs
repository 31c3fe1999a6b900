//! A simulated client of long-polls, one after another, on one topic or on many.

use super::super::net::{Client, Net};
use super::super::{CONTROL, PUBLIC, SMALL};
use super::log::Log;
use super::reader::{Cursor, EPOCH, Mood, Object, Plan, read_object, seq_of};
use super::view::{From, View};
use serde_json::Value;
use stentor_io::{Backend, Rng};
use stentor_test::http::Response;

#[derive(Debug)]
pub(super) struct Poller {
    pub(super) plan: Plan,
    connection: Option<Client>,
    input: Vec<u8>,
    /// What was seen of many topics.
    pub(super) view: View,
    /// The last id seen.
    last: Option<u64>,
    poll: Option<Poll>,
    /// It asked for something else behind the poll.
    small_due: bool,
    is_stalled: bool,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Poll {
    asked: u64,
    asked_ms: u64,
    wait_ms: u64,
    from: From,
    has_gap: bool,
    /// It asked by entity tag.
    by_tag: bool,
    /// It named what it has, or had once.
    names: bool,
}

impl Poller {
    pub(super) fn new(plan: Plan, log: &Log) -> Poller {
        let mut plan = Plan { is_websocket: false, commands: false, ..plan };
        if plan.filters.is_empty() {
            plan.filters.push("/**".to_owned());
        }
        let view = View::new(plan.filters.clone(), plan.latest(), Cursor::none(log).from);
        Poller {
            plan,
            connection: None,
            input: Vec::new(),
            view,
            last: None,
            poll: None,
            small_due: false,
            is_stalled: false,
        }
    }

    pub(super) fn connection(&self) -> Option<Client> {
        self.connection
    }

    /// What is still to come before all is well; `None` if nothing.
    pub(super) fn missing(&self, log: &Log) -> Option<String> {
        if self.poll.is_none() {
            return Some(format!("an answer, or a request: {self:?}"));
        }
        if self.plan.is_many {
            return self.view.missing(log);
        }
        let (seq, entry) = log.newest(&self.plan.filters[0], u64::MAX)?;
        let is_seen = entry.message.is_deletion() || self.last >= Some(seq);
        (!is_seen).then(|| format!("{seq}: {self:?}"))
    }

    /// Lets the client do something.
    pub(super) fn play(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log, mood: Mood) {
        let Some(connection) = self.connection else {
            if mood.connects {
                let role = if rng.percent(30) { CONTROL } else { PUBLIC };
                self.connection = Some(sim.connect(role));
                self.input.clear();
                self.poll = None;
                self.small_due = false;
                self.is_stalled = false;
            }
            return;
        };
        let ended = sim.ended(connection);
        self.input.extend(sim.read(connection));
        while self.poll.is_some() || self.small_due {
            let Some(answer) = Response::take(&mut self.input) else { break };
            match self.poll.take() {
                Some(poll) => self.answered(log, poll, answer, sim.now_ms(), mood.draining),
                None => {
                    assert_eq!(answer.body, SMALL);
                    self.small_due = false;
                }
            }
        }
        if ended {
            let broken = sim.was_reset(connection) && (!sim.was_cut(connection) || mood.may_be_cut);
            // Of a request whose record or frame has not arrived whole the server knows nothing.
            let is_early = sim.has_layers() && self.input.is_empty();
            let has_reason = mood.draining && (self.poll.is_none() || is_early);
            // While memory is short it may be silent for a second only.
            let asked_ms = self.poll.as_ref().map_or(sim.now_ms(), |poll| poll.asked_ms);
            let is_held = sim.now_ms() > asked_ms + ON_THE_WAY_MS;
            let is_silent = log.memory_gets_short && self.input.is_empty() && !is_held;
            assert!(broken || has_reason || is_silent, "the server cut a poll");
            sim.finish_client(connection);
            self.connection = None;
            return;
        }
        let stalls = self.is_stalled;
        if stalls && mood.unrest == 0 || rng.percent(if stalls { 3 } else { mood.unrest }) {
            self.is_stalled = !stalls;
            sim.stall(connection, self.is_stalled);
        }
        if rng.below(400) < usize::from(mood.unrest) {
            sim.reset_client(connection);
        } else if self.poll.is_none() && !self.small_due && mood.connects {
            self.ask(sim, rng, log, connection);
        }
    }

    fn ask(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log, connection: Client) {
        let cursor = match self.last {
            Some(last) if rng.percent(95) => Cursor::after(last),
            _ if rng.percent(30) => Cursor::valid(rng, log),
            _ => Cursor::none(log),
        };
        if let From::After(seq) = cursor.from
            && Some(seq) == self.last
        {
            self.view.resume();
        } else {
            let filters = self.plan.filters.clone();
            let view = View::new(filters, self.plan.latest(), cursor.from);
            self.view = view.expecting(cursor.gap.clone());
            self.last = if let From::After(seq) = cursor.from { Some(seq) } else { None };
        }
        let by_tag = !self.plan.is_many && rng.percent(50) && cursor.gap.is_none();
        let has_gap = cursor.gap.is_some();
        let wait_s = [1, 2, 25, 600][rng.below(4)];
        let wait_ms = 1000 * wait_s.min(60);
        let (asked, asked_ms) = (log.seq(), sim.now_ms());
        let (from, names) = (cursor.from, !cursor.text.is_empty());
        self.poll = Some(Poll { asked, asked_ms, wait_ms, from, has_gap, by_tag, names });
        let (parameters, fields) = if by_tag {
            let tag = format!("If-None-Match: \"{}\"\r\n", cursor.text);
            let tag = if cursor.text.is_empty() { String::new() } else { tag };
            (Vec::new(), format!("Prefer: wait={wait_s}\r\n{tag}"))
        } else {
            let mut parameters = vec![format!("wait={wait_s}")];
            if !cursor.text.is_empty() {
                parameters.push(format!("since={}", cursor.text));
            }
            (parameters, String::new())
        };
        let target = self.plan.target(&parameters);
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        sim.write(connection, request.as_bytes());
        if rng.percent(10) {
            sim.write(connection, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
            self.small_due = true;
        }
    }

    fn answered(&mut self, log: &Log, poll: Poll, answer: Response, now_ms: u64, draining: bool) {
        let is_over = draining || now_ms >= poll.asked_ms + poll.wait_ms;
        let says_nothing = self.plan.is_many && answer.body.starts_with(b"{\"events\":[],");
        match answer.status {
            200 | 204 | 304 if answer.status != 200 || says_nothing => {
                let has_tag = poll.by_tag && matches!(poll.from, From::After(_));
                let expected = if says_nothing {
                    200
                } else if has_tag {
                    304
                } else {
                    204
                };
                assert_eq!(answer.status, expected, "{poll:?}");
                assert!(is_over, "nothing was said too early");
                for topic in log.topics().filter(|topic| self.view_wants(topic)) {
                    let at_first = log.newest(topic, poll.asked);
                    let known = |seq| matches!(poll.from, From::After(since) if seq <= since);
                    let is_old = at_first
                        .is_none_or(|(seq, entry)| entry.message.is_deletion() || known(seq));
                    let is_old = is_old || deleted_since(log, topic, poll.asked);
                    assert!(is_old, "{topic} had a value that was new: {self:?} {poll:?}");
                    let is_held = !self.plan.is_many && poll.names;
                    let is_there = had_value(log, topic, poll.asked);
                    assert!(!is_held || is_there, "{topic} has no value: {self:?} {poll:?}");
                }
                // The answer to a poll of one topic has no place to tell one in.
                let owes_gap = poll.has_gap && self.plan.is_many;
                assert!(!owes_gap || draining, "a gap was not told");
                if self.plan.is_many && !draining {
                    self.array(log, &answer);
                }
            }
            // A stop does not wait for requests that are still on their way.
            408 if draining => {}
            200 if self.plan.is_many => self.array(log, &answer),
            200 => self.value(log, &poll, &answer),
            404 if !self.plan.is_many => {
                let topic = &self.plan.filters[0];
                let deleted = deleted_since(log, topic, poll.asked);
                let is_gone = poll.names && !had_value_at(log, topic, poll.asked);
                assert!(deleted || is_gone, "404 for a poll of {topic} that may be held: {poll:?}");
                // What it had is of no use now: it waits for whatever comes.
                self.last = None;
            }
            _ => panic!("{} {}", answer.head, String::from_utf8_lossy(&answer.body)),
        }
    }

    fn view_wants(&self, topic: &str) -> bool {
        super::log::wants(&self.plan.filters, topic)
    }

    fn value(&mut self, log: &Log, poll: &Poll, answer: &Response) {
        let tag = answer.field("ETag").expect("an entity tag");
        let seq = seq_of(tag.trim_matches('"'));
        let entry = log.entry(seq);
        assert_eq!(entry.topic, self.plan.filters[0]);
        assert!(answer.body == entry.message.data(), "{seq} is spoilt");
        match poll.from {
            From::After(since) if poll.by_tag => assert_ne!(seq, since, "that is not new"),
            From::After(since) => assert!(seq > since, "{seq} is not new behind {since}"),
            From::Values { .. } => {}
        }
        let next = log.between(&entry.topic, seq, u64::MAX).first();
        assert!(next.is_none_or(|&next| next > poll.asked), "{seq} was no more the value");
        self.last = Some(seq);
    }

    fn array(&mut self, log: &Log, answer: &Response) {
        let body: Value = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&answer.body)));
        let items = body["events"].as_array().expect("an array");
        self.view.begin(log);
        for item in items {
            match read_object(log, item) {
                Object::Gap(gap) => self.view.gap(log, gap, EPOCH),
                Object::Message(seq) => self.view.message(log, seq),
            }
        }
        // There may be gaps and nothing else: whoever asked behind the last message again would
        // have no end of them.
        self.stands_at(log, &body);
    }

    /// Every answer of many topics says where the client is.
    fn stands_at(&mut self, log: &Log, body: &Value) {
        let seq = seq_of(body["cursor"].as_str().unwrap());
        self.view.told_cursor(log, seq);
        self.last = Some(seq);
    }
}

/// Whether the topic had a value when this was the last number.
fn had_value_at(log: &Log, topic: &str, seq: u64) -> bool {
    log.newest(topic, seq).is_some_and(|(_, entry)| !entry.message.is_deletion())
}

/// Whether it had one at that time or at any since.
fn had_value(log: &Log, topic: &str, seq: u64) -> bool {
    let later = log.between(topic, seq, u64::MAX);
    had_value_at(log, topic, seq) || later.iter().any(|&seq| !log.entry(seq).message.is_deletion())
}

fn deleted_since(log: &Log, topic: &str, seq: u64) -> bool {
    log.between(topic, seq, u64::MAX).iter().any(|&seq| log.entry(seq).message.is_deletion())
}

/// So long a request may be on its way.
const ON_THE_WAY_MS: u64 = 2_000;
