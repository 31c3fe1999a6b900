//! JSON Web Tokens in their compact form (RFC 7515, RFC 7519; RFC 8725 says what goes wrong).
//!
//! Nothing in a token is believed before its signature is, but for the two names by which its key
//! is found; and these choose only among keys, each of which does what it was made for. What a
//! token may cost is bounded before that: its length, how many keys are tried, how deep it is.
//!
//! The crate jsonwebtoken (11.1) would add three packages, and it would save no more than the call
//! that verifies. It reads the clock, accepts `crit` and a name that is there twice, and parses its
//! key for every token.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::claims::{self, Claims, Header};
use crate::grant::{Grant, Scope};
use crate::key::{Key, Material};
use crate::keys::{ItsOwnHash, KeyId, Known, clean};
use crate::origin::{self, TokenOrigin, hash_of_name};
use crate::refused::Refused;
use crate::settings::{Algorithm, Jwt};

/// What is asked of tokens, and the keys that they may be signed with.
#[derive(Debug, Default)]
pub(crate) struct Issuers {
    keys: Vec<Key>,
    /// Places in `keys`, by id.
    places: HashMap<KeyId, usize, BuildHasherDefault<ItsOwnHash>>,
    /// Places in `keys`, by name.
    named: HashMap<String, Vec<usize>>,
    /// Of those without one, which are tried whatever a token calls its key.
    nameless: Vec<usize>,
    settings: Jwt,
    /// The hashes of the names in the settings, as origins have them.
    issuer: Vec<String>,
    audience: Vec<String>,
}

/// Why a token is refused: the kind, and what the owner of the server should read in the log.
pub(crate) struct Why {
    pub(crate) refused: Refused,
    pub(crate) detail: String,
}

impl Issuers {
    /// Takes keys, and which of them are called what.
    pub(crate) fn new<'m>(
        settings: &Jwt,
        keys: impl IntoIterator<Item = (&'m Material, Option<&'m str>, Option<Algorithm>)>,
    ) -> Issuers {
        let hashes = |names: &[String]| names.iter().map(|name| hash_of_name(name)).collect();
        let mut issuers = Issuers {
            settings: settings.clone(),
            issuer: hashes(&settings.issuer),
            audience: hashes(&settings.audience),
            ..Issuers::default()
        };
        for (material, kid, only) in keys {
            let allowed = |algorithm| {
                let configured = &settings.algorithms;
                only.is_none_or(|only| only == algorithm)
                    && (configured.is_empty() || configured.contains(&algorithm))
            };
            let kid = kid.map(str::to_owned);
            let Some(key) = Key::new(material, kid, allowed) else { continue };
            // The same key may be in two files.
            if let Some(place) = issuers.places.get(&key.id) {
                issuers.keys[*place].merge(key);
                continue;
            }
            let place = issuers.keys.len();
            issuers.places.insert(key.id, place);
            match &key.kid {
                Some(kid) => issuers.named.entry(kid.clone()).or_default().push(place),
                None => issuers.nameless.push(place),
            }
            issuers.keys.push(key);
        }
        issuers
    }

    /// The keys.
    pub(crate) fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().map(|key| key.id)
    }

    /// What a token grants.
    ///
    /// # Errors
    ///
    /// Why it does not.
    pub(crate) fn verify(&self, token: &str, now_unix_s: u64) -> Result<Known, Why> {
        let malformed = |detail: &str| Why::new(Refused::Malformed, detail.to_owned());
        let parts = token.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.')?;
            (!claims.contains('.')).then_some((signed, header, claims, signature))
        });
        let (signed, header, claims, signature) =
            parts.ok_or_else(|| malformed("it has not three parts with dots between them"))?;
        let decode = |part: &str| {
            URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed("it is not in base64url"))
        };
        let (header, signature) = (decode(header)?, decode(signature)?);
        let header = claims::header(&header)
            .map_err(|error| Why::new(Refused::Malformed, format!("its header: {error}")))?;
        let (algorithm, candidates) = self.candidates(&header)?;
        let key = candidates
            .into_iter()
            .find(|key| key.verifies(algorithm, signed.as_bytes(), &signature));
        let key = key.ok_or_else(|| {
            let detail = format!("its signature by {algorithm} is of none of these keys");
            Why::new(Refused::Signature, detail)
        })?;
        let claims = decode(claims)?;
        let claims = claims::claims(&claims).map_err(|error| Why::new(Refused::Claims, error))?;
        self.grant((key, algorithm), claims, now_unix_s)
    }

    /// What it takes to verify a token, in nanoseconds: every key that may have signed it is tried.
    pub(crate) fn cost(&self, token: &str) -> usize {
        let header = token.split('.').next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let header = header.as_deref().and_then(|bytes| claims::header(bytes).ok());
        let candidates = header.as_ref().and_then(|header| self.candidates(header).ok());
        candidates.map_or(0, |(_, keys)| keys.iter().map(|key| key.cost).sum())
    }

    /// The algorithm of a token, and the keys that may have signed it by that.
    fn candidates(&self, header: &Header<'_>) -> Result<(Algorithm, Vec<&Key>), Why> {
        if header.has_crit {
            let detail = "it asks for extensions (crit), of which none is known here".to_owned();
            return Err(Why::new(Refused::Critical, detail));
        }
        if let Some(typ) = &header.typ
            && !is_access_token(typ)
        {
            let detail = format!("its typ '{}' is not that of an access token", clean(typ));
            return Err(Why::new(Refused::Malformed, detail));
        }
        let alg = header.alg.as_deref().unwrap_or_default();
        let algorithm = alg.parse::<Algorithm>().map_err(|_| {
            let detail = format!("its alg '{}' is not one that is known here", clean(alg));
            Why::new(Refused::Algorithm, detail)
        })?;
        let kid = header.kid.as_deref();
        // A name leads to few keys. Keys without a name are tried for any token.
        let named: Vec<usize> = match kid {
            Some(kid) => self.named.get(kid).cloned().unwrap_or_default(),
            None => self.named.values().flatten().copied().collect(),
        };
        let called = || match kid {
            Some(kid) => format!("kid '{}'", clean(kid)),
            None => "no kid".to_owned(),
        };
        if named.is_empty() && self.nameless.is_empty() {
            let detail = format!("it has {}, and no key is called so", called());
            return Err(Why::new(Refused::UnknownKey, detail));
        }
        let that_do = |places: &[usize]| -> Vec<&Key> {
            let keys = places.iter().map(|place| &self.keys[*place]);
            keys.filter(|key| key.does(algorithm)).collect()
        };
        let (mut keys, nameless) = (that_do(&named), that_do(&self.nameless));
        let many = nameless.len() + if kid.is_some() { 0 } else { keys.len() };
        // Without a name all named keys would be tried: they are left out if that is too much.
        if kid.is_none() && many > TRIES_MAX && (1..=TRIES_MAX).contains(&nameless.len()) {
            return Ok((algorithm, nameless));
        }
        // mutation: nameless-keys
        if many <= TRIES_MAX {
            keys.extend(nameless);
        } else if kid.is_none() || keys.is_empty() {
            let detail = format!("it has {}, and {many} keys do {algorithm}", called());
            return Err(Why::new(Refused::UnknownKey, detail));
        }
        match keys.is_empty() {
            // A key with its name may still come: whoever is asked for it is asked for it now.
            true if kid.is_some_and(|kid| !self.named.contains_key(kid)) => {
                let detail = format!("it has {}, and no key is called so", called());
                Err(Why::new(Refused::UnknownKey, detail))
            }
            true => {
                let detail = format!("it has {}, and no such key does {algorithm}", called());
                Err(Why::new(Refused::Algorithm, detail))
            }
            false => Ok((algorithm, keys)),
        }
    }

    /// Rejects more keys without a name than are tried for a token.
    pub(crate) fn check_nameless(&self) -> Result<(), String> {
        let count = |algorithm| {
            self.nameless.iter().filter(|place| self.keys[**place].does(algorithm)).count()
        };
        match Algorithm::ALL.into_iter().find(|algorithm| count(*algorithm) > TRIES_MAX) {
            Some(algorithm) => Err(format!(
                "jwt: {} keys without a name do {algorithm}, and at most {TRIES_MAX} are tried for \
                 a token: put them into a JWKS document (jwt.jwks_file), each with a kid",
                count(algorithm)
            )),
            None => Ok(()),
        }
    }

    /// What is granted by claims that `key` has signed by this algorithm.
    fn grant(
        &self,
        (key, algorithm): (&Key, Algorithm),
        claims: Claims<'_>,
        now_unix_s: u64,
    ) -> Result<Known, Why> {
        let holder = holder_of(&claims);
        let (iss, aud) = (claims.iss.as_deref(), claims.aud.as_deref());
        let origin = origin::text_of(algorithm.name(), iss, aud);
        self.check(key.id, TokenOrigin::parse(&origin), claims.exp)
            .map_err(|refused| Why::new(refused, detail_of(refused, &claims)))?;
        let leeway_s = self.leeway_s();
        if let Some(exp) = claims.exp
            && now_unix_s >= exp.saturating_add(leeway_s)
        {
            let detail = format!("it expired {} s ago; it is of '{holder}'", now_unix_s - exp);
            return Err(Why::new(Refused::Expired, detail));
        }
        if let Some(nbf) = claims.nbf
            && now_unix_s.saturating_add(leeway_s) < nbf
        {
            let detail = format!("it is good in {} s; it is of '{holder}'", nbf - now_unix_s);
            return Err(Why::new(Refused::NotYetValid, detail));
        }
        let scope = Scope::new(key.id, &claims.permissions.unwrap_or_default(), &origin);
        Ok(Known { grant: Grant { scope, expires_unix_s: claims.exp }, holder })
    }

    /// Whether settings allow a token of this origin, which that key has signed. A key that is not
    /// known may come, and with it what it does.
    ///
    /// # Errors
    ///
    /// What they do not allow.
    pub(crate) fn check(
        &self,
        key: KeyId,
        origin: TokenOrigin<'_>,
        exp: Option<u64>,
    ) -> Result<(), Refused> {
        let key = self.places.get(&key).map(|place| &self.keys[*place]);
        let is_for_us = match origin.audience {
            // RFC 7519, 4.1.3: one who is not named there must refuse it.
            "" => self.audience.is_empty(),
            names => names.split(',').any(|name| self.audience.iter().any(|own| own == name)),
        };
        if key.is_some_and(|key| !key.does_named(origin.algorithm)) {
            Err(Refused::Algorithm)
        } else if !self.issuer.is_empty() && !self.issuer.iter().any(|own| own == origin.issuer) {
            Err(Refused::Issuer)
        } else if !is_for_us {
            Err(Refused::Audience)
        } else if exp.is_none() && self.settings.require_exp {
            Err(Refused::Endless)
        } else {
            Ok(())
        }
    }

    /// By how much the clocks of issuers may differ, in seconds.
    pub(crate) fn leeway_s(&self) -> u64 {
        self.settings.leeway_s
    }
}

/// What the log says of claims that settings do not allow.
fn detail_of(refused: Refused, claims: &Claims<'_>) -> String {
    match (refused, &claims.iss, &claims.aud) {
        (Refused::Issuer, Some(iss), _) => format!("its iss is '{}'", clean(iss)),
        (Refused::Issuer, None, _) => "it has no iss".to_owned(),
        (Refused::Audience, _, Some(aud)) => format!("its aud is '{}'", clean(&aud.join(" "))),
        (Refused::Audience, _, None) => "it has no aud".to_owned(),
        _ => "it has no exp".to_owned(),
    }
}

/// The claims of a token as it spells them, if it has any: what is kept of it for the log. Without
/// the signature nobody can do anything with them.
#[must_use]
pub fn claims_of(token: &[u8]) -> Option<&[u8]> {
    let mut parts = token.split(|byte| *byte == b'.');
    // mutation: signature-as-claims
    parts.nth(1)
}

/// Who holds a token that was verified, by these claims of it.
pub(crate) fn holder(claims: &[u8]) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    claims::claims(&claims).ok().map(|claims| holder_of(&claims))
}

fn holder_of(claims: &Claims<'_>) -> String {
    clean(claims.sub.as_deref().unwrap_or("-"))
}

impl Why {
    fn new(refused: Refused, detail: String) -> Why {
        Why { refused, detail }
    }
}

/// Tokens are made for other things too: to log out, to prove a key, to tell of events (RFC 8725,
/// 3.11). Those say so.
fn is_access_token(typ: &str) -> bool {
    let typ = typ.to_ascii_lowercase();
    matches!(typ.strip_prefix("application/").unwrap_or(&typ), "jwt" | "at+jwt")
}

/// How many keys without a name are tried for one token. A signature that is of none costs this
/// many times.
const TRIES_MAX: usize = 4;

#[cfg(test)]
mod tests;
