//! The pages of the manual and the completions of shells: what the command says of itself.

use std::fs;
use std::path::Path;

use super::{Release, copy, output, write};
use crate::{cargo, root, run};

/// Has a build for this host write them into the work directory.
pub(super) fn make(release: &Release) -> Result<(), String> {
    for name in ["man", "completions"] {
        fs::create_dir_all(release.work.join(name)).map_err(|error| error.to_string())?;
    }
    let command = ["run", "--quiet", "--locked", "--package", "stentor", "--features", "man", "--"];
    run(cargo(&command).arg("man").arg(release.work.join("man")))?;
    for (shell, file) in [("bash", "stentor"), ("zsh", "_stentor"), ("fish", "stentor.fish")] {
        let script = output(cargo(&command).args(["completions", shell]))?;
        write(&release.work.join("completions").join(file), &format!("{script}\n"))?;
    }
    Ok(())
}

/// Copies the manual, the completions and the pages to a directory. The pages lie where they lie in
/// the sources, so that their links hold.
pub(super) fn copy_to(release: &Release, dir: &Path) -> Result<(), String> {
    for name in ["man", "completions"] {
        copy(&release.work.join(name), &dir.join(name))?;
    }
    for name in PAGES {
        let to = dir.join(name);
        let parent = to.parent().unwrap_or(dir);
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        copy(&root().join(name), &to)?;
    }
    for name in ["stentor.toml", "stentor.service"] {
        copy(&root().join("packaging").join(name), &dir.join(name))?;
    }
    Ok(())
}

/// The pages, and the files that they refer to. `packaging/debian/` installs the same.
const PAGES: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "bench/README.md",
    "clients/js/README.md",
    "crates/stentor/src/demo/data/LICENSE.stocks.txt",
    "docs",
    "packaging",
];
