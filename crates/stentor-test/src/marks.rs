//! The marks of coverage of each simulation (`stentor_io::mark`): the faults that it plays, and the
//! rare branches that its oracle judges. A thousand seeds must pass all of them. Fewer seeds only
//! print what they missed.

use std::collections::BTreeSet;

/// Compares the marks that so many seeds of a simulation passed with its list.
///
/// # Panics
///
/// If [`JUDGED_SEEDS`] or more missed a mark.
pub(crate) fn judge(simulation: &str, seeds: u64, seen: &BTreeSet<&'static str>) {
    let listed = MARKS.iter().filter(|(of, _)| simulation.starts_with(of));
    let listed = listed.flat_map(|(_, marks)| marks.split_whitespace());
    let missed: Vec<_> = listed.filter(|mark| !seen.contains(mark)).collect();
    if !missed.is_empty() {
        println!("{simulation}: {seeds} seeds missed the marks {}", missed.join(", "));
    }
    assert!(
        missed.is_empty() || seeds < JUDGED_SEEDS,
        "{simulation}: {seeds} seeds missed the marks {missed:?}"
    );
}

const JUDGED_SEEDS: u64 = 1_000;

/// Each list counts for all simulations whose names begin with its name.
const MARKS: &[(&str, &str)] = &[
    (
        "requests",
        "commit-late commit-leaves-hole delivery-split network-reset send-cut worker-packed \
         worker-panics",
    ),
    (
        "streams",
        "accept-fails clock-ahead clock-back close-resets commit-fails commit-late \
         commit-leaves-hole cursor_ahead cursor_invalid day-passes delivery-split epoch_changed \
         hub-replaced late-event memory-critical memory-eased memory-high network-reset \
         published-meanwhile reader-breaks reader-stalls send-cut server-stops spurious-event \
         tcp-memory-critical worker-packed worker-panics",
    ),
    (
        "access",
        "accept-fails client-breaks client-stalls clock-ahead clock-back delivery-split \
         keys-change late-event revoked-stream-cut revoked-stream-told rules-change send-cut \
         spurious-event token-renewed worker-packed worker-panics",
    ),
    ("revocations", "revoked-blocked revoked-in-queue"),
    (
        "hostile",
        "attack-churn attack-commands attack-deaf attack-half-open attack-lookup attack-names \
         attack-pipeline attack-resume worker-packed worker-panics",
    ),
    (
        "store",
        "disk-full disk-full-in-write name-change-fails name-lost power-cut power-fails-in-call \
         process-killed read-fails sector-lost server-stops start-crashes sync-fails \
         sync-forgets sync-slow worker-packed write-torn",
    ),
    (
        "crashes",
        "disk-full disk-full-in-write name-change-fails name-lost power-cut power-fails-in-call \
         process-killed read-fails sector-lost sync-fails sync-forgets write-torn",
    ),
    ("cluster", "append-refused"),
    (
        "cluster Network",
        "append-unknown broker-stalls consumer-loses link-breaks log-purged \
         node-cut-off node-restarts-empty node-restarts-from-disk",
    ),
    ("cluster Loss", "broker-emptied broker-lost-end snapshot-cut snapshot-damaged snapshot-slow"),
    ("cluster Silent", "broker-emptied broker-lost-end"),
    ("cluster Fork", "broker-crashed-beside-pause"),
    ("cluster Holes", "message-damaged message-deleted"),
    ("cluster Purges", "log-purged snapshot-cut snapshot-damaged"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_thousand_seeds_pass_all_marks() {
        let all = BTreeSet::from(["append-refused", "broker-emptied", "broker-lost-end"]);
        judge("cluster Silent", 1_000, &all);
        judge("cluster Silent", 999, &BTreeSet::new());
        assert!(catch_unwind(|| judge("cluster Silent", 1_000, &BTreeSet::new())).is_err());
        judge("places", 1_000, &BTreeSet::new());
    }
}
