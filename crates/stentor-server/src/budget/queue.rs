//! A work queue: connections in the order in which they are served, round by round.
//!
//! Each carrier connection has one place in a round, whatever number of its streams wait: the
//! second stream waits for the next round, behind the first ones of all other carriers. A
//! connection that leaves gives up its place, so none is left for the next connection of its
//! number.

use std::collections::{BTreeMap, HashMap};
use stentor_io::Peer;

/// A place in a work queue: no other has its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Place {
    round: u64,
    number: u64,
}

/// Connections that wait.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    places: BTreeMap<Place, Waiting>,
    /// Carriers of several connections, of which at least one waits.
    carriers: HashMap<Peer, Streams>,
    /// The round that is being served.
    round: u64,
    /// Places given so far.
    given: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    peer: Peer,
    carrier: Peer,
}

/// The streams of one carrier that wait, and the last round in which one of them is served.
#[derive(Clone, Copy, Debug)]
struct Streams {
    count: usize,
    round: u64,
}

impl WorkQueue {
    /// Puts a connection into the first round in which its carrier has no place.
    pub(crate) fn enter(&mut self, carrier: Peer, peer: Peer) -> Place {
        let mut round = self.round + 1;
        if carrier != peer {
            let streams = self.carriers.entry(carrier).or_insert(Streams { count: 0, round: 0 });
            round = round.max(streams.round + 1);
            *streams = Streams { count: streams.count + 1, round };
        }
        self.given += 1;
        let place = Place { round, number: self.given };
        self.places.insert(place, Waiting { peer, carrier });
        place
    }

    /// Takes the first connection out.
    pub(crate) fn next(&mut self) -> Option<Peer> {
        let (&place, &Waiting { peer, .. }) = self.places.first_key_value()?;
        self.round = place.round;
        self.leave(place);
        Some(peer)
    }

    /// Gives up a place.
    pub(crate) fn leave(&mut self, place: Place) {
        let Some(Waiting { carrier, .. }) = self.places.remove(&place) else { return };
        if let Some(streams) = self.carriers.get_mut(&carrier) {
            streams.count -= 1;
            if streams.count == 0 {
                self.carriers.remove(&carrier);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The connections in their order.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.places.values().map(|waiting| waiting.peer)
    }

    #[cfg(debug_assertions)]
    pub(super) fn at(&self, place: Place) -> Option<Peer> {
        self.places.get(&place).map(|waiting| waiting.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> Peer {
        Peer::from_index(number)
    }

    fn served(queue: &mut WorkQueue) -> Vec<usize> {
        std::iter::from_fn(|| queue.next().map(Peer::index)).collect()
    }

    #[test]
    fn a_carrier_has_one_place_in_a_round() {
        let mut queue = WorkQueue::default();
        for stream in [11, 12, 13] {
            queue.enter(peer(1), peer(stream));
        }
        queue.enter(peer(2), peer(2));
        queue.enter(peer(3), peer(31));
        assert_eq!(queue.next(), Some(peer(11)));
        // Whoever has just been served comes behind those that wait, and so does a newcomer.
        queue.enter(peer(1), peer(11));
        queue.enter(peer(4), peer(4));
        assert_eq!(served(&mut queue), [2, 31, 12, 4, 13, 11]);
        assert!(queue.len() == 0 && queue.carriers.is_empty());
    }

    #[test]
    fn a_place_that_was_given_up_is_nobodys() {
        let mut queue = WorkQueue::default();
        let places = [11, 12].map(|stream| queue.enter(peer(1), peer(stream)));
        queue.enter(peer(2), peer(2));
        queue.leave(places[0]);
        queue.leave(places[0]);
        assert_eq!(queue.len(), 2);
        queue.enter(peer(5), peer(11));
        assert_eq!(served(&mut queue), [2, 11, 12]);
        assert!(queue.carriers.is_empty());
    }
}
