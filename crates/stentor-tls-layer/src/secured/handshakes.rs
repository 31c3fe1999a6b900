//! Handshakes: how many are under way, what they may cost in a turn, and who waits for one.
//!
//! A handshake takes a hundred times what a request does, and its memory is a hundred times that of
//! a connection. So there are so many at most that were answered and are not done, and what they
//! may take of a turn is a share, in time. Whoever finds no room is not read: what it has sent
//! waits in the kernel, and it in a line, from which it is called in the order in which it came. A
//! client that was answered and then says nothing makes room for those who wait, long before its
//! time is up.
//!
//! Whoever has not said a whole hello has cost nothing but the bytes of it, and takes no place:
//! else who holds many connections open with half of one each would keep all others waiting.
//!
//! How long a handshake may take in all is what a head may take: the worker sees to that.

use crate::limits::{
    HANDSHAKE_BYTES, HANDSHAKE_US_LEAST, HANDSHAKE_US_USUAL, HANDSHAKES_GRACE_MS, HANDSHAKES_MAX,
    HANDSHAKES_PART, HANDSHAKES_US,
};
use std::collections::{HashMap, VecDeque};
use stentor_io::{Peer, wiping};
use stentor_tls::{Acceptor, Handshake, HandshakeError, Progress};

/// Those of a worker.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    under_way: HashMap<Peer, UnderWay, foldhash::fast::RandomState>,
    /// How many of them were answered.
    answered: usize,
    /// What all of them take.
    bytes: usize,
    /// Those that were answered, in the order in which they were. Some are over.
    oldest: VecDeque<(Peer, u64)>,
    /// What makes one of a peer different from those of its number before.
    stamp: u64,
    /// Connections that wait to begin one.
    line: VecDeque<Peer>,
    /// Those that have begun, and wait to go on.
    going_on: VecDeque<Peer>,
    /// None begins: this process is about to hand over its connections.
    pub(super) holds: bool,
    /// What they may still take of the turn, in microseconds.
    left_us: u64,
    /// The time that they have taken since the last count, in microseconds.
    pub(super) spent_us: u64,
}

#[derive(Debug)]
struct UnderWay {
    handshake: Handshake,
    stamp: u64,
    answered_ms: Option<u64>,
    /// How much of [`Handshakes::bytes`] is this one's. A step that panics may leave another size.
    counted: usize,
}

impl UnderWay {
    /// What it takes in memory, roughly.
    fn bytes(&self) -> usize {
        let made = if self.handshake.has_hello() { HANDSHAKE_BYTES } else { 0 };
        size_of::<(Peer, UnderWay)>() + made + self.handshake.held_bytes()
    }
}

impl UnderWay {
    /// Corrects the account of all.
    fn count(&mut self, all: &mut usize) {
        let now = self.bytes();
        *all = *all - self.counted + now;
        self.counted = now;
    }
}

impl Handshakes {
    /// Whether there is room for a step of one: for one that may be the first to be answered, or
    /// for another.
    pub(super) fn has_room(&self, is_first: bool) -> bool {
        let has_place = self.answered < HANDSHAKES_MAX && self.line.is_empty();
        self.left_us > 0 && (!is_first || has_place)
    }

    /// Has a connection wait until it is called.
    pub(super) fn wait(&mut self, peer: Peer, is_first: bool) {
        let line = if is_first { &mut self.line } else { &mut self.going_on };
        line.push_back(peer);
    }

    /// Begins one.
    pub(super) fn begin(&mut self, peer: Peer, acceptor: &Acceptor) {
        self.stamp += 1;
        let (stamp, handshake) = (self.stamp, acceptor.begin());
        let mut under_way = UnderWay { handshake, stamp, answered_ms: None, counted: 0 };
        under_way.count(&mut self.bytes);
        self.under_way.insert(peer, under_way);
    }

    /// Whether one is under way, and was answered.
    pub(super) fn is_answered(&self, peer: Peer) -> bool {
        self.under_way.get(&peer).is_some_and(|under_way| under_way.answered_ms.is_some())
    }

    /// Takes what has arrived. `None` if there is none under way.
    pub(super) fn receive(
        &mut self,
        peer: Peer,
        (now_ms, now_unix_s): (u64, u64),
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Result<Progress, HandshakeError>> {
        let under_way = self.under_way.get_mut(&peer)?;
        let progress = wiping(|| under_way.handshake.receive(now_unix_s, bytes, out));
        under_way.count(&mut self.bytes);
        if under_way.answered_ms.is_none() && under_way.handshake.has_sent() {
            under_way.answered_ms = Some(now_ms);
            self.answered += 1;
            self.oldest.push_back((peer, under_way.stamp));
        }
        Some(progress)
    }

    /// Takes note of what a step has taken.
    pub(super) fn charge(&mut self, us: u64) {
        let us = us.max(HANDSHAKE_US_LEAST);
        self.spent_us += us;
        self.left_us = self.left_us.saturating_sub(us);
    }

    /// It is over, one way or the other. Returns whether it was under way.
    pub(super) fn end(&mut self, peer: Peer) -> bool {
        let ended = self.under_way.remove(&peer);
        let was_under_way = ended.is_some();
        if let Some(ended) = ended {
            self.bytes -= ended.counted;
            self.answered -= usize::from(ended.answered_ms.is_some());
            wiping(|| drop(ended));
        }
        while let Some(&(peer, stamp)) = self.oldest.front()
            && !self.is_under_way(peer, stamp)
        {
            self.oldest.pop_front();
        }
        was_under_way
    }

    fn is_under_way(&self, peer: Peer, stamp: u64) -> bool {
        self.under_way.get(&peer).is_some_and(|under_way| under_way.stamp == stamp)
    }

    /// One that has had its time, and a place that others wait for.
    pub(super) fn to_evict(&self, now_ms: u64) -> Option<Peer> {
        self.evict_at_ms().filter(|&at_ms| at_ms <= now_ms)?;
        self.oldest.front().map(|&(peer, _)| peer)
    }

    fn evict_at_ms(&self) -> Option<u64> {
        let is_full = self.answered >= HANDSHAKES_MAX && !self.line.is_empty();
        let (oldest, _) = self.oldest.front().filter(|_| is_full)?;
        Some(self.under_way.get(oldest)?.answered_ms? + HANDSHAKES_GRACE_MS)
    }

    /// A turn has taken so long: what the next one has for handshakes.
    pub(super) fn begin_turn(&mut self, turn_us: u64) {
        self.left_us = HANDSHAKES_US.max(turn_us / HANDSHAKES_PART);
    }

    /// Calls those out of the lines for whom there will be room. Some of them may have gone.
    pub(super) fn call(&mut self, called: &mut Vec<Peer>) {
        let count = (self.left_us / HANDSHAKE_US_USUAL).max(1) as usize;
        let going_on = self.going_on.len().min(count);
        called.extend(self.going_on.drain(..going_on));
        let places = HANDSHAKES_MAX.saturating_sub(self.answered);
        if self.holds {
            let under_way = &self.under_way;
            let begun = |peer: &Peer| under_way.contains_key(peer);
            called.extend(self.line.iter().copied().filter(begun));
            self.line.retain(|peer| !begun(peer));
        } else {
            let first = self.line.len().min(count - going_on).min(places);
            called.extend(self.line.drain(..first));
        }
    }

    /// When to look again.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        match self.line.is_empty() && self.going_on.is_empty() {
            true => None,
            false => Some(self.evict_at_ms().filter(|_| self.going_on.is_empty()).unwrap_or(0)),
        }
    }

    /// What they take in memory, roughly; or one does.
    pub(super) fn bytes(&self, peer: Option<Peer>) -> usize {
        match peer {
            None => self.bytes,
            Some(peer) => self.under_way.get(&peer).map_or(0, UnderWay::bytes),
        }
    }

    /// How many were answered.
    pub(super) fn answered(&self) -> usize {
        self.answered
    }

    /// How many are under way.
    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.line.len() + self.going_on.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{HANDSHAKE_US_USUAL, HANDSHAKES_PART, HANDSHAKES_US};
    use std::path::Path;
    use std::sync::Arc;
    use stentor_tls::{Certificates, Pair, PemPair, Settings, Version};

    #[test]
    fn a_turn_has_a_share_for_handshakes() {
        let mut handshakes = Handshakes::default();
        handshakes.begin_turn(0);
        assert!(handshakes.has_room(true));
        handshakes.charge(HANDSHAKES_US);
        assert!(!handshakes.has_room(true) && !handshakes.has_room(false));
        // Even what takes no time is charged.
        handshakes.charge(0);
        assert_eq!(handshakes.spent_us, HANDSHAKES_US + HANDSHAKE_US_LEAST);
        let peers = [0, 1, 2, 3, 4, 5].map(Peer::from_index);
        for (index, peer) in peers.into_iter().enumerate() {
            handshakes.wait(peer, index != 4);
        }
        handshakes.begin_turn(2 * HANDSHAKE_US_USUAL * HANDSHAKES_PART);
        assert!(handshakes.has_room(false) && !handshakes.has_room(true), "nobody goes past");
        let mut called = Vec::new();
        handshakes.call(&mut called);
        assert_eq!(
            called,
            [peers[4], peers[0]],
            "who has begun comes first, and not all are called"
        );
        handshakes.begin_turn(0);
        handshakes.call(&mut called);
        assert_eq!(called[2..], [peers[1]], "and one, however short the turn was");
        assert_eq!(handshakes.deadline_ms(), Some(0));
    }

    /// The panic comes after the handshake has taken bytes, and before they are counted.
    #[test]
    fn a_step_that_panics_leaves_the_account_right() {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let (certificate, key) = (certificate.as_bytes(), key.as_bytes());
        let pem =
            PemPair { certificate: (Path::new("c"), certificate), key: (Path::new("k"), key) };
        let now_unix_s = stentor_io::unix_s();
        let pair = Pair::read(&pem, now_unix_s).unwrap();
        let acceptor = Acceptor::new(&Settings {
            certificates: Arc::new(Certificates::new(vec![pair])),
            tickets: None,
            oldest: Version::Tls12,
            alpn: Vec::new(),
            client_auth: None,
        });
        let (mut handshakes, peer) = (Handshakes::default(), Peer::from_index(1));
        handshakes.begin(peer, &acceptor.unwrap());
        let under_way = handshakes.under_way.get_mut(&peer).unwrap();
        under_way.handshake.receive(now_unix_s, &[22, 3, 1, 2, 0, 1], &mut Vec::new()).unwrap();
        assert!(under_way.bytes() > under_way.counted);
        handshakes.end(peer);
        assert_eq!(handshakes.bytes(None), 0);
    }
}
