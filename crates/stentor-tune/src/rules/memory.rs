//! The host's memory: sockets, messages on their way, and the process.

use super::{commas, human_bytes};
use crate::{Change, Facts, Finding, Need, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(available) = facts.memory.available_bytes else {
        return vec![Finding::unknown("available memory")];
    };
    let need = Need::of(facts, plan);
    if need.bytes() <= available {
        let why = format!("{} of {}", human_bytes(need.bytes()), human_bytes(available));
        return vec![Finding::fine(why)];
    }
    let each = need.bytes() / plan.connections.max(1);
    let why = format!(
        "{} connections take {}, most of it in the kernel; {} hold about {}",
        commas(plan.connections),
        human_bytes(need.bytes()),
        human_bytes(available),
        commas(available / each.max(1)),
    );
    let change = Change::of(Setting::Memory, available, need.bytes());
    vec![Finding::new(Severity::Blocks, [change], why, "memory")]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan, said};
    use super::*;
    use crate::facts::Memory;

    #[test]
    fn what_fits_and_what_does_not() {
        let with = |bytes| Facts {
            memory: Memory { available_bytes: Some(bytes), ..Memory::default() },
            ..Facts::default()
        };
        check(&judge(&with(24_000_000_000), &plan(1_000_000)), Severity::Fine, &[]);
        let found = judge(&with(1_000_000_000), &plan(1_000_000));
        assert_eq!(said(&found).0, [Severity::Blocks]);
        let wanted = found[0].changes[0].wanted.parse().unwrap();
        check(&judge(&with(wanted), &plan(1_000_000)), Severity::Fine, &[]);
        check(
            &judge(&with(wanted - 1), &plan(1_000_000)),
            Severity::Blocks,
            &[&wanted.to_string()],
        );
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
