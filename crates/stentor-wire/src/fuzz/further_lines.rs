//! What further lines do to a head: lists go on in them, and nothing else does.

use super::written::fields;
use crate::http1::request::Field;
use crate::http1::{FieldSlots, Head, parse};

/// Gives all lists a second line at once, and the other fields one after another. `written` is the
/// head as bytes.
pub(super) fn check(head: &Head<'_>, written: &[u8]) {
    let lines = written.strip_suffix(b"\r\n").expect("a head ends in an empty line");
    let sent = fields(&head.request).filter_map(|(field, value)| Some((field, value?)));
    let (lists, others): (Vec<_>, Vec<_>) = sent.partition(|(field, _)| field.separator.is_some());

    let more = lists.iter().map(|(field, _)| format!("{}: more\r\n", field.name));
    let longer = [lines, more.collect::<String>().as_bytes(), b"\r\n"].concat();
    let mut slots = FieldSlots::new();
    let joined = parse(&longer, &mut slots).expect("lists go on");
    assert_eq!(joined.framing, head.framing);
    for ((field, before), (_, after)) in fields(&head.request).zip(fields(&joined.request)) {
        let expected = before.map(|value| match (field.separator, value) {
            (None, value) => value.to_vec(),
            (Some(_), b"") => b"more".to_vec(),
            (Some(separator), value) => [value, separator.as_bytes(), b"more"].concat(),
        });
        assert_eq!(after, expected.as_deref(), "{}", field.name);
    }

    for (Field { name, .. }, value) in others {
        let twice = [lines, name.as_bytes(), b":", value, b"\r\n\r\n"].concat();
        if let Ok(counted) = parse(&twice, &mut FieldSlots::new()) {
            assert_eq!(counted, *head, "the first {name} counts, or none");
        }
    }
}
