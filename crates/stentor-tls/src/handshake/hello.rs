//! A look at the suites of a ClientHello, before rustls is given it (RFC 8446 section 4.1.2).
//!
//! A session with AES-128 is the smallest, so it comes first whatever order a client has; OpenSSL
//! puts AES-256 in front. But who puts ChaCha20 in front has no AES in its processor, and should
//! have its way.

use crate::session::{CLIENT_HELLO, HANDSHAKE};

/// Whether the first of the suites that are known here is one with ChaCha20. What cannot be read is
/// for rustls to refuse.
pub(crate) fn prefers_chacha(record: &[u8]) -> bool {
    first_known_suite(record).is_some_and(|suite| CHACHA.contains(&suite))
}

fn first_known_suite(record: &[u8]) -> Option<[u8; 2]> {
    let (header, hello) = record.split_at_checked(5)?;
    let (message, rest) = hello.split_at_checked(4)?;
    if header[0] != HANDSHAKE || message[0] != CLIENT_HELLO {
        return None;
    }
    // The version and the random number.
    let (_, rest) = rest.split_at_checked(2 + 32)?;
    let (session_id_bytes, rest) = rest.split_first()?;
    let (_, rest) = rest.split_at_checked(usize::from(*session_id_bytes))?;
    let (suites_bytes, rest) = rest.split_first_chunk::<2>()?;
    // Of a message in several records the suites that are there will do.
    let suites = &rest[..rest.len().min(usize::from(u16::from_be_bytes(*suites_bytes)))];
    let is_known = |suite: &[u8; 2]| AES.contains(suite) || CHACHA.contains(suite);
    suites.chunks_exact(2).map(|suite| [suite[0], suite[1]]).find(is_known)
}

/// TLS 1.3, then ECDHE with ECDSA and with RSA.
const CHACHA: [[u8; 2]; 3] = [[0x13, 0x03], [0xcc, 0xa9], [0xcc, 0xa8]];
const AES: [[u8; 2]; 6] =
    [[0x13, 0x01], [0x13, 0x02], [0xc0, 0x2b], [0xc0, 0x2f], [0xc0, 0x2c], [0xc0, 0x30]];

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(suites: &[u8]) -> Vec<u8> {
        let mut hello = vec![22, 3, 1, 0, 0, 1, 0, 0, 0, 3, 3];
        hello.extend([9; 32]);
        hello.extend([4, 1, 2, 3, 4]);
        hello.extend(u16::try_from(suites.len()).unwrap().to_be_bytes());
        hello.extend(suites);
        hello.extend([1, 0]);
        hello
    }

    #[test]
    fn who_puts_chacha_in_front_has_its_way() {
        for (suites, expected) in [
            (&[0x13, 0x03, 0x13, 0x01][..], true),
            (&[0x13, 0x01, 0x13, 0x03], false),
            (&[0x13, 0x02, 0x13, 0x03], false),
            (&[0xcc, 0xa8, 0xc0, 0x2f], true),
            // What is made up (RFC 8701), and what is not known here.
            (&[0x1a, 0x1a, 0x00, 0x2f, 0xcc, 0xa9, 0xc0, 0x2b], true),
            (&[0x1a, 0x1a, 0x00, 0x2f], false),
            (&[], false),
        ] {
            assert_eq!(prefers_chacha(&hello(suites)), expected, "{suites:x?}");
        }
    }

    #[test]
    fn a_hello_that_is_cut_prefers_nothing_until_it_can_be_seen() {
        let hello = hello(&[0x13, 0x03, 0x13, 0x01]);
        for len in 0..hello.len() {
            assert_eq!(prefers_chacha(&hello[..len]), len >= 52, "{len}");
        }
        let mut other = hello.clone();
        other[5] = 2;
        assert!(!prefers_chacha(&other));
        other = hello;
        other[0] = 23;
        assert!(!prefers_chacha(&other));
    }
}
