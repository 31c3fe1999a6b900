//! Walks over the names of patterns, to find what readers have missed.
//!
//! A pattern may stand for a million topics, so a walk looks at some of their names at a time, over
//! many turns, and keeps only so many messages, the oldest. Whoever was sent these asks for another
//! walk behind them.
//!
//! A walk belongs to no reader. Readers of one feed lose their connections together and come back
//! together, with cursors that are nearly the same: the first of them makes the walk, and the
//! others are sent what it finds. (Of newcomers, whoever shares a walk that began before is not
//! sent what was replaced since: the newer value comes behind it.) There are few walks at a time,
//! whoever asks; further readers wait until one of them is no longer in use. So what all replays
//! keep in memory is bounded, and a walk whose readers have gone does not go on.

use super::replay::{COMPARE_COST, FILTERS_FEW, MESSAGE_COST, NAME_COST};
use stentor_hub::{Event, Filter, Hub, Life, Missed, Share, Span};

/// The walks of a worker.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    all: Vec<(WalkId, Walk)>,
    /// Walks made so far.
    made: WalkId,
    now_ms: u64,
}

/// Names a walk: no other has its number.
pub(crate) type WalkId = u64;

/// A walk over the names of some filters.
#[derive(Debug)]
pub(crate) struct Walk {
    filters: Vec<Filter>,
    filter_bytes: usize,
    /// What is looked for.
    span: Span,
    way: Way,
    /// Names looked at.
    names: usize,
    /// What was found, once it is over: in order, complete up to `bound_seq`.
    found: Vec<Event>,
    found_bytes: usize,
    bound_seq: u64,
    lost_seq: u64,
    is_over: bool,
    /// There were too many names.
    gave_up: bool,
    /// When somebody last asked for it.
    used_ms: u64,
    /// The life of the hub that it looks at, once it has begun to.
    life: Option<Life>,
}

/// How a walk finds what it looks for, and how far it is.
#[derive(Debug)]
enum Way {
    /// By the latest changes; everything up to this number was looked at.
    Changes { since: u64 },
    /// By name: the filter, and the name after which it goes on.
    Names { index: usize, after: Option<String> },
}

/// A part of what a reader has missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Who was sent all of it has seen everything up to this number.
    pub(crate) upto_seq: u64,
    /// What is lost is not newer than this.
    pub(crate) lost_seq: u64,
    /// It is not even known what there is: whoever reads must hear of it.
    pub(crate) gave_up: bool,
}

impl From<Missed> for Part {
    fn from(missed: Missed) -> Part {
        Part { upto_seq: missed.upto, lost_seq: missed.lost_seq, gave_up: false }
    }
}

impl Walks {
    /// Gives up walks that nobody asked for lately.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.all.retain(|(_, walk)| walk.used_ms + IDLE_MS > now_ms);
    }

    /// Gives up walks that cost their readers little. A walk that is over has given a reader
    /// something whenever it asked, and the next one begins behind that.
    pub(crate) fn shed(&mut self) {
        let is_under_way = |walk: &Walk| !walk.is_over && walk.used_ms + SHED_MS > self.now_ms;
        self.all.retain(|(_, walk)| is_under_way(walk));
    }

    /// When there is one to be given up, at the earliest.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.all.iter().map(|(_, walk)| walk.used_ms + IDLE_MS).min()
    }

    /// What walks hold, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.all.iter().map(|(_, walk)| walk.filter_bytes + walk.found_bytes).sum()
    }

    /// Goes on for a bit with a walk that is of use for what is looked for, `known` if it still is
    /// there. Returns which one, if there is room for one, and what that has cost.
    pub(crate) fn walk(
        &mut self,
        hub: &Hub,
        filters: &[&Filter],
        span: Span,
        known: Option<WalkId>,
    ) -> (Option<WalkId>, usize) {
        // In a life that is over there was something else.
        let life = hub.life();
        // mutation: walk-of-old-epoch
        self.all.retain(|(_, walk)| walk.life.is_none_or(|of| of == life));
        let of_known = self.all.iter().find(|(id, _)| Some(*id) == known).map(|(_, walk)| walk);
        // One that ended before the place of the reader: the next one might do so, too.
        let was_behind = of_known.is_some_and(|walk| walk.is_over && walk.bound_seq < span.since);
        let known = known.filter(|_| of_known.is_some_and(|walk| walk.has_more(span)));
        let find = || self.find(filters, span, was_behind);
        let Some(id) = known.or_else(find).or_else(|| self.make(filters, span)) else {
            return (None, filters.len() * COMPARE_COST);
        };
        let now_ms = self.now_ms;
        let mut cost = 0;
        if let Some((_, walk)) = self.all.iter_mut().find(|(other, _)| *other == id) {
            (walk.used_ms, walk.life) = (now_ms, Some(life));
            while !walk.is_over && cost < STEP_COST {
                cost += walk.step(hub);
            }
        }
        cost += filters.len() * COMPARE_COST;
        (Some(id), cost)
    }

    /// The next part of a walk for a reader that is at `span.since`. `None` if the walk is not
    /// over, or ends before that place: one that finds more than it keeps ends early.
    pub(crate) fn part(
        &self,
        id: WalkId,
        span: Span,
        bytes_max: usize,
        found: &mut Vec<Event>,
    ) -> Option<Part> {
        let is_of_use = |walk: &Walk| walk.is_over && walk.bound_seq >= span.since;
        let (_, walk) = self.all.iter().find(|(other, walk)| *other == id && is_of_use(walk))?;
        Some(walk.part(span, bytes_max, found))
    }

    /// Panics if walks hold more than they may, or are not as they should be when they are over.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self) {
        assert!(self.all.len() <= WALKS_MAX);
        for (_, walk) in &self.all {
            let bytes = |event: &Event| event.message.kept_bytes();
            let kept = walk.found.iter().map(bytes).sum::<usize>();
            let is_within = |times| kept <= times * KEPT_BYTES_MAX || walk.found.len() == 1;
            assert!(is_within(if walk.is_over { 1 } else { 2 }), "{walk:?}");
            assert!(walk.filters.len() <= FILTERS_FEW || matches!(walk.way, Way::Names { .. }));
            let seqs = walk.found.iter().map(Event::seq);
            assert!(!walk.is_over || seqs.is_sorted_by(|a, b| a < b), "{walk:?}");
            let newest = walk.found.last().filter(|_| walk.is_over).map_or(0, Event::seq);
            assert!(newest <= walk.bound_seq && walk.bound_seq <= walk.span.upto, "{walk:?}");
        }
    }

    /// A walk that others have begun. One `is_over` if that is asked for.
    fn find(&self, filters: &[&Filter], span: Span, is_over: bool) -> Option<WalkId> {
        let serves =
            |(_, walk): &&(WalkId, Walk)| walk.serves(filters, span) && (walk.is_over || !is_over);
        self.all.iter().rev().find(serves).map(|(id, _)| *id)
    }

    /// Makes a walk, if there is room for it: one that is over makes room when nobody has asked for
    /// it for a moment.
    fn make(&mut self, filters: &[&Filter], span: Span) -> Option<WalkId> {
        if self.all.len() == WALKS_MAX {
            let over = self.all.iter().enumerate().filter(|(_, (_, walk))| walk.is_over);
            let (oldest, (_, walk)) = over.min_by_key(|(_, (_, walk))| walk.used_ms)?;
            if walk.used_ms + OVER_MS > self.now_ms {
                return None;
            }
            self.all.remove(oldest);
        }
        self.made += 1;
        self.all.push((self.made, Walk::new(filters, span)));
        Some(self.made)
    }
}

impl Walk {
    fn new(filters: &[&Filter], span: Span) -> Walk {
        let has_pattern = filters.iter().any(|filter| matches!(filter, Filter::Pattern(_)));
        let way = match span.since > 0 && filters.len() <= FILTERS_FEW && has_pattern {
            true => Way::Changes { since: span.since },
            false => Way::Names { index: 0, after: None },
        };
        Walk {
            filters: filters.iter().map(|&filter| filter.clone()).collect(),
            filter_bytes: filters.iter().map(|filter| filter.cost_bytes()).sum(),
            span,
            way,
            names: 0,
            found: Vec::new(),
            found_bytes: 0,
            bound_seq: span.upto,
            lost_seq: 0,
            is_over: false,
            gave_up: false,
            used_ms: 0,
            life: None,
        }
    }

    /// Looks at some more names, or changes. Returns what that has cost.
    fn step(&mut self, hub: &Hub) -> usize {
        if self.is_over {
            return 0;
        }
        let before = self.found.len();
        let names = match std::mem::replace(&mut self.way, Way::Names { index: 0, after: None }) {
            Way::Changes { since } => match self.look_at_changes(hub, since) {
                Some(changes) => changes,
                None if since == self.span.since => self.look_at_names(hub, 0, None),
                // So much was published meanwhile that the rest is forgotten.
                None => {
                    self.bound_seq = since;
                    self.is_over = true;
                    0
                }
            },
            Way::Names { index, after } => self.look_at_names(hub, index, after.as_deref()),
        };
        let found = self.found.get(before..).unwrap_or_default();
        let cost = names * NAME_COST + found.len() * MESSAGE_COST;
        self.found_bytes += found.iter().map(|event| event.message.kept_bytes()).sum::<usize>();
        if let Way::Changes { since } = self.way
            && self.found_bytes > KEPT_BYTES_MAX
        {
            // They come in order: what is newer is left for another walk.
            self.bound_seq = since;
            self.is_over = true;
        }
        self.keep_oldest(if self.is_over { 1 } else { 2 });
        if self.is_over {
            self.sort();
            self.found.retain(|event| event.seq() <= self.bound_seq);
            self.found.shrink_to_fit();
        }
        cost
    }

    /// The part behind `span.since`, of at most `bytes_max` bytes of messages, or one message.
    fn part(&self, span: Span, bytes_max: usize, found: &mut Vec<Event>) -> Part {
        let from = self.found.partition_point(|event| event.seq() <= span.since);
        let mut upto_seq = self.bound_seq.min(span.upto);
        let mut bytes = 0;
        for event in self.found[from..].iter().take_while(|event| event.seq() <= span.upto) {
            bytes += event.message.kept_bytes();
            if bytes > bytes_max && !found.is_empty() {
                upto_seq = found.last().map_or(upto_seq, Event::seq);
                break;
            }
            found.push(event.clone());
        }
        Part { upto_seq, lost_seq: self.lost_seq, gave_up: self.gave_up }
    }

    /// Whether a reader that looks for `span` finds what it is looking for here.
    fn serves(&self, filters: &[&Filter], span: Span) -> bool {
        // Who has seen nothing hears of no deletion.
        let begins = (self.span.since == 0) == (span.since == 0) && self.span.since <= span.since;
        begins
            && self.span.mode == span.mode
            && self.has_more(span)
            && self.filters.iter().eq(filters.iter().copied())
    }

    /// Whether there may be something behind `span.since`.
    fn has_more(&self, span: Span) -> bool {
        span.since < self.bound_seq
    }

    /// Looks at the latest changes. Returns how many, or `None` if they do not reach back that far.
    fn look_at_changes(&mut self, hub: &Hub, since: u64) -> Option<usize> {
        let filters: Vec<&Filter> = self.filters.iter().collect();
        let share = Share { steps: STEPS_AT_ONCE, bytes: BYTES_AT_ONCE };
        let span = Span { since, ..self.span };
        let missed = hub.missed_lately(&filters, span, share, &mut self.found)?;
        self.lost_seq = self.lost_seq.max(missed.lost_seq);
        self.way = Way::Changes { since: missed.upto };
        self.is_over = missed.upto >= self.span.upto;
        if missed.upto == since {
            // Something that was found is lost by now: another walk tells of the gap behind it.
            self.bound_seq = since;
            self.is_over = true;
            return Some(STEPS_AT_ONCE);
        }
        Some(STEPS_AT_ONCE.min((missed.upto - since) as usize))
    }

    /// Looks at the next names. Returns how many.
    fn look_at_names(&mut self, hub: &Hub, index: usize, after: Option<&str>) -> usize {
        let span = Span { upto: self.bound_seq, ..self.span };
        let share = Share { steps: STEPS_AT_ONCE, bytes: BYTES_AT_ONCE };
        let (names, missed, next) = match self.filters.get(index) {
            None => {
                self.is_over = true;
                return 0;
            }
            Some(Filter::Topic(topic)) => {
                (1, hub.missed(topic, span, KEPT_BYTES_MAX, &mut self.found), None)
            }
            Some(Filter::Pattern(pattern)) => {
                let page = hub.missed_by_pattern(pattern, span, after, share, &mut self.found);
                (STEPS_AT_ONCE, page.missed, page.next)
            }
        };
        // Of a topic that has more, what is newer is left for another walk, and so it is of all.
        self.bound_seq = self.bound_seq.min(missed.upto);
        self.lost_seq = self.lost_seq.max(missed.lost_seq);
        self.way = Way::Names { index: index + usize::from(next.is_none()), after: next };
        self.names += names;
        if self.names > NAMES_MAX {
            self.give_up();
        }
        names
    }

    /// Too many names: the reader goes on from where the log begins.
    fn give_up(&mut self) {
        self.found = Vec::new();
        self.found_bytes = 0;
        self.bound_seq = self.span.upto;
        self.lost_seq = self.span.upto;
        self.gave_up = true;
        self.is_over = true;
    }

    /// If there are `times` as many bytes as are kept, drops the newest.
    fn keep_oldest(&mut self, times: usize) {
        if self.found_bytes <= times * KEPT_BYTES_MAX {
            return;
        }
        self.sort();
        self.found_bytes = 0;
        let mut kept = 0;
        for event in &self.found {
            let bytes = event.message.kept_bytes();
            // One is always kept: how large it may be is a setting.
            if kept > 0 && self.found_bytes + bytes > KEPT_BYTES_MAX {
                break;
            }
            self.found_bytes += bytes;
            kept += 1;
        }
        if kept < self.found.len() {
            self.found.truncate(kept);
            // What is newer than the bound may be kept here, and says nothing of what is before it.
            let newest = self.found.last().map_or(self.bound_seq, Event::seq);
            // mutation: one-topics-history
            self.bound_seq = self.bound_seq.min(newest);
        }
    }

    fn sort(&mut self) {
        self.found.sort_unstable_by_key(Event::seq);
        // A topic that two filters want was found twice.
        self.found.dedup_by_key(|event| event.seq());
    }
}

/// Walks at a time. Each holds at most twice [`KEPT_BYTES_MAX`], or one message.
const WALKS_MAX: usize = 16;

/// After so long in which nobody asked for it a walk is given up.
const IDLE_MS: u64 = 1_000;

/// The same for one that is over, if another is wanted in its place.
const OVER_MS: u64 = 20;

/// The same for one that is not over, while readers hold too much.
const SHED_MS: u64 = 100;

/// Names or changes that are looked at before others have their turn. Tests come to this bound, and
/// to those below, sooner.
const STEPS_AT_ONCE: usize = if cfg!(test) { 3 } else { 256 };

/// The same for the messages found.
const BYTES_AT_ONCE: usize = 64 * 1024;

/// Names looked at before a reader is told that there are too many.
const NAMES_MAX: usize = 100_000;

/// Messages kept at once, counting 64 bytes for each beside its data.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 8 * 65 } else { 512 * 1024 };

/// Once it has cost so much, others have their turn.
const STEP_COST: usize = STEPS_AT_ONCE * NAME_COST;

#[cfg(test)]
mod tests;
