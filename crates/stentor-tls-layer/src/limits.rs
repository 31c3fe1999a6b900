//! Limits of the layer that are no settings, each with its name and its reason.

/// Handshakes of TLS that a worker has answered and that are not done, each with some four
/// kilobytes. Further ones wait. A worker makes about as many in a
/// second, so clients that never finish do not keep others waiting.
pub const HANDSHAKES_MAX: usize = 4_096;

/// Connections whose keys for what they send a worker keeps at hand, with some 700 bytes each:
/// those that ask again and again. For all others two derivations of a microsecond are made.
pub(crate) const CONTEXTS_KEPT: usize = 256;

/// When others wait for its place, a handshake that has taken so long is given up: it ends within
/// some round trips.
pub const HANDSHAKES_GRACE_MS: u64 = 1_000;

/// How long handshakes may take in one turn: for as long as a part of what else there was, but at
/// least so long, which is one of them.
pub(crate) const HANDSHAKES_US: u64 = 100;
pub(crate) const HANDSHAKES_PART: u64 = 4;

/// The usual time of a whole handshake; and the least that a step counts for, since the clock of
/// the simulator stands still during a step.
pub(crate) const HANDSHAKE_US_USUAL: u64 = 120;
pub(crate) const HANDSHAKE_US_LEAST: u64 = 5;

/// How long the opening of records that came together may take in one turn, likewise; of each
/// connection one at least is opened. The worker does not time so few bytes.
pub(crate) const OPENING_US: u64 = 1_000;
pub(crate) const OPENING_PART: u64 = 4;
pub(crate) const OPENING_US_LEAST: u64 = 5;
pub(crate) const UNTIMED_BYTES: usize = 512;

/// Connections that a worker has told why they end, and that are still there. Beyond that the
/// worker closes the oldest at once.
pub const ENDING_MAX: usize = 4_096;

/// The worker keeps so many bytes of the name in a client's certificate.
pub(crate) const CLIENT_BYTES_MAX: usize = 256;

/// The memory of one handshake in progress, roughly.
pub const HANDSHAKE_BYTES: usize = 4 * 1024;

/// The most plaintext of a record of a stream, so that little is kept if the socket takes only a
/// part.
pub const STREAM_RECORD_BYTES_MAX: usize = 4 * 1024;

/// The most plaintext of any other record. About as much is sealed before it is known whether the
/// socket takes it.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// How long a connection that was closed waits for its last record to leave.
pub(crate) const LAST_RECORD_MS: u64 = 10_000;

/// How long a refused connection may continue to send before the server closes it: long enough that
/// the peer reads the reason, RFC 9112 section 9.6.
pub const LINGER_MS: u64 = 2_000;
