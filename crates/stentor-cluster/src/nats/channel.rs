//! The bytes of a connection to a broker, in the clear or sealed: one thread reads them, and
//! another one writes them.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex};
use stentor_io::{ByteStream, is_late, lock, unix_s};
use stentor_tls::{
    ClientHandshake, Connector, FRAGMENT_BYTES_MAX, Failure, Inbound, NO_CERTIFICATE_SHOWN, Owned,
    Record, SEAL_ROOM_MIN,
};

/// What is read.
pub(super) struct Source {
    stream: Arc<dyn ByteStream>,
    session: Option<Arc<Mutex<Owned>>>,
    inbound: Inbound,
    buffer: Vec<u8>,
    /// Everything has to be read by then, on the clock of [`stentor_io::monotonic_us`].
    until_us: Option<u64>,
}

/// What is written. The connection ends with it.
pub(super) struct Sink {
    stream: Arc<dyn ByteStream>,
    session: Option<Arc<Mutex<Owned>>>,
    sealed: Vec<u8>,
}

/// Both ends of a stream, of which nothing is read any more after `until_us`.
pub(super) fn open(stream: Arc<dyn ByteStream>, until_us: u64) -> (Source, Sink) {
    let source = Source {
        stream: Arc::clone(&stream),
        session: None,
        inbound: Inbound::default(),
        buffer: vec![0; READ_BYTES],
        until_us: Some(until_us),
    };
    (source, Sink { stream, session: None, sealed: Vec::new() })
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
        put(&*sink.stream, &out, until_us).map_err(|error| error.to_string())?;
        out.clear();
        let read = source.receive().map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("it ended the connection within its handshake".to_owned());
        }
        if let Some(session) = go_on(&mut handshake, source, read, &mut out, sink)? {
            break Arc::new(Mutex::new(session));
        }
    };
    put(&*sink.stream, &out, until_us).map_err(|error| error.to_string())?;
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
            let _ = sink.stream.write_all(out, source.until_us);
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

    /// Reads the next bytes into the buffer. Returns 0 at the end of the connection.
    fn receive(&mut self) -> io::Result<usize> {
        let read = self.stream.read(&mut self.buffer, self.until_us);
        read.map_err(|error| said(error, SAYS_NOTHING))
    }

    /// Reads fail after this moment.
    pub(super) fn read_until(&mut self, until_us: Option<u64>) {
        self.until_us = until_us;
    }
}

/// Names the fault of a broker that is too late.
fn said(error: io::Error, fault: &'static str) -> io::Error {
    if is_late(&error) { io::Error::new(ErrorKind::TimedOut, fault) } else { error }
}

/// Writes all of it, if the other side takes it by then.
fn put(stream: &dyn ByteStream, bytes: &[u8], until_us: u64) -> io::Result<()> {
    stream.write_all(bytes, Some(until_us)).map_err(|error| said(error, TAKES_NOTHING))
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
        let Some(session) = &self.session else { return put(&*self.stream, bytes, until_us) };
        while !bytes.is_empty() {
            self.sealed.resize(FRAGMENT_BYTES_MAX + SEAL_ROOM_MIN, 0);
            let sealed = lock(session).session().seal(
                &[IoSlice::new(bytes)],
                FRAGMENT_BYTES_MAX,
                &mut self.sealed,
            );
            // Nobody who reads waits for the socket: another record may be sealed by no one else.
            let sealed = sealed.map_err(io::Error::other)?;
            put(&*self.stream, &self.sealed[..sealed.written], until_us)?;
            bytes = &bytes[sealed.taken..];
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Whoever reads it ends by that.
        self.stream.shutdown();
    }
}

/// RFC 8446 section 6.
const CERTIFICATE_REQUIRED: u8 = 116;
const BAD_CERTIFICATE: u8 = 42;

const READ_BYTES: usize = 256 << 10;

/// Of which a broker is the subject.
pub(super) const SAYS_NOTHING: &str = "it says nothing";
const TAKES_NOTHING: &str = "it takes nothing";
