//! How large the files, the buffer and the reserve of a store are.

/// How large things are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The length of a segment's file.
    pub segment_bytes: u64,
    /// What is not on the disk yet may be so much, and one entry.
    pub buffer_bytes: usize,
    /// A snapshot is due when the files of the log behind the last one take more than this, and
    /// than twice that snapshot.
    pub log_bytes_min: u64,
    /// So many numbers are reserved ahead.
    pub reserve: u64,
}

impl Settings {
    /// The same for a volume of this size, of which the log takes a quarter at most.
    #[must_use]
    pub fn fit(self, volume_bytes: u64) -> Settings {
        let log_bytes_min = self.log_bytes_min.min(volume_bytes / 4);
        let segment_bytes = self.segment_bytes.min(log_bytes_min / 8).max(SEGMENT_BYTES_MIN);
        Settings { log_bytes_min, segment_bytes: segment_bytes.min(self.segment_bytes), ..self }
    }
}

/// Below this, a segment is soon full.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

impl Default for Settings {
    /// Segments of 64 MiB, a buffer of 8 MiB, snapshots after 1 GiB, a million numbers.
    fn default() -> Settings {
        Settings {
            segment_bytes: 64 << 20,
            buffer_bytes: 8 << 20,
            log_bytes_min: 1 << 30,
            reserve: 1 << 20,
        }
    }
}
