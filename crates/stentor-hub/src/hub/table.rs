//! The topics of a hub: a hash table for look-ups, and an index of names for listings.
//!
//! A hub has one table at a time. A snapshot is installed by a swap of it: see `hub/following.rs`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use crate::lock::{read, write};
use crate::topic::{ByName, Topic};

/// Topics by name. They come and go at the sequencing point only.
#[derive(Default)]
pub(super) struct TopicTable {
    by_hash: papaya::HashSet<ByName, foldhash::fast::RandomState>,
    names: RwLock<BTreeSet<ByName>>,
    count: AtomicUsize,
}

/// A look-up table whose topics stay in memory while the guard lives.
pub(super) type Pinned<'a> =
    papaya::HashSetRef<'a, ByName, foldhash::fast::RandomState, papaya::LocalGuard<'a>>;

impl TopicTable {
    pub(super) fn pin(&self) -> Pinned<'_> {
        self.by_hash.pin()
    }

    /// How many topics there are.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn insert(&self, topic: &Arc<Topic>) {
        self.by_hash.pin().insert(ByName(Arc::clone(topic)));
        write(&self.names).insert(ByName(Arc::clone(topic)));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The same without the index of names, which [`TopicTable::set_names`] makes at the end.
    pub(super) fn insert_unlisted(&self, topic: &Arc<Topic>) {
        self.by_hash.pin().insert(ByName(Arc::clone(topic)));
    }

    /// Lists topics that were inserted, in the order of their names: one by one it takes longer.
    pub(super) fn set_names(&self, topics: Vec<Arc<Topic>>) {
        self.count.store(topics.len(), Ordering::Relaxed);
        *write(&self.names) = topics.into_iter().map(ByName).collect();
    }

    pub(super) fn remove(&self, name: &str) {
        // Out of the index before the table, so that whatever is listed has a value.
        write(&self.names).remove(name);
        self.by_hash.pin().remove(name);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn names(&self) -> RwLockReadGuard<'_, BTreeSet<ByName>> {
        read(&self.names)
    }

    /// All topics in the order of their names.
    pub(super) fn all(&self) -> Vec<Arc<Topic>> {
        self.names().iter().map(|ByName(topic)| Arc::clone(topic)).collect()
    }
}

/// The topics whose names begin with `prefix` and come after `after`, in the order of their names.
#[expect(clippy::mutable_key_type, reason = "a topic never changes its name")]
pub(super) fn names_from<'a>(
    names: &'a BTreeSet<ByName>,
    prefix: &'a str,
    after: Option<&str>,
) -> impl Iterator<Item = &'a Arc<Topic>> {
    let start = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let rest = names.range::<str, _>((start, Bound::Unbounded)).map(|ByName(topic)| topic);
    rest.take_while(move |topic| topic.name().starts_with(prefix))
}
