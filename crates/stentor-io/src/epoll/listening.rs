//! A worker's listeners: when it accepts from them, and when they are out of the epoll set.
//!
//! Listeners are level-triggered: accepting stops when its share of the turn is over, and the rest
//! is reported again. They come last in a turn, behind everybody who is connected already: whatever
//! arrives gets the time that those leave, and at least its share. A share is time and not a count,
//! since what an arrival costs depends on what it asks for at once. While no more may be accepted
//! they are out of the epoll set, for they would be reported without end.

use super::vanishing::Vanishing;
use super::{ACCEPT_RETRY_MS, Epoll, LISTENER, address_of};
use crate::queue::{self, AcceptQueue, LOOK_US, QueueWatch};
use crate::{Handler, Listener, Pause, Role, TurnAway, listener_of, monotonic_us};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, SocketFlags};

/// The listeners, and whether connections may come from them.
pub(super) struct Listening {
    pub(super) listeners: Vec<(Listener, Role)>,
    pub(super) accepting: Accepting,
    /// Listeners of these roles are out of the epoll set until further notice.
    resting: &'static [Role],
    /// How many connections there may be.
    pub(super) connections_max: usize,
    /// Those of the listeners that nobody new comes to.
    pub(super) vanishing: Option<Vanishing>,
    /// Those that the kernel reported in this turn.
    pub(super) arrivals: Vec<usize>,
    /// Which of several listeners comes first, in turn.
    first: usize,
    queue: QueueWatch,
    /// The turn did not come to the end of what has arrived.
    leaves_some: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accepting {
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
pub(super) enum Accepted {
    /// The queue is empty.
    All,
    /// There may be more.
    Some,
    /// There may be more, but no room for it.
    NoRoom(Pause),
}

impl Listening {
    pub(super) fn new(listeners: Vec<(Listener, Role)>) -> Listening {
        Listening {
            listeners,
            accepting: Accepting::PausedUntil(0),
            resting: &[],
            connections_max: usize::MAX,
            vanishing: None,
            arrivals: Vec::new(),
            first: 0,
            queue: QueueWatch::default(),
            leaves_some: false,
        }
    }

    /// Takes the listeners out of the epoll set.
    fn forget(&self, epoll: &OwnedFd) {
        for (listener, _) in &self.listeners {
            let _ = epoll::delete(epoll, listener);
        }
    }

    /// Accepts no more for now: level-triggered, the listeners would be reported without end.
    pub(super) fn pause(&mut self, epoll: &OwnedFd, why: Pause, now_ms: u64) {
        self.forget(epoll);
        self.accepting = match why {
            Pause::Exhausted => Accepting::PausedUntil(now_ms + ACCEPT_RETRY_MS),
            Pause::Ceiling => Accepting::Full,
        };
    }

    fn resume(&mut self, epoll: &OwnedFd) {
        // One connection in a queue that several workers have wakes one of them.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        for (index, (listener, role)) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER + index as u64);
            if !listener.is_left() && !self.resting.contains(&listener_of(*role)) {
                // If the kernel has no memory for this either, the next retry will.
                let _ = epoll::add(epoll, listener, data, flags);
            }
        }
        self.accepting = Accepting::Yes;
    }

    /// See [`rest`](crate::Backend::rest).
    pub(super) fn rest(&mut self, epoll: &OwnedFd, roles: &'static [Role]) {
        self.resting = roles;
        // They may have been reported in this turn.
        self.arrivals.clear();
        if self.accepting == Accepting::Yes {
            self.forget(epoll);
            self.resume(epoll);
        }
    }

    /// Stops accepting until the next turn, which may never come.
    pub(super) fn freeze(&mut self, epoll: &OwnedFd) {
        if self.accepting == Accepting::Yes {
            self.forget(epoll);
            self.accepting = Accepting::PausedUntil(0);
        }
    }

    /// See [`refuse_new`](crate::Backend::refuse_new).
    pub(super) fn refuse_new(&mut self, epoll: &OwnedFd, how: TurnAway) {
        for (listener, _) in &mut self.listeners {
            listener.refuse_new(how);
            if listener.is_left() {
                let _ = epoll::delete(epoll, &*listener);
            }
        }
    }

    /// See [`close_listeners`](crate::Backend::close_listeners).
    pub(super) fn close(&mut self, now_ms: u64) {
        self.vanishing = None;
        self.accepting = Accepting::Closing(now_ms);
    }

    /// A descriptor is free again, so accepting need not pause.
    pub(super) fn freed_a_file(&mut self, now_ms: u64) {
        if let Accepting::PausedUntil(_) = self.accepting {
            self.accepting = Accepting::PausedUntil(now_ms);
        }
    }

    /// When the listeners are to be looked at, even if nothing happens.
    pub(super) fn next_ms(&self, now_ms: u64, has_room: bool) -> Option<u64> {
        let retry_ms = match self.accepting {
            Accepting::Yes if self.resting.is_empty() => None,
            Accepting::Full if has_room => Some(now_ms),
            // Nobody comes in, and those who wait are to be counted.
            Accepting::Yes | Accepting::Full => Some(now_ms + 2 * LOOK_US / 1_000),
            Accepting::PausedUntil(at) => Some(at),
            Accepting::Closing(at) => Some(at),
        };
        let vanish_ms = self.vanishing.map(|vanishing| vanishing.at_ms);
        retry_ms.into_iter().chain(vanish_ms).min()
    }

    /// Measures the accept queue, if connections are accepted and it is time to.
    pub(super) fn look_at_queues(&mut self, turn_us: u64) {
        if !self.leaves_some && self.accepting == Accepting::Yes && self.resting.is_empty() {
            self.queue.empty();
        } else if self.queue.is_to_be_looked_at(turn_us) {
            let waiting = queue::waiting(self.listeners.iter().map(|(listener, _)| listener));
            self.queue.look(turn_us, waiting);
        }
    }

    /// See [`accept_queue`](crate::Backend::accept_queue).
    pub(super) fn accept_queue(&self) -> AcceptQueue {
        self.queue.found()
    }
}

impl Epoll {
    /// Accepts from the listeners that were reported, all together no longer than their share.
    pub(super) fn accept_arrivals<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        let count = self.listening.arrivals.len();
        self.listening.leaves_some = false;
        if count == 0 {
            return;
        }
        let mut leaves_some = false;
        self.listening.first = self.listening.first.wrapping_add(1);
        let until_us = self.share_ends_us();
        for nth in 0..count {
            let index = self.listening.arrivals[self.listening.first.wrapping_add(nth) % count];
            match self.accept(handler, index, until_us) {
                Accepted::All => {}
                Accepted::Some => {
                    leaves_some = true;
                    break;
                }
                Accepted::NoRoom(why) => {
                    self.listening.pause(&self.epoll, why, self.clock.now_ms);
                    break;
                }
            }
        }
        self.listening.arrivals.clear();
        self.listening.leaves_some = leaves_some;
    }

    /// When accepting that begins now is to stop: what is connected already keeps most of a turn,
    /// but nobody keeps others out by being busy.
    pub(super) fn share_ends_us(&self) -> u64 {
        let now_us = monotonic_us();
        now_us + (now_us.saturating_sub(self.clock.turn_us) / ACCEPT_PART).max(ACCEPT_SHARE_US)
    }

    /// Accepts until a queue is empty or it is so late; one at least.
    pub(super) fn accept<H: Handler<Epoll>>(
        &mut self,
        handler: &mut H,
        index: usize,
        until_us: u64,
    ) -> Accepted {
        loop {
            let Some((listener, role)) = self.listening.listeners.get(index) else {
                return Accepted::All;
            };
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
                    self.listening.queue.accepted();
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
            // mutation: arrivals-at-once
            if monotonic_us() >= until_us {
                return Accepted::Some;
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.owned.len() < self.listening.connections_max
    }

    pub(super) fn tend_listeners<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        match self.listening.accepting {
            Accepting::PausedUntil(at) if at <= self.clock.now_ms => {
                self.listening.resume(&self.epoll)
            }
            Accepting::Full if self.has_room() => self.listening.resume(&self.epoll),
            Accepting::Closing(at) if at <= self.clock.now_ms => self.empty_listeners(handler),
            _ => {}
        }
    }

    /// Accepts what is left in the queues and closes the listeners; if there is no room for all
    /// of it, some more will be tried soon.
    fn empty_listeners<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        let until_us = self.share_ends_us();
        while !self.listening.listeners.is_empty() {
            match self.accept(handler, 0, until_us) {
                Accepted::All => drop(self.listening.listeners.swap_remove(0)),
                Accepted::Some => {
                    return self.listening.accepting = Accepting::Closing(self.clock.now_ms);
                }
                Accepted::NoRoom(_) => {
                    self.listening.accepting =
                        Accepting::Closing(self.clock.now_ms + ACCEPT_RETRY_MS);
                    return;
                }
            }
        }
        self.listening.accepting = Accepting::Yes;
    }
}

/// How long connections may come in, in one turn: some seven of those that ask for a value. With
/// half of it a full queue is emptied a tenth more slowly, with more the others feel it.
pub(super) const ACCEPT_SHARE_US: u64 =
    if cfg!(feature = "unbounded-accepting") { 1 << 40 } else { 100 };
/// Of what a turn has taken before, it is such a part if that is more.
pub(super) const ACCEPT_PART: u64 = 4;
