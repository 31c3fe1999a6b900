//! A broker loses messages, more than once or while a node recovers.

use super::*;

/// The record that says again where the epoch of [`Alone`] began, and that SEQs jump there.
fn jump(alone: &Alone, line: SequenceMapping, number: u64) -> Vec<u8> {
    let again = Some(Again { began: 1, line, jump: Some(number) });
    let turn = EpochRecord { again, ..new_epoch() };
    turn.encode((alone.epoch, 8, 0))
}

/// The node looks at a log that lacks its first message and ends with this epoch record. Before the
/// jump it has what the node has read. Returns what the node wants done.
fn look_at(alone: &mut Alone, (last, record): (u64, &[u8]), now_ms: u64) -> Vec<Action> {
    alone.node.handle_time(now_ms);
    let (mut others, mut looks) = (Vec::new(), 0);
    while let Some(action) = alone.node.poll() {
        match action {
            Action::Look { token, .. }
                if looks == 0 || alone.node.position.before_jump.is_some() =>
            {
                let life = Some((last, record.to_vec(), false));
                let at = alone.node.position.before_jump.map(|(_, hash)| hash);
                let looked = Looked { first: 2, at, ..looked(last, life) };
                alone.node.handle_looked(token, &looked, now_ms);
                looks += 1;
            }
            Action::Look { .. } => {}
            other => others.push(other),
        }
    }
    others
}

/// A node that has read values of /a and /b, in messages 2 and 3.
fn with_two_values() -> Alone {
    let mut alone = Alone::open();
    for (counter, topic) in [(1, "/a"), (2, "/b")] {
        alone.read(&encoded(put(topic, 3)).into_batch((alone.epoch, 9, counter), OF));
    }
    alone
}

/// The topics of the changes that a node is to publish again.
fn late_topics(alone: &mut Alone) -> Vec<String> {
    let mut topics = Vec::new();
    while let Some((batch, ..)) = next_late(&mut alone.node.late, 1 << 20) {
        topics.extend(topics_of(&batch.into_batch((alone.epoch, 7, 1), OF)));
    }
    topics
}

/// The topics of a batch.
fn topics_of(payload: &[u8]) -> Vec<String> {
    let MessageBody::Batch { entries, .. } = decode(payload).unwrap().body else {
        panic!("a batch")
    };
    let topic = |bytes| decode_entry(bytes).unwrap().0.topic().unwrap().as_str().to_owned();
    self::entries(entries).unwrap().into_iter().map(topic).collect()
}

/// The snapshot of a peer, which ends with this message.
fn snapshot(alone: &Alone, epoch: Epoch, last: u64) -> Hub {
    let staged = alone.node.stage(epoch);
    let number = staged.life().number(2 << 10).unwrap();
    staged.apply(Entry::past(put("/c", 1), 1), Place::At(number)).unwrap();
    staged.follow_upto(SequenceMapping::default().last_seq(last));
    staged
}

/// The SEQs by which a node judges what was changed meanwhile are those of one epoch.
#[test]
fn late_changes_do_not_outlive_their_epoch() {
    for is_on_its_way in [false, true] {
        let mut alone = with_two_values();
        let only_here = newest(&alone.node.hub, 0);
        if is_on_its_way {
            alone.node.keep(&only_here, 1);
            alone.node.handle_time(0);
            assert_eq!(alone.appends().len(), 1);
        }
        alone.node.keep(&only_here, 1 << 40);
        let epoch = Epoch::from_number(3);
        let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: None });
        let turn = EpochRecord { again, ..new_epoch() };
        let wanted = look_at(&mut alone, (9, &turn.encode((epoch, 8, 0))), LOOK_MS);
        assert!(wanted.contains(&Action::Snapshot { epoch }), "{wanted:?}");
        alone.node.handle_snapshot(Ok(snapshot(&alone, epoch, 9)), LOOK_MS);
        assert_eq!(alone.node.hub.epoch(), epoch);
        assert_eq!(late_topics(&mut alone), [""; 0]);
    }
}

/// A node that adopts a snapshot does not read its own message, which the log may have lost.
#[test]
fn late_changes_on_their_way_outlive_a_snapshot() {
    for is_stored in [false, true] {
        let mut alone = with_two_values();
        let only_here = newest(&alone.node.hub, 0);
        alone.node.keep(&only_here, 1);
        alone.node.handle_time(0);
        let (_, token) = alone.appends().pop().unwrap();
        if is_stored {
            alone.node.handle_appended(token, Appended::At(4), 0);
        }
        let wanted = look_and_answer(&mut alone, 9, Some(9), LOOK_MS);
        assert_eq!(wanted, [Action::Snapshot { epoch: alone.epoch }]);
        alone.node.handle_snapshot(Ok(snapshot(&alone, alone.epoch, 9)), LOOK_MS);
        assert!(alone.node.hub.value("/c").is_some());
        assert_eq!(late_topics(&mut alone), ["/a", "/b"], "{is_stored}");
    }
}

/// The same if the node reads its epoch again from where it began.
#[test]
fn late_changes_survive_a_second_reading() {
    let mut alone = with_two_values();
    let only_here = newest(&alone.node.hub, 0);
    alone.node.keep(&only_here, 1);
    alone.node.handle_time(0);
    let (_, token) = alone.appends().pop().unwrap();
    alone.node.handle_appended(token, Appended::At(4), 0);
    alone.node.local.has_diverged = true;
    let wanted = look_and_answer(&mut alone, 3, None, LOOK_MS);
    assert_eq!(wanted, [Action::Read { from: 1 }]);
    let turn = new_epoch();
    alone.node.handle_message(1, &turn.encode((alone.epoch, 9, 0)), LOOK_MS);
    assert!(alone.node.is_open() && alone.node.hub.value("/a").is_none());
    let (payload, _) = alone.appends().pop().unwrap();
    assert_eq!(topics_of(&payload), ["/a", "/b"]);
}

/// A message from before the loss has come into the log before SEQs jump: its id is of two.
#[test]
fn another_message_before_a_jump_ends_the_epoch() {
    let mut alone = with_two_values();
    let life = Some((3, jump(&alone, SequenceMapping::default(), 1 << 20), false));
    let looked = Looked { at: Some(7), ..looked(3, life) };
    let mut compared = Vec::new();
    for now_ms in [LOOK_MS, 2 * LOOK_MS, 3 * LOOK_MS] {
        alone.node.handle_time(now_ms);
        while let Some(action) = alone.node.poll() {
            match action {
                Action::Look { at, token } => {
                    compared.push(at);
                    alone.node.handle_looked(token, &looked, now_ms);
                }
                Action::Append { to: LogSubject::Life, payload, .. } => {
                    let begins = decode(&payload).unwrap();
                    assert!(begins.epoch != alone.epoch && now_ms >= 2 * LOOK_MS);
                    assert_eq!(compared, [3, 2, 2]);
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("it begins no epoch: {:?}", alone.node.not_ready());
}

/// The log has a record of an epoch whose beginning it has lost, and another one there.
#[test]
fn an_epoch_that_begins_nowhere_is_over() {
    let mut alone = Alone::open();
    let lost = Epoch::from_number(9);
    let again = Some(Again { began: 1, line: SequenceMapping::default(), jump: None });
    let record = EpochRecord { again, ..new_epoch() };
    let looked = looked(2, Some((2, record.encode((lost, 8, 0)), false)));
    let (mut wanted, mut begins) = (Vec::new(), 0);
    for now_ms in (LOOK_MS..=20 * LOOK_MS).step_by(LOOK_MS as usize) {
        alone.node.handle_time(now_ms);
        while let Some(action) = alone.node.poll() {
            match action {
                Action::Look { token, .. } => alone.node.handle_looked(token, &looked, now_ms),
                Action::Read { from: 1 } => {
                    let turn = new_epoch().encode((alone.epoch, 9, 0));
                    alone.node.handle_message(1, &turn, now_ms);
                }
                Action::Append { to: LogSubject::Life, .. } => begins += 1,
                other => wanted.push(other),
            }
        }
    }
    assert!(wanted.contains(&Action::Snapshot { epoch: lost }) && wanted.len() < 15);
    assert!(begins > 0, "{:?}", alone.node.not_ready());
}

#[test]
fn a_second_loss_is_published_again() {
    let mut alone = with_two_values();
    let first = jump(&alone, SequenceMapping::default(), 1 << 20);
    assert_eq!(look_at(&mut alone, (3, &first), LOOK_MS), []);
    // The broker has lost that record, too, and the message before it.
    let second = jump(&alone, SequenceMapping::default(), 1 << 21);
    for now_ms in [2 * LOOK_MS, 3 * LOOK_MS] {
        let wanted = look_at(&mut alone, (2, &second), now_ms);
        assert_eq!(wanted, [Action::Snapshot { epoch: alone.epoch }]);
    }
    assert_eq!(late_topics(&mut alone), ["/b", "/a", "/b"]);
}

/// A node that does not know how old the epoch is jumps far. If that is lost, one that knows it
/// does not jump as far.
#[test]
fn seqs_jump_beyond_those_of_a_lost_jump() {
    let mut alone = Alone::open();
    alone.read(&jump(&alone, SequenceMapping::default(), 1 << 21));
    alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), Of { jump: 2, ..OF }));
    alone.appends();
    let record = jump(&alone, SequenceMapping::default(), 1 << 20);
    for now_ms in [LOOK_MS, 2 * LOOK_MS] {
        let wanted = look_at(&mut alone, (2, &record), now_ms);
        let [Action::Append { to: LogSubject::Life, after: 2, payload, .. }] = &wanted[..] else {
            panic!("{wanted:?}")
        };
        let MessageBody::Epoch(turn) = decode(payload).unwrap().body else { panic!("a turn") };
        let (_, line) = turn.life(3);
        assert_eq!(line.seq(2), 1 << 30);
        assert_eq!(line.seq(3), ((1 << 21) + 2) << 10, "behind what was read");
    }
    // Then it leaves the order, and what was read is lost.
    let (_, line) = turn_of(&record).life(2);
    let record = jump(&alone, line, (1 << 21) + 2);
    look_at(&mut alone, (3, &record), 3 * LOOK_MS);
    assert_eq!(late_topics(&mut alone), ["/a"]);
    assert!(alone.node.local.has_diverged);
}

/// A node that comes from a disk does not know a jump that the others have read. If the log has
/// forgotten the epoch records, it may say the epoch again without that jump.
#[test]
fn a_read_jump_is_said_again() {
    let mut alone = Alone::open();
    alone.read(&jump(&alone, SequenceMapping::default(), 1 << 20));
    alone.appends();
    let record = jump(&alone, SequenceMapping::default(), 1 << 21);
    let wanted = look_at(&mut alone, (3, &record), LOOK_MS);
    assert_eq!(wanted, [], "it has not read that record");
    alone.read(&record);
    alone.appends();
    let wanted = look_at(&mut alone, (3, &record), 2 * LOOK_MS);
    let [Action::Append { to: LogSubject::Life, after: 3, payload, .. }] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    let again = turn_of(payload).again.unwrap();
    assert_eq!(again.line, alone.node.epoch.mapping);
    assert_eq!(again.line.jumps.len(), 2);
    assert!(again.jump.is_some(), "messages behind that record are of another line");
}

/// It is the snapshot of a node that has not found out yet that it has lost a part of the epoch.
#[test]
fn a_snapshot_that_lacks_a_jump_is_refused() {
    for is_whole in [false, true] {
        let mut line = SequenceMapping::default();
        let lacking = SequenceMapping::of_lost(&[3 << 10..=(1 << 31) - 1]);
        line.jump(2, 1 << 20);
        line.jump(3, 1 << 21);
        let alone = Alone::open();
        let mut node = new_node(&Arc::new(ClusterIntake::new()));
        let kept = node.stage(alone.epoch);
        kept.follow_upto(line.last_seq(4));
        kept.follow_rolled_back(&if is_whole { &line } else { &lacking }.lost());
        node.begin_with(kept).unwrap();
        node.handle_connected(0);
        let record = jump(&alone, line, 1 << 22);
        let mut second = Alone { node, ..alone };
        let wanted = look_at(&mut second, (5, &record), 0);
        assert_eq!(second.node.local.has_diverged, !is_whole, "{wanted:?}");
    }
}

/// Others have gone on behind its place, perhaps behind a jump that it has not read.
#[test]
fn a_node_from_disk_waits_for_others() {
    for (last, patience_ms) in [(4, 0), (5, BARE_PATIENCE_MS)] {
        let mut node = new_node(&Arc::new(ClusterIntake::new()));
        let kept = node.stage(Epoch::from_number(2));
        kept.follow_upto(SequenceMapping::default().last_seq(4));
        node.begin_with(kept).unwrap();
        node.handle_connected(0);
        let said_ms = (0..60).map(|n| n * LOOK_MS).find(|now_ms| {
            node.handle_time(*now_ms);
            let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks") };
            let looked = Looked { first: 3, next: Some(4), ..looked(last, None) };
            node.handle_looked(token, &looked, *now_ms);
            matches!(node.poll(), Some(Action::Append { to: LogSubject::Life, .. }))
        });
        assert_eq!(said_ms, Some(patience_ms));
    }
}

fn turn_of(record: &[u8]) -> EpochRecord {
    match decode(record).unwrap().body {
        MessageBody::Epoch(turn) => turn,
        other => panic!("{other:?}"),
    }
}

/// It was reading the seeds of an epoch, and a record among them is lost.
#[test]
fn an_epoch_being_read_survives_a_loss() {
    let mut alone = with_two_values();
    let epoch = Epoch::from_number(3);
    let turn = EpochRecord { has_seed: true, ..new_epoch() };
    alone.read(&turn.encode((epoch, 8, 0)));
    let again = |number| {
        let again = Some(Again { began: 4, line: SequenceMapping::default(), jump: Some(number) });
        let turn = EpochRecord { again, ..new_epoch() };
        turn.encode((epoch, 8, 0))
    };
    alone.read(&again(1 << 20));
    let mut wanted = Vec::new();
    for now_ms in [LOOK_MS, 2 * LOOK_MS] {
        wanted.extend(look_at(&mut alone, (5, &again(1 << 21)), now_ms));
    }
    assert_eq!(wanted, [Action::Read { from: 1 }]);
    assert_eq!((alone.node.read(), late_topics(&mut alone).len()), (3, 0));
}

#[test]
fn an_undelivered_last_message_is_requested_again() {
    let mut alone = Alone::open();
    let opened_ms: Vec<u64> = (LOOK_MS..100 * LOOK_MS)
        .step_by(LOOK_MS as usize)
        .filter(|now_ms| {
            let wanted = look_and_answer(&mut alone, 2, Some(2), *now_ms);
            wanted.contains(&Action::Read { from: 2 })
        })
        .collect();
    // A broker may take its time for a consumer: the node waits twice as long for each.
    assert_eq!(opened_ms, [3_000, 6_000, 11_000, 20_000, 37_000, 70_000]);
    assert!(alone.node.is_open());
    // Once one delivers something, the next loss is found out as soon as the first one.
    alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF));
    let opens = |alone: &mut Alone, now_ms| !look_and_answer(alone, 3, Some(3), now_ms).is_empty();
    let opens: Vec<bool> = (100..104).map(|n| opens(&mut alone, n * LOOK_MS)).collect();
    assert_eq!(opens, [false, false, true, false]);
}

/// The messages before a snapshot's place are read for their counts alone. If one of them is not
/// delivered, a copy behind it would count.
#[test]
fn counts_are_read_again_unless_all_were() {
    for is_cut in [false, true] {
        let mut alone = Alone::open();
        let batch = encoded(put("/a", 3)).into_batch((alone.epoch, 9, 1), OF);
        alone.read(&batch);
        let mut node = new_node(&Arc::new(ClusterIntake::new()));
        node.begin_with(snapshot(&alone, alone.epoch, 4)).unwrap();
        node.handle_connected(0);
        let (epoch, last) = (alone.epoch, 5);
        let mut second = Alone { node, intake: alone.intake, epoch, last };
        let wanted = look_and_answer(&mut second, 5, Some(4), 0);
        assert_eq!(wanted, [Action::Read { from: 1 }]);
        // It is of another run.
        second.node.handle_message(3, &encoded(put("/b", 3)).into_batch((epoch, 8, 1), OF), 0);
        match is_cut {
            true => second.node.handle_connected(0),
            false => second.node.handle_skipped(0),
        }
        let wanted = look_and_answer(&mut second, 5, Some(4), LOOK_MS);
        assert_eq!(wanted, [Action::Read { from: 1 }]);
        (2..=5).for_each(|seq| assert!(second.node.handle_message(seq, &batch, LOOK_MS).is_none()));
        assert_eq!(second.node.read(), 5);
        assert!(second.node.hub.value("/a").is_none());
    }
}

/// A message that is on its way is not overdue.
#[test]
fn a_consumer_that_delivers_stays_open() {
    let mut alone = Alone::open();
    for seq in 2..50 {
        let wanted = look_and_answer(&mut alone, seq + 1, Some(seq), seq * LOOK_MS);
        assert_eq!(wanted, []);
        alone.read(&encoded(put("/a", 3)).into_batch((alone.epoch, 9, seq), OF));
    }
}

/// If another message is there, the log has lost the record.
#[test]
fn only_its_record_begins_an_epoch() {
    let turn = new_epoch();
    let alone = Alone::open();
    let begins = turn.encode((alone.epoch, 9, 0));
    let batch = encoded(put("/c", 3)).into_batch((alone.epoch, 8, 1), OF);
    let jumps = jump(&alone, SequenceMapping::default(), 1 << 20);
    for (message, read) in [(batch, 0), (jumps, 0), (begins, 1)] {
        let mut alone = with_two_values();
        alone.node.read_life(1, alone.epoch, 0);
        alone.node.handle_message(1, &message, 0);
        assert_eq!(alone.node.read(), read);
    }
}

#[test]
fn a_divergence_ends_with_its_epoch() {
    let mut alone = with_two_values();
    alone.node.local.divergence = Some(Divergence { since_ms: 0, lost: Some(2..=9) });
    let turn = new_epoch();
    alone.read(&turn.encode((Epoch::from_number(3), 8, 0)));
    assert!(alone.node.is_open() && alone.node.local.divergence.is_none());
}
