//! WebSocket (RFC 6455, 7692): the handshake, what readers are sent, and clients that break every
//! rule there is. What the Autobahn suite tests is here in short; the suite itself is run by hand.

use crate::support::{
    BINARY, CLOSE, Child, Client, DEFLATED, Ending, FIN, Frame, Message, PATIENCE, PING, PONG,
    Response, Server, TEXT, UPGRADE, WebSocket, eventually, header, masked, python,
};
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, FlushCompress};
use serde_json::{Value, json};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

const DEFLATE: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";

fn echo(server: &Server, fields: &str) -> WebSocket {
    WebSocket::open(server.control, "/-/echo", fields)
}

#[test]
fn the_value_comes_at_once_and_then_every_message() {
    let server = Server::start();
    server.publish("/a", "one");
    let mut socket = WebSocket::open(server.public, "/a", "");
    assert_eq!(socket.frame(), Frame { first: TEXT, payload: b"one".to_vec() });
    for i in 0..100 {
        server.publish("/a", &format!("value {i}"));
        assert_eq!(socket.text(), format!("value {i}"));
    }
    server.control.put("/a", "application/json", b"{\"x\":1}").expect(200);
    assert_eq!(socket.message(), Message::Text("{\"x\":1}".to_owned()));
    // Text by its type, and only then; it must be UTF-8.
    server.control.put("/a", "image/png", b"text?").expect(200);
    assert_eq!(socket.message(), Message::Binary(b"text?".to_vec()));
    server.control.put("/a", "text/plain", b"\xff").expect(200);
    assert_eq!(socket.message(), Message::Binary(b"\xff".to_vec()));
    server.control.put("/a", "text/plain", b"").expect(200);
    assert_eq!(socket.text(), "");
    let id = server.publish("/a", &"€".repeat(300_000));
    assert_eq!(socket.text().chars().count(), 300_000);
    server.control.ask("DELETE", "/a", "", b"").expect(200);
    let deleted = socket.json();
    assert_eq!(deleted, json!({"topic": "/a", "id": deleted["id"], "deleted": true}));
    assert!(deleted["id"].as_str().is_some_and(|deletion| deletion != id));
    // A frame has no room for a name: those who want it read `/-/events`.
    let fields = "Stentor-Event: price\r\nContent-Type: application/json\r\n";
    server.control.ask("PUT", "/a", fields, b"[1]").expect(201);
    assert_eq!(socket.text(), "[1]");
}

#[test]
fn messages_are_deflated_for_those_who_can_inflate() {
    let server = Server::start();
    let long = "a text that is worth it. ".repeat(100);
    server.publish("/a", &long);
    for (offer, deflates) in [
        ("permessage-deflate", true),
        ("permessage-deflate; client_max_window_bits", true),
        ("permessage-deflate; client_no_context_takeover; server_no_context_takeover", true),
        ("permessage-deflate; nonsense, permessage-deflate", true),
        ("x-webkit-deflate-frame, permessage-deflate; server_max_window_bits=15", true),
        ("permessage-deflate; server_max_window_bits=7", false),
        ("permessage-deflate; nonsense", false),
        ("deflate", false),
    ] {
        let fields = format!("Sec-WebSocket-Extensions: {offer}\r\n");
        let mut socket = WebSocket::open(server.public, "/a", &fields);
        let agreed = socket.head.field("sec-websocket-extensions").map(str::to_owned);
        assert_eq!(agreed.is_some(), deflates, "{offer}: {agreed:?}");
        if let Some(agreed) = agreed {
            assert!(agreed.contains("server_no_context_takeover"), "{agreed}");
            assert!(agreed.contains("client_no_context_takeover"), "{agreed}");
        }
        server.publish("/a", &long);
        let first = socket.frame();
        assert_eq!(first.first, if deflates { TEXT | DEFLATED } else { TEXT }, "{offer}");
        assert_eq!(first.payload.len() < long.len() / 4, deflates, "{offer}");
        assert_eq!(socket.text(), long, "{offer}");
    }
    // A smaller window is kept to, or nothing is deflated.
    let fields = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9\r\n";
    let mut socket = WebSocket::open(server.public, "/a", fields);
    assert_eq!(socket.text(), long);
}

#[test]
fn lists_of_a_handshake_may_be_in_several_lines() {
    let server = Server::start();
    let fields = "Sec-WebSocket-Protocol: other\r\nSec-WebSocket-Protocol: stentor.v1\r\n\
                  Sec-WebSocket-Extensions: x-other\r\nUpgrade: h2c\r\n\
                  Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let fields = format!("{fields}{UPGRADE}");
    let response = server.public.ask("GET", "/-/events", &fields, b"").expect(101);
    assert_eq!(response.field("sec-websocket-protocol"), Some("stentor.v1"));
    assert!(response.field("sec-websocket-extensions").is_some());
}

#[test]
fn handshakes_that_are_none() {
    let server = Server::start();
    server.publish("/a", "one");
    let ask = |fields: &str| server.public.ask("GET", "/a", fields, b"");
    let without = |name: &str| -> String {
        UPGRADE.split_inclusive("\r\n").filter(|line| !line.starts_with(name)).collect()
    };
    for version in ["", "8", "12", "14", "x"] {
        let fields = without("Sec-WebSocket-Version");
        let version = format!("Sec-WebSocket-Version: {version}\r\n");
        let response = ask(&format!("{fields}{version}")).refused(426);
        assert_eq!(response.field("sec-websocket-version"), Some("13"));
    }
    ask(&without("Sec-WebSocket-Key")).refused(400);
    for key in ["", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ===", "QUJD", "????", "a b"] {
        let fields = without("Sec-WebSocket-Key");
        ask(&format!("{fields}Sec-WebSocket-Key: {key}\r\n")).refused(400);
    }
    // Another protocol is not switched to, and the request is a plain one.
    let fields = "Connection: Upgrade\r\nUpgrade: h2c\r\n";
    assert_eq!(ask(fields).expect(200).text(), "one");
    let mut old = server.reader();
    old.send(format!("GET /a HTTP/1.0\r\n{UPGRADE}\r\n"));
    old.response().expect_one_of(&[200, 400]);
    server.public.ask("GET", "/a//b", UPGRADE, b"").refused(400);
    server.public.ask("GET", "/-/echo", UPGRADE, b"").refused(404);
    server.control.ask("GET", "/-/echo", "", b"").refused(426);
    server.public.ask("GET", "/a?mode=x", UPGRADE, b"").refused(400);
    server.public.ask("GET", "/a?wait=x", UPGRADE, b"").refused(400);
}

#[test]
fn pages_of_other_origins_are_refused() {
    let ask_as = |server: &Server, host: &str, origin: &str| -> Response {
        let mut client = server.reader();
        let fields = format!("Host: {host}\r\n{UPGRADE}Origin: {origin}\r\n");
        client.send(format!("GET /a HTTP/1.1\r\n{fields}\r\n"));
        client.bodyless_response()
    };
    let server = Server::start();
    for (host, origin, status) in [
        ("here:80", "http://here:80", 101),
        ("here:80", "https://here:80", 101),
        ("here:80", "https://elsewhere", 403),
        ("here:80", "http://here:80.elsewhere", 403),
        ("here:80", "http://elsewhere/here:80", 403),
        ("here:80", "null", 403),
        ("here:80", "", 403),
        // A proxy may name the port that browsers leave out, and write names as it likes.
        ("here:80", "http://here", 101),
        ("here:443", "https://here", 101),
        ("here", "http://here:80", 101),
        ("here:", "http://here", 101),
        ("HERE.Example:443", "https://here.example", 101),
        ("[::1]:80", "http://[::1]", 101),
        ("[::1]:8080", "http://[::1]:8080", 101),
        ("here:8080", "http://here", 403),
        ("here", "http://here:8080", 403),
        ("here:80", "https://here", 403),
        ("here:443", "http://here", 403),
        ("here", "ftp://here", 403),
        ("here:80", "ftp://here", 403),
        ("[::1]", "http://[::2]", 403),
        ("[::1]:80", "http://[::1", 403),
        ("", "http://", 403),
    ] {
        assert_eq!(ask_as(&server, host, origin).status, status, "{host} {origin}");
    }
    let ask = |server: &Server, origin: &str| ask_as(server, "here:80", origin);
    let listed = Server::configured("[cors]\norigins = ['https://friend.example']\n");
    assert_eq!(ask(&listed, "https://friend.example").status, 101);
    assert_eq!(ask(&listed, "https://friend.example.org").status, 403);
    assert_eq!(ask(&listed, "http://friend.example").status, 403);
    // The control listener is for no page but its own, whatever is listed.
    let fields = format!("{UPGRADE}Origin: https://friend.example\r\n");
    listed.control.ask("GET", "/a", &fields, b"").refused(403);
    listed.control.ask("GET", "/-/echo", &fields, b"").refused(403);
    let any = Server::configured("[cors]\norigins = '*'\n");
    assert_eq!(ask(&any, "https://elsewhere").status, 101);
}

/// Sends each on a connection of its own, at once and byte by byte, and expects this close code
/// and the end.
#[track_caller]
fn ends_with(server: &Server, fields: &str, code: Option<u16>, cases: &[(&str, Vec<u8>)]) {
    for (what, bytes) in cases {
        for send in Client::SENDS {
            let mut socket = echo(server, fields);
            send(&mut socket.client, bytes);
            assert_eq!(socket.closed(), code, "{what}");
        }
    }
}

#[test]
fn frames_that_break_the_protocol() {
    let server = Server::start();
    let unmasked = |first: u8, payload: &[u8]| [&header(first, payload.len(), 0), payload].concat();
    let fragment = || masked(TEXT & !FIN, b"a");
    let after_fragment = |frame: Vec<u8>| [fragment(), frame].concat();
    let cases = [
        ("unmasked text", unmasked(TEXT, b"abc")),
        ("unmasked and empty", unmasked(TEXT, b"")),
        ("unmasked ping", unmasked(PING, b"abc")),
        ("RSV1 without an extension", masked(TEXT | 0x40, b"a")),
        ("RSV2", masked(TEXT | 0x20, b"a")),
        ("RSV3", masked(TEXT | 0x10, b"a")),
        ("all reserved bits", masked(PING | 0x70, b"a")),
        ("opcode 3", masked(0x83, b"")),
        ("opcode 7", masked(0x87, b"a")),
        ("opcode 11", masked(0x8b, b"")),
        ("opcode 15", masked(0x8f, b"a")),
        ("a ping of 126 bytes", masked(PING, &[b'x'; 126])),
        ("a pong of 65,536 bytes", header(PONG, 65_536, 0x80)),
        ("a close frame of 126 bytes", masked(CLOSE, &[b'x'; 126])),
        ("a ping in fragments", masked(PING & !FIN, b"a")),
        ("a close in fragments", masked(CLOSE & !FIN, b"")),
        ("a continuation of nothing", masked(FIN, b"a")),
        ("an unfinished continuation of nothing", masked(0, b"a")),
        ("text within text", after_fragment(masked(TEXT, b"b"))),
        ("bytes within text", after_fragment(masked(BINARY, b"b"))),
        ("a length of 2 bytes for 1", vec![BINARY, 0x80 | 126, 0, 5]),
        ("a length of 8 bytes for 2", vec![BINARY, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
        ("a length with its highest bit", vec![BINARY, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("a close frame of one byte", masked(CLOSE, b"\x03")),
        ("HTTP", b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
    ];
    ends_with(&server, "", Some(1002), &cases);
    let deflated = [
        ("RSV1 on a ping", masked(PING | DEFLATED, b"a")),
        ("RSV1 on a continuation", after_fragment(masked(FIN | DEFLATED, b"b"))),
        ("RSV2 beside RSV1", masked(TEXT | DEFLATED | 0x20, b"a")),
    ];
    ends_with(&server, DEFLATE, Some(1002), &deflated);
}

#[test]
fn text_that_is_not_utf8_fails_at_once() {
    let server = Server::start();
    let mut cases = Vec::new();
    for bytes in [
        &b"\x80"[..],
        b"a\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xff",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    ] {
        cases.push(("in a whole message", masked(TEXT, bytes)));
        // Neither the end of the message nor that of the frame is waited for.
        cases.push(("in a fragment", masked(TEXT & !FIN, bytes)));
        let mut cut = header(TEXT, 1_000, 0x80);
        cut.extend([0; 4]);
        cut.extend(bytes);
        cases.push(("in a frame that is not complete", cut));
    }
    cases.push(("cut off at the end", masked(TEXT, b"ab\xe2\x82")));
    let halves = [masked(TEXT & !FIN, b"\xe2\x82"), masked(FIN, b"a")].concat();
    cases.push(("broken between fragments", halves));
    cases.push(("a reason", masked(CLOSE, b"\x03\xe8\xff")));
    ends_with(&server, "", Some(1007), &cases);
    // What is only cut between two fragments is whole.
    let mut socket = echo(&server, "");
    for (first, part) in [(TEXT & !FIN, &b"a\xf0"[..]), (0, b"\x9f\x98"), (FIN, b"\x80z")] {
        socket.send(first, part);
    }
    assert_eq!(socket.text(), "a\u{1f600}z");
}

#[test]
fn close_codes() {
    let server = Server::start();
    let close =
        |code: u16, reason: &str| masked(CLOSE, &[&code.to_be_bytes(), reason.as_bytes()].concat());
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        let cases = [("good", close(code, "")), ("with a reason", close(code, &"é".repeat(61)))];
        ends_with(&server, "", Some(code), &cases);
    }
    for code in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        ends_with(&server, "", Some(1002), &[("not for the wire", close(code, ""))]);
    }
    ends_with(&server, "", None, &[("without a code", masked(CLOSE, b""))]);
    // What came before is answered, and what comes behind means nothing.
    let mut socket = echo(&server, "");
    let around = [masked(TEXT, b"before"), close(1000, ""), masked(TEXT, b"behind")].concat();
    socket.client.send(around);
    assert_eq!(socket.text(), "before");
    assert_eq!(socket.closed(), Some(1000));
    // A client that goes without a word is forgotten.
    let gone: Vec<WebSocket> = (0..20).map(|_| echo(&server, "")).collect();
    drop(gone);
    server.settled("readers_websocket", 0);
}

#[test]
fn messages_that_are_too_long_are_refused_before_they_come() {
    let server = Server::start();
    let memory_before = server.figure("memory_resident_bytes");
    let first = masked(BINARY & !FIN, &[b'x'; 60_000]);
    ends_with(
        &server,
        "",
        Some(1009),
        &[
            // Nothing but the header: neither room nor bytes are needed to say no.
            ("an enormous frame", vec![BINARY, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
            ("a large one", header(BINARY, 16 * 1024 * 1024 + 1, 0x80)),
        ],
    );
    let mut socket = echo(&server, "");
    socket.client.send(&first);
    socket.client.send(header(FIN, 16 * 1024 * 1024 - 59_999, 0x80));
    assert_eq!(socket.closed(), Some(1009), "together they are too long");
    // Readers have little to say at all.
    let mut reader = WebSocket::open(server.public, "/a", "");
    reader.client.send(header(BINARY, 65_536, 0x80));
    assert_eq!(reader.closed(), Some(1009));
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 32 * 1024 * 1024, "{memory} bytes more");
    // The longest that is allowed comes back whole.
    let mut socket = echo(&server, "");
    let longest = vec![b'x'; 16 * 1024 * 1024];
    let mut sender = socket.client.sender();
    let frame = masked(BINARY, &longest);
    let sending = thread::spawn(move || sender.send(frame));
    assert!(socket.message() == Message::Binary(longest));
    sending.join().unwrap();
}

#[test]
fn endless_fragments_come_to_an_end() {
    let server = Server::start();
    server.publish("/a", "one");
    let memory_before = server.figure("memory_resident_bytes");
    for (url, target, payload) in
        [(server.public, "/a", &b""[..]), (server.control, "/-/echo", b"x")]
    {
        let mut socket = WebSocket::open(url, target, "");
        let mut sender = socket.client.sender();
        let sending = thread::spawn(move || {
            let _ = sender.try_send(&masked(TEXT & !FIN, b""));
            let many = masked(0, payload).repeat(10_000);
            // For a while what comes behind the end is thrown away.
            let begin = Instant::now();
            while sender.try_send(&many).is_ok() {
                assert!(begin.elapsed() < PATIENCE, "{target}: it never ends");
            }
        });
        let code = loop {
            match socket.try_message() {
                Ok(message) => assert_eq!(message, Message::Text("one".to_owned())),
                Err(code) => break code,
            }
        };
        // A reset may throw the reason away.
        assert!(matches!(code, Some(1008) | None), "{target}: {code:?}");
        sending.join().unwrap();
    }
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 16 * 1024 * 1024, "{memory} bytes more");
    assert_eq!(server.public.get("/a").expect(200).text(), "one");
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    let mut deflated = Vec::with_capacity(data.len() / 2 + 1024);
    compress.compress_vec(data, &mut deflated, FlushCompress::Sync).unwrap();
    assert_eq!(compress.total_in(), data.len() as u64);
    deflated.truncate(deflated.len() - 4);
    deflated
}

#[test]
fn what_is_deflated_is_bounded_by_what_it_inflates_to() {
    let server = Server::start();
    let mut socket = echo(&server, DEFLATE);
    for data in ["".repeat(0), "a".to_owned(), "text ".repeat(10_000)] {
        socket.send(TEXT | DEFLATED, deflate(data.as_bytes()));
        assert_eq!(socket.text(), data);
        // And as it is, which is allowed as well.
        socket.send(TEXT, &data);
        assert_eq!(socket.text(), data);
    }
    let memory_before = server.figure("memory_resident_bytes");
    // A megabyte that would be a gigabyte: as often as one block stands for 16 MiB of zeros.
    let block = {
        let mut compress = Compress::new(Compression::best(), false);
        let mut deflated = Vec::with_capacity(1024 * 1024);
        let zeros = vec![0; 16 * 1024 * 1024];
        compress.compress_vec(&zeros, &mut deflated, FlushCompress::Full).unwrap();
        deflated
    };
    let bomb = block.repeat(64);
    assert!(bomb.len() < 2 * 1024 * 1024);
    for url in [server.control; 4] {
        let mut socket = WebSocket::open(url, "/-/echo", DEFLATE);
        socket.send(BINARY | DEFLATED, &bomb);
        assert_eq!(socket.closed(), Some(1009));
    }
    // A reader may say less still.
    let mut reader = WebSocket::open(server.public, "/a", DEFLATE);
    reader.send(BINARY | DEFLATED, deflate(&[0; 1024 * 1024]));
    assert_eq!(reader.closed(), Some(1009));
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 128 * 1024 * 1024, "{memory} bytes more");
    for (what, bytes) in [("nonsense", &b"\xff\xff\xff\xff"[..]), ("cut off", b"\x4a\x4c")] {
        let mut socket = echo(&server, DEFLATE);
        socket.send(TEXT | DEFLATED, bytes);
        assert!(matches!(socket.closed(), Some(1002 | 1003 | 1007)), "{what}");
    }
    let mut socket = echo(&server, DEFLATE);
    socket.send(TEXT | DEFLATED, deflate(b"\xff"));
    assert_eq!(socket.closed(), Some(1007));
}

/// Large coders that come and go between what is kept would cost each message two hundred
/// kilobytes. `bench/run kept` says how much it is exactly.
#[test]
fn a_kept_message_costs_little_though_it_was_deflated_or_inflated() {
    const MESSAGES: u64 = 1_000;
    let text = |n: u64| -> String {
        (n..).flat_map(|n| [n.to_string(), n.wrapping_pow(7).to_string()]).take(90).collect()
    };
    let server = Server::start();
    let mut socket = WebSocket::open(server.public, "/-/events?topic=/deflated/*", DEFLATE);
    socket.text();
    let memory = || server.figure("memory_anonymous_bytes");
    let before = memory();
    for n in 0..MESSAGES {
        server.publish(&format!("/deflated/{n}"), &text(n));
        assert_eq!(socket.frame().first, TEXT | DEFLATED);
    }
    let deflated = memory();
    for n in 0..MESSAGES {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(text(n).as_bytes()).unwrap();
        let fields = "Content-Encoding: gzip\r\nContent-Type: text/plain\r\n";
        let path = format!("/inflated/{n}");
        server.control.ask("PUT", &path, fields, &gzip.finish().unwrap()).expect(201);
    }
    // 4 KiB each, and what a worker needs once.
    let bytes_max = MESSAGES * 4_096 + 4 * 1024 * 1024;
    let grown = [deflated.saturating_sub(before), memory().saturating_sub(deflated)];
    assert!(grown.iter().all(|&bytes| bytes <= bytes_max), "{grown:?} bytes more");
}

#[test]
fn a_flood_of_pings_is_answered_as_far_as_it_is_read() {
    let server = Server::start();
    server.publish("/a", "one");
    let memory_before = server.figure("memory_resident_bytes");
    let mut flooding = WebSocket::open(server.public, "/a", "");
    let mut sender = flooding.client.sender();
    let count = 300_000;
    // The server stops reading when its pongs are not read, so this blocks at some point.
    let sending = thread::spawn(move || {
        let pings = masked(PING, &[b'x'; 100]).repeat(1_000);
        for _ in 0..count / 1_000 {
            sender.send(&pings);
        }
    });
    for i in 0..50 {
        server.publish("/b", &i.to_string());
        assert_eq!(server.public.get("/b").expect(200).text(), i.to_string());
    }
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 32 * 1024 * 1024, "{memory} bytes more");
    assert_eq!(flooding.text(), "one");
    for _ in 0..count {
        assert_eq!(flooding.frame(), Frame { first: PONG, payload: vec![b'x'; 100] });
    }
    sending.join().unwrap();
    server.publish("/a", "two");
    assert_eq!(flooding.text(), "two");
}

#[test]
fn frames_that_come_byte_by_byte_or_with_the_handshake() {
    let server = Server::start();
    let frames = [
        masked(TEXT & !FIN, b"a"),
        masked(PING, b"now"),
        masked(FIN, "€".repeat(100).as_bytes()),
        masked(PONG, b"never asked for"),
        masked(BINARY, &[7; 200]),
        masked(CLOSE, b"\x03\xe8bye"),
    ]
    .concat();
    for send in Client::SENDS {
        let mut client = server.publisher();
        let head = format!("GET /-/echo HTTP/1.1\r\nHost: a\r\n{UPGRADE}\r\n");
        send(&mut client, &[head.as_bytes(), &frames].concat());
        let head = client.bodyless_response();
        let mut socket = WebSocket::over(client, head);
        assert_eq!(socket.frame(), Frame { first: PONG, payload: b"now".to_vec() });
        assert_eq!(socket.text(), format!("a{}", "€".repeat(100)));
        assert_eq!(socket.message(), Message::Binary(vec![7; 200]));
        assert_eq!(socket.closed(), Some(1000));
    }
}

#[test]
fn a_peer_that_gives_no_sign_of_life_is_cut_and_others_are_kept() {
    let server = Server::configured("[streams]\nping = '1s'\n");
    let mut dead = WebSocket::open(server.public, "/a", "");
    let mut talking = WebSocket::open(server.public, "/a", "");
    assert_eq!(dead.frame().first, PING);
    assert_eq!(talking.frame().first, PING);
    // Whatever it says shows that it is alive.
    talking.send(TEXT, "here");
    // It owed a pong already: it is cut instead of being sent another ping.
    let end = dead.try_frame().err();
    assert!(matches!(end, Some(Ending::Closed | Ending::Reset)), "{end:?}");
    assert_eq!(talking.frame().first, PING);
    server.publish("/a", "still here");
    assert_eq!(talking.text(), "still here");
    assert_eq!(server.figure("counters/timeouts"), 1);
}

#[test]
fn a_frame_that_drips_in_is_cut_off() {
    let server = Server::configured("[limits]\nhead_timeout = '500ms'\n");
    let mut socket = echo(&server, "");
    let mut sender = socket.client.sender();
    let dripping = thread::spawn(move || {
        let _ = sender.try_send(&header(BINARY, 1_000, 0x80));
        (0..500).any(|_| {
            thread::sleep(Duration::from_millis(20));
            sender.try_send(b"x").is_err()
        })
    });
    assert_eq!(socket.closed(), Some(1008));
    drop(socket);
    assert!(dripping.join().unwrap(), "it was listened to all the time");
}

#[test]
fn frames_that_never_end_where_a_packet_does_each_have_their_own_time() {
    let timeout = Duration::from_millis(500);
    let server = Server::configured("[limits]\nhead_timeout = '500ms'\n");
    let mut socket = echo(&server, "");
    let mut sender = socket.client.sender();
    let frame = masked(TEXT, b"hello");
    let (begin, end) = frame.split_at(5);
    // Each packet ends in the middle of a frame, for several times as long as one may take.
    let packet = [end, begin].concat();
    sender.send(begin);
    let started = Instant::now();
    while started.elapsed() < 3 * timeout {
        sender.send(&packet);
        assert_eq!(socket.text(), "hello");
    }
    // Pings are no part of a message: they do not buy one that is in fragments more time.
    sender.send(end);
    assert_eq!(socket.text(), "hello");
    socket.send(TEXT & !FIN, "never ends");
    let pinging = thread::spawn(move || {
        (0..500).any(|_| {
            thread::sleep(Duration::from_millis(20));
            sender.try_send(&masked(PING, b"")).is_err()
        })
    });
    assert_eq!(socket.closed(), Some(1008));
    drop(socket);
    assert!(pinging.join().unwrap(), "it was listened to all the time");
}

/// The library's client as a process; what it has said so far, line by line.
fn library(url: &str, compression: &str, protocol: &str, texts: &[&str]) -> Option<Child> {
    let mut command = python("websockets_client.py")?;
    command.args([url, compression, protocol]).args(texts);
    Some(Child::spawn(&mut command))
}

fn said(child: &mut Child, count: usize) -> Vec<Value> {
    eventually("the client has said so much", || {
        let lines: Vec<Value> =
            child.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() >= count || child.is_running(), "{}{}", child.out(), child.err());
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn the_websockets_library_reads_a_topic() {
    let server = Server::configured("[streams]\nping = '200ms'\n");
    let long = "worth deflating ".repeat(1_000);
    server.publish("/a", &long);
    let url = format!("ws://{}/a", server.public.0);
    for compression in ["deflate", "none"] {
        let Some(mut client) = library(&url, compression, "", &["ignored"]) else { return };
        let lines = said(&mut client, 3);
        let extensions = lines[0]["extensions"].as_array().unwrap().len();
        assert_eq!(extensions, usize::from(compression == "deflate"), "{lines:?}");
        assert_eq!(lines[2]["text"], *long);
        // It answers pings by itself, and so is not thought dead.
        thread::sleep(Duration::from_millis(900));
        server.control.put("/a", "image/png", b"\x00\xff").expect(200);
        server.publish("/a", "bye");
        let lines = said(&mut client, 5);
        assert_eq!(lines[3]["bytes"], "00ff");
        assert_eq!(lines[4]["closed"], 1000);
        assert_eq!(client.wait(), Some(0), "{}", client.err());
        server.publish("/a", &long);
    }
    let url = format!("ws://{}/-/events", server.public.0);
    let subscribe = r#"{"subscribe":["/a"]}"#;
    let Some(mut client) = library(&url, "deflate", "stentor.v1", &[subscribe]) else { return };
    let lines = said(&mut client, 3);
    assert_eq!(lines[0]["protocol"], "stentor.v1");
    let envelope: Value = serde_json::from_str(lines[2]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&envelope["topic"], &envelope["data"]), (&"/a".into(), &long.into()));
    server.child.signal("TERM");
    assert_eq!(said(&mut client, 5)[4]["closed"], 1012);
}

#[test]
fn the_wsproto_library_gets_back_what_it_sends() {
    let server = Server::start();
    let (host, port) = (server.control.0.ip().to_string(), server.control.0.port().to_string());
    for piece_bytes in ["1", "7", "1000"] {
        let Some(mut command) = python("wsproto_client.py") else { return };
        let client = Child::spawn(command.args([&*host, &*port, piece_bytes])).said();
        assert_eq!((client.code, client.out.trim()), (Some(0), "good 56"), "{}", client.err);
    }
}
