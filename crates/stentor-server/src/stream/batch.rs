//! Messages that leave in one write.
//!
//! A batch is the bytes of several messages, one behind the other, with a mark at the end of each.
//! All readers of a feed who have seen as much of it are due the same bytes, so a batch that was
//! gathered for one is sent to the next as it is. If a socket takes only a part, the marks tell
//! which message was cut: the rest of that one message is the reader's backlog, and whatever is
//! behind it stays where it was, in the log and in history.

use super::feeds::FeedId;
use crate::access::sight;
use crate::limits::GATHER_BYTES;
use crate::output::{Body, Piece, Rest};
use crate::panics::may_panic;
use std::collections::HashSet;
use std::sync::Arc;
use stentor_hub::{Event, Mode, RenderedBytes, StreamForm};
use stentor_wire::deflate::Deflater;

/// The form a reader gets messages in, and the smaller one if it takes that too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forms {
    pub(crate) plain: StreamForm,
    pub(crate) deflated: Option<StreamForm>,
}

/// What a batch was gathered for: whoever is due the same can be sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) feed: FeedId,
    /// The first and the last message of the feed that are due.
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) forms: Forms,
    pub(crate) mode: Mode,
    /// Of what is due, that which may be seen.
    pub(crate) sight: sight::Kind,
}

/// Bytes of messages, and where each of them ends.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Bytes before the first message that are not of any: a response head, a gap event.
    prefix: usize,
    marks: Vec<Mark>,
    /// Whoever was sent all of it has seen everything up to this number.
    upto_seq: u64,
    /// Messages left out since newer ones of their topics follow.
    conflated: u64,
    key: Option<Key>,
}

#[derive(Debug)]
struct Mark {
    end: usize,
    event: Event,
    form: StreamForm,
    /// `None` if it was rendered for one reader.
    rendered: Option<Arc<RenderedBytes>>,
    /// Bytes of data in all messages up to here. Of a deflated message all bytes count.
    data: u64,
}

/// How far a reader got with a batch.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Messages that left, the last of them perhaps in part.
    pub(crate) messages: usize,
    /// The number of the last of them.
    pub(crate) cursor: Option<u64>,
    /// Bytes of these messages, the rest of the last one included.
    pub(crate) bytes: u64,
    /// Of these bytes, those that are data.
    pub(crate) data: u64,
    /// What is left of the last, or of the prefix.
    pub(crate) rest: Option<Rest>,
}

impl Batch {
    /// Whether it is what `key` stands for.
    pub(crate) fn is_for(&self, key: &Key) -> bool {
        self.key.as_ref() == Some(key)
    }

    /// Gathers what is due, oldest first, up to a full write.
    pub(crate) fn gather<'n>(
        &mut self,
        deflater: &mut Deflater,
        key: Key,
        due: impl DoubleEndedIterator<Item = &'n Event> + Clone,
    ) {
        self.clear();
        let Key { first_seq, last_seq, forms, mode, .. } = key;
        self.key = Some(key);
        self.upto_seq = last_seq;
        let mut superseded = superseded(mode, due.clone());
        for event in due {
            if superseded.remove(&event.seq()) {
                self.conflated += 1;
            } else if self.bytes.len() >= GATHER_BYTES {
                self.upto_seq = self.marks.last().map_or(first_seq, |mark| mark.event.seq());
                return;
            } else {
                let (form, rendered) = Batch::deflated(deflater, event, forms)
                    .unwrap_or_else(|| (forms.plain, event.streamed(forms.plain)));
                self.add(event, form, rendered);
            }
        }
    }

    /// Puts bytes in front of the messages: takes them out of `prefix`.
    pub(crate) fn begin(&mut self, prefix: &mut Vec<u8>) {
        self.clear();
        std::mem::swap(&mut self.bytes, prefix);
        self.prefix = self.bytes.len();
    }

    /// Gathers messages as they are, oldest first, up to a full write. What is not deflated is not
    /// kept beside the message: readers come to history one by one. Returns what that has cost.
    pub(crate) fn extend(
        &mut self,
        deflater: &mut Deflater,
        events: &[Event],
        forms: Forms,
    ) -> usize {
        let mut cost = 0;
        for event in events {
            if self.bytes.len() >= GATHER_BYTES || cost >= GATHER_BYTES {
                break;
            }
            cost += event.message.data().len();
            match Batch::deflated(deflater, event, forms) {
                Some((form, rendered)) => self.add(event, form, rendered),
                None => {
                    event.append(forms.plain, &mut self.bytes);
                    self.mark(event, forms.plain, None);
                }
            }
        }
        cost
    }

    fn deflated(
        deflater: &mut Deflater,
        event: &Event,
        forms: Forms,
    ) -> Option<(StreamForm, Arc<RenderedBytes>)> {
        let form = forms.deflated?;
        Some((form, event.deflated(deflater, form)?))
    }

    fn add(&mut self, event: &Event, form: StreamForm, rendered: Arc<RenderedBytes>) {
        self.bytes.extend_from_slice(&rendered);
        may_panic();
        self.mark(event, form, Some(rendered));
    }

    fn mark(&mut self, event: &Event, form: StreamForm, rendered: Option<Arc<RenderedBytes>>) {
        let (begin, data_before) = match self.marks.last() {
            Some(mark) => (mark.end, mark.data),
            None => (self.prefix, 0),
        };
        let end = self.bytes.len();
        let data = if form.is_deflated() { end - begin } else { event.message.data().len() };
        let data = data_before + data as u64;
        self.marks.push(Mark { end, event: event.clone(), form, rendered, data });
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes before the first message.
    pub(crate) fn prefix(&self) -> usize {
        self.prefix
    }

    /// Messages in it.
    pub(crate) fn messages(&self) -> usize {
        self.marks.len()
    }

    /// Messages left out since newer ones of their topics follow.
    pub(crate) fn conflated(&self) -> u64 {
        self.conflated
    }

    pub(crate) fn upto_seq(&self) -> u64 {
        self.upto_seq
    }

    /// What it means that only the first `sent` bytes left.
    pub(crate) fn sent(&self, sent: usize) -> Sent {
        let whole = self.marks.partition_point(|mark| mark.end <= sent);
        let begin = if whole == 0 { self.prefix } else { self.marks[whole - 1].end };
        if sent < begin {
            let piece = Piece::Own(self.bytes[sent..begin].into());
            return Sent { rest: Some(Rest { piece, offset: 0 }), ..Sent::default() };
        }
        let (messages, rest) = match self.marks.get(whole) {
            Some(mark) if sent > begin => {
                // A form that is not deflated is rendered the same again.
                let rendered = mark.rendered.clone();
                let body =
                    Body::Rendered(rendered.unwrap_or_else(|| mark.event.streamed(mark.form)));
                let rest = Rest { piece: Piece::Shared(body), offset: sent - begin };
                (whole + 1, Some(rest))
            }
            _ => (whole, None),
        };
        let Some(last) = messages.checked_sub(1).map(|last| &self.marks[last]) else {
            return Sent { rest, ..Sent::default() };
        };
        // mutation: cut-message
        let bytes = (last.end - self.prefix) as u64;
        Sent { messages, cursor: Some(last.event.seq()), bytes, data: last.data, rest }
    }

    /// Forgets everything; a large buffer is given back.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * GATHER_BYTES);
        self.prefix = 0;
        self.marks.clear();
        self.upto_seq = 0;
        self.conflated = 0;
        self.key = None;
    }
}

/// The messages, by number, that a newer one of the same topic makes worthless: all older ones for
/// those who want the latest; those of topics that keep no history for those who leave it to the
/// topic.
fn superseded<'n>(
    mode: Mode,
    due: impl DoubleEndedIterator<Item = &'n Event> + Clone,
) -> HashSet<u64> {
    let mut superseded = HashSet::new();
    let conflates = |event: &Event| mode == Mode::Latest || event.message.conflates();
    if mode == Mode::All || due.clone().nth(1).is_none() || !due.clone().any(conflates) {
        return superseded;
    }
    let mut seen = HashSet::new();
    for event in due.rev() {
        let newer = !seen.insert(event.topic());
        if newer && conflates(event) {
            superseded.insert(event.seq());
        }
    }
    superseded
}

/// The batches of a worker: one for each form that is shared, and one that is put together for a
/// single reader.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// By form, as far as forms were asked for.
    shared: Vec<Batch>,
    own: Batch,
    is_used: bool,
}

impl Batches {
    /// The batch shared by readers of these forms.
    pub(crate) fn shared(&mut self, forms: Forms) -> &mut Batch {
        self.is_used = true;
        let at = forms.deflated.unwrap_or(forms.plain) as usize;
        if self.shared.len() <= at {
            self.shared.resize_with(at + 1, Batch::default);
        }
        &mut self.shared[at]
    }

    /// The batch for a single reader, who is due what nobody else is.
    pub(crate) fn own(&mut self) -> &mut Batch {
        self.is_used = true;
        &mut self.own
    }

    /// Gives up what the batches keep alive, once nobody is to be visited.
    pub(crate) fn forget(&mut self) {
        if std::mem::take(&mut self.is_used) {
            self.shared.iter_mut().for_each(Batch::clear);
            self.own.clear();
        }
    }
}

#[cfg(test)]
mod tests;
