//! A connection to a broker.
//!
//! One read takes a bounded number of bytes, so a node that is slow reads slowly. Output is
//! gathered, and written at one go.
//!
//! A broker says in the clear who it is. Where TLS is asked for, nothing else is said or believed
//! before there is TLS.

use super::channel::Channel;
use super::credentials::Credentials;
use super::wire::{self, Received, Said};
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use stentor_config::{BrokerUrl, Cluster as Settings, read_small};
use stentor_io::{
    ByteStream, Dialer, Waker, connect_to_any, is_late, monotonic_us, read_file, wiping,
};
use stentor_tls::{Connector, Identity, PemPair, Trust};

/// A connection that is up.
pub(super) struct Link {
    channel: Channel,
    pub(super) received: Received,
    out: Vec<u8>,
    /// The largest message that the broker takes, as it has said last.
    pub(super) payload_max: usize,
    /// Names the run of the broker.
    pub(super) server_id: String,
    /// Other brokers of its cluster.
    pub(super) connect_urls: Vec<String>,
}

/// What a broker says of itself.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a wire struct of serde")]
pub(super) struct About {
    #[serde(default)]
    server_id: String,
    /// Negative: it takes any.
    max_payload: Option<i64>,
    #[serde(default)]
    headers: bool,
    #[serde(default)]
    jetstream: bool,
    #[serde(default)]
    tls_required: bool,
    #[serde(default)]
    tls_available: bool,
    #[serde(default)]
    nonce: String,
    /// Other brokers of its cluster: a host and a port each.
    #[serde(default)]
    pub(super) connect_urls: Vec<String>,
    /// *Lame duck*: it ends soon, and clients are to leave it one by one.
    #[serde(default, rename = "ldm")]
    pub(super) is_ending: bool,
}

impl About {
    /// The largest message that a broker takes, if it says so: it may be another one for the
    /// account that is shown to it, and change while it runs.
    pub(super) fn payload_max(&self) -> Option<usize> {
        self.max_payload.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// What a broker says of itself while it runs; `None` if that makes no sense.
    pub(super) fn read(info: &[u8]) -> Option<About> {
        serde_json::from_slice(info).ok()
    }
}

impl Link {
    /// Connects to a broker.
    ///
    /// # Errors
    /// One sentence, or a part of one whose subject is the broker.
    pub(super) fn connect(
        dialer: &dyn Dialer,
        url: &BrokerUrl,
        settings: &Settings,
        name: &str,
    ) -> Result<Link, String> {
        let told = |error: io::Error| error.to_string();
        let until_us = monotonic_us() + CONNECT_MAX_US;
        let stream = dial(dialer, &url.address(), until_us)?;
        let mut channel = Channel::new(stream);
        let mut rest = Received::default();
        let Said::Info(info) = hear(&mut channel, &mut rest, until_us)? else {
            return Err("it does not begin as a server of NATS does".to_owned());
        };
        let about: About = serde_json::from_slice(&info).map_err(|error| error.to_string())?;
        if !about.headers || !about.jetstream {
            return Err(NO_JETSTREAM.to_owned());
        }
        match (url.is_tls(), about.tls_required) {
            (false, true) => return Err("it asks for TLS: name it as tls://".to_owned()),
            (true, false) if !about.tls_available => {
                return Err("it has no TLS, and is named as tls://".to_owned());
            }
            (true, _) if !rest.bytes.is_empty() => {
                return Err("something was said in the clear before there was TLS".to_owned());
            }
            (true, _) => {
                let connector = connector(url, settings)?;
                wiping(|| channel.secure(&connector, &mut rest.bytes, until_us))?;
            }
            (false, _) => {}
        }
        let mut out = Vec::new();
        wire::connect(&options(settings, name, &about.nonce)?, &mut out);
        channel.write_all(&out, until_us).map_err(told)?;
        if about.is_ending {
            return Err(IS_ENDING.to_owned());
        }
        let mut payload_max = about.payload_max().unwrap_or(usize::MAX);
        loop {
            match hear(&mut channel, &mut rest, until_us)? {
                Said::Pong => break,
                Said::Error(reason) => return Err(format!("says: {reason}")),
                Said::Info(info) => {
                    let said = About::read(&info).and_then(|about| about.payload_max());
                    payload_max = said.unwrap_or(payload_max);
                }
                _ => {}
            }
        }
        out.clear();
        let About { server_id, connect_urls, .. } = about;
        Ok(Link { channel, received: rest, out, payload_max, server_id, connect_urls })
    }

    /// Waits for more until `until_us`, or until the waker is woken, and takes all that is whole.
    ///
    /// # Errors
    /// The connection is of no use any more. `all` has the messages that came before.
    pub(super) fn read(
        &mut self,
        all: &mut Vec<Said>,
        until_us: u64,
        waker: &Waker,
    ) -> Result<(), String> {
        let read = self.channel.read(&mut self.received.bytes, until_us, Some(waker));
        self.received.take(all)?;
        match read {
            Ok(true) => Ok(()),
            Ok(false) => Err(ENDED.to_owned()),
            Err(error) if is_late(&error) || error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What is to be written.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes it.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.channel.write_all(&self.out, monotonic_us() + WRITE_MAX_US)?;
            self.out.clear();
        }
        Ok(())
    }
}

/// Whether everything can be read that is shown to brokers, or by which they are known.
///
/// # Errors
/// One sentence.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    Credentials::read(settings)?;
    let mut secured = settings.nats.iter().filter(|url| url.is_tls());
    secured.try_for_each(|url| connector(url, settings).map(drop))
}

fn dial(dialer: &dyn Dialer, address: &str, until_us: u64) -> Result<Arc<dyn ByteStream>, String> {
    // A name that is looked up slowly holds up nothing else (`Broker::dial`).
    let addresses = dialer.resolve(address, None).map_err(|error| error.to_string())?;
    connect_to_any(dialer, &addresses, Some(until_us)).map_err(|error| match error {
        error if is_late(&error) => "connection timed out".to_owned(),
        error => error.to_string(),
    })
}

/// Begins TLS with this broker. The files are read each time, for they are renewed.
fn connector(url: &BrokerUrl, settings: &Settings) -> Result<Connector, String> {
    let setting = "cluster.ca_file";
    let roots = stentor_access::roots_of(settings.ca_file.as_deref(), setting, read_file)?;
    let trust = Trust::of(roots.iter().map(|root| root.der()));
    let identity = match (&settings.cert_file, &settings.key_file) {
        (Some(cert), Some(key)) => {
            let (certificate, private) = (read_small(cert)?, read_small(key)?);
            let pem = PemPair { certificate: (cert, &certificate), key: (key, &private) };
            Some(Identity::read(&pem)?)
        }
        _ => None,
    };
    let connector = Connector::new(url.host(), &trust, identity.as_ref())?;
    Ok(connector.without_alpn())
}

/// What a node says first.
fn options(settings: &Settings, name: &str, nonce: &str) -> Result<String, String> {
    let mut options = serde_json::json!({
        "verbose": false,
        "pedantic": false,
        "name": name,
        "lang": "stentor",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": 1,
        "headers": true,
        "no_responders": true,
    });
    Credentials::read(settings)?.add_to(&mut options, nonce);
    Ok(options.to_string())
}

/// Waits for what is said next.
fn hear(channel: &mut Channel, rest: &mut Received, until_us: u64) -> Result<Said, String> {
    loop {
        if let Some((said, length)) = wire::read(&rest.bytes)? {
            // A client without a subscription receives no message.
            rest.bytes.drain(..length.min(rest.bytes.len()));
            return Ok(said);
        }
        let read = channel.read(&mut rest.bytes, until_us, None);
        if !read.map_err(|error| error.to_string())? {
            return Err(ENDED.to_owned());
        }
    }
}

const ENDED: &str = "it ended the connection";

const NO_JETSTREAM: &str = "it has no JetStream: begin it with --jetstream, and anew if its disk \
                            was full, for then it switches JetStream off";

pub(super) const IS_ENDING: &str = "it is about to stop (lame duck mode)";

/// A broker that has not let a node in by then is given up, however it was kept waiting.
pub(super) const CONNECT_MAX_US: u64 = if cfg!(test) { 2_000_000 } else { 3_000_000 };

/// One that has not taken by then what was to be written is given up, too.
const WRITE_MAX_US: u64 = if cfg!(test) { 2_000_000 } else { 5_000_000 };
