//! The simulated broker has a log, and talks on one connection after the other. It may lie: then
//! lines, lengths, numbers and answers are wrong.

use super::super::wire::{Message, Said};
use crate::codec::decode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use stentor_io::{Rng, SimPeer, SimSpeech, lock};

/// The broker's log.
#[derive(Default)]
pub(super) struct Log {
    messages: Vec<(String, Vec<u8>)>,
    /// The broker said this on the last connection, before the first line that makes no sense.
    pub(super) said: Vec<Said>,
}

impl Log {
    /// The first place with these bytes: a message, and how far behind its beginning.
    pub(super) fn place_of(&self, data: &[u8]) -> Option<(usize, usize)> {
        self.messages
            .iter()
            .enumerate()
            .find_map(|(index, (_, payload))| Some((index, memchr::memmem::find(payload, data)?)))
    }

    fn last_of(&self, subject: &str) -> u64 {
        let at = self.messages.iter().rposition(|(of, _)| of == subject);
        at.map_or(0, |at| at as u64 + 1)
    }
}

/// One connection.
pub(super) struct Talk {
    log: Arc<Mutex<Log>>,
    rng: Rng,
    lies: bool,
    has_begun: bool,
    /// It has said what makes no sense.
    is_mad: bool,
    input: Vec<u8>,
    sids: HashMap<String, u64>,
    /// Where the stream goes, and how much of it has gone there.
    delivers: Option<(String, usize)>,
    /// How many messages its consumer has delivered.
    brought: u64,
}

impl Talk {
    pub(super) fn begin(log: Arc<Mutex<Log>>, rng: Rng, lies: bool) -> Talk {
        lock(&log).said.clear();
        let (input, sids, delivers) = (Vec::new(), HashMap::new(), None);
        Talk { log, rng, lies, has_begun: false, is_mad: false, input, sids, delivers, brought: 0 }
    }

    /// Whether it lies this time.
    fn lies(&mut self, percent: u8) -> bool {
        self.lies && self.rng.percent(percent)
    }

    fn say(&mut self, said: Said, says: &mut SimSpeech) {
        if self.lies(1) {
            self.is_mad = true;
            says.say(nonsense(&mut self.rng));
        }
        says.say(bytes_of(&said));
        if !self.is_mad {
            lock(&self.log).said.push(said);
        }
    }

    fn info(&mut self, says: &mut SimSpeech) {
        let mut info = json!({
            "server_id": "a", "headers": true, "jetstream": true, "max_payload": 1 << 20,
        });
        if self.lies(5) {
            let field = ["jetstream", "max_payload", "tls_required", "headers"][self.rng.below(4)];
            info[field] =
                [json!(-1), json!(0), json!(true), json!(false)][self.rng.below(4)].clone();
        }
        self.say(Said::Info(info.to_string().into_bytes()), says);
    }

    /// Says this message, or something like it.
    fn bring(&mut self, mut message: Message, says: &mut SimSpeech) {
        if self.lies(3) {
            match self.rng.below(5) {
                0 => message.sid = self.rng.below(5) as u64,
                1 => message.subject = "_INBOX.x.r.1".to_owned(),
                2 => message.reply = Some("$JS.ACK.s.c.1.18446744073709551615.1.1.0".to_owned()),
                3 => message.payload = b"{\"error\":{\"code\":503}}".to_vec(),
                _ => message.headers = b"NATS/1.0 503\r\n\r\n".to_vec(),
            }
        }
        let times = if self.lies(2) { 2 } else { 1 };
        (0..times).for_each(|_| self.say(Said::Message(message.clone()), says));
    }

    fn answer(&mut self, to: &str, mut answer: Value, says: &mut SimSpeech) {
        if self.lies(3) {
            let strange = [json!(null), json!({}), json!({"seq": u64::MAX}), json!({"error": {}})];
            answer = strange[self.rng.below(4)].clone();
        }
        let (subject, payload) = (to.to_owned(), answer.to_string().into_bytes());
        self.bring(Message { subject, sid: 1, payload, ..Message::default() }, says);
    }

    /// Brings what has not been brought yet, and a sign of life.
    fn deliver(&mut self, says: &mut SimSpeech) {
        let Some((to, from)) = self.delivers.take() else { return };
        let Some(sid) = self.sids.get(&to).copied() else { return };
        let rest: Vec<_> = lock(&self.log).messages.iter().skip(from).cloned().collect();
        for (index, (subject, payload)) in rest.iter().cloned().enumerate() {
            let mut seq = (from + index + 1) as u64;
            if self.lies(3) {
                seq = [0, 1, seq - 1, seq + 1, seq + 100, u64::MAX][self.rng.below(6)];
            }
            self.brought += 1;
            let number = self.brought;
            let reply = Some(format!("$JS.ACK.s.c.1.{seq}.{number}.1700000000.0"));
            self.bring(Message { subject, sid, reply, payload, ..Message::default() }, says);
        }
        let headers = b"NATS/1.0 100\r\n\r\n".to_vec();
        let sign = Message { subject: to.clone(), sid, headers, ..Message::default() };
        self.say(Said::Message(sign), says);
        self.delivers = Some((to, from + rest.len()));
    }

    /// What JetStream answers.
    fn request(&mut self, subject: &str, reply: &str, payload: &[u8], says: &mut SimSpeech) {
        let request = serde_json::from_slice::<Value>(payload).unwrap_or_default();
        let last = lock(&self.log).messages.len() as u64;
        if subject.starts_with("$JS.API.STREAM.INFO.") {
            let state = json!({"first_seq": 1, "last_seq": last});
            let config = json!({"retention": "limits", "subjects": ["stentor.>"]});
            self.answer(reply, json!({"config": config, "state": state}), says);
        } else if subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            let next = |from: u64, wanted: &str| {
                let log = lock(&self.log);
                let rest = log.messages.iter().enumerate().skip(from as usize - 1);
                let mut wanted = rest.filter(|(_, (of, _))| wanted == ">" || of == wanted);
                wanted.next().map_or(0, |(at, _)| at as u64 + 1)
            };
            let seq = match (request["seq"].as_u64(), request["last_by_subj"].as_str()) {
                (Some(seq), _) if request["next_by_subj"].is_string() => {
                    next(seq, request["next_by_subj"].as_str().unwrap())
                }
                (Some(seq), _) => seq,
                (None, subject) => lock(&self.log).last_of(subject.unwrap()),
            };
            let at = seq.wrapping_sub(1) as usize;
            let found =
                lock(&self.log).messages.get(at).map(|(_, payload)| STANDARD.encode(payload));
            let message = found.map(|data| json!({"seq": seq, "data": data}));
            let not_found = json!({"error": {"code": 404}});
            let answer = message.map_or(not_found, |message| json!({"message": message}));
            self.answer(reply, answer, says);
        } else if subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            let config = &request["config"];
            let from = config["opt_start_seq"].as_u64().unwrap() as usize - 1;
            self.delivers = Some((config["deliver_subject"].as_str().unwrap().to_owned(), from));
            self.brought = 0;
            self.answer(reply, json!({}), says);
            self.deliver(says);
        }
    }

    /// Appends a message, if it follows the one that it expects.
    fn append(
        &mut self,
        subject: &str,
        reply: &str,
        head: &str,
        payload: &[u8],
        says: &mut SimSpeech,
    ) {
        assert!(decode(payload).is_ok(), "this is no message of a node: {payload:?}");
        let after: u64 = head.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
        let last = lock(&self.log).last_of(subject);
        if after != last && !self.lies(5) {
            let description = format!("wrong last sequence: {last}");
            let error = json!({"code": 400, "err_code": 10_071, "description": description});
            return self.answer(reply, json!({"error": error}), says);
        }
        if !self.lies(2) {
            lock(&self.log).messages.push((subject.to_owned(), payload.to_vec()));
        }
        let seq = lock(&self.log).messages.len();
        self.answer(reply, json!({"seq": seq}), says);
        self.deliver(says);
    }

    /// Takes one thing that the client says. `None`: it is not whole yet.
    fn take(&mut self, says: &mut SimSpeech) -> Option<()> {
        let end = self.input.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8(self.input[..end].to_vec()).unwrap();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let after = end + 2;
        match words[..] {
            ["PUB" | "HPUB", subject, ref rest @ .., length] => {
                let length: usize = length.parse().unwrap();
                let body = self.input.get(after..after + length + 2)?.to_vec();
                self.input.drain(..after + length + 2);
                let reply = rest.first().copied().unwrap_or_default();
                let of_head = if words[0] == "HPUB" { rest[1].parse().unwrap() } else { 0 };
                let (head, payload) = body[..length].split_at(of_head);
                let head = std::str::from_utf8(head).unwrap();
                if subject.starts_with("stentor.") {
                    self.append(subject, reply, head, payload, says);
                } else {
                    self.request(subject, reply, payload, says);
                }
                return Some(());
            }
            ["PING"] => {
                self.say(Said::Pong, says);
                self.deliver(says);
                if self.lies(2) {
                    let reason =
                        ["Maximum Payload Violation", "Stale Connection"][self.rng.below(2)];
                    self.say(Said::Error(reason.to_owned()), says);
                }
                if self.lies(2) {
                    self.info(says);
                }
            }
            ["SUB", subject, sid] => drop(self.sids.insert(subject.into(), sid.parse().unwrap())),
            ["UNSUB", sid] => self.sids.retain(|_, of| of.to_string() != sid),
            ["PONG"] | ["CONNECT", ..] => {}
            _ => panic!("no client of NATS says {line:?}"),
        }
        self.input.drain(..after);
        Some(())
    }
}

impl SimPeer for Talk {
    fn receive(&mut self, bytes: &[u8], says: &mut SimSpeech) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.info(says);
        }
        self.input.extend_from_slice(bytes);
        while self.take(says).is_some() {}
    }
}

/// Encodes what a server of NATS says.
fn bytes_of(said: &Said) -> Vec<u8> {
    match said {
        Said::Info(info) => [b"INFO ", &info[..], b"\r\n"].concat(),
        Said::Ping => b"PING\r\n".to_vec(),
        Said::Pong => b"PONG\r\n".to_vec(),
        Said::Ok => b"+OK\r\n".to_vec(),
        Said::Error(reason) => format!("-ERR '{reason}'\r\n").into_bytes(),
        Said::Message(message) => {
            let Message { subject, sid, reply, headers, payload, .. } = message;
            let reply = reply.as_ref().map_or_else(String::new, |reply| format!("{reply} "));
            let (of_head, all) = (headers.len(), headers.len() + payload.len());
            let line = match of_head {
                0 => format!("MSG {subject} {sid} {reply}{all}\r\n"),
                _ => format!("HMSG {subject} {sid} {reply}{of_head} {all}\r\n"),
            };
            [line.as_bytes(), headers, payload, b"\r\n"].concat()
        }
    }
}

/// Makes up bytes that no server of NATS sends.
fn nonsense(rng: &mut Rng) -> Vec<u8> {
    match rng.below(7) {
        0 => b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
        1 => b"MSG a x 0\r\n\r\n".to_vec(),
        2 => b"MSG a 1 99999999999999999999\r\n".to_vec(),
        3 => b"HMSG a 1 9 3\r\nabc\r\n".to_vec(),
        4 => b"MSG a 1 2\r\nabcd".to_vec(),
        5 => b"\xff\xfe\r\n".to_vec(),
        _ => vec![b'a'; 70 << 10],
    }
}
