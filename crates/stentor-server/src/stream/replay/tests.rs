//! Replays by themselves: whatever the slices and chunks, everything once and in order.

use super::*;
use stentor_hub::{Draft, Epoch, Limits, Mode, Precondition};

fn hub() -> Hub {
    Hub::new(Epoch::parse("0badcafe").unwrap(), Vec::new(), Limits::default())
}

fn publish(hub: &Hub, topic: &str) -> u64 {
    hub.publish(topic, Draft::new(*b"x"), Precondition::None, 0).unwrap().id.seq
}

fn replay(filters: &[&str], since: u64, upto: u64, mode: Mode) -> Replay {
    let filters = filters.iter().map(|text| Filter::parse(text).unwrap()).collect();
    Replay::new(filters, Span { since, upto, mode }, since > 0)
}

/// Plays it to its end, sending `step` messages at a time: numbers and gaps, which are 0.
fn play(hub: &Hub, replay: &mut Replay, step: usize) -> Vec<u64> {
    let mut sent = Vec::new();
    for _ in 0..10_000 {
        if !replay.is_collected() {
            assert!(replay.collect(hub) <= NAMES_PER_SLICE);
            continue;
        }
        assert!(replay.rest().len() <= KEPT_MAX);
        if replay.take_gap().is_some() {
            sent.push(0);
        }
        let next: Vec<u64> = replay.rest().iter().take(step).map(News::seq).collect();
        if next.is_empty() && replay.is_over() {
            return sent;
        }
        replay.advance(next.len());
        sent.extend(next);
    }
    panic!("it does not end: {replay:?}");
}

#[test]
fn more_than_is_kept_at_once_comes_in_order_whatever_the_steps() {
    let hub = hub();
    let names = 3 * KEPT_MAX + 1;
    for round in 0..2 {
        for n in 0..names {
            // The order of names is not that of numbers.
            publish(&hub, &format!("/t/{}", (n * 7 + round) % names));
        }
    }
    let (half, all) = (names as u64, 2 * names as u64);
    for step in [1, 3, KEPT_MAX] {
        let mut from_nothing = replay(&["/**"], 0, all, Mode::Latest);
        assert_eq!(play(&hub, &mut from_nothing, step), (half + 1..=all).collect::<Vec<_>>());
        let mut resumed = replay(&["/t/*", "/**", "/t/3"], 1, all, Mode::All);
        assert_eq!(play(&hub, &mut resumed, step), (2..=all).collect::<Vec<_>>());
        let mut bounded = replay(&["/t/*"], 5, half, Mode::All);
        assert_eq!(play(&hub, &mut bounded, step), (6..=half).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_forgotten_is_collected_again_from_where_it_was() {
    let hub = hub();
    let names = 2 * KEPT_MAX as u64;
    for n in 0..names {
        publish(&hub, &format!("/t/{n}"));
    }
    let mut replay = replay(&["/**"], 1, names, Mode::All);
    while !replay.is_collected() {
        replay.collect(&hub);
    }
    replay.advance(3);
    replay.forget();
    assert_eq!((replay.since_seq(), replay.is_collected()), (4, false));
    assert_eq!(play(&hub, &mut replay, 2), (5..=names).collect::<Vec<_>>());
}

#[test]
fn what_is_lost_is_told_to_those_who_resume_and_to_nobody_else() {
    let hub = hub();
    let first = publish(&hub, "/a");
    let last = (0..40).map(|_| publish(&hub, "/a")).last().unwrap();
    let kept: Vec<u64> = (last - 31..=last).collect();
    let mut resumed = replay(&["/a"], first, last, Mode::All);
    // What is kept takes several chunks; the gap is before the first.
    assert_eq!(play(&hub, &mut resumed, 5), [&[0], kept.as_slice()].concat());
    let mut latest = replay(&["/a"], first, last, Mode::Latest);
    assert_eq!(play(&hub, &mut latest, 5), [last]);
    let mut new = replay(&["/a"], 0, last, Mode::Latest);
    assert_eq!(play(&hub, &mut new, 5), [last]);
}

#[test]
fn deletions_are_for_those_who_knew_the_topic() {
    let hub = hub();
    let first = publish(&hub, "/a");
    publish(&hub, "/b");
    let deletion = hub.delete("/a", Precondition::None, 0).unwrap().seq();
    let mut resumed = replay(&["/*"], first, deletion, Mode::All);
    assert_eq!(play(&hub, &mut resumed, 1), [2, deletion]);
    let mut new = replay(&["/*"], 0, deletion, Mode::Latest);
    assert_eq!(play(&hub, &mut new, 1), [2]);
}
