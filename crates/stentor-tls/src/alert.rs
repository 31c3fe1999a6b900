//! Alerts: what one end tells the other when it closes, refuses or gives up (RFC 8446 section 6,
//! RFC 5246 section 7.2).

use std::fmt;

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

/// What a peer's alert is called, for logs (the registry of TLS alerts).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAlert(pub u8);

impl fmt::Display for PeerAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            112 => "unrecognized_name",
            116 => "certificate_required",
            120 => "no_application_protocol",
            other => return write!(f, "alert {other}"),
        };
        f.write_str(name)
    }
}

pub(crate) const WARNING: u8 = 1;
pub(crate) const FATAL: u8 = 2;

/// The alerts of a peer that are looked at.
pub(crate) const CLOSE_NOTIFY: u8 = 0;
pub(crate) const USER_CANCELED: u8 = 90;
