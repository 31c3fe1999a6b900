//! What waits for the thread that writes, and how the store is.

use crate::writer::Stats;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stentor_hub::{Applied, Entry, Event, Filter, Hub, Keep, Place, Published, Rule, Subscriber};
use stentor_io::{DiskErrorKind, limits_are_small};
use stentor_log::Progress;
use stentor_order::{
    Applier, Commit, CommitError, Due, Promised, ReturnAddress, Sequencer, Telling,
};

/// The queue of the thread that writes.
#[derive(Default)]
pub struct Intake {
    pub(crate) waiting: Mutex<Waiting>,
    pub(crate) bell: Condvar,
    /// Everything up to this number outlives the process,
    pub(crate) written_seq: AtomicU64,
    /// everything up to this one a loss of power,
    pub(crate) synced_seq: AtomicU64,
    /// and no number above this one may be given out.
    pub(crate) reserved_seq: AtomicU64,
    /// Why nothing can be stored, if so: the kind of the disk's error, and a sentence.
    pub(crate) failure: Mutex<Option<(DiskErrorKind, String)>>,
    /// So much waits that no more is taken.
    pub(crate) is_full: AtomicBool,
    /// The store is handed over: no change is taken.
    pub(crate) is_held: AtomicBool,
    /// Counts the progress of the thread that writes. Odd while the thread may wait for the disk.
    /// The watch reads it.
    pub(crate) work: AtomicU64,
    /// The disk has not answered for so long, in milliseconds.
    pub(crate) stalled_ms: AtomicU64,
    /// The limit of `bytes` in [`Waiting`].
    pub(crate) waiting_bytes_max: usize,
    /// The setting `store.wait_max`.
    pub(crate) wait_max_ms: u64,
    /// The counters of the thread that writes.
    pub stats: Stats,
}

/// How it is with the store, for those who ask.
pub struct StoreState {
    /// What waits for the thread that writes.
    pub intake: Arc<Intake>,
    /// How far it is being read at the start.
    pub reading: Reading,
}

/// How far a store has been read.
#[derive(Debug, Default)]
pub struct Reading {
    is_over: AtomicBool,
    read: AtomicU64,
    total: AtomicU64,
}

impl StoreState {
    /// `stored_bytes_max` limits what may wait for the disk, too. A publisher waits for the disk
    /// for `wait_max_ms` at most.
    pub fn new(stored_bytes_max: usize, wait_max_ms: u64) -> StoreState {
        StoreState {
            intake: Arc::new(Intake::new(stored_bytes_max, wait_max_ms)),
            reading: Reading::default(),
        }
    }

    /// From now on the hub tells of what is to be stored.
    pub fn attach(&self, hub: &Hub) {
        let subscriber = hub.add_subscriber(Arc::clone(&self.intake) as Arc<dyn Subscriber>);
        hub.subscribe(subscriber, &Filter::any(), Arc::default());
    }
}

impl Reading {
    /// Whether the store has been read.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Takes note of how far it has been read.
    pub fn note(&self, progress: Progress) {
        self.read.store(progress.read, Ordering::Relaxed);
        self.total.store(progress.total, Ordering::Relaxed);
    }

    /// How much of it has been read, in percent.
    pub fn percent(&self) -> u64 {
        let (read, total) = (&self.read, &self.total);
        read.load(Ordering::Relaxed) * 100 / total.load(Ordering::Relaxed).max(1)
    }

    /// The store has been read.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The store is being read: {} % are done.", self.percent())
    }
}

/// In the order it came.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) news: Vec<News>,
    /// What they keep in memory, roughly.
    pub(crate) bytes: usize,
    /// The thread that writes sleeps until so many bytes wait, or a publisher does.
    pub(crate) sleeps_until: Option<usize>,
    /// Publishers that wait for the disk. They stay here until they are answered.
    pub(crate) publishers: Vec<WaitingPublisher>,
    /// The thread that writes is to end, for this reason.
    pub(crate) ending: Option<Ending>,
    /// That thread has ended.
    pub(crate) has_ended: bool,
    /// Nobody takes anything out any more.
    pub(crate) is_abandoned: bool,
    /// When all publishers are answered at the latest.
    pub(crate) answer_by_ms: Option<u64>,
}

/// Why the thread that writes ends. All that waits is on the disk then, or the disk has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The server stops: the log gets its end mark.
    Stop,
    /// Another process continues the store. No change is taken until then.
    HandOver,
}

/// A publisher that is answered once its change is stored as promised.
pub(crate) struct WaitingPublisher {
    promised: Promised,
    /// When the watch first saw it.
    pub(crate) since_ms: Option<u64>,
}

/// The changes that the thread that writes takes out of an [`Intake`].
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) news: Vec<News>,
    /// The strongest promise to a publisher that waits.
    pub(crate) promise: Option<Keep>,
    /// The thread is to end.
    pub(crate) ending: Option<Ending>,
}

/// What has happened.
pub(crate) enum News {
    /// Something to be stored.
    Event(Event),
    /// Numbers up to this one were given to what is not stored.
    Numbers(u64),
    /// The rules were replaced: their generation.
    Rules(u64, Box<[Rule]>),
}

impl Intake {
    /// An empty one. `stored_bytes_max` bounds what may wait, too.
    pub fn new(stored_bytes_max: usize, wait_max_ms: u64) -> Intake {
        let waiting_bytes_max = waiting_bytes_max().min(stored_bytes_max / WAITING_PART_MAX);
        Intake { waiting_bytes_max, wait_max_ms, ..Intake::default() }
    }

    /// How the disk failed when it was last written to.
    pub fn disk_error(&self) -> Option<DiskErrorKind> {
        stentor_io::lock(&self.failure).as_ref().map(|(kind, _)| *kind)
    }

    /// Why nothing can be stored, in a sentence.
    pub fn failure(&self) -> Option<String> {
        stentor_io::lock(&self.failure).as_ref().map(|(_, sentence)| sentence.clone())
    }

    /// Everything up to this number is on the disk.
    pub fn synced_seq(&self) -> u64 {
        self.synced_seq.load(Ordering::Acquire)
    }

    /// The thread that writes is gone, for this reason. Publishers that wait for it, or will, are
    /// answered at once, and no more changes are taken.
    pub fn abandon(&self, sentence: &str) {
        self.stats.errors.add(1);
        *stentor_io::lock(&self.failure) = Some((DiskErrorKind::Failed, sentence.to_owned()));
        let mut waiting = self.waiting();
        waiting.is_abandoned = true;
        let _news = std::mem::take(&mut waiting.news);
        drop(waiting);
        self.answer(|_| true);
    }

    /// Answers the publishers whose changes are stored as promised. It tells the publishers for
    /// which `is_lost` returns true that the outcome is unknown.
    pub(crate) fn answer(&self, mut is_lost: impl FnMut(&mut WaitingPublisher) -> bool) {
        let mut telling = Telling::default();
        let mut waiting = self.waiting();
        let is_kept = |due: Due| due.seq <= self.kept_seq(due.keep);
        let is_answered = |it: &mut WaitingPublisher| is_kept(it.promised.due) || is_lost(it);
        for WaitingPublisher { promised, .. } in waiting.publishers.extract_if(.., is_answered) {
            let is_kept = is_kept(promised.due);
            let outcome = if is_kept { promised.outcome } else { Err(CommitError::Failed) };
            telling.add(promised.back, outcome);
        }
        drop(waiting);
    }

    /// For how many milliseconds the disk has not answered; 0 if that is less than a second.
    pub fn stalled_ms(&self) -> u64 {
        self.stalled_ms.load(Ordering::Acquire)
    }

    /// The thread that writes begins to wait for the disk, or has what it waited for.
    pub(crate) fn note_work(&self, is_begun: bool) {
        // It alone writes this.
        let work = self.work.load(Ordering::Relaxed);
        let next = if is_begun { (work + 1) | 1 } else { (work + 2) & !1 };
        self.work.store(next, Ordering::Release);
    }

    /// The thread that writes stores what waits, and ends.
    pub fn end(&self, ending: Ending) {
        self.waiting().ending = Some(ending);
        self.is_held.store(ending == Ending::HandOver, Ordering::SeqCst);
        self.ring();
    }

    /// Changes are taken again. Returns whether the thread that was to end continues; if not, it
    /// has ended.
    pub fn resume(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.ending = None;
        self.is_held.store(false, Ordering::SeqCst);
        !std::mem::take(&mut waiting.has_ended)
    }

    /// Whether the thread that writes is to end.
    pub fn is_ending(&self) -> bool {
        self.waiting().ending.is_some()
    }

    /// The thread that writes ends, unless it is to continue after all.
    pub(crate) fn confirm_end(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.has_ended = waiting.ending.is_some();
        waiting.has_ended
    }

    /// Publishers that wait are answered by then, on the clock of the watch.
    pub fn answer_by(&self, at_ms: u64) {
        self.waiting().answer_by_ms = Some(at_ms);
    }

    /// Numbers up to this one are reserved on the disk, where all before `last` is.
    pub fn continue_at(&self, last: u64, reserved: u64) {
        for (seq, known) in
            [(&self.written_seq, last), (&self.synced_seq, last), (&self.reserved_seq, reserved)]
        {
            seq.store(known, Ordering::Release);
        }
    }

    /// Why a change is not taken, if so.
    fn refusal(&self, hub: &Hub, entry: &Entry<'_>) -> Option<CommitError> {
        // A change of rules takes no number, and is stored when its time comes.
        let topic = entry.topic()?;
        let next = hub.seq() + numbers_under_way();
        let is_reserved = next < self.reserved_seq.load(Ordering::Acquire);
        if self.is_held.load(Ordering::SeqCst) {
            return Some(CommitError::DiskBehind);
        }
        let error = self.disk_error();
        let is_behind =
            self.is_full.load(Ordering::Acquire) || self.stalled_ms() > self.wait_max_ms;
        let has_room = error.is_none() && !is_behind;
        if is_reserved && (has_room || hub.keep(topic) == Keep::None) {
            return None;
        }
        Some(match error {
            Some(DiskErrorKind::Full) => CommitError::DiskFull,
            Some(_) => CommitError::DiskFailed,
            None => CommitError::DiskBehind,
        })
    }

    /// Everything up to the returned number is kept as promised.
    pub(crate) fn kept_seq(&self, keep: Keep) -> u64 {
        match keep {
            Keep::None | Keep::Memory => u64::MAX,
            Keep::Written => self.written_seq.load(Ordering::Acquire),
            Keep::Synced => self.synced_seq(),
        }
    }

    /// Takes out all that waits. Sleeps before, so long at most, until there is something to do.
    /// `has_timer`: what no publisher waits for has time, unless it is much.
    pub(crate) fn take(&self, patience: Duration, has_timer: bool, into: &mut Taken) {
        self.note_work(false);
        let bytes_min = if has_timer { BATCH_BYTES.min(self.waiting_bytes_max) } else { 0 };
        let mut waiting = self.waiting();
        if !waiting.is_due(bytes_min) && !patience.is_zero() {
            waiting.sleeps_until = Some(bytes_min);
            let woken = self.bell.wait_timeout(waiting, patience);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            waiting.sleeps_until = None;
        }
        std::mem::swap(&mut waiting.news, &mut into.news);
        waiting.bytes = 0;
        let mut promises = waiting.publishers.iter().map(|it| it.promised.due.keep);
        into.promise = promises.clone().find(|keep| *keep == Keep::Synced).or(promises.next());
        into.ending = waiting.ending;
        drop(waiting);
        self.note_work(true);
        self.is_full.store(false, Ordering::Release);
    }

    /// Wakes the thread if it sleeps and has something to do.
    fn ring(&self) {
        let mut waiting = self.waiting();
        if waiting.sleeps_until.is_some_and(|bytes_min| waiting.is_due(bytes_min)) {
            waiting.sleeps_until = None;
            drop(waiting);
            self.bell.notify_one();
        }
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        stentor_io::lock(&self.waiting)
    }
}

impl Waiting {
    /// Whether so many bytes wait, a publisher does, or the thread that writes is to end.
    fn is_due(&self, bytes_min: usize) -> bool {
        let has_enough = !self.news.is_empty() && self.bytes >= bytes_min;
        has_enough || !self.publishers.is_empty() || self.ending.is_some()
    }
}

impl Subscriber for Intake {
    fn notify(&self, event: &Event) {
        let mut waiting = self.waiting();
        if waiting.is_abandoned {
            return;
        }
        if event.message.keep() != Keep::None {
            waiting.bytes += event.message.kept_bytes();
            if waiting.bytes > self.waiting_bytes_max {
                self.is_full.store(true, Ordering::Release);
            }
            waiting.news.push(News::Event(event.clone()));
        } else if let Some(News::Numbers(last)) = waiting.news.last_mut() {
            *last = event.seq();
        } else {
            waiting.news.push(News::Numbers(event.seq()));
        }
    }

    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        self.waiting().news.push(News::Rules(generation, rules.into()));
    }

    fn wake(&self) {
        self.ring();
    }
}

/// The order is made here; the store keeps it.
impl Sequencer for Intake {
    fn commit(&self, to: &Applier, entry: Entry<'_>, _: &dyn Fn() -> ReturnAddress) -> Commit {
        if let Some(refusal) = self.refusal(to.hub(), &entry) {
            return Commit::Known(Err(refusal));
        }
        let applied = match to.apply(entry, Place::Next) {
            Ok(applied) => applied,
            Err(refusal) => return Commit::Known(Err(refusal)),
        };
        let message = match &applied {
            Applied::Put(Published { message, .. }) => message,
            Applied::Deleted(deletion, _) => &deletion.message,
            Applied::Rules(_) | Applied::Known => return Commit::Known(Ok(applied)),
        };
        let due = Due { seq: message.seq(), keep: message.keep() };
        match due.keep {
            Keep::None | Keep::Memory => Commit::Known(Ok(applied)),
            Keep::Written | Keep::Synced => Commit::Due(Ok(applied), due),
        }
    }

    fn refusal_due(&self, hub: &Hub, keep: Keep) -> Option<Due> {
        let due = Due { seq: hub.seq(), keep };
        (due.seq > self.kept_seq(keep)).then_some(due)
    }

    fn when_kept(&self, promised: &mut Vec<Promised>) {
        let mut telling = Telling::default();
        let mut waiting = self.waiting();
        for promised in promised.drain(..) {
            // Under the lock: whoever raises the number looks at all who wait after that.
            if promised.due.seq <= self.kept_seq(promised.due.keep) {
                telling.add(promised.back, promised.outcome);
            } else if waiting.is_abandoned {
                telling.add(promised.back, Err(CommitError::Failed));
            } else {
                waiting.publishers.push(WaitingPublisher { promised, since_ms: None });
            }
        }
        drop(waiting);
        drop(telling);
        self.ring();
    }
}

/// More changes than can be between the question whether one is taken and its number.
fn numbers_under_way() -> u64 {
    if cfg!(test) || limits_are_small() { 10 } else { 4_096 }
}

/// What may wait for the disk, in bytes of messages.
fn waiting_bytes_max() -> usize {
    if cfg!(test) || limits_are_small() { 4 << 10 } else { 64 << 20 }
}

/// The queue may hold this part of `limits.stored_bytes_max` at most.
const WAITING_PART_MAX: usize = 8;

/// So many bytes of messages are worth a write, though nobody waits for it.
const BATCH_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use stentor_hub::{Draft, Epoch, Limits, Precondition};
    use stentor_wire::target::TopicName;

    /// The thread that writes may panic behind its last look at what waits.
    #[test]
    fn an_abandoned_intake_fails_what_waits() {
        let (intake, (sender, outcome)) = (Intake::new(usize::MAX, 0), mpsc::channel());
        let due = Due { seq: 1, keep: Keep::Synced };
        let back = ReturnAddress::Thread(sender);
        intake.when_kept(&mut vec![Promised { due, outcome: Ok(Applied::Known), back }]);
        assert!(outcome.try_recv().is_err(), "it waits");
        intake.abandon("It is gone");
        assert!(matches!(outcome.try_recv(), Ok(Err(CommitError::Failed))));
        assert_eq!(intake.disk_error(), Some(DiskErrorKind::Failed));
        assert_eq!(intake.failure().as_deref(), Some("It is gone"));
    }

    /// Runs `act` while the thread that writes sleeps. Returns whether the thread was woken for it.
    fn wakes(has_timer: bool, act: impl FnOnce(&Intake, &Hub)) -> bool {
        let hub = Hub::new(Epoch::from_number(1), Vec::new(), Limits::default());
        let state = StoreState::new(usize::MAX, 0);
        state.attach(&hub);
        let intake = Arc::clone(&state.intake);
        let sleeper = thread::spawn(move || {
            let mut taken = Taken::default();
            intake.take(Duration::from_secs(60), has_timer, &mut taken);
        });
        while state.intake.waiting().sleeps_until.is_none() {
            thread::yield_now();
        }
        act(&state.intake, &hub);
        let is_woken = state.intake.waiting().sleeps_until.is_none();
        state.intake.end(Ending::Stop);
        sleeper.join().unwrap();
        is_woken
    }

    fn publish(hub: &Hub, bytes: usize) {
        let (topic, draft) = (TopicName::parse("/a").unwrap(), Draft::new(vec![b'x'; bytes]));
        hub.publish(topic, draft, Precondition::None, 1).unwrap();
    }

    #[test]
    fn a_sleeping_thread_is_woken_for_work_alone() {
        let waits = |intake: &Intake, _: &Hub| {
            let back = ReturnAddress::Thread(mpsc::channel().0);
            let due = Due { seq: 1, keep: Keep::Synced };
            intake.when_kept(&mut vec![Promised { due, outcome: Ok(Applied::Known), back }]);
        };
        for (has_timer, is_woken) in [(true, false), (false, true)] {
            assert_eq!(wakes(has_timer, |_, hub| publish(hub, 10)), is_woken);
            assert!(wakes(has_timer, |_, hub| publish(hub, waiting_bytes_max())));
            assert!(wakes(has_timer, waits));
            assert!(!wakes(has_timer, |intake, _| intake.wake()));
        }
    }

    #[test]
    fn a_small_memory_makes_a_small_queue() {
        assert_eq!(Intake::new(8_000, 0).waiting_bytes_max, 1_000);
        assert_eq!(Intake::new(usize::MAX, 0).waiting_bytes_max, waiting_bytes_max());
    }
}
