//! Who may see what: clients with tokens of several kinds, rules and keys that change under them,
//! tokens that end, and an oracle that knows of every message who may see it.
//!
//! Each message has a mark. Whatever a client receives, in whatever form, is searched for marks, so
//! the oracle need not understand it to say: no message ever reaches one who may not see it, be it
//! by a pattern, a replay, a snapshot, a batch that others share, or an answer that was held. It
//! says as well that what may be seen comes, that what may not be is told of, that a stream does
//! not outlive its token, and that none ends without a reason.
//!
//! Rules, keys and the time are a [`State`]; there is a list of all that were. A message may be
//! seen if it could be at some moment between its publishing, or the client's request if that is
//! later, and its arrival: what was on its way when the rules changed is not called back.

use super::clock::ClockJumps;
use super::codec::{PING, PONG, put_frame, put_text};
use super::handover::HandOvers;
use super::net::Client;
use super::seeds::{faults, kernel_faults};
use super::{CONTROL, PUBLIC, Parts, World, patient};
use received::{contains, left_out, marks, names, status_of};
use requests::{request_of, wanted};
use std::collections::{BTreeMap, BTreeSet};
use stentor_access::{Publishers, Readers, TopicAccess, TopicRules};
use stentor_config::Settings;
use stentor_hub::{ContentType, Draft, Pattern};
use stentor_io::{Backend, Faults, KernelFaults, Rng};
use stentor_test::http::Response;
use stentor_test::mark;
use stentor_test::pattern;
use tokens::{TOKENS, Token};

mod followers;
mod received;
mod requests;
pub(crate) mod revocations;
mod tokens;

/// What is published to.
const TOPICS: [&str; 9] = [
    "/open/a",
    "/open/b/deep",
    "/team/a",
    "/team/b",
    "/term/a",
    "/user",
    "/user/1",
    "/user/2",
    "/locked/a",
];

/// What is asked for.
const FILTERS: [&str; 12] = [
    "/open/a",
    "/team/a",
    "/team/b",
    "/user/1",
    "/user/2",
    "/locked/a",
    "/**",
    "/*/a",
    "/team/*",
    "/user/**",
    "/locked/*",
    "/none/*",
];

/// Patterns that ask their readers for a token, in each set of rules.
const RULES: [&[&str]; 3] =
    [&["/team/**", "/user/*", "/locked/**"], &["/**"], &["/locked/**", "/user/1"]];

/// What a client brings: nothing, or the token of that number.
type Brought = Option<usize>;

/// What held from some moment on.
#[derive(Clone, Copy, Debug)]
struct State {
    rules: usize,
    /// A token that is not among the keys.
    without: Option<usize>,
    now_s: u64,
    /// Tokens may have a time before which they are not good. A worker that has verified a token
    /// remembers that it is good when its clock is set back, so there is no such time where the
    /// clock jumps.
    may_begin: bool,
}

impl State {
    fn is_private(&self, topic: &str) -> bool {
        RULES[self.rules].iter().any(|rule| pattern::matches(rule, topic))
    }

    fn is_good(&self, token: usize, start_s: u64) -> bool {
        let is_good = |token: &Token| token.is_good_at(self.now_s, start_s, self.may_begin);
        self.without != Some(token) && TOKENS.get(token).is_some_and(is_good)
    }

    /// Whether a follower may be sent this by all filters.
    fn copies(&self, brought: Brought, filters: &[&str], start_s: u64) -> bool {
        let covers = |token: usize| filters.iter().all(|&f| TOKENS[token].covers_reading(f));
        brought.is_some_and(|token| self.is_good(token, start_s) && covers(token))
    }

    fn sees(&self, brought: Brought, topic: &str, start_s: u64) -> bool {
        let allows = |token: usize| TOKENS[token].may_read(topic);
        let may = brought.is_some_and(|token| self.is_good(token, start_s) && allows(token));
        !self.is_private(topic) || may
    }
}

fn settings(state: State, start_s: u64) -> Settings {
    let mut settings = patient();
    let of = |pattern: &&str| TopicAccess {
        pattern: Pattern::parse(pattern).unwrap(),
        read: Readers::Token,
        publish: Publishers::Token,
    };
    settings.access.topics = TopicRules::new(RULES[state.rules].iter().map(of));
    settings.access.cookie = Some("auth".to_owned());
    settings.access.control_token = true;
    settings.tokens = tokens::settings(state.without, start_s);
    settings
}

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Events,
    Frames,
    /// `stentor.v1`, by which it may renew its token.
    Commands,
    /// A long-poll of many, and of one.
    Polls,
    Poll,
    Value,
    Values,
    Put,
    /// As a follower does.
    Feed,
    Snapshot,
}

const WAYS: [Way; 10] = [
    Way::Events,
    Way::Frames,
    Way::Commands,
    Way::Polls,
    Way::Poll,
    Way::Value,
    Way::Values,
    Way::Put,
    Way::Feed,
    Way::Snapshot,
];

impl Way {
    /// Whether it asks for entries of the hub, which takes a token for all of them.
    fn is_transfer(self) -> bool {
        matches!(self, Way::Feed | Way::Snapshot)
    }

    fn is_poll(self) -> bool {
        matches!(self, Way::Poll | Way::Polls)
    }
}

/// A request, and what has come of it.
struct Reader {
    way: Way,
    filters: Vec<&'static str>,
    brought: Brought,
    /// A token that may have taken its place.
    renewed: Option<usize>,
    /// What it has subscribed to since, and the state in which it did.
    later: Option<(Vec<&'static str>, usize)>,
    connection: Client,
    worker: usize,
    /// The state in which it asked.
    since: usize,
    /// It says that it has seen everything up to there.
    cursor: u64,
    input: Vec<u8>,
    /// How many pings it has answered.
    pongs: usize,
    /// By topic, the newest mark.
    seen: BTreeMap<&'static str, u64>,
    /// Its answer comes behind another one.
    is_behind: bool,
    /// It was let in.
    is_open: bool,
    is_stalled: bool,
}

impl Reader {
    /// Whether new rules may have made private what a pattern means and the token does not cover,
    /// though there is no such topic.
    fn may_be_private_by_new_rules(&self, states: &[State]) -> bool {
        let before = RULES[states[0].rules];
        let rules = states.iter().flat_map(|state| RULES[state.rules]);
        let new: Vec<&&str> = rules.filter(|rule| !before.contains(rule)).collect();
        let covers =
            |filter| self.brought.is_some_and(|token| TOKENS[token].covers_reading(filter));
        self.filters
            .iter()
            .any(|filter| !covers(filter) && new.iter().any(|rule| pattern::meets(rule, filter)))
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Reader { way, filters, later, brought, renewed, since, seen, is_open, .. } = self;
        write!(f, "{way:?} {filters:?} {later:?} {brought:?} {renewed:?} {since} {seen:?} ")?;
        write!(f, "{is_open} ")?;
        f.write_str(&String::from_utf8_lossy(&self.input))
    }
}

/// A message.
struct Published {
    topic: &'static str,
    state: usize,
    seq: u64,
}

struct Stage {
    world: World,
    rng: Rng,
    states: Vec<State>,
    start_s: u64,
    clock: ClockJumps,
    /// The earliest and the latest of the workers' clocks, as the newest states have them.
    times_s: (u64, u64),
    /// What each token is sent as.
    texts: Vec<String>,
    messages: Vec<Published>,
    newest: BTreeMap<&'static str, u64>,
    /// Topics to which clients publish, too: what is the newest of them is not known.
    put_to: BTreeSet<&'static str>,
    readers: Vec<Reader>,
    hand_overs: HandOvers,
    /// Workers panic, which breaks a connection without a word.
    panics: bool,
}

/// One seed from the beginning to the end.
pub(super) fn run(seed: u64) {
    let mut stage = Stage::new(seed);
    stage.world.panic_at_random(stage.panics);
    stage.world.set_kernel_faults(kernel_faults(seed));
    for _ in 0..40 + stage.rng.below(300) {
        stage.act();
        if stage.clock.play(&mut stage.world) {
            stage.note_times();
        }
        stage.turn();
    }
    stage.world.panic_at_random(false);
    stage.world.set_kernel_faults(KernelFaults::default());
    stage.end_followers();
    stage.come_to_rest();
    // A token that ended by a jump of the clock ends its stream at the next sign of life.
    for _ in 0..2 {
        let streams = patient().streams;
        stage.sleep(streams.heartbeat_ms.max(streams.ping_ms) / 2 + 1);
        stage.come_to_rest();
    }
    stage.check_rest();
    for reader in std::mem::take(&mut stage.readers) {
        stage.world.at(reader.worker, |world| world.sim.finish_client(reader.connection));
    }
    stage.world.settle();
    stage.sleep(super::PATIENCE_MS);
    stage.world.settle();
    stage.world.check_nothing_is_left();
    assert_eq!(stage.world.totals().readers_by_token, 0);
}

impl Stage {
    fn new(seed: u64) -> Stage {
        let mut rng = Rng::new(seed);
        // A connection that breaks tells nothing of why a stream ends.
        let faults = Faults { reset_per_10_000: 0, ..faults(&mut rng) };
        let parts = Parts { late: None, ..Parts::of_seed(seed, &mut rng, &[0]) };
        let clock = ClockJumps::new(seed);
        let (rules, may_begin) = (rng.below(RULES.len()), clock.is_steady());
        let probe = World::of(Parts::default(), 1, super::kind(), patient());
        let start_s = probe.sim.unix_s();
        let first = State { rules, without: None, now_s: start_s, may_begin };
        let world = World::of(parts, seed ^ 0x5eed, faults, settings(first, start_s));
        let mut stage = Stage {
            world,
            rng,
            states: vec![first],
            start_s,
            clock,
            times_s: (start_s, start_s),
            texts: tokens::texts(start_s, may_begin),
            messages: Vec::new(),
            newest: BTreeMap::new(),
            put_to: BTreeSet::new(),
            readers: Vec::new(),
            hand_overs: HandOvers::new(seed),
            panics: seed % 2 == 1,
        };
        stage.world.tell_keys(first.without);
        for topic in TOPICS {
            stage.publish(topic);
        }
        stage
    }

    /// The time of the worker whose clock is last: no token has ended that is good then.
    fn now_s(&self) -> u64 {
        self.times_s().min().unwrap()
    }

    /// The time of the one whose clock is first.
    fn latest(&self) -> State {
        let last = self.states[self.states.len() - 1];
        State { now_s: self.times_s().max().unwrap(), ..last }
    }

    fn times_s(&self) -> impl Iterator<Item = u64> {
        let others = self.world.others.iter().map(|other| other.sim.unix_s());
        others.chain([self.world.sim.unix_s()])
    }

    /// Takes note of what the clocks show. A worker goes by one of them.
    fn note_times(&mut self) {
        let times_s = (self.now_s(), self.latest().now_s);
        if std::mem::replace(&mut self.times_s, times_s) != times_s {
            let last = self.states[self.states.len() - 1];
            self.states.push(self.latest());
            self.states.push(State { now_s: times_s.0, ..last });
        }
    }

    fn publish(&mut self, topic: &'static str) {
        self.note_times();
        let (mark, state) = (self.messages.len() as u64, self.states.len() - 1);
        self.newest.insert(topic, mark);
        let draft = Draft::new(format!("#{mark}#").into_bytes());
        let draft = draft.with_content_type(ContentType::TEXT);
        let seq = self.world.publish_draft(topic, draft).id.seq;
        self.messages.push(Published { topic, state, seq });
    }

    fn act(&mut self) {
        match self.rng.below(100) {
            0..30 => {
                let topic = TOPICS[self.rng.below(TOPICS.len())];
                self.publish(topic);
            }
            30..45 if self.readers.len() < 12 => self.ask(),
            45..48 => self.change(),
            48..52 => {
                let ms = [50, 900, 2_500][self.rng.below(3)];
                self.sleep(ms);
            }
            52..58 => self.command(),
            58..61 if !self.readers.is_empty() => {
                let at = self.rng.below(self.readers.len());
                let reader = &mut self.readers[at];
                mark("client-stalls");
                reader.is_stalled = !reader.is_stalled;
                let (connection, stalls) = (reader.connection, reader.is_stalled);
                self.world.at(reader.worker, |world| world.sim.stall(connection, stalls));
            }
            64..67 => {
                let index = self.rng.below(self.world.workers());
                self.world.at(index, |world| world.worker.exhaust_replays());
            }
            61..64 if !self.readers.is_empty() => {
                let at = self.rng.below(self.readers.len());
                mark("client-breaks");
                let reader = self.readers.swap_remove(at);
                self.world.at(reader.worker, |world| world.sim.reset_client(reader.connection));
            }
            _ => {}
        }
    }

    fn sleep(&mut self, ms: u64) {
        for index in 0..self.world.workers() {
            self.world.at(index, |world| world.sim.sleep(ms));
        }
        self.note_times();
    }

    /// Rules or keys change, or both.
    fn change(&mut self) {
        let last = self.states[self.states.len() - 1];
        let rules = if self.rng.percent(60) { self.rng.below(RULES.len()) } else { last.rules };
        let without = match self.rng.below(3) {
            0 => last.without,
            1 => None,
            _ => Some(self.rng.below(TOKENS.len())),
        };
        mark(if rules == last.rules { "keys-change" } else { "rules-change" });
        let state = State { rules, without, now_s: self.now_s(), ..last };
        self.states.push(state);
        self.world.change(state, self.start_s);
    }

    /// A client asks for something.
    fn ask(&mut self) {
        let rng = &mut self.rng;
        let (way, filters) = wanted(rng);
        let brought = match rng.below(10) {
            0..3 => None,
            3..5 => Some(rng.below(tokens::ALL)),
            _ => Some(rng.below(TOKENS.len())),
        };
        let secret = brought.map(|token| &self.texts[token]);
        let (place, mut cursor) = (rng.below(3), 0);
        let (mut fields, mut query) = (String::new(), Vec::new());
        match (secret, place) {
            (Some(secret), 0) => fields += &format!("authorization: bearer {secret}\r\n"),
            (Some(secret), 1) => fields += &format!("Cookie: a=b; auth={secret}\r\n"),
            (Some(secret), _) => query.push(format!("access_token={secret}")),
            (None, _) => {}
        }
        let is_page = matches!(way, Way::Commands | Way::Polls) || filters.len() > 1;
        if is_page || way.is_transfer() || filters[0].contains('*') {
            query.extend(filters.iter().map(|filter| format!("topic={filter}")));
        }
        if matches!(way, Way::Polls | Way::Poll) {
            query.push(format!("wait={}", [0, 1, 5][rng.below(3)]));
        }
        if matches!(way, Way::Events | Way::Commands | Way::Polls) && rng.percent(40) {
            cursor = rng.next_u64() % self.world.shared.hub.seq();
            query.push(format!("since=0badcafe-{cursor}"));
        } else if rng.percent(20) && matches!(way, Way::Events | Way::Commands) {
            query.push("since=earliest".to_owned());
        }
        let request = request_of(way, &filters, is_page, &query.join("&"), fields);
        // A poll may wait behind an answer that does not leave at once.
        let is_behind = way.is_poll() && self.rng.percent(40);
        let request = if is_behind { format!("{LARGE}{request}") } else { request };
        let worker = self.rng.below(self.world.workers());
        let role = if way.is_transfer() { CONTROL } else { PUBLIC };
        let connection = self.world.at(worker, |world| {
            let connection = world.sim.connect(role);
            world.sim.write(connection, request.as_bytes());
            connection
        });
        self.put_to.extend((way == Way::Put).then_some(filters[0]));
        self.readers.push(Reader {
            way,
            filters,
            brought,
            renewed: None,
            later: None,
            connection,
            worker,
            since: self.states.len() - 1,
            cursor,
            input: Vec::new(),
            pongs: 0,
            seen: BTreeMap::new(),
            is_behind,
            is_open: false,
            is_stalled: false,
        });
    }

    /// A client that may sends another token, subscribes to more, or both at once.
    fn command(&mut self) {
        let may = |reader: &&mut Reader| reader.way == Way::Commands && reader.is_open;
        let Some(reader) = self.readers.iter_mut().find(may) else { return };
        let rng = &mut self.rng;
        let mut parts = Vec::new();
        if reader.renewed.is_none() && rng.percent(60) {
            let token = rng.below(tokens::ALL);
            mark("token-renewed");
            reader.renewed = Some(token);
            parts.push(format!("\"token\":\"{}\"", self.texts[token]));
        }
        if reader.later.is_none() && rng.percent(60) {
            let wanted = (0..1 + rng.below(3)).map(|_| FILTERS[rng.below(FILTERS.len())]);
            let wanted: Vec<_> = wanted.collect();
            parts.push(format!("\"subscribe\":[\"{}\"]", wanted.join("\",\"")));
            reader.later = Some((wanted, self.states.len() - 1));
        }
        if parts.is_empty() {
            return;
        }
        let mut out = Vec::new();
        put_text(&mut out, rng, format!("{{{}}}", parts.join(",")).as_bytes());
        put_frame(&mut out, rng, PING, true, b"");
        let connection = reader.connection;
        self.world.at(reader.worker, |world| world.sim.write(connection, &out));
    }

    fn turn(&mut self) -> bool {
        self.hand_overs.play(&mut self.world);
        let is_busy = self.world.turn();
        self.note_times();
        let mut index = 0;
        while index < self.readers.len() {
            if self.hear(index) {
                index += 1;
            } else {
                let reader = self.readers.swap_remove(index);
                let finish = |world: &mut World| world.sim.finish_client(reader.connection);
                self.world.at(reader.worker, finish);
            }
        }
        is_busy
    }

    /// Judges what has come to a client. Returns whether it goes on.
    fn hear(&mut self, index: usize) -> bool {
        let reader = &mut self.readers[index];
        let connection = reader.connection;
        let (bytes, ended, is_cut) = self.world.at(reader.worker, |world| {
            let ended = world.sim.ended(connection);
            (world.sim.read(connection), ended, world.sim.was_reset(connection))
        });
        reader.input.extend(&bytes);
        if reader.is_behind && Response::take(&mut reader.input).is_some() {
            reader.is_behind = false;
        }
        if !bytes.is_empty() {
            self.judge_content(index);
            self.answer_pings(index);
        }
        if self.panics && is_cut {
            return false;
        }
        if !self.readers[index].is_open {
            self.judge_answer(index, ended, is_cut)
        } else if ended {
            self.judge_end(index, is_cut);
            false
        } else {
            true
        }
    }

    /// Whether a client may see all that has come to it.
    fn judge_content(&mut self, index: usize) {
        // A worker whose clock is ahead may know of a token that has begun to be good.
        let latest = self.latest();
        let Stage { readers, messages, states, start_s, .. } = self;
        let reader = &mut readers[index];
        for mark in marks(&reader.input) {
            let Published { topic, state, .. } = messages[mark as usize];
            let states = &states[state.max(reader.since)..];
            let sees = |brought| {
                let mut states = states.iter().chain([&latest]);
                states.any(|state| match reader.way.is_transfer() {
                    true => state.copies(brought, &reader.filters, *start_s),
                    false => state.sees(brought, topic, *start_s),
                })
            };
            let may = sees(reader.brought) || reader.renewed.is_some_and(|token| sees(Some(token)));
            assert!(may, "#{mark}# of {topic} reached one who may not see it: {reader:?}");
            let newest = reader.seen.entry(topic).or_default();
            *newest = (*newest).max(mark);
        }
        let is_hidden = |topic: &&&str| {
            let tokens = [Some(reader.brought), reader.renewed.map(Some)];
            let is_seen = |state: &State| {
                tokens.iter().flatten().any(|&brought| state.sees(brought, topic, *start_s))
            };
            let later = reader.later.iter().flat_map(|(filters, _)| filters);
            let asked = reader.filters.iter().chain(later).any(|filter| filter == *topic);
            let ever = states[reader.since..].iter().chain([&latest]).any(is_seen);
            !asked && !ever && !reader.way.is_transfer() && names(&reader.input, topic)
        };
        let shown = TOPICS.iter().find(is_hidden);
        assert_eq!(shown, None, "a name is told to one who may not know: {reader:?}");
    }

    /// A WebSocket whose client does not answer a ping is cut.
    fn answer_pings(&mut self, index: usize) {
        let Stage { world, rng, readers, .. } = self;
        let reader = &mut readers[index];
        let pings = memchr::memmem::find_iter(&reader.input, SENT_PING).count();
        for _ in std::mem::replace(&mut reader.pongs, pings)..pings {
            let mut out = Vec::new();
            put_frame(&mut out, rng, PONG, true, b"");
            world.at(reader.worker, |world| world.sim.write(reader.connection, &out));
        }
    }

    /// Whether what was answered may be.
    fn judge_answer(&mut self, index: usize, ended: bool, is_cut: bool) -> bool {
        let latest = self.latest();
        let Stage { readers, states, start_s, .. } = self;
        let reader = &mut readers[index];
        let status = if reader.is_behind { None } else { status_of(&reader.input) };
        let Some(status) = status else {
            assert!(!ended || is_cut, "no answer: {reader:?}");
            if ended {
                self.judge_end(index, is_cut);
            }
            return !ended;
        };
        let states = [&states[reader.since..], &[latest]].concat();
        let ever = |holds: &dyn Fn(&State) -> bool| states.iter().any(holds);
        let sees = |state: &State, topic: &str| state.sees(reader.brought, topic, *start_s);
        let is_wanted =
            |topic: &str| reader.filters.iter().any(|filter| pattern::matches(filter, topic));
        // A pattern of which no topic is private by any rule may mean others.
        let is_open = |state: &State| {
            let is_private =
                |filter: &str| RULES[state.rules].iter().any(|rule| pattern::covers(rule, filter));
            !reader.filters.iter().all(|filter| is_private(filter))
        };
        let some = |state: &State| {
            topics().any(|topic| is_wanted(topic) && sees(state, topic)) || is_open(state)
        };
        let all = |state: &State| topics().all(|topic| !is_wanted(topic) || sees(state, topic));
        let is_good =
            |state: &State| reader.brought.is_some_and(|token| state.is_good(token, *start_s));
        let copies = |state: &State| state.copies(reader.brought, &reader.filters, *start_s);
        let may = match (reader.way, status) {
            (Way::Feed | Way::Snapshot, 200) => ever(&copies),
            (Way::Feed | Way::Snapshot, 401) => ever(&|state| !is_good(state)),
            (Way::Feed | Way::Snapshot, 403) => ever(&|state| is_good(state) && !copies(state)),
            (Way::Put, 405) => reader.brought.is_none(),
            (Way::Put, 401) => ever(&|state| !is_good(state)),
            (Way::Put, 403) => ever(&is_good),
            (Way::Put, 200 | 201) => ever(&|state| {
                let topic = reader.filters[0];
                let allows = |token: usize| TOKENS[token].may_publish(topic);
                is_good(state) && reader.brought.is_some_and(allows) && state.is_private(topic)
            }),
            // Held by a token that it did not need then.
            (Way::Poll | Way::Polls, 401) => {
                let first = states[0].rules;
                ever(&|state| !all(state) || state.rules != first) || expires(reader.brought)
            }
            // What is subscribed to later would take it.
            (Way::Commands, 401) => ever(&|state| !is_good(state)),
            (_, 401) => ever(&|state| !is_good(state) && !all(state)) || expires(reader.brought),
            (way, 403) => {
                let is_private = way == Way::Polls && reader.may_be_private_by_new_rules(&states);
                ever(&|state| is_good(state) && (is_private || !all(state)))
            }
            (Way::Values, 200) => ever(&all),
            (Way::Polls, 200 | 204) | (Way::Events | Way::Frames | Way::Commands, 200 | 101) => {
                ever(&some)
            }
            (_, 200 | 204 | 304 | 404) => ever(&all),
            _ => false,
        };
        assert!(may, "{status}: {reader:?} {states:?}");
        let is_endless = matches!(reader.way, Way::Events | Way::Frames | Way::Commands);
        if (is_endless || reader.way.is_transfer()) && status < 400 {
            reader.is_open = true;
            return true;
        }
        // Bodies come behind their heads.
        Response::take(&mut reader.input.clone()).is_none() && !ended
    }

    /// A stream has ended: that must have had a reason, and have been said.
    fn judge_end(&self, index: usize, is_cut: bool) {
        let reader = &self.readers[index];
        // A follower comes back, for whatever reason its connection ends.
        if reader.way.is_transfer() {
            return;
        }
        let last = self.states[self.states.len() - 1];
        let tokens = [reader.brought, reader.renewed];
        let latest = self.latest();
        let is_bad = |token: &usize| {
            let mut states = self.states[reader.since..].iter().chain([&latest]);
            states.any(|state| !state.is_good(*token, self.start_s))
        };
        let has_bad = tokens.iter().flatten().any(is_bad);
        let rules_changed =
            self.states[reader.since..].iter().any(|state| state.rules != last.rules)
                || self.states[reader.since].rules != last.rules;
        assert!(has_bad || rules_changed, "a stream ended without a reason: {reader:?}");
        let is_told = match reader.way {
            Way::Events => contains(&reader.input, "{\"end\":{\"reason\""),
            // A frame that closes, with the code behind its length.
            _ => reader
                .input
                .windows(4)
                .any(|frame| frame[0] == 0x88 && frame[2..] == 4401_u16.to_be_bytes()),
        };
        // One that is blocked when rules or keys change is cut.
        assert!(is_told || is_cut, "nothing was said: {reader:?}");
        mark(if is_told { "revoked-stream-told" } else { "revoked-stream-cut" });
    }

    fn let_all_read(&mut self) {
        for reader in &mut self.readers {
            reader.is_stalled = false;
            let connection = reader.connection;
            self.world.at(reader.worker, |world| world.sim.stall(connection, false));
        }
    }

    fn come_to_rest(&mut self) {
        self.let_all_read();
        let mut idle_turns = 0;
        for _ in 0..100_000 {
            idle_turns = if self.turn() { 0 } else { idle_turns + 1 };
            if idle_turns > 200 {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// At rest nobody reads who may not, and whoever may has the newest.
    fn check_rest(&self) {
        let (state, latest) = (self.states[self.states.len() - 1], self.latest());
        for reader in self.readers.iter().filter(|reader| reader.is_open) {
            let sees = |topic: &str| {
                let by = |brought| state.sees(brought, topic, self.start_s);
                (by(reader.brought), reader.renewed.map(|token| by(Some(token))))
            };
            for (topic, newest) in &self.newest {
                let is_wanted = |filter: &&str| pattern::matches(filter, topic);
                // What it subscribed to later counts if nothing came in its way.
                let is_refused = contains(&reader.input, "{\"error\":");
                let later = reader.later.as_ref().filter(|_| !is_refused);
                let (filters, since) = match (reader.filters.iter().any(is_wanted), later) {
                    (true, _) => (&reader.filters, reader.since),
                    (false, Some((filters, since))) if filters.iter().any(is_wanted) => {
                        (filters, *since)
                    }
                    _ => continue,
                };
                let message = &self.messages[*newest as usize];
                let is_old = message.seq <= reader.cursor && since == reader.since;
                let has_it =
                    is_old || self.put_to.contains(topic) || reader.seen.get(topic) == Some(newest);
                let is_told = contains(&reader.input, "{\"access\"");
                // What it might not see when it was published is not sent later.
                let states = &self.states[message.state.max(since)..];
                let saw = |brought| {
                    let mut states = states.iter().chain([&latest]);
                    states.all(|state| state.sees(brought, topic, self.start_s))
                };
                let always = saw(reader.brought) && reader.renewed.is_none_or(|t| saw(Some(t)));
                let left_out = left_out(&reader.input);
                let is_read = |filter: &&str| is_wanted(filter) && !left_out.contains(filter);
                // A token's end is seen to in its second, or in the next.
                let before = State { now_s: state.now_s - 2, ..state };
                let mut tokens = [Some(reader.brought), reader.renewed.map(Some)].into_iter();
                let just_before =
                    tokens.any(|of| of.is_some_and(|of| before.sees(of, topic, self.start_s)));
                match sees(topic) {
                    (true, None | Some(true)) => {
                        let is_due = always && filters.iter().any(is_read);
                        assert!(has_it || !is_due, "#{newest}# of {topic} is missing: {reader:?}");
                    }
                    (false, None | Some(false)) => {
                        let is_well = is_told || just_before;
                        assert!(is_well, "nothing was said of {topic}: {reader:?} {state:?}");
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Those that are published to, and one that never is.
fn topics() -> impl Iterator<Item = &'static str> {
    TOPICS.into_iter().chain(["/none/x"])
}

/// Whether a held answer of that token may come to be refused by the time alone.
fn expires(brought: Brought) -> bool {
    brought.is_some_and(|token| TOKENS.get(token).is_none_or(Token::depends_on_time))
}

/// A request whose answer fills most sockets.
const LARGE: &str = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";

/// A ping as the server sends it.
const SENT_PING: &[u8] = &[PING, 0];

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The control listener reads what is private, and tokens do not matter there.
#[test]
fn operators_read_what_is_private() {
    let first = State { rules: 0, without: None, now_s: 0, may_begin: true };
    let mut settings = settings(first, 0);
    settings.access.control_token = false;
    let mut world = World::new(1, super::kind(), settings);
    world.publish("/team/a", b"secret".to_vec(), ContentType::TEXT);
    let get = b"GET /team/a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let (_, answer) = world.ask(CONTROL, get);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("secret"), "{answer}");
    let (_, answer) = world.ask(PUBLIC, get);
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("secret"), "{answer}");
}
