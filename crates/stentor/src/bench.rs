//! `stentor bench`: load for any HTTP server, and a report of what came of it.
//!
//! This is the command line of it; the load comes from `stentor-bench`. Each kind of run has a
//! file with its flags and the plan they make. With several URLs there are several plans, which are
//! compared. The flags that all runs have are in `common`; `live` shows the progress.
//!
//! Whether a plan may be carried out is decided here, for all kinds of runs at once: every server
//! it connects to is private, or the caller says that it is theirs.

mod common;
mod hold;
mod live;
mod page;
mod publish;
mod push;
mod requests;
mod surge;

use clap::{Args, Subcommand};
use serde::Serialize;
use stentor_bench::BenchError;
use stentor_bench::plan::{self, Plan};
use stentor_bench::progress::Watch;
use stentor_bench::report::{Comparison, Report};
use stentor_bench::target::Target;

use crate::Failure;
use crate::args::usage;
use crate::say;
use crate::trust::{TOKEN_VARIABLE, Tls};
use common::{Common, Flags};
use hold::HoldFlags;
use page::Page;
use push::PushFlags;
use requests::{GetFlags, PutFlags};
use surge::SurgeFlags;

/// Measure an HTTP server: requests, connections, streams
///
/// For any server that speaks HTTP/1.1. The load and the server share what they run on: leave the
/// server a core of its own, or use two machines. Ctrl-C or SIGTERM ends a run, with the figures of
/// what was measured so far; half a second later a second one ends it at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    task: Task,
}

/// Every kind of run.
#[derive(Debug, Subcommand)]
enum Task {
    /// Requests: how many per second, and how long each takes
    ///
    /// On connections that are kept, as fast as the server answers, or at a rate.
    #[command(after_help = GET_EXAMPLES)]
    Get(Box<Run<GetFlags>>),
    /// Publishing by PUT: how many values per second, and how long each takes
    ///
    /// On connections that are kept, as fast as the server answers, or at a rate. It overwrites
    /// the values at the URL. Latency is from the request, or when it was due, to the whole
    /// answer: with Stentor, every later read sees the value then.
    #[command(after_help = PUT_EXAMPLES)]
    Put(Box<Run<PutFlags>>),
    /// Many connections at a time: how fast they open, whether they stay, what each costs
    ///
    /// A connection asks once and then stays open: silent, or as the reader of a stream.
    #[command(after_help = HOLD_EXAMPLES)]
    Hold(Box<Run<HoldFlags>>),
    /// Messages to many readers: whether all arrive, and how long it takes
    ///
    /// Readers of a stream, and a publisher whose messages carry their number and time. Each
    /// reader is checked for messages that are missing, repeated or out of order.
    #[command(after_help = PUSH_EXAMPLES)]
    Push(Box<Run<PushFlags>>),
    /// Many connections at once: what they get, and what those feel that were there before
    #[command(after_help = SURGE_EXAMPLES)]
    Surge(Box<Run<SurgeFlags>>),
}

/// A run on a server, or rounds of it on several.
#[derive(Args, Debug)]
struct Run<F: Args> {
    /// What to ask for: http://HOST:PORT/PATH or https://…; without a scheme it is http
    ///
    /// With several URLs the servers take turns, every other round in reverse; medians and ratios
    /// to the first are shown. Machines are noisy: a figure means little beside one of another
    /// minute.
    #[arg(value_name = "URL", required = true, num_args = 1..=16, value_parser = Target::parse)]
    targets: Vec<Target>,
    /// Rounds of each server, if there are several [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: Option<u16>,
    #[command(flatten)]
    flags: F,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.task {
        Task::Get(run) => run.run(),
        Task::Put(run) => run.run(),
        Task::Hold(run) => run.run(),
        Task::Push(run) => run.run(),
        Task::Surge(run) => run.run(),
    }
}

impl<F: Flags> Run<F> {
    fn plans(&self) -> Result<Vec<Plan>, Failure> {
        if self.rounds.is_some() && self.targets.len() == 1 {
            return Err(usage("--rounds is for several URLs, which take turns"));
        }
        plans(&self.targets, &self.flags, &self.common)
    }

    fn run(&self) -> Result<(), Failure> {
        let plans = self.plans()?;
        carry_out(&self.common, |watch| match &plans[..] {
            [plan] => {
                stentor_bench::run(plan, watch).map(|report| BenchOutcome::One(Box::new(report)))
            }
            plans => {
                let rounds = self.rounds.unwrap_or(ROUNDS).into();
                stentor_bench::compare(plans, rounds, watch).map(BenchOutcome::Several)
            }
        })
    }
}

/// A plan for each target.
fn plans(targets: &[Target], flags: &impl Flags, common: &Common) -> Result<Vec<Plan>, Failure> {
    let mut plans = flags.plans(common.setups(targets)?)?;
    if !common.i_own_this_server {
        plans.iter().flat_map(servers).try_for_each(check_private)?;
    }
    let is_secure = plans.iter().flat_map(servers).any(|target| target.tls_name.is_some());
    if is_secure || common.trust.names_files() {
        let Tls { trust, identity, config } = common.trust.tls()?;
        plans.iter_mut().for_each(|plan| plan.trust(&trust, identity.as_ref(), &config));
    }
    let is_own = plans.iter().flat_map(servers).all(|target| target.address.ip().is_loopback());
    if let Some(field) = common.trust.authorization(is_own).map_err(usage)? {
        plans.iter_mut().for_each(|plan| plan.authorize(&field));
    }
    if common.trust.withholds_token(is_own) {
        say::note(format!(
            "{TOKEN_VARIABLE} is sent to this machine only; --token-file FILE sends one"
        ));
    }
    Ok(plans)
}

/// All that a plan connects to.
fn servers(plan: &Plan) -> impl Iterator<Item = &Target> {
    let (beside, publish, also) = match &plan.task {
        plan::Task::Requests(_) | plan::Task::Hold(_) => (None, None, &[][..]),
        plan::Task::Push(push) => (None, Some(&push.publish), &push.also[..]),
        plan::Task::Surge(surge) => {
            let publish = surge.listeners.as_ref().map(|listeners| &listeners.publish);
            (Some(&*surge.beside), publish, &[][..])
        }
    };
    let publish = publish.map(|publish| &publish.target);
    std::iter::once(&plan.setup.target).chain(beside).chain(publish).chain(also)
}

fn check_private(target: &Target) -> Result<(), Failure> {
    let Some(address) = target.public_address() else { return Ok(()) };
    Err(usage(format!(
        "{} leads to {address}, which is neither this machine nor in a private network. A load \
         test of somebody else's server is an attack on it. If this one is yours, say so: \
         --i-own-this-server",
        target.url
    )))
}

/// What a run came to. Serialised as what is in it.
#[derive(Serialize)]
#[serde(untagged)]
enum BenchOutcome {
    One(Box<Report>),
    Several(Comparison),
}

impl BenchOutcome {
    fn text(&self) -> String {
        match self {
            BenchOutcome::One(report) => report.text(crate::columns()),
            BenchOutcome::Several(comparison) => comparison.text(crate::columns()),
        }
    }

    fn html(&self) -> String {
        match self {
            BenchOutcome::One(report) => report.html(),
            BenchOutcome::Several(comparison) => comparison.html(),
        }
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self)
            .map_err(|error| Failure::Failed(format!("the report cannot be written: {error}")))
    }

    /// Whether the servers passed: something was measured, and no message was lost in silence.
    fn check(&self) -> Result<(), Failure> {
        match self {
            BenchOutcome::One(report) => check(report),
            BenchOutcome::Several(comparison) => {
                let subjects = comparison.subjects.iter();
                subjects.flat_map(|subject| &subject.reports).try_for_each(check)?;
                comparison.error.clone().map_or(Ok(()), |error| Err(Failure::Failed(error)))
            }
        }
    }
}

/// Runs, and shows what came of it wherever that was asked for.
fn carry_out(
    common: &Common,
    work: impl FnOnce(&dyn Watch) -> Result<BenchOutcome, BenchError>,
) -> Result<(), Failure> {
    let page = common.html.as_deref().map(Page::prepare).transpose()?;
    let (outcome, stopped_by) = live::watched(common.quiet, work)?;
    let outcome = match (outcome, stopped_by) {
        (Ok(outcome), _) => outcome,
        (Err(error), None) => return Err(Failure::Failed(error.to_string())),
        (Err(error), Some(signal)) => {
            say::error(error);
            return Err(Failure::Interrupted(signal));
        }
    };
    if common.json {
        crate::print(&format!("{}\n", outcome.json()?))?;
    } else {
        crate::print(&outcome.text())?;
    }
    if let Some(page) = page {
        page.write(&outcome.html())?;
    }
    if let Some(signal) = stopped_by {
        return Err(Failure::Interrupted(signal));
    }
    outcome.check()
}

/// Whether a run had no problems: those that its report names.
fn check(report: &Report) -> Result<(), Failure> {
    let problems = report.problems();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!("{}: {}", report.url, problems.join(", "))))
}

const EXAMPLES: &str = "\
Examples:
  stentor bench get http://127.0.0.1:8080/scores/lal-bos
  stentor bench put http://127.0.0.1:8081/a --rate 1000
  stentor bench hold http://127.0.0.1:8080/a --connections 100000 --as sse
  stentor bench get https://127.0.0.1:8443/a --ca ca.pem
  stentor bench push http://127.0.0.1:8080/a --publish http://127.0.0.1:8081/a
  stentor bench surge http://127.0.0.1:8080/a --connections 10000 --within 1s
  stentor bench get http://127.0.0.1:8080/a http://127.0.0.1:80/a --rounds 7

Exit codes: 0 success; 1 the report names problems, or nothing could be measured; 2 usage;
130 ended by Ctrl-C and 143 by SIGTERM, with the figures printed.";

const GET_EXAMPLES: &str = "\
Examples:
  stentor bench get http://127.0.0.1:8080/a --duration 30s
  stentor bench get http://127.0.0.1:8080/a --rate 20000 --html report.html
  stentor bench get http://127.0.0.1:8080/a --pipeline 16 --requests 1000000
  stentor bench get http://127.0.0.1:8080/a --close --from 127.1.0.0/16";

const PUT_EXAMPLES: &str = "\
Examples:
  stentor bench put http://127.0.0.1:8081/a -c 16 -d 30s
  stentor bench put http://127.0.0.1:8081/quotes --topics 10000 --bytes 100
  stentor bench put https://example.com/a --rate 500 --token-file token --i-own-this-server";

const HOLD_EXAMPLES: &str = "\
Examples:
  stentor bench hold http://127.0.0.1:8080/a --connections 15000 --pid $(pidof stentor)
  stentor bench hold http://127.0.0.1:8080/a --as ws --ramp 5000 --duration 10m";

const PUSH_EXAMPLES: &str = "\
Examples:
  Stentor     stentor bench push http://127.0.0.1:8080/a --publish http://127.0.0.1:8081/a
  nchan       stentor bench push http://127.0.0.1/sub/a --publish http://127.0.0.1/pub/a
  both        stentor bench push http://127.0.0.1:8080/a http://127.0.0.1/sub/a \\
                --publish http://127.0.0.1:8081/a --publish http://127.0.0.1/pub/a
  Mercure     stentor bench push 'http://127.0.0.1/.well-known/mercure?topic=a' \\
                --publish http://127.0.0.1/.well-known/mercure \\
                --publish-header 'Authorization: Bearer …' \\
                --publish-header 'Content-Type: application/x-www-form-urlencoded' \\
                --publish-body 'topic=a&data={message}'
  Centrifugo  connect='%7B%22subs%22:%7B%22a%22:%7B%7D%7D%7D'
              stentor bench push \\
                \"http://127.0.0.1:8000/connection/uni_sse?cf_connect=$connect\" \\
                --publish http://127.0.0.1:8000/api/publish --publish-header 'X-API-Key: …' \\
                --publish-header 'Content-Type: application/json' \\
                --publish-body '{\"channel\":\"a\",\"data\":\"{message}\"}'";

const SURGE_EXAMPLES: &str = "\
Examples:
  stentor bench surge http://127.0.0.1:8080/a --connections 10000 --within 1s
  stentor bench surge http://127.0.0.1:8080/a --as sse --bystanders 200 --rate 5000
  stentor bench surge http://127.0.0.1:8080/a --as sse --connections 16000 --queued \\
    --pid $(pidof stentor) --publish http://127.0.0.1:8081/a";

/// As many as show how much a figure scatters.
const ROUNDS: u16 = 5;

#[cfg(test)]
mod tests;
