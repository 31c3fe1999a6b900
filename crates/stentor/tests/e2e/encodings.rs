//! Content codings: made off the workers, once, and chosen as the client prefers.

use crate::support::{Response, Server, curl, eventually, gunzip, noise, skip};
use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::read::GzEncoder;
use std::io::Read;

/// Text that shrinks well, some kilobytes of it.
fn prices() -> Vec<u8> {
    let lines = (0..200).map(|i| format!("{{\"symbol\":\"S{i}\",\"price\":{}.25}}\n", i * 7));
    lines.collect::<String>().into_bytes()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    GzEncoder::new(data, Compression::best()).read_to_end(&mut packed).unwrap();
    packed
}

fn get(server: &Server, accept: &str) -> Response {
    let fields = format!("Accept-Encoding: {accept}\r\n");
    server.public.ask("GET", "/a", &fields, b"").expect(200)
}

/// Asks until the form that was asked for first has been made.
fn ready(server: &Server, coding: &str) -> Response {
    eventually(&format!("the value comes in {coding}"), || {
        let response = get(server, coding);
        (response.field("content-encoding") == Some(coding)).then_some(response)
    })
}

#[test]
fn each_form_has_its_tag_and_all_are_the_same_message() {
    let server = Server::start();
    let data = prices();
    server.control.put("/a", "application/json", &data).expect(201);
    let plain = server.public.get("/a").expect(200);
    assert!(plain.body == data && plain.field("content-encoding").is_none());
    let bare = plain.tag().trim_matches('"').to_owned();
    for (coding, suffix) in [("gzip", "gz"), ("br", "br"), ("zstd", "zst")] {
        let packed = ready(&server, coding);
        assert_eq!(packed.tag(), format!("\"{bare}.{suffix}\""));
        assert_eq!(packed.field("vary"), Some("Accept, Accept-Encoding"));
        assert_eq!(packed.field("last-modified"), plain.field("last-modified"));
        assert!(packed.body.len() < data.len() / 2);
        if coding == "gzip" {
            assert!(gunzip(&packed.body) == data);
        }
        let fields = format!("If-None-Match: {}\r\n", packed.tag());
        let unchanged = server.public.ask("GET", "/a", &fields, b"").expect(304);
        assert_eq!(unchanged.field("vary"), Some("Accept, Accept-Encoding"));
    }
    let plain = server.public.get("/a").expect(200);
    assert_eq!(plain.field("vary"), Some("Accept, Accept-Encoding"));
    assert!(plain.body == data);
}

#[test]
fn what_is_accepted_may_be_said_in_several_lines() {
    let server = Server::start();
    server.control.put("/a", "application/json", &prices()).expect(201);
    ready(&server, "gzip");
    let fields = "Accept-Encoding: x-other\r\nAccept-Encoding: gzip\r\n";
    let response = server.public.ask("GET", "/a", fields, b"").expect(200);
    assert_eq!(response.field("content-encoding"), Some("gzip"));
    let fields = format!("If-None-Match: \"x\"\r\nIf-None-Match: {}\r\n", response.tag());
    server.public.ask("GET", "/a", &fields, b"").expect(304);
    let fields = "Accept: text/html\r\nAccept: text/event-stream\r\n";
    let response = server.reader().open("/a", fields);
    assert_eq!(response.field("content-type"), Some("text/event-stream"));
}

#[test]
fn the_client_decides() {
    let server = Server::start();
    server.control.put("/a", "text/plain", &prices()).expect(201);
    for coding in ["gzip", "br", "zstd"] {
        ready(&server, coding);
    }
    for (accept, expected) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("gzip;q=1.0, br;q=0.5", Some("gzip")),
        ("gzip;q=0.4, br;q=0.3, zstd;q=0.5", Some("zstd")),
        ("*", Some("br")),
        ("*;q=0.5, br;q=0", Some("zstd")),
        ("GZIP", Some("gzip")),
        ("x-gzip", Some("gzip")),
        ("identity", None),
        ("gzip;q=0", None),
        ("identity;q=1, gzip;q=0.5", None),
        ("deflate", None),
        ("", None),
        ("gzip;q=nonsense", None),
    ] {
        assert_eq!(get(&server, accept).field("content-encoding"), expected, "'{accept}'");
    }
}

#[test]
fn what_does_not_shrink_is_sent_as_it_is() {
    let server = Server::start();
    for (kind, data) in
        [("image/png", prices()), ("text/plain", b"short".to_vec()), ("text/plain", noise(5_000))]
    {
        server.control.put("/a", kind, &data);
        for _ in 0..20 {
            let response = get(&server, "gzip, br, zstd");
            assert_eq!(response.field("content-encoding"), None, "{kind}");
            assert!(response.body == data, "{kind}");
        }
    }
}

#[test]
fn the_next_value_is_as_ready_as_the_last_was() {
    let server = Server::start();
    for i in 0..5 {
        let mut data = prices();
        // Each compresses to another length.
        data.extend_from_slice(format!("{:?}", noise(50 * i)).as_bytes());
        let before = server.figure("stored/forms");
        server.control.put("/a", "text/plain", &data);
        if i == 0 {
            ready(&server, "gzip");
            continue;
        }
        // The reader of the value before is the only one who has asked.
        eventually("it is compressed", || {
            let forms = server.figure("stored/forms");
            (forms > 0 && forms != before).then_some(())
        });
        let response = get(&server, "gzip");
        assert_eq!(response.field("content-encoding"), Some("gzip"));
        assert!(gunzip(&response.body) == data);
    }
}

#[test]
fn a_publishers_own_gzip_is_kept_and_unpacked_for_others() {
    let server = Server::start();
    let data = prices();
    let packed = gzip(&data);
    let fields = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
    server.control.ask("PUT", "/a", fields, &packed).expect(201);
    // The first reader already gets the publisher's bytes.
    let response = get(&server, "gzip");
    assert_eq!(response.field("content-encoding"), Some("gzip"));
    assert!(response.body == packed);
    assert!(response.tag().ends_with(".gz\""));
    let plain = server.public.get("/a").expect(200);
    assert_eq!(plain.field("content-encoding"), None);
    assert!(plain.body == data);
    assert!(get(&server, "gzip;q=0").body == data);
    ready(&server, "br");
    let many = server.public.get("/-/values?topic=/a").expect(200).json();
    assert_eq!(many["/a"]["data_base64"], BASE64_STANDARD.encode(&data));
}

/// RFC 9110 section 8.4.1: codings are case-insensitive, and x-gzip is to be taken for gzip.
#[test]
fn a_coding_by_its_other_names() {
    let server = Server::start();
    let data = prices();
    for (coding, body) in [
        ("GZIP", gzip(&data)),
        ("identity", data.clone()),
        ("Identity", data.clone()),
        ("x-gzip", gzip(&data)),
    ] {
        let fields = format!("Content-Encoding: {coding}\r\n");
        let status = server.control.ask("PUT", "/a", &fields, &body).status;
        assert!(matches!(status, 200 | 201), "{coding}: {status}");
        assert!(server.public.get("/a").body == data, "{coding}");
    }
}

#[test]
fn gzip_that_is_none_is_refused() {
    let server = Server::configured("[limits]\nmessage_bytes_max = 100_000\n");
    let packed = gzip(&prices());
    let put = |coding: &str, body: &[u8]| {
        let fields = format!("Content-Encoding: {coding}\r\n");
        server.control.ask("PUT", "/a", &fields, body)
    };
    put("gzip", b"plain text").refused(400);
    put("gzip", b"").refused(400);
    put("gzip", &packed[..packed.len() - 1]).refused(400);
    put("gzip", &[&packed[..], b"tail"].concat()).refused(400);
    let mut damaged = packed.clone();
    damaged[packed.len() / 2] ^= 0x55;
    put("gzip", &damaged).refused(400);
    // A bomb: some hundred bytes that stand for more than any message may be.
    put("gzip", &gzip(&[0; 100_001])).refused(413);
    put("gzip", &gzip(&[0; 10_000_000])).refused(413);
    put("br", &packed).refused(415);
    put("gzip, gzip", &packed).refused(415);
    server.public.get("/a").refused(404);
    put("gzip", &gzip(&[0; 100_000])).expect(201);
}

#[test]
fn curl_understands_every_form() {
    let server = Server::start();
    let data = prices();
    server.control.put("/a", "text/plain", &data).expect(201);
    let url = format!("http://{}/a", server.public.0);
    for coding in ["gzip", "br", "zstd"] {
        ready(&server, coding);
        let accept = format!("Accept-Encoding: {coding}");
        let Some(output) = curl(&["--compressed", "-H", &accept, "-D", "-", &url]) else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() && text.contains("Content-Encoding") {
            skip(&format!("this curl was built without {coding}"));
            continue;
        }
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("Content-Encoding: {coding}")), "{head}");
        assert_eq!(body.as_bytes(), data, "{coding}");
    }
}
