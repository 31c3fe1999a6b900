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

/// Copies the manual, the completions, the licences and what else is read to a directory.
pub(super) fn copy_to(release: &Release, dir: &Path) -> Result<(), String> {
    for name in ["man", "completions"] {
        copy(&release.work.join(name), &dir.join(name))?;
    }
    for name in ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        copy(&root().join(name), &dir.join(name))?;
    }
    let prices = "crates/stentor/src/demo/data/LICENSE.stocks.txt";
    copy(&root().join(prices), &dir.join("LICENSE.stocks.txt"))?;
    for name in ["stentor.toml", "stentor.service"] {
        copy(&root().join("packaging").join(name), &dir.join(name))?;
    }
    Ok(())
}
