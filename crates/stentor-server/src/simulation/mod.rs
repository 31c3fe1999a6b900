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
//! The seed also chooses the layer between the network and the server: none, TLS, or one that
//! carries several streams in a socket (`net.rs`). `STENTOR_CARRIER` names one for all.
//!
//! Meanwhile debug builds check the records of the worker after every event, its sums after every
//! turn, and the hub now and then.
//!
//! What is delivered to the readers of streams is checked in the same way, in `streams.rs`.
//!
//! A failure prints the command that runs its seed alone (`stentor_test::seeds`).

// All of it is for tests and for fuzzing.
#![allow(clippy::unwrap_used)]

#[cfg(test)]
pub(crate) mod access;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod carriers;
#[cfg(test)]
mod client;
#[cfg(test)]
mod clock;
#[cfg_attr(not(test), allow(dead_code, reason = "the clients of a fuzzer do less"))]
mod codec;
#[cfg(test)]
mod commits;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod guestbook;
#[cfg_attr(not(test), allow(dead_code, reason = "a fuzzer hands over by itself"))]
pub(crate) mod handover;
#[cfg(test)]
mod holding;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod kept;
mod late;
#[cfg(test)]
mod limits;
#[cfg_attr(not(test), allow(dead_code, reason = "the clients of a fuzzer do less"))]
pub(crate) mod net;
#[cfg(test)]
mod places;
#[cfg(test)]
mod proxies;
#[cfg(test)]
mod races;
#[cfg(test)]
mod replication;
#[cfg(test)]
mod secured;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod store;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tokens;

use crate::access_log::AccessLog;
use crate::context::Context;
use crate::keys::{PreparedKeys, TokenState};
use crate::limits::TOKENS_BYTES_MAX;
#[cfg(test)]
use crate::listeners::{CONTROL, PUBLIC};
use crate::mailbox::Mailbox;
use crate::panics::planned;
use crate::shared::{ProcessState, Shared};
use crate::stats::{RouteTotals, Routes, Stats, Totals};
use crate::worker::Worker;
pub(crate) use late::Late;
use net::{Layers, Net};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use stentor_config::{Lookup, Settings};
use stentor_files::FileLoader;
use stentor_hub::{Applied, ContentType, Draft, Epoch, Hub, Op, Place, Precondition, Published};
#[cfg(test)]
use stentor_io::KernelFaults;
use stentor_io::{Backend, Faults, Rng, mark};
use stentor_order::{Applier, Committer, Compressor, Jobs, Report};
use stentor_test::trace;
use stentor_wire::lookup::Template;
use stentor_wire::target::TopicName;

/// The values that every client may read and none may change.
pub(crate) const SMALL: &[u8] = b"183.22 +1.2%";
/// Enough to be sent from the message itself.
const LARGE_BYTES: usize = 10_000;
const TEXT_BYTES: usize = 3_000;
/// The directory of the files that are served. It is not that of the source, which changes: a seed
/// is to mean the same at the next commit.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/files");

/// A worker on a simulated network, and perhaps others beside it that share the hub.
pub(crate) struct World {
    pub(crate) sim: Net,
    pub(crate) worker: Worker,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Jobs,
    /// By mount.
    pub(crate) loaders: Vec<FileLoader>,
    /// The first mounts, so many, do not answer their loaders.
    pub(crate) hung_mounts: usize,
    mailbox: Arc<Mailbox>,
    settings: Arc<Settings>,
    others: Vec<Other>,
    /// Whose turn it is.
    chance: Rng,
    /// What commits the changes of publishers, if not the worker itself.
    late: Option<Arc<Late>>,
    /// The percentage of turns in which a worker may panic, and how often one did.
    panics_percent: Option<u8>,
    pub(crate) panics: usize,
    /// The percentage of turns in which a worker does not hear yet that it was woken.
    late_percent: u8,
}

/// What a world is made of.
pub(crate) struct Parts {
    /// Each has a network of its own.
    pub(crate) workers: usize,
    /// What commits the changes of publishers, if not the worker itself.
    pub(crate) late: Option<Arc<Late>>,
    /// What there is between the networks and the workers.
    pub(crate) layers: Layers,
    /// The hub and its store, if there is one.
    pub(crate) kept: Option<(Arc<Hub>, Arc<dyn Report>)>,
    /// Without a store, the number behind which the first message comes.
    pub(crate) last_seq: u64,
}

impl Default for Parts {
    fn default() -> Parts {
        let layers = Layers::asked().unwrap_or(Layers::Plain);
        Parts { workers: 1, late: None, layers, kept: None, last_seq: 0 }
    }
}

#[cfg(test)]
impl Parts {
    pub(crate) fn over(layers: Layers) -> Parts {
        Parts { layers, ..Parts::default() }
    }

    /// Those of a seed. Of a hundred late commits as many fail as one of `fails_percent` says.
    fn of_seed(seed: u64, rng: &mut Rng, fails_percent: &[u8]) -> Parts {
        let fails_percent = fails_percent[rng.below(fails_percent.len())];
        Parts {
            workers: 1 + rng.below(3),
            late: rng.percent(50).then(|| Late::new(fails_percent)),
            layers: Layers::of_seed(seed),
            ..Parts::default()
        }
    }
}

/// Another worker, with a network of its own.
struct Other {
    sim: Net,
    worker: Worker,
    mailbox: Arc<Mailbox>,
}

impl Other {
    fn new(
        shared: &Arc<Shared>,
        index: usize,
        layers: Layers,
        seed: u64,
        faults: Faults,
        settings: Arc<Settings>,
    ) -> Other {
        let seed = seed.wrapping_add(index as u64);
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let (stats, own) = (Arc::clone(&shared.workers[index]), Arc::clone(&mailbox));
        let worker = Worker::new(Arc::clone(shared), settings, stats, own, seed);
        Other { sim: Net::new(seed, faults, layers), worker, mailbox }
    }
}

impl World {
    /// A world on a plain network, unless the environment names another.
    pub(crate) fn new(seed: u64, faults: Faults, settings: Settings) -> World {
        World::of(Parts::default(), seed, faults, settings)
    }

    pub(crate) fn of(parts: Parts, seed: u64, faults: Faults, settings: Settings) -> World {
        #[cfg(test)]
        stentor_io::make_limits_small();
        let Parts { workers, late, layers, kept, last_seq } = parts;
        let (compressor, jobs) = Compressor::new();
        let epoch = Epoch::parse("0badcafe").unwrap();
        let (hub, service) = match kept {
            Some((hub, service)) => (hub, Some(service)),
            None => {
                let limits = stentor_hub::Limits::default();
                let hub = Hub::new(epoch, settings.topics.clone(), limits);
                hub.continue_after(last_seq, Vec::new());
                (Arc::new(hub), None)
            }
        };
        let applier = Applier::new(hub, compressor);
        let committer = match &late {
            Some(late) => Committer::with_sequencer(applier, Arc::clone(late) as _),
            None => Committer::new(applier, service),
        };
        let log = &settings.log;
        let access_log = log.access.as_ref().map(|_| Arc::new(AccessLog::new(log.access_format)));
        let client = crate::endpoint::client::module(NOW_S);
        let keys = PreparedKeys::read(&settings.tokens, Vec::new()).unwrap().keys();
        let tokens = TokenState::new(keys, TOKENS_BYTES_MAX).unwrap();
        let process = ProcessState::default();
        let shared = Shared::new(committer, client, tokens, workers, process).unwrap();
        let loaders = shared.file_cache.reload(&settings.mounts, &settings.files);
        let shared = Arc::new(Shared { access_log, ..shared });
        let settings = Arc::new(settings);
        let worker =
            |index| Other::new(&shared, index, layers, seed, faults, Arc::clone(&settings));
        let Other { sim, worker: first, mailbox } = worker(0);
        let (others, chance) = ((1..workers).map(worker).collect(), Rng::new(!seed));
        #[rustfmt::skip]
        let world = World {
            sim, worker: first, shared, jobs, loaders, mailbox, settings, others, chance, late,
            panics_percent: None, panics: 0, late_percent: 0, hung_mounts: 0,
        };
        if world.shared.committer.service().is_some() {
            return world;
        }
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
        cx.tick(0, 0, NOW_S);
        cx
    }

    pub(crate) fn publish(&self, topic: &str, data: Vec<u8>, content_type: ContentType) {
        let draft = Draft::new(data).with_content_type(content_type);
        self.publish_draft(topic, draft);
    }

    /// Publishes from outside, in the next place.
    pub(crate) fn publish_draft(&self, topic: &str, draft: Draft) -> Published {
        let op = Op::Put(TopicName::parse(topic).unwrap(), draft);
        let entry = self.shared.hub.admit(op, Precondition::None, NOW_S).unwrap();
        trace::act(self.sim.now_ms(), format_args!("{topic} is published"));
        match self.shared.committer.applier().apply(entry, Place::Next).unwrap() {
            Applied::Put(published) => published,
            other => panic!("{other:?}"),
        }
    }

    /// Lets one of the workers, 0 being the first, be that of the world while `act` runs.
    pub(crate) fn at<R>(&mut self, index: usize, act: impl FnOnce(&mut World) -> R) -> R {
        self.change_place(index);
        let result = act(self);
        self.change_place(index);
        result
    }

    /// Lets each of the workers be that of the world in turn while `act` runs.
    #[cfg(test)]
    pub(crate) fn at_all(&mut self, act: impl Fn(&mut World)) {
        (0..self.workers()).for_each(|index| self.at(index, &act));
    }

    fn change_place(&mut self, index: usize) {
        let Some(other) = index.checked_sub(1) else { return };
        let Other { sim, worker, mailbox } = &mut self.others[other];
        std::mem::swap(&mut self.sim, sim);
        std::mem::swap(&mut self.worker, worker);
        std::mem::swap(&mut self.mailbox, mailbox);
    }

    pub(crate) fn workers(&self) -> usize {
        1 + self.others.len()
    }

    /// One turn of the loop of one worker. Returns false if only time can change anything.
    pub(crate) fn turn(&mut self) -> bool {
        #[cfg(debug_assertions)]
        if self.chance.percent(5) {
            self.shared.hub.check();
        }
        let workers = self.workers();
        let first = self.chance.below(workers);
        let commits = self.commit_some();
        let loaders = self.loaders.iter_mut().skip(self.hung_mounts);
        let loads = loaders.fold(false, |has_worked, loader| loader.step() | has_worked);
        commits | loads | (0..workers).any(|n| self.at((first + n) % workers, World::turn_of_one))
    }

    /// One turn of the loop of each worker.
    #[cfg(test)]
    pub(crate) fn turn_of_each(&mut self) {
        self.commit_some();
        let workers = self.workers();
        let first = self.chance.below(workers);
        for n in 0..workers {
            self.at((first + n) % workers, World::turn_of_one);
        }
    }

    /// Perhaps commits some of the changes that wait for it. Returns whether any did.
    fn commit_some(&mut self) -> bool {
        let World { late, shared, chance, .. } = self;
        late.as_ref().is_some_and(|late| late.step(shared.committer.applier(), chance))
    }

    /// From now on workers panic now and then, or do not any more. They never do with
    /// `STENTOR_PANICS=0`, by which a seed shows what a panic may hide.
    #[cfg(test)]
    pub(crate) fn panic_at_random(&mut self, panics: bool) {
        let panics = panics && may_panic_at_all();
        self.panics_percent = panics.then_some(PANICS_PERCENT);
    }

    /// From now on the kernel is as unkind as this to all workers.
    #[cfg(test)]
    pub(crate) fn set_kernel_faults(&mut self, faults: KernelFaults) {
        self.late_percent = faults.late_percent;
        self.at_all(|world| world.sim.set_kernel_faults(faults));
    }

    fn turn_of_one(&mut self) -> bool {
        let Some(panics_percent) = self.panics_percent.filter(|_| self.sim.may_recover()) else {
            return self.turn_without_panics();
        };
        if self.chance.percent(panics_percent) {
            planned::plan(self.chance.below(PLACES_MAX));
        }
        let turned = catch_unwind(AssertUnwindSafe(|| self.turn_without_panics()));
        planned::cancel();
        turned.unwrap_or_else(|payload| {
            if !planned::is_planned(&*payload) {
                resume_unwind(payload);
            }
            mark("worker-panics");
            self.panics += 1;
            self.sim.recover(&mut self.worker);
            self.mailbox.waker().take();
            self.worker.read_mailbox(&mut self.sim);
            true
        })
    }

    fn turn_without_panics(&mut self) -> bool {
        let busy = self.sim.turn(&mut self.worker);
        let is_woken = self.mailbox.waker().take();
        let is_late = is_woken && self.late_percent > 0 && self.chance.percent(self.late_percent);
        match is_woken {
            true if is_late => self.mailbox.waker().wake(),
            true => self.worker.read_mailbox(&mut self.sim),
            false => {}
        }
        let passes = self.worker.next_deadline_ms() == Some(0);
        self.worker.after_turn(&mut self.sim);
        busy || passes || is_woken
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

    /// The counters of one worker.
    #[cfg(test)]
    pub(crate) fn totals_of(&self, index: usize) -> Totals {
        Totals::sum([self.shared.workers[index].as_ref()])
    }

    /// What they have counted by look-up route.
    pub(crate) fn routes(&self) -> Vec<RouteTotals> {
        Routes::sum(self.shared.workers.iter().map(AsRef::as_ref))
    }

    /// Connections that the workers hold.
    pub(crate) fn open_sockets(&self) -> usize {
        let sims = self.others.iter().map(|other| &other.sim).chain([&self.sim]);
        sims.map(Net::open_sockets).sum()
    }

    /// With all clients gone, nothing of them is left and nobody is counted.
    pub(crate) fn check_nothing_is_left(&self) {
        assert_eq!(self.open_sockets(), 0, "connections are left");
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
        assert_eq!(self.publish_draft(topic, draft).readers, 0, "{topic}");
        let mut mail = std::collections::VecDeque::new();
        for mailbox in self.others.iter().map(|other| &other.mailbox).chain([&self.mailbox]) {
            mailbox.swap(&mut mail);
            assert!(mail.is_empty(), "a worker is told of what nobody reads");
        }
    }
}

#[cfg(test)]
impl World {
    /// Turns until nothing happens any more.
    pub(crate) fn settle(&mut self) {
        self.settle_within(1_000_000);
    }

    pub(crate) fn settle_some(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Connects, sends and returns everything the server answers.
    pub(crate) fn ask(&mut self, role: u8, bytes: &[u8]) -> (net::Client, String) {
        let client = self.sim.connect(role);
        self.sim.write(client, bytes);
        self.settle();
        (client, String::from_utf8_lossy(&self.sim.read(client)).into_owned())
    }
}

/// Whether workers panic in the seeds in which they do.
#[cfg(test)]
fn may_panic_at_all() -> bool {
    std::env::var_os("STENTOR_PANICS").is_none_or(|panics| panics != "0")
}

/// The percentage of turns with a planned panic, and the number of places that it may come at.
#[cfg(test)]
const PANICS_PERCENT: u8 = 10;
const PLACES_MAX: usize = 20;

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
        leaves_out_cache_control: false,
        content_type: "text/javascript".to_owned(),
    });
    settings
}

/// When everything is published, in seconds since 1970.
const NOW_S: u64 = 1_782_000_000;

const PATIENCE_MS: u64 = 1 << 40;
