//! What a host must be told before it holds many connections.
//!
//! The way from the host to the advice has three steps. [`Facts`] is what the host says of itself:
//! it is read in one place, is plain data, and can be written to a file, so that a host can be
//! judged that is somewhere else. A [`Plan`] is what is asked of it, and [`Need`] what that comes
//! to in memory, files and threads. [`judge`] asks every rule of `rules/` and gives a [`Report`]:
//! what stands in the way, what slows the server down, and which advice of old does not help.
//!
//! Rules are pure functions of the facts and the plan. Everything that touches the host is in
//! `facts` (reading), `probe` (measuring what a socket costs) and `apply` (writing).
#![forbid(unsafe_code)]

mod apply;
mod cards;
mod cpus;
mod facts;
mod finding;
mod install;
mod plan;
mod probe;
mod report;
mod rules;
mod text;

pub use apply::{Applied, apply};
pub use cards::{Card, Interrupt, Queue};
pub use facts::{Cgroup, Cores, Facts, FileLimits, Governor, Memory, Softnet, settings};
pub use finding::{Change, Finding, Setting, Severity};
pub use install::{sysctl_file, systemd_file};
pub use plan::{Kind, Need, Plan};
pub use probe::socket_bytes;
pub use report::Report;
pub use rules::judge;
pub use text::Style;
