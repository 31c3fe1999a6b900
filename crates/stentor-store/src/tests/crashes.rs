//! Crashes by the thousand: power cuts, kills, and disks that fail, in the middle of anything.

use super::life::run;

#[test]
fn after_any_crash_all_that_was_promised_is_there_and_nothing_else() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("STENTOR_SEED") {
        run(seed).unwrap();
        return;
    }
    let mut crashes = 0;
    let seeds = number("STENTOR_SEEDS").unwrap_or(SEEDS);
    for seed in 0..seeds {
        crashes += run(seed).unwrap_or_else(|told| panic!("STENTOR_SEED={seed}: {told}"));
    }
    println!("{crashes} crashes in {seeds} seeds");
}

/// Some 70,000 crashes.
const SEEDS: u64 = 20_000;
