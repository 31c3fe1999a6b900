//! The forms in which settings are written, and what is wrong with one that is not.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, IntoDeserializer, SeqAccess, Visitor};
use stentor_access::{Algorithm, JwksUrl, Publishers, Readers};
use stentor_hub::{CacheControl, ContentType, Keep, Pattern};
use stentor_io::TurnAway;
use stentor_tls::Version;
use stentor_wire::lookup::Template;
use stentor_wire::target::check_file;
use toml::Value;
use tracing::Level;

use crate::addresses::{ControlAddress, ListenAddress, Network, parse_address};
use crate::described::{Described, ValueForm, Worded};
use crate::file_type::FileType;
use crate::leave_out;
use crate::servers::{BrokerUrl, ServerUrl, StreamName};
use crate::setting::{Form, ValueShape};
use crate::values::{
    AccessFormat, AccessTarget, Close, LogFormat, OrAuto, parse_access, parse_user,
};

/// A kind of text, and the value that it means.
pub(crate) trait Kind: FromStr<Err = String> {
    type Value;

    /// Whether a text of this kind, or one that is written in its place by mistake, may be a secret
    /// or hold one. Errors of such a kind do not repeat the text, and excerpts do not show it.
    const IS_SECRET: bool = false;

    fn value(self) -> Self::Value;

    /// The text that is read as this value.
    fn show(value: &Self::Value) -> String;
}

/// Declares kinds of text that are the values themselves, and which of them may hold a secret.
macro_rules! value_kinds {
    ($($type:ty, $is_secret:literal;)*) => {$(
        impl Kind for $type {
            type Value = $type;

            const IS_SECRET: bool = $is_secret;

            fn value(self) -> $type {
                self
            }

            fn show(value: &$type) -> String {
                value.to_string()
            }
        }

        impl Worded for $type {}
    )*};
}

// URLs may have a password, or a token in the query.
value_kinds! {
    ListenAddress<SocketAddr>, false;
    ListenAddress<ControlAddress>, false;
    ControlAddress, false;
    Network, false;
    StreamName, false;
    ServerUrl, true;
    BrokerUrl, true;
    JwksUrl, true;
}

impl Kind for Algorithm {
    type Value = Algorithm;

    fn value(self) -> Algorithm {
        self
    }

    fn show(value: &Algorithm) -> String {
        value.to_string()
    }
}

impl Worded for Algorithm {
    fn words() -> Vec<&'static str> {
        Algorithm::ALL.map(Algorithm::name).to_vec()
    }
}

/// A kind of text, or nothing.
pub(crate) struct OrNone<K>(Option<K>);

impl<K: Kind> FromStr for OrNone<K> {
    type Err = String;

    fn from_str(text: &str) -> Result<OrNone<K>, String> {
        (!text.is_empty()).then(|| text.parse()).transpose().map(OrNone)
    }
}

impl<K: Kind> Kind for OrNone<K> {
    type Value = Option<K::Value>;

    const IS_SECRET: bool = K::IS_SECRET;

    fn value(self) -> Self::Value {
        self.0.map(K::value)
    }

    fn show(value: &Self::Value) -> String {
        value.as_ref().map(K::show).unwrap_or_default()
    }
}

impl<K: Worded> Worded for OrNone<K> {
    fn words() -> Vec<&'static str> {
        K::words()
    }
}

impl<K: Kind> Form<K::Value> for Text<K> {
    const IS_SECRET: bool = K::IS_SECRET;

    fn value(self) -> K::Value {
        self.0.value()
    }

    fn show(value: &K::Value) -> Value {
        K::show(value).into()
    }
}

impl<K: Kind> Form<Vec<K::Value>> for OneOrMany<K> {
    const SHAPE: ValueShape = ValueShape::List;
    const IS_SECRET: bool = K::IS_SECRET;

    fn value(self) -> Vec<K::Value> {
        self.0.into_iter().map(K::value).collect()
    }

    fn show(values: &Vec<K::Value>) -> Value {
        one_or_many(values.iter().map(K::show))
    }
}

fn text<K: Worded>() -> ValueForm {
    let words = K::words();
    if words.is_empty() { ValueForm::Text } else { ValueForm::Words { words } }
}

impl<K: Worded> Described for Text<K> {
    fn form() -> ValueForm {
        text::<K>()
    }
}

impl<K: Worded> Described for OneOrMany<K> {
    fn form() -> ValueForm {
        ValueForm::OneOrMany { of: Box::new(text::<K>()) }
    }
}

/// A list; one of a single value is that value, as most people write it.
pub(crate) fn one_or_many(items: impl IntoIterator<Item = impl ToString>) -> Value {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.len() == 1 { items.remove(0).into() } else { items.into() }
}

impl Form<bool> for bool {
    const SHAPE: ValueShape = ValueShape::Flag;

    fn value(self) -> bool {
        self
    }

    fn show(value: &bool) -> Value {
        (*value).into()
    }
}

/// Values that have names.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// The predicate of the refusal: "is not a level".
    const IS_NONE: &str;
    const NAMES: &[(&str, Self)];
}

/// One of several values, by its name.
#[derive(Clone, Copy)]
pub(crate) struct Name<T>(pub(crate) T);

impl<T: Named> Name<T> {
    pub(crate) fn of(value: T) -> &'static str {
        T::NAMES.iter().find(|(_, other)| *other == value).map_or("", |(name, _)| name)
    }
}

impl<T: Named> FromStr for Name<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Name<T>, String> {
        if let Some((_, value)) = T::NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(Name(*value));
        }
        let names: Vec<String> = T::NAMES.iter().map(|(name, _)| format!("'{name}'")).collect();
        let (last, others) = names.split_last().expect("there is one at least");
        let text = text.escape_debug();
        Err(format!("'{text}' {}: write {} or {last}", T::IS_NONE, others.join(", ")))
    }
}

impl<T: Named> Worded for Name<T> {
    fn words() -> Vec<&'static str> {
        T::NAMES.iter().map(|(name, _)| *name).collect()
    }
}

impl<T: Named> Kind for Name<T> {
    type Value = T;

    fn value(self) -> T {
        self.0
    }

    fn show(value: &T) -> String {
        Name::of(*value).to_owned()
    }
}

/// Declares the names of values.
macro_rules! named {
    ($($type:ty, $is_none:literal: $($name:literal => $value:expr),*;)*) => {$(
        impl Named for $type {
            const IS_NONE: &str = $is_none;
            const NAMES: &[(&str, $type)] = &[$(($name, $value)),*];
        }
    )*};
}

named! {
    Level, "is not a level": "error" => Level::ERROR, "warn" => Level::WARN,
        "info" => Level::INFO, "debug" => Level::DEBUG;
    LogFormat, "is not a format": "text" => LogFormat::Text, "json" => LogFormat::Json;
    AccessFormat, "is not a format": "combined" => AccessFormat::Combined,
        "json" => AccessFormat::Json;
    Keep, "is not a way to keep messages": "synced" => Keep::Synced, "written" => Keep::Written,
        "memory" => Keep::Memory, "none" => Keep::None;
    Close, "is not a way to close": "graceful" => Close::Graceful, "reset" => Close::Reset;
    TurnAway, "is no answer to new connections": "refuse" => TurnAway::Refuse,
        "drop" => TurnAway::Drop;
    Version, "is not a version of TLS that is spoken": "1.2" => Version::Tls12,
        "1.3" => Version::Tls13;
    Readers, "cannot be who reads": "anyone" => Readers::Anyone, "token" => Readers::Token;
    Publishers, "cannot be who publishes": "control" => Publishers::Control,
        "token" => Publishers::Token;
}

impl AccessFormat {
    /// The name of the format in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        Name::of(self)
    }
}

/// A value written as text; what is wrong with it is found while its place is still known.
pub(crate) struct Text<T>(pub(crate) T);

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
pub(crate) struct OneOrMany<T>(pub(crate) Vec<T>);

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

/// A quantity, or "auto".
pub(crate) struct AutoOr<F>(Option<F>);

impl<'de, F: Deserialize<'de>> Deserialize<'de> for AutoOr<F> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(AutoOrVisitor(PhantomData)).map(AutoOr)
    }
}

struct AutoOrVisitor<F>(PhantomData<F>);

impl<'de, F: Deserialize<'de>> Visitor<'de> for AutoOrVisitor<F> {
    type Value = Option<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity, or \"auto\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Option<F>, E> {
        F::deserialize(number.into_deserializer()).map(Some).map_err(or_auto)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<F>, E> {
        match text {
            "auto" => Ok(None),
            _ => F::deserialize(text.to_owned().into_deserializer()).map(Some).map_err(or_auto),
        }
    }
}

fn or_auto<E: de::Error>(error: de::value::Error) -> E {
    E::custom(format!("{error}, or \"auto\""))
}

impl<F: Described> Described for AutoOr<F> {
    fn form() -> ValueForm {
        ValueForm::AutoOr { of: Box::new(F::form()) }
    }
}

impl<T, F: Form<T>> Form<OrAuto<T>> for AutoOr<F> {
    fn value(self) -> OrAuto<T> {
        self.0.map_or(OrAuto::Auto, |form| OrAuto::Set(form.value()))
    }

    fn show(value: &OrAuto<T>) -> Value {
        match value {
            OrAuto::Auto => "auto".into(),
            OrAuto::Set(value) => F::show(value),
        }
    }
}

/// Declares kinds of text: the type of each, in brackets the words that it may be if they are few,
/// what makes it of a text, and what shows it.
macro_rules! text_kinds {
    ($(
        $(#[$doc:meta])*
        $name:ident($inner:ty) $([$words:expr])?, $parse:expr $(, $show:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) $inner);

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $parse(text).map($name)
            }
        }

        impl crate::described::Worded for $name {
            $(fn words() -> Vec<&'static str> {
                $words.to_vec()
            })?
        }

        $(impl crate::forms::Kind for $name {
            type Value = $inner;

            fn value(self) -> $inner {
                self.0
            }

            fn show(value: &$inner) -> String {
                $show(value)
            }
        })?
    )*};
}

pub(crate) use text_kinds;

text_kinds! {
    /// An address and a port.
    Address(SocketAddr), parse_address, SocketAddr::to_string;
    /// A file.
    File(PathBuf), file, |path: &PathBuf| path.display().to_string();
    /// A name that the control listener goes by.
    HostName(String), host_name, String::clone;
    /// Whom the server runs as.
    UserName(Option<String>), |text| parse_user(text).map(Some), or_nothing;
    /// Any text, or nothing.
    AnyText(Option<String>), |text: &str| Ok((!text.is_empty()).then(|| text.to_owned())),
        or_nothing;
    /// Where the access log goes.
    AccessName(Option<AccessTarget>), parse_access,
        |to: &Option<AccessTarget>| to.as_ref().map_or("off".to_owned(), ToString::to_string);
    /// Which topics a rule is for.
    TopicPattern(Pattern), |text| Pattern::parse(text).map_err(String::from),
        |pattern: &Pattern| pattern.as_str().to_owned();
    /// The directory of a store.
    StorePath(PathBuf), |text: &str| Ok(PathBuf::from(text)),
        |path: &PathBuf| path.display().to_string();
    /// The cookie that may hold a token.
    CookieName(Option<String>), cookie, or_nothing;
    /// An origin as the `Origin` field of a request spells it (RFC 6454 section 6.2), or `*`.
    Origin(String), origin, String::clone;
    /// Which topic a name of a look-up stands for.
    TopicTemplate(Template), topic_template;
    /// A line of a look-up's answer.
    LineTemplate(Template), Template::parse;
    /// The beginning of a look-up's path.
    RoutePath(String), route_path;
    /// What the paths of a directory's files begin with.
    MountPath(String), mount_path;
    /// A directory with files to serve.
    Directory(PathBuf), directory;
    /// A file, named from its root on.
    FilePath(String), file_path;
    /// Paths of files that never change.
    ImmutablePaths(Pattern), immutable_paths;
    /// The Cache-Control of answers.
    Caching(CacheControl), |text| CacheControl::parse(text).map_err(String::from);
    /// The media type of files.
    TypeOfFiles(FileType), file_type, FileType::to_string;
    /// The content type of a look-up's answers, or of messages.
    MediaType(ContentType), |text| ContentType::parse(text).map_err(String::from);
    /// Who may publish.
    PublishBy(Publishers)[Name::<Publishers>::words()], publishers;
    /// A field that answers with a value can do without.
    ValueField(&'static str)[leave_out::VALUE_FIELDS], leave_out::value_field;
    /// The same of a look-up's answers.
    LookupField(&'static str)[[leave_out::CACHE_CONTROL]], leave_out::lookup_field;
}

fn or_nothing(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

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

fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.ends_with('/') || text.contains('\0') {
        return Err(format!("'{}' is not the path of a file", text.escape_debug()));
    }
    Ok(PathBuf::from(text))
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

fn immutable_paths(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|_| {
        format!(
            "'{}' is not a pattern of paths: write one such as '/assets/**', for a directory in \
             which a changed file always has a new name",
            text.escape_debug()
        )
    })
}

/// Reads an origin as browsers write it: scheme and host in lower case, without the usual port
/// (RFC 6454 section 6.2).
fn origin(text: &str) -> Result<String, String> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    if !text.is_ascii() {
        return Err(format!(
            "'{text}' is not what browsers send: write the host in its ASCII form (xn--...)"
        ));
    }
    let lower = text.to_ascii_lowercase();
    let Some((scheme, authority)) = lower.split_once("://").filter(|(_, authority)| {
        let outside = |b: u8| matches!(b, b'/' | b'?' | b'#' | b'@' | b'*' | b',');
        !authority.is_empty() && authority.bytes().all(|b| b.is_ascii_graphic() && !outside(b))
    }) else {
        return Err(format!(
            "'{text}' is not an origin: write SCHEME://HOST, such as https://example.com, or *"
        ));
    };
    let usual_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let authority = authority.strip_suffix(usual_port).unwrap_or(authority);
    Ok(format!("{scheme}://{authority}"))
}

fn file_type(text: &str) -> Result<FileType, String> {
    let wrong = || {
        format!(
            "'{}' is not a type of files: write EXTENSION=TYPE or NAME=TYPE, such as \
             'tgs=application/x-tgsticker'",
            text.escape_debug()
        )
    };
    let (name, content_type) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.strip_prefix('.').unwrap_or(name);
    let content_type = ContentType::parse(content_type).map_err(|_| wrong())?;
    let is_of_a_name = |b: u8| b.is_ascii_graphic() && !b"/*?\"".contains(&b);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_of_a_name) {
        return Err(wrong());
    }
    Ok(FileType::new(name, content_type.as_str()))
}

/// Reads who may publish. No setting lets anyone publish.
fn publishers(text: &str) -> Result<Publishers, String> {
    if text == "anyone" {
        return Err(
            "'anyone' cannot publish: write 'token', and give a token to those who may, or \
                    'control'"
                .to_owned(),
        );
    }
    text.parse().map(|Name(publishers)| publishers)
}

/// The name of a cookie (RFC 6265 section 4.1.1).
fn cookie(text: &str) -> Result<Option<String>, String> {
    let is_of_a_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !text.bytes().all(is_of_a_name) {
        let shown = text.escape_debug();
        return Err(format!("'{shown}' is not the name of a cookie: write one such as stentor"));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
