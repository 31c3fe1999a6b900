//! The handshake, which rustls makes: bytes in, bytes out, and in the end a session of its own.
//!
//! This module and what is beneath it are the only ones that name rustls.
//!
//! rustls is given one record at a time, and only when it is there as a whole. So it never reads
//! beyond the client's Finished, and what follows (data that came in the same segment, a KeyUpdate)
//! is the session's business and opened where it is. Its unbuffered interface is used because the
//! other one keeps four kilobytes more for each handshake that is under way.
//!
//! The traffic secrets of TLS 1.3, without which there is no KeyUpdate, come by rustls' key log. It
//! is called while a step of this handshake is made, in the thread that makes it, and what is said
//! then is taken by that step (`step`): handshakes that run side by side cannot be mixed up. That
//! they were not is seen at the end all the same: the keys derived here are those that rustls hands
//! out, or there is no session.
//!
//! After an error rustls has an alert to send, and is asked for it with the very same bytes: it
//! remembers places in them.

use std::fmt;

use rustls::server::UnbufferedServerConnection;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, HandshakeKind, ProtocolVersion};

use crate::alert::{Alert, FATAL, PeerAlert};
use crate::keys::RecordKeys;
use crate::memory::{Owned, Secrets};
use crate::names;
use crate::session::ALERT;
use crate::suite::{Suite, Version};

mod acceptor;
mod client;
mod error;
mod hello;
mod incoming;
mod signing;
mod step;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod testing;

pub use acceptor::{Acceptor, ClientAuth, Settings};
pub use client::{ClientHandshake, Connector, NO_CERTIFICATE_SHOWN, Trust, explain};
pub use error::{HandshakeError, HandshakeFault};
pub(crate) use hello::prefers_chacha;
pub use incoming::{HANDSHAKE_BYTES_MAX, HANDSHAKE_RECORDS_MAX};
pub(crate) use signing::Certified;

use incoming::{IncomingHandshake, Next};
use step::{StepResult, TrafficSecret};

/// A handshake that is under way.
pub struct Handshake {
    acceptor: Acceptor,
    /// Made when the first record is there, by which the suites are put in order.
    connection: Option<Box<UnbufferedServerConnection>>,
    taken: StepResult,
    incoming: IncomingHandshake,
    has_sent: bool,
    has_ended: bool,
}

/// How far it has come.
#[derive(Debug)]
pub struct Progress {
    /// So many of the bytes were used up: all, unless it is done.
    pub used: usize,
    /// The session, if it is done. What was not used up are its first records.
    pub established: Option<Established>,
}

/// A handshake that succeeded.
#[derive(Debug)]
pub struct Established {
    /// What seals and opens from here on.
    pub session: Owned,
    /// What was agreed on, and who the client is.
    pub negotiated: Negotiated,
}

/// What was agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// How records are sealed.
    pub suite: Suite,
    /// The protocol within (ALPN, RFC 7301), if the client asked for any.
    pub alpn: Option<Vec<u8>>,
    /// The name the client asked for (SNI, RFC 6066 section 3), in lower case.
    pub server_name: Option<String>,
    /// To whom the client's certificate was given (RFC 4514), if it showed one.
    pub client_subject: Option<String>,
    /// Whether it went on from an earlier session.
    pub resumed: bool,
}

impl Handshake {
    pub(crate) fn new(acceptor: Acceptor) -> Handshake {
        Handshake {
            acceptor,
            connection: None,
            taken: StepResult::default(),
            incoming: IncomingHandshake::default(),
            has_sent: false,
            has_ended: false,
        }
    }

    /// Takes what has arrived, and appends what is to be sent to `out`, also if it fails: then it
    /// is the alert. Behind that the socket should linger, or a reset overtakes it.
    ///
    /// It owns at most [`HANDSHAKE_BYTES_MAX`] of what arrived. How long it may take is for the
    /// caller to say.
    ///
    /// # Errors
    /// [`HandshakeError`]: there will be no session, and nothing is taken any more.
    pub fn receive(
        &mut self,
        now_unix_s: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        if self.has_ended {
            return Err(HandshakeError::new(HandshakeFault::Ended, "it has ended"));
        }
        let progress = self.take(now_unix_s, bytes, out);
        if !matches!(progress, Ok(Progress { established: None, .. })) {
            self.has_ended = true;
            self.connection = None;
            self.incoming = IncomingHandshake::default();
        }
        progress
    }

    /// What has come and is not done with, in bytes: it takes so much memory beside itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.incoming.held_bytes()
    }

    /// Whether a whole record of it has come: from then on rustls has it.
    #[must_use]
    pub fn has_hello(&self) -> bool {
        self.incoming.records() > 0
    }

    /// Whether something was sent: from then on it has cost what a handshake does.
    #[must_use]
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Takes one record after the other.
    fn take(
        &mut self,
        now_unix_s: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let mut used = 0;
        loop {
            let next = match self.incoming.next(bytes, &mut used) {
                Ok(Next::Part) => return Ok(Progress { used, established: None }),
                Ok(next) => next,
                Err(error) => return Err(self.refuse(error, out)),
            };
            if self.connection.is_none() {
                let chacha = prefers_chacha(self.incoming.bytes());
                self.connection = Some(Box::new(self.acceptor.connect(chacha)?));
            }
            let established = self.advance(now_unix_s, out)?;
            if established.is_some() {
                return Ok(Progress { used, established });
            }
            if next == Next::Wrong {
                let what = "what it sent is no record";
                return Err(self.refuse(HandshakeError::new(HandshakeFault::Malformed, what), out));
            }
        }
    }

    /// Has rustls look at what was presented to it.
    fn advance(
        &mut self,
        now_unix_s: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<Established>, HandshakeError> {
        let sent_before = out.len();
        let (outcome, taken) = step::run(now_unix_s, || self.run(out));
        self.taken.add(taken);
        self.has_sent |= out.len() > sent_before;
        match outcome {
            Ok(false) => Ok(None),
            Ok(true) => self.establish().map(Some),
            Err(_) if self.taken.has_no_certificate => {
                // rustls says access_denied, which is said to clients that were verified.
                out.truncate(sent_before);
                let what = "the client knows no signature of a certificate for that name";
                let error = HandshakeError::new(HandshakeFault::NothingInCommon, what);
                error::plain_alert(&error, out);
                Err(error)
            }
            Err(error) => {
                let error = HandshakeError::from(error);
                if !self.has_sent && !error.is_by_peer() {
                    error::plain_alert(&error, out);
                }
                Err(error)
            }
        }
    }

    /// Whether rustls is done.
    fn run(&mut self, out: &mut Vec<u8>) -> Result<bool, rustls::Error> {
        let Some(connection) = self.connection.as_mut() else {
            return Err(rustls::Error::HandshakeNotComplete);
        };
        self.incoming.run(connection.as_mut(), out)
    }

    /// Takes the session out of rustls, which is done.
    fn establish(&mut self) -> Result<Established, HandshakeError> {
        let internal = |what: &str| HandshakeError::new(HandshakeFault::Internal, what);
        let connection = self.connection.take().ok_or_else(|| internal("there is none"))?;
        if !self.incoming.bytes().is_empty() || connection.is_handshaking() {
            return Err(internal("something is left of the handshake"));
        }
        let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let version = connection.protocol_version();
        let client = connection.peer_certificates().and_then(|chain| chain.first());
        let client = client.map(|certificate| {
            names::subject(certificate).ok_or_else(|| internal("the client's name cannot be read"))
        });
        let client_subject = client.transpose()?;
        let (extracted, _) = connection.dangerous_into_kernel_connection()?;
        let (suite, session) = begin_session(version, &extracted, &self.taken)?;
        let negotiated = Negotiated {
            suite,
            alpn,
            server_name: self.taken.server_name.take(),
            client_subject,
            resumed,
        };
        Ok(Established { session, negotiated })
    }

    /// Gives up by itself. An alert is possible only while nothing is sealed.
    fn refuse(&self, error: HandshakeError, out: &mut Vec<u8>) -> HandshakeError {
        if !self.has_sent && error.fault != HandshakeFault::NotTls {
            error::plain_alert(&error, out);
        }
        error
    }
}

fn suite(version: Option<ProtocolVersion>, secrets: &ConnectionTrafficSecrets) -> Option<Suite> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    match (version?, secrets) {
        (ProtocolVersion::TLSv1_3, Aes128Gcm { .. }) => Some(Suite::Tls13Aes128),
        (ProtocolVersion::TLSv1_3, Aes256Gcm { .. }) => Some(Suite::Tls13Aes256),
        (ProtocolVersion::TLSv1_3, Chacha20Poly1305 { .. }) => Some(Suite::Tls13ChaCha),
        (ProtocolVersion::TLSv1_2, Aes128Gcm { .. }) => Some(Suite::Tls12Aes128),
        (ProtocolVersion::TLSv1_2, Aes256Gcm { .. }) => Some(Suite::Tls12Aes256),
        (ProtocolVersion::TLSv1_2, Chacha20Poly1305 { .. }) => Some(Suite::Tls12ChaCha),
        _ => None,
    }
}

/// The key and the initial nonce.
fn material(secrets: &ConnectionTrafficSecrets) -> Result<(&[u8], &[u8]), HandshakeError> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key.as_ref(), iv.as_ref())),
        _ => Err(HandshakeError::new(HandshakeFault::Internal, "the suite is not known")),
    }
}

/// A session out of what rustls gives away and of what it has told on the way, which must agree.
fn begin_session(
    version: Option<ProtocolVersion>,
    extracted: &ExtractedSecrets,
    taken: &StepResult,
) -> Result<(Suite, Owned), HandshakeError> {
    let internal = |what: &str| HandshakeError::new(HandshakeFault::Internal, what);
    let ((tx_seq, tx), (rx_seq, rx)) = (&extracted.tx, &extracted.rx);
    let suite = suite(version, tx).ok_or_else(|| internal("the suite is not known"))?;
    let ((tx, tx_iv), (rx, rx_iv)) = (material(tx)?, material(rx)?);
    let secrets = match suite.version() {
        Version::Tls12 => Secrets::Keys { tx, tx_iv, rx, rx_iv },
        Version::Tls13 => {
            let StepResult { tx: Some(tx_secret), rx: Some(rx_secret), .. } = taken else {
                return Err(internal("the secrets are missing"));
            };
            for (secret, key, iv) in [(tx_secret, tx, tx_iv), (rx_secret, rx, rx_iv)] {
                if !is_of(suite, secret, key, iv) {
                    return Err(internal("the secrets are those of another handshake"));
                }
            }
            Secrets::Traffic { tx: tx_secret, rx: rx_secret }
        }
    };
    let session = Owned::begin(suite, &secrets, (*tx_seq, *rx_seq))
        .map_err(|_| internal("the secrets have other lengths"))?;
    Ok((suite, session))
}

/// Whether the key and the nonce are those of the secret.
fn is_of(suite: Suite, secret: &TrafficSecret, key: &[u8], iv: &[u8]) -> bool {
    let derived = RecordKeys::derive(suite, secret);
    derived.key() == key && *derived.iv == *iv
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("incoming", &self.incoming.bytes().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
