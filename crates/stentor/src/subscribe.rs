//! `stentor sub`: prints the messages of topics as they come.
//!
//! All topics come over one event stream, `/-/events`. Streams end: servers restart, proxies lose
//! patience, cables are pulled. So the id of the last message seen is kept, and the next stream is
//! asked to go on behind it; what the server cannot make good it reports as a gap, and so do we.
//! The server sends a heartbeat when it has nothing to say, which is why silence means that the
//! connection is dead. Pauses between attempts grow and differ from reader to reader, so that a
//! restart is not met by all at once.
//!
//! What is printed, and how, is in `output`.

mod output;
mod watch;

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write, stderr, stdout};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::Args;
use stentor_wire::sse::{Decoder, Item};
use ureq::http::header::{ACCEPT, CONTENT_TYPE};
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use crate::Failure;
use crate::client::{self, BaseUrl, parse_pattern};
use crate::quantity::duration;
use crate::trust::{TrustFlags, explain};
use output::{EventPrinter, Form};
use watch::Progress;

/// Print the messages of topics as they come
///
/// The current value at once, then every new one, a line each. With several topics each line
/// begins with the topic and a tab. In a topic, '*' stands for one segment, and '**' at the end
/// for any rest. What was missed and what was deleted is told on standard error. Ends when the
/// reader of its output does. On a terminal, control characters of messages are escaped.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubArgs {
    /// What to follow, such as /quotes/aapl or '/quotes/*'
    #[arg(required = true, value_name = "TOPIC", value_parser = parse_pattern)]
    topics: Vec<String>,
    /// Go on after the message with this id, or with all that is kept if it is 'earliest', instead
    /// of with the current values
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    /// If messages come faster than they can be taken, skip all but the newest of a topic
    #[arg(long)]
    latest: bool,
    /// Print JSON lines: topic, id, type, data
    #[arg(long)]
    json: bool,
    /// End after so many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so long, with exit code 1 if there was no stream, or fewer messages than --count
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// End with exit code 1 if there is no stream, or if it ends, instead of waiting for the server
    #[arg(long)]
    no_wait: bool,
    /// The server's public (or control) listener: a URL, or unix:PATH. STENTOR_SERVER names another
    /// default
    #[arg(long, value_name = "ADDRESS", value_parser = BaseUrl::parse,
          default_value = client::default_server("http://127.0.0.1:8080"))]
    server: BaseUrl,
    #[command(flatten)]
    trust: TrustFlags,
}

pub(crate) fn run(args: &SubArgs) -> Result<(), Failure> {
    let progress = Arc::default();
    watch::begin(args.timeout, args.count, &progress);
    let out = BufWriter::new(stdout().lock());
    let output = EventPrinter::new(out, stderr(), args.form(stdout().is_terminal()));
    StreamFollower::new(args, PATIENCE, output, progress)?.run()
}

impl SubArgs {
    /// The form of the output.
    fn form(&self, is_terminal: bool) -> Form {
        if self.json {
            return Form::Json { is_terminal };
        }
        let pattern = |topic: &String| topic.split('/').any(|part| matches!(part, "*" | "**"));
        let with_topic = self.topics.len() > 1 || self.topics.iter().any(pattern);
        Form::Plain { with_topic, is_terminal }
    }
}

/// Why a stream is not followed any further.
enum Interruption {
    /// All messages that were asked for have come, or nobody reads the output any more.
    Done,
    /// The server is not there, or not able to answer.
    Away(Failure),
    /// Trying again is of no use.
    Final(Failure),
}

impl From<io::Error> for Interruption {
    fn from(error: io::Error) -> Interruption {
        match error.kind() {
            ErrorKind::BrokenPipe => Interruption::Done,
            _ => Interruption::Final(Failure::Failed(format!("standard output: {error}"))),
        }
    }
}

/// How long is waited for what.
#[derive(Clone, Copy)]
struct Patience {
    /// A connection on which nothing comes for so long is dead.
    silence_max: Duration,
    /// The shortest pause between two attempts, unless the server asks for a longer one.
    pause_min: Duration,
}

/// A reader of one stream after the other.
struct StreamFollower<'a, O, N> {
    args: &'a SubArgs,
    patience: Patience,
    agent: Agent,
    output: EventPrinter<O, N>,
    /// The id of the last message seen.
    cursor: Option<String>,
    /// The shortest pause between two attempts, as the server wants it.
    pause_min: Duration,
    /// Attempts since something was last heard of the server.
    attempts: u32,
    /// The user was told that the server is away.
    away: bool,
    progress: Arc<Progress>,
}

impl<'a, O: Write, N: Write> StreamFollower<'a, O, N> {
    fn new(
        args: &'a SubArgs,
        patience: Patience,
        output: EventPrinter<O, N>,
        progress: Arc<Progress>,
    ) -> Result<StreamFollower<'a, O, N>, Failure> {
        Ok(StreamFollower {
            args,
            patience,
            agent: client::stream_agent(&args.server, &args.trust, patience.silence_max)?,
            output,
            cursor: args.since.clone(),
            pause_min: patience.pause_min,
            attempts: 0,
            away: false,
            progress,
        })
    }

    /// Follows until all messages have come, the output is closed, or trying again is of no use.
    fn run(mut self) -> Result<(), Failure> {
        loop {
            let Err(interruption) = self.follow();
            match interruption {
                Interruption::Done => return Ok(()),
                Interruption::Final(failure) => return Err(failure),
                Interruption::Away(reason) if self.args.no_wait => return Err(reason),
                Interruption::Away(reason) if !self.away => {
                    self.away = true;
                    let reason = reason.reason_and_tip().0.to_string();
                    let reason = reason.trim_end_matches('.');
                    self.output.notice(&format!("{reason}; waiting for the server"));
                }
                Interruption::Away(_) => {}
            }
            let random = RandomState::new().hash_one(self.attempts);
            thread::sleep(pause(self.pause_min, self.attempts, random));
            self.attempts += 1;
        }
    }

    /// Opens a stream and prints what comes, to its end.
    fn follow(&mut self) -> Result<Infallible, Interruption> {
        let request = self.agent.get(self.url()).header(ACCEPT, EVENT_STREAM);
        let mut answer = request.call().map_err(|error| self.unanswered(&error))?;
        check(&self.args.server, &mut answer)?;
        self.progress.has_stream.store(true, Ordering::Relaxed);
        if self.away {
            self.away = false;
            self.output.notice("the server is back");
        }
        let mut stream = answer.body_mut().as_reader();
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(0) => return Err(self.broken("has ended")),
                Ok(count) => count,
                Err(error) => return Err(self.broken(&self.cause(error))),
            };
            decoder.push(&buffer[..count]);
            let progress = Arc::clone(&self.progress);
            let _whole = stentor_io::lock(&progress.writing);
            while let Some(item) = decoder.next() {
                self.take(item.map_err(|_| too_long())?)?;
            }
            self.output.flush()?;
        }
    }

    fn url(&self) -> String {
        let topics = self.args.topics.iter().map(|topic| ("topic", topic.as_str()));
        let mode = self.args.latest.then_some(("mode", "latest"));
        let since = self.cursor.as_deref().map(|id| ("since", id));
        self.args.server.events(topics.chain(mode).chain(since))
    }

    fn take(&mut self, item: Item) -> Result<(), Interruption> {
        match item {
            // Every stream begins with this, also one that ends right after it: such streams must
            // not make the pauses short again.
            Item::Retry(ms) => {
                let wanted = Duration::from_millis(ms);
                self.pause_min = wanted.clamp(self.patience.pause_min, PAUSE_MAX);
            }
            Item::Comment => self.attempts = 0,
            Item::Event { id, name, data } => {
                self.attempts = 0;
                self.output.event(&data)?;
                // A gap has no id. The cursor it speaks of is kept: should the stream end before
                // the next message, the next one has to know what was seen.
                if id.is_some() {
                    self.cursor = id;
                }
                // On `/-/events` only what is no message has a name.
                if name.is_none() {
                    self.count_message()?;
                }
            }
        }
        Ok(())
    }

    fn count_message(&mut self) -> Result<(), Interruption> {
        let messages = self.progress.messages.fetch_add(1, Ordering::Relaxed) + 1;
        if self.args.count != Some(messages) {
            return Ok(());
        }
        self.output.flush()?;
        Err(Interruption::Done)
    }

    fn unanswered(&self, error: &ureq::Error) -> Interruption {
        match error {
            // A URL no client would send: there are too many topics for one.
            ureq::Error::Http(_) | ureq::Error::BadUri(_) => {
                Interruption::Final(Failure::Failed(format!("these topics make no URL: {error}")))
            }
            // A certificate that is not good now will not be soon. One that was may be again.
            _ if !self.progress.has_stream.load(Ordering::Relaxed) && explain(error).is_some() => {
                Interruption::Final(client::unreachable(&self.args.server, error))
            }
            _ => Interruption::Away(client::unreachable(&self.args.server, error)),
        }
    }

    fn broken(&self, how: &str) -> Interruption {
        let reason = format!("the stream from {} {how}", self.args.server);
        Interruption::Away(Failure::Failed(reason))
    }

    /// What an error while reading says of the stream.
    fn cause(&self, error: io::Error) -> String {
        match ureq::Error::from(error) {
            ureq::Error::Timeout(_) => {
                format!("was silent for {} s", self.patience.silence_max.as_secs())
            }
            error => format!("broke off: {error}"),
        }
    }
}

/// Whether the answer is a stream of events.
fn check(server: &BaseUrl, answer: &mut Response<Body>) -> Result<(), Interruption> {
    match answer.status() {
        StatusCode::OK => {}
        status => {
            let failure = client::refusal(server, "no stream", answer);
            return Err(match status.is_server_error() {
                true => Interruption::Away(failure),
                false => Interruption::Final(failure),
            });
        }
    }
    let content_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(EVENT_STREAM) {
        return Ok(());
    }
    let reason = format!("the answer is no event stream but '{}'", essence.escape_debug());
    Err(Interruption::Final(Failure::Failed(reason)))
}

/// The next stream would begin with the same event.
fn too_long() -> Interruption {
    let max_mib = EVENT_BYTES_MAX / (1024 * 1024);
    Interruption::Final(Failure::Failed(format!("an event has more than {max_mib} MiB")))
}

/// How long to wait after `attempts` in vain: at least `min`, and at most twice as long as after
/// the attempt before, as `random` says.
fn pause(min: Duration, attempts: u32, random: u64) -> Duration {
    let most = min.saturating_mul(2 << attempts.min(16)).min(PAUSE_MAX);
    let range_ms = most.saturating_sub(min).as_millis() as u64;
    min + Duration::from_millis(random % range_ms.max(1))
}

const EXAMPLES: &str = "\
Examples:
  stentor sub /scores/lal-bos
  stentor sub /quotes/aapl /quotes/msft
  stentor sub --latest '/quotes/*'
  stentor sub --since earliest /scores/lal-bos
  stentor sub --json /quotes/aapl | jq .data.close
  stentor sub --token-file token /team/plan     what only a token may read";

const EVENT_STREAM: &str = "text/event-stream";

/// Heartbeats come every 15 s, unless the server is configured otherwise.
const PATIENCE: Patience =
    Patience { silence_max: Duration::from_secs(60), pause_min: Duration::from_millis(500) };

const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Above the envelope of any message a server can be configured to take, unless nearly every byte
/// of it needs escaping.
const EVENT_BYTES_MAX: usize = 512 * 1024 * 1024;

const READ_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
