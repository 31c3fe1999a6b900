//! A number that one thread counts and others look at.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number with one writer, so that counting is a plain load and store of the writer's own
/// cache line. With two writers it would lose counts.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `n` more.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.value().wrapping_add(n), Ordering::Relaxed);
    }

    /// Counts `n` less.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.value().wrapping_sub(n), Ordering::Relaxed);
    }

    /// Sets it: for what is measured, not counted.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// What was counted so far, as any thread may ask.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
