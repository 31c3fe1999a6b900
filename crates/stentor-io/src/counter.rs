//! A number that one thread counts and others look at.

use crate::atomic::{AtomicU64, Ordering};

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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn a_reader_sees_counts_that_only_grow() {
        loom::model(|| {
            let counter = Arc::new(Counter::default());
            let writer = {
                let counter = Arc::clone(&counter);
                thread::spawn(move || (0..3).for_each(|_| counter.add(1)))
            };
            let (first, second) = (counter.value(), counter.value());
            assert!(first <= second && second <= 3, "{first}, {second}");
            writer.join().unwrap();
            assert_eq!(counter.value(), 3);
        });
    }
}
