//! What only a client is told behind the handshake.

use super::{NEW_SESSION_TICKET, Session};
use crate::failure::Failure;

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
}
