//! Keys out of secrets, and the AEAD under a key: all the cryptography of records.
//!
//! An AEAD context is built for a record and dropped behind it. Kept ones would save a tenth of a
//! microsecond each, and take six times the memory of a whole session. Those for what comes save
//! more, for their keys have to be derived: `contexts` keeps some.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use zeroize::{Zeroizing, zeroize_stack};

use crate::suite::{HEADER_BYTES, IV_BYTES, Suite, TAG_BYTES, Version};

/// A key and its initial nonce.
pub(crate) struct RecordKeys {
    key: Zeroizing<[u8; KEY_BYTES_MAX]>,
    key_bytes: usize,
    pub(crate) iv: Zeroizing<[u8; IV_BYTES]>,
}

impl RecordKeys {
    /// The keys of a traffic secret (RFC 8446 section 7.3).
    pub(crate) fn derive(suite: Suite, secret: &[u8]) -> RecordKeys {
        let (hash, key_bytes) = (suite.hash(), suite.key_bytes());
        let mut keys =
            RecordKeys { key: Zeroizing::default(), key_bytes, iv: Zeroizing::default() };
        expand_label(hash, secret, b"key", &mut keys.key[..key_bytes]);
        expand_label(hash, secret, b"iv", &mut *keys.iv);
        keys
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key[..self.key_bytes]
    }
}

/// Puts the secret that follows this one into its place (RFC 8446 section 7.2).
pub(crate) fn advance_secret(suite: Suite, secret: &mut [u8]) {
    wiping_stack(|| {
        let mut next = Zeroizing::new([0; SECRET_BYTES_MAX]);
        let next = &mut next[..secret.len()];
        expand_label(suite.hash(), secret, b"traffic upd", next);
        secret.copy_from_slice(next);
    });
}

/// Derives something, and wipes the stack that this used: a value that was moved has left a copy
/// where it was, and its destructor does not reach that. A handshake has more copies, also in
/// memory that the library frees; its caller has to see to these.
pub(crate) fn wiping_stack<R>(derive: impl FnOnce() -> R) -> R {
    let derived = apart(derive);
    zeroize_stack::<DERIVATION_STACK_BYTES>();
    derived
}

/// Gives it a stack frame of its own, which `zeroize_stack` overwrites.
#[inline(never)]
fn apart<R>(derive: impl FnOnce() -> R) -> R {
    derive()
}

/// HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
fn expand_label(hash: hkdf::Algorithm, secret: &[u8], label: &[u8], out: &mut [u8]) {
    let length = u16::try_from(out.len()).expect("keys are short").to_be_bytes();
    let label_bytes = [u8::try_from(6 + label.len()).expect("labels are short")];
    let info: [&[u8]; 5] = [&length, &label_bytes, b"tls13 ", label, &[0]];
    let prk = hkdf::Prk::new_less_safe(hash, secret);
    let okm = prk.expand(&info, KeyBytes(out.len())).expect("keys are shorter than 255 hashes");
    okm.fill(out).expect("it has the length that was asked for");
}

/// So many bytes of key material.
pub(crate) struct KeyBytes(pub(crate) usize);

impl hkdf::KeyType for KeyBytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// The AEAD did not do it: the record is not what was sealed, or the library has failed.
pub(crate) struct CipherFailed;

/// The nonce of a record: each sequence number has another one (RFC 8446 section 5.3, RFC 7905
/// section 2). For AES-GCM in TLS 1.2 the explicit part may be anything that does not come twice
/// (RFC 5288 section 3), and this is what the handshake began with.
pub(crate) fn nonce(iv: &[u8; IV_BYTES], sequence: u64) -> [u8; IV_BYTES] {
    let mut nonce = *iv;
    for (byte, other) in nonce[IV_BYTES - 8..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= other;
    }
    nonce
}

/// What is authenticated beside the contents. `content_bytes` is the length of the record in TLS
/// 1.3 (RFC 8446 section 5.2), and of what it carries in TLS 1.2 (RFC 5246 section 6.2.3.3).
pub(crate) struct Authenticated {
    bytes: [u8; 13],
    len: usize,
}

impl Authenticated {
    pub(crate) fn new(
        version: Version,
        sequence: u64,
        header: &[u8; HEADER_BYTES],
        content_bytes: usize,
    ) -> Authenticated {
        let mut bytes = [0; 13];
        let length = u16::try_from(content_bytes).expect("records are short").to_be_bytes();
        match version {
            Version::Tls13 => {
                bytes[..3].copy_from_slice(&header[..3]);
                bytes[3..5].copy_from_slice(&length);
                Authenticated { bytes, len: 5 }
            }
            Version::Tls12 => {
                bytes[..8].copy_from_slice(&sequence.to_be_bytes());
                bytes[8..11].copy_from_slice(&header[..3]);
                bytes[11..].copy_from_slice(&length);
                Authenticated { bytes, len: 13 }
            }
        }
    }

    fn aad(&self) -> Aad<&[u8]> {
        Aad::from(&self.bytes[..self.len])
    }
}

fn context(suite: Suite, key: &[u8]) -> Result<LessSafeKey, CipherFailed> {
    Ok(LessSafeKey::new(UnboundKey::new(suite.aead(), key).map_err(|_| CipherFailed)?))
}

/// Seals `plaintext` and then `last` into `out`, which has room for both and the tag.
pub(crate) fn seal_from(
    (suite, key): (Suite, &[u8]),
    nonce: [u8; IV_BYTES],
    authenticated: &Authenticated,
    plaintext: &[u8],
    last: &[u8],
    out: &mut [u8],
) -> Result<(), CipherFailed> {
    let (sealed, end) = out.split_at_mut(plaintext.len());
    let nonce = Nonce::assume_unique_for_key(nonce);
    context(suite, key)?
        .seal_out_of_place_scatter(nonce, authenticated.aad(), plaintext, sealed, last, end)
        .map_err(|_| CipherFailed)
}

/// Seals what stands in `out` before the end, and then `last`.
pub(crate) fn seal_in_place(
    (suite, key): (Suite, &[u8]),
    nonce: [u8; IV_BYTES],
    authenticated: &Authenticated,
    last: &[u8],
    out: &mut [u8],
) -> Result<(), CipherFailed> {
    let content = out.len() - TAG_BYTES - last.len();
    let (sealed, end) = out.split_at_mut(content);
    let nonce = Nonce::assume_unique_for_key(nonce);
    context(suite, key)?
        .seal_in_place_scatter(nonce, authenticated.aad(), sealed, last, end)
        .map_err(|_| CipherFailed)
}

/// Opens what was sealed, where it is, and says how long it is without the tag.
pub(crate) fn open(
    (suite, key): (Suite, &[u8]),
    nonce: [u8; IV_BYTES],
    authenticated: &Authenticated,
    sealed: &mut [u8],
) -> Result<usize, CipherFailed> {
    open_by(&context(suite, key)?, nonce, authenticated, sealed)
}

fn open_by(
    context: &LessSafeKey,
    nonce: [u8; IV_BYTES],
    authenticated: &Authenticated,
    sealed: &mut [u8],
) -> Result<usize, CipherFailed> {
    let nonce = Nonce::assume_unique_for_key(nonce);
    let opened = context.open_in_place(nonce, authenticated.aad(), sealed);
    opened.map(|plaintext| plaintext.len()).map_err(|_| CipherFailed)
}

/// All that is derived of the secret of what comes. The library overwrites its part with zeros.
pub(crate) struct Opener {
    context: LessSafeKey,
    iv: Zeroizing<[u8; IV_BYTES]>,
}

impl Opener {
    pub(crate) fn new(suite: Suite, secret: &[u8]) -> Result<Opener, CipherFailed> {
        #[cfg(test)]
        OPENERS.set(OPENERS.get() + 1);
        wiping_stack(|| {
            let keys = RecordKeys::derive(suite, secret);
            Ok(Opener { context: context(suite, keys.key())?, iv: keys.iv.clone() })
        })
    }

    /// Opens the record of this number, where it is.
    pub(crate) fn open(
        &self,
        sequence: u64,
        authenticated: &Authenticated,
        sealed: &mut [u8],
    ) -> Result<usize, CipherFailed> {
        open_by(&self.context, nonce(&self.iv, sequence), authenticated, sealed)
    }
}

#[cfg(test)]
thread_local! {
    /// So many were made.
    pub(crate) static OPENERS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// In tests each key is watched, whichever thread seals with it: it must not use a nonce twice.
/// Sequence numbers grow, so the last one of each key says which were used.
#[cfg(any(test, feature = "check-nonces"))]
pub(crate) fn watch(key: &[u8], sequence: u64) {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, RandomState};
    use std::sync::{LazyLock, Mutex, PoisonError};

    /// By hashes of the keys, in parts so that threads seldom wait for each other.
    type Last = (RandomState, [Mutex<HashMap<u64, u64>>; 16]);
    static LAST: LazyLock<Last> = LazyLock::new(Last::default);

    let (hasher, parts) = &*LAST;
    let key = hasher.hash_one(key);
    let part = &parts[usize::from(key.to_le_bytes()[0]) % parts.len()];
    let last = part.lock().unwrap_or_else(PoisonError::into_inner).insert(key, sequence);
    assert!(last.is_none_or(|last| last < sequence), "a nonce was used twice under a key");
}

#[cfg(not(any(test, feature = "check-nonces")))]
pub(crate) fn watch(_: &[u8], _: u64) {}

/// How much of the stack is wiped behind a derivation, which uses less.
const DERIVATION_STACK_BYTES: usize = 8 * 1024;
const KEY_BYTES_MAX: usize = 32;
pub(crate) const SECRET_BYTES_MAX: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.chars().map(|c| c.to_digit(16).unwrap().try_into().unwrap()).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// RFC 8448 section 3, both ends' application traffic.
    #[test]
    fn keys_are_those_of_the_rfc() {
        let check = |secret: &str, key: &str, iv: &str| {
            let keys = RecordKeys::derive(Suite::Tls13Aes128, &hex(secret));
            assert_eq!(keys.key(), hex(key));
            assert_eq!(keys.iv.to_vec(), hex(iv));
        };
        check(
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
            "9f02283b6c9c07efc26bb9f2ac92e356",
            "cf782b88dd83549aadf1e984",
        );
        check(
            "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
            "17422dda596ed5d9acd890e3c63f5051",
            "5b78923dee08579033e523d9",
        );
    }

    /// Reads the stack below this function as the kernel shows it. The reading leaves some bytes at
    /// the top, and the wiping some where it ends.
    #[test]
    fn the_stack_of_a_derivation_is_wiped() {
        let memory = File::open("/proc/self/mem").unwrap();
        let mut stack = vec![0; 32 * 1024];
        let from = std::ptr::from_ref(&stack).addr() - stack.len();
        zeroize_stack::<{ 64 * 1024 }>();
        for suite in [Suite::Tls13Aes128, Suite::Tls13Aes256, Suite::Tls13ChaCha] {
            let mut secret = vec![7; suite.secret_bytes()];
            advance_secret(suite, &mut secret);
            assert!(Opener::new(suite, &secret).is_ok());
            memory.read_exact_at(&mut stack, from as u64).unwrap();
            let mut used = stack.iter().rev().enumerate().filter(|(_, byte)| **byte != 0);
            let left = used.find(|(depth, _)| !matches!(depth, ..512 | 8_000..9_000));
            assert_eq!(left, None, "{suite:?}: a depth that is not wiped");
        }
    }

    #[test]
    fn nonces_differ_as_sequence_numbers_do() {
        let iv = [7; IV_BYTES];
        let numbers = [0, 1, 255, 256, 1 << 23, u64::MAX - 1, u64::MAX];
        let nonces: std::collections::HashSet<_> =
            numbers.iter().map(|number| nonce(&iv, *number)).collect();
        assert_eq!(nonces.len(), numbers.len());
        assert_eq!(nonce(&iv, 0), iv);
    }
}
