//! A ring knows everything behind its floor, and says so.

use super::*;
use stentor_hub::{Draft, Hub, Limits, Precondition, decode_entry};
use stentor_io::Rng;
use stentor_order::ChangeQueue;
use stentor_wire::target::TopicName;

/// A hub, all that it tells, and a ring that takes it in.
struct Stage {
    hub: Hub,
    queue: ChangeQueue,
    ring: Ring,
    /// All changes ever: their numbers, and whether each is one of rules.
    told: Vec<(u64, bool)>,
}

impl Stage {
    fn new() -> Stage {
        let epoch = Epoch::from_number(7);
        let hub = Hub::new(epoch, Vec::new(), Limits::default());
        let queue = ChangeQueue::new(&hub, None);
        queue.open(&hub, usize::MAX);
        let ring = Ring::begin(Id { epoch, seq: 0 }, hub.rules());
        Stage { hub, queue, ring, told: vec![(0, true)] }
    }

    fn publish(&mut self, topic: &str, bytes: usize) {
        let (topic, draft) = (TopicName::parse(topic).unwrap(), Draft::new(vec![b'x'; bytes]));
        let published = self.hub.publish(topic, draft, Precondition::None, 1).unwrap();
        self.told.push((published.id.seq, false));
    }

    fn set_rules(&mut self) {
        self.hub.set_rules(Vec::new());
        self.told.push((self.hub.seq(), true));
    }

    fn take_in(&mut self) {
        let news = self.queue.take().ok().unwrap();
        self.ring.extend(news).unwrap();
    }

    /// What whoever begins behind a number is sent; `None` if that is not known any more.
    fn behind(&self, seq: u64) -> Option<Vec<(u64, bool)>> {
        let (mut place, first) = self.ring.behind(seq)?;
        let mut sent = Vec::new();
        let mut take = |chunk: &[u8]| {
            let frame = frame_in(chunk);
            let is_rules = |entry| decode_entry(entry).unwrap().0.topic().is_none();
            sent.extend(frame.records().map(|(number, entry)| (number, is_rules(entry))));
            assert_eq!(sent.last().map_or(frame.upto, |last| last.0), frame.upto);
        };
        first.iter().for_each(|first| take(first));
        while let Some(part) = self.ring.at(place).unwrap() {
            take(part.chunk);
            place = part.next;
        }
        assert_eq!(place, self.ring.end());
        Some(sent)
    }
}

#[test]
fn whoever_begins_anywhere_is_sent_all_that_is_behind_or_nothing() {
    let mut known_somewhere = [false, false];
    for seed in 0..40 {
        let (mut stage, mut rng) = (Stage::new(), Rng::new(seed));
        stage.ring.limit([usize::MAX, 1_500, 400][rng.below(3)]);
        for _ in 0..60 {
            match rng.below(8) {
                0 => stage.set_rules(),
                1 | 2 => stage.take_in(),
                _ => stage.publish(["/a", "/b"][rng.below(2)], rng.below(120)),
            }
        }
        stage.take_in();
        assert_eq!(stage.ring.upto(), stage.hub.seq());
        for seq in 0..=stage.hub.seq() {
            // Of changes of rules at that very number all may come again.
            let is_behind =
                |(number, is_rules): &(u64, bool)| *number > seq || *number == seq && *is_rules;
            let all: Vec<(u64, bool)> = stage.told.iter().copied().filter(is_behind).collect();
            let sent = stage.behind(seq);
            known_somewhere[usize::from(sent.is_some())] = true;
            if let Some(sent) = sent {
                assert_eq!(sent, all, "seed {seed}, behind {seq}");
            }
        }
    }
    assert_eq!(known_somewhere, [true, true]);
}

#[test]
fn it_takes_as_much_room_as_it_may_and_the_last_frame() {
    let mut stage = Stage::new();
    stage.ring.limit(2_000);
    for n in 0..100 {
        stage.publish("/a", 50);
        stage.take_in();
        assert!(stage.ring.bytes() <= 2_000, "{n}");
    }
    assert!(stage.ring.bytes() > 1_500 && stage.ring.behind(50).is_none());
    stage.publish("/a", 10_000);
    stage.take_in();
    assert!((10_000..11_000).contains(&stage.ring.bytes()));
    assert_eq!(stage.behind(100).map(|sent| sent.len()), Some(1));
    assert!(stage.behind(99).is_none() && stage.ring.at(0).is_err());
}

#[test]
fn numbers_that_are_given_to_nothing_are_noted() {
    let mut stage = Stage::new();
    stage.publish("/a", 1);
    stage.take_in();
    stage.ring.note(9);
    stage.ring.note(3);
    assert_eq!((stage.ring.upto(), stage.behind(9)), (9, Some(Vec::new())));
    // Who was told so and comes back hears of the rules that came behind them.
    stage.set_rules();
    stage.take_in();
    assert_eq!(stage.behind(9), Some(vec![(9, true)]));
}

#[test]
fn what_does_not_go_on_where_it_ended_is_of_another_order() {
    let mut stage = Stage::new();
    stage.publish("/a", 1);
    stage.take_in();
    let other = Hub::new(Epoch::from_number(8), Vec::new(), Limits::default());
    let queue = ChangeQueue::new(&other, None);
    queue.open(&other, usize::MAX);
    let publish = |hub: &Hub| {
        let topic = TopicName::parse("/a").unwrap();
        hub.publish(topic, Draft::new(*b"x"), Precondition::None, 1).unwrap();
    };
    (0..2).for_each(|_| publish(&other));
    assert!(stage.ring.extend(queue.take().ok().unwrap()).is_err(), "of another life");
    let mut back = Stage::new();
    (0..2).for_each(|_| publish(&back.hub));
    let news = back.queue.take().ok().unwrap();
    let again = news.iter().map(|news| match news {
        HubChange::Event(event) => HubChange::Event(event.clone()),
        HubChange::Rules(..) => panic!("there are none"),
    });
    let again: Vec<HubChange> = again.collect();
    back.ring.extend(news).unwrap();
    assert!(back.ring.extend(again).is_err(), "it was there before");
}
