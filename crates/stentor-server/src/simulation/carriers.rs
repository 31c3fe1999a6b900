//! Streams that share a socket, each bound by itself.

use super::net::{Client, Layers};
use super::{PUBLIC, Parts, SMALL, World, kind, patient};
use stentor_hub::ContentType;
use stentor_io::Faults;

/// Worlds over the layer that carries streams, with the windows of streams and sockets small.
fn worlds(test: impl Fn(&mut World)) {
    for seed in 0..20 {
        let faults = Faults { window_bytes: 2_000, refuse_percent: 20, ..kind() };
        let mut settings = patient();
        settings.streams.stall_timeout_ms = super::PATIENCE_MS;
        test(&mut World::of(Parts::over(Layers::Multiplexed), seed, faults, settings));
    }
}

/// Clients with a stream each on one socket.
fn on_one_socket<const N: usize>(world: &mut World) -> [Client; N] {
    let first = world.sim.connect(PUBLIC);
    let clients = std::array::from_fn(|n| match n {
        0 => first,
        _ => world.sim.connect_beside(first),
    });
    world.settle();
    assert_eq!(world.totals().connections_public, N as u64, "each is a connection to the worker");
    assert_eq!(world.sim.open_sockets(), 1 + N, "a socket, and the streams on it");
    clients
}

fn read_events(world: &mut World, client: Client, topic: &str) {
    let get = format!("GET {topic} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
    world.sim.write(client, get.as_bytes());
}

#[test]
fn a_stream_that_is_not_read_blocks_itself_and_no_other() {
    worlds(|world| {
        let [deaf, reader, asker] = on_one_socket(world);
        world.sim.stall(deaf, true);
        read_events(world, deaf, "/live?mode=all");
        read_events(world, reader, "/live?mode=all");
        world.settle();
        let mut received = String::new();
        for n in 0..50 {
            let data = format!("{n:04}{}", "x".repeat(500));
            world.publish("/live", data.into_bytes(), ContentType::TEXT);
            world.sim.write(asker, b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
            world.settle();
            received += &String::from_utf8(world.sim.read(reader)).unwrap();
            assert!(received.contains(&format!("data: {n:04}x")), "{n} is there at once");
            assert!(world.sim.read(asker).ends_with(&super::large()), "answer {n}");
        }
        assert_eq!(received.matches("data: 00").count(), 50);
        let before = world.sim.read(deaf);
        assert!(before.len() <= 2_000, "{} bytes went beyond the window", before.len());
        assert_eq!(world.totals().readers_behind, 1);
        // Once it reads again, it gets what its rule keeps, and is told of the rest.
        world.sim.stall(deaf, false);
        world.settle();
        let text = String::from_utf8([before, world.sim.read(deaf)].concat()).unwrap();
        assert!(text.contains("data: 0049x") && text.ends_with("\n\n\r\n"), "{text}");
    });
}

#[test]
fn a_socket_that_breaks_ends_all_streams_on_it() {
    worlds(|world| {
        let [reader, poll, half, deaf, idle] = on_one_socket(world);
        world.sim.stall(deaf, true);
        read_events(world, reader, "/small");
        read_events(world, deaf, "/large");
        world.sim.write(poll, b"GET /-/events?topic=/quiet&wait=50 HTTP/1.1\r\nHost: h\r\n\r\n");
        world.sim.write(half, b"GET /small HT");
        let (other, _) = world.ask(PUBLIC, b"");
        world.settle();
        let totals = world.totals();
        assert_eq!((totals.readers_sse, totals.readers_long_poll), (2, 1));
        world.sim.reset_carrier(reader);
        world.settle();
        for client in [reader, poll, half, deaf, idle] {
            assert!(world.sim.was_reset(client) && !world.sim.was_cut(client));
        }
        if !world.sim.was_reset(other) {
            world.sim.reset_client(other);
        }
        world.settle();
        world.check_nothing_is_left();
        for topic in ["/small", "/large", "/quiet"] {
            world.check_nobody_reads(topic);
        }
    });
}

#[test]
fn a_long_poll_waits_while_others_on_its_socket_are_answered() {
    worlds(|world| {
        let [poll, asker] = on_one_socket(world);
        world.sim.write(poll, b"GET /-/events?topic=/quiet&wait=50 HTTP/1.1\r\nHost: h\r\n\r\n");
        world.settle();
        for _ in 0..20 {
            world.sim.write(asker, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
            world.settle();
            assert!(world.sim.read(asker).ends_with(SMALL));
        }
        assert_eq!((world.sim.read(poll), world.totals().readers_long_poll), (Vec::new(), 1));
        world.publish("/quiet", b"news".to_vec(), ContentType::TEXT);
        world.settle();
        let answer = String::from_utf8(world.sim.read(poll)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("news"), "{answer}");
    });
}

#[test]
fn what_a_stream_asked_before_its_end_is_answered_and_the_others_go_on() {
    worlds(|world| {
        let [ends, goes_on] = on_one_socket(world);
        let get = b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
        world.sim.stall(ends, true);
        world.sim.write(ends, &get.repeat(9));
        world.sim.finish_client(ends);
        world.settle();
        assert!(!world.sim.ended(ends));
        world.sim.stall(ends, false);
        world.settle();
        let answers = String::from_utf8_lossy(&world.sim.read(ends)).into_owned();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 9);
        assert!(world.sim.ended(ends) && !world.sim.was_reset(ends));
        world.sim.write(goes_on, get);
        world.settle();
        assert!(world.sim.read(goes_on).ends_with(&super::large()));
        world.sim.finish_client(goes_on);
        world.settle();
        world.check_nothing_is_left();
    });
}

#[test]
fn a_stop_ends_the_streams_and_opens_no_more() {
    worlds(|world| {
        let [reader, asker] = on_one_socket(world);
        read_events(world, reader, "/small");
        world.settle();
        // It is under way when the stop begins.
        let late = world.sim.connect_beside(reader);
        world.sim.write(late, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        let World { worker, sim, .. } = &mut *world;
        worker.execute(sim, crate::mailbox::Order::Drain);
        world.settle();
        let answer = String::from_utf8(world.sim.read(late)).unwrap();
        assert!(answer.contains("200 OK") && answer.contains("Connection: close"), "{answer}");
        let too_late = world.sim.connect(PUBLIC);
        world.settle();
        assert!(world.sim.was_reset(too_late), "it would need a new socket");
        world.sim.sleep(20_000);
        world.settle();
        for client in [reader, asker, late] {
            assert!(world.sim.ended(client) && !world.sim.was_reset(client));
            world.sim.finish_client(client);
        }
        world.settle();
        world.check_nothing_is_left();
    });
}

#[test]
fn what_a_layer_holds_of_a_record_waits_for_its_reader_as_a_backlog_does() {
    for seed in 0..20 {
        let faults = Faults { window_bytes: 13, ..kind() };
        let mut world = World::of(Parts::over(Layers::Tls), seed, faults, patient());
        let [asker, reader] = [(); 2].map(|()| world.sim.connect(PUBLIC));
        world.settle();
        world.sim.write(asker, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        read_events(&mut world, reader, "/live");
        world.settle();
        assert!(world.sim.read(asker).ends_with(SMALL));
        let text = String::from_utf8(world.sim.read(reader)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        // What is sent now is taken by the layer, all or most of it, and by the socket in part.
        for (client, sends_in) in [(asker, 0), (reader, 1)] {
            world.sim.stall(client, true);
            match sends_in {
                0 => world.sim.write(client, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n"),
                _ => world.publish("/live", b"news".to_vec(), ContentType::TEXT),
            }
        }
        world.settle();
        let totals = world.totals();
        assert_eq!((totals.connections_writing, totals.readers_behind), (1, 1), "{totals:?}");
        for client in [asker, reader] {
            world.sim.stall(client, false);
        }
        world.settle();
        assert!(world.sim.read(asker).ends_with(SMALL));
        assert!(String::from_utf8(world.sim.read(reader)).unwrap().contains("data: news\n"));
        let totals = world.totals();
        assert_eq!((totals.connections_writing, totals.readers_behind), (0, 0), "{totals:?}");
    }
}

#[test]
fn an_end_behind_what_is_not_read_is_heard_through_every_layer() {
    for layers in [Layers::Tls, Layers::Multiplexed] {
        let mut world = World::of(Parts::over(layers), 1, kind(), patient());
        let client = world.sim.connect(PUBLIC);
        let poll = b"GET /-/events?topic=/quiet&wait=50 HTTP/1.1\r\nHost: h\r\n\r\n";
        world.sim.write(client, poll);
        let behind = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2_000);
        world.sim.write(client, &behind);
        world.settle();
        assert_eq!((world.sim.read(client), world.totals().readers_long_poll), (Vec::new(), 1));
        world.sim.finish_client(client);
        world.settle();
        world.check_nothing_is_left();
    }
}
