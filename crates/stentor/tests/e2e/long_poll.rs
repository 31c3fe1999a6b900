//! Long-polls: held until there is something new, in both forms, on one topic and on many.

use crate::support::{Client, Ending, Server};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Sends a request and waits until it is held.
#[track_caller]
fn hold(server: &Server, target: &str, fields: &str) -> Client {
    let held = server.figure("counters/readers_long_poll");
    let mut client = server.reader();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    server.settled("readers_long_poll", held + 1);
    client
}

#[test]
fn by_tag() {
    let server = Server::start();
    server.publish("/a", "one");
    let tag = server.public.get("/a").tag();
    let held = format!("Prefer: wait=25\r\nIf-None-Match: {tag}\r\n");
    let mut client = hold(&server, "/a", &held);
    let id = server.publish("/a", "two");
    let response = client.response().expect(200);
    assert_eq!((response.text(), response.tag()), ("two", format!("\"{id}\"")));
    // The connection goes on; what the client has not got comes at once.
    let response = client.ask("GET", "/a", &held, b"").expect(200);
    assert_eq!(response.text(), "two");
    server.settled("readers_long_poll", 0);
    // Another encoding of the same message is not new.
    let gzip = format!("{}.gz\"", response.tag().trim_end_matches('"'));
    for (wait, tag) in [("wait=1", response.tag()), ("respond-async, wait=1", gzip)] {
        let begin = Instant::now();
        let fields = format!("Prefer: {wait}\r\nIf-None-Match: {tag}\r\n");
        let response = client.ask("GET", "/a", &fields, b"").expect(304);
        assert!(response.body.is_empty());
        assert!(begin.elapsed() >= Duration::from_millis(900), "it was held");
    }
}

#[test]
fn by_cursor() {
    let server = Server::start();
    let first = server.publish("/a", "one");
    let target = format!("/a?wait=25&since={first}");
    let mut client = hold(&server, &target, "");
    server.publish("/b", "another topic");
    assert_eq!(server.figure("counters/readers_long_poll"), 1);
    server.publish("/a", "two");
    assert_eq!(client.response().expect(200).text(), "two");
    assert_eq!(client.get(&target).expect(200).text(), "two");
    let begin = Instant::now();
    let target = format!("/a?wait=1&since={}", client.get("/a").tag().trim_matches('"'));
    assert!(client.get(&target).expect(204).body.is_empty());
    assert!(begin.elapsed() >= Duration::from_millis(900), "it was held");
    // What is no time.
    for wait in ["", "soon", "-1", "1.5", "0x5"] {
        client.get(&format!("/a?wait={wait}&since={first}")).refused(400);
    }
    // What nobody can have seen is no reason to wait.
    for cursor in ["00000000-1", "5f3a09c1-999999999999999999"] {
        let target = format!("/a?wait=25&since={cursor}");
        assert_eq!(client.get(&target).expect(200).text(), "two", "{cursor}");
    }
    // A cursor without a time is an answer at once.
    assert_eq!(client.get(&format!("/a?since={first}")).expect(200).text(), "two");
    let newest = client.get("/a").tag();
    client.get(&format!("/a?since={}", newest.trim_matches('"'))).expect(204);
}

#[test]
fn a_topic_without_a_value_is_waited_for() {
    let server = Server::start();
    let mut by_cursor = hold(&server, "/new?wait=25", "");
    let mut by_preference = hold(&server, "/new", "Prefer: wait=25\r\n");
    server.publish("/new", "born");
    for client in [&mut by_cursor, &mut by_preference] {
        assert_eq!(client.response().expect(200).text(), "born");
    }
    for wait in 0..=1 {
        by_cursor.get(&format!("/none?wait={wait}")).expect(204);
    }
    let mut by_tag = server.reader();
    // One that goes while it is waited for.
    let tag = by_tag.get("/new").tag();
    let mut client = hold(&server, "/new", &format!("Prefer: wait=25\r\nIf-None-Match: {tag}\r\n"));
    server.control.ask("DELETE", "/new", "", b"").expect(200);
    client.response().refused(404);
}

#[test]
fn what_was_deleted_between_two_polls_is_told_at_once() {
    let server = Server::start();
    let since = server.publish("/a", "one");
    let tag = server.public.get("/a").tag();
    server.control.ask("DELETE", "/a", "", b"").expect(200);
    // Were one of them held, the next would not be answered in time.
    let mut client = server.reader();
    for tag in [&tag, "\"x\"", "*"] {
        let fields = format!("Prefer: wait=60\r\nIf-None-Match: {tag}\r\n");
        client.ask("GET", "/a", &fields, b"").refused(404);
    }
    for cursor in [&since, "00000000-1"] {
        client.get(&format!("/a?wait=60&since={cursor}")).refused(404);
        let fields = format!("Prefer: wait=60\r\nLast-Event-ID: {cursor}\r\n");
        client.ask("GET", "/a", &fields, b"").refused(404);
    }
    // Who names nothing waits for the first value, and so does who wants all there is.
    let mut waiting = hold(&server, "/a?wait=25", "");
    let mut earliest = hold(&server, "/a?wait=25&since=earliest", "");
    server.publish("/a", "again");
    assert_eq!(waiting.response().expect(200).text(), "again");
    assert_eq!(earliest.response().expect(200).text(), "again");
    assert_eq!(client.get("/a?wait=60&since=earliest").expect(200).text(), "again");
}

#[test]
fn no_time_is_up_at_once() {
    let server = Server::start();
    let first = server.publish("/a", "one");
    let newest = server.publish("/a", "two");
    let mut client = server.reader();
    assert!(client.get(&format!("/a?wait=0&since={newest}")).expect(204).body.is_empty());
    assert_eq!(client.get(&format!("/a?wait=0&since={first}")).expect(200).text(), "two");
    let fields = format!("Prefer: wait=0\r\nIf-None-Match: \"{newest}\"\r\n");
    client.ask("GET", "/a", &fields, b"").expect(304);
    server.settled("readers_long_poll", 0);
}

#[test]
fn preferences_in_several_lines_are_one_list() {
    let server = Server::start();
    let since = server.publish("/a", "one");
    let tag = format!("If-None-Match: \"x\"\r\nIf-None-Match: \"{since}\"\r\n");
    let fields = format!("Prefer: respond-async\r\nPrefer: wait=25\r\n{tag}");
    let mut client = hold(&server, "/a", &fields);
    server.publish("/a", "two");
    assert_eq!(client.response().expect(200).text(), "two");
}

#[test]
fn many_topics() {
    let server = Server::start();
    let first = server.publish("/q/a", "a1");
    server.publish("/q/b", "b1");
    let all = server.public.get("/-/events?topic=/q/*").expect(200);
    assert_eq!(all.field("content-type"), Some("application/json"));
    let data = |told: &Value| -> Vec<String> {
        let told = told["events"].as_array().expect("an array");
        told.iter().map(|one| one["data"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!((data(&all.json()), all.field("etag")), (vec!["a1".into(), "b1".into()], None));
    let target = format!("/-/events?topic=/q/*&wait=25&since={first}");
    let answer = server.public.get(&target).expect(200).json();
    assert_eq!(data(&answer), ["b1"]);
    let since = answer["cursor"].as_str().unwrap().to_owned();
    assert_eq!(answer["events"][0]["id"], since);
    let target = format!("/-/events?topic=/q/*&topic=/r&wait=25&since={since}");
    let mut client = hold(&server, &target, "");
    server.publish("/elsewhere", "x");
    let id = server.publish("/r", "r1");
    let told = client.response().expect(200).json();
    let message = json!({"topic": "/r", "id": id, "type": "text/plain", "data": "r1"});
    assert_eq!(told, json!({"events": [message], "cursor": id}));
    server.control.ask("DELETE", "/q/a", "", b"").expect(200);
    server.publish("/q/b", "b2");
    server.publish("/q/b", "b3");
    let target = format!("/-/events?topic=/q/*&wait=25&since={id}");
    let told = client.get(&target).expect(200).json();
    let deletion = &told["events"][0];
    let expected = json!({"topic": "/q/a", "id": deletion["id"], "deleted": true});
    assert_eq!(*deletion, expected, "{told}");
    assert_eq!(data(&told)[1..], ["b2", "b3"]);
    let told = client.get(&format!("{target}&mode=latest")).expect(200).json();
    assert_eq!(data(&told)[1..], ["b3"], "{told}");
    let since = told["cursor"].as_str().unwrap();
    for wait in ["&wait=1", ""] {
        let target = format!("/-/events?topic=/q/*{wait}&since={since}");
        let nothing = client.get(&target).expect(200);
        assert_eq!(nothing.json(), json!({"events": [], "cursor": since}));
        assert_eq!(
            (nothing.field("etag"), nothing.field("cache-control")),
            (None, Some("no-store"))
        );
    }
    let foreign = "00000000-1";
    let told = client.get(&format!("/-/events?topic=/q/*&since={foreign}")).expect(200).json();
    let gap = json!({"reason": "epoch_changed", "since": foreign, "resume": "values"});
    assert_eq!(told["events"][0], json!({"gap": gap}));
    assert_eq!(data(&told)[1..], ["b3"]);
}

#[test]
fn an_answer_is_bounded_and_goes_on_where_it_ended() {
    let server = Server::configured("[[topics]]\nmatch = '/**'\nhistory_bytes = '16MiB'\n");
    let mut since = server.publish("/a", "first");
    let text = "x".repeat(300_000);
    let ids: Vec<String> = (0..20).map(|_| server.publish("/a", &text)).collect();
    let mut heard = Vec::new();
    while heard.len() < ids.len() {
        let response = server.public.get(&format!("/-/events?topic=/a&wait=25&since={since}"));
        let response = response.expect(200);
        assert!(response.body.len() < 3 * 1024 * 1024, "{} bytes", response.body.len());
        let told = response.json();
        let events = told["events"].as_array().unwrap();
        heard.extend(events.iter().map(|told| told["id"].as_str().unwrap().to_owned()));
        since = told["cursor"].as_str().unwrap().to_owned();
        assert_eq!(heard.last(), Some(&since));
    }
    assert_eq!(heard, ids);
}

#[test]
fn what_comes_behind_a_held_request_waits_its_turn() {
    let server = Server::start();
    server.publish("/a", "one");
    let mut client = hold(
        &server,
        "/new?wait=25",
        "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /new HTTP/1.1\r\nHost: a\r\n",
    );
    server.publish("/new", "born");
    assert_eq!(client.response().expect(200).text(), "born");
    assert_eq!(client.response().expect(200).text(), "one");
    assert_eq!(client.response().expect(200).text(), "born");
    // More than is kept: the rest is not read before the answer.
    let mut client = hold(&server, "/newer?wait=25", "");
    let mut sender = client.sender();
    let requests = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20_000);
    let sending = std::thread::spawn(move || sender.send(requests));
    let memory_before = server.figure("memory_resident_bytes");
    server.publish("/newer", "born");
    assert_eq!(client.response().expect(200).text(), "born");
    for _ in 0..20_000 {
        assert_eq!(client.response().expect(200).text(), "one");
    }
    sending.join().unwrap();
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 32 * 1024 * 1024, "{memory} bytes more");
}

#[test]
fn clients_that_go_while_they_are_held_are_forgotten() {
    let server = Server::start();
    let gone: Vec<Client> = (0..10).map(|_| hold(&server, "/a?wait=60", "")).collect();
    drop(gone);
    server.settled("readers_long_poll", 0);
    let mut ended = hold(&server, "/a?wait=60", "");
    ended.finish();
    server.settled("readers_long_poll", 0);
    assert_eq!(ended.ending(), Ending::Closed);
    // Who asks to be closed afterwards is.
    let mut last = hold(&server, "/a?wait=60", "Connection: close\r\n");
    server.publish("/a", "one");
    let response = last.response().expect(200);
    assert_eq!((response.text(), response.field("connection")), ("one", Some("close")));
    assert_eq!(last.ending(), Ending::Closed);
}

#[test]
fn many_held_on_one_topic_are_all_answered() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..500).map(|_| server.reader()).collect();
    for client in &mut clients {
        client.send("GET /a?wait=60 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    server.settled("readers_long_poll", 500);
    let answer = server.control.put("/a", "text/plain", b"now").expect(201).json();
    assert_eq!(answer["readers"], 500);
    for client in &mut clients {
        assert_eq!(client.response().expect(200).text(), "now");
    }
    server.settled("readers_long_poll", 0);
}
