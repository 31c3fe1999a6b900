//! TLS: which addresses speak it, which certificates are shown there, and what goes with that.
//!
//! Where there are certificates, all public addresses speak TLS, unless some address is written
//! with `tls:` in front of it; then those do that are, and no other. So the simplest case is a
//! certificate and nothing else, and nobody who forgets a word is left with plain text.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use stentor_tls::Version;

use crate::forms::{File, Name, OneOrMany, OrNone, Repeated, Text};
use crate::quantity::{Seconds, YEAR};
use crate::setting::settings;
use crate::show::Table;
use crate::{ConfigError, ControlAddress, Settings, parse_address};

settings! {
    /// What is configured of TLS. The files are read at the start.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Tls in (tls) {
        TLS: "" {
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
            ticket_secrets: Vec<PathBuf> = Vec::new(), tls_ticket_secret: OneOrMany<OrNone<File>>;
        }
        HSTS: "" {
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

/// An address as it is written for a listener: with `tls:` in front if it is for TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenAddress<A> {
    /// The address.
    pub address: A,
    /// Whether it was written with `tls:`.
    pub tls: bool,
    /// Whether it was written with `proxy:`, in front of that.
    pub proxy: bool,
}

impl<A> From<A> for ListenAddress<A> {
    fn from(address: A) -> Self {
        ListenAddress { address, tls: false, proxy: false }
    }
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
    fn is_tls_written(&self) -> bool {
        self.listen.iter().any(|one| one.tls) || self.has_tls_control()
    }

    fn has_tls_control(&self) -> bool {
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

    /// What goes with TLS must have it.
    pub(crate) fn check_tls(&self) -> Result<(), ConfigError> {
        let tls = &self.tls;
        let refuse = |name: &str, reason: &str| Err(ConfigError::new(name, reason));
        match (&tls.cert, &tls.key) {
            (Some(_), None) => return refuse("tls_cert", "name the file of its key by tls_key"),
            (None, Some(_)) => return refuse("tls_key", "name its certificate by tls_cert"),
            _ => {}
        }
        let pairs = tls.pairs();
        if let Some(pair) = (1..pairs.len()).find(|i| pairs[..*i].contains(&pairs[*i])) {
            let file = pairs[pair].certificate.display();
            return refuse("tls", &format!("the certificate in {file} is there twice"));
        }
        if pairs.is_empty() && self.is_tls_written() {
            let reason = "an address is written with tls:, and there is no certificate: name one \
                          by tls_cert and tls_key, or in [[tls]]";
            return refuse("tls", reason);
        }
        let is_public = self.listen.iter().any(|address| self.is_tls(address));
        if !pairs.is_empty() && !is_public && !self.has_tls_control() {
            let reason = "there is a certificate, and no address to show it at: write one with \
                          tls: in front of it";
            return refuse("tls", reason);
        }
        if tls.control_client_ca.is_some() && !self.has_tls_control() {
            let reason = "certificates of clients are asked for by TLS: write the address of \
                          control with tls: in front of it";
            return refuse("control_client_ca", reason);
        }
        for (name, is_used) in [
            ("redirect", !self.redirect.is_empty()),
            ("redirect_port", self.redirect_port != 0),
            ("hsts", tls.hsts_s != 0),
        ] {
            if is_used && !is_public {
                let reason = "no public address speaks TLS: name a certificate by tls_cert and \
                              tls_key, or in [[tls]]";
                return refuse(name, reason);
            }
        }
        if !tls.ticket_secrets.is_empty() && pairs.is_empty() {
            return refuse("tls_ticket_secret", "there is no certificate, so nobody has tickets");
        }
        if tls.ticket_secrets.len() > stentor_tls::TICKET_SECRETS_MAX {
            let reason = format!("at most {} files", stentor_tls::TICKET_SECRETS_MAX);
            return refuse("tls_ticket_secret", &reason);
        }
        Ok(())
    }
}

impl FromStr for ListenAddress<SocketAddr> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let proxied = text.strip_prefix(PROXY_PREFIX);
        let rest = proxied.unwrap_or(text);
        let secure = rest.strip_prefix(TLS_PREFIX);
        let address = parse_address(secure.unwrap_or(rest))?;
        Ok(ListenAddress { address, tls: secure.is_some(), proxy: proxied.is_some() })
    }
}

impl FromStr for ListenAddress<ControlAddress> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let secure = text.strip_prefix(TLS_PREFIX);
        let address = secure.unwrap_or(text).parse()?;
        if secure.is_some() && matches!(address, ControlAddress::Unix(_)) {
            return Err(format!(
                "'{text}': who connects to a socket file is on this host, where TLS is of no use"
            ));
        }
        Ok(ListenAddress { address, tls: secure.is_some(), proxy: false })
    }
}

impl<A: fmt::Display> fmt::Display for ListenAddress<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.proxy { PROXY_PREFIX } else { "" })?;
        f.write_str(if self.tls { TLS_PREFIX } else { "" })?;
        self.address.fmt(f)
    }
}

/// What a document says of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PairLayer {
    cert: Text<File>,
    key: Text<File>,
}

impl Repeated for PairLayer {
    const NAME: &str = "tls";

    fn apply(all: Vec<PairLayer>, settings: &mut Settings) {
        let pair = |pair: PairLayer| PairFiles { certificate: pair.cert.0.0, key: pair.key.0.0 };
        settings.tls.more = all.into_iter().map(pair).collect();
    }
}

/// A pair of files as a table.
pub(crate) fn table(pair: &PairFiles) -> Table {
    let path = |path: &PathBuf| path.display().to_string().into();
    vec![("cert", path(&pair.certificate)), ("key", path(&pair.key))]
}

const TLS_PREFIX: &str = "tls:";
const PROXY_PREFIX: &str = "proxy:";

const HTTPS_PORT: u16 = 443;

#[cfg(test)]
mod tests;
