//! Tables of conditions, alone and together.

use super::*;
use crate::http1::{FieldSlots, parse};
use std::time::{Duration, UNIX_EPOCH};

/// When the file of these tests was changed, and what time it is.
const MODIFIED_AT: u64 = 784_111_777;
const NOW: u64 = MODIFIED_AT + 100;

/// The tags of its forms; the last one is of a sibling.
const OURS: &[&[u8]] = &[b"0123", b"0123.gz", b"0123.br", b"77"];

fn date(unix_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s))
}

/// What becomes of a GET with these lines for a file whose dates tell, or do not.
fn verdict_of(fields: &str, dates_tell: bool) -> Verdict {
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut slots = FieldSlots::new();
    let request = parse(bytes.as_bytes(), &mut slots).expect("the head is good").request;
    let named = |list: &[u8], comparison| named(list, OURS, comparison);
    judge(&request, &Validators { named, modified_at: MODIFIED_AT, dates_tell }, NOW)
}

#[test]
fn tags_are_compared_by_the_letter() {
    // The list, and which of ours it names by strong and by weak comparison.
    let rows: &[(&str, Option<usize>, Option<usize>)] = &[
        ("\"0123\"", Some(0), Some(0)),
        ("\"0123.gz\"", Some(1), Some(1)),
        ("\"77\"", Some(3), Some(3)),
        ("W/\"0123.gz\"", None, Some(1)),
        (" \t\"0123\" ", Some(0), Some(0)),
        ("\"a\", \"77\"", Some(3), Some(3)),
        ("\"a\",W/\"b\" ,\t\"77\",\"c\"", Some(3), Some(3)),
        (",, ,\"0123\",", Some(0), Some(0)),
        ("\"a, b\", \"0123.br\"", Some(2), Some(2)),
        ("W/\"0123\", \"0123.br\"", Some(2), Some(0)),
        ("\"77\", \"0123.br\", \"0123.gz\"", Some(1), Some(1)),
        // Only what is written as a tag is one.
        ("0123", None, None),
        ("W/0123", None, None),
        ("w/\"0123\"", None, None),
        ("W/ \"0123\"", None, None),
        ("\"0123", None, None),
        ("0123\"", None, None),
        ("\"0123\"x", None, None),
        ("\"0123\" x", None, None),
        ("\"0123\"x, \"77\"", Some(3), Some(3)),
        ("\"0123\"\"77\"", Some(3), Some(3)),
        ("\" 0123 \"", None, None),
        ("\"\"0123\"\"", None, None),
        ("'0123'", None, None),
        ("\\\"0123\\\"", None, None),
        // Nor is anything like ours ours.
        ("\"0123.zst\"", None, None),
        ("\"012\"", None, None),
        ("\"01234\"", None, None),
        ("\"0123.GZ\"", None, None),
        ("\"a, 0123, b\"", None, None),
        ("*", None, None),
        ("\"*\"", None, None),
        ("", None, None),
        (",", None, None),
        ("\"", None, None),
        ("W/", None, None),
    ];
    for &(list, strong, weak) in rows {
        assert_eq!(named(list.as_bytes(), OURS, Comparison::Strong), strong, "strong: {list}");
        assert_eq!(named(list.as_bytes(), OURS, Comparison::Weak), weak, "weak: {list}");
    }
    assert_eq!(named(b"\"\"", &[b""], Comparison::Strong), Some(0), "an empty tag is a tag");
    assert_eq!(named(b"\"a\"", &[] as &[&[u8]], Comparison::Weak), None);
}

#[test]
fn one_condition_holds_or_not() {
    let (before, at, after) = (date(MODIFIED_AT - 1), date(MODIFIED_AT), date(MODIFIED_AT + 1));
    let (now, later) = (date(NOW), date(NOW + 1));
    let rows: &[(&str, &str, Verdict)] = &[
        ("If-Match", "\"0123\"", Verdict::Send),
        ("If-Match", "\"77\"", Verdict::Send),
        ("If-Match", "*", Verdict::Send),
        ("If-Match", "\"a\"", Verdict::Mismatch),
        ("If-Match", "W/\"0123\"", Verdict::Mismatch),
        ("If-Match", "0123", Verdict::Mismatch),
        ("If-Match", "", Verdict::Mismatch),
        ("If-None-Match", "\"0123\"", Verdict::NotModified(Some(0))),
        ("If-None-Match", "W/\"0123.br\"", Verdict::NotModified(Some(2))),
        ("If-None-Match", "\"a\", \"77\"", Verdict::NotModified(Some(3))),
        ("If-None-Match", "*", Verdict::NotModified(None)),
        ("If-None-Match", "\"a\"", Verdict::Send),
        ("If-None-Match", "", Verdict::Send),
        ("If-Modified-Since", &before, Verdict::Send),
        ("If-Modified-Since", &at, Verdict::NotModified(None)),
        ("If-Modified-Since", &after, Verdict::NotModified(None)),
        ("If-Modified-Since", &now, Verdict::NotModified(None)),
        ("If-Modified-Since", &later, Verdict::Send),
        ("If-Modified-Since", "Fri, 31 Dec 9999 23:59:59 GMT", Verdict::Send),
        ("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT", Verdict::NotModified(None)),
        ("If-Modified-Since", "Sun Nov  6 08:49:37 1994", Verdict::NotModified(None)),
        ("If-Modified-Since", "0", Verdict::Send),
        ("If-Modified-Since", "", Verdict::Send),
        ("If-Unmodified-Since", &before, Verdict::Newer),
        ("If-Unmodified-Since", &at, Verdict::Send),
        ("If-Unmodified-Since", &later, Verdict::Send),
        ("If-Unmodified-Since", "0", Verdict::Send),
        ("If-Unmodified-Since", "", Verdict::Send),
    ];
    for (name, value, expected) in rows {
        assert_eq!(verdict_of(&format!("{name}: {value}\r\n"), true), *expected, "{name}: {value}");
    }
    assert_eq!(verdict_of("", true), Verdict::Send);
    for date in [at, after] {
        let fields = format!("If-Modified-Since: {date}\r\n");
        assert_eq!(verdict_of(&fields, false), Verdict::Send, "changed twice in that second");
    }
}

#[test]
fn conditions_count_in_the_order_of_the_rfc() {
    let old = format!("If-Unmodified-Since: {}\r\n", date(MODIFIED_AT - 1));
    let seen = format!("If-Modified-Since: {}\r\n", date(MODIFIED_AT));
    let unseen = format!("If-Modified-Since: {}\r\n", date(MODIFIED_AT - 1));
    let (same, other) = ("If-Match: \"0123\"\r\n", "If-Match: \"a\"\r\n");
    let (has, lacks) = ("If-None-Match: \"0123.gz\"\r\n", "If-None-Match: \"a\"\r\n");
    let rows: &[(&[&str], Verdict)] = &[
        // If-Match silences If-Unmodified-Since, and If-None-Match silences If-Modified-Since.
        (&[same, &old], Verdict::Send),
        (&[lacks, &seen], Verdict::Send),
        (&[has, &unseen], Verdict::NotModified(Some(1))),
        // What fails fails before anything can be unmodified.
        (&[other, has], Verdict::Mismatch),
        (&[other, &seen], Verdict::Mismatch),
        (&[&old, has], Verdict::Newer),
        (&[&old, &seen], Verdict::Newer),
        // What holds leaves it to the others.
        (&[same, has], Verdict::NotModified(Some(1))),
        (&[same, lacks], Verdict::Send),
        (&[same, &seen], Verdict::NotModified(None)),
        (&[same, &unseen], Verdict::Send),
        (&["If-Unmodified-Since: x\r\n", has], Verdict::NotModified(Some(1))),
        (&["If-Match: *\r\n", "If-None-Match: *\r\n"], Verdict::NotModified(None)),
        (&[same, &old, has, &unseen], Verdict::NotModified(Some(1))),
        (&[same, &old, lacks, &seen], Verdict::Send),
    ];
    for (fields, expected) in rows {
        assert_eq!(verdict_of(&fields.concat(), true), *expected, "{fields:?}");
        let reversed: String = fields.iter().rev().copied().collect();
        assert_eq!(verdict_of(&reversed, true), *expected, "in any order: {fields:?}");
    }
}

#[test]
fn parts_are_only_of_what_the_client_has() {
    let at = date(MODIFIED_AT);
    let rows: &[(&str, bool)] = &[
        ("\"0123\"", true),
        (&at, true),
        ("Sunday, 06-Nov-94 08:49:37 GMT", true),
        ("W/\"0123\"", false),
        ("\"0123.gz\"", false),
        ("\"0123\", \"a\"", false),
        ("\"a\", \"0123\"", false),
        ("0123", false),
        ("\"0123", false),
        ("\"", false),
        ("\"\"", false),
        ("*", false),
        ("", false),
        (&date(MODIFIED_AT - 1), false),
        (&date(MODIFIED_AT + 1), false),
        (&date(NOW), false),
    ];
    for (value, expected) in rows {
        assert_eq!(if_range(value.as_bytes(), b"0123", MODIFIED_AT, NOW), *expected, "{value}");
    }
    for (now, expected) in [(MODIFIED_AT - 1, false), (MODIFIED_AT, false), (MODIFIED_AT + 1, true)]
    {
        assert_eq!(if_range(at.as_bytes(), b"0123", MODIFIED_AT, now), expected, "at {now}");
        assert!(if_range(b"\"0123\"", b"0123", MODIFIED_AT, now), "a tag has no age");
    }
}
