//! The kernel as a backend: one epoll instance, edge-triggered, for one worker thread.
//!
//! Why edge-triggered: a level-triggered socket is put back and polled again by every wait after
//! an event, which costs each request about as much as parsing it. The price is care: a read
//! that fills the buffer, a pause, or a read cut short for fairness has used up the edge. All
//! three are mended the same way, by `EPOLL_CTL_MOD`, after which the kernel reports the socket
//! again if anything waits. No list of half-read sockets is kept here.
//!
//! Listeners are level-triggered: see `epoll/listening.rs`.

mod clock;
mod handover;
mod listening;
mod reserved;
mod send;
mod set;

use self::clock::TurnClock;
use self::handover::HandingOver;
pub use self::handover::Parts;
use self::listening::Listening;
use self::reserved::ReservedDescriptors;
use self::send::{send_part_of, send_parts};
use self::set::EpollSet;
use crate::owned::OpenSockets;
use crate::process::timespec;
use crate::queue::AcceptQueue;
use crate::socket::{Dial, dial, limit_retransmission, limit_unsent, trust_reader};
use crate::{
    Backend, File, FileSendError, Flow, Gone, Handler, LAYERED, Listener, PROXIED, Pause, Peer,
    Refused, Retransmission, Role, Sent, TurnAway, Waker, monotonic_us,
};
use rustix::event::epoll::{Event, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketAddrAny, sockopt};
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// One worker's network: its epoll instance, its listeners, its receive buffer.
pub struct Epoll {
    set: EpollSet,
    listening: Listening,
    waker: Arc<Waker>,
    /// The connections. No other descriptor is touched, whatever number a handler comes with.
    owned: OpenSockets,
    /// Descriptors that connections do not get.
    reserved: ReservedDescriptors,
    /// Another process is about to take over.
    handing_over: Option<Box<HandingOver>>,
    /// A process that did not take over may have the sockets with numbers below this one open.
    shared_below: u32,
    /// Connections that the kernel had no memory to register. The worker accepts no other until
    /// they are registered.
    unregistered: Vec<Peer>,
    /// When the wait is to end, on the clock of [`monotonic_us`].
    wake_us: Option<u64>,
    /// Why the connection that ended last did, if it was not an orderly end.
    broken: Option<Errno>,
    /// Lent to the handler, one read at a time.
    buffer: Vec<u8>,
    reported: Reported,
    clock: TurnClock,
    /// Its descriptors are of the thread's own file table, so it is neither `Send` nor `Sync`.
    _of_thread: PhantomData<*const ()>,
}

/// The events that the kernel reported last. An edge is reported once, so they outlive a turn that
/// a panic cut short.
struct Reported {
    events: Vec<Event>,
    /// How many of them the worker has seen to.
    handled: usize,
}

impl Reported {
    /// The next event, and that it is handled from now on.
    fn next(&mut self) -> Option<(EventFlags, u64)> {
        let event = self.events.get(self.handled)?;
        self.handled += 1;
        Some((event.flags, event.data.u64()))
    }
}

impl Epoll {
    /// A backend for the calling thread, which should have its own file table already.
    ///
    /// # Errors
    /// Out of files or memory, or the user has as many files in epoll sets as it may.
    pub fn new(listeners: Vec<(Listener, Role)>, waker: Arc<Waker>) -> io::Result<Epoll> {
        let set = EpollSet::new()?;
        set.add(waker.as_fd(), WAKER, EventFlags::IN | EventFlags::ET)?;
        let (mut listening, clock) = (Listening::new(listeners), TurnClock::new());
        listening.begin(&set, clock.now_ms)?;
        Ok(Epoll {
            set,
            listening,
            waker,
            owned: OpenSockets::default(),
            reserved: ReservedDescriptors::default(),
            handing_over: None,
            shared_below: 0,
            unregistered: Vec::new(),
            wake_us: None,
            broken: None,
            buffer: vec![0; RECEIVE_BYTES],
            reported: Reported { events: Vec::with_capacity(EVENTS_PER_TURN), handled: 0 },
            clock,
            _of_thread: PhantomData,
        })
    }

    /// From now on holds at most so many connections: others wait in the listening queues until
    /// one is closed. What files the limit of the process leaves then are for other things.
    pub fn limit_connections(&mut self, connections_max: usize) {
        self.listening.limit_connections(connections_max);
    }

    /// Begins a connection to a server. [`Handler::ready`] is called as soon as it is established
    /// or has failed; [`Epoll::connect_error`] tells which.
    ///
    /// # Errors
    /// Out of files, memory or ports; or there is no way to that address.
    pub fn connect(&mut self, dialled: &Dial) -> io::Result<Peer> {
        let fd = dial(dialled)?;
        let socket = self.owned.insert(fd);
        // Room to write is of interest from the start: the handshake's end is told by it. Once
        // connected it comes together with what is read, and by itself only when it is awaited.
        if let Err(error) = self.add(socket, READABLE | EventFlags::OUT) {
            drop(self.owned.remove(socket));
            return Err(error.into());
        }
        Ok(socket)
    }

    /// Why a connection could not be established. None: it was. Asked once, at its first
    /// [`Handler::ready`].
    pub fn connect_error(&mut self, socket: Peer) -> Option<io::Error> {
        let Some(fd) = self.owned.get(socket) else { return Some(Errno::BADF.into()) };
        match sockopt::socket_error(fd) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error.into()),
        }
    }

    /// Within [`Handler::ended`]: why the connection ended. None: the peer ended it in order.
    #[must_use]
    pub fn ended_by(&self) -> Option<io::Error> {
        self.broken.map(io::Error::from)
    }

    /// Makes [`Epoll::turn`] return by `at_us`, on the clock of [`monotonic_us`]. Finer than a
    /// deadline, which is in milliseconds. There is one such time, the earliest; it counts once.
    pub fn wake_by(&mut self, at_us: u64) {
        self.wake_us = Some(self.wake_us.map_or(at_us, |earlier_us| earlier_us.min(at_us)));
    }

    /// Waits until something happens or `deadline_ms` (on [`Backend::now_ms`]'s clock) has come,
    /// and hands it to the handler. Returns whether the waker had been called.
    ///
    /// # Errors
    /// Only if the epoll instance itself is broken.
    pub fn turn<H>(&mut self, handler: &mut H, deadline_ms: Option<u64>) -> io::Result<bool>
    where
        H: Handler<Epoll>,
    {
        if self.reported.handled == self.reported.events.len() {
            self.wait(deadline_ms)?;
        }
        while let Some((flags, data)) = self.reported.next() {
            match data {
                WAKER => {}
                data if data >= LISTENER => {
                    // mutation: arrivals-first
                    self.listening.report((data - LISTENER) as usize);
                }
                data => self.serve(handler, Peer(data as u32), flags),
            }
        }
        self.accept_arrivals(handler);
        self.register_again(handler);
        self.listening.look_at_queues(self.clock.turn_us);
        Ok(self.waker.take())
    }

    fn wait(&mut self, deadline_ms: Option<u64>) -> io::Result<()> {
        self.reported.handled = 0;
        self.reported.events.clear();
        let mut timeout_ms = self.timeout_ms(deadline_ms);
        let wait_us = monotonic_us();
        if let Some(at_us) = self.wake_us {
            // The time that `epoll_wait` takes is in milliseconds.
            let until_us = timeout_ms.map_or(u64::MAX, |ms| wait_us.saturating_add(ms * 1_000));
            let left_us = at_us.min(until_us).saturating_sub(wait_us);
            let mut asked = [PollFd::new(&self.set, PollFlags::IN)];
            let _ = poll(&mut asked, Some(&timespec(left_us)));
            timeout_ms = Some(left_us.div_ceil(1_000));
        }
        let waits_ms = if self.wake_us.is_some() { Some(0) } else { timeout_ms };
        self.set.wait(&mut self.reported.events, waits_ms)?;
        self.clock.read_after_wait(wait_us, timeout_ms);
        self.wake_us = self.wake_us.filter(|&at_us| at_us > self.clock.turn_us);
        Ok(())
    }

    /// How long to wait for an event; `None`: for as long as it takes.
    fn timeout_ms(&self, deadline_ms: Option<u64>) -> Option<u64> {
        let now_ms = self.clock.now_ms;
        let retry_ms = self.listening.next_ms(now_ms, self.owned.len());
        let until = deadline_ms.into_iter().chain(retry_ms).min()?;
        Some(until.saturating_sub(now_ms))
    }

    /// Has the kernel report again what it had no memory for: connections, then the listeners.
    /// Without memory for them, nothing is accepted until the next try.
    fn register_again<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        let now_ms = self.clock.now_ms;
        if !self.unregistered.is_empty() && !self.listening.is_paused(now_ms) {
            std::mem::take(&mut self.unregistered).into_iter().for_each(|peer| self.rearm(peer));
            if !self.unregistered.is_empty() {
                self.pause(handler, Pause::Exhausted);
            }
        }
        if self.listening.resume(&self.set, self.owned.len(), now_ms).is_err() {
            handler.accept_paused(Pause::Exhausted);
        }
    }

    fn serve<H: Handler<Epoll>>(&mut self, handler: &mut H, socket: Peer, flags: EventFlags) {
        let hangup = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        // A broken socket counts as writable, but nothing is to be done for its peer any more.
        let writable = flags.contains(EventFlags::OUT) && !flags.contains(EventFlags::ERR);
        let mut flow = Flow::Pause;
        if handler.ready(self, socket, writable) {
            flow = Flow::More;
            if hangup || flags.contains(EventFlags::IN) {
                flow = self.read(handler, socket, hangup);
            }
        }
        if hangup && flow == Flow::Pause {
            self.tell_of_end(handler, socket);
        }
    }

    /// Tells a handler that does not read how the connection has ended, which reading would have
    /// told. The socket itself is asked: the event may be of another that had its number before.
    fn tell_of_end<H: Handler<Epoll>>(&mut self, handler: &mut H, socket: Peer) {
        let Some(fd) = self.owned.get(socket) else { return };
        let mut asked = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
        if poll(&mut asked, Some(&timespec(0))).is_err() {
            return;
        }
        let flags = asked[0].revents();
        if flags.contains(PollFlags::ERR) {
            self.broken = sockopt::socket_error(fd).ok().and_then(Result::err);
            handler.ended(self, socket);
        } else if flags.intersects(PollFlags::RDHUP | PollFlags::HUP) {
            handler.finished(self, socket);
        }
    }

    /// Reads until the socket is empty, the handler has had enough, or the turn's share is used.
    /// After a hang-up a short read does not mean empty: the end itself is still to be read.
    fn read<H: Handler<Epoll>>(&mut self, handler: &mut H, socket: Peer, hangup: bool) -> Flow {
        let mut buffer = std::mem::take(&mut self.buffer);
        // Lost, if the handler panicked with it.
        buffer.resize(RECEIVE_BYTES, 0);
        let mut flow = Flow::More;
        let mut drained = false;
        for _ in 0..READS_PER_TURN {
            let Some(fd) = self.owned.get(socket) else {
                flow = Flow::Closed;
                break;
            };
            match net::recv(fd, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.broken = None;
                    handler.ended(self, socket);
                    flow = Flow::Closed;
                }
                Ok((_, length)) => {
                    flow = handler.received(self, socket, &mut buffer[..length]);
                    drained = length < RECEIVE_BYTES && !hangup;
                }
                Err(Errno::AGAIN) => drained = true,
                Err(Errno::INTR) => continue,
                // Reset or timed out: nothing more comes, as after an orderly end.
                Err(error) => {
                    self.broken = Some(error);
                    handler.ended(self, socket);
                    flow = Flow::Closed;
                }
            }
            if drained || flow != Flow::More {
                break;
            }
        }
        self.buffer = buffer;
        if !drained && flow == Flow::More {
            self.rearm(socket);
        }
        flow
    }

    /// Begins a connection. Its first bytes are often there already; reading them before the
    /// socket is registered saves the registration of those that ask once and close.
    fn admit<H: Handler<Epoll>>(
        &mut self,
        handler: &mut H,
        accepted: OwnedFd,
        role: Role,
        peer: Option<IpAddr>,
    ) {
        let accepted = self.reserved.move_out(accepted);
        let socket = self.owned.insert(accepted);
        if let Some(handing_over) = &mut self.handing_over {
            handing_over.note(socket);
        }
        let admission = Admission { io: self, socket };
        let accepted = handler.accepted(admission.io, socket, role, peer);
        drop(admission);
        if let Err(refused) = accepted {
            return self.turn_away(socket, refused);
        }
        // A layer may not have room for what it would have to do at once, and a header of a proxy
        // comes first.
        let reads = role & (LAYERED | PROXIED) == 0 || handler.ready(self, socket, false);
        if reads && self.read(handler, socket, false) == Flow::Closed {
            return;
        }
        match self.add(socket, READABLE) {
            // Registered by a send that was cut short, or by a read that was.
            Ok(()) | Err(Errno::EXIST | Errno::BADF) => {}
            Err(_) => self.unregistered.push(socket),
        }
    }

    /// Says why to a connection that is not wanted, and closes it. What it has sent already is
    /// read, as a rule all of it: to close on unread bytes would be a reset, and overtake the
    /// answer.
    fn turn_away(&mut self, socket: Peer, refused: Refused) {
        if let Some(fd) = self.owned.get(socket) {
            self.buffer.resize(RECEIVE_BYTES, 0);
            let asked = net::recv(fd, &mut self.buffer[..], RecvFlags::empty());
            let asked = &self.buffer[..asked.map_or(0, |(_, length)| length)];
            let _ = net::send(fd, &refused.farewell(asked), SendFlags::NOSIGNAL);
        }
        self.close(socket);
    }

    #[cfg(test)]
    pub(crate) fn open_connections(&self) -> usize {
        self.owned.len()
    }

    /// Asks the kernel to report the socket again if it can be read or written now.
    fn rearm(&mut self, socket: Peer) {
        let Some(fd) = self.owned.get(socket) else { return };
        if self.set.modify(fd, u64::from(socket.0), READABLE | EventFlags::OUT).is_err() {
            self.unregistered.push(socket);
        }
    }

    fn add(&self, socket: Peer, flags: EventFlags) -> rustix::io::Result<()> {
        let fd = self.owned.get(socket).ok_or(Errno::BADF)?;
        self.set.add(fd, u64::from(socket.0), flags)
    }

    /// Closes a socket, whoever else has it.
    fn let_go(&mut self, socket: Peer, is_reset: bool) {
        if let Some(fd) = self.owned.remove(socket)
            && self.is_shared(socket)
        {
            handover::end(fd, is_reset);
        }
        self.unregistered.retain(|other| *other != socket);
        self.listening.freed_a_file(self.clock.now_ms);
    }
}

impl Backend for Epoll {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms
    }

    fn turn_us(&self) -> u64 {
        self.clock.turn_us
    }

    fn unix_s(&self) -> u64 {
        self.clock.unix_s
    }

    fn send(&mut self, socket: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone> {
        let fd = self.owned.get(socket).ok_or(Gone)?;
        let sent = Sent::of(send_parts(fd, parts, SendFlags::NOSIGNAL)?, bytes_of(parts));
        if sent.full {
            self.rearm(socket);
        }
        Ok(sent)
    }

    fn send_file(
        &mut self,
        socket: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError> {
        let fd = self.owned.get(socket).ok_or(Gone)?;
        let mut sent = 0;
        if !before.is_empty() {
            // What belongs together travels together: the kernel waits for the file.
            let more = if length > 0 { SendFlags::MORE } else { SendFlags::empty() };
            sent = send_parts(fd, before, SendFlags::NOSIGNAL | more)?;
        }
        let before = bytes_of(before);
        if sent == before && length > 0 {
            sent += send_part_of(fd, file, offset, length)?;
        }
        let sent = Sent::of(sent, before + length);
        if sent.full {
            trust_reader(fd);
            self.rearm(socket);
        }
        Ok(sent)
    }

    fn now_us(&self) -> u64 {
        monotonic_us()
    }

    fn peek(&mut self, socket: Peer, buffer: &mut [u8]) -> usize {
        let Some(fd) = self.owned.get(socket) else { return 0 };
        // The event that comes with an end or an error tells of it.
        net::recv(fd, buffer, RecvFlags::PEEK).map_or(0, |(_, length)| length)
    }

    fn discard(&mut self, socket: Peer, bytes: usize) {
        self.buffer.resize(RECEIVE_BYTES, 0);
        if let Some(fd) = self.owned.get(socket) {
            let _ = net::recv(fd, &mut self.buffer[..bytes], RecvFlags::empty());
        }
    }

    fn remote_address(&self, socket: Peer) -> Option<IpAddr> {
        address_of(net::getpeername(self.owned.get(socket)?).ok()?)
    }

    fn begin_stream(&mut self, socket: Peer, retransmission: Retransmission) {
        if let Some(fd) = self.owned.get(socket) {
            limit_unsent(fd);
            limit_retransmission(fd, retransmission);
        }
    }

    fn unacknowledged(&self, socket: Peer) -> u32 {
        self.owned.get(socket).map_or(0, crate::socket::unacknowledged)
    }

    fn kernel_bytes(&self, socket: Peer) -> usize {
        self.owned.get(socket).map_or(0, crate::socket::kernel_bytes)
    }

    fn resume(&mut self, socket: Peer) {
        self.rearm(socket);
    }

    fn finish(&mut self, socket: Peer) {
        if let Some(fd) = self.owned.get(socket) {
            let _ = net::shutdown(fd, net::Shutdown::Write);
        }
    }

    fn close(&mut self, socket: Peer) {
        self.let_go(socket, false);
    }

    fn abort(&mut self, socket: Peer) {
        if let Some(fd) = self.owned.get(socket) {
            let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
        }
        self.let_go(socket, true);
    }

    fn refuse_new(&mut self, how: TurnAway) {
        self.listening.refuse_new(&self.set, how);
    }

    fn close_listeners(&mut self) {
        self.listening.close(self.clock.now_ms);
    }

    fn rest(&mut self, roles: &'static [Role]) {
        self.listening.rest(&self.set, roles);
    }

    fn accept_queue(&self) -> AcceptQueue {
        self.listening.accept_queue()
    }
}

/// The address of a peer; a socket file's has none.
fn address_of(peer: Option<SocketAddrAny>) -> Option<IpAddr> {
    SocketAddr::try_from(peer?).ok().map(|peer| peer.ip())
}

fn bytes_of(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// A connection that the handler is being told of. If the handler panics, it may not know it.
struct Admission<'e> {
    io: &'e mut Epoll,
    socket: Peer,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.io.let_go(self.socket, false);
        }
    }
}

/// Interest of every connection; room to write is added when a send was cut short.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// Event data of the waker and, counted up from it, of the listeners; below are sockets.
const WAKER: u64 = 1 << 32;
const LISTENER: u64 = WAKER + 1;

/// The receive buffer, one for each worker: a whole burst of pipelined requests in one read.
const RECEIVE_BYTES: usize = 64 * 1024;
/// How many times one socket is read before the others have their turn.
const READS_PER_TURN: usize = 2;
const EVENTS_PER_TURN: usize = 256;
/// How soon accepting is tried again when files may have been freed elsewhere on the host; files
/// this worker frees itself make it try at once.
pub(crate) const ACCEPT_RETRY_MS: u64 = 50;
#[cfg(test)]
mod tests {
    use super::clock::PAUSE_US;
    use super::listening::{ACCEPT_PART, ACCEPT_SHARE_US};
    use super::*;

    /// There is nothing to handle.
    struct Nobody;

    impl Handler<Epoll> for Nobody {
        fn accepted(
            &mut self,
            _: &mut Epoll,
            _: Peer,
            _: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            Ok(())
        }

        fn ready(&mut self, _: &mut Epoll, _: Peer, _: bool) -> bool {
            false
        }

        fn received(&mut self, _: &mut Epoll, _: Peer, _: &mut [u8]) -> Flow {
            Flow::More
        }

        fn ended(&mut self, _: &mut Epoll, _: Peer) {}
    }

    /// Notes who comes, and is slow to take them in.
    #[derive(Default)]
    struct Slow {
        /// Those who come, and who is heard of.
        seen: Vec<(bool, u64)>,
    }

    impl Handler<Epoll> for Slow {
        fn accepted(
            &mut self,
            _: &mut Epoll,
            _: Peer,
            _: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            let now_us = monotonic_us();
            self.seen.push((true, now_us));
            while monotonic_us() < now_us + 2 * ACCEPT_SHARE_US {}
            Ok(())
        }

        fn ready(&mut self, _: &mut Epoll, _: Peer, _: bool) -> bool {
            self.seen.push((false, monotonic_us()));
            true
        }

        fn received(&mut self, _: &mut Epoll, _: Peer, _: &mut [u8]) -> Flow {
            Flow::More
        }

        fn ended(&mut self, _: &mut Epoll, _: Peer) {}
    }

    #[test]
    fn whoever_is_connected_comes_first_and_arrivals_have_a_share() {
        use std::io::Write;
        use std::net::TcpStream;
        let reserved = [(); 2].map(|()| crate::reserve("127.0.0.1:0".parse().unwrap()).unwrap());
        let listeners = reserved.iter().enumerate();
        let listeners = listeners.map(|(role, at)| (at.listen().unwrap(), role as Role)).collect();
        let mut io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        let mut handler = Slow::default();
        let connect = |index: usize| {
            let mut client = TcpStream::connect(reserved[index].address()).unwrap();
            client.write_all(b"?").unwrap();
            client
        };
        let mut connected = connect(0);
        while handler.seen.is_empty() {
            io.turn(&mut handler, Some(io.now_ms() + 1)).unwrap();
        }
        let _arrivals: Vec<_> = (0..2 * ARRIVALS).map(|n| connect(n % 2)).collect();
        let mut left = 2 * ARRIVALS;
        while left > 0 {
            handler.seen.clear();
            connected.write_all(b"?").unwrap();
            let began_us = monotonic_us();
            io.turn(&mut handler, Some(io.now_ms() + 5_000)).unwrap();
            let arrived = handler.seen.iter().filter(|(arrived, _)| *arrived).count();
            left -= arrived;
            let Some(&(_, first_us)) = handler.seen.iter().find(|(arrived, _)| *arrived) else {
                continue;
            };
            // Each takes two shares. Should the machine stand still meanwhile, they have more.
            let share_us = ACCEPT_SHARE_US.max((first_us - began_us) / ACCEPT_PART);
            let most = share_us / (2 * ACCEPT_SHARE_US) + 1;
            assert!(arrived as u64 <= most, "{arrived} in one turn");
            assert!(!handler.seen[0].0, "who was connected already waits for them");
        }
    }

    const ARRIVALS: usize = 10;

    #[test]
    fn deadlines_come_though_every_turn_is_long() {
        let mut io = Epoll::new(Vec::new(), Arc::new(Waker::new().unwrap())).unwrap();
        let mut turn = || {
            let before_ms = io.now_ms();
            io.turn(&mut Nobody, Some(before_ms + 20)).unwrap();
            io.now_ms() - before_ms
        };
        // The first only adds the listeners.
        turn();
        assert!(turn() >= 20);
        std::thread::sleep(Duration::from_micros(PAUSE_US + 3_000_000));
        let counted_ms = turn();
        assert!((1_000..3_000).contains(&counted_ms), "{counted_ms} ms");
    }

    #[test]
    fn those_who_wait_are_counted() {
        use std::io::Write;
        use std::net::TcpStream;
        let reserved = crate::reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let listeners = vec![(reserved.listen().unwrap(), 0)];
        let mut io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        io.limit_connections(1);
        let connect = |_| {
            let mut client = TcpStream::connect(reserved.address()).unwrap();
            client.write_all(b"?").unwrap();
            client
        };
        let _clients: Vec<_> = (0..ARRIVALS).map(connect).collect();
        let mut handler = Slow::default();
        let mut turns = 0;
        let mut until = |io: &mut Epoll, waiting: usize| {
            while io.accept_queue().waiting as usize != waiting {
                io.turn(&mut handler, None).unwrap();
                turns += 1;
                assert!(turns < 1_000, "{:?}", io.accept_queue());
            }
        };
        until(&mut io, ARRIVALS - 1);
        let age_ms = io.accept_queue().age_ms;
        assert!(age_ms > 0);
        io.limit_connections(usize::MAX);
        until(&mut io, 0);
        assert_eq!(io.accept_queue(), AcceptQueue::default());
    }

    #[test]
    fn an_alarm_ends_one_wait_in_time() {
        let waker = Arc::new(Waker::new().unwrap());
        let mut io = Epoll::new(Vec::new(), waker).unwrap();
        // The first wait is for the listeners, of which there are none.
        io.turn(&mut Nobody, Some(0)).unwrap();
        for _ in 0..3 {
            let began_us = monotonic_us();
            io.wake_by(began_us + 700_000);
            io.wake_by(began_us + 2_500);
            io.wake_by(began_us + 900_000);
            io.turn(&mut Nobody, Some(io.now_ms() + 5_000)).unwrap();
            let waited_us = monotonic_us() - began_us;
            assert!((2_500..600_000).contains(&waited_us), "{waited_us} us");
        }
        // It counted once.
        let began_us = monotonic_us();
        io.turn(&mut Nobody, Some(io.now_ms() + 50)).unwrap();
        assert!(monotonic_us() - began_us >= 45_000);
        io.wake_by(0);
        io.turn(&mut Nobody, Some(io.now_ms() + 5_000)).unwrap();
        assert!(monotonic_us() - began_us < 4_000_000, "a time that has passed is one, too");
    }

    fn without_listeners() -> Epoll {
        Epoll::new(Vec::new(), Arc::new(Waker::new().unwrap())).unwrap()
    }

    #[test]
    fn accepting_pauses_when_descriptors_run_out() {
        let mut io = without_listeners();
        io.listening.pause(&io.set, Pause::Exhausted, io.clock.now_ms);
        assert_eq!(io.timeout_ms(None), Some(ACCEPT_RETRY_MS));
    }

    #[test]
    fn accepting_gets_its_part_of_a_long_turn() {
        let mut io = without_listeners();
        let now_us = monotonic_us();
        io.clock.turn_us = now_us - 1_000_000;
        assert!(io.share_ends_us() >= now_us + 1_000_000 / ACCEPT_PART);
        io.clock.turn_us = monotonic_us() + 1_000_000;
        assert!(io.share_ends_us() >= now_us + ACCEPT_SHARE_US);
    }

    /// Counts how often it receives bytes.
    struct Reads(usize);

    impl Handler<Epoll> for Reads {
        fn accepted(
            &mut self,
            _: &mut Epoll,
            _: Peer,
            _: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            Ok(())
        }
        fn ready(&mut self, _: &mut Epoll, _: Peer, _: bool) -> bool {
            true
        }
        fn received(&mut self, _: &mut Epoll, _: Peer, _: &mut [u8]) -> Flow {
            self.0 += 1;
            Flow::More
        }
        fn ended(&mut self, _: &mut Epoll, _: Peer) {}
    }

    #[test]
    fn a_turn_reads_little_of_one_client() {
        use std::io::Write;
        use std::net::TcpStream;
        let reserved = crate::reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let listeners = vec![(reserved.listen().unwrap(), 0)];
        let mut io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        let mut client = TcpStream::connect(reserved.address()).unwrap();
        client.write_all(b"?").unwrap();
        let mut handler = Reads(0);
        while handler.0 == 0 {
            io.turn(&mut handler, Some(io.now_ms() + 5_000)).unwrap();
        }
        client.set_nonblocking(true).unwrap();
        let (mut sent, mut most) = (0, 0);
        while let Ok(bytes) = client.write(&[0; 64 * 1024]) {
            sent += bytes;
        }
        assert!(sent > 2 * READS_PER_TURN * RECEIVE_BYTES, "the kernel took {sent} bytes");
        for _ in 0..100 {
            handler.0 = 0;
            io.turn(&mut handler, Some(io.now_ms() + 5)).unwrap();
            most = most.max(handler.0);
        }
        assert_eq!(most, READS_PER_TURN);
    }

    #[test]
    fn a_stream_has_its_user_timeout() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let retransmission = Retransmission { pause_ms_max: 2_000, give_up_ms: 30_000 };
        limit_retransmission(socket.as_fd(), retransmission);
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(30_000));
    }
}
