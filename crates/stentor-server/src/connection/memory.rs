//! What a connection holds in memory, and what would be free if it were cut.

use super::Connection;
use super::reader::Extra;
use crate::memory::{Pins, Usage};
use crate::output::Backlog;

impl Connection {
    /// What it holds.
    pub(crate) fn usage(&self) -> Usage {
        let extra = self.extra.as_deref().map_or(0, Extra::own_bytes);
        match self.work.as_deref() {
            None => Usage { owned: extra, pinned: 0 },
            Some(work) => Usage { owned: extra + work.own_bytes(), pinned: work.pinned_bytes() },
        }
    }

    /// What others no longer keep of what it has still to be sent.
    pub(crate) fn add_pins(&self, pins: &mut Pins) {
        let backlog = self.work.as_deref().and_then(|work| work.backlog.as_ref());
        backlog.into_iter().flat_map(Backlog::bodies).for_each(|body| pins.add(body));
    }

    /// How much it would free to cut it, roughly, in bytes.
    pub(crate) fn weight(&self, pins: &Pins) -> usize {
        let backlog = self.work.as_deref().and_then(|work| work.backlog.as_ref());
        let bodies = backlog.into_iter().flat_map(Backlog::bodies);
        let pinned: usize = bodies.map(|body| pins.part(body)).sum();
        let feeds = self.extra.as_deref().map_or(0, Extra::feeds_bytes);
        self.usage().owned + pinned + feeds
    }
}
