//! Crashes by the thousand: power cuts, kills, and disks that fail, in the middle of anything.

use super::life::run;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use stentor_test::seeds;

#[test]
fn after_any_crash_all_that_was_promised_is_there_and_nothing_else() {
    let crashes = AtomicU64::new(0);
    seeds::run("crashes", SEEDS, |seed| {
        let crashed = run(seed).unwrap_or_else(|told| panic!("{told}"));
        crashes.fetch_add(crashed as u64, Relaxed);
    });
    println!("{crashes:?} crashes");
}

/// Some 70,000 crashes.
const SEEDS: u64 = 20_000;
