//! A server whose standard error is a full pipe serves as usual, and stops when it gets a signal.
//!
//! `STENTOR_BLOCKED_S=60 cargo test -p stentor --test e2e blocked_log -- --nocapture` blocks it for
//! a minute under 1,000 readers and 100 publishers, and prints the figures.

use crate::access::{NEVER, bearer, config};
use crate::support::{Server, eventually, figure, stentor};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

/// A server whose log goes through a pipe that a process of its own reads, or does not.
struct Piped {
    server: Server,
    reader: String,
}

impl Piped {
    fn start(toml: &str) -> Piped {
        let prelude = "p=$(mktemp -u); mkfifo $p; cat <$p >&2 & echo \"reader=$!\" >&2; \
                       exec 2>$p; rm $p;";
        let mut server = Server::with(prelude, toml, &["--workers", "2"]);
        let reader = server.child.logged("reader=");
        Piped { server, reader }
    }

    /// Has the pipe read no more, or again.
    fn signal_reader(&self, signal: &str) {
        let line = format!("kill -{signal} {}", self.reader);
        let status = Command::new("sh").args(["-c", &line]).status().unwrap();
        assert!(status.success(), "{line}");
    }

    /// Has clients cause lines until the log can take no more of them.
    fn block(&self) {
        self.signal_reader("STOP");
        let mut client = self.server.reader();
        let requests = "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(500);
        eventually("lines are dropped", || {
            client.send(&requests);
            (0..500).for_each(|_| drop(client.response().refused(404)));
            (self.server.figure("counters/log_dropped") > 0).then_some(())
        });
    }

    /// Has it end while the pipe is full. Returns how long it takes.
    fn end(&mut self) -> Duration {
        let began = Instant::now();
        self.server.child.signal("TERM");
        eventually("it ends", || (!self.server.child.is_running()).then_some(()));
        began.elapsed()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // Else it would hold the pipe of the test for ever.
        self.signal_reader("CONT");
    }
}

const LOUD: &str = "drain = '5s'\n[log]\nlevel = 'debug'\naccess = 'stderr'\n";

/// Sends requests that cause lines in both logs, until the test is over.
fn complain(server: &Server, is_over: &AtomicBool) {
    let (bad, mut client) = (bearer("stentor_unknown"), server.reader());
    while !is_over.load(Ordering::Relaxed) {
        client.get("/none").refused(404);
        // It is closed, for its body is not read.
        server.public.ask("PUT", "/in/a", &bad, b"x").refused(401);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Publishes now and then. Returns how long an answer took at most.
fn publish(server: &Server, number: usize, is_over: &AtomicBool) -> Duration {
    let mut client = server.publisher();
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let topic = format!("/of/{number}");
        client.ask("PUT", &topic, "", b"value").expect_one_of(&[200, 201]);
        longest = longest.max(began.elapsed());
        thread::sleep(Duration::from_millis(200));
    }
    longest
}

#[test]
fn nobody_waits_for_a_log_that_is_not_read() {
    let blocked_s: Option<usize> = env::var("STENTOR_BLOCKED_S").ok().map(|s| s.parse().unwrap());
    let (seconds, readers, publishers) = blocked_s.map_or((2, 100, 10), |s| (s, 1_000, 100));
    let mut piped = Piped::start(&config(NEVER, LOUD));
    piped.block();
    let (server, is_over) = (&piped.server, &AtomicBool::new(false));
    server.publish("/pushed", "");
    let (said, longest) = thread::scope(|all| {
        let publishers: Vec<_> = (0..publishers)
            .map(|number| all.spawn(move || publish(server, number, is_over)))
            .collect();
        all.spawn(move || complain(server, is_over));
        let bench = format!(
            "bench push http://{}/pushed --publish http://{}/pushed --connections {readers} \
             --rate 10 --messages {} --json",
            server.public.0,
            server.control.0,
            seconds * 10
        );
        let said = stentor(bench.split_whitespace()).output().unwrap();
        is_over.store(true, Ordering::Relaxed);
        let longest = publishers.into_iter().map(|thread| thread.join().unwrap()).max();
        (said, longest.unwrap())
    });
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let report: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let of = |name: &str| figure(&report, &format!("delivery/{name}"));
    assert_eq!((of("missing"), of("gaps_told"), of("duplicates")), (0, 0, 0), "{report}");
    assert_eq!(of("delivered"), (seconds * 10 * readers) as u64);
    let dropped = server.figure("counters/log_dropped");
    let took = piped.end();
    println!(
        "blocked for {seconds} s: {} deliveries to {readers} readers, 0 lost, the latest after \
         {} ms; the slowest of {publishers} publishers answered after {longest:?}; {dropped} lines \
         of the log dropped; SIGTERM took {took:?}",
        of("delivered"),
        report.pointer("/delivery/latency/max_us").unwrap().as_f64().unwrap() / 1e3
    );
    assert!(took < Duration::from_secs(5), "longer than drain: {took:?}");
}

#[test]
fn the_log_says_how_many_lines_it_lacks_and_loses_none_at_the_end() {
    let mut piped = Piped::start(LOUD);
    piped.block();
    piped.signal_reader("CONT");
    let line = piped.server.child.logged(" ERROR the log lacks lines: ");
    let count = line.rsplit("lines=").next().unwrap().to_owned();
    assert_eq!(count, piped.server.figure("counters/log_dropped").to_string());
    let metrics = piped.server.control.get("/-/metrics").expect(200);
    assert!(metrics.text().contains(&format!("\nstentor_log_dropped_total {count}\n")));
    piped.server.public.get("/last").refused(404);
    piped.server.child.stop();
    let log = piped.server.child.err();
    assert!(log.contains("request=\"GET /last HTTP/1.1\"") && log.ends_with(" INFO stopped\n"));
    let torn = |line: &&str| !(line.starts_with("20") || line.starts_with("127.0.0.1 - - ["));
    let torn: Vec<_> = log.lines().filter(torn).filter(|l| !l.starts_with("reader=")).collect();
    assert!(torn.is_empty(), "{torn:?}");
}

#[test]
fn a_second_signal_and_a_failed_start_end_at_once_though_nobody_reads() {
    let mut piped = Piped::start(&format!("drain_announce = '1h'\n{LOUD}"));
    piped.block();
    piped.server.child.signal("TERM");
    // The first is on its way to being followed.
    eventually("it says that it stops", || {
        let ready = piped.server.control.get("/-/readyz");
        (ready.status == 503).then_some(())
    });
    // A repeat within half a second is the same stop.
    let began = Instant::now();
    eventually("it ends", || {
        let has_ended = !piped.server.child.is_running();
        if !has_ended {
            piped.server.child.signal("TERM");
        }
        has_ended.then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
