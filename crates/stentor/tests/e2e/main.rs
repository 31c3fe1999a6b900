//! End to end: the real binary on loopback, and real clients.
//!
//! What a unit test or the simulation can show is shown there. Here is what only the whole shows:
//! that the pieces are put together, that the kernel does what the simulator says it does, and
//! that the command line, the log, the signals and the exit codes keep their promises.
//!
//! Each test starts a server of its own on ports the kernel chooses and ends it when it is done,
//! so tests run side by side. Patience is generous and speed is never asserted: a slow machine
//! makes the tests slow, not red.
//!
//! One `mod` per feature; a regression gets a test in the module of its feature, named after its
//! issue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

mod access;
mod access_files;
mod access_log;
mod alerts;
mod bench;
mod blocked_log;
mod bodies;
mod browser;
mod certificates;
mod cluster;
mod commands;
mod connections;
mod contract;
mod control;
mod cost;
mod delivery;
mod demo;
mod draining;
mod elsewhere;
mod encodings;
mod events;
mod files;
mod follow;
mod following;
mod framing;
mod issuers;
mod lifecycle;
mod log;
mod long_poll;
mod lookups;
mod monitor;
mod operators;
mod pages;
mod privileges;
mod proxies;
mod publishing;
mod readers;
mod reading;
mod recipes;
mod resume;
mod secured;
mod side_by_side;
mod slow;
mod sse;
mod statics;
mod stopping;
mod storage;
mod store;
mod supervisors;
mod token;
mod tune;
mod upgrade;
mod websocket;
mod welcome;
