//! Lines of the log that others could make a worker write again and again: one now and then.

/// When such a line was last written, and how often it has been due since.
#[derive(Debug, Default)]
pub struct LogThrottle {
    logged_ms: Option<u64>,
    since: u64,
}

impl LogThrottle {
    /// Whether a line is due. Counts what it is to report.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        self.since += 1;
        let is_due = self.logged_ms.is_none_or(|logged_ms| now_ms >= logged_ms + PAUSE_LOG_MS);
        if is_due {
            self.logged_ms = Some(now_ms);
        }
        is_due
    }

    /// How often a line was due since the last one, this one included.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.since)
    }
}

/// The pause between two lines in the log that clients can cause again and again: files or memory
/// run out, a client is refused.
pub const PAUSE_LOG_MS: u64 = 60_000;

#[cfg(feature = "sim")]
impl LogThrottle {
    /// How often a line has been due, and when one was written.
    pub fn state(&self) -> (u64, Option<u64>) {
        (self.since, self.logged_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_at_most_so_often() {
        let mut throttle = LogThrottle::default();
        assert!(throttle.is_due(0) && throttle.take() == 1);
        for now_ms in [1, 2, PAUSE_LOG_MS - 1] {
            assert!(!throttle.is_due(now_ms));
        }
        assert!(throttle.is_due(PAUSE_LOG_MS));
        assert_eq!(throttle.take(), 4);
    }
}
