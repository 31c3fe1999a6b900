//! Walks by themselves: what they find is whole, whoever shares them.

use super::*;
use stentor_hub::{Draft, Epoch, Limits, Mode, Precondition, Rule};
use stentor_wire::target::TopicName;

fn hub() -> Hub {
    Hub::new(Epoch::parse("0badcafe").unwrap(), Vec::new(), Limits::default())
}

fn publish(hub: &Hub, topic: &str) -> u64 {
    publish_bytes(hub, topic, 1)
}

fn publish_bytes(hub: &Hub, topic: &str, bytes: usize) -> u64 {
    let (topic, draft) = (TopicName::parse(topic).unwrap(), Draft::new(vec![b'x'; bytes]));
    hub.publish(topic, draft, Precondition::None, 0).unwrap().id.seq
}

fn filters(texts: &[&str]) -> Vec<Filter> {
    texts.iter().map(|text| Filter::parse(text).unwrap()).collect()
}

/// A hub in which each of so many topics was published to so many times, in another order than that
/// of their names.
fn busy_hub(names: usize, rounds: usize) -> Hub {
    let hub = hub();
    for round in 0..rounds {
        for n in 0..names {
            publish(&hub, &format!("/t/{}", (n * 7 + round) % names));
        }
    }
    hub
}

/// Catches up as a reader does: returns the numbers it is sent, 0 for a gap, and the walks that it
/// took.
fn catch_up(
    walks: &mut Walks,
    hub: &Hub,
    texts: &[&str],
    mut span: Span,
    bytes_max: usize,
) -> (Vec<u64>, Vec<WalkId>) {
    let filters = filters(texts);
    let filters: Vec<&Filter> = filters.iter().collect();
    let (mut seqs, mut ids, mut known) = (Vec::new(), Vec::new(), None);
    for _ in 0..100_000 {
        if span.since >= span.upto {
            return (seqs, ids);
        }
        walks.tick(walks.now_ms + OVER_MS);
        let (id, cost) = walks.walk(hub, &filters, span, known);
        assert!(cost <= (STEPS_AT_ONCE + 1) * 40 * NAME_COST, "a step is short");
        known = id;
        let mut found = Vec::new();
        let id = id.expect("there is room");
        if ids.last() != Some(&id) {
            ids.push(id);
        }
        let Some(part) = walks.part(id, span, bytes_max, &mut found) else { continue };
        assert!(part.upto_seq > span.since, "it gets on");
        let bytes: usize = found.iter().map(|event| event.message.kept_bytes()).sum();
        assert!(bytes <= bytes_max || found.len() == 1);
        seqs.extend((part.lost_seq > span.since).then_some(0));
        seqs.extend(found.iter().map(Event::seq));
        span.since = part.upto_seq;
    }
    panic!("it does not end");
}

#[test]
fn more_than_is_kept_at_once_comes_in_order_whatever_the_parts() {
    let names = 3 * KEPT_BYTES_MAX / 65 + 1;
    let hub = busy_hub(names, 2);
    let (half, all) = (names as u64, 2 * names as u64);
    for bytes_max in [1, 200, 1 << 20] {
        let mut walks = Walks::default();
        let mut catch_up = |texts: &[&str], since, upto, mode| {
            catch_up(&mut walks, &hub, texts, Span { since, upto, mode }, bytes_max).0
        };
        let from_nothing = catch_up(&["/**"], 0, all, Mode::Latest);
        assert_eq!(from_nothing, (half + 1..=all).collect::<Vec<_>>());
        let resumed = catch_up(&["/t/*", "/**", "/t/3"], 1, all, Mode::All);
        assert_eq!(resumed, (2..=all).collect::<Vec<_>>());
        let bounded = catch_up(&["/t/*"], 5, half, Mode::All);
        assert_eq!(bounded, (6..=half).collect::<Vec<_>>());
        // More names than are looked at as changes.
        let many: Vec<String> = (0..20).map(|n| format!("/t/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let by_name = catch_up(&many, 1, all, Mode::All);
        let there = hub_has(&hub, &many);
        assert_eq!(by_name, there.into_iter().filter(|&seq| seq > 1).collect::<Vec<_>>());
    }
}

fn hub_has(hub: &Hub, topics: &[&str]) -> Vec<u64> {
    let span = Span { since: 0, upto: hub.seq(), mode: Mode::All };
    let mut found = Vec::new();
    for topic in topics {
        hub.missed(topic, span, usize::MAX, &mut found);
    }
    let mut seqs: Vec<u64> = found.iter().map(Event::seq).collect();
    seqs.sort_unstable();
    seqs
}

#[test]
fn readers_who_come_back_together_share_their_walks() {
    let hub = busy_hub(40, 1);
    let upto = hub.seq();
    let span = |since| Span { since, upto, mode: Mode::All };
    let mut walks = Walks::default();
    let (first, made) = catch_up(&mut walks, &hub, &["/t/*"], span(5), 1 << 20);
    assert_eq!(first, (6..=upto).collect::<Vec<_>>());
    for since in [5, 6, 9] {
        let (seqs, used) = catch_up(&mut walks, &hub, &["/t/*"], span(since), 1 << 20);
        assert_eq!(seqs, (since + 1..=upto).collect::<Vec<_>>());
        assert_eq!(used, made, "no other walk was made");
    }
    // Something else is looked for.
    let other_filter = catch_up(&mut walks, &hub, &["/**"], span(5), 1 << 20).1;
    let latest = Span { mode: Mode::Latest, ..span(5) };
    let other_mode = catch_up(&mut walks, &hub, &["/t/*"], latest, 1 << 20).1;
    let older = catch_up(&mut walks, &hub, &["/t/*"], span(2), 1 << 20).1;
    assert!([other_filter[0], other_mode[0], older[0]].iter().all(|id| !made.contains(id)));
}

/// A walk that keeps no more ends before the place of a reader that shares it.
#[test]
fn a_reader_ahead_of_a_walk_that_ends_early_makes_its_own() {
    let names = 3 * KEPT_BYTES_MAX / 65 + 1;
    let hub = busy_hub(names, 2);
    let last = 2 * names as u64;
    let mut walks = Walks::default();
    let filter = Filter::parse("/t/*").unwrap();
    let behind = Span { since: 1, upto: last, mode: Mode::All };
    let (first, _) = walks.walk(&hub, &[&filter], behind, None);
    assert_eq!(walks.part(first.unwrap(), behind, 1, &mut Vec::new()), None, "it is not over");
    let ahead = Span { since: last - 5, ..behind };
    let (seqs, ids) = catch_up(&mut walks, &hub, &["/t/*"], ahead, 1 << 20);
    assert!(seqs.into_iter().eq(last - 4..=last));
    assert_eq!(ids.first(), first.as_ref(), "they share it at first");
    // Whoever has just begun far behind does not hold it up again.
    let (mut known, mut shared) = (None, 0);
    for since in 2..100 {
        walks.tick(walks.now_ms + OVER_MS);
        walks.walk(&hub, &[&filter], Span { since, ..behind }, None);
        let (id, _) = walks.walk(&hub, &[&filter], ahead, known);
        shared += u32::from(id != known);
        known = id;
        if id.and_then(|id| walks.part(id, ahead, 1 << 20, &mut Vec::new())).is_some() {
            break;
        }
    }
    assert!(shared <= 2, "it has joined {shared} walks");
}

#[test]
fn a_gap_is_told_to_those_who_have_one() {
    let hub = hub();
    let first = publish(&hub, "/t/a");
    let last = (0..40).map(|_| publish(&hub, "/t/a")).last().unwrap();
    let kept: Vec<u64> = (last - 31..=last).collect();
    let mut walks = Walks::default();
    let span = |since| Span { since, upto: last, mode: Mode::All };
    let catch_up =
        |walks: &mut Walks, since| catch_up(walks, &hub, &["/t/*"], span(since), 1 << 20);
    let (seqs, made) = catch_up(&mut walks, first);
    assert_eq!(seqs, [&[0], kept.as_slice()].concat());
    let (seqs, used) = catch_up(&mut walks, last - 32);
    assert_eq!(seqs, kept, "it has seen what was lost");
    assert!(made.contains(&used[0]), "though the walk has found a gap");
}

#[test]
fn there_are_few_walks_at_a_time() {
    let hub = busy_hub(40, 1);
    let span = Span { since: 0, upto: hub.seq(), mode: Mode::Latest };
    let mut walks = Walks::default();
    let patterns: Vec<Vec<Filter>> =
        (0..=WALKS_MAX).map(|n| filters(&["/t/*", &format!("/x{n}/**")])).collect();
    let walk = |walks: &mut Walks, n: usize| {
        let filters: Vec<&Filter> = patterns[n].iter().collect();
        walks.walk(&hub, &filters, span, None).0
    };
    for n in 0..WALKS_MAX {
        assert!(walk(&mut walks, n).is_some());
    }
    assert_eq!(walk(&mut walks, WALKS_MAX), None, "there is no room for another");
    for _ in 0..40 {
        walk(&mut walks, 3);
    }
    assert_eq!(walk(&mut walks, WALKS_MAX), None, "the one that is over is in use");
    walks.tick(OVER_MS);
    walk(&mut walks, 0);
    assert!(walk(&mut walks, WALKS_MAX).is_some(), "it has made room");
    assert!(walks.held_bytes() <= (WALKS_MAX + 1) * (3 * KEPT_BYTES_MAX + 2_000));
    walks.tick(2 * IDLE_MS);
    assert!(walks.all.is_empty() && walks.held_bytes() == 0, "whose readers have gone");
}

#[test]
fn what_one_topic_has_too_much_of_is_left_for_another_walk() {
    let hub = hub();
    (0..20).for_each(|_| assert!(publish(&hub, "/t/0") > 0));
    let names: Vec<String> = (0..20).map(|n| format!("/t/{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let span = Span { since: 1, upto: 20, mode: Mode::All };
    let (seqs, ids) = catch_up(&mut Walks::default(), &hub, &names, span, usize::MAX);
    assert_eq!((seqs, ids.len()), ((2..=20).collect(), 3));
}

#[test]
fn what_is_lost_during_a_walk_is_told_of_behind_what_was_found() {
    let rules = vec![Rule { history: 10, ..Rule::default() }];
    let hub = Hub::new(Epoch::random(), rules, Limits::default());
    (0..10).for_each(|_| assert!(publish(&hub, "/t") > 0));
    let span = Span { since: 1, upto: 10, mode: Mode::All };
    let mut walk = Walk::new(&[&Filter::parse("/*").unwrap()], span);
    walk.step(&hub);
    (0..8).for_each(|_| assert!(publish(&hub, "/t") > 0));
    while !walk.is_over {
        walk.step(&hub);
    }
    let mut found = Vec::new();
    let part = walk.part(span, usize::MAX, &mut found);
    assert_eq!(found.iter().map(Event::seq).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!((part.upto_seq, part.lost_seq), (4, 0));
}

#[test]
fn whoever_has_too_many_names_is_told_so() {
    let hub = busy_hub(NAMES_MAX + STEPS_AT_ONCE, 1);
    let span = Span { since: 1, upto: hub.seq(), mode: Mode::All };
    let mut walk = Walk::new(&filters(&["/t/*"]).iter().collect::<Vec<_>>(), span);
    while !walk.is_over {
        walk.step(&hub);
    }
    let part = walk.part(span, usize::MAX, &mut Vec::new());
    assert_eq!(part, Part { upto_seq: span.upto, lost_seq: span.upto, gave_up: true });
}

#[test]
fn what_is_kept_of_one_topic_says_nothing_of_another_that_has_more() {
    let hub = hub();
    let large = KEPT_BYTES_MAX - 100;
    // Of /b not all is found at once; then there is more than is kept, and of that /c goes.
    let published = [("/b", 1), ("/b", large), ("/b", 1), ("/a", 1), ("/c", large)];
    let last = published.map(|(topic, bytes)| publish_bytes(&hub, topic, bytes))[4];
    let span = Span { since: 0, upto: last, mode: Mode::All };
    let seqs = catch_up(&mut Walks::default(), &hub, &["/c", "/a", "/b"], span, 1 << 20).0;
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>());
}

#[test]
fn what_was_found_in_a_life_that_is_over_is_nothing_to_those_who_come_behind_it() {
    let hub = busy_hub(5, 2);
    let mut walks = Walks::default();
    let span = |hub: &Hub| Span { since: 0, upto: hub.seq(), mode: Mode::Latest };
    let filters = filters(&["/t/*"]);
    let filters: Vec<&Filter> = filters.iter().collect();
    let parts = |walks: &mut Walks, hub: &Hub, mut known| loop {
        known = walks.walk(hub, &filters, span(hub), known).0;
        let mut found = Vec::new();
        if let Some(part) = walks.part(known.unwrap(), span(hub), usize::MAX, &mut found) {
            break (known, part.upto_seq, found.len());
        }
    };
    let (before, upto, found) = parts(&mut walks, &hub, None);
    assert_eq!((upto, found), (hub.seq(), 5));
    hub.adopt(hub.stage(Epoch::from_number(2), false)).unwrap();
    for known in [None, before] {
        let (_, upto, found) = parts(&mut walks, &hub, known);
        assert_eq!((upto, found), (hub.seq(), 0));
    }
}

/// The limit of what readers hold counts the messages that a walk keeps.
#[test]
fn messages_that_a_walk_keeps_count_as_held() {
    let (hub, mut walks) = (hub(), Walks::default());
    let seq = publish_bytes(&hub, "/a", 300);
    let filter = &filters(&["/a"])[0];
    let span = Span { since: 0, upto: seq, mode: Mode::All };
    assert!(walks.walk(&hub, &[filter], span, None).0.is_some());
    assert!(walks.held_bytes() >= filter.cost_bytes() + 300);
}

/// Messages are large or small: a step finds few large ones.
#[test]
fn a_step_finds_a_bounded_number_of_bytes() {
    let hub = hub();
    let last = [1; 5].map(|_| publish_bytes(&hub, "/t", 50_000))[4];
    let span = Span { since: 1, upto: last, mode: Mode::All };
    let mut walk = Walk::new(&[&Filter::parse("/t").unwrap()], span);
    assert!(walk.step(&hub) < STEPS_AT_ONCE * (NAME_COST + MESSAGE_COST));
}

/// Finding no room costs as well: every walk was compared.
#[test]
fn looking_for_a_walk_costs_what_is_compared() {
    let hub = busy_hub(5, 1);
    let span = Span { since: 0, upto: hub.seq(), mode: Mode::Latest };
    let names: Vec<String> = (0..1_000).map(|n| format!("/n/{n}")).collect();
    let names = filters(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let names: Vec<&Filter> = names.iter().collect();
    let mut walks = Walks::default();
    for n in 0..WALKS_MAX {
        walks.walk(&hub, &[&filters(&[&format!("/x{n}/**")])[0]], span, None);
    }
    let (id, cost) = walks.walk(&hub, &names, span, None);
    assert!(id.is_none() && cost >= 1_000 * 16, "{cost}");
}

/// While readers hold too much, a walk under way is kept for those that still ask for it.
#[test]
fn a_walk_that_nobody_asks_for_is_shed() {
    let hub = busy_hub(1_000, 1);
    let span = Span { since: 0, upto: hub.seq(), mode: Mode::Latest };
    let mut walks = Walks::default();
    let (_, cost) = walks.walk(&hub, &[&filters(&["/t/*"])[0]], span, None);
    assert!(cost < 10 * STEPS_AT_ONCE * NAME_COST, "a step is short: {cost}");
    for (now_ms, left) in [(50, 1), (150, 0)] {
        walks.tick(now_ms);
        walks.shed();
        assert_eq!(walks.all.len(), left, "after {now_ms} ms");
    }
}

/// A walk has its time from when a reader last asked for it.
#[test]
fn a_walk_is_given_up_after_a_second() {
    let hub = busy_hub(5, 1);
    let span = Span { since: 0, upto: hub.seq(), mode: Mode::Latest };
    let mut walks = Walks::default();
    walks.walk(&hub, &[&filters(&["/t/*"])[0]], span, None);
    for (now_ms, left) in [(900, 1), (1_100, 0)] {
        walks.tick(now_ms);
        assert_eq!(walks.all.len(), left, "after {now_ms} ms");
    }
}
