//! Publishers: what they publish, and a client that does so by PUT and DELETE.

use super::super::CONTROL;
use super::super::net::{Client, Net};
use super::log::Log;
use super::reader::{Mood, seq_of};
use std::collections::VecDeque;
use stentor_hub::{CacheControl, ContentType, Draft, EventName};
use stentor_io::Rng;
use stentor_test::http::Response;

/// Makes data of which no two are the same.
#[derive(Debug)]
pub(super) struct Source {
    number: u64,
    /// Data is this long at the most, and larger only now and then.
    usual_bytes: usize,
    bytes_max: usize,
}

/// A message to be published.
#[derive(Debug)]
pub(super) struct Datum {
    pub(super) data: Vec<u8>,
    pub(super) content_type: ContentType,
    pub(super) event: Option<&'static str>,
    cache_control: Option<&'static str>,
}

impl Datum {
    pub(super) fn draft(&self) -> Draft {
        let content_type = ContentType::parse(self.content_type.as_str()).unwrap();
        let mut draft = Draft::new(self.data.clone()).with_content_type(content_type);
        if let Some(event) = self.event {
            draft = draft.with_event(EventName::parse(event).unwrap());
        }
        match self.cache_control {
            Some(text) => draft.with_cache_control(CacheControl::parse(text).unwrap()),
            None => draft,
        }
    }
}

impl Source {
    /// What it makes is numbered from `number` on.
    pub(super) fn new(number: u64, window_bytes: usize) -> Source {
        let (usual_bytes, bytes_max) = match window_bytes {
            0..100 => (20, 60),
            100..5_000 => (100, 2_500),
            _ => (300, 150_000),
        };
        Source { number, usual_bytes, bytes_max }
    }

    pub(super) fn next(&mut self, rng: &mut Rng, is_small: bool) -> Datum {
        self.number += 1;
        let number = self.number;
        let length = match rng.below(100) {
            _ if is_small => 0,
            0..4 => rng.below(self.bytes_max),
            _ => rng.below(self.usual_bytes),
        };
        let (data, content_type) = match rng.below(5) {
            0 => {
                let padding = "x\\n\u{e4}".repeat(length / 5);
                (format!("[{number},\"{padding}\"]").into_bytes(), ContentType::JSON)
            }
            1 => {
                let bytes = (0..length).map(|_| rng.next_u64() as u8);
                let data = format!("{number} ").into_bytes().into_iter().chain(bytes);
                (data.chain([0xff]).collect(), ContentType::OCTETS)
            }
            kind => {
                let pieces = ["\n", "\r\n", "\r", ":", " ", "data: x\n", "\u{e4}\u{1f600}", "all"];
                let mut text = format!("{number} ");
                while text.len() < length {
                    text.push_str(pieces[rng.below(pieces.len())]);
                }
                let is_plain = kind < 4;
                let content_type = if is_plain { ContentType::TEXT } else { ContentType::OCTETS };
                (text.into_bytes(), content_type)
            }
        };
        let event = rng.percent(15).then_some("tick");
        let cache_control = rng.percent(15).then_some("max-age=7");
        Datum { data, content_type, event, cache_control }
    }
}

/// A client that publishes.
#[derive(Debug, Default)]
pub(super) struct Putter {
    connection: Option<Client>,
    input: Vec<u8>,
    /// The data of what is not answered yet; without, it is a deletion.
    due: VecDeque<Option<Vec<u8>>>,
}

impl Putter {
    pub(super) fn connection(&self) -> Option<Client> {
        self.connection
    }

    pub(super) fn is_done(&self) -> bool {
        self.due.is_empty()
    }

    /// Sends a PUT, or a DELETE.
    pub(super) fn put(&mut self, sim: &mut Net, log: &mut Log, topic: &str, datum: Option<Datum>) {
        let connection = *self.connection.get_or_insert_with(|| sim.connect(CONTROL));
        let Some(Datum { data, content_type, event, cache_control }) = datum else {
            let request = format!("DELETE {topic} HTTP/1.1\r\nHost: h\r\n\r\n");
            sim.write(connection, request.as_bytes());
            return self.due.push_back(None);
        };
        log.expect(topic, &data, content_type.as_str());
        let field = |name: &str, value: Option<&str>| {
            value.map_or(String::new(), |value| format!("{name}: {value}\r\n"))
        };
        let event = field("Stentor-Event", event);
        let cache_control = field("Cache-Control", cache_control);
        let head = format!(
            "PUT {topic} HTTP/1.1\r\nHost: h\r\n{event}{cache_control}\
             Content-Type: {}\r\nContent-Length: {}\r\n\r\n",
            content_type.as_str(),
            data.len()
        );
        sim.write(connection, head.as_bytes());
        sim.write(connection, &data);
        self.due.push_back(Some(data));
    }

    /// Reads what is answered.
    pub(super) fn play(&mut self, sim: &mut Net, log: &Log, mood: Mood) {
        let Some(connection) = self.connection else { return };
        let ended = sim.ended(connection);
        self.input.extend(sim.read(connection));
        while !self.due.is_empty()
            && let Some(answer) = Response::take(&mut self.input)
        {
            match (self.due.pop_front().unwrap(), answer.status) {
                (None, 200 | 404) => {}
                (_, 408) if mood.draining => {}
                // It could not be committed, and nobody has seen it.
                (None, 503) => {}
                (Some(data), 503) => assert_eq!(log.published_seq(&data), None),
                (Some(data), 200 | 201) => {
                    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                    assert_eq!(seq_of(body["id"].as_str().unwrap()), log.seq_of(&data));
                }
                _ => panic!("{}", answer.head),
            }
        }
        if ended {
            let broken = sim.was_reset(connection) && (!sim.was_cut(connection) || mood.may_be_cut);
            // While memory is short it may be silent for a second only.
            let is_silent = log.memory_gets_short && self.input.is_empty();
            assert!(broken || mood.draining || is_silent, "the server cut a publisher");
            sim.finish_client(connection);
            *self = Putter::default();
        }
    }
}
