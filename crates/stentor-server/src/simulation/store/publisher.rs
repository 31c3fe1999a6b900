//! A publisher: one request after the other, of every kind, and what its answer promises.

use super::super::CONTROL;
use super::super::net::{Client, Net};
use super::chronicle::{Chronicle, TOPICS};
use serde_json::Value;
use stentor_io::Rng;
use stentor_test::http::Response;

/// What was asked for.
#[derive(Debug)]
enum Asked {
    Put(&'static str, Vec<u8>),
    /// When this was the last number.
    Delete(&'static str, u64),
    Bulk(Vec<(&'static str, Vec<u8>)>),
    /// When this was the newest of the topic, if there was a value.
    Get(&'static str, Option<u64>),
}

#[derive(Debug, Default)]
pub(super) struct Publisher {
    connection: Option<Client>,
    input: Vec<u8>,
    asked: Option<Asked>,
    /// The disk had a fault since it asked.
    may_be_refused: bool,
    /// What it was refused because of the disk.
    pub(super) refused: usize,
}

impl Publisher {
    /// The server is another one.
    pub(super) fn begin_life(&mut self) {
        *self = Publisher { refused: self.refused, ..Publisher::default() };
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    /// Asks for something, if nothing is under way. `number` is one that was not used before.
    pub(super) fn ask(
        &mut self,
        sim: &mut Net,
        rng: &mut Rng,
        chronicle: &Chronicle,
        number: &mut u64,
    ) {
        if self.asked.is_some() {
            return;
        }
        let mut datum = |rng: &mut Rng| {
            *number += 1;
            format!("{number} {}", "x".repeat(rng.below(120))).into_bytes()
        };
        let topic = TOPICS[rng.below(TOPICS.len())].0;
        let (asked, request) = match rng.below(10) {
            0 => {
                let request = format!("DELETE {topic} HTTP/1.1\r\nHost: h\r\n\r\n");
                (Asked::Delete(topic, chronicle.last()), request.into_bytes())
            }
            1..3 => {
                let newest = chronicle.newest(topic).filter(|(_, entry)| entry.data.is_some());
                let request = format!("GET {topic} HTTP/1.1\r\nHost: h\r\n\r\n");
                (Asked::Get(topic, newest.map(|(seq, _)| seq)), request.into_bytes())
            }
            3..5 => {
                let lines: Vec<_> = (0..1 + rng.below(6))
                    .map(|_| (TOPICS[rng.below(TOPICS.len())].0, datum(rng)))
                    .collect();
                let line = |(topic, data): &(&str, Vec<u8>)| {
                    let data = String::from_utf8_lossy(data);
                    format!("{{\"topic\":\"{topic}\",\"data\":\"{data}\"}}\n")
                };
                let body: String = lines.iter().map(line).collect();
                let head = "POST /-/publish HTTP/1.1\r\nHost: h\r\n";
                let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                (Asked::Bulk(lines), request.into_bytes())
            }
            _ => {
                let data = datum(rng);
                let fields = ["", "Stentor-Event: tick\r\n", "Cache-Control: max-age=7\r\n"];
                let (length, fields) = (data.len(), fields[data.len() % 3]);
                let head = format!("PUT {topic} HTTP/1.1\r\nHost: h\r\n{fields}");
                let mut request =
                    format!("{head}Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n")
                        .into_bytes();
                request.extend_from_slice(&data);
                (Asked::Put(topic, data), request)
            }
        };
        let connection = *self.connection.get_or_insert_with(|| sim.connect(CONTROL));
        sim.write(connection, &request);
        self.asked = Some(asked);
        self.may_be_refused = false;
    }

    /// Judges an answer, if there is one.
    pub(super) fn hear(&mut self, sim: &mut Net, chronicle: &mut Chronicle, disk_is_bad: bool) {
        self.may_be_refused |= disk_is_bad;
        let Some(connection) = self.connection else { return };
        self.input.extend(sim.read(connection));
        let Some(answer) = Response::take(&mut self.input) else { return };
        let asked = self.asked.take().expect("an answer to nothing");
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        match (asked, answer.status) {
            (Asked::Put(topic, data), 200 | 201) => {
                chronicle.acknowledge(seq_of(&answer), topic, Some(&data));
            }
            (Asked::Put(_, data), 503 | 507) => self.refused(chronicle, &data, &body),
            (Asked::Delete(topic, since), 200) => {
                let deletion =
                    chronicle.after(topic, since).find(|(_, entry)| entry.data.is_none());
                let (seq, _) = deletion.expect("it was deleted");
                chronicle.acknowledge(seq, topic, None);
            }
            (Asked::Delete(..), 404) => {}
            (Asked::Delete(..), 503 | 507) => self.check_refusal(&body),
            (Asked::Bulk(lines), 200) => self.report(chronicle, &lines, &body),
            (Asked::Get(topic, newest), 200) => {
                let seq = seq_of(&answer);
                let entry = chronicle.entry(seq);
                assert_eq!(
                    (entry.topic.as_str(), entry.data.as_ref()),
                    (topic, Some(&answer.body))
                );
                assert!(
                    newest.is_none_or(|newest| newest <= seq),
                    "{seq} is older than {newest:?}"
                );
            }
            (Asked::Get(topic, newest), 404) => {
                let mut since = chronicle.after(topic, newest.unwrap_or(0));
                let is_gone = newest.is_none() || since.any(|(_, entry)| entry.data.is_none());
                assert!(is_gone, "{topic} is not there, and {newest:?} was");
            }
            (asked, status) => panic!("{asked:?} is answered by {status}: {body}"),
        }
    }

    /// What a report of lines says of each.
    fn report(&mut self, chronicle: &mut Chronicle, lines: &[(&'static str, Vec<u8>)], body: &str) {
        let report: Value = serde_json::from_str(body).expect("JSON");
        let errors = report["errors"].as_array().unwrap();
        let mut last = None;
        for (index, (topic, data)) in lines.iter().enumerate() {
            let error = errors.iter().find(|error| error["line"] == index as u64 + 1);
            if let Some(error) = error {
                self.refused(chronicle, data, error["detail"].as_str().unwrap());
                continue;
            }
            let seq = chronicle.seq_of(data).expect("acknowledged, and never published");
            chronicle.acknowledge(seq, topic, Some(data));
            last = last.max(Some(seq));
        }
        let told = report["last_id"].as_str().map(|id| id[9..].parse::<u64>().unwrap());
        assert_eq!(told, last, "{report}");
        assert_eq!(report["failed"], errors.len() as u64);
        assert_eq!(report["published"], (lines.len() - errors.len()) as u64);
        assert!(errors.is_sorted_by_key(|error| error["line"].as_u64()), "{report}");
    }

    /// A message was refused: unless that is not known, nobody has seen it.
    fn refused(&mut self, chronicle: &Chronicle, data: &[u8], reason: &str) {
        let is_known = !reason.contains("not known");
        let seq = chronicle.seq_of(data);
        assert!(seq.is_none() || !is_known, "{seq:?} was refused, and is there: {reason}");
        self.check_refusal(reason);
    }

    fn check_refusal(&mut self, reason: &str) {
        let is_behind = reason.contains("slower");
        assert!(is_behind || self.may_be_refused, "refused, and the disk is well: {reason}");
        self.refused += 1;
    }
}

/// The number in an answer's tag.
fn seq_of(answer: &Response) -> u64 {
    let tag = answer.field("ETag").expect("a tag").trim_matches('"');
    tag[9..].parse().expect("a number")
}
