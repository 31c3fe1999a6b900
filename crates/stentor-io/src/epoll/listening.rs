//! A worker's listeners: when it accepts from them, and when they are out of the epoll set.
//!
//! Listeners are level-triggered: accepting stops when its share of the turn is over, and the
//! kernel reports the rest again. The worker accepts last in a turn, after all events of
//! connections. New connections get the time that is left, and at least their share. A share is a
//! time and not a count, since the cost of a new connection depends on its first request. While the
//! worker may not accept, the listeners are out of the epoll set: otherwise the kernel would report
//! them without end.
//!
//! Closing a listener resets the connections in its queue, and those in the middle of a handshake.
//! A listener that is not wanted any more therefore first takes no new connections, and stays until
//! its queue is empty. The listeners of a process that was taken over stay for longer than the
//! kernel takes to repeat its part of a handshake.

use super::set::EpollSet;
use super::{ACCEPT_RETRY_MS, Epoll, LISTENER, address_of};
use crate::queue::{self, AcceptQueue, LOOK_US, QueueWatch};
use crate::socket::{SocketName, socket_name};
use crate::{Handler, Listener, Pause, Role, TurnAway, listener_of, monotonic_us};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, SocketFlags};
use std::net::IpAddr;

/// The listeners, and whether connections may come from them.
pub(super) struct Listening {
    /// `None`: it is closed. Its place is kept, since the epoll set has the others by their places.
    listeners: Vec<Option<Endpoint>>,
    accepting: Accepting,
    /// Listeners of these roles are out of the epoll set until further notice.
    resting: &'static [Role],
    /// How many connections there may be.
    connections_max: usize,
    /// The listeners to accept from in this turn.
    arrivals: Vec<usize>,
    /// Counts the turns that accept, so that each listener comes first in some of them.
    turns: usize,
    queue: QueueWatch,
    /// The turn did not come to the end of what has arrived.
    leaves_some: bool,
}

/// A listener.
struct Endpoint {
    listener: Listener,
    role: Role,
    /// From this time on it is closed as soon as its queue is empty.
    closes_at_ms: Option<u64>,
}

impl Endpoint {
    fn is_to_close(&self, now_ms: u64) -> bool {
        self.closes_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accepting {
    /// The listeners are in the epoll set.
    Yes,
    /// Out of files or memory: the listeners are out of the epoll set until this time.
    PausedUntil(u64),
    /// As many connections as there may be: they are out of it until one is closed.
    Full,
}

/// The result of one attempt to accept.
enum Accepted {
    Connection(OwnedFd, Role, Option<IpAddr>),
    /// A connection was over before it was accepted, or a signal came.
    Failed,
    /// All queues are empty.
    Nothing,
    /// The queue may have more, and the worker cannot take it.
    NoRoom(Pause),
}

impl Listening {
    pub(super) fn new(listeners: Vec<(Listener, Role)>) -> Listening {
        let mut listening = Listening {
            listeners: Vec::new(),
            accepting: Accepting::PausedUntil(0),
            resting: &[],
            connections_max: usize::MAX,
            arrivals: Vec::new(),
            turns: 0,
            queue: QueueWatch::default(),
            leaves_some: false,
        };
        listeners.into_iter().for_each(|(listener, role)| listening.push(listener, role));
        listening
    }

    /// One more listener. It is in the epoll set once accepting begins or resumes.
    pub(super) fn push(&mut self, listener: Listener, role: Role) {
        self.listeners.push(Some(Endpoint { listener, role, closes_at_ms: None }));
    }

    /// The listeners that are not closed, with their roles.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Listener, Role)> {
        self.listeners.iter().flatten().map(|endpoint| (&endpoint.listener, endpoint.role))
    }

    /// Closes the first so many.
    pub(super) fn close_first(&mut self, count: usize) {
        self.listeners.drain(..count.min(self.listeners.len()));
    }

    /// Another process has all of them from now on.
    pub(super) fn leave(&mut self) {
        self.listeners.iter_mut().flatten().for_each(|endpoint| endpoint.listener.leave());
    }

    pub(super) fn limit_connections(&mut self, connections_max: usize) {
        self.connections_max = connections_max;
    }

    /// Whether there may be one connection more than so many.
    fn has_room(&self, open: usize) -> bool {
        open < self.connections_max
    }

    /// The kernel has reported the listener of that place.
    pub(super) fn report(&mut self, place: usize) {
        self.arrivals.push(place);
    }

    /// Takes the listeners out of the epoll set until that time, or until a connection is closed.
    fn stop(&mut self, set: &EpollSet, until: Accepting) {
        self.iter().for_each(|(listener, _)| set.delete(listener));
        self.arrivals.clear();
        self.accepting = until;
    }

    /// Accepts no more for now.
    pub(super) fn pause(&mut self, set: &EpollSet, why: Pause, now_ms: u64) {
        let until = match why {
            Pause::Exhausted => Accepting::PausedUntil(now_ms + ACCEPT_RETRY_MS),
            Pause::Ceiling => Accepting::Full,
        };
        self.stop(set, until);
    }

    /// Whether it is too early to ask the kernel for memory again.
    pub(super) fn is_paused(&self, now_ms: u64) -> bool {
        matches!(self.accepting, Accepting::PausedUntil(at_ms) if at_ms > now_ms)
    }

    /// Puts the listeners into the epoll set. Only this method makes a worker accept.
    ///
    /// # Errors
    /// The kernel has no memory for one of them. The set has none of them then.
    pub(super) fn begin(&mut self, set: &EpollSet, now_ms: u64) -> rustix::io::Result<()> {
        self.stop(set, Accepting::PausedUntil(now_ms + ACCEPT_RETRY_MS));
        // One connection in a queue that several workers have wakes one of them.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        for (place, endpoint) in self.listeners.iter().enumerate() {
            let Some(Endpoint { listener, role, .. }) = endpoint else { continue };
            if !self.resting.contains(&listener_of(*role))
                && let Err(error) = set.add(listener, LISTENER + place as u64, flags)
            {
                self.stop(set, self.accepting);
                return Err(error);
            }
        }
        self.accepting = Accepting::Yes;
        Ok(())
    }

    /// Begins to accept again, if it is time to or if there is room for a connection.
    ///
    /// # Errors
    /// The kernel has no memory for it. The listeners stay as they are until the next try.
    pub(super) fn resume(
        &mut self,
        set: &EpollSet,
        open: usize,
        now_ms: u64,
    ) -> rustix::io::Result<()> {
        match self.accepting {
            Accepting::PausedUntil(_) if !self.is_paused(now_ms) => self.begin(set, now_ms),
            Accepting::Full if self.has_room(open) => self.begin(set, now_ms),
            _ => Ok(()),
        }
    }

    /// See [`rest`](crate::Backend::rest).
    pub(super) fn rest(&mut self, set: &EpollSet, roles: &'static [Role]) {
        self.resting = roles;
        // The kernel may have reported them in this turn.
        self.arrivals.clear();
        self.freeze(set);
    }

    /// Stops accepting until the end of the next turn.
    pub(super) fn freeze(&mut self, set: &EpollSet) {
        if self.accepting == Accepting::Yes {
            self.stop(set, Accepting::PausedUntil(0));
        }
    }

    /// See [`refuse_new`](crate::Backend::refuse_new). Another process has each listener that this
    /// one was started with, so the queue of that one is left to it.
    pub(super) fn refuse_new(&mut self, set: &EpollSet, how: TurnAway) {
        for slot in &mut self.listeners {
            if let Some(Endpoint { listener, .. }) = slot
                && !listener.refuse_new(how)
            {
                set.delete(&*listener);
                *slot = None;
            }
        }
    }

    /// See [`close_listeners`](crate::Backend::close_listeners).
    pub(super) fn close(&mut self, now_ms: u64) {
        self.listeners.iter_mut().flatten().for_each(|one| one.closes_at_ms = Some(now_ms));
    }

    /// See [`Epoll::keep_listeners`].
    fn keep(
        &mut self,
        set: &EpollSet,
        now_ms: u64,
        role_of: impl Fn(&SocketName, Role) -> Option<Role>,
    ) {
        self.freeze(set);
        for slot in &mut self.listeners {
            let Some(Endpoint { listener, role, closes_at_ms }) = slot else { continue };
            // A listener whose name the kernel does not tell is kept.
            match socket_name(&*listener).map_or(Some(*role), |name| role_of(&name, *role)) {
                Some(new) => *role = new,
                None if listener.vanish() => *closes_at_ms = Some(now_ms + VANISH_MS),
                None => *slot = None,
            }
        }
    }

    /// A descriptor is free again, so accepting need not pause.
    pub(super) fn freed_a_file(&mut self, now_ms: u64) {
        if let Accepting::PausedUntil(_) = self.accepting {
            self.accepting = Accepting::PausedUntil(now_ms);
        }
    }

    /// When the listeners are to be looked at, even if nothing happens.
    pub(super) fn next_ms(&self, now_ms: u64, open: usize) -> Option<u64> {
        // The worker counts the connections that wait.
        let look_ms = now_ms + 2 * LOOK_US / 1_000;
        match self.accepting {
            Accepting::Full if self.has_room(open) => Some(now_ms),
            Accepting::Full => Some(look_ms),
            Accepting::PausedUntil(at_ms) => Some(at_ms),
            Accepting::Yes => {
                let look_ms = (!self.resting.is_empty()).then_some(look_ms);
                let endpoints = self.listeners.iter().flatten();
                endpoints.filter_map(|one| one.closes_at_ms).chain(look_ms).min()
            }
        }
    }

    /// Measures the accept queue, if connections are accepted and it is time to.
    pub(super) fn look_at_queues(&mut self, turn_us: u64) {
        if !self.leaves_some && self.accepting == Accepting::Yes && self.resting.is_empty() {
            self.queue.empty();
        } else if self.queue.is_to_be_looked_at(turn_us) {
            let waiting = queue::waiting(self.iter().map(|(listener, _)| listener));
            self.queue.look(turn_us, waiting);
        }
    }

    /// See [`accept_queue`](crate::Backend::accept_queue).
    pub(super) fn accept_queue(&self) -> AcceptQueue {
        self.queue.found()
    }

    /// Adds the listeners that are to be closed to those that the kernel has reported. Returns
    /// whether there are any.
    fn begin_turn(&mut self, now_ms: u64) -> bool {
        self.leaves_some = false;
        if self.accepting == Accepting::Yes {
            for (place, endpoint) in self.listeners.iter().enumerate() {
                if endpoint.as_ref().is_some_and(|one| one.is_to_close(now_ms))
                    && !self.arrivals.contains(&place)
                {
                    self.arrivals.push(place);
                }
            }
        }
        if self.arrivals.is_empty() {
            return false;
        }
        self.turns = self.turns.wrapping_add(1);
        let first = self.turns % self.arrivals.len();
        self.arrivals.rotate_left(first);
        true
    }

    /// Accepts one connection. A listener that is to be closed is, once its queue is empty.
    fn accept(&mut self, set: &EpollSet, open: usize, now_ms: u64) -> Accepted {
        while let Some(&place) = self.arrivals.last() {
            let Some(slot) = self.listeners.get_mut(place) else { return Accepted::Nothing };
            let Some(endpoint) = slot else {
                self.arrivals.pop();
                continue;
            };
            if open >= self.connections_max {
                return Accepted::NoRoom(Pause::Ceiling);
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match net::acceptfrom_with(endpoint.listener.as_fd(), flags) {
                Ok((accepted, peer)) => {
                    self.queue.accepted();
                    return Accepted::Connection(accepted, endpoint.role, address_of(peer));
                }
                Err(Errno::AGAIN) => {
                    if endpoint.is_to_close(now_ms) {
                        set.delete(&endpoint.listener);
                        *slot = None;
                    }
                    self.arrivals.pop();
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return Accepted::NoRoom(Pause::Exhausted);
                }
                // A signal came, or Linux reports an error of the connection itself.
                Err(_) => return Accepted::Failed,
            }
        }
        Accepted::Nothing
    }
}

impl Epoll {
    /// Accepts from the listeners that have connections, for no longer than their share of the
    /// turn.
    pub(super) fn accept_arrivals<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        if !self.listening.begin_turn(self.clock.now_ms) {
            return;
        }
        let until_us = self.share_ends_us();
        loop {
            match self.listening.accept(&self.set, self.owned.len(), self.clock.now_ms) {
                Accepted::Connection(accepted, role, peer) => {
                    self.admit(handler, accepted, role, peer);
                    if !self.unregistered.is_empty() {
                        break self.pause(handler, Pause::Exhausted);
                    }
                }
                Accepted::Failed => {}
                Accepted::Nothing => break,
                Accepted::NoRoom(why) => break self.pause(handler, why),
            }
            // mutation: arrivals-at-once
            if monotonic_us() >= until_us {
                self.listening.leaves_some = true;
                break;
            }
        }
        self.listening.arrivals.clear();
    }

    /// Stops accepting until there is room again.
    pub(super) fn pause<H: Handler<Epoll>>(&mut self, handler: &mut H, why: Pause) {
        self.listening.pause(&self.set, why, self.clock.now_ms);
        handler.accept_paused(why);
    }

    /// When accepting that begins now is to stop: what is connected already keeps most of a turn,
    /// but nobody keeps others out by being busy.
    pub(super) fn share_ends_us(&self) -> u64 {
        let now_us = monotonic_us();
        now_us + (now_us.saturating_sub(self.clock.turn_us) / ACCEPT_PART).max(ACCEPT_SHARE_US)
    }

    /// Gives each listener the role that `role_of` says for its address. A listener that has none
    /// any more takes no new connections, and is closed once it has none left. To be called once no
    /// other process has them.
    pub fn keep_listeners(&mut self, role_of: impl Fn(&SocketName, Role) -> Option<Role>) {
        self.clock.read();
        self.listening.keep(&self.set, self.clock.now_ms, role_of);
    }
}

/// How long connections may come in, in one turn: some seven of those that ask for a value. With
/// half of it a full queue is emptied a tenth more slowly, with more the others feel it.
pub(super) const ACCEPT_SHARE_US: u64 =
    if cfg!(feature = "unbounded-accepting") { 1 << 40 } else { 100 };
/// Of what a turn has taken before, it is such a part if that is more.
pub(super) const ACCEPT_PART: u64 = 4;

/// The kernel repeats its part of a handshake after a second.
const VANISH_MS: u64 = 1_500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{listen_unix, reserve};
    use crate::{Backend, Flow, Peer, Refused, Waker};
    use std::io::{ErrorKind, IoSlice, Read, Write};
    use std::net::{IpAddr, SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::panic;
    use std::sync::Arc;
    use std::time::Duration;

    /// Answers whatever comes with itself, and counts the connections.
    #[derive(Default)]
    struct Echo {
        accepted: usize,
        paused: usize,
        panics: bool,
    }

    impl Handler<Epoll> for Echo {
        fn accepted(
            &mut self,
            _: &mut Epoll,
            _: Peer,
            _: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            assert!(!self.panics, "on purpose");
            self.accepted += 1;
            Ok(())
        }

        fn ready(&mut self, _: &mut Epoll, _: Peer, _: bool) -> bool {
            true
        }

        fn received(&mut self, io: &mut Epoll, peer: Peer, bytes: &mut [u8]) -> Flow {
            let _ = io.send(peer, &[IoSlice::new(bytes)]).unwrap();
            Flow::More
        }

        fn ended(&mut self, io: &mut Epoll, peer: Peer) {
            io.close(peer);
        }

        fn accept_paused(&mut self, why: Pause) {
            assert_eq!(why, Pause::Exhausted);
            self.paused += 1;
        }
    }

    fn ask(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"x").unwrap();
        stream
    }

    /// A backend with one listener.
    fn with_listener() -> (Epoll, SocketAddr) {
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let listeners = vec![(reserved.listen().unwrap(), 0)];
        let io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        (io, reserved.address())
    }

    fn turn_until(io: &mut Epoll, echo: &mut Echo, is_done: impl Fn(&Epoll, &Echo) -> bool) {
        for _ in 0..1_000 {
            if is_done(io, echo) {
                return;
            }
            io.turn(echo, Some(io.now_ms() + 100)).unwrap();
        }
        panic!("it does not happen");
    }

    fn answers(stream: &mut (impl Read + Write)) {
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"x");
    }

    #[test]
    fn whoever_waits_at_an_address_that_vanishes_is_served_and_nobody_else() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (stays, goes) = (reserve(any).unwrap(), reserve(any).unwrap());
        let (at, gone) = (stays.address(), goes.address());
        let file = std::env::temp_dir().join(format!("stentor-vanish-{}", std::process::id()));
        let listeners = vec![
            (goes.listen().unwrap(), 0),
            (stays.listen().unwrap(), 0),
            (listen_unix(&file).unwrap(), 1),
        ];
        let mut io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        let mut waiting: Vec<_> = (0..40).map(|_| ask(gone)).collect();
        let mut by_file = UnixStream::connect(&file).unwrap();
        by_file.write_all(b"x").unwrap();
        io.keep_listeners(|name, _| (*name == SocketName::Tcp(at)).then_some(2));
        assert!(!file.exists(), "a client could still connect");
        // The kernel repeats its part of a handshake after a second.
        let closes = |one: &Endpoint| one.closes_at_ms.is_some_and(|ms| ms > io.now_ms() + 1_000);
        assert_eq!(io.listening.listeners.iter().flatten().filter(|one| closes(one)).count(), 2);
        let refused = TcpStream::connect(gone).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let mut late = ask(at);
        let mut echo = Echo::default();
        turn_until(&mut io, &mut echo, |io, echo| echo.accepted == 42 && io.listeners() == 1);
        assert_eq!(io.listening.iter().map(|(_, role)| role).collect::<Vec<_>>(), [2]);
        waiting.iter_mut().for_each(answers);
        answers(&mut late);
        answers(&mut by_file);
    }

    #[test]
    fn a_listener_that_cannot_be_registered_is_tried_again() {
        let (mut io, at) = with_listener();
        let mut echo = Echo::default();
        io.rest(&[]);
        io.set.failures.set(3);
        let mut client = ask(at);
        turn_until(&mut io, &mut echo, |_, echo| echo.paused == 3);
        assert!(!matches!(io.listening.accepting, Accepting::Yes) && echo.accepted == 0);
        turn_until(&mut io, &mut echo, |_, echo| echo.accepted == 1);
        answers(&mut client);
    }

    #[test]
    fn a_listener_that_cannot_be_registered_stops_the_start() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let listener = Listener::described(file.into(), b"I").unwrap();
        let listeners = vec![(listener, 0)];
        assert!(Epoll::new(listeners, Arc::new(Waker::new().unwrap())).is_err());
    }

    #[test]
    fn a_connection_that_cannot_be_registered_is_served_later() {
        let (mut io, at) = with_listener();
        let mut echo = Echo::default();
        let (mut first, mut second) = (ask(at), ask(at));
        io.set.failures.set(2);
        turn_until(&mut io, &mut echo, |_, echo| echo.paused > 0);
        assert_eq!(echo.accepted, 1, "there is no memory for more");
        answers(&mut first);
        first.write_all(b"x").unwrap();
        turn_until(&mut io, &mut echo, |_, echo| echo.accepted == 2);
        answers(&mut first);
        answers(&mut second);
        assert!(io.unregistered.is_empty());
    }

    #[test]
    fn a_closed_connection_is_not_registered_again() {
        let (mut io, at) = with_listener();
        let mut echo = Echo::default();
        let first = ask(at);
        io.set.failures.set(2);
        turn_until(&mut io, &mut echo, |_, echo| echo.paused > 0);
        io.close(io.unregistered[0]);
        assert!(io.unregistered.is_empty());
        drop(first);
    }

    #[test]
    fn a_panic_while_a_connection_is_accepted_closes_it() {
        let (mut io, at) = with_listener();
        let mut echo = Echo { panics: true, ..Echo::default() };
        let mut client = ask(at);
        let turn = panic::AssertUnwindSafe(|| turn_until(&mut io, &mut echo, |_, _| false));
        assert!(panic::catch_unwind(turn).is_err());
        assert_eq!(io.open_connections(), 0);
        assert!(client.read(&mut [0]).is_err(), "it is reset, for its input was not read");
        echo.panics = false;
        let mut next = ask(at);
        turn_until(&mut io, &mut echo, |_, echo| echo.accepted == 1);
        answers(&mut next);
    }
}
