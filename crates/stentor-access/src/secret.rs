//! Tokens of the configuration: long random secrets of which only the hash is kept.
//!
//! A secret is 256 random bits, so its SHA-256 needs neither salt nor stretching: there is nothing
//! to guess. What stands in the configuration is of no use to whoever reads it.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::permissions::Permissions;

/// A token that is named in the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticToken {
    /// What the log calls its holder.
    pub name: String,
    /// The SHA-256 of the secret.
    pub sha256: [u8; 32],
    /// What it allows.
    pub permissions: Permissions,
    /// From when on it is not good any more, in seconds since 1970. `None`: it is always good.
    pub expires_unix_s: Option<u64>,
}

/// A new secret. Whoever made it prints it once and forgets it.
pub struct Secret(String);

impl Secret {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers to give.
    pub fn make() -> Result<Secret, String> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
        Ok(Secret(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// What its holder sends.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands in the configuration.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        hash(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 of a secret.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    let digest = digest(&SHA256, secret.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// What secrets begin with: tools that look for secrets in repositories and logs know them by it.
const PREFIX: &str = "stentor_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_do_not_show_themselves() {
        let (one, other) = (Secret::make().unwrap(), Secret::make().unwrap());
        assert_ne!(one.as_str(), other.as_str());
        assert_ne!(one.sha256(), other.sha256());
        assert_eq!(one.as_str().len(), PREFIX.len() + 43);
        assert!(one.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
        assert!(!format!("{one:?}").contains(&one.as_str()[PREFIX.len()..]));
    }

    #[test]
    fn hashes_are_those_of_other_programs() {
        // printf abc | sha256sum
        let hex: String = hash("abc").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
