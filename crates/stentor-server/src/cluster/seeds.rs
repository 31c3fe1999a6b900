//! What a hub has, as the beginning of a life; and what of it a life lacks that has begun
//! elsewhere.

use super::codec::{Body, ENTRIES_MAX, Growing, PLACE_BITS, decode, entries};
use std::collections::VecDeque;
use stentor_hub::{Event, Hub, Place, Precondition, decode_entry, encode_entry, encode_event};

/// Whether what the hub has under the numbers of this message is what it says.
pub(super) fn is_continued(hub: &Hub, seq: u64, bytes: &[u8]) -> bool {
    let of = match decode(bytes).map(|message| message.body) {
        Ok(Body::Batch { entries: of, .. } | Body::Seed { entries: of, .. }) => entries(of),
        _ => Ok(Vec::new()),
    };
    let Ok(of) = of else { return false };
    let first = hub.life().number(seq << PLACE_BITS).unwrap_or(u64::MAX);
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

/// Some of what there is at the beginning of a life, and whether that is all.
pub(super) fn next_seed(events: &mut VecDeque<Event>) -> (Growing, bool) {
    let mut seed = Growing::new();
    while let Some(event) = events.front() {
        let bytes = seed.bytes() + event.message.kept_bytes();
        let is_full = seed.count() == ENTRIES_MAX || bytes > SEED_BYTES;
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

/// A change of before that is not in the life that has begun: it is to take place unless the topic
/// is another one by then.
pub(super) fn late_entry(hub: &Hub, event: &Event) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    encode_event(event, &mut bytes);
    let (entry, _) = decode_entry(&bytes).ok()?;
    let when = match hub.value(event.topic()) {
        Some(value) => Precondition::IfMatch(format!("\"{}\"", value.id()).into_bytes().into()),
        None if event.message.is_deletion() => return None,
        None => Precondition::IfNoneMatch(b"*"[..].into()),
    };
    let mut out = Vec::new();
    encode_entry(&entry.if_holds(when), Place::Next, &mut out);
    Some(out)
}

pub(super) fn next_late(late: &mut VecDeque<Vec<u8>>) -> Growing {
    let mut batch = Growing::new();
    while let Some(entry) = late.front() {
        let is_full = batch.count() == ENTRIES_MAX || batch.bytes() + entry.len() > SEED_BYTES;
        if is_full && batch.count() > 0 {
            break;
        }
        batch.push(|out| out.extend_from_slice(entry));
        late.pop_front();
    }
    batch
}

/// A message of seeds has so many bytes, if no single one has more.
const SEED_BYTES: usize = if cfg!(test) { 300 } else { 512 << 10 };
