//! Parts of files (RFC 9110 section 14), the same from memory, from the disk and by sendfile.

use crate::support::{LONG_AGO, Response, Server, Site, TempDir, curl, eventually, noise};
use std::fs;

const BYTES: usize = 5_000;

fn get(server: &Server, target: &str, fields: &str) -> Response {
    server.public.ask("GET", target, fields, b"")
}

/// The parts of an answer that has several: their places and their bytes.
fn parts(response: &Response, kind: &str) -> Vec<(u64, u64, Vec<u8>)> {
    let content_type = response.field("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    assert_eq!(response.field("content-range"), None, "{response:?}");
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut rest = response.body.strip_prefix(&delimiter[..]).expect("a delimiter comes first");
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, &delimiter).expect("a part ends with a delimiter");
        let head_end = find(part, b"\r\n\r\n").expect("a part has a head");
        let head = std::str::from_utf8(&part[..head_end]).unwrap();
        let fields: Vec<&str> = head.split("\r\n").collect();
        assert_eq!(fields[0], format!("Content-Type: {kind}"));
        let place = fields[1].strip_prefix("Content-Range: bytes ").unwrap();
        let (place, length) = place.split_once('/').unwrap();
        assert_eq!(length, BYTES.to_string());
        let (first, last) = place.split_once('-').unwrap();
        let (first, last) = (first.parse().unwrap(), last.parse().unwrap());
        parts.push((first, last, part[head_end + 4..end].to_vec()));
        rest = &part[end + delimiter.len()..];
    }
    assert_eq!(rest, b"--\r\n", "the end");
    parts
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[test]
fn one_part() {
    let content = noise(BYTES);
    let site = Site::of(&[("a.bin", &content)]);
    site.each_way("", &["/a.bin"], |server, way| {
        let whole = get(server, "/a.bin", "").expect(200);
        for (range, first, last) in [
            ("bytes=0-0", 0, 0),
            ("bytes=10-19", 10, 19),
            ("Bytes=10-19", 10, 19),
            ("bytes= 10-19 ", 10, 19),
            ("bytes=4990-", 4990, 4999),
            ("bytes=4999-4999", 4999, 4999),
            ("bytes=4990-9999", 4990, 4999),
            ("bytes=0-", 0, 4999),
            ("bytes=-5", 4995, 4999),
            ("bytes=-5000", 0, 4999),
            ("bytes=-99999", 0, 4999),
            ("bytes=0-18446744073709551615", 0, 4999),
            ("bytes=1-99999999999999999999999999999999", 1, 4999),
            ("bytes=-99999999999999999999999999999999", 0, 4999),
            // What is not there is left out.
            ("bytes=7-8,5000-", 7, 8),
            ("bytes=-0,7-8", 7, 8),
        ] {
            let response = get(server, "/a.bin", &format!("Range: {range}\r\n")).expect(206);
            assert!(response.body == content[first..=last], "{way} {range}");
            let place = format!("bytes {first}-{last}/{BYTES}");
            assert_eq!(response.field("content-range"), Some(&*place), "{way} {range}");
            for field in ["content-type", "last-modified", "etag", "cache-control"] {
                assert_eq!(response.field(field), whole.field(field), "{way} {range}");
            }
        }
    });
}

#[test]
fn parts_that_are_not_there() {
    let site = Site::of(&[("a.bin", &noise(BYTES))]);
    site.each_way("", &["/a.bin"], |server, way| {
        for range in [
            "bytes=5000-",
            "bytes=5000-5001",
            "bytes=-0",
            "bytes=-0,6000-",
            "bytes=18446744073709551615-",
            "bytes=18446744073709551616-18446744073709551617",
            "bytes=99999999999999999999999999-",
        ] {
            let mut client = server.reader();
            let response = client.ask("GET", "/a.bin", &format!("Range: {range}\r\n"), b"");
            let response = response.refused(416);
            assert_eq!(response.field("content-range"), Some("bytes */5000"), "{way} {range}");
            client.get("/a.bin").expect(200);
        }
    });
}

#[test]
fn what_is_no_range_is_ignored() {
    let content = noise(BYTES);
    let site = Site::of(&[("a.bin", &content), ("empty.bin", b"")]);
    let many: Vec<String> = (0..17).map(|i| format!("{}-{}", i * 10, i * 10 + 1)).collect();
    let thousands: Vec<String> = (0..900).map(|i| format!("{i}-{i}")).collect();
    let nested: Vec<String> = (0..10).map(|i| format!("{i}-")).collect();
    site.each_way("", &["/a.bin", "/empty.bin"], |server, way| {
        for range in [
            "items=0-1",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=1-2-3",
            "bytes=0x1-2",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=0-1;2-3",
            "bytes=0-1,x",
            "0-1",
            // More than two that overlap, or an answer that would be longer (CVE-2011-3192).
            "bytes=0-99,50-149,100-199",
            "bytes=0-,0-,0-",
            "bytes=0-2499,2500-",
            &format!("bytes={}", many.join(",")),
            &format!("bytes={}", thousands.join(",")),
            &format!("bytes={}", nested.join(",")),
        ] {
            let response = get(server, "/a.bin", &format!("Range: {range}\r\n"));
            let response = response.expect(200);
            assert!(response.body == content, "{way} {range}");
            assert_eq!(response.field("content-range"), None, "{way} {range}");
        }
        // Nor is there a part of nothing.
        for range in ["bytes=0-", "bytes=-5", "bytes=0-0"] {
            let response = get(server, "/empty.bin", &format!("Range: {range}\r\n"));
            assert_eq!(response.expect(200).field("content-length"), Some("0"), "{way} {range}");
        }
        // With HEAD it means nothing (section 14.2).
        let head = server.reader().ask("HEAD", "/a.bin", "Range: bytes=0-1\r\n", b"").expect(200);
        assert_eq!(head.field("content-length"), Some("5000"), "{way}");
        let head = server.reader().ask("HEAD", "/a.bin", "Range: bytes=9000-\r\n", b"").expect(200);
        assert_eq!(head.field("content-range"), None, "{way}");
    });
}

#[test]
fn several_parts() {
    let content = noise(BYTES);
    let site = Site::of(&[("a.bin", &content)]);
    site.each_way("", &["/a.bin"], |server, way| {
        let whole = get(server, "/a.bin", "").expect(200);
        let ten: Vec<String> = (0..10).map(|i| format!("{}-{}", i * 500, i * 500 + 50)).collect();
        let ten_places: Vec<_> = (0..10).map(|i| (i * 500, i * 500 + 50)).collect();
        for (range, places) in [
            ("bytes=0-0,-1", vec![(0, 0), (4999, 4999)]),
            ("bytes=0-99, 1000-1999 ,4990-", vec![(0, 99), (1000, 1999), (4990, 4999)]),
            // In the order in which they were asked for, and two may overlap.
            ("bytes=2000-2099,100-199", vec![(2000, 2099), (100, 199)]),
            ("bytes=0-99,50-149", vec![(0, 99), (50, 149)]),
            ("bytes=,0-1,,8-9,7000-", vec![(0, 1), (8, 9)]),
            (&format!("bytes={}", ten.join(",")), ten_places),
        ] {
            let mut client = server.reader();
            let response = client.ask("GET", "/a.bin", &format!("Range: {range}\r\n"), b"");
            let response = response.expect(206);
            let expected: Vec<_> = places
                .iter()
                .map(|&(first, last)| (first as u64, last as u64, content[first..=last].to_vec()))
                .collect();
            assert!(parts(&response, "application/octet-stream") == expected, "{way} {range}");
            for field in ["last-modified", "etag", "cache-control"] {
                assert_eq!(response.field(field), whole.field(field), "{way} {range}");
            }
            // The length was that of what came.
            client.get("/a.bin").expect(200);
        }
    });
}

#[test]
fn a_part_only_of_what_the_client_has_already() {
    let content = noise(BYTES);
    let site = Site::of(&[("a.bin", &content)]);
    site.each_way("", &["/a.bin"], |server, way| {
        let tag = get(server, "/a.bin", "").expect(200).tag();
        let bare = tag.trim_matches('"');
        for (condition, status) in [
            (tag.clone(), 206),
            (LONG_AGO.to_owned(), 206),
            ("Tuesday, 02-Jan-24 03:04:05 GMT".to_owned(), 206),
            (format!("W/{tag}"), 200),
            (bare.to_owned(), 200),
            (format!("\"{bare}.gz\""), 200),
            ("\"another\"".to_owned(), 200),
            ("*".to_owned(), 200),
            ("Tue, 02 Jan 2024 03:04:06 GMT".to_owned(), 200),
            ("Tue, 02 Jan 2024 03:04:04 GMT".to_owned(), 200),
            ("Tue, 31 Dec 2999 23:59:59 GMT".to_owned(), 200),
            ("yesterday".to_owned(), 200),
        ] {
            let fields = format!("Range: bytes=10-19\r\nIf-Range: {condition}\r\n");
            let response = get(server, "/a.bin", &fields);
            assert_eq!(response.status, status, "{way} {condition}");
            let expected = if status == 206 { &content[10..20] } else { &content };
            assert!(response.body == expected, "{way} {condition}");
            // Where the part is not there, a file that is another one is sent whole, too.
            let fields = format!("Range: bytes=9000-\r\nIf-Range: {condition}\r\n");
            let expected = if status == 206 { 416 } else { 200 };
            assert_eq!(get(server, "/a.bin", &fields).status, expected, "{way} {condition}");
        }
        // Without a Range it means nothing.
        get(server, "/a.bin", "If-Range: \"another\"\r\n").expect(200);
    });
    // The date of a file that was changed this very second could be that of two files.
    site.each_way("", &[], |server, way| {
        let mut number = 0;
        eventually("a file is asked for in the second in which it was written", || {
            number += 1;
            let target = format!("/new-{number}.bin");
            site.write(&target[1..], &content);
            let modified = get(server, &target, "").field("last-modified")?.to_owned();
            let fields = format!("Range: bytes=0-0\r\nIf-Range: {modified}\r\n");
            let response = get(server, &target, &fields);
            let is_soon = response.field("date") == Some(&modified);
            is_soon.then(|| assert_eq!(response.status, 200, "{way}"))
        });
    });
}

#[test]
fn parts_are_of_the_file_and_not_of_its_compressed_form() {
    let text = "All work and no play makes Jack a dull boy.\n".repeat(200).into_bytes();
    let site = Site::of(&[("a.txt", &text), ("b.txt", &text), ("b.txt.gz", b"packed")]);
    site.each_way("", &["/a.txt", "/b.txt"], |server, way| {
        for target in ["/a.txt", "/b.txt"] {
            let tag = get(server, target, "").tag();
            for _ in 0..3 {
                let fields = "Accept-Encoding: gzip\r\nRange: bytes=100-199\r\n";
                let response = get(server, target, fields).expect(206);
                assert_eq!(response.field("content-encoding"), None, "{way} {target}");
                assert!(response.body == text[100..200], "{way} {target}");
                assert_eq!(response.tag(), tag, "{way} {target}");
                // Who has the beginning of the other form is sent the whole.
                let packed = get(server, target, "Accept-Encoding: gzip\r\n").expect(200).tag();
                if packed != tag {
                    let fields = format!("{fields}If-Range: {packed}\r\n");
                    get(server, target, &fields).expect(200);
                }
            }
        }
    });
}

#[test]
fn curl_goes_on_with_a_download() {
    let large = noise(3_000_000);
    let small = noise(30_000);
    let site = Site::of(&[("large.bin", &large), ("small.bin", &small)]);
    let dir = TempDir::new();
    site.each_way("", &["/small.bin"], |server, way| {
        for (name, content) in [("large.bin", &large), ("small.bin", &small)] {
            let url = format!("http://{}/{name}", server.public.0);
            let file = dir.path().join(name);
            let path = file.to_str().unwrap();
            for begun in [0, 1, content.len() / 2, content.len() - 1] {
                fs::write(&file, &content[..begun]).unwrap();
                let Some(output) = curl(&["--fail", "-C", "-", "-o", path, &url]) else { return };
                assert!(output.status.success(), "{way} {output:?}");
                assert!(&fs::read(&file).unwrap() == content, "{way} {name} {begun}");
            }
            let Some(output) = curl(&["--fail", "-r", "1000-1999", &url]) else { return };
            assert!(output.stdout == content[1000..2000], "{way} {name}");
            let Some(output) = curl(&["--fail", "-r", "-7", &url]) else { return };
            assert!(output.stdout == content[content.len() - 7..], "{way} {name}");
        }
    });
}
