//! What the connections of a worker hold: one account that all pay to, whatever they hold it for.
//!
//! What a connection holds is counted before and after anything is done with it, so there is no
//! place where somebody must remember to. It *owns* bytes that are there for it alone, and *pins*
//! bodies that others are sent as well. As long as a topic or the cache of files keeps such a body,
//! to pin it costs nothing; afterwards the pin is all that keeps it. Which bodies those are is only
//! found out when all pins together are more than there is room for.
//!
//! When there is too much, those who hold the most are cut, and not those who come last.

use crate::limits::{RELEASE_AFTER_MS, RELEASE_BYTES_MIN, RELIEF_BYTES_MIN, RELIEF_PART};
use crate::output::Body;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// What is held, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) owned: usize,
    /// Each body counts as often as it is pinned.
    pub(crate) pinned: usize,
}

/// The account of a worker.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) usage: Usage,
    /// The most that was held since memory was last given back to the kernel, in bytes.
    peak_bytes: usize,
    /// When to give some back.
    release_at_ms: Option<u64>,
}

impl Memory {
    /// A connection that held so much now holds so much.
    pub(crate) fn note(&mut self, before: Usage, after: Usage) {
        self.usage.owned = self.usage.owned + after.owned - before.owned;
        self.usage.pinned = self.usage.pinned + after.pinned - before.pinned;
    }

    /// Takes note of all that is held now. Returns whether so much of it was freed since that it is
    /// to be given back to the kernel: the allocator does not by itself, as long as anything behind
    /// it is in use.
    pub(crate) fn is_to_be_released(&mut self, bytes: usize, now_ms: u64) -> bool {
        self.peak_bytes = self.peak_bytes.max(bytes);
        if self.peak_bytes - bytes < RELEASE_BYTES_MIN {
            self.release_at_ms = None;
            return false;
        }
        let is_due = *self.release_at_ms.get_or_insert(now_ms + RELEASE_AFTER_MS) <= now_ms;
        if is_due {
            self.release_at_ms = None;
            self.peak_bytes = bytes;
        }
        is_due
    }

    /// When to look again.
    pub(crate) fn release_at_ms(&self) -> Option<u64> {
        self.release_at_ms
    }
}

/// The bodies that nothing but pins keeps.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// By address.
    bodies: HashMap<usize, Pin>,
}

#[derive(Debug)]
struct Pin {
    bytes: usize,
    /// By how many connections.
    count: usize,
    /// How many hold it in all, if only that tells whether anybody else does.
    holders: Option<usize>,
}

impl Pins {
    /// Takes note of a body that a connection has still to be sent.
    pub(crate) fn add(&mut self, body: &Body) {
        let Some((address, holders)) = pinned(body) else { return };
        let bytes = body.kept_bytes();
        let pin = self.bodies.entry(address).or_insert(Pin { bytes, count: 0, holders });
        pin.count += 1;
    }

    /// What these bodies take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bodies.values().filter(|pin| pin.is_alone()).map(|pin| pin.bytes).sum()
    }

    /// The part of one connection in a body.
    pub(crate) fn part(&self, body: &Body) -> usize {
        let pin = pinned(body).and_then(|(address, _)| self.bodies.get(&address));
        let pin = pin.filter(|pin| pin.is_alone());
        pin.map_or(0, |pin| pin.bytes / pin.count)
    }
}

impl Pin {
    fn is_alone(&self) -> bool {
        self.holders.is_none_or(|holders| holders <= self.count)
    }
}

/// A connection that holds much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) bytes: usize,
    /// When its time is up. Of those who hold as much, it is the first for whom nothing has changed
    /// for the longest.
    pub(crate) deadline_tick: u32,
    pub(crate) index: usize,
}

/// Whom to cut if `total` bytes are held and `bytes_max` may be: those who hold the most, until a
/// part of that is free. Whether one holds twice as much counts, not every byte.
pub(crate) fn whom_to_cut(total: usize, bytes_max: usize, mut holders: Vec<Holder>) -> Vec<Holder> {
    if total <= bytes_max {
        return Vec::new();
    }
    let mut excess = total - (bytes_max - bytes_max / RELIEF_PART);
    holders.retain(|holder| holder.bytes >= RELIEF_BYTES_MIN);
    holders.sort_unstable_by_key(|holder| {
        (Reverse(holder.bytes.ilog2()), holder.deadline_tick, holder.index)
    });
    let is_wanted = |holder: &Holder| {
        let is_wanted = excess > 0;
        excess = excess.saturating_sub(holder.bytes);
        is_wanted
    };
    holders.into_iter().take_while(is_wanted).collect()
}

/// The address of a body that only connections may keep in memory, and how many hold it. A message
/// that was dropped has no other holders, and needs no count.
fn pinned(body: &Body) -> Option<(usize, Option<usize>)> {
    match body {
        Body::Value { message, .. } if message.is_dropped() => Some((address(message), None)),
        Body::Streamed { event, .. } if event.message.is_dropped() => {
            Some((address(&event.message), None))
        }
        Body::Cached { entry, .. } => Some((address(entry), Some(Arc::strong_count(entry)))),
        Body::Bytes(bytes) => Some((bytes.as_ptr() as usize, Some(Arc::strong_count(bytes)))),
        _ => None,
    }
}

fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Hub, Limits, Mode, Precondition, Rule, Span, StreamForm};
    use stentor_wire::negotiate::Encoding;
    use stentor_wire::target::TopicName;

    /// Holders of so many bytes, by index, of whom the first has waited for the longest.
    fn holders(bytes: &[usize]) -> Vec<Holder> {
        let holder = |(index, &bytes)| Holder { bytes, deadline_tick: 7 + index as u32, index };
        bytes.iter().enumerate().map(holder).collect()
    }

    fn cut(total: usize, bytes_max: usize, holders: Vec<Holder>) -> Vec<usize> {
        whom_to_cut(total, bytes_max, holders).iter().map(|holder| holder.index).collect()
    }

    #[test]
    fn those_who_hold_the_most_are_cut_until_there_is_room() {
        let all = holders(&[5_000, 200_000, 3_000, 400_000, 300_000, 100_000]);
        assert_eq!(cut(1_000_000, 1_000_000, all.clone()), [0; 0]);
        assert_eq!(cut(1_008_000, 1_000_000, all.clone()), [3], "an eighth is to be free");
        assert_eq!(cut(1_800_000, 1_000_000, all), [3, 4, 1, 5]);
        let small = holders(&[RELIEF_BYTES_MIN - 1; 1_000]);
        assert_eq!(cut(2_000_000, 1_000_000, small), [0; 0], "nobody holds much");
    }

    #[test]
    fn of_those_who_hold_as_much_the_newest_is_spared() {
        let mut all = holders(&[600_000, 1_000_000, 700_000, 900_000]);
        all[0].deadline_tick = 100;
        assert_eq!(cut(3_200_000, 1_900_000, all), [1, 2]);
    }

    #[test]
    fn what_was_freed_is_given_back_once_and_not_while_it_comes_and_goes() {
        let (mut memory, after) = (Memory::default(), RELEASE_AFTER_MS);
        assert!(!memory.is_to_be_released(2 * RELEASE_BYTES_MIN, 0));
        assert!(!memory.is_to_be_released(RELEASE_BYTES_MIN, 10));
        assert_eq!(memory.release_at_ms(), Some(10 + after));
        assert!(!memory.is_to_be_released(2 * RELEASE_BYTES_MIN, 9 + after), "it is in use again");
        assert!(!memory.is_to_be_released(0, 10 + after));
        assert!(memory.is_to_be_released(0, 10 + 2 * after));
        assert!(!memory.is_to_be_released(0, 10 + 9 * after));
        assert_eq!(memory.release_at_ms(), None);
    }

    #[test]
    fn a_body_that_many_are_sent_is_shared_out_among_them() {
        let hub = Hub::new(Epoch::random(), Vec::new(), Limits::default());
        let publish = || {
            let draft = Draft::new(vec![0; 10_000]);
            hub.publish(TopicName::parse("/a").unwrap(), draft, Precondition::None, 0).unwrap()
        };
        let (message, mut events) = (publish().message, Vec::new());
        let span = Span { since: 0, upto: 1, mode: Mode::All };
        hub.missed("/a", span, usize::MAX, &mut events);
        let bodies = [
            Body::Value { message, encoding: Encoding::Identity },
            Body::Streamed { event: events.remove(0), form: StreamForm::Sse },
        ];
        let pins = |body, count| {
            let mut pins = Pins::default();
            (0..count).for_each(|_| pins.add(body));
            (pins.bytes(), pins.part(body))
        };
        bodies.iter().for_each(|body| assert_eq!(pins(body, 4), (0, 0), "the topic keeps it"));
        (0..Rule::default().history).for_each(|_| drop(publish()));
        for body in &bodies {
            assert_eq!((pins(body, 1), pins(body, 4)), ((10_064, 10_064), (10_064, 2_516)));
        }
    }

    /// A body that a cache holds as well costs nothing until the cache drops it.
    #[test]
    fn shared_bytes_count_once_only_readers_hold_them() {
        let cached: Arc<[u8]> = vec![0; 1_000].into();
        let body = Body::Bytes(Arc::clone(&cached));
        let held = || {
            let mut pins = Pins::default();
            pins.add(&body);
            (pins.bytes(), pins.part(&body))
        };
        assert_eq!(held(), (0, 0));
        drop(cached);
        assert_eq!(held(), (1_000, 1_000));
    }
}
