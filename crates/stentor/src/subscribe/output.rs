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
    pub(super) fn event(&mut self, name: Option<&str>, data: &str) -> Result<(), Interruption> {
        let (with_topic, is_terminal) = match self.form {
            Form::Json { is_terminal: true } => return Ok(self.line(name, &escape_json(data))?),
            Form::Json { is_terminal: false } => return Ok(self.line(name, data)?),
            Form::Plain { with_topic, is_terminal } => (with_topic, is_terminal),
        };
        match name {
            Some("gap") => {
                let reason = parse::<GapEvent<'_>>(data)?.sentence();
                self.told(&reason)
            }
            Some("delete") => {
                let Deletion { topic } = parse(data)?;
                self.told(&format!("{} was deleted", topic.escape_debug()))
            }
            // Any other name was the publisher's to choose.
            _ => self.value(&parse(data)?, with_topic, is_terminal),
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
    fn line(&mut self, name: Option<&str>, data: &str) -> io::Result<()> {
        let data = match data.contains(['\n', '\r']) {
            true => Cow::Owned(data.replace(['\n', '\r'], " ")),
            false => Cow::Borrowed(data),
        };
        match name {
            Some(name @ ("gap" | "delete")) => writeln!(self.out, "{{\"{name}\":{data}}}"),
            _ => writeln!(self.out, "{data}"),
        }
    }

    fn value(
        &mut self,
        envelope: &Envelope<'_>,
        with_topic: bool,
        is_terminal: bool,
    ) -> Result<(), Interruption> {
        let data = envelope.content()?;
        if !with_topic && !is_terminal {
            self.out.write_all(&data)?;
            if !data.ends_with(b"\n") {
                self.out.write_all(b"\n")?;
            }
            return Ok(());
        }
        // A line without a topic could pass for one of another topic.
        for line in data.strip_suffix(b"\n").unwrap_or(&data).split(|&byte| byte == b'\n') {
            if with_topic {
                write!(self.out, "{}\t", envelope.topic)?;
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

/// A message of a stream of many topics.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    content_type: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Data that is not text.
#[derive(Deserialize)]
struct Base64Data<'a> {
    #[serde(borrow)]
    base64: Cow<'a, str>,
}

impl Envelope<'_> {
    /// The data as it was published. JSON is embedded as it is, and may look like the two forms of
    /// other data: the content type tells.
    fn content(&self) -> Result<Cow<'_, [u8]>, Interruption> {
        let raw = self.data.get();
        if is_json(&self.content_type) {
            return Ok(Cow::Borrowed(raw.as_bytes()));
        }
        if raw.starts_with('"') {
            return Ok(Cow::Owned(parse::<String>(raw)?.into_bytes()));
        }
        let Base64Data { base64 } = parse(raw)?;
        Ok(Cow::Owned(STANDARD.decode(base64.as_bytes()).map_err(unclear)?))
    }
}

/// Messages were missed.
#[derive(Deserialize)]
struct GapEvent<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    since: Option<Cow<'a, str>>,
}

impl GapEvent<'_> {
    fn sentence(&self) -> String {
        let since = self.since.as_deref().unwrap_or("the start").escape_debug();
        match &*self.reason {
            "history" => format!("messages after {since} are lost: history is shorter"),
            "epoch" => format!("messages after {since} are lost: the server has begun anew"),
            "future" => format!("messages may be lost: {since} was not published yet"),
            "rolled-back" => format!("{since} is no more: the server ended before it was kept"),
            "malformed" => "messages may be lost: what to go on after is no id".to_owned(),
            "many" => format!("messages after {since} are lost: too many topics to go back for"),
            "memory" => format!("messages after {since} are lost: the server is short of memory"),
            reason => format!("messages after {since} are lost: {}", reason.escape_debug()),
        }
    }
}

/// A topic has no value any more.
#[derive(Deserialize)]
struct Deletion<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
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
