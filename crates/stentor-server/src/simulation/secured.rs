//! The layer as clients with records in their hands see it.

use super::net::{Client, Layers, tls};
use super::{Parts, SMALL, World, kind, patient};
use crate::limits::DRAIN_IDLE_MS;
use crate::listeners::{CONTROL, PUBLIC};
use crate::mailbox::Order;
use rustls::ClientConnection;
use rustls::crypto::aws_lc_rs::cipher_suite;
use std::io::{IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;
use stentor_config::Settings;
use stentor_hub::ContentType;
use stentor_io::{Backend, Directory, Found, Gone, Peer, Sent, Symlinks};
use stentor_tls_layer::{
    ENDING_MAX, HANDSHAKE_BYTES, HANDSHAKES_GRACE_MS, HANDSHAKES_MAX, Held, RECORD_BYTES_MAX,
    STREAM_RECORD_BYTES_MAX, Sessions, TlsCounts, TlsFailure, Unpacking,
};

const GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n";

/// As much of a handshake as begins one.
const HALF: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

fn held(world: &mut World) -> Held {
    world.sim.secured().held()
}

/// Takes the counts since the last call.
fn counts(world: &mut World) -> TlsCounts {
    world.sim.secured().take_counts().expect("TLS is in use")
}

fn world() -> World {
    World::of(Parts::over(Layers::Tls), 1, kind(), patient())
}

/// A client whose records a test has in its hands.
struct Raw {
    client: Client,
    connection: ClientConnection,
}

impl Raw {
    fn connect(world: &mut World) -> Raw {
        let mut raw = Raw::begin(world);
        raw.finish_handshake(world);
        raw
    }

    /// One that has said nothing yet.
    fn begin(world: &mut World) -> Raw {
        let config = Arc::new(tls::config(cipher_suite::TLS13_AES_128_GCM_SHA256, None));
        let (client, connection) = (world.sim.connect_bare(PUBLIC), tls::connection(&config));
        Raw { client, connection }
    }

    fn finish_handshake(&mut self, world: &mut World) {
        while self.connection.is_handshaking() {
            let records = self.records();
            world.sim.write(self.client, &records);
            self.hear(world).unwrap();
        }
        let records = self.records();
        world.sim.write(self.client, &records);
        self.hear(world).unwrap();
    }

    /// What it has to say.
    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).unwrap();
        }
        records
    }

    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.connection.writer().write_all(bytes).unwrap();
        self.records()
    }

    fn hear(&mut self, world: &mut World) -> Result<Vec<u8>, rustls::Error> {
        world.settle();
        let records = world.sim.read(self.client);
        let (mut rest, mut content) = (&records[..], Vec::new());
        while !rest.is_empty() {
            self.connection.read_tls(&mut rest).unwrap();
            let state = self.connection.process_new_packets()?;
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            self.connection.reader().read_exact(&mut part).unwrap();
            content.extend(part);
        }
        Ok(content)
    }
}

#[test]
fn who_asks_in_the_clear_is_told_so_in_the_clear() {
    let mut world = world();
    let client = world.sim.connect_bare(PUBLIC);
    world.sim.write(client, GET);
    world.settle();
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
    assert!(world.sim.ended(client) && !world.sim.was_reset(client));
    world.sim.finish_client(client);
    world.settle();
    world.check_nothing_is_left();
}

#[test]
fn tls_is_not_answered_in_the_clear() {
    let mut world = World::of(Parts::over(Layers::Plain), 1, kind(), patient());
    let client = world.sim.connect(CONTROL);
    world.sim.write(client, HALF);
    world.settle();
    assert_eq!(world.sim.read(client), b"");
    assert!(world.sim.ended(client) && !world.sim.was_reset(client));
    assert_eq!(world.totals().requests, 0);
    world.sim.finish_client(client);
    world.settle();
    world.check_nothing_is_left();
}

#[test]
fn a_bounded_number_of_connections_linger() {
    let mut world = world();
    let clients: Vec<Client> =
        (0..ENDING_MAX + 2).map(|_| world.sim.connect_bare(PUBLIC)).collect();
    clients.iter().for_each(|&client| world.sim.write(client, GET));
    world.settle_within(1_000_000);
    assert_eq!(held(&mut world).ending, ENDING_MAX);
    assert_eq!(world.open_sockets(), ENDING_MAX);
    clients.iter().for_each(|&client| world.sim.finish_client(client));
    world.settle_within(1_000_000);
    world.check_nothing_is_left();
}

/// Two seconds are enough to read the reason.
#[test]
fn refused_clients_that_do_not_end_are_closed() {
    let mut world = world();
    let client = world.sim.connect_bare(PUBLIC);
    world.sim.write(client, GET);
    world.settle();
    world.sim.sleep(1_900);
    world.settle();
    assert_eq!(world.open_sockets(), 1);
    world.sim.sleep(200);
    world.settle();
    world.check_nothing_is_left();
}

/// The worker closes it, and its last record cannot leave.
#[test]
fn clients_that_take_no_last_record_are_cut() {
    let mut world = World::of(Parts::over(Layers::Tls), 1, kind(), Settings::default());
    let client = Raw::connect(&mut world).client;
    world.sim.stall(client, true);
    world.sim.sleep(15_200);
    world.settle();
    assert_eq!((held(&mut world).ending, world.open_sockets()), (1, 1));
    world.sim.sleep(9_500);
    world.settle();
    assert!(!world.sim.was_cut(client));
    world.sim.sleep(1_000);
    world.settle();
    assert!(world.sim.was_cut(client));
    world.check_nothing_is_left();
}

/// Behind its last request a client may ask for other keys, or say that it ends.
#[test]
fn what_comes_behind_the_last_request_costs_no_answer() {
    for refreshes in [true, false] {
        let mut world = world();
        let mut raw = Raw::connect(&mut world);
        let request = raw.say(b"GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        world.sim.write(raw.client, &request);
        world.settle();
        // Closed by now, the server would answer this with a reset, which overtakes the answer.
        assert_eq!(world.open_sockets(), 1);
        match refreshes {
            true => raw.connection.refresh_traffic_keys().unwrap(),
            false => raw.connection.send_close_notify(),
        }
        let behind = raw.records();
        world.sim.write(raw.client, &behind);
        assert!(raw.hear(&mut world).unwrap().ends_with(SMALL));
        assert!(world.sim.ended(raw.client) && !world.sim.was_reset(raw.client));
        world.sim.finish_client(raw.client);
        world.settle();
        world.check_nothing_is_left();
    }
}

#[test]
fn what_is_not_authentic_is_told_and_never_taken() {
    for place in [5, 20, 40] {
        let mut world = world();
        let mut raw = Raw::connect(&mut world);
        let mut records = raw.say(GET);
        records[place] ^= 1;
        records.extend(raw.say(GET));
        world.sim.write(raw.client, &records);
        let heard = raw.hear(&mut world);
        let alert = rustls::AlertDescription::BadRecordMac;
        assert_eq!(heard, Err(rustls::Error::AlertReceived(alert)));
        assert!(world.sim.ended(raw.client) && !world.sim.was_reset(raw.client));
        assert_eq!(world.totals().requests, 0);
        // Closed at once, it would answer what still comes with a reset, which overtakes the alert.
        assert_eq!(world.open_sockets(), 1);
        world.sim.write(raw.client, GET);
        world.settle();
        assert!(!world.sim.was_reset(raw.client));
        world.sim.finish_client(raw.client);
        world.settle();
        world.check_nothing_is_left();
    }
}

/// As many as there may be who were answered and say nothing more.
fn dawdlers(world: &mut World) -> Vec<Client> {
    let hello = Raw::begin(world).records();
    let slow: Vec<_> = (0..HANDSHAKES_MAX).map(|_| world.sim.connect_bare(PUBLIC)).collect();
    slow.iter().for_each(|&client| world.sim.write(client, &hello));
    world.settle_within(1_000_000);
    slow
}

#[test]
fn who_has_not_said_hello_takes_no_place() {
    let mut world = world();
    for _ in 0..HANDSHAKES_MAX {
        let client = world.sim.connect_bare(PUBLIC);
        world.sim.write(client, HALF);
    }
    world.settle_within(1_000_000);
    let counts = counts(&mut world);
    assert_eq!((counts.handshakes_under_way, counts.handshakes_waiting), (0, 0));
    assert!(world.sim.secured().held_bytes(None) < HANDSHAKES_MAX * HANDSHAKE_BYTES);
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, GET);
    world.settle();
    assert!(world.sim.read(client).ends_with(SMALL));
}

#[test]
fn so_many_handshakes_are_under_way_and_who_dawdles_makes_room() {
    let mut world = world();
    let slow = dawdlers(&mut world);
    assert_eq!(counts(&mut world).handshakes_under_way, HANDSHAKES_MAX as u64);
    assert!(world.sim.secured().held_bytes(None) > HANDSHAKES_MAX * 4_096);
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, GET);
    for _ in 0..1_000 {
        world.turn();
    }
    assert_eq!(counts(&mut world).handshakes_waiting, 1);
    assert_eq!(world.sim.read(client), b"");
    world.sim.sleep(HANDSHAKES_GRACE_MS);
    world.settle_within(1_000_000);
    assert!(world.sim.read(client).ends_with(SMALL));
    assert_eq!(slow.iter().filter(|&&client| world.sim.ended(client)).count(), 1);
    assert_eq!(counts(&mut world).failed[TlsFailure::GivenUp as usize], 1);
}

/// Whoever has begun a handshake has the time that it takes, and then as much as any other has to
/// ask for something; whoever says nothing has that alone.
#[test]
fn a_stop_lets_handshakes_come_to_their_end() {
    for begins_first in [true, false] {
        let mut world = world();
        let mut asks = Raw::begin(&mut world);
        let mut silent = Raw::begin(&mut world);
        let mute = world.sim.connect_bare(PUBLIC);
        let flights = [asks.records(), silent.records()];
        let begin = |world: &mut World| {
            world.sim.write(asks.client, &flights[0]);
            world.sim.write(silent.client, &flights[1]);
            world.settle();
        };
        if begins_first {
            begin(&mut world);
        }
        let World { worker, sim, .. } = &mut world;
        worker.execute(sim, Order::Drain);
        if !begins_first {
            begin(&mut world);
        }
        world.sim.sleep(DRAIN_IDLE_MS + 200);
        world.settle();
        assert!(world.sim.ended(mute) && !world.sim.ended(asks.client), "{begins_first}");
        asks.finish_handshake(&mut world);
        silent.finish_handshake(&mut world);
        let request = asks.say(GET);
        world.sim.write(asks.client, &request);
        assert!(asks.hear(&mut world).unwrap().ends_with(SMALL));
        assert!(!world.sim.ended(silent.client));
        world.sim.sleep(DRAIN_IDLE_MS + 200);
        world.settle();
        assert!(world.sim.ended(silent.client) && !world.sim.was_reset(silent.client));
    }
}

#[test]
fn what_is_packed_is_sealed_by_one_process_alone() {
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    let peer = Peer::from_index(0);
    let text = [IoSlice::new(b"text")];
    world.sim.secured().pack(0, &mut |_| Ok(())).unwrap();
    assert_eq!(world.sim.send(peer, &text), Err(Gone));
    world.sim.secured().stay();
    assert_eq!(world.sim.send(peer, &text), Ok(Sent { bytes: 4, full: false }));
    assert_eq!(raw.hear(&mut world).unwrap(), b"text");
}

/// A part that grows leaves a copy of the keys in it, and does not fit a message.
#[test]
fn parts_of_packed_sessions_are_bounded() {
    let mut world = world();
    (0..800).for_each(|_| drop(Raw::connect(&mut world)));
    let mut lengths = Vec::new();
    let mut send = |part: &[u8]| {
        lengths.push(part.len());
        Ok(())
    };
    world.sim.secured().pack(0, &mut send).unwrap();
    assert!(lengths.len() > 2 && lengths.iter().all(|&bytes| bytes <= 48 * 1024), "{lengths:?}");
}

/// A record that was sealed is kept until the socket takes it.
#[test]
fn one_record_is_sealed_for_a_full_socket() {
    let mut world = world();
    let client = Raw::connect(&mut world).client;
    world.sim.stall(client, true);
    let text = vec![b'x'; 1 << 20];
    let sent = world.sim.send(Peer::from_index(0), &[IoSlice::new(&text)]);
    assert_eq!(sent, Ok(Sent { bytes: RECORD_BYTES_MAX, full: true }));
    assert!((RECORD_BYTES_MAX..20_000).contains(&world.sim.secured().held_bytes(None)));
}

#[test]
fn sessions_go_over_and_handshakes_do_not() {
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    let half = world.sim.connect_bare(PUBLIC);
    world.sim.write(half, HALF);
    let fresh = world.sim.connect(PUBLIC);
    world.settle();
    let mut next = world.sim.secured().without_connections();
    let mut unpacking = Unpacking::begin(0);
    let mut parts = Vec::new();
    let packed = world.sim.secured().pack(0, &mut |bytes| {
        parts.push(bytes.to_vec());
        unpacking.part(&mut next, bytes).map_err(std::io::Error::other)
    });
    packed.unwrap();
    *world.sim.secured() = next;
    world.settle();
    assert!(world.sim.ended(half));
    let request = raw.say(GET);
    world.sim.write(raw.client, &request);
    assert!(raw.hear(&mut world).unwrap().ends_with(SMALL));
    world.sim.write(fresh, GET);
    world.settle();
    assert!(world.sim.read(fresh).ends_with(SMALL));

    // Whatever else comes is judged, and nothing of it is believed.
    let good = parts.concat();
    for length in 0..good.len() {
        let mut sessions = Sessions::new(Arc::default(), CONTROL);
        let _ = Unpacking::begin(0).part(&mut sessions, &good[..length]);
    }
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        let mut sessions = Sessions::new(Arc::default(), CONTROL);
        let _ = Unpacking::begin(0).part(&mut sessions, &bytes);
    }
}

/// Nobody tells of what it has sent again.
#[test]
fn who_waits_in_line_is_called_by_the_next_process() {
    let mut world = world();
    dawdlers(&mut world);
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, GET);
    for _ in 0..1_000 {
        world.turn();
    }
    assert_eq!(counts(&mut world).handshakes_waiting, 1);
    let mut next = world.sim.secured().without_connections();
    let mut unpacking = Unpacking::begin(0);
    let packed = world
        .sim
        .secured()
        .pack(0, &mut |bytes| unpacking.part(&mut next, bytes).map_err(std::io::Error::other));
    packed.unwrap();
    *world.sim.secured() = next;
    world.settle_within(1_000_000);
    assert!(world.sim.read(client).ends_with(SMALL));
}

#[test]
fn a_turn_has_a_share_for_opening_records() {
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    let requests: Vec<u8> = (0..20).flat_map(|_| raw.say(GET)).collect();
    world.sim.write(raw.client, &requests);
    world.sim.secured().use_up_turn();
    world.turn();
    assert!(world.totals().requests <= 2, "{}", world.totals().requests);
    world.settle();
    assert_eq!(world.totals().requests, 20);
    assert!(raw.hear(&mut world).unwrap().ends_with(SMALL));
    assert_eq!(world.sim.secured().held_bytes(None), 0);
}

#[test]
fn who_goes_in_the_middle_of_a_handshake_is_counted_and_costs_no_other() {
    let mut world = world();
    let clients = [world.sim.connect_bare(PUBLIC), world.sim.connect_bare(CONTROL)];
    world.sim.write(clients[0], HALF);
    world.settle();
    assert!(world.sim.secured().held_bytes(None) > HALF.len());
    clients.iter().for_each(|client| world.sim.finish_client(*client));
    world.settle();
    assert_eq!(counts(&mut world).failed[TlsFailure::Unfinished as usize], 1);
    assert_eq!((held(&mut world).handshakes, world.sim.secured().held_bytes(None)), (0, 0));
    world.check_nothing_is_left();
}

#[test]
fn who_gives_up_while_it_waits_in_line_leaves_it() {
    let mut world = world();
    dawdlers(&mut world);
    let others = world.open_sockets();
    let client = world.sim.connect_bare(PUBLIC);
    world.sim.write(client, HALF);
    for _ in 0..1_000 {
        world.turn();
    }
    assert_eq!(world.open_sockets(), others + 1);
    world.sim.finish_client(client);
    for _ in 0..1_000 {
        world.turn();
    }
    assert_eq!(world.open_sockets(), others, "the client stays in the line");
    assert!(world.sim.ended(client));
}

#[test]
fn who_asks_for_other_keys_is_answered_though_there_is_nothing_else_to_say() {
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    raw.connection.refresh_traffic_keys().unwrap();
    let records = raw.records();
    world.sim.write(raw.client, &records);
    world.settle();
    assert_eq!(counts(&mut world).key_updates, 1);
    assert_eq!(raw.hear(&mut world).unwrap(), b"");
    let request = raw.say(GET);
    world.sim.write(raw.client, &request);
    assert!(raw.hear(&mut world).unwrap().ends_with(SMALL));
}

/// A piece of it goes into each record.
#[test]
fn a_file_of_many_records_is_what_it_was() {
    let own = include_bytes!("../worker.rs");
    assert!(own.len() > RECORD_BYTES_MAX + 1_000);
    let sources = Directory::open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))).unwrap();
    let found = sources.find("worker.rs", Symlinks::Refused).unwrap();
    let Found::File(file) = found else { panic!("it is a file") };
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    for from in [0, 1_000] {
        let (head, length) = ([IoSlice::new(b"head")], own.len() - from);
        let sent = world.sim.send_file(Peer::from_index(0), &head, &file, from as u64, length);
        assert_eq!(sent.unwrap().bytes, 4 + length);
        let heard = raw.hear(&mut world).unwrap();
        assert!(heard == [b"head", &own[from..]].concat(), "{}", heard.len());
    }
}

#[test]
fn a_session_has_few_bytes_and_what_it_had_is_used_again() {
    let mut world = world();
    for _ in 0..3 {
        let raws: Vec<_> = (0..20).map(|_| Raw::connect(&mut world)).collect();
        let TlsCounts { sessions, bytes, .. } = counts(&mut world);
        assert_eq!((sessions, held(&mut world).extras), (20, 0));
        assert_eq!(world.sim.secured().held_bytes(None), 0);
        assert!(bytes <= 64 * 1024 + 512);
        for raw in raws {
            world.sim.reset_client(raw.client);
        }
        world.settle();
        assert_eq!(counts(&mut world).sessions, 0);
    }
}

/// A browser shows an event once its whole record has come.
#[test]
fn records_of_a_stream_are_small() {
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    let request = raw.say(b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
    world.sim.write(raw.client, &request);
    raw.hear(&mut world).unwrap();
    world.publish("/small", vec![b'x'; 20_000], ContentType::TEXT);
    world.settle();
    let records = world.sim.read(raw.client);
    let (mut rest, mut lengths) = (&records[..], Vec::new());
    while let [_, _, _, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        lengths.push(length);
        rest = behind.get(length..).unwrap_or_default();
    }
    let is_small = |length: &usize| *length <= STREAM_RECORD_BYTES_MAX + 256;
    assert!(lengths.len() >= 5 && lengths.iter().all(is_small), "{lengths:?}");
}

#[test]
fn a_closed_connection_leaves_no_context() {
    let mut world = world();
    let mut raw = Raw::connect(&mut world);
    for _ in 0..3 {
        let request = raw.say(GET);
        world.sim.write(raw.client, &request);
        raw.hear(&mut world).unwrap();
    }
    assert_eq!(held(&mut world).contexts, 1);
    world.sim.finish_client(raw.client);
    world.settle();
    assert_eq!(held(&mut world).contexts, 0);
}

#[test]
fn a_bounded_number_of_connections_have_contexts() {
    let mut world = world();
    for _ in 0..300 {
        let mut raw = Raw::connect(&mut world);
        let request = raw.say(GET);
        world.sim.write(raw.client, &request);
        raw.hear(&mut world).unwrap();
    }
    let contexts = held(&mut world).contexts;
    assert!((100..=256).contains(&contexts), "{contexts}");
}
