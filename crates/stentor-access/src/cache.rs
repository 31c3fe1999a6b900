//! Tokens that were verified before, so that a storm of reconnects does not verify them again.
//!
//! One cache serves all workers, for a client that comes back comes to any of them. It is divided
//! by the hash of the token into parts with a lock each, which is held for the time of one look-up.
//!
//! A token is known by a hash with a key of this process, of 128 bits: the token itself is not
//! kept, and nobody outside can find two that are taken for one another. Only what was granted is
//! kept. Whoever sends bad tokens has each of them verified, and pushes out nothing.
//!
//! What is kept is looked at again each time: its time may be over, and its key may be gone. When
//! the keys are replaced nothing is thrown away, for most replacements add a key or change none.
//!
//! A part is two tables: what is used goes to the newer one. When that is full it becomes the older
//! one, and what was in the older one, and not used since, is forgotten.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};

use crate::keys::{Grant, Keys};
use crate::permissions::Permissions;
use crate::refused::Refused;

/// Grants by token.
pub struct Cache {
    /// Makes hashes that nobody outside can foretell.
    secret: [u8; 32],
    parts: [Mutex<Part>; PARTS],
    permissions: Mutex<Shared>,
    part_bytes_max: usize,
}

/// The hash of a token.
type Name = [u8; 16];

#[derive(Default)]
struct Part {
    newer: Table,
    older: Table,
    newer_bytes: usize,
    older_bytes: usize,
}

type Table = HashMap<Name, Entry, BuildHasherDefault<FirstBytes>>;

struct Entry {
    grant: Arc<Grant>,
    /// The keys among which that of the grant was found last.
    generation: u64,
    /// What the permissions take, if nobody had the same before.
    own_bytes: usize,
}

/// Permissions that several grants have.
#[derive(Default)]
struct Shared {
    all: HashSet<Arc<Permissions>>,
    bytes: usize,
    /// When there are so many, those that nobody has any more are looked for.
    tidied_at: usize,
}

impl Cache {
    /// A cache that holds at most about so many bytes; 0: nothing.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers to give.
    pub fn new(bytes_max: usize) -> Result<Cache, String> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| format!("no random numbers: {error}"))?;
        Ok(Cache {
            secret,
            parts: Default::default(),
            permissions: Mutex::default(),
            part_bytes_max: bytes_max / PARTS,
        })
    }

    /// The grant of a token that was verified before, if its time is not over and its key is still
    /// there. `None`: [`Keys::verify`] has to say, which takes up to some 100 µs of CPU.
    #[must_use]
    pub fn get(&self, keys: &Keys, token: &str, now_unix_s: u64) -> Option<Arc<Grant>> {
        let name = self.name(token);
        let mut part = self.part(&name);
        let entry = match part.newer.get_mut(&name) {
            Some(entry) => entry,
            None => {
                let entry = part.older.remove(&name)?;
                part.older_bytes -= entry.bytes();
                part.add(name, entry, self.part_bytes_max)
            }
        };
        let is_there = entry.generation == keys.generation() || keys.has(entry.grant.key);
        if is_there && !entry.grant.has_expired(now_unix_s) {
            entry.generation = keys.generation();
            return Some(Arc::clone(&entry.grant));
        }
        let entry = part.newer.remove(&name)?;
        part.newer_bytes -= entry.bytes();
        None
    }

    /// Keeps what [`Keys::verify`] granted, and returns it as it is kept: with permissions that are
    /// shared by all grants that have the same.
    pub fn keep(&self, keys: &Keys, token: &str, grant: Arc<Grant>) -> Arc<Grant> {
        if self.part_bytes_max == 0 {
            return grant;
        }
        let (permissions, own_bytes) = lock(&self.permissions).share(&grant.permissions);
        let grant = match Arc::ptr_eq(&permissions, &grant.permissions) {
            true => grant,
            false => Arc::new(Grant { permissions, ..Grant::clone(&grant) }),
        };
        let name = self.name(token);
        let entry = Entry { grant: Arc::clone(&grant), generation: keys.generation(), own_bytes };
        self.part(&name).add(name, entry, self.part_bytes_max);
        grant
    }

    /// [`Cache::get`], else [`Keys::verify`] and [`Cache::keep`].
    ///
    /// # Errors
    ///
    /// As [`Keys::verify`].
    pub fn verify(&self, keys: &Keys, token: &str, now_unix_s: u64) -> Result<Arc<Grant>, Refused> {
        if let Some(grant) = self.get(keys, token, now_unix_s) {
            return Ok(grant);
        }
        let grant = keys.verify(token, now_unix_s)?;
        Ok(self.keep(keys, token, grant))
    }

    /// How many tokens it knows.
    #[must_use]
    pub fn count(&self) -> usize {
        let count = |part: &Mutex<Part>| {
            let part = lock(part);
            part.newer.len() + part.older.len()
        };
        self.parts.iter().map(count).sum()
    }

    /// What it holds, in bytes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes = |part: &Mutex<Part>| {
            let part = lock(part);
            part.newer_bytes + part.older_bytes
        };
        self.parts.iter().map(bytes).sum::<usize>() + lock(&self.permissions).bytes
    }

    fn name(&self, token: &str) -> Name {
        let mut hash = Context::new(&SHA256);
        hash.update(&self.secret);
        hash.update(token.as_bytes());
        *hash.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
    }

    /// The last byte chooses the part, the first ones a place in its tables.
    fn part(&self, name: &Name) -> MutexGuard<'_, Part> {
        lock(&self.parts[usize::from(name[15]) % PARTS])
    }
}

impl Part {
    /// Adds an entry to the newer table.
    fn add(&mut self, name: Name, entry: Entry, bytes_max: usize) -> &mut Entry {
        let bytes = entry.bytes();
        if self.newer_bytes + bytes > bytes_max / 2 {
            self.older = mem::take(&mut self.newer);
            self.older_bytes = mem::take(&mut self.newer_bytes);
        }
        if let Some(older) = self.older.remove(&name) {
            self.older_bytes -= older.bytes();
        }
        self.newer_bytes += bytes;
        if let Some(before) = self.newer.remove(&name) {
            self.newer_bytes -= before.bytes();
        }
        self.newer.entry(name).or_insert(entry)
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.grant.holder.len() + self.own_bytes
    }
}

impl Shared {
    /// The same permissions as all have them, and what they take if nobody had them before.
    fn share(&mut self, permissions: &Arc<Permissions>) -> (Arc<Permissions>, usize) {
        if let Some(shared) = self.all.get(permissions) {
            return (Arc::clone(shared), 0);
        }
        if self.all.len() >= self.tidied_at.max(SHARED_MIN) {
            self.all.retain(|shared| Arc::strong_count(shared) > 1);
            self.bytes = self.all.iter().map(|shared| shared_bytes(shared)).sum();
            self.tidied_at = self.all.len() * 2;
        }
        let bytes = shared_bytes(permissions);
        self.bytes += bytes;
        self.all.insert(Arc::clone(permissions));
        (Arc::clone(permissions), bytes)
    }
}

fn shared_bytes(permissions: &Permissions) -> usize {
    SHARED_BYTES + permissions.bytes()
}

/// A panic while a lock was held left nothing half done that matters: a count, at most.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names are hashes already.
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    /// The length of the array, which is the same for all.
    fn write_usize(&mut self, _: usize) {}
}

/// It shows how much there is, and nothing of what it is.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// A name and an entry in a table that is half empty; the grant, its holder's name and what the
/// allocator adds to each.
const ENTRY_BYTES: usize = 2 * (size_of::<Name>() + size_of::<Entry>()) + size_of::<Grant>() + 48;

/// The same of permissions.
const SHARED_BYTES: usize = 64;

const PARTS: usize = 16;

/// Fewer permissions than that are not worth looking through.
const SHARED_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mint::Signer;
    use crate::{Algorithm, Jwks, Settings, load};

    const NOW: u64 = 1_800_000_000;

    fn keys(signers: &[(&Signer, &str)]) -> Keys {
        let keys: Vec<String> = signers.iter().map(|(signer, kid)| signer.jwk(kid)).collect();
        let document = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        let jwks = Jwks::parse(document.as_bytes()).unwrap();
        load(&Settings::default(), &[jwks.into()]).unwrap().keys
    }

    fn token(signer: &Signer, kid: &str, sub: usize) -> String {
        let claims = format!(r#"{{"exp":1800000060,"sub":"{sub}","stentor":{{"read":["/a"]}}}}"#);
        signer.token(Some(kid), &claims)
    }

    #[test]
    fn what_was_verified_is_known_until_its_time_is_over() {
        let signer = Signer::new(Algorithm::Hs256);
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(1 << 20).unwrap());
        let token = token(&signer, "k", 1);
        assert!(cache.get(&keys, &token, NOW).is_none());
        let grant = cache.verify(&keys, &token, NOW).unwrap();
        assert!(Arc::ptr_eq(&grant, &cache.get(&keys, &token, NOW).unwrap()));
        assert!(cache.get(&keys, &token[..token.len() - 1], NOW).is_none());
        // The leeway of half a minute counts here as well.
        assert!(cache.get(&keys, &token, 1_800_000_089).is_some());
        assert!(cache.get(&keys, &token, 1_800_000_090).is_none());
        assert_eq!(cache.verify(&keys, &token, 1_800_000_090), Err(Refused::Expired));
        assert_eq!(cache.count(), 0);
    }

    #[test]
    fn when_keys_are_replaced_only_what_was_of_others_is_forgotten() {
        let (one, other) = (Signer::new(Algorithm::Hs256), Signer::new(Algorithm::Hs256));
        let cache = Cache::new(1 << 20).unwrap();
        let both = keys(&[(&one, "one"), (&other, "other")]);
        let tokens = [token(&one, "one", 1), token(&other, "other", 2)];
        for token in &tokens {
            cache.verify(&both, token, NOW).unwrap();
        }
        let left = keys(&[(&one, "one")]);
        assert!(cache.get(&left, &tokens[0], NOW).is_some());
        assert!(cache.get(&left, &tokens[1], NOW).is_none());
        assert_eq!(cache.verify(&left, &tokens[1], NOW), Err(Refused::UnknownKey));
        // The key comes back: its token is verified anew.
        assert!(cache.get(&both, &tokens[1], NOW).is_none());
        assert!(cache.verify(&both, &tokens[1], NOW).is_ok());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let signer = Signer::new(Algorithm::Hs256);
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(64 << 10).unwrap());
        let used = token(&signer, "k", 0);
        for sub in 0..2_000 {
            cache.verify(&keys, &token(&signer, "k", sub), NOW).unwrap();
            assert!(cache.get(&keys, &used, NOW).is_some(), "{sub}");
            assert!(cache.bytes() <= 66 << 10, "{}", cache.bytes());
        }
        assert!(cache.count() > 100);
        let none = Cache::new(0).unwrap();
        assert!(none.verify(&keys, &used, NOW).is_ok() && none.count() == 0);
    }

    #[test]
    fn permissions_count_as_what_they_take() {
        let signer = Signer::new(Algorithm::Hs256);
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(256 << 10).unwrap());
        let mut grants = Vec::new();
        for i in 0..1_000 {
            let names = (0..50).map(|n| format!(r#""/{i}/{n}""#)).collect::<Vec<_>>().join(",");
            let claims = format!(r#"{{"exp":1800000060,"stentor":{{"read":[{names}]}}}}"#);
            grants.push(cache.verify(&keys, &signer.token(Some("k"), &claims), NOW).unwrap());
        }
        let each = grants[0].permissions.bytes();
        assert!(each > 300 && cache.count() * each < 256 << 10, "{} of {each}", cache.count());
    }

    #[test]
    fn a_flood_of_bad_tokens_pushes_out_nothing() {
        let (signer, thief) = (Signer::new(Algorithm::Hs256), Signer::new(Algorithm::Hs256));
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(64 << 10).unwrap());
        let good = token(&signer, "k", 0);
        cache.verify(&keys, &good, NOW).unwrap();
        let bytes = cache.bytes();
        for sub in 0..5_000 {
            assert!(cache.verify(&keys, &token(&thief, "k", sub), NOW).is_err());
        }
        assert!(cache.get(&keys, &good, NOW).is_some());
        assert_eq!((cache.count(), cache.bytes()), (1, bytes));
    }

    #[test]
    fn the_same_permissions_are_kept_once() {
        let signer = Signer::new(Algorithm::Hs256);
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(1 << 20).unwrap());
        let grant = |sub| cache.verify(&keys, &token(&signer, "k", sub), NOW).unwrap();
        let (one, other) = (grant(1), grant(2));
        assert!(Arc::ptr_eq(&one.permissions, &other.permissions));
        assert_ne!(one.holder, other.holder);
        // Those that nobody has any more are forgotten.
        let of_own = |i: usize| {
            let claims = format!(r#"{{"exp":1800000060,"stentor":{{"read":["/{i}"]}}}}"#);
            signer.token(Some("k"), &claims)
        };
        let small = Cache::new(16 << 10).unwrap();
        for i in 0..5_000 {
            small.verify(&keys, &of_own(i), NOW).unwrap();
        }
        assert!(small.bytes() < 48 << 10, "{}", small.bytes());
    }
}
