//! What is asked of JetStream, and what it answers: JSON, and the subjects it goes by.

use super::wire::Message;
use crate::protocol::{Appended, LogSubject};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

/// The stream that keeps the order, as it is to be if it has to be made.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) replicas: u32,
    pub(super) keep_ms: u64,
    pub(super) keep_bytes: u64,
}

/// How a stream is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Info {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) replicas: u32,
    pub(super) keep_ms: u64,
    /// The server that leads, if the broker is several; empty while they elect one.
    pub(super) leader: Option<String>,
    pub(super) kept: Kept,
}

/// What is written before a message is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// Nothing is.
    InMemory,
    /// Nothing yet.
    Later,
    /// As the broker's `sync_interval` says, which it tells nobody.
    InFiles,
}

impl Info {
    /// What an acknowledgement of this stream is not worth, if it is less than one might think.
    pub(super) fn warning(&self) -> Option<&'static str> {
        match self.kept {
            Kept::InMemory => Some(
                "the stream is in the broker's memory: what it has acknowledged is lost when it \
                 ends; make one with storage file",
            ),
            Kept::Later => Some(
                "the stream has persist_mode async: what it has acknowledged is not even written, \
                 and is lost if the broker is killed; make one without",
            ),
            Kept::InFiles if self.replicas <= 1 => Some(
                "one broker alone keeps the stream: unless it has sync_interval: always (2.10 and \
                 later), what it has acknowledged in the last two minutes is lost with its power",
            ),
            // Jepsen, NATS 2.12.1: one broker's system crashes while another broker pauses.
            Kept::InFiles => Some(
                "several brokers keep the stream: unless each has sync_interval: always (2.10 and \
                 later), what they have acknowledged in the last two minutes may be lost when one \
                 loses its power while another is away",
            ),
        }
    }
}

/// Why something that was asked for is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum No {
    /// There is no such stream, or message.
    NotFound,
    Other(String),
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<Failure>,
    config: Option<Config>,
    state: Option<State>,
    cluster: Option<Cluster>,
    message: Option<Stored>,
    seq: Option<u64>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    num_replicas: u32,
    #[serde(default)]
    max_age: u64,
    #[serde(default)]
    retention: String,
    #[serde(default)]
    storage: String,
    #[serde(default)]
    persist_mode: String,
    #[serde(default)]
    subjects: Vec<String>,
}

#[derive(Deserialize)]
struct State {
    first_seq: u64,
    last_seq: u64,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    leader: String,
}

#[derive(Deserialize)]
struct Stored {
    seq: u64,
    #[serde(default)]
    data: String,
}

impl Stream {
    pub(super) fn subject(&self, of: LogSubject) -> String {
        match of {
            LogSubject::Life => format!("{}{LIFE}", self.name),
            LogSubject::Own(run) => format!("{}{NODE}{run:016x}", self.name),
        }
    }

    /// Whether nodes write under this subject. Other clients can publish under the rest of the
    /// stream's subjects.
    pub(super) fn is_of_nodes(&self, subject: &str) -> bool {
        let rest = subject.strip_prefix(&self.name);
        rest.is_some_and(|rest| rest == LIFE || rest.starts_with(NODE))
    }

    pub(super) fn info(&self) -> (String, String) {
        (format!("$JS.API.STREAM.INFO.{}", self.name), String::new())
    }

    pub(super) fn create(&self) -> (String, String) {
        let config = json!({
            "name": self.name,
            "subjects": [format!("{}.>", self.name)],
            "retention": "limits",
            "discard": "old",
            "storage": "file",
            "num_replicas": self.replicas,
            "max_age": self.keep_ms * 1_000_000,
            "max_bytes": self.keep_bytes,
            "max_msgs": -1,
            "max_consumers": -1,
            "duplicate_window": (self.keep_ms * 1_000_000).min(100_000_000),
        });
        (format!("$JS.API.STREAM.CREATE.{}", self.name), config.to_string())
    }

    pub(super) fn message(&self, seq: u64) -> (String, String) {
        (format!("$JS.API.STREAM.MSG.GET.{}", self.name), json!({ "seq": seq }).to_string())
    }

    /// The first message behind this sequence, of whatever subject.
    pub(super) fn next_message(&self, seq: u64) -> (String, String) {
        let request = json!({ "seq": seq + 1, "next_by_subj": ">" });
        (format!("$JS.API.STREAM.MSG.GET.{}", self.name), request.to_string())
    }

    /// The first message of the subject of epoch records from this sequence on.
    pub(super) fn next_life(&self, seq: u64) -> (String, String) {
        let request = json!({ "seq": seq, "next_by_subj": self.subject(LogSubject::Life) });
        (format!("$JS.API.STREAM.MSG.GET.{}", self.name), request.to_string())
    }

    pub(super) fn last_life(&self) -> (String, String) {
        let subject = self.subject(LogSubject::Life);
        let request = json!({ "last_by_subj": subject });
        (format!("$JS.API.STREAM.MSG.GET.{}", self.name), request.to_string())
    }

    /// Has everything from this sequence on brought, in its order.
    pub(super) fn consumer(&self, deliver: &str, from: u64) -> (String, String) {
        let request = json!({
            "stream_name": self.name,
            "config": {
                "deliver_subject": deliver,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": from,
                "ack_policy": "none",
                "max_deliver": 1,
                "flow_control": true,
                "idle_heartbeat": HEARTBEAT_NS,
                "inactive_threshold": INACTIVE_NS,
                "mem_storage": true,
                "num_replicas": 1,
            },
        });
        (format!("$JS.API.CONSUMER.CREATE.{}", self.name), request.to_string())
    }
}

fn parse(bytes: &[u8]) -> Result<Answer, No> {
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|error| No::Other(format!("an answer of JetStream makes no sense: {error}")))?;
    match answer.error {
        Some(Failure { code: 404, .. }) => Err(No::NotFound),
        Some(failure) => Err(No::Other(failure.description)),
        None => Ok(answer),
    }
}

impl Stream {
    /// How it is, if it can keep an order.
    ///
    /// # Errors
    /// [`No`]
    pub(super) fn read_info(&self, bytes: &[u8]) -> Result<Info, No> {
        let Answer { config: Some(config), state: Some(state), cluster, .. } = parse(bytes)? else {
            return Err(No::Other("JetStream says nothing of the stream".to_owned()));
        };
        let name = &self.name;
        if config.retention != "limits" {
            let retention = config.retention;
            return Err(No::Other(format!(
                "the stream {name} has retention {retention}: it must be limits, or another \
                 stream be named by cluster.stream"
            )));
        }
        let all = format!("{name}.>");
        if !config.subjects.contains(&all) {
            return Err(No::Other(format!(
                "the stream {name} is of other subjects than {all}: name another one by \
                 cluster.stream"
            )));
        }
        let kept = match (config.storage.as_str(), config.persist_mode.as_str()) {
            ("memory", _) => Kept::InMemory,
            (_, "async") => Kept::Later,
            _ => Kept::InFiles,
        };
        Ok(Info {
            first: state.first_seq.max(1),
            last: state.last_seq,
            replicas: config.num_replicas,
            keep_ms: config.max_age / 1_000_000,
            kept,
            leader: cluster.map(|cluster| cluster.leader),
        })
    }
}

/// The sequence and the bytes of a message of the stream. The bytes are `None` if the message is
/// larger than one that a node writes: then only the beginning of the answer is there.
///
/// # Errors
/// [`No`]
pub(super) fn read_message(answer: &Message) -> Result<(u64, Option<Vec<u8>>), No> {
    if answer.left_out > 0 {
        // The sequence stands before the data. A subject that has this text has its quotes escaped.
        let seq = memchr::memmem::find(&answer.payload, SEQ_KEY).map(|at| at + SEQ_KEY.len());
        let digits = seq.map_or(&[][..], |at| &answer.payload[at..]);
        let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(0);
        let seq = std::str::from_utf8(&digits[..end]).ok().and_then(|digits| digits.parse().ok());
        let seq = seq.ok_or_else(|| No::Other("a large message has no sequence".to_owned()))?;
        return Ok((seq, None));
    }
    let stored = parse(&answer.payload)?.message.ok_or(No::NotFound)?;
    let data = STANDARD.decode(stored.data);
    let data = data.map_err(|_| No::Other("a message of the stream is no base64".to_owned()))?;
    Ok((stored.seq, Some(data)))
}

/// Whether something was done that was asked for.
///
/// # Errors
/// [`No`]
pub(super) fn read_done(bytes: &[u8]) -> Result<(), No> {
    parse(bytes).map(drop)
}

/// What an answer says that is none of use: the reason it gives, or all of it.
pub(super) fn reason_of(bytes: &[u8]) -> String {
    match parse(bytes) {
        Err(No::Other(reason)) if serde_json::from_slice::<Answer>(bytes).is_ok() => reason,
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// What came of an append.
pub(super) fn read_append(message: &Message) -> Appended {
    if message.status() == Some(503) {
        return Appended::Refused("no stream hears it".to_owned());
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(&message.payload) else {
        return Appended::Unknown;
    };
    match (answer.error, answer.seq) {
        (None, Some(seq)) => Appended::At(seq),
        (Some(Failure { err_code: WRONG_LAST_SEQUENCE, description, .. }), _) => {
            let last = description.rsplit(' ').next().and_then(|last| last.parse().ok());
            last.map_or(Appended::Unknown, Appended::Conflict)
        }
        // One of several brokers that fails while it writes says so, and others may have it.
        // mutation: failed-append
        (Some(Failure { code: 500.., .. }), _) => Appended::Unknown,
        // Something of this subject is on its way there.
        (Some(Failure { err_code: WRONG_IN_FLIGHT, .. }), _) => Appended::Unknown,
        (Some(failure), _) => Appended::Refused(failure.description),
        (None, None) => Appended::Unknown,
    }
}

/// A message that a consumer brings.
#[derive(PartialEq, Debug)]
pub(super) struct ConsumerMessage {
    /// Its sequence in the stream.
    pub(super) seq: u64,
    /// Its number among the messages of the consumer, from 1 on.
    pub(super) number: u64,
    /// How many follow it.
    pub(super) behind: u64,
}

/// The subject where a message would be acknowledged says which one it is.
pub(super) fn read_delivery(reply: &str) -> Option<ConsumerMessage> {
    let words: Vec<&str> = reply.split('.').collect();
    // Newer servers name a domain and an account before, and may say more behind.
    let at = match words[..] {
        ["$JS", "ACK", ..] if words.len() == 9 => 4,
        ["$JS", "ACK", ..] if words.len() >= 11 => 6,
        _ => return None,
    };
    let word = |index: usize| words[at + index].parse().ok();
    Some(ConsumerMessage { seq: word(1)?, number: word(2)?, behind: word(4)? })
}

const SEQ_KEY: &[u8] = b"\"seq\":";

/// A subject of nodes is the name of the stream, and one of these.
const LIFE: &str = ".life";
const NODE: &str = ".node.";

/// The error of an append whose condition does not hold.
const WRONG_LAST_SEQUENCE: u32 = 10_071;

/// The same where the last one is not known yet.
const WRONG_IN_FLIGHT: u32 = 10_164;

/// A consumer that has nothing to bring says so every second,
const HEARTBEAT_NS: u64 = 1_000_000_000;

/// and is forgotten if nobody hears it for so long.
const INACTIVE_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::super::SILENCE_MAX_MS;
    use super::*;

    #[test]
    fn how_a_stream_is() {
        let stream = Stream { name: "s".to_owned(), replicas: 1, keep_ms: 1, keep_bytes: 1 };
        let read = |more: &str| {
            let text = format!(
                r#"{{"type":"x","config":{{"retention":"limits","max_age":3600000000000{more}}},
                "state":{{"messages":1,"first_seq":7,"last_seq":9}},"cluster":{{"leader":"a"}}}}"#
            );
            stream.read_info(text.as_bytes())
        };
        let of_all = r#","subjects":["s.>"],"storage":"#;
        let info = read(&format!(r#"{of_all}"file","num_replicas":3"#)).unwrap();
        let leader = Some("a".to_owned());
        let expected = Info {
            first: 7,
            last: 9,
            replicas: 3,
            keep_ms: 3_600_000,
            leader,
            kept: Kept::InFiles,
        };
        assert!(info.warning().unwrap().contains("several brokers keep the stream"));
        assert_eq!(info, expected);
        for (more, expected) in [
            (r#""file","num_replicas":1"#, "one broker alone keeps the stream"),
            (r#""memory","num_replicas":3"#, "in the broker's memory"),
            (r#""file","num_replicas":3,"persist_mode":"async""#, "persist_mode async"),
        ] {
            let warning = read(&format!("{of_all}{more}")).unwrap().warning().unwrap();
            assert!(warning.contains(expected), "{warning}");
        }
        let why = |more: &str| match read(more) {
            Err(No::Other(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(why(r#","subjects":["t.>"]"#).contains("of other subjects than s.>"));
        let queue = br#"{"config":{"retention":"workqueue"},"state":{"first_seq":0,"last_seq":0}}"#;
        assert!(matches!(stream.read_info(queue), Err(No::Other(why)) if why.contains("limits")));
        let missing = br#"{"error":{"code":404,"description":"stream not found"}}"#;
        assert_eq!(stream.read_info(missing), Err(No::NotFound));
    }

    #[test]
    fn what_jetstream_answers() {
        let missing =
            br#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        let answer = |payload: &[u8], left_out| {
            read_message(&Message { payload: payload.to_vec(), left_out, ..Message::default() })
        };
        assert_eq!(answer(missing, 0), Err(No::NotFound));
        let failed = br#"{"error":{"code":503,"description":"no leader"}}"#;
        assert_eq!(read_done(failed), Err(No::Other("no leader".to_owned())));
        let message = br#"{"message":{"subject":"a","seq":3,"data":"aGk=","time":"t"}}"#;
        assert_eq!(answer(message, 0), Ok((3, Some(b"hi".to_vec()))));
        let large = br#"{"message":{"subject":"\"seq\":9","seq":3,"data":"aGk"#;
        assert_eq!(answer(large, 1), Ok((3, None)));
        assert!(answer(&large[..30], 1).is_err());
        let told = |payload: &str, headers: &str| {
            read_append(&Message {
                payload: payload.as_bytes().to_vec(),
                headers: headers.as_bytes().to_vec(),
                ..Message::default()
            })
        };
        assert_eq!(told(r#"{"stream":"s","seq":5}"#, ""), Appended::At(5));
        let wrong = r#"{"error":{"code":400,"err_code":10071,
            "description":"wrong last sequence: 12"},"stream":"s","seq":0}"#;
        assert_eq!(told(wrong, ""), Appended::Conflict(12));
        assert!(matches!(told("", "NATS/1.0 503\r\n\r\n"), Appended::Refused(_)));
        assert_eq!(told("", ""), Appended::Unknown);
        let full = r#"{"error":{"code":503,"err_code":10023,"description":"no room"}}"#;
        assert_eq!(told(full, ""), Appended::Unknown);
        assert_eq!(reason_of(full.as_bytes()), "no room");
        assert_eq!(reason_of(b"{}"), "{}");
        assert_eq!(reason_of(b"what"), "what");
        let busy = r#"{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}"#;
        assert_eq!(told(busy, ""), Appended::Unknown);
        let large = r#"{"error":{"code":400,"err_code":10054,"description":"too large"}}"#;
        assert_eq!(told(large, ""), Appended::Refused("too large".to_owned()));
    }

    /// An idle consumer sends several signs of life before a node drops the connection. The broker
    /// deletes a consumer that no node reads, but only after that.
    #[test]
    fn a_consumer_says_that_it_is_there() {
        let stream = Stream { name: "s".to_owned(), replicas: 1, keep_ms: 1, keep_bytes: 1 };
        let request: serde_json::Value = serde_json::from_str(&stream.consumer("d", 7).1).unwrap();
        let ms = |field| request["config"][field].as_u64().unwrap() / 1_000_000;
        let (heartbeat_ms, inactive_ms) = (ms("idle_heartbeat"), ms("inactive_threshold"));
        assert!((500..=SILENCE_MAX_MS / 3).contains(&heartbeat_ms), "{heartbeat_ms}");
        assert!((2 * SILENCE_MAX_MS..60_000).contains(&inactive_ms), "{inactive_ms}");
    }

    #[test]
    fn where_a_message_is_from() {
        let read = |reply| read_delivery(reply);
        let delivery = Some(ConsumerMessage { seq: 42, number: 7, behind: 3 });
        assert_eq!(read("$JS.ACK.s.c.1.42.7.1700000000.3"), delivery);
        assert_eq!(read("$JS.ACK.d.hash.s.c.1.42.7.1700000000.3.rnd"), delivery);
        assert_eq!(read("_INBOX.a"), None);
        assert_eq!(read("$JS.ACK.s.c.1.x.7.1700000000.3"), None);
    }
}
