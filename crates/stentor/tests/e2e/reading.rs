//! Values: what a reader gets, when nothing has changed, and which pages may read.

use crate::support::{EventStream, Server, Url};

#[test]
fn a_value_as_it_was_published() {
    let server = Server::start();
    server.public.get("/scores/lal-bos").refused(404);
    let fields = "Content-Type: application/json\r\nCache-Control: max-age=5\r\n";
    server.control.ask("PUT", "/scores/lal-bos", fields, b"[101,99]").expect(201);
    for url in [server.public, server.control] {
        let response = url.get("/scores/lal-bos").expect(200);
        assert_eq!(response.body, b"[101,99]");
        assert_eq!(response.field("content-type"), Some("application/json"));
        assert_eq!(response.field("cache-control"), Some("max-age=5"));
        assert_eq!(response.field("content-length"), Some("8"));
        assert!(response.field("last-modified").is_some_and(|date| date.ends_with(" GMT")));
        assert!(response.tag().starts_with('"') && response.tag().ends_with("-1\""));
    }
}

#[test]
fn what_a_publisher_leaves_out_has_a_default() {
    let server = Server::start();
    server.control.ask("PUT", "/a", "", b"\x00\xff").expect(201);
    let response = server.public.get("/a").expect(200);
    assert_eq!(response.field("content-type"), Some("application/octet-stream"));
    assert_eq!(response.field("cache-control"), Some("no-cache"));
    assert_eq!(response.body, b"\x00\xff");
    server.control.put("/empty", "text/plain", b"").expect(201);
    assert_eq!(server.public.get("/empty").expect(200).field("content-length"), Some("0"));
}

#[test]
fn topics_are_decoded_once() {
    let server = Server::start();
    server.control.put("/caf%C3%A9/a%20b", "text/plain", b"1").expect(201);
    server.public.get("/caf%c3%a9/%61%20b").expect(200);
    server.control.put("/p%252e", "text/plain", b"2").expect(201);
    server.public.get("/p%2e").refused(404);
    assert_eq!(server.public.get("/p%25%32%65").expect(200).text(), "2");
    // A query is not part of a topic's name.
    server.public.get("/p%252e?cache=1").expect(200);
}

#[test]
fn names_that_no_topic_can_have() {
    let server = Server::start();
    let long = format!("/{}", "x".repeat(512));
    for target in [
        "/",
        "//",
        "/a//b",
        "/a/",
        "/.",
        "/a/..",
        "/a/../b",
        "/%2e%2e/b",
        "/a%00b",
        "/a%0ab",
        "/%ff",
        "/%zz",
        "/%4",
        "/.well-known/a",
        &long,
    ] {
        server.public.get(target).refused(400);
        server.control.get(target).refused(400);
        server.control.put(target, "text/plain", b"x").refused(400);
        server.control.ask("DELETE", target, "", b"").refused(400);
    }
    assert_eq!(server.figure("topics"), 0);
    let longest = format!("/{}", "x".repeat(511));
    server.control.put(&longest, "text/plain", b"x").expect(201);
    server.public.get(&longest).expect(200);
    // A refused read does not cost the connection.
    let mut client = server.reader();
    client.get("/a//b").refused(400);
    client.get(&longest).expect(200);
}

#[test]
fn what_is_unchanged_is_not_sent_again() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"one").expect(201);
    let first = server.public.get("/a").expect(200);
    let tag = first.tag();
    let bare = tag.trim_matches('"');
    let date = first.field("last-modified").unwrap();
    for fields in [
        format!("If-None-Match: {tag}\r\n"),
        format!("If-None-Match: W/{tag}\r\n"),
        format!("If-None-Match: {bare}\r\n"),
        format!("If-None-Match: \"{bare}.gz\"\r\n"),
        format!("If-None-Match: \"{bare}.br\"\r\n"),
        format!("If-None-Match: \"x\", {tag}, \"y\"\r\n"),
        "If-None-Match: *\r\n".to_owned(),
        format!("If-Modified-Since: {date}\r\n"),
        format!("If-None-Match: {tag}\r\nIf-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
    ] {
        let response = server.public.ask("GET", "/a", &fields, b"").expect(304);
        assert_eq!(response.tag(), tag, "{fields}");
        assert_eq!(response.field("cache-control"), Some("no-cache"));
        assert_eq!(response.field("content-length"), None);
    }
    for fields in [
        format!("If-None-Match: \"{bare}0\"\r\n"),
        format!("If-None-Match: \"{bare}.exe\"\r\n"),
        "If-None-Match: \"\"\r\n".to_owned(),
        "If-Modified-Since: Tue, 31 Dec 2999 23:59:59 GMT\r\n".to_owned(),
        "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(),
        "If-Modified-Since: yesterday\r\n".to_owned(),
        format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"),
    ] {
        let response = server.public.ask("GET", "/a", &fields, b"");
        assert_eq!((response.status, response.text()), (200, "one"), "{fields}");
    }
    server.control.put("/a", "text/plain", b"two").expect(200);
    let fields = format!("If-None-Match: {tag}\r\n");
    assert_eq!(server.public.ask("GET", "/a", &fields, b"").expect(200).text(), "two");
}

#[test]
fn a_read_may_insist_on_a_value() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"one").expect(201);
    let tag = server.public.get("/a").tag();
    let read = |fields: &str| server.public.ask("GET", "/a", fields, b"").status;
    assert_eq!(read(&format!("If-Match: {tag}\r\n")), 200);
    assert_eq!(read("If-Match: *\r\n"), 200);
    assert_eq!(read("If-Match: \"other\"\r\n"), 412);
    assert_eq!(read("If-Unmodified-Since: Tue, 31 Dec 2999 23:59:59 GMT\r\n"), 200);
    assert_eq!(read("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), 412);
}

/// What a page of this origin is told; "" where nothing is said of origins.
fn allowed(url: Url, target: &str, origin: &str) -> String {
    let response = url.ask("GET", target, &format!("Origin: {origin}\r\n"), b"");
    assert_eq!(response.field("access-control-allow-credentials"), None);
    response.field("access-control-allow-origin").unwrap_or_default().to_owned()
}

#[test]
fn by_default_no_page_of_another_origin_may_read() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"1").expect(201);
    assert_eq!(allowed(server.public, "/a", "https://example.com"), "");
    assert_eq!(allowed(server.control, "/a", "https://example.com"), "");
    // The answer may be a stream of events instead; it does not depend on who asks.
    assert_eq!(server.public.get("/a").field("vary"), Some("Accept"));
    let fields = "Origin: https://example.com\r\nAccess-Control-Request-Method: GET\r\n";
    let preflight = server.public.ask("OPTIONS", "/a", fields, b"").expect(204);
    assert_eq!(preflight.field("access-control-allow-origin"), None);
    assert_eq!(preflight.field("access-control-allow-methods"), None);
}

#[test]
fn pages_of_listed_origins_may_read() {
    let origins = "[cors]\norigins = ['https://example.com', 'http://localhost:3000']\n";
    let server = Server::configured(origins);
    server.control.put("/a", "text/plain", b"1").expect(201);
    for target in ["/a", "/none", "/-/values?topic=/a", "/a//b"] {
        for origin in ["https://example.com", "http://localhost:3000"] {
            assert_eq!(allowed(server.public, target, origin), origin, "{target}");
        }
        for origin in ["https://example.com.evil", "http://example.com", "null", "*", ""] {
            assert_eq!(allowed(server.public, target, origin), "", "{target} {origin}");
        }
    }
    // Caches must know that answers differ, asked by a page or not.
    for fields in ["", "Origin: https://example.com\r\n", "Origin: https://evil\r\n"] {
        let response = server.public.ask("GET", "/a", fields, b"").expect(200);
        assert_eq!(response.list("vary"), ["Origin", "Accept"], "{fields}");
    }
    let response = server.public.ask("GET", "/a", "Origin: https://example.com\r\n", b"");
    let exposed = [
        "Content-Range",
        "ETag",
        "Location",
        "Retry-After",
        "Stentor-Error",
        "Stentor-Event",
        "Stentor-Heartbeat",
        "Stentor-Stale",
        "WWW-Authenticate",
    ];
    assert_eq!(response.list("access-control-expose-headers"), exposed);
    // A page may read the public listener; the control listener is not its business.
    assert_eq!(allowed(server.control, "/a", "https://example.com"), "");
}

#[test]
fn a_page_may_ask_before_it_reads() {
    let server = Server::configured("[cors]\norigins = 'https://example.com'\n");
    let fields = "Origin: https://example.com\r\nAccess-Control-Request-Method: GET\r\n\
                  Access-Control-Request-Headers: if-none-match, traceparent\r\n";
    let preflight = server.public.ask("OPTIONS", "/a", fields, b"").expect(204);
    let field = |name: &str| preflight.field(name).unwrap_or_default().to_owned();
    assert_eq!(field("access-control-allow-origin"), "https://example.com");
    assert_eq!(field("access-control-allow-methods"), "GET, HEAD, OPTIONS");
    // Tracers and libraries add fields of their own.
    assert_eq!(field("access-control-allow-headers"), "if-none-match, traceparent");
    assert_eq!(field("access-control-allow-credentials"), "");
    assert!(field("access-control-max-age").parse::<u32>().is_ok());
    let fields = fields.replace("example.com", "evil.example");
    let preflight = server.public.ask("OPTIONS", "/a", &fields, b"").expect(204);
    assert_eq!(preflight.field("access-control-allow-origin"), None);
}

#[test]
fn listed_pages_may_send_credentials_if_settings_allow() {
    let server =
        Server::configured("[cors]\norigins = 'https://Example.com:443'\ncredentials = true\n");
    server.control.put("/a", "text/plain", b"1").expect(201);
    let response = server.public.ask("GET", "/a", "Origin: https://example.com\r\n", b"");
    assert_eq!(response.field("access-control-allow-origin"), Some("https://example.com"));
    assert_eq!(response.field("access-control-allow-credentials"), Some("true"));
    let foreign = server.public.ask("GET", "/a", "Origin: https://example.org\r\n", b"");
    assert_eq!(foreign.field("access-control-allow-credentials"), None);
}

#[test]
fn cursors_and_tags_come_as_clients_have_them() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"1").expect(201);
    let tag = server.public.get("/a").tag();
    let id = tag.trim_matches('"');
    server.control.put("/a", "text/plain", b"2").expect(200);
    for name in ["since", "last_event_id", "lastEventId", "lastEventID", "Last-Event-ID"] {
        for cursor in [id.to_owned(), format!("W/%22{id}-gzip%22"), format!("{id};gzip")] {
            for path in ["/a?", "/-/events?topic[]=/a&_=17&"] {
                let target = format!("{path}{name}={cursor}");
                let mut stream = EventStream::open(server.public, &target, "");
                let event = stream.event();
                assert!(event.name.is_none() && event.data.contains('2'), "{target}: {event:?}");
            }
        }
    }
    let tag = server.public.get("/a").tag();
    for suffix in ["-gzip", "--gzip", ";gzip", ":br"] {
        let tag = tag.replace(['"'], "");
        for tag in [format!("W/\"{tag}{suffix}\""), format!("{tag}{suffix}")] {
            let fields = format!("If-None-Match: {tag}\r\n");
            server.public.ask("GET", "/a", &fields, b"").expect(304);
        }
    }
}

#[test]
fn every_page_may_read_but_without_credentials() {
    let server = Server::configured("[cors]\norigins = '*'\n");
    server.control.put("/a", "text/plain", b"1").expect(201);
    assert_eq!(allowed(server.public, "/a", "https://example.com"), "*");
    assert_eq!(allowed(server.public, "/a", "null"), "*");
    // The answer may be a stream of events instead; it does not depend on who asks.
    assert_eq!(server.public.get("/a").field("vary"), Some("Accept"));
}

#[test]
fn no_page_may_publish() {
    for origins in ["", "[cors]\norigins = '*'\n", "[cors]\norigins = 'https://example.com'\n"] {
        let server = Server::configured(origins);
        let origin = "Origin: https://example.com\r\n";
        server.control.put("/b", "text/plain", b"1").expect(201);
        for (method, target) in
            [("PUT", "/a"), ("POST", "/a"), ("POST", "/-/publish"), ("DELETE", "/b")]
        {
            server.control.ask(method, target, origin, b"").refused(403);
        }
        server.public.get("/a").refused(404);
        server.public.get("/b").expect(200);
    }
}
