//! The server on the simulated network: the same worker, seeds instead of luck.
//!
//! Each seed makes a network with its own unkindness and a few clients that each follow a script
//! of requests with known answers. Whatever is split, delayed, refused or reset, these must hold:
//!
//! - every request is answered once, in order, with the right bytes;
//! - a connection that is reset has seen a prefix of exactly that;
//! - when all clients have gone, the server holds no connection and counts none;
//! - nothing hangs: as long as an answer is due, something can happen.
//!
//! What is delivered to the readers of streams is checked in the same way, in `streams.rs`.
//!
//! A failure prints the seed; `STENTOR_SEED=n` runs that one alone, `STENTOR_SEEDS=n` that many,
//! and `STENTOR_SIM=requests` or `=streams` only one of the two.

mod client;
mod faults;
mod streams;

use crate::addresses::AddressCounts;
use crate::compressor::{Compressor, Jobs};
use crate::config::{Lookup, Mount, Settings};
use crate::context::{CONTROL, PUBLIC, Shared};
use crate::files::{Keeper, Library};
use crate::mailbox::Mailbox;
use crate::stats::{Stats, Totals};
use crate::worker::Worker;
use client::{Script, Scripted};
use std::sync::Arc;
use stentor_hub::{ContentType, Draft, Epoch, Hub, Precondition};
use stentor_io::{Client, Faults, Rng, Sim};
use stentor_wire::lookup::Template;

/// The values that every client may read and none may change.
const SMALL: &[u8] = b"183.22 +1.2%";
/// Enough to be sent from the message itself.
const LARGE_BYTES: usize = 10_000;
const TEXT_BYTES: usize = 3_000;
/// Of the two files that are asked for one is smaller, one larger.
const SMALL_FILE_BYTES_MAX: usize = 4_096;

/// A worker on a simulated network.
struct World {
    sim: Sim,
    worker: Worker,
    shared: Arc<Shared>,
    jobs: Jobs,
    keeper: Option<Keeper>,
    mailbox: Arc<Mailbox>,
}

impl World {
    fn new(seed: u64, faults: Faults, settings: Settings) -> World {
        let (compressor, jobs) = Compressor::by_hand();
        let epoch = Epoch::parse("0badcafe").unwrap();
        let stats = Arc::new(Stats::default());
        let library = Arc::new(Library::new().unwrap());
        let keeper = library.keeper(&settings.mounts, &settings.files).unwrap();
        let shared = Arc::new(Shared {
            hub: Arc::new(Hub::new(epoch, settings.topics.clone(), stentor_hub::Limits::default())),
            compressor,
            library,
            addresses: AddressCounts::new(),
            workers: vec![Arc::clone(&stats)],
            workers_public: 1,
            started_unix_s: 0,
        });
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let settings = Arc::new(settings);
        let own = Arc::clone(&mailbox);
        let worker = Worker::new(Arc::clone(&shared), settings, stats, own, seed);
        let world = World { sim: Sim::new(seed, faults), worker, shared, jobs, keeper, mailbox };
        world.publish("/small", SMALL.to_vec(), ContentType::TEXT);
        world.publish("/large", large(), ContentType::OCTETS);
        world.publish("/text", text(), ContentType::TEXT);
        world
    }

    fn publish(&self, topic: &str, data: Vec<u8>, content_type: ContentType) {
        let draft = Draft::new(data).with_content_type(content_type);
        self.shared.publish(topic, draft, Precondition::None, 1_782_000_000).unwrap();
    }

    /// One turn of the loop. Returns false if only time can change anything.
    fn turn(&mut self) -> bool {
        let busy = self.sim.turn(&mut self.worker);
        self.worker.attend(&mut self.sim);
        let passes = self.worker.next_deadline_ms() == Some(0);
        self.worker.after_turn(&mut self.sim);
        busy || passes
    }

    fn settle_some(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Turns until nothing happens any more.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the server never comes to rest");
    }

    fn totals(&self) -> Totals {
        Totals::sum(self.shared.workers.iter().map(AsRef::as_ref))
    }

    /// With all clients gone, nothing of them is left and nobody is counted.
    fn check_nothing_is_left(&self) {
        assert_eq!(self.sim.open_sockets(), 0, "connections are left");
        let totals = self.totals();
        let counted = totals.connections_public
            + totals.connections_control
            + totals.connections_reading
            + totals.connections_writing;
        assert_eq!(counted, 0, "connections are counted that are gone: {totals:?}");
    }

    /// Connects, sends and returns everything the server answers.
    fn ask(&mut self, role: u8, bytes: &[u8]) -> (Client, String) {
        let client = self.sim.connect(role);
        self.sim.write(client, bytes);
        self.settle();
        (client, String::from_utf8_lossy(&self.sim.read(client)).into_owned())
    }
}

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|n| (n * 7 % 251) as u8).collect()
}

fn text() -> Vec<u8> {
    b"all work and no play ".iter().copied().cycle().take(TEXT_BYTES).collect()
}

/// Settings under which no deadline passes by itself.
fn patient() -> Settings {
    let mut settings = Settings::default();
    let limits = &mut settings.limits;
    limits.head_timeout_ms = PATIENCE_MS;
    limits.keep_alive_timeout_ms = PATIENCE_MS;
    limits.write_timeout_ms = PATIENCE_MS;
    limits.body_rate_min = 0;
    settings.lookups.push(Lookup {
        path: "/list=".to_owned(),
        topics: Template::parse("/{name}").unwrap(),
        line: Some(Template::parse("var hq_str_{name}=\"{value}\";").unwrap()),
        content_type: "text/javascript".to_owned(),
    });
    settings
}

const PATIENCE_MS: u64 = 1 << 40;

fn faults(rng: &mut Rng) -> Faults {
    let resets = if rng.percent(20) { 30 } else { 0 };
    Faults {
        split_percent: [0, 30, 90][rng.below(3)],
        refuse_percent: [0, 20, 80][rng.below(3)],
        reset_per_10_000: resets,
        delay_ms_max: 20,
        window_bytes: [13, 700, 9_000, 1 << 20][rng.below(4)],
    }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    settings.files.small_bytes_max = SMALL_FILE_BYTES_MAX;
    let mut world = World::new(seed ^ 0x5eed, faults(&mut rng), settings);
    let mut clients: Vec<Scripted> = (0..1 + rng.below(5))
        .map(|number| {
            let role = if rng.percent(50) { CONTROL } else { PUBLIC };
            let script = Script::random(&mut rng, role, number);
            Scripted::new(world.sim.connect(role), script)
        })
        .collect();
    let mut idle_turns = 0;
    while clients.iter().any(|client| !client.is_done()) {
        for client in &mut clients {
            client.play(&mut world.sim, &mut rng);
        }
        if rng.percent(20) {
            world.jobs.run_one();
        }
        if rng.percent(5) {
            world.keeper.as_mut().unwrap().step();
        }
        idle_turns = if world.turn() { 0 } else { idle_turns + 1 };
        assert!(idle_turns < 1_000, "seed {seed}: the server hangs\n{clients:#?}");
    }
    for client in &clients {
        client.check(seed);
        world.sim.stall(client.connection(), false);
        world.sim.finish_client(client.connection());
    }
    world.settle();
    world.sim.sleep(PATIENCE_MS);
    world.worker.after_turn(&mut world.sim);
    world.check_nothing_is_left();
}

/// Runs many seeds, or the one that is asked for.
fn run_seeds(name: &str, run: impl Fn(u64) + std::panic::RefUnwindSafe, seeds_by_default: u64) {
    let asked = |name: &str| std::env::var(name).ok();
    let number = |name: &str| asked(name).and_then(|text| text.parse::<u64>().ok());
    if asked("STENTOR_SIM").is_some_and(|only| only != name) {
        return;
    }
    if let Some(seed) = number("STENTOR_SEED") {
        return run(seed);
    }
    let seeds = number("STENTOR_SEEDS").unwrap_or(seeds_by_default);
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed} failed; STENTOR_SIM={name} STENTOR_SEED={seed} runs it alone");
            std::panic::resume_unwind(panic);
        }
    }
    println!("{name}: {seeds} seeds without a violation");
}

#[test]
fn every_request_is_answered_once_in_order_with_the_right_bytes() {
    run_seeds("requests", run, 3_000);
}

#[test]
fn every_reader_is_told_everything_once_in_order_or_that_something_is_missing() {
    run_seeds("streams", streams::run, 1_000);
}
