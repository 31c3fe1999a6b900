//! One source of settings: a TOML document, or the variables of the environment.
//!
//! A layer says nothing about most settings; what it does say overrides the layer below. The
//! structures here are the whole grammar of the configuration: the keys, the types, the ranges.
//! The environment speaks the same grammar: `STENTOR_LIMITS_HEAD_TIMEOUT=5s` is read as the
//! document `[limits]`, `head_timeout = "5s"` would be.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use stentor_hub::{CacheControl, ContentType, Pattern, Rule};
use stentor_io::TurnAway;
use stentor_wire::lookup::Template;
use stentor_wire::target::check_file;
use tracing::Level;

use super::error::nearest;
use super::quantity::{Bytes, Count, DAY, GIB, HOUR, MIB, Millis};
use super::{
    ConfigError, ControlAddress, Immutable, LogFormat, Lookup, Mount, PerAddress, Settings,
    parse_address, parse_user,
};

/// Overrides `settings` by the TOML document `text`.
pub(super) fn from_toml(
    text: &str,
    name: &str,
    settings: &mut Settings,
) -> Result<(), ConfigError> {
    let layer: Layer = toml::from_str(text).map_err(|error| {
        let message = explain(error.message());
        match error.span() {
            Some(span) => ConfigError::in_document(name, text, span, message),
            None => ConfigError::new(name, message),
        }
    })?;
    layer.apply(settings);
    Ok(())
}

/// Overrides `settings` by the variables that name a setting. A variable that almost does is
/// refused; other names beginning with `STENTOR_` are left alone, for container platforms make up
/// such names by themselves (`STENTOR_SERVICE_HOST`).
pub(super) fn from_environment(
    environment: impl IntoIterator<Item = (String, String)>,
    settings: &mut Settings,
) -> Result<(), ConfigError> {
    let known: Vec<(String, &Path)> = SCALARS.iter().map(|path| (variable(path), path)).collect();
    for (name, text) in environment {
        if !name.starts_with(PREFIX) || FOREIGN.contains(&name.as_str()) {
            continue;
        }
        let Some((_, path)) = known.iter().find(|(variable, _)| *variable == name) else {
            match nearest(&name, known.iter().map(|(variable, _)| variable.as_str())) {
                Some(meant) => {
                    let message = format!("unknown setting; did you mean {meant}?");
                    return Err(ConfigError::new(&name, message));
                }
                None => continue,
            }
        };
        let layer = Layer::deserialize(document(path, &text))
            .map_err(|error| ConfigError::new(&name, explain(error.message())))?;
        layer.apply(settings);
    }
    Ok(())
}

/// A setting that has one value: its table (empty for the top level), its key, and whether the
/// value is a list.
pub(super) type Path = (&'static str, &'static str, bool);

/// Every setting but the arrays of tables: what the environment can set.
pub(super) const SCALARS: &[Path] = &[
    ("", "listen", true),
    ("", "control", true),
    ("", "control_hosts", true),
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
    ("limits", "head_timeout", false),
    ("limits", "keep_alive_timeout", false),
    ("limits", "write_timeout", false),
    ("limits", "body_rate_min", false),
    ("limits", "message_bytes_max", false),
    ("limits", "topics_max", false),
    ("limits", "names_max", false),
    ("limits", "readers_bytes_max", false),
    ("limits", "connections_max", false),
    ("limits", "connections_per_address", false),
    ("streams", "heartbeat", false),
    ("streams", "ping", false),
    ("streams", "retry", false),
    ("streams", "stall_timeout", false),
    ("streams", "drain_spread", false),
    ("streams", "topics_max", false),
    ("streams", "public_patterns", false),
    ("cors", "origins", true),
    ("files", "cache_bytes_max", false),
    ("files", "small_bytes_max", false),
];

/// The keys that only `[[static]]` has, for those who write them elsewhere.
pub(super) const MOUNT_KEYS: &[&str] = &["root", "fallback", "listing", "symlinks", "immutable"];

const PREFIX: &str = "STENTOR_";

/// Variables that are no settings: two that the command line reads, and one that Kubernetes sets
/// where there is a service called stentor.
const FOREIGN: &[&str] = &["STENTOR_CONFIG", "STENTOR_ROOT", "STENTOR_PORT"];

/// The name of a setting in the environment.
fn variable((table, key, _): &Path) -> String {
    let table = if table.is_empty() { String::new() } else { format!("{table}_") };
    format!("{PREFIX}{table}{key}").to_ascii_uppercase()
}

/// The document that says `text` for the setting at `path`.
fn document((table, key, is_list): &Path, text: &str) -> toml::Table {
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
fn explain(message: &str) -> String {
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
    control: Option<OneOrMany<ControlAddress>>,
    control_hosts: Option<OneOrMany<HostName>>,
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
    files: FilesLayer,
    topics: Option<Tables<RuleLayer>>,
    lookup: Option<Tables<LookupLayer>>,
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
    names_max: Option<Count<1, 100_000>>,
    readers_bytes_max: Option<Bytes<MIB, { 1024 * GIB }>>,
    connections_max: Option<Count<0, 100_000_000>>,
    connections_per_address: Option<AutoOrCount>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct StreamsLayer {
    heartbeat: Option<Millis<0, DAY>>,
    ping: Option<Millis<0, DAY>>,
    retry: Option<Millis<10, HOUR>>,
    stall_timeout: Option<Millis<10, DAY>>,
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupLayer {
    path: Text<RoutePath>,
    topics: Text<TopicTemplate>,
    line: Option<Text<LineTemplate>>,
    content_type: Option<Text<MediaType>>,
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
}

impl Layer {
    /// Overrides what this layer speaks of.
    fn apply(self, settings: &mut Settings) {
        set(&mut settings.listen, self.listen, |many| many.0.into_iter().map(|l| l.0).collect());
        set(&mut settings.control, self.control, |many| many.0);
        set(&mut settings.control_hosts, self.control_hosts, |many| {
            many.0.into_iter().map(|name| name.0).collect()
        });
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
        if let Some(Tables(rules)) = self.topics {
            let of = |rule: &RuleLayer| {
                let content_type = rule.content_type.as_ref().map(|kind| kind.0.0.clone());
                (rule.pattern.0.0.clone(), content_type)
            };
            settings.content_types = rules.iter().map(of).collect();
            settings.topics = rules.into_iter().map(RuleLayer::finish).collect();
        }
        set(&mut settings.lookups, self.lookup, |routes| {
            routes.0.into_iter().map(LookupLayer::finish).collect()
        });
        set(&mut settings.mounts, self.mounts, |mounts| {
            mounts.0.into_iter().map(MountLayer::finish).collect()
        });
        set(&mut settings.log.level, self.log.level, |level| level.0.0);
        set(&mut settings.log.format, self.log.format, |format| format.0.0);
        let (limits, from) = (&mut settings.limits, self.limits);
        set(&mut limits.head_timeout_ms, from.head_timeout, |time| time.0);
        set(&mut limits.keep_alive_timeout_ms, from.keep_alive_timeout, |time| time.0);
        set(&mut limits.write_timeout_ms, from.write_timeout, |time| time.0);
        set(&mut limits.body_rate_min, from.body_rate_min, |bytes| bytes.0);
        set(&mut limits.message_bytes_max, from.message_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut limits.topics_max, from.topics_max, |count| to_usize(count.0));
        set(&mut limits.names_max, from.names_max, |count| to_usize(count.0));
        set(&mut limits.readers_bytes_max, from.readers_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut limits.connections_max, from.connections_max, |count| to_usize(count.0));
        set(&mut limits.connections_per_address, from.connections_per_address, |many| many.0);
        let (streams, from) = (&mut settings.streams, self.streams);
        set(&mut streams.heartbeat_ms, from.heartbeat, |time| time.0);
        set(&mut streams.ping_ms, from.ping, |time| time.0);
        set(&mut streams.retry_ms, from.retry, |time| time.0);
        set(&mut streams.stall_timeout_ms, from.stall_timeout, |time| time.0);
        set(&mut streams.drain_spread_ms, from.drain_spread, |time| time.0);
        set(&mut streams.topics_max, from.topics_max, |count| to_usize(count.0));
        set(&mut streams.public_patterns, from.public_patterns, |flag| flag);
        let (files, from) = (&mut settings.files, self.files);
        set(&mut files.cache_bytes_max, from.cache_bytes_max, |bytes| to_usize(bytes.0));
        set(&mut files.small_bytes_max, from.small_bytes_max, |bytes| to_usize(bytes.0));
    }
}

fn set<S, V>(setting: &mut S, value: Option<V>, convert: impl FnOnce(V) -> S) {
    if let Some(value) = value {
        *setting = convert(value);
    }
}

/// Where a bound is larger than the address space, it is cut to that: there is no more to fill.
fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl RuleLayer {
    fn finish(self) -> Rule {
        let mut rule = Rule::new(self.pattern.0.0);
        set(&mut rule.history, self.history, |count| u32::try_from(count.0).unwrap_or(u32::MAX));
        set(&mut rule.history_bytes, self.history_bytes, |bytes| to_usize(bytes.0));
        set(&mut rule.cache_control, self.cache_control, |value| Some(value.0.0));
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
        mount
    }
}

const JSON: &str = "application/json";

/// A value written as text; what is wrong with it is found while its place is still known.
struct Text<T>(T);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_str(TextVisitor(PhantomData)).map(Text)
    }
}

/// Parses inside the visit: only there does the parser know the place of an item of a list.
struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// A list, or a single value that stands for a list of one.
struct OneOrMany<T>(Vec<T>);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(OneOrManyVisitor(PhantomData)).map(OneOrMany)
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err = String>> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of strings")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        text.parse().map(|value| vec![value]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(Text(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values)
    }
}

/// Tables of one kind, each under a header in double brackets.
struct Tables<T>(Vec<T>);

impl<'de, T: Deserialize<'de> + Repeated> Deserialize<'de> for Tables<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(TablesVisitor(PhantomData)).map(Tables)
    }
}

/// A kind of table of which there may be several.
trait Repeated {
    const NAME: &str;
}

impl Repeated for RuleLayer {
    const NAME: &str = "topics";
}

impl Repeated for LookupLayer {
    const NAME: &str = "lookup";
}

impl Repeated for MountLayer {
    const NAME: &str = "static";
}

struct TablesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Repeated> Visitor<'de> for TablesVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tables under [[{}]]", T::NAME)
    }

    /// Single brackets make one table, which cannot be told from all others of its kind.
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Vec<T>, A::Error> {
        let name = T::NAME;
        Err(de::Error::custom(format!(
            "write [[{name}]], in double brackets: there may be several of these tables"
        )))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut tables = Vec::new();
        while let Some(table) = items.next_element()? {
            tables.push(table);
        }
        Ok(tables)
    }
}

/// A number, or "auto".
struct AutoOrCount(PerAddress);

impl<'de> Deserialize<'de> for AutoOrCount {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(AutoOrCountVisitor).map(AutoOrCount)
    }
}

struct AutoOrCountVisitor;

impl Visitor<'_> for AutoOrCountVisitor {
    type Value = PerAddress;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or \"auto\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<PerAddress, E> {
        match u32::try_from(number) {
            Ok(count) if count <= PER_ADDRESS_MAX => Ok(PerAddress::Count(count)),
            _ => Err(E::custom(format!("{number} is out of range: from 0 to {PER_ADDRESS_MAX}"))),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PerAddress, E> {
        match text {
            "auto" => Ok(PerAddress::Auto),
            _ => match text.parse() {
                Ok(number) => self.visit_i64(number),
                Err(_) => Err(E::custom(format!("'{text}' is not a number or \"auto\""))),
            },
        }
    }
}

const PER_ADDRESS_MAX: u32 = 100_000_000;

/// A flag, or "bundled".
struct BoolOrBundled(Immutable);

impl<'de> Deserialize<'de> for BoolOrBundled {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(BoolOrBundledVisitor).map(BoolOrBundled)
    }
}

struct BoolOrBundledVisitor;

impl Visitor<'_> for BoolOrBundledVisitor {
    type Value = Immutable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or \"bundled\"")
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Immutable, E> {
        Ok(if flag { Immutable::Hashed } else { Immutable::Never })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Immutable, E> {
        match text {
            "bundled" => Ok(Immutable::Bundled),
            _ => Err(E::custom(format!("'{text}' is not true, false or \"bundled\""))),
        }
    }
}

/// Declares a kind of text: the type it becomes, and the check that makes it so.
macro_rules! text_kind {
    ($(#[$doc:meta])* $name:ident($inner:ty), $parse:expr) => {
        $(#[$doc])*
        struct $name($inner);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $parse(text).map($name)
            }
        }
    };
}

text_kind!(
    /// An address of the public listener.
    Listen(SocketAddr),
    parse_address
);
text_kind!(
    /// A name that the control listener goes by.
    HostName(String),
    host_name
);
text_kind!(
    /// Who the server runs as.
    UserName(String),
    parse_user
);
text_kind!(
    /// What is logged.
    LevelName(Level),
    level
);
text_kind!(
    /// In which form.
    FormatName(LogFormat),
    log_format
);
text_kind!(
    /// Which topics a rule is for.
    TopicPattern(Pattern),
    Pattern::parse
);
text_kind!(
    /// Which topic a name of a look-up stands for.
    TopicTemplate(Template),
    topic_template
);
text_kind!(
    /// A line of a look-up's answer.
    LineTemplate(Template),
    Template::parse
);
text_kind!(
    /// The beginning of a look-up's path.
    RoutePath(String),
    route_path
);
text_kind!(
    /// What the paths of a directory's files begin with.
    MountPath(String),
    mount_path
);
text_kind!(
    /// A directory with files to serve.
    Directory(PathBuf),
    directory
);
text_kind!(
    /// A file, named from its root on.
    FilePath(String),
    file_path
);
text_kind!(
    /// The Cache-Control of answers.
    Caching(CacheControl),
    |text| CacheControl::parse(text).map_err(str::to_owned)
);
text_kind!(
    /// The content type of a look-up's answers, or of messages.
    MediaType(ContentType),
    |text| ContentType::parse(text).map_err(str::to_owned)
);
text_kind!(
    /// An origin as the `Origin` field of a request spells it (RFC 6454 section 6.2), or `*`.
    Origin(String),
    origin
);

/// A name as the `Host` field has it; a port behind it does not matter.
fn host_name(text: &str) -> Result<String, String> {
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => text,
    };
    let is_of_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if name.is_empty() || !name.bytes().all(is_of_a_name) {
        return Err(format!(
            "'{text}' is not the name of a host: write one such as stentor.internal"
        ));
    }
    Ok(name.to_owned())
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        _ => Err(format!("'{text}' is not a level: write 'error', 'warn', 'info' or 'debug'")),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("'{text}' is not a format: write 'text' or 'json'")),
    }
}

fn topic_template(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    if template.has_value() || !template.has_name() || !text.starts_with('/') {
        return Err(format!(
            "'{text}' is not a topic for a name: it is a path with {{name}} in it"
        ));
    }
    Ok(template)
}

fn route_path(text: &str) -> Result<String, String> {
    let visible = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'%'));
    let reserved = ["/-/", "/.well-known/"].iter().any(|prefix| text.starts_with(prefix));
    if text.len() < 2 || !text.starts_with('/') || !visible || reserved {
        return Err(format!(
            "'{text}' cannot begin a path of its own: write something like '/list=', in visible \
             ASCII without '?', '#' and '%', and not under '/-/' or '/.well-known/'"
        ));
    }
    Ok(text.to_owned())
}

fn mount_path(text: &str) -> Result<String, String> {
    // Escapes are decoded before a directory is looked for: one that is written with them would
    // never be found.
    let foreign = text.contains(['%', '?', '#']);
    if foreign || check_file(text).is_err() {
        return Err(format!(
            "'{}' cannot begin the paths of files: write something like '/docs/', without '%', \
             '?', '#', '\\' and segments that are empty or begin with a dot, and not under '/-/'",
            text.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

fn directory(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("'{}' is not a directory", text.escape_debug()));
    }
    Ok(PathBuf::from(text))
}

fn file_path(text: &str) -> Result<String, String> {
    let path = format!("/{text}");
    if path.ends_with('/') || check_file(&path).is_err() {
        return Err(format!(
            "'{}' is not a file beneath the root: write something like 'index.html', without a \
             leading slash, '\\' and segments that are empty or begin with a dot",
            text.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

fn origin(text: &str) -> Result<String, String> {
    let authority = text.split_once("://").map(|(_, authority)| authority);
    let good = authority.is_some_and(|authority| {
        let outside = |b: u8| matches!(b, b'/' | b'?' | b'#' | b'@' | b'*' | b',');
        !authority.is_empty() && authority.bytes().all(|b| b.is_ascii_graphic() && !outside(b))
    });
    if text == "*" || good {
        return Ok(text.to_owned());
    }
    Err(format!(
        "'{text}' is not an origin: write SCHEME://HOST, such as https://example.com, or *"
    ))
}
