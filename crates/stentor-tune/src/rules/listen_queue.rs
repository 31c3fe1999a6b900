//! `net.core.somaxconn`: how many connections that are made may wait until a worker takes them.
//!
//! Stentor asks for 65,535 places in the queue of each worker, and the kernel cuts that down to
//! this. The queue matters when all come at once, as after a restart.

use crate::{Change, Facts, Finding, Need, Plan, Severity};

const NAME: &str = "net.core.somaxconn";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    if plan.client {
        return Vec::new();
    }
    let Some(places) = facts.number(NAME) else { return vec![Finding::unknown(NAME)] };
    let workers = Need::of(facts, plan).threads(facts, plan);
    let workers = u64::from(workers).max(1);
    // All within a second, of which a worker is busy with other things for a tenth.
    let burst = plan.connections / workers / 10;
    if places >= burst.min(PLACES_MAX) {
        return vec![Finding::fine(format!("{places} places for each of {workers} workers"))];
    }
    let wanted = burst.next_power_of_two().clamp(PLACES_MIN, PLACES_MAX);
    let change = Change::sysctl(NAME, places, wanted);
    let why = "when all connect within a second, what finds the queue full is dropped and tries \
               again a second later";
    let cost = "some kilobytes for each connection, while it waits there; a server that runs has \
                to be started again to ask for it";
    vec![Finding::new(Severity::Slows, [change], why, cost)]
}

/// What the kernel itself has as its default since 5.4.
const PLACES_MIN: u64 = 4_096;

/// What Stentor asks for.
const PLACES_MAX: u64 = 65_535;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn a_tenth_of_each_workers_connections() {
        let settled = |connections| Plan { workers: Some(2), ..plan(connections) };
        check(&judge(&host(&[(NAME, "128")]), &settled(1_000)), Severity::Fine, &[]);
        check(&judge(&host(&[(NAME, "128")]), &settled(10_000)), Severity::Slows, &["4096"]);
        check(&judge(&host(&[(NAME, "4096")]), &settled(100_000)), Severity::Slows, &["8192"]);
        check(&judge(&host(&[(NAME, "4096")]), &settled(9_000_000)), Severity::Slows, &["65535"]);
        check(&judge(&host(&[(NAME, "65535")]), &settled(9_000_000)), Severity::Fine, &[]);
        check(&judge(&Facts::default(), &settled(1)), Severity::Unknown, &[]);
        assert_eq!(judge(&Facts::default(), &Plan { client: true, ..plan(1) }), []);
    }
}
