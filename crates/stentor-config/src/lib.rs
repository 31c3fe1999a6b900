//! Configuration: what the operator may decide, and where it is read from.
//!
//! Settings come from four sources, each overriding the one before: the defaults, a TOML file, the
//! environment (`STENTOR_…`), and the flags of the command line. The first three are read here; the
//! flags are laid on top by the caller, who then calls [`Settings::validate`] for the rules that
//! concern several settings at once.
//!
//! A mistake is an error, never a guess: an unknown key names the nearest known one, and a value
//! out of range says what the range is, with the line and column to look at. Errors list up to
//! ten mistakes at once. A configuration is either wholly good or refused; nothing is ever half
//! applied.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod access;
mod cluster;
mod document;
mod error;
mod follow;
mod forms;
mod layer;
mod leave_out;
mod proxies;
mod quantity;
mod setting;
mod settings;
mod show;
mod small_file;
mod stored;
mod tls;
mod tokens;

pub use access::Access;
pub use cluster::{BrokerUrl, Cluster, StreamName};
pub use error::{ConfigError, ConfigErrors};
pub use follow::{Follow, ServerUrl};
pub use proxies::{Network, Proxies};
pub use quantity::{parse_duration_ms, parse_period_s, parse_size};
pub use settings::{
    AccessFormat, AccessTarget, Close, ControlAddress, Cors, Files, Immutable, Limits, Log,
    LogFormat, Lookup, Mount, OrAuto, Settings, Store, Streams, parse_address, parse_user,
};
pub use show::token_table;
pub use small_file::read_small;
pub use stentor_access::{Publishers, Readers, TopicAccess, TopicRules};
pub use tls::{ListenAddress, PairFiles, Tls};
pub use tokens::{date_of, parse_moment};
