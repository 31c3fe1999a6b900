//! An epoll instance, which a test can have fail.

use crate::process::timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};
#[cfg(test)]
use std::cell::Cell;

/// The descriptors that the kernel reports events of, each with a number.
pub(super) struct EpollSet {
    fd: OwnedFd,
    /// The number of registrations that fail next, as if the kernel had no memory.
    #[cfg(test)]
    pub(super) failures: Cell<u32>,
}

impl EpollSet {
    pub(super) fn new() -> Result<EpollSet> {
        epoll::create(CreateFlags::CLOEXEC).map(EpollSet::from)
    }

    pub(super) fn add(&self, fd: impl AsFd, number: u64, flags: EventFlags) -> Result<()> {
        #[cfg(test)]
        if let Some(left) = self.failures.get().checked_sub(1) {
            self.failures.set(left);
            return Err(Errno::NOMEM);
        }
        epoll::add(&self.fd, fd, EventData::new_u64(number), flags)
    }

    /// Changes what is reported of a descriptor. The kernel reports again what waits
    /// already. A descriptor that the set does not have is added.
    pub(super) fn modify(&self, fd: BorrowedFd<'_>, number: u64, flags: EventFlags) -> Result<()> {
        match epoll::modify(&self.fd, fd, EventData::new_u64(number), flags) {
            Err(Errno::NOENT) => self.add(fd, number, flags),
            modified => modified,
        }
    }

    /// Reports nothing more of a descriptor. It may not be in the set.
    pub(super) fn delete(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.fd, fd);
    }

    /// Waits for events, which it appends as far as there is room.
    pub(super) fn wait(&self, events: &mut Vec<Event>, timeout_ms: Option<u64>) -> Result<()> {
        let timeout = timeout_ms.map(|ms| timespec(ms * 1_000));
        match epoll::wait(&self.fd, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl From<OwnedFd> for EpollSet {
    fn from(fd: OwnedFd) -> EpollSet {
        EpollSet {
            fd,
            #[cfg(test)]
            failures: Cell::new(0),
        }
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
