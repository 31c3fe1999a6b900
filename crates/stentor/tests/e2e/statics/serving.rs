//! What a file is answered with, and which file answers.

use crate::support::{
    Client, EventStream, LONG_AGO, NO_CACHE, Reader, Server, Site, TempDir, Way, eventually, kept,
    noise, refused_start,
};
use std::fs;

#[test]
fn a_file_with_all_its_fields() {
    let site = Site::of(&[("a.txt", b"hello"), ("empty.bin", b"")]);
    site.each_way("", &["/a.txt", "/empty.bin"], |server, way| {
        for url in [server.public, server.control] {
            let response = url.get("/a.txt").expect(200);
            assert_eq!(response.text(), "hello", "{way}");
            for (field, value) in [
                ("content-type", "text/plain; charset=utf-8"),
                ("content-length", "5"),
                ("x-content-type-options", "nosniff"),
                ("last-modified", LONG_AGO),
                ("cache-control", "no-cache"),
                ("accept-ranges", "bytes"),
            ] {
                assert_eq!(response.field(field), Some(value), "{way}");
            }
            assert!(response.field("date").is_some_and(|date| date.ends_with(" GMT")));
            // It may come compressed another time.
            assert!(response.list("vary").contains(&"Accept-Encoding"), "{way} {response:?}");
            let tag = response.tag();
            let hash = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap();
            assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{tag}");
            assert_eq!(url.get("/a.txt").tag(), tag, "{way}");
            // HEAD says the same.
            let mut client = Client::connect(url.0);
            let head = client.ask("HEAD", "/a.txt", "", b"");
            assert_eq!(head.fields(), response.fields(), "{way}");
            // And has no body: the next answer begins behind it.
            assert_eq!(client.get("/empty.bin").expect(200).body, b"", "{way}");
            // A query is not a part of the name.
            assert_eq!(url.get("/a.txt?v=%zz").expect(200).text(), "hello", "{way}");
        }
        server.public.ask("PUT", "/a.txt", "", b"x").refused(405);
        server.public.ask("DELETE", "/a.txt", "", b"").refused(405);
    });
}

#[test]
fn streams_and_polls_at_the_path_of_a_file_are_of_the_topic() {
    let site = Site::of(&[("a.txt", b"hello")]);
    site.each_way("", &["/a.txt"], |server, _| {
        let mut stream = EventStream::open(server.public, "/a.txt", "");
        let mut socket = Reader::open(Way::WebSocket, server.public, "/a.txt", "", "");
        let mut poller = server.reader();
        poller.send("GET /a.txt?wait=20 HTTP/1.1\r\nHost: a\r\n\r\n");
        server.settled("readers_long_poll", 1);
        assert_eq!(server.public.get("/a.txt").expect(200).text(), "hello");
        server.publish("/a.txt", "value");
        assert_eq!(stream.event().data, "value");
        assert_eq!(socket.hear().data(), "value");
        assert_eq!(poller.response().expect(200).text(), "value");
    });
}

#[test]
fn the_tag_of_a_small_file_is_that_of_its_content() {
    let site = Site::of(&[("a.bin", b"one"), ("b.bin", b"one"), ("c.bin", b"two")]);
    let (kept_server, other) = (site.serve(""), site.serve(NO_CACHE));
    kept(&kept_server, "/a.bin");
    let tag = kept_server.public.get("/a.bin").tag();
    // Wherever it is served, and from wherever.
    assert_eq!(other.public.get("/b.bin").tag(), tag);
    assert_ne!(other.public.get("/c.bin").tag(), tag);
}

#[test]
fn pages_of_other_origins_may_read_files_if_they_may_read_values() {
    let site = Site::of(&[("a.txt", b"hello")]);
    let cors = "[cors]\norigins = ['https://example.com']\n";
    site.each_way(cors, &["/a.txt"], |server, way| {
        let tag = server.public.get("/a.txt").tag();
        for (fields, status) in [
            (String::new(), 200),
            (format!("If-None-Match: {tag}\r\n"), 304),
            ("Range: bytes=0-1\r\n".to_owned(), 206),
            ("Range: bytes=9-\r\n".to_owned(), 416),
        ] {
            for (origin, allowed) in [("https://example.com", true), ("https://evil", false)] {
                let fields = format!("Origin: {origin}\r\n{fields}");
                let response = server.public.ask("GET", "/a.txt", &fields, b"").expect(status);
                let told = response.field("access-control-allow-origin");
                assert_eq!(told, allowed.then_some(origin), "{way} {status}");
                assert!(response.list("vary").contains(&"Origin"), "{way} {status}");
            }
        }
    });
}

#[test]
fn types_by_extension() {
    let types = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.HTML", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpeg", "image/jpeg"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.tar.gz", "application/gzip"),
        ("a.html.xyz", "application/octet-stream"),
        ("html", "application/octet-stream"),
        ("d.html/none", "application/octet-stream"),
    ];
    // Content that a browser would take for a page, if it were not told otherwise.
    let files = types.map(|(name, _)| (name, &b"<!doctype html><script>alert(1)</script>"[..]));
    let site = Site::of(&files);
    let server = site.serve("");
    for (name, expected) in types {
        let response = server.public.get(&format!("/{name}")).expect(200);
        assert_eq!(response.field("content-type"), Some(expected), "{name}");
        assert_eq!(response.field("x-content-type-options"), Some("nosniff"), "{name}");
        assert_eq!(response.field("content-encoding"), None, "{name}");
    }
}

/// Names tell nothing of how long a file stays as it is: only the operator knows.
#[test]
fn immutable_files_are_those_of_the_patterns() {
    let names =
        ["app.3f2a9b1c.js", "assets/logo-postgres.svg", "assets/index-DiwrgTda.js", "p/a.js"];
    let site = Site::of(&names.map(|name| (name, &b"x"[..])));
    let immutable = "public, max-age=31536000, immutable";
    for (keys, at, kept, other) in [
        ("", "/", "", "no-cache"),
        ("cache_control = 'max-age=60'\n", "/", "", "max-age=60"),
        ("immutable = '/assets/**'\n", "/", "/assets/", "no-cache"),
        ("immutable = ['/x', '/p/a.js']\n", "/", "/p/a.js", "no-cache"),
        ("path = '/site'\nimmutable = '/site/assets/**'\n", "/site/", "/site/assets/", "no-cache"),
    ] {
        let urls = names.map(|name| format!("{at}{name}"));
        site.each_way(keys, &urls.each_ref().map(|url| &**url), |server, way| {
            for url in &urls {
                let is_kept = !kept.is_empty() && url.starts_with(kept);
                let expected = if is_kept { immutable } else { other };
                let response = server.public.get(url).expect(200);
                assert_eq!(response.field("cache-control"), Some(expected), "{keys} {way} {url}");
            }
        });
    }
}

#[test]
fn a_directory_is_its_index() {
    let site = Site::of(&[
        ("index.html", b"root"),
        ("docs/index.html", b"docs"),
        ("a b/index.html", b"space"),
        ("bare/x.txt", b"x"),
    ]);
    site.each_way("", &["/", "/docs/"], |server, way| {
        assert_eq!(server.public.get("/").expect(200).text(), "root", "{way}");
        assert_eq!(server.public.get("/?a=b").expect(200).text(), "root", "{way}");
        assert_eq!(server.public.get("/docs/").expect(200).text(), "docs", "{way}");
        assert_eq!(server.public.get("/docs/index.html").expect(200).text(), "docs", "{way}");
        assert_eq!(server.public.get("/a%20b/").expect(200).text(), "space", "{way}");
        for (target, location) in [
            ("/docs", "./docs/"),
            ("/docs?a=1&b=%2f", "./docs/?a=1&b=%2f"),
            ("/docs?", "./docs/?"),
            ("/a%20b", "./a%20b/"),
            ("/bare", "./bare/"),
            ("http://example.com/docs?x", "./docs/?x"),
        ] {
            let response = server.public.get(target).expect(301);
            assert_eq!(response.field("location"), Some(location), "{way} {target}");
            server.reader().ask("HEAD", target, "", b"").expect(301);
        }
        for target in ["/bare/", "/index.html/", "/docs/index.html/", "/bare/x.txt/index.html"] {
            server.public.get(target).refused(404);
        }
    });
}

#[test]
fn what_is_not_there() {
    let site = Site::of(&[("a.txt", b"a"), ("d/b.txt", b"b")]);
    let long = format!("/{}", "x".repeat(300));
    let deep = "/d".repeat(2_000);
    site.each_way("", &["/a.txt"], |server, way| {
        let mut client = server.reader();
        for target in ["/none", "/d/none.txt", "/a.txt/b", "/A.TXT", "/none/", &long, &deep] {
            let response = client.get(target).refused(404);
            // A value may be published there at any time.
            assert_eq!(response.field("cache-control"), Some("no-cache"), "{way} {target}");
            assert_eq!(response.list("vary"), ["Accept"], "{way} {target}");
            assert_eq!(client.ask("HEAD", target, "", b"").status, 404, "{way} {target}");
        }
        assert_eq!(client.get("/a.txt").expect(200).text(), "a", "{way}");
    });
    // Without a mount a missing value is what it was.
    let server = Server::start();
    assert!(server.public.get("/none").refused(404).detail().contains("published"));
}

#[test]
fn the_mount_with_the_longest_path_answers() {
    let outer =
        Site::of(&[("docs/a.txt", b"outer"), ("docs/api/a.txt", b"outer"), ("b.txt", b"b")]);
    let docs = Site::of(&[("a.txt", b"docs"), ("api/a.txt", b"docs"), ("index.html", b"index")]);
    let api = Site::of(&[("a.txt", b"api")]);
    let toml = format!(
        "{}[[static]]\npath = '/docs/api/'\nroot = '{}'\n[[static]]\npath = '/docs'\nroot = '{}'\n",
        outer.toml(""),
        api.root().display(),
        docs.root().display()
    );
    for more in ["", NO_CACHE] {
        let server = Server::configured(&format!("{toml}{more}"));
        for _ in 0..2 {
            for (target, expected) in [
                ("/docs/a.txt", "docs"),
                ("/docs/api/a.txt", "api"),
                ("/b.txt", "b"),
                ("/docs/", "index"),
            ] {
                assert_eq!(server.public.get(target).expect(200).text(), expected, "{target}");
            }
            // Alone: what is not there is not looked for in another.
            server.public.get("/docs/b.txt").refused(404);
            server.public.get("/docs/api/").refused(404);
            for (target, location) in [("/docs", "./docs/"), ("/docs/api?q", "./api/?q")] {
                let response = server.public.get(target).expect(301);
                assert_eq!(response.field("location"), Some(location));
            }
            // Whole segments only.
            server.public.get("/docsa.txt").refused(404);
        }
    }
}

#[test]
fn without_a_mount_at_the_root_other_paths_are_topics_only() {
    let site = Site::of(&[("a.txt", b"a")]);
    let server = site.serve("path = '/files'\n");
    assert_eq!(server.public.get("/files/a.txt").expect(200).text(), "a");
    for target in ["/a.txt", "/", "/filesa.txt", "/files../a.txt"] {
        server.public.get(target).refused(404);
    }
    server.control.put("/a.txt", "text/plain", b"value").expect(201);
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "value");
}

#[test]
fn a_value_comes_before_a_file() {
    let site = Site::of(&[("a.txt", b"file")]);
    site.each_way("", &["/a.txt"], |server, way| {
        assert_eq!(server.public.get("/a.txt").expect(200).text(), "file", "{way}");
        server.control.put("/a.txt", "text/plain", b"value").expect(201);
        assert_eq!(server.public.get("/a.txt").expect(200).text(), "value", "{way}");
        server.control.ask("DELETE", "/a.txt", "", b"").expect(200);
        assert_eq!(server.public.get("/a.txt").expect(200).text(), "file", "{way}");
    });
}

#[test]
fn a_page_for_all_paths_that_are_not_there() {
    let site = Site::of(&[("app/index.html", b"<p>app"), ("d/x.js", b"x")]);
    let keys = "fallback = 'app/index.html'\n";
    site.each_way(keys, &["/app/index.html"], |server, way| {
        for target in ["/", "/settings", "/users/17/edit?tab=2", "/d/", "/a.b/c", "/app/"] {
            let response = server.public.get(target).expect(200);
            assert_eq!(response.text(), "<p>app", "{way} {target}");
            assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(response.field("cache-control"), Some("no-cache"));
        }
        // Scripts and pictures that are missing are better told to be.
        for target in ["/main.js", "/d/y.js", "/a/b.png", "/favicon.ico"] {
            server.public.get(target).refused(404);
        }
        // Nor does the page excuse anything.
        for target in ["/.env", "/d/.git/config"] {
            server.public.get(target).refused(404);
        }
        server.public.get("/a/../b").refused(400);
        assert_eq!(server.public.get("/d/x.js").expect(200).text(), "x", "{way}");
    });
    site.remove("app/index.html");
    site.serve(keys).public.get("/settings").refused(404);
}

/// The path of the fallback may look like one that another mount answers for.
#[test]
fn a_fallback_is_a_file_of_its_own_mount() {
    let site = Site::of(&[("docs/app.html", b"fallback")]);
    let docs = Site::of(&[("app.html", b"another")]);
    let root = docs.root();
    let rest = format!(
        "fallback = 'docs/app.html'\n[[static]]\npath = '/docs'\nroot = '{}'\n",
        root.display()
    );
    let server = site.serve(&rest);
    kept(&server, "/docs/app.html");
    assert_eq!(server.public.get("/docs/app.html").expect(200).text(), "another");
    for _ in 0..20 {
        assert_eq!(server.public.get("/settings").expect(200).text(), "fallback");
    }
}

#[test]
fn a_directory_may_be_listed() {
    let site = Site::of(&[
        ("a&b <i>.txt", b"12345"),
        ("x%41\".txt", b"1"),
        ("sub/deep.txt", b"1"),
        ("sub/.secret", b"1"),
        (".env", b"1"),
        (".well-known/x", b"1"),
        ("with/index.html", b"index"),
    ]);
    let server = site.serve("listing = true\n");
    let response = server.public.get("/").expect(200);
    assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
    let page = response.text();
    for part in [">a&amp;b &lt;i&gt;.txt</a>", ">sub/</a>", "href=\"./sub/\"", ">.well-known/</a>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in ["<i>", ".env", "../", "x%41\"."] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    // Each reference leads to what it names.
    let references: Vec<&str> =
        page.split("href=\"").skip(1).map(|at| at.split_once('"').unwrap().0).collect();
    assert_eq!(references.len(), 5, "{references:?}");
    for reference in references {
        let target = reference.strip_prefix('.').unwrap();
        server.public.get(target).expect(200);
    }
    let page = server.public.get("/sub/").expect(200);
    assert!(page.text().contains("deep.txt") && page.text().contains("../"), "{page:?}");
    assert!(!page.text().contains(".secret"), "{page:?}");
    assert_eq!(server.public.get("/with/").expect(200).text(), "index");
    server.public.get("/sub").expect(301);
    server.public.get("/none/").refused(404);
    server.public.get("/.git/").refused(404);
    assert_eq!(server.reader().ask("HEAD", "/sub/", "", b"").status, 200);
    // Off unless switched on.
    let server = site.serve("");
    for target in ["/", "/sub/"] {
        server.public.get(target).refused(404);
    }
}

#[test]
fn an_old_client_is_served_and_let_go() {
    let large = noise(300_000);
    let site = Site::of(&[("a.txt", b"hello"), ("large.bin", &large)]);
    site.each_way("", &["/a.txt"], |server, way| {
        for (target, content) in [("/a.txt", &b"hello"[..]), ("/large.bin", &large)] {
            let mut client = server.reader();
            client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
            assert!(client.response().expect(200).body == content, "{way} {target}");
            client.ending();
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let (middle, large) = (noise(20_000), noise(1_500_000));
    let site = Site::of(&[("a.txt", b"small"), ("m.bin", &middle), ("l.bin", &large)]);
    let order = ["/a.txt", "/l.bin", "/none", "/m.bin", "/l.bin", "/a.txt", "/m.bin", "/l.bin"];
    site.each_way("", &["/a.txt", "/m.bin"], |server, way| {
        let mut client = server.reader();
        let all: String = order
            .iter()
            .map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .collect();
        for send in Client::SENDS {
            send(&mut client, all.as_bytes());
            for target in order {
                let response = client.response();
                let expected = match target {
                    "/a.txt" => &b"small"[..],
                    "/m.bin" => &middle,
                    "/l.bin" => &large,
                    _ => {
                        response.refused(404);
                        continue;
                    }
                };
                assert!(response.expect(200).body == expected, "{way} {target}");
            }
        }
        assert_eq!(client.get("/a.txt").text(), "small", "{way}");
    });
}

#[test]
fn a_root_by_flag_and_by_variable() {
    let site = Site::of(&[("a.txt", b"flag")]);
    let other = Site::of(&[("a.txt", b"other")]);
    let root = site.root();
    let flags = ["--workers", "1", "--root", root.to_str().unwrap()];
    let server = Server::with("", "", &flags);
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "flag");
    let variable = format!("export STENTOR_ROOT='{}';", other.root().display());
    let server = Server::with(&variable, "", &["--workers", "1"]);
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "other");
    // The flag counts more than the variable, and both more than the file.
    let server = Server::with(&variable, &other.toml(""), &flags);
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "flag");
}

#[test]
fn a_root_that_cannot_be_served() {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    for root in [dir.path().join("none"), file] {
        let root = root.to_str().unwrap();
        refused_start(&["--root", root], &[root, "director"]);
    }
}

#[test]
fn mounts_come_and_go_when_the_settings_are_read_again() {
    let site = Site::of(&[("a.txt", b"site")]);
    let docs = Site::of(&[("a.txt", b"docs")]);
    let mut server = site.serve("");
    kept(&server, "/a.txt");
    server.public.get("/docs/a.txt").refused(404);
    let file = server.dir.path().join("stentor.toml");
    let more = format!("[[static]]\npath = '/docs'\nroot = '{}'\n", docs.root().display());
    fs::write(&file, site.toml(&more)).unwrap();
    server.child.signal("HUP");
    server.child.logged("reloaded");
    eventually("the new mount is served", || {
        let response = server.public.get("/docs/a.txt").expect_one_of(&[200, 404]);
        (response.status == 200).then(|| assert_eq!(response.text(), "docs"))
    });
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "site");
    kept(&server, "/docs/a.txt");
    // Another directory at the same path.
    fs::write(&file, docs.toml("cache_control = 'no-store'\n")).unwrap();
    server.child.signal("HUP");
    eventually("the other directory is served", || {
        let response = server.public.get("/a.txt").expect(200);
        (response.text() == "docs" && response.field("cache-control") == Some("no-store"))
            .then_some(())
    });
    eventually("the mount has gone", || {
        (server.public.get("/docs/a.txt").status == 404).then_some(())
    });
}

/// "Wholly good or refused": so it is at the start, and so it is later.
#[test]
fn a_root_that_is_not_there_when_the_settings_are_read_again() {
    let site = Site::of(&[("a.txt", b"site")]);
    let mut server = site.serve("");
    let file = server.dir.path().join("stentor.toml");
    fs::write(&file, "[[static]]\nroot = '/nowhere/www'\n").unwrap();
    server.child.signal("HUP");
    server.child.logged("not reloaded");
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "site");
}
