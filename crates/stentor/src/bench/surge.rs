//! `stentor bench surge`: connections that come all at once, beside some that were there before.

use std::time::Duration;

use clap::Args;
use stentor_bench::plan::{Plan, Role, Setup, Surge};

use super::common::Flags;
use super::hold::any_role;
use super::quantity::{rate, time};
use crate::Failure;

/// Flags of runs in which many come at once.
#[derive(Args, Debug)]
pub(super) struct SurgeFlags {
    /// Connections that come at once
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    connections: u32,
    /// Within how long they come, such as 1s or 200ms; 24h at most
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    within: Duration,
    /// What they are for: idle (one request, then silence), or a stream by sse, ws or poll
    #[arg(long = "as", value_name = "KIND", default_value = "idle", value_parser = any_role())]
    role: Role,
    /// Keep-alive connections that are there before, and go on asking all the time
    ///
    /// Their latency is shown before, during and after the surge.
    #[arg(long, value_name = "N", default_value = "64",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    bystanders: u32,
    /// Requests per second among all bystanders
    ///
    /// They are due at fixed times, and latency counts from then.
    #[arg(long, value_name = "R", default_value = "1000", value_parser = rate)]
    rate: f64,
}

impl Flags for SurgeFlags {
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
        let plan = |setup| {
            Plan::Surge(Surge {
                setup,
                connections: self.connections,
                role: self.role,
                within: self.within,
                bystanders: self.bystanders,
                bystander_rate: self.rate,
                calm: CALM,
            })
        };
        Ok(setups.into_iter().map(plan).collect())
    }
}

/// Long enough for thousands of requests of the bystanders, at the usual rate.
const CALM: Duration = Duration::from_secs(3);
