//! A client that hides nothing: it sends the bytes it is given, in the pieces it is told to, and
//! reads answers strictly.

use super::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
pub(crate) use stentor_test::http::Response;
use stentor_test::http::take_chunk;

/// A connection. What was read beyond an answer is kept for the next one.
pub(crate) struct Client {
    stream: Stream,
    received: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The server closed its side.
    Closed,
    /// The server cut the connection.
    Reset,
}

/// Where to send a request that has a connection of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Url(pub(crate) SocketAddr);

impl Url {
    /// One request on a connection of its own. `fields` are header lines, each with its CRLF.
    #[track_caller]
    pub(crate) fn ask(self, method: &str, target: &str, fields: &str, body: &[u8]) -> Response {
        Client::connect(self.0).ask(method, target, fields, body)
    }

    #[track_caller]
    pub(crate) fn get(self, target: &str) -> Response {
        self.ask("GET", target, "", b"")
    }

    /// The same of a server that may be away: none if there was no connection.
    pub(crate) fn try_get(self, target: &str) -> Option<Result<Response, Ending>> {
        let mut client = Client::over(TcpStream::connect(self.0).ok()?);
        // An error of the kernel shows as the end of the connection.
        let _ = client.try_send(&request("GET", target, "", b""));
        Some(client.try_response())
    }

    #[track_caller]
    pub(crate) fn put(self, target: &str, content_type: &str, body: &[u8]) -> Response {
        self.ask("PUT", target, &format!("Content-Type: {content_type}\r\n"), body)
    }

    #[track_caller]
    pub(crate) fn post(self, target: &str, body: &[u8]) -> Response {
        self.ask("POST", target, "", body)
    }
}

impl Client {
    /// Ways to send the same bytes: all at once, or each in a packet of its own.
    pub(crate) const SENDS: [fn(&mut Client, &[u8]); 2] =
        [|client, bytes| client.send(bytes), |client, bytes| client.dribble(bytes)];

    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).expect("the server accepts connections"))
    }

    /// Over a connection that was made elsewhere.
    #[track_caller]
    pub(crate) fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream: Stream::Tcp(stream), received: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn connect_unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("the server listens on its socket file");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: Stream::Unix(stream), received: Vec::new() }
    }

    /// A second handle to the same connection, to send from another thread.
    pub(crate) fn sender(&self) -> Client {
        let stream = match &self.stream {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone().unwrap()),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone().unwrap()),
        };
        Client { stream, received: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes.as_ref()).expect("the server takes what is sent");
    }

    /// Sends what the server may have stopped listening to.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Sends each byte in a packet of its own; stops when the server no longer takes any.
    pub(crate) fn dribble(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.try_send(std::slice::from_ref(byte)).is_err() {
                return;
            }
        }
    }

    /// Says that no more will be sent.
    pub(crate) fn finish(&mut self) {
        // The server may have gone already.
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    #[track_caller]
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        body: &[u8],
    ) -> Response {
        self.send(request(method, target, fields, body));
        if method == "HEAD" { self.bodyless_response() } else { self.response() }
    }

    /// The same of a server that may end meanwhile; none if it did before it answered.
    pub(crate) fn try_ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        body: &[u8],
    ) -> Option<Response> {
        self.try_send(&request(method, target, fields, body)).ok()?;
        self.try_response().ok()
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.ask("GET", target, "", b"")
    }

    /// The next answer.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        self.read_response(false).expect("an answer before the connection ends")
    }

    /// The answer to a HEAD.
    #[track_caller]
    pub(crate) fn bodyless_response(&mut self) -> Response {
        self.read_response(true).expect("an answer before the connection ends")
    }

    /// Asks for what has no length and need not end: its head. What follows is to be taken.
    #[track_caller]
    pub(crate) fn open(&mut self, target: &str, fields: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n"));
        self.bodyless_response()
    }

    /// The same, unless the connection ends before.
    pub(crate) fn try_open(&mut self, target: &str, fields: &str) -> Option<Response> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n");
        self.try_send(request.as_bytes()).ok()?;
        self.read_response(true).ok()
    }

    /// Whatever has come, or, if nothing has, what comes next.
    #[track_caller]
    pub(crate) fn take(&mut self) -> Result<Vec<u8>, Ending> {
        if self.received.is_empty() {
            self.more()?;
        }
        Ok(std::mem::take(&mut self.received))
    }

    /// The next chunk of a body behind its head; the last one is empty.
    #[track_caller]
    pub(crate) fn chunk(&mut self) -> Vec<u8> {
        loop {
            if let Some(chunk) = take_chunk(&mut self.received) {
                return chunk;
            }
            self.more().expect("a chunk before the connection ends");
        }
    }

    /// The next answer, or how the connection ended without one.
    #[track_caller]
    pub(crate) fn try_response(&mut self) -> Result<Response, Ending> {
        self.read_response(false)
    }

    /// How the connection ends; an answer instead is a failure.
    #[track_caller]
    pub(crate) fn ending(&mut self) -> Ending {
        match self.read_response(false) {
            Ok(response) => panic!("an answer that nobody asked for: {response:?}"),
            Err(ending) => ending,
        }
    }

    #[track_caller]
    fn read_response(&mut self, bodyless: bool) -> Result<Response, Ending> {
        let take = if bodyless { Response::take_head } else { Response::take };
        loop {
            match take(&mut self.received) {
                Some(response) => return Ok(response),
                None => self.more()?,
            }
        }
    }

    /// Reads on. An end in the middle of an answer is a failure whatever the caller expects.
    #[track_caller]
    fn more(&mut self) -> Result<(), Ending> {
        let mut buffer = [0; 64 * 1024];
        let result = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut buffer),
            Stream::Unix(stream) => stream.read(&mut buffer),
        };
        let ending = match result {
            Ok(0) => Ending::Closed,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                return Ok(());
            }
            Err(error) => match error.kind() {
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ending::Reset,
                // The process was stopped for a while.
                ErrorKind::Interrupted => return Ok(()),
                _ => panic!("neither an answer nor an end: {error}"),
            },
        };
        let rest = String::from_utf8_lossy(&self.received);
        assert!(rest.is_empty(), "the connection ended in the middle of an answer: {rest:?}");
        Err(ending)
    }
}

/// What requests call the server.
const HOST: &str = "localhost";

fn request(method: &str, target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = match (body.len(), method) {
        (0, "GET" | "HEAD" | "OPTIONS" | "DELETE") => String::new(),
        (length, _) => format!("Content-Length: {length}\r\n"),
    };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n{length}{fields}\r\n");
    [head.as_bytes(), body].concat()
}
