//! What followers are brought, each case by itself; whole followers are in `streams/follower.rs`.

use super::net::Client;
use super::{CONTROL, World, kind, patient};
use crate::mailbox::Order;
use std::sync::Arc;
use stentor_config::Settings;
use stentor_hub::{ContentType, Id};
use stentor_io::Faults;

fn follow(world: &mut World, target: &str) -> Client {
    let client = world.sim.connect(CONTROL);
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    world.sim.write(client, request.as_bytes());
    world.settle();
    client
}

/// All that comes, however little the client takes at once.
fn receive(world: &mut World, client: Client) -> Vec<u8> {
    let mut received = Vec::new();
    loop {
        world.settle();
        let some = world.sim.read(client);
        if some.is_empty() {
            return received;
        }
        received.extend_from_slice(&some);
    }
}

/// How many frames of entries are in what came.
fn frames(bytes: &[u8]) -> usize {
    memchr::memmem::find_iter(bytes, b"\xf5SFE").count()
}

const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

#[test]
fn a_follower_that_is_brought_nothing_hears_that_its_leader_is_there() {
    let mut world = World::new(1, kind(), patient());
    let quiet = follow(&mut world, "/-/feed?topic=/quiet/*");
    let all = follow(&mut world, "/-/feed");
    assert_eq!((frames(&world.sim.read(quiet)), frames(&world.sim.read(all))), (1, 1));
    for _ in 0..20 {
        world.publish("/small", b"new".to_vec(), ContentType::TEXT);
        world.settle();
        world.sim.sleep(500);
        world.settle();
    }
    let (to_quiet, to_all) = (world.sim.read(quiet), world.sim.read(all));
    let signs = frames(&to_quiet);
    // It is looked at every half a second.
    assert!((5..=10).contains(&signs), "{signs} in ten seconds");
    let latest = world.shared.hub.seq();
    let mut told = (latest - 2..=latest).map(u64::to_le_bytes);
    let told = told.any(|seq| memchr::memmem::find(&to_quiet, &seq).is_some());
    assert!(told, "how far it is");
    assert_eq!(frames(&to_all), 20, "each is a sign of life");
}

#[test]
fn a_follower_that_does_not_read_costs_itself_alone() {
    let mut settings = patient();
    settings.limits.feed_bytes_max = 4_000;
    let mut world = World::new(1, Faults { window_bytes: 1_000, ..kind() }, settings);
    // More than is gathered for a socket at once: the end of a snapshot is far.
    for topic in 0..20 {
        world.publish(&format!("/large/{topic}"), vec![b'x'; 20_000], ContentType::TEXT);
    }
    let (slow, quick) = (follow(&mut world, "/-/feed"), follow(&mut world, "/-/feed"));
    world.sim.stall(slow, true);
    let snapshot = world.sim.connect(CONTROL);
    world.sim.stall(snapshot, true);
    world.sim.write(snapshot, b"GET /-/snapshot HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut received = Vec::new();
    for _ in 0..100 {
        world.publish("/small", vec![b'x'; 200], ContentType::TEXT);
        world.settle();
        received.extend_from_slice(&receive(&mut world, quick));
        let totals = world.totals();
        assert!(totals.feed_bytes <= 4_000 && totals.readers_cut == 0, "{totals:?}");
    }
    assert_eq!(frames(&received), 101, "an empty one, and what was published");
    let totals = world.totals();
    assert_eq!(totals.followers, 2, "{totals:?}");
    assert!(totals.followers_behind > 80, "{totals:?}");
    for client in [slow, snapshot] {
        world.sim.stall(client, false);
    }
    let (to_slow, of_snapshot) = (receive(&mut world, slow), receive(&mut world, snapshot));
    assert!(to_slow.ends_with(LAST_CHUNK), "it may come back");
    assert!(world.sim.ended(snapshot) && !of_snapshot.ends_with(LAST_CHUNK), "it is not whole");
    let totals = world.totals();
    assert_eq!((totals.followers_too_slow, totals.followers), (2, 1));
}

#[test]
fn a_feed_ends_when_its_reader_may_not_read_it_any_more() {
    let mut world = World::new(1, kind(), patient());
    let feed = follow(&mut world, "/-/feed?topic=/small");
    let mut settings: Settings = patient();
    world.worker.execute(&mut world.sim, Order::Reload(Arc::new(patient())));
    world.settle();
    assert!(!world.sim.ended(feed), "nothing is different");
    settings.access.control_token = true;
    world.worker.execute(&mut world.sim, Order::Reload(Arc::new(settings)));
    world.publish("/small", b"new".to_vec(), ContentType::TEXT);
    world.settle();
    let received = world.sim.read(feed);
    assert!(received.ends_with(LAST_CHUNK) && frames(&received) == 1, "and it was sent no more");
}

#[test]
fn the_next_process_ends_a_feed_behind_what_is_on_its_way() {
    let mut world = World::new(1, Faults { window_bytes: 700, ..kind() }, patient());
    let (idle, busy) = (follow(&mut world, "/-/feed"), follow(&mut world, "/-/feed"));
    world.sim.stall(busy, true);
    let mut sent = Vec::new();
    for _ in 0..10 {
        world.publish("/small", vec![b'x'; 200], ContentType::TEXT);
        sent.extend_from_slice(&receive(&mut world, idle));
    }
    assert!(world.hand_over(0));
    world.sim.stall(busy, false);
    let to_idle = [sent, receive(&mut world, idle)].concat();
    let to_busy = receive(&mut world, busy);
    assert!(to_idle.ends_with(LAST_CHUNK) && to_busy.ends_with(LAST_CHUNK));
    assert_eq!(frames(&to_idle), 11);
    assert!((1..11).contains(&frames(&to_busy)), "what was begun is whole");
    assert_eq!(world.totals().followers, 0);
    let seq = world.shared.hub.seq();
    world.publish("/small", b"meanwhile".to_vec(), ContentType::TEXT);
    let next = follow(&mut world, &format!("/-/feed?since=0badcafe-{seq}"));
    let sent = receive(&mut world, next);
    assert!(
        sent.starts_with(b"HTTP/1.1 200 ") && memchr::memmem::find(&sent, b"meanwhile").is_some()
    );
    let next = follow(&mut world, &format!("/-/feed?since=0badcafe-{}", seq - 1));
    assert!(world.sim.read(next).starts_with(b"HTTP/1.1 410 "), "this process does not know it");
}

#[test]
fn a_stalled_follower_has_the_write_timeout() {
    let mut settings = patient();
    settings.limits.head_timeout_ms = 5_000;
    settings.limits.write_timeout_ms = 20_000;
    let mut world = World::new(1, Faults { window_bytes: 1_000, ..kind() }, settings);
    // The snapshot is larger than the output buffer, so the transfer stays under way.
    for topic in 0..20 {
        world.publish(&format!("/large/{topic}"), vec![b'x'; 20_000], ContentType::TEXT);
    }
    let snapshot = world.sim.connect(CONTROL);
    world.sim.stall(snapshot, true);
    world.sim.write(snapshot, b"GET /-/snapshot HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle();
    for (ms, is_cut) in [(15_000, false), (6_000, true)] {
        world.sim.sleep(ms);
        world.settle();
        assert_eq!(world.sim.was_cut(snapshot), is_cut);
    }
}

#[test]
fn handed_over_feed_has_the_write_timeout() {
    let mut settings = patient();
    settings.limits.write_timeout_ms = 20_000;
    let mut world = World::new(1, kind(), settings);
    let feed = follow(&mut world, "/-/feed");
    world.sim.stall(feed, true);
    assert!(world.hand_over(0));
    for (ms, is_cut) in [(15_000, false), (6_000, true)] {
        world.sim.sleep(ms);
        world.settle();
        assert_eq!(world.sim.was_cut(feed), is_cut);
    }
}

/// The status of the answer to a feed that continues behind this id.
fn status_behind(world: &mut World, id: Id) -> String {
    let client = follow(world, &format!("/-/feed?since={id}"));
    let answer = String::from_utf8_lossy(&world.sim.read(client)).into_owned();
    world.sim.finish_client(client);
    world.settle();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn followers_at_rolled_back_numbers_are_refused() {
    let mut world = World::new(1, kind(), patient());
    follow(&mut world, "/-/feed");
    for _ in 0..4 {
        world.publish("/small", b"x".to_vec(), ContentType::TEXT);
        world.settle();
    }
    let seq = world.shared.hub.seq();
    world.shared.hub.follow_rolled_back(&[seq - 2..=seq - 1]);
    let ids = [seq - 3, seq - 2, seq - 1, seq].map(|seq| world.shared.hub.id(seq));
    let statuses = ids.map(|id| status_behind(&mut world, id));
    assert_eq!(statuses, ["200", "410", "410", "200"]);
}

#[test]
fn an_unused_ring_is_closed_after_five_minutes() {
    let mut world = World::new(1, kind(), patient());
    let before = world.shared.hub.id(world.shared.hub.seq());
    let client = follow(&mut world, "/-/feed");
    world.sim.finish_client(client);
    world.settle();
    for (minutes, status) in [(4, "200"), (6, "410")] {
        world.sim.sleep(minutes * 60_000);
        world.publish("/small", b"x".to_vec(), ContentType::TEXT);
        world.settle();
        assert_eq!(status_behind(&mut world, before), status, "{minutes} minutes");
    }
}
