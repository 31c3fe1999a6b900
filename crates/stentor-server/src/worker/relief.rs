//! What happens when readers hold too much: those who hold the most are cut. And what happens when
//! memory is short for other reasons (`guard.rs`).

use super::Worker;
use crate::limits::{RELIEF_PART, RELIEF_PAUSE_MS, SHORTENED_PER_TURN};
use crate::listeners::PUBLIC_ROLES;
use crate::memory::{Holder, Pins, whom_to_cut};
use crate::pressure::Pressure;
use crate::timers::Timed;
use stentor_io::{Backend, Peer};

impl Worker {
    /// Sees to it that what readers own and pin stays within `limits.readers_bytes_max`. All
    /// connections are looked at for that, so if nobody was cut it is not tried again for a while,
    /// unless much has come since.
    pub(super) fn relieve<B: Backend>(&mut self, io: &mut B) {
        let bytes_max = self.cx.readers_bytes_max();
        let usage = self.cx.load.memory.usage;
        let layers = io.held_bytes(None);
        let walks = self.cx.streams.walks.held_bytes();
        let others = self.cx.streams.feeds.filter_bytes() + walks + layers;
        let others = others + self.cx.streams.replication.held_bytes();
        let owned = usage.owned + others;
        let is_spared = self.cx.clock.now_ms < self.spared_until_ms && owned <= self.spared_bytes;
        if owned + usage.pinned <= bytes_max || is_spared {
            return;
        }
        let mut pins = Pins::default();
        for index in self.connections.indices() {
            if let Some(connection) = self.connections.at(index) {
                connection.add_pins(&mut pins);
            }
        }
        let mut owned = owned;
        if owned + pins.bytes() > bytes_max {
            // No connection is cut for walks that are kept for readers to come.
            // mutation: walks-of-gone
            self.cx.streams.walks.shed();
            owned = owned - walks + self.cx.streams.walks.held_bytes();
        }
        let total = owned + pins.bytes();
        let holders = if total > bytes_max { self.holders(io, &pins) } else { Vec::new() };
        let cut = whom_to_cut(total, bytes_max, holders);
        if cut.is_empty() {
            self.spared_until_ms = self.cx.clock.now_ms + RELIEF_PAUSE_MS;
            self.spared_bytes = bytes_max.max(owned + bytes_max / RELIEF_PART);
        }
        for Holder { index, .. } in cut {
            let peer = Peer::from_index(index as u32);
            self.cx.stats.readers_cut.add(1);
            self.with(peer, |connection, cx| connection.abort(cx, io, peer));
        }
    }

    fn holders<B: Backend>(&mut self, io: &B, pins: &Pins) -> Vec<Holder> {
        let mut holders = Vec::new();
        for index in self.connections.indices() {
            let Some(connection) = self.connections.at(index) else { continue };
            if connection.is_free() {
                continue;
            }
            let layers = io.held_bytes(Some(Peer::from_index(index as u32)));
            let bytes = connection.weight(pins) + layers;
            if bytes > 0 {
                let deadline_tick = connection.timer().deadline_tick();
                holders.push(Holder { bytes, deadline_tick, index });
            }
        }
        holders
    }

    /// Memory is so short from now on.
    pub(super) fn press<B: Backend>(&mut self, io: &mut B, pressure: Pressure) {
        self.cx.load.pressure = pressure;
        io.rest(if pressure == Pressure::Critical { PUBLIC_ROLES } else { &[] });
        self.shortened = (pressure != Pressure::None).then_some(0);
        // What is held is looked at again.
        self.spared_until_ms = 0;
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
