//! Certificates for names, signed by somebody.

use super::TempDir;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes a certificate for these names that signs itself, and its key. Returns their texts.
pub(crate) fn write_pair(names: &[&str], certificate: &Path, key: &Path) -> (String, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    let texts = (pair.cert.pem(), pair.signing_key.serialize_pem());
    fs::write(certificate, &texts.0).unwrap();
    fs::write(key, &texts.1).unwrap();
    texts
}

/// Somebody who signs certificates, and files of what it has signed.
pub(crate) struct Signer {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Signer {
    pub(crate) fn new() -> Signer {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "somebody who signs");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = TempDir::new();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Signer { dir, issuer }
    }

    /// Where it keeps them.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The file by which others know it.
    pub(crate) fn ca(&self) -> String {
        self.dir.path().join("ca.pem").display().to_string()
    }

    /// A certificate for a name, until the end of that year: its file, and its key's.
    pub(crate) fn sign(&self, name: &str, until: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| self.dir.path().join(format!("{name}-{until}-{kind}.pem"));
        fs::write(file("certificate"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("certificate"), file("key"))
    }
}
