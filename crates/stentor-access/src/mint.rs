//! Makes keys and signs tokens with them: for tests and measurements only.
//!
//! The header and the claims are written as they are given, so that tokens can be made that no
//! library would make.

use aws_lc_rs::encoding::{AsBigEndian, AsDer, EcPublicKeyUncompressedBin, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::settings::Algorithm;

/// A key that signs by one algorithm.
#[derive(Debug)]
pub struct Signer {
    algorithm: Algorithm,
    key: Private,
}

#[derive(Debug)]
enum Private {
    Hmac(Vec<u8>),
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    /// Makes a key.
    ///
    /// # Panics
    ///
    /// If the system has no random numbers to give.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Signer {
        let key = match algorithm {
            Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => {
                let mut secret = vec![0; 64];
                getrandom::fill(&mut secret).expect("the system has random numbers");
                Private::Hmac(secret)
            }
            Algorithm::Rs256 | Algorithm::Ps256 => {
                let key = RsaKeyPair::generate(KeySize::Rsa2048);
                Private::Rsa(key.expect("the system has random numbers"))
            }
            Algorithm::Es256 | Algorithm::Es384 => {
                let kind = match algorithm {
                    Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
                    _ => &ECDSA_P384_SHA384_FIXED_SIGNING,
                };
                let key = EcdsaKeyPair::generate(kind);
                Private::Ec(key.expect("the system has random numbers"))
            }
            Algorithm::EdDsa => {
                let key = Ed25519KeyPair::generate();
                Private::Ed(key.expect("the system has random numbers"))
            }
        };
        Signer { algorithm, key }
    }

    /// A key for HMAC with this secret.
    #[must_use]
    pub fn with_secret(algorithm: Algorithm, secret: &[u8]) -> Signer {
        Signer { algorithm, key: Private::Hmac(secret.to_vec()) }
    }

    /// The secret of a key for HMAC.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        match &self.key {
            Private::Hmac(secret) => secret,
            _ => &[],
        }
    }

    /// A token with these claims, and the header that is usual.
    #[must_use]
    pub fn token(&self, kid: Option<&str>, claims: &str) -> String {
        let kid = kid.map(|kid| format!(r#","kid":"{kid}""#)).unwrap_or_default();
        self.sign(&format!(r#"{{"typ":"JWT","alg":"{}"{kid}}}"#, self.algorithm.name()), claims)
    }

    /// A token with this header and these claims.
    ///
    /// # Panics
    ///
    /// If it cannot sign.
    #[must_use]
    pub fn sign(&self, header: &str, claims: &str) -> String {
        let encode = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let (message, random) = (signed.as_bytes(), SystemRandom::new());
        let signature = match &self.key {
            Private::Hmac(secret) => {
                let hash = match self.algorithm {
                    Algorithm::Hs384 => hmac::HMAC_SHA384,
                    Algorithm::Hs512 => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::sign(&hmac::Key::new(hash, secret), message).as_ref().to_vec()
            }
            Private::Rsa(key) => {
                let padding: &'static dyn RsaEncoding = match self.algorithm {
                    Algorithm::Ps256 => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut signature).expect("the key is good");
                signature
            }
            Private::Ec(key) => {
                key.sign(&random, message).expect("the key is good").as_ref().to_vec()
            }
            Private::Ed(key) => key.sign(message).as_ref().to_vec(),
        };
        format!("{signed}.{}", encode(&signature))
    }

    /// The public key in PEM.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = match &self.key {
            Private::Hmac(_) => panic!("a secret has no public key"),
            Private::Rsa(key) => key.public_key().as_der().expect("the key is good"),
            Private::Ec(key) => key.public_key().as_der().expect("the key is good"),
            Private::Ed(key) => key.public_key().as_der().expect("the key is good"),
        };
        let text = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> =
            (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }

    /// The key as an entry of a JWKS document: for HMAC the secret, else the public key.
    ///
    /// # Panics
    ///
    /// Never: a key that was made can be written.
    #[must_use]
    pub fn jwk(&self, kid: &str) -> String {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let parameters = match &self.key {
            Private::Hmac(secret) => format!(r#""kty":"oct","k":"{}""#, encode(secret)),
            Private::Rsa(key) => {
                // RSAPublicKey of PKCS #1: behind nine bytes of lengths the modulus of 2048 bits;
                // the exponent is that of all keys that are made here.
                let n = encode(&key.public_key().as_ref()[9..9 + 256]);
                let e = encode(&[1, 0, 1]);
                format!(r#""kty":"RSA","n":"{n}","e":"{e}""#)
            }
            Private::Ec(key) => {
                let point: EcPublicKeyUncompressedBin<'_> =
                    key.public_key().as_be_bytes().expect("the key is good");
                let (x, y) = point.as_ref()[1..].split_at(point.as_ref().len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                let (x, y) = (encode(x), encode(y));
                format!(r#""kty":"EC","crv":"{curve}","x":"{x}","y":"{y}""#)
            }
            Private::Ed(key) => {
                let x = encode(key.public_key().as_ref());
                format!(r#""kty":"OKP","crv":"Ed25519","x":"{x}""#)
            }
        };
        format!(r#"{{"kid":"{kid}","use":"sig",{parameters}}}"#)
    }
}
