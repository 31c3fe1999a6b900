//! The one topic that a page of the public listener writes to, where there is one.

use super::{World, kind, patient};
use crate::listeners::{CONTROL, PUBLIC};
use stentor_config::Settings;
use stentor_wire::target::TopicName;

fn world(settings: Settings) -> World {
    World::new(1, kind(), settings)
}

fn with_guestbook() -> Settings {
    let guestbook = Some(TopicName::parse("/book").unwrap());
    Settings { guestbook, ..patient() }
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

const OWN: &str = "Host: 10.0.0.7:8080\r\nOrigin: http://10.0.0.7:8080\r\n";

#[track_caller]
fn expect(world: &mut World, role: u8, request: &str, status: &str) -> String {
    let (_, answer) = world.ask(role, request.as_bytes());
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    answer
}

#[test]
fn only_the_servers_own_page_signs_the_guestbook() {
    for (fields, status) in [
        (OWN, "201"),
        ("Host: localhost:1\r\nOrigin: http://localhost:1\r\n", "201"),
        (&format!("{OWN}Sec-Fetch-Site: same-origin\r\n"), "201"),
        (&format!("{OWN}Sec-Fetch-Site: cross-site\r\n"), "403"),
        (&format!("{OWN}Sec-Fetch-Site: same-site\r\n"), "403"),
        ("Host: 10.0.0.7:8080\r\n", "403"),
        ("Host: 10.0.0.7:8080\r\nOrigin: http://10.0.0.7:80\r\n", "403"),
        ("Host: 10.0.0.7:8080\r\nOrigin: http://evil.example\r\n", "403"),
        ("Host: 10.0.0.7:8080\r\nOrigin: null\r\n", "403"),
        // A name that leads here now, and did not when the page was loaded.
        ("Host: evil.example:8080\r\nOrigin: http://evil.example:8080\r\n", "403"),
    ] {
        let mut settings = with_guestbook();
        // Who may read may not write.
        settings.cors.origins = vec!["*".to_owned()];
        let mut world = world(settings);
        expect(&mut world, PUBLIC, &post("/book", fields, "hello"), status);
        let there = if status == "201" { "200" } else { "404" };
        expect(&mut world, PUBLIC, "GET /book HTTP/1.1\r\nHost: h\r\n\r\n", there);
    }
}

#[test]
fn a_guestbook_takes_text_and_nothing_else() {
    let mut world = world(with_guestbook());
    let long = "x".repeat(301);
    for body in ["", &long] {
        expect(&mut world, PUBLIC, &post("/book", OWN, body), "400");
    }
    let chunked = format!("POST /book HTTP/1.1\r\n{OWN}Transfer-Encoding: chunked\r\n\r\n");
    expect(&mut world, PUBLIC, &(chunked + "1\r\nx\r\n0\r\n\r\n"), "400");
    // It is where it is, and takes what it takes; the control listener has none.
    for path in ["/", "/book/", "/other", "/-/publish"] {
        expect(&mut world, PUBLIC, &post(path, OWN, "x"), "405");
    }
    for method in ["PUT", "DELETE", "PATCH"] {
        let request = post("/book", OWN, "x").replace("POST", method);
        expect(&mut world, PUBLIC, &request, "405");
    }
    expect(&mut world, CONTROL, &post("/book", OWN, "x"), "403");
    let fields = "Content-Type: text/html\r\nStentor-Event: e\r\nCache-Control: max-age=9\r\n";
    expect(&mut world, PUBLIC, &post("/book?a=b", &format!("{OWN}{fields}"), &long[1..]), "201");
    let answer = expect(&mut world, PUBLIC, "GET /book HTTP/1.1\r\nHost: h\r\n\r\n", "200");
    assert!(answer.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{answer}");
    assert!(answer.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{answer}");
    assert!(answer.contains("\r\nCache-Control: no-cache\r\n"), "{answer}");
}

#[test]
fn a_guestbook_takes_one_message_a_second() {
    let mut world = world(with_guestbook());
    let request = post("/book", OWN, "hello");
    // Two at once: the heads of both come before either body.
    let (head, body) = request.split_at(request.len() - 5);
    let both = [(); 2].map(|()| world.sim.connect(PUBLIC));
    for part in [head, body] {
        for client in both {
            world.sim.write(client, part.as_bytes());
        }
        world.settle();
    }
    let mut answers = both.map(|client| world.sim.read(client));
    answers.sort();
    assert!(answers[0].starts_with(b"HTTP/1.1 201 "), "{answers:?}");
    assert!(answers[1].starts_with(b"HTTP/1.1 412 "), "{answers:?}");
    expect(&mut world, PUBLIC, &request, "429");
    world.sim.sleep(1_000);
    expect(&mut world, PUBLIC, &request, "200");
    expect(&mut world, PUBLIC, &request, "429");
}

#[test]
fn without_a_guestbook_there_is_none() {
    let mut world = world(patient());
    expect(&mut world, PUBLIC, &post("/book", OWN, "hello"), "405");
}
