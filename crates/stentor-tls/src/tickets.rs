//! Session tickets: what a client brings back so that the next handshake is a short one (RFC 8446
//! section 4.6.1, RFC 5077).
//!
//! Nothing is kept of a session that could be resumed: the ticket holds it, sealed by a key that
//! all workers share. Where that key comes from a file, tickets outlive a restart, and only then
//! does the crowd that comes back after one resume.
//!
//! ```text
//!   ticket = period 4, seed 24, sealed state, tag 16
//!   key, nonce = HKDF-SHA256(secret, "stentor ticket", period, seed)
//! ```
//!
//! Each ticket has a key of its own, made with a random seed, so no nonce can come twice however
//! many processes seal with the same secret. A ticket is valid in the period in which it was sealed
//! and in the one after it. Only listeners that request no certificate of clients give tickets out,
//! so a ticket proves nothing about its client.
//!
//! The price of tickets is known: whoever learns the secret can read what clients of TLS 1.2 send
//! that resume. In TLS 1.3 there is a key exchange besides. A secret in a file should be replaced
//! now and then; the one of before is kept beside it for a while.

use std::fmt;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use zeroize::Zeroizing;

use crate::keys::KeyBytes;

/// The keys of tickets.
pub struct Tickets {
    /// The first seals, all open.
    secrets: Vec<hkdf::Prk>,
    /// The secret, if it is in no file.
    random: Option<Zeroizing<Vec<u8>>>,
}

impl Tickets {
    /// Keys of a secret that no file has: tickets are good until the server ends.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> Result<Tickets, String> {
        let mut secret = Zeroizing::new(vec![0; TICKET_SECRET_BYTES_MIN]);
        rand::fill(&mut secret).map_err(|_| "this system gives no random numbers")?;
        Tickets::continued(secret)
    }

    /// Keys of the [`Tickets::random_secret`] of another process of this server.
    ///
    /// # Errors
    /// As [`Tickets::new`].
    pub fn continued(secret: Zeroizing<Vec<u8>>) -> Result<Tickets, String> {
        let tickets = Tickets::new(&[(Path::new(""), &secret)])?;
        Ok(Tickets { random: Some(secret), ..tickets })
    }

    /// The secret, if no file has it.
    #[must_use]
    pub fn random_secret(&self) -> Option<&Zeroizing<Vec<u8>>> {
        self.random.as_ref()
    }

    /// Keys out of secrets, each with the name of where it is from. The first seals, all open.
    ///
    /// # Errors
    /// There is no secret, or there are more than [`TICKET_SECRETS_MAX`]; or one has fewer bytes
    /// than [`TICKET_SECRET_BYTES_MIN`].
    pub fn new(secrets: &[(&Path, &[u8])]) -> Result<Tickets, String> {
        if secrets.is_empty() || secrets.len() > TICKET_SECRETS_MAX {
            return Err(format!("tickets need a secret, and at most {TICKET_SECRETS_MAX}"));
        }
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"stentor tickets");
        let prk = |(file, secret): &(&Path, &[u8])| match secret.len() {
            TICKET_SECRET_BYTES_MIN.. => Ok(salt.extract(secret)),
            _ => Err(format!(
                "{}: a secret of tickets has at least {TICKET_SECRET_BYTES_MIN} bytes",
                file.display()
            )),
        };
        let secrets = secrets.iter().map(prk).collect::<Result<_, String>>()?;
        Ok(Tickets { secrets, random: None })
    }

    /// Makes a ticket of a state. `None` if the system gives no random numbers.
    pub(crate) fn seal(&self, now_unix_s: u64, state: &[u8]) -> Option<Vec<u8>> {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&period(now_unix_s).to_be_bytes());
        rand::fill(&mut head[4..]).ok()?;
        let (key, nonce) = key(self.secrets.first()?, &head)?;
        let mut ticket = head.to_vec();
        ticket.extend_from_slice(state);
        let sealed = &mut ticket[HEAD_BYTES..];
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(head), sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// The state of a ticket, if it is one of ours and still good.
    pub(crate) fn open(&self, now_unix_s: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        let (head, sealed) = ticket.split_first_chunk::<HEAD_BYTES>()?;
        let sealed_in = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        if period(now_unix_s).checked_sub(sealed_in)? > 1 {
            return None;
        }
        self.secrets.iter().find_map(|secret| {
            let (key, nonce) = key(secret, head)?;
            let mut state = sealed.to_vec();
            let len = key.open_in_place(nonce, Aad::from(*head), &mut state).ok()?.len();
            state.truncate(len);
            Some(state)
        })
    }
}

/// The key of one ticket.
fn key(secret: &hkdf::Prk, head: &[u8; HEAD_BYTES]) -> Option<(LessSafeKey, Nonce)> {
    let info: [&[u8]; 2] = [b"stentor ticket", head];
    let mut okm = Zeroizing::new([0; 44]);
    secret.expand(&info, KeyBytes(okm.len())).ok()?.fill(&mut *okm).ok()?;
    let key = UnboundKey::new(&AES_256_GCM, &okm[..32]).ok()?;
    Some((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(&okm[32..]).ok()?))
}

fn period(now_unix_s: u64) -> u32 {
    u32::try_from(now_unix_s / TICKET_PERIOD_S).unwrap_or(u32::MAX)
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("secrets", &self.secrets.len()).finish()
    }
}

/// The length of a period. A ticket is good for the rest of its period and for the next one.
pub const TICKET_PERIOD_S: u64 = 12 * 60 * 60;

/// How short a secret may be.
pub const TICKET_SECRET_BYTES_MIN: usize = 32;

/// How many there may be: each is tried for a ticket that is none of ours.
pub const TICKET_SECRETS_MAX: usize = 4;

const HEAD_BYTES: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(firsts: &[u8]) -> Tickets {
        let secrets: Vec<[u8; 32]> = firsts.iter().map(|first| [*first; 32]).collect();
        let named: Vec<(&Path, &[u8])> =
            secrets.iter().map(|secret| (Path::new("secret"), &secret[..])).collect();
        Tickets::new(&named).unwrap()
    }

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_ticket_is_good_for_a_period_and_the_next_also_after_a_restart() {
        let ticket = tickets(&[1]).seal(NOW, b"state").unwrap();
        let open = |now| tickets(&[1]).open(now, &ticket);
        assert_eq!(open(NOW), Some(b"state".to_vec()));
        let begin = NOW - NOW % TICKET_PERIOD_S;
        assert_eq!(open(begin + 2 * TICKET_PERIOD_S - 1), Some(b"state".to_vec()));
        assert_eq!(open(begin + 2 * TICKET_PERIOD_S), None);
        assert_eq!(open(begin - 1), None, "it comes from the future");
        assert_eq!(open(u64::MAX), None);
    }

    #[test]
    fn a_ticket_is_valid_with_its_secret_only() {
        let ticket = tickets(&[1]).seal(NOW, b"state").unwrap();
        assert!(tickets(&[2]).open(NOW, &ticket).is_none());
        assert!(tickets(&[2, 1]).open(NOW, &ticket).is_some(), "the one of before");
        assert!(Tickets::random().unwrap().open(NOW, &ticket).is_none());
    }

    #[test]
    fn a_ticket_that_was_changed_or_cut_is_none() {
        let ticket = tickets(&[1]).seal(NOW, b"state").unwrap();
        assert_eq!(ticket.len(), 5 + HEAD_BYTES + 16);
        for bit in 0..ticket.len() * 8 {
            let mut changed = ticket.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(tickets(&[1]).open(NOW, &changed).is_none(), "bit {bit}");
        }
        for len in 0..ticket.len() {
            assert!(tickets(&[1]).open(NOW, &ticket[..len]).is_none());
        }
    }

    #[test]
    fn tickets_outlive_their_process_by_its_secret() {
        let before = Tickets::random().unwrap();
        let ticket = before.seal(NOW, b"state").unwrap();
        let next = Tickets::continued(before.random_secret().unwrap().clone()).unwrap();
        assert_eq!(next.open(NOW, &ticket), Some(b"state".to_vec()));
        assert!(tickets(&[1]).random_secret().is_none(), "a file has it");
    }

    #[test]
    fn no_two_tickets_are_alike() {
        let tickets = tickets(&[1]);
        let seal = || tickets.seal(NOW, b"state").unwrap();
        let (one, other) = (seal(), seal());
        assert_ne!(one[4..HEAD_BYTES], other[4..HEAD_BYTES]);
        assert_ne!(one[HEAD_BYTES..], other[HEAD_BYTES..]);
    }

    #[test]
    fn secrets_are_long_and_few() {
        let short = Tickets::new(&[(Path::new("a/secret"), &[1; 31])]).unwrap_err();
        assert_eq!(short, "a/secret: a secret of tickets has at least 32 bytes");
        assert!(Tickets::new(&[]).is_err());
        let secret: (&Path, &[u8]) = (Path::new("s"), &[1; 32]);
        assert_eq!(Tickets::new(&[secret; 5]).unwrap_err(), "tickets need a secret, and at most 4");
    }
}
