//! Limits of workers and connections that are no settings, each with its name and its reason.
//!
//! Limits an operator may change are in [`stentor_config::Limits`]; those of the syntax (head,
//! fields, chunk overhead) are in `stentor_wire::http1`. A limit that only one module knows stands
//! at the bottom of its file.

/// Bytes of answers gathered before they are sent: the burst of a pipelining client leaves in
/// few system calls, and no more than this is ever made before it is known that the peer reads.
pub(crate) const GATHER_BYTES: usize = 64 * 1024;

/// A body this large is sent from the message itself; a smaller one is cheaper to copy next to
/// its head than to name in a second slice.
pub(crate) const SHARE_BYTES_MIN: usize = 8 * 1024;

/// The largest answer put together from many values: unlike a value, it is made for one client
/// alone, and kept for it if it does not read.
pub(crate) const MANY_BYTES_MAX: usize = 1024 * 1024;

/// The size of one part of such an answer, after which other connections have their turn: it takes
/// some 100 µs to make and to send.
pub(crate) const PART_BYTES: usize = GATHER_BYTES;

/// The longest message that a page writes to the guestbook.
pub(crate) const GUESTBOOK_BYTES_MAX: u64 = 300;

/// What one connection may cost a worker before the others have their turn, in the units of
/// `budget.rs`, about a nanosecond each: a byte of a body counts as one, and a request counts too.
pub(crate) const TURN_COST_MAX: usize = 256 * 1024;

/// When the connections of a turn have cost so much together, each of those that follow has a
/// smaller share: some two milliseconds.
pub(crate) const TURN_COST_USUAL: usize = 2 * 1024 * 1024;

/// What those who wait in line for one kind of work may cost a turn, and those who do such work
/// while nobody waits: some tenth of a millisecond, and one step more.
pub(crate) const LINE_COST_PER_TURN: usize = 128 * 1024;

/// The lowest cost of a visit to a connection of a work queue.
pub(crate) const QUEUE_VISIT_COST: usize = 256;

/// Beyond this a worker's connections that hold the most are cut until they hold this part less.
pub(crate) const RELIEF_PART: usize = 8;

/// Nobody who holds less than this is cut for it.
pub(crate) const RELIEF_BYTES_MIN: usize = 4 * 1024;

/// No connection for which the kernel holds less is closed to free TCP memory.
pub(crate) const TCP_RELIEF_BYTES_MIN: usize = if cfg!(test) { 1_000 } else { 16 * 1024 };

/// Connections that the kernel is asked about in one iteration while TCP memory is short: some
/// 300 µs.
pub(crate) const SEARCHED_PER_ITERATION: usize = if cfg!(test) { 64 } else { 1_024 };

/// How long a request waits for the file system, which a healthy one never takes.
pub(crate) const FILE_WAIT_MS: u64 = 5_000;

/// How long a request waits for the check of a file in memory. Then the server sends
/// the file as it is.
pub(crate) const KEPT_FILE_WAIT_MS: u64 = 1_000;

/// How soon all connections are looked at again for those who hold too much, if nobody did.
pub(crate) const RELIEF_PAUSE_MS: u64 = 100;

/// What looking at one name costs of that: some fifty nanoseconds, where copying does four bytes a
/// nanosecond and more.
pub(crate) const NAME_COST: usize = 64;

/// What a byte costs that may have to be inflated: blocks of a dozen bytes each bring tables of
/// their own (RFC 1951 section 3.2.7), and 64 KiB of such take five milliseconds.
pub(crate) const INFLATE_COST: usize = 64;

/// When readers have freed so much, it is given back to the kernel, some time after.
pub(crate) const RELEASE_BYTES_MIN: usize = 8 * 1024 * 1024;
/// How long after that the memory is given back.
pub const RELEASE_AFTER_MS: u64 = 5_000;

/// What one worker leaves to the writer of the access log, in bytes: some 20,000 lines. If the
/// disk or the pipe has stood still for so long, further ones are dropped.
pub(crate) const ACCESS_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The queue of the log, in bytes: some 10,000 lines that standard error has not taken yet.
/// Further ones are dropped.
pub(crate) const EVENT_LOG_BYTES_MAX: usize = 1024 * 1024;

/// How long the writer of the access log rests after it has written: lines gather meanwhile, and
/// no worker has to wake it.
pub(crate) const ACCESS_LOG_REST_MS: u64 = 10;

/// How long a worker sees to deadlines in one turn, at least: some five connections are closed.
pub(crate) const EXPIRIES_US: u64 = 50;

/// Deadlines that may have moved, looked at before it is known that any has come: some fifty
/// microseconds, if none of them is in the processor's cache.
pub(crate) const LOOKS_AT_ONCE: usize = 256;

/// How long a client's kernel may take to acknowledge the last answer before its connection is
/// closed without the reset that was asked for: more than an acknowledgement is ever put off.
pub(crate) const ACKNOWLEDGE_MS: u64 = 100;

/// While draining: how long a connection that asks nothing is kept for a request under way.
pub(crate) const DRAIN_IDLE_MS: u64 = 500;

/// While draining: how long connections that had begun may still come in before the listeners
/// close. More than a second, after which the kernel repeats its part of a handshake.
pub(crate) const DRAIN_ACCEPT_MS: u64 = 1_500;

/// While draining: how long a worker without connections waits for one whose handshake is under
/// way, before it closes its listeners. Longer than a round trip takes as a rule.
pub(crate) const DRAIN_EMPTY_MS: u64 = 200;

/// The longest a long-poll is held, whatever it asks for: proxies think a minute is enough.
pub(crate) const HELD_MS_MAX: u64 = 60_000;

/// How long the readers of a fan-out are visited in one turn before requests have theirs: for as
/// long as requests were served in it, but within these.
pub(crate) const VISITS_US: u64 = 100;
pub(crate) const VISITS_US_MAX: u64 = 1_000;

/// Readers of one topic that are visited before those of another have theirs; and those for whom
/// there turns out to be nothing.
pub(crate) const VISITS_AT_ONCE: usize = 32;
pub(crate) const VISITS_IN_VAIN: usize = 1_024;

/// The longest frame or message taken from a WebSocket that may give commands.
pub(crate) const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// The longest taken from one whose messages mean nothing.
pub(crate) const IGNORED_BYTES_MAX: usize = 4 * 1024;

/// The longest message that is sent back by the echo page.
pub(crate) const ECHO_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Messages a worker is usually told of at once: an estimate that saves growing, not a limit.
pub(crate) const EVENTS_USUAL: usize = 1_024;

/// How long a publisher's stream of lines may be silent.
pub(crate) const BULK_SILENCE_MS: u64 = 60_000;

/// Before the minimum rate of a body counts: what a slow start may take.
pub(crate) const BODY_GRACE_MS: u64 = 10_000;

/// Room for a line of a publisher's stream around its data: names, braces, and escapes, which
/// make a byte of data six at the most.
pub(crate) const BULK_LINE_OVERHEAD_BYTES: usize = 4 * 1024;

/// How many bad lines of a publisher's stream are told of one by one; the rest are counted.
pub(crate) const BULK_ERRORS_TOLD: usize = 100;

/// The most topics one page of `/-/topics` lists.
pub(crate) const TOPICS_PAGE_MAX: usize = 1_000;

/// Connections that are looked at in one turn once rules or keys have changed, whether they may
/// still read what they do; and of these, such as may not, which are told and ended. Together they
/// cost no more than a line does.
pub(crate) const JUDGED_PER_TURN: usize = 1_024;
pub(crate) const EXPELLED_PER_TURN: usize = 64;

/// What the tokens that were verified may take in memory: some 100,000 of the usual length.
pub const TOKENS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// After so many panics a worker is thought to be beyond repair.
#[must_use]
pub fn panics_max() -> u32 {
    if panics_are_tested() { 10 } else { PANICS_MAX }
}

/// Whether a page makes its worker panic: in tests, and not where a fuzzer might find it.
pub(crate) fn panics_are_tested() -> bool {
    cfg!(test) || cfg!(not(feature = "fuzz")) && stentor_io::limits_are_small()
}

const PANICS_MAX: u32 = 1_000;

/// What one connection is sent of a file on the disk before the others have their turn. The
/// simulator's files are small.
pub(crate) const FILE_SHARE_BYTES: usize = if cfg!(test) { 4 * 1024 } else { 1024 * 1024 };

/// Bytes per second that a blocked client takes on average, once its timeout has gone by: what
/// `limits.body_rate_min` asks of a client that sends, and a tenth of the slowest mobile networks.
/// Kestrel asks for 240.
pub(crate) const SEND_RATE_MIN: u64 = 256;

/// Bytes per second of a large step of a blocked client, which earn it more than another timeout.
/// The largest receive buffer of a default kernel has 6 MB. A peer announces half of it at once,
/// and has six minutes for that.
pub(crate) const SEND_STEP_RATE: u64 = 8 * 1024;

/// The most time that a blocked client can earn, in milliseconds. The limit frees the place of a
/// client that has fetched a lot and then stops.
pub(crate) const SEND_TIME_MS_MAX: u64 = 600_000;

/// How often a feed that has nothing to say says so: by that its follower knows that it is alive.
pub(crate) const FEED_SIGN_MS: u64 = 1_000;

/// Topics and patterns that a follower asks for: what is published is compared with each of them.
pub(crate) const COPY_TOPICS_MAX: usize = 100;

/// Followers that a worker sends something to: more of them make a tree.
pub(crate) const FOLLOWERS_MAX: usize = 256;

/// Beyond this a list of a directory ends: like other answers put together for one client alone.
pub(crate) const LISTING_BYTES_MAX: usize = MANY_BYTES_MAX;

/// So many publishers who wait for the disk are worth a sync before the turn is over: while it
/// lasts, the worker sees to the next.
pub(crate) const PROMISES_TOGETHER: usize = if cfg!(test) { 3 } else { 256 };

/// When whoever is accepted has waited for so long, those who begin a stream are to come back later
/// the next time: by as long as they waited, half of it more or less; by a minute at the most.
pub(crate) const OLD_QUEUE_MS: u64 = 1_000;
pub(crate) const QUEUE_AGE_MS_MAX: u64 = 60_000;

/// Connections that are evicted at once for newcomers, at most.
pub(crate) const EVICTED_PER_SCAN: usize = 1_024;

/// How long a worker pauses between two scans for connections to evict: this, and a millisecond for
/// each thousand connections.
pub(crate) const EVICTION_PAUSE_MS: u64 = 50;
pub(crate) const EVICTION_CONNECTIONS_PER_MS: u64 = 1_000;

/// How often a worker whose places are all taken looks whether newcomers wait.
pub(crate) const EVICTION_LOOK_MS: u64 = 100;

/// How long it pauses if no connection could be evicted.
pub(crate) const EVICTION_RETRY_MS: u64 = 1_000;

/// Connections of another process that are counted by their addresses in one turn: for each the
/// kernel is asked.
pub(crate) const RECOUNTED_PER_TURN: usize = if cfg!(test) { 64 } else { 512 };

/// How long a connection may be silent between two requests while memory is short.
pub(crate) const IDLE_MS: u64 = 1_000;

/// Connections that are looked at in one turn for such as are silent, once memory is short.
pub(crate) const SHORTENED_PER_TURN: usize = if cfg!(test) { 64 } else { 1_024 };
