//! The lines by which the README installs, taken from there: what a user pastes is what is tried.

use std::fs;

use super::super::{Arch, Release};
use crate::root;

/// The README's install command that begins like this, for an architecture.
pub(super) fn install_line(release: &Release, arch: &Arch, begin: &str) -> Result<String, String> {
    let readme = fs::read_to_string(root().join("README.md")).map_err(|error| error.to_string())?;
    let line = line(&readme, begin)?;
    // The artefacts of this release have its version in their names.
    if begin != CARGO && !line.contains(&release.version) {
        return Err(format!("README.md: '{line}' does not name version {}", release.version));
    }
    Ok(line.replace("amd64", arch.name))
}

/// The one line below "Install" that begins like this.
fn line<'t>(readme: &'t str, begin: &str) -> Result<&'t str, String> {
    let section = readme.split("\n## ").find(|section| section.starts_with("Install\n"));
    let lines = section.unwrap_or_default().lines().filter(|line| line.starts_with(begin));
    match lines.collect::<Vec<_>>().as_slice() {
        // A line is a command, at least two spaces, and a description.
        [line] => Ok(line.split_once("  ").map_or(*line, |(command, _)| command)),
        found => Err(format!(
            "README.md, \"Install\": one line that begins with '{begin}' is expected, not {}",
            found.len()
        )),
    }
}

pub(super) const APT: &str = "sudo apt install ";
pub(super) const CARGO: &str = "cargo install ";
pub(super) const PODMAN: &str = "podman load ";
pub(super) const TAR: &str = "tar ";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn readme_has_each_install_line_once() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        for begin in [APT, CARGO, PODMAN, TAR] {
            let line = line(&readme, begin).unwrap();
            assert!(line.starts_with(begin) && !line.contains("  "), "{line}");
        }
    }

    #[test]
    fn lines_outside_of_install_do_not_count() {
        let readme = "\n## Install\ntar -xzf a    unpacks\n\n## Else\ntar -xzf b\npodman load c\n";
        assert_eq!(line(readme, TAR), Ok("tar -xzf a"));
        assert!(line(readme, PODMAN).is_err());
    }
}
