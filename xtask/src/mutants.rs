//! `cargo xtask mutants`: breaks the server on purpose, in one place after the other, and looks
//! whether the tests notice.
//!
//! The places are a list that is kept by hand (`xtask/mutants/`, in the form of `list.rs`), since a
//! tool that changes every operator (cargo-mutants) finds a thousand places that do not matter and
//! misses the race that does. Everything happens in a copy of the working tree (`workshop.rs`), so
//! that the tree itself is never broken, whenever this is interrupted.
//!
//! Nearly all mutations are in the same build (`switch.rs`), so that trying one takes as long as
//! its tests. Most are noticed within a second by the tests of their own file, which run first.
//! Then all tests run, with few seeds of the simulator. Only what survives them is tried again with
//! as many as the tests have by themselves.

mod list;
mod switch;
mod workshop;

use list::Mutation;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use workshop::{END_TO_END, Outcome, Trial, Workshop};

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
    let (mut sources, mut alone) = (HashMap::new(), HashSet::new());
    for (file, mutations) in by_file(&mutations) {
        let source = workshop.read(file)?;
        let (text, others) = switch::switched(&source, &mutations)?;
        workshop.write(file, &text)?;
        alone.extend(others);
        sources.insert(file, source);
    }
    let programs = try_unchanged(&workshop, &mutations)?;
    let mut counts = [0; 3];
    let mut numbered: Vec<_> = (1..).zip(&mutations).collect();
    // A mutation that is built alone replaces the programs of the others: it comes after them.
    numbered.sort_by_key(|(number, _)| alone.contains(number));
    for (number, mutation) in numbered {
        let begin = Instant::now();
        let outcome = if alone.contains(&number) {
            let source = &sources[mutation.file()];
            workshop.write(mutation.file(), &mutation.apply(source)?)?;
            let outcome = try_mutation(&workshop, mutation, None, &programs);
            workshop.write(mutation.file(), source)?;
            outcome?
        } else {
            try_mutation(&workshop, mutation, Some(number), &programs)?
        };
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

/// The mutations of each file, with their numbers from 1 on.
fn by_file(mutations: &[Mutation]) -> BTreeMap<&str, Vec<(usize, &Mutation)>> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for (number, mutation) in (1..).zip(mutations) {
        files.entry(mutation.file()).or_default().push((number, mutation));
    }
    files
}

/// The tests of each package, built with all mutations that a variable can choose.
type Programs = HashMap<String, Program>;

struct Program {
    path: PathBuf,
    /// How long they may take in each of the [`rounds`].
    limits: HashMap<Option<&'static str>, Duration>,
}

/// Builds the tests and runs them without any mutation: they must pass, and tell how long they
/// take.
fn try_unchanged(workshop: &Workshop, mutations: &[Mutation]) -> Result<Programs, String> {
    let mut programs = Programs::new();
    for package in mutations.iter().flat_map(Mutation::packages) {
        if programs.contains_key(package) {
            continue;
        }
        let path = match workshop.build(package)? {
            Ok(path) => path,
            Err(why) => return Err(format!("{package}, or a mutation, does not compile\n{why}")),
        };
        let mut limits = HashMap::new();
        for seeds in rounds(package) {
            let begin = Instant::now();
            match workshop.test(package, &path, &Trial { seeds, ..UNCHANGED })? {
                Outcome::Passed => {}
                outcome => return Err(format!("{package} fails without mutations: {outcome:?}")),
            }
            let took = begin.elapsed();
            println!("unchanged {package}, seeds {}: {took:.0?}", seeds.unwrap_or("as usual"));
            limits.insert(seeds, (took * SLOWER_MAX).max(LIMIT_MIN));
        }
        programs.insert(package.to_owned(), Program { path, limits });
    }
    Ok(programs)
}

/// Runs the tests with one mutation until one notices it: those of its own file before others.
/// Builds them before if the mutation has no number.
fn try_mutation(
    workshop: &Workshop,
    mutation: &Mutation,
    number: Option<usize>,
    programs: &Programs,
) -> Result<Outcome, String> {
    let own = mutation.module();
    let few = Some(SEEDS_FEW);
    for (seeds, filter) in [(few, own.as_deref()), (few, None), (None, None)] {
        for package in mutation.packages() {
            let Program { path, limits } = &programs[package];
            let Some(&limit) = limits.get(&seeds) else { continue };
            if filter.is_some() && package != mutation.package() {
                continue;
            }
            let built =
                if number.is_some() { Ok(path.clone()) } else { workshop.build(package)? };
            let path = match built {
                Ok(path) => path,
                Err(why) => return Ok(Outcome::NotBuilt(why)),
            };
            let trial = Trial { number: number.unwrap_or(0), seeds, filter, limit };
            let outcome = workshop.test(package, &path, &trial)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
    }
    Ok(Outcome::Passed)
}

/// With how many seeds the tests are run, one round after the other. `None`: with as many as they
/// have by themselves, or as `STENTOR_SEEDS` says. The tests of the command refuse that variable as
/// a setting that is misspelt.
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
const UNCHANGED: Trial<'_> =
    Trial { number: 0, seeds: None, filter: None, limit: Duration::from_secs(24 * 3600) };

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
