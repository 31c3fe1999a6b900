//! Runs test programs while others are still compiled.
//!
//! `cargo test` runs nothing before all programs are built. The last one takes minutes on one
//! core, and the end-to-end tests wait most of their time. This runner starts each
//! program during the build, and the end-to-end tests beside the others.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;

/// A program that cargo has built.
struct Program {
    path: PathBuf,
    /// The directory of its package, in which cargo would run it.
    package: PathBuf,
    is_test: bool,
}

impl Program {
    /// Reads a message of cargo. `None`, if the message is about anything but a program. Escapes
    /// of JSON are not decoded: a path with one is not found, and the run fails.
    fn of_message(line: &str) -> Option<Program> {
        let behind = |name: &str| line.split_once(name).map(|(_, value)| value);
        let path = |name: &str| behind(name)?.split('"').next().map(PathBuf::from);
        let package = path("\"manifest_path\":\"")?.parent().map(Path::to_owned)?;
        let is_test = behind("\"profile\":{")?.split('}').next()?.contains("\"test\":true");
        Some(Program { path: path("\"executable\":\"")?, package, is_test })
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

    /// The command, which the end-to-end tests run. Cargo may build it after them.
    fn is_command(&self) -> bool {
        !self.is_test && self.name() == "stentor"
    }

    fn run(&self, args: &[&str], settings: &[(&str, String)]) -> Output {
        let mut command = Command::new(&self.path);
        command.args(args).current_dir(&self.package).stdin(Stdio::null());
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        if self.is_end_to_end() && !args.iter().any(|arg| arg.starts_with("--test-threads")) {
            command.arg(format!("--test-threads={}", WAITING_TESTS_PER_CORE * cores()));
        }
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }
}

/// End-to-end tests wait for servers, brokers and browsers most of the time.
const WAITING_TESTS_PER_CORE: usize = 4;

fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The output that is not printed yet: of all programs that failed, and of the last one that
/// passed.
#[derive(Default)]
struct Held(Vec<(String, Output)>);

impl Held {
    /// Shows one that did not fail, if there is another.
    fn add(&mut self, name: String, output: Output) {
        let is_good = |(_, output): &(String, Output)| output.status.success();
        if output.status.success()
            && let Some(before) = self.0.iter().position(is_good)
        {
            print(&self.0.swap_remove(before));
        }
        self.0.push((name, output));
    }
}

/// How a run of tests ended.
pub(crate) struct Ended {
    build: Result<(), String>,
    held: Held,
}

impl Ended {
    /// Prints the output that is left, that of failures last.
    ///
    /// # Errors
    ///
    /// One sentence, if the build or a program failed, or if no program ran.
    pub(crate) fn report(self) -> Result<(), String> {
        let Held(mut held) = self.held;
        if self.build.is_ok() && held.is_empty() {
            return Err("cargo named no program of tests".to_owned());
        }
        held.sort_by_key(|(_, output)| !output.status.success());
        held.iter().for_each(print);
        held.retain(|(_, output)| !output.status.success());
        let failed: Vec<&str> = held.iter().map(|(name, _)| name.as_str()).collect();
        self.build?;
        if failed.is_empty() { Ok(()) } else { Err(format!("tests failed: {}", failed.join(", "))) }
    }
}

/// Runs this command of cargo, and starts each test program when cargo has built it. The
/// end-to-end tests wait for the command, too, and run beside the others, which run one after the
/// other. The function calls `settings` once, when the first program is built. All programs that
/// are built run, whatever fails.
pub(crate) fn run(
    build: &mut Command,
    args: &[&str],
    settings: impl FnOnce() -> Vec<(&'static str, String)>,
) -> Ended {
    build.args(["--no-run", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let mut cargo = build.spawn().unwrap_or_else(|error| panic!("{build:?}: {error}"));
    let messages = BufReader::new(cargo.stdout.take().expect("it is a pipe")).lines();
    let (built, programs) = mpsc::channel();
    // Cargo stops when the pipe is full, so this thread reads it while `settings` waits.
    thread::spawn(move || {
        let programs = messages.map_while(Result::ok);
        programs.filter_map(|line| Program::of_message(&line)).try_for_each(|it| built.send(it))
    });
    let mut programs = programs.into_iter();
    let first = programs.next();
    let settings = &settings();
    let held = Mutex::new(Held::default());
    let run_one = |program: &Program| {
        let output = program.run(args, settings);
        held.lock().expect("nothing panics there").add(program.name(), output);
    };
    let not_run = thread::scope(|scope| {
        let (others, queue) = mpsc::channel::<Program>();
        let run_one = &run_one;
        scope.spawn(move || queue.iter().for_each(|program| run_one(&program)));
        let (mut is_command_built, mut end_to_end) = (false, None);
        for program in first.into_iter().chain(programs) {
            if program.is_command() {
                is_command_built = true;
            } else if program.is_end_to_end() {
                end_to_end = Some(program);
            } else if program.is_test {
                others.send(program).expect("the queue is read to its end");
            }
            if is_command_built && let Some(program) = end_to_end.take() {
                scope.spawn(move || run_one(&program));
            }
        }
        end_to_end
    });
    let status = cargo.wait().unwrap_or_else(|error| panic!("{build:?}: {error}"));
    let build = if !status.success() {
        Err(format!("{build:?} ended with {status}"))
    } else if not_run.is_some() {
        Err("cargo named no command for the end-to-end tests".to_owned())
    } else {
        Ok(())
    };
    Ended { build, held: held.into_inner().expect("nothing panics there") }
}

fn print((name, output): &(String, Output)) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    println!("\n== {name}\n{}{}", text(&output.stderr), text(&output.stdout));
    if !output.status.success() {
        println!("{name} ended with {}", output.status);
    }
}
