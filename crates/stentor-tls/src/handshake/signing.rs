//! A certificate with its key, as rustls signs with it.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::KeyKind;

/// A chain, and the key that belongs to it.
#[derive(Clone)]
pub(crate) struct Certified(pub(super) Arc<CertifiedKey>);

/// Why they are none.
pub(crate) enum CertifiedError {
    UnsupportedKey(String),
    OtherKey,
    Malformed(String),
}

impl Certified {
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Certified, CertifiedError> {
        let key = any_supported_type(&key)
            .map_err(|error| CertifiedError::UnsupportedKey(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(Certified(Arc::new(certified))),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(CertifiedError::OtherKey)
            }
            Err(error) => Err(CertifiedError::Malformed(error.to_string())),
        }
    }

    pub(crate) fn key_kind(&self) -> KeyKind {
        match self.0.key.algorithm() {
            SignatureAlgorithm::RSA => KeyKind::Rsa,
            SignatureAlgorithm::ED25519 => KeyKind::Ed25519,
            _ => KeyKind::Ecdsa,
        }
    }

    /// Whether it can sign in one of these ways.
    pub(super) fn can_sign(&self, schemes: &[SignatureScheme]) -> bool {
        self.0.key.choose_scheme(schemes).is_some()
    }
}

impl fmt::Debug for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certified").field(&self.key_kind()).finish()
    }
}
