//! What is counted of answers, whatever they answer and however they came about.

use super::{CONTROL, Late, PUBLIC, Parts, World, kind, patient};
use crate::labels::RequestKind;
use stentor_config::{AccessTarget, Settings};
use stentor_io::Rng;

const PUT: &[u8] = b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";

/// How many requests of a kind were answered, and what they took together.
fn of_kind(world: &World, kind: RequestKind) -> (u64, u64) {
    let times = world.totals().requests_by_kind[kind as usize];
    (times.buckets.iter().sum(), times.sum_us)
}

#[test]
fn every_answer_counts_by_the_kind_of_its_request() {
    let mut settings = patient();
    settings.limits.message_bytes_max = 10;
    let mut world = World::new(1, kind(), settings);
    let get =
        |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let stream = "Accept: text/event-stream\r\n";
    let body = |method: &str, path: &str, body: &str| {
        let length = body.len();
        format!("{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    for (role, request, kind, answers) in [
        (PUBLIC, get("/small", ""), RequestKind::Value, 1),
        (PUBLIC, get("/small", "").repeat(5), RequestKind::Value, 5),
        (PUBLIC, get("/none", ""), RequestKind::Value, 1),
        (PUBLIC, body("GET", "/small", "ignored"), RequestKind::Value, 1),
        (PUBLIC, get("/list=small,text", ""), RequestKind::Values, 1),
        (PUBLIC, get("/-/values?topic=/small", ""), RequestKind::Values, 1),
        (PUBLIC, get("/-/stentor.js", ""), RequestKind::File, 1),
        (PUBLIC, get("/", "Accept: text/html\r\n"), RequestKind::File, 1),
        (PUBLIC, get("/small", stream), RequestKind::Stream, 1),
        (PUBLIC, get("/small?since=", stream), RequestKind::Stream, 1),
        (PUBLIC, get("/-/events?topic=/small&wait=0", ""), RequestKind::LongPoll, 1),
        (CONTROL, body("PUT", "/a", "hello"), RequestKind::Publish, 1),
        (CONTROL, body("PUT", "/a", "more than is taken"), RequestKind::Publish, 1),
        (CONTROL, "DELETE /a HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), RequestKind::Publish, 1),
        (CONTROL, body("POST", "/-/publish", "{}\n"), RequestKind::Bulk, 1),
        (CONTROL, get("/-/status", ""), RequestKind::Other, 1),
        (PUBLIC, body("PUT", "/a", "hello"), RequestKind::Other, 1),
        (PUBLIC, "GET /small\n".to_owned(), RequestKind::Other, 1),
        (PUBLIC, "\u{1}".to_owned(), RequestKind::Other, 1),
    ] {
        let all = |world: &World| RequestKind::ALL.map(|kind| of_kind(world, kind).0);
        let mut expected = all(&world);
        expected[kind as usize] += answers;
        world.ask(role, request.as_bytes());
        assert_eq!(all(&world), expected, "{request}");
    }
}

#[test]
fn a_request_takes_from_when_it_is_whole_until_it_is_answered() {
    let mut world = World::new(1, kind(), Settings::default());
    let (poller, _) = world.ask(PUBLIC, b"GET /new?wait=10 HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = b"PUT /new HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel";
    let (publisher, _) = world.ask(CONTROL, head);
    world.sim.sleep(2_000);
    // How slowly it comes is the client's affair.
    world.sim.write(publisher, b"lo");
    world.settle();
    assert!(world.sim.read(publisher).starts_with(b"HTTP/1.1 201"));
    assert!(world.sim.read(poller).ends_with(b"hello"));
    let (count, us) = of_kind(&world, RequestKind::Publish);
    assert!(count == 1 && us < 1_000_000, "{us}");
    let (count, us) = of_kind(&world, RequestKind::LongPoll);
    assert!(count == 1 && (2_000_000..3_000_000).contains(&us), "{us}");
}

#[test]
fn a_publish_takes_until_it_is_committed() {
    let late = Late::new(0);
    let parts = Parts { late: Some(late.clone()), ..Parts::default() };
    let mut world = World::of(parts, 1, kind(), patient());
    let client = world.sim.connect(CONTROL);
    world.sim.write(client, PUT);
    while late.waiting() == 0 {
        world.turn();
    }
    world.sim.sleep(3_000);
    late.commit_one(world.shared.committer.applier(), &mut Rng::new(1));
    world.settle();
    assert!(world.sim.read(client).starts_with(b"HTTP/1.1 201"));
    let (count, us) = of_kind(&world, RequestKind::Publish);
    assert!(count == 1 && us >= 3_000_000, "{us}");
}

/// What one client asks for beyond its share of a turn waits, and that counts.
#[test]
fn what_waits_for_its_turn_has_been_there_meanwhile() {
    let mut world = World::new(1, kind(), patient());
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, &b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(100));
    let count = |world: &World| of_kind(world, RequestKind::Value).0;
    while count(&world) == 0 {
        world.turn();
    }
    let at_once = count(&world);
    assert!(at_once < 100);
    world.sim.sleep(1_000);
    world.settle();
    let (count, us) = of_kind(&world, RequestKind::Value);
    assert_eq!(count, 100);
    assert!(us >= (100 - at_once) * 1_000_000, "{us}");
}

/// The lines of an access log, each as its request, status and length.
fn logged(world: &World) -> Vec<String> {
    let text = world.shared.access_log.as_ref().unwrap().read();
    let request_of = |line: &str| {
        let parts: Vec<&str> = line.split('"').collect();
        format!("{}{}", parts[1], parts[2].trim_end())
    };
    text.lines().map(request_of).collect()
}

#[test]
fn what_is_refused_or_late_is_logged_as_far_as_it_came() {
    let mut settings = Settings::default();
    settings.log.access = Some(AccessTarget::Stdout);
    settings.limits.message_bytes_max = 10;
    let mut world = World::new(1, kind(), settings);
    let head = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let chunked = head("PUT /a?token=s", "Transfer-Encoding: chunked\r\n");
    for (role, request, expected) in [
        (PUBLIC, head("GET /small", "Content-Length: +5\r\n"), "GET /small HTTP/1.1 400"),
        (PUBLIC, head("BREW /small", ""), "BREW /small HTTP/1.1 501"),
        (PUBLIC, "\u{1}\u{1b}[0m".to_owned(), "\\x01\\x1B[0m 400"),
        (PUBLIC, "GET /a\nb".to_owned(), "GET /a 400"),
        (PUBLIC, head("PUT /a", "Content-Length: 1\r\n"), "PUT /a HTTP/1.1 405"),
        (
            CONTROL,
            head("PUT /a?token=s", "Content-Length: 99\r\n"),
            "PUT /a?token=*** HTTP/1.1 413",
        ),
        (CONTROL, format!("{chunked}20\r\n{}", "x".repeat(32)), "PUT /a?token=*** HTTP/1.1 413"),
        (CONTROL, format!("{chunked}nonsense\r\n"), "PUT /a?token=*** HTTP/1.1 400"),
        // These time out.
        (PUBLIC, "GET /a?token=s".to_owned(), "GET /a?token=*** 408"),
        (CONTROL, format!("{chunked}1\r\n"), "PUT /a?token=*** HTTP/1.1 408"),
        // And this one does not begin.
        (PUBLIC, String::new(), ""),
    ] {
        let (client, _) = world.ask(role, request.as_bytes());
        world.sim.sleep(16_000);
        world.settle();
        let answer = String::from_utf8_lossy(&world.sim.read(client)).into_owned();
        let lines = logged(&world);
        match expected {
            "" => assert!(lines.is_empty(), "{lines:?}"),
            _ => assert!(
                lines.len() == 1 && lines[0].starts_with(&format!("{expected} ")),
                "{request:?}, {answer}: {lines:?}"
            ),
        }
    }
}

/// What has waited in a line, or was asked for in one write with others, is there once.
#[test]
fn what_waits_for_its_turn_is_logged_once() {
    let mut settings = patient();
    settings.log.access = Some(AccessTarget::Stdout);
    let mut world = World::new(1, kind(), settings);
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, &b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(100));
    world.settle();
    let list = format!("GET /list={} HTTP/1.1\r\nHost: h\r\n\r\n", "text,".repeat(400));
    let others: Vec<_> = (0..50)
        .map(|_| {
            let client = world.sim.connect(PUBLIC);
            world.sim.write(client, list.as_bytes());
            client
        })
        .collect();
    world.settle();
    let lines = logged(&world);
    assert_eq!(lines.len(), 100 + others.len());
    assert_eq!(lines.iter().filter(|line| *line == "GET /large HTTP/1.1 200 10000").count(), 100);
}
