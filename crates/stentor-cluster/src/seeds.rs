//! What a hub has, as the beginning of a life; and what of it a life lacks that has begun
//! elsewhere.

use crate::codec::{Growing, MessageBody, decode, entries};
use crate::line::ENTRIES_MAX;
use std::collections::VecDeque;
use stentor_hub::{
    Entry, Event, Hub, Message, Op, Place, Rule, decode_entry, encode_entry, encode_event,
};

/// Whether what the hub has under the numbers of this message is what it says. `first` is the SEQ
/// of its first entry.
pub(super) fn is_continued(hub: &Hub, first: u64, bytes: &[u8]) -> bool {
    let of = match decode(bytes).map(|message| message.body) {
        Ok(MessageBody::Batch { entries: of, .. } | MessageBody::Seed { entries: of, .. }) => {
            entries(of)
        }
        _ => Ok(Vec::new()),
    };
    let Ok(of) = of else { return false };
    let first = hub.life().number(first).unwrap_or(u64::MAX);
    hub.kept().iter().filter(|event| event.seq() >= first).all(|event| {
        let place = usize::try_from(event.seq() - first).ok();
        let entry = place.and_then(|place| of.get(place)).map(|bytes| decode_entry(bytes));
        entry.is_some_and(|entry| entry.is_ok_and(|(entry, _)| entry.makes(event)))
    })
}

/// The newest change of each topic behind this number, in their order.
pub(super) fn newest(hub: &Hub, number: u64) -> VecDeque<Event> {
    let kept = hub.kept().into_iter().filter(|event| event.seq() > number);
    // Of a life before others may be kept, and are nothing to anybody.
    let of_life = kept.filter(|event| !hub.is_of_past_life(event.seq()));
    let is_newest = |event: &Event| match event.message.is_deletion() {
        true => hub.value(event.topic()).is_none(),
        false => event.message.is_value(),
    };
    of_life.filter(is_newest).collect()
}

/// The values with which an epoch begins.
#[derive(Default)]
pub(super) struct Bootstrap {
    /// The access lists of the cluster. They are in the first seed, before any value.
    pub(super) lists: Vec<Rule>,
    pub(super) values: VecDeque<Event>,
}

/// Some of what there is at the beginning of a life, and whether that is all. A message of the log
/// has `max` bytes at most.
pub(super) fn next_seed(bootstrap: &mut Bootstrap, max: usize) -> (Growing, bool) {
    let bytes_max = SEED_BYTES.min(max / 2);
    let mut seed = Growing::new();
    let Bootstrap { lists, values: events } = bootstrap;
    if !lists.is_empty() {
        let lists = Entry::past(Op::Rules(std::mem::take(lists)), 0);
        seed.push(|out| encode_entry(&lists, Place::Next, out));
    }
    while let Some(event) = events.front() {
        let bytes = seed.bytes() + event.message.kept_bytes();
        let is_full = seed.count() == ENTRIES_MAX || bytes > bytes_max;
        if is_full && seed.count() > 0 {
            return (seed, false);
        }
        if !event.message.is_deletion() {
            seed.push(|out| encode_event(event, out));
        }
        events.pop_front();
    }
    (seed, true)
}

/// A change that only this node has: it is to take place unless its topic has changed since.
pub(super) struct Late {
    since: u64,
    entry: Vec<u8>,
}

impl Late {
    pub(super) fn of(event: &Event, since: u64) -> Option<Late> {
        let (mut bytes, mut entry) = (Vec::new(), Vec::new());
        encode_event(event, &mut bytes);
        encode_entry(&decode_entry(&bytes).ok()?.0, Place::Next, &mut entry);
        Some(Late { since, entry })
    }
}

/// Whether a hub has this change already.
pub(super) fn has(hub: &Hub, event: &Event) -> bool {
    let parts = |it: &Message| {
        let [event, cache] = [it.event(), it.own_cache_control()].map(|it| it.map(str::to_owned));
        (it.content_type().to_owned(), event, cache)
    };
    let message = &event.message;
    hub.value(event.topic()).map_or(message.is_deletion(), |value| {
        let is_same = value.data() == message.data() && parts(&value) == parts(message);
        is_same && !message.is_deletion()
    })
}

/// Whether the topic of an entry has changed behind this number.
pub(super) fn has_changed(hub: &Hub, entry: &Entry<'_>, number: u64) -> bool {
    entry.topic().is_some_and(|topic| hub.has_changed_after(topic, number))
}

/// The next batch of what is late, what it was made behind, and what is in it.
pub(super) fn next_late(
    late: &mut VecDeque<Late>,
    max: usize,
) -> Option<(Growing, u64, Vec<Late>)> {
    let bytes_max = SEED_BYTES.min(max / 2);
    let since = late.front()?.since;
    let (mut batch, mut taken) = (Growing::new(), Vec::new());
    while let Some(next) = late.front().filter(|next| next.since == since) {
        let bytes = batch.bytes() + next.entry.len();
        if batch.count() > 0 && (batch.count() == ENTRIES_MAX || bytes > bytes_max) {
            break;
        }
        batch.push(|out| out.extend_from_slice(&next.entry));
        taken.extend(late.pop_front());
    }
    Some((batch, since, taken))
}

/// A message of seeds has so many bytes, if no single one has more.
const SEED_BYTES: usize = if cfg!(test) { 300 } else { 512 << 10 };

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Limits, Precondition};
    use stentor_wire::target::TopicName;

    #[test]
    fn seeds_are_in_messages_of_bounded_length() {
        let hub = Hub::new(Epoch::from_number(1), Vec::new(), Limits::default());
        for topic in ["/a", "/b", "/c", "/d", "/e"] {
            let (topic, draft) = (TopicName::parse(topic).unwrap(), Draft::new([b'x'; 100]));
            hub.publish(topic, draft, Precondition::None, 1).unwrap();
        }
        let mut bootstrap = Bootstrap { values: newest(&hub, 0), ..Bootstrap::default() };
        let mut lengths = Vec::new();
        loop {
            let (seed, is_last) = next_seed(&mut bootstrap, 1 << 20);
            lengths.push(seed.bytes());
            if is_last {
                break;
            }
        }
        assert!(lengths.len() > 2 && lengths.iter().all(|bytes| *bytes <= SEED_BYTES));
    }
}
