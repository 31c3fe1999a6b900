//! `net.ipv4.tcp_max_orphans`: connections whose process has closed them, and whose peer has not
//! acknowledged that yet.
//!
//! There are few, but when a server stops or dies all its connections are orphans until the peers
//! have answered. Beyond the limit the kernel resets them.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "orphans";
const NAME: &str = "net.ipv4.tcp_max_orphans";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    if plan.client {
        return Vec::new();
    }
    let Some(most) = facts.number(NAME) else { return vec![Finding::unknown(RULE, NAME)] };
    // A stop is spread over five seconds, and a peer far away answers after one.
    let wanted = plan.connections / 4;
    if most >= wanted {
        return vec![Finding::fine(RULE, format!("room for {}", commas(most)))];
    }
    let why = "when the server stops, connections wait for their peers' last word; beyond this \
               number the kernel resets them";
    let cost = "each may hold what it had not sent yet, up to 64 KiB, which cannot be swapped";
    let change = Change::sysctl(NAME, most, wanted);
    vec![Finding::new(RULE, Severity::Slows, [change], why, cost)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn a_quarter_of_all() {
        let facts = host(&[(NAME, "131072")]);
        check(&judge(&facts, &plan(500_000)), Severity::Fine, &[]);
        check(&judge(&facts, &plan(1_000_000)), Severity::Slows, &["250000"]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
