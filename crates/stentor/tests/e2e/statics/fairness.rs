//! Large downloads, fast and slow, and everybody else.

use crate::support::{Client, Server, Site, eventually};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LARGE: u64 = 200 * 1024 * 1024;

#[test]
fn a_fast_download_does_not_hold_up_a_small_answer() {
    let site = Site::of(&[("a.txt", b"small")]);
    site.sparse("large.bin", LARGE);
    let server = Server::with("", &site.toml(""), &["--workers", "1"]);
    let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    // Ten in a row, so that they do not end while this test waits for its turn on the processor.
    let all = LARGE * 10;
    thread::scope(|scope| {
        let mut download = server.reader();
        download.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10));
        scope.spawn(|| {
            let mut download = download;
            while !stop.load(Ordering::Relaxed) && received.load(Ordering::Relaxed) < all {
                let some = download.take().expect("the download goes on").len() as u64;
                received.fetch_add(some, Ordering::Relaxed);
            }
        });
        let mut client = server.reader();
        eventually("the download has begun", || {
            (received.load(Ordering::Relaxed) > 0).then_some(())
        });
        for _ in 0..5 {
            assert_eq!(client.get("/a.txt").expect(200).text(), "small");
        }
        let so_far = received.load(Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        assert!(so_far < all, "the answers came behind the downloads");
    });
}

/// How often each thread of a process has a file open.
fn open(pid: u32, file: &str) -> Vec<usize> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let count = |task: fs::DirEntry| {
        let files = fs::read_dir(task.path().join("fd")).unwrap();
        let links = files.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        links.filter(|link| link.ends_with(file)).count()
    };
    tasks.map(|task| count(task.unwrap())).collect()
}

#[test]
fn slow_downloads_of_one_file_share_a_descriptor() {
    let site = Site::of(&[("a.txt", b"small")]);
    site.sparse("large.bin", LARGE);
    let server = site.serve("");
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..300 {
        let mut client = server.reader();
        client.open("/large.bin", "").expect(200);
        clients.push(client);
    }
    server.settled("connections_writing", 300);
    let counts = open(server.child.id(), "large.bin");
    assert!(counts.iter().all(|&count| count <= 1), "{counts:?}");
    assert!(counts.contains(&1), "{counts:?}");
    assert_eq!(server.public.get("/a.txt").expect(200).text(), "small");
    // One of them goes on, when it has time.
    let mut received = 0;
    while received < 20_000_000 {
        received += clients[150].take().expect("the download goes on").len();
    }
    // The file is closed behind the last.
    clients.clear();
    eventually("the file is closed", || {
        open(server.child.id(), "large.bin").iter().all(|&count| count == 0).then_some(())
    });
}

/// Who reads slowly reads: only one that takes nothing for the time of `write_timeout` is cut.
#[test]
fn a_slow_download_goes_on_as_long_as_it_reads() {
    let site = Site::of(&[]);
    site.sparse("large.bin", LARGE);
    let server = site.serve("[limits]\nwrite_timeout = '2s'\n");
    let mut client = server.reader();
    client.open("/large.bin", "").expect(200);
    let mut stalled = server.reader();
    stalled.open("/large.bin", "").expect(200);
    let begin = Instant::now();
    let mut received = 0;
    while begin.elapsed() < Duration::from_secs(6) {
        let some = client.take().unwrap_or_else(|ending| panic!("{ending:?} after {received}"));
        received += some.len();
        thread::sleep(Duration::from_millis(300));
    }
    // The other has been cut by now, or will be.
    eventually("the one that takes nothing is cut", || {
        (server.figure("counters/timeouts") == 1).then_some(())
    });
}

#[test]
fn a_download_that_has_begun_is_finished_before_the_server_stops() {
    let site = Site::of(&[]);
    site.sparse("large.bin", LARGE / 4);
    let toml = format!("drain = '60s'\n{}", site.toml(""));
    let mut server = Server::configured(&toml);
    let mut client = server.reader();
    client.open("/large.bin", "").expect(200);
    server.settled("connections_writing", 1);
    server.child.signal("TERM");
    server.child.logged("stopping");
    let mut received = 0;
    while let Ok(some) = client.take() {
        received += some.len() as u64;
    }
    assert_eq!(received, LARGE / 4);
    server.child.stopped();
}

#[test]
fn the_last_answer_of_a_connection_arrives_whatever_else_the_client_sends() {
    let site = Site::of(&[]);
    site.sparse("large.bin", 20 * 1024 * 1024);
    let server = site.serve("");
    for fields in ["Connection: close\r\n", ""] {
        let version = if fields.is_empty() { "1.0" } else { "1.1" };
        let mut client = server.reader();
        client.send(format!("GET /large.bin HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
        // Until much has been received, the server does not listen.
        let mut received = client.take().unwrap().len();
        client.send("\r\n");
        while let Ok(some) = client.take() {
            received += some.len();
        }
        assert!(received > 20 * 1024 * 1024, "cut after {received} bytes");
    }
}
