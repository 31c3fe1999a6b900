//! Servers that should not be: each leads to the right kind of error, as often as it happened, to
//! the exit code that says whether anything was measured, and to an end.

use super::stub::{Peer, Stub};
use super::{Run, bench};
use crate::support::free_address;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A kind of server, by a name for failures.
type Kind = (&'static str, fn() -> Stub);

/// Runs a line on servers of several kinds at a time; `judge` sees what came of each, with what
/// `expected` is beside its kind.
fn each<T: Sync>(cases: &[(Kind, T)], line: &str, judge: impl Fn(&T, &Stub, Run) + Sync) {
    thread::scope(|scope| {
        for ((name, stub), expected) in cases {
            let judge = &judge;
            let case = thread::Builder::new().name((*name).to_owned());
            let run = move || {
                let stub = stub();
                let run = bench(&line.replace("URL", &stub.url()));
                judge(expected, &stub, run);
            };
            case.spawn_scoped(scope, run).unwrap();
        }
    });
}

/// Says the same to the first request of each connection, and closes it.
fn closing(answer: &'static str) -> Stub {
    Stub::new(move |mut peer| {
        peer.request();
        peer.say(answer);
    })
}

/// Says it in packets of one byte, to every request.
fn stuttering(answer: &'static str) -> Stub {
    Stub::new(move |mut peer| {
        while peer.request().is_some() && answer.as_bytes().chunks(1).all(|byte| peer.say(byte)) {}
    })
}

fn endless_head() -> Stub {
    Stub::new(|mut peer| {
        peer.request();
        peer.say("HTTP/1.1 200 OK\r\n");
        while peer.say("X: more and more of it\r\n") {}
    })
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    3;name=\"value\"\r\nabc\r\n00010\r\n0123456789abcdef\r\n0\r\nTrailer: x\r\n\r\n";

const BROKEN: &[(Kind, &str)] = &[
    (("closes without a word", || closing("")), "closed before the answer"),
    (("closes in the head", || closing("HTTP/1.1 200 OK\r\nConte")), "closed before the answer"),
    (
        ("closes in the body", || closing("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")),
        "closed before the answer",
    ),
    (
        ("closes in a chunk", || {
            closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort")
        }),
        "closed before the answer",
    ),
    (("resets", || Stub::new(Peer::reset)), "connection reset"),
    (("speaks TLS", || Stub::answering_once(b"\x15\x03\x03\0\x02\x02\x28")), "malformed answer"),
    (("greets", || Stub::answering_once("220 mail.example ESMTP\r\n")), "malformed answer"),
    (("never ends its head", endless_head), "malformed answer"),
    (
        ("has a negative length", || {
            Stub::answering_once("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")
        }),
        "malformed answer",
    ),
    (
        ("has two lengths", || {
            let two = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk";
            Stub::answering_once(two)
        }),
        "malformed answer",
    ),
    (
        ("has a chunk of no size", || {
            Stub::answering_once(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
            )
        }),
        "malformed answer",
    ),
];

#[test]
fn answers_that_are_none_are_counted_by_kind() {
    let line = "get URL --connections 1 --threads 1 --requests 3";
    each(BROKEN, line, |kind, _, run| {
        let run = run.with_status(1);
        let [(told, count)] = run.errors()[..] else { panic!("one kind of error: {run:?}") };
        assert!(told.starts_with(kind) && count == 3, "{kind}: {run:?}");
        assert_eq!((run.count("requests/completed"), run.count("connections/opened")), (0, 3));
        assert!(run.err.contains("no request answered"), "{}", run.err);
    });
}

#[test]
fn a_websocket_nobody_asked_for() {
    let answer = b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x02hi";
    let stub = Stub::answering_once(answer);
    let run = bench(&format!("get {} --connections 1 --requests 3", stub.url())).with_status(1);
    assert_eq!(run.errors(), [("a WebSocket nobody asked for", 3), ("status 101", 3)]);
}

const ODD: &[(Kind, u16)] = &[
    (("stutters", || stuttering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")), 200),
    (("stutters in chunks", || stuttering(CHUNKED)), 200),
    (("sends chunks", || Stub::answering(CHUNKED)), 200),
    (
        ("closes each time, in order", || {
            closing("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        }),
        200,
    ),
    (("is of 1996", || closing("HTTP/1.0 200 OK\r\n\r\nas much as there is")), 200),
    (("has nothing to say", || Stub::answering("HTTP/1.1 204 No Content\r\n\r\n")), 204),
    (
        ("has a length and no body", || {
            Stub::answering("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n")
        }),
        304,
    ),
    (
        ("announces its answer", || {
            let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            Stub::answering(format!("{early}{early}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        }),
        200,
    ),
];

#[test]
fn odd_answers_are_answers() {
    each(ODD, "get URL --connections 2 --requests 21", |&status, _, run| {
        let run = run.fine();
        assert_eq!(run.count("requests/completed"), 21, "{run:?}");
        assert_eq!(run.status(status), 21, "{run:?}");
        assert_eq!(run.count("connections/dropped"), 0, "{run:?}");
    });
}

#[test]
fn errors_of_the_server_are_answers_too() {
    let line = |stub: &Stub| format!("get {} --connections 2 --requests 50", stub.url());
    let error = "HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nno\n";
    let run = bench(&line(&Stub::answering(error))).with_status(1);
    assert_eq!(run.errors(), [("status 500", 50)]);
    assert_eq!((run.count("requests/completed"), run.status(500)), (50, 50));
    assert!(run.err.contains("every answer was an error"), "{}", run.err);
    // One in five: there is something to measure.
    let answered = AtomicU64::new(0);
    let stub = Stub::new(move |mut peer| {
        while peer.request().is_some() {
            let fails = answered.fetch_add(1, Ordering::Relaxed).is_multiple_of(5);
            peer.say(if fails { error } else { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" });
        }
    });
    let run = bench(&line(&stub)).with_status(1);
    assert_eq!(run.errors(), [("status 500", 10)]);
    assert_eq!((run.status(500), run.status(200)), (10, 40));
}

#[test]
fn nobody_there() {
    let address = free_address();
    let push = format!("push {address} --publish {address} --connections 3");
    for line in ["get URL --requests 9", "get URL --close", "hold URL --connections 20"] {
        let run = bench(&line.replace("URL", &address.to_string())).with_status(1);
        let [("connection refused", 1..)] = run.errors()[..] else { panic!("{line}: {run:?}") };
        assert_eq!(run.count("connections/opened"), 0);
        assert!(run.err.contains("no connection opened"), "{}", run.err);
    }
    let run = bench(&push).with_status(1);
    assert!(run.err.contains(&format!("publishing to http://{address}")), "{}", run.err);
    assert!(run.err.to_lowercase().contains("connection refused"), "{}", run.err);
}

#[test]
fn a_server_that_accepts_and_says_nothing() {
    thread::scope(|scope| {
        scope.spawn(|| {
            let stub = Stub::new(Peer::stay);
            let run = bench(&format!("get {} --connections 3 --duration 1500ms", stub.url()));
            let run = run.with_status(1);
            assert_eq!(run.errors(), [("no answer by the end", 3)]);
            assert_eq!((run.count("connections/opened"), stub.accepted()), (3, 3));
        });
        scope.spawn(|| {
            let stub = Stub::new(Peer::stay);
            let flags = "--connections 3 --duration 1500ms --rate 20";
            let run = bench(&format!("get {} {flags}", stub.url())).with_status(1);
            // 30 were due, and those of the last second might still come.
            let [("no answer by the end", 8..=12)] = run.errors()[..] else { panic!("{run:?}") };
        });
    });
}

#[test]
fn a_server_that_closes_at_once_is_not_flooded() {
    let stub = Stub::new(drop);
    let run = bench(&format!("get {} --connections 4 --duration 500ms", stub.url()));
    let run = run.with_status(1);
    assert_eq!(run.count("requests/completed"), 0, "{run:?}");
    // Four, and four more every tenth of a second.
    let most = 4.0 * (2.0 + run.amount("seconds") * 10.0);
    assert!((stub.accepted() as f64) <= most, "{} connections: {run:?}", stub.accepted());
}

const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";

const NOT_HELD: &[(Kind, (&str, &str))] = &[
    (
        ("fails", || Stub::answering("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")),
        ("idle", "status 500"),
    ),
    (
        ("closes in order", || {
            closing("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        }),
        ("idle", "the server closes after an answer"),
    ),
    (("closes", || closing("")), ("idle", "closed by the server")),
    (("is garbage", || Stub::answering_once("garbage\r\n\r\n")), ("idle", "malformed answer")),
    (
        ("is text", || {
            Stub::answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\ndata: a\n\n")
        }),
        ("sse", "not an event stream"),
    ),
    (
        ("has no type", || Stub::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
        ("sse", "not an event stream"),
    ),
    (
        ("knows no stream", || {
            Stub::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        }),
        ("sse", "status 404"),
    ),
    (
        ("proves nothing", || {
            let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n";
            let proof = "Connection: Upgrade\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=";
            Stub::answering_once(format!("{switched}{proof}\r\n\r\n"))
        }),
        ("ws", "a wrong Sec-WebSocket-Accept"),
    ),
    (
        ("knows no WebSocket", || {
            Stub::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        }),
        ("ws", "status 200"),
    ),
];

#[test]
fn connections_that_are_not_what_was_asked_for_are_not_held() {
    thread::scope(|scope| {
        for ((name, stub), (role, kind)) in NOT_HELD {
            scope.spawn(move || {
                let stub = stub();
                let line = format!("hold {} --as {role} --connections 3", stub.url());
                let run = bench(&line).with_status(1);
                let [(told, 3)] = run.errors()[..] else { panic!("{name}: {run:?}") };
                assert!(told.starts_with(kind), "{name}: {told}");
                assert_eq!((run.count("connections/opened"), stub.accepted()), (0, 3), "{name}");
            });
        }
    });
}

const LET_GO: &[(Kind, (&str, &str))] = &[
    (
        ("ends a stream", || {
            Stub::answering(format!(
                "{SSE}Transfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n0\r\n\r\n"
            ))
        }),
        ("sse", "the stream ended"),
    ),
    (
        ("closes a stream", || {
            closing("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n")
        }),
        ("sse", "closed by the server"),
    ),
    (("closes a WebSocket", || websocket(b"\x88\x02\x03\xe8")), ("ws", "closed by the server")),
    (("masks its frames", || websocket(b"\x81\x82\0\0\0\0hi")), ("ws", "malformed answer")),
    (("uses what was not agreed", || websocket(b"\xc1\x02hi")), ("ws", "malformed answer")),
    (
        ("does not hold", || {
            Stub::answering("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 2\r\n\r\nok")
        }),
        ("poll", "answers at once: not a long-poll"),
    ),
    (
        ("knows no topic", || {
            Stub::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        }),
        ("poll", "status 404"),
    ),
];

/// A WebSocket that is opened well, and then says this.
fn websocket(frame: &'static [u8]) -> Stub {
    Stub::answering_once([super::push::SWITCHED.as_bytes(), frame].concat())
}

#[test]
fn connections_that_do_not_stay_are_dropped() {
    thread::scope(|scope| {
        for ((name, stub), (role, kind)) in LET_GO {
            scope.spawn(move || {
                let stub = stub();
                let line = format!("hold {} --as {role} --connections 3", stub.url());
                let run = bench(&line).with_status(1);
                let [(told, 3)] = run.errors()[..] else { panic!("{name}: {run:?}") };
                assert!(told.starts_with(kind), "{name}: {told}");
                assert_eq!(run.count("connections/opened"), 3, "{name}");
                assert_eq!(run.count("connections/dropped"), 3, "{name}");
                assert_eq!(run.count("connections/open_at_end"), 0, "{name}");
                // They were to be held for ten seconds; when all have gone it is over.
                assert_eq!(stub.accepted(), 3, "{name}: nobody comes back");
            });
        }
    });
}

#[test]
fn a_stream_in_single_bytes_is_a_stream() {
    let stub = Stub::new(|mut peer| {
        peer.request();
        let stream = format!("{SSE}Transfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n");
        for byte in stream.as_bytes().chunks(1) {
            peer.say(byte);
            thread::sleep(Duration::from_micros(200));
        }
        peer.stay();
    });
    let line = format!("hold {} --as sse --connections 3 --duration 200ms", stub.url());
    let run = bench(&line).fine();
    assert_eq!((run.count("connections/opened"), run.count("connections/open_at_end")), (3, 3));
}
