//! The server: workers, connections, routes and endpoints.
//!
//! A [`Worker`] serves connections on a thread of its own. All workers share one [`Shared`]; each
//! takes orders from its [`Mailbox`]. `stentor-process` starts and stops them. The code of a
//! connection is in `connection`, that of the pages in `endpoint`.
#![forbid(unsafe_code)]
// A full pipe at standard error would stop the thread that writes: only the log's own may wait.
#![cfg_attr(not(any(test, feature = "fuzz")), deny(clippy::print_stderr, clippy::print_stdout))]

mod access;
mod access_log;
mod addresses;
mod answers;
mod budget;
mod connection;
mod context;
pub mod cost;
mod denials;
mod endpoint;
pub mod event_log;
mod exchange;
mod guard;
mod head;
pub mod keys;
mod labels;
mod large_body;
mod limits;
mod line_writer;
mod listeners;
mod mailbox;
mod memory;
mod metrics;
mod operations;
mod output;
mod panics;
mod paths;
mod phase;
mod pressure;
mod problem;
mod put_off;
mod report;
mod response;
mod route;
mod shared;
mod state;
mod stats;
mod stream;
mod timers;
mod transport;
mod worker;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(any(test, feature = "fuzz"))]
mod simulation;

pub use access_log::AccessLog;
pub use endpoint::client::module as client_module;
pub use guard::Guard;
pub use limits::{RELEASE_AFTER_MS, TOKENS_BYTES_MAX, panics_max};
pub use listeners::{CONTROL, MONITOR, PUBLIC, PUBLIC_ROLES, REDIRECT};
pub use mailbox::{Mailbox, Order};
pub use operations::{Failed, History, Reloaded, Reloads, Upgraded, Upgrades};
pub use shared::{ProcessState, Shared};
pub use stats::{Stats, Totals, pack_histogram, unpack_histogram};
pub use worker::{WORKER_FORMAT, Worker};
