//! Entries on a disk: an append-only log, and snapshots with which it may begin anew.
//!
//! Nothing is ever looked up here. What is in the store is in memory as well, so a store has to do
//! two things: to write, in order, as little as possible, with one sync for as many as wait for it;
//! and to be read once, from its beginning to its end, at the next start. A log does that, and
//! keeps what a library of tables cannot say apart: a tail that was never promised to anybody from
//! bytes that have gone bad. No library tells these apart, reserves numbers, or continues after a
//! failed sync. In a test fjall took 4 to 6 times the processor time, and redb served wrong data
//! after one flipped bit in 6 of 20 cases.
//!
//! Here is no thread, no clock and no hub: entries are bytes with numbers, and the disk is a trait
//! ([`stentor_io::Disk`]).
//!
//! ```text
//!   Recovery::open(disk) -> read(visit) -> Recovered -> Store::begin
//!
//!   push, push, ... write     it outlives the process
//!                   sync      it outlives the power
//!   witness                   after a moment of quiet, and when reserved numbers run out
//!   refusal, retry            when the disk fails, and every now and then after that
//!   snapshot_is_due, begin_snapshot, adopt
//!   close                     the next start appends to the same segment
//! ```
//!
//! | what is promised | by |
//! |---|---|
//! | What was synced is there after a power cut, what was written after a kill. | frames, `sync` |
//! | What is there is what was pushed up to some entry, and nothing else. | hashes, `recovery` |
//! | A number that a reader saw is never used again. | numbers reserved in every frame |
//! | A reader who saw what was rolled back can be told so. | lost ranges, in every segment's head |
//! | What was on the disk and has gone bad is told, with its place. | frames, `mark`, `recovery` |
//! | A disk that failed and came back is gone on with. | `retry` |
//! | EPOCH changes only in a repair, in a copy, and at its first start. | `begins_life` |
//!
//! What is asked of whoever uses it:
//!
//! - A number is given out only if it is not above [`Store::reserved`]. Numbers that are given to
//!   nothing that is to be stored are told by [`Store::note`].
//! - Entries are pushed in the order of their numbers. What is refused as [`PushError::Full`] is
//!   kept and pushed again: a store has no holes.
//! - While there is a [`Store::refusal`], no new numbers are given out (507 if it is full, else
//!   503), and [`Store::retry`] is called every second or so.
//! - After 100 ms of quiet, and when half of the reserved numbers are used, [`Store::witness`].
//! - A start goes on behind [`Recovered::last`]; a reader with a cursor in [`Recovered::lost`] is
//!   told of a gap. Before [`Store::has_begun`], which a full disk delays, no reader is shown a
//!   number above [`Recovered::stored`].
//! - A snapshot shows all that was pushed when it began, and nothing that was not pushed when it is
//!   adopted.
//!
//! A store is a directory:
//!
//! | file | holds |
//! |---|---|
//! | `log-N` | a segment: a head, frames, and what was there before |
//! | `snapshot-N` | a head, frames, an end; the segments from `log-N` on belong behind it |
//! | `spare-N`, `log-N.tmp`, `snapshot-N.tmp` | what has its blocks, or not yet its name |
//! | `damaged-…` | what a repair kept aside |
//! | `reserve` | nothing: its room is for a snapshot when the disk is full |
//! | `mark` | up to where the newest segment is on the disk |
//! | `lock` | nothing: whoever has it locked has the store |
//!
//! The fields of a head are in `head.rs`, those of a frame in `frame.rs`; what makes files a store
//! is in `recovery.rs`, how they come about in `store.rs`.

#![forbid(unsafe_code)]

mod damage;
mod frame;
mod handover;
mod head;
mod mark;
mod recovery;
mod repair;
mod settings;
#[cfg(any(test, feature = "sim"))]
mod sim;
mod snapshot;
mod source;
mod store;
mod stream;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;

pub use damage::{Damage, OpenError};
pub use handover::Tip;
pub use recovery::{Piece, Progress, Recovered, Recovery, Visit};
pub use repair::{check, repair};
pub use settings::Settings;
#[cfg(any(test, feature = "sim"))]
pub use sim::{DiskFaults, SimDisk, SimFile, during_syncs};
pub use snapshot::{
    Snapshot, SnapshotWriter, backup, file_of_store, import, open_replaced, replace,
};
pub use store::{PushError, Store};
pub use stream::{
    FeedEncoder, FeedFrame, SnapshotDecoder, SnapshotEncoder, SnapshotHead, read_feed_frame,
};

#[cfg(test)]
mod tests;
