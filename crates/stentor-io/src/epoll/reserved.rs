//! File descriptors that connections do not get.
//!
//! A connection keeps its descriptor when it goes over to another process, so both processes have
//! all descriptors below a certain one taken for something else.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::AsRawFd;

/// What keeps the descriptors below `below` taken.
#[derive(Default)]
pub(super) struct ReservedDescriptors {
    pub(super) held: Vec<OwnedFd>,
    pub(super) below: u32,
}

impl ReservedDescriptors {
    pub(super) fn below(&self) -> u32 {
        self.below
    }

    /// Takes all descriptors below this one that are free. If there are too few, none is reserved.
    pub(super) fn reserve(&mut self, below: u32) -> rustix::io::Result<()> {
        self.below = below;
        let filled = self.fill();
        if filled.is_err() {
            self.release();
        }
        filled
    }

    /// Closes them: there are too few descriptors, so that connections need these.
    fn release(&mut self) {
        self.held.clear();
        self.below = 0;
    }

    fn fill(&mut self) -> rustix::io::Result<()> {
        let mut next = nothing()?;
        while (next.as_raw_fd() as u32) < self.below {
            let after = fcntl_dupfd_cloexec(&next, 0)?;
            self.held.push(std::mem::replace(&mut next, after));
        }
        Ok(())
    }

    /// Gives a connection another descriptor, if it has one that is to be reserved. If no other is
    /// left, none is reserved any more: then no other process can take over.
    pub(super) fn move_out(&mut self, accepted: OwnedFd) -> OwnedFd {
        if accepted.as_raw_fd() as u32 >= self.below {
            return accepted;
        }
        let Ok(moved) = fcntl_dupfd_cloexec(&accepted, self.below as i32) else {
            self.release();
            return accepted;
        };
        drop(accepted);
        // Without it, the next connection is moved as well.
        let _ = self.fill();
        moved
    }
}

/// Something to open that is nothing.
pub(super) fn nothing() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
