//! Many values in one request: `/-/values` in JSON, and the configured look-up routes.

use crate::config::Lookup;
use crate::context::Exchange;
use crate::limits::{GATHER_BYTES, MANY_BYTES_MAX};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;
use std::sync::Arc;
use stentor_hub::{Embed, Hub, Message};
use stentor_wire::http1::Head;
use stentor_wire::lookup::{Template, json_string, names};
use stentor_wire::negotiate::tag_matches;
use stentor_wire::status::Status;
use stentor_wire::target;

/// `GET /-/values?topic=/a&topic=/b` or `?prefix=/quotes/&names=aapl,msft`: a JSON object.
pub(crate) fn many(x: &mut Exchange<'_>, head: &Head<'_>, query: Option<&[u8]>) {
    let mut body = std::mem::take(&mut x.scratch.body);
    let result = collect_query(x, &mut body, query.unwrap_or_default());
    finish(x, head, "application/json", body, result);
}

/// `GET /list=a,b,c` of a configured route: its own line format, or JSON.
pub(crate) fn lookup(x: &mut Exchange<'_>, head: &Head<'_>, lookup: &Lookup, list: &[u8]) {
    let (list, _) = target::split(list);
    let mut body = std::mem::take(&mut x.scratch.body);
    let result = match &lookup.line {
        Some(line) => collect_lines(x, &mut body, lookup, line, list),
        None => collect_list(x, &mut body, lookup, list),
    };
    finish(x, head, &lookup.content_type, body, result);
}

fn finish(
    x: &mut Exchange<'_>,
    head: &Head<'_>,
    content_type: &str,
    body: Vec<u8>,
    result: Result<Gathered, String>,
) {
    match result {
        Err(reason) => x.reply.refuse(Status::BAD_REQUEST, &reason),
        Ok(_) if body.len() > MANY_BYTES_MAX => x.reply.refuse(Status::BAD_REQUEST, &too_much()),
        Ok(gathered) => {
            x.reply.stats.lookups.add(gathered.names as u64);
            let fields = &mut x.scratch.name;
            fields.clear();
            let _ = write!(fields, "{}~{:016x}", x.shared.hub.epoch(), gathered.fingerprint);
            let unchanged = head.if_none_match.is_some_and(|tags| tag_matches(tags, fields));
            fields.splice(..0, *b"Cache-Control: no-cache\r\nETag: \"");
            fields.extend_from_slice(b"\"\r\n");
            if unchanged {
                x.reply.empty(Status::NOT_MODIFIED, fields);
            } else {
                x.reply.content(Status::OK, content_type, fields, &body);
            }
        }
    }
    // Made, even if it was not sent.
    *x.reply.cost += body.len();
    x.scratch.body = body;
    x.scratch.body.clear();
    x.scratch.body.shrink_to(GATHER_BYTES);
}

/// What a walk over the names has found so far.
#[derive(Debug)]
struct Gathered {
    names: usize,
    names_max: usize,
    /// Stands for the ids of all values in their order: the entity tag of the whole.
    fingerprint: u64,
}

impl Gathered {
    fn new(x: &Exchange<'_>) -> Gathered {
        let names_max = x.settings.limits.names_max;
        // Other settings may mean another format.
        Gathered { names: 0, names_max, fingerprint: 0xcbf2_9ce4_8422_2325 ^ x.generation }
    }

    /// Counts one more name, and refuses what would be too many or too much.
    fn admit(&mut self, body: &[u8]) -> Result<(), String> {
        self.names += 1;
        if self.names > self.names_max {
            return Err(format!("At most {} names may be looked up at once.", self.names_max));
        }
        if body.len() > MANY_BYTES_MAX {
            return Err(too_much());
        }
        Ok(())
    }

    /// Takes note of a value, present or missing.
    fn note(&mut self, message: Option<&Arc<Message>>) {
        let seq = message.map_or(0, |message| message.seq());
        let mixed = (self.fingerprint ^ seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.fingerprint = mixed ^ (mixed >> 32);
    }
}

fn too_much() -> String {
    format!("The values are more than {} KiB together: ask for fewer.", MANY_BYTES_MAX / 1024)
}

fn collect_query(x: &Exchange<'_>, body: &mut Vec<u8>, query: &[u8]) -> Result<Gathered, String> {
    let mut gathered = Gathered::new(x);
    let mut prefix = None;
    let mut list = None;
    body.push(b'{');
    for pair in target::pairs(query) {
        let (key, value) = pair.map_err(|error| format!("The query is broken. {error}"))?;
        match &*key {
            "topic" => member(&x.shared.hub, body, &mut gathered, &value, &value)?,
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
                let topic = format!("{prefix}{name}");
                member(&x.shared.hub, body, &mut gathered, name, &topic)?;
            }
        }
        (None, None) if gathered.names > 0 => {}
        _ => return Err("Say topic=/a&topic=/b, or prefix=/quotes/&names=a,b.".to_owned()),
    }
    body.push(b'}');
    Ok(gathered)
}

fn collect_list(
    x: &mut Exchange<'_>,
    body: &mut Vec<u8>,
    lookup: &Lookup,
    list: &[u8],
) -> Result<Gathered, String> {
    let mut gathered = Gathered::new(x);
    body.push(b'{');
    for name in names(list) {
        let name = name.map_err(|error| format!("A name is broken. {error}"))?;
        let topic = topic_of(lookup, &name, &mut x.scratch.name);
        member(&x.shared.hub, body, &mut gathered, &name, topic)?;
    }
    body.push(b'}');
    Ok(gathered)
}

fn collect_lines(
    x: &mut Exchange<'_>,
    body: &mut Vec<u8>,
    lookup: &Lookup,
    line: &Template,
    list: &[u8],
) -> Result<Gathered, String> {
    let mut gathered = Gathered::new(x);
    for name in names(list) {
        let name = name.map_err(|error| format!("A name is broken. {error}"))?;
        gathered.admit(body)?;
        if !is_harmless(&name) {
            return Err(HARMFUL.to_owned());
        }
        if gathered.names > 1 {
            body.push(b'\n');
        }
        let topic = topic_of(lookup, &name, &mut x.scratch.name);
        x.shared.hub.with_value(topic, |message| {
            gathered.note(message);
            line.write(body, &name, message.map_or(&[], |message| message.data()));
        });
    }
    Ok(gathered)
}

/// Lines are read as script by the pages that ask for them, and the asker chooses the names.
fn is_harmless(name: &str) -> bool {
    let harmful = |c: char| c.is_control() || matches!(c, '"' | '\'' | '`' | '\\' | '<' | '>');
    !name.chars().any(harmful)
}

const HARMFUL: &str = "A name in a line may not hold quotes, backslashes, angle brackets or \
                       control characters: lines are read as script.";

fn topic_of<'a>(lookup: &Lookup, name: &str, buffer: &'a mut Vec<u8>) -> &'a str {
    buffer.clear();
    lookup.topics.write(buffer, name, &[]);
    // A template of text and a name of text make text.
    std::str::from_utf8(buffer).unwrap_or_default()
}

/// One member of a JSON object: the name, and the value of the topic as JSON can hold it.
fn member(
    hub: &Hub,
    body: &mut Vec<u8>,
    gathered: &mut Gathered,
    name: &str,
    topic: &str,
) -> Result<(), String> {
    gathered.admit(body)?;
    if gathered.names > 1 {
        body.push(b',');
    }
    json_string(body, name);
    body.push(b':');
    hub.with_value(topic, |message| {
        gathered.note(message);
        match message {
            None => body.extend_from_slice(b"null"),
            Some(message) => embed(body, message),
        }
    });
    Ok(())
}

fn embed(body: &mut Vec<u8>, message: &Message) {
    match message.embed() {
        Embed::Json => body.extend_from_slice(message.data()),
        Embed::Text => json_string(body, std::str::from_utf8(message.data()).unwrap_or_default()),
        Embed::Bytes => {
            body.extend_from_slice(b"{\"base64\":\"");
            body.extend_from_slice(STANDARD.encode(message.data()).as_bytes());
            body.extend_from_slice(b"\"}");
        }
    }
}
