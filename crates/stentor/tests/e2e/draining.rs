//! The end of streams when the server stops: each with a word, and not all at once, so that a
//! restart is no storm.

use crate::support::{Client, Ending, EventStream, PATIENCE, Server, WebSocket};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn every_kind_of_stream_is_told() {
    let mut server = Server::configured("[streams]\ndrain_spread = '300ms'\n");
    server.publish("/a", "one");
    let id = server.publish("/a", "two");
    let mut sse = EventStream::open(server.public, "/a", "");
    let mut many = EventStream::open(server.public, "/-/events?topic=/a", "");
    let mut socket = WebSocket::open(server.public, "/a", "");
    let mut subscriber = WebSocket::open(server.public, "/-/events?topic=/a", "");
    let mut echo = WebSocket::open(server.control, "/-/echo", "");
    sse.event();
    many.event();
    assert_eq!(socket.text(), "two");
    assert_eq!(subscriber.json()["data"], "two");
    let held = |target: &str, fields: &str| {
        let mut client = server.reader();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        client
    };
    let mut by_tag = held("/a", &format!("Prefer: wait=60\r\nIf-None-Match: \"{id}\"\r\n"));
    let mut by_cursor = held(&format!("/a?wait=60&since={id}"), "");
    let mut array = held(&format!("/-/events?topic=/a&wait=60&since={id}"), "");
    server.settled("readers_long_poll", 3);
    server.child.signal("TERM");
    server.child.logged("stopping");
    for (client, status) in [(&mut by_tag, 304), (&mut by_cursor, 204), (&mut array, 200)] {
        let response = client.response().expect(status);
        assert_eq!(response.field("connection"), Some("close"), "{response:?}");
        assert_eq!(client.ending(), Ending::Closed);
    }
    for stream in [&mut sse, &mut many] {
        assert_eq!(stream.ending(), Ending::Closed);
        // It was said at the beginning, and what ends here is no event to any client.
        assert_eq!(stream.retries, 1);
        assert!(stream.retry_ms.is_some_and(|retry_ms| (2_000..=4_000).contains(&retry_ms)));
    }
    for socket in [&mut socket, &mut subscriber, &mut echo] {
        assert_eq!(socket.closed(), Some(1012));
    }
    drop((sse, many, socket, subscriber, echo, by_tag, by_cursor, array));
    server.child.stopped();
}

#[test]
fn streams_end_spread_over_a_time() {
    let mut server = Server::configured("drain = '10s'\n[streams]\ndrain_spread = '2s'\n");
    let streams: Vec<EventStream> =
        (0..60).map(|i| EventStream::open(server.public, &format!("/{i}"), "")).collect();
    server.child.signal("TERM");
    let mut ends: Vec<Instant> = thread::scope(|scope| {
        let ends: Vec<_> = streams
            .into_iter()
            .map(|mut stream| {
                scope.spawn(move || {
                    assert_eq!(stream.ending(), Ending::Closed);
                    Instant::now()
                })
            })
            .collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    ends.sort();
    // However slow this machine is: they were not all ended at once.
    assert!(ends[59] - ends[0] > Duration::from_millis(800), "{:?}", ends[59] - ends[0]);
    let first_half = ends[30] - ends[0];
    assert!(first_half > Duration::from_millis(200), "{first_half:?}");
    server.child.stopped();
}

#[test]
fn what_is_published_while_streams_wait_for_their_end_is_still_delivered() {
    let mut server = Server::configured("drain = '20s'\n[streams]\ndrain_spread = '1s'\n");
    let mut streams: Vec<EventStream> =
        (0..40).map(|_| EventStream::open(server.public, "/a", "")).collect();
    let mut publisher = server.publisher();
    publisher.send("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    super::support::eventually("the request has begun", || {
        (server.figure("counters/connections_reading") >= 1).then_some(())
    });
    server.child.signal("TERM");
    server.child.logged("stopping");
    publisher.send("lo");
    let readers = publisher.response().expect(201).json()["readers"].as_u64().unwrap();
    let delivered = streams.iter_mut().filter_map(|stream| stream.try_event().ok());
    let delivered: Vec<String> = delivered.map(|event| event.data).collect();
    assert!(readers > 0 && delivered.iter().all(|data| data == "hello"));
    // The other worker may end a stream between the count and the message.
    let counted = readers.saturating_sub(2).max(1)..=readers;
    assert!(counted.contains(&(delivered.len() as u64)), "{} of {readers}", delivered.len());
    drop((streams, publisher));
    server.child.stopped();
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_up_the_stop() {
    let mut server = Server::configured("drain = '2s'\n[streams]\ndrain_spread = '200ms'\n");
    let deaf: Vec<EventStream> =
        (0..5).map(|_| EventStream::open(server.public, "/a", "")).collect();
    let text = "x".repeat(1_000_000);
    for _ in 0..20 {
        server.publish("/a", &text);
    }
    server.settled("readers_behind", 5);
    // A connection that has not even asked, and one in the middle of a frame.
    let silent = server.reader();
    let mut half = WebSocket::open(server.control, "/-/echo", "");
    half.client.send([0x82, 0xff]);
    server.child.signal("TERM");
    server.child.stopped_within(PATIENCE);
    drop((deaf, silent));
}

#[test]
fn streams_that_begin_during_the_stop_end_too() {
    let mut server = Server::configured("drain = '20s'\n[streams]\ndrain_spread = '500ms'\n");
    let mut half: Client = server.reader();
    half.send("GET /a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n");
    super::support::eventually("the request has begun", || {
        (server.figure("counters/connections_reading") >= 1).then_some(())
    });
    server.child.signal("TERM");
    server.child.logged("stopping");
    half.send("\r\n");
    half.bodyless_response().expect(200);
    while half.take().is_ok() {}
    drop(half);
    server.child.stopped();
}
