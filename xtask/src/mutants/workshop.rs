//! A copy of the working tree, and the tests that are built and run there.
//!
//! The copy is what Git would take: files that are tracked or new, with what was changed in them.
//! It stays, with a target directory of its own, so that another run builds only what is different.
//!
//! The tests are built by Cargo and then run without it: so there is one process to be ended, as
//! soon as the first test has failed, or if none ends.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How a mutation fared.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// No test has noticed it.
    Passed,
    /// This has noticed it.
    Failed(String),
}

/// One run of the tests.
pub(crate) struct Trial<'a> {
    /// The number of the mutation that counts; 0: none does.
    pub(crate) number: usize,
    /// So many seeds; `None`: as many as usual.
    pub(crate) seeds: Option<&'a str>,
    /// Only tests whose names contain this run.
    pub(crate) filter: Option<&'a str>,
    /// Tests that take longer have failed.
    pub(crate) limit: Duration,
}

/// The copy.
pub(crate) struct Workshop {
    tree: PathBuf,
    target: PathBuf,
}

impl Workshop {
    /// Makes the copy, or brings it up to date.
    pub(crate) fn new(root: &Path) -> Result<Workshop, String> {
        let directory = root.join("target/mutants");
        let workshop = Workshop { tree: directory.join("tree"), target: directory.join("target") };
        workshop.copy(root)?;
        Ok(workshop)
    }

    /// Writes a file of the copy.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), String> {
        fs::write(self.tree.join(file), text).map_err(|error| format!("{file}: {error}"))
    }

    /// Cargo, in the copy.
    pub(crate) fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // What is no longer used, or not looked at, is a matter of the tests and not of lints.
        cargo.arg(command).current_dir(&self.tree).env("RUSTFLAGS", "--cap-lints=allow");
        cargo.env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// A file that is the same already is left alone, so that it is not built again.
    fn copy(&self, root: &Path) -> Result<(), String> {
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git").args(list).current_dir(root).output();
        let output = output.map_err(|error| format!("git: {error}"))?;
        let listed = String::from_utf8_lossy(&output.stdout);
        let mut wanted = HashSet::new();
        for name in listed.split_terminator('\0') {
            let (from, to) = (root.join(name), self.tree.join(name));
            // What was deleted is listed until that is committed.
            let Ok(new) = fs::read(&from) else { continue };
            if fs::read(&to).ok().as_ref() != Some(&new) {
                let made = fs::create_dir_all(to.parent().unwrap_or(&to));
                let copied = made.and_then(|()| fs::copy(&from, &to));
                copied.map_err(|error| format!("{}: {error}", to.display()))?;
            }
            wanted.insert(to);
        }
        if wanted.is_empty() {
            return Err(format!("git lists no files of {}", root.display()));
        }
        remove_others(&self.tree, &wanted)
            .and_then(|()| self.link_clients(root))
            .map_err(|error| format!("{}: {error}", self.tree.display()))
    }

    /// End-to-end tests look for the programs of others here.
    fn link_clients(&self, root: &Path) -> std::io::Result<()> {
        let directory = self.tree.join("target");
        fs::create_dir_all(&directory)?;
        symlink(root.join("target/clients"), directory.join("clients"))
    }

    /// Builds the unit tests of a package, the simulator among them; or all end-to-end tests, if
    /// `tests` names some of them. Returns the program, or what the compiler said.
    pub(crate) fn build(&self, tests: &str) -> Result<Result<PathBuf, String>, String> {
        let (package, kind): (_, &[&str]) = match tests.split_once("::") {
            // It is a command, and no library.
            None if tests == END_TO_END => (tests, &["--bins"]),
            None => (tests, &["--lib"]),
            Some(_) => (END_TO_END, &["--test", "e2e"]),
        };
        let output = self
            .cargo("test")
            .args(["--quiet", "--locked", "--no-run", "--package", package])
            .args(kind)
            .arg("--message-format=json-render-diagnostics")
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        // The command itself, which end-to-end tests run, is one of what is built, too: it may have
        // tests, and is not built as one. The profile that says so stands before the features.
        let is_test = |line: &&str| line.contains("\"test\":true},\"features\":");
        let mut of_tests = messages.lines().filter(is_test);
        let executable = of_tests.find_map(|line| line.split_once("\"executable\":\""));
        match executable.and_then(|(_, rest)| rest.split_once('"')) {
            Some((path, _)) => Ok(Ok(PathBuf::from(path))),
            None => Err(format!("there are no tests of {tests}")),
        }
    }

    /// Runs the tests until the first of them fails.
    pub(crate) fn test(
        &self,
        tests: &str,
        program: &Path,
        trial: &Trial<'_>,
    ) -> Result<Outcome, String> {
        let (package, filter) = match tests.split_once("::") {
            None => (tests, None),
            Some((_, filter)) => (END_TO_END, Some(filter)),
        };
        // A browser maps far more than it uses.
        let limit = if filter.is_some() { "unlimited" } else { MEMORY_KB_MAX };
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {limit} && exec \"$0\" \"$@\"")])
            .arg(program)
            .args(filter.or(trial.filter))
            .current_dir(self.tree.join("crates").join(package))
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0")
            .env("MUTATION", trial.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(seeds) = trial.seeds {
            command.env("STENTOR_SEEDS", seeds);
        }
        let mut child = command.spawn().map_err(|error| format!("sh: {error}"))?;
        let outcome = watch(&lines(&mut child), trial.limit);
        if outcome.is_some() {
            // It may have ended just now.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(match outcome {
            Some(by) => Outcome::Failed(by),
            None if status.success() => Outcome::Passed,
            None => Outcome::Failed(format!("the tests ended with {status}")),
        })
    }
}

/// What the tests print, line by line, until they end.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_MAX);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
        });
    }
    receiver
}

/// The first test that fails, or the time limit; `None` if the tests end by themselves.
fn watch(lines: &Receiver<String>, limit: Duration) -> Option<String> {
    let begin = Instant::now();
    loop {
        match lines.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok(line) => {
                let failed = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"));
                if let Some(test) = failed {
                    return Some(test.to_owned());
                }
            }
            Err(RecvTimeoutError::Timeout) => return Some("the time limit".into()),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Removes what is not wanted any more.
fn remove_others(directory: &Path, wanted: &HashSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        // A link leads out of the copy.
        if entry.file_type()?.is_dir() {
            remove_others(&path, wanted)?;
            // This fails unless it is empty.
            let _ = fs::remove_dir(&path);
        } else if !wanted.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The package that has tests of the whole.
pub(super) const END_TO_END: &str = "stentor";

/// A mutation that fills the memory is to fail alone.
const MEMORY_KB_MAX: &str = "8388608";

/// Lines that wait to be looked at; the tests wait for them.
const LINES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// The copy has a link to what is not its own.
    #[test]
    fn nothing_behind_a_link_is_removed() {
        let directory = env::temp_dir().join(format!("stentor-workshop-{}", std::process::id()));
        let (tree, others) = (directory.join("tree"), directory.join("others"));
        fs::create_dir_all(tree.join("a")).unwrap();
        fs::create_dir_all(&others).unwrap();
        fs::write(others.join("kept"), "").unwrap();
        fs::write(tree.join("a/removed"), "").unwrap();
        symlink(&others, tree.join("a/link")).unwrap();
        remove_others(&tree, &HashSet::new()).unwrap();
        assert!(!tree.join("a").exists() && others.join("kept").exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_first_failure_is_named() {
        let watched = |printed: &[&str], limit_ms| {
            let (sender, receiver) = sync_channel(LINES_MAX);
            printed.iter().for_each(|line| sender.send((*line).to_owned()).unwrap());
            // As long as the sender is there, the tests have not ended.
            let running = (limit_ms == 0).then_some(sender);
            let by = watch(&receiver, Duration::from_millis(limit_ms));
            drop(running);
            by
        };
        let (good, bad) = ("test a::b ... ok", "test a::c ... FAILED");
        assert_eq!(watched(&["running 2 tests", good, bad], 60_000).as_deref(), Some("a::c"));
        assert_eq!(watched(&["running 1 test", good], 60_000), None);
        assert_eq!(watched(&[good], 0).as_deref(), Some("the time limit"));
    }
}
