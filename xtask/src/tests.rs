//! The tests: all of them, those of a crate or a chapter, and the simulations.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::{cargo, host, pip, root, run, run_quietly, runner};

/// Runs `cargo xtask test` with these arguments.
pub(crate) fn run_asked(args: &[&str]) -> Result<(), String> {
    let (settings, args) = match args {
        ["--long", args @ ..] => (NIGHT, args),
        args => (&[][..], args),
    };
    match args {
        [name, passed_on @ ..] if !name.starts_with('-') => {
            let mut command = cargo(&["test", "--package"]);
            match *name {
                "e2e" => command.args(["stentor", "--test", "e2e"]),
                name => command.arg(package(name)?).args(TARGETS),
            };
            run(command.args(passed_on).envs(settings.iter().copied()))
        }
        passed_on => all(passed_on, settings),
    }
}

/// The package of a crate, of whose name the beginning may be left out.
fn package(name: &str) -> Result<String, String> {
    let long = format!("stentor-{name}");
    let is_there = |package: &&str| root().join("crates").join(package).is_dir();
    let found = [name, &long].into_iter().find(is_there);
    found.map(str::to_owned).ok_or_else(|| {
        format!("there is no crate {name} or {long}; a filter of all tests stands behind --")
    })
}

/// There are no tests in the documentation, and a runner that looks for them ends with zeros.
const TARGETS: &[&str] = &["--lib", "--bins", "--tests"];

/// A night of tests: ten times the seeds, and more of what takes minutes.
const NIGHT: &[(&str, &str)] = &[
    ("STENTOR_SEEDS_FACTOR", "10"),
    ("STENTOR_FUZZ_RUNS", "1000000"),
    ("TEST_KILLS", "300"),
    ("TEST_CHAOS_SECONDS", "600"),
];

/// Runs all tests. The programs that they need are installed during the build. A suite that fails
/// does not keep the others from running.
pub(crate) fn all(passed_on: &[&str], settings: &[(&'static str, &str)]) -> Result<(), String> {
    let own = passed_on.iter().position(|argument| *argument == "--");
    let (to_cargo, to_tests) = passed_on.split_at(own.unwrap_or(passed_on.len()));
    if let Some(word) = to_cargo.iter().find(|argument| !argument.starts_with('-')) {
        return Err(format!(
            "{word} is no option of cargo: a crate is the first word, and a filter of all tests \
             stands behind --"
        ));
    }
    let mut build = cargo(&["test", "--workspace", "--no-fail-fast"]);
    build.args(TARGETS).args(to_cargo);
    let mut settings: Vec<(&str, String)> =
        settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    if let Some(seed) = seed_of_commit(&settings, env::var_os(FIRST_SEED).is_some()) {
        println!("the simulations begin with seed {seed}, by the commit, unless another is set");
        settings.push((FIRST_SEED, seed.to_string()));
    }
    let skipped = Skipped::begin();
    settings.push(("TEST_SKIPPED", skipped.0.display().to_string()));
    let (others, of_rust) = thread::scope(|scope| {
        let tools = scope.spawn(|| {
            let has_all = host::prepare(TOOLS) && clients();
            if !has_all {
                println!("some tests will be skipped: their programs are missing");
            }
            has_all
        });
        let mut others = Vec::new();
        let of_rust = runner::run(&mut build, to_tests.get(1..).unwrap_or_default(), || {
            if tools.join().expect("nothing panics there") {
                // Then no test may skip for want of a program.
                settings.push(("TEST_TOOLS", "required".to_owned()));
            }
            others.extend([scope.spawn(browser_client), scope.spawn(oracle_of_bench)]);
            settings
        });
        let others = others.into_iter().map(|other| other.join().expect("nothing panics there"));
        (others.collect::<Vec<_>>(), of_rust)
    });
    skipped.report();
    let results = others.into_iter().chain([of_rust.report()]);
    let failed: Vec<String> = results.filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\nxtask: ")) }
}

/// The variable that says where seeds begin.
const FIRST_SEED: &str = "STENTOR_FIRST_SEED";

/// Where seeds begin by the commit: each commit plays seeds of its own, and the same commit plays
/// the same seeds again. `None`, if the settings or the environment say where seeds begin.
fn seed_of_commit(settings: &[(&str, String)], is_in_environment: bool) -> Option<u32> {
    if is_in_environment || settings.iter().any(|(name, _)| *name == FIRST_SEED) {
        return None;
    }
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output();
    let commit = output.map(|output| output.stdout).unwrap_or_default();
    let digits = commit.get(..8).and_then(|digits| std::str::from_utf8(digits).ok());
    Some(digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0))
}

/// One simulation, with the seeds that are asked for.
pub(crate) fn simulate(name: &str, args: &[&str]) -> Result<(), String> {
    let (package, module) = match name {
        "cluster" => ("stentor-cluster", "simulation"),
        "brokers" => ("stentor-cluster", "nats::simulation"),
        "crashes" => ("stentor-log", "tests::crashes"),
        "issuers" => ("stentor-access", "fetch::simulation"),
        "leaders" => ("stentor-replication", "follow::leader::simulation"),
        "places" => ("stentor-server", "simulation::places"),
        "snapshots" => ("stentor-hub", "hub::"),
        "access" | "hostile" | "requests" | "store" | "streams" => {
            ("stentor-server", "simulation::seeds")
        }
        _ => return Err(format!("{name} is no simulation")),
    };
    let mut command = cargo(&["test", "--package", package, "--lib", module]);
    command.args(["--", "--nocapture"]).env("STENTOR_SIM", name);
    match args {
        [] => {}
        ["--seed", seed] => _ = command.env("STENTOR_SEED", seed),
        ["--seed", seed, "--trace"] => {
            command.env("STENTOR_SEED", seed).env("STENTOR_TRACE", "1");
        }
        ["--seeds", seeds] => _ = command.env("STENTOR_SEEDS", seeds),
        _ => return Err("a simulation takes --seed N [--trace] or --seeds N".to_owned()),
    }
    run(&mut command)
}

/// What the tests need of the host: programs, libraries of Python, and a module of nginx.
const TOOLS: &[&str] = &[
    "curl",
    "chromium",
    "chromedriver",
    "node",
    "nginx",
    "libnginx-mod-nchan",
    "haproxy",
    "logrotate",
    "rsync",
    "ip",
    "python3-pip",
    "python3-websockets",
    "python3-wsproto",
    "go",
    "nats-server",
    "strace",
    "tini",
    "runsv",
    "supervisord",
    "systemd-analyze",
];

/// Clients of other languages whose libraries Debian has not got: puts them together. Returns
/// whether all are there.
fn clients() -> bool {
    let sources = root().join("crates/stentor/tests/e2e");
    let clients = root().join("target/clients");
    let mut pip = pip();
    pip.args(["--requirement", "requirements.txt", "--target"]);
    pip.arg(clients.join("python")).current_dir(sources.join("python"));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(clients.join("r3labs-sse")).current_dir(sources.join("go"));
    for command in [&mut pip, &mut go] {
        if let Err(reason) = run_quietly(command) {
            println!("some tests will be skipped: {reason}");
            return false;
        }
    }
    if let Err(reason) = host::prometheus() {
        println!("some tests will be skipped: {reason}");
        return false;
    }
    newer_broker(&clients)
}

/// A broker of which several keep the same, as those of Debian 12 do not. Returns whether it is
/// there.
fn newer_broker(clients: &Path) -> bool {
    let mut go = Command::new("go");
    go.args(["install", "github.com/nats-io/nats-server/v2@v2.12.4"]).env("GOBIN", clients);
    let built = run_quietly(&mut go);
    if let Err(reason) = &built {
        println!("a test of several brokers will be skipped: {reason}");
    }
    built.is_ok()
}

/// The file in which tests that cannot run take note of it: see `stentor_test::skip`.
struct Skipped(PathBuf);

impl Skipped {
    fn begin() -> Skipped {
        let file = root().join("target/skipped-tests");
        // There may be none.
        let _ = fs::remove_file(&file);
        Skipped(file)
    }

    fn report(&self) {
        print!("{}", fs::read_to_string(&self.0).unwrap_or_default());
    }
}

/// The tests of the browser client, where there is something to run them.
fn browser_client() -> Result<(), String> {
    match host::find("node") {
        Some(node) => {
            run_apart(Command::new(node).arg("--test").current_dir(root().join("clients/js")))
        }
        None => {
            println!("skipped: the tests of the browser client need node");
            Ok(())
        }
    }
}

/// The tests of what `bench/` and `hostile/` judge by, of which the checker of a cluster is the
/// largest. They wait most of the time, so their files run beside each other.
fn oracle_of_bench() -> Result<(), String> {
    let is_new = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"];
    if !Command::new("python3").args(is_new).status().is_ok_and(|status| status.success()) {
        println!("skipped: the tests of bench/ need Python 3.11");
        return Ok(());
    }
    let mut tests = Vec::new();
    for directory in ["bench", "hostile"].map(|name| root().join(name)) {
        let files = directory.read_dir().map_err(|e| format!("{}: {e}", directory.display()))?;
        let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        let of_tests = names.filter(|name| name.starts_with("test_") && name.ends_with(".py"));
        tests.extend(of_tests.map(|name| (directory.clone(), name)));
    }
    let run_one = |(directory, name): &(PathBuf, String)| {
        let mut command = Command::new("python3");
        run_apart(command.args(["-m", "unittest", name]).current_dir(directory))
    };
    thread::scope(|scope| {
        let all: Vec<_> = tests.iter().map(|one| scope.spawn(|| run_one(one))).collect();
        all.into_iter().try_for_each(|one| one.join().expect("nothing panics there"))
    })
}

/// Runs something beside others: what it prints comes in one piece, and only its end if all is
/// well.
fn run_apart(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}:\n{said}", output.status));
    }
    let end = said.trim_end().lines().rev().take(10).collect::<Vec<_>>();
    println!("{command:?}:\n{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
    Ok(())
}

#[test]
fn a_first_seed_that_is_set_stays() {
    let set = [(FIRST_SEED, "0".to_owned())];
    assert!(seed_of_commit(&[], false).is_some());
    assert_eq!(seed_of_commit(&[], true), None);
    assert_eq!(seed_of_commit(&set, false), None);
}
