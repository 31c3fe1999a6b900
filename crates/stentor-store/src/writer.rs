//! The thread that writes: takes what waits, brings it to the disk, and answers those who wait.
//!
//! A step does all there is to do now, and waits for the disk alone. Whatever it finds is one frame
//! of the log, and one sync if anybody was promised one.

use crate::intake::{Ending, Intake, News, StoreState, Taken};
use crate::rewrite::Pass;
use crate::rewrite::Rewriting;
use crate::watch::Watch;
use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stentor_hub::{Hub, Keep, encode_event, encode_rules};
use stentor_io::{Counter, Disk, DiskError, Histogram, limits_are_small, monotonic_us, unix_s};
use stentor_log::{PushError, Store, Tip};

/// Writes down what an [`Intake`] is told.
pub struct Writer<D: Disk> {
    store: Store<D>,
    intake: Arc<Intake>,
    hub: Arc<Hub>,
    /// Bytes that were written to the log before this writer began.
    bytes_before: u64,
    /// What was taken out and found no room in the store's buffer yet.
    news: VecDeque<News>,
    /// Used again and again.
    taken: Taken,
    /// The store knows of all numbers up to this one.
    pushed_seq: u64,
    /// When something that is written will have waited for long enough to be synced.
    sync_at_ms: Option<u64>,
    /// When it will have been quiet for long enough to say so.
    witness_at_ms: Option<u64>,
    /// When a disk that failed is tried again.
    retry_at_ms: Option<u64>,
    rewriting: Option<Rewriting>,
    /// A snapshot that somebody is to write.
    pass: Option<Pass<D>>,
    /// No snapshot is begun before, since so many failed one after another.
    rewrite_at_ms: u64,
    rewrites_failed: u32,
    /// When it is looked whether the directory is there.
    look_at_ms: u64,
    /// The error that the log has a line of.
    logged: Option<DiskError>,
}

/// A writer that has come to its end.
pub struct Ended<D: Disk> {
    /// It may continue.
    pub writer: Writer<D>,
    /// # Errors
    /// Not everything is on the disk, or a stop has no end mark: the next start leaves out numbers.
    pub result: Result<(), String>,
}

/// What the thread counts: it alone writes, others read.
#[derive(Debug, Default)]
pub struct Stats {
    /// How long it took to bring a batch to the disk.
    pub syncs: Histogram,
    /// Messages and deletions that were stored.
    pub entries: Counter,
    /// Bytes that were written to the log.
    pub bytes: Counter,
    /// Failures of the disk.
    pub errors: Counter,
    /// Bytes of the log behind the last snapshot.
    pub log_bytes: Counter,
    /// Bytes of that snapshot.
    pub snapshot_bytes: Counter,
    /// Wall clock when it took its place, in seconds since 1970; 0: not since the start.
    pub snapshot_unix_s: Counter,
}

impl<D: Disk> Writer<D> {
    /// A writer that continues `store`.
    pub fn new(store: Store<D>, intake: Arc<Intake>, hub: Arc<Hub>) -> Writer<D> {
        let mut writer = Writer {
            pushed_seq: store.last(),
            store,
            bytes_before: intake.stats.bytes.value(),
            intake,
            hub,
            news: VecDeque::new(),
            taken: Taken::default(),
            sync_at_ms: None,
            witness_at_ms: Some(0),
            retry_at_ms: None,
            rewriting: None,
            pass: None,
            rewrite_at_ms: 0,
            rewrites_failed: 0,
            look_at_ms: 0,
            logged: None,
        };
        writer.show(0);
        writer
    }

    /// Takes what waits, for which it waits so long, and does what there is to do. Returns whether
    /// that was the last.
    pub fn step(&mut self, patience: Duration, now_ms: u64) -> bool {
        let timer = self.sync_at_ms.or(self.witness_at_ms).or(self.retry_at_ms);
        self.intake.take(patience, timer.is_some(), &mut self.taken);
        if !self.taken.news.is_empty() {
            self.witness_at_ms = Some(now_ms + QUIET_MS);
        }
        self.news.extend(self.taken.news.drain(..));
        if now_ms >= self.look_at_ms {
            self.look_at_ms = now_ms + LOOK_MS;
            self.look_for_directory();
        }
        if self.taken.ending.is_some() || self.retry_at_ms.is_some_and(|at| now_ms >= at) {
            self.retry_at_ms = None;
            // What of it failed the store says below.
            let _ = self.store.retry();
        }
        if !self.store.is_broken() {
            // As here.
            let _ = self.write(now_ms);
        }
        self.show(now_ms);
        let is_lost = self.store.is_broken();
        self.intake.answer(|_| is_lost);
        self.intake.note_work(true);
        if !self.store.is_broken() {
            self.rewrite(now_ms);
            self.show(now_ms);
        }
        let is_over = self.taken.ending.is_some();
        debug_assert!(is_over || !self.patience(now_ms).is_zero(), "it would spin");
        is_over
    }

    /// Makes the directory again if it was removed, with what is in memory.
    fn look_for_directory(&mut self) {
        if self.store.disk().is_there() {
            return;
        }
        (self.rewriting, self.pass, self.rewrite_at_ms) = (None, None, 0);
        match self.store.disk().make_again() {
            Ok(disk) => {
                tracing::error!(
                    "the directory of the store was removed: it is made again, and a snapshot of \
                     all that is in memory is written there"
                );
                // What of it failed the store says below.
                let _ = self.store.move_to(disk);
            }
            Err(error) => self.store.fail(error),
        }
    }

    /// A snapshot that is to be written, if one was begun.
    pub fn pass(&mut self) -> Option<Pass<D>> {
        self.pass.take()
    }

    /// Ends after the step that was the last, and closes the log if the server stops.
    pub fn end(mut self) -> Ended<D> {
        // The thread that writes a snapshot gives it up.
        (self.rewriting, self.pass) = (None, None);
        let closed = match self.taken.ending {
            Some(Ending::HandOver) => self.store.sync(),
            _ => self.store.close(),
        };
        let result = match closed {
            // Their numbers were given out, and must be left out.
            _ if !self.news.is_empty() => Err("not everything could be written".to_owned()),
            closed => closed.map_err(|error| error.to_string()),
        };
        self.show(monotonic_us() / 1_000);
        Ended { writer: self, result }
    }

    /// Where the store ends, if all of it is on the disk.
    #[must_use]
    pub fn tip(&self) -> Option<Tip> {
        self.store.tip().filter(|_| self.news.is_empty())
    }

    /// The disk of the store.
    #[must_use]
    pub fn disk(&self) -> &D {
        self.store.disk()
    }

    /// How long there is nothing to do if nothing comes.
    fn patience(&self, now_ms: u64) -> Duration {
        let rewriting = self.rewriting.as_ref().map(|_| now_ms + REWRITING_LOOK_MS);
        // Nothing of a broken log is due before it is tried again.
        let of_log = match self.store.is_broken() {
            true => [None, None],
            false => [self.sync_at_ms, self.witness_at_ms],
        };
        let times = of_log.into_iter().chain([self.retry_at_ms, rewriting]);
        let next = times.flatten().fold(self.look_at_ms, u64::min);
        Duration::from_millis(next.saturating_sub(now_ms))
    }

    /// Stores what was taken out, as far as anybody was promised.
    fn write(&mut self, now_ms: u64) -> Result<(), DiskError> {
        while !self.push() {
            self.sync()?;
            self.store.witness()?;
        }
        if self.store.written() < self.pushed_seq {
            self.sync_at_ms.get_or_insert(now_ms + SYNC_MS);
        }
        let is_due = self.sync_at_ms.is_some_and(|at| now_ms >= at);
        match self.taken.promise {
            Some(Keep::Synced) => self.sync()?,
            _ if is_due || self.taken.ending.is_some() => self.sync()?,
            Some(_) => self.store.write()?,
            None => {}
        }
        let is_quiet = self.witness_at_ms.is_some_and(|at| now_ms >= at);
        if is_quiet || self.store.reserved().saturating_sub(self.pushed_seq) < numbers_ahead_min() {
            self.store.witness()?;
            self.witness_at_ms = None;
        }
        Ok(())
    }

    /// Hands everything to the store. False if that has no room, or no numbers, before a sync.
    fn push(&mut self) -> bool {
        while let Some(news) = self.news.front() {
            let (seq, pushed) = match news {
                News::Event(event) => {
                    let seq = event.seq();
                    (seq, self.store.push(seq, |out| encode_event(event, out)))
                }
                News::Rules(generation, rules) => {
                    let seq = self.pushed_seq;
                    (seq, self.store.push(seq, |out| encode_rules(*generation, rules, out)))
                }
                News::Numbers(seq) => {
                    self.store.note(*seq);
                    (*seq, Ok(()))
                }
            };
            match pushed {
                Ok(()) => self.intake.stats.entries.add(u64::from(matches!(news, News::Event(_)))),
                Err(PushError::Full | PushError::NotReserved) => return false,
                Err(error) => tracing::error!("number {seq} is not stored: {error}"),
            }
            self.pushed_seq = seq;
            self.news.pop_front();
        }
        true
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        let since_us = monotonic_us();
        self.store.sync()?;
        self.intake.stats.syncs.observe(monotonic_us() - since_us);
        self.intake.note_work(true);
        self.sync_at_ms = None;
        Ok(())
    }

    /// Says to others how far it is, and how the disk is.
    fn show(&mut self, now_ms: u64) {
        let Intake { written_seq, synced_seq, reserved_seq, failure, stats, .. } = &*self.intake;
        written_seq.store(self.store.written(), Ordering::Release);
        synced_seq.store(self.store.synced(), Ordering::Release);
        reserved_seq.store(self.store.reserved(), Ordering::Release);
        let error = self.store.refusal();
        match (error, &self.logged) {
            (None, Some(_)) => tracing::warn!("the store takes messages again"),
            // Each try may be of a file with another name.
            (Some(error), logged) if !logged.as_ref().is_some_and(|it| is_same(it, error)) => {
                stats.errors.add(1);
                tracing::error!("{error}: nothing is published until this is mended");
            }
            _ => {}
        }
        *stentor_io::lock(failure) = error.map(|error| (error.kind, error.to_string()));
        self.logged = error.cloned();
        // mutation: bytes-in-upgrade
        stats.bytes.set(self.bytes_before + self.store.bytes_written());
        stats.log_bytes.set(self.store.log_bytes());
        stats.snapshot_bytes.set(self.store.snapshot_bytes());
        self.retry_at_ms = self.logged.as_ref().and(self.retry_at_ms.or(Some(now_ms + RETRY_MS)));
    }

    /// After a panic: nobody writes any more, and nobody is to wait for it. What is on the disk is
    /// for the next start to say.
    fn break_down(self) {
        const SENTENCE: &str = "the thread that writes to the store panicked, which is a bug; \
                                start the server again";
        tracing::error!("{SENTENCE}: until then nothing is published");
        self.intake.abandon(SENTENCE);
    }

    /// Begins a snapshot if it is time to, and has one that is finished take its place.
    fn rewrite(&mut self, now_ms: u64) {
        let done = match &mut self.rewriting {
            None if now_ms < self.rewrite_at_ms || !self.store.snapshot_is_due() => return,
            None => self.store.begin_snapshot().map(|to| {
                let (pass, rewriting) = Pass::begin(to, Arc::clone(&self.hub));
                (self.pass, self.rewriting) = (Some(pass), Some(rewriting));
            }),
            Some(rewriting) => match rewriting.take(self.pushed_seq) {
                None => return,
                Some(result) => {
                    self.rewriting = None;
                    result.and_then(|snapshot| self.store.adopt(snapshot)).map(|()| {
                        self.rewrites_failed = 0;
                        self.intake.stats.snapshot_unix_s.set(unix_s());
                    })
                }
            },
        };
        if let Err(error) = done {
            self.intake.stats.errors.add(1);
            tracing::error!("no snapshot was made: {error}; the log grows until one is");
            // Each try costs a segment.
            self.rewrite_at_ms = now_ms + (REWRITE_AGAIN_MS << self.rewrites_failed.min(6));
            self.rewrites_failed += 1;
        }
    }
}

impl<D: Disk + Send + 'static> Writer<D>
where
    D::File: Send,
{
    /// Runs on a thread of its own until it is to end: see [`StoreState::start`].
    ///
    /// # Errors
    /// The host refuses a thread.
    pub fn start(self) -> io::Result<StoreThread<D>> {
        spawn(Arc::clone(&self.intake), || Ok(self))
    }

    /// Steps until it is to end.
    fn run(mut self) -> Ended<D> {
        let mut snapshots = None;
        let life = panic::catch_unwind(AssertUnwindSafe(|| {
            loop {
                let now_ms = monotonic_us() / 1000;
                let is_over = self.step(self.patience(now_ms), now_ms);
                if let Some(pass) = self.pass() {
                    // Without a thread the snapshot fails by itself.
                    snapshots = pass.start(Arc::clone(&self.intake)).ok();
                }
                if is_over && self.intake.confirm_end() {
                    return;
                }
            }
        }));
        if let Err(reason) = life {
            self.break_down();
            panic::resume_unwind(reason);
        }
        let ended = self.end();
        // The thread of a snapshot ends after a slice, and leaves the directory.
        snapshots.map(JoinHandle::join);
        ended
    }
}

/// The thread that writes. `None`: its store could not be begun.
pub type StoreThread<D> = JoinHandle<Option<Ended<D>>>;

impl StoreState {
    /// Starts the thread that writes, and the watch over it. `begin` opens the store on that
    /// thread, so it may wait for the disk. Its error is a sentence, after which nothing is
    /// published.
    ///
    /// # Errors
    /// The host refuses a thread.
    pub fn start<D: Disk + Send + 'static>(
        &self,
        begin: impl FnOnce() -> Result<Writer<D>, String> + Send + 'static,
    ) -> io::Result<StoreThread<D>>
    where
        D::File: Send,
    {
        spawn(Arc::clone(&self.intake), begin)
    }
}

fn spawn<D: Disk + Send + 'static>(
    intake: Arc<Intake>,
    begin: impl FnOnce() -> Result<Writer<D>, String> + Send + 'static,
) -> io::Result<StoreThread<D>>
where
    D::File: Send,
{
    let (lives, ends) = mpsc::channel();
    Watch::new(&intake).start(ends)?;
    thread::Builder::new().name("store".to_owned()).spawn(move || {
        // The watch ends when this is dropped.
        let _lives: mpsc::Sender<()> = lives;
        intake.note_work(true);
        let writer = begin().inspect_err(|sentence| {
            tracing::error!("{sentence}: nothing is published");
            intake.abandon(sentence);
        });
        writer.ok().map(Writer::run)
    })
}

/// Whether an operator has to do the same about two errors.
fn is_same(one: &DiskError, other: &DiskError) -> bool {
    (one.kind, &one.reason) == (other.kind, &other.reason)
}

/// What is stored when its time comes is on the disk after so long.
const SYNC_MS: u64 = 100;

/// After so long without a message the last one is vouched for.
const QUIET_MS: u64 = 100;

/// How often a disk that failed is tried again.
const RETRY_MS: u64 = 1_000;

/// How soon after a snapshot that failed the next one may begin; twice as long with each.
const REWRITE_AGAIN_MS: u64 = 60_000;

/// How often it looks whether a snapshot is finished.
const REWRITING_LOOK_MS: u64 = 100;

/// How often it looks whether the directory is there.
const LOOK_MS: u64 = 1_000;

/// With fewer reserved numbers than this more are reserved.
fn numbers_ahead_min() -> u64 {
    if cfg!(test) || limits_are_small() { 40 } else { 1 << 19 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use stentor_hub::{Draft, Epoch, Limits, Precondition, Rule};
    use stentor_io::DiskErrorKind;
    use stentor_log::{DiskFaults, Recovery, Settings, SimDisk, during_syncs};
    use stentor_wire::target::TopicName;

    const SETTINGS: Settings =
        Settings { segment_bytes: 4_000, buffer_bytes: 3_000, log_bytes_min: 9_000, reserve: 200 };

    fn writer(disk: &SimDisk) -> Writer<SimDisk> {
        let recovered = Recovery::open(disk.clone()).unwrap().read(&mut |_, _| Ok(())).unwrap();
        let store = Store::begin(recovered, SETTINGS, 1);
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        let state = StoreState::new(usize::MAX, u64::MAX);
        state.attach(&hub);
        let mut writer = Writer::new(store, Arc::clone(&state.intake), hub);
        writer.step(Duration::ZERO, 0);
        writer
    }

    fn publish(writer: &Writer<SimDisk>, bytes: usize) {
        let (topic, draft) = (TopicName::parse("/a").unwrap(), Draft::new(vec![b'x'; bytes]));
        writer.hub.publish(topic, draft, Precondition::None, 1).unwrap();
    }

    /// Steps until the log is so long that a snapshot is due.
    fn fill(writer: &mut Writer<SimDisk>, now_ms: u64) {
        while !writer.store.snapshot_is_due() {
            publish(writer, 1_000);
            writer.step(Duration::ZERO, now_ms);
            writer.store.sync().unwrap();
        }
    }

    #[test]
    fn a_failed_disk_is_retried_every_second() {
        let disk = SimDisk::new(1);
        let mut writer = writer(&disk);
        disk.set_faults(DiskFaults { write_percent: 100, ..DiskFaults::default() });
        publish(&writer, 10);
        writer.step(Duration::ZERO, 1_000);
        writer.step(Duration::ZERO, 1_000 + SYNC_MS);
        assert_eq!(writer.intake.disk_error(), Some(DiskErrorKind::Failed));
        disk.set_faults(DiskFaults::default());
        for now_ms in (1_200..1_000 + SYNC_MS + RETRY_MS).step_by(100) {
            writer.step(Duration::ZERO, now_ms);
            assert_eq!(writer.intake.disk_error(), Some(DiskErrorKind::Failed), "{now_ms}");
        }
        writer.step(Duration::ZERO, 1_000 + SYNC_MS + RETRY_MS);
        assert_eq!((writer.intake.disk_error(), writer.intake.synced_seq()), (None, 1));
    }

    /// The operator removes the directory of a server that runs.
    #[test]
    fn a_removed_directory_is_made_again() {
        let disk = SimDisk::new(1);
        let mut writer = writer(&disk);
        publish(&writer, 10);
        writer.step(Duration::ZERO, 1_000);
        disk.vanish();
        writer.step(Duration::ZERO, 1_999);
        publish(&writer, 20);
        writer.step(Duration::ZERO, 2_000);
        let mut pass = writer.pass();
        while let Some(next) = pass {
            pass = next.step().map(|(pass, _)| pass);
        }
        writer.step(Duration::ZERO, 2_000 + SYNC_MS);
        assert_eq!(writer.intake.disk_error(), None);
        disk.cut_power();
        let hub = Hub::new(Epoch::from_number(1), Vec::new(), Limits::default());
        crate::load(Recovery::open(disk).unwrap(), &hub, 1, |_| {}).unwrap();
        assert_eq!(hub.value("/a").map(|value| value.data().len()), Some(20));
    }

    #[test]
    fn failed_snapshots_are_begun_less_often() {
        let mut writer = writer(&SimDisk::new(1));
        let mut now_ms = 1_000;
        fill(&mut writer, now_ms);
        let is_begun = |writer: &mut Writer<SimDisk>, now_ms| {
            writer.step(Duration::ZERO, now_ms);
            writer.pass()
        };
        // It was begun by one of the steps above; dropped, it has failed.
        assert!(is_begun(&mut writer, now_ms).is_some());
        for failures in [0, 1, 2, 3, 4, 5, 6, 6] {
            assert!(is_begun(&mut writer, now_ms).is_none());
            let pause_ms = REWRITE_AGAIN_MS << failures;
            assert!(is_begun(&mut writer, now_ms + pause_ms - 1).is_none());
            now_ms += pause_ms;
            assert!(is_begun(&mut writer, now_ms).is_some(), "{failures}");
        }
        writer.step(Duration::ZERO, now_ms);
        now_ms += REWRITE_AGAIN_MS << 6;
        let mut next = is_begun(&mut writer, now_ms);
        assert_eq!(writer.patience(now_ms), Duration::from_millis(REWRITING_LOOK_MS));
        while let Some(pass) = next {
            next = pass.step().map(|(pass, _)| pass);
        }
        writer.step(Duration::ZERO, now_ms);
        assert_eq!(writer.intake.stats.snapshot_bytes.value(), writer.store.snapshot_bytes());
        // After one that was made the first failure costs the shortest pause.
        fill(&mut writer, now_ms);
        assert!(is_begun(&mut writer, now_ms).is_some());
        writer.step(Duration::ZERO, now_ms);
        assert!(is_begun(&mut writer, now_ms + REWRITE_AGAIN_MS).is_some());
    }

    #[test]
    fn the_last_message_is_vouched_for_in_time() {
        let mut writer = writer(&SimDisk::new(1));
        let bytes = |writer: &mut Writer<SimDisk>, now_ms| {
            writer.step(Duration::ZERO, now_ms);
            writer.store.bytes_written()
        };
        let idle = bytes(&mut writer, 900);
        publish(&writer, 10);
        assert_eq!(bytes(&mut writer, 1_000), idle);
        publish(&writer, 10);
        assert_eq!(bytes(&mut writer, 1_050), idle);
        assert_eq!(bytes(&mut writer, 999 + SYNC_MS), idle);
        let synced = bytes(&mut writer, 1_000 + SYNC_MS);
        assert!(synced > idle && writer.intake.synced_seq() == 2);
        let marks_on_disk = Rc::new(Cell::new(0));
        let count = Rc::clone(&marks_on_disk);
        let meanwhile = move || count.set(count.get() + 1);
        during_syncs(meanwhile, || {
            assert_eq!(bytes(&mut writer, 1_049 + QUIET_MS), synced);
            assert_eq!(marks_on_disk.get(), 0);
            bytes(&mut writer, 1_050 + QUIET_MS);
            assert_eq!(marks_on_disk.get(), 1);
        });
    }

    #[test]
    fn numbers_of_unstored_messages_are_not_reused() {
        let mut writer = writer(&SimDisk::new(1));
        writer.hub.set_rules(vec![Rule { keep: Some(Keep::None), ..Rule::default() }]);
        publish(&writer, 10);
        writer.step(Duration::ZERO, 1_000);
        assert_eq!(writer.end().writer.store.last(), 1);
    }

    #[test]
    fn the_account_of_the_intake_is_settled() {
        let mut writer = writer(&SimDisk::new(1));
        let is_full = |writer: &Writer<SimDisk>| writer.intake.is_full.load(Ordering::Relaxed);
        for _ in 0..20 {
            publish(&writer, 1_000);
            assert!(!is_full(&writer));
            writer.step(Duration::ZERO, 1_000);
        }
        // A message without data takes memory, too.
        (0..100).for_each(|_| publish(&writer, 0));
        assert!(is_full(&writer));
    }
}
