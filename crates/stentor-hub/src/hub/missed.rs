//! What a reader missed: history from a cursor on, and whether it has a gap.
//!
//! A reader that begins first listens, which gives it a number: of everything newer it will be
//! told. What is up to that number it is owed by history, which goes on changing meanwhile. Nothing
//! here stops publishers. Instead every way in which something can slip away in between leaves a
//! mark that says at least "gap": a topic's `lost_seq`, a tombstone, or the tombstones' own.

use std::sync::Arc;

use super::{Hub, names_from};
use crate::event::{Event, Span};
use crate::filter::Filter;
use crate::interleave;
use crate::lock::read;
use crate::pattern::Pattern;
use crate::topic::{ByName, Change, Topic};

/// What came of looking for what was missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// Everything of the span up to this number was appended, or is lost.
    pub upto: u64,
    /// Every lost message has this number or a lower one; it is 0 if none is lost. It may lie below
    /// the span. A reader whose cursor is below it has a gap.
    pub lost_seq: u64,
}

/// What came of one page of [`Hub::missed_by_pattern`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Go on after this name. `None`: that was all.
    pub next: Option<String>,
    /// As far as this page goes.
    pub missed: Missed,
}

/// How much to look for at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Names or changes to look at; at least one is.
    pub steps: usize,
    /// Bytes of messages to append, counting 64 beside the data of each; at least one is.
    pub bytes: usize,
}

impl Hub {
    /// Appends what `topic` has in the span to `out`, oldest first; the last may be its deletion.
    ///
    /// Stops before `bytes_max` bytes are exceeded, as [`Share::bytes`] counts them: whoever gets
    /// less than the span asks again from [`Missed::upto`] on.
    ///
    /// A loss may be reported that is none: if a deletion of that time was forgotten, or if what
    /// was lost is newer than `span.upto`. Silence about one never happens, provided that
    /// `span.upto` came from [`Hub::subscribe`] or [`Hub::seq`].
    pub fn missed(
        &self,
        topic: &str,
        span: Span,
        bytes_max: usize,
        out: &mut Vec<Event>,
    ) -> Missed {
        interleave::point();
        let table = self.table.pin();
        if let Some(ByName(topic)) = table.get(topic) {
            interleave::point();
            return topic.missed(span, bytes_max, out);
        }
        interleave::point();
        let tombstones = read(&self.tombstones);
        let lost_seq = match (tombstones.tombstone(topic), table.get(topic)) {
            (Some(tombstone), _) => tombstone.missed(span, out),
            // It came back before the tombstones were locked; now it can neither come nor go.
            (None, Some(ByName(topic))) => return topic.missed(span, bytes_max, out),
            (None, None) if span.is_from_nothing() => 0,
            (None, None) => tombstones.forgotten_seq(topic),
        };
        Missed { upto: span.upto, lost_seq }
    }

    /// Appends what `filters` have in the span to `out`, in the order of numbers, by looking at the
    /// latest changes. `None` if those that are remembered do not reach back to `span.since`.
    ///
    /// The cost follows what has changed since then, not the topics there are. A loss is reported
    /// as by [`Hub::missed`], and all that is lost of a topic is older than what `out` has of it.
    /// `out` may have what was found before `span`. If some of that was evicted meanwhile, nothing
    /// more is found: [`Missed::upto`] is `span.since`, and the loss is for another scan to report.
    /// Publishers wait while a few hundred changes are looked at.
    pub fn missed_lately(
        &self,
        filters: &[&Filter],
        span: Span,
        share: Share,
        out: &mut Vec<Event>,
    ) -> Option<Missed> {
        let mut missed = Missed { upto: span.since, lost_seq: 0 };
        let (begin, mut bytes_left) = (out.len(), share.bytes);
        let latest = span.upto.min(self.seq());
        let mut steps_left = share.steps.max(1);
        while missed.upto < latest && steps_left > 0 {
            let steps = steps_left.min(CHANGES_AT_ONCE);
            let (rest, mut changes) = ((missed.upto, latest), Vec::new());
            let Some(mut upto) = self.changed(filters, rest, steps, &mut changes) else {
                // Others may have published so much meanwhile that the rest is forgotten.
                return (missed.upto > span.since).then_some(missed);
            };
            let before = out.len();
            let (mut lost_seq, mut is_full) = (0, false);
            for (seq, topic) in changes {
                interleave::point();
                match self.change(&topic, seq, span) {
                    Change::Kept(message) => {
                        let bytes = message.kept_bytes();
                        if out.len() > begin && bytes > bytes_left {
                            (upto, is_full) = (seq - 1, true);
                            break;
                        }
                        bytes_left = bytes_left.saturating_sub(bytes);
                        out.push(Event::new(topic, message));
                    }
                    Change::Lost => lost_seq = seq,
                    Change::Replaced => {}
                }
            }
            if lost_seq > 0 && out.iter().any(|event| event.message.is_dropped()) {
                // A message was evicted during this scan. It may be newer than an appended one,
                // and the caller reports the loss before all that was appended.
                out.truncate(before);
                if before > 0 {
                    return Some(missed);
                }
                bytes_left = share.bytes;
                continue;
            }
            missed = Missed { upto, lost_seq: missed.lost_seq.max(lost_seq) };
            steps_left = if is_full { 0 } else { steps_left - steps };
        }
        if missed.upto >= latest {
            missed.upto = span.upto;
        }
        Some(missed)
    }

    /// Collects the changes of the filters after `since`, among the next `steps` changes up to
    /// `upto`. Returns how far that is; `None` if they are not remembered.
    fn changed(
        &self,
        filters: &[&Filter],
        (since, upto): (u64, u64),
        steps: usize,
        wanted: &mut Vec<(u64, Arc<Topic>)>,
    ) -> Option<u64> {
        let changes = self.changes();
        let mut between = changes.reach(since).then(|| changes.between(since, upto))?;
        let mut looked_upto = since;
        for (seq, topic) in between.by_ref().take(steps) {
            looked_upto = seq;
            if filters.iter().any(|filter| filter.matches(topic.name())) {
                wanted.push((seq, Arc::clone(topic)));
            }
        }
        Some(if between.next().is_none() { upto } else { looked_upto })
    }

    /// What has become of one change.
    fn change(&self, topic: &Arc<Topic>, seq: u64, span: Span) -> Change {
        if let Some(change) = topic.change(seq, span.mode) {
            return change;
        }
        if span.is_from_nothing() {
            return Change::Replaced;
        }
        interleave::point();
        let tombstones = read(&self.tombstones);
        let tombstone = tombstones.tombstone(topic.name());
        if let Some(deletion) = tombstone.and_then(|tombstone| tombstone.deletion_at(seq)) {
            return Change::Kept(deletion);
        }
        // Who wants the newest only has lost nothing if something newer follows: the topic that
        // came back, or its deletion.
        let is_replaced = match (self.table.pin().get(topic.name()), tombstone) {
            (Some(ByName(topic)), _) => topic.conflates(span.mode),
            (None, Some(tombstone)) => tombstone.conflates(span.mode),
            (None, None) => false,
        };
        if is_replaced { Change::Replaced } else { Change::Lost }
    }

    /// The same for the topics of a pattern, a page of names at a time, in the order of names:
    /// looks at up to [`Share::steps`] names after `after`, and ends the page early once
    /// [`Share::bytes`] are reached. Tombstones that match are part of the last page. The messages
    /// of one topic are in order, those of several are not.
    ///
    /// If one topic alone has more than [`Share::bytes`], what is newer than [`Missed::upto`] is
    /// missing, of this topic and perhaps only of it.
    ///
    /// Publishers are not held up while messages are collected, and only those that create or
    /// delete topics while names are.
    pub fn missed_by_pattern(
        &self,
        pattern: &Pattern,
        span: Span,
        after: Option<&str>,
        share: Share,
        out: &mut Vec<Event>,
    ) -> Page {
        interleave::point();
        let (found, mut next) = self.names_of(pattern, after, share.steps.max(1));
        let mut missed = Missed { upto: span.upto, lost_seq: 0 };
        let (begin, mut bytes) = (out.len(), 0);
        for (index, topic) in found.iter().enumerate() {
            interleave::point();
            let before = out.len();
            let of_topic = topic.missed(span, share.bytes, out);
            missed.upto = missed.upto.min(of_topic.upto);
            missed.lost_seq = missed.lost_seq.max(of_topic.lost_seq);
            bytes += out[before..].iter().map(|event| event.message.kept_bytes()).sum::<usize>();
            if bytes >= share.bytes && out.len() > begin && index + 1 < found.len() {
                next = Some(topic.name().into());
                return Page { next, missed };
            }
        }
        if next.is_none() {
            interleave::point();
            let tombstones = read(&self.tombstones);
            missed.lost_seq = missed.lost_seq.max(tombstones.missed(pattern, span, out));
        }
        Page { next, missed }
    }

    /// The topics of a pattern among the next names, and the last of these names if there may be
    /// more.
    fn names_of(
        &self,
        pattern: &Pattern,
        after: Option<&str>,
        names_max: usize,
    ) -> (Vec<Arc<Topic>>, Option<String>) {
        let names = read(&self.names);
        let mut found = Vec::new();
        let mut last = None;
        for (index, topic) in names_from(&names, pattern.prefix(), after).enumerate() {
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

/// Changes that are looked at while publishers wait: some ten microseconds.
const CHANGES_AT_ONCE: usize = if cfg!(test) { 5 } else { 256 };

#[cfg(test)]
mod tests;
