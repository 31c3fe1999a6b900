//! `[cluster]`: the broker that keeps the order of several servers, if one does.

use std::path::PathBuf;

use super::Settings;
use crate::forms::{AnyText, File, OneOrMany, OrNone, Text};
use crate::quantity::{Bytes, Count, DAY, GIB, HOUR, MIB, Millis, SECOND};
use crate::servers::{BrokerUrl, ServerUrl, StreamName};
use crate::setting::settings;

settings! {
    /// The broker that keeps the order, and how.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Cluster in Settings(cluster) {
        CLUSTER: "cluster" on [nats] {
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
