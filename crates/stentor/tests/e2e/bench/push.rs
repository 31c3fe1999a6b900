//! `bench push`: that what it says of a delivery is so, to the last message.
//!
//! A server that loses nothing is a Stentor; one that loses, repeats and exchanges messages just as
//! it is told is made here.

use super::stub::{Asked, Peer, Stub};
use super::{Run, bench, server_with_value, url};
use crate::support::PATIENCE;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A WebSocket is open, for the key that the load generator sends.
pub(super) const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
    Transfer-Encoding: chunked\r\n\r\n";

const TAKEN: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const REFUSED: &str = "HTTP/1.1 429 Slow down\r\nContent-Length: 7\r\n\r\nenough\n";

/// What a server passes on: messages, by their number among what was published.
#[derive(Clone, Copy)]
enum Passed {
    Message(usize),
    Gap,
}

/// What a server passes on when message `number` has come; none if it refuses the message.
type Order = fn(usize) -> Option<Vec<Passed>>;

/// One that loses, repeats and exchanges.
fn wrong(number: usize) -> Option<Vec<Passed>> {
    use Passed::Message;
    Some(match number {
        3 | 10 => vec![],
        5 => vec![Message(5), Message(5)],
        7 => vec![],
        8 => vec![Message(8), Message(7)],
        9 => vec![Message(9), Message(2)],
        _ => vec![Message(number)],
    })
}

/// One that loses two and says so.
fn honest(number: usize) -> Option<Vec<Passed>> {
    Some(match number {
        4 => vec![],
        5 => vec![Passed::Gap],
        _ => vec![Passed::Message(number)],
    })
}

/// One that has had enough after three.
fn reluctant(number: usize) -> Option<Vec<Passed>> {
    (number <= 3).then(|| vec![Passed::Message(number)])
}

/// What a server was given and has to pass on, with whoever waits for more.
#[derive(Default)]
struct Log {
    published: Mutex<(Vec<Asked>, Vec<Passed>)>,
    more: Condvar,
}

impl Log {
    /// Says whether it was taken.
    fn publish(&self, asked: Asked, order: Order) -> bool {
        let mut published = self.published.lock().unwrap();
        let Some(passed) = order(published.0.len()) else { return false };
        published.0.push(asked);
        published.1.extend(passed);
        self.more.notify_all();
        true
    }

    fn len(&self) -> usize {
        self.published.lock().unwrap().1.len()
    }

    /// What is passed on at a place, once there is something; none at the end of patience. A gap
    /// has no message.
    fn at(&self, place: usize) -> Option<Option<String>> {
        let published = self.published.lock().unwrap();
        let waits = |published: &mut (_, Vec<Passed>)| published.1.len() <= place;
        let (published, _) = self.more.wait_timeout_while(published, PATIENCE, waits).unwrap();
        let (messages, passed) = &*published;
        passed.get(place).map(|passed| match passed {
            Passed::Message(number) => {
                Some(String::from_utf8(messages[*number].body.clone()).unwrap())
            }
            Passed::Gap => None,
        })
    }
}

/// A server that publishes what it is given, in its own way.
fn publisher(order: Order) -> (Stub, Arc<Log>) {
    let log = Arc::new(Log::default());
    (sharing(&log, order), log)
}

/// Another one that has what is in the log.
fn sharing(log: &Arc<Log>, order: Order) -> Stub {
    let own = log.clone();
    Stub::new(move |mut peer| {
        while let Some(asked) = peer.request() {
            if asked.method != "GET" {
                peer.say(if own.publish(asked, order) { TAKEN } else { REFUSED });
            } else if asked.field("upgrade").is_some() {
                peer.say(SWITCHED);
                let whole = !asked.head.contains("?cut");
                return follow(&own, peer, if whole { frame } else { fragments });
            } else if asked.field("accept") == Some("text/event-stream") {
                peer.say(STREAM);
                let whole = !asked.head.contains("?cut");
                return follow(&own, peer, if whole { chunk } else { crumbs });
            } else if !poll(&own, &asked, &mut peer) {
                return;
            }
        }
    })
}

fn follow(log: &Log, mut peer: Peer, write: fn(Option<String>) -> Vec<u8>) {
    // The newest of what there is, and then everything.
    let mut place = log.len() - 1;
    while let Some(message) = log.at(place)
        && peer.say(write(message))
    {
        place += 1;
    }
}

fn frame(message: Option<String>) -> Vec<u8> {
    let text = message.unwrap_or_else(|| "{\"gap\":{}}".to_owned());
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126, "the tests' messages are short");
    [&[0x81, length], text.as_bytes()].concat()
}

fn chunk(message: Option<String>) -> Vec<u8> {
    let event = match message {
        Some(text) => format!(": of no importance\r\nid: 1\r\ndata: {text}\r\n\r\n"),
        None => "event: stentor\ndata: {\"gap\":{}}\n\n".to_owned(),
    };
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// A message in fragments of seven bytes, with a ping between any two (RFC 6455 section 5.4).
fn fragments(message: Option<String>) -> Vec<u8> {
    let text = message.expect("there are no gaps in this test");
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(7).collect();
    let mut out = Vec::new();
    for (nth, piece) in pieces.iter().enumerate() {
        let opcode = if nth == 0 { 1 } else { 0 };
        let fin = if nth + 1 == pieces.len() { 0x80 } else { 0 };
        out.extend([fin | opcode, piece.len() as u8]);
        out.extend(*piece);
        out.extend(b"\x89\x01?");
    }
    out
}

/// An event in chunks of one byte.
fn crumbs(message: Option<String>) -> Vec<u8> {
    let event = format!("data: {}\r\rid: 1\n\n", message.expect("there are no gaps in this test"));
    event.bytes().flat_map(|byte| [b'1', b'\r', b'\n', byte, b'\r', b'\n']).collect()
}

/// Answers when there is something behind the place that the client names.
fn poll(log: &Log, asked: &Asked, peer: &mut Peer) -> bool {
    assert!(asked.field("prefer").is_some_and(|value| value.starts_with("wait=")), "{asked:?}");
    let place = match asked.field("if-none-match") {
        Some(tag) => tag.trim_matches('"').parse().unwrap(),
        None => log.len() - 1,
    };
    let Some(Some(text)) = log.at(place) else { return false };
    let fields = format!("ETag: \"{}\"\r\nContent-Length: {}", place + 1, text.len());
    peer.say(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{text}"))
}

fn push(stub: &Stub, role: &str) -> Run {
    let url = stub.url();
    let flags = "--connections 4 --messages 12 --rate 100";
    bench(&format!("push {url} --publish {url} --as {role} {flags}"))
}

#[test]
fn what_is_lost_repeated_and_exchanged_is_counted_exactly() {
    thread::scope(|scope| {
        for role in ["sse", "ws", "poll"] {
            scope.spawn(move || {
                let run = push(&publisher(wrong).0, role).with_status(1);
                let count = |name: &str| run.count(&format!("delivery/{name}"));
                assert_eq!((count("published"), count("readers")), (12, 4), "{role}");
                assert_eq!((count("expected"), count("delivered")), (48, 40), "{role}: {run:?}");
                // Messages 3 and 10.
                assert_eq!((count("missing"), count("missing_untold")), (8, 8), "{role}");
                // Message 5 at once, and 2 long after it was there.
                assert_eq!(count("duplicates"), 2 * 4, "{role}");
                // Message 7.
                assert_eq!(count("out_of_order"), 4, "{role}");
                assert_eq!((count("gaps_told"), count("readers_complete")), (0, 0), "{role}");
                let had: Vec<_> =
                    (0..12).map(|i| count(&format!("messages/{i}/readers"))).collect();
                assert_eq!(had, [4, 4, 0, 4, 4, 4, 4, 4, 4, 0, 4, 4], "{role}");
                assert_eq!(count("latency/count"), 40, "{role}");
                assert!(run.err.contains("8 deliveries missing in silence"), "{}", run.err);
            });
        }
        for role in ["sse", "ws"] {
            scope.spawn(move || {
                let run = push(&publisher(honest).0, role).fine();
                let count = |name: &str| run.count(&format!("delivery/{name}"));
                assert_eq!((count("missing"), count("gaps_told")), (2 * 4, 4), "{role}");
                assert_eq!(count("missing_untold"), 0, "{role}");
                assert_eq!((count("duplicates"), count("out_of_order")), (0, 0), "{role}");
                assert_eq!(count("readers_complete"), 0, "{role}");
            });
        }
    });
}

#[test]
fn everything_arrives_and_nothing_is_said_of_loss() {
    thread::scope(|scope| {
        for (role, path) in [
            ("sse", "/a"),
            ("ws", "/a"),
            ("sse", "/-/events?topic=/a&topic=/b/*"),
            ("ws", "/-/events?topic=/*"),
        ] {
            scope.spawn(move || {
                let (server, _) = server_with_value("");
                let (from, to) = (url(server.public, path), url(server.control, "/a"));
                let flags = "--connections 40 --messages 30 --rate 100 --size 200 --threads 3";
                let line = format!("push {from} --publish {to} --as {role} {flags}");
                let run = bench(&line).fine();
                let count = |name: &str| run.count(&format!("delivery/{name}"));
                assert_eq!((count("published"), count("readers")), (30, 40), "{role}");
                assert_eq!((count("expected"), count("delivered")), (1200, 1200), "{role}");
                assert_eq!(
                    (count("missing"), count("duplicates"), count("out_of_order")),
                    (0, 0, 0),
                    "{role}"
                );
                assert_eq!((count("readers_complete"), count("gaps_told")), (40, 0), "{role}");
                let counts = (count("latency/count"), count("publish/count"));
                assert_eq!(counts, (1200, 30), "{role}");
                let messages = run.report["delivery"]["messages"].as_array().unwrap();
                assert_eq!(messages.len(), 30, "{role}");
                assert!(messages.iter().all(|message| message["readers"] == 40), "{role}");
                // Its own value, one that makes sure there is one, and the thirty.
                assert_eq!(server.figure("messages_published"), 32, "{role}");
            });
        }
    });
}

#[test]
fn a_message_is_found_however_it_is_cut() {
    for role in ["ws", "sse"] {
        let (stub, _log) = publisher(|number| Some(vec![Passed::Message(number)]));
        let url = stub.url();
        let flags = "--connections 3 --messages 10 --rate 200 --size 120";
        let line = format!("push {url}?cut --publish {url} --as {role} {flags}");
        assert_eq!(bench(&line).fine().count("delivery/readers_complete"), 3, "{role}");
    }
}

#[test]
fn a_long_poll_for_the_value_may_miss_some_and_that_is_counted() {
    let (server, from) = server_with_value("");
    let to = url(server.control, "/a");
    let flags = "--connections 20 --messages 10 --rate 20 --threads 2";
    let run = bench(&format!("push {from} --publish {to} --as poll {flags}"));
    let count = |name: &str| run.count(&format!("delivery/{name}"));
    // What is published between an answer and the next request is seen only if it is the newest.
    // That takes 50 ms of a busy machine here; all the same, each reader ends with the last one.
    assert_eq!(count("delivered") + count("missing"), 20 * 10, "{run:?}");
    assert_eq!((count("duplicates"), count("out_of_order")), (0, 0), "{run:?}");
    assert_eq!(count("messages/9/readers"), 20, "{run:?}");
    assert_eq!(run.code, Some(i32::from(count("missing") > 0)), "{run:?}");
    assert_eq!(run.errors(), []);
}

#[test]
fn readers_that_stall_are_counted_apart() {
    // 6 MB for each of them is more than sockets hold.
    let flags = "--connections 20 --stall 20% --messages 60 --rate 200 --size 100KiB --threads 2";
    thread::scope(|scope| {
        for (history, keeps_all) in [(100, true), (3, false)] {
            scope.spawn(move || {
                let rule = format!(
                    "[[topics]]\nmatch = '/a'\nhistory = {history}\nhistory_bytes = '1 GiB'\n"
                );
                let (server, from) = server_with_value(&rule);
                let to = url(server.control, "/a");
                let run = bench(&format!("push {from} --publish {to} {flags}")).fine();
                let count = |name: &str| run.count(&format!("delivery/{name}"));
                assert_eq!((count("readers"), count("readers_stalled")), (16, 4));
                assert_eq!(count("expected"), 16 * 60);
                assert_eq!((count("stalled/current"), count("stalled/dropped")), (4, 0));
                assert_eq!(count("stalled/delivered") + count("stalled/missing"), 4 * 60);
                assert_eq!(count("delivered") + count("missing"), 16 * 60);
                if keeps_all {
                    assert_eq!((count("readers_complete"), count("stalled/missing")), (16, 0));
                    assert_eq!(count("stalled/gaps_told"), 0);
                } else {
                    assert!(count("stalled/missing") > 4 * 10, "{run:?}");
                    assert!(count("stalled/gaps_told") >= 4, "{run:?}");
                }
            });
        }
    });
}

#[test]
fn messages_are_published_as_they_are_told_to_be() {
    let (stub, log) = publisher(|number| Some(vec![Passed::Message(number)]));
    let url = stub.url();
    let body = "{\"channel\":\"a\",\"data\":\"{message}\"}";
    let line = format!(
        "push {url} --publish {url} --connections 1 --messages 2 --rate 100 --size 50 \
         --publish-method PUT --publish-header X-API-Key:secret \
         --publish-header Content-Type:application/json --publish-body {body}"
    );
    // The reader finds the message in the JSON.
    assert_eq!(bench(&line).fine().count("delivery/readers_complete"), 1);
    let asked = &log.published.lock().unwrap().0;
    assert_eq!(asked.len(), 3, "one before the readers come, and two: {asked:?}");
    for (number, request) in asked.iter().enumerate() {
        assert_eq!(request.method, "PUT");
        assert_eq!(request.field("x-api-key"), Some("secret"));
        assert_eq!(request.field("content-type"), Some("application/json"));
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let message = body["data"].as_str().unwrap();
        assert_eq!((body["channel"].as_str(), message.len()), (Some("a"), 50));
        assert!(message.contains(&format!("-{number:08x}-")), "{message}");
    }
}

#[test]
fn a_publisher_that_is_refused_is_told_before_readers_come() {
    let (server, from) = server_with_value("");
    let line = format!("push {from} --connections 5 --publish");
    // The public listener only reads.
    let run = bench(&format!("{line} {from}")).with_status(1);
    assert!(run.err.contains(&format!("publishing to {from}: 405")), "{}", run.err);
    assert_eq!(server.figure("counters/accepted"), 3, "one publish before, one of the run, and we");
    // Later refusals end the publishing, and the report says how far it came.
    let (stub, _log) = publisher(reluctant);
    let run = push(&stub, "sse").with_status(1);
    assert_eq!(run.count("delivery/published"), 3);
    assert_eq!(run.count("delivery/readers_complete"), 4);
    let told = format!("publishing to {}: 429 Too Many Requests enough", stub.url());
    assert_eq!(run.errors(), [(told.as_str(), 1)]);
}

#[test]
fn readers_of_several_servers_are_told_apart() {
    let all: Order = |number| Some(vec![Passed::Message(number)]);
    let (first, log) = publisher(all);
    let second = sharing(&log, all);
    let (first, second) = (first.url(), second.url());
    let flags = "--connections 7 --messages 20 --rate 200 --threads 2";
    let run = bench(&format!("push {first} --publish {first} --also {second} {flags}")).fine();
    let delivery = &run.report["delivery"];
    assert_eq!((&delivery["readers"], &delivery["delivered"]), (&7.into(), &140.into()));
    let servers = delivery["servers"].as_array().unwrap();
    let at: Vec<_> = servers.iter().map(|server| server["url"].as_str().unwrap()).collect();
    assert_eq!(at, [first, second]);
    let readers: Vec<_> = servers.iter().map(|it| it["readers"].as_u64().unwrap()).collect();
    assert_eq!(readers.iter().sum::<u64>(), 7);
    assert!(readers.iter().all(|readers| [3, 4].contains(readers)), "{readers:?}");
    for server in servers {
        let times = server["latency"]["count"].as_u64().unwrap();
        assert_eq!(times, server["readers"].as_u64().unwrap() * 20);
    }
}
