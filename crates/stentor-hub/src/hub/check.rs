//! What must hold of the hub whenever nobody is in the sequencing point, for tests.

use std::sync::Arc;

use super::Hub;
use crate::event::{Event, Mode, Span};
use crate::lock::read;
use crate::topic::{ByName, stored_bytes_of};
use std::sync::atomic::Ordering;

impl Hub {
    /// Panics if the parts of the hub do not agree: the table, the names, the histories, the
    /// tombstones, the latest changes, and what is counted of them. Publishers wait meanwhile.
    pub fn check(&self) {
        let sequence = self.sequence();
        let tombstones = read(&self.tombstones);
        let topics = self.table.load();
        let (names, table) = (topics.names(), topics.pin());
        tombstones.check();
        assert_eq!(self.seq.load(Ordering::Acquire), sequence.seq);
        assert_eq!((table.len(), names.len()), (topics.count(), topics.count()));
        let (mut messages, mut bytes) = (0, 0);
        let (mut values_stored, mut history_stored) = (0, 0);
        for ByName(topic) in names.iter() {
            let name = topic.name();
            let is_in_table = table.get(name).is_some_and(|known| Arc::ptr_eq(&known.0, topic));
            assert!(is_in_table, "{name} is listed and not in the table");
            assert!(tombstones.tombstone(name).is_none(), "{name} is deleted and there");
            let mut kept = Vec::new();
            let all = Span { since: 0, upto: u64::MAX, mode: Mode::All };
            let lost_seq = topic.missed(all, usize::MAX, &mut kept).lost_seq;
            let value = topic.value().load_full().expect("a topic in the table has a value");
            assert!(kept.iter().map(Event::seq).is_sorted_by(|a, b| a < b), "{name}: {kept:?}");
            assert_eq!(kept.last().map(Event::seq), Some(value.seq()), "{name}");
            assert!(kept[0].seq() > lost_seq && value.seq() <= sequence.seq, "{name}");
            let is_dropped = |event: &Event| event.message.is_dropped();
            assert!(!kept.iter().any(is_dropped), "{name} keeps what counts as dropped");
            let rule = &topic.terms().rule;
            let kept_bytes = kept.iter().map(|event| event.message.data().len()).sum::<usize>();
            assert!(kept.len() <= rule.history.max(1) as usize, "{name} keeps too many");
            assert!(kept.len() == 1 || kept_bytes <= rule.history_bytes, "{name} keeps too much");
            messages += kept.len();
            bytes += kept_bytes;
            let stored = |event: &Event| event.message.stored_bytes();
            let (last, earlier) = kept.split_last().expect("the value is the last");
            values_stored += stored_bytes_of(name) + stored(last);
            history_stored += earlier.iter().map(stored).sum::<usize>();
        }
        assert_eq!((sequence.kept.messages, sequence.kept.bytes), (messages, bytes));
        let stored = (sequence.kept.values_stored, sequence.kept.history_stored);
        assert_eq!(stored, (values_stored, history_stored));
        let changes = self.changes();
        let mut last_seq = None;
        for (seq, topic) in changes.between(0, u64::MAX) {
            assert!(last_seq.is_none_or(|last| seq > last), "numbers only grow");
            last_seq = Some(seq);
            // The topic's value is its latest change, or a deletion was, and left a tombstone.
            let value_seq = topic.value().load().as_ref().map(|value| value.seq());
            assert!(value_seq.is_none_or(|value| seq <= value), "{} {seq}", topic.name());
        }
        assert!(last_seq.is_none_or(|last| last <= sequence.seq), "{last_seq:?}");
    }
}
