//! Other servers, as they are named in settings.

use std::fmt;
use std::str::FromStr;

use stentor_wire::target::Server;

/// A server: `http://` or `https://`, a host, and a port unless it is the usual one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Whether it is reached by TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// Without a slash at the end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerUrl, String> {
        // The text may have a password in it, and the error goes to the log.
        if text.contains('@') {
            return Err("a server is written without a user and a password: http://HOST:PORT or \
                        https://HOST:PORT"
                .to_owned());
        }
        let server = Server::alone(text).filter(|at| matches!(at.scheme, "http" | "https"));
        let reason = "this is not a server: write http://HOST:PORT or https://HOST:PORT";
        server.map(|server| ServerUrl(server.to_string())).ok_or_else(|| reason.to_owned())
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
        // The text may have a password in it, and the error goes to the log.
        // mutation: broker-password
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
        let reason = "this is not a server of NATS: write nats://HOST:PORT or tls://HOST:PORT";
        broker.ok_or_else(|| reason.to_owned())
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
pub struct StreamName(pub(crate) String);

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
