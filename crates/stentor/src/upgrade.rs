//! `stentor upgrade`: has a running server hand everything over to another process of its program,
//! and says what came of it.

use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use ureq::Agent;
use ureq::http::header::AUTHORIZATION;

use crate::Failure;
use crate::client::{self, BaseUrl};
use crate::trust::TrustFlags;

/// Upgrade a running server, and drop nobody
///
/// The server starts its program anew, as it is now, and hands it every connection and everything
/// else. Prints one sentence when that process serves. If it does not come to that, the server goes
/// on as it was; the sentence says why, and the exit code is 1.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    /// The server's control listener: a URL, or unix:PATH
    #[arg(long, value_name = "ADDRESS", value_parser = BaseUrl::parse,
          default_value = "http://127.0.0.1:8081")]
    server: BaseUrl,
    /// A token that publishes everything, where the control listener asks for one
    #[arg(long, value_name = "TOKEN", env = "STENTOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    trust: TrustFlags,
}

/// The answer to the request: what was before.
#[derive(Debug, Deserialize)]
struct Begun {
    process: u32,
    done: u64,
    failed: u64,
}

/// What the status says of upgrades.
#[derive(Debug, Deserialize)]
struct Status {
    process: u32,
    upgrades: Upgrades,
}

#[derive(Debug, Deserialize)]
struct Upgrades {
    under_way: bool,
    done: u64,
    failed: u64,
    last: Option<Done>,
    last_failure: Option<Failed>,
}

#[derive(Debug, Deserialize)]
struct Done {
    connections: u64,
    stood_still_us: u64,
}

#[derive(Debug, Deserialize)]
struct Failed {
    reason: String,
}

pub(crate) fn run(args: &UpgradeArgs) -> Result<(), Failure> {
    let agent = client::agent(&args.server, &args.trust, Some(ANSWER_TIMEOUT))?;
    let begun = begin(args, &agent)?;
    let agent = client::agent(&args.server, &args.trust, Some(LOOK_TIMEOUT))?;
    let mut silent = 0;
    loop {
        thread::sleep(LOOK);
        match status(args, &agent) {
            Ok(status) => {
                silent = 0;
                if let Some(outcome) = outcome(&begun, &status) {
                    let sentence = outcome.map_err(Failure::Failed)?;
                    return crate::print(&format!("{sentence}\n"));
                }
            }
            // Whoever has just taken over may be busy; whoever says nothing for long is gone.
            Err(failure) if silent >= SILENT_MAX => return Err(failure),
            Err(_) => silent += 1,
        }
    }
}

fn begin(args: &UpgradeArgs, agent: &Agent) -> Result<Begun, Failure> {
    let mut request = agent.post(args.server.page("/-/upgrade"));
    if let Some(token) = &args.token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = request.send_empty();
    let mut answer = answer.map_err(|error| client::unreachable(&args.server, &error))?;
    if !answer.status().is_success() {
        return Err(client::refusal("not upgraded", &mut answer));
    }
    client::json(&mut answer)
}

fn status(args: &UpgradeArgs, agent: &Agent) -> Result<Status, Failure> {
    let answer = agent.get(args.server.page("/-/status")).call();
    let mut answer = answer.map_err(|error| client::unreachable(&args.server, &error))?;
    if !answer.status().is_success() {
        return Err(client::refusal(&format!("no status from {}", args.server), &mut answer));
    }
    client::json(&mut answer)
}

/// What has come of it, as a sentence, once that is known.
fn outcome(begun: &Begun, status: &Status) -> Option<Result<String, String>> {
    let Upgrades { under_way, done, failed, last, last_failure } = &status.upgrades;
    if *failed > begun.failed {
        let reason = last_failure.as_ref().map_or("it is not known why", |it| &it.reason);
        return Some(Err(format!("not upgraded, process {} goes on: {reason}", status.process)));
    }
    match last {
        Some(Done { connections, stood_still_us }) if *done > begun.done => Some(Ok(format!(
            "upgraded: process {} -> {}, {} {}, nobody waited longer than {}",
            begun.process,
            status.process,
            grouped(*connections),
            if *connections == 1 { "connection" } else { "connections" },
            milliseconds(*stood_still_us),
        ))),
        _ if *under_way => None,
        _ => Some(Err("the server says nothing of this upgrade: it was started anew".to_owned())),
    }
}

/// With a comma for each thousand.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

const EXAMPLES: &str = "\
Examples:
  stentor upgrade
  stentor upgrade --server unix:/run/stentor/control.sock
  STENTOR_TOKEN=$(cat token) stentor upgrade    where control_token = true";

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the server is asked.
const LOOK: Duration = Duration::from_millis(50);

/// How long it may take to say how it is.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// How often in a row it may say nothing.
const SILENT_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn status(under_way: bool, done: u64, failed: u64) -> Status {
        let last = (done > 0).then_some(Done { connections: 10_000, stood_still_us: 8_812 });
        let last_failure = (failed > 0).then(|| Failed { reason: "it ended".to_owned() });
        let upgrades = Upgrades { under_way, done, failed, last, last_failure };
        Status { process: 34, upgrades }
    }

    #[test]
    fn the_outcome_is_one_sentence() {
        let begun = Begun { process: 12, done: 3, failed: 1 };
        let said = |status: &Status| outcome(&begun, status);
        assert_eq!(said(&status(true, 3, 1)), None);
        let done =
            "upgraded: process 12 -> 34, 10,000 connections, nobody waited longer than 8.8 ms";
        assert_eq!(said(&status(false, 4, 1)), Some(Ok(done.to_owned())));
        let failed = "not upgraded, process 34 goes on: it ended";
        assert_eq!(said(&status(false, 3, 2)), Some(Err(failed.to_owned())));
        // Another one is under way since.
        assert_eq!(said(&status(true, 3, 2)), Some(Err(failed.to_owned())));
        assert!(matches!(said(&status(false, 0, 0)), Some(Err(_))));
    }

    #[test]
    fn thousands_are_set_apart() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
    }
}
