//! Limits of the process that are no settings, each with its name and its reason.

/// Numbers of files that connections do not get, besides one for each worker and each mount. The
/// worker needs them for its listeners, for epoll, and for the files that the process had open when
/// the worker took its file table.
pub(crate) const NUMBERS_KEPT: usize = 64;

/// Files that a public worker keeps free of connections, for files that are served.
pub(crate) const FILES_RESERVED: usize = 64;

/// An upgrade waits so long for TLS handshakes under way, in microseconds: a round trip to the far
/// side of the world, with room. Those that take longer are closed.
pub(crate) const HANDSHAKES_US_MAX: u64 = 500_000;
