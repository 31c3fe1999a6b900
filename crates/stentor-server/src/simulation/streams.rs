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
//! - while memory is very short nobody new is let in, and nobody who is in is cut;
//! - what a follower is sent makes the same hub again;
//! - a stop ends streams in the way that is right, and when all clients have gone nothing is left.
//!
//! `log.rs` is the model of what was published, `view.rs` the oracle.

mod follower;
mod log;
mod meanwhile;
mod poller;
mod pressure;
mod publisher;
mod reader;
mod view;

use super::clock::ClockJumps;
use super::handover::HandOvers;
use super::net::Client;
use super::seeds::{faults, kernel_faults};
use super::{Parts, World, patient};
use crate::mailbox::Order;
use follower::Follower;
use log::{Log, TOPICS, wants};
use meanwhile::Meanwhile;
use poller::Poller;
use pressure::RandomPressures;
use publisher::{Putter, Source};
use reader::{Mood, Plan, Reader};
use stentor_hub::Precondition;
use stentor_io::{KernelFaults, Rng, mark};
use stentor_wire::target::TopicName;

/// A run: the world, the model of what was published, and the clients.
struct Stage {
    world: World,
    log: Log,
    rng: Rng,
    source: Source,
    meanwhile: Meanwhile,
    readers: Vec<Reader>,
    pollers: Vec<Poller>,
    putters: Vec<Putter>,
    followers: Vec<Follower>,
    /// Topics that are published to; the last does not exist in the beginning.
    topics: usize,
    hand_overs: HandOvers,
    clock: ClockJumps,
    pressures: RandomPressures,
}

/// One seed from the beginning to the end.
pub(super) fn run(seed: u64) {
    let mut stage = Stage::new(seed);
    stage.world.panic_at_random(seed % 2 == 1);
    stage.world.set_kernel_faults(kernel_faults(seed));
    let turns = 50 + stage.rng.below(600);
    for turn in 0..turns {
        if turn > turns / 2 {
            stage.topics = TOPICS.len();
        }
        stage.publish();
        stage.turn(UNREST);
        if seed.is_multiple_of(2) && stage.rng.below(3_000) == 0 {
            stage.come_to_rest();
            mark("day-passes");
            stage.sleep(DAY_MS);
        }
    }
    stage.world.panic_at_random(false);
    stage.world.set_kernel_faults(KernelFaults::default());
    stage.come_to_rest();
    stage.check_readers();
    stage.come_to_rest();
    let has_evicted = stage.world.shared.hub.stored().evicted_total > 0;
    if has_evicted {
        // Followers may have more history than the server.
        stage.log.trim_history_to(&stage.world.shared.hub, 0);
    }
    stage.followers.iter().for_each(|follower| follower.check(&stage.world, has_evicted));
    stage.check_signs_of_life();
    if stage.rng.percent(40) {
        stage.stop();
    } else {
        stage.leave();
    }
    stage.check_nothing_is_left();
}

const READING: Mood = Mood { unrest: 0, connects: true, draining: false, may_be_cut: false };
const UNREST: Mood = Mood { unrest: 3, ..READING };

impl Stage {
    fn new(seed: u64) -> Stage {
        let mut rng = Rng::new(seed);
        let faults = faults(&mut rng);
        let mut settings = patient();
        settings.topics = log::rules();
        settings.streams.stall_timeout_ms = super::PATIENCE_MS;
        let followers = if rng.percent(40) { 1 + rng.below(2) } else { 0 };
        settings.limits.feed_bytes_max = [4_000, 1 << 20][rng.below(2)];
        let last_seq = [0, 0, (1 << 53) - 20, LAST_SEQ_MAX][rng.below(4)];
        let parts = Parts { last_seq, ..Parts::of_seed(seed, &mut rng, &[0, 10, 50]) };
        let world = World::of(parts, seed ^ 0x5eed, faults, settings);
        let mut log = Log::attach(&world);
        let pressures = RandomPressures::new(seed, world.workers());
        log.memory_gets_short = pressures.are_any();
        let readers =
            (0..1 + rng.below(5)).map(|_| Reader::new(Plan::random(&mut rng), &log)).collect();
        let pollers =
            (0..rng.below(3)).map(|_| Poller::new(Plan::random(&mut rng), &log)).collect();
        let followers = (0..followers).map(|_| Follower::random(&mut rng)).collect();
        let putters = (0..rng.below(3)).map(|_| Putter::default()).collect();
        let source = Source::new(0, faults.window_bytes);
        let meanwhile = Meanwhile::new(&world, &log, &mut rng, faults.window_bytes);
        let topics = TOPICS.len() - 1;
        let (hand_overs, clock) = (HandOvers::new(seed), ClockJumps::new(seed));
        Stage {
            world,
            log,
            rng,
            source,
            meanwhile,
            readers,
            pollers,
            putters,
            followers,
            topics,
            hand_overs,
            clock,
            pressures,
        }
    }

    /// Publishes or deletes something, or nothing.
    fn publish(&mut self) {
        let topic = TOPICS[self.rng.below(self.topics)].0;
        match self.rng.below(100) {
            0..12 => self.publish_to(topic, false),
            12..14 => {
                let hub = &self.world.shared.hub;
                // It may not exist.
                let _ = hub.delete(TopicName::parse(topic).unwrap(), Precondition::None, NOW_S);
            }
            14 => {
                for _ in 0..self.rng.below(60) {
                    let topic = TOPICS[self.rng.below(self.topics)].0;
                    self.publish_to(topic, true);
                }
            }
            15 if !self.followers.is_empty() && self.rng.percent(20) => {
                // The same, but of a later generation.
                self.world.shared.hub.set_rules(log::rules());
            }
            15..22 if !self.putters.is_empty() => {
                let deletes = self.rng.percent(10);
                let datum = (!deletes).then(|| self.source.next(&mut self.rng, false));
                let index = self.rng.below(self.putters.len());
                let Stage { world, log, putters, .. } = self;
                let putter = &mut putters[index];
                world.at(index % world.workers(), |world| {
                    putter.put(&mut world.sim, log, topic, datum);
                });
            }
            _ => {}
        }
        self.log.absorb();
    }

    fn publish_to(&mut self, topic: &str, is_small: bool) {
        let datum = self.source.next(&mut self.rng, is_small);
        self.log.expect(topic, &datum.data, datum.content_type.as_str());
        let published = self.world.publish_draft(topic, datum.draft());
        self.log.absorb();
        assert_eq!(published.id.seq, self.log.seq());
    }

    /// Everybody does something, then the server does. Returns whether it had anything to do.
    fn turn(&mut self, mood: Mood) -> bool {
        let mut workers = self.world.shared.workers.iter();
        let may_be_cut = workers.any(|stats| stats.tcp_memory_evicted.value() > 0);
        let mood = Mood { may_be_cut, ..mood };
        let Stage { world, log, rng, readers, pollers, putters, followers, .. } = self;
        let (hand_overs, pressures) = (&mut self.hand_overs, &mut self.pressures);
        if mood.unrest > 0 {
            pressures.play(world, log);
            self.clock.play(world);
        }
        for (index, reader) in readers.iter_mut().enumerate() {
            world.at(index % world.workers(), |world| reader.play(&mut world.sim, rng, log, mood));
        }
        for (index, poller) in pollers.iter_mut().enumerate() {
            world.at(index % world.workers(), |world| poller.play(&mut world.sim, rng, log, mood));
        }
        for (index, putter) in putters.iter_mut().enumerate() {
            world.at(index % world.workers(), |world| putter.play(&mut world.sim, log, mood));
        }
        for (index, follower) in followers.iter_mut().enumerate() {
            world.at(index % world.workers(), |world| follower.play(&mut world.sim, rng, mood));
        }
        if rng.percent(20) {
            world.jobs.run_one();
        }
        let mut turn = || {
            hand_overs.play(world);
            world.turn()
        };
        let busy = match mood.unrest {
            0 => turn(),
            _ => self.meanwhile.during(self.topics, turn),
        };
        log.absorb();
        pressures.check(world);
        busy
    }

    /// Turns until everybody has everything and nothing happens any more.
    fn come_to_rest(&mut self) {
        let mut idle_turns = 0;
        self.pressures.ease(&mut self.world);
        for turn in 0..TURNS_MAX {
            if turn == UNRESTFUL_TURNS {
                for index in 0..self.world.workers() {
                    self.world.at(index, |world| world.sim.stop_resets());
                }
            }
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
        if self.followers.iter().any(|follower| follower.misses(self.log.seq())) {
            return Some("what a follower is to be sent".to_owned());
        }
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
        let readers = self.world.publish_draft(topic, datum.draft()).readers;
        // A poll may be between two requests.
        let expected = streams..=streams + polls;
        let totals = self.world.totals();
        let open = self.connections().count();
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
        self.sleep(streams.heartbeat_ms.max(streams.ping_ms));
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
        mark("server-stops");
        for _ in 0..self.rng.below(30) {
            self.publish();
            self.turn(UNREST);
        }
        // Or whoever waits to come in does so until the listeners are closed.
        self.pressures.ease(&mut self.world);
        let workers = self.world.workers();
        for index in 0..workers {
            self.world.at(index, |world| world.worker.execute(&mut world.sim, Order::Drain));
        }
        let mood = Mood { connects: false, draining: true, ..READING };
        for _ in 0..TURNS_MAX {
            self.turn(mood);
            let has_ended = |world: &mut World| world.worker.has_ended();
            let is_over = self.connections().next().is_none() && self.world.open_sockets() == 0;
            if is_over && (0..workers).all(|index| self.world.at(index, has_ended)) {
                return;
            }
        }
        panic!("the server does not stop: {} are left", self.connections().count());
    }

    /// All clients leave, in one way or the other.
    fn leave(&mut self) {
        let connections: Vec<(usize, Client)> = self.connections().collect();
        for (index, connection) in connections {
            let finishes = self.rng.percent(50);
            self.world.at(index, |world| match finishes {
                true => world.sim.finish_client(connection),
                false => world.sim.reset_client(connection),
            });
        }
        self.world.settle();
        self.sleep(super::PATIENCE_MS);
        self.world.settle();
    }

    /// The open connections, each with its worker.
    fn connections(&self) -> impl Iterator<Item = (usize, Client)> {
        let workers = self.world.workers();
        let readers = self.readers.iter().map(Reader::connection).enumerate();
        let pollers = self.pollers.iter().map(Poller::connection).enumerate();
        let putters = self.putters.iter().map(Putter::connection).enumerate();
        let all = readers.chain(pollers).chain(putters);
        let all = all.filter_map(move |(index, connection)| Some((index % workers, connection?)));
        let followers = self.followers.iter().enumerate();
        let of_followers = followers.flat_map(move |(index, follower)| {
            follower.connections().map(move |connection| (index % workers, connection))
        });
        all.chain(of_followers)
    }

    fn sleep(&mut self, ms: u64) {
        for index in 0..self.world.workers() {
            self.world.at(index, |world| world.sim.sleep(ms));
        }
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

/// A server counts to 2^62. A late commit leaves out some thousands of numbers.
const LAST_SEQ_MAX: u64 = (1 << 62) - (1 << 30);

const DAY_MS: u64 = 86_400_000;

/// After so many turns in which only the time passes, what is missing will not come.
const IDLE_TURNS_MAX: usize = 1_000;

/// After so many turns nothing breaks any more: a large answer through a small window may take more
/// turns than there are between two resets.
const UNRESTFUL_TURNS: usize = 20_000;

/// After so many turns something goes round in circles.
const TURNS_MAX: usize = 400_000;
