//! The redirect listener: whatever is read there is to be found under the same path by TLS.
//!
//! What is read leads on by 301, which every client follows. What would be published is refused:
//! it has already gone over the wire in plain text, a token with it, and whoever sent it so is to
//! learn of that now rather than never.
//!
//! `Host` comes from the client, and goes into `Location`. The parser lets through one name or
//! address with at most a port, so nothing in it can end the name or the line.

use crate::access::page::split_port;
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::response::TEXT;
use std::borrow::Cow;
use stentor_wire::http1::{Method, Request};
use stentor_wire::rejections;
use stentor_wire::status::Status;

/// Answers a request, whatever it asks for.
pub(crate) fn answer(x: &mut Exchange<'_>, request: &Request<'_>) -> Answer {
    // The client sends its next request to another port.
    x.reply.shape.persistence.keep_alive = false;
    lead_on(x, request);
    Answer::Now
}

fn lead_on(x: &mut Exchange<'_>, request: &Request<'_>) {
    if !matches!(request.method, Method::Get | Method::Head) {
        let head = x.reply.begin(READS_ONLY.status());
        return head.field(Field::ALLOW, "GET, HEAD").reject(&READS_ONLY);
    }
    let name = request.host.map_or(&b""[..], |host| split_port(host).0);
    // The zone of an address means something on the client's host alone.
    let zone = name.iter().position(|byte| *byte == b'%').filter(|_| name.starts_with(b"["));
    let name = &*zone.map_or(Cow::Borrowed(name), |at| [&name[..at], b"]"].concat().into());
    if name.is_empty() || !name.iter().all(|b| is_of_a_name(*b)) {
        return x.reply.reject(&NO_NAME);
    }
    let mut location = Vec::with_capacity(128 + request.target.len());
    location.extend_from_slice(b"https://");
    location.extend_from_slice(name);
    if let Some(port) = x.settings.redirect_target() {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    if !request.target.starts_with(b"/") {
        location.push(b'/');
    }
    location.extend_from_slice(request.target);
    // For ever is too long for what may have been a mistake; HSTS is for those who are sure.
    let head = x.reply.begin(Status::MOVED_PERMANENTLY).field(Field::LOCATION, location);
    let head = head.field(Field::CACHE_CONTROL, "max-age=3600");
    head.content(TEXT, b"This is to be found by https.\n");
}

/// What names, IPv4 and IPv6 addresses consist of. The parser allows more, percent-encoded too.
fn is_of_a_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}

rejections! {
    READS_ONLY: HttpsRequired =
        "Only reads are led to https from here: send this there, and replace a token that was sent \
         here.";
    NO_NAME: HostInvalid =
        "Say in Host which server is meant: this port leads to the same one by https.";
}

#[cfg(test)]
mod tests {
    use crate::listeners::REDIRECT;
    use crate::simulation::{World, kind, patient};
    use stentor_config::Settings;

    fn world(port: u16) -> World {
        let redirect = vec!["0.0.0.0:80".parse().unwrap()];
        World::new(1, kind(), Settings { redirect, redirect_port: port, ..patient() })
    }

    fn ask(world: &mut World, request: &str) -> String {
        let client = world.sim.connect(REDIRECT);
        world.sim.write(client, request.as_bytes());
        world.settle_some(5);
        let answer = String::from_utf8(world.sim.read(client)).unwrap();
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        assert!(world.sim.ended(client), "the server ends a connection that it said it closes");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        answer
    }

    fn location(world: &mut World, target: &str, host: &str) -> String {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = ask(world, &request);
        assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
        let line = answer.lines().find_map(|line| line.strip_prefix("Location: "));
        line.unwrap().to_owned()
    }

    #[test]
    fn what_is_read_leads_to_the_same_path_by_https() {
        let mut world = world(443);
        for (target, host, expected) in [
            ("/", "a.example", "https://a.example/"),
            ("/a/b?c=%0d%0a&d", "a.example:80", "https://a.example/a/b?c=%0d%0a&d"),
            ("//evil.example/", "a.example", "https://a.example//evil.example/"),
            ("/-/status", "a.example", "https://a.example/-/status"),
            ("/", "[::1]:8080", "https://[::1]/"),
            ("/", "[fe80::1%25eth0]:8080", "https://[fe80::1]/"),
            ("/", "127.0.0.1:", "https://127.0.0.1/"),
            ("http://b.example/x", "a.example", "https://b.example/x"),
        ] {
            assert_eq!(location(&mut world, target, host), expected);
        }
        let answer = ask(&mut world, "HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 301 ") && answer.ends_with("\r\n\r\n"), "{answer}");
        let stream = "GET /a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
        assert!(ask(&mut world, stream).starts_with("HTTP/1.1 301 "));
    }

    #[test]
    fn another_port_is_named() {
        assert_eq!(location(&mut world(8_443), "/a", "h:80"), "https://h:8443/a");
    }

    #[test]
    fn what_is_no_name_is_led_nowhere() {
        let mut world = world(443);
        for host in ["", ":80", "a%2Fb", "a,b", "u@b", "a/b", "a b", "a!b"] {
            let answer = ask(&mut world, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
            assert!(!answer.contains("Location"), "{answer}");
        }
        assert!(ask(&mut world, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn what_would_be_published_is_refused() {
        let mut world = world(443);
        for method in ["PUT", "POST", "DELETE", "OPTIONS"] {
            let request = format!(
                "{method} /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxGET /b HTTP/1.1\r\n"
            );
            let answer = ask(&mut world, &request);
            assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
            assert!(answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
        }
        // The body of a read means nothing, and is not waited for.
        let read = "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";
        assert!(ask(&mut world, read).starts_with("HTTP/1.1 301 "));
    }
}
