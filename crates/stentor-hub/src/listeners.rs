//! Who is told of what: the workers, and the topics and patterns their readers want.
//!
//! The hub does not know readers, only listeners: a worker says which filters its readers have, and
//! is told once of every message that one of them matches. All of this sits inside the sequencing
//! point. So a listener is told in the one order, and from an exact number on: a reader that
//! begins is owed what is older by history, and will be told of the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::filter::{Filter, Filters};
use crate::message::Message;
use crate::news::News;
use crate::topic::Topic;

/// What is told of every message that one of its filters wants.
pub trait Listener: Send + Sync {
    /// Takes news. Called inside the sequencing point, in order, while every publisher waits: it
    /// must be quick, must not panic, and must not call the hub.
    fn tell(&self, news: &News);

    /// Called once it was told, outside of the sequencing point: the time for what takes longer,
    /// such as to wake a thread.
    fn wake(&self) {}
}

/// Names a listener to the hub it was added to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId(u32);

/// The listeners of a hub and their filters.
#[derive(Default)]
pub(crate) struct Listeners {
    all: Vec<Entry>,
    filters: Filters<Vec<Interest>>,
}

struct Entry {
    listener: Arc<dyn Listener>,
    /// The number of the message it was told of last, so that it is told once.
    told: u64,
}

/// One listener's share in a filter.
struct Interest {
    id: ListenerId,
    readers: Arc<AtomicU32>,
}

impl Listeners {
    pub(crate) fn add(&mut self, listener: Arc<dyn Listener>) -> ListenerId {
        let id = ListenerId(self.all.len() as u32);
        self.all.push(Entry { listener, told: 0 });
        id
    }

    pub(crate) fn listen(&mut self, id: ListenerId, filter: &Filter, readers: Arc<AtomicU32>) {
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

    pub(crate) fn ignore(&mut self, id: ListenerId, filter: &Filter) {
        if let Some(interests) = self.filters.get_mut(filter) {
            interests.retain(|known| known.id != id);
            if interests.is_empty() {
                self.filters.remove(filter);
            }
        }
    }

    /// Tells everybody who wants it.
    pub(crate) fn tell(&mut self, topic: &Arc<Topic>, message: &Arc<Message>) -> Told {
        let mut told = Told::default();
        let mut news = None;
        self.filters.matching(topic.name(), |interests| {
            let news = news.get_or_insert_with(|| News::new(topic.clone(), message.clone()));
            for interest in interests {
                told.readers += u64::from(interest.readers.load(Ordering::Relaxed));
                let entry = &mut self.all[interest.id.0 as usize];
                if entry.told != news.seq() {
                    entry.told = news.seq();
                    entry.listener.tell(news);
                    told.listeners.push(Arc::clone(&entry.listener));
                }
            }
        });
        told
    }
}

/// Who was told of a message.
#[derive(Default)]
#[must_use]
pub(crate) struct Told {
    listeners: Vec<Arc<dyn Listener>>,
    /// The readers who stand behind them.
    pub(crate) readers: u64,
}

impl Told {
    /// To be called outside of the sequencing point.
    pub(crate) fn wake(&self) {
        self.listeners.iter().for_each(|listener| listener.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Draft, Epoch, Hub, Limits, Precondition};

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Listener for Notes {
        fn tell(&self, news: &News) {
            let verb = if news.message.is_deletion() { "-" } else { "" };
            self.0.lock().unwrap().push(format!("{verb}{} {}", news.topic(), news.seq()));
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
        hub.publish(topic, Draft::new(*b"x"), Precondition::None, 0).unwrap().readers
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
        let (id_one, id_two) = (hub.add_listener(one.clone()), hub.add_listener(two.clone()));
        assert_eq!(readers_of(&hub, "/a"), 0);
        for text in ["/a", "/*", "/**"] {
            assert_eq!(hub.listen(id_one, &filter(text), readers(10)), 1);
        }
        let of_two = readers(1);
        hub.listen(id_two, &filter("/*"), of_two.clone());
        assert_eq!(readers_of(&hub, "/a"), 31, "of every filter and listener");
        of_two.store(5, Ordering::Relaxed);
        assert_eq!(readers_of(&hub, "/b"), 25);
        assert_eq!(readers_of(&hub, "/b/c"), 10);
        hub.delete("/b", Precondition::None, 0).unwrap();
        assert_eq!(one.taken(), ["/a 2", "/b 3", "/b/c 4", "-/b 5"]);
        assert_eq!(two.taken(), ["/a 2", "/b 3", "-/b 5"]);
    }

    #[test]
    fn to_ignore_ends_it_for_that_listener_and_filter() {
        let hub = hub();
        let (one, two) = (Arc::new(Notes::default()), Arc::new(Notes::default()));
        let (id_one, id_two) = (hub.add_listener(one.clone()), hub.add_listener(two.clone()));
        for id in [id_one, id_two] {
            hub.listen(id, &filter("/a"), readers(1));
        }
        assert_eq!(hub.listen(id_one, &filter("/a"), readers(3)), 0, "replaces its own");
        assert_eq!(readers_of(&hub, "/a"), 4);
        hub.ignore(id_one, &filter("/a"));
        hub.ignore(id_one, &filter("/a"));
        hub.ignore(id_two, &filter("/*"));
        assert_eq!(readers_of(&hub, "/a"), 1);
        hub.ignore(id_two, &filter("/a"));
        assert_eq!(readers_of(&hub, "/a"), 0);
        assert_eq!((one.taken().len(), two.taken().len()), (1, 2));
        assert!(hub.listen(id_one, &filter("/a"), readers(0)) == 3);
        assert_eq!(readers_of(&hub, "/a"), 0, "nobody reads, but it is told");
        assert_eq!(one.taken(), ["/a 4"]);
    }

    /// Compares the number it is told with the latest one that everybody sees.
    struct Compare(std::sync::Weak<Hub>);

    impl Listener for Compare {
        fn tell(&self, news: &News) {
            let hub = self.0.upgrade().unwrap();
            assert_eq!(hub.seq(), news.seq());
            let value = hub.with_value(news.topic(), |value| value.map(|value| value.seq()));
            assert_eq!(value, (!news.message.is_deletion()).then(|| news.seq()));
        }
    }

    /// Else a reader could begin at an old number after its worker was told of a newer message.
    #[test]
    fn a_message_is_there_and_counted_before_it_is_told() {
        let hub = Arc::new(hub());
        let id = hub.add_listener(Arc::new(Compare(Arc::downgrade(&hub))));
        hub.listen(id, &filter("/a"), readers(1));
        for _ in 0..2 {
            readers_of(&hub, "/a");
        }
        hub.delete("/a", Precondition::None, 0).unwrap();
        assert_eq!((readers_of(&hub, "/a"), hub.seq()), (1, 4));
    }

    #[test]
    fn news_know_their_topic() {
        let hub = hub();
        let notes = Arc::new(Kept::default());
        let id = hub.add_listener(notes.clone());
        hub.listen(id, &filter("/**"), readers(1));
        for topic in ["/a", "/b", "/a"] {
            readers_of(&hub, topic);
        }
        hub.delete("/a", Precondition::None, 0).unwrap();
        readers_of(&hub, "/a");
        let news = notes.0.lock().unwrap();
        let same = |a: usize, b: usize| news[a].is_same_topic(&news[b]);
        assert!(same(0, 2) && same(0, 3) && !same(0, 1));
        assert!(!same(0, 4), "a topic that came back is another one");
    }

    #[derive(Default)]
    struct Kept(Mutex<Vec<News>>);

    impl Listener for Kept {
        fn tell(&self, news: &News) {
            self.0.lock().unwrap().push(news.clone());
        }
    }
}
