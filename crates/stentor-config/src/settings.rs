//! The settings of a server: the tables of all of them, and what follows from them.

use std::net::SocketAddr;
use std::path::PathBuf;

use stentor_access::Readers;
use stentor_hub::{CacheControl, ContentType, Keep, Pattern, Rule};
use stentor_io::{Retransmission, TurnAway};
use stentor_wire::lookup::Template;
use stentor_wire::target::TopicName;
use tracing::Level;

use crate::addresses::{CONTROL_DEFAULT, ControlAddress, LISTEN_DEFAULT, ListenAddress};
use crate::file_type::FileType;
use crate::forms::{
    AccessName, Address, AutoOr, HostName, Name, OneOrMany, OrNone, Origin, StorePath, Text,
    TypeOfFiles, UserName,
};
use crate::quantity::{ByteRate, Bytes, Count, DAY, GIB, HOUR, KIB, MIB, Millis};
use crate::setting::settings;
use crate::values::{AccessFormat, AccessTarget, Close, LogFormat, OrAuto};

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod follow;
pub(crate) mod proxies;
pub(crate) mod tls;
pub(crate) mod tokens;

pub use access::Access;
pub use cluster::Cluster;
pub use follow::Follow;
pub use proxies::Proxies;
pub use tls::{PairFiles, Tls};

settings! {
    /// Everything that can be configured, complete and checked.
    #[derive(Clone, Debug)]
    pub struct Settings in Settings() {
        LISTENERS: "" on [] {
            /// Addresses of the public listener: reads only.
            listen: Vec<ListenAddress<SocketAddr>> = vec![LISTEN_DEFAULT.into()],
                listen(restart): OneOrMany<ListenAddress<SocketAddr>>;
            /// Addresses of the control listener: publishing, status and every read.
            control: Vec<ListenAddress<ControlAddress>> =
                vec![ControlAddress::Tcp(CONTROL_DEFAULT).into()],
                control(restart): OneOrMany<ListenAddress<ControlAddress>>;
            /// Names that the control listener goes by, beside its addresses and `localhost`.
            control_hosts: Vec<String> = Vec::new(), control_hosts: OneOrMany<HostName>;
        }
        REDIRECT: "" on [] {
            /// Addresses that only lead to the same by TLS.
            redirect: Vec<SocketAddr> = Vec::new(), redirect(restart): OneOrMany<Address>;
            /// The port that they lead to; 0: that of the first public address with TLS.
            redirect_port: u16 = 0, redirect_port: Count<0, 65_535>;
        }
        PROCESS: "" on [] {
            /// Worker threads of the public listener; control has one more. More than there are
            /// cores is allowed: each brings its own file table, and with it another
            /// `RLIMIT_NOFILE` of connections.
            workers: usize = std::thread::available_parallelism().map_or(1, usize::from),
                workers(restart): Count<1, 4_096>;
            /// Whether each worker is bound to one core.
            pin: bool = false, pin(restart): bool;
            /// Who the server runs as, once it has bound its ports. Not set: as who started it.
            user: Option<String> = None, user(restart): Text<UserName>;
            /// Whether answers carry a `Server` field.
            server_header: bool = true, server_header: bool;
            /// How long a graceful stop waits for the connections to finish.
            drain_ms: u64 = 10_000, drain: Millis<0, HOUR>;
            /// How long a stop is announced by `/-/readyz` while everything goes on.
            drain_announce_ms: u64 = 0, drain_announce: Millis<0, HOUR>;
            /// What a stop has for those who want to connect.
            drain_new: TurnAway = TurnAway::Refuse, drain_new: Text<Name<TurnAway>>;
        }
        MONITOR: "monitor" on [] {
            /// Addresses of the monitor listener: how the server is, and nothing else.
            monitor: Vec<ControlAddress> = Vec::new(), listen(restart): OneOrMany<ControlAddress>;
            /// Whether the public listener answers `/-/healthz` and `/-/readyz` too.
            public_probes: bool = false, public_probes: bool;
        }
    }
    and {
        /// Which addresses speak TLS, and what is shown there.
        tls: Tls = Tls::default();
        /// Proxies in front of the server, and how they name a client.
        proxies: Proxies = Proxies::default();
        /// What is logged, and in which form.
        log: Log = Log::default();
        /// Bounds on what clients may ask for.
        limits: Limits = Limits::default();
        /// How streams are kept alive, and how they end.
        streams: Streams = Streams::default();
        /// Which web pages of other origins may read.
        cors: Cors = Cors::default();
        /// Who may do more than anyone: tokens, and the keys of those who sign them.
        tokens: stentor_access::Settings = stentor_access::Settings::default();
        /// Where messages are stored, to outlive the process.
        store: Store = Store::default();
        /// Whom this server follows.
        follow: Follow = Follow::default();
        /// The broker that keeps the order of several servers.
        cluster: Cluster = Cluster::default();
        /// How topics are kept; the first rule whose pattern matches is used.
        topics: Vec<Rule> = Vec::new();
        /// The content types of messages that come without one, by the patterns of the rules: the
        /// first that matches is used, if it has one.
        content_types: Vec<(Pattern, Option<ContentType>)> = Vec::new();
        /// Who may read and publish.
        access: Access = Access::default();
        /// Routes that answer several values in one request.
        lookups: Vec<Lookup> = Vec::new();
        /// Directories whose files are served; of those that a path is under, the longest answers.
        mounts: Vec<Mount> = Vec::new();
        /// How files are kept in memory.
        files: Files = Files::default();
        /// The one topic that pages of the public listener may write to, if there is one: text, and
        /// a message a second. Only a program that brings such a page sets it: what `serve` reads,
        /// files, variables and flags, cannot.
        guestbook: Option<TopicName<'static>> = None;
        /// Where `/` leads to, if anywhere. Likewise a matter of such a program alone.
        home: Option<&'static str> = None;
    }
}

settings! {
    /// Where messages are stored, to outlive the process.
    #[derive(Clone, Debug)]
    pub struct Store in Settings(store) {
        STORE: "store" on [path] {
            /// The directory. Not set: values end with the process.
            path: Option<PathBuf> = None, path(restart): Text<OrNone<StorePath>>;
            /// What a publisher is promised where no rule of the topic says so.
            keep: Keep = Keep::Synced, keep: Text<Name<Keep>>;
            /// A publisher waits for the disk for so long, and is then told that the outcome is
            /// unknown.
            wait_max_ms: u64 = 5_000, wait_max(restart): Millis<100, HOUR>;
            /// Whether the directory has a store already: a start without one is refused.
            must_exist: bool = false, must_exist(restart): bool;
            /// The length of a segment of the log.
            segment_bytes: OrAuto<usize> = OrAuto::Auto,
                segment_bytes(restart): AutoOr<Bytes<MIB, GIB>>;
            /// A snapshot takes the place of a log that is longer than this.
            log_bytes: OrAuto<usize> = OrAuto::Auto,
                log_bytes(restart): AutoOr<Bytes<{ 4 * MIB }, { 1024 * GIB }>>;
        }
    }
}

settings! {
    /// What is logged, and in which form.
    #[derive(Clone, Debug)]
    pub struct Log in Settings(log) {
        LOG: "log" on [] {
            /// What is less important than that is left out.
            level: Level = Level::INFO, level: Text<Name<Level>>;
            /// The form of a line.
            format: LogFormat = LogFormat::Text, format(restart): Text<Name<LogFormat>>;
            /// Where a line for each answer is written to. Not set: nowhere.
            access: Option<AccessTarget> = None, access(restart): Text<AccessName>;
            /// The form of such a line.
            access_format: AccessFormat = AccessFormat::Combined,
                access_format(restart): Text<Name<AccessFormat>>;
            /// One request of so many is logged there, by chance.
            access_sample: usize = 1, access_sample: Count<1, 1_000_000>;
        }
    }
}

settings! {
    /// Bounds on what clients may ask for, and how long they may take.
    #[derive(Clone, Debug)]
    pub struct Limits in Settings(limits) {
        LIMITS: "limits" on [] {
            /// From the first byte of a request to the end of its head.
            head_timeout_ms: u64 = 10_000, head_timeout: Millis<10, HOUR>;
            /// How long a connection may be silent between two requests. Pages that poll do so
            /// every ten seconds or so: their connection should live on.
            keep_alive_timeout_ms: u64 = 15_000, keep_alive_timeout: Millis<10, DAY>;
            /// How long an answer may wait for a client that does not read.
            write_timeout_ms: u64 = 30_000, write_timeout: Millis<10, DAY>;
            /// The slowest a request body may arrive, in bytes per second; 0 turns the check off.
            body_rate_min: u64 = 256, body_rate_min: ByteRate<0, GIB>;
            /// The largest message, unpacked, in bytes.
            message_bytes_max: usize = 1 << 20, message_bytes_max(restart): Bytes<1, { 256 * MIB }>;
            /// How many topics may exist at once.
            topics_max: usize = 2_000_000, topics_max(restart): Count<1, 1_000_000_000>;
            /// The limit of the memory of topics and messages.
            /// Automatic: two fifths of the memory of the control group or the host, less 64 MiB,
            /// since a live upgrade has two processes, and each holds all topics.
            stored_bytes_max: OrAuto<usize> = OrAuto::Auto,
                stored_bytes_max: AutoOr<Bytes<MIB, { 1024 * 1024 * GIB }>>;
            /// How many names one look-up may ask for.
            names_max: usize = 1_000, names_max: Count<1, 100_000>;
            /// What the readers of one worker may own or keep from being freed, in bytes.
            readers_bytes_max: usize = 128 << 20, readers_bytes_max: Bytes<MIB, { 1024 * GIB }>;
            /// What is kept of the latest entries for followers that are behind, in bytes.
            feed_bytes_max: usize = 64 << 20, feed_bytes_max: Bytes<MIB, { 1024 * GIB }>;
            /// How full memory is, in percent, when idle connections are closed early and nobody is
            /// brought what was missed; 0: never.
            memory_high: u64 = 90, memory_high: Count<0, 100>;
            /// The same for when no connection is let in; 0: never.
            memory_critical: u64 = 95, memory_critical: Count<0, 100>;
            /// How many connections the public listeners hold; 0: as many as the limit of open
            /// files leaves. Each worker takes its share.
            connections_max: usize = 0, connections_max(restart): Count<0, 100_000_000>;
            /// How many of them one address may have: an IPv4 address, or a network of 64 bits of
            /// IPv6. Automatic: half of what the server holds, where loopback is not counted, since
            /// behind a reverse proxy on the same host all connections come from there. A number
            /// counts loopback too; 0: as many as there is room for.
            connections_per_address: OrAuto<u32> = OrAuto::Auto,
                connections_per_address: AutoOr<Count<0, 100_000_000>>;
            /// How a connection ends whose last request was answered.
            close: Close = Close::Graceful, close: Text<Name<Close>>;
        }
        UPGRADE: "upgrade" on [] {
            /// The pause of an upgrade, in which no request is served, ends after this time: the
            /// upgrade is given up if no other process serves by then.
            upgrade_pause_max_ms: u64 = 250, pause_max: Millis<1, 60_000>;
            /// How much of connections may be handed over in the pause, in bytes.
            upgrade_bytes_max: usize = 256 << 20, bytes_max: Bytes<KIB, { 1024 * GIB }>;
        }
    }
}

settings! {
    /// How streams are kept alive, and how they end.
    #[derive(Clone, Debug)]
    pub struct Streams in Settings(streams) {
        STREAMS: "streams" on [] {
            /// How long Server-Sent Events may be silent before a comment is sent; 0: for ever.
            heartbeat_ms: u64 = 15_000, heartbeat: Millis<0, DAY>;
            /// How often WebSockets are pinged; 0: never.
            ping_ms: u64 = 25_000, ping: Millis<0, DAY>;
            /// When a reader whose stream has ended comes back; a random time up to as long is
            /// added.
            retry_ms: u64 = 2_000, retry: Millis<10, HOUR>;
            /// How long a reader may take nothing of what is due to it.
            stall_timeout_ms: u64 = 300_000, stall_timeout: Millis<10, DAY>;
            /// The longest pause before TCP sends again what a reader did not acknowledge; 0: the
            /// kernel's.
            retransmit_max_ms: u64 = 3_000, retransmit_max: Millis<0, 120_000>;
            /// Over what time a graceful stop spreads the ends of streams; half of `drain_ms` at
            /// most.
            drain_spread_ms: u64 = 5_000, drain_spread: Millis<0, HOUR>;
            /// How many topics and patterns one stream may be of.
            topics_max: usize = 1_000, topics_max: Count<1, 100_000>;
            /// Whether patterns may be read on the public listener. Whoever does learns the names
            /// of all topics that match.
            public_patterns: bool = true, public_patterns: bool;
        }
    }
}

settings! {
    /// Cross-origin reads (the CORS protocol of the Fetch standard).
    #[derive(Clone, Debug)]
    pub struct Cors in Settings(cors) {
        CORS: "cors" on [] {
            /// Origins that may read, each as a browser sends it: `https://example.com`. Empty:
            /// none. The single entry `*` allows every page, without credentials.
            origins: Vec<String> = Vec::new(), origins: OneOrMany<Origin>;
            /// Whether pages of the listed origins may send the credentials of the browser, such as
            /// the cookie of a load balancer (`withCredentials`).
            credentials: bool = false, credentials: bool;
        }
    }
}

/// A route that answers several values in one request: `/list=a,b,c`.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// What the path begins with; the names follow it, separated by commas.
    pub path: String,
    /// Which topic a name stands for, such as `/quotes/{name}`.
    pub topics: Template,
    /// One line of the answer, for `{name}` and `{value}`. Without it the answer is JSON.
    pub line: Option<Template>,
    /// Content type of the answer.
    pub content_type: String,
    /// Whether answers say nothing to caches.
    pub leaves_out_cache_control: bool,
}

/// A directory whose files are served where no topic answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What the paths begin with, as they are after percent-decoding: `/` or `/docs/`. It begins
    /// and ends with a slash.
    pub path: String,
    /// The directory; a relative one begins at the working directory of the process.
    pub root: PathBuf,
    /// The file that answers where none is, unless the last segment of the path has a dot. It is
    /// named from the root on, without a leading slash, and never leaves it.
    pub fallback: Option<String>,
    /// Whether a directory without an index is answered with a list of what is in it.
    pub listing: bool,
    /// Whether symbolic links are followed; never out of the root.
    pub symlinks: bool,
    /// The `Cache-Control` of the answers.
    pub cache_control: CacheControl,
    /// The paths of files that never change: browsers keep them without asking again.
    pub immutable: Vec<Pattern>,
    /// Who may read them.
    pub read: Readers,
}

settings! {
    /// How files are kept in memory; together for all mounts and workers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Files in Settings(files) {
        FILES: "files" on [] {
            /// The bytes of files and their compressed forms that are kept; 0: none, all come from
            /// disk.
            cache_bytes_max: usize = 64 << 20, cache_bytes_max: Bytes<0, { 64 * GIB }>;
            /// The largest file that is kept, in bytes. What is larger is sent straight from disk.
            small_bytes_max: usize = 64 << 10, small_bytes_max: Bytes<0, { 16 * MIB }>;
            /// Media types beside those that are known, or in their place.
            types: Vec<FileType> = Vec::new(), types: OneOrMany<TypeOfFiles>;
        }
    }
}

impl Settings {
    /// The content type of a topic's messages that come without one, if its rule names one.
    #[must_use]
    pub fn content_type(&self, topic: &str) -> Option<&ContentType> {
        let of_rule = self.content_types.iter().find(|(pattern, _)| pattern.matches(topic));
        of_rule.and_then(|(_, content_type)| content_type.as_ref())
    }

    /// The rules that the hub goes by. With them a store knows what was promised for any message
    /// it has, whatever the settings say when it is read: where a rule says nothing of it,
    /// `store.keep` is said in the rule, and a rule for all other topics says it of those.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        let keep = self.store.keep;
        let mut rules = self.topics.clone();
        if keep != Keep::Synced {
            rules.push(Rule::default());
            rules.iter_mut().for_each(|rule| rule.keep = rule.keep.or(Some(keep)));
        }
        rules
    }
}

impl Streams {
    /// How TCP treats a reader that acknowledges nothing.
    #[must_use]
    pub fn retransmission(&self) -> Retransmission {
        // The kernel knows no pause below a second.
        let pause_ms_max = match self.retransmit_max_ms {
            0 => 0,
            pause_ms => pause_ms.max(1_000) as u32,
        };
        Retransmission { pause_ms_max, give_up_ms: self.stall_timeout_ms as u32 }
    }
}

impl Mount {
    /// The directory `root` at `path`, with the defaults for the rest. `/docs` and `/docs/` mean
    /// the same.
    #[must_use]
    pub fn new(path: &str, root: impl Into<PathBuf>) -> Mount {
        let slash = if path.ends_with('/') { "" } else { "/" };
        Mount {
            path: format!("{path}{slash}"),
            root: root.into(),
            fallback: None,
            listing: false,
            symlinks: false,
            // Kept, and asked about before each use: a page is never older than its files.
            cache_control: CacheControl::parse("no-cache").expect("it is printable ASCII"),
            immutable: Vec::new(),
            read: Readers::Anyone,
        }
    }
}

impl Cors {
    /// Whether every origin may read.
    #[must_use]
    pub fn allows_any(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    /// Whether some origins may read, and others may not.
    #[must_use]
    pub fn names_origins(&self) -> bool {
        !self.allows_any() && !self.origins.is_empty()
    }

    /// Whether `origin` is one of those that are listed by name.
    #[must_use]
    pub fn lists(&self, origin: &[u8]) -> bool {
        !self.allows_any() && self.origins.iter().any(|listed| listed.as_bytes() == origin)
    }
}

#[cfg(test)]
mod tests;
