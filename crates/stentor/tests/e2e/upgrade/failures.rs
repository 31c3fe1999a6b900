//! Upgrades that fail, by counted steps: at each message that the two processes exchange.
//!
//! `python/between.py` stands between them and passes on what they say until a step of it. So
//! nothing here depends on how long anything takes.
//!
//! What happens, and what shows it:
//!
//! - the program is missing, or ends at once:
//!   `a_program_that_does_not_take_over_changes_nothing`
//! - its settings are wrong:
//!   the same, `what_is_wrong_with_the_settings_is_told_in_one_line`
//! - it has too few files:
//!   the same
//! - it is killed, before each message of the two:
//!   `wherever_the_next_process_is_killed_nothing_is_lost`
//! - likewise, with a store:
//!   `wherever_the_next_process_is_killed_a_store_goes_on`
//! - it cannot write to the store:
//!   `a_store_that_the_next_process_cannot_write_to_is_gone_on_with`
//! - it hangs, or closes the channel and stays:
//!   `a_process_that_hangs_while_all_stand_still_is_given_up`
//! - more is to be handed over in the pause than may be:
//!   `too_large_a_pause_changes_nothing`
//! - it refuses once everything was taken over:
//!   `a_release_that_speaks_otherwise_is_refused…`
//! - it is killed once it serves:
//!   `a_process_that_is_killed_once_it_serves_is_a_crash…`
//! - the process before is killed:
//!   `wherever_the_process_before_is_killed_the_next_one_ends`
//! - a worker of that panics while all stand still:
//!   `a_worker_that_panicked_while_it_stood_still_goes_on`
//! - SIGTERM meanwhile:
//!   `a_program_that_hangs_is_given_up_for_a_stop`, `a_stop_in_the_last_moment…`
//! - SIGHUP or another SIGUSR2 meanwhile:
//!   `what_is_asked_for_during_an_upgrade_is_done_behind_it`
//! - the supervisor ends the process before:
//!   `a_supervisor_knows_the_next_process_before…`
//! - the same, and waits for its child alone:
//!   `the_next_process_is_a_child_of_the_supervisor…`
//! - a reader stalls within a message:
//!   `a_reader_that_stalls_within_a_message_gets_the_rest…`

use super::{fails, fails_for, replace_program};
use crate::support::{
    Client, PATIENCE, Reader, Server, TempDir, Way, between, eventually, free_address,
    write_program,
};
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// What the processes say, in the order in which it is first said, but for what only comes if there
/// is something to tell: without that, and without a store, `w-end` is taken for it.
const STEPS: [&str; 16] = [
    "hello",
    "state",
    "ready",
    "snapshot",
    "copied",
    "entries",
    "w-numbers",
    "w-mark",
    "w-changed",
    "w-listener",
    "w-set",
    "store",
    "counters",
    "stands-still",
    "w-packed",
    "w-end",
];

/// A server whose upgrades go by `python/between.py`.
struct Hindered {
    server: Server,
    between: String,
    program: PathBuf,
}

impl Hindered {
    fn new(toml: &str) -> Option<Hindered> {
        Hindered::behind("", toml)
    }

    /// Behind some shell.
    fn behind(prelude: &str, toml: &str) -> Option<Hindered> {
        let between = between()?;
        // The kernel gives this port to no other test.
        let server = Server::of_copy_at(&free_address().to_string(), prelude, toml);
        let program = replace_program(&server, "");
        Some(Hindered { server, between, program })
    }

    /// From now on this is done at that step of an upgrade.
    fn hinder(&self, step: &str, deed: &str) {
        let Hindered { between, program, .. } = self;
        let good = "\"${0%stentor}good\"";
        // A script that is being read is not to be written to.
        fs::remove_file(program).unwrap();
        write_program(program, &format!("#!/bin/sh\nexec {between} {step} {deed} {good} \"$@\"\n"));
    }

    /// Nothing is in the way any more.
    fn clear(&mut self) {
        fs::rename(self.server.dir.path().join("good"), &self.program).unwrap();
    }
}

/// Publishes 0, 1, 2, … to `/n` one by one, each on a connection of its own, until it is told to
/// stop; then it returns how many there were.
fn publish_on(server: &Server) -> (Arc<AtomicBool>, JoinHandle<u32>) {
    let (ends, address) = (Arc::new(AtomicBool::new(false)), server.control.0);
    let is_over = Arc::clone(&ends);
    let publisher = thread::spawn(move || {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let body = count.to_string();
            let mut client = Client::connect(address);
            let answer = client.ask("PUT", "/n", "Content-Type: text/plain\r\n", body.as_bytes());
            answer.expect_one_of(&[200, 201]);
            count += 1;
        }
        count
    });
    (ends, publisher)
}

const LONG_HISTORY: &str = "topics = [{ match = '/**', history = 100_000 }]\n";

/// Has the next process killed at each step, while much is published and read.
fn kill_at_each_step(toml: &str) {
    // Readers that poll say nothing before the last step.
    let limits = "[limits]\nhead_timeout = '5m'\nkeep_alive_timeout = '5m'\n";
    let Some(mut hindered) = Hindered::new(&format!("{toml}{limits}")) else { return };
    let public = hindered.server.public;
    hindered.server.publish("/n", "first");
    let mut readers = Reader::of_all_ways(public, "/n", "first");
    let mut watcher = Reader::open(Way::Events, public, "/a", "", "");
    let (ends, publisher) = publish_on(&hindered.server);
    for step in STEPS {
        hindered.hinder(step, "kill");
        let mut half = hindered.server.publisher();
        half.send("PUT /half HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        let reason = fails(&mut hindered.server, &mut watcher);
        // A worker may notice it first, and one that has not connected yet is refused.
        let worker = ["Broken pipe", "Connection reset by peer", "Connection refused"];
        let is_of_worker = worker.iter().any(|end| reason.contains(&format!("a worker: {end}")));
        assert!(is_of_worker || reason.contains("it ended"), "{step}: {reason}");
        half.send("lo");
        half.response().expect_one_of(&[200, 201]);
    }
    hindered.hinder("hello", "list");
    hindered.server.child.signal("USR2");
    hindered.server.child.logged("INFO process ");
    hindered.server.child.went_over_to(hindered.server.figure("process") as u32);
    let log = hindered.server.child.err();
    let said: Vec<_> = log.lines().filter_map(|line| line.split_once("between: said ")).collect();
    for (_, step) in said {
        assert!(STEPS.contains(&step) || step == "gone-on", "no process is killed before {step}");
    }
    ends.store(true, Ordering::Relaxed);
    let count = publisher.join().unwrap();
    readers.iter_mut().for_each(|reader| reader.hear_numbers(count));
}

#[test]
fn wherever_the_next_process_is_killed_nothing_is_lost() {
    kill_at_each_step(LONG_HISTORY);
}

#[test]
fn wherever_the_next_process_is_killed_a_store_goes_on() {
    let data = TempDir::new();
    let path = data.path().join("data");
    kill_at_each_step(&format!("{LONG_HISTORY}[store]\npath = '{}'\n", path.display()));
}

#[test]
fn wherever_the_process_before_is_killed_the_next_one_ends() {
    for step in STEPS {
        let Some(mut hindered) = Hindered::new("") else { return };
        let _reader = Reader::open(Way::Events, hindered.server.public, "/a", "", "");
        hindered.hinder(step, "kill-first");
        let server = &mut hindered.server;
        server.child.signal("USR2");
        let is_free = eventually("the next process ends or takes over", || {
            let has_taken_over = server.child.err().contains("taken over: the server stood still");
            let is_free = TcpListener::bind(server.public.0).is_ok();
            (is_free || has_taken_over).then_some(is_free)
        });
        // The next process may continue if it had all state before the kill.
        let may_go_on =
            !["hello", "ready", "snapshot", "copied", "w-numbers", "w-mark"].contains(&step);
        if !is_free {
            assert!(may_go_on, "{step}: {}", server.child.err());
            server.child.went_over_to(server.figure("process") as u32);
            server.publish("/a", "new");
        }
    }
}

#[test]
fn a_process_that_is_killed_once_it_serves_is_a_crash_that_a_store_outlives() {
    let data = TempDir::new();
    let toml = format!("[store]\npath = '{}'\n", data.path().join("data").display());
    let Some(mut hindered) = Hindered::new(&toml) else { return };
    let id = hindered.server.publish("/a", "kept");
    hindered.hinder("gone-on", "kill");
    hindered.server.child.signal("USR2");
    assert_eq!(hindered.server.child.wait(), Some(128 + 9));
    let log = hindered.server.child.err();
    assert!(log.contains("has not said that it goes on"), "{log}");
    let again = Server::configured(&toml);
    let value = again.public.get("/a").expect(200);
    assert_eq!((value.text(), value.tag()), ("kept", format!("\"{id}\"")));
}

#[test]
fn a_supervisor_knows_the_next_process_before_the_one_before_may_end() {
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let prelude = format!("export NOTIFY_SOCKET='{}';", path.display());
    let Some(mut hindered) = Hindered::behind(&prelude, "") else { return };
    let told = || {
        let mut bytes = [0; 1_000];
        let mut texts = Vec::new();
        while let Ok(length) = socket.recv(&mut bytes) {
            texts.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        texts.concat()
    };
    hindered.hinder("w-end", "kill");
    let mut reader = Reader::open(Way::Events, hindered.server.public, "/a", "", "");
    fails_for("", &mut hindered.server, &mut reader);
    let before = told();
    assert!(before.contains("READY=1") && !before.contains("MAINPID="), "{before}");
    // That it goes on is never heard.
    hindered.hinder("gone-on", "kill");
    hindered.server.child.signal("USR2");
    hindered.server.child.stopped();
    let next = told();
    let (number, log) = (next.strip_prefix("MAINPID="), hindered.server.child.err());
    let number = number.and_then(|rest| rest.split('\n').next()?.parse::<u32>().ok());
    assert!(number.is_some_and(|id| id != hindered.server.child.id()), "{next} {log}");
    assert!(next.contains("READY=1"), "{next}");
}

/// Else systemd takes it for an alien, and does not wait for its end.
#[test]
fn the_next_process_is_a_child_of_the_supervisor_when_that_is_told_of_it() {
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let prelude = format!("export NOTIFY_SOCKET='{}';", path.display());
    let Some(mut hindered) = Hindered::behind(&prelude, "") else { return };
    let first = hindered.server.child.id();
    // The process before cannot end yet.
    hindered.hinder("gone-on", "wait");
    hindered.server.child.signal("USR2");
    let next = loop {
        let mut bytes = [0; 1_000];
        let length = socket.recv(&mut bytes).expect("it says who it is");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if let Some(rest) = text.strip_prefix("MAINPID=") {
            break rest.lines().next().unwrap().parse::<u32>().unwrap();
        }
    };
    let parents = parents_of(next);
    assert!(Path::new(&format!("/proc/{first}/exe")).exists(), "it has ended too early");
    assert!(!parents.contains(&first), "{next} behind {parents:?}");
    hindered.server.child.went_over_to(next);
    hindered.server.child.logged("this one ends");
    hindered.server.child.stop();
}

/// The parent of a process, the parent of that, and so on.
fn parents_of(mut process: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    while process > 1 {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
        process = line.trim().parse().unwrap();
        parents.push(process);
    }
    parents
}

#[test]
fn a_process_that_hangs_while_all_stand_still_is_given_up() {
    let short = "export STENTOR_UPGRADE_PAUSE_MAX=2s;";
    let Some(mut hindered) = Hindered::behind(short, LONG_HISTORY) else { return };
    let mut reader = Reader::open(Way::Events, hindered.server.public, "/a", "", "");
    let (ends, publisher) = publish_on(&hindered.server);
    hindered.hinder("w-end", "hang");
    let reason = fails(&mut hindered.server, &mut reader);
    for part in ["it said nothing for too long: no request was", " more than upgrade.pause_max, "] {
        assert!(reason.contains(part), "{reason}");
    }
    // One that says no more, and does not end either.
    hindered.hinder("stands-still", "fall-silent");
    fails_for("it ended with signal: 9", &mut hindered.server, &mut reader);
    ends.store(true, Ordering::Relaxed);
    publisher.join().unwrap();
}

#[test]
fn too_large_a_pause_changes_nothing() {
    let mut server = Server::configured("[upgrade]\nbytes_max = '1 KiB'\n");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    fails_for("KiB more than upgrade.bytes_max; raise it, or", &mut server, &mut reader);
    fs::write(server.dir.path().join("stentor.toml"), "").unwrap();
    server.child.signal("HUP");
    server.child.logged("INFO reloaded");
    server.child.upgrade();
    server.publish("/a", "new");
    assert_eq!(reader.hear().data(), "new");
}

#[test]
fn a_stop_in_the_last_moment_is_not_forgotten() {
    let Some(mut hindered) = Hindered::new("") else { return };
    let address = hindered.server.public;
    hindered.hinder("w-end", "stop-first");
    hindered.server.child.signal("USR2");
    let next = hindered.server.child.logged("INFO process ");
    // The next process is stopped, and the port is free once all its threads have ended.
    hindered.server.child.went_over_to(next.split(' ').next().unwrap().parse().unwrap());
    hindered.server.child.stopped();
    assert!(TcpListener::bind(address.0).is_ok(), "the port is still taken");
}

#[test]
fn what_is_asked_for_during_an_upgrade_is_done_behind_it() {
    let Some(mut hindered) = Hindered::new("") else { return };
    hindered.hinder("ready", "hang");
    hindered.server.child.signal("USR2");
    hindered.server.child.logged("between: ready hang");
    hindered.clear();
    let toml = hindered.server.dir.path().join("stentor.toml");
    fs::write(&toml, "server_header = false\n").unwrap();
    hindered.server.child.signal("HUP");
    hindered.server.child.signal("USR2");
    hindered.server.publish("/a", "0");
    let field = |server: &Server| {
        let value = server.public.get("/a").expect(200);
        value.field("server").map(str::to_owned)
    };
    assert!(field(&hindered.server).is_some());
    hindered.server.child.logged("it said nothing for too long");
    hindered.server.child.logged("INFO reloaded");
    let next = hindered.server.child.logged("INFO process ");
    hindered.server.child.went_over_to(next.split(' ').next().unwrap().parse().unwrap());
    assert_eq!(field(&hindered.server), None);
}

#[test]
fn what_is_wrong_with_the_settings_is_told_in_one_line() {
    let mut server = Server::start();
    fs::write(server.dir.path().join("stentor.toml"), "wrokers = 3\n").unwrap();
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    fails_for("unknown key 'wrokers'", &mut server, &mut reader);
    // The next process shows where that is, this one does not.
    assert_eq!(server.child.err().matches("wrokers = …").count(), 1, "{}", server.child.err());
}

/// What the processes hand over has a form, and one has to know that of the other.
#[test]
fn a_release_that_speaks_otherwise_is_refused_before_anything_has_happened() {
    let Some(mut hindered) = Hindered::new("") else { return };
    let mut reader = Reader::open(Way::Events, hindered.server.public, "/a", "", "");
    hindered.hinder("hello", "form=7");
    fails_for("in another form than the one it started", &mut hindered.server, &mut reader);
    // One that says it is of the same form, and is not, is refused at last.
    hindered.hinder("w-packed", "version=0");
    let reason = "The worker was packed in another version of the format.";
    fails_for(reason, &mut hindered.server, &mut reader);
    hindered.clear();
    hindered.server.child.upgrade();
    hindered.server.publish("/a", "new");
    assert_eq!(reader.hear().data(), "new");
}
