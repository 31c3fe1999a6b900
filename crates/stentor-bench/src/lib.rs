//! The load generator behind `stentor bench`, for any server that speaks HTTP/1.1.
//!
//! A [`plan::Plan`] says what to do, [`run`] does it on threads of its own, and a
//! [`report::Report`] says what came of it; [`compare`] does so for several servers in turn.
//!
//! From the top: `run` directs, phase by phase; `crew` are the threads as one; each thread is a
//! `worker` on the same epoll backend as the server's; `exchange` takes answers apart; `tally` is
//! what was counted. Threads share no lock: they read `orders`, and each writes numbers of its own.
//!
//! Other load generators (oha, k6) hold no million readers on one machine, and none of them finds
//! out whether each reader received each message.
#![forbid(unsafe_code)]

mod compare;
mod crew;
pub mod delivery;
mod exchange;
mod gauge;
pub mod network;
mod orders;
pub mod plan;
pub mod progress;
mod publisher;
mod redact;
pub mod report;
mod request;
mod run;
mod tally;
pub mod target;
mod worker;

pub use compare::compare;
pub use crew::BenchError;
pub use run::run;
