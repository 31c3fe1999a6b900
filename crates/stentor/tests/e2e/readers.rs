//! Readers are counted: for publishers, on the status page, in the metrics.

use crate::support::{EventStream, Reader, Server, TEXT, Way, WebSocket, eventually};
use serde_json::{Value, json};

/// Publishes text and returns how many readers the answer speaks of.
#[track_caller]
fn readers(server: &Server, topic: &str) -> u64 {
    let response = server.control.put(topic, "text/plain", b"x").expect_one_of(&[200, 201]);
    response.json()["readers"].as_u64().expect("a number of readers")
}

#[test]
fn a_publish_says_how_many_it_is_for() {
    let server = Server::start();
    assert_eq!(readers(&server, "/q/a"), 0);
    let one = EventStream::open(server.public, "/q/a", "");
    let two = WebSocket::open(server.public, "/q/a", "");
    let by_pattern = EventStream::open(server.public, "/-/events?topic=/q/*&topic=/x", "");
    let elsewhere = EventStream::open(server.public, "/q/b", "");
    assert_eq!(readers(&server, "/q/a"), 3);
    assert_eq!(readers(&server, "/q/b"), 2);
    assert_eq!(readers(&server, "/q/none"), 1);
    assert_eq!(readers(&server, "/x"), 1);
    assert_eq!(readers(&server, "/none"), 0);
    let protocol = "Sec-WebSocket-Protocol: stentor.v1\r\n";
    let mut socket = WebSocket::open(server.public, "/-/events", protocol);
    assert_eq!(readers(&server, "/q/a"), 3);
    socket.send(TEXT, json!({"subscribe": ["/q/a"]}).to_string());
    assert_eq!(socket.json()["topic"], "/q/a");
    assert_eq!(readers(&server, "/q/a"), 4);
    drop((one, two, by_pattern, elsewhere, socket));
    server.settled("readers_sse", 0);
    server.settled("readers_websocket", 0);
    for topic in ["/q/a", "/q/b", "/x"] {
        assert_eq!(readers(&server, topic), 0, "{topic}");
    }
}

#[test]
fn readers_come_and_go_and_are_counted_by_kind() {
    let server = Server::start();
    server.publish("/a", "one");
    for _ in 0..3 {
        let sse: Vec<EventStream> =
            (0..30).map(|_| EventStream::open(server.public, "/a", "")).collect();
        let sockets: Vec<WebSocket> =
            (0..20).map(|_| WebSocket::open(server.public, "/a", "")).collect();
        let held: Vec<_> = (0..10)
            .map(|_| {
                let mut client = server.reader();
                client.send("GET /new?wait=60 HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        server.settled("readers_sse", 30);
        server.settled("readers_websocket", 20);
        server.settled("readers_long_poll", 10);
        assert_eq!(server.figure("counters/connections_public"), 60);
        assert_eq!(readers(&server, "/a"), 50);
        drop((sse, sockets, held));
        for counter in ["readers_sse", "readers_websocket", "readers_long_poll"] {
            server.settled(counter, 0);
        }
        server.settled("connections_public", 0);
    }
}

/// A sample of the metrics page.
#[track_caller]
fn sample(server: &Server, name: &str) -> f64 {
    let page = server.control.get("/-/metrics").expect(200);
    let line = page.text().lines().find(|line| line.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("there is no {name}: {}", page.text()));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn deliveries_are_measured() {
    let server = Server::start();
    let mut readers: Vec<Reader> = (0..5)
        .map(|_| Reader::open(Way::Events, server.public, "/a", "", ""))
        .chain((0..5).map(|_| Reader::open(Way::WebSocket, server.public, "/a", "", "")))
        .collect();
    for i in 0..20 {
        server.publish("/a", &i.to_string());
        for reader in &mut readers {
            assert_eq!(reader.data(), i.to_string());
        }
    }
    server.settled("deliveries", 200);
    assert!(server.figure("counters/bytes_streams") > 20 * (5 * 25 + 5 * 3));
    assert_eq!(sample(&server, "stentor_deliveries_total"), 200.0);
    assert_eq!(sample(&server, "stentor_readers{kind=\"sse\"}"), 5.0);
    assert_eq!(sample(&server, "stentor_readers{kind=\"websocket\"}"), 5.0);
    assert_eq!(sample(&server, "stentor_readers{kind=\"long_poll\"}"), 0.0);
    assert_eq!(sample(&server, "stentor_readers_behind"), 0.0);
    // Each worker measures each message it has readers for.
    let fan_outs = eventually("the last is counted", || {
        let count = sample(&server, "stentor_fan_out_seconds_count");
        (count >= 20.0).then_some(count)
    });
    assert!(fan_outs <= 40.0, "{fan_outs}");
    assert!(sample(&server, "stentor_fan_out_seconds_sum") > 0.0);
    assert_eq!(sample(&server, "stentor_fan_out_seconds_bucket{le=\"+Inf\"}"), fan_outs);
    assert_eq!(sample(&server, "stentor_gaps_total"), 0.0);
    Reader::open(Way::Events, server.public, "/a", "", "nonsense").hear();
    assert_eq!(sample(&server, "stentor_gaps_total"), 1.0);
    assert_eq!(server.figure("counters/gaps"), 1);
    // The text form of the status has the connections of readers, too.
    let fields = "Accept: text/plain\r\n";
    let text = server.control.ask("GET", "/-/status", fields, b"").expect(200);
    assert!(text.text().starts_with("Active connections: 1"), "{text:?}");
    let status: Value = server.control.get("/-/status").json();
    assert!(status["memory_per_connection_bytes"].as_u64().is_some(), "{status}");
}
