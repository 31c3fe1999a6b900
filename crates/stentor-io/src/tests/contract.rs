//! The promises of a backend. Each case runs on the kernel and on the simulator, so what the
//! simulator shows of a server is true of the kernel.

use super::network::{ADDRESS, End, Kernel, Network, ROLES, waiting};
use crate::{
    Backend, Directory, Epoll, FileSendError, Flow, Found, Gone, Handler, Pause, Peer, Refused,
    Retransmission, Role, Symlinks, TurnAway, Waker,
};
use std::io::{IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

contract! {
    connections_come_by_their_listener
    layers_and_proxies_are_asked_before_the_first_read
    refused_connection_gets_a_farewell
    connections_over_the_limit_wait
    resting_listeners_accept_nothing
    closing_listeners_accept_waiting_connections
    dropped_connection_hears_nothing
    long_input_arrives_in_order
    paused_input_waits_for_resume
    unready_input_waits_for_resume
    resume_reports_room_to_write
    peeked_bytes_stay_unread
    output_continues_after_a_full_socket
    half_closed_client_still_gets_responses
    half_closed_server_still_gets_requests
    end_is_reported_once
    end_is_reported_once_while_paused
    reset_is_reported_once
    reset_is_reported_once_while_paused
    reset_peer_takes_nothing
    close_delivers_what_was_sent
    close_with_unread_input_resets
    abort_resets
    closed_connections_have_no_events
    clocks_agree
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Event {
    Accepted(Role, Option<IpAddr>),
    Finished,
    Ended,
    Paused(Pause),
}

type OnReceived<B> = Box<dyn FnMut(&mut B, Peer) -> Flow>;

/// Notes what it hears, and does what a case tells it to.
struct Server<B> {
    events: Vec<Event>,
    /// The peers in the order of their connections.
    peers: Vec<Peer>,
    received: Vec<u8>,
    /// The number of events that reported room to write.
    writable: usize,
    /// What `ready` answers.
    reads: bool,
    on_received: OnReceived<B>,
    refuses: bool,
    /// The bytes that are written whenever there is room, and how many of them are written.
    output: Vec<u8>,
    sent: usize,
}

impl<B: Backend> Server<B> {
    fn new() -> Server<B> {
        Server::acting(|_, _| Flow::More)
    }

    fn acting(on_received: impl FnMut(&mut B, Peer) -> Flow + 'static) -> Server<B> {
        Server {
            events: Vec::new(),
            peers: Vec::new(),
            received: Vec::new(),
            writable: 0,
            reads: true,
            on_received: Box::new(on_received),
            refuses: false,
            output: Vec::new(),
            sent: 0,
        }
    }

    fn count(&self, event: &Event) -> usize {
        self.events.iter().filter(|one| *one == event).count()
    }

    /// Sends until the socket is full.
    fn go_on(&mut self, io: &mut B, peer: Peer) {
        while self.sent < self.output.len() {
            let rest = &self.output[self.sent..];
            // A head and a body are two parts as well.
            let (head, body) = rest.split_at(rest.len().min(100));
            let sent = io.send(peer, &[IoSlice::new(head), IoSlice::new(body)]).unwrap();
            self.sent += sent.bytes;
            assert_eq!(sent.full, sent.bytes < rest.len());
            if sent.full {
                return;
            }
        }
    }
}

impl<B: Backend> Handler<B> for Server<B> {
    fn accepted(
        &mut self,
        _: &mut B,
        peer: Peer,
        role: Role,
        address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        self.events.push(Event::Accepted(role, address));
        self.peers.push(peer);
        match self.refuses {
            true => Err(Refused(|asked, chance| [asked, &[chance as u8]].concat(), 7)),
            false => Ok(()),
        }
    }

    fn ready(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool {
        if writable && io.remote_address(peer).is_some() {
            self.writable += 1;
            self.go_on(io, peer);
        }
        self.reads
    }

    fn received(&mut self, io: &mut B, peer: Peer, bytes: &mut [u8]) -> Flow {
        assert!(self.reads && !bytes.is_empty());
        self.received.extend_from_slice(bytes);
        (self.on_received)(io, peer)
    }

    fn ended(&mut self, io: &mut B, peer: Peer) {
        self.events.push(Event::Ended);
        io.close(peer);
    }

    fn finished(&mut self, _: &mut B, _: Peer) {
        self.events.push(Event::Finished);
    }

    fn accept_paused(&mut self, why: Pause) {
        self.events.push(Event::Paused(why));
    }
}

/// Bytes of which no two places look the same.
fn pattern(bytes: usize) -> Vec<u8> {
    (0_u64..).map(|i| (i * i / 251 + i) as u8 ^ (i >> 11) as u8).take(bytes).collect()
}

/// A connection whose first byte the server has.
fn connected<N: Network>(net: &mut N, server: &mut Server<N::Io>) -> (N::Client, Peer) {
    let client = net.connect(0, b"?");
    net.until(server, |_, server| server.received == b"?");
    (client, server.peers[0])
}

/// A connection whose first byte the server has, and which it does not read any more.
fn paused<N: Network>(net: &mut N) -> (N::Client, Peer, Server<N::Io>) {
    let mut server = Server::acting(|_, _| Flow::Pause);
    let (client, peer) = connected(net, &mut server);
    server.reads = false;
    (client, peer, server)
}

fn connections_come_by_their_listener<N: Network>(mut net: N) {
    let mut server = Server::new();
    let _clients = ROLES.map(|role| net.connect(role, b"?"));
    net.until(&mut server, |_, server| server.received.len() == ROLES.len());
    for role in ROLES {
        assert_eq!(server.count(&Event::Accepted(role, Some(ADDRESS))), 1);
    }
    assert_eq!((server.events.len(), net.open()), (ROLES.len(), ROLES.len()));
    let mut peers = server.peers.clone();
    assert!(peers.iter().all(|peer| net.io().remote_address(*peer) == Some(ADDRESS)));
    peers.sort();
    peers.dedup();
    assert_eq!(peers.len(), ROLES.len(), "each has a number of its own");
}

fn layers_and_proxies_are_asked_before_the_first_read<N: Network>(mut net: N) {
    let mut server = Server::new();
    server.reads = false;
    let _clients = [ROLES[2], ROLES[3]].map(|role| net.connect(role, b"?"));
    net.settle(&mut server);
    assert_eq!(server.peers.len(), 2);
    server.reads = true;
    server.peers.iter().for_each(|peer| net.io().resume(*peer));
    net.until(&mut server, |_, server| server.received == b"??");
}

fn refused_connection_gets_a_farewell<N: Network>(mut net: N) {
    let mut server = Server::new();
    server.refuses = true;
    let mut client = net.connect(0, b"hello");
    assert_eq!(net.read_to_end(&mut server, &mut client), (b"hello\x07".into(), End::Finished));
    net.settle(&mut server);
    assert_eq!(server.events, [Event::Accepted(0, Some(ADDRESS))]);
    assert_eq!((server.received.len(), net.open()), (0, 0));
}

fn connections_over_the_limit_wait<N: Network>(mut net: N) {
    let mut server = Server::new();
    net.limit_connections(2);
    let mut clients = [0, 0, 1, 1, 0].map(|role| net.connect(role, b"?"));
    net.until(&mut server, |net, _| waiting(net.io().accept_queue()) == 3);
    net.settle(&mut server);
    assert_eq!((server.peers.len(), net.open()), (2, 2));
    assert!(server.count(&Event::Paused(Pause::Ceiling)) > 0);
    assert_eq!(server.count(&Event::Paused(Pause::Exhausted)), 0);
    net.io().close(server.peers[0]);
    net.until(&mut server, |_, server| server.peers.len() == 3);
    net.settle(&mut server);
    assert_eq!((server.peers.len(), net.open()), (3, 2));
    clients.iter_mut().for_each(|client| net.reset(client));
    net.until(&mut server, |net, _| net.open() == 0 && waiting(net.io().accept_queue()) == 0);
}

fn resting_listeners_accept_nothing<N: Network>(mut net: N) {
    let mut server = Server::new();
    net.io().rest(&[1, 2, 3]);
    let _clients = ROLES.map(|role| net.connect(role, b"?"));
    net.until(&mut server, |_, server| server.received == b"?");
    net.settle(&mut server);
    assert_eq!(server.events, [Event::Accepted(0, Some(ADDRESS))]);
    net.until(&mut server, |net, _| waiting(net.io().accept_queue()) == 3);
    net.io().rest(&[]);
    net.until(&mut server, |net, server| {
        server.received == b"????" && waiting(net.io().accept_queue()) == 0
    });
}

fn closing_listeners_accept_waiting_connections<N: Network>(mut net: N) {
    let mut server = Server::new();
    let _waits = [0, 1].map(|role| net.connect(role, b"?"));
    net.io().refuse_new(TurnAway::Refuse);
    let mut late = net.connect(0, b"?");
    assert_eq!(net.read_to_end(&mut server, &mut late), (vec![], End::Reset));
    net.io().close_listeners();
    net.until(&mut server, |_, server| server.received == b"??");
    net.settle(&mut server);
    let mut late = net.connect(1, b"?");
    assert_eq!(net.read_to_end(&mut server, &mut late), (vec![], End::Reset));
    assert_eq!((server.peers.len(), net.open()), (2, 2));
}

fn dropped_connection_hears_nothing<N: Network>(mut net: N) {
    let mut server = Server::new();
    let _waits = net.connect(0, b"?");
    net.io().refuse_new(TurnAway::Drop);
    let mut late = net.connect(0, b"?");
    net.until(&mut server, |_, server| server.received == b"?");
    net.settle(&mut server);
    assert_eq!(net.read(&mut late, &mut Vec::new()), None);
    assert_eq!((server.peers.len(), server.received.len()), (1, 1));
}

fn long_input_arrives_in_order<N: Network>(mut net: N) {
    let mut server = Server::new();
    let input = pattern(300_000);
    let mut client = net.connect(0, &input[..1]);
    for piece in input[1..].chunks(40_000) {
        net.write(&mut client, piece);
        net.turn(&mut server);
    }
    net.until(&mut server, |_, server| server.received.len() == input.len());
    assert!(server.received == input);
}

/// A client's second piece of input, which the server does not read. From now on it would.
fn leave_unread<N: Network>(net: &mut N, server: &mut Server<N::Io>) -> (N::Client, Peer) {
    let (mut client, peer) = connected(net, server);
    server.reads = false;
    net.write(&mut client, b"more");
    net.settle(server);
    assert_eq!(server.received, b"?");
    server.reads = true;
    (client, peer)
}

fn paused_input_waits_for_resume<N: Network>(mut net: N) {
    // It says only once that it pauses, and is not asked again by a read.
    let mut server = Server::acting(|_, _| Flow::Pause);
    let (_client, peer) = leave_unread(&mut net, &mut server);
    // One resume for each pause: bytes may come one by one.
    net.until(&mut server, |net, server| {
        net.io().resume(peer);
        server.received == b"?more"
    });
}

fn unready_input_waits_for_resume<N: Network>(mut net: N) {
    let mut server = Server::new();
    let (_client, peer) = leave_unread(&mut net, &mut server);
    net.io().resume(peer);
    net.until(&mut server, |_, server| server.received == b"?more");
}

fn resume_reports_room_to_write<N: Network>(mut net: N) {
    let (_client, peer, mut server) = paused(&mut net);
    net.settle(&mut server);
    let told = server.writable;
    net.io().resume(peer);
    net.until(&mut server, |_, server| server.writable > told);
}

fn peeked_bytes_stay_unread<N: Network>(mut net: N) {
    let mut server = Server::new();
    server.reads = false;
    let mut client = net.connect(PROXY, b"head");
    net.until(&mut server, |_, server| !server.peers.is_empty());
    let (peer, mut buffer) = (server.peers[0], [0; 4]);
    net.until(&mut server, |net, _| net.io().peek(peer, &mut buffer) == 4);
    assert_eq!((&buffer, server.received.len()), (b"head", 0));
    assert_eq!(net.io().peek(peer, &mut buffer[..2]), 2);
    net.write(&mut client, b" and body");
    net.until(&mut server, |net, _| net.io().peek(peer, &mut [0; 100]) == 13);
    net.io().discard(peer, 5);
    server.reads = true;
    net.io().resume(peer);
    net.until(&mut server, |_, server| server.received == b"and body");
}

fn output_continues_after_a_full_socket<N: Network>(mut net: N) {
    for is_stream in [false, true] {
        let mut server = Server::new();
        let (mut client, peer) = connected(&mut net, &mut server);
        if is_stream {
            net.io().begin_stream(peer, Retransmission { pause_ms_max: 0, give_up_ms: 0 });
        }
        server.output = pattern(N::MUCH);
        net.stall(&client, true);
        server.go_on(net.io(), peer);
        net.settle(&mut server);
        assert!(server.sent < server.output.len());
        let told = server.writable;
        net.settle(&mut server);
        assert_eq!(server.writable, told, "there is no room");
        net.stall(&client, false);
        let mut received = Vec::new();
        net.until(&mut server, |net, server| {
            net.read(&mut client, &mut received);
            received.len() == server.output.len()
        });
        assert!(received == server.output && server.writable > told);
        net.until(&mut server, |net, _| net.io().unacknowledged(peer) == 0);
    }
}

fn half_closed_client_still_gets_responses<N: Network>(mut net: N) {
    let (mut client, peer, mut server) = paused(&mut net);
    net.finish(&client);
    net.until(&mut server, |_, server| server.count(&Event::Finished) == 1);
    server.output = pattern(100_000);
    server.go_on(net.io(), peer);
    let mut received = Vec::new();
    net.until(&mut server, |net, server| {
        assert_eq!(net.read(&mut client, &mut received), None);
        received.len() == server.output.len()
    });
    assert!(received == server.output);
    assert_eq!(net.open(), 1);
}

fn half_closed_server_still_gets_requests<N: Network>(mut net: N) {
    let mut server = Server::new();
    let (mut client, peer) = connected(&mut net, &mut server);
    net.io().finish(peer);
    assert_eq!(net.read_to_end(&mut server, &mut client), (vec![], End::Finished));
    net.write(&mut client, b"more");
    net.until(&mut server, |_, server| server.received == b"?more");
    assert_eq!((server.count(&Event::Ended), net.open()), (0, 1));
    net.finish(&client);
    net.until(&mut server, |net, _| net.open() == 0);
    assert_eq!(server.count(&Event::Ended), 1);
}

fn end_is_reported_once<N: Network>(mut net: N) {
    for is_early in [true, false] {
        let mut server = Server::new();
        let mut client = net.connect(0, b"?");
        if !is_early {
            net.until(&mut server, |_, server| server.received == b"?");
        }
        net.write(&mut client, b"last");
        net.finish(&client);
        net.until(&mut server, |net, server| server.count(&Event::Ended) == 1 && net.open() == 0);
        assert_eq!(server.received, b"?last", "nothing is lost before an end");
        net.settle(&mut server);
        assert_eq!(server.events, [Event::Accepted(0, Some(ADDRESS)), Event::Ended]);
    }
}

fn end_is_reported_once_while_paused<N: Network>(mut net: N) {
    for is_unread in [false, true] {
        let (mut client, peer, mut server) = paused(&mut net);
        if is_unread {
            net.write(&mut client, b"more");
        }
        net.finish(&client);
        net.until(&mut server, |_, server| server.count(&Event::Finished) == 1);
        net.settle(&mut server);
        assert_eq!((server.count(&Event::Finished), server.count(&Event::Ended)), (1, 0));
        // Once the server reads, it first reads the input before the end.
        server.reads = true;
        server.on_received = Box::new(|_, _| Flow::More);
        net.io().resume(peer);
        net.until(&mut server, |net, _| net.open() == 0);
        let received: &[u8] = if is_unread { b"?more" } else { b"?" };
        assert_eq!((&server.received[..], server.count(&Event::Ended)), (received, 1));
    }
}

fn reset_is_reported_once<N: Network>(mut net: N) {
    let mut server = Server::new();
    let (mut client, peer) = connected(&mut net, &mut server);
    net.reset(&mut client);
    net.until(&mut server, |net, _| net.open() == 0);
    net.settle(&mut server);
    assert_eq!(server.events, [Event::Accepted(0, Some(ADDRESS)), Event::Ended]);
    assert_eq!(net.io().remote_address(peer), None);
    // One that is over before it is accepted leaves nothing behind.
    let mut client = net.connect(0, b"?");
    net.reset(&mut client);
    net.settle(&mut server);
    assert_eq!((net.open(), server.peers.len()), (0, server.count(&Event::Ended)));
}

fn reset_is_reported_once_while_paused<N: Network>(mut net: N) {
    for is_finished in [false, true] {
        let (mut client, _, mut server) = paused(&mut net);
        if is_finished {
            net.finish(&client);
            net.until(&mut server, |_, server| server.count(&Event::Finished) == 1);
        }
        net.reset(&mut client);
        net.until(&mut server, |_, server| server.count(&Event::Ended) == 1);
        net.settle(&mut server);
        assert_eq!((server.count(&Event::Ended), net.open()), (1, 0));
        assert_eq!(server.count(&Event::Finished), usize::from(is_finished));
        assert_eq!(server.received, b"?");
    }
}

/// A sender may learn of a reset before the event reports it. It closes then.
fn reset_peer_takes_nothing<N: Network>(mut net: N) {
    let (mut client, peer, mut server) = paused(&mut net);
    net.reset(&mut client);
    while net.io().send(peer, &[IoSlice::new(b"!")]).is_ok() {}
    net.io().close(peer);
    net.settle(&mut server);
    assert_eq!(server.events, [Event::Accepted(0, Some(ADDRESS))]);
}

fn close_delivers_what_was_sent<N: Network>(mut net: N) {
    let mut server = Server::new();
    let (mut client, peer) = connected(&mut net, &mut server);
    server.output = pattern(5_000);
    server.go_on(net.io(), peer);
    net.until(&mut server, |_, server| server.sent == server.output.len());
    net.io().close(peer);
    assert_eq!(net.open(), 0);
    assert_eq!(net.read_to_end(&mut server, &mut client), (server.output.clone(), End::Finished));
}

fn close_with_unread_input_resets<N: Network>(mut net: N) {
    let (mut client, peer, mut server) = paused(&mut net);
    net.write(&mut client, b"unread");
    net.settle(&mut server);
    net.io().close(peer);
    assert_eq!(net.read_to_end(&mut server, &mut client), (vec![], End::Reset));
}

fn abort_resets<N: Network>(mut net: N) {
    let mut server = Server::new();
    let (mut client, peer) = connected(&mut net, &mut server);
    server.output = pattern(N::MUCH);
    net.stall(&client, true);
    server.go_on(net.io(), peer);
    net.io().abort(peer);
    assert_eq!(net.open(), 0);
    net.stall(&client, false);
    let (received, end) = net.read_to_end(&mut server, &mut client);
    assert_eq!(end, End::Reset);
    assert!(received.len() < server.output.len() && server.output.starts_with(&received));
    net.settle(&mut server);
    assert_eq!(server.events, [Event::Accepted(0, Some(ADDRESS))]);
}

/// Several have events in one turn, and the first to be served closes the rest.
fn closed_connections_have_no_events<N: Network>(mut net: N) {
    for ends in [N::finish as fn(&mut N, &N::Client), |net, client| net.stall(client, true)] {
        let mut server = Server::new();
        let mut clients = [0; 4].map(|role| net.connect(role, b"?"));
        net.until(&mut server, |_, server| server.received == b"????");
        let peers = server.peers.clone();
        let mut served = 0;
        server.on_received = Box::new(move |io, peer| {
            served += 1;
            assert_eq!(served, 1, "a closed connection is read");
            for (nth, peer) in peers.iter().filter(|one| **one != peer).enumerate() {
                if nth == 0 { io.abort(*peer) } else { io.close(*peer) }
            }
            io.close(peer);
            Flow::Closed
        });
        for client in &mut clients {
            net.write(client, b"!");
            ends(&mut net, client);
        }
        net.until(&mut server, |net, _| net.open() == 0);
        net.settle(&mut server);
        assert_eq!((server.events.len(), &server.received[..]), (4, &b"????!"[..]));
    }
}

fn clocks_agree<N: Network>(mut net: N) {
    let mut server = Server::new();
    let (before_ms, before_us, before_s) =
        (net.io().now_ms(), net.io().turn_us(), net.io().unix_s());
    net.pass(&mut server, 1_100);
    let passed_ms = net.io().now_ms() - before_ms;
    let passed_us = net.io().turn_us() - before_us;
    assert!((1_100..60_000).contains(&passed_ms), "{passed_ms} ms");
    assert!(passed_us.abs_diff(passed_ms * 1_000) < 50_000, "{passed_us} us, {passed_ms} ms");
    assert!((1..60).contains(&(net.io().unix_s() - before_s)));
    assert!(net.io().now_us() >= net.io().turn_us());
    // The time of a turn stays the same, however long the turn takes.
    let turn_us = net.io().turn_us();
    let (client, peer) = connected(&mut net, &mut server);
    drop(client);
    net.io().close(peer);
    assert!(net.io().now_us() > turn_us);
}

const PROXY: Role = ROLES[3];

/// It is set on the listener; every connection must have it.
#[test]
fn connection_keeps_little_unsent() {
    let (mut net, mut server) = (Kernel::new(), Server::new());
    let (_client, peer) = connected(&mut net, &mut server);
    server.output = vec![0; 8 << 20];
    server.go_on(&mut net.io, peer);
    // Beside what the peer's window takes: that is some 64 KB before it has read anything.
    assert!(server.sent < 1 << 20, "{} bytes for a client that does not read", server.sent);
}

/// A handler may err; the rest of the process must not be touched by that.
#[test]
fn foreign_descriptor_is_not_touched() {
    let mut io = Kernel::new().io;
    let (ours, mut other) = UnixStream::pair().unwrap();
    let foreign = Peer::from_index(ours.as_raw_fd() as u32);
    assert_eq!(io.send(foreign, &[IoSlice::new(b"x")]), Err(Gone));
    let Ok(Found::File(file)) =
        Directory::open(Path::new("/proc/self")).unwrap().find("cmdline", Symlinks::Refused)
    else {
        panic!("every process has one");
    };
    assert_eq!(io.send_file(foreign, &[], &file, 0, 10), Err(FileSendError::Gone));
    assert!(io.connect_error(foreign).is_some());
    io.begin_stream(foreign, Retransmission { pause_ms_max: 0, give_up_ms: 0 });
    io.resume(foreign);
    io.finish(foreign);
    io.abort(foreign);
    io.close(foreign);
    assert_eq!(io.unacknowledged(foreign), 0);
    (&ours).write_all(b"still open").unwrap();
    let mut read = [0; 10];
    other.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"still open");
}

#[test]
fn another_thread_ends_the_wait() {
    let waker = Arc::new(Waker::new().unwrap());
    let mut io = Epoll::new(Vec::new(), waker.clone()).unwrap();
    let mut server = Server::new();
    io.turn(&mut server, Some(0)).unwrap();
    for _ in 0..3 {
        let began = Instant::now();
        let waker = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
            waker.wake();
        });
        assert!(io.turn(&mut server, Some(io.now_ms() + 20_000)).unwrap());
        assert!(began.elapsed() < Duration::from_secs(10));
        thread.join().unwrap();
        // Both count once, or the second had come after the first was seen.
        while io.turn(&mut server, Some(io.now_ms() + 1)).unwrap() {}
    }
}
