//! JWKS documents: the keys of an issuer, as a list in JSON (RFC 7517).
//!
//! A key that cannot be used is passed over, and the reason is told: issuers publish keys of kinds
//! to come beside those of today, and one entry must not lock everybody out (RFC 7517, 5). Two
//! different keys of one kind under one name are no such thing: which of them is meant cannot be
//! known, so the document is refused as a whole, and whoever has an older one goes on with it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::key::Material;
use crate::keys::clean;
use crate::settings::{Algorithm, JwksUrl};

/// The keys of a document.
#[derive(Clone, Debug, Default)]
pub struct Jwks {
    keys: Vec<ParsedKey>,
    passed_over: Vec<String>,
    /// The document, for another process.
    json: Box<[u8]>,
}

/// The document that was fetched last from a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// Where it is from.
    pub url: JwksUrl,
    /// `None`: no fetch has succeeded yet.
    pub document: Option<Arc<Jwks>>,
}

/// Two documents are equal if their keys are.
impl PartialEq for Jwks {
    fn eq(&self, other: &Jwks) -> bool {
        let Jwks { keys, passed_over, json: _ } = self;
        *keys == other.keys && *passed_over == other.passed_over
    }
}

impl Eq for Jwks {}

#[derive(Clone, PartialEq, Eq, Debug)]
struct ParsedKey {
    material: Material,
    kid: Option<String>,
    /// What `alg` restricts it to.
    only: Option<Algorithm>,
}

/// The largest document that is read, in bytes.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// A key, RFC 7518, 6 and RFC 8037. What is not asked for is passed over: most have certificates.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl Jwks {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// If it is none, has no key that can be used, or two that cannot be told apart.
    pub fn parse(json: &[u8]) -> Result<Jwks, String> {
        Jwks::read(json, true)
    }

    /// Reads a document that was fetched. A secret that stands in one is none any more: whoever
    /// else fetches it could make tokens. So it is passed over.
    ///
    /// # Errors
    ///
    /// As [`Jwks::parse`].
    pub fn parse_published(json: &[u8]) -> Result<Jwks, String> {
        Jwks::read(json, false)
    }

    fn read(json: &[u8], with_secrets: bool) -> Result<Jwks, String> {
        if json.len() > JWKS_BYTES_MAX {
            return Err(format!("it is larger than {} KiB", JWKS_BYTES_MAX / 1024));
        }
        let document: Document<'_> = serde_json::from_slice(json)
            .map_err(|error| format!("it is not a JWKS document: {error}"))?;
        if document.keys.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let mut jwks = Jwks { json: json.into(), ..Jwks::default() };
        for (i, key) in document.keys.iter().enumerate() {
            let jwk = match serde_json::from_str::<Jwk>(key.get()) {
                Ok(jwk) => jwk,
                Err(error) => {
                    jwks.passed_over.push(format!("key {} is passed over: {error}", i + 1));
                    continue;
                }
            };
            let name = match &jwk.kid {
                Some(kid) => format!("'{}'", clean(kid)),
                None => (i + 1).to_string(),
            };
            match jwk.read(with_secrets) {
                Ok(entry) => jwks.add(entry)?,
                Err(reason) => {
                    jwks.passed_over.push(format!("key {name} is passed over: {reason}"));
                }
            }
        }
        if jwks.keys.is_empty() {
            let reasons = jwks.passed_over.join("; ");
            return Err(format!("it has no key that can be used here: {reasons}"));
        }
        Ok(jwks)
    }

    /// The same key twice is once; two keys that a token could mean by one name are an error.
    fn add(&mut self, entry: ParsedKey) -> Result<(), String> {
        if self.keys.contains(&entry) {
            return Ok(());
        }
        if let Some(kid) = &entry.kid {
            let mut same = self.keys.iter().filter(|other| other.kid.as_ref() == Some(kid));
            if same.any(|other| !other.material.is_of_another_kind(&entry.material)) {
                return Err(format!("two different keys have the kid '{}'", clean(kid)));
            }
        }
        self.keys.push(entry);
        Ok(())
    }

    /// Sentences on what was passed over.
    pub fn passed_over(&self) -> impl Iterator<Item = &str> {
        self.passed_over.iter().map(String::as_str)
    }

    /// The document as it was read.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    pub(crate) fn keys(
        &self,
    ) -> impl Iterator<Item = (&Material, Option<&str>, Option<Algorithm>)> {
        self.keys.iter().map(|entry| (&entry.material, entry.kid.as_deref(), entry.only))
    }

    /// How many keys there are, for the log.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

impl Jwk {
    /// # Errors
    ///
    /// Why it cannot be used.
    fn read(self, with_secrets: bool) -> Result<ParsedKey, String> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return Err("it is not for signatures (use)".to_owned());
        }
        if self.key_ops.as_ref().is_some_and(|ops| !ops.iter().any(|op| op == "verify")) {
            return Err("it is not for verifying (key_ops)".to_owned());
        }
        let bytes = |value: &Option<String>, name: &str| {
            let value = value.as_ref().ok_or_else(|| format!("it has no {name}"))?;
            URL_SAFE_NO_PAD.decode(value).map_err(|_| format!("its {name} is not in base64url"))
        };
        let curve = self.crv.as_deref().unwrap_or_default();
        let material = match self.kty.as_str() {
            "RSA" => Material::rsa_components(&bytes(&self.n, "n")?, &bytes(&self.e, "e")?)?,
            "EC" => Material::point(curve, &bytes(&self.x, "x")?, &bytes(&self.y, "y")?)?,
            "OKP" if curve == "Ed25519" => Material::ed25519(&bytes(&self.x, "x")?)?,
            "OKP" => return Err(format!("its curve '{}' is not known", curve.escape_debug())),
            "oct" if !with_secrets => {
                return Err("it is a secret, which is none where everybody can fetch it".to_owned());
            }
            "oct" => Material::secret(&bytes(&self.k, "k")?)?,
            other => return Err(format!("its kty '{}' is not known", clean(other))),
        };
        let only = self.alg.as_deref().map(str::parse::<Algorithm>).transpose();
        let only = only.map_err(|error| format!("its alg: {error}"))?;
        if only.is_some_and(|only| !material.algorithms().any(|other| other == only)) {
            return Err("its alg is not one of its kind, or it is too short for that".to_owned());
        }
        Ok(ParsedKey { material, kid: self.kid, only })
    }
}

/// Issuers have a handful.
const KEYS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mint::Signer;

    fn parse(keys: &[&str]) -> Result<Jwks, String> {
        Jwks::parse(format!(r#"{{"x":1,"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    #[test]
    fn what_cannot_be_used_is_passed_over_and_told() {
        let good = Signer::new(Algorithm::Es256).jwk("good");
        for (bad, reason) in [
            (r#"{"kty":"AKP","kid":"pq","alg":"ML-DSA-44"}"#, "'pq' is passed over: its kty 'AKP'"),
            (r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#, "key 2 is passed over: "),
            (r#"{"kty":"RSA","kid":"a","e":"AQAB"}"#, "it has no n"),
            (r#"{"kty":"RSA","kid":"a","n":"?","e":"AQAB"}"#, "its n is not in base64url"),
            (r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}"#, "its curve 'P-521' is not known"),
            (r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, "must have 32 bytes each"),
            (r#"{"kty":"OKP","crv":"X25519","x":"AA"}"#, "its curve 'X25519' is not known"),
            (r#"{"kty":"OKP","crv":"Ed25519","x":"AA"}"#, "its x must have 32 bytes"),
            (r#"{"kty":"oct","k":"c2hvcnQ"}"#, "the secret has 5 bytes"),
            (r#"{"kty":"oct"}"#, "it has no k"),
            (r#"{"kid":"a\nb"}"#, "missing field `kty`"),
            (r#"{"kty":"oct","kty":"RSA"}"#, "duplicate field `kty`"),
            ("7", "key 2 is passed over: "),
            ("null", "key 2 is passed over: "),
        ] {
            let jwks = parse(&[&good, bad]).unwrap();
            assert_eq!(jwks.count(), 1);
            let told: Vec<&str> = jwks.passed_over().collect();
            assert!(told.len() == 1 && told[0].contains(reason), "{told:?}");
            assert!(!told[0].contains('\n'));
            // Alone it leaves nothing.
            let error = parse(&[bad]).unwrap_err();
            assert!(error.contains("no key that can be used"), "{error}");
        }
        // A point that is not on its curve.
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        let off = format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{x}"}}"#);
        assert!(parse(&[&off]).unwrap_err().contains("not a point of its curve"));
        for (with, reason) in [
            (r#""use":"enc""#, "not for signatures"),
            (r#""key_ops":["sign"]"#, "not for verifying"),
            (r#""alg":"RS256""#, "not one of its kind"),
            (r#""alg":"ECDH-ES""#, "its alg: 'ECDH-ES' is not one of"),
        ] {
            let other = good.replace(r#""use":"sig""#, with);
            assert!(parse(&[&other]).unwrap_err().contains(reason));
        }
    }

    #[test]
    fn two_keys_that_cannot_be_told_apart_are_an_error() {
        let key = |algorithm, kid| Signer::new(algorithm).jwk(kid);
        let one = key(Algorithm::Es256, "a");
        let error = parse(&[&one, &key(Algorithm::Es256, "a")]).unwrap_err();
        assert_eq!(error, "two different keys have the kid 'a'");
        // The same one twice is no trouble, nor are two of which only one can do what is asked.
        assert_eq!(parse(&[&one, &one]).unwrap().count(), 1);
        let jwks = parse(&[&one, &key(Algorithm::EdDsa, "a"), &key(Algorithm::Es256, "b")]);
        assert_eq!(jwks.unwrap().count(), 3);
        assert_eq!(parse(&[&one]).unwrap().keys[0].kid.as_deref(), Some("a"));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["", "[]", "{}", "null", r#"{"keys":{}}"#, r#"{"keys":[]}"#, "<html>"] {
            assert!(Jwks::parse(text.as_bytes()).is_err(), "{text}");
        }
        let deep = format!(r#"{{"keys":[{}]}}"#, "[".repeat(100_000));
        assert!(Jwks::parse(deep.as_bytes()).is_err());
        let many = vec!["{}"; KEYS_MAX + 1];
        assert!(parse(&many).unwrap_err().contains("more than 100 keys"));
        let large = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(JWKS_BYTES_MAX));
        assert!(Jwks::parse(large.as_bytes()).unwrap_err().contains("larger than 256 KiB"));
    }

    #[test]
    fn a_secret_that_is_published_is_none() {
        let secret = Signer::new(Algorithm::Hs256).jwk("s");
        let document = format!(r#"{{"keys":[{secret}]}}"#);
        assert!(Jwks::parse(document.as_bytes()).is_ok());
        let error = Jwks::parse_published(document.as_bytes()).unwrap_err();
        assert!(error.contains("everybody can fetch it"), "{error}");
    }
}
