//! Every way to read, seen alike: what is true of streams is tested over all of them.

use super::{Client, EventStream, Message, Url, WebSocket};
use serde_json::Value;
use std::collections::VecDeque;

/// A way to read one topic as it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Events,
    WebSocket,
    /// With messages deflated.
    Deflated,
    /// Among many, though it is one here.
    ManyEvents,
    ManyWebSocket,
    /// `stentor.v1`: subscribed to while connected.
    Subscribed,
    ManyPolls,
    /// One value at a time: skips what was overtaken, and cannot speak of gaps.
    Polls,
}

impl Way {
    /// Those that tell everything.
    pub(crate) const STREAMS: [Way; 7] = [
        Way::Events,
        Way::WebSocket,
        Way::Deflated,
        Way::ManyEvents,
        Way::ManyWebSocket,
        Way::Subscribed,
        Way::ManyPolls,
    ];

    /// All of them.
    pub(crate) fn all() -> Vec<Way> {
        Way::STREAMS.into_iter().chain([Way::Polls]).collect()
    }

    /// Whether its messages bring their ids.
    pub(crate) fn has_ids(self) -> bool {
        !matches!(self, Way::WebSocket | Way::Deflated)
    }
}

/// What a reader hears. What a way does not tell is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Message { id: String, topic: String, data: String },
    Gap { reason: String, since: String },
    Deleted { id: String, topic: String },
}

impl Heard {
    /// The data of a message; anything else is a failure.
    #[track_caller]
    pub(crate) fn data(self) -> String {
        match self {
            Heard::Message { data, .. } => data,
            other => panic!("no message: {other:?}"),
        }
    }
}

/// A reader of one topic.
pub(crate) struct Reader {
    pub(crate) way: Way,
    /// Where it is, as far as it was told; empty if it was not.
    pub(crate) cursor: String,
    inner: Inner,
    heard: VecDeque<Heard>,
}

enum Inner {
    Events(EventStream),
    WebSocket(WebSocket),
    Polls { client: Client, topic: String, query: String, since: String },
}

impl Reader {
    /// Reads `topic`, plain text, behind the cursor `since` if it is not empty; `mode` is empty or
    /// one of the two.
    #[track_caller]
    pub(crate) fn open(way: Way, url: Url, topic: &str, mode: &str, since: &str) -> Reader {
        let since_field = if since.is_empty() { String::new() } else { format!("&since={since}") };
        let mode = if mode.is_empty() { String::new() } else { format!("&mode={mode}") };
        let one = format!("{topic}?_{mode}{since_field}");
        let many = format!("/-/events?topic={topic}{mode}{since_field}");
        let deflate = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
        let protocol = "Sec-WebSocket-Protocol: chat, stentor.v1\r\n";
        let inner = match way {
            Way::Events => Inner::Events(EventStream::open(url, &one, "")),
            Way::ManyEvents => Inner::Events(EventStream::open(url, &many, "")),
            Way::WebSocket => Inner::WebSocket(WebSocket::open(url, &one, "")),
            Way::Deflated => Inner::WebSocket(WebSocket::open(url, &one, deflate)),
            Way::ManyWebSocket => Inner::WebSocket(WebSocket::open(url, &many, "")),
            Way::Subscribed => {
                let target = format!("/-/events?{}", mode.trim_start_matches('&'));
                let mut socket = WebSocket::open(url, &target, protocol);
                assert_eq!(socket.head.field("sec-websocket-protocol"), Some("stentor.v1"));
                let since = unescaped(since);
                let command = serde_json::json!({"subscribe": [topic], "since": since});
                socket.send(super::TEXT, command.to_string());
                socket.settle();
                Inner::WebSocket(socket)
            }
            Way::ManyPolls | Way::Polls => Inner::Polls {
                client: Client::connect(url.0),
                topic: topic.to_owned(),
                query: format!("wait=25{mode}"),
                since: since.to_owned(),
            },
        };
        Reader { way, cursor: String::new(), inner, heard: VecDeque::new() }
    }

    /// One for each way to read a topic, which have heard its value.
    #[track_caller]
    pub(crate) fn of_all_ways(url: Url, topic: &str, value: &str) -> Vec<Reader> {
        let open = |way| {
            let mut reader = Reader::open(way, url, topic, "", "");
            assert_eq!(reader.data(), value, "{way:?}");
            reader
        };
        Way::all().into_iter().map(open).collect()
    }

    /// What comes next.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Heard {
        self.try_hear().unwrap_or_else(|| panic!("the stream ended: {:?}", self.way))
    }

    /// What comes next; `None` at the end of the stream.
    #[track_caller]
    pub(crate) fn try_hear(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                self.cursor = id(&heard).unwrap_or(std::mem::take(&mut self.cursor));
                return Some(heard);
            }
            let Reader { way, cursor, inner, heard } = self;
            match inner {
                Inner::Events(stream) => {
                    let event = stream.try_event().ok()?;
                    *cursor = stream.cursor.take().unwrap_or(std::mem::take(cursor));
                    let is_plain = *way == Way::Events && event.name.is_none();
                    let told = match is_plain {
                        true => Value::String(event.data),
                        false => parse(&event.data),
                    };
                    heard.push_back(understand(&told, event.id.as_deref().unwrap_or_default()));
                }
                Inner::WebSocket(socket) => match socket.try_message().ok()? {
                    Message::Text(text) if way.has_ids() || text.starts_with('{') => {
                        let told = parse(&text);
                        match (told["cursor"].as_str(), told["ok"]["cursor"].as_str()) {
                            (Some(place), _) | (_, Some(place)) => *cursor = place.to_owned(),
                            _ => heard.push_back(understand(&told, "")),
                        }
                    }
                    Message::Text(text) => heard.push_back(understand(&Value::String(text), "")),
                    Message::Binary(data) => panic!("no text: {data:?}"),
                },
                Inner::Polls { client, topic, query, since } if *way == Way::Polls => {
                    let response = client.get(&format!("{topic}?{query}&since={since}"));
                    if response.status == 200 {
                        *since = response.tag().trim_matches('"').to_owned();
                        let told = Value::String(response.text().to_owned());
                        heard.push_back(understand(&told, since));
                    }
                }
                Inner::Polls { client, topic, query, since } => {
                    let target = format!("/-/events?topic={topic}&{query}&since={since}");
                    let response = client.get(&target);
                    if response.status == 200 {
                        let told = response.json();
                        let events = told["events"].as_array().unwrap();
                        heard.extend(events.iter().map(|event| understand(event, "")));
                        *since = told["cursor"].as_str().expect("a cursor").to_owned();
                        if heard.is_empty() {
                            *cursor = since.clone();
                        }
                    }
                }
            }
        }
    }

    /// The data of the next message.
    #[track_caller]
    pub(crate) fn data(&mut self) -> String {
        self.hear().data()
    }

    /// Sees that all numbers beneath `count` come, once and in order.
    #[track_caller]
    pub(crate) fn hear_numbers(&mut self, count: u32) {
        let mut next = 0;
        while next < count {
            let number: u32 = self.data().parse().unwrap();
            // A poll skips what was overtaken.
            let is_next = number == next || self.way == Way::Polls && number > next;
            assert!(is_next, "{number} instead of {next}: {:?}", self.way);
            next = number + 1;
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn id(heard: &Heard) -> Option<String> {
    match heard {
        Heard::Message { id, .. } | Heard::Deleted { id, .. } if !id.is_empty() => Some(id.clone()),
        _ => None,
    }
}

/// An envelope, one of the server's own objects, or bare data, which is a string here.
#[track_caller]
fn understand(told: &Value, id: &str) -> Heard {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let gap = &told["gap"];
    if gap.is_object() {
        let resume = match gap["reason"].as_str() {
            Some("history_trimmed") => "history",
            Some("too_many_topics") => "live",
            _ => "values",
        };
        assert_eq!(gap["resume"], resume, "{told}");
        return Heard::Gap { reason: text(&gap["reason"]), since: text(&gap["since"]) };
    }
    if told["deleted"] == true {
        assert!(id.is_empty() || told["id"] == id, "{told} {id}");
        return Heard::Deleted { id: text(&told["id"]), topic: text(&told["topic"]) };
    }
    if let Some(data) = told.as_str() {
        return Heard::Message { id: id.to_owned(), topic: String::new(), data: data.to_owned() };
    }
    assert!(id.is_empty() || told["id"] == id, "{told} {id}");
    assert_eq!(told["type"], "text/plain", "{told}");
    let (id, topic, data) = (text(&told["id"]), text(&told["topic"]), text(&told["data"]));
    assert!(!id.is_empty() && topic.starts_with('/'), "{told}");
    Heard::Message { id, topic, data }
}

/// What a cursor in a URL stands for.
fn unescaped(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).unwrap());
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
