//! A stop as whoever wants to connect meanwhile sees it, and a restart that nobody notices.

use crate::support::{Client, PATIENCE, Server, Url, eventually, run};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// A server, and a request that keeps it from ending.
fn busy(toml: &str) -> (Server, Client) {
    let server = Server::configured(toml);
    let mut uploading = server.publisher();
    uploading.send("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
    eventually("the request has begun", || {
        (server.figure("counters/connections_reading") >= 1).then_some(())
    });
    (server, uploading)
}

/// Newcomers are turned away like this, once they are. An attempt that ends otherwise is tried
/// again: a machine that stands still for a moment lets one time out that was refused.
#[track_caller]
fn turned_away(address: Url, how: ErrorKind) {
    eventually(&format!("newcomers are turned away: {how}"), || {
        let attempt = TcpStream::connect_timeout(&address.0, Duration::from_millis(300));
        attempt.is_err_and(|error| error.kind() == how).then_some(())
    });
}

#[test]
fn who_comes_during_a_stop_is_refused_at_once() {
    let (mut server, mut uploading) = busy("");
    let mut early = server.reader();
    server.child.signal("TERM");
    server.child.logged("stopping: ");
    // No SYN is dropped: a proxy would wait for a second before it tries the next server.
    turned_away(server.public, ErrorKind::ConnectionRefused);
    assert!(server.child.is_running());
    early.get("/none").refused(404);
    uploading.send("x");
    uploading.response().expect(201);
    drop((early, uploading));
    server.child.stopped();
}

#[test]
fn who_comes_during_a_stop_hears_nothing_if_so_configured() {
    let (mut server, mut uploading) = busy("drain_new = 'drop'\n");
    server.child.signal("TERM");
    server.child.logged("stopping: ");
    turned_away(server.public, ErrorKind::TimedOut);
    uploading.send("x");
    uploading.response().expect(201);
    drop(uploading);
    server.child.stopped();
}

#[test]
fn a_stop_is_announced_while_everything_goes_on() {
    let mut server = Server::configured("drain_announce = '2s'\n");
    server.publish("/a", "x");
    server.control.get("/-/readyz").expect(200);
    let control = server.control.0.to_string();
    let check = ["status", "--ready", "--server", &control];
    let healthy = run(&check);
    assert_eq!((healthy.code, healthy.out.as_str()), (Some(0), "ready\n"), "{}", healthy.err);
    server.child.signal("TERM");
    server.child.logged("stopping in 2s");
    assert!(server.control.get("/-/readyz").refused(503).detail().contains("Draining"));
    let unhealthy = run(&check);
    assert_eq!((unhealthy.code, unhealthy.out.as_str()), (Some(1), ""));
    assert!(unhealthy.err.contains(&format!("{control} is not ready: 503")), "{}", unhealthy.err);
    assert_eq!(server.control.get("/-/status").expect(200).json()["draining"], true);
    assert_eq!(server.public.get("/a").expect(200).text(), "x");
    server.publish("/a", "y");
    server.child.stopped_within(PATIENCE);
}

#[test]
fn a_restart_with_a_listener_of_the_supervisor_loses_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Url(listener.local_addr().unwrap());
    let (answered, over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let answer = address.try_get("/a");
                        assert!(matches!(answer, Some(Ok(_))), "{answer:?}");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for life in 1..=3 {
            let mut server = Server::inheriting(&listener, "");
            assert_eq!(server.public, address);
            eventually("requests are answered", || {
                (answered.load(Ordering::Relaxed) > life * 300).then_some(())
            });
            if life == 3 {
                over.store(true, Ordering::Relaxed);
                for visitor in visitors {
                    visitor.join().unwrap();
                }
                return;
            }
            server.child.stop();
        }
    });
}
