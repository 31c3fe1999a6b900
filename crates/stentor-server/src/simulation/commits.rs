//! Commits that come one by one, when the test says so: who is told of them, and when.

use super::late::Late;
use super::net::Client;
use super::{CONTROL, Parts, World, kind, patient};
use crate::limits::BULK_SILENCE_MS;
use crate::mailbox::Order;
use std::sync::Arc;
use stentor_io::{Faults, Rng};

/// A world in which nothing is committed by itself.
fn world(fails_percent: u8, faults: Faults) -> (World, Arc<Late>) {
    let late = Late::new(fails_percent);
    let parts = Parts { late: Some(Arc::clone(&late)), ..Parts::default() };
    (World::of(parts, 1, faults, patient()), late)
}

/// Commits so many changes, and lets the worker do what follows.
fn commit(world: &mut World, late: &Late, count: usize) {
    (0..count).for_each(|_| late.commit_one(world.shared.committer.applier(), &mut Rng::new(1)));
    turns(world);
}

/// Some turns without a commit.
fn turns(world: &mut World) {
    for _ in 0..100 {
        world.turn_of_one();
    }
}

/// Sends without a commit.
fn send(world: &mut World, client: Client, bytes: &str) {
    world.sim.write(client, bytes.as_bytes());
    turns(world);
}

fn read(world: &mut World, client: Client) -> String {
    String::from_utf8_lossy(&world.sim.read(client)).into_owned()
}

fn put(topic: &str) -> String {
    format!("PUT {topic} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
}

fn lines(count: usize) -> String {
    let body = "{\"topic\":\"/a\",\"data\":1}\n".repeat(count);
    format!("POST /-/publish HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn nobody_is_told_what_came_of_anothers_change() {
    let (mut world, late) = world(0, kind());
    let gone = world.sim.connect(CONTROL);
    send(&mut world, gone, &put("/gone"));
    world.sim.reset_client(gone);
    turns(&mut world);
    let client = world.sim.connect(CONTROL);
    send(&mut world, client, &put("/small"));
    commit(&mut world, &late, 1);
    assert!(world.shared.hub.value("/gone").is_some());
    assert_eq!(read(&mut world, client), "", "its own is not committed yet");
    commit(&mut world, &late, 1);
    let id = world.shared.hub.value("/small").unwrap().id().to_string();
    let answer = read(&mut world, client);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(&id), "{answer}");
}

#[test]
fn an_answer_waits_for_the_one_before_it() {
    let (mut world, late) = world(0, Faults { window_bytes: 3_000, ..kind() });
    let client = world.sim.connect(CONTROL);
    world.sim.stall(client, true);
    let get = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
    send(&mut world, client, &[get, &put("/a")].concat());
    commit(&mut world, &late, 1);
    world.sim.stall(client, false);
    world.settle();
    let answers = world.sim.read(client);
    let large = super::large();
    assert!(answers.windows(large.len()).any(|window| window == large));
    assert!(String::from_utf8_lossy(&answers).contains("HTTP/1.1 201 Created\r\n"));
}

#[test]
fn lines_are_told_of_once_it_is_known_what_came_of_all() {
    for (fails_percent, told) in [
        (0, "{\"published\":3,\"failed\":0,\"last_id\":\""),
        (
            100,
            "{\"published\":0,\"failed\":3,\"last_id\":null,\"errors\":[{\"line\":1,\
             \"code\":\"outcome_unknown\",",
        ),
    ] {
        let (mut world, late) = world(fails_percent, kind());
        let client = world.sim.connect(CONTROL);
        send(&mut world, client, &lines(3));
        for _ in 0..2 {
            commit(&mut world, &late, 1);
            assert_eq!(read(&mut world, client), "");
        }
        commit(&mut world, &late, 1);
        let answer = read(&mut world, client);
        assert!(answer.contains(told), "{answer}");
        assert_eq!(answer.contains("{\"line\":3,"), fails_percent > 0, "{answer}");
    }
}

#[test]
fn behind_too_many_lines_no_more_are_taken() {
    let (mut world, late) = world(0, kind());
    let client = world.sim.connect(CONTROL);
    send(&mut world, client, &lines(20_000));
    let waiting = late.waiting();
    assert!((4_096..8_192).contains(&waiting), "{waiting} lines wait");
    world.settle();
    assert!(read(&mut world, client).contains("{\"published\":20000,\"failed\":0,"));
}

/// A disk that hangs is no fault of the publisher's, who is to get the report.
#[test]
fn a_publisher_that_may_not_send_is_not_slow() {
    let (mut world, late) = world(0, kind());
    let client = world.sim.connect(CONTROL);
    send(&mut world, client, &lines(20_000));
    for _ in 0..5 {
        world.sim.sleep(BULK_SILENCE_MS + 1_000);
        turns(&mut world);
    }
    assert_eq!(read(&mut world, client), "");
    assert!(late.waiting() > 0 && world.totals().timeouts == 0);
    world.settle();
    assert!(read(&mut world, client).contains("{\"published\":20000,\"failed\":0,"));
}

#[test]
fn a_stop_waits_for_what_is_not_known_yet() {
    let (mut world, late) = world(100, kind());
    let client = world.sim.connect(CONTROL);
    send(&mut world, client, &put("/a"));
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    turns(&mut world);
    assert_eq!(read(&mut world, client), "");
    commit(&mut world, &late, 1);
    let answer = read(&mut world, client);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Connection: close\r\n"));
    assert!(world.sim.ended(client));
}

/// A client that has sent its last byte gets its responses, also those to what came behind.
#[test]
fn half_closed_publisher_gets_its_responses() {
    let get = "GET /small HTTP/1.1\r\nHost: h\r\n\r\n";
    let close = put("/a").replace("Host", "Connection: close\r\nHost");
    let twice = [&put("/a")[..], &put("/b"), get].concat();
    for (requests, commits, statuses) in [
        (put("/a"), 1, &["201"][..]),
        (close, 1, &["201"]),
        (twice, 2, &["201", "201", "200"]),
        (lines(3), 3, &["200"]),
        (lines(20_000), 20_000, &["200"]),
    ] {
        let (mut world, late) = world(0, kind());
        let client = world.sim.connect(CONTROL);
        send(&mut world, client, &requests);
        world.sim.finish_client(client);
        turns(&mut world);
        assert_eq!(read(&mut world, client), "");
        for _ in 0..commits {
            late.commit_one(world.shared.committer.applier(), &mut Rng::new(1));
            world.turn_of_one();
        }
        turns(&mut world);
        let responses = read(&mut world, client);
        let found: Vec<&str> =
            responses.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
        assert_eq!(found, statuses, "{responses}");
        assert!(world.sim.ended(client));
        world.settle();
        world.check_nothing_is_left();
    }
}
