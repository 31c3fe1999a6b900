//! What a backend promises of sending files, tested on both.

use super::*;
use crate::scratch::Scratch;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sends one part of a file, and a head before it, to whoever asks with any byte.
struct Download {
    file: File,
    head: &'static [u8],
    /// From where on in the file, and how far.
    from: u64,
    length: usize,
    slice_bytes: usize,
    /// Of head and file together.
    sent: usize,
    begun: bool,
    outcome: Option<Result<(), FileSendError>>,
    /// How often there was room to write.
    calls: usize,
    /// Where connections came from.
    peers: Vec<Option<IpAddr>>,
    /// None is wanted.
    refuses: bool,
}

impl Download {
    fn new(file: File, from: u64, length: usize) -> Download {
        Download {
            file,
            head: HEAD,
            from,
            length,
            slice_bytes: 100_000,
            sent: 0,
            begun: false,
            outcome: None,
            calls: 0,
            peers: Vec::new(),
            refuses: false,
        }
    }

    /// Sends until the socket is full.
    fn go_on<B: Backend>(&mut self, io: &mut B, socket: Peer) {
        self.calls += 1;
        while self.outcome.is_none() {
            let head = &self.head[self.sent.min(self.head.len())..];
            let begun = self.sent.saturating_sub(self.head.len());
            let length = (self.length - begun).min(self.slice_bytes);
            let parts = [IoSlice::new(head)];
            let parts = if head.is_empty() { &[][..] } else { &parts[..] };
            match io.send_file(socket, parts, &self.file, self.from + begun as u64, length) {
                Ok(sent) => {
                    self.sent += sent.bytes;
                    if self.sent == self.head.len() + self.length {
                        self.outcome = Some(Ok(()));
                        io.finish(socket);
                    } else if sent.full {
                        return;
                    }
                }
                Err(error) => {
                    self.outcome = Some(Err(error));
                    if error == FileSendError::Truncated {
                        io.finish(socket);
                    }
                }
            }
        }
    }
}

impl<B: Backend> Handler<B> for Download {
    fn accepted(
        &mut self,
        _: &mut B,
        _: Peer,
        _: Role,
        peer: Option<IpAddr>,
    ) -> Result<(), Refused> {
        self.peers.push(peer);
        match self.refuses {
            true => Err(Refused(|_, _| HEAD.to_vec(), 0)),
            false => Ok(()),
        }
    }

    fn ready(&mut self, io: &mut B, socket: Peer, writable: bool) -> bool {
        if writable && self.begun {
            self.go_on(io, socket);
        }
        true
    }

    fn received(&mut self, io: &mut B, socket: Peer, _: &mut [u8]) -> Flow {
        self.begun = true;
        self.go_on(io, socket);
        Flow::More
    }

    fn ended(&mut self, io: &mut B, socket: Peer) {
        io.close(socket);
    }
}

const HEAD: &[u8] = b"this comes before the file\r\n";

/// A file in which no two places look the same.
fn long_file(scratch: &Scratch, bytes: usize) -> Vec<u8> {
    let content: Vec<u8> =
        (0_u64..).map(|i| (i * i / 251 + i) as u8 ^ (i >> 11) as u8).take(bytes).collect();
    fs::write(scratch.join("file"), &content).unwrap();
    content
}

fn open(directory: &Path, name: &str) -> File {
    match Directory::open(directory).unwrap().find(name, Symlinks::Refused) {
        Ok(Found::File(file)) => file,
        other => panic!("{name}: {other:?}"),
    }
}

/// A backend with one listener, and a client that has asked.
fn connected() -> (Epoll, TcpStream) {
    let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
    let listeners = vec![(reserved.listen().unwrap(), 0)];
    let mut client = TcpStream::connect(reserved.address()).unwrap();
    client.write_all(b"?").unwrap();
    client.set_nonblocking(true).unwrap();
    (Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap(), client)
}

/// Turns the backend and lets the client read, at most `chunk` bytes a turn, until it has read the
/// end.
fn download(
    io: &mut Epoll,
    handler: &mut Download,
    client: &mut impl Read,
    chunk: usize,
    mut meanwhile: impl FnMut(usize),
) -> Vec<u8> {
    let began = Instant::now();
    let mut received = Vec::new();
    let mut buffer = vec![0; chunk];
    loop {
        assert!(began.elapsed() < Duration::from_secs(30), "{} bytes came", received.len());
        io.turn(handler, Some(io.now_ms() + 2)).unwrap();
        match client.read(&mut buffer) {
            Ok(0) => return received,
            Ok(length) => received.extend(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        meanwhile(received.len());
    }
}

#[test]
fn a_file_is_sent_whole_behind_its_head() {
    let scratch = Scratch::new();
    let content = long_file(&scratch, 5_000_000);
    for (from, length) in [(0, content.len()), (4_095, 3_000_001), (4_999_999, 1), (77, 0)] {
        for slice_bytes in [1_000, 256 * 1024, usize::MAX >> 1] {
            let (mut io, mut client) = connected();
            let mut handler = Download::new(open(&scratch, "file"), from, length);
            handler.slice_bytes = slice_bytes;
            let received = download(&mut io, &mut handler, &mut client, 300_000, |_| {});
            assert_eq!(handler.outcome, Some(Ok(())));
            assert!(received.starts_with(HEAD));
            assert!(received[HEAD.len()..] == content[from as usize..][..length]);
        }
    }
}

#[test]
fn a_file_is_sent_over_a_socket_file_too() {
    let scratch = Scratch::new();
    let content = long_file(&scratch, 2_000_000);
    let path = scratch.join("socket");
    let listeners = vec![(listen_unix(&path).unwrap(), 0)];
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"?").unwrap();
    client.set_nonblocking(true).unwrap();
    let mut io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
    let mut handler = Download::new(open(&scratch, "file"), 0, content.len());
    let received = download(&mut io, &mut handler, &mut client, 50_000, |_| {});
    assert!(received[HEAD.len()..] == content[..]);
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_is_found_out() {
    let scratch = Scratch::new();
    let content = long_file(&scratch, 20_000_000);
    let (mut io, mut client) = connected();
    let mut handler = Download::new(open(&scratch, "file"), 0, content.len());
    let writer = fs::OpenOptions::new().write(true).open(scratch.join("file")).unwrap();
    let received = download(&mut io, &mut handler, &mut client, 64 * 1024, |received| {
        if (1_000_000..1_100_000).contains(&received) {
            writer.set_len(15_000_001).unwrap();
        }
    });
    assert_eq!(handler.outcome, Some(Err(FileSendError::Truncated)));
    assert!(received.len() > 15_000_000, "what there was did come");
    assert!(received[HEAD.len()..] == content[..15_000_001], "and nothing else");
    // From behind the end there is nothing to be sent from the start.
    let (mut io, mut client) = connected();
    let mut handler = Download::new(open(&scratch, "file"), 15_000_001, 10);
    download(&mut io, &mut handler, &mut client, 64 * 1024, |_| {});
    assert_eq!(handler.outcome, Some(Err(FileSendError::Truncated)));
}

/// SIGPIPE, which `sendfile` raises, ends nobody: the test would not come to its end.
#[test]
fn a_peer_that_goes_away_is_gone() {
    let scratch = Scratch::new();
    // One large hole: more than any socket takes.
    fs::File::create(scratch.join("file")).unwrap().set_len(1 << 32).unwrap();
    let (mut io, client) = connected();
    let mut handler = Download::new(open(&scratch, "file"), 0, 1 << 32);
    while handler.calls == 0 {
        io.turn(&mut handler, Some(io.now_ms() + 100)).unwrap();
    }
    assert_eq!(handler.outcome, None, "the client does not read");
    // With bytes unread this is a reset.
    drop(client);
    let began = Instant::now();
    while handler.outcome.is_none() && began.elapsed() < Duration::from_secs(10) {
        let socket = only(&io);
        handler.go_on(&mut io, socket);
    }
    assert_eq!(handler.outcome, Some(Err(FileSendError::Gone)));
}

#[test]
fn a_connection_that_is_not_wanted_is_told_so_and_closed() {
    let scratch = Scratch::new();
    long_file(&scratch, 10);
    let mut handler = Download::new(open(&scratch, "file"), 0, 10);
    handler.refuses = true;
    let (mut io, mut client) = connected();
    let received = download(&mut io, &mut handler, &mut client, 100, |_| {});
    assert_eq!(received, HEAD);
    assert_eq!(handler.peers, [Some(client.local_addr().unwrap().ip())]);
    assert!(!handler.begun);
}

/// Takes one byte of a connection, and then nothing until its end.
#[derive(Default)]
struct Deaf {
    heard: bool,
    finished: usize,
    ended: usize,
}

impl<B: Backend> Handler<B> for Deaf {
    fn accepted(&mut self, _: &mut B, _: Peer, _: Role, _: Option<IpAddr>) -> Result<(), Refused> {
        Ok(())
    }

    fn ready(&mut self, _: &mut B, _: Peer, _: bool) -> bool {
        !self.heard
    }

    fn received(&mut self, _: &mut B, _: Peer, _: &mut [u8]) -> Flow {
        self.heard = true;
        Flow::Pause
    }

    fn ended(&mut self, io: &mut B, socket: Peer) {
        self.ended += 1;
        io.close(socket);
    }

    fn finished(&mut self, _: &mut B, _: Peer) {
        self.finished += 1;
    }
}

#[test]
fn how_a_connection_ends_is_told_while_nothing_is_read() {
    for is_late in [false, true] {
        let mut handler = Deaf::default();
        let (mut io, mut client) = connected();
        let turns = |io: &mut Epoll, handler: &mut Deaf| {
            (0..20).for_each(|_| {
                io.turn(handler, Some(io.now_ms() + 5)).unwrap();
            });
        };
        if is_late {
            turns(&mut io, &mut handler);
            client.write_all(b"never read").unwrap();
        }
        client.shutdown(std::net::Shutdown::Write).unwrap();
        turns(&mut io, &mut handler);
        assert!(handler.heard && handler.finished > 0 && handler.ended == 0, "late: {is_late}");
        let told = handler.finished;
        turns(&mut io, &mut handler);
        assert_eq!(handler.finished, told, "an end is told once");
        // What comes for it now is answered by a reset.
        drop(client);
        let sent = io.send(only(&io), &[IoSlice::new(b"x")]);
        turns(&mut io, &mut handler);
        assert_eq!((sent, handler.ended, io.open_connections()), (Ok(Sent::of(1, 1)), 1, 0));
    }
}

#[test]
fn a_reset_is_told_while_nothing_is_read() {
    let mut handler = Deaf::default();
    let (mut io, client) = connected();
    for _ in 0..20 {
        io.turn(&mut handler, Some(io.now_ms() + 5)).unwrap();
    }
    // With something unread the client's end is a reset.
    assert_eq!(io.send(only(&io), &[IoSlice::new(b"unread")]), Ok(Sent::of(6, 6)));
    drop(client);
    for _ in 0..20 {
        io.turn(&mut handler, Some(io.now_ms() + 5)).unwrap();
    }
    assert_eq!((handler.finished, handler.ended, io.open_connections()), (0, 1, 0));
    assert_eq!(io.ended_by().unwrap().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn the_simulator_tells_of_an_end_while_nothing_is_read() {
    for seed in 0..50 {
        let faults = Faults {
            split_percent: 50,
            refuse_percent: 0,
            reset_per_10_000: 0,
            delay_ms_max: 0,
            window_bytes: 10,
        };
        let mut sim = Sim::new(seed, faults);
        let mut handler = Deaf::default();
        let client = sim.connect(0);
        sim.write(client, b"ab");
        while sim.turn(&mut handler) {}
        assert!(handler.heard);
        sim.finish_client(client);
        while sim.turn(&mut handler) {}
        assert_eq!((handler.finished, handler.ended), (1, 0), "seed {seed}");
        sim.reset_client(client);
        while sim.turn(&mut handler) {}
        assert_eq!((handler.finished, handler.ended), (1, 1), "seed {seed}");
    }
}

/// It is set on the listener; every connection must have it.
#[test]
fn a_connection_keeps_little_unsent() {
    let mut handler = Deaf::default();
    let (mut io, _client) = connected();
    for _ in 0..20 {
        io.turn(&mut handler, Some(io.now_ms() + 5)).unwrap();
    }
    let chunk = vec![0; 1 << 20];
    let mut sent = 0;
    while let Ok(Sent { bytes: taken @ 1.., .. }) = io.send(only(&io), &[IoSlice::new(&chunk)]) {
        sent += taken;
    }
    // Beside what the peer's window took: that is some 64 KB before it has read anything.
    assert!(sent < 1 << 20, "the kernel took {sent} bytes for a client that does not read");
}

/// The one connection of a backend.
fn only(io: &Epoll) -> Peer {
    let mut all = (0..1_000).map(Peer::from_index);
    all.find(|&socket| io.is_open(socket)).expect("a connection")
}

/// Those who wait beyond the ceiling come in as others go, and cost no turns meanwhile.
#[test]
fn no_more_connections_than_there_may_be() {
    let scratch = Scratch::new();
    long_file(&scratch, 10);
    let mut handler = Download::new(open(&scratch, "file"), 0, 10);
    let (mut io, first) = connected();
    let to = first.peer_addr().unwrap();
    io.limit_connections(2);
    let mut others: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(to).unwrap()).collect();
    for other in &mut others {
        other.write_all(b"?").unwrap();
    }
    let turns = |io: &mut Epoll, handler: &mut Download, count: usize| {
        for _ in 0..count {
            io.turn(handler, Some(io.now_ms() + 20)).unwrap();
        }
    };
    turns(&mut io, &mut handler, 20);
    assert_eq!((handler.peers.len(), io.open_connections()), (2, 2));
    let began = Instant::now();
    turns(&mut io, &mut handler, 5);
    assert!(began.elapsed() >= Duration::from_millis(90), "it spins");
    drop(first);
    turns(&mut io, &mut handler, 10);
    assert_eq!((handler.peers.len(), io.open_connections()), (3, 2));
    drop(others);
    turns(&mut io, &mut handler, 20);
    assert_eq!(io.open_connections(), 0);
}

/// A handler may err; the rest of the process must not be touched by that.
#[test]
fn a_descriptor_that_is_no_connection_is_not_touched() {
    let (mut io, _client) = connected();
    let (ours, mut other) = UnixStream::pair().unwrap();
    let foreign = Peer::from_index(std::os::fd::AsRawFd::as_raw_fd(&ours) as u32);
    assert_eq!(io.send(foreign, &[IoSlice::new(b"x")]), Err(Gone));
    let scratch = Scratch::new();
    long_file(&scratch, 10);
    let sent = io.send_file(foreign, &[], &open(&scratch, "file"), 0, 10);
    assert_eq!(sent, Err(FileSendError::Gone));
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

/// A file system without `sendfile` that every host has.
#[test]
fn a_file_that_cannot_be_sent_without_copying_is_copied() {
    let expected = fs::read("/proc/self/cmdline").unwrap();
    let (mut io, mut client) = connected();
    let mut handler = Download::new(open(Path::new("/proc/self"), "cmdline"), 0, expected.len());
    let received = download(&mut io, &mut handler, &mut client, 64 * 1024, |_| {});
    assert_eq!(handler.outcome, Some(Ok(())));
    assert_eq!(&received[HEAD.len()..], expected);
}

#[test]
fn the_simulator_sends_files_as_the_kernel_does() {
    let scratch = Scratch::new();
    let content = long_file(&scratch, 300_000);
    for seed in 0..200 {
        // A wide window takes a whole slice; then the file is cut before anything is sent.
        let wide = seed % 8 >= 4;
        let faults = Faults {
            split_percent: 50,
            refuse_percent: 50,
            reset_per_10_000: 0,
            delay_ms_max: 3,
            window_bytes: if wide { 1_000_000 } else { 10_000 },
        };
        let mut sim = Sim::new(seed, faults);
        let client = sim.connect(0);
        sim.write(client, b"?");
        let truncate = seed % 4 == 0;
        let name = if truncate { "short" } else { "file" };
        let mut received = Vec::new();
        fs::write(scratch.join("short"), &content).unwrap();
        let mut handler = Download::new(open(&scratch, name), 5, content.len() - 5);
        let cut = || {
            let file = fs::OpenOptions::new().write(true).open(scratch.join("short"));
            file.unwrap().set_len(200_000).unwrap();
        };
        if truncate && wide {
            cut();
        }
        while sim.turn(&mut handler) {
            received.extend(sim.read(client));
            if truncate && received.len() > 50_000 {
                cut();
            }
            if handler.outcome.is_some() {
                break;
            }
        }
        received.extend(sim.read(client));
        let (outcome, end) = match truncate {
            true => (Err(FileSendError::Truncated), 200_000),
            false => (Ok(()), content.len()),
        };
        assert_eq!(handler.outcome, Some(outcome), "seed {seed}");
        assert!(received[HEAD.len()..] == content[5..end], "seed {seed}");
    }
}

#[test]
fn the_simulator_tells_of_a_peer_that_is_gone() {
    let scratch = Scratch::new();
    long_file(&scratch, 100_000);
    let faults = Faults {
        split_percent: 0,
        refuse_percent: 0,
        reset_per_10_000: 0,
        delay_ms_max: 0,
        window_bytes: 1_000,
    };
    let mut sim = Sim::new(1, faults);
    let client = sim.connect(0);
    sim.write(client, b"?");
    let mut handler = Download::new(open(&scratch, "file"), 0, 100_000);
    sim.turn(&mut handler);
    sim.turn(&mut handler);
    sim.reset_client(client);
    handler.go_on(&mut sim, Peer::from_index(0));
    assert_eq!(handler.outcome, Some(Err(FileSendError::Gone)));
}
