//! The kernel as a backend: one epoll instance, edge-triggered, for one worker thread.
//!
//! Why edge-triggered: a level-triggered socket is put back and polled again by every wait after
//! an event, which costs each request about as much as parsing it. The price is care: a read
//! that fills the buffer, a pause, or a read cut short for fairness has used up the edge. All
//! three are mended the same way, by `EPOLL_CTL_MOD`, after which the kernel reports the socket
//! again if anything waits. No list of half-read sockets is kept here.
//!
//! Listeners are level-triggered: accepting stops when its share of the turn is over, and the rest
//! is reported again. They come last in a turn, behind everybody who is connected already: whatever
//! arrives gets the time that those leave, and at least its share. A share is time and not a count,
//! since what an arrival costs depends on what it asks for at once. While no more may be accepted
//! they are out of the epoll set, for they would be reported without end.

mod handover;
mod send;
mod vanishing;

use self::handover::HandingOver;
pub use self::handover::Parts;
use self::send::{send_part_of, send_parts};
use self::vanishing::Vanishing;
use crate::owned::Owned;
use crate::process::timespec;
use crate::queue::{self, AcceptQueue, LOOK_US, QueueWatch};
use crate::socket::{Dial, dial, limit_retransmission, limit_unsent, trust_reader};
use crate::{
    Backend, File, FileSendError, Flow, Gone, Handler, LAYERED, Listener, PROXIED, Pause, Peer,
    Refused, Retransmission, Role, Sent, TurnAway, Waker, listener_of, monotonic_us, unix_s,
};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// One worker's network: its epoll instance, its listeners, its receive buffer.
pub struct Epoll {
    epoll: OwnedFd,
    listeners: Vec<(Listener, Role)>,
    accepting: Accepting,
    /// Listeners of these roles are out of the epoll set until further notice.
    resting: &'static [Role],
    waker: Arc<Waker>,
    /// The connections. No other descriptor is touched, whatever number a handler comes with.
    owned: Owned,
    /// No more of them are accepted.
    connections_max: usize,
    /// What keeps numbers below a certain one from being theirs.
    kept: Vec<OwnedFd>,
    kept_below: u32,
    /// Those of the listeners that nobody new comes to.
    vanishing: Option<Vanishing>,
    /// Another process is about to take over.
    handing_over: Option<Box<HandingOver>>,
    /// Ends waits at a time finer than a deadline, once that was asked for.
    alarm: Option<OwnedFd>,
    /// When it goes off, in microseconds.
    alarm_us: u64,
    /// Why the connection that ended last did, if it was not an orderly end.
    broken: Option<Errno>,
    /// Lent to the handler, one read at a time.
    buffer: Vec<u8>,
    /// What the kernel reported last, of which `handled` have been seen to. An edge is reported
    /// once, so this outlives a turn that a panic cut short.
    events: Vec<Event>,
    handled: usize,
    /// The listeners among them.
    arrivals: Vec<usize>,
    /// Which of several listeners comes first, in turn.
    first: usize,
    queue: QueueWatch,
    /// The turn did not come to the end of what has arrived.
    leaves_some: bool,
    /// Where `now_ms` counts from; a pause of the process moves it.
    zero_us: u64,
    turn_us: u64,
    now_ms: u64,
    unix_s: u64,
    /// Its descriptors are of the thread's own file table, so it is neither `Send` nor `Sync`.
    _of_thread: PhantomData<*const ()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accepting {
    Yes,
    /// Out of files or memory: the listeners are out of the epoll set until this time.
    PausedUntil(u64),
    /// As many connections as there may be: they are out of it until one is closed.
    Full,
    /// The listeners are to be emptied and closed, from this time on.
    Closing(u64),
}

/// What came of accepting a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accepted {
    /// The queue is empty.
    All,
    /// There may be more.
    Some,
    /// There may be more, but no room for it.
    NoRoom(Pause),
}

impl Epoll {
    /// A backend for the calling thread, which should have its own file table already.
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn new(listeners: Vec<(Listener, Role)>, waker: Arc<Waker>) -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, waker.as_fd(), EventData::new_u64(WAKER), flags)?;
        let mut this = Epoll {
            epoll,
            listeners,
            accepting: Accepting::PausedUntil(0),
            resting: &[],
            waker,
            owned: Owned::default(),
            connections_max: usize::MAX,
            kept: Vec::new(),
            kept_below: 0,
            vanishing: None,
            handing_over: None,
            alarm: None,
            alarm_us: u64::MAX,
            broken: None,
            buffer: vec![0; RECEIVE_BYTES],
            events: Vec::with_capacity(EVENTS_PER_TURN),
            handled: 0,
            arrivals: Vec::new(),
            first: 0,
            queue: QueueWatch::default(),
            leaves_some: false,
            zero_us: monotonic_us(),
            turn_us: 0,
            now_ms: 0,
            unix_s: 0,
            _of_thread: PhantomData,
        };
        this.read_clocks();
        Ok(this)
    }

    /// From now on holds at most so many connections: others wait in the listening queues until
    /// one is closed. What files the limit of the process leaves then are for other things.
    pub fn limit_connections(&mut self, connections_max: usize) {
        self.connections_max = connections_max;
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
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn wake_by(&mut self, at_us: u64) -> io::Result<()> {
        if self.alarm_us <= at_us {
            return Ok(());
        }
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => self.make_alarm()?,
        };
        // A value of zero would mean never.
        let at_us = at_us.max(1);
        let once = Itimerspec { it_interval: timespec(0), it_value: timespec(at_us) };
        timerfd_settime(&alarm, TimerfdTimerFlags::ABSTIME, &once)?;
        self.alarm = Some(alarm);
        self.alarm_us = at_us;
        Ok(())
    }

    /// Edge-triggered, it need not be read.
    fn make_alarm(&self) -> io::Result<OwnedFd> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &alarm, EventData::new_u64(ALARM), flags)?;
        Ok(alarm)
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
        if self.handled == self.events.len() {
            self.wait(deadline_ms)?;
        }
        while let Some(event) = self.events.get(self.handled) {
            let (flags, data) = (event.flags, event.data.u64());
            self.handled += 1;
            match data {
                WAKER => {}
                ALARM => self.alarm_us = u64::MAX,
                data if data >= LISTENER => self.arrivals.push((data - LISTENER) as usize),
                data => self.serve(handler, Peer(data as u32), flags),
            }
        }
        self.accept_arrivals(handler);
        self.tend_listeners(handler);
        self.tend_vanishing(handler);
        self.look_at_queues();
        Ok(self.waker.take())
    }

    fn wait(&mut self, deadline_ms: Option<u64>) -> io::Result<()> {
        self.events.clear();
        self.arrivals.clear();
        self.handled = 0;
        let timeout_ms = self.timeout_ms(deadline_ms);
        let timeout = timeout_ms.map(|ms| timespec(ms * 1_000));
        let room = rustix::buffer::spare_capacity(&mut self.events);
        let turn_us = self.turn_us;
        let wait_us = monotonic_us();
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let worked_us = wait_us.saturating_sub(turn_us);
        let now_us = monotonic_us();
        let waited_us = now_us.saturating_sub(wait_us);
        self.zero_us += uncounted_us(worked_us, waited_us, timeout_ms.map(|ms| ms * 1_000));
        self.set_clocks(now_us);
        Ok(())
    }

    /// How long to wait for an event; `None`: for as long as it takes.
    fn timeout_ms(&self, deadline_ms: Option<u64>) -> Option<u64> {
        let retry_ms = match self.accepting {
            Accepting::Yes if self.resting.is_empty() => None,
            Accepting::Full if self.has_room() => Some(self.now_ms),
            // Nobody comes in, and those who wait are to be counted.
            Accepting::Yes | Accepting::Full => Some(self.now_ms + 2 * LOOK_US / 1_000),
            Accepting::PausedUntil(at) => Some(at),
            Accepting::Closing(at) => Some(at),
        };
        let vanish_ms = self.vanishing.map(|vanishing| vanishing.at_ms);
        let retry_ms = retry_ms.into_iter().chain(vanish_ms).min();
        let until = match (deadline_ms, retry_ms) {
            (Some(a), Some(b)) => a.min(b),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => return None,
        };
        Some(until.saturating_sub(self.now_ms))
    }

    fn read_clocks(&mut self) {
        self.set_clocks(monotonic_us());
    }

    fn set_clocks(&mut self, now_us: u64) {
        self.turn_us = now_us;
        self.now_ms = (self.turn_us - self.zero_us) / 1000;
        self.unix_s = unix_s();
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

    /// Accepts from the listeners that were reported, all together no longer than their share.
    fn accept_arrivals<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        let count = self.arrivals.len();
        self.leaves_some = false;
        if count == 0 {
            return;
        }
        let mut leaves_some = false;
        self.first = self.first.wrapping_add(1);
        let until_us = self.share_ends_us();
        for nth in 0..count {
            let index = self.arrivals[self.first.wrapping_add(nth) % count];
            match self.accept(handler, index, until_us) {
                Accepted::All => {}
                Accepted::Some => {
                    leaves_some = true;
                    break;
                }
                Accepted::NoRoom(why) => {
                    self.pause_accepting(why);
                    break;
                }
            }
        }
        self.arrivals.clear();
        self.leaves_some = leaves_some;
    }

    /// Finds out who waits, if anybody may and it is time to.
    fn look_at_queues(&mut self) {
        if !self.leaves_some && self.accepting == Accepting::Yes && self.resting.is_empty() {
            self.queue.empty();
        } else if self.queue.is_to_be_looked_at(self.turn_us) {
            let waiting = queue::waiting(self.listeners.iter().map(|(listener, _)| listener));
            self.queue.look(self.turn_us, waiting);
        }
    }

    /// When accepting that begins now is to stop: what is connected already keeps most of a turn,
    /// but nobody keeps others out by being busy.
    fn share_ends_us(&self) -> u64 {
        let now_us = monotonic_us();
        now_us + (now_us.saturating_sub(self.turn_us) / ACCEPT_PART).max(ACCEPT_SHARE_US)
    }

    /// Accepts until a queue is empty or it is so late; one at least.
    fn accept<H: Handler<Epoll>>(
        &mut self,
        handler: &mut H,
        index: usize,
        until_us: u64,
    ) -> Accepted {
        loop {
            let Some((listener, role)) = self.listeners.get(index) else { return Accepted::All };
            if !self.has_room() {
                handler.accept_paused(Pause::Ceiling);
                return Accepted::NoRoom(Pause::Ceiling);
            }
            if listener.is_left() {
                return Accepted::All;
            }
            let (fd, role) = (listener.fd.as_fd(), *role);
            match net::acceptfrom_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((accepted, peer)) => {
                    self.queue.accepted();
                    self.admit(handler, accepted, role, address_of(peer));
                }
                Err(Errno::AGAIN) => return Accepted::All,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    handler.accept_paused(Pause::Exhausted);
                    return Accepted::NoRoom(Pause::Exhausted);
                }
                // A signal came, or Linux tells of an error of the connection itself: the next
                // one, then.
                Err(_) => {}
            }
            if monotonic_us() >= until_us {
                return Accepted::Some;
            }
        }
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
        let accepted = self.out_of_kept(accepted);
        let socket = self.owned.insert(accepted);
        if let Some(handing_over) = &mut self.handing_over {
            handing_over.note(socket);
        }
        if let Err(refused) = handler.accepted(self, socket, role, peer) {
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
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => handler.ended(self, socket),
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

    fn has_room(&self) -> bool {
        self.owned.len() < self.connections_max
    }

    /// Takes the listeners out of the epoll set.
    fn forget_listeners(&self) {
        for (listener, _) in &self.listeners {
            let _ = epoll::delete(&self.epoll, listener);
        }
    }

    /// Accepts no more for now: level-triggered, the listeners would be reported without end.
    fn pause_accepting(&mut self, why: Pause) {
        self.forget_listeners();
        self.accepting = match why {
            Pause::Exhausted => Accepting::PausedUntil(self.now_ms + ACCEPT_RETRY_MS),
            Pause::Ceiling => Accepting::Full,
        };
    }

    fn tend_listeners<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        match self.accepting {
            Accepting::PausedUntil(at) if at <= self.now_ms => self.resume_accepting(),
            Accepting::Full if self.has_room() => self.resume_accepting(),
            Accepting::Closing(at) if at <= self.now_ms => self.empty_listeners(handler),
            _ => {}
        }
    }

    fn resume_accepting(&mut self) {
        // One connection in a queue that several workers have wakes one of them.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        for (index, (listener, role)) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER + index as u64);
            if !listener.is_left() && !self.resting.contains(&listener_of(*role)) {
                // If the kernel has no memory for this either, the next retry will.
                let _ = epoll::add(&self.epoll, listener, data, flags);
            }
        }
        self.accepting = Accepting::Yes;
    }

    /// Accepts what is left in the queues and closes the listeners; if there is no room for all
    /// of it, some more will be tried soon.
    fn empty_listeners<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        let until_us = self.share_ends_us();
        while !self.listeners.is_empty() {
            match self.accept(handler, 0, until_us) {
                Accepted::All => drop(self.listeners.swap_remove(0)),
                Accepted::Some => return self.accepting = Accepting::Closing(self.now_ms),
                Accepted::NoRoom(_) => {
                    self.accepting = Accepting::Closing(self.now_ms + ACCEPT_RETRY_MS);
                    return;
                }
            }
        }
        self.accepting = Accepting::Yes;
    }

    /// Asks the kernel to report the socket again if it can be read or written now.
    fn rearm(&self, socket: Peer) {
        let Some(fd) = self.owned.get(socket) else { return };
        let flags = READABLE | EventFlags::OUT;
        if epoll::modify(&self.epoll, fd, data(socket), flags) == Err(Errno::NOENT) {
            let _ = self.add(socket, flags);
        }
    }

    fn add(&self, socket: Peer, flags: EventFlags) -> rustix::io::Result<()> {
        let fd = self.owned.get(socket).ok_or(Errno::BADF)?;
        epoll::add(&self.epoll, fd, data(socket), flags)
    }

    /// Closes a socket, whoever else has it.
    fn let_go(&mut self, socket: Peer, is_reset: bool) {
        if let Some(handing_over) = &mut self.handing_over
            && let Some(fd) = self.owned.get(socket)
            && handing_over.note(socket)
        {
            handover::end(fd, is_reset);
        }
        drop(self.owned.remove(socket));
        self.freed_a_file();
    }

    fn freed_a_file(&mut self) {
        if let Accepting::PausedUntil(_) = self.accepting {
            self.accepting = Accepting::PausedUntil(self.now_ms);
        }
    }
}

impl Backend for Epoll {
    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn turn_us(&self) -> u64 {
        self.turn_us
    }

    fn unix_s(&self) -> u64 {
        self.unix_s
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
        for (listener, _) in &mut self.listeners {
            listener.refuse_new(how);
            if listener.is_left() {
                let _ = epoll::delete(&self.epoll, &*listener);
            }
        }
    }

    fn has_begun_connections(&mut self) -> bool {
        self.listeners.iter().any(|(listener, _)| listener.has_handshakes())
    }

    fn close_listeners(&mut self) {
        self.vanishing = None;
        self.accepting = Accepting::Closing(self.now_ms);
    }

    fn rest(&mut self, roles: &'static [Role]) {
        self.resting = roles;
        // They may have been reported in this turn.
        self.arrivals.clear();
        if self.accepting == Accepting::Yes {
            self.forget_listeners();
            self.resume_accepting();
        }
    }

    fn accept_queue(&self) -> AcceptQueue {
        self.queue.found()
    }
}

/// How much of a turn does not count on the worker's clock, because the process may have been
/// stopped, or its virtual machine moved. No client could use that time, so no deadline may pass in
/// it, and the worker reads what clients sent meanwhile before it applies any.
///
/// A wait that ended more than [`PAUSE_US`] too late counts for nothing. Work that took longer than
/// that counts as [`PAUSE_US`]: it may have been work, and while every turn is that long deadlines
/// must still come.
fn uncounted_us(worked_us: u64, waited_us: u64, timeout_us: Option<u64>) -> u64 {
    let overslept_us = timeout_us.map_or(0, |timeout_us| waited_us.saturating_sub(timeout_us));
    let waited_us = if overslept_us > PAUSE_US { waited_us } else { 0 };
    worked_us.saturating_sub(PAUSE_US) + waited_us
}

/// The address of a peer; a socket file's has none.
fn address_of(peer: Option<SocketAddrAny>) -> Option<IpAddr> {
    SocketAddr::try_from(peer?).ok().map(|peer| peer.ip())
}

fn bytes_of(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

fn data(socket: Peer) -> EventData {
    EventData::new_u64(u64::from(socket.0))
}

/// Interest of every connection; room to write is added when a send was cut short.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// Event data of the waker, the alarm and, counted up from it, of the listeners; below are
/// sockets.
const WAKER: u64 = 1 << 32;
const ALARM: u64 = WAKER + 1;
const LISTENER: u64 = ALARM + 1;

/// The receive buffer, one for each worker: a whole burst of pipelined requests in one read.
const RECEIVE_BYTES: usize = 64 * 1024;
/// How many times one socket is read before the others have their turn.
const READS_PER_TURN: usize = 2;
/// How long connections may come in, in one turn: some seven of those that ask for a value. With
/// half of it a full queue is emptied a tenth more slowly, with more the others feel it.
const ACCEPT_SHARE_US: u64 = if cfg!(feature = "unbounded-accepting") { 1 << 40 } else { 100 };
/// Of what a turn has taken before, it is such a part if that is more.
const ACCEPT_PART: u64 = 4;
const EVENTS_PER_TURN: usize = 256;
/// A worker that wakes up more than this too late was not running.
const PAUSE_US: u64 = 1_000_000;
/// How soon accepting is tried again when files may have been freed elsewhere on the host; files
/// this worker frees itself make it try at once.
pub(crate) const ACCEPT_RETRY_MS: u64 = 50;

#[cfg(test)]
mod tests {
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
    fn the_time_of_a_pause_does_not_count() {
        let second = 1_000_000;
        // The process was stopped while it waited, however much of the wait was over.
        assert_eq!(uncounted_us(5, 120 * second, Some(20_000)), 120 * second);
        // It woke up in time, or nothing was due.
        assert_eq!(uncounted_us(5, 30 * second, Some(30 * second)), 0);
        assert_eq!(uncounted_us(5, second / 2, Some(0)), 0);
        assert_eq!(uncounted_us(5, 120 * second, None), 0);
        // It was stopped at work, or had much to do.
        assert_eq!(uncounted_us(second, 0, None), 0);
        assert_eq!(uncounted_us(120 * second, 0, Some(0)), 119 * second);
    }

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
            io.wake_by(began_us + 700_000).unwrap();
            io.wake_by(began_us + 2_500).unwrap();
            io.wake_by(began_us + 900_000).unwrap();
            io.turn(&mut Nobody, Some(io.now_ms() + 5_000)).unwrap();
            let waited_us = monotonic_us() - began_us;
            assert!((2_500..600_000).contains(&waited_us), "{waited_us} us");
        }
        // It counted once.
        let began_us = monotonic_us();
        io.turn(&mut Nobody, Some(io.now_ms() + 50)).unwrap();
        assert!(monotonic_us() - began_us >= 45_000);
        io.wake_by(0).unwrap();
        io.turn(&mut Nobody, Some(io.now_ms() + 5_000)).unwrap();
        assert!(monotonic_us() - began_us < 4_000_000, "a time that has passed is one, too");
    }

    fn without_listeners() -> Epoll {
        Epoll::new(Vec::new(), Arc::new(Waker::new().unwrap())).unwrap()
    }

    #[test]
    fn accepting_pauses_when_descriptors_run_out() {
        let mut io = without_listeners();
        io.pause_accepting(Pause::Exhausted);
        assert_eq!(io.timeout_ms(None), Some(ACCEPT_RETRY_MS));
    }

    #[test]
    fn accepting_gets_its_part_of_a_long_turn() {
        let mut io = without_listeners();
        let now_us = monotonic_us();
        io.turn_us = now_us - 1_000_000;
        assert!(io.share_ends_us() >= now_us + 1_000_000 / ACCEPT_PART);
        io.turn_us = monotonic_us() + 1_000_000;
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
