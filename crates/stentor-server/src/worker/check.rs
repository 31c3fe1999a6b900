//! What must hold of a worker between two turns: every sum is that of its parts.
//!
//! Counters, accounts and lists follow the records, one change at a time. Here they are made anew
//! from the records and compared. That costs as much as there are connections, so debug builds do
//! it while there are few.

use super::Worker;
use crate::budget::WorkClass;
use crate::listeners::LISTENERS;
use crate::stats::Activity;
use crate::stream::feeds::{FeedId, Member};
use crate::stream::format::Transport;
use crate::timers::Timed;
use std::collections::{HashMap, HashSet};
use stentor_io::{Counter, Peer};

impl Worker {
    /// Panics if the connection's record is not in order.
    pub(super) fn check_connection(&mut self, peer: Peer) {
        let Some(connection) = self.connections.at(peer.index()) else { return };
        connection.check();
        assert!(
            self.cx.responses.answers.is_clear(),
            "left of a visit: {:?}",
            self.cx.responses.answers
        );
        let is_over = connection.is_free() || connection.has_no_deadline();
        assert!(is_over || connection.timer().is_queued(), "it has no deadline: {connection:?}");
    }

    /// Panics if what the worker counts is not what its connections are.
    pub(super) fn check(&mut self) {
        if self.connections.indices().count() > RECORDS_MAX {
            return;
        }
        let (mut open, mut owned, mut waiting) = (0, 0, 0);
        let mut by_role = [0; LISTENERS.len()];
        let (mut by_activity, mut transports) = ([0; 4], Vec::new());
        let mut by_token = HashSet::new();
        let mut memberships: HashMap<FeedId, Vec<Member>> = HashMap::new();
        for index in self.connections.indices() {
            let Some(connection) = self.connections.at(index) else { continue };
            if connection.is_free() {
                continue;
            }
            if connection.has_pass() {
                by_token.insert(index);
            }
            open += 1;
            owned += connection.owned_bytes();
            by_role[usize::from(connection.role())] += 1;
            by_activity[connection.activity() as usize] += 1;
            transports.extend(connection.transport());
            let peer = Peer::from_index(index as u32);
            if let Some((class, place)) = connection.place() {
                waiting += 1;
                let is_there = self.cx.load.budget.has_place(class, place, peer);
                assert!(is_there, "no queue has {connection:?}");
            }
            for (feed, member) in connection.memberships(peer) {
                memberships.entry(feed).or_default().push(member);
            }
        }
        let queued = WorkClass::ALL.map(|class| self.cx.load.budget.waiting(class));
        assert_eq!(queued.iter().sum::<usize>(), waiting, "a queue has a connection that has gone");
        assert_eq!((self.open, self.cx.load.memory.owned), (open, owned));
        let stats = &self.cx.stats;
        for role in LISTENERS.iter().map(|listener| listener.role) {
            assert_eq!(
                self.cx.stats.connections(role).value(),
                by_role[usize::from(role)],
                "{role}"
            );
        }
        let counted = |activity: Activity| by_activity[activity as usize];
        assert_eq!(stats.connections_reading.value(), counted(Activity::Reading));
        assert_eq!(stats.connections_writing.value(), counted(Activity::Writing));
        assert_eq!(stats.readers_behind.value(), counted(Activity::Behind));
        let mut reading = [0; 3];
        for transport in transports {
            reading[match transport {
                Transport::Sse | Transport::SseUnchunked => 0,
                Transport::LongPoll => 1,
                Transport::WebSocket | Transport::Echo => 2,
            }] += 1;
        }
        let counters = [&stats.readers_sse, &stats.readers_long_poll, &stats.readers_websocket];
        assert_eq!(counters.map(Counter::value), reading);
        self.cx.access.passes.check(&|index| by_token.contains(&index));
        assert_eq!(stats.readers_by_token.value(), by_token.len() as u64);
        self.cx.streams.feeds.check(&memberships);
        self.cx.streams.walks.check();
    }
}

/// Records that are looked at after each turn: what the slab allocates first. The bound saves time
/// of debug builds alone.
const RECORDS_MAX: usize = 512;
