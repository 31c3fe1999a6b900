//! What a reader has not seen and the log no longer has: collected from the hub's history.
//!
//! Every reader begins with a replay, be it only the value, and one that was too slow comes back to
//! it. It is the one way to catch up: after it the reader has seen everything up to a number,
//! and the log has the rest.
//!
//! A pattern may stand for a million topics. So their names are walked a slice a turn, and at most
//! [`KEPT_MAX`] messages are kept, the oldest: after they were sent, the walk begins anew behind
//! them.

use stentor_hub::{Filter, Hub, News, Span};

/// A reader's way from where it was to where the log begins.
#[derive(Debug)]
pub(crate) struct Replay {
    filters: Vec<Filter>,
    /// What is still to be sent lies in this span.
    span: Span,
    /// The reader has been here before: what was lost meanwhile it must be told.
    resumes: bool,
    /// What was collected is complete up to this number.
    bound_seq: u64,
    /// How far the walk is: the filter, and the name after which it goes on.
    walked: usize,
    after: Option<String>,
    /// The oldest first, once the walk is over.
    found: Vec<News>,
    /// How many of them were sent.
    sent: usize,
    is_collected: bool,
    has_gap: bool,
}

impl Replay {
    /// From after `since` up to and including `upto`. A reader that `resumes` claims to have seen
    /// everything up to `since`; one that does not gets values and hears of nothing that is gone.
    pub(crate) fn new(filters: Vec<Filter>, span: Span, resumes: bool) -> Replay {
        Replay {
            filters,
            span,
            resumes,
            bound_seq: span.upto,
            walked: 0,
            after: None,
            found: Vec::new(),
            sent: 0,
            is_collected: false,
            has_gap: false,
        }
    }

    /// When it is over, everything up to this number has been sent.
    pub(crate) fn upto_seq(&self) -> u64 {
        self.span.upto
    }

    /// Where it is: everything up to this number has been sent.
    pub(crate) fn since_seq(&self) -> u64 {
        self.span.since
    }

    /// Whether there is no more collecting to do before [`Replay::rest`] means something.
    pub(crate) fn is_collected(&self) -> bool {
        self.is_collected
    }

    /// Collects a slice. Returns how many names were looked at.
    pub(crate) fn collect(&mut self, hub: &Hub) -> usize {
        let mut names = 0;
        while names < NAMES_PER_SLICE {
            let Some(filter) = self.filters.get(self.walked) else {
                self.finish_collecting();
                break;
            };
            let span = Span { upto: self.bound_seq, ..self.span };
            match filter {
                Filter::Topic(topic) => {
                    names += 1;
                    self.has_gap |= hub.missed(topic, span, usize::MAX, &mut self.found);
                    self.walked += 1;
                }
                Filter::Pattern(pattern) => {
                    let max = NAMES_PER_SLICE - names;
                    let after = self.after.take();
                    let page = hub.missed_by_pattern(
                        pattern,
                        span,
                        after.as_deref(),
                        max,
                        &mut self.found,
                    );
                    names = NAMES_PER_SLICE;
                    self.has_gap |= page.gap;
                    self.walked += usize::from(page.next.is_none());
                    self.after = page.next;
                }
            }
            if self.found.len() >= 2 * KEPT_MAX {
                self.keep_oldest();
            }
        }
        names
    }

    /// Whether something between was lost and the reader is to hear of it; to be asked once.
    pub(crate) fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.has_gap) && self.resumes
    }

    /// What is to be sent next, oldest first.
    pub(crate) fn rest(&self) -> &[News] {
        &self.found[self.sent..]
    }

    /// So many messages were sent.
    pub(crate) fn advance(&mut self, messages: usize) {
        self.sent += messages;
        if let Some(last) = self.sent.checked_sub(1) {
            self.span.since = self.found[last].seq();
        }
    }

    /// With everything collected sent: whether that was all. If not, collecting begins anew.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.bound_seq == self.span.upto {
            return true;
        }
        self.span.since = self.bound_seq;
        self.forget();
        false
    }

    /// Memory that what was collected takes.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.found.capacity() * size_of::<News>()
    }

    /// Drops what was collected; it will be collected again.
    pub(crate) fn forget(&mut self) {
        self.found = Vec::new();
        self.sent = 0;
        self.bound_seq = self.span.upto;
        self.walked = 0;
        self.after = None;
        self.is_collected = false;
    }

    fn finish_collecting(&mut self) {
        if self.found.len() > KEPT_MAX {
            self.keep_oldest();
        }
        self.found.sort_unstable_by_key(News::seq);
        // A topic that two filters want was found twice.
        self.found.dedup_by_key(|news| news.seq());
        if !self.resumes {
            self.found.retain(|news| !news.message.is_deletion());
        }
        self.found.shrink_to_fit();
        self.is_collected = true;
    }

    fn keep_oldest(&mut self) {
        self.found.sort_unstable_by_key(News::seq);
        self.found.dedup_by_key(|news| news.seq());
        if self.found.len() > KEPT_MAX {
            self.found.truncate(KEPT_MAX);
            self.bound_seq = self.found[KEPT_MAX - 1].seq();
        }
    }
}

/// Names looked at in one turn: some 100 microseconds.
const NAMES_PER_SLICE: usize = 1_000;

/// Messages kept at once.
const KEPT_MAX: usize = 4_096;
