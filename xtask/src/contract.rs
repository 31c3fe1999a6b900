//! `cargo xtask contract`: writes the files of the public contract, and `cargo xtask ci` makes sure
//! that the changelog says of each change.

use std::process::Command;

use xtask::source::root;

use crate::{cargo, run};

/// Writes `docs/contract/` from the tables of the code. The tests that compare the files do it.
///
/// # Errors
/// A table cannot be read, or the code does not compile.
pub(crate) fn write() -> Result<(), String> {
    for (package, target, filter) in
        [("xtask", "--test=contract", ""), ("stentor", "--bin=stentor", "contract")]
    {
        let mut command = cargo(&["test", "--quiet", "--package", package, target]);
        run(command.args(["--", filter]).env("STENTOR_WRITE", "1"))?;
    }
    Ok(())
}

/// Makes sure that the changelog has changed with or after the contract.
///
/// # Errors
/// The changelog is older than the contract.
pub(crate) fn check_changelog() -> Result<(), String> {
    let Some(last) = last_commit(GOLDEN_FILES) else {
        println!("skipped: there is no history of {GOLDEN_FILES:?}");
        return Ok(());
    };
    let mut git = Command::new("git");
    git.args(["diff", "--quiet", &format!("{last}^"), "--", CHANGELOG]).current_dir(root());
    match git.status() {
        Ok(status) if status.success() => {
            Err(format!("{last} changes the public contract, and {CHANGELOG} has no line on that"))
        }
        _ => Ok(()),
    }
}

/// The last commit that changes one of these files and does not add it.
fn last_commit(files: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%H", "--diff-filter=M", "--"]).args(files);
    let output = git.current_dir(root()).output().ok().filter(|output| output.status.success())?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!commit.is_empty()).then_some(commit)
}

const GOLDEN_FILES: &[&str] = &["docs/contract/contract.json", "docs/contract/commands.json"];
const CHANGELOG: &str = "CHANGELOG.md";
