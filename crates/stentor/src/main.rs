//! The `stentor` command: flags, and what is printed. `stentor-server`, `stentor-bench` and
//! `stentor-tune` do the work.
//!
//! One file per command, each with its own arguments; `args` lists them. What several commands
//! have in common is in `lifecycle` (from the settings to the graceful stop) and `client`
//! (talking to a running server).
//!
//! Exit codes: 0 success, 1 failure, 2 usage or configuration, 130 ended early by Ctrl-C. The first
//! process of a container ends with the code of the server.

#![forbid(unsafe_code)]

mod args;
#[cfg(feature = "bench")]
mod bench;
mod check;
mod client;
mod completions;
mod config;
#[cfg(test)]
mod contract;
mod demo;
#[cfg(test)]
mod documented;
mod lifecycle;
mod local;
#[cfg(feature = "man")]
mod man;
mod operation;
mod parent;
mod publish;
#[cfg_attr(
    not(any(test, feature = "bench")),
    expect(dead_code, reason = "only `bench` reads most of them")
)]
mod quantity;
mod reload;
mod say;
mod serve;
mod status;
mod store;
mod subscribe;
mod token;
mod trust;
#[cfg(feature = "tune")]
mod tune;
mod upgrade;
mod watchdog;

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::{env, fmt};

use clap::{ColorChoice, CommandFactory, FromArgMatches};
use stentor_config::ConfigErrors;
use stentor_server::event_log;

use args::{Cli, Command};
use stentor_io::WipingAllocator;

/// TLS handshakes leave no secrets in what they free.
#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator;

fn main() -> ExitCode {
    let result = match parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Upgrade(args) => upgrade::run(&args),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(&args),
        #[cfg(feature = "tune")]
        Command::Tune(args) => tune::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Version => print(&version()),
        Command::Parent(args) => parent::run(&args),
        #[cfg(feature = "man")]
        Command::Man(args) => man::run(&args),
    };
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say::failure(&failure);
            failure.exit_code()
        }
    };
    event_log::flush();
    code
}

/// The program in words, for reports of faults.
fn version() -> String {
    let features = [("bench", cfg!(feature = "bench")), ("tune", cfg!(feature = "tune"))];
    let features: Vec<_> = features.iter().filter(|(_, is_there)| *is_there).collect();
    let features: Vec<_> = features.into_iter().map(|(name, _)| *name).collect();
    let build = if cfg!(debug_assertions) { "not for production" } else { "release" };
    let abi = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!(
        "stentor {}\n  commit    {}\n  target    {}-linux-{abi}\n  build     {build}\n  \
         features  {}\n",
        env!("CARGO_PKG_VERSION"),
        option_env!("STENTOR_COMMIT").unwrap_or("not known: it was built without STENTOR_COMMIT"),
        env::consts::ARCH,
        features.join(", "),
    )
}

/// Prints to standard output. A reader that has gone away is no failure; a full disk is.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints a line of JSON.
fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}

/// What came of writing to standard output.
fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether what is written there is coloured: as `--color` says, or else if it is a terminal that
/// has colours and the user has not turned them off (no-color.org).
fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_off = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    match COLOR.get().copied().unwrap_or_default() {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => stream.is_terminal() && !is_off && !is_dumb,
    }
}

/// How wide a line on standard output may be: as the terminal, and at most as is read with ease.
fn columns() -> usize {
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    terminal.map_or(COLUMNS_MAX, |(width, _)| usize::from(width.0).min(COLUMNS_MAX))
}

const COLUMNS_MAX: usize = 100;

/// What `--color` says.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Reads the command line. What is wrong with it is shown in the colours that it asks for.
fn parse() -> Cli {
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    let asked = words.skip_while(|word| !word.starts_with("--color")).take(2);
    let words: Vec<String> = asked.map(|word| word.replace("--color=", "")).collect();
    let color = words.iter().rev().find_map(|word| word.parse().ok()).unwrap_or_default();
    let matches = Cli::command().color(color).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let _ = COLOR.set(cli.color);
    cli
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Failure {
        Failure::Configuration(errors)
    }
}

/// Why a command did not do what it was asked to. Printed as it is.
#[derive(Debug)]
enum Failure {
    /// The arguments or the configuration are wrong: trying again is of no use.
    Usage(String),
    /// The configuration has these mistakes.
    Configuration(ConfigErrors),
    /// Something else went wrong.
    Failed(String),
    /// This signal ended it before its time; what there was to show was shown.
    #[cfg_attr(not(feature = "bench"), expect(dead_code, reason = "only `bench` ends so"))]
    Interrupted(i32),
    /// The process that this one was there for has ended like this.
    Ended(u8),
    /// A failure, and what helps.
    WithTip(Box<Failure>, String),
}

impl Failure {
    /// The same failure with what helps.
    fn tip(self, tip: impl Into<String>) -> Failure {
        Failure::WithTip(Box::new(self), tip.into())
    }

    fn reason_and_tip(&self) -> (&Failure, Option<&str>) {
        match self {
            Failure::WithTip(failure, tip) => (failure, Some(tip)),
            _ => (self, None),
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) | Failure::Configuration(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::FAILURE,
            // As shells have it of a process that a signal ended.
            Failure::Interrupted(signal) => ExitCode::from(128_u8.saturating_add(*signal as u8)),
            Failure::Ended(code) => ExitCode::from(*code),
            Failure::WithTip(failure, _) => failure.exit_code(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(reason) | Failure::Failed(reason) => f.write_str(reason),
            Failure::Configuration(errors) => errors.fmt(f),
            Failure::Interrupted(signal_hook::consts::SIGINT) => {
                f.write_str("ended early by Ctrl-C")
            }
            Failure::Interrupted(_) => f.write_str("ended early by SIGTERM"),
            Failure::Ended(code) => write!(f, "the server ended with {code}"),
            Failure::WithTip(failure, tip) => write!(f, "{failure} (tip: {tip})"),
        }
    }
}
