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

mod addresses;
mod arrays;
mod checks;
mod described;
mod document;
mod error;
mod file_type;
mod forms;
mod groups;
mod layer;
mod leave_out;
mod moment;
mod quantity;
mod reference;
mod servers;
mod setting;
mod settings;
mod show;
mod small_file;
mod values;

pub use addresses::{ControlAddress, ListenAddress, Network, parse_address};
pub use described::ValueForm;
pub use error::{ConfigError, ConfigErrors};
pub use file_type::FileType;
pub use moment::{date_of, parse_moment};
pub use quantity::{parse_duration_ms, parse_period_s, parse_size};
pub use reference::{
    KeyReference, SettingReference, TableReference, setting_references, table_references,
};
pub use servers::{BrokerUrl, ServerUrl, StreamName};
pub use settings::{
    Access, Cluster, Cors, Files, Follow, Limits, Log, Lookup, Mount, PairFiles, Proxies, Settings,
    Store, Streams, Tls,
};
pub use show::token_table;
pub use small_file::read_small;
pub use stentor_access::{Publishers, Readers, TopicAccess, TopicRules};
pub use values::{AccessFormat, AccessTarget, Close, LogFormat, OrAuto, parse_user};
