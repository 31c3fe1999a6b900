//! Runs the programs of tests while others are still compiled.
//!
//! `cargo test` runs nothing before all is built. The last program takes minutes on one core, and
//! the end-to-end tests wait most of their time: so they run meanwhile, and beside the others.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

/// A program of tests, as cargo tells of it.
struct Program {
    path: PathBuf,
    /// The directory of its package, in which cargo would run it.
    package: PathBuf,
}

impl Program {
    /// What a message of cargo says, if it is of a program of tests. A path with a character that
    /// JSON escapes is not read: it would not be found, and the run fails.
    fn of_message(line: &str) -> Option<Program> {
        let behind = |name: &str| line.split_once(name).map(|(_, value)| value);
        let profile = behind("\"profile\":{")?.split('}').next();
        profile.filter(|profile| profile.contains("\"test\":true"))?;
        let path = |name: &str| behind(name)?.split('"').next().map(PathBuf::from);
        let package = path("\"manifest_path\":\"")?.parent().map(Path::to_owned)?;
        Some(Program { path: path("\"executable\":\"")?, package })
    }

    /// Its name without the hash behind it.
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let (name, _) = name.rsplit_once('-').unwrap_or((&name, ""));
        name.to_owned()
    }

    fn is_end_to_end(&self) -> bool {
        self.name() == "e2e"
    }

    /// Runs it, and says what it printed if all is well. What failed is printed at the end.
    fn run(&self, args: &[&str], settings: &[(&str, String)]) -> Result<(), (String, Output)> {
        let mut command = Command::new(&self.path);
        command.args(args).current_dir(&self.package).stdin(Stdio::null());
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        if self.is_end_to_end() && !args.iter().any(|arg| arg.starts_with("--test-threads")) {
            command.arg(format!("--test-threads={}", WAITING_TESTS_PER_CORE * cores()));
        }
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if !output.status.success() {
            return Err((self.name(), output));
        }
        print(&self.name(), &output);
        Ok(())
    }
}

/// End-to-end tests wait for servers, brokers and browsers most of the time.
const WAITING_TESTS_PER_CORE: usize = 4;

fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Builds with this command of cargo, and runs each program of tests as soon as it is there: the
/// end-to-end tests beside all others, which run one after the other. `settings` is asked once,
/// when the first is there. A program that fails does not keep the others from running.
pub(crate) fn run(
    build: &mut Command,
    args: &[&str],
    settings: impl FnOnce() -> Vec<(&'static str, String)>,
) -> Result<(), String> {
    build.args(["--no-run", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let mut cargo = build.spawn().map_err(|error| format!("{build:?}: {error}"))?;
    let messages = BufReader::new(cargo.stdout.take().expect("it is a pipe")).lines();
    let mut programs = messages.map_while(Result::ok).filter_map(|line| Program::of_message(&line));
    let first = programs.next();
    let settings = &settings();
    let failed: Vec<(String, Output)> = thread::scope(|scope| {
        let (others, queue) = mpsc::channel::<Program>();
        let run_all =
            move || queue.iter().filter_map(|one| one.run(args, settings).err()).collect();
        let mut runs = vec![scope.spawn(run_all)];
        for program in first.into_iter().chain(programs) {
            if program.is_end_to_end() {
                let run = move || program.run(args, settings).err().into_iter().collect();
                runs.push(scope.spawn(run));
            } else {
                others.send(program).expect("the queue is read to its end");
            }
        }
        drop(others);
        runs.into_iter()
            .flat_map(|run: thread::ScopedJoinHandle<'_, Vec<_>>| {
                run.join().expect("a program of tests can be started")
            })
            .collect()
    });
    let status = cargo.wait().map_err(|error| format!("{build:?}: {error}"))?;
    failed.iter().for_each(|(name, output)| print(name, output));
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    match (status.success(), names.is_empty()) {
        (false, _) => Err(format!("{build:?} ended with {status}")),
        (true, false) => Err(format!("tests failed: {}", names.join(", "))),
        (true, true) => Ok(()),
    }
}

fn print(name: &str, output: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    println!("\n== {name}\n{}{}", text(&output.stderr), text(&output.stdout));
}
