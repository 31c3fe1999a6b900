//! Who holds a token, what it allows, and until when.
//!
//! A token is a secret that was made for one holder ([`StaticToken`]), or a JSON Web Token that
//! somebody with one of the configured keys has signed. [`Keys`] turn it into a [`Grant`], or
//! refuse it; [`Permissions`] are the topics that it covers. What a request or a stream
//! needs is asked of its [`Scope`] alone: that is small, it can be compared, and whoever holds many
//! connections keeps each of them once.
//!
//! Nothing here knows of connections, and nothing reads the clock or a file: `now_unix_s` and a
//! [`ReadFile`] are parameters. Only [`JwksThread`] does anything by itself; it fetches the keys of
//! an issuer over HTTP.
//!
//! ```text
//!   Settings --load--> Keys --verify(token, now)--> Grant { scope, expires }
//!                       |                                       |
//!   JwksThread --Jwks---+   Cache: token -> Grant    scope.may_read(topic), coverage(filter)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `patterns` | [`Patterns`], [`PatternsRef`]: a list of patterns, what it covers of a filter |
//! | `permissions` | [`Permissions`], [`Coverage`]; the claims that become them |
//! | `grant` | [`Grant`], [`Scope`]: what a good token grants, in few bytes |
//! | `keys` | [`Keys`], [`KeyId`]: which tokens are good |
//! | `jwt`, `claims`, `key` | tokens that others sign: how they are read, and by what verified |
//! | `jwks` | [`Jwks`]: the keys of an issuer |
//! | `fetch` | [`JwksThread`], which fetches them |
//! | `secret` | [`StaticToken`], [`Secret`]: tokens of the configuration |
//! | `refused` | [`Refused`]: why a token is not good |
//! | `rules` | [`TopicRules`]: which topics ask for a token |
//! | `cache` | [`Cache`]: tokens that were verified before |
//! | `pack` | grants as bytes, for another process |
//! | `settings` | [`Settings`], [`Jwt`]: what is configured, [`load`] |

#![forbid(unsafe_code)]

mod cache;
mod claims;
mod fetch;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod grant;
mod jwks;
mod jwt;
mod key;
mod keys;
#[cfg(any(test, feature = "mint", feature = "fuzz"))]
pub mod mint;
mod origin;
mod pack;
mod patterns;
mod permissions;
mod refused;
mod rules;
mod secret;
mod settings;

pub use cache::Cache;
pub use fetch::{
    Fetching, JwksDocuments, JwksThread, MakeAgent, fetch_once, jwks_agents, roots_of, tls_of,
};
pub use grant::{Grant, Scope};
pub use jwks::{Fetched, JWKS_BYTES_MAX, Jwks};
pub use jwt::claims_of;
pub use keys::{KeyId, Keys};
pub use patterns::{Coverage, PATTERNS_MAX, Patterns, PatternsRef};
pub use permissions::Permissions;
pub use refused::Refused;
pub use rules::{Publishers, Readers, TopicAccess, TopicRules};
pub use secret::{Secret, StaticToken};
pub use settings::{Algorithm, JwksUrl, Jwt, LoadError, Loaded, OwnKeys, ReadFile, Settings, load};

/// The longest token that is looked at, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
