//! `stentor upgrade`: has a running server hand everything over to another process of its program,
//! and says what came of it.

use clap::Args;
use serde::Deserialize;
use stentor_io::thousands;

use crate::operation::{self, OperationFlags, RemoteOperation};
use crate::{Failure, local};

/// Upgrade a running server, and drop nobody
///
/// The server starts its program anew, as it is now, and hands it every connection and everything
/// else. The command prints one sentence when that process serves. If the upgrade fails, the server
/// continues as it was; the sentence says why, and the exit code is 1. Where the control listener
/// asks for a token (control_token), it takes one that publishes everything.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    flags: OperationFlags,
}

/// An upgrade.
enum Upgrade {}

/// An upgrade that was done, in the status.
#[derive(Debug, Deserialize)]
struct UpgradeDone {
    connections: u64,
    stood_still_us: u64,
}

pub(crate) fn run(args: &UpgradeArgs) -> Result<(), Failure> {
    operation::run::<Upgrade>(&args.flags)
}

impl RemoteOperation for Upgrade {
    type Done = UpgradeDone;
    const PAGE: &'static str = "/-/upgrade";
    const OPERATIONS: &'static str = "upgrades";
    const NOT_DONE: &'static str = "not upgraded";

    fn ask_process(process: u32) -> Result<String, Failure> {
        local::upgrade(process)
    }

    fn done(before: u32, process: u32, done: &UpgradeDone) -> String {
        format!(
            "upgraded: process {before} -> {process}, {} {}, nobody waited longer than {}",
            thousands(done.connections),
            if done.connections == 1 { "connection" } else { "connections" },
            milliseconds(done.stood_still_us),
        )
    }

    fn failed(process: u32, reason: &str) -> String {
        format!("not upgraded, process {process} goes on: {reason}")
    }
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

const EXAMPLES: &str = "\
Examples:
  stentor upgrade
  stentor upgrade --server unix:/run/stentor/control.sock
  stentor upgrade --process $(pidof stentor)    as the user it runs as, or as root
  stentor upgrade --token-file token            where control_token = true";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{OperationBegun, OperationFailed, OperationStatus, outcome};

    fn operations(under_way: bool, done: u64, failed: u64) -> OperationStatus<UpgradeDone> {
        let last = (done > 0).then_some(UpgradeDone { connections: 10_000, stood_still_us: 8_812 });
        let last_failure = (failed > 0).then(|| OperationFailed { reason: "it ended".to_owned() });
        OperationStatus { under_way, done, failed, last, last_failure }
    }

    #[test]
    fn the_outcome_is_one_sentence() {
        let begun = OperationBegun { pid: 12, succeeded: 3, failed: 1 };
        let said = |operations| outcome::<Upgrade>(&begun, 34, &operations);
        assert_eq!(said(operations(true, 3, 1)), None);
        let done =
            "upgraded: process 12 -> 34, 10,000 connections, nobody waited longer than 8.8 ms";
        assert_eq!(said(operations(false, 4, 1)), Some(Ok(done.to_owned())));
        let failed = "not upgraded, process 34 goes on: it ended";
        assert_eq!(said(operations(false, 3, 2)), Some(Err(failed.to_owned())));
        // Another one is under way since.
        assert_eq!(said(operations(true, 3, 2)), Some(Err(failed.to_owned())));
        assert!(matches!(said(operations(false, 0, 0)), Some(Err(_))));
    }
}
