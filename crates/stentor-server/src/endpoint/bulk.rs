//! `POST /-/publish`: a stream of messages, one JSON object a line, on one connection.
//!
//! Each line is published as soon as it is complete. A bad line is reported by its number and the
//! others still count, so a stream may run for as long as the connection does.
//!
//! What arrived together waits together: lines that were applied one behind the other are kept as
//! promised when the last of them is.

use crate::access::Author;
use crate::exchange::{Answer, Awaits, Exchange};
use crate::limits::{BULK_ERRORS_TOLD, BULK_LINE_OVERHEAD_BYTES};
use crate::stats::Stats;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use stentor_config::Settings;
use stentor_hub::{Applied, ContentType, Draft, EventName, Id, Keep, Op};
use stentor_order::{Commit, Due, Outcome};
use stentor_wire::json::surrogate_fault;
use stentor_wire::packed;
use stentor_wire::status::Status;
use stentor_wire::target::{TopicName, cut};

/// A stream of lines on its way in, and what came of those that are done.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The current line is too long: what is left of it goes by.
    skipping: bool,
    line: u64,
    published: u64,
    failed: u64,
    last_id: Option<Id>,
    errors: Vec<LineError>,
    /// Lines that wait for the last of them, which is told of.
    groups: VecDeque<Group>,
    /// The group that is being put together, and what its last line became.
    group: Option<(Group, Outcome, Due)>,
    /// Lines of which it is not known yet what came of them,
    uncommitted: usize,
    /// and what they are counted as.
    uncommitted_bytes: usize,
    /// By what right they are published.
    author: Author,
    /// The page that publishes, if it is listed.
    origin: Option<Box<[u8]>>,
}

/// Lines that were applied.
#[derive(Debug, Default)]
struct Group {
    /// Their numbers.
    runs: Vec<RangeInclusive<u64>>,
    bytes: usize,
}

impl Group {
    fn add(&mut self, line: u64, bytes: usize) {
        self.bytes += bytes;
        match self.runs.last_mut() {
            Some(run) if *run.end() + 1 == line => *run = *run.start()..=line,
            _ => self.runs.push(line..=line),
        }
    }

    fn last(&self) -> u64 {
        self.runs.last().map_or(0, |run| *run.end())
    }

    fn lines(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().cloned().flatten()
    }
}

#[derive(Debug, Serialize)]
struct LineError {
    line: u64,
    error: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkLine<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    /// Data that is not text.
    #[serde(borrow)]
    data_base64: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    content_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
}

/// A value that is there; `null` is one.
fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

#[derive(Debug, Serialize)]
struct BulkReport<'a> {
    published: u64,
    failed: u64,
    last_id: Option<&'a str>,
    errors: &'a [LineError],
}

// Nothing is packed with lines of which it is not known what came of them.
packed!(struct Bulk { partial, skipping, line, published, failed, last_id, errors, author, origin }
    without { groups, group, uncommitted, uncommitted_bytes });
packed!(struct LineError { line, error });

impl Bulk {
    /// A stream of messages that are published by this right.
    pub(crate) fn of(author: Author, origin: Option<&[u8]>) -> Bulk {
        Bulk { author, origin: origin.map(Box::from), ..Bulk::default() }
    }

    /// Whether this topic may be published to, now: lines come for as long as they like.
    fn may_publish(&self, x: &Exchange<'_>, topic: &str) -> Result<(), &'static str> {
        let may = self.author.may_publish_to(topic, x.visitor(), (&*x.access.keys, x.clock.unix_s));
        may.map_err(|denied| denied.refusal.reason)
    }

    /// Takes a part of the stream and publishes the lines that it completes.
    pub(crate) fn data(&mut self, x: &mut Exchange<'_>, mut data: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', data) {
            let (line, rest) = (&data[..end], &data[end + 1..]);
            if self.partial.is_empty() {
                self.line(x, line);
            } else {
                self.keep(x, line);
                let whole = std::mem::take(&mut self.partial);
                self.line(x, &whole);
                self.partial = whole;
                self.partial.clear();
            }
            data = rest;
        }
        self.keep(x, data);
        self.await_group(x);
    }

    /// Whether so many lines are under way that no more are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.uncommitted_bytes >= UNCOMMITTED_BYTES_MAX
    }

    /// Whether it is known of all lines what came of them.
    pub(crate) fn is_committed(&self) -> bool {
        self.uncommitted == 0
    }

    /// What came of a line that took a while, and of those that waited for it.
    pub(crate) fn committed(&mut self, stats: &Stats, line: u64, outcome: Outcome) {
        let at = self.groups.iter().position(|group| group.last() == line);
        match at.and_then(|at| self.groups.remove(at)) {
            Some(group) => self.note_group(stats, &group, outcome),
            None => {
                self.uncommitted -= 1;
                self.uncommitted_bytes -= LINE_ALONE_BYTES;
                self.note(stats, line, id_of(stats, outcome));
            }
        }
    }

    /// The stream is over: says what came of it, once that is known of every line.
    pub(crate) fn finish(mut self: Box<Self>, x: &mut Exchange<'_>) -> Answer {
        if !self.partial.is_empty() || self.skipping {
            // The last line need not end in a line feed.
            self.data(x, b"\n");
        }
        if !self.is_committed() {
            return x.answer_later(Awaits::Commits(self));
        }
        self.report(x);
        Answer::Now
    }

    /// Answers with what came of all lines.
    pub(crate) fn report(&self, x: &mut Exchange<'_>) {
        x.answer_to(self.origin.as_deref());
        let last_id = self.last_id.map(Id::text);
        let report = BulkReport {
            published: self.published,
            failed: self.failed,
            last_id: last_id.as_ref().map(|id| id.as_str()),
            errors: &self.errors,
        };
        // Numbers and strings always make JSON.
        let mut body = serde_json::to_vec(&report).unwrap_or_default();
        body.push(b'\n');
        x.reply.begin(Status::OK).content("application/json", &body);
    }

    /// Keeps the beginning of a line, unless it has become longer than any line may be.
    fn keep(&mut self, x: &Exchange<'_>, part: &[u8]) {
        if !self.skipping && self.partial.len() + part.len() > line_bytes_max(x) {
            self.skipping = true;
            self.partial = Vec::new();
        }
        if !self.skipping {
            self.partial.extend_from_slice(part);
        }
    }

    fn line(&mut self, x: &Exchange<'_>, line: &[u8]) {
        self.line += 1;
        // One that arrived in one piece was not kept.
        let too_long = std::mem::take(&mut self.skipping) || line.len() > line_bytes_max(x);
        let put = match too_long {
            true => Err("The line is longer than any message could be.".to_owned()),
            false if line.trim_ascii().is_empty() => return,
            false => parse(line, x.settings).and_then(|op| {
                if let Op::Put(topic, _) = &op {
                    self.may_publish(x, topic)?;
                }
                Ok(op)
            }),
        };
        let outcome = match put.map(|put| x.commit_line(put, self.line)) {
            Ok(Commit::Known(outcome)) => id_of(x.reply.stats, outcome),
            Ok(Commit::Later) => {
                self.uncommitted += 1;
                self.uncommitted_bytes += LINE_ALONE_BYTES;
                return;
            }
            Ok(Commit::Due(outcome, due)) => {
                let bytes = waiting_bytes(line);
                self.uncommitted += 1;
                self.uncommitted_bytes += bytes;
                let group = self.group.take();
                let (mut group, due) =
                    group.map_or((Group::default(), due), |(group, _, before)| {
                        // Whoever is promised more than the last line is owed it all the same.
                        let keep =
                            if before.keep == Keep::Synced { Keep::Synced } else { due.keep };
                        (group, Due { keep, ..due })
                    });
                group.add(self.line, bytes);
                self.group = Some((group, outcome, due));
                return;
            }
            Err(error) => Err(error),
        };
        self.note(x.reply.stats, self.line, outcome);
    }

    /// No more of what arrived together comes: asks to be told when all of it is kept.
    fn await_group(&mut self, x: &Exchange<'_>) {
        let Some((group, outcome, due)) = self.group.take() else { return };
        x.when_kept(outcome, due, group.last());
        self.groups.push_back(group);
    }

    /// Takes note of what came of the last line of a group, and so of all of them.
    fn note_group(&mut self, stats: &Stats, group: &Group, outcome: Outcome) {
        let outcome = id_of(stats, outcome);
        for line in group.lines() {
            self.uncommitted -= 1;
            self.note(stats, line, outcome.clone());
        }
        self.uncommitted_bytes -= group.bytes;
    }

    /// Takes note of what came of a line.
    fn note(&mut self, stats: &Stats, line: u64, outcome: Result<Id, String>) {
        match outcome {
            Ok(id) => {
                self.published += 1;
                // Lines that are promised less are told of before others.
                let is_latest = self.last_id.is_none_or(|last| last.seq < id.seq);
                self.last_id = if is_latest { Some(id) } else { self.last_id };
            }
            Err(error) => {
                tracing::debug!("line {line} of /-/publish is refused: {error}");
                self.failed += 1;
                stats.publishes_refused.add(1);
                if self.errors.len() < BULK_ERRORS_TOLD {
                    let at = self.errors.partition_point(|told| told.line < line);
                    self.errors.insert(at, LineError { line, error });
                }
            }
        }
    }
}

/// The id of the message that a line became, or why it became none.
fn id_of(stats: &Stats, outcome: Outcome) -> Result<Id, String> {
    match outcome {
        Ok(Applied::Put(published)) => Ok(published.id),
        Ok(other) => unreachable!("a line is published or refused: {other:?}"),
        Err(error) => {
            stats.count_refusal_for_memory(error);
            Err(error.to_string())
        }
    }
}

/// The longest line that is read.
fn line_bytes_max(x: &Exchange<'_>) -> usize {
    // An escape makes six bytes of one.
    x.settings.limits.message_bytes_max * 6 + BULK_LINE_OVERHEAD_BYTES
}

/// The bytes that a line counts as while it waits with others.
fn waiting_bytes(line: &[u8]) -> usize {
    line.len().max(LINE_BYTES_MIN)
}

/// What a line asks for. What is no string is JSON, whatever the topic's rule says.
fn parse<'l>(line: &'l [u8], settings: &Settings) -> Result<Op<'l>, String> {
    // Its strings need not be checked one by one.
    let line = std::str::from_utf8(line).map_err(|_| "The line is not UTF-8.")?;
    // Files that an editor of Windows has written begin with a byte order mark.
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    let broken = |error: serde_json::Error| {
        surrogate_fault(line, &error).unwrap_or_else(|| cut(&error.to_string()).to_owned())
    };
    let line: BulkLine<'_> = serde_json::from_str(line).map_err(broken)?;
    let default = || settings.content_type(&line.topic).cloned();
    let (data, content_type): (Box<[u8]>, _) =
        match (line.data.map(RawValue::get), &line.data_base64) {
            (Some(raw), None) if raw.starts_with('"') => {
                let text: Cow<'_, str> = match unescaped(raw) {
                    Some(text) => Cow::Borrowed(text),
                    None => serde_json::from_str::<String>(raw).map_err(broken)?.into(),
                };
                (text.as_bytes().into(), default().unwrap_or(ContentType::TEXT))
            }
            (Some(raw), None) => (raw.as_bytes().into(), ContentType::JSON),
            (None, Some(base64)) => {
                let bytes = STANDARD.decode(&**base64);
                let bytes = bytes.map_err(|error| format!("data_base64 is no base64: {error}."))?;
                (bytes.into(), default().unwrap_or(ContentType::OCTETS))
            }
            _ => return Err("A line has either data or data_base64.".to_owned()),
        };
    let content_type = match &line.content_type {
        Some(text) => ContentType::parse(text)?,
        None => content_type,
    };
    let mut draft = Draft::new(data).published_as(content_type);
    if let Some(event) = &line.event {
        draft = draft.with_event(EventName::parse_published(event)?);
    }
    Ok(Op::Put(TopicName::parse(line.topic)?.published()?, draft))
}

/// The text of a JSON string that holds no escapes, without copying it.
fn unescaped(raw: &str) -> Option<&str> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', text.as_bytes()).is_none().then_some(text)
}

/// Of so many bytes of lines it may be unknown what came of them: more than a store or a broker
/// takes at once, and few enough for one connection to have in memory.
const UNCOMMITTED_BYTES_MAX: usize = 4 << 20;

/// A line that waits for itself is counted as so many of them,
const LINE_ALONE_BYTES: usize = 1 << 10;

/// and one of many as so many at least.
const LINE_BYTES_MIN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Permit;
    use crate::listeners::CONTROL;
    use crate::response::Persistence;
    use crate::simulation::{World, kind, patient};
    use stentor_order::Ticket;
    use stentor_wire::http1::{FieldSlots, parse};

    const HEAD: &[u8] = b"POST /-/publish HTTP/1.1\r\nHost: h\r\n\r\n";

    /// Begins a stream of messages of ten bytes at most.
    fn with_bulk(test: impl FnOnce(Bulk, &mut Exchange<'_>)) {
        let mut settings = patient();
        settings.limits.message_bytes_max = 10;
        let mut cx = World::new(1, kind(), patient()).context(settings);
        let mut slots = FieldSlots::new();
        let request = parse(HEAD, &mut slots).unwrap().request;
        let persistence = Persistence { keep_alive: true, http10: false };
        test(
            Bulk::default(),
            &mut cx.exchange(CONTROL, &request, persistence, Ticket::of_nobody(), &Permit::SMALL),
        );
    }

    #[test]
    fn no_more_is_kept_of_a_line_than_a_message_could_take() {
        with_bulk(|mut bulk, x| {
            let piece = vec![b' '; line_bytes_max(x) / 2 - 1];
            for kept in [piece.len(), 2 * piece.len(), 0, 0] {
                bulk.data(x, &piece);
                assert_eq!(bulk.partial.len(), kept);
            }
            bulk.data(x, b"\n{\"topic\":\"/a\",\"data\":1}\n");
            assert_eq!((bulk.published, bulk.failed, bulk.errors[0].line), (1, 1, 1));
        });
    }

    /// Names and braces do not count as data.
    #[test]
    fn a_line_has_room_around_its_data() {
        with_bulk(|mut bulk, x| {
            let topic = "a".repeat(500);
            let line = format!("{{\"topic\":\"/{topic}\",\"data\":\"0123456789\"}}\n");
            bulk.data(x, line.as_bytes());
            assert_eq!((bulk.published, bulk.failed), (1, 0));
        });
    }

    #[test]
    fn a_short_line_counts_more_than_its_bytes() {
        assert!(waiting_bytes(b"{}") >= 100);
        assert_eq!(waiting_bytes(&[b' '; 1_000]), 1_000);
    }
}
