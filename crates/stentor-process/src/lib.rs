//! The process around the workers: binding, starting, reloading, stopping, handing over.
//!
//! [`start`] binds every address and starts the workers, each on a thread of its own with its own
//! listeners and file table. It returns a [`Server`], by which the rest of the process publishes,
//! reloads and stops. The workers are made concrete here, so this is the crate in
//! which the data path is compiled.
#![forbid(unsafe_code)]
// A full pipe at standard error would stop the thread that writes: only the log's own may wait.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod inspection;
mod limits;
mod server;
mod start_error;
mod user;

pub use inspection::{Inspection, inspect};
pub use server::{BoundListener, LogFiles, Predecessor, Server, start, take_over};
pub use start_error::StartError;
