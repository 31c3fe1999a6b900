//! The delivery checker: publishers, readers of every kind, and an oracle, on a simulated network.
//!
//! Each seed makes a network, topics whose rules keep different histories, and clients that read
//! them in every way there is, badly: they stall, break off, come back with cursors that are old or
//! made up, subscribe and unsubscribe in the middle of things. Whatever happens, these must hold:
//!
//! - a reader gets only what was published, unspoilt, each message once, in the order of numbers;
//! - who wants all gets all, or is told of a gap before the first message behind it, and is told so
//!   only of what history has really lost;
//! - once everything is quiet, everybody has the newest of whatever they read;
//! - a stop ends streams in the way that is right, and when all clients have gone nothing is left.
//!
//! `log.rs` is the model of what was published, `view.rs` the oracle.

mod log;
mod poller;
mod publisher;
mod reader;
mod view;

use super::net::{Client, Layers};
use super::seeds::faults;
use super::{World, patient};
use crate::mailbox::Order;
use log::{Log, TOPICS, wants};
use poller::Poller;
use publisher::{Putter, Source};
use reader::{Mood, Plan, Reader};
use stentor_hub::Precondition;
use stentor_io::Rng;

/// A run: the world, the model of what was published, and the clients.
struct Stage {
    world: World,
    log: Log,
    rng: Rng,
    source: Source,
    readers: Vec<Reader>,
    pollers: Vec<Poller>,
    putters: Vec<Putter>,
    /// Topics that are published to; the last does not exist in the beginning.
    topics: usize,
}

/// One seed from the beginning to the end.
pub(super) fn run(seed: u64) {
    let mut stage = Stage::new(seed);
    let turns = 50 + stage.rng.below(600);
    for turn in 0..turns {
        if turn > turns / 2 {
            stage.topics = TOPICS.len();
        }
        stage.publish();
        stage.turn(Mood { unrest: 3, ..READING });
    }
    stage.come_to_rest();
    stage.check_readers();
    stage.come_to_rest();
    stage.check_signs_of_life();
    if stage.rng.percent(40) {
        stage.stop();
    } else {
        stage.leave();
    }
    stage.check_nothing_is_left();
}

const READING: Mood = Mood { unrest: 0, connects: true, draining: false };

impl Stage {
    fn new(seed: u64) -> Stage {
        let mut rng = Rng::new(seed);
        let faults = faults(&mut rng);
        let mut settings = patient();
        settings.topics = log::rules();
        settings.streams.stall_timeout_ms = super::PATIENCE_MS;
        let world = World::over(Layers::of_seed(seed), seed ^ 0x5eed, faults, settings);
        let log = Log::attach(&world);
        let readers =
            (0..1 + rng.below(5)).map(|_| Reader::new(Plan::random(&mut rng), &log)).collect();
        let pollers =
            (0..rng.below(3)).map(|_| Poller::new(Plan::random(&mut rng), &log)).collect();
        let putters = (0..rng.below(3)).map(|_| Putter::default()).collect();
        let source = Source::new(faults.window_bytes);
        let topics = TOPICS.len() - 1;
        Stage { world, log, rng, source, readers, pollers, putters, topics }
    }

    /// Publishes or deletes something, or nothing.
    fn publish(&mut self) {
        let topic = TOPICS[self.rng.below(self.topics)].0;
        match self.rng.below(100) {
            0..12 => self.publish_to(topic, false),
            12..14 => {
                let hub = &self.world.shared.hub;
                // It may not exist.
                let _ = hub.delete(topic, Precondition::None, NOW_S);
            }
            14 => {
                for _ in 0..self.rng.below(60) {
                    let topic = TOPICS[self.rng.below(self.topics)].0;
                    self.publish_to(topic, true);
                }
            }
            15..22 if !self.putters.is_empty() => {
                let deletes = self.rng.percent(10);
                let datum = (!deletes).then(|| self.source.next(&mut self.rng, false));
                let putters = self.putters.len();
                let putter = &mut self.putters[self.rng.below(putters)];
                putter.put(&mut self.world.sim, &mut self.log, topic, datum);
            }
            _ => {}
        }
        self.log.absorb();
    }

    fn publish_to(&mut self, topic: &str, is_small: bool) {
        let datum = self.source.next(&mut self.rng, is_small);
        self.log.expect(topic, &datum.data, datum.content_type.as_str());
        let published =
            self.world.shared.publish(topic, datum.draft(), Precondition::None, NOW_S).unwrap();
        self.log.absorb();
        assert_eq!(published.id.seq, self.log.seq());
    }

    /// Everybody does something, then the server does. Returns whether it had anything to do.
    fn turn(&mut self, mood: Mood) -> bool {
        let Stage { world, log, rng, readers, pollers, putters, .. } = self;
        readers.iter_mut().for_each(|reader| reader.play(&mut world.sim, rng, log, mood));
        pollers.iter_mut().for_each(|poller| poller.play(&mut world.sim, rng, log, mood));
        putters.iter_mut().for_each(|putter| putter.play(&mut world.sim, log, mood));
        if rng.percent(20) {
            world.jobs.run_one();
        }
        let busy = world.turn();
        log.absorb();
        busy
    }

    /// Turns until everybody has everything and nothing happens any more.
    fn come_to_rest(&mut self) {
        let mut idle_turns = 0;
        for _ in 0..TURNS_MAX {
            idle_turns = if self.turn(READING) { 0 } else { idle_turns + 1 };
            if idle_turns > 3 {
                match self.missing() {
                    None => return,
                    Some(missing) => assert!(idle_turns < IDLE_TURNS_MAX, "missing: {missing}"),
                }
            }
        }
        panic!("it never comes to rest: {:?}", self.missing());
    }

    fn missing(&self) -> Option<String> {
        let readers = self.readers.iter().find_map(|reader| reader.missing(&self.log));
        let pollers = || self.pollers.iter().find_map(|poller| poller.missing(&self.log));
        let is_done = self.putters.iter().all(Putter::is_done);
        readers.or_else(pollers).or_else(|| (!is_done).then(|| "a publisher's answer".to_owned()))
    }

    /// At rest publishers are told how many read.
    fn check_readers(&mut self) {
        let topic = TOPICS[self.rng.below(self.topics)].0;
        let datum = self.source.next(&mut self.rng, false);
        self.log.expect(topic, &datum.data, datum.content_type.as_str());
        let count = |filters: &[String]| {
            let own = |filter| wants(std::slice::from_ref(filter), topic);
            filters.iter().filter(|filter| own(filter)).count() as u64
        };
        let streams: u64 = self.readers.iter().map(|reader| count(reader.filters())).sum();
        let polls: u64 = self.pollers.iter().map(|poller| count(&poller.plan.filters)).sum();
        let published = self.world.shared.publish(topic, datum.draft(), Precondition::None, NOW_S);
        let readers = published.unwrap().readers;
        // A poll may be between two requests.
        let expected = streams..=streams + polls;
        let totals = self.world.totals();
        let open = self.connections().len();
        assert!(
            expected.contains(&readers),
            "{readers} are told of {topic}, not {expected:?}; {open} are open: {totals:?}"
        );
        self.log.absorb();
    }

    /// After some silence every stream is sent a sign of life.
    fn check_signs_of_life(&mut self) {
        self.readers.iter_mut().for_each(|reader| reader.signs_of_life = 0);
        let streams = patient().streams;
        self.world.sim.sleep(streams.heartbeat_ms.max(streams.ping_ms));
        for _ in 0..TURNS_MAX {
            self.turn(READING);
            let broken = |reader: &Reader| reader.missing(&self.log).is_some();
            if self.readers.iter().all(|reader| reader.signs_of_life > 0 || broken(reader)) {
                return;
            }
        }
        let mut readers = self.readers.iter();
        let silent = readers.find(|reader| reader.signs_of_life == 0);
        panic!("a stream was silent: {:?}", silent.map(|reader| (&reader.plan, &reader.view)));
    }

    /// The server stops.
    fn stop(&mut self) {
        for _ in 0..self.rng.below(30) {
            self.publish();
            self.turn(Mood { unrest: 3, ..READING });
        }
        self.world.worker.execute(&mut self.world.sim, Order::Drain);
        let mood = Mood { unrest: 0, connects: false, draining: true };
        for _ in 0..TURNS_MAX {
            self.turn(mood);
            let is_over = self.connections().is_empty() && self.world.sim.open_sockets() == 0;
            if is_over && self.world.worker.has_ended() {
                return;
            }
        }
        panic!("the server does not stop: {:?} are left", self.connections());
    }

    /// All clients leave, in one way or the other.
    fn leave(&mut self) {
        for connection in self.connections() {
            if self.rng.percent(50) {
                self.world.sim.finish_client(connection);
            } else {
                self.world.sim.reset_client(connection);
            }
        }
        self.world.settle();
        self.world.sim.sleep(super::PATIENCE_MS);
        self.world.settle();
    }

    fn connections(&self) -> Vec<Client> {
        let readers = self.readers.iter().filter_map(Reader::connection);
        let pollers = self.pollers.iter().filter_map(Poller::connection);
        let putters = self.putters.iter().filter_map(Putter::connection);
        readers.chain(pollers).chain(putters).collect()
    }

    fn check_nothing_is_left(&mut self) {
        self.world.check_nothing_is_left();
        for (topic, ..) in TOPICS {
            self.world.check_nobody_reads(topic);
        }
    }
}

/// When everything is published, in seconds since 1970.
const NOW_S: u64 = 1_782_000_000;

/// After so many turns in which only the time passes, what is missing will not come.
const IDLE_TURNS_MAX: usize = 1_000;

/// After so many turns something goes round in circles.
const TURNS_MAX: usize = 400_000;
