//! Cursors: readers that come back are sent what they missed, or are told that something is
//! missing; no cursor, however wrong, is an error of an event stream, which would stop an
//! `EventSource` for good.

use crate::support::{EventStream, Heard, NOTICE, Reader, Server, TEXT, Way, WebSocket};

/// The code of a cursor that cannot be read.
const INVALID: &str = "cursor_invalid";

fn gap(reason: &str, since: &str) -> Heard {
    Heard::Gap { reason: reason.to_owned(), since: since.to_owned() }
}

/// What `id` would be in another life of the sequence, and so many messages later.
fn foreign(id: &str) -> String {
    let (epoch, seq) = id.split_once('-').unwrap();
    let other = u32::from_str_radix(epoch, 16).unwrap().wrapping_add(1);
    format!("{other:08x}-{seq}")
}

fn later(id: &str, by: u64) -> String {
    let (epoch, seq) = id.split_once('-').unwrap();
    format!("{epoch}-{}", seq.parse::<u64>().unwrap() + by)
}

#[test]
fn what_was_missed_comes_in_order_and_then_what_is_new() {
    for way in Way::STREAMS {
        let server = Server::start();
        let ids: Vec<String> = (0..10).map(|i| server.publish("/a", &i.to_string())).collect();
        server.publish("/b", "of another topic");
        for seen in [0, 4, 8] {
            let mut reader = Reader::open(way, server.public, "/a", "", &ids[seen]);
            for (i, expected) in ids.iter().enumerate().skip(seen + 1) {
                let heard = reader.hear();
                if let (true, Heard::Message { id, .. }) = (way.has_ids(), &heard) {
                    assert_eq!(id, expected, "{way:?}");
                }
                assert_eq!(heard.data(), i.to_string(), "{way:?}");
            }
        }
        // All was seen, so there is nothing before the next message, also by a later id.
        let mut seen_all = Reader::open(way, server.public, "/a", "", &ids[9]);
        let mut seen_more = Reader::open(way, server.public, "/a", "", &later(&ids[9], 1));
        for reader in [&mut seen_all, &mut seen_more] {
            server.publish("/a", "next");
            assert_eq!(reader.data(), "next", "{way:?}");
        }
        drop((seen_all, seen_more));
        // A deletion that was missed is told.
        let since = server.publish("/a", "last");
        server.control.ask("DELETE", "/a", "", b"").expect(200);
        let mut reader = Reader::open(way, server.public, "/a", "", &since);
        let deleted = reader.hear();
        assert!(matches!(deleted, Heard::Deleted { .. }), "{way:?}: {deleted:?}");
        // Once the topic is there again it is a gap, since it is no longer known as such.
        server.publish("/a", "again");
        assert_eq!(reader.data(), "again", "{way:?}");
        let mut reader = Reader::open(way, server.public, "/a", "", &since);
        assert_eq!(reader.hear(), gap("history_trimmed", &since), "{way:?}");
        assert_eq!(reader.data(), "again", "{way:?}");
    }
}

#[test]
fn cursors_that_are_none_of_ours_are_answered_by_a_gap_and_the_value() {
    let server = Server::start();
    let id = server.publish("/a", "value");
    let huge = "9".repeat(3_000);
    let cases = [
        (INVALID, "nonsense".to_owned()),
        (INVALID, "-".to_owned()),
        (INVALID, "-1".to_owned()),
        (INVALID, "12".to_owned()),
        (INVALID, format!("{id}x")),
        (INVALID, format!("{id}-1")),
        (INVALID, "5f3a09c1-".to_owned()),
        (INVALID, "5f3a09c1--1".to_owned()),
        (INVALID, "5f3a09c1-18446744073709551616".to_owned()),
        (INVALID, "%00".to_owned()),
        (INVALID, "%22%3E%3Cscript%3E".to_owned()),
        (INVALID, huge),
        ("epoch_changed", foreign(&id)),
        ("cursor_ahead", later(&id, 1_000)),
        ("cursor_ahead", later(&id, 1 << 60)),
    ];
    let mut gaps = 0;
    for way in Way::STREAMS {
        // A client of the two others sees an error, see below.
        let hears_gap = !matches!(way, Way::Subscribed | Way::ManyPolls);
        for (reason, cursor) in cases.iter().filter(|(reason, _)| *reason != INVALID || hears_gap) {
            let short = &cursor[..cursor.len().min(40)];
            let mut reader = Reader::open(way, server.public, "/a", "", cursor);
            let since = if *reason == INVALID { "" } else { cursor.as_str() };
            assert_eq!(reader.hear(), gap(reason, since), "{way:?} {short}");
            assert_eq!(reader.data(), "value", "{way:?} {short}");
            gaps += 1;
        }
        // And it goes on from there.
        let foreign = foreign(&id);
        let mut reader = Reader::open(way, server.public, "/a", "", &foreign);
        assert_eq!(reader.hear(), gap("epoch_changed", &foreign));
        assert_eq!(reader.data(), "value");
        server.publish("/a", "value");
        assert_eq!(reader.data(), "value", "{way:?}");
        gaps += 1;
    }
    assert_eq!(server.figure("counters/gaps"), gaps);
    let protocol = "Sec-WebSocket-Protocol: stentor.v1\r\n";
    let mut socket = WebSocket::open(server.public, "/-/events", protocol);
    for (_, cursor) in cases.iter().filter(|(reason, _)| *reason == INVALID) {
        for target in ["/a?wait=0&since=", "/a?since=", "/-/events?topic=/a&since="] {
            let response = server.public.get(&format!("{target}{cursor}")).refused(400);
            assert_eq!(response.code(), INVALID);
        }
        let command = serde_json::json!({"id": 1, "subscribe": ["/a"], "since": cursor});
        socket.send(TEXT, command.to_string());
        let told = socket.json();
        let error = serde_json::json!({
            "id": 1, "code": INVALID, "status": 400, "detail": told["error"]["detail"],
        });
        assert_eq!(told, serde_json::json!({"error": error}));
    }
    assert_eq!(server.figure("counters/gaps"), gaps);
}

/// Every cursor that the server sends, it takes back.
#[test]
fn a_tag_of_any_form_is_a_cursor() {
    let server = Server::start();
    let id = server.publish("/a", "one");
    server.publish("/a", "two");
    for form in
        ["ID", "\"ID\"", "W/\"ID\"", "ID.gz", "ID.br", "\"ID.zst\"", "W/\"ID.br\"", "W/\"ID.gz\""]
    {
        let cursor = form.replace("ID", &id);
        let fields = format!("Last-Event-ID: {cursor}\r\nAccept: text/event-stream\r\n");
        assert_eq!(EventStream::open(server.public, "/a", &fields).event().data, "two", "{form}");
        let since = cursor.replace('"', "%22");
        for target in [format!("/a?since={since}"), format!("/a?wait=25&since={since}")] {
            assert_eq!(server.public.get(&target).expect(200).text(), "two", "{form}");
        }
        let target = format!("/-/events?topic=/a&since={since}");
        let told = server.public.get(&target).expect(200).json();
        assert_eq!(told["events"][0]["data"], "two", "{form}");
    }
    assert_eq!(server.figure("counters/gaps"), 0);
}

#[test]
fn now_is_nothing_old_and_all_that_comes() {
    let server = Server::start();
    server.publish("/a", "old");
    for way in Way::STREAMS {
        let mut reader = match way {
            // What comes between two polls is told: the first one says where they are.
            Way::ManyPolls => {
                let told = server.public.get("/-/events?topic=/a&since=now").expect(200).json();
                assert_eq!(told["events"], serde_json::json!([]));
                let cursor = told["cursor"].as_str().unwrap();
                Reader::open(way, server.public, "/a", "", cursor)
            }
            _ => Reader::open(way, server.public, "/a", "", "now"),
        };
        server.publish("/a", &format!("{way:?}"));
        assert_eq!(reader.data(), format!("{way:?}"));
    }
    server.public.get("/a?since=now").expect(204);
    assert_eq!(server.figure("counters/gaps"), 0);
}

#[test]
fn a_gap_has_no_id_of_its_own() {
    let server = Server::start();
    server.publish("/a", "value");
    let mut stream = EventStream::open(server.public, "/a?since=nonsense", "");
    let gap = stream.event();
    // Otherwise a reader that is cut right behind it would come back as if it had all.
    assert_eq!((gap.name.as_deref(), gap.id), (Some(NOTICE), None));
    assert_eq!(gap.data, "{\"gap\":{\"reason\":\"cursor_invalid\",\"resume\":\"values\"}}");
}

#[test]
fn a_topic_that_is_not_there_has_gaps_too() {
    let server = Server::start();
    let id = server.publish("/b", "another");
    for way in Way::STREAMS {
        let mut reader = Reader::open(way, server.public, "/none", "", &foreign(&id));
        assert_eq!(reader.hear(), gap("epoch_changed", &foreign(&id)), "{way:?}");
    }
}

#[test]
fn what_fell_out_of_history_is_a_gap_and_then_what_is_left() {
    let server = Server::configured("[[topics]]\nmatch = '/short'\nhistory = 4\n");
    let ids: Vec<String> = (0..10).map(|i| server.publish("/short", &i.to_string())).collect();
    for way in Way::STREAMS {
        let mut reader = Reader::open(way, server.public, "/short", "", &ids[2]);
        assert_eq!(reader.hear(), gap("history_trimmed", &ids[2]), "{way:?}");
        for i in 6..10 {
            assert_eq!(reader.data(), i.to_string(), "{way:?}");
        }
        // The message before the oldest that is left was the last seen: nothing is missing.
        let mut reader = Reader::open(way, server.public, "/short", "", &ids[5]);
        assert_eq!(reader.data(), "6", "{way:?}");
        // Who wants the latest misses nothing.
        let mut reader = Reader::open(way, server.public, "/short", "latest", &ids[2]);
        assert_eq!(reader.data(), "9", "{way:?}");
    }
}

#[test]
fn earliest_is_all_that_history_has() {
    let server = Server::configured("[[topics]]\nmatch = '/short'\nhistory = 4\n");
    (0..10).for_each(|i| drop(server.publish("/short", &i.to_string())));
    for way in Way::STREAMS {
        let mut reader = Reader::open(way, server.public, "/short", "", "earliest");
        for i in 6..10 {
            assert_eq!(reader.data(), i.to_string(), "{way:?}");
        }
        drop(reader);
        let mut reader = Reader::open(way, server.public, "/short", "latest", "earliest");
        assert_eq!(reader.data(), "9", "{way:?}");
        drop(reader);
        // Where there is nothing, nothing is told; nor of what was deleted.
        let mut reader = Reader::open(way, server.public, "/gone", "", "earliest");
        server.publish("/gone", "new");
        assert_eq!(reader.data(), "new", "{way:?}");
        server.control.ask("DELETE", "/gone", "", b"").expect(200);
    }
    let data = |told: &serde_json::Value| told["data"].as_str().map(str::to_owned);
    let told = server.public.get("/-/events?topic=/*&since=earliest").expect(200).json();
    let told: Vec<_> = told["events"].as_array().unwrap().iter().map(data).collect();
    assert_eq!(told, ["6", "7", "8", "9"].map(|data| Some(data.to_owned())));
    let protocol = "Sec-WebSocket-Protocol: stentor.v1\r\n";
    let mut socket = WebSocket::open(server.public, "/-/events", protocol);
    socket.send(TEXT, r#"{"subscribe":["/short"],"since":"earliest"}"#);
    for i in 6..10 {
        assert_eq!(data(&socket.json()), Some(i.to_string()));
    }
    assert_eq!(server.figure("counters/gaps"), 0);
}

#[test]
fn the_mode_decides_what_comes_of_the_past() {
    let server = Server::configured("[[topics]]\nmatch = '/quotes/*'\nhistory = 1\n");
    let first = server.publish("/quotes/a", "0");
    server.publish("/kept", "0");
    for i in 1..5 {
        server.publish("/quotes/a", &i.to_string());
        server.publish("/kept", &i.to_string());
    }
    for way in Way::STREAMS {
        let open = |topic, mode| Reader::open(way, server.public, topic, mode, &first);
        // By rule: a quote is as it is now, and nothing else matters.
        assert_eq!(open("/quotes/a", "").data(), "4", "{way:?}");
        assert_eq!(open("/quotes/a", "latest").data(), "4", "{way:?}");
        assert_eq!(open("/kept", "latest").data(), "4", "{way:?}");
        for mode in ["", "all"] {
            let mut reader = open("/kept", mode);
            for i in 0..5 {
                assert_eq!(reader.data(), i.to_string(), "{way:?} {mode}");
            }
        }
        // Who wants all of what is not kept is told.
        let mut reader = open("/quotes/a", "all");
        assert_eq!(reader.hear(), gap("history_trimmed", &first), "{way:?}");
        assert_eq!(reader.data(), "4", "{way:?}");
    }
}

#[test]
fn the_header_wins_over_the_query_and_an_empty_cursor_is_none() {
    let server = Server::start();
    let ids: Vec<String> = (0..5).map(|i| server.publish("/a", &i.to_string())).collect();
    let first = |target: &str, fields: &str| -> String {
        EventStream::open(server.public, target, fields).event().data
    };
    let header = |id: &str| format!("Last-Event-ID: {id}\r\n");
    for page in ["/a?", "/-/events?topic=/a&"] {
        let data = |text: &str| match page {
            "/a?" => text.to_owned(),
            _ => serde_json::from_str::<serde_json::Value>(text).unwrap()["data"]
                .as_str()
                .unwrap()
                .to_owned(),
        };
        let query = |name: &str, id: &str| format!("{page}{name}={id}");
        assert_eq!(data(&first(&query("since", &ids[1]), "")), "2");
        assert_eq!(data(&first(&query("last_event_id", &ids[1]), "")), "2");
        assert_eq!(data(&first(&query("since", &ids[0]), &header(&ids[2]))), "3");
        assert_eq!(data(&first(&query("since", "nonsense"), &header(&ids[2]))), "3");
        assert_eq!(data(&first(&query("since", ""), "")), "4");
        assert_eq!(data(&first(&query("last_event_id", ""), &header(""))), "4");
        assert_eq!(data(&first(&query("since", &ids[1]), &header(""))), "2");
    }
    // A header that no query could bring.
    for bad in ["\u{e9}", "\x7f\x01", "a b", &"x".repeat(6_000)] {
        let mut client = server.reader();
        let head = format!("Accept: text/event-stream\r\n{}", header(bad));
        let response = client.open("/a", &head);
        if response.status == 200 {
            let mut text = String::new();
            while !text.ends_with("data: 4\n\n\r\n") {
                text += std::str::from_utf8(&client.take().unwrap()).unwrap();
            }
            let data = r#"{"gap":{"reason":"cursor_invalid","resume":"values"}}"#;
            assert!(text.contains(&format!("event: stentor\ndata: {data}\n\n")), "{text}");
        } else {
            // What no field may hold is refused as in any other field.
            assert!(bad.contains('\x01'), "{bad}: {response:?}");
        }
    }
    let mut socket = WebSocket::open(server.public, "/a", &header(&ids[3]));
    assert_eq!(socket.text(), "4");
}

#[test]
fn after_a_restart_readers_are_told_that_it_is_another_life() {
    for way in Way::STREAMS {
        let server = Server::lasting("");
        let id = server.publish("/a", "before");
        let addresses = server.kill();
        let server = Server::at(addresses, "");
        let mut reader = Reader::open(way, server.public, "/a", "", &id);
        assert_eq!(reader.hear(), gap("epoch_changed", &id), "{way:?}");
        server.publish("/a", "after");
        assert_eq!(reader.data(), "after", "{way:?}");
    }
}
