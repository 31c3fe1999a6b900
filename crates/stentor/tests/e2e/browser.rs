//! Streams in a real browser: its own `EventSource` and `WebSocket`, which nobody here has written.

use crate::support::{Browser, Server, TempDir, eventually, tool};
use serde_json::{Value, json};
use std::process::Command;
use stentor_test::skip;

/// Publishes an empty page and opens it; what it hears is kept in `heard`.
fn visit(browser: &mut Browser, server: &Server) {
    let page = "<!doctype html><title>streams</title><script>var heard = [];</script>";
    server.control.put("/page", "text/html", page.as_bytes()).expect_one_of(&[200, 201]);
    browser.open(&format!("http://{}/page", server.public.0));
}

/// A script that opens an `EventSource` and keeps what it hears.
fn source(url: &str) -> String {
    format!(
        "window.source = new EventSource('{url}');
         const isCursor = e => e.type == 'stentor' && 'cursor' in JSON.parse(e.data);
         const keep = e => isCursor(e) || heard.push(['' + e.type, e.data, e.lastEventId]);
         ['message', 'stentor', 'price'].forEach(name => source.addEventListener(name, keep));
         source.onopen = () => heard.push(['open']);
         source.onerror = () => heard.push(['error', source.readyState]);"
    )
}

/// The same with a `WebSocket`.
fn socket(url: &str, protocol: &str) -> String {
    format!(
        "window.socket = new WebSocket('{url}'{protocol});
         socket.onopen = () => heard.push(['open', socket.extensions, socket.protocol]);
         socket.onmessage = e => heard.push(['message', '' + e.data]);
         socket.onclose = e => heard.push(['close', e.code, e.wasClean]);"
    )
}

/// Waits until the page has heard so much, and returns it.
#[track_caller]
fn heard(browser: &mut Browser, count: usize) -> Vec<Value> {
    eventually(&format!("the page hears {count} things"), || {
        let heard = browser.run("return heard").as_array().unwrap().clone();
        (heard.len() >= count).then_some(heard)
    })
}

/// What an event says that is no message.
#[track_caller]
fn notice(heard: &Value) -> Value {
    assert_eq!(heard[0], "stentor", "{heard}");
    serde_json::from_str(heard[1].as_str().unwrap()).unwrap()
}

fn is(heard: &Value, kind: &str, data: &str) -> bool {
    heard[0] == kind && heard[1] == data
}

#[test]
fn an_event_source_reads_a_topic_and_comes_back_to_another_life_of_it() {
    let Some(mut browser) = Browser::start() else { return };
    let settings = "[streams]\nretry = '50ms'\ndrain_spread = '0s'\n";
    let server = Server::lasting(settings);
    server.publish("/a", "one");
    visit(&mut browser, &server);
    browser.run(&source("/a"));
    let first = heard(&mut browser, 2);
    assert!(first[0][0] == "open" && is(&first[1], "message", "one"), "{first:?}");
    let id = server.publish("/a", "two\r\nlines");
    let fields = "Stentor-Event: price\r\nContent-Type: text/plain\r\n";
    server.control.ask("PUT", "/a", fields, b"12.5").expect(200);
    server.control.put("/a", "image/png", b"\xff").expect(200);
    server.control.ask("DELETE", "/a", "", b"").expect(200);
    let last = server.publish("/a", "");
    let all = heard(&mut browser, 7);
    assert!(is(&all[2], "message", "two\nlines") && all[2][2] == *id, "{all:?}");
    assert!(is(&all[3], "price", "12.5"), "{all:?}");
    let (bytes, deletion) = (notice(&all[4]), notice(&all[5]));
    assert_eq!((&bytes["topic"], &bytes["data_base64"]), (&"/a".into(), &"/w==".into()));
    assert_eq!((&deletion["topic"], &deletion["deleted"]), (&"/a".into(), &true.into()));
    assert!(is(&all[6], "message", "") && all[6][2] == *last, "{all:?}");
    // The server goes; another one comes in its place, which knows nothing of these ids.
    let addresses = server.stop();
    let server = Server::at(addresses, settings);
    let resumed = eventually("the browser comes back and is told", || {
        let all = browser.run("return heard").as_array().unwrap().clone();
        all[7..].iter().find(|told| told[0] == "stentor").cloned()
    });
    let gap = json!({"reason": "epoch_changed", "since": last, "resume": "values"});
    assert_eq!(notice(&resumed), json!({"gap": gap}));
    let after = server.publish("/a", "after");
    eventually("the stream goes on", || {
        let all = browser.run("return heard");
        let last = all.as_array().unwrap().last().unwrap().clone();
        (is(&last, "message", "after") && last[2] == *after).then_some(())
    });
    let state = browser.run("return source.readyState");
    assert_eq!(state, 1, "it is open");
}

#[test]
fn an_event_source_hears_everything_once_over_kills_of_a_server_with_a_store() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let settings = format!("[streams]\nretry = '50ms'\n[store]\npath = {data:?}\n");
    let mut server = Server::lasting(&settings);
    server.publish("/a", "0");
    visit(&mut browser, &server);
    browser.run(&source("/a"));
    heard(&mut browser, 2);
    let mut ids = Vec::new();
    for life in 0..3 {
        ids.push(server.publish("/a", &format!("{life} before")));
        let addresses = server.kill();
        server = Server::at(addresses, &settings);
        ids.push(server.publish("/a", &format!("{life} after")));
        let last = ids.last().unwrap().clone();
        eventually("the stream goes on", || {
            let all = browser.run("return heard");
            all.as_array().unwrap().iter().any(|told| told[2] == *last).then_some(())
        });
    }
    let all = browser.run("return heard.filter(([kind]) => kind != 'open' && kind != 'error')");
    let told: Vec<(&str, &str)> = all.as_array().unwrap()[1..]
        .iter()
        .map(|told| (told[0].as_str().unwrap(), told[2].as_str().unwrap()))
        .collect();
    let expected: Vec<(&str, &str)> = ids.iter().map(|id| ("message", id.as_str())).collect();
    assert_eq!(told, expected, "nothing is missing, nothing comes twice, and there is no gap");
}

#[test]
fn an_event_source_that_is_cut_has_what_it_missed() {
    let Some(mut browser) = Browser::start() else { return };
    // A reader that stalls is cut; a page in a busy loop stalls. Here the cut is the reload of a
    // page: what a page can do itself is to close, and come back with the id it has.
    let server = Server::start();
    server.publish("/a", "0");
    visit(&mut browser, &server);
    browser.run(&source("/a"));
    let first = heard(&mut browser, 2);
    browser.run("source.close(); heard = [];");
    for i in 1..5 {
        server.publish("/a", &i.to_string());
    }
    let id = first[1][2].as_str().unwrap();
    browser.run(&source(&format!("/a?last_event_id={id}")));
    let missed = heard(&mut browser, 5);
    for i in 1..5 {
        assert!(is(&missed[i], "message", &i.to_string()), "{missed:?}");
    }
}

#[test]
fn a_web_socket_reads_topics_deflated() {
    let Some(mut browser) = Browser::start() else { return };
    let server = Server::configured("[streams]\nping = '200ms'\ndrain_spread = '0s'\n");
    let long = "worth deflating ".repeat(500);
    server.publish("/a", &long);
    visit(&mut browser, &server);
    let address = server.public.0;
    browser.run(&socket(&format!("ws://{address}/a"), ""));
    let all = heard(&mut browser, 2);
    let extensions = all[0][1].as_str().unwrap();
    assert!(extensions.starts_with("permessage-deflate"), "{extensions}");
    assert!(is(&all[1], "message", &long));
    // The browser answers pings, so it is still there after some of them.
    std::thread::sleep(std::time::Duration::from_millis(1_000));
    let bytes_before = server.figure("counters/bytes_streams");
    server.publish("/a", &long);
    let all = heard(&mut browser, 3);
    assert!(is(&all[2], "message", &long));
    let bytes = server.figure("counters/bytes_streams") - bytes_before;
    assert!(bytes < 1_000, "{bytes} bytes for {} that deflate well", long.len());
    browser.run("socket.onclose = null; socket.close(3001, 'enough'); heard = [];");
    server.settled("readers_websocket", 0);
    browser.run(&socket(&format!("ws://{address}/-/events"), ", ['stentor.v1']"));
    assert_eq!(heard(&mut browser, 1)[0][2], "stentor.v1");
    let id = server.publish("/q/a", "x");
    browser.run("socket.send(JSON.stringify({id: 1, subscribe: ['/q/*', '/b']}))");
    heard(&mut browser, 3);
    server.publish("/b", "y");
    let all = heard(&mut browser, 4);
    let envelope =
        |told: &Value| -> Value { serde_json::from_str(told[1].as_str().unwrap()).unwrap() };
    assert_eq!(envelope(&all[1])["topic"], "/q/a");
    assert_eq!(envelope(&all[2]), json!({"ok": {"id": 1, "cursor": id}}));
    assert_eq!(
        (&envelope(&all[3])["topic"], &envelope(&all[3])["data"]),
        (&"/b".into(), &"y".into())
    );
    server.child.signal("TERM");
    let all = heard(&mut browser, 5);
    assert_eq!(all[4], json!(["close", 1012, true]));
}

#[test]
fn several_topics_on_one_event_source() {
    let Some(mut browser) = Browser::start() else { return };
    let server = Server::start();
    server.control.put("/q/a", "application/json", b"{\"price\": 1.5}").expect(201);
    visit(&mut browser, &server);
    browser.run(&source("/-/events?topic=/q/*&topic=/b"));
    heard(&mut browser, 2);
    let id = server.publish("/b", "text \u{1f600} \"quoted\"");
    server.publish("/elsewhere", "unheard");
    server.publish("/q/new", "z");
    let all = heard(&mut browser, 4);
    let parsed = browser.run("return heard.slice(1).map(told => JSON.parse(told[1]))");
    assert_eq!(parsed[0]["data"]["price"], 1.5);
    assert_eq!(parsed[1]["data"], "text \u{1f600} \"quoted\"");
    assert_eq!((&parsed[1]["id"], &all[2][2]), (&Value::from(id.clone()), &Value::from(id)));
    assert_eq!((&parsed[2]["topic"], &parsed[2]["data"]), (&"/q/new".into(), &"z".into()));
}

#[test]
fn pages_of_other_origins_read_only_where_they_may() {
    let Some(mut browser) = Browser::start() else { return };
    let page = Server::start();
    let origin = format!("http://{}", page.public.0);
    for (origins, may) in [("https://else.where", false), (origin.as_str(), true), ("*", true)] {
        let server = Server::configured(&format!("[cors]\norigins = '{origins}'\n"));
        let id = server.publish("/a", "one");
        let address = server.public.0;
        visit(&mut browser, &page);
        browser.run(&source(&format!("http://{address}/a?last_event_id={id}")));
        let first = heard(&mut browser, 1);
        browser.run("source.close(); heard = [];");
        browser.run(&socket(&format!("ws://{address}/a"), ""));
        let second = heard(&mut browser, 1);
        if may {
            assert_eq!(
                (&first[0][0], &second[0][0]),
                (&"open".into(), &"open".into()),
                "{origins}"
            );
            server.publish("/a", "two");
            let told = heard(&mut browser, 3);
            assert!(is(&told[2], "message", "two"), "{told:?}");
        } else {
            assert_eq!(first[0], json!(["error", 2]), "{origins}");
            assert_eq!(second[0], json!(["close", 1006, false]), "{origins}");
            assert_eq!(server.figure("counters/readers_websocket"), 0);
        }
    }
}

/// Runs tests of the browser client against the real server. At least so many must pass.
fn run_client_tests(files: &[&str], count_min: u32) {
    let Some(node) = tool("node") else { return };
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/js");
    // Node has WebSocket without a flag since 22, with one since 20.10, and not at all before.
    let flag = "--experimental-websocket";
    let takes_flag = Command::new(&node).args([flag, "--eval", ""]).output().unwrap();
    let mut command = Command::new(&node);
    match takes_flag.status.success() {
        true => _ = command.arg(flag),
        false => skip("WebSocket takes a later Node"),
    }
    command.arg("--test").args(files).current_dir(sources);
    command.env("TEST_BINARY", env!("CARGO_BIN_EXE_stentor"));
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    // A file without any tests passes, too.
    let passed = told.lines().find_map(|line| line.split_once(" pass ")?.1.parse().ok());
    assert!(passed.is_some_and(|count: u32| count >= count_min), "{told}");
}

/// The client of `clients/js`, whose own tests run against a stand-in for the server.
#[test]
fn browser_client_holds_with_the_real_server() {
    run_client_tests(&["test/real.test.js", "test/delivery.test.js"], 30);
}

/// Node, Deno, Bun and Chromium, through nginx, Apache, HAProxy and Express, as far as they are
/// here. Node without a proxy always is.
#[test]
fn browser_client_holds_in_each_runtime_and_path() {
    run_client_tests(&["test/matrix.test.js"], 8);
}
