//! `stentor bench surge`: connections that come all at once, beside some that were there before.

use std::time::Duration;

use clap::Args;
use stentor_bench::plan::{Listeners, Plan, Role, Setup, Surge, Task};
use stentor_bench::target::Target;

use super::common::{Flags, same_number};
use super::hold::any_role;
use super::publish::PublishFlags;
use crate::Failure;
use crate::args::usage;
use crate::quantity::{rate, time};

/// Flags of runs in which many come at once.
#[derive(Args, Debug)]
pub(super) struct SurgeFlags {
    /// Connections that come at once
    #[arg(short, long, value_name = "N", default_value = "1000",
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
    #[arg(short, long, value_name = "R", default_value = "1000", value_parser = rate)]
    rate: f64,
    /// What those who are there before ask for and read [default: what the newcomers do]
    ///
    /// So that messages for them are not for the newcomers as well. With several servers, give one
    /// for each, in the order of their URLs.
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    beside: Vec<Target>,
    /// Readers by Server-Sent Events that are there before, if there is somewhere to publish
    #[arg(long, value_name = "N", default_value = "20", requires = "publish",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    readers: u32,
    /// Messages per second to those readers
    ///
    /// They are due at fixed times, and delivery counts from then.
    #[arg(long, value_name = "R", default_value = "100", requires = "publish", value_parser = rate)]
    messages: f64,
    /// Where messages are published, such as http://127.0.0.1:8081/a
    ///
    /// With several servers, give one for each, in the order of their URLs.
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    publish: Vec<Target>,
    #[command(flatten)]
    how: PublishFlags,
    /// Let all of them wait: stops the server (--pid) while they connect and ask
    ///
    /// No load generator is as quick as a server: this way the wave is the server's alone. The
    /// kernel connects them, as far as the listen queue goes. For the bystanders there is no time
    /// meanwhile. The server is stopped by SIGSTOP, for some seconds.
    #[arg(long, requires = "pid")]
    queued: bool,
    /// After how long the server closes silent connections: those of the newcomers, all at once
    ///
    /// The server is stopped until the last of them is due, and the bystanders' latency while it
    /// closes them is shown as well. Only for --as idle.
    #[arg(long, value_name = "TIME", requires = "pid", value_parser = time)]
    timeout: Option<Duration>,
}

impl Flags for SurgeFlags {
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
        if self.timeout.is_some() && self.role != Role::Idle {
            return Err(usage("--timeout is of silent connections: leave --as out"));
        }
        if self.queued && setups.iter().any(|setup| setup.target.tls_name.is_some()) {
            return Err(usage("--queued: nobody asks by TLS while the server is stopped"));
        }
        if self.timeout.is_some_and(|timeout| timeout < TIMEOUT_MIN) {
            return Err(usage("--timeout is 5s at least: it is calm for three of them"));
        }
        if !self.publish.is_empty() {
            same_number("--publish", self.publish.len(), setups.len())?;
        }
        if !self.beside.is_empty() {
            same_number("--beside", self.beside.len(), setups.len())?;
        }
        let servers = setups.into_iter().enumerate();
        let plan = |(nth, setup)| self.plan(setup, self.beside.get(nth), self.publish.get(nth));
        servers.map(plan).collect()
    }
}

impl SurgeFlags {
    fn plan(
        &self,
        setup: Setup,
        beside: Option<&Target>,
        publish: Option<&Target>,
    ) -> Result<Plan, Failure> {
        let beside = Box::new(beside.unwrap_or(&setup.target).clone());
        let publish = publish.map(|target| self.how.publish(target, MESSAGE_BYTES)).transpose()?;
        let listeners = publish.map(|publish| Listeners {
            readers: self.readers,
            publish,
            rate: self.messages,
        });
        let task = Task::Surge(Surge {
            beside,
            connections: self.connections,
            role: self.role,
            within: self.within,
            bystanders: self.bystanders,
            bystander_rate: self.rate,
            listeners,
            queued: self.queued,
            timeout: self.timeout,
            calm: CALM,
        });
        Ok(Plan { setup, task })
    }
}

/// Long enough for thousands of requests of the bystanders, at the usual rate.
const CALM: Duration = Duration::from_secs(3);

/// Three seconds of calm after the surge, and the time for which the server is stopped.
const TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// A usual message.
const MESSAGE_BYTES: usize = 64;
