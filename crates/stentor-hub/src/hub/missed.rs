//! What a reader missed: history from a cursor on, and whether it has a gap.
//!
//! A reader that begins first listens, which gives it a number: of everything newer it will be
//! told. What is up to that number it is owed by history, which goes on changing meanwhile.
//! Nothing here stops publishers. Instead every way in which something can slip away in between
//! leaves a mark that says at least "gap": a topic's `lost_seq`, a grave, or the graveyard's own.

use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use super::Hub;
use crate::news::{News, Span};
use crate::pattern::Pattern;
use crate::topic::{Named, Topic};

/// What came of one page of [`Hub::missed_by_pattern`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Go on after this name. `None`: that was all.
    pub next: Option<String>,
    /// Whether something in the span is lost.
    pub gap: bool,
}

impl Hub {
    /// Appends what `topic` has in the span to `out`, oldest first; the last may be its deletion.
    /// Returns whether something in the span is lost: it was before all that is kept.
    ///
    /// Stops before `bytes_max` bytes are exceeded, counting 64 bytes for each message beside its
    /// data, but never before the first message. So whoever gets some asks again from the last of
    /// them on, until nothing more comes.
    ///
    /// A gap may be reported that is none: if a deletion of that time was forgotten, or if what
    /// was lost is newer than `span.upto`. Silence about one never happens, provided that
    /// `span.upto` came from [`Hub::listen`] or [`Hub::seq`].
    pub fn missed(&self, topic: &str, span: Span, bytes_max: usize, out: &mut Vec<News>) -> bool {
        let table = self.table.pin();
        if let Some(Named(topic)) = table.get(topic) {
            return topic.missed(span, bytes_max, out);
        }
        let graves = self.graves.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(grave) = graves.grave(topic) {
            return grave.missed(span, out);
        }
        // It may have come back before the graves were locked; now it can neither come nor go.
        match table.get(topic) {
            Some(Named(topic)) => topic.missed(span, bytes_max, out),
            None => graves.has_forgotten(span),
        }
    }

    /// The same for the topics of a pattern, a page of names at a time, in the order of names:
    /// looks at up to `names_max` names (at least one) after `after`. Graves that match are part
    /// of the last page. The messages of one topic are in order, those of several are not.
    ///
    /// Publishers are not held up while messages are collected, and only those that create or
    /// delete topics while names are.
    pub fn missed_by_pattern(
        &self,
        pattern: &Pattern,
        span: Span,
        after: Option<&str>,
        names_max: usize,
        out: &mut Vec<News>,
    ) -> Page {
        let (found, next) = self.names_of(pattern, after, names_max.max(1));
        let mut gap = false;
        for topic in found {
            gap |= topic.missed(span, usize::MAX, out);
        }
        if next.is_none() {
            let graves = self.graves.read().unwrap_or_else(PoisonError::into_inner);
            gap |= graves.missed(pattern, span, out);
        }
        Page { next, gap }
    }

    /// The topics of a pattern among the next names, and the last of these names if there may be
    /// more.
    fn names_of(
        &self,
        pattern: &Pattern,
        after: Option<&str>,
        names_max: usize,
    ) -> (Vec<Arc<Topic>>, Option<String>) {
        let prefix = pattern.prefix();
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        let mut last = None;
        let in_prefix = names
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|Named(topic)| topic.name().starts_with(prefix));
        for (index, Named(topic)) in in_prefix.enumerate() {
            if index == names_max {
                return (found, last.map(|topic: &Arc<Topic>| topic.name().into()));
            }
            if pattern.matches(topic.name()) {
                found.push(Arc::clone(topic));
            }
            last = Some(topic);
        }
        (found, None)
    }
}

#[cfg(test)]
mod tests;
