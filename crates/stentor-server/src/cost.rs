//! What answers and messages consist of, byte by byte: what `stentor check --cost` shows.
//!
//! Nothing here knows how long anything is. A worker without a network is asked as clients ask it,
//! with values of the wished size, under the settings that are to be judged; what it would have
//! sent is taken apart. What changes in the server so changes here.

use crate::access::Bearer;
use crate::budget::Permit;
use crate::connection::poll::{answer_array, write_array};
use crate::context::Context;
use crate::endpoint;
use crate::exchange::{Answer, Exchange};
use crate::head;
use crate::keys::TokenState;
use crate::large_body::Mark;
use crate::listeners::PUBLIC;
use crate::mailbox::Mailbox;
use crate::paths::EVENTS;
use crate::response::Persistence;
use crate::route;
use crate::shared::{ProcessState, Shared};
use std::io;
use std::sync::Arc;
use stentor_access::Keys;
use stentor_config::{Lookup, Settings};
use stentor_hub::{
    ContentType, Draft, Epoch, Event, Hub, Id, JsonPlace, Limits, Mode, Op, Place, Precondition,
    Rule, Span, StreamForm,
};
use stentor_order::{Applier, Committer, Compressor, Ticket};
use stentor_wire::http1::{Method, Request};
use stentor_wire::lookup::{PieceKind, json_string_len};
use stentor_wire::target::TopicName;

/// Something that is sent, and what it consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// What it is, in a few words.
    pub title: String,
    /// What it consists of, in the order of the bytes.
    pub rows: Vec<Row>,
}

/// A part of what is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The bytes themselves, as text, or what they are.
    pub label: String,
    /// How many they are.
    pub bytes: usize,
}

impl Account {
    /// How many bytes it has in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}

/// What is sent under `settings` for values of so many bytes: of each rule for topics the answers
/// and the messages, and of each look-up route a line and an answer.
///
/// # Errors
///
/// If the host lacks files or memory for a worker, or a value of that size, or at the topic that
/// a look-up asks for, cannot be published.
pub fn accounts(settings: &Settings, value_bytes: usize) -> io::Result<Vec<Account>> {
    let mut accounts = Vec::new();
    // No file is looked for.
    let base = Settings { mounts: Vec::new(), ..settings.clone() };
    let rules = match settings.topics.as_slice() {
        [] => &[Rule::default()][..],
        rules => rules,
    };
    for (at, rule) in rules.iter().enumerate() {
        // Alone: another rule, or a route, may answer for the sample.
        let content_types = base.content_types.get(at).cloned().into_iter().collect();
        let (topics, lookups) = (vec![rule.clone()], Vec::new());
        let desk = Desk::new(Settings { topics, content_types, lookups, ..base.clone() })?;
        accounts.extend(of_rule(desk, rule, value_bytes)?);
    }
    for lookup in &settings.lookups {
        let desk = Desk::new(Settings { lookups: vec![lookup.clone()], ..base.clone() })?;
        accounts.extend(of_lookup(desk, lookup, value_bytes)?);
    }
    Ok(accounts)
}

/// A worker without a network.
struct Desk {
    cx: Context,
    hub: Arc<Hub>,
}

impl Desk {
    fn new(settings: Settings) -> io::Result<Desk> {
        let epoch = Epoch::parse("5f3a09c1").expect("it is eight digits");
        let limits = Limits {
            topics_max: settings.limits.topics_max,
            message_bytes_max: settings.limits.message_bytes_max,
            ..stentor_hub::Limits::default()
        };
        let hub = Arc::new(Hub::new(epoch, settings.topics.clone(), limits));
        // Ids are as long as they are after a million messages.
        hub.continue_after(1_000_000, Vec::new());
        let unix_s = stentor_io::unix_s();
        // The plain form is shown: no thread compresses.
        let committer = Committer::new(Applier::new(Arc::clone(&hub), Compressor::new().0), None);
        let client = endpoint::client::module(unix_s);
        let tokens = TokenState::new(Arc::new(Keys::none()), 0)?;
        let process = ProcessState {
            started_unix_s: unix_s,
            process_started_unix_s: unix_s,
            ..ProcessState::default()
        };
        let shared = Arc::new(Shared::new(committer, client, tokens, 1, process)?);
        let stats = Arc::clone(&shared.workers[0]);
        let mailbox = Arc::new(Mailbox::new()?);
        let mut cx = Context::new(shared, Arc::new(settings), stats, mailbox, 1);
        cx.tick(0, 0, unix_s);
        Ok(Desk { cx, hub })
    }

    /// Publishes a value as somebody would who names no type, or text if the rule names none.
    fn publish(&self, topic: &str, bytes: usize) -> io::Result<Event> {
        let refused = |reason: String| io::Error::other(format!("{topic} as a sample: {reason}"));
        let name = TopicName::parse(topic).map_err(|it| refused(it.into()))?;
        let content_type = self.cx.settings.content_type(topic).unwrap_or(&ContentType::TEXT);
        let draft = Draft::new(sample(content_type, bytes)).with_content_type(content_type.clone());
        let op = Op::Put(name.clone(), draft);
        let entry = self.hub.admit(op, Precondition::None, self.cx.clock.unix_s);
        let entry = entry.map_err(|refusal| refused(format!("{refusal:?}")))?;
        let before = self.hub.seq();
        let applied = self.cx.shared.committer.applier().apply(entry, Place::Next);
        applied.map_err(|error| refused(format!("{error:?}")))?;
        let mut events = Vec::new();
        let span = Span { since: before, upto: u64::MAX, mode: Mode::All };
        self.hub.missed(&name, span, usize::MAX, &mut events);
        events.pop().ok_or_else(|| refused("it is not there".to_owned()))
    }

    /// What a GET is answered with: the bytes that are made for it, and how many follow them that
    /// are shared.
    fn get(&mut self, target: &str, tag: Option<&str>) -> (Vec<u8>, usize) {
        let mut request = Request::new(Method::Get, target.as_bytes());
        request.if_none_match = tag.map(str::as_bytes);
        self.exchange(&request, route::answer)
    }

    fn exchange(
        &mut self,
        request: &Request<'_>,
        answer: impl FnOnce(&mut Exchange<'_>, &Request<'_>) -> Answer,
    ) -> (Vec<u8>, usize) {
        let persistence = Persistence { keep_alive: true, http10: false };
        let mut x =
            self.cx.exchange(PUBLIC, request, persistence, Ticket::of_nobody(), &Permit::SMALL);
        // What is private costs as much as all else.
        x.requester.bearer = Bearer::Judged;
        if let Answer::Body(body) = answer(&mut x, request) {
            body.append_rest(Mark::default(), self.cx.out.bytes());
        }
        let made = self.cx.out.bytes().clone();
        let shared = self.cx.out.len() - made.len();
        self.cx.out.clear();
        (made, shared)
    }
}

/// A value of that size: JSON or text, without anything that would have to be escaped.
fn sample(content_type: &ContentType, bytes: usize) -> Vec<u8> {
    if content_type.as_str().contains("json") && bytes >= 2 {
        return [b"\"", &vec![b'v'; bytes - 2][..], b"\""].concat();
    }
    vec![b'1'; bytes]
}

/// What there is under one rule, which is the only one.
fn of_rule(mut desk: Desk, rule: &Rule, bytes: usize) -> io::Result<Vec<Account>> {
    let pattern = rule.pattern.as_str();
    let topic = pattern.replace("**", "*").replace('*', SAMPLE_NAME);
    let event = desk.publish(&topic, bytes)?;
    let named = |what: &str| format!("{pattern}: {what}");
    let data = event.message.data();
    let (value, shared) = desk.get(&topic, None);
    let mut rows = head(&value);
    rows.push(Row { label: DATA.to_owned(), bytes: value.len() + shared - sum(&rows) });
    let mut accounts = vec![Account { title: named("a value, also by long-poll (200)"), rows }];

    let tag = format!("\"{}\"", event.message.id());
    let (unchanged, _) = desk.get(&topic, Some(&tag));
    accounts.push(Account {
        title: named("no other value than the client's (304)"),
        rows: head(&unchanged),
    });

    let forms = [
        (StreamForm::SseChunk, "an event of Server-Sent Events, in its chunk"),
        (StreamForm::EnvelopeSseChunk, "the same from /-/events, which names the topic"),
        (StreamForm::Frame, "a WebSocket frame"),
        (StreamForm::EnvelopeFrame, "the same from /-/events (stentor.v1)"),
    ];
    for (form, what) in forms {
        let rows = message(&event, form, &event.streamed(form));
        accounts.push(Account { title: named(what), rows });
    }

    let mut body = Vec::new();
    let id_of = |seq| Id { epoch: desk.hub.epoch(), seq };
    let found = std::slice::from_ref(&event);
    let rest = write_array(&mut body, [None, None], found, event.seq(), id_of);
    let (array, _) = desk.exchange(&Request::new(Method::Get, EVENTS), |x, _| {
        x.resources.scratch.body.extend_from_slice(&body);
        answer_array(x, rest)
    });
    let mut rows = head(&array);
    let body = &array[sum(&rows)..];
    rows.extend(pieces(body, data, &ENVELOPE_CUTS));
    accounts.push(Account { title: named("a long-poll of /-/events with one message"), rows });
    Ok(accounts)
}

/// What a look-up route answers: a line, and all of an answer.
fn of_lookup(mut desk: Desk, lookup: &Lookup, bytes: usize) -> io::Result<Vec<Account>> {
    let names_max = desk.cx.settings.limits.names_max.min(NAMES);
    let names: Vec<String> = (1..=names_max).map(|n| format!("sz{n:06}")).collect();
    let (mut line, mut values, mut names_bytes) = (Vec::new(), 0, 0);
    for name in &names {
        let mut topic = Vec::new();
        lookup.topics.write(&mut topic, name, b"");
        let message = desk.publish(&String::from_utf8_lossy(&topic), bytes)?.message;
        line = match &lookup.line {
            Some(template) => {
                let pieces = template.filled(name, message.data());
                pieces.map(|(kind, piece)| (kind, readable(piece), piece.len())).collect()
            }
            None => vec![
                (PieceKind::Value, VALUE.to_owned(), message.json_len(JsonPlace::Value)),
                (PieceKind::Name, NAME.to_owned(), json_string_len(name)),
                (PieceKind::Literal, "braces and colon".to_owned(), b"{:}".len()),
            ],
        };
        let of = |wanted| line.iter().filter(move |piece| piece.0 == wanted).map(|piece| piece.2);
        values += of(PieceKind::Value).sum::<usize>();
        names_bytes += of(PieceKind::Name).sum::<usize>();
    }
    let line = line.into_iter().map(|(kind, text, bytes)| match kind {
        PieceKind::Literal => Row { label: text, bytes },
        PieceKind::Name => Row { label: NAME.to_owned(), bytes },
        PieceKind::Value => Row { label: VALUE.to_owned(), bytes },
    });
    let line = line.collect();
    let (answer, _) = desk.get(&format!("{}{}", lookup.path, names.join(",")), None);
    let mut rows = head(&answer);
    let template = answer.len() - sum(&rows) - values - names_bytes;
    let body = [(VALUE, values), (NAME, names_bytes), ("template, with line ends", template)];
    rows.extend(body.map(|(label, bytes)| Row { label: label.to_owned(), bytes }));
    let path = &lookup.path;
    let answer = format!("{path}: an answer with {} names", names.len());
    let line = Account { title: format!("{path}: one name, alone"), rows: line };
    Ok(vec![line, Account { title: answer, rows }])
}

fn sum(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.bytes).sum()
}

/// The lines of the head that `answer` begins with.
fn head(answer: &[u8]) -> Vec<Row> {
    let row = |line: &[u8]| {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        let label = if text.is_empty() { "(empty line)".to_owned() } else { text };
        Row { label, bytes: line.len() }
    };
    head::lines(answer).map(row).collect()
}

/// What a message consists of in one of the forms that streams are sent.
fn message(event: &Event, form: StreamForm, bytes: &[u8]) -> Vec<Row> {
    let data = event.message.data();
    let payload = match form {
        StreamForm::Frame => data.len(),
        StreamForm::EnvelopeFrame => event.streamed(StreamForm::Envelope).len(),
        _ => return pieces(bytes, data, &EVENT_CUTS),
    };
    let (header, payload) = bytes.split_at(bytes.len() - payload);
    let mut rows = vec![Row { label: "(frame header)".to_owned(), bytes: header.len() }];
    rows.extend(pieces(payload, data, &ENVELOPE_CUTS));
    rows
}

/// Takes bytes apart around the data in them, which is the last that looks like it, and before any
/// of `cuts`.
fn pieces(bytes: &[u8], data: &[u8], cuts: &[&str]) -> Vec<Row> {
    let at = memchr::memmem::rfind(bytes, data).expect("nothing in a sample is escaped");
    let mut places: Vec<usize> = cuts
        .iter()
        .filter_map(|cut| memchr::memmem::find(&bytes[..at], cut.as_bytes()))
        .chain([0, at])
        .collect();
    places.sort_unstable();
    let row = |piece: &[u8]| Row { label: readable(piece), bytes: piece.len() };
    let before = places.windows(2).map(|ends| row(&bytes[ends[0]..ends[1]]));
    let mut rows: Vec<Row> = before.filter(|row| row.bytes > 0).collect();
    rows.push(Row { label: DATA.to_owned(), bytes: data.len() });
    rows.extend(Some(row(&bytes[at + data.len()..])).filter(|row| row.bytes > 0));
    rows
}

/// Bytes as text, with line ends that can be seen.
fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\r', "\\r").replace('\n', "\\n")
}

/// Where the events of streams are cut into parts.
const EVENT_CUTS: [&str; 6] =
    ["id: ", "data: ", "{\"topic\":", ",\"id\":", ",\"type\":", ",\"data\":"];

/// Where the JSON is that names the topic.
const ENVELOPE_CUTS: [&str; 4] = ["{\"topic\":", ",\"id\":", ",\"type\":", ",\"data\":"];

/// What stands for the stars of a pattern.
const SAMPLE_NAME: &str = "sz000609";

/// How many names are looked up at once.
const NAMES: usize = 10;

const DATA: &str = "(data)";
const NAME: &str = "(names)";
const VALUE: &str = "(values)";

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "[[topics]]\nmatch = '/quotes/*'\nleave_out = ['last-modified', 'vary']\n\
        [[topics]]\nmatch = '/**'\ncontent_type = 'application/json'\n\
        [[lookup]]\npath = '/list='\ntopics = '/quotes/{name}'\n\
        line = 'var hq_str_{name}=\"{value}\";'\n\
        [[lookup]]\npath = '/json='\ntopics = '/quotes/{name}'\nleave_out = 'cache-control'\n";

    fn of(bytes: usize) -> Vec<Account> {
        let settings = Settings::from_toml(TOML, "f").unwrap();
        settings.validate().unwrap();
        accounts(&settings, bytes).unwrap()
    }

    fn find<'a>(accounts: &'a [Account], title: &str) -> &'a Account {
        accounts.iter().find(|account| account.title.contains(title)).unwrap()
    }

    fn labels(account: &Account) -> Vec<(&str, usize)> {
        account.rows.iter().map(|row| (&*row.label, row.bytes)).collect()
    }

    #[test]
    fn a_line_is_taken_apart_as_its_template_says() {
        let accounts = of(100);
        let line = find(&accounts, "/list=: one name");
        let expected =
            [("var hq_str_", 11), ("(names)", 8), ("=\"", 2), ("(values)", 100), ("\";", 2)];
        assert_eq!(labels(line), expected);
        let answer = find(&accounts, "/list=: an answer");
        let body = labels(answer).split_off(answer.rows.len() - 3);
        let template = ("template, with line ends", 10 * 15 + 9);
        assert_eq!(body, [("(values)", 1000), ("(names)", 80), template]);
        let length = format!("Content-Length: {}", 1000 + 80 + 159);
        assert!(labels(answer).contains(&(&length, length.len() + 2)), "{answer:?}");
        let json = find(&accounts, "/json=: one name");
        let expected = [("(values)", 102), ("(names)", 10), ("braces and colon", 3)];
        assert_eq!(labels(json), expected);
        assert!(!format!("{:?}", find(&accounts, "/json=: an answer")).contains("Cache-Control"));
    }

    #[test]
    fn heads_are_those_that_are_sent() {
        let accounts = of(100);
        let value = find(&accounts, "/quotes/*: a value");
        let text = labels(value);
        assert_eq!(text[0], ("HTTP/1.1 200 OK", 17));
        assert_eq!(text[text.len() - 1], ("(data)", 100));
        assert!(text.contains(&("ETag: \"5f3a09c1-1000001\"", 26)));
        assert!(!format!("{text:?}").contains("Vary") && !format!("{text:?}").contains("Last-Mod"));
        let value = find(&accounts, "/**: a value");
        assert!(labels(value).contains(&("Content-Type: application/json", 32)), "{value:?}");
        assert!(labels(value).contains(&("Vary: Accept", 14)));
        let unchanged = find(&accounts, "/**: no other value");
        assert_eq!(labels(unchanged)[0], ("HTTP/1.1 304 Not Modified", 27));
        // Large ones are sent from where they are.
        assert_eq!(labels(&of(100_000)[0]).last(), Some(&("(data)", 100_000)));
    }

    #[test]
    fn messages_are_framing_and_data() {
        let accounts = of(100);
        let event = find(&accounts, "/quotes/*: an event");
        let expected = [
            ("81\\r\\n", 4),
            ("id: 5f3a09c1-1000001\\n", 21),
            ("data: ", 6),
            ("(data)", 100),
            ("\\n\\n\\r\\n", 4),
        ];
        assert_eq!(labels(event), expected);
        let frame = find(&accounts, "/quotes/*: a WebSocket frame");
        assert_eq!(labels(frame), [("(frame header)", 2), ("(data)", 100)]);
        let many = find(&accounts, "/**: the same from /-/events (stentor.v1)");
        let expected = [
            ("(frame header)", 4),
            ("{\"topic\":\"/sz000609\"", 20),
            (",\"id\":\"5f3a09c1-1000001\"", 24),
            (",\"type\":\"application/json\"", 26),
            (",\"data\":", 8),
            ("(data)", 100),
            ("}", 1),
        ];
        assert_eq!(labels(many), expected);
        let poll = find(&accounts, "/**: a long-poll");
        let body: usize = labels(poll)
            .iter()
            .skip_while(|(label, _)| !label.starts_with("{\"events\""))
            .map(|l| l.1)
            .sum();
        let length = format!("Content-Length: {body}");
        assert!(labels(poll).contains(&(&length, length.len() + 2)), "{poll:?}");
    }

    #[test]
    fn samples_of_every_size_are_found_again() {
        for bytes in [0, 1, 2, 3, 125, 126, 65_535, 65_536] {
            for account in of(bytes) {
                let shown: usize =
                    account.rows.iter().filter(|row| row.label == DATA).map(|row| row.bytes).sum();
                let carries = ["304", "one name", "an answer"]
                    .iter()
                    .all(|what| !account.title.contains(what));
                assert!(!carries || shown == bytes, "{account:?}");
            }
        }
    }
}
