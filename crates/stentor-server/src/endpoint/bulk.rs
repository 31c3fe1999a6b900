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
use serde::Serialize;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use stentor_config::Settings;
use stentor_hub::{Applied, Id, Keep, MessageObject, Op};
use stentor_order::{Commit, Due, Outcome};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::packed;
use stentor_wire::rejections;
use stentor_wire::status::Status;
use stentor_wire::target::TopicName;

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
    code: ErrorCode,
    detail: String,
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
packed!(struct LineError { line, code, detail });

impl Bulk {
    /// A stream of messages that are published by this right.
    pub(crate) fn of(author: Author, origin: Option<&[u8]>) -> Bulk {
        Bulk { author, origin: origin.map(Box::from), ..Bulk::default() }
    }

    /// Whether this topic may be published to, now: lines come for as long as they like.
    fn may_publish(&self, x: &Exchange<'_>, topic: &str) -> Result<(), Rejection> {
        let may = self.author.may_publish_to(topic, x.visitor(), (&*x.access.keys, x.clock.unix_s));
        may.map_err(|denied| denied.rejection)
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
            true => Err(LINE_TOO_LONG),
            false if is_empty(line) => return,
            false => parse(line, x.settings).and_then(|op| {
                if let Op::Put(topic, _) | Op::Delete(topic) = &op {
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
                // A rejection is of its line alone.
                let is_rejected = outcome.is_err();
                if is_rejected {
                    self.await_group(x);
                }
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
                if is_rejected {
                    self.await_group(x);
                }
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
    fn note(&mut self, stats: &Stats, line: u64, outcome: Result<Id, Rejection>) {
        match outcome {
            Ok(id) => {
                self.published += 1;
                // Lines that are promised less are told of before others.
                let is_latest = self.last_id.is_none_or(|last| last.seq < id.seq);
                self.last_id = if is_latest { Some(id) } else { self.last_id };
            }
            Err(Rejection { code, detail }) => {
                tracing::debug!("line {line} of /-/publish is refused: {detail}");
                self.failed += 1;
                stats.publishes_refused.add(1);
                // A line that waited for the disk may be known late.
                let at = self.errors.partition_point(|told| told.line < line);
                if at < BULK_ERRORS_TOLD {
                    self.errors.insert(at, LineError { line, code, detail: detail.into_owned() });
                    self.errors.truncate(BULK_ERRORS_TOLD);
                }
            }
        }
    }
}

/// The id of the message that a line became, or why it became none.
fn id_of(stats: &Stats, outcome: Outcome) -> Result<Id, Rejection> {
    match outcome {
        Ok(Applied::Put(published)) => Ok(published.id),
        Ok(Applied::Deleted(deletion, _)) => Ok(deletion.message.id()),
        Ok(other) => unreachable!("a line is published or refused: {other:?}"),
        Err(error) => {
            stats.count_refusal_for_memory(error);
            Err(error.rejection())
        }
    }
}

/// Whether nothing stands in a line but white space, and the mark with which editors of Windows
/// begin a file.
fn is_empty(line: &[u8]) -> bool {
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii().is_empty()
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

/// The change that a line asks for.
fn parse<'l>(line: &'l [u8], settings: &Settings) -> Result<Op<'l>, Rejection> {
    // Its strings need not be checked one by one.
    let line = std::str::from_utf8(line).map_err(|_| LINE_NOT_UTF8)?;
    let object = MessageObject::parse(line)?;
    if object.deleted {
        object.expect_no_data()?;
        return Ok(Op::Delete(TopicName::parse(object.topic)?));
    }
    let draft = object.draft(settings.content_type(&object.topic))?;
    Ok(Op::Put(TopicName::parse(object.topic)?.published()?, draft))
}

rejections! {
    LINE_TOO_LONG: LineTooLong = "The line is longer than any message could be.";
    LINE_NOT_UTF8: LineInvalid = "The line is not UTF-8.";
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
