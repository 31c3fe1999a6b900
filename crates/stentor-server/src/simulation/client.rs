//! A simulated client: a script of requests, and the answers it must get.

use super::net::{Client, Net};
use super::{SMALL, large, text};
use crate::listeners::CONTROL;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::UNIX_EPOCH;
use stentor_io::{Backend, Rng};
use stentor_test::http::Response;

/// Requests, and what must come back.
#[derive(Debug, Default)]
pub(super) struct Script {
    requests: Vec<Vec<u8>>,
    answers: Vec<Answer>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    /// `None` if the body does not matter.
    body: Option<Vec<u8>>,
    /// The answer to a HEAD.
    head_only: bool,
    /// The client's own topic whose value it is. A client that has a value of it may ask for one
    /// that was modified since.
    value_of: Option<String>,
}

impl Script {
    pub(super) fn random(rng: &mut Rng, role: u8, number: usize) -> Script {
        let mut script = Script::default();
        let mut own = BTreeMap::new();
        for _ in 0..1 + rng.below(12) {
            if role == CONTROL && rng.percent(60) {
                script.publish(rng, number, &mut own);
            } else {
                script.read(rng);
            }
        }
        match rng.below(5) {
            0 => script.add(
                "GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
                200,
                SMALL,
            ),
            1 => script.add("GET /small HTTP/1.0\r\n\r\n", 200, SMALL),
            2 => {
                script.bad("GET /small HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nHello", 400)
            }
            3 => script.bad("GET /small HTTP/1.1\nHost: h\n\n", 400),
            _ => {}
        }
        script.requests.iter_mut().for_each(|request| sign(request, number));
        script
    }

    fn add(&mut self, request: &str, status: u16, body: &[u8]) {
        self.requests.push(request.as_bytes().to_vec());
        let body = Some(body.to_vec());
        self.answers.push(Answer { status, body, head_only: false, value_of: None });
    }

    fn bad(&mut self, request: &str, status: u16) {
        self.requests.push(request.as_bytes().to_vec());
        self.answers.push(Answer { status, body: None, head_only: false, value_of: None });
    }

    fn read(&mut self, rng: &mut Rng) {
        let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        match rng.below(17) {
            0..3 => self.add(&get("/small"), 200, SMALL),
            3 => self.add(&get("/%73mall?x=1"), 200, SMALL),
            4 => self.add(&get("/large"), 200, &large()),
            5 => {
                let encoding = ["gzip", "br;q=0, gzip;q=0.5", "identity"][rng.below(3)];
                let request =
                    format!("GET /text HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {encoding}\r\n\r\n");
                self.add(&request, 200, &text());
            }
            6 => {
                let lines = b"var hq_str_small=\"183.22 +1.2%\";\nvar hq_str_none=\"\";";
                self.add(&get("/list=small,none"), 200, lines);
            }
            7 => {
                let json = b"{\"/small\":\"183.22 +1.2%\",\"/none\":null}";
                self.add(&get("/-/values?topic=/small&topic=/none"), 200, json);
            }
            8 => {
                let tag = "If-None-Match: \"x\", W/\"0badcafe-1.gz\"";
                self.add(&format!("GET /small HTTP/1.1\r\nHost: h\r\n{tag}\r\n\r\n"), 304, b"");
            }
            9 => {
                self.add("HEAD /large HTTP/1.1\r\nHost: h\r\n\r\n", 200, b"");
                self.answers.last_mut().unwrap().head_only = true;
            }
            10 => {
                let head = "GET /small HTTP/1.1\r\nHost: h\r\nContent-Length: 25\r\n\r\n";
                self.add(&format!("{head}GET / HTTP/1.1\r\nHost: h\r\n"), 200, SMALL);
            }
            11 => self.bad(&get("/nothing"), 404),
            _ => self.read_file(rng),
        }
    }

    /// A file: one that is small enough for memory, or one that is sent from the disk.
    fn read_file(&mut self, rng: &mut Rng) {
        let (name, content) = [("small.txt", SMALL_FILE), ("large.txt", LARGE_FILE)][rng.below(2)];
        let ask = |method: &str, fields: &str| {
            format!("{method} /files/{name} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
        };
        match rng.below(6) {
            0 => {
                self.add(&ask("HEAD", ""), 200, b"");
                self.answers.last_mut().unwrap().head_only = true;
            }
            1 => {
                let first = rng.below(content.len());
                let last = first + rng.below(content.len() - first);
                let range = format!("Range: bytes={first}-{last}\r\n");
                self.add(&ask("GET", &range), 206, &content[first..=last]);
            }
            2 => self.bad(&ask("GET", "Range: bytes=0-9,-9\r\n"), 206),
            3 => self.add(&ask("GET", "If-None-Match: *\r\n"), 304, b""),
            4 => self.add(&ask("GET", "Accept-Encoding: gzip\r\n"), 200, content),
            _ => self.add(&ask("GET", ""), 200, content),
        }
    }

    /// Writes to the client's own topics, of which it knows the values.
    fn publish(&mut self, rng: &mut Rng, number: usize, own: &mut BTreeMap<String, Vec<u8>>) {
        let topic = format!("/own/{number}/{}", rng.below(3));
        let known = own.contains_key(&topic);
        match rng.below(8) {
            0 => {
                let status = if own.remove(&topic).is_some() { 200 } else { 404 };
                self.bad(&format!("DELETE {topic} HTTP/1.1\r\nHost: h\r\n\r\n"), status);
            }
            1 => {
                let head = format!("PUT {topic} HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\n");
                self.bad(
                    &format!("{head}Content-Length: 1\r\n\r\n1"),
                    if known { 412 } else { 201 },
                );
                own.entry(topic).or_insert_with(|| b"1".to_vec());
            }
            2 => {
                let line = format!("{{\"topic\":\"{topic}\",\"data\":\"a \\\"b\\\"\"}}\n");
                let lines = format!("{line}nonsense\n{line}");
                let head =
                    "POST /-/publish HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
                self.bad(head, 200);
                self.chunks(rng, lines.as_bytes());
                own.insert(topic, b"a \"b\"".to_vec());
            }
            3..6 if known => {
                let body = own[&topic].clone();
                self.add(&format!("GET {topic} HTTP/1.1\r\nHost: h\r\n\r\n"), 200, &body);
                self.answers.last_mut().unwrap().value_of = Some(topic);
            }
            _ => {
                let body: Vec<u8> = (0..rng.below(5_000)).map(|_| rng.next_u64() as u8).collect();
                let status = if known { 200 } else { 201 };
                let head = format!("PUT {topic} HTTP/1.1\r\nHost: h\r\n");
                if rng.percent(50) {
                    self.bad(&format!("{head}Transfer-Encoding: chunked\r\n\r\n"), status);
                    self.chunks(rng, &body);
                } else {
                    let expect = ["", "Expect: 100-continue\r\n"][rng.below(2)];
                    let length = body.len();
                    self.bad(&format!("{head}{expect}Content-Length: {length}\r\n\r\n"), status);
                    self.requests.last_mut().unwrap().extend_from_slice(&body);
                }
                own.insert(topic, body);
            }
        }
    }

    /// Appends a chunked body to the last request.
    fn chunks(&mut self, rng: &mut Rng, mut body: &[u8]) {
        let request = self.requests.last_mut().unwrap();
        while !body.is_empty() {
            let (chunk, rest) = body.split_at(1 + rng.below(body.len()));
            request.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
            request.extend_from_slice(chunk);
            request.extend_from_slice(b"\r\n");
            body = rest;
        }
        request.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    }
}

/// Has a request say whose it is, behind its first line.
fn sign(request: &mut Vec<u8>, number: usize) {
    let end = memchr::memchr(b'\n', request).expect("a request has a line") + 1;
    let line_end = if request[end - 2] == b'\r' { "\r\n" } else { "\n" };
    let field = format!("User-Agent: {number}{line_end}");
    request.splice(end..end, field.into_bytes());
}

/// A client on its way through its script.
#[derive(Debug)]
pub(super) struct Scripted {
    connection: Client,
    worker: usize,
    script: Script,
    written: usize,
    /// When each request was written, and the value that it asked for a newer one of.
    asked: Vec<(u64, Option<Vec<u8>>)>,
    /// The values of its own topics that it has seen, and when they were modified.
    values: BTreeMap<String, (String, Vec<u8>)>,
    received: Vec<u8>,
    /// Answers seen whole.
    answered: usize,
    /// Their statuses, and the bytes of their bodies.
    seen: Vec<(u16, usize)>,
    stalled: bool,
    reset: bool,
}

impl Scripted {
    pub(super) fn new(connection: Client, worker: usize, script: Script) -> Scripted {
        let received = Vec::new();
        Scripted {
            connection,
            worker,
            script,
            written: 0,
            asked: Vec::new(),
            values: BTreeMap::new(),
            received,
            answered: 0,
            seen: Vec::new(),
            stalled: false,
            reset: false,
        }
    }

    pub(super) fn connection(&self) -> Client {
        self.connection
    }

    /// The worker that it is connected to.
    pub(super) fn worker(&self) -> usize {
        self.worker
    }

    pub(super) fn is_done(&self) -> bool {
        self.reset || self.answered == self.script.answers.len()
    }

    /// The statuses of the answers it has seen, and whether it had asked with the date of a value.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (u16, bool)> {
        let asked = self.asked.iter().map(|(_, value)| value.is_some());
        self.seen.iter().map(|(status, _)| *status).zip(asked)
    }

    /// Writes some, reads some, stalls now and then.
    pub(super) fn play(&mut self, sim: &mut Net, rng: &mut Rng) {
        self.reset |= sim.was_reset(self.connection);
        let ahead = self.written - self.answered.min(self.written);
        if self.written < self.script.requests.len() && (ahead == 0 || rng.percent(30)) {
            self.ask(sim, rng);
        }
        if rng.percent(if self.stalled { 30 } else { 2 }) {
            self.stalled = !self.stalled;
            sim.stall(self.connection, self.stalled);
        }
        let bytes = sim.read(self.connection);
        if bytes.is_empty() {
            return;
        }
        self.received.extend(bytes);
        while self.answered < self.script.answers.len() && self.take_answer(sim) {
            self.answered += 1;
        }
    }

    /// Writes the next request, perhaps with the date of a value that it has.
    fn ask(&mut self, sim: &mut Net, rng: &mut Rng) {
        let mut request = self.script.requests[self.written].clone();
        let topic = self.script.answers[self.written].value_of.as_ref();
        let value = topic.and_then(|topic| self.values.get(topic)).filter(|_| rng.percent(80));
        if let Some((modified, _)) = value {
            let field = format!("If-Modified-Since: {modified}\r\n\r\n");
            request.splice(request.len() - 2.., field.into_bytes());
        }
        self.asked.push((sim.unix_s(), value.map(|(_, body)| body.clone())));
        self.written += 1;
        sim.write(self.connection, &request);
    }

    /// What was received and not understood must be the beginning of an answer, or nothing; and
    /// nothing may be missing unless the network cuts connections.
    pub(super) fn check(&self, seed: u64, are_cut: bool) {
        let is_whole = self.answered == self.script.answers.len();
        assert!(is_whole || are_cut, "seed {seed}: answers are missing: {self:#?}");
        let rest = self.received.is_empty() || self.reset;
        assert!(rest, "seed {seed}: more than was asked for: {self:#?}");
    }

    /// What was logged of its requests must be what it has seen, in that order, and behind that
    /// what it would have seen. Of a last one that was refused it may not be known whose it was.
    /// Returns whether that one is missing.
    pub(super) fn check_log(&self, seed: u64, logged: &[(u16, usize)]) -> bool {
        let seen = &self.seen[..logged.len().min(self.seen.len())];
        let answers = self.script.answers.get(..logged.len());
        let are_expected = answers.is_some_and(|answers| {
            answers.iter().zip(logged).all(|(answer, (status, _))| {
                answer.status == *status || answer.value_of.is_some() && *status == 304
            })
        });
        let is_good = logged.starts_with(seen) && are_expected;
        let missing = &self.seen[seen.len()..];
        let is_all = matches!(missing, [] | [(400, _)]);
        assert!(is_good && is_all, "seed {seed}: the log has {logged:?} of {self:#?}");
        !missing.is_empty()
    }

    /// Takes one whole answer off the front, if there is one, and compares it.
    fn take_answer(&mut self, sim: &Net) -> bool {
        let answer = &self.script.answers[self.answered];
        let take = if answer.head_only { Response::take_head } else { Response::take };
        let Some(response) = take(&mut self.received) else { return false };
        if response.status == 100 {
            return self.take_answer(sim);
        }
        self.seen.push((response.status, response.body.len()));
        let (number, (asked_s, value)) = (self.answered, &self.asked[self.answered]);
        let unchanged = value.as_ref().filter(|_| response.status == 304);
        let response = response.expect(if unchanged.is_some() { 304 } else { answer.status });
        let head = &response.head;
        let date = httpdate::parse_http_date(response.field("Date").expect("a date")).unwrap();
        let date_s = date.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let times_s = *asked_s..=sim.unix_s();
        assert!(times_s.contains(&date_s), "answer {number} at no time: {head}");
        let is_deflated = response.field("Content-Encoding") == Some("gzip");
        let modified = response.field("Last-Modified").map(str::to_owned);
        let body = if is_deflated { gunzip(&response.body) } else { response.body };
        if let Some(value) = unchanged {
            assert_eq!(Some(value), answer.body.as_ref(), "answer {number}: it was modified");
        } else if let Some(expected) = &answer.body {
            assert!(&body == expected, "answer {number} has a wrong body: {head}");
        }
        if let (Some(topic), 200) = (&answer.value_of, response.status) {
            let modified = modified.expect("a value has a date");
            self.values.insert(topic.clone(), (modified, body));
        }
        true
    }
}

/// Two files of the directory that is served: this one's.
const SMALL_FILE: &[u8] = include_bytes!("files/small.txt");
const LARGE_FILE: &[u8] = include_bytes!("files/large.txt");

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).expect("whole gzip");
    plain
}
