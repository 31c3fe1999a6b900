//! Limits that are no settings, each with what is within it and what is beyond.
//!
//! The numbers stand here once more, so a limit that is changed by far is noticed.

use super::codec::{COMMANDER, TEXT, put_frame};
use super::faults::{GET, world};
use super::{CONTROL, FILES, PUBLIC, Parts, World, kind, patient};
use crate::budget::{Permit, WorkClass, admitted, serve_next};
use crate::mailbox::Order;
use crate::paths::ECHO;
use crate::response::Persistence;
use crate::stream::batch::Sent;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use stentor_access::{Permissions, Secret, StaticToken};
use stentor_config::Mount;
use stentor_hub::{Applied, ContentType, Draft, Epoch, Hub, Keep, Limits};
use stentor_io::{Backend, Peer, Rng};
use stentor_order::{Due, Ticket};
use stentor_store::StoreState;
use stentor_wire::http1::{FieldSlots, parse};

/// Asks, and returns the status.
fn status(world: &mut World, role: u8, request: &str) -> String {
    let request = format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n");
    world.ask(role, request.as_bytes()).1.get(9..12).unwrap_or_default().to_owned()
}

fn topics(count: usize) -> String {
    (0..count).map(|n| format!("topic=/t{n}&")).collect()
}

#[test]
fn a_silent_publisher_is_refused() {
    let mut world = world(patient());
    let head = b"POST /-/publish HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (client, _) = world.ask(CONTROL, head);
    for (ms, is_over) in [(59_000, false), (1_500, true)] {
        world.sim.sleep(ms);
        world.settle();
        assert_eq!(world.sim.ended(client), is_over, "after another {ms} ms");
    }
    assert!(world.sim.read(client).starts_with(b"HTTP/1.1 408 "));
}

/// The head of a frame is enough to refuse it.
#[test]
fn a_websocket_takes_messages_of_a_bounded_length() {
    let plain = COMMANDER.replace("Sec-WebSocket-Protocol: stentor.v1\r\n", "");
    let echo = plain.replace("/-/events", std::str::from_utf8(ECHO).unwrap());
    let topic = plain.replace("/-/events", "/small");
    for (role, request, bytes_max) in
        [(PUBLIC, COMMANDER, 64 << 10), (PUBLIC, &topic, 4 << 10), (CONTROL, &echo, 16 << 20)]
    {
        for bytes in [bytes_max, bytes_max + 1] {
            let mut world = world(patient());
            let (client, answer) = world.ask(role, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
            let length = u64::to_be_bytes(bytes);
            let length = if bytes < 1 << 16 { &length[6..] } else { &length[..] };
            let code = if bytes < 1 << 16 { 126 } else { 127 };
            world.sim.write(client, &[&[TEXT, 0x80 | code], length, &[0; 4]].concat());
            world.settle();
            assert_eq!(world.sim.ended(client), bytes > bytes_max, "{bytes} bytes: {request}");
        }
    }
}

#[test]
fn a_follower_names_so_many_topics() {
    let mut world = world(patient());
    for (count, expected) in [(100, "200"), (101, "400")] {
        let request = format!("GET /-/feed?{}", topics(count));
        assert_eq!(status(&mut world, CONTROL, &request), expected, "{count} topics");
    }
}

#[test]
fn a_worker_has_so_many_followers() {
    let mut world = world(patient());
    for n in 0..256 {
        assert_eq!(status(&mut world, CONTROL, "GET /-/feed"), "200", "follower {n}");
    }
    assert_eq!(status(&mut world, CONTROL, "GET /-/feed"), "503");
}

#[test]
fn a_page_lists_so_many_topics() {
    let mut world = world(patient());
    for (limit, expected) in [(1_000, "200"), (1_001, "400")] {
        let request = format!("GET /-/topics?limit={limit}");
        assert_eq!(status(&mut world, CONTROL, &request), expected, "{limit} topics");
    }
}

/// Comparing what followers are sent with what they may read takes turns after a reload.
#[test]
fn a_reload_checks_few_followers_a_turn() {
    let mut world = world(patient());
    let request = format!("GET /-/feed?{}", topics(100));
    for _ in 0..40 {
        assert_eq!(status(&mut world, CONTROL, &request), "200");
    }
    world.worker.execute(&mut world.sim, Order::Reload(Arc::new(patient())));
    world.turn();
    assert!(world.worker.is_judging(), "all are looked at in one turn");
    world.settle();
    assert!(!world.worker.is_judging());
}

/// Commands are taken apart, so each byte costs more than one that is copied.
#[test]
fn a_command_costs_what_taking_it_apart_does() {
    let mut world = world(patient());
    let (client, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    let mut frame = Vec::new();
    put_frame(&mut frame, &mut Rng::new(1), TEXT, true, &[b'x'; 60_000]);
    let before = world.totals().cost_commands;
    world.sim.write(client, &frame);
    world.settle();
    assert!(world.totals().cost_commands - before >= 4 * 60_000);
}

/// A walk over a pattern looks at all names.
#[test]
fn catching_up_costs_names_and_messages() {
    let several = "/t/0&topic=/none";
    for (topic, found, cost_min) in [("/t/*", 100, 90_000), (several, 32, 32 * 250)] {
        let mut world = world(patient());
        for n in 0..100 {
            let name = if topic == several { "/t/0".to_owned() } else { format!("/t/{n}") };
            world.publish(&name, b"1".to_vec(), ContentType::TEXT);
        }
        let request = format!(
            "GET /-/events?topic={topic}&since=earliest HTTP/1.1\r\nHost: h\r\n\
             Accept: text/event-stream\r\n\r\n"
        );
        let (_, answer) = world.ask(PUBLIC, request.as_bytes());
        assert_eq!(answer.matches("\"data\":").count(), found);
        let cost = world.totals().cost_replays;
        assert!(cost >= cost_min, "{topic}: {cost}");
    }
}

#[test]
fn an_idle_stop_waits_for_a_packet() {
    let mut world = world(patient());
    world.worker.execute(&mut world.sim, Order::Drain);
    for (ms, has_ended) in [(190, false), (20, true)] {
        world.sim.sleep(ms);
        world.settle_some(3);
        assert_eq!(world.worker.has_ended(), has_ended, "after another {ms} ms");
    }
}

/// The kernel may repeat its part of a handshake.
#[test]
fn a_stop_closes_the_listeners_late() {
    let mut world = world(patient());
    world.ask(CONTROL, b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
    world.worker.execute(&mut world.sim, Order::Drain);
    let left_ms = world.worker.next_deadline_ms().unwrap() - world.sim.now_ms();
    assert!((1_001..5_000).contains(&left_ms), "{left_ms}");
}

/// A connection that waits is looked at in each turn.
#[test]
fn each_visit_to_a_line_costs_something() {
    let mut world = world(patient());
    let client = world.sim.connect(PUBLIC);
    world.settle();
    world.worker.stand_still(true);
    world.sim.write(client, GET);
    world.turn();
    let before = world.totals().cost_requests;
    world.settle_some(10);
    assert!(world.totals().cost_requests - before >= 10 * 200);
}

#[test]
fn heartbeats_may_be_off() {
    let mut settings = patient();
    settings.streams.heartbeat_ms = 0;
    let mut world = world(settings);
    let request = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let (client, _) = world.ask(PUBLIC, request);
    world.sim.sleep(3_600_000);
    world.settle();
    assert!(world.sim.read(client).is_empty() && !world.sim.ended(client));
}

#[test]
fn a_stream_names_its_heartbeat_interval() {
    for (heartbeat_ms, seconds) in [(15_000, "15"), (250, "0.25"), (0, "0")] {
        let mut settings = patient();
        settings.streams.heartbeat_ms = heartbeat_ms;
        let request = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
        let (_, head) = world(settings).ask(PUBLIC, request);
        assert!(head.contains(&format!("\r\nStentor-Heartbeat: {seconds}\r\n")), "{head}");
    }
}

/// Deadlines that have moved stand in the list of their old time.
#[test]
fn few_moved_deadlines_are_checked_a_turn() {
    let mut settings = patient();
    settings.limits.keep_alive_timeout_ms = 10_000;
    let mut world = world(settings);
    let clients: Vec<_> = (0..600).map(|_| world.ask(PUBLIC, GET).0).collect();
    world.sim.sleep(6_000);
    clients.iter().for_each(|&client| world.sim.write(client, GET));
    world.settle();
    world.sim.sleep(4_500);
    let mut turns = 0;
    while world.worker.next_deadline_ms().is_some_and(|ms| ms <= world.sim.now_ms()) {
        world.turn();
        turns += 1;
    }
    assert!((3..=5).contains(&turns), "{turns}");
    assert_eq!(world.open_sockets(), 600);
}

#[test]
fn each_send_costs_a_turn_something() {
    let mut cx = world(patient()).context(patient());
    let sent = Sent::default();
    cx.count_stream(0, &sent);
    assert!(cx.load.budget.cost >= 100);
}

#[test]
fn a_recovery_leaves_nothing_half_done() {
    let mut cx = world(patient()).context(patient());
    let peer = Peer::from_index(1);
    cx.load.budget.enter(WorkClass::CatchUp, peer, peer);
    let panics = || serve_next(&mut cx, WorkClass::CatchUp, |_, _| panic!("a panic for the tests"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    cx.load.budget.enter(WorkClass::CatchUp, peer, peer);
    cx.streams.batches.own().begin(&mut b"half of a message".to_vec());
    cx.recover(false, 0);
    let passed = admitted(&mut cx, WorkClass::CatchUp, |_, _| ());
    assert!(passed.is_none(), "another connection waits");
    assert!(cx.streams.batches.own().bytes().is_empty());
}

#[test]
fn a_clock_that_is_set_back_is_followed() {
    let mut cx = world(patient()).context(patient());
    for unix_s in [1_000, 1_001, 990] {
        cx.tick(0, 0, unix_s);
        assert_eq!(cx.clock.unix_s, unix_s);
    }
}

/// A message between two processes holds so much at most.
#[test]
fn a_worker_is_packed_in_parts() {
    let mut world = world(patient());
    for _ in 0..200 {
        world.ask(PUBLIC, &[GET, b"GET /", &[b'a'; 1_000]].concat());
    }
    let (heard_seq, mut parts) = (world.worker.can_be_packed().unwrap(), Vec::new());
    let World { sim, worker, .. } = &mut world;
    let packed = worker.pack(heard_seq, sim.now_ms(), &mut |bytes, _| {
        parts.push(bytes.len());
        Ok(())
    });
    packed.unwrap();
    assert!(parts.iter().all(|&bytes| bytes < 64 << 10), "{parts:?}");
    assert!(parts.len() < 10, "{parts:?}");
}

#[test]
fn many_tokens_are_remembered_once_they_are_verified() {
    let secret = Secret::make().unwrap();
    let token = StaticToken {
        name: "somebody".to_owned(),
        sha256: secret.sha256(),
        permissions: Permissions::default(),
        expires_unix_s: None,
    };
    let mut settings = patient();
    settings.tokens.tokens = vec![token];
    let world = world(settings);
    let grant = world.shared.tokens.keys().verify(secret.as_str(), 0).unwrap();
    for n in 0..20_000 {
        world.shared.tokens.verified.keep(&n.to_string(), grant.clone());
    }
    assert_eq!(world.shared.tokens.verified.count(), 20_000);
}

#[test]
fn a_turn_sends_a_part_of_a_file() {
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", FILES));
    settings.files.small_bytes_max = 100;
    let mut world = world(settings);
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, b"GET /files/large.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut sent = Vec::new();
    while sent.iter().sum::<usize>() < 19_834 {
        world.turn();
        sent.push(world.sim.read(client).len());
    }
    assert!(sent.iter().all(|&bytes| bytes < 2 * 4_096), "{sent:?}");
}

/// While the disk works on those, the worker sees to the next.
#[test]
fn many_promises_are_asked_for_at_once() {
    let hub = Arc::new(Hub::new(Epoch::random(), Vec::new(), Limits::default()));
    let kept = Some((hub, Arc::new(StoreState::new(usize::MAX, u64::MAX)) as _));
    let world = World::of(Parts { kept, ..Parts::default() }, 1, kind(), patient());
    let (mut cx, mut slots) = (world.context(patient()), FieldSlots::new());
    let request = parse(GET, &mut slots).unwrap().request;
    let persistence = Persistence { keep_alive: true, http10: false };
    let x = cx.exchange(PUBLIC, &request, persistence, Ticket::of_nobody(), &Permit::SMALL);
    let promised = [1, 2, 3].map(|line| {
        let published = world.publish_draft("/a", Draft::new(*b"1"));
        let due = Due { seq: published.id.seq, keep: Keep::Synced };
        x.when_kept(Ok(Applied::Put(published)), due, line);
        x.inbox.promised.borrow().len()
    });
    assert_eq!(promised, [1, 2, 0]);
}
