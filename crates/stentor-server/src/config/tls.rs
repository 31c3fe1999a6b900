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
use stentor_tls::{PairFiles, Version};
use toml::Value;

use super::forms::{OneOrMany, PemPath, Repeated, Tables, Text, VersionName, WholePath};
use super::layer::set;
use super::show::{Table, number, one_or_many};
use super::{ConfigError, ControlAddress, Settings, parse_address, proxies};

/// What is configured of TLS. The files are read at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The file of the first certificate.
    pub cert: Option<PathBuf>,
    /// The file of its private key.
    pub key: Option<PathBuf>,
    /// The files of others.
    pub more: Vec<PairFiles>,
    /// The oldest version that is spoken.
    pub min_version: Version,
    /// The files of secrets that tickets are sealed with; the first seals, all open. None: a secret
    /// that ends with the process.
    pub ticket_secrets: Vec<PathBuf>,
    /// The file of those who sign the certificates of operators. With it the control listener lets
    /// nobody in by TLS who shows none.
    pub control_client_ca: Option<PathBuf>,
    /// For how long browsers are told to come by TLS only (RFC 6797); 0: they are not.
    pub hsts_s: u64,
    /// The public addresses that were written with `tls:`.
    pub listen: Vec<SocketAddr>,
    /// Those of the control listener.
    pub control: Vec<ControlAddress>,
}

/// An address as it is written for a listener: with `tls:` in front if it is for TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listening<A> {
    /// The address.
    pub address: A,
    /// Whether it was written with `tls:`.
    pub tls: bool,
    /// Whether it was written with `proxy:`, in front of that.
    pub proxy: bool,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            cert: None,
            key: None,
            more: Vec::new(),
            min_version: Version::Tls12,
            ticket_secrets: Vec::new(),
            control_client_ca: None,
            hsts_s: 0,
            listen: Vec::new(),
            control: Vec::new(),
        }
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

    /// Whether some address was written with `tls:`.
    fn is_written(&self) -> bool {
        !(self.listen.is_empty() && self.control.is_empty())
    }
}

impl Settings {
    /// Has the public listener listen on these.
    pub fn set_listen(&mut self, all: &[Listening<SocketAddr>]) {
        self.tls.listen = secure(all);
        let proxied = all.iter().filter(|one| one.proxy);
        self.proxies.listen = proxied.map(|one| one.address).collect();
        self.listen = all.iter().map(|one| one.address).collect();
    }

    /// Has the control listener listen on these.
    pub fn set_control(&mut self, all: &[Listening<ControlAddress>]) {
        self.tls.control = secure(all);
        self.control = all.iter().map(|one| one.address.clone()).collect();
    }

    /// Whether this address of the public listener speaks TLS.
    #[must_use]
    pub fn is_tls(&self, address: SocketAddr) -> bool {
        match self.tls.is_written() {
            true => self.tls.listen.contains(&address),
            false => !self.tls.pairs().is_empty(),
        }
    }

    /// Whether this address of the control listener speaks TLS.
    #[must_use]
    pub fn is_tls_control(&self, address: &ControlAddress) -> bool {
        self.tls.control.contains(address)
    }

    /// The port that the redirect listener leads to. `None`: the one that `https` means anyway.
    #[must_use]
    pub fn redirect_target(&self) -> Option<u16> {
        let first = || self.listen.iter().find(|address| self.is_tls(**address));
        let port = match self.redirect_port {
            0 => first().map_or(0, SocketAddr::port),
            port => port,
        };
        (!matches!(port, 0 | HTTPS_PORT)).then_some(port)
    }

    /// The public addresses as they were written.
    pub(super) fn listening(&self) -> Vec<Listening<SocketAddr>> {
        let one = |address: &SocketAddr| Listening {
            address: *address,
            tls: self.tls.listen.contains(address),
            proxy: self.is_proxied(*address),
        };
        self.listen.iter().map(one).collect()
    }

    /// Those of the control listener.
    pub(super) fn listening_control(&self) -> Vec<Listening<ControlAddress>> {
        let one = |address: &ControlAddress| Listening {
            address: address.clone(),
            tls: self.is_tls_control(address),
            proxy: false,
        };
        self.control.iter().map(one).collect()
    }

    /// Whether these settings have the same addresses speak the same.
    pub(crate) fn has_same_listeners(&self, other: &Settings) -> bool {
        let public = |of: &Settings| -> Vec<_> {
            let one =
                |address: &SocketAddr| (*address, of.is_tls(*address), of.is_proxied(*address));
            of.listen.iter().map(one).collect()
        };
        public(self) == public(other)
    }

    /// Likewise of the control listener.
    pub(crate) fn has_same_control(&self, other: &Settings) -> bool {
        self.listening_control() == other.listening_control()
    }

    /// What goes with TLS must have it.
    pub(super) fn check_tls(&self) -> Result<(), ConfigError> {
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
        if pairs.is_empty() && tls.is_written() {
            let reason = "an address is written with tls:, and there is no certificate: name one \
                          by tls_cert and tls_key, or in [[tls]]";
            return refuse("tls", reason);
        }
        let is_public = self.listen.iter().any(|address| self.is_tls(*address));
        if !pairs.is_empty() && !is_public && tls.control.is_empty() {
            let reason = "there is a certificate, and no address to show it at: write one with \
                          tls: in front of it";
            return refuse("tls", reason);
        }
        if tls.control_client_ca.is_some() && tls.control.is_empty() {
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

fn secure<A: Clone>(all: &[Listening<A>]) -> Vec<A> {
    all.iter().filter(|one| one.tls).map(|one| one.address.clone()).collect()
}

impl FromStr for Listening<SocketAddr> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let proxied = text.strip_prefix(PROXY);
        let rest = proxied.unwrap_or(text);
        let secure = rest.strip_prefix(TLS);
        let address = parse_address(secure.unwrap_or(rest))?;
        Ok(Listening { address, tls: secure.is_some(), proxy: proxied.is_some() })
    }
}

impl FromStr for Listening<ControlAddress> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let secure = text.strip_prefix(TLS);
        let address = secure.unwrap_or(text).parse()?;
        if secure.is_some() && matches!(address, ControlAddress::Unix(_)) {
            return Err(format!(
                "'{text}': who connects to a socket file is on this host, where TLS is of no use"
            ));
        }
        Ok(Listening { address, tls: secure.is_some(), proxy: false })
    }
}

impl<A: fmt::Display> fmt::Display for Listening<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.proxy { PROXY } else { "" })?;
        f.write_str(if self.tls { TLS } else { "" })?;
        self.address.fmt(f)
    }
}

/// What a document says of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairLayer {
    cert: Text<PemPath>,
    key: Text<PemPath>,
}

impl Repeated for PairLayer {
    const NAME: &str = "tls";
}

/// The settings at the top of a document that concern TLS.
pub(super) struct TlsLayer {
    pub(super) cert: Option<Text<WholePath>>,
    pub(super) key: Option<Text<WholePath>>,
    pub(super) more: Option<Tables<PairLayer>>,
    pub(super) min_version: Option<Text<VersionName>>,
    pub(super) ticket_secrets: Option<OneOrMany<WholePath>>,
    pub(super) control_client_ca: Option<Text<WholePath>>,
    pub(super) hsts_ms: Option<u64>,
}

impl TlsLayer {
    pub(super) fn apply(self, tls: &mut Tls) {
        set(&mut tls.cert, self.cert, |file| file.0.0);
        set(&mut tls.key, self.key, |file| file.0.0);
        set(&mut tls.more, self.more, |pairs| {
            let pair =
                |pair: PairLayer| PairFiles { certificate: pair.cert.0.0, key: pair.key.0.0 };
            pairs.0.into_iter().map(pair).collect()
        });
        set(&mut tls.min_version, self.min_version, |version| version.0.0);
        set(&mut tls.ticket_secrets, self.ticket_secrets, |files| {
            files.0.into_iter().filter_map(|file| file.0).collect()
        });
        set(&mut tls.control_client_ca, self.control_client_ca, |file| file.0.0);
        set(&mut tls.hsts_s, self.hsts_ms, |ms| ms / 1_000);
    }
}

/// The value of a setting at the top, as a document would say it.
pub(super) fn value_of(settings: &Settings, key: &str) -> Option<Value> {
    let tls = &settings.tls;
    let path = |file: &Option<PathBuf>| {
        file.as_ref().map(|file| file.display().to_string()).unwrap_or_default().into()
    };
    let paths = |files: &[PathBuf]| {
        let files: Vec<_> = files.iter().map(|file| file.display()).collect();
        one_or_many(&files)
    };
    Some(match key {
        "listen" => one_or_many(&settings.listening()),
        "control" => one_or_many(&settings.listening_control()),
        "redirect" => one_or_many(&settings.redirect),
        "redirect_port" => number(settings.redirect_port),
        "tls_cert" => path(&tls.cert),
        "tls_key" => path(&tls.key),
        "tls_min_version" => version_name(tls.min_version).into(),
        "tls_ticket_secret" => paths(&tls.ticket_secrets),
        "control_client_ca" => path(&tls.control_client_ca),
        "hsts" => super::quantity::duration(tls.hsts_s * 1_000).into(),
        key => return proxies::value_of(&settings.proxies, key),
    })
}

/// A pair of files as a table.
pub(super) fn table(pair: &PairFiles) -> Table {
    let path = |path: &PathBuf| Value::from(path.display().to_string());
    vec![("cert", path(&pair.certificate)), ("key", path(&pair.key))]
}

/// A version as people write it.
pub(super) fn version(text: &str) -> Result<Version, String> {
    match text {
        "1.2" => Ok(Version::Tls12),
        "1.3" => Ok(Version::Tls13),
        _ => Err(format!("'{text}' is not a version of TLS that is spoken: write '1.2' or '1.3'")),
    }
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "1.2",
        Version::Tls13 => "1.3",
    }
}

const TLS: &str = "tls:";
const PROXY: &str = "proxy:";

const HTTPS_PORT: u16 = 443;

#[cfg(test)]
mod tests;
