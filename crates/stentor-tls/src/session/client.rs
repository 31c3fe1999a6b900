//! What only a client is told behind the handshake.

use super::{HELLO_REQUEST, NEW_SESSION_TICKET, Session, What};
use crate::failure::Failure;
use crate::memory::{OWES_REFUSAL, RENEGOTIATION_SEEN};

impl Session<'_> {
    /// What of a record's messages lies behind tickets (RFC 8446 section 4.6.1), which are passed
    /// over. A ticket has to be there as a whole: nothing is kept of it, and no server is known
    /// that cuts one.
    pub(super) fn without_tickets<'b>(&self, message: &'b [u8]) -> Result<&'b [u8], Failure> {
        let mut rest = message;
        while let &[NEW_SESSION_TICKET, a, b, c, ref behind @ ..] = rest
            && self.header.partial == 0
        {
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            rest = behind.get(len..).ok_or(Failure::Unexpected)?;
        }
        Ok(rest)
    }

    /// A server of TLS 1.2 may ask for another handshake (RFC 5246 section 7.4.1.1), and is told
    /// no; once.
    pub(super) fn asked_anew(&mut self, message: &[u8]) -> Result<What, Failure> {
        if message != [HELLO_REQUEST, 0, 0, 0] {
            return Err(Failure::Unexpected);
        }
        if !self.has(RENEGOTIATION_SEEN) {
            self.header.flags |= RENEGOTIATION_SEEN | OWES_REFUSAL;
        }
        self.fruitless(What::Nothing)
    }
}
