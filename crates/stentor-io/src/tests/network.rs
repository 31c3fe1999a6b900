//! The two networks that the contract of a backend is tested on, as their clients see them.

use crate::socket::dial;
use crate::{
    AcceptQueue, Backend, Client, Dial, Epoll, Faults, Handler, LAYERED, PROXIED, Reservation,
    Role, Sim, Waker, listen_unix, reserve,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a connection ended for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Finished,
    Reset,
}

/// A backend and its clients.
pub(super) trait Network {
    type Io: Backend;
    type Client;
    /// More bytes than are kept for a client that does not read.
    const MUCH: usize;

    fn io(&mut self) -> &mut Self::Io;
    /// A client connects to the listener of `role`, from [`ADDRESS`], and sends its first bytes.
    fn connect(&mut self, role: Role, first: &[u8]) -> Self::Client;
    fn write(&mut self, client: &mut Self::Client, bytes: &[u8]);
    /// The client sends FIN.
    fn finish(&mut self, client: &Self::Client);
    fn reset(&mut self, client: &mut Self::Client);
    /// The client stops reading, or reads again.
    fn stall(&mut self, client: &Self::Client, is_stalled: bool);
    /// Appends what has reached the client, and tells how its connection has ended.
    fn read(&mut self, client: &mut Self::Client, into: &mut Vec<u8>) -> Option<End>;
    fn limit_connections(&mut self, connections_max: usize);
    /// The connections that the backend holds.
    fn open(&self) -> usize;
    /// One event reaches the server, or a moment passes.
    fn turn<H: Handler<Self::Io>>(&mut self, server: &mut H);
    /// Everything that can happen by itself has happened. Fails if the backend does not come to
    /// rest.
    fn settle<H: Handler<Self::Io>>(&mut self, server: &mut H);
    /// Time passes while nothing happens.
    fn pass<H: Handler<Self::Io>>(&mut self, server: &mut H, ms: u64);

    /// Turns until `is_done`.
    fn until<H: Handler<Self::Io>>(
        &mut self,
        server: &mut H,
        mut is_done: impl FnMut(&mut Self, &mut H) -> bool,
    ) {
        let began = Instant::now();
        while !is_done(self, server) {
            assert!(began.elapsed() < Duration::from_secs(30), "it does not happen");
            self.turn(server);
        }
    }

    /// Turns and lets the client read until its connection ends.
    fn read_to_end<H: Handler<Self::Io>>(
        &mut self,
        server: &mut H,
        client: &mut Self::Client,
    ) -> (Vec<u8>, End) {
        let (mut received, mut end) = (Vec::new(), None);
        self.until(server, |net, _| {
            end = net.read(client, &mut received);
            end.is_some()
        });
        (received, end.unwrap())
    }
}

/// Where clients come from.
pub(super) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The roles of the listeners.
pub(super) const ROLES: [Role; 4] = [0, 1, LAYERED | 2, PROXIED | 3];

/// The kernel.
pub(super) struct Kernel {
    pub(super) io: Epoll,
    reserved: Vec<Reservation>,
}

impl Kernel {
    pub(super) fn new() -> Kernel {
        let reserved = ROLES.map(|_| reserve("127.0.0.1:0".parse().unwrap()).unwrap());
        let listeners = reserved.iter().zip(ROLES);
        let listeners = listeners.map(|(at, role)| (at.listen().unwrap(), role)).collect();
        let io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        Kernel { io, reserved: reserved.into() }
    }

    /// With a listener on a socket file, and a client that has come by it.
    pub(super) fn of_file(path: &Path) -> (Kernel, UnixStream) {
        let listeners = vec![(listen_unix(path).unwrap(), 0)];
        let mut client = UnixStream::connect(path).unwrap();
        client.write_all(b"?").unwrap();
        client.set_nonblocking(true).unwrap();
        let io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        (Kernel { io, reserved: Vec::new() }, client)
    }
}

/// Appends what a socket has received.
pub(super) fn read_some(socket: &mut impl Read, into: &mut Vec<u8>) -> Option<End> {
    let mut buffer = [0; 64 * 1024];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Some(End::Finished),
            Ok(length) => into.extend(&buffer[..length]),
            Err(error) => match error.kind() {
                // Not connected yet, and perhaps never.
                ErrorKind::WouldBlock | ErrorKind::NotConnected => return None,
                ErrorKind::ConnectionReset => return Some(End::Reset),
                _ => panic!("{error}"),
            },
        }
    }
}

impl Network for Kernel {
    type Io = Epoll;
    /// None: it was refused, or has been reset.
    type Client = Option<TcpStream>;
    const MUCH: usize = 10_000_000;

    fn io(&mut self) -> &mut Epoll {
        &mut self.io
    }

    fn connect(&mut self, role: Role, first: &[u8]) -> Option<TcpStream> {
        let place = ROLES.iter().position(|one| *one == role).unwrap();
        let to = self.reserved[place].address();
        let socket = dial(&Dial { to, from: None, receive_bytes: None }).unwrap();
        let mut client = TcpStream::from(socket);
        match client.write(first) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
            _ => Some(client),
        }
    }

    fn write(&mut self, client: &mut Option<TcpStream>, bytes: &[u8]) {
        client.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn finish(&mut self, client: &Option<TcpStream>) {
        client.as_ref().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    }

    fn reset(&mut self, client: &mut Option<TcpStream>) {
        let client = client.take().unwrap();
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    }

    fn stall(&mut self, _: &Option<TcpStream>, _: bool) {}

    fn read(&mut self, client: &mut Option<TcpStream>, into: &mut Vec<u8>) -> Option<End> {
        client.as_mut().map_or(Some(End::Reset), |client| read_some(client, into))
    }

    fn limit_connections(&mut self, connections_max: usize) {
        self.io.limit_connections(connections_max);
    }

    fn open(&self) -> usize {
        self.io.open_connections()
    }

    fn turn<H: Handler<Epoll>>(&mut self, server: &mut H) {
        self.io.turn(server, Some(self.io.now_ms() + 2)).unwrap();
    }

    fn settle<H: Handler<Epoll>>(&mut self, server: &mut H) {
        // Turns with events are short. Each turn without one waits in the kernel.
        let began = Instant::now();
        let mut turns = 0;
        while began.elapsed() < Duration::from_millis(50) {
            self.io.turn(server, Some(self.io.now_ms() + 5)).unwrap();
            turns += 1;
        }
        assert!(turns < 1_000, "it spins");
    }

    fn pass<H: Handler<Epoll>>(&mut self, server: &mut H, ms: u64) {
        let until_ms = self.io.now_ms() + ms;
        while self.io.now_ms() < until_ms {
            self.io.turn(server, Some(until_ms)).unwrap();
        }
    }
}

/// The simulator. A test that fails says with which seed.
pub(super) struct Simulator {
    sim: Sim,
    seed: u64,
}

impl Simulator {
    /// Breaks nothing by itself, but is unkind in all other ways by the seed.
    pub(super) fn new(seed: u64) -> Simulator {
        let is_unkind = !seed.is_multiple_of(4);
        let faults = Faults {
            split_percent: if is_unkind { 50 } else { 0 },
            refuse_percent: if is_unkind { 50 } else { 0 },
            reset_per_10_000: 0,
            delay_ms_max: seed % 4,
            window_bytes: if seed % 8 < 4 { 10_000 } else { 90_000 },
        };
        Simulator { sim: Sim::new(seed, faults), seed }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.seed);
        }
    }
}

impl Network for Simulator {
    type Io = Sim;
    type Client = Client;
    const MUCH: usize = 200_000;

    fn io(&mut self) -> &mut Sim {
        &mut self.sim
    }

    fn connect(&mut self, role: Role, first: &[u8]) -> Client {
        let client = self.sim.connect_from(role, Some(ADDRESS));
        self.sim.write(client, first);
        client
    }

    fn write(&mut self, client: &mut Client, bytes: &[u8]) {
        self.sim.write(*client, bytes);
    }

    fn finish(&mut self, client: &Client) {
        self.sim.finish_client(*client);
    }

    fn reset(&mut self, client: &mut Client) {
        self.sim.reset_client(*client);
    }

    fn stall(&mut self, client: &Client, is_stalled: bool) {
        self.sim.stall(*client, is_stalled);
    }

    fn read(&mut self, client: &mut Client, into: &mut Vec<u8>) -> Option<End> {
        into.extend(self.sim.read(*client));
        match (self.sim.was_reset(*client), self.sim.ended(*client)) {
            (true, _) => Some(End::Reset),
            (_, true) => Some(End::Finished),
            _ => None,
        }
    }

    fn limit_connections(&mut self, connections_max: usize) {
        self.sim.limit_connections(connections_max);
    }

    fn open(&self) -> usize {
        self.sim.open_sockets()
    }

    fn turn<H: Handler<Sim>>(&mut self, server: &mut H) {
        self.sim.turn(server);
    }

    fn settle<H: Handler<Sim>>(&mut self, server: &mut H) {
        let mut turns = 0;
        while self.sim.turn(server) {
            turns += 1;
            assert!(turns < 1_000_000, "it does not come to rest");
        }
    }

    fn pass<H: Handler<Sim>>(&mut self, _: &mut H, ms: u64) {
        self.sim.sleep(ms);
    }
}

/// Whether so many wait to be accepted.
pub(super) fn waiting(queue: AcceptQueue) -> usize {
    queue.waiting as usize
}
