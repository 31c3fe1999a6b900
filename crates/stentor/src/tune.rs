//! `stentor tune`: makes the host ready, or says what it lacks.
//!
//! What is judged, and how, is in `stentor-tune`; here are the flags and what is printed.

use std::fs;
use std::io::stdout;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use stentor_tune::{Applied, Facts, Kind, Plan, Report, Style, judge};

use crate::Failure;
use crate::args::usage;

/// Make the host ready for many connections
///
/// Reads what the host says of itself, computes what so many connections need, and lists what to
/// change: now → wanted, why, how, and what it costs. Nothing is changed without --apply. What is
/// fine is not mentioned. For both ends of the connections on one host, ask for twice as many.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "arguments of the command line")]
pub(crate) struct TuneArgs {
    /// Connections held at the same time
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    connections: u64,
    /// What the connections do
    #[arg(long = "as", value_name = "KIND", value_enum, default_value_t = As::Sse)]
    kind: As,
    /// Messages published per second, each of them sent to every connection
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = parse_rate)]
    rate: f64,
    /// Judge a host that opens the connections, such as one that runs a load generator
    #[arg(long)]
    client: bool,
    /// They are secured by TLS: memory for each session, and time for its handshake
    #[arg(long)]
    tls: bool,
    /// Mention also what is fine, and what cannot be read here
    #[arg(long)]
    all: bool,
    /// Make the changes that can be made while the host runs (root), and print how to undo them
    #[arg(long, conflicts_with_all = ["facts", "sysctl", "systemd", "record"])]
    apply: bool,
    /// Print a file for /etc/sysctl.d
    #[arg(long, conflicts_with_all = ["systemd", "json", "record"])]
    sysctl: bool,
    /// Print a drop-in for the service's unit
    #[arg(long, conflicts_with_all = ["json", "record"])]
    systemd: bool,
    /// Print everything as JSON, with --apply also each change and the value before it
    #[arg(long)]
    json: bool,
    /// Write what this host says of itself to a file, and judge nothing
    #[arg(long, value_name = "FILE", conflicts_with = "facts")]
    record: Option<PathBuf>,
    /// Judge a host that was recorded, instead of this one
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
}

/// What connections do.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum As {
    /// Kept alive between requests
    Idle,
    /// Readers of Server-Sent Events
    Sse,
    /// WebSocket readers
    Ws,
    /// Long-polls
    Poll,
}

pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    if let Some(file) = &args.record {
        return record(file);
    }
    let facts = match &args.facts {
        Some(file) => recorded(file)?,
        None => measured(),
    };
    let plan = args.plan();
    let report = judge(&facts, &plan);
    if args.sysctl {
        return crate::print(&stentor_tune::sysctl_file(&report));
    }
    if args.systemd {
        return crate::print(&stentor_tune::systemd_file(&report));
    }
    if args.apply {
        return apply(args, &report);
    }
    if args.json {
        crate::print(&json(&TuneOutcome { report: &report, applied: &[] })?)?;
    } else {
        crate::print(&report.text(args.all, style(), crate::columns()))?;
    }
    answer(&report)
}

/// One line about a server with so many workers that is to hold so many readers; none if the host
/// can. Nothing is measured for it, so it takes no time to speak of.
pub(crate) fn warning(connections: u64, workers: usize) -> Option<String> {
    let workers = Some(u32::try_from(workers).unwrap_or(u32::MAX));
    let (kind, rate, client, tls) = (Kind::Sse, 0.0, false, false);
    let plan = Plan { connections, kind, rate, client, tls, workers };
    judge(&Facts::of_this_host(), &plan).warning()
}

impl TuneArgs {
    fn plan(&self) -> Plan {
        let kind = match self.kind {
            As::Idle => Kind::Idle,
            As::Sse => Kind::Sse,
            As::Ws => Kind::Ws,
            As::Poll => Kind::Poll,
        };
        let TuneArgs { connections, rate, client, tls, .. } = *self;
        Plan { connections, kind, rate, client, tls, workers: None }
    }
}

/// The report, and what was changed.
#[derive(Serialize)]
struct TuneOutcome<'a> {
    #[serde(flatten)]
    report: &'a Report,
    applied: &'a [Applied],
}

/// Makes the changes, and judges the host as it is then.
fn apply(args: &TuneArgs, report: &Report) -> Result<(), Failure> {
    if report.facts.root == Some(false) {
        return Err(usage("--apply changes settings of the kernel: run it as root (sudo)"));
    }
    let applied = stentor_tune::apply(Path::new("/"), report);
    let socket_bytes = report.facts.socket_bytes;
    let after = judge(&Facts { socket_bytes, ..Facts::of_this_host() }, &report.plan);
    if args.json {
        crate::print(&json(&TuneOutcome { report: &after, applied: &applied })?)?;
        return answer(&after);
    }
    let mut text = String::new();
    for change in &applied {
        text += &format!("{}\n", change.text(style()));
    }
    let made = applied.iter().filter(|change| change.error.is_none());
    let undo: Vec<String> = made.filter_map(|applied| applied.change.undo()).collect();
    if undo.is_empty() {
        text += "nothing was changed\n";
    } else {
        text += "\nUntil the next start of the host; --sysctl prints a file that stays.\n\
                 To undo:\n";
        undo.iter().for_each(|command| text += &format!("  {command}\n"));
    }
    text += &format!("\n{}", after.text(args.all, style(), crate::columns()));
    crate::print(&text)?;
    answer(&after)
}

/// Whether the host is ready, as the exit code tells it.
fn answer(report: &Report) -> Result<(), Failure> {
    if report.ready { Ok(()) } else { Err(Failure::Failed(report.verdict())) }
}

/// This host, and what a socket costs on it.
fn measured() -> Facts {
    // Read first: the measurement raises the soft limit and leaves sockets in TIME_WAIT.
    let facts = Facts::of_this_host();
    Facts { socket_bytes: stentor_tune::socket_bytes(), ..facts }
}

fn record(file: &Path) -> Result<(), Failure> {
    fs::write(file, json(&measured())?)
        .map_err(|error| Failure::Failed(format!("{} cannot be written: {error}", file.display())))
}

fn recorded(file: &Path) -> Result<Facts, Failure> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| usage(format!("{name}: {error}")))?;
    let bad = |why: String| {
        usage(format!("{name} is no host that 'stentor tune --record' has written: {why}"))
    };
    let facts: Facts = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    // Any fact may be missing, so that any object reads as a host. But each host has a kernel.
    match facts.kernel {
        Some(_) => Ok(facts),
        None => Err(bad("it names no kernel".to_owned())),
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::Failed(error.to_string()))
}

fn style() -> Style {
    if crate::has_colours(&stdout()) { Style::Coloured } else { Style::Plain }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("messages per second, from 0 to {RATE_MAX}"))
}

const RATE_MAX: f64 = 1e6;

const EXAMPLES: &str = "\
Examples:
  stentor tune                                    what this host lacks for 100,000 readers
  stentor tune -n 1000000 --rate 4 --all          a million, 4 messages a second; the fine too
  sudo stentor tune -n 1000000 --apply            make the changes, and print how to undo them
  stentor tune -n 1000000 --sysctl > 90-stentor.conf
  stentor tune --client -n 50000                  the host of a load generator
  stentor serve --expect 1000000                  run a server that warns if it lacks something
  stentor tune --record host.json                 for a bug report; --facts host.json judges it

Exit codes: 0 ready, 1 not ready, 2 usage. --sysctl, --systemd and --record end with 0.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(parse_rate("0.5"), Ok(0.5));
        for bad in ["-1", "nan", "inf", "1e9", "x"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
