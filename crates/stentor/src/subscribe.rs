//! `stentor sub`: prints the values of topics as they change.
//!
//! By conditional polling over kept connections. A server that is away is waited for, with pauses
//! that grow and differ from reader to reader, so that a restart is not met by all at once.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write, stdout};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use ureq::Agent;
use ureq::http::{Response, StatusCode, header};

use crate::Failure;
use crate::client::{self, BaseUrl, parse_topic};

/// Print the messages of topics as they come
///
/// The current value at once, then every new one, a line each. With several topics each line
/// begins with the topic and a tab. Ends when the reader of its output does.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubArgs {
    /// What to follow, such as /quotes/aapl
    #[arg(required = true, value_name = "TOPIC", value_parser = parse_topic)]
    topics: Vec<String>,
    /// Print JSON lines: topic, id, type, data
    #[arg(long)]
    json: bool,
    /// Milliseconds between two polls
    #[arg(long, value_name = "MS", default_value_t = 250,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    interval: u64,
    /// The server's public (or control) listener
    #[arg(long, value_name = "URL", value_parser = BaseUrl::parse,
          default_value = "http://127.0.0.1:8080")]
    server: BaseUrl,
}

pub(crate) fn run(args: &SubArgs) -> Result<(), Failure> {
    let agent = client::agent(Some(ANSWER_TIMEOUT));
    let interval = Duration::from_millis(args.interval);
    let mut topics: Vec<Followed<'_>> = args.topics.iter().map(|t| Followed::new(t)).collect();
    let mut away = 0;
    loop {
        let round = topics.iter_mut().try_for_each(|topic| topic.poll(&agent, args));
        let pause = match round {
            Ok(()) if away > 0 => {
                eprintln!("stentor: the server is back");
                away = 0;
                interval
            }
            Ok(()) => interval,
            Err(Interruption::OutputClosed) => return Ok(()),
            Err(Interruption::Final(failure)) => return Err(failure),
            Err(Interruption::Away(reason)) => {
                if away == 0 {
                    eprintln!("stentor: {reason}; waiting for the server");
                }
                away += 1;
                backoff(away, RandomState::new().hash_one(away))
            }
        };
        thread::sleep(pause);
    }
}

/// Why a round of polls was not finished.
enum Interruption {
    /// Whoever read our output has gone: we are done.
    OutputClosed,
    /// The server is not there, or not able to answer.
    Away(Failure),
    /// Trying again is of no use.
    Final(Failure),
}

impl From<io::Error> for Interruption {
    fn from(error: io::Error) -> Interruption {
        match error.kind() {
            ErrorKind::BrokenPipe => Interruption::OutputClosed,
            _ => Interruption::Final(Failure::Failed(format!("standard output: {error}"))),
        }
    }
}

/// A topic, and the entity tag of the value that was printed last.
struct Followed<'a> {
    topic: &'a str,
    tag: Option<String>,
}

impl<'a> Followed<'a> {
    fn new(topic: &'a str) -> Followed<'a> {
        Followed { topic, tag: None }
    }

    /// Asks once, and prints the value if it is new.
    fn poll(&mut self, agent: &Agent, args: &SubArgs) -> Result<(), Interruption> {
        let away = |error| Interruption::Away(client::unreachable(&args.server, &error));
        let mut request = agent.get(args.server.topic(self.topic));
        if let Some(tag) = &self.tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let mut answer = request.call().map_err(away)?;
        match answer.status() {
            StatusCode::OK => {
                let data = client::body(&mut answer).map_err(away)?;
                self.tag = field(&answer, header::ETAG).map(str::to_owned);
                let value = Value {
                    topic: self.topic,
                    id: id(self.tag.as_deref().unwrap_or("")),
                    content_type: field(&answer, header::CONTENT_TYPE).unwrap_or(""),
                    data: &data,
                };
                let mut out = stdout().lock();
                value.print(&mut out, args.json, args.topics.len() > 1)?;
                out.flush()?;
            }
            StatusCode::NOT_MODIFIED => drop(client::body(&mut answer)),
            // Not published yet, or deleted: it may come.
            StatusCode::NOT_FOUND => {
                client::body(&mut answer).map_err(away)?;
                self.tag = None;
            }
            status => {
                let failure = client::refusal(self.topic, &mut answer);
                return Err(match status.is_server_error() {
                    true => Interruption::Away(failure),
                    false => Interruption::Final(failure),
                });
            }
        }
        Ok(())
    }
}

fn field<B>(answer: &Response<B>, name: header::HeaderName) -> Option<&str> {
    answer.headers().get(name)?.to_str().ok()
}

/// The message's id in an entity tag: without quotes and the suffix of an encoding.
fn id(tag: &str) -> &str {
    let bare = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    bare.split_once('.').map_or(bare, |(id, _)| id)
}

/// A value as it was read.
struct Value<'a> {
    topic: &'a str,
    id: &'a str,
    content_type: &'a str,
    data: &'a [u8],
}

/// A value as a line of JSON.
#[derive(Serialize)]
struct Envelope<'a> {
    topic: &'a str,
    id: &'a str,
    #[serde(rename = "type")]
    content_type: &'a str,
    data: Data<'a>,
}

/// JSON as it is, text as a string, anything else in base64: as the server's look-ups do it.
#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Json(&'a RawValue),
    Text(&'a str),
    Bytes { base64: String },
}

impl Value<'_> {
    fn print(&self, out: &mut impl Write, json: bool, with_topic: bool) -> io::Result<()> {
        if json {
            return self.print_envelope(out);
        }
        if with_topic {
            write!(out, "{}\t", self.topic)?;
        }
        out.write_all(self.data)?;
        if self.data.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n") }
    }

    fn print_envelope(&self, out: &mut impl Write) -> io::Result<()> {
        let json = self.content_type.split(';').next().is_some_and(|essence| {
            let essence = essence.trim().to_ascii_lowercase();
            essence == "application/json" || essence.ends_with("+json")
        });
        // A line break in JSON is always white space between tokens: strings escape theirs.
        let one_line = match std::str::from_utf8(self.data) {
            Ok(text) if json => Some(text.replace(['\n', '\r'], " ")),
            _ => None,
        };
        let raw: Option<&RawValue> =
            one_line.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let data = match (raw, std::str::from_utf8(self.data)) {
            (Some(raw), _) => Data::Json(raw),
            (None, Ok(text)) => Data::Text(text),
            (None, Err(_)) => Data::Bytes { base64: STANDARD.encode(self.data) },
        };
        let Value { topic, id, content_type, .. } = *self;
        serde_json::to_writer(&mut *out, &Envelope { topic, id, content_type, data })?;
        out.write_all(b"\n")
    }
}

/// How long to wait for a server that did not answer `times` times in a row: up to twice as long
/// each time, and somewhere in the upper half of that, as `random` says.
fn backoff(times: u32, random: u64) -> Duration {
    let most = BACKOFF_MIN.saturating_mul(1 << times.min(10)).min(BACKOFF_MAX);
    let half_ms = most.as_millis() as u64 / 2;
    Duration::from_millis(half_ms + random % half_ms.max(1))
}

const EXAMPLES: &str = "\
Examples:
  stentor sub /scores/lal-bos
  stentor sub /quotes/aapl /quotes/msft
  stentor sub --json /quotes/aapl | jq .data.close";

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const BACKOFF_MIN: Duration = Duration::from_millis(125);
const BACKOFF_MAX: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Result<SubArgs, clap::Error> {
        Cli::try_parse_from(format!("stentor sub {line}").split(' ')).map(|cli| match cli.command {
            Command::Sub(args) => args,
            other => panic!("not sub: {other:?}"),
        })
    }

    #[test]
    fn arguments() {
        let args = parse("/a /b --json --interval 1000 --server http://h:1").unwrap();
        assert_eq!(args.topics, ["/a", "/b"]);
        assert_eq!((args.json, args.interval), (true, 1_000));
        assert_eq!(args.server, BaseUrl::parse("h:1").unwrap());
        for bad in ["", "a", "/a --interval 0", "/a --server ftp://h"] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn ids_from_entity_tags() {
        for tag in ["\"1f2e3d4c-7\"", "W/\"1f2e3d4c-7\"", "\"1f2e3d4c-7.gz\"", "1f2e3d4c-7"] {
            assert_eq!(id(tag), "1f2e3d4c-7");
        }
    }

    #[test]
    fn lines() {
        let print = |data: &[u8], content_type, json, with_topic| {
            let mut out = Vec::new();
            let value = Value { topic: "/a", id: "e-1", content_type, data };
            value.print(&mut out, json, with_topic).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(b"1:0", "text/plain", false, false), "1:0\n");
        assert_eq!(print(b"1:0\n", "text/plain", false, true), "/a\t1:0\n");
        let json = |data, content_type| print(data, content_type, true, true);
        let line = |content_type, data| {
            format!(
                "{{\"topic\":\"/a\",\"id\":\"e-1\",\"type\":\"{content_type}\",\"data\":{data}}}\n"
            )
        };
        assert_eq!(
            json(b"{\"a\":\n1.50}", "application/json"),
            line("application/json", "{\"a\": 1.50}")
        );
        assert_eq!(json(b"{oops", "application/json"), line("application/json", "\"{oops\""));
        assert_eq!(json(b"7", "text/plain"), line("text/plain", "\"7\""));
        assert_eq!(json(b"\xff\0", "image/png"), line("image/png", "{\"base64\":\"/wA=\"}"));
    }

    #[test]
    fn backoff_grows_to_a_bound() {
        for (times, from_ms, below_ms) in [(1, 125, 250), (2, 250, 500), (40, 4_000, 8_000)] {
            for random in [0, 12_345, u64::MAX] {
                let pause_ms = backoff(times, random).as_millis() as u64;
                assert!((from_ms..below_ms).contains(&pause_ms), "{times} {random}: {pause_ms}");
            }
        }
    }
}
