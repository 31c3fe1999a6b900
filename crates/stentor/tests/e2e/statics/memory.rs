//! What is kept in memory, within its bound, and what is told of it.

use crate::support::{Server, Site, eventually, noise};

const BOUND: u64 = 1024 * 1024;

/// How many were answered from memory and how many were not, by a request.
fn counted(server: &Server, target: &str) -> (u64, u64) {
    let figures = || {
        let status = server.control.get("/-/status").expect(200).json();
        ["file_hits", "file_misses"].map(|name| status["counters"][name].as_u64().unwrap())
    };
    let [hits, misses] = figures();
    server.public.get(target).expect(200);
    let after = figures();
    (after[0] - hits, after[1] - misses)
}

#[test]
fn the_cache_keeps_its_bound_and_what_is_used() {
    let content = noise(20 * 1024);
    let names: Vec<String> = (0..200).map(|i| format!("{i}.bin")).collect();
    let files: Vec<_> = names.iter().map(|name| (&**name, &content[..])).collect();
    let site = Site::of(&files);
    let server = site.serve(&format!("[files]\ncache_bytes_max = {BOUND}\n"));
    let mut client = server.reader();
    for (i, name) in names.iter().enumerate() {
        assert!(client.get(&format!("/{name}")).expect(200).body == content);
        // The loader is given its time, so that what is used meanwhile is there to be used.
        eventually("the file is kept", || {
            let loaded = server.figure("files_cached") + server.figure("files_evicted");
            (loaded == i as u64 + 1).then_some(())
        });
        assert!(client.get("/0.bin").expect(200).body == content);
    }
    let cached = server.figure("files_cached");
    let bytes = server.figure("files_cached_bytes");
    assert!(bytes <= BOUND && bytes >= cached * content.len() as u64, "{bytes}");
    assert!((40..=51).contains(&cached), "{cached}");
    assert_eq!(server.figure("files_evicted"), 200 - cached);
    // The one that was used all the while is there, and so is the last; the oldest are not.
    assert_eq!(counted(&server, "/0.bin"), (1, 0));
    assert_eq!(counted(&server, "/199.bin"), (1, 0));
    assert_eq!(counted(&server, "/1.bin"), (0, 1));
    assert_eq!(counted(&server, "/100.bin"), (0, 1));
}

#[test]
fn a_file_larger_than_the_cache_is_not_kept() {
    let content = noise(20 * 1024);
    let site = Site::of(&[("a.bin", &content)]);
    for settings in ["cache_bytes_max = 10000", "small_bytes_max = 10000", "cache_bytes_max = 0"] {
        let server = site.serve(&format!("[files]\n{settings}\n"));
        for _ in 0..10 {
            assert_eq!(counted(&server, "/a.bin"), (0, 1), "{settings}");
        }
        assert_eq!(server.figure("files_cached"), 0, "{settings}");
        assert_eq!(server.figure("files_cached_bytes"), 0, "{settings}");
    }
}

#[test]
fn what_leaves_is_forgotten_with_its_bytes() {
    let site = Site::of(&[("a.txt", &b"text ".repeat(1_000)), ("b.txt", b"b")]);
    let server = site.serve("");
    for target in ["/a.txt", "/b.txt"] {
        crate::support::kept(&server, target);
    }
    assert_eq!(server.figure("files_cached"), 2);
    eventually("it is compressed", || {
        let response = server.public.ask("GET", "/a.txt", "Accept-Encoding: br\r\n", b"");
        response.field("content-encoding").map(drop)
    });
    site.remove("a.txt");
    site.remove("b.txt");
    eventually("nothing is left", || {
        // A request has the loader check the file, once a second at most.
        for target in ["/a.txt", "/b.txt"] {
            server.public.get(target);
        }
        let (entries, bytes) = (server.figure("files_cached"), server.figure("files_cached_bytes"));
        (entries == 0 && bytes == 0).then_some(())
    });
    assert_eq!(server.figure("files_evicted"), 0);
}

#[test]
fn bytes_by_sendfile_are_counted() {
    let content = noise(1_500_000);
    let site = Site::of(&[("large.bin", &content), ("small.bin", b"small")]);
    let server = site.serve("");
    assert!(server.public.get("/large.bin").expect(200).body == content);
    server.public.get("/small.bin").expect(200);
    server.settled("bytes_sendfile", 1_500_000);
    let fields = "Range: bytes=1000-1999\r\n";
    server.public.ask("GET", "/large.bin", fields, b"").expect(206);
    server.settled("bytes_sendfile", 1_501_000);
    // A HEAD sends none.
    server.reader().ask("HEAD", "/large.bin", "", b"").expect(200);
    server.public.get("/small.bin").expect(200);
    assert_eq!(server.figure("counters/bytes_sendfile"), 1_501_000);
}

#[test]
fn metrics_and_the_status_speak_of_files() {
    let content = noise(200_000);
    let site = Site::of(&[("a.bin", b"a"), ("large.bin", &content)]);
    let server = site.serve("");
    crate::support::kept(&server, "/a.bin");
    server.public.get("/large.bin").expect(200);
    server.settled("bytes_sendfile", 200_000);
    let metrics = server.control.get("/-/metrics").expect(200);
    let value = |name: &str| {
        let line = metrics.text().lines().find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {metrics:?}"));
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    assert!(value("stentor_file_cache_hits_total") >= 1);
    assert!(value("stentor_file_cache_misses_total") >= 2);
    assert_eq!(value("stentor_file_cache_entries"), 1);
    assert!(value("stentor_file_cache_bytes") >= 1);
    assert_eq!(value("stentor_file_cache_evictions_total"), 0);
    assert_eq!(value("stentor_files_cut_total"), 0);
    assert_eq!(value("stentor_sent_bytes_total{kind=\"sendfile\"}"), 200_000);
    let text = server.control.ask("GET", "/-/status", "Accept: text/plain\r\n", b"").expect(200);
    assert!(text.text().contains("\ncounters.bytes_sendfile: 200000\n"), "{text:?}");
}
