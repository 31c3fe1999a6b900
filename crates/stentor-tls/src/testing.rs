//! What tests of several files need: two sessions that understand each other.

#[cfg(test)]
use std::io::IoSlice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handshake::testing::client_hello;
use crate::memory::{Owned, Secrets};
#[cfg(test)]
use crate::suite::FRAGMENT_BYTES_MAX;
use crate::suite::{Suite, Version};

/// The two ends of a connection, with secrets that no others have.
pub(crate) fn sessions(suite: Suite) -> (Owned, Owned) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let secret = |first: u8, len: usize| -> Vec<u8> {
        count.into_iter().chain(first..=u8::MAX).take(len).collect()
    };
    let bytes = match suite.version() {
        Version::Tls13 => suite.secret_bytes(),
        Version::Tls12 => suite.key_bytes(),
    };
    let (ours, theirs) = (secret(1, bytes), secret(101, bytes));
    let (our_iv, their_iv) = (secret(51, 12), secret(151, 12));
    let end = |tx: &[u8], tx_iv: &[u8], rx: &[u8], rx_iv: &[u8]| {
        let secrets = match suite.version() {
            Version::Tls13 => Secrets::Traffic { tx, rx },
            Version::Tls12 => Secrets::Keys { tx, tx_iv, rx, rx_iv },
        };
        Owned::begin(suite, &secrets, (0, 0)).expect("they have the right lengths")
    };
    (end(&ours, &our_iv, &theirs, &their_iv), end(&theirs, &their_iv, &ours, &our_iv))
}

/// What is sent when this is.
#[cfg(test)]
pub(crate) fn seal(session: &mut Owned, mut plaintext: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut out = vec![0; FRAGMENT_BYTES_MAX + 100];
    loop {
        let parts = [IoSlice::new(plaintext)];
        let sealed = session.session().seal(&parts, FRAGMENT_BYTES_MAX, &mut out).expect("it goes");
        sent.extend_from_slice(&out[..sealed.written]);
        plaintext = &plaintext[sealed.taken..];
        if plaintext.is_empty() {
            return sent;
        }
    }
}

/// What a client says first; in all of a process the same.
pub(crate) fn hello(version: Version) -> Vec<u8> {
    static HELLOS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let [tls12, tls13] = HELLOS.get_or_init(|| [Version::Tls12, Version::Tls13].map(client_hello));
    match version {
        Version::Tls12 => tls12.clone(),
        Version::Tls13 => tls13.clone(),
    }
}
