//! Certificates and their keys: which there are, what they are called, and whether they are good.
//!
//! Whoever names a pair of files gets what it needs out of them: the names are read from the
//! certificate itself (its subjectAltName; RFC 9525 section 6.1 lets nothing else count), so there
//! is no list of names that could say something else. One that cannot be used is refused with the
//! file and what is wrong with it, before a client finds out.
//!
//! All of it is data that does not change. Whoever loads new files makes a new [`Certificates`],
//! and keeps the one of before if something is wrong with them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use der::oid::ObjectIdentifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::handshake::Certified;
use crate::names;
use crate::x509::{Element, OID, X509, unix_s};

/// The contents of the files of a certificate: its chain, and its private key. One file may hold
/// both.
#[derive(Clone, Copy, Debug)]
pub struct PemPair<'a> {
    /// The name of the file, and what is in it: the certificate and, behind it, those that lead
    /// from it to a root.
    pub certificate: (&'a Path, &'a [u8]),
    /// Likewise of the private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: (&'a Path, &'a [u8]),
}

/// The certificates of a server, to be chosen from by name.
pub struct Certificates {
    pairs: Vec<Pair>,
    /// By name, the best first.
    exact: HashMap<String, Vec<usize>>,
    /// By what stands behind `*.`.
    wildcard: HashMap<String, Vec<usize>>,
    /// Who names nothing, or nothing known, is shown those of the first pair's first name.
    fallback: Vec<usize>,
}

/// One certificate with its chain and its key.
#[derive(Clone)]
pub struct Pair {
    pub(crate) certified: Certified,
    file: PathBuf,
    names: Vec<String>,
    not_after_unix_s: i64,
}

/// A certificate that a client shows, with its chain and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) certified: Certified,
}

/// What kind of key a certificate has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeyKind {
    /// ECDSA: small, and quick to sign with.
    Ecdsa,
    /// Ed25519: no browser knows it.
    Ed25519,
    /// RSA: everybody knows it, and a signature takes ten times as long.
    Rsa,
}

impl Certificates {
    /// Those of these pairs, of which the first is the fallback.
    #[must_use]
    pub fn new(pairs: Vec<Pair>) -> Certificates {
        let (mut exact, mut wildcard) = (HashMap::new(), HashMap::new());
        for (place, pair) in pairs.iter().enumerate() {
            for name in &pair.names {
                let (table, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut wildcard, rest),
                    None => (&mut exact, name.as_str()),
                };
                let places: &mut Vec<usize> = table.entry(name.to_owned()).or_default();
                places.push(place);
            }
        }
        // Of several of a kind the first stays in front: the sort is stable.
        for places in exact.values_mut().chain(wildcard.values_mut()) {
            places.sort_by_key(|place| pairs[*place].key_kind());
        }
        let mut fallback: Vec<usize> = (0..pairs.len()).take(1).collect();
        if let Some(name) = pairs.first().and_then(|pair| pair.names.first()) {
            let same = |pair: &Pair| pair.names.contains(name);
            fallback = (0..pairs.len()).filter(|place| same(&pairs[*place])).collect();
            fallback.sort_by_key(|place| pairs[*place].key_kind());
        }
        Certificates { pairs, exact, wildcard, fallback }
    }

    /// All of them, in the order in which they were named.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Those that may be shown to who asks for this name, the best first. There is one unless there
    /// are no certificates at all.
    ///
    /// A name of its own comes before a wildcard, which stands for one label (RFC 9525 section
    /// 6.3).
    pub fn candidates<'a>(
        &'a self,
        name: Option<&str>,
    ) -> impl Iterator<Item = &'a Pair> + use<'a> {
        let found = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            let by_wildcard = || {
                let (label, rest) = name.split_once('.')?;
                self.wildcard.get(rest).filter(|_| !label.is_empty())
            };
            self.exact.get(&name).or_else(by_wildcard)
        });
        found.unwrap_or(&self.fallback).iter().map(|place| &self.pairs[*place])
    }
}

impl Identity {
    /// Reads it. Whether it is valid is for those to say to whom it is shown.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn read(pem: &PemPair<'_>) -> Result<Identity, String> {
        let (file, text) = pem.certificate;
        let chain = read_chain(text).map_err(|why| of_file(file, &why))?;
        certify(chain, pem).map(|certified| Identity { certified })
    }
}

impl Pair {
    /// Reads what the files of a pair hold.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn read(pem: &PemPair<'_>, now_unix_s: u64) -> Result<Pair, String> {
        let (file, text) = pem.certificate;
        let chain = read_chain(text).map_err(|why| of_file(file, &why))?;
        let (names, not_after_unix_s) =
            inspect(&chain, now_unix_s).map_err(|why| of_file(file, &why))?;
        let certified = certify(chain, pem)?;
        Ok(Pair { certified, file: file.to_owned(), names, not_after_unix_s })
    }

    /// The file of its certificate.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The names it is for, in lower case; a wildcard begins with `*.`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What kind of key it has.
    #[must_use]
    pub fn key_kind(&self) -> KeyKind {
        self.certified.key_kind()
    }

    /// When it or one of its chain expires.
    #[must_use]
    pub fn not_after_unix_s(&self) -> i64 {
        self.not_after_unix_s
    }

    /// In how many whole days that is; less than nought if it is over.
    #[must_use]
    pub fn days_left(&self, now_unix_s: u64) -> i64 {
        let now = i64::try_from(now_unix_s).unwrap_or(i64::MAX);
        self.not_after_unix_s.saturating_sub(now).div_euclid(24 * 60 * 60)
    }
}

/// The certificates of a file, in order: of a chain, or of those that are trusted.
pub(crate) fn read_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut chain = Vec::new();
    for (place, certificate) in (1..).zip(CertificateDer::pem_slice_iter(text)) {
        chain.push(certificate.map_err(|error| malformed(place, &error))?);
    }
    match chain.is_empty() {
        true => Err("there is no certificate in it (in PEM)".to_owned()),
        false => Ok(chain),
    }
}

fn read_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let is_encrypted = text.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
        match error {
            _ if is_encrypted => {
                "its private key is encrypted: store it without a passphrase".to_owned()
            }
            rustls_pki_types::pem::Error::NoItemsFound => {
                "there is no private key in it (in PEM)".to_owned()
            }
            other => malformed(1, &other),
        }
    })
}

/// The certificate in this place, counted from 1, or the key, cannot be read.
pub(crate) fn malformed(place: usize, why: &dyn fmt::Display) -> String {
    format!("what is in place {place} cannot be read: {why}")
}

/// Names the file that something is wrong with.
pub(crate) fn of_file(file: &Path, why: &str) -> String {
    format!("{}: {why}", file.display())
}

/// A chain with the key that belongs to it.
fn certify(chain: Vec<CertificateDer<'static>>, pem: &PemPair<'_>) -> Result<Certified, String> {
    let ((file, _), (key_file, key_text)) = (pem.certificate, pem.key);
    let key = read_key(key_text).map_err(|why| of_file(key_file, &why))?;
    Certified::new(chain, key, (file, key_file))
}

/// Sees that a chain can be used: each is valid now, and each signed the one before it, by name.
/// No certificate may have an extension twice (RFC 5280 section 4.2).
pub(crate) fn inspect(
    chain: &[CertificateDer<'_>],
    now_unix_s: u64,
) -> Result<(Vec<String>, i64), String> {
    let now = i64::try_from(now_unix_s).unwrap_or(i64::MAX);
    let (mut names, mut first_end) = (Vec::new(), i64::MAX);
    let mut issuer = None;
    for (place, der) in (1..).zip(chain) {
        let malformed = |why: &dyn fmt::Display| malformed(place, why);
        let in_place = if place == 1 { String::new() } else { format!(" in place {place}") };
        let certificate = X509::read(der).map_err(|error| malformed(&error))?;
        let (mut seen, mut all) = (HashSet::new(), certificate.extensions.iter());
        if !all.all(|(id, _)| seen.insert(id)) {
            return Err(malformed(&"an extension is there twice"));
        }
        let usage = certificate.extension(EXTENDED_KEY_USAGE.as_bytes());
        let usage = usage
            .ok()
            .filter(|usage| usage.iter().flatten().all(|(tag, _)| *tag == OID))
            .ok_or_else(|| malformed(&"the extended key usage cannot be read"))?;
        let alternative = certificate.extension(SUBJECT_ALTERNATIVE_NAME.as_bytes());
        let alternative =
            alternative.map_err(|_| malformed(&"the subject alternative names cannot be read"))?;
        if issuer.is_some_and(|issuer| issuer != certificate.subject) {
            return Err(format!(
                "the certificate{in_place} is not the issuer of the one before it: the server's \
                 own comes first, then each is followed by its issuer"
            ));
        }
        issuer = Some(certificate.issuer);
        let X509 { not_before, not_after, .. } = certificate;
        if now < unix_s(not_before) {
            return Err(format!("the certificate{in_place} is valid from {not_before} on"));
        }
        if now > unix_s(not_after) {
            return Err(format!("the certificate{in_place} expired on {not_after}"));
        }
        first_end = first_end.min(unix_s(not_after));
        if place == 1 {
            let is_for_servers =
                |(_, id): &Element<'_>| FOR_SERVERS.iter().any(|good| good.as_bytes() == *id);
            if usage.is_some_and(|usage| !usage.iter().any(is_for_servers)) {
                let why = "the certificate may not be used by servers (extendedKeyUsage)";
                return Err(why.to_owned());
            }
            names = presented(&alternative.unwrap_or_default());
        }
    }
    Ok((names, first_end))
}

/// The names a certificate is for. What a browser would not match is left out.
fn presented(alternative: &[Element<'_>]) -> Vec<String> {
    let mut names = Vec::new();
    for name in alternative.iter().filter(|(tag, _)| *tag == DNS_NAME) {
        let Ok(name) = str::from_utf8(name.1) else { continue };
        let name = name.to_ascii_lowercase();
        if names::is_presented_name(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.pairs).finish()
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.key_kind();
        f.debug_struct("Pair")
            .field("file", &self.file)
            .field("kind", &kind)
            .finish_non_exhaustive()
    }
}

const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const SUBJECT_ALTERNATIVE_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
/// `anyExtendedKeyUsage` and `id-kp-serverAuth` (RFC 5280 section 4.2.1.12).
const FOR_SERVERS: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("2.5.29.37.0"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1"),
];
/// The identifier byte of such a name (section 4.2.1.6).
const DNS_NAME: u8 = 0x82;
const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";

#[cfg(test)]
mod tests;
