//! The machine, seen from a server or a client: sockets, readiness, files, clocks, threads.
//!
//! Everything above this crate is written against two traits. A [`Backend`] is the network and the
//! clock; a [`Handler`] is the server. The seam between them is "bytes arrived": the backend owns
//! the receive buffer and lends what came in, so a connection that waits holds no buffer at all.
//!
//! There are two backends. [`Epoll`] is the kernel. `Sim` is a deterministic network with a seed
//! and a virtual clock, which splits, delays, refuses and resets as unkindly as it can; the very
//! same server code runs on both. Only tests and fuzz targets have `Sim`, by the feature `sim`.
//!
//! The contract of one turn: the backend calls [`Handler::ready`] before it reads a socket, then
//! [`Handler::received`] or [`Handler::ended`]. A socket that was just accepted may be read without
//! `ready`, unless its role has the bit [`LAYERED`] or [`PROXIED`]. A handler that answers
//! [`Flow::Pause`] hears nothing more of that socket's input until it calls [`Backend::resume`].
//! After a [`Backend::send`] that said it is full, `ready` is called again once the peer has made
//! room. The backend reports how a connection ends even to a handler that reads nothing for now: a
//! reset by `ended`, the peer's last byte by [`Handler::finished`].
//!
//! Files are the same ones on both backends: [`Directory`] finds them beneath a root that nothing
//! leads out of, and [`Backend::send_file`] sends them.
//!
//! Threads that wait for one connection, such as a follower's, have a third trait: a [`Dialer`]
//! makes them a [`ByteStream`]. A fourth, [`Disk`], is a directory of files that outlive the
//! process; [`HostDisk`] is a real one. Its simulator is beside the store that is tested with it.
//!
//! This is the only crate with `unsafe`. The server makes its system calls here.

/// The atomics of the files that loom checks (`cargo xtask loom`).
mod atomic {
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
mod bounded;
mod channel;
mod counter;
mod dialer;
mod disk;
mod dump;
mod epoll;
mod file;
mod file_watcher;
mod histogram;
mod intermediate;
mod lock;
mod log_throttle;
mod marks;
mod outcomes;
mod output;
mod owned;
mod parent;
mod path;
mod pressure;
mod process;
mod queue;
mod rng;
#[cfg(test)]
mod scratch;
#[cfg(any(test, feature = "sim"))]
mod sim;
mod slab;
mod small;
mod socket;
mod steer;
mod thread;
pub mod units;
mod user;
#[cfg(any(test, feature = "sim"))]
mod virtual_clock;
mod wake;
mod wipe;

use std::io::IoSlice;
use std::net::IpAddr;

pub use bounded::within;
pub use channel::{Channel, ChannelListener, Parcel, Token, parent_process};
pub use counter::Counter;
#[cfg(any(test, feature = "sim"))]
pub use dialer::sim::{SimDialer, SimPeer, SimSpeech};
pub use dialer::{ByteStream, Dialer, HostDialer, connect_to_any, connect_to_file, is_late};
pub use disk::{Disk, DiskError, DiskErrorKind, HostDisk, HostFile, check_directory};
pub use dump::leave_out_of_dumps;
pub use epoll::{Epoll, Parts};
pub use file::{
    Directory, DirectoryId, File, FileKind, FileStamp, FileStatus, Found, Held, Lease, Listed,
    Symlinks,
};
pub use file_watcher::{Due, FileStates, FileWatcher, LookThread, RETRY_S, states_of};
pub use histogram::{BOUNDS_US, Histogram, Times};
pub use intermediate::Intermediate;
pub use lock::lock;
pub use log_throttle::{LogThrottle, PAUSE_LOG_MS};
pub use marks::mark;
#[cfg(any(test, feature = "sim"))]
pub use marks::take_marks;
pub use outcomes::{Outcome, Outcomes, Waiting, ask_process};
pub use output::wait_until_closed;
pub use parent::{
    Children, Line, WaitingParent, adopt_orphans, hold_signals, reap, reap_within, release_signals,
    send_signal,
};
pub use path::{
    FileState, append, check_readable, file_state, file_state_of, make_secret, read_file,
    unbuffered,
};
pub use pressure::{MemoryGauges, MemoryLoad, MemoryOf, control_groups, meminfo_bytes};
pub use process::{
    ProcessMemory, cores_allowed, is_root, monotonic_us, open_files_limit, process_cpu,
    process_memory, process_memory_of, raise_open_files_limit, release_memory, tcp_counts, unix_ns,
    unix_s,
};
pub use queue::AcceptQueue;
pub use rng::Rng;
#[cfg(any(test, feature = "sim"))]
pub use sim::{Client, Faults, KernelFaults, Sim};
pub use slab::{STREAMS_FROM, Slab};
pub use small::limits_are_small;
#[cfg(any(test, feature = "sim"))]
pub use small::make_limits_small;
pub use socket::{
    BindError, Dial, Inherited, Listener, Reservation, SocketName, interface_index, listen_unix,
    reserve,
};
pub use steer::narrow_card;
#[cfg(any(test, feature = "sim"))]
pub use steer::prefers_cores;
pub use thread::{
    WaitingThread, lower_priority, pin_to_core, raise_priority, sleep, spawn_with_file_table,
    take_short_turns,
};
pub use units::thousands;
pub use user::{User, show_to_user};
#[cfg(any(test, feature = "sim"))]
pub use virtual_clock::VirtualClock;
pub use wake::Waker;
pub use wipe::{WipingAllocator, wiping};

/// The other end of one flow of bytes, as a handler knows it: a number, which doubles as the index
/// of the connection's record.
///
/// [`Epoll`] gives each socket its own, the lowest free file descriptor of the worker's file table.
/// A backend that carries several streams in one socket gives each stream a number, and a handler
/// need not know that it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer(pub(crate) u32);

/// No worker has more connections than the kernel has files for a process.
pub const PEERS_MAX: u32 = 1 << 30;

impl Peer {
    /// The peer's place in a slab.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The peer that [`Peer::index`] came from. Any number will do: a backend ignores one that is
    /// none of its own.
    #[must_use]
    pub fn from_index(index: u32) -> Peer {
        Peer(index)
    }
}

/// Which of the server's listeners a connection came in by: the handler's own number, given when
/// the listener was made.
///
/// With the bit [`LAYERED`] it says that a layer between the backend and the handler has the
/// connections of that listener first.
pub type Role = u8;

/// The bit of a listener's role that is meant for a layer and not for the handler above it. The
/// backend itself calls [`Handler::ready`] before it reads such a connection for the first time,
/// and rests its listener together with the others of the role.
pub const LAYERED: Role = 1 << 7;

/// The bit of a listener's role that says that each of its connections begins with a header of the
/// PROXY protocol. The handler reads it before any layer sees a byte ([`Backend::peek`]), so the
/// backend calls [`Handler::ready`] before it reads such a connection for the first time.
pub const PROXIED: Role = 1 << 6;

/// The listener's own number: its role without [`LAYERED`] and [`PROXIED`].
#[must_use]
pub fn listener_of(role: Role) -> Role {
    role & !(LAYERED | PROXIED)
}

/// What a handler wants next of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Flow {
    /// Bring more when there is more.
    More,
    /// Bring nothing until [`Backend::resume`].
    Pause,
    /// The handler has closed the socket.
    Closed,
}

/// A connection is not wanted, and this is what makes up what it is told: from what it has sent, as
/// far as that is there, and from chance.
#[derive(Clone, Copy, Debug)]
pub struct Refused(pub fn(asked: &[u8], chance: u64) -> Vec<u8>, pub u64);

impl Refused {
    /// What it is told that has sent this.
    #[must_use]
    pub fn farewell(&self, asked: &[u8]) -> Vec<u8> {
        let Refused(farewell, chance) = *self;
        farewell(asked, chance)
    }
}

/// How often TCP sends again what a stream's peer does not acknowledge, and for how long. By
/// default the pauses double up to two minutes (RFC 6298, section 5.5): a reader whose network was
/// away for a minute would hear nothing for up to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retransmission {
    /// The longest pause, in milliseconds: 1,000 to 120,000. 0 leaves it to the kernel. The option
    /// exists since Linux 6.15; an older kernel ignores it.
    pub pause_ms_max: u32,
    /// After this long without an acknowledgement the connection is reset, in milliseconds.
    pub give_up_ms: u32,
}

/// Why accepting stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// The process or the host is out of files or memory. It is tried again every now and then.
    Exhausted,
    /// There are as many connections as there may be. It is tried again once one is closed.
    Ceiling,
}

/// What became of a [`Backend::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Sent {
    /// So many bytes were taken: they are the backend's to deliver, and are not given again.
    pub bytes: usize,
    /// There is no room for more. It is so whenever fewer than all were taken, and it may be so of
    /// all: a layer that seals records holds the rest of one that the socket did not take whole.
    pub full: bool,
}

impl Sent {
    /// So many bytes of all were taken, by a backend that holds none back.
    pub fn of(bytes: usize, all: usize) -> Sent {
        Sent { bytes, full: bytes < all }
    }
}

/// The connection is gone: reset by the peer or broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// Why a part of a file was not sent. Either way nothing more can be sent in its place: the peer
/// has been promised those bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSendError {
    /// The connection is gone, as [`Gone`] says.
    Gone,
    /// The file ends before the last byte that was to be sent, or cannot be read: it was cut while
    /// it was sent, or its disk failed.
    Truncated,
}

impl From<Gone> for FileSendError {
    fn from(_: Gone) -> FileSendError {
        FileSendError::Gone
    }
}

/// The network and the clock.
pub trait Backend {
    /// Monotonic time in milliseconds, read once per turn: what deadlines are on. Time in which the
    /// whole process stood still for more than a second does not count.
    fn now_ms(&self) -> u64;

    /// The same moment on the clock of [`Backend::now_us`]: when the turn began.
    fn turn_us(&self) -> u64;

    /// Wall clock in seconds since 1970, read once per turn.
    fn unix_s(&self) -> u64;

    /// Writes as much of `parts` as the socket takes, and says how much that was and whether it is
    /// full now. If it is, [`Handler::ready`] will be called with `writable` when it has room
    /// again.
    ///
    /// # Errors
    /// [`Gone`] when the peer reset the connection or it broke.
    fn send(&mut self, peer: Peer, parts: &[IoSlice<'_>]) -> Result<Sent, Gone>;

    /// Writes `before`, which may be empty, and behind it `length` bytes of a file from `offset`
    /// on, without copying those. Says how many bytes of all the socket took, and whether it is
    /// full, as [`Backend::send`] does.
    ///
    /// The caller bounds `length`: what the kernel has to bring from the disk, the whole worker
    /// waits for.
    ///
    /// # Errors
    /// [`FileSendError`]. A part may have been sent before.
    fn send_file(
        &mut self,
        peer: Peer,
        before: &[IoSlice<'_>],
        file: &File,
        offset: u64,
        length: usize,
    ) -> Result<Sent, FileSendError>;

    /// Whether [`Backend::send_file`] has the kernel send the bytes of a file to this peer. A layer
    /// that seals them reads the file itself.
    fn kernel_sends_files(&self, _peer: Peer) -> bool {
        true
    }

    /// Copies bytes that have arrived and are unread, as far as `buffer` has room, and returns
    /// their number. They stay unread: [`Handler::ready`] is called again once there
    /// are more.
    fn peek(&mut self, peer: Peer, buffer: &mut [u8]) -> usize;

    /// Throws away so many bytes, which [`Backend::peek`] has shown.
    fn discard(&mut self, peer: Peer, bytes: usize);

    /// Where the other end of the connection is. `None`: it came by a socket file, or is gone.
    fn remote_address(&self, peer: Peer) -> Option<IpAddr>;

    /// Bytes that were sent and that the peer has not acknowledged yet. They become fewer as long
    /// as it reads, however slowly.
    fn unacknowledged(&self, peer: Peer) -> u32;

    /// Memory that the kernel holds for the connection, in bytes: data that the peer has not
    /// acknowledged, and data that the server has not read.
    fn kernel_bytes(&self, peer: Peer) -> usize;

    /// Undoes [`Flow::Pause`]: whatever waits to be read is brought in a later turn. There
    /// [`Handler::ready`] is called with `writable` if there is room, though nobody waited for it:
    /// whoever has had its share of a turn goes on by that.
    fn resume(&mut self, peer: Peer);

    /// Monotonic time in microseconds, read now: for measuring, not for deadlines.
    fn now_us(&self) -> u64;

    /// Prepares the socket for a stream: what its peer has not read waits in the shared messages,
    /// not in the kernel. The socket takes no byte more while one is unsent, and
    /// holds little that is unacknowledged. To a peer that acknowledges nothing it sends again as
    /// [`Retransmission`] says.
    fn begin_stream(&mut self, peer: Peer, retransmission: Retransmission);

    /// Ends our side of the connection (FIN); what the peer still sends can be received.
    fn finish(&mut self, peer: Peer);

    /// Closes the socket. What was sent is still delivered if everything received was read.
    fn close(&mut self, peer: Peer);

    /// Closes with a reset, throwing away what the kernel has not delivered: for peers that have
    /// shown they do not read.
    fn abort(&mut self, peer: Peer);

    /// Lets no new connection begin at the TCP listeners; those already begun are still accepted.
    /// The first half of closing listeners without losing a connection. Socket files, and listeners
    /// that the process was started with, still take connections into their queues.
    fn refuse_new(&mut self, how: TurnAway);

    /// Accepts what is left in the listeners' queues, then closes the listeners.
    fn close_listeners(&mut self);

    /// New connections of these listeners wait in the kernel's queue, and those of all others are
    /// accepted.
    fn rest(&mut self, roles: &'static [Role]);

    /// The connections that wait to be accepted. The backend counts them now and then, and
    /// subtracts those that it has accepted since.
    fn accept_queue(&self) -> AcceptQueue;

    /// Memory that layers hold for a connection, or for all: bytes on their way, in either
    /// direction. The backends themselves hold none.
    fn held_bytes(&self, _peer: Option<Peer>) -> usize {
        0
    }

    /// The connection that carries this one: itself, unless a layer carries several streams in a
    /// socket. The handler limits what each carrier may use.
    fn carrier(&self, peer: Peer) -> Peer {
        peer
    }

    /// Who the peer has proved to be to a layer that asked it: to whom its certificate was given.
    /// It has no control characters.
    fn client(&self, _peer: Peer) -> Option<&str> {
        None
    }
}

/// Within a layer's implementation of [`Backend`]: what every layer leaves to the backend below,
/// which is its `io`.
#[macro_export]
macro_rules! left_to_the_backend_below {
    () => {
        fn now_ms(&self) -> u64 {
            self.io.now_ms()
        }

        fn turn_us(&self) -> u64 {
            self.io.turn_us()
        }

        fn unix_s(&self) -> u64 {
            self.io.unix_s()
        }

        fn now_us(&self) -> u64 {
            self.io.now_us()
        }

        fn rest(&mut self, roles: &'static [$crate::Role]) {
            self.io.rest(roles);
        }

        fn accept_queue(&self) -> $crate::AcceptQueue {
            self.io.accept_queue()
        }

        fn peek(&mut self, peer: $crate::Peer, buffer: &mut [u8]) -> usize {
            self.io.peek(peer, buffer)
        }

        fn discard(&mut self, peer: $crate::Peer, bytes: usize) {
            self.io.discard(peer, bytes);
        }

        fn remote_address(&self, peer: $crate::Peer) -> Option<::std::net::IpAddr> {
            self.io.remote_address(peer)
        }
    };
}

/// What becomes of whoever asks for a connection at a listener that lets none begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnAway {
    /// It is refused at once (RST): a proxy goes to another server.
    Refuse,
    /// It hears nothing (its SYN is dropped) and tries again after a second, perhaps at the next
    /// process of this address.
    Drop,
}

/// The server, as a backend sees it.
pub trait Handler<B: Backend> {
    /// A connection came in, from `address` unless it came by a socket file.
    ///
    /// # Errors
    /// It is not wanted: the backend says so and closes it, and the handler hears of it no more.
    fn accepted(
        &mut self,
        io: &mut B,
        peer: Peer,
        role: Role,
        address: Option<IpAddr>,
    ) -> Result<(), Refused>;

    /// The socket has something to read or, if `writable`, room to write. The handler sends what
    /// it kept back and says whether it wants to read.
    fn ready(&mut self, io: &mut B, peer: Peer, writable: bool) -> bool;

    /// Bytes arrived. They are lent: what the handler needs later it copies, and what is to be
    /// decrypted it may decrypt where it is.
    fn received(&mut self, io: &mut B, peer: Peer, bytes: &mut [u8]) -> Flow;

    /// The peer sent its last byte (FIN), or the connection broke: either way nothing more comes.
    /// The handler closes the socket.
    fn ended(&mut self, io: &mut B, peer: Peer);

    /// The peer has sent its last byte (FIN) while the handler does not read: nothing comes behind
    /// what is not read yet. It may still be reading itself, so whatever is under way goes on.
    fn finished(&mut self, _io: &mut B, _peer: Peer) {}

    /// A layer has begun to agree on something with the peer, which is not heard by this handler,
    /// or has ended that.
    fn negotiates(&mut self, _io: &mut B, _peer: Peer, _is_under_way: bool) {}

    /// Accepting stopped; it goes on by itself.
    fn accept_paused(&mut self, _why: Pause) {}
}

#[cfg(test)]
mod tests;
