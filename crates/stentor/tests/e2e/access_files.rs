//! Files with names that ask for a token, in directories that anyone may read.

use crate::access::{NEVER, bearer, config, said};
use crate::support::{NO_CACHE, Server, Site};

/// A site of which rules keep some names private, in a mount that lists and one that falls back.
fn site(has_private: bool, more: &str) -> (Site, Server) {
    let mut files: Vec<(&str, &[u8])> = vec![
        ("open.txt", b"open"),
        ("deep/open.txt", b"open"),
        ("deep/more/open.txt", b"open"),
        ("file", b"open"),
    ];
    if has_private {
        files.extend([
            ("secret.pdf", &b"secret"[..]),
            ("secret.pdf.gz", b"secret"),
            ("deep/index.html", b"secret"),
            ("deep/more/secret.txt", b"secret"),
            ("page.html", b"secret"),
            ("page.html.br", b"secret"),
            ("team/plan.txt", b"secret"),
            ("locked/plan.txt", b"secret"),
        ]);
    }
    let site = Site::of(&files);
    std::fs::create_dir_all(site.path("locked")).unwrap();
    let names = [
        "/pub/secret.pdf",
        "/pub/deep/index.html",
        "/pub/deep/more/secret.txt",
        "/pub/team/**",
        "/pub/page.html",
        "/app/page.html",
        "/part/**",
    ];
    let rules: String =
        names.map(|name| format!("[[topics]]\nmatch = '{name}'\nread = 'token'\n")).concat();
    let root = site.root();
    let root = root.display();
    let server = Server::configured(&format!(
        "{more}{}{rules}
[[token]]
name = 'reader'
sha256 = 'a5d57a245be23e465f78cc091fadc66099e16f6e8169217feacc394af3a19c18'
read = ['/pub/**', '/app/**', '/part/**']
[[static]]
path = '/pub'
root = '{root}'
listing = true
[[static]]
path = '/pub/locked'
root = '{root}/locked'
read = 'token'
[[static]]
path = '/part'
root = '{root}'
[[static]]
path = '/app'
root = '{root}'
fallback = 'page.html'
",
        config(NEVER, "")
    ));
    (site, server)
}

const PRIVATE: [&str; 13] = [
    "/pub/secret.pdf",
    "/pub/secret.pdf.gz",
    "/pub/secret.pdf.br",
    "/pub/secret.pdf.zst",
    "/pub/secret.pdf.gz.br",
    "/pub/page.html.br",
    "/pub/deep/",
    "/pub/deep/index.html",
    "/pub/team/",
    "/pub/team/plan.txt",
    "/app/page.html",
    "/app/some/where",
    "/part",
];

#[test]
fn a_private_name_in_a_public_directory_asks_for_a_token_however_it_is_reached() {
    for more in ["", NO_CACHE] {
        let (_site, server) = site(true, more);
        let (_empty, without) = site(false, more);
        for token in ["", &bearer("stentor_unknown"), &bearer("stentor_writer")] {
            let expected = if token.contains("writer") { 403 } else { 401 };
            for target in PRIVATE {
                // Twice: it may be in memory then.
                for _ in 0..2 {
                    let ask = |server: &Server| server.public.ask("GET", target, token, b"");
                    let with = ask(&server);
                    assert_eq!(with.status, expected, "{target} {token} {with:?}");
                    assert_eq!(said(&with), said(&ask(&without)), "{target}");
                }
            }
            // Nor is it told whether there is anything.
            for target in ["/pub/team", "/pub/", "/pub/deep/more/", "/pub/none", "/app/file"] {
                for accept in ["", "Accept-Encoding: gzip, br, zstd\r\n"] {
                    let fields = format!("{token}{accept}");
                    let ask = |server: &Server| server.public.ask("GET", target, &fields, b"");
                    let (with, without) = (ask(&server), ask(&without));
                    assert_eq!(said(&with), said(&without), "{target}");
                }
            }
        }
        server.public.get("/pub/open.txt").expect(200);
        server.public.get("/pub/team").expect(404);
        server.public.get("/app/file").expect(200);
        server.public.get("/app/none.js").expect(404);
    }
}

#[test]
fn who_may_read_a_private_name_is_sent_it_and_shared_caches_are_told() {
    let (_site, server) = site(true, "");
    let fields = bearer("stentor_fresh");
    let private = |target: &str, fields: &str, status: u16| {
        let response = server.public.ask("GET", target, fields, b"").expect(status);
        let shown = format!("{response:?}").to_ascii_lowercase();
        assert!(shown.contains("cache-control: private"), "{target} {shown}");
        assert!(shown.contains("authorization, cookie"), "{target} {shown}");
        response
    };
    for target in ["/pub/secret.pdf", "/pub/secret.pdf.gz", "/pub/deep/", "/app/some/where"] {
        assert_eq!(private(target, &fields, 200).body, b"secret", "{target}");
    }
    assert_eq!(private("/pub/team", &fields, 301).field("location"), Some("./team/"));
    assert_eq!(private("/part", &fields, 301).field("location"), Some("./part/"));
    private("/pub/team", "", 404);
    let shown = private("/pub/", &fields, 200);
    let shown = shown.text();
    let names = ["open.txt", "deep/", "file", "secret.pdf", "secret.pdf.gz", "team/", "page.html"];
    for name in names.into_iter().chain(["locked/"]) {
        assert!(shown.contains(&format!("./{name}\"")), "{name}: {shown}");
    }
    let shown = private("/pub/", "", 200);
    let shown = shown.text();
    for (at, name) in names.into_iter().enumerate() {
        assert_eq!(shown.contains(&format!("./{name}\"")), at < 3, "{name}: {shown}");
    }
    assert!(!shown.contains("locked"), "{shown}");
    // Operators see all.
    let shown = server.control.get("/pub/").expect(200);
    let shown = shown.text();
    assert!(shown.contains("secret.pdf") && shown.contains("locked"), "{shown}");
    // What holds nothing private is anybody's.
    let open = format!("{:?}", server.public.get("/pub/open.txt").expect(200));
    assert!(!open.to_ascii_lowercase().contains("private"), "{open}");
}

#[test]
fn a_request_that_was_held_for_a_value_is_not_answered_with_a_private_file() {
    let (_site, server) = site(true, "");
    for target in ["/pub/locked/plan.txt", "/pub/secret.pdf.gz", "/app/some/where"] {
        server.publish(target, "open");
        let tag = server.public.get(target).expect(200).tag();
        let held = server.figure("counters/readers_long_poll");
        let mut client = server.reader();
        let fields = format!("Host: a\r\nPrefer: wait=25\r\nIf-None-Match: {tag}\r\n");
        client.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n"));
        server.settled("readers_long_poll", held + 1);
        server.control.ask("DELETE", target, "", b"").expect(200);
        client.response().refused(401);
    }
}

/// Directories that may not be read take no place in a list, and there is no word of them.
#[test]
fn a_list_does_not_tell_whether_there_is_more_than_may_be_read() {
    let site = |hidden: usize| {
        let site = Site::of(&[("many/open.txt", b"open")]);
        for n in 0..hidden {
            std::fs::create_dir(site.path(&format!("many/{n}"))).unwrap();
        }
        let root = site.root();
        let server = Server::configured(&format!(
            "{}[[topics]]\nmatch = '/pub/many/*/**'\nread = 'token'\n\
             [[token]]\nname = 'reader'\n\
             sha256 = 'a5d57a245be23e465f78cc091fadc66099e16f6e8169217feacc394af3a19c18'\n\
             read = '/pub/**'\n\
             [[static]]\npath = '/pub'\nroot = '{}'\nlisting = true\n",
            config(NEVER, ""),
            root.display(),
        ));
        (site, server)
    };
    let ((_many, with), (_few, without)) = (site(2_100), site(0));
    let list = |server: &Server, token: &str| {
        server.public.ask("GET", "/pub/many/", token, b"").expect(200).text().to_owned()
    };
    assert!(list(&with, "").contains("open.txt"), "hidden names take the place of others");
    assert_eq!(list(&with, ""), list(&without, ""));
    let all = list(&with, &bearer("stentor_fresh"));
    assert_eq!(all.matches("<tr>").count(), 2_001, "{all}");
}
