//! The client of a connection, which a proxy may name.
//!
//! At an address that is written with `proxy:` a header names the client once (the PROXY protocol).
//! The worker peeks at it in the socket and takes it out once it is whole, so nothing of it is kept
//! here, and TLS begins behind it. Elsewhere a field of each request names the client, and counts
//! if the connection comes from a trusted proxy. Then the connection is that client's from the
//! request to its answer: it counts by the client's address as one that the client had made itself,
//! and is logged by it. In between it is the proxy's own, and is not counted.

use super::http::Http;
use super::state::State;
use super::{Connection, Origin, RequestWait};
use crate::context::Context;
use crate::put_off::TOO_MANY;
use std::net::IpAddr;

use stentor_wire::forwarded;
use stentor_wire::http1::{Method, Request};
use stentor_wire::proxy_protocol::Source;

impl Connection {
    /// Whether nothing is read before a proxy has said whose connection it is.
    pub(crate) fn awaits_proxy_header(&self) -> bool {
        self.http().is_some_and(|http| http.wait() == RequestWait::ProxyHeader)
    }

    /// A proxy has said whose connection it is. Returns whether that client may have it.
    pub(crate) fn begin_client(&mut self, cx: &mut Context, source: Source) -> bool {
        // The first request has the rest of the time that a head has.
        self.state = State::Http(Http::new(RequestWait::Head, 0, None));
        let (origin, client) = match source {
            Source::Proxy => (Origin::Probe, None),
            Source::Unknown => (Origin::Proxy, None),
            Source::Client(client) if cx.settings.proxies.trusts(client) => {
                (Origin::Proxy, Some(client))
            }
            Source::Client(client) => (Origin::Client, Some(client)),
        };
        self.origin = origin;
        cx.access.clients.set(cx.peer, client);
        self.count(cx, client)
    }

    /// Tells a client to come again that asks too early, or that has too many connections through a
    /// proxy. Returns whether it does.
    pub(super) fn is_put_off(
        &mut self,
        cx: &mut Context,
        request: &Request<'_>,
        named: Option<IpAddr>,
    ) -> bool {
        let rejection = match cx.shared.may_answer(request) {
            Err(rejection) => rejection,
            Ok(()) if self.take_client(cx, named) => {
                cx.heed_access_lists();
                return false;
            }
            Ok(()) => {
                cx.stats.connections_refused.add(1);
                TOO_MANY
            }
        };
        cx.stats.requests.add(1);
        let head_only = request.method == Method::Head;
        self.last_exchange(cx, head_only).put_off(request, &rejection);
        true
    }

    /// The client that a trusted proxy names in a field of this head.
    pub(super) fn named_client(&self, cx: &Context, head: &[u8]) -> Option<IpAddr> {
        let proxies = &cx.settings.proxies;
        let field = proxies.header.filter(|_| self.origin == Origin::Proxy)?;
        forwarded::client(head, field, |address| proxies.trusts(address))
    }

    /// Records the client of a request that comes through a proxy. Returns whether that client may
    /// have the connection.
    fn take_client(&mut self, cx: &mut Context, client: Option<IpAddr>) -> bool {
        if cx.settings.proxies.header.is_none() || self.origin != Origin::Proxy {
            return true;
        }
        if client.is_none() && !self.counted.is_some() && cx.access.clients.get(cx.peer).is_none() {
            return true;
        }
        cx.access.clients.set(cx.peer, client);
        self.count(cx, client)
    }

    /// If no request is under way, a proxy's connection is its own again.
    pub(super) fn forget_client(&mut self, cx: &mut Context) {
        let is_own = self.origin != Origin::Proxy || !self.is_between_requests();
        if !is_own && (self.counted.is_some() || cx.access.clients.get(cx.peer).is_some()) {
            cx.access.clients.set(cx.peer, None);
            self.count(cx, None);
        }
    }

    /// Counts the connection by the address that it has, in a process that has taken it over.
    pub(crate) fn count_again(&mut self, cx: &Context, address: Option<IpAddr>) {
        let is_counted = self.is_free() || self.counted.is_some();
        let proxies = &cx.settings.proxies;
        let address = address.filter(|address| !is_counted && !proxies.trusts(*address));
        if let Some(address) = address {
            self.counted = cx.count_unbounded(self.role(), address);
        }
    }

    /// Counts the connection by no address.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn uncount(&mut self, cx: &Context) {
        cx.shared.addresses.leave(std::mem::take(&mut self.counted));
    }

    /// Whether the socket itself says whose connection it is.
    pub(crate) fn is_of_client(&self) -> bool {
        !self.is_free() && self.origin == Origin::Client
    }

    /// Counts the connection by this address and no other. Returns whether that may have it.
    fn count(&mut self, cx: &Context, client: Option<IpAddr>) -> bool {
        cx.shared.addresses.leave(std::mem::take(&mut self.counted));
        let client = client.filter(|client| !cx.settings.proxies.trusts(*client));
        let counted = cx.count_in(self.role(), client);
        self.counted = counted.unwrap_or_default();
        counted.is_some()
    }

    /// Keeps what is to be logged of a request, unless a proxy only looks whether the server is
    /// there.
    pub(super) fn note_asked(&self, cx: &mut Context, bytes: &[u8]) {
        if self.origin != Origin::Probe {
            cx.note_asked(bytes);
        }
    }
}
