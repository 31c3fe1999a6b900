//! Many values in one request: `/-/values` in JSON, and the configured look-up routes.
//!
//! The request is read whole before the first value is: then all of them are looked up together,
//! so that the memory of one is fetched while that of another is waited for.
//!
//! Nothing is made that is not sent. The server compares a client's tag with the numbers of the
//! values before it writes one of them. It knows how long a value will be before it writes it, so
//! the answer ends at the first that does not fit, and a HEAD is measured only. Beyond the first
//! 64 KiB the connection makes the body in steps, from the messages that were found.

use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::labels::RequestKind;
use crate::large_body::{LargeBody, Mark};
use crate::limits::{GATHER_BYTES, MANY_BYTES_MAX, NAME_COST, PART_BYTES};
use crate::output::detached_share;
use crate::panics::may_panic;
use crate::shared::Shared;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use stentor_config::Lookup;
use stentor_hub::{JsonPlace, Message};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::http1::Request;
use stentor_wire::lookup::{Template, json_string, json_string_len, names};
use stentor_wire::negotiate::tag_matches;
use stentor_wire::rejections;
use stentor_wire::status::Status;
use stentor_wire::target;
use twox_hash::XxHash3_64;

/// `GET /-/values?topic=/a&topic=/b` or `?prefix=/quotes/&names=aapl,msft`: a JSON object.
pub(crate) fn many(x: &mut Exchange<'_>, request: &Request<'_>, query: Option<&[u8]>) -> Answer {
    let query = query.unwrap_or_default();
    let plan = Plan { format: Format::Json, content_type: JSON, caching: Some(CACHING), route: 0 };
    answer(x, request, &plan, |wanted| wanted.by_query(query))
}

/// `GET /list=a,b,c` of a configured route: its own line format, or JSON.
pub(crate) fn lookup(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    index: usize,
    list: &[u8],
) -> Answer {
    let (list, _) = target::split(list);
    let settings = x.settings;
    let lookup = &settings.lookups[index];
    let plan = Plan {
        format: lookup.line.as_ref().map_or(Format::Json, Format::Lines),
        content_type: &lookup.content_type,
        caching: (!lookup.leaves_out_cache_control).then_some(CACHING),
        route: index + 1,
    };
    answer(x, request, &plan, |wanted| wanted.by_list(lookup, list))
}

/// How a route answers.
struct Plan<'a> {
    format: Format<'a>,
    content_type: &'a str,
    /// The value of `Cache-Control`, if the route has one.
    caching: Option<&'static str>,
    /// Where it is counted.
    route: usize,
}

/// What an answer looks like.
#[derive(Clone, Copy)]
enum Format<'a> {
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
    /// Hashes of the names of a query.
    seen: HashSet<u64>,
    /// Names that may not stand in script are refused.
    harmless: bool,
}

impl<'q> Wanted<'q> {
    fn by_query(&mut self, query: &'q [u8]) -> Result<(), Rejection> {
        let mut prefix = None;
        let mut list = None;
        for pair in target::parameters(query, &["topic", "prefix", "names"]) {
            let (key, value) = pair?;
            match &*key {
                "topic" if self.has(&value) => {}
                "topic" => {
                    self.topics.extend_from_slice(value.as_bytes());
                    self.add(value)?;
                }
                "prefix" => prefix = Some(value),
                _ => list = Some(value),
            }
        }
        match (prefix, list) {
            (Some(prefix), Some(list)) => {
                for name in list.split(',') {
                    if self.has(name) {
                        continue;
                    }
                    self.topics.extend_from_slice(prefix.as_bytes());
                    self.topics.extend_from_slice(name.as_bytes());
                    self.add(Cow::Owned(name.to_owned()))?;
                }
                Ok(())
            }
            (None, None) if !self.names.is_empty() => Ok(()),
            _ => Err(NAMES_NOTHING),
        }
    }

    fn by_list(&mut self, lookup: &Lookup, list: &'q [u8]) -> Result<(), Rejection> {
        for name in names(list) {
            let name = name.map_err(|error| {
                Rejection::because(ErrorCode::QueryInvalid, format!("A name is broken. {error}"))
            })?;
            lookup.topics.write(&mut self.topics, &name, &[]);
            self.add(name)?;
        }
        Ok(())
    }

    /// Whether a name was named before: an object has each member once (RFC 8259 section 4).
    fn has(&mut self, name: &str) -> bool {
        !self.seen.insert(XxHash3_64::oneshot(name.as_bytes()))
    }

    /// Adds a name whose topic has just been written.
    fn add(&mut self, name: Cow<'q, str>) -> Result<(), Rejection> {
        if self.names.len() == self.names_max {
            let detail = format!("At most {} names may be looked up at once.", self.names_max);
            return Err(Rejection::because(ErrorCode::TooManyNames, detail));
        }
        if self.harmless && !is_harmless(&name) {
            return Err(HARMFUL);
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

rejections! {
    NAMES_NOTHING: ParameterMissing = "Say topic=/a&topic=/b, or prefix=/quotes/&names=a,b.";
    HARMFUL: NameInvalid =
        "A name in a line may not hold quotes, backslashes, angle brackets or control characters: \
         lines are read as script.";
}

/// Looks up what `read` says is asked for, and answers.
fn answer<'q>(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    plan: &Plan<'_>,
    read: impl FnOnce(&mut Wanted<'q>) -> Result<(), Rejection>,
) -> Answer {
    x.reply.answers.asked.kind = RequestKind::Values;
    let mut wanted = Wanted {
        names: Vec::with_capacity(NAMES_USUAL),
        topics: std::mem::take(&mut x.resources.scratch.name),
        names_max: x.settings.limits.names_max,
        seen: HashSet::new(),
        harmless: matches!(plan.format, Format::Lines(_)),
    };
    wanted.topics.clear();
    let is_read = read(&mut wanted);
    // All that is asked for, or nothing: what is left out would look as if it were not there.
    let denied = match is_read {
        Ok(()) if x.settings.access.topics.has_private() => {
            wanted.topics().try_for_each(|topic| x.may_see(topic)).err()
        }
        _ => None,
    };
    if let Some(denied) = denied {
        x.resources.scratch.name = wanted.topics;
        return x.deny(&denied);
    }
    let found = is_read.and_then(|()| look_up(x, request, plan, &wanted));
    x.resources.scratch.name = wanted.topics;
    let answer = match found {
        Err(rejection) => x.reject(&rejection),
        Ok(found) => write(x, plan, found),
    };
    for buffer in [&mut x.resources.scratch.body, &mut x.resources.scratch.name] {
        buffer.clear();
        buffer.shrink_to(GATHER_BYTES);
    }
    answer
}

/// Writes the response, or its beginning.
fn write(x: &mut Exchange<'_>, plan: &Plan<'_>, found: Found) -> Answer {
    let tag = &mut x.resources.scratch.name;
    tag.clear();
    tag.push(b'"');
    write_tag(tag, x.shared, found.fingerprint);
    tag.push(b'"');
    let status = found.bytes.map_or(Status::NOT_MODIFIED, |_| Status::OK);
    let caching = plan.caching.map(|value| (Field::CACHE_CONTROL, value));
    let head = x.reply.begin(status).fields(caching).field(Field::ETAG, &*tag);
    let Some(bytes) = found.bytes else {
        head.end();
        return Answer::Now;
    };
    let made = &x.resources.scratch.body;
    head.field(Field::NO_SNIFFING, NO_SNIFFING)
        .field(Field::CONTENT_TYPE, plan.content_type)
        .end_with_length(bytes as u64)
        .body(made);
    let rest_bytes = bytes - made.len();
    match found.rest {
        None => Answer::Now,
        Some(rest) => x.answer_in_steps(rest, rest_bytes),
    }
}

/// What a look-up came to.
struct Found {
    fingerprint: u64,
    /// The length of the answer in bytes; `None` if the client has it already.
    bytes: Option<usize>,
    /// The values that are not in the scratch body.
    rest: Option<ValuesBody>,
}

/// Values that were found, from which the body of a response is made.
#[derive(Debug)]
pub(crate) struct ValuesBody {
    /// The line of each name; `None`: a JSON object.
    line: Option<Template>,
    /// The names one behind the other.
    names: String,
    /// Where each name ends, and its value.
    values: Vec<(usize, Option<Arc<Message>>)>,
    /// Whether other values come before these.
    is_continued: bool,
}

impl ValuesBody {
    fn new(format: Format<'_>, is_continued: bool) -> ValuesBody {
        let line = if let Format::Lines(line) = format { Some(line.clone()) } else { None };
        ValuesBody { line, names: String::new(), values: Vec::new(), is_continued }
    }

    fn add(&mut self, name: &str, message: Option<&Arc<Message>>) {
        self.names.push_str(name);
        self.values.push((self.names.len(), message.cloned()));
    }
}

impl LargeBody for ValuesBody {
    fn append(&self, mut mark: Mark, out: &mut Vec<u8>) -> Option<Mark> {
        let format = self.line.as_ref().map_or(Format::Json, Format::Lines);
        let end = out.len() + PART_BYTES;
        while out.len() < end {
            may_panic();
            let Some((name_end, message)) = self.values.get(mark.item) else {
                out.extend_from_slice(format.after());
                return None;
            };
            let before = mark.item.checked_sub(1).map_or(0, |before| self.values[before].0);
            let (name, message) = (&self.names[before..*name_end], message.as_deref());
            let is_first = mark.item == 0 && !self.is_continued;
            mark = match format.write(out, is_first, name, message, (mark.offset, PART_BYTES)) {
                Some(offset) => Mark { offset, ..mark },
                None => Mark { item: mark.item + 1, offset: 0 },
            };
        }
        Some(mark)
    }

    fn own_bytes(&self) -> usize {
        let of_values = self.values.capacity() * size_of::<(usize, Option<Arc<Message>>)>();
        self.names.capacity() + of_values
    }

    fn detached_share(&self) -> usize {
        let dropped = self.values.iter().filter_map(|(_, message)| message.as_ref());
        dropped.map(detached_share).sum()
    }
}

/// Looks up all that is wanted. If the answer is to be sent, its beginning is in the scratch body
/// then.
fn look_up(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    plan: &Plan<'_>,
    wanted: &Wanted<'_>,
) -> Result<Found, Rejection> {
    let Plan { format, route, .. } = *plan;
    x.resources.routes[route].count(wanted.names.len());
    if let Some(tags) = request.if_none_match
        && let Some(fingerprint) = unchanged(x, tags, route, wanted)
    {
        return Ok(Found { fingerprint, bytes: None, rest: None });
    }
    // Values may have changed meanwhile: the tag is of those that are sent.
    let mut fingerprint = Fingerprint::new(x.resources.formats[route]);
    let body = &mut x.resources.scratch.body;
    let renders = !x.reply.shape.head_only;
    let mut names = wanted.names.iter().map(|(name, _)| &**name).enumerate();
    let mut bytes = format.before().len() + format.after().len();
    // Of values that did not fit, and were looked through.
    let mut overlong = 0;
    if renders {
        body.extend_from_slice(format.before());
    }
    let (too_much, mut looked, mut rest) = (Cell::new(false), 0, None);
    let topics = wanted.topics().take_while(|_| !too_much.get());
    x.shared.hub.with_values(topics, |shared| {
        may_panic();
        let message = shared.map(AsRef::as_ref);
        fingerprint.add(message);
        looked += 1;
        let (false, Some((index, name))) = (too_much.get(), names.next()) else { return };
        let room = MANY_BYTES_MAX.saturating_sub(bytes);
        match format.len(index, name, message, room) {
            Some(len) => {
                bytes += len;
                if renders && rest.is_none() && body.len() + len <= PART_BYTES {
                    format.write(body, index == 0, name, message, (0, usize::MAX));
                } else if renders {
                    let new = || ValuesBody::new(format, index > 0);
                    rest.get_or_insert_with(new).add(name, shared);
                }
            }
            None => {
                too_much.set(true);
                // It was looked through, unless its data alone were too long.
                let data_len = message.map_or(0, |message| message.data().len());
                overlong = if data_len > room { 0 } else { data_len };
            }
        }
    });
    if renders && rest.is_none() {
        body.extend_from_slice(format.after());
    }
    // What was measured counts, and what was made does, whether it is sent or not.
    *x.reply.cost += (bytes + overlong) / MEASURED_PER_COST + body.len();
    count(x, looked);
    if too_much.get() {
        let max = MANY_BYTES_MAX / 1024;
        let detail = format!("The values are more than {max} KiB together: ask for fewer.");
        return Err(Rejection::because(ErrorCode::AnswerTooLarge, detail));
    }
    Ok(Found { fingerprint: fingerprint.0, bytes: Some(bytes), rest })
}

/// The fingerprint of the values, if the client has them already by one of its tags.
fn unchanged(x: &mut Exchange<'_>, tags: &[u8], route: usize, wanted: &Wanted<'_>) -> Option<u64> {
    let mut fingerprint = Fingerprint::new(x.resources.formats[route]);
    let topics = wanted.topics();
    x.shared.hub.with_values(topics, |message| fingerprint.add(message.map(AsRef::as_ref)));
    count(x, wanted.names.len());
    let tag = &mut x.resources.scratch.body;
    write_tag(tag, x.shared, fingerprint.0);
    let is_unchanged = tag_matches(tags, tag);
    tag.clear();
    is_unchanged.then_some(fingerprint.0)
}

/// Takes note of so many names that were looked at.
fn count(x: &mut Exchange<'_>, names: usize) {
    x.reply.stats.lookups.add(names as u64);
    *x.reply.cost += names * NAME_COST;
}

/// A number for the format of each route: `/-/values` first, then the configured ones. Tags contain
/// it, and outlive a process and a release, so it depends on the text of the format alone.
pub(crate) fn formats(lookups: &[Lookup]) -> Vec<u64> {
    let format = |line: Option<&Template>, content_type: &str| {
        let line = line.map(|line| format!("{line}\0")).unwrap_or_default();
        XxHash3_64::oneshot((line + content_type).as_bytes())
    };
    let routes = lookups.iter().map(|route| format(route.line.as_ref(), &route.content_type));
    [format(None, JSON)].into_iter().chain(routes).collect()
}

/// A number that stands for the ids of all values in their order: the entity tag of the whole.
struct Fingerprint(u64);

impl Fingerprint {
    fn new(format: u64) -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325 ^ format)
    }

    fn add(&mut self, message: Option<&Message>) {
        let seq = message.map_or(0, Message::seq);
        let mixed = (self.0 ^ seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Appends the entity tag without its quotes.
fn write_tag(out: &mut Vec<u8>, shared: &Shared, fingerprint: u64) {
    // Writing to a vector does not fail.
    let _ = write!(out, "{}~{fingerprint:016x}", shared.hub.epoch());
}

impl Format<'_> {
    fn before(self) -> &'static [u8] {
        if matches!(self, Format::Json) { b"{" } else { b"" }
    }

    fn after(self) -> &'static [u8] {
        if matches!(self, Format::Json) { b"}" } else { b"" }
    }

    /// How many bytes [`Format::write`] appends; `None` if they are more than `room`. What a value
    /// takes at least is known at once; its bytes are looked at only if that fits.
    fn len(
        self,
        index: usize,
        name: &str,
        message: Option<&Message>,
        room: usize,
    ) -> Option<usize> {
        let between = usize::from(index > 0);
        let data = message.map_or(&[][..], Message::data);
        let bytes = match self {
            Format::Json if data.len() > room => return None,
            Format::Json => {
                let value = message.map_or(b"null".len(), |it| it.json_len(JsonPlace::Value));
                json_string_len(name) + b":".len() + value
            }
            Format::Lines(line) => line.written_len(name, data),
        };
        Some(between + bytes).filter(|bytes| *bytes <= room)
    }

    /// Appends a name with its value, from `from` on, and at most about `bytes_max` bytes. Returns
    /// where the rest begins.
    fn write(
        self,
        out: &mut Vec<u8>,
        is_first: bool,
        name: &str,
        message: Option<&Message>,
        (from, bytes_max): (usize, usize),
    ) -> Option<usize> {
        let begins = from == 0;
        match self {
            Format::Json => {
                if begins {
                    out.extend_from_slice(if is_first { b"" } else { b"," });
                    json_string(out, name);
                    out.push(b':');
                }
                let Some(message) = message else {
                    out.extend_from_slice(b"null");
                    return None;
                };
                message.write_json_part(JsonPlace::Value, from, bytes_max, out)
            }
            Format::Lines(line) => {
                if begins && !is_first {
                    out.push(b'\n');
                }
                let to = from.saturating_add(bytes_max);
                let mut at = 0;
                for (_, piece) in line.filled(name, message.map_or(&[], Message::data)) {
                    let within = |end: usize| end.saturating_sub(at).min(piece.len());
                    out.extend_from_slice(&piece[within(from)..within(to)]);
                    at += piece.len();
                }
                (to < at).then_some(to)
            }
        }
    }
}

/// What others published is never taken for more than its type says.
pub(crate) const NO_SNIFFING: &str = "nosniff";

/// What answers say to caches, unless a route leaves it out.
const CACHING: &str = "no-cache";

const JSON: &str = "application/json";

/// To measure so many bytes costs as much as to write one.
const MEASURED_PER_COST: usize = 4;

/// Room for the names of most requests.
const NAMES_USUAL: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Permit;
    use crate::context::Context;
    use crate::listeners::PUBLIC;
    use crate::response::Persistence;
    use crate::simulation::{World, kind, patient};
    use crate::stats::Routes;
    use std::sync::Arc;
    use stentor_config::Settings;
    use stentor_hub::ContentType;
    use stentor_order::Ticket;
    use stentor_wire::http1::{FieldSlots, parse};
    use stentor_wire::lookup::Template;

    /// A world with large values, and a worker's share of it.
    fn setting() -> (World, Context) {
        let world = World::new(1, kind(), patient());
        for topic in ["/fits", "/fits2"] {
            world.publish(topic, vec![b'"'; 500_000], ContentType::TEXT);
        }
        world.publish("/swells", vec![1; 500_000], ContentType::TEXT);
        world.publish("/huge", vec![b'"'; MANY_BYTES_MAX], ContentType::TEXT);
        let cx = world.context(patient());
        (world, cx)
    }

    /// Asks for a look-up: the answer, its cost, and the names looked at.
    fn ask(cx: &mut Context, request: &str) -> (String, usize, u64) {
        let mut slots = FieldSlots::new();
        let request = format!("{request}\r\n\r\n");
        let request = parse(request.as_bytes(), &mut slots).unwrap().request;
        cx.load.budget.cost = 0;
        let before = cx.stats.lookups.value();
        let (path, query) = target::split(request.target);
        let settings = Arc::clone(&cx.settings);
        let persistence = Persistence { keep_alive: true, http10: false };
        let mut x = cx.exchange(PUBLIC, &request, persistence, Ticket::of_nobody(), &Permit::SMALL);
        let answer = match path.strip_prefix(b"/list=") {
            Some(list) => {
                let routes = &settings.lookups;
                let index = routes.iter().position(|route| route.path == "/list=").unwrap();
                lookup(&mut x, &request, index, list)
            }
            None => many(&mut x, &request, query),
        };
        if let Answer::Body(body) = answer {
            let before = cx.out.len();
            body.append_rest(Mark::default(), cx.out.bytes());
            cx.load.budget.cost += cx.out.len() - before;
        }
        let answer = String::from_utf8_lossy(cx.out.bytes()).into_owned();
        cx.out.clear();
        (answer, cx.load.budget.cost, cx.stats.lookups.value() - before)
    }

    fn get(target: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: h")
    }

    fn tag(answer: &str) -> &str {
        answer.split("ETag: ").nth(1).unwrap().lines().next().unwrap()
    }

    const FITS: &str = "/-/values?topic=/small&topic=/fits&topic=/none";

    #[test]
    fn what_the_client_has_is_not_made_again() {
        let (world, mut cx) = setting();
        let (whole, cost, _) = ask(&mut cx, &get(FITS));
        assert!(whole.starts_with("HTTP/1.1 200 ") && cost > 1_200_000, "{cost}");
        let again = format!("{}\r\nIf-None-Match: \"x\", {}", get(FITS), tag(&whole));
        let (answer, cost, names) = ask(&mut cx, &again);
        assert!(answer.starts_with("HTTP/1.1 304 ") && tag(&answer) == tag(&whole), "{answer}");
        assert_eq!((cost, names), (3 * NAME_COST, 3));
        world.publish("/small", b"2".to_vec(), ContentType::TEXT);
        let (answer, ..) = ask(&mut cx, &again);
        assert!(answer.starts_with("HTTP/1.1 200 ") && tag(&answer) != tag(&whole));
        assert!(answer.contains("{\"/small\":\"2\",\"/fits\":\"\\\"\\\""));
    }

    /// Epochs and sequences survive an upgrade and a restart with a store, and the nodes of a
    /// cluster share them, so only the tag tells one format from another.
    #[test]
    fn another_format_has_another_tag_in_each_process() {
        let (world, mut cx) = setting();
        let (old, ..) = ask(&mut cx, &get("/list=small"));
        let again = format!("{}\r\nIf-None-Match: {}", get("/list=small"), tag(&old));
        let mut same = world.context(patient());
        same.configure(Arc::clone(&same.settings));
        assert!(ask(&mut same, &again).0.starts_with("HTTP/1.1 304 "));
        for (line, content_type) in [("v {name} {value}", "text/javascript"), ("", "text/plain")] {
            let mut settings = patient();
            let route = &mut settings.lookups[0];
            route.content_type = content_type.to_owned();
            if !line.is_empty() {
                route.line = Some(Template::parse(line).unwrap());
            }
            let (new, ..) = ask(&mut world.context(settings), &again);
            assert!(new.starts_with("HTTP/1.1 200 ") && tag(&new) != tag(&old), "{new}");
        }
    }

    #[test]
    fn no_script_gets_into_lines_by_a_name() {
        let (_world, mut cx) = setting();
        let line = Template::parse("v_{name}=\"{value}\";").unwrap();
        let lookup = Lookup {
            path: "/list=".to_owned(),
            topics: Template::parse("/{name}").unwrap(),
            line: Some(line),
            content_type: "text/javascript".to_owned(),
            leaves_out_cache_control: false,
        };
        cx.configure(Arc::new(Settings { lookups: vec![lookup], ..patient() }));
        let (answer, ..) = ask(&mut cx, &get("/list=small"));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("%\";"), "{answer}");
        for name in ["%22", "%27", "%60", "%5C", "%3C", "%3E", "%0A"] {
            let (answer, ..) = ask(&mut cx, &get(&format!("/list=small,a{name}b")));
            assert!(
                answer.starts_with("HTTP/1.1 400 ") && answer.contains(&*HARMFUL.detail),
                "{answer}"
            );
        }
    }

    #[test]
    fn look_ups_are_counted_by_route() {
        let (_world, mut cx) = setting();
        for (target, route) in
            [("/list=small,none", 1), ("/-/values?topic=/small&topic=/none&topic=/large", 0)]
        {
            let before = Routes::sum([&*cx.stats])[route].clone();
            let (whole, ..) = ask(&mut cx, &get(target));
            let after = Routes::sum([&*cx.stats])[route].clone();
            let names = target.matches(['/', ',']).count() as u64 - if route == 0 { 2 } else { 0 };
            assert_eq!((after.requests, after.names), (before.requests + 1, names));
            // A HEAD counts, and so does a 304.
            ask(&mut cx, &format!("HEAD {target} HTTP/1.1\r\nHost: h"));
            ask(&mut cx, &format!("{}\r\nIf-None-Match: {}", get(target), tag(&whole)));
            let last = Routes::sum([&*cx.stats])[route].clone();
            assert_eq!((last.requests, last.names), (after.requests + 2, 3 * names));
        }
        // What stays goes on counting, and what is new begins.
        let mut lookups = cx.settings.lookups.clone();
        lookups.insert(0, Lookup { path: "/new=".to_owned(), ..lookups[0].clone() });
        cx.configure(Arc::new(Settings { lookups, ..patient() }));
        ask(&mut cx, &get("/list=small"));
        let routes = Routes::sum([&*cx.stats]);
        assert_eq!(
            routes.iter().map(|route| &*route.path).collect::<Vec<_>>()[1..],
            ["/new=", "/list="]
        );
        assert_eq!((routes[1].requests, routes[2].requests), (0, 4));
    }

    #[test]
    fn a_head_says_how_long_the_answer_would_be_and_nothing_is_made() {
        let (_world, mut cx) = setting();
        for target in [FITS, "/-/values?topic=/large", "/list=small,none,fits", "/list="] {
            let (whole, cost_of_get, _) = ask(&mut cx, &get(target));
            let (head, cost, _) = ask(&mut cx, &format!("HEAD {target} HTTP/1.1\r\nHost: h"));
            let (expected, body) = whole.split_once("\r\n\r\n").unwrap();
            assert_eq!(head, format!("{expected}\r\n\r\n"));
            assert!(head.ends_with(&format!("Content-Length: {}\r\n\r\n", body.len())));
            assert_eq!(cost_of_get - cost, body.len(), "{target}");
        }
    }

    #[test]
    fn the_answer_ends_at_the_first_value_that_does_not_fit() {
        let (_world, mut cx) = setting();
        let many = |name: &str| (0..900).map(|n| format!("&topic=/{name}{n}")).collect::<String>();
        let over = [
            // Refused by its length alone, before a byte of it is looked at.
            ("topic=/huge".to_owned(), 1, 0),
            // Looked through, but not written.
            ("topic=/swells".to_owned(), 1, 500_000),
            // One is written, and the other is not.
            ("topic=/fits&topic=/fits2".to_owned(), 2, 2 * 1_000_020 + 500_000),
            // What comes after it is not looked for, beyond those that are looked for together.
            (format!("topic=/huge{}", many("small")), 16, 0),
        ];
        for (query, names, cost_max) in over {
            for method in ["GET", "HEAD"] {
                let request = format!("{method} /-/values?{query} HTTP/1.1\r\nHost: h");
                let (answer, cost, looked) = ask(&mut cx, &request);
                assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
                assert_eq!(looked, names, "{answer}");
                let cost_max = cost_max + names as usize * NAME_COST + 200;
                assert!(cost <= cost_max, "{names} names cost {cost}, not {cost_max}");
            }
        }
    }

    #[test]
    fn every_name_costs_something_even_if_it_has_no_value() {
        let (_world, mut cx) = setting();
        let (_, one, _) = ask(&mut cx, &get("/list=a"));
        let (_, all, _) = ask(&mut cx, &get(&format!("/list=a{}", ",a".repeat(999))));
        assert!(all - one >= 999 * 50);
    }
}
