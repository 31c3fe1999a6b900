//! A worker: one thread's share of the connections, and what happens to them in a turn.
//!
//! The worker knows no system call. It is a [`Handler`] of whatever backend it runs on: the
//! kernel's in production, the simulator's in tests.

#[cfg(debug_assertions)]
mod check;
mod followers;
pub(crate) mod handover;
mod places;
mod proxies;
mod relief;
mod shares;

use crate::budget::Kind;
use crate::connection::{Connection, Origin};
use crate::context::Context;
use crate::limits::{
    DRAIN_ACCEPT_MS, DRAIN_IDLE_MS, DRAIN_LOOK_MS, EXPELLED_PER_TURN, JUDGED_PER_TURN,
    LINE_COST_PER_TURN, LINE_VISITS_PER_TURN,
};
use crate::mailbox::{Mailbox, Order};
use crate::memory::Usage;
use crate::panics::may_panic;
use crate::put_off;
use crate::shared::Shared;
use crate::state::{Load, StreamState};
use crate::stats::{Activity, Stats};
use crate::stream::feeds::Member;
use crate::timers::Wheel;
use std::net::IpAddr;
use std::sync::Arc;
use stentor_config::Settings;
use stentor_io::LogThrottle;
use stentor_io::Slab;
use stentor_io::{Backend, Flow, Handler, PROXIED, Pause, Peer, Refused, Role, listener_of};

/// The connections of one thread.
pub(crate) struct Worker {
    cx: Context,
    connections: Slab<Connection>,
    open: usize,
    wheel: Wheel,
    drain: Drain,
    /// The connection that is being seen to, and what it did before: all that a panic can spoil.
    current: Option<(Peer, Activity, Usage)>,
    /// The line that says that files or memory have run out.
    pauses: LogThrottle,
    /// Nobody was found who holds too much: until then nobody is looked for, as long as all
    /// together own no more than so many bytes.
    spared_until_ms: u64,
    spared_bytes: usize,
    /// Memory is short: those that ask nothing are given less time, from this number on.
    shortened: Option<usize>,
    /// The line that says that an address has as many connections as it may.
    refusals: LogThrottle,
    /// The line about a connection at an address for proxies that came from none.
    strangers: LogThrottle,
    /// How many connections it may hold.
    places: usize,
    /// All places are taken: when to look whether newcomers wait, and to evict for them.
    evicts_at_ms: Option<u64>,
    /// Connections from this number on came from another process and may not be counted by their
    /// addresses yet.
    uncounted: Option<usize>,
}

/// How far a graceful stop has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drain {
    No,
    /// No connection begins; those that had begun still come in until then.
    Emptying {
        /// If nothing is left to be done, whether all has come in is looked at then.
        look_ms: u64,
        listeners_until_ms: u64,
        until_ms: u64,
    },
    /// The backend accepts what is left and closes the listeners in its next turn.
    Closing {
        until_ms: u64,
    },
    /// The listeners are closed; connections have until then to end.
    Ending {
        until_ms: u64,
    },
}

impl Worker {
    /// `seed` makes the chance of this worker different from that of others.
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        stats: Arc<Stats>,
        mailbox: Arc<Mailbox>,
        seed: u64,
    ) -> Worker {
        Worker {
            cx: Context::new(shared, settings, stats, mailbox, seed),
            connections: Slab::default(),
            open: 0,
            wheel: Wheel::new(),
            drain: Drain::No,
            current: None,
            pauses: LogThrottle::default(),
            spared_until_ms: 0,
            spared_bytes: 0,
            shortened: None,
            refusals: LogThrottle::default(),
            strangers: LogThrottle::default(),
            places: usize::MAX,
            evicts_at_ms: None,
            uncounted: None,
        }
    }

    /// Whether nothing is to be begun that was not asked for yet: another process may go on from
    /// here.
    pub(crate) fn stand_still(&mut self, stands_still: bool) {
        self.cx.stands_still = stands_still;
    }

    /// Opens the directories whose files are served, on the worker's own thread.
    pub(crate) fn open_roots(&mut self) {
        self.cx.open_roots();
    }

    /// This worker holds so many connections at most, and so does each of so many.
    pub(crate) fn limit_connections(&mut self, places: usize, workers: usize) {
        self.places = places;
        self.cx.load.connections_max = places.saturating_mul(workers);
    }

    /// When [`Worker::after_turn`] must be called, whatever else happens.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        if self.cx.streams.feeds.is_sweeping()
            || self.cx.streams.feeds.is_sparse()
            || !self.cx.load.budget.is_idle()
            || self.is_judging()
            || self.shortened.is_some()
            || self.uncounted.is_some()
            || self.cx.streams.replication.is_behind()
        {
            return Some(0);
        }
        let drain = match self.drain {
            Drain::No => None,
            Drain::Emptying { look_ms, listeners_until_ms, .. } => {
                Some(if self.open == 0 { look_ms } else { listeners_until_ms })
            }
            Drain::Closing { .. } => Some(0),
            Drain::Ending { until_ms } => Some(until_ms),
        };
        let walks = self.cx.streams.walks.deadline_ms();
        let release = self.cx.load.memory.release_at_ms();
        let deadlines = [drain, self.wheel.next_look_ms(), walks, release, self.evicts_at_ms];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due after the events of a turn: what waits in lines, a slice of a fan-out,
    /// deadlines, the graceful stop.
    pub(crate) fn after_turn<B: Backend>(&mut self, io: &mut B) {
        let now_ms = io.now_ms();
        self.cx.tick(now_ms, io.turn_us(), io.unix_s());
        self.cx.streams.walks.tick(now_ms);
        for kind in Kind::ALL {
            self.serve_line(io, kind);
        }
        let connections = &mut self.connections;
        self.cx.streams.feeds.tidy(|feed, Member { peer, stamp }| {
            connections.at(peer.index()).is_some_and(|reader| reader.is_reader(feed, stamp))
        });
        self.judge(io);
        self.shorten();
        self.count_adopted(io);
        self.evict_for_newcomers(io);
        self.bring_to_followers(io);
        self.fan_out(io);
        self.expire(io);
        match self.drain {
            Drain::Emptying { look_ms, listeners_until_ms, until_ms } => {
                let looks = self.open == 0 && look_ms <= now_ms;
                if listeners_until_ms <= now_ms || looks && !io.has_begun_connections() {
                    io.close_listeners();
                    self.drain = Drain::Closing { until_ms };
                } else if looks {
                    let look_ms = now_ms + DRAIN_LOOK_MS;
                    self.drain = Drain::Emptying { look_ms, listeners_until_ms, until_ms };
                }
            }
            Drain::Closing { until_ms } => self.drain = Drain::Ending { until_ms },
            _ => {}
        }
        self.relieve(io);
        self.measure(io);
        self.cx.responses.hand_over_lines(&self.cx.stats.access_log_dropped);
        self.cx.end_promises();
        self.cx.load.budget.begin_turn(self.cx.streams.feeds.is_sweeping());
        #[cfg(debug_assertions)]
        self.check();
    }

    /// The connection that is being served.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn current(&self) -> Option<Peer> {
        self.current.map(|(peer, ..)| peer)
    }

    /// How many readers wait in line for what they have missed.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn replays_waiting(&self) -> usize {
        self.cx.load.budget.waiting(Kind::Replays)
    }

    /// Whether a fan-out is under way.
    #[cfg(test)]
    pub(crate) fn is_sweeping(&self) -> bool {
        self.cx.streams.feeds.is_sweeping()
    }

    /// Whether readers are to be looked at, since rules or keys have changed.
    pub(crate) fn is_judging(&self) -> bool {
        self.cx.access.judged.is_some()
    }

    /// Rules or keys have changed: looks at some of the readers, whether they may still read.
    fn judge<B: Backend>(&mut self, io: &mut B) {
        let Some(from) = self.cx.access.judged else { return };
        let (mut looked, mut expelled, mut cost) = (0, 0, 0);
        let mut next = None;
        for index in self.connections.indices_from(from) {
            let is_enough = looked == JUDGED_PER_TURN || expelled == EXPELLED_PER_TURN;
            if is_enough || cost >= LINE_COST_PER_TURN {
                next = Some(index);
                break;
            }
            looked += 1;
            let peer = Peer::from_index(index as u32);
            let Some(connection) = self.connections.at(index) else { continue };
            self.cx.load.cost = 0;
            if connection.is_to_be_judged(&mut self.cx, peer) {
                expelled += 1;
                self.with(peer, |connection, cx| connection.expel(cx, io, peer));
            }
            cost += self.cx.load.cost;
        }
        self.cx.access.judge_from(next);
    }

    /// Whether readers have freed much that is now to be given back to the kernel.
    pub(crate) fn releases_memory(&mut self) -> bool {
        let bytes = self.cx.load.memory.usage.owned + self.cx.streams.feeds.filter_bytes();
        self.cx.load.memory.is_to_be_released(bytes, self.cx.clock.now_ms)
    }

    /// Serves those who wait in a line, as far as the turn has room for them.
    fn serve_line<B: Backend>(&mut self, io: &mut B, kind: Kind) {
        self.cx.load.budget.serve(Some(kind));
        let visits = self.cx.load.budget.waiting(kind).min(LINE_VISITS_PER_TURN);
        for _ in 0..visits {
            if !self.cx.load.budget.has_room(kind) {
                break;
            }
            let Some(peer) = self.cx.load.budget.next(kind) else { break };
            let Some(connection) = self.connections.at(peer.index()) else { continue };
            if !connection.leave_line(kind) {
                continue;
            }
            let mark = self.cx.load.budget.mark(kind);
            self.cx.load.cost = 0;
            self.with(peer, |connection, cx| connection.go_on(cx, io, peer));
            // Whatever it was spent on, it was in the turn of this line.
            self.cx.load.budget.settle(mark, self.cx.load.cost.max(LINE_VISIT_COST));
        }
        self.cx.load.budget.serve(None);
    }

    /// Shows what is held, and who waits.
    fn measure<B: Backend>(&mut self, io: &B) {
        let queue = io.accept_queue();
        self.cx.load.queue_age_ms = queue.age_ms;
        let StreamState { feeds, walks, replication, .. } = &mut self.cx.streams;
        let (stats, Load { memory, budget, .. }) = (&self.cx.stats, &self.cx.load);
        stats.accept_queue.set(u64::from(queue.waiting));
        stats.accept_queue_age_ms.set(queue.age_ms);
        stats.readers_bytes.set(memory.usage.owned as u64);
        stats.pinned_bytes.set(memory.usage.pinned as u64);
        stats.filters_bytes.set(feeds.filter_bytes() as u64);
        stats.filters_unnamed_bytes.set(feeds.unnamed_bytes() as u64);
        stats.walks_bytes.set(walks.held_bytes() as u64);
        stats.readers_by_token.set(self.cx.access.passes.count() as u64);
        let feeds = replication.counts();
        stats.feed_entries.add(feeds.entries);
        stats.followers.set(feeds.followers);
        stats.snapshots_under_way.set(feeds.snapshots);
        stats.followers_behind.set(feeds.behind);
        stats.feed_bytes.set(feeds.bytes);
        stats.waiting_requests.set(budget.waiting(Kind::Requests) as u64);
        stats.waiting_commands.set(budget.waiting(Kind::Commands) as u64);
        stats.waiting_replays.set(budget.waiting(Kind::Replays) as u64);
        stats.cost_requests.set(budget.cost(Kind::Requests));
        stats.cost_commands.set(budget.cost(Kind::Commands));
        stats.cost_replays.set(budget.cost(Kind::Replays));
    }

    /// Whether a graceful stop has come to its end.
    pub(crate) fn has_ended(&self) -> bool {
        match self.drain {
            Drain::Ending { until_ms } => self.open == 0 || until_ms <= self.cx.clock.now_ms,
            _ => false,
        }
    }

    /// Whether whoever is not at its end by now is left alone.
    pub(crate) fn is_out_of_time(&self) -> bool {
        matches!(self.drain, Drain::Ending { until_ms } if until_ms <= self.cx.clock.now_ms)
    }

    /// Empties the mailbox.
    pub(crate) fn read_mailbox<B: Backend>(&mut self, io: &mut B) {
        self.cx.take_mail();
        // What a panic has left.
        self.tell_committed(io);
        while let Some(order) = self.cx.inbox.orders.pop_front() {
            self.execute(io, order);
        }
        self.cx.end_promises();
    }

    /// Tells connections what came of their changes.
    fn tell_committed<B: Backend>(&mut self, io: &mut B) {
        while let Some((ticket, outcome)) = self.cx.inbox.committed.pop_front() {
            let peer = ticket.peer;
            self.cx.load.begin_visit();
            self.with(peer, |connection, cx| connection.committed(cx, io, peer, ticket, outcome));
        }
    }

    /// Carries out an order from another thread.
    pub(crate) fn execute<B: Backend>(&mut self, io: &mut B, order: Order) {
        match order {
            Order::Drain => self.drain(io),
            Order::Reload(settings) => self.cx.configure(settings),
            Order::Keys(keys) => self.cx.access.configure_keys(keys),
            Order::Memory(pressure) => self.press(io, pressure),
            Order::Committed(told) => {
                self.cx.inbox.committed.extend(told);
                self.tell_committed(io);
            }
        }
    }

    /// After a panic: closes the connection that was being seen to, and it alone. Nothing else is
    /// ever left half done, since the worker sees to one connection at a time. If it saw to none,
    /// or took events in, the log of what was published may lack something and is not used.
    pub(crate) fn recover<B: Backend>(&mut self, io: &mut B) {
        self.cx.recover(self.current.is_none(), io.now_us());
        self.cx.stats.worker_panics.add(1);
        let Some((peer, before, usage)) = self.current.take() else { return };
        let Some(connection) = self.connections.at(peer.index()) else { return };
        if !connection.is_free() {
            connection.close(&mut self.cx, io, peer);
        }
        self.cx.stats.note(before, Activity::Waiting);
        self.cx.load.memory.note(usage, Usage::default());
        self.open -= 1;
    }

    fn drain<B: Backend>(&mut self, io: &mut B) {
        if self.drain != Drain::No {
            return;
        }
        io.refuse_new(self.cx.settings.drain_new);
        self.cx.draining = true;
        let now_ms = io.now_ms();
        self.cx.tick(now_ms, io.turn_us(), io.unix_s());
        let drain_ms = self.cx.settings.drain_ms;
        let listeners_until_ms = now_ms + drain_ms.min(DRAIN_ACCEPT_MS);
        let (look_ms, until_ms) = (now_ms + DRAIN_LOOK_MS, now_ms + drain_ms);
        self.drain = Drain::Emptying { look_ms, listeners_until_ms, until_ms };
        for index in self.connections.indices() {
            // Visiting a connection also gives it the deadline it has from now on.
            let peer = Peer::from_index(index as u32);
            self.with(peer, |connection, cx| connection.drain(cx, io, peer));
        }
    }

    /// Takes note of a connection that is refused since its address has as many as it may.
    fn refuse_connection(&mut self, address: Option<IpAddr>) {
        self.cx.stats.connections_refused.add(1);
        if let Some(address) = address
            && self.refusals.is_due(self.cx.clock.now_ms)
        {
            tracing::warn!(
                "{address} has as many connections as one address may: more are refused; if that \
                 is a proxy or a network with many clients, raise limits.connections_per_address"
            );
        }
    }

    /// Lets a connection do something, then keeps its counters and its deadline.
    fn with<R>(
        &mut self,
        peer: Peer,
        act: impl FnOnce(&mut Connection, &mut Context) -> R,
    ) -> Option<R> {
        let connection = self.connections.at(peer.index())?;
        if connection.is_free() {
            return None;
        }
        let (before, usage) = (connection.activity(), connection.usage());
        self.current = Some((peer, before, usage));
        self.cx.armed = Some(connection.phase());
        may_panic();
        let result = act(connection, &mut self.cx);
        may_panic();
        self.current = None;
        self.cx.stats.note(before, connection.activity());
        self.cx.load.memory.note(usage, connection.usage());
        if connection.is_free() {
            self.open -= 1;
        } else if let Some(deadline_ms) = connection.deadline_ms(&mut self.cx, peer) {
            self.wheel.set(&mut self.connections, peer.index(), deadline_ms, self.cx.clock.now_ms);
        }
        #[cfg(debug_assertions)]
        self.check_connection(peer);
        Some(result)
    }
}

impl<B: Backend> Handler<B> for Worker {
    fn accepted(
        &mut self,
        io: &mut B,
        peer: Peer,
        role: Role,
        address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
        self.cx.load.begin_visit();
        self.cx.stats.accepted.add(1);
        let listener = listener_of(role);
        let is_trusted = address.is_some_and(|address| self.cx.settings.proxies.trusts(address));
        if role & PROXIED != 0 && !is_trusted {
            self.refuse_stranger(address);
            return Err(Refused(|_, _| Vec::new(), 0));
        }
        let Some(counted) = self.cx.count_in(listener, address.filter(|_| !is_trusted)) else {
            self.refuse_connection(address);
            return Err(Refused(put_off::farewell, self.cx.rng.next_u64()));
        };
        let origin = match address {
            None => Origin::Unix,
            Some(_) if is_trusted => Origin::Proxy,
            Some(_) => Origin::Client,
        };
        self.cx.stats.connections(listener).add(1);
        self.open += 1;
        self.cx.responses.begin_connection(peer, address);
        self.connections.grow(peer.index()).open(role, origin, counted);
        let first_ms = match self.cx.draining {
            true => DRAIN_IDLE_MS,
            false => self.cx.settings.limits.head_timeout_ms,
        };
        let now_ms = self.cx.clock.now_ms;
        self.wheel.set(&mut self.connections, peer.index(), now_ms + first_ms, now_ms);
        Ok(())
    }

    fn ready(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool {
        self.cx.load.begin_visit();
        let Some(connection) = self.connections.at(peer.index()) else { return false };
        if connection.awaits_proxy_header() && !self.read_proxy_header(io, peer) {
            return false;
        }
        let Some(connection) = self.connections.at(peer.index()) else { return false };
        if writable && connection.is_blocked() {
            self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
            self.with(peer, |connection, cx| connection.go_on(cx, io, peer));
        }
        self.connections.at(peer.index()).is_some_and(|connection| connection.reads())
    }

    fn received(&mut self, io: &mut B, peer: Peer, bytes: &mut [u8]) -> Flow {
        self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
        self.cx.stats.bytes_in.add(bytes.len() as u64);
        self.with(peer, |connection, cx| connection.receive(cx, io, peer, bytes))
            .unwrap_or(Flow::Closed)
    }

    fn ended(&mut self, io: &mut B, peer: Peer) {
        self.with(peer, |connection, cx| connection.close(cx, io, peer));
    }

    fn finished(&mut self, io: &mut B, peer: Peer) {
        self.with(peer, |connection, cx| connection.peer_finished(cx, io, peer));
    }

    /// How long it may take in all is what a head may take, be the server about to stop or not;
    /// then a stop leaves the client as much time as any other to ask for something.
    fn negotiates(&mut self, io: &mut B, peer: Peer, is_under_way: bool) {
        let Some(connection) = self.connections.at(peer.index()) else { return };
        if !connection.negotiates(is_under_way) || !self.cx.draining {
            return;
        }
        self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
        if is_under_way {
            let now_ms = self.cx.clock.now_ms;
            let until_ms = now_ms + self.cx.settings.limits.head_timeout_ms;
            self.wheel.set(&mut self.connections, peer.index(), until_ms, now_ms);
        } else {
            self.with(peer, |_, _| ());
        }
    }

    fn accept_paused(&mut self, why: Pause) {
        self.cx.stats.accept_pauses.add(1);
        if why == Pause::Ceiling {
            self.evicts_at_ms.get_or_insert(self.cx.clock.now_ms);
        }
        if self.pauses.is_due(self.cx.clock.now_ms) {
            let (open, why) = match why {
                Pause::Exhausted => (self.open, "out of files or memory"),
                Pause::Ceiling => (self.open, "full"),
            };
            tracing::warn!(
                "{why} with {open} connections on this worker: new ones wait until some close; \
                 raise limits.connections_max if it is set, or LimitNOFILE, or start more workers"
            );
        }
    }
}

/// What it costs to see that a connection in a line has still to wait.
const LINE_VISIT_COST: usize = 256;
