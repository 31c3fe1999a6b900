//! What the readers of a worker were let in by: beside their records, and only for those who
//! brought a token.
//!
//! A reader has the number of a set of permissions and a time, eight bytes. Whoever holds tokens of
//! the same permissions, signed with the same key, shares the set. It is counted, and goes with the
//! last who has it. The time is in seconds, and in 32 bits, which last until 2106.

use crate::slab::Slab;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use stentor_access::{Grant, KeyId, Permissions};
use stentor_io::Peer;

/// Passes by connection.
#[derive(Debug)]
pub(crate) struct Passes {
    held: Slab<Held>,
    sets: Slab<Set>,
    vacant: Vec<u32>,
    /// How many sets there ever were at once.
    used: u32,
    /// How many were ever made.
    made: u32,
    by_content: HashTable<u32>,
    hasher: RandomState,
    count: usize,
}

/// What one connection has.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// [`NONE`] if it has no pass.
    set: u32,
    /// [`NEVER`] if its time is not over as long as its key is good.
    expires_unix_s: u32,
}

/// What all tokens of the same key and permissions grant.
#[derive(Debug, Default)]
struct Set {
    content: Option<(Arc<Permissions>, KeyId)>,
    count: u32,
    /// Which of all sets that there ever were.
    serial: u32,
}

/// A pass, to be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    /// Tells the set from all others, also those that are no more: what was gathered for these is
    /// not for it.
    pub(crate) serial: u32,
    pub(crate) permissions: &'a Arc<Permissions>,
    pub(crate) key: KeyId,
    /// `None`: its time does not end.
    pub(crate) expires_unix_s: Option<u64>,
}

impl Pass<'_> {
    /// What a token granted, apart from who holds it.
    pub(crate) fn grant(&self) -> Grant {
        let Pass { permissions, key, expires_unix_s, .. } = *self;
        Grant { permissions: Arc::clone(permissions), expires_unix_s, holder: "".into(), key }
    }

    /// Whether its time is over.
    pub(crate) fn has_expired(&self, unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|expires| unix_s >= expires)
    }
}

impl Passes {
    pub(crate) fn new() -> Passes {
        Passes {
            held: Slab::new(),
            sets: Slab::new(),
            vacant: Vec::new(),
            used: 0,
            made: 0,
            by_content: HashTable::new(),
            hasher: RandomState::default(),
            count: 0,
        }
    }

    /// Gives a connection a pass, in place of the one it had.
    pub(crate) fn give(&mut self, peer: Peer, grant: &Grant) {
        self.put(peer, &grant.permissions, grant.key, grant.expires_unix_s);
    }

    /// The same, of its parts.
    pub(crate) fn put(
        &mut self,
        peer: Peer,
        permissions: &Arc<Permissions>,
        key: KeyId,
        expires_unix_s: Option<u64>,
    ) {
        // The new one first: if it is the same set, that stays.
        let set = self.enter(permissions, key);
        self.take(peer);
        let last = u64::from(NEVER) - 1;
        let expires = expires_unix_s.map_or(u64::from(NEVER), |expires| expires.min(last));
        *self.held.grow(peer.index()) = Held { set, expires_unix_s: expires as u32 };
        self.count += 1;
    }

    /// The connection has no pass any more.
    pub(crate) fn take(&mut self, peer: Peer) {
        let Some(held) = self.held.at(peer.index()) else { return };
        let set = std::mem::take(held).set;
        if set == NONE {
            return;
        }
        self.count -= 1;
        let Some(entry) = self.sets.at(set as usize) else { return };
        entry.count -= 1;
        if entry.count > 0 {
            return;
        }
        if let Some((permissions, key)) = entry.content.take() {
            let hash = self.hash(&permissions, key);
            if let Ok(found) = self.by_content.find_entry(hash, |&other| other == set) {
                found.remove();
            }
            self.vacant.push(set);
        }
    }

    /// What a connection has.
    pub(crate) fn get(&self, peer: Peer) -> Option<Pass<'_>> {
        let held = self.held.get(peer.index()).filter(|held| held.set != NONE)?;
        let set = self.sets.get(held.set as usize)?;
        let (permissions, key) = set.content.as_ref()?;
        let expires = held.expires_unix_s;
        let expires_unix_s = (expires != NEVER).then_some(u64::from(expires));
        Some(Pass { serial: set.serial, permissions, key: *key, expires_unix_s })
    }

    /// How many connections have one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many sets of permissions they share.
    pub(crate) fn sets(&self) -> usize {
        self.by_content.len()
    }

    fn enter(&mut self, permissions: &Arc<Permissions>, key: KeyId) -> u32 {
        let hash = self.hash(permissions, key);
        let Passes { sets, by_content, .. } = self;
        let is_same = |&set: &u32| {
            let content = sets.get(set as usize).and_then(|entry| entry.content.as_ref());
            content.is_some_and(|(other, of)| *of == key && **other == **permissions)
        };
        if let Some(&set) = by_content.find(hash, is_same) {
            if let Some(entry) = self.sets.at(set as usize) {
                entry.count += 1;
            }
            return set;
        }
        let set = self.vacant.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        self.made = self.made.wrapping_add(1);
        let content = Some((Arc::clone(permissions), key));
        *self.sets.grow(set as usize) = Set { content, count: 1, serial: self.made };
        let Passes { sets, by_content, hasher, .. } = self;
        by_content.insert_unique(hash, set, |&set| {
            let content = sets.get(set as usize).and_then(|entry| entry.content.as_ref());
            content.map_or(0, |(permissions, key)| hash_of(hasher, permissions, *key))
        });
        set
    }

    fn hash(&self, permissions: &Permissions, key: KeyId) -> u64 {
        hash_of(&self.hasher, permissions, key)
    }

    /// Panics if the sets are not those that connections have. `has` tells who says it has one.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self, has: &dyn Fn(usize) -> bool) {
        let mut counts = std::collections::HashMap::<u32, u32>::new();
        for index in self.held.indices() {
            let set = self.held.get(index).map_or(NONE, |held| held.set);
            assert_eq!(set != NONE, has(index), "the pass of connection {index}");
            if set != NONE {
                *counts.entry(set).or_default() += 1;
            }
        }
        let held: u32 = counts.values().sum();
        assert_eq!((self.count, self.by_content.len()), (held as usize, counts.len()));
        for (set, count) in counts {
            let entry = self.sets.get(set as usize);
            assert_eq!(entry.map(|entry| entry.count), Some(count), "set {set}");
            assert!(entry.is_some_and(|entry| entry.content.is_some()), "set {set} is empty");
        }
        assert_eq!(self.vacant.len() + self.by_content.len(), self.used as usize);
    }
}

fn hash_of(hasher: &RandomState, permissions: &Permissions, key: KeyId) -> u64 {
    let mut state = hasher.build_hasher();
    permissions.hash(&mut state);
    key.hash(&mut state);
    state.finish()
}

impl Default for Held {
    fn default() -> Held {
        Held { set: NONE, expires_unix_s: NEVER }
    }
}

/// No set has this number.
const NONE: u32 = u32::MAX;

/// Stands for a time that does not come.
const NEVER: u32 = u32::MAX;

// What a pass costs a reader who shares its set, and one who does not.
const _: () = assert!(size_of::<Held>() == 8 && size_of::<Set>() == 24);

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_access::{Patterns, Secret, Settings, StaticToken, load};

    /// Grants of two tokens, the first of them twice.
    fn grants() -> Vec<Arc<Grant>> {
        let secrets = [Secret::make().unwrap(), Secret::make().unwrap()];
        let token = |secret: &Secret, read: &str| StaticToken {
            name: read.to_owned(),
            sha256: secret.sha256(),
            permissions: Permissions {
                read: Patterns::parse([read]).unwrap(),
                ..Permissions::default()
            },
            expires_unix_s: Some(9),
        };
        let tokens = vec![token(&secrets[0], "/a/*"), token(&secrets[1], "/b/*")];
        let keys = load(&Settings { tokens, ..Settings::default() }, &[]).unwrap().keys;
        [0, 0, 1].map(|which: usize| keys.verify(secrets[which].as_str(), 0).unwrap()).to_vec()
    }

    #[test]
    fn whoever_has_the_same_permissions_shares_them() {
        let grants = grants();
        let mut passes = Passes::new();
        let peer = Peer::from_index;
        for (index, grant) in (0..).zip(&grants) {
            passes.give(peer(index), grant);
        }
        assert_eq!((passes.count(), passes.sets()), (3, 2));
        let set = |passes: &Passes, index| passes.get(peer(index)).map(|pass| pass.serial);
        assert_eq!(set(&passes, 0), set(&passes, 1));
        assert_ne!(set(&passes, 0), set(&passes, 2));
        assert!(passes.get(peer(2)).unwrap().permissions.may_read("/b/x"));
        passes.check(&|index| index < 3);
        // A pass takes the place of the one before.
        passes.give(peer(2), &grants[0]);
        assert_eq!((passes.count(), passes.sets()), (3, 1));
        passes.give(peer(2), &grants[0]);
        passes.check(&|index| index < 3);
        for index in 0..3 {
            passes.take(peer(index));
            passes.take(peer(index));
            assert!(passes.get(peer(index)).is_none());
        }
        assert_eq!((passes.count(), passes.sets()), (0, 0));
        passes.check(&|_| false);
        passes.give(peer(7), &grants[2]);
        assert!(set(&passes, 7) > Some(2), "what was gathered for another set is not for this one");
        passes.check(&|index| index == 7);
        assert!(passes.get(peer(7)).unwrap().has_expired(9));
        assert!(!passes.get(peer(7)).unwrap().has_expired(8));
    }
}
