//! What the readers of a worker were let in by: beside their records, and only for those who
//! brought a token.
//!
//! A reader has what its token grants and a time, sixteen bytes. Whoever holds tokens of the same
//! permissions, signed with the same key, shares what they grant, which goes with the last who has
//! it. The time is in seconds, and in 32 bits, which last until 2106.

use stentor_access::{Grant, Keys, Refused, Scope};
use stentor_io::Peer;
use stentor_io::Slab;

/// Passes by connection.
#[derive(Debug)]
pub(crate) struct Passes {
    held: Slab<Held>,
    count: usize,
}

/// What one connection has.
#[derive(Debug)]
struct Held {
    /// `None` if it has no pass.
    scope: Option<Scope>,
    /// [`NEVER`] if its time is not over as long as its key is good.
    expires_unix_s: u32,
}

/// A pass, to be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) scope: &'a Scope,
    /// `None`: its time does not end.
    pub(crate) expires_unix_s: Option<u64>,
}

impl Pass<'_> {
    /// What the token granted.
    pub(crate) fn grant(&self) -> Grant {
        Grant { scope: self.scope.clone(), expires_unix_s: self.expires_unix_s }
    }

    /// Whether its token is still valid.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn check(&self, keys: &Keys, unix_s: u64) -> Result<(), Refused> {
        keys.check(self.scope, self.expires_unix_s, unix_s)
    }
}

impl Passes {
    pub(crate) fn new() -> Passes {
        Passes { held: Slab::default(), count: 0 }
    }

    /// Gives a connection a pass, in place of the one it had.
    pub(crate) fn give(&mut self, peer: Peer, grant: &Grant) {
        let last = u64::from(NEVER) - 1;
        let expires = grant.expires_unix_s.map_or(u64::from(NEVER), |expires| expires.min(last));
        let held = self.held.grow(peer.index());
        // mutation: permission-counted
        self.count += usize::from(held.scope.is_none());
        // mutation: permission-expiry
        *held = Held { scope: Some(grant.scope.clone()), expires_unix_s: expires as u32 };
    }

    /// The connection has no pass any more.
    pub(crate) fn take(&mut self, peer: Peer) {
        let held = self.held.at(peer.index());
        self.count -= usize::from(held.is_some_and(|held| held.scope.take().is_some()));
    }

    /// What a connection has.
    pub(crate) fn get(&self, peer: Peer) -> Option<Pass<'_>> {
        let held = self.held.get(peer.index())?;
        let expires = held.expires_unix_s;
        let expires_unix_s = (expires != NEVER).then_some(u64::from(expires));
        Some(Pass { scope: held.scope.as_ref()?, expires_unix_s })
    }

    /// How many connections have one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Panics if others have a pass than those who say so. `has` tells who does.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, has: &dyn Fn(usize) -> bool) {
        let mut count = 0;
        for index in self.held.indices() {
            let holds = self.held.get(index).is_some_and(|held| held.scope.is_some());
            assert_eq!(holds, has(index), "the pass of connection {index}");
            count += usize::from(holds);
        }
        assert_eq!(self.count, count);
    }
}

impl Default for Held {
    fn default() -> Held {
        Held { scope: None, expires_unix_s: NEVER }
    }
}

/// Stands for a time that does not come.
const NEVER: u32 = u32::MAX;

// What a pass costs a reader, beside what its token grants.
const _: () = assert!(size_of::<Held>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::sight::SightOf;
    use stentor_access::TopicRules;
    use stentor_access::{Patterns, Permissions, Secret, Settings, StaticToken, load};
    use stentor_io::read_file;

    /// Grants of two tokens, the first of them twice.
    fn grants() -> Vec<Grant> {
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
        let keys = load(&Settings { tokens, ..Settings::default() }, &[], read_file).unwrap().keys;
        [0, 0, 1].map(|which: usize| keys.verify(secrets[which].as_str(), 0).unwrap()).to_vec()
    }

    /// What was gathered for one reader is sent to others who may see the same, and to no other.
    #[test]
    fn sights_are_alike_if_the_same_is_granted() {
        let (grants, rules, mut passes) = (grants(), TopicRules::default(), Passes::new());
        for (index, grant) in (0..).zip(&grants) {
            passes.give(Peer::from_index(index), grant);
        }
        let kind = |index| SightOf::new(&rules, passes.get(Peer::from_index(index))).kind();
        assert_eq!((kind(0), kind(3)), (kind(1), kind(4)));
        assert!(kind(0) != kind(2) && kind(0) != kind(3) && kind(3) != SightOf::ALL.kind());
    }

    #[test]
    fn a_pass_is_there_until_it_is_taken() {
        let grants = grants();
        let mut passes = Passes::new();
        let peer = Peer::from_index;
        for (index, grant) in (0..).zip(&grants) {
            passes.give(peer(index), grant);
        }
        let scope = |passes: &Passes, index| passes.get(peer(index)).map(|pass| pass.scope.clone());
        let shared = scope(&passes, 0).unwrap();
        assert!(shared.is_shared_with(&scope(&passes, 1).unwrap()));
        assert!(scope(&passes, 2).unwrap().may_read("/b/x") && !shared.may_read("/b/x"));
        passes.check(&|index| index < 3);
        // A pass takes the place of the one before.
        passes.give(peer(2), &grants[0]);
        assert_eq!((passes.count(), scope(&passes, 2)), (3, Some(shared)));
        passes.check(&|index| index < 3);
        for index in 0..3 {
            passes.take(peer(index));
            passes.take(peer(index));
            assert!(passes.get(peer(index)).is_none());
        }
        assert_eq!(passes.count(), 0);
        passes.take(peer(1 << 20));
        passes.check(&|_| false);
        passes.give(peer(7), &Grant { expires_unix_s: None, ..grants[2].clone() });
        assert_eq!(passes.get(peer(7)).unwrap().expires_unix_s, None);
        passes.give(peer(7), &grants[2]);
        passes.check(&|index| index == 7);
        assert_eq!(passes.get(peer(7)).unwrap().expires_unix_s, Some(9));
    }
}
