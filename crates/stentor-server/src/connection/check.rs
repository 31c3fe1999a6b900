//! What must hold of a connection's record whenever nothing is being done with it, as far as the
//! types of its states do not say it.
//!
//! Debug builds check the record after every event, and every build checks a record that comes from
//! another process.

use super::state::{Ending, State};
use super::{Connection, RequestWait};
use crate::connection::CopyWait;
use crate::listeners::LISTENERS;
use crate::phase::AnswerWait;
use stentor_io::PROXIED;

impl Connection {
    /// Panics if the record is in a state that none of its methods may leave it in.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self) {
        if let Err(flaw) = self.is_sound() {
            panic!("{flaw} {self:?}");
        }
    }

    /// Whether the record is in a state in which its methods may leave it.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn is_sound(&self) -> Result<(), &'static str> {
        let (work, waits) = (&self.work, self.waits());
        ensure(usize::from(self.role()) < LISTENERS.len(), "No listener has this number.")?;
        ensure(work.is_needed(), "Unused work is kept.")?;
        let has_input = !work.input().is_empty();
        let is_legal = match &self.state {
            State::Free | State::Ending(Ending::Lingering | Ending::Delivering) => work.is_none(),
            State::Ending(Ending::Closing | Ending::Refusing) => self.is_blocked(),
            State::Http(http) => match http.wait() {
                RequestWait::Idle => self.is_between_requests(),
                RequestWait::Handshake => self.is_between_requests() && self.is_secured(),
                RequestWait::ProxyHeader => self.is_between_requests() && self.role & PROXIED != 0,
                RequestWait::Head => !waits && http.body().is_none(),
                RequestWait::Body => !waits && http.body().is_some(),
                RequestWait::Room => waits,
            },
            State::Stream(_) => !has_input || waits,
            State::Poll(poll) => match poll.wait() {
                AnswerWait::Room => waits,
                AnswerWait::Expiry => !waits && self.has_pass(),
                AnswerWait::Event => !waits,
            },
            State::Pending(_) => true,
            State::Transfer(transfer) => match transfer.wait() {
                CopyWait::Room => waits,
                CopyWait::Expiry => !waits && transfer.has_pass(),
                CopyWait::Heartbeat => !waits,
            },
        };
        ensure(is_legal, "An illegal state.")?;
        if let Some(reading) = self.reading() {
            reading.is_sound(self.is_polling(), waits)?;
        }
        let is_alone = match &self.state {
            State::Stream(reading) => reading.is_alone(),
            _ => self.is_idle(),
        };
        ensure(!is_alone || self.owned_bytes() == 0, "It keeps something while it waits.")
    }
}

pub(super) fn ensure(is_so: bool, flaw: &'static str) -> Result<(), &'static str> {
    if is_so { Ok(()) } else { Err(flaw) }
}
