//! The bodies of the targets, run over a small corpus and over random mixtures.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// The body of a fuzz target.
type FuzzBody = fn(&[u8]);

/// Each body, with what its inputs are made of. Mixtures of these reach further than random
/// bytes do.
const TARGETS: &[(FuzzBody, &[&str])] = &[
    (
        fuzz_head,
        &[
            "GET /a?b HTTP/1.1\r\nHost: a\r\n",
            "PUT http://a:80/ HTTP/1.1\r\nHost:\r\n",
            "GET /a HTTP/1.7\r\nHost: a\r\n",
            "OPTIONS * HTTP/1.0\r\n",
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "transfer-encoding:chunked\r\n",
            "Content-Length: 5\r\n",
            "Connection: keep-alive, upgrade\r\n",
            "Upgrade: websocket\r\n",
            "Expect: 100-continue\r\n",
            "If-None-Match: \"a\" \r\n",
            "If-None-Match: b\r\n",
            "Prefer: a\r\n",
            "prefer:\r\n",
            "Stentor-Event: \t a b\r\n",
            "Sec-Fetch-Site: none\r\n",
            "\r\n",
            "\r",
            "\n",
            " ",
            ":",
            "\u{16}\u{3}",
        ],
    ),
    (
        fuzz_proxied,
        &[
            "PROXY ",
            "TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "TCP6 2001:db8::1 ::1 65535 0\r\n",
            "UNKNOWN\r\n",
            "\r\n\r\n\0\r\nQUIT\n",
            "\u{21}\u{11}\0\u{c}",
            "\u{20}\0\0\0",
            "\0\u{1}\u{2}\u{3}",
            "X-Forwarded-For: 192.0.2.1, 10.0.0.1:80\r\n",
            "x-forwarded-for:[2001:db8::1]:80",
            "Forwarded: for=192.0.2.1;by=_a, FOR=\"[::1]:_x\"\r\n",
            "for=\"",
            "\\\"",
            ",",
            ";",
            "\r\n",
        ],
    ),
    (
        fuzz_response,
        &[
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 304\r\n",
            "HTTP/1.1 101 \u{e9}\n",
            "Content-Length: 5\r\n",
            "content-length: 5, 5\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "transfer-encoding:chunked\r\n",
            "Connection: keep-alive, close\r\n",
            "ETag: \"a\" \r\n",
            "Sec-WebSocket-Accept: a=\r\n",
            "\r\n",
            "\r",
            "\n",
            " ",
            ":",
            "\u{16}\u{3}",
        ],
    ),
    (
        fuzz_chunked,
        &[
            "0\r\n\r\n",
            "5\r\nhello\r\n",
            "1",
            "a",
            ";a=b",
            ";a=\"b\\\"\"",
            "x: y\r\n",
            "0",
            "\r\n",
            "\r",
            "\n",
            ";",
            "\"",
            "\0",
        ],
    ),
    (fuzz_topic, &["/", "a", "..", ".", "%2e", "%2F", "%", "-", ".well-known", "\u{9f}", "%C3"]),
    (fuzz_query, &["?", "&", "=", "+", "a", "%26", "%3D", "%2B", "%", "\u{e9}", "%ff"]),
    (
        fuzz_lookup,
        &["{name}", "{value}", "{", "}", ",", "a", "%2C", "\"", "\\", "\u{1}", "\n", "\u{e9}"],
    ),
    (
        fuzz_negotiate,
        &[
            "gzip",
            "br",
            "zstd",
            "identity",
            "*",
            ",",
            ";q=",
            "0",
            "1",
            ".5",
            "\"",
            "W/",
            "k3-17",
            ".gz",
            "text/",
            "*/*",
            "application/json",
            " ",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "text/event-stream",
            "wait=",
            "permessage-deflate",
            "; server_max_window_bits=",
            "; client_max_window_bits",
            "; server_no_context_takeover",
        ],
    ),
    (
        fuzz_condition,
        &[
            "\"",
            "W/",
            "0123",
            "\"0123\"",
            ".gz",
            "77",
            "*",
            ",",
            " ",
            "\n",
            "\u{e9}",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:38 GMT",
            "Sun Nov  6 08:49:36 1994",
            "Fri, 31 Dec 9999 23:59:59 GMT",
        ],
    ),
    (
        fuzz_range,
        &[
            "bytes=",
            "BYTES=",
            "=",
            "-",
            "0-",
            "-1",
            ",",
            "0-0,",
            "100-200,",
            "-0,",
            "999",
            "18446744073709551615",
            "99999999999999999999",
            " ",
            "\t",
            "+",
            "x",
            "\u{661}",
        ],
    ),
    (
        fuzz_file,
        &[
            "/",
            ".",
            "..",
            "\\",
            "a",
            ".well-known",
            "\0",
            "\u{85}",
            "\u{e9}",
            "-",
            "_",
            "3f2a9b1c",
            "BxYz12Ab",
            "20240102",
            ".js",
            ".min",
            ".map",
            ".HTML",
            ".png",
        ],
    ),
    (
        fuzz_websocket,
        &[
            "\u{f}",
            "\u{b}",
            "\u{1}\u{80}\0\0\0\0",
            "\0\u{0}",
            "A\u{86}\0\0\0\0",
            "a",
            "\u{e9}",
            "\u{1f600}",
            "\0\0\0\0",
            "\u{2}~",
            "\u{3}\0\u{3}\0\u{3}\0\u{3}\0",
        ],
    ),
    (
        fuzz_server_frame,
        &["\u{7}", "\u{1}", "\u{1}\u{1}a", "\t\0", "\0\u{2}ab", "\u{2}~\0~", "\u{88}\0", "a"],
    ),
    (
        fuzz_sse,
        &[
            "data: a", "data", "id: 1", "id\0", "event: x", "retry: 5", ":", "\r\n", "\n", "\r",
            "\u{feff}", "\u{e9}", "\0",
        ],
    ),
    (
        fuzz_events,
        &[
            "topic=/a",
            "&",
            "since=1-2",
            "last_event_id=",
            "mode=latest",
            "mode=all",
            "wait=25",
            "%",
            "{\"subscribe\":[",
            "\"/a\"",
            ",",
            "]",
            "\"since\":",
            "\"unsubscribe\":[",
            "}",
            "null",
        ],
    ),
];

#[test]
fn properties_hold_for_the_corpus() {
    for (body, parts) in TARGETS {
        body(b"");
        for first in *parts {
            body(first.as_bytes());
            for second in *parts {
                body(format!("{first}{second}").as_bytes());
                body(format!("{first}{second}\r\n").as_bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn properties_hold_for_any_bytes(data in vec(any::<u8>(), 0..200)) {
        for (body, _) in TARGETS {
            body(&data);
        }
    }

    #[test]
    fn properties_hold_for_mixtures(picks in vec(any::<prop::sample::Index>(), 0..12)) {
        for (body, parts) in TARGETS {
            let data: String = picks.iter().map(|pick| *pick.get(parts)).collect();
            body(data.as_bytes());
        }
    }
}
