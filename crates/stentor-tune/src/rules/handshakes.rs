//! Processor time of TLS handshakes: what a network that comes back costs, or a restart.
//!
//! Readers spread their coming back over some seconds by themselves; whoever waits much longer
//! gives up and comes again, and then the work was for nothing.

use super::commas;
use crate::{Change, Facts, Finding, Need, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    if !plan.tls {
        return Vec::new();
    }
    let Some(cores) = facts.cores_of_time() else {
        return vec![Finding::unknown("the number of cores")];
    };
    let seconds = Need::of(facts, plan).handshake_seconds;
    let why = format!(
        "if all {} come back at once, their handshakes keep {cores} cores busy for {:.1} s",
        commas(plan.connections),
        seconds / cores
    );
    if seconds / cores <= COMING_BACK_S {
        return vec![Finding::fine(why)];
    }
    let why = format!("{why}; who waits for more than {COMING_BACK_S} s gives up and tries again");
    let change = Change::of(Setting::Cores, cores, (seconds / COMING_BACK_S).ceil());
    vec![Finding::new(Severity::Slows, [change], why, "cores, for that moment alone")]
}

/// As long as clients wait for a connection, and somewhat longer than the spread of their retries.
const COMING_BACK_S: f64 = 30.0;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;
    use crate::facts::Cores;

    #[test]
    fn a_million_come_back_in_some_time() {
        let with = |allowed, quota| Facts {
            cores: Cores { online: Some(8), allowed: Some(allowed), quota, ..Cores::default() },
            ..Facts::default()
        };
        let of = |connections| Plan { tls: true, ..plan(connections) };
        check(&judge(&with(2, None), &of(100_000)), Severity::Fine, &[]);
        check(&judge(&with(2, None), &of(1_000_000)), Severity::Slows, &["6"]);
        check(&judge(&with(6, None), &of(1_000_000)), Severity::Fine, &[]);
        check(&judge(&with(6, Some(0.5)), &of(1_000_000)), Severity::Slows, &["6"]);
        check(&judge(&Facts::default(), &of(1)), Severity::Unknown, &[]);
        assert_eq!(judge(&with(2, None), &plan(1_000_000)), []);
    }
}
