//! The public contract: error codes, `/-/info`, message objects that come in as they went out, and
//! the replies to commands.

use crate::access::{self, NEVER, bearer};
use crate::support::{
    Child, Client, EventStream, Response, Server, TEXT, TempDir, UPGRADE, Url, WebSocket,
    eventually, stentor,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::process::Stdio;
use stentor_access::Algorithm;
use stentor_access::mint::Signer;

/// The answer to bytes on a connection of its own.
#[track_caller]
fn answer_to(url: Url, request: impl AsRef<[u8]>) -> Response {
    let mut client = Client::connect(url.0);
    client.send(request);
    client.response()
}

/// A request: its first line, fields with their line ends, and its body.
fn request(line: &str, fields: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}")
}

/// Sees that each request is rejected with the status and the code, and notes the code.
#[track_caller]
fn expect_codes(url: Url, rows: &[(String, u16, &'static str)], seen: &mut BTreeSet<&'static str>) {
    for (request, status, code) in rows {
        let shown = &request[..request.len().min(200)];
        let response = answer_to(url, request);
        assert_eq!((response.status, response.code()), (*status, *code), "{shown}: {response:?}");
        response.refused(*status);
        seen.insert(code);
    }
}

/// The codes of what is wrong with a request itself, whatever it asks for.
#[test]
fn malformed_requests_are_rejected_with_a_code() {
    let server = Server::configured("[limits]\nhead_timeout = '300ms'\n");
    let put = |fields: &str, body: &str| request("PUT /t", fields, body);
    let get = |fields: &str| request("GET /t", fields, "");
    let mut seen = BTreeSet::new();
    expect_codes(
        server.control,
        &[
            ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400, "request_invalid"),
            (get("x y: 1\r\n"), 400, "header_invalid"),
            (put("Content-Length: 1\r\nContent-Length: 1\r\n", "x"), 400, "header_repeated"),
            (request("GET t", "", ""), 400, "target_invalid"),
            ("GET /t HTTP/1.1\r\n\r\n".to_owned(), 400, "host_invalid"),
            (
                put("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "x"),
                400,
                "framing_invalid",
            ),
            (put("Transfer-Encoding: chunked\r\n", "x\r\n"), 400, "chunk_invalid"),
            ("GET /-/feed HTTP/1.0\r\nHost: a\r\n\r\n".to_owned(), 400, "http_1_1_required"),
            ("GET /t HTTP/1.1\r\nHost: localhost\r\n".to_owned(), 408, "head_timeout"),
            (put("", ""), 411, "length_required"),
            (
                request(&format!("GET /{}", "a".repeat(17_000)), "", ""),
                414,
                "request_line_too_long",
            ),
            (put("Content-Length: 1\r\nExpect: tea\r\n", "x"), 417, "expectation_unsupported"),
            (get(&"x: y\r\n".repeat(1_000)), 431, "head_too_large"),
            (request("BREW /t", "", ""), 501, "method_unknown"),
            (put("Transfer-Encoding: gzip, chunked\r\n", ""), 501, "transfer_coding_unsupported"),
            ("GET /t HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505, "http_version_unsupported"),
            ("GET /t HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(), 421, "host_not_allowed"),
        ],
        &mut seen,
    );
    assert_eq!(seen.len(), 17);
}

const RULES: &str = "
[limits]
names_max = 3
message_bytes_max = 700000
[streams]
topics_max = 3
public_patterns = false
[[lookup]]
path = '/list='
topics = '/{name}'
line = 'a[\"{name}\"]'
";

/// The codes of what a request asks for.
#[test]
fn rejections_have_the_code_of_their_case() {
    let dir = TempDir::new();
    fs::write(dir.path().join("a.txt"), "x").unwrap();
    let files = format!("[[static]]\nroot = '{}'\n", dir.path().display());
    let server = Server::configured(&format!("{RULES}{files}"));
    let big = "x".repeat(600_000);
    for topic in ["/big/1", "/big/2"] {
        server.publish(topic, &big);
    }
    let get = |target: &str, fields: &str| request(&format!("GET {target}"), fields, "");
    let events = |query: &str| get(&format!("/-/events?{query}"), "");
    let sse = "Accept: text/event-stream\r\n";
    let mut seen = BTreeSet::new();
    expect_codes(
        server.control,
        &[
            (get("/%zz", ""), 400, "path_invalid"),
            (events("topic=/a*"), 400, "pattern_invalid"),
            (get("/a/*", sse), 400, "pattern_in_path"),
            (events(""), 400, "parameter_missing"),
            (events("topic=/a&x=1"), 400, "parameter_unknown"),
            (events("topic=/a&mode=some"), 400, "parameter_invalid"),
            (events("topic=%zz"), 400, "query_invalid"),
            (events("topic=/a&since=x"), 400, "cursor_invalid"),
            (get("/a?wait=0&since=x", ""), 400, "cursor_invalid"),
            (get("/list=%22", ""), 400, "name_invalid"),
            (get("/-/values?prefix=/&names=a,b,c,d", ""), 400, "too_many_names"),
            (events("topic=/a&topic=/b&topic=/c&topic=/d"), 400, "subscription_limit"),
            (get("/-/values?topic=/big/1&topic=/big/2", ""), 400, "answer_too_large"),
            (
                get("/a", &UPGRADE.replace("dGhlIHNhbXBsZSBub25jZQ==", "x")),
                400,
                "websocket_key_invalid",
            ),
            (get("/-/none", ""), 404, "endpoint_not_found"),
            (get("/-/feed?since=00000000-1", ""), 410, "epoch_changed"),
            (get("/a", &UPGRADE.replace("13", "12")), 426, "websocket_version_unsupported"),
            (get("/-/echo", ""), 426, "websocket_required"),
        ],
        &mut seen,
    );
    let ahead = server.public.get("/big/2").tag().trim_matches('"').to_owned() + "0";
    let feed = get(&format!("/-/feed?since={ahead}"), "");
    expect_codes(server.control, &[(feed, 410, "cursor_ahead")], &mut seen);
    expect_codes(
        server.public,
        &[
            (get("/none", ""), 404, "file_not_found"),
            (get("/a.txt", "Range: bytes=9-\r\n"), 416, "range_not_satisfiable"),
            (request("PUT /t", "Content-Length: 0\r\n", ""), 405, "listener_read_only"),
            (events("topic=/a/*"), 403, "patterns_disabled"),
        ],
        &mut seen,
    );
    let server = Server::start();
    expect_codes(server.public, &[(get("/none", ""), 404, "topic_not_found")], &mut seen);
    assert_eq!(seen.len(), 23, "{seen:?}");
}

/// The codes of what is published.
#[test]
fn rejected_publishes_have_the_code_of_their_fault() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 700000\n");
    let put = |fields: &str| request("PUT /t", &format!("Content-Length: 1\r\n{fields}"), "x");
    let length = "Content-Length: 0\r\n";
    let mut seen = BTreeSet::new();
    expect_codes(
        server.control,
        &[
            (request("PUT /a//b", length, ""), 400, "topic_invalid"),
            (request("PUT /a*", length, ""), 400, "topic_invalid"),
            (request("PUT /.well-known/x", length, ""), 400, "topic_reserved"),
            (put("Content-Type: x\r\n"), 400, "content_type_invalid"),
            (put("Stentor-Event:\r\n"), 400, "event_name_invalid"),
            (put("Stentor-Event: stentor\r\n"), 400, "event_name_reserved"),
            (put("Stentor-Event: stentor.x\r\n"), 400, "event_name_reserved"),
            (put("Cache-Control:\r\n"), 400, "cache_control_invalid"),
            (put("Content-Range: bytes 0-0/2\r\n"), 400, "partial_unsupported"),
            (put("Content-Encoding: gzip\r\n"), 400, "gzip_invalid"),
            (put("If-Match: *\r\nIf-None-Match: *\r\n"), 400, "condition_unsupported"),
            (put("Origin: https://a.example\r\n"), 403, "origin_not_allowed"),
            (request("PATCH /t", length, ""), 405, "method_not_allowed"),
            (put("If-Match: *\r\n"), 412, "precondition_failed"),
            (request("PUT /t", "Content-Length: 700001\r\n", ""), 413, "message_too_large"),
            (put("Content-Encoding: br\r\n"), 415, "encoding_unsupported"),
            (
                request("POST /-/publish", "Content-Length: 0\r\nContent-Type: image/png\r\n", ""),
                415,
                "media_type_unsupported",
            ),
        ],
        &mut seen,
    );
    assert_eq!(seen.len(), 15, "{seen:?}");
}

/// The codes of what there is no room or no server for.
#[test]
fn rejections_of_a_full_server_have_codes() {
    let put = |topic: &str| request(&format!("PUT {topic}"), "Content-Length: 1\r\n", "x");
    let stream = |topic: &str| request(&format!("GET {topic}?wait=60"), "", "");
    let mut seen = BTreeSet::new();
    let server = Server::with("", "[limits]\ntopics_max = 1\n", &["--workers", "1"]);
    server.publish("/a", "x");
    expect_codes(server.control, &[(put("/b"), 507, "topic_limit")], &mut seen);
    let mut held = server.reader();
    held.send(stream("/b"));
    server.settled("readers_long_poll", 1);
    expect_codes(server.public, &[(stream("/c"), 503, "subscriptions_full")], &mut seen);
    let server = Server::configured("limits.connections_per_address = 1\n");
    let mut first = server.reader();
    first.get("/a").refused(404);
    expect_codes(server.public, &[(stream("/a"), 429, "address_limit")], &mut seen);
    let leader = Server::start();
    let url = format!("http://{}", leader.control.0);
    let follower = Server::with("", "", &["--follow", &url]);
    follower.await_ready();
    expect_codes(follower.control, &[(put("/a"), 503, "not_leader")], &mut seen);
    assert_eq!(seen.len(), 4);
}

/// The codes of tokens.
#[test]
fn rejected_tokens_have_the_code_of_their_fault() {
    let signer = Signer::new(Algorithm::Es256);
    let dir = TempDir::new();
    let keys = dir.path().join("keys.json");
    fs::write(&keys, format!("{{\"keys\":[{}]}}", signer.jwk("k"))).unwrap();
    let jwt = format!("jwks_file = '{}'\naudience = 'us'\nissuer = 'it'\n", keys.display());
    let server = Server::configured(&format!("{}[jwt]\n{jwt}", access::config(NEVER, "")));
    let token = |claims: &str| bearer(&signer.token(Some("k"), claims));
    let claims = |exp: &str, audience: &str, issuer: &str, more: &str| {
        let all = r#""stentor":{"read":["/team/**"]}"#;
        token(&format!("{{{exp}\"aud\":\"{audience}\",\"iss\":\"{issuer}\",{more}{all}}}"))
    };
    let exp = "\"exp\":4102444800,";
    let get = |token: String| request("GET /team/a", &token, "");
    let mut seen = BTreeSet::new();
    expect_codes(
        server.public,
        &[
            (get(String::new()), 401, "token_required"),
            (request("PUT /other", "Content-Length: 0\r\n", ""), 401, "token_required"),
            (request("PUT /-/x", "Content-Length: 0\r\n", ""), 401, "token_required"),
            (get(bearer("x.y.z")), 401, "token_malformed"),
            (get(bearer(&"x".repeat(8_200))), 401, "token_too_large"),
            (get(bearer("stentor_unknown")), 401, "token_rejected"),
            (get(bearer("stentor_wide")), 401, "token_expired"),
            (get(bearer("stentor_writer")), 403, "token_insufficient"),
            (get(claims("", "us", "it", "")), 401, "token_exp_missing"),
            (get(claims("\"exp\":1,", "us", "it", "")), 401, "token_expired"),
            (get(claims(exp, "us", "it", "\"nbf\":4102444799,")), 401, "token_not_yet_valid"),
            (get(claims(exp, "them", "it", "")), 401, "token_audience_invalid"),
            (get(claims(exp, "us", "them", "")), 401, "token_issuer_invalid"),
            (get(claims("\"exp\":\"soon\",", "us", "it", "")), 401, "token_claims_invalid"),
        ],
        &mut seen,
    );
    server.publish("/team/a", "x");
    assert_eq!(answer_to(server.public, get(claims(exp, "us", "it", ""))).status, 200);
    assert_eq!(seen.len(), 11);
}

/// Browsers show the sentence; programs are sent JSON, and the code in any case.
#[test]
fn who_prefers_text_is_sent_the_sentence() {
    let server = Server::start();
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for (accept, is_text) in [
        (browser, true),
        ("text/plain", true),
        ("*/*", false),
        ("application/json", false),
        ("image/png", false),
    ] {
        let fields = format!("Accept: {accept}\r\n");
        for method in ["GET", "HEAD"] {
            let response = server.public.ask(method, "/none", &fields, b"").expect(404);
            assert_eq!(response.code(), "topic_not_found");
            let content_type = response.field("content-type").unwrap();
            assert_eq!(content_type.starts_with("text/plain"), is_text, "{accept}");
            assert_eq!(response.body.is_empty(), method == "HEAD");
            if is_text && method == "GET" {
                assert_eq!(response.text(), "Nothing has been published here.\n");
            }
        }
    }
}

#[test]
fn bulk_errors_have_the_code_of_their_line() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 100\ntopics_max = 1\n");
    let long = format!("{{\"topic\":\"/a\",\"data\":\"{}\"}}", "x".repeat(101));
    let endless = "x".repeat(50_000);
    let rows = [
        (r#"{"topic":"/a","data":1}"#, ""),
        ("x", "line_invalid"),
        (r#"["/a",1]"#, "line_invalid"),
        (r#"{"topic":"/a","data":1,"type":"text/plain"}"#, "line_invalid"),
        (r#"{"topic":"a","data":1}"#, "topic_invalid"),
        (r#"{"topic":"/a*","data":1}"#, "topic_invalid"),
        (r#"{"topic":"/-/a","data":1}"#, "topic_reserved"),
        (r#"{"topic":"/a","data":1,"type":"x"}"#, "content_type_invalid"),
        (r#"{"topic":"/a","data":1,"event":""}"#, "event_name_invalid"),
        (r#"{"topic":"/a","data":1,"event":"stentor"}"#, "event_name_reserved"),
        (r#"{"topic":"/a","data":1,"cache_control":""}"#, "cache_control_invalid"),
        (r#"{"topic":"/b","data":1}"#, "topic_limit"),
        (r#"{"topic":"/b","deleted":true}"#, "topic_not_found"),
        (r#"{"topic":"/a","data":1,"deleted":true}"#, "line_invalid"),
        (&long, "message_too_large"),
        (&endless, "line_too_long"),
        (r#"{"topic":"/a","id":"1","published_at":"2026-11-24T16:51:41Z","data":2}"#, ""),
        (r#"{"topic":"/a","deleted":true}"#, ""),
    ];
    let lines = rows.map(|(line, _)| line).join("\n");
    let report = server.control.post("/-/publish", lines.as_bytes()).expect(200).json();
    assert_eq!(report["published"], 3, "{report:#}");
    let mut errors = report["errors"].as_array().unwrap().iter();
    for (number, (line, code)) in rows.iter().enumerate().filter(|(_, row)| !row.1.is_empty()) {
        let error = errors.next().unwrap();
        let expected = json!({"line": number + 1, "code": code, "detail": error["detail"]});
        assert_eq!(*error, expected, "{line}");
        let detail = error["detail"].as_str().unwrap();
        assert!(detail.len() > 5 && !detail.contains("line 1 column"), "{detail}");
    }
    assert_eq!(errors.next(), None);
    server.public.get("/a").refused(404);
}

#[test]
fn info_says_what_the_server_is() {
    let toml = "[limits]\nmessage_bytes_max = 1000\nnames_max = 7\n[streams]\ntopics_max = 9\n\
                public_patterns = false\n";
    let mut server = Server::with("", toml, &["--monitor", "127.0.0.1:0"]);
    let monitor = Url(server.child.logged("monitor listener at ").parse().unwrap());
    let features = |url: Url| url.get("/-/info").expect(200).json()["features"].clone();
    let public = json!(["long_poll", "sse", "websocket"]);
    let control = json!(["bulk", "long_poll", "patterns", "sse", "websocket"]);
    assert_eq!((features(server.public), features(server.control)), (public, control));
    for url in [server.public, server.control, monitor] {
        let response = url.get("/-/info").expect(200);
        assert_eq!(response.field("content-type"), Some("application/json"));
        assert_eq!(response.field("cache-control"), Some("no-cache"));
        let info = response.json();
        let expected = json!({
            "name": "stentor", "version": env!("CARGO_PKG_VERSION"), "contract": "1.0",
            "features": info["features"],
            "limits": {
                "command_bytes": 65_536, "message_bytes": 1_000, "names": 7,
                "request_line_bytes": 16_384, "topics_per_stream": 9, "wait_seconds": 60,
            },
        });
        assert_eq!(info, expected);
        let fields = format!("If-None-Match: {}\r\n", response.tag());
        let known = url.ask("GET", "/-/info", &fields, b"").expect(304);
        assert_eq!(known.tag(), response.tag());
        url.ask("GET", "/-/info", "If-None-Match: \"x\"\r\n", b"").expect(200);
        assert!(url.ask("HEAD", "/-/info", "", b"").expect(200).body.is_empty());
    }
    let server = Server::configured("server_header = false\n");
    assert!(server.public.get("/-/info").expect(200).json().get("version").is_none());
}

#[test]
fn features_are_those_that_are_configured() {
    let lookup = "[[lookup]]\npath = '/list='\ntopics = '/{name}'\n";
    let server = Server::configured(&format!("{}{lookup}", access::config(NEVER, "")));
    let info = server.public.get("/-/info").expect(200).json();
    let all = ["bulk", "long_poll", "lookups", "patterns", "sse", "tokens", "websocket"];
    assert_eq!(info["features"], json!(all));
}

#[test]
fn each_command_has_one_reply() {
    let server = Server::start();
    let (a, b) = (server.publish("/a", "1"), server.publish("/b", "2"));
    let protocol = "Sec-WebSocket-Protocol: stentor.v1\r\n";
    let mut socket = WebSocket::open(server.public, "/-/events", protocol);
    let ask = |socket: &mut WebSocket, command: Value| {
        socket.send(TEXT, command.to_string());
        socket.json()
    };
    // A ping, with an id of any form and with none.
    assert_eq!(ask(&mut socket, json!({})), json!({"ok": {}}));
    for id in [json!(1), json!(-7), json!("a \"b\" é"), json!("")] {
        assert_eq!(ask(&mut socket, json!({"id": id})), json!({"ok": {"id": id}}));
    }
    // The reply comes behind all that the command brought.
    let first = ask(&mut socket, json!({"id": "s", "subscribe": ["/*", "/none"]}));
    assert_eq!((&first["id"], &socket.json()["id"]), (&json!(a), &json!(b)));
    assert_eq!(socket.json(), json!({"ok": {"id": "s", "cursor": b}}));
    assert_eq!(
        ask(&mut socket, json!({"id": 2, "subscribe": ["/other"]})),
        json!({"ok": {"id": 2, "cursor": b}})
    );
    assert_eq!(ask(&mut socket, json!({"id": 3, "unsubscribe": ["/*"]})), json!({"ok": {"id": 3}}));
    // A rejected command changes nothing: each has a part that is good.
    let codes = [
        (json!({"id": 4, "subscribe": ["/a", "a"]}), "topic_invalid"),
        (json!({"id": 4, "subscribe": ["/a"], "unsubscribe": ["/other", ""]}), "topic_invalid"),
        (json!({"id": 4, "unsubscribe": ["/other"], "subscribe": ["/b/**/c"]}), "pattern_invalid"),
        (json!({"id": 4, "subscribe": ["/a"], "since": "x"}), "cursor_invalid"),
        (json!({"id": 4, "subscribe": ["/a"], "token": "x"}), "token_rejected"),
        (json!({"id": 4, "subscribe": ["/a"], "ping": 1}), "command_invalid"),
    ];
    for (command, code) in codes {
        let told = ask(&mut socket, command.clone());
        let error = &told["error"];
        let status = if code.starts_with("token") { 401 } else { 400 };
        let expected = json!({"id": 4, "code": code, "status": status, "detail": error["detail"]});
        assert_eq!(told, json!({"error": expected}), "{command}");
    }
    server.publish("/a", "unheard");
    let id = server.publish("/other", "heard");
    assert_eq!(socket.json()["id"], json!(id));
    // Nothing old, and all that comes.
    assert_eq!(
        ask(&mut socket, json!({"id": 5, "subscribe": ["/a"], "since": "now"})),
        json!({"ok": {"id": 5, "cursor": id}})
    );
    server.publish("/a", "new");
    assert_eq!(socket.json()["data"], "new");
}

/// Values with their types, event names and directives, by topic.
fn values(server: &Server, count: usize) -> Vec<(Option<String>, Option<String>, Vec<u8>)> {
    let value = |n: usize| {
        let response = server.public.get(&format!("/v/{n}")).expect(200);
        let field = |name: &str| response.field(name).map(str::to_owned);
        (field("content-type"), field("stentor-event"), response.body.clone())
    };
    (0..count).map(value).collect()
}

/// Publishes values of each kind, and returns how many.
fn publish_each_kind(server: &Server) -> usize {
    let types = [
        "text/plain",
        "application/json",
        "application/geo+json; charset=utf-8",
        "image/png",
        "text/html; charset=utf-8",
    ];
    let bodies: [&[u8]; 9] = [
        b"",
        b"hello",
        b"\"a string\"",
        b" {\"a\": [1, 2.50, null,\r\n \"\\u00e9\"]}\n",
        b"null",
        b"\xff\x00",
        b"\"half",
        "é\u{2028}\u{1f600}\u{0}".as_bytes(),
        b"a\r\nb\n",
    ];
    let mut count = 0;
    for content_type in types {
        for body in bodies {
            let event = if count % 3 == 0 { "Stentor-Event: tick\r\n" } else { "" };
            let fields = format!("Content-Type: {content_type}\r\n{event}");
            server.control.ask("PUT", &format!("/v/{count}"), &fields, body).expect(201);
            count += 1;
        }
    }
    count
}

/// The same bytes, or the same JSON: its white space may differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    one == other || parsed(one).is_some() && parsed(one) == parsed(other)
}

#[track_caller]
fn expect_same(server: &Server, other: &Server, count: usize) {
    for (n, (one, two)) in values(server, count).iter().zip(values(other, count)).enumerate() {
        assert_eq!((&one.0, &one.1), (&two.0, &two.1), "/v/{n}");
        assert!(same(&one.2, &two.2), "/v/{n}: {one:?} {two:?}");
    }
}

#[test]
fn what_readers_are_sent_can_be_published() {
    let (server, by_poll, by_sse) = (Server::start(), Server::start(), Server::start());
    let count = publish_each_kind(&server);
    server.publish("/gone", "x");
    let since = server.publish("/gone", "y");
    server.control.ask("DELETE", "/gone", "", b"").expect(200);
    let publish = |to: &Server, lines: &str, published: usize| {
        let report = to.control.post("/-/publish", lines.as_bytes()).expect(200).json();
        assert_eq!(
            (&report["published"], &report["failed"]),
            (&json!(published), &json!(0)),
            "{report:#}"
        );
    };
    let told = server.public.get("/-/events?topic=/v/*").expect(200).json();
    let mut lines = String::new();
    for event in told["events"].as_array().unwrap() {
        writeln!(lines, "{event}").unwrap();
    }
    publish(&by_poll, &lines, count);
    let mut stream = EventStream::open(server.public, "/-/events?topic=/v/*", "");
    // A message object is one line of JSON Lines: a line break in it is white space.
    let line = |stream: &mut EventStream| stream.event().data.replace('\n', " ");
    let lines: Vec<String> = (0..count).map(|_| line(&mut stream)).collect();
    publish(&by_sse, &lines.join("\n"), count);
    expect_same(&server, &by_sse, count);
    expect_same(&server, &by_poll, count);
    // A deletion deletes.
    by_poll.publish("/gone", "z");
    let target = format!("/-/events?topic=/gone&since={since}");
    let deletion = server.public.get(&target).expect(200).json()["events"][0].to_string();
    publish(&by_poll, &deletion, 1);
    by_poll.public.get("/gone").refused(404);
}

/// Runs a command of the store to its good end, and returns what it prints.
#[track_caller]
fn store(command: &str, data: &std::path::Path, input: &str) -> String {
    let mut process = stentor(["store", command]);
    process.arg(data).stdin(Stdio::piped());
    let mut child = Child::spawn(&mut process);
    std::io::Write::write_all(&mut child.input(), input.as_bytes()).unwrap();
    let said = child.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    said.out
}

#[test]
fn an_export_can_be_published_and_imported() {
    let dir = TempDir::new();
    let [data, again] = ["data", "again"].map(|name| dir.path().join(name));
    let serve = |data: &std::path::Path| Server::with("", "", &["--data", data.to_str().unwrap()]);
    let server = serve(&data);
    let count = publish_each_kind(&server);
    server.publish("/gone", "x");
    server.control.ask("DELETE", "/gone", "", b"").expect(200);
    let published: Vec<Value> = (0..count)
        .map(|n| {
            let list = server.control.get(&format!("/-/topics?prefix=/v/{n}&limit=1")).json();
            list["topics"][0]["published_at"].clone()
        })
        .collect();
    let lines = store("export", &data, "");
    assert_eq!(lines.lines().count(), count + 1, "{lines}");
    for line in lines.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let at = object["published_at"].as_str().unwrap();
        assert!(at.ends_with('Z') && at.len() == 20, "{line}");
        let n = object["topic"].as_str().unwrap().strip_prefix("/v/");
        if let Some(n) = n.and_then(|n| n.parse::<usize>().ok()) {
            assert_eq!(object["published_at"], published[n]);
        }
    }
    store("import", &again, &lines);
    expect_same(&server, &serve(&again), count);
    let other = Server::start();
    other.publish("/gone", "x");
    // `last_seq` is of the store alone, and read by an import alone.
    let report = other.control.post("/-/publish", lines.as_bytes()).expect(200).json();
    assert_eq!(
        (&report["failed"], &report["published"]),
        (&json!(0), &json!(count + 1)),
        "{report:#}"
    );
    expect_same(&server, &other, count);
    eventually("it is deleted", || (other.public.get("/gone").status == 404).then_some(()));
}
