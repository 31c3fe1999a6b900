//! Programs of the host that some tests use as clients.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Where a program is. Tests that need one that is missing say so and do nothing, unless
/// `TEST_TOOLS=required`, as `cargo xtask ci` sets it.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    if found.is_none() {
        assert_ne!(env::var("TEST_TOOLS").as_deref(), Ok("required"), "{name} is not installed");
        eprintln!("skipped: {name} is not installed; `cargo xtask test` installs it on Debian");
    }
    found
}

/// Runs curl, if there is one.
pub(crate) fn curl(args: &[&str]) -> Option<Output> {
    let mut command = Command::new(tool("curl")?);
    // Neither the user's settings nor a proxy are part of the test.
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30"]);
    Some(command.args(args).output().expect("curl can be started"))
}
