//! Closing the connections that hold the most, of the memory that readers hold here and of the
//! kernel's TCP memory; and what a worker does when other memory is short (`guard.rs`).

use super::Worker;
use crate::limits::{
    RELIEF_BYTES_MIN, RELIEF_PART, RELIEF_PAUSE_MS, SEARCHED_PER_ITERATION, SHORTENED_PER_TURN,
    TCP_RELIEF_BYTES_MIN,
};
use crate::listeners::PUBLIC_ROLES;
use crate::memory::{Holder, excess, whom_to_cut};
use crate::pressure::{Pressure, Pressures};
use crate::timers::Timed;
use stentor_io::{Backend, Peer};

/// A search for the connections that hold the most of the kernel's TCP memory. It asks the kernel
/// about each connection, a slice of them in each iteration.
#[derive(Debug, Default)]
pub(super) struct TcpSearch {
    /// The connections before this one have been looked at.
    from: usize,
    holders: Vec<Holder>,
    /// Bytes that this worker is to free.
    excess_bytes: usize,
}

impl Worker {
    /// Keeps what readers own, with the detached bodies that they hold, within
    /// `limits.readers_bytes_max`. Detached bodies are counted for all workers together; only when
    /// they exceed the limit are those of this worker looked for. That looks at all connections, so
    /// if none was closed it is not tried again for a while, unless much has come since.
    pub(super) fn relieve<B: Backend>(&mut self, io: &mut B) {
        let bytes_max = self.cx.readers_bytes_max();
        let layers = io.held_bytes(None);
        let walks = self.cx.streams.walks.held_bytes();
        let others = self.cx.streams.feeds.filter_bytes() + walks + layers;
        let others = others + self.cx.streams.replication.held_bytes();
        let owned = self.cx.load.memory.owned + others;
        let is_spared = self.cx.clock.now_ms < self.spared_until_ms && owned <= self.spared_bytes;
        if owned + self.cx.shared.detached_bytes() <= bytes_max || is_spared {
            return;
        }
        let (indices, connections) = (self.connections.indices(), &mut self.connections);
        let share = |at| connections.at(at).map_or(0, |connection| connection.detached_share());
        let detached: usize = indices.map(share).sum();
        let mut owned = owned;
        if owned + detached > bytes_max {
            // No connection is cut for walks that are kept for readers to come.
            // mutation: walks-of-gone
            self.cx.streams.walks.shed();
            owned = owned - walks + self.cx.streams.walks.held_bytes();
        }
        let excess_bytes = excess(owned + detached, bytes_max);
        let holders = if excess_bytes > 0 { self.holders(io) } else { Vec::new() };
        let cut = whom_to_cut(excess_bytes, RELIEF_BYTES_MIN, holders);
        if cut.is_empty() {
            self.spared_until_ms = self.cx.clock.now_ms + RELIEF_PAUSE_MS;
            self.spared_bytes = bytes_max.max(owned + bytes_max / RELIEF_PART);
        }
        for Holder { index, .. } in cut {
            let peer = Peer::from_index(index as u32);
            self.cx.stats.readers_cut.add(1);
            self.with(peer, |connection, cx| connection.abort(cx, io));
        }
    }

    /// The connections, each with the bytes that closing it would free, roughly.
    fn holders<B: Backend>(&mut self, io: &B) -> Vec<Holder> {
        let mut holders = Vec::new();
        for index in self.connections.indices() {
            let Some(connection) = self.connections.at(index) else { continue };
            if connection.is_free() {
                continue;
            }
            let layers = io.held_bytes(Some(Peer::from_index(index as u32)));
            let own = connection.owned_bytes() + connection.feeds_bytes();
            let bytes = own + connection.detached_share() + layers;
            if bytes > 0 {
                let deadline_tick = connection.timer().deadline_tick();
                holders.push(Holder { bytes, deadline_tick, index });
            }
        }
        holders
    }

    /// Each kind of memory is so short from now on.
    pub(super) fn press<B: Backend>(&mut self, io: &mut B, pressures: Pressures) {
        let Pressures { process, tcp, tcp_excess_bytes } = pressures;
        if tcp == Pressure::Critical {
            self.tcp_search.get_or_insert_default().excess_bytes = tcp_excess_bytes;
        }
        // The backend may be that of another worker, which this one took over.
        io.rest(if process == Pressure::Critical { PUBLIC_ROLES } else { &[] });
        if process == self.cx.load.pressure {
            return;
        }
        self.cx.load.pressure = process;
        self.shortened = (process != Pressure::None).then_some(0);
        // What is held is looked at again.
        self.spared_until_ms = 0;
    }

    /// Looks at some connections for what the kernel holds for them. After the last one, resets
    /// those that hold the most, until as much is free as this worker is to free.
    pub(super) fn free_tcp_memory<B: Backend>(&mut self, io: &mut B) {
        let Some(search) = &mut self.tcp_search else { return };
        let mut next = None;
        for (looked, index) in self.connections.indices_from(search.from).enumerate() {
            if looked == SEARCHED_PER_ITERATION {
                next = Some(index);
                break;
            }
            let Some(connection) = self.connections.at(index) else { continue };
            if connection.is_free() {
                continue;
            }
            let bytes = io.kernel_bytes(Peer::from_index(index as u32));
            if bytes >= TCP_RELIEF_BYTES_MIN {
                let deadline_tick = connection.timer().deadline_tick();
                search.holders.push(Holder { bytes, deadline_tick, index });
            }
        }
        if let Some(next) = next {
            search.from = next;
            return;
        }
        let Some(search) = self.tcp_search.take() else { return };
        for Holder { index, .. } in
            whom_to_cut(search.excess_bytes, TCP_RELIEF_BYTES_MIN, search.holders)
        {
            let peer = Peer::from_index(index as u32);
            // The record may belong to another connection by now.
            let is_open = self.connections.at(index).is_some_and(|one| !one.is_free());
            if is_open && io.kernel_bytes(peer) >= TCP_RELIEF_BYTES_MIN {
                self.cx.stats.tcp_memory_evicted.add(1);
                self.with(peer, |connection, cx| connection.abort(cx, io));
            }
        }
    }

    /// Gives some of the connections that ask nothing the time that they have from now on.
    pub(super) fn shorten(&mut self) {
        let Some(from) = self.shortened.take() else { return };
        for (looked, index) in self.connections.indices_from(from).enumerate() {
            if looked == SHORTENED_PER_TURN {
                // mutation: some-idle
                self.shortened = Some(index);
                return;
            }
            let peer = Peer::from_index(index as u32);
            if self.connections.at(index).is_some_and(|connection| connection.is_idle()) {
                self.with(peer, |_, _| ());
            }
        }
    }
}
