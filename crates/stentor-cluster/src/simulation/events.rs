//! Ordinary events of a broker's stream, each followed by two restarts of nodes in every order.
//! A cluster is idle for longer than the stream keeps messages. An operator purges the stream, or
//! deletes messages of it. Another client publishes under its subjects.
//!
//! Each node must be ready again within 15 s, in the same epoch and with every value.

use super::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Idle,
    Purge,
    /// It is purged while a node is behind.
    PurgeUnread,
    Foreign,
    /// Another client publishes under the subject of epoch records,
    ForeignRecord,
    /// and under the subject of a node.
    ForeignOwn,
    /// A message in the middle is deleted,
    Hole,
    /// and the last one.
    HoleAtEnd,
}

impl World {
    /// Runs for so long without publishers.
    fn rest(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.step(false);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Idle => {
                self.log.ages = true;
                self.rest(20_000);
                self.log.ages = false;
                self.rest(3_000);
                let life = self.log.last_of(LogSubject::Life);
                self.log.forget(life - 1);
            }
            Event::Purge => self.log.forget(self.log.last()),
            Event::PurgeUnread => {
                self.cut(1, 3_000);
                self.members[1].away_until_ms = Some(self.now_ms + 6_000);
                self.publish_values(0);
                assert!(self.members[1].node.read() < self.log.last());
                self.log.forget(self.log.last());
                self.wait_for(1);
            }
            Event::Hole => self.log.delete(self.middle()),
            Event::HoleAtEnd => self.log.delete(self.log.last()),
            Event::Foreign => self.put_foreign(None),
            Event::ForeignRecord => self.put_foreign(Some(LogSubject::Life)),
            Event::ForeignOwn => {
                let run = self.members[0].node.run();
                self.put_foreign(Some(LogSubject::Own(run)));
            }
        }
    }

    fn put_foreign(&mut self, subject: Option<LogSubject>) {
        self.log.messages.push(Some((subject, Arc::from(&b"hello"[..]))));
    }

    /// A message between the first and the last.
    fn middle(&self) -> u64 {
        let seq = self.log.last() / 2;
        assert!(seq > 1 && self.log.message(seq).is_some());
        seq
    }

    /// Publishes at one node until some of it is in the log, and what is under way is read.
    fn publish_values(&mut self, index: usize) {
        let until_ms = self.now_ms + 1_000;
        while self.now_ms < until_ms {
            self.publish(index);
            self.step(false);
        }
        self.rest(3_000);
    }

    /// Ends a node and starts it again.
    fn begin_again(&mut self, index: usize, has_disk: bool) {
        self.check_order(index);
        let hub = empty(&mut self.rng);
        let seed = self.rng.next_u64();
        let disk = has_disk.then_some(&*self.members[index].hub);
        let next = member(hub, disk, seed);
        self.replace(index, next);
    }

    /// The same, and waits until it is ready.
    fn start_again(&mut self, index: usize, has_disk: bool) {
        self.begin_again(index, has_disk);
        self.wait_for(index);
    }

    fn wait_for(&mut self, index: usize) {
        let begun_ms = self.now_ms;
        while !self.is_ready(index) {
            self.step(false);
            let took_ms = self.now_ms - begun_ms;
            let why = self.members[index].node.not_ready();
            assert!(took_ms <= 15_000, "node {index} is not ready: {why:?}");
        }
    }
}

fn survive(event: Event, order: [usize; 2], has_disk: bool, seed: u64) {
    let mut world = World::new(seed, Faults::None, Some(2));
    world.rest(2_000);
    (0..50).for_each(|_| world.step(true));
    world.rest(5_000);
    world.happen(event);
    let hub = &world.members[0].hub;
    let (epoch, values) = (hub.epoch(), hub.kept().len());
    assert!(values > 0);
    if seed.is_multiple_of(2) {
        world.rest(3_000);
    }
    for index in order {
        world.start_again(index, has_disk);
        let hub = &world.members[index].hub;
        assert_eq!((hub.epoch(), hub.kept().len()), (epoch, values), "node {index}");
    }
    (0..50).for_each(|_| world.step(true));
    world.rest(5_000);
    world.check_end();
    assert_eq!(world.members[0].hub.epoch(), epoch);
}

fn survive_all(event: Event) {
    for seed in 0..8 {
        for order in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            for has_disk in [false, true] {
                let survives = std::panic::catch_unwind(|| survive(event, order, has_disk, seed));
                if let Err(reason) = survives {
                    eprintln!("{event:?}, {order:?}, disk: {has_disk}, seed {seed}");
                    std::panic::resume_unwind(reason);
                }
            }
        }
    }
}

#[test]
fn restarts_after_an_idle_stream_keep_epoch_and_values() {
    survive_all(Event::Idle);
}

#[test]
fn restarts_after_a_purge_keep_epoch_and_values() {
    survive_all(Event::Purge);
}

#[test]
fn restarts_after_a_foreign_message_keep_epoch_and_values() {
    survive_all(Event::Foreign);
    survive_all(Event::ForeignRecord);
    survive_all(Event::ForeignOwn);
}

#[test]
fn restarts_after_a_purge_of_unread_messages_keep_epoch_and_values() {
    survive_all(Event::PurgeUnread);
}

#[test]
fn restarts_after_a_hole_keep_epoch_and_values() {
    survive_all(Event::Hole);
    survive_all(Event::HoleAtEnd);
}

/// The newest values of a hub, by topic.
fn values(hub: &Hub) -> BTreeMap<String, (Id, Vec<u8>)> {
    let kept = hub.kept();
    let newest = kept.iter().filter(|event| !hub.is_of_past_life(event.seq()));
    let newest = newest.filter(|event| event.message.is_value()).map(seen);
    newest.filter_map(|(id, topic, data)| Some((topic, (id, data?)))).collect()
}

/// Both nodes are ended before they have saved what they read last, and something of that is gone
/// from the log. Each value must be there whose message is before that.
fn survive_alone(event: Event, has_disk: bool, seed: u64) {
    let mut world = World::new(seed, Faults::None, Some(2));
    world.rest(2_000);
    world.publish_values(0);
    let (hub, epoch) = (&world.members[0].hub, world.members[0].hub.epoch());
    let (disk, saved) = (copy(hub, hub.stage(epoch, true)), world.log.last());
    world.publish_values(1);
    let (before, last) = (values(&world.members[0].hub), world.log.last());
    let gone = match event {
        Event::Hole => (saved + last) / 2..=(saved + last) / 2,
        Event::HoleAtEnd => last..=last,
        _ => saved..=last,
    };
    match event {
        Event::Purge => world.log.forget(last),
        _ => world.log.delete(*gone.start()),
    }
    for index in 0..2 {
        let hub = empty(&mut world.rng);
        let next = member(hub, has_disk.then_some(&disk), world.rng.next_u64());
        world.replace(index, next);
    }
    (0..2).for_each(|index| world.wait_for(index));
    world.rest(5_000);
    world.faults = Faults::Holes;
    world.check_end();
    let hub = &world.members[0].hub;
    assert_ne!(hub.epoch(), epoch, "readers are told");
    let after = values(hub);
    for (topic, (id, data)) in before {
        if id.seq >> 10 < *gone.start() {
            assert_eq!(after.get(&topic).map(|(_, data)| data), Some(&data), "{topic}: {id}");
        }
    }
}

#[test]
fn nodes_behind_a_hole_begin_an_epoch_with_their_values() {
    let cases = [
        (Event::Hole, false),
        (Event::HoleAtEnd, false),
        (Event::Hole, true),
        (Event::HoleAtEnd, true),
        (Event::Purge, true),
    ];
    for (event, has_disk) in cases {
        for seed in 0..20 {
            let survives = std::panic::catch_unwind(|| survive_alone(event, has_disk, seed));
            if let Err(reason) = survives {
                eprintln!("{event:?}, disk: {has_disk}, seed {seed}");
                std::panic::resume_unwind(reason);
            }
        }
    }
}
