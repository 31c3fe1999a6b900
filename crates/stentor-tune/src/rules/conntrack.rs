//! Connection tracking: a firewall that follows every connection has a table of them, and drops
//! the packets of connections for which it has no room.
//!
//! The module may be loaded without any rule that uses it; then nothing is counted, and its size
//! is of no matter.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

const COUNT: &str = "net.netfilter.nf_conntrack_count";
const MOST: &str = "net.netfilter.nf_conntrack_max";
const BUCKETS: &str = "net.netfilter.nf_conntrack_buckets";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let (Some(count), Some(most)) = (facts.number(COUNT), facts.number(MOST)) else {
        return Vec::new();
    };
    if count == 0 {
        return vec![Finding::fine("no connection is tracked")];
    }
    // A tenth more, for connections that have ended are kept for a while.
    let need = plan.connections.saturating_add(plan.connections / 10).saturating_add(count);
    let room = most.max(need);
    let mut changes = Vec::new();
    if most < need {
        changes.push(Change::sysctl(MOST, most, need));
    }
    if let Some(buckets) =
        facts.number(BUCKETS).filter(|&buckets| buckets.saturating_mul(CHAIN_MAX) < need)
    {
        let wanted = room.div_ceil(CHAIN).next_multiple_of(BUCKETS_IN_PAGE);
        changes.push(Change::sysctl(BUCKETS, buckets, wanted));
    }
    if changes.is_empty() {
        return vec![Finding::fine(format!("room for {} connections", commas(most)))];
    }
    let (severity, why) = if most < need {
        (
            Severity::Blocks,
            "the firewall tracks connections, and drops new ones when its table is full",
        )
    } else {
        (Severity::Slows, "the firewall looks through long lists for every packet")
    };
    let cost = "some 320 bytes for each connection in it, and 8 for each bucket; a rule with \
                'notrack' for the server's port spares both";
    vec![Finding::new(severity, changes, why, cost)]
}

/// Connections in one bucket: as many as the kernel itself allowed until 5.15, and at most.
const CHAIN: u64 = 4;
const CHAIN_MAX: u64 = 8;

/// The kernel rounds their number up to whole pages.
const BUCKETS_IN_PAGE: u64 = 4_096 / 8;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn only_a_tracker_that_is_in_use_counts() {
        let idle = host(&[(COUNT, "0"), (MOST, "1000")]);
        check(&judge(&idle, &plan(100_000)), Severity::Fine, &[]);
        assert_eq!(judge(&Facts::default(), &plan(100_000)), []);
    }

    #[test]
    fn room_for_all_in_short_lists() {
        let facts = host(&[(COUNT, "12"), (MOST, "65536"), (BUCKETS, "16384")]);
        check(&judge(&facts, &plan(50_000)), Severity::Fine, &[]);
        check(&judge(&facts, &plan(100_000)), Severity::Blocks, &["110012"]);
        check(&judge(&facts, &plan(1_000_000)), Severity::Blocks, &["1100012", "275456"]);
        let facts = host(&[(COUNT, "12"), (MOST, "2000000"), (BUCKETS, "16384")]);
        check(&judge(&facts, &plan(1_000_000)), Severity::Slows, &["500224"]);
    }
}
