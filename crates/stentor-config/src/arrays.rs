//! The tables of which there may be several, each under a header in double brackets.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use stentor_access::{Patterns, Permissions, Readers, StaticToken, TopicAccess, TopicRules};
use stentor_hub::{Keep, Pattern, Rule};
use toml::de::{Error, ValueDeserializer};

use crate::described::{Described, ValueForm, Worded};
use crate::forms::{
    Caching, Directory, File, FilePath, ImmutablePaths, LineTemplate, LookupField, MediaType,
    MountPath, Name, OneOrMany, PublishBy, RoutePath, Text, TopicPattern, TopicTemplate,
    ValueField, text_kinds,
};
use crate::leave_out;
use crate::moment::Moment;
use crate::quantity::{Bytes, Count, GIB};
use crate::setting::{Form, Read};
use crate::settings::tokens::Label;
use crate::settings::{Lookup, Mount, PairFiles, Settings};

/// Tables of which there may be several, and how they are read.
pub(crate) struct Array {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [Key],
    /// Whether a value in it may be a secret. Errors show none of them.
    pub(crate) is_secret: bool,
    pub(crate) read: Read<Settings>,
}

impl Array {
    /// Whether the tables have that key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known.name == key)
    }
}

/// A key of such a table.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: fn() -> ValueForm,
    pub(crate) is_required: bool,
    /// The lines of its description.
    pub(crate) help: &'static [&'static str],
}

/// Declares a table of which there may be several: its keys, the fields that take them, and their
/// forms.
macro_rules! table {
    (struct $name:ident {
        $($(#[doc = $help:literal])* $key:literal $field:ident: $form:ty;)*
    }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($(#[doc = $help])* #[serde(rename = $key)] $field: $form,)*
        }

        impl $name {
            const TABLE_KEYS: &[Key] = &[$(Key {
                name: $key,
                form: <$form as Described>::form,
                is_required: !<$form as Described>::IS_OPTIONAL,
                help: &[$($help),*],
            }),*];
        }
    };
}

/// The tables of which there may be several.
pub(crate) const ARRAYS: &[Array] =
    &[PairLayer::ARRAY, RuleLayer::ARRAY, LookupLayer::ARRAY, TokenLayer::ARRAY, MountLayer::ARRAY];

/// Tables of one kind, each under a header in double brackets.
struct Tables<T>(Vec<T>);

impl<'de, T: Repeated> Deserialize<'de> for Tables<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(TablesVisitor(PhantomData)).map(Tables)
    }
}

/// A kind of table of which there may be several.
trait Repeated: for<'de> Deserialize<'de> {
    const NAME: &str;
    const KEYS: &[Key];
    const IS_SECRET: bool = false;

    /// Takes all of this kind into settings.
    fn apply(all: Vec<Self>, settings: &mut Settings);

    const ARRAY: Array = Array {
        name: Self::NAME,
        keys: Self::KEYS,
        is_secret: Self::IS_SECRET,
        read: read_tables::<Self>,
    };
}

fn read_tables<T: Repeated>(
    source: ValueDeserializer<'_>,
    settings: &mut Settings,
) -> Result<(), Error> {
    let Tables(all) = Tables::<T>::deserialize(source)?;
    T::apply(all, settings);
    Ok(())
}

struct TablesVisitor<T>(PhantomData<T>);

impl<'de, T: Repeated> Visitor<'de> for TablesVisitor<T> {
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

table! {
    struct RuleLayer {
        /// The topics that the rule is for: a topic, or a pattern with `*` and `**`.
        "match" pattern: Text<TopicPattern>;
        /// Messages kept for each topic, the value included.
        "history" history: Option<Count<1, 1_000_000>>;
        /// Bytes of data kept for each topic, the value included. The value is always kept.
        "history_bytes" history_bytes: Option<Bytes<1, GIB>>;
        /// The `Cache-Control` of messages published without one.
        "cache_control" cache_control: Option<Text<Caching>>;
        /// The content type of messages published without one, or with one that clients send
        /// unasked.
        "content_type" content_type: Option<Text<MediaType>>;
        /// The promise of an answer to a publish, with a store.
        "keep" keep: Option<Text<Name<Keep>>>;
        /// Fields that the answers do without.
        "leave_out" leave_out: Option<OneOrMany<ValueField>>;
        /// The readers of the topics: anyone, or holders of a token.
        "read" read: Option<Text<Name<Readers>>>;
        /// The publishers of the topics: the control listener, or holders of a token.
        "publish" publish: Option<Text<PublishBy>>;
    }
}

table! {
    struct LookupLayer {
        /// The beginning of the path; the names follow directly.
        "path" path: Text<RoutePath>;
        /// The topic of a name: a path with `{name}` in it.
        "topics" topics: Text<TopicTemplate>;
        /// One line of the answer, with `{name}` and `{value}`. Without it the answer is JSON.
        "line" line: Option<Text<LineTemplate>>;
        /// The content type of the answer.
        "content_type" content_type: Option<Text<MediaType>>;
        /// Fields that the answers do without.
        "leave_out" leave_out: Option<OneOrMany<LookupField>>;
    }
}

table! {
    struct MountLayer {
        /// The beginning of the paths of the files.
        "path" path: Option<Text<MountPath>>;
        /// The directory.
        "root" root: Text<Directory>;
        /// The file beneath the root that answers for paths where no file is.
        "fallback" fallback: Option<Text<FilePath>>;
        /// Whether a directory without an `index.html` is answered with a list of its files.
        "listing" listing: Option<bool>;
        /// Whether symbolic links are followed; never out of the root.
        "symlinks" symlinks: Option<bool>;
        /// The `Cache-Control` of the answers.
        "cache_control" cache_control: Option<Text<Caching>>;
        /// Paths of files that never change.
        "immutable" immutable: Option<OneOrMany<ImmutablePaths>>;
        /// The readers of the files: anyone, or holders of a token.
        "read" read: Option<Text<Name<Readers>>>;
    }
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
        rule.guard.is_private = self.read.is_some_and(|read| read.0.0 == Readers::Token);
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
        set(&mut mount.immutable, self.immutable, |paths| {
            paths.0.into_iter().map(|it| it.0).collect()
        });
        set(&mut mount.read, self.read, |read| read.0.0);
        mount
    }
}

const JSON: &str = "application/json";

impl Repeated for RuleLayer {
    const NAME: &str = "topics";
    const KEYS: &[Key] = Self::TABLE_KEYS;

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
    const KEYS: &[Key] = Self::TABLE_KEYS;

    fn apply(routes: Vec<LookupLayer>, settings: &mut Settings) {
        settings.lookups = routes.into_iter().map(LookupLayer::finish).collect();
    }
}

impl Repeated for MountLayer {
    const NAME: &str = "static";
    const KEYS: &[Key] = Self::TABLE_KEYS;

    fn apply(mounts: Vec<MountLayer>, settings: &mut Settings) {
        settings.mounts = mounts.into_iter().map(MountLayer::finish).collect();
    }
}

table! {
    struct TokenLayer {
        /// The name of its holder in the log.
        "name" name: Text<Label>;
        /// The SHA-256 of the secret, in hexadecimal digits.
        "sha256" sha256: Text<Sha256>;
        /// Topics that it may publish to, and delete.
        "publish" publish: Option<OneOrMany<Topics>>;
        /// Topics that it may read, beside those that anyone may.
        "read" read: Option<OneOrMany<Topics>>;
        /// From when on it is not good any more.
        "expires" expires: Option<Moment>;
    }
}

impl TokenLayer {
    fn finish(self) -> StaticToken {
        // Each was parsed before, and `check` says if there are too many.
        let patterns = |many: Option<OneOrMany<Topics>>| {
            let texts = many.map(|many| many.0).unwrap_or_default();
            Patterns::of(&texts.into_iter().map(|topics| topics.0).collect::<Vec<_>>())
        };
        StaticToken {
            name: self.name.0.0,
            sha256: self.sha256.0.0,
            permissions: Permissions { publish: patterns(self.publish), read: patterns(self.read) },
            expires_unix_s: self.expires.map(|moment| moment.0),
        }
    }
}

impl Repeated for TokenLayer {
    const NAME: &str = "token";
    const KEYS: &[Key] = Self::TABLE_KEYS;
    /// People write the secret itself in place of its hash.
    const IS_SECRET: bool = true;

    fn apply(all: Vec<TokenLayer>, settings: &mut Settings) {
        settings.tokens.tokens = all.into_iter().map(TokenLayer::finish).collect();
    }
}

text_kinds! {
    /// Topics of a token.
    Topics(Pattern), |text| Pattern::parse(text).map_err(String::from);
}

/// The SHA-256 of a secret, in hexadecimal digits.
struct Sha256([u8; 32]);

impl Worded for Sha256 {}

impl FromStr for Sha256 {
    type Err = String;

    /// The error does not repeat the text: it may be the secret itself.
    fn from_str(text: &str) -> Result<Sha256, String> {
        let reason = || {
            "this is not the SHA-256 of a secret, 64 hexadecimal digits: `stentor token new` \
             prints both"
                .to_owned()
        };
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Sha256).ok_or_else(reason)
    }
}

table! {
    struct PairLayer {
        /// The certificate with its chain, in PEM.
        "cert" cert: Text<File>;
        /// The private key, in PEM.
        "key" key: Text<File>;
    }
}

impl Repeated for PairLayer {
    const NAME: &str = "tls";
    const KEYS: &[Key] = Self::TABLE_KEYS;

    fn apply(all: Vec<PairLayer>, settings: &mut Settings) {
        let pair = |pair: PairLayer| PairFiles { certificate: pair.cert.0.0, key: pair.key.0.0 };
        settings.tls.more = all.into_iter().map(pair).collect();
    }
}
