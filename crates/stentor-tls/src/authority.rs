//! Somebody who signs certificates, for tests.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    PKCS_ED25519, PKCS_RSA_SHA256, date_time_ymd,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::{KeyKind, PemPair};

/// Somebody who signs certificates, by way of somebody else.
pub(crate) struct Authority {
    root: CertifiedIssuer<'static, KeyPair>,
    between: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate, its chain and its key.
pub(crate) struct Issued {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let issuer = |name: &str| {
            let mut params = named(name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let root = CertifiedIssuer::self_signed(issuer("root"), ecdsa()).expect("it signs itself");
        let between = CertifiedIssuer::signed_by(issuer("between"), ecdsa(), &root);
        Authority { between: between.expect("it is signed"), root }
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.root.der().clone()
    }

    pub(crate) fn pem(&self) -> String {
        self.root.pem()
    }

    /// A certificate of a server.
    pub(crate) fn issue(&self, kind: KeyKind, names: &[&str]) -> Issued {
        self.issue_with(kind, names, |_| {})
    }

    /// Likewise, with something changed.
    pub(crate) fn issue_with(
        &self,
        kind: KeyKind,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("they are names");
        change(&mut params);
        let key = match kind {
            KeyKind::Ecdsa => ecdsa(),
            KeyKind::Ed25519 => KeyPair::generate_for(&PKCS_ED25519).expect("a key"),
            KeyKind::Rsa => KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key"),
        };
        self.sign(&params, &key)
    }

    /// A certificate of a client, which ends at the beginning of that day.
    pub(crate) fn issue_client(&self, name: &str, until: Option<(i32, u8, u8)>) -> Issued {
        let mut params = named(name);
        if let Some((year, month, day)) = until {
            params.not_after = date_time_ymd(year, month, day);
        }
        self.sign(&params, &ecdsa())
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Issued {
        let signed = params.signed_by(key, &self.between).expect("it is signed");
        Issued { certificate_pem: signed.pem() + &self.between.pem(), key_pem: key.serialize_pem() }
    }
}

impl Issued {
    pub(crate) fn pem(&self) -> PemPair<'_> {
        PemPair {
            certificate: (Path::new("certificate.pem"), self.certificate_pem.as_bytes()),
            key: (Path::new("key.pem"), self.key_pem.as_bytes()),
        }
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        let chain = CertificateDer::pem_slice_iter(self.certificate_pem.as_bytes());
        chain.map(|certificate| certificate.expect("it is one")).collect()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("it is one")
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn ecdsa() -> KeyPair {
    KeyPair::generate().expect("a key")
}
