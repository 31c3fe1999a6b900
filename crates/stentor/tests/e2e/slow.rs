//! Clients that take their time: each kind of slowness has its deadline, and costs only itself.

use crate::support::{Client, Ending, Server, eventually};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_head_that_drips_in_is_cut_off() {
    let server = Server::configured("[limits]\nhead_timeout = '600ms'\n");
    let begin = Instant::now();
    let mut client = server.reader();
    let mut sender = client.sender();
    // A byte now and then buys nothing: the deadline is that of the whole head.
    let dripping = thread::spawn(move || {
        for _ in 0..500 {
            if sender.try_send(b"X").is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    client.response().refused(408);
    assert!(begin.elapsed() >= Duration::from_millis(500));
    client.ending();
    drop(client);
    dripping.join().unwrap();
    assert!(server.figure("counters/timeouts") >= 1);
}

#[test]
fn a_second_head_has_its_own_deadline() {
    let server = Server::configured("[limits]\nhead_timeout = '300ms'\n");
    let mut client = server.reader();
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(150));
        client.get("/none").refused(404);
    }
    client.send("GET /none HTTP/1.1\r\n");
    client.response().refused(408);
    assert_eq!(client.ending(), Ending::Closed);
}

#[test]
fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let toml = "[limits]\nhead_timeout = '300ms'\nkeep_alive_timeout = '400ms'\n";
    let server = Server::configured(toml);
    let mut silent = server.reader();
    let mut idle = server.reader();
    idle.get("/none").refused(404);
    let begin = Instant::now();
    assert_eq!(idle.ending(), Ending::Closed);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert_eq!(silent.ending(), Ending::Closed);
}

#[test]
fn a_body_that_drips_in_is_cut_off() {
    // A body has ten seconds for its start, whatever the rate.
    let server = Server::configured("[limits]\nbody_rate_min = '1MiB'\n");
    let begin = Instant::now();
    let mut client = server.publisher();
    client.send("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    let mut sender = client.sender();
    let dripping = thread::spawn(move || {
        for _ in 0..2_000 {
            if sender.try_send(b"x").is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    client.response().refused(408);
    assert!(begin.elapsed() >= Duration::from_secs(9));
    client.ending();
    drop(client);
    dripping.join().unwrap();
    server.public.get("/a").refused(404);
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_costs_only_itself() {
    let server = Server::configured("[limits]\nwrite_timeout = '800ms'\n");
    server.control.put("/a", "text/plain", &vec![b'x'; 1024 * 1024]).expect(201);
    let memory_before = server.figure("memory_resident_bytes");
    let mut deaf: Vec<Client> = (0..20).map(|_| server.reader()).collect();
    for client in &mut deaf {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
    }
    // Two gigabytes were asked for; what waits is a message that all share, and the requests.
    for _ in 0..20 {
        server.public.get("/none").refused(404);
    }
    let memory = server.figure("memory_resident_bytes") - memory_before.min(1 << 40);
    assert!(memory < 64 * 1024 * 1024, "{memory} bytes more");
    eventually("all are cut off", || {
        (server.figure("counters/connections_public") == 0).then_some(())
    });
    assert!(server.figure("counters/timeouts") >= 20);
    drop(deaf);
}

#[test]
fn a_client_that_reads_slowly_but_reads_gets_everything() {
    let server = Server::configured("[limits]\nwrite_timeout = '5s'\n");
    server.control.put("/a", "text/plain", &vec![b'x'; 1024 * 1024]).expect(201);
    let mut client = server.reader();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(30));
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(20));
        assert_eq!(client.response().expect(200).body.len(), 1024 * 1024);
    }
}

#[test]
fn an_unread_burst_of_small_answers_does_not_stop_the_others() {
    let server = Server::start();
    server.control.put("/a", "text/plain", &[b'x'; 1000]).expect(201);
    let mut deaf = server.reader();
    let mut sender = deaf.sender();
    // The server stops reading when its answers are not read, so this blocks at some point.
    let sending = thread::spawn(move || {
        let requests = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
        for _ in 0..100 {
            sender.send(&requests);
        }
    });
    for _ in 0..50 {
        assert_eq!(server.public.get("/a").expect(200).body.len(), 1000);
    }
    for _ in 0..100_000 {
        deaf.response().expect(200);
    }
    sending.join().unwrap();
}
