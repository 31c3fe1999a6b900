//! `[cluster]`: the broker that keeps the order of several servers, if one does.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use stentor_wire::target::Server;

use crate::Settings;
use crate::error::ConfigError;
use crate::follow::ServerUrl;
use crate::forms::{AnyText, File, OneOrMany, OrNone, Text};
use crate::quantity::{Bytes, Count, DAY, GIB, HOUR, MIB, Millis, SECOND};
use crate::setting::settings;

settings! {
    /// The broker that keeps the order, and how.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Cluster in (cluster) {
        CLUSTER: "cluster" {
            /// Servers of NATS, one of which is used. None: this server makes its own order, or
            /// follows.
            nats: Vec<BrokerUrl> = Vec::new(), nats(restart): OneOrMany<BrokerUrl>;
            /// The stream, and what its subjects begin with.
            stream: StreamName = StreamName("stentor".to_owned()),
                stream(restart): Text<StreamName>;
            /// As whom this server shows itself.
            user: Option<String> = None, user(restart): Text<AnyText>;
            /// A file with the password of `user`.
            password_file: Option<PathBuf> = None, password_file(restart): Text<OrNone<File>>;
            /// A file with a token that is shown instead,
            token_file: Option<PathBuf> = None, token_file(restart): Text<OrNone<File>>;
            /// or one with the seed of a key, and mostly a JWT.
            creds_file: Option<PathBuf> = None, creds_file(restart): Text<OrNone<File>>;
            /// A file with the certificates by which brokers are known, instead of this system's.
            ca_file: Option<PathBuf> = None, ca_file(restart): Text<OrNone<File>>;
            /// A certificate that is shown to brokers,
            cert_file: Option<PathBuf> = None, cert_file(restart): Text<OrNone<File>>;
            /// and its private key.
            key_file: Option<PathBuf> = None, key_file(restart): Text<OrNone<File>>;
            /// Control listeners of other nodes, for what the stream does not have any more.
            peers: Vec<ServerUrl> = Vec::new(), peers(restart): OneOrMany<ServerUrl>;
            /// A file with the token that is shown to them.
            peer_token_file: Option<PathBuf> = None, peer_token_file(restart): Text<OrNone<File>>;
            /// A file with the certificates by which they are known, instead of this system's.
            peer_ca_file: Option<PathBuf> = None, peer_ca_file(restart): Text<OrNone<File>>;
            /// How many servers of NATS keep the stream, if it is made here.
            replicas: u32 = 1, replicas(restart): Count<1, 5>;
            /// How long, and how much, the stream keeps, if it is made here.
            keep_ms: u64 = HOUR, keep(restart): Millis<{ 60 * SECOND }, { 365 * DAY }>;
            /// The same in bytes.
            keep_bytes: u64 = GIB, keep_bytes(restart): Bytes<{ 16 * MIB }, { 1_024 * GIB }>;
            /// For how long the broker may be away before this server is not ready.
            stale_max_ms: u64 = 60_000, stale_max(restart): Millis<SECOND, { 7 * DAY }>;
            /// How often what is here is kept on the disk, if there is a directory for it.
            save_every_ms: u64 = 60_000, save_every(restart): Millis<SECOND, DAY>;
        }
    }
}

impl Cluster {
    /// Whether a broker keeps the order.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.nats.is_empty()
    }
}

/// A server of NATS: `nats://` or `tls://`, a host, and a port unless it is 4222.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerUrl {
    is_tls: bool,
    host: String,
    port: u16,
}

impl BrokerUrl {
    /// The host and the port, with a colon in between.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Its name, or its address, as certificates have it.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether it is to be reached by TLS alone.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl FromStr for BrokerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<BrokerUrl, String> {
        // What stands there may be secret, and what is wrong goes to the log.
        if text.contains('@') {
            return Err("a server of NATS is written without whom it is shown: nats://HOST:PORT, \
                        and a user by cluster.user and cluster.password_file, or a token by \
                        cluster.token_file"
                .to_owned());
        }
        let server = Server::alone(text).filter(|at| matches!(at.scheme, "nats" | "tls"));
        let broker = server.map(|Server { scheme, host, port, .. }| BrokerUrl {
            is_tls: scheme == "tls",
            host: host.to_owned(),
            port: port.unwrap_or(4222),
        });
        broker.ok_or_else(|| {
            format!(
                "'{}' is not a server of NATS: write nats://HOST:PORT or tls://HOST:PORT",
                text.escape_debug()
            )
        })
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "tls" } else { "nats" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// The name of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamName(String);

impl StreamName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StreamName {
    type Err = String;

    fn from_str(text: &str) -> Result<StreamName, String> {
        let is_usual = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if text.is_empty() || text.len() > 32 || !text.bytes().all(is_usual) {
            return Err(format!(
                "'{}' is not the name of a stream: write letters, digits, - and _, 32 at most",
                text.escape_debug()
            ));
        }
        Ok(StreamName(text.to_owned()))
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Rules across settings.
pub(crate) fn check(settings: &Settings) -> Result<(), ConfigError> {
    let cluster = &settings.cluster;
    if !cluster.is_on() {
        return Ok(());
    }
    let error = |key, reason: &str| Err(ConfigError::new(key, reason));
    if settings.follow.is_on() {
        return error(
            "cluster.nats",
            "a node of a cluster follows nobody: leave out follow.leader, or cluster.nats",
        );
    }
    if settings.guestbook.is_some() {
        return error("cluster.nats", "the demo publishes alone");
    }
    if cluster.user.is_some() != cluster.password_file.is_some() {
        return error("cluster.user", "a user and password_file go together");
    }
    let shown = [&cluster.password_file, &cluster.token_file, &cluster.creds_file];
    if shown.into_iter().flatten().count() > 1 {
        return error(
            "cluster.creds_file",
            "a broker is shown one of a user, a token and credentials: leave out the others",
        );
    }
    if cluster.cert_file.is_some() != cluster.key_file.is_some() {
        return error("cluster.cert_file", "cert_file and key_file go together");
    }
    let is_secured = cluster.nats.iter().any(BrokerUrl::is_tls);
    if !is_secured && (cluster.ca_file.is_some() || cluster.cert_file.is_some()) {
        return error("cluster.ca_file", "certificates are for a broker at tls://, and none is");
    }
    let is_secured = cluster.peers.iter().any(|peer| peer.as_str().starts_with("https:"));
    if !is_secured && cluster.peer_ca_file.is_some() {
        return error("cluster.peer_ca_file", "it is for cluster.peers at https://, and none is");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker() {
        let from = |text: &str| Settings::from_toml(text, "f").map(|settings| settings.cluster);
        assert!(!from("").unwrap().is_on());
        let cluster = from(
            "[cluster]\nnats = ['nats://10.0.0.1', 'nats://b.example:4223/']\nstream = 'scores'\n\
             user = 'me'\npassword_file = '/p'\npeers = 'http://10.0.0.2:8081'\nreplicas = 3\n\
             keep = '2h'\nkeep_bytes = '2 GiB'\nstale_max = '5s'",
        );
        let cluster = cluster.unwrap();
        let addresses: Vec<_> = cluster.nats.iter().map(BrokerUrl::address).collect();
        assert_eq!(addresses, ["10.0.0.1:4222", "b.example:4223"]);
        let url = |text: &str| text.parse::<BrokerUrl>().unwrap();
        let secured = url("tls://[::1]");
        assert_eq!((secured.host(), secured.address().as_str()), ("::1", "[::1]:4222"));
        assert!(secured.is_tls() && !url("nats://b").is_tls());
        assert_eq!(secured.to_string(), "tls://[::1]:4222");
        assert_eq!((cluster.stream.as_str(), cluster.replicas), ("scores", 3));
        assert_eq!((cluster.keep_ms, cluster.keep_bytes), (2 * HOUR, 2 * GIB));
        for bad in [
            "nats = 'b:4222'",
            "nats = 'http://b'",
            "nats = 'nats://'",
            "nats = 'nats://me@b'",
            "nats = 'nats://b:'",
            "nats = 'nats://b:+80'",
            "nats = 'nats://b:0'",
            "nats = 'nats://[::1'",
            "nats = 'nats://[b]'",
            "peers = 'http://b:99999'",
            "nats = 'nats://::1'",
            "nats = 'ws://b'",
            "stream = 'a.b'",
            "stream = ''",
            "peers = 'b'",
            "replicas = 6",
            "keep = '1s'",
            "broker = 'nats://b'",
        ] {
            assert!(from(&format!("[cluster]\n{bad}")).is_err(), "{bad}");
        }
        for bad in ["nats://me:se@cret@b", "nats://secret@b", "me:secret/x@b"] {
            let why = from(&format!("[cluster]\nnats = '{bad}'")).unwrap_err().to_string();
            assert!(why.contains("cluster.password_file") && !why.contains("cret"), "{why}");
        }
    }

    #[test]
    fn what_goes_with_it() {
        let error_of = |text: &str| {
            let text = format!("[cluster]\n{text}");
            let settings = Settings::from_toml(&text, "f").unwrap();
            settings.validate().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let error = |text: &str| error_of(&format!("nats = 'nats://b'\n{text}"));
        assert_eq!(error("user = 'a'\npassword_file = '/p'"), "");
        assert!(error("user = 'a'").contains("go together"));
        assert!(error("[follow]\nleader = 'http://a'").contains("follows nobody"));
        let both = "user = 'a'\npassword_file = '/p'\ntoken_file = '/t'";
        assert!(error(both).contains("leave out the others"));
        assert!(error("token_file = '/t'\ncreds_file = '/c'").contains("leave out the others"));
        assert!(error("cert_file = '/c'").contains("go together"));
        assert!(error("ca_file = '/c'").contains("at tls://"));
        assert!(
            error("peer_ca_file = '/c'\npeers = 'http://c'").contains("cluster.peers at https")
        );
        assert_eq!(error("peer_ca_file = '/c'\npeers = 'https://c'"), "");
        let secured = "nats = 'tls://b'\nca_file = '/c'\ncert_file = '/c'\nkey_file = '/k'";
        assert_eq!(error_of(secured), "");
    }
}
