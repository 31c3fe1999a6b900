//! TLS: which addresses speak it, which certificates are shown there, and what goes with that.
//!
//! Where there are certificates, all public addresses speak TLS, unless some address is written
//! with `tls:` in front of it; then those do that are, and no other. So the simplest case is a
//! certificate and nothing else, and nobody who forgets a word is left with plain text.

use std::net::SocketAddr;
use std::path::PathBuf;

use stentor_tls::Version;

use super::Settings;
use crate::addresses::ListenAddress;
use crate::forms::{File, Name, OneOrMany, OrNone, Text};
use crate::quantity::{Seconds, YEAR};
use crate::setting::settings;

settings! {
    /// What is configured of TLS. The files are read at the start.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Tls in Settings(tls) {
        TLS: "" on [] {
            /// The file of those who sign the certificates of operators. With it the control
            /// listener lets nobody in by TLS who shows none.
            control_client_ca: Option<PathBuf> = None, control_client_ca: Text<OrNone<File>>;
            /// The file of the first certificate.
            cert: Option<PathBuf> = None, tls_cert: Text<OrNone<File>>;
            /// The file of its private key.
            key: Option<PathBuf> = None, tls_key: Text<OrNone<File>>;
            /// The oldest version that is spoken.
            min_version: Version = Version::Tls12, tls_min_version: Text<Name<Version>>;
            /// The files of secrets that tickets are sealed with; the first seals, all open. None:
            /// a secret that ends with the process.
            ticket_secrets: Vec<PathBuf> = Vec::new(), tls_ticket_secret: OneOrMany<File>;
        }
        HSTS: "" on [] {
            /// For how long browsers are told to come by TLS only (RFC 6797); 0: they are not.
            hsts_s: u64 = 0, hsts: Seconds<0, { 10 * YEAR }>;
        }
    }
    and {
        /// The files of other certificates.
        more: Vec<PairFiles> = Vec::new();
    }
}

/// The files of a certificate: its chain, and its private key. They may be the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairFiles {
    /// The certificate and, behind it, those that lead from it to a root.
    pub certificate: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

impl Tls {
    /// The files of all certificates, in the order in which they count.
    #[must_use]
    pub fn pairs(&self) -> Vec<PairFiles> {
        let first = self.cert.iter().zip(&self.key);
        let first =
            first.map(|(cert, key)| PairFiles { certificate: cert.clone(), key: key.clone() });
        first.chain(self.more.iter().cloned()).collect()
    }
}

impl Settings {
    /// Whether this address of the public listener speaks TLS.
    #[must_use]
    pub fn is_tls(&self, address: &ListenAddress<SocketAddr>) -> bool {
        match self.is_tls_written() {
            true => address.tls,
            false => !self.tls.pairs().is_empty(),
        }
    }

    /// Whether some address was written with `tls:`.
    pub(crate) fn is_tls_written(&self) -> bool {
        self.listen.iter().any(|one| one.tls) || self.has_tls_control()
    }

    pub(crate) fn has_tls_control(&self) -> bool {
        self.control.iter().any(|one| one.tls)
    }

    /// The port that the redirect listener leads to. `None`: the one that `https` means anyway.
    #[must_use]
    pub fn redirect_target(&self) -> Option<u16> {
        let first = || self.listen.iter().find(|address| self.is_tls(address));
        let port = match self.redirect_port {
            0 => first().map_or(0, |one| one.address.port()),
            port => port,
        };
        (!matches!(port, 0 | HTTPS_PORT)).then_some(port)
    }

    /// Whether these settings have the same addresses speak the same.
    #[must_use]
    pub fn has_same_listeners(&self, other: &Settings) -> bool {
        let public = |of: &Settings| -> Vec<_> {
            of.listen.iter().map(|one| (one.address, of.is_tls(one), one.proxy)).collect()
        };
        public(self) == public(other)
    }
}

const HTTPS_PORT: u16 = 443;

#[cfg(test)]
mod tests;
