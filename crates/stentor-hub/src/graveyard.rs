//! The graveyard: deletions remembered, so that who was away hears of them.
//!
//! A deleted topic leaves the table, and its memory comes back. But a reader that returns with a
//! cursor from before must learn that the topic is gone. The latest deletions are therefore kept
//! under the topics' names; of those forgotten, the newest number is, and a cursor older than that
//! is answered with a gap where nothing better is known: sometimes needless, never silent.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::news::{News, Span};
use crate::pattern::Pattern;
use crate::topic::{Named, Topic};

pub(crate) struct Graveyard {
    /// How many are remembered.
    max: usize,
    by_name: BTreeMap<Named, Grave>,
    /// The same topics by the number of their deletion.
    by_seq: BTreeMap<u64, Named>,
    /// The number of the newest deletion that was forgotten; 0 if none was.
    floor: u64,
    /// The number of the newest message that brought a topic back whose grave was here.
    undone: u64,
}

/// What is remembered of a deleted topic.
pub(crate) struct Grave {
    deletion: News,
    /// The number of its last value.
    lost_seq: u64,
}

impl Graveyard {
    pub(crate) fn new(max: usize) -> Graveyard {
        Graveyard { max, by_name: BTreeMap::new(), by_seq: BTreeMap::new(), floor: 0, undone: 0 }
    }

    /// Remembers a deletion. `lost_seq` is the number of the topic's last value.
    pub(crate) fn bury(&mut self, topic: Arc<Topic>, deletion: News, lost_seq: u64) {
        let named = Named(topic);
        self.by_seq.insert(deletion.seq(), named.clone());
        self.by_name.insert(named, Grave { deletion, lost_seq });
        if self.by_seq.len() > self.max
            && let Some((seq, oldest)) = self.by_seq.pop_first()
        {
            self.floor = seq;
            self.by_name.remove(&oldest);
        }
    }

    /// Takes the grave of a topic away that message `seq` brings back. Returns what becomes the
    /// topic's `lost_seq`: the number of its deletion, or of any deletion that was forgotten.
    pub(crate) fn unearth(&mut self, topic: &str, seq: u64) -> u64 {
        let Some(grave) = self.by_name.remove(topic) else { return self.floor };
        let lost_seq = grave.deletion.seq();
        self.by_seq.remove(&lost_seq);
        self.undone = seq;
        lost_seq
    }

    pub(crate) fn grave(&self, topic: &str) -> Option<&Grave> {
        self.by_name.get(topic)
    }

    /// Whether a deletion in the span may have been forgotten.
    pub(crate) fn has_forgotten(&self, span: Span) -> bool {
        !span.is_from_nothing() && self.floor > span.since
    }

    /// The same as [`Grave::missed`] for all graves of a pattern. Says "gap" also if a topic came
    /// back after the span: whoever walks the names and then the graves may have missed it in
    /// both places.
    pub(crate) fn missed(&self, pattern: &Pattern, span: Span, out: &mut Vec<News>) -> bool {
        let prefix = pattern.prefix();
        let from = self.by_name.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let mut gap = self.has_forgotten(span) || self.undone > span.upto;
        for (Named(topic), grave) in from {
            if !topic.name().starts_with(prefix) {
                break;
            }
            if pattern.matches(topic.name()) {
                gap |= grave.missed(span, out);
            }
        }
        gap
    }
}

impl Grave {
    /// Appends the deletion if it is in the span. Returns whether messages before it are lost.
    pub(crate) fn missed(&self, span: Span, out: &mut Vec<News>) -> bool {
        if span.is_from_nothing() {
            return false;
        }
        if span.contains(&self.deletion.message) {
            out.push(self.deletion.clone());
        }
        let conflates = span.mode.conflates(self.deletion.message.terms());
        !conflates && self.lost_seq > span.since
    }
}
