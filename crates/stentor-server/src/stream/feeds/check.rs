//! What must hold of the feeds between two turns, in debug builds.

use super::{Feed, FeedId, Feeds, LOG_BYTES_MAX, LOG_MESSAGES_MAX, Logged, Member};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use stentor_hub::Event;

impl Feeds {
    /// Panics if the feeds are not those that `readers` read, or the log is not in order.
    pub(crate) fn check(&self, readers: &HashMap<FeedId, Vec<Member>>) {
        let feeds =
            || self.feeds.iter().enumerate().filter_map(|(id, feed)| Some((id, feed.as_ref()?)));
        assert_eq!(feeds().count(), readers.len(), "every feed is read, and every reader has one");
        assert_eq!(feeds().count() + self.vacant.len(), self.feeds.len());
        assert_eq!(self.index.len(), readers.len());
        let bytes: usize = feeds().map(|(_, feed)| feed.filter.cost_bytes()).sum();
        let unnamed_bytes: usize = feeds().map(|(_, feed)| feed.unnamed_bytes()).sum();
        assert_eq!((self.filter_bytes, self.unnamed_bytes), (bytes, unnamed_bytes));

        assert!(self.log.iter().map(|logged| logged.event.seq()).is_sorted_by(|a, b| a < b));
        assert_eq!(self.log_bytes, self.log.iter().map(Logged::cost_bytes).sum::<usize>());
        assert!(self.log.len() <= LOG_MESSAGES_MAX && self.log_bytes <= LOG_BYTES_MAX);
        for (id, feed) in feeds() {
            let id = id as FeedId;
            assert_eq!(self.index.get(&feed.filter), Some(&id));
            assert!(!feed.is_sweeping || self.sweeping.contains(&id), "nobody visits {id}");
            assert!(feed.is_sweeping || feed.sweep.is_none() && feed.due_us.is_none(), "{id}");
            assert!(feed.tidying.is_none() || self.sparse.contains(&id), "nobody tidies {id}");
            feed.check_members(&readers[&id]);
            self.check_recent(id, feed);
        }
    }

    /// What is recent of a feed is what the log has of it, and lacks nothing that is newer than
    /// `complete_since`.
    fn check_recent(&self, id: FeedId, feed: &Feed) {
        let in_log = self.log.iter().filter(|logged| logged.feeds.contains(&id));
        let mut in_log = in_log.map(|logged| logged.event.seq());
        assert!(feed.recent.iter().all(|event| in_log.any(|seq| seq == event.seq())), "{id}");
        let newer = |event: &&Event| event.seq() > feed.complete_since;
        let matching = self.log.iter().map(|logged| &logged.event).filter(newer);
        let matching = matching.filter(|event| feed.filter.matches(event.topic()));
        let recent = feed.recent.iter().filter(newer);
        assert!(recent.map(Event::seq).eq(matching.map(Event::seq)), "{id} lacks something");
        let last = feed.recent.back().map_or(0, Event::seq);
        assert!(feed.latest_seq >= last, "{id}");
    }
}

impl Feed {
    /// Each reader stands in the list once, and nobody else is counted.
    fn check_members(&self, readers: &[Member]) {
        assert_eq!(self.readers.load(Ordering::Relaxed) as usize, readers.len());
        let (write, read) = self.tidying.map_or((0, 0), |tidying| (tidying.write, tidying.read));
        let members = self.members[..write].iter().chain(&self.members[read..]);
        let mut places = HashMap::new();
        for member in members {
            *places.entry((member.peer.index(), member.stamp)).or_insert(0) += 1;
        }
        for reader in readers {
            assert_eq!(places.get(&(reader.peer.index(), reader.stamp)), Some(&1), "{reader:?}");
        }
        if let Some(sweep) = &self.sweep {
            assert!(sweep.visited <= sweep.end && sweep.end <= self.members.len());
            assert!(sweep.start < sweep.end || sweep.end == 0);
        }
    }
}
