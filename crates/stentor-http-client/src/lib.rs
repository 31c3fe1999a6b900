//! An HTTP client whose connections are streams of `stentor-io`.
//!
//! ureq, the client library, opens sockets by itself. Here a [`Dialer`] opens them, so a simulated
//! network can stand in. TLS and proxies stay ureq's own.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::io;
use std::sync::Arc;

use stentor_io::{ByteStream, Dialer, HostDialer, connect_to_any, monotonic_us};
pub use ureq::Agent;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, Transport,
};

/// A client on the network of this host.
#[must_use]
pub fn agent(config: Config) -> Agent {
    agent_over(config, Arc::new(HostDialer))
}

/// A client on another network.
#[must_use]
pub fn agent_over(config: Config, dialer: Arc<dyn Dialer>) -> Agent {
    let resolver = DialResolver(Arc::clone(&dialer));
    // The order is ureq's own: a tunnel through a proxy, or else a connection, and TLS within it.
    let connector = ().chain(ConnectProxyConnector::default()).chain(DialConnector(dialer));
    Agent::with_parts(config, connector.chain(RustlsConnector::default()), resolver)
}

/// Looks up the names of hosts.
#[derive(Debug)]
struct DialResolver(Arc<dyn Dialer>);

impl Resolver for DialResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.scheme().zip(uri.authority());
        let host = host.and_then(|(scheme, of)| DefaultResolver::host_and_port(scheme, of));
        let host = host.ok_or(Error::HostNotFound)?;
        let found = self.0.resolve(&host, deadline(timeout)?);
        let mut addresses = self.empty();
        for address in found.map_err(|error| failed(error, timeout))?.into_iter().take(16) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}

/// Connects to the addresses of hosts.
#[derive(Debug)]
struct DialConnector(Arc<dyn Dialer>);

impl<T: Transport> Connector<T> for DialConnector {
    type Out = Either<T, StreamTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        tunnel: Option<T>,
    ) -> Result<Option<Either<T, StreamTransport>>, Error> {
        if tunnel.is_some() {
            return Ok(tunnel.map(Either::A));
        }
        if details.addrs.is_empty() {
            // ureq looks up no name for such a proxy.
            return Err(Error::Io(io::Error::other("a SOCKS proxy is not supported")));
        }
        let connected = connect_to_any(&*self.0, &details.addrs, deadline(details.timeout)?);
        let stream = connected.map_err(|error| failed(error, details.timeout))?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Either::B(StreamTransport { stream, buffers })))
    }
}

/// One connection.
#[derive(Debug)]
struct StreamTransport {
    stream: Arc<dyn ByteStream>,
    buffers: LazyBuffers,
}

impl Transport for StreamTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let written = self.stream.write_all(&self.buffers.output()[..amount], deadline(timeout)?);
        written.map_err(|error| failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let read = self.stream.read(self.buffers.input_append_buf(), deadline(timeout)?);
        let count = read.map_err(|error| failed(error, timeout))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        // A byte that comes between two requests is no part of an answer.
        self.stream.is_quiet()
    }
}

/// When the time is over. `None`: it is not bounded.
fn deadline(timeout: NextTimeout) -> Result<Option<u64>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|left| monotonic_us().saturating_add(left.as_micros() as u64)))
}

fn failed(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::time::Duration;
    use stentor_io::Waker;

    /// A network with one peer, which answers once. It takes note of the deadlines.
    #[derive(Debug, Default)]
    struct Network(Arc<Peer>);

    #[derive(Debug, Default)]
    struct Peer(Mutex<Vec<(&'static str, Option<u64>)>>);

    impl Peer {
        fn note(&self, what: &'static str, until_us: Option<u64>) {
            self.0.lock().unwrap().push((what, until_us));
        }
    }

    impl Dialer for Network {
        fn resolve(&self, _: &str, until_us: Option<u64>) -> io::Result<Vec<SocketAddr>> {
            self.0.note("resolve", until_us);
            Ok(vec!["192.0.2.1:80".parse().unwrap()])
        }

        fn connect(&self, _: SocketAddr, until: Option<u64>) -> io::Result<Arc<dyn ByteStream>> {
            self.0.note("connect", until);
            Ok(Arc::clone(&self.0) as _)
        }
    }

    impl ByteStream for Peer {
        fn read_or_wake(
            &self,
            buffer: &mut [u8],
            until_us: Option<u64>,
            _: Option<&Waker>,
        ) -> io::Result<usize> {
            self.note("read", until_us);
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            buffer[..answer.len()].copy_from_slice(answer);
            Ok(answer.len())
        }

        fn write(&self, bytes: &[u8], until_us: Option<u64>) -> io::Result<usize> {
            self.note("write", until_us);
            Ok(bytes.len())
        }

        fn is_quiet(&self) -> bool {
            false
        }
    }

    #[test]
    fn every_step_of_a_request_has_its_deadline() {
        let network = Arc::new(Network::default());
        let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(9))).build();
        let (peer, began_us) = (Arc::clone(&network.0), monotonic_us());
        agent_over(config, network).get("http://h/").call().unwrap();
        let steps = peer.0.lock().unwrap();
        for wanted in ["resolve", "connect", "write", "read"] {
            let until_us = steps.iter().filter(|(step, _)| *step == wanted).map(|(_, us)| *us);
            let left_us: Vec<_> = until_us.map(|us| us.map(|us| us - began_us)).collect();
            let is_near =
                |us: &Option<u64>| us.is_some_and(|us| us.abs_diff(9_000_000) < 5_000_000);
            assert!(!left_us.is_empty() && left_us.iter().all(is_near), "{wanted}: {left_us:?}");
        }
    }
}
