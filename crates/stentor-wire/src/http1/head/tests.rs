//! Tables of heads, good and bad, each tried at every split and one byte at a time.

use super::*;
use crate::http1::request::Field;
use crate::status::Status;

/// What becomes of `bytes` that arrive in pieces that end at `cuts`: how long the head is, or why
/// it is refused; `None` while it is incomplete. Bytes that were scanned are spoilt for the next
/// call, so a second look at them would change the answer: that is how linear cost is tested.
fn scan_pieces(bytes: &[u8], cuts: impl IntoIterator<Item = usize>) -> Option<Result<usize, u16>> {
    // The beginning tells empty lines apart, and the last two bytes may belong to a line end.
    let spoilt_from = bytes.len().min(LEADING_BYTES_MAX + 1);
    let mut scanned = 0_usize;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        let mut seen = bytes[..cut].to_vec();
        // A head that has become too long is looked at once more, to choose the status.
        if cut < HEAD_BYTES_MAX && spoilt_from + 2 < scanned {
            seen[spoilt_from..scanned - 2].fill(b'\n');
        }
        match scan(&seen, scanned) {
            Ok(Scan::Complete { len }) => return Some(Ok(len)),
            Ok(Scan::Partial { scanned: all }) => {
                assert_eq!(all, cut, "all of the input counts as scanned");
                scanned = all;
            }
            Err(refusal) => return Some(Err(refusal.status().0)),
        }
    }
    None
}

/// Scans `bytes` whole, at every split point, and one byte at a time; all must agree.
fn scan_every_way(bytes: &[u8]) -> Option<Result<usize, u16>> {
    let whole = scan_pieces(bytes, []);
    for cut in 0..bytes.len() {
        assert_eq!(scan_pieces(bytes, [cut]), whole, "cut at {cut}: {bytes:?}");
    }
    assert_eq!(scan_pieces(bytes, 0..bytes.len()), whole, "byte by byte: {bytes:?}");
    whole
}

/// Scans every way, parses, and hands over the head or the refusal.
fn check<T>(bytes: &[u8], inspect: impl FnOnce(Result<Head<'_>, Rejection>) -> T) -> T {
    match scan_every_way(bytes) {
        Some(Ok(len)) => {
            assert_eq!(len, bytes.len(), "the head is the whole vector: {bytes:?}");
            inspect(parse(bytes, &mut FieldSlots::new()))
        }
        Some(Err(_)) => match scan(bytes, 0) {
            Err(refusal) => inspect(Err(refusal)),
            found => panic!("{found:?} after a refusal: {bytes:?}"),
        },
        None => panic!("incomplete: {bytes:?}"),
    }
}

/// The status a head is refused with; 0 if it is not.
fn status(bytes: &[u8]) -> u16 {
    check(bytes, |parsed| parsed.map_or_else(|refusal| refusal.status().0, |_| 0))
}

/// The status of a GET with a Host and the given further lines.
fn status_of_fields(fields: &str) -> u16 {
    status(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())
}

/// The status of a request line with a Host behind it.
fn status_of_line(line: &str) -> u16 {
    status(format!("{line}\r\nHost: a\r\n\r\n").as_bytes())
}

/// Parses a request line with a Host and further lines, and hands over the head.
fn head<T>(line: &str, fields: &str, inspect: impl FnOnce(Head<'_>) -> T) -> T {
    let bytes = format!("{line}\r\nHost: a\r\n{fields}\r\n");
    check(bytes.as_bytes(), |parsed| inspect(parsed.expect("the head is good")))
}

#[test]
fn every_field_lands_in_its_place() {
    let fields = "ACCEPT: a/b\r\naccept-encoding:gzip\r\nIf-None-Match: \t\"1-2\" \t\r\n\
                  If-Modified-Since: d1\r\nIf-Match: m\r\nIf-Unmodified-Since: d2\r\n\
                  Origin: o\r\nContent-Type: t\r\nContent-Encoding: e\r\nCache-Control: c\r\n\
                  Content-Range: bytes 0-1/2\r\n\
                  Stentor-Event: v\r\nAccess-Control-Request-Method: PUT\r\n\
                  Access-Control-Request-Headers: x\r\nContent-Length: 12\r\n\
                  Expect: 100-Continue\r\nX-Other: 1\r\nX-Empty:\r\n\
                  Prefer: wait=5\r\nLAST-event-id: 1-2\r\nConnection: Upgrade\r\n\
                  Upgrade: websocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Protocol: p\r\nSec-WebSocket-Extensions: x\r\n\
                  RANGE: bytes=0-1 \r\nIf-Range: \"1\"\r\nauthorization: Bearer b\r\n\
                  cookie: a=b\r\nCookie: c=d\r\n";
    head("PUT /a/b?c=d HTTP/1.1", fields, |head| {
        let expected = Request {
            accept: Some(b"a/b"),
            accept_encoding: Some(b"gzip"),
            if_none_match: Some(b"\"1-2\""),
            if_modified_since: Some(b"d1"),
            if_match: Some(b"m"),
            if_unmodified_since: Some(b"d2"),
            range: Some(b"bytes=0-1"),
            if_range: Some(b"\"1\""),
            authorization: Some(b"Bearer b"),
            cookie: Some(b"a=b; c=d"),
            origin: Some(b"o"),
            content_type: Some(b"t"),
            content_encoding: Some(b"e"),
            content_range: Some(b"bytes 0-1/2"),
            cache_control: Some(b"c"),
            event: Some(b"v"),
            request_method: Some(b"PUT"),
            request_headers: Some(b"x"),
            host: Some(b"a"),
            prefer: Some(b"wait=5"),
            last_event_id: Some(b"1-2"),
            upgrade: Some(b"websocket"),
            websocket_key: Some(b"k"),
            websocket_version: Some(b"13"),
            websocket_protocol: Some(b"p"),
            websocket_extensions: Some(b"x"),
            ..Request::new(Method::Put, b"/a/b?c=d")
        };
        assert_eq!(head.request, expected);
        let (version, body) = (Version::Http11, BodyLength::Length(12));
        let framing = Framing { version, body, keep_alive: false, expect_continue: true };
        assert_eq!(head.framing, framing);
        assert_eq!(expected.to_buf().borrowed(), expected);
    });
}

#[test]
fn an_upgrade_is_asked_for_in_two_fields() {
    let rows: &[(&str, &str, Option<&[u8]>)] = &[
        ("HTTP/1.1", "Upgrade: websocket\r\nConnection: Upgrade\r\n", Some(b"websocket")),
        (
            "HTTP/1.1",
            "Connection: keep-alive\r\nUpgrade: websocket\r\nConnection: a, upgrade\r\n",
            Some(b"websocket"),
        ),
        (
            "HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
            Some(b"h2c, websocket"),
        ),
        ("HTTP/1.1", "Upgrade: websocket\r\nConnection: keep-alive\r\n", None),
        ("HTTP/1.1", "Upgrade: websocket\r\n", None),
        ("HTTP/1.1", "Connection: upgrade\r\n", None),
        ("HTTP/1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", None),
        ("HTTP/1.1", "Connection: upgrade\r\nUpgrade: TLS/1.3, h2c\r\n", None),
        ("HTTP/1.0", "Upgrade: websocket\r\nConnection: upgrade, keep-alive\r\n", None),
    ];
    for (version, fields, upgrade) in rows {
        head(&format!("GET / {version}"), fields, |head| {
            assert_eq!(head.request.upgrade, *upgrade, "{version} {fields}");
            assert!(!head.framing.keep_alive || upgrade.is_none(), "{version} {fields}");
        });
    }
}

#[test]
fn of_what_may_be_chosen_the_first_line_counts() {
    let fields = "Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 8\r\n";
    head("GET / HTTP/1.1", fields, |head| {
        assert_eq!(head.request.last_event_id, Some(&b"1"[..]));
        assert_eq!(head.request.websocket_version, Some(&b"13"[..]));
    });
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert_eq!(status_of_fields(key), 0);
    assert_eq!(status_of_fields(&format!("{key}{key}")), 400, "two keys");
}

#[test]
fn methods_are_known_or_501() {
    let known = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Patch),
        ("TRACE", Method::Trace),
    ];
    for (token, method) in known {
        head(&format!("{token} / HTTP/1.1"), "", |head| assert_eq!(head.request.method, method));
    }
    for unknown in ["get", "GETT", "BREW", "PROPFIND", "M-SEARCH", "!"] {
        assert_eq!(status_of_line(&format!("{unknown} / HTTP/1.1")), 501, "{unknown}");
    }
}

#[test]
fn versions_are_ours_or_505_or_garbage() {
    for unknown in ["HTTP/2.0", "HTTP/2.1", "HTTP/0.9", "HTTP/3.0", "HTTP/9.9"] {
        assert_eq!(status_of_line(&format!("GET / {unknown}")), 505, "{unknown}");
    }
    assert_eq!(status(b"PRI * HTTP/2.0\r\n\r\n"), 505, "the HTTP/2 preface");
    assert_eq!(status(b"\r\nGET / HTTP/2.0\r\n\r\n"), 505, "after an empty line");
    let garbage = [
        "GET / http/1.1",
        "GET / HTTP/1",
        "GET / HTTP/11",
        "GET / HTTP/1.10",
        "GET / HTTP/1.1 ",
        "GET / HTTP/2.0 ",
        "GET / HTTP/1,1",
        "GET / HTTP/+1.1",
        "GET / HTTPS/1.1",
        "GET / HTP/1.1",
        "GET / x",
        "GET / ",
    ];
    for line in garbage {
        assert_eq!(status_of_line(line), 400, "{line}");
    }
}

#[test]
fn later_minor_versions_are_understood_as_ours() {
    for minor in 2..=9 {
        let line = format!("PUT /a?b HTTP/1.{minor}");
        head(&line, "Prefer: a\r\nPrefer: b\r\nTransfer-Encoding: chunked\r\n", |later| {
            assert_eq!(later.framing.version, Version::Http11);
            assert!(later.framing.keep_alive && later.framing.body == BodyLength::Chunked);
            assert_eq!(later.request.target, b"/a?b");
            assert_eq!(later.request.prefer, Some(&b"a, b"[..]));
        });
        let lonely = format!("\r\nGET / HTTP/1.{minor}\r\n\r\n");
        assert_eq!(status(lonely.as_bytes()), 400, "it has no Host");
        assert_eq!(status_of_line(&format!("GET / HTTP/1.{minor} ")), 400);
        assert_eq!(status_of_line(&format!("GET / HTTP/1.{minor}\rA: b")), 400);
    }
}

#[test]
fn refusals_of_request_lines_say_what_is_wrong() {
    let rows = [
        ("GET / HTTP/1.1 ", BAD_REQUEST_LINE),
        ("GET / HTTP/1.10", BAD_REQUEST_LINE),
        ("GET / HTTP/1.2 ", BAD_REQUEST_LINE),
        ("GET /a b HTTP/1.1", BAD_REQUEST_LINE),
        ("GET  / HTTP/1.1", BAD_REQUEST_LINE),
        ("GET /\tHTTP/1.1", BAD_REQUEST_LINE),
        ("G\u{e9}T / HTTP/1.1", BAD_REQUEST_LINE),
        ("GET / HTTP/1.1\rA: b", BARE_CR),
        ("GET / HTTP/1.3\rA: b", BARE_CR),
        ("GET / HTTP/2.0", UNKNOWN_VERSION),
        ("GET /\u{e9} HTTP/1.1", TARGET_BYTE),
        ("GET /a?b=\u{20ac} HTTP/1.1", TARGET_BYTE),
        ("GET /a#b HTTP/1.1", TARGET_BYTE),
    ];
    for (line, refusal) in rows {
        let bytes = format!("{line}\r\nHost: a\r\n\r\n");
        let refused = check(bytes.as_bytes(), |parsed| parsed.map(|_| ()));
        assert_eq!(refused, Err(refusal), "{line:?}");
    }
    let refused = check(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", |parsed| parsed.map(|_| ()));
    assert_eq!(refused, Err(TARGET_BYTE), "not even UTF-8");
}

#[test]
fn malformed_request_lines_are_refused() {
    let lines = [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / HTTP/1.1\r",
        "GET /a b HTTP/1.1",
        "GET /",
        "GET",
        "GET / HTTP/1.1\rX: y",
        "G\u{e9}T / HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /a\rb HTTP/1.1",
    ];
    for line in lines {
        assert_eq!(status_of_line(line), 400, "{line:?}");
    }
    assert_eq!(status(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "not even UTF-8");
}

#[test]
fn an_absolute_target_overrides_host() {
    for (target, host) in [
        ("http://b.example/a", "b.example"),
        ("HTTPS://[::1]:80", "[::1]:80"),
        ("/http://b.example/", "a"),
    ] {
        head(&format!("GET {target} HTTP/1.1"), "", |head| {
            assert_eq!(head.request.host, Some(host.as_bytes()), "{target}");
        });
    }
}

#[test]
fn target_forms_are_reduced_or_refused() {
    let good = [
        ("GET", "/", "/"),
        ("GET", "/a?b=c&d", "/a?b=c&d"),
        ("GET", "//a", "//a"),
        ("GET", "/http://x/", "/http://x/"),
        ("GET", "http://example.com/a?b", "/a?b"),
        ("GET", "HTTPS://example.com:443/", "/"),
        ("GET", "http://[::1]:8080", "/"),
        ("OPTIONS", "*", "*"),
        ("OPTIONS", "http://example.com", "*"),
        ("OPTIONS", "http://example.com/", "/"),
        ("OPTIONS", "/a", "/a"),
        ("CONNECT", "example.com:443", "example.com:443"),
        ("CONNECT", "[::1]:443", "[::1]:443"),
    ];
    for (method, target, reduced) in good {
        head(&format!("{method} {target} HTTP/1.1"), "", |head| {
            assert_eq!(head.request.target, reduced.as_bytes(), "{method} {target}");
        });
    }
    let bad = [
        "GET *",
        "GET a",
        "GET ?a",
        "GET example.com:80",
        "GET ftp://example.com/",
        "GET http:/example.com/",
        "GET http:///a",
        "GET http://",
        "GET http://:80/",
        "GET http://user@example.com/",
        "GET http://example.com:http/",
        "GET http://a,b/",
        "GET http://example.com?a",
        "GET xhttp://example.com/",
        "OPTIONS *a",
        "OPTIONS **",
        "CONNECT /",
        "CONNECT *",
        "CONNECT example.com",
        "CONNECT example.com:",
        "CONNECT :443",
        "CONNECT http://example.com/",
    ];
    for line in bad {
        assert_eq!(status_of_line(&format!("{line} HTTP/1.1")), 400, "{line}");
    }
}

#[test]
fn hosts_are_checked() {
    let good = [
        "",
        "example.com",
        "example.com:8080",
        "example.com:",
        "127.0.0.1:80",
        "[::1]",
        "[fe80::1%eth0]:80",
        "[fe80::1%25eth0.7]",
        "[2001:db8::1]:8443",
        "a_b-c.d~e",
        "%C3%A9.example",
        "a!$&'()*+;=b",
    ];
    for host in good {
        assert_eq!(
            status(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()),
            0,
            "{host}"
        );
    }
    let bad = [
        "a, b",
        "a,b",
        "a b",
        "a/b",
        "user@a",
        "a:b",
        "a:80:80",
        "a:-1",
        "[::1",
        "::1",
        "[::1]80",
        "[::1%]",
        "[::1%25]",
        "[::1%a b]",
        "[::1%aaaaaaaaaaaaaaaa]",
        "[zz]",
        "[]",
        "[v1.a]",
        "a%",
        "a%2",
        "a%zz",
        "a\\b",
        "\"a\"",
        "<a>",
        "a\u{e9}",
        "a?b",
        "a#b",
        "a[b]",
    ];
    for host in bad {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(status(head.as_bytes()), 400, "{host}");
        let head = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
        assert_eq!(status(head.as_bytes()), 400, "{host} in HTTP/1.0");
    }
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), 400, "missing");
    assert_eq!(status(b"GET http://a/ HTTP/1.1\r\n\r\n"), 400, "missing with absolute-form");
    assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n"), 0, "HTTP/1.0 needs none");
    assert_eq!(status_of_fields("Host: a\r\n"), 400, "two, identical");
    assert_eq!(status_of_fields("hOST: b\r\n"), 400, "two, different");
}

#[test]
fn lengths_are_one_decimal_number() {
    for (value, length) in [("0", 0), ("5", 5), ("007", 7), ("18446744073709551615", u64::MAX)] {
        head("PUT / HTTP/1.1", &format!("Content-Length: {value}\r\n"), |head| {
            assert_eq!(head.framing.body, BodyLength::Length(length));
        });
    }
    let bad = [
        "",
        "+5",
        "-0",
        "-5",
        "0x5",
        "1_0",
        "5, 5",
        "5,5",
        "5 5",
        "5;",
        "5.0",
        "5e1",
        "\"5\"",
        "18446744073709551616",
        "99999999999999999999999",
        "a",
        "\u{b2}",
    ];
    for value in bad {
        assert_eq!(status_of_fields(&format!("Content-Length: {value}\r\n")), 400, "{value}");
    }
    let twice = "Content-Length: 5\r\nContent-Length: ";
    assert_eq!(status_of_fields(&format!("{twice}5\r\n")), 400, "identical");
    assert_eq!(status_of_fields(&format!("{twice}6\r\n")), 400, "different");
    head("GET / HTTP/1.1", "", |head| assert_eq!(head.framing.body, BodyLength::None));
}

#[test]
fn transfer_codings_are_chunked_alone() {
    for value in ["chunked", "CHUNKED", " Chunked\t"] {
        head("PUT / HTTP/1.1", &format!("Transfer-Encoding:{value}\r\n"), |head| {
            assert_eq!(head.framing.body, BodyLength::Chunked);
        });
    }
    let rows = [
        ("", 400),
        (",", 400),
        ("gzip", 400),
        ("identity", 400),
        ("xchunked", 400),
        ("chunkedx", 400),
        ("chunked, gzip", 400),
        ("chunked, chunked", 400),
        ("chunked, gzip, chunked", 400),
        ("chunked,", 400),
        (", chunked", 400),
        ("chunked;a=b", 400),
        ("chunked;a=b, chunked", 400),
        ("\"chunked\"", 400),
        ("chun ked", 400),
        ("\u{b}chunked", 400),
        ("gzip chunked", 400),
        ("gzip, chunked", 501),
        ("gzip;q=1,Chunked", 501),
        ("identity, chunked", 501),
    ];
    for (value, expected) in rows {
        let fields = format!("Transfer-Encoding: {value}\r\n");
        assert_eq!(status_of_fields(&fields), expected, "{value:?}");
    }
    let rows = [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding: chunked\r\n ,gzip\r\n",
        "Transfer-Encoding: \r\n\tchunked\r\n",
        "Content-Length: 5\r\n Transfer-Encoding: chunked\r\n",
    ];
    for fields in rows {
        assert_eq!(status_of_fields(fields), 400, "{fields:?}");
    }
    let http10 = b"PUT / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status(http10), 400);
}

#[test]
fn field_syntax_is_strict() {
    let rows = [
        "A : b\r\n",
        "A\t: b\r\n",
        " A: b\r\n",
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "A:\r\n \r\n",
        "A: b\rc\r\n",
        "A: b\r\r\n",
        "A\r: b\r\n",
        "\rA: b\r\n",
        "A: b\0c\r\n",
        "A: b\u{1}c\r\n",
        "A: b\u{7f}c\r\n",
        "A: b\u{b}c\r\n",
        "A\0: b\r\n",
        "A(b): c\r\n",
        "A\u{e9}: b\r\n",
        "\"A\": b\r\n",
        ": b\r\n",
        "A\r\n",
        "A b\r\n",
        "A: b\n",
        "A: b\nC: d\r\n",
        "A:\n\r\n",
    ];
    for fields in rows {
        assert_eq!(status_of_fields(fields), 400, "{fields:?}");
    }
    assert_eq!(status(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400, "space before the first field");
    assert_eq!(status_of_fields("A: b\tc \u{e9} d\r\n"), 0, "tabs and obs-text are valid");
}

#[test]
fn bare_line_feeds_are_refused() {
    let rows: &[&[u8]] = &[
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G\n",
    ];
    for bytes in rows {
        assert_eq!(status(bytes), 400, "{bytes:?}");
    }
}

#[test]
fn a_few_empty_lines_may_come_first() {
    for count in 0..=4 {
        let bytes = "\r\n".repeat(count) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(status(bytes.as_bytes()), 0, "{count}");
        assert_eq!(scan(bytes.as_bytes(), 0), Ok(Scan::Complete { len: bytes.len() }));
    }
    let bytes = "\r\n".repeat(5) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(status(bytes.as_bytes()), 400);
    for incomplete in ["", "\r", "\r\n", "\r\n\r\n\r\n\r\n", "\r\n\r\n\r\n\r\n\r", "G"] {
        assert_eq!(scan_every_way(incomplete.as_bytes()), None, "{incomplete:?}");
    }
}

#[test]
fn what_is_not_http_is_refused_at_its_first_byte() {
    let tls = scan(&[0x16], 0).expect_err("a ClientHello");
    assert_eq!(tls.status(), Status::BAD_REQUEST);
    assert!(tls.detail.contains("TLS"));
    for first in [0x00, 0x01, b' ', b'\t', b'(', b'{', b'"', 0x7f, 0x80, 0xff] {
        assert_eq!(scan_every_way(&[first]), Some(Err(400)), "{first}");
        assert_eq!(scan_every_way(&[b'\r', b'\n', first]), Some(Err(400)), "{first}");
    }
}

#[test]
fn the_scan_stops_at_the_first_head() {
    let first = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let bytes = format!("{first}\n\0GET / HTTP/1.1\r\n\r\n");
    assert_eq!(scan_every_way(bytes.as_bytes()), Some(Ok(first.len())));
    let mut slots = FieldSlots::new();
    let refused = parse(bytes.as_bytes(), &mut slots);
    assert_eq!(refused, Err(NOT_ONE_HEAD), "parse wants one head and nothing behind it");
    assert!(parse(&first.as_bytes()[..9], &mut FieldSlots::new()).is_err(), "nor half of one");
}

/// A GET whose target, or whose last field, is stretched until the head has `len` bytes.
fn stretched(len: usize, in_target: bool) -> Vec<u8> {
    let (before, after) = match in_target {
        true => ("GET /", " HTTP/1.1\r\nHost: a\r\n\r\n"),
        false => ("GET / HTTP/1.1\r\nHost: a\r\nA: ", "\r\n\r\n"),
    };
    let filler = "x".repeat(len - before.len() - after.len());
    format!("{before}{filler}{after}").into_bytes()
}

#[test]
fn size_is_bounded_however_it_arrives() {
    for in_target in [true, false] {
        let bytes = stretched(HEAD_BYTES_MAX, in_target);
        assert_eq!(scan_pieces(&bytes, []), Some(Ok(bytes.len())));
        assert_eq!(scan_pieces(&bytes, 0..bytes.len()), Some(Ok(bytes.len())));
        assert!(parse(&bytes, &mut FieldSlots::new()).is_ok());
    }
    // What decides is whether the request line's LF is within the limit; 11 bytes follow it.
    let rows = [
        (stretched(HEAD_BYTES_MAX + 1, false), 431),
        (stretched(3 * HEAD_BYTES_MAX, false), 431),
        (stretched(HEAD_BYTES_MAX + 1, true), 431),
        (stretched(HEAD_BYTES_MAX + 11, true), 431),
        (stretched(HEAD_BYTES_MAX + 12, true), 414),
        (stretched(3 * HEAD_BYTES_MAX, true), 414),
        (vec![b'A'; HEAD_BYTES_MAX], 414),
    ];
    for (bytes, expected) in rows {
        let cuts = [HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1];
        assert_eq!(scan_pieces(&bytes, []), Some(Err(expected)));
        assert_eq!(scan_pieces(&bytes, 0..bytes.len()), Some(Err(expected)));
        for cut in cuts.into_iter().filter(|&cut| cut < bytes.len()) {
            assert_eq!(scan_pieces(&bytes, [cut]), Some(Err(expected)), "cut at {cut}");
        }
    }
    assert_eq!(scan_pieces(&[b'A'; HEAD_BYTES_MAX - 1], []), None);
}

#[test]
fn fields_are_counted() {
    let fields = |count: usize| "A: b\r\n".repeat(count - 1);
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(100));
    assert_eq!(parse(bytes.as_bytes(), &mut FieldSlots::new()).map(|_| ()), Ok(()));
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(101));
    assert_eq!(parse(bytes.as_bytes(), &mut FieldSlots::new()), Err(TOO_MANY_FIELDS));
}

#[test]
fn keep_alive_follows_version_and_connection() {
    let rows = [
        ("GET / HTTP/1.1", "", true),
        ("GET / HTTP/1.1", "Connection: close\r\n", false),
        ("GET / HTTP/1.1", "Connection: keep-alive\r\n", true),
        ("GET / HTTP/1.1", "connection: foo ,\tCLOSE\r\n", false),
        ("GET / HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("GET / HTTP/1.1", "Connection: closed\r\n", true),
        ("GET / HTTP/1.1", "Connection:\r\n", true),
        ("GET / HTTP/1.0", "", false),
        ("GET / HTTP/1.0", "Connection: Keep-Alive\r\n", true),
        ("GET / HTTP/1.0", "Connection: keep-alive, close\r\n", false),
        ("GET / HTTP/1.1", "Upgrade: h2c\r\n", true),
        ("GET / HTTP/1.1", "Connection: upgrade\r\n", true),
        ("GET / HTTP/1.1", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n", true),
        ("GET / HTTP/1.1", "Upgrade: h2c, websocket\r\nConnection: Upgrade\r\n", false),
        ("GET / HTTP/1.1", "Upgrade: h2c\r\nConnection: Upgrade, close\r\n", false),
        ("GET / HTTP/1.1", "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n", false),
        ("GET / HTTP/1.0", "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n", false),
        ("CONNECT a:443 HTTP/1.1", "", false),
        ("CONNECT a:443 HTTP/1.1", "Connection: keep-alive\r\n", false),
    ];
    for (line, fields, keep_alive) in rows {
        head(line, fields, |head| {
            assert_eq!(head.framing.keep_alive, keep_alive, "{line} {fields:?}")
        });
    }
}

#[test]
fn only_one_thing_can_be_expected() {
    let rows = [
        ("PUT / HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 5\r\n", true),
        ("PUT / HTTP/1.1", "Expect: 100-CONTINUE\r\nTransfer-Encoding: chunked\r\n", true),
        ("PUT / HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 0\r\n", false),
        ("GET / HTTP/1.1", "Expect: 100-continue\r\n", false),
        ("PUT / HTTP/1.0", "Expect: 100-continue\r\nContent-Length: 5\r\n", false),
        ("PUT / HTTP/1.0", "Expect: miracles\r\nContent-Length: 5\r\n", false),
        ("PUT / HTTP/1.1", "Content-Length: 5\r\n", false),
    ];
    for (line, fields, expected) in rows {
        head(line, fields, |head| {
            assert_eq!(head.framing.expect_continue, expected, "{line} {fields:?}")
        });
    }
    for value in ["", "miracles", "100-continue, 100-continue", "100-continue;a=b", "200-ok"] {
        assert_eq!(status_of_fields(&format!("Expect: {value}\r\n")), 417, "{value}");
    }
    assert_eq!(status_of_fields("Expect: 100-continue\r\nExpect: 100-continue\r\n"), 400);
}

#[test]
fn single_values_are_refused_when_repeated() {
    let once = [
        "Authorization",
        "Content-Length",
        "Content-Range",
        "Content-Type",
        "Expect",
        "Host",
        "If-Range",
        "Origin",
        "Range",
        "Sec-WebSocket-Key",
        "Stentor-Event",
        "Transfer-Encoding",
    ];
    for name in once {
        let value = match name {
            "Content-Length" => "1",
            "Expect" => "100-continue",
            "Transfer-Encoding" => "chunked",
            _ => "a",
        };
        let fields = format!("{name}: {value}\r\n{}: {value}\r\n", name.to_lowercase());
        assert_eq!(status_of_fields(&fields), 400, "{name}");
    }
}

#[test]
fn lists_in_several_lines_are_one_list() {
    let names = FIELDS.iter().filter(|field| field.separator == Some(", "));
    let names = names.map(|field| field.name);
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    // RFC 9110, RFC 7240, RFC 6455.
    let lists = [
        "Accept",
        "Accept-Encoding",
        "Access-Control-Request-Headers",
        "Cache-Control",
        "Content-Encoding",
        "If-Match",
        "If-None-Match",
        "Prefer",
        "Sec-WebSocket-Extensions",
        "Sec-WebSocket-Protocol",
        "Upgrade",
    ];
    assert_eq!(names, lists);
    // Upgrade is kept only if it offers a WebSocket: `an_upgrade_is_asked_for_in_two_fields`.
    for Field { name, slot, separator } in FIELDS {
        let Some(separator) = separator else { continue };
        if *name == "Upgrade" {
            continue;
        }
        let upper = name.to_uppercase();
        let rows: &[(&[&str], &str)] = &[
            (&["b"], "b"),
            (&[""], ""),
            (&["b", "c"], "b|c"),
            (&["c, d", "b", "\"x,y\""], "c, d|b|\"x,y\""),
            (&["", "b", "", "c", ""], "b|c"),
            (&["", ""], ""),
        ];
        for (lines, joined) in rows {
            // Among lines of other fields, which are no part of it.
            let lines = lines.iter().zip([*name, &*upper].into_iter().cycle());
            let lines = lines.map(|(line, name)| format!("A: z\r\n{name}: {line}\r\n"));
            let fields = lines.collect::<String>() + "Connection: upgrade\r\n";
            head("GET / HTTP/1.1", &fields, |mut head| {
                let joined = joined.replace('|', separator);
                assert_eq!(*slot(&mut head.request), Some(joined.as_bytes()), "{fields:?}");
                *slot(&mut head.request) = None;
                let bare = Request { host: Some(b"a"), ..Request::new(Method::Get, b"/") };
                assert_eq!(head.request, bare, "{fields:?}");
            });
        }
    }
    let fields = "Prefer: a\r\nAccept: b/c\r\nPrefer: d\r\nIf-Match: e\r\nAccept: f/g\r\n";
    head("GET / HTTP/1.1", fields, |head| {
        assert_eq!(head.request.accept, Some(&b"b/c, f/g"[..]));
        assert_eq!(head.request.prefer, Some(&b"a, d"[..]));
        assert_eq!(head.request.if_match, Some(&b"e"[..]));
        assert_eq!(head.request.to_buf().borrowed(), head.request);
    });
}
