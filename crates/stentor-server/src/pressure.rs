//! How short memory is, and how full what may be full.

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

/// The pressure on memory, as all threads read it. One thread writes it.
#[derive(Debug, Default)]
pub struct MemoryState {
    high: AtomicU64,
    critical: AtomicU64,
    pressure: Counter,
    /// How full each is, in thousandths; one more, so that 0 means that it has no limit.
    loads: [Counter; LOADS.len()],
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

    pub(crate) fn pressure(&self) -> Pressure {
        match self.pressure.value() {
            0 => Pressure::None,
            1 => Pressure::High,
            _ => Pressure::Critical,
        }
    }

    /// How full everything is that has a limit, in thousandths.
    pub(crate) fn loads(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = LOADS.into_iter().zip(&self.loads);
        named.filter_map(|((_, name), load)| Some((name, load.value().checked_sub(1)?)))
    }

    /// Takes note of how full everything is. Returns what has come of it, if that is another level,
    /// and what is the fullest.
    pub(crate) fn note(&self, loads: &[MemoryLoad]) -> Option<(Pressure, MemoryLoad)> {
        for ((of, _), counter) in LOADS.into_iter().zip(&self.loads) {
            let load = loads.iter().find(|load| load.of == of);
            counter.set(load.map_or(0, |load| load.per_mille() + 1));
        }
        let marks = Marks {
            high: self.high.load(Ordering::Relaxed),
            critical: self.critical.load(Ordering::Relaxed),
        };
        let fullest = *loads.iter().max_by_key(|load| load.per_mille())?;
        let before = self.pressure();
        let now = before.at(fullest.per_mille(), marks);
        if now == before {
            return None;
        }
        self.pressure.set(now as u64);
        self.times_high.add(u64::from(before < Pressure::High && now >= Pressure::High));
        self.times_critical.add(u64::from(now == Pressure::Critical));
        Some((now, fullest))
    }
}

/// How far below a mark it must come until that is over.
const SLACK_PER_MILLE: u64 = 20;
