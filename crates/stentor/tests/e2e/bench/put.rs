//! `bench put`: that each answer stands for a value that the server has.

use super::get::Counted;
use super::{bench, url};
use crate::support::{self, Server};

#[test]
fn every_put_is_a_publish_of_the_server() {
    let server = Server::start();
    let url = url(server.control, "/a");
    for (flags, requests) in [
        ("-n 1 -c 1", 1),
        ("-n 501 -c 7 --threads 2", 501),
        ("-n 203 -c 5 --pipeline 16 --bytes 1000", 203),
        ("-n 60 -c 4 --rate 300", 60),
        ("-n 60 -c 4 --close", 60),
    ] {
        let mut run = None;
        let counted = Counted::by(&server, || {
            run = Some(bench(&format!("put {url} {flags}")).fine());
        });
        let run = run.unwrap();
        assert_eq!(run.report["command"], "put");
        assert_eq!(run.count("requests/completed"), requests, "{flags}");
        assert_eq!(run.count("requests/latency/count"), requests, "{flags}");
        assert_eq!((counted.requests, counted.published), (requests, requests), "{flags}");
        assert_eq!(run.count("bytes/sent"), counted.bytes_in, "{flags}");
    }
    assert_eq!(server.public.get("/a").expect(200).body, b"x".repeat(64));
}

#[test]
fn requests_take_topics_in_turn() {
    let server = Server::start();
    let numbered = url(server.control, "/quotes/{n}/last");
    bench(&format!("put {numbered} --topics 5 -n 10 -c 3 --bytes 7")).fine();
    bench(&format!("put {} --topics 3 -n 3 -c 1", url(server.control, "/b"))).fine();
    for n in 0..5 {
        let path = format!("/quotes/{n}/last");
        assert_eq!(server.public.get(&path).expect(200).body, b"xxxxxxx");
    }
    server.public.get("/quotes/5/last").expect(404);
    let status = server.control.get("/-/status").expect(200).json();
    assert_eq!(support::figure(&status, "topics"), 8);
    // The same topics can be read.
    let numbered = url(server.public, "/quotes/{n}/last");
    let run = bench(&format!("get {numbered} --topics 5 -n 20 -c 2")).fine();
    assert_eq!(run.status(200), 20);
}

#[test]
fn a_refused_put_is_an_error() {
    let server = Server::start();
    let run = bench(&format!("put {} -n 3 -c 1", url(server.public, "/a"))).with_status(1);
    assert_eq!(run.errors(), [("status 405", 3)]);
    assert!(run.err.contains("every answer was an error"), "{run:?}");
}
