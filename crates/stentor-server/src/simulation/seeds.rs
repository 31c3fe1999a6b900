//! Many seeds of each kind: what the simulator's tests are run with, and the scripts of requests.

use super::client::{Script, Scripted};
use super::handover::HandOvers;
use super::{CONTROL, PATIENCE_MS, PUBLIC, Parts, World, hostile, patient, streams};
use crate::config::Mount;
use stentor_io::{Faults, Rng};

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

/// One seed of requests.
fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    settings.files.small_bytes_max = SMALL_FILE_BYTES_MAX;
    let parts = Parts { workers: 1, ..Parts::of_seed(seed, &mut rng, &[0]) };
    let faults = faults(&mut rng);
    let mut world = World::of(parts, seed ^ 0x5eed, faults, settings);
    let mut clients: Vec<Scripted> = (0..1 + rng.below(5))
        .map(|number| {
            let role = if rng.percent(50) { CONTROL } else { PUBLIC };
            let script = Script::random(&mut rng, role, number);
            Scripted::new(world.sim.connect(role), script)
        })
        .collect();
    let mut hand_overs = HandOvers::new(seed);
    let mut idle_turns = 0;
    while clients.iter().any(|client| !client.is_done()) {
        for client in &mut clients {
            client.play(&mut world.sim, &mut rng);
        }
        if rng.percent(20) {
            world.jobs.run_one();
        }
        if rng.percent(5) {
            world.loader.as_mut().unwrap().step();
        }
        hand_overs.play(&mut world);
        idle_turns = if world.turn() { 0 } else { idle_turns + 1 };
        assert!(idle_turns < 1_000, "seed {seed}: the server hangs\n{clients:#?}");
    }
    for client in &clients {
        client.check(seed);
        world.sim.stall(client.connection(), false);
        world.sim.finish_client(client.connection());
    }
    world.settle();
    world.sim.sleep(PATIENCE_MS);
    world.settle();
    world.check_nothing_is_left();
}

/// Runs many seeds, or the one that is asked for.
fn run_seeds(name: &str, run: impl Fn(u64) + std::panic::RefUnwindSafe, seeds_by_default: u64) {
    let asked = |name: &str| std::env::var(name).ok();
    let number = |name: &str| asked(name).and_then(|text| text.parse::<u64>().ok());
    if asked("STENTOR_SIM").is_some_and(|only| only != name) {
        return;
    }
    if let Some(seed) = number("STENTOR_SEED") {
        return run(seed);
    }
    let seeds = number("STENTOR_SEEDS").unwrap_or(seeds_by_default);
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed} failed; STENTOR_SIM={name} STENTOR_SEED={seed} runs it alone");
            std::panic::resume_unwind(panic);
        }
    }
    println!("{name}: {seeds} seeds without a violation");
}

#[test]
fn every_request_is_answered_once_in_order_with_the_right_bytes() {
    run_seeds("requests", run, 3_000);
}

#[test]
fn every_reader_is_told_everything_once_in_order_or_that_something_is_missing() {
    run_seeds("streams", streams::run, 1_000);
}

#[test]
fn whatever_attackers_do_others_are_served_and_memory_is_bounded() {
    run_seeds("hostile", hostile::run, 60);
}
