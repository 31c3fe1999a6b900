//! The format of event streams: `text/event-stream` (WHATWG HTML section 9.2).
//!
//! The format is made of lines, so whoever could put a line end where none is expected could write
//! fields, or whole events, in the server's name. Data is split at every line end the standard
//! knows, CR alone included, and each piece becomes a `data:` line of its own; ids and names reach
//! this place already checked. That is all there is to injection.
//!
//! [`Decoder`] is the other side, for `stentor sub` and for tests. It follows the standard to the
//! letter but for one thing: what it keeps is bounded, since a stream has no end and a line need
//! not have one either.
//!
//! [`first_event`] is for those who hold so many streams that a decoder for each is too much. It
//! keeps nothing and copies nothing: an event is lent from the input if it is there whole.

use memchr::{memchr, memchr2};

use crate::saturating_decimal;

/// What is sent when there is nothing to say: a comment, which readers pass over. It stands before
/// whatever comes next: at an empty line some readers would report what came last once more.
pub const HEARTBEAT: &[u8] = b":\n";

/// The same as a chunk of its own (RFC 9112 section 7.1).
pub const HEARTBEAT_CHUNK: &[u8] = b"2\r\n:\n\r\n";

/// What a stream may begin with, and what then is no part of its first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The event name of everything that is not a published message as text. Its data is JSON.
pub const NOTICE: &str = "stentor";

/// Whether publishers cannot choose this name for an event: it is the server's own, or belongs to
/// `EventSource` itself, whose handlers `onopen` and `onerror` would be called.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    matches!(name, NOTICE | "open" | "error") || name.starts_with("stentor.")
}

/// Appends a notice. `id` must not have CR, LF or NUL.
pub fn notice(out: &mut Vec<u8>, id: Option<&str>, json: &str) {
    event(out, id, Some(NOTICE), json);
}

/// Appends one message to `out`, as an event of its publisher's name.
///
/// `data` is split at CR, LF and CRLF, so a reader gets it back with each of them as LF, and it
/// has a line even if it is empty, since an event without one would not be dispatched. `id` and
/// `name` must not have CR, LF or NUL.
pub fn event(out: &mut Vec<u8>, id: Option<&str>, name: Option<&str>, data: &str) {
    if let Some(id) = id {
        field(out, b"id: ", id.as_bytes());
    }
    if let Some(name) = name {
        field(out, b"event: ", name.as_bytes());
    }
    let mut rest = data.as_bytes();
    while let Some(end) = memchr2(b'\r', b'\n', rest) {
        field(out, b"data: ", &rest[..end]);
        let ends_in_crlf = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(ends_in_crlf)..];
    }
    field(out, b"data: ", rest);
    out.push(b'\n');
}

/// Appends how many milliseconds a reader shall wait before it connects again: a line of whatever
/// event or id comes next. With an empty line behind it some readers would report an empty event.
pub fn retry(out: &mut Vec<u8>, ms: u64) {
    field(out, b"retry: ", ms.to_string().as_bytes());
}

/// Appends one line. `value` has no line end.
fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(memchr2(b'\r', b'\n', value).is_none());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// What a stream consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// An event, to be handed to whoever listens.
    Event {
        /// The id to resume from, which is that of an earlier event if this one brought none.
        /// `None` if there has been none yet, or if an empty one took it back.
        id: Option<String>,
        /// Its name, if it has one; without one it is a `message`.
        name: Option<String>,
        /// Its data. What was not UTF-8 has been replaced by U+FFFD.
        data: String,
    },
    /// How many milliseconds to wait before connecting again.
    Retry(u64),
    /// A comment: a sign of life.
    Comment,
}

/// One event, or one line, is longer than what the decoder was told to keep. The stream cannot be
/// read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

/// Reads an event stream: bytes in, items out, however the bytes were split.
///
/// Drain contract: [`push`](Decoder::push), then [`next`](Decoder::next) until it returns `None`.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The most bytes of one event: its id, its name, its data and the line being read.
    bytes_max: usize,
    /// What was pushed and is not used up.
    input: Vec<u8>,
    /// Where in `input` the line begins that is being read.
    line_start: usize,
    /// Where in `input` to look for its end; everything before was looked at.
    scanned: usize,
    /// The line before ended in CR, so an LF right here belongs to that end.
    after_cr: bool,
    /// No line was read yet, so a byte order mark may come.
    at_start: bool,
    last_id: String,
    name: String,
    /// The data lines so far, each with an LF behind it.
    data: Vec<u8>,
    failed: bool,
}

impl Decoder {
    /// A decoder for the beginning of a stream, which keeps at most `bytes_max` bytes of an event
    /// besides what is pushed at once.
    pub fn new(bytes_max: usize) -> Decoder {
        Decoder { bytes_max, at_start: true, ..Decoder::default() }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        // Each byte is moved at most once: what remains is the line that is incomplete, and it
        // stays at the front until it is complete.
        self.input.drain(..self.line_start);
        self.scanned -= self.line_start;
        self.line_start = 0;
        self.input.extend_from_slice(bytes);
    }

    /// The next item; `None` if more bytes are needed, and for ever after a [`TooLong`].
    #[expect(clippy::should_implement_trait, reason = "`None` is not the end of the stream")]
    pub fn next(&mut self) -> Option<Result<Item, TooLong>> {
        while !self.failed {
            let found = memchr2(b'\r', b'\n', &self.input[self.scanned..]);
            let end = found.map_or(self.input.len(), |at| self.scanned + at);
            let kept = self.last_id.len() + self.name.len() + self.data.len();
            if end - self.line_start + kept > self.bytes_max {
                self.failed = true;
                self.input = Vec::new();
                return Some(Err(TooLong));
            }
            self.scanned = end;
            found?;
            let line = self.line_start..end;
            let is_lf = self.input[end] == b'\n';
            self.scanned += 1;
            self.line_start = self.scanned;
            let ends_crlf = std::mem::replace(&mut self.after_cr, !is_lf) && is_lf;
            if ends_crlf && line.is_empty() {
                continue;
            }
            // The input steps aside while one of its lines is read.
            let input = std::mem::take(&mut self.input);
            let item = self.line(&input[line]);
            self.input = input;
            if item.is_some() {
                return item.map(Ok);
            }
        }
        None
    }

    /// Interprets one line, without its end.
    fn line(&mut self, line: &[u8]) -> Option<Item> {
        let line = match std::mem::take(&mut self.at_start) {
            true => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            return self.dispatch();
        }
        let Some((name, value)) = split_field(line) else { return Some(Item::Comment) };
        match name {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.name = text(value.to_vec()),
            b"id" if memchr(0, value).is_none() => self.last_id = text(value.to_vec()),
            b"retry" => return saturating_decimal(value).map(Item::Retry),
            _ => {}
        }
        None
    }

    /// An empty line ends an event; one without data is none.
    fn dispatch(&mut self) -> Option<Item> {
        let name = std::mem::take(&mut self.name);
        let mut data = std::mem::take(&mut self.data);
        data.pop()?;
        let some = |text: String| (!text.is_empty()).then_some(text);
        Some(Item::Event { id: some(self.last_id.clone()), name: some(name), data: text(data) })
    }
}

/// One block of a stream, lent from the input: some lines, and the empty one that ends them; or a
/// comment before them, which nobody need wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent<'a> {
    /// Its name, if it has one; without one it is a `message`.
    pub name: Option<&'a [u8]>,
    /// The id it brings, if it brings one. An empty one takes back those before.
    pub id: Option<&'a [u8]>,
    /// Whether it is an event at all: without data it is none, only comments, a time to wait before
    /// connecting again, or an id.
    pub has_data: bool,
    /// The whole block with all its line ends.
    pub lines: &'a [u8],
}

/// Reads the block that `bytes` begin with, and says how long it is; `None` if it goes on beyond
/// them. What follows begins right behind it.
///
/// A block is over with the CR of its empty line, as it must be, since nothing need come for a long
/// time. If an LF comes after all, it stands at the start of what follows and is an empty block of
/// its own, which means nothing. Otherwise more bytes behind these change nothing.
///
/// Behind the beginning of a stream comes [`after_mark`] first, since the beginning cannot be seen
/// here.
pub fn first_event(bytes: &[u8]) -> Option<(RawEvent<'_>, usize)> {
    let mut event = RawEvent { name: None, id: None, has_data: false, lines: b"" };
    let mut start = 0;
    loop {
        let end = start + memchr2(b'\r', b'\n', &bytes[start..])?;
        let ends_in_crlf = bytes[end..].starts_with(b"\r\n");
        let next = end + 1 + usize::from(ends_in_crlf);
        if start == end {
            event.lines = &bytes[..next];
            return Some((event, next));
        }
        match split_field(&bytes[start..end]) {
            None if start == 0 => {
                event.lines = &bytes[..next];
                return Some((event, next));
            }
            Some((b"data", _)) => event.has_data = true,
            Some((b"event", value)) => event.name = (!value.is_empty()).then_some(value),
            Some((b"id", value)) if memchr(0, value).is_none() => event.id = Some(value),
            _ => {}
        }
        start = next;
    }
}

/// The beginning of a stream without its byte order mark, if it has one. `None`: more bytes are
/// needed.
#[must_use]
pub fn after_mark(stream: &[u8]) -> Option<&[u8]> {
    let is_part = stream.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(stream);
    (!is_part).then(|| stream.strip_prefix(BYTE_ORDER_MARK).unwrap_or(stream))
}

/// The name and the value of a line that is not empty; `None` if it is a comment.
fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = match memchr(b':', line) {
        Some(0) => return None,
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &b""[..]),
    };
    Some((name, value.strip_prefix(b" ").unwrap_or(value)))
}

/// Decodes as the standard does: what is not UTF-8 becomes U+FFFD.
fn text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

#[cfg(test)]
mod tests;
