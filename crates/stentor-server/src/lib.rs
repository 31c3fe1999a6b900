//! The server: workers, connections, routes and endpoints.
//!
//! [`start`] binds every address, starts the workers, each on a thread of its own with its own
//! listeners and file table, and returns a [`Server`], the handle by which the rest of the
//! process publishes, reloads and stops it. What a worker does is in `worker`, one connection in
//! `connection`, the pages in `endpoint`.
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
mod exposition;
mod guard;
mod inspection;
mod keys;
mod labels;
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
mod put_off;
mod report;
mod response;
mod route;
mod server;
mod shared;
mod stats;
mod stream;
mod timers;
mod transport;
mod turns;
mod user;
mod worker;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(any(test, feature = "fuzz"))]
mod simulation;

pub use inspection::{Inspection, inspect};
pub use server::{LogFiles, Predecessor, Server, StartError, start, take_over};
pub use stentor_io::{
    Children, Inherited, Line, Outcome, Outcomes, Waiting, WaitingParent, adopt_orphans,
    ask_process, has_waiting_parent, hold_signals, is_root, parent_process, reap, release_signals,
    send_signal, tell_waiting_parent, unix_s,
};
pub use stentor_order::CommitError;
pub use stentor_tls_layer::ShownCertificate;
