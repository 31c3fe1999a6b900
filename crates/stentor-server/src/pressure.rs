//! How short each kind of memory is, and how full it is.
//!
//! The control group and the host limit the memory of this process; `tcp_mem` limits that of the
//! kernel's sockets. One kind may be short while another is not, so each has a level of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use stentor_config::Settings;
use stentor_io::{Counter, MemoryLoad, MemoryOf};

/// How short memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    #[default]
    None,
    /// The first mark was reached.
    High,
    /// The second was.
    Critical,
}

impl Pressure {
    fn of(level: u64) -> Pressure {
        match level {
            0 => Pressure::None,
            1 => Pressure::High,
            _ => Pressure::Critical,
        }
    }

    /// For programs.
    pub(crate) fn name(self) -> &'static str {
        ["none", "high", "critical"][self as usize]
    }

    /// How full it is, in thousandths, and at what marks, as percentages, this is too full. A mark
    /// that was passed stays passed until memory is some way below it.
    pub(crate) fn at(self, per_mille: u64, marks: Marks) -> Pressure {
        let is_beyond = |mark: u64, level: Pressure| {
            let slack = if self >= level { SLACK_PER_MILLE } else { 0 };
            mark > 0 && per_mille + slack >= mark * 10
        };
        if is_beyond(marks.critical, Pressure::Critical) {
            Pressure::Critical
        } else if is_beyond(marks.high, Pressure::High) {
            Pressure::High
        } else {
            Pressure::None
        }
    }
}

/// When memory is short, as percentages; 0: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    pub(crate) high: u64,
    pub(crate) critical: u64,
}

impl Marks {
    /// Bytes to be freed until the load is well below the critical mark.
    fn tcp_excess_bytes(self, load: MemoryLoad) -> u64 {
        let per_mille = (self.critical * 10).saturating_sub(2 * SLACK_PER_MILLE);
        let target = u128::from(load.limit) * u128::from(per_mille) / 1_000;
        load.used.saturating_sub(target as u64).max(1)
    }
}

/// How short each kind of memory is. Each has its own remedy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressures {
    /// The memory of the control group or of the host, whichever is shorter. Rendered messages and
    /// history are trimmed, and readers may hold less.
    pub process: Pressure,
    /// The kernel's memory for TCP sockets. The connections that hold the most of it are evicted.
    pub tcp: Pressure,
    /// Bytes of TCP memory that each worker is to free. 0 unless that memory is critically short.
    pub tcp_excess_bytes: usize,
}

/// One kind of memory has another level than at the last poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LevelChange {
    pub(crate) load: MemoryLoad,
    pub(crate) before: Pressure,
    pub(crate) now: Pressure,
}

/// The pressure on memory, as all threads read it. One thread writes it.
#[derive(Debug, Default)]
pub struct MemoryState {
    high: AtomicU64,
    critical: AtomicU64,
    /// The level of each kind.
    levels: [Counter; LOADS.len()],
    /// How full each is, in thousandths; one more, so that 0 means that it has no limit.
    loads: [Counter; LOADS.len()],
    /// Bytes of TCP memory to be freed.
    tcp_excess_bytes: Counter,
    /// How often memory became short.
    pub times_high: Counter,
    /// How often memory became critical.
    pub times_critical: Counter,
}

/// The kinds of memory that may be full, by name.
pub(crate) const LOADS: [(MemoryOf, &str); 3] =
    [(MemoryOf::Cgroup, "cgroup"), (MemoryOf::Host, "host"), (MemoryOf::Tcp, "tcp")];

impl MemoryState {
    /// Goes by these marks from now on.
    pub fn configure(&self, settings: &Settings) {
        self.high.store(settings.limits.memory_high, Ordering::Relaxed);
        self.critical.store(settings.limits.memory_critical, Ordering::Relaxed);
    }

    /// The level of the kind that is the shortest.
    pub(crate) fn pressure(&self) -> Pressure {
        let Pressures { process, tcp, .. } = self.pressures();
        process.max(tcp)
    }

    /// The level of each kind.
    pub(crate) fn pressures(&self) -> Pressures {
        let [cgroup, host, tcp] = self.levels.each_ref().map(|level| Pressure::of(level.value()));
        let tcp_excess_bytes = self.tcp_excess_bytes.value() as usize;
        Pressures { process: cgroup.max(host), tcp, tcp_excess_bytes }
    }

    /// How full everything is that has a limit, in thousandths.
    pub(crate) fn loads(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = LOADS.into_iter().zip(&self.loads);
        named.filter_map(|((_, name), load)| Some((name, load.value().checked_sub(1)?)))
    }

    /// Sets the level of each kind. Returns the kinds whose level has changed.
    pub(crate) fn note(&self, loads: &[MemoryLoad]) -> Vec<LevelChange> {
        let marks = Marks {
            high: self.high.load(Ordering::Relaxed),
            critical: self.critical.load(Ordering::Relaxed),
        };
        let mut changes = Vec::new();
        for (index, (of, _)) in LOADS.into_iter().enumerate() {
            let load = loads.iter().find(|load| load.of == of).copied();
            self.loads[index].set(load.map_or(0, |load| load.per_mille() + 1));
            let load = load.unwrap_or(MemoryLoad { of, used: 0, limit: 0 });
            let before = Pressure::of(self.levels[index].value());
            let now = before.at(load.per_mille(), marks);
            self.levels[index].set(now as u64);
            if of == MemoryOf::Tcp {
                let is_critical = now == Pressure::Critical;
                let excess = if is_critical { marks.tcp_excess_bytes(load) } else { 0 };
                self.tcp_excess_bytes.set(excess);
            }
            self.times_high.add(u64::from(before < Pressure::High && now >= Pressure::High));
            self.times_critical.add(u64::from(before != now && now == Pressure::Critical));
            if now != before {
                changes.push(LevelChange { load, before, now });
            }
        }
        changes
    }
}

/// How far below a mark it must come until that is over.
const SLACK_PER_MILLE: u64 = 20;
