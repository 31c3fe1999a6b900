//! The bytes of a connection to a broker, in the clear or sealed.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use stentor_io::{ByteStream, Waker, is_late, unix_s};
use stentor_tls::{
    ClientHandshake, Connector, FRAGMENT_BYTES_MAX, Failure, Inbound, NO_CERTIFICATE_SHOWN, Owned,
    Record, SEAL_ROOM_MIN,
};

/// Both directions of a connection.
pub(super) struct Channel {
    stream: Arc<dyn ByteStream>,
    session: Option<Owned>,
    inbound: Inbound,
    buffer: Vec<u8>,
    sealed: Vec<u8>,
}

impl Channel {
    pub(super) fn new(stream: Arc<dyn ByteStream>) -> Channel {
        let (inbound, buffer) = (Inbound::default(), vec![0; READ_BYTES]);
        Channel { stream, session: None, inbound, buffer, sealed: Vec::new() }
    }

    /// Has all be sealed that follows, in both directions, by `until_us`. Appends what the broker
    /// has said after the handshake to `bytes`.
    ///
    /// # Errors
    /// Why there is no session, in a part of a sentence whose subject is the broker.
    pub(super) fn secure(
        &mut self,
        connector: &Connector,
        bytes: &mut Vec<u8>,
        until_us: u64,
    ) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        let mut out = Vec::new();
        let mut handshake =
            connector.begin(unix_s(), &mut out).map_err(|error| error.to_string())?;
        loop {
            put(&*self.stream, &out, until_us).map_err(told)?;
            out.clear();
            let read = self.receive(until_us, None).map_err(told)?;
            if read == 0 {
                return Err("it ended the connection within its handshake".to_owned());
            }
            if self.go_on(&mut handshake, read, &mut out, until_us)? {
                break;
            }
        }
        put(&*self.stream, &out, until_us).map_err(told)?;
        // If the broker has ended the connection, the next read reports that.
        self.open_records(0, bytes).map(drop).map_err(told)
    }

    /// The next step of a handshake. Bytes after its last message are records. Returns whether this
    /// was the last step.
    fn go_on(
        &mut self,
        handshake: &mut ClientHandshake,
        read: usize,
        out: &mut Vec<u8>,
        until_us: u64,
    ) -> Result<bool, String> {
        match handshake.receive(unix_s(), &self.buffer[..read], out) {
            Ok(progress) => {
                let Some(established) = progress.established else { return Ok(false) };
                self.inbound = Inbound::of_waiting(self.buffer[progress.used..read].to_vec());
                self.session = Some(established.session);
                Ok(true)
            }
            Err(error) => {
                // The alert reaches the broker if it still reads.
                let _ = self.stream.write_all(out, Some(until_us));
                Err(error.to_string())
            }
        }
    }

    /// Appends what comes next to `bytes`: a part of a record is nothing yet. `false`: nothing more
    /// comes.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if nothing came by `until_us`, and [`ErrorKind::Interrupted`] if the
    /// waker was woken before. Otherwise the connection is of no use any more.
    pub(super) fn read(
        &mut self,
        bytes: &mut Vec<u8>,
        until_us: u64,
        waker: Option<&Waker>,
    ) -> io::Result<bool> {
        let read = self.receive(until_us, waker)?;
        if self.session.is_some() {
            return Ok(self.open_records(read, bytes)? && read > 0);
        }
        bytes.extend_from_slice(&self.buffer[..read]);
        Ok(read > 0)
    }

    /// Reads the next bytes into the buffer. Returns 0 at the end of the connection.
    fn receive(&mut self, until_us: u64, waker: Option<&Waker>) -> io::Result<usize> {
        let read = self.stream.read_or_wake(&mut self.buffer, Some(until_us), waker);
        read.map_err(|error| said(error, SAYS_NOTHING))
    }

    /// Opens what has arrived after what waits. `false`: the broker has said that nothing more
    /// comes.
    fn open_records(&mut self, read: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let Some(session) = &mut self.session else { return Ok(true) };
        let mut session = session.session();
        let mut records = self.inbound.records(&mut self.buffer[..read]);
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

    /// Writes all of it by `until_us`.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn write_all(&mut self, mut bytes: &[u8], until_us: u64) -> io::Result<()> {
        let Some(session) = &mut self.session else { return put(&*self.stream, bytes, until_us) };
        while !bytes.is_empty() {
            self.sealed.resize(FRAGMENT_BYTES_MAX + SEAL_ROOM_MIN, 0);
            let bytes_of = &[IoSlice::new(bytes)];
            let sealed = session.session().seal(bytes_of, FRAGMENT_BYTES_MAX, &mut self.sealed);
            let sealed = sealed.map_err(io::Error::other)?;
            put(&*self.stream, &self.sealed[..sealed.written], until_us)?;
            bytes = &bytes[sealed.taken..];
        }
        Ok(())
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

/// RFC 8446 section 6.
const CERTIFICATE_REQUIRED: u8 = 116;
const BAD_CERTIFICATE: u8 = 42;

const READ_BYTES: usize = 256 << 10;

/// Of which a broker is the subject.
const SAYS_NOTHING: &str = "it says nothing";
const TAKES_NOTHING: &str = "it takes nothing";
