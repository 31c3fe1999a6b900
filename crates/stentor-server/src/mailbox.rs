//! What other threads tell a worker, in one order: events that were published, and orders; and a
//! waker for when it sleeps. Whoever writes to a worker that has ended writes to nobody, and
//! nothing is kept.

use crate::pressure::Pressures;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use stentor_access::Keys;
use stentor_config::Settings;
use stentor_files::FileLook;
use stentor_hub::{Event, Subscriber};
use stentor_io::{Waker, monotonic_us};
use stentor_order::{Notifier, Outcomes, Ticket};

/// An order to a worker.
#[derive(Debug)]
pub enum Order {
    /// Let no new connection begin, answer what was asked, end.
    Drain,
    /// Go by these settings from now on.
    Reload(Arc<Settings>),
    /// Verify tokens with these keys from now on.
    Keys(Arc<Keys>),
    /// Each kind of memory is so short from now on.
    Memory(Pressures),
    /// Tell connections what came of their changes.
    Committed(Outcomes),
    /// Tell a connection what the loader found.
    FileLook(Box<(Ticket, FileLook)>),
}

/// Something a worker is told.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A message, and when it was published on the clock of [`monotonic_us`].
    Event(Event, u64),
    /// All up to this number was replaced at one go, at this time: see [`Subscriber::replaced`].
    Replaced(u64, u64),
    Order(Order),
}

// A worker may be told of many messages at once.
const _: () = assert!(size_of::<Mail>() <= 32);

/// One worker's mailbox. What is in it is taken in the order it was put.
#[derive(Debug)]
pub struct Mailbox {
    contents: Mutex<Contents>,
    waker: Arc<Waker>,
}

#[derive(Debug, Default)]
struct Contents {
    mail: VecDeque<Mail>,
    /// The worker has ended.
    is_closed: bool,
}

impl Mailbox {
    /// An empty mailbox. To be made before workers take file tables of their own.
    pub fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { contents: Mutex::default(), waker: Arc::new(Waker::new()?) })
    }

    /// Puts an order in and wakes the worker if it sleeps.
    pub fn put(&self, order: Order) {
        let mut contents = self.contents();
        if !contents.is_closed {
            contents.mail.push_back(Mail::Order(order));
            self.waker.wake();
        }
    }

    /// Swaps what is in it for an empty list, which is used again.
    pub(crate) fn swap(&self, mail: &mut VecDeque<Mail>) {
        std::mem::swap(&mut self.contents().mail, mail);
    }

    /// The worker has ended: drops what is in the mailbox, and all that comes.
    pub fn close(&self) {
        let mut contents = self.contents();
        contents.is_closed = true;
        let dropped = std::mem::take(&mut contents.mail);
        // Publishers wait for the lock, and there may be much to drop.
        drop(contents);
        drop(dropped);
    }

    /// The waker of the worker that reads this mailbox.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        stentor_io::lock(&self.contents)
    }
}

impl Subscriber for Mailbox {
    fn notify(&self, event: &Event) {
        let now_us = monotonic_us();
        let mut contents = self.contents();
        if !contents.is_closed {
            contents.mail.push_back(Mail::Event(event.clone(), now_us));
        }
    }

    fn replaced(&self, seq: u64) {
        let now_us = monotonic_us();
        let mut contents = self.contents();
        if !contents.is_closed {
            contents.mail.push_back(Mail::Replaced(seq, now_us));
        }
    }

    fn wake(&self) {
        self.waker.wake();
    }
}

impl Notifier for Mailbox {
    fn committed(&self, outcomes: Outcomes) {
        self.put(Order::Committed(outcomes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Filter, Hub, Limits, Precondition};
    use stentor_wire::target::TopicName;

    #[test]
    fn nothing_is_kept_for_a_worker_that_has_ended() {
        let hub = Hub::new(Epoch::random(), Vec::new(), Limits::default());
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let id = hub.add_subscriber(Arc::clone(&mailbox) as Arc<dyn Subscriber>);
        hub.subscribe(id, &Filter::parse("/a").unwrap(), Arc::default());
        let publish = || {
            hub.publish(TopicName::parse("/a").unwrap(), Draft::new(*b"x"), Precondition::None, 0)
                .unwrap()
        };
        publish();
        mailbox.put(Order::Drain);
        assert_eq!(mailbox.contents().mail.len(), 2);
        mailbox.close();
        for _ in 0..2 {
            assert!(mailbox.contents().mail.is_empty());
            publish();
            mailbox.put(Order::Drain);
        }
    }

    #[test]
    fn whoever_is_told_something_is_woken() {
        let hub = Hub::new(Epoch::random(), Vec::new(), Limits::default());
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let id = hub.add_subscriber(Arc::clone(&mailbox) as Arc<dyn Subscriber>);
        hub.subscribe(id, &Filter::parse("/a").unwrap(), Arc::default());
        let publish = |topic| {
            let topic = TopicName::parse(topic).unwrap();
            hub.publish(topic, Draft::new(*b"x"), Precondition::None, 0).unwrap();
        };
        publish("/b");
        assert!(!mailbox.waker().take());
        publish("/a");
        assert!(mailbox.waker().take());
        hub.delete(TopicName::parse("/a").unwrap(), Precondition::None, 0).unwrap();
        assert!(mailbox.waker().take());
        mailbox.put(Order::Drain);
        assert!(mailbox.waker().take() && !mailbox.waker().take());
    }
}
