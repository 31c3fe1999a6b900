//! The requests of the clients.

use super::{FILTERS, HANDSHAKE, TOPICS, WAYS, Way};
use stentor_io::Rng;

/// What a client asks for.
pub(super) fn wanted(rng: &mut Rng) -> (Way, Vec<&'static str>) {
    let way = WAYS[rng.below(WAYS.len())];
    let is_many = matches!(way, Way::Events | Way::Commands | Way::Polls) && rng.percent(70);
    let filters: Vec<_> = match (is_many, way) {
        (true, _) => (0..1 + rng.below(3)).map(|_| FILTERS[rng.below(FILTERS.len())]).collect(),
        (_, Way::Values) => (0..2).map(|_| TOPICS[rng.below(TOPICS.len())]).collect(),
        _ => vec![TOPICS[rng.below(TOPICS.len())]],
    };
    (way, filters)
}

/// The text of a request.
pub(super) fn request_of(
    way: Way,
    filters: &[&str],
    is_page: bool,
    query: &str,
    mut fields: String,
) -> String {
    let path = match way {
        Way::Values => "/-/values",
        Way::Feed => "/-/feed",
        Way::Snapshot => "/-/snapshot",
        _ if is_page || filters[0].contains('*') => "/-/events",
        _ => filters[0],
    };
    fields += match way {
        Way::Events => "Accept: text/event-stream\r\n",
        Way::Frames | Way::Commands => HANDSHAKE,
        Way::Put => "Content-Length: 4\r\n",
        _ => "",
    };
    fields += if way == Way::Commands { "Sec-WebSocket-Protocol: stentor.v1\r\n" } else { "" };
    let (method, body) = if way == Way::Put { ("PUT", "####") } else { ("GET", "") };
    format!("{method} {path}?{query} HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}
