//! The changes of a hub, queued for one consumer: a replication ring, or a copy of the hub.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use stentor_hub::{Event, Filter, Hub, Rule, Subscriber, SubscriberId, encode_event, encode_rules};
use stentor_io::Waker;

/// A change that has its place in the order of a hub.
pub enum HubChange {
    /// A message, or a deletion.
    Event(Event),
    /// The topic rules were replaced: their generation.
    Rules(u64, Box<[Rule]>),
}

impl HubChange {
    /// The memory that the queue holds for it, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        size_of::<HubChange>()
            + match self {
                HubChange::Event(event) => event.message.kept_bytes() + event.topic().len(),
                HubChange::Rules(_, rules) => size_of_val::<[Rule]>(rules),
            }
    }

    /// Appends it as the entry that it was.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            HubChange::Event(event) => encode_event(event, out),
            HubChange::Rules(generation, rules) => encode_rules(*generation, rules, out),
        }
    }
}

/// Queues the changes of a hub while it is open. Its memory is limited: if the consumer takes too
/// little, the queue is cut, and the consumer must copy the hub again.
pub struct ChangeQueue {
    subscriber: SubscriberId,
    intake: Arc<Intake>,
}

struct Intake {
    queued: Mutex<Queued>,
    /// The consumer has something to take.
    has_changes: AtomicBool,
    /// Wakes the consumer, unless it polls.
    waker: Option<Arc<Waker>>,
}

#[derive(Default)]
struct Queued {
    is_open: bool,
    changes: Vec<HubChange>,
    bytes: usize,
    bytes_max: usize,
    cut: Option<QueueCut>,
}

/// Why the queue lacks changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueCut {
    /// The consumer took too little, and the limit was reached.
    Full,
    /// All topics were replaced at once: this server follows a leader.
    Replaced,
}

impl fmt::Display for QueueCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueCut::Full => "more was published at once than the queue of changes holds",
            QueueCut::Replaced => "all topics were replaced meanwhile",
        })
    }
}

impl ChangeQueue {
    /// A closed queue. A hub never forgets a subscriber: make one, and open it again and again.
    pub fn new(hub: &Hub, waker: Option<Arc<Waker>>) -> ChangeQueue {
        let (queued, has_changes) = (Mutex::default(), AtomicBool::new(false));
        let intake = Arc::new(Intake { queued, has_changes, waker });
        let subscriber = hub.add_subscriber(Arc::clone(&intake) as Arc<dyn Subscriber>);
        ChangeQueue { subscriber, intake }
    }

    /// Queues at most `bytes_max` bytes of changes from now on. Returns the number after which they
    /// begin.
    pub fn open(&self, hub: &Hub, bytes_max: usize) -> u64 {
        self.intake.reset(Queued { is_open: true, bytes_max, ..Queued::default() });
        hub.subscribe(self.subscriber, &Filter::any(), Arc::default())
    }

    /// The same beside a copy of the hub: at most a quarter of what the hub may store.
    pub fn open_for_copy(&self, hub: &Hub) {
        self.open(hub, COPY_BYTES_MAX.min(hub.stored_bytes_max() / COPY_PART));
    }

    /// Queues no more changes, and drops those that were not taken.
    pub fn close(&self, hub: &Hub) {
        hub.unsubscribe(self.subscriber, &Filter::any());
        self.intake.reset(Queued::default());
    }

    /// Whether [`ChangeQueue::take`] returns something.
    pub fn has_changes(&self) -> bool {
        self.intake.has_changes.load(Ordering::Acquire)
    }

    /// Takes all changes that are queued.
    ///
    /// # Errors
    /// The queue was cut. It stays so until it is opened again.
    pub fn take(&self) -> Result<Vec<HubChange>, QueueCut> {
        let mut queued = self.intake.queued();
        self.intake.has_changes.store(false, Ordering::Release);
        queued.bytes = 0;
        let (changes, cut) = (std::mem::take(&mut queued.changes), queued.cut);
        // The changes of a queue that was cut are dropped without the lock: publishers wait for it.
        drop(queued);
        cut.map_or(Ok(changes), Err)
    }
}

impl Intake {
    fn reset(&self, with: Queued) {
        let before = std::mem::replace(&mut *self.queued(), with);
        self.has_changes.store(false, Ordering::Release);
        // Without the lock, as in `take`.
        drop(before);
    }

    fn put(&self, change: impl FnOnce() -> HubChange) {
        let mut queued = self.queued();
        if !queued.is_open || queued.cut.is_some() {
            return;
        }
        let change = change();
        queued.bytes += change.bytes();
        if queued.bytes > queued.bytes_max {
            queued.cut = Some(QueueCut::Full);
        }
        queued.changes.push(change);
        self.has_changes.store(true, Ordering::Release);
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        stentor_io::lock(&self.queued)
    }
}

impl Subscriber for Intake {
    fn notify(&self, event: &Event) {
        self.put(|| HubChange::Event(event.clone()));
    }

    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        self.put(|| HubChange::Rules(generation, rules.into()));
    }

    fn replaced(&self, _: u64) {
        let mut queued = self.queued();
        if queued.is_open {
            queued.cut = Some(QueueCut::Replaced);
            self.has_changes.store(true, Ordering::Release);
        }
    }

    fn wake(&self) {
        self.waker.iter().for_each(|waker| waker.wake());
    }
}

/// The most that may be queued beside a copy between two calls of [`ChangeQueue::take`], in bytes.
const COPY_BYTES_MAX: usize = 256 << 20;

/// It is at most this part of the limit of stored memory, beside it.
const COPY_PART: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Limits, Precondition};
    use stentor_wire::target::TopicName;

    fn hub(stored_bytes_max: usize) -> Hub {
        let limits = Limits { stored_bytes_max, ..Limits::default() };
        Hub::new(Epoch::from_number(1), Vec::new(), limits)
    }

    fn publish(hub: &Hub, bytes: usize) {
        let topic = TopicName::parse("/a").unwrap();
        hub.publish(topic, Draft::new(vec![b'x'; bytes]), Precondition::None, 0).unwrap();
    }

    /// Numbers of messages, and generations of rules behind a minus.
    fn taken(queue: &ChangeQueue) -> Result<Vec<i64>, QueueCut> {
        let change = |change: &HubChange| match change {
            HubChange::Event(event) => event.seq() as i64,
            HubChange::Rules(generation, _) => -(*generation as i64),
        };
        queue.take().map(|changes| changes.iter().map(change).collect())
    }

    #[test]
    fn an_open_queue_has_all_changes_once() {
        let hub = hub(usize::MAX);
        let queue = ChangeQueue::new(&hub, None);
        publish(&hub, 1);
        hub.set_rules(Vec::new());
        assert_eq!((queue.has_changes(), taken(&queue)), (false, Ok(vec![])));
        let begin = queue.open(&hub, 10_000);
        assert_eq!(begin, 1);
        publish(&hub, 1);
        hub.set_rules(Vec::new());
        let generation = hub.rules().0 as i64;
        publish(&hub, 1);
        assert!(queue.has_changes());
        assert_eq!(taken(&queue), Ok(vec![2, -generation, 3]));
        assert_eq!((queue.has_changes(), taken(&queue)), (false, Ok(vec![])));
        // The limit applies to changes that wait, not to all that ever came.
        for _ in 0..100 {
            publish(&hub, 1_000);
            assert!(taken(&queue).is_ok());
        }
        publish(&hub, 1);
        queue.close(&hub);
        publish(&hub, 1);
        assert_eq!((queue.has_changes(), taken(&queue)), (false, Ok(vec![])));
    }

    #[test]
    fn a_full_queue_stays_cut_until_reopened() {
        let hub = hub(8_000);
        let queue = ChangeQueue::new(&hub, None);
        queue.open_for_copy(&hub);
        publish(&hub, 700);
        assert!(taken(&queue).is_ok());
        (0..3).for_each(|_| publish(&hub, 700));
        assert!(queue.has_changes(), "more than a quarter of the limit");
        assert_eq!(taken(&queue), Err(QueueCut::Full));
        publish(&hub, 1);
        assert_eq!(taken(&queue), Err(QueueCut::Full));
        assert!(queue.intake.queued().changes.is_empty(), "nothing is queued any more");
        queue.open(&hub, usize::MAX);
        publish(&hub, 2_500);
        assert_eq!(taken(&queue).map(|changes| changes.len()), Ok(1));
    }

    #[test]
    fn a_replaced_hub_cuts_the_queue() {
        let hub = hub(usize::MAX);
        let queue = ChangeQueue::new(&hub, None);
        let replace = || queue.intake.replaced(9);
        replace();
        assert!(!queue.has_changes(), "it is closed");
        queue.open(&hub, usize::MAX);
        replace();
        assert_eq!((queue.has_changes(), taken(&queue)), (true, Err(QueueCut::Replaced)));
    }

    #[test]
    fn changes_are_encoded_as_entries() {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        HubChange::Rules(3, [Rule::default()].into()).encode(&mut bytes);
        encode_rules(3, &[Rule::default()], &mut expected);
        assert_eq!(bytes, expected);
    }
}
