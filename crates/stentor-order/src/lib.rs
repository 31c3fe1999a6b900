//! This crate decides the order of changes, and reports the outcome of each.
//!
//! The hub admits a change and applies it. In between, a [`Sequencer`] commits it. The one in
//! memory is here. Others, a store, a leader or a broker, have crates of their own; to a server
//! each of them is a [`Sequencer`]. [`Committer`] joins the three steps.
//!
//! Two more things follow changes: [`Compressor`] compresses messages away from the workers, and
//! [`ChangeQueue`] queues the changes of a hub for a replication ring or a copy. [`Report`] is what
//! pages show of a store, a leader or a broker.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod change_queue;
mod committer;
mod compressor;
mod exposition;
mod not_ready;
mod report;
mod sequencer;

pub use change_queue::{ChangeQueue, HubChange, QueueCut};
pub use committer::{Applier, Committer};
pub use compressor::{Compressor, Jobs};
pub use exposition::{Kind, Page, Shown, label, labels};
pub use not_ready::NotReady;
pub use report::Report;
pub use sequencer::{
    Commit, CommitError, Due, InMemory, Notifier, OrderKind, Outcome, Outcomes, Promised,
    ReturnAddress, Sequencer, Telling, Ticket,
};
