//! Many seeds of each kind: what the simulator's tests are run with, and the scripts of requests.

use super::client::{Script, Scripted};
use super::handover::HandOvers;
use super::{
    CONTROL, FILES, PATIENCE_MS, PUBLIC, Parts, World, access, hostile, may_panic_at_all, patient,
    store, streams,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use stentor_config::{AccessFormat, AccessTarget, Close, Mount};
use stentor_io::{Faults, KernelFaults, Rng, lock};
use stentor_test::seeds;

/// Of the two files that are asked for one is smaller, one larger.
const SMALL_FILE_BYTES_MAX: usize = 4_096;

/// A network that is unkind in its own way.
pub(super) fn faults(rng: &mut Rng) -> Faults {
    let resets = if rng.percent(20) { 30 } else { 0 };
    Faults {
        split_percent: [0, 30, 90][rng.below(3)],
        refuse_percent: [0, 20, 80][rng.below(3)],
        reset_per_10_000: resets,
        delay_ms_max: 20,
        window_bytes: [13, 700, 9_000, 1 << 20][rng.below(4)],
    }
}

/// A kernel that is unkind to the server, in a third of the seeds.
pub(super) fn kernel_faults(seed: u64) -> KernelFaults {
    let mut rng = Rng::new(seed ^ 0x0001_00f5);
    if rng.below(3) > 0 {
        return KernelFaults::default();
    }
    let mut percent = || [0, 5, 30][rng.below(3)];
    KernelFaults { accept_percent: percent(), late_percent: percent(), spurious_percent: percent() }
}

/// One seed of requests. Returns which answers came.
fn run(seed: u64) -> BTreeSet<(u16, bool)> {
    let mut rng = Rng::new(seed);
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", FILES));
    settings.files.small_bytes_max = SMALL_FILE_BYTES_MAX;
    settings.log.access = Some(AccessTarget::Stdout);
    settings.log.access_format = AccessFormat::Json;
    let parts = Parts::of_seed(seed, &mut rng, &[0]);
    let faults = faults(&mut rng);
    let are_cut = faults.reset_per_10_000 > 0;
    if rng.percent(30) {
        settings.limits.close = Close::Reset;
    }
    let mut world = World::of(parts, seed ^ 0x5eed, faults, settings);
    let mut clients: Vec<Scripted> = (0..1 + rng.below(5))
        .map(|number| {
            let role = if rng.percent(50) { CONTROL } else { PUBLIC };
            let script = Script::random(&mut rng, role, number);
            let is_tcp = role == PUBLIC && rng.percent(50);
            let address = is_tcp.then_some(Ipv4Addr::LOCALHOST.into());
            let worker = rng.below(world.workers());
            let connect = |world: &mut World| world.sim.connect_from(role, address);
            Scripted::new(world.at(worker, connect), worker, script)
        })
        .collect();
    let mut hand_overs = HandOvers::new(seed);
    let mut idle_turns = 0;
    let panics = seed % 4 == 3 && may_panic_at_all();
    world.panic_at_random(panics);
    while clients.iter().any(|client| !client.is_done()) {
        for client in &mut clients {
            world.at(client.worker(), |world| client.play(&mut world.sim, &mut rng));
        }
        if rng.percent(20) {
            world.jobs.run_one();
        }
        // The file system may be slow.
        world.hung_mounts = usize::from(rng.percent(50));
        hand_overs.play(&mut world);
        idle_turns = if world.turn() { 0 } else { idle_turns + 1 };
        assert!(idle_turns < 1_000, "seed {seed}: the server hangs\n{clients:#?}");
    }
    world.panic_at_random(false);
    world.hung_mounts = 0;
    for client in &clients {
        client.check(seed, are_cut || panics);
        world.at(client.worker(), |world| world.sim.stall(client.connection(), false));
    }
    world.settle();
    for client in &clients {
        world.at(client.worker(), |world| {
            let more = world.sim.read(client.connection());
            assert!(more.is_empty(), "seed {seed}: behind the last answer: {more:?}");
            world.sim.finish_client(client.connection());
        });
    }
    world.settle();
    world.at_all(|world| world.sim.sleep(PATIENCE_MS));
    world.settle();
    world.check_nothing_is_left();
    // The line of an answer whose connection panicked may be missing.
    if !panics {
        check_log(&world, &clients, seed);
    }
    clients.iter().flat_map(Scripted::statuses).collect()
}

/// Every answer is in the access log once, in the order of its connection, with its status and the
/// length of its body.
fn check_log(world: &World, clients: &[Scripted], seed: u64) {
    let mut logged = vec![Vec::new(); clients.len()];
    let mut of_nobody = 0;
    for line in world.shared.access_log.as_ref().unwrap().read().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line[name].as_u64().unwrap();
        match line["user_agent"].as_str().and_then(|text| text.parse::<usize>().ok()) {
            Some(client) => {
                logged[client].push((number("status") as u16, number("body_bytes") as usize));
            }
            None => of_nobody += 1,
        }
    }
    let is_missing = |(client, logged): &(&Scripted, &Vec<_>)| client.check_log(seed, logged);
    let missing = clients.iter().zip(&logged).filter(is_missing).count();
    assert!(missing <= of_nobody, "seed {seed}: answers are not logged");
    let totals = world.totals();
    let answers = totals.requests_by_kind.map(|times| times.buckets.iter().sum::<u64>());
    let lines = logged.iter().map(Vec::len).sum::<usize>() + of_nobody;
    assert_eq!(lines as u64, answers.iter().sum::<u64>(), "seed {seed}");
}

#[test]
fn every_request_is_answered_once_in_order_with_the_right_bytes() {
    let answers = Mutex::new(BTreeSet::new());
    let has_run_all = seeds::run("requests", 3_000, |seed| lock(&answers).extend(run(seed)));
    let answers = answers.into_inner().unwrap();
    assert!(!has_run_all || answers == BTreeSet::from(ANSWERS), "{answers:?}");
}

/// The answers that come in some seed: their statuses, and whether the client had asked with the
/// date of a value.
const ANSWERS: [(u16, bool); 9] = [
    (200, false),
    (201, false),
    (206, false),
    (304, false),
    (400, false),
    (404, false),
    (412, false),
    (200, true),
    (304, true),
];

#[test]
fn every_reader_is_told_everything_once_in_order_or_that_something_is_missing() {
    seeds::run("streams", 1_000, streams::run);
}

#[test]
fn no_message_reaches_one_who_may_not_see_it() {
    seeds::run("access", 400, access::run);
}

/// `STENTOR_SEEDS=1700` makes a hundred thousand revocations.
#[test]
fn no_later_message_reaches_a_reader_whose_rights_have_ended() {
    let ended = AtomicU64::new(0);
    let has_run_all = seeds::run_kind("access", "revocations", 40, |seed| {
        ended.fetch_add(access::revocations::run(seed), Relaxed);
    });
    let states = access::revocations::revocations();
    println!("access: {} revocations, by the recheck: {states:?}", ended.into_inner());
    let states: Vec<_> = states.into_keys().collect();
    assert!(!has_run_all || states == REVOKED, "{states:?}");
}

/// The states in which the recheck ends readers: what is read, and what is waited for.
const REVOKED: [(&str, &str); 9] = [
    ("poll", "event"),
    ("poll", "queue"),
    ("poll", "room"),
    ("stream", "event"),
    ("stream", "queue"),
    ("stream", "room"),
    ("transfer", "event"),
    ("transfer", "queue"),
    ("transfer", "room"),
];

#[test]
fn whatever_attackers_do_others_are_served_and_memory_is_bounded() {
    seeds::run("hostile", 60, hostile::run);
}

#[test]
fn what_is_acknowledged_outlives_kills_power_cuts_and_bad_disks() {
    seeds::run("store", 3_000, store::run);
}
