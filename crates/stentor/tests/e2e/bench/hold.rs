//! `bench hold`: connections that stay for as long as the server lets them.

use super::{begin, bench, server_with_value, url};
use crate::support::{PATIENCE, Server};
use std::thread;

const ROLES: [(&str, &str); 4] = [
    ("idle", "connections_public"),
    ("sse", "readers_sse"),
    ("ws", "readers_websocket"),
    ("poll", "readers_long_poll"),
];

#[test]
fn as_many_as_were_asked_for_are_held_and_a_server_that_stops_drops_them_all() {
    thread::scope(|scope| {
        for (role, counter) in ROLES {
            scope.spawn(move || {
                let (mut server, url) = server_with_value("[streams]\ndrain_spread = '0s'\n");
                let pid = server.child.id();
                let flags = "--connections 60 --threads 2 --duration 60s";
                let run = begin(&format!("hold {url} --as {role} {flags} --pid {pid}"));
                server.settled(counter, 60);
                server.child.signal("TERM");
                let run = run.over().with_status(1);
                assert_eq!(run.count("connections/opened"), 60, "{role}");
                assert_eq!(run.count("connections/first_answer/count"), 60, "{role}");
                assert_eq!(run.count("connections/dropped"), 60, "{role}: {run:?}");
                assert_eq!(run.count("connections/open_at_end"), 0, "{role}");
                assert_eq!(run.errors().iter().map(|(_, count)| count).sum::<u64>(), 60, "{role}");
                server.child.stopped_within(PATIENCE);
            });
        }
    });
}

#[test]
fn held_to_the_end_and_nothing_lost() {
    thread::scope(|scope| {
        for (role, _) in ROLES {
            scope.spawn(move || {
                let (_server, url) = server_with_value("");
                let flags = "--connections 50 --duration 300ms --ramp 500";
                let run = bench(&format!("hold {url} --as {role} {flags}")).fine();
                assert_eq!(run.count("connections/open_at_end"), 50, "{role}");
                assert_eq!(run.count("memory/connections"), 50, "{role}");
                // 50 at 500 per second, and then it holds.
                assert!(run.amount("connections/opening_seconds") >= 0.09, "{role}: {run:?}");
                assert!(run.amount("seconds") >= 0.39, "{role}: {run:?}");
            });
        }
    });
}

#[test]
fn a_websocket_that_is_pinged_answers() {
    let server = Server::configured("[streams]\nping = '1s'\n");
    let line = format!("hold {} --as ws --connections 20", url(server.public, "/a"));
    // Whoever is silent from one ping to the next is cut, so after 2.5 s nobody would be left.
    let run = bench(&format!("{line} --duration 2600ms")).fine();
    assert_eq!((run.count("connections/open_at_end"), run.count("connections/dropped")), (20, 0));
    // Two pings of two bytes each, at least.
    let quiet = bench(&format!("{line} --duration 1ms")).fine();
    let more = run.count("bytes/sent") - quiet.count("bytes/sent");
    assert!(more >= 20 * 2 * 6, "{more} bytes of pongs");
}
