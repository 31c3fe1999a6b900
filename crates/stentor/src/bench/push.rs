//! `stentor bench push`: readers, and messages for them.

use clap::Args;
use stentor_bench::delivery::STAMP_BYTES;
use stentor_bench::plan::{Plan, Push, Role, Setup, Task};
use stentor_bench::target::Target;

use super::common::{Flags, same_number};
use super::hold::{Ramp, reader_role};
use super::publish::PublishFlags;
use crate::Failure;
use crate::args::usage;
use crate::quantity::{check_a_day, rate, share, size};

/// Flags of runs that publish to readers.
#[derive(Args, Debug)]
pub(super) struct PushFlags {
    /// Readers
    #[arg(short, long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    connections: u32,
    /// How they read: Server-Sent Events, WebSocket, or long-poll
    #[arg(long = "as", value_name = "KIND", default_value = "sse", value_parser = reader_role())]
    role: Role,
    #[command(flatten)]
    ramp: Ramp,
    /// Messages per second
    ///
    /// They are published at fixed times, and delivery counts from when a message was due.
    #[arg(short, long, value_name = "R", default_value = "10", value_parser = rate)]
    rate: f64,
    /// Messages in all
    #[arg(short = 'n', long, value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    messages: u32,
    /// Bytes of a message, such as 64 or 4KiB
    ///
    /// Each carries its number and the time it was published at, so that readers can tell what is
    /// missing, repeated, out of order, and how long it took.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = message_size)]
    size: usize,
    /// Readers that stop reading while messages are published, such as 20%
    ///
    /// What the others feel of them is measured, and what becomes of them when they read again.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    stall: u8,
    /// Where messages are published, such as http://127.0.0.1:8081/a
    ///
    /// With several servers, give one for each, in the order of their URLs.
    #[arg(long, value_name = "URL", required = true, value_parser = Target::parse)]
    publish: Vec<Target>,
    /// Another server that has what is published, such as http://127.0.0.1:8090/a; may be repeated
    ///
    /// For nodes of a cluster, and followers: readers are spread over all, with a thread for each
    /// at least, and times are told of each.
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    also: Vec<Target>,
    #[command(flatten)]
    how: PublishFlags,
}

impl Flags for PushFlags {
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
        same_number("--publish", self.publish.len(), setups.len())?;
        if setups.len() > 1 && !self.also.is_empty() {
            return Err(usage("--also is for one server, and not for several in turn".to_owned()));
        }
        check_a_day(self.messages.into(), "messages", self.rate).map_err(usage)?;
        let servers = setups.into_iter().zip(&self.publish);
        servers.map(|(setup, target)| self.plan(setup, target)).collect()
    }
}

impl PushFlags {
    fn plan(&self, setup: Setup, publish: &Target) -> Result<Plan, Failure> {
        let task = Task::Push(Push {
            connections: self.connections,
            role: self.role,
            ramp: self.ramp.of(self.connections)?,
            also: self.also.clone(),
            publish: self.how.publish(publish, self.size)?,
            rate: self.rate,
            messages: self.messages,
            stall_percent: self.stall,
        });
        Ok(Plan { setup, task })
    }
}

fn message_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if (STAMP_BYTES..=SIZE_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("{text} is out of range: from {STAMP_BYTES} B, for number and time, to 1 MiB"))
}

/// A message that is meant to be large; bodies beyond it are no longer a matter of messages.
const SIZE_MAX: usize = 1 << 20;
