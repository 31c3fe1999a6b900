//! `cargo xtask mutants`: breaks the server on purpose, in one place after the other, and looks
//! whether the tests notice.
//!
//! The places are a list that is kept by hand (`xtask/mutants/`, in the form of `list.rs`), since a
//! tool that changes every operator (cargo-mutants) finds a thousand places that do not matter and
//! misses the race that does. Everything happens in a copy of the working tree (`workshop.rs`), so
//! that the tree itself is never broken, whenever this is interrupted.
//!
//! Most mutations are noticed within seconds, so the simulator first runs few seeds. Only what
//! survives them is tried again with as many as the tests have by themselves.

mod list;
mod workshop;

use list::Mutation;
use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use workshop::{END_TO_END, Outcome, Workshop};

/// Runs the mutations whose file and sentence contain one of the filters; all without any.
///
/// # Errors
///
/// If a mutation survives or does not compile, or the tests fail without any.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    if let Some(flag) = args.iter().find(|arg| arg.starts_with('-') && **arg != "--list") {
        return Err(format!("{flag} is no option of mutants; see cargo xtask"));
    }
    let filters: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--list").collect();
    let mut mutations = list::read(&root.join("xtask/mutants"))?;
    mutations.retain(|mutation| {
        filters.is_empty() || filters.iter().any(|filter| mutation.to_string().contains(filter))
    });
    // Those of one package follow each other: what stands above it is built again less often.
    mutations.sort_by(|a, b| a.package().cmp(b.package()));
    if args.contains(&"--list") {
        mutations.iter().for_each(|mutation| println!("{mutation}"));
        return Ok(());
    }
    let workshop = Workshop::new(root)?;
    let limits = try_unchanged(&workshop, &mutations)?;
    let mut counts = [0; 3];
    for mutation in &mutations {
        let begin = Instant::now();
        let outcome = try_mutation(&workshop, mutation, &limits)?;
        let seconds = begin.elapsed().as_secs();
        let (kind, line) = match outcome {
            Outcome::Failed(by) => (0, format!("caught    {mutation} [{by}, {seconds} s]")),
            Outcome::Passed => (1, format!("SURVIVED  {mutation} [{seconds} s]")),
            Outcome::NotBuilt(why) => (2, format!("NOT BUILT {mutation}\n{why}")),
        };
        println!("{line}");
        counts[kind] += 1;
    }
    let [caught, survived, not_built] = counts;
    println!("{caught} caught, {survived} survived, {not_built} did not compile");
    match survived + not_built {
        0 => Ok(()),
        _ => Err("every mutation must compile and be caught".into()),
    }
}

/// How long the tests of a package may take with a number of seeds.
type Limits = HashMap<(String, Option<&'static str>), Duration>;

/// Runs the tests without any mutation: they must pass, and tell how long they take.
fn try_unchanged(workshop: &Workshop, mutations: &[Mutation]) -> Result<Limits, String> {
    let mut limits = Limits::new();
    for package in mutations.iter().flat_map(Mutation::packages) {
        for seeds in rounds(package) {
            let key = (package.to_owned(), seeds);
            if limits.contains_key(&key) {
                continue;
            }
            let tests = match workshop.build(package)? {
                Ok(tests) => tests,
                Err(why) => return Err(format!("{package} does not compile\n{why}")),
            };
            let begin = Instant::now();
            match workshop.test(package, &tests, seeds, UNCHANGED_MAX)? {
                Outcome::Passed => {}
                outcome => return Err(format!("{package} fails without mutations: {outcome:?}")),
            }
            let took = begin.elapsed();
            println!("unchanged {package}, seeds {}: {took:.0?}", seeds.unwrap_or("as usual"));
            limits.insert(key, (took * SLOWER_MAX).max(LIMIT_MIN));
        }
    }
    Ok(limits)
}

/// Runs the tests with one mutation, until one notices it.
fn try_mutation(
    workshop: &Workshop,
    mutation: &Mutation,
    limits: &Limits,
) -> Result<Outcome, String> {
    let path = workshop.tree().join(mutation.file());
    let said = |error| format!("{}: {error}", path.display());
    let source = fs::read_to_string(&path).map_err(said)?;
    fs::write(&path, mutation.apply(&source)?).map_err(said)?;
    let outcome = find_out(workshop, mutation, limits);
    fs::write(&path, source).map_err(said)?;
    outcome
}

fn find_out(workshop: &Workshop, mutation: &Mutation, limits: &Limits) -> Result<Outcome, String> {
    for seeds in [Some(SEEDS_FEW), None] {
        for package in mutation.packages() {
            if !rounds(package).any(|round| round == seeds) {
                continue;
            }
            let tests = match workshop.build(package)? {
                Ok(tests) => tests,
                Err(why) => return Ok(Outcome::NotBuilt(why)),
            };
            let limit = limits[&(package.to_owned(), seeds)];
            let outcome = workshop.test(package, &tests, seeds, limit)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
    }
    Ok(Outcome::Passed)
}

/// With how many seeds the tests are run, one round after the other: `None` leaves it to them, or
/// to whoever has set `STENTOR_SEEDS`. The tests of the command know nothing of seeds: to them that
/// is the name of a setting, misspelt.
fn rounds(package: &str) -> impl Iterator<Item = Option<&'static str>> {
    let is_of_command = package == END_TO_END || package.contains("::");
    let has_seeds = !is_of_command && env::var_os("STENTOR_SEEDS").is_none();
    let few = has_seeds.then_some(Some(SEEDS_FEW));
    few.into_iter().chain([None])
}

/// So few that the simulator takes some seconds.
const SEEDS_FEW: &str = "20";

/// A mutation that hangs is caught by the time: so many times what the tests take without it, and
/// no less than a minute, since others may want the processor too.
const SLOWER_MAX: u32 = 4;
const LIMIT_MIN: Duration = Duration::from_secs(60);

/// No run of the tests takes as long, whatever the seeds.
const UNCHANGED_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that no longer fits the source is noticed without running it.
    #[test]
    fn every_mutation_applies() {
        let root = crate::root();
        let mutations = list::read(&root.join("xtask/mutants")).unwrap();
        assert!(!mutations.is_empty());
        let mut broken = Vec::new();
        for mutation in &mutations {
            let applied = fs::read_to_string(root.join(mutation.file()))
                .map_err(|error| error.to_string())
                .and_then(|source| mutation.apply(&source));
            broken.extend(applied.err().map(|reason| format!("{mutation}: {reason}")));
        }
        assert!(broken.is_empty(), "mutations that do not apply:\n  {}", broken.join("\n  "));
    }
}
