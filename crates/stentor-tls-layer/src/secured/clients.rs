//! Who clients are that had to say so: those of a control listener, which may ask for certificates.
//!
//! Other connections take nothing here. From where a client comes is kept until it is let in, for
//! the log of those who are not; and to whom its certificate was given, for the log of what it is
//! refused.

use crate::limits::CLIENT_BYTES_MAX;
use std::collections::HashMap;
use std::net::IpAddr;
use stentor_io::LogThrottle;
use stentor_io::Peer;
use stentor_tls::HandshakeError;

/// Those of a worker.
#[derive(Debug, Default)]
pub(super) struct Clients {
    known: HashMap<Peer, Client, foldhash::fast::RandomState>,
    names_bytes: usize,
    /// The line that says that some were not let in.
    throttle: LogThrottle,
}

#[derive(Debug)]
enum Client {
    /// It comes from there, and its handshake is not done. `None`: by a socket file.
    Comes(Option<IpAddr>),
    /// Its certificate was given to this one.
    Is(Box<str>),
}

impl Clients {
    /// One has come.
    pub(super) fn begin(&mut self, peer: Peer, address: Option<IpAddr>) {
        self.known.insert(peer, Client::Comes(address));
    }

    /// It is let in. `None`: nobody has asked who it is.
    pub(super) fn let_in(&mut self, peer: Peer, name: Option<String>) {
        self.forget(peer);
        let Some(mut name) = name else { return };
        name.truncate(name.floor_char_boundary(CLIENT_BYTES_MAX));
        self.names_bytes += name.len();
        self.known.insert(peer, Client::Is(name.into_boxed_str()));
    }

    /// It is not let in, since it has not shown a certificate that is good.
    pub(super) fn refuse(&mut self, peer: Peer, error: &HandshakeError, now_ms: u64) {
        if !self.throttle.is_due(now_ms) {
            return;
        }
        let since = self.throttle.take();
        let address = match self.known.get(&peer) {
            Some(Client::Comes(Some(address))) => address.to_canonical().to_string(),
            _ => "an address that is not known".to_owned(),
        };
        tracing::warn!(
            "a client from {address} is not let in: {error} ({since} since the last such line)"
        );
    }

    /// To whom its certificate was given.
    pub(super) fn name(&self, peer: Peer) -> Option<&str> {
        match self.known.get(&peer)? {
            Client::Is(name) => Some(name),
            Client::Comes(_) => None,
        }
    }

    /// It has gone.
    pub(super) fn forget(&mut self, peer: Peer) {
        if let Some(Client::Is(name)) = self.known.remove(&peer) {
            self.names_bytes -= name.len();
        }
    }

    /// What they take.
    pub(super) fn bytes(&self) -> usize {
        self.known.len() * size_of::<(Peer, Client)>() + self.names_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_client_is_cut() {
        let (mut clients, peer) = (Clients::default(), Peer::from_index(1));
        clients.let_in(peer, Some("é".repeat(200)));
        assert_eq!(clients.name(peer).map(str::len), Some(256));
        clients.forget(peer);
        assert_eq!(clients.bytes(), 0);
    }
}
