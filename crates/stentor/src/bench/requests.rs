//! `stentor bench get` and `stentor bench put`: requests.

use std::time::Duration;

use clap::Args;
use stentor_bench::plan::{Closing, Plan, RequestLoop, RequestMethod, Setup, TOPIC, Task, Until};

use super::common::Flags;
use crate::Failure;
use crate::args::usage;
use crate::quantity::{check_a_day, rate, size, time};

/// Flags of runs that read.
#[derive(Args, Debug)]
pub(super) struct GetFlags {
    #[command(flatten)]
    requests: LoopFlags,
    /// Encodings to ask for, such as 'gzip' or 'br, gzip'; answers are not decoded
    #[arg(long, value_name = "ENCODINGS", value_parser = encodings)]
    accept_encoding: Option<String>,
}

/// Flags of runs that publish.
#[derive(Args, Debug)]
pub(super) struct PutFlags {
    #[command(flatten)]
    requests: LoopFlags,
    /// Bytes of a value, such as 64 or 4KiB; 16 MiB at most
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = body_size)]
    bytes: usize,
}

/// Flags of every run that makes requests.
#[derive(Args, Debug)]
struct LoopFlags {
    /// Connections open at a time
    #[arg(short, long, value_name = "N", default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    connections: u32,
    /// How long to go on, such as 10s, 500ms or 2m; 24h at most
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Go on until so many requests were answered, instead of for a time
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    requests: Option<u64>,
    /// Requests per second, whether or not the server keeps up
    ///
    /// Without it, a connection sends its next request when the one before was answered: as fast
    /// as possible. With it, requests are due at fixed times, and latency counts from then. So a
    /// server that stalls is held to account for the requests that had to wait (no coordinated
    /// omission).
    #[arg(short, long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// Requests take so many topics in turn, numbered from 0
    ///
    /// The number is a segment at the end of the path, or stands where the URL has an n in braces;
    /// with braces the default is 1000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    topics: Option<u32>,
    /// Requests sent at once on a connection, before the first answer
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pipeline: u16,
    /// A new connection for every request
    ///
    /// Closed in order, by 'Connection: close' and FIN. Whoever closes first keeps the port for a
    /// minute (TIME_WAIT); more source addresses bring more ports: --from.
    #[arg(long, conflicts_with = "pipeline")]
    close: bool,
    /// With --close: end each connection by a reset (RST) when its answer is there
    ///
    /// DANGER: a reset throws away whatever the server has sent that is not yet delivered, and the
    /// server sees an error instead of an end. It leaves no TIME_WAIT, so that ports do not run
    /// out on this side. It is for measuring only; never do this to a server in production.
    #[arg(long, requires = "close")]
    rst: bool,
}

impl Flags for GetFlags {
    fn plans(&self, mut setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
        if let Some(encodings) = &self.accept_encoding {
            for setup in &mut setups {
                setup.headers.push(("Accept-Encoding".to_owned(), encodings.clone()));
            }
        }
        self.requests.plans(setups, RequestMethod::Get)
    }
}

impl Flags for PutFlags {
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
        if self.bytes * usize::from(self.requests.pipeline) > SENT_AT_ONCE_MAX {
            return Err(usage("--bytes times --pipeline is more than 16 MiB: ask for fewer"));
        }
        self.requests.plans(setups, RequestMethod::Put(self.bytes))
    }
}

impl LoopFlags {
    fn plans(&self, setups: Vec<Setup>, method: RequestMethod) -> Result<Vec<Plan>, Failure> {
        let until = match self.requests {
            Some(requests) => Until::Requests(requests),
            None => Until::Time(self.duration),
        };
        if let (Some(rate), Some(requests)) = (self.rate, self.requests) {
            check_a_day(requests, "requests", rate).map_err(usage)?;
        }
        let closing = match (self.close, self.rst) {
            (false, _) => Closing::Keep,
            (true, false) => Closing::Fin,
            (true, true) => Closing::Reset,
        };
        let plan = |setup: Setup| {
            let (connections, pipeline, rate) = (self.connections, self.pipeline, self.rate);
            let is_numbered = setup.target.path.contains(TOPIC);
            let topics = self.topics.or(is_numbered.then_some(TOPICS));
            let requests =
                RequestLoop { method, topics, connections, pipeline, closing, until, rate };
            Plan { setup, task: Task::Requests(requests) }
        };
        Ok(setups.into_iter().map(plan).collect())
    }
}

fn encodings(text: &str) -> Result<String, String> {
    let (_, value) = super::common::field(&format!("Accept-Encoding:{text}"))?;
    Ok(value)
}

fn body_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if bytes <= SENT_AT_ONCE_MAX {
        return Ok(bytes);
    }
    Err(format!("{text} is out of range: 16 MiB at most"))
}

/// Topics of a URL with a place for their number.
const TOPICS: u32 = 1_000;

/// The generator keeps the requests in memory that a connection sends at once.
const SENT_AT_ONCE_MAX: usize = 16 << 20;
