//! The paths of the server's own pages, and what a request says of its work before it is answered.

use stentor_config::Lookup;
use stentor_wire::http1::{Method, Request};
use stentor_wire::target;

/// The page for streams of many topics.
pub(crate) const EVENTS: &[u8] = b"/-/events";

/// The page of many values.
pub(crate) const VALUES: &str = "/-/values";

/// The page of a snapshot, and that of a feed.
pub(crate) const SNAPSHOT: &[u8] = b"/-/snapshot";
pub(crate) const FEED: &[u8] = b"/-/feed";

/// Where a WebSocket is sent back what it sends: on the control listener, to try proxies with.
pub(crate) const ECHO: &[u8] = b"/-/echo";

/// The pages that begin an upgrade, and a reload.
pub(crate) const UPGRADE: &[u8] = b"/-/upgrade";
pub(crate) const RELOAD: &[u8] = b"/-/reload";

/// Whether a request asks for what may be much: many values, or streams of many topics.
pub(crate) fn is_large(request: &Request<'_>, lookups: &[Lookup]) -> bool {
    let target = request.target;
    target.starts_with(VALUES.as_bytes())
        || target.starts_with(EVENTS) && target.len() > LARGE_TARGET_BYTES
        || lookups.iter().any(|lookup| target.starts_with(lookup.path.as_bytes()))
}

/// Whether a request only asks how the server is.
pub(crate) fn is_probe(request: &Request<'_>) -> bool {
    let (path, _) = target::split(request.target);
    let probes: [&[u8]; 4] = [b"/-/healthz", b"/-/readyz", b"/-/status", b"/-/metrics"];
    is_read(request.method) && probes.contains(&path)
}

/// Whether a method only reads.
pub(crate) fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// A request for streams that is longer than this may name many topics.
const LARGE_TARGET_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::http1::{FieldSlots, parse};

    #[test]
    fn a_long_request_for_streams_waits_in_line() {
        for (bytes, expected) in [(100, false), (1_000, true)] {
            let head =
                format!("GET /-/events?topic=/{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(bytes));
            let mut slots = FieldSlots::new();
            let request = parse(head.as_bytes(), &mut slots).unwrap().request;
            assert_eq!(is_large(&request, &[]), expected, "{bytes} bytes");
        }
    }
}
