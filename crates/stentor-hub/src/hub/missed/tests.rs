//! History against a model that forgets nothing, then readers that come and go while everything
//! changes: what they get must be whole, or they must be told that it is not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use proptest::prelude::*;

use crate::event::Mode;
use crate::hub::tests::name;
use crate::interleave;
use crate::tombstones::{Tombstones, Unstored};
use crate::{
    Draft, Epoch, Event, Filter, Hub, Limits, Pattern, Precondition, Rule, Share, Span, Subscriber,
};

const TOPICS: [&str; 5] = ["/t/a", "/t/b", "/t/b/c", "/t/d", "/u"];

fn hub(rules: Vec<Rule>, graves_max: usize) -> Hub {
    let mut hub = Hub::new(Epoch::parse("5f3a09c1").unwrap(), rules, Limits::default());
    hub.tombstones = RwLock::new(Tombstones::new(graves_max));
    hub
}

fn rule(history: u32, history_bytes: usize) -> Rule {
    Rule { history, history_bytes, ..Rule::default() }
}

fn publish(hub: &Hub, topic: &str, bytes: usize) -> u64 {
    let draft = Draft::new(vec![b'x'; bytes]);
    hub.publish(name(topic), draft, Precondition::None, 0).unwrap().id.seq
}

fn delete(hub: &Hub, topic: &str) -> Option<u64> {
    hub.delete(name(topic), Precondition::None, 0).ok().map(|deletion| deletion.seq())
}

fn all(since: u64) -> Span {
    Span { since, upto: u64::MAX, mode: Mode::All }
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(Event::seq).collect()
}

/// What is there of a topic, and whether there is a gap.
fn missed(hub: &Hub, topic: &str, span: Span) -> (Vec<u64>, bool) {
    let mut out = Vec::new();
    let missed = hub.missed(topic, span, usize::MAX, &mut out);
    assert!(out.iter().all(|event| event.topic() == topic));
    assert_eq!(missed.upto, span.upto);
    (seqs(&out), missed.lost_seq > span.since)
}

/// The same for a pattern, in pages.
fn missed_in_pages(hub: &Hub, pattern: &Pattern, span: Span, names: usize) -> (Vec<u64>, bool) {
    let (mut out, mut gap, mut after) = (Vec::new(), false, None::<String>);
    loop {
        let page = hub.missed_by_pattern(pattern, span, after.as_deref(), steps(names), &mut out);
        gap |= page.missed.lost_seq > span.since;
        assert_eq!(page.missed.upto, span.upto);
        assert!(page.next.is_none() || page.next > after, "every page gets on");
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(out.iter().all(|event| pattern.matches(event.topic())));
    let mut seqs = seqs(&out);
    seqs.sort_unstable();
    (seqs, gap)
}

/// The same by the latest changes, a share at a time, if they reach back that far.
fn missed_lately(
    hub: &Hub,
    filters: &[&Filter],
    span: Span,
    share: Share,
) -> Option<(Vec<u64>, bool)> {
    let (mut out, mut gap, mut span) = (Vec::new(), false, span);
    while span.since < span.upto {
        let before = out.len();
        let missed = hub.missed_lately(filters, span, share, &mut out)?;
        let bytes: usize = out[before..].iter().map(|event| event.message.kept_bytes()).sum();
        assert!(bytes <= share.bytes || out.len() == before + 1);
        assert!(missed.upto > span.since && missed.upto <= span.upto, "every share gets on");
        gap |= missed.lost_seq > span.since;
        span.since = missed.upto;
    }
    Some((seqs(&out), gap))
}

fn steps(steps: usize) -> Share {
    Share { steps, bytes: usize::MAX }
}

#[test]
fn a_reader_that_was_away() {
    let hub = hub(vec![rule(2, 1000)], 10);
    for bytes in 1..=4 {
        publish(&hub, "/a", bytes);
    }
    assert_eq!(missed(&hub, "/a", all(4)), (vec![], false));
    assert_eq!(missed(&hub, "/a", all(2)), (vec![3, 4], false));
    assert_eq!(missed(&hub, "/a", all(1)), (vec![3, 4], true), "2 is lost");
    let span = Span { upto: 3, ..all(2) };
    assert_eq!(missed(&hub, "/a", span), (vec![3], false), "it will be told of 4");
    let latest = |since| Span { mode: Mode::Latest, ..all(since) };
    assert_eq!(missed(&hub, "/a", latest(1)), (vec![4], false));
    assert_eq!(missed(&hub, "/a", latest(4)), (vec![], false));
    assert_eq!(missed(&hub, "/a", Span { upto: 3, ..latest(1) }), (vec![], false));
    let by_rule = Span { mode: Mode::ByRule, ..all(1) };
    assert_eq!(missed(&hub, "/a", by_rule), (vec![3, 4], true));
    hub.set_rules(vec![rule(1, 1000)]);
    assert_eq!(missed(&hub, "/a", by_rule), (vec![4], false));
    assert_eq!(missed(&hub, "/a", all(2)), (vec![4], true));
    assert_eq!(missed(&hub, "/never", all(1)), (vec![], false));
}

#[test]
fn a_deletion_is_heard_of() {
    let hub = hub(vec![rule(3, 1000)], 10);
    for topic in ["/a", "/a", "/b"] {
        publish(&hub, topic, 1);
    }
    assert_eq!(delete(&hub, "/a"), Some(4));
    assert_eq!(missed(&hub, "/a", all(2)), (vec![4], false), "it has seen all that was lost");
    assert_eq!(missed(&hub, "/a", all(1)), (vec![4], true));
    assert_eq!(missed(&hub, "/a", all(4)), (vec![], false));
    assert_eq!(missed(&hub, "/a", Span { mode: Mode::Latest, ..all(1) }), (vec![4], false));
    assert_eq!(missed(&hub, "/a", all(0)), (vec![], false), "what it never saw is no loss");
    assert_eq!(missed_in_pages(&hub, &Pattern::any(), all(2), 1), (vec![3, 4], false));
    assert_eq!(missed_in_pages(&hub, &Pattern::any(), all(0), 1), (vec![3], false));

    assert_eq!(publish(&hub, "/a", 1), 5);
    assert_eq!(missed(&hub, "/a", all(4)), (vec![5], false));
    assert_eq!(missed(&hub, "/a", all(3)), (vec![5], true), "the deletion is lost, and it is said");
}

#[test]
fn of_deletions_forgotten_a_gap_is_left() {
    let hub = hub(vec![], 2);
    for topic in ["/a", "/b", "/c"] {
        publish(&hub, topic, 1);
    }
    let deleted = ["/a", "/b", "/c"].map(|topic| delete(&hub, topic).unwrap());
    assert_eq!(deleted, [4, 5, 6]);
    assert_eq!(missed(&hub, "/a", all(3)), (vec![], true));
    assert_eq!(missed(&hub, "/a", Span { mode: Mode::Latest, ..all(3) }), (vec![], true));
    assert_eq!(missed(&hub, "/a", all(4)), (vec![], false));
    assert_eq!(missed(&hub, "/b", all(3)), (vec![5], false));
    assert_eq!(missed_in_pages(&hub, &Pattern::any(), all(3), 9), (vec![5, 6], true));
    assert_eq!(missed_in_pages(&hub, &Pattern::any(), all(4), 9), (vec![5, 6], false));
    assert_eq!(publish(&hub, "/a", 1), 7);
    assert_eq!(missed(&hub, "/a", all(3)), (vec![7], true), "back, and who knows since when");
    assert_eq!(missed(&hub, "/a", all(4)), (vec![7], false));
}

/// `forget` raises the floor to the position at which an unstored topic was dropped. A tombstone
/// that is evicted later can be older than that.
#[test]
fn an_evicted_tombstone_never_lowers_the_floor() {
    let hub = hub(vec![], 1);
    for _ in 0..4 {
        publish(&hub, "/t/a", 1);
    }
    assert_eq!(delete(&hub, "/t/a"), Some(5));
    for (upto, pattern) in [(10, "/x/*"), (11, "/y/*"), (12, "/z/*")] {
        let rules = Box::new([(Pattern::parse(pattern).unwrap(), false)]);
        hub.tombstones_mut().forget(Unstored { upto, rules });
    }
    assert_eq!(missed(&hub, "/x/a", all(9)), (vec![], true), "two sets of rules are remembered");
    publish(&hub, "/t/b", 1);
    assert_eq!(delete(&hub, "/t/b"), Some(7));
    assert_eq!(missed(&hub, "/x/a", all(9)), (vec![], true));
}

#[test]
fn who_holds_a_topic_that_is_deleted_learns_of_the_loss() {
    let hub = hub(vec![], 2);
    publish(&hub, "/a", 1);
    let topic = hub.names_of(&Pattern::any(), None, 1).0.remove(0);
    delete(&hub, "/a");
    let mut out = Vec::new();
    assert_eq!(topic.missed(all(0), usize::MAX, &mut out).lost_seq, 1, "no loss for who saw 1");
    assert!(out.is_empty());
}

/// Between the walk of the names and the look at the tombstones a topic may come back.
#[test]
fn what_slips_between_names_and_graves_is_a_gap() {
    let hub = hub(vec![], 2);
    for topic in ["/t/a", "/t/b"] {
        publish(&hub, topic, 1);
    }
    delete(&hub, "/t/a");
    let (pattern, mut out) = (Pattern::parse("/t/*").unwrap(), Vec::new());
    let span = Span { upto: hub.seq(), ..all(2) };
    let page = hub.missed_by_pattern(&pattern, span, None, steps(1), &mut out);
    assert_eq!((page.next, page.missed.lost_seq > 2), (None, false));
    assert_eq!(seqs(&out), [3]);

    publish(&hub, "/t/c", 1);
    let page = hub.missed_by_pattern(&pattern, span, None, steps(1), &mut out);
    publish(&hub, "/t/a", 1);
    assert_eq!(page.next.as_deref(), Some("/t/b"));
    let page = hub.missed_by_pattern(&pattern, span, page.next.as_deref(), steps(9), &mut out);
    assert_eq!((page.next, page.missed.lost_seq > 2), (None, true), "number 3 is nowhere any more");
}

#[test]
fn a_page_looks_at_so_many_names() {
    let hub = hub(vec![], 2);
    for topic in ["/a/1/x", "/a/1/y", "/a/2/x", "/b/1/x"] {
        publish(&hub, topic, 1);
    }
    let pattern = Pattern::parse("/a/*/x").unwrap();
    let page = |after, names_max| {
        let mut out = Vec::new();
        let page = hub.missed_by_pattern(&pattern, all(0), after, steps(names_max), &mut out);
        (seqs(&out), page.next)
    };
    assert_eq!(page(None, 2), (vec![1], Some("/a/1/y".to_owned())));
    assert_eq!(page(None, 3), (vec![1, 3], None), "/b is outside of the prefix");
    assert_eq!(page(Some("/a/1/y"), 1), (vec![3], None));
    assert_eq!(page(Some("/a/1/x"), 0), (vec![], Some("/a/1/y".to_owned())), "one at least");
    assert_eq!(page(Some("/b"), 9), (vec![], None));
    assert_eq!(page(Some("/"), 9), (vec![1, 3], None));
}

#[test]
fn a_page_ends_with_the_bytes_of_its_share() {
    let hub = hub(vec![], 2);
    for topic in ["/a", "/b", "/b", "/b", "/c"] {
        publish(&hub, topic, 100);
    }
    let page = |after, bytes| {
        let mut out = Vec::new();
        let share = Share { steps: 9, bytes };
        let page = hub.missed_by_pattern(&Pattern::any(), all(0), after, share, &mut out);
        (seqs(&out), page.next, page.missed.upto)
    };
    let name = |text: &str| Some(text.to_owned());
    assert_eq!(page(None, 164), (vec![1], name("/a"), u64::MAX));
    assert_eq!(page(None, 165), (vec![1, 2], name("/b"), 2), "of /b there is more");
    assert_eq!(page(Some("/a"), 1), (vec![2], name("/b"), 2));
    assert_eq!(page(Some("/a"), 164 * 3), (vec![2, 3, 4], name("/b"), u64::MAX));
    assert_eq!(page(Some("/b"), 0), (vec![5], None, u64::MAX));
}

#[test]
fn what_was_missed_lately_is_found_in_order_at_the_cost_of_the_changes() {
    let hub = hub(vec![rule(2, 1000)], 10);
    for n in 0..40 {
        publish(&hub, &format!("/t/{}", n % 4), 10);
    }
    let (one, all_of_t) = (Filter::parse("/t/1").unwrap(), Filter::parse("/t/*").unwrap());
    let lately = |filters: &[&Filter], since| missed_lately(&hub, filters, all(since), steps(3));
    assert_eq!(lately(&[&all_of_t], 36), Some((vec![37, 38, 39, 40], false)));
    assert_eq!(lately(&[&one, &all_of_t], 38), Some((vec![39, 40], false)));
    assert_eq!(lately(&[&one], 30), Some((vec![34, 38], false)));
    assert_eq!(lately(&[&one], 29), Some((vec![34, 38], true)), "30 is lost");
    assert_eq!(lately(&[&one], 40), Some((vec![], false)));
    for _ in 0..30 {
        publish(&hub, "/u", 10);
    }
    let lately = |since| missed_lately(&hub, &[&one], all(since), steps(3));
    assert_eq!(lately(5), None, "64 changes are remembered");
    assert_eq!(lately(6), Some((vec![34, 38], true)));
}

#[test]
fn what_is_forgotten_while_it_is_looked_at_is_asked_for_again() {
    let hub = Arc::new(hub(vec![], 5));
    (0..20).for_each(|_| {
        publish(&hub, "/t/a", 1);
    });
    let (own, mut points) = (Arc::clone(&hub), 0);
    let publish_much = move || {
        points += 1;
        if points == 2 {
            (0..100).for_each(|_| {
                publish(&own, "/t/b", 1);
            });
        }
    };
    let (mut out, span) = (Vec::new(), Span { since: 1, upto: 20, mode: Mode::All });
    let filter = Filter::parse("/t/a").unwrap();
    let missed = interleave::with_hook(publish_much, || {
        hub.missed_lately(&[&filter], span, steps(usize::MAX), &mut out)
    });
    assert_eq!((seqs(&out), missed.unwrap().upto), ((2..=6).collect(), 6));
}

#[derive(Clone, Debug)]
enum Operation {
    Publish { topic: usize, bytes: usize },
    Delete { topic: usize },
    SetRules { history: u32, history_bytes: usize },
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        6 => (0..TOPICS.len(), 0..40_usize)
            .prop_map(|(topic, bytes)| Operation::Publish { topic, bytes }),
        2 => (0..TOPICS.len()).prop_map(|topic| Operation::Delete { topic }),
        1 => (0..6_u32, 0..120_usize)
            .prop_map(|(history, history_bytes)| Operation::SetRules { history, history_bytes }),
    ];
    proptest::collection::vec(operation, 0..80)
}

/// Everything that ever happened, and what of it should still be there.
#[derive(Default)]
struct Model {
    seq: u64,
    history: u32,
    history_bytes: usize,
    /// Per topic all numbers, deletions included.
    happened: [Vec<u64>; TOPICS.len()],
    /// Per topic that has a value: number and length of what is kept, oldest first.
    kept: [Vec<(u64, usize)>; TOPICS.len()],
    /// Topic and whether it was conflated, by the number of its deletion.
    tombstones: BTreeMap<u64, (usize, bool)>,
    forgotten: u64,
}

impl Model {
    fn apply(&mut self, operation: &Operation, hub: &Hub, graves_max: usize) {
        match *operation {
            Operation::Publish { topic, bytes } => {
                self.happens(topic, publish(hub, TOPICS[topic], bytes));
                self.kept[topic].push((self.seq, bytes));
                self.tombstones.retain(|_, (tombstone, _)| *tombstone != topic);
            }
            Operation::Delete { topic } => {
                let deleted = delete(hub, TOPICS[topic]);
                assert_eq!(deleted.is_some(), !self.kept[topic].is_empty());
                if let Some(seq) = deleted {
                    self.happens(topic, seq);
                    self.kept[topic].clear();
                    self.tombstones.insert(seq, (topic, self.history <= 1));
                }
                if self.tombstones.len() > graves_max {
                    self.forgotten = self.tombstones.pop_first().unwrap().0;
                }
            }
            Operation::SetRules { history, history_bytes } => {
                hub.set_rules(vec![rule(history, history_bytes)]);
                (self.history, self.history_bytes) = (history, history_bytes);
            }
        }
        for kept in &mut self.kept {
            let bytes = |kept: &[(u64, usize)]| kept.iter().map(|(_, bytes)| bytes).sum::<usize>();
            while kept.len() > 1
                && (kept.len() > self.history as usize || bytes(kept) > self.history_bytes)
            {
                kept.remove(0);
            }
        }
        hub.check();
    }

    fn happens(&mut self, topic: usize, seq: u64) {
        self.seq += 1;
        assert_eq!(seq, self.seq);
        self.happened[topic].push(seq);
    }

    /// What a reader should get, whether it must be told of a gap, and whether it may be.
    fn missed(&self, topic: usize, span: Span) -> (Vec<u64>, bool, bool) {
        let inside = |seq: u64| span.since < seq && seq <= span.upto;
        let tombstone = self.tombstones.iter().find(|(_, (buried, _))| *buried == topic);
        let mut there: Vec<u64> = self.kept[topic].iter().map(|(seq, _)| *seq).collect();
        there.extend(tombstone.map(|(seq, _)| *seq));
        let unknown = there.is_empty();
        let conflates = match (span.mode, tombstone) {
            (Mode::Latest, _) => true,
            (Mode::All, _) => false,
            (Mode::ByRule, None) => self.history <= 1,
            (Mode::ByRule, Some((_, (_, conflated)))) => *conflated,
        };
        let gone = |seq: &&u64| **seq > span.since && !there.contains(seq);
        let mut gone = self.happened[topic].iter().filter(gone);
        let forgotten = self.forgotten > span.since;
        let (must, may) = if unknown {
            (gone.any(|seq| inside(*seq)), forgotten)
        } else if conflates {
            there.drain(..there.len() - 1);
            (false, false)
        } else {
            // Of what is newer than the span it may be told anyway.
            (gone.clone().any(|seq| inside(*seq)), forgotten || gone.next().is_some())
        };
        there.retain(|seq| inside(*seq));
        (there, must, may)
    }
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Latest), Just(Mode::All), Just(Mode::ByRule)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_missed_is_kept_or_a_gap(
        operations in operations(),
        graves_max in prop_oneof![1..3_usize, Just(1_000)],
        sinces in proptest::collection::vec((1..60_u64, 0..60_u64, modes()), 1..10),
        pattern in prop_oneof![Just("/t/*"), Just("/**"), Just("/t/**"), Just("/*/b/*")],
        names_max in 1..7_usize,
    ) {
        let hub = hub(vec![rule(3, 60)], graves_max);
        let mut model = Model { history: 3, history_bytes: 60, ..Model::default() };
        for operation in &operations {
            model.apply(operation, &hub, graves_max);
        }
        prop_assert_eq!(hub.seq(), model.seq);
        let pattern = Pattern::parse(pattern).unwrap();
        for (since, more, mode) in sinces {
            // As often as not without a bound, where a gap is told exactly if there is one.
            let upto = if more % 2 == 0 { u64::MAX } else { since + more };
            let span = Span { since, upto, mode };
            let (mut sum, mut must_any, mut may_any) = (Vec::new(), false, false);
            for (index, topic) in TOPICS.iter().enumerate() {
                let (there, must, may) = model.missed(index, span);
                let (got, gap) = missed(&hub, topic, span);
                prop_assert_eq!(&got, &there, "{} in {:?}", topic, span);
                prop_assert!(!must || gap, "silence about {} in {:?}", topic, span);
                prop_assert!(!gap || may, "a needless gap for {} in {:?}", topic, span);
                if upto == u64::MAX && model.forgotten == 0 {
                    prop_assert_eq!(must, gap);
                }
                if pattern.matches(topic) {
                    sum.extend(there);
                    must_any |= must;
                    may_any |= may;
                }
            }
            sum.sort_unstable();
            let (got, gap) = missed_in_pages(&hub, &pattern, span, names_max);
            prop_assert_eq!(&got, &sum);
            prop_assert!(!must_any || gap, "silence about {:?} in {:?}", pattern, span);
            let unsure = model.forgotten > since || upto < model.seq;
            prop_assert!(!gap || may_any || unsure);

            let filter = Filter::Pattern(pattern.clone());
            let share = Share { steps: names_max, bytes: 100 * names_max };
            match missed_lately(&hub, &[&filter], span, share) {
                None => prop_assert!(model.seq - since > 64),
                Some((got, gap)) => {
                    prop_assert!(got.is_sorted_by(|a, b| a < b));
                    prop_assert_eq!(&got, &sum);
                    prop_assert!(!must_any || gap, "silence about {:?} in {:?}", pattern, span);
                    prop_assert!(!gap || may_any || unsure, "{:?} in {:?}", pattern, span);
                }
            }
        }
    }

    #[test]
    fn pieces_make_the_whole(
        lengths in proptest::collection::vec(0..300_usize, 1..40),
        since in 0..40_u64,
        bytes_max in 0..2_000_usize,
    ) {
        let hub = hub(vec![rule(100, 1 << 20)], 1);
        for length in &lengths {
            publish(&hub, "/a", *length);
        }
        let (mut span, mut got) = (all(since), Vec::new());
        loop {
            let mut piece = Vec::new();
            let missed = hub.missed("/a", span, bytes_max, &mut piece);
            prop_assert_eq!(missed.lost_seq, 0);
            let sum: usize = piece.iter().map(|event| event.message.kept_bytes()).sum();
            prop_assert!(sum <= bytes_max || piece.len() == 1);
            got.extend(piece.iter().map(Event::seq));
            if missed.upto == span.upto {
                break;
            }
            prop_assert_eq!(Some(missed.upto), got.last().copied());
            span.since = missed.upto;
        }
        prop_assert_eq!(got, (since + 1..=lengths.len() as u64).collect::<Vec<_>>());
    }
}

/// A subscriber that keeps what it is told until somebody looks.
#[derive(Default)]
struct Mailbox(Mutex<Vec<Event>>);

impl Subscriber for Mailbox {
    fn notify(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Mailbox {
    fn empty(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// What one reader was told, over all its connections.
#[derive(Default)]
struct Log {
    seen: Vec<u64>,
    /// From a cursor to where it went on: whatever is missing between was owned up to.
    gaps: Vec<(u64, u64)>,
}

/// Writers publish and delete; readers begin, read on, stop, and come back with their cursor. In
/// the end each has seen everything in order, without duplicates, but for what it was told is lost.
#[test]
fn nothing_is_lost_between_history_and_events() {
    let hub = &hub(vec![rule(20, 1 << 20)], 3);
    let (over, happened) = (&AtomicBool::new(false), &Mutex::new(BTreeMap::new()));
    // Readers that have not yet come and gone, or seen, enough: the writers go on for them.
    let young = &AtomicU32::new(8);
    std::thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            scope.spawn(move || {
                for round in 0..1_000_000_usize {
                    if round >= 6_000 && young.load(Ordering::SeqCst) == 0 {
                        break;
                    }
                    let topic = TOPICS[(round * writer + round / 7) % TOPICS.len()];
                    let deletes = round % 11 == writer;
                    let seq = deletes.then(|| delete(hub, topic)).flatten();
                    let seq = seq.unwrap_or_else(|| publish(hub, topic, 1));
                    happened.lock().unwrap().insert(seq, topic);
                    if round % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        });
        let readers = ["/t/b", "/t/*", "/**", "/u"].map(|text| {
            let filter = Filter::parse(text).unwrap();
            [true, false].map(|leaves| {
                let filter = filter.clone();
                (text, scope.spawn(move || read(hub, &filter, leaves, young, over)))
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Ordering::SeqCst);
        let happened = happened.lock().unwrap();
        for (text, reader) in readers.into_iter().flatten() {
            check(&Filter::parse(text).unwrap(), &happened, &reader.join().unwrap());
        }
    });
}

/// With `leaves` the subscriber ignores the filter between connections; without, it goes on being
/// told as a worker is that has other readers, and a connection begins at `Hub::seq`.
fn read(hub: &Hub, filter: &Filter, leaves: bool, young: &AtomicU32, over: &AtomicBool) -> Log {
    let mailbox = Arc::new(Mailbox::default());
    let id = hub.add_subscriber(mailbox.clone());
    let readers = Arc::new(AtomicU32::new(1));
    if !leaves {
        hub.subscribe(id, filter, readers.clone());
    }
    let (mut log, mut cursor, mut round, mut is_young) = (Log::default(), 0, 0, true);
    loop {
        let last = over.load(Ordering::SeqCst);
        mailbox.empty();
        let upto = if leaves { hub.subscribe(id, filter, readers.clone()) } else { hub.seq() };
        let span = Span { since: cursor, upto, mode: Mode::All };
        let mut events = Vec::new();
        let lately = match round % 2 {
            0 => hub.missed_lately(&[filter], span, steps(usize::MAX), &mut events),
            _ => None,
        };
        let gap = match (lately, filter) {
            (Some(missed), _) if missed.upto == upto => missed.lost_seq > cursor,
            (Some(_), _) => true,
            (None, Filter::Topic(topic)) => {
                hub.missed(topic, span, usize::MAX, &mut events).lost_seq > cursor
            }
            (None, Filter::Pattern(pattern)) => {
                let (mut gap, mut after) = (false, None::<String>);
                loop {
                    let after_now = after.as_deref();
                    let page =
                        hub.missed_by_pattern(pattern, span, after_now, steps(2), &mut events);
                    gap |= page.missed.lost_seq > cursor;
                    after = page.next;
                    if after.is_none() {
                        break gap;
                    }
                }
            }
        };
        if gap || cursor == 0 {
            log.gaps.push((cursor, upto));
        }
        events.sort_by_key(Event::seq);
        assert!(events.iter().all(|event| cursor < event.seq() && event.seq() <= upto));
        log.seen.extend(events.iter().map(Event::seq));
        cursor = cursor.max(upto);
        for _ in 0..round % 5 {
            std::thread::yield_now();
            take(&mailbox, &mut cursor, &mut log);
        }
        if leaves {
            hub.unsubscribe(id, filter);
        }
        take(&mailbox, &mut cursor, &mut log);
        round += 1;
        if is_young && round > 100 && log.seen.len() > 100 {
            is_young = false;
            young.fetch_sub(1, Ordering::SeqCst);
        }
        if last {
            return log;
        }
    }
}

/// Delivers what was told. Beginning at `Hub::seq`, some of it may have come by history already.
fn take(mailbox: &Mailbox, cursor: &mut u64, log: &mut Log) {
    for event in mailbox.empty() {
        if event.seq() > *cursor {
            *cursor = event.seq();
            log.seen.push(event.seq());
        }
    }
}

fn check(filter: &Filter, happened: &BTreeMap<u64, &str>, log: &Log) {
    assert!(log.seen.is_sorted_by(|a, b| a < b), "in order and none twice");
    let wanted = happened.iter().filter(|(_, topic)| filter.matches(topic));
    let wanted: Vec<u64> = wanted.map(|(seq, _)| *seq).collect();
    assert!(log.seen.iter().all(|seq| wanted.binary_search(seq).is_ok()));
    assert!(log.seen.len() > 100, "the reader was there");
    for seq in wanted {
        let owned_up = || log.gaps.iter().any(|(since, upto)| *since < seq && seq <= *upto);
        assert!(log.seen.binary_search(&seq).is_ok() || owned_up(), "{seq} of {filter}");
    }
}
