//! Files: small ones from memory, large ones straight from the disk.
//!
//! What is asked for often is an [`CachedFile`]: its head and its body, ready to be sent, in the
//! encodings that clients want. The entries are in a `CachedFiles` that all workers read without a
//! lock. A thread of its own, the [`FileLoader`], is the only one that writes to it: it loads what
//! a worker did not find, compresses, evicts, and hears from the kernel what changes on the disk.
//! That one thread does all of it is what makes it right: a directory is watched before a file of
//! it is read, and what happens to the file afterwards is seen to after it was entered.
//!
//! A worker that finds no entry does not wait for one. It opens the file itself ([`OpenFiles`]),
//! reads it if it is small, has the kernel send it if it is large, and tells the loader if it is
//! worth keeping. Descriptors stay on the thread that opened them, since each worker has a file
//! table of its own.
//!
//! No file is served that is half written. While somebody has it open for writing, the entry there
//! is goes on being served, and if there is none, the client is told to come again. `disk.rs` says
//! how that is known. (A large file that is written over while it is being sent is noticed at the
//! next share of it. What of it waits in the socket by then is the page cache's, and changes.)

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod cache;
mod disk;
mod entry;
mod file_cache;
mod loader;

pub use cache::Kept;
pub use disk::{OpenFiles, is_whole, read_whole};
pub use entry::{CachedFile, Head, Outline, Tag};
pub use file_cache::{FileCache, PACKED, cache_control, check_roots, is_worth_keeping, mount_of};
pub use loader::FileLoader;
