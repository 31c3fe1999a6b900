//! What followers are brought: other servers that have all of this one, or some of its topics.
//!
//! A follower reads two pages of the control listener. A *snapshot* is the hub as the file of a
//! store, written a slice at a time while its connection takes it, and behind that what came
//! meanwhile. A *feed* is every entry from some number on, in frames that all feeds share.
//!
//! Both are read from one [`Ring`] of encoded entries. The first transfer creates it, and it is
//! dropped some minutes after the last one has ended: a server without followers pays nothing. The
//! worker that sends from it fills it, once for all transfers, from a [`ChangeQueue`] of the hub. A
//! feed is a position in the ring. The position of a follower that reads too slowly is dropped, and
//! the follower loads a snapshot. So a slow follower costs no other client anything.
//!
//! How a connection sends all this is in `connection/transfer.rs`.

mod ring;
mod snapshot;

use ring::{Chunk, Lost, Place, Ring, frame_in};
use snapshot::{SnapshotCopy, is_meant};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use stentor_hub::{Filter, Hub, Id, entry_topic};
use stentor_io::{Peer, Waker, limits_are_small};
use stentor_order::{ChangeQueue, HubChange, QueueCut};

/// The followers of one worker, and what they are sent from.
#[derive(Default)]
pub struct Replication {
    queue: Option<ChangeQueue>,
    ring: Option<Ring>,
    /// What comes into it next.
    pending: VecDeque<HubChange>,
    /// Entries that were taken in and not counted yet.
    entries: u64,
    /// Counts the rings: a place in one is none in the next.
    life: u64,
    copies: BTreeMap<usize, Transfer>,
    /// Of the process before: connections that are to be sent their end.
    pub ended: Vec<Peer>,
    /// The last time that anybody was there.
    used_ms: u64,
}

/// What one connection is being sent.
pub struct Transfer {
    life: u64,
    filters: Box<[Filter]>,
    what: What,
}

enum What {
    /// Everything from here on. `upto`: all up to this number was sent.
    Feed {
        place: Place,
        upto: u64,
        first: Option<Arc<[u8]>>,
    },
    Snapshot(Box<SnapshotCopy>),
}

/// What became of the next piece.
pub enum Next {
    /// It is in the output; this is what it cost.
    Sent(usize),
    /// There is nothing to be sent now.
    Nothing,
    /// There is more to do, in another turn.
    Later,
    /// That was all.
    Over,
    /// It cannot be gone on with: it was too slow.
    TooSlow,
    /// The same, for the order itself is another.
    Changed,
}

/// Why a feed cannot begin where it was asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHere {
    /// The id is of another life.
    Epoch,
    /// It is of no message yet.
    Ahead,
    /// It is older than what is kept.
    TooOld,
}

/// One that reads a feed, for those who ask.
#[derive(Debug, serde::Serialize)]
pub struct Follower {
    /// Of the latest numbers it has not been sent so many.
    pub behind: u64,
    /// The topics it reads; none: all.
    pub topics: Vec<String>,
}

/// What one worker sends to followers, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedCounts {
    /// Entries that were taken in since this was asked last.
    pub entries: u64,
    /// Feeds that are being sent.
    pub followers: u64,
    /// Snapshots that are being sent.
    pub snapshots: u64,
    /// Of the latest numbers, how many the last follower has not been sent.
    pub behind: u64,
    /// The memory of the entries that are kept, in bytes.
    pub bytes: u64,
}

/// The output of a connection.
pub trait ChunkSink {
    /// The bytes at its end, to be added to.
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Adds bytes that other connections are sent, too.
    fn shared(&mut self, bytes: &Arc<[u8]>);
}

impl Replication {
    /// Begins a feed, behind a number or from now on. Returns the number behind which it begins.
    ///
    /// # Errors
    /// It is not known any more what is behind that.
    pub fn feed(
        &mut self,
        hub: &Hub,
        waker: &Arc<Waker>,
        since: Option<Id>,
        filters: Box<[Filter]>,
    ) -> Result<(Transfer, u64), NotHere> {
        if let Some(id) = since {
            self.ring(hub, waker);
            self.take_in_upto(hub, id.seq);
        }
        let ring = self.ring(hub, waker);
        let (place, upto, first) = match since {
            None => (ring.end(), ring.upto(), None),
            Some(id) if id.epoch != ring.epoch() => return Err(NotHere::Epoch),
            Some(id) if id.seq > ring.upto() => return Err(NotHere::Ahead),
            // What it has seen under this number is no more.
            Some(id) if hub.number(id).is_some_and(|number| hub.was_rolled_back(number)) => {
                return Err(NotHere::TooOld);
            }
            Some(id) => {
                let (place, first) = ring.behind(id.seq).ok_or(NotHere::TooOld)?;
                (place, id.seq, first)
            }
        };
        let what = What::Feed { place, upto, first };
        Ok((Transfer { life: self.life, filters, what }, upto))
    }

    /// Begins a snapshot.
    pub fn snapshot(
        &mut self,
        hub: &Hub,
        waker: &Arc<Waker>,
        filters: Box<[Filter]>,
    ) -> (Transfer, u64) {
        let place = self.ring(hub, waker).end();
        let snapshot = SnapshotCopy::begin(hub, filters.clone(), place);
        let seq = snapshot.seq();
        let what = What::Snapshot(Box::new(snapshot));
        (Transfer { life: self.life, filters, what }, seq)
    }

    /// A connection is sent this from now on.
    pub fn enter(&mut self, peer: Peer, copy: Transfer) {
        self.copies.insert(peer.index(), copy);
    }

    /// It is not any more.
    pub fn leave(&mut self, peer: Peer, now_ms: u64) -> Option<Transfer> {
        self.used_ms = now_ms;
        self.copies.remove(&peer.index())
    }

    /// Those that read feeds.
    pub fn feeds(&self) -> impl Iterator<Item = Peer> {
        let feeds = self.copies.iter().filter(|(_, copy)| copy.is_feed());
        feeds.map(|(index, _)| Peer::from_index(*index as u32))
    }

    /// What a connection is sent.
    pub fn copy(&self, peer: Peer) -> Option<&Transfer> {
        self.copies.get(&peer.index())
    }

    /// All those that are sent something.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        self.copies.keys().map(|index| Peer::from_index(*index as u32))
    }

    /// Who reads feeds, for those who ask.
    pub fn followers(&self) -> Vec<Follower> {
        let latest = self.ring.as_ref().map_or(0, Ring::upto);
        let follower = |copy: &Transfer| match copy.what {
            What::Feed { upto, .. } => Some(Follower {
                behind: latest.saturating_sub(upto),
                topics: copy.filters.iter().map(ToString::to_string).collect(),
            }),
            What::Snapshot(_) => None,
        };
        self.copies.values().filter_map(follower).collect()
    }

    /// What is held for those that are being sent something, roughly, in bytes. The ring has room
    /// of its own.
    pub fn held_bytes(&self) -> usize {
        self.copies.values().map(Transfer::own_bytes).sum()
    }

    /// Shows how it is.
    pub fn counts(&mut self) -> FeedCounts {
        let upto = self.ring.as_ref().map_or(0, Ring::upto);
        let feeds = self.copies.values().filter(|copy| copy.is_feed());
        let followers = feeds.count();
        let behind = |copy: &Transfer| match copy.what {
            What::Feed { upto: sent, .. } => upto.saturating_sub(sent),
            What::Snapshot(_) => 0,
        };
        FeedCounts {
            entries: std::mem::take(&mut self.entries),
            followers: followers as u64,
            snapshots: (self.copies.len() - followers) as u64,
            behind: self.copies.values().map(behind).max().unwrap_or(0),
            bytes: self.ring.as_ref().map_or(0, Ring::bytes) as u64,
        }
    }

    /// Whether something has come that is not in the ring yet.
    pub fn is_behind(&self) -> bool {
        let has_news = || self.queue.as_ref().is_some_and(ChangeQueue::has_changes);
        let is_ring_behind = self.ring.is_some() && (!self.pending.is_empty() || has_news());
        is_ring_behind || !self.ended.is_empty()
    }

    /// Begins the ring before anybody is there: another process had followers, who come back.
    pub fn begin(&mut self, hub: &Hub, waker: &Arc<Waker>, now_ms: u64) {
        self.used_ms = now_ms;
        self.ring(hub, waker);
    }

    /// Those who are turned away, for nothing is heard here either, come back to where they were.
    pub fn expect_followers(&mut self, now_ms: u64) {
        self.used_ms = now_ms;
    }

    /// The ring takes no more than that from now on.
    pub fn limit(&mut self, bytes_max: usize) {
        self.ring.iter_mut().for_each(|ring| ring.limit(bytes_max));
    }

    /// Takes in some of what has come. Returns whether there is anything to be sent.
    pub fn take_in(&mut self, hub: &Hub, now_ms: u64) -> bool {
        let (Some(queue), Some(ring)) = (&self.queue, &mut self.ring) else {
            return false;
        };
        if !self.copies.is_empty() {
            self.used_ms = now_ms;
        } else if now_ms >= self.used_ms + UNUSED_MS {
            self.close(hub);
            return false;
        }
        if self.pending.is_empty() {
            // Numbers may have gone by of which nobody is told.
            let is_behind = hub.id(hub.seq()) != ring.id();
            if !is_behind && !queue.has_changes() {
                return false;
            }
            let upto = if is_behind { hub.id(hub.notified_seq()).seq } else { 0 };
            match queue.take() {
                Ok(news) if news.is_empty() => {
                    ring.note(upto);
                    return false;
                }
                Ok(news) => self.pending = news.into(),
                Err(cut) => {
                    if cut == QueueCut::Full {
                        tracing::warn!("feeds are ended, and followers load a snapshot: {cut}");
                    }
                    self.close(hub);
                    return true;
                }
            }
        }
        let mut bytes = 0;
        let is_some = |news: &HubChange| {
            let has_room = bytes < bytes_at_once();
            bytes += news.bytes();
            has_room
        };
        let count = self.pending.iter().map(is_some).take_while(|is_some| *is_some).count();
        self.entries += count as u64;
        if ring.epoch() != hub.epoch() || ring.extend(self.pending.drain(..count)).is_err() {
            self.close(hub);
        }
        true
    }

    /// Puts the next piece of what a connection is sent to the output, as a chunk.
    pub fn next(&mut self, peer: Peer, hub: &Hub, out: &mut impl ChunkSink) -> Next {
        let Some(copy) = self.copies.get_mut(&peer.index()) else { return Next::Over };
        let ring = match &mut self.ring {
            Some(ring) if copy.life == self.life => ring,
            _ => return Next::Changed,
        };
        match &mut copy.what {
            What::Feed { place, upto, first } => {
                if let Some(first) = first.take() {
                    return Next::Sent(send(&first, &copy.filters, out));
                }
                match ring.at(*place) {
                    Err(Lost) => Next::TooSlow,
                    Ok(None) => {
                        *upto = ring.upto();
                        Next::Nothing
                    }
                    Ok(Some(part)) => {
                        (*place, *upto) = (part.next, part.upto);
                        Next::Sent(send(part.chunk, &copy.filters, out))
                    }
                }
            }
            What::Snapshot(snapshot) => snapshot.next(hub, ring, &copy.filters, out.bytes()),
        }
    }

    /// Says how far a feed is, and that its leader is there.
    pub fn sign_of_life(&mut self, peer: Peer, age_ms: u64, out: &mut Vec<u8>) {
        if let Some(Transfer { what: What::Feed { upto, .. }, .. }) = self.copies.get(&peer.index())
        {
            put_sign_of_life(*upto, age_ms, out);
        }
    }

    /// Takes in what has come up to a number that somebody has from a snapshot, unless that is very
    /// much.
    fn take_in_upto(&mut self, hub: &Hub, seq: u64) {
        for _ in 0..TIMES_AT_ONCE {
            let is_there = self.ring.as_ref().is_none_or(|ring| ring.upto() >= seq);
            if is_there || !self.take_in(hub, self.used_ms) {
                return;
            }
        }
    }

    /// The ring. Not all that has come need be in it yet.
    fn ring(&mut self, hub: &Hub, waker: &Arc<Waker>) -> &mut Ring {
        if self.ring.as_ref().is_some_and(|ring| ring.epoch() != hub.epoch()) {
            self.close(hub);
        }
        if self.ring.is_none() {
            self.open(hub, waker);
        }
        self.ring.as_mut().expect("it was opened")
    }

    fn open(&mut self, hub: &Hub, waker: &Arc<Waker>) {
        let queue = || ChangeQueue::new(hub, Some(Arc::clone(waker)));
        let begin = self.queue.get_or_insert_with(queue).open(hub, queued_bytes_max());
        self.life += 1;
        self.ring = Some(Ring::begin(hub.id(begin), hub.rules()));
    }

    /// A panic may have taken something out that is not in the ring: whoever reads it begins anew.
    pub fn recover(&mut self, hub: &Hub) {
        if self.ring.is_some() {
            self.close(hub);
        }
    }

    /// Nobody is sent anything any more that was begun before.
    fn close(&mut self, hub: &Hub) {
        self.queue.iter().for_each(|queue| queue.close(hub));
        (self.ring, self.pending) = (None, VecDeque::new());
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_feed() { "feed" } else { "snapshot" };
        write!(f, "Transfer({what}, {:?})", self.filters)
    }
}

impl Transfer {
    /// Whether it goes on for as long as its connection does.
    pub fn is_feed(&self) -> bool {
        matches!(self.what, What::Feed { .. })
    }

    /// The topics of which something is sent.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// What it takes in memory, roughly.
    pub fn own_bytes(&self) -> usize {
        match &self.what {
            What::Feed { first, .. } => first.as_ref().map_or(0, |first| first.len()),
            What::Snapshot(snapshot) => snapshot.own_bytes(),
        }
    }
}

/// The topics that are followed, for people.
pub fn named<T: ToString>(topics: &[T]) -> String {
    let names: Vec<String> = topics.iter().map(ToString::to_string).collect();
    if names.is_empty() { "all topics".to_owned() } else { names.join(" ") }
}

/// Says how far a feed is: up to this number everything was sent that there was here so many
/// milliseconds ago.
pub fn put_sign_of_life(upto: u64, age_ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&Chunk::begin().seal_as_of(upto, age_ms));
}

/// Sends of a chunk what is asked for, and says what that cost.
fn send(chunk: &Arc<[u8]>, filters: &[Filter], out: &mut impl ChunkSink) -> usize {
    if filters.is_empty() {
        out.shared(chunk);
        return chunk.len();
    }
    let (frame, mut some) = (frame_in(chunk), Chunk::begin());
    for (seq, entry) in frame.records() {
        // Rules concern whatever topics there are.
        let is_sent = match entry_topic(entry) {
            Ok(Some(topic)) => is_meant(filters, topic),
            _ => true,
        };
        if is_sent {
            some.entry(seq, |out| out.extend_from_slice(entry));
        }
    }
    if !some.is_empty() {
        out.shared(&some.seal(frame.upto));
    }
    chunk.len() * (1 + filters.len())
}

/// The most that may wait for the ring, in bytes. The worker takes it in each iteration: if there
/// is more, the worker was frozen.
fn queued_bytes_max() -> usize {
    if cfg!(test) || limits_are_small() { 64 << 10 } else { 64 << 20 }
}

/// What is taken in at a time, in bytes of messages: less than a millisecond.
fn bytes_at_once() -> usize {
    if cfg!(test) || limits_are_small() { 2_000 } else { 1 << 20 }
}

/// So often that is done for one request.
const TIMES_AT_ONCE: usize = 8;

/// So long the ring stays when nobody is there: a follower that comes back finds what it missed.
const UNUSED_MS: u64 = 5 * 60_000;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Limits, Precondition};
    use stentor_wire::target::TopicName;

    fn hub() -> Hub {
        Hub::new(Epoch::from_number(7), Vec::new(), Limits::default())
    }

    fn publish(hub: &Hub) {
        let topic = TopicName::parse("/a").unwrap();
        let draft = Draft::new(vec![b'x'; 500]);
        hub.publish(topic, draft, Precondition::None, 1).unwrap();
    }

    #[test]
    fn the_ring_outlives_its_last_follower_for_minutes() {
        let (hub, waker) = (hub(), Arc::new(Waker::new().unwrap()));
        let mut replication = Replication::default();
        // It begins before the first follower comes back, long after this clock was at 0.
        replication.begin(&hub, &waker, 10 * UNUSED_MS);
        replication.take_in(&hub, 11 * UNUSED_MS - 1);
        assert!(replication.ring.is_some());
        let (peer, (copy, _)) =
            (Peer::from_index(1), replication.snapshot(&hub, &waker, [].into()));
        replication.enter(peer, copy);
        replication.take_in(&hub, 20 * UNUSED_MS);
        replication.leave(peer, 21 * UNUSED_MS);
        replication.take_in(&hub, 22 * UNUSED_MS - 1);
        assert!(replication.ring.is_some());
        replication.take_in(&hub, 22 * UNUSED_MS);
        assert!(replication.ring.is_none());
    }

    impl ChunkSink for Vec<u8> {
        fn bytes(&mut self) -> &mut Vec<u8> {
            self
        }

        fn shared(&mut self, bytes: &Arc<[u8]>) {
            self.extend_from_slice(bytes);
        }
    }

    /// The worker applies each filter to a slice, even if it then sends nothing of it.
    #[test]
    fn a_slice_costs_its_filters() {
        let (hub, waker) = (hub(), Arc::new(Waker::new().unwrap()));
        publish(&hub);
        let costs = [1, 100].map(|filters| {
            let filters = vec![Filter::parse("/b/*").unwrap(); filters].into();
            let (mut replication, peer) = (Replication::default(), Peer::from_index(1));
            let (copy, _) = replication.snapshot(&hub, &waker, filters);
            replication.enter(peer, copy);
            let mut costs = Vec::new();
            while let Next::Sent(cost) = replication.next(peer, &hub, &mut Vec::new()) {
                costs.push(cost);
            }
            costs.into_iter().max().unwrap()
        });
        assert!(costs[0] >= 4_000 && costs[1] >= 100 * 4_000, "{costs:?}");
    }

    #[test]
    fn a_turn_takes_in_its_share() {
        let (hub, waker) = (hub(), Arc::new(Waker::new().unwrap()));
        let mut replication = Replication::default();
        replication.begin(&hub, &waker, 0);
        (0..100).for_each(|_| publish(&hub));
        let mut counts = vec![replication.counts().entries];
        while replication.take_in(&hub, 0) {
            counts.push(replication.counts().entries);
        }
        let at_once = bytes_at_once() as u64 / 500;
        assert!(counts.iter().all(|count| *count <= at_once), "{counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), 100);
        // A request takes in as much as several turns do.
        (0..100).for_each(|_| publish(&hub));
        replication.take_in_upto(&hub, hub.seq());
        assert_eq!(replication.counts().entries, TIMES_AT_ONCE as u64 * counts[1]);
    }

    #[test]
    fn a_feed_ends_with_its_ring() {
        let (hub, waker) = (hub(), Arc::new(Waker::new().unwrap()));
        let (mut replication, peer) = (Replication::default(), Peer::from_index(1));
        let (feed, _) = replication.feed(&hub, &waker, None, [].into()).unwrap();
        replication.enter(peer, feed);
        assert!(matches!(replication.next(peer, &hub, &mut Vec::new()), Next::Nothing));
        replication.recover(&hub);
        // The next ring has a frame at the same place.
        replication.begin(&hub, &waker, 0);
        assert!(matches!(replication.next(peer, &hub, &mut Vec::new()), Next::Changed));
    }

    #[test]
    fn a_feed_of_some_topics_has_all_rules() {
        let (hub, waker) = (hub(), Arc::new(Waker::new().unwrap()));
        let (mut replication, peer) = (Replication::default(), Peer::from_index(1));
        let filters = [Filter::parse("/b/*").unwrap()].into();
        let (feed, _) = replication.feed(&hub, &waker, None, filters).unwrap();
        replication.enter(peer, feed);
        publish(&hub);
        hub.set_rules(Vec::new());
        replication.take_in(&hub, 0);
        let mut chunks = Vec::new();
        while let Next::Sent(_) = replication.next(peer, &hub, &mut chunks) {}
        let topics = frame_in(&chunks).records().map(|(_, entry)| entry_topic(entry));
        assert_eq!(topics.collect::<Vec<_>>(), [Ok(None)]);
    }

    /// The snapshot may show a message that the ring takes in later.
    #[test]
    fn a_snapshot_waits_for_the_ring() {
        let (hub, waker) = (hub(), Arc::new(Waker::new().unwrap()));
        let (mut replication, peer) = (Replication::default(), Peer::from_index(1));
        let (snapshot, _) = replication.snapshot(&hub, &waker, [].into());
        replication.enter(peer, snapshot);
        publish(&hub);
        let send = |replication: &mut Replication| loop {
            match replication.next(peer, &hub, &mut Vec::new()) {
                Next::Sent(_) => {}
                next => return next,
            }
        };
        assert!(matches!(send(&mut replication), Next::Later));
        replication.take_in(&hub, 0);
        assert!(matches!(send(&mut replication), Next::Over));
    }
}
