//! Many topics on one stream: `/-/events`, its patterns and envelopes, and `stentor.v1`.

use crate::support::{BINARY, EventStream, NOTICE, Response, Server, TEXT, UPGRADE, WebSocket};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use stentor_test::pattern::covers;

const PROTOCOL: &str = "Sec-WebSocket-Protocol: stentor.v1\r\n";

#[track_caller]
fn envelope(stream: &mut EventStream) -> Value {
    let event = stream.event();
    let told: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!(told["id"].as_str(), event.id.as_deref());
    // The name of a message is within: every message is a `message` to an `EventSource`.
    assert_eq!(event.name.as_deref(), told["deleted"].as_bool().map(|_| NOTICE));
    told
}

#[track_caller]
fn heard(told: &Value) -> (&str, &str) {
    (told["topic"].as_str().unwrap_or_default(), told["data"].as_str().unwrap_or_default())
}

/// A connection that speaks the subprotocol and reads nothing yet.
fn speaker(server: &Server) -> WebSocket {
    let socket = WebSocket::open(server.public, "/-/events", PROTOCOL);
    assert_eq!(socket.head.field("sec-websocket-protocol"), Some("stentor.v1"));
    socket
}

#[track_caller]
fn say(socket: &mut WebSocket, command: &Value) {
    socket.send(TEXT, command.to_string());
}

/// The topic that a deletion is of.
#[track_caller]
fn deletion(told: &Value) -> &str {
    assert_eq!(told["deleted"], true, "{told}");
    told["topic"].as_str().unwrap()
}

/// Sees that a command was rejected with this code, without an id.
#[track_caller]
fn rejected(told: &Value, code: &str) {
    let (error, detail) = (&told["error"], told["error"]["detail"].as_str().unwrap_or_default());
    assert_eq!(error["code"], code, "{told}");
    assert!(error["status"].is_u64() && error["id"].is_null(), "{told}");
    assert!(detail.len() > 10 && !detail.contains('\n'), "{told}");
}

/// The next object that says more than where the reader is.
#[track_caller]
fn next(socket: &mut WebSocket) -> Value {
    loop {
        let told = socket.json();
        if told["cursor"].is_null() && told["ok"].is_null() {
            return told;
        }
    }
}

#[test]
fn envelopes_carry_every_kind_of_data() {
    let server = Server::start();
    let target = "/-/events?topic=/a&topic=/b";
    let mut stream = EventStream::open(server.public, target, "");
    let mut socket = WebSocket::open(server.public, target, "");
    assert_eq!(socket.head.field("sec-websocket-protocol"), None);
    for (kind, published, member, data) in [
        (
            "text/plain",
            &b"say \"hi\"\n\\\x01\xe2\x80\xa8"[..],
            "data",
            json!("say \"hi\"\n\\\u{1}\u{2028}"),
        ),
        ("application/json", b"{\"x\": [1, null, \"\\n\"]}", "data", json!({"x": [1, null, "\n"]})),
        ("application/json", b"7", "data", json!(7)),
        ("application/json", b"\"seven\"", "data", json!("seven")),
        ("application/geo+json", b"[\n1\n,\r\n2]", "data", json!([1, 2])),
        ("application/json", b"not json", "data_base64", json!("bm90IGpzb24=")),
        ("application/octet-stream", b"\x00\xff", "data_base64", json!("AP8=")),
        ("image/png", b"", "data", json!("")),
        ("text/html; charset=utf-8", "<p>é".as_bytes(), "data", json!("<p>é")),
        ("text/plain", b"\xff", "data_base64", json!("/w==")),
    ] {
        let answer = server.control.put("/a", kind, published).expect_one_of(&[200, 201]).json();
        let expected = json!({"topic": "/a", "id": answer["id"], "type": kind, member: data});
        assert_eq!(envelope(&mut stream), expected);
        assert_eq!(next(&mut socket), expected);
        let value = server.public.get("/-/values?topic=/a").expect(200).json();
        // Where many are looked up a value has no type: bytes are an object there.
        let looked_up = if member == "data" { data } else { json!({"data_base64": data}) };
        assert_eq!(value["/a"], looked_up, "{kind}");
    }
    let fields = "Stentor-Event: price\r\nContent-Type: application/json\r\n";
    server.control.ask("PUT", "/b", fields, b"12.5").expect(201);
    for told in [envelope(&mut stream), next(&mut socket)] {
        assert_eq!((&told["event"], &told["data"]), (&json!("price"), &json!(12.5)));
    }
    server.control.ask("DELETE", "/b", "", b"").expect(200);
    let deleted = envelope(&mut stream);
    assert_eq!(deleted, json!({"topic": "/b", "id": deleted["id"], "deleted": true}));
    assert_eq!(next(&mut socket), deleted);
}

#[test]
fn patterns_match_topics_to_come_and_overlap_without_repeating() {
    let server = Server::start();
    server.publish("/quotes/aapl", "1");
    server.publish("/quotes/us/ibm", "2");
    server.publish("/other", "3");
    let target = "/-/events?topic=/quotes/*&topic=/quotes/**&topic=/quotes/aapl&topic=/*/us/ibm";
    let mut stream = EventStream::open(server.public, target, "");
    assert_eq!(heard(&envelope(&mut stream)), ("/quotes/aapl", "1"));
    assert_eq!(heard(&envelope(&mut stream)), ("/quotes/us/ibm", "2"));
    let mut one_level = EventStream::open(server.public, "/-/events?topic=/quotes/*", "");
    assert_eq!(heard(&envelope(&mut one_level)), ("/quotes/aapl", "1"));
    for (topic, here, there) in [
        ("/quotes/new", true, true),
        ("/quotes/us/new", true, false),
        ("/quotes/us/ibm", true, false),
        ("/quotesnot/x", false, false),
        ("/other", false, false),
        ("/quotes/aapl", true, true),
        ("/quotes", false, false),
    ] {
        server.publish(topic, topic);
        if here {
            assert_eq!(heard(&envelope(&mut stream)), (topic, topic));
        }
        if there {
            assert_eq!(heard(&envelope(&mut one_level)), (topic, topic));
        }
    }
    server.publish("/quotes/end", "end");
    assert_eq!(heard(&envelope(&mut stream)), ("/quotes/end", "end"));
    assert_eq!(heard(&envelope(&mut one_level)), ("/quotes/end", "end"));
}

#[test]
fn requests_that_are_refused() {
    let server = Server::configured("[streams]\ntopics_max = 1000\n");
    let ask = |query: &str, fields: &str| -> Response {
        server.public.ask("GET", &format!("/-/events{query}"), fields, b"")
    };
    let events = "Accept: text/event-stream\r\n";
    let many = |count: usize| -> String {
        let topics: Vec<String> = (0..count).map(|i| format!("topic=/{i}")).collect();
        format!("?{}", topics.join("&"))
    };
    for fields in [events, UPGRADE, ""] {
        for query in [
            "?topic=/a&nonsense=1",
            "?topic=/a&topics=/b",
            "?topic=a",
            "?topic=/a//b",
            "?topic=/**/b",
            "?topic=/a*",
            "?topic=",
            "?topic=/%zz",
            "?topic=/%ff",
            "?topic=/-/status",
            "?topic=/a&mode=newest",
            "?topic=/a&wait=soon",
            &many(1_001),
        ] {
            let short = &query[..query.len().min(60)];
            let response = ask(query, fields);
            assert_eq!(response.status, 400, "{short} {fields}: {response:?}");
            response.refused(400);
        }
    }
    for fields in [events, ""] {
        ask("", fields).refused(400);
        ask("?", fields).refused(400);
    }
    server.public.post("/-/events?topic=/a", b"").refused(405);
    let mut stream = EventStream::open(server.public, &format!("/-/events{}", many(1_000)), "");
    server.publish("/999", "x");
    assert_eq!(heard(&envelope(&mut stream)), ("/999", "x"));
    server.publish("/0", "y");
    assert_eq!(heard(&envelope(&mut stream)), ("/0", "y"));
    drop(stream);
    server.settled("readers_sse", 0);
}

#[test]
fn subscriptions_come_and_go_while_connected() {
    let server = Server::start();
    server.publish("/a", "a1");
    server.publish("/quotes/x", "x1");
    let mut socket = speaker(&server);
    say(&mut socket, &json!({"subscribe": ["/a", "/quotes/*"]}));
    assert_eq!(heard(&next(&mut socket)), ("/a", "a1"));
    assert_eq!(heard(&next(&mut socket)), ("/quotes/x", "x1"));
    server.publish("/quotes/y", "y1");
    assert_eq!(heard(&next(&mut socket)), ("/quotes/y", "y1"));
    // What is read already is not begun again.
    say(&mut socket, &json!({"subscribe": ["/a"]}));
    say(&mut socket, &json!({"unsubscribe": ["/quotes/*", "/never"], "subscribe": ["/b"]}));
    // What was said is obeyed in order: the value of what is subscribed to last says that it was.
    let marker = server.publish("/marker", "now");
    say(&mut socket, &json!({"subscribe": ["/marker"]}));
    assert_eq!(next(&mut socket)["id"], json!(marker));
    server.publish("/quotes/x", "x2");
    server.publish("/b", "b1");
    assert_eq!(heard(&next(&mut socket)), ("/b", "b1"));
    // With a cursor of its own.
    let since = server.publish("/c", "c1");
    server.publish("/c", "c2");
    server.publish("/c", "c3");
    say(&mut socket, &json!({"subscribe": ["/c"], "since": since}));
    assert_eq!(heard(&next(&mut socket)), ("/c", "c2"));
    assert_eq!(heard(&next(&mut socket)), ("/c", "c3"));
    server.control.ask("DELETE", "/c", "", b"").expect(200);
    assert_eq!(deletion(&next(&mut socket)), "/c");
    say(&mut socket, &json!({"unsubscribe": ["/a", "/b", "/c", "/marker"]}));
    say(&mut socket, &json!({"subscribe": ["/end"]}));
    server.publish("/b", "unheard");
    server.publish("/end", "end");
    assert_eq!(heard(&next(&mut socket)), ("/end", "end"));
}

/// The ids of a topic and what it was sent of it, up to the message with this id.
#[track_caller]
fn told_until(socket: &mut WebSocket, last: &str) -> Vec<(String, String)> {
    let mut told = Vec::new();
    loop {
        let next = next(socket);
        let field = |name: &str| next[name].as_str().unwrap().to_owned();
        told.push((field("topic"), field("id")));
        if field("id") == last {
            return told;
        }
    }
}

#[test]
fn what_is_subscribed_to_twice_over_is_sent_once() {
    let server = Server::start();
    let pair = |topic: &str, id: &str| (topic.to_owned(), id.to_owned());
    let a = server.publish("/q/a", "a1");
    let b = server.publish("/q/b", "b1");
    let mut socket = speaker(&server);
    say(&mut socket, &json!({"subscribe": ["/q/a"]}));
    assert_eq!(next(&mut socket)["id"], json!(a));
    // A pattern that covers the name: only what is new comes, now and later.
    say(&mut socket, &json!({"subscribe": ["/q/*"]}));
    assert_eq!(told_until(&mut socket, &b), [pair("/q/b", &b)]);
    let a2 = server.publish("/q/a", "a2");
    assert_eq!(told_until(&mut socket, &a2), [pair("/q/a", &a2)]);
    // A name, and another pattern, that are covered: nothing at all, with a cursor or without.
    say(&mut socket, &json!({"subscribe": ["/q/b"]}));
    say(&mut socket, &json!({"subscribe": ["/*/a"], "since": a}));
    let c = server.publish("/other/a", "c");
    assert_eq!(told_until(&mut socket, &c), [pair("/other/a", &c)]);
    // The same for history: of a topic that is read already only what comes.
    let since = server.publish("/h/x", "x1");
    let x2 = server.publish("/h/x", "x2");
    server.publish("/h/y", "y1");
    let y2 = server.publish("/h/y", "y2");
    say(&mut socket, &json!({"subscribe": ["/h/x"], "since": since}));
    assert_eq!(next(&mut socket)["id"], json!(x2));
    server.control.ask("DELETE", "/h/x", "", b"").expect(200);
    assert_eq!(deletion(&next(&mut socket)), "/h/x");
    say(&mut socket, &json!({"subscribe": ["/h/**"], "since": x2}));
    let told = told_until(&mut socket, &y2);
    assert!(told.iter().all(|(topic, _)| topic == "/h/y") && told.len() == 2, "{told:?}");
    // Who leaves a name goes on by the pattern, and the other way round.
    say(&mut socket, &json!({"unsubscribe": ["/h/x", "/q/*"]}));
    let x3 = server.publish("/h/x", "x3");
    let b2 = server.publish("/q/b", "b2");
    assert_eq!(told_until(&mut socket, &b2), [pair("/h/x", &x3), pair("/q/b", &b2)]);
    // Left and named again in one command, it begins anew.
    say(&mut socket, &json!({"unsubscribe": ["/h/**"], "subscribe": ["/h/x"]}));
    assert_eq!(told_until(&mut socket, &x3), [pair("/h/x", &x3)]);
}

/// The last id that was sent is the one to resume from, though it may be older than those before.
#[test]
fn the_last_id_of_a_socket_is_one_to_resume_from() {
    let server = Server::start();
    server.publish("/old", "1");
    let live = server.publish("/live", "2");
    let mut socket = speaker(&server);
    say(&mut socket, &json!({"subscribe": ["/live"]}));
    assert_eq!(next(&mut socket)["id"], json!(live));
    // An older value follows a newer one; then comes where all of them are.
    say(&mut socket, &json!({"subscribe": ["/old"]}));
    assert_eq!(heard(&next(&mut socket)), ("/old", "1"));
    assert_eq!(socket.json(), json!({"ok": {"cursor": live}}));
    // Nothing but the cursor where all is known already.
    say(&mut socket, &json!({"subscribe": ["/*"], "since": live}));
    assert_eq!(socket.json(), json!({"ok": {"cursor": live}}));
    // From there another socket goes on, in whatever pieces it subscribes.
    let first = server.publish("/live", "3");
    let second = server.publish("/old", "4");
    let mut other = speaker(&server);
    say(&mut other, &json!({"subscribe": ["/live", "/old"], "since": live}));
    say(&mut other, &json!({"subscribe": ["/*"], "since": live}));
    let told = [next(&mut other), next(&mut other)];
    assert_eq!(told.each_ref().map(|told| told["id"].as_str()), [Some(&*first), Some(&*second)]);
    assert_eq!(other.json(), json!({"ok": {"cursor": second}}));
}

#[test]
fn a_command_may_come_as_bytes() {
    let server = Server::start();
    let mut socket = speaker(&server);
    socket.send(BINARY, json!({"subscribe": ["/a"]}).to_string());
    let id = server.publish("/a", "one");
    assert_eq!(next(&mut socket)["id"], json!(id));
    for bytes in [&b"\xff\xfe"[..], b"", b"hello", b"{\"subscribe\":[\"/\xff\"]}"] {
        socket.send(BINARY, bytes);
        rejected(&next(&mut socket), "command_invalid");
    }
}

#[test]
fn commands_that_are_not_understood_change_nothing() {
    let server = Server::configured("[streams]\ntopics_max = 10\n");
    let mut socket = speaker(&server);
    say(&mut socket, &json!({"subscribe": ["/a"]}));
    let names =
        |range: std::ops::Range<usize>| -> Vec<String> { range.map(|i| format!("/{i}")).collect() };
    let invalid = "command_invalid";
    for (command, code) in [
        ("", invalid),
        ("hello", invalid),
        ("{", invalid),
        ("[]", invalid),
        ("null", invalid),
        ("[[\"/b\"],[],null]", invalid),
        (r#"{"subscribe":"/b"}"#, invalid),
        (r#"{"subscribe":[7]}"#, invalid),
        (r#"{"ping":1}"#, invalid),
        (r#"{"id":[1],"subscribe":["/b"]}"#, invalid),
        (&json!({"id": "i".repeat(65), "subscribe": ["/b"]}).to_string(), invalid),
        (r#"{"subscribe":["b"]}"#, "topic_invalid"),
        (r#"{"subscribe":["/b","/b//c"]}"#, "topic_invalid"),
        (r#"{"subscribe":["/b","/-/c"]}"#, "topic_reserved"),
        (r#"{"subscribe":["/**/b"]}"#, "pattern_invalid"),
        (r#"{"subscribe":["/b","/c*"]}"#, "pattern_invalid"),
        (r#"{"subscribe":["/b"],"since":7}"#, invalid),
        (r#"{"subscribe":["/b"],"since":"nonsense"}"#, "cursor_invalid"),
        (r#"{"subscribe":["/b"],"subscribe":["/c"]}"#, invalid),
        (r#"{"subscribe":["/b"],"unknown":1}"#, invalid),
        (r#"{"unsubscribe":["/a",""]}"#, "topic_invalid"),
        (r#"{"unsubscribe":["/a"],"subscribe":["/b"],"token":"x"}"#, "token_rejected"),
        (&"[".repeat(10_000), invalid),
        (&json!({"subscribe": names(0..11)}).to_string(), "subscription_limit"),
        (&json!({"subscribe": names(0..10)}).to_string(), "subscription_limit"),
    ] {
        socket.send(TEXT, command);
        rejected(&next(&mut socket), code);
    }
    server.publish("/b", "unheard");
    server.publish("/1", "unheard");
    server.publish("/a", "heard");
    assert_eq!(heard(&next(&mut socket)), ("/a", "heard"));
    // Ten at once are allowed, and those that go make room.
    say(&mut socket, &json!({"subscribe": names(0..9)}));
    assert_eq!(heard(&next(&mut socket)), ("/1", "unheard"));
    say(&mut socket, &json!({"subscribe": names(9..10)}));
    rejected(&next(&mut socket), "subscription_limit");
    say(&mut socket, &json!({"unsubscribe": ["/0"], "subscribe": names(9..10)}));
    server.publish("/9", "heard");
    assert_eq!(heard(&next(&mut socket)), ("/9", "heard"));
}

#[test]
fn without_the_subprotocol_what_clients_say_means_nothing() {
    let server = Server::start();
    for fields in ["", "Sec-WebSocket-Protocol: chat\r\n", "Sec-WebSocket-Protocol: stentor.v2\r\n"]
    {
        let mut socket = WebSocket::open(server.public, "/-/events?topic=/a", fields);
        assert_eq!(socket.head.field("sec-websocket-protocol"), None);
        let before = server.figure("counters/readers_websocket");
        say(&mut socket, &json!({"subscribe": ["/b"], "unsubscribe": ["/a"]}));
        socket.send(TEXT, "nonsense");
        server.publish("/b", "unheard");
        server.publish("/a", "heard");
        let mut told = next(&mut socket);
        while heard(&told) != ("/a", "heard") || told.is_null() {
            assert_eq!(told["topic"], "/a", "{told}");
            told = next(&mut socket);
        }
        assert!(before >= 1);
    }
}

/// Where nothing could ever be heard the answer says so at once.
#[test]
fn streams_that_would_be_silent_for_ever_are_refused() {
    let server = Server::start();
    let refused = |target: &str, fields: &str, reason: &str| {
        let response = server.public.ask("GET", target, fields, b"").refused(400);
        assert!(response.detail().contains(reason), "{target}: {response:?}");
    };
    let other = format!("{UPGRADE}Sec-WebSocket-Protocol: stentor.v2\r\n");
    for fields in [UPGRADE, &other] {
        for target in ["/-/events", "/-/events?", "/-/events?mode=latest"] {
            refused(target, fields, "Say which topics");
        }
    }
    let events = "Accept: text/event-stream\r\n";
    for path in ["/quotes/*", "/**", "/*/last", "/quotes/%2a", "/a/**/b", "/*/*/*"] {
        for fields in [UPGRADE, events, "Prefer: wait=1\r\n"] {
            refused(path, fields, "/-/events?topic=");
        }
        refused(&format!("{path}?wait=1"), "", "/-/events?topic=");
    }
    EventStream::open(server.public, "/-/events?topic=/quotes/*", "");
    speaker(&server);
}

#[test]
fn thousands_of_topics_under_one_pattern() {
    let server = Server::start();
    let lines: Vec<String> =
        (0..5_000).map(|i| format!("{{\"topic\":\"/t/{i}\",\"data\":\"v{i}\"}}")).collect();
    let answer = server.control.post("/-/publish", lines.join("\n").as_bytes()).expect(200).json();
    assert_eq!(answer["published"], 5_000);
    let mut stream = EventStream::open(server.public, "/-/events?topic=/t/*", "");
    let mut socket = WebSocket::open(server.public, "/-/events?topic=/**", "");
    for i in 0..5_000 {
        let expected = (format!("/t/{i}"), format!("v{i}"));
        let expected = (expected.0.as_str(), expected.1.as_str());
        assert_eq!(heard(&envelope(&mut stream)), expected);
        assert_eq!(heard(&next(&mut socket)), expected);
    }
}

/// Subscribes and unsubscribes until `/end` has come. A topic that stays subscribed misses nothing;
/// one that is subscribed to again begins with its value, and nothing older.
fn change_until_the_end(mut socket: WebSocket, place: usize) {
    let mut patterns = BTreeSet::from(["/end"]);
    say(&mut socket, &json!({"subscribe": ["/end"]}));
    // The last id of each topic, and its last number unless a message may be missing after it.
    let mut last: BTreeMap<String, (u64, Option<u64>)> = BTreeMap::new();
    let mut in_sequence = 0;
    for round in place.. {
        // It unsubscribes from the topics that it subscribed to before the last ones.
        let (is_subscribed, step) = (round % 2 == 0, round / 2 + 2 * (round % 2));
        let topics = [["/p/a", "/p/*"], ["/p/b", "/p/b"], ["/p/**", "/p/a"]][step % 3];
        let before = patterns.clone();
        let command = if is_subscribed { "subscribe" } else { "unsubscribe" };
        patterns.retain(|pattern| !topics.contains(pattern));
        patterns.extend(topics.iter().filter(|_| is_subscribed));
        let stays = |topic: &str| before.intersection(&patterns).any(|all| covers(all, topic));
        let left = last.iter_mut().filter(|(topic, _)| !stays(topic));
        left.for_each(|(_, (_, number))| *number = None);
        say(&mut socket, &json!({command: topics}));
        // A reply tells that it was obeyed; meanwhile there may be messages.
        say(&mut socket, &json!({"id": "ping"}));
        loop {
            let told = socket.json();
            if told["ok"]["id"] == "ping" {
                break;
            } else if !told["ok"].is_null() {
                continue;
            }
            let topic = told["topic"].as_str().unwrap_or_else(|| panic!("{told}"));
            let (_, seq) = told["id"].as_str().unwrap().split_once('-').unwrap();
            let seq: u64 = seq.parse().unwrap();
            if topic == "/end" {
                assert!(in_sequence > 20, "{in_sequence} messages were compared");
                return;
            }
            let number = told["data"].as_str().map(|data| data.parse().unwrap());
            let heard = last.insert(topic.to_owned(), (seq, number));
            let Some((before_seq, before_number)) = heard else { continue };
            assert!(seq >= before_seq, "{told} after {before_seq}");
            if let (true, Some(old), Some(new)) =
                (stays(topic) && seq > before_seq, before_number, number)
            {
                assert_eq!(new, old + 1, "{told}");
                in_sequence += 1;
            }
        }
    }
}

#[test]
fn subscriptions_that_change_amid_publishes_and_deletions() {
    let toml = "[[topics]]\nmatch = '/**'\nhistory = 1000\n";
    let server = Server::configured(toml);
    let (control, count) = (server.control, 400_u64);
    thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..count {
                for topic in ["/p/a", "/p/b"] {
                    let answer = control.put(topic, "text/plain", i.to_string().as_bytes());
                    answer.expect_one_of(&[200, 201]);
                }
                if i % 10 == 9 {
                    control.ask("DELETE", "/p/b", "", b"").expect(200);
                }
            }
            control.put("/end", "text/plain", b"end").expect(201);
        });
        for place in 0..4 {
            let socket = speaker(&server);
            scope.spawn(move || change_until_the_end(socket, place));
        }
    });
    server.settled("readers_websocket", 0);
    // Nobody is left in the lists.
    let answer = server.control.put("/p/a", "text/plain", b"x").expect(200).json();
    assert_eq!(answer["readers"], 0);
}
