//! Hubs that follow another one, whatever becomes of that, and what their readers find.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;

use stentor_test::{Rng, seeds};

use super::*;
use crate::hub::snapshot::tests::{LIMITS, Log, entry, snapshot};
use crate::hub::tests::name;
use crate::{
    Draft, Event, Filter, Limits, Mode, Pattern, Precondition, Rule, Share, Snapshot, Span,
    Subscriber, Unwritable, decode_entry, with_hook, with_hook_inside,
};

fn epoch(number: u32) -> Epoch {
    Epoch::from_number(number)
}

/// A hub whose first rule keeps so many messages of a topic.
fn hub_of(number: u32, history: u32) -> Hub {
    let rule = Rule { history, ..Rule::default() };
    Hub::new(epoch(number), vec![rule], Limits::default())
}

fn put(hub: &Hub, topic: &str) -> Id {
    hub.publish(name(topic), Draft::new(*b"x"), Precondition::None, 7).unwrap().id
}

fn delete(hub: &Hub, topic: &str) {
    hub.delete(name(topic), Precondition::None, 7).unwrap();
}

/// What a hub is filled with that takes all there is of another.
fn staged(hub: &Hub, leader: &Hub, anew: bool) -> Hub {
    let staged = hub.stage(leader.epoch(), anew);
    fill(&staged, &snapshot(leader));
    staged
}

fn fill(hub: &Hub, snapshot: &[u8]) {
    let mut restore = hub.restore();
    assert_eq!(restore.read(snapshot), Ok(snapshot.len()));
    restore.finish().unwrap();
}

fn adopt(hub: &Hub, leader: &Hub) -> Result<Adopted, NotAdopted> {
    let adopted = hub.adopt(staged(hub, leader, false));
    hub.check();
    adopted
}

/// What there is, under the ids of outside.
fn seen(hub: &Hub) -> Vec<String> {
    let see = |event: Event| {
        let message = &event.message;
        let state = (message.is_deletion(), message.is_value(), message.data(), message.event());
        let last_seq = message.life().id(message.last_seq()).seq;
        format!("{} {} {state:?} {last_seq}", message.id(), event.topic())
    };
    let rules =
        hub.sequence().rules.all().iter().map(|terms| terms.rule.clone()).collect::<Vec<_>>();
    let topics = hub.topics("", None, 1000).into_iter().map(|topic| format!("{topic:?}"));
    let kept = hub.kept().into_iter().map(see);
    kept.chain(topics)
        .chain([format!("{rules:?} {:?} {}", hub.counts(), hub.id(hub.seq()))])
        .collect()
}

fn missed(hub: &Hub, span: Span) -> (Vec<u64>, u64) {
    let mut found = Vec::new();
    let share = Share { steps: usize::MAX, bytes: usize::MAX };
    let page = hub.missed_by_pattern(&Pattern::any(), span, None, share, &mut found);
    (found.iter().map(Event::seq).collect(), page.missed.lost_seq)
}

/// Counts how often all was replaced.
#[derive(Default)]
struct Replacements(Mutex<Vec<u64>>);

impl Subscriber for Replacements {
    fn notify(&self, _: &Event) {}

    fn replaced(&self, seq: u64) {
        self.0.lock().unwrap().push(seq);
    }
}

#[test]
fn entries_are_taken_under_the_ids_that_they_have() {
    let (leader, hub) = (hub_of(1, 4), hub_of(2, 1));
    let log = Log::of(&leader);
    assert_eq!(adopt(&hub, &leader), Ok(Adopted::default()));
    assert_eq!(hub.epoch(), epoch(1));
    put(&leader, "/a");
    delete(&leader, "/a");
    put(&leader, "/a");
    for bytes in log.entries(0).iter().chain(&log.entries(1)) {
        let (entry, place) = decode_entry(bytes).unwrap();
        hub.follow(entry, place).unwrap();
    }
    assert_eq!(seen(&hub), seen(&leader));
    let entry = leader.admit(Op::Delete(name("/a")), Precondition::None, 1).unwrap();
    assert!(hub.follow(entry, Place::Next).is_err(), "nobody has applied it");
    let entry = leader.admit(Op::Delete(name("/a")), Precondition::None, 1).unwrap();
    let past = Past { number: u64::MAX, shares_second: false, last_seq: 0 };
    assert!(hub.follow(entry, Place::Was(past)).is_err());
    hub.follow_upto(2);
    assert_eq!(hub.seq(), 3, "never back");
    hub.follow_upto(9);
    assert_eq!(hub.id(hub.seq()).to_string(), "00000001-9");
    hub.check();
}

#[test]
fn an_adopted_hub_takes_the_place_of_all_topics() {
    let (leader, hub) = (hub_of(1, 2), hub_of(2, 1));
    let replacements = Arc::new(Replacements::default());
    hub.add_subscriber(replacements.clone());
    for topic in ["/same", "/more", "/long", "/gone"] {
        put(&leader, topic);
    }
    let of_topics = |topics| Ok(Adopted { topics, is_new_life: false });
    assert_eq!(adopt(&hub, &leader), of_topics(4));
    let (same, since) = (hub.value("/same").unwrap(), hub.seq());
    put(&leader, "/more");
    for _ in 0..3 {
        put(&leader, "/long");
    }
    delete(&leader, "/gone");
    put(&leader, "/new");
    assert_eq!(adopt(&hub, &leader), of_topics(4));
    assert_eq!(seen(&hub), seen(&leader));
    // A connection that is still sent the former message holds memory of its own.
    assert!(same.is_dropped() && hub.detached_bytes() == same.stored_bytes());
    drop(same);
    assert_eq!(hub.detached_bytes(), 0);
    let lost = |topic| {
        let mut found = Vec::new();
        let span = Span { since, upto: hub.seq(), mode: Mode::All };
        let lost_seq = hub.missed(topic, span, usize::MAX, &mut found).lost_seq;
        (found.len(), lost_seq > since)
    };
    assert_eq!(["/same", "/more", "/new", "/gone"].map(lost), [0, 1, 1, 1].map(|n| (n, false)));
    assert_eq!(lost("/long"), (2, true), "what is kept does not reach back");
    assert_eq!(*replacements.0.lock().unwrap(), [4, 10]);
    // It has not moved on.
    assert_eq!(adopt(&hub, &leader), of_topics(4));
}

/// A reader that has looked up a topic before the swap finds what the topic had then: if it found
/// nothing, it would take that for a newer value that it will be told of.
#[test]
fn a_replaced_topic_keeps_messages_for_its_readers() {
    let (leader, hub) = (hub_of(1, 2), hub_of(2, 1));
    put(&leader, "/a");
    assert!(adopt(&hub, &leader).is_ok());
    let (topic, since) = (hub.topic("/a").unwrap(), 0);
    put(&leader, "/b");
    assert!(adopt(&hub, &leader).is_ok());
    let mut found = Vec::new();
    let missed = topic.missed(Span { since, upto: 1, mode: Mode::Latest }, 1, &mut found);
    assert_eq!((found.len(), missed.lost_seq), (1, 0));
    // What was found before is no value any more.
    let message = &found[0].message;
    assert!(!message.is_value() && hub.detached_bytes() == message.stored_bytes());
    // The snapshot has it as the value, too, until there is another.
    assert!(hub.is_value(&found[0]));
    put(&leader, "/a");
    assert!(adopt(&hub, &leader).is_ok());
    assert!(!hub.is_value(&found[0]));
    drop((topic, found));
    assert_eq!(hub.detached_bytes(), 0);
}

#[test]
fn what_stays_is_held_to_the_rules_that_there_are_now() {
    let (leader, hub) = (hub_of(1, 3), hub_of(2, 1));
    for _ in 0..3 {
        put(&leader, "/a");
    }
    adopt(&hub, &leader).unwrap();
    assert_eq!(hub.counts().messages_kept, 3);
    leader.set_rules(vec![Rule { history: 1, ..Rule::default() }]);
    adopt(&hub, &leader).unwrap();
    assert_eq!(hub.counts().messages_kept, 1);
    assert_eq!(seen(&hub), seen(&leader));
    // By the new rule a reader wants the value alone.
    let of_reader = Span { since: 1, upto: 3, mode: Mode::ByRule };
    assert_eq!(missed(&hub, of_reader), (vec![3], 0));
}

/// The leader's history was short for a while. The follower heard of neither change.
#[test]
fn a_follower_drops_what_its_leader_has_lost() {
    let (leader, hub) = (hub_of(1, 3), hub_of(2, 1));
    for topic in ["/a", "/a", "/b", "/b", "/b"] {
        put(&leader, topic);
    }
    adopt(&hub, &leader).unwrap();
    for history in [2, 3] {
        leader.set_rules(vec![Rule { history, ..Rule::default() }]);
    }
    adopt(&hub, &leader).unwrap();
    assert_eq!(seen(&hub), seen(&leader));
    assert_eq!(hub.counts().messages_kept, 4);
    let of_b = Span { since: 2, upto: 5, mode: Mode::All };
    assert_eq!(missed(&hub, of_b), (vec![4, 5], 3), "the reader learns of the loss");
}

#[test]
fn a_sequence_that_began_anew_has_numbers_above_those_of_before() {
    let (first, second, hub) = (hub_of(1, 8), hub_of(2, 8), hub_of(3, 8));
    for _ in 0..5 {
        put(&first, "/a");
    }
    put(&first, "/only-there");
    adopt(&hub, &first).unwrap();
    let (before, id_before) = (hub.seq(), hub.id(hub.seq()));
    assert_eq!(put(&second, "/a").to_string(), "00000002-1");
    let adopted = adopt(&hub, &second).unwrap();
    assert_eq!(adopted, Adopted { topics: 1, is_new_life: true });
    assert_eq!(seen(&hub), seen(&second));
    assert_eq!(hub.value("/a").unwrap().id().to_string(), "00000002-1");
    assert!(hub.is_of_past_life(before) && !hub.is_of_past_life(hub.seq()));
    assert_eq!((hub.id(before), hub.number(id_before)), (id_before, None));
    assert_eq!(hub.number(hub.id(hub.seq())), Some(hub.seq()));
    assert_eq!(snapshot(&hub)[..33], snapshot(&second)[..33], "it is written as it is outside");
    for number in 3..20 {
        adopt(&hub, &hub_of(number, 1)).unwrap();
    }
    assert_eq!(hub.lives.load().len(), LIVES_MAX);
    assert!(hub.is_of_past_life(before));
}

#[test]
fn who_lags_is_not_adopted_and_what_was_taken_back_is_as_another_life() {
    let (leader, lagging, hub) = (hub_of(1, 8), hub_of(1, 8), hub_of(2, 8));
    for topic in ["/a", "/a", "/b"] {
        put(&leader, topic);
    }
    put(&lagging, "/a");
    adopt(&hub, &leader).unwrap();
    let before = seen(&hub);
    assert_eq!(adopt(&hub, &lagging), Err(NotAdopted::Behind));
    // It lost the second value of /a in a crash, and goes on behind all numbers that it gave out.
    lagging.continue_after(10, vec![2..=10]);
    put(&lagging, "/b");
    assert_eq!(adopt(&hub, &lagging), Err(NotAdopted::Contradicts));
    assert_eq!(seen(&hub), before);
    let (of_cursor, cursor) = (hub.id(hub.seq()), hub.seq());
    let staged = staged(&hub, &lagging, true);
    staged.follow_rolled_back(&[2..=10]);
    let adopted = hub.adopt(staged).unwrap();
    hub.check();
    assert!(adopted.is_new_life && hub.is_of_past_life(cursor));
    assert_eq!(seen(&hub), seen(&lagging));
    let number = hub.number(of_cursor).unwrap();
    assert!(hub.was_rolled_back(number) && !hub.was_rolled_back(hub.seq()));
}

#[test]
fn a_first_message_that_was_taken_back_contradicts() {
    let (leader, lagging, hub) = (hub_of(1, 8), hub_of(1, 8), hub_of(2, 8));
    put(&leader, "/a");
    adopt(&hub, &leader).unwrap();
    lagging.continue_after(10, vec![1..=10]);
    put(&lagging, "/a");
    assert_eq!(adopt(&hub, &lagging), Err(NotAdopted::Contradicts));
}

#[test]
fn a_deletion_that_was_taken_back_is_a_contradiction() {
    let (leader, hub) = (hub_of(1, 8), hub_of(2, 8));
    put(&leader, "/a");
    let copy = staged(&hub_of(3, 8), &leader, false);
    delete(&leader, "/a");
    adopt(&hub, &leader).unwrap();
    copy.continue_after(10, vec![2..=10]);
    put(&copy, "/b");
    assert_eq!(adopt(&hub, &copy), Err(NotAdopted::Contradicts));
    // One that is undone by a message is none.
    put(&leader, "/a");
    adopt(&hub, &leader).unwrap();
}

#[test]
fn a_snapshot_that_is_overtaken_is_not_written_to_its_end() {
    let (leader, hub) = (hub_of(1, 8), hub_of(2, 8));
    put(&leader, "/a");
    adopt(&hub, &leader).unwrap();
    let mut bytes = Vec::new();
    let mut snapshot = Snapshot::begin(&hub, &mut bytes);
    put(&leader, "/a");
    adopt(&hub, &leader).unwrap();
    while let Ok(is_more) = snapshot.write_slice(&hub, &mut bytes) {
        assert!(is_more, "it must not end");
    }
    let result = snapshot.write_slice(&hub, &mut bytes);
    assert_eq!(result, Err(Unwritable::Replaced));
}

/// The rules come twice: with the topics that the snapshot had when they were in force already,
/// and behind it.
#[test]
fn rules_that_change_while_a_snapshot_is_written_are_the_same_ones() {
    let (mut leader, hub) = (Leader::new(1), Hub::new(epoch(1), vec![], LIMITS));
    put(&leader.hub, "/a");
    leader.taken = leader.log.len();
    let mut bytes = Vec::new();
    let mut writing = Snapshot::begin(&leader.hub, &mut bytes);
    leader.hub.set_rules(vec![Rule { history: 5, ..Rule::default() }]);
    put(&leader.hub, "/a");
    while writing.write_slice(&leader.hub, &mut bytes).unwrap() {}
    fill(&hub, &bytes);
    leader.send(&hub);
    assert!(snapshot(&hub) == snapshot(&leader.hub));
}

/// A leader as a follower's connection to it sees it.
struct Leader {
    hub: Hub,
    log: Arc<Log>,
    /// How much of the log the follower has.
    taken: usize,
}

impl Leader {
    fn new(number: u32) -> Leader {
        let hub = Hub::new(epoch(number), vec![], LIMITS);
        Leader { log: Log::of(&hub), hub, taken: 0 }
    }

    fn step(&self, rng: &mut Rng) {
        let _ = self.hub.apply(entry(rng, &self.hub), Place::Next);
    }

    fn send(&mut self, hub: &Hub) {
        for bytes in self.log.entries(self.taken) {
            let (entry, place) = decode_entry(&bytes).unwrap();
            hub.follow(entry, place).unwrap();
        }
        self.taken = self.log.len();
        hub.check();
    }
}

/// Whatever becomes of the leader, the follower is like it once it has caught up, and whoever read
/// of it finds what came since, or that something is lost.
#[test]
fn a_follower_becomes_as_its_leader_is_and_no_reader_misses_anything_in_silence() {
    seeds::run("snapshots", 80, |seed| {
        let mut rng = Rng::new(seed);
        let (mut leader, hub) = (Leader::new(1), Hub::new(epoch(0), vec![], LIMITS));
        let mut cursors: Vec<u64> = Vec::new();
        for round in 2..10 {
            for _ in 0..rng.below(12) {
                leader.step(&mut rng);
                if rng.below(3) == 0 && leader.taken > 0 {
                    leader.send(&hub);
                    cursors.push(hub.seq());
                }
            }
            if rng.below(4) == 0 {
                leader = Leader::new(round);
                continue;
            }
            if rng.below(2) == 0 || leader.taken == 0 {
                let from = leader.log.len() - rng.below(leader.log.len() + 1);
                adopt(&hub, &leader.hub).unwrap();
                leader.taken = from;
            }
            leader.send(&hub);
            assert_eq!(seen(&hub), seen(&leader.hub), "{seed}");
            let all = leader.log.entries(0);
            for &since in cursors.iter().filter(|&&since| !hub.is_of_past_life(since) && since > 0)
            {
                let (found, lost_seq) =
                    missed(&hub, Span { since, upto: hub.seq(), mode: Mode::All });
                for bytes in &all {
                    let (entry, place) = decode_entry(bytes).unwrap();
                    let number = hub.life().number(place.past().unwrap().number).unwrap();
                    let is_told = number <= since || number <= lost_seq || found.contains(&number);
                    assert!(is_told || entry.topic().is_none(), "{seed}: {number} {found:?}");
                }
            }
            cursors.push(hub.seq());
        }
    });
}

/// What is done to topics: names with a minus are deleted.
type Changes = &'static [&'static str];

fn change(hub: &Hub, changes: Changes) {
    for change in changes {
        match change.strip_prefix('-') {
            Some(topic) => delete(hub, topic),
            None => drop(put(hub, change)),
        }
    }
}

/// How something is looked for: by name, by pattern a name at a time, by the latest changes.
type Look = fn(&Hub, Span, &mut Vec<Event>) -> u64;

const LOOKS: [Look; 3] = [
    |hub, span, out| hub.missed("/t/a", span, usize::MAX, out).lost_seq,
    |hub, span, out| {
        let (pattern, mut after, mut lost_seq) = (Pattern::parse("/t/*").unwrap(), None, 0);
        loop {
            let share = Share { steps: 1, bytes: usize::MAX };
            let last: Option<String> = after;
            let page = hub.missed_by_pattern(&pattern, span, last.as_deref(), share, out);
            lost_seq = lost_seq.max(page.missed.lost_seq);
            after = page.next;
            if after.is_none() {
                return lost_seq;
            }
        }
    },
    |hub, span, out| {
        let filter = Filter::parse("/t/a").unwrap();
        let share = Share { steps: usize::MAX, bytes: usize::MAX };
        let missed = hub.missed_lately(&[&filter], span, share, out);
        // Whoever finds that it is forgotten looks at the names, or again from where it was.
        match missed {
            Some(missed) if missed.upto >= span.upto => missed.lost_seq,
            Some(missed) => {
                missed.lost_seq.max(LOOKS[0](hub, Span { since: missed.upto, ..span }, out))
            }
            None => LOOKS[0](hub, span, out),
        }
    },
];

#[test]
fn nothing_slips_away_while_all_is_replaced() {
    let before: [Changes; 4] = [
        &["/t/a", "/t/a", "/t/a", "-/t/a"],
        &["/t/a", "/t/a", "/t/a"],
        &["/t/a", "-/t/a", "/t/a", "/t/b"],
        &["/t/b", "/t/a", "/t/b", "-/t/a"],
    ];
    let meanwhile: [Changes; 4] =
        [&["/t/a"], &["/t/b", "/t/b"], &["/t/a", "/t/a", "-/t/a"], &["/t/c", "/t/a", "/t/a"]];
    let mut runs = 0;
    for before in before {
        for (meanwhile, look) in meanwhile.iter().flat_map(|it| LOOKS.map(|look| (it, look))) {
            for nth in 0.. {
                let (leader, hub) = (hub_of(1, 2), Arc::new(hub_of(2, 2)));
                change(&leader, before);
                adopt(&hub, &leader).unwrap();
                change(&leader, meanwhile);
                let span = Span { since: 1, upto: hub.seq(), mode: Mode::All };
                let points = Rc::new(Cell::new(0));
                let (own, of_hook) = (Arc::clone(&hub), Rc::clone(&points));
                let at_nth = move || {
                    if of_hook.replace(of_hook.get() + 1) == nth {
                        adopt(&own, &leader).unwrap();
                    }
                };
                let mut found = Vec::new();
                let lost_seq = with_hook(at_nth, || look(&hub, span, &mut found));
                for (seq, changed) in (1..).zip(before).skip(1) {
                    let is_found = found.iter().any(|event| event.seq() == seq);
                    let told = format!("{before:?}, {meanwhile:?} at {nth}: {seq} of {found:?}");
                    assert!(!changed.ends_with("/a") || is_found || lost_seq >= seq, "{told}");
                }
                runs += 1;
                if points.get() <= nth {
                    break;
                }
            }
        }
    }
    assert!(runs > 100, "{runs}");
}

/// The leader sends its follower fewer topics than before, and no deletion of the others.
#[test]
fn a_walk_reports_topics_that_vanish() {
    let (leader, hub) = (hub_of(1, 2), hub_of(2, 2));
    change(&leader, &["/t/a", "/t/b"]);
    adopt(&hub, &leader).unwrap();
    let span = Span { since: 1, upto: 2, mode: Mode::All };
    let (pattern, mut found) = (Pattern::any(), Vec::new());
    let mut walk = |after| {
        let share = Share { steps: 1, bytes: usize::MAX };
        hub.missed_by_pattern(&pattern, span, after, share, &mut found)
    };
    assert_eq!(walk(None).next.as_deref(), Some("/t/a"));
    put(&leader, "/t/a");
    let (mut bytes, staged) = (Vec::new(), hub.stage(leader.epoch(), false));
    let filters = [Filter::parse("/t/a").unwrap()].into();
    let mut writing = Snapshot::begin_of(&leader, filters, &mut bytes);
    while writing.write_slice(&leader, &mut bytes).unwrap() {}
    fill(&staged, &bytes);
    hub.adopt(staged).unwrap();
    hub.check();
    assert_eq!(walk(Some("/t/a")).missed.lost_seq, 3);
    assert!(found.is_empty(), "the message of /t/b is gone: {found:?}");
}

/// Who looks at a topic while all is replaced finds it as it was, or as it becomes.
#[test]
fn a_topic_is_replaced_at_once() {
    let (leader, hub) = (hub_of(1, 2), Arc::new(hub_of(2, 2)));
    change(&leader, &["/t/a", "/t/b", "/t/b"]);
    adopt(&hub, &leader).unwrap();
    change(&leader, &["/t/a", "/t/b", "/t/b", "/t/0", "/t/c"]);
    let looks = Rc::new(Cell::new(0));
    let (own, of_hook) = (Arc::clone(&hub), Rc::clone(&looks));
    let look = move || {
        for (topic, before) in [("/t/a", 1), ("/t/b", 3)] {
            let mut found = Vec::new();
            let span = Span { since: before - 1, upto: 3, mode: Mode::All };
            let missed = own.missed(topic, span, usize::MAX, &mut found);
            assert!(found.iter().any(|event| event.seq() == before) || missed.lost_seq >= before);
            assert!(own.value(topic).is_some());
        }
        of_hook.set(of_hook.get() + 1);
    };
    with_hook_inside(look, || adopt(&hub, &leader).unwrap());
    assert!(looks.get() >= 4, "{}", looks.get());
    assert_eq!(seen(&hub), seen(&leader));
}

/// What came behind a snapshot's beginning is known where a topic was written later.
#[test]
fn a_later_life_is_filled_as_the_first() {
    let (first, second, hub) = (hub_of(1, 8), hub_of(2, 8), hub_of(3, 8));
    put(&first, "/a");
    adopt(&hub, &first).unwrap();
    let log = Log::of(&second);
    put(&second, "/a");
    put(&second, "/a");
    let staged = staged(&hub, &second, false);
    for bytes in log.entries(0) {
        let (entry, place) = decode_entry(&bytes).unwrap();
        assert!(matches!(staged.follow(entry, place), Ok(Applied::Known)));
    }
    hub.adopt(staged).unwrap();
    hub.check();
    assert_eq!(seen(&hub), seen(&second));
}

#[test]
fn evictions_from_an_adopted_snapshot_are_counted() {
    let (leader, hub) = (hub_of(1, 3), hub_of(2, 3));
    for _ in 0..3 {
        put(&leader, "/a");
    }
    let staged = staged(&hub, &leader, false);
    assert_eq!(staged.trim_history_to(0), 2);
    hub.adopt(staged).unwrap();
    assert_eq!(hub.stored().evicted_total, 2);
}
