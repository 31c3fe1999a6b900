//! What the kernel says of this process and of the time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// Memory of this process in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    /// Resident set: what is in RAM, files mapped into it included.
    pub resident: u64,
    /// The part of the resident set that is the process's own: heap and stacks.
    pub anonymous: u64,
}

/// Reads the memory of this process from `/proc/self/statm`; zeros where there is no `/proc`.
#[must_use]
pub fn process_memory() -> ProcessMemory {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else {
        return ProcessMemory::default();
    };
    let mut pages = text.split_ascii_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
    let page = rustix::param::page_size() as u64;
    let resident = pages.nth(1).unwrap_or(0);
    let shared = pages.next().unwrap_or(0);
    ProcessMemory { resident: resident * page, anonymous: resident.saturating_sub(shared) * page }
}

/// How many files one file table of this process may hold now.
#[must_use]
pub fn open_files_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard one, and returns it.
///
/// # Errors
/// The kernel refused.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(open_files_limit())
}

/// Monotonic time in microseconds: the same clock on every thread, of no meaning elsewhere.
#[must_use]
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// Wall clock in seconds since 1970. A clock before that is broken; it counts as 1970.
#[must_use]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
