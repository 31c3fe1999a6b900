//! What a worker's connections share: the hub, the settings, and buffers that are used again and
//! again so that answering a request allocates nothing.

use crate::addresses::{AddressCounts, Counted};
use crate::budget::Budget;
use crate::compressor::Compressor;
use crate::config::Settings;
use crate::connection::Activity;
use crate::files::{FileCache, OpenFiles};
use crate::limits::{EVENTS_USUAL, GATHER_BYTES};
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::output::Output;
use crate::response::{Preamble, Reply, Shape};
use crate::route::Next;
use crate::stats::Stats;
use crate::stream::Transport;
use crate::stream::batch::Batches;
use crate::stream::feeds::Feeds;
use crate::stream::walks::Walks;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use stentor_hub::{Draft, Event, Hub, Precondition, Published, Refusal, Subscriber};
use stentor_io::{Counter, Rng, Role};
use stentor_wire::deflate::{Deflater, Inflater};
use stentor_wire::status::Status;
use stentor_wire::target::TopicName;

/// Connections of the public listeners: they read.
pub(crate) const PUBLIC: Role = 0;
/// Connections of the control listeners: they publish, and read too.
pub(crate) const CONTROL: Role = 1;

/// What all workers share. None of it is written on the path of a read.
pub(crate) struct Shared {
    pub(crate) hub: Arc<Hub>,
    pub(crate) compressor: Compressor,
    pub(crate) file_cache: Arc<FileCache>,
    /// Connections of the public listeners by their addresses.
    pub(crate) addresses: AddressCounts,
    /// The counters of every worker, to be summed when asked for.
    pub(crate) workers: Vec<Arc<Stats>>,
    /// How many of them have the public listeners.
    pub(crate) workers_public: usize,
    /// Wall clock at the start, in seconds since 1970.
    pub(crate) started_unix_s: u64,
}

impl Shared {
    /// Publishes, and has the message compressed as the one before it was asked for.
    pub(crate) fn publish(
        &self,
        topic: TopicName<'_>,
        draft: Draft,
        when: Precondition,
        unix_s: u64,
    ) -> Result<Published, Refusal> {
        let published = self.hub.publish(topic, draft, when, unix_s)?;
        if let Some(replaced) = &published.replaced {
            self.compressor.expect(&published.message, replaced.asked());
        }
        Ok(published)
    }
}

/// One worker's share.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) out: Output,
    pub(crate) scratch: Scratch,
    files: OpenFiles,
    preambles: [Preamble; 2],
    pub(crate) now_ms: u64,
    pub(crate) unix_s: u64,
    /// What the connections of this worker read.
    pub(crate) feeds: Feeds,
    pub(crate) batches: Batches,
    pub(crate) walks: Walks,
    /// What was found for the reader that is being served.
    pub(crate) found: Vec<Event>,
    pub(crate) memory: Memory,
    pub(crate) budget: Budget,
    /// What messages are compressed with, and decompressed: one of each for all connections.
    pub(crate) deflater: Deflater,
    pub(crate) inflater: Inflater,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Event on their way from the mailbox to the feeds.
    events: VecDeque<(Event, u64)>,
    /// One of them is being taken in: with a panic it is lost.
    is_logging: bool,
    /// Chance: who comes back when.
    pub(crate) rng: Rng,
    /// What the current connection has cost in this turn.
    pub(crate) cost: usize,
    /// Counts the settings this worker has gone by.
    generation: u64,
    /// A graceful stop is under way: every answer is its connection's last.
    pub(crate) draining: bool,
    /// How many connections all public workers together hold at most.
    pub(crate) connections_max: usize,
}

/// Buffers for answers that are put together.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// A body under construction.
    pub(crate) body: Vec<u8>,
    /// The name of a topic under construction.
    pub(crate) name: Vec<u8>,
}

/// One request's view of the context: the answer it writes and what it writes it from.
pub(crate) struct Exchange<'a> {
    pub(crate) reply: Reply<'a>,
    pub(crate) shared: &'a Shared,
    pub(crate) settings: &'a Settings,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) files: &'a mut OpenFiles,
    pub(crate) inflater: &'a mut Inflater,
    pub(crate) rng: &'a mut Rng,
    pub(crate) feeds: &'a Feeds,
    pub(crate) now_ms: u64,
    pub(crate) unix_s: u64,
    pub(crate) draining: bool,
    /// Changes whenever the settings may have.
    pub(crate) generation: u64,
}

impl Exchange<'_> {
    /// Refuses a request for a stream: the status, and the reason.
    pub(crate) fn refuse_stream(&mut self, (status, reason): (Status, String)) -> Next {
        self.reply.refuse(status, &reason);
        Next::Answered
    }
}

impl Context {
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        stats: Arc<Stats>,
        mailbox: Arc<Mailbox>,
        seed: u64,
    ) -> Context {
        let mut budget = Budget::default();
        budget.begin_turn(false);
        let subscriber = shared.hub.add_subscriber(Arc::clone(&mailbox) as Arc<dyn Subscriber>);
        Context {
            feeds: Feeds::new(subscriber),
            batches: Batches::default(),
            walks: Walks::default(),
            found: Vec::new(),
            memory: Memory::default(),
            budget,
            deflater: Deflater::default(),
            inflater: Inflater::default(),
            mailbox,
            events: VecDeque::new(),
            is_logging: false,
            rng: Rng::new(seed),
            shared,
            settings,
            stats,
            out: Output::new(),
            scratch: Scratch { body: Vec::with_capacity(GATHER_BYTES), name: Vec::new() },
            files: OpenFiles::default(),
            preambles: [Preamble::new(PUBLIC), Preamble::new(CONTROL)],
            now_ms: 0,
            unix_s: 0,
            cost: 0,
            generation: 0,
            draining: false,
            connections_max: usize::MAX,
        }
    }

    /// Counts a connection from `peer`; `None` if that address has as many as it may.
    pub(crate) fn count_in(&self, role: Role, address: Option<IpAddr>) -> Option<Counted> {
        let Some(address) = address.filter(|_| role == PUBLIC) else {
            return Some(Counted::default());
        };
        let rule = self.settings.limits.connections_per_address;
        match rule.bound(address, self.connections_max) {
            Some(most) => self.shared.addresses.enter(address, most),
            None => Some(Counted::default()),
        }
    }

    /// The clocks of this turn.
    pub(crate) fn tick(&mut self, now_ms: u64, unix_s: u64) {
        self.now_ms = now_ms;
        if self.unix_s != unix_s {
            self.unix_s = unix_s;
            self.renew();
        }
    }

    /// An event of a connection is about to be served.
    pub(crate) fn begin_visit(&mut self) {
        self.budget.note(self.cost);
        self.cost = 0;
    }

    /// Takes what was published out of the mailbox and into the feeds.
    pub(crate) fn take_events(&mut self) {
        // What a panic left comes first.
        self.log_events();
        self.mailbox.swap_events(&mut self.events);
        self.log_events();
        self.events.shrink_to(EVENTS_USUAL);
    }

    /// One by one: what comes behind one that makes the worker panic is heard afterwards.
    fn log_events(&mut self) {
        while let Some((event, published_us)) = self.events.pop_front() {
            self.is_logging = true;
            #[cfg(test)]
            assert!(event.topic() != "/-panic", "a panic for the tests");
            self.feeds.log(event, published_us);
            self.is_logging = false;
        }
    }

    /// After a panic, and `outside` says that it was none of a connection: if events may have been
    /// lost by it, every reader is to look at history, so that nothing is lost in silence.
    pub(crate) fn recover(&mut self, outside: bool, now_us: u64) {
        self.out.clear();
        if outside | std::mem::take(&mut self.is_logging) {
            self.feeds.invalidate(self.shared.hub.notified_seq(), now_us);
        }
    }

    /// Goes by other settings from now on.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.generation += 1;
        self.open_roots();
        self.renew();
    }

    /// Opens the directories whose files are served: on the worker's own thread.
    pub(crate) fn open_roots(&mut self) {
        self.files.open_roots(&self.settings.mounts, self.unix_s);
    }

    fn renew(&mut self) {
        for preamble in &mut self.preambles {
            preamble.renew(self.unix_s, &self.settings);
        }
    }

    /// Takes note of what a stream was sent in one go.
    pub(crate) fn count_stream(&mut self, bytes: usize, messages: usize) {
        self.cost += bytes + SEND_COST;
        self.stats.bytes_streams.add(bytes as u64);
        self.stats.deliveries.add(messages as u64);
    }

    pub(crate) fn exchange<'a>(&'a mut self, shape: Shape<'a>) -> Exchange<'a> {
        let reply = Reply {
            out: &mut self.out,
            preamble: &self.preambles[usize::from(shape.role)],
            stats: &self.stats,
            cost: &mut self.cost,
            shape,
        };
        Exchange {
            reply,
            shared: &self.shared,
            settings: &self.settings,
            scratch: &mut self.scratch,
            files: &mut self.files,
            inflater: &mut self.inflater,
            rng: &mut self.rng,
            feeds: &self.feeds,
            now_ms: self.now_ms,
            unix_s: self.unix_s,
            draining: self.draining,
            generation: self.generation,
        }
    }

    /// The counter of open connections of a role.
    pub(crate) fn connections(&self, role: Role) -> &Counter {
        if role == CONTROL {
            &self.stats.connections_control
        } else {
            &self.stats.connections_public
        }
    }

    /// The counter of those who read in some way.
    pub(crate) fn readers(&self, transport: Transport) -> &Counter {
        match transport {
            Transport::Sse => &self.stats.readers_sse,
            Transport::WebSocket | Transport::Echo => &self.stats.readers_websocket,
            Transport::LongPoll => &self.stats.readers_long_poll,
        }
    }

    /// Keeps count of what connections do.
    pub(crate) fn note(&self, before: Activity, after: Activity) {
        if before == after {
            return;
        }
        let counter = |activity| match activity {
            Activity::Waiting => None,
            Activity::Reading => Some(&self.stats.connections_reading),
            Activity::Writing => Some(&self.stats.connections_writing),
            Activity::Behind => Some(&self.stats.readers_behind),
        };
        if let Some(counter) = counter(before) {
            counter.sub(1);
        }
        if let Some(counter) = counter(after) {
            counter.add(1);
        }
    }
}

/// What sending costs a turn, beside the bytes.
const SEND_COST: usize = 256;
