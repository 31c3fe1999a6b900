//! The memory that a connection holds, and that closing it would free.

use super::Connection;
use super::reader::Extra;
use crate::output::Backlog;

impl Connection {
    /// The bytes that it owns.
    pub(crate) fn owned_bytes(&self) -> usize {
        let extra = self.extra.as_deref().map_or(0, Extra::own_bytes);
        extra + self.work.as_deref().map_or(0, |work| work.own_bytes())
    }

    /// Its share of the detached bodies that it has still to be sent, in bytes.
    pub(crate) fn detached_share(&self) -> usize {
        let backlog = self.work.as_deref().and_then(|work| work.backlog.as_ref());
        backlog.map_or(0, Backlog::detached_share)
    }

    /// The bytes of its feeds, as closing it would free them.
    pub(crate) fn feeds_bytes(&self) -> usize {
        self.extra.as_deref().map_or(0, Extra::feeds_bytes)
    }
}
