//! The parts of a worker's state.
//!
//! They lie in the worker's [`Context`] itself, so a part costs no pointer. A method that needs one
//! part is a method of that part, and an exchange or a delivery borrows the parts that it needs.
//!
//! [`Context`]: crate::context::Context

/// The times at which the current loop iteration read the clocks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Clocks {
    pub(crate) now_ms: u64,
    pub(crate) unix_s: u64,
}
