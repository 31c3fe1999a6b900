//! Server-Sent Events on a topic: what is on the wire, for every kind of data.

use crate::support::{
    Child, Client, Ending, Event, EventStream, NOTICE, Server, curl, event_readers, eventually,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn event(id: &str, data: &str) -> Event {
    Event { id: Some(id.to_owned()), name: None, data: data.to_owned() }
}

#[test]
fn the_value_comes_at_once_and_then_every_message() {
    let server = Server::start();
    let first = server.publish("/a", "one");
    let mut stream = EventStream::open(server.public, "/a", "");
    assert_eq!(stream.event(), event(&first, "one"));
    for i in 0..100 {
        let data = format!("value {i}");
        let id = server.publish("/a", &data);
        assert_eq!(stream.event(), event(&id, &data));
    }
    assert_eq!(stream.retries, 1);
    let retry_ms = stream.retry_ms.expect("a time to come back after");
    assert!((2_000..=4_000).contains(&retry_ms), "{retry_ms}");
}

#[test]
fn the_head_tells_proxies_to_pass_it_on() {
    let server = Server::configured("[cors]\norigins = 'https://example.com'\n");
    let origin = "Origin: https://example.com\r\n";
    let stream = EventStream::open(server.public, "/a", origin);
    for (name, value) in [
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("incremental", "?1"),
        ("connection", "close"),
        ("access-control-allow-origin", "https://example.com"),
    ] {
        assert_eq!(stream.head.field(name), Some(value), "{:?}", stream.head);
    }
    assert!(stream.head.field("date").is_some() && stream.head.field("server").is_some());
    assert_eq!(stream.head.field("content-length"), None);
    let foreign = EventStream::open(server.public, "/a", "Origin: https://example.org\r\n");
    assert_eq!(foreign.head.field("access-control-allow-origin"), None);
}

#[test]
fn a_stream_of_a_topic_that_does_not_exist_yet() {
    let server = Server::start();
    let mut stream = EventStream::open(server.public, "/new", "");
    let id = server.publish("/new", "born");
    assert_eq!(stream.event(), event(&id, "born"));
    // It goes and comes again, and the stream stays.
    server.control.ask("DELETE", "/new", "", b"").expect(200);
    let deleted = stream.event();
    assert_eq!(deleted.name.as_deref(), Some(NOTICE));
    let told: serde_json::Value = serde_json::from_str(&deleted.data).unwrap();
    let deletion = deleted.id.expect("a deletion has an id");
    assert_eq!(told, serde_json::json!({"topic": "/new", "id": deletion, "deleted": true}));
    assert_ne!(deletion, id);
    let id = server.publish("/new", "again");
    assert_eq!(stream.event(), event(&id, "again"));
}

#[test]
fn data_comes_as_it_was_published_line_by_line() {
    let server = Server::start();
    let mut stream = EventStream::open(server.public, "/a", "");
    for (published, read) in [
        ("", ""),
        ("\n", "\n"),
        ("a\nb", "a\nb"),
        ("a\r\nb\rc\n\nd", "a\nb\nc\n\nd"),
        (" leading", " leading"),
        (": a comment?", ": a comment?"),
        ("\n\nid: 7\nevent: x\n\n", "\n\nid: 7\nevent: x\n\n"),
        ("\r", "\n"),
        ("a\0b", "a\0b"),
        ("\u{feff}mark", "\u{feff}mark"),
        ("söme ünicode \u{2028} \u{85} \u{1f600}", "söme ünicode \u{2028} \u{85} \u{1f600}"),
    ] {
        let id = server.publish("/a", published);
        assert_eq!(stream.event(), event(&id, read), "{published:?}");
    }
    // The longest there is, at the edge of a character and of a line.
    let long = "x€\n".repeat(1024 * 1024 / 5);
    let id = server.publish("/a", &long);
    assert_eq!(stream.event(), event(&id, &long));
}

#[test]
fn what_is_not_text_comes_as_an_envelope() {
    let server = Server::start();
    let mut stream = EventStream::open(server.public, "/a", "");
    for bytes in [&b"\xff"[..], b"ab\x80", b"\x00\xc3\x28\n", b"\xed\xa0\x80", b"\xf8\x88\x80\x80"]
    {
        server.control.put("/a", "application/octet-stream", bytes).expect_one_of(&[200, 201]);
        let event = stream.event();
        assert_eq!(event.name.as_deref(), Some(NOTICE));
        let told: Value = serde_json::from_str(&event.data).unwrap();
        let expected = json!({
            "topic": "/a", "id": event.id, "type": "application/octet-stream",
            "data_base64": BASE64_STANDARD.encode(bytes),
        });
        assert_eq!(told, expected);
    }
    // Its own name is within: bytes must be recognisable as such.
    let fields = "Stentor-Event: price\r\n";
    server.control.ask("PUT", "/a", fields, b"\xff\xfe").expect(200);
    let event = stream.event();
    assert_eq!(event.name.as_deref(), Some(NOTICE));
    let told: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((&told["event"], &told["data_base64"]), (&json!("price"), &json!("//4=")));
    server.control.ask("PUT", "/a", fields, b"12.5").expect(200);
    let event = stream.event();
    assert_eq!((event.name.as_deref(), event.data.as_str()), (Some("price"), "12.5"));
}

#[test]
fn publishers_cannot_put_fields_into_a_stream() {
    let server = Server::start();
    let mut stream = EventStream::open(server.public, "/a", "");
    let lines = [
        r#"{"topic":"/a","data":"x","event":"a\nid: 7"}"#,
        r#"{"topic":"/a","data":"x","event":"a\rdata: y"}"#,
        r#"{"topic":"/a","data":"x","event":"a\u0000"}"#,
        r#"{"topic":"/a","data":"x","event":"a\r\n\r\n"}"#,
        r#"{"topic":"/a","data":"good","event":"fine"}"#,
    ];
    let answer = server.control.post("/-/publish", lines.join("\n").as_bytes()).expect(200).json();
    assert_eq!((&answer["published"], &answer["failed"]), (&1.into(), &4.into()), "{answer}");
    for name in ["a\0b", "a\x01b", "a\tb\r", "a\rdata: x"] {
        let fields = format!("Stentor-Event: {name}\r\n");
        server.control.ask("PUT", "/a", &fields, b"x").refused(400);
    }
    let event = stream.event();
    assert_eq!((event.name.as_deref(), event.data.as_str()), (Some("fine"), "good"));
}

#[test]
fn a_silent_stream_has_a_heart_and_a_loud_one_needs_none() {
    let server = Server::configured("[streams]\nheartbeat = '100ms'\n");
    let begin = Instant::now();
    let mut silent = EventStream::open(server.public, "/silent", "");
    std::thread::sleep(Duration::from_millis(1_000));
    server.publish("/silent", "x");
    silent.event();
    let most = begin.elapsed().as_millis() / 100;
    assert!((4..=most as usize).contains(&silent.comments), "{} of {most}", silent.comments);
    let server = Server::configured("[streams]\nheartbeat = '0s'\n");
    let mut mute = EventStream::open(server.public, "/silent", "");
    std::thread::sleep(Duration::from_millis(300));
    server.publish("/silent", "x");
    mute.event();
    assert_eq!(mute.comments, 0);
}

#[test]
fn old_clients_get_a_stream_that_ends_with_the_connection() {
    let server = Server::start();
    server.publish("/a", "one");
    for (version, coding) in [("HTTP/1.0", None), ("HTTP/1.1", Some("chunked"))] {
        let mut client = server.reader();
        client.send(format!(
            "GET /a {version}\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n\
             GET /never-answered {version}\r\nHost: a\r\n\r\n"
        ));
        let head = client.bodyless_response().expect(200);
        assert_eq!(head.field("connection"), Some("close"), "{head:?}");
        assert_eq!(head.field("transfer-encoding"), coding);
        let mut all = String::new();
        while !all.contains("data: one\n\n") {
            all += std::str::from_utf8(&client.take().unwrap()).unwrap();
        }
        assert!(!all.contains("HTTP/"), "a stream is the last answer of a connection: {all}");
    }
}

#[test]
fn who_asks_for_events_gets_them_and_nobody_else() {
    let server = Server::start();
    server.publish("/a", "one");
    for accept in ["text/event-stream", "text/event-stream, */*;q=0.1", "TEXT/Event-Stream"] {
        let mut client = server.reader();
        let head = client.open("/a", &format!("Accept: {accept}\r\n")).expect(200);
        assert_eq!(head.field("content-type"), Some("text/event-stream"), "{accept}");
    }
    for accept in ["*/*", "text/*", "text/html", "text/event-stream;q=0", "text/event-streams"] {
        let response = server.public.ask("GET", "/a", &format!("Accept: {accept}\r\n"), b"");
        assert_eq!(response.expect(200).text(), "one", "{accept}");
    }
    // HEAD is answered as GET is, and the connection goes on. It is never held.
    let mut client = server.reader();
    for target in ["/a", "/-/events?topic=/a"] {
        let fields = "Accept: text/event-stream\r\n";
        let head = client.ask("HEAD", target, fields, b"").expect(200);
        let stream = server.reader().open(target, fields).expect(200);
        for name in ["content-type", "content-length", "cache-control", "vary"] {
            assert_eq!(head.field(name), stream.field(name), "{target}: {name}");
        }
    }
    let json = client.ask("HEAD", "/-/events?topic=/a&wait=60", "", b"").expect(200);
    assert_eq!(json.field("content-type"), Some("application/json"));
    client.ask("HEAD", "/-/events?topic=/b&wait=60", "", b"").expect(200);
    client.ask("HEAD", "/-/events", "Accept: text/event-stream\r\n", b"").expect(400);
    client.ask("HEAD", "/a?wait=60", "Last-Event-ID: earliest\r\n", b"").expect(200);
    client.ask("HEAD", "/b", "Prefer: wait=60\r\n", b"").expect(404);
    // A path that is no topic is none for streams either.
    for target in ["/a//b", "/a/../b", "/%ff", "/-/nothing", "/.well-known/x"] {
        let fields = "Accept: text/event-stream\r\n";
        let response = server.public.ask("GET", target, fields, b"");
        assert!(matches!(response.status, 400 | 404), "{target}: {response:?}");
    }
    server.public.ask("GET", "/a?mode=some", "Accept: text/event-stream\r\n", b"").refused(400);
}

#[test]
fn a_request_for_a_stream_may_come_byte_by_byte_and_behind_others() {
    let server = Server::start();
    server.publish("/a", "one");
    for send in Client::SENDS {
        let mut client = server.reader();
        let plain = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let stream = "GET /a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
        send(&mut client, format!("{plain}{plain}{stream}").as_bytes());
        assert_eq!(client.response().expect(200).text(), "one");
        assert_eq!(client.response().expect(200).text(), "one");
        client.bodyless_response().expect(200);
        let mut all = Vec::new();
        while !all.ends_with(b"data: one\n\n\r\n") {
            all.extend(client.take().unwrap());
        }
        // What the client says afterwards means nothing.
        send(&mut client, "nonsense\r\n\r\n".repeat(1_000).as_bytes());
        server.publish("/a", "one");
        let more = client.take().unwrap();
        assert!(more.ends_with(b"data: one\n\n\r\n"), "{}", String::from_utf8_lossy(&more));
    }
}

#[test]
fn a_reader_that_ends_its_side_or_resets_is_forgotten() {
    let server = Server::start();
    let mut polite = server.reader();
    polite.open("/a", "Accept: text/event-stream\r\n").expect(200);
    let rude: Vec<EventStream> =
        (0..20).map(|_| EventStream::open(server.public, "/a", "")).collect();
    server.settled("readers_sse", 21);
    // Bytes that were not read make the kernel reset the connection.
    server.publish("/a", "unread");
    drop(rude);
    server.settled("readers_sse", 1);
    polite.finish();
    let ended = loop {
        match polite.take() {
            Ok(_) => {}
            Err(ending) => break ending,
        }
    };
    assert_eq!(ended, Ending::Closed);
    server.settled("readers_sse", 0);
}

#[test]
fn curl_reads_a_stream() {
    let server = Server::start();
    let id = server.publish("/a", "line one\nline two");
    let url = format!("http://{}/a", server.public.0);
    // It goes on until curl has waited long enough.
    let fields = ["-N", "--max-time", "1", "-H", "Accept: text/event-stream", &url];
    let Some(output) = curl(&fields) else { return };
    assert_eq!(output.status.code(), Some(28), "it timed out: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (retry, events) = text.split_once('\n').unwrap();
    assert!(retry.starts_with("retry: "), "{text}");
    assert_eq!(events, format!("id: {id}\ndata: line one\ndata: line two\n\n"));
}

/// Libraries that make an event of every block, whatever is in it.
#[test]
fn libraries_hand_on_one_event_for_each_message() {
    for heartbeat in ["50ms", "0s"] {
        let toml = format!("[streams]\nheartbeat = '{heartbeat}'\ndrain_spread = '0s'\n");
        let server = Server::configured(&toml);
        let first = server.publish("/a", "{\"n\":1}");
        let url = format!("http://{}/a", server.public.0);
        let mut readers: Vec<Child> =
            event_readers().iter_mut().map(|reader| Child::spawn(reader.arg(&url))).collect();
        let told = |reader: &Child| -> Vec<Value> {
            reader.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let has_told = |reader: &Child, count: usize| {
            eventually("the library has handed on so much", || {
                (told(reader).len() >= count).then_some(())
            });
        };
        readers.iter().for_each(|reader| has_told(reader, 1));
        std::thread::sleep(Duration::from_millis(400));
        let second = server.publish("/a", "{\"n\":2}");
        readers.iter().for_each(|reader| has_told(reader, 2));
        server.child.signal("TERM");
        for reader in &mut readers {
            assert_eq!(reader.wait(), Some(0), "{}", reader.err());
            let mut told = told(reader);
            // One of them takes what stands before the end for an event: a heartbeat.
            if heartbeat != "0s" && told.len() == 3 && told[2]["data"] == "" {
                told.pop();
            }
            let ids: Vec<_> = told.iter().map(|told| told["id"].as_str().unwrap()).collect();
            assert_eq!(ids, [&first, &second], "{told:?}");
            for (n, told) in (1..).zip(&told) {
                let data: Value = serde_json::from_str(told["data"].as_str().unwrap()).unwrap();
                assert_eq!(data, serde_json::json!({"n": n}));
            }
        }
    }
}
