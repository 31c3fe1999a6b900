//! How many connections each client address has, over all workers.
//!
//! One table of counters, found by a keyed hash of the address: no lock, and nothing is kept for an
//! address that has gone. Two addresses may share a counter and then count as one. With a million
//! counters that is rare, and since the key is random nobody can choose whom to share with.
//!
//! An IPv4 address counts by itself, whichever way it is written. Of IPv6 it is the network of 64
//! bits that counts: a subscriber is given at least as much, and could come from any part of it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The counters of all addresses.
#[derive(Debug)]
pub(crate) struct AddressCounts {
    key: RandomState,
    /// Made when the first address falls into one: a server with few clients needs few.
    pages: Box<[OnceLock<Box<[AtomicU32]>>]>,
}

/// Where a connection is counted, if it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted(Option<NonZeroU32>);

impl AddressCounts {
    pub(crate) fn new() -> AddressCounts {
        AddressCounts {
            key: RandomState::new(),
            pages: std::iter::repeat_with(OnceLock::new).take(PAGES).collect(),
        }
    }

    /// Counts one connection more, unless there are `connections_max` from this address already.
    pub(crate) fn enter(&self, address: IpAddr, connections_max: u32) -> Option<Counted> {
        let place = self.key.hash_one(network(address)) as usize % (PAGES * COUNTERS) + 1;
        let counted = Counted(NonZeroU32::new(place as u32));
        let before = self.counter(counted)?.fetch_add(1, Ordering::Relaxed);
        if before >= connections_max {
            self.leave(counted);
            return None;
        }
        Some(counted)
    }

    /// Counts one connection less.
    pub(crate) fn leave(&self, counted: Counted) {
        if let Some(counter) = self.counter(counted) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn counter(&self, counted: Counted) -> Option<&AtomicU32> {
        let place = counted.0?.get() as usize - 1;
        let page = self.pages[place / COUNTERS]
            .get_or_init(|| std::iter::repeat_with(AtomicU32::default).take(COUNTERS).collect());
        Some(&page[place % COUNTERS])
    }
}

/// What counts as one client.
fn network(address: IpAddr) -> (bool, u64) {
    match address.to_canonical() {
        IpAddr::V4(address) => (false, u64::from(address.to_bits())),
        IpAddr::V6(address) => (true, (address.to_bits() >> 64) as u64),
    }
}

/// Counters on a page of memory, and pages: 2^20 counters, 4 MiB once all are in use.
const COUNTERS: usize = 1024;
const PAGES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_and_no_more() {
        let addresses = AddressCounts::new();
        let first = addresses.enter(ip("192.0.2.1"), 2).unwrap();
        let second = addresses.enter(ip("::ffff:192.0.2.1"), 2).unwrap();
        assert!(addresses.enter(ip("192.0.2.1"), 2).is_none());
        // Those that were refused are not counted.
        assert!(addresses.enter(ip("192.0.2.1"), 2).is_none());
        addresses.leave(first);
        addresses.enter(ip("192.0.2.1"), 2).unwrap();
        assert!(addresses.enter(ip("192.0.2.1"), 2).is_none());
        addresses.leave(second);
        // Who is not counted takes nothing away.
        addresses.leave(Counted::default());
    }

    #[test]
    fn ipv6_counts_by_its_network() {
        let addresses = AddressCounts::new();
        addresses.enter(ip("2001:db8:1:2::1"), 1).unwrap();
        assert!(addresses.enter(ip("2001:db8:1:2:ffff::9"), 1).is_none());
        addresses.enter(ip("2001:db8:1:3::1"), 1).unwrap();
    }

    /// Sharing a counter is rare: of some thousand addresses hardly any meets another.
    #[test]
    fn addresses_hardly_ever_share_a_counter() {
        let addresses = AddressCounts::new();
        let refused =
            (0..4_000_u32).filter(|&n| addresses.enter(IpAddr::V4(n.into()), 1).is_none()).count();
        assert!(refused < 60, "{refused}");
        // A page for each thousand counters that are in use, and no more.
        let pages = |addresses: &AddressCounts| {
            addresses.pages.iter().filter(|page| page.get().is_some()).count()
        };
        let quiet = AddressCounts::new();
        quiet.enter(ip("192.0.2.1"), 1).unwrap();
        assert_eq!(pages(&quiet), 1);
    }
}
