//! What is sent, by what it is: as it is counted, as it is foretold, and what can be left out.

use crate::support::{Response, Server, UPGRADE, eventually, run};
use serde_json::Value;
use std::fs;

/// The bytes of a head.
fn head_bytes(response: &Response) -> u64 {
    response.lines().map(|line| line.len() as u64).sum()
}

#[test]
fn heads_are_counted_as_they_were_sent() {
    let toml = "[cors]\norigins = 'http://a.example'\n[[lookup]]\npath = '/list='\n\
                topics = '/{name}'\nline = '{name}={value}'\n\
                [[topics]]\nmatch = '/bare'\nleave_out = ['last-modified', 'vary']\n";
    let root = crate::support::TempDir::new();
    fs::write(root.path().join("file.txt"), "small").unwrap();
    let flags = ["--workers", "2", "--root", root.path().to_str().unwrap()];
    let server = Server::with("", toml, &flags);
    let before = server.control.get("/-/status").expect(200);
    let counted = |status: &Value| status["counters"]["bytes_heads"].as_u64().unwrap();
    // The page was written before its own head was counted.
    let mut expected = counted(&before.json()) + head_bytes(&before);
    let publish = |topic: &str, body: &str| {
        server.control.put(topic, "text/plain", body.as_bytes()).expect(201)
    };
    for response in [publish("/a", "1"), publish("/bare", "2"), publish("/long", &"x".repeat(999))]
    {
        expected += head_bytes(&response);
    }
    let tag = server.public.get("/bare");
    expected += head_bytes(&tag);
    let unchanged = format!("If-None-Match: {}\r\n", tag.tag());
    let mut client = server.reader();
    for (method, target, fields) in [
        ("GET", "/a", ""),
        ("GET", "/a", "Origin: http://a.example\r\n"),
        ("GET", "/bare", &unchanged),
        ("GET", "/long", "Accept-Encoding: gzip\r\n"),
        ("GET", "/none", ""),
        ("OPTIONS", "/a", ""),
        ("GET", "/list=a,bare", ""),
        ("GET", "/-/values?topic=/a", ""),
        ("GET", "/file.txt", ""),
        ("GET", "/file.txt", ""),
        ("GET", "/file.txt", "Range: bytes=1-2\r\n"),
        ("GET", "/%", ""),
        ("POST", "/a", ""),
    ] {
        expected += head_bytes(&client.ask(method, target, fields, b""));
    }
    client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
    expected += head_bytes(&client.bodyless_response());
    expected += head_bytes(&client.open("/a", "Accept: text/event-stream\r\n"));
    expected += head_bytes(&server.reader().open("/a", UPGRADE).expect(101));

    let after = server.control.get("/-/status").expect(200).json();
    assert_eq!(counted(&after), expected);
    let metrics = server.control.get("/-/metrics").expect(200);
    assert!(metrics.text().contains("\nstentor_sent_bytes_total{kind=\"heads\"} "));
}

const ROUTES: &str = "[[lookup]]\npath = '/list='\ntopics = '/q/{name}'\n\
                      line = 'var hq_str_{name}=\"{value}\";'\n\
                      [[lookup]]\npath = '/a\"b='\ntopics = '/q/{name}'\n";

#[test]
fn look_ups_are_counted_by_route() {
    let mut server = Server::configured(ROUTES);
    server.publish("/q/a", "12.5");
    server.publish("/q/bc", "7");
    let route = |server: &Server, path: &str| {
        let status = server.control.get("/-/status").expect(200).json();
        let routes = status["lookups"].as_array().unwrap().clone();
        let route = routes.into_iter().find(|route| route["path"] == path);
        route.map(|route| ["requests", "names"].map(|figure| route[figure].as_u64().unwrap()))
    };
    assert_eq!(route(&server, "/list="), Some([0; 2]));
    let first = server.public.get("/list=a,bc").expect(200);
    assert_eq!(route(&server, "/list="), Some([1, 2]));
    let unchanged = format!("If-None-Match: {}\r\n", first.tag());
    server.public.ask("GET", "/list=a,bc", &unchanged, b"").expect(304);
    let mut client = server.reader();
    client.send("HEAD /list=a HTTP/1.1\r\nHost: a\r\n\r\n");
    client.bodyless_response().expect(200);
    assert_eq!(route(&server, "/list="), Some([3, 5]));
    server.public.get("/list=%22").refused(400);
    let json = server.public.get("/a\"b=a,none").expect(200);
    assert_eq!(json.text(), "{\"a\":\"12.5\",\"none\":null}");
    assert_eq!(route(&server, "/a\"b="), Some([1, 2]));
    server.public.get("/-/values?topic=/q/a").expect(200);
    assert_eq!(route(&server, "/-/values"), Some([1, 1]));
    assert_eq!(server.figure("counters/lookups"), 8);

    let metrics = server.control.get("/-/metrics").expect(200);
    for line in [
        "stentor_lookup_requests_total{route=\"/list=\"} 3",
        "stentor_lookup_names_total{route=\"/list=\"} 5",
        "stentor_lookup_names_total{route=\"/a\\\"b=\"} 2",
    ] {
        assert!(metrics.text().contains(&format!("\n{line}\n")), "{line}: {}", metrics.text());
    }
    let text = server.control.ask("GET", "/-/status", "Accept: text/plain\r\n", b"");
    for line in ["lookups.1.path: \"/list=\"", "lookups.1.requests: 3", "lookups.1.names: 5"] {
        assert!(text.text().lines().any(|other| other == line), "{line}: {}", text.text());
    }

    // A route that stays goes on counting; one that goes is gone; a new one begins.
    let file = server.dir.path().join("stentor.toml");
    let toml = "[[lookup]]\npath = '/new='\ntopics = '/q/{name}'\nleave_out = 'cache-control'\n";
    fs::write(&file, format!("{toml}{}", ROUTES.split("[[lookup]]\npath = '/a").next().unwrap()))
        .unwrap();
    server.child.signal("HUP");
    server.child.logged("reloaded");
    let bare = eventually("the new route is there", || {
        let response = server.public.get("/new=a");
        (response.status == 200).then_some(response)
    });
    assert_eq!(bare.field("cache-control"), None);
    assert!(bare.field("etag").is_some());
    eventually("all workers go by the new settings", || {
        route(&server, "/a\"b=").is_none().then_some(())
    });
    server.public.get("/list=a").expect(200);
    assert_eq!(route(&server, "/list="), Some([4, 6]));
    assert_eq!(route(&server, "/new=").unwrap()[1], 1);
}

#[test]
fn what_is_left_out_is_on_no_answer_of_a_value() {
    let toml = |leave_out: &str| {
        format!("[[topics]]\nmatch = '/bare/*'\nhistory = 1\nleave_out = {leave_out}\n")
    };
    let mut server = Server::configured(&toml("['last-modified', 'vary']"));
    server.publish("/bare/a", "1");
    server.publish("/full", "1");
    let is_bare = |response: &Response| {
        assert_eq!(response.field("last-modified"), None, "{response:?}");
        assert_eq!(response.field("vary"), None, "{response:?}");
        assert_eq!(response.field("cache-control"), Some("no-cache"));
    };
    let full = server.public.get("/full").expect(200);
    assert!(full.field("last-modified").is_some() && full.field("vary") == Some("Accept"));
    let first = server.public.get("/bare/a").expect(200);
    is_bare(&first);
    let unchanged = format!("If-None-Match: {}\r\n", first.tag());
    let mut client = server.reader();
    is_bare(&client.ask("GET", "/bare/a", &unchanged, b"").expect(304));
    is_bare(&client.get("/bare/a?wait=5").expect(200));
    is_bare(
        &client.ask("GET", "/bare/a", &format!("Prefer: wait=1\r\n{unchanged}"), b"").expect(304),
    );
    client.send("HEAD /bare/a HTTP/1.1\r\nHost: a\r\n\r\n");
    is_bare(&client.bodyless_response().expect(200));
    // A date is understood though it is not told.
    let later = "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n";
    client.ask("GET", "/bare/a", later, b"").expect_one_of(&[200, 304]);

    // What would be mixed up by a cache is told apart still.
    let long = "long ".repeat(200);
    server.control.put("/bare/a", "text/plain", long.as_bytes()).expect(200);
    let gzip = client.ask("GET", "/bare/a", "Accept-Encoding: gzip\r\n", b"").expect(200);
    assert_eq!(gzip.field("vary"), Some("Accept, Accept-Encoding"));
    let cached = "Content-Type: text/plain\r\nCache-Control: max-age=60\r\n";
    server.control.ask("PUT", "/bare/a", cached, b"3").expect(200);
    assert_eq!(client.get("/bare/a").field("vary"), Some("Accept"));

    // After a reload it holds for what is published from then on.
    let file = server.dir.path().join("stentor.toml");
    fs::write(&file, toml("'cache-control'")).unwrap();
    server.child.signal("HUP");
    server.child.logged("reloaded");
    server.publish("/bare/b", "4");
    let response = client.get("/bare/b").expect(200);
    assert_eq!((response.field("cache-control"), response.field("vary")), (None, Some("Accept")));
    assert!(response.field("last-modified").is_some());
    assert_eq!(client.get("/bare/a").field("last-modified"), None);
}

#[test]
fn streams_are_counted_by_what_they_are() {
    let server = Server::configured("[streams]\nheartbeat = 0\n");
    server.publish("/a", "0123456789");
    let mut reader = server.reader();
    reader.open("/a", "Accept: text/event-stream\r\n").expect(200);
    server.settled("deliveries", 1);
    server.publish("/a", "01234");
    server.settled("deliveries", 2);
    assert_eq!(server.figure("counters/bytes_streams_data"), 15);
    // "21\r\nid: 5f3a09c1-1\ndata: …\n\n\r\n", twice.
    assert_eq!(server.figure("counters/bytes_streams"), 15 + 2 * (4 + 15 + 6 + 2 + 2));
    let metrics = server.control.get("/-/metrics").expect(200);
    for line in ["part=\"data\"} 15", "part=\"framing\"} 58"] {
        assert!(metrics.text().contains(&format!("stentor_stream_bytes_total{{{line}\n")));
    }
}

#[test]
fn what_is_foretold_is_what_is_sent() {
    let server = Server::configured(ROUTES);
    for n in 1..=10 {
        server.publish(&format!("/q/sz{n:06}"), &"1".repeat(100));
    }
    let file = server.dir.path().join("stentor.toml");
    let file = file.to_str().unwrap();
    let said = run(&["check", file, "--cost", "--rate", "2000"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let names: Vec<String> = (1..=10).map(|n| format!("sz{n:06}")).collect();
    let answer = server.reader().get(&format!("/list={}", names.join(","))).expect(200);
    let table = said.out.split("/list=: an answer with 10 names").nth(1).unwrap();
    let all = answer.lines().map(str::len).sum::<usize>() + answer.body.len();
    let line = table.lines().find(|line| line.starts_with("  all ")).unwrap();
    let figures: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(figures[1..3], [&all.to_string(), "100.0"]);
    assert_eq!(figures[3], format!("{:.2}", all as f64 * 2000.0 * 8.0 / 1e6));
    assert_eq!(figures[4], format!("{:.1}", all as f64 * 2000.0 * 30.0 * 86_400.0 / 1e9));
    for bad in [["--rate", "5"], ["--cost", "--rate=0"], ["--cost", "--bytes=9999999"]] {
        assert_eq!(run(&["check", file, bad[0], bad[1]]).code, Some(2));
    }
}

#[test]
fn what_would_be_wrong_to_leave_out_is_refused() {
    let dir = crate::support::TempDir::new();
    let file = dir.path().join("stentor.toml");
    let rule = "[[topics]]\nmatch = '/a'\n";
    let lookup = "[[lookup]]\npath = '/l='\ntopics = '/{name}'\n";
    for (toml, reason) in [
        (format!("{rule}leave_out = 'date'\n"), "'date' cannot be left out"),
        (format!("{rule}leave_out = ['vary', 'cache-control']\n"), "cannot name both"),
        (format!("{rule}leave_out = 'vary'\ncache_control = 'max-age=1'\n"), "caches ask first"),
        (format!("{rule}leave_out = 'cache-control'\ncache_control = 'x'\n"), "only the default"),
        (format!("{lookup}leave_out = 'vary'\n"), "'vary' cannot be left out of look-ups"),
    ] {
        fs::write(&file, &toml).unwrap();
        let said = run(&["check", file.to_str().unwrap()]);
        assert_eq!(said.code, Some(2), "{toml}");
        assert!(said.err.contains(reason), "{}", said.err);
    }
    fs::write(&file, format!("{rule}leave_out = 'vary'\ncache_control = 'no-store'\n")).unwrap();
    assert_eq!(run(&["check", file.to_str().unwrap()]).code, Some(0));
}
