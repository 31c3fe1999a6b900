//! Records: what is sent is sealed, what comes is opened (RFC 8446 sections 4.6.3, 5 and 6; RFC
//! 5246 sections 6 and 7).
//!
//! A [`Session`] calls nothing and holds no bytes. It seals out of the caller's memory, which many
//! sessions may share, into the caller's buffer, and opens where the record is. A record that is
//! not there as a whole is left to the caller, or to [`crate::Inbound`].
//!
//! What must never happen is that a nonce is used twice under a key. A nonce is made of `tx_seq`.
//! One place takes a number for a nonce from it, [`Session::next_sequence`], which moves it before
//! anything is sealed. One place sets it back to nought, where the key becomes another one. What
//! was sealed is never sealed again: whoever could send only a part of a record keeps the rest of
//! it.
//!
//! A peer of TLS 1.3 can request another key. The session writes the KeyUpdate in front of the next
//! record, or in [`Session::settle`]: one record, however often the peer asks. The session counts
//! records that bring nothing (empty records, KeyUpdates, warnings), and too many in a row end it.
//! There is no second handshake: a handshake record in a session of TLS 1.2 is a fault of the peer.
//!
//! After a fault of the peer there is one thing left to do: [`Session::end`] with the alert that
//! [`Failure::alert`] names. Behind a fatal alert the socket should linger: a reset may overtake
//! it.

use std::io::IoSlice;
use std::ops::Range;

use crate::alert::{Alert, CLOSE_NOTIFY, FATAL, PeerAlert, USER_CANCELED, WARNING};
use crate::contexts::Contexts;
use crate::failure::{Failure, SealError};
use crate::keys::{self, Authenticated, Opener, RecordKeys};
use crate::memory::{
    CLIENT, CLOSED, DEAD, FAILED, Header, KEY_UPDATE_BYTES, OWES_UPDATE, PEER_CLOSED, SmallSession,
};
use crate::suite::{FRAGMENT_BYTES_MAX, HEADER_BYTES, IV_BYTES, Suite, TAG_BYTES, Version};

mod client;

/// A session at work, in the memory that is kept of it.
pub struct Session<'a> {
    header: &'a mut Header,
    keys: &'a mut [u8],
}

/// What became of plaintext.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// So many bytes of it were sealed.
    pub taken: usize,
    /// So many bytes of `out` are to be sent.
    pub written: usize,
}

/// What became of received bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// So many bytes were used up: one record, or none.
    pub used: usize,
    /// What it was.
    pub what: What,
}

/// What a record is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// It is not there as a whole: so many bytes have to be, from its beginning. Nothing was used
    /// up and nothing has changed.
    Incomplete {
        /// In all, not beyond what is there.
        needs: usize,
    },
    /// Data of the application, which stands there now in the clear. It is never empty.
    Data(Range<usize>),
    /// Nothing that the application would have to know of. There may be something to
    /// [settle](Session::settle).
    Nothing,
    /// The peer has said that nothing more comes (close_notify). What comes all the same is used
    /// up and means nothing.
    Closed,
}

impl Opened {
    /// The data it is, or nothing.
    pub fn data<'b>(&self, bytes: &'b mut [u8]) -> &'b mut [u8] {
        match &self.what {
            What::Data(range) => &mut bytes[range.clone()],
            _ => &mut [],
        }
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(header: &'a mut Header, keys: &'a mut [u8]) -> Session<'a> {
        Session { header, keys }
    }

    /// How its records are sealed.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.header.suite
    }

    /// Whether the peer has said that nothing more comes.
    #[must_use]
    pub fn peer_has_closed(&self) -> bool {
        self.has(PEER_CLOSED)
    }

    /// Whether the peer waits for a KeyUpdate, which [`Session::settle`] writes.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.has(OWES_UPDATE) && !self.has(DEAD | CLOSED | FAILED)
    }

    /// Seals as much of `parts` as fits into one record, into `out`. In front of it stands what is
    /// owed to the peer, and a KeyUpdate if the key has sealed much.
    ///
    /// The record carries at most `fragment_bytes_max`, which is taken for something between 1 and
    /// [`FRAGMENT_BYTES_MAX`], and has [`Suite::record_overhead`] bytes beyond that. Of one part it
    /// is sealed without a copy.
    ///
    /// # Errors
    /// [`SealError`]. If `out` is shorter than [`SEAL_ROOM_MIN`], nothing has changed.
    pub fn seal(
        &mut self,
        parts: &[IoSlice<'_>],
        fragment_bytes_max: usize,
        out: &mut [u8],
    ) -> Result<Sealed, SealError> {
        self.check(out)?;
        let all = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        if all == 0 {
            return Ok(Sealed { taken: 0, written: 0 });
        }
        // Looked at first: what settle writes has to be sent.
        if self.header.tx_seq >= records_max(self.suite()) {
            return Err(SealError::Exhausted);
        }
        let before = self.settle(out)?;
        let out = &mut out[before..];
        let room = out.len() - self.suite().record_overhead();
        let taken = all.min(room).min(fragment_bytes_max.clamp(1, FRAGMENT_BYTES_MAX));
        let written = before + self.seal_record(APPLICATION_DATA, parts, taken, out)?;
        Ok(Sealed { taken, written })
    }

    /// Says what is owed to the peer, if anything is, and how many bytes of `out` that takes.
    ///
    /// # Errors
    /// [`SealError`]. If `out` is shorter than [`SEAL_ROOM_MIN`], nothing has changed.
    pub fn settle(&mut self, out: &mut [u8]) -> Result<usize, SealError> {
        self.check(out)?;
        let is_due = self.has(OWES_UPDATE) || self.header.tx_seq >= UPDATE_AFTER;
        match self.suite().version() {
            Version::Tls13 if is_due => self.update(out),
            _ => Ok(0),
        }
    }

    /// Says the last of this end, and how many bytes of `out` that takes: [`Alert::CloseNotify`]
    /// when all was said, or what [`Failure::alert`] names. Nothing can be sealed behind it. What
    /// the peer still sends can be opened unless it had failed.
    ///
    /// # Errors
    /// [`SealError`], in particular if the last was said before.
    pub fn end(&mut self, alert: Alert, out: &mut [u8]) -> Result<usize, SealError> {
        if self.has(DEAD | CLOSED) {
            return Err(SealError::Ended);
        }
        if out.len() < SEAL_ROOM_MIN {
            return Err(SealError::NoRoom);
        }
        self.header.flags |= CLOSED;
        self.seal_alert(alert, out)
    }

    /// Opens the record that `bytes` begin with, where it is.
    ///
    /// # Errors
    /// [`Failure`] if something is wrong with it; from then on the session is dead, and every
    /// further call says so. Bytes that were to be opened are neither what they were nor plaintext.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, Failure> {
        self.open_with(&mut Contexts::default(), bytes)
    }

    /// Likewise, with a context that may be there from the last time.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_with(
        &mut self,
        contexts: &mut Contexts,
        bytes: &mut [u8],
    ) -> Result<Opened, Failure> {
        if self.has(DEAD | FAILED) {
            return Err(Failure::Ended);
        }
        if self.has(PEER_CLOSED) {
            return Ok(Opened { used: bytes.len(), what: What::Closed });
        }
        let opened = self.open_record(contexts, bytes);
        if opened.is_err() {
            self.header.flags |= FAILED;
        }
        opened
    }

    /// A record of any type with any contents, for tests.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn seal_any(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = vec![0; content.len() + self.suite().record_overhead()];
        let parts = [IoSlice::new(content)];
        let sealed = self.seal_record(kind, &parts, content.len(), &mut record);
        record.truncate(sealed.expect("it can be sealed"));
        record
    }

    fn has(&self, flags: u8) -> bool {
        self.header.flags & flags != 0
    }

    fn check(&self, out: &[u8]) -> Result<(), SealError> {
        if self.has(DEAD | CLOSED | FAILED) {
            return Err(SealError::Ended);
        }
        if out.len() < SEAL_ROOM_MIN { Err(SealError::NoRoom) } else { Ok(()) }
    }

    /// Another key for what is sent, said under the one of before (RFC 8446 section 4.6.3). None is
    /// asked for in return.
    fn update(&mut self, out: &mut [u8]) -> Result<usize, SealError> {
        let message = [KEY_UPDATE, 0, 0, 1, UPDATE_NOT_REQUESTED];
        let parts = [IoSlice::new(&message)];
        let written = self.seal_record(HANDSHAKE, &parts, message.len(), out)?;
        self.header.flags &= !OWES_UPDATE;
        let suite = self.suite();
        let (tx_key, rest) = self.keys.split_at_mut(suite.key_bytes());
        let tx_secret = &mut rest[..suite.secret_bytes()];
        keys::advance_secret(suite, tx_secret);
        keys::wiping_stack(|| {
            let derived = RecordKeys::derive(suite, tx_secret);
            tx_key.copy_from_slice(derived.key());
            self.header.tx_iv = *derived.iv;
        });
        self.header.tx_seq = 0;
        Ok(written)
    }

    fn seal_alert(&mut self, alert: Alert, out: &mut [u8]) -> Result<usize, SealError> {
        let message = alert.message();
        self.seal_record(ALERT, &[IoSlice::new(&message)], message.len(), out)
    }

    /// The number of the record that is sealed next, and of no other.
    fn next_sequence(&mut self) -> Result<u64, SealError> {
        let sequence = self.header.tx_seq;
        self.header.tx_seq = sequence.checked_add(1).ok_or(SealError::Exhausted)?;
        Ok(sequence)
    }

    /// Seals the first `taken` bytes of `parts`, which are there, into `out`, where there is room.
    fn seal_record(
        &mut self,
        kind: u8,
        parts: &[IoSlice<'_>],
        taken: usize,
        out: &mut [u8],
    ) -> Result<usize, SealError> {
        let suite = self.suite();
        let sequence = self.next_sequence()?;
        let (outer, sealed_type): (u8, &[u8]) = match suite.version() {
            Version::Tls13 => (APPLICATION_DATA, &[kind]),
            Version::Tls12 => (kind, &[]),
        };
        let explicit = suite.explicit_nonce_bytes();
        let sealed_bytes = explicit + taken + sealed_type.len() + TAG_BYTES;
        let [high, low] = u16::try_from(sealed_bytes).expect("records are short").to_be_bytes();
        let header = [outer, VERSION[0], VERSION[1], high, low];
        keys::watch(&self.keys[..suite.key_bytes()], sequence);
        let nonce = keys::nonce(&self.header.tx_iv, sequence);
        out[..HEADER_BYTES].copy_from_slice(&header);
        out[HEADER_BYTES..HEADER_BYTES + explicit].copy_from_slice(&nonce[IV_BYTES - explicit..]);

        let authenticated_bytes =
            if suite.version() == Version::Tls13 { sealed_bytes } else { taken };
        let authenticated =
            Authenticated::new(suite.version(), sequence, &header, authenticated_bytes);
        let key = (suite, &self.keys[..suite.key_bytes()]);
        let body = &mut out[HEADER_BYTES + explicit..HEADER_BYTES + sealed_bytes];
        let first = parts.iter().find(|part| !part.is_empty());
        let sealed = match first {
            Some(part) if part.len() >= taken => {
                let plaintext = &part[..taken];
                keys::seal_from(key, nonce, &authenticated, plaintext, sealed_type, body)
            }
            _ => {
                gather(parts, &mut body[..taken]);
                keys::seal_in_place(key, nonce, &authenticated, sealed_type, body)
            }
        };
        if sealed.is_err() {
            // What is in `out` may be plaintext.
            out.fill(0);
            self.header.flags |= DEAD;
            return Err(SealError::Ended);
        }
        Ok(HEADER_BYTES + sealed_bytes)
    }

    fn open_record(
        &mut self,
        contexts: &mut Contexts,
        bytes: &mut [u8],
    ) -> Result<Opened, Failure> {
        let Some(&header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(Opened { used: 0, what: What::Incomplete { needs: HEADER_BYTES } });
        };
        let sealed_bytes = self.check_header(header)?;
        let used = HEADER_BYTES + sealed_bytes;
        let Some(record) = bytes.get_mut(..used) else {
            return Ok(Opened { used: 0, what: What::Incomplete { needs: used } });
        };
        let what = match self.suite().version() {
            Version::Tls13 => {
                let suite = self.suite();
                let failed = |_| Failure::NotAuthentic;
                let found = contexts.find(suite, self.rx_secret()).map_err(failed)?;
                let opener = contexts.opener(&found).ok_or(Failure::NotAuthentic)?;
                let opened = self.open_tls13(opener, header, record);
                let what =
                    opened.and_then(|(kind, content)| self.understand(kind, content, record));
                // After a KeyUpdate, where numbers begin again at 0, it opens nothing more.
                let is_kept =
                    self.header.rx_seq > 0 && matches!(&what, Ok(what) if *what != What::Closed);
                contexts.put_back(found, is_kept);
                what?
            }
            Version::Tls12 => {
                let content = self.open_tls12(header, record)?;
                self.understand(header[0], content, record)?
            }
        };
        Ok(Opened { used, what })
    }

    /// The secret by which contexts are found, if there are any of it.
    pub(crate) fn secret_of_contexts(&mut self) -> Option<(Suite, &[u8])> {
        let suite = self.suite();
        (suite.version() == Version::Tls13).then(|| (suite, &*self.rx_secret()))
    }

    /// What can be said of a record by its header: how long what follows is.
    fn check_header(&self, header: [u8; HEADER_BYTES]) -> Result<usize, Failure> {
        let [kind, major, minor, high, low] = header;
        match self.suite().version() {
            // All are sealed by now, and look the same. The version means nothing (section 5.1).
            Version::Tls13 if kind == APPLICATION_DATA => {}
            Version::Tls12 if [ALERT, HANDSHAKE, APPLICATION_DATA].contains(&kind) => {
                if [major, minor] != VERSION {
                    return Err(Failure::Version);
                }
            }
            _ => return Err(Failure::Unexpected),
        }
        let sealed_bytes = usize::from(u16::from_be_bytes([high, low]));
        if sealed_bytes > self.suite().sealed_bytes_max() {
            return Err(Failure::RecordTooLong);
        }
        if sealed_bytes < self.suite().explicit_nonce_bytes() + TAG_BYTES {
            return Err(Failure::NotAuthentic);
        }
        Ok(sealed_bytes)
    }

    /// Opens a record of TLS 1.3: its type, and where in it the contents are.
    fn open_tls13(
        &mut self,
        opener: &Opener,
        header: [u8; HEADER_BYTES],
        record: &mut [u8],
    ) -> Result<(u8, Range<usize>), Failure> {
        let sequence = self.received_sequence()?;
        let sealed = &mut record[HEADER_BYTES..];
        let authenticated = Authenticated::new(Version::Tls13, sequence, &header, sealed.len());
        let len =
            opener.open(sequence, &authenticated, sealed).map_err(|_| Failure::NotAuthentic)?;
        // With its type and the padding.
        if len > FRAGMENT_BYTES_MAX + 1 {
            return Err(Failure::RecordTooLong);
        }
        // Behind the type there is nothing but padding (section 5.4).
        let padded = &sealed[..len];
        let at = padded.iter().rposition(|byte| *byte != 0).ok_or(Failure::Unexpected)?;
        Ok((padded[at], HEADER_BYTES..HEADER_BYTES + at))
    }

    /// Opens a record of TLS 1.2: where in it the contents are.
    fn open_tls12(
        &mut self,
        header: [u8; HEADER_BYTES],
        record: &mut [u8],
    ) -> Result<Range<usize>, Failure> {
        let suite = self.suite();
        let (key_bytes, explicit) = (suite.key_bytes(), suite.explicit_nonce_bytes());
        let sequence = self.received_sequence()?;
        let rest = &self.keys[key_bytes..];
        let (key, iv) = (&rest[..key_bytes], &rest[key_bytes..key_bytes + IV_BYTES]);
        let iv: [u8; IV_BYTES] = iv.try_into().expect("it has that length");
        let (shown, sealed) = record[HEADER_BYTES..].split_at_mut(explicit);
        let nonce = if explicit == 0 {
            keys::nonce(&iv, sequence)
        } else {
            let mut nonce = iv;
            nonce[IV_BYTES - explicit..].copy_from_slice(shown);
            nonce
        };
        let content_bytes = sealed.len() - TAG_BYTES;
        let authenticated = Authenticated::new(Version::Tls12, sequence, &header, content_bytes);
        let len = keys::open((suite, key), nonce, &authenticated, sealed)
            .map_err(|_| Failure::NotAuthentic)?;
        if len > FRAGMENT_BYTES_MAX {
            return Err(Failure::RecordTooLong);
        }
        let start = HEADER_BYTES + explicit;
        Ok(start..start + len)
    }

    fn received_sequence(&mut self) -> Result<u64, Failure> {
        let sequence = self.header.rx_seq;
        self.header.rx_seq = sequence.checked_add(1).ok_or(Failure::Exhausted)?;
        Ok(sequence)
    }

    fn rx_secret(&mut self) -> &mut [u8] {
        let suite = self.header.suite;
        let (start, len) = (suite.key_bytes() + suite.secret_bytes(), suite.secret_bytes());
        &mut self.keys[start..start + len]
    }

    /// What an opened record means.
    fn understand(
        &mut self,
        kind: u8,
        content: Range<usize>,
        record: &[u8],
    ) -> Result<What, Failure> {
        // A message that has begun goes on in the next record (RFC 8446 section 5.1).
        if self.header.partial > 0 && kind != HANDSHAKE {
            return Err(Failure::Unexpected);
        }
        match kind {
            APPLICATION_DATA if content.is_empty() => self.fruitless(What::Nothing),
            APPLICATION_DATA => {
                self.header.fruitless = 0;
                Ok(What::Data(content))
            }
            ALERT => self.alerted(&record[content]),
            HANDSHAKE if content.is_empty() => Err(Failure::Unexpected),
            HANDSHAKE if self.suite().version() == Version::Tls13 => {
                self.handshake_tls13(&record[content])
            }
            // A client may ignore that a server of TLS 1.2 requests another handshake (RFC 5246
            // section 7.4.1.1).
            HANDSHAKE if self.has(CLIENT) && record[content] == [HELLO_REQUEST, 0, 0, 0] => {
                self.fruitless(What::Nothing)
            }
            _ => Err(Failure::Unexpected),
        }
    }

    /// Nothing was brought; there is an end to that, too.
    fn fruitless(&mut self, what: What) -> Result<What, Failure> {
        self.header.fruitless += 1;
        if self.header.fruitless > FRUITLESS_MAX { Err(Failure::Fruitless) } else { Ok(what) }
    }

    fn alerted(&mut self, message: &[u8]) -> Result<What, Failure> {
        let &[level, description] = message else {
            // An empty one must not be sent at all (RFC 8446 section 5.4).
            return Err(if message.is_empty() { Failure::Unexpected } else { Failure::Unreadable });
        };
        if ![WARNING, FATAL].contains(&level) {
            return Err(Failure::Illegal);
        }
        let is_tls13 = self.suite().version() == Version::Tls13;
        match description {
            CLOSE_NOTIFY => {
                self.header.flags |= PEER_CLOSED;
                Ok(What::Closed)
            }
            // All other alerts of TLS 1.3 are errors, whatever their level (section 6.2).
            USER_CANCELED if is_tls13 || level == WARNING => self.fruitless(What::Nothing),
            _ if !is_tls13 && level == WARNING => self.fruitless(What::Nothing),
            other => Err(Failure::Peer(PeerAlert(other))),
        }
    }

    /// Behind the handshake a client may send one message: a KeyUpdate. All but its last byte is
    /// known beforehand, so of one that comes in parts there is nothing to keep but how many bytes
    /// of it have come.
    fn handshake_tls13(&mut self, message: &[u8]) -> Result<What, Failure> {
        let message = if self.has(CLIENT) { self.without_tickets(message)? } else { message };
        let expected = [KEY_UPDATE, 0, 0, 1];
        for (i, &byte) in message.iter().enumerate() {
            let at = usize::from(self.header.partial);
            match expected.get(at) {
                Some(&wanted) if byte == wanted => self.header.partial += 1,
                Some(_) if at == 0 => return Err(Failure::Unexpected),
                Some(_) => return Err(Failure::Unreadable),
                // Nothing of the old key may follow in the same record (section 5.1).
                None if i + 1 < message.len() => return Err(Failure::Unexpected),
                None => {
                    self.header.partial = 0;
                    return self.updated(byte);
                }
            }
        }
        debug_assert!(self.header.partial < KEY_UPDATE_BYTES);
        self.fruitless(What::Nothing)
    }

    /// The peer has another key from here on.
    fn updated(&mut self, request: u8) -> Result<What, Failure> {
        match request {
            UPDATE_NOT_REQUESTED => {}
            UPDATE_REQUESTED => self.header.flags |= OWES_UPDATE,
            _ => return Err(Failure::Illegal),
        }
        let what = self.fruitless(What::Nothing)?;
        keys::advance_secret(self.header.suite, self.rx_secret());
        self.header.rx_seq = 0;
        Ok(what)
    }
}

/// Copies the first bytes of all parts together.
fn gather(parts: &[IoSlice<'_>], mut out: &mut [u8]) {
    for part in parts {
        let len = part.len().min(out.len());
        let (here, rest) = out.split_at_mut(len);
        here.copy_from_slice(&part[..len]);
        out = rest;
    }
}

/// How many records a key may seal. Of AES-GCM 2^24.5 are safe (RFC 8446 section 5.5), of ChaCha20
/// more than can be counted. TLS 1.3 takes another key long before; TLS 1.2 has but one.
fn records_max(suite: Suite) -> u64 {
    match suite {
        Suite::Tls12ChaCha => 1 << 48,
        _ => 1 << 24,
    }
}

/// After so many records the key is another one: half of what is safe with AES-GCM.
pub(crate) const UPDATE_AFTER: u64 = 1 << 23;

/// So many records in a row may bring nothing.
pub(crate) const FRUITLESS_MAX: u8 = 32;

/// How long `out` has to be: for the longest message that may stand in front, and one byte of data.
pub const SEAL_ROOM_MIN: usize = 64;

const _: () = {
    // Both keys of TLS 1.2, and the nonce of what comes.
    assert!(2 * 32 + IV_BYTES <= size_of::<SmallSession>() - size_of::<Header>());
    let tls13 = HEADER_BYTES + 1 + TAG_BYTES;
    assert!(tls13 + KEY_UPDATE_BYTES as usize + tls13 < SEAL_ROOM_MIN);
    assert!(HEADER_BYTES + 8 + TAG_BYTES < SEAL_ROOM_MIN);
    // TLS 1.3 has taken another key before it would be refused one.
    assert!(UPDATE_AFTER < 1 << 24);
};

/// TLS 1.2, as both versions write it.
const VERSION: [u8; 2] = [3, 3];

/// Types of records.
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

/// Types of messages.
const HELLO_REQUEST: u8 = 0;
pub(crate) const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

const UPDATE_NOT_REQUESTED: u8 = 0;
const UPDATE_REQUESTED: u8 = 1;

#[cfg(test)]
mod tests;
