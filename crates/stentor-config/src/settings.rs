//! The settings of a server, and the rules that concern several of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use crate::access::Access;
use crate::cluster::{self, Cluster};
use crate::error::{ConfigError, ConfigErrors};
use crate::follow::{self, Follow};
use crate::forms::{
    AccessName, Address, AutoOr, HostName, Name, OneOrMany, OrNone, Origin, StorePath, Text,
    UserName,
};
use crate::proxies::Proxies;
use crate::quantity::{Bytes, Count, DAY, GIB, HOUR, MIB, Millis, Rate};
use crate::setting::settings;
use crate::tls::{ListenAddress, Tls};
use crate::{document, layer, leave_out, tokens};
use stentor_access::Readers;
use stentor_hub::{CacheControl, ContentType, Keep, Pattern, Rule};
use stentor_io::{Retransmission, SocketName, TurnAway, read_file};
use stentor_wire::lookup::Template;
use stentor_wire::target::TopicName;
use tracing::Level;

settings! {
    /// Everything that can be configured, complete and checked.
    #[derive(Clone, Debug)]
    pub struct Settings in () {
        LISTENERS: "" {
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
        REDIRECT: "" {
            /// Addresses that only lead to the same by TLS.
            redirect: Vec<SocketAddr> = Vec::new(), redirect(restart): OneOrMany<Address>;
            /// The port that they lead to; 0: that of the first public address with TLS.
            redirect_port: u16 = 0, redirect_port: Count<0, 65_535>;
        }
        PROCESS: "" {
            /// Worker threads of the public listener; control has one more. More than there are
            /// cores is allowed: each brings its own file table, and with it another
            /// `RLIMIT_NOFILE` of connections.
            workers: usize = std::thread::available_parallelism().map_or(1, usize::from),
                workers(restart): Count<1, 4_096>;
            /// Whether each worker is bound to one core.
            pin: bool = false, pin(restart): bool;
            /// Who the server runs as, once it has bound its ports. `None`: as who started it.
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
        MONITOR: "monitor" {
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
    pub struct Store in (store) {
        STORE: "store" {
            /// The directory. `None`: values end with the process.
            path: Option<PathBuf> = None, path(restart): Text<OrNone<StorePath>>;
            /// What a publisher is promised where no rule of the topic says so.
            keep: Keep = Keep::Synced, keep: Text<Name<Keep>>;
        }
    }
}

settings! {
    /// What is logged, and in which form.
    #[derive(Clone, Debug)]
    pub struct Log in (log) {
        LOG: "log" {
            /// What is less important than that is left out.
            level: Level = Level::INFO, level: Text<Name<Level>>;
            /// The form of a line.
            format: LogFormat = LogFormat::Text, format(restart): Text<Name<LogFormat>>;
            /// Where a line for each answer is written to. `None`: nowhere.
            access: Option<AccessTarget> = None, access(restart): Text<AccessName>;
            /// The form of such a line.
            access_format: AccessFormat = AccessFormat::Combined,
                access_format(restart): Text<Name<AccessFormat>>;
            /// One request of so many is logged there, by chance.
            access_sample: usize = 1, access_sample: Count<1, 1_000_000>;
        }
    }
}

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessTarget {
    /// To the end of this file.
    File(PathBuf),
    /// To standard output.
    Stdout,
    /// To standard error, between the lines of the log itself.
    Stderr,
}

/// The form of the access log's lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessFormat {
    /// The combined format of NCSA, as nginx writes it.
    #[default]
    Combined,
    /// An object for each line.
    Json,
}

impl fmt::Display for AccessTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessTarget::File(path) => path.display().fmt(f),
            AccessTarget::Stdout => f.write_str("stdout"),
            AccessTarget::Stderr => f.write_str("stderr"),
        }
    }
}

impl AccessFormat {
    /// Its name, as it is configured.
    #[must_use]
    pub fn name(self) -> &'static str {
        Name::of(self)
    }
}

/// Where an access log goes, as people write it: `off`, `stdout`, `stderr` or the path of a file. A
/// name without a slash is a mistake rather than a file in whatever directory this is.
pub(crate) fn parse_access(text: &str) -> Result<Option<AccessTarget>, String> {
    match text {
        "off" => Ok(None),
        "stdout" => Ok(Some(AccessTarget::Stdout)),
        "stderr" => Ok(Some(AccessTarget::Stderr)),
        path if path.contains('/') && !path.ends_with('/') && !path.contains('\0') => {
            Ok(Some(AccessTarget::File(PathBuf::from(path))))
        }
        _ => Err(format!(
            "'{}' is no place for an access log: write 'off', 'stdout', 'stderr', or the path of \
             a file such as /var/log/stentor/access.log",
            text.escape_debug()
        )),
    }
}

/// The form of the log's lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object for each line.
    Json,
}

settings! {
    /// Bounds on what clients may ask for, and how long they may take.
    #[derive(Clone, Debug)]
    pub struct Limits in (limits) {
        LIMITS: "limits" {
            /// From the first byte of a request to the end of its head.
            head_timeout_ms: u64 = 10_000, head_timeout: Millis<10, HOUR>;
            /// How long a connection may be silent between two requests. Pages that poll do so
            /// every ten seconds or so: their connection should live on.
            keep_alive_timeout_ms: u64 = 15_000, keep_alive_timeout: Millis<10, DAY>;
            /// How long an answer may wait for a client that does not read.
            write_timeout_ms: u64 = 30_000, write_timeout: Millis<10, DAY>;
            /// The slowest a request body may arrive, in bytes per second; 0 turns the check off.
            body_rate_min: u64 = 256, body_rate_min: Rate<0, GIB>;
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
    }
}

/// How a connection over TCP ends whose client asked for no more than what it was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// As TCP means it: the kernel remembers the connection for a minute (`TIME_WAIT`).
    Graceful,
    /// With a reset, as soon as the client's kernel has acknowledged the whole answer: both sides
    /// forget the connection at once. Some clients take that for an error.
    Reset,
}

/// The operator configures a value, or leaves it to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrAuto<T> {
    /// The server finds the value.
    Auto,
    /// The operator has set the value.
    Set(T),
}

impl OrAuto<u32> {
    /// How many connections `address` may have at a server that holds `connections_max`. `None`:
    /// it is not counted, and not evicted.
    #[must_use]
    pub fn bound(self, address: IpAddr, connections_max: usize) -> Option<u32> {
        match self {
            OrAuto::Auto if address.to_canonical().is_loopback() => None,
            OrAuto::Auto => Some(u32::try_from(connections_max / 2).unwrap_or(u32::MAX).max(1)),
            OrAuto::Set(0) => Some(u32::MAX),
            OrAuto::Set(count) => Some(count),
        }
    }
}

settings! {
    /// How streams are kept alive, and how they end.
    #[derive(Clone, Debug)]
    pub struct Streams in (streams) {
        STREAMS: "streams" {
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
    pub struct Cors in (cors) {
        CORS: "cors" {
            /// Origins that may read, each as a browser sends it: `https://example.com`. Empty:
            /// none. The single entry `*` allows every page, without credentials.
            origins: Vec<String> = Vec::new(), origins: OneOrMany<Origin>;
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
    /// Which files may be kept for ever.
    pub immutable: Immutable,
    /// Who may read them.
    pub read: Readers,
}

/// Which files never change, and so may be kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immutable {
    /// None.
    Never,
    /// Those whose names surely hold a hash of their content, and below directories that bundlers
    /// write to those whose names do as likely as not.
    Hashed,
    /// Those whose names may hold one: nothing is here that no bundler named.
    Bundled,
}

settings! {
    /// How files are kept in memory; together for all mounts and workers.
    #[derive(Clone, Debug)]
    pub struct Files in (files) {
        FILES: "files" {
            /// The bytes of files and their compressed forms that are kept; 0: none, all come from
            /// disk.
            cache_bytes_max: usize = 64 << 20, cache_bytes_max: Bytes<0, { 64 * GIB }>;
            /// The largest file that is kept, in bytes. What is larger is sent straight from disk.
            small_bytes_max: usize = 64 << 10, small_bytes_max: Bytes<0, { 16 * MIB }>;
        }
    }
}

/// Where a listener for operators is bound: `127.0.0.1:8081` or `unix:/run/stentor.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

/// An address of the public listener as people write it: `0.0.0.0:8080`, `[::1]:8080` or
/// `localhost:8080`.
///
/// # Errors
///
/// What an address looks like, when `text` is none.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let spelled_out = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    spelled_out
        .parse()
        .map_err(|_| format!("'{text}' is not an address: write IP:PORT, such as {LISTEN_DEFAULT}"))
}

/// The name of a user as people write it. Whether there is one is known at the start.
///
/// # Errors
///
/// Why there can be none of that name.
pub fn parse_user(text: &str) -> Result<String, String> {
    let is_of_a_name = |b: u8| b.is_ascii_graphic() && !matches!(b, b':' | b'/');
    if text.is_empty() || !text.bytes().all(is_of_a_name) {
        let shown = text.escape_debug();
        return Err(format!("'{shown}' is not the name of a user: write one such as stentor"));
    }
    Ok(text.to_owned())
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

    /// The defaults, overridden by the file (if one is named) and then by those of `environment`'s
    /// variables that are ours. Rules across settings are checked by [`Settings::validate`], once
    /// the flags are known too.
    ///
    /// # Errors
    ///
    /// The mistakes found, each with its place.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, ConfigErrors> {
        let mut settings = Settings::default();
        let of_file = file.map_or(Ok(()), |path| {
            let name = path.display().to_string();
            let text = read_file(path, usize::MAX)
                .and_then(|bytes| io::read_to_string(&*bytes))
                .map_err(|e| ConfigError::new(&name, format!("cannot be read: {e}")))?;
            document::read(&text, &name, &mut settings)
        });
        let of_environment = layer::from_environment(environment, &mut settings);
        let errors = [of_file, of_environment].into_iter().filter_map(Result::err).flatten();
        ConfigErrors::none_of(errors).map(|()| settings)
    }

    /// The defaults, overridden by a TOML document; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// The mistakes found, each with its line and column.
    pub fn from_toml(text: &str, name: &str) -> Result<Settings, ConfigErrors> {
        let mut settings = Settings::default();
        document::read(text, name, &mut settings)?;
        Ok(settings)
    }

    /// Checks what no single setting can break alone.
    ///
    /// # Errors
    ///
    /// Which settings contradict each other, and why that matters: one mistake of each subject.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        let checks = [
            self.check_listeners(),
            self.check_tls(),
            self.check_proxies(),
            self.check_access(),
            self.check_origins(),
            tokens::check(&self.tokens.tokens),
            follow::check(self),
            cluster::check(self),
            self.check_topics(),
            self.check_paths(),
        ];
        ConfigErrors::none_of(checks.into_iter().filter_map(Result::err))
    }
}

impl Settings {
    fn check_origins(&self) -> Result<(), ConfigError> {
        if self.cors.allows_any() && self.cors.origins.len() > 1 {
            let reason = "'*' already allows every origin: it stands alone";
            return Err(ConfigError::new("cors.origins", reason));
        }
        Ok(())
    }

    fn check_topics(&self) -> Result<(), ConfigError> {
        for rule in &self.topics {
            if let Some(reason) = leave_out::contradiction(rule) {
                let reason = format!("the rule of {}: {reason}", rule.pattern.as_str());
                return Err(ConfigError::new("topics", reason));
            }
        }
        Ok(())
    }

    /// No two routes and no two directories have the same path.
    fn check_paths(&self) -> Result<(), ConfigError> {
        for (i, lookup) in self.lookups.iter().enumerate() {
            if self.lookups[..i].iter().any(|other| other.path == lookup.path) {
                let reason = format!("two routes begin with {}", lookup.path);
                return Err(ConfigError::new("lookup", reason));
            }
        }
        for (i, mount) in self.mounts.iter().enumerate() {
            if self.mounts[..i].iter().any(|other| other.path == mount.path) {
                let reason = format!("two directories are mounted at {}", mount.path);
                return Err(ConfigError::new("static", reason));
            }
        }
        Ok(())
    }

    /// No address may belong to two kinds of listeners, nor be there twice. With `SO_REUSEPORT` the
    /// kernel would not refuse the second one: it would deal the connections out between the two.
    fn check_listeners(&self) -> Result<(), ConfigError> {
        let tcp = |one: &ListenAddress<SocketAddr>| ControlAddress::Tcp(one.address);
        let public: Vec<_> = self.listen.iter().map(tcp).collect();
        let control = self.control.iter().map(|one| one.address.clone()).collect();
        let redirect = self.redirect.iter().map(|&tcp| ControlAddress::Tcp(tcp)).collect();
        let kinds = [
            ("listen", &public),
            ("control", &control),
            ("monitor", &self.monitor),
            ("redirect", &redirect),
        ];
        for (i, (kind, addresses)) in kinds.iter().enumerate() {
            for (at, address) in addresses.iter().enumerate() {
                if addresses[..at].iter().any(|other| other == address && !other.is_any_port()) {
                    return Err(ConfigError::new(kind, format!("{address} is there twice")));
                }
            }
            for (other, others) in &kinds[i + 1..] {
                let mut pairs = addresses.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
                if let Some((address, second)) = pairs.find(|(a, b)| a.overlaps(b)) {
                    let reason = format!(
                        "{address} and {second} overlap: whoever may reach one would reach the \
                         other; give one of them another port"
                    );
                    return Err(ConfigError::new(&format!("{kind} and {other}"), reason));
                }
            }
        }
        Ok(())
    }
}

impl ControlAddress {
    /// The address and port, if it is not a socket file.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ControlAddress::Tcp(address) => Some(*address),
            ControlAddress::Unix(_) => None,
        }
    }

    /// Whether the kernel chooses the port.
    fn is_any_port(&self) -> bool {
        matches!(self, ControlAddress::Tcp(address) if address.port() == 0)
    }

    /// Whether a connection to one could arrive at the other.
    fn overlaps(&self, other: &ControlAddress) -> bool {
        let (ControlAddress::Tcp(a), ControlAddress::Tcp(b)) = (self, other) else {
            return self == other;
        };
        // An IPv4 address is the same host when it is written as an IPv6 one.
        let same_host = a.ip().to_canonical() == b.ip().to_canonical()
            || a.ip().is_unspecified()
            || b.ip().is_unspecified();
        a.port() == b.port() && a.port() != 0 && same_host
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
            immutable: Immutable::Hashed,
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

    /// Whether `origin` is one of those that are listed by name.
    #[must_use]
    pub fn lists(&self, origin: &[u8]) -> bool {
        !self.allows_any() && self.origins.iter().any(|listed| listed.as_bytes() == origin)
    }
}

impl From<&SocketName> for ControlAddress {
    fn from(name: &SocketName) -> ControlAddress {
        match name {
            SocketName::Tcp(address) => ControlAddress::Tcp(*address),
            SocketName::Unix(path) => ControlAddress::Unix(path.clone()),
        }
    }
}

impl FromStr for ControlAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ControlAddress, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            return match parse_address(text) {
                Ok(address) => Ok(ControlAddress::Tcp(address)),
                Err(_) => Err(format!(
                    "'{text}' is not an address: write IP:PORT, such as {CONTROL_DEFAULT}, or \
                     unix:PATH"
                )),
            };
        };
        if path.is_empty() || path.len() > UNIX_PATH_BYTES_MAX || path.contains('\0') {
            return Err(format!(
                "'{text}' is not a socket path: unix: is followed by a path of at most \
                 {UNIX_PATH_BYTES_MAX} bytes"
            ));
        }
        Ok(ControlAddress::Unix(PathBuf::from(path)))
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlAddress::Tcp(address) => address.fmt(f),
            ControlAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
const CONTROL_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// `sun_path` of a socket address holds 108 bytes, the last of them zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

#[cfg(test)]
mod tests;
