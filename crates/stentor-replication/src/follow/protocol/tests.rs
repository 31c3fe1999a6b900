//! Leaders that are good, that break off anywhere, and that talk nonsense.

use super::*;
use std::sync::Mutex;
use stentor_hub::{
    Draft, Epoch, Event, Filter, Limits, Precondition, Rule, Snapshot, Subscriber, encode_event,
    encode_rules,
};
use stentor_io::Rng;
use stentor_log::{FeedEncoder, SnapshotEncoder};
use stentor_wire::target::TopicName;

/// A hub, and what a feed of it would send.
pub(in crate::follow) struct Leader {
    pub(in crate::follow) hub: Hub,
    frames: Arc<Frames>,
}

#[derive(Default)]
struct Frames(Mutex<Vec<(u64, Vec<u8>)>>);

impl Frames {
    fn put(&self, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        let frame = FeedEncoder::begin(&mut out);
        assert!(frame.entry(seq, &mut out, encode));
        frame.seal(seq, 0, &mut out);
        self.0.lock().unwrap().push((seq, out));
    }
}

impl Subscriber for Frames {
    fn notify(&self, event: &Event) {
        self.put(event.message.id().seq, |out| encode_event(event, out));
    }

    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        let latest = self.0.lock().unwrap().last().map_or(0, |(seq, _)| *seq);
        self.put(latest, |out| encode_rules(generation, rules, out));
    }
}

impl Leader {
    pub(in crate::follow) fn new(epoch: u32) -> Leader {
        let rule = Rule { history: 2, ..Rule::default() };
        let hub = Hub::new(Epoch::from_number(epoch), vec![rule], Limits::default());
        let frames = Arc::new(Frames::default());
        let id = hub.add_subscriber(Arc::clone(&frames) as Arc<dyn Subscriber>);
        hub.subscribe(id, &Filter::parse("/**").unwrap(), Arc::default());
        Leader { hub, frames }
    }

    fn put(&self, topic: &str) -> Id {
        let topic = TopicName::parse(topic).unwrap();
        let draft = Draft::new(*b"some data");
        self.hub.publish(topic, draft, Precondition::None, 1).unwrap().id
    }

    fn delete(&self, topic: &str) {
        self.hub.delete(TopicName::parse(topic).unwrap(), Precondition::None, 1).unwrap();
    }

    pub(in crate::follow) fn id(&self) -> Id {
        self.hub.id(self.hub.seq())
    }

    /// Frames behind a number.
    pub(in crate::follow) fn feed(&self, since: u64) -> Vec<u8> {
        let frames = self.frames.0.lock().unwrap();
        let behind = frames.iter().filter(|(seq, _)| *seq > since);
        behind.flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    pub(in crate::follow) fn snapshot(&self) -> Vec<u8> {
        let (mut payload, mut out) = (Vec::new(), Vec::new());
        let mut snapshot = Snapshot::begin(&self.hub, &mut payload);
        let epoch = self.hub.epoch().number();
        let lost = self.hub.rolled_back();
        let mut encoder = SnapshotEncoder::begin(epoch, snapshot.seq(), lost, &mut out);
        loop {
            let is_more = snapshot.write_slice(&self.hub, &mut payload).unwrap();
            encoder.payload(&payload, &mut out);
            payload.clear();
            if !is_more {
                break;
            }
        }
        encoder.end(self.id().seq, &mut out);
        out
    }
}

pub(in crate::follow) fn sign_of_life(upto: u64) -> Vec<u8> {
    let mut out = Vec::new();
    FeedEncoder::begin(&mut out).seal(upto, 0, &mut out);
    out
}

fn follower() -> (Follower, Arc<Hub>) {
    let hub = Arc::new(Hub::new(Epoch::from_number(0), Vec::new(), Limits::default()));
    hub.begin_following();
    (Follower::new(Arc::clone(&hub), Box::new(|_| {})), hub)
}

/// Has all that a leader has taken.
fn fill(follower: &mut Follower, leader: &Leader) -> Result<Adopted, Fault> {
    assert_eq!(follower.since(), None);
    assert_eq!(follower.feed_begins(leader.id())?, Next::Snapshot);
    for piece in leader.snapshot().chunks(100) {
        follower.snapshot(piece)?;
    }
    follower.snapshot_ends()
}

pub(in crate::follow) fn seen(hub: &Hub) -> Vec<String> {
    let see = |event: Event| {
        let (message, topic) = (&event.message, event.topic());
        format!("{} {topic} {} {}", message.id(), message.is_deletion(), message.is_value())
    };
    hub.kept().into_iter().map(see).chain([hub.id(hub.seq()).to_string()]).collect()
}

#[test]
fn a_follower_takes_all_and_then_what_comes() {
    let leader = Leader::new(1);
    for topic in ["/a", "/a", "/b", "/a"] {
        leader.put(topic);
    }
    leader.delete("/b");
    let (mut follower, hub) = follower();
    let begun = leader.id().seq;
    // What the feed has behind its beginning may be in the snapshot, too.
    follower.feed_begins(leader.id()).unwrap();
    leader.put("/c");
    follower.snapshot(&leader.snapshot()).unwrap();
    assert_eq!(follower.snapshot_ends().unwrap().topics, 2);
    leader.put("/a");
    leader.hub.set_rules(vec![Rule { history: 1, ..Rule::default() }]);
    leader.put("/a");
    for size in [1, 7, 1 << 20] {
        let feed =
            [sign_of_life(begun), leader.feed(begun), sign_of_life(leader.id().seq)].concat();
        let frames = feed.chunks(size).map(|piece| follower.feed(piece).unwrap()).sum::<usize>();
        assert_eq!(frames, 6, "whole ones");
        assert_eq!(seen(&hub), seen(&leader.hub));
        assert_eq!(follower.feed_begins(hub.id(hub.seq())), Ok(Next::Feed));
        follower.upto = begun;
    }
    assert_eq!(follower.since(), Some(leader.id()));
    assert_eq!(hub.rules(), leader.hub.rules());
    // Numbers may go by that are nobody's here.
    follower.feed(&sign_of_life(100)).unwrap();
    assert_eq!((follower.since().unwrap().seq, follower.upto), (100, 100));
}

#[test]
fn who_is_too_far_behind_takes_all_anew() {
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    leader.put("/b");
    assert!(follower.since().is_some());
    assert!(matches!(follower.feed_is_gone(), Fault::Anew(_)));
    let taken = fill(&mut follower, &leader).unwrap();
    assert_eq!((taken.topics, taken.is_new_life), (2, false));
    assert_eq!(seen(&hub), seen(&leader.hub));
    // Once it takes all, 410 makes no sense.
    follower.feed_is_gone();
    assert!(matches!(follower.feed_is_gone(), Fault::Broken(_)));
}

#[test]
fn another_leader_may_be_behind_or_of_another_life_or_have_lost_something() {
    let (leader, lagging) = (Leader::new(1), Leader::new(1));
    leader.put("/a");
    leader.put("/a");
    lagging.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    follower.feed_is_gone();
    let before = seen(&hub);
    assert_eq!(fill(&mut follower, &lagging), Err(Fault::Behind));
    assert_eq!(seen(&hub), before);
    // What was lost in a crash is not gone on with in silence.
    lagging.hub.continue_after(5, vec![2..=5]);
    lagging.put("/a");
    follower.feed_is_gone();
    assert!(matches!(fill(&mut follower, &lagging), Err(Fault::Anew(_))));
    assert_eq!(seen(&hub), before);
    assert!(fill(&mut follower, &lagging).unwrap().is_new_life);
    assert_eq!(seen(&hub), seen(&lagging.hub));
    assert!(hub.was_rolled_back(hub.number(leader.id()).unwrap()));
    // And one that began anew.
    let other = Leader::new(2);
    other.put("/z");
    follower.feed_is_gone();
    assert!(fill(&mut follower, &other).unwrap().is_new_life);
    assert_eq!(seen(&hub), seen(&other.hub));
    other.put("/z");
    follower.feed(&other.feed(1)).unwrap();
    assert_eq!(seen(&hub), seen(&other.hub));
}

#[test]
fn a_leader_that_begins_anew_between_feed_and_snapshot_is_not_mixed_up() {
    let (first, second) = (Leader::new(1), Leader::new(2));
    first.put("/a");
    second.put("/b");
    let (mut follower, hub) = follower();
    follower.feed_begins(first.id()).unwrap();
    assert!(follower.snapshot(&second.snapshot()).is_err());
    assert_eq!(hub.counts().topics, 0);
}

#[test]
fn a_feed_that_goes_on_elsewhere_or_back_is_not_followed() {
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    for seq in [0, 2] {
        let id = Id { seq, ..leader.id() };
        assert!(follower.feed_begins(id).is_err(), "{seq}");
    }
    assert!(follower.feed_begins(Id { epoch: Epoch::from_number(9), ..leader.id() }).is_err());
    assert_eq!(follower.feed_begins(leader.id()), Ok(Next::Feed));
    assert!(follower.feed(&sign_of_life(0)).is_err(), "numbers go back");
    // A number above the one that everything was sent up to.
    let mut out = Vec::new();
    let frame = FeedEncoder::begin(&mut out);
    frame.entry(9, &mut out, |out| out.push(1));
    frame.seal(2, 0, &mut out);
    assert!(follower.feed(&out).is_err());
    assert_eq!(hub.seq(), 1);
}

/// A tree of followers adds up how old the values are.
#[test]
fn the_age_of_values_travels_with_the_feed() {
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, _) = follower();
    fill(&mut follower, &leader).unwrap();
    assert_eq!(follower.feed_begins(leader.id()), Ok(Next::Feed));
    for age_ms in [2_500, 0, u64::MAX] {
        let mut out = Vec::new();
        FeedEncoder::begin(&mut out).seal(leader.id().seq, age_ms, &mut out);
        assert_eq!(follower.feed(&out), Ok(1));
        assert_eq!(follower.age_ms(), age_ms);
    }
}

#[test]
fn an_entry_has_the_number_that_its_record_says() {
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    leader.put("/a");
    let frames = leader.frames.0.lock().unwrap().last().unwrap().1.clone();
    let whole = read_feed_frame(&frames, FRAME_BYTES_MAX).unwrap().unwrap();
    let entry = whole.records().next().unwrap().1;
    let mut feed = |number: u64| {
        let mut out = Vec::new();
        let frame = FeedEncoder::begin(&mut out);
        frame.entry(number, &mut out, |out| out.extend_from_slice(entry));
        frame.seal(3, 0, &mut out);
        assert_eq!(follower.feed_begins(hub.id(hub.seq())), Ok(Next::Feed));
        follower.feed(&out).map(|_| hub.seq())
    };
    for number in [1, 3] {
        assert!(feed(number).is_err(), "{number}");
    }
    assert_eq!(feed(2), Ok(3));
}

#[test]
fn a_snapshot_that_ends_early_or_was_changed_is_seen_by_nobody() {
    let leader = Leader::new(1);
    for topic in ["/a", "/a", "/b", "/c"] {
        leader.put(topic);
    }
    leader.delete("/b");
    let whole = leader.snapshot();
    let take = |bytes: &[u8]| {
        let (mut follower, hub) = follower();
        follower.feed_begins(leader.id()).unwrap();
        let taken = follower.snapshot(bytes).and_then(|()| follower.snapshot_ends());
        assert_eq!(hub.counts().topics, if taken.is_ok() { 2 } else { 0 });
        taken.is_ok()
    };
    assert!(take(&whole));
    for length in 0..whole.len() {
        assert!(!take(&whole[..length]), "{length} of {}", whole.len());
        // A node of a cluster reads one without a feed.
        let mut reader = SnapshotReader::new(leader.hub.stage(Epoch::from_number(1), false));
        let taken = reader.take(&whole[..length]);
        assert!(taken.is_err() || reader.end().is_err(), "{length} of {}", whole.len());
    }
    for at in 0..whole.len() {
        for bit in [1, 128] {
            let mut changed = whole.clone();
            changed[at] ^= bit;
            assert!(!take(&changed), "{bit} at {at} of {}", whole.len());
        }
    }
    assert!(!take(&[&whole[..], b"x"].concat()));
}

#[test]
fn a_feed_that_was_changed_is_gone_on_with_up_to_there() {
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    leader.put("/b");
    leader.delete("/b");
    let feed = leader.feed(1);
    for at in 0..feed.len() {
        let mut changed = feed.clone();
        changed[at] ^= 1;
        follower.feed_begins(hub.id(hub.seq())).unwrap();
        assert!(follower.feed(&changed).is_err() || hub.seq() < 3, "{at}");
        assert!(hub.counts().topics <= 2 && hub.seq() < 3, "{at}");
    }
    follower.feed_begins(hub.id(hub.seq())).unwrap();
    follower.feed(&leader.feed(hub.seq())).unwrap();
    assert_eq!(seen(&hub), seen(&leader.hub));
}

/// Whatever comes, in whatever order: no panic, and what is read makes sense.
#[test]
fn nonsense_harms_nobody() {
    let leader = Leader::new(1);
    for topic in ["/a", "/a", "/b"] {
        leader.put(topic);
    }
    let (snapshot, feed) = (leader.snapshot(), leader.feed(0));
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let (mut follower, hub) = follower();
        for _ in 0..12 {
            let source = if rng.percent(50) { &snapshot } else { &feed };
            let from = if rng.percent(50) { 0 } else { rng.below(source.len()) };
            let mut bytes = source[from..from + rng.below(source.len() - from + 1)].to_vec();
            if rng.percent(30) && !bytes.is_empty() {
                let at = rng.below(bytes.len());
                bytes[at] = rng.below(256) as u8;
            }
            let seq = rng.below(6) as u64;
            match rng.below(6) {
                0 => drop(follower.feed_begins(Id { seq, ..leader.id() })),
                1 => drop(follower.feed_is_gone()),
                2 => drop(follower.snapshot(&bytes)),
                3 => drop(follower.snapshot(&snapshot)),
                4 => drop(follower.snapshot_ends()),
                _ => drop(follower.feed(&bytes)),
            }
            hub.check();
            assert!(hub.counts().topics <= 2);
        }
    }
}

#[test]
fn a_snapshot_that_is_behind_its_feed_leaves_a_hole() {
    let (leader, lagging) = (Leader::new(1), Leader::new(1));
    for server in [&leader, &lagging, &leader] {
        server.put("/a");
    }
    let (mut follower, hub) = follower();
    follower.feed_begins(leader.id()).unwrap();
    follower.snapshot(&lagging.snapshot()).unwrap();
    assert!(matches!(follower.snapshot_ends(), Err(Fault::Broken(_))));
    assert_eq!(hub.seq(), 0);
}

#[test]
fn after_one_that_is_behind_the_next_is_asked_for_what_is_missing() {
    let (leader, lagging) = (Leader::new(1), Leader::new(1));
    for server in [&leader, &lagging, &leader] {
        server.put("/a");
    }
    let (mut follower, _) = follower();
    fill(&mut follower, &leader).unwrap();
    follower.feed_is_gone();
    assert_eq!(follower.feed_begins(lagging.id()), Err(Fault::Behind));
    assert_eq!(follower.since(), Some(leader.id()));
}

#[test]
fn an_entry_beyond_its_frame_is_refused() {
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    let here = hub.seq();
    leader.put("/a");
    let feed = leader.feed(here);
    let mut out = Vec::new();
    let frame = FeedEncoder::begin(&mut out);
    for (seq, record) in read_feed_frame(&feed, usize::MAX).unwrap().unwrap().records() {
        frame.entry(seq, &mut out, |out| out.extend_from_slice(record));
    }
    frame.seal(here, 0, &mut out);
    let fault = Fault::Broken("an entry has a number that is not there yet".to_owned());
    assert_eq!(follower.feed(&out), Err(fault));
    assert_eq!(hub.seq(), here);
}

/// The follower would collect the rest of such a frame in memory.
#[test]
fn a_frame_beyond_the_bound_is_refused() {
    let long = vec![0; FRAME_BYTES_MAX];
    let (mut feed, mut snapshot) = (Vec::new(), Vec::new());
    let frame = FeedEncoder::begin(&mut feed);
    frame.entry(2, &mut feed, |out| out.extend_from_slice(&long));
    frame.seal(2, 0, &mut feed);
    let mut encoder = SnapshotEncoder::begin(1, 1, Vec::new(), &mut snapshot);
    let head = snapshot.len();
    encoder.entries([(2, &long[..])].into_iter(), &mut snapshot);
    let leader = Leader::new(1);
    leader.put("/a");
    let (mut follower, hub) = follower();
    fill(&mut follower, &leader).unwrap();
    let why = "a frame is longer than any may be";
    assert_eq!(follower.feed(&feed[..100]), Err(why.into()));
    let mut reader = SnapshotReader::new(hub.stage(Epoch::from_number(1), false));
    assert_eq!(reader.take(&snapshot[..head + 100]), Err(why.to_owned()));
}
