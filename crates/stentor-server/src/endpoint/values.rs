//! Many values in one request: `/-/values` in JSON, and the configured look-up routes.
//!
//! The request is read whole before the first value is: then all of them are looked up together,
//! so that the memory of one is fetched while that of another is waited for.

use crate::config::Lookup;
use crate::context::Exchange;
use crate::limits::{GATHER_BYTES, MANY_BYTES_MAX};
use std::borrow::Cow;
use std::io::Write;
use stentor_hub::Message;
use stentor_wire::http1::Head;
use stentor_wire::lookup::{Template, json_string, names};
use stentor_wire::negotiate::tag_matches;
use stentor_wire::status::Status;
use stentor_wire::target;

/// `GET /-/values?topic=/a&topic=/b` or `?prefix=/quotes/&names=aapl,msft`: a JSON object.
pub(crate) fn many(x: &mut Exchange<'_>, head: &Head<'_>, query: Option<&[u8]>) {
    let query = query.unwrap_or_default();
    let result = answer(x, Shape::Json, |wanted| wanted.by_query(query));
    finish(x, head, "application/json", result);
}

/// `GET /list=a,b,c` of a configured route: its own line format, or JSON.
pub(crate) fn lookup(x: &mut Exchange<'_>, head: &Head<'_>, lookup: &Lookup, list: &[u8]) {
    let (list, _) = target::split(list);
    let shape = lookup.line.as_ref().map_or(Shape::Json, Shape::Lines);
    let result = answer(x, shape, |wanted| wanted.by_list(lookup, list));
    finish(x, head, &lookup.content_type, result);
}

/// What an answer looks like.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// An object: name to value.
    Json,
    /// A line for each name.
    Lines(&'a Template),
}

/// The names that were asked for, and the topics they stand for.
struct Wanted<'q> {
    names: Vec<(Cow<'q, str>, usize)>,
    /// The topics one behind the other; each name knows where its topic ends.
    topics: Vec<u8>,
    names_max: usize,
    /// Names that may not stand in script are refused.
    harmless: bool,
}

impl<'q> Wanted<'q> {
    fn by_query(&mut self, query: &'q [u8]) -> Result<(), String> {
        let mut prefix = None;
        let mut list = None;
        for pair in target::pairs(query) {
            let (key, value) = pair.map_err(|error| format!("The query is broken. {error}"))?;
            match &*key {
                "topic" => {
                    self.topics.extend_from_slice(value.as_bytes());
                    self.add(value)?;
                }
                "prefix" => prefix = Some(value),
                "names" => list = Some(value),
                other => {
                    return Err(format!(
                        "There is no parameter '{}'; there are topic, or prefix and names.",
                        other.escape_debug()
                    ));
                }
            }
        }
        match (prefix, list) {
            (Some(prefix), Some(list)) => {
                for name in list.split(',') {
                    self.topics.extend_from_slice(prefix.as_bytes());
                    self.topics.extend_from_slice(name.as_bytes());
                    self.add(Cow::Owned(name.to_owned()))?;
                }
                Ok(())
            }
            (None, None) if !self.names.is_empty() => Ok(()),
            _ => Err("Say topic=/a&topic=/b, or prefix=/quotes/&names=a,b.".to_owned()),
        }
    }

    fn by_list(&mut self, lookup: &Lookup, list: &'q [u8]) -> Result<(), String> {
        for name in names(list) {
            let name = name.map_err(|error| format!("A name is broken. {error}"))?;
            lookup.topics.write(&mut self.topics, &name, &[]);
            self.add(name)?;
        }
        Ok(())
    }

    /// Adds a name whose topic has just been written.
    fn add(&mut self, name: Cow<'q, str>) -> Result<(), String> {
        if self.names.len() == self.names_max {
            return Err(format!("At most {} names may be looked up at once.", self.names_max));
        }
        if self.harmless && !is_harmless(&name) {
            return Err(HARMFUL.to_owned());
        }
        self.names.push((name, self.topics.len()));
        Ok(())
    }

    fn topics(&self) -> impl Iterator<Item = &str> {
        let mut from = 0;
        self.names.iter().map(move |(_, end)| {
            let topic = &self.topics[std::mem::replace(&mut from, *end)..*end];
            // Templates and names are text, and so is what they make.
            std::str::from_utf8(topic).unwrap_or_default()
        })
    }
}

/// Lines are read as script by the pages that ask for them, and the asker chooses the names.
fn is_harmless(name: &str) -> bool {
    let harmful = |c: char| c.is_control() || matches!(c, '"' | '\'' | '`' | '\\' | '<' | '>');
    !name.chars().any(harmful)
}

const HARMFUL: &str = "A name in a line may not hold quotes, backslashes, angle brackets or \
                       control characters: lines are read as script.";

/// Reads what is asked for by `read`, and makes the answer in the scratch body. Returns a number
/// that stands for the ids of all values in their order: the entity tag of the whole.
fn answer<'q>(
    x: &mut Exchange<'_>,
    shape: Shape<'_>,
    read: impl FnOnce(&mut Wanted<'q>) -> Result<(), String>,
) -> Result<u64, String> {
    let mut wanted = Wanted {
        names: Vec::with_capacity(NAMES_USUAL),
        topics: std::mem::take(&mut x.scratch.name),
        names_max: x.settings.limits.names_max,
        harmless: matches!(shape, Shape::Lines(_)),
    };
    wanted.topics.clear();
    let read = read(&mut wanted);
    // Other settings may mean another format.
    let mut fingerprint = 0xcbf2_9ce4_8422_2325 ^ x.generation;
    let mut too_much = false;
    if read.is_ok() {
        let body = &mut x.scratch.body;
        let mut names = wanted.names.iter().map(|(name, _)| &**name).enumerate();
        body.extend_from_slice(shape.before());
        x.shared.hub.with_values(wanted.topics(), |message| {
            let seq = message.map_or(0, |message| message.seq());
            let mixed = (fingerprint ^ seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            fingerprint = mixed ^ (mixed >> 32);
            too_much |= body.len() > MANY_BYTES_MAX;
            if let (false, Some((index, name))) = (too_much, names.next()) {
                shape.write(body, index, name, message.map(AsRef::as_ref));
            }
        });
        body.extend_from_slice(shape.after());
        too_much |= body.len() > MANY_BYTES_MAX;
    }
    x.reply.stats.lookups.add(wanted.names.len() as u64);
    x.scratch.name = wanted.topics;
    read?;
    if too_much {
        let max = MANY_BYTES_MAX / 1024;
        return Err(format!("The values are more than {max} KiB together: ask for fewer."));
    }
    Ok(fingerprint)
}

impl Shape<'_> {
    fn before(self) -> &'static [u8] {
        if matches!(self, Shape::Json) { b"{" } else { b"" }
    }

    fn after(self) -> &'static [u8] {
        if matches!(self, Shape::Json) { b"}" } else { b"" }
    }

    fn write(self, body: &mut Vec<u8>, index: usize, name: &str, message: Option<&Message>) {
        match self {
            Shape::Json => {
                if index > 0 {
                    body.push(b',');
                }
                json_string(body, name);
                body.push(b':');
                match message {
                    Some(message) => message.write_json(body),
                    None => body.extend_from_slice(b"null"),
                }
            }
            Shape::Lines(line) => {
                if index > 0 {
                    body.push(b'\n');
                }
                line.write(body, name, message.map_or(&[], Message::data));
            }
        }
    }
}

fn finish(
    x: &mut Exchange<'_>,
    head: &Head<'_>,
    content_type: &str,
    fingerprint: Result<u64, String>,
) {
    match fingerprint {
        Err(reason) => x.reply.refuse(Status::BAD_REQUEST, &reason),
        Ok(fingerprint) => {
            let fields = &mut x.scratch.name;
            fields.clear();
            let _ = write!(fields, "{}~{fingerprint:016x}", x.shared.hub.epoch());
            let unchanged = head.if_none_match.is_some_and(|tags| tag_matches(tags, fields));
            fields.splice(..0, *b"Cache-Control: no-cache\r\nETag: \"");
            fields.extend_from_slice(b"\"\r\n");
            if unchanged {
                x.reply.empty(Status::NOT_MODIFIED, fields);
            } else {
                fields.extend_from_slice(NO_SNIFFING);
                x.reply.content(Status::OK, content_type, fields, &x.scratch.body);
            }
        }
    }
    // Made, even if it was not sent.
    *x.reply.cost += x.scratch.body.len();
    for buffer in [&mut x.scratch.body, &mut x.scratch.name] {
        buffer.clear();
        buffer.shrink_to(GATHER_BYTES);
    }
}

/// What others published is never taken for more than its type says.
pub(crate) const NO_SNIFFING: &[u8] = b"X-Content-Type-Options: nosniff\r\n";

/// Room for the names of most requests.
const NAMES_USUAL: usize = 16;
