//! Request bodies: announced, refused before they come, too large, too wordy, or awaited.

use crate::support::{Client, Ending, Server};

#[test]
fn the_client_is_told_to_continue() {
    let server = Server::start();
    let mut client = server.publisher();
    let head = "PUT /t HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    for status in [201, 200] {
        client.send(head);
        client.response().expect(100);
        client.send("hello");
        client.response().expect(status);
    }
    // A client that does not wait for it need not be told.
    client.send(format!("{head}again"));
    client.response().expect(200);
    assert_eq!(client.get("/t").text(), "again");
}

#[test]
fn a_client_that_waits_is_refused_before_it_sends() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 1000\n");
    for (target, fields, status) in [
        ("/t", "Content-Length: 1001\r\n", 413),
        ("/a//b", "Content-Length: 5\r\n", 400),
        ("/-/status", "Content-Length: 5\r\n", 405),
        ("/t", "Content-Length: 5\r\nContent-Encoding: br\r\n", 415),
        ("/t", "Content-Length: 5\r\nOrigin: http://evil.example\r\n", 403),
    ] {
        let mut client = server.publisher();
        let head = format!("PUT {target} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{fields}");
        client.send(format!("{head}\r\n"));
        client.response().refused(status);
        assert_eq!(client.ending(), Ending::Closed, "{head}");
    }
}

#[test]
fn where_nothing_is_published_no_body_is_too_large() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 1000\n");
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let mut client = server.reader();
        client.send(format!("{method} /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"));
        client.response().refused(405);
        assert_eq!(client.ending(), Ending::Closed, "{method}");
    }
    let mut client = server.reader();
    client.send("GET /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    client.response().refused(413);
}

#[test]
fn other_expectations_fail() {
    let server = Server::start();
    let mut client = server.reader();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n");
    client.response().refused(417);
    // HTTP/1.0 knows none.
    let mut client = server.reader();
    client.send("GET /none HTTP/1.0\r\nExpect: miracles\r\n\r\n");
    client.response().refused(404);
    let mut client = server.publisher();
    client.send("PUT /t HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    client.send("x");
    client.response().expect(201);
}

#[test]
fn a_body_must_have_an_end() {
    let server = Server::start();
    for method in ["PUT", "POST"] {
        let mut client = server.publisher();
        client.send(format!("{method} /t HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.response().refused(411);
        // Without a length there is no body, so the next request begins where this one ended.
        client.get("/t").refused(404);
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_and_changes_nothing() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 1000\n");
    server.control.put("/t", "text/plain", b"before").expect(201);
    let announced = "PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".to_owned();
    let chunks = "1f4\r\n".to_owned() + &"x".repeat(500) + "\r\n";
    let chunked = "PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    let read = "GET /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".to_owned();
    for request in [
        announced.clone(),
        announced + &"x".repeat(1001),
        chunked.clone() + &chunks.repeat(3),
        read,
        chunked.replace("PUT", "GET") + &chunks.repeat(3),
    ] {
        let mut client = server.publisher();
        client.send(&request);
        client.response().refused(413);
        assert_eq!(client.ending(), Ending::Closed, "{request}");
    }
    assert_eq!(server.control.get("/t").text(), "before");
    // Exactly as large as allowed is not too large.
    server.control.put("/t", "text/plain", &[b'x'; 1000]).expect(200);
    let mut client = server.publisher();
    client.send(chunked + &chunks.repeat(2) + "0\r\n\r\n");
    client.response().expect(200);
}

#[test]
fn a_refused_sender_reads_why_although_it_goes_on_sending() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 1000\n");
    for _ in 0..5 {
        let mut client = server.publisher();
        let mut sender = client.sender();
        let sending = std::thread::spawn(move || {
            let head = "PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n";
            let _ = sender.try_send(head.as_bytes());
            for _ in 0..100 {
                if sender.try_send(&[b'x'; 100_000]).is_err() {
                    break;
                }
            }
        });
        client.response().refused(413);
        client.ending();
        drop(client);
        sending.join().unwrap();
    }
}

#[test]
fn the_largest_message() {
    let server = Server::start();
    let data: Vec<u8> = (0..1024 * 1024).map(|i| (i % 251) as u8).collect();
    server.control.put("/large", "application/octet-stream", &data).expect(201);
    let mut client = server.reader();
    for _ in 0..3 {
        assert!(client.get("/large").expect(200).body == data);
    }
    let refused = server.control.put("/large", "text/plain", &vec![b'x'; data.len() + 1]);
    refused.refused(413);
}

#[test]
fn small_chunks_are_fine_and_padding_is_not() {
    let server = Server::start();
    let head = "PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = server.publisher();
    client.send(head.to_owned() + &"1\r\nx\r\n".repeat(20_000) + "0\r\n\r\n");
    client.response().expect(201);
    assert_eq!(client.get("/t").body.len(), 20_000);
    for (what, padding, status) in [
        ("an extension of 64 KB", format!("1;{}\r\nx\r\n", "a".repeat(65_536)), 400),
        (
            "much extension, little content",
            "1;aaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(5_000),
            400,
        ),
        ("trailers without end", format!("0\r\n{}", "a: b\r\n".repeat(10_000)), 431),
    ] {
        let mut client = server.publisher();
        client.send(head.to_owned() + &padding);
        let response = client.response();
        assert_eq!(response.status, status, "{what}: {response:?}");
        client.ending();
    }
    assert_eq!(server.control.get("/t").body.len(), 20_000);
}

#[test]
fn a_publish_that_breaks_off_changes_nothing() {
    let server = Server::start();
    server.control.put("/t", "text/plain", b"before").expect(201);
    for request in [
        "PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nafte",
        "PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nafter\r\n",
        "PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nafter\r\n0\r\n\r",
    ] {
        let mut client = server.publisher();
        client.send(request);
        client.finish();
        client.ending();
    }
    assert_eq!(server.control.get("/t").text(), "before");
}

#[test]
fn heads_that_are_too_large() {
    let server = Server::start();
    let filler = |bytes: usize| "x".repeat(bytes);
    for (what, request, status) in [
        ("a target", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", filler(17_000)), 414),
        ("a target without end", format!("GET /{}", filler(17_000)), 414),
        ("a field", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", filler(17_000)), 431),
        ("a field without end", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", filler(17_000)), 431),
        ("a name", format!("GET / HTTP/1.1\r\nHost: a\r\n{}: b\r\n\r\n", filler(17_000)), 431),
        ("101 fields", format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: b\r\n".repeat(100)), 431),
        ("fields without end", "GET / HTTP/1.1\r\n".to_owned() + &"X: b\r\n".repeat(5_000), 431),
    ] {
        for address in [server.public.0, server.control.0] {
            for send in Client::SENDS {
                let mut client = Client::connect(address);
                send(&mut client, request.as_bytes());
                let response = client.response();
                assert_eq!(response.status, status, "{what}: {response:?}");
                client.ending();
            }
        }
    }
}

#[test]
fn heads_that_are_just_small_enough() {
    let server = Server::start();
    let mut client = server.reader();
    // RFC 9112 section 3 recommends 8000 bytes of request line at least.
    let long = format!("/-/values?topic=/a{}", "&topic=/a".repeat(900));
    assert!(long.len() > 8_000);
    client.get(&long).expect(200);
    let head = |field: &str| format!("GET /none HTTP/1.1\r\nHost: a\r\nX: {field}\r\n\r\n");
    let room = 16 * 1024 - head("").len();
    client.send(head(&"x".repeat(room)));
    client.response().refused(404);
    client.dribble(head(&"x".repeat(room)).as_bytes());
    client.response().refused(404);
    client.send(format!("GET /none HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: b\r\n".repeat(99)));
    client.response().refused(404);
}
