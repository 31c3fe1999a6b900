//! Who may read and publish: what of it is configured beside the tokens themselves.

use crate::forms::{CookieName, Name, Text};
use crate::setting::settings;
use crate::{ConfigError, Mount, Settings};
use stentor_access::{Publishers, Readers, TopicRules};

settings! {
    /// Who may read and publish.
    #[derive(Clone, Debug)]
    pub struct Access in (access) {
        TOKENS: "" {
            /// Whether the control listener asks for a token too: to publish, and to read what is
            /// private.
            control_token: bool = false, control_token: bool;
        }
        COOKIE: "access" {
            /// The name of the cookie that may hold a token. `None`: no cookie does.
            cookie: Option<String> = None, cookie: Text<CookieName>;
        }
    }
    and {
        /// The access rules, by topic.
        topics: TopicRules = TopicRules::default();
    }
}

impl Settings {
    /// Whether something asks for a token.
    #[must_use]
    pub fn asks_for_tokens(&self) -> bool {
        let access = &self.access;
        access.control_token
            || access.topics.has_private()
            || access.topics.takes_tokens()
            || self.mounts.iter().any(Mount::asks_for_token)
    }

    /// Whether a file of this path, which is decoded, would be of a directory that asks for a
    /// token.
    #[must_use]
    pub fn is_private_file(&self, path: &str) -> bool {
        if !self.mounts.iter().any(Mount::asks_for_token) {
            return false;
        }
        let is_under = |mount: &&Mount| {
            path.starts_with(&mount.path) || mount.path.strip_suffix('/') == Some(path)
        };
        let mount = self.mounts.iter().filter(is_under).max_by_key(|mount| mount.path.len());
        mount.is_some_and(Mount::asks_for_token)
    }

    /// Whether there can be a token that is good.
    fn knows_tokens(&self) -> bool {
        let stentor_access::Settings { tokens, jwt } = &self.tokens;
        let files = [&jwt.secret_files, &jwt.public_key_files, &jwt.jwks_files];
        !tokens.is_empty()
            || files.iter().any(|files| !files.is_empty())
            || !jwt.public_keys.is_empty()
            || !jwt.jwks_urls.is_empty()
    }

    /// What asks for tokens must be able to get one.
    pub(crate) fn check_access(&self) -> Result<(), ConfigError> {
        if self.asks_for_tokens() && !self.knows_tokens() {
            let reason = "there is no token, so nobody could read or publish what asks for one: \
                          add a [[token]] (stentor token new) or keys in [jwt]";
            return Err(ConfigError::new("access", reason));
        }
        Ok(())
    }
}

impl Mount {
    /// Whether its files ask for a token.
    #[must_use]
    pub fn asks_for_token(&self) -> bool {
        self.read == Readers::Token
    }

    /// The whole path of the file that answers where none is.
    #[must_use]
    pub fn fallback_name(&self) -> Option<String> {
        self.fallback.as_deref().map(|fallback| format!("{}{fallback}", self.path))
    }
}

/// Who may publish, as it is written. That anyone may is not to be had.
pub(crate) fn publishers(text: &str) -> Result<Publishers, String> {
    if text == "anyone" {
        return Err(
            "'anyone' cannot publish: write 'token', and give a token to those who may, or \
                    'control'"
                .to_owned(),
        );
    }
    text.parse().map(|Name(publishers)| publishers)
}

/// The name of a cookie (RFC 6265 section 4.1.1).
pub(crate) fn cookie(text: &str) -> Result<Option<String>, String> {
    let is_of_a_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !text.bytes().all(is_of_a_name) {
        let shown = text.escape_debug();
        return Err(format!("'{shown}' is not the name of a cookie: write one such as stentor"));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
