//! Which tokens are good: all keys at once, replaced as a whole.
//!
//! What is verified depends on nothing but the keys, the token and the time. A key is known by what
//! it is ([`KeyId`]): the same key is the same after a reload, and a static token whose permissions
//! have changed is another one. A [`Grant`] has all that settings ask of its token, so other keys
//! and settings check it as they would check the token, without the token ([`Keys::check`]).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA256};

use crate::TOKEN_BYTES_MAX;
use crate::grant::{Grant, Scope};
use crate::jwt::{self, Issuers, Why};
use crate::origin::TokenOrigin;
use crate::permissions::Permissions;
use crate::refused::Refused;
use crate::secret::{self, StaticToken};

/// A key, or a static token, as it is configured: the beginning of a hash over all of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(u64);

/// Which tokens are good.
#[derive(Clone, Debug)]
pub struct Keys {
    statics: StaticTokens,
    issuers: Arc<Issuers>,
    ids: HashSet<KeyId, BuildHasherDefault<ItsOwnHash>>,
    /// A document of an issuer has never been fetched: it may have any key.
    is_outstanding: bool,
}

/// Tokens of the configuration, by the beginning of the secret's hash.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaticTokens(Arc<HashMap<[u8; 8], Static>>);

/// A good token: what it grants, and who holds it, for the log: the name of a static token, or
/// `sub`, without anything that does not belong in a line, and not long.
pub(crate) struct Known {
    pub(crate) grant: Grant,
    pub(crate) holder: String,
}

#[derive(Clone, Debug)]
struct Static {
    sha256: [u8; 32],
    grant: Grant,
    holder: String,
}

impl Keys {
    /// No token is good.
    #[must_use]
    pub fn none() -> Keys {
        Keys::new(&StaticTokens::default(), Issuers::default(), false)
    }

    pub(crate) fn new(statics: &StaticTokens, issuers: Issuers, is_outstanding: bool) -> Keys {
        let of_statics = statics.0.values().map(|held| held.grant.scope.key());
        let ids = of_statics.chain(issuers.ids()).collect();
        Keys { statics: statics.clone(), issuers: Arc::new(issuers), ids, is_outstanding }
    }

    /// Whether a document of an issuer has never been fetched, so its keys are not known.
    #[must_use]
    pub fn is_outstanding(&self) -> bool {
        self.is_outstanding
    }

    /// Whether no token at all is good.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether a key is among them, or may be in a document that has never been fetched.
    #[must_use]
    pub fn has(&self, key: KeyId) -> bool {
        // mutation: judged-by-part
        self.ids.contains(&key) || self.is_outstanding && key.is_of_jwt()
    }

    /// Whether the token of a grant is valid by these keys and settings, at this time. It was
    /// verified before. A key that is not known may be in a document that was never fetched.
    ///
    /// # Errors
    ///
    /// Why it is not valid.
    pub fn check(
        &self,
        scope: &Scope,
        expires_unix_s: Option<u64>,
        now_unix_s: u64,
    ) -> Result<(), Refused> {
        if self.has_expired(scope, expires_unix_s, now_unix_s) {
            return Err(Refused::Expired);
        }
        if !self.has(scope.key()) {
            return Err(Refused::UnknownKey);
        }
        match scope.origin() {
            "" => Ok(()),
            origin => self.issuers.check(scope.key(), TokenOrigin::parse(origin), expires_unix_s),
        }
    }

    /// The end of a grant's time, with the leeway for the clocks of issuers.
    #[must_use]
    pub fn end_unix_s(&self, scope: &Scope, expires_unix_s: Option<u64>) -> Option<u64> {
        let leeway_s = if scope.origin().is_empty() { 0 } else { self.issuers.leeway_s() };
        expires_unix_s.map(|expires| expires.saturating_add(leeway_s))
    }

    /// Whether a grant's time is over.
    #[must_use]
    pub fn has_expired(&self, scope: &Scope, expires_unix_s: Option<u64>, now_unix_s: u64) -> bool {
        self.end_unix_s(scope, expires_unix_s).is_some_and(|end| now_unix_s >= end)
    }

    /// What a token grants at this time.
    ///
    /// # Errors
    ///
    /// Why it is not good.
    pub fn verify(&self, token: &str, now_unix_s: u64) -> Result<Grant, Refused> {
        self.examine(token, now_unix_s).map(|known| known.grant).map_err(|why| why.refused)
    }

    /// Who holds a token that is good, as a line of the log may have it.
    #[must_use]
    pub fn holder(&self, token: &str, now_unix_s: u64) -> Option<String> {
        self.examine(token, now_unix_s).ok().map(|known| known.holder)
    }

    /// The same of a token that was good and is not there any more: by the key of its grant, and
    /// by its claims ([`claims_of`](crate::claims_of)) if it had any.
    #[must_use]
    pub fn holder_by(&self, key: KeyId, claims: Option<&[u8]>) -> Option<String> {
        match claims {
            Some(claims) => jwt::holder(claims),
            None => {
                let mut statics = self.statics.0.values();
                // mutation: holder-of-another-token
                let held = statics.find(|held| held.grant.scope.key() == key)?;
                Some(held.holder.clone())
            }
        }
    }

    /// What [`Keys::verify`] takes for a token, in nanoseconds, rather more than less. The token
    /// has no say in it but by the keys that it may have been signed with.
    #[must_use]
    pub fn cost(&self, token: &str) -> usize {
        let is_signed = token.contains('.') && token.len() <= TOKEN_BYTES_MAX;
        let signatures = if is_signed { self.issuers.cost(token) } else { 0 };
        signatures + HASH_COST + token.len().min(TOKEN_BYTES_MAX)
    }

    /// Why a token is refused, in words for the owner's log: one line, without the token. `None`:
    /// it is good.
    #[must_use]
    pub fn why(&self, token: &str, now_unix_s: u64) -> Option<String> {
        let Why { refused, detail } = self.examine(token, now_unix_s).err()?;
        Some(format!("{}: {detail}", refused.name()))
    }

    fn examine(&self, token: &str, now_unix_s: u64) -> Result<Known, Why> {
        if token.len() > TOKEN_BYTES_MAX {
            let detail = format!("it has {} bytes, of {TOKEN_BYTES_MAX} at most", token.len());
            return Err(Why { refused: Refused::TooLarge, detail });
        }
        // A secret of ours has no dot; a JWT has two.
        if token.contains('.') {
            return self.issuers.verify(token, now_unix_s).map_err(|why| match why.refused {
                // mutation: outstanding-as-unknown
                Refused::UnknownKey if self.is_outstanding => Why {
                    refused: Refused::KeyOutstanding,
                    detail: format!("{}, and jwt.jwks_url was not fetched yet", why.detail),
                },
                _ => why,
            });
        }
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let detail = "it is empty, or not in visible ASCII".to_owned();
            return Err(Why { refused: Refused::Malformed, detail });
        }
        let unknown = || Why {
            refused: Refused::UnknownSecret,
            detail: "no token that is configured has this secret".to_owned(),
        };
        let sha256 = secret::hash(token);
        let held = self.statics.0.get(&beginning(&sha256)).ok_or_else(unknown)?;
        verify_slices_are_equal(&held.sha256, &sha256).map_err(|_| unknown())?;
        if held.grant.expires_unix_s.is_some_and(|expires| now_unix_s >= expires) {
            let detail = format!("the time of '{}' is over", held.holder);
            return Err(Why { refused: Refused::Expired, detail });
        }
        Ok(Known { grant: held.grant.clone(), holder: held.holder.clone() })
    }
}

impl StaticTokens {
    pub(crate) fn new(tokens: &[StaticToken]) -> Result<StaticTokens, String> {
        let mut statics = HashMap::new();
        for token in tokens {
            let scope = Scope::new(KeyId::of_static(token), &token.permissions, "");
            let grant = Grant { scope, expires_unix_s: token.expires_unix_s };
            let entry = Static { sha256: token.sha256, grant, holder: clean(&token.name) };
            if let Some(other) = statics.insert(beginning(&token.sha256), entry) {
                let other = &other.holder;
                return Err(format!("The tokens '{other}' and '{}' are the same.", token.name));
            }
        }
        Ok(StaticTokens(Arc::new(statics)))
    }
}

impl KeyId {
    /// As a number, by which another process knows it again.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The key of that number.
    pub(crate) fn from_number(number: u64) -> KeyId {
        KeyId(number)
    }

    /// Whether tokens are signed with it. Its last bit says so.
    fn is_of_jwt(self) -> bool {
        self.0 & 1 == 1
    }

    fn of_static(token: &StaticToken) -> KeyId {
        let expires = token.expires_unix_s.map_or(u64::MAX, |expires| expires);
        let Permissions { publish, read } = &token.permissions;
        let permissions = format!("publish {}, read {}", list(publish.iter()), list(read.iter()));
        let parts: [&[u8]; 5] = [
            b"static",
            token.name.as_bytes(),
            &token.sha256,
            permissions.as_bytes(),
            &expires.to_be_bytes(),
        ];
        KeyId(KeyId::hash(&parts) & !1)
    }

    pub(crate) fn of_jwt(parts: &[&[u8]]) -> KeyId {
        KeyId(KeyId::hash(parts) | 1)
    }

    fn hash(parts: &[&[u8]]) -> u64 {
        let mut hash = Context::new(&SHA256);
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finish();
        let first = hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        u64::from_be_bytes(*first)
    }
}

/// A list as text, for the hash that is a key's id. An upgrade hands ids over to other releases, so
/// no release may write the text in another form.
pub(crate) fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = items.map(|item| format!("\"{}\"", escaped(item))).collect();
    format!("[{}]", quoted.join(", "))
}

/// Escapes quotes and whatever is not to be printed.
fn escaped(item: &str) -> String {
    item.chars().fold(String::new(), |mut text, c| {
        match c {
            '\'' => text.push(c),
            _ => text.extend(c.escape_debug()),
        }
        text
    })
}

fn beginning(sha256: &[u8; 32]) -> [u8; 8] {
    *sha256.first_chunk().expect("32 bytes begin with 8")
}

/// A name as a line of a log may have it: what could end the line, or look like something else, is
/// a `?`, and what is long is cut.
pub(crate) fn clean(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.:@/+=|~ ".contains(c);
    let plain = name.chars().map(|c| if is_plain(c) { c } else { '?' });
    plain.take(HOLDER_CHARS_MAX).collect()
}

/// The number of a key is a hash already.
#[derive(Clone, Default)]
pub(crate) struct ItsOwnHash(u64);

impl Hasher for ItsOwnHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// What the log has room for: an address of mail, a UUID, a URN.
const HOLDER_CHARS_MAX: usize = 64;

/// What it takes to hash a token, to read it and to look it up, in nanoseconds.
const HASH_COST: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims_of;
    use crate::patterns::Patterns;
    use crate::secret::Secret;
    use crate::settings::{Settings, load};
    use stentor_io::read_file;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn every_token_costs_its_hash_and_its_length() {
        let keys = load(&Settings::default(), &[], read_file).unwrap().keys;
        assert_eq!([1, 100].map(|bytes| keys.cost(&"x".repeat(bytes))), [2_001, 2_100]);
        assert_eq!(keys.cost(&"x".repeat(TOKEN_BYTES_MAX + 1)), 2_000 + TOKEN_BYTES_MAX);
    }

    fn token(secret: &Secret, name: &str) -> StaticToken {
        let permissions =
            Permissions { publish: Patterns::default(), read: Patterns::parse(["/a/*"]).unwrap() };
        let sha256 = secret.sha256();
        StaticToken { name: name.to_owned(), sha256, permissions, expires_unix_s: None }
    }

    fn keys(tokens: &[StaticToken]) -> Keys {
        let settings = Settings { tokens: tokens.to_vec(), ..Settings::default() };
        load(&settings, &[], read_file).unwrap().keys
    }

    #[test]
    fn a_secret_of_the_configuration_is_good_until_its_time_is_over() {
        let (secret, other) = (Secret::make().unwrap(), Secret::make().unwrap());
        let mut token = token(&secret, "one");
        token.expires_unix_s = Some(NOW + 1);
        let keys = keys(&[token]);
        let grant = keys.verify(secret.as_str(), NOW).unwrap();
        assert_eq!(keys.holder(secret.as_str(), NOW).as_deref(), Some("one"));
        assert_eq!(keys.holder(other.as_str(), NOW), None);
        assert_eq!(claims_of(secret.as_str().as_bytes()), None);
        assert_eq!(keys.holder_by(grant.scope.key(), None).as_deref(), Some("one"));
        assert_eq!(keys.holder_by(KeyId::from_number(0), None), None);
        assert_eq!(grant.expires_unix_s, Some(NOW + 1));
        assert!(grant.scope.may_read("/a/b") && !grant.scope.may_publish("/a/b"));
        assert!(keys.has(grant.scope.key()) && !Keys::none().has(grant.scope.key()));
        assert!(!keys.is_empty() && Keys::none().is_empty());
        assert_eq!(keys.verify(secret.as_str(), NOW + 1), Err(Refused::Expired));
        assert_eq!(
            keys.why(secret.as_str(), NOW + 1).unwrap(),
            "expired: the time of 'one' is over"
        );
        assert_eq!(keys.verify(other.as_str(), NOW), Err(Refused::UnknownSecret));
        for nearly in [&secret.as_str()[1..], &secret.as_str()[..50], "", "\u{e9}", "a b"] {
            assert!(keys.verify(nearly, NOW).is_err());
        }
    }

    #[test]
    fn what_has_changed_is_another_key() {
        let secret = Secret::make().unwrap();
        let first = token(&secret, "one");
        let id =
            keys(std::slice::from_ref(&first)).verify(secret.as_str(), NOW).unwrap().scope.key();
        let has = |change: fn(&mut StaticToken)| {
            let mut changed = first.clone();
            change(&mut changed);
            keys(&[changed]).has(id)
        };
        assert!(has(|_| {}));
        assert!(!has(|token| token.name = "other".to_owned()));
        assert!(!has(|token| token.sha256[31] ^= 1));
        assert!(!has(|token| token.permissions.publish = token.permissions.read.clone()));
        assert!(!has(|token| token.permissions.read = Patterns::default()));
        assert!(!has(|token| token.expires_unix_s = Some(NOW)));
    }

    /// Another release must compute the same ids, or an upgrade revokes the access of every reader.
    #[test]
    fn key_ids_are_the_same_in_every_release() {
        let id = |publish: &[&str], read: &[&str], expires_unix_s| {
            let patterns = |texts: &[&str]| Patterns::parse(texts.iter().copied()).unwrap();
            let permissions = Permissions { publish: patterns(publish), read: patterns(read) };
            let name = "one".to_owned();
            let token = StaticToken { name, sha256: [7; 32], permissions, expires_unix_s };
            KeyId::of_static(&token).0
        };
        let ids = [
            id(&[], &[], None),
            id(&[], &["/a/*"], Some(NOW)),
            id(&["/b", "/\"\\/*"], &["/a/*", "/\u{fc}"], None),
        ];
        assert_eq!(
            ids,
            [15_528_960_719_630_354_096, 586_596_333_317_031_214, 7_452_511_335_484_499_956]
        );
    }

    #[test]
    fn two_tokens_are_not_the_same() {
        let secret = Secret::make().unwrap();
        let tokens = vec![token(&secret, "one"), token(&secret, "other")];
        let error = load(&Settings { tokens, ..Settings::default() }, &[], read_file).unwrap_err();
        assert_eq!(error.to_string(), "The tokens 'one' and 'other' are the same.");
    }

    #[test]
    fn names_are_fit_for_a_line_of_the_log() {
        assert_eq!(clean("auth0|5f-7a@x.example"), "auth0|5f-7a@x.example");
        assert_eq!(
            clean("J\u{fc}rgen\n1.2.3.4 - \"GET\"\u{202e}\0"),
            "J\u{fc}rgen?1.2.3.4 - ?GET???"
        );
        assert_eq!(clean(&"x".repeat(100)).len(), 64);
    }
}
