//! What the hub has told and the ring has not taken in yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use stentor_hub::{Event, Rule, Subscriber};
use stentor_io::{Waker, limits_are_small};

/// What waits for the ring.
pub(super) struct Intake {
    waiting: Mutex<WaitingChanges>,
    /// Something does.
    has_news: AtomicBool,
    /// Of the worker that takes it.
    waker: Arc<Waker>,
}

#[derive(Default)]
struct WaitingChanges {
    is_open: bool,
    news: Vec<OrderedChange>,
    /// What it keeps in memory, roughly.
    bytes: usize,
    /// Something was dropped.
    cut: Option<IntakeCut>,
}

/// Something that has its place in the order.
pub(super) enum OrderedChange {
    Event(Event),
    /// The rules were replaced: their generation.
    Rules(u64, Box<[Rule]>),
}

impl OrderedChange {
    /// What it keeps in memory, roughly.
    pub(super) fn bytes(&self) -> usize {
        match self {
            OrderedChange::Event(event) => event.message.kept_bytes(),
            OrderedChange::Rules(_, rules) => size_of_val::<[Rule]>(rules),
        }
    }
}

/// Why what waits does not go on where the ring ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IntakeCut {
    /// So much waited that nobody took it in any more.
    TooMuch,
    /// Everything was replaced at one go: this server follows another one.
    Replaced,
}

impl Intake {
    pub(super) fn new(waker: Arc<Waker>) -> Intake {
        Intake { waiting: Mutex::default(), has_news: AtomicBool::new(false), waker }
    }

    /// What comes from now on is kept.
    pub(super) fn open(&self) {
        *self.waiting() = WaitingChanges { is_open: true, ..WaitingChanges::default() };
        self.has_news.store(false, Ordering::Release);
    }

    /// Nothing is.
    pub(super) fn close(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        self.has_news.store(false, Ordering::Release);
        // Outside of the lock, for there may be much to drop.
        drop(waiting);
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// Takes all of it.
    ///
    /// # Errors
    /// [`IntakeCut`]
    pub(super) fn take(&self) -> Result<Vec<OrderedChange>, IntakeCut> {
        let mut waiting = self.waiting();
        self.has_news.store(false, Ordering::Release);
        waiting.bytes = 0;
        let news = std::mem::take(&mut waiting.news);
        waiting.cut.map_or(Ok(news), Err)
    }

    fn put(&self, news: OrderedChange) {
        let mut waiting = self.waiting();
        if !waiting.is_open || waiting.cut.is_some() {
            return;
        }
        waiting.bytes += news.bytes();
        if waiting.bytes > waiting_bytes_max() {
            waiting.cut = Some(IntakeCut::TooMuch);
        }
        waiting.news.push(news);
        self.has_news.store(true, Ordering::Release);
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingChanges> {
        stentor_io::lock(&self.waiting)
    }
}

impl Subscriber for Intake {
    fn notify(&self, event: &Event) {
        self.put(OrderedChange::Event(event.clone()));
    }

    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        self.put(OrderedChange::Rules(generation, rules.into()));
    }

    fn replaced(&self, _: u64) {
        let mut waiting = self.waiting();
        if waiting.is_open {
            waiting.cut = Some(IntakeCut::Replaced);
            self.has_news.store(true, Ordering::Release);
        }
    }

    fn wake(&self) {
        self.waker.wake();
    }
}

/// What may wait, in bytes of messages. The worker takes it in each turn: it has stood still if
/// there is more.
fn waiting_bytes_max() -> usize {
    if cfg!(test) || limits_are_small() { 64 << 10 } else { 64 << 20 }
}
