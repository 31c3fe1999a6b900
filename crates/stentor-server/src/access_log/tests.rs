//! What lines look like, whatever clients send, and what becomes of too many.

use super::*;
use crate::access_log::Answered;

fn text(head: &[u8]) -> Text {
    Text::of(head)
}

/// A line of a request with that head.
fn line(format: AccessFormat, head: &[u8], address: Option<IpAddr>) -> String {
    line_of(None, format, head, address)
}

/// The same of a client that has proved who it is.
fn line_of(
    client: Option<&str>,
    format: AccessFormat,
    head: &[u8],
    address: Option<IpAddr>,
) -> String {
    let text = text(head);
    let log = Arc::new(AccessLog::new(format));
    let mut lines = log.lines();
    lines.begin(3, address);
    let answered =
        Answered { text: &text, kind: "value", status: 200, body_bytes: 12, us: 1_000_234 };
    let dropped = Counter::default();
    let address = lines.address(3, || panic!("it is known"));
    lines.push(address, ("public", client), &answered, 1_782_000_000, &dropped);
    lines.hand_over(&dropped);
    log.read()
}

const HEAD: &[u8] = b"GET /a?token=secret&b HTTP/1.1\r\nHost: h\r\nUser-Agent: curl/8\r\n\
    Referer: https://a.example/?token=secret\r\n\r\n";

#[test]
fn the_combined_format_is_that_of_nginx() {
    let address = Some("::ffff:192.0.2.7".parse().unwrap());
    assert_eq!(
        line(AccessFormat::Combined, HEAD, address),
        "192.0.2.7 - - [21/Jun/2026:00:00:00 +0000] \"GET /a?token=***&b HTTP/1.1\" 200 12 \
         \"https://a.example/?token=***\" \"curl/8\"\n"
    );
    let nothing = line(AccessFormat::Combined, b"\x16\x03\x01\"\\\x1b[0m\xff\x7f", None);
    assert_eq!(
        nothing,
        "unix: - - [21/Jun/2026:00:00:00 +0000] \"\\x16\\x03\\x01\\x22\\x5C\\x1B[0m\\xFF\\x7F\" \
         200 12 \"-\" \"-\"\n"
    );
    assert!(line(AccessFormat::Combined, b"", None).contains(" \"-\" 200 "));
}

#[test]
fn json_says_the_rest() {
    let address = Some("2001:db8::1".parse().unwrap());
    assert_eq!(
        line(AccessFormat::Json, HEAD, address),
        "{\"time\":\"2026-06-21T00:00:00Z\",\"address\":\"2001:db8::1\",\"listener\":\"public\",\
         \"kind\":\"value\",\"request\":\"GET /a?token=***&b HTTP/1.1\",\"status\":200,\
         \"body_bytes\":12,\"duration_s\":1.000234,\
         \"referer\":\"https://a.example/?token=***\",\"user_agent\":\"curl/8\"}\n"
    );
}

#[test]
fn json_says_who_a_client_is_that_has_shown_it() {
    let said = line_of(Some("CN=ann \\\"x,O=\u{e4}"), AccessFormat::Json, HEAD, None);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["client"], "CN=ann \\\"x,O=\u{e4}");
    assert!(!line(AccessFormat::Json, HEAD, None).contains("client"));
}

/// Whatever a client sends, there is one line, which can be read and says just that.
#[test]
fn no_line_can_be_forged() {
    let mut rng = stentor_io::Rng::new(1);
    let pieces: [&[u8]; 12] = [
        b"GET /",
        b"\r\n",
        b"\n",
        b"\r",
        b"\"",
        b"\\",
        b" 200 12 \"-\" \"-\"",
        b"\x1b[2J",
        "\u{9b}\u{2028}\u{202e}\u{1f980}".as_bytes(),
        b"\xff\xc0",
        b"User-Agent: ",
        b"Referer:",
    ];
    for _ in 0..20_000 {
        let mut head = Vec::new();
        for _ in 0..1 + rng.below(12) {
            match rng.percent(80) {
                true => head.extend_from_slice(pieces[rng.below(pieces.len())]),
                false => head.push(rng.below(256) as u8),
            }
        }
        let said = outline(&head);
        let show = |said: Option<&[u8]>| match said {
            Some([]) | None => "-".to_owned(),
            Some(said) => String::from_utf8_lossy(said).into_owned(),
        };
        for format in [AccessFormat::Combined, AccessFormat::Json] {
            let line = line(format, &head, None);
            let (line, behind) = line.split_once('\n').unwrap();
            assert_eq!(behind, "", "{}", head.escape_ascii());
            assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{line}");
            if format == AccessFormat::Combined {
                assert_eq!(line.matches('"').count(), 6, "{line}");
                let parts: Vec<&str> = line.split('"').collect();
                assert_eq!(parts[2], " 200 12 ", "{line}");
                let is_it = unescaped(parts[1]) == without_secrets(said.line);
                assert!(is_it || said.line.is_empty() && parts[1] == "-", "{line}");
                continue;
            }
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["request"], show(Some(said.line)), "{line}");
            let field = |said: Option<&[u8]>| said.map(|_| show(said));
            assert_eq!(line["user_agent"].as_str(), field(said.user_agent).as_deref(), "{line}");
            assert_eq!(line["referer"].as_str(), field(said.referer).as_deref(), "{line}");
        }
    }
}

/// What was escaped as nginx does it.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (text, Vec::new());
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).unwrap());
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[test]
fn what_the_writer_does_not_take_is_dropped_and_counted() {
    let log = Arc::new(AccessLog::new(AccessFormat::Combined));
    let mut lines = log.lines();
    let (text, dropped) = (text(HEAD), Counter::default());
    let answered = Answered { text: &text, kind: "value", status: 200, body_bytes: 0, us: 0 };
    let all = 100_000;
    for n in 0..all {
        lines.push(Address::Unix, ("public", None), &answered, n, &dropped);
        lines.hand_over(&dropped);
    }
    let written = log.read();
    assert!(written.len() <= ACCESS_LOG_BYTES_MAX && written.ends_with('\n'));
    let count = written.lines().count() as u64;
    assert_eq!(count + dropped.value(), all);
    assert!(count > 20_000, "{count}");
    // It goes on.
    lines.push(Address::Unix, ("public", None), &answered, 0, &dropped);
    lines.hand_over(&dropped);
    assert_eq!(log.read().lines().count(), 1);
}

#[test]
fn a_long_request_line_is_cut() {
    let head = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(5_000));
    assert_eq!(Text::line_of(head.as_bytes()).len(), 256);
}

#[test]
fn close_waits_a_second_for_a_blocked_writer() {
    let log = AccessLog::new(AccessFormat::Combined);
    let (_blocked, ended) = mpsc::channel();
    *lock(&log.ended) = Some(ended);
    let began_us = stentor_io::monotonic_us();
    log.close();
    assert!((900_000..20_000_000).contains(&(stentor_io::monotonic_us() - began_us)));
}
