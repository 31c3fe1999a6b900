//! Sockets before anything is connected. Listening ones: one of each address per worker, and none
//! lost when they close. Dialling ones: from as many addresses as a client needs ports.

use crate::channel::started_with;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, ipproto,
    listen, socket_with, sockopt,
};
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::{Retransmission, TurnAway};

/// A bound, listening socket.
#[derive(Debug)]
pub struct Listener {
    pub(crate) fd: OwnedFd,
    origin: ListenerOrigin,
}

#[derive(Debug)]
enum ListenerOrigin {
    /// One of a group, one for each worker.
    Tcp,
    /// The socket file and its inode: unlinked when the listener goes, if it still is the same.
    File(PathBuf, u64),
    /// Another process has it too, and has it after this one.
    Inherited,
}

/// A listening socket that the process was started with (systemd's `LISTEN_FDS`). It is never
/// closed by this process alone, so nobody who connects between two lives of it is refused.
#[derive(Debug)]
pub struct Inherited {
    fd: OwnedFd,
    name: SocketName,
}

/// What a listening socket is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketName {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

impl Inherited {
    /// All that this process was started with (sd_listen_fds(3)).
    ///
    /// # Errors
    /// The environment names a file that is not there, or is no listening socket, or was taken
    /// before; or its number is none.
    pub fn all() -> io::Result<Vec<Inherited>> {
        let inherited = |fd| match started_with(fd, SocketType::STREAM) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(unlike()),
            owned => Inherited::new(owned?),
        };
        if supervisor_number("LISTEN_PID")? != Some(std::process::id()) {
            return Ok(Vec::new());
        }
        let count = supervisor_number("LISTEN_FDS")?.unwrap_or_default();
        (3..).take(count as usize).map(inherited).collect()
    }

    /// Takes a socket over.
    ///
    /// # Errors
    /// It does not listen at an address or a socket file.
    fn new(fd: OwnedFd) -> io::Result<Inherited> {
        if !sockopt::socket_acceptconn(&fd)? {
            return Err(unlike());
        }
        let name = socket_name(&fd)?;
        Ok(Inherited { fd, name })
    }

    /// What it is bound to.
    #[must_use]
    pub fn name(&self) -> &SocketName {
        &self.name
    }

    /// One worker's share of it.
    ///
    /// # Errors
    /// [`BindError`] with the reason.
    pub fn listen(&self) -> Result<Listener, BindError> {
        let shared = || -> rustix::io::Result<OwnedFd> {
            let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            if let SocketName::Tcp(_) = self.name {
                sockopt::set_tcp_nodelay(&fd, true)?;
                set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES);
            }
            Ok(fd)
        };
        match shared() {
            Ok(fd) => Ok(Listener { fd, origin: ListenerOrigin::Inherited }),
            Err(error) => Err(BindError { address: self.name.to_string(), error: error.into() }),
        }
    }
}

/// A number that a supervisor has put into the environment. sd-notify reads it too, but it sets the
/// flag by which [`started_with`] recognises a file that this process was started with.
fn supervisor_number(name: &str) -> io::Result<Option<u32>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is no number"));
    let text = std::env::var(name).ok();
    text.map(|text| text.parse().map_err(|_| invalid())).transpose()
}

/// What a socket is bound to.
pub(crate) fn socket_name(fd: impl AsFd) -> io::Result<SocketName> {
    let name = getsockname(fd)?;
    if let Ok(address) = SocketAddr::try_from(name.clone()) {
        return Ok(SocketName::Tcp(address));
    }
    let unix = SocketAddrUnix::try_from(name).map_err(|_| unlike())?;
    let path = unix.path().ok_or_else(unlike)?;
    Ok(SocketName::Unix(PathBuf::from(OsStr::from_bytes(path.to_bytes()))))
}

fn unlike() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it does not listen on TCP or Unix")
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketName::Tcp(address) => address.fmt(f),
            SocketName::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address that is ours to listen on: free when asked, resolved if its port was 0.
#[derive(Debug)]
pub struct Reservation {
    address: SocketAddr,
    /// Holds an ephemeral port until the listeners have it, and for as long as a worker lives in
    /// the copy of it that is in the worker's file table: bound but not listening, it is harmless.
    _holder: Option<OwnedFd>,
}

/// Why an address cannot be listened on.
#[derive(Debug)]
pub struct BindError {
    /// The address as the operator wrote it.
    pub address: String,
    /// The kernel's reason.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: another process listens there; \
                 stop it or choose another address (ss -ltnp shows which process it is, but \
                 names none for a Stentor server: look for one with pgrep -a stentor)"
            ),
            io::ErrorKind::AlreadyExists => write!(
                f,
                "cannot listen on {address}: a file that is not a socket is there; \
                 move it or choose another path"
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "cannot listen on {address}: this host has no such address (ip addr lists them)"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "cannot listen on {address}: permission denied; ports below 1024 need \
                 CAP_NET_BIND_SERVICE, a socket file needs a writable directory"
            ),
            _ => write!(f, "cannot listen on {address}: {}", self.error),
        }
    }
}

impl std::error::Error for BindError {}

/// The number of a network interface, by its name or its number: the zone of an IPv6 address (RFC
/// 4007 section 11.2). `None` if this host has none of that name.
#[must_use]
pub fn interface_index(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let any = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::name_to_index(any, name).ok()
}

/// Makes sure that nobody else listens on `address`. Listeners share their port among the workers
/// by `SO_REUSEPORT`, which would also let a second server of the same user in unnoticed: so the
/// address is first bound without it.
///
/// # Errors
/// [`BindError`] with the reason.
pub fn reserve(address: SocketAddr) -> Result<Reservation, BindError> {
    let why =
        |error: rustix::io::Errno| BindError { address: address.to_string(), error: error.into() };
    if address.port() != 0 {
        let probe = tcp_socket(&address).map_err(why)?;
        bind(&probe, &address).map_err(why)?;
        return Ok(Reservation { address, _holder: None });
    }
    let holder = tcp_socket(&address).map_err(why)?;
    sockopt::set_socket_reuseport(&holder, true).map_err(why)?;
    bind(&holder, &address).map_err(why)?;
    let name = getsockname(&holder).map_err(why)?;
    let address = SocketAddr::try_from(name).map_err(why)?;
    Ok(Reservation { address, _holder: Some(holder) })
}

impl Reservation {
    /// The address, its port known.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One worker's listener. The kernel spreads connections over all listeners of an address.
    ///
    /// # Errors
    /// [`BindError`] with the reason.
    pub fn listen(&self) -> Result<Listener, BindError> {
        let bound = || -> rustix::io::Result<OwnedFd> {
            let fd = tcp_socket(&self.address)?;
            sockopt::set_socket_reuseport(&fd, true)?;
            // Inherited by every accepted socket, which saves a system call for each.
            sockopt::set_tcp_nodelay(&fd, true)?;
            set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES);
            defer_accept(&fd, 1);
            bind(&fd, &self.address)?;
            listen(&fd, BACKLOG)?;
            Ok(fd)
        };
        match bound() {
            Ok(fd) => Ok(Listener { fd, origin: ListenerOrigin::Tcp }),
            Err(error) => Err(BindError { address: self.address.to_string(), error: error.into() }),
        }
    }
}

/// A listener on a socket file. A file left behind by a server that is gone is replaced; one that
/// a live server answers is not.
///
/// # Errors
/// [`BindError`] with the reason.
pub fn listen_unix(path: &Path) -> Result<Listener, BindError> {
    let bound = || -> io::Result<(OwnedFd, u64)> {
        let name = SocketAddrUnix::new(path)?;
        let probe = unix_socket()?;
        match net::connect(&probe, &name) {
            Ok(()) => return Err(io::ErrorKind::AddrInUse.into()),
            // A file that is no socket refuses too, and is not ours to remove.
            Err(rustix::io::Errno::CONNREFUSED) if !is_socket(path) => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path)?,
            Err(_) => {}
        }
        let fd = unix_socket()?;
        bind(&fd, &name)?;
        listen(&fd, BACKLOG)?;
        Ok((fd, std::fs::symlink_metadata(path)?.ino()))
    };
    match bound() {
        Ok((fd, inode)) => {
            Ok(Listener { fd, origin: ListenerOrigin::File(path.to_owned(), inode) })
        }
        Err(error) => Err(BindError { address: format!("unix:{}", path.display()), error }),
    }
}

impl Listener {
    /// Lets no connection begin at a TCP listener any more, while handshakes under way complete.
    /// Closing a listener resets what is in its queue; after this call the queue empties first. A
    /// socket file has no such filter and stays as it is. Returns false for an inherited listener:
    /// its queue is left to the process that has it next.
    pub(crate) fn refuse_new(&self, how: TurnAway) -> bool {
        match (&self.origin, how) {
            (ListenerOrigin::Inherited, _) => return false,
            // A socket file has no such filter.
            (ListenerOrigin::File(..), _) => return true,
            (ListenerOrigin::Tcp, TurnAway::Drop) => self.drop_new(),
            (ListenerOrigin::Tcp, TurnAway::Refuse) => {
                // To SYNs the listener is at home on a device where none arrives, so that the
                // kernel refuses them as if there were none. The final packet of a handshake finds
                // its own entry, and with it the listener.
                let nowhere = libc::c_int::MAX as u32;
                set_option(&self.fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, nowhere);
            }
        }
        // Those it still keeps to itself would die with the listener.
        defer_accept(&self.fd, 0);
        true
    }

    /// Lets no connection begin any more, as [`Listener::refuse_new`]; a socket file goes.
    pub(crate) fn vanish(&self) -> bool {
        // mutation: vanished-file
        self.remove_file();
        // mutation: vanished-listener
        self.refuse_new(TurnAway::Refuse)
    }

    /// Another process has it from now on, and this one only until it is dropped.
    pub(crate) fn leave(&mut self) {
        self.origin = ListenerOrigin::Inherited;
    }

    /// Where it comes from, for [`Listener::described`].
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        match &self.origin {
            // Two bytes for the port, which builds before 0.1.0 need.
            ListenerOrigin::Tcp => out.extend_from_slice(b"T\0\0"),
            ListenerOrigin::File(path, inode) => {
                out.push(b'F');
                out.extend_from_slice(&inode.to_le_bytes());
                out.extend_from_slice(path.as_os_str().as_bytes());
            }
            ListenerOrigin::Inherited => out.push(b'I'),
        }
    }

    /// A listener that another process had.
    pub(crate) fn described(fd: OwnedFd, bytes: &[u8]) -> Option<Listener> {
        let (kind, rest) = bytes.split_first()?;
        let origin = match kind {
            b'T' => ListenerOrigin::Tcp,
            b'F' => {
                let (inode, path) = rest.split_first_chunk()?;
                ListenerOrigin::File(OsStr::from_bytes(path).into(), u64::from_le_bytes(*inode))
            }
            b'I' => ListenerOrigin::Inherited,
            _ => return None,
        };
        Some(Listener { fd, origin })
    }

    /// Whether it is one of several of its address, one for each worker.
    pub(crate) fn is_one_of_many(&self) -> bool {
        matches!(self.origin, ListenerOrigin::Tcp)
    }

    /// Lets the kernel drop every SYN: clients that come too late try again as after a lost packet.
    fn drop_new(&self) {
        // The filter sees the TCP header: byte 13 holds the flags, 0x02 is SYN, 0x10 is ACK.
        let _ = attach_filter(
            &self.fd,
            libc::SO_ATTACH_FILTER,
            &[
                code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 13),
                code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0x12),
                code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 0x02),
                code(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
                code(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
            ],
        );
    }
}

/// A connection that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Dial {
    /// The server.
    pub to: SocketAddr,
    /// The address to come from. None: the kernel chooses.
    pub from: Option<IpAddr>,
    /// Size of the receive buffer in bytes, for a reader whose slowness is to be felt. None: the
    /// kernel sizes it.
    pub receive_bytes: Option<u32>,
}

/// Begins a connection; it is not established yet.
pub(crate) fn dial(dial: &Dial) -> rustix::io::Result<OwnedFd> {
    let fd = stream_socket(&dial.to)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(bytes) = dial.receive_bytes {
        sockopt::set_socket_recv_buffer_size(&fd, bytes as usize)?;
    }
    if let Some(from) = dial.from {
        // Else a port is taken for good by `bind`; so only the pair of both ends must be new.
        set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        bind(&fd, &SocketAddr::new(from, 0))?;
    }
    match net::connect(&fd, &dial.to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error),
    }
}

/// Connects to a socket file.
pub(crate) fn dial_file(path: &Path) -> rustix::io::Result<OwnedFd> {
    // A socket that does not block would be refused if others wait to be accepted.
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Removes its socket file, if it has one.
    fn remove_file(&self) {
        if let ListenerOrigin::File(path, inode) = &self.origin
            && std::fs::symlink_metadata(path).is_ok_and(|file| file.ino() == *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove_file();
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

fn stream_socket(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

fn tcp_socket(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let fd = stream_socket(address)?;
    // Not kept from starting again by connections in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    Ok(fd)
}

/// Lets the kernel keep a connection to itself until its first bytes are there, or so long: HTTP
/// clients speak first, and so one wake-up brings both.
fn defer_accept(fd: &OwnedFd, seconds: u32) {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds);
}

/// Keeps the backlog of a stream's reader out of the kernel. The limit on unsent bytes means that
/// a reader who has stopped reading gets, when it wakes up, one message that had been handed over
/// before and then the newest; the small buffer bounds what is sent and not acknowledged.
pub(crate) fn limit_unsent(fd: BorrowedFd<'_>) {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, STREAM_UNSENT_BYTES);
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, STREAM_BUFFER_BYTES);
}

/// Has TCP try again soon, and give up in time. Without the second the first would be the end of a
/// connection within a minute: the kernel counts its attempts.
pub(crate) fn limit_retransmission(fd: BorrowedFd<'_>, retransmission: Retransmission) {
    let Retransmission { pause_ms_max, give_up_ms } = retransmission;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, give_up_ms);
    if pause_ms_max > 0 {
        set_option(fd, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, pause_ms_max);
    }
}

/// Lets the kernel keep as much unsent of this connection as it likes, if the peer has shown that
/// it reads: large files then take fewer calls.
pub(crate) fn trust_reader(fd: BorrowedFd<'_>) {
    let info = tcp_info(fd);
    if info.is_some_and(|info| info[TCP_INFO_WORDS - 1] >= TRUSTED_BYTES) {
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32::MAX);
    }
}

/// How many wait in the queue of a listener; 0 if the kernel does not say.
pub(crate) fn queue_length(listener: &Listener) -> u32 {
    // Of a listener it is told in the place of the packets that are not acknowledged.
    let info = tcp_info(listener.fd.as_fd());
    info.map_or(0, |info| {
        info[TCPI_UNACKED / 8].to_ne_bytes()[..4].try_into().map_or(0, u32::from_ne_bytes)
    })
}

/// What the kernel says of a TCP socket.
fn tcp_info(fd: BorrowedFd<'_>) -> Option<[u64; TCP_INFO_WORDS]> {
    let mut info = [0_u64; TCP_INFO_WORDS];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` is valid for writes of `length` bytes during the call, and any bytes are good
    // numbers.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(info)
}

/// Bytes that wait in the kernel, sent or not, until the peer acknowledges them; 0 if it does not
/// say.
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the command (SIOCOUTQ, of the same number) writes one integer to where it is told.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    u32::try_from(bytes).unwrap_or(0)
}

/// The kernel's own account of a socket's buffers (`SO_MEMINFO`), in bytes: what `tcp_mem` counts
/// of it.
pub(crate) fn kernel_bytes(fd: BorrowedFd<'_>) -> usize {
    let mut values = [0_u32; MEMINFO_VALUES];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `values`, which live until it returns.
    unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        );
    }
    MEMINFO_OF_TCP.iter().map(|&index| values[index] as usize).sum()
}

/// `SK_MEMINFO_VARS` of `linux/sock_diag.h`. A newer kernel has more, and tells only these.
const MEMINFO_VALUES: usize = 9;

/// `SK_MEMINFO_RMEM_ALLOC`, `SK_MEMINFO_FWD_ALLOC` and `SK_MEMINFO_WMEM_QUEUED`.
const MEMINFO_OF_TCP: [usize; 3] = [0, 4, 5];

/// An instruction of a program for the kernel's packet filter.
pub(crate) fn code(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Sets a socket option that only makes things better; a kernel that refuses it is no error.
pub(crate) fn set_option(fd: impl AsFd, level: libc::c_int, name: libc::c_int, value: u32) {
    // SAFETY: a number points to nothing.
    let _ = unsafe { set_option_of(fd, level, name, &value) };
}

/// Attaches a program of the packet filter to a socket, by one of the options that take one.
pub(crate) fn attach_filter(
    fd: impl AsFd,
    name: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: it points to `len` instructions, which are borrowed during the call.
    unsafe { set_option_of(fd, libc::SOL_SOCKET, name, &filter) }
}

/// Sets a socket option.
///
/// # Safety
/// If the kernel follows pointers in `value`, what they point to is valid for reads.
unsafe fn set_option_of<T>(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let fd = fd.as_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of `length` bytes during the call; the kernel copies it
    // and what it points to, and writes to neither.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// A socket takes no more while so many bytes are unsent: what a client does not read waits in
/// values and files that all share, and not in the kernel, once for each client. Large enough that
/// a fast reader never waits for the worker.
const UNSENT_BYTES: u32 = 128 * 1024;

/// A peer that has acknowledged so many bytes reads: whoever only wants the kernel to hold memory
/// for it has to take that much first.
const TRUSTED_BYTES: u64 = 1024 * 1024;

/// `struct tcp_info` up to and including `tcpi_bytes_acked`, the last of these words.
const TCP_INFO_WORDS: usize = 16;

/// Where in it `tcpi_unacked` begins, in bytes: behind eight bytes and four numbers.
const TCPI_UNACKED: usize = 24;

/// A stream's socket takes no more while so many bytes are unsent.
const STREAM_UNSENT_BYTES: u32 = 1;
/// What a stream's socket holds at most, unacknowledged bytes included; the kernel doubles it for
/// its own overhead. At a round trip of 100 ms it lets about 640 KiB/s through.
const STREAM_BUFFER_BYTES: u32 = 64 * 1024;

/// Asked for; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// From the kernel's `include/uapi/linux/tcp.h`, since 6.15; the crate `libc` does not have it.
const TCP_RTO_MAX_MS: libc::c_int = 44;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::io::Write;
    use std::net::TcpStream;

    /// A connection that has come by a listener, and a client with a small window, which reads
    /// nothing.
    fn connected() -> (TcpStream, OwnedFd) {
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = reserved.listen().unwrap();
        defer_accept(&listener.fd, 0);
        let to = reserved.address();
        let client = dial(&Dial { to, from: None, receive_bytes: Some(4_096) }).unwrap();
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = net::accept_with(&listener, flags).unwrap();
        (accepted.into(), client)
    }

    /// How much the kernel takes.
    fn fill(mut socket: &TcpStream) -> usize {
        std::iter::from_fn(|| socket.write(&[0; 1_000]).ok()).sum()
    }

    #[test]
    fn what_no_client_reads_waits_outside_the_kernel() {
        let (socket, _client) = connected();
        let bytes = fill(&socket);
        assert!((100_000..300_000).contains(&bytes), "{bytes}");
        trust_reader(socket.as_fd());
        assert_eq!(fill(&socket), 0, "it has read nothing yet");
    }

    #[test]
    fn a_stream_keeps_one_message_unsent() {
        let (socket, _client) = connected();
        limit_unsent(socket.as_fd());
        let bytes = fill(&socket);
        assert!(bytes < 20_000, "{bytes}");
        let buffer = sockopt::socket_send_buffer_size(&socket).unwrap();
        assert!(buffer <= 2 * 64 * 1024, "{buffer}");
    }

    #[test]
    fn many_connections_wait_to_be_accepted() {
        let scratch = Scratch::new();
        let path = scratch.join("socket");
        let _listener = listen_unix(&path).unwrap();
        let name = SocketAddrUnix::new(&path).unwrap();
        let clients: Vec<_> = (0..100).map(|_| unix_socket().unwrap()).collect();
        assert!(clients.iter().all(|client| net::connect(client, &name).is_ok()));
    }
}
