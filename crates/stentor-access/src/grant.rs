//! What a good token grants: for as long as somebody uses it, in as few bytes as it takes.
//!
//! A million readers may each have a token that allows something else. So what a token allows, and
//! the key that says so, are one allocation with the texts of its patterns one behind the other,
//! and whoever keeps it has one word of eight bytes: a [`Scope`]. Who holds the token is not kept;
//! that is for the log, which asks for it when it has a line to write
//! ([`Keys::holder`](crate::Keys::holder)), or when the token is gone
//! ([`Keys::holder_by`](crate::Keys::holder_by)).

use std::fmt;
use std::str;

use triomphe::ThinArc;

use crate::keys::KeyId;
use crate::patterns::PatternsRef;
use crate::permissions::Permissions;

/// What a good token grants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// What it allows, and by what key.
    pub scope: Scope,
    /// From when on it is not good any more, in seconds since 1970, leeway included.
    pub expires_unix_s: Option<u64>,
}

impl Grant {
    /// Whether its time is over.
    #[must_use]
    pub fn has_expired(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|expires| now_unix_s >= expires)
    }
}

/// What all tokens have in common that allow the same and are signed with the same key. To clone it
/// is to count it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(ThinArc<KeyId, u8>);

impl Scope {
    /// What a key grants by these permissions.
    #[must_use]
    pub fn new(key: KeyId, permissions: &Permissions) -> Scope {
        let lists = [&permissions.publish, &permissions.read].map(|list| list.borrowed().as_str());
        let text = lists.join(BETWEEN);
        Scope(ThinArc::from_header_and_slice(key, text.as_bytes()))
    }

    /// The key that says so. When it is gone ([`Keys::has`](crate::Keys::has)), nothing is granted
    /// any more.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.0.header.header
    }

    /// Topics that may be published to, and deleted.
    #[must_use]
    pub fn publish(&self) -> PatternsRef<'_> {
        self.lists().0
    }

    /// Topics that may be read, beside those that anyone may.
    #[must_use]
    pub fn read(&self) -> PatternsRef<'_> {
        self.lists().1
    }

    /// Whether `topic` may be published to, or deleted.
    #[must_use]
    pub fn may_publish(&self, topic: &str) -> bool {
        self.publish().matches(topic)
    }

    /// Whether `topic` may be read.
    #[must_use]
    pub fn may_read(&self, topic: &str) -> bool {
        self.read().matches(topic)
    }

    /// Whether both are one: kept once, for all who have it.
    #[must_use]
    pub fn is_shared_with(&self, other: &Scope) -> bool {
        self.0.as_ptr() == other.0.as_ptr()
    }

    /// Whether nobody else has it.
    pub(crate) fn is_alone(&self) -> bool {
        ThinArc::strong_count(&self.0) == 1
    }

    /// What it takes on the heap: a count, a key, a length and the texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        3 * size_of::<u64>() + self.0.slice.len()
    }

    fn lists(&self) -> (PatternsRef<'_>, PatternsRef<'_>) {
        let text = str::from_utf8(&self.0.slice).expect("it was made of text");
        let (publish, read) = text.split_once(BETWEEN).expect("it was made of two lists");
        (PatternsRef::of_list(publish), PatternsRef::of_list(read))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (publish, read) = self.lists();
        write!(f, "publish {publish:?}, read {read:?}, by {:?}", self.key())
    }
}

/// Stands between the lists. No pattern has a control character, and lists have lines only.
const BETWEEN: &str = "\0";

// Whoever keeps one has a word for it, also where there may be none.
const _: () = assert!(size_of::<Option<Scope>>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Patterns;

    #[test]
    fn a_scope_is_its_permissions_and_its_key() {
        let patterns = |texts: &[&str]| Patterns::parse(texts.iter().copied()).unwrap();
        let lists = [patterns(&[]), patterns(&["/a/*"]), patterns(&["/b", "/c/**"])];
        for publish in &lists {
            for read in &lists {
                let permissions = Permissions { publish: publish.clone(), read: read.clone() };
                let key = KeyId::from_number(7);
                let scope = Scope::new(key, &permissions);
                assert_eq!((scope.publish(), scope.read()), (publish.borrowed(), read.borrowed()));
                assert_eq!(scope.key(), key);
                assert_eq!(scope, Scope::new(key, &permissions));
                assert_ne!(scope, Scope::new(KeyId::from_number(8), &permissions));
                let bytes = publish.borrowed().bytes() + read.borrowed().bytes();
                assert_eq!(scope.bytes(), 25 + bytes);
                assert_eq!(scope.may_read("/c/x"), read.borrowed().matches("/c/x"));
                assert_eq!(scope.may_publish("/a/x"), publish.borrowed().matches("/a/x"));
            }
        }
    }
}
