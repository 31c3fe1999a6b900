//! Running out of places and of files: those inside do not notice, those outside wait, nobody
//! spins, and control is answered.

use crate::support::{Client, Ending, Server, Site, eventually, figure};
use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const REQUEST: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// Half of the files a process may have: beneath a few hundred, so many connections it holds.
const PLACES: usize = 32;

/// A server whose only public worker has few places, all of them taken; its clients; those that
/// wait in the queue; and a connection to the control listener from before.
fn full_server(toml: &str) -> (Server, Client, Vec<Client>, Vec<Client>) {
    let server = Server::with("ulimit -n 64;", toml, &["--workers", "1"]);
    let mut control = server.publisher();
    control.ask("PUT", "/a", "", b"hello").expect(201);
    let mut clients = Vec::new();
    let pauses_before = pauses(&mut control);
    while pauses(&mut control) == pauses_before {
        assert!(clients.len() < 1_000, "the limit is not reached");
        let mut client = server.reader();
        client.send(REQUEST);
        clients.push(client);
    }
    let inside = figure(&status(&mut control), "counters/connections_public") as usize;
    assert_eq!(inside, PLACES, "of {}", clients.len());
    let mut outside = clients.split_off(inside);
    for client in &mut clients {
        assert_eq!(client.response().expect(200).text(), "hello");
    }
    for _ in 0..20 {
        let mut client = server.reader();
        client.send(REQUEST);
        outside.push(client);
    }
    (server, control, clients, outside)
}

fn status(control: &mut Client) -> serde_json::Value {
    control.get("/-/status").expect(200).json()
}

fn pauses(control: &mut Client) -> u64 {
    figure(&status(control), "counters/accept_pauses")
}

/// Processor time the process has used so far, in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The command in parentheses may have spaces; utime and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    ticks.sum::<u64>() * 10
}

#[test]
fn those_inside_do_not_notice() {
    let (server, mut control, mut inside, _outside) = full_server("");
    for _ in 0..20 {
        for client in &mut inside {
            client.send(REQUEST);
        }
        for client in &mut inside {
            assert_eq!(client.response().expect(200).text(), "hello");
        }
    }
    control.ask("PUT", "/a", "", b"again").expect(200);
    assert_eq!(inside[0].get("/a").text(), "again");
    drop(server);
}

#[test]
fn control_is_answered_and_files_are_served_when_all_places_are_taken() {
    let site = Site::of(&[("a.txt", b"from the disk")]);
    let (server, _control, mut inside, _outside) =
        full_server(&site.toml("[files]\ncache_bytes_max = 0\n"));
    for client in &mut inside {
        assert_eq!(client.get("/a.txt").expect(200).text(), "from the disk");
    }
    for n in 0..20 {
        let mut publisher = server.publisher();
        publisher.ask("PUT", &format!("/n/{n}"), "", b"new").expect(201);
        publisher.get("/-/readyz").expect(200);
        assert_eq!(inside[0].get(&format!("/n/{n}")).expect(200).text(), "new");
    }
}

/// Pages and files have parameters of their own: only a topic with a value has cursors.
#[test]
fn a_file_keeps_its_parameters() {
    let site = Site::of(&[("a.txt", b"from the disk")]);
    let server = Server::with("", &site.toml(""), &[]);
    for query in ["since=2020", "since=earliest", "last_event_id=x", "xsince=1"] {
        let answer = server.public.get(&format!("/a.txt?{query}"));
        assert_eq!(answer.expect(200).text(), "from the disk", "{query}");
    }
    let id = server.publish("/live", "now");
    assert_eq!(server.public.get(&format!("/live?since={id}")).status, 204);
    assert_eq!(server.public.get(&format!("/live?lastEventId={id}")).status, 204);
    assert_eq!(server.public.get("/live?mode=dark&xsince=1").expect(200).text(), "now");
}

#[test]
fn those_beyond_the_ceiling_cost_nothing() {
    let (server, mut control, _inside, _outside) = full_server("");
    let (pauses_before, cpu_before) = (pauses(&mut control), cpu_ms(server.child.id()));
    let begin = Instant::now();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(pauses(&mut control), pauses_before, "nothing has become free");
    let used = cpu_ms(server.child.id()) - cpu_before;
    assert!(used <= begin.elapsed().as_millis() as u64 / 20, "{used} ms of processor");
}

#[test]
fn a_ceiling_is_shared_by_the_workers() {
    let toml = "limits.connections_max = 9\n";
    let server = Server::with("", toml, &["--workers", "2"]);
    let mut clients: Vec<Client> = (0..60).map(|_| server.reader()).collect();
    for client in &mut clients {
        client.send(REQUEST);
    }
    // Five each, whichever the kernel gave them to.
    server.settled("connections_public", 10);
    let waiting = |server: &Server| server.figure("counters/accepted");
    let before = waiting(&server);
    clients.clear();
    server.settled("connections_public", 0);
    assert!(waiting(&server) > before, "those that waited came in, if only to go");
}

#[test]
fn one_address_has_so_many_connections_and_no_more() {
    let toml = "limits.connections_per_address = 3\n";
    let mut server = Server::configured(toml);
    let mut inside: Vec<Client> = (0..3).map(|_| server.reader()).collect();
    for client in &mut inside {
        client.get("/a").refused(404);
    }
    let mut outside = server.reader();
    outside.send(REQUEST);
    let refused = outside.response().refused(429);
    assert_eq!(refused.code(), "address_limit");
    let wait_s = refused.field("retry-after").and_then(|seconds| seconds.parse().ok());
    assert!(wait_s.is_some_and(|wait_s: u64| (5..15).contains(&wait_s)), "{wait_s:?}");
    assert_eq!(outside.ending(), Ending::Closed);
    assert_eq!(server.figure("counters/connections_refused"), 1);
    let said = server.child.logged("127.0.0.1 has as many connections");
    assert!(said.contains("limits.connections_per_address"), "{said}");
    drop(inside.pop());
    eventually("there is a place again", || (server.public.get("/a").status == 404).then_some(()));
}

/// Control has no ceiling but its files.
#[test]
fn a_server_without_files_does_not_spin() {
    let server = Server::with("ulimit -n 64;", "", &["--workers", "1"]);
    let mut control = server.publisher();
    let pauses_before = pauses(&mut control);
    let mut crowd = Vec::new();
    while pauses(&mut control) == pauses_before {
        assert!(crowd.len() < 1_000, "the limit is not reached");
        crowd.push(server.publisher());
        crowd.iter_mut().for_each(|client| client.send(REQUEST));
    }
    // Some who wait.
    crowd.extend((0..20).map(|_| server.publisher()));
    crowd.iter_mut().for_each(|client| client.send(REQUEST));
    let (pauses_before, cpu_before) = (pauses(&mut control), cpu_ms(server.child.id()));
    let begin = Instant::now();
    thread::sleep(Duration::from_millis(500));
    let tried = pauses(&mut control) - pauses_before;
    let used = cpu_ms(server.child.id()) - cpu_before;
    let elapsed = begin.elapsed().as_millis() as u64;
    assert!(tried > 0, "it tries again now and then");
    assert!(tried <= elapsed / 25 + 2, "{tried} times in {elapsed} ms");
    assert!(used <= elapsed / 5, "{used} ms of processor in {elapsed} ms");
}

#[test]
fn accepting_resumes_when_files_are_freed() {
    let (server, mut control, mut inside, mut outside) = full_server("");
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        drop(inside.pop());
        let begin = Instant::now();
        let mut next = outside.remove(0);
        assert_eq!(next.response().expect(200).text(), "hello");
        fastest = fastest.min(begin.elapsed());
        inside.push(next);
    }
    // The promise, which a machine that does other things too keeps once in ten times at least.
    assert!(fastest <= Duration::from_millis(100), "{fastest:?}");
    // When there are files for all, all come in.
    inside.drain(..15);
    drop(outside.drain(5..));
    for client in &mut outside {
        assert_eq!(client.response().expect(200).text(), "hello");
    }
    // Those who have gone are closed by then.
    server.settled("connections_public", (inside.len() + outside.len()) as u64);
    let paused = pauses(&mut control);
    assert_eq!(server.public.get("/a").text(), "hello");
    assert_eq!(pauses(&mut control), paused);
}

#[test]
fn those_that_gave_up_waiting_cost_nothing() {
    let (server, mut control, mut inside, outside) = full_server("");
    drop(outside);
    inside.truncate(5);
    eventually("only those inside are left", || {
        let open = figure(&status(&mut control), "counters/connections_public");
        (open == 5).then_some(())
    });
    assert_eq!(server.public.get("/a").text(), "hello");
    // Connections that were cut by their clients are no reason to stop accepting.
    for _ in 0..200 {
        drop(TcpStream::connect(server.public.0).unwrap());
    }
    assert_eq!(server.public.get("/a").text(), "hello");
}
