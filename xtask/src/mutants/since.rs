//! What `cargo-mutants` makes of the code that differs from a commit: it replaces functions by a
//! default value, operators by others, and leaves out match arms, negations and fields.
//!
//! It works in the copy, package by package. The tests of the package must notice, or else those of
//! the server.

use super::workshop::{END_TO_END, Workshop};
use super::{SEEDS_FEW, SERVER};
use crate::run;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The files of the crates that differ from a commit, relative to the root.
///
/// # Errors
///
/// If Git does not know the commit.
pub(crate) fn files(root: &Path, commit: &str) -> Result<BTreeSet<String>, String> {
    Ok(diff(root, commit, &["--name-only"])?.lines().map(str::to_owned).collect())
}

/// Tries what differs from a commit.
///
/// # Errors
///
/// If a mutation survives, or there is no `cargo-mutants`.
pub(crate) fn try_all(root: &Path, workshop: &Workshop, commit: &str) -> Result<(), String> {
    let listed = Command::new("cargo").args(["mutants", "--version"]).output();
    if !listed.is_ok_and(|output| output.status.success()) {
        return Err("cargo-mutants is missing: cargo install --locked cargo-mutants".into());
    }
    let directory = root.join("target/mutants");
    let file = directory.join("changes.diff");
    fs::write(&file, diff(root, commit, &[])?).map_err(|error| format!("{file:?}: {error}"))?;
    let files = files(root, commit)?;
    let packages: BTreeSet<_> = files.iter().filter_map(|file| file.split('/').nth(1)).collect();
    let mut survived = Vec::new();
    for package in packages {
        let mut command = workshop.cargo("mutants");
        command.args([
            "--in-place",
            "--no-shuffle",
            "--package",
            package,
            "--test-package",
            package,
        ]);
        command.arg("--in-diff").arg(&file).arg("--output").arg(directory.join(package));
        if package == END_TO_END {
            // It is a command, and no library, and takes the variable for a misspelt setting.
            command.args(["--", "--bins"]);
        } else {
            command.args(["--test-package", SERVER, "--", "--lib"]);
            command.env("STENTOR_SEEDS", env::var("STENTOR_SEEDS").as_deref().unwrap_or(SEEDS_FEW));
        }
        survived.extend(run(&mut command).err());
    }
    if survived.is_empty() { Ok(()) } else { Err(survived.join("\nxtask: ")) }
}

fn diff(root: &Path, commit: &str, options: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(["diff", "--relative"])
        .args(options)
        .args([commit, "--", "crates/*/src/*.rs"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    let printed = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(printed(&output.stdout)) } else { Err(printed(&output.stderr)) }
}
