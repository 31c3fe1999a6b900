//! A mutex outlives a panic of the thread that held it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a thread has panicked while it held it. That costs the work of that
/// thread, and no other waits for ever: what a mutex guards here is whole after each assignment.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
