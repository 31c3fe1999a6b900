//! What happens when readers hold too much: those who hold the most are cut.

use super::Worker;
use crate::limits::RELIEF_PAUSE_MS;
use crate::memory::{Pins, Relief};
use stentor_io::{Backend, Socket};

impl Worker {
    /// Sees to it that what readers own and pin stays within `limits.readers_bytes_max`. All
    /// connections are looked at for that, so not in every turn.
    pub(super) fn relieve<B: Backend>(&mut self, io: &mut B) {
        let bytes_max = self.cx.settings.limits.readers_bytes_max;
        let held = self.cx.memory.held;
        let others = self.cx.feeds.filter_bytes() + self.cx.walks.held_bytes();
        let may_be_too_much = held.owned + held.pinned + others > bytes_max;
        if !may_be_too_much || self.cx.now_ms < self.relieved_until_ms {
            return;
        }
        self.relieved_until_ms = self.cx.now_ms + RELIEF_PAUSE_MS;
        let mut pins = Pins::default();
        for index in 0..self.connections.end() {
            if let Some(connection) = self.connections.at(index) {
                connection.add_pins(&mut pins);
            }
        }
        let total = held.owned + pins.bytes() + others;
        let Some(mut relief) = Relief::from(total, bytes_max) else { return };
        for index in 0..self.connections.end() {
            if let Some(connection) = self.connections.at(index) {
                relief.weigh(connection.weight(&pins));
            }
        }
        relief.decide();
        for index in 0..self.connections.end() {
            let connection = self.connections.at(index);
            if connection.is_some_and(|connection| relief.cuts(connection.weight(&pins))) {
                let socket = Socket::from_index(index as u32);
                self.cx.stats.readers_cut.add(1);
                self.with(socket, |connection, cx| connection.abort(cx, io, socket));
            }
        }
    }
}
