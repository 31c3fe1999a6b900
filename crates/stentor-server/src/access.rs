//! What a request may touch: the listeners, what each of them grants, and every decision that
//! follows from it.
//!
//! A connection has the number of the listener it came in by. What that means is said here and
//! nowhere else, so that a new listener is a line of the table, and who may do what is read in one
//! place.

use crate::config::{Cors, Settings};
use std::net::IpAddr;
use stentor_hub::Filter;
use stentor_io::Role;
use stentor_wire::http1::Request;
use stentor_wire::status::{Refusal, Status};

/// Connections of the public listeners: they read.
pub(crate) const PUBLIC: Role = 0;
/// Connections of the control listeners: they publish, and read too.
pub(crate) const CONTROL: Role = 1;
/// Connections of the monitor listeners: they are told how the server is, and nothing else.
pub(crate) const MONITOR: Role = 2;

/// A kind of listener, and what it grants to whoever comes in by it.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Its number.
    pub(crate) role: Role,
    /// What operators call it.
    pub(crate) name: &'static str,
    /// Values, streams and files are read.
    pub(crate) reads: bool,
    /// Messages are published and topics deleted.
    pub(crate) publishes: bool,
    /// The names of all topics are listed, and patterns may always be read.
    pub(crate) operates: bool,
    /// The pages that say how the server is are shown.
    pub(crate) monitors: bool,
    /// Pages of other origins may read, as `[cors]` says.
    pub(crate) has_cors: bool,
    /// It goes by addresses and by names that are listed, and by no other.
    pub(crate) checks_host: bool,
    /// Its connections are counted by their addresses, and bounded.
    pub(crate) counts_addresses: bool,
}

/// All kinds of listeners, each at the place of its number.
pub(crate) static LISTENERS: [Listener; 3] = [
    Listener {
        role: PUBLIC,
        name: "public",
        reads: true,
        publishes: false,
        operates: false,
        monitors: false,
        has_cors: true,
        checks_host: false,
        counts_addresses: true,
    },
    Listener {
        role: CONTROL,
        name: "control",
        reads: true,
        publishes: true,
        operates: true,
        monitors: true,
        has_cors: false,
        checks_host: true,
        counts_addresses: false,
    },
    Listener {
        role: MONITOR,
        name: "monitor",
        reads: false,
        publishes: false,
        operates: false,
        monitors: true,
        has_cors: false,
        // Whoever scrapes it does so under any name, and nothing there can be changed.
        checks_host: false,
        counts_addresses: false,
    },
];

/// The listener of that number.
pub(crate) fn listener(role: Role) -> &'static Listener {
    &LISTENERS[usize::from(role)]
}

/// Something that not everybody may do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act<'a> {
    /// To ask for anything, over TCP.
    Ask(&'a Request<'a>),
    /// To publish or delete, where that can be done at all.
    Publish(&'a Request<'a>),
    /// To write to the guestbook, where there is one.
    Sign(&'a Request<'a>),
    /// To read all of these as a stream.
    Read(&'a [Filter]),
    /// To open a WebSocket, from a page if the request names its origin.
    Connect(&'a Request<'a>),
}

impl Listener {
    /// Whether somebody who came in here may do that.
    ///
    /// # Errors
    /// The answer to one who may not.
    pub(crate) fn may(&self, settings: &Settings, act: Act<'_>) -> Result<(), Refusal> {
        match act {
            Act::Ask(request) if self.checks_host && !is_meant(settings, request) => {
                Err(MISDIRECTED)
            }
            Act::Publish(request) => refuse_pages(request),
            Act::Sign(request) if !self.is_own_page(settings, request) => Err(NOT_OWN_PAGE),
            Act::Read(filters)
                if !self.operates
                    && !settings.streams.public_patterns
                    && filters.iter().any(|filter| matches!(filter, Filter::Pattern(_))) =>
            {
                Err(NO_PATTERNS)
            }
            Act::Connect(request) if !self.is_open_to(request, &settings.cors) => Err(BAD_ORIGIN),
            Act::Ask(_) | Act::Sign(_) | Act::Read(_) | Act::Connect(_) => Ok(()),
        }
    }

    /// Whether a page may open a WebSocket: one of this very host, or one that is listed. What is
    /// no page names no origin.
    fn is_open_to(&self, request: &Request<'_>, cors: &Cors) -> bool {
        let Some(origin) = request.origin else { return true };
        let is_own = request.host.is_some_and(|host| is_origin_of(origin, host));
        is_own || self.has_cors && (cors.allows_any() || cors.lists(origin))
    }

    /// Whether it is a page of this very server that asks, and under a name that cannot be rebound:
    /// a browser lets no other page say so.
    fn is_own_page(&self, settings: &Settings, request: &Request<'_>) -> bool {
        let is_own = request.origin.is_some() && self.is_open_to(request, &Cors::default());
        let is_same_site = matches!(request.fetch_site, None | Some(b"same-origin"));
        is_own && is_same_site && is_meant(settings, request)
    }

    /// The origin that a request names, if the answer is to say that its pages may read it.
    pub(crate) fn listed_origin<'a>(&self, request: &Request<'a>, cors: &Cors) -> Option<&'a [u8]> {
        request.origin.filter(|origin| self.has_cors && cors.lists(origin))
    }
}

/// Whether a page of `origin` comes from the host that a request names (RFC 6454 section 5). Which
/// scheme brought it here only the origin says: a proxy may have taken off the TLS.
fn is_origin_of(origin: &[u8], host: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(origin, b"://") else { return false };
    let (scheme, own) = (&origin[..at], &origin[at + 3..]);
    let usual_port: &[u8] = match scheme {
        b"http" => b"80",
        b"https" => b"443",
        _ => b"",
    };
    let of = |host| {
        let (name, port) = split_port(host);
        (name, if port.is_empty() { usual_port } else { port })
    };
    let ((own_name, own_port), (name, port)) = (of(own), of(host));
    !name.is_empty() && own_name.eq_ignore_ascii_case(name) && own_port == port
}

/// The name or address of a host, and its port, which may be empty (RFC 3986 section 3.2).
fn split_port(host: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b':', host) {
        Some(at) if !host[at..].contains(&b']') => (&host[..at], &host[at + 1..]),
        _ => (host, b""),
    }
}

/// Whether a request is meant for a listener of this host. A page may be under a name that now
/// leads here (DNS rebinding): a browser takes the listener for the page's own server then, and
/// names it so. An address, and a name that always is this host, cannot be rebound.
fn is_meant(settings: &Settings, request: &Request<'_>) -> bool {
    // Only in HTTP/1.0 may it be missing, and no browser speaks that; nor does one leave it empty.
    let Some(host) = request.host else { return true };
    let Ok(name) = std::str::from_utf8(split_port(host).0) else { return false };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_name = |known: &str| name.eq_ignore_ascii_case(known);
    host.is_empty()
        || address.parse::<IpAddr>().is_ok()
        || is_name("localhost")
        || settings.control_hosts.iter().any(|known| is_name(known))
}

/// A browser says which page sends a write. Pages must not be able to publish just because the
/// browser that shows them runs where the control listener can be reached.
fn refuse_pages(request: &Request<'_>) -> Result<(), Refusal> {
    match (request.origin, request.fetch_site) {
        (Some(_), _) => Err(PAGE),
        (None, Some(b"cross-site" | b"same-site")) => Err(FOREIGN_PAGE),
        (None, _) => Ok(()),
    }
}

/// The answer to a request that is not meant for this host (RFC 9110 section 15.5.20).
const MISDIRECTED: Refusal = Refusal::new(
    Status::MISDIRECTED_REQUEST,
    "The control listener does not go by this name: ask it by its address or as localhost, or list \
     the name in control_hosts.",
);
const PAGE: Refusal = Refusal::new(
    Status::FORBIDDEN,
    "Web pages cannot publish: a request with an Origin is refused here.",
);
const FOREIGN_PAGE: Refusal = Refusal::new(
    Status::FORBIDDEN,
    "Web pages cannot publish: what a page of another site makes a browser send is refused here \
     (Sec-Fetch-Site).",
);
const NOT_OWN_PAGE: Refusal = Refusal::new(
    Status::FORBIDDEN,
    "Only a page of this server writes here, and only under an address or as localhost.",
);
/// Whoever reads by pattern is told the names of all topics that match.
const NO_PATTERNS: Refusal = Refusal::new(
    Status::FORBIDDEN,
    "Patterns may not be read here (streams.public_patterns): name the topics.",
);
const BAD_ORIGIN: Refusal =
    Refusal::new(Status::FORBIDDEN, "Pages of this origin may not read here (cors.origins).");
