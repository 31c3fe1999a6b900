//! Cursors: readers that come back are sent what they missed, or are told that something is
//! missing; no cursor, however wrong, is ever an error, which would stop an `EventSource` for good.

use crate::support::{EventStream, Heard, Reader, Server, TEXT, Way, WebSocket};

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
        server.control.ask("DELETE", "/a", "", b"").expect(204);
        let mut reader = Reader::open(way, server.public, "/a", "", &since);
        let deleted = reader.hear();
        assert!(matches!(deleted, Heard::Deleted { .. }), "{way:?}: {deleted:?}");
        // Once the topic is there again it is a gap, since it is no longer known as such.
        server.publish("/a", "again");
        assert_eq!(reader.data(), "again", "{way:?}");
        let mut reader = Reader::open(way, server.public, "/a", "", &since);
        assert_eq!(reader.hear(), gap("history", &since), "{way:?}");
        assert_eq!(reader.data(), "again", "{way:?}");
    }
}

#[test]
fn cursors_that_are_none_of_ours_are_answered_by_a_gap_and_the_value() {
    let server = Server::start();
    let id = server.publish("/a", "value");
    let huge = "9".repeat(3_000);
    let cases = [
        ("malformed", "nonsense".to_owned()),
        ("malformed", "-".to_owned()),
        ("malformed", "-1".to_owned()),
        ("malformed", "12".to_owned()),
        ("malformed", format!("{id}x")),
        ("malformed", format!("{id}-1")),
        ("malformed", "5f3a09c1-".to_owned()),
        ("malformed", "5f3a09c1--1".to_owned()),
        ("malformed", "5f3a09c1-18446744073709551616".to_owned()),
        ("malformed", "%00".to_owned()),
        ("malformed", "%22%3E%3Cscript%3E".to_owned()),
        ("malformed", huge),
        ("epoch", foreign(&id)),
        ("future", later(&id, 1_000)),
        ("future", later(&id, 1 << 60)),
    ];
    for way in Way::STREAMS {
        for (reason, cursor) in &cases {
            let short = &cursor[..cursor.len().min(40)];
            let mut reader = Reader::open(way, server.public, "/a", "", cursor);
            let since = if *reason == "malformed" { "" } else { cursor.as_str() };
            assert_eq!(reader.hear(), gap(reason, since), "{way:?} {short}");
            assert_eq!(reader.data(), "value", "{way:?} {short}");
            drop(reader);
        }
        // And it goes on from there.
        let mut reader = Reader::open(way, server.public, "/a", "", "nonsense");
        assert_eq!(reader.hear(), gap("malformed", ""));
        assert_eq!(reader.data(), "value");
        server.publish("/a", "value");
        assert_eq!(reader.data(), "value", "{way:?}");
    }
    let gaps = server.figure("counters/gaps");
    assert_eq!(gaps, (Way::STREAMS.len() * (cases.len() + 1)) as u64);
}

#[test]
fn a_gap_has_no_id_of_its_own() {
    let server = Server::start();
    server.publish("/a", "value");
    let mut stream = EventStream::open(server.public, "/a?since=nonsense", "");
    let gap = stream.event();
    // Otherwise a reader that is cut right behind it would come back as if it had all.
    assert_eq!((gap.name.as_deref(), gap.id), (Some("gap"), None));
    assert_eq!(gap.data, "{\"reason\":\"malformed\"}");
}

#[test]
fn a_topic_that_is_not_there_has_gaps_too() {
    let server = Server::start();
    let id = server.publish("/b", "another");
    for way in Way::STREAMS {
        let mut reader = Reader::open(way, server.public, "/none", "", &foreign(&id));
        assert_eq!(reader.hear(), gap("epoch", &foreign(&id)), "{way:?}");
    }
}

#[test]
fn what_fell_out_of_history_is_a_gap_and_then_what_is_left() {
    let server = Server::configured("[[topics]]\nmatch = '/short'\nhistory = 4\n");
    let ids: Vec<String> = (0..10).map(|i| server.publish("/short", &i.to_string())).collect();
    for way in Way::STREAMS {
        let mut reader = Reader::open(way, server.public, "/short", "", &ids[2]);
        assert_eq!(reader.hear(), gap("history", &ids[2]), "{way:?}");
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
        server.control.ask("DELETE", "/gone", "", b"").expect(204);
    }
    let data = |told: &serde_json::Value| told["data"].as_str().map(str::to_owned);
    let told = server.public.get("/-/events?topic=/*&since=earliest").expect(200).json();
    let told: Vec<_> = told.as_array().unwrap().iter().map(data).collect();
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
        assert_eq!(reader.hear(), gap("history", &first), "{way:?}");
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
            assert!(text.contains("event: gap\ndata: {\"reason\":\"malformed\"}\n\n"), "{text}");
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
        assert_eq!(reader.hear(), gap("epoch", &id), "{way:?}");
        server.publish("/a", "after");
        assert_eq!(reader.data(), "after", "{way:?}");
    }
}
