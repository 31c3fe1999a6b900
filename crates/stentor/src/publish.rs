//! `stentor pub`: publishes one message, or a stream of lines.
//!
//! Lines go as NDJSON over one connection to `/-/publish`, each as soon as it is read: the output
//! of `tail -f` can be published for days. While there is nothing to say, a space is sent now and
//! then (JSON allows it between lines), so that the server can tell a quiet publisher from one
//! that is gone.

use std::io::{BufRead, BufReader, Read, stdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stentor_hub::ContentType;
use ureq::SendBody;

use crate::client::{self, BaseUrl, CONTROL_DEFAULT, parse_topic};
use crate::trust::TrustFlags;
use crate::{Failure, say};

/// Publish a message, or one for every line of standard input
///
/// Prints the id of the message.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PubArgs {
    /// Where to publish, such as /quotes/aapl
    #[arg(value_parser = parse_topic)]
    topic: String,
    /// The message; standard input if left out or '-'
    #[arg(conflicts_with = "lines", allow_hyphen_values = true)]
    data: Option<String>,
    /// Publish every line of standard input as a message
    #[arg(long)]
    lines: bool,
    /// Print JSON: the server's answer, with the id and the number of readers, or with the numbers
    /// of lines that were published and refused
    #[arg(short, long)]
    json: bool,
    /// Content type
    #[arg(long = "type", value_name = "TYPE", default_value = "text/plain; charset=utf-8",
          value_parser = parse_field)]
    content_type: String,
    /// Event name, for readers of event streams
    #[arg(long, value_name = "NAME", value_parser = parse_field)]
    event: Option<String>,
    /// The server's control listener: a URL, or unix:PATH. STENTOR_SERVER names another default
    #[arg(long, visible_alias = "control", value_name = "ADDRESS", value_parser = BaseUrl::parse,
          default_value = client::default_server(CONTROL_DEFAULT))]
    server: BaseUrl,
    #[command(flatten)]
    trust: TrustFlags,
}

pub(crate) fn run(args: &PubArgs) -> Result<(), Failure> {
    if args.lines { lines(args) } else { one(args) }
}

/// The value of a header field, which is one line.
fn parse_field(text: &str) -> Result<String, String> {
    match text.bytes().find(|byte| byte.is_ascii_control() && *byte != b'\t') {
        Some(byte) => Err(format!("'{}' cannot stand in it", char::from(byte).escape_debug())),
        None => Ok(text.to_owned()),
    }
}

fn one(args: &PubArgs) -> Result<(), Failure> {
    let data = match args.data.as_deref() {
        Some(text) if text != "-" => text.as_bytes().to_vec(),
        _ => {
            let mut data = Vec::new();
            stdin().lock().read_to_end(&mut data).map_err(input_error)?;
            data
        }
    };
    let agent = client::agent(&args.server, &args.trust, Some(ANSWER_TIMEOUT))?;
    let mut request = agent.put(args.server.topic(&args.topic));
    request = request.header("Content-Type", &args.content_type);
    if let Some(event) = &args.event {
        request = request.header("Stentor-Event", event);
    }
    let what = format!("{} is not published", args.topic);
    let mut answer = client::success(&args.server, &what, request.send(&data))?;
    let receipt: Value = client::json(&mut answer)?;
    match receipt["id"].as_str() {
        _ if args.json => crate::print_json(&receipt),
        Some(id) => crate::print(&format!("{id}\n")),
        None => Err(Failure::Failed("the answer is unclear: it has no id".to_owned())),
    }
}

/// The answer to a stream of lines.
#[derive(Deserialize, Serialize)]
struct PublishReport {
    published: u64,
    failed: u64,
    last_id: Option<String>,
    errors: Vec<PublishError>,
}

#[derive(Deserialize, Serialize)]
struct PublishError {
    line: u64,
    code: String,
    detail: String,
}

fn lines(args: &PubArgs) -> Result<(), Failure> {
    let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
    let (topic, content_type, event) =
        (args.topic.clone(), args.content_type.clone(), args.event.clone());
    let is_json = ContentType::parse(&content_type).is_ok_and(|it| it.is_json());
    // Reading blocks for as long as nobody writes; sending must not.
    let reader = thread::spawn(move || {
        let mut input = BufReader::new(stdin());
        let mut bytes = Vec::new();
        while input.read_until(b'\n', &mut bytes)? > 0 {
            let data = LineData::of(&bytes, is_json);
            let line =
                PublishLine { topic: &topic, data, content_type: &content_type, event: &event };
            if sender.send(line.encode()).is_err() {
                break;
            }
            bytes.clear();
        }
        Ok(())
    });
    let agent = client::agent(&args.server, &args.trust, None)?;
    let request = agent.post(args.server.page("/-/publish"));
    let stream = SendBody::from_owned_reader(LineStream::new(receiver, QUIET_MAX));
    let answer = request.header("Content-Type", "application/x-ndjson").send(stream);
    let mut answer = client::success(&args.server, "the lines are not published", answer)?;
    let report: PublishReport = client::json(&mut answer)?;
    if args.json {
        crate::print(&format!("{}\n", serde_json::to_string(&report).unwrap_or_default()))?;
    } else if let Some(id) = &report.last_id {
        crate::print(&format!("{id}\n"))?;
    }
    for PublishError { line, detail, .. } in &report.errors {
        say::error(format!("line {line}: {detail}"));
    }
    if report.failed > 0 {
        let (failed, all) = (report.failed, report.failed + report.published);
        return Err(Failure::Failed(format!("{failed} of {all} lines were refused")));
    }
    match reader.join() {
        Ok(result) => result.map_err(input_error),
        Err(_) => Err(Failure::Failed("reading standard input failed".to_owned())),
    }
}

/// A message as a line of NDJSON.
#[derive(Serialize)]
struct PublishLine<'a> {
    topic: &'a str,
    #[serde(flatten)]
    data: LineData<'a>,
    #[serde(rename = "type")]
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: &'a Option<String>,
}

/// The content of a line without its end, which is LF or CRLF.
#[derive(Serialize)]
enum LineData<'a> {
    #[serde(rename = "data")]
    Text(&'a str),
    #[serde(rename = "data_base64")]
    Bytes(String),
}

impl LineData<'_> {
    /// A string under a JSON type would be a JSON string, so such a line goes as bytes.
    fn of(line: &[u8], is_json: bool) -> LineData<'_> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match str::from_utf8(line) {
            Ok(text) if !is_json => LineData::Text(text),
            _ => LineData::Bytes(STANDARD.encode(line)),
        }
    }
}

impl PublishLine<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("strings always make JSON");
        line.push(b'\n');
        line
    }
}

/// The request body: lines as they come, spaces while there are none.
struct LineStream {
    lines: Receiver<Vec<u8>>,
    current: Vec<u8>,
    sent: usize,
    quiet_max: Duration,
}

impl LineStream {
    fn new(lines: Receiver<Vec<u8>>, quiet_max: Duration) -> LineStream {
        LineStream { lines, current: Vec::new(), sent: 0, quiet_max }
    }

    /// Makes `current` the next line, and those that wait behind it as far as they fill a write.
    /// `false` at the end of the input.
    fn advance(&mut self) -> bool {
        self.sent = 0;
        self.current = match self.lines.recv_timeout(self.quiet_max) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => b" ".to_vec(),
            Err(RecvTimeoutError::Disconnected) => return false,
        };
        while self.current.len() < WRITE_BYTES
            && let Ok(line) = self.lines.try_recv()
        {
            self.current.extend_from_slice(&line);
        }
        true
    }
}

impl Read for LineStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.sent == self.current.len() && !self.advance() {
            return Ok(0);
        }
        let count = buffer.len().min(self.current.len() - self.sent);
        buffer[..count].copy_from_slice(&self.current[self.sent..self.sent + count]);
        self.sent += count;
        Ok(count)
    }
}

fn input_error(error: std::io::Error) -> Failure {
    Failure::Failed(format!("standard input: {error}"))
}

const EXAMPLES: &str = "\
Examples:
  stentor pub /scores/lal-bos '101:99'
  stentor pub /quotes/aapl --type application/json '{\"close\":187.2}'
  date | stentor pub /now
  date | stentor pub /now --server unix:/run/stentor/control.sock
  tail -f access.log | stentor pub /log --lines
  stentor pub /team/plan 'at nine' --server http://127.0.0.1:8080 --token-file token";

const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a stream of lines says nothing: well below the server's patience of a minute.
const QUIET_MAX: Duration = Duration::from_secs(20);

/// Lines read ahead of what the server has taken.
const LINES_QUEUED_MAX: usize = 1_024;

/// Lines are gathered to about this much for one write.
const WRITE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<PubArgs, clap::Error> {
        let line = ["stentor", "pub"].iter().chain(arguments);
        Cli::try_parse_from(line).map(|cli| match cli.command {
            Command::Pub(args) => args,
            other => panic!("not pub: {other:?}"),
        })
    }

    #[test]
    fn arguments() {
        let args = parse(&["/a", "-1", "--type", "application/json", "--event", "e"]).unwrap();
        assert_eq!((args.topic.as_str(), args.data.as_deref()), ("/a", Some("-1")));
        assert_eq!(args.content_type, "application/json");
        assert_eq!(args.event.as_deref(), Some("e"));
        assert_eq!(parse(&["/a", "-"]).unwrap().data.as_deref(), Some("-"));
        assert_eq!(parse(&["/a"]).unwrap().data, None);
        assert!(parse(&["/a", "--lines"]).unwrap().lines);
        for bad in [
            &["a"][..],
            &[],
            &["/a", "x", "--lines"],
            &["/a", "x", "--type", "a\nb"],
            &["/a", "x", "--event", "a\r"],
            &["/*", "x"],
            &["/a", "--server", "wss://x"],
            &["/a", "--control", "wss://x"],
        ] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn a_line_is_one_line_of_json() {
        let event = Some("e".to_owned());
        let rows: [(&[u8], &str); 3] = [
            (b"say \"hi\"\r\n", r#""data":"say \"hi\"""#),
            (b"a\rb", r#""data":"a\rb""#),
            (b"\xff\0\n", r#""data_base64":"/wA=""#),
        ];
        for (bytes, data) in rows {
            let data_of_line = LineData::of(bytes, false);
            let line =
                PublishLine { topic: "/a", data: data_of_line, content_type: "t/t", event: &event };
            let expected =
                format!("{{\"topic\":\"/a\",{data},\"type\":\"t/t\",\"event\":\"e\"}}\n");
            assert_eq!(line.encode(), expected.as_bytes());
        }
    }

    #[test]
    fn the_stream_gathers_lines_and_fills_silence() {
        let (sender, receiver) = sync_channel(8);
        let mut stream = LineStream::new(receiver, Duration::from_millis(1));
        let mut buffer = [0; 8];
        sender.send(b"12345\n".to_vec()).unwrap();
        sender.send(b"6789\n".to_vec()).unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap(), 8);
        assert_eq!(&buffer, b"12345\n67");
        assert_eq!(stream.read(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"89\n");
        assert_eq!(stream.read(&mut buffer).unwrap(), 1);
        assert_eq!(&buffer[..1], b" ");
        drop(sender);
        assert_eq!(stream.read(&mut buffer).unwrap(), 0);
    }
}
