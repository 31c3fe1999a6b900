//! What `stentor sub` prints of a stream.
//!
//! Messages go to standard output and nothing else does, unless JSON lines are asked for: then
//! gaps and deletions are lines among them, since a program that reads them must not miss these.
//! For people they go to standard error, as does what becomes of the connection.

use std::borrow::Cow;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Interruption;
use crate::Failure;

/// Prints events.
pub(super) struct EventPrinter<O, N> {
    out: O,
    notices: N,
    form: Form,
}

/// The form of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// JSON lines. On a terminal, the control characters that JSON may hold are escaped.
    Json { is_terminal: bool },
    /// The data, each line behind the topic if there may be several. On a terminal, control
    /// characters are escaped: they could change what the terminal shows, or does.
    Plain { with_topic: bool, is_terminal: bool },
}

impl<O: Write, N: Write> EventPrinter<O, N> {
    pub(super) fn new(out: O, notices: N, form: Form) -> EventPrinter<O, N> {
        EventPrinter { out, notices, form }
    }

    /// Prints an event of `/-/events`. What it cannot understand is final: the stream is none of
    /// ours.
    pub(super) fn event(&mut self, data: &str) -> Result<(), Interruption> {
        // It says where the stream is, and tells nobody anything.
        if data.starts_with("{\"cursor\":") {
            return Ok(());
        }
        let (with_topic, is_terminal) = match self.form {
            Form::Json { is_terminal: true } => return Ok(self.line(&escape_json(data))?),
            Form::Json { is_terminal: false } => return Ok(self.line(data)?),
            Form::Plain { with_topic, is_terminal } => (with_topic, is_terminal),
        };
        let item: StreamItem<'_> = parse(data)?;
        match &item {
            StreamItem { gap: Some(gap), .. } => self.told(&gap.sentence()),
            StreamItem { access: Some(access), .. } => self.told(&access.sentence()),
            StreamItem { topic: Some(topic), deleted: true, .. } => {
                self.told(&format!("{} was deleted", topic.escape_debug()))
            }
            StreamItem { topic: Some(topic), .. } => {
                self.value(topic, &item.bytes()?, with_topic, is_terminal)
            }
            // The end, or a notice of a later version.
            _ => Ok(()),
        }
    }

    /// Makes sure that everything printed so far can be seen.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Says something about the connection. That nobody may be there to hear it is no failure.
    pub(super) fn notice(&mut self, text: &str) {
        let _ = self.notices.write_all(format!("note: {text}\n").as_bytes());
    }

    /// A notice that has its place among the messages.
    fn told(&mut self, text: &str) -> Result<(), Interruption> {
        self.flush()?;
        self.notice(text);
        Ok(())
    }

    /// An event as the server sent it, on one line. A line break in JSON is always white space
    /// between tokens: strings escape theirs.
    fn line(&mut self, data: &str) -> io::Result<()> {
        let data = match data.contains(['\n', '\r']) {
            true => Cow::Owned(data.replace(['\n', '\r'], " ")),
            false => Cow::Borrowed(data),
        };
        writeln!(self.out, "{data}")
    }

    fn value(
        &mut self,
        topic: &str,
        data: &[u8],
        with_topic: bool,
        is_terminal: bool,
    ) -> Result<(), Interruption> {
        if !with_topic && !is_terminal {
            self.out.write_all(data)?;
            if !data.ends_with(b"\n") {
                self.out.write_all(b"\n")?;
            }
            return Ok(());
        }
        // A line without a topic could pass for one of another topic.
        for line in data.strip_suffix(b"\n").unwrap_or(data).split(|&byte| byte == b'\n') {
            if with_topic {
                write!(self.out, "{topic}\t")?;
            }
            match is_terminal {
                true => self.out.write_all(escape_controls(line).as_bytes())?,
                false => self.out.write_all(line)?,
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// An item of a stream of many topics: a message, a deletion or a notice. A member that this
/// program does not know is ignored.
#[derive(Deserialize)]
struct StreamItem<'a> {
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(default)]
    deleted: bool,
    #[serde(borrow)]
    gap: Option<GapNotice<'a>>,
    #[serde(borrow)]
    access: Option<AccessNotice<'a>>,
    #[serde(borrow, rename = "type", default)]
    content_type: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    data_base64: Option<Cow<'a, str>>,
}

impl StreamItem<'_> {
    /// The data of a message as it was published.
    fn bytes(&self) -> Result<Cow<'_, [u8]>, Interruption> {
        match (self.data.map(RawValue::get), &self.data_base64) {
            (None, Some(base64)) => {
                Ok(Cow::Owned(STANDARD.decode(base64.as_bytes()).map_err(unclear)?))
            }
            (Some(json), _) if is_json(&self.content_type) => Ok(Cow::Borrowed(json.as_bytes())),
            (Some(json), _) => Ok(Cow::Owned(parse::<String>(json)?.into_bytes())),
            (None, None) => Err(unclear("a message has no data")),
        }
    }
}

/// Messages may be missing.
#[derive(Deserialize)]
struct GapNotice<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    since: Option<Cow<'a, str>>,
}

/// Parts of the subscription may not be read.
#[derive(Deserialize)]
struct AccessNotice<'a> {
    #[serde(borrow)]
    denied: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    partial: Vec<Cow<'a, str>>,
}

impl AccessNotice<'_> {
    fn sentence(&self) -> String {
        let list = |all: &[Cow<'_, str>]| all.join(", ").escape_debug().to_string();
        match (self.denied.is_empty(), self.partial.is_empty()) {
            (false, true) => format!("may not be read: {}", list(&self.denied)),
            (true, false) => format!("may be read in part: {}", list(&self.partial)),
            _ => format!(
                "may not be read: {}; may be read in part: {}",
                list(&self.denied),
                list(&self.partial)
            ),
        }
    }
}

impl GapNotice<'_> {
    fn sentence(&self) -> String {
        let since = self.since.as_deref().unwrap_or("the start").escape_debug();
        match &*self.reason {
            "history_trimmed" => format!("messages after {since} are lost: history is shorter"),
            "epoch_changed" => {
                format!("messages after {since} are lost: the server has begun anew")
            }
            "cursor_ahead" => format!("messages may be lost: {since} was not published yet"),
            "rolled_back" => format!("{since} is no more: the server ended before it was kept"),
            "cursor_invalid" => "messages may be lost: what to go on after is no id".to_owned(),
            "too_many_topics" => {
                format!("messages after {since} are lost: too many topics to go back for")
            }
            "memory_pressure" => {
                format!("messages after {since} are lost: the server is short of memory")
            }
            reason => format!("messages after {since} are lost: {}", reason.escape_debug()),
        }
    }
}

/// A line with its control characters but tabs escaped, as Rust writes them.
fn escape_controls(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    let is_control = |c: char| c.is_control() && c != '\t';
    if !text.contains(is_control) {
        return text;
    }
    let escaped = |c: char| match is_control(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// JSON with the control characters that its strings may hold as they are (U+007F to U+009F)
/// escaped as JSON escapes them.
fn escape_json(json: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c as u32 > 0x7e;
    if !json.contains(is_control) {
        return json.into();
    }
    let escaped = |c: char| match is_control(c) {
        true => format!("\\u{:04x}", c as u32),
        false => c.to_string(),
    };
    json.chars().map(escaped).collect::<String>().into()
}

/// Whether the server embeds data of this type as it is, if it is JSON indeed.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(&*essence, "application/json" | "text/json") || essence.ends_with("+json")
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Interruption> {
    serde_json::from_str(json).map_err(unclear)
}

fn unclear(error: impl ToString) -> Interruption {
    let reason = format!("an event is unclear: {}", error.to_string());
    Interruption::Final(Failure::Failed(reason))
}
