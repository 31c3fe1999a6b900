//! A server that is handed over to another process, with everything that is open.

mod failures;
mod settings;

use crate::access;
use crate::privileges::{expect_unprivileged, low_port};
use crate::store::strace;
use crate::support::{
    Client, EventStream, Reader, Said, Server, Site, TempDir, Url, Way, WebSocket, eventually,
    figure, is_root, masked, noise, run, skip, tool, write_program,
};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn whatever_is_open_goes_over_and_nobody_notices() {
    let mut server = Server::configured("topics = [{ match = '/**', history = 100 }]\n");
    server.publish("/a", "0");
    server.publish("/gone", "x");
    server.control.ask("DELETE", "/gone", "", b"").expect(200);
    let mut readers = Reader::of_all_ways(server.public, "/a", "0");
    let mut idle = server.reader();
    assert_eq!(idle.get("/a").expect(200).text(), "0");
    let mut half_head = server.reader();
    half_head.send("GET /a HTTP/1.1\r\nHo");
    let mut half_body = server.publisher();
    half_body.send("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    let mut half_bulk = server.publisher();
    half_bulk.send(
        "POST /-/publish HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/x-ndjson\r\n\r\n1b\r\n{\"topic\":\"/c\",\"data\":\"1\"}\n{\r\n",
    );
    let mut half_frame = WebSocket::open(server.public, "/a", "");
    assert_eq!(half_frame.text(), "0");
    let ping = masked(0x89, b"still there?");
    half_frame.client.send(&ping[..7]);
    server.settled("connections_reading", 3);

    let accepted = server.figure("counters/accepted");
    for round in 1..=5_u32 {
        server.child.upgrade();
        let value = round.to_string();
        server.publish("/a", &value);
        for reader in &mut readers {
            assert_eq!(reader.hear().data(), value, "{:?}", reader.way);
        }
        assert_eq!(half_frame.text(), value);
        assert_eq!(idle.get("/a").expect(200).text(), value);
        server.public.get("/gone").refused(404);
    }
    half_head.send("st: a\r\n\r\n");
    assert_eq!(half_head.response().expect(200).text(), "5");
    half_body.send("lo");
    half_body.response().expect(201);
    assert_eq!(server.public.get("/b").text(), "hello");
    half_bulk.send("19\r\n\"topic\":\"/c\",\"data\":\"2\"}\n\r\n0\r\n\r\n");
    assert_eq!(half_bulk.response().expect(200).json()["published"], 2);
    assert_eq!(server.public.get("/c").text(), "2");
    half_frame.client.send(&ping[7..]);
    let pong = half_frame.frame();
    assert_eq!((pong.first, &pong.payload[..]), (0x8a, &b"still there?"[..]));
    hears_of_each_listener_once(server.child.id());
    // Their numbers go on.
    assert!(server.figure("counters/accepted") >= accepted);
    assert!(server.figure("messages_published") >= 9);
    drop((readers, idle, half_head, half_body, half_bulk, half_frame));
    server.child.stop();
    assert!(server.child.err().contains("stopped"), "{}", server.child.err());
}

/// A listener that a process before has left in an epoll set would be reported in its name, also
/// when nobody is to be let in. What else that process had in it goes when it ends.
fn hears_of_each_listener_once(process: u32) {
    eventually("each listener is in an epoll set once", || {
        let sets = names_in_sets(process);
        let is_once = |names: &Vec<String>| names.windows(2).all(|pair| pair[0] != pair[1]);
        (sets.iter().any(|names| !names.is_empty()) && sets.iter().all(is_once)).then_some(())
    });
}

/// What of a process's epoll sets is no connection: those have small names.
fn names_in_sets(process: u32) -> Vec<Vec<String>> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let threads = list(Path::new(&format!("/proc/{process}/task")));
    let files = threads.iter().flat_map(|thread| list(&thread.join("fdinfo")));
    let sets = files.filter_map(|file| fs::read_to_string(file).ok());
    sets.map(|set| {
        let words: Vec<&str> = set.split_whitespace().collect();
        let names = words.windows(2).filter(|pair| pair[0] == "data:" && pair[1].len() > 8);
        let mut names: Vec<String> = names.map(|pair| pair[1].to_owned()).collect();
        names.sort_unstable();
        names
    })
    .collect()
}

#[test]
fn a_reader_that_stalls_within_a_message_gets_the_rest_of_it_from_the_next_process() {
    let toml = "topics = [{ match = '/**', history = 100, history_bytes = '16 MiB' }]\n";
    let mut server = Server::configured(toml);
    let large = |n: u32| format!("{n} {}", "x".repeat(1_000_000));
    let mut readers: Vec<EventStream> =
        (0..3).map(|_| EventStream::open(server.public, "/a", "")).collect();
    server.publish("/a", &large(0));
    server.settled("readers_behind", 3);
    for n in 1..=3 {
        server.child.upgrade();
        server.publish("/a", &large(n));
    }
    for reader in &mut readers {
        for n in 0..=3 {
            let event = reader.event();
            assert!(event.data == large(n), "{n}: {event:.200?}");
        }
    }
}

/// Reads a download to its end, which must be this, and nothing more.
#[track_caller]
fn comes_to(client: &mut Client, mut part: &[u8]) {
    while !part.is_empty() {
        let came = client.take().expect("the download goes on");
        let (begun, rest) = part.split_at_checked(came.len()).expect("it is no longer than that");
        assert!(came == begun, "other bytes, with {} missing", part.len());
        part = rest;
    }
}

#[test]
fn downloads_under_way_go_on_whatever_becomes_of_their_files() {
    // More than the kernel keeps of a connection.
    let content = noise(24 << 20);
    let all =
        [("same", &content[..]), ("gone", &content), ("replaced", &content), ("changed", &content)];
    let site = Site::of(&all);
    let mut server = site.serve("");
    let first = Range { start: 0, end: content.len() };
    let middle = Range { start: 1_000_001, end: content.len() - 999 };
    let last = Range { start: 77, end: content.len() };
    let asked = [
        ("/same", "", first.clone()),
        ("/same", "Range: bytes=77-\r\n", last),
        ("/same", &format!("Range: bytes={}-{}\r\n", middle.start, middle.end - 1), middle),
        ("/gone", "", first.clone()),
        ("/replaced", "", first.clone()),
        ("/changed", "", first),
    ];
    let mut downloads: Vec<(Client, &[u8])> = Vec::new();
    for (target, fields, range) in asked {
        let mut client = server.reader();
        client.open(target, fields).expect_one_of(&[200, 206]);
        downloads.push((client, &content[range]));
    }
    server.settled("connections_writing", 6);
    site.remove("gone");
    site.replace("replaced", b"new");
    for _ in 0..2 {
        server.child.upgrade();
        for (client, left) in &mut downloads {
            let came = client.take().expect("the download goes on");
            assert!(left.starts_with(&came), "other bytes");
            *left = &left[came.len()..];
        }
    }
    // A file that is not what was promised any more is not gone on with, by whomever.
    let mut file = fs::File::options().append(true).open(site.path("changed")).unwrap();
    file.write_all(b"more").unwrap();
    let (mut cut, mut left) = downloads.pop().unwrap();
    while let Ok(came) = cut.take() {
        assert!(!came.is_empty() && left.starts_with(&came) && came.len() < left.len());
        left = &left[came.len()..];
    }
    server.child.upgrade();
    for (client, left) in &mut downloads {
        comes_to(client, left);
        assert_eq!(client.get("/replaced").expect(200).text(), "new");
        client.get("/gone").expect(404);
    }
    assert_eq!(server.figure("counters/files_cut"), 1);
}

/// Publishes with many requests under way while the server is handed over again and again: every
/// reader hears everything once, in order, and every answer comes.
fn publish_through_upgrades(toml: &str) -> Server {
    const COUNT: u32 = 3_000;
    let mut server = Server::configured(toml);
    server.publish("/n", "first");
    let mut readers = Reader::of_all_ways(server.public, "/n", "first");
    let mut client = Client::connect(server.control.0);
    let mut sender = client.sender();
    let publisher = thread::spawn(move || {
        for n in 0..COUNT {
            let body = n.to_string();
            let head = "PUT /n HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n";
            sender.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
            if n % 100 == 0 {
                thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let answers = thread::spawn(move || {
        let mut last = 0;
        for _ in 0..COUNT {
            let answer = client.response().expect_one_of(&[200, 201]).json();
            let seq = answer["id"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
            assert!(seq > last, "{seq} behind {last}");
            last = seq;
        }
    });
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(100));
        server.child.upgrade();
    }
    [publisher, answers].into_iter().for_each(|thread| thread.join().unwrap());
    readers.iter_mut().for_each(|reader| reader.hear_numbers(COUNT));
    server
}

const LONG_HISTORY: &str = "topics = [{ match = '/**', history = 10_000 }]\n";

#[test]
fn nothing_is_lost_between_two_processes_however_fast_it_comes() {
    publish_through_upgrades(LONG_HISTORY);
}

#[test]
fn a_store_goes_over_with_what_waits_for_it() {
    let data = TempDir::new();
    let path = data.path().join("data");
    let toml = format!("{LONG_HISTORY}[store]\npath = '{}'\n", path.display());
    let mut server = publish_through_upgrades(&toml);
    let last = server.public.get("/n").expect(200).tag();
    server.publish("/m", "kept");
    // What was counted goes on.
    let status = server.control.get("/-/status").expect(200).json();
    assert_eq!(figure(&status, "store/entries"), 3_002);
    assert!(figure(&status, "store/bytes_written") > 3_000 * 30, "{status:#}");
    assert!(figure(&status, "store/syncs") > 30, "{status:#}");
    server.child.signal("KILL");
    assert_eq!(server.child.wait(), Some(128 + 9));
    let again = Server::configured(&toml);
    let value = again.public.get("/n").expect(200);
    assert_eq!((value.tag(), value.text()), (last, "2999"));
    assert_eq!(again.public.get("/m").text(), "kept");
}

/// Each sync takes longer than the server stands still.
#[test]
fn a_slow_disk_delays_publishers_of_upgrades() {
    const SYNC_US: u64 = 1_000_000;
    if tool("strace").is_none() {
        return;
    }
    let data = TempDir::new();
    let path = data.path().join("data");
    let mut server = Server::configured(&format!("[store]\npath = '{}'\n", path.display()));
    server.publish("/a", "0");
    let _slow = strace(&server, &format!("inject=fdatasync,fsync:delay_enter={SYNC_US}"));
    let mut publishers: Vec<Client> = (0..3).map(|_| server.publisher()).collect();
    let put = "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1";
    publishers.iter_mut().for_each(|publisher| publisher.send(put));
    let before = server.child.id();
    server.child.signal("USR2");
    server.child.logged("is started and takes over");
    publishers.iter_mut().for_each(|publisher| {
        publisher.response().expect(200);
        publisher.send(put);
    });
    assert_eq!(server.public.get("/a").expect(200).text(), "1");
    server.child.taken_over(before);
    publishers.iter_mut().for_each(|publisher| drop(publisher.response().expect(200)));
    let status = server.control.get("/-/status").expect(200).json();
    let stood_still_us = figure(&status, "upgrades/last/stood_still_us");
    assert!(stood_still_us < SYNC_US, "a sync was waited for: {stood_still_us} us");
}

/// Puts something else in the place of the server's program.
fn replace_program(server: &Server, text: &str) -> PathBuf {
    let program = server.dir.path().join("stentor");
    fs::rename(&program, server.dir.path().join("good")).unwrap();
    write_program(&program, text);
    program
}

/// Has an upgrade fail for a reason, and sees that nothing is lost by it.
#[track_caller]
fn fails_for(reason: &str, server: &mut Server, reader: &mut Reader) {
    let line = fails(server, reader);
    assert!(line.contains(reason), "{line}");
}

/// Tries an upgrade that must fail, and returns the line of the log about it.
#[track_caller]
fn fails(server: &mut Server, reader: &mut Reader) -> String {
    let (id, tries) = (server.child.id(), server.child.err().matches("ERROR not upgraded").count());
    server.child.signal("USR2");
    let line = eventually("it is not upgraded", || {
        let log = server.child.err();
        let line = log.lines().filter(|line| line.contains("ERROR not upgraded")).nth(tries)?;
        Some(line.to_owned())
    });
    let value = format!("try {tries}");
    server.publish("/a", &value);
    assert_eq!(reader.hear().data(), value);
    assert_eq!(server.reader().get("/a").expect(200).text(), value);
    assert_eq!((server.child.id(), server.child.is_running()), (id, true));
    line
}

#[test]
fn a_program_that_does_not_take_over_changes_nothing() {
    let mut server = Server::of_copy("");
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    let program = replace_program(&server, "#!/bin/sh\nexit 3\n");
    fails_for("it ended with exit status: 3", &mut server, &mut reader);
    fs::remove_file(&program).unwrap();
    fails_for("cannot be started", &mut server, &mut reader);
    // It has not as many files as there are connections.
    let mut begun: Vec<Client> = (0..200).map(|_| server.reader()).collect();
    begun.iter_mut().for_each(|client| client.send("GET /a"));
    server.settled("connections_reading", 200);
    write_program(&program, "#!/bin/sh\nulimit -n 100\nexec \"${0%stentor}good\" \"$@\"\n");
    fails_for("a worker: Too many open files", &mut server, &mut reader);
    server.child.logged("cannot take over: Too many open files");
    fs::rename(server.dir.path().join("good"), &program).unwrap();
    let toml = server.dir.path().join("stentor.toml");
    fs::write(&toml, "wrokers = 3\n").unwrap();
    fails_for("unknown key", &mut server, &mut reader);
    fs::write(&toml, "[store]\npath = '/nowhere'\n").unwrap();
    fails_for("store.path is another", &mut server, &mut reader);
    // And then it does.
    fs::write(&toml, "").unwrap();
    server.child.upgrade();
    server.publish("/a", "new");
    assert_eq!(reader.hear().data(), "new");
}

#[test]
fn a_store_that_the_next_process_cannot_write_to_is_gone_on_with() {
    let data = TempDir::new();
    let socket = data.path().join("monitor");
    let toml = format!(
        "[store]\npath = '{}'\n[monitor]\nlisten = ['unix:{}']\n",
        data.path().join("data").display(),
        socket.display()
    );
    let mut server = Server::of_copy(&toml);
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    let program =
        replace_program(&server, "#!/bin/sh\nulimit -f 0\nexec \"${0%stentor}good\" \"$@\"\n");
    for _ in 0..2 {
        fails_for("", &mut server, &mut reader);
        // Its file is still there.
        Client::connect_unix(&socket).get("/-/readyz").expect(200);
        let path = data.path().join("data").display().to_string();
        let said = run(&["store", "check", &path]);
        assert!(said.err.contains("is in use") && said.code != Some(0), "{said:?}");
    }
    fs::rename(server.dir.path().join("good"), &program).unwrap();
    server.child.upgrade();
    let id = server.publish("/a", "last");
    server.child.signal("KILL");
    assert_eq!(server.child.wait(), Some(128 + 9));
    let again = Server::configured(&toml);
    let value = again.public.get("/a").expect(200);
    assert_eq!((value.text(), value.tag()), ("last", format!("\"{id}\"")));
}

#[test]
fn a_store_continues_if_no_process_can_write() {
    let Some(prlimit) = tool("prlimit") else { return };
    let data = TempDir::new();
    let toml = format!("[store]\npath = '{}'\n", data.path().join("data").display());
    // What is beyond the limit is an error then, and no signal.
    let mut server = Server::with("trap '' XFSZ;", &toml, &["--workers", "2"]);
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    let limit_files = |bytes: &str| {
        let (process, limit) = (format!("--pid={}", server.child.id()), format!("--fsize={bytes}"));
        assert!(Command::new(&prlimit).args([process, limit]).status().unwrap().success());
    };
    limit_files("0:unlimited");
    let said = upgrade(&server, &[]);
    assert!(said.code == Some(1) && said.err.contains("File too large"), "{said:?}");
    let refused = server.control.put("/a", "text/plain", b"1");
    assert!([503, 507].contains(&refused.status), "{refused:?}");
    server.control.get("/-/readyz/publish").refused(503);
    server.control.get("/-/readyz").expect(200);
    limit_files("unlimited:unlimited");
    let id = eventually("it is published again", || {
        let answer = server.control.put("/a", "text/plain", b"1");
        (answer.status == 200).then(|| answer.json()["id"].as_str().unwrap().to_owned())
    });
    assert_eq!(reader.hear().data(), "1");
    server.child.upgrade();
    server.child.signal("KILL");
    assert_eq!(server.child.wait(), Some(128 + 9));
    let again = Server::configured(&toml);
    let value = again.public.get("/a").expect(200);
    assert_eq!((value.text(), value.tag()), ("1", format!("\"{id}\"")));
}

#[test]
fn a_program_that_hangs_is_given_up_for_a_stop() {
    let mut server = Server::of_copy("");
    replace_program(&server, "#!/bin/sh\nexec sleep 60\n");
    server.child.signal("USR2");
    server.child.logged("is started and takes over");
    server.child.signal("TERM");
    server.child.logged("not upgraded, this process goes on: it was given up");
    server.child.stopped();
}

#[test]
fn addresses_come_and_go() {
    let mut server = Server::start();
    server.publish("/a", "0");
    let socket = server.dir.path().join("control");
    let toml = server.dir.path().join("stentor.toml");
    let with = format!("[monitor]\nlisten = ['unix:{}']\n", socket.display());
    fs::write(&toml, &with).unwrap();
    server.child.upgrade();
    let healthy = |socket: &PathBuf| {
        Client::connect_unix(socket).get("/-/healthz").expect(200);
    };
    healthy(&socket);
    // The file of the socket outlives the process that made it.
    server.child.upgrade();
    healthy(&socket);
    // Another one in its place is not the same.
    let other = server.dir.path().join("other");
    fs::write(&toml, with.replace("/control'", "/other'")).unwrap();
    server.child.upgrade();
    healthy(&other);
    eventually("the first is gone", || (!socket.exists()).then_some(()));
    fs::write(&toml, "").unwrap();
    server.child.upgrade();
    eventually("it is gone", || (!other.exists()).then_some(()));
    assert_eq!(server.public.get("/a").text(), "0");
}

/// Of a process on this host, whatever it is in its own container.
fn children(process: u32) -> Vec<u32> {
    let all = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    all.unwrap_or_default().split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Whether a process of this host has that number in its own container.
fn is_process(process: u32, number: u64) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|all| all.split_whitespace().last()) == Some(&number.to_string())
}

fn send(signal: &str, process: u32) {
    let line = format!("kill -{signal} {process}");
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success(), "{line}");
}

/// A server that is process 1 where it is, and that process's number here.
fn first_process() -> Option<(Server, u32)> {
    let unshare = tool("unshare")?;
    let alone = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new(unshare).args(alone).arg("true").output().unwrap();
    if !may.status.success() {
        let why = String::from_utf8_lossy(&may.stderr);
        skip(&format!("there is no new namespace of processes, which takes root: {why}"));
        return None;
    }
    let prelude = format!("exec unshare {} \"$0\" \"$@\";", alone.join(" "));
    let server = Server::with(&prelude, "", &["--workers", "2"]);
    let first = children(server.child.id())[0];
    Some((server, first))
}

#[test]
fn process_1_of_a_container_waits_for_the_end_of_those_that_take_over() {
    let Some((mut server, first)) = first_process() else { return };
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    let mut before = 1;
    for round in 1..=3 {
        let said = upgrade(&server, &[]);
        assert!(said.out.starts_with(&format!("upgraded: process {before} -> ")), "{said:?}");
        let status = server.control.get("/-/status").expect(200).json();
        before = figure(&status, "process");
        server.publish("/a", &round.to_string());
        assert_eq!(reader.hear().data(), round.to_string());
        // There is no chain of them.
        eventually("the one before has ended", || {
            let (children, of) = (children(first), |child: &u32| children(*child));
            (children.len() == 1 && of(&children[0]).is_empty()).then_some(())
        });
    }
    let line = fs::read_to_string(format!("/proc/{first}/cmdline")).unwrap();
    assert!(line.contains("\0parent\0"), "{line:?}");
    let status = fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    assert!(status.contains("Threads:\t1\n"), "{status}");
    let toml = server.dir.path().join("stentor.toml");
    fs::write(&toml, "wrokers = 3\n").unwrap();
    send("HUP", first);
    server.child.logged("not reloaded");
    fs::write(&toml, "").unwrap();
    send("USR2", first);
    eventually("a fourth has taken over", || {
        let status = server.control.get("/-/status").expect(200).json();
        (figure(&status, "upgrades/done") == 4).then_some(())
    });
    drop(reader);
    send("TERM", first);
    server.child.stopped();
    assert!(server.child.err().contains("stopped"), "{}", server.child.err());
}

#[test]
fn process_1_of_a_container_ends_as_the_server_does() {
    let Some((mut server, first)) = first_process() else { return };
    for _ in 0..2 {
        assert_eq!(upgrade(&server, &[]).code, Some(0));
    }
    let status = server.control.get("/-/status").expect(200).json();
    let process = figure(&status, "process");
    eventually("the one before has ended", || {
        let left = children(first);
        (left.len() == 1 && is_process(left[0], process)).then_some(())
    });
    send("KILL", children(first)[0]);
    assert_eq!(server.child.wait(), Some(128 + 9), "{}", server.child.err());
}

/// The supervisor then starts another server, which needs the ports and the store.
#[test]
fn a_server_ends_with_the_first_process_that_waits_for_it() {
    let mut server = Server::lasting("");
    let (first, address) = (server.child.id(), server.public);
    for _ in 0..2 {
        server.child.upgrade();
    }
    eventually("the one before has ended", || (children(first).len() == 1).then_some(()));
    assert_eq!(children(first), [server.child.id()]);
    // It is killed at the end of its parent once that has taken note of it.
    server.child.logged("waits for its end");
    send("KILL", first);
    assert_eq!(server.child.wait(), None, "it was killed");
    assert!(TcpListener::bind(address.0).is_ok(), "the port is still taken");
}

/// As systemd does with `KillMode=control-group`.
#[test]
fn a_stop_that_comes_directly_and_by_the_first_process_drains() {
    let mut server = Server::start();
    let first = server.child.id();
    server.child.upgrade();
    eventually("it waits", || {
        let line = fs::read_to_string(format!("/proc/{first}/cmdline")).unwrap();
        line.contains("\0parent\0").then_some(())
    });
    let mut half = server.publisher();
    half.send("PUT /half HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    server.settled("connections_reading", 1);
    send("TERM", server.child.id());
    send("TERM", first);
    server.child.logged("stopping");
    half.send("lo");
    half.response().expect(201);
    drop(half);
    server.child.stopped();
    assert!(server.child.err().contains("INFO stopped"), "{}", server.child.err());
}

/// Whoever comes to an address that vanishes is answered, or refused; nobody is let in and dropped.
#[test]
fn nobody_is_dropped_at_an_address_that_vanishes() {
    let mut server = Server::start();
    let toml = server.dir.path().join("stentor.toml");
    fs::write(&toml, "[monitor]\nlisten = ['127.0.0.1:0']\n").unwrap();
    server.child.upgrade();
    let monitor = Url(server.child.logged("monitor listener at ").parse().unwrap());
    fs::write(&toml, "").unwrap();
    let answered = AtomicU32::new(0);
    let visit = || {
        let Some(answer) = monitor.try_get("/-/healthz") else { return false };
        answer.expect("an answer").expect(200);
        answered.fetch_add(1, Ordering::Relaxed);
        true
    };
    thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| while visit() {})));
        eventually("some are answered", || (answered.load(Ordering::Relaxed) > 100).then_some(()));
        server.child.upgrade();
    });
}

#[test]
fn no_privilege_is_needed() {
    if !is_root("an upgrade without privileges") {
        return;
    }
    let mut server = Server::of_copy("user = 'nobody'\n");
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    server.child.upgrade();
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().next().unwrap().to_owned()
    };
    assert_ne!(field("Uid:"), "0");
    assert_eq!(
        (field("CapEff:").as_str(), field("NoNewPrivs:").as_str()),
        ("0000000000000000", "1")
    );
    server.publish("/a", "1");
    assert_eq!(reader.hear().data(), "1");
}

/// What whoever started the server had open has a number that may be a connection's.
#[test]
fn what_was_left_open_by_mistake_is_closed() {
    // Other shells have no files above 9.
    let Some(bash) = tool("bash") else { return };
    let leaves_open = "exec 9</dev/null 300</dev/null; exec \"$0\" \"$@\"";
    let prelude = format!("exec {} -c '{leaves_open}' \"$0\" \"$@\";", bash.display());
    let mut server = Server::with(&prelude, "", &["--workers", "2"]);
    let open = |server: &Server| {
        let files = format!("/proc/{}/fd", server.child.id());
        ["9", "300"].map(|number| {
            let file = fs::read_link(Path::new(&files).join(number));
            file.is_ok_and(|file| file == Path::new("/dev/null"))
        })
    };
    assert_eq!(open(&server), [true, true]);
    server.child.upgrade();
    assert_eq!(open(&server), [false, false]);
}

/// Runs `stentor upgrade` for a server.
fn upgrade(server: &Server, args: &[&str]) -> Said {
    let address = format!("http://{}", server.control.0);
    run(&[&["upgrade", "--server", &address], args].concat())
}

#[test]
fn an_upgrade_by_command_says_what_came_of_it() {
    let mut server = Server::of_copy("");
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    let status = |server: &Server| {
        let status = server.control.get("/-/status").expect(200).json();
        assert_eq!(figure(&status, "process"), u64::from(server.child.id()));
        status
    };
    assert_eq!(status(&server)["upgrades"]["last"], serde_json::Value::Null);
    for round in 1..=2 {
        let before = server.child.id();
        let said = upgrade(&server, &[]);
        server.child.taken_over(before);
        let after = server.child.id();
        let sentence = format!("upgraded: process {before} -> {after}, ");
        assert!(said.out.starts_with(&sentence) && said.out.ends_with(" ms\n"), "{said:?}");
        assert_eq!(said.code, Some(0), "{said:?}");
        let now = status(&server);
        assert_eq!(figure(&now, "upgrades/done"), round);
        assert_eq!(figure(&now, "upgrades/last/from_process"), u64::from(before));
        assert!(figure(&now, "upgrades/last/connections") >= 1, "{now:#}");
        server.publish("/a", &round.to_string());
        assert_eq!(reader.hear().data(), round.to_string());
    }
    let program = replace_program(&server, "#!/bin/sh\nexit 3\n");
    let said = upgrade(&server, &[]);
    let reason = "it ended with exit status: 3";
    let sentence = format!("not upgraded, process {} goes on: {reason}\n", server.child.id());
    assert!(said.err.ends_with(&sentence) && said.code == Some(1), "{said:?}");
    assert_eq!(status(&server)["upgrades"]["last_failure"]["reason"], reason);
    fs::rename(server.dir.path().join("good"), &program).unwrap();
    // What failed before is known of by the next process too.
    server.child.upgrade();
    let metrics = server.control.get("/-/metrics").expect(200);
    for line in [
        "stentor_upgrades_total{outcome=\"done\"} 3",
        "stentor_upgrades_total{outcome=\"failed\"} 1",
    ] {
        assert!(metrics.text().lines().any(|other| other == line), "{}", metrics.text());
    }
    let fields = "Accept: text/plain\r\n";
    let text = server.control.ask("GET", "/-/status", fields, b"").expect(200);
    assert!(text.text().contains("\nupgrades.done: 3\n"), "{}", text.text());
    let nobody = run(&["upgrade", "--server", "127.0.0.1:1"]);
    assert!(nobody.err.contains("no answer") && nobody.code == Some(1), "{nobody:?}");
}

#[test]
fn one_upgrade_at_a_time() {
    let mut server = Server::of_copy("");
    let program = replace_program(&server, "#!/bin/sh\nexec sleep 60\n");
    server.control.ask("POST", "/-/upgrade", "", b"").expect(202);
    server.control.ask("POST", "/-/upgrade", "", b"").refused(409);
    let said = upgrade(&server, &[]);
    assert!(said.err.contains("409") && said.code == Some(1), "{said:?}");
    drop(program);
    server.child.logged("is started and takes over");
    server.child.stop();
}

#[test]
fn only_who_operates_the_server_upgrades_or_reloads_it() {
    let toml =
        format!("{}\n[monitor]\nlisten = '127.0.0.1:0'\n", access::config(access::NEVER, ""));
    let mut server = Server::configured(&toml);
    let id = server.child.id();
    let monitor = server.child.logged("monitor listener at ");
    let mut monitor = Client::connect(monitor.parse().unwrap());
    for page in ["/-/upgrade", "/-/reload"] {
        monitor.ask("POST", page, "", b"").refused(405);
        monitor.get(page).refused(404);
        server.public.get(page).refused(404);
        server.public.ask("POST", page, "", b"").refused(401);
        let writer = access::bearer("stentor_writer");
        server.public.ask("POST", page, &writer, b"").refused(405);
        let answer = server.control.get(page).refused(405);
        assert_eq!(answer.field("allow"), Some("OPTIONS, POST"));
        server.control.ask("PUT", page, "", b"x").refused(405);
        for origin in ["Origin: https://shop.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
            server.control.ask("POST", page, origin, b"").refused(403);
        }
    }
    let log = server.child.err();
    assert!(!log.contains("upgrading") && !log.contains("reloaded"), "{log}");
    assert_eq!(server.child.id(), id);
}

#[test]
fn where_operators_need_a_token_an_upgrade_takes_one_that_publishes_everything() {
    let all = "[[token]]\nname = 'operator'\npublish = '/**'\nsha256 = \
               '97f168ad40749c9a9d4d59760ad4bc82ad058b597d6fe745acbc9392f8681415'\n";
    let toml = format!("{}{all}", access::config(access::NEVER, "control_token = true"));
    let dir = TempDir::new();
    let socket = format!("unix:{}", dir.path().join("control").display());
    let mut server = Server::with("", &toml, &["--workers", "2", "--control", &socket]);
    let said = upgrade(&server, &[]);
    assert!(said.err.contains("401") && said.code == Some(1), "{said:?}");
    let with = |operation: &str, token: &str| {
        fs::write(dir.path().join("token"), token).unwrap();
        let file = dir.path().join("token").display().to_string();
        run(&[operation, "--server", &socket, "--token-file", &file])
    };
    let said = with("upgrade", "stentor_writer\n");
    assert!(said.err.contains("The token does not allow to upgrade"), "{said:?}");
    let said = with("reload", "stentor_writer\n");
    assert!(said.err.contains("403 Forbidden: The token does not"), "{said:?}");
    assert_eq!(said.code, Some(1), "{said:?}");
    let said = with("reload", "stentor_operator\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "reloaded\n"), "{said:?}");
    let before = server.child.id();
    let said = with("upgrade", "stentor_operator\n");
    assert!(said.out.starts_with("upgraded: process "), "{said:?}");
    server.child.taken_over(before);
}

#[test]
fn a_port_that_takes_privileges_goes_over_to_a_process_without_any() {
    if !is_root("a port below 1024") {
        return;
    }
    let (address, user) = (low_port().0.to_string(), "user = 'nobody'\n");
    let mut server = Server::of_copy_at(&address, "", user);
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    for value in ["1", "2"] {
        server.child.upgrade();
        expect_unprivileged(server.child.id(), "nobody");
        server.publish("/a", value);
        assert_eq!(reader.hear().data(), value);
        assert_eq!(server.reader().get("/a").expect(200).text(), value);
    }
    // Another one cannot be bound any more, and that is told before anything has happened.
    let monitor = format!("{user}[monitor]\nlisten = ['{}']\n", low_port().0);
    fs::write(server.dir.path().join("stentor.toml"), monitor).unwrap();
    fails_for("ermission", &mut server, &mut reader);
}
