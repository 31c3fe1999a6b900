//! What is published at the worst moment: between any two looks of a worker, and on another thread
//! that has come half through it.

use super::codec::{COMMANDER, TEXT, put_text};
use super::{NOW_S, PUBLIC, World, kind, patient};
use crate::shared::Shared;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use stentor_hub::{ContentType, Draft, Precondition};
use stentor_io::Rng;
use stentor_test::http::Response;
use stentor_test::websocket::Frame;
use stentor_wire::target::TopicName;

fn world() -> World {
    let world = World::new(1, kind(), patient());
    for topic in ["/a", "/b"] {
        world.publish(topic, b"old".to_vec(), ContentType::TEXT);
    }
    world
}

fn publish(shared: &Shared, topic: &str) {
    let topic = TopicName::parse(topic).unwrap();
    shared.hub.publish(topic, Draft::new(*b"new"), Precondition::None, NOW_S).unwrap();
}

/// Asks, and publishes to `topic` at the nth point, and to another at an `earlier` one. Returns the
/// answer, if there is one, and how many points there are.
fn ask_while_published(
    request: &str,
    topic: &'static str,
    earlier: usize,
    nth: usize,
) -> (Vec<u8>, usize) {
    let mut world = world();
    let client = world.sim.connect(PUBLIC);
    world.sim.write(client, format!("{request}Host: h\r\n\r\n").as_bytes());
    let points = Rc::new(Cell::new(0));
    let (own, shared) = (Rc::clone(&points), Arc::clone(&world.shared));
    let at_nth = move || {
        let point = own.replace(own.get() + 1);
        if point == earlier && point < nth {
            publish(&shared, "/other");
        }
        if point == nth {
            publish(&shared, topic);
        }
    };
    stentor_hub::with_hook(at_nth, || world.settle());
    (world.sim.read(client), points.get())
}

#[test]
fn a_held_request_is_answered_whenever_there_is_something_new() {
    let tag = "If-None-Match: \"0badcafe-4\"\r\nPrefer: wait=60\r\n";
    let requests = [
        ("/a", format!("GET /a HTTP/1.1\r\n{tag}")),
        ("/a", "GET /a?wait=60&since=0badcafe-5 HTTP/1.1\r\n".to_owned()),
        ("/c", "GET /c?wait=60 HTTP/1.1\r\n".to_owned()),
        ("/c", "GET /-/events?wait=60&topic=/c&since=0badcafe-5 HTTP/1.1\r\n".to_owned()),
        ("/c", "GET /-/events?wait=60&topic=/c&topic=/b&since=0badcafe-5 HTTP/1.1\r\n".to_owned()),
        (
            "/c",
            "GET /-/events?wait=60&topic=/c/**&topic=/c&since=0badcafe-5 HTTP/1.1\r\n".to_owned(),
        ),
    ];
    for (topic, request) in requests {
        let mut runs = 0;
        for earlier in 0.. {
            let mut nth = earlier;
            loop {
                let (mut answer, points) = ask_while_published(&request, topic, earlier, nth);
                if points <= nth {
                    assert_eq!(String::from_utf8_lossy(&answer), "", "{request} has nothing new");
                    break;
                }
                let answer = Response::take(&mut answer).map(|answer| (answer.status, answer.body));
                let is_right = answer.as_ref().is_some_and(|(status, body)| {
                    *status == 200 && String::from_utf8_lossy(body).contains("new")
                });
                assert!(is_right, "{request} at {nth} behind {earlier}: {answer:?}");
                nth += 1;
            }
            runs += nth - earlier;
            if nth == earlier {
                break;
            }
        }
        assert!(runs >= 6, "{request} has only {runs} points");
    }
}

/// A publisher on another thread, which stops at the nth point inside its publish until it is told
/// to go on, or nobody has told it for so long that whoever should must be waiting for it.
fn publish_half(shared: &Arc<Shared>, nth: usize) -> (Sender<()>, JoinHandle<()>) {
    let ((go_on, told), (here, stopped)) = (channel(), channel());
    let shared = Arc::clone(shared);
    let publisher = std::thread::spawn(move || {
        let mut points = 0;
        let hook = move || {
            points += 1;
            if points == nth {
                wait(&here, &told);
            }
        };
        stentor_hub::with_hook_inside(hook, || publish(&shared, "/a"));
    });
    // Without so many points it has come to its end.
    let _ = stopped.recv();
    (go_on, publisher)
}

fn wait(here: &Sender<()>, told: &Receiver<()>) {
    here.send(()).unwrap();
    let _ = told.recv_timeout(Duration::from_secs(1));
}

/// More points than a publish has.
const POINTS_MAX: usize = 8;

#[test]
fn the_id_of_a_value_that_can_be_read_is_no_cursor_from_the_future() {
    for nth in 1..=POINTS_MAX {
        let mut world = world();
        let (go_on, publisher) = publish_half(&world.shared, nth);
        let (_, answer) = world.ask(PUBLIC, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        let tag = answer.split("ETag: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let get =
            format!("GET /a?since={tag} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        let (_, stream) = world.ask(PUBLIC, get.as_bytes());
        assert!(stream.starts_with("HTTP/1.1 200 ") && !stream.contains("gap"), "{nth}: {stream}");
        let _ = go_on.send(());
        publisher.join().unwrap();
    }
}

#[test]
fn a_command_loses_nothing_that_is_just_being_published() {
    for nth in 1..=POINTS_MAX {
        let mut world = world();
        let get = b"GET /b HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
        world.ask(PUBLIC, get);
        let (commander, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
        let mut rng = Rng::new(1);
        let mut subscribe = |world: &mut World, topic: &str| {
            let mut frame = Vec::new();
            let command = format!("{{\"subscribe\":[\"{topic}\"]}}");
            put_text(&mut frame, &mut rng, command.as_bytes());
            world.sim.write(commander, &frame);
            world.settle();
        };
        subscribe(&mut world, "/a");
        world.sim.read(commander);
        let (go_on, publisher) = publish_half(&world.shared, nth);
        subscribe(&mut world, "/b");
        let _ = go_on.send(());
        publisher.join().unwrap();
        world.settle();
        let mut received = world.sim.read(commander);
        let mut news = 0;
        while let Some(frame) = Frame::take(&mut received) {
            assert_eq!(frame.first, TEXT);
            news += usize::from(String::from_utf8(frame.payload).unwrap().contains("new"));
        }
        assert_eq!(news, 1, "stopped at {nth}");
    }
}
