//! How connections end on the simulated network: by a deadline, by the peer, after the last answer.

use super::faults::{GET, world};
use super::net::Layers;
use super::{CONTROL, PUBLIC, Parts, SMALL, World, kind, large};
use std::net::{IpAddr, Ipv4Addr};
use stentor_config::{Close, Settings};
use stentor_hub::ContentType;
use stentor_io::Faults;

#[test]
fn a_head_that_takes_too_long_gets_408_however_it_trickles() {
    let mut world = world(Settings::default());
    let client = world.sim.connect(PUBLIC);
    for byte in GET.iter().cycle().take(10) {
        world.sim.write(client, &[*byte]);
        world.settle();
        world.sim.sleep(1_500);
        world.turn();
    }
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(world.sim.ended(client));
}

#[test]
fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let mut world = world(Settings::default());
    let (client, answer) = world.ask(PUBLIC, b"");
    world.sim.sleep(10_200);
    world.turn();
    assert_eq!((answer.as_str(), world.sim.ended(client)), ("", true));
    assert_eq!(world.sim.open_sockets(), 0);
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LAST_GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn a_reset_that_was_chosen_waits_until_the_answer_is_acknowledged() {
    let mut settings = Settings::default();
    settings.limits.close = Close::Reset;
    let mut world = world(settings);
    let (again, _) = world.ask(PUBLIC, GET);
    let client = world.sim.connect_from(PUBLIC, Some(HERE));
    world.sim.write(client, LAST_GET);
    world.settle_some(2);
    assert_eq!(world.sim.open_sockets(), 2);
    assert!(world.sim.read(client).ends_with(SMALL));
    world.sim.sleep(300);
    world.turn();
    assert!(world.sim.was_reset(client) && !world.sim.was_reset(again));
    assert_eq!(world.sim.open_sockets(), 1);
}

#[test]
fn an_answer_that_nobody_acknowledges_is_never_thrown_away() {
    let mut settings = Settings::default();
    settings.limits.close = Close::Reset;
    let mut world = world(settings);
    let client = world.sim.connect_from(PUBLIC, Some(HERE));
    world.sim.write(client, LAST_GET);
    world.settle();
    world.sim.sleep(300);
    world.turn();
    assert!(world.sim.ended(client) && !world.sim.was_reset(client));
    assert!(world.sim.read(client).ends_with(SMALL));
    world.sim.sleep(2_200);
    world.turn();
    assert_eq!(world.sim.open_sockets(), 0);
}

#[test]
fn keep_alive_lasts_its_time_and_no_longer() {
    let mut world = world(Settings::default());
    let (client, _) = world.ask(PUBLIC, GET);
    for _ in 0..3 {
        world.sim.sleep(14_500);
        world.turn();
        world.sim.write(client, GET);
        world.settle();
        assert!(world.sim.read(client).ends_with(SMALL));
    }
    world.sim.sleep(15_200);
    world.turn();
    assert!(world.sim.ended(client));
}

#[test]
fn a_body_slower_than_the_minimum_rate_gets_408_and_publishes_nothing() {
    let mut world = world(Settings::default());
    let (client, _) =
        world.ask(CONTROL, b"PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
    for _ in 0..8 {
        world.sim.write(client, b"x");
        world.settle();
        world.sim.sleep(1_500);
        world.turn();
    }
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(world.shared.hub.value("/slow").is_none());
}

#[test]
fn a_body_above_the_minimum_rate_is_taken() {
    let mut world = world(Settings::default());
    let head = b"PUT /steady HTTP/1.1\r\nHost: h\r\nContent-Length: 15360\r\n\r\n";
    let (client, _) = world.ask(CONTROL, head);
    for _ in 0..30 {
        world.sim.sleep(1_000);
        world.settle();
        world.sim.write(client, &[b'x'; 512]);
        world.settle();
    }
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[test]
fn a_client_that_does_not_read_is_not_answered_further_and_then_cut() {
    let mut world = World::new(1, Faults { window_bytes: 50_000, ..kind() }, Settings::default());
    let client = world.sim.connect(PUBLIC);
    let request = b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
    world.sim.write(client, &request.repeat(10_000));
    world.settle_some(20);
    world.sim.stall(client, true);
    world.settle();
    let requests = world.totals().requests;
    assert!(requests < 200, "{requests} answers were made for a client that does not read");
    world.sim.sleep(30_200);
    world.turn();
    assert!(world.sim.was_reset(client));
    assert_eq!(world.sim.open_sockets(), 0);
}

#[test]
fn a_client_that_reads_a_little_now_and_then_is_not_cut() {
    let faults = Faults { window_bytes: 3_000, ..kind() };
    let mut world = World::new(1, faults, Settings::default());
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    world.sim.write(client, b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle();
    world.sim.stall(client, false);
    world.turn();
    world.sim.stall(client, true);
    world.settle();
    // It takes what there is, which is too little for the kernel to tell of room.
    let mut received = world.sim.read(client);
    world.sim.sleep(30_200);
    world.turn();
    assert!(!world.sim.was_reset(client));
    world.sim.stall(client, false);
    world.settle();
    received.extend(world.sim.read(client));
    assert!(received.ends_with(&large()));
}

/// Whether a client that takes at most so many bytes at a time, so often, of what is always there
/// is still connected after an hour.
fn stays_for_an_hour(is_stream: bool, window_bytes: usize, every_ms: u64) -> bool {
    let mut settings = Settings::default();
    settings.streams.stall_timeout_ms = 30_000;
    let faults = Faults { window_bytes, ..kind() };
    let mut world = World::of(Parts::over(Layers::Plain), 1, faults, settings);
    let publish = |world: &World| world.publish("/huge", vec![b'x'; 900_000], ContentType::TEXT);
    publish(&world);
    let accept = if is_stream { "Accept: text/event-stream\r\n" } else { "" };
    let request = format!("GET /huge HTTP/1.1\r\nHost: h\r\n{accept}\r\n").repeat(2);
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    world.sim.write(client, request.as_bytes());
    world.settle();
    for _ in 0..3_600_000 / every_ms {
        world.sim.sleep(every_ms);
        world.turn();
        world.sim.stall(client, false);
        world.turn();
        world.sim.read(client);
        world.sim.stall(client, true);
        world.settle();
        if world.sim.was_reset(client) {
            return false;
        }
    }
    true
}

#[test]
fn blocked_clients_keep_up_a_minimum_rate() {
    for is_stream in [false, true] {
        for (window_bytes, every_ms, stays) in
            [(600, 1_000, true), (9_000, 20_000, true), (1_024, 25_000, false)]
        {
            let is_kept = stays_for_an_hour(is_stream, window_bytes, every_ms);
            assert_eq!(is_kept, stays, "{is_stream} {window_bytes} every {every_ms} ms");
        }
    }
}

#[test]
fn a_client_cut_while_stalled_counts_as_timeout() {
    let mut world = World::new(1, Faults { window_bytes: 1_000, ..kind() }, Settings::default());
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    world.sim.write(client, b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle();
    world.sim.sleep(30_200);
    world.turn();
    assert_eq!((world.sim.was_reset(client), world.totals().timeouts), (true, 1));
}
