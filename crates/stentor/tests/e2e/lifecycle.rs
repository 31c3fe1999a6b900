//! The graceful stop and the reload, by signals.

use crate::support::{Child, Client, Ending, EventStream, PATIENCE, Server, eventually, run};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_stop_answers_what_was_asked() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start();
        server.control.put("/a", "text/plain", b"hello").expect(201);
        let mut idle = server.reader();
        idle.get("/a").expect(200);
        let mut uploading = server.publisher();
        uploading.send("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        let mut asking = server.reader();
        asking.send("GET /a HTTP/1.1\r\nHost: a\r\n");
        eventually("both requests have begun", || {
            (server.figure("counters/connections_reading") >= 2).then_some(())
        });
        server.child.signal(signal);
        server.child.logged("stopping");
        // Nothing is owed to a connection that waits; its end shows that the stop has begun.
        assert_eq!(idle.ending(), Ending::Closed);
        uploading.send("lo");
        let response = uploading.response().expect(201);
        assert_eq!(response.field("connection"), Some("close"));
        asking.send("\r\n");
        let response = asking.response().expect(200);
        assert_eq!((response.text(), response.field("connection")), ("hello", Some("close")));
        assert_eq!(asking.ending(), Ending::Closed);
        // A server that has ended a connection waits two seconds for its client to do so.
        drop((idle, uploading, asking));
        server.child.stopped();
        assert!(TcpStream::connect(server.public.0).is_err());
    }
}

#[test]
fn a_stop_ends_a_pipeline_between_two_answers_and_says_so() {
    let mut server = Server::start();
    server.control.put("/a", "text/plain", &[b'x'; 100_000]).expect(201);
    let mut client = server.reader();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200));
    // Far more than the kernel buffers: most of it is still to come when the signal does.
    client.response().expect(200);
    server.child.signal("TERM");
    server.child.logged("stopping");
    let mut answered = 1;
    let mut told = false;
    let ending = loop {
        match client.try_response() {
            Ok(response) => {
                assert!(!told, "an answer after the one that was to be the last");
                told = response.field("connection") == Some("close");
                assert_eq!(response.expect(200).body.len(), 100_000);
                answered += 1;
            }
            Err(ending) => break ending,
        }
    };
    assert_eq!(ending, Ending::Closed, "after {answered}");
    // Either all were answered, or a client knows what to ask again.
    assert!(told || answered == 200, "{answered}");
    drop(client);
    server.child.stopped();
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut server = Server::configured("drain = '1s'\n");
    server.control.put("/a", "text/plain", &vec![b'x'; 1_000_000]).expect(201);
    let mut half = server.publisher();
    half.send("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    let mut deaf = server.reader();
    deaf.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50));
    eventually("the request has begun", || {
        let busy = server.figure("counters/connections_reading") >= 1
            && server.figure("counters/connections_writing") >= 1;
        busy.then_some(())
    });
    let begin = Instant::now();
    server.child.stop();
    assert!(begin.elapsed() >= Duration::from_millis(900), "it waited");
    assert!(begin.elapsed() < PATIENCE / 2, "it did not wait for the clients");
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Server::configured("drain = '1h'\n");
    let mut half = server.publisher();
    half.send("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    eventually("the request has begun", || {
        (server.figure("counters/connections_reading") >= 1).then_some(())
    });
    server.child.signal("TERM");
    server.child.logged("stopping");
    // One that follows at once is the same stop: `timeout` sends two.
    server.child.signal("TERM");
    assert!(server.child.is_running());
    eventually("a later one ends it", || {
        let has_ended = !server.child.is_running();
        if !has_ended {
            server.child.signal("TERM");
        }
        has_ended.then_some(())
    });
    assert_eq!(server.child.wait(), Some(1));
}

#[test]
fn signals_that_others_send_do_not_kill() {
    let mut server = Server::start();
    server.child.signal("USR1");
    server.child.logged("SIGUSR1 is ignored");
    server.public.get("/-/nothing").refused(404);
    // Nor while it stops.
    let mut half = server.publisher();
    half.send("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    server.settled("connections_reading", 1);
    server.child.signal("TERM");
    server.child.logged("stopping");
    let count = log_count(&server.child, "SIGUSR1");
    server.child.signal("USR2");
    server.child.signal("USR1");
    eventually("it is noted", || (log_count(&server.child, "SIGUSR1") > count).then_some(()));
    half.send("lo");
    half.response().expect(201);
    drop(half);
    server.child.stopped();
}

/// The outcome of a request on a new connection.
#[derive(PartialEq, Eq, Debug)]
enum Visit {
    Answered,
    /// No connection was made.
    Refused,
    /// There was no answer, but this thread did not run between its connection and its request.
    Late,
    /// The request was sent at once and not answered.
    Lost(String),
}

fn visit(address: SocketAddr) -> Visit {
    let begin = Instant::now();
    let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return Visit::Refused;
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let is_late = begin.elapsed() > Duration::from_millis(150);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    match answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"hello") {
        true => Visit::Answered,
        false if is_late && answer.is_empty() => Visit::Late,
        false => {
            let answer = String::from_utf8_lossy(&answer);
            Visit::Lost(format!("sent: {sent:?}, read: {read:?}, answer: {answer:?}"))
        }
    }
}

#[test]
fn no_connection_in_the_queue_is_lost() {
    // A round in which a client was late does not count. Only an overloaded machine has many.
    let judged = (0..15).filter(|&round| is_none_lost(round)).take(5).count();
    assert!(judged > 0, "in every round a visitor was late");
}

/// Stops a server amid visits, at another place in each round. Whether no visitor was late.
fn is_none_lost(round: u32) -> bool {
    let mut server = Server::start();
    server.control.put("/a", "text/plain", b"hello").expect(201);
    let (answered, is_told) = (AtomicU32::new(0), AtomicBool::new(false));
    let address = server.public.0;
    let visits = || loop {
        match visit(address) {
            Visit::Answered => answered.fetch_add(1, Ordering::Relaxed),
            end => return (end, is_told.load(Ordering::Relaxed)),
        };
    };
    let ends: Vec<(Visit, bool)> = thread::scope(|scope| {
        let visitors = [(); 4].map(|()| scope.spawn(visits));
        eventually("the visitors are answered", || {
            let is_enough = answered.load(Ordering::Relaxed) >= 200 + 37 * round;
            (is_enough || visitors.iter().any(|visitor| visitor.is_finished())).then_some(())
        });
        is_told.store(true, Ordering::Relaxed);
        server.child.stop();
        visitors.map(|visitor| visitor.join().unwrap()).into()
    });
    for (end, is_told) in &ends {
        // Until SIGTERM the server accepts and answers every connection.
        assert!(*is_told && matches!(end, Visit::Refused | Visit::Late), "{round}: {end:?}");
    }
    ends.iter().all(|(end, _)| *end == Visit::Refused)
}

#[test]
fn a_burst_of_connections_before_the_signal_is_answered() {
    for round in 0..5 {
        // One worker that is stopped while the connections come in: they all are in the queue.
        let mut server = Server::with("", "", &["--workers", "1"]);
        server.control.put("/a", "text/plain", b"hello").expect(201);
        server.child.signal("STOP");
        let mut clients: Vec<Client> = (0..200).map(|_| server.reader()).collect();
        let asks = |client: &mut Client| client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let (early, late) = clients.split_at_mut(100);
        early.iter_mut().for_each(asks);
        server.child.signal("TERM");
        late.iter_mut().for_each(asks);
        server.child.signal("CONT");
        for (i, client) in clients.iter_mut().enumerate() {
            let response = client.try_response();
            let response = response.unwrap_or_else(|end| panic!("round {round}, {i}: {end:?}"));
            assert_eq!(response.expect(200).text(), "hello");
        }
        drop(clients);
        server.child.stopped();
    }
}

#[test]
fn a_reload_counts_on_connections_that_are_open() {
    let mut server = Server::start();
    server.control.put("/a", "text/plain", b"hello").expect(201);
    let mut client = server.reader();
    client.get("/list=a").refused(404);
    let file = server.dir.path().join("stentor.toml");
    let toml = "workers = 7\nserver_header = false\n[cors]\norigins = '*'\n[[lookup]]\n\
                path = '/list='\ntopics = '/{name}'\nline = '{name}={value}'\n[[topics]]\n\
                match = '/**'\ncache_control = 'max-age=9'\n";
    fs::write(&file, toml).unwrap();
    server.child.signal("HUP");
    server.child.logged("reloaded");
    eventually("the worker goes by the new settings", || {
        (client.get("/list=a").status == 200).then_some(())
    });
    let response = client.ask("GET", "/list=a", "Origin: http://x\r\n", b"").expect(200);
    assert_eq!(response.text(), "a=hello");
    assert_eq!(response.field("server"), None);
    assert_eq!(response.field("access-control-allow-origin"), Some("*"));
    server.control.put("/a", "text/plain", b"again").expect(200);
    assert_eq!(client.get("/a").field("cache-control"), Some("max-age=9"));
    // The flag says how many workers there are, whatever the file says.
    assert_eq!(server.figure("workers"), 2);
}

#[test]
fn a_reload_says_what_needs_a_restart() {
    let mut server = Server::start();
    let file = server.dir.path().join("stentor.toml");
    fs::write(&file, "[limits]\ntopics_max = 5\nmessage_bytes_max = 10\n").unwrap();
    server.child.signal("HUP");
    let said = server.child.logged("needs a restart");
    assert!(said.contains("limits.topics_max") && said.contains("limits.message_bytes_max"));
    server.control.put("/a", "text/plain", b"hello").expect(201);
}

#[test]
fn a_bad_file_changes_nothing() {
    let server = Server::configured("[limits]\nnames_max = 2\n");
    let file = server.dir.path().join("stentor.toml");
    let two = "/-/values?prefix=/&names=a,b";
    server.public.get(two).expect(200);
    for bad in ["[limits]\nnames_max = 1\nnonsense = 2\n", "[limits]\nnames_max = 0\n", "="] {
        fs::write(&file, bad).unwrap();
        let count = log_count(&server.child, "not reloaded");
        server.child.signal("HUP");
        eventually("it is refused", || {
            (log_count(&server.child, "not reloaded") > count).then_some(())
        });
        server.public.get(two).expect(200);
    }
    fs::remove_file(&file).unwrap();
    server.child.signal("HUP");
    eventually("it is refused", || (log_count(&server.child, "not reloaded") == 4).then_some(()));
    server.public.get(two).expect(200);
    // And then a good one.
    fs::write(&file, "[limits]\nnames_max = 1\n").unwrap();
    server.child.signal("HUP");
    eventually("it is taken", || (server.public.get(two).status == 400).then_some(()));
}

fn log_count(child: &Child, text: &str) -> usize {
    child.err().matches(text).count()
}

#[test]
fn a_healthy_server_is_silent() {
    let server = Server::start();
    let before = server.child.err();
    for i in 0..100 {
        server.control.put(&format!("/{i}"), "text/plain", b"x").expect(201);
        server.public.get(&format!("/{i}")).expect(200);
        server.public.get("/a//b").refused(400);
        let mut client = server.reader();
        client.send("nonsense\r\n\r\n");
        client.response().refused(400);
    }
    assert_eq!(server.child.err(), before);
    assert_eq!(server.child.out(), "");
    assert!(before.lines().all(|line| line.is_ascii() && !line.contains('\u{1b}')), "{before}");
}

/// Runs `stentor reload`, and returns its exit code and what it says.
fn reload(args: &[&str]) -> (Option<i32>, String) {
    let said = run(&[&["reload"], args].concat());
    (said.code, said.out + &said.err)
}

/// Workers take new settings up at their next turn.
#[track_caller]
fn names_itself(server: &Server, is_named: bool) {
    eventually("the setting counts", || {
        let answer = server.public.get("/-/nothing");
        (answer.field("server").is_some() == is_named).then_some(())
    });
}

#[test]
fn a_reload_by_command_says_what_came_of_it() {
    let mut server = Server::start();
    let toml = server.dir.path().join("stentor.toml");
    let address = format!("http://{}", server.control.0);
    let first = server.child.id().to_string();
    let ways = [["--server", &address], ["--process", &first]];
    let done = |server: &Server| server.figure("reloads/done");
    for is_upgraded in [false, true] {
        if is_upgraded {
            fs::write(&toml, "").unwrap();
            server.child.upgrade();
            // The first process leads to the server.
            assert_ne!(server.child.id().to_string(), first);
            eventually("the first process waits", || {
                let line = fs::read_to_string(format!("/proc/{first}/cmdline")).unwrap();
                line.contains("\0parent\0").then_some(())
            });
        }
        for way in &ways {
            let before = done(&server);
            fs::write(&toml, "server_header = false\n").unwrap();
            assert_eq!(reload(way), (Some(0), "reloaded\n".to_owned()));
            names_itself(&server, false);
            fs::write(&toml, "pin = true\n").unwrap();
            let named = "reloaded; needs a restart to count: pin\n";
            assert_eq!(reload(way), (Some(0), named.to_owned()));
            fs::write(&toml, "server_header = false\nwrokers = 3\n").unwrap();
            let (code, said) = reload(way);
            let reason = "not reloaded, the settings stay as they are: ";
            assert!(code == Some(1) && said.contains(reason), "{said}");
            assert!(said.ends_with("unknown key 'wrokers'; did you mean 'workers'?\n"), "{said}");
            names_itself(&server, true);
            assert_eq!(done(&server), before + 2);
        }
    }
    let status = server.control.get("/-/status").expect(200).json();
    assert_eq!(status["reloads"]["last"]["need_restart"], serde_json::json!(["pin"]));
    let nobody = reload(&["--process", &std::process::id().to_string()]);
    assert!(nobody.0 == Some(1) && nobody.1.contains("it was sent nothing"), "{nobody:?}");
    assert_eq!(reload(&["--process", "0"]).0, Some(2));
    server.child.stop();
}

/// Without a store, an access log or a socket file the server writes nothing.
#[test]
fn a_server_writes_no_files() {
    let server = Server::start();
    server.publish("/a", "value");
    let mut stream = EventStream::open(server.public, "/a", "");
    stream.event();
    let before: Vec<_> =
        fs::read_dir(server.dir.path()).unwrap().map(|it| it.unwrap().path()).collect();
    let process = format!("/proc/{}", server.child.id());
    for entry in fs::read_dir(format!("{process}/fd")).unwrap() {
        let entry = entry.unwrap();
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let info = fs::read_to_string(format!("{process}/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = u32::from_str_radix(flags.unwrap_or("0").trim(), 8).unwrap();
        // O_WRONLY and O_RDWR.
        let is_file = fs::metadata(entry.path()).is_ok_and(|is| is.is_file());
        assert!(!is_file || flags & 3 == 0 || number < 3, "{} is written to", target.display());
    }
    let dir = server.dir.path().to_owned();
    let after: Vec<_> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(before, after);
}
