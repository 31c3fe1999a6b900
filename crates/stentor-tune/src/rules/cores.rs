//! Processor time: each message to each reader is a call of the kernel, which no setting saves.

use super::commas;
use crate::{Change, Facts, Finding, Need, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(cores) = facts.cores_of_time() else {
        return vec![Finding::unknown("the number of cores")];
    };
    let need = Need::of(facts, plan);
    if need.cores <= cores {
        let why = format!("{:.1} of {cores} are busy sending", need.cores);
        return vec![Finding::fine(why)];
    }
    let why = format!(
        "{} messages a second, to one reader each, keep {:.1} cores busy; when they are late, \
         those that wait for the same reader leave in one write",
        commas(need.packets_per_second as u64),
        need.cores
    );
    let change = Change::of(Setting::Cores, cores, need.cores.ceil());
    vec![Finding::new(Severity::Slows, [change], why, "cores")]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;
    use crate::facts::Cores;

    #[test]
    fn messages_times_readers() {
        let with = |allowed, quota| Facts {
            cores: Cores { online: Some(8), allowed: Some(allowed), quota, ..Cores::default() },
            ..Facts::default()
        };
        let at = |rate| Plan { rate, ..plan(100_000) };
        check(&judge(&with(2, None), &at(2.0)), Severity::Fine, &[]);
        check(&judge(&with(2, None), &at(4.0)), Severity::Slows, &["3"]);
        check(&judge(&with(8, None), &at(4.0)), Severity::Fine, &[]);
        check(&judge(&with(8, Some(0.5)), &at(1.0)), Severity::Slows, &["1"]);
        check(&judge(&Facts::default(), &at(1.0)), Severity::Unknown, &[]);
    }
}
