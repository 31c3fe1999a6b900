//! Virtual time for simulations of threads that block. On a thread with a [`VirtualClock`] only a
//! wait moves the clocks of this crate, and no wait takes real time.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

/// Virtual time on the thread that made it, until it is dropped.
#[derive(Debug)]
pub struct VirtualClock(PhantomData<*const ()>);

impl VirtualClock {
    /// Starts at this time of [`crate::monotonic_us`].
    ///
    /// # Panics
    /// The thread has one already.
    #[must_use]
    pub fn start(us: u64) -> VirtualClock {
        assert_eq!(NOW_US.replace(Some(us)), None, "a thread has one virtual clock");
        VirtualClock(PhantomData)
    }

    /// Moves the virtual time of this thread. Returns whether the thread has any.
    pub fn pass(duration: Duration) -> bool {
        let later = NOW_US.get().map(|us| us + duration.as_micros() as u64);
        NOW_US.set(later);
        later.is_some()
    }
}

impl Drop for VirtualClock {
    fn drop(&mut self) {
        NOW_US.set(None);
    }
}

/// Returns the virtual time of this thread.
pub(crate) fn now_us() -> Option<u64> {
    NOW_US.get()
}

/// Wall clock in nanoseconds since 1970, if time is virtual.
pub(crate) fn unix_ns() -> Option<i64> {
    NOW_US.get().map(|us| UNIX_NS + us as i64 * 1_000)
}

thread_local! {
    static NOW_US: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The wall clock at time 0: in November 2023.
const UNIX_NS: i64 = 1_700_000_000_000_000_000;
