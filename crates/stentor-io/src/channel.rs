//! A channel between two processes of one program, for bytes and open files: how a server hands
//! its connections over to the next one.
//!
//! It is a Unix socket of whole messages (`SOCK_SEQPACKET`). A message has a kind, some bytes, and
//! some files, which the other process then has open as well (`SCM_RIGHTS`, unix(7)).

use crate::monotonic_us;
use crate::parent::WaitingParent;
use crate::process::timespec;
use rustix::cmsg_space;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::time::Duration;
use zeroize::Zeroize;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
    /// Lent to whoever receives, one message at a time.
    buffer: Vec<u8>,
    /// Until when a call may wait, on the clock of [`monotonic_us`].
    deadline_us: Option<u64>,
}

/// What came by a channel.
#[derive(Debug)]
pub struct Parcel<'a> {
    /// What it is, as the sender says.
    pub kind: u8,
    /// As many as [`Channel::BYTES_MAX`], at most.
    pub bytes: &'a [u8],
    /// At the lowest numbers that were free, in their order.
    pub(crate) files: Vec<OwnedFd>,
}

/// One that two processes have: whichever takes it first has it alone. So it is decided at one
/// moment which of them goes on, whatever becomes of the other.
#[derive(Debug)]
pub struct Token {
    fd: OwnedFd,
}

impl Token {
    /// A new one, which nobody has taken.
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn new() -> io::Result<Token> {
        Ok(Token { fd: eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Takes it. Returns whether nobody had.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn take(&self) -> io::Result<bool> {
        loop {
            match rustix::io::read(&self.fd, &mut [0; 8]) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Where another thread of this process, or of another one, finds a channel.
#[derive(Debug)]
pub struct ChannelListener {
    fd: OwnedFd,
    name: Vec<u8>,
}

impl Channel {
    /// The bytes of a message, at most.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// Both ends of a new one.
    ///
    /// # Errors
    /// Out of files or memory.
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (one, other) = net::socketpair(family, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel::of(one), Channel::of(other)))
    }

    /// Starts a program, which finds the other end of the channel by [`Channel::inherited`]. It
    /// gets no other file of this process.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: &mut Command) -> io::Result<(Channel, Child)> {
        let (ours, theirs) = Channel::pair()?;
        // A file that the process before left open may have the number of a connection.
        close_at_exec();
        // It has to outlive the start of the program; no other is started meanwhile.
        fcntl_setfd(&theirs.fd, FdFlags::empty())?;
        command.env(VARIABLE, theirs.fd.as_raw_fd().to_string());
        let child = command.spawn()?;
        Ok((ours, child))
    }

    /// The end that this process was started with, if it was.
    ///
    /// # Errors
    /// The environment names no such channel, or it was taken before.
    pub fn inherited() -> io::Result<Option<Channel>> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let number = value.to_str().and_then(|value| value.parse::<i32>().ok());
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Some(Channel::of(started_with(number, SocketType::SEQPACKET)?)))
    }

    /// To the listener of this name, which must be of that process.
    ///
    /// # Errors
    /// There is none, or it is another's.
    pub fn connect(name: &[u8], process: u32) -> io::Result<Channel> {
        let fd = socket()?;
        // Other users may have filled the queue of connections.
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(PATIENCE_TO_CONNECT))?;
        net::connect(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, None)?;
        check_peer(&fd, process)?;
        Ok(Channel::of(fd))
    }

    pub(crate) fn of(fd: OwnedFd) -> Channel {
        Channel { fd, buffer: Vec::new(), deadline_us: None }
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The process at the other end.
    pub(crate) fn peer(&self) -> io::Result<PeerProcess> {
        peer_process(&self.fd)
    }

    /// Waits no longer than that for a message, or for room to send one.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.fd, Timeout::Recv, Some(patience))?;
        Ok(sockopt::set_socket_timeout(&self.fd, Timeout::Send, Some(patience))?)
    }

    /// From now on all calls together wait until this time at most, on the clock of
    /// [`monotonic_us`]. The patience of single calls does not count any more.
    pub fn set_deadline(&mut self, deadline_us: u64) {
        self.deadline_us = Some(deadline_us);
    }

    /// Waits for an event of the socket, until the deadline. Returns false if the deadline is over,
    /// or if the channel has none.
    fn wait(&self, event: PollFlags) -> rustix::io::Result<bool> {
        let now_us = monotonic_us();
        let Some(deadline_us) = self.deadline_us.filter(|&at_us| at_us > now_us) else {
            return Ok(false);
        };
        match poll(&mut [PollFd::new(&self.fd, event)], Some(&timespec(deadline_us - now_us))) {
            Err(Errno::INTR) => Ok(true),
            ready => Ok(ready? > 0),
        }
    }

    /// Whether the kernel itself is not to wait in a call.
    fn is_bounded(&self) -> bool {
        self.deadline_us.is_some()
    }

    /// Sends bytes of any length, in messages of that kind. No bytes are one message.
    ///
    /// # Errors
    /// The other end is gone, or takes nothing any more.
    pub fn send(&self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        for part in chunks(bytes) {
            self.send_parcel(kind, part, &[], SendFlags::empty())?;
        }
        Ok(())
    }

    /// Sends a message with a token and what is known of the first process. This process keeps its
    /// own handles of both.
    ///
    /// # Errors
    /// As [`Channel::send`], and if the bytes are more than [`Channel::BYTES_MAX`].
    pub fn send_with_token(
        &self,
        kind: u8,
        bytes: &[u8],
        token: &Token,
        parent: Option<&WaitingParent>,
    ) -> io::Result<()> {
        let files = [Some(token.fd.as_fd()), parent.and_then(WaitingParent::file)];
        let files: Vec<_> = files.into_iter().flatten().collect();
        Ok(self.send_parcel(kind, bytes, &files, SendFlags::empty())?)
    }

    /// Sends a short message, if there is room for it. Returns whether there was.
    pub(crate) fn try_send(&self, kind: u8, bytes: &[u8]) -> io::Result<bool> {
        match self.send_parcel(kind, bytes, &[], SendFlags::DONTWAIT) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends nothing more. What the other end says can still be received.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn end(&self) -> io::Result<()> {
        Ok(net::shutdown(&self.fd, net::Shutdown::Write)?)
    }

    /// Whether a message, or the end, can be received without waiting.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn has_mail(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut asked, Some(&timespec(0))) {
            // A signal came, for whoever looks after signals.
            Err(Errno::INTR) => Ok(false),
            asked => Ok(asked? > 0),
        }
    }

    /// Sends one message, with files.
    pub(crate) fn send_parcel(
        &self,
        kind: u8,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(Channel::FILES_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Errno::TOOMANYREFS);
        }
        let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(bytes)];
        let waits = !flags.contains(SendFlags::DONTWAIT);
        let mut flags = flags | SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, !waits || self.is_bounded());
        loop {
            match net::sendmsg(&self.fd, &parts, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if waits && self.wait(PollFlags::OUT)? => {}
                result => return result.map(drop),
            }
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the other end is gone, [`io::ErrorKind::WouldBlock`] if
    /// it says nothing for too long; or this process may not have so many files.
    pub fn receive(&mut self) -> io::Result<Parcel<'_>> {
        let mut kind = [0];
        self.buffer.resize(Channel::BYTES_MAX, 0);
        let mut files = Vec::new();
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        flags.set(RecvFlags::DONTWAIT, self.is_bounded());
        let received = loop {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(Channel::FILES_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut kind), IoSliceMut::new(&mut self.buffer)];
            let result = net::recvmsg(&self.fd, parts, &mut ancillary, flags);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = message {
                    files.extend(passed);
                }
            }
            match result {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(PollFlags::IN)? => {}
                result => break result?,
            }
        };
        if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
            return Err(Errno::MFILE.into());
        }
        let Some(length) = received.bytes.checked_sub(kind.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok(Parcel { kind: kind[0], bytes: &self.buffer[..length], files })
    }

    /// Overwrites what was received.
    pub(crate) fn wipe(&mut self) {
        self.buffer.zeroize();
    }

    #[cfg(test)]
    pub(crate) fn is_wiped(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The files of a message, at most: the kernel takes no more in one.
    pub(crate) const FILES_MAX: usize = 253;
}

impl Parcel<'_> {
    /// The token that came with it, and what is known of the first process, if they did.
    #[must_use]
    pub fn into_token(self) -> (Option<Token>, Option<WaitingParent>) {
        let mut files = self.files.into_iter();
        let token = files.next().map(|fd| Token { fd });
        (token, files.next().map(WaitingParent::of))
    }
}

impl ChannelListener {
    /// Listens at an address that the kernel chooses, in the file table of this thread.
    ///
    /// # Errors
    /// Out of files or memory.
    pub fn new() -> io::Result<ChannelListener> {
        let fd = socket()?;
        net::bind(&fd, &SocketAddrUnix::new_unnamed())?;
        let bound = SocketAddrUnix::try_from(net::getsockname(&fd)?)?;
        let name = bound.abstract_name().ok_or(io::ErrorKind::AddrNotAvailable)?.to_vec();
        net::listen(&fd, 1)?;
        Ok(ChannelListener { fd, name })
    }

    /// Listens at the abstract address of that name.
    pub(crate) fn named(name: &[u8]) -> io::Result<ChannelListener> {
        let fd = socket()?;
        net::bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        net::listen(&fd, BACKLOG)?;
        Ok(ChannelListener { fd, name: name.to_vec() })
    }

    /// For [`Channel::connect`].
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The next connection that waits to be accepted, with its process.
    pub(crate) fn next_peer(&self) -> io::Result<Option<(Channel, PeerProcess)>> {
        let mut asked = [PollFd::new(&self.fd, PollFlags::IN)];
        if poll(&mut asked, Some(&timespec(0)))? == 0 {
            return Ok(None);
        }
        let channel = Channel::of(net::accept_with(&self.fd, SocketFlags::CLOEXEC)?);
        let peer = channel.peer()?;
        Ok(Some((channel, peer)))
    }

    /// Waits for that process to connect. Others are turned away.
    ///
    /// # Errors
    /// Nobody came in time.
    pub fn accept(self, process: u32, patience: Duration) -> io::Result<Channel> {
        sockopt::set_socket_timeout(&self.fd, Timeout::Recv, Some(patience))?;
        loop {
            let fd = match net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if check_peer(&fd, process).is_ok() {
                return Ok(Channel::of(fd));
            }
        }
    }
}

/// The process that started this one.
#[must_use]
pub fn parent_process() -> u32 {
    rustix::process::getppid().map_or(0, |process| process.as_raw_nonzero().get() as u32)
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Takes over a socket that this process was started with, and keeps it from its children.
///
/// Such a file is told by its flag: a program that starts has no file that is closed at that
/// moment, and this crate opens every file with the flag that has it closed then.
///
/// # Errors
/// There is no file of that number, or it is no such socket, or it was taken before.
pub(crate) fn started_with(number: RawFd, kind: SocketType) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is used for system calls, which refuse it if there is no such file.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(borrowed)?.contains(FdFlags::CLOEXEC) || sockopt::socket_type(borrowed)? != kind
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: the file is open. Nothing else owns it: what this process opens has the flag, and
    // what it has taken over got it just now.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Has all files but the first three closed when this process starts a program. A kernel before
/// 5.11 does not know that; then only files without an owner stay open, as they were.
fn close_at_exec() {
    let (first, last) = (3 as libc::c_long, libc::c_long::from(i32::MAX));
    let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_long;
    // SAFETY: the call takes three numbers, and closes no file of this process.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}

/// Closes the files with numbers from `first` on.
///
/// # Safety
/// Nothing in this process owns one of them.
pub(crate) unsafe fn close_files(first: i32) {
    let (first, last) = (libc::c_long::from(first), libc::c_long::from(i32::MAX));
    // SAFETY: the call takes three numbers; nothing owns the files, as the caller promises.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_long) };
}

/// A process, as the kernel describes it to the other end of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerProcess {
    /// 0: it has no number here, for it is in another PID namespace.
    pub(crate) process: u32,
    pub(crate) user: u32,
}

/// Reads `SO_PEERCRED`. Not by rustix, whose type of process numbers has no 0.
fn peer_process(fd: impl AsFd) -> io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: `peer` is valid for writes of `length` bytes during the call, and any bytes are good
    // numbers.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(PeerProcess { process: peer.pid as u32, user: peer.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the other end is of that process.
fn check_peer(fd: impl AsFd, process: u32) -> io::Result<()> {
    match peer_process(fd)?.process == process {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The bytes in pieces that fit a message; of none there is one, which is empty.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let none = bytes.is_empty().then_some(bytes);
    none.into_iter().chain(bytes.chunks(Channel::BYTES_MAX))
}

/// How long a connect waits for room in the queue of the listener.
const PATIENCE_TO_CONNECT: Duration = Duration::from_secs(2);

/// Connections that may wait at a listener with a name of its own.
const BACKLOG: i32 = 16;

/// Where a process that was started to take over finds its end of the channel: the file's number.
const VARIABLE: &str = "STENTOR_HANDOVER";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;
    use std::thread;
    use stentor_test::{missing, skip};

    /// The kernel has no number for a process of another PID namespace. `unshare` runs this test
    /// again in a namespace of its own, with a socket of this process as its standard input.
    #[test]
    fn a_peer_of_another_pid_namespace_is_0() {
        const INNER: &str = "STENTOR_TEST_INNER";
        if std::env::var_os(INNER).is_some() {
            assert_eq!(peer_process(std::io::stdin()).unwrap().process, 0);
            return println!("it has number 0");
        }
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let name = "channel::tests::a_peer_of_another_pid_namespace_is_0";
        let mut inner = Command::new("timeout");
        inner.args(["60", "unshare", "--user", "--map-root-user", "--pid", "--fork"]);
        inner.arg(std::env::current_exe().unwrap()).args([name, "--exact", "--nocapture"]);
        let inner = inner.env(INNER, "1").stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        let Some(mut inner) = inner.spawn().ok().or_else(|| missing("timeout")) else { return };
        let mut said = String::new();
        inner.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let has_succeeded = inner.wait().unwrap().success();
        match said.contains("running 1 test") {
            true => assert!(has_succeeded && said.contains("it has number 0"), "{said}"),
            false => skip("a new PID namespace is not permitted"),
        }
    }

    #[test]
    fn bytes_come_as_they_were_in_messages_of_bounded_length() {
        let (first, mut second) = Channel::pair().unwrap();
        let bytes: Vec<u8> = (0..Channel::BYTES_MAX * 2 + 3).map(|n| n as u8).collect();
        let sent = bytes.clone();
        let sender = thread::spawn(move || {
            first.send(7, &sent).unwrap();
            first.send(8, &[]).unwrap();
        });
        let mut received = Vec::new();
        for length in [Channel::BYTES_MAX, Channel::BYTES_MAX, 3] {
            let parcel = second.receive().unwrap();
            assert_eq!((parcel.kind, parcel.bytes.len()), (7, length));
            received.extend_from_slice(parcel.bytes);
        }
        assert!(received == bytes);
        let parcel = second.receive().unwrap();
        assert_eq!((parcel.kind, parcel.bytes.len()), (8, 0), "nothing is a message too");
        sender.join().unwrap();
        // A process that another test begins may have the other end for a moment.
        assert_eq!(second.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(second.has_mail().unwrap(), "the end");
    }

    #[test]
    fn who_says_nothing_or_takes_nothing_is_given_up() {
        let (first, mut second) = Channel::pair().unwrap();
        first.set_patience(Duration::from_millis(1)).unwrap();
        second.set_patience(Duration::from_millis(1)).unwrap();
        assert!(!second.has_mail().unwrap());
        assert_eq!(second.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let full = (0..10_000).find_map(|_| first.send(1, &[0; Channel::BYTES_MAX]).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
        assert!(!first.try_send(1, &[]).unwrap());
    }

    /// The patience of each call is longer than any test.
    #[test]
    fn a_deadline_bounds_all_calls_together() {
        let (mut first, mut second) = Channel::pair().unwrap();
        let all = [Duration::from_secs(3_600); 2];
        [&first, &second]
            .into_iter()
            .zip(all)
            .for_each(|(it, long)| it.set_patience(long).unwrap());
        first.send(1, b"x").unwrap();
        second.set_deadline(monotonic_us());
        assert_eq!(second.receive().unwrap().bytes, b"x", "it need not be waited for");
        assert_eq!(second.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for deadline_us in [monotonic_us() + 2_000, monotonic_us() + 4_000] {
            first.set_deadline(deadline_us);
            let full = (0..10_000).find_map(|_| first.send(1, &[0; Channel::BYTES_MAX]).err());
            assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
            assert!(monotonic_us() >= deadline_us, "it waits until then");
        }
        let sender = thread::spawn(move || {
            first.set_deadline(u64::MAX);
            first.send(2, b"y")
        });
        second.set_deadline(u64::MAX);
        while second.receive().unwrap().kind != 2 {}
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn only_the_process_that_is_meant_gets_through() {
        let (own, other) = (std::process::id(), parent_process());
        let patience = Duration::from_millis(1);
        let listener = ChannelListener::new().unwrap();
        assert!(listener.name().len() > 2);
        let refused = Channel::connect(listener.name(), other).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let nobody = listener.accept(other, patience).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock, "whoever else comes is turned away");

        let listener = ChannelListener::new().unwrap();
        let name = listener.name().to_vec();
        let comes = thread::spawn(move || Channel::connect(&name, own).unwrap().send(3, b"x"));
        let mut accepted = listener.accept(own, Duration::from_secs(30)).unwrap();
        assert_eq!(accepted.receive().unwrap().bytes, b"x");
        comes.join().unwrap().unwrap();
    }

    #[test]
    fn a_token_is_taken_once() {
        let (ours, mut theirs) = Channel::pair().unwrap();
        for is_theirs in [true, false] {
            let own = Token::new().unwrap();
            ours.send_with_token(5, b"x", &own, None).unwrap();
            let parcel = theirs.receive().unwrap();
            assert_eq!((parcel.kind, parcel.bytes), (5, &b"x"[..]));
            let (Some(other), None) = parcel.into_token() else { panic!("it has one file") };
            let (first, second) = if is_theirs { (&other, &own) } else { (&own, &other) };
            assert!(first.take().unwrap());
            assert!(!second.take().unwrap() && !first.take().unwrap());
        }
        ours.send(5, b"").unwrap();
        assert!(theirs.receive().unwrap().into_token().0.is_none());
    }
}
