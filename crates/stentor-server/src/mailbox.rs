//! What other threads tell a worker: orders, and news of what was published; and a waker for when
//! it sleeps.

use crate::config::Settings;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_hub::{Listener, News};
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
    news: Vec<(News, u64)>,
}

impl Mailbox {
    /// An empty mailbox. To be made before workers take file tables of their own.
    pub(crate) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { contents: Mutex::default(), waker: Arc::new(Waker::new()?) })
    }

    /// Puts an order in and wakes the worker if it sleeps.
    pub(crate) fn put(&self, order: Order) {
        self.contents().orders.push(order);
        self.waker.wake();
    }

    /// Takes the orders out; the worker calls this after it was woken.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.contents().orders)
    }

    /// Swaps the news for an empty list, which is used again.
    pub(crate) fn swap_news(&self, news: &mut Vec<(News, u64)>) {
        std::mem::swap(&mut self.contents().news, news);
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Mailbox {
    fn tell(&self, news: &News) {
        let now_us = monotonic_us();
        self.contents().news.push((news.clone(), now_us));
    }

    fn wake(&self) {
        self.waker.wake();
    }
}
