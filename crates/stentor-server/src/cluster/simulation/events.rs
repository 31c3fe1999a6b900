//! Ordinary events of a broker's stream, each followed by two restarts of nodes in every order.
//! A cluster is idle for longer than the stream keeps messages. An operator purges the stream.
//! Another client publishes under its subjects.
//!
//! Each node must be ready again within 15 s, in the same epoch and with every value.

use super::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Idle,
    Purge,
    Foreign,
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
                let life = self.log.last_of(Subject::Life);
                self.log.forget(life - 1);
            }
            Event::Purge => self.log.forget(self.log.last()),
            Event::Foreign => self.log.messages.push((None, Arc::from(&b"x"[..]))),
        }
    }

    /// Whether a node publishes, and has read the whole log.
    fn is_ready(&self, index: usize) -> bool {
        let node = &self.members[index].node;
        node.is_open() && node.read() == self.log.last()
    }

    /// Ends a node and starts it again, and waits until it is ready.
    fn start_again(&mut self, index: usize, has_disk: bool) {
        self.check_order(index);
        let hub = empty(&mut self.rng);
        let seed = self.rng.next_u64();
        let disk = has_disk.then_some(&*self.members[index].hub);
        let next = member(hub, disk, seed);
        self.replace(index, next);
        let begun_ms = self.now_ms;
        while !self.is_ready(index) {
            self.step(false);
            let took_ms = self.now_ms - begun_ms;
            let why = self.members[index].node.complaint();
            assert!(took_ms <= 15_000, "node {index} is not ready: {why:?}");
        }
    }
}

fn survive(event: Event, order: [usize; 2], has_disk: bool, seed: u64) {
    let mut world = World::new(seed, Faults::None);
    world.members.truncate(2);
    world.rest(2_000);
    (0..50).for_each(|_| world.step(true));
    world.rest(5_000);
    let hub = &world.members[0].hub;
    let (epoch, values) = (hub.epoch(), hub.kept().len());
    assert!(values > 0);
    world.happen(event);
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
}
