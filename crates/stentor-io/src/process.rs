//! What the kernel says of this process, of another one, and of the time.

use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::event::Timespec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(any(test, feature = "sim"))]
use crate::virtual_clock;

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    /// Resident set: what is in RAM, files mapped into it included.
    pub resident: u64,
    /// What is mapped, whether or not it is in RAM.
    pub mapped: u64,
    /// The part of the resident set that is the process's own: heap and stacks.
    pub anonymous: u64,
}

/// Reads the memory of this process from `/proc/self/statm`; zeros where there is no `/proc`.
#[must_use]
pub fn process_memory() -> ProcessMemory {
    std::fs::read_to_string("/proc/self/statm").map_or_else(|_| Default::default(), |t| memory(&t))
}

/// The same of another process.
///
/// # Errors
/// There is no such process, or it may not be looked at.
pub fn process_memory_of(pid: u32) -> io::Result<ProcessMemory> {
    Ok(memory(&std::fs::read_to_string(format!("/proc/{pid}/statm"))?))
}

/// What `statm` says (proc_pid_statm(5)), in bytes.
fn memory(text: &str) -> ProcessMemory {
    let mut pages = text.split_ascii_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
    let page = rustix::param::page_size() as u64;
    let mut next = || pages.next().unwrap_or(0);
    let (mapped, resident, shared) = (next(), next(), next());
    ProcessMemory {
        mapped: mapped * page,
        resident: resident * page,
        anonymous: resident.saturating_sub(shared) * page,
    }
}

/// Counts of new TCP connections: the kernel counts for all listeners of a host or container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpCounts {
    /// Connections that the kernel dropped because the accept queue of a listener was full.
    pub listen_overflows: u64,
    /// Connections that the kernel answered with a SYN cookie because too many were being opened.
    pub syn_cookies: u64,
}

/// Reads the counts from `/proc/net/netstat`; zeros where there is no `/proc`.
#[must_use]
pub fn tcp_counts() -> TcpCounts {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    TcpCounts {
        listen_overflows: netstat(&text, "ListenOverflows"),
        syn_cookies: netstat(&text, "SyncookiesSent"),
    }
}

/// A value of `netstat`: a line has the names, and the next line has the values.
fn netstat(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|pair| pair.0 == name).and_then(|pair| pair.1.parse().ok()).unwrap_or(0)
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

/// Processor time that all threads of a process have used so far.
///
/// # Errors
/// There is no such process.
pub fn process_cpu(pid: u32) -> io::Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid as i32))?;
    Ok(clock.now()?.into())
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives back to the kernel what was freed: glibc keeps whatever lies before something in use.
/// Allocations of other threads may wait for it, for some milliseconds at most.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time, on any thread; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How many cores this process may use.
#[must_use]
pub fn cores_allowed() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Monotonic time in microseconds: the same clock on every thread and in every process
/// of a host, of no meaning elsewhere.
#[must_use]
pub fn monotonic_us() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(us) = virtual_clock::now_us() {
        return us;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// Converts microseconds to the form that system calls take.
pub(crate) fn timespec(us: u64) -> Timespec {
    Timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1_000) as i64 }
}

/// Wall clock in nanoseconds since 1970, as the times of files are counted. A clock before that is
/// broken; it counts as 1970.
#[must_use]
pub fn unix_ns() -> i64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(ns) = virtual_clock::unix_ns() {
        return ns;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Wall clock in seconds since 1970. A clock before that is broken; it counts as 1970.
#[must_use]
pub fn unix_s() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(ns) = virtual_clock::unix_ns() {
        return ns as u64 / 1_000_000_000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_kernel_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 7 9\n\
                    IpExt: ListenOverflows\nIpExt: 1\n";
        assert_eq!(netstat(text, "ListenOverflows"), 9);
        assert_eq!(netstat(text, "SyncookiesSent"), 7);
        for (text, name) in [(text, "Absent"), ("", "SyncookiesSent"), ("TcpExt: A\n", "A")] {
            assert_eq!(netstat(text, name), 0);
        }
    }

    #[test]
    fn this_kernel_has_both_counts() {
        let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
        assert!(text.contains(" ListenOverflows ") && text.contains(" SyncookiesSent "));
    }
}
