//! `stentor reload`: asks a running server to read its configuration again, and prints the outcome.

use clap::Args;
use serde::Deserialize;

use crate::operation::{self, OperationFlags, RemoteOperation};
use crate::{Failure, local};

/// Have a running server read its configuration again
///
/// Waits for the outcome and prints it in one sentence: what only counts from the next restart, or
/// why the configuration is refused. Then the settings stay as they are, and the exit code is 1.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    flags: OperationFlags,
}

/// A reload.
enum Reload {}

/// A reload that was done, in the status.
#[derive(Debug, Deserialize)]
struct ReloadDone {
    need_restart: Vec<String>,
}

pub(crate) fn run(args: &ReloadArgs) -> Result<(), Failure> {
    operation::run::<Reload>(&args.flags)
}

impl RemoteOperation for Reload {
    type Done = ReloadDone;
    const PAGE: &'static str = "/-/reload";
    const OPERATIONS: &'static str = "reloads";
    const NOT_DONE: &'static str = "not reloaded";

    fn ask_process(process: u32) -> Result<String, Failure> {
        local::reload(process)
    }

    fn done(_: u32, _: u32, done: &ReloadDone) -> String {
        reloaded(&done.need_restart)
    }

    fn failed(_: u32, reason: &str) -> String {
        not_reloaded(reason)
    }
}

/// The sentence for a reload that was done.
pub(crate) fn reloaded(need_restart: &[String]) -> String {
    match need_restart {
        [] => "reloaded".to_owned(),
        settings => format!("reloaded; needs a restart to count: {}", settings.join(", ")),
    }
}

/// The sentence for one that was refused.
pub(crate) fn not_reloaded(reason: &str) -> String {
    format!("not reloaded, the settings stay as they are: {reason}")
}

const EXAMPLES: &str = "\
Examples:
  stentor reload
  stentor reload --server unix:/run/stentor/control.sock
  stentor reload --process $(pidof stentor)     as the user it runs as, or as root
  stentor reload --token-file token             where control_token = true";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{OperationBegun, OperationFailed, OperationStatus, outcome};

    #[test]
    fn the_outcome_names_what_needs_a_restart_or_the_reason() {
        let begun = OperationBegun { pid: 12, succeeded: 1, failed: 0 };
        let of = |done, failed, need_restart: &[&str]| {
            let need_restart = need_restart.iter().map(|name| name.to_string()).collect();
            let last_failure = Some(OperationFailed { reason: "f.toml:1:1: no".to_owned() });
            let last = Some(ReloadDone { need_restart });
            let reloads = OperationStatus { under_way: false, done, failed, last, last_failure };
            outcome::<Reload>(&begun, 12, &reloads).unwrap()
        };
        assert_eq!(of(2, 0, &[]), Ok("reloaded".to_owned()));
        let named = "reloaded; needs a restart to count: listen, workers";
        assert_eq!(of(2, 0, &["listen", "workers"]), Ok(named.to_owned()));
        let refused = "not reloaded, the settings stay as they are: f.toml:1:1: no";
        assert_eq!(of(1, 1, &[]), Err(refused.to_owned()));
    }
}
