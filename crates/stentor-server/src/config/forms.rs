//! The forms in which settings are written, and what is wrong with one that is not.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::access::rules::{Publishers, Readers};
use serde::Deserialize;
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use stentor_hub::{CacheControl, ContentType, Keep, Pattern};
use stentor_tls::Version;
use stentor_wire::lookup::Template;
use stentor_wire::target::check_file;
use tracing::Level;

use super::quantity::Bytes;
use super::{
    AccessTarget, ControlAddress, Immutable, Listening, LogFormat, PerAddress, StoredBytes,
    parse_access, parse_address, parse_user,
};
use super::{access, leave_out, tls};

/// A value written as text; what is wrong with it is found while its place is still known.
pub(super) struct Text<T>(pub(super) T);

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
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

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
pub(super) struct Tables<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de> + Repeated> Deserialize<'de> for Tables<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(TablesVisitor(PhantomData)).map(Tables)
    }
}

/// A kind of table of which there may be several.
pub(super) trait Repeated {
    const NAME: &str;
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
pub(super) struct AutoOrCount(pub(super) PerAddress);

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

/// A size from `MIN` to `MAX`, or "auto".
pub(super) struct AutoOrBytes<const MIN: u64, const MAX: u64>(pub(super) StoredBytes);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for AutoOrBytes<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(AutoOrBytesVisitor::<MIN, MAX>).map(AutoOrBytes)
    }
}

struct AutoOrBytesVisitor<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Visitor<'_> for AutoOrBytesVisitor<MIN, MAX> {
    type Value = StoredBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"64 MiB\", or \"auto\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<StoredBytes, E> {
        let bytes = Bytes::<MIN, MAX>::deserialize(number.into_deserializer())?;
        Ok(StoredBytes::Max(usize::try_from(bytes.0).unwrap_or(usize::MAX)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StoredBytes, E> {
        if text == "auto" {
            return Ok(StoredBytes::Auto);
        }
        let bytes = Bytes::<MIN, MAX>::deserialize(text.into_deserializer())?;
        Ok(StoredBytes::Max(usize::try_from(bytes.0).unwrap_or(usize::MAX)))
    }
}

const PER_ADDRESS_MAX: u32 = 100_000_000;

/// A flag, or "bundled".
pub(super) struct BoolOrBundled(pub(super) Immutable);

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
        pub(super) struct $name(pub(super) $inner);

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
    Listen(Listening<SocketAddr>),
    Listening::from_str
);
text_kind!(
    /// An address of the control listener.
    Control(Listening<ControlAddress>),
    Listening::from_str
);
text_kind!(
    /// An address and a port.
    Address(SocketAddr),
    parse_address
);
text_kind!(
    /// A file; empty: none.
    WholePath(Option<PathBuf>),
    whole_path
);
text_kind!(
    /// A file.
    PemPath(PathBuf),
    |text| whole_path(text)?.ok_or_else(|| "'' is not a file".to_owned())
);
text_kind!(
    /// A version of TLS.
    VersionName(Version),
    tls::version
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
    /// Where the access log goes.
    AccessName(Option<AccessTarget>),
    parse_access
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
    /// The directory of a store.
    StorePath(Option<PathBuf>),
    store_path
);
text_kind!(
    /// What a publisher is promised.
    Keeping(Keep),
    keeping
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
    /// Who may read.
    ReadBy(Readers),
    access::readers
);
text_kind!(
    /// Who may publish.
    PublishBy(Publishers),
    access::publishers
);
text_kind!(
    /// The cookie that may hold a token.
    CookieName(Option<String>),
    access::cookie
);
text_kind!(
    /// A field that answers with a value can do without.
    ValueField(&'static str),
    leave_out::value_field
);
text_kind!(
    /// The same of a look-up's answers.
    LookupField(&'static str),
    leave_out::lookup_field
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

/// Nothing is no file.
fn whole_path(text: &str) -> Result<Option<PathBuf>, String> {
    if text.contains('\0') || text.ends_with('/') {
        return Err(format!("'{}' is not a file", text.escape_debug()));
    }
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// Nothing is no store.
fn store_path(text: &str) -> Result<Option<PathBuf>, String> {
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

fn keeping(text: &str) -> Result<Keep, String> {
    match KEEPS.iter().find(|(name, _)| *name == text) {
        Some((_, keep)) => Ok(*keep),
        None => Err(format!(
            "'{text}' is not a way to keep messages: write 'synced', 'written', 'memory' or 'none'"
        )),
    }
}

/// What may become of messages, by its names.
pub(super) const KEEPS: [(&str, Keep); 4] = [
    ("none", Keep::None),
    ("memory", Keep::Memory),
    ("written", Keep::Written),
    ("synced", Keep::Synced),
];

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
