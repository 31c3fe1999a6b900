//! `bench get`: that it asks as often as it says, and counts what it was answered.

use super::stub::Stub;
use super::{bench, server_with_value};
use crate::support::Server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What the server has counted: requests, and bytes of them. To look is a request as well; its own
/// share is taken out.
pub(super) struct Counted {
    pub(super) requests: u64,
    pub(super) bytes_in: u64,
    accepted: u64,
    pub(super) published: u64,
}

impl Counted {
    pub(super) fn by(server: &Server, work: impl FnOnce()) -> Counted {
        let look = || {
            let status = server.control.get("/-/status").expect(200).json();
            ["counters/requests", "counters/bytes_in", "counters/accepted", "messages_published"]
                .map(|name| crate::support::figure(&status, name))
        };
        let (zeroth, first) = (look(), look());
        work();
        let second = look();
        let [requests, bytes_in, accepted, published] =
            std::array::from_fn(|i| second[i] - first[i] - (first[i] - zeroth[i]));
        Counted { requests, bytes_in, accepted, published }
    }
}

#[test]
fn counts_agree_with_the_servers_own() {
    let (server, url) = server_with_value("");
    for (flags, requests, connections) in [
        ("--requests 1 --connections 1", 1, 1),
        ("--requests 1001 --connections 7", 1_001, 7),
        ("--requests 1003 --connections 5 --threads 3 --pipeline 16", 1_003, 5),
        ("--requests 3 --connections 9 --pipeline 8", 3, 9),
        ("--requests 203 --connections 6 --close", 203, 203),
        ("--requests 203 --connections 6 --close --rst", 203, 203),
        ("--requests 60 --connections 4 --rate 300", 60, 4),
        ("--requests 60 --connections 4 --rate 300 --close", 60, 60),
    ] {
        let mut run = None;
        let counted = Counted::by(&server, || {
            run = Some(bench(&format!("get {url} {flags}")).fine());
        });
        let run = run.unwrap();
        assert_eq!(run.count("requests/completed"), requests, "{flags}");
        assert_eq!(run.status(200), requests, "{flags}");
        assert_eq!(run.count("requests/latency/count"), requests, "{flags}");
        assert_eq!(counted.requests, requests, "{flags}");
        assert_eq!(run.count("bytes/sent"), counted.bytes_in, "{flags}");
        assert_eq!(run.count("connections/opened"), connections, "{flags}");
        assert_eq!(run.count("connections/connect/count"), connections, "{flags}");
        assert_eq!(run.count("connections/dropped"), 0, "{flags}");
        assert!(counted.accepted <= connections, "{flags}: {}", counted.accepted);
    }
}

#[test]
fn every_byte_of_the_answers_is_counted() {
    let stub = Stub::answering(OK);
    let run = bench(&format!("get {} --requests 500 --connections 3", stub.url())).fine();
    assert_eq!(run.count("bytes/received"), 500 * OK.len() as u64);
}

#[test]
fn a_run_for_a_time_counts_what_it_got() {
    let (server, url) = server_with_value("");
    let mut run = None;
    let counted = Counted::by(&server, || {
        run = Some(bench(&format!("get {url} --duration 700ms --connections 8")).fine());
    });
    let run = run.unwrap();
    // What was under way at the end was asked and not waited for: at most one a connection.
    let completed = run.count("requests/completed");
    assert!((completed..=completed + 8).contains(&counted.requests), "{run:?}");
    assert!(completed > 100 && run.amount("seconds") >= 0.7, "{run:?}");
    assert!(!run.report["requests"]["open_loop"].as_bool().unwrap());
}

/// One connection asks at all times, so its requests together take nearly all of the time, however
/// seldom the generator polls whether the run is over.
#[test]
fn rates_are_those_that_the_workers_saw() {
    let (_server, url) = server_with_value("");
    crate::support::eventually("ten requests fill their time", || {
        let run = bench(&format!("get {url} -n 10 -c 1")).fine();
        let mean_s = run.amount("requests/latency/mean_us") / 1e6;
        let busy = run.amount("requests/per_second") * mean_s;
        let connect_us = run.amount("connections/connect/max_us");
        let opening_us = run.amount("connections/opening_seconds") * 1e6;
        (busy > 0.5 && opening_us < 4_000.0_f64.max(10.0 * connect_us)).then_some(())
    });
}

#[test]
fn header_fields_reach_the_server() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = heads.clone();
    let stub = Stub::new(move |mut peer| {
        while let Some(asked) = peer.request() {
            kept.lock().unwrap().push(asked);
            peer.say(OK);
        }
    });
    let flags = "--header X-Test:1 --header Host:example.com --header X-Test:2";
    bench(&format!("get {} --requests 1 {flags} --accept-encoding br,gzip", stub.url())).fine();
    bench(&format!("get {} --requests 1 --close", stub.url())).fine();
    bench(&format!("hold {} --connections 1 --duration 1ms --header X-Test:3", stub.url())).fine();
    let heads = heads.lock().unwrap();
    let [first, second, third] = &heads[..] else { panic!("three requests: {heads:?}") };
    assert!(first.head.starts_with("GET /a HTTP/1.1\r\n"), "{first:?}");
    assert_eq!(first.field("host"), Some("example.com"));
    assert_eq!(first.field("accept-encoding"), Some("br,gzip"));
    assert_eq!(first.head.matches("Host:").count(), 1);
    assert!(first.head.contains("X-Test: 1\r\n") && first.head.contains("X-Test: 2\r\n"));
    assert_eq!(first.field("connection"), None);
    assert_eq!(second.field("connection"), Some("close"));
    assert!(stub.url().ends_with(&format!("{}/a", second.field("host").unwrap())));
    assert_eq!(third.field("x-test"), Some("3"));
}

#[test]
fn encodings_that_are_asked_for_are_sent() {
    let server = Server::start();
    let text = "much of the same, ".repeat(200);
    server.control.put("/a", "text/plain", text.as_bytes()).expect(201);
    let url = super::url(server.public, "/a");
    let plain = bench(&format!("get {url} --requests 100")).fine();
    assert!(plain.count("bytes/received") > 100 * text.len() as u64);
    // The first is what makes the server compress.
    bench(&format!("get {url} --requests 1 --accept-encoding gzip")).fine();
    crate::support::eventually("the server has compressed it", || {
        let run = bench(&format!("get {url} --requests 100 --accept-encoding gzip")).fine();
        (run.count("bytes/received") < 100 * text.len() as u64 / 4).then_some(())
    });
    assert!(server.figure("counters/answers_compressed") >= 100);
}

#[test]
fn an_open_loop_asks_at_its_rate() {
    let (_server, url) = server_with_value("");
    let url = &url;
    thread::scope(|scope| {
        for flags in ["", "--close", "--threads 3 --connections 2"] {
            scope.spawn(move || {
                let run = bench(&format!("get {url} --rate 200 --duration 1500ms {flags}")).fine();
                let completed = run.count("requests/completed");
                // Never more than were due. Fewer if the machine is too busy for 200 in a second.
                assert!((160..=301).contains(&completed), "{flags}: {completed}");
                assert!(run.report["requests"]["open_loop"].as_bool().unwrap(), "{flags}");
            });
        }
    });
}

/// A server that stands still for a second after so many requests; all its connections do.
fn freezing_after(requests: u64) -> Stub {
    let (standing, answered) = (RwLock::new(()), AtomicU64::new(0));
    Stub::new(move |mut peer| {
        while peer.request().is_some() {
            if answered.fetch_add(1, Ordering::Relaxed) == requests {
                let _alone = standing.write().unwrap();
                thread::sleep(Duration::from_secs(1));
            }
            let _moving = standing.read().unwrap();
            if !peer.say(OK) {
                return;
            }
        }
    })
}

/// How many of the requests took at least so long, at least: by the curve, which is rounded down.
fn slower_than(run: &super::Run, us: f64) -> f64 {
    let curve = run.report["requests"]["latency"]["curve"].as_array().unwrap();
    let below = curve.iter().rev().find(|point| point[1].as_f64().unwrap() < us);
    let percent = below.map_or(0.0, |point| point[0].as_f64().unwrap());
    run.count("requests/latency/count") as f64 * (100.0 - percent) / 100.0
}

#[test]
fn an_open_loop_omits_nothing_while_the_server_stands_still() {
    let stub = freezing_after(200);
    // A number instead of a time: a machine that stands still itself must not cut the run short.
    let flags = "--rate 400 --requests 1200 --connections 8";
    let run = bench(&format!("get {} {flags}", stub.url())).fine();
    assert_eq!(run.count("requests/completed"), 1_200);
    // 400 were due in that second, and all but those of its last tenth waited for longer than
    // that. The percentiles of the curve are 2.5 apart there.
    let slow = slower_than(&run, 100_000.0);
    assert!(slow >= 360.0 - 0.025 * 1_200.0, "{slow}: {run:?}");
    // The slowest 12 were due within the first 30 ms.
    assert!(run.amount("requests/latency/p99_us") >= 950_000.0, "{run:?}");
    assert!(run.amount("requests/latency/max_us") >= 990_000.0, "{run:?}");
}

#[test]
fn a_closed_loop_notices_a_standstill_once_for_each_connection() {
    let stub = freezing_after(2_000);
    let run = bench(&format!("get {} --requests 4000 --connections 8", stub.url())).fine();
    assert!(run.amount("requests/latency/max_us") >= 990_000.0, "{run:?}");
    assert!(slower_than(&run, 900_000.0) < 0.01 * 4_000.0, "{run:?}");
}

#[test]
fn connections_come_from_where_they_are_told_to() {
    let froms = Arc::new(Mutex::new(Vec::new()));
    let kept = froms.clone();
    let stub = Stub::new(move |mut peer| {
        kept.lock().unwrap().push(peer.speaker().peer_addr().unwrap().ip().to_string());
        while peer.request().is_some() && peer.say(OK) {}
    });
    let flags = "--connections 4 --requests 40 --threads 2 --from";
    bench(&format!("get {} {flags} 127.9.0.0/24", stub.url())).fine();
    bench(&format!("get {} {flags} 127.8.7.6", stub.url())).fine();
    let froms = froms.lock().unwrap();
    assert_eq!(froms.len(), 8);
    assert!(froms[..4].iter().all(|from| from.starts_with("127.9.0.")), "{froms:?}");
    assert!(froms[..4].iter().any(|from| *from != froms[0]), "one address a thread: {froms:?}");
    assert!(froms[4..].iter().all(|from| from == "127.8.7.6"), "{froms:?}");
}

#[test]
fn what_the_server_spends_is_shown_if_its_process_is_named() {
    let (server, url) = server_with_value("");
    let pid = server.child.id();
    let run = bench(&format!("get {url} --requests 20000 --connections 8 --pid {pid}")).fine();
    assert_eq!(run.report["processor"]["each"], "request");
    assert!(run.amount("processor/busy_seconds") > 0.0, "{run:?}");
    let each = run.amount("processor/busy_us_each") * 20_000.0 / 1e6;
    assert!((each - run.amount("processor/busy_seconds")).abs() < 1e-6, "{run:?}");
    let flags = "--connections 200 --duration 100ms";
    let run = bench(&format!("hold {url} {flags} --pid {pid}")).fine();
    assert_eq!(run.count("memory/connections"), 200);
    assert!(run.count("memory/process_resident_bytes") > 1 << 20, "{run:?}");
    assert!(run.report["memory"]["process_bytes"].is_i64(), "{run:?}");
    assert!(run.report["memory"]["both_ends"].as_bool().unwrap());
    let run = bench(&format!("get {url} --requests 1 --pid 4194305")).with_status(1);
    assert!(run.err.contains("process 4194305 cannot be watched"), "{run:?}");
}
