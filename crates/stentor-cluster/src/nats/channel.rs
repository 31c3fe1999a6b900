//! The bytes of a connection to a broker, in the clear or sealed: one thread reads them, and
//! another one writes them.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_io::{lock, monotonic_us, unix_s};
use stentor_tls::{
    ClientHandshake, Connector, FRAGMENT_BYTES_MAX, Failure, Inbound, NO_CERTIFICATE_SHOWN, Owned,
    Record,
};

/// What is read.
pub(super) struct Source {
    socket: TcpStream,
    session: Option<Arc<Mutex<Owned>>>,
    inbound: Inbound,
    buffer: Vec<u8>,
    /// Everything has to be read by then, on the clock of [`monotonic_us`].
    until_us: Option<u64>,
}

/// What is written. The connection ends with it.
pub(super) struct Sink {
    socket: TcpStream,
    session: Option<Arc<Mutex<Owned>>>,
    sealed: Vec<u8>,
}

/// Both ends of a socket, of which nothing is read any more after `until_us`.
///
/// # Errors
/// There are no descriptors left.
pub(super) fn open(socket: TcpStream, until_us: u64) -> io::Result<(Source, Sink)> {
    let reads = socket.try_clone()?;
    let source = Source {
        socket: reads,
        session: None,
        inbound: Inbound::default(),
        buffer: vec![0; READ_BYTES],
        until_us: Some(until_us),
    };
    Ok((source, Sink { socket, session: None, sealed: Vec::new() }))
}

/// Has all be sealed that follows, in both directions, by `until_us`.
///
/// # Errors
/// Why there is no session, in a part of a sentence whose subject is the broker.
pub(super) fn secure(
    source: &mut Source,
    sink: &mut Sink,
    connector: &Connector,
    until_us: u64,
) -> Result<(), String> {
    let mut out = Vec::new();
    let mut handshake = connector.begin(unix_s(), &mut out).map_err(|error| error.to_string())?;
    let established = loop {
        put(&mut sink.socket, &out, until_us).map_err(|error| error.to_string())?;
        out.clear();
        let read = source.receive().map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("it ended the connection within its handshake".to_owned());
        }
        if let Some(session) = go_on(&mut handshake, source, read, &mut out, sink)? {
            break Arc::new(Mutex::new(session));
        }
    };
    put(&mut sink.socket, &out, until_us).map_err(|error| error.to_string())?;
    source.session = Some(Arc::clone(&established));
    sink.session = Some(established);
    Ok(())
}

/// The next step of a handshake. What comes behind the last one are records.
fn go_on(
    handshake: &mut ClientHandshake,
    source: &mut Source,
    read: usize,
    out: &mut Vec<u8>,
    sink: &mut Sink,
) -> Result<Option<Owned>, String> {
    match handshake.receive(unix_s(), &source.buffer[..read], out) {
        Ok(progress) => Ok(progress.established.map(|established| {
            source.inbound = Inbound::of_waiting(source.buffer[progress.used..read].to_vec());
            established.session
        })),
        Err(error) => {
            // It is told why, if it listens yet.
            let _ = sink.socket.write_all(out);
            Err(error.to_string())
        }
    }
}

impl Source {
    /// Appends what comes next to `bytes`. `false`: nothing more does.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn read(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let before = bytes.len();
        let mut read = 0;
        loop {
            if let Some(session) = &self.session
                && !open_records(session, &mut self.inbound, &mut self.buffer[..read], bytes)?
            {
                return Ok(bytes.len() > before);
            }
            if bytes.len() > before {
                return Ok(true);
            }
            read = self.receive()?;
            if read == 0 {
                return Ok(false);
            }
            if self.session.is_none() {
                bytes.extend_from_slice(&self.buffer[..read]);
            }
        }
    }

    /// The next bytes, into the buffer. None: nothing more comes.
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            if let Some(until_us) = self.until_us {
                self.socket.set_read_timeout(Some(left(until_us, SAYS_NOTHING)?))?;
            }
            match self.socket.read(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // That the time is over is seen above.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// From now on it is waited for what comes, however long that takes.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn wait_for_ever(&mut self) -> io::Result<()> {
        self.until_us = None;
        self.socket.set_read_timeout(None)
    }
}

/// How long it is until then.
fn left(until_us: u64, fault: &'static str) -> io::Result<Duration> {
    match until_us.saturating_sub(monotonic_us()) {
        0 => Err(io::Error::new(ErrorKind::TimedOut, fault)),
        left_us => Ok(Duration::from_micros(left_us)),
    }
}

/// Writes all of it, if the other side takes it by then.
fn put(socket: &mut TcpStream, mut bytes: &[u8], until_us: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(Some(left(until_us, TAKES_NOTHING)?))?;
        match socket.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // That the time is over is seen above.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens what has arrived behind what waits. `false`: the broker has said that nothing more comes.
fn open_records(
    session: &Mutex<Owned>,
    inbound: &mut Inbound,
    arrived: &mut [u8],
    bytes: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut session = lock(session);
    let mut session = session.session();
    let mut records = inbound.records(arrived);
    let goes_on = loop {
        match records.next(&mut session).map_err(broken)? {
            Some(Record::Data(data)) => bytes.extend_from_slice(data),
            Some(Record::Closed) => break false,
            None => break true,
        }
    };
    records.keep();
    Ok(goes_on)
}

fn broken(failure: Failure) -> io::Error {
    match failure {
        // Of TLS 1.3 that comes behind the handshake.
        Failure::Peer(alert) if alert.0 == CERTIFICATE_REQUIRED => {
            io::Error::other(NO_CERTIFICATE_SHOWN)
        }
        // What brokers that were built before 2023 say where they were shown none, too.
        Failure::Peer(alert) if alert.0 == BAD_CERTIFICATE => {
            io::Error::other(format!("{NO_CERTIFICATE_SHOWN} that it trusts"))
        }
        other => io::Error::other(other),
    }
}

impl Sink {
    /// Writes all of it by `until_us`.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn write_all(&mut self, mut bytes: &[u8], until_us: u64) -> io::Result<()> {
        let Some(session) = &self.session else { return put(&mut self.socket, bytes, until_us) };
        while !bytes.is_empty() {
            self.sealed.resize(SEALED_BYTES, 0);
            let sealed = lock(session).session().seal(
                &[IoSlice::new(bytes)],
                FRAGMENT_BYTES_MAX,
                &mut self.sealed,
            );
            // Nobody who reads waits for the socket: another record may be sealed by no one else.
            let sealed = sealed.map_err(io::Error::other)?;
            put(&mut self.socket, &self.sealed[..sealed.written], until_us)?;
            bytes = &bytes[sealed.taken..];
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Whoever reads it ends by that.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// RFC 8446 section 6.
const CERTIFICATE_REQUIRED: u8 = 116;
const BAD_CERTIFICATE: u8 = 42;

const READ_BYTES: usize = 256 << 10;

/// Of which a broker is the subject.
const SAYS_NOTHING: &str = "it says nothing";
const TAKES_NOTHING: &str = "it takes nothing";

/// A whole record, and what may be owed before it.
const SEALED_BYTES: usize = FRAGMENT_BYTES_MAX + 512;
