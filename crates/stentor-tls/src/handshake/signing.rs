//! A certificate with its key, as rustls signs with it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::{KeyKind, malformed, of_file};

/// A chain, and the key that belongs to it.
#[derive(Clone)]
pub(crate) struct Certified(pub(super) Arc<CertifiedKey>);

impl Certified {
    /// # Errors
    /// What is wrong with which of the two files.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        (file, key_file): (&Path, &Path),
    ) -> Result<Certified, String> {
        let key = any_supported_type(&key).map_err(|error| {
            of_file(key_file, &format!("its private key cannot be used: {error}"))
        })?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let file = file.display();
                of_file(key_file, &format!("it is not the key of the certificate in {file}"))
            }
            error => of_file(file, &malformed(1, &error)),
        })?;
        Ok(Certified(Arc::new(certified)))
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
