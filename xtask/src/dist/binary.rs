//! The binary: static, stripped, and the same wherever it was built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ARCHES, Arch, Release};
use crate::{host, root, run, run_quietly};

/// Builds the command for an architecture.
pub(super) fn build(release: &Release, arch: &Arch) -> Result<PathBuf, String> {
    let (root, home) = (root(), cargo_home());
    let places = [(root.as_path(), "/stentor"), (home.as_path(), "/cargo")];
    let flags = |option: &str| {
        let each = places.map(|(place, name)| format!("{option}={}={name}", place.display()));
        each.join(" ")
    };
    run(zig_cargo(&release.kept, arch, "zigbuild")?
        .args(["--package", "stentor", "--release"])
        .env("RUSTFLAGS", flags("--remap-path-prefix"))
        .env("CFLAGS", flags("-ffile-prefix-map"))
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .env("STENTOR_COMMIT", &release.commit)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols"))?;
    Ok(release.kept.join("cargo").join(arch.target).join("release/stentor"))
}

/// Clippy for every target that is shipped. Its libc differs from that of the host, so what
/// compiles here may not compile there.
pub(super) fn lint(kept: &Path) -> Result<(), String> {
    for arch in ARCHES {
        let mut clippy = zig_cargo(kept, arch, "clippy")?;
        run(clippy.args(["--workspace", "--lib", "--bins", "--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Runs the tests of `stentor-io` with the libc that is shipped, where this host can run them.
pub(super) fn test_system_calls(kept: &Path) -> Result<(), String> {
    let Some(arch) = ARCHES.iter().find(|arch| arch.target.starts_with(env::consts::ARCH)) else {
        println!("skipped: nothing is shipped for {}", env::consts::ARCH);
        return Ok(());
    };
    run(zig_cargo(kept, arch, "test")?.args(["--package", "stentor-io", "--lib"]))
}

/// Cargo for a target that is shipped. Zig brings a C compiler, a linker and musl; its version is
/// named, for another would make other bytes.
fn zig_cargo(kept: &Path, arch: &Arch, subcommand: &str) -> Result<Command, String> {
    let tools = tools(kept)?.join("bin");
    if host::find("rustup").is_some() {
        run_quietly(
            Command::new("rustup").args(["target", "add", arch.target]).current_dir(root()),
        )?;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([tools.clone()].into_iter().chain(env::split_paths(&path)))
        .map_err(|error| error.to_string())?;
    let mut command = Command::new(tools.join("cargo-zigbuild"));
    command
        .args([subcommand, "--locked", "--target", arch.target, "--target-dir"])
        .arg(kept.join("cargo"))
        .current_dir(root())
        .env("PATH", path);
    Ok(command)
}

/// The cross compiler, in a virtual environment of Python beside the builds.
pub(super) fn tools(kept: &Path) -> Result<PathBuf, String> {
    let dir = kept.join("tools");
    if !dir.join("bin/cargo-zigbuild").is_file() {
        run_quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
        run_quietly(Command::new(dir.join("bin/pip")).args(["install", "--quiet", ZIG, ZIGBUILD]))?;
    }
    Ok(dir)
}

/// Where cargo keeps the sources of libraries.
fn cargo_home() -> PathBuf {
    let user = || Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cargo");
    env::var_os("CARGO_HOME").map_or_else(user, PathBuf::from)
}

const ZIG: &str = "ziglang==0.17.1";
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
