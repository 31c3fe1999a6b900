//! Compressed forms: those that the server makes in the background, and those that stand beside a
//! file.

use crate::support::{NO_CACHE, Response, Server, Site, curl, eventually, gunzip, kept, noise};
use flate2::Compression;
use flate2::read::GzEncoder;
use std::io::Read;

/// Text that shrinks well.
fn text(lines: usize) -> Vec<u8> {
    let line =
        |i| format!("p.s{i} {{ margin: {}px; color: #{:06x} }}\n", i % 7, i * 7919 % 0xff_ffff);
    (0..lines).map(line).collect::<String>().into_bytes()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    GzEncoder::new(data, Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

fn get(server: &Server, target: &str, accept: &str) -> Response {
    server.public.ask("GET", target, &format!("Accept-Encoding: {accept}\r\n"), b"").expect(200)
}

/// Asks until it comes in that encoding; until then it comes as it is.
#[track_caller]
fn packed(server: &Server, target: &str, coding: &str, plain: &[u8]) -> Response {
    eventually(&format!("{target} comes in {coding}"), || {
        let response = get(server, target, coding);
        match response.field("content-encoding") {
            Some(found) => {
                assert_eq!(found, coding);
                Some(response)
            }
            None => {
                assert!(response.body == plain);
                None
            }
        }
    })
}

#[test]
fn text_is_compressed_in_the_background() {
    let (small, large) = (text(300), text(20_000));
    assert!(small.len() < 64 * 1024 && large.len() > 200_000);
    let site = Site::of(&[("a.css", &small), ("large.css", &large)]);
    let server = site.serve("");
    for (target, content) in [("/a.css", &small), ("/large.css", &large)] {
        let plain = server.public.get(target).expect(200);
        let bare = plain.tag().trim_matches('"').to_owned();
        assert!(&plain.body == content);
        for (coding, suffix) in [("gzip", "gz"), ("br", "br"), ("zstd", "zst")] {
            let response = packed(&server, target, coding, content);
            assert!(response.body.len() < content.len() / 2, "{coding}");
            assert_eq!(response.tag(), format!("\"{bare}.{suffix}\""), "{coding}");
            assert!(response.list("vary").contains(&"Accept-Encoding"), "{coding}");
            for field in ["content-type", "last-modified", "cache-control"] {
                assert_eq!(response.field(field), plain.field(field), "{coding}");
            }
            let head = server.reader();
            let fields = format!("Accept-Encoding: {coding}\r\n");
            let head = { head }.ask("HEAD", target, &fields, b"").expect(200);
            assert_eq!(head.fields(), response.fields(), "{coding}");
            if coding == "gzip" {
                assert!(&gunzip(&response.body) == content);
            }
            // Somebody else unpacks it, too.
            let url = format!("http://{}{target}", server.public.0);
            let header = format!("Accept-Encoding: {coding}");
            let Some(output) = curl(&["--fail", "--compressed", "-H", &header, &url]) else {
                continue;
            };
            assert!(
                &output.stdout == content,
                "{coding} {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        // As the client prefers, and as it is for those who want nothing else.
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip;q=1, br;q=0.5", Some("gzip")),
            ("identity", None),
            ("gzip;q=0", None),
            ("", None),
        ] {
            let response = get(&server, target, accept);
            assert_eq!(response.field("content-encoding"), expected, "{accept}");
        }
        let response = server.public.get(target).expect(200);
        assert!(&response.body == content && response.field("content-encoding").is_none());
    }
    assert!(server.figure("counters/answers_compressed") > 0);
}

#[test]
fn a_picture_and_what_does_not_shrink_stay_as_they_are() {
    let (zeros, random) = (vec![0; 20_000], noise(20_000));
    let site = Site::of(&[
        ("a.png", &zeros),
        ("a.bin", &zeros),
        ("noise.txt", &random),
        ("tiny.txt", b"x"),
    ]);
    let server = site.serve("");
    // What is compressed when this is was asked for later than all the others.
    let witness = text(300);
    for _ in 0..5 {
        for (target, content) in [
            ("/a.png", &zeros[..]),
            ("/a.bin", &zeros),
            ("/noise.txt", &random),
            ("/tiny.txt", b"x"),
        ] {
            kept(&server, target);
            for coding in ["gzip", "br", "zstd"] {
                let response = get(&server, target, coding);
                assert_eq!(response.field("content-encoding"), None, "{target}");
                assert!(response.body == content, "{target}");
                let varies = response.list("vary").contains(&"Accept-Encoding");
                assert_eq!(varies, target.ends_with(".txt"), "{target}");
            }
        }
        site.write("witness.css", &witness);
        packed(&server, "/witness.css", "gzip", &witness);
    }
}

#[test]
fn what_stands_beside_a_file_is_used_as_it_is() {
    // Not what the server would make, so that it can be told whose it is.
    let (small, large) = (text(300), text(5_000));
    let marked = |coding: &str, bytes: usize| format!("{coding} by hand ").repeat(bytes / 10);
    let mut files = Vec::new();
    for (name, content, bytes) in
        [("a.css", &small, 1_000), ("large.css", &large, 100_000), ("data.bin", &small, 1_000)]
    {
        files.push((name.to_owned(), content.clone()));
        for suffix in ["gz", "br", "zst"] {
            files.push((format!("{name}.{suffix}"), marked(suffix, bytes).into_bytes()));
        }
    }
    let files: Vec<_> = files.iter().map(|(name, content)| (&**name, &content[..])).collect();
    let site = Site::of(&files);
    site.each_way("", &["/a.css", "/data.bin"], |server, way| {
        for (target, content, bytes) in [
            ("/a.css", &small, 1_000),
            ("/large.css", &large, 100_000),
            ("/data.bin", &small, 1_000),
        ] {
            // It may be kept by now, or not yet.
            for _ in 0..5 {
                let plain = server.public.get(target).expect(200);
                assert!(&plain.body == content, "{way} {target}");
                let mut tags = vec![plain.tag()];
                for (coding, suffix) in [("gzip", "gz"), ("br", "br"), ("zstd", "zst")] {
                    let response = get(server, target, coding);
                    assert_eq!(response.field("content-encoding"), Some(coding), "{way} {target}");
                    assert!(response.body == marked(suffix, bytes).as_bytes(), "{way} {target}");
                    for field in ["content-type", "vary", "cache-control"] {
                        assert_eq!(response.field(field), plain.field(field), "{way} {target}");
                    }
                    assert!(response.tag().ends_with(&format!(".{suffix}\"")), "{way} {target}");
                    tags.push(response.tag());
                }
                tags.sort();
                tags.dedup();
                assert_eq!(tags.len(), 4, "{way} {target}");
                assert!(plain.list("vary").contains(&"Accept-Encoding"), "{way} {target}");
            }
        }
        // By itself it is an archive.
        let archive = get(server, "/a.css.gz", "gzip");
        assert_eq!(archive.field("content-type"), Some("application/gzip"), "{way}");
        assert_eq!(archive.field("content-encoding"), None, "{way}");
    });
}

#[test]
fn the_tag_of_a_form_is_that_of_what_is_sent() {
    let plain = text(300);
    let tag = |by_hand: &[u8]| {
        let site = Site::of(&[("a.css", &plain), ("a.css.gz", by_hand)]);
        let disk = site.serve(NO_CACHE);
        let from_disk = get(&disk, "/a.css", "gzip").tag();
        let memory = site.serve("");
        kept(&memory, "/a.css");
        assert_eq!(get(&memory, "/a.css", "gzip").tag(), from_disk);
        from_disk
    };
    let (one, other) = (gzip(&plain), [gzip(&plain), gzip(b"\n")].concat());
    assert_eq!(tag(&one), tag(&one));
    // Both unpack to text, but a part of one is of no use with the other.
    assert_ne!(tag(&one), tag(&other));
}

#[test]
fn without_a_cache_text_comes_as_it_is() {
    let content = text(300);
    let site = Site::of(&[("a.css", &content)]);
    let server = site.serve(NO_CACHE);
    for _ in 0..5 {
        let response = get(&server, "/a.css", "gzip, br, zstd");
        assert!(response.body == content && response.field("content-encoding").is_none());
    }
}
