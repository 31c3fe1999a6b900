//! How long things took, counted by one thread while others look.

use crate::Counter;

/// How long something took, counted by how long: with one writer.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Counts one that took so long.
    pub fn observe(&self, us: u64) {
        self.buckets[BOUNDS_US.partition_point(|&bound| bound < us)].add(1);
        self.sum_us.add(us);
    }

    /// Its counters: those of the buckets, and the sum in microseconds.
    pub fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.buckets.iter().chain([&self.sum_us])
    }
}

/// The sum of histograms at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// How many took at most each bound and more than the one before; the last, more than any.
    pub buckets: [u64; BOUNDS_US.len() + 1],
    /// How long all of them took together, in microseconds.
    pub sum_us: u64,
}

impl Times {
    /// One histogram as it is now.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Times {
        let mut times = Times::default();
        times.add(histogram);
        times
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what another histogram has counted.
    pub fn add(&mut self, histogram: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total = total.wrapping_add(bucket.value());
        }
        self.sum_us = self.sum_us.wrapping_add(histogram.sum_us.value());
    }
}

/// The bounds of a histogram's buckets, in microseconds: what a request takes at an idle server, to
/// ten seconds.
#[rustfmt::skip]
pub const BOUNDS_US: [u64; 14] = [
    25, 50, 100, 250, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000,
    10_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_and_summed_in_microseconds() {
        let histogram = Histogram::default();
        [25, 26, 10_000_001].into_iter().for_each(|us| histogram.observe(us));
        let mut times = Times::of(&histogram);
        times.add(&histogram);
        let last = BOUNDS_US.len();
        assert_eq!((times.buckets[0], times.buckets[1], times.buckets[last]), (2, 2, 2));
        assert_eq!((times.count(), times.sum_us), (6, 2 * 10_000_052));
    }
}
