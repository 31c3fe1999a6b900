//! Waking a worker that sleeps in the kernel, from any thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// An eventfd with a flag in front of it, so that a worker that is awake, or has been woken
/// already, costs the waker no system call.
///
/// Made before any worker takes a file table of its own: every table must hold it.
#[derive(Debug)]
pub struct Waker {
    eventfd: OwnedFd,
    /// True from a `wake` until the worker takes notice.
    pending: AtomicBool,
}

impl Waker {
    /// A waker for one worker.
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn new() -> io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { eventfd, pending: AtomicBool::new(false) })
    }

    /// Makes the worker's next (or current) wait end at once. What was put in its mailbox before
    /// this call is seen after it.
    pub fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // The counter would need 2^64 wake-ups to overflow.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The worker's side: forget the wake-up before looking into the mailbox. Returns whether
    /// there was one. A worker need not read the eventfd itself: it is watched edge-triggered, and
    /// every write is an edge.
    pub fn take(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::AcqRel)
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
