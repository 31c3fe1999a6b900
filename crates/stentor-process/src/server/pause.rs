//! The pause of an upgrade, in which no process serves: its budget, and what the time goes to.
//!
//! The outgoing process measures the pause on its own clock, from the moment at which it tells its
//! workers to freeze. If the budget is exceeded, it tries to take the token, without which the
//! incoming process serves no connection, and continues. The workers count the bytes that they
//! pack. Bytes above the bound are not sent, but counted, so that the reason has their number.

use super::handover::Gate;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_config::Limits;
use stentor_io::monotonic_us;

/// The workers that freeze share this.
#[derive(Debug)]
pub(super) struct Freeze {
    /// Workers wait here until all of them are frozen.
    pub(super) gate: Gate,
    pub(super) budget: PauseBudget,
}

/// The bounds of a pause, and its cost so far.
#[derive(Debug)]
pub(super) struct PauseBudget {
    since_us: u64,
    max_us: u64,
    bytes_max: u64,
    /// All workers together have packed so many.
    bytes: AtomicU64,
}

impl PauseBudget {
    /// The budget of a pause that begins now.
    pub(super) fn begin(limits: &Limits, since_us: u64) -> PauseBudget {
        PauseBudget {
            since_us,
            max_us: limits.upgrade_pause_max_ms * 1_000,
            bytes_max: limits.upgrade_bytes_max as u64,
            bytes: AtomicU64::new(0),
        }
    }

    /// When the pause is over, on the clock of [`monotonic_us`].
    pub(super) fn ends_us(&self) -> u64 {
        self.since_us + self.max_us
    }

    /// A worker has packed a part of so many bytes. Returns whether the part is to be sent.
    ///
    /// # Errors
    /// The time is over.
    pub(super) fn add(&self, bytes: usize, now_us: u64) -> io::Result<bool> {
        if now_us >= self.ends_us() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it is not packed yet"));
        }
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(self.has_space())
    }

    /// Whether what was packed so far is within the bound.
    pub(super) fn has_space(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) <= self.bytes_max
    }

    /// Describes which bound is exceeded and by how much, if one is. `reason` is what failed.
    pub(super) fn excess(&self, reason: &str, now_us: u64) -> Option<String> {
        let is_late = now_us >= self.ends_us();
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes > self.bytes_max {
            let least = if is_late { "at least " } else { "" };
            return Some(format!(
                "{least}{} had to be handed over in the pause, {} more than upgrade.bytes_max; \
                 raise it, or {FEWER}",
                kib(bytes),
                kib(bytes - self.bytes_max),
            ));
        }
        is_late.then(|| {
            format!(
                "{reason}: no request was served for {} ms, {} ms more than upgrade.pause_max, \
                 and {} were packed; raise it, or {FEWER}",
                (now_us - self.since_us).div_ceil(1_000),
                (now_us - self.ends_us()).div_ceil(1_000),
                kib(bytes),
            )
        })
    }
}

const FEWER: &str = "upgrade when fewer connections are open";

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1 << 10))
}

/// What the time goes to in which nobody is served: told at the end, for telling takes time too.
#[derive(Debug)]
pub(super) struct Phases {
    who: &'static str,
    since_us: u64,
    ends: Vec<(&'static str, u64)>,
}

impl Phases {
    pub(super) fn begin(who: &'static str) -> Phases {
        Phases { who, since_us: monotonic_us(), ends: Vec::with_capacity(8) }
    }

    /// Since when nobody is served, on the clock of [`monotonic_us`].
    pub(super) fn since_us(&self) -> u64 {
        self.since_us
    }

    /// A phase has come to its end.
    pub(super) fn end(&mut self, phase: &'static str) {
        self.ends.push((phase, monotonic_us()));
    }

    /// Logs how long each of them took.
    pub(super) fn tell(&self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let mut before_us = self.since_us;
        let mut told = String::new();
        for &(phase, end_us) in &self.ends {
            let took_us = end_us.saturating_sub(std::mem::replace(&mut before_us, end_us));
            told.push_str(&format!(" {phase} {took_us} us;"));
        }
        tracing::debug!("hand-over: {}:{}", self.who, told.trim_end_matches(';'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> PauseBudget {
        let (upgrade_pause_max_ms, upgrade_bytes_max) = (250, 4 << 10);
        let limits = Limits { upgrade_pause_max_ms, upgrade_bytes_max, ..Limits::default() };
        PauseBudget::begin(&limits, 1_000_000)
    }

    #[test]
    fn a_pause_ends_when_its_time_is_over() {
        let budget = budget();
        assert_eq!(budget.ends_us(), 1_250_000);
        assert!(budget.add(100, 1_249_999).unwrap());
        assert_eq!(budget.excess("it is silent", 1_249_999), None);
        assert!(budget.add(1, 1_250_000).is_err());
        let reason = budget.excess("it is silent", 1_261_000).unwrap();
        let expected = "it is silent: no request was served for 261 ms, 11 ms more than \
                        upgrade.pause_max, and 1 KiB were packed";
        assert!(reason.starts_with(expected), "{reason}");
    }

    /// The workers pack at the same time, and what they pack is one sum.
    #[test]
    fn bytes_above_the_bound_are_only_counted() {
        let budget = budget();
        let sent = [3 << 10, 1 << 10, 1, 2 << 10].map(|bytes| budget.add(bytes, 0).unwrap());
        assert_eq!(sent, [true, true, false, false]);
        let reason = budget.excess("", 1_000_000).unwrap();
        assert!(reason.starts_with("7 KiB had") && reason.contains(" 3 KiB more"), "{reason}");
        assert!(budget.excess("", 1_250_000).unwrap().starts_with("at least 7 KiB"));
    }
}
