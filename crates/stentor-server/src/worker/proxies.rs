//! Connections at the addresses for proxies: each begins with a header that says whose it is.

use super::Worker;
use crate::put_off;
use std::io::IoSlice;
use std::net::IpAddr;
use stentor_io::{Backend, Peer};
use stentor_wire::proxy_protocol::{HEADER_BYTES_MAX, Header, Source, parse};

impl Worker {
    /// Checks for the header of a connection. Returns whether it was read and the connection
    /// continues.
    pub(super) fn read_proxy_header<B: Backend>(&mut self, io: &mut B, peer: Peer) -> bool {
        self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
        let mut bytes = [0; HEADER_BYTES_MAX];
        let shown = io.peek(peer, &mut bytes);
        let Header { len, source } = match parse(&bytes[..shown]) {
            Ok(Some(header)) => header,
            Ok(None) => return false,
            Err(_) => {
                self.cx.stats.proxy_headers_refused.add(1);
                self.with(peer, |connection, cx| connection.abort(cx, io));
                return false;
            }
        };
        let Some(connection) = self.connections.at(peer.index()) else { return false };
        self.cx.peer = peer;
        if connection.begin_client(&mut self.cx, source) {
            io.discard(peer, len);
            return true;
        }
        // To close on what is unread would be a reset, and overtake the answer.
        io.discard(peer, shown);
        if let Source::Client(client) = source {
            self.refuse_connection(Some(client));
        }
        let farewell = put_off::farewell(&bytes[len..shown], self.cx.rng.next_u64());
        let _ = io.send(peer, &[IoSlice::new(&farewell)]);
        self.with(peer, |connection, cx| connection.close(cx, io));
        false
    }

    /// Takes note of a connection that is refused since no trusted proxy makes it.
    pub(super) fn refuse_stranger(&mut self, address: Option<IpAddr>) {
        self.cx.stats.proxy_headers_refused.add(1);
        if let Some(address) = address
            && self.strangers.is_due(self.cx.clock.now_ms)
        {
            tracing::warn!(
                "connection refused: {address} connects to an address for proxies (proxy:) and is \
                 not one of trusted_proxies; if it is a proxy, add it there"
            );
        }
    }
}
