//! What a reader has not seen and the log no longer has: found in the hub's history, part by part.
//!
//! Every reader begins with a replay, be it only the value, and one that was too slow comes back to
//! it. It is the one way to catch up: after it the reader has seen everything up to a number, and
//! the log has the rest.
//!
//! A replay keeps nothing of what it finds. It is a span of numbers that becomes shorter: a part
//! is found, sent and forgotten, and a reader that was sent less of it asks again from there on. So
//! one that does not read owns no more here than one that does. What takes long to find, since
//! names of a pattern must be walked, is found once for all who ask for the like (`walks`).

use super::feeds::{FeedId, Feeds};
use super::walks::{Part, WalkId, Walks};
use crate::budget::Permit;
use stentor_hub::{Event, Filter, Hub, Share, Span};
use stentor_wire::notice::GapReason;
use stentor_wire::packed;

/// A reader's way from where it was to where the log begins.
#[derive(Debug)]
pub(crate) struct Replay {
    feeds: Box<[FeedId]>,
    /// What is still to be sent lies in this span.
    span: Span,
    wants: Wants,
    /// The reader has a cursor of ours that brings it no further gap.
    has_told_cursor: bool,
    /// The last gap that the reader was told of.
    told: Option<Told>,
    /// The walk that finds the next part.
    walk: Option<WalkId>,
}

/// What of the span is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// The values; of what is gone nothing is heard.
    Values,
    /// All that is kept. What was lost before it was first looked for is not missed.
    History,
    /// All of it: the reader claims to have seen everything before. What was lost meanwhile it must
    /// be told.
    Missed,
}

/// A gap that was told, or need not be.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Where the reader was.
    since_seq: u64,
    lost_seq: u64,
    /// The walk that found it, if it was one.
    walk: Option<WalkId>,
}

// A walk is begun anew. A gap that the one before had found may then be told again.
packed!(enum Wants { 0 => Values, 1 => History, 2 => Missed });
packed!(struct Replay { feeds, span, wants, has_told_cursor, told } without { walk });
packed!(struct Told { since_seq, lost_seq } without { walk });

/// Where a replay looks, and what that may cost.
pub(crate) struct Sources<'a> {
    pub(crate) hub: &'a Hub,
    pub(crate) feeds: &'a Feeds,
    pub(crate) walks: &'a mut Walks,
    /// What has been looked at is added to it.
    pub(crate) cost: &'a mut usize,
}

impl Replay {
    /// Of what `feeds` have in the span.
    pub(crate) fn new(feeds: Box<[FeedId]>, span: Span, wants: Wants) -> Replay {
        let has_told_cursor = wants == Wants::Missed;
        Replay { feeds, span, wants, has_told_cursor, told: None, walk: None }
    }

    /// The topic, if there is but one to look up.
    pub(crate) fn topic<'f>(&self, feeds: &'f Feeds) -> Option<&'f str> {
        let [feed] = *self.feeds else { return None };
        if let Filter::Topic(topic) = feeds.filter(feed) { Some(topic) } else { None }
    }

    /// Where it looks.
    pub(crate) fn feeds(&self) -> &[FeedId] {
        &self.feeds
    }

    /// Everything up to this number has been sent.
    pub(crate) fn since_seq(&self) -> u64 {
        self.span.since
    }

    /// Whether everything has been sent.
    pub(crate) fn is_over(&self) -> bool {
        self.span.since >= self.span.upto
    }

    /// Whether the reader has a cursor of ours by now that brings it no further gap.
    pub(crate) fn has_told_cursor(&self) -> bool {
        self.has_told_cursor
    }

    /// What it takes on the heap, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        size_of::<Replay>() + size_of_val(&*self.feeds)
    }

    /// Appends the next part to `found`, oldest first, up to `bytes_max` bytes of messages. `None`
    /// if it takes another turn to find it.
    pub(crate) fn find(
        &mut self,
        sources: Sources<'_>,
        bytes_max: usize,
        found: &mut Vec<Event>,
        _: &Permit,
    ) -> Option<Part> {
        let Sources { hub, feeds, walks, cost } = sources;
        if self.is_over() {
            // There is nothing at all yet, or nothing new.
            return Some(Part { upto_seq: self.span.upto, lost_seq: 0, gave_up: false });
        }
        let filters: Vec<&Filter> = self.feeds.iter().map(|&id| feeds.filter(id)).collect();
        let part = match self.find_at_once(hub, &filters, bytes_max, cost, found) {
            Some(part) => {
                self.walk = None;
                *cost += found.len() * MESSAGE_COST;
                part
            }
            None => {
                let (id, cost_of_walk) = walks.walk(hub, &filters, self.span, self.walk);
                *cost += cost_of_walk;
                self.walk = id;
                walks.part(id?, self.span, bytes_max, found)?
            }
        };
        if self.wants == Wants::Values {
            found.retain(|event| !event.message.is_deletion() && hub.is_value(event));
        }
        Some(part)
    }

    /// Finds the next part in one step: few topics, which are looked up by name, or few changes.
    /// `None` if that takes a walk over several iterations.
    fn find_at_once(
        &self,
        hub: &Hub,
        filters: &[&Filter],
        bytes_max: usize,
        cost: &mut usize,
        found: &mut Vec<Event>,
    ) -> Option<Part> {
        if filters.len() > FILTERS_FEW {
            return None;
        }
        if filters.iter().all(|filter| matches!(filter, Filter::Topic(_))) {
            *cost += filters.len() * NAME_COST;
            return Some(self.find_by_name(hub, filters, bytes_max, found));
        }
        let changes = self.span.upto - self.span.since;
        if changes > CHANGES_FEW || self.span.since == 0 {
            return None;
        }
        *cost += changes as usize * filters.len() * COMPARE_COST;
        let share = Share { steps: CHANGES_FEW as usize, bytes: bytes_max };
        hub.missed_lately(filters, self.span, share, found).map(Part::from)
    }

    /// Looks each topic up. Where one of them has more than `bytes_max`, the part ends for all.
    fn find_by_name(
        &self,
        hub: &Hub,
        filters: &[&Filter],
        bytes_max: usize,
        found: &mut Vec<Event>,
    ) -> Part {
        let mut part = Part { upto_seq: self.span.upto, lost_seq: 0, gave_up: false };
        for filter in filters {
            let Filter::Topic(topic) = filter else { continue };
            let span = Span { upto: part.upto_seq, ..self.span };
            let missed = hub.missed(topic, span, bytes_max, found);
            part.upto_seq = part.upto_seq.min(missed.upto);
            part.lost_seq = part.lost_seq.max(missed.lost_seq);
        }
        found.sort_unstable_by_key(Event::seq);
        found.retain(|event| event.seq() <= part.upto_seq);
        let mut bytes = 0;
        let is_too_much = |event: &Event| {
            bytes += event.message.kept_bytes();
            bytes > bytes_max.max(event.message.kept_bytes())
        };
        if let Some(end) = found.iter().position(is_too_much) {
            found.truncate(end);
            part.upto_seq = found.last().map_or(part.upto_seq, Event::seq);
        }
        part
    }

    /// Of the part that was found, everything up to this number was sent, in so many messages.
    pub(crate) fn advance(&mut self, upto_seq: u64, messages: usize) {
        self.span.since = self.span.since.max(upto_seq);
        self.has_told_cursor |= messages > 0;
    }

    /// Why the reader is to hear of a gap before a part, if it is; to be asked once.
    pub(crate) fn take_gap(&mut self, part: &Part) -> Option<GapReason> {
        let reason = match part.gave_up {
            true => GapReason::TooManyTopics,
            false if self.wants == Wants::Values => return None,
            false => GapReason::HistoryTrimmed,
        };
        let (since_seq, lost_seq, walk) = (self.span.since, part.lost_seq, self.walk);
        // A part may be found again, since none of it could be sent, and a walk has many parts.
        let is_told = self.told.is_some_and(|told| {
            let is_same_walk = walk.is_some() && told.walk == walk;
            lost_seq <= told.lost_seq && (told.since_seq == since_seq || is_same_walk)
        });
        if lost_seq <= since_seq || is_told {
            return None;
        }
        self.told = Some(Told { since_seq, lost_seq, walk });
        // mutation: history-before
        if self.wants == Wants::History && since_seq == 0 && !part.gave_up {
            return None;
        }
        // Until it is sent something, its old cursor would bring it the same gap again.
        self.has_told_cursor = false;
        Some(reason)
    }
}

/// The most topics that one step looks up by name.
pub(super) const FILTERS_FEW: usize = 16;

/// The most changes that one step looks at: for one filter less than a tenth of a millisecond.
/// Tests come to this limit sooner.
const CHANGES_FEW: u64 = if cfg!(test) { 12 } else { 1_024 };

/// The cost of a name that is looked up, or of a name or a change in a walk.
pub(super) const NAME_COST: usize = 256;

/// The cost of comparing one filter with a change, or with the filter of a walk.
pub(super) const COMPARE_COST: usize = 32;

/// What a message costs that is found, beside its bytes.
pub(super) const MESSAGE_COST: usize = 256;

#[cfg(test)]
mod tests;
