//! What other threads tell a worker: orders, and events that were published; and a waker for when
//! it sleeps. Whoever writes to a worker that has ended writes to nobody, and nothing is kept.

use crate::config::Settings;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_hub::{Event, Subscriber};
use stentor_io::{Waker, monotonic_us};

/// An order to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Let no new connection begin, answer what was asked, end.
    Drain,
    /// Go by these settings from now on.
    Reload(Arc<Settings>),
}

/// One worker's mailbox. What is in it is taken in the order it was put.
#[derive(Debug)]
pub(crate) struct Mailbox {
    contents: Mutex<Contents>,
    waker: Arc<Waker>,
}

#[derive(Debug, Default)]
struct Contents {
    orders: Vec<Order>,
    /// Messages, and when they were published on the clock of [`monotonic_us`].
    events: VecDeque<(Event, u64)>,
    /// The worker has ended.
    is_closed: bool,
}

impl Mailbox {
    /// An empty mailbox. To be made before workers take file tables of their own.
    pub(crate) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { contents: Mutex::default(), waker: Arc::new(Waker::new()?) })
    }

    /// Puts an order in and wakes the worker if it sleeps.
    pub(crate) fn put(&self, order: Order) {
        let mut contents = self.contents();
        if !contents.is_closed {
            contents.orders.push(order);
            self.waker.wake();
        }
    }

    /// Takes the orders out; the worker calls this after it was woken.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.contents().orders)
    }

    /// Swaps the events for an empty list, which is used again.
    pub(crate) fn swap_events(&self, events: &mut VecDeque<(Event, u64)>) {
        std::mem::swap(&mut self.contents().events, events);
    }

    /// The worker has ended: drops what is in the mailbox, and all that comes.
    pub(crate) fn close(&self) {
        let mut contents = self.contents();
        contents.is_closed = true;
        let dropped = (std::mem::take(&mut contents.orders), std::mem::take(&mut contents.events));
        // Publishers wait for the lock, and there may be much to drop.
        drop(contents);
        drop(dropped);
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Mailbox {
    fn notify(&self, event: &Event) {
        let now_us = monotonic_us();
        let mut contents = self.contents();
        if !contents.is_closed {
            contents.events.push_back((event.clone(), now_us));
        }
    }

    fn wake(&self) {
        self.waker.wake();
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
        assert_eq!(mailbox.contents().events.len(), 1);
        mailbox.close();
        for _ in 0..2 {
            assert!(mailbox.contents().events.is_empty() && mailbox.contents().orders.is_empty());
            publish();
            mailbox.put(Order::Drain);
        }
    }
}
