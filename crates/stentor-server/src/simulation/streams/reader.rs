//! A simulated reader of one stream after another: it connects, judges what comes by its view,
//! stalls, is cut off, and comes back with the last id it has seen, or with one it made up.

use super::super::codec::{BINARY, CLOSE, PING, PONG, TEXT, put_frame, put_text};
use super::super::net::{Client, Net};
use super::super::{CONTROL, PUBLIC};
use super::log::{Log, PATTERNS, TOPICS};
use super::view::{From, Gap, View};
use serde_json::Value;
use stentor_io::Rng;
use stentor_test::http::Response;
use stentor_test::mark;
use stentor_test::sse::{Decoder, Item};
use stentor_test::websocket::{DEFLATED, Frame};
use stentor_wire::notice::GapReason;

/// What clients are up to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    /// How much they do by themselves, of a hundred turns: 0 to only read.
    pub(super) unrest: u8,
    /// They connect when they are not connected.
    pub(super) connects: bool,
    /// The server is stopping.
    pub(super) draining: bool,
    /// TCP memory was short, so workers may have reset connections.
    pub(super) may_be_cut: bool,
}

/// What a reader is for the whole of a run.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the simulator")]
pub(super) struct Plan {
    pub(super) is_websocket: bool,
    /// It reads `/-/events`.
    pub(super) is_many: bool,
    /// It speaks `stentor.v1`.
    pub(super) commands: bool,
    pub(super) offers_deflate: bool,
    pub(super) mode: Option<&'static str>,
    pub(super) filters: Vec<String>,
}

impl Plan {
    pub(super) fn random(rng: &mut Rng) -> Plan {
        let is_many = rng.percent(60);
        let is_websocket = rng.percent(55);
        let commands = is_many && is_websocket && rng.percent(60);
        let mut filters = some_filters(rng, is_many);
        if commands && rng.percent(30) {
            filters.clear();
        }
        Plan {
            is_websocket,
            is_many,
            commands,
            offers_deflate: rng.percent(40),
            mode: [None, None, Some("all"), Some("all"), Some("latest")][rng.below(5)],
            filters,
        }
    }

    pub(super) fn latest(&self) -> Option<bool> {
        self.mode.map(|mode| mode == "latest")
    }

    /// The target of a request, with further parameters.
    pub(super) fn target(&self, parameters: &[String]) -> String {
        let mut query: Vec<String> = parameters.to_vec();
        query.extend(self.mode.map(|mode| format!("mode={mode}")));
        if self.is_many {
            query.extend(self.filters.iter().map(|filter| format!("topic={filter}")));
        }
        let path = if self.is_many { "/-/events" } else { self.filters[0].as_str() };
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }
}

/// Topics and, for `/-/events`, patterns: without repetition.
pub(super) fn some_filters(rng: &mut Rng, is_many: bool) -> Vec<String> {
    let count = if is_many { 1 + rng.below(4) } else { 1 };
    let mut filters: Vec<String> = Vec::new();
    while filters.len() < count {
        let filter = match is_many && rng.percent(35) {
            true => PATTERNS[rng.below(PATTERNS.len())],
            false => TOPICS[rng.below(TOPICS.len())].0,
        };
        if !filters.iter().any(|known| known == filter) {
            filters.push(filter.to_owned());
        }
    }
    filters
}

/// A cursor as it is sent, where the reader then begins, and the gap it must be told first.
pub(super) struct Cursor {
    pub(super) text: String,
    pub(super) from: From,
    pub(super) gap: Option<Gap>,
}

impl Cursor {
    /// What a reader without a cursor has.
    pub(super) fn none(log: &Log) -> Cursor {
        let from = From::Values { asked: log.seq() };
        Cursor { text: String::new(), from, gap: None }
    }

    pub(super) fn after(seq: u64) -> Cursor {
        Cursor { text: format!("{EPOCH}-{seq}"), from: From::After(seq), gap: None }
    }

    /// One that polls and commands may name: the server refuses what it cannot read.
    pub(super) fn valid(rng: &mut Rng, log: &Log) -> Cursor {
        loop {
            let cursor = Cursor::random(rng, log);
            let reason = cursor.gap.as_ref().map(|gap| &*gap.0);
            if reason != Some(GapReason::CursorInvalid.name()) {
                return cursor;
            }
        }
    }

    /// One that may be old, of another life, from the future, or nonsense.
    pub(super) fn random(rng: &mut Rng, log: &Log) -> Cursor {
        let gap = |text: &str, reason: &'static str, since: Option<&str>| {
            mark(reason);
            let gap = Some((reason.to_owned(), since.map(str::to_owned)));
            Cursor { text: text.to_owned(), from: From::Values { asked: log.seq() }, gap }
        };
        match rng.below(8) {
            0 => gap("5f3a09c1-7", "epoch_changed", Some("5f3a09c1-7")),
            1 => {
                let future = format!("{EPOCH}-{}", log.seq() + 99_999_999);
                gap(&future, "cursor_ahead", Some(&future))
            }
            2 => gap(["x", "0badcafe", "-", "0badcafe-07"][rng.below(4)], "cursor_invalid", None),
            3 => Cursor::none(log),
            _ => Cursor::after(log.any_seq(rng)),
        }
    }
}

pub(super) const EPOCH: &str = "0badcafe";

/// How far a connection is.
enum Wire {
    /// The head of the answer has not come.
    Head,
    Events(Decoder),
    Frames {
        deflates: bool,
    },
}

/// A reader of Server-Sent Events or of a WebSocket.
#[expect(clippy::struct_excessive_bools, reason = "the simulator")]
pub(super) struct Reader {
    pub(super) plan: Plan,
    connection: Option<Client>,
    wire: Wire,
    input: Vec<u8>,
    pub(super) view: View,
    is_stalled: bool,
    /// The last thing of the stream was what ends it well.
    has_farewell: bool,
    commands: u64,
    /// The ping whose answer is waited for says that a command was obeyed.
    is_commanding: bool,
    errors_due: usize,
    /// Heartbeats and commands of the server's.
    pub(super) signs_of_life: u64,
    closes: bool,
}

impl Reader {
    pub(super) fn new(plan: Plan, log: &Log) -> Reader {
        let view = View::new(plan.filters.clone(), plan.latest(), Cursor::none(log).from);
        Reader {
            plan,
            connection: None,
            wire: Wire::Head,
            input: Vec::new(),
            view,
            is_stalled: false,
            has_farewell: false,
            commands: 0,
            is_commanding: false,
            errors_due: 0,
            signs_of_life: 0,
            closes: false,
        }
    }

    pub(super) fn connection(&self) -> Option<Client> {
        self.connection
    }

    /// What is still to come before all is well; `None` if nothing.
    pub(super) fn missing(&self, log: &Log) -> Option<String> {
        match self.wire {
            _ if self.connection.is_none() => Some("a connection".to_owned()),
            Wire::Head => Some("the head of an answer".to_owned()),
            _ if self.errors_due > 0 => Some("an error".to_owned()),
            _ => self.view.missing(log),
        }
    }

    fn connect(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log) {
        let last = self.view.cursor().filter(|_| rng.percent(60));
        let cursor = last.map_or_else(|| Cursor::random(rng, log), Cursor::after);
        if last.is_some() {
            self.plan.filters = self.view.filters.clone();
            self.view.resume();
        } else {
            let filters = self.plan.filters.clone();
            let view = View::new(filters, self.plan.latest(), cursor.from).expecting(
                // Whom nobody joins nobody tells of a gap.
                cursor.gap.filter(|_| !self.plan.filters.is_empty()),
            );
            self.view = if self.plan.commands { view.with_commands() } else { view };
        }
        let role = if rng.percent(30) { CONTROL } else { PUBLIC };
        let connection = sim.connect(role);
        let by_header = rng.percent(50);
        let parameter = ["since", "last_event_id"][rng.below(2)];
        let text = &cursor.text;
        let (parameters, mut fields) = match by_header {
            true => (vec!["since=other".to_owned()], format!("Last-Event-ID: {text}\r\n")),
            false => (vec![format!("{parameter}={text}")], String::new()),
        };
        let parameters = if by_header && text.is_empty() { Vec::new() } else { parameters };
        fields += &match self.plan.is_websocket {
            true => self.handshake(),
            false => "Accept: text/event-stream\r\n".to_owned(),
        };
        let target = self.plan.target(&parameters);
        sim.write(
            connection,
            format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes(),
        );
        self.connection = Some(connection);
        self.wire = Wire::Head;
        self.input.clear();
        self.is_stalled = false;
        self.has_farewell = false;
        self.is_commanding = false;
        self.errors_due = 0;
        self.closes = false;
    }

    fn handshake(&self) -> String {
        let mut fields =
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                .to_owned();
        if self.plan.commands {
            fields += "Sec-WebSocket-Protocol: other, stentor.v1\r\n";
        }
        if self.plan.offers_deflate {
            fields += "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
        }
        fields
    }

    /// Lets the reader do something.
    pub(super) fn play(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log, mood: Mood) {
        let Mood { unrest, connects, .. } = mood;
        let Some(connection) = self.connection else {
            if connects && (unrest == 0 || rng.percent(20)) {
                self.connect(sim, rng, log);
            }
            return;
        };
        let ended = sim.ended(connection);
        self.hear(sim, rng, log, mood);
        if ended {
            return self.leave(sim, connection, mood);
        }
        let stalls = self.is_stalled;
        if stalls && unrest == 0 || rng.percent(if stalls { 3 } else { unrest }) {
            mark("reader-stalls");
            self.is_stalled = !stalls;
            sim.stall(connection, self.is_stalled);
        }
        if rng.below(400) < usize::from(unrest) {
            mark("reader-breaks");
            sim.reset_client(connection);
        } else if let Wire::Frames { .. } = self.wire
            && rng.percent(unrest * 3)
        {
            self.say(sim, rng, log, connection);
        }
    }

    /// The connection has ended: that must have had a reason.
    fn leave(&mut self, sim: &mut Net, connection: Client, mood: Mood) {
        let broken = sim.was_reset(connection) && (!sim.was_cut(connection) || mood.may_be_cut);
        // A stop does not wait for requests that are still on their way.
        let is_early = mood.draining && matches!(self.wire, Wire::Head);
        assert!(
            broken || self.has_farewell || is_early,
            "the server cut a stream: {mood:?} {:?}",
            self.view
        );
        sim.finish_client(connection);
        self.connection = None;
    }

    /// A WebSocket's client says something.
    fn say(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log, connection: Client) {
        if self.is_commanding || self.closes {
            return;
        }
        let mut out = Vec::new();
        match rng.below(10) {
            0..6 if self.plan.commands => self.command(&mut out, rng, log),
            0 => put_frame(&mut out, rng, PING, true, b"?"),
            1 => put_frame(&mut out, rng, PONG, true, b""),
            2 => put_frame(&mut out, rng, BINARY, true, &[0xff; 300]),
            3 if !self.plan.commands => {
                put_text(&mut out, rng, "{\"subscribe\":[\"/ä\"]}".as_bytes())
            }
            4 if self.plan.commands => {
                put_text(&mut out, rng, b"{\"subscribe\":[\"nonsense\"]}");
                self.errors_due += 1;
            }
            5 if rng.percent(10) => {
                self.closes = true;
                put_frame(&mut out, rng, CLOSE, true, &1000u16.to_be_bytes());
            }
            6 if rng.percent(10) => {
                self.closes = true;
                out.extend_from_slice(b"\x81\x01x");
            }
            _ => {}
        }
        sim.write(connection, &out);
    }

    /// Subscribes, unsubscribes, or both; the ping behind it, of either kind, tells when it was
    /// obeyed.
    fn command(&mut self, out: &mut Vec<u8>, rng: &mut Rng, log: &Log) {
        let before = &self.view.filters;
        let subscribe = if rng.percent(70) { some_filters(rng, true) } else { Vec::new() };
        let mut unsubscribe = if rng.percent(30) { some_filters(rng, true) } else { Vec::new() };
        unsubscribe.extend(before.iter().filter(|_| rng.percent(40)).cloned());
        if subscribe.is_empty() && unsubscribe.is_empty() {
            return;
        }
        let mut after = before.clone();
        after.retain(|filter| !unsubscribe.contains(filter));
        let is_new = |filter: &&String| !after.contains(filter);
        let joined: Vec<String> = subscribe.iter().filter(is_new).cloned().collect();
        after.extend(joined.iter().cloned());
        let mut command = serde_json::Map::new();
        if !subscribe.is_empty() {
            command.insert("subscribe".to_owned(), subscribe.into());
        }
        if !unsubscribe.is_empty() {
            command.insert("unsubscribe".to_owned(), unsubscribe.into());
        }
        let cursor = Cursor::valid(rng, log);
        if !cursor.text.is_empty() {
            command.insert("since".to_owned(), cursor.text.into());
        }
        self.commands += 1;
        command.insert("id".to_owned(), self.commands.into());
        put_text(out, rng, Value::from(command).to_string().as_bytes());
        self.is_commanding = true;
        self.view.command(after, joined, cursor.from, cursor.gap);
    }

    /// Judges what has arrived.
    fn hear(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log, mood: Mood) {
        let Some(connection) = self.connection else { return };
        let bytes = sim.read(connection);
        if bytes.is_empty() {
            return;
        }
        self.input.extend(bytes);
        if let Wire::Head = self.wire {
            let Some(answer) = Response::take_head(&mut self.input) else { return };
            if mood.draining && answer.status == 408 {
                // A stop does not wait for requests that are still on their way.
                self.has_farewell = true;
                return;
            }
            let status = if self.plan.is_websocket { 101 } else { 200 };
            assert_eq!(answer.status, status, "{}", answer.head);
            let protocol = answer.field("Sec-WebSocket-Protocol");
            assert_eq!(protocol, self.plan.commands.then_some("stentor.v1"));
            let deflates = answer.field("Sec-WebSocket-Extensions").is_some();
            self.view.begin(log);
            self.wire = match self.plan.is_websocket {
                true => Wire::Frames { deflates },
                false => Wire::Events(Decoder::behind(&answer)),
            };
        }
        match &mut self.wire {
            Wire::Head => {}
            Wire::Events(decoder) => {
                let items = decoder.take(&std::mem::take(&mut self.input));
                self.has_farewell |= decoder.is_whole();
                items.into_iter().for_each(|item| self.item(log, item));
            }
            Wire::Frames { deflates } => {
                let deflates = *deflates && self.plan.offers_deflate;
                while let Some(frame) = Frame::take(&mut self.input) {
                    assert!(deflates || frame.first & DEFLATED == 0, "without agreement");
                    self.frame(sim, rng, log, frame);
                }
            }
        }
    }

    /// One item of an event stream.
    fn item(&mut self, log: &Log, item: Item) {
        match item {
            // It comes once, at the beginning.
            Item::Retry(_) => assert!(!std::mem::replace(&mut self.closes, true)),
            Item::Comment => self.signs_of_life += 1,
            Item::Id(id) => assert!(seq_of(&id) <= log.seq(), "{id} is ahead"),
            Item::Event { id, name, data } if name.as_deref() == Some("stentor") => {
                let object: Value = serde_json::from_str(&data).unwrap();
                if let Some(cursor) = object.get("cursor") {
                    assert_eq!(cursor.as_str(), id.as_deref());
                    return assert!(seq_of(cursor.as_str().unwrap()) <= log.seq(), "is ahead");
                }
                match read_object(log, &object) {
                    Object::Gap(gap) => self.view.gap(log, gap, EPOCH),
                    Object::Message(seq) => {
                        let message = &log.entry(seq).message;
                        let is_text = std::str::from_utf8(message.data()).is_ok();
                        assert!(message.is_deletion() || !self.plan.is_many && !is_text);
                        self.view.message(log, seq);
                    }
                }
            }
            Item::Event { id, name, data } => {
                let seq = seq_of(&id.expect("an id"));
                match self.plan.is_many {
                    true => {
                        check_envelope(log, &serde_json::from_str(&data).expect("JSON"));
                        assert_eq!(name, None);
                    }
                    false => check_event(log, seq, name.as_deref(), &data),
                }
                self.view.message(log, seq);
            }
        }
    }

    /// One frame of a WebSocket.
    fn frame(&mut self, sim: &mut Net, rng: &mut Rng, log: &Log, frame: Frame) {
        assert!(!self.has_farewell, "behind the end: {frame:?}");
        let Some(connection) = self.connection else { return };
        match frame.kind() {
            CLOSE => {
                let code = u16::from_be_bytes(frame.payload[..2].try_into().unwrap());
                let expected: &[u16] = if self.closes { &[1000, 1002, 1012] } else { &[1012] };
                assert!(expected.contains(&code), "closed with {code}");
                self.has_farewell = true;
            }
            PING => {
                self.signs_of_life += 1;
                let mut out = Vec::new();
                put_frame(&mut out, rng, PONG, true, &frame.payload);
                if !self.closes {
                    sim.write(connection, &out);
                }
            }
            PONG => assert_eq!(frame.payload, b"?"),
            kind => self.data(log, kind, &frame.data()),
        }
    }

    /// The reply to the last command has come.
    fn obeyed(&mut self, log: &Log) {
        assert!(std::mem::take(&mut self.is_commanding), "a reply that nobody asked for");
        self.view.obeyed(log);
    }

    /// A frame of data: a message, or an object that says something else.
    fn data(&mut self, log: &Log, kind: u8, payload: &[u8]) {
        let object: Option<Value> = match (self.plan.is_many, payload.starts_with(b"{\"")) {
            (true, _) => Some(serde_json::from_slice(payload).unwrap_or_else(|error| {
                panic!("{error}: {:?}", String::from_utf8_lossy(payload));
            })),
            (false, true) => serde_json::from_slice(payload).ok(),
            (false, false) => None,
        };
        let Some(object) = object else {
            let seq = log.seq_of(payload);
            let message = &log.entry(seq).message;
            let is_text = message.content_type() != "application/octet-stream"
                && std::str::from_utf8(payload).is_ok();
            assert_eq!(kind, if is_text { TEXT } else { BINARY });
            return self.view.message(log, seq);
        };
        assert_eq!(kind, TEXT);
        if let Some(error) = object.get("error") {
            assert!(self.errors_due > 0, "{error}");
            self.errors_due -= 1;
            return;
        }
        if let Some(cursor) = object.get("cursor") {
            assert!(self.plan.is_many);
            return self.view.told_cursor(log, seq_of(cursor.as_str().unwrap()));
        }
        if let Some(ok) = object.get("ok") {
            assert_eq!(ok["id"], self.commands);
            if let Some(cursor) = ok.get("cursor") {
                self.view.told_cursor(log, seq_of(cursor.as_str().unwrap()));
            }
            return self.obeyed(log);
        }
        match read_object(log, &object) {
            Object::Gap(gap) => self.view.gap(log, gap, EPOCH),
            Object::Message(seq) => self.view.message(log, seq),
        }
    }

    /// The filters that the server counts it for.
    pub(super) fn filters(&self) -> &[String] {
        &self.view.filters
    }
}

pub(super) enum Object {
    Gap(Gap),
    Message(u64),
}

/// A gap, a deletion or an envelope.
pub(super) fn read_object(log: &Log, object: &Value) -> Object {
    if let Some(gap) = object.get("gap") {
        return Object::Gap(gap_of(gap));
    }
    if object.get("deleted").is_none() {
        return Object::Message(check_envelope(log, object));
    }
    let seq = seq_of(object["id"].as_str().unwrap());
    assert!(log.entry(seq).message.is_deletion());
    let topic = &log.entry(seq).topic;
    let id = format!("{EPOCH}-{seq}");
    assert_eq!(*object, serde_json::json!({"topic": topic, "id": id, "deleted": true}));
    Object::Message(seq)
}

fn gap_of(gap: &Value) -> Gap {
    let since = gap.get("since").map(|since| since.as_str().unwrap().to_owned());
    (gap["reason"].as_str().unwrap().to_owned(), since)
}

pub(super) fn seq_of(id: &str) -> u64 {
    let seq = id.strip_prefix(EPOCH).and_then(|rest| rest.strip_prefix('-'));
    seq.unwrap_or_else(|| panic!("an id of another life: {id}")).parse().expect("a number")
}

/// An event of a stream of one topic.
fn check_event(log: &Log, seq: u64, name: Option<&str>, data: &str) {
    let entry = log.entry(seq);
    let text = std::str::from_utf8(entry.message.data()).expect("bytes come in an envelope");
    assert!(!entry.message.is_deletion());
    assert_eq!(name, entry.message.event());
    assert!(data == text.replace("\r\n", "\n").replace('\r', "\n"), "{seq} is spoilt");
}

/// A message that comes with all there is to say. Returns its number.
fn check_envelope(log: &Log, envelope: &Value) -> u64 {
    let seq = seq_of(envelope["id"].as_str().expect("an id"));
    let entry = log.entry(seq);
    let message = &entry.message;
    assert_eq!(envelope["topic"], entry.topic.as_str());
    assert_eq!(envelope["type"], message.content_type());
    assert_eq!(envelope.get("event").and_then(Value::as_str), message.event());
    let (member, data) = match std::str::from_utf8(message.data()) {
        Err(_) => ("data_base64", base64(message.data()).into()),
        Ok(text) if message.content_type() == "application/json" => {
            ("data", serde_json::from_str(text).unwrap())
        }
        Ok(text) => ("data", Value::from(text)),
    };
    assert!(envelope[member] == data, "{seq} is spoilt");
    seq
}

fn base64(data: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(data)
}
