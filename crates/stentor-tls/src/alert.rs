//! Alerts: what one end tells the other when it closes, refuses or gives up (RFC 8446 section 6,
//! RFC 5246 section 7.2).

/// An alert that this end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Alert {
    /// Nothing more is sent: the regular end.
    CloseNotify = 0,
    /// A message came where it has no place.
    UnexpectedMessage = 10,
    /// A record is not what its sender sealed.
    BadRecordMac = 20,
    /// A record is longer than records may be.
    RecordOverflow = 22,
    /// Nothing is known to both ends by which they could go on.
    HandshakeFailure = 40,
    /// A field has a value that it must not have.
    IllegalParameter = 47,
    /// A message cannot be read.
    DecodeError = 50,
    /// A version that was not agreed on.
    ProtocolVersion = 70,
    /// The fault is on this side.
    InternalError = 80,
}

impl Alert {
    /// The two bytes of the message. TLS 1.3 has no levels, and what it reads there is what TLS 1.2
    /// would write.
    pub(crate) fn message(self) -> [u8; 2] {
        match self {
            Alert::CloseNotify => [WARNING, self as u8],
            _ => [FATAL, self as u8],
        }
    }
}

/// An alert that the peer has sent, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAlert(pub u8);

pub(crate) const WARNING: u8 = 1;
pub(crate) const FATAL: u8 = 2;

/// The alerts of a peer that are looked at.
pub(crate) const CLOSE_NOTIFY: u8 = 0;
pub(crate) const USER_CANCELED: u8 = 90;
