//! A reader of a stream, which comes back with its cursor, also to the next life of the server.

use super::super::PUBLIC;
use super::super::net::{Client, Net};
use super::chronicle::{Chronicle, FLIP, Fate, TOPICS};
use serde_json::Value;
use stentor_io::Rng;
use stentor_test::http::Response;
use stentor_test::pattern::matches;
use stentor_test::sse::{Decoder, Item};

#[derive(Debug)]
pub(super) struct Reader {
    /// One topic, unless it is a pattern.
    filter: String,
    connection: Option<Client>,
    decoder: Option<Decoder>,
    input: Vec<u8>,
    /// What it has seen all up to, or begins behind.
    cursor: u64,
    /// Where it sees the values first: it is owed what is newer than this.
    values_upto: Option<u64>,
    /// The last number when a gap was told: below it something may be lost.
    gap_upto: u64,
    must_be_told: bool,
    /// What it was told of having been rolled back.
    pub(super) rollbacks: usize,
}

impl Reader {
    pub(super) fn new(rng: &mut Rng) -> Reader {
        let filter = match rng.below(4) {
            0 => "/**",
            // All of these are stored, always.
            1 => "/synced/**",
            _ => TOPICS[rng.below(TOPICS.len())].0,
        };
        Reader {
            filter: filter.to_owned(),
            connection: None,
            decoder: None,
            input: Vec::new(),
            cursor: 0,
            values_upto: None,
            gap_upto: 0,
            must_be_told: false,
            rollbacks: 0,
        }
    }

    /// The connection is no more.
    pub(super) fn leave(&mut self) {
        self.connection = None;
        self.decoder = None;
        self.input.clear();
        if self.values_upto.is_some() {
            // Perhaps not all values were seen.
            self.cursor = 0;
        }
    }

    /// Connects if it is not connected, hears what there is, or breaks off.
    pub(super) fn play(
        &mut self,
        sim: &mut Net,
        rng: &mut Rng,
        chronicle: &Chronicle,
        rests: bool,
    ) {
        let Some(connection) = self.connection else {
            if rests || rng.percent(20) {
                self.connect(sim, chronicle);
            }
            return;
        };
        self.hear(sim, connection, chronicle);
        if !rests && rng.percent(2) {
            sim.reset_client(connection);
            self.leave();
        }
    }

    fn connect(&mut self, sim: &mut Net, chronicle: &Chronicle) {
        let connection = sim.connect(PUBLIC);
        let is_many = self.filter.contains('*');
        let target = match is_many {
            true => format!("/-/events?topic={}", self.filter),
            false => self.filter.clone(),
        };
        let cursor = match self.cursor {
            0 => String::new(),
            seq => format!("Last-Event-ID: {}-{seq}\r\n", super::EPOCH),
        };
        let fields = format!("Host: h\r\nAccept: text/event-stream\r\n{cursor}");
        sim.write(connection, format!("GET {target} HTTP/1.1\r\n{fields}\r\n").as_bytes());
        self.connection = Some(connection);
        self.gap_upto = 0;
        self.must_be_told = chronicle.was_rolled_back(self.cursor);
        self.values_upto = (self.cursor == 0).then_some(u64::MAX);
    }

    fn hear(&mut self, sim: &mut Net, connection: Client, chronicle: &Chronicle) {
        self.input.extend(sim.read(connection));
        if self.decoder.is_none() {
            let Some(head) = Response::take_head(&mut self.input) else { return };
            assert_eq!(head.status, 200, "{}", head.head);
            self.decoder = Some(Decoder::behind(&head));
            self.values_upto = self.values_upto.map(|_| chronicle.last());
        }
        let decoder = self.decoder.as_mut().unwrap();
        for item in decoder.take(&std::mem::take(&mut self.input)) {
            match item {
                Item::Event { name, data, .. } if data.starts_with("{\"gap\"") => {
                    assert_eq!(name.as_deref(), Some("stentor"));
                    let notice: Value = serde_json::from_str(&data).unwrap();
                    self.gap(chronicle, &notice["gap"]);
                }
                // The cursor of a reader that was sent nothing.
                Item::Event { data, .. } if data.starts_with("{\"cursor\"") => {}
                Item::Event { id, name, data } => {
                    let id = id.expect("an id");
                    let seq = id.strip_prefix(super::EPOCH).expect("one EPOCH")[1..].parse();
                    self.message(chronicle, seq.unwrap(), name.as_deref(), &data);
                }
                Item::Id(_) | Item::Retry(_) | Item::Comment => {}
            }
        }
    }

    fn gap(&mut self, chronicle: &Chronicle, gap: &Value) {
        self.gap_upto = chronicle.last();
        let is_rolled_back = gap["reason"] == "rolled_back";
        assert_eq!(is_rolled_back, self.must_be_told, "behind {}: {gap}", self.cursor);
        if is_rolled_back {
            self.must_be_told = false;
            self.rollbacks += 1;
            self.cursor = 0;
            self.values_upto = Some(chronicle.last());
            return;
        }
        assert_eq!(gap["reason"], "history_trimmed");
        let is_lost = |topic: &str| {
            let is_unstored = topic == FLIP || topic == "/none/a";
            is_unstored
                || chronicle.after(topic, self.cursor).any(|(_, entry)| entry.data.is_none())
        };
        // Whoever looks at many names may have looked at the place of one that came back before.
        let came_back = |(topic, _): &(&str, _)| {
            let mut was_deleted = false;
            chronicle.after(topic, 0).any(|(seq, entry)| {
                let is_back = was_deleted && seq > self.cursor;
                was_deleted = entry.data.is_none();
                is_back
            })
        };
        let may_be_needless = self.filter.contains('*') && TOPICS.iter().any(came_back);
        assert!(
            may_be_needless || self.wanted().any(is_lost),
            "a gap behind {} though nothing is lost",
            self.cursor
        );
    }

    fn message(&mut self, chronicle: &Chronicle, seq: u64, name: Option<&str>, data: &str) {
        assert!(!self.must_be_told, "{seq} came before the gap behind {}", self.cursor);
        assert!(seq > self.cursor, "{seq} after {}", self.cursor);
        let entry = chronicle.entry(seq);
        // See `judge_topic` of the chronicle.
        let may_be_there = entry.topic == FLIP && entry.fate == Fate::Ended;
        assert!(entry.fate == Fate::Kept || may_be_there, "{seq} is no more: {entry:?}");
        assert!(self.wanted().any(|topic| topic == entry.topic));
        let is_many = self.filter.contains('*');
        match &entry.data {
            None => assert_eq!(name, Some("stentor")),
            Some(expected) if is_many => {
                let envelope: Value = serde_json::from_str(data).unwrap();
                assert_eq!(envelope["topic"], entry.topic.as_str());
                assert_eq!(envelope["data"].as_str().unwrap().as_bytes(), expected);
            }
            Some(expected) => assert_eq!(data.as_bytes(), expected),
        }
        if let Some(missing) = self.missing_before(chronicle, seq) {
            panic!("{missing} before {seq}");
        }
        self.cursor = seq;
        if self.values_upto.is_some_and(|upto| seq > upto) {
            self.values_upto = None;
        }
    }

    /// What it is owed below a number, and has not seen.
    fn missing_before(&self, chronicle: &Chronicle, before: u64) -> Option<String> {
        let from = self.values_upto.map_or(self.cursor, |upto| upto.max(self.cursor));
        self.wanted().find_map(|topic| {
            let mut owed = chronicle.after(topic, from).take_while(|(seq, _)| *seq < before);
            let (seq, entry) = owed.find(|(seq, entry)| {
                // A deletion is forgotten with the message that brings the topic back.
                let is_deletion = entry.data.is_none();
                let mut later = chronicle.after(topic, *seq);
                let is_lost = entry.fate == Fate::Ended
                    || later.any(|(_, later)| is_deletion || later.data.is_none());
                // What was rolled back is owed to nobody.
                !(*seq <= self.gap_upto && is_lost || chronicle.was_rolled_back(*seq))
            })?;
            Some(format!("{seq} is missing behind {} of {}: {entry:?}", self.cursor, self.filter))
        })
    }

    /// At rest it has seen the newest of all it reads, or was told that it is gone.
    pub(super) fn missing(&self, chronicle: &Chronicle) -> Option<String> {
        if self.decoder.is_none() || self.must_be_told {
            return Some(format!("the beginning of a stream of {}", self.filter));
        }
        self.missing_before(chronicle, u64::MAX).or_else(|| {
            let upto = self.values_upto?;
            self.wanted().find_map(|topic| {
                let (seq, entry) = chronicle.newest(topic)?;
                let is_seen = seq <= self.cursor || entry.data.is_none() && seq <= upto;
                (!is_seen).then(|| format!("{seq} of {topic}, behind {}", self.cursor))
            })
        })
    }

    fn wanted(&self) -> impl Iterator<Item = &'static str> {
        TOPICS.into_iter().map(|(topic, _)| topic).filter(|topic| matches(&self.filter, topic))
    }
}
