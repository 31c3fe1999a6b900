//! What is kept of a connection: 112, 128 or 160 bytes of plain data.
//!
//! In front stand 32 bytes that all have, behind them keys and secrets. In TLS 1.3 these are the
//! key that seals and both traffic secrets; the key that opens is derived when something comes, for
//! readers send almost nothing. TLS 1.2 has no secrets to go on from: both keys, and the nonce of
//! what comes.
//!
//! ```text
//!   suite 1, flags 1, fruitless 1, partial 1, tx_iv 12, tx_seq 8, rx_seq 8
//!   TLS 1.3:  tx_key K, tx_secret S, rx_secret S
//!   TLS 1.2:  tx_key K, rx_key K, rx_iv 12
//! ```
//!
//! Whoever has many sessions may keep [`Kept`] in slabs of three sizes; [`Owned`] is one by itself.
//! Either is overwritten with zeros when it is dropped, and moved without leaving a copy behind.

use std::fmt;

use zeroize::Zeroize;

use crate::keys::RecordKeys;
use crate::session::{FRUITLESS_MAX, Session};
use crate::suite::{IV_BYTES, Suite, Version};

/// The memory of a session: 32 bytes and `KEYS` more.
pub struct Kept<const KEYS: usize> {
    pub(crate) header: Header,
    pub(crate) keys: [u8; KEYS],
}

/// What all sessions have, whatever their suite.
pub(crate) struct Header {
    pub(crate) suite: Suite,
    pub(crate) flags: u8,
    /// Records in a row that brought nothing.
    pub(crate) fruitless: u8,
    /// How many bytes of a KeyUpdate have come.
    pub(crate) partial: u8,
    pub(crate) tx_iv: [u8; IV_BYTES],
    /// The number of the next record that is sealed. It is moved in one place.
    pub(crate) tx_seq: u64,
    /// The number of the next record that is opened.
    pub(crate) rx_seq: u64,
}

/// TLS 1.3 with AES-128, and all of TLS 1.2: 112 bytes.
pub type SmallSession = Kept<80>;

/// TLS 1.3 with ChaCha20: 128 bytes.
pub type MediumSession = Kept<96>;

/// TLS 1.3 with AES-256, whose hash is SHA-384: 160 bytes.
pub type LargeSession = Kept<128>;

/// A session in memory of its own.
#[derive(Debug)]
pub enum Owned {
    /// 112 bytes.
    Small(Box<SmallSession>),
    /// 128 bytes.
    Medium(Box<MediumSession>),
    /// 160 bytes.
    Large(Box<LargeSession>),
}

/// One direction of a TLS 1.3 connection begins with a secret; of TLS 1.2 with keys.
pub(crate) enum Secrets<'a> {
    Traffic { tx: &'a [u8], rx: &'a [u8] },
    Keys { tx: &'a [u8], tx_iv: &'a [u8], rx: &'a [u8], rx_iv: &'a [u8] },
}

/// Bytes that are no session, or none that this version can go on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSession;

impl<const KEYS: usize> Kept<KEYS> {
    /// Room for a session, without one: it seals and opens nothing.
    #[must_use]
    pub fn vacant() -> Kept<KEYS> {
        let header = Header {
            suite: Suite::Tls12Aes128,
            flags: DEAD,
            fruitless: 0,
            partial: 0,
            tx_iv: [0; IV_BYTES],
            tx_seq: 0,
            rx_seq: 0,
        };
        Kept { header, keys: [0; KEYS] }
    }

    /// Takes the session over, so that it is here and nowhere else.
    pub fn take(&mut self, from: &mut Kept<KEYS>) {
        let Header { suite, flags, fruitless, partial, tx_iv, tx_seq, rx_seq } = from.header;
        self.header = Header { suite, flags, fruitless, partial, tx_iv, tx_seq, rx_seq };
        self.keys.copy_from_slice(&from.keys);
        from.wipe();
    }

    /// Ends the session: what was secret of it is gone.
    pub fn wipe(&mut self) {
        self.header.flags = DEAD;
        self.header.tx_iv.zeroize();
        self.keys.zeroize();
    }

    /// The session, to seal and open with.
    pub fn session(&mut self) -> Session<'_> {
        Session::new(&mut self.header, &mut self.keys)
    }

    /// Appends the session to `out` as [`Owned::pack`] does, and leaves it as it is, for the other
    /// process may turn out not to go on. Until that is known neither may seal: were both to, they
    /// would use a nonce twice.
    ///
    /// # Errors
    /// [`NoSession`] if it has ended before. Nothing is appended.
    pub fn copy_packed(&self, out: &mut Vec<u8>) -> Result<(), NoSession> {
        self.header.pack(&self.keys, out)
    }
}

impl Header {
    fn pack(&self, keys: &[u8], out: &mut Vec<u8>) -> Result<(), NoSession> {
        if self.flags & DEAD != 0 {
            return Err(NoSession);
        }
        out.extend([self.suite as u8, self.flags, self.fruitless, self.partial]);
        out.extend(self.tx_iv);
        out.extend(self.tx_seq.to_le_bytes());
        out.extend(self.rx_seq.to_le_bytes());
        out.extend_from_slice(keys);
        Ok(())
    }
}

impl<const KEYS: usize> Drop for Kept<KEYS> {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl<const KEYS: usize> fmt::Debug for Kept<KEYS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("suite", &self.header.suite).finish_non_exhaustive()
    }
}

impl Owned {
    /// A session that begins with these secrets, behind so many records of the handshake.
    pub(crate) fn begin(
        suite: Suite,
        secrets: &Secrets<'_>,
        (tx_seq, rx_seq): (u64, u64),
    ) -> Result<Owned, NoSession> {
        let mut owned = Owned::vacant(suite);
        let (header, keys) = owned.parts();
        *header = Header { suite, flags: 0, tx_seq, rx_seq, ..*header };
        let (key_bytes, secret_bytes) = (suite.key_bytes(), suite.secret_bytes());
        let (tx_key, rest) = keys.split_at_mut(key_bytes);
        match (suite.version(), secrets) {
            (Version::Tls13, Secrets::Traffic { tx, rx })
                if tx.len() == secret_bytes && rx.len() == secret_bytes =>
            {
                let derived = RecordKeys::derive(suite, tx);
                tx_key.copy_from_slice(derived.key());
                header.tx_iv = *derived.iv;
                rest[..secret_bytes].copy_from_slice(tx);
                rest[secret_bytes..2 * secret_bytes].copy_from_slice(rx);
            }
            (Version::Tls12, Secrets::Keys { tx, tx_iv, rx, rx_iv })
                if [tx.len(), rx.len(), tx_iv.len(), rx_iv.len()]
                    == [key_bytes, key_bytes, IV_BYTES, IV_BYTES] =>
            {
                tx_key.copy_from_slice(tx);
                header.tx_iv.copy_from_slice(tx_iv);
                rest[..key_bytes].copy_from_slice(rx);
                rest[key_bytes..key_bytes + IV_BYTES].copy_from_slice(rx_iv);
            }
            _ => return Err(NoSession),
        }
        Ok(owned)
    }

    /// The same, at the client's end: other messages may come behind the handshake.
    pub(crate) fn of_client(mut self) -> Owned {
        self.parts().0.flags |= CLIENT;
        self
    }

    fn vacant(suite: Suite) -> Owned {
        match suite {
            Suite::Tls13ChaCha => Owned::Medium(Box::new(Kept::vacant())),
            Suite::Tls13Aes256 => Owned::Large(Box::new(Kept::vacant())),
            _ => Owned::Small(Box::new(Kept::vacant())),
        }
    }

    fn parts(&mut self) -> (&mut Header, &mut [u8]) {
        match self {
            Owned::Small(kept) => (&mut kept.header, &mut kept.keys),
            Owned::Medium(kept) => (&mut kept.header, &mut kept.keys),
            Owned::Large(kept) => (&mut kept.header, &mut kept.keys),
        }
    }

    /// The session, to seal and open with.
    pub fn session(&mut self) -> Session<'_> {
        let (header, keys) = self.parts();
        Session::new(header, keys)
    }

    /// How many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Owned::Small(_) => size_of::<SmallSession>(),
            Owned::Medium(_) => size_of::<MediumSession>(),
            Owned::Large(_) => size_of::<LargeSession>(),
        }
    }

    /// Appends the session to `out`, for another process to go on with, and ends it here: were both
    /// to seal, they would use a nonce twice.
    ///
    /// # Errors
    /// [`NoSession`] if it has ended before. Nothing is appended.
    pub fn pack(&mut self, out: &mut Vec<u8>) -> Result<(), NoSession> {
        let (header, keys) = self.parts();
        header.pack(keys, out)?;
        header.flags = DEAD;
        keys.zeroize();
        Ok(())
    }

    /// The session that was packed, which goes on here. The bytes are overwritten.
    ///
    /// # Errors
    /// [`NoSession`] if they are none.
    pub fn unpack(bytes: &mut [u8]) -> Result<Owned, NoSession> {
        let suite = bytes.first().and_then(|number| Suite::from_number(*number));
        let mut owned = Owned::vacant(suite.ok_or(NoSession)?);
        if bytes.len() != owned.bytes() || bytes[1] & !(FLAGS | OLD_FLAGS) != 0 {
            return Err(NoSession);
        }
        let number = |at: usize| -> u64 {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it has eight bytes"))
        };
        let (tx_seq, rx_seq) = (number(16), number(24));
        let (header, keys) = owned.parts();
        header.suite = suite.ok_or(NoSession)?;
        header.flags = bytes[1] & FLAGS;
        header.fruitless = bytes[2].min(FRUITLESS_MAX);
        header.partial = bytes[3].min(KEY_UPDATE_BYTES - 1);
        header.tx_iv.copy_from_slice(&bytes[4..16]);
        (header.tx_seq, header.rx_seq) = (tx_seq, rx_seq);
        keys.copy_from_slice(&bytes[HEADER_MEMORY..]);
        bytes.zeroize();
        Ok(owned)
    }
}

/// It seals and opens nothing any more.
pub(crate) const DEAD: u8 = 1 << 0;
/// The peer has said that nothing more comes.
pub(crate) const PEER_CLOSED: u8 = 1 << 1;
/// This end has said its last.
pub(crate) const CLOSED: u8 = 1 << 2;
/// Something of the peer was wrong: what is left is to say so.
pub(crate) const FAILED: u8 = 1 << 3;
/// A KeyUpdate of the peer asks for one.
pub(crate) const OWES_UPDATE: u8 = 1 << 4;
/// It is the client's end. Such a session is not handed to another process.
pub(crate) const CLIENT: u8 = 1 << 7;
const FLAGS: u8 = PEER_CLOSED | CLOSED | FAILED | OWES_UPDATE;
/// Builds before 0.1.0 set these if a client of TLS 1.2 requested a second handshake.
const OLD_FLAGS: u8 = 1 << 5 | 1 << 6;

/// A KeyUpdate: its type, three bytes of length, and whether one is asked for.
pub(crate) const KEY_UPDATE_BYTES: u8 = 5;

const HEADER_MEMORY: usize = 32;

const _: () = {
    assert!(size_of::<Header>() == HEADER_MEMORY);
    assert!(size_of::<SmallSession>() == 112);
    assert!(size_of::<MediumSession>() == 128);
    assert!(size_of::<LargeSession>() == 160);
};

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::alert::Alert;
    use crate::failure::SealError;
    use crate::testing::{seal, sessions};

    const ENDED: Result<usize, SealError> = Err(SealError::Ended);

    #[test]
    fn a_session_has_112_bytes_or_160() {
        let bytes = |suite| sessions(suite).0.bytes();
        assert_eq!(bytes(Suite::Tls13Aes128), 112);
        assert_eq!(bytes(Suite::Tls13ChaCha), 128);
        assert_eq!(bytes(Suite::Tls13Aes256), 160);
        for suite in [Suite::Tls12Aes128, Suite::Tls12Aes256, Suite::Tls12ChaCha] {
            assert_eq!(bytes(suite), 112);
        }
    }

    #[test]
    fn what_is_packed_goes_on_there_and_ends_here() {
        for suite in Suite::ALL {
            let (mut server, mut client) = sessions(suite);
            let mut record = seal(&mut server, b"one");
            let mut packed = Vec::new();
            server.pack(&mut packed).unwrap();
            assert_eq!(packed.len(), server.bytes());
            assert_eq!(server.session().end(Alert::CloseNotify, &mut [0; 100]), ENDED);
            assert_eq!(server.pack(&mut Vec::new()), Err(NoSession));

            let mut next = Owned::unpack(&mut packed).unwrap();
            assert!(packed.iter().all(|byte| *byte == 0));
            let mut second = seal(&mut next, b"two");
            for (record, text) in [(&mut record, b"one"), (&mut second, b"two")] {
                let opened = client.session().open(record).unwrap();
                assert_eq!(opened.data(record), text);
            }
        }
    }

    #[test]
    fn what_is_no_session_is_not_unpacked() {
        let (mut server, _) = sessions(Suite::Tls13Aes128);
        let mut packed = Vec::new();
        server.pack(&mut packed).unwrap();
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = packed.clone();
            change(&mut bytes);
            Owned::unpack(&mut bytes).is_err()
        };
        assert!(refused(&|bytes| bytes.clear()));
        assert!(refused(&|bytes| bytes.truncate(111)));
        assert!(refused(&|bytes| bytes.push(0)));
        assert!(refused(&|bytes| bytes[0] = 0));
        assert!(refused(&|bytes| bytes[0] = 7));
        assert!(refused(&|bytes| bytes[0] = Suite::Tls13Aes256 as u8));
        assert!(refused(&|bytes| bytes[1] = DEAD));
        assert!(!refused(&|_| {}));
    }

    #[test]
    fn a_session_is_in_one_place() {
        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        let Owned::Small(from) = &mut server else { panic!() };
        let mut slab = [SmallSession::vacant(), SmallSession::vacant()];
        assert_eq!(slab[1].session().end(Alert::CloseNotify, &mut [0; 100]), ENDED);
        slab[1].take(from);
        assert!(from.keys.iter().all(|byte| *byte == 0));
        assert_eq!(from.session().end(Alert::CloseNotify, &mut [0; 100]), ENDED);
        let mut record = [0; 100];
        slab[1].session().seal(&[IoSlice::new(b"x")], 100, &mut record).unwrap();
        let opened = client.session().open(&mut record).unwrap();
        assert_eq!(opened.data(&mut record), b"x");
        slab[1].wipe();
        assert!(slab[1].keys.iter().all(|byte| *byte == 0));
    }
}
