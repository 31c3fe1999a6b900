//! Static files: what is served, what never is, and what changes on the disk make of it.
//!
//! The section on static files of the list of hazards that this server is held to is a test each,
//! most of them in `safety.rs`; `changes.rs` holds it to serving whole files only, old or new.

mod changes;
mod conditions;
mod fairness;
mod hung;
mod memory;
mod packed;
mod ranges;
mod safety;
mod serving;
mod spoiled;
