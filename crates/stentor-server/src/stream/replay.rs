//! What a reader has not seen and the log no longer has: collected from the hub's history.
//!
//! Every reader begins with a replay, be it only the value, and one that was too slow comes back to
//! it. It is the one way to catch up: after it the reader has seen everything up to a number,
//! and the log has the rest.
//!
//! A pattern may stand for a million topics. So their names are walked a slice a turn, and only so
//! many messages are kept, the oldest: after they were sent, the walk begins anew behind them. That
//! makes many walks of many names; beyond [`NAMES_MAX`] the reader is told of a gap instead.

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
    names: usize,
    after: Option<String>,
    /// The oldest first, once the walk is over.
    found: Vec<News>,
    /// Their data.
    found_bytes: usize,
    /// How many of them were sent.
    sent: usize,
    is_collected: bool,
    /// Why the reader must be told of a gap.
    gap: Option<&'static str>,
    /// The reader has a cursor of ours, or was sent a message, which is one.
    has_told_cursor: bool,
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
            names: 0,
            after: None,
            found: Vec::new(),
            found_bytes: 0,
            sent: 0,
            is_collected: false,
            gap: None,
            has_told_cursor: resumes,
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

    /// Whether the reader has a cursor of ours by now that brings it no further gap.
    pub(crate) fn has_told_cursor(&self) -> bool {
        self.has_told_cursor
    }

    /// Whether there is no more collecting to do before [`Replay::rest`] means something.
    pub(crate) fn is_collected(&self) -> bool {
        self.is_collected
    }

    /// Collects a slice. Returns how many names were looked at.
    pub(crate) fn collect(&mut self, hub: &Hub) -> usize {
        let (mut names, mut has_gap) = (0, false);
        while names < NAMES_PER_SLICE {
            let before = self.found.len();
            let Some(filter) = self.filters.get(self.walked) else {
                self.finish_collecting();
                break;
            };
            let span = Span { upto: self.bound_seq, ..self.span };
            match filter {
                Filter::Topic(topic) => {
                    names += 1;
                    has_gap |= hub.missed(topic, span, usize::MAX, &mut self.found);
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
                    has_gap |= page.gap;
                    self.walked += usize::from(page.next.is_none());
                    self.after = page.next;
                }
            }
            self.found_bytes += self.found[before..].iter().map(data_bytes).sum::<usize>();
            self.keep_oldest(2);
        }
        if has_gap && self.resumes {
            self.gap = Some("history");
        }
        self.names += names;
        if self.names > NAMES_MAX && !self.is_collected {
            self.give_up();
        }
        names
    }

    /// Why the reader is to hear of a gap, if it is; to be asked once.
    pub(crate) fn take_gap(&mut self) -> Option<&'static str> {
        let gap = self.gap.take();
        // Until it is sent something, its old cursor would bring it the same gap again.
        self.has_told_cursor &= gap.is_none();
        gap
    }

    /// What is to be sent next, oldest first.
    pub(crate) fn rest(&self) -> &[News] {
        &self.found[self.sent..]
    }

    /// Up to which number a reader has seen everything that was sent so many of the rest.
    pub(crate) fn cursor_after(&self, messages: usize) -> u64 {
        match self.rest().get(messages) {
            Some(_) if messages == 0 => self.span.since,
            Some(_) => self.rest()[messages - 1].seq(),
            None => self.bound_seq,
        }
    }

    /// So many messages were sent.
    pub(crate) fn advance(&mut self, messages: usize) {
        self.sent += messages;
        if let Some(last) = self.sent.checked_sub(1) {
            self.span.since = self.found[last].seq();
            self.has_told_cursor = true;
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

    /// What the collected messages take, or keep from being freed.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.found.capacity() * size_of::<News>() + self.found_bytes
    }

    /// Drops what was collected; it will be collected again.
    pub(crate) fn forget(&mut self) {
        self.found = Vec::new();
        self.found_bytes = 0;
        self.sent = 0;
        self.bound_seq = self.span.upto;
        self.walked = 0;
        self.names = 0;
        self.after = None;
        self.is_collected = false;
    }

    fn finish_collecting(&mut self) {
        self.sort();
        self.keep_oldest(1);
        if !self.resumes {
            self.found.retain(|news| !news.message.is_deletion());
        }
        self.found.shrink_to_fit();
        self.is_collected = true;
    }

    /// Too many names: the reader goes on from where the log begins.
    fn give_up(&mut self) {
        self.forget();
        self.gap = Some("many");
        self.is_collected = true;
    }

    /// If there are `times` as many messages as are kept, or as many bytes, drops the newest.
    fn keep_oldest(&mut self, times: usize) {
        if self.found.len() <= times * KEPT_MAX && self.found_bytes <= times * KEPT_BYTES_MAX {
            return;
        }
        self.sort();
        self.found_bytes = 0;
        let (mut kept, mut bytes) = (0, 0);
        for news in self.found.iter().take(KEPT_MAX) {
            bytes += data_bytes(news);
            // One is always kept: how large it may be is a setting.
            if kept > 0 && bytes > KEPT_BYTES_MAX {
                break;
            }
            (kept, self.found_bytes) = (kept + 1, bytes);
        }
        self.found.truncate(kept);
        self.bound_seq = self.found.last().map_or(self.bound_seq, News::seq);
    }

    fn sort(&mut self) {
        self.found.sort_unstable_by_key(News::seq);
        // A topic that two filters want was found twice.
        self.found.dedup_by_key(|news| news.seq());
    }
}

fn data_bytes(news: &News) -> usize {
    news.message.data().len()
}

/// Names looked at in one turn: some 100 microseconds. Tests come to this bound, and to the next,
/// sooner.
const NAMES_PER_SLICE: usize = if cfg!(test) { 3 } else { 1_000 };

/// Names looked at before a reader is told that there are too many.
const NAMES_MAX: usize = 100_000;

/// The data of messages kept at once.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Messages kept at once.
const KEPT_MAX: usize = if cfg!(test) { 8 } else { 16_384 };

#[cfg(test)]
mod tests;
