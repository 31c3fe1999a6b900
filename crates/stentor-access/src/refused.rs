//! Why a token is not good: a name to count by, and a sentence for whoever sent it.
//!
//! What the sentence says depends on what was proved before. Whoever holds a token with a good
//! signature may know that it has expired, or is meant for somebody else: the holder can read that
//! in the token, and the owner of the page needs to hear it. About keys, names and algorithms,
//! about which an unsigned token asks, nothing is said: what helps there is in the server's log
//! ([`crate::Keys::why`]).

use std::fmt;
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::labels;

labels! {
    /// Why a token is not good.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Refused {
        /// It is neither a JWT nor a secret made by `stentor token new`.
        Malformed = "malformed",
        /// It is longer than [`crate::TOKEN_BYTES_MAX`].
        TooLarge = "too_large",
        /// It looks like a secret of ours, and is none that is configured.
        UnknownSecret = "unknown_secret",
        /// Its `alg` is `none`, or one that is not allowed, or not the one of the key it names.
        Algorithm = "algorithm",
        /// There is no key of its `kid`; or it names none, and no key can have made it.
        UnknownKey = "unknown_key",
        /// The same, while a document with keys has never been fetched: it may have this key.
        KeyOutstanding = "key_outstanding",
        /// It asks for extensions (`crit`) that are not understood here.
        Critical = "critical",
        /// No key that it could be of has signed it.
        Signature = "signature",
        /// Its claims are not what docs/access.md says they may be, or are there twice.
        Claims = "claims",
        /// It has no `exp`, and is not good without one.
        Endless = "endless",
        /// Its time is over.
        Expired = "expired",
        /// Its time has not come (`nbf`).
        NotYetValid = "not_yet_valid",
        /// It is meant for somebody else (`aud`).
        Audience = "audience",
        /// It is from somebody else (`iss`).
        Issuer = "issuer",
    }
}

impl Refused {
    /// One plain sentence for whoever sent it. It tells a thief nothing but that the token is not
    /// good, and what is written in a token with a good signature.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Refused::Malformed => MALFORMED,
            Refused::TooLarge => "A token must not be longer than 8192 bytes.",
            Refused::UnknownSecret
            | Refused::Algorithm
            | Refused::UnknownKey
            | Refused::Critical
            | Refused::Signature => "The token is not one of those that are good here.",
            Refused::KeyOutstanding => {
                "The keys of an issuer of tokens are not known yet: try again later."
            }
            Refused::Claims => "The token's claims are not what docs/access.md says they may be.",
            Refused::Endless => "The token must say when it expires, by the claim exp.",
            Refused::Expired => "The token has expired.",
            Refused::NotYetValid => "The token is not valid yet.",
            Refused::Audience => "The token is meant for another audience.",
            Refused::Issuer => "The token is from an issuer that is not trusted here.",
        }
    }
}

impl Refused {
    /// The answer to the client that sent the token.
    #[must_use]
    pub fn rejection(self) -> Rejection {
        Rejection::new(self.code(), self.sentence())
    }

    /// The error code. It tells no more than [`Refused::sentence`].
    fn code(self) -> ErrorCode {
        match self {
            Refused::Malformed => ErrorCode::TokenMalformed,
            Refused::TooLarge => ErrorCode::TokenTooLarge,
            Refused::UnknownSecret
            | Refused::Algorithm
            | Refused::UnknownKey
            | Refused::Critical
            | Refused::Signature => ErrorCode::TokenRejected,
            Refused::KeyOutstanding => ErrorCode::IssuerUnavailable,
            Refused::Claims => ErrorCode::TokenClaimsInvalid,
            Refused::Endless => ErrorCode::TokenExpMissing,
            Refused::Expired => ErrorCode::TokenExpired,
            Refused::NotYetValid => ErrorCode::TokenNotYetValid,
            Refused::Audience => ErrorCode::TokenAudienceInvalid,
            Refused::Issuer => ErrorCode::TokenIssuerInvalid,
        }
    }
}

const MALFORMED: &str = "The token is neither a JWT nor one made by `stentor token new`.";

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::label::Label;

    #[test]
    fn names_are_for_labels_and_each_is_counted_by_itself() {
        for (i, refused) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(refused.index(), i);
            assert!(refused.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            let same = Refused::ALL.iter().filter(|other| other.name() == refused.name());
            assert_eq!(same.count(), 1);
            assert!(refused.sentence().ends_with('.'));
        }
    }

    #[test]
    fn each_is_in_the_documentation() {
        let page = include_str!("../../../docs/access.md");
        let mut said = "";
        for refused in Refused::ALL {
            let row = format!("| `{}` | ", refused.name());
            let row = page.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("no row of {}", refused.name()));
            let sentence = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            said = if sentence == "the same" { said } else { sentence };
            assert_eq!(said, refused.sentence());
        }
    }
}
