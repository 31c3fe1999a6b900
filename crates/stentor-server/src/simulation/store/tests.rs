//! The store's side of the server one by one, and with threads, which have no seeds.

use super::super::CONTROL;
use super::*;
use std::thread;
use stentor_hub::{Draft, Refusal};
use stentor_order::{CommitError, Due, Outcome, Promised};
use stentor_wire::target::TopicName;

/// A server with a store on this disk, the store's state, and who writes for it.
fn life(disk: &SimDisk) -> (World, Arc<StoreState>, Writer<SimDisk>) {
    let life = Life::new(begin(disk, rules(None)).unwrap(), &mut Chronicle::default(), 0, 1, 1);
    (life.world, life.state, life.writer.unwrap())
}

/// Publishes. What is not known at once the receiver is told.
fn put(world: &World, topic: &str) -> (Option<Outcome>, mpsc::Receiver<Outcome>) {
    let (sender, later) = mpsc::channel();
    let back = || ReturnAddress::Thread(sender.clone());
    let op = Op::Put(TopicName::parse(topic).unwrap(), Draft::new(*b"x"));
    (world.shared.committer.commit(op, Precondition::None, 0, &back), later)
}

fn error(outcome: Option<Outcome>) -> Option<CommitError> {
    outcome.and_then(Result::err)
}

#[test]
fn what_is_not_stored_is_taken_while_the_disk_is_broken_as_far_as_numbers_reach() {
    let disk = SimDisk::new(1);
    let (world, _, mut writer) = life(&disk);
    let broken = DiskFaults { write_percent: 100, names_percent: 100, ..DiskFaults::default() };
    disk.set_faults(broken);
    let (now, later) = put(&world, "/synced/a");
    assert!(now.is_none());
    writer.step(Duration::ZERO, 1);
    assert_eq!(error(later.try_recv().ok()), Some(CommitError::Failed));
    for topic in ["/synced/a", "/written/a", "/memory/a"] {
        assert_eq!(error(put(&world, topic).0), Some(CommitError::DiskFailed), "{topic}");
    }
    let taken = (0..200).take_while(|_| put(&world, "/none/a").0.is_some_and(|it| it.is_ok()));
    assert!((50..100).contains(&taken.count()));
    assert_eq!(error(put(&world, "/none/a").0), Some(CommitError::DiskFailed));
    disk.set_faults(DiskFaults::default());
    writer.step(Duration::ZERO, 2_000);
    assert!(put(&world, "/none/a").0.is_some_and(|outcome| outcome.is_ok()));
}

#[test]
fn a_publisher_is_answered_when_its_promise_holds_and_not_before() {
    let disk = SimDisk::new(1);
    let (world, _, mut writer) = life(&disk);
    assert!(put(&world, "/memory/a").0.is_some() && put(&world, "/none/a").0.is_some());
    let syncs_fail = DiskFaults { sync_percent: 100, ..DiskFaults::default() };
    disk.set_faults(syncs_fail);
    let (now, later) = put(&world, "/written/a");
    assert!(now.is_none() && later.try_recv().is_err());
    writer.step(Duration::ZERO, 1);
    assert!(later.try_recv().unwrap().is_ok(), "it is written without a sync");
    let (now, later) = put(&world, "/synced/a");
    assert!(now.is_none());
    writer.step(Duration::ZERO, 2);
    assert_eq!(error(later.try_recv().ok()), Some(CommitError::Failed));
}

#[test]
fn a_stop_with_a_broken_disk_ends_and_no_number_is_used_again() {
    let disk = SimDisk::new(1);
    let (world, state, mut writer) = life(&disk);
    assert!(put(&world, "/memory/a").0.is_some());
    disk.set_capacity(0);
    disk.set_faults(DiskFaults { write_percent: 100, ..DiskFaults::default() });
    writer.step(Duration::ZERO, 1);
    state.intake.end(Ending::Stop);
    assert!(writer.step(Duration::ZERO, 2));
    assert!(writer.end().result.is_err());
    let given = world.shared.hub.seq();
    disk.set_capacity(u64::MAX);
    disk.set_faults(DiskFaults::default());
    let found = begin(&disk, rules(None)).unwrap().found;
    assert!(found.last >= given && found.lost.iter().any(|range| range.contains(&given)));
}

/// Nothing of what they rest on may be rolled back afterwards.
#[test]
fn refusals_wait_for_the_state_they_rest_on() {
    let disk = SimDisk::new(1);
    let (world, _, mut writer) = life(&disk);
    let commit = |op: Op<'_>, when| {
        let (sender, later) = mpsc::channel();
        let back = || ReturnAddress::Thread(sender.clone());
        (world.shared.committer.commit(op, when, 0, &back), later)
    };
    let topic = || TopicName::parse("/synced/a").unwrap();
    let unless_there = || Precondition::IfNoneMatch(Box::from(*b"*"));
    let put = |when| commit(Op::Put(topic(), Draft::new(*b"x")), when);
    for is_kept in [true, false] {
        let (now, stored) = put(Precondition::None);
        assert!(now.is_none());
        let (now, failed) = put(unless_there());
        assert!(now.is_none() && failed.try_recv().is_err(), "it would be told too early");
        assert!(commit(Op::Delete(topic()), Precondition::None).0.is_none());
        let (now, absent) = commit(Op::Delete(topic()), Precondition::None);
        assert!(now.is_none() && absent.try_recv().is_err(), "it would be told too early");
        let sync_percent = if is_kept { 0 } else { 100 };
        disk.set_faults(DiskFaults { sync_percent, ..DiskFaults::default() });
        writer.step(Duration::ZERO, 1);
        let told = [stored, failed, absent].map(|it| error(it.try_recv().ok()));
        let refused = |refusal| Some(CommitError::Refused(refusal));
        let expected = match is_kept {
            true => [None, refused(Refusal::PreconditionFailed), refused(Refusal::NotFound)],
            false => [Some(CommitError::Failed); 3],
        };
        assert_eq!(told, expected);
        // What is kept is told at once.
        let now = commit(Op::Delete(topic()), Precondition::None).0;
        assert_eq!(error(now).is_some(), is_kept);
    }
}

/// It was to be closed for another process, which cannot take it over then.
#[test]
fn a_store_that_cannot_be_closed_is_gone_on_with() {
    let none = DiskFaults::default();
    for faults in [
        DiskFaults { write_percent: 100, names_percent: 100, ..none },
        DiskFaults { sync_percent: 100, names_percent: 100, ..none },
    ] {
        let disk = SimDisk::new(1);
        let (world, state, mut writer) = life(&disk);
        assert!(put(&world, "/synced/a").0.is_none());
        writer.step(Duration::ZERO, 1);
        disk.set_faults(faults);
        assert!(put(&world, "/synced/a").0.is_none());
        state.intake.end(Ending::HandOver);
        assert!(writer.step(Duration::ZERO, 2));
        assert_eq!(error(put(&world, "/none/a").0), Some(CommitError::DiskBehind), "it is held");
        let ended = writer.end();
        assert!(ended.result.is_err() && ended.writer.tip().is_none());
        state.intake.resume();
        let mut writer = ended.writer;
        // Publishers are told as of any disk that has failed.
        assert_eq!(error(put(&world, "/synced/a").0), Some(CommitError::DiskFailed));
        let complaint = state.publish_complaints()[0].to_string();
        assert!(complaint.starts_with("Nothing can be stored"), "{complaint}");
        assert!(!writer.step(Duration::ZERO, 1 << 60), "it has ended");
        assert!(!state.publish_complaints().is_empty());
        disk.set_faults(none);
        writer.step(Duration::ZERO, 1 << 61);
        assert!(state.publish_complaints().is_empty());
        let (now, later) = put(&world, "/synced/a");
        assert!(now.is_none());
        writer.step(Duration::ZERO, 1 << 61);
        assert!(later.try_recv().unwrap().is_ok());
        disk.kill();
        let found = begin(&disk, rules(None)).unwrap();
        assert_eq!(found.hub.value("/synced/a").map(|value| value.seq()), Some(3));
    }
}

#[test]
fn when_the_thread_that_writes_panics_nobody_waits_and_it_is_told() {
    let disk = SimDisk::new(1);
    let (world, _, mut writer) = life(&disk);
    let (now, kept) = put(&world, "/synced/a");
    writer.step(Duration::ZERO, 1);
    assert!(now.is_none() && kept.try_recv().unwrap().is_ok());
    let waiting = ["/synced/a", "/written/a"].map(|topic| put(&world, topic));
    disk.panic();
    assert!(writer.start().unwrap().join().is_err());
    for (now, later) in waiting {
        assert_eq!(
            (now.is_none(), error(later.try_recv().ok())),
            (true, Some(CommitError::Failed))
        );
    }
    for topic in ["/synced/a", "/written/a", "/memory/a"] {
        assert_eq!(error(put(&world, topic).0), Some(CommitError::DiskFailed), "{topic}");
    }
    let applied = match put(&world, "/none/a").0 {
        Some(Ok(applied)) => applied,
        other => panic!("what is not stored needs nobody who writes: {other:?}"),
    };
    // One that was admitted before and asks now.
    let due = Due { seq: world.shared.hub.seq(), keep: Keep::Synced };
    let (sender, later) = mpsc::channel();
    let promised = Promised { due, outcome: Ok(applied), back: ReturnAddress::Thread(sender) };
    world.shared.committer.when_kept(&mut vec![promised]);
    assert_eq!(error(later.try_recv().ok()), Some(CommitError::Failed));
    let complaint = world.shared.committer.service().unwrap().publish_complaints()[0].to_string();
    assert!(complaint.contains("panicked"), "{complaint}");
    disk.kill();
    let begun = begin(&disk, rules(None)).unwrap();
    assert_eq!(begun.hub.value("/synced/a").map(|value| value.seq()), Some(1));
    assert!(begun.found.last > world.shared.hub.seq());
}

/// The thread that writes waits in a sync. Readers must not notice.
#[test]
fn publishers_at_a_hung_disk_are_answered() {
    let disk = SimDisk::new(1);
    let (world, state, mut writer) = life(&disk);
    let mut watch = Watch::new(&state.intake);
    let (now, later) = put(&world, "/synced/a");
    assert!(now.is_none());
    let (asked, mut hung) = (Arc::clone(&state), Some((world, later)));
    let meanwhile = move || {
        let Some((world, later)) = hung.take() else { return };
        watch.look(5_000);
        watch.look(5_999);
        assert!(asked.publish_complaints().is_empty());
        watch.look(6_000);
        assert_eq!(
            asked.publish_complaints()[0].detail,
            "The disk of the store has not answered for 1 s: publishers wait."
        );
        assert!(later.try_recv().is_err() && put(&world, "/synced/b").0.is_none(), "they wait");
        watch.look(5_000 + WAIT_MAX_MS);
        assert_eq!(error(later.try_recv().ok()), Some(CommitError::Failed));
        watch.look(5_001 + WAIT_MAX_MS);
        assert_eq!(error(put(&world, "/synced/b").0), Some(CommitError::DiskBehind));
        assert!(put(&world, "/none/a").0.is_some_and(|outcome| outcome.is_ok()));
    };
    during_syncs(meanwhile, || writer.step(Duration::ZERO, 1));
    assert!(state.intake.stalled_ms() > 0, "it was never slow");
    let mut watch = Watch::new(&state.intake);
    watch.look(30_000);
    assert!(state.publish_complaints().is_empty() && state.intake.stalled_ms() == 0);
}

/// Many are told at once what came of their changes.
#[test]
fn a_panic_behind_an_answer_leaves_nobody_else_without_one() {
    let disk = SimDisk::new(1);
    let (mut world, _, mut writer) = life(&disk);
    let put = b"PUT /synced/a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
    let panic = b"GET /-/panic HTTP/1.1\r\nHost: h\r\n\r\n";
    let clients = [(); 3].map(|()| world.sim.connect(CONTROL));
    for (index, client) in clients.into_iter().enumerate() {
        let behind: &[u8] = if index == 0 { panic } else { b"" };
        world.sim.write(client, &[&put[..], behind].concat());
    }
    world.settle();
    writer.step(Duration::ZERO, 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.settle()));
    assert!(panicked.is_err());
    let World { worker, sim, .. } = &mut world;
    worker.recover(sim);
    worker.read_mailbox(sim);
    world.settle();
    for client in &clients[1..] {
        let answer = String::from_utf8(world.sim.read(*client)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer:?}");
    }
}

/// Whoever comes when: a wake-up that is lost is an answer that never comes.
#[test]
fn nobody_waits_for_ever() {
    let disk = SimDisk::new(1);
    let (world, state, writer) = life(&disk);
    let thread = writer.start().unwrap();
    let shared = &world.shared;
    let publish = |topic: &str| loop {
        let (sender, later) = mpsc::channel();
        let back = || ReturnAddress::Thread(sender.clone());
        let op = Op::Put(TopicName::parse(topic).unwrap(), Draft::new(*b"x"));
        let now = shared.committer.commit(op, Precondition::None, 0, &back);
        let outcome = now.unwrap_or_else(|| later.recv_timeout(PATIENCE).expect("an answer"));
        match outcome {
            Ok(_) => return,
            Err(CommitError::DiskBehind) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    thread::scope(|scope| {
        for first in 0..4 {
            let publish = &publish;
            scope.spawn(move || {
                (0..500).for_each(|n| publish(["/synced/a", "/written/a"][(first + n) % 2]));
            });
        }
    });
    assert_eq!(shared.hub.seq(), 2_000);
    state.intake.end(Ending::Stop);
    thread.join().unwrap().unwrap();
    let begun = begin(&disk, rules(None)).unwrap();
    assert_eq!((begun.found.last, begun.found.lost), (2_000, vec![]));
}

const PATIENCE: Duration = Duration::from_secs(30);

/// The writer wakes up often meanwhile, which must not postpone the retry.
#[test]
fn a_failed_disk_is_retried_under_load() {
    let disk = SimDisk::new(1);
    let (world, _, mut writer) = life(&disk);
    let broken = DiskFaults { write_percent: 100, names_percent: 100, ..DiskFaults::default() };
    disk.set_faults(broken);
    drop(put(&world, "/synced/a"));
    writer.step(Duration::ZERO, 1);
    assert_eq!(error(put(&world, "/synced/a").0), Some(CommitError::DiskFailed));
    disk.set_faults(DiskFaults::default());
    for now_ms in (100..=2_000).step_by(100) {
        writer.step(Duration::ZERO, now_ms);
    }
    assert!(put(&world, "/synced/a").0.is_none(), "it is not taken yet");
}

#[test]
fn a_snapshot_that_succeeds_resets_the_backoff() {
    let disk = SimDisk::new(1);
    let (world, _, mut writer) = life(&disk);
    let mut now_ms = 0;
    let pass_at = |writer: &mut Writer<SimDisk>, now_ms: u64| {
        for _ in 0..200 {
            drop(put(&world, "/synced/a"));
            writer.step(Duration::ZERO, now_ms);
            if let Some(pass) = writer.pass() {
                return Some(pass);
            }
        }
        None
    };
    for is_whole in [false, false, true, false, true] {
        let mut pass = pass_at(&mut writer, now_ms);
        assert!(pass.is_some(), "none is begun a minute after the first failure");
        while is_whole && let Some(some) = pass {
            pass = some.step().map(|(pass, _)| pass);
        }
        drop(pass);
        writer.step(Duration::ZERO, now_ms);
        now_ms += 60_000;
        if !is_whole && now_ms == 120_000 {
            now_ms += 60_000;
        }
    }
}
