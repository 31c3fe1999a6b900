//! Waking a thread that sleeps in the kernel, from any thread.

use crate::atomic::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// An eventfd with a flag in front of it, so that a worker that is awake, or has been woken
/// already, costs the waker no system call.
///
/// Made before any worker takes a file table of its own: every table must hold it.
#[derive(Debug)]
pub struct Waker {
    eventfd: OwnedFd,
    flag: WakeFlag,
}

/// True from a wake-up until the worker takes it.
#[derive(Debug, Default)]
struct WakeFlag(AtomicBool);

impl WakeFlag {
    /// Returns whether the worker must be woken: no wake-up is on its way.
    fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }
}

impl Waker {
    /// A waker for one worker.
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn new() -> io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { eventfd, flag: WakeFlag::default() })
    }

    /// Makes the worker's next (or current) wait end at once. What was put in its mailbox before
    /// this call is seen after it.
    pub fn wake(&self) {
        if self.flag.raise() {
            // The counter would need 2^64 wake-ups to overflow.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The worker's side: forget the wake-up before looking into the mailbox. Returns whether
    /// there was one. A worker need not read the eventfd itself: it is watched edge-triggered, and
    /// every write is an edge.
    pub fn take(&self) -> bool {
        self.flag.take()
    }

    /// Likewise, of a waker that is watched level-triggered.
    pub(crate) fn clear(&self) {
        // First: with a flag that was taken, another thread may write again.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        self.take();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::atomic::AtomicU64;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// What a worker and those who wake it share.
    #[derive(Default)]
    struct World {
        mail: Mutex<Vec<u8>>,
        flag: WakeFlag,
        /// The writes to the eventfd. Each is an edge.
        edges: AtomicU64,
    }

    impl World {
        fn send(&self, letter: u8) {
            self.mail.lock().unwrap().push(letter);
            if self.flag.raise() {
                self.edges.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// A worker waits for an edge, takes the wake-up and its mail, until it has two letters.
    fn serve(takes_mail_first: bool) {
        let mut model = loom::model::Builder::new();
        // A worker that sleeps for ever is found when it has looked so often.
        model.max_branches = 200;
        model.check(move || {
            let world = Arc::new(World::default());
            let senders = [1, 2].map(|letter| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.send(letter))
            });
            let (mut seen, mut letters) = (0, 0);
            while letters < 2 {
                while world.edges.load(Ordering::Acquire) == seen {
                    thread::yield_now();
                }
                seen = world.edges.load(Ordering::Acquire);
                let mut take_mail = || letters += world.mail.lock().unwrap().drain(..).count();
                if takes_mail_first {
                    take_mail();
                    world.flag.take();
                } else {
                    world.flag.take();
                    take_mail();
                }
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
    }

    #[test]
    fn no_wake_up_is_lost() {
        serve(false);
    }

    #[test]
    #[should_panic]
    fn a_worker_that_takes_mail_first_sleeps() {
        serve(true);
    }
}
