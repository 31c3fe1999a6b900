//! A view of the layer for tests.

use super::Sessions;
use super::opening::OpeningBudget;
use std::sync::Arc;
use stentor_io::Peer;

/// How many of what the layer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Connections that send their last record, or linger.
    pub ending: usize,
    /// Handshakes, those that wait included.
    pub handshakes: usize,
    /// Connections that hold more than their session.
    pub extras: usize,
    /// Connections whose keys the worker keeps at hand.
    pub contexts: usize,
}

impl Sessions {
    /// Counts what the layer holds now.
    pub fn held(&self) -> Held {
        Held {
            ending: self.ending.len(),
            handshakes: self.handshakes.count(),
            extras: self.extras.len(),
            contexts: self.contexts.taken(),
        }
    }

    /// Those of a worker that shows the same certificates.
    pub fn without_connections(&self) -> Sessions {
        Sessions::new(Arc::clone(&self.acceptors), self.control)
    }

    /// Opens no more records in this turn than it has to.
    pub fn use_up_turn(&mut self) {
        self.opening = OpeningBudget::default();
    }

    /// The connection that is being served.
    pub fn current(&self) -> Option<Peer> {
        self.current
    }
}
