//! The bytes of a connection to a broker, in the clear or sealed: one thread reads them, and
//! another one writes them.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_io::unix_s;
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
}

/// What is written. The connection ends with it.
pub(super) struct Sink {
    socket: TcpStream,
    session: Option<Arc<Mutex<Owned>>>,
    sealed: Vec<u8>,
}

/// Both ends of a socket.
///
/// # Errors
/// There are no descriptors left.
pub(super) fn open(socket: TcpStream) -> io::Result<(Source, Sink)> {
    let reads = socket.try_clone()?;
    let buffer = vec![0; READ_BYTES];
    Ok((
        Source { socket: reads, session: None, inbound: Inbound::default(), buffer },
        Sink { socket, session: None, sealed: Vec::new() },
    ))
}

/// Has all be sealed that follows, in both directions.
///
/// # Errors
/// Why there is no session, in a part of a sentence whose subject is the broker.
pub(super) fn secure(
    source: &mut Source,
    sink: &mut Sink,
    connector: &Connector,
) -> Result<(), String> {
    let mut out = Vec::new();
    let mut handshake = connector.begin(unix_s(), &mut out).map_err(|error| error.to_string())?;
    let established = loop {
        sink.socket.write_all(&out).map_err(|error| error.to_string())?;
        out.clear();
        let read = source.socket.read(&mut source.buffer).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("it ended the connection within its handshake".to_owned());
        }
        if let Some(session) = go_on(&mut handshake, source, read, &mut out, sink)? {
            break Arc::new(Mutex::new(session));
        }
    };
    sink.socket.write_all(&out).map_err(|error| error.to_string())?;
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
            read = match self.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            if self.session.is_none() {
                bytes.extend_from_slice(&self.buffer[..read]);
            }
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }
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
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &self.session else { return self.socket.write_all(bytes) };
        while !bytes.is_empty() {
            self.sealed.resize(SEALED_BYTES, 0);
            let sealed = lock(session).session().seal(
                &[IoSlice::new(bytes)],
                FRAGMENT_BYTES_MAX,
                &mut self.sealed,
            );
            // Nobody who reads waits for the socket: another record may be sealed by no one else.
            let sealed = sealed.map_err(io::Error::other)?;
            self.socket.write_all(&self.sealed[..sealed.written])?;
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

fn lock(session: &Mutex<Owned>) -> MutexGuard<'_, Owned> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// RFC 8446 section 6.
const CERTIFICATE_REQUIRED: u8 = 116;
const BAD_CERTIFICATE: u8 = 42;

const READ_BYTES: usize = 256 << 10;

/// A whole record, and what may be owed before it.
const SEALED_BYTES: usize = FRAGMENT_BYTES_MAX + 512;
