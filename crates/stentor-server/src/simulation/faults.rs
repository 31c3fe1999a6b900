//! Single misbehaviours on the simulated network, each with the answer it must get.

use super::codec::{COMMANDER, put_text};
use super::{CONTROL, PUBLIC, SMALL, World, kind, patient};
use crate::limits::TURN_COST_MAX;
use crate::mailbox::Order;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_config::{Mount, OrAuto, Settings};
use stentor_io::{Faults, Rng};
use stentor_wire::lookup::Template;

pub(super) fn world(settings: Settings) -> World {
    World::new(1, kind(), settings)
}

pub(super) const GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn ten_thousand_pipelined_requests_are_answered_in_order() {
    let mut world = world(patient());
    for n in 0..100 {
        world.publish(&format!("/n/{n}"), n.to_string().into_bytes(), super::ContentType::TEXT);
    }
    let requests: String =
        (0..10_000).map(|n| format!("GET /n/{} HTTP/1.1\r\nHost: h\r\n\r\n", n % 100)).collect();
    let (_, answers) = world.ask(PUBLIC, requests.as_bytes());
    let bodies: Vec<&str> = answers.split("\r\n\r\n").skip(1).collect();
    assert_eq!(bodies.len(), 10_000);
    for (n, body) in bodies.iter().enumerate() {
        let body = body.split("HTTP/1.1").next().unwrap();
        assert_eq!(body, (n % 100).to_string(), "answer {n}");
    }
}

#[test]
fn a_refused_request_is_told_why_even_if_the_client_goes_on_sending() {
    let mut world = world(Settings::default());
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    world.settle();
    world.sim.write(client, &[b'x'; 100_000]);
    world.sim.write(client, GET);
    world.settle();
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "the body was taken for a request");
    assert!(!world.sim.was_reset(client));
    world.sim.finish_client(client);
    world.settle();
    assert_eq!(world.sim.open_sockets(), 0);
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_once() {
    let mut world = world(patient());
    let head = b"PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let (client, answer) = world.ask(CONTROL, head);
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    world.sim.write(client, b"4");
    world.settle();
    assert!(world.sim.read(client).is_empty());
    world.sim.write(client, b"2");
    world.settle();
    assert!(world.sim.read(client).starts_with(b"HTTP/1.1 201 Created\r\n"));
}

#[test]
fn what_was_asked_before_the_end_is_answered() {
    let mut world = World::new(1, Faults { window_bytes: 9, ..kind() }, patient());
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, &GET.repeat(50));
    world.sim.finish_client(client);
    world.settle();
    let answers = String::from_utf8(world.sim.read(client)).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 50);
    assert_eq!(world.sim.open_sockets(), 0);
}

#[test]
fn draining_answers_what_was_asked_then_ends() {
    let mut world = world(Settings::default());
    let (idle, _) = world.ask(PUBLIC, GET);
    let (half, _) = world.ask(PUBLIC, &GET[..20]);
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    world.sim.write(half, &GET[20..]);
    world.settle();
    let answer = String::from_utf8(world.sim.read(half)).unwrap();
    assert!(answer.contains("\r\nConnection: close\r\n") && answer.contains("200 OK"), "{answer}");
    assert!(world.sim.ended(half) && !world.sim.ended(idle));
    world.sim.finish_client(half);
    world.settle();
    world.sim.sleep(700);
    world.turn();
    assert!(world.sim.ended(idle) && !world.worker.has_ended());
    world.sim.sleep(1_000);
    world.settle_some(2);
    assert!(world.worker.has_ended());
}

#[test]
fn draining_answers_all_that_was_received() {
    let mut world = World::new(1, Faults { window_bytes: 9_000, ..kind() }, Settings::default());
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, &b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(200));
    world.settle_some(5);
    assert!(world.totals().requests < 100, "the stop comes in the middle");
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    world.settle();
    let answers = String::from_utf8_lossy(&world.sim.read(client)).into_owned();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 200);
    assert_eq!(answers.matches("Connection: close").count(), 1);
    assert!(world.sim.ended(client));
}

#[test]
fn draining_tells_a_stream_of_messages_what_came_of_it() {
    let mut world = world(Settings::default());
    let (client, _) = world.ask(
        CONTROL,
        b"POST /-/publish HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
          1d\r\n{\"topic\":\"/live\",\"data\":\"1\"}\n\r\n",
    );
    assert!(world.shared.hub.value("/live").is_some());
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.contains("Connection: close\r\n"), "{answer}");
    assert!(answer.contains("\"published\":1,\"failed\":0"), "{answer}");
    world.sim.write(client, b"1d\r\n{\"topic\":\"/late\",\"data\":\"1\"}\n\r\n");
    world.settle();
    assert!(!world.sim.was_reset(client) && world.shared.hub.value("/late").is_none());
}

#[test]
fn one_clients_burst_does_not_hold_up_another() {
    let mut world = world(patient());
    world.publish("/big", vec![b'"'; 400_000], super::ContentType::TEXT);
    let greedy = world.sim.connect(PUBLIC);
    let head = b"HEAD /-/values?topic=/big HTTP/1.1\r\nHost: h\r\n\r\n";
    world.sim.write(greedy, &head.repeat(500));
    world.settle_some(2);
    let modest = world.sim.connect(PUBLIC);
    world.sim.write(modest, GET);
    while world.sim.read(modest).is_empty() {
        assert!(world.turn(), "the server hangs");
    }
    let requests = world.totals().requests;
    assert!(requests < 50, "{requests} requests of another client came first");
    world.settle();
    assert_eq!(world.totals().requests, 501);
}

#[test]
fn a_turn_answers_only_so_much_of_what_one_client_asks() {
    let mut world = world(patient());
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, &b"GET /text HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2_000));
    // Once as it comes in, and once more when its turn in line has come.
    let requests_max = 2 * (TURN_COST_MAX / super::TEXT_BYTES) as u64;
    let mut before = 0;
    while world.turn() {
        let requests = world.totals().requests;
        assert!(requests - before <= requests_max, "{} in one turn", requests - before);
        before = requests;
    }
    assert_eq!(before, 2_000);
}

#[test]
fn a_client_whose_reads_always_end_within_a_request_is_not_cut() {
    let mut world = world(Settings::default());
    let (client, _) = world.ask(PUBLIC, &GET[..20]);
    let next = [&GET[20..], &GET[..20]].concat();
    for _ in 0..10 {
        world.sim.sleep(4_000);
        world.turn();
        world.sim.write(client, &next);
        world.settle();
        assert!(world.sim.read(client).ends_with(SMALL));
    }
}

#[test]
fn what_nobody_asks_for_any_more_is_not_compressed() {
    let mut world = world(patient());
    let text = || super::text();
    let get = b"GET /text HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n";
    world.ask(PUBLIC, get);
    assert!(world.jobs.run_one() && !world.jobs.run_one());
    world.publish("/text", text(), super::ContentType::TEXT);
    assert!(world.jobs.run_one(), "it is made before anybody asks again");
    let (_, answer) = world.ask(PUBLIC, get);
    assert!(answer.contains("Content-Encoding: gzip"));
    world.publish("/text", text(), super::ContentType::TEXT);
    assert!(world.jobs.run_one(), "the one before was asked for though it was there");
    world.publish("/text", text(), super::ContentType::TEXT);
    assert!(!world.jobs.run_one(), "nobody asked for the one before");
}

#[test]
fn a_look_up_in_another_format_is_another_answer() {
    let mut world = world(patient());
    let (_, answer) = world.ask(PUBLIC, b"GET /list=small HTTP/1.1\r\nHost: h\r\n\r\n");
    let (_, rest) = answer.split_once("ETag: ").unwrap();
    let (tag, _) = rest.split_once("\r\n").unwrap();
    let again = format!("GET /list=small HTTP/1.1\r\nHost: h\r\nIf-None-Match: {tag}\r\n\r\n");
    let (_, answer) = world.ask(PUBLIC, again.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 304 "), "{answer}");
    let mut settings = patient();
    settings.lookups[0].line = Some(Template::parse("{name}={value};").unwrap());
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Reload(Arc::new(settings)));
    let (_, answer) = world.ask(PUBLIC, again.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("small=183.22 +1.2%;"), "{answer}");
}

#[test]
fn preconditions_follow_their_order_and_their_limits() {
    let mut world = world(patient());
    let put = |fields: &str| {
        format!("PUT /small HTTP/1.1\r\nHost: h\r\n{fields}\r\nContent-Length: 1\r\n\r\n1")
    };
    let date = "Sun, 21 Jun 2020 00:00:00 GMT";
    for (request, status) in [
        (put(&format!("If-Unmodified-Since: {date}")), 400),
        (put("If-Match: *\r\nIf-None-Match: *"), 400),
        (format!("GET /small HTTP/1.1\r\nHost: h\r\nIf-Unmodified-Since: {date}\r\n\r\n"), 412),
        (format!("GET /small HTTP/1.1\r\nHost: h\r\nIf-Modified-Since: {date}\r\n\r\n"), 200),
    ] {
        let (_, answer) = world.ask(CONTROL, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
    }
    let date = "Sun, 21 Jun 2026 00:00:00 GMT";
    let since = format!("GET /small HTTP/1.1\r\nHost: h\r\nIf-Modified-Since: {date}\r\n\r\n");
    let (_, answer) = world.ask(PUBLIC, since.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 304 "), "{answer}");
    // A second value within the second: the date no longer tells.
    world.publish("/small", b"2".to_vec(), super::ContentType::TEXT);
    let (_, answer) = world.ask(PUBLIC, since.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_publish_that_is_refused_changes_nothing() {
    let mut world = world(patient());
    let before = world.shared.hub.counts().published_total;
    let put = |head: &str| format!("PUT {head}\r\nHost: h\r\n");
    for (request, status) in [
        (put("/small HTTP/1.1") + "If-Match: \"0badcafe-9\"\r\nContent-Length: 1\r\n\r\n1", "412"),
        (put("/small HTTP/1.1") + "Content-Encoding: br\r\nContent-Length: 1\r\n\r\n1", "415"),
        (put("/small HTTP/1.1") + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n1", "400"),
        (put("/small HTTP/1.1") + "Content-Length: 1048577\r\n\r\n", "413"),
        (put("/small HTTP/1.1") + "Stentor-Event: a\tb\r\nContent-Length: 1\r\n\r\n1", "400"),
        (put("/small HTTP/1.1") + "Origin: http://evil\r\nContent-Length: 1\r\n\r\n1", "403"),
        (put("/small HTTP/1.1") + "\r\n", "411"),
        (put("/a//b HTTP/1.1") + "Content-Length: 1\r\n\r\n1", "400"),
        (put("/-/x HTTP/1.1") + "Content-Length: 1\r\n\r\n1", "405"),
        (put("/%zz HTTP/1.1") + "Content-Length: 1\r\n\r\n1", "400"),
        (put("/-/y HTTP/1.1") + "Content-Length: 32\r\n\r\n" + str::from_utf8(GET).unwrap(), "405"),
    ] {
        let refused = world.totals().publishes_refused;
        let (_, answer) = world.ask(CONTROL, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request}\n{answer}");
        assert_eq!(world.totals().publishes_refused, refused + 1, "{request}");
    }
    assert_eq!(world.shared.hub.counts().published_total, before);
    assert_eq!(world.shared.hub.value("/small").unwrap().data(), SMALL);
}

#[test]
fn an_upgrade_is_begun_where_it_may_be_and_its_body_passes_by() {
    let mut world = world(patient());
    let begun = Arc::new(AtomicUsize::new(0));
    let post = |more: &str| format!("POST /-/upgrade HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    let ask = |world: &mut World, listener, more: &str, status: &str| {
        let (_, answer) = world.ask(listener, post(more).as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{more}\n{answer}");
        answer
    };
    ask(&mut world, CONTROL, "", "503");
    let count = Arc::clone(&begun);
    world.shared.process.upgrades.begin_by(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    ask(&mut world, PUBLIC, "", "405");
    ask(&mut world, CONTROL, "Origin: http://evil\r\n", "403");
    ask(&mut world, CONTROL, "Content-Length: 1048577\r\n", "413");
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    let body = "abc";
    let request = post("Content-Length: 3\r\n") + body + str::from_utf8(GET).unwrap();
    let (_, answer) = world.ask(CONTROL, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    ask(&mut world, CONTROL, "", "409");
    let reload = post("").replace("upgrade", "reload");
    world.shared.process.reloads.begin_by(Box::new(|| {}));
    for status in ["202", "409"] {
        let (_, answer) = world.ask(CONTROL, reload.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    world.shared.process.is_stopping.store(true, Ordering::Relaxed);
    ask(&mut world, CONTROL, "", "503");
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_costs_its_connection_and_no_other() {
    let mut world = world(Settings::default());
    let (other, answer) = world.ask(PUBLIC, GET);
    let unlucky = world.sim.connect(PUBLIC);
    world.sim.write(unlucky, &[GET, b"GET /-/panic HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.settle()));
    assert!(panicked.is_err());
    let World { worker, sim, .. } = &mut world;
    worker.recover(sim);
    assert!(world.sim.ended(unlucky));
    world.sim.write(other, GET);
    world.settle();
    assert_eq!(String::from_utf8(world.sim.read(other)).unwrap(), answer, "and nobody else's");
    let totals = world.totals();
    assert_eq!((totals.connections_public, totals.connections_reading), (1, 0));
}

/// A connection that ends behind an answer that waited: what came in meanwhile was not read, and to
/// close on it would be a reset that overtakes the answer.
#[test]
fn an_answer_that_waited_is_not_lost_by_what_comes_behind_it() {
    let mut world = World::new(1, Faults { window_bytes: 3_000, ..kind() }, patient());
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    world.sim.write(client, b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    world.settle();
    world.sim.write(client, GET);
    world.sim.stall(client, false);
    world.settle();
    assert!(world.sim.read(client).ends_with(&super::large()));
    assert!(world.sim.ended(client) && !world.sim.was_cut(client));
}

/// Event that makes the worker panic is told again by history, as is what came with it.
#[test]
fn events_that_a_panic_took_are_not_lost() {
    for target in ["/-/events?topic=/**", "/-/events?topic=/n&topic=/-panic"] {
        let mut world = world(patient());
        let get = format!("GET {target} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        let (reader, _) = world.ask(PUBLIC, get.as_bytes());
        for (topic, data) in [("/n", "one"), ("/-panic", "two"), ("/n", "three"), ("/n", "four")] {
            world.publish(topic, data.into(), super::ContentType::TEXT);
        }
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.settle()));
        assert!(panicked.is_err());
        let World { worker, sim, .. } = &mut world;
        worker.recover(sim);
        world.settle();
        let received = String::from_utf8(world.sim.read(reader)).unwrap();
        let heard: Vec<&str> = ["one", "two", "three", "four"]
            .into_iter()
            .filter(|data| received.matches(&format!("\"{data}\"")).count() == 1)
            .collect();
        assert_eq!(heard, ["one", "two", "three", "four"], "{target}: {received}");
        world.publish("/n", b"five".to_vec(), super::ContentType::TEXT);
        world.settle();
        let received = String::from_utf8(world.sim.read(reader)).unwrap();
        assert_eq!(received.matches("data: ").count(), 1, "{received}");
    }
}

/// A command takes events in: who panics over one ends, and the others are told of it all the same.
#[test]
fn an_event_that_a_panic_took_during_a_command_is_not_lost() {
    let mut world = world(patient());
    let get = b"GET /-panic HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let (reader, _) = world.ask(PUBLIC, get);
    let (commander, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    world.publish("/-panic", b"news".to_vec(), super::ContentType::TEXT);
    let mut frame = Vec::new();
    put_text(&mut frame, &mut Rng::new(1), br#"{"subscribe":["/n"]}"#);
    world.sim.write(commander, &frame);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.settle()));
    assert!(panicked.is_err());
    let World { worker, sim, .. } = &mut world;
    worker.recover(sim);
    assert!(world.sim.ended(commander) && !world.sim.ended(reader));
    world.settle();
    let received = String::from_utf8(world.sim.read(reader)).unwrap();
    assert_eq!(received.matches("data: news\n").count(), 1, "{received}");
}

#[test]
fn a_request_that_ends_where_the_turns_share_does_is_answered() {
    let mut world = world(patient());
    // A stream whose bytes cost exactly a turn's share.
    let head = b"POST /-/publish HTTP/1.1\r\nHost: h\r\nContent-Length: 65536\r\n\r\n";
    for padding in 0..300 {
        let get = GET.repeat(padding);
        let body = vec![b' '; 65_536];
        let (_, answers) = world.ask(CONTROL, &[get.as_slice(), head, &body].concat());
        assert_eq!(answers.matches("200 OK").count(), padding + 1, "behind {padding} GETs");
    }
    for gets in 1_000..1_050 {
        let put = b"PUT /empty HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
        let (_, answers) = world.ask(CONTROL, &[GET.repeat(gets).as_slice(), put].concat());
        assert_eq!(answers.matches("HTTP/1.1 20").count(), gets + 1, "behind {gets} GETs");
    }
}

#[test]
fn a_stop_in_the_middle_of_an_answer_does_not_spoil_it() {
    let mut world = World::new(1, Faults { window_bytes: 9_000, ..kind() }, Settings::default());
    let client = world.sim.connect(CONTROL);
    let get = b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3);
    let bulk = b"POST /-/publish HTTP/1.1\r\nHost: h\r\nContent-Length: 999\r\n\r\n";
    world.sim.write(client, &[get.as_slice(), bulk].concat());
    world.settle_some(2);
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    world.settle();
    let answers = world.sim.read(client);
    let large = super::large();
    let whole = answers.windows(large.len()).filter(|window| *window == large).count();
    assert_eq!(whole, 3);
    assert!(answers.ends_with(b"\"errors\":[]}\n"));
    assert_eq!(world.totals().readers_bytes, 0);
}

/// A browser's stream of events would give up for good on a 503.
#[test]
fn who_finds_no_room_is_told_when_to_come_again() {
    let mut settings = patient();
    settings.limits.topics_max = 0;
    let mut world = world(settings);
    let mut ask = |fields: &str| {
        let request = format!("GET /-/events?topic=/n HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (client, answer) = world.ask(PUBLIC, request.as_bytes());
        assert!(answer.contains("More different topics"), "{answer}");
        (answer, world.sim.ended(client))
    };
    for (fields, status) in [("Accept: text/event-stream\r\n", 200), ("Prefer: wait=9\r\n", 503)] {
        let (answer, _) = ask(fields);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(answer.contains("\r\nRetry-After: "), status == 503, "{answer}");
        assert_eq!(answer.contains("\r\n\r\nretry: "), status == 200, "{answer}");
    }
    assert_eq!(world.totals().requests_put_off, 2);
    assert_eq!(world.totals().readers_sse, 0);
}

#[test]
fn a_stream_from_an_address_with_too_many_is_told_when_to_come_again() {
    let mut settings = patient();
    settings.limits.connections_per_address = OrAuto::Set(1);
    let mut world = world(settings);
    let mut ask = || {
        let client = world.sim.connect_from(PUBLIC, ip("192.0.2.1"));
        world.sim.write(client, STREAM);
        world.settle();
        (client, String::from_utf8(world.sim.read(client)).unwrap())
    };
    ask();
    let (second, answer) = ask();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\nretry: ") && answer.contains("Too many"), "{answer}");
    assert!(world.sim.ended(second) && !world.sim.was_reset(second));
}

const STREAM: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";

pub(super) fn ip(text: &str) -> Option<std::net::IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn an_address_has_so_many_connections_and_the_next_is_told_so() {
    let mut settings = patient();
    settings.limits.connections_per_address = OrAuto::Set(2);
    settings.control_hosts.push("h".to_owned());
    let mut world = world(settings);
    let ask = |world: &mut World, role, address| {
        let client = world.sim.connect_from(role, address);
        world.sim.write(client, GET);
        world.settle();
        (client, String::from_utf8(world.sim.read(client)).unwrap())
    };
    let (first, _) = ask(&mut world, PUBLIC, ip("192.0.2.1"));
    ask(&mut world, PUBLIC, ip("::ffff:192.0.2.1"));
    let (third, answer) = ask(&mut world, PUBLIC, ip("192.0.2.1"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\nRetry-After: "), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert!(body.contains("\"code\":\"address_limit\",\"detail\":\"Too many"), "{body}");
    assert!(world.sim.ended(third) && !world.sim.was_reset(third));
    assert_eq!(world.totals().connections_refused, 1);
    assert_eq!((world.totals().connections_public, world.sim.open_sockets()), (2, 2));
    // Others are not concerned, nor is control, nor a socket file.
    for (role, address) in
        [(PUBLIC, ip("192.0.2.2")), (CONTROL, ip("192.0.2.1")), (PUBLIC, None), (CONTROL, None)]
    {
        assert!(ask(&mut world, role, address).1.starts_with("HTTP/1.1 200"), "{address:?}");
    }
    // As soon as one has gone there is a place.
    world.sim.finish_client(first);
    world.settle();
    assert!(ask(&mut world, PUBLIC, ip("192.0.2.1")).1.starts_with("HTTP/1.1 200"));
    assert!(ask(&mut world, PUBLIC, ip("192.0.2.1")).1.starts_with("HTTP/1.1 429"));
}

#[test]
fn by_default_one_address_has_half_of_all_places_and_loopback_all() {
    let mut world = world(patient());
    world.worker.limit_connections(6, 1);
    let count = |world: &mut World, address: &str| {
        for _ in 0..6 {
            world.sim.connect_from(PUBLIC, ip(address));
        }
        let before = world.totals().connections_public;
        world.settle();
        world.totals().connections_public - before
    };
    assert_eq!(count(&mut world, "2001:db8::1"), 3);
    assert_eq!(count(&mut world, "192.0.2.1"), 3);
    for loopback in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(count(&mut world, loopback), 6, "{loopback}");
    }
}

/// A long-poll that is held, with so much behind it that no more is read.
fn held_with_much_behind_it(world: &mut World) -> super::net::Client {
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, b"GET /-/events?topic=/quiet&wait=50 HTTP/1.1\r\nHost: h\r\n\r\n");
    world.sim.write(client, &GET.repeat(20_000));
    world.settle();
    let totals = world.totals();
    assert_eq!(totals.readers_long_poll, 1);
    assert!(totals.bytes_in < 200_000 && totals.readers_bytes < 200_000, "{totals:?}");
    assert_eq!(world.sim.read(client), b"");
    client
}

#[test]
fn a_held_request_with_much_behind_it_ends_with_its_client() {
    for seed in 0..20 {
        let mut world = World::new(seed, kind(), patient());
        let client = held_with_much_behind_it(&mut world);
        if seed % 2 == 0 {
            world.sim.reset_client(client);
        } else {
            world.sim.finish_client(client);
        }
        world.settle();
        world.check_nothing_is_left();
        assert_eq!(world.totals().readers_long_poll, 0);
    }
}

#[test]
fn what_came_behind_a_held_request_is_answered_after_it() {
    let mut world = world(patient());
    let client = held_with_much_behind_it(&mut world);
    world.publish("/quiet", b"news".to_vec(), super::ContentType::TEXT);
    world.settle();
    let answers = String::from_utf8(world.sim.read(client)).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 20_001);
    let (held, _) =
        answers.split_once("HTTP/1.1 200 OK\r\n").unwrap().1.split_once("HTTP").unwrap();
    assert!(held.contains("\"news\""), "{held}");
}

#[test]
fn an_answer_that_waits_for_a_peer_that_only_sends_no_more_is_sent() {
    for seed in 0..20 {
        let faults = Faults { window_bytes: 700, ..kind() };
        let mut world = World::new(seed, faults, patient());
        let client = world.sim.connect(PUBLIC);
        world.sim.stall(client, true);
        world.sim.write(client, &b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3));
        world.settle();
        world.sim.finish_client(client);
        world.settle();
        assert!(!world.sim.ended(client));
        world.sim.stall(client, false);
        world.settle();
        let received = world.sim.read(client);
        assert!(received.len() > 3 * super::LARGE_BYTES, "{} bytes", received.len());
        world.check_nothing_is_left();
    }
}

#[test]
fn patterns_are_for_control_alone_if_so_configured() {
    let mut settings = patient();
    settings.streams.public_patterns = false;
    let mut world = world(settings);
    for (role, topic, expected) in [
        (PUBLIC, "/**", "403"),
        (PUBLIC, "/a&topic=/b/*", "403"),
        (PUBLIC, "/small", "200"),
        (CONTROL, "/**", "200"),
    ] {
        for accept in ["text/event-stream", "application/json"] {
            let request = format!(
                "GET /-/events?topic={topic} HTTP/1.1\r\nHost: h\r\nAccept: {accept}\r\n\r\n"
            );
            let (_, answer) = world.ask(role, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{topic}: {answer}");
            assert!(expected == "200" || answer.contains("streams.public_patterns"), "{answer}");
        }
    }
    // So it is with the commands of a WebSocket: an error, and nothing has changed.
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                   Sec-WebSocket-Protocol: stentor.v1\r\n";
    let get = format!("GET /-/events HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n");
    for (role, is_refused) in [(PUBLIC, true), (CONTROL, false)] {
        let (client, _) = world.ask(role, get.as_bytes());
        let command = br#"{"subscribe":["/**"]}"#;
        // Masked with zeros.
        let mut frame = vec![0x81, 0x80 | command.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(command);
        world.sim.write(client, &frame);
        world.settle();
        let said = String::from_utf8_lossy(&world.sim.read(client)).into_owned();
        assert_eq!(said.contains("streams.public_patterns"), is_refused, "{said}");
    }
}

#[test]
fn what_was_published_is_not_sniffed() {
    let mut world = world(patient());
    for target in
        ["/small", "/text", "/list=small", "/-/values?topic=/small", "/-/events?topic=/small"]
    {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (_, answer) = world.ask(PUBLIC, request.as_bytes());
        assert!(answer.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{answer}");
    }
}

/// The head has promised another file: whoever got the rest of this one would not know.
#[test]
fn a_file_that_is_written_to_while_it_is_sent_ends_the_connection() {
    let directory = std::env::temp_dir().join(format!("stentor-cut-{}", std::process::id()));
    let file = directory.join("large.bin");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(&file, vec![b'o'; 300_000]).unwrap();
    let mut settings = patient();
    settings.mounts.push(Mount::new("/", &directory));
    let mut world = World::new(1, Faults { window_bytes: 9_000, ..kind() }, settings);
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, b"GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle_some(3);
    let begun = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(begun.contains("Content-Length: 300000\r\n") && begun.ends_with("ooo"), "{begun}");
    std::fs::write(&file, vec![b'n'; 300_001]).unwrap();
    world.settle();
    let rest = world.sim.read(client);
    assert!(world.sim.ended(client) && !rest.contains(&b'n'));
    assert_eq!(world.totals().files_cut, 1);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_was_meant_for_a_client_that_is_gone_is_sent_to_nobody() {
    let mut world = world(patient());
    let (_, answer) = world.ask(PUBLIC, GET);
    let (gone, held) = world.ask(PUBLIC, b"GET /n?wait=60 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(held, "");
    world.sim.reset_client(gone);
    world.publish("/n", b"new".to_vec(), super::ContentType::TEXT);
    // The worker comes to the reader before it is told of the reset.
    let World { worker, sim, .. } = &mut world;
    worker.read_mailbox(sim);
    worker.after_turn(sim);
    assert_eq!(world.ask(PUBLIC, GET).1, answer);
}

/// The first half of a short stop ends all streams, even if the setting spreads them over more.
#[test]
fn streams_end_within_half_of_a_short_stop() {
    let mut settings = patient();
    settings.drain_ms = 2_000;
    settings.streams.drain_spread_ms = 60_000;
    let mut world = world(settings);
    let stream = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let readers = [(); 20].map(|()| world.ask(PUBLIC, stream).0);
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    world.sim.sleep(1_200);
    world.settle();
    assert!(readers.iter().all(|&reader| world.sim.ended(reader)));
}

#[test]
fn a_stop_waits_for_those_who_stay_and_no_longer_than_it_may() {
    let settings = patient();
    let drain_ms = settings.drain_ms;
    let mut world = World::new(1, Faults { window_bytes: 3_000, ..kind() }, settings);
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    world.sim.write(client, b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle();
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    world.sim.sleep(1_600);
    world.settle_some(3);
    assert!(!world.worker.has_ended());
    world.sim.sleep(drain_ms);
    world.settle_some(3);
    assert!(world.worker.has_ended());
}
