//! What readers see of a hub that outlived its process.

use super::{PUBLIC, World, kind, patient};
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
        let gap = format!("{{\"reason\":\"rolled-back\",\"since\":\"0badcafe-{seq}\"}}");
        let (gap_at, value_at) = (stream.find(&gap), stream.find("data: new"));
        assert!(gap_at.is_some() && gap_at < value_at, "{stream}");
    }
    for seq in [kept, last + 1] {
        let stream = stream_after(&mut world, seq);
        assert!(!stream.contains("gap"), "{stream}");
        assert_eq!(stream.contains("data: new"), seq == kept, "{stream}");
    }
}
