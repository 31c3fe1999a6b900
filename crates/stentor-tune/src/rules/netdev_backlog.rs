//! `net.core.netdev_max_backlog` and `netdev_budget`: only a host that has dropped packets for want
//! of them is told to raise them.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "netdev-backlog";
const BACKLOG: &str = "net.core.netdev_max_backlog";
const BUDGET: &str = "net.core.netdev_budget";

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    if facts.softnet.is_empty() {
        return vec![Finding::unknown(RULE, "/proc/net/softnet_stat")];
    }
    let sum = |count: fn(&crate::Softnet) -> u64| {
        facts.softnet.iter().map(count).fold(0, u64::saturating_add)
    };
    let (processed, dropped, squeezed) =
        (sum(|core| core.processed), sum(|core| core.dropped), sum(|core| core.squeezed));
    let mut changes = Vec::new();
    let mut raise = |name, wanted| {
        if let Some(now) = facts.number(name).filter(|&now| now < wanted) {
            changes.push(Change::sysctl(name, now, wanted));
        }
    };
    if dropped > 0 {
        raise(BACKLOG, BACKLOG_WANTED);
    }
    if squeezed > processed / SQUEEZED_ONE_IN {
        raise(BUDGET, BUDGET_WANTED);
    }
    if changes.is_empty() {
        let why = format!("{} of {} packets dropped", commas(dropped), commas(processed));
        return vec![Finding::fine(RULE, why)];
    }
    let why = format!(
        "since the host was started {} packets were dropped before TCP saw them, and {} times a \
         core stopped with packets left",
        commas(dropped),
        commas(squeezed)
    );
    let cost = "a longer queue is a longer wait; look at the spread of interrupts first";
    vec![Finding::new(RULE, Severity::Slows, changes, why, cost)]
}

/// Ten and two times the kernel's defaults.
const BACKLOG_WANTED: u64 = 10_000;
const BUDGET_WANTED: u64 = 600;

/// A core that stops early once for so many packets does so seldom enough.
const SQUEEZED_ONE_IN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::Softnet;

    #[test]
    fn only_drops_count() {
        let with = |dropped, squeezed, backlog| Facts {
            softnet: vec![Softnet { processed: 1_000_000, dropped, squeezed }, Softnet::default()],
            ..host(&[(BACKLOG, backlog), (BUDGET, "300")])
        };
        check(&judge(&with(0, 10, "1000"), &plan(1)), Severity::Fine, &[]);
        check(&judge(&with(7, 10, "1000"), &plan(1)), Severity::Slows, &["10000"]);
        check(&judge(&with(7, 10, "10000"), &plan(1)), Severity::Fine, &[]);
        check(&judge(&with(7, 2_000, "1000"), &plan(1)), Severity::Slows, &["10000", "600"]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
