//! Changes on their way from the workers to the log: encoded where they were admitted, gathered
//! into batches, and bounded by one account.
//!
//! One batch is under way at a time, and the next one grows meanwhile: that is all the waiting
//! there is, so a batch has one entry when little is published and a thousand when much is.

use super::codec::{ENTRIES_MAX, Growing};
use crate::context::Shared;
use crate::order::{Commit, CommitError, Promised, ReturnAddress, Sequencer, Telling};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_hub::{Entry, Place, encode_entry};

/// What waits for the thread that talks to the broker.
pub(crate) struct Intake {
    waiting: Mutex<Waiting>,
    /// The broker can be reached, and takes what is published.
    is_open: AtomicBool,
    /// The thread sleeps.
    sleeps: AtomicBool,
    /// A batch has so many bytes at most: the broker's `max_payload` may be less than is usual.
    batch_bytes_max: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    /// What they keep in memory, roughly, and what those keep that are under way.
    bytes: usize,
    /// Wakes the thread.
    bell: Option<Box<dyn Fn() + Send>>,
}

/// Changes that have their places in the log together.
pub(super) struct Batch {
    pub(super) entries: Growing,
    pub(super) backs: Vec<ReturnAddress>,
    bytes: usize,
}

impl Intake {
    pub(crate) fn new() -> Intake {
        Intake {
            waiting: Mutex::default(),
            is_open: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            batch_bytes_max: AtomicUsize::new(BATCH_BYTES_MAX),
        }
    }

    /// `bell` wakes the thread, if it sleeps.
    pub(super) fn set_bell(&self, bell: Box<dyn Fn() + Send>) {
        self.waiting().bell = Some(bell);
    }

    /// The broker takes no message that is larger.
    pub(super) fn set_payload_max(&self, bytes: usize) {
        self.batch_bytes_max.store(bytes.min(BATCH_BYTES_MAX), Ordering::Relaxed);
    }

    /// Puts an entry in.
    pub(super) fn put(&self, entry: &Entry<'_>, back: ReturnAddress) -> Result<(), CommitError> {
        let bytes_max = self.batch_bytes_max.load(Ordering::Relaxed);
        let mut waiting = self.waiting();
        // Under the lock: when it is closed, all that is in it is told so.
        if !self.is_open.load(Ordering::Relaxed) {
            return Err(CommitError::BrokerAway);
        }
        if waiting.bytes >= WAITING_BYTES_MAX {
            return Err(CommitError::BrokerBehind);
        }
        if waiting.batches.back().is_none_or(|batch| batch.entries.count() == ENTRIES_MAX) {
            waiting.batches.push_back(Batch::new());
        }
        let last = waiting.batches.back_mut().expect("there is one");
        let length = last.entries.push(|out| encode_entry(entry, Place::Next, out));
        if last.entries.bytes() > bytes_max {
            last.entries.pop(length);
            let mut alone = Batch::new();
            alone.entries.push(|out| encode_entry(entry, Place::Next, out));
            if alone.entries.bytes() > bytes_max {
                if last.backs.is_empty() {
                    waiting.batches.pop_back();
                }
                return Err(CommitError::BrokerRefuses { max: bytes_max });
            }
            waiting.batches.push_back(alone);
        }
        let last = waiting.batches.back_mut().expect("there is one");
        last.backs.push(back);
        let bytes = length + ENTRY_BYTES;
        last.bytes += bytes;
        waiting.bytes += bytes;
        if self.sleeps.swap(false, Ordering::Relaxed) {
            waiting.bell.iter().for_each(|bell| bell());
        }
        Ok(())
    }

    /// Takes out what is to be appended next.
    pub(super) fn take(&self) -> Option<Batch> {
        self.waiting().batches.pop_front()
    }

    /// A batch that was taken out keeps no memory any more.
    pub(super) fn give_back(&self, bytes: usize) {
        self.waiting().bytes -= bytes;
    }

    /// From now on changes are taken, or no longer: then those that wait were not appended.
    pub(super) fn set_open(&self, is_open: bool) {
        if self.is_open.load(Ordering::Relaxed) == is_open {
            return;
        }
        let mut waiting = self.waiting();
        self.is_open.store(is_open, Ordering::Relaxed);
        let batches = std::mem::take(&mut waiting.batches);
        waiting.bytes -= batches.iter().map(|batch| batch.bytes).sum::<usize>();
        drop(waiting);
        let mut telling = Telling::default();
        for batch in batches {
            batch.backs.into_iter().for_each(|it| telling.add(it, Err(CommitError::BrokerAway)));
        }
    }

    /// The thread is about to sleep. Returns whether it may: nothing waits.
    pub(super) fn may_sleep(&self) -> bool {
        let waiting = self.waiting();
        let may_sleep = waiting.batches.is_empty();
        self.sleeps.store(may_sleep, Ordering::Relaxed);
        may_sleep
    }

    /// What waits, in bytes, with what is under way.
    pub(super) fn bytes(&self) -> usize {
        self.waiting().bytes
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    fn new() -> Batch {
        Batch { entries: Growing::new(), backs: Vec::new(), bytes: 0 }
    }

    /// What it keeps in memory, for [`Intake::give_back`].
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes
    }
}

/// The broker makes the order.
impl Sequencer for Arc<Intake> {
    fn commit(
        &self,
        shared: &Shared,
        entry: Entry<'_>,
        back: &dyn Fn() -> ReturnAddress,
    ) -> Commit {
        // Rules are each node's own.
        if entry.topic().is_none() {
            return Commit::Known(shared.apply(entry, Place::Next));
        }
        match self.put(&entry, back()) {
            Ok(()) => Commit::Later,
            Err(error) => Commit::Known(Err(error)),
        }
    }

    fn when_kept(&self, _: &mut Vec<Promised>) {
        unreachable!("nothing is applied before it is told")
    }
}

/// What an entry keeps in memory beside its bytes.
const ENTRY_BYTES: usize = 64;

/// What may wait for the broker.
const WAITING_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 32 << 20 };

/// A batch has so many bytes at most: as many as a broker takes in one message by default.
const BATCH_BYTES_MAX: usize = 1 << 20;
