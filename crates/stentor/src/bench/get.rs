//! `stentor bench get`: requests.

use std::time::Duration;

use clap::Args;
use stentor_bench::plan::{Closing, Get, Plan, Setup, Task, Until};

use super::common::Flags;
use super::quantity::{check_a_day, rate, time};
use crate::Failure;
use crate::args::usage;

/// Flags of runs that make requests.
#[derive(Args, Debug)]
pub(super) struct GetFlags {
    /// Connections open at a time
    #[arg(long, value_name = "N", default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    connections: u32,
    /// How long to go on, such as 10s, 500ms or 2m; 24h at most
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Go on until so many requests were answered, instead of for a time
    #[arg(long, value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    requests: Option<u64>,
    /// Requests per second, whether or not the server keeps up
    ///
    /// Without it, a connection sends its next request when the one before was answered: as fast
    /// as possible. With it, requests are due at fixed times, and latency counts from then. So a
    /// server that stalls is held to account for the requests that had to wait (no coordinated
    /// omission).
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
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
    /// Encodings to ask for, such as 'gzip' or 'br, gzip'; answers are not decoded
    #[arg(long, value_name = "ENCODINGS", value_parser = encodings)]
    accept_encoding: Option<String>,
}

impl Flags for GetFlags {
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
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
        let plan = |mut setup: Setup| {
            if let Some(encodings) = &self.accept_encoding {
                setup.headers.push(("Accept-Encoding".to_owned(), encodings.clone()));
            }
            let (connections, pipeline, rate) = (self.connections, self.pipeline, self.rate);
            Plan { setup, task: Task::Get(Get { connections, pipeline, closing, until, rate }) }
        };
        Ok(setups.into_iter().map(plan).collect())
    }
}

fn encodings(text: &str) -> Result<String, String> {
    let (_, value) = super::common::field(&format!("Accept-Encoding:{text}"))?;
    Ok(value)
}
