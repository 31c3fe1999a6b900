//! The invariants of a reader between two visits, as far as its types do not ensure them.

use super::{Extra, Reading, Subscription};
use crate::connection::StreamWait;
use crate::connection::check::ensure;
use crate::stream::format::Transport;
use crate::stream::{COMMANDS, HAS_PASS, MANY};

impl Reading {
    /// Whether the reader is in a state in which a visit may leave it.
    ///
    /// # Errors
    /// The broken invariant.
    pub(in crate::connection) fn is_sound(
        &self,
        is_poll: bool,
        waits: bool,
    ) -> Result<(), &'static str> {
        let none = Extra::default();
        let extra = self.extra.as_deref().unwrap_or(&none);
        ensure(self.extra.is_none() || !extra.is_empty(), "An empty box is kept.")?;
        let is_long_poll = self.traits.transport == Transport::LongPoll;
        ensure(is_long_poll == is_poll, "Its transport is that of another state.")?;
        let commands = self.traits.has(COMMANDS);
        ensure(!commands || self.feed == MANY, "It commands, and reads one feed.")?;
        ensure(extra.joining.is_none() || commands, "It joins without a command.")?;
        ensure(extra.subscriptions.is_empty() || self.feed == MANY, "It reads one and several.")?;
        let joining = extra.joining.as_ref().map(|joining| &joining.subscriptions[..]);
        let is_sorted = |all: &[Subscription]| all.is_sorted_by(|a, b| a.feed < b.feed);
        let are_sorted = is_sorted(&extra.subscriptions) && joining.is_none_or(is_sorted);
        ensure(are_sorted && extra.partial.is_sorted(), "Subscriptions are out of order.")?;
        // The pump continues a replay only if the connection waits.
        ensure(!extra.catches_up() || waits, "It is forgotten.")?;
        let is_legal = is_poll
            || match self.wait {
                StreamWait::Room | StreamWait::Leave => waits,
                StreamWait::Expiry => !waits && self.traits.has(HAS_PASS),
                StreamWait::Frame => !waits && extra.decoder.is_some(),
                StreamWait::Heartbeat | StreamWait::Ping | StreamWait::Farewell => true,
            };
        ensure(is_legal, "A stream waits for what cannot come.")
    }

    /// Whether it only waits for what others do, so it must own nothing. The token of a reader may
    /// end while a frame arrives.
    pub(in crate::connection) fn is_alone(&self) -> bool {
        let decodes = self.extra.as_deref().is_some_and(|extra| extra.decoder.is_some());
        match self.wait {
            StreamWait::Heartbeat | StreamWait::Ping => self.feed != MANY,
            StreamWait::Expiry => self.feed != MANY && !decodes,
            _ => false,
        }
    }
}
