//! Files: small ones from memory, large ones straight from the disk.
//!
//! A file that is asked for often is a [`CachedFile`]: its head and its body, ready to be sent, in
//! the encodings that clients want. The entries are in a `CachedFiles` that all workers read
//! without a lock. The threads of each mount's [`FileLoader`] fill it: they read what a worker did
//! not find, check what is there, compress and evict.
//!
//! No worker waits for a file system to find a file. A worker that finds no entry, or one that was
//! not checked for a second, has the loader look, and answers when it has ([`FileLook`]). If the
//! file is not worth keeping, the worker then opens it itself ([`OpenFiles`]). The worker reads a
//! small file, and the kernel sends a large one. Descriptors stay on the thread that opened them,
//! since each worker has a file table of its own. The worker waits for a file system that stops
//! answering just then, or while the worker reads a file that is being sent.
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
mod list;
mod loader;
mod look_queue;

pub use cache::Kept;
pub use disk::{OpenFiles, is_whole, read_whole};
pub use entry::{CachedFile, Head, Outline, Tag};
pub use file_cache::{
    FileCache, FileLook, NotAsked, PACKED, cache_control, check_roots, is_worth_keeping, mount_of,
};
pub use list::{DirectoryList, ListRow};
pub use loader::FileLoader;
