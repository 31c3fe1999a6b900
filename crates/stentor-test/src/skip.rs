//! How a test says that it cannot run on this machine.
//!
//! libtest swallows what a passing test prints. A test that is skipped therefore writes
//! a line into the file that `TEST_SKIPPED` names. `cargo xtask test` prints it at its end.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::thread;

/// Takes note that the test of this thread does not run, and why.
///
/// # Panics
///
/// If the file that `TEST_SKIPPED` names cannot be written to.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(list) = env::var_os("TEST_SKIPPED") else { return };
    let mut list = File::options().append(true).create(true).open(list).expect("it is a file");
    let thread = thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    list.write_all(line.as_bytes()).expect("the list can be written");
}

/// Likewise, for want of what can be installed: none, where nothing may be missing.
///
/// # Panics
///
/// If `TEST_TOOLS` is `required`, as `cargo xtask test` sets it once all is installed.
#[must_use]
pub fn missing<T>(name: &str) -> Option<T> {
    assert_ne!(env::var("TEST_TOOLS").as_deref(), Ok("required"), "{name} is not installed");
    skip(&format!("{name} is not installed; `cargo xtask test` installs it on Debian"));
    None
}

/// Whether root runs this test. If not, takes note of what the test needs root for.
#[must_use]
pub fn is_root(test: &str) -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        skip(&format!("{test} takes root"));
    }
    is_root
}
