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
    /// The end of its time, in seconds since 1970. For tokens that others sign,
    /// [`Keys::end_unix_s`](crate::Keys::end_unix_s) adds the leeway.
    pub expires_unix_s: Option<u64>,
}

/// What all tokens have in common that allow the same and are signed with the same key. To clone it
/// is to count it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(ThinArc<KeyId, u8>);

impl Scope {
    /// The scope of a token with these permissions and this origin, which is empty for a static
    /// token.
    pub(crate) fn new(key: KeyId, permissions: &Permissions, origin: &str) -> Scope {
        let [publish, read] =
            [&permissions.publish, &permissions.read].map(|list| list.borrowed().as_str());
        let text = [publish, read, origin].join(BETWEEN);
        Scope(ThinArc::from_header_and_slice(key, text.as_bytes()))
    }

    /// The key that says so. Whether the token still counts is said by
    /// [`Keys::check`](crate::Keys::check).
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.0.header.header
    }

    /// Topics that may be published to, and deleted.
    #[must_use]
    pub fn publish(&self) -> PatternsRef<'_> {
        PatternsRef::of_list(self.parts()[0])
    }

    /// Topics that may be read, beside those that anyone may.
    #[must_use]
    pub fn read(&self) -> PatternsRef<'_> {
        PatternsRef::of_list(self.parts()[1])
    }

    /// The origin of the token, as text; empty for a static token.
    pub(crate) fn origin(&self) -> &str {
        self.parts()[2]
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

    fn parts(&self) -> [&str; 3] {
        let text = str::from_utf8(&self.0.slice).expect("it was made of text");
        let mut parts = text.splitn(3, BETWEEN);
        [(); 3].map(|()| parts.next().expect("it was made of three parts"))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (publish, read) = (self.publish(), self.read());
        write!(f, "publish {publish:?}, read {read:?}, by {:?}", self.key())
    }
}

/// Stands between the parts. No pattern has a control character, and lists have lines only.
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
                let scope = Scope::new(key, &permissions, "");
                assert_eq!((scope.publish(), scope.read()), (publish.borrowed(), read.borrowed()));
                assert_eq!(scope.key(), key);
                assert_eq!(scope, Scope::new(key, &permissions, ""));
                assert_ne!(scope, Scope::new(key, &permissions, "HS256  "));
                assert_ne!(scope, Scope::new(KeyId::from_number(8), &permissions, ""));
                let bytes = publish.borrowed().bytes() + read.borrowed().bytes();
                assert_eq!(scope.bytes(), 26 + bytes);
                assert_eq!(scope.may_read("/c/x"), read.borrowed().matches("/c/x"));
                assert_eq!(scope.may_publish("/a/x"), publish.borrowed().matches("/a/x"));
            }
        }
    }
}
