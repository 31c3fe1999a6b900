//! One source of settings: a TOML document, or the variables of the environment.
//!
//! A source says nothing about most settings; what it does say overrides the source before. The
//! table of settings (`setting.rs`) lists the keys. This file has the tables of which there may be
//! several. The environment speaks the same grammar: `STENTOR_LIMITS_HEAD_TIMEOUT=5s` is read as
//! the document `[limits]`, `head_timeout = "5s"` would be.

use serde::Deserialize;
use stentor_hub::{Keep, Rule};
use toml::Value;
use toml::de::{Error, ValueDeserializer};

use stentor_access::{Readers, TopicAccess, TopicRules};

use crate::error::nearest;
use crate::forms::{
    BoolOrBundled, Caching, Directory, FilePath, LineTemplate, LookupField, MediaType, MountPath,
    Name, OneOrMany, PublishBy, Repeated, RoutePath, Text, TopicPattern, TopicTemplate, ValueField,
};
use crate::leave_out;
use crate::quantity::{Bytes, Count, GIB};
use crate::setting::{self, Form, Read, Setting};
use crate::tls::PairLayer;
use crate::tokens::TokenLayer;
use crate::{ConfigError, ConfigErrors, Lookup, Mount, Settings};

/// Overrides `settings` by the variables that name a setting. A variable that almost does is
/// refused; other names beginning with `STENTOR_` are left alone, for container platforms make up
/// such names by themselves (`STENTOR_SERVICE_HOST`).
pub(crate) fn from_environment(
    environment: impl IntoIterator<Item = (String, String)>,
    settings: &mut Settings,
) -> Result<(), ConfigErrors> {
    let mut mistakes = Vec::new();
    let known: Vec<_> = setting::all().map(|setting| (setting.variable(), setting)).collect();
    for (name, text) in environment {
        if !name.starts_with(PREFIX) || FOREIGN.contains(&name.as_str()) {
            continue;
        }
        let Some((_, setting)) = known.iter().find(|(variable, _)| *variable == name) else {
            let known = known.iter().map(|(variable, _)| variable.as_str());
            if let Some(meant) = nearest(&name, known) {
                let message = format!("unknown setting; did you mean {meant}?");
                mistakes.push(ConfigError::new(&name, message));
            }
            continue;
        };
        if let Err(error) = read_variable(setting, &text, settings) {
            mistakes.push(ConfigError::new(&name, explain(error.message())));
        }
    }
    ConfigErrors::none_of(mistakes)
}

/// The tables of which there may be several.
pub(crate) const ARRAYS: &[(&str, Read)] =
    &[PairLayer::READ, RuleLayer::READ, LookupLayer::READ, TokenLayer::READ, MountLayer::READ];

/// The keys that only `[[static]]` has, for those who write them elsewhere.
pub(crate) const MOUNT_KEYS: &[&str] = &["root", "fallback", "listing", "symlinks", "immutable"];

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

/// Reads the text of a variable as a document would say it.
fn read_variable(setting: &Setting, text: &str, settings: &mut Settings) -> Result<(), Error> {
    let value: Value = if setting.is_list {
        text.split(',').map(str::trim).collect::<Vec<_>>().into()
    } else if let Ok(flag) = text.parse::<bool>() {
        flag.into()
    } else if let Ok(number) = text.parse::<i64>() {
        number.into()
    } else {
        text.into()
    };
    (setting.read)(ValueDeserializer::parse(&value.to_string())?, settings)
}

/// The parser's message in the words of this program: names in single quotes, and for an unknown
/// key the nearest known one, or the table it belongs to.
pub(crate) fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.replace('`', "'");
    };
    // "unknown field `liten`, expected one of `listen`, `control`": every second piece is a name.
    let mut names = rest.split('`').step_by(2);
    let key = names.next().unwrap_or("");
    unknown(key, &names.filter(|name| !name.is_empty()).collect::<Vec<_>>())
}

/// The message for an unknown key. `known` are the keys that can stand there.
pub(crate) fn unknown(key: &str, known: &[&str]) -> String {
    let elsewhere = setting::all().find(|setting| setting.key == key).map(|it| it.table);
    let hint = match (elsewhere, nearest(key, known.iter().copied())) {
        (Some(""), _) => "it belongs at the top, before the first [table]".to_owned(),
        (Some(table), _) => format!("it belongs in [{table}]"),
        _ if MOUNT_KEYS.contains(&key) => "it belongs in [[static]]".to_owned(),
        (None, Some(meant)) => format!("did you mean '{meant}'?"),
        (None, None) => format!("known here: {}", known.join(", ")),
    };
    format!("unknown key '{key}'; {hint}")
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
    keep: Option<Text<Name<Keep>>>,
    leave_out: Option<OneOrMany<ValueField>>,
    read: Option<Text<Name<Readers>>>,
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
    read: Option<Text<Name<Readers>>>,
}

fn set<S, V>(setting: &mut S, value: Option<V>, convert: impl FnOnce(V) -> S) {
    if let Some(value) = value {
        *setting = convert(value);
    }
}

impl RuleLayer {
    fn access(&self) -> TopicAccess {
        TopicAccess {
            pattern: self.pattern.0.0.clone(),
            read: self.read.as_ref().map(|read| read.0.0).unwrap_or_default(),
            publish: self.publish.as_ref().map(|publish| publish.0.0).unwrap_or_default(),
        }
    }

    fn finish(self) -> Rule {
        let mut rule = Rule::new(self.pattern.0.0);
        set(&mut rule.history, self.history, Form::value);
        set(&mut rule.history_bytes, self.history_bytes, Form::value);
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

    fn apply(rules: Vec<RuleLayer>, settings: &mut Settings) {
        let of = |rule: &RuleLayer| {
            let content_type = rule.content_type.as_ref().map(|kind| kind.0.0.clone());
            (rule.pattern.0.0.clone(), content_type)
        };
        settings.content_types = rules.iter().map(of).collect();
        settings.access.topics = TopicRules::new(rules.iter().map(RuleLayer::access));
        settings.topics = rules.into_iter().map(RuleLayer::finish).collect();
    }
}

impl Repeated for LookupLayer {
    const NAME: &str = "lookup";

    fn apply(routes: Vec<LookupLayer>, settings: &mut Settings) {
        settings.lookups = routes.into_iter().map(LookupLayer::finish).collect();
    }
}

impl Repeated for MountLayer {
    const NAME: &str = "static";

    fn apply(mounts: Vec<MountLayer>, settings: &mut Settings) {
        settings.mounts = mounts.into_iter().map(MountLayer::finish).collect();
    }
}
