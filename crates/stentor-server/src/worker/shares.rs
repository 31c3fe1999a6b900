//! What a turn is shared out among, in time: visits to readers, and deadlines.
//!
//! Whoever sends something is served first, then those come in who want to connect, and then this
//! has its turn. A share is time and not a count, for one visit may cost a hundred times what
//! another does. It grows with what the turn has taken before: so a worker that requests keep busy
//! still spends as much on those who only listen, and none of them waits for all deadlines of a
//! crowd. The clock is the backend's, and is read only where there is something to be done: on the
//! simulator it goes by work done, and all this is as deterministic as the rest.

use super::Worker;
use crate::limits::{
    EXPIRIES_US, LOOKS_AT_ONCE, TURN_COST_MAX, VISITS_AT_ONCE, VISITS_IN_VAIN, VISITS_US,
    VISITS_US_MAX,
};
use crate::stream::feeds::{FeedId, Visit};
use crate::timers::Due;
use stentor_io::{Backend, Peer};

/// Time that may be spent, on the clock of [`Backend::now_us`].
struct Share {
    now_us: u64,
    left_us: u64,
}

impl Share {
    /// So much from now on.
    fn begin<B: Backend>(io: &B, least_us: u64, part: u64, most_us: u64) -> Share {
        let now_us = io.now_us();
        let turn_us = now_us.saturating_sub(io.turn_us());
        Share { now_us, left_us: (turn_us / part).clamp(least_us, most_us) }
    }

    /// Takes note of the time that has passed. Returns whether the share is used up.
    fn is_over<B: Backend>(&mut self, io: &B) -> bool {
        let before_us = std::mem::replace(&mut self.now_us, io.now_us());
        self.left_us = self.left_us.saturating_sub(self.now_us - before_us);
        self.left_us == 0
    }
}

impl Worker {
    /// Sees to those whose time is up. However many there are, others do not wait for all of them.
    pub(super) fn expire<B: Backend>(&mut self, io: &mut B) {
        let now_ms = self.cx.clock.now_ms;
        let mut share = None;
        let mut looks = LOOKS_AT_ONCE;
        loop {
            match self.wheel.next_due(&mut self.connections, now_ms, &mut looks) {
                Due::None => return,
                Due::Record(index) => {
                    let peer = Peer::from_index(index as u32);
                    share.get_or_insert_with(|| Share::begin(io, EXPIRIES_US, 8, VISITS_US_MAX));
                    self.cx.load.budget.begin_share(None);
                    self.with(peer, |connection, cx| connection.expire(cx, io));
                }
                // Looking at those whose deadline has moved takes time as well.
                Due::Unknown if share.is_none() => return,
                Due::Unknown => looks = LOOKS_AT_ONCE,
            }
            if share.as_mut().is_some_and(|share| share.is_over(io)) {
                return;
            }
        }
    }

    /// Visits some of the readers for whom there are events. The rest have their turn after
    /// whatever else has happened meanwhile: a fan-out to many holds nobody up. Sweeps take turns,
    /// so one over few readers does not wait for all of another's.
    pub(super) fn fan_out<B: Backend>(&mut self, io: &mut B) {
        if !self.cx.streams.feeds.is_sweeping() {
            return self.cx.streams.batches.forget();
        }
        let mut share = Share::begin(io, VISITS_US, 1, VISITS_US_MAX);
        let mut cost = 0;
        while share.left_us > 0 && cost < TURN_COST_MAX {
            let Some(feed) = self.cx.streams.feeds.next_sweep() else {
                return self.cx.streams.batches.forget();
            };
            cost += self.sweep(io, feed, &mut share);
        }
    }

    /// Visits some readers of one feed, and says what they cost.
    fn sweep<B: Backend>(&mut self, io: &mut B, feed: FeedId, share: &mut Share) -> usize {
        let mut cost = 0;
        let (mut visits, mut in_vain) = (0, 0);
        while visits < VISITS_AT_ONCE && in_vain < VISITS_IN_VAIN {
            self.cx.load.budget.begin_share(None);
            match self.cx.streams.feeds.next_visit(feed) {
                Some(Visit::Reader(member)) if self.visit(io, feed, member.peer) => visits += 1,
                Some(Visit::Reader(_)) => {
                    in_vain += 1;
                    continue;
                }
                Some(Visit::Over { published_us }) => {
                    let us = io.now_us().saturating_sub(published_us);
                    self.cx.stats.fan_outs.observe(us);
                    break;
                }
                None => break,
            }
            cost += self.cx.load.budget.cost;
            if share.is_over(io) {
                return cost;
            }
        }
        // For those that were visited in vain.
        let _ = share.is_over(io);
        cost
    }

    /// Brings a reader what it is due. Returns whether that was anything.
    fn visit<B: Backend>(&mut self, io: &mut B, feed: FeedId, peer: Peer) -> bool {
        let Some(connection) = self.connections.at(peer.index()) else { return false };
        let is_due = connection.is_due(self.cx.streams.feeds.latest_seq(feed));
        if is_due {
            self.with(peer, |connection, cx| connection.deliver(cx, io));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::PUBLIC;
    use crate::simulation::{World, kind, patient};
    use stentor_hub::{ContentType, Filter};

    /// A reader of several topics searches all messages of the log for its own.
    #[test]
    fn looking_through_the_log_costs_each_message() {
        let costs = [0, 20].map(|others| {
            let mut world = World::new(1, kind(), patient());
            for topics in ["topic=/a&topic=/b", "topic=/other"] {
                let head = "HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
                let request = format!("GET /-/events?{topics} {head}");
                world.ask(PUBLIC, request.as_bytes());
            }
            (0..others).for_each(|_| world.publish("/other", b"1".to_vec(), ContentType::TEXT));
            world.publish("/a", b"1".to_vec(), ContentType::TEXT);
            let World { sim, worker, .. } = &mut world;
            worker.read_mailbox(sim);
            let feeds = &mut worker.cx.streams.feeds;
            let feed = feeds.id(&Filter::parse("/a").unwrap()).unwrap();
            while feeds.next_sweep() != Some(feed) {}
            let mut share = Share::begin(sim, 1_000_000, 1, 1_000_000);
            worker.sweep(sim, feed, &mut share)
        });
        assert!(costs[0] > 0 && costs[1] - costs[0] >= 20 * 10, "{costs:?}");
    }

    /// The clock is read after so many visits, though nothing was brought.
    #[test]
    fn few_are_visited_in_vain_at_once() {
        let mut world = World::new(1, kind(), patient());
        let stream = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
        world.ask(PUBLIC, stream);
        world.publish("/small", b"news".to_vec(), ContentType::TEXT);
        // These know the news before the worker hears of it.
        for _ in 0..1_500 {
            let client = world.sim.connect(PUBLIC);
            world.sim.write(client, stream);
        }
        let World { sim, worker, .. } = &mut world;
        while sim.turn(worker) {}
        worker.read_mailbox(sim);
        let feeds = &mut worker.cx.streams.feeds;
        let feed = feeds.id(&Filter::parse("/small").unwrap()).unwrap();
        assert_eq!(feeds.next_sweep(), Some(feed));
        let mut share = Share::begin(sim, 1_000_000, 1, 1_000_000);
        worker.sweep(sim, feed, &mut share);
        let mut left = 0;
        while let Some(Visit::Reader(_)) = worker.cx.streams.feeds.next_visit(feed) {
            left += 1;
        }
        assert_eq!(left, 1_500 - 1_024);
    }
}
