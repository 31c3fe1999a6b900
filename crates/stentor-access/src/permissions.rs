//! What a token allows: topics to publish to, and topics to read.

use std::fmt;

use crate::patterns::Patterns;

/// What a token allows. Equal permissions are equal and hash the same, however they were written,
/// so that whoever has many tokens to deal with keeps each set once.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Permissions {
    /// Topics that it may publish to, and delete.
    pub publish: Patterns,
    /// Topics that it may read, beside those that anyone may.
    pub read: Patterns,
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "publish {:?}, read {:?}", self.publish, self.read)
    }
}
