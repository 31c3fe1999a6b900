//! The rules of publishing one by one, then readers and writers all at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use stentor_wire::target::TopicName;

use super::*;
use crate::entry::{Entry, Op, Past, Precondition, Published, Refusal};
use crate::message::Draft;
use crate::pattern::Pattern;
use crate::{CacheControl, Mode, Span};

fn hub() -> Hub {
    hub_with(vec![])
}

fn hub_with(rules: Vec<Rule>) -> Hub {
    Hub::new(Epoch::parse("5f3a09c1").unwrap(), rules, Limits::default())
}

fn rule(pattern: &str, history: u32, history_bytes: usize) -> Rule {
    Rule { history, history_bytes, ..Rule::new(Pattern::parse(pattern).unwrap()) }
}

/// A name that is known to be a topic's.
pub(crate) fn name(text: &str) -> TopicName<'_> {
    TopicName::parse(text).unwrap()
}

fn publish(hub: &Hub, topic: &str, data: &str) -> Published {
    hub.publish(name(topic), Draft::new(data.as_bytes()), Precondition::None, 1000).unwrap()
}

fn history(hub: &Hub, topic: &str) -> usize {
    let listed = hub.topics(topic, None, 1);
    assert_eq!(listed[0].name, topic);
    listed[0].history
}

fn names(listed: &[TopicInfo]) -> Vec<&str> {
    listed.iter().map(|info| info.name.as_str()).collect()
}

#[test]
fn threads_may_share_it() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Hub>();
    shared::<Message>();
    shared::<Draft>();
}

#[test]
fn a_deleted_values_date_does_not_tell() {
    let hub = hub();
    let put = |unix_s| {
        let put = hub.publish(name("/a"), Draft::new(*b"x"), Precondition::None, unix_s);
        let message = put.unwrap().message;
        (message.published_at(), hub.dates_tell(&message))
    };
    let delete = |unix_s| drop(hub.delete(name("/a"), Precondition::None, unix_s).unwrap());
    assert_eq!(put(1000), (1000, true));
    delete(1000);
    assert_eq!(put(1000), (1000, false), "in the same second");
    delete(1000);
    assert_eq!(put(900), (1000, false), "after the clock was set back");
    delete(1001);
    assert_eq!(put(1002), (1002, true));
}

/// The hub that made the order may have had no tombstone of the topic any more.
#[test]
fn a_past_value_keeps_its_date() {
    let hub = hub();
    publish(&hub, "/a", "1");
    hub.delete(name("/a"), Precondition::None, 1000).unwrap();
    let put = Entry::past(Op::Put(name("/a"), Draft::new(*b"2")), 900);
    let past = Past { number: 3, shares_second: false, last_seq: 0 };
    hub.apply(put, Place::Was(past)).unwrap();
    assert_eq!(hub.value("/a").unwrap().published_at(), 900);
}

#[test]
fn one_order_over_all_topics() {
    let hub = hub();
    assert!(hub.value("/a").is_none());
    let first = publish(&hub, "/a", "1");
    assert!(first.created && first.replaced.is_none());
    assert_eq!(first.id.to_string(), "5f3a09c1-1");
    assert!(publish(&hub, "/b", "2").created);
    let third = publish(&hub, "/a", "3");
    assert_eq!((third.created, third.id.seq), (false, 3));
    assert!(Arc::ptr_eq(&third.replaced.unwrap(), &first.message));
    assert_eq!(hub.value("/a").unwrap().data(), b"3");
    assert_eq!(hub.with_value("/b", |value| value.unwrap().seq()), 2);
    assert!(hub.with_value("/c", |value| value.is_none()));
    assert_eq!(hub.epoch(), first.id.epoch);
    assert_eq!(hub.value("/a").unwrap().published_at(), 1000);
}

#[test]
fn a_refused_publish_changes_nothing() {
    let limits = Limits { topics_max: 2, message_bytes_max: 4, ..Limits::default() };
    let hub = Hub::new(Epoch::random(), vec![], limits);
    let refused = |topic: &str, data: &str, when| {
        hub.publish(name(topic), Draft::new(data.as_bytes()), when, 0).unwrap_err()
    };
    publish(&hub, "/a", "four");
    publish(&hub, "/b", "b");
    let before = hub.counts();
    assert_eq!(refused("/a", "fifth", Precondition::None), Refusal::TooLarge { max: 4 });
    assert_eq!(refused("/c", "c", Precondition::None), Refusal::TooManyTopics { max: 2 });
    assert_eq!(refused("/a", "x", Precondition::IfNoneMatch((*b"*").into())), PRECONDITION);
    assert_eq!(refused("/c", "x", Precondition::IfMatch((*b"*").into())), PRECONDITION);
    assert_eq!(hub.counts(), before);
    assert_eq!(hub.value("/a").unwrap().data(), b"four");
    assert_eq!(publish(&hub, "/a", "x").id.seq, 3, "no number was used up");
    hub.delete(name("/b"), Precondition::None, 0).unwrap();
    assert!(publish(&hub, "/c", "c").created, "there is room again");
}

const PRECONDITION: Refusal = Refusal::PreconditionFailed;

#[test]
fn preconditions() {
    let hub = hub();
    let id = publish(&hub, "/a", "1").id;
    let tag = format!("\"{id}\"");
    let gzip = format!("W/\"{id}.gz\", \"other\"");
    let (tag, gzip, star, other) = (tag.as_bytes(), gzip.as_bytes(), &b"*"[..], &b"\"x-1\""[..]);
    let if_match = |tags: &[u8]| Precondition::IfMatch(tags.into());
    let if_none_match = |tags: &[u8]| Precondition::IfNoneMatch(tags.into());
    let table = [
        (if_match(tag), true, false),
        (if_match(gzip), true, false),
        (if_match(star), true, false),
        (if_match(other), false, false),
        (if_match(b""), false, false),
        (if_none_match(tag), false, true),
        (if_none_match(gzip), false, true),
        (if_none_match(star), false, true),
        (if_none_match(other), true, true),
        (if_none_match(b""), true, true),
    ];
    for (when, with_value, without) in table {
        assert_eq!(when.holds(Some(id)), with_value, "{when:?}");
        assert_eq!(when.holds(None), without, "{when:?}");
    }
    assert!(hub.publish(name("/a"), Draft::new(*b"2"), if_match(tag), 0).is_ok());
    assert_eq!(
        hub.publish(name("/a"), Draft::new(*b"3"), if_match(tag), 0).unwrap_err(),
        PRECONDITION
    );
    assert_eq!(hub.delete(name("/a"), if_match(tag), 0).unwrap_err(), Refusal::PreconditionFailed);
    assert_eq!(hub.delete(name("/b"), if_match(tag), 0).unwrap_err(), Refusal::NotFound);
    let deletion = hub.delete(name("/a"), if_match(star), 0).unwrap();
    assert_eq!((deletion.topic(), deletion.seq()), ("/a", 3));
}

#[test]
fn only_one_optimistic_writer_wins() {
    let hub = hub();
    for round in 0..50 {
        let topic = format!("/r/{round}");
        let won: usize = std::thread::scope(|scope| {
            let writers = (0..4).map(|_| {
                scope.spawn(|| {
                    let when = Precondition::IfNoneMatch((*b"*").into());
                    hub.publish(name(&topic), Draft::new(*b"x"), when, 0).is_ok()
                })
            });
            let writers: Vec<_> = writers.collect();
            writers.into_iter().map(|writer| usize::from(writer.join().unwrap())).sum()
        });
        assert_eq!(won, 1);
    }
}

#[test]
fn history_is_bounded_in_messages() {
    let hub =
        hub_with(vec![rule("/one", 1, 1000), rule("/none", 0, 1000), rule("/three", 3, 1000)]);
    for (topic, kept) in [("/one", 1), ("/none", 1), ("/three", 3), ("/default", 32)] {
        for round in 1..=40 {
            publish(&hub, topic, "x");
            assert_eq!(history(&hub, topic), round.min(kept), "{topic}");
        }
    }
    let counts = hub.counts();
    assert_eq!((counts.topics, counts.published_total), (4, 160));
    assert_eq!((counts.messages_kept, counts.bytes_kept), (37, 37));
}

#[test]
fn history_is_bounded_in_bytes_but_the_value_stays() {
    let hub = hub_with(vec![rule("/a", 32, 100)]);
    for _ in 0..20 {
        publish(&hub, "/a", &"x".repeat(30));
    }
    assert_eq!((history(&hub, "/a"), hub.counts().bytes_kept), (3, 90));
    publish(&hub, "/a", &"x".repeat(500));
    assert_eq!((history(&hub, "/a"), hub.counts().bytes_kept), (1, 500));
    publish(&hub, "/a", "x");
    assert_eq!((history(&hub, "/a"), hub.counts().bytes_kept), (1, 1));
    publish(&hub, "/a", &"x".repeat(99));
    assert_eq!((history(&hub, "/a"), hub.counts().bytes_kept), (2, 100));
    for _ in 0..50 {
        publish(&hub, "/a", "");
    }
    assert_eq!((history(&hub, "/a"), hub.counts().messages_kept), (32, 32));
}

#[test]
fn what_is_no_longer_kept_is_freed() {
    let hub = hub_with(vec![rule("/a", 2, 1000)]);
    let first = Arc::downgrade(&publish(&hub, "/a", "1").message);
    let second = Arc::downgrade(&publish(&hub, "/a", "2").message);
    assert!(first.upgrade().is_some());
    publish(&hub, "/a", "3");
    assert!(first.upgrade().is_none());
    assert!(second.upgrade().is_some());
    hub.delete(name("/a"), Precondition::None, 0).unwrap();
    assert!(second.upgrade().is_none());
}

#[test]
fn a_bounded_number_of_deletions_is_remembered() {
    let hub = hub();
    for n in 0..TOMBSTONES_MAX + 3 {
        let topic = format!("/{n}");
        publish(&hub, &topic, "1");
        hub.delete(name(&topic), Precondition::None, 1).unwrap();
    }
    assert_eq!(hub.tombstones_mut().deletions().count(), TOMBSTONES_MAX);
}

#[test]
fn deleting_and_coming_back() {
    let hub = hub();
    publish(&hub, "/a", "1");
    publish(&hub, "/a", "2");
    publish(&hub, "/ab", "3");
    let deletion = hub.delete(name("/a"), Precondition::None, 1001).unwrap();
    assert_eq!((deletion.topic(), deletion.seq()), ("/a", 4), "a deletion takes a number");
    assert!(deletion.message.is_deletion() && deletion.message.data().is_empty());
    assert_eq!(deletion.message.published_at(), 1001);
    assert!(hub.value("/a").is_none());
    assert_eq!(hub.delete(name("/a"), Precondition::None, 0).unwrap_err(), Refusal::NotFound);
    assert_eq!(names(&hub.topics("", None, 10)), ["/ab"]);
    let counts = hub.counts();
    assert_eq!((counts.topics, counts.messages_kept, counts.bytes_kept), (1, 1, 1));
    assert_eq!((counts.published_total, hub.seq()), (3, 4));
    let back = publish(&hub, "/a", "4");
    assert_eq!((back.created, back.id.seq, back.replaced.is_none()), (true, 5, true));
    assert_eq!(history(&hub, "/a"), 1);
}

#[test]
fn listing_in_pages() {
    let hub = hub();
    for name in ["/b/2", "/a", "/b/10", "/c", "/b", "/b/1", "/ba"] {
        publish(&hub, name, name);
    }
    let all = ["/a", "/b", "/b/1", "/b/10", "/b/2", "/ba", "/c"];
    assert_eq!(names(&hub.topics("", None, 100)), all);
    assert_eq!(names(&hub.topics("/b/", None, 100)), all[2..5]);
    assert_eq!(names(&hub.topics("/b", None, 2)), all[1..3]);
    assert_eq!(names(&hub.topics("/b", Some("/b/1"), 2)), all[3..5]);
    assert_eq!(names(&hub.topics("/b", Some("/b/2"), 2)), all[5..6]);
    assert_eq!(names(&hub.topics("/b/", Some("/a"), 1)), all[2..3], "after lies before the prefix");
    assert_eq!(names(&hub.topics("", Some("/b/15"), 1)), all[4..5], "after need not exist");
    assert!(hub.topics("/b", Some("/z"), 10).is_empty());
    assert!(hub.topics("/x", None, 10).is_empty());
    assert!(hub.topics("", None, 0).is_empty());
    let info = &hub.topics("/c", None, 1)[0];
    assert_eq!((info.id.seq, info.bytes, info.history, info.published_at), (4, 2, 1, 1000));
    assert_eq!(info.content_type, "application/octet-stream");
}

#[test]
fn new_rules_hold_for_every_topic() {
    let hub = hub();
    let topics = 2 * SWEEP_TOPICS + 7;
    for index in 0..topics {
        publish(&hub, &format!("/t/{index}"), "1");
        publish(&hub, &format!("/t/{index}"), "22");
    }
    assert_eq!(hub.counts().messages_kept, 2 * topics);
    hub.set_rules(vec![rule("/t/5", 2, 1000), rule("/t/*", 1, 1000)]);
    let counts = hub.counts();
    assert_eq!((counts.messages_kept, counts.bytes_kept), (topics + 1, 2 * topics + 1));
    assert_eq!((history(&hub, "/t/5"), history(&hub, "/t/6")), (2, 1));
    publish(&hub, "/t/6", "3");
    assert_eq!(history(&hub, "/t/6"), 1);
    publish(&hub, "/t/new", "1");
    publish(&hub, "/t/new", "2");
    assert_eq!(history(&hub, "/t/new"), 1);

    hub.set_rules(vec![]);
    publish(&hub, "/t/6", "4");
    assert_eq!(history(&hub, "/t/6"), 2, "and back again");
}

#[test]
fn a_message_follows_the_new_rules_before_the_sweep_has_come_to_its_topic() {
    let hub = std::sync::Arc::new(hub());
    ["1", "2", "3"].iter().for_each(|data| drop(publish(&hub, "/t", data)));
    let cache_control = Some(CacheControl::parse("max-age=9").unwrap());
    let rules = vec![Rule { cache_control, ..rule("/t", 2, 1000) }];
    let own = std::sync::Arc::clone(&hub);
    let publish_meanwhile = move || {
        assert_eq!(publish(&own, "/t", "4").message.cache_control(), Some("max-age=9"));
        assert_eq!(history(&own, "/t"), 2);
    };
    interleave::with_hook(publish_meanwhile, || hub.set_rules(rules));
    assert_eq!(hub.counts().published_total, 4);
}

#[derive(Clone, Debug)]
enum Operation {
    Publish { topic: usize, bytes: usize },
    PublishIfNew { topic: usize },
    Delete { topic: usize },
    SetRules { history: u32, history_bytes: usize },
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        6 => (0..4_usize, 0..40_usize)
            .prop_map(|(topic, bytes)| Operation::Publish { topic, bytes }),
        1 => (0..4_usize).prop_map(|topic| Operation::PublishIfNew { topic }),
        1 => (0..4_usize).prop_map(|topic| Operation::Delete { topic }),
        1 => (0..6_u32, 0..120_usize)
            .prop_map(|(history, history_bytes)| Operation::SetRules { history, history_bytes }),
    ];
    proptest::collection::vec(operation, 0..200)
}

/// What a hub should hold, written down in the plainest way: per topic the kept messages as
/// (SEQ, length), oldest first.
#[derive(Default)]
struct Model {
    seq: u64,
    published: u64,
    topics: std::collections::BTreeMap<usize, Vec<(u64, usize)>>,
}

impl Model {
    fn publish(&mut self, topic: usize, bytes: usize) {
        self.seq += 1;
        self.published += 1;
        self.topics.entry(topic).or_default().push((self.seq, bytes));
    }

    /// Whether there was something to delete.
    fn delete(&mut self, topic: usize) -> bool {
        let deleted = self.topics.remove(&topic).is_some();
        self.seq += u64::from(deleted);
        deleted
    }

    fn trim(&mut self, history: u32, history_bytes: usize) {
        for kept in self.topics.values_mut() {
            let bytes = |kept: &[(u64, usize)]| kept.iter().map(|(_, bytes)| bytes).sum::<usize>();
            while kept.len() > 1 && (kept.len() > history as usize || bytes(kept) > history_bytes) {
                kept.remove(0);
            }
        }
    }

    fn check(&self, hub: &Hub) {
        let kept = self.topics.values().flatten();
        assert_eq!(hub.counts().messages_kept, kept.clone().count());
        assert_eq!(hub.counts().bytes_kept, kept.map(|(_, bytes)| bytes).sum::<usize>());
        assert_eq!(
            (hub.counts().topics, hub.counts().published_total),
            (self.topics.len(), self.published)
        );
        let listed = hub.topics("", None, 100);
        assert_eq!(listed.len(), self.topics.len());
        for (info, (topic, kept)) in listed.iter().zip(&self.topics) {
            assert_eq!(info.name, format!("/t/{topic}"));
            assert_eq!(info.history, kept.len());
            assert_eq!(kept.last(), Some(&(info.id.seq, info.bytes)));
            assert_eq!(hub.value(&info.name).unwrap().seq(), info.id.seq);
        }
        hub.check();
    }
}

proptest! {
    #[test]
    fn any_operations_leave_what_they_should(operations in operations()) {
        let hub = hub_with(vec![rule("/t/*", 3, 60)]);
        let (mut model, mut history, mut history_bytes) = (Model::default(), 3, 60);
        for operation in operations {
            match operation {
                Operation::Publish { topic, bytes } => {
                    publish(&hub, &format!("/t/{topic}"), &"x".repeat(bytes));
                    model.publish(topic, bytes);
                }
                Operation::PublishIfNew { topic } => {
                    let when = Precondition::IfNoneMatch((*b"*").into());
                    let topic_name = format!("/t/{topic}");
                    let done = hub.publish(name(&topic_name), Draft::new(*b"x"), when, 0).is_ok();
                    prop_assert_eq!(done, !model.topics.contains_key(&topic));
                    if done {
                        model.publish(topic, 1);
                    }
                }
                Operation::Delete { topic } => {
                    let topic_name = format!("/t/{topic}");
                    let done = hub.delete(name(&topic_name), Precondition::None, 0).is_ok();
                    prop_assert_eq!(done, model.delete(topic));
                }
                Operation::SetRules { history: messages, history_bytes: bytes } => {
                    hub.set_rules(vec![rule("/t/*", messages, bytes)]);
                    (history, history_bytes) = (messages, bytes);
                }
            }
            model.trim(history, history_bytes);
            model.check(&hub);
        }
    }
}

/// Writers publish and delete the same few topics; readers watch. On each topic and thread SEQ
/// never falls, the data always belongs to the SEQ, and a writer that owns a topic reads what it
/// wrote.
#[test]
fn everybody_at_once() {
    const ROUNDS: u64 = 5_000;
    let hub = hub_with(vec![rule("/shared/*", 4, 1000)]);
    let names: Vec<String> = (0..4).map(|index| format!("/shared/{index}")).collect();
    let over = AtomicBool::new(false);
    let published = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                let (hub, names, published) = (&hub, &names, &published);
                scope.spawn(move || write(hub, names, writer, ROUNDS, published))
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| watch(&hub, &names, &over));
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                hub.set_rules(vec![rule("/shared/*", 2, 1000)]);
                let listed = hub.topics("/shared/", None, 100);
                assert!(listed.is_sorted_by(|a, b| a.name < b.name));
                hub.set_rules(vec![rule("/shared/*", 4, 1000)]);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    hub.check();
    let counts = hub.counts();
    assert_eq!(counts.published_total, published.load(Ordering::Relaxed));
    let listed = hub.topics("", None, 100);
    assert_eq!(counts.topics, listed.len());
    assert_eq!(counts.messages_kept, listed.iter().map(|info| info.history).sum::<usize>());
    for info in listed {
        hub.delete(name(&info.name), Precondition::None, 0).unwrap();
    }
    let empty = hub.counts();
    assert_eq!((empty.topics, empty.messages_kept, empty.bytes_kept), (0, 0, 0));
}

fn write(hub: &Hub, names: &[String], writer: u64, rounds: u64, published: &AtomicU64) {
    let own = format!("/own/{writer}");
    for round in 0..rounds {
        let name = &names[((round * 7 + writer) % 4) as usize];
        if (round + writer).is_multiple_of(5) {
            let _ = hub.delete(super::tests::name(name), Precondition::None, 0);
            if hub.delete(super::tests::name(&own), Precondition::None, 0).is_ok() {
                assert!(hub.value(&own).is_none(), "deleted for its writer at once");
            }
        }
        let new = publish(hub, name, name).id.seq;
        if let Some(value) = hub.value(name) {
            assert!(value.seq() >= new, "what was published is seen, or something newer");
        }
        let new = publish(hub, &own, &own).id.seq;
        assert_eq!(hub.with_value(&own, |value| value.unwrap().seq()), new);
        published.fetch_add(2, Ordering::Relaxed);
    }
}

fn watch(hub: &Hub, names: &[String], over: &AtomicBool) {
    let mut last = vec![0; names.len()];
    while !over.load(Ordering::Relaxed) {
        for (name, last) in names.iter().zip(&mut last) {
            hub.with_value(name, |value| {
                let Some(value) = value else { return };
                assert!(value.seq() >= *last, "{name} fell from {last} to {}", value.seq());
                assert_eq!(value.data(), name.as_bytes());
                *last = value.seq();
            });
        }
    }
}

#[test]
fn many_are_shown_each_in_its_turn() {
    let hub = Hub::new(Epoch::random(), Vec::new(), Limits::default());
    for n in 0..40 {
        publish(&hub, &format!("/{n}"), &n.to_string());
    }
    for count in [0, 1, 15, 16, 17, 32, 40] {
        // Every third name has no topic.
        let names: Vec<String> = (0..count)
            .map(|n| if n % 3 == 2 { "/none".to_owned() } else { format!("/{n}") })
            .collect();
        let mut shown = Vec::new();
        hub.with_values(names.iter().map(String::as_str), |value| {
            shown.push(value.map(|message| message.data().to_vec()));
        });
        let expected: Vec<_> =
            (0..count).map(|n| (n % 3 != 2).then(|| n.to_string().into_bytes())).collect();
        assert_eq!(shown, expected);
    }
}

/// While one thread holds all locks another one reads values.
#[test]
fn a_read_of_values_takes_no_lock() {
    let hub = hub();
    publish(&hub, "/a", "1");
    let topic = hub.topic("/a").unwrap();
    let (sender, receiver) = mpsc::channel();
    let read = || {
        let data = |value: Option<&Arc<Message>>| value.map(|value| value.data().to_vec());
        let mut seen = vec![hub.with_value("/a", data)];
        hub.with_values(["/a", "/b"].into_iter(), |value| seen.push(data(value)));
        sender.send((seen, hub.seq())).unwrap();
    };
    thread::scope(|scope| {
        let _sweep = hub.sweep.lock().unwrap();
        let _sequence = hub.sequence();
        let _tombstones = hub.tombstones_mut();
        let table = hub.table.load();
        let _names = table.names();
        topic.while_locked(|| {
            let _changes = hub.changes();
            scope.spawn(read);
            let seen = receiver.recv_timeout(Duration::from_secs(60)).expect("no lock is needed");
            assert_eq!(seen, (vec![Some(b"1".to_vec()), Some(b"1".to_vec()), None], 1));
        });
    });
}

#[test]
fn a_hub_forgets_what_was_not_stored() {
    let none = Rule { keep: Some(Keep::None), ..rule("/none/*", 32, 1000) };
    let hub = hub_with(vec![none]);
    for topic in ["/none/a", "/kept", "/none/b", "/none/c"] {
        publish(&hub, topic, "x");
    }
    hub.delete(name("/none/c"), Precondition::None, 0).unwrap();
    hub.forget_unstored(10);
    hub.check();
    assert_eq!(names(&hub.topics("", None, 9)), ["/kept"]);
    assert_eq!((hub.seq(), hub.counts().topics, hub.counts().messages_kept), (10, 1, 1));
    let lost = |topic, since| {
        let span = Span { since, upto: hub.seq(), mode: Mode::All };
        hub.missed(topic, span, usize::MAX, &mut Vec::new()).lost_seq
    };
    assert_eq!((lost("/none/a", 1), lost("/kept", 1)), (10, 0));
    for topic in ["/none/a", "/none/c"] {
        publish(&hub, topic, "y");
        assert_eq!(lost(topic, 6), 10, "{topic}");
    }
    let told = |pattern: &str, since| {
        let pattern = Pattern::parse(pattern).unwrap();
        let span = Span { since, upto: hub.seq(), mode: Mode::Latest };
        let share = Share { steps: 99, bytes: usize::MAX };
        hub.missed_by_pattern(&pattern, span, None, share, &mut Vec::new()).missed.lost_seq
    };
    for pattern in ["/none/*", "/**", "/*/a", "/none/**"] {
        assert_eq!((told(pattern, 1), told(pattern, 0)), (10, 0), "{pattern}");
    }
    assert_eq!([told("/*", 1), told("/kept/**", 1), lost("/never", 1)], [0; 3]);
    // Two other sets of rules, and the first is forgotten: then everybody is told.
    for (others, upto) in [("/b/*", 20), ("/c/*", 30)] {
        let others = |keep| Rule { keep: Some(keep), ..rule(others, 1, 1000) };
        hub.set_rules(vec![others(Keep::None)]);
        hub.forget_unstored(upto);
        hub.set_rules(vec![others(Keep::Synced)]);
    }
    assert_eq!([told("/b/*", 1), told("/c/**", 1), told("/kept/**", 1)], [20, 30, 10]);
    let all = hub_with(vec![Rule { keep: Some(Keep::Memory), ..rule("/kept/**", 1, 1000) }]);
    publish(&all, "/a", "x");
    all.forget_unstored(10);
    assert_eq!((all.seq(), all.counts().topics), (1, 1), "everything is stored");
    let kept = Rule { keep: Some(Keep::Memory), ..rule("/kept/**", 1, 1000) };
    all.set_rules(vec![kept, Rule { keep: Some(Keep::None), ..Rule::default() }]);
    all.forget_unstored(10);
    assert_eq!((all.seq(), all.counts().topics), (10, 0), "nothing is, unless a rule says so");
    let forgotten = |topic| all.tombstones_mut().forgotten_seq(topic);
    assert_eq!([forgotten("/a"), forgotten("/kept/a")], [10, 0]);
    let meets = |pattern| {
        let pattern = Pattern::parse(pattern).unwrap();
        let span = Span { since: 1, upto: 10, mode: Mode::All };
        all.tombstones_mut().missed(&pattern, span, &mut Vec::new())
    };
    assert_eq!([meets("/kept/*"), meets("/kept/**"), meets("/**"), meets("/*/a")], [0, 0, 10, 10]);
}

#[test]
fn a_hub_that_goes_on_goes_by_the_rules_it_is_given() {
    let hub = hub_with(vec![rule("/a", 5, 1000)]);
    let generation = |hub: &Hub| hub.sequence().rules.generation();
    hub.continue_by(&[rule("/a", 5, 1000)], 0);
    assert_eq!(generation(&hub), 0, "they are the same");
    hub.continue_by(&[rule("/a", 5, 1000)], 3);
    assert_eq!(generation(&hub), 4, "topics may follow others of generation 3");
    hub.continue_by(&[rule("/a", 6, 1000)], 3);
    assert_eq!(generation(&hub), 5);
}
