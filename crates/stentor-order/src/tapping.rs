//! What changes in a hub while it is copied slice by slice.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use stentor_hub::{Event, Filter, Hub, Rule, Subscriber, SubscriberId, encode_event, encode_rules};

/// What changes in a hub while it is copied.
#[derive(Default)]
struct Tap(Mutex<Tapped>);

/// Hears what changes in a hub, while it is open.
pub struct Tapping {
    tap: Arc<Tap>,
    hub: Arc<Hub>,
    id: SubscriberId,
}

impl Tapping {
    /// Hears nothing yet. A hub never forgets a subscriber: make one, and open it again and again.
    pub fn new(hub: &Arc<Hub>) -> Tapping {
        let tap = Arc::new(Tap::default());
        let id = hub.add_subscriber(Arc::clone(&tap) as Arc<dyn Subscriber>);
        Tapping { tap, hub: Arc::clone(hub), id }
    }

    /// Hears of everything from now on.
    pub fn open(&self) {
        let bytes_max = TAPPED_MAX.min(self.hub.stored_bytes_max() / TAPPED_PART);
        *self.tap.tapped() = Tapped { bytes_max, ..Tapped::default() };
        self.hub.subscribe(self.id, &Filter::any(), Arc::default());
    }

    /// Hears of nothing any more, and forgets what came.
    pub fn close(&self) {
        self.hub.unsubscribe(self.id, &Filter::any());
        self.tap.close();
    }

    /// What has come since this was asked last: entries, each behind its length.
    ///
    /// # Errors
    /// It was more than is kept, or the hub has adopted another one.
    pub fn take(&self) -> io::Result<Vec<u8>> {
        self.tap.take()
    }
}

impl Drop for Tapping {
    fn drop(&mut self) {
        self.close();
    }
}

struct Tapped {
    is_closed: bool,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Default for Tapped {
    fn default() -> Tapped {
        Tapped { is_closed: false, bytes: Vec::new(), bytes_max: TAPPED_MAX }
    }
}

impl Tap {
    fn take(&self) -> io::Result<Vec<u8>> {
        let mut tapped = self.tapped();
        match tapped.is_closed {
            false => Ok(std::mem::take(&mut tapped.bytes)),
            true => Err(io::Error::other("more was published than is kept of it")),
        }
    }

    fn close(&self) {
        *self.tapped() = Tapped { is_closed: true, ..Tapped::default() };
    }

    fn put(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut tapped = self.tapped();
        let Tapped { is_closed, bytes, bytes_max } = &mut *tapped;
        if *is_closed {
            return;
        }
        let start = bytes.len();
        bytes.extend_from_slice(&[0; LENGTH]);
        write(bytes);
        let length = (bytes.len() - start - LENGTH) as u32;
        bytes[start..][..LENGTH].copy_from_slice(&length.to_le_bytes());
        if bytes.len() > *bytes_max {
            *tapped = Tapped { is_closed: true, ..Tapped::default() };
        }
    }

    fn tapped(&self) -> MutexGuard<'_, Tapped> {
        stentor_io::lock(&self.0)
    }
}

impl Subscriber for Tap {
    fn notify(&self, event: &Event) {
        self.put(|out| encode_event(event, out));
    }

    fn replaced(&self, _: u64) {
        self.close();
    }

    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        self.put(|out| encode_rules(generation, rules, out));
    }
}

/// The next of the entries of [`Tapping::take`], of which all or only the first bytes are there.
pub fn next_entry<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    let (entry, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(entry)
}

/// The bytes before an entry.
const LENGTH: usize = size_of::<u32>();

/// The most that may be published between two calls of [`Tapping::take`], in bytes.
const TAPPED_MAX: usize = 256 << 20;

/// It is at most this part of the limit of stored memory, beside it.
const TAPPED_PART: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Limits, Precondition};
    use stentor_wire::target::TopicName;

    #[test]
    fn changes_beyond_the_limit_close_the_tap() {
        let tap = Tap::default();
        tap.tapped().bytes = vec![0; TAPPED_MAX - LENGTH];
        tap.put(|_| {});
        assert_eq!(tap.take().unwrap().len(), TAPPED_MAX);
        tap.tapped().bytes = vec![0; TAPPED_MAX - LENGTH];
        tap.put(|out| out.push(0));
        let reason = tap.take().unwrap_err().to_string();
        assert!(reason.contains("more was published"), "{reason}");
        assert!(tap.tapped().bytes.capacity() == 0, "nothing is kept any more");
    }

    #[test]
    fn a_small_limit_of_memory_limits_the_tap() {
        let limits = Limits { stored_bytes_max: 4_000, ..Limits::default() };
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), limits));
        let tapping = Tapping::new(&hub);
        tapping.open();
        let publish = || {
            let topic = TopicName::parse("/a").unwrap();
            hub.publish(topic, Draft::new([b'x'; 900]), Precondition::None, 0).unwrap();
        };
        publish();
        assert!(tapping.take().unwrap().len() > 900);
        publish();
        publish();
        assert!(tapping.take().is_err(), "more than a quarter of the limit");
    }

    #[test]
    fn entries_are_told_apart_wherever_they_are_cut() {
        let tap = Tap::default();
        let entries: [&[u8]; 3] = [b"one", b"", b"three"];
        entries.iter().for_each(|entry| tap.put(|out| out.extend_from_slice(entry)));
        let bytes = tap.take().unwrap();
        assert!(tap.take().unwrap().is_empty(), "they are taken once");
        for cut in 0..=bytes.len() {
            let (mut first, mut whole) = (&bytes[..cut], Vec::new());
            while let Some(entry) = next_entry(&mut first) {
                whole.push(entry);
            }
            let mut rest = &bytes[cut - first.len()..];
            while let Some(entry) = next_entry(&mut rest) {
                whole.push(entry);
            }
            assert_eq!(whole, entries, "{cut}");
        }
    }

    #[test]
    fn what_becomes_of_rules_is_handed_over_too() {
        let (tap, rules) = (Tap::default(), [Rule::default()]);
        tap.rules_replaced(3, &rules);
        let (bytes, mut expected) = (tap.take().unwrap(), Vec::new());
        encode_rules(3, &rules, &mut expected);
        assert_eq!(next_entry(&mut &bytes[..]), Some(&expected[..]));
    }
}
