//! A server that is one of several: a broker keeps the order, and every node serves all of it.
//!
//! Workers put what is published into the [`Intake`] and forget it. One thread has it appended to
//! the broker's log, reads the log, applies to the hub what comes, and has publishers told. What a
//! node makes of the log is in `protocol.rs`, which knows no socket; how the log is reached is in
//! `nats.rs`. A reader notices nothing of it: the hub is the same, and its numbers are given by
//! somebody else.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod codec;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod line;
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

pub use state::{ClusterReport, ClusterState, ClusterThread, check};
pub use waiting::Intake;
