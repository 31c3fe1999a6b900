//! Who is told of what: the workers, and the topics and patterns their readers want.
//!
//! The hub does not know readers, only subscribers: a worker says which filters its readers have,
//! and is told once of every message that one of them matches. All of this sits inside the
//! sequencing point. So a subscriber is told in the one order, and from an exact number on: a
//! reader that begins is owed what is older by history, and will be told of the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::event::Event;
use crate::filter::{Filter, Filters};
use crate::message::Message;
use crate::rules::Rule;
use crate::topic::Topic;

/// What is told of every message that one of its filters wants.
pub trait Subscriber: Send + Sync {
    /// Takes an event. Called inside the sequencing point, in order, while every publisher waits:
    /// it must be quick, must not panic, and must not call the hub.
    fn notify(&self, event: &Event);

    /// The rules were replaced, between what it was told of before and what comes next. Called as
    /// [`Subscriber::notify`] is.
    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        let _ = (generation, rules);
    }

    /// All that there is up to this number was replaced at one go, between what it was told of
    /// before and what comes next: something may be missing in between. Called as
    /// [`Subscriber::notify`] is.
    fn replaced(&self, seq: u64) {
        let _ = seq;
    }

    /// Called once it was told, outside of the sequencing point: the time for what takes longer,
    /// such as to wake a thread.
    fn wake(&self) {}
}

/// Names a subscriber to the hub it was added to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubscriberId(u32);

/// The subscribers of a hub and their filters.
#[derive(Default)]
pub(crate) struct Subscribers {
    all: Vec<Registration>,
    filters: Filters<Vec<Interest>>,
}

struct Registration {
    subscriber: Arc<dyn Subscriber>,
    /// The number of the message it was notified of last, so that it is notified once.
    notified_seq: u64,
}

/// One subscriber's share in a filter.
struct Interest {
    id: SubscriberId,
    readers: Arc<AtomicU32>,
}

impl Subscribers {
    pub(crate) fn add(&mut self, subscriber: Arc<dyn Subscriber>) -> SubscriberId {
        let id = SubscriberId(self.all.len() as u32);
        self.all.push(Registration { subscriber, notified_seq: 0 });
        id
    }

    pub(crate) fn subscribe(&mut self, id: SubscriberId, filter: &Filter, readers: Arc<AtomicU32>) {
        let interest = Interest { id, readers };
        match self.filters.get_mut(filter) {
            None => {
                self.filters.insert(filter, vec![interest]);
            }
            Some(interests) => match interests.iter_mut().find(|known| known.id == id) {
                Some(known) => *known = interest,
                None => interests.push(interest),
            },
        }
    }

    pub(crate) fn unsubscribe(&mut self, id: SubscriberId, filter: &Filter) {
        if let Some(interests) = self.filters.get_mut(filter) {
            interests.retain(|known| known.id != id);
            if interests.is_empty() {
                self.filters.remove(filter);
            }
        }
    }

    pub(crate) fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        self.all.iter().for_each(|entry| entry.subscriber.rules_replaced(generation, rules));
    }

    /// Tells everybody.
    pub(crate) fn replaced(&self, seq: u64) -> Notified {
        let subscribers: Vec<_> =
            self.all.iter().map(|entry| Arc::clone(&entry.subscriber)).collect();
        subscribers.iter().for_each(|subscriber| subscriber.replaced(seq));
        Notified { subscribers, readers: 0 }
    }

    /// Tells everybody who wants it.
    pub(crate) fn notify(&mut self, topic: &Arc<Topic>, message: &Arc<Message>) -> Notified {
        let mut notified = Notified::default();
        let mut event = None;
        self.filters.matching(topic.name(), |interests| {
            let event = event.get_or_insert_with(|| Event::new(topic.clone(), message.clone()));
            for interest in interests {
                notified.readers += u64::from(interest.readers.load(Ordering::Relaxed));
                let entry = &mut self.all[interest.id.0 as usize];
                if entry.notified_seq != event.seq() {
                    entry.notified_seq = event.seq();
                    entry.subscriber.notify(event);
                    notified.subscribers.push(Arc::clone(&entry.subscriber));
                }
            }
        });
        notified
    }
}

/// Who was told of a message.
#[derive(Default)]
#[must_use]
pub(crate) struct Notified {
    subscribers: Vec<Arc<dyn Subscriber>>,
    /// The readers who stand behind them.
    pub(crate) readers: u64,
}

impl Notified {
    /// To be called outside of the sequencing point.
    pub(crate) fn wake(&self) {
        self.subscribers.iter().for_each(|subscriber| subscriber.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::hub::tests::name;
    use crate::{Draft, Epoch, Hub, Limits, Precondition};

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Subscriber for Notes {
        fn notify(&self, event: &Event) {
            let verb = if event.message.is_deletion() { "-" } else { "" };
            self.0.lock().unwrap().push(format!("{verb}{} {}", event.topic(), event.seq()));
        }
    }

    impl Notes {
        fn taken(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn hub() -> Hub {
        Hub::new(Epoch::random(), vec![], Limits::default())
    }

    fn readers_of(hub: &Hub, topic: &str) -> u64 {
        hub.publish(name(topic), Draft::new(*b"x"), Precondition::None, 0).unwrap().readers
    }

    fn filter(text: &str) -> Filter {
        Filter::parse(text).unwrap()
    }

    fn readers(count: u32) -> Arc<AtomicU32> {
        Arc::new(AtomicU32::new(count))
    }

    #[test]
    fn each_is_told_once_of_what_it_wants() {
        let hub = hub();
        let (one, two) = (Arc::new(Notes::default()), Arc::new(Notes::default()));
        let (id_one, id_two) = (hub.add_subscriber(one.clone()), hub.add_subscriber(two.clone()));
        assert_eq!(readers_of(&hub, "/a"), 0);
        for text in ["/a", "/*", "/**"] {
            assert_eq!(hub.subscribe(id_one, &filter(text), readers(10)), 1);
        }
        let of_two = readers(1);
        hub.subscribe(id_two, &filter("/*"), of_two.clone());
        assert_eq!(readers_of(&hub, "/a"), 31, "of every filter and subscriber");
        of_two.store(5, Ordering::Relaxed);
        assert_eq!(readers_of(&hub, "/b"), 25);
        assert_eq!(readers_of(&hub, "/b/c"), 10);
        hub.delete(name("/b"), Precondition::None, 0).unwrap();
        assert_eq!(one.taken(), ["/a 2", "/b 3", "/b/c 4", "-/b 5"]);
        assert_eq!(two.taken(), ["/a 2", "/b 3", "-/b 5"]);
    }

    #[test]
    fn to_unsubscribe_ends_it_for_that_subscriber_and_filter() {
        let hub = hub();
        let (one, two) = (Arc::new(Notes::default()), Arc::new(Notes::default()));
        let (id_one, id_two) = (hub.add_subscriber(one.clone()), hub.add_subscriber(two.clone()));
        for id in [id_one, id_two] {
            hub.subscribe(id, &filter("/a"), readers(1));
        }
        assert_eq!(hub.subscribe(id_one, &filter("/a"), readers(3)), 0, "replaces its own");
        assert_eq!(readers_of(&hub, "/a"), 4);
        hub.unsubscribe(id_one, &filter("/a"));
        hub.unsubscribe(id_one, &filter("/a"));
        hub.unsubscribe(id_two, &filter("/*"));
        assert_eq!(readers_of(&hub, "/a"), 1);
        hub.unsubscribe(id_two, &filter("/a"));
        assert_eq!(readers_of(&hub, "/a"), 0);
        assert_eq!((one.taken().len(), two.taken().len()), (1, 2));
        assert!(hub.subscribe(id_one, &filter("/a"), readers(0)) == 3);
        assert_eq!(readers_of(&hub, "/a"), 0, "nobody reads, but it is told");
        assert_eq!(one.taken(), ["/a 4"]);
    }

    /// Compares the number it is told with the latest one that everybody sees.
    struct Compare(std::sync::Weak<Hub>);

    impl Subscriber for Compare {
        fn notify(&self, event: &Event) {
            let hub = self.0.upgrade().unwrap();
            assert_eq!(hub.seq(), event.seq());
            let value = hub.with_value(event.topic(), |value| value.map(|value| value.seq()));
            assert_eq!(value, (!event.message.is_deletion()).then(|| event.seq()));
        }
    }

    /// Else a reader could begin at an old number after its worker was told of a newer message.
    #[test]
    fn a_message_is_there_and_counted_before_it_is_told() {
        let hub = Arc::new(hub());
        let id = hub.add_subscriber(Arc::new(Compare(Arc::downgrade(&hub))));
        hub.subscribe(id, &filter("/a"), readers(1));
        for _ in 0..2 {
            readers_of(&hub, "/a");
        }
        hub.delete(name("/a"), Precondition::None, 0).unwrap();
        assert_eq!((readers_of(&hub, "/a"), hub.seq()), (1, 4));
    }
}
