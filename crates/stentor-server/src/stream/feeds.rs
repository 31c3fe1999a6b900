//! Who reads what on this worker, what was published of it lately, and whose turn it is.
//!
//! A [`Feed`] is one filter, a topic or a pattern, with those of the worker's connections that read
//! it. The hub tells the worker of every message that one of its feeds wants; the message enters
//! the log, and a [`Sweep`] over the feed's readers begins, or the one under way is followed by
//! another. A sweep is walked in slices, a few readers a turn, so a fan-out to many never holds up
//! a request. Each sweep begins elsewhere, so that the same readers are not always last.
//!
//! Readers are cursors: what is due to one is whatever the log has after its cursor. The log is
//! short and bounded. A reader that has fallen out of it reads the hub's history instead (see
//! `replay`), so no reader's slowness costs anything here.
//!
//! Leaving is lazy. A connection that leaves is only counted. It stays in the list as it was and is
//! visited in vain, which does no harm, until half of the list is such; then it is tidied, a slice
//! a turn. So nothing here needs to know where in a list a connection stands.

#[cfg(debug_assertions)]
mod check;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stentor_config::Settings;
use stentor_hub::{Event, Filter, Filters, Hub, SubscriberId};
use stentor_io::Peer;

/// A feed of this worker, for as long as somebody reads it.
pub(crate) type FeedId = u32;

/// A place in a feed's list: a connection that joined, perhaps in a former life of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) peer: Peer,
    /// Which of its joinings this was: none has the number of another.
    pub(crate) stamp: u32,
}

/// All feeds of a worker.
pub(crate) struct Feeds {
    subscriber: SubscriberId,
    index: Filters<FeedId>,
    /// What the filters take, here and in the hub.
    filter_bytes: usize,
    /// Of that, those that name no topic there is: patterns, and names somebody made up.
    unnamed_bytes: usize,
    feeds: Vec<Option<Feed>>,
    vacant: Vec<FeedId>,
    /// What was published lately and wanted here, in the one order.
    log: VecDeque<Logged>,
    log_bytes: usize,
    /// The number of the last message that left the log.
    forgotten_seq: u64,
    /// Feeds with readers that have not been visited yet, in the order of their turns.
    sweeping: VecDeque<FeedId>,
    /// Feeds of whose members most have left.
    sparse: Vec<FeedId>,
}

struct Logged {
    event: Event,
    feeds: Box<[FeedId]>,
}

/// How much the feeds of a worker may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) feeds: usize,
    /// What their filters take, in bytes.
    pub(crate) bytes: usize,
}

impl Room {
    /// The room that each worker has by these settings.
    pub(crate) fn of(settings: &Settings) -> Room {
        Room { feeds: settings.limits.topics_max, bytes: settings.limits.readers_bytes_max }
    }
}

/// The readers of one filter.
struct Feed {
    filter: Filter,
    /// Whether it names a topic that has, or had, a value.
    is_named: bool,
    members: Vec<Member>,
    /// Members whose connections still read; the hub shows it to publishers.
    readers: Arc<AtomicU32>,
    /// The part of the log that is this feed's.
    recent: VecDeque<Event>,
    /// The number of the last message that was heard of, in `recent` still or not.
    latest_seq: u64,
    /// Every message of this feed with a larger number is in `recent`.
    complete_since: u64,
    sweep: Option<Sweep>,
    /// Messages came that the sweep under way, if there is one, may not bring to everybody: when
    /// the oldest of them was published.
    due_us: Option<u64>,
    /// Where the next sweep begins.
    rotation: usize,
    /// Whether it stands in line for its readers to be visited.
    is_sweeping: bool,
    /// Where tidying the list has come to, if it is under way.
    tidying: Option<Tidying>,
}

/// Members before `write` are tidied, those from `read` on are not, and what is between has been
/// moved to the front.
#[derive(Clone, Copy, Default)]
struct Tidying {
    read: usize,
    write: usize,
}

/// A walk over the readers a feed had when it began. Those who join meanwhile stand behind `end`
/// and need no visit: they read the value after they had joined.
#[derive(Clone, Copy)]
struct Sweep {
    start: usize,
    end: usize,
    visited: usize,
    /// When the oldest message it is for was published.
    published_us: u64,
}

/// What a visit in a sweep is to do.
pub(crate) enum Visit {
    Reader(Member),
    /// The sweep is over; its oldest message was published at this time.
    Over {
        published_us: u64,
    },
}

impl Feeds {
    pub(crate) fn new(subscriber: SubscriberId) -> Feeds {
        Feeds {
            subscriber,
            index: Filters::default(),
            filter_bytes: 0,
            unnamed_bytes: 0,
            feeds: Vec::new(),
            vacant: Vec::new(),
            log: VecDeque::new(),
            log_bytes: 0,
            forgotten_seq: 0,
            sweeping: VecDeque::new(),
            sparse: Vec::new(),
        }
    }

    /// Enters a connection into the feed of `filter`, which is made if there is none. Every message
    /// published from now on will be in the log.
    pub(crate) fn join(&mut self, hub: &Hub, filter: &Filter, member: Member) -> FeedId {
        let id = match self.index.get(filter) {
            Some(&id) => id,
            None => self.open(hub, filter),
        };
        self.enter(id, member);
        id
    }

    /// A connection reads the feed no more. Without readers there is no feed.
    pub(crate) fn leave(&mut self, hub: &Hub, id: FeedId) {
        let feed = self.feed_mut(id);
        let left = feed.readers.load(Ordering::Relaxed) - 1;
        feed.readers.store(left, Ordering::Relaxed);
        if left == 0 {
            if let Some(feed) = self.feeds[id as usize].take() {
                self.filter_bytes -= feed.filter.cost_bytes();
                self.unnamed_bytes -= feed.unnamed_bytes();
                hub.unsubscribe(self.subscriber, &feed.filter);
                self.index.remove(&feed.filter);
            }
            self.vacant.push(id);
        } else if feed.members.len() > 2 * left as usize + SPARE_MEMBERS && feed.tidying.is_none() {
            feed.tidying = Some(Tidying::default());
            self.sparse.push(id);
        }
    }

    /// Whether all of `filters` may be read. Those that are read already take nothing. Of the
    /// room, filters that name no topic there is have only a part: made-up names keep nobody from
    /// reading what exists.
    pub(crate) fn has_room_for<'f>(
        &self,
        hub: &Hub,
        filters: impl Iterator<Item = &'f Filter>,
        room: Room,
    ) -> bool {
        let (mut feeds, mut bytes) = (self.index.len(), self.filter_bytes);
        let mut unnamed_bytes = self.unnamed_bytes;
        for filter in filters.filter(|filter| self.index.get(filter).is_none()) {
            feeds += 1;
            bytes += filter.cost_bytes();
            if !names_a_topic(hub, filter) {
                unnamed_bytes += filter.cost_bytes();
            }
        }
        let is_more_unnamed = unnamed_bytes > self.unnamed_bytes;
        feeds <= room.feeds
            && bytes <= room.bytes
            && (!is_more_unnamed || unnamed_bytes <= room.bytes / UNNAMED_PART)
    }

    /// What the filters of all feeds take, in bytes.
    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter_bytes
    }

    /// Of that, what those take that name no topic there is.
    pub(crate) fn unnamed_bytes(&self) -> usize {
        self.unnamed_bytes
    }

    /// The feed of a filter, if there is one.
    pub(crate) fn id(&self, filter: &Filter) -> Option<FeedId> {
        self.index.get(filter).copied()
    }

    /// The filter of a feed.
    pub(crate) fn filter(&self, id: FeedId) -> &Filter {
        &self.feed(id).filter
    }

    /// Takes note of a message that was published at `published_us`.
    pub(crate) fn log(&mut self, event: Event, published_us: u64) {
        let mut wanted = Vec::new();
        self.index.matching(event.topic(), |&id| wanted.push(id));
        if wanted.is_empty() {
            // The last reader left while the message was on its way.
            return;
        }
        for &id in &wanted {
            let feed = self.feed_mut(id);
            let mut named_bytes = 0;
            if !feed.is_named && matches!(feed.filter, Filter::Topic(_)) {
                named_bytes = feed.unnamed_bytes();
                feed.is_named = true;
            }
            feed.recent.push_back(event.clone());
            feed.latest_seq = feed.latest_seq.max(event.seq());
            feed.due_us.get_or_insert(published_us);
            if !std::mem::replace(&mut feed.is_sweeping, true) {
                self.sweeping.push_back(id);
            }
            self.unnamed_bytes -= named_bytes;
        }
        let logged = Logged { event, feeds: wanted.into() };
        self.log_bytes += logged.cost_bytes();
        self.log.push_back(logged);
        while self.log.len() > LOG_MESSAGES_MAX || self.log_bytes > LOG_BYTES_MAX {
            self.forget_oldest();
        }
    }

    /// Something went wrong while events were taken in. Of what was published up to `seq` the log
    /// may lack some, so it forgets all of it, and every reader is visited and looks at history.
    pub(crate) fn invalidate(&mut self, seq: u64, now_us: u64) {
        self.log.clear();
        self.log_bytes = 0;
        self.forgotten_seq = self.forgotten_seq.max(seq);
        for (id, feed) in self.feeds.iter_mut().enumerate() {
            let Some(feed) = feed else { continue };
            feed.recent.clear();
            feed.latest_seq = feed.latest_seq.max(seq);
            feed.complete_since = feed.complete_since.max(seq);
            feed.due_us.get_or_insert(now_us);
            if !std::mem::replace(&mut feed.is_sweeping, true) {
                self.sweeping.push_back(id as FeedId);
            }
        }
    }

    /// Whether there are readers to be visited.
    pub(crate) fn is_sweeping(&self) -> bool {
        !self.sweeping.is_empty()
    }

    /// The feed whose readers are to be visited next; it then goes behind the others. One of whose
    /// members most have left is tidied first: else each sweep would be longer than the one before.
    pub(crate) fn next_sweep(&mut self) -> Option<FeedId> {
        for _ in 0..self.sweeping.len() {
            let Some(id) = self.sweeping.pop_front() else { break };
            // Its last reader may have left since.
            let Some(Some(feed)) = self.feeds.get_mut(id as usize) else { continue };
            let is_tidied = feed.sweep.is_some() || feed.tidying.is_none();
            if is_tidied && feed.sweep.is_none() {
                feed.begin_sweep();
            }
            feed.is_sweeping = !is_tidied || feed.sweep.is_some();
            if feed.is_sweeping {
                self.sweeping.push_back(id);
            }
            if feed.sweep.is_some() {
                return Some(id);
            }
        }
        None
    }

    /// The next step of the sweep over a feed; `None` if there is none any more.
    pub(crate) fn next_visit(&mut self, id: FeedId) -> Option<Visit> {
        let feed = self.feeds.get_mut(id as usize)?.as_mut()?;
        let sweep = feed.sweep.as_mut()?;
        if sweep.visited < sweep.end {
            let at = sweep.start + sweep.visited;
            sweep.visited += 1;
            return Some(Visit::Reader(
                feed.members[if at < sweep.end { at } else { at - sweep.end }],
            ));
        }
        let published_us = sweep.published_us;
        feed.sweep = None;
        Some(Visit::Over { published_us })
    }

    /// The number of the last message of a feed that was heard of.
    pub(crate) fn latest_seq(&self, id: FeedId) -> u64 {
        self.feed(id).latest_seq
    }

    /// The number of the last message of any feed that was heard of.
    pub(crate) fn logged_seq(&self) -> u64 {
        self.log.back().map_or(0, |logged| logged.event.seq()).max(self.forgotten_seq)
    }

    /// Whether the log has all there is of a feed after `cursor`.
    pub(crate) fn is_complete(&self, id: FeedId, cursor: u64) -> bool {
        self.feed(id).complete_since <= cursor
    }

    /// Whether the log has all there is of any feed after `cursor`.
    pub(crate) fn has_forgotten_nothing(&self, cursor: u64) -> bool {
        self.forgotten_seq <= cursor
    }

    /// What a feed has after `cursor`, oldest first.
    pub(crate) fn due(
        &self,
        id: FeedId,
        cursor: u64,
    ) -> impl DoubleEndedIterator<Item = &Event> + Clone {
        let recent = &self.feed(id).recent;
        recent.range(recent.partition_point(|event| event.seq() <= cursor)..)
    }

    /// How many messages of any feed the log has after `cursor`.
    pub(crate) fn logged_after(&self, cursor: u64) -> usize {
        self.log.len() - self.log.partition_point(|logged| logged.event.seq() <= cursor)
    }

    /// What those feeds that `is_mine` have after `cursor`, oldest first.
    pub(crate) fn due_to_many(
        &self,
        cursor: u64,
        is_mine: impl Fn(FeedId) -> bool + Clone,
    ) -> impl DoubleEndedIterator<Item = &Event> + Clone {
        let from = self.log.partition_point(|logged| logged.event.seq() <= cursor);
        let mine = move |logged: &&Logged| logged.feeds.iter().any(|&id| is_mine(id));
        self.log.range(from..).filter(mine).map(|logged| &logged.event)
    }

    /// Whether a topic is one of those feeds that `is_mine`.
    pub(crate) fn is_of_any(&self, topic: &str, is_mine: impl Fn(FeedId) -> bool) -> bool {
        let mut found = false;
        self.index.matching(topic, |&id| found |= is_mine(id));
        found
    }

    /// Whether there are lists of which most have left.
    pub(crate) fn is_sparse(&self) -> bool {
        !self.sparse.is_empty()
    }

    /// Tidies a slice of such lists: `is_reader` says whether a member still stands for somebody
    /// who reads the feed. During a sweep positions in a list mean something, so it waits.
    pub(crate) fn tidy(&mut self, mut is_reader: impl FnMut(FeedId, Member) -> bool) {
        let (feeds, mut left) = (&mut self.feeds, TIDIED_PER_TURN);
        self.sparse.retain(|&id| {
            // The number may be another feed's by now, which is not to be tidied.
            let Some(Some(feed)) = feeds.get_mut(id as usize) else { return false };
            if feed.sweep.is_none() {
                feed.tidy(&mut left, |member| is_reader(id, member));
            }
            feed.tidying.is_some()
        });
    }

    /// The filters of all feeds, each at the place of its feed's number.
    pub(crate) fn filters(&self) -> Vec<Option<Filter>> {
        self.feeds.iter().map(|feed| feed.as_ref().map(|feed| feed.filter.clone())).collect()
    }

    /// Opens feeds by their filters, each with the number of its place, when there is none yet.
    /// Readers are then to enter all of them, and the hub is to be told. Returns whether no filter
    /// was there twice.
    pub(crate) fn open_all(&mut self, filters: &[Option<Filter>]) -> bool {
        for (id, filter) in filters.iter().enumerate() {
            self.feeds.push(None);
            match filter {
                Some(filter) if self.index.get(filter).is_some() => return false,
                Some(filter) => self.open_as(id as FeedId, filter),
                None => self.vacant.push(id as FeedId),
            }
        }
        true
    }

    /// Enters a connection into a feed. Returns whether there is one of this number.
    pub(crate) fn enter(&mut self, id: FeedId, member: Member) -> bool {
        let Some(Some(feed)) = self.feeds.get_mut(id as usize) else { return false };
        feed.readers.store(feed.readers.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        feed.members.push(member);
        true
    }

    /// The hub is there, and nothing changes in it meanwhile: the log begins behind the number of
    /// its last message. Returns whether every feed has readers.
    pub(crate) fn begin_log(&mut self, hub: &Hub) -> bool {
        for id in 0..self.feeds.len() {
            self.subscribe(hub, id as FeedId);
        }
        self.forgotten_seq = hub.notified_seq();
        self.feeds.iter().flatten().all(|feed| !feed.members.is_empty())
    }

    fn open(&mut self, hub: &Hub, filter: &Filter) -> FeedId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.feeds.push(None);
            (self.feeds.len() - 1) as FeedId
        });
        self.open_as(id, filter);
        self.subscribe(hub, id);
        id
    }

    /// Has the hub tell of what the feed wants.
    fn subscribe(&mut self, hub: &Hub, id: FeedId) {
        let Some(feed) = &mut self.feeds[id as usize] else { return };
        feed.complete_since =
            hub.subscribe(self.subscriber, &feed.filter, Arc::clone(&feed.readers));
        if names_a_topic(hub, &feed.filter) {
            self.unnamed_bytes -= feed.unnamed_bytes();
            feed.is_named = true;
        }
    }

    fn open_as(&mut self, id: FeedId, filter: &Filter) {
        let feed = Feed {
            filter: filter.clone(),
            is_named: false,
            members: Vec::new(),
            readers: Arc::new(AtomicU32::new(0)),
            recent: VecDeque::new(),
            latest_seq: 0,
            complete_since: 0,
            sweep: None,
            due_us: None,
            rotation: 0,
            is_sweeping: false,
            tidying: None,
        };
        self.filter_bytes += filter.cost_bytes();
        self.unnamed_bytes += feed.unnamed_bytes();
        self.feeds[id as usize] = Some(feed);
        self.index.insert(filter, id);
    }

    fn forget_oldest(&mut self) {
        let Some(logged) = self.log.pop_front() else { return };
        let seq = logged.event.seq();
        self.log_bytes -= logged.cost_bytes();
        self.forgotten_seq = self.forgotten_seq.max(seq);
        for &id in &logged.feeds {
            // The number may be another feed's by now, which has not got this message.
            if let Some(Some(feed)) = self.feeds.get_mut(id as usize)
                && feed.recent.front().is_some_and(|oldest| oldest.seq() == seq)
            {
                feed.recent.pop_front();
                feed.complete_since = feed.complete_since.max(seq);
            }
        }
    }

    /// A feed is there as long as somebody reads it, and only readers speak of it.
    fn feed(&self, id: FeedId) -> &Feed {
        self.feeds[id as usize].as_ref().expect("a feed that is read exists")
    }

    fn feed_mut(&mut self, id: FeedId) -> &mut Feed {
        self.feeds[id as usize].as_mut().expect("a feed that is read exists")
    }
}

impl Logged {
    /// What it takes, and keeps alive, roughly. A message may be of many feeds.
    fn cost_bytes(&self) -> usize {
        self.event.message.data().len() + LOGGED_BYTES + self.feeds.len() * LOGGED_FEED_BYTES
    }
}

impl Drop for Feeds {
    /// The worker ends: nobody is counted any more who reads here.
    fn drop(&mut self) {
        for feed in self.feeds.iter().flatten() {
            feed.readers.store(0, Ordering::Relaxed);
        }
    }
}

impl Feed {
    /// What its filter takes, if it names no topic there is.
    fn unnamed_bytes(&self) -> usize {
        if self.is_named { 0 } else { self.filter.cost_bytes() }
    }

    /// Begins a sweep, if anything is due.
    fn begin_sweep(&mut self) {
        let Some(published_us) = self.due_us.take() else { return };
        let end = self.members.len();
        let start = if end == 0 { 0 } else { self.rotation % end };
        self.rotation = start + end / 3 + 1;
        self.sweep = Some(Sweep { start, end, visited: 0, published_us });
    }

    /// Looks at up to `left` members.
    fn tidy(&mut self, left: &mut usize, mut is_reader: impl FnMut(Member) -> bool) {
        let Some(Tidying { mut read, mut write }) = self.tidying else { return };
        while *left > 0 && read < self.members.len() {
            let member = self.members[read];
            if is_reader(member) {
                self.members[write] = member;
                write += 1;
            }
            read += 1;
            *left -= 1;
        }
        self.tidying = Some(Tidying { read, write });
        if read == self.members.len() {
            self.members.truncate(write);
            self.members.shrink_to(write * 2);
            self.tidying = None;
        }
    }
}

fn names_a_topic(hub: &Hub, filter: &Filter) -> bool {
    match filter {
        Filter::Topic(topic) => hub.with_value(topic, |value| value.is_some()),
        Filter::Pattern(_) => false,
    }
}

/// Bounds of the log: beyond them, history is asked. Tests come to them sooner.
const LOG_MESSAGES_MAX: usize = if cfg!(test) { 24 } else { 4_096 };
const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a message takes besides its data.
const LOGGED_BYTES: usize = 256;

/// The same for each feed it is of: its number, and its place in what is recent there.
const LOGGED_FEED_BYTES: usize = 24;

/// Of the room for filters, the part of those that name no topic there is.
const UNNAMED_PART: usize = 4;

/// Members looked at in one turn.
const TIDIED_PER_TURN: usize = 8_192;

/// Members of those who have left that are not worth tidying away.
const SPARE_MEMBERS: usize = 16;

#[cfg(test)]
mod tests;
