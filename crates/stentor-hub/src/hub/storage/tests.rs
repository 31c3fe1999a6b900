//! The limit of stored memory: refusals, evictions, and the sums.

use super::*;
use crate::encode::Encoder;
use crate::entry::{Entry, Op, Precondition};
use crate::event::{Event, Mode, Span};
use crate::field::ContentType;
use crate::hub::Limits;
use crate::id::Epoch;
use crate::message::Draft;
use crate::rendered::StreamForm;
use crate::rules::Rule;
use crate::{Place, Published};
use proptest::prelude::*;
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
    let Some(topic) = hub.topic(topic) else { return (0, Vec::new()) };
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

/// Everything that streams and polls can have rendered of a message.
fn render_all(event: &Event) {
    let message = &event.message;
    for encoding in [Encoding::Gzip, Encoding::Br, Encoding::Zstd] {
        message.compress(&mut Encoder::default(), encoding);
    }
    Encoding::ALL.iter().for_each(|encoding| drop(message.form(*encoding)));
    for form in [StreamForm::Sse, StreamForm::Frame, StreamForm::EnvelopeSse] {
        assert!(!event.streamed(form).is_empty());
    }
    let deflated = event.deflated(&mut Deflater::default(), StreamForm::EnvelopeFrameDeflated);
    assert_eq!(deflated.is_some(), message.compressible());
}

fn event(hub: &Hub, topic: &str) -> Event {
    let topic = hub.topic(topic).unwrap();
    let value = topic.value().load_full().unwrap();
    Event::new(topic, value)
}

/// Readers take no memory from publishers: what is rendered has a limit of its own, values keep
/// theirs, and history stays.
#[test]
fn readers_cost_publishers_no_memory() {
    let value = of_one_value();
    let topics = 40;
    let hub = hub(topics * value + 6 * value);
    for round in 0..3 {
        for n in 10..10 + topics {
            let path = format!("/{n}");
            let size = DATA_BYTES - path.len();
            publish(&hub, &path, size).unwrap_or_else(|error| panic!("{path} {round}: {error}"));
            render_all(&event(&hub, &path));
            let stored = hub.stored();
            assert!(stored.forms <= stored.forms_max, "{stored:?}");
        }
        for _ in 0..3 {
            publish(&hub, "/10", 100).unwrap();
        }
        assert_eq!(hub.stored().evicted_total > 0, round > 0, "{round}");
    }
}

/// What the cache has evicted is rendered again, the same bytes, and compressed again if a client
/// asks for that.
#[test]
fn evicted_forms_are_rendered_again() {
    let hub = hub(usize::MAX);
    publish(&hub, "/a", DATA_BYTES).unwrap();
    let event = event(&hub, "/a");
    let before = event.streamed(StreamForm::Sse);
    assert!(event.message.ask(Encoding::Gzip));
    event.message.compress(&mut Encoder::default(), Encoding::Gzip);
    let gzip = event.message.form(Encoding::Gzip);
    assert!(gzip.is_some() && !event.message.ask(Encoding::Gzip));
    let cached = hub.stored().forms;
    hub.set_stored_bytes_max(0);
    assert_eq!((hub.stored().forms, event.message.form(Encoding::Gzip)), (0, None));
    assert!(hub.detached_bytes() >= before.len() && hub.detached_bytes() < cached);
    assert_eq!(**event.streamed(StreamForm::Sse), **before);
    assert_eq!(hub.stored().forms, 0, "there is no room");
    hub.set_stored_bytes_max(usize::MAX);
    assert!(event.message.ask(Encoding::Gzip), "it is asked for again");
    event.message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert_eq!(event.message.form(Encoding::Gzip), gzip);
    drop(before);
    assert_eq!(hub.detached_bytes(), 0);
}

/// A shortage evicts rendered bytes first, and history after them.
#[test]
fn a_shortage_evicts_what_is_rendered() {
    let hub = hub(1 << 20);
    let max = |shortage| {
        hub.set_shortage(shortage);
        (hub.stored().forms_max, hub.stored().forms)
    };
    for topic in 0..100 {
        publish(&hub, &format!("/{topic}"), DATA_BYTES).unwrap();
        drop(event(&hub, &format!("/{topic}")).streamed(StreamForm::Sse));
    }
    let (_, cached) = max(Shortage::None);
    assert!(cached > 1 << 17, "{cached}");
    for (shortage, part) in [(Shortage::High, 8), (Shortage::Critical, 64)] {
        let (forms_max, forms) = max(shortage);
        assert!(forms_max == (1 << 20) / part && forms <= forms_max, "{forms} of {forms_max}");
    }
    assert!(!hub.is_trim_due());
}

/// A value that is used again and again stays cached while others pass through.
#[test]
fn forms_in_use_outlast_others() {
    let hub = hub(100 * of_one_value());
    publish(&hub, "/used", DATA_BYTES).unwrap();
    let used = event(&hub, "/used");
    used.message.compress(&mut Encoder::default(), Encoding::Gzip);
    for n in 0..200 {
        let path = format!("/{}", n % 50);
        publish(&hub, &path, DATA_BYTES).unwrap();
        let _ = event(&hub, &path).streamed(StreamForm::Sse);
        assert!(used.message.form(Encoding::Gzip).is_some(), "{n}");
        hub.trim_history_to(0);
    }
}

/// The latest changes name deleted topics, whose names may be long. Readers that were away are told
/// of what was forgotten.
#[test]
fn deleted_topics_take_a_bounded_part() {
    let max = 32 * 4_000;
    let hub = hub(max);
    publish(&hub, "/kept", 10).unwrap();
    let since = hub.seq();
    for n in 0..50 {
        let path = format!("/{n}{}", "x".repeat(400));
        publish(&hub, &path, 10).unwrap();
        hub.delete(name(&path), Precondition::None, 1).unwrap();
        let deleted = hub.changes().deleted_bytes();
        assert!(deleted > 0 && deleted <= max / 32, "{n}: {deleted}");
    }
    let span = Span { since, upto: hub.seq(), mode: Mode::All };
    let share = crate::Share { steps: 1_000, bytes: usize::MAX };
    let any = crate::Filter::any();
    assert_eq!(hub.missed_lately(&[&any], span, share, &mut Vec::new()), None);
}

/// A form that does not fit the cache is rendered for its reader alone.
#[test]
fn a_form_without_room_is_not_cached() {
    let hub = hub(4 * of_one_value());
    publish(&hub, "/a", 2 * DATA_BYTES).unwrap();
    let event = event(&hub, "/a");
    let sse = event.streamed(StreamForm::Sse);
    assert!(hub.stored().forms < 300 && hub.detached_bytes() > sse.len());
    event.message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(event.message.form(Encoding::Gzip).is_some(), "a small one is");
    drop(sse);
    assert_eq!(hub.detached_bytes(), 0);
}

/// A message that a topic has dropped counts while a connection holds it; so do rendered bytes that
/// the cache has dropped.
#[test]
fn a_dropped_message_counts_while_it_is_held() {
    let hub = hub(usize::MAX);
    for ends_by_deletion in [false, true] {
        publish(&hub, "/a", DATA_BYTES).unwrap();
        let event = event(&hub, "/a");
        let sse = event.streamed(StreamForm::Sse);
        assert_eq!(hub.detached_bytes(), 0, "the topic keeps it");
        if ends_by_deletion {
            hub.delete(name("/a"), Precondition::None, 1).unwrap();
        } else {
            publish(&hub, "/a", DATA_BYTES).unwrap();
            hub.trim_history_to(0);
        }
        assert_eq!(hub.detached_bytes(), event.message.stored_bytes());
        drop(event);
        assert_eq!(hub.detached_bytes(), sse.stored_bytes());
        drop(sse);
        assert_eq!(hub.detached_bytes(), 0);
    }
}

/// Threads that render, evict and drop at the same time leave nothing in the accounts.
#[test]
fn accounts_of_rendered_forms_end_at_zero() {
    for _ in 0..100 {
        let hub = hub(8 * of_one_value());
        let paths = ["/a", "/b", "/c"];
        paths.iter().for_each(|path| drop(publish(&hub, path, DATA_BYTES).unwrap()));
        let events = paths.map(|path| event(&hub, path));
        thread::scope(|scope| {
            for first in 0..3 {
                let (hub, events) = (&hub, &events);
                scope.spawn(move || {
                    for round in 0..20 {
                        let event = &events[(first + round) % 3];
                        render_all(event);
                        if round == 10 {
                            let _ = hub.delete(name(paths[first]), Precondition::None, 1);
                        }
                    }
                });
            }
        });
        drop(events);
        hub.set_stored_bytes_max(0);
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

/// A sample has a few hundred numbers, however many messages there are.
#[test]
fn the_estimate_is_even_for_many_messages() {
    for count in [100, 1_000, 10_000] {
        let rule = Rule { history: u32::MAX, ..Rule::default() };
        let hub = Hub::new(Epoch::from_number(1), vec![rule], Limits::default());
        let draft = |n| Draft::new(vec![b'x'; n % 50]);
        for n in 0..count {
            hub.publish(name(["/a", "/b", "/c"][n % 3]), draft(n), Precondition::None, 1).unwrap();
        }
        let history = hub.stored().history;
        let upto = hub.oldest_upto(history, history / 2).unwrap() as usize;
        assert!(upto.abs_diff(count / 2) <= count / 20, "{upto} of {count}");
        assert!(hub.oldest_upto(history, 1).unwrap() as usize <= count / 20);
        assert_eq!(hub.oldest_upto(history, 0), None);
        assert!(hub.oldest_upto(history, usize::MAX).unwrap() as usize > count * 19 / 20);
        // The history has grown since.
        assert!(hub.oldest_upto(1, 1).is_some());
    }
}

#[test]
fn history_keeps_its_least_part() {
    for values in [6_400, 10_000] {
        let stored = Stored { values, max: 6_400, ..Stored::default() };
        assert_eq!(stored.history_max(1_000), 6_400 / HISTORY_PART_MIN);
    }
}
