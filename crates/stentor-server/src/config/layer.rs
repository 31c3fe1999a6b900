//! One source of settings: a TOML document, or the variables of the environment.
//!
//! A layer says nothing about most settings; what it does say overrides the layer below. The
//! structures here are the whole grammar of the configuration: the keys, the types, the ranges.
//! The environment speaks the same grammar: `STENTOR_LIMITS_HEAD_TIMEOUT=5s` is read as the
//! document `[limits]`, `head_timeout = "5s"` would be.
//!
//! The crates figment and config lose line and column of a mistake. The crate confique reads the
//! environment itself, does not see misspelt variables, and takes an empty one for none.

use serde::Deserialize;
use stentor_hub::Rule;
use stentor_io::TurnAway;

use crate::access::rules::{TopicAccess, TopicRules};

use super::cluster::ClusterLayer;
use super::error::nearest;
use super::follow::FollowLayer;
use super::forms::{
    AccessName, Address, AutoOrBytes, AutoOrCount, BoolOrBundled, Caching, Control, CookieName,
    Directory, FilePath, FormatName, HostName, Keeping, LevelName, LineTemplate, Listen,
    LookupField, MediaType, MountPath, OneOrMany, Origin, PublishBy, ReadBy, Repeated, RoutePath,
    StorePath, Tables, Text, TopicPattern, TopicTemplate, UserName, ValueField, VersionName,
    WholePath,
};
use super::leave_out;
use super::proxies::{FieldName, Network};
use super::quantity::{Bytes, Count, DAY, GIB, HOUR, MIB, Millis, YEAR};
use super::tls::{PairLayer, TlsLayer};
use super::tokens::{self, JwtLayer, TokenLayer};
use super::{
    Access, AccessFormat, Close, ConfigError, ConfigErrors, ControlAddress, Lookup, Mount,
    Settings, document,
};

/// Overrides `settings` by the TOML document `text`.
pub(super) fn from_toml(
    text: &str,
    name: &str,
    settings: &mut Settings,
) -> Result<(), ConfigErrors> {
    document::read::<Layer>(text, name)?.apply(settings);
    Ok(())
}

/// Overrides `settings` by the variables that name a setting. A variable that almost does is
/// refused; other names beginning with `STENTOR_` are left alone, for container platforms make up
/// such names by themselves (`STENTOR_SERVICE_HOST`).
pub(super) fn from_environment(
    environment: impl IntoIterator<Item = (String, String)>,
    settings: &mut Settings,
) -> Result<(), ConfigErrors> {
    let mut mistakes = Vec::new();
    let known: Vec<(String, &Path)> = SCALARS.iter().map(|path| (variable(path), path)).collect();
    for (name, text) in environment {
        if !name.starts_with(PREFIX) || FOREIGN.contains(&name.as_str()) {
            continue;
        }
        let Some((_, path)) = known.iter().find(|(variable, _)| *variable == name) else {
            let known = known.iter().map(|(variable, _)| variable.as_str());
            if let Some(meant) = nearest(&name, known) {
                let message = format!("unknown setting; did you mean {meant}?");
                mistakes.push(ConfigError::new(&name, message));
            }
            continue;
        };
        match Layer::deserialize(one_setting(path, &text)) {
            Ok(layer) => layer.apply(settings),
            Err(error) => mistakes.push(ConfigError::new(&name, explain(error.message()))),
        }
    }
    ConfigErrors::none_of(mistakes)
}

/// A setting that has one value: its table (empty for the top level), its key, and whether the
/// value is a list.
pub(super) type Path = (&'static str, &'static str, bool);

/// Every setting but the arrays of tables: what the environment can set.
pub(super) const SCALARS: &[Path] = &[
    ("", "listen", true),
    ("", "control", true),
    ("", "control_hosts", true),
    ("", "control_token", false),
    ("", "control_client_ca", false),
    ("", "tls_cert", false),
    ("", "tls_key", false),
    ("", "tls_min_version", false),
    ("", "tls_ticket_secret", true),
    ("", "redirect", true),
    ("", "redirect_port", false),
    ("", "hsts", false),
    ("", "trusted_proxies", true),
    ("", "client_ip_header", false),
    ("", "workers", false),
    ("", "pin", false),
    ("", "user", false),
    ("", "server_header", false),
    ("", "drain", false),
    ("", "drain_announce", false),
    ("", "drain_new", false),
    ("monitor", "listen", true),
    ("monitor", "public_probes", false),
    ("log", "level", false),
    ("log", "format", false),
    ("log", "access", false),
    ("log", "access_format", false),
    ("log", "access_sample", false),
    ("limits", "head_timeout", false),
    ("limits", "keep_alive_timeout", false),
    ("limits", "write_timeout", false),
    ("limits", "body_rate_min", false),
    ("limits", "message_bytes_max", false),
    ("limits", "topics_max", false),
    ("limits", "stored_bytes_max", false),
    ("limits", "names_max", false),
    ("limits", "readers_bytes_max", false),
    ("limits", "feed_bytes_max", false),
    ("limits", "memory_high", false),
    ("limits", "memory_critical", false),
    ("limits", "connections_max", false),
    ("limits", "connections_per_address", false),
    ("limits", "close", false),
    ("streams", "heartbeat", false),
    ("streams", "ping", false),
    ("streams", "retry", false),
    ("streams", "stall_timeout", false),
    ("streams", "retransmit_max", false),
    ("streams", "drain_spread", false),
    ("streams", "topics_max", false),
    ("streams", "public_patterns", false),
    ("cors", "origins", true),
    ("access", "cookie", false),
    ("jwt", "secret_file", true),
    ("jwt", "public_key_file", true),
    ("jwt", "public_key", true),
    ("jwt", "jwks_file", true),
    ("jwt", "jwks_url", true),
    ("jwt", "jwks_ca_file", false),
    ("jwt", "jwks_refresh", false),
    ("jwt", "audience", true),
    ("jwt", "issuer", true),
    ("jwt", "leeway", false),
    ("jwt", "algorithms", true),
    ("jwt", "require_exp", false),
    ("store", "path", false),
    ("store", "keep", false),
    ("follow", "leader", true),
    ("follow", "token_file", false),
    ("follow", "ca_file", false),
    ("follow", "topics", true),
    ("follow", "stale_max", false),
    ("follow", "publish_url", false),
    ("cluster", "nats", true),
    ("cluster", "stream", false),
    ("cluster", "user", false),
    ("cluster", "password_file", false),
    ("cluster", "token_file", false),
    ("cluster", "creds_file", false),
    ("cluster", "ca_file", false),
    ("cluster", "cert_file", false),
    ("cluster", "key_file", false),
    ("cluster", "peers", true),
    ("cluster", "peer_token_file", false),
    ("cluster", "peer_ca_file", false),
    ("cluster", "replicas", false),
    ("cluster", "keep", false),
    ("cluster", "keep_bytes", false),
    ("cluster", "stale_max", false),
    ("cluster", "save_every", false),
    ("files", "cache_bytes_max", false),
    ("files", "small_bytes_max", false),
];

/// The keys that only `[[static]]` has, for those who write them elsewhere.
pub(super) const MOUNT_KEYS: &[&str] = &["root", "fallback", "listing", "symlinks", "immutable"];

const PREFIX: &str = "STENTOR_";

/// Variables that are no settings: those that commands read, those by which one process of an
/// upgrade finds another, and one that Kubernetes sets where there is a service called stentor.
const FOREIGN: &[&str] = &[
    "STENTOR_CONFIG",
    "STENTOR_ROOT",
    "STENTOR_PORT",
    "STENTOR_TOKEN",
    "STENTOR_HANDOVER",
    "STENTOR_PARENT",
];

/// The name of a setting in the environment.
fn variable((table, key, _): &Path) -> String {
    let table = if table.is_empty() { String::new() } else { format!("{table}_") };
    format!("{PREFIX}{table}{key}").to_ascii_uppercase()
}

/// The document that says `text` for the setting at `path`.
fn one_setting((table, key, is_list): &Path, text: &str) -> toml::Table {
    let value = if *is_list {
        let items = text.split(',').map(|item| item.trim().into());
        toml::Value::Array(items.collect())
    } else if let Ok(flag) = text.parse::<bool>() {
        flag.into()
    } else if let Ok(number) = text.parse::<i64>() {
        number.into()
    } else {
        text.into()
    };
    let inner = toml::Table::from_iter([((*key).to_owned(), value)]);
    match *table {
        "" => inner,
        table => toml::Table::from_iter([(table.to_owned(), inner.into())]),
    }
}

/// The parser's message in the words of this program: names in single quotes, and for an unknown
/// key the nearest known one, or the table it belongs to.
pub(super) fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.replace('`', "'");
    };
    // "unknown field `liten`, expected one of `listen`, `control`": every second piece is a name.
    let mut names = rest.split('`').step_by(2);
    let key = names.next().unwrap_or("");
    let known: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let elsewhere = SCALARS.iter().find(|(_, other, _)| *other == key);
    let hint = match (elsewhere, nearest(key, known.iter().copied())) {
        (Some(("", _, _)), _) => "it belongs at the top, before the first [table]".to_owned(),
        (Some((table, _, _)), _) => format!("it belongs in [{table}]"),
        _ if MOUNT_KEYS.contains(&key) => "it belongs in [[static]]".to_owned(),
        (None, Some(meant)) => format!("did you mean '{meant}'?"),
        (None, None) => format!("known here: {}", known.join(", ")),
    };
    format!("unknown key '{key}'; {hint}")
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Layer {
    listen: Option<OneOrMany<Listen>>,
    control: Option<OneOrMany<Control>>,
    control_hosts: Option<OneOrMany<HostName>>,
    control_token: Option<bool>,
    control_client_ca: Option<Text<WholePath>>,
    tls_cert: Option<Text<WholePath>>,
    tls_key: Option<Text<WholePath>>,
    tls_min_version: Option<Text<VersionName>>,
    tls_ticket_secret: Option<OneOrMany<WholePath>>,
    redirect: Option<OneOrMany<Address>>,
    redirect_port: Option<Count<0, 65_535>>,
    hsts: Option<Millis<0, { 10 * YEAR }>>,
    tls: Option<Tables<PairLayer>>,
    trusted_proxies: Option<OneOrMany<Network>>,
    client_ip_header: Option<Text<FieldName>>,
    workers: Option<Count<1, 4_096>>,
    pin: Option<bool>,
    user: Option<Text<UserName>>,
    server_header: Option<bool>,
    drain: Option<Millis<0, HOUR>>,
    drain_announce: Option<Millis<0, HOUR>>,
    drain_new: Option<NewConnections>,
    monitor: MonitorLayer,
    log: LogLayer,
    limits: LimitsLayer,
    streams: StreamsLayer,
    cors: CorsLayer,
    access: AccessLayer,
    jwt: JwtLayer,
    store: StoreLayer,
    follow: FollowLayer,
    cluster: ClusterLayer,
    files: FilesLayer,
    topics: Option<Tables<RuleLayer>>,
    lookup: Option<Tables<LookupLayer>>,
    token: Option<Tables<TokenLayer>>,
    #[serde(rename = "static")]
    mounts: Option<Tables<MountLayer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum NewConnections {
    Refuse,
    Drop,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct MonitorLayer {
    listen: Option<OneOrMany<ControlAddress>>,
    public_probes: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LogLayer {
    level: Option<Text<LevelName>>,
    format: Option<Text<FormatName>>,
    access: Option<Text<AccessName>>,
    access_format: Option<Text<AccessFormat>>,
    access_sample: Option<Count<1, 1_000_000>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LimitsLayer {
    head_timeout: Option<Millis<10, HOUR>>,
    keep_alive_timeout: Option<Millis<10, DAY>>,
    write_timeout: Option<Millis<10, DAY>>,
    body_rate_min: Option<Bytes<0, GIB>>,
    message_bytes_max: Option<Bytes<1, { 256 * MIB }>>,
    topics_max: Option<Count<1, 1_000_000_000>>,
    stored_bytes_max: Option<AutoOrBytes<MIB, { 1024 * 1024 * GIB }>>,
    names_max: Option<Count<1, 100_000>>,
    readers_bytes_max: Option<Bytes<MIB, { 1024 * GIB }>>,
    feed_bytes_max: Option<Bytes<MIB, { 1024 * GIB }>>,
    memory_high: Option<Count<0, 100>>,
    memory_critical: Option<Count<0, 100>>,
    connections_max: Option<Count<0, 100_000_000>>,
    connections_per_address: Option<AutoOrCount>,
    close: Option<Close>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct StreamsLayer {
    heartbeat: Option<Millis<0, DAY>>,
    ping: Option<Millis<0, DAY>>,
    retry: Option<Millis<10, HOUR>>,
    stall_timeout: Option<Millis<10, DAY>>,
    retransmit_max: Option<Millis<0, 120_000>>,
    drain_spread: Option<Millis<0, HOUR>>,
    topics_max: Option<Count<1, 100_000>>,
    public_patterns: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct CorsLayer {
    origins: Option<OneOrMany<Origin>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct AccessLayer {
    cookie: Option<Text<CookieName>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct StoreLayer {
    path: Option<Text<StorePath>>,
    keep: Option<Text<Keeping>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FilesLayer {
    cache_bytes_max: Option<Bytes<0, { 64 * GIB }>>,
    small_bytes_max: Option<Bytes<0, { 16 * MIB }>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleLayer {
    #[serde(rename = "match")]
    pattern: Text<TopicPattern>,
    history: Option<Count<1, 1_000_000>>,
    history_bytes: Option<Bytes<1, GIB>>,
    cache_control: Option<Text<Caching>>,
    content_type: Option<Text<MediaType>>,
    keep: Option<Text<Keeping>>,
    leave_out: Option<OneOrMany<ValueField>>,
    read: Option<Text<ReadBy>>,
    publish: Option<Text<PublishBy>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupLayer {
    path: Text<RoutePath>,
    topics: Text<TopicTemplate>,
    line: Option<Text<LineTemplate>>,
    content_type: Option<Text<MediaType>>,
    leave_out: Option<OneOrMany<LookupField>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MountLayer {
    path: Option<Text<MountPath>>,
    root: Text<Directory>,
    fallback: Option<Text<FilePath>>,
    listing: Option<bool>,
    symlinks: Option<bool>,
    cache_control: Option<Text<Caching>>,
    immutable: Option<BoolOrBundled>,
    read: Option<Text<ReadBy>>,
}

impl Layer {
    /// Overrides what this layer speaks of.
    fn apply(mut self, settings: &mut Settings) {
        self.apply_listeners(settings);
        set(&mut settings.control_hosts, self.control_hosts, |many| {
            many.0.into_iter().map(|name| name.0).collect()
        });
        self.access.apply(self.control_token, &mut settings.access);
        set(&mut settings.workers, self.workers, |count| to_usize(count.0));
        set(&mut settings.pin, self.pin, |flag| flag);
        set(&mut settings.user, self.user, |name| Some(name.0.0));
        set(&mut settings.server_header, self.server_header, |flag| flag);
        set(&mut settings.drain_ms, self.drain, |time| time.0);
        set(&mut settings.drain_announce_ms, self.drain_announce, |time| time.0);
        set(&mut settings.drain_new, self.drain_new, |how| match how {
            NewConnections::Refuse => TurnAway::Refuse,
            NewConnections::Drop => TurnAway::Drop,
        });
        set(&mut settings.monitor, self.monitor.listen, |many| many.0);
        set(&mut settings.public_probes, self.monitor.public_probes, |flag| flag);
        set(&mut settings.cors.origins, self.cors.origins, |many| {
            many.0.into_iter().map(|origin| origin.0).collect()
        });
        tokens::apply(self.jwt, self.token, &mut settings.tokens);
        set(&mut settings.store.path, self.store.path, |path| path.0.0);
        set(&mut settings.store.keep, self.store.keep, |keep| keep.0.0);
        self.follow.apply(&mut settings.follow);
        self.cluster.apply(&mut settings.cluster);
        if let Some(Tables(rules)) = self.topics {
            let of = |rule: &RuleLayer| {
                let content_type = rule.content_type.as_ref().map(|kind| kind.0.0.clone());
                (rule.pattern.0.0.clone(), content_type)
            };
            settings.content_types = rules.iter().map(of).collect();
            settings.access.topics = TopicRules::new(rules.iter().map(RuleLayer::access));
            settings.topics = rules.into_iter().map(RuleLayer::finish).collect();
        }
        set(&mut settings.lookups, self.lookup, |routes| {
            routes.0.into_iter().map(LookupLayer::finish).collect()
        });
        set(&mut settings.mounts, self.mounts, |mounts| {
            mounts.0.into_iter().map(MountLayer::finish).collect()
        });
        let (log, from) = (&mut settings.log, self.log);
        set(&mut log.level, from.level, |level| level.0.0);
        set(&mut log.format, from.format, |format| format.0.0);
        set(&mut log.access, from.access, |target| target.0.0);
        set(&mut log.access_format, from.access_format, |format| format.0);
        set(&mut log.access_sample, from.access_sample, |count| to_usize(count.0));
        self.limits.apply(&mut settings.limits);
        let (streams, from) = (&mut settings.streams, self.streams);
        set(&mut streams.heartbeat_ms, from.heartbeat, |time| time.0);
        set(&mut streams.ping_ms, from.ping, |time| time.0);
        set(&mut streams.retry_ms, from.retry, |time| time.0);
        set(&mut streams.stall_timeout_ms, from.stall_timeout, |time| time.0);
        set(&mut streams.retransmit_max_ms, from.retransmit_max, |time| time.0);
        set(&mut streams.drain_spread_ms, from.drain_spread, |time| time.0);
        set(&mut streams.topics_max, from.topics_max, |count| to_usize(count.0));
        set(&mut streams.public_patterns, from.public_patterns, |flag| flag);
        let (files, from) = (&mut settings.files, self.files);
        set(&mut files.cache_bytes_max, from.cache_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut files.small_bytes_max, from.small_bytes_max, |bytes| to_usize(bytes.0));
    }
}

impl Layer {
    /// Likewise of the addresses, and of TLS there.
    fn apply_listeners(&mut self, settings: &mut Settings) {
        if let Some(OneOrMany(all)) = self.listen.take() {
            settings.set_listen(&all.into_iter().map(|listen| listen.0).collect::<Vec<_>>());
        }
        if let Some(OneOrMany(all)) = self.control.take() {
            settings.set_control(&all.into_iter().map(|control| control.0).collect::<Vec<_>>());
        }
        set(&mut settings.proxies.trusted, self.trusted_proxies.take(), |many| many.0);
        set(&mut settings.proxies.header, self.client_ip_header.take(), |name| name.0.0);
        set(&mut settings.redirect, self.redirect.take(), |many| {
            many.0.into_iter().map(|address| address.0).collect()
        });
        set(&mut settings.redirect_port, self.redirect_port.take(), |port| {
            u16::try_from(port.0).unwrap_or_default()
        });
        let tls = TlsLayer {
            cert: self.tls_cert.take(),
            key: self.tls_key.take(),
            more: self.tls.take(),
            min_version: self.tls_min_version.take(),
            ticket_secrets: self.tls_ticket_secret.take(),
            control_client_ca: self.control_client_ca.take(),
            hsts_ms: self.hsts.take().map(|time| time.0),
        };
        tls.apply(&mut settings.tls);
    }
}

impl LimitsLayer {
    fn apply(self, limits: &mut super::Limits) {
        set(&mut limits.head_timeout_ms, self.head_timeout, |time| time.0);
        set(&mut limits.keep_alive_timeout_ms, self.keep_alive_timeout, |time| time.0);
        set(&mut limits.write_timeout_ms, self.write_timeout, |time| time.0);
        set(&mut limits.body_rate_min, self.body_rate_min, |bytes| bytes.0);
        set(&mut limits.message_bytes_max, self.message_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut limits.topics_max, self.topics_max, |count| to_usize(count.0));
        set(&mut limits.stored_bytes_max, self.stored_bytes_max, |bytes| bytes.0);
        set(&mut limits.names_max, self.names_max, |count| to_usize(count.0));
        set(&mut limits.readers_bytes_max, self.readers_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut limits.feed_bytes_max, self.feed_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut limits.memory_high, self.memory_high, |percent| percent.0);
        set(&mut limits.memory_critical, self.memory_critical, |percent| percent.0);
        set(&mut limits.connections_max, self.connections_max, |count| to_usize(count.0));
        set(&mut limits.connections_per_address, self.connections_per_address, |many| many.0);
        set(&mut limits.close, self.close, |how| how);
    }
}

pub(super) fn set<S, V>(setting: &mut S, value: Option<V>, convert: impl FnOnce(V) -> S) {
    if let Some(value) = value {
        *setting = convert(value);
    }
}

/// Where a bound is larger than the address space, it is cut to that: there is no more to fill.
fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl AccessLayer {
    fn apply(self, control_token: Option<bool>, access: &mut Access) {
        set(&mut access.control_token, control_token, |flag| flag);
        set(&mut access.cookie, self.cookie, |name| name.0.0);
    }
}

impl RuleLayer {
    fn access(&self) -> TopicAccess {
        TopicAccess {
            pattern: self.pattern.0.0.clone(),
            read: self.read.as_ref().map_or_else(Default::default, |read| read.0.0),
            publish: self.publish.as_ref().map_or_else(Default::default, |publish| publish.0.0),
        }
    }

    fn finish(self) -> Rule {
        let mut rule = Rule::new(self.pattern.0.0);
        set(&mut rule.history, self.history, |count| u32::try_from(count.0).unwrap_or(u32::MAX));
        set(&mut rule.history_bytes, self.history_bytes, |bytes| to_usize(bytes.0));
        set(&mut rule.cache_control, self.cache_control, |value| Some(value.0.0));
        set(&mut rule.keep, self.keep, |keep| Some(keep.0.0));
        set(&mut rule.leave_out, self.leave_out, |fields| {
            leave_out::of_names(fields.0.iter().map(|field| field.0))
        });
        rule
    }
}

impl LookupLayer {
    fn finish(self) -> Lookup {
        let default = if self.line.is_some() { "text/javascript; charset=utf-8" } else { JSON };
        Lookup {
            path: self.path.0.0,
            topics: self.topics.0.0,
            line: self.line.map(|line| line.0.0),
            content_type: self
                .content_type
                .as_ref()
                .map_or(default, |kind| kind.0.0.as_str())
                .to_owned(),
            leaves_out_cache_control: self.leave_out.is_some_and(|fields| {
                leave_out::of_names(fields.0.iter().map(|field| field.0)).cache_control
            }),
        }
    }
}

impl MountLayer {
    fn finish(self) -> Mount {
        let path = self.path.as_ref().map_or("/", |path| &path.0.0);
        let mut mount = Mount::new(path, self.root.0.0);
        mount.fallback = self.fallback.map(|file| file.0.0);
        set(&mut mount.listing, self.listing, |flag| flag);
        set(&mut mount.symlinks, self.symlinks, |flag| flag);
        set(&mut mount.cache_control, self.cache_control, |value| value.0.0);
        set(&mut mount.immutable, self.immutable, |kind| kind.0);
        set(&mut mount.read, self.read, |read| read.0.0);
        mount
    }
}

const JSON: &str = "application/json";

impl Repeated for RuleLayer {
    const NAME: &str = "topics";
}

impl Repeated for LookupLayer {
    const NAME: &str = "lookup";
}

impl Repeated for MountLayer {
    const NAME: &str = "static";
}
