//! A server that is handed over to another process, with everything that is open.

mod failures;

use crate::privileges::{expect_unprivileged, is_root, low_port};
use crate::support::{
    Client, EventStream, Heard, Reader, Server, TempDir, Way, WebSocket, eventually, masked,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const WAYS: [Way; 6] =
    [Way::Events, Way::ManyEvents, Way::WebSocket, Way::Deflated, Way::Subscribed, Way::Polls];

#[test]
fn whatever_is_open_goes_over_and_nobody_notices() {
    let mut server = Server::configured("topics = [{ match = '/**', history = 100 }]\n");
    server.publish("/a", "0");
    server.publish("/gone", "x");
    server.control.ask("DELETE", "/gone", "", b"").expect(204);
    let mut readers: Vec<Reader> =
        WAYS.map(|way| Reader::open(way, server.public, "/a", "", "")).into();
    for reader in &mut readers {
        assert_eq!(reader.hear().data(), "0");
    }
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
    // Their numbers go on.
    assert!(server.figure("counters/accepted") >= accepted);
    assert!(server.figure("messages_published") >= 9);
    server.child.signal("TERM");
    server.child.wait();
    assert!(server.child.err().contains("stopped"), "{}", server.child.err());
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

/// Publishes with many requests under way while the server is handed over again and again: every
/// reader hears everything once, in order, and every answer comes.
fn publish_through_upgrades(toml: &str) -> Server {
    const COUNT: u32 = 3_000;
    let mut server = Server::configured(toml);
    let mut readers: Vec<Reader> =
        WAYS.map(|way| Reader::open(way, server.public, "/n", "", "")).into();
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
    publisher.join().unwrap();
    answers.join().unwrap();
    for reader in &mut readers {
        for n in 0..COUNT {
            match (reader.way, reader.hear()) {
                // It takes what is newest, and says so.
                (Way::Polls, Heard::Message { data, .. }) if data == "2999" => break,
                (Way::Polls, _) => {}
                (_, heard) => assert_eq!(heard.data(), n.to_string(), "{:?}", reader.way),
            }
        }
    }
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
    server.child.signal("KILL");
    server.child.wait();
    let again = Server::configured(&toml);
    let value = again.public.get("/n").expect(200);
    assert_eq!((value.tag(), value.text()), (last, "2999"));
    assert_eq!(again.public.get("/m").text(), "kept");
}

/// Puts something else in the place of the server's program.
fn replace_program(server: &Server, text: &str) -> PathBuf {
    let program = server.dir.path().join("stentor");
    fs::rename(&program, server.dir.path().join("good")).unwrap();
    replace_by(&program, text);
    program
}

fn replace_by(program: &Path, text: &str) {
    fs::write(program, text).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Has an upgrade fail for a reason, and sees that nothing is lost by it.
#[track_caller]
fn fails_for(reason: &str, server: &mut Server, reader: &mut Reader) {
    let (id, tries) = (server.child.id(), server.child.err().matches("not upgraded").count());
    server.child.signal("USR2");
    let line = eventually(&format!("it is not upgraded: {reason}"), || {
        let log = server.child.err();
        let line = log.lines().filter(|line| line.contains("not upgraded")).nth(tries)?;
        Some(line.to_owned())
    });
    assert!(line.contains(reason), "{line}");
    let value = format!("try {tries}");
    server.publish("/a", &value);
    assert_eq!(reader.hear().data(), value);
    assert_eq!(server.reader().get("/a").expect(200).text(), value);
    assert_eq!((server.child.id(), server.child.is_running()), (id, true));
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
    replace_by(&program, "#!/bin/sh\nulimit -n 100\nexec \"${0%stentor}good\" \"$@\"\n");
    fails_for("a worker", &mut server, &mut reader);
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
    let toml = format!("[store]\npath = '{}'\n", data.path().join("data").display());
    let mut server = Server::of_copy(&toml);
    server.publish("/a", "0");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    assert_eq!(reader.hear().data(), "0");
    let program =
        replace_program(&server, "#!/bin/sh\nulimit -f 0\nexec \"${0%stentor}good\" \"$@\"\n");
    for _ in 0..2 {
        fails_for("", &mut server, &mut reader);
    }
    fs::rename(server.dir.path().join("good"), &program).unwrap();
    server.child.upgrade();
    let id = server.publish("/a", "last");
    server.child.signal("KILL");
    server.child.wait();
    let again = Server::configured(&toml);
    let value = again.public.get("/a").expect(200);
    assert_eq!((value.text(), value.tag()), ("last", format!("\"{id}\"")));
}

#[test]
fn a_program_that_hangs_is_given_up_for_a_stop() {
    let mut server = Server::of_copy("");
    replace_program(&server, "#!/bin/sh\nexec sleep 60\n");
    server.child.signal("USR2");
    server.child.logged("is started and takes over");
    server.child.signal("TERM");
    server.child.logged("not upgraded, this process goes on: it was given up");
    assert_eq!(server.child.wait(), Some(0), "{}", server.child.err());
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
    fs::write(&toml, "").unwrap();
    server.child.upgrade();
    eventually("it is gone", || (!socket.exists()).then_some(()));
    assert_eq!(server.public.get("/a").text(), "0");
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
