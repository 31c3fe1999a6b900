//! The simulated broker: a log, and what is on its way there and back.

use super::*;
use crate::codec::may_be_epoch_record;

/// The broker.
#[derive(Clone, Default)]
pub(super) struct Log {
    /// Counts how often it has begun.
    pub(super) run: u64,
    /// The sequence before the first that is kept.
    pub(super) before: u64,
    /// `None`: it was deleted. Without a subject of nodes: another client's.
    pub(super) messages: Vec<Option<Stored>>,
    /// Time passes, so that each message would soon be forgotten.
    pub(super) ages: bool,
    /// Messages that it has taken twice: both sequences.
    pub(super) copies: Vec<(u64, u64)>,
}

pub(super) type Stored = (Option<LogSubject>, Arc<[u8]>);

impl Log {
    pub(super) fn last(&self) -> u64 {
        self.before + self.messages.len() as u64
    }

    pub(super) fn message(&self, seq: u64) -> Option<&Stored> {
        let index = seq.checked_sub(self.before + 1)?;
        self.messages.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// The first message from this sequence on.
    pub(super) fn next(&self, seq: u64) -> Option<u64> {
        (seq.max(self.before + 1)..=self.last()).find(|seq| self.message(*seq).is_some())
    }

    /// Deletes a message, and so its beginning if that is all before it.
    pub(super) fn delete(&mut self, seq: u64) {
        if let Some(index) = seq.checked_sub(self.before + 1)
            && let Some(message) = self.messages.get_mut(index as usize)
        {
            *message = None;
            self.forget(self.next(0).unwrap_or(self.last() + 1) - 1);
        }
    }

    /// Has a disk change a message.
    pub(super) fn flip_bit(&mut self, seq: u64, bit: u64) {
        if let Some(index) = seq.checked_sub(self.before + 1)
            && let Some(Some((_, bytes))) = self.messages.get_mut(index as usize)
        {
            let mut flipped = bytes.to_vec();
            let bit = bit as usize % (8 * flipped.len());
            flipped[bit / 8] ^= 1 << (bit % 8);
            *bytes = flipped.into();
        }
    }

    pub(super) fn last_of(&self, subject: LogSubject) -> u64 {
        let is_of = |it: &Option<Stored>| it.as_ref().is_some_and(|(of, _)| *of == Some(subject));
        let place = self.messages.iter().rposition(is_of);
        place.map_or(0, |place| self.before + place as u64 + 1)
    }

    pub(super) fn append(
        &mut self,
        to: LogSubject,
        after: u64,
        payload: &Arc<[u8]>,
        takes_copies: bool,
    ) -> Appended {
        let last = self.last_of(to);
        if last != after {
            if !takes_copies || !self.is_copy(last, payload) {
                return Appended::Conflict(last);
            }
            self.copies.push((last, self.last() + 1));
        }
        self.messages.push(Some((Some(to), Arc::clone(payload))));
        Appended::At(self.last())
    }

    /// Whether this says the same as the last message of its subject, and that is a recent one.
    fn is_copy(&self, last: u64, payload: &[u8]) -> bool {
        let (is_recent, of) = (last + 10 > self.last(), decode(payload).unwrap());
        let mut stored = self.message(last).into_iter();
        of.counter > 0 && is_recent && stored.any(|(_, bytes)| decode(bytes).as_ref() == Ok(&of))
    }

    /// Forgets its beginning, up to this message.
    pub(super) fn forget(&mut self, upto: u64) {
        self.messages.drain(..(upto - self.before) as usize);
        self.before = upto;
    }

    pub(super) fn look(&self, at: u64, unix_ms: u64) -> Looked {
        let life_last = self.last_of(LogSubject::Life);
        let is_record = |seq: &u64| {
            let stored = self.message(*seq).filter(|(of, _)| *of == Some(LogSubject::Life));
            stored.is_some_and(|(_, bytes)| may_be_epoch_record(bytes))
        };
        let life = (self.before + 1..=life_last).rev().find(is_record).unwrap_or(0);
        let is_old =
            self.ages || self.before > 0 && life < self.before + self.messages.len() as u64 / 2;
        Looked {
            broker: self.run,
            unix_ms,
            first: self.before + 1,
            last: self.last(),
            life_last,
            life: self.message(life).map(|(_, payload)| (life, payload.to_vec(), is_old)),
            at: self.message(at).map(|(_, payload)| hash_of(payload)),
            next: self.next(at + 1),
        }
    }
}

/// A request of a node on its way to the broker.
pub(super) enum Asked {
    /// The log ended with the message `last` when it was asked.
    Look {
        at: u64,
        token: u64,
        last: u64,
    },
    Append {
        to: LogSubject,
        after: u64,
        payload: Arc<[u8]>,
        token: u64,
    },
}

pub(super) enum Answer {
    Looked(u64, Looked),
    Appended(u64, Appended),
}
