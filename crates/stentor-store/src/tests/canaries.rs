//! Bugs that are planted, each of which the lives of a store must bring to light.

use super::life::run;
use crate::planted::{self, Bug};
use std::panic::catch_unwind;

#[test]
fn every_planted_bug_is_found() {
    let mut report = String::new();
    for bug in Bug::ALL {
        let fails = |seed| !matches!(catch_unwind(|| run(seed)), Ok(Ok(_)));
        let found = planted::with(bug, || (0..SEEDS_MAX).find(|seed| fails(*seed)));
        report += &match found {
            Some(seed) => format!("{bug:?} by seed {seed}\n"),
            None => format!("{bug:?} NOT FOUND\n"),
        };
    }
    println!("{report}");
    assert!(!report.contains("NOT"), "the harness is blind\n{report}");
}

/// Far more than any takes.
const SEEDS_MAX: u64 = 3_000;
