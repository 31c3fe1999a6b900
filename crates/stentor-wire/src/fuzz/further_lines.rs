//! What further lines do to a head: lists go on in them, and nothing else does.

use super::written::fields;
use crate::http1::{FieldSlots, Head, parse};

/// Gives all lists a second line at once, and the other fields one after another. `written` is the
/// head as bytes.
pub(super) fn check(head: &Head<'_>, written: &[u8]) {
    let lines = written.strip_suffix(b"\r\n").expect("a head ends in an empty line");
    let sent = fields(&head.request).into_iter().filter_map(|(name, value)| Some((name, value?)));
    let (lists, others): (Vec<_>, Vec<_>) = sent.partition(|(name, _)| LISTS.contains(name));

    let more = lists.iter().map(|(name, _)| format!("{name}: more\r\n")).collect::<String>();
    let longer = [lines, more.as_bytes(), b"\r\n"].concat();
    let mut slots = FieldSlots::new();
    let joined = parse(&longer, &mut slots).expect("lists go on");
    assert_eq!(joined.framing, head.framing);
    for ((name, before), (_, after)) in
        fields(&head.request).into_iter().zip(fields(&joined.request))
    {
        let expected = before.map(|value| match (LISTS.contains(&name), value) {
            (false, value) => value.to_vec(),
            (true, b"") => b"more".to_vec(),
            (true, value) => [value, b", more"].concat(),
        });
        assert_eq!(after, expected.as_deref(), "{name}");
    }

    for (name, value) in others {
        let twice = [lines, name.as_bytes(), b":", value, b"\r\n\r\n"].concat();
        if let Ok(counted) = parse(&twice, &mut FieldSlots::new()) {
            assert_eq!(counted, *head, "the first {name} counts, or none");
        }
    }
}

/// The fields that are lists (RFC 9110, RFC 7240, RFC 6455).
const LISTS: [&str; 10] = [
    "Accept",
    "Accept-Encoding",
    "Cache-Control",
    "Content-Encoding",
    "If-Match",
    "If-None-Match",
    "Prefer",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Protocol",
    "Upgrade",
];
