//! What was published is brought to followers: once a turn, to all of them.

use super::Worker;
use stentor_io::{Backend, Peer};

impl Worker {
    /// Takes in what has come, and has those sent it who read feeds.
    pub(super) fn bring_to_followers<B: Backend>(&mut self, io: &mut B) {
        // Their sockets have had room all along: nobody would say so.
        for peer in std::mem::take(&mut self.cx.streams.replication.ended) {
            let connection = self.connections.at(peer.index());
            if connection.is_some_and(|connection| connection.is_last_answer_blocked()) {
                io.resume(peer);
            }
        }
        let now_ms = self.cx.clock.now_ms;
        let bytes_max = self.cx.feed_bytes_max();
        self.cx.streams.replication.limit(bytes_max);
        if !self.cx.streams.replication.take_in(&self.cx.shared.hub, now_ms) {
            return;
        }
        let feeds: Vec<Peer> = self.cx.streams.replication.feeds().collect();
        for peer in feeds {
            self.cx.load.budget.begin_share(None);
            self.with(peer, |connection, cx| connection.deliver(cx, io));
        }
    }

    /// How many connections followers read.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn followers(&self) -> usize {
        self.cx.streams.replication.peers().count()
    }
}
