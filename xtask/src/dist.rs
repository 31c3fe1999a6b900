//! `cargo xtask dist`: what is shipped, into `target/dist/packages/`.
//!
//! For each architecture a static binary, a tarball, a Debian package and an OCI image; and once,
//! the browser client as a package of npm. Two builds of one commit give the same bytes, wherever
//! the sources lie: paths are taken out of the binary, and every date is that of the commit.
//!
//! The tools come from where they are kept well: Debian's `debhelper` makes the package, `zig`
//! compiles and links C for both architectures, `npm` packs. An image is a few JSON documents and
//! two archives, and needs no tool but `tar`. What was made is tried with `--check`, and made
//! again elsewhere with `--reproduce`.

mod binary;
mod check;
mod debian;
mod image;
mod manual;
mod reproduce;
pub(crate) mod sizes;
mod tarball;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{host, root, run};

/// An architecture under its three names.
pub(crate) struct Arch {
    /// Rust's.
    target: &'static str,
    /// Debian's and that of OCI, which agree.
    name: &'static str,
}

const ARCHES: &[Arch] = &[
    Arch { target: "x86_64-unknown-linux-musl", name: "amd64" },
    Arch { target: "aarch64-unknown-linux-musl", name: "arm64" },
];

/// What is shipped, and from where.
pub(crate) struct Release {
    /// `target/dist/packages`: what is made.
    out: PathBuf,
    /// `target/dist-build`: the builds and the tools, which are kept.
    kept: PathBuf,
    /// What packages are made of, and tried in; begun anew each time.
    work: PathBuf,
    version: String,
    /// The date of the commit, in seconds since 1970: that of every file.
    epoch: String,
    /// The commit, in short.
    commit: String,
}

/// Makes all of it, or that of the architectures that are named; with `--check` it tries them too,
/// with `--reproduce` it makes them once more.
pub(crate) fn dist(args: &[&str]) -> Result<(), String> {
    let (options, named): (Vec<&str>, Vec<&str>) =
        args.iter().partition(|arg| ["--check", "--reproduce"].contains(*arg));
    if let Some(unknown) = named.iter().find(|arg| ARCHES.iter().all(|arch| arch.name != **arg)) {
        return Err(format!("{unknown} is no architecture here: name amd64 or arm64"));
    }
    if !host::prepare(&["dh", "dpkg-deb", "npm", "python3-venv"]) {
        return Err("the tools above are needed".into());
    }
    let release = Release::new()?;
    manual::make(&release)?;
    for arch in ARCHES.iter().filter(|arch| named.is_empty() || named.contains(&arch.name)) {
        let binary = binary::build(&release, arch)?;
        tarball::make(&release, arch, &binary)?;
        debian::make(&release, arch, &binary)?;
        image::make(&release, arch, &binary)?;
    }
    let pack = ["pack", "--silent", "--pack-destination"];
    run(Command::new("npm").args(pack).arg(&release.out).current_dir(root().join("clients/js")))?;
    println!("made in {}", release.out.display());
    if options.contains(&"--check") {
        check::all(&release)?;
    }
    if options.contains(&"--reproduce") {
        reproduce::all(&release, &named)?;
    }
    Ok(())
}

/// Checks the targets that are shipped: clippy for each of them, and the tests of `stentor-io` with
/// the libc of one.
pub(crate) fn check_targets() -> Result<(), String> {
    if !host::prepare(&["python3-venv"]) {
        return Err("the tools above are needed to compile what is shipped".into());
    }
    let kept = kept();
    binary::lint(&kept)?;
    binary::test_system_calls(&kept)
}

/// Where the builds and their tools are kept from one call to the next.
fn kept() -> PathBuf {
    root().join("target/dist-build")
}

impl Release {
    fn new() -> Result<Release, String> {
        let release = Release {
            out: root().join("target/dist/packages"),
            kept: kept(),
            work: kept().join("work"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: of_the_commit("SOURCE_DATE_EPOCH", "%ct")?,
            commit: of_the_commit("STENTOR_COMMIT", "%h")?,
        };
        for dir in [&release.out, &release.work] {
            fresh(dir)?;
        }
        Ok(release)
    }

    /// The name of what is made: `stentor-0.1.0-amd64`, and what follows.
    fn path(&self, arch: &Arch, ending: &str) -> PathBuf {
        self.out.join(format!("stentor-{}-{}{ending}", self.version, arch.name))
    }

    /// Packs a directory so that the same files make the same bytes: in the order of their names,
    /// of nobody in particular, to be read by all, and of one date.
    fn tar(&self, dir: &Path, members: &[&str], archive: &Path) -> Result<(), String> {
        let date = format!("--mtime=@{}", self.epoch);
        let same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"];
        let readable = "--mode=u=rwX,go=rX";
        run(Command::new("tar")
            .args(same)
            .args([&date, readable, "--create", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(dir)
            .args(members))
    }

    /// Packs and compresses; without the name and the date that gzip would note.
    fn tar_gz(&self, dir: &Path, members: &[&str], archive: &Path) -> Result<(), String> {
        self.tar(dir, members, archive)?;
        run(Command::new("gzip").args(["--no-name", "--best", "--force"]).arg(archive))
    }
}

/// A fact about the commit, by git's format. The environment replaces it where the sources have no
/// history.
fn of_the_commit(variable: &str, format: &str) -> Result<String, String> {
    let format = format!("--format={format}");
    env::var(variable).or_else(|_| {
        output(Command::new("git").args(["log", "-1", "--abbrev=12", &format]).current_dir(root()))
    })
}

/// An empty directory, whatever was there.
fn fresh(dir: &Path) -> Result<(), String> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

/// Copies a file or all that is in a directory, with permissions.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    run(Command::new("cp").args(["-rT", "--preserve=mode"]).arg(from).arg(to))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// What a command prints, without the end of its line.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}: {said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
