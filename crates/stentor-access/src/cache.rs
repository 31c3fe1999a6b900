//! Tokens that were verified before, so that a storm of reconnects does not verify them again.
//!
//! One cache serves all workers, for a client that comes back comes to any of them. It is divided
//! into parts with a lock each, which is held for the time of one look-up.
//!
//! A token is known by a hash with a key of this process, of 128 bits: the token itself is not
//! kept, and nobody outside can find two that are taken for one another. Only what was granted is
//! kept. Whoever sends bad tokens has each of them verified, and pushes out nothing.
//!
//! What is kept is checked again each time: its time may be over, its key may be gone, and settings
//! may not allow its origin any more. When the keys are replaced nothing is thrown away, for most
//! replacements add a key or change none.
//!
//! A part is two lists: what is used goes to the newer one. When that is full it becomes the older
//! one, and what was in the older one, and not used since, is forgotten. There may be a million
//! tokens, so nothing is left empty for the sake of looking up: lists are in order, they are
//! searched by halves, and they grow by an eighth. Parts are small enough that to make room in one
//! moves some ten kilobytes.
//!
//! What tokens grant is kept once for all that grant the same, in such lists as well.
//!
//! The crate quick_cache takes 78 to 115 bytes for such an entry, this cache 40 to 45. There may be
//! a million tokens.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};

use crate::grant::{Grant, Scope};
use crate::keys::Keys;
use crate::refused::Refused;

/// Grants by token.
pub struct Cache {
    /// Makes hashes that nobody outside can foretell.
    secret: [u8; 32],
    parts: Box<[Mutex<Shard>]>,
    part_bytes_max: usize,
    scopes: Box<[Mutex<Scopes>]>,
    hasher: RandomState,
}

/// The hash of a token.
type TokenHash = u128;

#[derive(Default)]
struct Shard {
    /// In the order of their names.
    newer: Vec<CachedToken>,
    older: Vec<CachedToken>,
    newer_bytes: usize,
}

struct CachedToken {
    name: TokenHash,
    scope: Scope,
    /// [`NEVER`] if its time is not over as long as its key is good.
    expires_unix_s: u32,
    /// What the scope takes, if nobody had the same before.
    own_bytes: u32,
}

/// What tokens grant, and readers have, in order.
#[derive(Default)]
struct Scopes {
    all: Vec<Scope>,
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
        let parts = (bytes_max / PART_BYTES).max(1);
        Ok(Cache {
            secret,
            parts: (0..parts).map(|_| Mutex::default()).collect(),
            part_bytes_max: bytes_max / parts,
            scopes: (0..parts).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        })
    }

    /// The grant of a token that was verified before, if its time is not over and its key is still
    /// there. `None`: [`Keys::verify`] has to say, which takes up to some 100 µs of CPU.
    #[must_use]
    pub fn get(&self, keys: &Keys, token: &str, now_unix_s: u64) -> Option<Grant> {
        let name = self.name(token);
        let mut part = self.part(name);
        let at = match find(&part.newer, name) {
            Ok(at) => at,
            Err(_) => {
                let at = find(&part.older, name).ok()?;
                let entry = part.older.remove(at);
                part.add(entry, self.part_bytes_max)
            }
        };
        let grant = part.newer[at].grant();
        if keys.check(&grant.scope, grant.expires_unix_s, now_unix_s).is_ok() {
            return Some(grant);
        }
        part.remove(at);
        None
    }

    /// Keeps what [`Keys::verify`] granted, and returns it as it is kept: with a scope that is
    /// shared by all grants that have the same.
    pub fn keep(&self, token: &str, grant: Grant) -> Grant {
        let (scope, is_new) = self.share(grant.scope);
        let grant = Grant { scope, ..grant };
        if self.part_bytes_max > 0 {
            let own_bytes = if is_new { bytes_of(&grant.scope) } else { 0 };
            let entry = CachedToken::new(self.name(token), &grant, own_bytes);
            self.part(entry.name).add(entry, self.part_bytes_max);
        }
        grant
    }

    /// [`Cache::get`], else [`Keys::verify`] and [`Cache::keep`].
    ///
    /// # Errors
    ///
    /// As [`Keys::verify`].
    pub fn verify(&self, keys: &Keys, token: &str, now_unix_s: u64) -> Result<Grant, Refused> {
        if let Some(grant) = self.get(keys, token, now_unix_s) {
            return Ok(grant);
        }
        Ok(self.keep(token, keys.verify(token, now_unix_s)?))
    }

    /// The same scope as all have it, and whether nobody had it before.
    pub fn share(&self, scope: Scope) -> (Scope, bool) {
        let part = self.hasher.hash_one(&scope) as usize % self.scopes.len();
        lock(&self.scopes[part]).share(scope)
    }

    /// How many tokens it knows.
    #[must_use]
    pub fn count(&self) -> usize {
        let count = |part: &Mutex<Shard>| {
            let part = lock(part);
            part.newer.len() + part.older.len()
        };
        self.parts.iter().map(count).sum()
    }

    /// What it holds, in bytes, as the allocator is asked for them, which rounds them up.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_part = |part: &Mutex<Shard>| {
            let part = lock(part);
            (part.newer.capacity() + part.older.capacity()) * size_of::<CachedToken>()
        };
        let of_scopes = |scopes: &Mutex<Scopes>| {
            let all = &lock(scopes).all;
            all.capacity() * size_of::<Scope>() + all.iter().map(Scope::bytes).sum::<usize>()
        };
        self.parts.iter().map(of_part).sum::<usize>()
            + self.scopes.iter().map(of_scopes).sum::<usize>()
    }

    fn name(&self, token: &str) -> TokenHash {
        let mut hash = Context::new(&SHA256);
        hash.update(&self.secret);
        hash.update(token.as_bytes());
        let hash = hash.finish();
        TokenHash::from_le_bytes(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// The last bits choose the part, the first ones a place in its lists.
    fn part(&self, name: TokenHash) -> MutexGuard<'_, Shard> {
        lock(&self.parts[name as u64 as usize % self.parts.len()])
    }
}

impl Shard {
    /// Adds an entry to the newer list, in place of one of its name, and says where it is.
    fn add(&mut self, entry: CachedToken, bytes_max: usize) -> usize {
        let bytes = entry.bytes();
        if self.newer_bytes + bytes > bytes_max / 2 {
            self.older = mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        if let Ok(before) = find(&self.older, entry.name) {
            self.older.remove(before);
        }
        if let Ok(before) = find(&self.newer, entry.name) {
            self.remove(before);
        }
        self.newer_bytes += bytes;
        let at = find(&self.newer, entry.name).unwrap_or_else(|at| at);
        insert(&mut self.newer, at, entry);
        at
    }

    fn remove(&mut self, at: usize) {
        self.newer_bytes -= self.newer.remove(at).bytes();
    }
}

impl CachedToken {
    fn new(name: TokenHash, grant: &Grant, own_bytes: usize) -> CachedToken {
        let Grant { scope, expires_unix_s } = grant;
        let last = u64::from(NEVER) - 1;
        CachedToken {
            name,
            scope: scope.clone(),
            expires_unix_s: expires_unix_s.map_or(NEVER, |expires| expires.min(last) as u32),
            own_bytes: own_bytes as u32,
        }
    }

    fn grant(&self) -> Grant {
        let expires = self.expires_unix_s;
        let expires_unix_s = (expires != NEVER).then_some(u64::from(expires));
        Grant { scope: self.scope.clone(), expires_unix_s }
    }

    fn bytes(&self) -> usize {
        size_of::<CachedToken>() * 9 / 8 + self.own_bytes as usize
    }
}

impl Scopes {
    fn share(&mut self, scope: Scope) -> (Scope, bool) {
        let at = match self.all.binary_search(&scope) {
            // mutation: scope-per-token
            Ok(at) => return (self.all[at].clone(), false),
            Err(at) if self.all.len() < self.tidied_at.max(SCOPES_MIN) => at,
            Err(_) => {
                self.all.retain(|scope| !scope.is_alone());
                self.tidied_at = self.all.len() * 2;
                // mutation: scope-out-of-order
                self.all.partition_point(|other| *other < scope)
            }
        };
        insert(&mut self.all, at, scope.clone());
        (scope, true)
    }
}

/// What a scope takes, its place in a list and what the allocator adds included.
fn bytes_of(scope: &Scope) -> usize {
    scope.bytes() + 2 * size_of::<Scope>() + ALLOCATION_BYTES
}

fn find(entries: &[CachedToken], name: TokenHash) -> Result<usize, usize> {
    entries.binary_search_by_key(&name, |entry| entry.name)
}

/// Lists do not double: of a million entries half would be empty.
fn insert<T>(list: &mut Vec<T>, at: usize, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 1);
    }
    list.insert(at, item);
}

/// A panic while a lock was held left nothing half done that matters: a count, at most.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It shows how much there is, and nothing of what it is.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// Stands for a time that does not come. Others are in seconds, and in 32 bits, which last until
/// 2106.
const NEVER: u32 = u32::MAX;

/// What an allocator adds to an allocation, rounding included.
const ALLOCATION_BYTES: usize = 16;

/// A list of half of that is searched and moved in about a microsecond.
const PART_BYTES: usize = 256 << 10;

/// Fewer scopes than that are not worth looking through.
const SCOPES_MIN: usize = 16;

// What a token is that is remembered, beside its scope.
const _: () = assert!(size_of::<CachedToken>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mint::Signer;
    use crate::{Algorithm, Jwks, Settings, load};
    use stentor_io::read_file;

    const NOW: u64 = 1_800_000_000;

    fn keys(signers: &[(&Signer, &str)]) -> Keys {
        let keys: Vec<String> = signers.iter().map(|(signer, kid)| signer.jwk(kid)).collect();
        let document = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        let jwks = Jwks::parse(document.as_bytes()).unwrap();
        load(&Settings::default(), &[jwks.into()], read_file).unwrap().keys
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
        assert_eq!(cache.get(&keys, &token, NOW).as_ref(), Some(&grant));
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
        let each = grants[0].scope.bytes();
        assert!(each > 300 && cache.count() * each < 256 << 10, "{} of {each}", cache.count());
    }

    /// What a token takes that allows what no other does: an entry, a scope of its own, and that
    /// scope's place in a list. The eighths are what lists have room for beside that.
    #[test]
    fn a_token_with_permissions_of_its_own_takes_few_bytes() {
        const TOKENS: usize = 10_000;
        let signer = Signer::new(Algorithm::Hs256);
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(64 << 20).unwrap());
        let empty = cache.bytes();
        let mut of_scopes = 0;
        for n in 10_000..10_000 + TOKENS {
            let lists = format!(r#"{{"read":["/team/plan","/team/of/{n}"]}}"#);
            let claims = format!(r#"{{"exp":1800000060,"sub":"reader-{n}","stentor":{lists}}}"#);
            let grant = cache.verify(&keys, &signer.token(Some("k"), &claims), NOW).unwrap();
            of_scopes += grant.scope.bytes();
        }
        // A count, a key, a length; two patterns and one byte between them; the origin, which is
        // an algorithm without names; one byte between the three parts.
        assert_eq!(of_scopes, TOKENS * (8 + 8 + 8 + 10 + 1 + 14 + 7 + 2));
        let places = size_of::<CachedToken>() + size_of::<Scope>();
        let bytes = cache.bytes() - empty - of_scopes;
        assert_eq!(places, 40);
        assert!(bytes <= TOKENS * places * 9 / 8 + 2 * 256 * places, "{}", bytes / TOKENS);
        assert_eq!(cache.count(), TOKENS);
    }

    /// Lists are in order, whoever came first, and each is found where it is.
    #[test]
    fn everything_is_found_in_a_list_that_is_in_order() {
        let signer = Signer::new(Algorithm::Hs256);
        let (keys, cache) = (keys(&[(&signer, "k")]), Cache::new(1 << 20).unwrap());
        let tokens: Vec<String> = (0..1_000).map(|sub| token(&signer, "k", sub)).collect();
        for round in 0..2 {
            for token in &tokens {
                assert_eq!(cache.get(&keys, token, NOW).is_some(), round > 0);
                // Two workers may have verified the same one.
                cache.keep(token, keys.verify(token, NOW).unwrap());
            }
        }
        assert_eq!(cache.count(), tokens.len());
        for part in &cache.parts {
            let part = lock(part);
            assert!(part.newer.is_sorted_by(|one, other| one.name < other.name));
            assert_eq!(part.newer_bytes, part.newer.iter().map(CachedToken::bytes).sum::<usize>());
        }
        for scopes in &cache.scopes {
            assert!(lock(scopes).all.is_sorted_by(|one, other| one < other));
        }
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
        assert!(one.scope.is_shared_with(&other.scope));
        let counted: usize = cache.parts.iter().map(|part| lock(part).newer_bytes).sum();
        let own = size_of::<CachedToken>() * 9 / 8;
        assert_eq!(counted, 2 * own + bytes_of(&one.scope), "the scope counts once");
        // Its places in two lists, and what the allocator adds.
        assert_eq!(bytes_of(&one.scope), one.scope.bytes() + 16 + 16);
        // Those that nobody has any more are forgotten.
        let of_own = |i: usize| {
            let claims = format!(r#"{{"exp":1800000060,"stentor":{{"read":["/{i}"]}}}}"#);
            signer.token(Some("k"), &claims)
        };
        let small = Cache::new(16 << 10).unwrap();
        for i in 0..5_000 {
            small.verify(&keys, &of_own(i), NOW).unwrap();
            assert!(lock(&small.scopes[0]).all.is_sorted_by(|one, other| one < other));
        }
        assert!(small.bytes() < 48 << 10, "{}", small.bytes());
    }

    #[test]
    fn all_parts_share_the_memory_limit() {
        for parts in [1, 2, 40] {
            let cache = Cache::new(parts * PART_BYTES).unwrap();
            assert_eq!(cache.parts.len(), parts);
            assert_eq!(cache.part_bytes_max * parts, parts * PART_BYTES);
        }
    }
}
