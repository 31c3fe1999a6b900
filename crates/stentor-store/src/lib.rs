//! What outlives the process: changes on their way to the disk, and back at the next start.
//!
//! A change is applied first and written down after. Readers hear of it at once; its publisher is
//! answered when what it was promised holds ([`stentor_hub::Keep`]). That is sound because
//! everything is written in the one order: whatever is on the disk, all that came before it is
//! there too.
//!
//! Workers and the hub only put things into the [`Intake`]. One thread, the [`Writer`], takes them
//! out and waits for the disk; what comes meanwhile is its next batch, without a timer. The
//! [`Watch`] bounds how long publishers wait for it. When
//! the disk fails, changes are refused before they have a number, and nothing else is different.
//!
//! What is not to be stored (`keep = "none"`) needs no disk, and is taken also while there is none.
//! At the next start nothing is left of its topics, not even what was stored of them before their
//! rule said so: it would be older than what readers saw. To know that at any place of the order,
//! changes of rules are stored as well.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod intake;
mod load;
pub mod offline;
mod report;
mod rewrite;
mod watch;
mod writer;

pub use intake::{Ending, Intake, Reading, StoreState};
pub use load::{Loaded, TOO_LARGE, load};
pub use rewrite::Pass;
pub use watch::Watch;
pub use writer::{Ended, Stats, StoreThread, Writer};
