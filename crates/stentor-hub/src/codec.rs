//! Entries as bytes: for a store, a broker, another process, and (their parts) for snapshots.
//!
//! One entry after the other makes the same hub again, so all that readers can see of a message
//! is here, and nothing that follows from the entries before: a Cache-Control that the rule gave,
//! what was compressed here. Each entry has one spelling. Whatever else is refused, for what is
//! read is a file or comes from another machine; no length is believed before its bytes are
//! there. All nodes must write the same bytes for an entry, so postcard does not write them: it
//! accepts several spellings of a number.
//!
//! | part | form |
//! |---|---|
//! | version | a byte, 1 |
//! | kind | a byte: bits 0-1 put, delete, rules; 2-3 the place; 4-5 the condition; 6 same second |
//! | number | varint, if it has its place |
//! | time | varint, seconds since 1970 |
//! | put, delete | the name; the tags of the condition, if it has one |
//! | delete | the number of the topic's last value, if it was applied before |
//! | put | a byte of flags; the type; what the flags say; the data |
//! | rules | their count; of each the pattern, history, bytes, Cache-Control, flags, keeping |
//!
//! A varint has seven bits in each byte, the lowest first, and a high bit that says "and more".
//! Texts and data have their length before them, as a varint.

use stentor_wire::target::TopicName;

use crate::entry::{Entry, Op, Past, Place, Precondition};
use crate::event::Event;
use crate::field::{CacheControl, ContentType, EventName};
use crate::message::{Draft, Parts};
use crate::pattern::Pattern;
use crate::rules::{Guard, Keep, LeaveOut, Rule};
use stentor_wire::error::Rejection;

/// Appends an entry and its place.
pub fn encode_entry(entry: &Entry<'_>, place: Place, out: &mut Vec<u8>) {
    let (when, tags) = match &entry.when {
        Precondition::None => (0, None),
        Precondition::IfMatch(tags) => (1, Some(tags)),
        Precondition::IfNoneMatch(tags) => (2, Some(tags)),
    };
    match &entry.op {
        Op::Put(topic, draft) => {
            put_start(out, PUT | when << WHEN_SHIFT, place, entry.unix_s);
            put_bytes(out, topic.as_bytes());
            tags.iter().for_each(|tags| put_bytes(out, tags));
            put_parts(out, &draft.parts());
        }
        Op::Delete(topic) => {
            put_start(out, DELETE | when << WHEN_SHIFT, place, entry.unix_s);
            put_bytes(out, topic.as_bytes());
            tags.iter().for_each(|tags| put_bytes(out, tags));
            place.past().iter().for_each(|past| put_varint(out, past.last_seq));
        }
        Op::Rules(rules) => put_rules(out, place, entry.unix_s, rules),
    }
}

/// Appends a message or a deletion as the entry that it was, under its SEQ.
pub fn encode_event(event: &Event, out: &mut Vec<u8>) {
    let message = &*event.message;
    // Outside of this process nobody knows how it counts.
    let (shares_second, number) = (message.shares_second(), message.id().seq);
    let last_seq = message.life().id(message.last_seq()).seq;
    let place = Place::Was(Past { number, shares_second, last_seq });
    let kind = if message.is_deletion() { DELETE } else { PUT };
    put_start(out, kind, place, message.published_at());
    put_bytes(out, event.topic().as_bytes());
    match message.is_deletion() {
        true => put_varint(out, last_seq),
        false => put_parts(out, &message.parts()),
    }
}

/// Appends a change of rules as the entry that it was.
pub fn encode_rules(generation: u64, rules: &[Rule], out: &mut Vec<u8>) {
    let past = Past { number: generation, shares_second: false, last_seq: 0 };
    put_rules(out, Place::Was(past), 0, rules);
}

/// Reads an entry and its place. Takes no more memory than some ten times what is read.
///
/// # Errors
///
/// One sentence, if this is no entry from its first to its last byte.
pub fn decode_entry(bytes: &[u8]) -> Result<(Entry<'_>, Place), &'static str> {
    let mut reader = Reader(bytes);
    let (head, number, unix_s) = reader.start()?;
    let (kind, when) = (head & 3, head >> WHEN_SHIFT & 3);
    let shares_second = head & SAME_SECOND != 0;
    let mut place = match head >> PLACE_SHIFT & 3 {
        0 => Place::Next,
        1 => Place::At(number),
        2 => Place::Was(Past { number, shares_second, last_seq: 0 }),
        _ => return Err(MALFORMED),
    };
    if head & UNUSED != 0 || shares_second && place.past().is_none() {
        return Err(MALFORMED);
    }
    if kind == RULES {
        if when != 0 || shares_second {
            return Err(MALFORMED);
        }
        let count = reader.varint()?;
        let rules = (0..count).map(|_| reader.rule()).collect::<Result<_, _>>()?;
        reader.end()?;
        return Ok((Entry { op: Op::Rules(rules), when: Precondition::None, unix_s }, place));
    }
    let topic = TopicName::parse(reader.text()?).map_err(Rejection::fixed_text)?;
    let when = match when {
        0 => Precondition::None,
        1 => Precondition::IfMatch(reader.bytes()?.into()),
        2 => Precondition::IfNoneMatch(reader.bytes()?.into()),
        _ => return Err(MALFORMED),
    };
    let op = match kind {
        PUT => Op::Put(topic, reader.draft()?),
        DELETE => {
            if let Place::Was(past) = &mut place {
                past.last_seq = reader.varint()?;
            }
            Op::Delete(topic)
        }
        _ => return Err(MALFORMED),
    };
    reader.end()?;
    Ok((Entry { op, when, unix_s }, place))
}

/// The topic of an entry; `None` if it changes the rules. Looks at no more than that takes.
///
/// # Errors
///
/// One sentence, if this is no entry; not all that is none is found.
pub fn entry_topic(bytes: &[u8]) -> Result<Option<&str>, &'static str> {
    let mut reader = Reader(bytes);
    let (head, ..) = reader.start()?;
    if head & 3 == RULES { Ok(None) } else { reader.text().map(Some) }
}

fn put_start(out: &mut Vec<u8>, kind: u8, place: Place, unix_s: u64) {
    let (place, number) = match place {
        Place::Next => (0, None),
        Place::At(number) => (1 << PLACE_SHIFT, Some(number)),
        Place::Was(past) => {
            let second = if past.shares_second && kind != RULES { SAME_SECOND } else { 0 };
            (2 << PLACE_SHIFT | second, Some(past.number))
        }
    };
    out.extend_from_slice(&[VERSION, kind | place]);
    number.iter().for_each(|number| put_varint(out, *number));
    put_varint(out, unix_s);
}

fn put_rules(out: &mut Vec<u8>, place: Place, unix_s: u64, rules: &[Rule]) {
    put_start(out, RULES, place, unix_s);
    put_varint(out, rules.len() as u64);
    rules.iter().for_each(|rule| put_rule(out, rule));
}

pub(crate) fn put_parts(out: &mut Vec<u8>, parts: &Parts<'_>) {
    let optional =
        [parts.event.map(str::as_bytes), parts.cache_control.map(str::as_bytes), parts.gzip];
    let flags = optional.iter().rev().fold(0, |flags, part| flags << 1 | u8::from(part.is_some()));
    out.extend_from_slice(&[flags, parts.content_type]);
    parts.other_type.iter().for_each(|text| put_bytes(out, text.as_bytes()));
    optional.iter().flatten().for_each(|part| put_bytes(out, part));
    put_bytes(out, parts.data);
}

pub(crate) fn put_rule(out: &mut Vec<u8>, rule: &Rule) {
    put_bytes(out, rule.pattern.as_str().as_bytes());
    put_varint(out, u64::from(rule.history));
    put_varint(out, rule.history_bytes as u64);
    // No directive is empty: that stands for none.
    put_bytes(out, rule.cache_control.as_ref().map_or(b"", |text| text.as_str().as_bytes()));
    let LeaveOut { last_modified, cache_control, vary } = rule.leave_out;
    let Guard { is_private, list } = rule.guard;
    let flags = [last_modified, cache_control, vary, is_private];
    out.push(
        flags
            .iter()
            .rev()
            .fold(list & Guard::LISTS_MAX, |flags, flag| flags << 1 | u8::from(*flag)),
    );
    let keep = KEEPS.iter().position(|keep| *keep == rule.keep);
    out.push(keep.expect("the list has all") as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What is left to be read. Each method takes one part away.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the start of an entry, as [`put_start`] writes it. Returns its second byte, its
    /// number and its time.
    fn start(&mut self) -> Result<(u8, u64, u64), &'static str> {
        if self.byte()? != VERSION {
            return Err("The entry is of a version that is not known.");
        }
        let head = self.byte()?;
        let number = if head >> PLACE_SHIFT & 3 == 0 { 0 } else { self.varint()? };
        Ok((head, number, self.varint()?))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, &'static str> {
        let (byte, rest) = self.0.split_first().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, &'static str> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MALFORMED),
        }
    }

    pub(crate) fn varint(&mut self) -> Result<u64, &'static str> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || shift == 0;
                let is_whole = bits << shift >> shift == bits;
                return if is_shortest && is_whole { Ok(number) } else { Err(MALFORMED) };
            }
        }
        Err(MALFORMED)
    }

    pub(crate) fn varints<const N: usize>(&mut self) -> Result<[u64; N], &'static str> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.varint()?;
        }
        Ok(numbers)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], &'static str> {
        let len = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, &'static str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| MALFORMED)
    }

    pub(crate) fn draft(&mut self) -> Result<Draft, &'static str> {
        let (flags, index) = (self.byte()?, self.byte()?);
        if flags >= 1 << 3 {
            return Err(MALFORMED);
        }
        let content_type = match ContentType::common(index) {
            Some(text) => ContentType::parse(text).map_err(Rejection::fixed_text)?,
            None => ContentType::parse(self.text()?).map_err(Rejection::fixed_text)?,
        };
        if content_type.clone().into_parts().0 != index {
            return Err(MALFORMED);
        }
        let event = (flags & 1 != 0).then(|| self.text()).transpose()?;
        let event = event.map(EventName::parse).transpose().map_err(Rejection::fixed_text)?;
        let control = (flags & 2 != 0).then(|| self.text()).transpose()?;
        let control =
            control.map(CacheControl::parse).transpose().map_err(Rejection::fixed_text)?;
        let gzip = (flags & 4 != 0).then(|| self.bytes()).transpose()?;
        let mut draft = Draft::new(self.bytes()?).with_content_type(content_type);
        if let Some(event) = event {
            draft = draft.with_event(event);
        }
        if let Some(control) = control {
            draft = draft.with_cache_control(control);
        }
        Ok(match gzip {
            Some(body) => draft.with_gzip(body.into()),
            None => draft,
        })
    }

    pub(crate) fn rule(&mut self) -> Result<Rule, &'static str> {
        let pattern =
            Pattern::parse_stored(self.text()?).map_err(|_| "The entry has a bad pattern.")?;
        let history = u32::try_from(self.varint()?).map_err(|_| MALFORMED)?;
        let history_bytes = usize::try_from(self.varint()?).map_err(|_| MALFORMED)?;
        let cache_control = match self.text()? {
            "" => None,
            text => Some(CacheControl::parse(text).map_err(Rejection::fixed_text)?),
        };
        let flags = self.byte()?;
        let guard = Guard { is_private: flags & 8 != 0, list: flags >> 4 };
        let leave_out = LeaveOut {
            last_modified: flags & 1 != 0,
            cache_control: flags & 2 != 0,
            vary: flags & 4 != 0,
        };
        let keep = *KEEPS.get(usize::from(self.byte()?)).ok_or(MALFORMED)?;
        Ok(Rule { pattern, history, history_bytes, cache_control, leave_out, keep, guard })
    }

    pub(crate) fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err("Something follows where nothing should.") }
    }
}

pub(crate) const TRUNCATED: &str = "The bytes end before their time.";
pub(crate) const MALFORMED: &str = "These bytes are nothing that was written here.";

/// The version of the form of entries.
pub const ENTRY_VERSION: u8 = 1;

const VERSION: u8 = ENTRY_VERSION;

/// What a rule may say of keeping, each by its place.
const KEEPS: [Option<Keep>; 5] =
    [None, Some(Keep::None), Some(Keep::Memory), Some(Keep::Written), Some(Keep::Synced)];

const PUT: u8 = 0;
const DELETE: u8 = 1;
const RULES: u8 = 2;
const PLACE_SHIFT: u32 = 2;
const WHEN_SHIFT: u32 = 4;
const SAME_SECOND: u8 = 1 << 6;
const UNUSED: u8 = 1 << 7;

#[cfg(test)]
mod tests;
