//! What other threads tell a worker: a queue, and a waker for when it sleeps.

use crate::config::Settings;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use stentor_io::Waker;

/// An order to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Let no new connection begin, answer what was asked, end.
    Drain,
    /// Go by these settings from now on.
    Reload(Arc<Settings>),
}

/// One worker's mailbox. Orders are taken in the order they were put.
#[derive(Debug)]
pub(crate) struct Mailbox {
    orders: Mutex<Vec<Order>>,
    waker: Arc<Waker>,
}

impl Mailbox {
    /// An empty mailbox. To be made before workers take file tables of their own.
    pub(crate) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { orders: Mutex::default(), waker: Arc::new(Waker::new()?) })
    }

    /// Puts an order in and wakes the worker if it sleeps.
    pub(crate) fn put(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.waker.wake();
    }

    /// Takes everything out; the worker calls this after it was woken.
    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}
