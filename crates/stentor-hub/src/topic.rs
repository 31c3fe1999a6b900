//! One topic: its value, and the messages before it that are still kept.
//!
//! The value sits in a cell that readers load without a lock. The earlier messages are for those
//! who fell behind, so they sit behind a lock of the topic's own, and most topics of a big table
//! have none: their list exists only once there is something to put in it.
//!
//! All changes come from the sequencing point, one at a time.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwapOption;

use crate::event::{Event, Missed, Mode, Span};
use crate::interleave;
use crate::lock::lock;
use crate::message::Message;
use crate::rules::Terms;

pub(crate) struct Topic {
    name: Box<str>,
    /// `None` only once the topic was deleted, for those who still hold it.
    value: ArcSwapOption<Message>,
    kept: Mutex<Retained>,
}

struct Retained {
    terms: Arc<Terms>,
    earlier: Option<Box<Earlier>>,
    /// No message up to this number is kept; some of those may have been this topic's. All that
    /// is kept is newer.
    lost_seq: u64,
}

#[derive(Default)]
struct Earlier {
    /// Oldest first; the value is not among them.
    messages: VecDeque<Arc<Message>>,
    /// The sum of their data's lengths.
    bytes: usize,
    /// The sum of [`Message::stored_bytes`].
    stored_bytes: usize,
}

/// Sums over the messages that topics keep.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    /// Messages, values included.
    pub(crate) messages: usize,
    /// Bytes of data.
    pub(crate) bytes: usize,
    /// Bytes of memory of topics and their values.
    pub(crate) values_stored: usize,
    /// Bytes of memory of earlier messages.
    pub(crate) history_stored: usize,
}

impl Sums {
    /// Adds other sums, or subtracts them, by `operation`.
    pub(crate) fn change(&mut self, other: Sums, operation: fn(usize, usize) -> usize) {
        self.messages = operation(self.messages, other.messages);
        self.bytes = operation(self.bytes, other.bytes);
        self.values_stored = operation(self.values_stored, other.values_stored);
        self.history_stored = operation(self.history_stored, other.history_stored);
    }
}

impl Topic {
    /// A topic with its first value, whose terms it is held to. Of a topic of this name before,
    /// what was up to `lost_seq` is gone.
    pub(crate) fn new(name: &str, value: Arc<Message>, lost_seq: u64) -> Topic {
        let kept =
            Mutex::new(Retained { terms: Arc::clone(value.terms()), earlier: None, lost_seq });
        Topic { name: name.into(), value: ArcSwapOption::new(Some(value)), kept }
    }

    /// A topic that was deleted, for those who hear of it later.
    pub(crate) fn deleted(name: &str, terms: Arc<Terms>, lost_seq: u64) -> Topic {
        let kept = Mutex::new(Retained { terms, earlier: None, lost_seq });
        Topic { name: name.into(), value: ArcSwapOption::empty(), kept }
    }

    /// A topic as [`Topic::export`] told of it. The last message is the value.
    pub(crate) fn restored(
        name: &str,
        terms: Arc<Terms>,
        lost_seq: u64,
        messages: Vec<Arc<Message>>,
    ) -> Topic {
        let mut earlier = VecDeque::from(messages);
        let value = earlier.pop_back();
        earlier.iter().for_each(|message| message.supersede());
        let earlier = Earlier::of(earlier);
        let kept = Mutex::new(Retained { terms, earlier, lost_seq });
        Topic { name: name.into(), value: ArcSwapOption::new(value), kept }
    }

    /// Its terms, its `lost_seq` and what is kept, oldest first, at one moment. Nothing is kept of
    /// a topic that was deleted.
    pub(crate) fn export(&self) -> (Arc<Terms>, u64, Vec<Arc<Message>>) {
        let kept = self.kept();
        let earlier = kept.earlier.iter().flat_map(|earlier| earlier.messages.iter().cloned());
        let messages = earlier.chain(self.value.load_full()).collect();
        (Arc::clone(&kept.terms), kept.lost_seq, messages)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The cell readers load.
    pub(crate) fn value(&self) -> &ArcSwapOption<Message> {
        &self.value
    }

    pub(crate) fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.kept().terms)
    }

    /// Messages kept, the value included, of a topic that has one.
    pub(crate) fn history(&self) -> usize {
        1 + self.kept().earlier.as_ref().map_or(0, |earlier| earlier.messages.len())
    }

    /// Makes `message` the value. Returns the one before and those no longer kept, for the
    /// caller to drop when it holds no lock.
    pub(crate) fn replace(&self, message: Arc<Message>) -> (Option<Arc<Message>>, Evicted) {
        let value_bytes = message.data().len();
        let mut evicted = Evicted::new();
        // Locked before the swap: whoever reads value and history under this lock misses none.
        let mut kept = self.kept();
        let replaced = self.value.swap(Some(message));
        if let Some(replaced) = &replaced {
            replaced.supersede();
            kept.remember(Arc::clone(replaced), &mut evicted);
        }
        kept.trim(value_bytes, &mut evicted);
        kept.lose(&evicted);
        (replaced, evicted)
    }

    /// Holds the topic to other terms from now on. Returns what is no longer kept.
    pub(crate) fn set_terms(&self, terms: &Arc<Terms>) -> Evicted {
        let value_bytes = self.value.load().as_ref().map_or(0, |value| value.data().len());
        let mut evicted = Evicted::new();
        let mut kept = self.kept();
        kept.terms = Arc::clone(terms);
        kept.trim(value_bytes, &mut evicted);
        kept.lose(&evicted);
        evicted
    }

    /// Whether another hub, which is further on, has all that is here, or has lost it as time goes
    /// by: nothing of it was taken back.
    pub(crate) fn is_continued_by(&self, other: &Topic) -> bool {
        if self.value_seq() == other.value_seq() {
            return true;
        }
        let ((_, _, here), (_, lost_seq, there)) = (self.export(), other.export());
        let is_there = |seq| there.binary_search_by_key(&seq, |message| message.seq()).is_ok();
        here.iter().map(|message| message.seq()).all(|seq| seq <= lost_seq || is_there(seq))
    }

    /// The number of its value; `None` once it was deleted.
    pub(crate) fn value_seq(&self) -> Option<u64> {
        self.value.load().as_ref().map(|value| value.seq())
    }

    /// See [`Retained`].
    pub(crate) fn lost_seq(&self) -> u64 {
        self.kept().lost_seq
    }

    /// Its sums.
    pub(crate) fn sums(&self) -> Sums {
        let kept = self.kept();
        let mut sums = Sums { values_stored: stored_bytes_of(&self.name), ..Sums::default() };
        if let Some(value) = self.value.load().as_ref() {
            sums.messages += 1;
            sums.bytes += value.data().len();
            sums.values_stored += value.stored_bytes();
        }
        if let Some(earlier) = &kept.earlier {
            sums.messages += earlier.messages.len();
            sums.bytes += earlier.bytes;
            sums.history_stored = earlier.stored_bytes;
        }
        sums
    }

    /// The memory of its earlier messages, in bytes.
    pub(crate) fn history_stored(&self) -> usize {
        self.kept().earlier.as_ref().map_or(0, |earlier| earlier.stored_bytes)
    }

    /// Calls `f` with the sequence and the memory of each earlier message, oldest first.
    pub(crate) fn for_each_earlier(&self, mut f: impl FnMut(u64, usize)) {
        if let Some(earlier) = &self.kept().earlier {
            earlier.messages.iter().for_each(|message| f(message.seq(), message.stored_bytes()));
        }
    }

    /// Evicts the oldest messages, never the value, while `is_wanted` says so of the sequence of
    /// the next one and the bytes freed so far. Returns them.
    pub(crate) fn drop_oldest(&self, mut is_wanted: impl FnMut(u64, usize) -> bool) -> Evicted {
        let mut evicted = Evicted::new();
        let mut kept = self.kept();
        let Some(earlier) = &mut kept.earlier else { return evicted };
        let before = earlier.stored_bytes;
        while let Some(oldest) = earlier.messages.front()
            && is_wanted(oldest.seq(), before - earlier.stored_bytes)
        {
            evicted.extend(earlier.pop());
        }
        if earlier.messages.is_empty() {
            kept.earlier = None;
        }
        kept.lose(&evicted);
        evicted
    }

    /// Takes everything out of a topic that is no longer in the table. Who still holds it learns
    /// that all of it is lost.
    pub(crate) fn clear(&self) -> Evicted {
        let mut kept = self.kept();
        let earlier = kept.earlier.take().into_iter().flat_map(|earlier| earlier.messages);
        let evicted: Evicted = earlier.chain(self.value.swap(None)).collect();
        kept.lose(&evicted);
        evicted
    }

    /// A snapshot has replaced this topic. It keeps its messages for readers that have looked it
    /// up: if they found nothing, they would take that for a newer value.
    pub(crate) fn detach(&self) {
        let kept = self.kept();
        let earlier = kept.earlier.iter().flat_map(|earlier| &earlier.messages);
        earlier.chain(self.value.load().as_ref()).for_each(|message| message.set_dropped());
    }

    /// Appends what is kept of the span, oldest first, as [`Hub::missed`](crate::Hub::missed)
    /// says.
    pub(crate) fn missed(
        self: &Arc<Topic>,
        span: Span,
        bytes_max: usize,
        out: &mut Vec<Event>,
    ) -> Missed {
        let kept = self.kept();
        let value = self.value.load();
        let whole = |lost_seq| Missed { upto: span.upto, lost_seq };
        if span.mode.conflates(&kept.terms) {
            let value = value.as_ref().filter(|value| span.contains(value));
            out.extend(value.map(|value| Event::new(Arc::clone(self), Arc::clone(value))));
            return whole(0);
        }
        let earlier = kept.earlier.as_ref().map(|earlier| &earlier.messages);
        let earlier = earlier.into_iter().flat_map(|messages| {
            let first = messages.partition_point(|message| message.seq() <= span.since);
            messages.range(first..)
        });
        let (begin, mut bytes) = (out.len(), 0);
        for message in earlier.chain(value.as_ref()).filter(|message| span.contains(message)) {
            bytes += message.kept_bytes();
            if out.len() > begin && bytes > bytes_max {
                return Missed { upto: message.seq() - 1, lost_seq: kept.lost_seq };
            }
            out.push(Event::new(Arc::clone(self), Arc::clone(message)));
        }
        whole(kept.lost_seq)
    }

    /// What has become of the message of a number that this topic was given. `None` if the topic
    /// was deleted: its messages are gone, and the number may be the deletion's.
    pub(crate) fn change(&self, seq: u64, mode: Mode) -> Option<Change> {
        let kept = self.kept();
        let value = self.value.load();
        let value = value.as_ref()?;
        if value.seq() == seq {
            return Some(Change::Kept(Arc::clone(value)));
        }
        if mode.conflates(&kept.terms) {
            return Some(Change::Replaced);
        }
        let find = |earlier: &Earlier| {
            let at = earlier.messages.binary_search_by_key(&seq, |message| message.seq()).ok()?;
            Some(Arc::clone(&earlier.messages[at]))
        };
        let message = kept.earlier.as_deref().and_then(find);
        Some(message.map_or(Change::Lost, Change::Kept))
    }

    /// Whether readers of this mode want only the newest of this topic.
    pub(crate) fn conflates(&self, mode: Mode) -> bool {
        mode.conflates(&self.kept().terms)
    }

    /// Runs `act` while history is locked.
    #[cfg(test)]
    pub(crate) fn while_locked(&self, act: impl FnOnce()) {
        let _kept = self.kept();
        act();
    }

    fn kept(&self) -> MutexGuard<'_, Retained> {
        interleave::inside();
        lock(&self.kept)
    }
}

/// What has become of a message.
pub(crate) enum Change {
    Kept(Arc<Message>),
    /// It is not wanted: a newer one is.
    Replaced,
    Lost,
}

/// Messages that were kept and are no longer, oldest first.
pub(crate) type Evicted = Vec<Arc<Message>>;

impl Earlier {
    /// `None` if there are none.
    fn of(messages: VecDeque<Arc<Message>>) -> Option<Box<Earlier>> {
        let bytes = messages.iter().map(|message| message.data().len()).sum();
        let stored_bytes = messages.iter().map(|message| message.stored_bytes()).sum();
        (!messages.is_empty()).then(|| Box::new(Earlier { messages, bytes, stored_bytes }))
    }

    fn push(&mut self, message: Arc<Message>) {
        self.bytes += message.data().len();
        self.stored_bytes += message.stored_bytes();
        self.messages.push_back(message);
    }

    /// Takes the oldest out.
    fn pop(&mut self) -> Option<Arc<Message>> {
        let oldest = self.messages.pop_front()?;
        self.bytes -= oldest.data().len();
        self.stored_bytes -= oldest.stored_bytes();
        Some(oldest)
    }
}

impl Retained {
    /// How many messages before the value may be kept.
    fn earlier_max(&self) -> usize {
        (self.terms.rule.history as usize).saturating_sub(1)
    }

    fn remember(&mut self, message: Arc<Message>, evicted: &mut Evicted) {
        if self.earlier_max() == 0 {
            evicted.push(message);
            return;
        }
        self.earlier.get_or_insert_default().push(message);
    }

    /// Notes what is no longer kept.
    fn lose(&mut self, evicted: &Evicted) {
        for message in evicted {
            // Other holders are connections. Without any, the memory is free at once.
            if Arc::strong_count(message) > 1 {
                message.set_dropped();
            }
            self.lost_seq = self.lost_seq.max(message.seq());
        }
    }

    /// Drops the oldest until the bounds hold.
    fn trim(&mut self, value_bytes: usize, evicted: &mut Evicted) {
        let messages_max = self.earlier_max();
        let bytes_max = self.terms.rule.history_bytes;
        let Some(earlier) = &mut self.earlier else { return };
        while earlier.messages.len() > messages_max || value_bytes + earlier.bytes > bytes_max {
            let Some(oldest) = earlier.pop() else { break };
            evicted.push(oldest);
        }
        if messages_max == 0 {
            self.earlier = None;
        }
    }
}

/// The memory of a topic with this name and without messages: the struct with the counts of its
/// `Arc`, an entry of the table, an entry of the index, and what an allocator adds.
pub(crate) fn stored_bytes_of(name: &str) -> usize {
    name.len() + 160
}

/// A topic as a member of a set of names: it is its own key, so the name is stored once.
#[derive(Clone)]
pub(crate) struct ByName(pub(crate) Arc<Topic>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &ByName) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &ByName) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &ByName) -> std::cmp::Ordering {
        self.0.name().cmp(other.0.name())
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

// A topic is counted in millions: with the counts of its `Arc` it takes 72 bytes and its name.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Topic>() == 56);
