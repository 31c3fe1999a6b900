//! What readers of streams ask for: queries, and the commands of the subprotocol `stentor.v1`.
//!
//! `/-/events` is ours, so what it does not know is refused: a misspelt parameter would otherwise
//! be a stream that silently is not what was meant. A topic's own path is the publisher's, and
//! pages add what they like to it, such as a number that keeps a cache from answering; there, only
//! what we know is looked at.

use std::borrow::Cow;

use memchr::memchr;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::error::{ErrorCode, Rejection};
use crate::json::{surrogate_fault, without_place};
use crate::pack::{Packed, Packer, Unpacked, Unpacker, format};
use crate::rejections;
use crate::saturating_decimal;
use crate::target::{broken_query, is_ignored, pairs, shortened, unknown_parameter};

/// What a query asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EventsQuery {
    /// Topics and patterns, as asked for: decoded, not checked.
    pub topics: Vec<String>,
    /// The cursor: everything up to this id was seen. Not checked, but not empty.
    pub since: Option<String>,
    /// Whether only the newest message of a topic matters; `None` leaves it to the topic's rule.
    pub latest: Option<bool>,
    /// How many seconds a long-poll may be held.
    pub wait_s: Option<u64>,
}

/// What a client of `stentor.v1` commands. A command that asks for nothing is a ping.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Command {
    /// The reply to the command repeats it.
    pub id: Option<CommandId>,
    /// Topics and patterns to be told of from now on; not checked.
    pub subscribe: Vec<String>,
    /// Topics and patterns to be told of no more; not checked.
    pub unsubscribe: Vec<String>,
    /// The cursor for those subscribed to. Not checked, but not empty.
    pub since: Option<String>,
    /// A token that takes the place of the one before. Not checked.
    pub token: Option<String>,
}

/// The id that a client gives to a command, as JSON: a whole number of 64 bits, or a string of at
/// most 64 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandId(Box<str>);

impl CommandId {
    /// The id as JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// The id of a command that is otherwise not valid, if the command has one that is.
    #[must_use]
    pub fn of_invalid(command: &str) -> Option<CommandId> {
        #[derive(Deserialize)]
        struct IdAlone {
            id: CommandId,
        }
        // The parser would take an array for the members in their order.
        let object = command.trim_start().starts_with('{').then_some(command)?;
        serde_json::from_str::<IdAlone>(object).ok().map(|command| command.id)
    }
}

impl<'de> Deserialize<'de> for CommandId {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<CommandId, D::Error> {
        let value = serde_json::Value::deserialize(input)?;
        let is_id = match &value {
            serde_json::Value::Number(number) => number.is_u64() || number.is_i64(),
            serde_json::Value::String(text) => text.len() <= COMMAND_ID_BYTES_MAX,
            _ => false,
        };
        let invalid = "the id of a command must be a whole number, or a string of at most 64 bytes";
        if is_id { Ok(CommandId(value.to_string().into())) } else { Err(D::Error::custom(invalid)) }
    }
}

impl Packed for CommandId {
    const FORMAT: u64 = format("command id", &[]);

    fn pack(&self, out: &mut Packer) {
        self.0.to_string().pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<CommandId> {
        Ok(CommandId(String::unpack(input)?.into()))
    }
}

/// Reads the query of `/-/events`: `topic`, of which there may be `topics_max`, `since` or
/// `last_event_id` (under any name that clients give it), `mode` and `wait`. Parameters of
/// [`is_ignored`] are no part of what is asked for.
///
/// An empty cursor is none. `last_event_id` is where the reader is, and wins over `since`, which is
/// where it began. Of any other parameter that is repeated the last one counts.
///
/// # Errors
///
/// A parameter that is unknown or broken, or too many topics.
pub fn parse_query(query: &[u8], topics_max: usize) -> Result<EventsQuery, Rejection> {
    let mut reading = QueryReader::default();
    for piece in pieces(query) {
        let (name, value) = decoded(piece)?;
        // Lists of other clients are called so.
        if matches!(&*name, "topic" | "topic[]") {
            if reading.query.topics.len() == topics_max {
                return Err(too_many_topics(format!(
                    "At most {topics_max} topics may be asked for at once."
                )));
            }
            reading.query.topics.push(value.into_owned());
        } else if !is_ignored(&name) && !reading.parameter(&name, &value)? {
            return Err(unknown_parameter(
                &name,
                &["topic", "since", "last_event_id", "mode", "wait"],
            ));
        }
    }
    Ok(reading.finish())
}

/// Reads the query of a topic's own path: as [`parse_query`] does, without `topic`. What is not
/// known is passed over, broken or not.
///
/// # Errors
///
/// A parameter that is known and broken.
pub fn parse_topic_query(query: &[u8]) -> Result<EventsQuery, Rejection> {
    let mut reading = QueryReader::default();
    for piece in pieces(query) {
        let name = name_of(piece);
        if matches!(name, b"since" | b"mode" | b"wait") || is_last_event_id(name) {
            let (name, value) = decoded(piece)?;
            reading.parameter(&name, &value)?;
        }
    }
    Ok(reading.finish())
}

/// Whether a query asks for a long-poll, by the parameter `wait`.
#[must_use]
pub fn names_wait(query: &[u8]) -> bool {
    pieces(query).any(|piece| name_of(piece) == b"wait")
}

/// Whether a query names the cursor of a reader.
#[must_use]
pub fn names_cursor(query: &[u8]) -> bool {
    let is_cursor = |name: &[u8]| name == b"since" || is_last_event_id(name);
    pieces(query).any(|piece| is_cursor(name_of(piece)))
}

/// Counts the topics that a query of `/-/events` names. It may count more if [`parse_query`]
/// refuses the query.
#[must_use]
pub fn topics_named(query: &[u8]) -> usize {
    let is_other = |name: &[u8]| {
        matches!(name, b"since" | b"mode" | b"wait" | b"access_token" | [b'_', ..])
            || is_last_event_id(name)
    };
    pieces(query).filter(|piece| !is_other(name_of(piece))).count()
}

/// Whether a parameter is the cursor of a client that connects again: `last_event_id`. Libraries
/// call it `lastEventId`, `lastEventID` and `Last-Event-ID`, too.
fn is_last_event_id(name: &[u8]) -> bool {
    let letters = name.iter().filter(|byte| !matches!(byte, b'-' | b'_'));
    letters.map(u8::to_ascii_lowercase).eq(*b"lasteventid")
}

fn pieces(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|&byte| byte == b'&').filter(|piece| !piece.is_empty())
}

fn name_of(piece: &[u8]) -> &[u8] {
    &piece[..memchr(b'=', piece).unwrap_or(piece.len())]
}

/// Name and value of one piece. A cursor that cannot be decoded is one that means nothing, which is
/// for the reader to be told in the stream: an error would keep it from coming back.
fn decoded(piece: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), Rejection> {
    match (pairs(piece).next(), name_of(piece)) {
        (Some(Ok(pair)), _) => Ok(pair),
        (_, b"since") => Ok((Cow::Borrowed("since"), Cow::Borrowed(NO_CURSOR))),
        (_, name) if is_last_event_id(name) => {
            Ok((Cow::Borrowed("last_event_id"), Cow::Borrowed(NO_CURSOR)))
        }
        _ => Err(broken_query()),
    }
}

/// Reads a command of `stentor.v1`: a JSON object whose members are all optional. They are the
/// lists `subscribe` and `unsubscribe`, of at most `topics_max` names each, the strings `since` and
/// `token`, and `id`.
///
/// # Errors
///
/// Why the command is rejected; the server sends it back as `error`.
pub fn parse_command(text: &str, topics_max: usize) -> Result<Command, Rejection> {
    let invalid = |detail: String| Rejection::because(ErrorCode::CommandInvalid, detail);
    // A list of them would be read as well, by its order, which nobody has agreed on.
    if !text.trim_start().starts_with('{') {
        return Err(NOT_AN_OBJECT);
    }
    let mut command: Command = serde_json::from_str(text).map_err(|error| {
        let broken = || format!("The command is broken: {}.", shortened(&without_place(&error)));
        invalid(surrogate_fault(text, &error).unwrap_or_else(broken))
    })?;
    if command.subscribe.len().max(command.unsubscribe.len()) > topics_max {
        return Err(too_many_topics(format!("At most {topics_max} topics may be named at once.")));
    }
    command.since = command.since.filter(|since| !since.is_empty());
    Ok(command)
}

/// A query that is being read.
#[derive(Default)]
struct QueryReader {
    query: EventsQuery,
    last_event_id: Option<String>,
}

impl QueryReader {
    /// Takes one parameter. Returns whether it is known.
    fn parameter(&mut self, name: &str, value: &str) -> Result<bool, Rejection> {
        let cursor = || (!value.is_empty()).then(|| value.to_owned());
        match name {
            "since" => self.query.since = cursor(),
            name if is_last_event_id(name.as_bytes()) => self.last_event_id = cursor(),
            "mode" => {
                self.query.latest = Some(match value {
                    "latest" => true,
                    "all" => false,
                    _ => return Err(BAD_MODE),
                });
            }
            "wait" => {
                let seconds = saturating_decimal(value.as_bytes());
                self.query.wait_s = Some(seconds.ok_or(BAD_WAIT)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(mut self) -> EventsQuery {
        self.query.since = self.last_event_id.or(self.query.since);
        self.query
    }
}

fn too_many_topics(detail: String) -> Rejection {
    Rejection::because(ErrorCode::SubscriptionLimit, detail)
}

rejections! {
    NOT_AN_OBJECT: CommandInvalid = "A command must be a JSON object.";
    BAD_MODE: ParameterInvalid = "The parameter mode must be all or latest.";
    BAD_WAIT: ParameterInvalid = "The parameter wait must be a whole number of seconds.";
}

/// The longest id of a command that is a string, in bytes.
const COMMAND_ID_BYTES_MAX: usize = 64;

/// What stands for a cursor that cannot be read: no id looks like it.
const NO_CURSOR: &str = "?";

#[cfg(test)]
mod tests;
