//! nginx and HAProxy in front of a server: all ways to read and to publish, a reload of the proxy,
//! and a server that goes and comes back.

use super::{Kind, Proxy, haproxy_of, recipe, recipe_of, with};
use crate::access::writer_below_in;
use crate::support::{
    Browser, Child, Server, TempDir, Url, eventually, free_address, python_of_host, tool,
};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::thread;

/// A server that stops at once, and takes publishes with [`TOKEN`] below `/in`.
fn settings() -> String {
    format!("streams.drain_spread = '0s'\n{}", writer_below_in())
}

const TOKEN: &str = "Authorization: Bearer stentor_writer";
const EVENTS: &str = "Accept: text/event-stream";

/// `None` where curl or the proxy is missing.
fn start(kind: Kind) -> Option<(Server, Proxy)> {
    tool("curl")?;
    let server = Server::lasting(&settings());
    let proxy = Proxy::start(kind, server.public)?;
    Some((server, proxy))
}

/// Waits until curl has printed that.
#[track_caller]
fn printed(client: &mut Child, text: &str) {
    eventually(&format!("curl prints {text:?}"), || {
        // What it has printed may be collected a moment after its end.
        client.out().contains(text).then_some(())
    });
}

#[test]
fn nginx_passes_every_way_to_read_and_publish() {
    passes_every_way_to_read_and_publish(Kind::Nginx);
}

#[test]
fn haproxy_passes_every_way_to_read_and_publish() {
    passes_every_way_to_read_and_publish(Kind::HaProxy);
}

fn passes_every_way_to_read_and_publish(kind: Kind) {
    let Some((server, proxy)) = start(kind) else { return };
    let mut stream = proxy.curl_on("/in/a", &["-H", EVENTS]);
    let mut poll = proxy.curl_on("/-/events?topic=/in/a&wait=30", &[]);
    server.settled("readers_sse", 1);
    server.settled("readers_long_poll", 1);
    let text = ["-X", "PUT", "-H", "Content-Type: text/plain", "-H", TOKEN, "-d", "one"];
    let said = proxy.curl("/in/a", &text);
    assert!(said.ends_with("2 201 application/json\n"), "{said}");
    printed(&mut stream, "data: one\n\n");
    printed(&mut poll, "\"data\":\"one\"");
    assert_eq!(proxy.curl("/in/a", &[]), "one2 200 text/plain\n");
    let tag = server.public.get("/in/a").tag();
    let condition = format!("If-None-Match: {tag}");
    assert!(proxy.curl("/in/a", &["-H", &condition]).starts_with("2 304 "));
    let without = proxy.curl("/in/a", &["-X", "PUT", "-d", "two"]);
    assert!(without.contains("2 401 "), "a token is needed: {without}");
    let lines = "{\"topic\":\"/in/a\",\"data\":\"two\"}\n{\"topic\":\"/elsewhere\",\"data\":1}";
    let said = proxy.curl("/-/publish", &["-H", TOKEN, "--data-binary", lines]);
    assert!(said.contains("\"published\":1,\"failed\":1"), "{said}");
    printed(&mut stream, "data: two\n\n");
    let said = proxy.curl("/in/a", &["-X", "DELETE", "-H", TOKEN]);
    assert!(said.ends_with("2 200 application/json\n"), "{said}");
    printed(&mut stream, "\"deleted\":true}\n");
    // Over HTTP/1.1, by a client that knows nothing but sockets: a stream and a WebSocket.
    server.publish("/a", "one");
    let Some(mut command) = python_of_host("tls_client.py") else { return };
    command.arg(proxy.address.port().to_string()).arg(proxy.certificate()).arg("1.3");
    let client = Child::spawn(&mut command);
    eventually("the stream has begun", || {
        assert_eq!(client.err(), "");
        client.out().contains("stream\n").then_some(())
    });
    server.publish("/a", "two");
    let said = client.said();
    assert!(said.out.ends_with("stream two\nsocket\nclosed\n"), "{said:?}");
}

/// The page's origin is that of the proxy, which the server knows by `Host` alone. Behind HAProxy
/// the browser opens the WebSocket over HTTP/2 (RFC 8441).
#[test]
fn a_page_opens_a_websocket_through_either_proxy() {
    let Some(mut browser) = Browser::start() else { return };
    for kind in [Kind::Nginx, Kind::HaProxy] {
        let Some((server, proxy)) = start(kind) else { return };
        server.control.put("/page", "text/html", b"<!doctype html><title>page</title>");
        browser.open(&proxy.url("/page"));
        browser.run(
            "window.heard = [];
             window.socket = new WebSocket(`wss://${location.host}/a`);
             socket.onopen = () => heard.push('open');
             socket.onmessage = ({ data }) => heard.push(data);
             socket.onclose = ({ code }) => heard.push(code);",
        );
        let mut heard = |expected: Value| {
            eventually(&format!("{kind:?}: the page hears {expected}"), || {
                (browser.run("return heard") == expected).then_some(())
            });
        };
        heard(json!(["open"]));
        server.publish("/a", "one");
        heard(json!(["open", "one"]));
        server.child.signal("TERM");
        heard(json!(["open", "one", 1012]));
    }
}

#[test]
fn streams_stay_through_a_reload_of_either_proxy() {
    for kind in [Kind::Nginx, Kind::HaProxy] {
        let Some((server, mut proxy)) = start(kind) else { return };
        let mut streams: Vec<Child> = (0..10)
            .map(|n| {
                let version = if n % 2 == 0 { "--http1.1" } else { "--http2" };
                proxy.curl_on("/a", &["-H", EVENTS, version])
            })
            .collect();
        server.settled("readers_sse", 10);
        for text in ["before", "after", "after another"] {
            server.publish("/a", text);
            streams.iter_mut().for_each(|stream| printed(stream, &format!("data: {text}\n\n")));
            proxy.reload(kind);
            // An old worker may still accept a connection and close it: a browser tries again.
            eventually("new connections are served", || {
                let said = proxy.try_curl("/a", &[]).ok()?;
                (said == format!("{text}2 200 text/plain\n")).then_some(())
            });
        }
        assert_eq!(server.figure("counters/readers_sse"), 10);
    }
}

#[test]
fn an_event_source_is_told_to_come_back_while_the_server_is_away() {
    for kind in [Kind::Nginx, Kind::HaProxy] {
        let Some((mut server, proxy)) = start(kind) else { return };
        for signal in ["TERM", "KILL"] {
            server.publish("/a", signal);
            let mut stream = proxy.curl_on("/a", &["-H", EVENTS]);
            printed(&mut stream, &format!("data: {signal}\n\n"));
            server.child.signal(signal);
            server.child.wait();
            let addresses = [server.public, server.control];
            drop(server);
            assert_ne!(stream.said().code, None, "the stream ends with the server");
            let away = proxy.curl("/a", &["-i", "-H", EVENTS]);
            let body = "\r\n\r\nretry: 3000\n: Stentor is away.\n2 200 text/event-stream\n";
            assert!(away.ends_with(body), "{kind:?}: {away}");
            assert!(away.contains("\r\naccess-control-allow-origin: *\r\n"), "{away}");
            let refused = proxy.curl("/a", &[]);
            assert!(refused.contains("2 503 text/"), "{kind:?}: {refused}");
            assert!(!refused.contains("text/event-stream"), "{kind:?}: {refused}");
            server = Server::at(addresses, &settings());
            server.publish("/a", "back");
            assert_eq!(proxy.curl("/a", &[]), "back2 200 text/plain\n");
        }
        // A refusal of the server passes as it is.
        let refused = proxy.curl("/-/events", &["-H", EVENTS]);
        assert!(refused.ends_with("2 400 application/problem+json\n"), "{kind:?}: {refused}");
    }
}

/// As `docs/http/publishing.md` promises, the server publishes each line as soon as it is complete,
/// and answers at once on a graceful stop. nginx holds no more of it than its buffers.
#[test]
fn a_publish_stream_of_100_mb_passes_line_by_line() {
    const BYTES: usize = 100_000_000;
    for kind in [Kind::Nginx, Kind::HaProxy] {
        let Some((server, proxy)) = start(kind) else { return };
        let mut reader = proxy.curl_on("/in/first", &["-H", EVENTS]);
        server.settled("readers_sse", 1);
        let before = memory_kib(&proxy);
        let mut client = proxy.curl_on("/-/publish", &["-X", "POST", "-H", TOKEN, "-T", "."]);
        let mut input = client.input();
        input.write_all(b"{\"topic\":\"/in/first\",\"data\":\"at once\"}\n").unwrap();
        printed(&mut reader, "data: at once\n\n");
        let line = format!("{{\"topic\":\"/in/a\",\"data\":\"{}\"}}\n", "x".repeat(10_000));
        let count = BYTES.div_ceil(line.len());
        thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|_| input.write_all(line.as_bytes()).unwrap()));
        });
        eventually("all lines are published", || {
            (server.figure("messages_published") == count as u64 + 1).then_some(())
        });
        let after = memory_kib(&proxy);
        println!("{kind:?}: {BYTES} bytes published, memory {before} KiB before, {after} after");
        assert!(after < before + 8 * 1024, "{kind:?}: {before} KiB before, {after} after");
        assert!(client.is_running(), "the stream has not ended: {}", client.err());
        server.child.signal("TERM");
        let answer = format!("{{\"published\":{},\"failed\":0,", count + 1);
        printed(&mut client, &answer);
    }
}

/// The recipe of `docs/cluster.md`, in front of two servers instead of two nodes: what it does when
/// one of them goes is the same. The page says which lines of the other recipe to add.
#[test]
fn haproxy_in_front_of_nodes_goes_to_the_one_that_is_left() {
    let Some(program) = tool("haproxy") else { return };
    let probes = "[monitor]\npublic_probes = true\n";
    let [mut a, mut b] = [(); 2].map(|()| Server::configured(probes));
    let [readers, publishers] = [(); 2].map(|()| free_address());
    let page = include_str!("../../../../../docs/cluster.md");
    let recipe = recipe("# /etc/haproxy/haproxy.cfg");
    let (_, lines) = recipe.split_once("    server stentor 127.0.0.1:8080\n").unwrap();
    let configuration = with(
        &recipe_of(page, "# haproxy.cfg"),
        &[
            ("bind :80\n", &format!("bind {readers}\n{lines}")),
            ("bind 127.0.0.1:8081\n", &format!("bind {publishers}\n")),
            ("10.0.0.1:8080", &a.public.0.to_string()),
            ("10.0.0.2:8080", &b.public.0.to_string()),
            ("10.0.0.1:8081", &a.control.0.to_string()),
            ("10.0.0.2:8081", &b.control.0.to_string()),
        ],
    );
    let dir = TempDir::new();
    let mut command = haproxy_of(&program, dir.path(), &configuration);
    let _proxy = Proxy::spawn(&mut command, readers, dir);
    let publish = |text: &[u8]| {
        eventually("a node takes what is published", || {
            let response = Url(publishers).put("/a", "text/plain", text);
            matches!(response.status, 200 | 201).then_some(())
        });
    };
    publish(b"to the first");
    b.public.get("/a").expect(404);
    assert_eq!(a.public.get("/a").expect(200).text(), "to the first");
    let read = || Url(readers).get("/a").status;
    eventually("both nodes are read", || (read() == 404).then_some(()));
    eventually("both nodes are read", || (read() == 200).then_some(()));
    a.child.kill();
    publish(b"to the other");
    eventually("readers go to the node that is left", || {
        (Url(readers).get("/a").text() == "to the other").then_some(())
    });
    b.child.kill();
    let away = Url(readers).ask("GET", "/a", &format!("{EVENTS}\r\n"), b"").expect(200);
    assert_eq!(away.text(), "retry: 3000\n: Stentor is away.\n");
    Url(readers).get("/a").expect(503);
}

/// The most that the proxy's workers have had in memory at any time.
fn memory_kib(proxy: &Proxy) -> u64 {
    let of = |id: &u32| -> u64 {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
    };
    proxy.workers().iter().map(of).sum()
}
