//! What can go wrong with records, and which alert says so.

use std::fmt;

use crate::alert::{Alert, PeerAlert};

/// Why a session is dead: what the peer sent, or what it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A record is not what its sender sealed, or was sealed by somebody else.
    NotAuthentic,
    /// A record is longer than records may be.
    RecordTooLong,
    /// A record or a message that has no place here.
    Unexpected,
    /// A message that cannot be read.
    Unreadable,
    /// A field has a value that it must not have.
    Illegal,
    /// A record of another version than the one agreed on.
    Version,
    /// Too much in a row brought nothing.
    Fruitless,
    /// More records came than can be counted.
    Exhausted,
    /// The peer has given up, and said why.
    Peer(PeerAlert),
    /// It was dead before.
    Ended,
}

impl Failure {
    /// The alert to send (RFC 8446 section 6.2). None answers an alert.
    #[must_use]
    pub fn alert(self) -> Option<Alert> {
        match self {
            Failure::NotAuthentic => Some(Alert::BadRecordMac),
            Failure::RecordTooLong => Some(Alert::RecordOverflow),
            Failure::Unexpected | Failure::Fruitless => Some(Alert::UnexpectedMessage),
            Failure::Unreadable => Some(Alert::DecodeError),
            Failure::Illegal => Some(Alert::IllegalParameter),
            Failure::Version => Some(Alert::ProtocolVersion),
            Failure::Exhausted => Some(Alert::InternalError),
            Failure::Peer(_) | Failure::Ended => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::NotAuthentic => "a record is not what was sealed",
            Failure::RecordTooLong => "a record is too long",
            Failure::Unexpected => "a message came where it has no place",
            Failure::Unreadable => "a message cannot be read",
            Failure::Illegal => "a field has a value that it must not have",
            Failure::Version => "a record is of another version",
            Failure::Fruitless => "too many records in a row brought nothing",
            Failure::Exhausted => "there are no sequence numbers left",
            Failure::Peer(alert) => return write!(f, "the peer gave up: {alert}"),
            Failure::Ended => "the session has ended",
        })
    }
}

impl std::error::Error for Failure {}

/// Why nothing was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    /// This end has said its last, or the session is dead.
    Ended,
    /// There is less room than [`crate::SEAL_ROOM_MIN`]. Nothing has changed.
    NoRoom,
    /// The one key of TLS 1.2 has sealed as many records as it may: the connection is to be ended
    /// by close_notify, for which there is still a number.
    Exhausted,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SealError::Ended => "the session has ended",
            SealError::NoRoom => "there is no room for a record",
            SealError::Exhausted => "the key has sealed as many records as it may",
        })
    }
}

impl std::error::Error for SealError {}
