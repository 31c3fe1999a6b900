//! `cargo xtask mutants`: breaks the server on purpose, in one place after the other, and looks
//! whether the tests notice.
//!
//! No list names what can be derived: each limit is halved and doubled (`limits.rs`), and what a
//! change touches is mutated by `cargo-mutants` (`since.rs`). Faults that the code once had, and
//! that neither of both makes, are in `xtask/mutants/`, in the form of `list.rs`. Everything
//! happens in a copy of the working tree (`workshop.rs`), so that the tree itself is never broken,
//! whenever this is interrupted.
//!
//! Nearly all mutations are in the same build (`switch.rs`), so that trying one takes as long as
//! its tests. Most are noticed within a second by the tests of their own file, which run first.
//! Then all tests run, with few seeds of the simulator. Only what survives them is tried again with
//! as many as the tests have by themselves.

mod limits;
mod list;
mod since;
mod switch;
mod workshop;

use list::Mutation;
use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use workshop::{END_TO_END, Outcome, Trial, Workshop};
use xtask::source::{File, read, rust};
use xtask::syntax::{Source, sources, without_tests};

/// Runs the mutations whose file and sentence contain one of the filters; all without any. With
/// `--since COMMIT`, those of files that differ from it, and what `cargo-mutants` makes of them.
///
/// # Errors
///
/// If a mutation survives or does not compile, or the tests fail without any.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let (commit, args) = match args {
        ["--since", commit, args @ ..] => (Some(*commit), args),
        args => (None, args),
    };
    if let Some(flag) = args.iter().find(|arg| arg.starts_with('-') && **arg != "--list") {
        return Err(format!("{flag} is no option of mutants; see cargo xtask"));
    }
    let filters: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--list").collect();
    let mut mutations = list::read(&root.join("xtask/mutants"), &rust())?;
    mutations.extend(limits::derive());
    if let Some(commit) = commit {
        let files = since::files(root, commit)?;
        mutations.retain(|mutation| files.contains(mutation.file()));
    }
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
    let tried = try_all(&workshop, &mutations);
    match commit {
        Some(commit) => tried.and(since::try_all(root, &Workshop::new(root)?, commit)),
        None => tried,
    }
}

fn try_all(workshop: &Workshop, mutations: &[Mutation]) -> Result<(), String> {
    let numbered: Vec<_> = (1..).zip(mutations).collect();
    for File { path, text } in mutated(mutations)? {
        workshop.write(&path, &text)?;
    }
    let programs = try_unchanged(workshop, mutations)?;
    let mut survived = 0;
    for (number, mutation) in numbered {
        let begin = Instant::now();
        let outcome = try_mutation(workshop, mutation, number, &programs)?;
        let seconds = begin.elapsed().as_secs();
        match outcome {
            Outcome::Failed(by) => println!("caught    {mutation} [{by}, {seconds} s]"),
            Outcome::Passed => {
                println!("SURVIVED  {mutation} [{seconds} s]");
                survived += 1;
            }
        }
    }
    println!("{} caught, {survived} survived", mutations.len() - survived);
    if survived == 0 { Ok(()) } else { Err("every mutation must be caught".into()) }
}

/// The files that mutations change, each with all of them.
fn mutated(mutations: &[Mutation]) -> Result<Vec<File>, String> {
    let numbered: Vec<_> = (1..).zip(mutations).collect();
    let limits: Vec<_> = numbered.iter().copied().filter(|it| it.1.is_limit()).collect();
    let mut unused = limits.iter().map(|(number, _)| *number).collect();
    let mut files = Vec::new();
    for Source { path, mut tree, .. } in sources().into_values().flat_map(without_tests) {
        let is_own = |(_, it): &(usize, &Mutation)| !it.is_limit() && it.file() == path;
        let own: Vec<_> = numbered.iter().copied().filter(is_own).collect();
        let mut text = read(&path);
        if !own.is_empty() {
            text = switch::switched(&tree, &text, &own)?;
            tree = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        }
        let text = limits::switched(&path, &tree, text, &limits, &mut unused);
        files.push(File { path, text });
    }
    let unused: Vec<_> = unused.iter().map(|number| mutations[number - 1].to_string()).collect();
    match unused.is_empty() {
        true => Ok(files),
        false => Err(format!("no function uses\n  {}", unused.join("\n  "))),
    }
}

/// The tests of each package, built with all mutations.
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
fn try_mutation(
    workshop: &Workshop,
    mutation: &Mutation,
    number: usize,
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
            let trial = Trial { number, seeds, filter, limit };
            let outcome = workshop.test(package, path, &trial)?;
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

const SERVER: &str = "stentor-server";

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
    use xtask::source::expect_none;

    /// A change that loses a marker, or what a mutation changes behind it, is noticed without
    /// running it. So is a limit that only constants use.
    #[test]
    fn every_mutation_applies() {
        let mut mutations = list::read(&crate::root().join("xtask/mutants"), &rust()).unwrap();
        assert!((1..=LISTED_MAX).contains(&mutations.len()), "{} are listed", mutations.len());
        let limits = limits::derive();
        assert!(limits.len() > 600, "only {} mutations of limits", limits.len());
        mutations.extend(limits);
        let files = mutated(&mutations).unwrap().into_iter();
        let broken = files.filter(|file| syn::parse_file(&file.text).is_err());
        expect_none("mutations are no Rust", broken.map(|file| file.path).collect());
    }

    const LISTED_MAX: usize = 150;
}
