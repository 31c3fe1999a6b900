//! The promises of a backend about sending files. The files are the host's on both.

use super::network::{End, Kernel, Network, read_some};
use crate::scratch::Scratch;
use crate::{
    Backend, Directory, File, FileSendError, Flow, Found, Handler, Peer, Refused, Role, Symlinks,
};
use std::fs;
use std::io::IoSlice;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

contract! {
    file_is_sent_behind_its_head
    truncated_file_is_reported
    file_for_a_peer_that_is_gone
}

/// Sends a head and one part of a file to each client that has sent a byte.
struct Download {
    file: File,
    head: &'static [u8],
    /// From where on in the file, and how far.
    from: u64,
    length: usize,
    slice_bytes: usize,
    /// The bytes of head and file together.
    sent: usize,
    outcome: Option<Result<(), FileSendError>>,
    /// The last peer that asked.
    peer: Option<Peer>,
}

impl Download {
    fn new(file: File, from: u64, length: usize) -> Download {
        Download {
            file,
            head: HEAD,
            from,
            length,
            slice_bytes: 100_000,
            sent: 0,
            outcome: None,
            peer: None,
        }
    }

    /// Sends until the socket is full.
    fn go_on<B: Backend>(&mut self, io: &mut B, socket: Peer) {
        while self.outcome.is_none() {
            let head = &self.head[self.sent.min(self.head.len())..];
            let begun = self.sent.saturating_sub(self.head.len());
            let length = (self.length - begun).min(self.slice_bytes);
            let parts = [IoSlice::new(head)];
            let parts = if head.is_empty() { &[][..] } else { &parts[..] };
            match io.send_file(socket, parts, &self.file, self.from + begun as u64, length) {
                Ok(sent) => {
                    self.sent += sent.bytes;
                    if self.sent == self.head.len() + self.length {
                        self.outcome = Some(Ok(()));
                        io.finish(socket);
                    } else if sent.full {
                        return;
                    }
                }
                Err(error) => {
                    self.outcome = Some(Err(error));
                    if error == FileSendError::Truncated {
                        io.finish(socket);
                    }
                }
            }
        }
    }
}

impl<B: Backend> Handler<B> for Download {
    fn accepted(&mut self, _: &mut B, _: Peer, _: Role, _: Option<IpAddr>) -> Result<(), Refused> {
        Ok(())
    }

    fn ready(&mut self, io: &mut B, socket: Peer, writable: bool) -> bool {
        if writable && self.peer.is_some() {
            self.go_on(io, socket);
        }
        true
    }

    fn received(&mut self, io: &mut B, socket: Peer, _: &mut [u8]) -> Flow {
        self.peer = Some(socket);
        self.go_on(io, socket);
        Flow::More
    }

    fn ended(&mut self, io: &mut B, socket: Peer) {
        io.close(socket);
    }
}

const HEAD: &[u8] = b"this comes before the file\r\n";

/// A file in which no two places look the same.
fn long_file(scratch: &Scratch, bytes: usize) -> Vec<u8> {
    let content: Vec<u8> =
        (0_u64..).map(|i| (i * i / 251 + i) as u8 ^ (i >> 11) as u8).take(bytes).collect();
    fs::write(scratch.join("file"), &content).unwrap();
    content
}

fn open(directory: &Path, name: &str) -> File {
    match Directory::open(directory).unwrap().find(name, Symlinks::Refused) {
        Ok(Found::File(file)) => file,
        other => panic!("{name}: {other:?}"),
    }
}

/// Lets a client download, and shows how far it is, until its connection ends.
fn download<N: Network>(
    net: &mut N,
    server: &mut Download,
    mut meanwhile: impl FnMut(usize),
) -> Vec<u8> {
    let mut client = net.connect(0, b"?");
    let mut received = Vec::new();
    net.until(server, |net, _| {
        let end = net.read(&mut client, &mut received);
        meanwhile(received.len());
        assert_ne!(end, Some(End::Reset));
        end.is_some()
    });
    net.io().close(server.peer.unwrap());
    received
}

fn file_is_sent_behind_its_head<N: Network>(mut net: N) {
    let scratch = Scratch::new();
    let content = long_file(&scratch, N::MUCH);
    let end = content.len();
    for (from, length) in [(0, end), (4_095, end - 5_000), (end - 1, 1), (77, 0)] {
        for slice_bytes in [10_000, 256 * 1024, usize::MAX >> 1] {
            let mut server = Download::new(open(&scratch, "file"), from as u64, length);
            server.slice_bytes = slice_bytes;
            let received = download(&mut net, &mut server, |_| {});
            assert_eq!(server.outcome, Some(Ok(())));
            assert!(received.starts_with(HEAD));
            assert!(received[HEAD.len()..] == content[from..][..length]);
        }
    }
}

fn truncated_file_is_reported<N: Network>(mut net: N) {
    let scratch = Scratch::new();
    let content = long_file(&scratch, N::MUCH);
    let end = content.len() - 12_345;
    let writer = fs::OpenOptions::new().write(true).open(scratch.join("file")).unwrap();
    let mut server = Download::new(open(&scratch, "file"), 5, content.len() - 5);
    let mut is_cut = false;
    let received = download(&mut net, &mut server, |received| {
        if received > 20_000 && !is_cut {
            writer.set_len(end as u64).unwrap();
            is_cut = true;
        }
    });
    assert_eq!(server.outcome, Some(Err(FileSendError::Truncated)));
    assert!(received[HEAD.len()..] == content[5..end], "all bytes of the file came, and no more");
    // From behind the end there is nothing to be sent from the start.
    let mut server = Download::new(open(&scratch, "file"), end as u64, 10);
    download(&mut net, &mut server, |_| {});
    assert_eq!(server.outcome, Some(Err(FileSendError::Truncated)));
}

/// `sendfile` raises SIGPIPE. If that ended the process, this test would not finish.
fn file_for_a_peer_that_is_gone<N: Network>(mut net: N) {
    let scratch = Scratch::new();
    // One large hole: more than any socket takes.
    fs::File::create(scratch.join("file")).unwrap().set_len(1 << 32).unwrap();
    let mut server = Download::new(open(&scratch, "file"), 0, 1 << 32);
    let mut client = net.connect(0, b"?");
    net.stall(&client, true);
    net.until(&mut server, |_, server| server.peer.is_some());
    net.settle(&mut server);
    assert_eq!(server.outcome, None, "the client does not read");
    net.reset(&mut client);
    let (began, peer) = (Instant::now(), server.peer.unwrap());
    while server.outcome.is_none() && began.elapsed() < Duration::from_secs(10) {
        server.go_on(net.io(), peer);
    }
    assert_eq!(server.outcome, Some(Err(FileSendError::Gone)));
}

#[test]
fn file_is_sent_over_a_socket_file() {
    let scratch = Scratch::new();
    let content = long_file(&scratch, 2_000_000);
    let (mut net, mut client) = Kernel::of_file(&scratch.join("socket"));
    let mut server = Download::new(open(&scratch, "file"), 0, content.len());
    let mut received = Vec::new();
    net.until(&mut server, |_, _| read_some(&mut client, &mut received).is_some());
    assert!(received[HEAD.len()..] == content[..]);
}

/// A file system without `sendfile` that every host has.
#[test]
fn file_without_sendfile_is_copied() {
    let expected = fs::read("/proc/self/cmdline").unwrap();
    let mut server = Download::new(open(Path::new("/proc/self"), "cmdline"), 0, expected.len());
    let received = download(&mut Kernel::new(), &mut server, |_| {});
    assert_eq!(server.outcome, Some(Ok(())));
    assert_eq!(&received[HEAD.len()..], expected);
}
