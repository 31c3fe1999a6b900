//! What a turn is shared out among: nobody waits for all of a crowd.
//!
//! On the simulator whatever a server calls the kernel for takes ten microseconds, so what fits
//! into a share can be counted.

use super::*;
use crate::limits::RELIEF_PART;
use crate::listeners::REDIRECT;
use crate::mailbox::Order;
use crate::pressure::{Pressure, Pressures};
use stentor_config::Settings;
use stentor_io::{AcceptQueue, Backend};

/// Clients that have been answered once, and those who read a topic as a stream.
fn crowd(world: &mut World, clients: usize, head: &str) -> Vec<net::Client> {
    let connect = |_| {
        let client = world.sim.connect(PUBLIC);
        world.sim.write(client, head.as_bytes());
        client
    };
    let clients = (0..clients).map(connect).collect();
    world.settle();
    clients
}

fn world(settings: Settings) -> World {
    let plain = Parts { layers: Layers::Plain, ..Parts::default() };
    World::of(plain, 1, kind(), settings)
}

#[test]
fn nobody_waits_until_all_of_a_crowd_have_timed_out() {
    let mut settings = patient();
    settings.limits.keep_alive_timeout_ms = 1_000;
    let mut world = world(settings);
    crowd(&mut world, CROWD, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(world.open_sockets(), CROWD);
    // One who asks when their time is up is answered in the first turn.
    let other = world.sim.connect(PUBLIC);
    world.settle_some(2);
    world.sim.sleep(2_000);
    world.sim.write(other, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut turns = 0;
    while world.open_sockets() > 1 {
        let before = world.open_sockets();
        world.turn();
        turns += 1;
        let ended = before - world.open_sockets();
        assert!((1..=5).contains(&ended), "{ended} in one turn");
        if turns == 1 {
            let answer = String::from_utf8(world.sim.read(other)).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    assert!(turns >= CROWD / 5);
}

#[test]
fn nobody_waits_until_all_of_a_crowd_have_been_told_something() {
    let mut world = world(patient());
    let head = "GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let readers = crowd(&mut world, CROWD, head);
    readers.iter().for_each(|&reader| drop(world.sim.read(reader)));
    world.publish("/small", b"news".to_vec(), ContentType::TEXT);
    let mut left = readers;
    let mut turns = 0;
    while !left.is_empty() {
        let before = left.len();
        world.turn();
        left.retain(|&reader| world.sim.read(reader).is_empty());
        turns += 1;
        assert!(before - left.len() <= 10, "{} in one turn", before - left.len());
        assert!(turns < 2 * CROWD, "it does not come to an end");
    }
    assert!(turns >= CROWD / 10);
}

#[test]
fn whoever_listens_gets_as_much_of_a_turn_as_requests_took() {
    let mut world = world(patient());
    let head = "GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let readers = crowd(&mut world, CROWD, head);
    readers.iter().for_each(|&reader| drop(world.sim.read(reader)));
    world.publish("/small", b"news".to_vec(), ContentType::TEXT);
    let World { sim, worker, .. } = &mut world;
    worker.read_mailbox(sim);
    // A turn in which others were served for three tenths of a millisecond.
    let busy = sim.connect(PUBLIC);
    sim.write(busy, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    sim.turn(worker);
    let began_us = sim.turn_us();
    sim.work(30);
    assert!(sim.now_us() >= began_us + 300);
    worker.after_turn(sim);
    let told = readers.iter().filter(|&&reader| !world.sim.read(reader).is_empty()).count();
    assert!((30..=32).contains(&told), "{told}");
}

#[test]
fn a_long_turn_tells_readers_for_a_millisecond() {
    let mut world = world(patient());
    let head = "GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let readers = crowd(&mut world, CROWD, head);
    readers.iter().for_each(|&reader| drop(world.sim.read(reader)));
    let other = crowd(&mut world, 1, &head.replace("/small", "/other"))[0];
    world.sim.read(other);
    for topic in ["/small", "/other"] {
        world.publish(topic, b"news".to_vec(), ContentType::TEXT);
    }
    let World { sim, worker, .. } = &mut world;
    worker.read_mailbox(sim);
    sim.turn(worker);
    sim.work(1_000);
    worker.after_turn(sim);
    let told = readers.iter().filter(|&&reader| !world.sim.read(reader).is_empty()).count();
    assert!((90..=110).contains(&told), "{told}");
    assert!(!world.sim.read(other).is_empty(), "it waits for all readers of another topic");
}

/// Each leaves its queue as soon as it is reset.
#[test]
fn connections_that_have_gone_wait_no_longer() {
    let mut world = world(patient());
    world.publish("/half", vec![b'"'; 300_000], ContentType::TEXT);
    let clients = crowd(&mut world, 1_201, "");
    for &client in &clients {
        world.sim.write(client, b"GET /-/values?topic=/half HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    let World { sim, worker, .. } = &mut world;
    while sim.turn(worker) {}
    clients.iter().for_each(|&client| sim.reset_client(client));
    while sim.turn(worker) {}
    worker.after_turn(sim);
    assert_eq!(world.totals().waiting_requests, 0);
}

/// The cost of all connections together makes the shares of the last ones smaller.
#[test]
fn late_connections_of_a_turn_are_answered_less() {
    let mut world = world(patient());
    let clients = crowd(&mut world, 12, "");
    let requests = b"GET /text HTTP/1.1\r\nHost: h\r\n\r\n".repeat(200);
    clients.iter().for_each(|&client| world.sim.write(client, &requests));
    let answered = [(); 12].map(|()| {
        let before = world.totals().requests;
        let World { sim, worker, .. } = &mut world;
        sim.turn(worker);
        world.totals().requests - before
    });
    assert!(answered[0] > 8 * answered[11] && answered[11] > 0, "{answered:?}");
}

#[test]
fn when_many_wait_to_come_in_readers_are_told_to_come_back_later() {
    let mut world = world(patient());
    let mut retries = |age_ms: u64| {
        world.sim.set_accept_queue(AcceptQueue { waiting: 7, age_ms });
        world.settle();
        let retry_ms = |_| {
            let (_, answer) = world.ask(PUBLIC, STREAM);
            let retry = answer.split_once("\r\nretry: ").unwrap().1;
            retry.split_once('\n').unwrap().0.parse::<u64>().unwrap()
        };
        let mut retries: Vec<u64> = (0..100).map(retry_ms).collect();
        retries.sort_unstable();
        (retries[0], retries[99])
    };
    let usual = retries(999);
    assert!(usual.0 >= 2_000 && usual.1 <= 4_000, "{usual:?}");
    let late = retries(20_000);
    assert!((12_000..15_000).contains(&late.0) && (30_000..34_000).contains(&late.1), "{late:?}");
    let very_late = retries(u64::MAX / 2);
    assert!(very_late.0 >= 32_000 && very_late.1 <= 94_000, "{very_late:?}");
    let totals = world.totals();
    assert_eq!((totals.accept_queue, totals.accept_queue_age_ms), (7, u64::MAX / 2));
}

fn press(world: &mut World, process: Pressure) {
    let World { sim, worker, .. } = world;
    worker.execute(sim, Order::Memory(Pressures { process, ..Pressures::default() }));
}

#[test]
fn while_memory_is_short_idle_connections_are_closed_early() {
    let mut settings = patient();
    settings.limits.keep_alive_timeout_ms = 60_000;
    let mut world = world(settings);
    let get = "GET /small HTTP/1.1\r\nHost: h\r\n\r\n";
    crowd(&mut world, CROWD, get);
    let reader = world.ask(PUBLIC, STREAM).0;
    let partial = crowd(&mut world, 1, "GET /small HT")[0];
    press(&mut world, Pressure::High);
    world.settle();
    assert_eq!(world.open_sockets(), CROWD + 2, "they have a second");
    world.sim.sleep(1_200);
    // A few in each turn.
    world.settle_some(CROWD);
    assert_eq!(world.open_sockets(), 2);
    assert!(!world.sim.ended(reader) && !world.sim.ended(partial));
    // Who comes now has no more; later, as much as before.
    crowd(&mut world, 1, get);
    world.sim.sleep(1_200);
    world.settle();
    assert_eq!(world.open_sockets(), 2);
    press(&mut world, Pressure::None);
    crowd(&mut world, 1, get);
    world.sim.sleep(1_200);
    world.settle();
    assert_eq!(world.open_sockets(), 3);
}

/// The rest have their time from when their turn comes.
#[test]
fn few_connections_are_shortened_in_a_turn() {
    let mut world = world(patient());
    crowd(&mut world, CROWD, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    press(&mut world, Pressure::High);
    world.turn();
    for left in [CROWD - 64, 0] {
        world.sim.sleep(1_200);
        world.settle_some(CROWD);
        assert_eq!(world.open_sockets(), left);
    }
}

#[test]
fn while_memory_is_short_nobody_is_brought_what_was_missed() {
    let mut world = world(patient());
    let seq = world.shared.hub.seq();
    for n in 0..3 {
        world.publish("/small", format!("news {n}").into_bytes(), ContentType::TEXT);
    }
    let read = |world: &mut World, since: &str| {
        let request = format!(
            "GET /small?since={since} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"
        );
        world.ask(PUBLIC, request.as_bytes()).1
    };
    let ids = [format!("0badcafe-{seq}"), "earliest".to_owned()];
    for since in &ids {
        let answer = read(&mut world, since);
        assert!(answer.contains("news 0") && !answer.contains("{\"gap\""), "{answer}");
    }
    press(&mut world, Pressure::High);
    for since in &ids {
        let answer = read(&mut world, since);
        assert!(!answer.contains("news 1") && answer.contains("news 2"), "{answer}");
        assert!(
            answer.contains("event: stentor") && answer.contains("\"memory_pressure\""),
            "{answer}"
        );
    }
    // A poll is answered as ever. It would ask again without end.
    let value_id = format!("0badcafe-{}", world.shared.hub.seq());
    world.publish("/text", b"something else".to_vec(), ContentType::TEXT);
    let poll = |since: &str| format!("GET /small?wait=9&since={since} HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(world.ask(PUBLIC, poll(&value_id).as_bytes()).1, "");
    let (_, answer) = world.ask(PUBLIC, poll(&ids[0]).as_bytes());
    assert!(answer.ends_with("news 2"), "{answer}");
    let many = format!("GET /-/events?topic=/small&since={} HTTP/1.1\r\nHost: h\r\n\r\n", ids[0]);
    let (_, answer) = world.ask(PUBLIC, many.as_bytes());
    assert!(answer.contains("news 0") && !answer.contains("gap"), "{answer}");
    // Who has missed nothing hears of no gap.
    let newest = format!("0badcafe-{}", world.shared.hub.seq());
    let answer = read(&mut world, &newest);
    assert!(!answer.contains("{\"gap\""), "{answer}");
}

#[test]
fn while_memory_is_very_short_nobody_is_let_in_but_operators() {
    let mut world = world(patient());
    let get = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n";
    let (inside, _) = world.ask(PUBLIC, get);
    press(&mut world, Pressure::Critical);
    let (outside, answer) = world.ask(PUBLIC, get);
    assert_eq!(answer, "");
    // It is not blamed for the server's memory.
    let from = Some("192.0.2.1".parse().unwrap());
    let redirected = world.sim.connect_from(REDIRECT, from);
    world.sim.write(redirected, get);
    world.settle();
    let refused = world.totals().connections_refused;
    assert!(world.sim.read(redirected).is_empty() && refused == 0);
    let (_, answer) = world.ask(CONTROL, b"GET /-/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world.sim.write(inside, get);
    world.settle();
    assert!(!world.sim.read(inside).is_empty(), "who is in is answered");
    press(&mut world, Pressure::High);
    world.settle();
    assert!(!world.sim.read(outside).is_empty());
    assert!(world.sim.read(redirected).starts_with(b"HTTP/1.1 301 "));
}

/// After a mass reconnect readers wait for the server, and no socket is full.
#[test]
fn readers_that_wait_for_their_turn_are_not_behind() {
    let mut world = world(patient());
    let seq = world.shared.hub.seq();
    let before = world.totals();
    let stream = format!(
        "GET /-/events?topic=/*&since=0badcafe-{seq} HTTP/1.1\r\nHost: h\r\n\
         Accept: text/event-stream\r\n\r\n"
    );
    for n in 0..20 {
        world.publish(&format!("/{n}"), vec![b'x'; 100_000], ContentType::TEXT);
    }
    for _ in 0..9 {
        let client = world.sim.connect(PUBLIC);
        world.sim.write(client, stream.as_bytes());
    }
    let mut waiting_most = 0;
    for _ in 0..100 {
        world.turn();
        let totals = world.totals();
        waiting_most = totals.waiting_replays.max(waiting_most);
        let busy = (totals.readers_behind, totals.connections_writing);
        assert_eq!(busy, (before.readers_behind, before.connections_writing));
    }
    assert!(waiting_most > 1, "{waiting_most} waited");
}

#[test]
fn while_memory_is_very_short_readers_may_hold_half() {
    let mut settings = patient();
    settings.limits.readers_bytes_max = 100_000;
    let mut world = world(settings);
    // Heads that are not complete.
    let head = format!("GET /small HTTP/1.1\r\nX: {}", "x".repeat(7_000));
    let clients = crowd(&mut world, 10, &head);
    let cut = |world: &mut World| clients.iter().filter(|&&one| world.sim.was_cut(one)).count();
    assert_eq!(cut(&mut world), 0);
    press(&mut world, Pressure::Critical);
    world.settle();
    let left = clients.len() - cut(&mut world);
    let bytes = world.totals().readers_bytes as usize;
    assert!(bytes <= 50_000 && left > 0, "{left} hold {bytes}");
    // Some room is made beyond it, and not for one client more than that takes.
    let wanted = 50_000 - 50_000 / RELIEF_PART;
    assert!(bytes + bytes / left > wanted, "{left} hold {bytes}: one fewer than may stay");
}

const STREAM: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
const CROWD: usize = 300;
