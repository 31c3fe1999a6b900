//! A sequencer that commits late, out of a queue, leaves holes in the numbers, and fails at random:
//! what a store or a broker does to the server, and more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use stentor_hub::{Entry, Place};
use stentor_io::{Rng, mark};
use stentor_order::{Applier, Commit, CommitError, ReturnAddress, Sequencer};

/// The entries that wait for their places.
pub(crate) struct Late {
    queue: Mutex<VecDeque<(Entry<'static>, ReturnAddress)>>,
    fails_percent: u8,
}

impl Late {
    pub(crate) fn new(fails_percent: u8) -> Arc<Late> {
        Arc::new(Late { queue: Mutex::default(), fails_percent })
    }

    /// How many changes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().unwrap().len()
    }

    /// Perhaps commits some of what waits. Returns whether anything did.
    pub(crate) fn step(&self, to: &Applier, rng: &mut Rng) -> bool {
        let waiting = self.waiting();
        if rng.percent(30) {
            (0..rng.below(waiting + 1)).for_each(|_| self.commit_one(to, rng));
        }
        waiting > 0
    }

    /// Commits what has waited for the longest, or fails to.
    pub(crate) fn commit_one(&self, to: &Applier, rng: &mut Rng) {
        let Some((entry, back)) = self.queue.lock().unwrap().pop_front() else { return };
        if rng.percent(self.fails_percent) {
            mark("commit-fails");
            return back.tell(Err(CommitError::Failed));
        }
        // Far ahead: others take the next places meanwhile.
        let place = match rng.percent(20) {
            true => Place::At(to.hub().seq() + AHEAD),
            false => Place::Next,
        };
        mark(if place == Place::Next { "commit-late" } else { "commit-leaves-hole" });
        back.tell(to.apply(entry, place));
    }
}

impl Sequencer for Late {
    fn commit(&self, _: &Applier, entry: Entry<'_>, back: &dyn Fn() -> ReturnAddress) -> Commit {
        self.queue.lock().unwrap().push_back((entry.into_owned(), back()));
        Commit::Later
    }
}

/// More than is published while one entry is committed.
const AHEAD: u64 = 10_000;
