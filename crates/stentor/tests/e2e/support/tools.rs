//! Programs of the host that some tests use as clients, and what clients do to answers.

use super::missing;
use flate2::read::GzDecoder;
use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where a program is. Tests that need one that is missing say so and do nothing, unless
/// `TEST_TOOLS=required`, as `cargo xtask ci` sets it.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    optional_tool(name).or_else(|| missing(name))
}

/// Where a program is that no test needs: what it checks is checked by something else as well.
pub(crate) fn optional_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A Python program of `python/`, with the packages `websockets` and `wsproto` at hand. They are
/// those of Debian, and so is the Python: another one that comes first in the path lacks them.
pub(crate) fn python(program: &str) -> Option<Command> {
    let package = Path::new("/usr/lib/python3/dist-packages");
    let is_there = |name: &&str| package.join(name).is_dir();
    if let Some(absent) = ["websockets", "wsproto"].iter().find(|name| !is_there(name)) {
        return missing(&format!("python3-{absent}"));
    }
    Some(program_of_debians_python(program))
}

/// Runs one of the programs in `python/` that needs nothing but the language, if that is there.
pub(crate) fn python_of_host(program: &str) -> Option<Command> {
    match Path::new("/usr/bin/python3").exists() {
        true => Some(program_of_debians_python(program)),
        false => missing("python3"),
    }
}

/// What stands between the two processes of an upgrade (`python/between.py`), as shell.
pub(crate) fn between() -> Option<String> {
    python_as_shell("between.py")
}

/// A program that runs a command where `openat2` is forbidden (`python/no_openat2.py`), as shell.
pub(crate) fn sandbox_without_openat2() -> Option<String> {
    python_as_shell("no_openat2.py")
}

/// A program that needs nothing but Python, as shell.
fn python_as_shell(program: &str) -> Option<String> {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return missing("python3");
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/python").join(program);
    Some(format!("{} '{}'", python.display(), program.display()))
}

fn program_of_debians_python(program: &str) -> Command {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/python").join(program);
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-u").arg(file);
    command
}

/// A client that `cargo xtask test` puts together from the packages of another language.
fn client(name: &str) -> Option<PathBuf> {
    built(name).or_else(|| missing(name))
}

/// What `cargo xtask test` puts together, if that could be done.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    Some(clients.join(name)).filter(|program| program.exists())
}

/// Readers of Server-Sent Events with the libraries `httpx-sse` and `requests` of Python and
/// `r3labs/sse` of Go, as far as there are any.
pub(crate) fn event_readers() -> Vec<Command> {
    let python = |program: &str| {
        let packages = client("python")?;
        let mut command = program_of_debians_python(program);
        command.env("PYTHONPATH", packages);
        Some(command)
    };
    let readers = [
        python("httpx_sse_client.py"),
        python("requests_client.py"),
        client("r3labs-sse").map(Command::new),
    ];
    readers.into_iter().flatten().collect()
}

/// Runs curl, if there is one.
pub(crate) fn curl(args: &[&str]) -> Option<Output> {
    let mut command = Command::new(tool("curl")?);
    // Neither the user's settings nor a proxy are part of the test.
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30"]);
    Some(command.args(args).output().expect("curl can be started"))
}

/// A row of the kernel's table of TCP connections of IPv4.
pub(crate) struct TcpRow {
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    /// 1 is established, and 6 `TIME_WAIT`.
    pub(crate) state: u8,
    pub(crate) unsent_bytes: u64,
}

pub(crate) fn tcp_table() -> Vec<TcpRow> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let row = |line: &str| {
        let numbers: Vec<u64> = line
            .split([' ', ':'])
            .filter(|word| !word.is_empty())
            .map(|word| u64::from_str_radix(word, 16).unwrap_or(0))
            .collect();
        // Number, local and remote address with ports, state, bytes to send and received.
        let (local_port, remote_port) = (numbers[2] as u16, numbers[4] as u16);
        TcpRow { local_port, remote_port, state: numbers[5] as u8, unsent_bytes: numbers[6] }
    };
    table.lines().skip(1).map(row).collect()
}

/// What was packed; it must be gzip.
pub(crate) fn gunzip(packed: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut data).expect("it is gzip");
    data
}
