//! `net.core.netdev_max_backlog` and `netdev_budget`: only a host that ran short of them is told to
//! raise them. A burst long ago is no reason: what counts is drops among all packets.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

const BACKLOG: &str = "net.core.netdev_max_backlog";
const BUDGET: &str = "net.core.netdev_budget";
const BUDGET_TIME: &str = "net.core.netdev_budget_usecs";

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    if facts.softnet.is_empty() {
        return vec![Finding::unknown("/proc/net/softnet_stat")];
    }
    let sum = |count: fn(&crate::Softnet) -> u64| {
        facts.softnet.iter().map(count).fold(0, u64::saturating_add)
    };
    let (processed, dropped, squeezed) =
        (sum(|core| core.processed), sum(|core| core.dropped), sum(|core| core.squeezed));
    let raise = |name, wanted| {
        let now = facts.number(name).filter(|&now| now < wanted)?;
        Some(Change::sysctl(name, now, wanted))
    };
    let (mut changes, mut reasons) = (Vec::new(), Vec::new());
    if dropped > processed / DROPPED_ONE_IN {
        changes.extend(raise(BACKLOG, BACKLOG_WANTED));
        reasons.push(format!("{} packets were dropped before TCP saw them", commas(dropped)));
    }
    if squeezed > processed / SQUEEZED_ONE_IN {
        // A core stops at whichever it has used up first.
        changes.extend(raise(BUDGET, BUDGET_WANTED));
        changes.extend(raise(BUDGET_TIME, BUDGET_TIME_WANTED));
        reasons.push(format!("{} times a core stopped with packets left", commas(squeezed)));
    }
    if changes.is_empty() {
        let why = format!("{} of {} packets dropped", commas(dropped), commas(processed));
        return vec![Finding::fine(why)];
    }
    let why = format!(
        "of {} packets since the host was started: {}",
        commas(processed),
        reasons.join(", and ")
    );
    let cost = "a longer queue is a longer wait; look at the spread of interrupts first";
    vec![Finding::new(Severity::Slows, changes, why, cost)]
}

/// Ten and two times the kernel's defaults.
const BACKLOG_WANTED: u64 = 10_000;
const BUDGET_WANTED: u64 = 600;

/// What the kernel has by default if its clock ticks 250 times a second; at 1,000 it has 2,000.
const BUDGET_TIME_WANTED: u64 = 8_000;

/// Fewer losses do not show beside those of the network.
const DROPPED_ONE_IN: u64 = 1_000_000;

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
        check(&judge(&with(1, 10, "1000"), &plan(1)), Severity::Fine, &[]);
        let short = judge(&with(7, 10, "1000"), &plan(1));
        check(&short, Severity::Slows, &["10000"]);
        assert!(!short[0].why.contains("a core stopped"), "{}", short[0].why);
        check(&judge(&with(7, 10, "10000"), &plan(1)), Severity::Fine, &[]);
        check(&judge(&with(7, 2_000, "1000"), &plan(1)), Severity::Slows, &["10000", "600"]);
        let timed = host(&[(BUDGET, "600"), (BUDGET_TIME, "2000")]);
        let timed = Facts { softnet: with(0, 2_000, "0").softnet, ..timed };
        check(&judge(&timed, &plan(1)), Severity::Slows, &["8000"]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
