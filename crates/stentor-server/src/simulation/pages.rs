//! Pages that browsers show, and the names under which they reach a listener.

use super::codec::COMMANDER;
use super::faults::{ip, world};
use super::net::Layers;
use super::{CONTROL, PUBLIC, Parts, World, kind, patient};
use crate::listeners::MONITOR;

#[test]
fn control_goes_by_addresses_and_names_that_are_listed() {
    let mut settings = patient();
    settings.control_hosts = vec!["stentor.internal".to_owned()];
    let mut world = world(settings);
    let mut status = |role, address, version: &str, host: &str| {
        let client = world.sim.connect_from(role, address);
        world.sim.write(client, format!("GET /small {version}\r\n{host}\r\n").as_bytes());
        world.settle();
        let answer = String::from_utf8(world.sim.read(client)).unwrap();
        (answer[9..12].to_owned(), answer)
    };
    let loopback = ip("127.0.0.1");
    for (host, expected) in [
        ("localhost", "200"),
        ("LocalHost:8081", "200"),
        ("127.0.0.1", "200"),
        ("127.0.0.1:8081", "200"),
        ("[::1]:8081", "200"),
        ("[2001:db8::7]", "200"),
        ("192.0.2.1:80", "200"),
        ("stentor.internal", "200"),
        ("Stentor.Internal:8081", "200"),
        ("rebound.example", "421"),
        ("rebound-stentor.internal", "421"),
        ("rebound.example:8081", "421"),
        ("localhost.rebound.example", "421"),
        ("127.0.0.1.rebound.example:8081", "421"),
        ("", "200"),
    ] {
        let field = format!("Host: {host}\r\n");
        let (code, answer) = status(CONTROL, loopback, "HTTP/1.1", &field);
        assert_eq!(code, expected, "{host}");
        assert!(code == "200" || answer.contains("control_hosts"), "{answer}");
        // By a socket file, and on the public listener, any name will do.
        assert_eq!(status(CONTROL, None, "HTTP/1.1", &field).0, "200", "{host}");
        assert_eq!(status(PUBLIC, loopback, "HTTP/1.1", &field).0, "200", "{host}");
    }
    assert_eq!(status(CONTROL, loopback, "HTTP/1.0", "").0, "200");
}

#[test]
fn rebound_names_read_no_status_and_metrics() {
    let mut world = world(patient());
    for (host, expected) in [("localhost:9090", "200"), ("192.0.2.1", "200"), ("rebound", "421")] {
        for path in ["/-/status", "/-/metrics", "/-/healthz"] {
            let client = world.sim.connect_from(MONITOR, ip("127.0.0.1"));
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            world.sim.write(client, request.as_bytes());
            world.settle();
            let answer = String::from_utf8(world.sim.read(client)).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{host}: {answer}");
        }
    }
}

#[test]
fn pages_of_other_sites_do_not_publish() {
    let mut world = world(patient());
    for (site, expected) in
        [("cross-site", "403"), ("same-site", "403"), ("same-origin", "20"), ("none", "20")]
    {
        for (method, length) in [("PUT", "Content-Length: 0\r\n"), ("DELETE", "")] {
            let request = format!(
                "{method} /w HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: {site}\r\n{length}\r\n"
            );
            let (_, answer) = world.ask(CONTROL, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{site}: {answer}");
        }
    }
}

#[test]
fn pages_of_other_sites_open_no_websockets() {
    let mut world = world(patient());
    let mut secured = World::of(Parts::over(Layers::Tls), 1, kind(), patient());
    for (fields, expected, by_tls) in [
        ("Origin: http://h", "101", "403"),
        ("Origin: https://h", "101", "101"),
        ("Origin: https://h\r\nSec-Fetch-Site: same-origin", "101", "101"),
        ("Origin: https://h\r\nSec-Fetch-Site: cross-site", "403", "403"),
        ("Origin: ftp://h", "403", "403"),
        ("Origin: https://h:8443", "403", "403"),
        ("Origin: http://evil", "403", "403"),
        ("Origin: null", "403", "403"),
        ("Sec-Fetch-Site: cross-site", "403", "403"),
        ("X: y", "101", "101"),
    ] {
        let request = COMMANDER.replace("Host: h\r\n", &format!("Host: h\r\n{fields}\r\n"));
        let (_, plain) = world.ask(PUBLIC, request.as_bytes());
        assert!(plain.starts_with(&format!("HTTP/1.1 {expected} ")), "{fields}: {plain}");
        let (_, answer) = secured.ask(PUBLIC, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {by_tls} ")), "{fields}: {answer}");
    }
}
