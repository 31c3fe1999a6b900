//! Followers among the clients, which read everything by a token.

use super::{Reader, Stage, State};

impl Stage {
    /// A follower whose token is not good any more has been ended. The others end: as long as
    /// one hears that its leader is there, nothing comes to rest.
    pub(super) fn end_followers(&mut self) {
        let is_transfer = |reader: &Reader| reader.way.is_transfer();
        if !self.readers.iter().any(is_transfer) {
            return;
        }
        self.let_all_read();
        for _ in 0..FOLLOWER_TURNS {
            self.turn();
        }
        let latest = self.states[self.states.len() - 1];
        let before = State { now_s: latest.now_s - 2, ..latest };
        for reader in self.readers.extract_if(.., |reader| is_transfer(reader)) {
            let copies = before.copies(reader.brought, &reader.filters, self.start_s);
            assert!(copies || !reader.is_open, "a follower still reads: {reader:?} {before:?}");
            self.world.at(reader.worker, |world| world.sim.finish_client(reader.connection));
        }
    }
}

/// More than a follower takes to hear of its end.
const FOLLOWER_TURNS: usize = 2_000;
