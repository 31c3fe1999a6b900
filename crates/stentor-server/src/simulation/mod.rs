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
//! What there is between the network and the server the seed says as well: nothing, a layer that
//! seals bytes into records, one that carries several streams in a socket, or both (`net.rs`).
//! `STENTOR_CARRIER` names one for all.
//!
//! What is delivered to the readers of streams is checked in the same way, in `streams.rs`.
//!
//! A failure prints the seed; `STENTOR_SEED=n` runs that one alone, `STENTOR_SEEDS=n` that many,
//! and `STENTOR_SIM=requests`, `=streams` or `=hostile` only one of the three.

// All of it is for tests and for fuzzing.
#![allow(clippy::unwrap_used)]

#[cfg(test)]
mod carriers;
#[cfg(test)]
mod client;
#[cfg(test)]
mod codec;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod holding;
#[cfg(test)]
mod hostile;
pub(crate) mod net;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod streams;

use crate::addresses::AddressCounts;
use crate::compressor::{Compressor, Jobs};
use crate::config::{Lookup, Settings};
#[cfg(test)]
use crate::context::{CONTROL, PUBLIC};
use crate::context::{Context, Shared};
use crate::files::{FileCache, FileLoader};
use crate::mailbox::Mailbox;
use crate::stats::{Stats, Totals};
use crate::worker::Worker;
use net::{Layers, Net};
use std::sync::Arc;
use stentor_hub::{ContentType, Draft, Epoch, Hub, Precondition};
use stentor_io::Faults;
use stentor_wire::lookup::Template;

/// The values that every client may read and none may change.
const SMALL: &[u8] = b"183.22 +1.2%";
/// Enough to be sent from the message itself.
const LARGE_BYTES: usize = 10_000;
const TEXT_BYTES: usize = 3_000;

/// A worker on a simulated network.
pub(crate) struct World {
    pub(crate) sim: Net,
    pub(crate) worker: Worker,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Jobs,
    pub(crate) loader: Option<FileLoader>,
    mailbox: Arc<Mailbox>,
}

impl World {
    /// A world on a plain network, unless the environment names another.
    pub(crate) fn new(seed: u64, faults: Faults, settings: Settings) -> World {
        World::over(Layers::asked().unwrap_or(Layers::Plain), seed, faults, settings)
    }

    pub(crate) fn over(layers: Layers, seed: u64, faults: Faults, settings: Settings) -> World {
        let (compressor, jobs) = Compressor::by_hand();
        let epoch = Epoch::parse("0badcafe").unwrap();
        let stats = Arc::new(Stats::default());
        let file_cache = Arc::new(FileCache::new().unwrap());
        let loader = file_cache.loader(&settings.mounts, &settings.files).unwrap();
        let shared = Arc::new(Shared {
            hub: Arc::new(Hub::new(epoch, settings.topics.clone(), stentor_hub::Limits::default())),
            compressor,
            file_cache,
            addresses: AddressCounts::new(),
            workers: vec![Arc::clone(&stats)],
            workers_public: 1,
            started_unix_s: 0,
        });
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let settings = Arc::new(settings);
        let own = Arc::clone(&mailbox);
        let worker = Worker::new(Arc::clone(&shared), settings, stats, own, seed);
        let sim = Net::new(seed, faults, layers);
        let world = World { sim, worker, shared, jobs, loader, mailbox };
        world.publish("/small", SMALL.to_vec(), ContentType::TEXT);
        world.publish("/large", large(), ContentType::OCTETS);
        world.publish("/text", text(), ContentType::TEXT);
        world
    }

    /// Another worker's share of it, to be asked without a network.
    pub(crate) fn context(&self, settings: Settings) -> Context {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let stats = Arc::new(Stats::default());
        let shared = Arc::clone(&self.shared);
        let mut cx = Context::new(shared, Arc::new(settings), stats, mailbox, 1);
        cx.tick(0, NOW_S);
        cx
    }

    pub(crate) fn publish(&self, topic: &str, data: Vec<u8>, content_type: ContentType) {
        let draft = Draft::new(data).with_content_type(content_type);
        self.shared.publish(topic, draft, Precondition::None, NOW_S).unwrap();
    }

    /// One turn of the loop. Returns false if only time can change anything.
    pub(crate) fn turn(&mut self) -> bool {
        let busy = self.sim.turn(&mut self.worker);
        self.worker.read_mailbox(&mut self.sim);
        let passes = self.worker.next_deadline_ms() == Some(0);
        self.worker.after_turn(&mut self.sim);
        busy || passes
    }

    /// Turns until nothing happens any more, which must be after so many turns at the latest.
    pub(crate) fn settle_within(&mut self, turns_max: usize) {
        let mut is_idle = false;
        for _ in 0..turns_max {
            // A deadline in an idle turn may leave the network something to do.
            let was_idle = std::mem::replace(&mut is_idle, !self.turn());
            if was_idle && is_idle {
                return;
            }
        }
        panic!("the server does not come to rest within {turns_max} turns");
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::sum(self.shared.workers.iter().map(AsRef::as_ref))
    }

    /// With all clients gone, nothing of them is left and nobody is counted.
    pub(crate) fn check_nothing_is_left(&self) {
        assert_eq!(self.sim.open_sockets(), 0, "connections are left");
        let totals = self.totals();
        let counted = totals.connections_public
            + totals.connections_control
            + totals.connections_reading
            + totals.connections_writing;
        assert_eq!(counted, 0, "connections are counted that are gone: {totals:?}");
        let readers = totals.readers_sse + totals.readers_websocket + totals.readers_long_poll;
        let counted = readers + totals.readers_behind + totals.readers_bytes;
        assert_eq!(counted, 0, "readers are counted that are gone: {totals:?}");
    }

    /// With all readers gone, publishing to `topic` reaches nobody.
    pub(crate) fn check_nobody_reads(&self, topic: &str) {
        let draft = Draft::new(*b"last").with_content_type(ContentType::TEXT);
        let published = self.shared.publish(topic, draft, Precondition::None, NOW_S);
        assert_eq!(published.unwrap().readers, 0, "{topic}");
        let mut events = std::collections::VecDeque::new();
        self.mailbox.swap_events(&mut events);
        assert!(events.is_empty(), "the worker is told of what nobody reads");
    }
}

#[cfg(test)]
impl World {
    /// Turns until nothing happens any more.
    fn settle(&mut self) {
        self.settle_within(1_000_000);
    }

    fn settle_some(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Connects, sends and returns everything the server answers.
    fn ask(&mut self, role: u8, bytes: &[u8]) -> (net::Client, String) {
        let client = self.sim.connect(role);
        self.sim.write(client, bytes);
        self.settle();
        (client, String::from_utf8_lossy(&self.sim.read(client)).into_owned())
    }
}

/// A network without faults.
pub(crate) fn kind() -> Faults {
    Faults {
        split_percent: 0,
        refuse_percent: 0,
        reset_per_10_000: 0,
        delay_ms_max: 0,
        window_bytes: 1 << 20,
    }
}

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|n| (n * 7 % 251) as u8).collect()
}

fn text() -> Vec<u8> {
    b"all work and no play ".iter().copied().cycle().take(TEXT_BYTES).collect()
}

/// Settings under which no deadline passes by itself.
pub(crate) fn patient() -> Settings {
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

/// When everything is published, in seconds since 1970.
const NOW_S: u64 = 1_782_000_000;

const PATIENCE_MS: u64 = 1 << 40;
