//! Who may read and publish: what of it is configured beside the tokens themselves.

use stentor_access::{Readers, TopicRules};

use super::{Mount, Settings};
use crate::forms::{CookieName, Text};
use crate::setting::settings;

settings! {
    /// Who may read and publish.
    #[derive(Clone, Debug)]
    pub struct Access in Settings(access) {
        TOKENS: "" on [] {
            /// Whether the control listener asks for a token too: to publish, and to read what is
            /// private.
            control_token: bool = false, control_token: bool;
        }
        COOKIE: "access" on [] {
            /// The name of the cookie that may hold a token. Not set: no cookie does.
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
