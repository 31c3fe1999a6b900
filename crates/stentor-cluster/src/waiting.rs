//! Changes on their way from the workers to the log: encoded where they were admitted, gathered
//! into batches, and bounded by one account.
//!
//! One batch is under way at a time, and the next one grows meanwhile; behind a large one it grows
//! for a moment longer, for to a broker a message of many entries costs little more than one of
//! few. So a batch has one entry when little is published, which waits for nothing, and a thousand
//! when much is.

use crate::codec::Growing;
use crate::line::ENTRIES_MAX;
use crate::lists::{lists_of, with_lists};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use stentor_hub::{Entry, Op, Place, encode_entry};
use stentor_io::Waker;
use stentor_order::{Applier, Commit, CommitError, NotReady, ReturnAddress, Sequencer, Telling};

/// What waits for the thread that talks to the broker.
pub struct ClusterIntake {
    waiting: Mutex<IntakeQueue>,
    /// The thread sleeps.
    sleeps: AtomicBool,
    /// The broker takes no message that is larger.
    payload_max: AtomicUsize,
    /// Nobody replaces the rules meanwhile.
    rules: Mutex<()>,
}

struct IntakeQueue {
    /// Why the node takes no changes, if it takes none.
    closed: Option<NotReady>,
    batches: VecDeque<ChangeBatch>,
    /// What they keep in memory, roughly, and what those keep that are under way.
    bytes: usize,
    /// Before that no batch is due, unless it is full.
    due_ms: u64,
    /// When it is looked next which of them have waited for too long.
    expires_ms: u64,
    /// Wakes the thread.
    waker: Option<Arc<Waker>>,
}

/// Changes that have their places in the log together.
pub(super) struct ChangeBatch {
    pub(super) entries: Growing,
    pub(super) backs: Vec<ReturnAddress>,
    bytes: usize,
    /// Since when it waits, if that was looked at.
    since_ms: Option<u64>,
}

impl ClusterIntake {
    pub(crate) fn new() -> ClusterIntake {
        ClusterIntake {
            waiting: Mutex::new(IntakeQueue {
                closed: Some(NotReady::Disconnected),
                batches: VecDeque::new(),
                bytes: 0,
                due_ms: 0,
                expires_ms: 0,
                waker: None,
            }),
            sleeps: AtomicBool::new(false),
            payload_max: AtomicUsize::new(BATCH_BYTES_MAX),
            rules: Mutex::default(),
        }
    }

    /// `waker` is to wake the thread, if it sleeps.
    pub(super) fn set_waker(&self, waker: Arc<Waker>) {
        self.waiting().waker = Some(waker);
    }

    /// The broker takes no message that is larger.
    pub(super) fn set_payload_max(&self, bytes: usize) {
        self.payload_max.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn payload_max(&self) -> usize {
        self.payload_max.load(Ordering::Relaxed)
    }

    /// While this is held, the rules of this node stay as they are.
    pub(super) fn hold_rules(&self) -> MutexGuard<'_, ()> {
        stentor_io::lock(&self.rules)
    }

    /// Puts an entry in.
    pub(super) fn put(&self, entry: &Entry<'_>, back: ReturnAddress) -> Result<(), CommitError> {
        let bytes_max = self.payload_max().min(BATCH_BYTES_MAX);
        let mut waiting = self.waiting();
        if let Some(reason) = waiting.closed {
            return Err(CommitError::NotReady(reason));
        }
        if waiting.bytes >= WAITING_BYTES_MAX {
            return Err(CommitError::BrokerBehind);
        }
        if waiting.batches.back().is_none_or(|batch| batch.entries.count() == ENTRIES_MAX) {
            waiting.batches.push_back(ChangeBatch::new());
        }
        let last = waiting.batches.back_mut().expect("there is one");
        let length = last.entries.push(|out| encode_entry(entry, Place::Next, out));
        if last.entries.bytes() > bytes_max {
            last.entries.pop(length);
            let mut alone = ChangeBatch::new();
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
            waiting.waker.iter().for_each(|waker| waker.wake());
        }
        Ok(())
    }

    /// Takes out what is to be appended next, if that is due.
    pub(super) fn take(&self, now_ms: u64) -> Option<ChangeBatch> {
        let mut waiting = self.waiting();
        if now_ms < waiting.due_ms && waiting.batches.len() < 2 {
            return None;
        }
        let batch = waiting.batches.pop_front()?;
        let pause_ms = (batch.entries.count() / ENTRIES_PER_MS).min(PAUSE_MAX_MS);
        waiting.due_ms = now_ms + pause_ms as u64;
        Some(batch)
    }

    /// Tells those whose changes have waited for too long that they were not appended. To be called
    /// as time passes.
    pub(super) fn expire(&self, now_ms: u64) {
        let (mut waiting, mut telling) = (self.waiting(), Telling::default());
        if now_ms < waiting.expires_ms {
            return;
        }
        waiting.expires_ms = now_ms + EXPIRE_MS;
        let is_old =
            |batch: &mut ChangeBatch| batch.since_ms.is_some_and(|ms| now_ms >= ms + PATIENCE_MS);
        while let Some(batch) = waiting.batches.pop_front_if(is_old) {
            waiting.bytes -= batch.bytes;
            batch.backs.into_iter().for_each(|it| telling.add(it, Err(CommitError::BrokerBehind)));
        }
        let unseen = waiting.batches.iter_mut().rev().take_while(|batch| batch.since_ms.is_none());
        unseen.for_each(|batch| batch.since_ms = Some(now_ms));
    }

    /// A batch that was taken out keeps no memory any more.
    pub(super) fn give_back(&self, bytes: usize) {
        self.waiting().bytes -= bytes;
    }

    /// From now on changes are taken, or are not, for this reason: then those that wait were not
    /// appended.
    pub(super) fn set_open(&self, closed: Option<NotReady>) {
        let mut waiting = self.waiting();
        waiting.closed = closed;
        let Some(reason) = closed else { return };
        let batches = std::mem::take(&mut waiting.batches);
        waiting.bytes -= batches.iter().map(|batch| batch.bytes).sum::<usize>();
        drop(waiting);
        let mut telling = Telling::default();
        for batch in batches {
            let error = CommitError::NotReady(reason);
            batch.backs.into_iter().for_each(|it| telling.add(it, Err(error)));
        }
    }

    /// The thread is about to sleep. Returns whether it may: nothing waits.
    pub(super) fn may_sleep(&self) -> bool {
        let waiting = self.waiting();
        let may_sleep = waiting.batches.is_empty();
        self.sleeps.store(may_sleep, Ordering::Relaxed);
        may_sleep
    }

    /// Whether so much waits that no change is taken.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= WAITING_BYTES_MAX
    }

    /// What waits, in bytes, with what is under way.
    pub(super) fn bytes(&self) -> usize {
        self.waiting().bytes
    }

    fn waiting(&self) -> MutexGuard<'_, IntakeQueue> {
        stentor_io::lock(&self.waiting)
    }
}

impl ChangeBatch {
    pub(super) fn new() -> ChangeBatch {
        ChangeBatch { entries: Growing::new(), backs: Vec::new(), bytes: 0, since_ms: None }
    }

    /// The memory that the batch uses, for [`ClusterIntake::give_back`].
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes
    }
}

/// The broker makes the order.
impl Sequencer for ClusterIntake {
    fn commit(&self, to: &Applier, entry: Entry<'_>, back: &dyn Fn() -> ReturnAddress) -> Commit {
        // Rules are each node's own, beside the access lists of the log.
        if entry.topic().is_none() {
            let _held = self.hold_rules();
            let lists = lists_of(&to.hub().rules().1);
            let rules = with_lists(entry.rules().unwrap_or_default(), lists);
            let entry = Entry::past(Op::Rules(rules), 0);
            return Commit::Known(to.apply(entry, Place::Next));
        }
        match self.put(&entry, back()) {
            Ok(()) => Commit::Later,
            Err(error) => Commit::Known(Err(error)),
        }
    }

    /// Others know more, perhaps.
    fn judges_at_place(&self) -> bool {
        true
    }
}

/// What an entry keeps in memory beside its bytes.
const ENTRY_BYTES: usize = 64;

/// What may wait for the broker.
const WAITING_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 32 << 20 };

/// For so many entries in a batch the next one waits for a millisecond: who publishes fewer at once
/// waits for each answer.
const ENTRIES_PER_MS: usize = 64;
const PAUSE_MAX_MS: usize = 2;

/// How often it is looked whether something has waited for too long. It tunes speed alone:
/// [`PATIENCE_MS`] is much longer.
const EXPIRE_MS: u64 = 250;

/// A batch has so many bytes at most: as many as a broker takes in one message by default.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A publisher waits no longer than this for an append.
pub(crate) const PATIENCE_MS: u64 = 5_000;
