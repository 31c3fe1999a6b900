//! `limits.stored_bytes_max`: the server evicts history before it refuses a publish, and no value.

use crate::support::{
    EventStream, Reader, Server, TempDir, Way, WebSocket, eventually, refused_start,
};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// A figure of the memory that topics take.
fn stored(server: &Server, of: &str) -> u64 {
    server.figure(&format!("stored/{of}"))
}

fn reload(server: &Server, max: &str) {
    let settings = server.dir.path().join("stentor.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let before = text.lines().find(|line| line.starts_with("stored_bytes_max")).unwrap();
    let text = text.replace(before, &format!("stored_bytes_max = '{max}'"));
    std::fs::write(&settings, text).unwrap();
    let reloads = || server.figure("reloads/done");
    let before = reloads();
    server.child.signal("HUP");
    eventually("a reload", || (reloads() > before).then_some(()));
}

#[test]
fn evicted_history_is_reported_as_a_gap() {
    let server = Server::configured("[limits]\nstored_bytes_max = '8 MiB'\n");
    let first = server.publish("/a", "first");
    let body = vec![b'x'; 100_000];
    for n in 0..400 {
        let topic = format!("/{}", n % 10);
        server.control.put(&topic, "text/plain", &body).expect_one_of(&[200, 201]);
    }
    let total: u64 = ["values", "history", "forms"].iter().map(|of| stored(&server, of)).sum();
    assert!(total <= 8 * MIB as u64);
    assert!(stored(&server, "evicted_total") > 300);
    // A topic without a newer message has its value.
    assert_eq!(server.public.get("/a").text(), "first");
    let mut reader = EventStream::open(server.public, "/0", &format!("Last-Event-ID: {first}\r\n"));
    assert!(reader.event().notice("gap").is_some());
    assert_eq!(reader.event().data.len(), body.len());
}

#[test]
fn a_publisher_that_fills_memory_stops_no_other() {
    let server = Server::configured("[limits]\nstored_bytes_max = '4 MiB'\n");
    server.publish("/live", "0");
    let body = vec![b'x'; 100_000];
    let mut taken = 0;
    let refused = loop {
        let topic = format!("/flood/{taken}");
        let answer = server.control.put(&topic, "text/plain", &body);
        match answer.status {
            201 => taken += 1,
            // The eviction takes a moment.
            429 => assert_eq!(answer.field("retry-after"), Some("1")),
            _ => break answer,
        }
        assert!(taken < 50);
    };
    assert_eq!((refused.status, refused.field("retry-after")), (507, Some("10")));
    assert!(refused.text().contains("limits.stored_bytes_max"), "{}", refused.text());
    assert!(taken > 35);
    // Existing values are replaced, read and streamed as before.
    let mut reader = Reader::open(Way::Events, server.public, "/live", "", "");
    assert_eq!(reader.data(), "0");
    for n in 1..=9 {
        server.publish("/live", &n.to_string());
        assert_eq!(reader.data(), n.to_string());
    }
    server.control.put("/flood/0", "text/plain", &body).expect(200);
    let lines = "{\"topic\":\"/new\",\"data\":\"".to_owned() + &"x".repeat(100_000) + "\"}\n";
    let bulk = server.control.post("/-/publish", lines.as_bytes()).expect(200).json();
    assert_eq!((&bulk["published"], &bulk["failed"]), (&Value::from(0), &Value::from(1)));
    let metrics = server.control.get("/-/metrics").expect(200).text().to_owned();
    assert!(metrics.contains("stentor_messages_refused_for_memory_total{reason=\"full\"} 2\n"));
    // Room is there once a topic is deleted.
    server.control.ask("DELETE", "/flood/1", "", b"").expect(200);
    server.control.put("/new", "text/plain", &body).expect(201);
}

/// Two readers of all topics, one by each transport, have an event and a frame of every message
/// rendered, in JSON that escapes each byte.
#[test]
fn readers_take_no_memory_from_publishers() {
    let settings = "[limits]\nstored_bytes_max = '8 MiB'\n[[topics]]\nmatch = '/**'\nhistory = 1\n";
    let server = Server::configured(settings);
    let target = "/-/events?topic=/t/*";
    let mut events = EventStream::open(server.public, target, "");
    let fields = "Sec-WebSocket-Protocol: stentor.v1\r\n";
    let mut frames = WebSocket::open(server.public, target, fields);
    assert!(frames.text().contains("cursor"));
    let memory = || server.figure("memory_anonymous_bytes");
    let before = memory();
    let body = "\"\\\n\t".repeat(5_000);
    for status in [201, 200] {
        for n in 0..300 {
            let topic = format!("/t/{n}");
            server.control.put(&topic, "text/plain", body.as_bytes()).expect(status);
            assert!(events.event().data.contains(&format!("\"topic\":\"{topic}\"")));
            assert!(frames.text().contains(&format!("\"topic\":\"{topic}\"")));
        }
    }
    let [forms, forms_max, max] = ["forms", "forms_max", "max"].map(|of| stored(&server, of));
    assert!(forms > forms_max / 2 && forms <= forms_max, "{forms} of {forms_max}");
    assert_eq!(stored(&server, "evicted_total"), 0);
    let (grown, readers_max) = (memory().saturating_sub(before), 4 * MIB as u64);
    let limits = max + forms_max + readers_max;
    assert!(grown <= limits + limits * 15 / 100, "{grown} bytes with limits of {limits}");
}

#[test]
fn a_reload_changes_the_limit() {
    let server = Server::configured("[limits]\nstored_bytes_max = '1 MiB'\n");
    let body = vec![b'x'; 700_000];
    server.control.put("/a", "text/plain", &body).expect(201);
    server.control.put("/b", "text/plain", &body).refused(507);
    reload(&server, "8 MiB");
    server.control.put("/b", "text/plain", &body).expect(201);
    server.control.put("/b", "text/plain", &body).expect(200);
    reload(&server, "1 MiB");
    eventually("an eviction", || (stored(&server, "history") == 0).then_some(()));
    server.control.put("/b", "text/plain", &body).expect(200);
    server.control.put("/c", "text/plain", b"").refused(507);
}

#[test]
fn a_store_over_the_limit_opens_with_values_or_says_what_it_needs() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let flags = ["--workers", "1", "--data", data.to_str().unwrap()];
    let server = Server::with("", "", &flags);
    let body = vec![b'x'; 100_000];
    for n in 0..60 {
        let topic = format!("/{}", n % 20);
        server.control.put(&topic, "text/plain", &body).expect_one_of(&[200, 201]);
    }
    server.stop();
    let mut server = Server::with("", "[limits]\nstored_bytes_max = '3 MiB'\n", &flags);
    server.child.logged("history was evicted");
    assert!(stored(&server, "evicted_total") > 0);
    for n in 0..20 {
        assert_eq!(server.public.get(&format!("/{n}")).body, body);
    }
    server.stop();
    let settings = dir.path().join("small.toml");
    std::fs::write(&settings, "[limits]\nstored_bytes_max = '1 MiB'\n").unwrap();
    let flags = [&["--config", settings.to_str().unwrap()], &flags[..]].concat();
    let reasons = ["does not fit into memory", "so it needs ", "stored_bytes_max is 1 MiB"];
    let said = refused_start(&flags, &reasons);
    assert!(!said.err.contains("repair"), "nothing is damaged: {}", said.err);
}
