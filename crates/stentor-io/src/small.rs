//! Limits that simulations reach: some are so large in a server that no test would ever see them.

/// Whether the limits that ask for it are small. A server's never are: only a simulation makes them
/// so, in its own process.
#[inline]
#[must_use]
pub fn limits_are_small() -> bool {
    #[cfg(any(test, feature = "sim"))]
    return ARE_SMALL.load(Ordering::Relaxed);
    #[cfg(not(any(test, feature = "sim")))]
    false
}

/// Makes them small in this process, from now on.
#[cfg(any(test, feature = "sim"))]
pub fn make_limits_small() {
    ARE_SMALL.store(true, Ordering::Relaxed);
}

#[cfg(any(test, feature = "sim"))]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(any(test, feature = "sim"))]
static ARE_SMALL: AtomicBool = AtomicBool::new(false);
