//! What the threads are told: once, at the start, and while they run.
//!
//! Orders are a few atomic numbers that whoever directs the run writes and the threads read. A
//! thread that sleeps is woken after a change; nobody waits for anybody.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use stentor_io::{monotonic_us, unix_s};
use stentor_tls::Connector;

use crate::crew::{BenchError, Spread};
use crate::network::Network;
use crate::plan::{Closing, Role, Setup};
use crate::request::{RequestTemplate, open_head};
use crate::tally::PERIODS;
use crate::target::Target;

/// What every thread knows from the start.
#[derive(Clone, Debug)]
pub(crate) struct ThreadWork {
    pub(crate) address: SocketAddr,
    /// How it is connected to by TLS, if it is.
    pub(crate) secure: Option<Connector>,
    pub(crate) sources: AddressSources,
    pub(crate) threads: usize,
    pub(crate) rank: Rank,
    pub(crate) requesters: Option<RequestWork>,
    pub(crate) holders: Option<HoldWork>,
    /// Servers that other threads connect to, in turn.
    pub(crate) elsewhere: Vec<Place>,
}

/// Another server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) secure: Option<Connector>,
    /// What holders ask there.
    pub(crate) request: Vec<u8>,
}

impl ThreadWork {
    /// Threads that open nothing yet.
    pub(crate) fn new(
        setup: &Setup,
        target: &Target,
        spread: Spread,
    ) -> Result<ThreadWork, BenchError> {
        Ok(ThreadWork {
            address: target.address,
            secure: target.connector(setup)?,
            sources: spread.sources,
            threads: spread.threads,
            rank: Rank::Usual,
            requesters: None,
            holders: None,
            elsewhere: Vec::new(),
        })
    }

    /// How many servers there are.
    pub(crate) fn places(&self) -> usize {
        1 + self.elsewhere.len()
    }

    /// What the threads of one server know.
    pub(crate) fn at(&self, place: usize) -> ThreadWork {
        let mut work = self.clone();
        let elsewhere = place.checked_sub(1).and_then(|place| self.elsewhere.get(place));
        if let Some(Place { address, secure, request }) = elsewhere.cloned() {
            (work.address, work.secure) = (address, secure);
            work.holders.iter_mut().for_each(|holders| holders.request = request.clone());
        }
        work
    }
}

/// Who goes first where threads share a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Rank {
    #[default]
    Usual,
    /// They measure what others do to the server, and are not to wait for those themselves.
    First,
    /// The others.
    Last,
    /// Others whose connections are all there before any is answered, and who let answers come
    /// together: what it takes to wake them for each would be charged to the server.
    LastInBatches,
}

/// What requesters do.
#[derive(Clone, Debug)]
pub(crate) struct RequestWork {
    pub(crate) request: RequestTemplate,
    /// Requesters there will be, in all.
    pub(crate) connections: u32,
    pub(crate) pipeline: u16,
    pub(crate) closing: Closing,
    /// Per second and in all; None: as many as it goes.
    pub(crate) rate: Option<f64>,
    /// Requests in all.
    pub(crate) limit: Option<u64>,
}

/// What holders do.
#[derive(Clone, Debug)]
pub(crate) struct HoldWork {
    pub(crate) role: Role,
    /// Where and whom to ask, up to the fields that only some requests have.
    pub(crate) request: Vec<u8>,
    /// How many of a thread's connections may be on their way at a time.
    pub(crate) opening_max: usize,
    /// What the stamps of this run's messages say.
    pub(crate) run: u32,
    /// Every so many-th message is followed.
    pub(crate) stride: u32,
    /// How many messages are followed.
    pub(crate) followed: usize,
    pub(crate) stall_percent: u8,
    /// Readers of all threads, if some of them stall.
    pub(crate) readers: u32,
}

impl HoldWork {
    /// Holders that read no messages, or all of them, and never stall.
    pub(crate) fn new(setup: &Setup, target: &Target, role: Role, run: u32) -> HoldWork {
        HoldWork {
            role,
            request: open_head(target, Some(role), &setup.headers),
            opening_max: OPENING_MAX,
            run,
            stride: 1,
            followed: 0,
            stall_percent: 0,
            readers: 0,
        }
    }
}

/// A number for a run, new each time: messages of an earlier one are none of this one's.
pub(crate) fn run_number() -> u32 {
    (unix_s() as u32).rotate_left(16) ^ std::process::id() ^ monotonic_us() as u32
}

/// Where connections come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressSources {
    /// The host decides.
    Any,
    /// These addresses, shared out among the threads.
    Network(Network),
}

impl AddressSources {
    /// The address for a thread's `nth` connection. They are filled evenly: the kernel's search for
    /// a free port grows long as an address fills up. Where there are enough, each thread has
    /// addresses of its own.
    pub(crate) fn pick(&self, thread: usize, threads: usize, nth: u64) -> Option<IpAddr> {
        let AddressSources::Network(network) = self else { return None };
        let (thread, threads) = (thread as u64, threads as u64);
        let addresses = network.len().min(threads * ADDRESSES_PER_THREAD_MAX);
        let turn = nth / CONNECTIONS_PER_TURN;
        network.nth((thread + threads * turn) % addresses)
    }
}

/// What the threads are told while they run.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Connections for requests there should be, in all.
    pub(crate) requesters: AtomicU32,
    /// Connections to be held that should have been opened by now, in all.
    pub(crate) holders: AtomicU32,
    phase: AtomicU8,
    /// When requests began.
    going_since_us: AtomicU64,
    /// Whether those readers that stall do so now.
    pub(crate) stalling: AtomicBool,
    /// Messages published in all; known in the end.
    pub(crate) published: AtomicU32,
    /// When they were told to pause.
    paused_us: AtomicU64,
    bounds_us: [AtomicU64; PERIODS - 1],
}

impl Default for Orders {
    fn default() -> Orders {
        Orders {
            requesters: AtomicU32::new(0),
            holders: AtomicU32::new(0),
            phase: AtomicU8::new(PREPARING),
            going_since_us: AtomicU64::new(0),
            stalling: AtomicBool::new(false),
            published: AtomicU32::new(0),
            paused_us: AtomicU64::new(0),
            bounds_us: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
        }
    }
}

impl Orders {
    /// Requests may be sent from now on.
    pub(crate) fn go(&self, now_us: u64) {
        self.going_since_us.store(now_us, Ordering::Relaxed);
        self.phase.store(GOING, Ordering::Release);
    }

    /// Since when requests may be sent; None: not yet, or no more.
    pub(crate) fn going_since(&self) -> Option<u64> {
        (self.phase.load(Ordering::Acquire) == GOING)
            .then(|| self.going_since_us.load(Ordering::Relaxed))
    }

    /// When requests began, at any time after.
    pub(crate) fn began_us(&self) -> Option<u64> {
        (self.phase.load(Ordering::Acquire) != PREPARING)
            .then(|| self.going_since_us.load(Ordering::Relaxed))
    }

    /// Everybody ends and reports.
    pub(crate) fn stop(&self) {
        self.phase.store(STOPPING, Ordering::Release);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) == STOPPING
    }

    /// Nothing more is sent until [`Orders::resume`].
    pub(crate) fn pause(&self, now_us: u64) {
        self.paused_us.store(now_us, Ordering::Relaxed);
        let _ = self.phase.compare_exchange(GOING, PAUSED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// It goes on, as if there had been no time in between.
    pub(crate) fn resume(&self, now_us: u64) {
        if self.phase.load(Ordering::Relaxed) == PAUSED {
            let away_us = now_us.saturating_sub(self.paused_us.load(Ordering::Relaxed));
            self.going_since_us.fetch_add(away_us, Ordering::Relaxed);
            self.phase.store(GOING, Ordering::Release);
        }
    }

    /// Another period begins; they are told apart by [`Orders::period`].
    pub(crate) fn begin_period(&self, period: usize, now_us: u64) {
        self.bounds_us[period - 1].store(now_us, Ordering::Relaxed);
    }

    /// Whether a moment is before, in or after a surge, or while those who came with it go.
    pub(crate) fn period(&self, at_us: u64) -> usize {
        self.bounds_us.iter().filter(|bound| bound.load(Ordering::Relaxed) <= at_us).count()
    }
}

/// A thread's part of a total.
pub(crate) fn share(total: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    total / threads + u64::from(thread < total % threads)
}

/// The parts of the threads before this one.
pub(crate) fn shares_before(total: u64, thread: usize, threads: usize) -> u64 {
    (0..thread).map(|before| share(total, before, threads)).sum()
}

const PREPARING: u8 = 0;
const GOING: u8 = 1;
const STOPPING: u8 = 2;
const PAUSED: u8 = 3;

/// Connections of a thread that may be on their way at a time: enough to keep both ends busy, too
/// few to fill the queue of a listener.
const OPENING_MAX: usize = 64;

/// So many connections in a row come from one address.
const CONNECTIONS_PER_TURN: u64 = 64;

/// With so many addresses, ports in TIME_WAIT are free again before their turn comes.
const ADDRESSES_PER_THREAD_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for (total, threads) in [(0, 1), (1, 3), (7, 3), (64, 2), (1_000_003, 61)] {
            let shares: Vec<u64> = (0..threads).map(|i| share(total, i, threads)).collect();
            assert_eq!(shares.iter().sum::<u64>(), total);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
            // Whoever has one more is among the first: the others may have none.
            assert!(shares.is_sorted_by(|a, b| a >= b));
        }
    }

    #[test]
    fn threads_share_no_address_while_there_are_enough() {
        let sources = AddressSources::Network("127.1.0.0/16".parse().unwrap());
        let mut whose = std::collections::HashMap::new();
        for thread in 0..7 {
            for nth in (0..2_000_000).step_by(1_000) {
                let address = sources.pick(thread, 7, nth).unwrap();
                assert_eq!(*whose.entry(address).or_insert(thread), thread, "{address}");
            }
        }
        let own = |thread| whose.values().filter(|owner| **owner == thread).count() as u64;
        assert!((0..7).all(|thread| own(thread) == ADDRESSES_PER_THREAD_MAX));
        // Fewer addresses than threads: they are shared, and none is left out.
        let sources = AddressSources::Network("127.1.0.0/30".parse().unwrap());
        let picked: Vec<_> = (0..4).map(|thread| sources.pick(thread, 4, 0).unwrap()).collect();
        assert_eq!((picked[0], picked[1]), (picked[2], picked[3]));
        assert_ne!(picked[0], picked[1]);
        assert_eq!(AddressSources::Any.pick(0, 1, 0), None);
    }

    #[test]
    fn addresses_fill_up_evenly() {
        for (network, addresses, threads) in
            [("127.1.0.0/30", 2, 3), ("127.1.0.0/29", 6, 4), ("127.1.0.0/24", 254, 2)]
        {
            let sources = AddressSources::Network(network.parse().unwrap());
            let mut filled = std::collections::HashMap::new();
            for (thread, nth) in (0..threads).flat_map(|t| (0..10_000).map(move |nth| (t, nth))) {
                *filled.entry(sources.pick(thread, threads, nth).unwrap()).or_insert(0) += 1;
            }
            let used = addresses.min(threads * ADDRESSES_PER_THREAD_MAX as usize);
            assert_eq!(filled.len(), used, "{network}");
            let even = threads * 10_000 / used;
            assert!(filled.values().all(|&n: &usize| n.abs_diff(even) <= 128), "{filled:?}");
        }
    }

    #[test]
    fn a_moment_is_before_in_or_after_the_surge() {
        let orders = Orders::default();
        assert_eq!(orders.period(5), 0, "there was none yet");
        orders.begin_period(1, 10);
        assert_eq!([9, 10, 11].map(|at| orders.period(at)), [0, 1, 1]);
        orders.begin_period(2, 20);
        assert_eq!([9, 10, 19, 20, 21].map(|at| orders.period(at)), [0, 1, 1, 2, 2]);
        orders.begin_period(3, 30);
        assert_eq!([19, 29, 30].map(|at| orders.period(at)), [1, 2, 3]);
    }

    #[test]
    fn a_pause_is_no_time() {
        let orders = Orders::default();
        orders.pause(5);
        orders.resume(7);
        assert_eq!(orders.going_since(), None, "it had not begun");
        orders.go(10);
        orders.pause(50);
        assert_eq!((orders.going_since(), orders.began_us()), (None, Some(10)));
        orders.resume(80);
        assert_eq!(orders.going_since(), Some(40));
        orders.pause(90);
        orders.stop();
        orders.resume(95);
        assert!(orders.stopping() && orders.going_since().is_none());
    }
}
