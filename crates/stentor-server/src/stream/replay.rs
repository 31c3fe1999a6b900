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
use super::walks::{Part, Walk, WalkId, Walks};
use stentor_hub::{Event, Filter, Hub, Share, Span};
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
    /// Whether names may be walked in this turn.
    pub(crate) may_walk: bool,
}

impl Replay {
    /// Of what `feeds` have in the span.
    pub(crate) fn new(feeds: Box<[FeedId]>, span: Span, wants: Wants) -> Replay {
        let has_told_cursor = wants == Wants::Missed;
        Replay { feeds, span, wants, has_told_cursor, told: None, walk: None }
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
    ) -> Option<Part> {
        let Sources { hub, feeds, walks, cost, may_walk } = sources;
        if self.is_over() {
            // There is nothing at all yet, or nothing new.
            return Some(Part { upto_seq: self.span.upto, lost_seq: 0, gave_up: false });
        }
        let part = match self.find_at_once(hub, feeds, bytes_max, found) {
            Some(part) => {
                self.walk = None;
                *cost += found.len() * MESSAGE_COST;
                part
            }
            None if !may_walk => return None,
            None => {
                let filters: Vec<&Filter> = self.feeds.iter().map(|&id| feeds.filter(id)).collect();
                let (id, cost_of_walk) = walks.walk(hub, &filters, self.span, self.walk);
                *cost += cost_of_walk;
                self.walk = id;
                walks.part(id?, self.span, bytes_max, found)?
            }
        };
        if self.wants == Wants::Values {
            found.retain(|event| !event.message.is_deletion() && event.message.is_value());
        }
        Some(part)
    }

    /// What needs no walk that goes over several turns: few topics, or few changes.
    fn find_at_once(
        &self,
        hub: &Hub,
        feeds: &Feeds,
        bytes_max: usize,
        found: &mut Vec<Event>,
    ) -> Option<Part> {
        if let [feed] = *self.feeds
            && let Filter::Topic(topic) = feeds.filter(feed)
        {
            return Some(Part::from(hub.missed(topic, self.span, bytes_max, found)));
        }
        if self.feeds.len() > FILTERS_FEW {
            return None;
        }
        let filters: Vec<&Filter> = self.feeds.iter().map(|&id| feeds.filter(id)).collect();
        if self.span.upto - self.span.since <= CHANGES_FEW && self.span.since > 0 {
            let share = Share { steps: usize::MAX, bytes: bytes_max };
            let missed = hub.missed_lately(&filters, self.span, share, found);
            if let Some(missed) = missed {
                return Some(Part::from(missed));
            }
        }
        if filters.iter().any(|filter| matches!(filter, Filter::Pattern(_))) {
            return None;
        }
        let mut walk = Walk::new(&filters, self.span);
        while !walk.is_over() {
            walk.step(hub);
        }
        Some(walk.part(self.span, bytes_max, found))
    }

    /// Of the part that was found, everything up to this number was sent, in so many messages.
    pub(crate) fn advance(&mut self, upto_seq: u64, messages: usize) {
        self.span.since = self.span.since.max(upto_seq);
        self.has_told_cursor |= messages > 0;
    }

    /// Why the reader is to hear of a gap before a part, if it is; to be asked once.
    pub(crate) fn take_gap(&mut self, part: &Part) -> Option<&'static str> {
        let reason = match part.gave_up {
            true => "many",
            false if self.wants == Wants::Values => return None,
            false => "history",
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

/// So many topics are looked up at once, whatever else is due.
pub(super) const FILTERS_FEW: usize = 16;

/// So many changes are looked at at once: less than a tenth of a millisecond. Tests come to this
/// bound sooner.
const CHANGES_FEW: u64 = if cfg!(test) { 12 } else { 1_024 };

/// What a message costs that is found, beside its bytes.
pub(super) const MESSAGE_COST: usize = 256;

#[cfg(test)]
mod tests;
