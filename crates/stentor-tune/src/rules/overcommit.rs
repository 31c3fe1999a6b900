//! Strict accounting of memory (`vm.overcommit_memory = 2`): what is promised counts, not what is
//! used.

use super::human_bytes;
use crate::{Change, Facts, Finding, Need, Plan, Severity};

const NAME: &str = "vm.overcommit_memory";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(mode) = facts.number(NAME) else { return vec![Finding::unknown(NAME)] };
    if mode != 2 {
        return vec![Finding::fine("memory is counted when it is used")];
    }
    let (Some(limit), Some(committed)) =
        (facts.memory.commit_limit_bytes, facts.memory.committed_bytes)
    else {
        return vec![Finding::unknown("what is promised of memory")];
    };
    // The kernel's own memory for sockets is not counted.
    let need = Need::of(facts, plan).process_bytes;
    let left = limit.saturating_sub(committed);
    if need <= left {
        let why = format!("{} of {} that may be promised", human_bytes(need), human_bytes(left));
        return vec![Finding::fine(why)];
    }
    let why = format!(
        "the host promises no more than {}, and the server asks for {}",
        human_bytes(left),
        human_bytes(need)
    );
    let cost = "a host that runs out of memory ends a process, instead of refusing to one";
    let change = Change::sysctl(NAME, mode, 0);
    vec![Finding::new(Severity::Blocks, [change], why, cost)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::facts::Memory;

    #[test]
    fn strict_accounting_counts_what_is_promised() {
        let with = |mode, committed_bytes| Facts {
            memory: Memory {
                commit_limit_bytes: Some(1_000_000_000),
                committed_bytes: Some(committed_bytes),
                ..Memory::default()
            },
            ..host(&[(NAME, mode)])
        };
        check(&judge(&with("0", 999_000_000), &plan(1_000_000)), Severity::Fine, &[]);
        check(&judge(&with("2", 1_000_000), &plan(1_000_000)), Severity::Fine, &[]);
        check(&judge(&with("2", 999_000_000), &plan(1_000_000)), Severity::Blocks, &["0"]);
        check(&judge(&with("x", 0), &plan(1)), Severity::Unknown, &[]);
        check(&judge(&host(&[(NAME, "2")]), &plan(1)), Severity::Unknown, &[]);
    }
}
