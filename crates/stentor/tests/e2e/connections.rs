//! Connections: kept, closed, pipelined; versions and methods.

use crate::support::{Client, Ending, EventStream, Server, TcpRow, WebSocket, tcp_table};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, SystemTime};

#[test]
fn a_client_that_pipelines_and_then_closes_gets_its_answers() {
    let server = Server::start();
    server.control.put("/a", "text/plain", &[b'x'; 50_000]).expect(201);
    let mut client = server.reader();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500));
    client.finish();
    for _ in 0..500 {
        assert_eq!(client.response().expect(200).body.len(), 50_000);
    }
    assert_eq!(client.ending(), Ending::Closed);
}

#[test]
fn a_close_by_reset_loses_nothing_and_leaves_nothing_behind() {
    let server = Server::configured("limits.close = 'reset'\n");
    server.control.put("/a", "text/plain", &[b'x'; 300_000]).expect(201);
    let last = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut ports = Vec::new();
    for _ in 0..20 {
        let (mut client, port) = connect(&server);
        ports.push(port);
        client.send(last);
        // The answer waits in the client's kernel when the reset comes.
        thread::sleep(Duration::from_millis(10));
        assert_eq!(client.response().expect(200).body.len(), 300_000);
        assert_eq!(client.ending(), Ending::Reset);
    }
    assert_eq!(remembered(&server, &ports), 0, "connections in TIME_WAIT");
    let mut client = server.reader();
    client.send("GET / HTTP/1.1\n\n");
    client.response().expect(400);
    assert_eq!(client.ending(), Ending::Closed, "a refusal is not cut");
    let server = Server::start();
    server.control.put("/a", "text/plain", b"x").expect(201);
    let (mut client, port) = connect(&server);
    client.send(last);
    client.response().expect(200);
    assert_eq!(client.ending(), Ending::Closed);
    drop(client);
    assert!(remembered(&server, &[port]) > 0, "the usual end");
}

/// A client and its port.
fn connect(server: &Server) -> (Client, u16) {
    let stream = TcpStream::connect(server.public.0).unwrap();
    let port = stream.local_addr().unwrap().port();
    (Client::over(stream), port)
}

/// How many connections from these ports to the server the kernel remembers (`TIME_WAIT`).
fn remembered(server: &Server, ports: &[u16]) -> usize {
    let to = server.public.0.port();
    let is_one = |a: u16, b: u16| a == to && ports.contains(&b);
    let is_remembered = |row: &TcpRow| {
        let (a, b) = (row.local_port, row.remote_port);
        row.state == 6 && (is_one(a, b) || is_one(b, a))
    };
    tcp_table().into_iter().filter(is_remembered).count()
}

#[test]
fn reads_and_writes_of_one_connection_are_in_order() {
    let server = Server::start();
    let mut client = server.publisher();
    let requests: String = (0..500)
        .map(|i| {
            let value = format!("{i:05}");
            format!(
                "PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{value}\
                 GET /t HTTP/1.1\r\nHost: a\r\n\r\n"
            )
        })
        .collect();
    client.send(requests);
    for i in 0..500 {
        let status = client.response().status;
        assert_eq!(status, if i == 0 { 201 } else { 200 });
        assert_eq!(client.response().expect(200).text(), format!("{i:05}"));
    }
}

#[test]
fn http_1_0_closes_unless_told_otherwise() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"1").expect(201);
    let mut client = server.reader();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    let response = client.response().expect(200);
    assert_eq!((response.text(), response.field("connection")), ("1", Some("close")));
    assert_eq!(client.ending(), Ending::Closed);

    let mut client = server.reader();
    for _ in 0..3 {
        client.send("GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        let response = client.response().expect(200);
        assert_eq!(response.field("connection"), Some("keep-alive"));
    }
    client.send("HEAD /a HTTP/1.0\r\n\r\n");
    client.bodyless_response().expect(200);
    assert_eq!(client.ending(), Ending::Closed);
}

#[test]
fn http_1_1_stays_open_unless_told_otherwise() {
    let server = Server::start();
    let mut client = server.reader();
    for _ in 0..3 {
        assert_eq!(client.get("/none").refused(404).field("connection"), None);
    }
    let response = client.ask("GET", "/none", "Connection: close\r\n", b"").refused(404);
    assert_eq!(response.field("connection"), Some("close"));
    assert_eq!(client.ending(), Ending::Closed);
}

#[test]
fn a_head_has_the_fields_of_a_get_and_no_body() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"hello").expect(201);
    for address in [server.public.0, server.control.0] {
        let mut client = Client::connect(address);
        for target in ["/a", "/none", "/-/values?topic=/a", "/-/nothing"] {
            let get = client.get(target);
            let head = client.ask("HEAD", target, "", b"");
            assert_eq!(get.status, head.status);
            assert_eq!(get.fields(), head.fields(), "{target}");
        }
        let tag = client.get("/a").tag();
        let fields = format!("If-None-Match: {tag}\r\n");
        client.ask("HEAD", "/a", &fields, b"").expect(304);
        client.get("/a").expect(200);
    }
}

#[test]
fn options_says_what_is_allowed() {
    let server = Server::start();
    for (address, target, allowed) in [
        (server.public.0, "/a", "GET, HEAD, OPTIONS"),
        (server.public.0, "*", "GET, HEAD, OPTIONS"),
        (server.public.0, "/-/values", "GET, HEAD, OPTIONS"),
        (server.control.0, "/a", "DELETE, GET, HEAD, OPTIONS, POST, PUT"),
        (server.control.0, "/-/status", "GET, HEAD, OPTIONS"),
        (server.control.0, "/-/publish", "OPTIONS, POST"),
    ] {
        let response = Client::connect(address).ask("OPTIONS", target, "", b"").expect(204);
        assert_eq!(response.field("allow"), Some(allowed), "{target}");
        assert_eq!(response.field("content-length"), None);
    }
}

#[test]
fn nothing_that_arrives_at_the_public_listener_publishes() {
    let server = Server::start();
    server.control.put("/t", "text/plain", b"before").expect(201);
    for method in ["PUT", "POST", "DELETE", "PATCH", "TRACE"] {
        for target in ["/t", "/-/publish", "/-/values", "/-/status"] {
            for body in [&b""[..], b"after"] {
                let mut client = server.reader();
                let response = client.ask(method, target, "", body).refused(405);
                assert_eq!(response.field("allow"), Some("GET, HEAD, OPTIONS"), "{method}");
            }
        }
    }
    assert_eq!(server.public.get("/t").text(), "before");
    for page in ["status", "metrics", "healthz", "readyz", "topics", "publish", "nothing"] {
        server.public.get(&format!("/-/{page}")).refused(404);
    }
}

#[test]
fn methods_the_control_listener_does_not_know_are_refused() {
    let server = Server::start();
    for (method, target, allowed) in [
        ("PATCH", "/t", "DELETE, GET, HEAD, OPTIONS, POST, PUT"),
        ("TRACE", "/t", "DELETE, GET, HEAD, OPTIONS, POST, PUT"),
        ("PUT", "/-/publish", "OPTIONS, POST"),
        ("GET", "/-/publish", "OPTIONS, POST"),
        ("POST", "/-/status", "GET, HEAD, OPTIONS"),
        ("DELETE", "/-/values", "GET, HEAD, OPTIONS"),
    ] {
        let response = server.control.ask(method, target, "", b"").refused(405);
        assert_eq!(response.field("allow"), Some(allowed), "{method} {target}");
    }
}

#[test]
fn the_absolute_form_names_the_same_topic() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"hello").expect(201);
    let mut client = server.reader();
    for target in ["http://test/a", "http://elsewhere:81/a", "HTTP://test/a?x=y"] {
        assert_eq!(client.get(target).expect(200).text(), "hello", "{target}");
    }
    // Without a path it is the root, which is no topic.
    client.get("http://test").refused(400);
}

#[test]
fn every_answer_has_a_date_and_the_server_its_name() {
    let server = Server::start();
    let named = server.public.get("/none");
    assert_eq!(named.field("server"), Some("Stentor"));
    let date = httpdate::parse_http_date(named.field("date").expect("a Date")).unwrap();
    let age = SystemTime::now().duration_since(date).expect("it is not ahead");
    assert!(age < Duration::from_secs(60), "{age:?}");
    let server = Server::configured("server_header = false\n");
    let unnamed = server.public.get("/none");
    assert!(unnamed.field("server").is_none() && unnamed.field("date").is_some());
}

#[test]
fn control_has_a_worker_of_its_own() {
    let server = Server::start();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let names = tasks.map(|task| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap().trim().to_owned()
    });
    let mut workers: Vec<String> =
        names.filter(|name| name == "control" || name.starts_with("worker-")).collect();
    workers.sort();
    assert_eq!(workers, ["control", "worker-0", "worker-1"]);
    assert_eq!(server.figure("workers"), 2);
}

#[test]
fn more_workers_than_cores() {
    let server = Server::with("", "", &["--workers", "120"]);
    assert_eq!(server.figure("workers"), 120);
    server.control.put("/a", "text/plain", b"hello").expect(201);
    let mut clients: Vec<Client> = (0..500).map(|_| server.reader()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a").expect(200).text(), "hello");
    }
    assert!(server.figure("connections_open") > 500);
    drop(clients);
    server.control.put("/a", "text/plain", b"again").expect(200);
    // Whichever worker answers, it sees what was published.
    for _ in 0..200 {
        assert_eq!(server.public.get("/a").text(), "again");
    }
}

#[test]
fn later_minor_versions_are_served_as_ours() {
    let server = Server::start();
    server.publish("/a", "one");
    let mut client = server.publisher();
    client.send("PUT /a HTTP/1.2\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\ntwo\r\n0\r\n\r\n");
    client.response().expect(200);
    client.send("GET /a HTTP/1.9\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "two");
    client.send("GET /a HTTP/2.0\r\nHost: a\r\n\r\n");
    client.response().refused(505);
}

/// How long the process is stopped, as while its virtual machine is moved: `TEST_PAUSE_SECONDS`.
fn pause() -> Duration {
    let seconds = std::env::var("TEST_PAUSE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

#[test]
fn what_arrives_in_a_pause_is_answered_and_nobody_is_cut() {
    let server = Server::configured("limits.keep_alive_timeout = '2s'\nstreams.ping = '1s'\n");
    server.control.put("/a", "text/plain", b"before").expect(201);
    let mut idle: Vec<Client> = (0..20).map(|_| server.reader()).collect();
    for client in &mut idle {
        client.get("/a").expect(200);
    }
    let mut events = EventStream::open(server.public, "/a", "");
    assert_eq!(events.event().data, "before");
    let mut socket = WebSocket::open(server.public, "/a", "");
    assert_eq!(socket.text(), "before");

    server.child.signal("STOP");
    for client in &mut idle {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    thread::sleep(pause());
    server.child.signal("CONT");
    for client in &mut idle {
        assert_eq!(client.response().expect(200).text(), "before");
    }
    server.control.put("/a", "text/plain", b"after").expect(200);
    assert_eq!(events.event().data, "after");
    assert_eq!(socket.text(), "after");
    assert_eq!(server.figure("counters/timeouts"), 0);
}
