//! Clients behind proxies: whose connection it is, by a header or by a field, and whose it is not.

use super::faults::GET;
use super::net::{Client, Layers};
use super::{PUBLIC, Parts, World, kind, patient};
use std::net::IpAddr;
use stentor_config::{AccessTarget, OrAuto, Settings};
use stentor_io::Faults;
use stentor_wire::forwarded::ClientField;

const PROXY: &str = "10.0.0.1";
const V1: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.9 56324 443\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\x0a\0\0\x09\xdc\x04\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Settings with a trusted network and a log, under which an address has two connections.
fn settings() -> Settings {
    let mut settings = patient();
    settings.log.access = Some(AccessTarget::Stderr);
    settings.proxies.trusted = vec!["10.0.0.0/8".parse().unwrap()];
    settings.limits.connections_per_address = OrAuto::Set(2);
    settings
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn world_over(layers: Layers, faults: Faults) -> World {
    World::of(Parts::over(layers), 3, faults, settings())
}

/// The addresses that were logged since the last time.
fn logged(world: &mut World) -> Vec<String> {
    world.settle();
    let log = world.shared.access_log.as_ref().unwrap().read();
    log.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn answer(world: &mut World, client: Client) -> String {
    world.settle();
    String::from_utf8_lossy(&world.sim.read(client)).into_owned()
}

#[test]
fn a_proxy_header_names_the_client_however_it_arrives() {
    let unkind = Faults { split_percent: 80, refuse_percent: 30, ..kind() };
    for layers in [Layers::Plain, Layers::Tls] {
        for (faults, header) in [kind(), unkind].into_iter().flat_map(|f| [(f, V1), (f, V2)]) {
            let mut world = world_over(layers, faults);
            let ask = |world: &mut World| {
                let client = world.sim.connect_through(ip(PROXY), header);
                world.sim.write(client, GET);
                let answer = answer(world, client);
                (client, answer)
            };
            let (first, answer) = ask(&mut world);
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{layers:?} {answer}");
            assert_eq!(logged(&mut world), ["192.0.2.1"]);
            assert!(ask(&mut world).1.starts_with("HTTP/1.1 200 OK"));
            // The client has two now, whatever the proxy has.
            let (third, answer) = ask(&mut world);
            assert!(!answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            // A handshake for a refusal would cost too much, and a full socket takes none.
            let is_told = layers == Layers::Plain && faults.refuse_percent == 0;
            assert!(!is_told || answer.starts_with("HTTP/1.1 429"), "{answer}");
            assert!(world.sim.ended(third));
            assert_eq!(world.totals().connections_refused, 1);
            world.sim.finish_client(first);
            world.settle();
            assert!(ask(&mut world).1.starts_with("HTTP/1.1 200 OK"), "a place is free");
        }
    }
}

#[test]
fn a_connection_for_proxies_without_a_good_header_is_closed() {
    let mut world = world_over(Layers::Plain, kind());
    // From no proxy that is trusted, whatever it says.
    let stranger = world.sim.connect_through(ip("192.0.2.7"), V1);
    world.sim.write(stranger, GET);
    assert_eq!(answer(&mut world, stranger), "");
    assert!(world.sim.ended(stranger));
    // Something else than a header.
    for bytes in [GET, b"PROXY TCP4 1 2 3 4\r\n", b"\x16\x03\x01\x02\0\x01"] {
        let client = world.sim.connect_through(ip(PROXY), bytes);
        world.sim.write(client, GET);
        assert_eq!(answer(&mut world, client), "");
        assert!(world.sim.ended(client));
    }
    assert_eq!(world.totals().proxy_headers_refused, 4);
    // A client that ends, and one that is silent, in the middle of it.
    let ended = world.sim.connect_through(ip(PROXY), &V1[..20]);
    world.sim.finish_client(ended);
    world.settle();
    assert_eq!(world.sim.open_sockets(), 0);
    let mut settings = settings();
    settings.limits.head_timeout_ms = 1_000;
    let mut world = World::new(1, kind(), settings);
    let silent = world.sim.connect_through(ip(PROXY), &V2[..20]);
    world.settle();
    world.sim.sleep(900);
    world.settle();
    assert!(!world.sim.ended(silent));
    world.sim.sleep(400);
    world.settle();
    assert!(world.sim.ended(silent));
    world.check_nothing_is_left();
}

#[test]
fn health_checks_of_a_proxy_do_not_fill_the_log() {
    let mut world = world_over(Layers::Plain, kind());
    for _ in 0..5 {
        let check = world.sim.connect_through(ip(PROXY), LOCAL);
        world.sim.write(check, GET);
        assert!(answer(&mut world, check).starts_with("HTTP/1.1 200 OK"));
        // One that only connects.
        let check = world.sim.connect_through(ip(PROXY), LOCAL);
        world.settle();
        world.sim.finish_client(check);
    }
    assert!(logged(&mut world).is_empty());
    // A client of which the proxy knows no address is logged by the proxy's.
    let client = world.sim.connect_through(ip(PROXY), b"PROXY UNKNOWN\r\n");
    world.sim.write(client, GET);
    assert_eq!(logged(&mut world), [PROXY]);
}

fn get_for(field: &str) -> String {
    format!("GET /small HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n")
}

#[test]
fn a_field_counts_only_from_a_trusted_proxy() {
    for (field, value) in [
        (ClientField::XForwardedFor, "X-Forwarded-For: 198.51.100.1, 192.0.2.1, 10.2.2.2"),
        (ClientField::Forwarded, "Forwarded: for=198.51.100.1, for=192.0.2.1;proto=https"),
    ] {
        let mut settings = settings();
        settings.proxies.header = Some(field);
        let mut world = World::new(1, kind(), settings);
        for (from, expected) in [(PROXY, "192.0.2.1"), ("192.0.2.77", "192.0.2.77")] {
            let client = world.sim.connect_from(PUBLIC, ip(from));
            world.sim.write(client, get_for(value).as_bytes());
            assert_eq!(logged(&mut world), [expected], "from {from}");
            // The next request of the same connection may be another client's, or the proxy's own.
            world.sim.write(client, get_for("X-Other: 1").as_bytes());
            assert_eq!(logged(&mut world), [from]);
        }
    }
    let mut settings = settings();
    settings.proxies.header = None;
    let mut world = World::new(1, kind(), settings);
    let client = world.sim.connect_from(PUBLIC, ip(PROXY));
    world.sim.write(client, get_for("X-Forwarded-For: 192.0.2.1").as_bytes());
    assert_eq!(logged(&mut world), [PROXY], "nothing is believed that is not asked for");
}

#[test]
fn a_client_behind_a_proxy_has_as_many_streams_as_any_other() {
    let mut world = World::new(1, kind(), settings());
    let stream = |world: &mut World, client: &str| {
        let connection = world.sim.connect_from(PUBLIC, ip(PROXY));
        let fields = format!("Accept: text/event-stream\r\nX-Forwarded-For: {client}");
        world.sim.write(connection, get_for(&fields).as_bytes());
        let answer = answer(world, connection);
        (connection, answer)
    };
    let (first, _) = stream(&mut world, "192.0.2.1");
    stream(&mut world, "192.0.2.1");
    let (third, answer) = stream(&mut world, "192.0.2.1");
    assert!(answer.contains("\r\n\r\nretry: ") && answer.contains("Too many"), "{answer}");
    assert!(world.sim.ended(third));
    assert!(stream(&mut world, "192.0.2.2").1.contains("data: "), "another client");
    assert_eq!(world.totals().readers_sse, 3);
    world.sim.finish_client(first);
    world.settle();
    assert!(stream(&mut world, "192.0.2.1").1.contains("data: "));
    // A connection that a proxy keeps for later has no client: any number of requests use it.
    let mut world = World::new(1, kind(), settings());
    for n in 0..6 {
        let connection = world.sim.connect_from(PUBLIC, ip(PROXY));
        let request = get_for("X-Forwarded-For: 192.0.2.1");
        world.sim.write(connection, request.as_bytes());
        let answer = self::answer(&mut world, connection);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{n}: {answer}");
    }
}

#[test]
fn a_client_that_a_proxy_has_named_goes_over_in_an_upgrade() {
    let mut world = world_over(Layers::Plain, kind());
    let clients: Vec<Client> = (0..2)
        .map(|_| {
            let client = world.sim.connect_through(ip(PROXY), V1);
            world.sim.write(client, GET);
            client
        })
        .collect();
    let direct = world.sim.connect_from(PUBLIC, ip("192.0.2.9"));
    // Half of a header is still in the socket.
    let half = world.sim.connect_through(ip(PROXY), &V2[..19]);
    world.settle();
    logged(&mut world);
    assert!(world.hand_over(0));
    world.settle();
    world.sim.write(clients[0], GET);
    assert_eq!(logged(&mut world), ["192.0.2.1"]);
    world.sim.write(direct, GET);
    assert_eq!(logged(&mut world), ["192.0.2.9"]);
    // It counts there, too.
    world.sim.write(half, &[&V2[19..], GET].concat());
    assert!(answer(&mut world, half).starts_with("HTTP/1.1 429"));
    for _ in 0..2 {
        world.sim.connect_from(PUBLIC, ip("192.0.2.9"));
    }
    world.settle();
    assert_eq!(world.totals().connections_refused, 2);
}

/// A newcomer is among the connections that are counted again after an upgrade.
#[test]
fn a_newcomer_after_an_upgrade_is_counted_once() {
    let mut world = world_over(Layers::Plain, kind());
    world.sim.connect_from(PUBLIC, ip("192.0.2.8"));
    world.settle();
    assert!(world.hand_over(0));
    for _ in 0..2 {
        world.sim.connect_from(PUBLIC, ip("192.0.2.9"));
        world.settle();
    }
    assert_eq!(world.totals().connections_refused, 0);
}

/// The kernel is asked for each address, so a turn has a slice of them.
#[test]
fn few_connections_are_counted_again_in_a_turn() {
    let mut world = world_over(Layers::Plain, kind());
    for n in 0..100 {
        world.sim.connect_from(PUBLIC, ip(&format!("198.51.100.{n}")));
        world.settle();
    }
    assert!(world.hand_over(0));
    world.turn();
    for _ in 0..2 {
        for n in [63, 99] {
            world.sim.connect_from(PUBLIC, ip(&format!("198.51.100.{n}")));
        }
    }
    let World { sim, worker, .. } = &mut world;
    while sim.turn(worker) {}
    assert_eq!(world.totals().connections_refused, 1, "that of one that is counted again");
    world.settle();
}
