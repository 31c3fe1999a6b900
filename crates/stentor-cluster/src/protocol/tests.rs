//! What a node does, one thing at a time.

mod epochs;
mod loss;

use super::*;
use crate::codec::{Again, Checksum, Growing, Of, entries};
use crate::lists::{lists_for_seeds, lists_of, rules_of, with_lists};
use crate::seeds::{newest, next_late};
use crate::waiting::PATIENCE_MS;
use std::sync::mpsc::{self, Receiver};
use stentor_hub::{Draft, Entry, Limits, Op, Pattern, Place, Rule, decode_entry, encode_entry};
use stentor_order::{CommitError, Outcome, ReturnAddress};
use stentor_wire::target::TopicName;

struct Alone {
    node: ClusterNode,
    intake: Arc<ClusterIntake>,
    epoch: Epoch,
    /// The last message of the log.
    last: u64,
}

const BROKER: u64 = 5;

fn looked(last: u64, life: Option<(u64, Vec<u8>, bool)>) -> Looked {
    let life_last = life.as_ref().map_or(0, |(seq, ..)| *seq);
    Looked { broker: BROKER, unix_ms: 1, first: 1, last, life, life_last, at: None, next: None }
}

/// The record that begins an epoch with no values.
fn new_epoch() -> EpochRecord {
    EpochRecord {
        before: None,
        has_seed: false,
        broker: BROKER,
        since_ms: 1,
        cluster: 1,
        again: None,
    }
}

/// A node that has not heard of any log.
fn new_node(intake: &Arc<ClusterIntake>) -> ClusterNode {
    let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
    hub.begin_following();
    ClusterNode::new(hub, Arc::clone(intake), 7, Box::new(|_| {}))
}

/// A node that begins an epoch in an empty log, and the token of the epoch record.
fn beginning_node() -> (ClusterNode, u64) {
    let mut node = new_node(&Arc::new(ClusterIntake::new()));
    node.handle_connected(0);
    let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
    node.handle_looked(token, &looked(0, None), 0);
    let Some(Action::Append { to: LogSubject::Life, token, .. }) = node.poll() else {
        panic!("it begins an epoch")
    };
    (node, token)
}

impl Alone {
    /// A node that has read the beginning of a life, and may publish.
    fn open() -> Alone {
        let intake = Arc::new(ClusterIntake::new());
        let mut node = new_node(&intake);
        let epoch = Epoch::from_number(2);
        let turn = new_epoch();
        let turn = turn.encode((epoch, 9, 0));
        node.handle_connected(0);
        let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
        node.handle_looked(token, &looked(1, Some((1, turn.clone(), false))), 0);
        assert_eq!(node.poll(), Some(Action::Read { from: 1 }));
        node.handle_message(1, &turn, 0);
        assert!(node.is_open());
        Alone { node, intake, epoch, last: 1 }
    }

    fn publish(&self, topic: &str, bytes: usize) -> Receiver<Outcome> {
        let (sender, outcome) = mpsc::channel();
        let put = put(topic, bytes);
        self.intake.put(&Entry::past(put, 1), ReturnAddress::Thread(sender)).unwrap();
        outcome
    }

    fn appends(&mut self) -> Vec<(Arc<[u8]>, u64)> {
        let mut appends = Vec::new();
        while let Some(action) = self.node.poll() {
            if let Action::Append { payload, token, .. } = action {
                appends.push((payload, token));
            }
        }
        appends
    }

    fn read(&mut self, bytes: &[u8]) {
        self.last += 1;
        self.node.handle_message(self.last, bytes, 0);
    }
}

fn put(topic: &str, bytes: usize) -> Op<'_> {
    Op::Put(TopicName::parse(topic).unwrap(), Draft::new(vec![b'x'; bytes]))
}

fn encoded(op: Op<'_>) -> Growing {
    let mut growing = Growing::new();
    growing.push(|out| encode_entry(&Entry::past(op, 1), Place::Next, out));
    growing
}

#[test]
fn one_look_is_under_way_at_a_time_and_another_follows_what_it_was_asked_for() {
    let mut alone = Alone::open();
    let node = &mut alone.node;
    node.handle_time(LOOK_MS);
    let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks every second") };
    node.handle_time(10 * LOOK_MS);
    assert_eq!(node.poll(), None, "the log has not answered");
    // Something is missing: what is under way says nothing of that.
    node.handle_message(9, b"", 10 * LOOK_MS);
    assert_eq!(node.poll(), None);
    node.handle_looked(token, &looked(1, None), 10 * LOOK_MS);
    let Some(Action::Look { token: again, .. }) = node.poll() else { panic!("it looks again") };
    assert_ne!(again, token);
    // Whoever is connected anew asks anew, and hears no answer to what was asked before.
    node.handle_lost();
    node.handle_connected(10 * LOOK_MS);
    assert!(matches!(node.poll(), Some(Action::Look { .. })));
    node.handle_looked(again, &looked(1, None), 10 * LOOK_MS);
    assert!(node.not_ready() == Some(NotReady::Inspecting) && node.look.pending.is_some());
}

#[test]
fn whoever_waits_is_told_when_nobody_goes_on() {
    let mut alone = Alone::open();
    let on_its_way = alone.publish("/a", 1);
    alone.node.handle_time(0);
    assert_eq!(alone.appends().len(), 1);
    let waits = alone.publish("/b", 1);
    alone.node.end();
    assert_eq!(on_its_way.try_recv().unwrap().unwrap_err(), CommitError::Failed);
    assert_eq!(
        waits.try_recv().unwrap().unwrap_err(),
        CommitError::NotReady(NotReady::Disconnected)
    );
    assert_eq!(alone.intake.bytes(), 0);
}

#[test]
fn what_waits_behind_a_slow_log_is_given_up_after_seconds() {
    let mut alone = Alone::open();
    let first = alone.publish("/a", 1);
    alone.node.handle_time(1_000);
    let waits = alone.publish("/b", 1);
    alone.node.handle_time(1_500);
    alone.node.handle_time(5_999);
    assert!(first.try_recv().is_err() && waits.try_recv().is_err());
    alone.node.handle_time(6_499);
    assert_eq!(first.try_recv().unwrap().unwrap_err(), CommitError::Failed);
    alone.node.handle_time(7_000);
    // It was taken out meanwhile, as the one that goes next.
    assert!(waits.try_recv().is_err());
    let late: Vec<_> = (0..3).map(|_| alone.publish("/c", 1)).collect();
    alone.node.handle_time(7_300);
    alone.node.handle_time(12_800);
    for outcome in &late {
        assert_eq!(outcome.try_recv().unwrap().unwrap_err(), CommitError::BrokerBehind);
    }
    assert_eq!(waits.try_recv().unwrap().unwrap_err(), CommitError::Failed);
    assert_eq!(alone.intake.bytes(), 0);
    // What is in the log, and is not brought from there.
    let mut alone = Alone::open();
    let stored = alone.publish("/a", 1);
    alone.node.handle_time(0);
    let (_, token) = alone.appends().pop().unwrap();
    alone.node.handle_appended(token, Appended::At(2), 0);
    alone.node.handle_time(4_999);
    assert!(stored.try_recv().is_err());
    alone.node.handle_time(5_000);
    assert_eq!(stored.try_recv().unwrap().unwrap_err(), CommitError::Failed);
}

#[test]
fn a_batch_and_its_account_have_bounds() {
    let alone = Alone::open();
    alone.intake.set_payload_max(usize::MAX);
    let (sender, _outcome) = mpsc::channel();
    let entry = Entry::past(put("/a", 1 << 20), 1);
    let refused = alone.intake.put(&entry, ReturnAddress::Thread(sender));
    assert_eq!(refused, Err(CommitError::BrokerRefuses { max: 1 << 20 }));
    assert_eq!(alone.intake.bytes(), 0);
    let _outcome = alone.publish("/a", 1);
    assert!(alone.intake.bytes() > 64, "an entry counts with what it takes beside its bytes");
}

/// The time counts from the first look at what waits, however often a look follows.
#[test]
fn a_waiting_batch_keeps_its_patience() {
    let mut alone = Alone::open();
    let _first = alone.publish("/a", 1);
    alone.node.handle_time(0);
    let waits = alone.publish("/b", 1);
    for now_ms in (300..=PATIENCE_MS + 1_000).step_by(100) {
        alone.intake.expire(now_ms);
    }
    assert_eq!(waits.try_recv().unwrap().unwrap_err(), CommitError::BrokerBehind);
}

#[test]
fn a_malformed_message_of_this_run_is_skipped() {
    let strange = |out: &mut Vec<u8>| out.push(b'x');
    let mut malformed = Growing::new();
    malformed.push(strange);
    for malformed in [malformed, encoded(Op::Rules(vec![Rule::default()]))] {
        let mut alone = Alone::open();
        let outcome = alone.publish("/a", 1);
        alone.node.handle_time(0);
        let (payload, _) = alone.appends().pop().unwrap();
        let LogMessage { epoch, run, counter, .. } = decode(&payload).unwrap();
        let malformed = malformed.into_batch((epoch, run, counter), OF);
        assert!(alone.node.handle_message(2, &malformed, 0).is_some());
        assert_eq!(outcome.try_recv().unwrap().unwrap_err(), CommitError::Failed);
        assert_eq!(alone.intake.bytes(), 0);
        assert!(alone.node.is_open() && alone.node.read() == 2);
    }
}

/// Its node may be newer, and its changes count. When the message is gone, the node continues.
#[test]
fn a_message_of_another_version_stops_the_node() {
    let mut alone = Alone::open();
    let mut newer = encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF);
    newer[3] += 1;
    let checksum = hash_of_version(newer[3], &newer[13..]).to_le_bytes();
    newer[4..12].copy_from_slice(&checksum);
    assert!(alone.node.handle_message(2, &newer, 0).is_none());
    let stopped = Some(NotReady::OtherVersion { seq: 2 });
    for now_ms in [LOOK_MS, 2 * LOOK_MS] {
        assert_eq!(look_and_answer(&mut alone, 2, Some(2), now_ms), []);
        assert_eq!((alone.node.not_ready(), alone.node.read()), (stopped, 1));
    }
    // It was deleted: that is a hole.
    let actions = look_and_answer(&mut alone, 2, None, 3 * LOOK_MS);
    assert_eq!(actions, [Action::Snapshot { epoch: alone.epoch }]);
    assert_ne!(alone.node.not_ready(), stopped);
}

fn hash_of_version(version: u8, rest: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(version), rest)
}

/// A broker has kept another message for another node, or left one out.
#[test]
fn a_node_finds_that_another_has_read_otherwise() {
    for (differs, finds) in [(0, None), (1, Some(NotReady::Suspecting { why: DIFFERS, read: 2 }))] {
        let mut alone = Alone::open();
        alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
        let shown = alone.node.position.running.shown();
        let of = Of { read: Checksum { sum: shown.sum + differs, ..shown }, ..OF };
        alone.read(&encoded(put("/b", 3)).into_batch((alone.epoch, 9, 2), of));
        let _ = look_and_answer(&mut alone, 3, None, LOOK_MS);
        assert_eq!(alone.node.not_ready(), finds);
    }
}

#[test]
fn a_damaged_message_counts_as_deleted() {
    let mut alone = Alone::open();
    let mut damaged = encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF);
    *damaged.last_mut().unwrap() ^= 1;
    assert!(alone.node.handle_message(2, &damaged, 0).is_none());
    assert!(!alone.node.is_open());
    let actions = look_and_answer(&mut alone, 3, Some(2), LOOK_MS);
    assert_eq!(actions, [Action::Snapshot { epoch: alone.epoch }]);
    let wants = NotReady::NeedsSnapshot { epoch: alone.epoch };
    assert_eq!(alone.node.not_ready(), Some(wants));
}

#[test]
fn a_directory_of_another_cluster_joins_nothing() {
    for (cluster, joins) in [(1, true), (2, false)] {
        let mut node = new_node(&Arc::new(ClusterIntake::new()));
        let epoch = Epoch::from_number(2);
        node.begin_with(node.stage(Epoch::from_number(3))).unwrap();
        node.set_cluster(cluster);
        node.handle_connected(0);
        let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
        let life = Some((1, new_epoch().encode((epoch, 9, 0)), false));
        node.handle_looked(token, &looked(1, life.clone()), 0);
        let refuses = Some(NotReady::OtherCluster { theirs: 1, ours: 2 });
        assert_eq!((node.poll().is_some(), node.not_ready() == refuses), (joins, !joins));
        // The operator names the right stream.
        node.handle_lost();
        node.handle_connected(0);
        let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks again") };
        let right = EpochRecord { cluster, ..new_epoch() }.encode((epoch, 9, 0));
        node.handle_looked(token, &looked(1, Some((1, right, false))), LOOK_MS);
        assert_eq!(node.poll(), Some(Action::Read { from: 1 }));
    }
}

/// A list travels with the log, with an epoch that begins, and with a snapshot.
#[test]
fn what_one_node_guards_all_nodes_guard() {
    let list = |pattern: &str| vec![(Pattern::parse(pattern).unwrap(), true)];
    let rules = |pattern: &str| rules_of(&list(pattern), 0);
    let lists = |node: &ClusterNode| lists_of(&node.hub.rules().1);
    let apply = |alone: &Alone, rules: Vec<Rule>| {
        let rules = with_lists(&rules, lists_of(&alone.node.hub.rules().1));
        alone.node.hub.apply(Entry::past(Op::Rules(rules), 0), Place::Next).unwrap();
    };
    let mut guards = Alone::open();
    apply(&guards, rules("/a/*"));
    let mut other = Alone::open();
    let mut pass = |guards: &mut Alone| {
        guards.node.handle_time(0);
        for (payload, _) in guards.appends() {
            guards.read(&payload);
            other.read(&payload);
        }
        guards.node.handle_time(0);
        assert!(guards.appends().is_empty(), "it is in the log");
        lists(&other.node)
    };
    assert_eq!(pass(&mut guards), [list("/a/*")]);
    // A reload replaces it.
    apply(&guards, rules("/b/*"));
    assert_eq!(pass(&mut guards), [list("/b/*")]);
    // The rules of the other node are its own, and its seeds have the list.
    apply(&other, vec![Rule::new(Pattern::parse("/c").unwrap())]);
    assert_eq!((lists(&other.node), other.node.hub.rules().1.len()), (vec![list("/b/*")], 2));
    assert_eq!(lists_of(&lists_for_seeds(&other.node.hub)), [list("/b/*")]);
    let staged = other.node.stage(Epoch::from_number(9));
    other.node.adopt(staged, vec![list("/b/*")]).unwrap();
    assert_eq!(lists(&other.node), [list("/b/*")]);
}

/// The log of the broker loses it after that: no other node has it.
#[test]
fn a_change_to_publish_again_does_not_expire() {
    let mut alone = Alone::open();
    alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
    let only_here = newest(&alone.node.hub, 0);
    alone.node.keep(&only_here, 1);
    alone.node.handle_time(0);
    let (_, token) = alone.appends().pop().unwrap();
    alone.node.handle_appended(token, Appended::At(9), 0);
    alone.node.handle_time(PATIENCE_MS);
    assert_eq!(alone.node.writer.forget(&alone.intake).len(), 1);
}

const OF: Of = Of { read: Checksum { from: 0, upto: 0, sum: 0 }, jump: 0, since: None };

#[test]
fn no_message_is_larger_than_the_log_takes() {
    let mut alone = Alone::open();
    for n in 0..40 {
        let entries = encoded(put(&format!("/{n}"), 30));
        let batch = entries.into_batch((alone.epoch, 9, n), OF);
        alone.read(&batch);
    }
    alone.read(&encoded(put("/large", 700)).into_batch((alone.epoch, 9, 40), OF));
    alone.intake.set_payload_max(600);
    // The stream is made anew: what there was is written again.
    alone.node.handle_lost();
    alone.node.handle_connected(0);
    let mut now_ms = 0;
    let (payload, token) = loop {
        now_ms += LOOK_MS;
        alone.node.handle_time(now_ms);
        let mut turn = None;
        while let Some(action) = alone.node.poll() {
            match action {
                Action::Look { token, .. } => {
                    alone.node.handle_looked(token, &looked(0, None), now_ms);
                }
                Action::Append { payload, token, .. } => turn = Some((payload, token)),
                _ => {}
            }
        }
        if let Some(turn) = turn {
            break turn;
        }
        assert!(now_ms < 60_000, "no life is begun");
    };
    alone.node.handle_appended(token, Appended::At(1), now_ms);
    let Some(Action::Look { token, .. }) = alone.node.poll() else { panic!("it looks") };
    let life = Some((1, payload.to_vec(), false));
    alone.node.handle_looked(token, &looked(1, life), now_ms);
    alone.last = 0;
    alone.read(&payload);
    let mut seeds = 0;
    while let Some((payload, token)) = alone.appends().pop() {
        assert!(payload.len() <= 600, "{}", payload.len());
        seeds += 1;
        alone.node.handle_appended(token, Appended::At(alone.last + 1), now_ms);
        alone.read(&payload);
    }
    assert!(seeds > 5);
    let why = alone.node.not_ready();
    assert!(matches!(why, Some(NotReady::TooLarge { max: 600, .. })), "{why:?}");
    // It goes on once it may.
    alone.intake.set_payload_max(10_000);
    alone.node.handle_time(now_ms);
    let (payload, _) = alone.appends().pop().unwrap();
    alone.read(&payload);
    assert!(alone.node.is_open() && alone.node.not_ready().is_none());
}

#[test]
fn what_is_in_the_log_twice_counts_once() {
    let mut alone = Alone::open();
    let batch = |counter, topic| encoded(put(topic, 3)).into_batch((alone.epoch, 9, counter), OF);
    let [first, second] = [batch(1, "/a"), batch(2, "/b")];
    let of_another = encoded(put("/c", 3)).into_batch((alone.epoch, 8, 1), OF);
    for message in [&first, &second, &second, &first, &of_another] {
        alone.read(message);
    }
    let ids = ["/a", "/b", "/c"].map(|topic| alone.node.hub.value(topic).unwrap().id().seq >> 10);
    assert_eq!(ids, [2, 3, 6]);
    // Whoever reads it again begins to count again.
    let next = Epoch::from_number(3);
    alone.node.read_life(1, next, 0);
    alone.last = 1;
    let turn = new_epoch();
    alone.node.handle_message(1, &turn.encode((next, 9, 0)), 0);
    alone.read(&encoded(put("/a", 4)).into_batch((next, 9, 1), OF));
    assert_eq!(alone.node.hub.value("/a").unwrap().data().len(), 4);
}

/// The snapshot ends between a message and its copy, and does not contain the counts.
#[test]
fn a_node_that_starts_from_a_snapshot_skips_a_copy() {
    let mut alone = Alone::open();
    let epoch = alone.epoch;
    let batch = |run, counter, topic| encoded(put(topic, 3)).into_batch((epoch, run, counter), OF);
    let [first, second, third] = [batch(9, 1, "/a"), batch(8, 1, "/b"), batch(8, 2, "/c")];
    let turn = new_epoch();
    let turn = turn.encode((alone.epoch, 9, 0));
    alone.read(&first);
    alone.read(&second);
    let mut node = new_node(&Arc::new(ClusterIntake::new()));
    let (hub, kept) = (&alone.node.hub, node.stage(alone.epoch));
    kept.follow_upto(hub.id(hub.seq()).seq);
    node.begin_with(kept).unwrap();
    node.handle_connected(0);
    let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
    let life = Some((1, turn.clone(), false));
    node.handle_looked(token, &Looked { next: Some(3), ..looked(5, life) }, 0);
    let Some(Action::Read { from }) = node.poll() else { panic!("it reads") };
    let log = [turn, first.clone(), second, first, third];
    for (seq, message) in (1..).zip(&log).filter(|(seq, _)| *seq >= from) {
        node.handle_message(seq, message, 0);
    }
    assert_eq!((node.read(), node.not_ready()), (5, None));
    assert!(node.hub.value("/c").is_some() && node.hub.value("/a").is_none());
}

#[test]
fn what_a_broker_has_lost_is_said() {
    let of_life = |looked: Looked, at| {
        let mut alone = Alone::open();
        alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
        assert!(alone.node.is_open());
        alone.node.handle_time(LOOK_MS);
        let mut actions = std::iter::from_fn(|| alone.node.poll());
        let token = actions.find_map(|action| match action {
            Action::Look { token, .. } => Some(token),
            _ => None,
        });
        let turn = new_epoch();
        let life = Some((1, turn.encode((alone.epoch, 9, 0)), false));
        let looked = Looked { at, life, ..looked };
        alone.node.handle_looked(token.unwrap(), &looked, LOOK_MS);
        alone.node.not_ready()
    };
    let same = Some(hash_of(&encoded(put("/a", 3)).into_batch((Epoch::from_number(2), 9, 1), OF)));
    assert_eq!(of_life(looked(2, None), same), None);
    for (looked, at, why) in [(looked(1, None), None, ENDS), (looked(2, None), Some(7), DIFFERS)] {
        assert_eq!(of_life(looked, at), Some(NotReady::Suspecting { why, read: 2 }));
    }
}

#[test]
fn what_is_sent_again_is_another_message_that_says_the_same() {
    let mut alone = Alone::open();
    let refused_at_once = alone.publish("/a", 1);
    alone.node.handle_time(0);
    let (_, token) = alone.appends().pop().unwrap();
    alone.node.handle_appended(token, Appended::Refused(String::new()), 0);
    assert_eq!(
        refused_at_once.try_recv().unwrap().unwrap_err(),
        CommitError::NotReady(NotReady::Inspecting)
    );
    let refused_later = alone.publish("/a", 1);
    alone.node.handle_time(0);
    let (first, token) = alone.appends().pop().unwrap();
    alone.node.handle_appended(token, Appended::Unknown, 0);
    let (again, token) = alone.appends().pop().unwrap();
    assert!(again != first && decode(&again) == decode(&first));
    // The one before may be there, or come.
    alone.node.handle_appended(token, Appended::Refused(String::new()), 0);
    assert_eq!(refused_later.try_recv().unwrap().unwrap_err(), CommitError::Failed);
    assert_eq!(alone.intake.bytes(), 0);
}

#[test]
fn what_is_late_is_put_back_where_seqs_jump() {
    for is_stored in [false, true] {
        let mut alone = Alone::open();
        alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
        let only_here = newest(&alone.node.hub, 0);
        alone.node.keep(&only_here, 1);
        alone.node.handle_time(0);
        let (payload, token) = alone.appends().pop().unwrap();
        if is_stored {
            alone.node.handle_appended(token, Appended::At(9), 0);
        }
        let again = Again { began: 1, line: SequenceMapping::default(), jump: Some(1 << 20) };
        let again = Some(again);
        let turn = EpochRecord { again, ..new_epoch() };
        alone.read(&turn.encode((alone.epoch, 9, 0)));
        let (put_back, _) = alone.appends().pop().unwrap();
        let [before, behind] =
            [&payload, &put_back].map(|bytes| match decode(bytes).unwrap().body {
                MessageBody::Batch { of, entries } => (of, entries.to_vec()),
                other => panic!("{other:?}"),
            });
        assert_eq!(before.1, behind.1);
        assert_eq!(behind.0, Of { jump: alone.last, read: behind.0.read, ..before.0 });
    }
}

#[test]
fn behind_a_large_batch_the_next_one_grows_for_a_moment() {
    let behind = |entries| {
        let mut alone = Alone::open();
        let _outcomes: Vec<_> = (0..entries).map(|_| alone.publish("/a", 1)).collect();
        alone.node.handle_time(0);
        let (payload, token) = alone.appends().pop().unwrap();
        alone.node.handle_appended(token, Appended::At(2), 0);
        alone.read(&payload);
        alone
    };
    for (entries, pause_ms) in [(1, 0), (63, 0), (64, 1), (250, 2)] {
        let mut alone = behind(entries);
        let _next = alone.publish("/b", 1);
        let due_ms = (0..10).find(|now_ms| {
            alone.node.handle_time(*now_ms);
            !alone.appends().is_empty()
        });
        assert_eq!(due_ms, Some(pause_ms), "{entries}");
    }
    // What is full waits for nothing.
    let mut alone = behind(250);
    alone.intake.set_payload_max(2_000);
    let _full = [(); 2].map(|()| alone.publish("/b", 1_500));
    alone.node.handle_time(0);
    assert_eq!(alone.appends().len(), 1);
}

#[test]
fn whoever_has_read_what_is_lost_reads_the_same_life_again() {
    let mut alone = Alone::open();
    for counter in [1, 2] {
        alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, counter), OF));
    }
    // Another node has gone on where the second one was.
    let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: Some(1 << 20) });
    let turn = EpochRecord { again, ..new_epoch() };
    let life = Some((3, turn.encode((alone.epoch, 8, 0)), false));
    let before = hash_of(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
    let looked = Looked { at: Some(7), ..looked(3, life) };
    // The message before the jump is the one that it has read.
    let before = Looked { at: Some(before), ..looked.clone() };
    let mut next = Vec::new();
    for now_ms in [LOOK_MS, 2 * LOOK_MS] {
        alone.node.handle_time(now_ms);
        while let Some(action) = alone.node.poll() {
            match action {
                Action::Look { at: 2, token } => alone.node.handle_looked(token, &before, now_ms),
                Action::Look { token, .. } => alone.node.handle_looked(token, &looked, now_ms),
                other => next.push(other),
            }
        }
        assert_eq!(alone.node.not_ready(), Some(NotReady::Inspecting));
    }
    assert_eq!(next, [Action::Read { from: 1 }]);
}

/// Answers every look of a node that has read the beginning of a life by these. Returns what else
/// the node wants done.
fn look_and_answer(alone: &mut Alone, last: u64, next: Option<u64>, now_ms: u64) -> Vec<Action> {
    let turn = new_epoch();
    let life = Some((1, turn.encode((alone.epoch, 9, 0)), false));
    let looked = Looked { next, ..looked(last, life) };
    alone.node.handle_time(now_ms);
    let mut others = Vec::new();
    while let Some(action) = alone.node.poll() {
        match action {
            Action::Look { token, .. } => alone.node.handle_looked(token, &looked, now_ms),
            other => others.push(other),
        }
    }
    others
}

#[test]
fn a_consumer_that_delivers_nothing_is_opened_once_a_second() {
    let mut alone = Alone::open();
    let mut consumers = 0;
    for now_ms in (0..10_000).step_by(10) {
        // The log has message 2, and no consumer delivers it.
        alone.node.handle_message(3, b"", now_ms);
        consumers += look_and_answer(&mut alone, 3, Some(2), now_ms).len();
    }
    assert!((5..12).contains(&consumers), "{consumers}");
}

#[test]
fn a_message_appended_between_two_answers_is_no_hole() {
    let mut alone = Alone::open();
    let actions = look_and_answer(&mut alone, 3, None, LOOK_MS);
    assert!(actions.is_empty() && alone.node.reads(), "{actions:?}");
    // The look before has seen message 3, and this one does not find it.
    let actions = look_and_answer(&mut alone, 3, None, 2 * LOOK_MS);
    assert_eq!(actions, [Action::Snapshot { epoch: alone.epoch }]);
    let wants = NotReady::NeedsSnapshot { epoch: alone.epoch };
    assert_eq!(alone.node.not_ready(), Some(wants));
}

#[test]
fn a_node_behind_a_hole_begins_an_epoch_only_if_nobody_publishes() {
    let mut alone = Alone::open();
    let mut begins_ms = None;
    for now_ms in (LOOK_MS..60 * LOOK_MS).step_by(LOOK_MS as usize) {
        // Another node publishes for so long.
        let last = 5 + now_ms.min(30 * LOOK_MS) / LOOK_MS;
        for action in look_and_answer(&mut alone, last, Some(4), now_ms) {
            match action {
                Action::Snapshot { .. } => {}
                Action::Append { to: LogSubject::Life, after: 1, .. } => {
                    begins_ms.get_or_insert(now_ms);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let begins_ms = begins_ms.expect("an epoch begins");
    let quiet_ms = begins_ms - 30 * LOOK_MS;
    assert!((ALONE_MS..=ALONE_MS + 3 * LOOK_MS).contains(&quiet_ms), "{quiet_ms}");
}

#[test]
fn a_node_without_the_deleted_beginning_of_a_life_asks_peers() {
    let mut node = new_node(&Arc::new(ClusterIntake::new()));
    let epoch = Epoch::from_number(2);
    let again = Some(Again { began: 2, line: SequenceMapping::default(), jump: None });
    let turn = EpochRecord { again, ..new_epoch() };
    let looked = looked(5, Some((5, turn.encode((epoch, 9, 0)), false)));
    node.handle_connected(0);
    let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
    node.handle_looked(token, &Looked { next: Some(1), ..looked.clone() }, 0);
    assert_eq!(node.poll(), Some(Action::Read { from: 1 }));
    node.handle_message(4, b"", 0);
    let Some(Action::Look { token, at: 1 }) = node.poll() else { panic!("it looks again") };
    node.handle_looked(token, &Looked { next: Some(4), ..looked }, 0);
    assert_eq!(node.poll(), Some(Action::Snapshot { epoch }));
}

impl ClusterNode {
    /// Has the node ask for a snapshot of this epoch, as one whose log lacks messages does.
    pub(crate) fn ask_for_snapshot(&mut self, epoch: Epoch) {
        self.want(epoch, self.read(), 0);
    }
}

#[test]
fn a_jump_that_was_read_and_then_purged_is_said_again() {
    let mut alone = Alone::open();
    let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: Some(1 << 20) });
    let turn = EpochRecord { again, ..new_epoch() };
    alone.read(&turn.encode((alone.epoch, 9, 0)));
    let mut node = new_node(&Arc::new(ClusterIntake::new()));
    let (hub, kept) = (&alone.node.hub, node.stage(alone.epoch));
    kept.follow_upto(hub.id(hub.seq()).seq);
    kept.follow_rolled_back(&hub.rolled_back());
    node.begin_with(kept).unwrap();
    node.handle_connected(0);
    let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
    node.handle_looked(token, &Looked { first: 3, ..looked(2, None) }, 0);
    let Some(Action::Append { to: LogSubject::Life, payload, .. }) = node.poll() else {
        panic!("it says which life it is")
    };
    let MessageBody::Epoch(said) = decode(&payload).unwrap().body else { panic!("a turn") };
    assert_eq!(said.again.unwrap().line, alone.node.epoch.mapping);
}

#[test]
fn a_full_intake_refuses_changes() {
    let alone = Alone::open();
    let put = || {
        let entry = Entry::past(put("/a", 10_000), 1);
        alone.intake.put(&entry, ReturnAddress::Thread(mpsc::channel().0))
    };
    assert_eq!((0..100).take_while(|_| put().is_ok()).count(), 7, "they have 64 KiB in tests");
    assert_eq!(put(), Err(CommitError::BrokerBehind));
}

#[test]
fn a_renewal_of_another_epoch_changes_nothing() {
    let mut alone = Alone::open();
    let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: Some(1 << 20) });
    let turn = EpochRecord { broker: BROKER + 1, again, ..new_epoch() };
    alone.read(&turn.encode((Epoch::from_number(1), 8, 0)));
    assert_eq!((alone.node.epoch.broker, alone.node.epoch.mapping.last()), (BROKER, 0));
    assert!(alone.node.is_open());
}
