//! A node and a simulated broker, with seeds: the client, from dialling to what the node makes of
//! each message. The network splits what the broker says, delays it, resets and swallows it.
//!
//! The simulation starts no threads. It calls what the client's thread calls, in virtual time.
//!
//! What must hold:
//!
//! - Nothing panics, and memory is bounded.
//! - The client passes on messages of the broker: those of this connection alone, in their order.
//! - An attempt to connect ends in time. A silent connection is given up. The pause before the next
//!   one is bounded.
//! - A broker that does not lie receives messages of nodes alone. Its log has each value whose
//!   publisher was told of success. Once the network is calm the node publishes, and has the newest
//!   values.

mod broker;

use self::broker::{Log, Talk};
use super::*;
use crate::waiting::ClusterIntake;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use stentor_config::Cluster as Settings;
use stentor_hub::{Draft, Epoch, Limits, Op, Precondition};
use stentor_io::{SimDialer, SimPeer, VirtualClock, lock};
use stentor_order::{Outcome, ReturnAddress};
use stentor_test::{seeds, trace};
use stentor_wire::target::TopicName;

#[test]
fn a_node_says_only_what_its_broker_said() {
    let sums = Mutex::new([0; 3]);
    let has_run_all = seeds::run("brokers", 300, |seed| {
        let counts = World::new(seed).run();
        let mut sums = lock(&sums);
        (0..3).for_each(|index| sums[index] += counts[index]);
    });
    let [connections, heard, published] = sums.into_inner().unwrap();
    let is_of_use = connections > 1_000 && heard > 10_000 && published > 1_000;
    assert!(!has_run_all || is_of_use, "{connections} {heard} {published}");
}

/// A publisher waits for an outcome.
struct Publisher {
    topic: String,
    data: String,
    since_ms: u64,
    outcome: Receiver<Outcome>,
}

struct World {
    rng: Rng,
    lies: bool,
    network: SimDialer,
    broker: Broker,
    hub: Arc<Hub>,
    log: Arc<Mutex<Log>>,
    waiting: Vec<Publisher>,
    /// The topics and values whose publishers heard of success.
    published: Vec<(String, String)>,
    counter: u32,
    connections: u64,
    heard: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let settings =
            Settings { nats: vec!["nats://broker:4222".parse().unwrap()], ..Settings::default() };
        let state = Arc::new(ClusterState::new(&settings).unwrap());
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        hub.begin_following();
        let intake: Arc<ClusterIntake> = Arc::clone(&state.intake);
        let node = ClusterNode::new(Arc::clone(&hub), intake, rng.next_u64(), Box::new(|_| {}));
        let fetch = Box::new(|_| Err("there is no peer".to_owned()));
        let mut broker = Broker::new(state, node, fetch);
        let lies = rng.percent(50);
        let log = Arc::new(Mutex::new(Log::default()));
        let (of_talks, mut talks) = (Arc::clone(&log), Rng::new(rng.next_u64()));
        let begin = move || {
            let talk = Talk::begin(Arc::clone(&of_talks), Rng::new(talks.next_u64()), lies);
            (!talks.percent(10)).then(|| Box::new(talk) as Box<dyn SimPeer>)
        };
        let network = SimDialer::new(Rng::new(rng.next_u64()), 20, begin);
        broker.dialer = Arc::new(network.clone());
        broker.rng = Rng::new(rng.next_u64());
        World {
            rng,
            lies,
            network,
            broker,
            hub,
            log,
            waiting: Vec::new(),
            published: Vec::new(),
            counter: 0,
            connections: 0,
            heard: 0,
        }
    }

    /// Returns how many connections there were, how much was heard, and how much was published.
    fn run(mut self) -> [u64; 3] {
        let _clock = VirtualClock::start(1_000_000_000);
        let begin_ms = now_ms();
        let mut failures = Failures::default();
        let rough_ms = begin_ms + 2_000 + self.rng.below(15_000) as u64;
        while now_ms() < rough_ms {
            self.connect(rough_ms, &mut failures);
        }
        if !self.lies {
            self.network.set_calm_percent(100);
            let (published, calm_ms) = (self.published.len(), now_ms() + 60_000);
            while self.published.len() < published + 3 {
                assert!(now_ms() < calm_ms, "nothing is published in a calm network");
                self.connect(calm_ms, &mut failures);
            }
            self.check_values();
        }
        [self.connections, self.heard, self.published.len() as u64]
    }

    /// One connection, from dialling to the pause behind it.
    fn connect(&mut self, until_ms: u64, failures: &mut Failures) {
        let (url, name) = (self.broker.state.settings.nats[0].clone(), self.broker.name());
        self.connections += 1;
        let settings = &self.broker.state.settings;
        let begin_us = monotonic_us();
        let linked = Link::connect(&*self.broker.dialer, &url, settings, &name);
        let took_us = monotonic_us() - begin_us;
        assert!(took_us <= link::CONNECT_MAX_US, "it took {took_us} us to connect");
        let served = linked.and_then(|link| {
            let session = self.broker.begin(link);
            self.serve(session, until_ms)
        });
        let reason = served.err().unwrap_or_else(|| "the time is over".to_owned());
        trace::act(now_ms(), format_args!("connection {}: {reason}", self.connections));
        let lost_ms = now_ms();
        self.broker.lose(&url, &reason, failures);
        let pause_ms = now_ms() - lost_ms;
        assert!((1..=PAUSE_MAX_MS).contains(&pause_ms), "a pause of {pause_ms} ms");
    }

    fn serve(&mut self, mut session: Session, until_ms: u64) -> Result<(), String> {
        let let_in = lock(&self.log).said.iter().position(|said| *said == Said::Pong);
        let mut passed_on = let_in.expect("it was let in by a PONG") + 1;
        let mut heard_ms = now_ms();
        while now_ms() < until_ms {
            self.publish();
            let until_us = self.broker.say(&mut session)?;
            let mut all = Vec::new();
            let read = session.link.read(&mut all, until_us, &self.broker.state.waker);
            if !all.is_empty() {
                heard_ms = now_ms();
                let log = lock(&self.log);
                let said = &log.said[passed_on..];
                assert!(said.starts_with(&all), "it did not say {all:?}, but {said:?}");
                drop(log);
                passed_on += all.len();
                self.heard += all.len() as u64;
            }
            self.broker.take(&mut session, all)?;
            read?;
            let waiting = session.link.received.bytes.len();
            assert!(waiting <= WAITING_BYTES_MAX, "{waiting} bytes wait for the rest of a message");
            assert!(session.asked.len() < 200, "{} requests wait", session.asked.len());
            let silence_ms = now_ms() - heard_ms;
            assert!(silence_ms <= SILENCE_MAX_MS + 2_000 + TICK_MS, "{silence_ms} ms of silence");
            self.collect();
        }
        Ok(())
    }

    fn publish(&mut self) {
        if !self.broker.state.status().is_open() || !self.rng.percent(5) {
            return;
        }
        self.counter += 1;
        let mut data = format!("value-{:06};", self.counter);
        data.push_str(&"x".repeat(self.rng.below(50)));
        let topic = format!("/{}", self.rng.below(3));
        let op = Op::Put(TopicName::parse(&topic).unwrap(), Draft::new(data.clone().into_bytes()));
        let entry = self.hub.admit(op, Precondition::None, 1).unwrap();
        let (sender, outcome) = mpsc::channel();
        if self.broker.state.intake.put(&entry, ReturnAddress::Thread(sender)).is_ok() {
            self.waiting.push(Publisher { topic, data, since_ms: now_ms(), outcome });
        }
    }

    /// Takes the outcomes that publishers heard.
    fn collect(&mut self) {
        let log = lock(&self.log);
        let (published, lies) = (&mut self.published, self.lies);
        self.waiting.retain(|Publisher { topic, data, since_ms, outcome }| {
            match outcome.try_recv() {
                Ok(Ok(_)) => {
                    assert!(lies || log.place_of(data.as_bytes()).is_some(), "{data} is lost");
                    published.push((topic.clone(), data.clone()));
                }
                Ok(Err(_)) => {}
                Err(error) => {
                    assert_eq!(error, mpsc::TryRecvError::Empty, "{data} has no outcome");
                    let ms = now_ms() - since_ms;
                    assert!(ms <= PUBLISHER_MS_MAX, "{data} waits for {ms} ms");
                    return true;
                }
            }
            false
        });
    }

    /// The value of a topic is the newest one that was published, or a newer one of the log.
    fn check_values(&self) {
        let log = lock(&self.log);
        for (topic, data) in &self.published {
            let value = self.hub.value(topic).unwrap_or_else(|| panic!("{topic} has no value"));
            let (here, there) = (log.place_of(value.data()), log.place_of(data.as_bytes()));
            assert!(here >= there, "{topic} is older than {data}: {here:?}, {there:?}");
        }
    }
}

/// A change waits for its message, and then its message for the append. This simulation does not
/// tell the node the time during a dial and a write, of two seconds each.
const PUBLISHER_MS_MAX: u64 = 2 * crate::waiting::PATIENCE_MS + 5_000;

/// A message that is not whole yet, a line, and what is read at once.
const WAITING_BYTES_MAX: usize = wire::PAYLOAD_BYTES_MAX + (64 << 10) + (256 << 10) + 1_000;
