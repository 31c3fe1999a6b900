//! The access log: what is in it, and what becomes of it when it is renamed, or cannot be written.

use crate::support::{Child, Server, TempDir, eventually, is_root, serve};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A server that logs to a file of its own directory, which is in `dir`.
fn logging(dir: &TempDir, rest: &str) -> Server {
    let file = dir.path().join("access.log");
    Server::configured(&format!("[log]\naccess = '{}'\n{rest}", file.display()))
}

/// Waits until a file has so many lines.
#[track_caller]
fn lines(file: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    eventually(&format!("{count} lines"), || (read().lines().count() >= count).then_some(()));
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

#[test]
fn every_answer_is_a_line() {
    let dir = TempDir::new();
    let server = logging(&dir, "access_format = 'json'\n");
    server.control.put("/a?access_token=secret", "text/plain", b"hello").expect(201);
    let mut client = server.reader();
    let get = "GET /a?access_token=secret HTTP/1.1\r\nHost: h\r\nUser-Agent: one\u{1b}\r\n\r\n";
    client.send(get.replace("\u{1b}", "\t\u{e4}"));
    client.response().expect(200);
    let referer = "http://h/?access_token=secret";
    let pipelined = "GET /none HTTP/1.1\r\nHost: h\r\nReferer: REFERER\r\n\r\n\
                     HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(pipelined.replace("REFERER", referer));
    let none_bytes = client.response().refused(404).body.len();
    client.bodyless_response().expect(200);
    let mut poll = server.reader();
    poll.send("GET /later?wait=30 HTTP/1.1\r\nHost: h\r\n\r\n");
    server.settled("readers_long_poll", 1);
    let mut stream = server.reader();
    stream.send("GET /a HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
    server.settled("readers_sse", 1);
    server.control.put("/later", "text/plain", b"now").expect(201);
    poll.response().expect(200);
    let file = dir.path().join("access.log");
    let read = || fs::read_to_string(&file).unwrap();
    eventually("all is there", || read().contains("\"long_poll\"").then_some(()));
    let text = read();
    assert!(!text.contains("secret"), "{text}");
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_public = all.iter().filter(|line| line["listener"] == "public").count();
    assert_eq!(of_public, 5, "a line for each answer: {text}");
    let of = |request: &str, kind: &str, status: u64, body_bytes: u64| {
        let is_it = |line: &&Value| line["request"] == request && line["kind"] == kind;
        let found: Vec<&Value> = all.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{request}, {kind}: {text}");
        let line = found[0].clone();
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["body_bytes"], body_bytes, "{line}");
        assert_eq!(line["address"], "127.0.0.1", "{line}");
        assert!(line["duration_s"].as_f64().is_some_and(|s| s < 30.0), "{line}");
        line
    };
    assert_eq!(of("PUT /a?access_token=*** HTTP/1.1", "publish", 201, 32)["listener"], "control");
    let one = of("GET /a?access_token=*** HTTP/1.1", "value", 200, 5);
    assert_eq!((&one["listener"], &one["user_agent"]), (&"public".into(), &"one\t\u{e4}".into()));
    let none = of("GET /none HTTP/1.1", "value", 404, none_bytes as u64);
    assert_eq!(none["referer"], "http://h/?access_token=***");
    of("HEAD /a HTTP/1.1", "value", 200, 0);
    of("GET /a HTTP/1.1", "stream", 200, 0);
    of("GET /later?wait=30 HTTP/1.1", "long_poll", 200, 3);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_file_that_was_renamed_is_opened_again_and_nothing_is_lost_at_the_end() {
    let dir = TempDir::new();
    let mut server = logging(&dir, "");
    let (file, renamed) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    server.public.get("/first").refused(404);
    assert!(lines(&file, 1)[0].starts_with("127.0.0.1 - - ["));
    fs::rename(&file, &renamed).unwrap();
    server.public.get("/second").refused(404);
    lines(&renamed, 2);
    server.child.signal("USR1");
    server.child.logged("INFO access log opened again: ");
    let bytes = server.public.get("/third").refused(404).body.len();
    let line = format!("\"GET /third HTTP/1.1\" 404 {bytes} \"-\" ");
    assert!(lines(&file, 1)[0].contains(&line));
    // A directory that is gone is no reason to log nowhere.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    server.child.signal("USR1");
    server.child.logged("ERROR the access log ");
    for _ in 0..100 {
        server.public.get("/last").refused(404);
    }
    fs::remove_dir(&file).unwrap();
    server.child.signal("USR1");
    eventually("it is opened again", || file.is_file().then_some(()));
    for _ in 0..100 {
        server.public.get("/end").refused(404);
    }
    server.child.stop();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("/end ")).count(), 100);
}

#[test]
fn a_full_disk_costs_lines_and_is_said_once() {
    let mut server = Server::configured("[log]\naccess = '/dev/full'\n");
    for n in 0..50 {
        server.public.get("/none").refused(404);
        eventually("it is lost and counted", || {
            (server.figure("counters/access_log_dropped") > n).then_some(())
        });
    }
    server.child.logged("ERROR the access log /dev/full cannot be written");
    let said = server.child.err().matches("cannot be written").count();
    assert_eq!(said, 1, "{}", server.child.err());
    let metrics = server.control.get("/-/metrics").expect(200);
    assert!(!metrics.text().contains("\nstentor_access_log_dropped_total 0\n"));
}

/// Somebody reads a line of its standard output, and goes.
#[test]
fn a_pipe_that_nobody_reads_any_more_ends_nothing() {
    let prelude = "p=$(mktemp -u); mkfifo $p; (read line <$p; rm $p) & exec >$p;";
    let toml = "[log]\naccess = 'stdout'\n";
    let mut server = Server::with(prelude, toml, &["--workers", "1"]);
    eventually("the pipe is gone", || {
        server.public.get("/none").refused(404);
        server.child.err().contains("ERROR the access log stdout cannot be written").then_some(())
    });
    server.public.get("/none").refused(404);
    assert!(server.figure("counters/access_log_dropped") > 0);
    server.child.stop();
}

#[test]
fn one_of_so_many_is_logged_and_nothing_by_default() {
    let mut server = Server::configured("[log]\naccess = 'stdout'\naccess_sample = 10\n");
    let mut client = server.reader();
    for _ in 0..1_000 {
        client.get("/none").refused(404);
    }
    server.child.stop();
    let count = server.child.out().lines().count();
    // By chance, once in a million million.
    assert!((30..200).contains(&count), "{count}");
    let mut server = Server::start();
    server.public.get("/none").refused(404);
    server.child.stop();
    assert_eq!(server.child.out(), "");
}

#[test]
fn where_it_cannot_be_written_the_server_does_not_start() {
    let refused = |flags: &[&str], target: &str| {
        let said = Child::spawn(serve(flags).env("STENTOR_LOG_ACCESS", target)).said();
        assert_ne!(said.code, Some(0));
        said.err
    };
    let said = refused(&[], "/nowhere/access.log");
    assert!(
        said.contains("the access log /nowhere/access.log cannot be opened: No such"),
        "{said}"
    );
    assert!(refused(&[], "acess.log").contains("is no place for an access log"));
    if is_root("becoming another user") {
        let dir = TempDir::new();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("access.log");
        let said = refused(&["--user", "nobody"], file.to_str().unwrap());
        assert!(said.contains("runs as user 'nobody', who must be able to write"), "{said}");
        assert!(!file.exists());
    }
}

/// As the user that the server has become.
#[test]
fn a_user_without_privileges_opens_it_and_opens_it_again() {
    if !is_root("becoming another user") {
        return;
    }
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = dir.path().join("access.log");
    let toml = format!("user = 'nobody'\n[log]\naccess = '{}'\n", file.display());
    let mut server = Server::configured(&toml);
    fs::rename(&file, dir.path().join("access.log.1")).unwrap();
    server.child.signal("USR1");
    server.child.logged("INFO access log opened again: ");
    server.public.get("/none").refused(404);
    lines(&file, 1);
}
