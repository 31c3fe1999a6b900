//! Publishing: one message, many messages, conditions, and what is refused.

use crate::support::{Ending, EventStream, Server, curl, tool};
use serde_json::json;
use std::process::Command;

#[test]
fn a_message_is_created_and_then_replaced() {
    let server = Server::start();
    for method in ["PUT", "POST"] {
        let topic = format!("/{method}");
        let mut ids = Vec::new();
        for status in [201, 200, 200] {
            let response = server.control.ask(method, &topic, "", b"x").expect(status);
            let receipt = response.json();
            let id = receipt["id"].as_str().expect("an id").to_owned();
            assert_eq!(response.tag(), format!("\"{id}\""));
            assert_eq!(receipt["readers"], 0);
            assert_eq!(server.public.get(&topic).tag(), response.tag());
            ids.push(id);
        }
        let seqs: Vec<u64> =
            ids.iter().map(|id| id.split_once('-').unwrap().1.parse().unwrap()).collect();
        assert!(seqs.windows(2).all(|two| two[0] < two[1]), "{ids:?}");
    }
}

#[test]
fn a_deleted_topic_is_gone_until_it_is_published_again() {
    let server = Server::start();
    server.control.ask("DELETE", "/a", "", b"").refused(404);
    server.control.put("/a", "text/plain", b"1").expect(201);
    let mut stream = EventStream::open(server.public, "/a", "");
    stream.event();
    let deleted = server.control.ask("DELETE", "/a", "", b"").expect(200);
    let told = stream.event();
    assert_eq!(deleted.json(), json!({"id": told.id.unwrap(), "readers": 1}));
    assert_eq!(
        (deleted.field("etag"), deleted.field("content-type")),
        (None, Some("application/json"))
    );
    server.public.get("/a").refused(404);
    server.control.ask("DELETE", "/a", "", b"").refused(404);
    server.control.put("/a", "text/plain", b"2").expect(201);
    assert_eq!(server.public.get("/a").text(), "2");
}

#[test]
fn a_part_is_not_taken_for_the_whole() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"0123456789").expect(201);
    for method in ["PUT", "POST"] {
        for range in ["bytes 2-4/10", "bytes 0-2/3", "bytes */3", "x", ""] {
            let fields = format!("Content-Range: {range}\r\n");
            server.control.ask(method, "/a", &fields, b"abc").refused(400);
        }
    }
    assert_eq!(server.public.get("/a").text(), "0123456789");
    // Where no message is taken it means nothing.
    server.public.ask("GET", "/a", "Content-Range: bytes 0-2/3\r\n", b"").expect(200);
}

#[test]
fn optimistic_writers_do_not_overwrite_each_other() {
    let server = Server::start();
    let put = |fields: &str, body: &str| {
        server.control.ask("PUT", "/a", &format!("{fields}\r\n"), body.as_bytes())
    };
    put("If-Match: *", "0").refused(412);
    put("If-Match: \"x\"", "0").refused(412);
    server.public.get("/a").refused(404);
    let first = put("If-None-Match: *", "1").expect(201).tag();
    put("If-None-Match: *", "2").refused(412);
    put("If-None-Match: *\r\nIf-None-Match: *", "2").refused(412);
    assert_eq!(server.public.get("/a").text(), "1");
    let second = put(&format!("If-Match: {first}"), "2").expect(200).tag();
    put(&format!("If-Match: {first}"), "3").refused(412);
    put(&format!("If-Match: {first}\r\nIf-Match: {second}"), "3").expect(200);
    put("If-Match: *", "4").expect(200);
    assert_eq!(server.public.get("/a").text(), "4");
    let delete = |fields: &str| server.control.ask("DELETE", "/a", &format!("{fields}\r\n"), b"");
    delete(&format!("If-Match: {second}")).refused(412);
    server.public.get("/a").expect(200);
    let current = server.public.get("/a").tag();
    delete(&format!("If-Match: {current}")).expect(200);
    delete("If-Match: *").expect_one_of(&[404, 412]);
}

#[test]
fn two_writers_with_the_same_condition_do_not_both_win() {
    let server = Server::start();
    for round in 0..50 {
        let topic = format!("/race/{round}");
        let mut clients = [server.publisher(), server.publisher(), server.publisher()];
        for client in &mut clients {
            client.send(format!(
                "PUT {topic} HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nContent-Length: 1\r\n\r\n"
            ));
        }
        for client in &mut clients {
            client.send("x");
        }
        let mut statuses = clients.each_mut().map(|client| client.response().status);
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 412, 412]);
    }
}

#[test]
fn a_refused_publish_changes_nothing() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 100\ntopics_max = 2\n");
    server.control.put("/a", "text/plain", b"before").expect(201);
    server.control.put("/b", "text/plain", b"before").expect(201);
    let before = server.public.get("/a").tag();
    for (fields, status) in [
        ("Content-Type: nonsense\r\n", 400),
        ("Content-Type: text/\u{e9}\r\n", 400),
        ("Stentor-Event:\r\n", 400),
        ("Content-Encoding: deflate\r\n", 415),
        ("Content-Encoding: gzip\r\n", 400),
        ("If-Match: \"x\"\r\n", 412),
        ("If-None-Match: *\r\n", 412),
        ("Origin: null\r\n", 403),
    ] {
        server.control.ask("PUT", "/a", fields, b"after").refused(status);
    }
    server.control.put("/a", "text/plain", &[b'x'; 101]).refused(413);
    server.control.put("/c", "text/plain", b"after").refused(507);
    assert_eq!(server.public.get("/a").tag(), before);
    assert_eq!(server.figure("topics"), 2);
    // There is room again.
    server.control.ask("DELETE", "/b", "", b"").expect(200);
    server.control.put("/c", "text/plain", b"after").expect(201);
}

#[test]
fn a_stream_of_lines() {
    let server = Server::start();
    let lines = concat!(
        "{\"topic\":\"/a\",\"data\":\"text \\u00e9\"}\n",
        "{\"topic\":\"/b\",\"data\":{\"n\": 1}}\r\n",
        "\n",
        "   \n",
        "{\"topic\":\"/c\",\"data\":\"<b>\",\"type\":\"text/html\",\"event\":\"tick\"}\n",
        "{\"topic\":\"/d\",\"data\":null}",
    );
    let report = server.control.post("/-/publish", lines.as_bytes()).expect(200).json();
    assert_eq!(report["published"], 4);
    assert_eq!(report["failed"], 0);
    assert_eq!(report["errors"], json!([]));
    let last = format!("\"{}\"", report["last_id"].as_str().unwrap());
    for (topic, kind, value) in [
        ("/a", "text/plain; charset=utf-8", "text é"),
        ("/b", "application/json", "{\"n\": 1}"),
        ("/c", "text/html", "<b>"),
        ("/d", "application/json", "null"),
    ] {
        let response = server.public.get(topic).expect(200);
        assert_eq!((response.field("content-type"), response.text()), (Some(kind), value));
    }
    assert_eq!(server.public.get("/d").tag(), last);
}

#[test]
fn bad_lines_are_named_and_the_good_ones_count() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 1000\n");
    let long = format!("{{\"topic\":\"/x\",\"data\":\"{}\"}}", "x".repeat(1001));
    let endless = "x".repeat(50_000);
    let lines = [
        "{\"topic\":\"/good\",\"data\":1}",                      // 1
        "not json",                                              // 2
        "{\"topic\":\"/x\"}",                                    // 3: no data
        "{\"data\":1}",                                          // 4: no topic
        "{\"topic\":\"/x\",\"data\":1,\"tpye\":\"text/plain\"}", // 5: unknown
        "{\"topic\":\"x\",\"data\":1}",                          // 6: no path
        "{\"topic\":\"/-/x\",\"data\":1}",                       // 7: reserved
        &long,                                                   // 8: too long
        &endless,                                                // 9: far too long
        "{\"topic\":\"/x\",\"data\":1,\"type\":\"text/plain\\r\\nX: y\"}", // 10
        "{\"topic\":\"/x\",\"data\":1,\"event\":\"a\\nb\"}",     // 11
        "{\"topic\":\"/x\",\"data\":1} {\"topic\":\"/x\",\"data\":1}", // 12: two
        "[\"/x\",1]",                                            // 13
        "{\"topic\":\"/x\",\"data\":\"\\ud800\"}",               // 14
        "",                                                      // 15: passed over
        "{\"topic\":\"/good\",\"data\":2}",                      // 16
        "no more json",                                          // 17
    ];
    let report = server.control.post("/-/publish", lines.join("\n").as_bytes()).expect(200).json();
    assert_eq!(report["published"], 2, "{report:#}");
    assert_eq!(report["failed"], 14);
    let told: Vec<u64> = report["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            assert!(error["detail"].as_str().is_some_and(|reason| reason.len() > 5));
            error["line"].as_u64().unwrap()
        })
        .collect();
    assert!(told.into_iter().eq((2..=14).chain([17])), "{report:#}");
    assert_eq!(server.public.get("/good").text(), "2");
    server.public.get("/x").refused(404);
}

/// Editors of Windows begin a file so.
#[test]
fn a_byte_order_mark_does_no_harm() {
    let server = Server::start();
    let lines = "\u{feff}{\"topic\":\"/a\",\"data\":1}\n{\"topic\":\"/a\",\"data\":\"\\ud83d\"}\n";
    let report = server.control.ask("POST", "/-/publish", "", lines.as_bytes()).expect(200).json();
    assert_eq!(report["published"], 1);
    let reason = "A string has \\ud83d, half of a surrogate pair: write both halves.";
    assert_eq!(report["errors"], json!([{"line": 2, "code": "line_invalid", "detail": reason}]));
    let json = "\u{feff}{\"b\":2}".as_bytes();
    server.control.put("/b", "application/json", json).expect(201);
    assert_eq!(server.public.get("/b").text(), "{\"b\":2}");
    let values = server.public.get("/-/values?topic=/b").expect(200);
    assert!(values.text().contains("{\"b\":2}"), "{values:?}");
}

#[test]
fn a_line_may_bring_bytes() {
    let server = Server::start();
    let lines = "{\"topic\":\"/a\",\"data_base64\":\"/wA=\"}\n\
                 {\"topic\":\"/a\",\"data_base64\":\"/wA\"}\n\
                 {\"topic\":\"/a\",\"data\":1,\"data_base64\":\"/wA=\"}\n{\"topic\":\"/a\"}\n";
    let report = server.control.ask("POST", "/-/publish", "", lines.as_bytes()).expect(200).json();
    assert_eq!((&report["published"], &report["failed"]), (&json!(1), &json!(3)), "{report}");
    let value = server.public.get("/a").expect(200);
    assert_eq!(value.body, b"\xff\0");
    assert_eq!(value.field("content-type"), Some("application/octet-stream"));
}

#[test]
fn a_stream_counts_line_by_line_while_it_runs() {
    let server = Server::start();
    let mut client = server.publisher();
    client.send("POST /-/publish HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for i in 0..10 {
        let line = format!("{{\"topic\":\"/a\",\"data\":{i}}}\n");
        // Chunks need not end where lines do.
        let (one, two) = line.split_at(7);
        client.send(format!("{:x}\r\n{one}\r\n", one.len()));
        client.send(format!("{:x}\r\n{two}\r\n", two.len()));
        crate::support::eventually("the line is published before the stream ends", || {
            (server.public.get("/a").body == i.to_string().as_bytes()).then_some(())
        });
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().expect(200).json()["published"], 10);
    // The connection goes on.
    client.get("/a").expect(200);
}

#[test]
fn a_stream_that_breaks_off_keeps_its_whole_lines() {
    let server = Server::start();
    let mut client = server.publisher();
    client.send("POST /-/publish HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    client.send("{\"topic\":\"/a\",\"data\":1}\n{\"topic\":\"/b\",\"data\":1}");
    client.finish();
    assert_eq!(client.ending(), Ending::Closed);
    server.public.get("/a").expect(200);
    server.public.get("/b").refused(404);
}

#[test]
fn many_lines_from_many_connections() {
    let server = Server::start();
    let lines = |publisher: usize| -> String {
        let line = |i: usize| format!("{{\"topic\":\"/{publisher}/{}\",\"data\":{i}}}\n", i % 100);
        (0..20_000).map(line).collect()
    };
    std::thread::scope(|scope| {
        for publisher in 0..3 {
            let (server, body) = (&server, lines(publisher));
            scope.spawn(move || {
                let report = server.control.post("/-/publish", body.as_bytes()).expect(200).json();
                assert_eq!(report["published"], 20_000);
            });
        }
    });
    for publisher in 0..3 {
        assert_eq!(server.public.get(&format!("/{publisher}/99")).text(), "19999");
    }
    assert_eq!(server.figure("topics"), 300);
    assert_eq!(server.figure("messages_published"), 60_000);
}

#[test]
fn lines_must_not_be_encoded() {
    let server = Server::start();
    let fields = "Content-Encoding: gzip\r\n";
    server.control.ask("POST", "/-/publish", fields, b"x").refused(415);
    let empty = server.control.post("/-/publish", b"").expect(200).json();
    assert_eq!((&empty["published"], &empty["last_id"]), (&json!(0), &json!(null)));
}

#[test]
fn rules_say_how_topics_are_kept() {
    let server = Server::configured(
        "[[topics]]\nmatch = '/quotes/*'\nhistory = 1\ncache_control = 'max-age=1'\n\
         [[topics]]\nmatch = '/log/**'\nhistory = 3\n",
    );
    for i in 0..10 {
        for topic in ["/quotes/a", "/log/a/b", "/other"] {
            server.control.put(topic, "text/plain", i.to_string().as_bytes());
        }
    }
    assert_eq!(server.public.get("/quotes/a").field("cache-control"), Some("max-age=1"));
    assert_eq!(server.public.get("/log/a/b").field("cache-control"), Some("no-cache"));
    let topics = server.control.get("/-/topics").expect(200).json();
    let kept: Vec<u64> = topics["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["history_messages"].as_u64().unwrap())
        .collect();
    assert_eq!(kept, [3, 10, 1], "{topics:#}");
    assert_eq!(server.figure("messages_kept"), 14);
}

const TYPED: &str = "[[topics]]\nmatch = '/plain/*'\nhistory = 1\n[[topics]]\nmatch = '/**'\n\
                     content_type = 'application/json'\n";

#[test]
fn a_rule_names_the_type_of_what_comes_without_one() {
    let server = Server::configured(TYPED);
    let types = |topic: &str, expected: &[(&str, &str)]| {
        for (said, told) in expected {
            let fields =
                if said.is_empty() { String::new() } else { format!("Content-Type: {said}\r\n") };
            server.control.ask("PUT", topic, &fields, b"{}").expect_one_of(&[200, 201]);
            let response = server.public.get(topic).expect(200);
            assert_eq!(response.field("content-type"), Some(*told), "{topic} {said}");
        }
    };
    let json = "application/json";
    types(
        "/a/b",
        &[
            ("", json),
            ("application/x-www-form-urlencoded", json),
            ("Application/X-WWW-Form-Urlencoded ; charset=UTF-8", json),
            ("text/plain;charset=UTF-8", json),
            ("text/plain", json),
            // What nobody says unasked is what the publisher means.
            ("text/html", "text/html"),
            ("text/plainer", "text/plainer"),
            ("application/octet-stream", "application/octet-stream"),
        ],
    );
    // The first rule that matches decides, though it names none.
    let form = "application/x-www-form-urlencoded";
    types(
        "/plain/x",
        &[("", "application/octet-stream"), (form, form), ("text/plain", "text/plain")],
    );
    let lines = [
        r#"{"topic":"/l/string","data":"{}"}"#,
        r#"{"topic":"/l/number","data":7}"#,
        r#"{"topic":"/l/typed","data":"x","type":"text/plain"}"#,
        r#"{"topic":"/plain/string","data":"x"}"#,
    ];
    server.control.post("/-/publish", lines.join("\n").as_bytes()).expect(200);
    for (topic, told) in [
        ("/l/string", json),
        ("/l/number", json),
        ("/l/typed", "text/plain"),
        ("/plain/string", "text/plain; charset=utf-8"),
    ] {
        let response = server.public.get(topic).expect(200);
        assert_eq!(response.field("content-type"), Some(told), "{topic}");
    }
}

/// What clients say of a body when nobody told them what it is.
#[test]
fn clients_that_say_nothing_of_a_type_publish_what_the_rule_says() {
    let server = Server::configured(TYPED);
    let url = |topic: &str| format!("http://{}{topic}", server.control.0);
    let told = |topic: &str| {
        let response = server.public.get(topic).expect(200);
        assert_eq!(response.field("content-type"), Some("application/json"), "{topic}");
        assert_eq!(response.text(), "{\"n\":1}");
    };
    if let Some(output) = curl(&["-d", "{\"n\":1}", "-X", "PUT", &url("/curl")]) {
        assert!(output.status.success(), "{output:?}");
        told("/curl");
    }
    let fetch = format!("await fetch('{}', {{method: 'PUT', body: '{{\"n\":1}}'}})", url("/fetch"));
    let urllib = format!(
        "import urllib.request as r; r.urlopen(r.Request('{}', b'{{\"n\":1}}', method='PUT'))",
        url("/urllib")
    );
    for (program, args, topic) in [
        ("node", ["--input-type=module", "-e", &fetch], "/fetch"),
        ("python3", ["-I", "-c", &urllib], "/urllib"),
    ] {
        let Some(program) = tool(program) else { continue };
        let output = Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        told(topic);
    }
}
