//! Epochs begin, are read, and are gone back to.

use super::*;

/// Another node has begun a life in the empty log, and its epoch record was purged before this node
/// saw it.
#[test]
fn an_empty_log_does_not_count_as_waiting() {
    let (mut node, token) = beginning_node();
    node.handle_appended(token, Appended::Conflict(1), 10);
    let begun_ms = (6..60).map(|n| n * LOOK_MS).find(|now_ms| {
        node.handle_time(*now_ms);
        let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks") };
        node.handle_looked(token, &looked(3, None), *now_ms);
        matches!(node.poll(), Some(Action::Append { to: LogSubject::Life, after: 0, .. }))
    });
    assert_eq!(begun_ms, Some(6 * LOOK_MS + BARE_PATIENCE_MS), "another node may know the life");
}

/// The record may be in the log before its answer comes. A node that begins another epoch meanwhile
/// forgets the seeds of the first.
#[test]
fn no_look_overtakes_an_epoch_record() {
    let (mut node, _) = beginning_node();
    let looks_ms = (1..60).map(|n| n * LOOK_MS).find(|now_ms| {
        node.handle_time(*now_ms);
        node.poll().is_some()
    });
    assert_eq!(looks_ms, Some(5_000));
}

/// A node that is about to read the epoch record of another life is still in its own.
#[test]
fn a_turn_lost_unread_hides_no_loss() {
    let batch =
        |epoch, run, counter, topic| encoded(put(topic, 3)).into_batch((epoch, run, counter), OF);
    let turn = new_epoch();
    for says_again in [false, true] {
        let mut alone = Alone::open();
        let epoch = alone.epoch;
        alone.read(&batch(epoch, 9, 1, "/a"));
        alone.read(&batch(epoch, 9, 2, "/b"));
        let life = Some((3, turn.encode((Epoch::from_number(3), 8, 0)), false));
        alone.node.handle_time(LOOK_MS);
        let Some(Action::Look { token, .. }) = alone.node.poll() else { panic!("it looks") };
        alone.node.handle_looked(token, &looked(3, life), LOOK_MS);
        assert_eq!(alone.node.poll(), Some(Action::Read { from: 1 }));
        // The log has lost that, too, and another node has gone on where the first life was.
        let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: None });
        let message = match says_again {
            false => batch(epoch, 8, 1, "/c"),
            true => EpochRecord { again, ..turn.clone() }.encode((epoch, 8, 0)),
        };
        for now_ms in [2 * LOOK_MS, 4 * LOOK_MS] {
            alone.node.handle_message(3, &message, now_ms);
            look_and_answer(&mut alone, 3, Some(3), now_ms);
        }
        let differs = NotReady::Suspecting { why: DIFFERS, read: alone.node.read() };
        assert_eq!(alone.node.not_ready(), Some(differs), "{says_again}");
        assert!(alone.node.hub.value("/c").is_none());
    }
}

#[test]
fn seeds_that_may_be_lost_are_not_waited_for() {
    let cases = [
        (BROKER, LOOK_MS, false),
        (BROKER, SEED_PATIENCE_MS, true),
        // It may have lost some.
        (BROKER + 1, LOOK_MS, true),
    ];
    for (broker, now_ms, is_begun_anew) in cases {
        let mut alone = Alone::open();
        alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
        let turn = EpochRecord { has_seed: true, ..new_epoch() };
        let turn = turn.encode((Epoch::from_number(3), 9, 0));
        alone.read(&turn);
        alone.node.handle_time(now_ms);
        let Some(Action::Look { token, .. }) = alone.node.poll() else { panic!("it looks") };
        let looked = Looked { broker, ..looked(3, Some((3, turn, false))) };
        alone.node.handle_looked(token, &looked, now_ms);
        let begins =
            |action| matches!(action, Action::Append { to: LogSubject::Life, after: 3, .. });
        assert_eq!(alone.node.poll().is_some_and(begins), is_begun_anew, "{broker} {now_ms}");
    }
}

#[test]
fn a_batch_of_another_life_or_of_before_a_jump_is_left_out() {
    let mut alone = Alone::open();
    let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: Some(1 << 20) });
    let turn = EpochRecord { again, ..new_epoch() };
    alone.read(&turn.encode((alone.epoch, 8, 0)));
    let (epoch, jump) = (alone.epoch, alone.last);
    let cases = [
        (epoch, 0, false),
        (Epoch::from_number(1), jump, false),
        (Epoch::from_number(1), 0, false),
        (epoch, jump, true),
    ];
    for (counter, (epoch, jump, is_applied)) in (1..).zip(cases) {
        let batch = encoded(put("/a", 3)).into_batch((epoch, 9, counter), Of { jump, ..OF });
        alone.read(&batch);
        assert_eq!(alone.node.hub.value("/a").is_some(), is_applied, "{epoch} {jump}");
    }
}

#[test]
fn what_whoever_begins_a_life_has_not_read_is_published_again() {
    let mut alone = Alone::open();
    alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
    let here = alone.node.hub.id(alone.node.hub.seq());
    alone.read(&encoded(put("/b", 3)).into_batch((alone.epoch, 9, 2), OF));
    let before = Some((here.epoch, here.seq));
    let turn = EpochRecord { before, ..new_epoch() };
    alone.read(&turn.encode((Epoch::from_number(3), 9, 0)));
    let appends = alone.appends();
    let [(payload, _)] = &appends[..] else { panic!("{appends:?}") };
    let MessageBody::Batch { of, entries } = decode(payload).unwrap().body else {
        panic!("a batch")
    };
    let entries = self::entries(entries).unwrap();
    assert!(of.since.is_some() && entries.len() == 1);
    let (entry, _) = decode_entry(entries[0]).unwrap();
    assert_eq!(entry.topic(), Some(&TopicName::parse("/b").unwrap()));
}

#[test]
fn who_has_read_a_life_says_again_where_it_began() {
    let mut alone = Alone::open();
    let turn = new_epoch();
    let turn = turn.encode((Epoch::from_number(3), 9, 0));
    alone.read(&turn);
    alone.node.handle_time(LOOK_MS);
    let Some(Action::Look { token, .. }) = alone.node.poll() else { panic!("it looks") };
    let looked = Looked { at: Some(hash_of(&turn)), ..looked(2, None) };
    alone.node.handle_looked(token, &looked, LOOK_MS);
    let Some(Action::Append { to: LogSubject::Life, after: 0, payload, .. }) = alone.node.poll()
    else {
        panic!("it says which life it is")
    };
    let LogMessage { epoch, body: MessageBody::Epoch(said), .. } = decode(&payload).unwrap() else {
        panic!("a turn")
    };
    assert_eq!((epoch, said.again.unwrap().began), (Epoch::from_number(3), 2));
}

/// The node has read a part of that epoch, and goes back to its own one.
#[test]
fn a_node_forgets_where_a_lost_epoch_began() {
    let mut alone = Alone::open();
    alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
    let unix_ms = 1 << 40;
    let turn = EpochRecord { has_seed: true, since_ms: unix_ms, ..new_epoch() };
    alone.read(&turn.encode((Epoch::from_number(3), 8, 0)));
    // The log loses two messages. A third epoch begins there, and is forgotten unread.
    let life = Some((2, turn.encode((Epoch::from_number(4), 8, 0)), false));
    let mut appends = Vec::new();
    for (now_ms, first, life) in [(LOOK_MS, 1, life), (2 * LOOK_MS, 3, None)] {
        alone.node.handle_time(now_ms);
        let Some(Action::Look { token, .. }) = alone.node.poll() else { panic!("it looks") };
        let looked = Looked { unix_ms, first, ..looked(2, life) };
        alone.node.handle_looked(token, &looked, now_ms);
        appends = alone.appends();
    }
    let (payload, _) = appends.pop().unwrap();
    let LogMessage { epoch, body: MessageBody::Epoch(said), .. } = decode(&payload).unwrap() else {
        panic!("a turn")
    };
    let again = said.again.unwrap();
    assert_eq!((epoch, again.began), (alone.epoch, 0));
    assert!(said.since_ms < unix_ms, "its age is assumed");
    assert!(again.jump.is_some(), "its SEQs may be lost");
}

#[test]
fn who_comes_from_an_old_disk_lets_others_begin_a_life() {
    let epoch = Epoch::from_number(2);
    let mut node = new_node(&Arc::new(ClusterIntake::new()));
    let kept = node.stage(epoch);
    let number = kept.life().number(2 << 10).unwrap();
    kept.apply(Entry::past(put("/a", 1), 1), Place::At(number)).unwrap();
    assert_eq!(node.begin_with(kept).unwrap(), 1);
    node.handle_connected(0);
    let turn = new_epoch();
    let looked = looked(1, Some((1, turn.encode((epoch, 9, 0)), false)));
    let begun_ms = (0..60).map(|n| n * LOOK_MS).find(|now_ms| {
        node.handle_time(*now_ms);
        let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks") };
        node.handle_looked(token, &looked, *now_ms);
        matches!(node.poll(), Some(Action::Append { to: LogSubject::Life, after: 1, .. }))
    });
    assert_eq!(begun_ms, Some(BARE_PATIENCE_MS), "others may have read more");
}

#[test]
fn a_life_of_which_a_seed_is_missing_is_not_adopted() {
    for (counters, is_adopted) in [([1, 3], false), ([1, 2], true)] {
        let mut alone = Alone::open();
        let epoch = Epoch::from_number(3);
        let turn = EpochRecord { has_seed: true, ..new_epoch() };
        alone.read(&turn.encode((epoch, 8, 0)));
        for (counter, is_last) in counters.into_iter().zip([false, true]) {
            alone.read(&encoded(put("/a", 1)).into_seed((epoch, 8, counter), is_last));
        }
        assert_eq!(
            (alone.node.hub.epoch() == epoch, alone.node.is_open()),
            (is_adopted, is_adopted)
        );
    }
}
