//! The six ways in which records are sealed: two versions of TLS, three AEADs.
//!
//! Who was authenticated how, and by what the secrets were agreed on, is over with the handshake.
//! What a session needs to know fits in a byte.

use std::fmt;

use aws_lc_rs::{aead, hkdf};

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// How records are sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Tls13Aes128 = 1,
    /// TLS_AES_256_GCM_SHA384.
    Tls13Aes256 = 2,
    /// TLS_CHACHA20_POLY1305_SHA256.
    Tls13ChaCha = 3,
    /// TLS_ECDHE_..._WITH_AES_128_GCM_SHA256.
    Tls12Aes128 = 4,
    /// TLS_ECDHE_..._WITH_AES_256_GCM_SHA384.
    Tls12Aes256 = 5,
    /// TLS_ECDHE_..._WITH_CHACHA20_POLY1305_SHA256.
    Tls12ChaCha = 6,
}

impl Suite {
    /// All there are.
    pub const ALL: [Suite; 6] = [
        Suite::Tls13Aes128,
        Suite::Tls13Aes256,
        Suite::Tls13ChaCha,
        Suite::Tls12Aes128,
        Suite::Tls12Aes256,
        Suite::Tls12ChaCha,
    ];

    /// The suite of this number, if there is one.
    pub(crate) fn from_number(number: u8) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| *suite as u8 == number)
    }

    /// The version it belongs to.
    #[must_use]
    pub fn version(self) -> Version {
        match self {
            Suite::Tls13Aes128 | Suite::Tls13Aes256 | Suite::Tls13ChaCha => Version::Tls13,
            Suite::Tls12Aes128 | Suite::Tls12Aes256 | Suite::Tls12ChaCha => Version::Tls12,
        }
    }

    pub(crate) fn aead(self) -> &'static aead::Algorithm {
        match self {
            Suite::Tls13Aes128 | Suite::Tls12Aes128 => &aead::AES_128_GCM,
            Suite::Tls13Aes256 | Suite::Tls12Aes256 => &aead::AES_256_GCM,
            Suite::Tls13ChaCha | Suite::Tls12ChaCha => &aead::CHACHA20_POLY1305,
        }
    }

    /// The hash of its key schedule. Of TLS 1.2 nothing is derived any more.
    pub(crate) fn hash(self) -> hkdf::Algorithm {
        match self {
            Suite::Tls13Aes256 | Suite::Tls12Aes256 => hkdf::HKDF_SHA384,
            _ => hkdf::HKDF_SHA256,
        }
    }

    pub(crate) fn key_bytes(self) -> usize {
        match self {
            Suite::Tls13Aes128 | Suite::Tls12Aes128 => 16,
            _ => 32,
        }
    }

    /// Bytes of a traffic secret: the length of the hash. Meaningless in TLS 1.2, which has none.
    pub(crate) fn secret_bytes(self) -> usize {
        match self {
            Suite::Tls13Aes256 => 48,
            _ => 32,
        }
    }

    /// Bytes of the nonce that stand in each record: AES-GCM in TLS 1.2 (RFC 5288 section 3). All
    /// others have none (RFC 7905 section 2, RFC 8446 section 5.3).
    pub(crate) fn explicit_nonce_bytes(self) -> usize {
        match self {
            Suite::Tls12Aes128 | Suite::Tls12Aes256 => 8,
            _ => 0,
        }
    }

    /// How many bytes a record has beyond what it carries: its header, what of the nonce it shows,
    /// the type that TLS 1.3 seals, and the tag.
    #[must_use]
    pub fn record_overhead(self) -> usize {
        let sealed_type = usize::from(self.version() == Version::Tls13);
        HEADER_BYTES + self.explicit_nonce_bytes() + sealed_type + TAG_BYTES
    }

    /// How long what follows the header of a record may be (RFC 8446 section 5.2, RFC 5246 section
    /// 6.2.3).
    pub(crate) fn sealed_bytes_max(self) -> usize {
        match self.version() {
            Version::Tls13 => FRAGMENT_BYTES_MAX + 256,
            Version::Tls12 => FRAGMENT_BYTES_MAX + 2048,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Tls12 => "TLS 1.2",
            Version::Tls13 => "TLS 1.3",
        })
    }
}

/// The most that a record may carry (RFC 8446 section 5.1).
pub const FRAGMENT_BYTES_MAX: usize = 1 << 14;

/// The header of a record: its type, its version, the length of what follows.
pub(crate) const HEADER_BYTES: usize = 5;

/// All six have a tag of this length.
pub(crate) const TAG_BYTES: usize = 16;
pub(crate) const IV_BYTES: usize = 12;
