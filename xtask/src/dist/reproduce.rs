//! The same again, elsewhere: all of it must have the same bytes.
//!
//! What is committed is copied to a directory of another name and depth, and made there later, in
//! another time zone and with files that only their owner may read: by this command itself, and
//! with nothing in common but the tools and the date of the commit.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Release, fresh, output};
use crate::{root, run};

/// Makes what is named a second time, and compares.
pub(super) fn all(release: &Release, named: &[&str]) -> Result<(), String> {
    let elsewhere = env::temp_dir().join(format!("stentor-{}/else/where", std::process::id()));
    fresh(&elsewhere)?;
    let files = "git ls-files -z | xargs -0 cp --parents -t \"$0\"";
    run(Command::new("sh").args(["-c", files]).arg(&elsewhere).current_dir(root()))?;
    let again = "umask 077; exec cargo xtask dist \"$@\"";
    let same = run(Command::new("sh")
        .args(["-c", again, "sh"])
        .args(named)
        .current_dir(&elsewhere)
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .env("STENTOR_COMMIT", &release.commit)
        .env("TZ", "Pacific/Chatham"))
    .and_then(|()| compare(&release.out, &elsewhere.join("target/dist/packages")));
    let _ = fs::remove_dir_all(elsewhere.ancestors().nth(2).unwrap_or(&elsewhere));
    same
}

/// Prints the digest of each artefact, and fails if another has come of it.
fn compare(first: &Path, again: &Path) -> Result<(), String> {
    let digests =
        |dir: &Path| output(Command::new("sh").args(["-c", "sha256sum -- *"]).current_dir(dir));
    let (first, again) = (digests(first)?, digests(again)?);
    println!("{first}");
    let other = first.lines().zip(again.lines()).find(|(first, again)| first != again);
    match other {
        Some((_, again)) => Err(format!("built again elsewhere, it is another: {again}")),
        None if first.len() != again.len() => Err(format!("built again elsewhere:\n{again}")),
        None => {
            println!("built again elsewhere, they are the same");
            Ok(())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_and_other_files_are_found() {
        let dir = env::temp_dir().join(format!("stentor-compare-{}", std::process::id()));
        let (first, again) = (dir.join("first"), dir.join("again"));
        for dir in [&first, &again] {
            fresh(dir).unwrap();
            fs::write(dir.join("a"), "same").unwrap();
        }
        assert_eq!(compare(&first, &again), Ok(()));
        fs::write(again.join("b"), "one more").unwrap();
        assert!(compare(&first, &again).is_err());
        fs::write(first.join("b"), "another").unwrap();
        assert!(compare(&first, &again).unwrap_err().contains("  b"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
