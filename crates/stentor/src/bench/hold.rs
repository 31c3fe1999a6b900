//! `stentor bench hold`: connections that are opened and kept. What connections are for, and how
//! fast they are opened, are flags of other runs as well.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use stentor_bench::plan::{Hold, Plan, Role, Setup, Task};

use super::common::Flags;
use crate::Failure;
use crate::args::usage;
use crate::quantity::{check_a_day, time};

/// Flags of runs that keep connections.
#[derive(Args, Debug)]
pub(super) struct HoldFlags {
    /// Connections to open
    #[arg(short, long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    connections: u32,
    /// What they are for: idle (one request, then silence), or a stream by sse, ws or poll
    ///
    /// Server-Sent Events, WebSocket, or a long-poll that is asked again whenever it is answered.
    #[arg(long = "as", value_name = "KIND", default_value = "idle", value_parser = any_role())]
    role: Role,
    #[command(flatten)]
    ramp: Ramp,
    /// How long to hold them when all are open, such as 10s, 500ms or 2m; 24h at most
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
}

impl Flags for HoldFlags {
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure> {
        let (connections, duration) = (self.connections, self.duration);
        let ramp = self.ramp.of(connections)?;
        let task = Task::Hold(Hold { connections, role: self.role, ramp, duration });
        Ok(setups.into_iter().map(|setup| Plan { setup, task: task.clone() }).collect())
    }
}

/// How fast connections are opened.
#[derive(Args, Debug)]
pub(super) struct Ramp {
    /// Connections opened per second [default: as fast as it goes]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    ramp: Option<u32>,
}

impl Ramp {
    /// Connections per second, if `connections` of them are open within a day.
    pub(super) fn of(&self, connections: u32) -> Result<Option<u32>, Failure> {
        if let Some(ramp) = self.ramp {
            check_a_day(connections.into(), "connections", ramp.into()).map_err(usage)?;
        }
        Ok(self.ramp)
    }
}

/// Every kind of connection.
pub(super) fn any_role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(["idle", "sse", "ws", "poll"]).map(|name| role(&name))
}

/// The kinds that read streams.
pub(super) fn reader_role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(["sse", "ws", "poll"]).map(|name| role(&name))
}

/// The role of a name that the parser let through.
fn role(name: &str) -> Role {
    match name {
        "sse" => Role::Sse,
        "ws" => Role::Ws,
        "poll" => Role::Poll,
        _ => Role::Idle,
    }
}
