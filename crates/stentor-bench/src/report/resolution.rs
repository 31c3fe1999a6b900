//! What a measurement can resolve: a figure that is lost in what else goes on is not shown.

use super::{Memory, Processor};

/// What a connection costs, in bytes, where the growth is large enough to be told from what else
/// goes on. None: it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MemoryEach {
    pub(crate) process: Option<f64>,
    pub(crate) kernel: Option<f64>,
    pub(crate) own: Option<f64>,
    pub(crate) machine: Option<f64>,
}

impl Memory {
    /// What each connection costs.
    pub(crate) fn each(&self) -> MemoryEach {
        let each = |grown: i64, resolution: i64| {
            (grown >= resolution && self.connections >= CONNECTIONS_MIN)
                .then(|| grown as f64 / self.connections as f64)
        };
        MemoryEach {
            process: self.process_bytes.and_then(|grown| each(grown, PROCESS_RESOLUTION_BYTES)),
            kernel: each(self.kernel_bytes, KERNEL_RESOLUTION_BYTES),
            own: each(self.own_bytes, PROCESS_RESOLUTION_BYTES),
            machine: each(self.machine_bytes, MACHINE_RESOLUTION_BYTES),
        }
    }
}

/// With fewer connections, what is there once, such as a thread's stack, is most of the growth.
const CONNECTIONS_MIN: u64 = 1_000;

/// A process takes and returns so much by itself.
const PROCESS_RESOLUTION_BYTES: i64 = 256 << 10;
/// Slabs are those of all processes.
const KERNEL_RESOLUTION_BYTES: i64 = 2 << 20;
/// The memory of a machine is that of all processes and of the page cache.
const MACHINE_RESOLUTION_BYTES: i64 = 16 << 20;

impl Processor {
    /// For each request, delivery or connection, in microseconds. None: the load of others in the
    /// same time hides it.
    pub(crate) fn each_us(&self) -> Option<f64> {
        let resolution_seconds = self.baseline_seconds * BASELINE_NOISE;
        (self.busy_seconds > 0.0 && self.busy_seconds >= resolution_seconds)
            .then_some(self.busy_us_each)
    }
}

/// The load of bystanders differs by so much from one second to the next.
const BASELINE_NOISE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_few_connections_is_not_told() {
        let noise = Memory {
            connections: 10,
            process_bytes: Some(4_096),
            process_resident_bytes: Some(9 << 20),
            own_bytes: 0,
            kernel_bytes: -254_000,
            both_ends: true,
            machine_bytes: -2_690_000,
        };
        assert_eq!(noise.each(), MemoryEach::default());
        let threads = Memory { connections: 7, own_bytes: 1_340_000, ..noise.clone() };
        assert_eq!(threads.each(), MemoryEach::default());
        let known = Memory {
            connections: 10_000,
            process_bytes: Some(770_000),
            own_bytes: 1_400_000,
            kernel_bytes: 70_600_000,
            machine_bytes: 67_800_000,
            ..noise
        };
        let each = known.each();
        assert_eq!((each.process, each.own), (Some(77.0), Some(140.0)));
        assert_eq!((each.kernel, each.machine), (Some(7_060.0), Some(6_780.0)));
    }

    #[test]
    fn processor_time_that_bystanders_hide_is_not_told() {
        let processor = |busy_seconds, baseline_seconds| Processor {
            busy_seconds,
            baseline_seconds,
            busy_us_each: 15.8,
            each: "connection",
            idle_share: None,
        };
        assert_eq!(processor(0.3, 0.0).each_us(), Some(15.8));
        assert_eq!(processor(0.3, 2.9).each_us(), Some(15.8));
        assert_eq!(processor(0.3, 3.1).each_us(), None);
        assert_eq!(processor(0.0, 0.0).each_us(), None);
    }
}
