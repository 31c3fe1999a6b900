//! The invariants of a connection's record between two visits, as far as the types of its states
//! do not ensure them.
//!
//! Debug builds check the record after every event, and every build checks a record that comes from
//! another process.

use super::state::State;
use super::{Connection, RequestWait};
use crate::listeners::LISTENERS;
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
            State::Free | State::Lingering | State::Delivering => work.is_none(),
            State::Closing | State::Refusing => waits,
            State::Http(http) => match http.wait() {
                RequestWait::Idle => self.is_between_requests(),
                RequestWait::Handshake => self.is_between_requests() && self.is_secured(),
                RequestWait::ProxyHeader => self.is_between_requests() && self.role & PROXIED != 0,
                RequestWait::Head => !waits && http.body().is_none(),
                RequestWait::Body => !waits && http.body().is_some(),
                RequestWait::Room => waits,
            },
            State::Stream(_) => !has_input || waits,
            State::Poll(poll) => poll.wait().fits(waits, self.has_pass()),
            State::Transfer(transfer) => transfer.wait().fits(waits, transfer.has_pass()),
            State::Pending(_) => true,
            State::Body(_) => waits,
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
