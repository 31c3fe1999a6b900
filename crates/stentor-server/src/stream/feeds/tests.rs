//! Feeds by themselves: whose turn it is, what the log has, and what is left of those who leave.

use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use stentor_hub::{Draft, Epoch, Limits, Precondition, Subscriber};
use stentor_wire::target::TopicName;

/// A hub, feeds that hear of it, and a way from one to the other.
struct Bench {
    hub: Hub,
    told: Arc<Told>,
    feeds: Feeds,
}

#[derive(Default)]
struct Told(Mutex<Vec<Event>>);

impl Subscriber for Told {
    fn notify(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Bench {
    fn new() -> Bench {
        let hub = Hub::new(Epoch::parse("0badcafe").unwrap(), Vec::new(), Limits::default());
        let told = Arc::new(Told::default());
        let feeds = Feeds::new(hub.add_subscriber(Arc::clone(&told) as Arc<dyn Subscriber>));
        Bench { hub, told, feeds }
    }

    /// Publishes, and has the feeds hear of it. Returns the number.
    fn publish(&mut self, topic: &str) -> u64 {
        let draft = Draft::new(*b"x");
        let seq = self
            .hub
            .publish(TopicName::parse(topic).unwrap(), draft, Precondition::None, 0)
            .unwrap()
            .id
            .seq;
        for event in std::mem::take(&mut *self.told.0.lock().unwrap()) {
            self.feeds.log(event, seq);
        }
        seq
    }

    fn join(&mut self, filter: &str, index: u32) -> FeedId {
        self.feeds.join(&self.hub, &Filter::parse(filter).unwrap(), member(index))
    }

    fn leave(&mut self, id: FeedId) {
        self.feeds.leave(&self.hub, id);
    }

    fn due(&self, id: FeedId, cursor: u64) -> Vec<u64> {
        self.feeds.due(id, cursor).map(Event::seq).collect()
    }

    /// Walks up to `visits` steps of a sweep. Returns whom it visited, and whether it is over.
    fn walk(&mut self, id: FeedId, visits: usize) -> (Vec<usize>, bool) {
        let mut visited = Vec::new();
        for _ in 0..visits {
            match self.feeds.next_visit(id) {
                Some(Visit::Reader(member)) => visited.push(member.peer.index()),
                Some(Visit::Over { .. }) => return (visited, true),
                None => panic!("there is no sweep"),
            }
        }
        (visited, false)
    }
}

fn member(index: u32) -> Member {
    Member { peer: Peer::from_index(index), stamp: 1 }
}

#[test]
fn a_pass_visits_everybody_once_whoever_comes_and_goes_meanwhile() {
    for slice in 1..13 {
        let mut bench = Bench::new();
        let id = (0..10).map(|index| bench.join("/a", index)).last().unwrap();
        let mut firsts = BTreeSet::new();
        let mut present = 10;
        for _ in 0..4 {
            bench.publish("/a");
            assert_eq!(bench.feeds.next_sweep(), Some(id));
            let mut visited = Vec::new();
            let mut joined = present;
            loop {
                let (some, over) = bench.walk(id, slice);
                visited.extend(some);
                if over {
                    break;
                }
                bench.join("/a", joined as u32);
                joined += 1;
                if joined % 3 == 0 {
                    bench.leave(id);
                }
                assert_eq!(bench.feeds.next_sweep(), Some(id), "the sweep under way goes on");
            }
            firsts.insert(visited[0]);
            visited.sort_unstable();
            assert_eq!(visited, (0..present).collect::<Vec<_>>(), "in slices of {slice}");
            assert_eq!(bench.feeds.next_sweep(), None);
            present = joined;
        }
        assert!(firsts.len() > 1, "every sweep begins with the same reader");
    }
}

#[test]
fn what_comes_during_a_pass_is_for_another() {
    let mut bench = Bench::new();
    let id = bench.join("/a", 0);
    bench.join("/a", 1);
    let first = bench.publish("/a");
    bench.feeds.next_sweep();
    bench.walk(id, 1);
    let second = bench.publish("/a");
    let third = bench.publish("/a");
    for published in [first, second] {
        assert_eq!(bench.feeds.next_sweep(), Some(id));
        while let Some(Visit::Reader(_)) = bench.feeds.next_visit(id) {}
        // The message a sweep began for says how long it took: the third shares that of the second.
        assert!(published < third && bench.feeds.next_visit(id).is_none());
    }
    assert_eq!(bench.feeds.next_sweep(), None);
    assert!(!bench.feeds.is_sweeping());
}

#[test]
fn passes_of_several_feeds_take_turns() {
    let mut bench = Bench::new();
    let (one, all) = (bench.join("/a", 0), bench.join("/**", 1));
    bench.publish("/a");
    let turns: Vec<_> = (0..4).map(|_| bench.feeds.next_sweep().unwrap()).collect();
    assert_ne!(turns[0], turns[1]);
    assert_eq!((turns[0], turns[1]), (turns[2], turns[3]));
    assert!(turns.contains(&one) && turns.contains(&all));
}

#[test]
fn what_leaves_the_log_is_known_to_be_missing() {
    let mut bench = Bench::new();
    let quiet = bench.join("/quiet", 0);
    let loud = bench.join("/loud", 1);
    let begun = bench.publish("/quiet");
    assert!(bench.feeds.is_complete(loud, 0) && bench.feeds.has_forgotten_nothing(0));
    let last = (0..LOG_MESSAGES_MAX).map(|_| bench.publish("/loud")).last().unwrap();
    assert_eq!(bench.due(quiet, 0), [0; 0], "the log is bounded");
    assert_eq!(bench.feeds.latest_seq(quiet), begun, "but its readers are to be visited still");
    assert!(!bench.feeds.is_complete(quiet, begun - 1) && bench.feeds.is_complete(quiet, begun));
    assert!(bench.feeds.is_complete(loud, 0), "nothing of the other is missing yet");
    assert!(!bench.feeds.has_forgotten_nothing(0) && bench.feeds.has_forgotten_nothing(begun));
    assert_eq!(bench.due(loud, last - 2), [last - 1, last]);
    bench.publish("/loud");
    assert!(!bench.feeds.is_complete(loud, begun) && bench.feeds.is_complete(loud, begun + 1));
    assert_eq!(bench.feeds.logged_seq(), last + 1);
}

#[test]
fn a_number_that_is_used_again_brings_nothing_of_the_feed_before() {
    let mut bench = Bench::new();
    bench.join("/stays", 9);
    let before = bench.join("/before", 0);
    bench.publish("/before");
    bench.leave(before);
    let after = bench.join("/after", 1);
    assert_eq!(before, after);
    assert_eq!(bench.feeds.next_sweep(), None, "the sweep was the other's");
    assert_eq!(bench.due(after, 0), [0; 0]);
    let seq = bench.publish("/after");
    assert_eq!(bench.due(after, 0), [seq]);
    let complete_since = bench.feeds.feed(after).complete_since;
    // The message of the feed before leaves the log, and takes nothing of this one with it.
    for _ in 1..LOG_MESSAGES_MAX {
        bench.publish("/stays");
    }
    assert_eq!(bench.due(after, 0), [seq]);
    assert_eq!(bench.feeds.feed(after).complete_since, complete_since);
}

#[test]
fn whoever_has_left_is_tidied_away_between_sweeps() {
    let mut bench = Bench::new();
    let many = TIDIED_PER_TURN + 60;
    let id = (0..many as u32).map(|index| bench.join("/a", index)).last().unwrap();
    bench.publish("/a");
    bench.feeds.next_sweep();
    (2..many).for_each(|_| bench.leave(id));
    let last = many - 3;
    let stays = |_, member: Member| [7, last].contains(&member.peer.index());
    assert!(bench.feeds.is_sparse());
    bench.feeds.tidy(stays);
    assert_eq!(bench.feeds.feed(id).members.len(), many, "not during a sweep");
    while let Some(Visit::Reader(_)) = bench.feeds.next_visit(id) {}
    bench.feeds.tidy(stays);
    assert!(bench.feeds.is_sparse(), "a slice a turn");
    // Between two slices no sweep begins, and a reader who joins there does not get lost.
    bench.publish("/a");
    assert_eq!(bench.feeds.next_sweep(), None, "each sweep would be longer than the one before");
    assert!(bench.feeds.is_sweeping());
    bench.join("/a", last as u32);
    bench.feeds.tidy(stays);
    assert!(!bench.feeds.is_sparse());
    let left = [7, last as u32, last as u32].map(member);
    assert_eq!(bench.feeds.feed(id).members, left);
    assert_eq!(bench.feeds.next_sweep(), Some(id));
    let (visited, _) = bench.walk(id, many);
    assert_eq!(visited.len(), 3, "a sweep visits who is there, however many have been");
}

#[test]
fn the_last_to_leave_takes_the_feed_along() {
    let mut bench = Bench::new();
    let id = bench.join("/a", 0);
    bench.join("/a", 1);
    let readers = |bench: &Bench| {
        bench
            .hub
            .publish(TopicName::parse("/a").unwrap(), Draft::new(*b"x"), Precondition::None, 0)
            .unwrap()
            .readers
    };
    assert_eq!(readers(&bench), 2);
    bench.leave(id);
    assert_eq!(readers(&bench), 1);
    bench.leave(id);
    bench.told.0.lock().unwrap().clear();
    assert_eq!(readers(&bench), 0);
    assert!(bench.told.0.lock().unwrap().is_empty(), "nobody is told of what nobody reads");
    assert!(bench.feeds.index.is_empty() && bench.feeds.feeds.iter().all(Option::is_none));
}

/// The memory limit covers filters that name an existing topic, too.
#[test]
fn filters_that_name_topics_count_against_the_limit() {
    let mut bench = Bench::new();
    bench.publish("/a");
    bench.publish("/b");
    bench.join("/a", 1);
    let one = bench.feeds.filter_bytes();
    assert_eq!(bench.feeds.unnamed_bytes(), 0);
    let other = Filter::parse("/b").unwrap();
    let has_room = |bytes: usize| {
        bench.feeds.has_room_for(&bench.hub, [&other].into_iter(), Room { feeds: 2, bytes })
    };
    assert!(has_room(2 * one) && !has_room(2 * one - 1));
}

/// The log of a worker is bounded by bytes as well.
#[test]
fn large_messages_leave_the_log_early() {
    let mut bench = Bench::new();
    let ids = [0, 1].map(|n| bench.join("/large", n));
    assert_eq!(ids[0], ids[1]);
    for _ in 0..6 {
        let draft = Draft::new(vec![b'x'; 1_000_000]);
        let topic = TopicName::parse("/large").unwrap();
        let published = bench.hub.publish(topic, draft, Precondition::None, 0).unwrap();
        let events = std::mem::take(&mut *bench.told.0.lock().unwrap());
        events.into_iter().for_each(|event| bench.feeds.log(event, published.id.seq));
    }
    assert_eq!(bench.feeds.log.len(), 4);
}

/// A small message takes more than its data, in the log and in each of its feeds.
#[test]
fn a_logged_message_counts_what_holds_it() {
    let mut bench = Bench::new();
    bench.join("/small", 0);
    bench.publish("/small");
    let of_one = bench.feeds.log_bytes;
    assert!(of_one >= size_of::<Logged>() + size_of::<stentor_hub::Message>());
    for pattern in ["/*", "/**"] {
        bench.join(pattern, 1);
    }
    bench.publish("/small");
    let each = (bench.feeds.log_bytes - 2 * of_one) / 2;
    assert!(each >= size_of::<FeedId>() + size_of::<Event>());
}
