//! The paths of the server's own pages, and what a request says of its work before it is answered.

use stentor_config::{Lookup, Settings};
use stentor_files::mount_of;
use stentor_wire::events::topics_named;
use stentor_wire::http1::{Method, Request};
use stentor_wire::target;

/// The page for streams of many topics.
pub(crate) const EVENTS: &[u8] = b"/-/events";

/// The page that says what a client talks to.
pub(crate) const INFO: &[u8] = b"/-/info";

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

/// Whether a response may take much work: values that are put together, streams of several topics,
/// the list of a directory.
pub(crate) fn is_large(request: &Request<'_>, settings: &Settings) -> bool {
    let (path, query) = target::split(request.target);
    let is_looked_up = |lookup: &Lookup| request.target.starts_with(lookup.path.as_bytes());
    path == VALUES.as_bytes()
        || path == EVENTS && topics_named(query.unwrap_or_default()) > 1
        || settings.lookups.iter().any(is_looked_up)
        || settings.mounts.iter().any(|mount| mount.listing) && may_be_listed(path, settings)
}

/// Whether a path is that of a directory which may be answered with a list of its files.
fn may_be_listed(path: &[u8], settings: &Settings) -> bool {
    let Ok(path) = target::decode(path) else { return false };
    let mount = mount_of(&settings.mounts, &path);
    path.ends_with('/') && mount.is_some_and(|(_, mount, _)| mount.listing)
}

/// Whether a request only asks how the server is.
pub(crate) fn is_probe(request: &Request<'_>) -> bool {
    let (path, _) = target::split(request.target);
    let probes: [&[u8]; 6] =
        [INFO, b"/-/healthz", b"/-/readyz", b"/-/readyz/publish", b"/-/status", b"/-/metrics"];
    is_read(request.method) && probes.contains(&path)
}

/// Whether a method only reads.
pub(crate) fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_config::Mount;
    use stentor_wire::http1::{FieldSlots, parse};

    #[test]
    fn a_request_is_large_by_its_content() {
        let mut settings = Settings::default();
        settings.mounts.push(Mount { listing: true, ..Mount::new("/files/", ".") });
        settings.mounts.push(Mount::new("/files/unlisted/", "."));
        let long = "a".repeat(1_000);
        for (target, expected) in [
            ("/a?topic=/a&topic=/b", false),
            ("/-/values?topic=/a", true),
            ("/-/events", false),
            ("/-/events?topic=/a&since=1&mode=all&wait=5&access_token=t", false),
            (&format!("/-/events?topic=/{long}"), false),
            ("/-/events?topic=/a&topic=/b", true),
            ("/-/events?topic=/a&to%70ic=/b", true),
            ("/-/events?topic=/*", false),
            ("/files/", true),
            ("/files/a/", true),
            ("/files/a%2F", true),
            ("/files/a", false),
            ("/files/unlisted/", false),
        ] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            let mut slots = FieldSlots::new();
            let request = parse(head.as_bytes(), &mut slots).unwrap().request;
            assert_eq!(is_large(&request, &settings), expected, "{target}");
        }
    }
}
