//! The memory of the forms of a hub's messages: compressed bodies, events, frames.
//!
//! Workers make forms for readers, so the forms are counted outside of the sequencing point. A form
//! counts in the sum while its topic keeps the message. A message that its topic has dropped is
//! *detached*: only connections still hold it. It and its forms count as detached until the last
//! connection drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// The sum over all messages that the topics of a hub keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormBytes(Arc<FormCounts>);

#[derive(Debug)]
struct FormCounts {
    /// In bytes.
    sum: AtomicI64,
    /// Messages that topics have dropped and connections hold, with their forms, in bytes.
    detached: AtomicUsize,
    /// Above this sum no form is made that readers can do without: a compressed one.
    optional_max: AtomicI64,
}

impl Default for FormCounts {
    fn default() -> FormCounts {
        FormCounts {
            sum: AtomicI64::new(0),
            detached: AtomicUsize::new(0),
            optional_max: AtomicI64::new(i64::MAX),
        }
    }
}

/// The bytes that a message adds to the sum; [`SETTLED`] once its topic keeps it no more.
#[derive(Debug, Default)]
pub(crate) struct Charge(AtomicUsize);

impl FormBytes {
    /// The sum may be below zero for a moment: one thread may settle a message before another has
    /// added a form to the sum.
    pub(crate) fn get(&self) -> usize {
        usize::try_from(self.0.sum.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Makes no more compressed forms above this sum, in bytes.
    pub(crate) fn set_optional_max(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.0.optional_max.store(bytes, Ordering::Relaxed);
    }

    /// Whether no more compressed forms are made.
    pub(crate) fn is_full(&self) -> bool {
        let optional_max = self.0.optional_max.load(Ordering::Relaxed);
        self.0.sum.load(Ordering::Relaxed) > optional_max
    }

    /// See [`Hub::detached_bytes`](crate::Hub::detached_bytes).
    pub(crate) fn detached(&self) -> usize {
        self.0.detached.load(Ordering::Relaxed)
    }

    /// Adds a form of a message.
    pub(crate) fn charge(&self, charge: &Charge, bytes: usize) {
        if charge.0.fetch_add(bytes, Ordering::Relaxed) & SETTLED == 0 {
            self.0.sum.fetch_add(bytes as i64, Ordering::Relaxed);
        } else {
            self.detach(bytes);
        }
    }

    /// The topic has dropped the message: its forms are detached, too. Does so once.
    pub(crate) fn settle(&self, charge: &Charge) {
        let bytes = charge.0.fetch_or(SETTLED, Ordering::Relaxed);
        if bytes & SETTLED == 0 {
            self.0.sum.fetch_sub(bytes as i64, Ordering::Relaxed);
            self.detach(bytes);
        }
    }

    /// The topic has dropped a message of so many bytes.
    pub(crate) fn detach(&self, bytes: usize) {
        self.0.detached.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Nothing holds a message any more. If it was detached, `detached` is its size in bytes.
    pub(crate) fn free(&self, detached: Option<usize>, charge: Option<&mut Charge>) {
        let forms = charge.map_or(0, |charge| *charge.0.get_mut() & !SETTLED);
        match detached {
            Some(bytes) => {
                self.0.detached.fetch_sub(bytes + forms, Ordering::Relaxed);
            }
            None => {
                self.0.sum.fetch_sub(forms as i64, Ordering::Relaxed);
            }
        }
    }
}

/// The counter is no part of what terms say.
impl PartialEq for FormBytes {
    fn eq(&self, _: &FormBytes) -> bool {
        true
    }
}

impl Eq for FormBytes {}

/// A bit that no sum of forms reaches.
const SETTLED: usize = 1 << (usize::BITS - 1);
