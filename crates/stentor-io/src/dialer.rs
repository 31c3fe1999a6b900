//! Connections that this process begins, each of which a thread waits for: to brokers, to leaders,
//! and to hosts of keys. The connections of workers are in `epoll.rs`.
//!
//! A [`Dialer`] is the network, and a [`ByteStream`] is one connection. [`HostDialer`] is the
//! network of this host. `SimDialer` simulates one, with a seed and virtual time. Each call that
//! may block has a deadline on the clock of [`monotonic_us`].

#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;

use crate::process::{monotonic_us, timespec};
use crate::socket::{Dial, dial, dial_file};
use crate::thread::sleep;
use crate::wake::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// Finds other hosts, and connects to them.
pub trait Dialer: Debug + Send + Sync {
    /// The addresses of `HOST:PORT`.
    ///
    /// # Errors
    /// There is no such host, or [`ErrorKind::TimedOut`].
    fn resolve(&self, host: &str, until_us: Option<u64>) -> io::Result<Vec<SocketAddr>>;

    /// Connects to this address.
    ///
    /// # Errors
    /// Nothing listens there, or [`ErrorKind::TimedOut`].
    fn connect(
        &self,
        address: SocketAddr,
        until_us: Option<u64>,
    ) -> io::Result<Arc<dyn ByteStream>>;
}

/// A connection.
pub trait ByteStream: Debug + Send + Sync {
    /// Waits for bytes and reads some. 0: the peer has sent its last byte.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if the call begins after the deadline, or no byte comes before it: a
    /// peer that trickles does not extend it. Any other error: the connection is broken.
    fn read(&self, buffer: &mut [u8], until_us: Option<u64>) -> io::Result<usize> {
        self.read_or_wake(buffer, until_us, None)
    }

    /// Likewise, until the waker is woken.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] if the waker was woken while no byte was there. Otherwise as
    /// [`ByteStream::read`].
    fn read_or_wake(
        &self,
        buffer: &mut [u8],
        until_us: Option<u64>,
        waker: Option<&Waker>,
    ) -> io::Result<usize>;

    /// Waits for room and writes at least one byte.
    ///
    /// # Errors
    /// As [`ByteStream::read`].
    fn write(&self, bytes: &[u8], until_us: Option<u64>) -> io::Result<usize>;

    /// Whether the connection is open, and no byte has come that was not read.
    fn is_quiet(&self) -> bool;

    /// Writes all bytes.
    ///
    /// # Errors
    /// As [`ByteStream::read`].
    fn write_all(&self, mut bytes: &[u8], until_us: Option<u64>) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes, until_us)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }
}

/// Connects to the first of these addresses that accepts. Each has an equal part of the time that
/// is left: one that does not answer leaves the others theirs.
///
/// # Errors
/// The error of the last address; or there is no address.
pub fn connect_to_any(
    dialer: &dyn Dialer,
    addresses: &[SocketAddr],
    until_us: Option<u64>,
) -> io::Result<Arc<dyn ByteStream>> {
    let mut result = Err(io::Error::other("it has no address"));
    for (waiting, address) in (1..=addresses.len() as u64).rev().zip(addresses) {
        let now_us = monotonic_us();
        let part = until_us.map(|us| now_us + (us.saturating_sub(now_us) / waiting).max(1));
        result = dialer.connect(*address, part);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Whether a deadline passed, as opposed to TCP itself giving up a connection.
#[must_use]
pub fn is_late(error: &io::Error) -> bool {
    error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none()
}

/// Connects to a socket file. Blocks while the queue of its listener is full: the kernel refuses a
/// connection that does not wait.
///
/// # Errors
/// Nothing listens there.
pub fn connect_to_file(path: &Path) -> io::Result<Arc<dyn ByteStream>> {
    Ok(Arc::new(HostStream(dial_file(path)?)))
}

/// The pause before another try on a socket that was ready, and then was not.
const READY_PAUSE: Duration = Duration::from_millis(1);

/// The network of this host.
#[derive(Clone, Copy, Debug)]
pub struct HostDialer;

impl Dialer for HostDialer {
    fn resolve(&self, host: &str, until_us: Option<u64>) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let Some(until_us) = until_us else { return Ok(host.to_socket_addrs()?.collect()) };
        // The system call has no deadline, so a thread of its own waits for it.
        let (sender, found) = sync_channel(1);
        let host = host.to_owned();
        let resolve = move || drop(sender.send(host.to_socket_addrs().map(Vec::from_iter)));
        thread::Builder::new().name("resolve".to_owned()).spawn(resolve)?;
        let left = Duration::from_micros(until_us.saturating_sub(monotonic_us()));
        found.recv_timeout(left).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    fn connect(
        &self,
        address: SocketAddr,
        until_us: Option<u64>,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let stream = HostStream(dial(&Dial { to: address, from: None, receive_bytes: None })?);
        while !stream.wait(PollFlags::OUT, until_us, None)? {}
        sockopt::socket_error(&stream.0)??;
        Ok(Arc::new(stream))
    }
}

/// A socket that does not block.
#[derive(Debug)]
struct HostStream(OwnedFd);

impl HostStream {
    /// Waits for one of these events. Returns whether it happened.
    fn wait(
        &self,
        events: PollFlags,
        until_us: Option<u64>,
        waker: Option<&Waker>,
    ) -> io::Result<bool> {
        let left = match until_us.map(|us| us.saturating_sub(monotonic_us())) {
            Some(0) => return Err(ErrorKind::TimedOut.into()),
            left => left.map(timespec),
        };
        let second = waker.map_or(self.0.as_fd(), Waker::as_fd);
        let mut all =
            [PollFd::new(&self.0, events), PollFd::from_borrowed_fd(second, PollFlags::IN)];
        let waited_for = 1 + usize::from(waker.is_some());
        match poll(&mut all[..waited_for], left.as_ref()) {
            Err(Errno::INTR) => return Ok(false),
            ready => ready?,
        };
        if let Some(waker) = waker.filter(|_| !all[1].revents().is_empty()) {
            waker.clear();
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(!all[0].revents().is_empty())
    }

    /// Calls the kernel until that does not block.
    fn retry(
        &self,
        events: PollFlags,
        until_us: Option<u64>,
        waker: Option<&Waker>,
        mut call: impl FnMut() -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        // The socket was ready in time: a thread that runs late still takes what came.
        let mut is_ready = false;
        while is_ready || until_us.is_none_or(|us| monotonic_us() < us) {
            match call() {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // The socket has space in its buffer, but the kernel has no memory.
                    if is_ready {
                        sleep(READY_PAUSE);
                    }
                    is_ready = self.wait(events, until_us, waker)?;
                }
                result => return Ok(result?),
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

impl ByteStream for HostStream {
    fn read_or_wake(
        &self,
        buffer: &mut [u8],
        until_us: Option<u64>,
        waker: Option<&Waker>,
    ) -> io::Result<usize> {
        let read = || rustix::io::read(&self.0, &mut *buffer);
        self.retry(PollFlags::IN, until_us, waker, read)
    }

    fn write(&self, bytes: &[u8], until_us: Option<u64>) -> io::Result<usize> {
        self.retry(PollFlags::OUT, until_us, None, || send(&self.0, bytes, SendFlags::NOSIGNAL))
    }

    fn is_quiet(&self) -> bool {
        recv(&self.0, &mut [0], RecvFlags::PEEK).err() == Some(Errno::AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::{VirtualClock, lock};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;
    use std::sync::Mutex;

    fn pair() -> (Arc<dyn ByteStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = format!("localhost:{}", listener.local_addr().unwrap().port());
        let until_us = Some(monotonic_us() + 10_000_000);
        let addresses = HostDialer.resolve(&host, until_us).unwrap();
        let stream = connect_to_any(&HostDialer, &addresses, until_us).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_carries_bytes_both_ways() {
        let (stream, mut peer) = pair();
        assert!(stream.is_quiet());
        stream.write_all(b"ping", None).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(peer.read(&mut buffer).unwrap(), 4);
        peer.write_all(b"pong").unwrap();
        assert_eq!(stream.read(&mut buffer[..3], None).unwrap(), 3);
        assert!(!stream.is_quiet(), "a byte has come");
        assert_eq!(stream.read(&mut buffer, None).unwrap(), 1);
        drop(peer);
        assert_eq!(stream.read(&mut buffer, None).unwrap(), 0);
        assert!(!stream.is_quiet(), "it has ended");
    }

    #[test]
    fn a_socket_file_carries_bytes_both_ways() {
        let scratch = Scratch::new();
        let path = scratch.join("socket");
        assert!(connect_to_file(&path).is_err());
        let listener = UnixListener::bind(&path).unwrap();
        let stream = connect_to_file(&path).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let soon_us = Some(monotonic_us() + 20_000);
        assert!(is_late(&stream.read(&mut [0], soon_us).unwrap_err()));
        stream.write_all(b"ping", None).unwrap();
        let mut buffer = [0; 4];
        peer.read_exact(&mut buffer).unwrap();
        peer.write_all(&buffer).unwrap();
        assert_eq!(stream.read(&mut [0; 8], None).unwrap(), 4);
        assert!(stream.is_quiet());
    }

    #[test]
    fn a_deadline_ends_calls_even_if_bytes_came() {
        let (stream, mut peer) = pair();
        let soon_us = || Some(monotonic_us() + 20_000);
        assert!(is_late(&stream.read(&mut [0], soon_us()).unwrap_err()));
        let error = stream.write_all(&vec![0; 64 << 20], soon_us()).unwrap_err();
        assert!(is_late(&error), "{error}");
        peer.write_all(b"x").unwrap();
        assert!(is_late(&stream.read(&mut [0], Some(monotonic_us())).unwrap_err()));
    }

    #[test]
    fn a_waker_ends_a_read_once() {
        let (stream, mut peer) = pair();
        let waker = Arc::new(Waker::new().unwrap());
        let read = |waker: &Waker, ms: u64| {
            let until_us = Some(monotonic_us() + ms * 1_000);
            stream.read_or_wake(&mut [0; 8], until_us, Some(waker)).map_err(|error| error.kind())
        };
        let other = Arc::clone(&waker);
        let thread = thread::spawn(move || (0..2).for_each(|_| other.wake()));
        assert_eq!(read(&waker, 10_000), Err(ErrorKind::Interrupted));
        thread.join().unwrap();
        // The second one may have come later.
        let _ = read(&waker, 20);
        assert_eq!(read(&waker, 20), Err(ErrorKind::TimedOut));
        waker.wake();
        assert_eq!(read(&waker, 10_000), Err(ErrorKind::Interrupted));
        // Bytes come first.
        waker.wake();
        peer.write_all(b"ping").unwrap();
        while stream.is_quiet() {}
        assert_eq!(read(&waker, 10_000), Ok(4));
    }

    /// No address of it answers. It notes for how long each was waited for.
    #[derive(Debug)]
    struct Silent(Mutex<Vec<u64>>);

    impl Dialer for Silent {
        fn resolve(&self, _: &str, _: Option<u64>) -> io::Result<Vec<SocketAddr>> {
            Ok(Vec::new())
        }

        fn connect(&self, _: SocketAddr, until_us: Option<u64>) -> io::Result<Arc<dyn ByteStream>> {
            let left_us = until_us.unwrap() - monotonic_us();
            lock(&self.0).push(left_us);
            VirtualClock::pass(Duration::from_micros(left_us));
            Err(ErrorKind::TimedOut.into())
        }
    }

    #[test]
    fn a_silent_address_leaves_the_others_their_time() {
        let _clock = VirtualClock::start(7);
        let silent = Silent(Mutex::default());
        let addresses = [SocketAddr::from(([127, 0, 0, 1], 1)); 3];
        assert!(is_late(&connect_to_any(&silent, &addresses, Some(307)).unwrap_err()));
        assert_eq!(*lock(&silent.0), [100, 100, 100]);
    }

    #[test]
    fn a_refusing_address_is_followed_by_the_next() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let refused = connect_to_any(&HostDialer, &[closed], None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(connect_to_any(&HostDialer, &[closed, open], None).is_ok());
        assert!(connect_to_any(&HostDialer, &[], None).is_err());
    }
}
