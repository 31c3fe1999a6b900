//! Settings as the document that means them: what `stentor config` prints.
//!
//! Every setting is there. What is at its default stands as a comment, and what is not says what
//! the default would be, so that the output is at once a list of all that can be set, an account
//! of what was set, and a file to begin with: read again, it means the same.

use std::fmt::Write;
use std::path::PathBuf;

use data_encoding::HEXLOWER_PERMISSIVE;
use toml::Value;

use stentor_access::{Publishers, Readers, StaticToken, TopicAccess};
use stentor_hub::{ContentType, Pattern, Rule};

use crate::forms::{Name, one_or_many};
use crate::groups;
use crate::leave_out::{self, CACHE_CONTROL};
use crate::moment::date_of;
use crate::quantity::{number, size};
use crate::settings::{Lookup, Mount, PairFiles, Settings};

impl Settings {
    /// The settings as a TOML document with all of them, those at their defaults as comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let default = Settings::default();
        let mut text = String::from("# What stands as a comment is at its default.\n\n");
        let mut inside = "";
        for setting in groups::all() {
            let (table, key) = (setting.table, setting.key);
            if table != inside {
                let _ = writeln!(text, "\n[{table}]");
                inside = table;
            }
            let (value, usual) = ((setting.show)(self), (setting.show)(&default));
            // Writing to a string cannot fail.
            let _ = if value == usual {
                writeln!(text, "# {key} = {value}")
            } else {
                writeln!(text, "{key} = {value}  # default: {usual}")
            };
        }
        for (name, tables) in self.arrays() {
            array(&mut text, name, tables);
        }
        text
    }

    /// The settings as a document with all of them. More pairs of certificates and keys stand in
    /// the table of the first.
    #[must_use]
    pub fn to_document(&self) -> toml::Table {
        let mut document = toml::Table::new();
        for setting in groups::all() {
            let value = (setting.show)(self);
            let within = match setting.table {
                "" => &mut document,
                table => nested(&mut document, table),
            };
            within.insert(setting.key.to_owned(), value);
        }
        for (name, tables) in self.arrays() {
            let own = |table: Table| table.into_iter().map(|(key, value)| (key.to_owned(), value));
            let tables = tables.into_iter().map(|table| Value::Table(own(table).collect()));
            let tables = Value::Array(tables.collect());
            match document.get_mut(name) {
                Some(Value::Table(table)) => table.insert("more".to_owned(), tables),
                _ => document.insert(name.to_owned(), tables),
            };
        }
        document
    }

    /// The arrays of tables, by their names.
    fn arrays(&self) -> [(&'static str, Vec<Table>); 5] {
        let types = self.content_types.iter().map(|(_, content_type)| content_type.as_ref());
        let types = types.chain(std::iter::repeat(None));
        let accesses = self.access.topics.iter().map(Some).chain(std::iter::repeat(None));
        let rules = self.topics.iter().zip(types.zip(accesses));
        [
            ("tls", self.tls.more.iter().map(pair).collect()),
            ("topics", rules.map(rule).collect()),
            ("lookup", self.lookups.iter().map(lookup).collect()),
            ("token", self.tokens.tokens.iter().map(token_keys).collect()),
            ("static", self.mounts.iter().map(mount).collect()),
        ]
    }
}

/// The table of that name, whose parts have dots between them.
fn nested<'a>(document: &'a mut toml::Table, name: &str) -> &'a mut toml::Table {
    name.split('.').fold(document, |within, part| {
        let entry = within.entry(part).or_insert_with(|| Value::Table(toml::Table::new()));
        entry.as_table_mut().expect("no setting has the name of a table")
    })
}

/// The keys of a table in their order.
type Table = Vec<(&'static str, Value)>;

/// The lines of a configuration that mean a token.
#[must_use]
pub fn token_table(token: &StaticToken) -> String {
    let mut text = String::new();
    array(&mut text, "token", std::iter::once(token_keys(token)));
    text
}

fn array(text: &mut String, name: &str, tables: impl IntoIterator<Item = Table>) {
    for table in tables {
        let _ = writeln!(text, "\n[[{name}]]");
        for (key, value) in table {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
}

/// A pair of files as a table.
fn pair(pair: &PairFiles) -> Table {
    let path = |path: &PathBuf| path.display().to_string().into();
    vec![("cert", path(&pair.certificate)), ("key", path(&pair.key))]
}

/// A token as a document would say it.
fn token_keys(token: &StaticToken) -> Table {
    let hex = HEXLOWER_PERMISSIVE.encode(&token.sha256);
    let mut table = vec![("name", token.name.as_str().into()), ("sha256", hex.into())];
    let lists = [("publish", &token.permissions.publish), ("read", &token.permissions.read)];
    for (key, patterns) in lists {
        if !patterns.is_empty() {
            table.push((key, one_or_many(patterns.iter())));
        }
    }
    if let Some(expires) = token.expires_unix_s {
        table.push(("expires", date_of(expires).into()));
    }
    table
}

fn rule(
    (rule, (content_type, access)): (&Rule, (Option<&ContentType>, Option<&TopicAccess>)),
) -> Table {
    let mut table = vec![
        ("match", rule.pattern.as_str().into()),
        ("history", number(rule.history)),
        ("history_bytes", size(rule.history_bytes as u64).into()),
    ];
    if let Some(value) = &rule.cache_control {
        table.push(("cache_control", value.as_str().into()));
    }
    if let Some(value) = content_type {
        table.push(("content_type", value.as_str().into()));
    }
    if let Some(keep) = rule.keep {
        table.push(("keep", Name::of(keep).into()));
    }
    let left_out = leave_out::names(rule.leave_out);
    if !left_out.is_empty() {
        table.push(("leave_out", one_or_many(left_out)));
    }
    if let Some(TopicAccess { read, publish, .. }) = access {
        if *read != Readers::default() {
            table.push(("read", Name::of(*read).into()));
        }
        if *publish != Publishers::default() {
            table.push(("publish", Name::of(*publish).into()));
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
        ("immutable", one_or_many(mount.immutable.iter().map(Pattern::as_str))),
    ];
    if mount.read != Readers::default() {
        table.push(("read", Name::of(mount.read).into()));
    }
    if let Some(file) = &mount.fallback {
        table.push(("fallback", file.as_str().into()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_printed_and_in_the_reference_with_its_default() {
        let reference = include_str!("../../../docs/configuration.md");
        let printed = Settings::default().to_toml();
        for setting in groups::all() {
            let (name, key) = (setting.name(), setting.key);
            let value = (setting.show)(&Settings::default());
            assert!(printed.contains(&format!("\n# {key} = {value}\n")), "{key}");
            let row = format!("| `{name}` | ");
            let row = reference.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("no row of {name}"));
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, _, _, variable, default, _, reload, _] = columns[..] else { panic!("{row}") };
            assert_eq!(variable, format!("`{}`", setting.variable()));
            assert_eq!(reload, if setting.needs_restart { "restart" } else { "yes" }, "{name}");
            // How many workers there are depends on the host.
            assert!(key == "workers" || default.contains(&format!("`{value}`")), "{row}: {value}");
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
            root = '/srv/\"www\"'\nfallback = 'index.html'\n\
            immutable = ['/a/**', '/b']\n";
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
