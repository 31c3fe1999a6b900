//! The limit of stored memory: refusals, evictions, and the sums.

use super::*;
use crate::encode::Encoder;
use crate::entry::{Entry, Op, Precondition};
use crate::event::{Event, Mode, Span};
use crate::field::ContentType;
use crate::form::StreamForm;
use crate::hub::Limits;
use crate::id::Epoch;
use crate::message::Draft;
use crate::rules::Rule;
use crate::{Place, Published};
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;
use stentor_wire::deflate::Deflater;
use stentor_wire::negotiate::Encoding;
use stentor_wire::target::TopicName;

const DATA_BYTES: usize = 1_000;

/// The memory of a topic with a name of two bytes and a value of [`DATA_BYTES`].
fn of_one_value() -> usize {
    let hub = hub(usize::MAX);
    publish(&hub, "/a", DATA_BYTES).unwrap();
    hub.stored().values
}

fn hub(stored_bytes_max: usize) -> Hub {
    Hub::new(
        Epoch::from_number(1),
        vec![Rule::default()],
        Limits { stored_bytes_max, ..Limits::default() },
    )
}

fn name(topic: &str) -> TopicName<'_> {
    TopicName::parse(topic).unwrap()
}

fn publish(hub: &Hub, topic: &str, bytes: usize) -> Result<Published, Refusal> {
    let draft = Draft::new(vec![b'x'; bytes]).with_content_type(ContentType::TEXT);
    let published = hub.publish(name(topic), draft, Precondition::None, 1);
    hub.check();
    published
}

/// The last lost sequence of a topic, and the sequences that are kept.
fn kept(hub: &Hub, topic: &str) -> (u64, Vec<u64>) {
    let table = hub.table.pin();
    let Some(crate::topic::ByName(topic)) = table.get(topic) else { return (0, Vec::new()) };
    let mut events = Vec::new();
    let all = Span { since: 0, upto: u64::MAX, mode: Mode::All };
    let missed = topic.missed(all, usize::MAX, &mut events);
    (missed.lost_seq, events.iter().map(Event::seq).collect())
}

#[test]
fn a_full_hub_takes_values_that_do_not_grow() {
    let hub = hub(of_one_value());
    publish(&hub, "/a", DATA_BYTES).unwrap();
    let full = Refusal::StorageFull { max: of_one_value() };
    assert_eq!(publish(&hub, "/b", 0).unwrap_err(), full);
    assert_eq!(publish(&hub, "/a", DATA_BYTES + 1).unwrap_err(), full);
    for bytes in [DATA_BYTES, DATA_BYTES - 1, DATA_BYTES, 0] {
        publish(&hub, "/a", bytes).unwrap();
    }
    hub.delete(name("/a"), Precondition::None, 1).unwrap();
    assert_eq!(hub.stored().total(), 0);
    publish(&hub, "/b", DATA_BYTES).unwrap();
    assert!(full.to_string().contains("limits.stored_bytes_max"), "{full}");
}

#[test]
fn the_topics_own_history_is_evicted_at_once() {
    let value = of_one_value();
    let hub = hub(3 * value);
    for _ in 0..5 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
        assert!(hub.stored().total() <= 3 * value);
    }
    let (lost, seqs) = kept(&hub, "/a");
    assert_eq!((lost, seqs), (2, vec![3, 4, 5]));
    assert_eq!(hub.stored().evicted_total, 2);
    // A value of twice the size leaves room for one earlier message.
    publish(&hub, "/a", 2 * DATA_BYTES).unwrap();
    assert_eq!(kept(&hub, "/a"), (4, vec![5, 6]));
}

#[test]
fn a_new_topic_fits_once_other_history_is_evicted() {
    let value = of_one_value();
    let hub = hub(4 * value);
    for _ in 0..4 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
    }
    assert_eq!(publish(&hub, "/b", DATA_BYTES).unwrap_err(), Refusal::MemoryShort);
    assert!(hub.is_trim_due());
    assert!(hub.trim_history() > 0);
    assert!(!hub.is_trim_due());
    publish(&hub, "/b", DATA_BYTES).unwrap();
    for topic in ["/c", "/d"] {
        while publish(&hub, topic, DATA_BYTES).is_err() {
            assert!(hub.trim_history() > 0, "room is made for {topic}");
        }
    }
    // There is no history left.
    let refused = publish(&hub, "/e", DATA_BYTES).unwrap_err();
    assert_eq!(refused, Refusal::StorageFull { max: 4 * value });
}

/// A large value may need more room than an eviction leaves as a rule.
#[test]
fn a_refused_value_has_room_after_one_eviction() {
    let hub = hub(40 * of_one_value());
    for _ in 0..38 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
    }
    hub.trim_history();
    assert!(!hub.is_trim_due());
    let large = 30 * DATA_BYTES;
    assert_eq!(publish(&hub, "/b", large).unwrap_err(), Refusal::MemoryShort);
    assert!(hub.is_trim_due());
    hub.trim_history();
    publish(&hub, "/b", large).unwrap();
}

#[test]
fn a_value_that_never_fits_evicts_nothing() {
    let max = 40 * of_one_value();
    let hub = hub(max);
    for _ in 0..20 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
    }
    let refused = publish(&hub, "/b", max).unwrap_err();
    assert_eq!((refused, hub.is_trim_due()), (Refusal::StorageFull { max }, false));
}

#[test]
fn the_oldest_history_of_all_topics_is_evicted_first() {
    let value = of_one_value();
    let hub = hub(usize::MAX);
    for n in 0..40 {
        publish(&hub, ["/a", "/b"][usize::from(n >= 20)], DATA_BYTES).unwrap();
    }
    hub.set_stored_bytes_max(30 * value);
    assert!(hub.is_trim_due());
    let dropped = hub.trim_history();
    hub.check();
    // A quarter of the room for history is free.
    let stored = hub.stored();
    let history_max = stored.history_max(hub.headroom(stored.max));
    assert!(stored.history <= history_max - history_max / TRIM_PART);
    assert_eq!(stored.evicted_total, dropped as u64);
    let last = dropped as u64;
    assert_eq!(kept(&hub, "/a"), (last, (last + 1..=20).collect::<Vec<_>>()));
    assert_eq!(kept(&hub, "/b"), (0, (21..=40).collect::<Vec<_>>()));
    assert_eq!(hub.trim_history(), 0);
    hub.trim_history_to(stored.history / 4);
    assert_eq!(kept(&hub, "/a"), (19, vec![20]), "the value stays");
    assert!(kept(&hub, "/b").0 > 21);
}

#[test]
fn a_sample_finds_the_oldest_half() {
    let hub = hub(usize::MAX);
    for n in 0..1_000 {
        let draft = Draft::new(vec![b'x'; n % 7 * 100]);
        hub.publish(name(&format!("/{}", n % 40)), draft, Precondition::None, 1).unwrap();
    }
    let history = hub.stored().history;
    hub.trim_history_to(history / 2);
    hub.check();
    let left = hub.stored().history;
    assert!(left <= history / 2 && left > history / 3, "{left} of {history}");
}

#[test]
fn the_evicting_thread_is_woken_in_time() {
    let value = of_one_value();
    let hub = Arc::new(hub(20 * value));
    let trimmer = thread::spawn({
        let hub = Arc::clone(&hub);
        move || {
            hub.trim_on_this_thread();
            while !hub.is_trim_due() {
                thread::park();
            }
            hub.stored()
        }
    });
    while !trimmer.is_finished() {
        publish(&hub, "/a", DATA_BYTES).unwrap();
        publish(&hub, "/b", DATA_BYTES).unwrap();
    }
    trimmer.join().unwrap();
}

#[test]
fn no_topic_grows_while_memory_is_short() {
    let hub = hub(usize::MAX);
    for _ in 0..3 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
    }
    hub.set_shortage(Shortage::Critical);
    let before = hub.stored().total();
    assert_eq!(publish(&hub, "/b", 1).unwrap_err(), Refusal::MemoryShort);
    // The eviction of its own history frees enough for a larger value.
    publish(&hub, "/a", DATA_BYTES + 1).unwrap();
    assert_eq!(publish(&hub, "/a", 9 * DATA_BYTES).unwrap_err(), Refusal::MemoryShort);
    for _ in 0..5 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
        assert!(hub.stored().total() <= before);
    }
    hub.set_shortage(Shortage::None);
    publish(&hub, "/b", 1).unwrap();
}

#[test]
fn topics_take_half_while_memory_is_short() {
    let value = of_one_value();
    let hub = hub(8 * value);
    for topic in ["/a", "/b", "/c"] {
        publish(&hub, topic, DATA_BYTES).unwrap();
    }
    hub.set_shortage(Shortage::High);
    publish(&hub, "/d", DATA_BYTES).unwrap();
    assert_eq!(publish(&hub, "/e", DATA_BYTES).unwrap_err(), Refusal::MemoryShort);
    hub.set_shortage(Shortage::None);
    publish(&hub, "/e", DATA_BYTES).unwrap();
    for _ in 0..3 {
        publish(&hub, "/a", DATA_BYTES).unwrap();
    }
    hub.set_shortage(Shortage::High);
    assert!(hub.is_trim_due());
    hub.trim_history();
    hub.set_shortage(Shortage::None);
    hub.shrink_history(2);
    let history = hub.stored().history;
    hub.trim_history();
    assert!(hub.stored().history <= history / 2);
}

#[test]
fn a_publish_for_another_order_is_judged_at_its_admission() {
    let hub = hub(of_one_value());
    hub.begin_following();
    let admit = |bytes: usize| {
        let put = Op::Put(name("/a"), Draft::new(vec![b'x'; bytes]));
        hub.admit(put, Precondition::None, 1).map(drop)
    };
    assert_eq!(admit(DATA_BYTES), Ok(()));
    assert!(matches!(admit(DATA_BYTES + 1), Err(Refusal::StorageFull { .. })));
}

#[test]
fn entries_of_another_order_are_never_refused() {
    let value = of_one_value();
    let hub = hub(2 * value);
    for n in 1..=9 {
        let put = Op::Put(name(["/a", "/b", "/c"][n % 3]), Draft::new(vec![b'x'; DATA_BYTES]));
        let entry = Entry::past(put, 1);
        hub.apply(entry, Place::At(n as u64)).unwrap();
        hub.check();
        assert!(hub.stored().values <= 3 * value && hub.stored().history == 0 || n < 3);
    }
    assert!(!hub.is_overfull() || hub.stored().values > 2 * value * 5 / 4);
    assert!(hub.is_overfull());
    hub.set_stored_bytes_max(3 * value * 9 / 10);
    assert!(!hub.is_overfull());
}

#[test]
fn forms_count_while_their_message_is_kept() {
    let hub = hub(usize::MAX);
    let published = publish(&hub, "/a", DATA_BYTES).unwrap();
    let form = |of: &Arc<crate::message::Message>, form| {
        let table = hub.table.pin();
        let topic = Arc::clone(&table.get("/a").unwrap().0);
        let event = Event::new(topic, Arc::clone(of));
        match form {
            StreamForm::FrameDeflated => {
                event.deflated(&mut Deflater::default(), form).map_or(0, <[u8]>::len)
            }
            _ => event.streamed(form).map_or(0, <[u8]>::len),
        }
    };
    let mut least = 0;
    for kind in [StreamForm::Sse, StreamForm::Envelope, StreamForm::FrameDeflated] {
        let bytes = form(&published.message, kind);
        assert_eq!(form(&published.message, kind), bytes, "it is made once");
        least += bytes;
        assert!((least..least + 300).contains(&hub.stored().forms), "{}", hub.stored().forms);
    }
    let before = hub.stored().forms;
    published.message.ask(Encoding::Gzip);
    published.message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(hub.stored().forms > before);
    // Forms of history count; those of an evicted message do not, and new ones do not either.
    publish(&hub, "/a", DATA_BYTES).unwrap();
    assert!(hub.stored().forms > before);
    assert_eq!(hub.trim_history_to(0), 1);
    assert_eq!(hub.stored().forms, 0);
    form(&published.message, StreamForm::Frame);
    assert_eq!(hub.stored().forms, 0);
}

/// A message that a topic has dropped counts while a connection holds it, with the forms made
/// before and after that.
#[test]
fn a_dropped_message_counts_while_it_is_held() {
    let hub = hub(usize::MAX);
    for (n, ends_by_deletion) in [(1, false), (2, true)] {
        let message = publish(&hub, "/a", DATA_BYTES).unwrap().message;
        let topic = Arc::clone(&hub.table.pin().get("/a").unwrap().0);
        let event = Event::new(topic, message);
        let sse = event.streamed(StreamForm::Sse).unwrap().len();
        assert_eq!(hub.detached_bytes(), 0, "the topic keeps it");
        if ends_by_deletion {
            hub.delete(name("/a"), Precondition::None, 1).unwrap();
        } else {
            publish(&hub, "/a", DATA_BYTES).unwrap();
            hub.trim_history_to(0);
        }
        let (held, least) = (hub.detached_bytes(), event.message.stored_bytes() + sse);
        assert!(held >= least && held < least + 100, "{n}: {held} of {least}");
        let frame = event.streamed(StreamForm::Frame).unwrap().len();
        assert!(hub.detached_bytes() >= held + frame, "{n}");
        assert_eq!(hub.stored().forms, 0, "{n}");
        drop(event);
        assert_eq!(hub.detached_bytes(), 0, "{n}");
    }
}

#[test]
fn no_compressed_form_is_made_while_forms_take_too_much() {
    let hub = hub(4 * of_one_value());
    let message = publish(&hub, "/a", DATA_BYTES).unwrap().message;
    let table = hub.table.pin();
    let event = Event::new(Arc::clone(&table.get("/a").unwrap().0), Arc::clone(&message));
    for kind in [StreamForm::Sse, StreamForm::Envelope] {
        assert!(event.streamed(kind).is_some());
    }
    assert_eq!(event.deflated(&mut Deflater::default(), StreamForm::FrameDeflated), None);
    assert!(message.ask(Encoding::Gzip));
    message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(message.form(Encoding::Gzip).is_none());
    hub.set_stored_bytes_max(100 * of_one_value());
    assert!(message.ask(Encoding::Gzip), "it is tried again");
    message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(message.form(Encoding::Gzip).is_some());
    assert!(event.deflated(&mut Deflater::default(), StreamForm::FrameDeflated).is_some());
}

#[test]
fn forms_of_a_deletion_do_not_count() {
    let hub = hub(usize::MAX);
    publish(&hub, "/a", 10).unwrap();
    let deletion = hub.delete(name("/a"), Precondition::None, 1).unwrap();
    assert!(deletion.streamed(StreamForm::Sse).is_some());
    assert_eq!(hub.stored().forms, 0);
}

/// A form that is made during the eviction of its message counts for a moment at most.
#[test]
fn no_form_of_an_evicted_message_stays_counted() {
    for _ in 0..200 {
        let hub = hub(usize::MAX);
        let message = publish(&hub, "/a", 10).unwrap().message;
        let begins = AtomicBool::new(false);
        thread::scope(|scope| {
            for kind in [StreamForm::Sse, StreamForm::Envelope, StreamForm::Frame] {
                let table = hub.table.pin_owned();
                let topic = Arc::clone(&table.get("/a").unwrap().0);
                let event = Event::new(topic, Arc::clone(&message));
                let begins = &begins;
                scope.spawn(move || {
                    while !begins.load(Ordering::Relaxed) {}
                    assert!(event.streamed(kind).is_some());
                });
            }
            begins.store(true, Ordering::Relaxed);
            hub.delete(name("/a"), Precondition::None, 1).unwrap();
        });
        drop(message);
        assert_eq!((hub.stored().forms, hub.detached_bytes()), (0, 0));
    }
}

#[test]
fn a_snapshot_over_the_limit_opens_with_values_alone() {
    let value = of_one_value();
    let before = hub(usize::MAX);
    for n in 0..12 {
        publish(&before, ["/a", "/b", "/c"][n % 3], DATA_BYTES).unwrap();
    }
    let mut bytes = Vec::new();
    let mut snapshot = crate::Snapshot::begin(&before, &mut bytes);
    while snapshot.write_slice(&before, &mut bytes).unwrap() {}
    let restored = |max| {
        let after = hub(max);
        let mut restore = after.restore();
        assert_eq!(restore.read(&bytes).unwrap(), bytes.len());
        restore.finish().unwrap();
        after.check();
        after
    };
    let whole = restored(12 * value);
    assert_eq!(whole.stored().history, before.stored().history);
    let half = restored(6 * value);
    assert_eq!((half.stored().values, half.stored().history), (before.stored().values, 0));
    assert_eq!(kept(&half, "/a"), (7, vec![10]));
    assert_eq!(kept(&half, "/c"), (9, vec![12]));
    assert!(!half.is_overfull());
    assert!(restored(2 * value).is_overfull());
}

proptest! {
    /// The limit holds after every publish, and no value is evicted.
    #[test]
    fn the_limit_holds(
        steps in prop::collection::vec((0..6_usize, 0..2_000_usize, 0..20_u8), 1..200),
        max in 1_000..20_000_usize,
    ) {
        let hub = hub(max);
        let mut values: [Option<usize>; 6] = [None; 6];
        for (topic, bytes, what) in steps {
            let path = format!("/{topic}");
            match what {
                0 => {
                    let deleted = hub.delete(name(&path), Precondition::None, 1).is_ok();
                    prop_assert_eq!(deleted, values[topic].take().is_some());
                }
                1 => drop(hub.trim_history()),
                2 => hub.set_shortage(
                    [Shortage::None, Shortage::High, Shortage::Critical][bytes % 3],
                ),
                3 => drop(hub.trim_history_to(bytes * 10)),
                _ => {
                    let fits = values[topic].is_some_and(|before| bytes <= before);
                    match publish(&hub, &path, bytes) {
                        Ok(_) => values[topic] = Some(bytes),
                        Err(refusal) => prop_assert!(!fits, "{refusal}"),
                    }
                    prop_assert!(hub.stored().total() <= max);
                }
            }
            hub.check();
            for (topic, bytes) in values.iter().enumerate() {
                let value = hub.value(&format!("/{topic}"));
                prop_assert_eq!(value.map(|value| value.data().len()), *bytes);
            }
        }
    }
}

#[test]
fn history_shrinks_by_the_part_asked_for() {
    let hub = hub(usize::MAX);
    for n in 0..40 {
        publish(&hub, ["/a", "/b"][n % 2], DATA_BYTES).unwrap();
    }
    let before = hub.stored().history;
    hub.shrink_history(4);
    hub.trim_history();
    let left = hub.stored().history;
    assert!(left <= before - before / 4 && left > before / 2, "{left} of {before}");
}

/// The sample keeps early and late messages with the same probability.
#[test]
fn a_sample_is_even_after_many_messages() {
    for count in [100, 1_000, 100_000] {
        let mut sample = Sample::default();
        (1..=count).for_each(|seq| sample.add(seq, 10));
        assert!(sample.messages.len() < SAMPLE_MAX);
        let upto = sample.oldest_upto(count as usize * 10 / 2).unwrap();
        assert!(upto.abs_diff(count / 2) <= count / 20, "{upto} of {count}");
    }
}

#[test]
fn history_keeps_its_least_part() {
    for values in [6_400, 10_000] {
        let stored = Stored { values, max: 6_400, ..Stored::default() };
        assert_eq!(stored.history_max(1_000), 6_400 / HISTORY_PART_MIN);
    }
}
