//! Conditional requests (RFC 9110 section 13), the same from memory, from the disk and by sendfile.

use crate::support::{LONG_AGO, Response, Server, Site, eventually, kept};

const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
const LATER: &str = "Wed, 03 Jan 2024 00:00:00 GMT";
const FUTURE: &str = "Tue, 31 Dec 2999 23:59:59 GMT";

fn get(server: &Server, fields: &str) -> Response {
    server.public.ask("GET", "/a.txt", fields, b"")
}

/// Asks on all ways, by GET and by HEAD, for a file with a tag that stands for `{tag}`.
#[track_caller]
fn check(cases: &[(&str, u16)]) {
    let site = Site::of(&[("a.txt", b"content")]);
    site.each_way("", &["/a.txt"], |server, way| {
        let tag = get(server, "").expect(200).tag();
        let bare = tag.trim_matches('"');
        for (fields, status) in cases {
            let fields = fields.replace("{tag}", &tag).replace("{bare}", bare);
            let response = get(server, &fields);
            assert_eq!(response.status, *status, "{way} {fields} {response:?}");
            assert!(*status != 200 || response.text() == "content", "{way} {fields}");
            let head = server.reader().ask("HEAD", "/a.txt", &fields, b"");
            assert_eq!(head.status, *status, "{way} HEAD {fields}");
        }
    });
}

#[test]
fn if_none_match() {
    check(&[
        ("If-None-Match: {tag}\r\n", 304),
        ("If-None-Match: W/{tag}\r\n", 304),
        ("If-None-Match: *\r\n", 304),
        ("If-None-Match: \"x\", {tag}, \"y\"\r\n", 304),
        ("If-None-Match: \"x\" ,W/\"y\",{tag}\r\n", 304),
        ("If-None-Match: \"a, b\", {tag}\r\n", 304),
        ("If-None-Match: \"x\"\r\n", 200),
        ("If-None-Match: \"\"\r\n", 200),
        ("If-None-Match: {bare}\r\n", 200),
        ("If-None-Match: \"{bare}\r\n", 200),
        ("If-None-Match: \"{bare}.exe\"\r\n", 200),
        ("If-None-Match: \"x, {bare}\"\r\n", 200),
        ("If-None-Match: \"{bare}0\"\r\n", 200),
    ]);
}

#[test]
fn if_modified_since() {
    check(&[
        (&format!("If-Modified-Since: {LONG_AGO}\r\n"), 304),
        (&format!("If-Modified-Since: {LATER}\r\n"), 304),
        ("If-Modified-Since: Tuesday, 02-Jan-24 03:04:05 GMT\r\n", 304),
        ("If-Modified-Since: Tue Jan  2 03:04:05 2024\r\n", 304),
        ("If-Modified-Since: Tue, 02 Jan 2024 03:04:04 GMT\r\n", 200),
        (&format!("If-Modified-Since: {EPOCH}\r\n"), 200),
        // No answer of ours had this date: nothing can be known by it.
        (&format!("If-Modified-Since: {FUTURE}\r\n"), 200),
        ("If-Modified-Since: yesterday\r\n", 200),
        ("If-Modified-Since: \r\n", 200),
        ("If-Modified-Since: Tue, 99 Jan 2024 03:04:05 GMT\r\n", 200),
        ("If-Modified-Since: 1704164645\r\n", 200),
    ]);
}

/// Who has the file in one form need not be sent it in another.
#[test]
fn the_tag_of_any_form_will_do() {
    let text = "all work and no play ".repeat(10_000);
    let files = [("a.txt", text.as_bytes()), ("b.bin", b"content"), ("b.bin.gz", b"packed")];
    let site = Site::of(&files);
    site.each_way("", &["/b.bin"], |server, way| {
        let ask = |path: &str, fields: &str| server.public.ask("GET", path, fields, b"");
        for path in ["/a.txt", "/b.bin"] {
            let plain = ask(path, "").expect(200).tag();
            // In the background, where it is compressed at all.
            eventually("the answer in gzip", || {
                let response = ask(path, "Accept-Encoding: gzip\r\n").expect(200);
                let is_due = path == "/b.bin" || way == "from memory";
                let is_packed = response.field("content-encoding") == Some("gzip");
                (is_packed == is_due).then_some(())
            });
            let packed = ask(path, "Accept-Encoding: gzip\r\n").expect(200).tag();
            for tag in [&plain, &packed] {
                for accept in ["", "Accept-Encoding: gzip\r\n"] {
                    ask(path, &format!("{accept}If-None-Match: {tag}\r\n")).expect(304);
                    ask(path, &format!("{accept}If-Match: {tag}\r\n")).expect(200);
                }
            }
        }
    });
}

#[test]
fn if_match() {
    check(&[
        ("If-Match: {tag}\r\n", 200),
        ("If-Match: *\r\n", 200),
        ("If-Match: \"x\", {tag}\r\n", 200),
        // A weak tag is never strongly the same.
        ("If-Match: W/{tag}\r\n", 412),
        ("If-Match: \"x\"\r\n", 412),
        ("If-Match: {bare}\r\n", 412),
        ("If-Match: \"\"\r\n", 412),
    ]);
}

#[test]
fn if_unmodified_since() {
    check(&[
        (&format!("If-Unmodified-Since: {LONG_AGO}\r\n"), 200),
        (&format!("If-Unmodified-Since: {LATER}\r\n"), 200),
        (&format!("If-Unmodified-Since: {FUTURE}\r\n"), 200),
        ("If-Unmodified-Since: Tue, 02 Jan 2024 03:04:04 GMT\r\n", 412),
        (&format!("If-Unmodified-Since: {EPOCH}\r\n"), 412),
        ("If-Unmodified-Since: yesterday\r\n", 200),
    ]);
}

/// The order of section 13.2.2.
#[test]
fn which_condition_counts() {
    check(&[
        // 1 and 2: If-Match comes first, and without it If-Unmodified-Since.
        (&format!("If-Match: {{tag}}\r\nIf-Unmodified-Since: {EPOCH}\r\n"), 200),
        (&format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {LATER}\r\n"), 412),
        ("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n", 412),
        (&format!("If-Match: \"x\"\r\nIf-Modified-Since: {LATER}\r\n"), 412),
        (&format!("If-Unmodified-Since: {EPOCH}\r\nIf-None-Match: {{tag}}\r\n"), 412),
        (&format!("If-Unmodified-Since: {EPOCH}\r\nIf-Modified-Since: {LATER}\r\n"), 412),
        // 3: what holds is followed by If-None-Match.
        ("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n", 304),
        ("If-Match: {tag}\r\nIf-None-Match: \"x\"\r\n", 200),
        (&format!("If-Unmodified-Since: {LATER}\r\nIf-None-Match: *\r\n"), 304),
        // 4: If-Modified-Since only without If-None-Match.
        (&format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {LATER}\r\n"), 200),
        (&format!("If-None-Match: {{tag}}\r\nIf-Modified-Since: {EPOCH}\r\n"), 304),
        (&format!("If-Match: {{tag}}\r\nIf-Modified-Since: {LATER}\r\n"), 304),
        // In whatever order they are sent.
        ("If-None-Match: {tag}\r\nIf-Match: \"x\"\r\n", 412),
    ]);
}

/// 5: only then does Range count.
#[test]
fn conditions_come_before_ranges() {
    let site = Site::of(&[("a.txt", b"content")]);
    site.each_way("", &["/a.txt"], |server, way| {
        let tag = get(server, "").tag();
        for (condition, status) in [
            (format!("If-None-Match: {tag}\r\n"), 304),
            (format!("If-Modified-Since: {LATER}\r\n"), 304),
            ("If-Match: \"x\"\r\n".to_owned(), 412),
            (format!("If-None-Match: {tag}\r\nIf-Range: {tag}\r\n"), 304),
            ("If-Match: \"x\"\r\nIf-Range: \"x\"\r\n".to_owned(), 412),
            (format!("If-Match: {tag}\r\n"), 206),
            ("If-None-Match: \"x\"\r\n".to_owned(), 206),
            ("If-None-Match: \"x\"\r\nIf-Range: \"x\"\r\n".to_owned(), 200),
        ] {
            for (range, else_status) in [("0-2", 206), ("100-", 416)] {
                let status = if status == 206 { else_status } else { status };
                let fields = format!("Range: bytes={range}\r\n{condition}");
                assert_eq!(get(server, &fields).status, status, "{way} {fields}");
            }
        }
    });
}

#[test]
fn a_304_has_the_fields_of_a_200_and_no_body() {
    let site = Site::of(&[("a.txt", b"content"), ("b.3f2a9b1c.png", b"picture")]);
    let targets = ["/a.txt", "/b.3f2a9b1c.png"];
    site.each_way("cache_control = 'max-age=60'\n", &targets, |server, way| {
        for target in targets {
            let mut client = server.reader();
            let whole = client.get(target).expect(200);
            for method in ["GET", "HEAD"] {
                let fields = format!("If-None-Match: {}\r\n", whole.tag());
                let response = client.ask(method, target, &fields, b"").expect(304);
                // RFC 9110 section 15.4.5.
                for field in ["etag", "cache-control", "vary", "date", "last-modified"] {
                    let (theirs, ours) = (response.field(field), whole.field(field));
                    assert_eq!(theirs.is_some(), ours.is_some(), "{way} {field}");
                    assert!(field == "date" || theirs == ours, "{way} {response:?}");
                }
                for field in ["content-length", "content-type", "content-encoding"] {
                    assert_eq!(response.field(field), None, "{way} {field}");
                }
            }
            // Nothing came behind it: this is the next answer.
            assert!(client.get(target).expect(200).body == whole.body, "{way}");
        }
    });
}

#[test]
fn whichever_form_the_client_has_need_not_be_sent() {
    let text = "All work and no play makes Jack a dull boy.\n".repeat(200).into_bytes();
    let site = Site::of(&[("a.txt", &text)]);
    let server = site.serve("");
    kept(&server, "/a.txt");
    let plain = get(&server, "").tag();
    let mut tags = vec![plain.clone()];
    for coding in ["gzip", "br", "zstd"] {
        tags.push(eventually("the text is compressed", || {
            let response = get(&server, &format!("Accept-Encoding: {coding}\r\n")).expect(200);
            (response.field("content-encoding") == Some(coding)).then(|| response.tag())
        }));
    }
    for accept in ["", "Accept-Encoding: gzip\r\n", "Accept-Encoding: br, zstd\r\n"] {
        for tag in &tags {
            let response = get(&server, &format!("{accept}If-None-Match: {tag}\r\n")).expect(304);
            // It is told which of them it may go on using.
            assert_eq!(&response.tag(), tag, "{accept}");
            get(&server, &format!("{accept}If-Match: {tag}\r\n")).expect(200);
            get(&server, &format!("{accept}If-Match: W/{tag}\r\n")).expect(412);
        }
    }
}

#[test]
fn what_is_not_there_has_no_condition() {
    let site = Site::of(&[]);
    let server = site.serve("");
    for fields in ["If-None-Match: *\r\n", &format!("If-Modified-Since: {LATER}\r\n")] {
        get(&server, fields).refused(404);
    }
}
