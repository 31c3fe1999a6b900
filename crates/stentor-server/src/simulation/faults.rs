//! Single misbehaviours on the simulated network, each with the answer it must get.

use super::{CONTROL, PUBLIC, SMALL, World, kind, patient};
use crate::config::Settings;
use crate::mailbox::Order;
use stentor_io::Faults;

fn world(settings: Settings) -> World {
    World::new(1, kind(), settings)
}

const GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n";

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
    worker.obey(sim, Order::Drain);
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
    worker.obey(sim, Order::Drain);
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
    worker.obey(sim, Order::Drain);
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
    ] {
        let (_, answer) = world.ask(CONTROL, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
    }
    assert_eq!(world.shared.hub.counts().published_total, before);
    assert_eq!(world.shared.hub.value("/small").unwrap().data(), SMALL);
}

#[test]
fn a_panic_costs_its_connection_and_no_other() {
    let mut world = world(Settings::default());
    let (other, _) = world.ask(PUBLIC, GET);
    let unlucky = world.sim.connect(PUBLIC);
    world.sim.write(unlucky, &[GET, b"GET /-/panic HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.settle()));
    assert!(panicked.is_err());
    let World { worker, sim, .. } = &mut world;
    worker.recover(sim);
    assert!(world.sim.ended(unlucky));
    world.sim.write(other, GET);
    world.settle();
    assert!(world.sim.read(other).ends_with(SMALL));
    let totals = world.totals();
    assert_eq!((totals.connections_public, totals.connections_reading), (1, 0));
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
    worker.obey(sim, Order::Drain);
    world.settle();
    let answers = world.sim.read(client);
    let large = super::large();
    let whole = answers.windows(large.len()).filter(|window| *window == large).count();
    assert_eq!(whole, 3);
    assert!(answers.ends_with(b"\"errors\":[]}\n"));
    assert_eq!(world.totals().backlog_bytes, 0);
}
