//! Why there is no session.

use std::fmt;

use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};

use super::client::fault_of;
use super::{ALERT, Alert, FATAL, PeerAlert};

/// A handshake that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeError {
    /// What kind of fault it is, to be counted by.
    pub fault: HandshakeFault,
    what: String,
}

/// What kind of fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandshakeFault {
    /// What came begins like a request of HTTP in the clear. No alert is sent: whoever asks so
    /// understands an answer in the clear.
    NotTls,
    /// There is no version, suite, group or signature that both ends know.
    NothingInCommon,
    /// No protocol of the client's list is spoken here (ALPN).
    NoProtocol,
    /// The client shows no certificate, or one that is not good.
    ClientCertificate,
    /// A message cannot be read.
    Malformed,
    /// A message that must not come, or not so.
    Misbehaved,
    /// A record or a signature is not authentic.
    NotAuthentic,
    /// The client sent more than a handshake takes.
    TooLong,
    /// The client gave up: it does not like our certificate, for example.
    Peer(PeerAlert),
    /// The fault is on this side.
    Internal,
    /// It had failed or succeeded before.
    Ended,
}

impl HandshakeError {
    pub(super) fn new(fault: HandshakeFault, what: &str) -> HandshakeError {
        HandshakeError { fault, what: what.to_owned() }
    }

    /// Whether it is the client who gave up, so that nothing is said to it.
    pub(super) fn is_by_peer(&self) -> bool {
        matches!(self.fault, HandshakeFault::Peer(_))
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> HandshakeError {
        let fault = match &error {
            Error::AlertReceived(alert) => HandshakeFault::Peer(PeerAlert(u8::from(*alert))),
            Error::PeerIncompatible(
                PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
            ) => HandshakeFault::ClientCertificate,
            Error::PeerIncompatible(_) => HandshakeFault::NothingInCommon,
            Error::NoApplicationProtocol => HandshakeFault::NoProtocol,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => {
                HandshakeFault::ClientCertificate
            }
            Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge)
            | Error::PeerSentOversizedRecord => HandshakeFault::TooLong,
            Error::InvalidMessage(_) => HandshakeFault::Malformed,
            Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_) => HandshakeFault::Misbehaved,
            Error::DecryptError => HandshakeFault::NotAuthentic,
            _ => HandshakeFault::Internal,
        };
        let what = match &error {
            Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
            Error::InvalidCertificate(error) => format!("its certificate {}", fault_of(error)),
            error => error.to_string(),
        };
        HandshakeError { fault, what }
    }
}

/// Appends an alert in the clear, which is possible as long as nothing else was sent.
pub(super) fn plain_alert(error: &HandshakeError, out: &mut Vec<u8>) {
    let alert = match error.fault {
        HandshakeFault::Malformed | HandshakeFault::TooLong => Alert::DecodeError,
        HandshakeFault::Internal => Alert::InternalError,
        HandshakeFault::NothingInCommon => Alert::HandshakeFailure,
        HandshakeFault::NotAuthentic => Alert::BadRecordMac,
        _ => Alert::UnexpectedMessage,
    };
    out.extend([ALERT, 3, 3, 0, 2, FATAL, alert as u8]);
}

/// The name that the library has for it.
impl fmt::Display for PeerAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", AlertDescription::from(self.0))
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for HandshakeError {}
