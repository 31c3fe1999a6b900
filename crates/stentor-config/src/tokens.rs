//! Tokens and the keys of those who sign them: `[[token]]` and `[jwt]`.
//!
//! What is needed to check a token may stand here, what is needed to make one may not: of a secret
//! there is the hash, of a key pair the public half, and of a key for HMAC the name of a file.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use stentor_access::{Algorithm, JwksUrl, PATTERNS_MAX, Patterns, Permissions, StaticToken};
use stentor_hub::Pattern;
use time::{Date, Month, OffsetDateTime, Time};
use toml::value::{Datetime, Offset};

use crate::forms::{File, OneOrMany, OrNone, Repeated, Text, one_or_many, text_kinds};
use crate::quantity::{DAY, HOUR, SECOND, Seconds};
use crate::setting::rows;
use crate::show::Table;
use crate::{ConfigError, Settings};

rows! {
    JWT in (tokens jwt): "jwt" {
        secret_files: Vec<PathBuf>, secret_file: OneOrMany<File>;
        public_key_files: Vec<PathBuf>, public_key_file: OneOrMany<File>;
        public_keys: Vec<String>, public_key: OneOrMany<PublicKey>;
        jwks_files: Vec<PathBuf>, jwks_file: OneOrMany<File>;
        jwks_urls: Vec<JwksUrl>, jwks_url: OneOrMany<JwksUrl>;
        jwks_ca_file: Option<PathBuf>, jwks_ca_file: Text<OrNone<File>>;
        jwks_refresh_s: u64, jwks_refresh: Seconds<{ 10 * SECOND }, { 7 * DAY }>;
        audience: Vec<String>, audience: OneOrMany<Label>;
        issuer: Vec<String>, issuer: OneOrMany<Label>;
        leeway_s: u64, leeway: Seconds<0, HOUR>;
        algorithms: Vec<Algorithm>, algorithms: OneOrMany<Algorithm>;
        require_exp: bool, require_exp: bool;
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenLayer {
    name: Text<Label>,
    sha256: Text<Sha256>,
    publish: Option<OneOrMany<Topics>>,
    read: Option<OneOrMany<Topics>>,
    expires: Option<Moment>,
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

    fn apply(all: Vec<TokenLayer>, settings: &mut Settings) {
        settings.tokens.tokens = all.into_iter().map(TokenLayer::finish).collect();
    }
}

/// What no token may be by itself: one of several that cannot be told apart, or of no use.
pub(crate) fn check(tokens: &[StaticToken]) -> Result<(), ConfigError> {
    let (mut names, mut hashes) = (HashSet::new(), HashSet::new());
    for token in tokens {
        let name = &token.name;
        let Permissions { publish, read } = &token.permissions;
        let reason = if !names.insert(name) {
            format!("two tokens are called '{name}'")
        } else if !hashes.insert(token.sha256) {
            format!("the secret of '{name}' is that of another token")
        } else if publish.is_empty() && read.is_empty() {
            format!("'{name}' may do nothing: say by 'publish' and 'read' which topics it is for")
        } else if publish.iter().count().max(read.iter().count()) > PATTERNS_MAX {
            format!("'{name}' has a list of more than {PATTERNS_MAX} patterns")
        } else {
            continue;
        };
        return Err(ConfigError::new("token", reason));
    }
    Ok(())
}

/// A token as a document would say it.
pub(crate) fn table(token: &StaticToken) -> Table {
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

text_kinds! {
    /// A public key in PEM. Whoever pastes the other half is told so before it is saved anywhere
    /// else.
    PublicKey(String), public_key, String::clone;
    /// A name that is compared or shown: visible, and not long.
    Label(String), label, String::clone;
    /// Topics of a token.
    Topics(Pattern), Pattern::parse;
}

fn public_key(text: &str) -> Result<String, String> {
    if text.contains("PRIVATE KEY") {
        return Err("this is a private key, which only the issuer of tokens may have: write the \
                    public one"
            .to_owned());
    }
    if !text.trim_start().starts_with("-----BEGIN ") {
        return Err("a public key in PEM begins with -----BEGIN PUBLIC KEY-----; for the name of \
                    a file there is 'public_key_file'"
            .to_owned());
    }
    Ok(text.to_owned())
}

fn label(text: &str) -> Result<String, String> {
    let is_long = text.len() > NAME_BYTES_MAX;
    if text.is_empty() || is_long || text.chars().any(char::is_control) {
        return Err(format!(
            "'{}' is not a name: write 1 to {NAME_BYTES_MAX} bytes without control characters",
            text.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

/// The SHA-256 of a secret, in hexadecimal digits.
struct Sha256([u8; 32]);

impl FromStr for Sha256 {
    type Err = String;

    /// What was written is not repeated: it may be the secret itself.
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

/// A date, which means its beginning, or a moment, both in UTC; in seconds since 1970. TOML has
/// dates of its own, which are written without quotes.
struct Moment(u64);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Moment, D::Error> {
        source.deserialize_any(MomentVisitor).map(Moment)
    }
}

struct MomentVisitor;

impl<'de> Visitor<'de> for MomentVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MOMENT)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse_moment(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        let moment = Datetime::deserialize(MapAccessDeserializer::new(map))?;
        unix_s(&moment).ok_or_else(|| de::Error::custom(format!("'{moment}' is not {MOMENT}")))
    }
}

/// A date or a moment as people write it, in seconds since 1970.
///
/// # Errors
///
/// What one looks like, when `text` is none.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    let moment = text.parse::<Datetime>().ok().as_ref().and_then(unix_s);
    moment.ok_or_else(|| format!("'{}' is not {MOMENT}", text.escape_debug()))
}

/// A moment as [`parse_moment`] reads it.
#[must_use]
pub fn date_of(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).map(OffsetDateTime::from_unix_timestamp);
    let Ok(Ok(at)) = at else { return format!("@{unix_s}") };
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z")
}

fn unix_s(moment: &Datetime) -> Option<u64> {
    let date = moment.date?;
    // A time without a zone would mean another moment on each host.
    if moment.time.is_some() && moment.offset.is_none() {
        return None;
    }
    let month = Month::try_from(date.month).ok()?;
    let date = Date::from_calendar_date(date.year.into(), month, date.day).ok()?;
    let clock = match moment.time {
        // A leap second is the one before.
        Some(time) => {
            Time::from_hms(time.hour, time.minute, time.second.unwrap_or(0).min(59)).ok()?
        }
        None => Time::MIDNIGHT,
    };
    let minutes = match moment.offset {
        Some(Offset::Custom { minutes }) => i64::from(minutes),
        _ => 0,
    };
    let at = date.with_time(clock).assume_utc().unix_timestamp() - minutes * 60;
    u64::try_from(at).ok()
}

const MOMENT: &str = "a date such as \"2027-12-31\" or a moment such as \"2027-12-31T12:00:00Z\"";

/// Names are shown in errors and logs, and compared with claims.
const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn settings(text: &str) -> Result<Settings, String> {
        let settings = Settings::from_toml(text, "f").map_err(|error| error.to_string())?;
        settings.validate().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn tokens_are_read_and_printed_as_they_were() {
        let text = format!(
            "[[token]]\nname = 'scores'\nsha256 = '{HASH}'\npublish = '/scores/**'\n\
             read = ['/scores/**', '/b']\nexpires = 2027-01-31\n\
             [[token]]\nname = 'b'\nsha256 = '{}'\nread = '/**'\n\
             expires = '2027-01-31T12:00:00+01:00'\n\
             [jwt]\npublic_key = \"\"\"-----BEGIN PUBLIC KEY-----\nAA==\n\"\"\"\n\
             secret_file = '/s'\njwks_url = 'https://a.example/k'\njwks_refresh = '1m'\n\
             audience = ['a', 'b']\nissuer = 'i'\nleeway = 5\nalgorithms = 'ES256'\n\
             require_exp = false\njwks_ca_file = '/ca'\njwks_file = '/j'\n\
             public_key_file = ['/p', '/q']\n",
            HASH.replace('b', "c").to_uppercase()
        );
        let settings = settings(&text).unwrap();
        let tokens = &settings.tokens.tokens;
        assert_eq!(tokens[0].expires_unix_s, Some(1_801_353_600));
        assert_eq!(tokens[1].expires_unix_s, Some(1_801_353_600 + 11 * 3_600));
        assert!(tokens[0].permissions.publish.borrowed().matches("/scores/a"));
        assert!(
            tokens[0].permissions.read.borrowed().matches("/b")
                && !tokens[0].permissions.publish.borrowed().matches("/b")
        );
        let jwt = &settings.tokens.jwt;
        assert_eq!(jwt.audience, ["a", "b"]);
        assert_eq!((jwt.leeway_s, jwt.jwks_refresh_s, jwt.require_exp), (5, 60, false));
        assert_eq!(jwt.algorithms, [Algorithm::Es256]);
        let printed = settings.to_toml();
        let again = Settings::from_toml(&printed, "printed").unwrap();
        assert_eq!(again.tokens, settings.tokens, "{printed}");
    }

    #[test]
    fn what_is_wrong_with_a_token_is_told_without_showing_it() {
        let token = |lines: &str| settings(&format!("[[token]]\nname = 'a'\n{lines}"));
        let good = format!("sha256 = '{HASH}'\nread = '/a'\n");
        assert!(token(&good).is_ok());
        for (lines, reason) in [
            (format!("sha256 = '{HASH}'"), "may do nothing"),
            (format!("{good}expires = '31.12.2027'"), "is not a date such as"),
            (format!("{good}expires = 2027-01-01T10:00:00"), "is not a date such as"),
            (format!("{good}expires = 10:00:00"), "is not a date such as"),
            (format!("{good}publish = '/a/**/b'"), "may stand at the end only"),
            (format!("{good}[[token]]\nname = 'a'\n{good}"), "two tokens are called 'a'"),
            (format!("{good}[[token]]\nname = 'b'\n{good}"), "is that of another token"),
            (format!("{good}scope = 'x'"), "unknown key 'scope'"),
        ] {
            let error = token(&lines).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let error = token("sha256 = 'stentor_abc'\nread = '/a'").unwrap_err();
        assert!(error.contains("is not the SHA-256 of a secret"), "{error}");
        let many: Vec<String> = (0..=PATTERNS_MAX).map(|i| format!("'/a/{i}'")).collect();
        let error = token(&format!("sha256 = '{HASH}'\nread = [{}]", many.join(", ")));
        assert!(error.unwrap_err().contains("more than 100 patterns"));
    }

    #[test]
    fn what_is_wrong_with_keys_is_told() {
        for (line, reason) in [
            ("jwks_url = 'http://a.example/'", "could be read and changed on its way"),
            ("jwks_url = 'ftp://a.example/'", "is not the address of keys"),
            ("jwks_url = 'https://me:pw@a.example/'", "is not the address of keys"),
            ("jwks_url = 'https:///k'", "is not the address of keys"),
            ("jwks_url = 'https://a:b/'", "is not the address of keys"),
            ("jwks_url = 'https://:80/'", "is not the address of keys"),
            ("jwks_url = 'https://[::1/'", "is not the address of keys"),
            ("jwks_url = 'https://a:99999/'", "is not the address of keys"),
            ("algorithms = 'none'", "'none' is not one of HS256, "),
            ("algorithms = ['ES256', 'RS1']", "'RS1' is not one of"),
            ("public_key = '-----BEGIN PRIVATE KEY-----'", "this is a private key"),
            ("public_key = '/etc/key.pem'", "public_key_file"),
            ("secret_file = ''", "is not the path of a file"),
            ("audience = ''", "is not a name"),
            ("leeway = '2h'", "out of range"),
            ("jwks_refresh = '1s'", "out of range"),
        ] {
            let error = settings(&format!("[jwt]\n{line}")).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for good in ["http://127.0.0.1:80/k", "http://[::1]/", "http://localhost", "https://a:1"] {
            assert!(settings(&format!("[jwt]\njwks_url = '{good}'")).is_ok(), "{good}");
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (text, unix_s) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2100-03-01", 4_107_542_400),
        ] {
            assert_eq!(parse_moment(text), Ok(unix_s));
            assert!(date_of(unix_s).starts_with(text), "{}", date_of(unix_s));
        }
        assert!(parse_moment("1969-12-31").is_err() && parse_moment("2023-02-29").is_err());
    }

    #[test]
    fn any_moment_is_printed_as_it_is_read() {
        // A step that is no part of a day, a year or a cycle of years.
        for unix_s in (0..250_000_000_000).step_by(1_234_567) {
            assert_eq!(parse_moment(&date_of(unix_s)), Ok(unix_s));
        }
    }
}
