//! The binary: static, stripped, and the same wherever it was built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Arch, Release};
use crate::{cargo, host, root, run};

/// Builds the command for an architecture. Zig brings a C compiler, a linker and musl for each of
/// them; the versions are named, for others would make other bytes.
pub(super) fn build(release: &Release, arch: &Arch) -> Result<PathBuf, String> {
    let (root, target_dir) = (root(), release.kept.join("cargo"));
    let tools = tools(release)?;
    if host::find("rustup").is_some() {
        run(Command::new("rustup").args(["target", "add", arch.target]).current_dir(&root))?;
    }
    let home = cargo_home();
    let places = [(root.as_path(), "/stentor"), (home.as_path(), "/cargo")];
    let flags = |option: &str| {
        let each = places.map(|(place, name)| format!("{option}={}={name}", place.display()));
        each.join(" ")
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([tools.join("bin")].into_iter().chain(env::split_paths(&path)))
        .map_err(|error| error.to_string())?;
    run(cargo(&["zigbuild", "--locked", "--package", "stentor", "--profile", "dist"])
        .args(["--target", arch.target, "--target-dir"])
        .arg(&target_dir)
        .current_dir(&root)
        .env("PATH", path)
        .env("RUSTFLAGS", flags("--remap-path-prefix"))
        .env("CFLAGS", flags("-ffile-prefix-map"))
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .env("CARGO_PROFILE_DIST_DEBUG", "false")
        .env("CARGO_PROFILE_DIST_STRIP", "symbols"))?;
    Ok(target_dir.join(arch.target).join("dist/stentor"))
}

/// The cross compiler, in an environment of Python that is kept beside the builds.
pub(super) fn tools(release: &Release) -> Result<PathBuf, String> {
    let dir = release.kept.join("tools");
    if !dir.join("bin/cargo-zigbuild").is_file() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
        run(Command::new(dir.join("bin/pip")).args(["install", "--quiet", ZIG, ZIGBUILD]))?;
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
