//! What happens when readers hold too much: those who hold the most are cut.

use super::Worker;
use crate::connection::Connection;
use crate::limits::{RELIEF_PART, RELIEF_PAUSE_MS};
use crate::memory::{Pins, Relief};
use stentor_io::{Backend, Socket};

impl Worker {
    /// Sees to it that what readers own and pin stays within `limits.readers_bytes_max`. All
    /// connections are looked at for that, so if nobody was cut it is not tried again for a while,
    /// unless much has come since.
    pub(super) fn relieve<B: Backend>(&mut self, io: &mut B) {
        let bytes_max = self.cx.settings.limits.readers_bytes_max;
        let held = self.cx.memory.held;
        let others = self.cx.feeds.filter_bytes() + self.cx.walks.held_bytes();
        let owned = held.owned + others;
        let is_spared = self.cx.now_ms < self.spared_until_ms && owned <= self.spared_bytes;
        if owned + held.pinned <= bytes_max || is_spared {
            return;
        }
        let mut pins = Pins::default();
        self.each_connection(|connection| connection.add_pins(&mut pins));
        let cut_before = self.cx.stats.readers_cut.value();
        if let Some(mut relief) = Relief::from(owned + pins.bytes(), bytes_max) {
            self.each_connection(|connection| relief.weigh(connection.weight(&pins)));
            relief.decide();
            self.cut(io, |connection| relief.cuts(connection.weight(&pins)));
        }
        if self.cx.stats.readers_cut.value() == cut_before {
            self.spared_until_ms = self.cx.now_ms + RELIEF_PAUSE_MS;
            self.spared_bytes = bytes_max.max(owned + bytes_max / RELIEF_PART);
        }
    }

    fn each_connection(&mut self, mut look: impl FnMut(&Connection)) {
        for index in 0..self.connections.end() {
            if let Some(connection) = self.connections.at(index) {
                look(connection);
            }
        }
    }

    fn cut<B: Backend>(&mut self, io: &mut B, mut cuts: impl FnMut(&Connection) -> bool) {
        for index in 0..self.connections.end() {
            if self.connections.at(index).is_some_and(|connection| cuts(connection)) {
                let socket = Socket::from_index(index as u32);
                self.cx.stats.readers_cut.add(1);
                self.with(socket, |connection, cx| connection.abort(cx, io, socket));
            }
        }
    }
}
