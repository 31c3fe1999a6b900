//! Checks that take long, by programs that see what tests do not: `cargo xtask loom`, `cargo xtask
//! miri` and `cargo xtask tsan`. Each compiles into a directory of its own below `target/`.
//!
//! Miri and ThreadSanitizer need the nightly toolchain: `rustup toolchain install nightly
//! --component miri,rust-src`. Kani is not here: its compiler is no package of a registry.

use std::process::Command;

use xtask::source::root;

use crate::{cargo, run};

/// Runs every interleaving of the threads of small models: the tests named `loom_tests`.
///
/// # Errors
/// A model fails, or the code does not compile.
pub(crate) fn loom() -> Result<(), String> {
    let mut command = cargo(&["test", "--locked", "--package", "stentor-io", "--lib"]);
    command.args(["--target-dir", "target/loom", "--", "loom_tests"]);
    run(command.env("RUSTFLAGS", "--cfg loom"))
}

/// Interprets tests of the crates that parse and store, and looks for undefined behaviour.
///
/// # Errors
/// A test fails, or there is no nightly toolchain.
pub(crate) fn miri() -> Result<(), String> {
    for (package, tests) in MIRI {
        let mut command = nightly();
        command.args(["miri", "test", "--locked", "--package", package, "--lib", "--target-dir"]);
        command.arg("target/miri").arg("--").args(*tests);
        // A test of properties takes thousands of times as long.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "2");
        run(&mut command)?;
    }
    Ok(())
}

/// Runs end-to-end tests with a server that reports data races. `args` choose the tests.
///
/// # Errors
/// A test fails, there is a data race, or there is no nightly toolchain.
pub(crate) fn tsan(args: &[&str]) -> Result<(), String> {
    let mut command = nightly();
    command.args(["test", "--locked", "--package", "stentor", "--test", "e2e"]);
    command.args(["-Zbuild-std", "--target", TARGET, "--target-dir", "target/tsan", "--"]);
    command.args(args).env("RUSTFLAGS", "-Zsanitizer=thread");
    // A server that has seen a race ends with this status, which no test expects.
    run(command.env("TSAN_OPTIONS", "halt_on_error=1 exitcode=66"))
}

/// Cargo of the nightly toolchain, at the root of the project.
fn nightly() -> Command {
    let mut command = Command::new("cargo");
    // The variables of the toolchain that runs this name its own programs.
    command.arg("+nightly").current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

/// The packages that Miri interprets, and filters of their tests. Miri has no sockets, and knows
/// no code in C, such as that of zstd.
const MIRI: &[(&str, &[&str])] = &[
    ("stentor-wire", &["--skip", "deflate", "--skip", "fuzz", "--skip", "properties"]),
    ("stentor-hub", &["pattern", "rules", "field", "id"]),
    ("stentor-log", &["frame", "codec"]),
    ("stentor-io", &["thousands", "histogram::", "clock::"]),
];

const TARGET: &str = "x86_64-unknown-linux-gnu";
