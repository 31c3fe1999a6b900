//! What readers see of a hub that outlived its process.

use super::{PUBLIC, World, kind, patient};
use std::time::{Duration, UNIX_EPOCH};
use stentor_hub::ContentType;

/// The beginning of what a stream of `/a` says behind this number.
fn stream_after(world: &mut World, seq: u64) -> String {
    let head = "GET /a HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n";
    let request = format!("{head}Last-Event-ID: 0badcafe-{seq}\r\n\r\n");
    world.ask(PUBLIC, request.as_bytes()).1
}

#[test]
fn a_cursor_at_what_was_rolled_back_gets_a_gap_and_others_do_not() {
    let mut world = World::new(1, kind(), patient());
    world.publish("/a", b"kept".to_vec(), ContentType::TEXT);
    let kept = world.shared.hub.seq();
    let (first, last) = (kept + 1, kept + 100);
    world.shared.hub.continue_after(last, vec![first..=last]);
    world.publish("/a", b"new".to_vec(), ContentType::TEXT);
    for seq in [first, kept + 50, last] {
        let stream = stream_after(&mut world, seq);
        let gap = format!("{{\"reason\":\"rolled_back\",\"since\":\"0badcafe-{seq}\"");
        let (gap_at, value_at) = (stream.find(&gap), stream.find("data: new"));
        assert!(gap_at.is_some() && gap_at < value_at, "{stream}");
    }
    for seq in [kept, last + 1] {
        let stream = stream_after(&mut world, seq);
        assert!(!stream.contains("gap"), "{stream}");
        assert_eq!(stream.contains("data: new"), seq == kept, "{stream}");
    }
}

/// The status of a GET with nothing but this date.
fn status_since(world: &mut World, topic: &str, date: &str) -> String {
    let request = format!("GET {topic} HTTP/1.1\r\nHost: h\r\nIf-Modified-Since: {date}\r\n\r\n");
    world.ask(PUBLIC, request.as_bytes()).1[9..12].to_owned()
}

#[test]
fn no_date_says_that_a_client_has_what_was_there_before_a_rollback() {
    let mut world = World::new(1, kind(), patient());
    world.publish("/a", b"kept".to_vec(), ContentType::TEXT);
    let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(super::NOW_S)).to_string();
    assert_eq!(status_since(&mut world, "/a", &date), "304");
    // Its number was given to another value of the topic, which clients have under this date.
    let rolled_back = world.shared.hub.seq() + 1;
    world.shared.hub.continue_after(rolled_back, vec![rolled_back..=rolled_back]);
    assert_eq!(status_since(&mut world, "/a", &date), "200");
    world.publish("/b", b"new".to_vec(), ContentType::TEXT);
    assert_eq!(status_since(&mut world, "/b", &date), "304");
}
