//! Clients that take their time: each kind of slowness has its deadline, and costs only itself.

use crate::support::{
    Child, Client, Ending, EventStream, Reader, Server, Site, TcpRow, Way, WebSocket, eventually,
    python, tcp_table,
};
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_head_that_drips_in_is_cut_off() {
    let server = Server::configured("[limits]\nhead_timeout = '600ms'\n");
    let mut client = server.reader();
    // Each head has its own deadline.
    client.get("/none").refused(404);
    let begin = Instant::now();
    let mut sender = client.sender();
    // A byte now and then buys nothing: the deadline is that of the whole head.
    let dripping = thread::spawn(move || {
        for _ in 0..500 {
            if sender.try_send(b"X").is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    client.response().refused(408);
    assert!(begin.elapsed() >= Duration::from_millis(500));
    assert_eq!(client.ending(), Ending::Closed);
    drop(client);
    dripping.join().unwrap();
    assert!(server.figure("counters/timeouts") >= 1);
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_costs_only_itself() {
    let server = Server::configured("[limits]\nwrite_timeout = '800ms'\n");
    server.control.put("/a", "text/plain", &vec![b'x'; 1024 * 1024]).expect(201);
    let memory_before = server.figure("memory_resident_bytes");
    let mut deaf: Vec<Client> = (0..20).map(|_| server.reader()).collect();
    for client in &mut deaf {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
    }
    // Two gigabytes were asked for; what waits is a message that all share, and the requests.
    for _ in 0..20 {
        server.public.get("/none").refused(404);
    }
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 8 * 1024 * 1024, "{memory} bytes more");
    server.settled("connections_public", 0);
    server.settled("timeouts", 20);
    drop(deaf);
}

#[test]
fn an_unread_burst_of_small_answers_does_not_stop_the_others() {
    let server = Server::start();
    server.control.put("/a", "text/plain", &[b'x'; 1000]).expect(201);
    let mut deaf = server.reader();
    let mut sender = deaf.sender();
    // The server stops reading when its answers are not read, so this blocks at some point.
    let sending = thread::spawn(move || {
        let requests = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
        for _ in 0..100 {
            sender.send(&requests);
        }
    });
    for _ in 0..50 {
        assert_eq!(server.public.get("/a").expect(200).body.len(), 1000);
    }
    for _ in 0..100_000 {
        deaf.response().expect(200);
    }
    sending.join().unwrap();
}

/// A reader in another process, with a small receive buffer, that has its first event and reads no
/// further until it is told to.
fn stalled(server: &Server, target: &str) -> Option<Child> {
    let (host, port) = (server.public.0.ip().to_string(), server.public.0.port().to_string());
    let mut command = python("slow_reader.py")?;
    command.args([host.as_str(), port.as_str(), target]).stdin(Stdio::piped());
    let mut reader = Child::spawn(&mut command);
    eventually("the reader has its first event", || {
        assert!(reader.is_running(), "{}", reader.err());
        reader.out().starts_with("open\n").then_some(())
    });
    Some(reader)
}

#[test]
fn a_reader_of_the_latest_that_wakes_up_has_it_after_a_message_or_two() {
    let server = Server::configured("[[topics]]\nmatch = '/quotes/*'\nhistory = 1\n");
    for target in ["/quotes/a", "/-/events?topic=/quotes/*", "/kept?mode=latest"] {
        let topic = if target.contains("quotes") { "/quotes/a" } else { "/kept" };
        let padding = "x".repeat(8 * 1024);
        server.publish(topic, "start");
        let Some(mut reader) = stalled(&server, target) else { return };
        for i in 0..300 {
            server.publish(topic, &format!("{i} {padding}"));
        }
        server.publish(topic, "newest");
        reader.input().write_all(b"go\n").unwrap();
        eventually("the newest message comes", || reader.out().contains("newest").then_some(()));
        let stale = reader.out().matches(&padding).count();
        // What the kernel had taken already, and the one that was cut.
        assert!(stale <= 2, "{target}: {stale} messages before the newest");
    }
    assert!(server.figure("counters/conflated") > 0);
}

#[test]
fn readers_that_do_not_read_cost_no_more_than_history() {
    let server = Server::start();
    server.publish("/a", "start");
    let mut deaf: Vec<EventStream> = Vec::new();
    let mut deaf_sockets: Vec<WebSocket> = Vec::new();
    for i in 0..40 {
        let many = "/-/events?topic=/a&topic=/b&mode=all";
        let target = if i % 2 == 0 { "/a?mode=all" } else { many };
        deaf.push(EventStream::open(server.public, target, ""));
        deaf_sockets.push(WebSocket::open(server.public, target, ""));
    }
    let mut live = Reader::open(Way::Events, server.public, "/a", "all", "");
    assert_eq!(live.data(), "start");
    let memory_before = server.figure("memory_resident_bytes");
    let text = "x".repeat(16 * 1024);
    // More than all kernels buffer for a reader: 3 GiB in all, if it were kept for each.
    let count = 2_500;
    for i in 0..count {
        server.publish("/a", &format!("{i} {text}"));
        // Nobody else waits for those that do not read.
        assert_eq!(live.data().split_once(' ').unwrap().0, i.to_string());
    }
    let memory = server.figure("memory_resident_bytes").saturating_sub(memory_before);
    assert!(memory < 24 * 1024 * 1024, "{memory} bytes more");
    assert_eq!(server.figure("counters/readers_behind"), 80);
    // When they read on they are told what they lost, and then have what is left.
    for stream in &mut deaf {
        let (mut gaps, mut last) = (0, String::new());
        while !last.contains(&format!("{} x", count - 1)) {
            let event = stream.event();
            gaps += usize::from(event.notice("gap").is_some());
            last = event.data;
        }
        assert!(gaps >= 1);
    }
    for socket in &mut deaf_sockets {
        let (mut gaps, mut last) = (0, String::new());
        while !last.contains(&format!("{} x", count - 1)) {
            last = socket.text();
            gaps += usize::from(last.starts_with("{\"gap\":"));
        }
        assert!(gaps >= 1);
    }
    server.settled("readers_behind", 0);
}

#[test]
fn a_reader_that_stalls_for_too_long_is_cut() {
    let server = Server::configured("[streams]\nstall_timeout = '400ms'\n");
    server.publish("/a", "start");
    let deaf = EventStream::open(server.public, "/a", "");
    let deaf_socket = WebSocket::open(server.public, "/-/events?topic=/a", "");
    let mut live = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(live.data(), "start");
    let text = "x".repeat(64 * 1024);
    eventually("they are cut", || {
        server.publish("/a", &text);
        assert_eq!(live.data(), text);
        let cut = server.figure("counters/readers_websocket") == 0
            && server.figure("counters/readers_sse") == 1;
        cut.then_some(())
    });
    assert_eq!(server.figure("counters/timeouts"), 2);
    drop((deaf, deaf_socket));
}

#[test]
fn a_reader_that_is_slow_but_reads_is_not_cut() {
    let kept = "[[topics]]\nmatch = '/a'\nhistory = 1000\nhistory_bytes = '64MiB'\n";
    let server = Server::configured(&format!("[streams]\nstall_timeout = '2s'\n{kept}"));
    let text = "x".repeat(64 * 1024);
    let mut slow = EventStream::open(server.public, "/a?mode=all", "");
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                server.publish("/a", &text);
            }
            server.publish("/a", "end");
        });
        // Behind for twice as long as a stall may take.
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(100));
            slow.event();
        }
    });
    while slow.event().data != "end" {}
    assert_eq!(server.figure("counters/timeouts"), 0);
}

/// What the kernel keeps of what clients do not read is bounded for each of them, and is not the
/// whole answer.
#[test]
fn the_kernel_keeps_little_for_clients_that_do_not_read() {
    let site = Site::of(&[]);
    site.sparse("large.bin", 50_000_000);
    let server = Server::configured(&site.toml(""));
    server.control.put("/value", "text/plain", &[b'x'; 1_000_000]).expect(201);
    let clients: Vec<Client> = (0..40)
        .map(|n| {
            let mut client = server.reader();
            let target = if n % 2 == 0 { "/value" } else { "/large.bin" };
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    server.settled("connections_writing", 40);
    let port = server.public.0.port();
    let is_served = |row: &TcpRow| row.local_port == port && row.state == 1;
    let queued: Vec<u64> =
        tcp_table().into_iter().filter(is_served).map(|row| row.unsent_bytes).collect();
    // Clients of other servers may have a port of the same number.
    assert!(queued.len() >= 40, "{}", queued.len());
    // 128 KiB unsent, and what the last send took beyond it.
    let most = queued.into_iter().max();
    assert!(most < Some(400_000), "{most:?} bytes are kept for one client");
    drop(clients);
}
