//! What this machine says of itself and of the server, if that runs here: memory, processor time.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use stentor_io::{cores_allowed, meminfo_bytes, process_cpu, process_memory, process_memory_of};

use crate::report::{Machine, Memory};

/// What is watched besides the connections.
#[derive(Debug)]
pub(crate) struct Gauge {
    pid: Option<u32>,
}

/// Memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryNow {
    process: Option<u64>,
    own: u64,
    slabs: u64,
    available: u64,
}

impl Gauge {
    /// A gauge of this machine and, if it is named, of the server's process.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn new(pid: Option<u32>) -> io::Result<Gauge> {
        if let Some(pid) = pid {
            process_memory_of(pid)?;
            process_cpu(pid)?;
        }
        Ok(Gauge { pid })
    }

    /// Processor time of the server's process so far; None without one, or if it is gone.
    pub(crate) fn processor(&self) -> Option<Duration> {
        process_cpu(self.pid?).ok()
    }

    /// Resident memory of the server's process.
    pub(crate) fn process_bytes(&self) -> Option<u64> {
        process_memory_of(self.pid?).ok().map(|memory| memory.resident)
    }

    pub(crate) fn memory(&self) -> MemoryNow {
        let bytes = meminfo_bytes(Path::new("/"));
        MemoryNow {
            process: self.process_bytes(),
            own: process_memory().resident,
            slabs: bytes("Slab").unwrap_or(0),
            available: bytes("MemAvailable").unwrap_or(0),
        }
    }
}

impl MemoryNow {
    /// What so many connections cost since `before`.
    pub(crate) fn since(&self, before: &MemoryNow, connections: u64, both_ends: bool) -> Memory {
        let grown = |now: u64, then: u64| now as i64 - then as i64;
        Memory {
            connections,
            process_bytes: self.process.zip(before.process).map(|(now, then)| grown(now, then)),
            process_resident_bytes: self.process,
            own_bytes: grown(self.own, before.own),
            kernel_bytes: grown(self.slabs, before.slabs),
            both_ends,
            machine_bytes: grown(before.available, self.available),
        }
    }
}

/// This machine.
pub(crate) fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim_end() == "model name");
    Machine {
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim_end()),
        processor: model.map(|(_, value)| value.trim().to_owned()).unwrap_or_default(),
        cores: cores_allowed(),
        memory_bytes: meminfo_bytes(Path::new("/"))("MemTotal").unwrap_or(0),
    }
}

/// How many ports a connection from one address may choose among (ip-sysctl,
/// `ip_local_port_range`).
pub(crate) fn ports() -> u64 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let bounds: Vec<u64> = range.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
    match bounds[..] {
        [first, last] if first <= last => last - first + 1,
        _ => PORTS_DEFAULT,
    }
}

/// What kernels come with: 32768 to 60999.
const PORTS_DEFAULT: u64 = 28_232;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Gauge::new(Some(u32::MAX / 2)).is_err());
        let own = Gauge::new(Some(std::process::id())).unwrap();
        assert!(own.processor().is_some() && own.process_bytes() > Some(0));
    }
}
