//! One key: what it can verify, and nothing else.
//!
//! A key is bound to its algorithms when it is made. What a token says of itself only chooses among
//! what its key does anyway: a public key of RSA is never taken for a secret of HMAC, whatever the
//! token would like. Keys that are too weak for what they are for are refused here, for later there
//! is nobody to tell.

use std::fmt;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rsa::{PublicEncryptingKey, PublicKey};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents,
    VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::keys::KeyId;
use crate::settings::Algorithm;

/// A key as it was read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Material {
    kind: Kind,
    /// The secret, or the public key: SubjectPublicKeyInfo of RSA, the point of a curve.
    bytes: Vec<u8>,
}

/// What a key is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// A key that can verify.
pub(crate) struct Key {
    pub(crate) id: KeyId,
    pub(crate) kid: Option<String>,
    /// What it takes to verify with it, in nanoseconds, rather more than less.
    pub(crate) cost: usize,
    verifiers: Vec<(Algorithm, Verifier)>,
}

#[expect(clippy::large_enum_variant, reason = "there are few keys, and each is used a lot")]
enum Verifier {
    Hmac(hmac::Key),
    Public(ParsedPublicKey),
}

impl Material {
    /// A secret for HMAC.
    ///
    /// # Errors
    ///
    /// If it is shorter than a hash of 256 bits (RFC 7518, 3.2), or no secret at all.
    pub(crate) fn secret(bytes: &[u8]) -> Result<Material, String> {
        if bytes.starts_with(b"-----BEGIN ") {
            return Err("it is a key in PEM, not a secret for HMAC".to_owned());
        }
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(format!(
                "the secret has {} bytes: it takes {SECRET_BYTES_MIN} or more, at random",
                bytes.len()
            ));
        }
        Ok(Material { kind: Kind::Secret, bytes: bytes.to_vec() })
    }

    /// A public key in PEM. The crate `pem` would take the first of several keys, and whatever
    /// stands around it, and say less of what is wrong.
    ///
    /// # Errors
    ///
    /// What it is instead.
    pub(crate) fn pem(text: &str) -> Result<Material, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
        let (label, rest) = text
            .strip_prefix("-----BEGIN ")
            .and_then(|text| text.split_once("-----"))
            .ok_or("it does not begin with -----BEGIN PUBLIC KEY-----")?;
        if label.ends_with("PRIVATE KEY") {
            return Err("it is a private key, which only the issuer of tokens may have".to_owned());
        }
        if label == "CERTIFICATE" {
            return Err("it is a certificate: `openssl x509 -pubkey -noout` prints its key".into());
        }
        if !matches!(label, "PUBLIC KEY" | "RSA PUBLIC KEY") {
            return Err(format!("it is a {}, not a PUBLIC KEY", label.escape_debug()));
        }
        let body = rest.strip_suffix(&format!("-----END {label}-----"));
        let body = body.ok_or_else(|| format!("it does not end with one -----END {label}-----"))?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| "it is not in base64")?;
        Material::der(&der)
    }

    /// A public key as SubjectPublicKeyInfo, or an RSAPublicKey of PKCS #1.
    fn der(der: &[u8]) -> Result<Material, String> {
        // The bare point of a curve is what a JWK has. Here it has more around it.
        let is_wrapped = der.first() == Some(&SEQUENCE) && der.len() > ED25519_BYTES;
        // Each takes only what is a key of its kind, and of its curve.
        for kind in [Kind::P256, Kind::P384, Kind::Ed25519].into_iter().filter(|_| is_wrapped) {
            if ParsedPublicKey::new(kind.algorithms()[0].public(), der).is_ok() {
                return Ok(Material { kind, bytes: der.to_vec() });
            }
        }
        let pkcs1 = || PublicKey::from_der(der).ok()?.as_der().ok();
        match PublicEncryptingKey::from_der(der) {
            Ok(_) => Material::rsa(der),
            Err(_) => match pkcs1() {
                Some(der) => Material::rsa(der.as_ref()),
                None => Err("it is not a key of RSA, P-256, P-384 or Ed25519".to_owned()),
            },
        }
    }

    fn rsa(spki: &[u8]) -> Result<Material, String> {
        let key = PublicEncryptingKey::from_der(spki).ok();
        key.filter(|key| (2_048..=8_192).contains(&key.key_size_bits()))
            .ok_or("it is not a key of RSA with 2048 to 8192 bits")?;
        Ok(Material { kind: Kind::Rsa, bytes: spki.to_vec() })
    }

    /// A key of RSA, by its modulus and exponent.
    pub(crate) fn rsa_components(n: &[u8], e: &[u8]) -> Result<Material, String> {
        let components = RsaPublicKeyComponents { n, e };
        let der = components.as_der().map_err(|_| "its n and e are not a key of RSA")?;
        Material::rsa(der.as_ref())
    }

    /// A point of P-256 or P-384, by its coordinates.
    pub(crate) fn point(curve: &str, x: &[u8], y: &[u8]) -> Result<Material, String> {
        let (kind, len) = match curve {
            "P-256" => (Kind::P256, 32),
            "P-384" => (Kind::P384, 48),
            _ => return Err(format!("its curve '{}' is not known", curve.escape_debug())),
        };
        if x.len() != len || y.len() != len {
            return Err(format!("its x and y must have {len} bytes each"));
        }
        Material::raw(kind, [&[4], x, y].concat())
    }

    /// A point of Ed25519.
    pub(crate) fn ed25519(x: &[u8]) -> Result<Material, String> {
        if x.len() != ED25519_BYTES {
            return Err("its x must have 32 bytes".to_owned());
        }
        Material::raw(Kind::Ed25519, x.to_vec())
    }

    fn raw(kind: Kind, bytes: Vec<u8>) -> Result<Material, String> {
        let key = ParsedPublicKey::new(kind.algorithms()[0].public(), &bytes);
        key.map_err(|_| "it is not a point of its curve")?;
        Ok(Material { kind, bytes })
    }

    /// Whether keys of both could be meant by the same name: what verifies one cannot verify the
    /// other.
    pub(crate) fn is_of_another_kind(&self, other: &Material) -> bool {
        self.kind != other.kind
    }

    /// What it takes to verify with it, in nanoseconds: what `token_cost` prints, twice.
    fn cost(&self) -> usize {
        match self.kind {
            Kind::Secret => 4_000,
            // By the square of its length. A key of 2048 bits has 294 bytes here.
            Kind::Rsa => 40_000 * self.bytes.len().pow(2) / (294 * 294),
            Kind::Ed25519 => 80_000,
            Kind::P256 => 100_000,
            Kind::P384 => 350_000,
        }
    }

    /// What it can verify.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        let bytes = match self.kind {
            Kind::Secret => self.bytes.len(),
            _ => usize::MAX,
        };
        let fits = move |algorithm: &&Algorithm| algorithm.secret_bytes_min() <= bytes;
        self.kind.algorithms().iter().filter(fits).copied()
    }
}

impl Key {
    /// A key that does what is `allowed`. `None`: it could do nothing.
    pub(crate) fn new(
        material: &Material,
        kid: Option<String>,
        allowed: impl Fn(Algorithm) -> bool,
    ) -> Option<Key> {
        let mut verifiers = Vec::new();
        for algorithm in material.algorithms().filter(|algorithm| allowed(*algorithm)) {
            let verifier = match algorithm.hmac() {
                Some(hash) => Verifier::Hmac(hmac::Key::new(hash, &material.bytes)),
                None => {
                    let key = ParsedPublicKey::new(algorithm.public(), &material.bytes);
                    Verifier::Public(key.ok()?)
                }
            };
            verifiers.push((algorithm, verifier));
        }
        let name = kid.as_deref().unwrap_or_default();
        let id = KeyId::of_jwt(&[b"jwt", name.as_bytes(), &material.bytes]);
        (!verifiers.is_empty()).then_some(Key { id, kid, cost: material.cost(), verifiers })
    }

    /// Does also what the same key does that was found elsewhere.
    pub(crate) fn merge(&mut self, same: Key) {
        let others = same.verifiers.into_iter().filter(|(algorithm, _)| !self.does(*algorithm));
        let others = others.collect::<Vec<_>>();
        self.verifiers.extend(others);
    }

    /// Whether it does an algorithm.
    pub(crate) fn does(&self, algorithm: Algorithm) -> bool {
        self.verifiers.iter().any(|(other, _)| *other == algorithm)
    }

    /// Whether it does the algorithm of this name.
    pub(crate) fn does_named(&self, name: &str) -> bool {
        self.verifiers.iter().any(|(other, _)| other.name() == name)
    }

    /// Whether it has made this signature by this algorithm.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verifier = self.verifiers.iter().find(|(other, _)| *other == algorithm);
        match verifier {
            Some((_, Verifier::Hmac(key))) => hmac::verify(key, message, signature).is_ok(),
            Some((_, Verifier::Public(key))) => key.verify_sig(message, signature).is_ok(),
            None => false,
        }
    }
}

impl Kind {
    fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Kind::Secret => &[Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512],
            Kind::Rsa => &[Algorithm::Rs256, Algorithm::Ps256],
            Kind::P256 => &[Algorithm::Es256],
            Kind::P384 => &[Algorithm::Es384],
            Kind::Ed25519 => &[Algorithm::EdDsa],
        }
    }
}

impl Algorithm {
    fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Algorithm::Hs256 => Some(hmac::HMAC_SHA256),
            Algorithm::Hs384 => Some(hmac::HMAC_SHA384),
            Algorithm::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    /// Of those with a public key.
    fn public(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
            Algorithm::EdDsa => &ED25519,
            _ => &ECDSA_P256_SHA256_FIXED,
        }
    }

    /// As long as the hash, or longer (RFC 7518, 3.2).
    fn secret_bytes_min(self) -> usize {
        match self {
            Algorithm::Hs256 => SECRET_BYTES_MIN,
            Algorithm::Hs384 => 48,
            Algorithm::Hs512 => 64,
            _ => 0,
        }
    }
}

/// Neither shows what it holds: it may be a secret.
impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Material({:?})", self.kind)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<Algorithm> = self.verifiers.iter().map(|(name, _)| *name).collect();
        write!(f, "Key({:?}, {:?}, {algorithms:?})", self.id, self.kid)
    }
}

const SECRET_BYTES_MIN: usize = 32;

/// A point of Ed25519.
const ED25519_BYTES: usize = 32;

/// What a structure of ASN.1 begins with.
const SEQUENCE: u8 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_as_long_as_a_hash() {
        let secret = |bytes| Material::secret(&vec![b'x'; bytes]);
        assert!(secret(32).is_ok());
        assert!(secret(31).err().unwrap().contains("it takes 32 or more"));
    }
}
