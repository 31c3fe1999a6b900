//! What a token allows: topics to publish to, and topics to read.

use std::fmt;

use stentor_hub::Filter;

use crate::patterns::{Coverage, Patterns};

/// What a token allows. Equal permissions are equal and hash the same, however they were written,
/// so that whoever has many tokens to deal with keeps each set once.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Permissions {
    /// Topics that it may publish to, and delete.
    pub publish: Patterns,
    /// Topics that it may read, beside those that anyone may.
    pub read: Patterns,
}

impl Permissions {
    /// Whether it may publish to `topic`, or delete it.
    #[must_use]
    pub fn may_publish(&self, topic: &str) -> bool {
        self.publish.matches(topic)
    }

    /// Whether it may read `topic`.
    #[must_use]
    pub fn may_read(&self, topic: &str) -> bool {
        self.read.matches(topic)
    }

    /// How much it may read of a subscription to `filter`. Exact: [`Coverage::Whole`] if and only
    /// if it may read every topic that the filter means, also those to come.
    #[must_use]
    pub fn coverage(&self, filter: &Filter) -> Coverage {
        self.read.coverage(filter)
    }

    /// What they take, themselves included, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Permissions>() + self.publish.bytes() + self.read.bytes()
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "publish {:?}, read {:?}", self.publish, self.read)
    }
}
