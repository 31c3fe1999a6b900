//! What can be known of a run while it is under way, and how it is told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who looks on. Both may be called from any thread.
pub trait Watch: Sync {
    /// Called a few times a second.
    fn progress(&self, progress: &Progress);

    /// Whether the run is to end now, with what was measured so far.
    fn stopped(&self) -> bool;
}

/// A run at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// What is being done: "opening", "publishing", …
    pub phase: String,
    /// Connections open.
    pub connections: u64,
    /// Connections asked for.
    pub connections_wanted: u64,
    /// Answers or messages per second, of late.
    pub per_second: f64,
    /// What `per_second` counts: "requests", "messages" or "connections".
    pub unit: &'static str,
    /// Errors of every kind so far.
    pub errors: u64,
    /// Time left, where it is known.
    pub left: Option<Duration>,
}

/// Nobody looks on, until `stop` says that it is enough.
#[derive(Debug, Default)]
pub struct Unwatched {
    /// Ends the run when set.
    pub stop: AtomicBool,
}

impl Watch for Unwatched {
    fn progress(&self, _progress: &Progress) {}

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
