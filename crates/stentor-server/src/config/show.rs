//! Settings as the document that means them: what `stentor config` prints.
//!
//! Every setting is there. What is at its default stands as a comment, and what is not says what
//! the default would be, so that the output is at once a list of all that can be set, an account
//! of what was set, and a file to begin with: read again, it means the same.

use std::fmt::Write;

use toml::Value;

use crate::access::rules::{Publishers, Readers, TopicAccess};

use super::access;
use super::forms::KEEPS;
use super::layer::SCALARS;
use super::leave_out::{self, CACHE_CONTROL};
use super::quantity::{duration, size};
use super::{Close, Immutable, LogFormat, Lookup, Mount, PerAddress, Settings, Store, StoredBytes};
use super::{cluster, follow, tls, tokens};
use stentor_access::StaticToken;
use stentor_hub::{ContentType, Keep, Rule};
use stentor_io::TurnAway;

impl Settings {
    /// The settings as a TOML document with all of them, those at their defaults as comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let default = Settings::default();
        let mut text = String::from("# What stands as a comment is at its default.\n\n");
        let mut inside = "";
        for (table, key, _) in SCALARS {
            if *table != inside {
                let _ = writeln!(text, "\n[{table}]");
                inside = table;
            }
            let (Some(value), Some(usual)) =
                (self.value_of(table, key), default.value_of(table, key))
            else {
                continue;
            };
            // Writing to a string cannot fail.
            let _ = if value == usual {
                writeln!(text, "# {key} = {value}")
            } else {
                writeln!(text, "{key} = {value}  # default: {usual}")
            };
        }
        let types = self.content_types.iter().map(|(_, content_type)| content_type.as_ref());
        let types = types.chain(std::iter::repeat(None));
        let accesses = self.access.topics.iter().map(Some).chain(std::iter::repeat(None));
        let rules = self.topics.iter().zip(types.zip(accesses));
        array(&mut text, "tls", self.tls.more.iter().map(tls::table));
        array(&mut text, "topics", rules.map(rule));
        array(&mut text, "lookup", self.lookups.iter().map(lookup));
        array(&mut text, "token", self.tokens.tokens.iter().map(tokens::table));
        array(&mut text, "static", self.mounts.iter().map(mount));
        text
    }

    /// The value of a setting as a document would say it.
    fn value_of(&self, table: &str, key: &str) -> Option<Value> {
        let (limits, streams) = (&self.limits, &self.streams);
        Some(match (table, key) {
            ("", "control_hosts") => one_or_many(&self.control_hosts),
            ("", "control_token") => self.access.control_token.into(),
            ("", "workers") => number(self.workers),
            ("", "pin") => self.pin.into(),
            ("", "user") => self.user.clone().unwrap_or_default().into(),
            ("log", "level") => self.log.level.as_str().to_ascii_lowercase().into(),
            ("log", "format") => match self.log.format {
                LogFormat::Text => "text".into(),
                LogFormat::Json => "json".into(),
            },
            ("log", "access") => {
                self.log.access.as_ref().map_or("off".to_owned(), ToString::to_string).into()
            }
            ("log", "access_format") => self.log.access_format.name().into(),
            ("log", "access_sample") => number(self.log.access_sample),
            ("", "server_header") => self.server_header.into(),
            ("", "drain") => duration(self.drain_ms).into(),
            ("", "drain_announce") => duration(self.drain_announce_ms).into(),
            ("", "drain_new") => match self.drain_new {
                TurnAway::Refuse => "refuse".into(),
                TurnAway::Drop => "drop".into(),
            },
            ("monitor", "listen") => one_or_many(&self.monitor),
            ("monitor", "public_probes") => self.public_probes.into(),
            ("limits", "head_timeout") => duration(limits.head_timeout_ms).into(),
            ("limits", "keep_alive_timeout") => duration(limits.keep_alive_timeout_ms).into(),
            ("limits", "write_timeout") => duration(limits.write_timeout_ms).into(),
            ("limits", "body_rate_min") => number(limits.body_rate_min),
            ("limits", "message_bytes_max") => bytes(limits.message_bytes_max),
            ("limits", "topics_max") => number(limits.topics_max),
            ("limits", "stored_bytes_max") => stored_bytes(limits.stored_bytes_max),
            ("limits", "names_max") => number(limits.names_max),
            ("limits", "readers_bytes_max") => bytes(limits.readers_bytes_max),
            ("limits", "feed_bytes_max") => bytes(limits.feed_bytes_max),
            ("limits", "memory_high") => number(limits.memory_high),
            ("limits", "memory_critical") => number(limits.memory_critical),
            ("limits", "connections_max") => number(limits.connections_max),
            ("limits", "connections_per_address") => match limits.connections_per_address {
                PerAddress::Auto => "auto".into(),
                PerAddress::Count(count) => number(count),
            },
            ("limits", "close") => match limits.close {
                Close::Graceful => "graceful".into(),
                Close::Reset => "reset".into(),
            },
            ("streams", "heartbeat") => duration(streams.heartbeat_ms).into(),
            ("streams", "ping") => duration(streams.ping_ms).into(),
            ("streams", "retry") => duration(streams.retry_ms).into(),
            ("streams", "stall_timeout") => duration(streams.stall_timeout_ms).into(),
            ("streams", "retransmit_max") => duration(streams.retransmit_max_ms).into(),
            ("streams", "drain_spread") => duration(streams.drain_spread_ms).into(),
            ("streams", "topics_max") => number(streams.topics_max),
            ("streams", "public_patterns") => streams.public_patterns.into(),
            ("store", key) => return store_value(&self.store, key),
            ("cluster", key) => return cluster::value_of(&self.cluster, key),
            ("follow", key) => return follow::value_of(&self.follow, key),
            ("jwt", key) => return tokens::value_of(&self.tokens.jwt, key),
            ("cors", "origins") => one_or_many(&self.cors.origins),
            ("access", "cookie") => self.access.cookie.clone().unwrap_or_default().into(),
            ("files", "cache_bytes_max") => bytes(self.files.cache_bytes_max),
            ("files", "small_bytes_max") => bytes(self.files.small_bytes_max),
            ("", key) => return tls::value_of(self, key),
            _ => return None,
        })
    }
}

fn stored_bytes(max: StoredBytes) -> Value {
    match max {
        StoredBytes::Auto => "auto".into(),
        StoredBytes::Max(max) => bytes(max),
    }
}

/// The value of a setting under `[store]`.
fn store_value(store: &Store, key: &str) -> Option<Value> {
    Some(match key {
        "path" => {
            store.path.as_ref().map_or_else(String::new, |path| path.display().to_string()).into()
        }
        "keep" => keep_name(store.keep).into(),
        _ => return None,
    })
}

/// The keys of a table in their order.
pub(super) type Table = Vec<(&'static str, Value)>;

/// The lines of a configuration that mean a token.
#[must_use]
pub fn token_table(token: &StaticToken) -> String {
    let mut text = String::new();
    array(&mut text, "token", std::iter::once(tokens::table(token)));
    text
}

fn array(text: &mut String, name: &str, tables: impl Iterator<Item = Table>) {
    for table in tables {
        let _ = writeln!(text, "\n[[{name}]]");
        for (key, value) in table {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
}

fn rule(
    (rule, (content_type, access)): (&Rule, (Option<&ContentType>, Option<&TopicAccess>)),
) -> Table {
    let mut table = vec![
        ("match", rule.pattern.as_str().into()),
        ("history", number(rule.history)),
        ("history_bytes", bytes(rule.history_bytes)),
    ];
    if let Some(value) = &rule.cache_control {
        table.push(("cache_control", value.as_str().into()));
    }
    if let Some(value) = content_type {
        table.push(("content_type", value.as_str().into()));
    }
    if let Some(keep) = rule.keep {
        table.push(("keep", keep_name(keep).into()));
    }
    let left_out = leave_out::names(rule.leave_out);
    if !left_out.is_empty() {
        table.push(("leave_out", one_or_many(&left_out)));
    }
    if let Some(TopicAccess { read, publish, .. }) = access {
        if *read != Readers::default() {
            table.push(("read", access::name_of_readers(*read).into()));
        }
        if *publish != Publishers::default() {
            table.push(("publish", access::name_of_publishers(*publish).into()));
        }
    }
    table
}

fn lookup(lookup: &Lookup) -> Table {
    let mut table = vec![
        ("path", lookup.path.as_str().into()),
        ("topics", lookup.topics.to_string().into()),
        ("content_type", lookup.content_type.as_str().into()),
    ];
    if let Some(line) = &lookup.line {
        table.push(("line", line.to_string().into()));
    }
    if lookup.leaves_out_cache_control {
        table.push(("leave_out", CACHE_CONTROL.into()));
    }
    table
}

fn mount(mount: &Mount) -> Table {
    let mut table = vec![
        ("path", mount.path.as_str().into()),
        ("root", mount.root.display().to_string().into()),
        ("listing", mount.listing.into()),
        ("symlinks", mount.symlinks.into()),
        ("cache_control", mount.cache_control.as_str().into()),
        ("immutable", immutable(mount.immutable)),
    ];
    if mount.read != Readers::default() {
        table.push(("read", access::name_of_readers(mount.read).into()));
    }
    if let Some(file) = &mount.fallback {
        table.push(("fallback", file.as_str().into()));
    }
    table
}

fn keep_name(keep: Keep) -> &'static str {
    KEEPS.iter().find(|(_, other)| *other == keep).map_or("", |(name, _)| name)
}

fn immutable(which: Immutable) -> Value {
    match which {
        Immutable::Never => false.into(),
        Immutable::Hashed => true.into(),
        Immutable::Bundled => "bundled".into(),
    }
}

/// A list; one of a single value is that value, as most people write it.
pub(super) fn one_or_many<T: ToString>(items: &[T]) -> Value {
    match items {
        [one] => one.to_string().into(),
        many => many.iter().map(ToString::to_string).collect::<Vec<_>>().into(),
    }
}

/// Numbers in TOML end at 2^63; no setting comes near.
pub(super) fn number<N: TryInto<i64>>(number: N) -> Value {
    number.try_into().unwrap_or(i64::MAX).into()
}

fn bytes(bytes: usize) -> Value {
    size(u64::try_from(bytes).unwrap_or(u64::MAX)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_printed_and_in_the_reference_with_its_default() {
        let reference = include_str!("../../../../docs/configuration.md");
        let printed = Settings::default().to_toml();
        for (table, key, _) in SCALARS {
            let value = Settings::default().value_of(table, key);
            let value = value.unwrap_or_else(|| panic!("[{table}] {key} has no line in show.rs"));
            assert!(printed.contains(&format!("\n# {key} = {value}\n")), "{key}");
            let dot = if table.is_empty() { "" } else { "." };
            let row = format!("| `{table}{dot}{key}` | ");
            let row = reference.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("no row of {table}{dot}{key}"));
            // How many workers there are depends on the host.
            let default = row.split('|').nth(4).unwrap().trim();
            assert!(*key == "workers" || default.contains(&format!("`{value}`")), "{row}: {value}");
        }
    }

    #[test]
    fn what_is_printed_means_the_same_when_it_is_read() {
        let text = "listen = ['127.0.0.1:80', '[::1]:80']\ncontrol = []\nworkers = 3\ndrain = 90\n\
            control_hosts = 'a.example'\ncontrol_token = true\n[access]\ncookie = 'c'\n\
            [limits]\nconnections_per_address = 7\nmessage_bytes_max = 1000\n\
            [streams]\nping = 0\n[store]\npath = '/s'\nkeep = 'written'\n[cors]\norigins = '*'\n\
            [[topics]]\nmatch = '/a/*'\nhistory = 1\ncache_control = 'max-age=1'\n\
            keep = 'memory'\nleave_out = 'last-modified'\n\
            [[topics]]\nmatch = '/b/*'\nread = 'token'\npublish = 'token'\n\
            [[topics]]\nmatch = '/**'\nleave_out = ['vary', 'last-modified']\n\
            [[lookup]]\npath = '/list='\ntopics = '/a/{name}'\nline = '{{{name}=\"{value}\"\\n'\n\
            [[lookup]]\npath = '/json='\ntopics = '/a/{name}'\n\
            leave_out = 'cache-control'\n\
            [[static]]\nread = 'token'\n\
            root = '/srv/\"www\"'\nfallback = 'index.html'\nimmutable = false\n";
        let settings = Settings::from_toml(text, "f").unwrap();
        let printed = settings.to_toml();
        for expected in [
            "\nlisten = [\"127.0.0.1:80\", \"[::1]:80\"]  # default: \"0.0.0.0:8080\"\n",
            "\ncontrol = []  # default: \"127.0.0.1:8081\"\n",
            "\ndrain = \"90s\"  # default: \"10s\"\n",
            "\n# head_timeout = \"10s\"\n",
            "\nmessage_bytes_max = \"1000 B\"  # default: \"1 MiB\"\n",
            "\nping = \"0ms\"  # default: \"25s\"\n",
        ] {
            assert!(printed.contains(expected), "{expected}{printed}");
        }
        let read = Settings::from_toml(&printed, "printed").unwrap();
        assert_eq!(format!("{read:?}"), format!("{settings:?}"));
    }
}
