//! Tables of what clients send, and what they get.

use super::*;

/// The set of the given encodings.
fn set(encodings: &[Encoding]) -> Encodings {
    let mut set = Encodings::EMPTY;
    for &encoding in encodings {
        set.insert(encoding);
    }
    set
}

#[test]
fn a_set_holds_what_was_put_in() {
    for encoding in Encoding::ALL {
        assert!(!Encodings::EMPTY.contains(encoding));
        assert_eq!(Encoding::ALL.map(|other| set(&[encoding]).contains(other)), {
            Encoding::ALL.map(|other| other == encoding)
        });
        assert!(set(&Encoding::ALL).contains(encoding));
        assert_eq!(Encoding::from_token(encoding.token().as_bytes()), Some(encoding));
    }
}

#[test]
fn the_best_encoding_is_chosen() {
    use Encoding::{Br, Gzip, Identity, Zstd};
    let all = &Encoding::ALL[..];
    let rows: &[(Option<&str>, &[Encoding], Option<Encoding>)] = &[
        (None, all, Some(Identity)),
        (None, &[Gzip], None),
        (Some(""), all, Some(Identity)),
        (Some(" , ,"), all, Some(Identity)),
        (Some("gzip"), all, Some(Gzip)),
        (Some("gzip"), &[Identity], Some(Identity)),
        (Some("GZIP"), all, Some(Gzip)),
        (Some("x-gzip"), all, Some(Gzip)),
        (Some("gzip, deflate, br, zstd"), all, Some(Br)),
        (Some("gzip, deflate, br, zstd"), &[Identity, Gzip, Zstd], Some(Zstd)),
        (Some("gzip,deflate"), all, Some(Gzip)),
        (Some("gzip;q=1.0, br;q=0.5"), all, Some(Gzip)),
        (Some("gzip ; q=0.2 , br\t;\tQ=0.3"), all, Some(Br)),
        (Some("gzip;q=0.001"), all, Some(Gzip)),
        (Some("identity, gzip"), all, Some(Gzip)),
        (Some("identity;q=1, gzip;q=0.5"), all, Some(Identity)),
        (Some("identity;q=0.001, gzip;q=0.002"), all, Some(Gzip)),
        (Some("*"), all, Some(Br)),
        (Some("*"), &[Identity, Gzip], Some(Gzip)),
        (Some("*;q=0.5, gzip"), all, Some(Gzip)),
        (Some("br;q=0, *"), all, Some(Zstd)),
        (Some("identity;q=0"), &[Identity], None),
        (Some("*;q=0"), all, None),
        (Some("*;q=0, identity"), all, Some(Identity)),
        (Some("*;q=0, gzip;q=0.5"), all, Some(Gzip)),
        (Some("gzip;q=0"), all, Some(Identity)),
        (Some("gzip;q=0.000"), &[Gzip], None),
        (Some("gzip, gzip;q=0"), &[Gzip], Some(Gzip)),
        (Some("gzip;q=.5"), all, Some(Gzip)),
        (Some("gzip;q=1."), all, Some(Gzip)),
        // What is malformed is as if it were not there.
        (Some("gzip;q=2"), all, Some(Identity)),
        (Some("gzip;q=1.001"), all, Some(Identity)),
        (Some("gzip;q=0.0001"), all, Some(Identity)),
        (Some("gzip;q=-1"), all, Some(Identity)),
        (Some("gzip;q="), all, Some(Identity)),
        (Some("gzip;q=."), all, Some(Identity)),
        (Some("gzip;q=a"), all, Some(Identity)),
        (Some("gzip br"), all, Some(Identity)),
        (Some("gzip;level=9;q=0.5"), all, Some(Gzip)),
        (Some("compress, sdch"), all, Some(Identity)),
        (Some("\u{e9}"), all, Some(Identity)),
        (Some("gzip"), &[], None),
    ];
    for &(header, available, expected) in rows {
        let best = Acceptable::parse(header.map(str::as_bytes)).best(set(available));
        assert_eq!(best, expected, "{header:?} of {available:?}");
    }
}

#[test]
fn tags_of_the_same_message_match() {
    let matching = [
        "\"k3-17\"",
        "W/\"k3-17\"",
        "k3-17",
        "W/k3-17",
        "\"k3-17.gz\"",
        "\"k3-17.br\"",
        "W/\"k3-17.zst\"",
        "k3-17.gz",
        " \t\"k3-17\" ",
        "\"a\", \"k3-17\"",
        "\"a\",\"k3-17\",\"b\"",
        "a, W/\"b\" ,k3-17.br , \"c\"",
        ",, ,\"k3-17\"",
        "\"a,b\", \"k3-17\"",
        "\"k3-17",
        "*",
        " * ",
    ];
    let of_proxies = ["-gzip", "--gzip", ";gzip", ":br", "-br", "_gzip", ".zst", "-df"];
    let of_proxies = of_proxies.map(|suffix| {
        [format!("\"k3-17{suffix}\""), format!("W/\"k3-17{suffix}\""), format!("k3-17{suffix}")]
    });
    let of_proxies = of_proxies.as_flattened().iter().map(String::as_str);
    for header in matching.into_iter().chain(of_proxies).chain(["\"k3-17\"-gzip"]) {
        assert!(tag_matches(header.as_bytes(), b"k3-17"), "{header}");
    }
    let other = [
        "",
        ",",
        "\"\"",
        "\"k3-1\"",
        "\"k3-170\"",
        "\"K3-17\"",
        "\"xk3-17\"",
        "\"k3-17.\"",
        "\"k3-17.gz.gz\"",
        "\"k3-17.exe\"",
        "\"k3-17-1\"",
        "\"k3-17---gzip\"",
        "w/\"k3-17\"",
        "\"a, k3-17, b\"",
        "\"*\"",
        "\"a\", *",
        "\\\"k3-17\\\"",
    ];
    for header in other {
        assert!(!tag_matches(header.as_bytes(), b"k3-17"), "{header}");
    }
    assert!(is_any(b"*") && is_any(b" *\t") && !is_any(b"**") && !is_any(b"\"*\""));
    assert!(is_any(b"*, *") && !is_any(b"*, \"a\"") && !is_any(b"") && !is_any(b"\"a\", *"));
}

#[test]
fn dates_come_in_three_forms() {
    let forms = [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ];
    for form in forms {
        assert_eq!(http_date(form.as_bytes()), Some(784_111_777), "{form}");
    }
    assert_eq!(http_date(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    let bad: &[&[u8]] = &[
        b"",
        b"0",
        b"784111777",
        b"Sun, 06 Nov 1994 08:49:37",
        b"Mon, 06 Nov 1994 08:49:37 GMT",
        b"Sun, 06 Nov 1994 24:49:37 GMT",
        b"Sun, 31 Feb 1994 08:49:37 GMT",
        b"Wed, 31 Dec 1969 23:59:59 GMT",
        b"\xff",
    ];
    for bytes in bad {
        assert_eq!(http_date(bytes), None, "{bytes:?}");
    }
}

#[test]
fn the_preferred_media_type_is_chosen() {
    let offered = &["application/json", "text/plain; charset=utf-8"][..];
    let (json, text) = (Some(offered[0]), Some(offered[1]));
    let rows = [
        (None, json),
        (Some(""), json),
        (Some(" "), json),
        (Some("*/*"), json),
        (Some("*"), json),
        (Some("application/json"), json),
        (Some("APPLICATION/JSON;charset=utf-8"), json),
        (Some("text/plain"), text),
        (Some("text/*"), text),
        (Some("text/plain, application/json"), json),
        (Some("text/plain, application/json;q=0.9"), text),
        (Some("*/*;q=0.8, text/plain"), text),
        (Some("text/html, */*;q=0.1"), json),
        (Some("text/html, image/gif, *; q=.2, */*; q=.2"), json),
        (Some("*/*, application/json;q=0"), text),
        (Some("application/json;q=0.1, */*;q=0.5"), text),
        (Some("*/*;q=0, text/*;q=0.1"), text),
        (Some("text/*;q=0, text/plain"), text),
        (Some("application/*, application/json;q=0.5, text/plain;q=0.6"), text),
        (Some("text/html"), None),
        (Some("*/*;q=0"), None),
        (Some("text"), None),
        (Some("json"), None),
        (Some("application/json;q=2"), None),
    ];
    for (accept, expected) in rows {
        assert_eq!(media_type(accept.map(str::as_bytes), offered), expected, "{accept:?}");
    }
    assert_eq!(media_type(None, &[]), None);
}

#[test]
fn compression_is_for_what_it_helps() {
    let worth_it = [
        "text/plain",
        "TEXT/HTML; charset=utf-8",
        "application/json",
        "application/json;charset=utf-8",
        "application/ld+json",
        "application/atom+xml",
        "application/javascript",
        "image/svg+xml",
        "application/wasm",
        "application/x-ndjson",
    ];
    for content_type in worth_it {
        assert!(compressible(content_type), "{content_type}");
    }
    let not = ["", "text", "image/png", "video/mp4", "application/zip", "application/octet-stream"];
    for content_type in not {
        assert!(!compressible(content_type), "{content_type}");
    }
}

#[test]
fn an_event_stream_must_be_named() {
    for accept in [
        "text/event-stream",
        "TEXT/Event-Stream",
        "a/b, text/event-stream",
        "text/event-stream;q=0.001",
        "text/event-stream;charset=utf-8 ;q=1",
        "text/event-stream;q=0, text/event-stream",
        " \ttext/event-stream\t",
        "text/plain;p=\",\",text/event-stream",
        "text/event-stream;p=\";q=0\"",
    ] {
        assert!(accepts_events(Some(accept.as_bytes())), "{accept}");
    }
    for accept in [
        "",
        "*/*",
        "text/*",
        "text/html, */*;q=0.8",
        "text/event-stream;q=0",
        "text/event-stream;q=0.000, */*",
        "text/event-stream;q=x",
        "text/event-streams",
        "text/event-stream/x",
        "x text/event-stream",
        "text/plain;p=\",text/event-stream,\"",
        "text/plain;p=\"\\\",text/event-stream\"",
        "text/event-stream;p=\";q=1\";q=0",
    ] {
        assert!(!accepts_events(Some(accept.as_bytes())), "{accept}");
    }
    assert!(!accepts_events(None));
}

#[test]
fn waits_are_found_among_preferences() {
    let rows: &[(&str, Option<u64>)] = &[
        ("wait=25", Some(25)),
        ("WAIT=25", Some(25)),
        ("wait=\"25\"", Some(25)),
        ("wait = 25", Some(25)),
        ("\twait=0 ", Some(0)),
        ("wait=007", Some(7)),
        ("respond-async, wait=10", Some(10)),
        ("respond-async; wait=9, wait=10", Some(10)),
        ("wait=10; foo=\"bar, wait=2\"", Some(10)),
        ("foo=\"a, wait=3\", wait=4", Some(4)),
        ("foo=\"a\\\", wait=3\", wait=4", Some(4)),
        ("foo=\"a\\\\\", wait=3, wait=4", Some(3)),
        ("wait=1, wait=2", Some(1)),
        ("wait=x, wait=2", Some(2)),
        ("wait=99999999999999999999999999", Some(u64::MAX)),
        ("wait=18446744073709551615", Some(u64::MAX)),
        ("wait=18446744073709551616", Some(u64::MAX)),
        ("", None),
        (",;=\"", None),
        ("wait", None),
        ("wait=", None),
        ("wait=\"\"", None),
        ("wait=\"", None),
        ("wait=\"25", None),
        ("wait=-1", None),
        ("wait=+1", None),
        ("wait=2.5", None),
        ("wait=1 2", None),
        ("waits=1", None),
        ("awaits; wait=1", None),
        ("foo=\"wait=1", None),
    ];
    for (value, seconds) in rows {
        assert_eq!(prefer_wait_s(value.as_bytes()), *seconds, "{value}");
    }
}
