//! A server that does what a test tells it to, and what no real one should: it may stall, lie,
//! stutter or break off.

use crate::support::PATIENCE;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// A listener whose connections have a thread each. It ends with its handle, and they with their
/// clients.
pub(super) struct Stub {
    address: SocketAddr,
    accepted: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Stub {
    /// Treats every client in the same way.
    pub(super) fn new(behave: impl Fn(Peer) + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (over, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (its_over, its_accepted) = (over.clone(), accepted.clone());
        let behave = Arc::new(behave);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if its_over.load(Ordering::Relaxed) {
                    break;
                }
                its_accepted.fetch_add(1, Ordering::Relaxed);
                let (behave, peer) = (behave.clone(), Peer::over(stream.unwrap()));
                thread::spawn(move || behave(peer));
            }
        });
        Stub { address, accepted, over, accepting: Some(accepting) }
    }

    /// Answers each request with the same bytes, in one piece.
    pub(super) fn answering(answer: impl Into<Vec<u8>>) -> Stub {
        let answer = answer.into();
        Stub::new(move |mut peer| while peer.request().is_some() && peer.say(&answer) {})
    }

    /// Answers the first request of each connection with these bytes, and keeps it open.
    pub(super) fn answering_once(answer: impl Into<Vec<u8>>) -> Stub {
        let answer = answer.into();
        Stub::new(move |mut peer| {
            peer.request();
            peer.say(&answer);
            peer.stay();
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/a", self.address)
    }

    /// Connections so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // So that `accept` returns.
        let _ = TcpStream::connect(self.address);
        let ended = self.accepting.take().expect("it is dropped once").join();
        assert!(ended.is_ok() || thread::panicking(), "the stub could not accept");
    }
}

/// A client of a stub.
pub(super) struct Peer {
    stream: BufReader<TcpStream>,
}

/// What a client asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    /// All lines of the head, the first one as well.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Peer {
    fn over(stream: TcpStream) -> Peer {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Peer { stream: BufReader::new(stream) }
    }

    /// The next request; none if the client has gone.
    pub(super) fn request(&mut self) -> Option<Asked> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let method = head.split(' ').next()?.to_owned();
        let mut asked = Asked { method, head, body: Vec::new() };
        let length = asked.field("content-length").and_then(|length| length.parse().ok());
        asked.body.resize(length.unwrap_or(0), 0);
        self.stream.read_exact(&mut asked.body).ok()?;
        Some(asked)
    }

    /// Says whether the client is still there.
    pub(super) fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Closes as soon as something has come, without taking it: the kernel then sends a reset.
    pub(super) fn reset(self) {
        let _ = self.stream.get_ref().peek(&mut [0]);
    }

    /// Waits until the client goes, and listens to nothing it says.
    pub(super) fn stay(mut self) {
        while matches!(self.stream.read(&mut [0; 4096]), Ok(1..)) {}
    }

    /// A second handle, to speak from another thread.
    pub(super) fn speaker(&self) -> TcpStream {
        self.stream.get_ref().try_clone().unwrap()
    }
}

impl Asked {
    /// The value of a header field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}
