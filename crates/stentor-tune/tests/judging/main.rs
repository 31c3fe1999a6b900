//! Hosts that are judged: recorded ones, made-up ones, and hosts that were set as wanted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod properties;
mod recorded;
mod wanted;
