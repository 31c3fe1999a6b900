//! How many connections each client address has, over all workers.
//!
//! One table of counters, found by a keyed hash of the address: no lock, and nothing is kept for an
//! address that has gone. Two addresses may share a counter and then count as one. With a million
//! counters that is rare, and since the key is random nobody can choose whom to share with.
//!
//! An IPv4 address counts by itself, whichever way it is written. Of IPv6 it is the network of 64
//! bits that counts: a subscriber is given at least as much, and could come from any part of it.
//!
//! Beside the number of its connections a counter holds which prefix its address belongs to: the
//! /24 of an IPv4 address, the /48 of an IPv6 address. That is how a full server finds out who
//! holds its places (`worker/places.rs`) without keeping an address for each connection.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_io::Peer;

/// The counters of all addresses.
#[derive(Debug)]
pub struct AddressCounts {
    key: RandomState,
    /// Made when the first address falls into one: a server with few clients needs few.
    pages: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

/// Where a connection is counted, if it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted(Option<NonZeroU32>);

impl Default for AddressCounts {
    fn default() -> AddressCounts {
        AddressCounts {
            key: RandomState::new(),
            pages: std::iter::repeat_with(OnceLock::new).take(PAGES).collect(),
        }
    }
}

impl AddressCounts {
    /// Counts one connection more, unless there are `connections_max` from this address already.
    pub(crate) fn enter(&self, address: IpAddr, connections_max: u32) -> Option<Counted> {
        let place = self.key.hash_one(network(address)) as usize % (PAGES * COUNTERS) + 1;
        let counted = Counted(NonZeroU32::new(place as u32));
        let prefix = self.key.hash_one(prefix(address)) << 32;
        let one_more = |before: u64| match before as u32 {
            count if count >= connections_max => None,
            // Addresses that share a counter have the prefix of the first.
            // mutation: one-prefix
            0 => Some(prefix | 1),
            _ => Some(before + 1),
        };
        let counter = self.counter(counted)?;
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(counted)
    }

    /// The holder of a connection that is counted there. `None`: it is not counted.
    pub(crate) fn holder(&self, counted: Counted) -> Option<Holder> {
        let address = counted.0?.get();
        let prefix = (self.counter(counted)?.load(Ordering::Relaxed) >> 32) as u32;
        Some(Holder { prefix, address })
    }

    /// Counts one connection less.
    pub(crate) fn leave(&self, counted: Counted) {
        if let Some(counter) = self.counter(counted) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn counter(&self, counted: Counted) -> Option<&AtomicU64> {
        let place = counted.0?.get() as usize - 1;
        let page = self.pages[place / COUNTERS]
            .get_or_init(|| std::iter::repeat_with(AtomicU64::default).take(COUNTERS).collect());
        Some(&page[place % COUNTERS])
    }
}

/// The clients that proxies have named, for connections that are not the client's own.
#[derive(Debug, Default)]
pub(crate) struct NamedClients(HashMap<Peer, IpAddr>);

impl NamedClients {
    /// A proxy has named the client of this connection, or it has none any more.
    pub(crate) fn set(&mut self, peer: Peer, client: Option<IpAddr>) {
        match client {
            Some(client) => drop(self.0.insert(peer, client.to_canonical())),
            // Most servers have none of them.
            None if self.0.is_empty() => {}
            None => drop(self.0.remove(&peer)),
        }
    }

    pub(crate) fn get(&self, peer: Peer) -> Option<IpAddr> {
        if self.0.is_empty() { None } else { self.0.get(&peer).copied() }
    }
}

/// The holder of a connection: a number for its prefix and one for its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder {
    pub(crate) prefix: u32,
    pub(crate) address: u32,
}

impl Counted {
    /// Whether it is counted.
    pub(crate) fn is_some(self) -> bool {
        self.0.is_some()
    }
}

/// A block of addresses that a provider gives to one customer: one client may have all of it.
fn prefix(address: IpAddr) -> (bool, u64) {
    match network(address) {
        (false, address) => (false, address >> 8),
        (true, network) => (true, network >> 16),
    }
}

/// What counts as one client.
fn network(address: IpAddr) -> (bool, u64) {
    match address.to_canonical() {
        IpAddr::V4(address) => (false, u64::from(address.to_bits())),
        IpAddr::V6(address) => (true, (address.to_bits() >> 64) as u64),
    }
}

/// Counters on two pages of memory, and how often: 2^20 counters, 8 MiB once all are in use.
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
        let addresses = AddressCounts::default();
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
        let addresses = AddressCounts::default();
        addresses.enter(ip("2001:db8:1:2::1"), 1).unwrap();
        assert!(addresses.enter(ip("2001:db8:1:2:ffff::9"), 1).is_none());
        addresses.enter(ip("2001:db8:1:3::1"), 1).unwrap();
    }

    #[test]
    fn an_address_belongs_to_a_prefix_as_long_as_it_has_connections() {
        let addresses = AddressCounts::default();
        let prefix_of = |text| {
            let counted = addresses.enter(ip(text), 9).unwrap();
            addresses.holder(counted).unwrap().prefix
        };
        for (same, other, different) in [
            ("192.0.2.1", "192.0.2.255", "192.0.3.1"),
            ("2001:db8:1::1", "2001:db8:1:ffff::1", "2001:db8:2::1"),
        ] {
            let prefix = prefix_of(same);
            assert_eq!(prefix_of(same), prefix);
            assert_eq!(prefix_of(other), prefix, "{other}");
            assert_ne!(prefix_of(different), prefix, "{different}");
        }
        let counted = addresses.enter(ip("198.51.100.1"), 9).unwrap();
        let holder = addresses.holder(counted);
        addresses.leave(counted);
        assert_eq!(addresses.holder(addresses.enter(ip("198.51.100.1"), 9).unwrap()), holder);
        assert_eq!(addresses.holder(Counted::default()), None);
    }

    /// Sharing a counter is rare: of some thousand addresses hardly any meets another.
    #[test]
    fn addresses_hardly_ever_share_a_counter() {
        let addresses = AddressCounts::default();
        let refused =
            (0..4_000_u32).filter(|&n| addresses.enter(IpAddr::V4(n.into()), 1).is_none()).count();
        assert!(refused < 60, "{refused}");
        // A page for each thousand counters that are in use, and no more.
        let pages = |addresses: &AddressCounts| {
            addresses.pages.iter().filter(|page| page.get().is_some()).count()
        };
        let quiet = AddressCounts::default();
        quiet.enter(ip("192.0.2.1"), 1).unwrap();
        assert_eq!(pages(&quiet), 1);
    }
}
