//! Panics on purpose: the places at which the simulator makes a worker panic.
//!
//! A panic costs the connection that caused it and no other, so it must not leave anything half
//! done that another connection uses. The simulator's network is such a place too, at each call.

/// A place at which a worker may panic. Outside of tests it is empty.
#[inline(always)]
pub(crate) fn may_panic() {
    #[cfg(any(test, feature = "fuzz"))]
    planned::pass();
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod planned {
    use std::any::Any;
    use std::cell::Cell;
    use std::panic::resume_unwind;

    thread_local! {
        /// How many places this thread still passes before it panics.
        static PLACES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// The payload of a planned panic.
    struct Planned;

    /// The thread panics at one of the next places.
    pub(crate) fn plan(places: usize) {
        PLACES.set(Some(places));
    }

    /// It does not, if it has not yet.
    pub(crate) fn cancel() {
        PLACES.set(None);
    }

    /// Whether a panic was planned.
    pub(crate) fn is_planned(payload: &(dyn Any + Send)) -> bool {
        payload.is::<Planned>()
    }

    pub(super) fn pass() {
        match PLACES.get() {
            None => {}
            Some(0) => {
                PLACES.set(None);
                // The hook that prints panics is not called.
                resume_unwind(Box::new(Planned));
            }
            Some(places) => PLACES.set(Some(places - 1)),
        }
    }
}
