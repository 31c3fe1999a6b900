//! What stands in a token: its header and its claims, read strictly.
//!
//! Readers of JSON differ in what they make of a name that is there twice, and of what they do not
//! know. Where a token passes several hands, that is how one of them is made to see another token
//! than the next. So a name that is there twice is refused, whether it is one that is looked at or
//! not; so are a claim of the wrong type, and anything under `stentor` that is not known: it may
//! have been meant to forbid something. What is inside of other claims is nobody's business here.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::patterns::Patterns;
use crate::permissions::Permissions;

/// What is looked at of a header (RFC 7515, 4.1). Keys that a token brings (`jwk`, `jku`, `x5c`,
/// `x5u`) are not: anyone can make a key.
#[derive(Default, Debug)]
pub(crate) struct Header<'a> {
    pub(crate) alg: Option<Cow<'a, str>>,
    pub(crate) kid: Option<Cow<'a, str>>,
    pub(crate) typ: Option<Cow<'a, str>>,
    /// Whether it asks for extensions. None is known here.
    pub(crate) has_crit: bool,
}

/// What is looked at of the claims (RFC 7519, 4.1).
#[derive(Default, Debug)]
pub(crate) struct Claims<'a> {
    /// In seconds since 1970, rounded down.
    pub(crate) exp: Option<u64>,
    /// Rounded up.
    pub(crate) nbf: Option<u64>,
    pub(crate) iss: Option<Cow<'a, str>>,
    pub(crate) sub: Option<Cow<'a, str>>,
    /// One name, or a list.
    pub(crate) aud: Option<Vec<String>>,
    /// What the claim `stentor` says. A token without it allows nothing.
    pub(crate) permissions: Option<Permissions>,
}

/// Reads a header.
///
/// # Errors
///
/// What is wrong with it, for the owner's log.
pub(crate) fn header(json: &[u8]) -> Result<Header<'_>, String> {
    let mut header = Header::default();
    for (name, value) in members(json)? {
        match &*name {
            "alg" => header.alg = Some(text(&name, value)?),
            "kid" => header.kid = Some(text(&name, value)?),
            "typ" => header.typ = Some(text(&name, value)?),
            "crit" => header.has_crit = true,
            _ => {}
        }
    }
    Ok(header)
}

/// Reads claims.
///
/// # Errors
///
/// What is wrong with them, for the owner's log.
pub(crate) fn claims(json: &[u8]) -> Result<Claims<'_>, String> {
    let mut claims = Claims::default();
    for (name, value) in members(json)? {
        match &*name {
            "exp" => claims.exp = Some(seconds(&name, value, f64::floor)?),
            "nbf" => claims.nbf = Some(seconds(&name, value, f64::ceil)?),
            "iss" => claims.iss = Some(text(&name, value)?),
            "sub" => claims.sub = Some(text(&name, value)?),
            "aud" => claims.aud = Some(audience(value)?),
            "stentor" => claims.permissions = Some(permissions(value)?),
            _ => {}
        }
    }
    Ok(claims)
}

/// The members of an object, each name once.
fn members(json: &[u8]) -> Result<Vec<(Cow<'_, str>, &RawValue)>, String> {
    let json = str::from_utf8(json).map_err(|_| "it is not UTF-8")?;
    if is_deep(json) {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    let Members(members) = serde_json::from_str(json).map_err(plain)?;
    Ok(members)
}

/// Whether arrays and objects are nested too deep. Nothing else is asked of the text: if it is no
/// JSON, the parser will say so.
fn is_deep(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Members<'a>, D::Error> {
        source.deserialize_map(MembersVisitor).map(Members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some(JsonText(name)) = map.next_key()? {
            if members.iter().any(|(other, _)| *other == name) {
                let name = name.escape_debug();
                return Err(A::Error::custom(format!("the name '{name}' is there twice")));
            }
            // Names are compared with one another, so there must not be too many.
            if members.len() == MEMBERS_MAX {
                return Err(A::Error::custom(format!("more than {MEMBERS_MAX} members")));
            }
            members.push((name, map.next_value()?));
        }
        Ok(members)
    }
}

/// A string, borrowed if there is nothing to unescape.
#[derive(Deserialize)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

fn text<'a>(name: &str, value: &'a RawValue) -> Result<Cow<'a, str>, String> {
    let text = serde_json::from_str::<JsonText<'a>>(value.get());
    text.map(|text| text.0).map_err(|_| format!("'{name}' is not a string"))
}

/// A time, which may have a fraction. What lies behind the year 9999 was not meant: it is in
/// milliseconds, and would be as good as no end.
fn seconds(name: &str, value: &RawValue, round: fn(f64) -> f64) -> Result<u64, String> {
    let number = serde_json::from_str::<f64>(value.get());
    let number = number.map_err(|_| format!("'{name}' is not a number"))?;
    if !(0.0..=SECONDS_MAX).contains(&number) {
        return Err(format!("'{name}' is not a time in seconds since 1970"));
    }
    // It is a whole number below 2^53.
    Ok(round(number) as u64)
}

fn audience(value: &RawValue) -> Result<Vec<String>, String> {
    if let Ok(names) = serde_json::from_str::<Vec<String>>(value.get()) {
        return Ok(names);
    }
    let one = serde_json::from_str::<String>(value.get());
    one.map(|name| vec![name])
        .map_err(|_| "'aud' is neither a string nor a list of strings".to_owned())
}

/// The claim `stentor`.
fn permissions(value: &RawValue) -> Result<Permissions, String> {
    let mut permissions = Permissions::default();
    for (name, value) in members(value.get().as_bytes()).map_err(|error| in_claim(&error))? {
        let list = match &*name {
            "publish" => &mut permissions.publish,
            "read" => &mut permissions.read,
            other => return Err(in_claim(&format!("'{}' is not known", other.escape_debug()))),
        };
        let texts = serde_json::from_str::<Vec<JsonText<'_>>>(value.get());
        let texts = texts.map_err(|_| in_claim(&format!("'{name}' is not a list of strings")))?;
        *list = Patterns::parse(texts.iter().map(|text| &*text.0)).map_err(|e| in_claim(&e))?;
    }
    Ok(permissions)
}

fn in_claim(error: &str) -> String {
    format!("in 'stentor': {error}")
}

/// What the parser says, without the place: nobody sees the text it is in.
fn plain(error: serde_json::Error) -> String {
    let error = error.to_string();
    match error.rsplit_once(" at line ") {
        Some((error, _)) => error.to_owned(),
        None => error,
    }
}

/// Claims that are used are nested three deep; others may be a little deeper.
const DEPTH_MAX: usize = 16;

/// Issuers add some thirty of their own.
const MEMBERS_MAX: usize = 100;

/// The end of the year 9999.
const SECONDS_MAX: f64 = 253_402_300_799.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read() {
        let json = br#"{"exp":1700000000.9,"nbf":5.1,"iss":"i","sub":"a\u0062","aud":["x","y"],
            "stentor":{"publish":["/a/**"],"read":["/b","/c/*"]},
            "other":{"a":[{"b":[]}]},"mercure":{"publish":["*"],"subscribe":["*"]}}"#;
        let claims = claims(json).unwrap();
        assert_eq!((claims.exp, claims.nbf), (Some(1_700_000_000), Some(6)));
        assert_eq!(claims.iss.as_deref(), Some("i"));
        assert_eq!(claims.sub.as_deref(), Some("ab"));
        assert_eq!(claims.aud.unwrap(), ["x", "y"]);
        let permissions = claims.permissions.unwrap();
        assert!(
            permissions.publish.borrowed().matches("/a/b/c")
                && !permissions.publish.borrowed().matches("/b")
        );
        assert!(
            permissions.read.borrowed().matches("/c/d")
                && !permissions.read.borrowed().matches("/a/b/c")
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (json, reason) in [
            (r#"{"exp":1,"exp":2}"#, "the name 'exp' is there twice"),
            (r#"{"x":1,"\u0078":2}"#, "the name 'x' is there twice"),
            (r#"{"exp":"1"}"#, "'exp' is not a number"),
            (r#"{"exp":null}"#, "'exp' is not a number"),
            (r#"{"exp":-1}"#, "'exp' is not a time"),
            (r#"{"exp":1700000000000}"#, "'exp' is not a time"),
            (r#"{"exp":1e400}"#, "'exp' is not a number"),
            (r#"{"nbf":true}"#, "'nbf' is not a number"),
            (r#"{"iss":["a"]}"#, "'iss' is not a string"),
            (r#"{"sub":1}"#, "'sub' is not a string"),
            (r#"{"aud":{}}"#, "'aud' is neither"),
            (r#"{"aud":["a",1]}"#, "'aud' is neither"),
            (r#"{"stentor":null}"#, "in 'stentor': invalid type: null, expected an object"),
            (r#"{"stentor":{"read":"/a"}}"#, "'read' is not a list of strings"),
            (r#"{"stentor":{"read":[1]}}"#, "'read' is not a list of strings"),
            (r#"{"stentor":{"read":["/a"],"read":[]}}"#, "the name 'read' is there twice"),
            (r#"{"stentor":{"deny":["/a"]}}"#, "'deny' is not known"),
            (r#"{"stentor":{"read":["a"]}}"#, "must begin with '/'"),
            (r#"{"stentor":{"read":["/**/a"]}}"#, "may stand at the end only"),
            ("[]", "expected an object"),
            (r#"{"a":1"#, "EOF"),
            (r#"{"a":1}{}"#, "trailing characters"),
            ("", "EOF"),
        ] {
            let error = claims(json.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{json}: {error}");
        }
        assert!(claims(b"{\"a\":\"\xff\"}").unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn nesting_and_numbers_of_members_are_bounded() {
        let nested =
            |depth: usize| format!(r#"{{"a":{}1{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(claims(nested(15).as_bytes()).is_ok());
        assert!(claims(nested(16).as_bytes()).unwrap_err().contains("nested"));
        assert!(claims(nested(4_000).as_bytes()).unwrap_err().contains("nested"));
        // Brackets in a string nest nothing.
        assert!(claims(br#"{"a":"[[[[[[[[[[[[[[[[[[[[[[[\"[[[["}"#).is_ok());
        let object = |count: usize| {
            let members: Vec<String> = (0..count).map(|i| format!("\"{i}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(claims(object(100).as_bytes()).is_ok());
        assert!(claims(object(101).as_bytes()).unwrap_err().contains("more than 100"));
        let patterns: Vec<String> = (0..101).map(|i| format!("\"/a/{i}\"")).collect();
        let json = format!(r#"{{"stentor":{{"read":[{}]}}}}"#, patterns.join(","));
        assert!(claims(json.as_bytes()).unwrap_err().contains("More than 100 patterns"));
    }
}
