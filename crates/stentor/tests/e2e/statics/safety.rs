//! What is never served, however it is asked for: anything outside the root, anything that is not
//! a regular file, and what is hidden.

use crate::support::{Client, NO_CACHE, Response, Server, Site, eventually, kept};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SECRET: &str = "what nobody may read";

/// A site with a secret beside its root, of the same name as a file within.
fn guarded() -> Site {
    let site = Site::of(&[("a.txt", b"a"), ("sub/b.txt", b"b"), ("secret.txt", b"public")]);
    fs::write(site.outside("secret.txt"), SECRET).unwrap();
    fs::create_dir(site.outside("private")).unwrap();
    fs::write(site.outside("private/b.txt"), SECRET).unwrap();
    site
}

/// Sends a target as it is, on a connection of its own.
#[track_caller]
fn ask(server: &Server, target: &[u8]) -> Response {
    let mut client = server.reader();
    client.send([b"GET ", target, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
    client.response()
}

#[track_caller]
fn assert_refused(server: &Server, target: &[u8]) {
    let response = ask(server, target);
    let shown = String::from_utf8_lossy(target);
    assert!(matches!(response.status, 400 | 404), "{shown}: {response:?}");
    assert!(!response.text().contains(SECRET), "{shown}");
}

/// Ways up and out, of which each has worked on some server.
const OUT: [&[u8]; 40] = [
    b"/../secret.txt",
    b"/sub/../../secret.txt",
    b"/sub/../a.txt",
    b"/..",
    b"/../",
    b"/.",
    b"/./a.txt",
    b"/sub/./b.txt",
    b"/%2e%2e/secret.txt",
    b"/%2E%2E/secret.txt",
    b"/.%2e/secret.txt",
    b"/%2e./secret.txt",
    b"/%2e%2e%2fsecret.txt",
    b"/..%2fsecret.txt",
    b"/..%2Fsecret.txt",
    b"/sub%2f..%2f..%2fsecret.txt",
    b"/%2e%2e",
    b"/%252e%252e/secret.txt",
    b"/%252e%252e%252fsecret.txt",
    b"/..%252fsecret.txt",
    b"/%25252e%25252e/secret.txt",
    b"/..\\secret.txt",
    b"/..%5csecret.txt",
    b"/sub\\..\\..\\secret.txt",
    b"/sub%5cb.txt",
    b"/a.txt%00",
    b"/a.txt%00.html",
    b"/%00",
    b"/../secret.txt%00.txt",
    b"/%c0%ae%c0%ae/secret.txt",
    b"/%c0%ae%c0%ae%c0%afsecret.txt",
    b"/..%c0%afsecret.txt",
    b"/%e0%80%ae%e0%80%ae/secret.txt",
    b"/%f0%80%80%ae%f0%80%80%ae/secret.txt",
    b"/\xc0\xae\xc0\xae/secret.txt",
    b"/%u002e%u002e/secret.txt",
    b"/%%32%65%%32%65/secret.txt",
    b"/..;/secret.txt",
    b"/.../secret.txt",
    b"/a.txt%0d%0aX:%20y",
];

#[test]
fn no_path_leads_out_of_the_root() {
    let site = guarded();
    let settings = ["", "symlinks = true\nlisting = true\n"];
    for server in settings.iter().flat_map(|rest| site.serve_each_way(rest)) {
        kept(&server, "/a.txt");
        for target in OUT {
            assert_refused(&server, target);
            assert_refused(&server, &[b"http://localhost", target].concat());
            assert_refused(&server, &[b"/", target].concat());
            assert_refused(&server, &[b"http://localhost/", target].concat());
            assert_refused(&server, &[b"/sub", target, b"?x=../a.txt#"].concat());
        }
        for path in [site.outside("secret.txt"), site.root()] {
            let path = path.to_str().unwrap();
            assert_refused(&server, path.as_bytes());
            assert_refused(&server, format!("/{path}").as_bytes());
            assert_refused(&server, format!("//{path}").as_bytes());
            assert_refused(&server, path.replace('/', "%2f").as_bytes());
            assert_refused(&server, format!("/{}", path.replace('/', "%2F")).as_bytes());
        }
        // What looks alike and is within is served.
        assert_eq!(ask(&server, b"/secret.txt").expect(200).text(), "public");
        assert_eq!(ask(&server, b"/%73ecret.txt").expect(200).text(), "public");
        assert_eq!(ask(&server, b"http://localhost/secret.txt").expect(200).text(), "public");
    }
    // A page for all paths is one for some of these, too, as long as it is that page.
    let server = site.serve("fallback = 'a.txt'\n");
    for target in OUT {
        assert!(!ask(&server, target).text().contains(SECRET));
    }
}

#[test]
fn no_path_leads_from_one_mount_to_beside_it() {
    let site = guarded();
    let server = site.serve("path = '/docs'\n");
    assert_eq!(ask(&server, b"/docs/a.txt").expect(200).text(), "a");
    for target in OUT {
        assert_refused(&server, &[b"/docs", target].concat());
        assert_refused(&server, &[b"/docs/", target].concat());
        // As if a mount were a prefix of names: "/docs../secret.txt".
        assert_refused(&server, &[b"/docs", &target[1..]].concat());
    }
}

#[test]
fn double_encoding_is_text() {
    let site = Site::of(&[("%2e%2e", b"named so"), ("a%20b.txt", b"this too")]);
    let server = site.serve("");
    assert_eq!(ask(&server, b"/%252e%252e").expect(200).text(), "named so");
    assert_eq!(ask(&server, b"/a%2520b.txt").expect(200).text(), "this too");
    ask(&server, b"/a%20b.txt").refused(404);
}

#[test]
fn links_are_followed_only_if_allowed_and_never_out() {
    let site = guarded();
    symlink("../secret.txt", site.path("out.txt")).unwrap();
    symlink(site.outside("secret.txt"), site.path("absolute.txt")).unwrap();
    symlink(site.path("a.txt"), site.path("absolute-within.txt")).unwrap();
    symlink("../private", site.path("out")).unwrap();
    symlink("a.txt", site.path("within.txt")).unwrap();
    symlink("../a.txt", site.path("sub/up.txt")).unwrap();
    symlink("sub", site.path("directory")).unwrap();
    symlink("loop", site.path("loop")).unwrap();
    symlink("none", site.path("dangling")).unwrap();
    symlink("/proc/self/environ", site.path("environ")).unwrap();
    symlink("/proc/self/root", site.path("slash")).unwrap();
    // Also as what stands beside a file, and as the index of a directory.
    symlink("../secret.txt", site.path("a.txt.gz")).unwrap();
    symlink("../../secret.txt", site.path("sub/index.html")).unwrap();
    let never = [
        "/out.txt",
        "/absolute.txt",
        "/absolute-within.txt",
        "/out/b.txt",
        "/out/",
        "/out",
        "/loop",
        "/dangling",
        "/environ",
        "/slash/etc/passwd",
        "/sub/",
        "/sub/index.html",
        "/a.txt.gz",
    ];
    for (keys, within) in [("", 404), ("symlinks = true\n", 200)] {
        let settings = ["", NO_CACHE].map(|more| format!("{keys}{more}"));
        for server in settings.iter().flat_map(|rest| site.serve_each_way(rest)) {
            for target in never {
                server.public.get(target).refused(404);
            }
            for (target, content) in
                [("/within.txt", "a"), ("/sub/up.txt", "a"), ("/directory/b.txt", "b")]
            {
                let response = server.public.get(target);
                assert_eq!(response.status, within, "{keys} {target}: {response:?}");
                assert!(within != 200 || response.text() == content, "{response:?}");
            }
            for _ in 0..20 {
                let fields = "Accept-Encoding: gzip\r\n";
                let response = server.public.ask("GET", "/a.txt", fields, b"").expect(200);
                assert_eq!(response.text(), "a");
            }
        }
    }
    // The root itself may be a link: that is the operator's word.
    symlink("root", site.outside("current")).unwrap();
    let server = Server::configured(&format!(
        "[[static]]\nroot = '{}'\n",
        site.outside("current").display()
    ));
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "a");
}

/// Swaps what two names are until told to stop.
fn swap(places: &[(std::path::PathBuf, std::path::PathBuf)], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for (one, other) in places {
            let between = one.with_extension("between");
            fs::rename(one, &between).unwrap();
            fs::rename(other, one).unwrap();
            fs::rename(&between, other).unwrap();
        }
    }
}

#[test]
fn a_link_that_comes_and_goes_never_shows_what_is_outside() {
    let site = guarded();
    symlink("../secret.txt", site.outside("link.txt")).unwrap();
    symlink("../private", site.outside("link")).unwrap();
    let places =
        [(site.path("a.txt"), site.outside("link.txt")), (site.path("sub"), site.outside("link"))];
    let settings = ["", "symlinks = true\n", NO_CACHE];
    for (rest, server) in settings
        .iter()
        .flat_map(|rest| site.serve_each_way(rest).into_iter().map(move |s| (rest, s)))
    {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| swap(&places, &stop));
            let mut client = server.reader();
            let mut served = 0;
            for i in 0..4_000 {
                let (target, content) = [("/a.txt", "a"), ("/sub/b.txt", "b")][i % 2];
                let response = client.get(target);
                match response.status {
                    200 if response.text() == content => served += 1,
                    403 | 404 | 503 if !response.text().contains(SECRET) => {}
                    _ => {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{target}: {response:?}");
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(served > 0, "{rest}");
        });
    }
}

#[test]
fn what_is_no_regular_file_is_not_there_and_holds_nobody_up() {
    let site = guarded();
    let run = |program: &str, args: &[&str]| {
        let ran = Command::new(program).args(args).output();
        ran.is_ok_and(|output| output.status.success())
    };
    let fifos = ["fifo", "fifo.html", "a.txt.gz", "sub/index.html"];
    for name in fifos {
        assert!(run("mkfifo", &[site.path(name).to_str().unwrap()]), "{name}");
    }
    // Only root can make one, and not everywhere.
    run("mknod", &[site.path("null").to_str().unwrap(), "c", "1", "3"]);
    run("mknod", &[site.path("zero").to_str().unwrap(), "c", "1", "5"]);
    let _socket = UnixListener::bind(site.path("socket")).unwrap();
    fs::create_dir_all(site.path("d/index.html")).unwrap();
    let server = Server::with("", &site.toml("listing = true\n"), &["--workers", "1"]);
    let mut client = server.reader();
    for _ in 0..3 {
        for target in ["/fifo", "/fifo.html", "/a.txt.gz", "/null", "/zero", "/socket"] {
            client.get(target).refused(404);
            server.reader().ask("HEAD", target, "", b"").expect(404);
            assert_eq!(server.public.get("/secret.txt").expect(200).text(), "public");
        }
        // Beside a file, one is no form of it; as an index it is none.
        let fields = "Accept-Encoding: gzip\r\n";
        assert_eq!(client.ask("GET", "/a.txt", fields, b"").expect(200).text(), "a");
        let page = client.get("/sub/").expect(200);
        assert!(page.text().contains("b.txt") && !page.text().contains("index.html"), "{page:?}");
        assert!(client.get("/d/").expect(200).text().contains("index.html/"));
        client.get("/d/index.html").expect(301);
    }
    let page = client.get("/").expect(200);
    for name in ["fifo", "null", "socket"] {
        assert!(!page.text().contains(name), "{page:?}");
    }
    drop(server);
    let server = site.serve("");
    server.public.get("/d/").refused(404);
}

#[test]
fn what_is_hidden_is_not_there() {
    let files = [
        ".env",
        ".git/config",
        "sub/.htpasswd",
        ".well-known/.secret",
        "sub/.well-known/x",
        ".well-known2/x",
        "..hidden",
    ];
    let mut all = files.map(|name| (name, &b"hidden"[..])).to_vec();
    all.push((".well-known/acme/x", b"served"));
    all.push(("sub/a.b", b"served"));
    let site = Site::of(&all);
    site.each_way("", &["/sub/a.b", "/.well-known/acme/x"], |server, way| {
        for name in files {
            server.public.get(&format!("/{name}")).refused(404);
            server.public.get(&format!("/{}", name.replace('.', "%2e"))).refused(404);
        }
        server.public.get("/.git").refused(404);
        server.public.get("/.git/").refused(404);
        for target in ["/.well-known/acme/x", "/%2ewell-known/acme/x", "/sub/a.b"] {
            assert_eq!(server.public.get(target).expect(200).text(), "served", "{way} {target}");
        }
    });
}

#[test]
fn what_the_server_may_not_read_is_forbidden() {
    let site = guarded();
    let closed = |name: &str, mode| {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    closed("secret.txt", 0o600);
    closed("sub", 0o700);
    let Some(server) = site.serve_as_nobody("listing = true\n") else { return };
    server.public.get("/secret.txt").refused(403);
    server.public.get("/sub/b.txt").refused(403);
    server.public.get("/sub/none.txt").refused(403);
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "a");
    kept(&server, "/a.txt");
    // What changes later is noticed, too.
    closed("a.txt", 0o600);
    eventually("the file is closed", || {
        (server.public.get("/a.txt").expect_one_of(&[200, 403]).status == 403).then_some(())
    });
    closed("a.txt", 0o644);
    closed("sub", 0o755);
    eventually("the files are open", || {
        let mut client = server.reader();
        let open = client.get("/a.txt").status == 200 && client.get("/sub/b.txt").status == 200;
        open.then_some(())
    });
}

#[test]
fn a_path_may_have_any_name_of_a_file() {
    let names =
        ["ä ö.txt", "日本.txt", "a+b&c=d.txt", "a:b.txt", "~user", "-a", "a,b;c.txt", "q?.txt"];
    let files = names.map(|name| (name, name.as_bytes()));
    let site = Site::of(&files);
    let server = site.serve("");
    let mut client: Client = server.reader();
    for name in names {
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(client.get(&format!("/{escaped}")).expect(200).text(), name);
    }
}
