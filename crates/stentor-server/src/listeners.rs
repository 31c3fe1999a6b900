//! The kinds of listeners, and what each of them grants.
//!
//! A connection has the number of the listener it came in by. Only this table
//! says what that means, so a new listener is a row.

use stentor_io::Role;

/// Connections of the public listeners: they read, and publish with a token.
pub const PUBLIC: Role = 0;
/// Connections of the control listeners: they publish, and read too.
pub const CONTROL: Role = 1;
/// Connections of the monitor listeners: they get status and metrics, and nothing else.
pub const MONITOR: Role = 2;

/// Connections of the redirect listeners: they get a redirect to TLS, and nothing else.
pub const REDIRECT: Role = 3;

/// The roles by which anyone may come. The public workers serve them.
pub const PUBLIC_ROLES: &[Role] = &[PUBLIC, REDIRECT];

/// A kind of listener, and the rights of its connections.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the table of listeners")]
pub(crate) struct Listener {
    /// Its number.
    pub(crate) role: Role,
    /// The name that operators use.
    pub(crate) name: &'static str,
    /// All that is read there is to be found by TLS.
    pub(crate) redirects: bool,
    /// Values, streams and files are read.
    pub(crate) reads: bool,
    /// Connections read private values too, unless `control_token` says otherwise.
    pub(crate) reads_private: bool,
    /// Messages are published and topics deleted.
    pub(crate) publishes: bool,
    /// The names of all topics are listed, and patterns may always be read.
    pub(crate) operates: bool,
    /// The pages that say how the server is are shown.
    pub(crate) monitors: bool,
    /// Pages of other origins may read, as `[cors]` says.
    pub(crate) has_cors: bool,
    /// It goes by addresses and by names that are listed, and by no other.
    pub(crate) checks_host: bool,
    /// Its connections are counted by their addresses, and bounded.
    pub(crate) counts_addresses: bool,
}

/// All kinds of listeners, each at the place of its number.
pub(crate) static LISTENERS: [Listener; 4] = [
    Listener {
        role: PUBLIC,
        name: "public",
        redirects: false,
        reads: true,
        reads_private: false,
        publishes: false,
        operates: false,
        monitors: false,
        has_cors: true,
        checks_host: false,
        counts_addresses: true,
    },
    Listener {
        role: CONTROL,
        name: "control",
        redirects: false,
        reads: true,
        reads_private: true,
        publishes: true,
        operates: true,
        monitors: true,
        has_cors: false,
        checks_host: true,
        counts_addresses: false,
    },
    Listener {
        role: MONITOR,
        name: "monitor",
        redirects: false,
        reads: false,
        reads_private: false,
        publishes: false,
        operates: false,
        monitors: true,
        has_cors: false,
        // A page under a name that leads here (DNS rebinding) would read status and metrics.
        checks_host: true,
        counts_addresses: false,
    },
    Listener {
        role: REDIRECT,
        name: "redirect",
        redirects: true,
        reads: false,
        reads_private: false,
        publishes: false,
        operates: false,
        monitors: false,
        has_cors: false,
        checks_host: false,
        counts_addresses: true,
    },
];

/// The listener of that number.
pub(crate) fn listener(role: Role) -> &'static Listener {
    &LISTENERS[usize::from(role)]
}
