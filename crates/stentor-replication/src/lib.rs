//! Followers: servers that have all of another one, or some of its topics.
//!
//! `sending.rs` is what a leader sends them: snapshots and feeds. `follow.rs` is the other side: a
//! server that follows a leader.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod follow;
mod sending;

pub use follow::{
    FollowState, FollowThread, SnapshotReader, agent, authorization, check, snapshot_of,
};
pub use sending::{
    ChunkSink, FeedCounts, Follower, Next, NotHere, Replication, Transfer, named, put_sign_of_life,
};
