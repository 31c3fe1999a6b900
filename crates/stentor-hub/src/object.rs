//! The message object: a message as JSON, the same wherever it goes in or out.
//!
//! Streams and long-polls send it as the envelope (`form.rs`), `stentor sub --json` and `stentor
//! store export` write it, and `/-/publish` and `stentor store import` read it. The member that
//! holds the data follows from the content type, in both directions:
//!
//! | content type | data | member |
//! |---|---|---|
//! | JSON | valid JSON | `data`: that value |
//! | another | UTF-8 | `data`: a string |
//! | any | anything else | `data_base64` |

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::json::{surrogate_fault, without_place};
use stentor_wire::rejections;
use stentor_wire::target::cut;

use crate::field::{CacheControl, ContentType, EventName};
use crate::message::Draft;

/// A message or a deletion, as a client or a file writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageObject<'a> {
    /// Its topic; not checked.
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
    /// Its id; an import reads it.
    #[serde(borrow)]
    pub id: Option<Cow<'a, str>>,
    /// When it was published, as in RFC 3339; an import reads it.
    #[serde(borrow)]
    pub published_at: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    content_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    cache_control: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    data_base64: Option<Cow<'a, str>>,
    /// The topic is deleted.
    #[serde(default)]
    pub deleted: bool,
    /// Of a deletion, the number of the topic's last value; an import reads it.
    pub last_seq: Option<u64>,
}

/// A member that is there; `null` is a value.
fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

impl<'a> MessageObject<'a> {
    /// Reads one object.
    ///
    /// # Errors
    ///
    /// If the text is no JSON object, or has a member that is not known.
    pub fn parse(text: &'a str) -> Result<MessageObject<'a>, Rejection> {
        // Files that an editor of Windows has written begin with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // The parser would take an array for the members in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(NO_OBJECT);
        }
        serde_json::from_str(text).map_err(|error| broken(text, &error))
    }

    /// Makes sure that a deletion describes no message.
    ///
    /// # Errors
    ///
    /// If it has data or what describes data.
    pub fn expect_no_data(&self) -> Result<(), Rejection> {
        let has_data = self.data.is_some() || self.data_base64.is_some();
        let has_more =
            self.content_type.is_some() || self.event.is_some() || self.cache_control.is_some();
        if has_data || has_more { Err(DELETION_ALONE) } else { Ok(()) }
    }

    /// The message that it describes. `default` is the content type of a message that names none.
    ///
    /// # Errors
    ///
    /// If it has no data or two, if its data does not suit its content type, or if another member
    /// is not valid.
    pub fn draft(&self, default: Option<&ContentType>) -> Result<Draft, Rejection> {
        self.draft_with(default, EventName::parse_published)
    }

    /// The message that it describes, of a store whose version may have reserved fewer event names.
    ///
    /// # Errors
    ///
    /// As [`MessageObject::draft`].
    pub fn stored_draft(&self) -> Result<Draft, Rejection> {
        self.draft_with(None, EventName::parse)
    }

    fn draft_with(
        &self,
        default: Option<&ContentType>,
        parse_event: fn(&str) -> Result<EventName, Rejection>,
    ) -> Result<Draft, Rejection> {
        let named = self.content_type.as_deref().map(ContentType::parse).transpose()?;
        let named = named.or_else(|| default.cloned());
        let (data, content_type): (Box<[u8]>, _) = match (self.data, &self.data_base64) {
            (Some(data), None) => of_json(data.get(), named)?,
            (None, Some(base64)) => {
                let data = STANDARD.decode(&**base64).map_err(|error| {
                    let detail = format!("data_base64 is no base64: {error}.");
                    Rejection::because(ErrorCode::LineInvalid, detail)
                })?;
                (data.into(), named.unwrap_or(ContentType::OCTETS))
            }
            _ => return Err(DATA_ONCE),
        };
        let mut draft = Draft::new(data).published_as(content_type);
        if let Some(event) = &self.event {
            draft = draft.with_event(parse_event(event)?);
        }
        if let Some(directives) = &self.cache_control {
            draft = draft.with_cache_control(CacheControl::parse(directives)?);
        }
        Ok(draft)
    }
}

/// The bytes and the content type of the member `data`, which is this JSON.
fn of_json(json: &str, named: Option<ContentType>) -> Result<(Box<[u8]>, ContentType), Rejection> {
    let is_string = json.starts_with('"');
    let content_type =
        named.unwrap_or(if is_string { ContentType::TEXT } else { ContentType::JSON });
    match (content_type.is_json(), is_string) {
        (true, _) => Ok((json.as_bytes().into(), content_type)),
        (false, false) => Err(JSON_WITHOUT_TYPE),
        (false, true) => {
            let text: Cow<'_, str> = match unescaped(json) {
                Some(text) => Cow::Borrowed(text),
                None => {
                    serde_json::from_str::<String>(json).map_err(|it| broken(json, &it))?.into()
                }
            };
            Ok((text.as_bytes().into(), content_type))
        }
    }
}

/// The text of a JSON string that has no escapes, without copying it.
fn unescaped(json: &str) -> Option<&str> {
    let text = json.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', text.as_bytes()).is_none().then_some(text)
}

/// Rejects text that is no message object.
fn broken(text: &str, error: &serde_json::Error) -> Rejection {
    let detail = surrogate_fault(text, error).unwrap_or_else(|| {
        format!("The line is not a valid message: {}.", cut(&without_place(error)))
    });
    Rejection::because(ErrorCode::LineInvalid, detail)
}

rejections! {
    NO_OBJECT: LineInvalid = "A message must be a JSON object.";
    DATA_ONCE: LineInvalid =
        "A message has either data or data_base64, and a deletion has neither.";
    DELETION_ALONE: LineInvalid = "A deletion has a topic, and no members of a message.";
    JSON_WITHOUT_TYPE: LineInvalid =
        "Only a string can have this content type: name a JSON type, or send data_base64.";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Vec<u8>, String), String> {
        let object = MessageObject::parse(line).map_err(String::from)?;
        let draft = object.draft(None).map_err(String::from)?;
        let message = crate::Message::fixed(draft, crate::Epoch::from_number(1), 1);
        Ok((message.data().to_vec(), message.content_type().to_owned()))
    }

    #[test]
    fn data_follows_the_content_type() {
        let rows: [(&str, &[u8], &str); 7] = [
            (r#"{"topic":"/a","data":"x"}"#, b"x", "text/plain; charset=utf-8"),
            (r#"{"topic":"/a","data":{"b": 1}}"#, br#"{"b": 1}"#, "application/json"),
            (r#"{"topic":"/a","data":null}"#, b"null", "application/json"),
            (
                r#"{"topic":"/a","type":"application/json","data":"x"}"#,
                br#""x""#,
                "application/json",
            ),
            (r#"{"topic":"/a","type":"text/html","data":"a\nb"}"#, b"a\nb", "text/html"),
            (r#"{"topic":"/a","data_base64":"/wA="}"#, b"\xff\0", "application/octet-stream"),
            (
                r#"{"topic":"/a","id":"6525b080-1","published_at":"x","type":"a/b","data":""}"#,
                b"",
                "a/b",
            ),
        ];
        for (line, data, content_type) in rows {
            assert_eq!(read(line), Ok((data.to_vec(), content_type.to_owned())), "{line}");
        }
    }

    #[test]
    fn invalid_objects_are_rejected() {
        let rows = [
            (r#"["/a","x"]"#, "must be a JSON object"),
            (r#"{"topic":"/a","dat":1}"#, "unknown field `dat`"),
            (r#"{"topic":"/a"}"#, "either data or data_base64"),
            (r#"{"topic":"/a","data":1,"data_base64":""}"#, "either data or data_base64"),
            (r#"{"topic":"/a","type":"text/plain","data":1}"#, "Only a string"),
            (r#"{"topic":"/a","data_base64":"?"}"#, "no base64"),
            (r#"{"topic":"/a","data":"x","event":"stentor"}"#, "reserved"),
        ];
        for (line, reason) in rows {
            let error = read(line).unwrap_err();
            assert!(error.contains(reason) && !error.contains("line 1"), "{line}: {error}");
        }
    }
}
