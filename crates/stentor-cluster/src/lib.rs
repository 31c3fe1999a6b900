//! A server that is one of several: a broker keeps the order, and every node serves all of it.
//!
//! Workers put what is published into the [`ClusterIntake`] and forget it. One thread has it
//! appended to the broker's log, reads the log, applies to the hub what comes, and has publishers
//! told. `protocol.rs` decides what a node makes of the log, and knows no socket; `nats.rs` reaches
//! the log. Readers notice nothing of it: the hub is the same, and the log gives its numbers.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod codec;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod line;
mod lists;
mod log;
mod nats;
mod protocol;
mod saving;
mod seeds;
#[cfg(test)]
mod simulation;
mod state;
mod waiting;
mod writer;

pub use state::{ClusterState, ClusterThread, check};
pub use waiting::ClusterIntake;
