//! The seeds of the simulations: which ones run, on all cores, and how a failure is run again.
//!
//! | variable | meaning |
//! |---|---|
//! | `STENTOR_SIM` | only the simulation of this name runs |
//! | `STENTOR_SEED` | only this seed runs |
//! | `STENTOR_SEEDS` | so many seeds run, in each simulation |
//! | `STENTOR_SEEDS_FACTOR` | so many times the usual number of seeds run |
//! | `STENTOR_FIRST_SEED` | seeds begin here: `cargo xtask test` derives it from the commit |

use std::collections::BTreeSet;
use std::env;
use std::ops::Range;
use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use stentor_io::take_marks;

use crate::marks;

/// The names of all simulations.
const NAMES: &[&str] = &[
    "access",
    "brokers",
    "cluster",
    "crashes",
    "hostile",
    "issuers",
    "leaders",
    "places",
    "requests",
    "snapshots",
    "store",
    "streams",
];

/// Runs `test` for the seeds that the environment asks for, or for so many. Returns whether as many
/// ran at least: what single seeds add up to can be judged then.
///
/// # Panics
///
/// If `test` does for a seed: then standard error says how to run that one alone. If many seeds
/// miss a mark. And if a variable is not a number, or `STENTOR_SIM` names no simulation.
pub fn run(name: &str, usual: u64, test: impl Fn(u64) + Sync + RefUnwindSafe) -> bool {
    run_kind(name, name, usual, test)
}

/// The same for a simulation of which each kind has marks of its own.
///
/// # Panics
///
/// As [`run`].
pub fn run_kind(
    name: &str,
    kind: &str,
    usual: u64,
    test: impl Fn(u64) + Sync + RefUnwindSafe,
) -> bool {
    assert!(NAMES.contains(&name), "{name:?} is not in the list of simulations");
    let Some(seeds) = asked_for(name, usual, variable) else { return false };
    let count = seeds.end - seeds.start;
    let seen = run_all(name, seeds, test);
    marks::judge(kind, count, &seen);
    count >= usual
}

/// How often the body of a fuzz target runs in the tests: so many times, or as often as
/// `STENTOR_FUZZ_RUNS` says.
///
/// # Panics
///
/// If that is not a number.
#[must_use]
pub fn fuzz_runs(usual: u64) -> u64 {
    number("STENTOR_FUZZ_RUNS", variable).unwrap_or(usual)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn number(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let text = variable(name)?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text:?} is not a whole number")))
}

/// Which seeds run, if any.
fn asked_for(
    name: &str,
    usual: u64,
    variable: impl Fn(&str) -> Option<String> + Copy,
) -> Option<Range<u64>> {
    if let Some(only) = variable("STENTOR_SIM") {
        assert!(NAMES.contains(&&*only), "STENTOR_SIM={only:?} is none of {}", NAMES.join(", "));
        if only != name {
            return None;
        }
    }
    if let Some(seed) = number("STENTOR_SEED", variable) {
        return Some(seed..seed + 1);
    }
    let factor = number("STENTOR_SEEDS_FACTOR", variable).unwrap_or(1);
    let first = number("STENTOR_FIRST_SEED", variable).unwrap_or(0);
    let count = number("STENTOR_SEEDS", variable).unwrap_or(usual * factor);
    assert!(count > 0, "no seed is asked for");
    Some(first..first + count)
}

/// Returns the marks that the seeds passed.
fn run_all(
    name: &str,
    seeds: Range<u64>,
    test: impl Fn(u64) + Sync + RefUnwindSafe,
) -> BTreeSet<&'static str> {
    let next = AtomicU64::new(seeds.start);
    let run_some = || {
        drop(take_marks());
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return take_marks();
            }
            if let Err(panic) = catch_unwind(|| test(seed)) {
                next.store(seeds.end, Relaxed);
                eprintln!("seed {seed} failed: cargo xtask sim {name} --seed {seed}");
                resume_unwind(panic);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let seen = thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(run_some)).collect();
        let mut seen = run_some();
        for other in others {
            seen.extend(other.join().unwrap_or_else(|e| resume_unwind(e)));
        }
        seen
    });
    println!("{name}: seeds {seeds:?} without a violation");
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn asked(variables: &[(&str, &str)]) -> Option<Range<u64>> {
        let find = |name: &str| variables.iter().find(|(of, _)| *of == name);
        asked_for("streams", 40, |name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_says_which_seeds_run() {
        assert_eq!(asked(&[]), Some(0..40));
        assert_eq!(asked(&[("STENTOR_SEEDS", "7")]), Some(0..7));
        assert_eq!(asked(&[("STENTOR_FIRST_SEED", "9")]), Some(9..49));
        assert_eq!(asked(&[("STENTOR_SEEDS_FACTOR", "10")]), Some(0..400));
        assert_eq!(asked(&[("STENTOR_SEED", "5"), ("STENTOR_FIRST_SEED", "9")]), Some(5..6));
        assert_eq!(asked(&[("STENTOR_SIM", "streams")]), Some(0..40));
        assert_eq!(asked(&[("STENTOR_SIM", "access")]), None);
    }

    /// Otherwise a failure that is not there any more would look mended.
    #[test]
    fn what_is_misspelt_is_refused() {
        for variable in [("STENTOR_SIM", "stream"), ("STENTOR_SEED", "4x"), ("STENTOR_SEEDS", "0")]
        {
            assert!(catch_unwind(|| asked(&[variable])).is_err(), "{variable:?}");
        }
    }

    #[test]
    fn every_seed_runs_once() {
        let seen = Mutex::new(Vec::new());
        run_all("places", 3..100, |seed| seen.lock().unwrap().push(seed));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(3..100));
    }

    #[test]
    fn a_seed_that_fails_ends_the_rest() {
        let run = AtomicU64::new(0);
        let fails = |seed| {
            run.fetch_add(1, Relaxed);
            assert!(seed < 10, "this seed fails");
        };
        assert!(catch_unwind(|| run_all("places", 0..1_000_000, fails)).is_err());
        assert!(run.load(Relaxed) < 100_000);
    }
}
