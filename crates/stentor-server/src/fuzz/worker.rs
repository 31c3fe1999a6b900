//! A whole worker on the simulated network, fed whatever the fuzzer makes up.
//!
//! The bytes are what clients send, on up to eight connections at a time, half of them on the
//! control listener. A byte of 255 is followed by one that says what else happens: which connection
//! the next bytes are for, how many turns the server has, that a client ends, breaks or does not
//! read, that time passes, that something is published. So a fuzzer that knows nothing of this
//! still reaches everything, and what it found can be read.

use crate::listeners::{CONTROL, PUBLIC};
use crate::mailbox::Order;
use crate::simulation::net::Client;
use crate::simulation::{Late, Parts, World, patient};
use stentor_config::{Files, Mount, Settings};
use stentor_hub::{ContentType, Pattern, Precondition, Rule};
use stentor_io::Faults;
use stentor_wire::target::TopicName;

/// Whatever clients do, the server comes to rest within a number of turns that their bytes bound,
/// and when all have gone nothing of them is left.
pub fn fuzz_worker(data: &[u8]) {
    let Some((&first, script)) = data.split_first() else { return };
    let mut play = Play::new(first);
    let mut bytes = script.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            ESCAPE => match bytes.next() {
                Some(&ESCAPE) => play.unsent.push(ESCAPE),
                Some(&act) => play.act(act & 15, act >> 4),
                None => {}
            },
            byte => play.unsent.push(byte),
        }
    }
    play.end(TURNS_MAX_BEFORE + data.len() * TURNS_MAX_PER_BYTE);
}

/// A run.
struct Play {
    world: World,
    /// Those that are written to and done something with.
    slots: [Option<Client>; 8],
    /// All there ever were.
    clients: Vec<Client>,
    slot: usize,
    /// What the current client is about to send.
    unsent: Vec<u8>,
}

impl Play {
    /// A world as unkind as the bits of `first` say.
    fn new(first: u8) -> Play {
        let bit = |n: u8| usize::from(first >> n & 1);
        let faults = Faults {
            split_percent: [0, 70][bit(0)],
            refuse_percent: [0, 30][bit(1)],
            reset_per_10_000: [0, 30][bit(2)],
            delay_ms_max: [0, 20][bit(3)],
            window_bytes: [1 << 20, 700][bit(4)],
        };
        let late = [None, Some(Late::new(10))][bit(5)].clone();
        let parts = Parts { late, ..Parts::default() };
        let world = World::of(parts, u64::from(first), faults, settings());
        Play { world, slots: [None; 8], clients: Vec::new(), slot: 0, unsent: Vec::new() }
    }

    fn act(&mut self, act: u8, arg: u8) {
        self.send();
        let client = self.slots[self.slot];
        let sim = &mut self.world.sim;
        match (act, client) {
            (0, _) => {
                self.slot = usize::from(arg & 7);
                if arg >= 8 {
                    // The one before stays, and is not heard of again.
                    self.slots[self.slot] = None;
                }
            }
            (1, Some(client)) => sim.finish_client(client),
            (2, Some(client)) => sim.reset_client(client),
            (3, Some(client)) => sim.stall(client, arg.is_multiple_of(2)),
            (4, Some(client)) => drop(sim.read(client)),
            (5, _) => sim.sleep(SLEEPS_MS[usize::from(arg)]),
            (6, _) => self.publish(arg),
            (7, _) => self.delete(arg),
            (8, _) => drop(self.world.jobs.run_one()),
            (9, _) => {
                for loader in &mut self.world.loaders {
                    loader.step();
                }
            }
            (10, _) if arg == 15 => {
                let World { worker, sim, .. } = &mut self.world;
                worker.execute(sim, Order::Drain);
            }
            (12, _) => drop(self.world.hand_over(0)),
            (11, _) => {
                let World { worker, sim, .. } = &mut self.world;
                worker.execute(sim, Order::Reload(settings().into()));
            }
            _ => {
                for _ in 0..=arg {
                    self.world.turn();
                }
            }
        }
    }

    /// Sends what there is, on a new connection if the slot is empty.
    fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let client = self.slots[self.slot].unwrap_or_else(|| {
            if self.clients.len() == CLIENTS_MAX {
                return self.clients[self.slot];
            }
            let role = if self.slot.is_multiple_of(2) { PUBLIC } else { CONTROL };
            let client = self.world.sim.connect(role);
            self.clients.push(client);
            client
        });
        self.slots[self.slot] = Some(client);
        self.world.sim.write(client, &self.unsent);
        self.unsent.clear();
    }

    fn publish(&self, arg: u8) {
        let data = vec![b'"'; DATA_BYTES[usize::from(arg >> 2)]];
        let content_type = ContentType::TEXT;
        self.world.publish(TOPICS[usize::from(arg & 3)], data, content_type);
    }

    fn delete(&self, arg: u8) {
        // It may not exist.
        let hub = &self.world.shared.hub;
        let topic = TopicName::parse(TOPICS[usize::from(arg & 3)]).expect("it is a name");
        let _ = hub.delete(topic, Precondition::None, 0);
    }

    /// Everybody reads what is due, and then leaves.
    fn end(mut self, turns_max: usize) {
        self.send();
        for &client in &self.clients {
            self.world.sim.stall(client, false);
        }
        self.world.settle_within(turns_max);
        for &client in &self.clients {
            self.world.sim.finish_client(client);
        }
        self.world.settle_within(turns_max);
        // Whoever is waited for has until then.
        for _ in 0..2 {
            self.world.sim.sleep(REST_MS);
            self.world.settle_within(turns_max);
        }
        self.world.check_nothing_is_left();
        for topic in TOPICS {
            self.world.check_nobody_reads(topic);
        }
    }
}

/// Deadlines as they are by default, and something of everything.
fn settings() -> Settings {
    let mut settings = Settings { lookups: patient().lookups, ..Settings::default() };
    settings.mounts.push(Mount::new("/files/", concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    settings.files = Files { small_bytes_max: 4_096, ..Files::default() };
    let pattern = Pattern::parse("/one/*").expect("it is a pattern");
    settings.topics.push(Rule { history: 1, ..Rule::new(pattern) });
    settings.limits.topics_max = 100;
    settings
}

const ESCAPE: u8 = 255;

/// What is published to from outside the network.
const TOPICS: [&str; 4] = ["/one/a", "/one/b", "/many/a", "/many/b"];

/// How much is published.
const DATA_BYTES: [usize; 4] = [0, 20, 1_000, 20_000];

/// How much time passes.
const SLEEPS_MS: [u64; 16] = [
    1, 10, 100, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 60_000,
    300_000, 600_000,
];

/// All deadlines are sooner than this.
const REST_MS: u64 = 600_000;

/// More are not needed to make any mistake there is.
const CLIENTS_MAX: usize = 32;

/// A request may ask for much with few bytes: eleven name a value of ten thousand in a look-up,
/// which take fifteen turns at the smallest window, and more if they are refused now and then.
const TURNS_MAX_BEFORE: usize = 10_000;
const TURNS_MAX_PER_BYTE: usize = 100;
