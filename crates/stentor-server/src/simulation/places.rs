//! A server with as many connections as there may be: which of them it evicts, and how. Newcomers
//! get in whatever attackers do.

use super::codec::COMMANDER;
use super::faults::GET;
use super::net::{Client, Layers};
use super::{PUBLIC, Parts, World, kind, patient};
use crate::limits::{EVICTION_LOOK_MS, EVICTION_RETRY_MS};
use std::net::IpAddr;
use stentor_config::{AccessTarget, OrAuto, Settings};
use stentor_io::{Faults, Rng};
use stentor_test::seeds;
use stentor_wire::forwarded::ClientField;

const STREAM: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
const POLL: &[u8] = b"GET /nothing?wait=60 HTTP/1.1\r\nHost: h\r\n\r\n";
const HALF: &[u8] = b"GET /small HTTP/1.1\r\nHo";
const UPLOAD: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na";
const LARGE: &[u8] =
    b"GET /large HTTP/1.1\r\nHost: h\r\n\r\nGET /large HTTP/1.1\r\nHost: h\r\n\r\n";
const LAST: &[u8] = b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

fn settings() -> Settings {
    let mut settings = patient();
    settings.limits.connections_per_address = OrAuto::Set(0);
    settings
}

fn world(places: usize) -> World {
    let mut world = World::new(1, kind(), settings());
    limit(&mut world, places);
    world
}

fn limit(world: &mut World, places: usize) {
    world.sim.limit_connections(places);
    world.worker.limit_connections(places, 1);
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

/// Connects from there, and asks for something.
fn connect(world: &mut World, from: &str, request: &[u8]) -> Client {
    let client = world.sim.connect_from(PUBLIC, ip(from));
    world.sim.write(client, request);
    world.settle();
    client
}

/// A newcomer gets in, after some rounds of evictions at the most.
#[track_caller]
fn newcomer(world: &mut World, from: &str) -> Client {
    let client = connect(world, from, GET);
    let mut answer = Vec::new();
    for _ in 0..5 {
        answer.extend(world.sim.read(client));
        if answer.starts_with(b"HTTP/1.1 200 OK") {
            return client;
        }
        world.sim.sleep(2 * EVICTION_LOOK_MS);
        world.settle();
    }
    panic!("{from}: {}", answer.escape_ascii());
}

#[test]
fn an_evicted_reader_is_told_when_to_come_again() {
    let cases: [(&[u8], &str); 6] = [
        (STREAM, "retry: "),
        (POLL, "Retry-After: "),
        (HALF, "Retry-After: "),
        (UPLOAD, "Retry-After: "),
        (COMMANDER.as_bytes(), "\u{3f5}"),
        (b"", ""),
    ];
    for (request, told) in cases {
        let mut settings = settings();
        settings.log.access = Some(AccessTarget::Stdout);
        let mut world = World::new(1, kind(), settings);
        limit(&mut world, 2);
        let readers = [(); 2].map(|()| connect(&mut world, "192.0.2.1", request));
        readers.iter().for_each(|&reader| drop(world.sim.read(reader)));
        newcomer(&mut world, "198.51.100.1");
        let ended: Vec<&Client> = readers.iter().filter(|r| world.sim.ended(**r)).collect();
        assert_eq!(ended.len(), 1, "{told}");
        assert!(!world.sim.was_reset(*ended[0]), "{told}");
        let last = world.sim.read(*ended[0]);
        let code = 1013_u16.to_be_bytes();
        let is_told = match told {
            // A close frame of 1013.
            "\u{3f5}" => last.windows(2).any(|pair| pair == code),
            _ => String::from_utf8_lossy(&last).contains(told),
        };
        assert!(is_told, "{told}: {}", last.escape_ascii());
        assert_eq!(world.totals().connections_evicted, 1);
        // The last words are a response, and count as one, unless a stream has begun.
        let is_response = last.starts_with(b"HTTP/1.1 429 ");
        assert_eq!(is_response, told == "Retry-After: ", "{told}");
        assert_eq!(world.totals().answers_4xx, u64::from(is_response), "{told}");
        let lines = world.shared.access_log.as_ref().unwrap().read();
        let logged = lines.matches("\" 429 ").count();
        assert_eq!(logged, usize::from(is_response), "{told}: {lines}");
    }
}

/// One scan serves a crowd, and the next one comes later.
#[test]
fn one_scan_serves_a_crowd_of_newcomers() {
    let mut world = world(100);
    for _ in 0..100 {
        connect(&mut world, "192.0.2.1", b"");
    }
    for n in 0..40 {
        world.sim.connect_from(PUBLIC, ip(&format!("198.51.{n}.1")));
    }
    world.settle();
    assert_eq!(world.totals().connections_evicted, 40);
    connect(&mut world, "198.51.100.1", b"");
    assert_eq!(world.totals().connections_evicted, 40, "it is too soon");
    world.sim.sleep(60);
    world.settle();
    assert_eq!(world.totals().connections_evicted, 41);
}

#[test]
fn clients_that_do_not_take_their_answers_shut_nobody_out() {
    for request in [LARGE, LAST] {
        let mut world = World::new(1, Faults { window_bytes: 4096, ..kind() }, settings());
        limit(&mut world, 2);
        let readers = [(); 2].map(|()| {
            let client = world.sim.connect_from(PUBLIC, ip("192.0.2.1"));
            world.sim.stall(client, true);
            world.sim.write(client, request);
            world.settle();
            client
        });
        newcomer(&mut world, "198.51.100.1");
        let cut = readers.iter().filter(|&&reader| world.sim.was_cut(reader)).count();
        assert_eq!((cut, world.totals().connections_evicted), (1, 1));
    }
}

#[test]
fn two_addresses_that_hold_all_places_shut_nobody_out() {
    let mut world = world(40);
    let hoarders = |world: &mut World| {
        for n in 0..40 {
            connect(world, ["192.0.2.1", "203.0.113.1"][n % 2], STREAM);
        }
    };
    hoarders(&mut world);
    for n in 0..20 {
        let client = newcomer(&mut world, "198.51.100.1");
        // The hoarders come back as fast as they are turned away.
        for _ in 0..2 {
            world.sim.connect_from(PUBLIC, ip("192.0.2.1"));
        }
        world.settle();
        assert!(!world.sim.ended(client), "newcomer {n} was turned out again");
        if n % 2 == 1 {
            world.sim.finish_client(client);
            world.settle();
        }
    }
}

#[test]
fn the_longest_waiting_of_the_largest_prefix_goes_first() {
    let mut world = world(6);
    // One prefix of four addresses with one each, one address with two.
    let mut scattered = Vec::new();
    for n in 1..=4 {
        world.sim.sleep(1_000);
        scattered.push(connect(&mut world, &format!("192.0.2.{n}"), STREAM));
    }
    let pair = [(); 2].map(|()| connect(&mut world, "2001:db8::1", STREAM));
    newcomer(&mut world, "198.51.100.1");
    let ended: Vec<bool> = scattered.iter().map(|&client| world.sim.ended(client)).collect();
    assert_eq!(ended, [true, false, false, false]);
    newcomer(&mut world, "198.51.101.1");
    assert!(world.sim.ended(scattered[1]));
    assert!(pair.iter().all(|&client| !world.sim.ended(client)));
}

#[test]
fn single_clients_keep_their_places_and_loopback_is_exempt() {
    let mut settings = settings();
    settings.limits.connections_per_address = OrAuto::Auto;
    settings.proxies.trusted = vec!["10.0.0.0/8".parse().unwrap()];
    settings.proxies.header = Some(ClientField::XForwardedFor);
    let mut world = World::new(1, kind(), settings);
    limit(&mut world, 6);
    let single = connect(&mut world, "192.0.2.1", STREAM);
    for from in ["127.0.0.1", "10.0.0.1", "10.0.0.1", "198.51.100.1"] {
        connect(&mut world, from, STREAM);
    }
    // A connection that a trusted proxy keeps for later requests is exempt, too.
    let kept = connect(&mut world, "10.0.0.1", b"");
    let late = connect(&mut world, "203.0.113.1", GET);
    let answered = |world: &mut World| {
        for _ in 0..4 {
            world.sim.sleep(EVICTION_RETRY_MS);
            world.settle();
        }
        !world.sim.read(late).is_empty()
    };
    assert!(!answered(&mut world), "no prefix has two");
    assert_eq!(world.totals().connections_evicted, 0);
    // None could be evicted, so the worker has tried again and again, and now one can.
    let named = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\
        X-Forwarded-For: 192.0.2.1\r\n\r\n";
    world.sim.write(kept, named);
    assert!(answered(&mut world));
    assert!(world.sim.ended(single) && !world.sim.ended(kept));
    assert_eq!(world.totals().connections_evicted, 1);
}

#[test]
fn a_full_server_evicts_nobody_if_no_newcomer_waits() {
    let mut world = world(4);
    for _ in 0..4 {
        connect(&mut world, "192.0.2.1", STREAM);
    }
    // From the first newcomer on, the worker looks whether another one waits.
    for evicted in [0, 1] {
        for _ in 0..10 {
            world.sim.sleep(EVICTION_RETRY_MS);
            world.settle();
        }
        assert_eq!(world.totals().connections_evicted, evicted);
        connect(&mut world, "198.51.100.1", STREAM);
    }
}

/// The layer sends the last bytes of a connection that the worker has closed.
#[test]
fn newcomers_get_in_once_a_layer_has_ended() {
    let mut world = world(4);
    for _ in 0..4 {
        connect(&mut world, "192.0.2.1", STREAM);
    }
    world.worker.limit_connections(5, 1);
    let late = connect(&mut world, "198.51.100.1", GET);
    assert!(world.sim.read(late).is_empty());
    world.worker.limit_connections(4, 1);
    world.sim.sleep(EVICTION_RETRY_MS);
    world.settle();
    assert!(!world.sim.read(late).is_empty());
}

/// Attackers hold all places in whatever way chance has it, and come back at once; newcomers of
/// other addresses are answered all the same.
#[test]
fn newcomers_are_answered_whatever_attackers_do() {
    seeds::run("places", 60, |seed| {
        let mut rng = Rng::new(seed);
        let layers = [Layers::Plain, Layers::Tls][rng.below(2)];
        let mut faults =
            Faults { split_percent: 30, refuse_percent: 20, delay_ms_max: 3, ..kind() };
        if rng.percent(50) {
            faults.window_bytes = 4096;
        }
        let mut world = World::of(Parts::over(layers), seed, faults, settings());
        let places = 8 + rng.below(20);
        limit(&mut world, places);
        let attack = |world: &mut World, rng: &mut Rng| {
            let host = rng.below(if seed % 2 == 0 { 2 } else { 200 });
            let from = [format!("192.0.2.{host}"), format!("2001:db8:1:{host}::1")];
            let client = world.sim.connect_from(PUBLIC, ip(&from[rng.below(2)]));
            let ways = [STREAM, POLL, HALF, COMMANDER.as_bytes(), GET, b"", UPLOAD, LARGE, LAST];
            world.sim.stall(client, rng.percent(30));
            world.sim.write(client, ways[rng.below(ways.len())]);
        };
        for _ in 0..2 * places {
            attack(&mut world, &mut rng);
            world.settle_some(20);
        }
        for n in 0..20 {
            let client = world.sim.connect_from(PUBLIC, ip(&format!("198.51.{n}.1")));
            world.sim.write(client, GET);
            let mut answer = Vec::new();
            for _ in 0..200 {
                world.settle_some(20);
                answer.extend(world.sim.read(client));
                if answer.starts_with(b"HTTP/1.1 200 OK") {
                    break;
                }
                if rng.percent(20) {
                    attack(&mut world, &mut rng);
                }
                world.sim.sleep(10);
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "seed {seed}: newcomer {n}");
            world.sim.finish_client(client);
        }
        assert!(world.sim.open_sockets() <= places);
    });
}
